/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Rules shown on a path with only sends, writes and reads, so that they also judge a provider
 * without immediate data, atomics, fences, PLACED or SRQs. */
#include "harness.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>

enum { PAGE = 4096 };

/* ------------------------------------------------------------------------------ a crowded queue */

enum { CROWD = 1000, CROWD_DEPTH = 8, SLOTS = PAGE / 8 };

/* Unsignaled writes through a queue of eight; their source word is overwritten right after the
 * post. */
static void crowd_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = CROWD_DEPTH;
    side_open_pair(side, &attr);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t i = 0; i < CROWD;) {
        uint64_t word = mix64(i);
        enum rdmux_status status = rdmux_write(side->ep, &word, 8, NULL, remote, i % SLOTS * 8,
                                               NULL, RDMUX_UNSIGNALED | RDMUX_INLINE);
        if (status == RDMUX_AGAIN) {
            (void)WAIT(&side->queue, RDMUX_WC_WRITABLE, NULL);
            continue;
        }
        EXPECT_STATUS(status, RDMUX_OK);
        i++;
    }
    uint64_t words[2] = { 1, 2 };
    enum rdmux_status status = RDMUX_AGAIN;
    while ((status = rdmux_send(side->ep, &words[0], 8, NULL, CTX(1), 0)) == RDMUX_AGAIN) {
        (void)WAIT(&side->queue, RDMUX_WC_WRITABLE, NULL);
    }
    EXPECT_STATUS(status, RDMUX_OK);
    (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(1));
    words[0] = 99; /* the word is free again */
    BARRIER(side);
    EXPECT_QUIET(&side->queue);
    side_finish(side);
}

static void crowd_target(struct side *side)
{
    uint64_t word = 0;
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, PAGE, ACCESS_ALL);
    EXPECT_OK(rdmux_recv(side->ep, &word, 8, NULL, CTX(1)));
    give_token(side, &region);
    (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
    EXPECT_EQUAL(word, 1);
    for (uint64_t slot = 0; slot < SLOTS; slot++) {
        uint64_t last = slot + (CROWD - 1 - slot) / SLOTS * SLOTS;
        memcpy(&word, region.addr + slot * 8, 8);
        EXPECT_EQUAL(word, mix64(last));
    }
    BARRIER(side);
    side_finish(side);
}

/* ----------------------------------------------------------------------- tokens no longer valid */

enum { REVOKED, DEREGISTERED, KEPT, REGIONS };

static void over_initiator(struct side *side)
{
    struct rdmux_remote *remotes[REGIONS];
    uint64_t word = 7;
    side_open_pair(side, NULL);
    for (unsigned i = 0; i < REGIONS; i++) {
        remotes[i] = take_remote(side, side->ep);
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_write(side->ep, &word, 8, NULL, remotes[i], 0, CTX(i), 0),
                            RDMUX_WC_WRITE, CTX(i));
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_read(side->ep, &word, 8, NULL, remotes[i], 0, CTX(i), 0),
                            RDMUX_WC_READ, CTX(i));
    }
    BARRIER(side);
    BARRIER(side); /* two of the tokens are no longer valid */
    for (unsigned i = 0; i < KEPT; i++) {
        await_revoked(side, remotes[i]);
        EXPECT_STATUS(rdmux_write(side->ep, &word, 8, NULL, remotes[i], 8, CTX(1), 0), RDMUX_DENIED);
        EXPECT_STATUS(rdmux_read(side->ep, &word, 8, NULL, remotes[i], 0, CTX(1), 0), RDMUX_DENIED);
    }
    (void)POST_AND_WAIT(&side->queue,
                        rdmux_read(side->ep, &word, 8, NULL, remotes[KEPT], 0, CTX(2), 0),
                        RDMUX_WC_READ, CTX(2));
    EXPECT_EQUAL(word, 7);
    side_finish(side);
}

static void over_target(struct side *side)
{
    struct region regions[REGIONS];
    side_open_pair(side, NULL);
    for (unsigned i = 0; i < REGIONS; i++) {
        regions[i] = region_make(side, MEMORY_REGISTERED, PAGE, ACCESS_ALL);
        give_token(side, &regions[i]);
    }
    BARRIER(side);
    EXPECT_OK(rdmux_mr_revoke(regions[REVOKED].mr));
    region_free(side, &regions[DEREGISTERED]);
    BARRIER(side);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ without a fence */

enum { UNFENCED_SIZE = 20000, UNFENCED_ROUNDS = 50 };

/* A read that an unfenced write follows finds the old or the new value of each byte. After the
 * read's completion the order is certain. */
static void unfenced_initiator(struct side *side)
{
    static uint8_t in[UNFENCED_SIZE];
    static uint8_t out[UNFENCED_SIZE];
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (unsigned round = 1; round <= UNFENCED_ROUNDS; round++) {
        memset(out, (int)round, sizeof(out));
        EXPECT_OK(rdmux_read(side->ep, in, sizeof(in), NULL, remote, 0, CTX(1), 0));
        EXPECT_OK(rdmux_write(side->ep, out, sizeof(out), NULL, remote, 0, CTX(2), 0));
        (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(1));
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(2));
        for (size_t i = 0; i < sizeof(in); i++) {
            EXPECT(in[i] == round || in[i] == round - 1, "round %u: byte %zu is %u", round, i,
                   in[i]);
        }
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_read(side->ep, in, sizeof(in), NULL, remote, 0, CTX(3), 0),
                            RDMUX_WC_READ, CTX(3));
        EXPECT_FILLED(in, sizeof(in), (uint8_t)round);
    }
    side_finish(side);
}

/* An atomic, a plain write and a read of one word, each after the completion of the one before. */
static void mixed_initiator(struct side *side)
{
    uint64_t old = 0;
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t round = 0; round < UNFENCED_ROUNDS; round++) {
        uint64_t word = 1000 * round;
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_write(side->ep, &word, 8, NULL, remote, 8, CTX(1), 0),
                            RDMUX_WC_WRITE, CTX(1));
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_fetch_add(side->ep, &old, NULL, remote, 8, 3, CTX(2), 0),
                            RDMUX_WC_FETCH_ADD, CTX(2));
        EXPECT_EQUAL(old, 1000 * round);
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_read(side->ep, &word, 8, NULL, remote, 8, CTX(3), 0),
                            RDMUX_WC_READ, CTX(3));
        EXPECT_EQUAL(word, 1000 * round + 3);
    }
    side_finish(side);
}

/* PLACED on a read adds nothing. */
static void placed_read_initiator(struct side *side)
{
    uint64_t word = 5;
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    (void)POST_AND_WAIT(&side->queue,
                        rdmux_write(side->ep, &word, 8, NULL, remote, 16, CTX(1), RDMUX_PLACED),
                        RDMUX_WC_WRITE, CTX(1));
    word = 0;
    (void)POST_AND_WAIT(&side->queue,
                        rdmux_read(side->ep, &word, 8, NULL, remote, 16, CTX(2), RDMUX_PLACED),
                        RDMUX_WC_READ, CTX(2));
    EXPECT_EQUAL(word, 5);
    side_finish(side);
}

static void region_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, UNFENCED_SIZE, ACCESS_ALL);
    give_token(side, &region);
    side_finish(side);
}

/* --------------------------------------------------------------------------------- arm and poll */

enum { ARM_ROUNDS = 100 };

/* Sleeps on the descriptor until an entry is available. Then arm returns AGAIN. */
static void armed_initiator(struct side *side)
{
    uint64_t word = 0;
    side_open_pair(side, NULL);
    struct rdmux_cq *cq = side->queue.cq;
    for (uint64_t round = 0; round < ARM_ROUNDS; round++) {
        struct pollfd wait = { .fd = rdmux_cq_fd(cq), .events = POLLIN };
        struct rdmux_wc wc;
        EXPECT_OK(rdmux_recv(side->ep, &word, 8, NULL, CTX(round)));
        BARRIER(side);
        size_t count = 0;
        while (count == 0) {
            enum rdmux_status status = rdmux_cq_arm(cq);
            if (status != RDMUX_AGAIN) {
                EXPECT_STATUS(status, RDMUX_OK);
                EXPECT(poll(&wait, 1, side->patient_ms) == 1, "round %" PRIu64 ": nothing woke",
                       round);
                EXPECT((wait.revents & POLLIN) != 0, "the descriptor has revents 0x%x",
                       (unsigned)wait.revents);
            }
            count = rdmux_cq_poll(cq, &wc, 1);
            EXPECT(!time_is_up(), "round %" PRIu64 ": armed and woken forever", round);
        }
        EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK && wc.context == CTX(round),
               "round %" PRIu64 ": %s", round, wc_text(&wc));
        EXPECT_EQUAL(word, round);
    }
    side_finish(side);
}

static void armed_target(struct side *side)
{
    side_open_pair(side, NULL);
    for (uint64_t round = 0; round < ARM_ROUNDS; round++) {
        BARRIER(side);
        (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, &round, 8, NULL, CTX(1), 0),
                            RDMUX_WC_SEND, CTX(1));
    }
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "1.2, 1.10, 3.1, 1.14, 2.3, 13.2",
      "a thousand unsignaled writes from one reused word pass a queue of 8 and all arrive",
      NEEDS_SEND | NEEDS_WRITE, 0, 0, crowd_initiator, crowd_target },
    { "6.7, -6.7, 15.2, -15.2, 6.6, -6.6",
      "a revoked or deregistered region is DENIED, and the region beside it is not",
      NEEDS_WRITE | NEEDS_READ, 0, 0, over_initiator, over_target },
    { "4.3", "without a fence a read finds old bytes or those of the write behind it",
      NEEDS_WRITE | NEEDS_READ, 0, 0, unfenced_initiator, region_target },
    { "2.13", "an atomic and plain accesses to its word, each after the other, agree",
      NEEDS_ATOMICS | NEEDS_WRITE | NEEDS_READ, 0, 0, mixed_initiator, region_target },
    { "3.6", "PLACED on a read is legal and changes nothing",
      NEEDS_PLACED | NEEDS_WRITE | NEEDS_READ, 0, 0, placed_read_initiator, region_target },
    { "13.6, 13.7, -13.7, 13.8",
      "each entry comes once to a program that arms, sleeps, wakes and polls", NEEDS_SEND, 0, 0,
      armed_initiator, armed_target },
};

const struct suite sparse_suite = { "sparse", cases, COUNT_OF(cases) };
