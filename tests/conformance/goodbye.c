/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the peer observes of each way in which a program can end an endpoint. */
#include "harness.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

enum { MESSAGES = 3, SHORT_MS = 200 };

enum way {
    SHUTDOWN,       /* waits for the end */
    SHUTDOWN_EVENT, /* waits for the end's event */
    SHUTDOWN_CUT,   /* closes at once */
    SHUTDOWN_STUCK, /* times out, because the peer has no receive */
    CLOSE,
    WAYS,
};

static const struct {
    const char *name;
    bool orderly; /* the peer may get RDMUX_OK */
    bool abrupt;  /* the peer may get PEER_GONE */
} ways[WAYS] = {
    [SHUTDOWN] = { "shutdown, then close", true, false },
    [SHUTDOWN_EVENT] = { "shutdown with timeout 0, its event, then close", true, false },
    [SHUTDOWN_CUT] = { "shutdown with timeout 0, then close at once", true, true },
    [SHUTDOWN_STUCK] = { "a shutdown that timed out, then close", false, true },
    [CLOSE] = { "close alone", false, true },
};

static void end_it(struct side *side, struct rdmux_ep *ep, enum way way)
{
    switch (way) {
    case SHUTDOWN:
        EXPECT_OK(rdmux_ep_shutdown(ep, side->patient_ms));
        break;
    case SHUTDOWN_EVENT:
        EXPECT_STATUS(rdmux_ep_shutdown(ep, 0), RDMUX_IN_PROGRESS);
        (void)WAIT_OF(&side->queue, ep, RDMUX_WC_DISCONNECTED, NULL, RDMUX_OK);
        break;
    case SHUTDOWN_CUT:
        EXPECT_STATUS(rdmux_ep_shutdown(ep, 0), RDMUX_IN_PROGRESS);
        break;
    case SHUTDOWN_STUCK:
        EXPECT_STATUS(rdmux_ep_shutdown(ep, SHORT_MS), RDMUX_TIMED_OUT);
        break;
    case CLOSE:
    case WAYS:
        break;
    }
}

static void goodbye_initiator(struct side *side)
{
    side_open(side, NULL);
    side_meet(side);
    for (int way = 0; way < WAYS; way++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        BARRIER(side); /* receives are posted */
        STAND(ways[way].name);
        for (uint64_t i = 0; i < MESSAGES; i++) {
            EXPECT_OK(rdmux_send(ep, &i, sizeof(i), NULL, CTX(i), RDMUX_INLINE | RDMUX_UNSIGNALED));
        }
        end_it(side, ep, (enum way)way);
        side_close_ep(side, ep);
        EXPECT_QUIET(&side->queue);
        BARRIER(side);
    }
    side_finish(side);
}

/* Takes entries up to the end. Returns the end's status and the number of messages before it. */
static uint32_t see_end(struct side *side, const struct rdmux_ep *ep, uint64_t *came,
                        const uint64_t *words)
{
    for (*came = 0;;) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.ep == ep, "an entry of another endpoint: %s", wc_text(&wc));
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            return wc.status;
        }
        EXPECT(wc.opcode == RDMUX_WC_RECV, "got %s", wc_text(&wc));
        if (wc.status == RDMUX_OK) {
            EXPECT(CTX_NUMBER(wc.context) == *came && words[*came] == *came,
                   "message %" PRIu64 ": %s", *came, wc_text(&wc));
            ++*came;
        }
    }
}

static void goodbye_target(struct side *side)
{
    uint64_t words[MESSAGES];
    side_open(side, NULL);
    side_meet(side);
    for (int way = 0; way < WAYS; way++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        uint64_t came = 0;
        memset(words, 0xff, sizeof(words));
        for (uint64_t i = 0; i < MESSAGES && way != SHUTDOWN_STUCK; i++) {
            EXPECT_OK(rdmux_recv(ep, &words[i], sizeof(words[i]), NULL, CTX(i)));
        }
        BARRIER(side);
        STAND(ways[way].name);
        uint32_t status = see_end(side, ep, &came, words);
        EXPECT((status == RDMUX_OK && ways[way].orderly) ||
                   (status == RDMUX_PEER_GONE && ways[way].abrupt),
               "after %s the peer saw %s", ways[way].name,
               rdmux_status_name((enum rdmux_status)status));
        EXPECT(status != RDMUX_OK || came == MESSAGES,
               "after %s RDMUX_OK came with %" PRIu64 " of %d messages", ways[way].name, came,
               MESSAGES);
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        EXPECT_OK(rdmux_ep_info(ep, &info));
        EXPECT_EQUAL(info.status, status);
        EXPECT_QUIET(&side->queue); /* it was the last entry, and the only end */
        BARRIER(side);
        side_close_ep(side, ep);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------------ before accept */

enum { EARLY_ROUNDS = 8 };

/* The last connection is shut down, without a message, which would first have to be received. */
static bool is_orderly(int round)
{
    return round == EARLY_ROUNDS - 1;
}

static void early_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    side_open(side, NULL);
    side_meet(side);
    for (int round = 0; round < EARLY_ROUNDS; round++) {
        struct rdmux_ep *ep = NULL;
        BARRIER(side);
        EXPECT_OK(rdmux_connect(side->fabric, side->queue.cq, side->address, &attr,
                                side->patient_ms, &ep));
        for (uint64_t i = 0; i < MESSAGES && !is_orderly(round); i++) {
            EXPECT_OK(rdmux_send(ep, &i, sizeof(i), NULL, CTX(i), RDMUX_INLINE | RDMUX_UNSIGNALED));
        }
        if (is_orderly(round)) {
            EXPECT_OK(rdmux_ep_shutdown(ep, side->patient_ms));
        }
        EXPECT_OK(rdmux_ep_close(ep));
        EXPECT_QUIET(&side->queue);
        BARRIER(side);
    }
    side_finish(side);
}

/* Every other connection has ended before the accept that returns it. */
static struct rdmux_ep *accept_early(struct side *side, int round)
{
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    enum rdmux_status status = RDMUX_AGAIN;
    bool waits = round % 2 == 0 && !is_orderly(round);
    if (!waits) {
        EXPECT_OK(rdmux_listener_next(side->listener, side->patient_ms, &peer));
        status = rdmux_accept(side->listener, side->queue.cq, &attr, 0, &ep); /* accepts it */
        EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN, "accept with timeout 0 gave %s",
               rdmux_status_name(status));
        BARRIER(side); /* the other side has closed */
    }
    if (status == RDMUX_AGAIN) {
        EXPECT_OK(rdmux_accept(side->listener, side->queue.cq, &attr, side->patient_ms, &ep));
    }
    if (waits) {
        BARRIER(side);
    }
    side_track(side, ep);
    return ep;
}

static void early_target(struct side *side)
{
    uint64_t words[MESSAGES];
    side_open(side, NULL);
    side_meet(side);
    for (int round = 0; round < EARLY_ROUNDS; round++) {
        uint64_t came = 0;
        BARRIER(side);
        struct rdmux_ep *ep = accept_early(side, round);
        memset(words, 0xff, sizeof(words));
        for (uint64_t i = 0; i < MESSAGES; i++) {
            enum rdmux_status status = rdmux_recv(ep, &words[i], sizeof(words[i]), NULL, CTX(i));
            EXPECT(status == RDMUX_OK || status == RDMUX_PEER_GONE, "a receive gave %s",
                   rdmux_status_name(status));
        }
        uint32_t status = see_end(side, ep, &came, words);
        EXPECT_EQUAL(status, is_orderly(round) ? RDMUX_OK : RDMUX_PEER_GONE);
        EXPECT_QUIET(&side->queue);
        side_close_ep(side, ep);
    }
    side_finish(side);
}

/* The SRQ has receives before accept, so that messages can be placed. */
static void placed_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    side_open(side, NULL);
    side_meet(side);
    BARRIER(side);
    EXPECT_OK(
        rdmux_connect(side->fabric, side->queue.cq, side->address, &attr, side->patient_ms, &ep));
    for (uint64_t i = 0; i < MESSAGES; i++) {
        POST_AND_WAIT(&side->queue,
                      rdmux_send(ep, &i, sizeof(i), NULL, CTX(i), RDMUX_INLINE | RDMUX_PLACED),
                      RDMUX_WC_SEND, CTX(i));
    }
    EXPECT_OK(rdmux_ep_close(ep));
    BARRIER(side);
    side_finish(side);
}

static void placed_target(struct side *side)
{
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    struct rdmux_srq *srq = NULL;
    uint64_t words[MESSAGES];
    uint64_t came = 0;
    side_open(side, NULL);
    side_meet(side);
    EXPECT_OK(rdmux_srq_create(side->fabric, side->queue.cq, NULL, &srq));
    for (uint64_t i = 0; i < MESSAGES; i++) {
        EXPECT_OK(rdmux_srq_recv(srq, &words[i], sizeof(words[i]), NULL, CTX(i)));
    }
    attr.srq = srq;
    BARRIER(side);
    EXPECT_OK(rdmux_listener_next(side->listener, side->patient_ms, &peer));
    enum rdmux_status status = rdmux_accept(side->listener, side->queue.cq, &attr, 0, &ep);
    EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN, "accept with timeout 0 gave %s",
           rdmux_status_name(status));
    BARRIER(side); /* all messages are placed, and the other side has closed */
    if (status == RDMUX_AGAIN) {
        EXPECT_OK(rdmux_accept(side->listener, side->queue.cq, &attr, side->patient_ms, &ep));
    }
    side_track(side, ep);
    EXPECT_EQUAL(see_end(side, ep, &came, words), RDMUX_PEER_GONE);
    EXPECT_EQUAL(came, MESSAGES);
    side_close_ep(side, ep);
    EXPECT_OK(rdmux_srq_destroy(srq));
    side_finish(side);
}

/* --------------------------------------------------------------------------- many, then the end */

enum {
    BURST = 200,
    BURST_ARRIVED = 64, /* fits unread into sockets of 4 KiB: a send to a closed peer resets the
                           connection, and what waits in the peer's socket is lost */
    BURST_RECEIVES = 240,
    BURST_QUIET_MS = 50,
    BURST_OTHERS = 6,
    BURST_SENDS = 1000,
    BURST_ANSWERS = 3,
    BURST_PAUSE_MS = 5
};

static struct rdmux_ep_attr burst_attr(const struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = BURST_RECEIVES;
    attr.recv_depth = BURST_RECEIVES;
    return attr;
}

/* Endpoints of the same cq without traffic. */
static void burst_others(struct side *side)
{
    for (unsigned i = 0; i < BURST_OTHERS; i++) {
        (void)side_pair(side, NULL);
    }
}

/* Counts the completed sends: all, or as many as fit if the receiver frees no room. */
static uint64_t burst_take(struct side *side, const struct rdmux_ep *ep, uint64_t count)
{
    uint64_t done = 0;
    uint64_t quiet_since = now_ns();
    while (done < count && ms_since(quiet_since) < (uint64_t)BURST_QUIET_MS * side->patience) {
        while (queue_poll(&side->queue) > 0) {
            struct rdmux_wc wc = NEXT(&side->queue);
            EXPECT(wc.opcode == RDMUX_WC_SEND && wc.ep == ep && wc.context == CTX(done) &&
                       wc.status == RDMUX_OK,
                   "entry %" PRIu64 " is %s", done, wc_text(&wc));
            done++;
            quiet_since = now_ns();
        }
    }
    sleep_ms(
        BURST_QUIET_MS *
        side->patience); /* a completion means that the bytes were sent, not that they arrived */
    return done;
}

/* The peer makes no call meanwhile. */
static void burst_initiator_of(struct side *side, uint64_t count)
{
    static uint64_t words[BURST];
    static uint64_t answers[BURST_ANSWERS]; /* there would be room for them */
    struct rdmux_ep_attr attr = burst_attr(side);
    side_open(side, NULL);
    side_meet(side);
    burst_others(side);
    struct rdmux_ep *ep = side_pair(side, &attr);
    for (uint64_t i = 0; i < BURST_ANSWERS; i++) {
        EXPECT_OK(rdmux_recv(ep, &answers[i], sizeof(answers[i]), NULL, CTX(BURST + i)));
    }
    BARRIER(side); /* receives are posted */
    BARRIER(side); /* and the peer polls no more */
    for (uint64_t i = 0; i < count; i++) {
        words[i] = mix64(side->seed + i);
        EXPECT_OK(rdmux_send(ep, &words[i], 8, NULL, CTX(i), 0));
    }
    const uint64_t done = burst_take(side, ep, count);
    side_close_ep(side, ep);
    GIVE(side, &done, sizeof(done));
    BARRIER(side);
    side_finish(side);
}

static void burst_initiator(struct side *side)
{
    burst_initiator_of(side, BURST);
}

static void arrived_initiator(struct side *side)
{
    burst_initiator_of(side, BURST_ARRIVED);
}

/* Returns whether this is the entry of a send posted after the peer had gone; its outcome is
 * unspecified. */
static bool is_late_send(const struct rdmux_ep *ep, const struct rdmux_wc *wc)
{
    return wc->opcode == RDMUX_WC_SEND && wc->ep == ep && wc->context == CTX(BURST_SENDS);
}

/* late_sends: sends posted to the departed peer before the first poll. */
static void burst_target_of(struct side *side, unsigned late_sends)
{
    static uint64_t words[BURST_RECEIVES];
    uint64_t done = 0;
    bool is_over = false;
    struct rdmux_ep_attr attr = burst_attr(side);
    side->manual = true; /* no service thread */
    side_open(side, NULL);
    side_meet(side);
    burst_others(side);
    struct rdmux_ep *ep = side_pair(side, &attr);
    for (uint64_t i = 0; i < BURST_RECEIVES; i++) {
        EXPECT_OK(rdmux_recv(ep, &words[i], 8, NULL, CTX(i)));
    }
    BARRIER(side);
    const uint64_t since = now_ns(); /* until each side knows the other's receives */
    while (ms_since(since) < (uint64_t)BURST_QUIET_MS * side->patience) {
        EXPECT_EQUAL(queue_poll(&side->queue), 0);
    }
    side->manual = false; /* it makes no call */
    BARRIER(side);
    TAKE(side, &done, sizeof(done));
    side->manual = true;
    for (unsigned i = 0; i < late_sends; i++) {
        enum rdmux_status status = rdmux_send(ep, &done, 8, NULL, CTX(BURST_SENDS), 0);
        EXPECT(status == RDMUX_OK || status == RDMUX_PEER_GONE,
               "a send to a peer that has closed gave %s", rdmux_status_name(status));
        sleep_ms(BURST_PAUSE_MS); /* the peer's host answers the first */
    }
    for (uint64_t i = 0; i < BURST_RECEIVES;) {
        struct rdmux_wc wc = NEXT(&side->queue);
        if (is_late_send(ep, &wc)) {
            continue;
        }
        is_over = is_over || (i >= done && wc.status == RDMUX_FLUSHED);
        EXPECT(wc.opcode == RDMUX_WC_RECV && wc.context == CTX(i) &&
                   wc.status == (is_over ? RDMUX_FLUSHED : RDMUX_OK),
               "%" PRIu64 " messages came before the peer closed; entry %" PRIu64 " is %s", done, i,
               wc_text(&wc));
        EXPECT(is_over || words[i] == mix64(side->seed + i), "message %" PRIu64 " has other bytes",
               i);
        i++;
    }
    struct rdmux_wc last = NEXT(&side->queue);
    while (is_late_send(ep, &last)) {
        last = NEXT(&side->queue);
    }
    EXPECT(last.opcode == RDMUX_WC_DISCONNECTED && last.ep == ep && last.status == RDMUX_PEER_GONE,
           "behind them came %s", wc_text(&last));
    BARRIER(side);
    side_finish(side);
}

static void burst_target(struct side *side)
{
    burst_target_of(side, 0);
}

static void arrived_target(struct side *side)
{
    burst_target_of(side, BURST_ANSWERS);
}

/* --------------------------------------------------------- one message that has no receive yet */

enum { UNMET_POLLS = 64 };

static _Atomic uint64_t stopped_at_ns; /* 0: the clock runs */

static uint64_t clock_that_stops(void *user)
{
    (void)user;
    const uint64_t stopped = atomic_load(&stopped_at_ns);
    return stopped != 0 ? stopped : now_ns();
}

/* A send completes without a receive of the peer where messages arrive without one. */
static void unmet_initiator(struct side *side)
{
    const uint64_t word = mix64(side->seed);
    const struct rdmux_ep_attr attr = still_ep_attr_of(side);
    side_open_pair(side, &attr);
    BARRIER(side);
    EXPECT_OK(rdmux_send(side->ep, &word, sizeof(word), NULL, CTX(0), 0));
    const uint64_t done = burst_take(side, side->ep, 1);
    side_close_ep(side, side->ep);
    GIVE(side, &done, sizeof(done));
    BARRIER(side);
    side_finish(side);
}

/* The peer has closed before the receive is posted. The time that its end waits for the receive
 * does not pass, however late this process is. */
static void unmet_target(struct side *side)
{
    const struct rdmux_ep_attr attr = still_ep_attr_of(side);
    uint64_t word = 0;
    uint64_t done = 0;
    side->manual = true;
    struct rdmux_fabric_attr fabric_attr = fabric_attr_of(side);
    fabric_attr.clock_ns = clock_that_stops;
    side_open(side, &fabric_attr);
    side_meet(side);
    struct rdmux_ep *ep = side_pair(side, &attr);
    atomic_store(&stopped_at_ns, now_ns());
    BARRIER(side);
    TAKE(side, &done, sizeof(done)); /* progresses meanwhile */
    if (done == 0) {
        atomic_store(&stopped_at_ns, 0); /* it may have arrived or not */
    }
    for (unsigned i = 0; done != 0 && i < UNMET_POLLS; i++) {
        EXPECT_OK(rdmux_fabric_progress(side->fabric));
        EXPECT_QUIET(&side->queue);
    }
    enum rdmux_status status = rdmux_recv(ep, &word, sizeof(word), NULL, CTX(0));
    EXPECT(status == RDMUX_OK || (status == RDMUX_PEER_GONE && done == 0), "the receive gave %s",
           rdmux_status_name(status));
    struct rdmux_wc wc = NEXT(&side->queue);
    if (wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK) {
        EXPECT_EQUAL(word, mix64(side->seed));
        wc = NEXT(&side->queue);
    } else {
        EXPECT(done == 0, "a message that arrived before its receive gave %s", wc_text(&wc));
        if (wc.opcode == RDMUX_WC_RECV) { /* flushed */
            wc = NEXT(&side->queue);
        }
    }
    EXPECT(wc.opcode == RDMUX_WC_DISCONNECTED && wc.status == RDMUX_PEER_GONE, "got %s",
           wc_text(&wc));
    atomic_store(&stopped_at_ns, 0);
    BARRIER(side);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "9.13, 9.2, 9.3, 9.11, 7.4, -9.13",
      "the peer sees one end: RDMUX_OK after a shutdown, PEER_GONE after a close without one",
      NEEDS_SEND, 0, 0, goodbye_initiator, goodbye_target },
    { "N.20, 9.11, -N.20",
      "a connector that sends and closes at once is accepted, before and after its end was seen",
      NEEDS_SEND, 0, 0, early_initiator, early_target },
    { "N.20, 3.5, 7.3", "what was placed before the connector closed is received after accept",
      NEEDS_SEND | NEEDS_SRQ | NEEDS_PLACED, 0, 0, placed_initiator, placed_target },
    { "N.20, 9.11",
      "a message that arrived before its receive is received after its sender has closed",
      NEEDS_SEND, 0, CASE_MANUAL, unmet_initiator, unmet_target },
    { "7.3, 7.4, 9.11",
      "200 messages that came before the peer closed come before its end, though this side made no "
      "call meanwhile",
      NEEDS_SEND, 0, CASE_MANUAL, burst_initiator, burst_target },
    { "7.3, 7.4, 9.11",
      "64 messages that came before the peer closed come before its end, though sends to it are "
      "posted first",
      NEEDS_SEND, 0, CASE_MANUAL, arrived_initiator, arrived_target },
};

const struct suite goodbye_suite = { "goodbye", cases, COUNT_OF(cases) };
