/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Peers that die, stop or vanish: rules 7 and 8. The peer is a third process, forked before any rdmux call. */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SOON_MS = 2000 }; /* the kernel tells at once that a process has ended */

/* ------------------------------------------------------------------------------ what an ending endpoint owes */

enum { REQUESTS_MAX = 256 };

/* Requests of one endpoint, by context; and what has come of them. */
struct ledger {
    unsigned completed[REQUESTS_MAX];
    bool posted[REQUESTS_MAX];
    bool unsignaled[REQUESTS_MAX];
    bool must_fail[REQUESTS_MAX]; /* unsignaled, and cannot have succeeded */
    bool receive[REQUESTS_MAX];
    uint64_t received_ok;
    bool send_flushed;
    bool recv_flushed;
};

static void ledger_add(struct ledger *ledger, uint64_t context, bool receive, bool unsignaled)
{
    EXPECT(context < REQUESTS_MAX && !ledger->posted[context],
           "the case is wrong: context %" PRIu64, context);
    ledger->posted[context] = true;
    ledger->receive[context] = receive;
    ledger->unsignaled[context] = unsignaled;
}

static void ledger_take(struct ledger *ledger, const struct rdmux_wc *wc, enum rdmux_status cause)
{
    uint64_t context = CTX_NUMBER(wc->context);
    EXPECT(context < REQUESTS_MAX && ledger->posted[context], "a completion of nothing: %s",
           wc_text(wc));
    EXPECT(++ledger->completed[context] == 1, "completed twice: %s", wc_text(wc));
    bool receive = wc->opcode == RDMUX_WC_RECV || wc->opcode == RDMUX_WC_RECV_WRITE_IMM;
    EXPECT(receive == ledger->receive[context], "a wrong opcode: %s", wc_text(wc));
    bool *flushed = receive ? &ledger->recv_flushed : &ledger->send_flushed;
    if (wc->status == RDMUX_OK) {
        EXPECT(!ledger->unsignaled[context], "an unsignaled request that succeeded completed: %s",
               wc_text(wc));
        EXPECT(!*flushed, "after a flushed one came %s", wc_text(wc));
        ledger->received_ok += receive;
        return;
    }
    EXPECT(wc->status == RDMUX_FLUSHED || wc->status == (uint32_t)cause, "got %s", wc_text(wc));
    EXPECT(wc->status == RDMUX_FLUSHED || !*flushed, "the cause comes after a flushed one: %s",
           wc_text(wc));
    *flushed = *flushed || wc->status == RDMUX_FLUSHED;
}

/* Takes everything up to DISCONNECTED with this cause; then all must have completed, once. */
static void ledger_settle(struct queue *queue, struct rdmux_ep *ep, struct ledger *ledger,
                          enum rdmux_status cause)
{
    for (;;) {
        struct rdmux_wc wc = NEXT(queue);
        EXPECT(wc.ep == ep, "another endpoint has %s", wc_text(&wc));
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            EXPECT(wc.status == (uint32_t)cause && wc.context == NULL, "got %s, expected %s",
                   wc_text(&wc), rdmux_status_name(cause));
            break;
        }
        ledger_take(ledger, &wc, cause);
    }
    for (uint64_t i = 0; i < REQUESTS_MAX; i++) {
        bool owed = ledger->posted[i] && (!ledger->unsignaled[i] || ledger->must_fail[i]);
        EXPECT(!owed || ledger->completed[i] == 1, "request %" PRIu64 " never completed", i);
    }
    EXPECT_QUIET(queue);
}

static void expect_dead(struct side *side, struct rdmux_ep *ep, struct rdmux_remote *remote,
                        enum rdmux_status cause)
{
    uint64_t word = 0;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_token token = { { 0 } };
    struct rdmux_remote *none = NULL;
    EXPECT_OK(rdmux_ep_info(ep, &info));
    EXPECT_EQUAL(info.state, RDMUX_EP_ENDED);
    EXPECT_EQUAL(info.status, cause);
    EXPECT(info.text[0] != '\0', "an endpoint that failed has no text");
    EXPECT_STATUS(rdmux_send(ep, &word, 8, NULL, CTX(1), 0), cause);
    EXPECT_STATUS(rdmux_recv(ep, &word, 8, NULL, CTX(1)), cause);
    EXPECT_STATUS(rdmux_write(ep, NULL, 0, NULL, NULL, 0, CTX(1), RDMUX_PLACED), cause);
    if (remote != NULL) {
        EXPECT_STATUS(rdmux_write(ep, &word, 8, NULL, remote, 0, CTX(1), 0), cause);
        EXPECT_STATUS(rdmux_read(ep, &word, 8, NULL, remote, 0, CTX(1), RDMUX_UNSIGNALED), cause);
    }
    enum rdmux_status status = rdmux_remote_import(ep, &token, side->patient_ms, &none);
    EXPECT(status != RDMUX_OK && status != RDMUX_IN_PROGRESS && none == NULL, "an import gave %s",
           rdmux_status_name(status));
    status = rdmux_ep_shutdown(ep, side->patient_ms);
    EXPECT(status != RDMUX_OK && status != RDMUX_IN_PROGRESS, "a shutdown gave %s",
           rdmux_status_name(status));
    EXPECT_QUIET(&side->queue);
}

/* ------------------------------------------------------------------------------ killed */

enum { MESSAGES = 5, RECEIVES = 12, SENDS = 40, SEND_SIZE = 50000 };

static _Noreturn void victim_sleep(void)
{
    for (;;) {
        (void)pause();
    }
}

/* Sends a few messages, posts no receive, and never calls rdmux again. */
static void killed_victim(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, SEND_SIZE, ACCESS_ALL);
    give_token(side, &region);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, &i, 8, NULL, CTX(i), RDMUX_PLACED),
                            RDMUX_WC_SEND, CTX(i));
    }
    victim_ready(side);
    victim_sleep();
}

/* The target's own process: kills the victim when the initiator says so, and says when it is gone. */
static void killing_target_of(struct side *side, void (*body)(struct side *side), int signal)
{
    struct victim victim;
    victim_start(&victim, side, body);
    victim_await(&victim);
    BARRIER(side);
    victim_signal(&victim, signal);
    BARRIER(side);
    BARRIER(side);
    victim_end(&victim);
}

static void killed_target(struct side *side)
{
    killing_target_of(side, killed_victim, SIGKILL);
}

static void killed_initiator(struct side *side)
{
    static struct ledger ledger;
    static uint64_t words[RECEIVES];
    side_open_pair(side, NULL);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_remote *remote = take_remote(side, ep);
    struct region source = region_make(side, MEMORY_UNREGISTERED, SEND_SIZE, 0);
    struct region sink = region_make(side, MEMORY_REGISTERED, SEND_SIZE, ACCESS_SINK);
    for (uint64_t i = 0; i < RECEIVES; i++) {
        ledger_add(&ledger, i, true, false);
        EXPECT_OK(rdmux_recv(ep, &words[i], 8, NULL, CTX(i)));
    }
    BARRIER(side); /* it has sent what it wanted and will be killed */
    for (uint64_t i = 0; i < SENDS; i++) {
        uint64_t context = 100 + i;
        uint32_t flags = i % 2 == 1 ? RDMUX_UNSIGNALED : 0;
        bool reads = i % 4 == 3;
        /* It posted no receive, so no send can be placed: those that ask for it fail, and so complete. */
        bool placed = i % 4 == 1;
        enum rdmux_status status = reads
                                       ? rdmux_read(ep, sink.addr, SEND_SIZE, sink.mr, remote, 0,
                                                    CTX(context), flags)
                                       : rdmux_send(ep, source.addr, SEND_SIZE, NULL, CTX(context),
                                                    flags | (placed ? RDMUX_PLACED : 0));
        if (status != RDMUX_OK) {
            EXPECT_STATUS(status, RDMUX_PEER_GONE);
            break;
        }
        ledger_add(&ledger, context, false, flags != 0);
        ledger.must_fail[context] = placed;
    }
    BARRIER(side); /* it was killed */
    uint64_t start = now_ns();
    ledger_settle(&side->queue, ep, &ledger, RDMUX_PEER_GONE);
    EXPECT(ms_since(start) < SOON_MS * side->patience,
           "a killed peer was noticed after %" PRIu64 " ms", ms_since(start));
    EXPECT(ledger.received_ok == MESSAGES,
           "%" PRIu64 " of %d messages that had arrived were received", ledger.received_ok,
           MESSAGES);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        EXPECT_EQUAL(words[i], i);
    }
    expect_dead(side, ep, remote, RDMUX_PEER_GONE);
    BARRIER(side);
    side_end(side);
}

/* Killed while the initiator sleeps with nothing posted but receives: idle and by wait, then by poll(2) on the armed fd. */
static void killed_idle_initiator(struct side *side)
{
    struct rdmux_wc wc;
    size_t count = 0;
    uint8_t byte = 0;
    side_open_pair(side, NULL);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        EXPECT_OK(rdmux_recv(side->ep, &byte, 1, NULL, CTX(i)));
    }
    BARRIER(side);
    uint64_t start = now_ns();
    BARRIER(side);
    EXPECT_OK(rdmux_cq_wait(side->queue.cq, &wc, 1, SOON_MS * (int)side->patience, &count));
    EXPECT(wc.opcode == RDMUX_WC_RECV && wc.context == CTX(0) &&
               (wc.status == RDMUX_PEER_GONE || wc.status == RDMUX_FLUSHED),
           "got %s", wc_text(&wc));
    for (uint64_t i = 1; i < MESSAGES; i++) {
        (void)WAIT_STATUS(&side->queue, RDMUX_WC_RECV, CTX(i), RDMUX_FLUSHED);
    }
    (void)WAIT_STATUS(&side->queue, RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);
    EXPECT(ms_since(start) < SOON_MS * side->patience, "noticed after %" PRIu64 " ms",
           ms_since(start));
    expect_dead(side, side->ep, NULL, RDMUX_PEER_GONE);
    BARRIER(side);
    side_end(side);
}

static void idle_victim(struct side *side)
{
    side_open_pair(side, NULL);
    victim_ready(side);
    victim_sleep();
}

static void killed_idle_target(struct side *side)
{
    killing_target_of(side, idle_victim, SIGKILL);
}

static void killed_armed_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    EXPECT_QUIET(&side->queue);
    enum rdmux_status status = RDMUX_AGAIN;
    while (status == RDMUX_AGAIN) {
        EXPECT_QUIET(&side->queue);
        status = rdmux_cq_arm(side->queue.cq);
    }
    EXPECT_STATUS(status, RDMUX_OK);
    BARRIER(side);
    BARRIER(side);
    struct pollfd wait = { .fd = rdmux_cq_fd(side->queue.cq), .events = POLLIN };
    uint64_t start = now_ns();
    /* The descriptor may be readable with nothing to return: then once more round. */
    while (queue_poll(&side->queue) == 0) {
        status = rdmux_cq_arm(side->queue.cq);
        if (status == RDMUX_OK) {
            EXPECT(poll(&wait, 1, SOON_MS * (int)side->patience) == 1, "nothing woke the sleeper");
        }
        EXPECT(ms_since(start) < SOON_MS * side->patience, "nothing but idle wake-ups");
    }
    (void)WAIT_STATUS(&side->queue, RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);
    BARRIER(side);
    side_end(side);
}

/* ------------------------------------------------------------------------------ one dies, the others live */

static void others_initiator(struct side *side)
{
    side_open_pair(side, NULL); /* to the victim */
    struct rdmux_ep *dying = side->ep;
    TAKE(side, side->address, sizeof(side->address));
    struct rdmux_ep *living = side_pair(side, NULL); /* to the target */
    BARRIER(side);                                   /* the victim is dead */
    exercise(side, &side->queue, living);
    (void)WAIT_OF(&side->queue, dying, RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);
    exercise(side, &side->queue, living);
    side_finish(side);
}

static void others_target(struct side *side)
{
    struct victim victim;
    victim_start(&victim, side, idle_victim);
    victim_await(&victim);
    side_open_pair(side, NULL);
    victim_end(&victim);
    BARRIER(side);
    exercise(side, &side->queue, side->ep);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ stopped */

enum { LIVENESS_MS = 500 };

static void stopped_initiator_of(struct side *side, bool busy)
{
    unsigned liveness_ms = LIVENESS_MS * side->patience;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.liveness_ms = liveness_ms;
    side_open_pair(side, &attr);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_remote *remote = busy ? take_remote(side, ep) : NULL;
    BARRIER(side);
    BARRIER(side); /* stopped */
    uint64_t start = now_ns();
    uint64_t posted = 0;
    uint64_t word = 0;
    struct rdmux_wc wc = { .opcode = 0 };
    while (wc.opcode != RDMUX_WC_DISCONNECTED) {
        enum rdmux_status status = RDMUX_AGAIN;
        if (busy && posted < 60) {
            status = rdmux_write(ep, &word, 8, NULL, remote, 0, CTX(posted), RDMUX_UNSIGNALED);
            posted += status == RDMUX_OK;
            EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN || status == RDMUX_PEER_GONE,
                   "a write to a stopped peer gave %s", rdmux_status_name(status));
        }
        if (queue_poll(&side->queue) > 0) {
            wc = NEXT(&side->queue);
            EXPECT(wc.opcode == RDMUX_WC_DISCONNECTED || wc.status == RDMUX_PEER_GONE ||
                       wc.status == RDMUX_FLUSHED || wc.opcode == RDMUX_WC_WRITABLE,
                   "got %s", wc_text(&wc));
        } else {
            sleep_ms(1);
        }
        EXPECT(ms_since(start) < liveness_ms + 2000 * side->patience,
               "a stopped peer is not noticed after %" PRIu64 " ms", ms_since(start));
    }
    EXPECT(wc.status == RDMUX_PEER_GONE, "got %s", wc_text(&wc));
    uint64_t took = ms_since(start);
    EXPECT(took + 50 >= liveness_ms / 2, "called gone after only %" PRIu64 " ms", took);
    EXPECT(took <= liveness_ms + 1500 * side->patience, /* a busy machine's scheduling */
           "noticed after %" PRIu64 " ms, liveness is %u ms", took, liveness_ms);
    expect_dead(side, ep, remote, RDMUX_PEER_GONE);
    BARRIER(side);
    side_end(side);
}

static void stopped_initiator(struct side *side)
{
    stopped_initiator_of(side, false);
}

static void stopped_busy_initiator(struct side *side)
{
    stopped_initiator_of(side, true);
}

static void busy_victim(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 64, ACCESS_ALL);
    give_token(side, &region);
    victim_ready(side);
    victim_sleep();
}

static void stopped_target(struct side *side)
{
    killing_target_of(side, idle_victim, SIGSTOP);
}

static void stopped_busy_target(struct side *side)
{
    killing_target_of(side, busy_victim, SIGSTOP);
}

/* Stopped for longer than any default, and running again: with RDMUX_NEVER nobody minds. */
static struct rdmux_ep_attr never_attr(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.liveness_ms = RDMUX_NEVER;
    return attr;
}

static void never_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = never_attr(side);
    side_open_pair(side, &attr);
    EXPECT_EQUAL(side->info.liveness_ms, RDMUX_NEVER);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    BARRIER(side);
    BARRIER(side); /* it was stopped and runs again */
    EXPECT_QUIET(&side->queue);
    (void)POST_AND_WAIT(&side->queue,
                        rdmux_write(side->ep, "n", 1, NULL, remote, 0, CTX(1), RDMUX_PLACED),
                        RDMUX_WC_WRITE, CTX(1));
    BARRIER(side);
    side_end(side);
}

static void never_victim(struct side *side)
{
    struct rdmux_ep_attr attr = never_attr(side);
    side_open_pair(side, &attr);
    struct region region = region_make(side, MEMORY_ALLOCATED, 64, ACCESS_ALL);
    give_token(side, &region);
    victim_ready(side);
    victim_sleep();
}

static void never_target(struct side *side)
{
    struct victim victim;
    victim_start(&victim, side, never_victim);
    victim_await(&victim);
    BARRIER(side);
    victim_signal(&victim, SIGSTOP);
    sleep_ms(1500);
    victim_signal(&victim, SIGCONT);
    BARRIER(side);
    BARRIER(side);
    victim_end(&victim);
}

static const struct conformance_case cases[] = {
    { "7.1, 7.2, 7.3, 7.4, 7.5, 7.8, 8.4",
      "a peer is killed: every request completes once, messages first, the end last, and posts say "
      "why",
      NEEDS_PLACED, 0, 0, killed_initiator, killed_target },
    { "8.4, 7.2, 7.10", "a peer is killed while this side sleeps in rdmux_cq_wait: it wakes at once",
      0, 0, 0, killed_idle_initiator, killed_idle_target },
    { "8.4, 13.8",
      "a peer is killed while this side sleeps on the armed descriptor: it wakes at once", 0, 0, 0,
      killed_armed_initiator, killed_idle_target },
    { "7.11", "one peer dies, and the endpoints to others live on", 0, 0, 0, others_initiator,
      others_target },
    { "8.1, 8.3", "a stopped peer of an idle endpoint is gone after the liveness time", 0, 20, 0,
      stopped_initiator, stopped_target },
    { "8.2, 8.3", "a stopped peer of a busy endpoint is gone after the liveness time", 0, 20,
      CASE_LONG, stopped_busy_initiator, stopped_busy_target },
    { "8.5", "with RDMUX_NEVER a peer may be stopped for long and go on", NEEDS_PLACED, 20,
      CASE_LONG, never_initiator, never_target },
};

const struct suite failure_suite = { "failure", cases, COUNT_OF(cases) };
