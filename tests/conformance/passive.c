/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A target whose application sleeps, computes, or progresses by hand: rules 8 and 10. */
#include "harness.h"
#include "lateness.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 40, SIZE = 20000, WORD = 24000, REGION_SIZE = 32768 };

/* -------------------------------------------------------------------------- asleep or computing */

/* Every one-sided operation against a target that makes no rdmux call. Rule 10.3 allows it 10 ms.
 * The median is checked, beside what the machine itself is late. */
static void one_sided(struct side *side, struct rdmux_remote *remote)
{
    static uint8_t out[SIZE];
    static uint8_t in[SIZE];
    uint64_t took[ROUNDS];
    struct stopwatch watch;
    bool atomics = ((side->info.native | side->info.emulated) & NEEDS_ATOMICS) == NEEDS_ATOMICS;
    uint64_t old = 0;
    stopwatch_start(&watch);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t start = now_ns();
        pattern_fill(out, SIZE, side->seed + round, 0);
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_write(side->ep, out, SIZE, NULL, remote, 0, CTX(1),
                                        flag_if_there(side, RDMUX_PLACED)),
                            RDMUX_WC_WRITE, CTX(1));
        took[round] = now_ns() - start;
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_read(side->ep, in, SIZE, NULL, remote, 0, CTX(2), 0),
                            RDMUX_WC_READ, CTX(2));
        EXPECT_PATTERN(in, SIZE, side->seed + round);
        if (atomics) {
            (void)POST_AND_WAIT(&side->queue,
                                rdmux_fetch_add(side->ep, &old, NULL, remote, WORD, 1, CTX(3), 0),
                                RDMUX_WC_FETCH_ADD, CTX(3));
            EXPECT_EQUAL(old, 2 * round);
            (void)POST_AND_WAIT(&side->queue,
                                rdmux_compare_swap(side->ep, &old, NULL, remote, WORD,
                                                   2 * round + 1, 2 * round + 2, CTX(4), 0),
                                RDMUX_WC_COMPARE_SWAP, CTX(4));
            EXPECT_EQUAL(old, 2 * round + 1);
        }
        if (round % 8 == 7) {
            /* Longer than the service thread waits for the application, so that the service thread
             * takes over again. */
            sleep_ms(5);
        }
    }
    expect_half_took(&watch, "writes", took, ROUNDS, UINT64_C(10) * side->patience);
}

static void asleep_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    EXPECT_EQUAL(side->info.peer_has_service, 1);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    one_sided(side, remote);
    BARRIER(side);
    side_finish(side);
}

static void asleep_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_REGISTERED, REGION_SIZE, ACCESS_ALL);
    give_token(side, &region);
    BARRIER(side); /* sleeps in recv(2) until all is done */
    EXPECT_PATTERN(region.addr, SIZE, side->seed + ROUNDS - 1);
    side_finish(side);
}

/* Computes, and checks the socketpair from time to time without an rdmux call. */
static void compute_until_signal(struct side *side)
{
    struct pollfd wait = { .fd = side->sync, .events = POLLIN };
    volatile uint64_t number = 1;
    do {
        for (unsigned i = 0; i < 100000; i++) {
            number = number * UINT64_C(6364136223846793005) + 1;
        }
    } while (poll(&wait, 1, 0) == 0);
}

static void computing_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, REGION_SIZE, ACCESS_ALL);
    give_token(side, &region);
    compute_until_signal(side);
    BARRIER(side);
    EXPECT_PATTERN(region.addr, SIZE, side->seed + ROUNDS - 1);
    side_finish(side);
}

/* The target polled until now and stops between two operations, again and again. */
static void stop_and_go_initiator(struct side *side)
{
    uint8_t byte = 0;
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t round = 0; round < 60; round++) {
        uint64_t word = round;
        EXPECT_OK(rdmux_recv(side->ep, &byte, 1, NULL, CTX(5)));
        (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, "g", 1, NULL, CTX(1), 0),
                            RDMUX_WC_SEND, CTX(1));
        (void)WAIT(&side->queue, RDMUX_WC_RECV,
                   CTX(5)); /* it makes no further call while the peer works */
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_write(side->ep, &word, 8, NULL, remote, 0, CTX(2),
                                        flag_if_there(side, RDMUX_PLACED)),
                            RDMUX_WC_WRITE, CTX(2));
        word = 0;
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_read(side->ep, &word, 8, NULL, remote, 0, CTX(3), 0),
                            RDMUX_WC_READ, CTX(3));
        EXPECT_EQUAL(word, round);
        BARRIER(side);
    }
    side_finish(side);
}

static void stop_and_go_target(struct side *side)
{
    uint8_t byte = 0;
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 8, ACCESS_ALL);
    give_token(side, &region);
    for (uint64_t round = 0; round < 60; round++) {
        uint64_t word = 0;
        (void)POST_AND_WAIT(&side->queue, rdmux_recv(side->ep, &byte, 1, NULL, CTX(1)),
                            RDMUX_WC_RECV, CTX(1));
        (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, "a", 1, NULL, CTX(2), 0),
                            RDMUX_WC_SEND, CTX(2));
        BARRIER(side);
        memcpy(&word, region.addr, 8);
        EXPECT_EQUAL(word, round);
    }
    side_finish(side);
}

/* ---------------------------------------------------------------------- silence without failure */

enum { SHORT_LIVENESS_MS = 750 };

/* An idle endpoint, and one whose peer computes, survive two liveness times. More of shorter ones
 * would show less: a busy machine keeps the service threads from a processor for a while. */
static void idle_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.liveness_ms = SHORT_LIVENESS_MS * side->patience;
    side_open_pair(side, &attr);
    EXPECT_EQUAL(side->info.liveness_ms, SHORT_LIVENESS_MS * side->patience);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    sleep_ms(2 * SHORT_LIVENESS_MS * side->patience);
    EXPECT_QUIET(&side->queue);
    (void)POST_AND_WAIT(
        &side->queue,
        rdmux_write(side->ep, "i", 1, NULL, remote, 0, CTX(1), flag_if_there(side, RDMUX_PLACED)),
        RDMUX_WC_WRITE, CTX(1));
    settle_writes(side, &side->queue, side->ep, remote);
    BARRIER(side);
    side_finish(side);
}

static void idle_target(struct side *side)
{
    side_open_pair(side,
                   NULL); /* its own liveness time is longer: the shorter one applies to both */
    EXPECT_EQUAL(side->info.liveness_ms, SHORT_LIVENESS_MS * side->patience);
    struct region region = region_make(side, MEMORY_ALLOCATED, 8, ACCESS_ALL);
    give_token(side, &region);
    compute_until_signal(side);
    BARRIER(side);
    EXPECT_EQUAL(region.addr[0], 'i');
    side_finish(side);
}

/* ----------------------------------------------------------------------------- progress by hand */

static void manual_initiator(struct side *side)
{
    side->manual = true;
    side_open_pair(side, NULL);
    EXPECT(rdmux_fabric_fd(side->fabric) >= 0, "no descriptor for progress");
    EXPECT_EQUAL(side->info.peer_has_service, 0);
    exercise(side, &side->queue, side->ep);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    one_sided(side, remote);
    BARRIER(side);
    EXPECT_OK(rdmux_ep_shutdown(side->ep, side->patient_ms));
    BARRIER(side);
    side_finish(side);
}

static void manual_target(struct side *side)
{
    side->manual = true;
    side_open_pair(side, NULL);
    EXPECT_EQUAL(side->info.peer_has_service, 0);
    exercise(side, &side->queue, side->ep);
    struct region region = region_make(side, MEMORY_ALLOCATED, REGION_SIZE, ACCESS_ALL);
    give_token(side, &region);
    BARRIER(side); /* progresses meanwhile */
    EXPECT_PATTERN(region.addr, SIZE, side->seed + ROUNDS - 1);
    (void)WAIT(&side->queue, RDMUX_WC_DISCONNECTED, NULL);
    BARRIER(side);
    side_finish(side);
}

/* Only one side progresses by hand. */
static void half_manual_target(struct side *side)
{
    side->manual = true;
    side_open_pair(side, NULL);
    EXPECT_EQUAL(side->info.peer_has_service, 1);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static void half_manual_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    EXPECT_EQUAL(side->info.peer_has_service, 0);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

/* With a service thread rdmux_fabric_progress() is allowed and does nothing. */
static void idle_progress(struct side *side)
{
    side_open_pair(side, NULL);
    for (unsigned i = 0; i < 10; i++) {
        EXPECT_OK(rdmux_fabric_progress(side->fabric));
    }
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

/* Blocking work is done inside the calls instead of on a worker thread. */
static void no_worker(struct side *side)
{
    struct rdmux_fabric_attr attr = fabric_attr_of(side);
    attr.flags |= RDMUX_FABRIC_NO_WORKER_THREAD;
    side_open(side, &attr);
    side_meet(side);
    (void)side_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "10.1, 10.3", "a target asleep in a system call serves writes, reads and atomics",
      NEEDS_WRITE | NEEDS_READ, 20, 0, asleep_initiator, asleep_target },
    { "10.2, 10.3", "a target that computes and makes no call serves writes, reads and atomics",
      NEEDS_WRITE | NEEDS_READ, 20, 0, asleep_initiator, computing_target },
    { "10.1, 10.3", "a target that polled a moment ago and stopped serves one-sided operations",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 20, 0, stop_and_go_initiator, stop_and_go_target },
    { "8.6, 8.7",
      "an idle endpoint whose peer computes outlives its liveness time; the smaller of both sides "
      "counts",
      NEEDS_WRITE | NEEDS_SETTLED, 20, CASE_LONG, idle_initiator, idle_target },
    { "10.4, 10.5",
      "without service threads rdmux_fabric_progress does their work, and the info of the peer's "
      "endpoint reports their absence",
      NEEDS_WRITE | NEEDS_READ, 20, CASE_MANUAL, manual_initiator, manual_target },
    { "10.4, 10.5", "one side may progress by hand while the other has a service thread", 0, 0,
      CASE_MANUAL, half_manual_initiator, half_manual_target },
    { "10.5", "with a service thread rdmux_fabric_progress is legal and changes nothing", 0, 0, 0,
      idle_progress, idle_progress },
    { "11.7", "without a worker thread everything works", 0, 0, 0, no_worker, no_worker },
};

const struct suite passive_suite = { "passive", cases, COUNT_OF(cases) };
