/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Errors that only a provider can make and other cases would miss; some of tests/mutants make
 * them. */
#include "harness.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------- reads that cross with a revoke */

enum { BIG = 1 << 20, READS = 16, ROUNDS = 4, ANSWER_POLLS = 200, OLD = 0xaa, NEW = 0x55 };

/* In these rounds the importer stops itself behind its first reads. It has taken nothing then, so
 * its socket still has the small buffer of a new one, and an answer is in the midst. In the others
 * it is stopped at any time, by when the buffer may have grown enough for all answers. */
static bool stops_itself(unsigned round)
{
    return round % 2 == 0;
}

/* Answers reads until whatever lies between owner and importer takes no more. Makes no pause: a
 * device may answer for a limited time only what is revoked. */
static void answer_reads(struct side *side)
{
    for (unsigned i = 0; i < ANSWER_POLLS; i++) {
        (void)queue_poll(&side->queue);
    }
}

/* The importer is a third process, stopped in the middle of its reads. Meanwhile the initiator, the
 * region's owner, revokes the region and refills it. The importer has a second endpoint to the same
 * owner. */
static void crossing_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *other = side->ep;
    for (unsigned round = 0; round < ROUNDS; round++) {
        (void)side_pair(side, NULL);
        struct region region = region_make(side, MEMORY_ALLOCATED, BIG,
                                           ACCESS_ALL | RDMUX_ACCESS_NO_MAP);
        memset(region.addr, OLD, BIG);
        give_token(side, &region);
        BARRIER(side); /* the importer is stopped */
        answer_reads(side);
        EXPECT_OK(rdmux_mr_revoke(region.mr));
        memset(region.addr, NEW, BIG);
        BARRIER(side); /* the importer may run again */
        exercise(side, &side->queue, other);
        EXPECT_FILLED(region.addr, BIG, NEW);
    }
    BARRIER(side);
    side_end(side);
}

/* Takes the completion of a read. Returns false if it failed. */
static bool take_read(struct side *side, const struct rdmux_ep *ep, const uint8_t *bytes)
{
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.ep == ep, "another endpoint has %s", wc_text(&wc));
    EXPECT(wc.opcode == RDMUX_WC_READ, "got %s", wc_text(&wc));
    if (wc.status == RDMUX_OK) {
        EXPECT_FILLED(bytes, BIG, OLD);
        return true;
    }
    EXPECT(wc.status == RDMUX_DENIED || wc.status == RDMUX_OUTCOME_UNKNOWN ||
               wc.status == RDMUX_FLUSHED,
           "got %s", wc_text(&wc));
    return false;
}

/* Reads, READS at a time, until the revocation is known or a read is refused. */
static void read_on(struct side *side, struct rdmux_ep *ep, uint8_t *bytes, unsigned round)
{
    struct rdmux_remote *remote = take_remote(side, ep);
    enum rdmux_status status = RDMUX_OK;
    bool goes_well = true;
    uint64_t posted = 0;
    uint64_t done = 0;
    while (goes_well && (status == RDMUX_OK || done < posted)) {
        if (status == RDMUX_OK && posted - done < READS) {
            status = rdmux_read(ep, bytes + posted % READS * BIG, BIG, NULL, remote, 0, CTX(posted),
                                0);
            posted += status == RDMUX_OK;
            continue;
        }
        if (stops_itself(round) && done == 0) {
            EXPECT(raise(SIGSTOP) == 0, "raise: %s", strerror(errno));
        }
        goes_well = take_read(side, ep, bytes + done % READS * BIG);
        done++;
        if (!stops_itself(round) && done == 20) {
            victim_ready(side); /* the process is stopped at any time from here on */
        }
    }
    EXPECT(status == RDMUX_OK || status == RDMUX_DENIED, "a read after revoke gave %s",
           rdmux_status_name(status));
    if (!goes_well) {
        for (; done < posted; done++) {
            EXPECT(!take_read(side, ep, bytes + done % READS * BIG),
                   "a read succeeded behind one that failed");
        }
        (void)WAIT_OF(&side->queue, ep, RDMUX_WC_DISCONNECTED, NULL, RDMUX_DENIED);
    }
    EXPECT(memchr(bytes, NEW, (size_t)READS * BIG) == NULL,
           "a read brought a byte from after the revoke");
}

static void crossing_importer(struct side *side)
{
    uint8_t *bytes = calloc(READS, BIG);
    EXPECT(bytes != NULL, "out of memory");
    side_open_pair(side, NULL);
    struct rdmux_ep *other = side->ep;
    for (unsigned round = 0; round < ROUNDS; round++) {
        read_on(side, side_pair(side, NULL), bytes, round);
        exercise(side, &side->queue, other);
    }
    victim_ready(side);
    for (;;) {
        sleep_ms(1000);
    }
}

static void crossing_target(struct side *side)
{
    struct victim victim;
    victim_start(&victim, side, crossing_importer);
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (!stops_itself(round)) {
            victim_await(&victim);
            victim_signal(&victim, SIGSTOP);
        }
        victim_await_stop(&victim);
        BARRIER(side);
        BARRIER(side);
        victim_signal(&victim, SIGCONT);
    }
    victim_await(&victim);
    BARRIER(side);
    victim_end(&victim);
}

/* ------------------------------------------------------------------------ a region's next token */

enum { SMALL = 4096, TURNS = 3 };

static void next_token_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        uint64_t found = 0;
        struct rdmux_remote *remote = take_remote(side, side->ep);
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_write(side->ep, &turn, sizeof(turn), NULL, remote, 8 * turn,
                                        CTX(1), RDMUX_PLACED),
                            RDMUX_WC_WRITE, CTX(1));
        (void)POST_AND_WAIT(
            &side->queue,
            rdmux_read(side->ep, &found, sizeof(found), NULL, remote, 8 * turn, CTX(2), 0),
            RDMUX_WC_READ, CTX(2));
        EXPECT_EQUAL(found, turn);
        BARRIER(side);
    }
    side_finish(side);
}

static void next_token_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, SMALL, ACCESS_ALL);
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        give_token(side, &region);
        BARRIER(side);
        EXPECT_OK(rdmux_mr_revoke(region.mr));
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------------- how many bytes */

static void lengths_initiator(struct side *side)
{
    uint8_t bytes[SMALL] = { 0 };
    uint64_t word = 0;
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    static const size_t lengths[] = { 0, 1, 8, 100, 1000, SMALL };
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        struct rdmux_wc wc = POST_AND_WAIT(
            &side->queue, rdmux_write(side->ep, bytes, lengths[i], NULL, remote, 0, CTX(i), 0),
            RDMUX_WC_WRITE, CTX(i));
        EXPECT_EQUAL(wc.length, lengths[i]);
        wc = POST_AND_WAIT(&side->queue,
                           rdmux_read(side->ep, bytes, lengths[i], NULL, remote, 0, CTX(i), 0),
                           RDMUX_WC_READ, CTX(i));
        EXPECT_EQUAL(wc.length, lengths[i]);
        EXPECT_OK(rdmux_send(side->ep, bytes, lengths[i], NULL, CTX(i), 0));
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(i));
    }
    if ((NEEDS_ATOMICS & ~(side->info.native | side->info.emulated)) == 0) {
        struct rdmux_wc wc = POST_AND_WAIT(
            &side->queue, rdmux_fetch_add(side->ep, &word, NULL, remote, 0, 1, CTX(9), 0),
            RDMUX_WC_FETCH_ADD, CTX(9));
        EXPECT_EQUAL(wc.length, 8);
    }
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        size_t received = 0;
        TAKE(side, &received, sizeof(received));
        EXPECT_EQUAL(received, lengths[i]);
    }
    BARRIER(side);
    side_finish(side);
}

static void lengths_target(struct side *side)
{
    enum { MESSAGES = 6 };
    static uint8_t bytes[MESSAGES][SMALL];
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, SMALL, ACCESS_ALL);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        EXPECT_OK(rdmux_recv(side->ep, bytes[i], sizeof(bytes[i]), NULL, CTX(i)));
    }
    give_token(side, &region);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        struct rdmux_wc wc = WAIT(&side->queue, RDMUX_WC_RECV, CTX(i));
        size_t received = (size_t)wc.length;
        GIVE(side, &received, sizeof(received));
    }
    BARRIER(side);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "6.6, 6.8, 6.9, -6.6, -6.8",
      "reads that cross with a revoke bring no byte from after it, and end only their own "
      "endpoint, with DENIED",
      NEEDS_READ, 30, CASE_UNTOUCHED, crossing_initiator, crossing_target },
    { "6.11, 6.6", "a region that was imported and revoked is accessible by each next token",
      NEEDS_PLACED | NEEDS_WRITE | NEEDS_READ, 0, 0, next_token_initiator, next_token_target },
    { "1.16", "completions have the number of bytes that were written, read and received",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0, lengths_initiator, lengths_target },
};

const struct suite crossing_suite = { "crossing", cases, COUNT_OF(cases) };
