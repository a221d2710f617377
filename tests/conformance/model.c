/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Random operations against a model of the rules, and transfers beyond 4 GiB. */
#include "random.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---------------------------------------------------------------------------- random operations */

/*
 * Both sides do the same at the same time, over two endpoints each. Each side has regions of every
 * kind, which only its peer accesses, and a model of the peer's regions. Each endpoint has its own
 * half of each region and is the only one to write there, so it knows what every read and atomic
 * must find. A write may become visible to an earlier read still in flight (rule 4.3), so such a
 * pair gets a FENCE.
 */
enum {
    HALF = 1 << 17,
    WORDS_AT = HALF - 512, /* the end of a half is for atomics */
    WORDS = 64,
    SIZE_MOST = 60000,
    DEPTH = 32,
    RECEIVES = 24,
    OPERATIONS_QUICK = 1500,
    OPERATIONS = 12000,
    CONTEXT_OF_RECEIVES = 1000,
    LANES = 2,
    PIECES = 4,
    LOCAL_KINDS = 3,
};

/* The regions that a peer accesses. On some paths the kind selects the code that runs. */
enum kind_of_region { REGISTERED, ALLOCATED, REGISTERED_NO_MAP, ALLOCATED_NO_MAP, REGIONS };

static const char *const region_names[REGIONS] = {
    "the registered region",
    "the allocated region",
    "the registered region with NO_MAP",
    "the allocated region with NO_MAP",
};

enum list_shape { BY_CALL, ONE_PIECE, TWO_PIECES, EMPTY_PIECES, LIST_SHAPES };

static const char *const list_names[LIST_SHAPES] = { "", ", list of one piece",
                                                     ", list of two pieces",
                                                     ", list with empty pieces" };

struct request {
    uint64_t index; /* index of the operation */
    uint32_t opcode;
    uint32_t flags;
    unsigned region;
    uint64_t offset; /* within the lane's half */
    size_t length;
    uint64_t word;     /* atomics: the value that must be found */
    uint64_t *result;  /* atomics: the value found */
    uint8_t *bytes;    /* SIZE_MOST bytes, local memory */
    uint8_t *expected; /* SIZE_MOST bytes, reads: the bytes that must arrive */
    struct rdmux_mr *mr;
};

/* The choices that the seed, the side and the number make for an operation. The rest follows from
 * the operations before it. */
enum kind { KIND_WRITE, KIND_WRITE_IMM, KIND_SEND, KIND_ATOMIC, KIND_READ };

struct plan {
    enum kind kind;
    unsigned lane;
    unsigned region;
    enum list_shape list;
    size_t length;  /* of writes and reads; a message's length follows from its number */
    uint64_t place; /* selects one of the places in the half that fit */
    uint64_t value; /* value of atomics, seed of patterns */
    uint32_t flags;
    bool can_inline;
    bool adds;      /* fetch_add; else compare_swap */
    bool misses;    /* compare_swap: expects a value that is not in memory */
    uint64_t drain; /* the most requests in flight before it */
};

/* An endpoint. */
struct lane {
    struct rdmux_ep *ep;
    unsigned number;
    struct rdmux_remote *remotes[REGIONS];
    struct request requests[DEPTH];
    uint64_t posted;
    uint64_t done;
    uint64_t sent; /* messages and notices, which are numbered */
    /* the other direction */
    uint8_t *receive_bytes;
    uint64_t received;
    bool over; /* the peer's last message has come */
};

struct model {
    struct side *side;
    struct lane lanes[LANES];
    struct region regions[REGIONS];
    uint8_t *peer_regions[REGIONS]; /* the model of the peer's regions */
};

/* Each side and lane has its own seed for messages. */
static uint64_t seed_of(uint64_t seed, bool initiator, unsigned lane)
{
    return seed + initiator + UINT64_C(1000003) * lane;
}

/* A message or notice contains its number. Its length and bytes follow from that. */
static size_t message_length(uint64_t seed, uint64_t number)
{
    uint64_t mixed = mix64(seed ^ (number * 77));
    return mixed % 10 == 0 ? mixed % SIZE_MOST : mixed % 200;
}

static bool is_read_or_atomic(const struct request *request)
{
    return request->opcode == RDMUX_WC_READ || request->opcode == RDMUX_WC_FETCH_ADD ||
           request->opcode == RDMUX_WC_COMPARE_SWAP;
}

/* Returns whether an earlier read or atomic that may still be in flight touches these bytes. */
static bool must_fence(const struct lane *lane, const struct request *next)
{
    for (uint64_t i = lane->done; i < lane->posted; i++) {
        const struct request *request = &lane->requests[i % DEPTH];
        if (is_read_or_atomic(request) && request->region == next->region &&
            next->offset < request->offset + request->length &&
            request->offset < next->offset + next->length) {
            return true;
        }
    }
    return false;
}

static size_t random_length(uint64_t *random)
{
    switch (random_below(random, 8)) {
    case 0:
        return 0;
    case 1:
        return (size_t)random_below(random, SIZE_MOST);
    case 2:
        return (size_t)random_below(random, 9000);
    default:
        return (size_t)random_below(random, 130);
    }
}

static uint32_t random_flags(uint64_t *random)
{
    uint32_t flags = random_below(random, 10) == 0 ? RDMUX_FENCE : 0;
    if (random_below(random, 12) == 0) {
        flags |= RDMUX_PLACED;
    }
    if (random_below(random, 6) == 0) {
        flags |= RDMUX_MORE;
    }
    if (random_below(random, 3) == 0) {
        flags |= RDMUX_UNSIGNALED;
    }
    return flags;
}

static struct plan plan_of(uint64_t seed, bool initiator, uint64_t index)
{
    static const enum kind kinds[] = { KIND_WRITE, KIND_WRITE, KIND_WRITE,  KIND_WRITE_IMM,
                                       KIND_SEND,  KIND_SEND,  KIND_ATOMIC, KIND_READ,
                                       KIND_READ,  KIND_READ };
    uint64_t random = mix64(mix64(seed) + 2 * index + (initiator ? 1 : 0));
    struct plan plan = { .kind = kinds[random_below(&random, COUNT_OF(kinds))] };
    plan.length = random_length(&random);
    plan.place = mix64(random);
    plan.value = mix64(random + 1);
    plan.flags = random_flags(&random);
    plan.can_inline = random_below(&random, 3) == 0;
    plan.adds = random_below(&random, 2) == 0;
    plan.misses = random_below(&random, 3) == 0;
    plan.drain = random_below(&random, 16) == 0 ? random_below(&random, DEPTH - 1) : DEPTH - 2;
    plan.lane = random_below(&random, 3) == 0;
    plan.region = (unsigned)random_below(&random, REGIONS);
    plan.list = random_below(&random, 2) == 0 ? BY_CALL
                                              : (enum list_shape)random_below(&random, LIST_SHAPES);
    return plan;
}

static bool is_message(const struct plan *plan)
{
    return plan->kind == KIND_SEND || plan->kind == KIND_WRITE_IMM;
}

static void choose_place(const struct plan *plan, struct request *request, size_t length)
{
    request->length = length;
    request->offset = plan->place % (WORDS_AT - length + 1);
}

/* Makes the list of a request's bytes. Returns the number of pieces. */
static uint32_t pieces_of(const struct request *request, enum list_shape shape,
                          struct rdmux_sge out[PIECES])
{
    uint8_t *bytes = is_read_or_atomic(request) && request->opcode != RDMUX_WC_READ
                         ? (uint8_t *)request->result
                         : request->bytes;
    const bool whole = bytes != request->bytes; /* a word needs one piece */
    const size_t cut = whole || shape == ONE_PIECE ? request->length : request->length / 3;
    const struct rdmux_sge first = { .addr = bytes, .length = cut, .mr = request->mr };
    const struct rdmux_sge rest = { .addr = bytes + cut,
                                    .length = request->length - cut,
                                    .mr = request->mr };
    const struct rdmux_sge empty = { .addr = NULL };
    if (whole || shape == ONE_PIECE) {
        out[0] = first;
        return 1;
    }
    if (shape == TWO_PIECES) {
        out[0] = first;
        out[1] = rest;
        return 2;
    }
    out[0] = out[2] = empty;
    out[1] = first;
    out[3] = rest;
    return PIECES;
}

/* Arguments of the call or the list other than the bytes. */
struct details {
    uint32_t op;
    uint32_t imm;
    uint64_t operand;
    uint64_t expected;
    void *context;
};

static enum rdmux_status post_call(struct lane *lane, struct request *request,
                                   const struct details *details)
{
    struct rdmux_ep *ep = lane->ep;
    struct rdmux_remote *remote = lane->remotes[request->region];
    const uint64_t offset = request->offset + (uint64_t)lane->number * HALF;
    switch (details->op) {
    case RDMUX_OP_SEND_IMM:
        return rdmux_send_imm(ep, request->bytes, request->length, request->mr, details->imm,
                              details->context, request->flags);
    case RDMUX_OP_WRITE:
        return rdmux_write(ep, request->bytes, request->length, request->mr, remote, offset,
                           details->context, request->flags);
    case RDMUX_OP_WRITE_IMM:
        return rdmux_write_imm(ep, request->bytes, request->length, request->mr, remote, offset,
                               details->imm, details->context, request->flags);
    case RDMUX_OP_READ:
        return rdmux_read(ep, request->bytes, request->length, request->mr, remote, offset,
                          details->context, request->flags);
    case RDMUX_OP_FETCH_ADD:
        return rdmux_fetch_add(ep, request->result, request->mr, remote, offset, details->operand,
                               details->context, request->flags);
    default:
        return rdmux_compare_swap(ep, request->result, request->mr, remote, offset,
                                  details->expected, details->operand, details->context,
                                  request->flags);
    }
}

/* Overwrites the list and the request at once, because they are free when the post returns. */
static enum rdmux_status post_list(struct lane *lane, struct request *request,
                                   const struct details *details, enum list_shape shape)
{
    struct rdmux_sge pieces[PIECES];
    struct rdmux_wr wr = {
        .op = details->op,
        .flags = request->flags,
        .context = details->context,
        .sges = pieces,
        .sge_count = pieces_of(request, shape, pieces),
        .imm = details->imm,
        .operand = details->operand,
        .expected = details->expected,
    };
    if (details->op != RDMUX_OP_SEND_IMM) {
        wr.remote = lane->remotes[request->region];
        wr.offset = request->offset + (uint64_t)lane->number * HALF;
    }
    enum rdmux_status status = rdmux_post(lane->ep, &wr, 1, NULL);
    memset(pieces, 0xff, sizeof(pieces));
    memset(&wr, 0xff, sizeof(wr));
    return status;
}

static enum rdmux_status post_request(struct lane *lane, struct request *request,
                                      const struct details *details, enum list_shape shape)
{
    enum rdmux_status status = shape == BY_CALL ? post_call(lane, request, details)
                                                : post_list(lane, request, details, shape);
    if ((request->flags & RDMUX_INLINE) != 0) {
        memset(request->bytes, 0x55, request->length);
    }
    return status;
}

static uint8_t *half_of(struct model *model, const struct lane *lane, unsigned region)
{
    return model->peer_regions[region] + (size_t)lane->number * HALF;
}

static void plan_write(struct model *model, struct lane *lane, struct request *request,
                       const struct plan *plan, struct details *details)
{
    const bool with_imm = plan->kind == KIND_WRITE_IMM;
    const uint64_t seed = seed_of(model->side->seed, model->side->is_initiator, lane->number);
    size_t length = with_imm ? message_length(seed, lane->sent) : plan->length;
    choose_place(plan, request, length);
    request->opcode = RDMUX_WC_WRITE;
    if (must_fence(lane, request)) {
        request->flags |= RDMUX_FENCE;
    }
    if (length <= RDMUX_INLINE_MIN && plan->can_inline) {
        request->flags |= RDMUX_INLINE;
    }
    pattern_fill(request->bytes, length, plan->value, 0);
    memcpy(half_of(model, lane, request->region) + request->offset, request->bytes, length);
    details->op = with_imm ? RDMUX_OP_WRITE_IMM : RDMUX_OP_WRITE;
    details->imm = with_imm ? (uint32_t)lane->sent++ : 0;
}

static void plan_send(struct model *model, struct lane *lane, struct request *request,
                      const struct plan *plan, struct details *details)
{
    const uint64_t seed = seed_of(model->side->seed, model->side->is_initiator, lane->number);
    request->opcode = RDMUX_WC_SEND;
    request->length = message_length(seed, lane->sent);
    if (request->length <= RDMUX_INLINE_MIN && plan->can_inline) {
        request->flags |= RDMUX_INLINE;
    }
    pattern_fill(request->bytes, request->length, seed + lane->sent, 0);
    details->op = RDMUX_OP_SEND_IMM;
    details->imm = (uint32_t)lane->sent++;
}

static void plan_read(struct model *model, struct lane *lane, struct request *request,
                      const struct plan *plan, struct details *details)
{
    choose_place(plan, request, plan->length);
    request->opcode = RDMUX_WC_READ;
    memset(request->bytes, 0x33, request->length);
    memcpy(request->expected, half_of(model, lane, request->region) + request->offset,
           request->length);
    details->op = RDMUX_OP_READ;
}

static void plan_atomic(struct model *model, struct lane *lane, struct request *request,
                        const struct plan *plan, struct details *details)
{
    request->offset = WORDS_AT + 8 * (plan->place % WORDS);
    request->length = 8;
    if (must_fence(lane, request)) {
        request->flags |= RDMUX_FENCE;
    }
    uint64_t *word = (uint64_t *)(void *)(half_of(model, lane, request->region) + request->offset);
    request->word = *word;
    *request->result = ~*word;
    details->operand = plan->value;
    if (plan->adds) {
        request->opcode = RDMUX_WC_FETCH_ADD;
        details->op = RDMUX_OP_FETCH_ADD;
        *word += plan->value;
        return;
    }
    request->opcode = RDMUX_WC_COMPARE_SWAP;
    details->op = RDMUX_OP_COMPARE_SWAP;
    details->expected = plan->misses ? *word + 1 : *word;
    *word = plan->misses ? *word : plan->value;
}

static void post_one(struct model *model, const struct plan *plan, uint64_t index)
{
    struct lane *lane = &model->lanes[plan->lane];
    struct request *request = &lane->requests[lane->posted % DEPTH];
    struct details details = { .context = CTX(lane->posted % DEPTH) };
    request->index = index;
    request->flags = plan->flags;
    request->region = plan->region;
    switch (plan->kind) {
    case KIND_WRITE:
    case KIND_WRITE_IMM:
        plan_write(model, lane, request, plan, &details);
        break;
    case KIND_SEND:
        plan_send(model, lane, request, plan, &details);
        break;
    case KIND_ATOMIC:
        plan_atomic(model, lane, request, plan, &details);
        break;
    case KIND_READ:
        plan_read(model, lane, request, plan, &details);
        break;
    }
    enum rdmux_status status = post_request(lane, request, &details, plan->list);
    EXPECT(status == RDMUX_OK,
           "operation %" PRIu64 ", %s of %zu bytes at %" PRIu64 " of %s with flags 0x%x: %s: %s",
           index, rdmux_wc_opcode_name(request->opcode), request->length, request->offset,
           region_names[request->region], request->flags, rdmux_status_name(status),
           rdmux_last_error());
    lane->posted++;
}

/* A completion proves for every earlier request what that request's own completion would prove
 * (1.8). */
static void check_done(const struct request *request)
{
    if (request->opcode == RDMUX_WC_READ) {
        size_t at = 0;
        while (at < request->length && request->bytes[at] == request->expected[at]) {
            at++;
        }
        EXPECT(at == request->length,
               "operation %" PRIu64 ", a read of %zu bytes at %" PRIu64
               " of %s: byte %zu is 0x%02x, expected 0x%02x",
               request->index, request->length, request->offset, region_names[request->region], at,
               request->bytes[at], request->expected[at]);
    } else if (request->opcode == RDMUX_WC_FETCH_ADD || request->opcode == RDMUX_WC_COMPARE_SWAP) {
        EXPECT(*request->result == request->word,
               "operation %" PRIu64 ", %s at %" PRIu64 " of %s found 0x%" PRIx64
               ", expected 0x%" PRIx64,
               request->index, rdmux_wc_opcode_name(request->opcode), request->offset,
               region_names[request->region], *request->result, request->word);
    } else { /* the buffer is free: a late reader reads these bytes */
        memset(request->bytes, 0x66, request->length);
    }
}

static bool is_unsignaled(const struct lane *lane, uint64_t number)
{
    return (lane->requests[number % DEPTH].flags & RDMUX_UNSIGNALED) != 0;
}

static void take_done(struct lane *lane, const struct rdmux_wc *wc)
{
    while (lane->done < lane->posted && is_unsignaled(lane, lane->done)) {
        check_done(&lane->requests[lane->done++ % DEPTH]);
    }
    const struct request *request = &lane->requests[lane->done % DEPTH];
    EXPECT(lane->done < lane->posted && CTX_NUMBER(wc->context) == lane->done % DEPTH &&
               wc->opcode == request->opcode && wc->status == RDMUX_OK &&
               wc->length == request->length,
           "operation %" PRIu64 " of %zu bytes is %s, expected %s", request->index, request->length,
           wc_text(wc), rdmux_wc_opcode_name(request->opcode));
    check_done(request);
    lane->done++;
}

static void post_receive(const struct lane *lane, uint64_t slot)
{
    EXPECT_OK(rdmux_recv(lane->ep, lane->receive_bytes + slot * SIZE_MOST, SIZE_MOST, NULL,
                         CTX(CONTEXT_OF_RECEIVES + slot)));
}

static void take_received(const struct model *model, struct lane *lane, const struct rdmux_wc *wc)
{
    const uint64_t seed = seed_of(model->side->seed, !model->side->is_initiator, lane->number);
    uint64_t slot = lane->received % RECEIVES;
    EXPECT(wc->status == RDMUX_OK && CTX_NUMBER(wc->context) == CONTEXT_OF_RECEIVES + slot,
           "message %" PRIu64 " is %s", lane->received, wc_text(wc));
    if (wc->opcode == RDMUX_WC_RECV && (wc->flags & RDMUX_WC_HAS_IMM) == 0) {
        lane->over = true; /* the one plain send is the last message */
        return;
    }
    EXPECT_EQUAL(wc->imm, (uint32_t)lane->received);
    EXPECT_EQUAL(wc->length, message_length(seed, lane->received));
    if (wc->opcode == RDMUX_WC_RECV) {
        EXPECT_PATTERN(lane->receive_bytes + slot * SIZE_MOST, wc->length, seed + lane->received);
    }
    lane->received++;
    post_receive(lane, slot);
}

static void take_any(struct model *model)
{
    struct rdmux_wc wc = NEXT(&model->side->queue);
    struct lane *lane = wc.ep == model->lanes[0].ep ? &model->lanes[0] : &model->lanes[1];
    EXPECT(wc.ep == lane->ep, "an entry of no endpoint: %s", wc_text(&wc));
    if (wc.opcode == RDMUX_WC_RECV || wc.opcode == RDMUX_WC_RECV_WRITE_IMM) {
        take_received(model, lane, &wc);
    } else {
        take_done(lane, &wc);
    }
}

/* Posts a signaled send or flush of no bytes. */
static void post_end(struct lane *lane, bool is_last)
{
    struct request *request = &lane->requests[lane->posted % DEPTH];
    void *context = CTX(lane->posted % DEPTH);
    request->opcode = is_last ? RDMUX_WC_SEND : RDMUX_WC_WRITE;
    request->length = 0;
    request->flags = RDMUX_PLACED;
    if (is_last) {
        EXPECT_OK(rdmux_send(lane->ep, NULL, 0, NULL, context, RDMUX_PLACED));
    } else {
        EXPECT_OK(rdmux_write(lane->ep, NULL, 0, NULL, NULL, 0, context, RDMUX_PLACED));
    }
    lane->posted++;
}

/* Waits until at most `most` requests are in flight. Unsignaled requests complete only with a later
 * one, so there must be room for one request and that one. */
static void drain(struct model *model, struct lane *lane, uint64_t most)
{
    while (lane->posted - lane->done > most) {
        if (is_unsignaled(lane, lane->posted - 1)) {
            post_end(lane, false);
        }
        take_any(model);
    }
}

static uint8_t *bytes_of(size_t length)
{
    uint8_t *bytes = calloc(1, length);
    EXPECT(bytes != NULL, "out of memory");
    return bytes;
}

/* Requests use memory of every kind in turn. */
static void lane_open(struct lane *lane, struct side *side)
{
    static const enum memory_kind kinds[LOCAL_KINDS] = { MEMORY_REGISTERED, MEMORY_ALLOCATED,
                                                         MEMORY_UNREGISTERED };
    const size_t room = SIZE_MOST + 16; /* the bytes, and a word behind them */
    struct region locals[LOCAL_KINDS];
    for (size_t i = 0; i < LOCAL_KINDS; i++) {
        locals[i] = region_make(side, kinds[i], DEPTH * room, ACCESS_SINK);
    }
    lane->receive_bytes = bytes_of((size_t)RECEIVES * SIZE_MOST);
    for (uint64_t i = 0; i < DEPTH; i++) {
        struct request *request = &lane->requests[i];
        const struct region *local = &locals[i % LOCAL_KINDS];
        request->mr = local->mr;
        request->bytes = local->addr + i * room;
        request->result = (uint64_t *)(void *)(request->bytes + SIZE_MOST);
        request->expected = bytes_of(SIZE_MOST);
    }
    for (uint64_t i = 0; i < RECEIVES; i++) {
        post_receive(lane, i);
    }
}

static void model_open(struct model *model, struct side *side)
{
    static const enum memory_kind kinds[REGIONS] = { MEMORY_REGISTERED, MEMORY_ALLOCATED,
                                                     MEMORY_REGISTERED, MEMORY_ALLOCATED };
    struct rdmux_ep_attr attr = ep_attr_of(side);
    *model = (struct model){ .side = side };
    attr.send_depth = DEPTH + 1;
    side_open_pair(side, &attr);
    for (unsigned i = 0; i < LANES; i++) {
        model->lanes[i].number = i;
        model->lanes[i].ep = i == 0 ? side->ep : side_pair(side, &attr);
        lane_open(&model->lanes[i], side);
    }
    for (size_t i = 0; i < REGIONS; i++) {
        struct rdmux_token token;
        const bool no_map = i >= REGISTERED_NO_MAP;
        model->regions[i] = region_make(side, kinds[i], LANES * (size_t)HALF,
                                        ACCESS_ALL | (no_map ? RDMUX_ACCESS_NO_MAP : 0U));
        model->peer_regions[i] = bytes_of(LANES * (size_t)HALF);
        give_token(side, &model->regions[i]);
        TAKE(side, &token, sizeof(token));
        for (unsigned lane = 0; lane < LANES; lane++) {
            EXPECT_OK(rdmux_remote_import(model->lanes[lane].ep, &token, side->patient_ms,
                                          &model->lanes[lane].remotes[i]));
        }
    }
}

static void model_close(struct model *model)
{
    for (size_t i = 0; i < LANES; i++) {
        for (size_t j = 0; j < DEPTH; j++) {
            free(model->lanes[i].requests[j].expected);
        }
        free(model->lanes[i].receive_bytes);
    }
    for (size_t i = 0; i < REGIONS; i++) {
        free(model->peer_regions[i]);
    }
}

static void check_region(struct model *model, unsigned number)
{
    const size_t size = LANES * (size_t)HALF;
    uint8_t *theirs = bytes_of(size);
    if (model->side->is_initiator) {
        GIVE(model->side, model->peer_regions[number], size);
        TAKE(model->side, theirs, size);
    } else {
        TAKE(model->side, theirs, size);
        GIVE(model->side, model->peer_regions[number], size);
    }
    for (size_t i = 0; i < size; i++) {
        EXPECT(model->regions[number].addr[i] == theirs[i],
               "byte %zu of %s is 0x%02x, the peer's model has 0x%02x", i, region_names[number],
               model->regions[number].addr[i], theirs[i]);
    }
    free(theirs);
}

uint64_t model_operations(bool quick)
{
    return quick ? OPERATIONS_QUICK : OPERATIONS;
}

static const char *kind_name(const struct plan *plan)
{
    switch (plan->kind) {
    case KIND_WRITE:
        return "write";
    case KIND_WRITE_IMM:
        return "write_imm";
    case KIND_SEND:
        return "send_imm";
    case KIND_READ:
        return "read";
    case KIND_ATOMIC:
        break;
    }
    return plan->adds ? "fetch_add" : "compare_swap";
}

/* Describes one operation in words. `sent` messages of its lane precede it. Returns the bytes
 * written. */
static size_t describe_one(const struct plan *plan, uint64_t seed, bool initiator, uint64_t index,
                           uint64_t sent, char *out, size_t size)
{
    struct request request = { .length = 8, .offset = WORDS_AT + 8 * (plan->place % WORDS) };
    if (plan->kind != KIND_ATOMIC) {
        choose_place(plan, &request,
                     is_message(plan) ? message_length(seed_of(seed, initiator, plan->lane), sent)
                                      : plan->length);
    }
    bool inlined = plan->kind != KIND_ATOMIC && plan->kind != KIND_READ && plan->can_inline &&
                   request.length <= RDMUX_INLINE_MIN;
    char place[96] = "";
    if (plan->kind != KIND_SEND) {
        (void)snprintf(place, sizeof(place), " at %" PRIu64 " of %s", request.offset,
                       region_names[plan->region]);
    }
    int length = snprintf(out, size, "  %s %" PRIu64 ": %s of %zu bytes%s%s%s%s%s%s%s%s\n",
                          initiator ? "initiator" : "target", index, kind_name(plan),
                          request.length, place, plan->lane == 0 ? "" : ", second endpoint",
                          list_names[plan->list], (plan->flags & RDMUX_FENCE) != 0 ? ", FENCE" : "",
                          (plan->flags & RDMUX_PLACED) != 0 ? ", PLACED" : "",
                          (plan->flags & RDMUX_MORE) != 0 ? ", MORE" : "",
                          (plan->flags & RDMUX_UNSIGNALED) != 0 ? ", UNSIGNALED" : "",
                          inlined ? ", INLINE" : "");
    return length > 0 && (size_t)length < size ? (size_t)length : 0;
}

void model_describe(uint64_t seed, bool quick, const char *sequence, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (unsigned side = 0; side < 2; side++) {
        uint64_t sent[LANES] = { 0 };
        for (uint64_t i = 0; i < model_operations(quick); i++) {
            bool initiator = side == 0;
            if (!sequence_has(sequence, initiator, i)) {
                continue;
            }
            struct plan plan = plan_of(seed, initiator, i);
            used += describe_one(&plan, seed, initiator, i, sent[plan.lane], out + used,
                                 size - used);
            out[used] = '\0';
            sent[plan.lane] += is_message(&plan);
        }
    }
}

static void model_case(struct side *side)
{
    static struct model model;
    model_open(&model, side);
    for (uint64_t i = 0; i < model_operations(side->quick); i++) {
        if (!sequence_has(side->sequence, side->is_initiator, i)) {
            continue;
        }
        struct plan plan = plan_of(side->seed, side->is_initiator, i);
        drain(&model, &model.lanes[plan.lane], plan.drain);
        post_one(&model, &plan, i);
    }
    /* The last message is the one without immediate data; with PLACED it covers all before it. */
    for (unsigned i = 0; i < LANES; i++) {
        drain(&model, &model.lanes[i], DEPTH - 2);
        post_end(&model.lanes[i], true);
    }
    for (unsigned i = 0; i < LANES; i++) {
        while (model.lanes[i].done < model.lanes[i].posted || !model.lanes[i].over) {
            take_any(&model);
        }
    }
    BARRIER(side);
    for (unsigned i = 0; i < REGIONS; i++) {
        check_region(&model, i);
    }
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    side_end(side);
    model_close(&model);
}

/* ------------------------------------------------------------------------------ more than 4 GiB */

/* Lengths around 2^31, where a signed length overflows, and beyond 2^32. */
static const uint64_t huge_lengths[] = {
    (UINT64_C(1) << 31) - 1,
    UINT64_C(1) << 31,
    (UINT64_C(1) << 31) + 1,
    (UINT64_C(4) << 30) + 4097,
};

#define HUGE_MOST ((UINT64_C(4) << 30) + 4097)
#define HUGE_OFFSET UINT64_C(3)
enum { EDGE = 1 << 16, EDGES = 6 };

/* Edges to check: the ends, and both sides of every GiB. A place beyond the length is moved to its
 * end. */
static uint64_t edge_of(unsigned index, uint64_t length)
{
    static const uint64_t places[EDGES] = {
        0,
        (UINT64_C(1) << 30) - EDGE / 2,
        (UINT64_C(1) << 31) - EDGE / 2,
        (UINT64_C(3) << 30) - EDGE / 2,
        (UINT64_C(1) << 32) - EDGE,
        UINT64_MAX,
    };
    return places[index] < length - EDGE ? places[index] : length - EDGE;
}

static uint8_t *huge_map(void)
{
    void *bytes = mmap(NULL, HUGE_MOST + 8, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
    return bytes;
}

static void huge_round(struct side *side, uint8_t *bytes, struct rdmux_mr *mr,
                       struct rdmux_remote *remote, uint64_t length)
{
    uint64_t seed = side->seed + length;
    for (unsigned i = 0; i < EDGES; i++) {
        pattern_fill(bytes + edge_of(i, length), EDGE, seed, edge_of(i, length));
    }
    struct rdmux_wc wc = POST_AND_WAIT(
        &side->queue,
        rdmux_write(side->ep, bytes, length, mr, remote, HUGE_OFFSET, CTX(1), RDMUX_PLACED),
        RDMUX_WC_WRITE, CTX(1));
    EXPECT_EQUAL(wc.length, length);
    BARRIER(side);
    for (unsigned i = 0; i < EDGES; i++) {
        memset(bytes + edge_of(i, length), 0, EDGE);
    }
    BARRIER(side); /* the target has checked */
    wc = POST_AND_WAIT(&side->queue,
                       rdmux_read(side->ep, bytes, length, mr, remote, HUGE_OFFSET, CTX(2), 0),
                       RDMUX_WC_READ, CTX(2));
    EXPECT_EQUAL(wc.length, length);
    for (unsigned i = 0; i < EDGES; i++) {
        EXPECT_PATTERN_FROM(bytes + edge_of(i, length), EDGE, seed, edge_of(i, length));
    }
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
}

static void huge_initiator(struct side *side)
{
    struct rdmux_mr *mr = NULL;
    uint8_t *bytes = huge_map();
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    EXPECT_OK(rdmux_mr_register(side->fabric, bytes, HUGE_MOST + 8, ACCESS_SINK, &mr));
    for (size_t i = 0; i < COUNT_OF(huge_lengths); i++) {
        huge_round(side, bytes, mr, remote, huge_lengths[i]);
    }
    rdmux_mr_deregister(mr);
    side_end(side);
    (void)munmap(bytes, HUGE_MOST + 8);
}

static void huge_target(struct side *side)
{
    struct rdmux_mr *mr = NULL;
    struct rdmux_token token;
    uint8_t *bytes = huge_map();
    side_open_pair(side, NULL);
    EXPECT_OK(rdmux_mr_register(side->fabric, bytes, HUGE_MOST + 8,
                                RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ, &mr));
    EXPECT_OK(rdmux_mr_export(mr, &token));
    GIVE(side, &token, sizeof(token));
    for (size_t round = 0; round < COUNT_OF(huge_lengths); round++) {
        uint64_t length = huge_lengths[round];
        BARRIER(side);
        EXPECT_FILLED(bytes, HUGE_OFFSET, 0);
        for (unsigned i = 0; i < EDGES; i++) {
            uint64_t edge = edge_of(i, length);
            EXPECT_PATTERN_FROM(bytes + HUGE_OFFSET + edge, EDGE, side->seed + length, edge);
        }
        EXPECT_FILLED(bytes + HUGE_OFFSET + length, 8 - HUGE_OFFSET, 0);
        BARRIER(side);
        BARRIER(side);
    }
    side_close_ep(side, side->ep);
    rdmux_mr_deregister(mr);
    side_end(side);
    (void)munmap(bytes, HUGE_MOST + 8);
}

static const struct conformance_case cases[] = {
    { "1.1, 1.2, 1.6, 1.8, 1.13, 1.14, 1.16, 2.1, 2.5, 2.6, 2.13, 3.1, 3.3, 3.6, 4.1, 4.3, 6.15",
      "thousands of random operations in both directions have the results of the model",
      NEEDS_IMM | NEEDS_ATOMICS | NEEDS_PLACED | NEEDS_FENCE | NEEDS_SEND | NEEDS_WRITE | NEEDS_READ,
      60, CASE_RANDOM, model_case, model_case },
    { "12.5", "writes and reads of 2 GiB, a byte less and more, and of more than 4 GiB are whole",
      NEEDS_PLACED | NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 900, CASE_THOROUGH, huge_initiator,
      huge_target },
};

const struct suite model_suite = { "model", cases, COUNT_OF(cases) };
