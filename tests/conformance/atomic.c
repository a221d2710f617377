/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Atomics among peers, endpoints and the target's own CPU. */
#include "harness.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { DEPTH = 16, WORD_ROOM = 64 };

static uint64_t *word_of(const struct region *region, size_t index)
{
    return (uint64_t *)(void *)region->addr + index;
}

/* A stream of fetch_adds on one endpoint. Results must increase, because nothing subtracts. */
struct adder {
    struct rdmux_ep *ep;
    struct rdmux_remote *remote;
    uint64_t total;
    uint64_t posted;
    uint64_t done;
    uint64_t last;
    uint64_t results[DEPTH];
};

static bool adder_step(struct queue *queue, struct adder *adder)
{
    while (adder->posted < adder->total && adder->posted - adder->done < DEPTH) {
        EXPECT_OK(rdmux_fetch_add(adder->ep, &adder->results[adder->posted % DEPTH], NULL,
                                  adder->remote, 0, 1, CTX(adder->posted), 0));
        adder->posted++;
    }
    if (adder->done == adder->total) {
        return false;
    }
    (void)WAIT_OF(queue, adder->ep, RDMUX_WC_FETCH_ADD, CTX(adder->done), RDMUX_OK);
    uint64_t result = adder->results[adder->done % DEPTH];
    EXPECT(adder->done == 0 || result > adder->last,
           "fetch_add %" PRIu64 " found %" PRIu64 " after %" PRIu64, adder->done, result,
           adder->last);
    adder->last = result;
    adder->done++;
    return adder->done < adder->total;
}

/* ------------------------------------------------------- both peers, two endpoints, and the CPU */

enum { ADDS = 1500, REMOTE_ADDS = 2 * ADDS, CPU_BURST = 256 };

/* The owner's CPU adds in a thread of its own, so its adds fall into every phase of a remote
 * atomic. Any implementation that reads the word and writes it later loses adds. */
struct cpu_adder {
    pthread_t thread;
    uint64_t *word;
    uint64_t done; /* adds so far */
    bool stop;
};

static void *add_by_cpu(void *argument)
{
    struct cpu_adder *adder = argument;
    while (!__atomic_load_n(&adder->stop, __ATOMIC_ACQUIRE)) {
        for (unsigned i = 0; i < CPU_BURST; i++) {
            (void)__atomic_fetch_add(adder->word, 1, __ATOMIC_SEQ_CST);
        }
        (void)__atomic_add_fetch(&adder->done, CPU_BURST, __ATOMIC_RELEASE);
        (void)sched_yield(); /* with a single processor the provider needs it, too */
    }
    return NULL;
}

/* Returns once the thread adds. */
static void cpu_adder_start(struct cpu_adder *adder, const struct region *region)
{
    *adder = (struct cpu_adder){ .word = word_of(region, 0) };
    EXPECT(pthread_create(&adder->thread, NULL, add_by_cpu, adder) == 0, "no thread");
    while (__atomic_load_n(&adder->done, __ATOMIC_ACQUIRE) == 0) {
        EXPECT(!time_is_up(), "the thread that adds does not run");
        (void)sched_yield();
    }
}

/* Returns the number of adds. */
static uint64_t cpu_adder_stop(struct cpu_adder *adder)
{
    __atomic_store_n(&adder->stop, true, __ATOMIC_RELEASE);
    EXPECT(pthread_join(adder->thread, NULL) == 0, "the thread that adds does not end");
    return adder->done;
}

/* Each side has a word. The peer adds to it through two endpoints, the owner by its CPU, from
 * before the peer's first add until after the last. */
static void sums(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *eps[2] = { side->ep, side_pair(side, NULL) };
    struct region region = region_make(side, MEMORY_ALLOCATED, WORD_ROOM,
                                       RDMUX_ACCESS_REMOTE_ATOMIC);
    struct adder adders[2];
    struct cpu_adder by_cpu;
    give_token(side, &region);
    give_token(side, &region);
    for (size_t i = 0; i < 2; i++) {
        adders[i] = (struct adder){ .ep = eps[i],
                                    .remote = take_remote(side, eps[i]),
                                    .total = ADDS };
    }
    cpu_adder_start(&by_cpu, &region);
    BARRIER(side);
    bool busy = true;
    while (busy) {
        busy = adder_step(&side->queue, &adders[0]);
        busy = adder_step(&side->queue, &adders[1]) || busy;
    }
    BARRIER(side); /* the peer has its results, so its adds are done */
    uint64_t cpu_adds = cpu_adder_stop(&by_cpu);
    EXPECT_EQUAL(__atomic_load_n(word_of(&region, 0), __ATOMIC_SEQ_CST), REMOTE_ADDS + cpu_adds);
    EXPECT_FILLED(region.addr + 8, WORD_ROOM - 8, 0);
    side_finish(side);
}

/* --------------------------------------------------------------- compare_swap against fetch_add */

enum { SWAPS = 400 };

/* One endpoint counts by compare_swap in the upper half of a word, the other by fetch_add in the
 * lower half. */
static void mixed_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *second = side_pair(side, NULL);
    struct rdmux_remote *first_remote = take_remote(side, side->ep);
    struct adder adder = { .ep = second, .remote = take_remote(side, second), .total = SWAPS };
    uint64_t guess = 0;
    uint64_t found = 0;
    uint64_t swapped = 0;
    uint64_t tries = 0;
    while (swapped < SWAPS) {
        if (tries % 3 == 0) {
            (void)adder_step(&side->queue, &adder);
        }
        EXPECT_OK(rdmux_compare_swap(side->ep, &found, NULL, first_remote, 0, guess,
                                     guess + (UINT64_C(1) << 32), CTX(1000000), 0));
        (void)WAIT_OF(&side->queue, side->ep, RDMUX_WC_COMPARE_SWAP, CTX(1000000), RDMUX_OK);
        if (found == guess) {
            swapped++;
            guess += UINT64_C(1) << 32;
        } else {
            guess = found;
        }
        tries++;
        EXPECT(!time_is_up(), "%" PRIu64 " swaps after %" PRIu64 " tries", swapped, tries);
    }
    while (adder_step(&side->queue, &adder)) {
    }
    BARRIER(side);
    side_finish(side);
}

static void mixed_target(struct side *side)
{
    side_open_pair(side, NULL);
    (void)side_pair(side, NULL);
    struct region region = region_make(side, MEMORY_REGISTERED, WORD_ROOM,
                                       RDMUX_ACCESS_REMOTE_ATOMIC);
    give_token(side, &region);
    give_token(side, &region);
    BARRIER(side);
    EXPECT_EQUAL(__atomic_load_n(word_of(&region, 0), __ATOMIC_SEQ_CST),
                 ((uint64_t)SWAPS << 32) + SWAPS);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ alignment */

static void unaligned_initiator(struct side *side)
{
    uint64_t result = 7;
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t offset = 1; offset < 8; offset++) {
        EXPECT_STATUS(rdmux_fetch_add(side->ep, &result, NULL, remote, offset, 1, CTX(1), 0),
                      RDMUX_INVALID);
        EXPECT_STATUS(rdmux_compare_swap(side->ep, &result, NULL, remote, offset, 0, 1, CTX(1), 0),
                      RDMUX_INVALID);
    }
    EXPECT_STATUS(rdmux_fetch_add(side->ep, &result, NULL, remote, WORD_ROOM, 1, CTX(1), 0),
                  RDMUX_OUT_OF_RANGE);
    EXPECT_STATUS(rdmux_fetch_add(side->ep, &result, NULL, remote, 0, 1, CTX(1), RDMUX_INLINE),
                  RDMUX_INVALID);
    for (size_t length = 0; length <= 16; length += 4) {
        const struct rdmux_sge sge = { .addr = &result, .length = length };
        const struct rdmux_wr wr = {
            .op = RDMUX_OP_FETCH_ADD, .sges = &sge, .sge_count = 1, .remote = remote, .operand = 1
        };
        if (length != 8) {
            EXPECT_STATUS(rdmux_post(side->ep, &wr, 1, NULL), RDMUX_INVALID);
        }
    }
    EXPECT_QUIET(&side->queue);
    EXPECT_EQUAL(result, 7);
    (void)POST_AND_WAIT(
        &side->queue, rdmux_fetch_add(side->ep, &result, NULL, remote, WORD_ROOM - 8, 1, CTX(2), 0),
        RDMUX_WC_FETCH_ADD, CTX(2));
    BARRIER(side);
    side_finish(side);
}

static void unaligned_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, WORD_ROOM,
                                       RDMUX_ACCESS_REMOTE_ATOMIC);
    give_token(side, &region);
    BARRIER(side);
    EXPECT_FILLED(region.addr, WORD_ROOM - 8, 0);
    EXPECT_EQUAL(*word_of(&region, WORD_ROOM / 8 - 1), 1);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ device scope */

static void scope_initiator(struct side *side)
{
    uint64_t result = 0;
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
    bool can = ((side->info.native | side->info.emulated) & RDMUX_CAP_ATOMIC_DEVICE) != 0;
    EXPECT_OK(rdmux_remote_info(remote, &info));
    EXPECT_EQUAL((info.access & RDMUX_ACCESS_REMOTE_ATOMIC) != 0, can);
    EXPECT((info.access & RDMUX_ACCESS_REMOTE_WRITE) != 0,
           "the scope of atomics took the write right");
    if (can) {
        EXPECT((side->info.native & RDMUX_CAP_ATOMIC_DEVICE) != 0, "device scope is emulated");
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_fetch_add(side->ep, &result, NULL, remote, 0, 1, CTX(1), 0),
                            RDMUX_WC_FETCH_ADD, CTX(1));
    } else {
        EXPECT_STATUS(rdmux_fetch_add(side->ep, &result, NULL, remote, 0, 1, CTX(1), 0),
                      RDMUX_UNSUPPORTED);
        EXPECT_STATUS(rdmux_compare_swap(side->ep, &result, NULL, remote, 0, 0, 1, CTX(1), 0),
                      RDMUX_UNSUPPORTED);
        EXPECT_QUIET(&side->queue);
    }
    (void)POST_AND_WAIT(&side->queue, rdmux_write(side->ep, "w", 1, NULL, remote, 8, CTX(2), 0),
                        RDMUX_WC_WRITE, CTX(2));
    (void)POST_AND_WAIT(&side->queue, rdmux_read(side->ep, &result, 8, NULL, remote, 0, CTX(3), 0),
                        RDMUX_WC_READ, CTX(3));
    EXPECT_EQUAL(result, can ? 1 : 0);
    side_finish(side);
}

static void scope_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, WORD_ROOM,
                                       ACCESS_ALL | RDMUX_ACCESS_ATOMIC_DEVICE);
    give_token(side, &region);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "2.11, 10.1",
      "atomics of both peers through two endpoints each, and of the owner's CPU, sum up exactly",
      NEEDS_ATOMICS, 20, 0, sums, sums },
    { "2.11", "compare_swap and fetch_add through different endpoints are atomic with each other",
      NEEDS_ATOMICS, 20, 0, mixed_initiator, mixed_target },
    { "12.2, 12.3, 1.3, -12.2, -12.3, -1.3",
      "an unaligned atomic, or one that is not 8 bytes, is INVALID and changes nothing",
      NEEDS_ATOMICS, 0, 0, unaligned_initiator, unaligned_target },
    { "2.12, -2.12",
      "a region of device scope takes atomics on paths that have it, natively, and on no other",
      NEEDS_ATOMICS | NEEDS_WRITE | NEEDS_READ, 0, 0, scope_initiator, scope_target },
};

const struct suite atomic_suite = { "atomic", cases, COUNT_OF(cases) };
