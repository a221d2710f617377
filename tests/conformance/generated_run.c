/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Generated cases: each posts the rows of one operation one after the other, on the same endpoints.
 * Each side has a model of its own regions and of the peer's, and a shadow of its local memory.
 * After each row every byte must be as the rules say. Bytes depend on the row and on the number of
 * rows before it. Buffers are overwritten as soon as they are free. So late, swapped or repeated
 * bytes show.
 */
#include "generated.h"
#include "harness.h"
#include "random.h"
#include "rules.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SGES = 6,
    PIECES_MAX = SGES + 1,
    SRQ_DEPTH = 64,
    DATA_SOCKETS = 4,
    ARENA_OPEN = MEMORY_KINDS, /* allocated, and the peer may write to it */
    ARENAS,
    ARENA_LENGTH = 5 * REGION_LENGTH + 1,
    GAP = 13, /* between two buffers; must never be written */
    POLL_AT_ONCE = 16,
    POLLS_PER_YIELD = 64,
    BYTE_INLINE = 0x55, /* overwrites an INLINE buffer after its post */
    BYTE_FREE = 0x66,   /* overwrites other buffers after their completion */
    BYTE_ROOM = 0x77,   /* content of receives and results before */
    NOTICE_ROOM = 16,
    ROOM_BEHIND = 200,
    RECEIVES_FROM = 5000, /* contexts of receives */
    TEXT_MAX = 1024,
    TIMEOUT_S = 300,
    OTHER_SIDE_MS = 500,
};

/* Local memory of one kind. The shadow is its required content. */
struct arena {
    struct region region;
    uint8_t *shadow;
    size_t used; /* bytes used at its start */
    size_t end;  /* where the bytes used at its end begin */
};

struct piece {
    struct arena *arena;
    size_t at;
    size_t length;
};

/* A buffer of local memory, in pieces. */
struct buffer {
    struct piece pieces[PIECES_MAX];
    size_t count;
    size_t length;
};

/* A posted request. */
struct posted {
    const struct wanted *wanted;
    struct buffer buffer;
    const uint8_t *expected; /* required result of a read or an atomic; NULL: none */
    bool free;               /* its buffer is free again */
};

struct receive_slot {
    struct buffer buffer;
    const struct wanted *message;
    bool taken;
};

struct stage {
    struct side *side;
    const char *rules; /* rules that the case cites */
    struct rdmux_srq *srq;
    struct rdmux_ep *eps[ENDPOINTS];
    size_t ep_count;
    struct rdmux_remote *remotes[ENDPOINTS][REMOTE_KINDS][IMPORTS];
    struct region regions[REMOTE_KINDS];
    uint8_t *model[REMOTE_KINDS];  /* models of this side's regions */
    uint8_t *theirs[REMOTE_KINDS]; /* models of the peer's regions */
    struct limits limits[2];       /* of this side and of the peer */
    struct arena arenas[ARENAS];
    uint8_t *found; /* required results of reads and atomics, REGION_LENGTH and more */
    size_t found_used;

    /* State of the current row. */
    struct row row;
    uint64_t row_deadline;
    struct rdmux_ep *ep;
    struct program out;
    struct program in;
    struct posted posted[REQUESTS_MAX];
    size_t posted_count;
    size_t done; /* posted requests that have completed or were passed over */
    struct receive_slot receives[REQUESTS_MAX];
    size_t receive_count;
    size_t received;
    size_t in_applied; /* in.requests applied to the model */
    bool writable_due;
    bool took; /* a poll took place since the row's first post */
    unsigned polls;
};

/* ------------------------------------------------------------------------------- failure texts */

static const char *cited(const struct stage *stage, const char *rule)
{
    const struct rule *found = rule_find(rule, strlen(rule));
    const struct conformance_case test = { .rule = stage->rules };
    return found != NULL && case_cites(&test, found) ? rule : "1.1";
}

/* Describes a request. */
static const char *asked(const struct wanted *wanted)
{
    static char text[TEXT_MAX];
    static const char *const roles[] = { "before it: ", "", "behind it: " };
    char place[96] = "";
    if (wanted->remote < REMOTE_KINDS) {
        (void)snprintf(place, sizeof(place), " at offset %" PRIu64 " of region %u", wanted->offset,
                       wanted->remote);
    }
    const uint32_t flags = wanted->flags;
    (void)snprintf(text, sizeof(text), "%s%s of %zu bytes%s%s%s%s%s%s", roles[wanted->role],
                   rdmux_wc_opcode_name(wanted_opcode(wanted)), wanted->length, place,
                   (flags & RDMUX_INLINE) != 0 ? ", INLINE" : "",
                   (flags & RDMUX_PLACED) != 0 ? ", PLACED" : "",
                   (flags & RDMUX_UNSIGNALED) != 0 ? ", UNSIGNALED" : "",
                   (flags & RDMUX_FENCE) != 0 ? ", FENCE" : "",
                   (flags & RDMUX_MORE) != 0 ? ", MORE" : "");
    return text;
}

static _Noreturn void broken(const struct stage *stage, const char *rule,
                             const struct wanted *wanted, const char *format, ...)
    PRINTF_LIKE(4, 5);
static _Noreturn void broken(const struct stage *stage, const char *rule,
                             const struct wanted *wanted, const char *format, ...)
{
    char came[TEXT_MAX];
    char row[TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(came, sizeof(came), format, arguments);
    va_end(arguments);
    row_describe(&stage->row, row, sizeof(row));
    rule = cited(stage, rule);
    FAIL("%s\n" BROKEN_RULE "%s: %s\nasked: %s%srow: %s", came, rule,
         rule_find(rule, strlen(rule))->title, wanted == NULL ? "" : asked(wanted),
         wanted == NULL ? "" : "\n", row);
}

/* Returns the rule that says when the request's bytes must be placed. */
static const char *rule_of_bytes(const struct stage *stage, const struct wanted *wanted)
{
    if (wanted_is_atomic(wanted)) {
        return "2.11";
    }
    if (wanted->op == RDMUX_OP_WRITE_IMM) {
        return "2.5";
    }
    switch (stage->row.values[DIM_PROOF]) {
    case PROOF_SEND:
        return "2.3";
    case PROOF_WRITE_IMM:
        return "2.4";
    case PROOF_READ:
    case PROOF_ATOMIC:
        return "2.6";
    default:
        return (wanted->flags & RDMUX_PLACED) != 0 && (wanted->flags & RDMUX_UNSIGNALED) == 0
                   ? "3.4"
                   : "1.9";
    }
}

/* A wrong byte's value sometimes shows the cause. */
static const char *rule_of_wrong_byte(const struct wanted *wanted, uint8_t came, const char *rule)
{
    if (came == BYTE_INLINE && (wanted->flags & RDMUX_INLINE) != 0) {
        return "1.14";
    }
    if (came == BYTE_FREE) {
        return "3.1";
    }
    return wanted->role == ROLE_SUBJECT && wanted->list >= LIST_TWO ? "1.13" : rule;
}

static bool differs(const uint8_t *bytes, const uint8_t *model, size_t length, size_t *at)
{
    if (memcmp(bytes, model, length) == 0) {
        return false;
    }
    *at = 0;
    while (bytes[*at] == model[*at]) {
        ++*at;
    }
    return true;
}

/* ---------------------------------------------------------------------------------- local bytes */

static struct piece piece_take(struct arena *arena, size_t length)
{
    struct piece piece = { arena, arena->used + GAP, length };
    EXPECT(piece.at + length + GAP + REGION_LENGTH < ARENA_LENGTH,
           "the case is wrong: its buffers do not fit");
    arena->used = piece.at + length;
    return piece;
}

static uint8_t *piece_bytes(const struct piece *piece)
{
    return piece->arena->region.addr + piece->at;
}

static uint8_t *piece_shadow(const struct piece *piece)
{
    return piece->arena->shadow + piece->at;
}

static void buffer_fill(const struct buffer *buffer, uint8_t value)
{
    for (size_t i = 0; i < buffer->count; i++) {
        memset(piece_bytes(&buffer->pieces[i]), value, buffer->pieces[i].length);
        memset(piece_shadow(&buffer->pieces[i]), value, buffer->pieces[i].length);
    }
}

/* Fills the buffer and its shadow with a pattern's bytes. */
static void buffer_pattern(const struct buffer *buffer, uint64_t seed)
{
    size_t done = 0;
    for (size_t i = 0; i < buffer->count; i++) {
        const struct piece *piece = &buffer->pieces[i];
        pattern_fill(piece_shadow(piece), piece->length, seed, done);
        memcpy(piece_bytes(piece), piece_shadow(piece), piece->length);
        done += piece->length;
    }
}

/* Sets the required first bytes of the buffer; the others must not change. */
static void buffer_expect(const struct buffer *buffer, const uint8_t *bytes, size_t length)
{
    size_t done = 0;
    for (size_t i = 0; i < buffer->count && done < length; i++) {
        const struct piece *piece = &buffer->pieces[i];
        size_t take = piece->length < length - done ? piece->length : length - done;
        memcpy(piece_shadow(piece), bytes + done, take);
        done += take;
    }
}

static bool buffer_differs(const struct buffer *buffer, size_t *at, uint8_t *came, uint8_t *wanted)
{
    size_t done = 0;
    for (size_t i = 0; i < buffer->count; i++) {
        const struct piece *piece = &buffer->pieces[i];
        size_t place = 0;
        if (differs(piece_bytes(piece), piece_shadow(piece), piece->length, &place)) {
            *at = done + place;
            *came = piece_bytes(piece)[place];
            *wanted = piece_shadow(piece)[place];
            return true;
        }
        done += piece->length;
    }
    return false;
}

static struct arena *arena_of(struct stage *stage, enum local local, size_t index)
{
    switch (local) {
    case LOCAL_REGISTERED:
    case LOCAL_END:
        return &stage->arenas[MEMORY_REGISTERED];
    case LOCAL_ALLOCATED:
        return &stage->arenas[MEMORY_ALLOCATED];
    case LOCAL_MIXED:
        return &stage->arenas[index % ARENAS];
    case LOCAL_PLAIN:
        break;
    }
    return &stage->arenas[MEMORY_UNREGISTERED];
}

/* Determines the lengths of a list's pieces. Returns the number of pieces. */
static size_t piece_lengths(enum list list, size_t length, size_t max_sge, size_t out[PIECES_MAX])
{
    size_t count = 1;
    switch (list) {
    case LIST_CALL:
    case LIST_ONE:
        out[0] = length;
        return 1;
    case LIST_NONE:
        return 0;
    case LIST_EMPTY:
        out[0] = out[2] = out[4] = 0;
        out[1] = length / 3;
        out[3] = length - out[1];
        return 5;
    case LIST_TWO:
        count = 2;
        break;
    case LIST_MOST:
    case LIST_STEEP:
        count = max_sge;
        break;
    case LIST_TOO_LONG:
        count = max_sge + 1;
        break;
    }
    size_t done = 0;
    for (size_t i = 0; i < count; i++) {
        size_t rest = length - done;
        size_t part = list == LIST_STEEP ? rest - rest / 16 : rest / 2 - (rest / 2 > 7 ? i : 0);
        out[i] = i + 1 == count || rest < 2 ? rest : part;
        done += out[i];
    }
    return count;
}

static struct buffer buffer_take(struct stage *stage, const struct wanted *wanted)
{
    size_t lengths[PIECES_MAX] = { 0 };
    struct buffer buffer = { .length = wanted->length };
    buffer.count = piece_lengths(wanted->list, wanted->length, stage->limits[0].max_sge, lengths);
    for (size_t i = 0; i < buffer.count; i++) {
        struct arena *arena = arena_of(stage, wanted->local, i);
        const bool aligned = wanted_is_atomic(wanted); /* its result is a word */
        if (wanted->local == LOCAL_END) {
            size_t at = ARENA_LENGTH - lengths[i];
            at = aligned ? at / 8 * 8 : at;
            arena->end = at < arena->end ? at : arena->end;
            buffer.pieces[i] = (struct piece){ arena, at, lengths[i] };
        } else {
            buffer.pieces[i] = piece_take(arena, lengths[i]);
            size_t up = aligned ? 8 - buffer.pieces[i].at % 8 : 0;
            arena->used += up;
            buffer.pieces[i].at += up;
        }
    }
    return buffer;
}

/* ------------------------------------------------------------------------------------- receives */

static struct buffer receive_buffer(struct stage *stage, const struct wanted *message)
{
    const unsigned kind = stage->row.values[DIM_RECEIVE];
    const size_t length = wanted_is_message(message) ? message->length : NOTICE_ROOM;
    struct buffer buffer = { .length = length };
    switch (kind) {
    case RECEIVE_ROOMY:
    case RECEIVE_LATE_ROOMY:
        buffer.length = length + ROOM_BEHIND;
        buffer.pieces[0] = piece_take(&stage->arenas[MEMORY_REGISTERED], buffer.length);
        buffer.count = 1;
        break;
    case RECEIVE_OPEN:
    case RECEIVE_LATE_OPEN:
        buffer.pieces[0] = piece_take(&stage->arenas[ARENA_OPEN], length);
        buffer.count = 1;
        break;
    case RECEIVE_PIECES: {
        const size_t lengths[] = { 0, length / 4, 0, length - length / 4, 0 };
        for (size_t i = 0; i < COUNT_OF(lengths); i++) {
            buffer.pieces[i] = piece_take(&stage->arenas[i % ARENAS], lengths[i]);
        }
        buffer.count = COUNT_OF(lengths);
        break;
    }
    default:
        buffer.pieces[0] = piece_take(&stage->arenas[MEMORY_UNREGISTERED], length);
        buffer.count = 1;
        break;
    }
    buffer_fill(&buffer, BYTE_ROOM);
    return buffer;
}

static void sges_of(const struct buffer *buffer, struct rdmux_sge sges[PIECES_MAX])
{
    for (size_t i = 0; i < buffer->count; i++) {
        const struct piece *piece = &buffer->pieces[i];
        sges[i] = (struct rdmux_sge){
            .addr = piece_bytes(piece),
            .length = piece->length,
            .mr = piece->arena->region.mr,
        };
    }
}

static void post_receives(struct stage *stage)
{
    for (size_t i = 0; i < stage->in.count; i++) {
        const struct wanted *message = &stage->in.requests[i];
        if (message->answer != RDMUX_OK ||
            (!wanted_is_message(message) && message->op != RDMUX_OP_WRITE_IMM)) {
            continue;
        }
        struct rdmux_sge sges[PIECES_MAX];
        struct receive_slot *slot = &stage->receives[stage->receive_count];
        *slot = (struct receive_slot){ receive_buffer(stage, message), message, false };
        sges_of(&slot->buffer, sges);
        struct rdmux_wr wr = {
            .op = RDMUX_OP_RECV,
            .context = CTX(RECEIVES_FROM + stage->receive_count),
            .sges = sges,
            .sge_count = (uint32_t)slot->buffer.count,
        };
        STAND("a receive");
        enum rdmux_status status = stage->row.values[DIM_ENDPOINT] >= ENDPOINT_SRQ_FIRST
                                       ? rdmux_srq_post_recv(stage->srq, &wr, 1, NULL)
                                       : rdmux_post_recv(stage->ep, &wr, 1, NULL);
        if (status != RDMUX_OK) {
            broken(stage, status == RDMUX_AGAIN ? "1.12" : "1.13", message,
                   "the post of a receive of %zu bytes in %zu pieces gave %s: %s",
                   slot->buffer.length, slot->buffer.count, rdmux_status_name(status),
                   rdmux_last_error());
        }
        memset(sges, 0xff, sizeof(sges)); /* the list is free again */
        memset(&wr, 0xff, sizeof(wr));
        stage->receive_count++;
    }
}

/* Applies the peer's requests up to this one to the model of this side's regions. */
static void apply_up_to(struct stage *stage, const struct wanted *last)
{
    while (stage->in_applied < stage->in.count) {
        const struct wanted *wanted = &stage->in.requests[stage->in_applied];
        if (last != NULL && wanted > last) {
            return;
        }
        uint64_t found = 0;
        uint64_t expects = 0;
        if (wanted->answer == RDMUX_OK && wanted->remote < REMOTE_KINDS) {
            (void)wanted_apply(wanted, stage->model[wanted->remote], &found, &expects);
        }
        stage->in_applied++;
    }
}

/* Returns whether a request behind this write may have changed its bytes: a request behind `last`,
 * or an atomic, which a later message does not wait for. */
static bool is_changed_again(const struct stage *stage, const struct wanted *write,
                             const struct wanted *last)
{
    const struct wanted *end = stage->in.requests + stage->in.count;
    for (const struct wanted *later = write + 1; later < end; later++) {
        if (later->op != RDMUX_OP_READ && later->remote == write->remote &&
            later->offset < write->offset + write->length &&
            write->offset < later->offset + later->length &&
            (later > last || wanted_is_atomic(later))) {
            return true;
        }
    }
    return false;
}

/* Finds the first wrong byte of the writes up to `last`, all of which must be placed. Returns the
 * write, NULL if there is none. */
static const struct wanted *find_missing_write(struct stage *stage, const struct wanted *last,
                                               size_t *at)
{
    apply_up_to(stage, last);
    for (const struct wanted *wanted = stage->in.requests; wanted <= last; wanted++) {
        if (wanted->answer == RDMUX_OK && wanted_is_write(wanted) && wanted->length > 0 &&
            !is_changed_again(stage, wanted, last) &&
            differs(stage->regions[wanted->remote].addr + wanted->offset,
                    stage->model[wanted->remote] + wanted->offset, wanted->length, at)) {
            return wanted;
        }
    }
    return NULL;
}

/* Checks that the writes before a message, or of the message itself, are placed when it arrives. */
static void check_writes_before(struct stage *stage, const struct wanted *last)
{
    size_t at = 0;
    const struct wanted *wanted = find_missing_write(stage, last, &at);
    if (wanted != NULL) {
        const uint8_t *bytes = stage->regions[wanted->remote].addr + wanted->offset;
        const uint8_t *model = stage->model[wanted->remote] + wanted->offset;
        const char *rule = wanted == last ? "2.5" : last->op == RDMUX_OP_WRITE_IMM ? "2.4" : "2.3";
        broken(stage, rule_of_wrong_byte(wanted, bytes[at], rule), wanted,
               "when the %s behind it was received, byte %zu of the write was 0x%02x, expected "
               "0x%02x",
               last->op == RDMUX_OP_WRITE_IMM ? "write_imm" : "message", at, bytes[at], model[at]);
    }
}

static void check_message_bytes(struct stage *stage, const struct receive_slot *slot,
                                const char *when, const char *rule)
{
    static uint8_t bytes[MESSAGE_MOST + 1];
    const struct wanted *message = slot->message;
    size_t at = 0;
    uint8_t came = 0;
    uint8_t wanted = 0;
    if (wanted_is_message(message)) {
        pattern_fill(bytes, message->length, message->seed, 0);
        buffer_expect(&slot->buffer, bytes, message->length);
    }
    if (!buffer_differs(&slot->buffer, &at, &came, &wanted)) {
        return;
    }
    if (!wanted_is_message(message)) {
        broken(stage, "2.7", message,
               "%s, byte %zu of the receive that it took is 0x%02x, was 0x%02x", when, at, came,
               wanted);
    }
    if (at >= message->length) {
        broken(stage, "5.2", message,
               "%s, byte %zu behind the message of %zu bytes is 0x%02x, was "
               "0x%02x",
               when, at - message->length, message->length, came, wanted);
    }
    if (stage->row.values[DIM_RECEIVE] == RECEIVE_PIECES && message->list < LIST_TWO) {
        rule = "1.13";
    }
    broken(stage, rule_of_wrong_byte(message, came, rule), message,
           "%s, byte %zu of the message is 0x%02x, expected 0x%02x", when, at, came, wanted);
}

/* If the endpoint is gone, this may be a consequence of a failure that the other side has
 * reported. */
static void expect_other_side(struct stage *stage, const struct rdmux_wc *wc)
{
    struct pollfd wait = { .fd = stage->side->sync, .events = POLLIN };
    uint8_t byte = 0;
    if ((wc->status == RDMUX_PEER_GONE || wc->status == RDMUX_FLUSHED) &&
        poll(&wait, 1, OTHER_SIDE_MS) == 1 &&
        recv(stage->side->sync, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
        fail_as_consequence(__FILE__, __LINE__, "a row");
    }
}

static void take_received(struct stage *stage, const struct rdmux_wc *wc)
{
    if (stage->received == stage->receive_count) {
        broken(stage, "1.1", NULL, "an entry too many: %s", wc_text(wc));
    }
    struct receive_slot *slot = &stage->receives[stage->received];
    const struct wanted *message = slot->message;
    const uint32_t opcode = wanted_is_message(message) ? RDMUX_WC_RECV : RDMUX_WC_RECV_WRITE_IMM;
    const bool has_imm = wanted_has_imm(message);
    if (wc->status != RDMUX_OK) {
        expect_other_side(stage, wc);
        broken(stage, wc->status == RDMUX_LENGTH ? "2.1" : "2.2", message, "its receive is %s",
               wc_text(wc));
    }
    if (CTX_NUMBER(wc->context) != RECEIVES_FROM + stage->received) {
        broken(stage, "2.1", message,
               "it came to the wrong receive, number %" PRIu64 " of the row, not %zu",
               CTX_NUMBER(wc->context) - RECEIVES_FROM, stage->received);
    }
    if (wc->ep != stage->ep) {
        broken(stage, "2.14", message, "its receive names another endpoint");
    }
    if (wc->opcode != opcode || wc->length != message->length) {
        broken(stage, "1.16", message, "its receive is %s, expected %s of length %zu", wc_text(wc),
               rdmux_wc_opcode_name(opcode), message->length);
    }
    if (wc->flags != (has_imm ? RDMUX_WC_HAS_IMM : 0U) || (has_imm && wc->imm != message->imm)) {
        broken(stage, "2.8", message, "its receive is %s, expected flags %u imm 0x%" PRIx32,
               wc_text(wc), has_imm ? RDMUX_WC_HAS_IMM : 0U, message->imm);
    }
    check_message_bytes(stage, slot, "when it was received", "2.1");
    check_writes_before(stage, message);
    buffer_fill(&slot->buffer, BYTE_FREE);
    slot->taken = true;
    stage->received++;
}

/* ---------------------------------------------------------------------------------- completions */

/* Returns the buffers of requests up to this one to the program (1.8, 3.1). */
static void give_back(struct stage *stage, size_t last)
{
    for (size_t i = 0; i <= last; i++) {
        struct posted *posted = &stage->posted[i];
        const struct wanted *wanted = posted->wanted;
        size_t at = 0;
        uint8_t came = 0;
        uint8_t value = 0;
        if (posted->free) {
            continue;
        }
        posted->free = true;
        if (posted->expected != NULL) {
            buffer_expect(&posted->buffer, posted->expected, wanted->length);
        }
        if (buffer_differs(&posted->buffer, &at, &came, &value)) {
            const bool fenced = (wanted->flags & RDMUX_FENCE) != 0;
            const char *rule = wanted->op != RDMUX_OP_READ && !wanted_is_atomic(wanted) ? "1.13"
                               : wanted->role == ROLE_PROOF                             ? "2.6"
                               : wanted->role == ROLE_BEFORE                            ? "4.1"
                               : wanted_is_atomic(wanted) ? (fenced ? "4.2" : "2.11")
                                                          : "3.3";
            if (came == BYTE_ROOM) {
                rule = "3.3";
            }
            if (i < last) {
                rule = "1.8";
            }
            broken(stage, wanted->list >= LIST_TWO ? "1.13" : rule, wanted,
                   "when it was done, byte %zu of its %zu local bytes was 0x%02x, expected 0x%02x",
                   at, wanted->length, came, value);
        }
        buffer_fill(&posted->buffer, BYTE_FREE);
    }
}

static bool is_signaled(const struct wanted *wanted)
{
    return (wanted->flags & RDMUX_UNSIGNALED) == 0;
}

static void take_done(struct stage *stage, const struct rdmux_wc *wc)
{
    const uint64_t number = CTX_NUMBER(wc->context) - NUMBERED_FROM;
    size_t next = stage->done;
    while (next < stage->posted_count && !is_signaled(stage->posted[next].wanted)) {
        next++;
    }
    if (number >= stage->posted_count) {
        broken(stage, "1.16", NULL, "an entry with a context that no request has: %s", wc_text(wc));
    }
    const struct wanted *named = stage->posted[number].wanted;
    if (wc->status != RDMUX_OK) {
        expect_other_side(stage, wc);
        broken(stage, wc->status == RDMUX_LENGTH ? "2.1" : "1.1", named, "it failed: %s",
               wc_text(wc));
    }
    if (!is_signaled(named)) {
        broken(stage, "1.2", named, "it succeeded and has a completion: %s", wc_text(wc));
    }
    if (number < next) {
        broken(stage, "1.1", named, "it completed twice: %s", wc_text(wc));
    }
    if (number > next) {
        broken(stage, "1.6", named, "its completion came before that of a request before it: %s",
               wc_text(wc));
    }
    if (wc->opcode != wanted_opcode(named) || wc->length != named->length || wc->ep != stage->ep ||
        wc->flags != 0 || wc->imm != 0) {
        broken(stage, "1.16", named, "its completion is %s%s, expected %s of length %zu",
               wc_text(wc), wc->ep == stage->ep ? "" : " of another endpoint",
               rdmux_wc_opcode_name(wanted_opcode(named)), named->length);
    }
    give_back(stage, next);
    stage->done = next + 1;
}

static void take_entry(struct stage *stage, const struct rdmux_wc *wc)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    switch (wc->opcode) {
    case RDMUX_WC_RECV:
    case RDMUX_WC_RECV_WRITE_IMM:
        take_received(stage, wc);
        break;
    case RDMUX_WC_WRITABLE:
        if (!stage->writable_due || wc->ep != stage->ep) {
            broken(stage, "13.1", NULL, "a WRITABLE for which no post was refused");
        }
        stage->writable_due = false;
        break;
    case RDMUX_WC_DISCONNECTED:
        if (rdmux_ep_info(wc->ep, &info) != RDMUX_OK) {
            info.text[0] = '\0';
        }
        info.text[sizeof(info.text) - 1] = '\0';
        expect_other_side(stage, wc);
        broken(stage, "1.1", NULL, "the endpoint has ended: %s: %s", wc_text(wc), info.text);
    default:
        take_done(stage, wc);
        break;
    }
}

/* Returns the milliseconds left for the row. */
static int time_left_ms(const struct stage *stage)
{
    uint64_t now = now_ns();
    return now >= stage->row_deadline ? 0 : (int)((stage->row_deadline - now) / 1000000) + 1;
}

/* Sleeps on the armed descriptor. Returns false if no wake-up came. */
static bool sleep_armed(struct stage *stage)
{
    enum rdmux_status status = rdmux_cq_arm(stage->side->queue.cq);
    if (status == RDMUX_AGAIN) {
        return true;
    }
    EXPECT_STATUS(status, RDMUX_OK);
    struct pollfd wait = { .fd = rdmux_cq_fd(stage->side->queue.cq), .events = POLLIN };
    return poll(&wait, 1, time_left_ms(stage)) == 1;
}

static void take_entries(struct stage *stage, const struct rdmux_wc *wcs, size_t count)
{
    stage->took = true;
    for (size_t i = 0; i < count; i++) {
        take_entry(stage, &wcs[i]);
    }
    if (count == 0 && ++stage->polls % POLLS_PER_YIELD == 0) {
        (void)sched_yield();
    }
}

static void poll_some(struct stage *stage, size_t most)
{
    struct rdmux_wc wcs[POLL_AT_ONCE];
    size_t count = rdmux_cq_poll(stage->side->queue.cq, wcs, most);
    EXPECT(count <= most, "a poll for %zu entries returned %zu", most, count);
    take_entries(stage, wcs, count);
}

static void wait_for_some(struct stage *stage)
{
    struct rdmux_wc wcs[POLL_AT_ONCE];
    size_t count = 0;
    struct rdmux_cq *cq = stage->side->queue.cq;
    enum rdmux_status status = rdmux_cq_wait(cq, wcs, 3, time_left_ms(stage), &count);
    if (status == RDMUX_OK) {
        take_entries(stage, wcs, count);
    } else if (rdmux_cq_poll(cq, wcs, 1) != 0) {
        broken(stage, "13.12", NULL, "rdmux_cq_wait gave %s, and then a poll had %s",
               rdmux_status_name(status), wc_text(&wcs[0]));
    }
}

/* Waits in the row's way and takes the available completions. */
static void take_some(struct stage *stage)
{
    struct rdmux_wc wc;
    switch (stage->row.values[DIM_WAIT]) {
    case WAIT_POLL_ONE:
        poll_some(stage, 1);
        break;
    case WAIT_SLEEP:
        wait_for_some(stage);
        break;
    case WAIT_ARM:
    case WAIT_THREAD:
        if (sleep_armed(stage)) {
            poll_some(stage, 5);
        } else if (rdmux_cq_poll(stage->side->queue.cq, &wc, 1) != 0) {
            broken(stage, "13.6", NULL, "the armed descriptor did not wake, and then a poll had %s",
                   wc_text(&wc));
        }
        break;
    default:
        poll_some(stage, POLL_AT_ONCE);
        break;
    }
}

/* A row takes milliseconds; if it exceeds its deadline, it hangs. */
static bool is_late(const struct stage *stage)
{
    return now_ns() > stage->row_deadline || time_is_up();
}

/* ---------------------------------------------------------------------------------------- posts */

static enum rdmux_status post_by_call(struct stage *stage, const struct wanted *wanted,
                                      const struct piece *piece, uint64_t expects, void *context)
{
    struct rdmux_ep *ep = stage->ep;
    void *bytes = piece_bytes(piece);
    struct rdmux_mr *mr = piece->arena->region.mr;
    const size_t length = wanted->length;
    struct rdmux_remote *remote = wanted->remote == REMOTE_KINDS
                                      ? NULL
                                      : stage->remotes[stage->row.values[DIM_ENDPOINT]]
                                                      [wanted->remote][wanted->import];
    const uint32_t flags = wanted->flags;
    if (length == 0) {
        bytes = NULL;
        mr = NULL;
    }
    switch (wanted->op) {
    case RDMUX_OP_SEND:
        return rdmux_send(ep, bytes, length, mr, context, flags);
    case RDMUX_OP_SEND_IMM:
        return rdmux_send_imm(ep, bytes, length, mr, wanted->imm, context, flags);
    case RDMUX_OP_WRITE:
        return rdmux_write(ep, bytes, length, mr, remote, wanted->offset, context, flags);
    case RDMUX_OP_WRITE_IMM:
        return rdmux_write_imm(ep, bytes, length, mr, remote, wanted->offset, wanted->imm, context,
                               flags);
    case RDMUX_OP_READ:
        return rdmux_read(ep, bytes, length, mr, remote, wanted->offset, context, flags);
    case RDMUX_OP_FETCH_ADD:
        return rdmux_fetch_add(ep, bytes, mr, remote, wanted->offset, wanted->operand, context,
                               flags);
    default:
        return rdmux_compare_swap(ep, bytes, mr, remote, wanted->offset, expects, wanted->operand,
                                  context, flags);
    }
}

static enum rdmux_status post_now(struct stage *stage, const struct wanted *wanted,
                                  const struct buffer *buffer, uint64_t expects, void *context)
{
    if (wanted->list == LIST_CALL) {
        return post_by_call(stage, wanted, &buffer->pieces[0], expects, context);
    }
    struct rdmux_sge sges[PIECES_MAX];
    sges_of(buffer, sges);
    struct rdmux_wr wr = {
        .op = wanted->op,
        .flags = wanted->flags,
        .context = context,
        .sges = buffer->count == 0 ? NULL : sges,
        .sge_count = (uint32_t)buffer->count,
        .imm = wanted_has_imm(wanted) ? wanted->imm : 0,
        .offset = wanted->offset,
        .operand = wanted_is_atomic(wanted) ? wanted->operand : 0,
        .expected = wanted->op == RDMUX_OP_COMPARE_SWAP ? expects : 0,
    };
    if (wanted->remote < REMOTE_KINDS) {
        wr.remote = stage->remotes[stage->row.values[DIM_ENDPOINT]][wanted->remote][wanted->import];
    }
    enum rdmux_status status = rdmux_post(stage->ep, &wr, 1, NULL);
    memset(sges, 0xff, sizeof(sges)); /* the list is free, the bytes are not */
    memset(&wr, 0xff, sizeof(wr));
    return status;
}

static const char *rule_of_refusal(const struct wanted *wanted, enum rdmux_status status)
{
    if (status == RDMUX_AGAIN) {
        return "1.12";
    }
    if (status == RDMUX_OUT_OF_RANGE) {
        return "6.1";
    }
    if ((wanted->flags & RDMUX_INLINE) != 0) {
        return "1.14";
    }
    if (status == RDMUX_LENGTH) {
        return "5.4";
    }
    if (wanted->length == 0) {
        return (wanted->flags & RDMUX_PLACED) != 0 ? "1.9" : "12.1";
    }
    return wanted->list >= LIST_TWO ? "1.13" : "1.1";
}

static void await_writable(struct stage *stage, const struct wanted *wanted)
{
    stage->writable_due = true;
    while (stage->writable_due) {
        take_some(stage);
        if (is_late(stage)) {
            broken(stage, stage->row.values[DIM_BEFORE] == BEFORE_CROWD ? "1.10" : "13.1", wanted,
                   "its post was refused with AGAIN, and no WRITABLE came");
        }
    }
}

/* Remembers the required result of a read or an atomic. */
static void expect_result(struct stage *stage, struct posted *posted, const uint8_t *bytes)
{
    uint8_t *found = stage->found + stage->found_used;
    memcpy(found, bytes, posted->wanted->length);
    stage->found_used += posted->wanted->length;
    posted->expected = found;
}

static void post_one(struct stage *stage, const struct wanted *wanted)
{
    struct posted *posted = &stage->posted[stage->posted_count];
    void *context = CTX(NUMBERED_FROM + stage->posted_count);
    uint8_t *model = wanted->remote < REMOTE_KINDS ? stage->theirs[wanted->remote] : NULL;
    uint64_t found = 0;
    uint64_t expects = 0;
    *posted = (struct posted){ .wanted = wanted, .buffer = buffer_take(stage, wanted) };
    if (wanted->op == RDMUX_OP_READ || wanted_is_atomic(wanted)) {
        buffer_fill(&posted->buffer, BYTE_ROOM);
    } else {
        buffer_pattern(&posted->buffer, wanted->seed);
    }
    if (wanted->answer == RDMUX_OK && model != NULL) {
        if (wanted->op == RDMUX_OP_READ) {
            expect_result(stage, posted, model + wanted->offset);
        } else if (wanted_apply(wanted, model, &found, &expects) && wanted_is_atomic(wanted)) {
            expect_result(stage, posted, (const uint8_t *)&found);
        }
    }
    STAND(asked(wanted));
    enum rdmux_status status = post_now(stage, wanted, &posted->buffer, expects, context);
    if (wanted->must_be_full && status != RDMUX_AGAIN) {
        broken(stage, "1.12", wanted, "its post on a full queue gave %s, expected AGAIN",
               rdmux_status_name(status));
    }
    if (status == RDMUX_AGAIN && wanted->may_be_full) {
        if (wanted->must_be_full) { /* refused twice, and still only one WRITABLE */
            status = post_now(stage, wanted, &posted->buffer, expects, context);
            if (status != RDMUX_AGAIN) {
                broken(stage, "1.12", wanted,
                       "its second post on a full queue gave %s, expected AGAIN",
                       rdmux_status_name(status));
            }
        }
        await_writable(stage, wanted);
        status = post_now(stage, wanted, &posted->buffer, expects, context);
        if (status == RDMUX_AGAIN) {
            broken(stage, "13.2", wanted, "its post after WRITABLE gave AGAIN");
        }
    }
    if (status != wanted->answer) {
        broken(stage,
               wanted->answer == RDMUX_OK ? rule_of_refusal(wanted, status) : wanted->answer_rule,
               wanted, "its post gave %s, expected %s%s%s", rdmux_status_name(status),
               rdmux_status_name(wanted->answer), status == RDMUX_OK ? "" : ": ",
               status == RDMUX_OK ? "" : rdmux_last_error());
    }
    if (status != RDMUX_OK) {
        buffer_fill(&posted->buffer, BYTE_FREE);
        return;
    }
    if ((wanted->flags & RDMUX_INLINE) != 0) {
        buffer_fill(&posted->buffer, BYTE_INLINE);
    }
    stage->posted_count++;
}

/* ----------------------------------------------------------------------------------- the thread */

struct sleeper {
    struct stage *stage;
    pthread_t thread;
    bool started;
    int stop; /* an eventfd that ends the sleep */
    bool woke;
};

static void *sleeper_body(void *argument)
{
    struct sleeper *sleeper = argument;
    struct pollfd waits[2] = {
        { .fd = rdmux_cq_fd(sleeper->stage->side->queue.cq), .events = POLLIN },
        { .fd = sleeper->stop, .events = POLLIN },
    };
    (void)poll(waits, COUNT_OF(waits), sleeper->stage->side->patient_ms);
    sleeper->woke = waits[0].revents != 0;
    return NULL;
}

/* A thread sleeps on the armed cq while this thread posts. */
static void sleeper_start(struct sleeper *sleeper, struct stage *stage)
{
    *sleeper = (struct sleeper){ .stage = stage, .stop = -1 };
    if (stage->row.values[DIM_WAIT] != WAIT_THREAD ||
        rdmux_cq_arm(stage->side->queue.cq) != RDMUX_OK) {
        return;
    }
    sleeper->stop = eventfd(0, EFD_CLOEXEC);
    EXPECT(sleeper->stop >= 0, "eventfd: %s", strerror(errno));
    EXPECT(pthread_create(&sleeper->thread, NULL, sleeper_body, sleeper) == 0,
           "a thread could not be started");
    sleeper->started = true;
}

/* must_wake: an event is due and no poll took place meanwhile, so the thread must wake up. */
static void sleeper_join(struct sleeper *sleeper, bool must_wake)
{
    const uint64_t one = 1;
    if (!sleeper->started) {
        return;
    }
    if (!must_wake) {
        EXPECT(write(sleeper->stop, &one, sizeof(one)) == (ssize_t)sizeof(one), "write: %s",
               strerror(errno));
    }
    EXPECT(pthread_join(sleeper->thread, NULL) == 0, "a thread could not be joined");
    (void)close(sleeper->stop);
    if (must_wake && !sleeper->woke) {
        broken(sleeper->stage, "13.10", NULL,
               "a thread that slept on the armed descriptor while another posted was not woken");
    }
}

/* ---------------------------------------------------------------------------------------- a row */

static void row_begin(struct stage *stage, const struct row *row, uint64_t round)
{
    const bool both = row->values[DIM_WAYS] == WAYS_BOTH;
    const bool initiator_posts = both || row_hash(row) % 2 == 0;
    const bool target_posts = both || !initiator_posts;
    const uint64_t seed = mix64(stage->side->seed + 2 * round);
    const bool posts = stage->side->is_initiator ? initiator_posts : target_posts;
    const bool is_posted_to = stage->side->is_initiator ? target_posts : initiator_posts;
    stage->row = *row;
    stage->row_deadline = now_ns() + (uint64_t)stage->side->patient_ms * 1000000;
    stage->ep = stage->eps[row->values[DIM_ENDPOINT]];
    stage->out.count = stage->in.count = 0;
    if (posts) {
        program_make(row, seed + stage->side->is_initiator, &stage->limits[0], &stage->out);
    }
    if (is_posted_to) {
        program_make(row, seed + !stage->side->is_initiator, &stage->limits[1], &stage->in);
    }
    for (size_t i = 0; i < ARENAS; i++) {
        stage->arenas[i].used = 0;
        stage->arenas[i].end = ARENA_LENGTH;
    }
    stage->found_used = 0;
    stage->posted_count = stage->done = 0;
    stage->receive_count = stage->received = 0;
    stage->in_applied = 0;
    stage->writable_due = false;
}

static bool has_signaled_left(const struct stage *stage)
{
    for (size_t i = stage->done; i < stage->posted_count; i++) {
        if (is_signaled(stage->posted[i].wanted)) {
            return true;
        }
    }
    return false;
}

static _Noreturn void missing(struct stage *stage)
{
    if (has_signaled_left(stage)) {
        size_t next = stage->done;
        while (!is_signaled(stage->posted[next].wanted)) {
            next++;
        }
        const struct wanted *wanted = stage->posted[next].wanted;
        const char *rule = (wanted->flags & RDMUX_MORE) != 0                 ? "1.15"
                           : stage->row.values[DIM_BEFORE] == BEFORE_CROWD   ? "1.10"
                           : stage->row.values[DIM_WAIT] >= WAIT_ARM         ? "13.6"
                           : stage->row.values[DIM_BEFORE] == BEFORE_STARVED ? "2.2"
                                                                             : "1.1";
        broken(stage, rule, wanted, "its completion never came");
    }
    const struct wanted *message = stage->receives[stage->received].message;
    broken(stage, row_is_late(&stage->row) ? "2.2" : "2.1", message, "its receive never completed");
}

static void take_all(struct stage *stage)
{
    while (has_signaled_left(stage) || stage->received < stage->receive_count) {
        take_some(stage);
        if (is_late(stage) && (has_signaled_left(stage) || stage->received < stage->receive_count)) {
            missing(stage);
        }
    }
}

/* Returns whether the other side checks its memory while its program makes no call. It does if some
 * requests are placed once the last completion has come. */
static bool is_seen_unpolled(const struct stage *stage)
{
    const struct program *program = stage->out.count > 0 ? &stage->out : &stage->in;
    return stage->row.values[DIM_WAYS] == WAYS_ONE && !row_is_late(&stage->row) &&
           program_placed(program) > 0;
}

static void check_region(struct stage *stage, size_t region, const char *when)
{
    const uint8_t *bytes = stage->regions[region].addr;
    const uint8_t *model = stage->model[region];
    size_t at = 0;
    if (!differs(bytes, model, REGION_LENGTH, &at)) {
        return;
    }
    for (size_t i = stage->in.count; i-- > 0;) {
        const struct wanted *wanted = &stage->in.requests[i];
        if (wanted->remote == region && at >= wanted->offset &&
            at < wanted->offset + wanted->length && wanted->op != RDMUX_OP_READ &&
            wanted->answer == RDMUX_OK) {
            broken(stage, rule_of_wrong_byte(wanted, bytes[at], rule_of_bytes(stage, wanted)),
                   wanted, "%s, byte %zu of the region is 0x%02x, expected 0x%02x", when, at,
                   bytes[at], model[at]);
        }
    }
    broken(stage, row_is_refused(&stage->row) ? "6.3" : "3.4", NULL,
           "%s, byte %zu of region %zu is 0x%02x, expected 0x%02x: nobody was to write there", when,
           at, region, bytes[at], model[at]);
}

static void check_regions(struct stage *stage, const char *when)
{
    apply_up_to(stage, NULL);
    for (size_t i = 0; i < REMOTE_KINDS; i++) {
        check_region(stage, i, when);
    }
}

/* Receives without a region may be filled as late as when they are polled (3.5). */
static void check_unpolled(struct stage *stage)
{
    static const char when[] = "when the peer's completions had said that it was placed";
    const size_t placed = program_placed(&stage->in);
    const struct wanted *last = &stage->in.requests[placed - 1];
    size_t at = 0;
    uint8_t go = 0;
    TAKE(stage->side, &go, sizeof(go));
    if (placed == stage->in.count) {
        check_regions(stage, when);
    } else {
        const struct wanted *wanted = find_missing_write(stage, last, &at);
        if (wanted != NULL) {
            const uint8_t *bytes = stage->regions[wanted->remote].addr + wanted->offset;
            const uint8_t *model = stage->model[wanted->remote] + wanted->offset;
            broken(stage, rule_of_wrong_byte(wanted, bytes[at], wanted == last ? "1.8" : "1.9"),
                   wanted, "%s, byte %zu of the write was 0x%02x, expected 0x%02x", when, at,
                   bytes[at], model[at]);
        }
    }
    /* Some messages may have been received while this side waited for the row to begin. */
    for (size_t i = stage->received;
         i < stage->receive_count && row_receives_in_region(&stage->row) &&
         stage->receives[i].message <= last;
         i++) {
        check_message_bytes(stage, &stage->receives[i], when, "3.5");
    }
}

static void check_arenas(struct stage *stage)
{
    for (size_t i = 0; i < ARENAS; i++) {
        const struct arena *arena = &stage->arenas[i];
        const size_t end = arena->end - GAP;
        size_t at = 0;
        size_t used = arena->used + GAP;
        bool wrong = differs(arena->region.addr, arena->shadow, used, &at);
        if (!wrong &&
            differs(arena->region.addr + end, arena->shadow + end, ARENA_LENGTH - end, &at)) {
            wrong = true;
            at += end;
        }
        if (wrong) {
            broken(
                stage, stage->in.count > 0 ? "5.2" : "3.3", NULL,
                "byte %zu of this side's local memory is 0x%02x, was 0x%02x: no buffer in use was "
                "there",
                at, arena->region.addr[at], arena->shadow[at]);
        }
    }
}

/* A barrier during which this side serves its peer. In rows in which it sleeps, the library's own
 * thread must serve the peer. */
static void meet(struct stage *stage)
{
    const unsigned wait = stage->row.values[DIM_WAIT];
    const uint8_t mine = 'm';
    uint8_t theirs = 0;
    GIVE(stage->side, &mine, 1);
    while (wait <= WAIT_POLL_ONE &&
           recv(stage->side->sync, &theirs, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EINTR) && !is_late(stage)) {
        take_some(stage);
    }
    TAKE(stage->side, &theirs, 1);
    EXPECT(theirs == mine, "the case is wrong: the other side gave 0x%02x at a barrier", theirs);
}

static void run_row(struct stage *stage, const struct row *row, uint64_t round)
{
    struct sleeper sleeper;
    row_begin(stage, row, round);
    const bool late = row_is_late(row);
    const bool unpolled = is_seen_unpolled(stage);
    if (!late) {
        post_receives(stage);
    }
    meet(stage);
    stage->took = false;
    sleeper_start(&sleeper, stage);
    for (size_t i = 0; i < stage->out.count; i++) {
        post_one(stage, &stage->out.requests[i]);
    }
    if (late) {
        meet(stage);
        post_receives(stage);
    }
    if (unpolled && stage->in.count > 0) {
        check_unpolled(stage);
    }
    if (unpolled && stage->out.count > 0) {
        take_all(stage);
        const uint8_t go = 1;
        GIVE(stage->side, &go, sizeof(go));
    }
    sleeper_join(&sleeper, !stage->took && (has_signaled_left(stage) ||
                                            stage->received < stage->receive_count));
    take_all(stage);
    meet(stage);
    check_regions(stage, "afterwards");
    if (stage->posted_count > 0) {
        give_back(stage, stage->posted_count - 1);
    }
    check_arenas(stage);
    struct rdmux_wc wc;
    if (rdmux_cq_poll(stage->side->queue.cq, &wc, 1) != 0) {
        take_entry(stage, &wc);
        broken(stage, "1.1", NULL, "an entry too many: %s", wc_text(&wc));
    }
    meet(stage);
}

/* --------------------------------------------------------------------------------------- set-up */

static struct rdmux_ep_attr attr_of(struct stage *stage, enum endpoint endpoint)
{
    struct rdmux_ep_attr attr = still_ep_attr_of(stage->side);
    attr.send_depth = QUEUE_DEPTH;
    attr.recv_depth = QUEUE_DEPTH;
    attr.max_send_sge = SGES;
    attr.max_recv_sge = SGES;
    attr.max_send = MESSAGE_MOST;
    attr.max_recv = MESSAGE_MOST;
    if (endpoint == ENDPOINT_SOCKETS) {
        attr.data_sockets = DATA_SOCKETS;
    }
    if (endpoint >= ENDPOINT_SRQ_FIRST) {
        attr.srq = stage->srq;
    }
    return attr;
}

static uint8_t *bytes_of(size_t length)
{
    uint8_t *bytes = calloc(1, length);
    EXPECT(bytes != NULL, "out of memory");
    return bytes;
}

/* Another path may open faster than the first endpoint's capabilities become known. */
static void open_endpoints(struct stage *stage)
{
    struct side *side = stage->side;
    struct rdmux_ep_attr attr = attr_of(stage, ENDPOINT_FIRST);
    side_open_pair(side, &attr);
    stage->eps[ENDPOINT_FIRST] = side->ep;
    stage->eps[ENDPOINT_SECOND] = side_pair(side, &attr);
    attr = attr_of(stage, ENDPOINT_SOCKETS);
    stage->eps[ENDPOINT_SOCKETS] = side_pair(side, &attr);
    stage->ep_count = ENDPOINT_SRQ_FIRST;
    if (side_has(side, NEEDS_SRQ)) {
        struct rdmux_srq_attr srq_attr = RDMUX_SRQ_ATTR_INIT;
        srq_attr.depth = SRQ_DEPTH;
        EXPECT_OK(rdmux_srq_create(side->fabric, side->queue.cq, &srq_attr, &stage->srq));
        attr = attr_of(stage, ENDPOINT_SRQ_FIRST);
        stage->eps[ENDPOINT_SRQ_FIRST] = side_pair(side, &attr);
        stage->eps[ENDPOINT_SRQ_SECOND] = side_pair(side, &attr);
        stage->ep_count = ENDPOINTS;
    }
}

/* Passes the tokens of this side's regions to the other, and imports the other's for each endpoint.
 * A first import of each is closed at once and not used. */
static void exchange_regions(struct stage *stage)
{
    static const enum memory_kind kinds[] = { MEMORY_REGISTERED, MEMORY_ALLOCATED,
                                              MEMORY_REGISTERED, MEMORY_ALLOCATED };
    struct side *side = stage->side;
    for (size_t i = 0; i < REMOTE_KINDS; i++) {
        const bool no_map = i >= REMOTE_REGISTERED_NO_MAP;
        const uint32_t access = side_has(side, NEEDS_ATOMICS)
                                    ? ACCESS_ALL
                                    : ACCESS_ALL & ~(uint32_t)RDMUX_ACCESS_REMOTE_ATOMIC;
        struct rdmux_token mine;
        struct rdmux_token token;
        stage->regions[i] = region_make(side, kinds[i], REGION_LENGTH,
                                        access | (no_map ? RDMUX_ACCESS_NO_MAP : 0U));
        stage->model[i] = bytes_of(REGION_LENGTH);
        stage->theirs[i] = bytes_of(REGION_LENGTH);
        EXPECT_OK(rdmux_mr_export(stage->regions[i].mr, &mine));
        GIVE(side, &mine, sizeof(mine));
        TAKE(side, &token, sizeof(token));
        for (size_t ep = 0; ep < stage->ep_count; ep++) {
            for (size_t import = 0; import <= IMPORTS; import++) {
                struct rdmux_remote *remote = NULL;
                EXPECT_OK(rdmux_remote_import(stage->eps[ep], &token, side->patient_ms, &remote));
                if (import == IMPORTS) {
                    rdmux_remote_close(remote);
                } else {
                    stage->remotes[ep][i][import] = remote;
                }
            }
        }
    }
}

static void stage_open(struct stage *stage, struct side *side, const char *cites)
{
    *stage = (struct stage){ .side = side, .rules = cites };
    open_endpoints(stage);
    exchange_regions(stage);
    for (size_t i = 0; i < ARENAS; i++) {
        const bool open = i == ARENA_OPEN;
        stage->arenas[i].region = region_make(
            side, open ? MEMORY_ALLOCATED : (enum memory_kind)i, ARENA_LENGTH,
            ACCESS_SINK | (open ? (uint32_t)RDMUX_ACCESS_REMOTE_WRITE : 0U));
        stage->arenas[i].shadow = bytes_of(ARENA_LENGTH);
    }
    stage->found = bytes_of(3 * (size_t)REGION_LENGTH);
    stage->limits[0].max_inline = side->info.max_inline;
    stage->limits[0].max_sge = side->info.max_send_sge;
    EXPECT(side->info.max_send_sge >= SGES - 1 && side->info.max_send_sge <= SGES &&
               side->info.max_recv_sge >= SGES - 1,
           "lists of %d pieces were asked for, %u and %u were granted", SGES,
           side->info.max_send_sge, side->info.max_recv_sge);
    EXPECT_EQUAL(side->info.max_send, MESSAGE_MOST);
    GIVE(side, &stage->limits[0], sizeof(stage->limits[0]));
    TAKE(side, &stage->limits[1], sizeof(stage->limits[1]));
}

static void stage_close(struct stage *stage)
{
    struct side *side = stage->side;
    BARRIER(side);
    while (side->ep_count > 0) {
        side_close_ep(side, side->eps[side->ep_count - 1]);
    }
    EXPECT_OK(rdmux_srq_destroy(stage->srq));
    side_end(side);
    for (size_t i = 0; i < REMOTE_KINDS; i++) {
        free(stage->model[i]);
        free(stage->theirs[i]);
    }
    for (size_t i = 0; i < ARENAS; i++) {
        free(stage->arenas[i].shadow);
    }
    free(stage->found);
}

/* Runs the rows that --sequence names, or all rows that the path supports. */
static void run_rows(struct stage *stage, const struct row *rows, size_t count)
{
    struct side *side = stage->side;
    const char *text = side->sequence;
    if (rows_are_named(text)) {
        struct row row;
        for (uint64_t round = 0; rows_next(&text, &row); round++) {
            stand_on_row(round);
            run_row(stage, &row, round);
        }
    }
    for (size_t i = 0; i < count && !rows_are_named(side->sequence); i++) {
        if (sequence_has(side->sequence, true, i) && side_has(side, row_needs(&rows[i])) &&
            !(side->quick && row_is_on_srq(&rows[i]))) {
            stand_on_row(i);
            run_row(stage, &rows[i], i);
        }
    }
}

static size_t rows_of(const struct side *side, enum subject_op subject, struct row **out)
{
    const size_t count = generated_rows(subject, side->thorough ? 3 : 2, out);
    EXPECT(count > 0, "out of memory");
    return count;
}

static void run_subject(struct side *side, enum subject_op subject)
{
    static struct stage stage;
    struct row *rows = NULL;
    const size_t count = rows_of(side, subject, &rows);
    stage_open(&stage, side, subject_rules(subject));
    run_rows(&stage, rows, count);
    stage_close(&stage);
    free(rows);
}

/* ----------------------------------------------------------------------------- closed processes */

enum { CLOSED_EVERY = 5 }; /* one of this many rows of the other cases */

/* Forbids the other process to access this one's memory, as programs with secrets do. A path that
 * copies between processes must then use another way. */
static void close_process(void)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];
    EXPECT(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0, "prctl: %s", strerror(errno));
    EXPECT(syscall(SYS_capget, &header, caps) == 0, "capget: %s", strerror(errno));
    caps[0].effective &= ~(UINT32_C(1) << CAP_SYS_PTRACE);
    caps[0].permitted &= ~(UINT32_C(1) << CAP_SYS_PTRACE);
    EXPECT(syscall(SYS_capset, &header, caps) == 0, "capset: %s", strerror(errno));
}

static void run_closed(struct side *side)
{
    static struct stage stage;
    struct row *rows = NULL;
    size_t count = 0;
    for (unsigned subject = 0; subject < SUBJECT_OPS; subject++) {
        struct row *some = NULL;
        const size_t some_count = rows_of(side, (enum subject_op)subject, &some);
        rows = realloc(rows, (count + some_count) * sizeof(*rows));
        EXPECT(rows != NULL, "out of memory");
        for (size_t i = subject % CLOSED_EVERY; i < some_count; i += CLOSED_EVERY) {
            if (!row_is_refused(&some[i])) {
                rows[count++] = some[i];
            }
        }
        free(some);
    }
    close_process();
    stage_open(&stage, side, RULES_CLOSED);
    run_rows(&stage, rows, count);
    stage_close(&stage);
    free(rows);
}

#define SUBJECT_CASE(name, subject)            \
    static void name##_rows(struct side *side) \
    {                                          \
        run_subject(side, subject);            \
    }
SUBJECT_CASE(send, SUBJECT_SEND)
SUBJECT_CASE(send_imm, SUBJECT_SEND_IMM)
SUBJECT_CASE(write, SUBJECT_WRITE)
SUBJECT_CASE(write_imm, SUBJECT_WRITE_IMM)
SUBJECT_CASE(read, SUBJECT_READ)
SUBJECT_CASE(fetch_add, SUBJECT_FETCH_ADD)
SUBJECT_CASE(compare_swap, SUBJECT_COMPARE_SWAP)
SUBJECT_CASE(flush, SUBJECT_FLUSH)
SUBJECT_CASE(flush_region, SUBJECT_FLUSH_REGION)

#define ROWS_CASE(rules, text, needs, name)                                                 \
    {                                                                                       \
        rules, text, (needs) | NEEDS_BASICS, TIMEOUT_S, CASE_ROWS, name##_rows, name##_rows \
    }

/* In the order of enum subject_op. */
static const struct conformance_case cases[] = {
    ROWS_CASE(RULES_SEND, "sends in every combination of two choices", 0, send),
    ROWS_CASE(RULES_SEND_IMM, "send_imms in every combination of two choices", NEEDS_IMM, send_imm),
    ROWS_CASE(RULES_WRITE, "writes in every combination of two choices", 0, write),
    ROWS_CASE(RULES_WRITE_IMM, "write_imms in every combination of two choices", NEEDS_IMM,
              write_imm),
    ROWS_CASE(RULES_READ, "reads in every combination of two choices", 0, read),
    ROWS_CASE(RULES_ATOMIC, "fetch_adds in every combination of two choices", NEEDS_ATOMICS,
              fetch_add),
    ROWS_CASE(RULES_ATOMIC, "compare_swaps in every combination of two choices", NEEDS_ATOMICS,
              compare_swap),
    ROWS_CASE(RULES_FLUSH, "flushes in every combination of two choices", NEEDS_PLACED, flush),
    ROWS_CASE(RULES_FLUSH, "flushes that name a region, in every combination of two choices",
              NEEDS_PLACED, flush_region),
    { RULES_CLOSED, "requests of every kind between processes that may not look into each other",
      NEEDS_BASICS, TIMEOUT_S, CASE_ROWS, run_closed, run_closed },
};

const struct suite generated_suite = { "generated", cases, COUNT_OF(cases) };
