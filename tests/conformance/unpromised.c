/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Properties that a program must not rely on, and those that hold nevertheless: programs that
 * guess, peers that leave while bytes move, regions that end too early. */
#include "harness.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --------------------------------------------------------------------------------- either order */

enum { ROUNDS = 300 };

/* The reply may be seen before the completion of the request it answers, or after it. */
static void either_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t answer = 0;
        unsigned came[2] = { 0, 0 };
        EXPECT_OK(rdmux_recv(side->ep, &answer, 8, NULL, CTX(round)));
        EXPECT_OK(rdmux_send(side->ep, &round, 8, NULL, CTX(round), 0));
        for (unsigned i = 0; i < 2; i++) {
            struct rdmux_wc wc = NEXT(&side->queue);
            EXPECT((wc.opcode == RDMUX_WC_RECV || wc.opcode == RDMUX_WC_SEND) &&
                       wc.status == RDMUX_OK && wc.context == CTX(round),
                   "round %" PRIu64 ": %s", round, wc_text(&wc));
            came[wc.opcode == RDMUX_WC_RECV]++;
        }
        EXPECT(came[0] == 1 && came[1] == 1, "round %" PRIu64 ": %u sends and %u receives", round,
               came[0], came[1]);
        EXPECT_EQUAL(answer, round + 1);
    }
    side_finish(side);
}

static void either_target(struct side *side)
{
    uint64_t question = 0;
    side_open_pair(side, NULL);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        EXPECT_OK(rdmux_recv(side->ep, &question, 8, NULL, CTX(1)));
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
        question++;
        (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, &question, 8, NULL, CTX(2), 0),
                            RDMUX_WC_SEND, CTX(2));
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------------------- watching */

enum { WATCHED_SIZE = 300000, WATCHED_ROUNDS = 40 };

/* The thread sanitiser rightly reports a race here: no order exists between this read and the
 * bytes. */
#if defined(__SANITIZE_THREAD__)
static uint8_t look_at(const uint8_t *byte)
{
    (void)byte;
    return 0;
}
#else
static uint8_t look_at(const uint8_t *byte)
{
    return __atomic_load_n(byte, __ATOMIC_RELAXED);
}
#endif

static void watched_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct region source = region_make(side, MEMORY_REGISTERED, WATCHED_SIZE, 0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t round = 0; round < WATCHED_ROUNDS; round++) {
        pattern_fill(source.addr, WATCHED_SIZE, side->seed + round, 0);
        EXPECT_OK(rdmux_write(side->ep, source.addr, WATCHED_SIZE, source.mr, remote, 0, NULL,
                              RDMUX_UNSIGNALED));
        EXPECT_OK(rdmux_send(side->ep, &round, 8, NULL, CTX(round), 0));
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(round));
        BARRIER(side);
    }
    side_finish(side);
}

static void watching_target(struct side *side)
{
    uint64_t number = 0;
    unsigned seen = 0;
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, WATCHED_SIZE,
                                       RDMUX_ACCESS_REMOTE_WRITE);
    give_token(side, &region);
    for (uint64_t round = 0; round < WATCHED_ROUNDS; round++) {
        EXPECT_OK(rdmux_recv(side->ep, &number, 8, NULL, CTX(1)));
        while (queue_poll(&side->queue) == 0) {
            seen += look_at(region.addr) + look_at(region.addr + WATCHED_SIZE - 1);
            EXPECT(!time_is_up(), "no notice came, having seen %u", seen);
            if (side->manual) {
                EXPECT_OK(rdmux_fabric_progress(side->fabric));
            }
        }
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
        EXPECT_PATTERN(region.addr, WATCHED_SIZE, side->seed + round);
        BARRIER(side);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------- completed but not received */

enum { UNHEARD = 6 };

/* Takes entries up to DISCONNECTED with PEER_GONE. DENIED is allowed if the kernel removed the
 * dying process's keys before its queue pairs. Records the number of entries and their status for
 * each context below `contexts`. */
struct outcome {
    unsigned count;
    uint32_t status;
};

static void take_to_the_end(struct queue *queue, struct outcome *outcomes, size_t contexts)
{
    for (;;) {
        struct rdmux_wc wc = NEXT(queue);
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            EXPECT(wc.status == RDMUX_PEER_GONE || wc.status == RDMUX_DENIED, "got %s",
                   wc_text(&wc));
            break;
        }
        EXPECT(CTX_NUMBER(wc.context) < contexts, "a completion of nothing: %s", wc_text(&wc));
        struct outcome *outcome = &outcomes[CTX_NUMBER(wc.context)];
        EXPECT(++outcome->count == 1, "completed twice: %s", wc_text(&wc));
        outcome->status = wc.status;
    }
    EXPECT_QUIET(queue);
}

static _Noreturn void idle_victim(struct side *side)
{
    side_open_pair(side, NULL);
    victim_ready(side);
    for (;;) {
        (void)pause();
    }
}

static void dying_target_of(struct side *side, void (*body)(struct side *side))
{
    struct victim victim;
    victim_start(&victim, side, body);
    victim_await(&victim);
    BARRIER(side);
    victim_signal(&victim, SIGKILL);
    BARRIER(side);
    victim_end(&victim);
}

static void unheard_target(struct side *side)
{
    dying_target_of(side, idle_victim);
}

/* The peer has no receive and then dies. A send may complete nevertheless; a send with PLACED may
 * not. */
static void unheard_initiator(struct side *side)
{
    static struct outcome outcomes[UNHEARD + 1];
    uint64_t word = 7;
    side_open_pair(side, NULL);
    for (uint64_t i = 0; i < UNHEARD; i++) {
        EXPECT_OK(rdmux_send(side->ep, &word, 8, NULL, CTX(i), 0));
    }
    bool placed = flag_if_there(side, RDMUX_PLACED) != 0;
    if (placed) {
        EXPECT_OK(rdmux_send(side->ep, &word, 8, NULL, CTX(UNHEARD), RDMUX_PLACED));
    }
    BARRIER(side);
    BARRIER(side); /* the peer was killed */
    take_to_the_end(&side->queue, outcomes, COUNT_OF(outcomes));
    for (uint64_t i = 0; i < (placed ? UNHEARD + 1 : UNHEARD); i++) {
        EXPECT(outcomes[i].count == 1, "send %" PRIu64 " completed %u times", i, outcomes[i].count);
    }
    EXPECT(!placed || outcomes[UNHEARD].status != RDMUX_OK,
           "a send with PLACED completed without a receive");
    side_end(side);
}

/* ---------------------------------------------------- a fence holds its own endpoint's requests */

static void elsewhere_initiator(struct side *side)
{
    uint64_t words[3] = { 1, 2, 3 };
    side_open_pair(side, NULL);
    struct rdmux_ep *stuck = side->ep;
    struct rdmux_ep *other = side_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, stuck);
    struct rdmux_remote *same = take_remote(side, other);
    /* stuck: no receive is posted for the send, and the read must wait behind it. */
    EXPECT_OK(rdmux_send(stuck, words, 8, NULL, CTX(1), 0));
    EXPECT_OK(rdmux_read(stuck, &words[1], 8, NULL, remote, 8, CTX(2), 0));
    EXPECT_OK(rdmux_write(stuck, words, 8, NULL, remote, 16, CTX(3), RDMUX_FENCE));
    EXPECT_OK(rdmux_write(other, words, 8, NULL, same, 0, NULL, RDMUX_UNSIGNALED));
    EXPECT_OK(rdmux_write(other, &words[2], 8, NULL, same, 24, CTX(4), RDMUX_FENCE));
    (void)WAIT_OF(&side->queue, other, RDMUX_WC_WRITE, CTX(4), RDMUX_OK);
    BARRIER(side); /* a receive is posted now */
    (void)WAIT_OF(&side->queue, stuck, RDMUX_WC_SEND, CTX(1), RDMUX_OK);
    (void)WAIT_OF(&side->queue, stuck, RDMUX_WC_READ, CTX(2), RDMUX_OK);
    (void)WAIT_OF(&side->queue, stuck, RDMUX_WC_WRITE, CTX(3), RDMUX_OK);
    EXPECT_EQUAL(words[1], 0);
    side_finish(side);
}

static void elsewhere_target(struct side *side)
{
    uint64_t word = 0;
    side_open_pair(side, NULL);
    struct rdmux_ep *stuck = side->ep;
    (void)side_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 4096, ACCESS_ALL);
    give_token(side, &region);
    give_token(side, &region);
    BARRIER(side);
    EXPECT_OK(rdmux_recv(stuck, &word, 8, NULL, CTX(1)));
    (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
    EXPECT_EQUAL(word, 1);
    side_finish(side);
}

/* --------------------------------------------------------------------------------- free buffers */

enum {
    FLOOD_SIZE = 100000,
    FLOOD_RECEIVES = 16,
    FLOOD_READS = 8,
    READ_SIZE = 1 << 20,
    SETTLE_MS = 30,
    MARK = 0xa5,
};

/* Sends without end, and has a region to read. */
static _Noreturn void flooding_victim(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, READ_SIZE, ACCESS_ALL);
    give_token(side, &region);
    victim_ready(side);
    for (;;) {
        struct rdmux_wc wc[8];
        (void)rdmux_cq_poll(side->queue.cq, wc, COUNT_OF(wc));
        if (rdmux_send(side->ep, region.addr, FLOOD_SIZE, region.mr, NULL, 0) == RDMUX_PEER_GONE) {
            (void)pause();
        }
    }
}

static void flooding_target(struct side *side)
{
    dying_target_of(side, flooding_victim);
}

static void released_initiator(struct side *side)
{
    static struct outcome outcomes[FLOOD_RECEIVES + FLOOD_READS];
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    struct region sink = region_make(
        side, MEMORY_REGISTERED,
        (size_t)FLOOD_RECEIVES * FLOOD_SIZE + (size_t)FLOOD_READS * READ_SIZE, ACCESS_SINK);
    uint8_t *reads = sink.addr + (size_t)FLOOD_RECEIVES * FLOOD_SIZE;
    size_t posted = FLOOD_RECEIVES;
    for (uint64_t i = 0; i < FLOOD_RECEIVES; i++) {
        EXPECT_OK(rdmux_recv(side->ep, sink.addr + i * FLOOD_SIZE, FLOOD_SIZE, sink.mr, CTX(i)));
    }
    BARRIER(side); /* the process will be killed while it sends */
    for (uint64_t i = 0; i < FLOOD_READS; i++) {
        enum rdmux_status status = rdmux_read(side->ep, reads + i * READ_SIZE, READ_SIZE, sink.mr,
                                              remote, 0, CTX(FLOOD_RECEIVES + i), 0);
        EXPECT(status == RDMUX_OK || status == RDMUX_PEER_GONE, "a read gave %s",
               rdmux_status_name(status));
        if (status != RDMUX_OK) {
            break;
        }
        posted++;
    }
    take_to_the_end(&side->queue, outcomes, posted);
    memset(sink.addr, MARK, sink.length);
    sleep_ms(SETTLE_MS);
    EXPECT_FILLED(sink.addr, sink.length, MARK);
    for (size_t i = 0; i < posted; i++) {
        EXPECT(outcomes[i].count == 1, "request %zu completed %u times", i, outcomes[i].count);
    }
    BARRIER(side);
    side_end(side);
}

/* ---------------------------------------------------------------------------- done, or not done */

enum { DOUBT_WRITES = 64, DOUBT_SIZE = 4096, DOUBT_ROUNDS = 6 };

enum { NOT_POSTED, IN_DOUBT, IS_PLACED };

/* Writes into slot after slot while the peer closes. */
static void doubtful_round(struct side *side, struct rdmux_ep *ep, struct region *source)
{
    struct outcome outcomes[DOUBT_WRITES] = { { 0, 0 } };
    uint8_t fates[DOUBT_WRITES] = { NOT_POSTED };
    struct rdmux_remote *remote = take_remote(side, ep);
    uint32_t placed = flag_if_there(side, RDMUX_PLACED);
    BARRIER(side);
    for (uint64_t i = 0; i < DOUBT_WRITES; i++) {
        enum rdmux_status status = rdmux_write(ep, source->addr + i * DOUBT_SIZE, DOUBT_SIZE,
                                               source->mr, remote, i * DOUBT_SIZE, CTX(i),
                                               i % 4 == 3 ? placed : 0);
        if (status != RDMUX_OK) {
            EXPECT(status == RDMUX_PEER_GONE || status == RDMUX_DENIED, "a write gave %s",
                   rdmux_status_name(status));
            break;
        }
        fates[i] = IN_DOUBT;
    }
    take_to_the_end(&side->queue, outcomes, DOUBT_WRITES);
    for (uint64_t i = 3; i < DOUBT_WRITES && placed != 0; i += 4) {
        if (outcomes[i].count == 1 && outcomes[i].status == RDMUX_OK) {
            memset(fates, IS_PLACED, i + 1);
        }
    }
    GIVE(side, fates, sizeof(fates));
    side_close_ep(side, ep);
}

static void doubtful_initiator(struct side *side)
{
    side_open(side, NULL);
    side_meet(side);
    struct region source = region_make(side, MEMORY_REGISTERED, (size_t)DOUBT_WRITES * DOUBT_SIZE,
                                       0);
    pattern_fill(source.addr, source.length, side->seed, 0);
    for (unsigned round = 0; round < DOUBT_ROUNDS; round++) {
        doubtful_round(side, side_pair(side, NULL), &source);
    }
    side_finish(side);
}

static void leaving_target(struct side *side)
{
    uint64_t random = side->seed;
    side_open(side, NULL);
    side_meet(side);
    for (unsigned round = 0; round < DOUBT_ROUNDS; round++) {
        uint8_t fates[DOUBT_WRITES];
        struct rdmux_ep *ep = side_pair(side, NULL);
        struct region region = region_make(side, MEMORY_ALLOCATED,
                                           (size_t)DOUBT_WRITES * DOUBT_SIZE, ACCESS_ALL);
        give_token(side, &region);
        BARRIER(side);
        for (uint64_t turns = random_below(&random, 2000); turns > 0; turns--) {
            (void)queue_poll(&side->queue);
        }
        side_close_ep(side, ep);
        TAKE(side, fates, sizeof(fates));
        for (size_t i = 0; i < DOUBT_WRITES; i++) {
            const uint8_t *slot = region.addr + i * DOUBT_SIZE;
            if (fates[i] == NOT_POSTED) {
                EXPECT_FILLED(slot, DOUBT_SIZE, 0);
            } else if (fates[i] == IS_PLACED) {
                EXPECT_PATTERN_FROM(slot, DOUBT_SIZE, side->seed, i * DOUBT_SIZE);
            }
        }
        region_free(side, &region);
    }
    side_finish(side);
}

/* ----------------------------------------------------------------------------- only from a poll */

enum { CALLED_MESSAGES = 6 };

/* Entries are available while the program makes every other call; none is lost or shown twice. */
static void called_initiator(struct side *side)
{
    uint64_t words[CALLED_MESSAGES];
    uint64_t word = 1;
    bool came[CALLED_MESSAGES + 1] = { false };
    side_open_pair(side, NULL);
    for (uint64_t i = 0; i < CALLED_MESSAGES; i++) {
        EXPECT_OK(rdmux_recv(side->ep, &words[i], 8, NULL, CTX(i)));
    }
    BARRIER(side);
    BARRIER(side); /* all messages were sent */
    EXPECT_OK(rdmux_send(side->ep, &word, 8, NULL, CTX(CALLED_MESSAGES), 0));
    for (unsigned i = 0; i < 100; i++) {
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
        struct region region = region_make(side, MEMORY_REGISTERED, 4096, ACCESS_ALL);
        EXPECT_OK(rdmux_ep_info(side->ep, &info));
        EXPECT_OK(rdmux_ep_stats(side->ep, &stats));
        region_free(side, &region);
    }
    for (unsigned i = 0; i <= CALLED_MESSAGES; i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        uint64_t context = CTX_NUMBER(wc.context);
        EXPECT(wc.status == RDMUX_OK && context <= CALLED_MESSAGES && !came[context], "got %s",
               wc_text(&wc));
        came[context] = true;
    }
    side_finish(side);
}

static void called_target(struct side *side)
{
    uint64_t word = 0;
    side_open_pair(side, NULL);
    EXPECT_OK(rdmux_recv(side->ep, &word, 8, NULL, CTX(1)));
    BARRIER(side);
    for (uint64_t i = 0; i < CALLED_MESSAGES; i++) {
        (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, &i, 8, NULL, CTX(2), 0),
                            RDMUX_WC_SEND, CTX(2));
    }
    BARRIER(side);
    (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
    side_finish(side);
}

/* ------------------------------------------------------------------------- a region ended early */

enum { EARLY_READS = 8, EARLY_SIZE = 1 << 18, EARLY_GUARD = 1 << 16 };

static void early_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *other = side_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    size_t room = (size_t)EARLY_READS * EARLY_SIZE;
    struct region memory = region_make(side, MEMORY_UNREGISTERED, room + 2 * (size_t)EARLY_GUARD, 0);
    struct rdmux_mr *mr = NULL;
    memset(memory.addr, MARK, memory.length);
    EXPECT_OK(rdmux_mr_register(side->fabric, memory.addr + EARLY_GUARD, room, ACCESS_SINK, &mr));
    unsigned posted = 0;
    for (uint64_t i = 0; i < EARLY_READS; i++) {
        EXPECT_OK(rdmux_read(side->ep, memory.addr + EARLY_GUARD + i * EARLY_SIZE, EARLY_SIZE, mr,
                             remote, 0, CTX(i), 0));
        posted++;
    }
    rdmux_mr_deregister(mr);
    while (posted > 0) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.ep == side->ep, "another endpoint has %s", wc_text(&wc));
        posted -= wc.opcode == RDMUX_WC_READ;
    }
    EXPECT_FILLED(memory.addr, EARLY_GUARD, MARK);
    EXPECT_FILLED(memory.addr + EARLY_GUARD + room, EARLY_GUARD, MARK);
    EXPECT_OK(rdmux_send(other, &posted, sizeof(posted), NULL, CTX(100), 0));
    (void)WAIT_OF(&side->queue, other, RDMUX_WC_SEND, CTX(100), RDMUX_OK);
    BARRIER(side);
    side_end(side);
}

static void early_target(struct side *side)
{
    unsigned word = 1;
    side_open_pair(side, NULL);
    struct rdmux_ep *other = side_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, EARLY_SIZE, ACCESS_ALL);
    EXPECT_OK(rdmux_recv(other, &word, sizeof(word), NULL, CTX(1)));
    give_token(side, &region);
    (void)WAIT_OF(&side->queue, other, RDMUX_WC_RECV, CTX(1), RDMUX_OK);
    EXPECT_EQUAL(word, 0);
    BARRIER(side);
    side_end(side);
}

static const struct conformance_case cases[] = {
    { "1.7", "a reply and the completion of what it answers come in either order, once each",
      NEEDS_SEND, 0, 0, either_initiator, either_target },
    { "2.9",
      "a target that watches its memory finds all bytes at the notice, whatever it saw before",
      NEEDS_SEND | NEEDS_WRITE, 0, 0, watched_initiator, watching_target },
    { "3.2, -3.2, -1.1, -3.5",
      "sends to a peer without a receive may complete before it dies, those with PLACED never do",
      NEEDS_SEND, 0, CASE_UNTOUCHED, unheard_initiator, unheard_target },
    { "4.4", "a fenced request waits for no other endpoint, and for no write",
      NEEDS_FENCE | NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0, elsewhere_initiator,
      elsewhere_target },
    { "7.6, -7.6, -1.1", "after a peer died amid requests, no buffer of a completed request changes",
      NEEDS_SEND | NEEDS_READ, 0, CASE_UNTOUCHED, released_initiator, flooding_target },
    { "7.7, -7.7, -9.11",
      "a write that failed as the peer left may have been done; a placed write was done, and an "
      "unposted one was not",
      NEEDS_WRITE, 0, 0, doubtful_initiator, leaving_target },
    { "13.5", "entries come from poll alone, each once, whatever other calls do meanwhile",
      NEEDS_SEND, 0, 0, called_initiator, called_target },
    { "15.3, -15.3",
      "a region that ends amid reads of it spoils no other memory and no other endpoint",
      NEEDS_SEND | NEEDS_READ, 0, 0, early_initiator, early_target },
};

const struct suite unpromised_suite = { "unpromised", cases, COUNT_OF(cases) };
