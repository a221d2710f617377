/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Peers that die, stop, vanish or leave in haste: rules 7, 8 and 9. The process that dies or stops
 * is a third one, forked before any rdmux call. */
#include "harness.h"
#include "lateness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The kernel reports at once that a process has ended. */
static int soon_ms(const struct side *side)
{
    return 2000 * (int)side->patience;
}

/* ------------------------------------------------------------ completions of an ending endpoint */

enum { REQUESTS_MAX = 256 };

/* Requests of one endpoint by context, and their outcomes. */
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

/* Takes every entry up to DISCONNECTED with this cause. All requests must then have completed
 * once. */
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

/* The target's own process: kills the victim when the initiator asks for it, and reports when the
 * victim is gone. */
static void killing_target_of(struct side *side, void (*body)(struct side *side))
{
    struct victim victim;
    victim_start(&victim, side, body);
    victim_await(&victim);
    BARRIER(side);
    victim_signal(&victim, SIGKILL);
    BARRIER(side);
    BARRIER(side);
    victim_end(&victim);
}

static void killed_target(struct side *side)
{
    killing_target_of(side, killed_victim);
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
    BARRIER(side); /* the victim has sent its messages and will be killed */
    for (uint64_t i = 0; i < SENDS; i++) {
        uint64_t context = 100 + i;
        uint32_t flags = i % 2 == 1 ? RDMUX_UNSIGNALED : 0;
        bool reads = i % 4 == 3;
        /* The peer posted no receive, so no send can be placed. Sends with PLACED therefore
         * fail. */
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
    BARRIER(side); /* the victim was killed */
    struct stopwatch watch;
    stopwatch_start(&watch);
    ledger_settle(&side->queue, ep, &ledger, RDMUX_PEER_GONE);
    expect_took(&watch, "noticing a killed peer", 0, (uint64_t)soon_ms(side));
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

/* The peer is killed while the initiator sleeps with only receives posted, first in
 * rdmux_cq_wait(), then in poll(2) on the armed fd. */
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
    struct stopwatch watch;
    stopwatch_start(&watch);
    BARRIER(side);
    EXPECT_OK(rdmux_cq_wait(side->queue.cq, &wc, 1, side->patient_ms, &count));
    EXPECT(wc.opcode == RDMUX_WC_RECV && wc.context == CTX(0) &&
               (wc.status == RDMUX_PEER_GONE || wc.status == RDMUX_FLUSHED),
           "got %s", wc_text(&wc));
    for (uint64_t i = 1; i < MESSAGES; i++) {
        (void)WAIT_STATUS(&side->queue, RDMUX_WC_RECV, CTX(i), RDMUX_FLUSHED);
    }
    (void)WAIT_STATUS(&side->queue, RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);
    expect_took(&watch, "noticing a killed peer", 0, (uint64_t)soon_ms(side));
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
    killing_target_of(side, idle_victim);
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
    struct stopwatch watch;
    stopwatch_start(&watch);
    /* The descriptor may be readable without a completion; then one more round. */
    while (queue_poll(&side->queue) == 0) {
        status = rdmux_cq_arm(side->queue.cq);
        if (status == RDMUX_OK) {
            EXPECT(poll(&wait, 1, side->patient_ms) == 1, "nothing woke the sleeper");
        }
        EXPECT(stopwatch_is_within(&watch, (uint64_t)soon_ms(side)), "nothing but idle wake-ups");
    }
    expect_took(&watch, "noticing a killed peer", 0, (uint64_t)soon_ms(side));
    (void)WAIT_STATUS(&side->queue, RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);
    BARRIER(side);
    side_end(side);
}

/* -------------------------------------------------------------------- one dies, the others live */

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

/*
 * When the end of a stopped peer is noticed, counted from its stop. L is the liveness time:
 *
 *   not before 3/4 L   The peer is gone once it was silent for L. Until it stopped, it sent a sign
 *                      of life in every quarter of L (docs/WIRE.md, HEARTBEAT).
 *   not after L        No sign of life comes after the stop.
 *
 * Work that the library does without being called starts within 10 ms, given a free processor
 * (10.3), and its timers are no finer. The peer's last heartbeat may be late by twice this time,
 * its receipt by this side by once, and the timeout scan that finds the peer silent by twice.
 *
 * There may be no free processor. A thread of this process that only sleeps measures the worst
 * wake-up delay meanwhile. Each sleeping thread involved may be as late: the one that sends
 * heartbeats, the one that receives, the one that scans, the one that polls.
 */
enum {
    LIVENESS_MS = 500,
    TURN_MS = 10,
    EARLIER_MS = 2 * TURN_MS,
    LATER_MS = 3 * TURN_MS,
    SLEEPERS_BEFORE = 1,
    SLEEPERS_AFTER = 3,
};

/* Times of this side's clock between which the victim was stopped. The other side's clock may be
 * another host's. */
struct stop {
    uint64_t begun_ns;
    uint64_t done_ns;
    uint64_t late_ms; /* worst wake-up delay at the victim's host */
};

static void expect_noticed_in_time(const struct stop *stop, uint64_t noticed_ns,
                                   uint64_t liveness_ms, uint64_t late_here_ms)
{
    const uint64_t late_ms = late_here_ms > stop->late_ms ? late_here_ms : stop->late_ms;
    uint64_t least = (noticed_ns - stop->done_ns) / 1000000;
    uint64_t most = (noticed_ns - stop->begun_ns) / 1000000;
    uint64_t soonest = liveness_ms * 3 / 4;
    uint64_t latest = liveness_ms + LATER_MS + SLEEPERS_AFTER * late_ms;
    EXPECT(most + EARLIER_MS + SLEEPERS_BEFORE * late_ms >= soonest,
           "called gone after only %" PRIu64 " ms; liveness is %" PRIu64 " ms, a sleeper was up to "
           "%" PRIu64 " ms late",
           most, liveness_ms, late_ms);
    EXPECT(least <= latest,
           "noticed after %" PRIu64 " ms; liveness is %" PRIu64 " ms, a sleeper was up to "
           "%" PRIu64 " ms late",
           least, liveness_ms, late_ms);
}

static void write_to_the_stopped(struct side *side, struct rdmux_remote *remote)
{
    static const uint64_t word;
    enum rdmux_status status = rdmux_write(side->ep, &word, 8, NULL, remote, 0, NULL,
                                           RDMUX_UNSIGNALED);
    EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN || status == RDMUX_PEER_GONE,
           "a write to a stopped peer gave %s", rdmux_status_name(status));
}

/* Continues until the other side reports that its victim has stopped. */
static void poll_until_stopped(struct side *side, struct rdmux_remote *remote, bool busy,
                               struct stop *stop)
{
    struct pollfd wait = { .fd = side->sync, .events = POLLIN };
    stop->begun_ns = now_ns();
    BARRIER(side);
    while (poll(&wait, 1, 1) == 0) {
        if (busy) {
            write_to_the_stopped(side, remote);
        }
        (void)queue_poll(&side->queue);
    }
    TAKE(side, &stop->late_ms, sizeof(stop->late_ms));
    stop->done_ns = now_ns();
}

/* Polls until the end and returns its time. busy: writes all the while. */
static uint64_t poll_until_gone(struct side *side, struct rdmux_remote *remote, bool busy)
{
    while (!time_is_up()) {
        if (busy) {
            write_to_the_stopped(side, remote);
        }
        if (queue_poll(&side->queue) == 0) {
            sleep_ms(1);
            continue;
        }
        struct rdmux_wc wc = NEXT(&side->queue);
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            EXPECT(wc.status == RDMUX_PEER_GONE, "got %s", wc_text(&wc));
            return now_ns();
        }
        EXPECT(wc.status == RDMUX_PEER_GONE || wc.status == RDMUX_FLUSHED ||
                   wc.opcode == RDMUX_WC_WRITABLE,
               "got %s", wc_text(&wc));
    }
    FAIL("a stopped peer is not noticed");
}

static void stopped_initiator_of(struct side *side, bool busy)
{
    unsigned liveness_ms = LIVENESS_MS * side->patience;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct sleeper sleeper;
    struct stop stop;
    attr.liveness_ms = liveness_ms;
    side_open_pair(side, &attr);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_remote *remote = busy ? take_remote(side, ep) : NULL;
    uint64_t state = side->seed;
    sleeper_start(&sleeper);
    /* The stop thus falls anywhere between two heartbeats of the victim. */
    sleep_ms(liveness_ms / 4 + (unsigned)random_below(&state, liveness_ms / 4));
    EXPECT_QUIET(&side->queue);
    poll_until_stopped(side, remote, busy, &stop);
    uint64_t noticed_ns = poll_until_gone(side, remote, busy);
    uint64_t late_ms = sleeper_stop(&sleeper);
    expect_noticed_in_time(&stop, noticed_ns, liveness_ms, late_ms);
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

static void stopping_target_of(struct side *side, void (*body)(struct side *side))
{
    struct victim victim;
    struct sleeper sleeper;
    victim_start(&victim, side, body);
    victim_await(&victim);
    sleeper_start(&sleeper);
    BARRIER(side);
    victim_signal(&victim, SIGSTOP);
    int status = 0;
    EXPECT(waitpid(victim.pid, &status, WUNTRACED) == victim.pid && WIFSTOPPED(status),
           "the victim did not stop");
    const uint64_t late_ms = sleeper_stop(&sleeper);
    GIVE(side, &late_ms, sizeof(late_ms));
    BARRIER(side);
    victim_end(&victim);
}

static void stopped_target(struct side *side)
{
    stopping_target_of(side, idle_victim);
}

static void stopped_busy_target(struct side *side)
{
    stopping_target_of(side, busy_victim);
}

/* The peer is stopped for longer than any default, and then runs again. With RDMUX_NEVER the
 * endpoint survives. */
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
    (void)POST_AND_WAIT(
        &side->queue,
        rdmux_write(side->ep, "n", 1, NULL, remote, 0, CTX(1), flag_if_there(side, RDMUX_PLACED)),
        RDMUX_WC_WRITE, CTX(1));
    settle_writes(side, &side->queue, side->ep, remote);
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

/* -------------------------------------------------------------------- leaving during a shutdown */

enum { LAST_WORDS = 12, LISTENED_FOR = LAST_WORDS + 2, GOODBYES = 2 * LAST_WORDS };

/* In later rounds the side that leaves waits longer, one more millisecond per round. */
static void linger(struct side *side, unsigned round)
{
    uint64_t start = now_ns();
    while (round > LAST_WORDS && ms_since(start) < round - LAST_WORDS) {
        (void)queue_poll(&side->queue);
    }
}

/* deserted: the peer may be gone before the last word. */
static void say_last_words(struct rdmux_ep *ep, uint64_t words[LAST_WORDS], bool deserted)
{
    enum rdmux_status status = RDMUX_OK;
    for (uint64_t i = 0; i < LAST_WORDS && status == RDMUX_OK; i++) {
        words[i] = i;
        status = rdmux_send(ep, &words[i], 8, NULL, CTX(i), RDMUX_UNSIGNALED);
    }
    EXPECT(status == RDMUX_OK || (deserted && status == RDMUX_PEER_GONE), "a send gave %s",
           rdmux_status_name(status));
}

static void listen_for_words(struct rdmux_ep *ep, uint64_t words[LISTENED_FOR])
{
    memset(words, 0xff, LISTENED_FOR * sizeof(words[0]));
    for (uint64_t i = 0; i < LISTENED_FOR; i++) {
        EXPECT_OK(rdmux_recv(ep, &words[i], 8, NULL, CTX(i)));
    }
}

/* Takes every entry until the end: words in order, then unused receives. Returns the number of
 * words received. */
static uint64_t take_last_words(struct side *side, struct rdmux_ep *ep, const uint64_t words[],
                                uint32_t *cause)
{
    uint64_t came = 0;
    uint64_t unused = 0;
    struct rdmux_wc wc = NEXT(&side->queue);
    for (; wc.opcode != RDMUX_WC_DISCONNECTED; wc = NEXT(&side->queue)) {
        EXPECT(wc.ep == ep && wc.opcode == RDMUX_WC_RECV && CTX_NUMBER(wc.context) == came + unused,
               "got %s", wc_text(&wc));
        if (wc.status == RDMUX_OK) {
            EXPECT(unused == 0, "after a flushed one came %s", wc_text(&wc));
            EXPECT_EQUAL(words[came], came);
            came++;
        } else {
            EXPECT(wc.status == RDMUX_FLUSHED || (wc.status == RDMUX_PEER_GONE && unused == 0),
                   "got %s", wc_text(&wc));
            unused++;
        }
    }
    EXPECT(wc.ep == ep && (wc.status == RDMUX_OK || wc.status == RDMUX_PEER_GONE), "got %s",
           wc_text(&wc));
    EXPECT(came + unused == LISTENED_FOR, "%" PRIu64 " of %d receives completed", came + unused,
           LISTENED_FOR);
    EXPECT_QUIET(&side->queue);
    *cause = wc.status;
    return came;
}

/* Leaves after it has requested a shutdown, which may be at any stage. */
static void hasty_initiator(struct side *side)
{
    static uint64_t words[LAST_WORDS];
    side_open(side, NULL);
    side_meet(side);
    for (unsigned round = 0; round < GOODBYES; round++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        BARRIER(side); /* the target listens */
        say_last_words(ep, words, false);
        EXPECT_STATUS(rdmux_ep_shutdown(ep, 0), RDMUX_IN_PROGRESS);
        linger(side, round);
        while (side->queue.kept_count > 0) { /* at most the end itself */
            struct rdmux_wc wc = NEXT(&side->queue);
            EXPECT(wc.opcode == RDMUX_WC_DISCONNECTED && wc.status == RDMUX_OK, "got %s",
                   wc_text(&wc));
        }
        side_close_ep(side, ep);
        EXPECT_QUIET(&side->queue);
        BARRIER(side);
    }
    side_finish(side);
}

static void hasty_target(struct side *side)
{
    static uint64_t words[LISTENED_FOR];
    side_open(side, NULL);
    side_meet(side);
    for (unsigned round = 0; round < GOODBYES; round++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        uint32_t cause = RDMUX_OK;
        listen_for_words(ep, words);
        BARRIER(side);
        uint64_t came = take_last_words(side, ep, words, &cause);
        EXPECT(came == LAST_WORDS || cause == RDMUX_PEER_GONE,
               "an orderly end after %" PRIu64 " of %d messages", came, LAST_WORDS);
        BARRIER(side);
        side_close_ep(side, ep);
    }
    side_finish(side);
}

/* The side that shuts down is left by the other after that many of its last words have arrived. */
static void deserted_initiator(struct side *side)
{
    static uint64_t words[LAST_WORDS];
    side_open(side, NULL);
    side_meet(side);
    for (unsigned round = 0; round < GOODBYES; round++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        struct rdmux_wc wc = { .status = RDMUX_OK };
        BARRIER(side);
        say_last_words(ep, words, true);
        enum rdmux_status status = rdmux_ep_shutdown(ep, side->patient_ms);
        EXPECT(status == RDMUX_OK || status == RDMUX_PEER_GONE, "shutdown gave %s: %s",
               rdmux_status_name(status), rdmux_last_error());
        while (status == RDMUX_PEER_GONE && wc.opcode != RDMUX_WC_DISCONNECTED) {
            wc = NEXT(&side->queue);
            EXPECT(wc.ep == ep && wc.status != RDMUX_OK &&
                       (wc.opcode == RDMUX_WC_SEND || wc.opcode == RDMUX_WC_DISCONNECTED),
                   "got %s", wc_text(&wc));
        }
        EXPECT(wc.opcode != RDMUX_WC_DISCONNECTED || wc.status == RDMUX_PEER_GONE, "got %s",
               wc_text(&wc));
        EXPECT_QUIET(&side->queue);
        side_close_ep(side, ep);
        BARRIER(side);
    }
    side_finish(side);
}

static void deserting_target(struct side *side)
{
    static uint64_t words[LISTENED_FOR];
    side_open(side, NULL);
    side_meet(side);
    for (unsigned round = 0; round < GOODBYES; round++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        listen_for_words(ep, words);
        BARRIER(side);
        for (uint64_t i = 0; i < round && i < LAST_WORDS; i++) {
            struct rdmux_wc wc = WAIT_OF(&side->queue, ep, RDMUX_WC_RECV, CTX(i), RDMUX_OK);
            EXPECT_EQUAL(words[i], i);
            EXPECT_EQUAL(wc.length, 8);
        }
        linger(side, round);
        side_close_ep(side, ep);
        while (side->queue.kept_count > 0) { /* polled before close */
            (void)NEXT(&side->queue);
        }
        BARRIER(side);
        EXPECT_QUIET(&side->queue);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------ a cut control channel */

/* Returns 0 if the address is not of TCP. */
static unsigned port_of(const struct sockaddr_storage *name)
{
    struct sockaddr_in ip = { .sin_port = 0 };
    if (name->ss_family != AF_INET && name->ss_family != AF_INET6) {
        return 0;
    }
    memcpy(&ip, name, sizeof(ip)); /* both families have the port at the same offset */
    return ntohs(ip.sin_port);
}

/* Cuts the library's first connection to the target's listener, which is the control channel. */
static void cut_control_channel(const struct side *side)
{
    const char *colon = strrchr(side->address, ':');
    unsigned wanted = colon == NULL ? 0 : (unsigned)strtoul(colon + 1, NULL, 10);
    for (int fd = 0; fd < SIDE_DESCRIPTORS_MAX; fd++) {
        struct sockaddr_storage name = { .ss_family = AF_UNSPEC };
        socklen_t length = sizeof(name);
        if (side->descriptors[fd] ||
            getpeername(fd, (struct sockaddr *)(void *)&name, &length) != 0) {
            continue;
        }
        if (port_of(&name) == wanted) {
            EXPECT(shutdown(fd, SHUT_RDWR) == 0, "shutdown: %s", strerror(errno));
            return;
        }
    }
    FAIL("no connection to port %u", wanted);
}

/* Without failover there is no control-channel reconnect: the loss ends the endpoint at once on
 * both sides. */
static void expect_cut_is_the_end(struct side *side)
{
    static struct ledger ledger;
    uint8_t byte = 0;
    ledger_add(&ledger, 1, true, false);
    EXPECT_OK(rdmux_recv(side->ep, &byte, 1, NULL, CTX(1)));
    BARRIER(side);
    if (side->is_initiator) {
        cut_control_channel(side);
    }
    struct stopwatch watch;
    stopwatch_start(&watch);
    ledger_settle(&side->queue, side->ep, &ledger, RDMUX_PEER_GONE);
    expect_took(&watch, "noticing the loss of the control channel", 0, (uint64_t)soon_ms(side));
    expect_dead(side, side->ep, NULL, RDMUX_PEER_GONE);
}

static void expect_cut_is_mended(struct side *side)
{
    side->caps->emulated |= NEEDS_FAILOVER;
    exercise(side, &side->queue, side->ep);
    if (side->is_initiator) {
        cut_control_channel(side);
    }
    BARRIER(side);
    exercise(side, &side->queue, side->ep);
}

static void cut_case(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *none = NULL;
    uint8_t has_failover = 0;
    attr.failover = RDMUX_FAILOVER_ON;
    side_open(side, NULL);
    side_meet(side);
    if (side->is_initiator) {
        enum rdmux_status status = rdmux_connect(side->fabric, side->queue.cq, side->address, &attr,
                                                 0, &none);
        EXPECT(status == RDMUX_UNSUPPORTED || status == RDMUX_IN_PROGRESS,
               "a connect with failover gave %s", rdmux_status_name(status));
        has_failover = status == RDMUX_IN_PROGRESS;
        EXPECT_OK(rdmux_ep_close(none));
        GIVE(side, &has_failover, 1);
    } else {
        TAKE(side, &has_failover, 1);
    }
    (void)side_pair(side, has_failover != 0 ? &attr : NULL);
    (has_failover != 0 ? expect_cut_is_mended : expect_cut_is_the_end)(side);
    BARRIER(side);
    side_end(side);
}

static const struct conformance_case cases[] = {
    { "8.8, -8.8, 8.4",
      "a control channel that is cut is dialled again with failover, and the end without it",
      NEEDS_SEND | NEEDS_WRITE, 0, 0, cut_case, cut_case },
    { "7.1, 7.2, 7.3, 7.4, 7.5, 7.8, 8.4, -7.1, -7.2, -7.3, -7.4, -7.5, -7.8, -8.4, -1.2, -1.16",
      "a peer is killed: every request completes once, messages first, the end last, and posts "
      "return the cause",
      NEEDS_PLACED | NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, CASE_UNTOUCHED, killed_initiator,
      killed_target },
    { "8.4, 7.2, 7.10, -7.10, -8.4",
      "a peer is killed while this side sleeps in rdmux_cq_wait: it wakes at once",
      NEEDS_SEND | NEEDS_WRITE, 0, CASE_UNTOUCHED, killed_idle_initiator, killed_idle_target },
    { "8.4, 13.8",
      "a peer is killed while this side sleeps on the armed descriptor: it wakes at once", 0, 0,
      CASE_UNTOUCHED, killed_armed_initiator, killed_idle_target },
    { "7.11, -7.11", "when one peer dies, the endpoints to others live on", 0, 0, CASE_UNTOUCHED,
      others_initiator, others_target },
    { "8.1, 8.3, -8.1, -8.3", "a stopped peer of an idle endpoint is gone after the liveness time",
      NEEDS_SEND | NEEDS_WRITE, 20, CASE_UNTOUCHED, stopped_initiator, stopped_target },
    { "8.2, 8.3, -8.2, -8.3", "a stopped peer of a busy endpoint is gone after the liveness time",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 20, CASE_LONG | CASE_UNTOUCHED, stopped_busy_initiator,
      stopped_busy_target },
    { "8.5, -8.5", "with RDMUX_NEVER a peer may be stopped for long and go on",
      NEEDS_WRITE | NEEDS_SETTLED, 20, CASE_LONG | CASE_UNTOUCHED, never_initiator, never_target },
    { "9.13, 9.2, 9.6, 7.3",
      "close at any moment of a shutdown: the peer gets all and an orderly end, or some and "
      "PEER_GONE",
      NEEDS_SEND, 0, 0, hasty_initiator, hasty_target },
    { "9.4, 9.11, 7.2",
      "the peer closes at any moment of a shutdown: shutdown returns OK and no event comes, or "
      "PEER_GONE and the event comes",
      NEEDS_SEND, 0, 0, deserted_initiator, deserting_target },
};

const struct suite failure_suite = { "failure", cases, COUNT_OF(cases) };
