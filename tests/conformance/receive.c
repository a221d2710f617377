/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Messages without a receive, receives that are too small, shared receives. */
#include "harness.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------- sends wait for receives */

enum { EARLY = 1001 };

static void early_initiator(struct side *side)
{
    static uint64_t words[EARLY];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = EARLY;
    side_open_pair(side, &attr);
    for (uint64_t i = 0; i < EARLY; i++) {
        words[i] = mix64(side->seed + i);
        EXPECT_OK(rdmux_send(side->ep, &words[i], 8, NULL, CTX(i), 0));
        if (i % 100 == 0) {
            (void)queue_poll(&side->queue);
        }
    }
    BARRIER(side); /* all sends are posted, no receive yet */
    for (uint64_t i = 0; i < EARLY; i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_SEND && wc.status == RDMUX_OK && CTX_NUMBER(wc.context) == i,
               "completion %" PRIu64 " is %s", i, wc_text(&wc));
    }
    side_finish(side);
}

/* Messages that have arrived find no receive. */
static void meet_no_receive(struct side *side)
{
    enum { LOOK_NS = 20000000 };
    uint64_t until = now_ns() + LOOK_NS;
    while (now_ns() < until) {
        EXPECT_QUIET(&side->queue);
    }
}

static void early_target(struct side *side)
{
    static uint64_t words[EARLY];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.recv_depth = EARLY;
    side_open_pair(side, &attr);
    BARRIER(side);
    meet_no_receive(side);
    for (uint64_t i = 0; i < EARLY; i++) {
        EXPECT_OK(rdmux_recv(side->ep, &words[i], 8, NULL, CTX(i)));
    }
    for (uint64_t i = 0; i < EARLY; i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK && CTX_NUMBER(wc.context) == i,
               "message %" PRIu64 ": %s", i, wc_text(&wc));
        EXPECT_EQUAL(words[i], mix64(side->seed + i));
    }
    side_finish(side);
}

/* Long messages, which fill any buffers in between before they wait. */
enum { LONG_EARLY = 24, LONG_SIZE = 1 << 20 };

static void long_early_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct region source = region_make(side, MEMORY_UNREGISTERED, (size_t)LONG_EARLY * LONG_SIZE, 0);
    pattern_fill(source.addr, source.length, side->seed, 0);
    for (uint64_t i = 0; i < LONG_EARLY; i++) {
        EXPECT_OK(rdmux_send(side->ep, source.addr + i * LONG_SIZE, LONG_SIZE, NULL, CTX(i), 0));
    }
    BARRIER(side);
    for (uint64_t i = 0; i < LONG_EARLY; i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_SEND && wc.status == RDMUX_OK && CTX_NUMBER(wc.context) == i,
               "completion %" PRIu64 " is %s", i, wc_text(&wc));
    }
    side_finish(side);
}

static void long_early_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region sink = region_make(side, MEMORY_ALLOCATED, LONG_SIZE, ACCESS_SINK);
    BARRIER(side);
    meet_no_receive(side);
    for (uint64_t i = 0; i < LONG_EARLY; i++) {
        struct rdmux_wc wc = POST_AND_WAIT(
            &side->queue, rdmux_recv(side->ep, sink.addr, LONG_SIZE, sink.mr, CTX(i)),
            RDMUX_WC_RECV, CTX(i));
        EXPECT_EQUAL(wc.length, LONG_SIZE);
        EXPECT_PATTERN_FROM(sink.addr, LONG_SIZE, side->seed, i * LONG_SIZE);
    }
    side_finish(side);
}

/* -------------------------------------------------------- waiting sends block no other endpoint */

enum { BLOCKED = 20, BLOCKED_SIZE = 100000 };

/* Endpoint `blocked` waits in the initiator's direction. The other endpoint works. So do the
 * target's own requests on the blocked endpoint, which the initiator has to answer. */
static void blocked_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *blocked = side->ep;
    struct rdmux_ep *other = side_pair(side, NULL);
    struct region source = region_make(side, MEMORY_UNREGISTERED, BLOCKED_SIZE, 0);
    struct region region = region_make(side, MEMORY_ALLOCATED, 8192, ACCESS_ALL);
    pattern_fill(source.addr, source.length, side->seed, 0);
    struct rdmux_remote *remote = take_remote(side, other);
    for (uint64_t i = 0; i < BLOCKED; i++) {
        EXPECT_OK(rdmux_send(blocked, source.addr, source.length, NULL, CTX(i), 0));
    }
    for (uint64_t i = 0; i < 50; i++) {
        EXPECT_OK(rdmux_write(other, source.addr, 5000, NULL, remote, 0, CTX(1000), 0));
        (void)WAIT_OF(&side->queue, other, RDMUX_WC_WRITE, CTX(1000), RDMUX_OK);
        EXPECT_OK(rdmux_send(other, &i, 8, NULL, CTX(1001), 0));
        (void)WAIT_OF(&side->queue, other, RDMUX_WC_SEND, CTX(1001), RDMUX_OK);
    }
    give_token(side, &region);
    BARRIER(side); /* the target's own requests are done */
    for (uint64_t i = 0; i < BLOCKED; i++) {
        (void)WAIT_OF(&side->queue, blocked, RDMUX_WC_SEND, CTX(i), RDMUX_OK);
    }
    EXPECT_PATTERN(region.addr, 4096, side->seed);
    side_finish(side);
}

static void blocked_target(struct side *side)
{
    uint8_t bytes[4096];
    uint64_t number = 0;
    side_open_pair(side, NULL);
    struct rdmux_ep *blocked = side->ep;
    struct rdmux_ep *other = side_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 8192, ACCESS_ALL);
    struct region sink = region_make(side, MEMORY_REGISTERED, BLOCKED_SIZE, ACCESS_SINK);
    EXPECT_OK(rdmux_recv(other, &number, 8, NULL, CTX(1)));
    give_token(side, &region);
    for (uint64_t i = 0; i < 50; i++) {
        (void)WAIT_OF(&side->queue, other, RDMUX_WC_RECV, CTX(1), RDMUX_OK);
        EXPECT_EQUAL(number, i);
        EXPECT_OK(rdmux_recv(other, &number, 8, NULL, CTX(1)));
    }
    struct rdmux_remote *remote = take_remote(side, blocked);
    for (uint64_t i = 0; i < 50; i++) {
        pattern_fill(bytes, sizeof(bytes), side->seed + i, 0);
        EXPECT_OK(rdmux_write(blocked, bytes, sizeof(bytes), NULL, remote, 0, CTX(2), 0));
        (void)WAIT_OF(&side->queue, blocked, RDMUX_WC_WRITE, CTX(2), RDMUX_OK);
        memset(bytes, 0, sizeof(bytes));
        EXPECT_OK(rdmux_read(blocked, bytes, sizeof(bytes), NULL, remote, 0, CTX(3), 0));
        (void)WAIT_OF(&side->queue, blocked, RDMUX_WC_READ, CTX(3), RDMUX_OK);
        EXPECT_PATTERN(bytes, sizeof(bytes), side->seed + i);
        if (((side->info.native | side->info.emulated) & NEEDS_ATOMICS) == NEEDS_ATOMICS) {
            uint64_t old = 0;
            EXPECT_OK(rdmux_fetch_add(blocked, &old, NULL, remote, 4096, 1, CTX(4), 0));
            (void)WAIT_OF(&side->queue, blocked, RDMUX_WC_FETCH_ADD, CTX(4), RDMUX_OK);
            EXPECT_EQUAL(old, i);
        }
    }
    pattern_fill(bytes, sizeof(bytes), side->seed, 0);
    EXPECT_OK(rdmux_write(blocked, bytes, sizeof(bytes), NULL, remote, 0, CTX(5),
                          flag_if_there(side, RDMUX_PLACED)));
    (void)WAIT_OF(&side->queue, blocked, RDMUX_WC_WRITE, CTX(5), RDMUX_OK);
    settle_writes(side, &side->queue, blocked, remote);
    BARRIER(side);
    for (uint64_t i = 0; i < BLOCKED; i++) {
        memset(sink.addr, 0, BLOCKED_SIZE);
        EXPECT_OK(rdmux_recv(blocked, sink.addr, BLOCKED_SIZE, sink.mr, CTX(10)));
        (void)WAIT_OF(&side->queue, blocked, RDMUX_WC_RECV, CTX(10), RDMUX_OK);
        EXPECT_PATTERN(sink.addr, BLOCKED_SIZE, side->seed);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------- a full receive queue */

static void full_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    BARRIER(side);
    for (uint64_t i = 0; i < 3; i++) {
        (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, "m", 1, NULL, CTX(i), RDMUX_PLACED),
                            RDMUX_WC_SEND, CTX(i));
    }
    BARRIER(side);
    side_finish(side);
}

static void full_target(struct side *side)
{
    enum { DEPTH = 10 };
    uint8_t bytes[DEPTH + 4];
    struct rdmux_wc wc;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.recv_depth = DEPTH;
    side_open_pair(side, &attr);
    EXPECT_EQUAL(side->info.recv_depth, DEPTH);
    for (uint64_t i = 0; i < DEPTH; i++) {
        EXPECT_OK(rdmux_recv(side->ep, &bytes[i], 1, NULL, CTX(i)));
    }
    EXPECT_STATUS(rdmux_recv(side->ep, &bytes[DEPTH], 1, NULL, CTX(99)), RDMUX_AGAIN);
    BARRIER(side);
    BARRIER(side); /* three messages have filled their receives */
    EXPECT_STATUS(rdmux_recv(side->ep, &bytes[DEPTH], 1, NULL, CTX(99)), RDMUX_AGAIN);
    while (rdmux_cq_poll(side->queue.cq, &wc, 1) == 0) {
        EXPECT(!time_is_up(), "a placed message does not complete");
    }
    EXPECT(wc.opcode == RDMUX_WC_RECV && wc.context == CTX(0), "got %s", wc_text(&wc));
    /* one entry taken makes room for one */
    EXPECT_OK(rdmux_recv(side->ep, &bytes[DEPTH], 1, NULL, CTX(DEPTH)));
    EXPECT_STATUS(rdmux_recv(side->ep, &bytes[DEPTH + 1], 1, NULL, CTX(99)), RDMUX_AGAIN);
    (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
    (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(2));
    /* there is room, without an event for it: side_finish() would find one */
    EXPECT_OK(rdmux_recv(side->ep, &bytes[DEPTH + 1], 1, NULL, CTX(DEPTH + 1)));
    side_finish(side);
}

/* ------------------------------------------------------------ a message longer than its receive */

/* Takes every entry up to DISCONNECTED with LENGTH, and checks them. */
static void drain_length(struct side *side, struct rdmux_ep *ep, unsigned counts[], size_t contexts)
{
    bool send_flushed = false;
    bool recv_flushed = false;
    for (;;) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.ep == ep, "the other endpoint has %s", wc_text(&wc));
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            EXPECT_EQUAL(wc.status, RDMUX_LENGTH);
            return;
        }
        EXPECT(CTX_NUMBER(wc.context) < contexts, "an unknown context: %s", wc_text(&wc));
        counts[CTX_NUMBER(wc.context)]++;
        bool *flushed = wc.opcode == RDMUX_WC_RECV ? &recv_flushed : &send_flushed;
        if (wc.status == RDMUX_FLUSHED) {
            *flushed = true;
        } else {
            EXPECT(wc.status == RDMUX_OK || wc.status == RDMUX_LENGTH, "got %s", wc_text(&wc));
            EXPECT(!*flushed, "after a flushed one came %s", wc_text(&wc));
        }
    }
}

static void expect_ended_by_length(struct rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    EXPECT_OK(rdmux_ep_info(ep, &info));
    EXPECT_EQUAL(info.state, RDMUX_EP_ENDED);
    EXPECT_EQUAL(info.status, RDMUX_LENGTH);
    EXPECT(info.text[0] != '\0', "an endpoint that failed has no text");
    EXPECT_STATUS(rdmux_send(ep, "x", 1, NULL, NULL, 0), RDMUX_LENGTH);
}

enum { LONGER_BEHIND = 5, BEHIND_SIZE = 8, GUARD_BYTE = 0x5a };

static void longer_initiator_of(struct side *side, size_t length)
{
    unsigned counts[LONGER_BEHIND + 1] = { 0 };
    side_open_pair(side, NULL);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_ep *other = side_pair(side, NULL);
    struct region source = region_make(side, MEMORY_UNREGISTERED, length + BEHIND_SIZE, 0);
    BARRIER(side);
    EXPECT_OK(rdmux_send(ep, source.addr, length, NULL, CTX(0), 0));
    for (uint64_t i = 1; i <= LONGER_BEHIND; i++) {
        enum rdmux_status status = rdmux_send(ep, source.addr, BEHIND_SIZE, NULL, CTX(i), 0);
        if (status == RDMUX_LENGTH) {
            counts[i] = 1; /* the endpoint has already ended: refused, no completion follows */
            continue;
        }
        EXPECT_STATUS(status, RDMUX_OK);
    }
    drain_length(side, ep, counts, COUNT_OF(counts));
    for (uint64_t i = 0; i <= LONGER_BEHIND; i++) {
        EXPECT(counts[i] == 1, "send %" PRIu64 " completed %u times", i, counts[i]);
    }
    expect_ended_by_length(ep);
    exercise(side, &side->queue, other);
    side_finish(side);
}

/* The target's receives have this much room. */
static void longer_target_of(struct side *side, size_t length, size_t room)
{
    enum { RECEIVES = 4, BEYOND = 16 };
    const size_t each = room + BEYOND;
    unsigned counts[RECEIVES] = { 0 };
    side_open_pair(side, NULL);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_ep *other = side_pair(side, NULL);
    struct region sinks = region_make(side, MEMORY_UNREGISTERED, RECEIVES * each, 0);
    EXPECT(length > room, "the case is wrong");
    memset(sinks.addr, GUARD_BYTE, RECEIVES * each);
    for (uint64_t i = 0; i < RECEIVES; i++) {
        EXPECT_OK(rdmux_recv(ep, sinks.addr + i * each, room, NULL, CTX(i)));
    }
    BARRIER(side);
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_LENGTH && wc.context == CTX(0) &&
               wc.ep == ep,
           "the receive that was too small: %s", wc_text(&wc));
    counts[0] = 1;
    drain_length(side, ep, counts, RECEIVES);
    for (size_t i = 0; i < RECEIVES; i++) {
        EXPECT(counts[i] == 1, "receive %zu completed %u times", i, counts[i]);
        EXPECT_FILLED(sinks.addr + i * each + room, BEYOND, GUARD_BYTE);
    }
    expect_ended_by_length(ep);
    exercise(side, &side->queue, other);
    side_finish(side);
}

static void longer_initiator(struct side *side)
{
    longer_initiator_of(side, 65);
}

static void longer_target(struct side *side)
{
    longer_target_of(side, 65, 64);
}

static void much_longer_initiator(struct side *side)
{
    longer_initiator_of(side, (1 << 20) + 1);
}

static void much_longer_target(struct side *side)
{
    longer_target_of(side, (1 << 20) + 1, 64);
}

/* Both lengths exceed what a path transfers in one piece. */
static void long_longer_initiator(struct side *side)
{
    longer_initiator_of(side, 3 * MIB + 1);
}

static void long_longer_target(struct side *side)
{
    longer_target_of(side, 3 * MIB + 1, 3 * MIB);
}

static void empty_longer_initiator(struct side *side)
{
    longer_initiator_of(side, 1);
}

static void empty_longer_target(struct side *side)
{
    longer_target_of(side, 1, 0);
}

/* ------------------------------------------------------------------------- receives of no bytes */

enum { EMPTIES = 4, NOTICE_SIZE = 100 };

/* Sends of no bytes, in every possible way, for as many receives of no bytes. */
static void empty_initiator(struct side *side)
{
    uint8_t byte = 'x';
    uint8_t bytes[NOTICE_SIZE];
    struct rdmux_sge pieces[2] = { { .addr = &byte }, { .addr = NULL } };
    const struct rdmux_wr in_pieces = {
        .op = RDMUX_OP_SEND, .context = CTX(3), .sges = pieces, .sge_count = 2
    };
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    BARRIER(side);
    EXPECT_OK(rdmux_send(side->ep, NULL, 0, NULL, CTX(0), 0));
    EXPECT_OK(rdmux_send(side->ep, &byte, 0, NULL, CTX(1), RDMUX_INLINE));
    EXPECT_OK(rdmux_send_imm(side->ep, &byte, 0, NULL, 2, CTX(2), RDMUX_PLACED));
    EXPECT_OK(rdmux_post(side->ep, &in_pieces, 1, NULL));
    for (uint64_t i = 0; i < EMPTIES; i++) {
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(i));
    }
    pattern_fill(bytes, sizeof(bytes), side->seed, 0);
    EXPECT_OK(rdmux_write_imm(side->ep, bytes, sizeof(bytes), NULL, remote, 0, 7, CTX(EMPTIES), 0));
    (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(EMPTIES));
    (void)POST_AND_WAIT(&side->queue,
                        rdmux_send(side->ep, bytes, 1, NULL, CTX(EMPTIES + 1), RDMUX_PLACED),
                        RDMUX_WC_SEND, CTX(EMPTIES + 1));
    side_finish(side);
}

static void empty_target(struct side *side)
{
    uint8_t guard[2] = { GUARD_BYTE, GUARD_BYTE };
    struct rdmux_sge pieces[2] = { { .addr = guard }, { .addr = NULL } };
    const struct rdmux_wr lists[2] = {
        { .op = RDMUX_OP_RECV, .context = CTX(2) },
        { .op = RDMUX_OP_RECV, .context = CTX(3), .sges = pieces, .sge_count = 2 },
    };
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, NOTICE_SIZE, ACCESS_ALL);
    EXPECT_OK(rdmux_recv(side->ep, NULL, 0, NULL, CTX(0)));
    EXPECT_OK(rdmux_recv(side->ep, guard, 0, NULL, CTX(1)));
    EXPECT_OK(rdmux_post_recv(side->ep, lists, COUNT_OF(lists), NULL));
    EXPECT_OK(rdmux_recv(side->ep, NULL, 0, NULL, CTX(EMPTIES)));
    EXPECT_OK(rdmux_recv(side->ep, guard, 1, NULL, CTX(EMPTIES + 1)));
    give_token(side, &region);
    BARRIER(side);
    for (uint64_t i = 0; i < EMPTIES; i++) {
        struct rdmux_wc wc = WAIT(&side->queue, RDMUX_WC_RECV, CTX(i));
        EXPECT_EQUAL(wc.length, 0);
        EXPECT_EQUAL(wc.flags, i == 2 ? RDMUX_WC_HAS_IMM : 0);
    }
    /* A write_imm takes a receive whatever its size. */
    struct rdmux_wc notice = WAIT(&side->queue, RDMUX_WC_RECV_WRITE_IMM, CTX(EMPTIES));
    EXPECT_EQUAL(notice.length, NOTICE_SIZE);
    EXPECT_EQUAL(notice.imm, 7);
    EXPECT_PATTERN(region.addr, NOTICE_SIZE, side->seed);
    EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(EMPTIES + 1)).length, 1);
    EXPECT_EQUAL(guard[1], GUARD_BYTE);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ limits on sends */

enum { MAX_SEND = 100000, MAX_RECV = 50000 };

static void limits_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.max_send = MAX_SEND;
    side_open_pair(side, &attr);
    struct region source = region_make(side, MEMORY_UNREGISTERED, MAX_SEND, 0);
    EXPECT_EQUAL(side->info.max_send, MAX_RECV);
    EXPECT_EQUAL(side->info.max_recv, 8 << 20);
    pattern_fill(source.addr, MAX_RECV, side->seed, 0);
    EXPECT_STATUS(rdmux_send(side->ep, source.addr, MAX_RECV + 1, NULL, CTX(1), 0), RDMUX_LENGTH);
    EXPECT_STATUS(rdmux_send(side->ep, source.addr, MAX_SEND, NULL, CTX(1), RDMUX_UNSIGNALED),
                  RDMUX_LENGTH);
    EXPECT_QUIET(&side->queue);
    (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, source.addr, MAX_RECV, NULL, CTX(2), 0),
                        RDMUX_WC_SEND, CTX(2));
    side_finish(side);
}

static void limits_target(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.max_recv = MAX_RECV;
    side_open_pair(side, &attr);
    struct region sink = region_make(side, MEMORY_UNREGISTERED, MAX_RECV, 0);
    EXPECT_EQUAL(side->info.max_recv, MAX_RECV);
    EXPECT_EQUAL(side->info.max_send, 8 << 20);
    struct rdmux_wc wc = POST_AND_WAIT(&side->queue,
                                       rdmux_recv(side->ep, sink.addr, MAX_RECV, NULL, CTX(1)),
                                       RDMUX_WC_RECV, CTX(1));
    EXPECT_EQUAL(wc.length, MAX_RECV);
    EXPECT_PATTERN(sink.addr, MAX_RECV, side->seed);
    side_finish(side);
}

/* The wish is beyond every path's limit, and the peer's max_recv beyond most. */
static const uint64_t wish_recv = UINT64_C(1) << 40;

/* Returns the longest message that this side's path takes. */
static uint64_t limit_of_path(struct side *side)
{
    struct rdmux_path_info paths[64] = { RDMUX_PATH_INFO_INIT };
    size_t count = 0;
    EXPECT_OK(rdmux_fabric_paths(side->fabric, paths, COUNT_OF(paths), &count));
    for (size_t i = 0; i < count && i < COUNT_OF(paths); i++) {
        if (strcmp(paths[i].provider, side->info.provider) == 0 &&
            strcmp(paths[i].device, side->info.device) == 0) {
            return paths[i].max_message;
        }
    }
    return UINT64_MAX;
}

/* Returns the smaller of both sides' limits. */
static uint64_t limit_of_both(struct side *side)
{
    uint64_t ours = limit_of_path(side);
    uint64_t theirs = 0;
    GIVE(side, &ours, sizeof(ours));
    TAKE(side, &theirs, sizeof(theirs));
    return ours < theirs ? ours : theirs;
}

static void wish_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.flags = RDMUX_EP_SEND_WISH;
    attr.max_send = UINT64_MAX;
    side_open_pair(side, &attr);
    struct region source = region_make(side, MEMORY_UNREGISTERED, MAX_RECV, 0);
    const uint64_t limit = limit_of_both(side);
    EXPECT_EQUAL(side->info.max_send, limit < wish_recv ? limit : wish_recv);
    EXPECT_EQUAL(side->info.max_recv, MAX_RECV);
    EXPECT_STATUS(
        rdmux_send(side->ep, source.addr, (size_t)side->info.max_send + 1, NULL, CTX(1), 0),
        RDMUX_LENGTH);
    EXPECT_QUIET(&side->queue);
    pattern_fill(source.addr, MAX_RECV, side->seed, 0);
    (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, source.addr, MAX_RECV, NULL, CTX(2), 0),
                        RDMUX_WC_SEND, CTX(2));
    side_finish(side);
}

static void wish_target(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.max_recv = wish_recv;
    attr.max_send = MAX_RECV;
    side_open_pair(side, &attr);
    struct region sink = region_make(side, MEMORY_UNREGISTERED, MAX_RECV, 0);
    const uint64_t limit = limit_of_both(side);
    EXPECT_EQUAL(side->info.max_recv, limit < wish_recv ? limit : wish_recv);
    EXPECT_EQUAL(side->info.max_send, MAX_RECV);
    EXPECT_EQUAL(POST_AND_WAIT(&side->queue, rdmux_recv(side->ep, sink.addr, MAX_RECV, NULL, CTX(1)),
                               RDMUX_WC_RECV, CTX(1))
                     .length,
                 MAX_RECV);
    EXPECT_PATTERN(sink.addr, MAX_RECV, side->seed);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ shared receives */

enum {
    SRQ_EPS = 2,
    SRQ_MESSAGES = 200, /* by each endpoint */
    SRQ_TOTAL = SRQ_EPS * SRQ_MESSAGES,
    SRQ_DEPTH = 16,
    SRQ_SIZE = 3000,
};

static size_t srq_length(uint64_t ep, uint64_t number)
{
    return 16 + (number * 37 + ep * 11) % (SRQ_SIZE - 16);
}

static void srq_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *eps[SRQ_EPS] = { side->ep, side_pair(side, NULL) };
    uint8_t bytes[SRQ_EPS][SRQ_SIZE];
    for (uint64_t i = 0; i < SRQ_MESSAGES; i++) {
        for (uint64_t e = 0; e < SRQ_EPS; e++) {
            if (i > 0) {
                (void)WAIT_OF(&side->queue, eps[e], RDMUX_WC_SEND, CTX(i - 1), RDMUX_OK);
            }
            memcpy(bytes[e], &e, 8);
            memcpy(bytes[e] + 8, &i, 8);
            pattern_fill(bytes[e] + 16, srq_length(e, i) - 16, side->seed + e + 10 * i, 0);
            EXPECT_OK(rdmux_send(eps[e], bytes[e], srq_length(e, i), NULL, CTX(i), 0));
        }
    }
    for (uint64_t e = 0; e < SRQ_EPS; e++) {
        (void)WAIT_OF(&side->queue, eps[e], RDMUX_WC_SEND, CTX(SRQ_MESSAGES - 1), RDMUX_OK);
    }
    side_finish(side);
}

static struct rdmux_srq *srq_make(struct side *side, uint32_t depth)
{
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    struct rdmux_srq *srq = NULL;
    attr.depth = depth;
    EXPECT_OK(rdmux_srq_create(side->fabric, side->queue.cq, &attr, &srq));
    return srq;
}

static void srq_target(struct side *side)
{
    static uint8_t bytes[SRQ_DEPTH][SRQ_SIZE];
    side_open(side, NULL);
    side_meet(side);
    struct rdmux_srq *srq = srq_make(side, SRQ_DEPTH);
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.srq = srq;
    struct rdmux_ep *eps[SRQ_EPS] = { side_pair(side, &attr), side_pair(side, &attr) };
    uint64_t next[SRQ_EPS] = { 0 };
    struct rdmux_mr *mr = NULL;
    EXPECT_OK(rdmux_mr_register(side->fabric, bytes, sizeof(bytes), RDMUX_ACCESS_LOCAL_WRITE, &mr));
    for (uint64_t i = 0; i < SRQ_DEPTH; i++) {
        EXPECT_OK(rdmux_srq_recv(srq, bytes[i], SRQ_SIZE, mr, CTX(i)));
    }
    EXPECT_STATUS(rdmux_recv(eps[0], bytes[0], SRQ_SIZE, NULL, CTX(0)), RDMUX_INVALID);
    for (uint64_t i = 0; i < SRQ_TOTAL; i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK &&
                   CTX_NUMBER(wc.context) < SRQ_DEPTH,
               "message %" PRIu64 ": %s", i, wc_text(&wc));
        const uint8_t *message = bytes[CTX_NUMBER(wc.context)];
        uint64_t e = 0;
        uint64_t number = 0;
        memcpy(&e, message, 8);
        memcpy(&number, message + 8, 8);
        EXPECT(e < SRQ_EPS && wc.ep == eps[e], "message %" PRIu64 " names another endpoint", i);
        EXPECT_EQUAL(number, next[e]);
        EXPECT_EQUAL(wc.length, srq_length(e, number));
        EXPECT_PATTERN(message + 16, srq_length(e, number) - 16, side->seed + e + 10 * number);
        next[e]++;
        EXPECT_OK(rdmux_srq_recv(srq, bytes[CTX_NUMBER(wc.context)], SRQ_SIZE, mr, wc.context));
    }
    EXPECT_STATUS(rdmux_srq_destroy(srq), RDMUX_INVALID);
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    side_close_ep(side, eps[0]);
    side_close_ep(side, eps[1]);
    EXPECT_OK(rdmux_srq_destroy(srq));
    rdmux_mr_deregister(mr);
    side_end(side);
}

/* A full SRQ: AGAIN, no event, and an entry taken makes room. */
static void srq_full_target(struct side *side)
{
    uint8_t bytes[8];
    side_open(side, NULL);
    side_meet(side);
    struct rdmux_srq *srq = srq_make(side, 4);
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.srq = srq;
    struct rdmux_ep *ep = side_pair(side, &attr);
    const struct rdmux_sge sges[6] = {
        { &bytes[0], 1, NULL }, { &bytes[1], 1, NULL }, { &bytes[2], 1, NULL },
        { &bytes[3], 1, NULL }, { &bytes[4], 1, NULL }, { &bytes[5], 1, NULL },
    };
    struct rdmux_wr wrs[6];
    size_t posted = 99;
    for (uint64_t i = 0; i < COUNT_OF(wrs); i++) {
        wrs[i] = (struct rdmux_wr){
            .op = RDMUX_OP_RECV, .context = CTX(i), .sges = &sges[i], .sge_count = 1
        };
    }
    EXPECT_STATUS(rdmux_srq_post_recv(srq, wrs, COUNT_OF(wrs), &posted), RDMUX_AGAIN);
    EXPECT_EQUAL(posted, 4);
    BARRIER(side);
    BARRIER(side);
    (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(0));
    (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
    (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(2));
    EXPECT_OK(rdmux_srq_post_recv(srq, wrs + 3, 3, &posted));
    EXPECT_EQUAL(posted, 3);
    EXPECT_STATUS(rdmux_srq_recv(srq, bytes + 6, 1, NULL, CTX(6)), RDMUX_AGAIN);
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    side_close_ep(side, ep);
    EXPECT_OK(rdmux_srq_destroy(srq)); /* with receives in it, dropped without completion */
    EXPECT_QUIET(&side->queue);
    side_end(side);
}

enum { UNTAKEN_SHORT = 8, UNTAKEN_LONG = 1024, UNTAKEN_POLLS = 64 };

/* An endpoint ends. The SRQ's receives remain for the other, and none of them completes with the
 * end. */
static void srq_survives_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *first = side->ep;
    struct rdmux_ep *second = side_pair(side, NULL);
    EXPECT_OK(rdmux_ep_shutdown(first, side->patient_ms));
    BARRIER(side);
    for (uint64_t i = 0; i < 4; i++) {
        EXPECT_OK(rdmux_send(second, &i, 8, NULL, CTX(i), 0));
        (void)WAIT_OF(&side->queue, second, RDMUX_WC_SEND, CTX(i), RDMUX_OK);
    }
    side_finish(side);
}

static void srq_survives_target(struct side *side)
{
    uint64_t words[4] = { 99, 99, 99, 99 };
    side_open(side, NULL);
    side_meet(side);
    struct rdmux_srq *srq = srq_make(side, 4);
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.srq = srq;
    struct rdmux_ep *first = side_pair(side, &attr);
    struct rdmux_ep *second = side_pair(side, &attr);
    for (uint64_t i = 0; i < 4; i++) {
        EXPECT_OK(rdmux_srq_recv(srq, &words[i], 8, NULL, CTX(i)));
    }
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.opcode == RDMUX_WC_DISCONNECTED && wc.ep == first && wc.status == RDMUX_OK, "got %s",
           wc_text(&wc));
    BARRIER(side);
    for (uint64_t i = 0; i < 4; i++) {
        wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_RECV && wc.ep == second && wc.status == RDMUX_OK &&
                   wc.context == CTX(i),
               "message %" PRIu64 ": %s", i, wc_text(&wc));
        EXPECT_EQUAL(words[i], i);
    }
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    side_close_ep(side, first);
    side_close_ep(side, second);
    EXPECT_OK(rdmux_srq_destroy(srq));
    side_end(side);
}

/* A message has arrived on an endpoint that is closed before the program takes it. Its receive is
 * available to the other endpoint with its full room. */
static void srq_untaken_initiator(struct side *side)
{
    static uint8_t bytes[UNTAKEN_LONG];
    side_open_pair(side, NULL);
    struct rdmux_ep *first = side->ep;
    struct rdmux_ep *second = side_pair(side, NULL);
    pattern_fill(bytes, sizeof(bytes), side->seed, 0);
    (void)POST_AND_WAIT(
        &side->queue,
        rdmux_send(first, bytes, UNTAKEN_SHORT, NULL, CTX(1), flag_if_there(side, RDMUX_PLACED)),
        RDMUX_WC_SEND, CTX(1));
    BARRIER(side);
    (void)WAIT_OF(&side->queue, first, RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);
    BARRIER(side); /* the first endpoint is closed */
    EXPECT_OK(rdmux_send(second, bytes, UNTAKEN_LONG, NULL, CTX(2), 0));
    (void)WAIT_OF(&side->queue, second, RDMUX_WC_SEND, CTX(2), RDMUX_OK);
    side_finish(side);
}

static void srq_untaken_target(struct side *side)
{
    static uint8_t bytes[UNTAKEN_LONG];
    side_open(side, NULL);
    side_meet(side);
    struct rdmux_srq *srq = srq_make(side, 1);
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.srq = srq;
    struct rdmux_ep *first = side_pair(side, &attr);
    struct rdmux_ep *second = side_pair(side, &attr);
    EXPECT_OK(rdmux_srq_recv(srq, bytes, sizeof(bytes), NULL, CTX(7)));
    BARRIER(side); /* the message has arrived */
    for (unsigned i = 0; i < UNTAKEN_POLLS; i++) {
        EXPECT_EQUAL(rdmux_cq_poll(side->queue.cq, NULL, 0), 0);
    }
    side_close_ep(side, first);
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.opcode == RDMUX_WC_RECV && wc.ep == second && wc.status == RDMUX_OK &&
               wc.context == CTX(7) && wc.length == UNTAKEN_LONG,
           "got %s", wc_text(&wc));
    EXPECT_PATTERN(bytes, UNTAKEN_LONG, side->seed);
    BARRIER(side);
    side_close_ep(side, second);
    EXPECT_OK(rdmux_srq_destroy(srq));
    side_end(side);
}

/* --------------------------------------------------------------------- completions without end */

enum { BUSY_POLLS_MAX = 200000 };

/* Posts a request for each completion taken, so that one is always available, and takes them one by
 * one. Messages must arrive nevertheless, on another endpoint and on the same one. */
static void busy_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *other = side_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    uint64_t words[2] = { 0, 0 };
    uint64_t under_way = 0;
    unsigned messages = 0;
    unsigned polls = 0;
    EXPECT_OK(rdmux_recv(side->ep, &words[0], 8, NULL, CTX(1)));
    EXPECT_OK(rdmux_recv(other, &words[1], 8, NULL, CTX(2)));
    BARRIER(side); /* receives are posted */
    BARRIER(side); /* the messages are sent */
    while (messages < 2) {
        /* A bound in polls: heartbeats come by time and would end the stall of a broken queue. */
        EXPECT(++polls < BUSY_POLLS_MAX,
               "%u of 2 messages came within %u polls that all returned "
               "completions of writes",
               messages, polls);
        if (polls % 64 == 0) {
            (void)sched_yield();
        }
        while (under_way < 8 &&
               rdmux_write(side->ep, &words[0], 0, NULL, remote, 0, CTX(3), 0) == RDMUX_OK) {
            under_way++;
        }
        struct rdmux_wc wc;
        if (rdmux_cq_poll(side->queue.cq, &wc, 1) == 0) {
            continue;
        }
        EXPECT(wc.status == RDMUX_OK, "%s", wc_text(&wc));
        if (wc.opcode == RDMUX_WC_RECV) {
            messages++;
        } else if (wc.opcode == RDMUX_WC_WRITE) {
            under_way--;
        }
    }
    EXPECT_EQUAL(words[0], mix64(side->seed));
    EXPECT_EQUAL(words[1], mix64(side->seed + 1));
    for (; under_way > 0; under_way--) {
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(3));
    }
    side_finish(side);
}

static void busy_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *other = side_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 4096, RDMUX_ACCESS_REMOTE_WRITE);
    uint64_t words[2] = { mix64(side->seed), mix64(side->seed + 1) };
    give_token(side, &region);
    BARRIER(side);
    EXPECT_OK(rdmux_send(side->ep, &words[0], 8, NULL, CTX(1), 0));
    EXPECT_OK(rdmux_send(other, &words[1], 8, NULL, CTX(2), 0));
    (void)WAIT_OF(&side->queue, side->ep, RDMUX_WC_SEND, CTX(1), RDMUX_OK);
    (void)WAIT_OF(&side->queue, other, RDMUX_WC_SEND, CTX(2), RDMUX_OK);
    BARRIER(side);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "2.2, 2.1, 1.4",
      "1,001 sends without a receive wait, and arrive in order once receives are posted",
      NEEDS_SEND, 20, 0, early_initiator, early_target },
    { "2.2, 2.1, -2.2",
      "24 MiB of sends without a receive wait, and arrive in order as receives are posted",
      NEEDS_SEND, 0, 0, long_early_initiator, long_early_target },
    { "1.5, -1.5",
      "a peer that posts no receive stops neither another endpoint nor its own reads, writes and "
      "atomics",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ | NEEDS_SETTLED, 0, 0, blocked_initiator,
      blocked_target },
    { "1.5",
      "messages arrive although the program posts a request for each completion that it takes",
      NEEDS_SEND | NEEDS_WRITE, 0, 0, busy_initiator, busy_target },
    { "13.4, 1.12, -13.4",
      "a full receive queue gives AGAIN and no event; an entry taken is room for one receive",
      NEEDS_PLACED | NEEDS_SEND, 0, 0, full_initiator, full_target },
    { "5.1, 5.2, 5.3, 5.6, -5.1, -5.2, -5.3, -5.6",
      "a message one byte longer than its receive ends both endpoints with LENGTH, and no other",
      NEEDS_SEND, 0, 0, longer_initiator, longer_target },
    { "5.1, 5.2, 5.3, 5.6, -5.1, -5.2, -5.3, -5.6",
      "a message of 1 MiB for a receive of 64 bytes ends both endpoints with LENGTH, and no other",
      NEEDS_SEND, 0, 0, much_longer_initiator, much_longer_target },
    { "5.1, 5.2, 5.3, 5.6, -5.1, -5.2, -5.3, -5.6",
      "a message one byte longer than its receive of 3 MiB ends both endpoints with LENGTH, and no "
      "other",
      NEEDS_SEND, 0, 0, long_longer_initiator, long_longer_target },
    { "5.1, 5.2, 5.3, 5.6, -5.1, -5.2, -5.3, -5.6",
      "a message of one byte for a receive of none ends both endpoints with LENGTH, and no other",
      NEEDS_SEND, 0, 0, empty_longer_initiator, empty_longer_target },
    { "12.1, 1.13, 2.7",
      "a receive of no bytes is taken by a send of none, however both are posted, and by any "
      "write_imm",
      NEEDS_IMM | NEEDS_PLACED | NEEDS_SEND, 0, 0, empty_initiator, empty_target },
    { "5.4, 5.5, -5.4, -5.5",
      "a direction allows the smaller of max_send and max_recv; a longer send is refused with "
      "LENGTH",
      NEEDS_SEND, 0, 0, limits_initiator, limits_target },
    { "5.7, 5.4, 5.5, -5.4",
      "a wish for longer messages than the path takes is granted as far as path and peer go, and "
      "both sides see how far",
      NEEDS_SEND, 0, 0, wish_initiator, wish_target },
    { "2.14, 2.1, 15.1",
      "two endpoints share an SRQ: each entry names its endpoint, and messages come in that "
      "endpoint's order",
      NEEDS_SRQ | NEEDS_SEND, 0, 0, srq_initiator, srq_target },
    { "13.4, 2.14, -2.14, -13.4",
      "a full SRQ gives AGAIN and no event; receives left in it are dropped without completion",
      NEEDS_SRQ | NEEDS_PLACED | NEEDS_SEND, 0, 0, full_initiator, srq_full_target },
    { "7.9, -7.9", "an endpoint that ends leaves the receives of its SRQ to the others",
      NEEDS_SRQ | NEEDS_SEND, 0, 0, srq_survives_initiator, srq_survives_target },
    { "7.9, 2.14, -7.9",
      "a receive of an SRQ whose endpoint was closed before its message was taken has its whole "
      "room for other endpoints",
      NEEDS_SRQ | NEEDS_SEND, 0, 0, srq_untaken_initiator, srq_untaken_target },
};

const struct suite receive_suite = { "receive", cases, COUNT_OF(cases) };
