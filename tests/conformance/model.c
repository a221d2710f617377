/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Random operations against a model of what the rules say, and transfers beyond 4 GiB. */
#include "random.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---------------------------------------------------------------------------- random operations */

/*
 * Both sides do the same at the same time. Each has a region that only its peer accesses, and a
 * model of the peer's region: it is the only one to write there, so it knows what every read and
 * atomic must find. A write may show in an earlier read that is still under way (rule 4.3), so such
 * a pair gets a FENCE.
 */
enum {
    REGION_SIZE = 1 << 18,
    WORDS_AT = REGION_SIZE - 512, /* the end of the region takes atomics */
    WORDS = 64,
    SIZE_MOST = 60000,
    DEPTH = 32,
    RECEIVES = 24,
    OPERATIONS_QUICK = 1500,
    OPERATIONS = 12000,
    CONTEXT_OF_RECEIVES = 1000,
};

struct request {
    uint64_t index; /* of the operation */
    uint32_t opcode;
    uint32_t flags;
    uint64_t offset;
    size_t length;
    uint64_t word;     /* atomics: what must be found */
    uint64_t result;   /* atomics: what was found */
    uint8_t *bytes;    /* SIZE_MOST, local side */
    uint8_t *expected; /* SIZE_MOST, reads: what must arrive */
    struct rdmux_mr *mr;
};

/* What the seed, the side and the number choose of an operation; the rest follows from what was
 * done before. */
enum kind { KIND_WRITE, KIND_WRITE_IMM, KIND_SEND, KIND_ATOMIC, KIND_READ };

struct plan {
    enum kind kind;
    size_t length;  /* of writes and reads; a message's follows from its number */
    uint64_t place; /* where in the region, of all places that fit */
    uint64_t value; /* of atomics and patterns */
    uint32_t flags;
    bool can_inline;
    bool adds;      /* fetch_add, else compare_swap */
    bool misses;    /* compare_swap: with a value that is not there */
    uint64_t drain; /* no more than so many may be under way before it */
};

struct model {
    struct side *side;
    struct rdmux_remote *remote;
    uint8_t *peer_region; /* the model */
    struct request requests[DEPTH];
    uint64_t posted;
    uint64_t done;
    uint64_t sent; /* messages and notices, numbered */
    /* the other direction */
    uint8_t *receive_bytes;
    struct region region;
    uint64_t received;
    uint64_t seed; /* of the messages to come: the peer's */
    bool over;     /* the peer's last message came */
};

/* A message or notice tells its number; its length and bytes follow from that. */
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

/* Does an earlier read or atomic that may be still under way touch these bytes? */
static bool must_fence(const struct model *model, uint64_t offset, size_t length)
{
    for (uint64_t i = model->done; i < model->posted; i++) {
        const struct request *request = &model->requests[i % DEPTH];
        if (is_read_or_atomic(request) && offset < request->offset + request->length &&
            request->offset < offset + length) {
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
    plan.drain = random_below(&random, 16) == 0 ? random_below(&random, DEPTH) : DEPTH - 1;
    return plan;
}

static void choose_place(const struct plan *plan, struct request *request, size_t length)
{
    request->length = length;
    request->offset = plan->place % (WORDS_AT - length + 1);
}

static uint32_t with_fence(const struct model *model, const struct request *request, uint32_t flags)
{
    return must_fence(model, request->offset, request->length) ? flags | RDMUX_FENCE : flags;
}

static enum rdmux_status post_write(struct model *model, struct request *request,
                                    const struct plan *plan, void *context)
{
    struct rdmux_ep *ep = model->side->ep;
    bool with_imm = plan->kind == KIND_WRITE_IMM;
    size_t length = with_imm
                        ? message_length(model->side->seed + model->side->is_initiator, model->sent)
                        : plan->length;
    choose_place(plan, request, length);
    request->opcode = RDMUX_WC_WRITE;
    request->flags = with_fence(model, request, plan->flags);
    if (length <= RDMUX_INLINE_MIN && plan->can_inline) {
        request->flags |= RDMUX_INLINE;
    }
    pattern_fill(request->bytes, length, plan->value, 0);
    memcpy(model->peer_region + request->offset, request->bytes, length);
    enum rdmux_status status = with_imm
                                   ? rdmux_write_imm(ep, request->bytes, length, request->mr,
                                                     model->remote, request->offset,
                                                     (uint32_t)model->sent, context, request->flags)
                                   : rdmux_write(ep, request->bytes, length, request->mr,
                                                 model->remote, request->offset, context,
                                                 request->flags);
    if ((request->flags & RDMUX_INLINE) != 0) {
        memset(request->bytes, 0x55, length);
    }
    model->sent += with_imm;
    return status;
}

static enum rdmux_status post_send(struct model *model, struct request *request,
                                   const struct plan *plan, void *context)
{
    struct rdmux_ep *ep = model->side->ep;
    uint64_t seed = model->side->seed + model->side->is_initiator;
    request->opcode = RDMUX_WC_SEND;
    request->length = message_length(seed, model->sent);
    request->flags = plan->flags;
    pattern_fill(request->bytes, request->length, seed + model->sent, 0);
    uint64_t number = model->sent++;
    return rdmux_send_imm(ep, request->bytes, request->length, request->mr, (uint32_t)number,
                          context, request->flags);
}

static enum rdmux_status post_read(struct model *model, struct request *request,
                                   const struct plan *plan, void *context)
{
    choose_place(plan, request, plan->length);
    request->opcode = RDMUX_WC_READ;
    request->flags = plan->flags;
    memset(request->bytes, 0x33, request->length);
    memcpy(request->expected, model->peer_region + request->offset, request->length);
    return rdmux_read(model->side->ep, request->bytes, request->length, request->mr, model->remote,
                      request->offset, context, request->flags);
}

static enum rdmux_status post_atomic(struct model *model, struct request *request,
                                     const struct plan *plan, void *context)
{
    struct rdmux_ep *ep = model->side->ep;
    request->offset = WORDS_AT + 8 * (plan->place % WORDS);
    request->length = 8;
    request->flags = with_fence(model, request, plan->flags);
    uint64_t *word = (uint64_t *)(void *)(model->peer_region + request->offset);
    request->word = *word;
    if (plan->adds) {
        request->opcode = RDMUX_WC_FETCH_ADD;
        *word += plan->value;
        return rdmux_fetch_add(ep, &request->result, NULL, model->remote, request->offset,
                               plan->value, context, request->flags);
    }
    request->opcode = RDMUX_WC_COMPARE_SWAP;
    uint64_t expected = plan->misses ? *word + 1 : *word;
    *word = expected == *word ? plan->value : *word;
    return rdmux_compare_swap(ep, &request->result, NULL, model->remote, request->offset, expected,
                              plan->value, context, request->flags);
}

static void post_one(struct model *model, const struct plan *plan, uint64_t index)
{
    struct request *request = &model->requests[model->posted % DEPTH];
    void *context = CTX(model->posted % DEPTH);
    enum rdmux_status status = RDMUX_OK;
    request->index = index;
    switch (plan->kind) {
    case KIND_WRITE:
    case KIND_WRITE_IMM:
        status = post_write(model, request, plan, context);
        break;
    case KIND_SEND:
        status = post_send(model, request, plan, context);
        break;
    case KIND_ATOMIC:
        status = post_atomic(model, request, plan, context);
        break;
    case KIND_READ:
        status = post_read(model, request, plan, context);
        break;
    }
    EXPECT(status == RDMUX_OK,
           "operation %" PRIu64 ", %s of %zu bytes at %" PRIu64 " with flags 0x%x: %s: %s", index,
           rdmux_wc_opcode_name(request->opcode), request->length, request->offset, request->flags,
           rdmux_status_name(status), rdmux_last_error());
    model->posted++;
}

static void take_done(struct model *model, const struct rdmux_wc *wc)
{
    const struct request *request = &model->requests[model->done % DEPTH];
    EXPECT(model->done < model->posted && CTX_NUMBER(wc->context) == model->done % DEPTH &&
               wc->opcode == request->opcode && wc->status == RDMUX_OK,
           "operation %" PRIu64 " is %s, expected %s", request->index, wc_text(wc),
           rdmux_wc_opcode_name(request->opcode));
    if (request->opcode == RDMUX_WC_READ) {
        size_t at = 0;
        while (at < request->length && request->bytes[at] == request->expected[at]) {
            at++;
        }
        EXPECT(at == request->length,
               "operation %" PRIu64 ", a read of %zu bytes at %" PRIu64
               ": byte %zu is 0x%02x, expected 0x%02x",
               request->index, request->length, request->offset, at, request->bytes[at],
               request->expected[at]);
    } else if (request->opcode == RDMUX_WC_FETCH_ADD || request->opcode == RDMUX_WC_COMPARE_SWAP) {
        EXPECT(request->result == request->word,
               "operation %" PRIu64 ", %s at %" PRIu64 " found 0x%" PRIx64 ", expected 0x%" PRIx64,
               request->index, rdmux_wc_opcode_name(request->opcode), request->offset,
               request->result, request->word);
    }
    model->done++;
}

static void post_receive(struct model *model, uint64_t slot)
{
    EXPECT_OK(rdmux_recv(model->side->ep, model->receive_bytes + slot * SIZE_MOST, SIZE_MOST, NULL,
                         CTX(CONTEXT_OF_RECEIVES + slot)));
}

static void take_received(struct model *model, const struct rdmux_wc *wc)
{
    uint64_t slot = model->received % RECEIVES;
    EXPECT(wc->status == RDMUX_OK && CTX_NUMBER(wc->context) == CONTEXT_OF_RECEIVES + slot,
           "message %" PRIu64 " is %s", model->received, wc_text(wc));
    if (wc->opcode == RDMUX_WC_RECV && (wc->flags & RDMUX_WC_HAS_IMM) == 0) {
        model->over = true; /* the one plain send is the last */
        return;
    }
    EXPECT_EQUAL(wc->imm, (uint32_t)model->received);
    EXPECT_EQUAL(wc->length, message_length(model->seed, model->received));
    if (wc->opcode == RDMUX_WC_RECV) {
        EXPECT_PATTERN(model->receive_bytes + slot * SIZE_MOST, wc->length,
                       model->seed + model->received);
    }
    model->received++;
    post_receive(model, slot);
}

static void take_any(struct model *model)
{
    struct rdmux_wc wc = NEXT(&model->side->queue);
    if (wc.opcode == RDMUX_WC_RECV || wc.opcode == RDMUX_WC_RECV_WRITE_IMM) {
        take_received(model, &wc);
    } else {
        take_done(model, &wc);
    }
}

static uint8_t *bytes_of(size_t length)
{
    uint8_t *bytes = calloc(1, length);
    EXPECT(bytes != NULL, "out of memory");
    return bytes;
}

/* Every third request has its bytes in a region, the rest anywhere. */
static void model_open(struct model *model, struct side *side)
{
    struct region local;
    *model = (struct model){ .side = side };
    model->seed = side->seed + !side->is_initiator;
    local = region_make(side, MEMORY_REGISTERED, (size_t)DEPTH * SIZE_MOST, ACCESS_SINK);
    model->region = region_make(side, MEMORY_ALLOCATED, REGION_SIZE, ACCESS_ALL);
    model->peer_region = bytes_of(REGION_SIZE);
    model->receive_bytes = bytes_of((size_t)RECEIVES * SIZE_MOST);
    for (uint64_t i = 0; i < DEPTH; i++) {
        struct request *request = &model->requests[i];
        bool registered = i % 3 == 0;
        request->mr = registered ? local.mr : NULL;
        request->bytes = registered ? local.addr + i * SIZE_MOST : bytes_of(SIZE_MOST);
        request->expected = bytes_of(SIZE_MOST);
    }
    for (uint64_t i = 0; i < RECEIVES; i++) {
        post_receive(model, i);
    }
    give_token(side, &model->region);
    model->remote = take_remote(side, side->ep);
}

static void model_close(struct model *model)
{
    for (uint64_t i = 0; i < DEPTH; i++) {
        free(model->requests[i].expected);
        if (model->requests[i].mr == NULL) {
            free(model->requests[i].bytes);
        }
    }
    free(model->peer_region);
    free(model->receive_bytes);
}

static void check_region(struct model *model)
{
    uint8_t *theirs = bytes_of(REGION_SIZE);
    if (model->side->is_initiator) {
        GIVE(model->side, model->peer_region, REGION_SIZE);
        TAKE(model->side, theirs, REGION_SIZE);
    } else {
        TAKE(model->side, theirs, REGION_SIZE);
        GIVE(model->side, model->peer_region, REGION_SIZE);
    }
    for (size_t i = 0; i < REGION_SIZE; i++) {
        EXPECT(model->region.addr[i] == theirs[i],
               "byte %zu of the region is 0x%02x, the peer's model has 0x%02x", i,
               model->region.addr[i], theirs[i]);
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

/* One operation in words; `sent` messages of its side come before it. Returns the bytes written. */
static size_t describe_one(const struct plan *plan, uint64_t seed, bool initiator, uint64_t index,
                           uint64_t sent, char *out, size_t size)
{
    struct request request = { .length = 8, .offset = WORDS_AT + 8 * (plan->place % WORDS) };
    if (plan->kind != KIND_ATOMIC) {
        bool message = plan->kind == KIND_SEND || plan->kind == KIND_WRITE_IMM;
        choose_place(plan, &request,
                     message ? message_length(seed + initiator, sent) : plan->length);
    }
    bool inlined = (plan->kind == KIND_WRITE || plan->kind == KIND_WRITE_IMM) && plan->can_inline &&
                   request.length <= RDMUX_INLINE_MIN;
    char place[48] = "";
    if (plan->kind != KIND_SEND) {
        (void)snprintf(place, sizeof(place), " at %" PRIu64, request.offset);
    }
    int length = snprintf(out, size, "  %s %" PRIu64 ": %s of %zu bytes%s%s%s%s%s\n",
                          initiator ? "initiator" : "target", index, kind_name(plan),
                          request.length, place, (plan->flags & RDMUX_FENCE) != 0 ? ", FENCE" : "",
                          (plan->flags & RDMUX_PLACED) != 0 ? ", PLACED" : "",
                          (plan->flags & RDMUX_MORE) != 0 ? ", MORE" : "",
                          inlined ? ", INLINE" : "");
    return length > 0 && (size_t)length < size ? (size_t)length : 0;
}

void model_describe(uint64_t seed, bool quick, const char *sequence, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (unsigned side = 0; side < 2; side++) {
        uint64_t sent = 0;
        for (uint64_t i = 0; i < model_operations(quick); i++) {
            bool initiator = side == 0;
            if (!sequence_has(sequence, initiator, i)) {
                continue;
            }
            struct plan plan = plan_of(seed, initiator, i);
            used += describe_one(&plan, seed, initiator, i, sent, out + used, size - used);
            out[used] = '\0';
            sent += plan.kind == KIND_SEND || plan.kind == KIND_WRITE_IMM;
        }
    }
}

static void model_case(struct side *side)
{
    static struct model model;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = DEPTH + 1;
    side_open_pair(side, &attr);
    model_open(&model, side);
    for (uint64_t i = 0; i < model_operations(side->quick); i++) {
        if (!sequence_has(side->sequence, side->is_initiator, i)) {
            continue;
        }
        struct plan plan = plan_of(side->seed, side->is_initiator, i);
        while (model.posted - model.done > plan.drain) {
            take_any(&model);
        }
        post_one(&model, &plan, i);
    }
    while (model.done < model.posted) {
        take_any(&model);
    }
    /* The last message is the one without immediate data; with PLACED it covers all before it. */
    EXPECT_OK(rdmux_send(side->ep, NULL, 0, NULL, CTX(model.posted % DEPTH), RDMUX_PLACED));
    model.requests[model.posted % DEPTH].opcode = RDMUX_WC_SEND;
    model.posted++;
    while (model.done < model.posted || !model.over) {
        take_any(&model);
    }
    BARRIER(side);
    check_region(&model);
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    side_end(side);
    model_close(&model);
}

/* ------------------------------------------------------------------------------ more than 4 GiB */

/* Around 2^31, where a signed length would turn, and beyond 2^32. */
static const uint64_t huge_lengths[] = {
    (UINT64_C(1) << 31) - 1,
    UINT64_C(1) << 31,
    (UINT64_C(1) << 31) + 1,
    (UINT64_C(4) << 30) + 4097,
};

#define HUGE_MOST ((UINT64_C(4) << 30) + 4097)
#define HUGE_OFFSET UINT64_C(3)
enum { EDGE = 1 << 16, EDGES = 6 };

/* Places worth looking at: the ends, and both sides of every GiB. Beyond the length they are at its
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
    BARRIER(side); /* the target has looked */
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
    { "1.1, 1.6, 2.1, 2.5, 2.6, 2.13, 3.6, 4.1, 4.3",
      "thousands of random operations in both directions do what the model says",
      NEEDS_IMM | NEEDS_ATOMICS | NEEDS_PLACED | NEEDS_FENCE | NEEDS_SEND | NEEDS_WRITE | NEEDS_READ,
      60, CASE_RANDOM, model_case, model_case },
    { "12.5", "writes and reads of 2 GiB, a byte less and more, and of more than 4 GiB are whole",
      NEEDS_PLACED | NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 900, CASE_THOROUGH, huge_initiator,
      huge_target },
};

const struct suite model_suite = { "model", cases, COUNT_OF(cases) };
