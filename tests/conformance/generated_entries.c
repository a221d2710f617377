/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Entries of the cq: receives and completions, and the row's way to wait for them. */
#include "generated_stage.h"

#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

enum {
    POLL_AT_ONCE = 16,
    POLLS_PER_YIELD = 64,
    NOTICE_ROOM = 16,
    ROOM_BEHIND = 200,
    RECEIVES_FROM = 5000, /* contexts of receives */
    OTHER_SIDE_MS = 500,
};

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

void stage_post_receives(struct stage *stage)
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
        buffer_sges(&slot->buffer, sges);
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
            rule_broken(stage, status == RDMUX_AGAIN ? "1.12" : "1.13", message,
                        "the post of a receive of %zu bytes in %zu pieces gave %s: %s",
                        slot->buffer.length, slot->buffer.count, rdmux_status_name(status),
                        rdmux_last_error());
        }
        memset(sges, 0xff, sizeof(sges)); /* the list is free again */
        memset(&wr, 0xff, sizeof(wr));
        stage->receive_count++;
    }
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
        rule_broken(stage, "1.1", NULL, "an entry too many: %s", wc_text(wc));
    }
    struct receive_slot *slot = &stage->receives[stage->received];
    const struct wanted *message = slot->message;
    const uint32_t opcode = wanted_is_message(message) ? RDMUX_WC_RECV : RDMUX_WC_RECV_WRITE_IMM;
    const bool has_imm = wanted_has_imm(message);
    if (wc->status != RDMUX_OK) {
        expect_other_side(stage, wc);
        rule_broken(stage, wc->status == RDMUX_LENGTH ? "2.1" : "2.2", message, "its receive is %s",
                    wc_text(wc));
    }
    if (CTX_NUMBER(wc->context) != RECEIVES_FROM + stage->received) {
        rule_broken(stage, "2.1", message,
                    "it came to the wrong receive, number %" PRIu64 " of the row, not %zu",
                    CTX_NUMBER(wc->context) - RECEIVES_FROM, stage->received);
    }
    if (wc->ep != stage->ep) {
        rule_broken(stage, "2.14", message, "its receive names another endpoint");
    }
    if (wc->opcode != opcode || wc->length != message->length) {
        rule_broken(stage, "1.16", message, "its receive is %s, expected %s of length %zu",
                    wc_text(wc), rdmux_wc_opcode_name(opcode), message->length);
    }
    if (wc->flags != (has_imm ? RDMUX_WC_HAS_IMM : 0U) || (has_imm && wc->imm != message->imm)) {
        rule_broken(stage, "2.8", message, "its receive is %s, expected flags %u imm 0x%" PRIx32,
                    wc_text(wc), has_imm ? RDMUX_WC_HAS_IMM : 0U, message->imm);
    }
    stage_check_message(stage, slot, "when it was received", "2.1");
    stage_check_writes_before(stage, message);
    buffer_fill(&slot->buffer, BYTE_FREE);
    slot->taken = true;
    stage->received++;
}

/* ---------------------------------------------------------------------------------- completions */

void stage_give_back(struct stage *stage, size_t last)
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
            rule_broken(
                stage, wanted->list >= LIST_TWO ? "1.13" : rule, wanted,
                "when it was done, byte %zu of its %zu local bytes was 0x%02x, expected 0x%02x", at,
                wanted->length, came, value);
        }
        buffer_fill(&posted->buffer, BYTE_FREE);
    }
}

static void take_done(struct stage *stage, const struct rdmux_wc *wc)
{
    const uint64_t number = CTX_NUMBER(wc->context) - NUMBERED_FROM;
    size_t next = stage->done;
    while (next < stage->posted_count && !wanted_is_signaled(stage->posted[next].wanted)) {
        next++;
    }
    if (number >= stage->posted_count) {
        rule_broken(stage, "1.16", NULL, "an entry with a context that no request has: %s",
                    wc_text(wc));
    }
    const struct wanted *named = stage->posted[number].wanted;
    if (wc->status != RDMUX_OK) {
        expect_other_side(stage, wc);
        rule_broken(stage, wc->status == RDMUX_LENGTH ? "2.1" : "1.1", named, "it failed: %s",
                    wc_text(wc));
    }
    if (!wanted_is_signaled(named)) {
        rule_broken(stage, "1.2", named, "it succeeded and has a completion: %s", wc_text(wc));
    }
    if (number < next) {
        rule_broken(stage, "1.1", named, "it completed twice: %s", wc_text(wc));
    }
    if (number > next) {
        rule_broken(stage, "1.6", named,
                    "its completion came before that of a request before it: %s", wc_text(wc));
    }
    if (wc->opcode != wanted_opcode(named) || wc->length != named->length || wc->ep != stage->ep ||
        wc->flags != 0 || wc->imm != 0) {
        rule_broken(stage, "1.16", named, "its completion is %s%s, expected %s of length %zu",
                    wc_text(wc), wc->ep == stage->ep ? "" : " of another endpoint",
                    rdmux_wc_opcode_name(wanted_opcode(named)), named->length);
    }
    stage_give_back(stage, next);
    stage->done = next + 1;
}

void stage_take_entry(struct stage *stage, const struct rdmux_wc *wc)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    switch (wc->opcode) {
    case RDMUX_WC_RECV:
    case RDMUX_WC_RECV_WRITE_IMM:
        take_received(stage, wc);
        break;
    case RDMUX_WC_WRITABLE:
        if (!stage->writable_due || wc->ep != stage->ep) {
            rule_broken(stage, "13.1", NULL, "a WRITABLE for which no post was refused");
        }
        stage->writable_due = false;
        break;
    case RDMUX_WC_DISCONNECTED:
        if (rdmux_ep_info(wc->ep, &info) != RDMUX_OK) {
            info.text[0] = '\0';
        }
        info.text[sizeof(info.text) - 1] = '\0';
        expect_other_side(stage, wc);
        rule_broken(stage, "1.1", NULL, "the endpoint has ended: %s: %s", wc_text(wc), info.text);
    default:
        take_done(stage, wc);
        break;
    }
}

/* ---------------------------------------------------------------------------------------- waits */

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
        stage_take_entry(stage, &wcs[i]);
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
        rule_broken(stage, "13.12", NULL, "rdmux_cq_wait gave %s, and then a poll had %s",
                    rdmux_status_name(status), wc_text(&wcs[0]));
    }
}

void stage_take_some(struct stage *stage)
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
            rule_broken(stage, "13.6", NULL,
                        "the armed descriptor did not wake, and then a poll had %s", wc_text(&wc));
        }
        break;
    default:
        poll_some(stage, POLL_AT_ONCE);
        break;
    }
}

bool stage_is_late(const struct stage *stage)
{
    return now_ns() > stage->row_deadline || time_is_up();
}

/* ---------------------------------------------------------------------------------- all entries */

static bool has_signaled_left(const struct stage *stage)
{
    for (size_t i = stage->done; i < stage->posted_count; i++) {
        if (wanted_is_signaled(stage->posted[i].wanted)) {
            return true;
        }
    }
    return false;
}

bool stage_has_entries_due(const struct stage *stage)
{
    return has_signaled_left(stage) || stage->received < stage->receive_count;
}

static _Noreturn void missing(struct stage *stage)
{
    if (has_signaled_left(stage)) {
        size_t next = stage->done;
        while (!wanted_is_signaled(stage->posted[next].wanted)) {
            next++;
        }
        const struct wanted *wanted = stage->posted[next].wanted;
        const char *rule = (wanted->flags & RDMUX_MORE) != 0                 ? "1.15"
                           : stage->row.values[DIM_BEFORE] == BEFORE_CROWD   ? "1.10"
                           : stage->row.values[DIM_WAIT] >= WAIT_ARM         ? "13.6"
                           : stage->row.values[DIM_BEFORE] == BEFORE_STARVED ? "2.2"
                                                                             : "1.1";
        rule_broken(stage, rule, wanted, "its completion never came");
    }
    const struct wanted *message = stage->receives[stage->received].message;
    rule_broken(stage, row_is_late(&stage->row) ? "2.2" : "2.1", message,
                "its receive never completed");
}

void stage_take_all(struct stage *stage)
{
    while (stage_has_entries_due(stage)) {
        stage_take_some(stage);
        if (stage_is_late(stage) && stage_has_entries_due(stage)) {
            missing(stage);
        }
    }
}
