/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The contract for one lane: the bytes that the window may and must contain, the results of reads,
 * and the message that each receive gets. Numbers in comments are rules of docs/SEMANTICS.md. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lane_init(struct end *end)
{
    end->image = calloc(1, WINDOW_SIZE);
    end->latest = calloc(1, WINDOW_SIZE);
    end->expected = malloc((size_t)SLOTS * LENGTH_MAX);
    if (end->image == NULL || end->latest == NULL || end->expected == NULL) {
        mismatch(end->side->scene, "out of memory");
    }
    for (int i = 0; i < SLOTS; i++) {
        end->requests[i].expected = end->expected + (size_t)i * LENGTH_MAX;
    }
}

void lane_free(struct end *end)
{
    for (uint64_t i = end->writes_begin; i != end->writes_end; i++) {
        free(end->writes[i % WRITES_MAX].bytes);
    }
    for (uint64_t i = end->messages_begin; i != end->messages_end; i++) {
        free(end->messages[i % MESSAGES_MAX].bytes);
    }
    free(end->image);
    free(end->latest);
    free(end->expected);
}

uint8_t *lane_window(const struct end *end)
{
    return end->peer->side->bytes + (size_t)end->pair * WINDOW_SIZE;
}

static bool reads(uint32_t op)
{
    return op >= RDMUX_OP_READ;
}

static bool is_atomic(uint32_t op)
{
    return op > RDMUX_OP_READ;
}

static char name_of(const struct end *end)
{
    return (char)('A' + (char)end->side->index);
}

/* --------------------------------------------------------------------------------------- window */

static bool covers(const struct write *write, uint32_t at)
{
    return at - write->offset < write->length;
}

/* Tells whether the window may have this byte at this place (2.9). */
static bool may_be(const struct end *end, uint32_t at, uint8_t byte)
{
    if (end->image[at] == byte) {
        return true;
    }
    for (uint64_t i = end->writes_settled; i != end->writes_end; i++) {
        const struct write *write = &end->writes[i % WRITES_MAX];
        if (covers(write, at) && write->bytes[at - write->offset] == byte) {
            return true;
        }
    }
    return false;
}

static void check_window(const struct end *end, uint32_t offset, uint32_t length, const char *when)
{
    const uint8_t *window = lane_window(end);
    if (memcmp(window + offset, end->image + offset, length) == 0) {
        return;
    }
    for (uint32_t at = offset; at < offset + length; at++) {
        if (!may_be(end, at, window[at])) {
            mismatch(
                end->side->scene,
                "%c%u's window: byte %u is 0x%02x %s; it has to be 0x%02x, or of a write behind",
                name_of(end), end->pair, at, window[at], when, end->image[at]);
        }
    }
}

/* Forgets writes that are in the image and that no read in flight could see. */
static void forget_writes(struct end *end)
{
    while (end->writes_begin != end->writes_settled) {
        struct write *write = &end->writes[end->writes_begin % WRITES_MAX];
        if (write->sequence >= end->covered) {
            return;
        }
        free(write->bytes);
        write->bytes = NULL;
        end->writes_begin++;
    }
}

/* Checks that all writes posted before `until` are in the window now. */
static void settle(struct end *end, uint64_t until, const char *when)
{
    const uint64_t from = end->writes_settled;
    while (end->writes_settled != end->writes_end) {
        const struct write *write = &end->writes[end->writes_settled % WRITES_MAX];
        if (write->sequence >= until) {
            break;
        }
        memcpy(end->image + write->offset, write->bytes, write->length);
        end->writes_settled++;
    }
    for (uint64_t i = from; i != end->writes_settled; i++) {
        const struct write *write = &end->writes[i % WRITES_MAX];
        if (write->offset < DATA_SIZE) { /* atomics check the words */
            check_window(end, write->offset, write->length, when);
        }
    }
    forget_writes(end);
}

static void remember(struct end *end, uint64_t sequence, uint64_t offset, uint64_t length,
                     uint8_t *bytes)
{
    if (end->writes_end - end->writes_begin == WRITES_MAX) {
        mismatch(end->side->scene, "the model has no room for more writes");
    }
    end->writes[end->writes_end++ % WRITES_MAX] = (struct write){
        .sequence = sequence,
        .offset = (uint32_t)offset,
        .length = (uint32_t)length,
        .bytes = bytes,
    };
    memcpy(end->latest + offset, bytes, length);
}

/* --------------------------------------------------------------------------------------- posted */

static uint8_t *copy_of(const void *bytes, size_t length)
{
    uint8_t *copy = malloc(length + 1);
    if (copy != NULL && length > 0) {
        memcpy(copy, bytes, length);
    }
    return copy;
}

static void posted_atomic(struct end *end, struct posted *request, const struct rdmux_wr *wr)
{
    if (request->word != 0) {
        end->peer->side->added[request->word - 1] += wr->operand;
        return;
    }
    uint64_t old = 0;
    memcpy(&old, end->latest + request->offset, sizeof(old));
    request->before = old;
    uint64_t now = old + wr->operand;
    if (wr->op == RDMUX_OP_COMPARE_SWAP) {
        now = old == wr->expected ? wr->operand : old;
    }
    remember(end, end->next, request->offset, sizeof(now), copy_of(&now, sizeof(now)));
}

/* A fence: earlier reads cannot see later requests any more (4.1). */
static void posted_fence(struct end *end)
{
    for (uint64_t i = end->covered; i != end->next; i++) {
        struct posted *request = &end->requests[i % SLOTS];
        if (reads(request->op) && request->fence == UINT64_MAX) {
            request->fence = end->next;
        }
    }
    end->side->scene->counts.fenced++;
}

void lane_posted(struct end *end, const struct posted *what, const struct rdmux_wr *wr,
                 uint8_t *bytes)
{
    struct scene *scene = end->side->scene;
    struct posted *request = &end->requests[end->next % SLOTS];
    uint8_t *expected = request->expected;
    *request = *what;
    request->expected = expected;
    request->fence = UINT64_MAX;
    if ((wr->flags & RDMUX_FENCE) != 0) {
        posted_fence(end);
    }
    if (wr->op == RDMUX_OP_READ) {
        memcpy(expected, end->latest + what->offset, what->length);
    } else if (is_atomic(wr->op)) {
        posted_atomic(end, request, wr);
        scene->counts.atomics++;
    }
    if ((wr->op == RDMUX_OP_WRITE || wr->op == RDMUX_OP_WRITE_IMM) && what->length > 0) {
        remember(end, end->next, what->offset, what->length, copy_of(bytes, what->length));
        scene->counts.split += what->length > scene->shape.max_message;
    }
    if (wr->op != RDMUX_OP_WRITE && !reads(wr->op)) {
        end->messages[end->messages_end++ % MESSAGES_MAX] = (struct message){
            .sequence = end->next,
            .op = wr->op,
            .imm = wr->imm,
            .length = what->length,
            .room = wr->op == RDMUX_OP_WRITE_IMM ? 0 : what->length,
            .bytes = wr->op == RDMUX_OP_WRITE_IMM ? NULL : copy_of(bytes, what->length),
        };
    }
    request->message = end->messages_end;
    end->unanswered += (wr->flags & RDMUX_UNSIGNALED) == 0;
    end->next++;
    scene->counts.requests++;
    scene->counts.placed += (wr->flags & RDMUX_PLACED) != 0;
}

/* ------------------------------------------------------------------------------------ completed */

/* Checks a byte that a read has returned: its value when the read was posted (2.6), or that of a
 * later write that no fence holds back (4.3). */
static bool may_be_read(const struct end *end, uint64_t sequence, uint64_t at, uint8_t byte)
{
    const struct posted *request = &end->requests[sequence % SLOTS];
    for (uint64_t i = end->writes_begin; i != end->writes_end; i++) {
        const struct write *write = &end->writes[i % WRITES_MAX];
        if (write->sequence > sequence && write->sequence < request->fence &&
            covers(write, (uint32_t)at) && write->bytes[at - write->offset] == byte) {
            return true;
        }
    }
    return false;
}

static void check_read(struct end *end, uint64_t sequence)
{
    const struct posted *request = &end->requests[sequence % SLOTS];
    uint64_t done = 0;
    for (uint32_t i = 0; i < request->pieces.count; i++) {
        const struct rdmux_sge *piece = &request->pieces.list[i];
        const uint8_t *got = piece->addr;
        if (memcmp(got, request->expected + done, piece->length) == 0) {
            done += piece->length;
            continue;
        }
        end->side->scene->counts.reads_loose++;
        for (uint64_t j = 0; j < piece->length; j++, done++) {
            if (got[j] != request->expected[done] &&
                !may_be_read(end, sequence, request->offset + done, got[j])) {
                mismatch(
                    end->side->scene,
                    "%c%u: the read %llu of %llu bytes at %llu has brought 0x%02x at %llu, not "
                    "0x%02x%s",
                    name_of(end), end->pair, (unsigned long long)sequence,
                    (unsigned long long)request->length, (unsigned long long)request->offset,
                    got[j], (unsigned long long)done, request->expected[done],
                    request->fence != UINT64_MAX ? "; a fence is behind it" : "");
            }
        }
    }
}

static void check_atomic(struct end *end, uint64_t sequence)
{
    const struct posted *request = &end->requests[sequence % SLOTS];
    uint64_t got = 0;
    memcpy(&got, request->pieces.list[0].addr, sizeof(got));
    if (request->word == 0 && got != request->before) {
        mismatch(end->side->scene, "%c%u: the atomic %llu has found %llx, not %llx", name_of(end),
                 end->pair, (unsigned long long)sequence, (unsigned long long)got,
                 (unsigned long long)request->before);
    }
    if (request->word != 0 && got > end->peer->side->added[request->word - 1]) {
        mismatch(end->side->scene, "%c%u: an atomic has found more than was ever added",
                 name_of(end), end->pair);
    }
}

/* The bytes around the pieces must be unchanged. From now on the pieces must not change either. */
static void free_slot(struct end *end, uint64_t sequence)
{
    struct posted *request = &end->requests[sequence % SLOTS];
    for (uint32_t i = 0; i < request->pieces.count; i++) {
        const struct rdmux_sge *piece = &request->pieces.list[i];
        uint8_t *bytes = piece->addr;
        if (reads(request->op) && (bytes[-1] != MARK_SINK || bytes[piece->length] != MARK_SINK)) {
            mismatch(end->side->scene, "%c%u: request %llu has written beside its buffer",
                     name_of(end), end->pair, (unsigned long long)sequence);
        }
        if (!request->is_forwarded) {
            memset(bytes, MARK_FREE, piece->length);
        }
    }
    if (request->is_forwarded || request->is_forward) {
        request->pieces.count = 0; /* both requests share a slot */
    }
}

/* Checks that the messages before `until` are in their receives, as far as the receives are known
 * and still belong to the program's memory (3.5). */
static void check_placed_messages(struct end *end, uint64_t until)
{
    const struct receives *receives = &end->peer->receives;
    if (end->peer->side->srq != NULL || end->peer->has_failed_receives) {
        return; /* the receive is unknown, or belongs to the program again */
    }
    for (uint64_t i = end->messages_begin; i < until; i++) {
        const struct message *message = &end->messages[i % MESSAGES_MAX];
        if (i >= receives->posted) {
            mismatch(end->side->scene, "%c%u: a send with PLACED completed without a receive",
                     name_of(end), end->pair);
        }
        const struct receive *receive = &receives->list[i % RECEIVES_MAX];
        uint64_t done = 0;
        for (uint32_t j = 0; receive->is_registered && j < receive->pieces.count; j++) {
            const struct rdmux_sge *piece = &receive->pieces.list[j];
            uint64_t left = message->room - done;
            uint64_t here = piece->length < left ? piece->length : left;
            if (here > 0 && memcmp(piece->addr, message->bytes + done, here) != 0) {
                mismatch(end->side->scene, "%c%u: a send with PLACED completed and is not placed",
                         name_of(end), end->pair);
            }
            done += here;
        }
    }
}

/* Marks every request before `until` as done (1.8). */
static void cover(struct end *end, uint64_t until)
{
    uint64_t placed = 0;
    uint64_t messages = 0;
    for (uint64_t i = end->covered; i != until; i++) {
        const struct posted *request = &end->requests[i % SLOTS];
        if (request->op == RDMUX_OP_READ) {
            check_read(end, i);
        } else if (is_atomic(request->op)) {
            check_atomic(end, i);
        }
        free_slot(end, i);
        if ((request->flags & RDMUX_PLACED) != 0 && !reads(request->op)) {
            placed = i + 1;
            messages = request->message;
        }
    }
    end->covered = until;
    if (placed != 0) {
        settle(end, placed, "after PLACED"); /* 1.9 */
        check_placed_messages(end, messages);
    }
    forget_writes(end);
}

static uint32_t opcode_of(uint32_t op)
{
    static const uint32_t opcodes[] = {
        [RDMUX_OP_SEND] = RDMUX_WC_SEND,
        [RDMUX_OP_SEND_IMM] = RDMUX_WC_SEND,
        [RDMUX_OP_WRITE] = RDMUX_WC_WRITE,
        [RDMUX_OP_WRITE_IMM] = RDMUX_WC_WRITE,
        [RDMUX_OP_READ] = RDMUX_WC_READ,
        [RDMUX_OP_FETCH_ADD] = RDMUX_WC_FETCH_ADD,
        [RDMUX_OP_COMPARE_SWAP] = RDMUX_WC_COMPARE_SWAP,
    };
    return opcodes[op];
}

void lane_completed(struct end *end, const struct rdmux_wc *wc)
{
    struct scene *scene = end->side->scene;
    uint64_t sequence = (uint64_t)(uintptr_t)wc->context;
    if (sequence < end->answered || sequence >= end->next) {
        mismatch(scene, "%c%u: a completion for request %llu; %llu is the next, %llu were posted",
                 name_of(end), end->pair, (unsigned long long)sequence,
                 (unsigned long long)end->answered, (unsigned long long)end->next);
    }
    for (uint64_t i = end->answered; i < sequence; i++) {
        if ((end->requests[i % SLOTS].flags & RDMUX_UNSIGNALED) == 0) {
            mismatch(scene, "%c%u: request %llu was passed over: %llu has completed before it",
                     name_of(end), end->pair, (unsigned long long)i, (unsigned long long)sequence);
        }
    }
    const struct posted *request = &end->requests[sequence % SLOTS];
    const bool is_silent = (request->flags & RDMUX_UNSIGNALED) != 0;
    end->answered = sequence + 1;
    if (wc->opcode != opcode_of(request->op)) {
        mismatch(scene, "%c%u: request %llu has completed as %s", name_of(end), end->pair,
                 (unsigned long long)sequence, rdmux_wc_opcode_name(wc->opcode));
    }
    end->unanswered -= is_silent ? 0 : 1;
    if (wc->status != RDMUX_OK) {
        if (scene->is_broken) {
            fault_completed(end, sequence, wc);
            return;
        }
        mismatch(scene, "%c%u: request %llu has failed: %s", name_of(end), end->pair,
                 (unsigned long long)sequence, rdmux_status_name((enum rdmux_status)wc->status));
    }
    if (is_silent) {
        mismatch(scene, "%c%u: unsignaled request %llu has an entry", name_of(end), end->pair,
                 (unsigned long long)sequence);
    }
    if (end->has_failed) {
        mismatch(scene, "%c%u: request %llu has succeeded behind one that failed", name_of(end),
                 end->pair, (unsigned long long)sequence);
    }
    if (wc->length != request->length) {
        mismatch(scene, "%c%u: request %llu of %llu bytes says %llu", name_of(end), end->pair,
                 (unsigned long long)sequence, (unsigned long long)request->length,
                 (unsigned long long)wc->length);
    }
    cover(end, sequence + 1);
}

/* ------------------------------------------------------------------------------------- received */

static void check_pieces(struct end *end, const struct receive *receive,
                         const struct message *message)
{
    /* 7.9: a message of an endpoint that has ended may have used the receive before. */
    const bool is_used = end->side->srq != NULL && end->side->scene->is_broken;
    uint64_t done = 0;
    for (uint32_t i = 0; i < receive->pieces.count; i++) {
        const struct rdmux_sge *piece = &receive->pieces.list[i];
        uint8_t *bytes = piece->addr;
        uint64_t left = message->room - done;
        uint64_t here = piece->length < left ? piece->length : left;
        if (here > 0 && memcmp(bytes, message->bytes + done, here) != 0) {
            mismatch(end->side->scene, "%c%u: a message of %llu bytes has arrived changed",
                     name_of(end), end->pair, (unsigned long long)message->length);
        }
        done += here;
        here = is_used ? piece->length : here;
        if (!is_all(bytes + here, MARK_SINK, piece->length + 1 - here)) {
            mismatch(end->side->scene,
                     "%c%u: a message of %llu bytes has changed what is behind it", name_of(end),
                     end->pair, (unsigned long long)message->length);
        }
        memset(bytes, MARK_FREE, piece->length);
    }
}

/* 2.7: of a segmented write, the length may be that of the last segment. */
static bool length_is_right(const struct scene *scene, const struct message *message,
                            uint64_t length)
{
    return length == message->length ||
           (message->op == RDMUX_OP_WRITE_IMM && message->length > scene->shape.max_message - 64 &&
            length <= message->length);
}

void lane_received(struct end *end, const struct rdmux_wc *wc)
{
    struct scene *scene = end->side->scene;
    struct end *sender = end->peer;
    struct receives *receives = end->side->srq != NULL ? &end->side->shared : &end->receives;
    uint64_t index = (uint64_t)(uintptr_t)wc->context;
    if (index >= receives->posted || (end->side->srq == NULL && index != receives->taken) ||
        !receives->list[index % RECEIVES_MAX].is_posted) {
        mismatch(scene, "%c%u: receive %llu has completed; %llu were posted, %llu taken",
                 name_of(end), end->pair, (unsigned long long)index,
                 (unsigned long long)receives->posted, (unsigned long long)receives->taken);
    }
    struct receive *receive = &receives->list[index % RECEIVES_MAX];
    receives->taken++;
    receive->is_posted = false;
    if (wc->status != RDMUX_OK) {
        if (scene->is_ending && wc->status == RDMUX_FLUSHED) {
            end->has_failed_receives = true; /* receives that no message used */
            return;
        }
        if (scene->is_broken) {
            fault_received(end, receive, wc);
            return;
        }
        mismatch(scene, "%c%u: a receive has failed: %s", name_of(end), end->pair,
                 rdmux_status_name((enum rdmux_status)wc->status));
    }
    if (end->has_failed_receives) {
        mismatch(scene, "%c%u: a receive has succeeded behind one that failed", name_of(end),
                 end->pair);
    }
    if (sender->messages_begin == sender->messages_end) {
        mismatch(scene, "%c%u: a message that was not sent", name_of(end), end->pair);
    }
    struct message *message = &sender->messages[sender->messages_begin++ % MESSAGES_MAX];
    bool is_write = message->op == RDMUX_OP_WRITE_IMM;
    bool has_imm = message->op != RDMUX_OP_SEND;
    if (wc->opcode != (uint32_t)(is_write ? RDMUX_WC_RECV_WRITE_IMM : RDMUX_WC_RECV) ||
        ((wc->flags & RDMUX_WC_HAS_IMM) != 0) != has_imm || (has_imm && wc->imm != message->imm) ||
        !length_is_right(scene, message, wc->length)) {
        mismatch(scene,
                 "%c%u: %s of %llu bytes with number %x (flags %x) for op %u of %llu with %x",
                 name_of(end), end->pair, rdmux_wc_opcode_name(wc->opcode),
                 (unsigned long long)wc->length, wc->imm, wc->flags, message->op,
                 (unsigned long long)message->length, message->imm);
    }
    check_pieces(end, receive, message);
    settle(sender, message->sequence + (is_write ? 1 : 0), "after a later message"); /* 2.3 to 2.5 */
    free(message->bytes);
    message->bytes = NULL;
    scene->counts.receives++;
}

/* ------------------------------------------------------------------------------------------ end */

void lane_check_all(struct end *end)
{
    struct scene *scene = end->side->scene;
    if (end->covered != end->next || end->unanswered != 0 ||
        end->messages_begin != end->messages_end) {
        mismatch(scene, "%c%u: the model does not know everything to be done", name_of(end),
                 end->pair);
    }
    settle(end, end->next, "at the end");
    if (memcmp(lane_window(end), end->latest, WINDOW_SIZE) != 0) {
        mismatch(scene, "%c%u: the window is not as the requests have left it", name_of(end),
                 end->pair);
    }
    if (end->wants_writable) {
        mismatch(scene, "%c%u: AGAIN was not followed by WRITABLE", name_of(end), end->pair);
    }
}
