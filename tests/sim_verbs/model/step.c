/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The actions of the random program: requests of every kind, receives, polls, and advancing
 * time. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

enum {
    BOUNCE_MAX = 8192, /* longest request that the library copies, see api/data/bounce.c */
    FINISH_NS = 300000000,
    FINISH_POLLS = 400000, /* an end that takes more has stalled */
    WORDS_AT = DATA_SIZE,
    WORDS_SIZE = WORDS * 8,
    SHARED_AT = PAIRS_MAX * WINDOW_SIZE,
    GOODBYES = 8, /* requests posted right before a shutdown */
};

/* A request before it is posted. */
struct draft {
    struct rdmux_wr wr;
    struct posted what;
    uint8_t *bytes; /* LENGTH_MAX */
};

static uint8_t draft_bytes[BATCH_MAX][LENGTH_MAX];

static char name_of(const struct end *end)
{
    return (char)('A' + (char)end->side->index);
}

/* --------------------------------------------------------------------------------------- memory */

/* Checks that the library has not touched the slot since the completion of its previous request. */
static void check_untouched(struct end *end, const struct pieces *pieces, const char *whose)
{
    for (uint32_t i = 0; i < pieces->count; i++) {
        if (!is_all(pieces->list[i].addr, MARK_FREE, pieces->list[i].length)) {
            mismatch(end->side->scene, "%c%u: the buffer of a %s has changed after its completion",
                     name_of(end), end->pair, whose);
        }
    }
}

static void mark(const struct pieces *pieces, int with)
{
    for (uint32_t i = 0; i < pieces->count; i++) {
        uint8_t *bytes = pieces->list[i].addr;
        memset(bytes - 1, with, pieces->list[i].length + 2);
    }
}

/* Spreads so many bytes over pieces of a slot, in a region or not. */
/* NOLINTNEXTLINE(readability-non-const-parameter): the pieces are written to */
static void spread(struct chance *chance, struct side *side, uint8_t *slot, uint8_t *loose,
                   uint32_t pieces_max, uint64_t length, bool registered, struct pieces *out)
{
    static const uint32_t gaps[] = { 1, 1, 2, 8, 9 };
    uint32_t count = percent(chance, 60) ? 1 : 1 + below(chance, pieces_max);
    size_t at = 0;
    out->count = count;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t here = i + 1 == count ? length
                                       : below(chance, (uint32_t)(length / (count - i)) + 1);
        at += PICK(chance, gaps);
        bool in_region = registered || percent(chance, 60);
        out->list[i] = (struct rdmux_sge){
            .addr = (in_region ? slot : loose) + at,
            .length = here,
            .mr = in_region ? side->arena : NULL,
        };
        at += here + 1;
        length -= here;
    }
}

static void fill(struct chance *chance, uint8_t *bytes, uint64_t length)
{
    for (uint64_t i = 0; i < length; i += 8) {
        uint64_t word = draw(chance);
        memcpy(bytes + i, &word, length - i < 8 ? length - i : 8);
    }
}

static void scatter(const struct pieces *pieces, const uint8_t *bytes)
{
    for (uint32_t i = 0; i < pieces->count; i++) {
        memcpy(pieces->list[i].addr, bytes, pieces->list[i].length);
        bytes += pieces->list[i].length;
    }
}

/* -------------------------------------------------------------------------------------- lengths */

/* Draws a length, often near an edge: empty, inline, packet size, longest copied, longest not
 * segmented. */
static uint64_t draw_length(struct chance *chance, const struct end *end, uint64_t most)
{
    const struct shape *shape = &end->side->scene->shape;
    const uint64_t edges[] = {
        0,
        1,
        8,
        64,
        end->info.max_inline,
        end->info.max_inline,
        end->info.max_inline > 16 ? end->info.max_inline - 16 : 0,
        shape->mtu,
        shape->packet,
        1024,
        4096,
        BOUNCE_MAX,
        shape->max_message,
        shape->max_message,
        2 * shape->max_message,
        shape->max_message - 16,
        shape->max_send,
        most,
    };
    uint64_t length = 0;
    uint32_t which = below(chance, 100);
    if (which < 60) {
        length = below(chance, 200);
    } else if (which < 95) {
        length = PICK(chance, edges) + below(chance, 3);
        length -= length > 0 ? 1 : 0;
    } else {
        length = below(chance, LENGTH_MAX);
    }
    return length <= most ? length : most == 0 ? 0 : length % (most + 1);
}

/* Longest message that the receive takes which comes `ahead` messages after the lane's next one. */
static uint64_t room_for_message(const struct end *end, uint64_t ahead)
{
    const struct end *peer = end->peer;
    uint64_t index = end->messages_end + ahead;
    uint64_t most = end->side->scene->shape.max_send;
    if (peer->side->srq == NULL && index < peer->receives.posted) {
        uint64_t room = peer->receives.list[index % RECEIVES_MAX].room;
        most = room < most ? room : most;
    }
    return most;
}

/* ---------------------------------------------------------------------------------------- posts */

static uint32_t draw_op(struct chance *chance, const struct end *end, uint64_t ahead)
{
    static const uint32_t ops[] = {
        RDMUX_OP_SEND,  RDMUX_OP_SEND,      RDMUX_OP_SEND_IMM,     RDMUX_OP_WRITE, RDMUX_OP_WRITE,
        RDMUX_OP_WRITE, RDMUX_OP_WRITE,     RDMUX_OP_WRITE_IMM,    RDMUX_OP_READ,  RDMUX_OP_READ,
        RDMUX_OP_READ,  RDMUX_OP_FETCH_ADD, RDMUX_OP_COMPARE_SWAP,
    };
    uint32_t op = PICK(chance, ops);
    bool is_message = op == RDMUX_OP_SEND || op == RDMUX_OP_SEND_IMM || op == RDMUX_OP_WRITE_IMM;
    if (is_message && end->messages_end + ahead - end->messages_begin >= MESSAGES_MAX) {
        op = RDMUX_OP_WRITE;
    }
    if (op != RDMUX_OP_READ && end->writes_end - end->writes_begin + BATCH_MAX >= WRITES_MAX) {
        op = RDMUX_OP_READ;
    }
    return op;
}

/* One slot stays free: the next request uses this one's slot if it forwards the bytes of a read. */
static uint64_t slots_left(const struct end *end)
{
    return SLOTS - 1 - (end->next - end->covered);
}

/* Tells whether the next request must be signaled and PLACED, as half of the slots, or
 * UNSETTLED_MAX writes, are not known to be done. */
static bool must_tell(const struct end *end)
{
    return end->next - end->covered >= SLOTS / 2 ||
           end->writes_end - end->writes_settled >= UNSETTLED_MAX;
}

static uint32_t draw_flags(struct chance *chance, const struct end *end, uint32_t op,
                           uint64_t length)
{
    uint32_t flags = 0;
    const bool reads = op >= RDMUX_OP_READ;
    if (must_tell(end)) {
        flags |= RDMUX_PLACED;
    } else {
        flags |= percent(chance, 40) ? (uint32_t)RDMUX_UNSIGNALED : 0;
        flags |= percent(chance, 12) ? (uint32_t)RDMUX_PLACED : 0;
    }
    flags |= percent(chance, 15) ? (uint32_t)RDMUX_FENCE : 0;
    if (!reads && length <= end->info.max_inline && percent(chance, 25)) {
        flags |= RDMUX_INLINE;
    }
    return flags;
}

static void draft_atomic(struct chance *chance, struct end *end, uint64_t sequence,
                         struct draft *draft)
{
    struct rdmux_wr *wr = &draft->wr;
    struct posted *what = &draft->what;
    const bool in_region = percent(chance, 50);
    uint8_t *slot = (in_region ? end->slots : end->loose) + (size_t)(sequence % SLOTS) * SLOT_SIZE;
    uint64_t aligned = ((uintptr_t)slot + 15) / 8 * 8;
    what->pieces = (struct pieces){
        .count = 1,
        .list = { { .addr = slot + (aligned - (uintptr_t)slot),
                    .length = 8,
                    .mr = in_region ? end->side->arena : NULL } },
    };
    what->length = 8;
    wr->operand = 1 + below(chance, 1000);
    if (wr->op == RDMUX_OP_FETCH_ADD && percent(chance, 40)) {
        uint32_t word = below(chance, SHARED_WORDS);
        what->word = 1 + word;
        wr->offset = SHARED_AT + (uint64_t)word * 8;
        return;
    }
    wr->offset = WORDS_AT + (uint64_t)below(chance, WORDS) * 8;
    memcpy(&wr->expected, end->latest + wr->offset, 8);
    wr->expected += percent(chance, 30) ? 1 : 0;
}

/* Draws an offset, more often where the last reads and writes were: there the order is visible. */
static uint64_t draw_offset(struct chance *chance, const struct end *end, uint64_t length)
{
    uint64_t most = DATA_SIZE - length;
    if (end->next > end->covered && percent(chance, 60)) {
        uint64_t back = 1 + below(chance, 4);
        back = back <= end->next - end->covered ? back : 1;
        const struct posted *near = &end->requests[(end->next - back) % SLOTS];
        if ((near->op == RDMUX_OP_READ || near->op == RDMUX_OP_WRITE ||
             near->op == RDMUX_OP_WRITE_IMM) &&
            near->offset <= most) {
            return near->offset;
        }
    }
    return below(chance, (uint32_t)most + 1);
}

static void draft_data(struct chance *chance, struct end *end, uint64_t sequence, uint64_t ahead,
                       struct draft *draft)
{
    struct rdmux_wr *wr = &draft->wr;
    struct posted *what = &draft->what;
    uint64_t most = wr->op == RDMUX_OP_SEND || wr->op == RDMUX_OP_SEND_IMM
                        ? room_for_message(end, ahead)
                        : LENGTH_MAX;
    what->length = draw_length(chance, end, most);
    if (wr->op == RDMUX_OP_WRITE || wr->op == RDMUX_OP_WRITE_IMM || wr->op == RDMUX_OP_READ) {
        wr->offset = draw_offset(chance, end, what->length);
        if (wr->op == RDMUX_OP_READ && percent(chance, 20)) {
            what->length = what->length > WORDS_SIZE ? (uint64_t)WORDS_SIZE : what->length;
            wr->offset = WORDS_AT;
        } else if (wr->op != RDMUX_OP_READ && percent(chance, 10)) {
            const uint32_t word = below(chance, WORDS);
            what->length = 8 * (uint64_t)(1 + below(chance, WORDS - word));
            wr->offset = WORDS_AT + (uint64_t)word * 8;
        }
    }
    const size_t at = (size_t)(sequence % SLOTS) * SLOT_SIZE;
    spread(chance, end->side, end->slots + at, end->loose + at, end->info.max_send_sge,
           what->length, false, &what->pieces);
    if (wr->op == RDMUX_OP_READ) {
        mark(&what->pieces, MARK_SINK);
    } else {
        fill(chance, draft->bytes, what->length);
        scatter(&what->pieces, draft->bytes);
    }
}

/* Returns the offset in the peer's region, which has the windows of all lanes. */
static uint64_t remote_offset(const struct end *end, const struct draft *draft)
{
    return draft->what.word != 0 ? draft->what.offset
                                 : (uint64_t)end->pair * WINDOW_SIZE + draft->what.offset;
}

/* ahead: messages of the same batch before this one. */
static void draft_make(struct chance *chance, struct end *end, uint64_t sequence, uint64_t ahead,
                       struct draft *draft)
{
    struct rdmux_wr *wr = &draft->wr;
    memset(wr, 0, sizeof(*wr));
    memset(&draft->what, 0, sizeof(draft->what));
    check_untouched(end, &end->requests[sequence % SLOTS].pieces, "request");
    end->requests[sequence % SLOTS].pieces.count = 0;
    wr->op = draw_op(chance, end, ahead);
    wr->imm = (uint32_t)draw(chance);
    wr->context = (void *)(uintptr_t)sequence;
    if (wr->op > RDMUX_OP_READ) {
        draft_atomic(chance, end, sequence, draft);
        mark(&draft->what.pieces, MARK_SINK);
    } else {
        draft_data(chance, end, sequence, ahead, draft);
    }
    wr->remote = wr->op == RDMUX_OP_SEND || wr->op == RDMUX_OP_SEND_IMM ? NULL : end->remote;
    wr->flags = draw_flags(chance, end, wr->op, draft->what.length);
    if (wr->op < RDMUX_OP_READ && wr->offset >= WORDS_AT) {
        wr->flags |= RDMUX_FENCE; /* else earlier atomics might take effect after it (4.3) */
    }
    if (wr->op == RDMUX_OP_WRITE && draft->what.length == 0 && percent(chance, 50)) {
        wr->remote = NULL; /* with PLACED: the flush */
        wr->flags &= ~(uint32_t)RDMUX_INLINE;
    }
    wr->sges = draft->what.pieces.list;
    wr->sge_count = draft->what.pieces.count;
    draft->what.op = wr->op;
    draft->what.flags = wr->flags;
    draft->what.offset = wr->offset;
    wr->offset = remote_offset(end, draft);
}

static enum rdmux_status call(struct end *end, const struct draft *draft, uint32_t more)
{
    const struct rdmux_wr *wr = &draft->wr;
    const struct rdmux_sge *piece = &wr->sges[0];
    const uint32_t flags = wr->flags | more;
    switch (wr->op) {
    case RDMUX_OP_SEND:
        return rdmux_send(end->ep, piece->addr, piece->length, piece->mr, wr->context, flags);
    case RDMUX_OP_SEND_IMM:
        return rdmux_send_imm(end->ep, piece->addr, piece->length, piece->mr, wr->imm, wr->context,
                              flags);
    case RDMUX_OP_WRITE:
        return rdmux_write(end->ep, piece->addr, piece->length, piece->mr, wr->remote, wr->offset,
                           wr->context, flags);
    case RDMUX_OP_WRITE_IMM:
        return rdmux_write_imm(end->ep, piece->addr, piece->length, piece->mr, wr->remote,
                               wr->offset, wr->imm, wr->context, flags);
    case RDMUX_OP_READ:
        return rdmux_read(end->ep, piece->addr, piece->length, piece->mr, wr->remote, wr->offset,
                          wr->context, flags);
    case RDMUX_OP_FETCH_ADD:
        return rdmux_fetch_add(end->ep, piece->addr, piece->mr, wr->remote, wr->offset, wr->operand,
                               wr->context, flags);
    default:
        return rdmux_compare_swap(end->ep, piece->addr, piece->mr, wr->remote, wr->offset,
                                  wr->expected, wr->operand, wr->context, flags);
    }
}

static const char *op_name(uint32_t op)
{
    static const char *const names[] = {
        "?", "send", "send_imm", "recv", "write", "write_imm", "read", "fetch_add", "compare_swap",
    };
    return op < sizeof(names) / sizeof(*names) ? names[op] : "?";
}

static void trace_request(struct end *end, uint64_t sequence, const struct draft *draft,
                          const char *outcome)
{
    const struct rdmux_wr *wr = &draft->wr;
    trace(end->side->scene, "%c%u -> %llu %s of %llu at %llu, %u pieces%s%s%s%s%s: %s",
          name_of(end), end->pair, (unsigned long long)sequence, op_name(wr->op),
          (unsigned long long)draft->what.length, (unsigned long long)draft->what.offset,
          wr->sge_count, (wr->flags & RDMUX_UNSIGNALED) != 0 ? " UNSIGNALED" : "",
          (wr->flags & RDMUX_FENCE) != 0 ? " FENCE" : "",
          (wr->flags & RDMUX_PLACED) != 0 ? " PLACED" : "",
          (wr->flags & RDMUX_INLINE) != 0 ? " INLINE" : "",
          (wr->flags & RDMUX_MORE) != 0 ? " MORE" : "", outcome);
}

/* Checks which requests were queued, and the result for a full queue: 1.11, 1.12. */
static void take_outcome(struct end *end, struct draft *drafts, size_t count, size_t posted,
                         enum rdmux_status status)
{
    struct scene *scene = end->side->scene;
    for (size_t i = 0; i < count; i++) {
        trace_request(end, end->next, &drafts[i], i < posted ? "queued" : rdmux_status_name(status));
        bool is_free = i >= posted && !drafts[i].what.is_forward;
        if ((drafts[i].wr.flags & RDMUX_INLINE) != 0 || is_free) {
            mark(&drafts[i].what.pieces, MARK_FREE); /* 1.14 */
        }
        if (i < posted) {
            if (drafts[i].wr.op == RDMUX_OP_SEND || drafts[i].wr.op == RDMUX_OP_SEND_IMM ||
                drafts[i].wr.op <= RDMUX_OP_WRITE_IMM) {
                note(scene, drafts[i].what.length);
            }
            lane_posted(end, &drafts[i].what, &drafts[i].wr, drafts[i].bytes);
        }
    }
    if ((status == RDMUX_OK) != (posted == count)) {
        mismatch(scene, "%c%u: %zu of %zu requests were queued, and the post says %s", name_of(end),
                 end->pair, posted, count, rdmux_status_name(status));
    }
    if (status == RDMUX_AGAIN) {
        uint64_t open = end->next - end->answered;
        end->wants_writable = true;
        end->again++;
        scene->counts.again++;
        if (open < end->info.send_depth) {
            mismatch(scene, "%c%u: AGAIN with %llu of %u requests", name_of(end), end->pair,
                     (unsigned long long)open, end->info.send_depth);
        }
    } else if (status != RDMUX_OK && !(scene->is_broken)) {
        mismatch(scene, "%c%u: a post was refused: %s: %s", name_of(end), end->pair,
                 rdmux_status_name(status), rdmux_last_error());
    }
    if (end->unanswered > end->info.send_depth) {
        mismatch(scene, "%c%u: %u signaled requests are under way, more than the depth of %u",
                 name_of(end), end->pair, end->unanswered, end->info.send_depth);
    }
}

static bool is_message(uint32_t op)
{
    return op == RDMUX_OP_SEND || op == RDMUX_OP_SEND_IMM || op == RDMUX_OP_WRITE_IMM;
}

void post_some(struct end *end, struct chance *chance, uint32_t count)
{
    struct draft drafts[BATCH_MAX];
    uint64_t ahead = 0;
    uint64_t room = slots_left(end);
    count = count < room ? count : (uint32_t)room;
    if (end->ended || count == 0) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        drafts[i].bytes = draft_bytes[i];
        draft_make(chance, end, end->next + i, ahead, &drafts[i]);
        ahead += is_message(drafts[i].wr.op);
    }
    use(end->side);
    size_t posted = 0;
    enum rdmux_status status = RDMUX_OK;
    uint32_t more = percent(chance, 15) ? RDMUX_MORE : 0;
    if (count == 1 && drafts[0].wr.sge_count == 1 && percent(chance, 70)) {
        status = call(end, &drafts[0], more);
        posted = status == RDMUX_OK ? 1 : 0;
    } else {
        struct rdmux_wr wrs[BATCH_MAX];
        for (uint32_t i = 0; i < count; i++) {
            wrs[i] = drafts[i].wr;
            wrs[i].sges = drafts[i].what.pieces.list;
        }
        wrs[count - 1].flags |= more;
        status = rdmux_post(end->ep, wrs, count, &posted);
    }
    take_outcome(end, drafts, count, posted, status);
}

/* Forwards the bytes of a read at once, by a fenced request after it (4.1). */
static void post_forward(struct end *end, struct chance *chance)
{
    struct draft drafts[2];
    uint64_t room = slots_left(end);
    if (end->ended || room < 2 || end->messages_end - end->messages_begin >= MESSAGES_MAX ||
        end->writes_end - end->writes_begin + BATCH_MAX >= WRITES_MAX) {
        return;
    }
    memset(drafts, 0, sizeof(drafts));
    drafts[0].bytes = draft_bytes[0];
    drafts[1].bytes = draft_bytes[1];
    for (uint32_t i = 0; i < 2; i++) {
        struct posted *before = &end->requests[(end->next + i) % SLOTS];
        check_untouched(end, &before->pieces, "request");
        before->pieces.count = 0;
        drafts[i].wr.context = (void *)(uintptr_t)(end->next + i);
    }
    uint64_t most = room_for_message(end, 0);
    struct posted *read = &drafts[0].what;
    struct posted *next = &drafts[1].what;
    uint32_t op = percent(chance, 50) ? RDMUX_OP_SEND : RDMUX_OP_WRITE;
    read->op = RDMUX_OP_READ;
    read->flags = percent(chance, 50) ? (uint32_t)RDMUX_UNSIGNALED : 0;
    read->length = draw_length(chance, end, op == RDMUX_OP_SEND ? most : LENGTH_MAX);
    read->offset = draw_offset(chance, end, read->length);
    const size_t at = (size_t)(end->next % SLOTS) * SLOT_SIZE;
    spread(chance, end->side, end->slots + at, end->loose + at, 1, read->length, true,
           &read->pieces);
    mark(&read->pieces, MARK_SINK);
    next->op = op;
    next->flags = RDMUX_FENCE | (percent(chance, 30) ? (uint32_t)RDMUX_PLACED : 0);
    next->length = read->length;
    next->offset = draw_offset(chance, end, next->length);
    for (uint32_t i = 0; i < 2; i++) {
        struct rdmux_wr *wr = &drafts[i].wr;
        wr->op = drafts[i].what.op;
        wr->flags = drafts[i].what.flags;
        wr->sges = read->pieces.list;
        wr->sge_count = 1;
        wr->offset = remote_offset(end, &drafts[i]);
        wr->remote = wr->op == RDMUX_OP_SEND ? NULL : end->remote;
    }
    memcpy(drafts[1].bytes, end->latest + read->offset, read->length);
    next->is_forward = true;
    next->pieces = read->pieces;
    struct rdmux_wr wrs[2] = { drafts[0].wr, drafts[1].wr };
    use(end->side);
    size_t posted = 0;
    enum rdmux_status status = rdmux_post(end->ep, wrs, 2, &posted);
    read->is_forwarded = posted == 2;
    take_outcome(end, drafts, 2, posted, status);
    end->side->scene->counts.forwarded += posted == 2;
}

static void aim(struct end *end, struct draft *draft, uint32_t op, uint64_t offset, uint64_t length,
                uint32_t flags)
{
    const uint64_t sequence = (uint64_t)(uintptr_t)draft->wr.context;
    draft->what.op = draft->wr.op = op;
    draft->what.flags = draft->wr.flags = flags;
    draft->what.offset = offset;
    draft->what.length = length;
    draft->what.pieces = (struct pieces){
        .count = 1,
        .list = { { .addr = end->slots + (size_t)(sequence % SLOTS) * SLOT_SIZE + 64 -
                            (uintptr_t)(end->slots + (size_t)(sequence % SLOTS) * SLOT_SIZE) % 64,
                    .length = length,
                    .mr = end->side->arena } },
    };
    draft->wr.sges = draft->what.pieces.list;
    draft->wr.sge_count = 1;
    draft->wr.remote = end->remote;
    draft->wr.offset = remote_offset(end, draft);
    mark(&draft->what.pieces, MARK_SINK);
}

/* Posts a read of words, a fence, and an atomic on one of the words. The read must not see the
 * atomic, though neither of the two has a fence itself. */
static void post_behind_fence(struct end *end, struct chance *chance)
{
    struct draft drafts[3];
    if (end->ended || slots_left(end) < 3 ||
        end->writes_end - end->writes_begin + BATCH_MAX >= WRITES_MAX) {
        return;
    }
    memset(drafts, 0, sizeof(drafts));
    for (uint32_t i = 0; i < 3; i++) {
        struct posted *before = &end->requests[(end->next + i) % SLOTS];
        check_untouched(end, &before->pieces, "request");
        before->pieces.count = 0;
        drafts[i].bytes = draft_bytes[i];
        drafts[i].wr.context = (void *)(uintptr_t)(end->next + i);
    }
    const uint64_t offset = draw_offset(chance, end, 8);
    aim(end, &drafts[0], RDMUX_OP_READ, WORDS_AT, WORDS_SIZE, 0);
    aim(end, &drafts[1], RDMUX_OP_READ, offset, 8, RDMUX_FENCE | RDMUX_UNSIGNALED);
    aim(end, &drafts[2], RDMUX_OP_FETCH_ADD, WORDS_AT + (uint64_t)below(chance, WORDS) * 8, 8, 0);
    drafts[2].wr.operand = 1 + below(chance, 1000);
    struct rdmux_wr wrs[3] = { drafts[0].wr, drafts[1].wr, drafts[2].wr };
    use(end->side);
    size_t posted = 0;
    enum rdmux_status status = rdmux_post(end->ep, wrs, 3, &posted);
    take_outcome(end, drafts, 3, posted, status);
}

/* -------------------------------------------------------------------------------------- refused */

/* Posts requests that must not be queued: section 6, 1.13, 1.14, 12.2. */
static void post_wrong(struct end *end, struct chance *chance)
{
    struct scene *scene = end->side->scene;
    if (end->ended || scene->is_broken || end->next - end->answered >= end->info.send_depth) {
        return; /* AGAIN would be right as well */
    }
    uint8_t *slot = end->slots; /* the library does not look at it */
    struct rdmux_mr *arena = end->side->arena;
    enum rdmux_status status = RDMUX_OK;
    enum rdmux_status wanted = RDMUX_OUT_OF_RANGE;
    use(end->side);
    switch (below(chance, 6)) {
    case 0:
        status = rdmux_write(end->ep, slot, 9, arena, end->remote, REGION_SIZE - 8, NULL, 0);
        break;
    case 1:
        status = rdmux_read(end->ep, slot, 1, arena, end->remote, REGION_SIZE, NULL, 0);
        break;
    case 2:
        status = rdmux_write(end->ep, slot, 1, arena, end->remote, UINT64_MAX, NULL, 0);
        break;
    case 3:
        wanted = RDMUX_LENGTH;
        status = rdmux_send(end->ep, slot, scene->shape.max_send + 1, arena, NULL, 0);
        break;
    case 4:
        wanted = RDMUX_LENGTH;
        status = rdmux_write(end->ep, slot, end->info.max_inline + 1, arena, end->remote, 0, NULL,
                             RDMUX_INLINE);
        break;
    default:
        wanted = RDMUX_INVALID;
        status = rdmux_fetch_add(end->ep, (uint64_t *)(void *)(slot + 64 - (uintptr_t)slot % 64),
                                 arena, end->remote, WORDS_AT + 4, 1, NULL, 0);
        break;
    }
    if (status != wanted) {
        mismatch(scene, "%c%u: a request that has to be refused with %s: %s", name_of(end),
                 end->pair, rdmux_status_name(wanted), rdmux_status_name(status));
    }
    scene->counts.refused++;
}

/* ------------------------------------------------------------------------------------- receives */

static bool post_receive(struct end *end, struct receives *receives, struct chance *chance)
{
    struct scene *scene = end->side->scene;
    struct rdmux_srq *srq = end->side->srq;
    struct receive *receive = &receives->list[receives->posted % RECEIVES_MAX];
    const size_t at = (size_t)(receives->posted % RECEIVES_MAX) * SLOT_SIZE;
    const uint64_t most = scene->shape.max_send;
    if (receive->is_posted) {
        return false;
    }
    check_untouched(end, &receive->pieces, "receive");
    uint64_t room = most;
    if (srq == NULL) {
        const struct end *sender = end->peer;
        uint64_t least = 0;
        if (receives->posted < sender->messages_end) {
            least = sender->messages[receives->posted % MESSAGES_MAX].room;
        }
        room = percent(chance, 40) ? most : least + draw_length(chance, end, most - least);
    }
    bool registered = srq != NULL ? room > 1024 : percent(chance, 70);
    spread(chance, end->side, receives->memory + at, receives->loose + at, scene->shape.max_sge,
           room, registered, &receive->pieces);
    mark(&receive->pieces, MARK_SINK);
    receive->room = room;
    receive->is_registered = true;
    for (uint32_t i = 0; i < receive->pieces.count; i++) {
        receive->is_registered = receive->is_registered && receive->pieces.list[i].mr != NULL;
    }
    const struct rdmux_wr wr = {
        .op = RDMUX_OP_RECV,
        .context = (void *)(uintptr_t)receives->posted,
        .sges = receive->pieces.list,
        .sge_count = receive->pieces.count,
    };
    size_t posted = 0;
    use(end->side);
    enum rdmux_status status = srq != NULL ? rdmux_srq_post_recv(srq, &wr, 1, &posted)
                                           : rdmux_post_recv(end->ep, &wr, 1, &posted);
    trace(scene, "%c%u -> receive %llu of %llu bytes: %s", name_of(end), end->pair,
          (unsigned long long)receives->posted, (unsigned long long)room,
          rdmux_status_name(status));
    bool is_full = receives->posted - receives->taken >= receives->depth;
    if (status != (is_full ? RDMUX_AGAIN : RDMUX_OK) && !scene->is_broken) {
        mismatch(scene, "%c%u: a receive, %llu of %u are posted: %s: %s", name_of(end), end->pair,
                 (unsigned long long)(receives->posted - receives->taken), receives->depth,
                 rdmux_status_name(status), rdmux_last_error());
    }
    if (status != RDMUX_OK) {
        mark(&receive->pieces, MARK_FREE);
        return false;
    }
    receive->is_posted = true;
    receives->posted++;
    return true;
}

void post_receives(struct end *end, struct chance *chance, uint32_t count)
{
    struct receives *receives = end->side->srq != NULL ? &end->side->shared : &end->receives;
    receives->depth = receives->depth != 0 ? receives->depth : end->info.recv_depth;
    for (uint32_t i = 0; i < count && !end->ended; i++) {
        if (!post_receive(end, receives, chance)) {
            break;
        }
    }
}

/* ---------------------------------------------------------------------------------------- steps */

/* The owner's own processor adds to a word that both sides add to (2.11). */
static void add_by_cpu(struct side *side, struct chance *chance)
{
    uint32_t word = below(chance, SHARED_WORDS);
    uint64_t by = 1 + below(chance, 1000);
    uint64_t *at = (uint64_t *)(void *)(side->bytes + SHARED_AT + (size_t)word * 8);
    side->added[word] += by;
    (void)__atomic_fetch_add(at, by, __ATOMIC_SEQ_CST);
}

static void arm(struct side *side)
{
    use(side);
    enum rdmux_status status = rdmux_cq_arm(side->cq);
    if (status != RDMUX_OK && status != RDMUX_AGAIN) {
        mismatch(side->scene, "rdmux_cq_arm(): %s", rdmux_status_name(status));
    }
}

void step_take(struct scene *scene, struct chance *chance)
{
    struct side *side = &scene->sides[below(chance, SIDES)];
    struct end *end = &side->ends[below(chance, scene->shape.pairs)];
    uint32_t which = below(chance, 100);
    if (which < 36) {
        post_some(end, chance, 1);
    } else if (which < 44) {
        post_some(end, chance, 1 + below(chance, BATCH_MAX));
    } else if (which < 46) {
        post_forward(end, chance);
    } else if (which < 47) {
        post_behind_fence(end, chance);
    } else if (which < 60) {
        post_receives(end, chance, 1 + below(chance, 4));
    } else if (which < 88) {
        (void)poll_side(side, 1 + below(chance, 32));
    } else if (which < 92) {
        (void)sim_advance(scene->world, below(chance, 30000));
    } else if (which < 94) {
        (void)go_on(scene);
    } else if (which < 96) {
        add_by_cpu(side, chance);
    } else if (which < 98) {
        arm(side);
    } else {
        post_wrong(end, chance);
    }
}

/* ------------------------------------------------------------------------------------------ end */

/* Posts a flush, which completes when every request before it is done and placed. */
static bool flush(struct end *end)
{
    struct draft draft;
    memset(&draft, 0, sizeof(draft));
    draft.bytes = draft_bytes[0];
    draft.wr.op = draft.what.op = RDMUX_OP_WRITE;
    draft.wr.flags = draft.what.flags = RDMUX_PLACED;
    draft.wr.context = (void *)(uintptr_t)end->next;
    if (slots_left(end) == 0) {
        return false;
    }
    use(end->side);
    size_t posted = 0;
    enum rdmux_status status = rdmux_post(end->ep, &draft.wr, 1, &posted);
    take_outcome(end, &draft, 1, posted, status);
    return status == RDMUX_OK;
}

static bool end_is_done(const struct end *end)
{
    bool all = end->covered == end->next && end->messages_begin == end->messages_end &&
               !end->wants_writable;
    return end->ended || all;
}

static void serve(struct end *end, struct chance *chance)
{
    const struct receives *receives = end->side->srq != NULL ? &end->side->shared : &end->receives;
    if (end->peer->messages_begin == end->peer->messages_end) {
        return;
    }
    if (end->side->srq != NULL ? receives->posted - receives->taken < receives->depth
                               : receives->posted < end->peer->messages_end) {
        post_receives(end, chance, 4);
    }
}

/* A message without a receive costs an extra round trip, not a back-off that a user would notice
 * (2.2). Only the device's timer notices losses. */
static void check_time(struct scene *scene, uint64_t since)
{
    uint64_t took = sim_now(scene->world) - since;
    if (took > FINISH_NS && !scene->is_broken && strstr(scene->shape.world, "drop=") == NULL) {
        mismatch(scene, "what was under way took %llu us more", (unsigned long long)took / 1000);
    }
}

void step_finish_pairs(struct scene *scene, struct chance *chance)
{
    const uint64_t since = sim_now(scene->world);
    bool flushed[SIDES][PAIRS_MAX] = { { false } };
    uint32_t idle = 0;
    for (uint32_t polls = 0; polls < FINISH_POLLS && idle < 1000; polls++) {
        bool all = true;
        for (uint32_t i = 0; i < SIDES; i++) {
            for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
                struct end *end = &scene->sides[i].ends[pair];
                serve(end, chance);
                if (end->ended) {
                    flushed[i][pair] = true;
                }
                if (!flushed[i][pair]) {
                    flushed[i][pair] = !end->wants_writable && flush(end);
                }
                all = all && flushed[i][pair] && end_is_done(end);
            }
        }
        if (all) {
            check_time(scene, since);
            return;
        }
        if (scene->is_broken) {
            progress(scene); /* each side learns of both ends: 10.4 */
        }
        idle = go_on(scene) ? 0 : idle + 1;
    }
    for (uint32_t i = 0; i < SIDES; i++) {
        for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
            const struct end *end = &scene->sides[i].ends[pair];
            if (!end_is_done(end)) {
                mismatch(scene,
                         "%c%u has come to a standstill: %llu of %llu requests are done, %llu of "
                         "%llu messages have arrived%s",
                         name_of(end), pair, (unsigned long long)end->covered,
                         (unsigned long long)end->next, (unsigned long long)end->messages_begin,
                         (unsigned long long)end->messages_end,
                         end->wants_writable ? "; WRITABLE has not come" : "");
            }
        }
    }
    mismatch(scene, "a flush was not queued for a long time");
}

static void check_shared_words(struct scene *scene)
{
    for (uint32_t i = 0; i < SIDES; i++) {
        const struct side *side = &scene->sides[i];
        for (uint32_t word = 0; word < SHARED_WORDS; word++) {
            uint64_t now = 0;
            memcpy(&now, side->bytes + SHARED_AT + (size_t)word * 8, sizeof(now));
            if (now != side->added[word]) {
                mismatch(scene, "word %u of %c is %llu; %llu was added to it", word, 'A' + (char)i,
                         (unsigned long long)now, (unsigned long long)side->added[word]);
            }
        }
    }
}

/* 9.1, 9.2: every request posted before is done, and the peer has received all messages. */
static void check_goodbye(const struct end *end)
{
    if (end->unanswered != 0 || end->has_failed || end->messages_begin != end->messages_end) {
        mismatch(
            end->side->scene,
            "%c%u was shut down; %u requests have no entry%s, and the peer has received %llu of "
            "%llu messages",
            name_of(end), end->pair, end->unanswered, end->has_failed ? ", some have failed" : "",
            (unsigned long long)end->messages_begin, (unsigned long long)end->messages_end);
    }
}

static void say_goodbye(struct scene *scene, struct chance *chance)
{
    struct end *leaving[PAIRS_MAX];
    scene->is_ending = true;
    for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
        struct side *side = &scene->sides[below(chance, SIDES)];
        leaving[pair] = &side->ends[pair];
        post_receives(leaving[pair]->peer, chance, GOODBYES);
        for (uint32_t i = 0; i < GOODBYES; i++) {
            post_some(leaving[pair], chance, 1);
        }
        use(side);
        enum rdmux_status status = rdmux_ep_shutdown(side->ends[pair].ep, 0);
        if (status != RDMUX_IN_PROGRESS) {
            mismatch(scene, "rdmux_ep_shutdown(): %s: %s", rdmux_status_name(status),
                     rdmux_last_error());
        }
    }
    for (uint32_t polls = 0; polls < FINISH_POLLS; polls++) {
        bool all = true;
        for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
            all = all && leaving[pair]->ended && leaving[pair]->peer->ended;
            serve(leaving[pair]->peer, chance);
        }
        if (all) {
            for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
                check_goodbye(leaving[pair]);
            }
            return;
        }
        progress(scene);
        (void)go_on(scene);
    }
    mismatch(scene, "an endpoint that was shut down has not ended");
}

void step_finish(struct scene *scene, struct chance *chance)
{
    step_finish_pairs(scene, chance);
    for (uint32_t i = 0; i < SIDES; i++) {
        for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
            lane_check_all(&scene->sides[i].ends[pair]);
        }
    }
    check_shared_words(scene);
    say_goodbye(scene, chance);
}
