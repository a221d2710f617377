/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Requests that must not pass others: fenced requests of one batch, and requests behind a long
 * write. */
#include "harness.h"

#include <inttypes.h>
#include <string.h>

/* -------------------------------------------------------------------------- fences in one batch */

enum { FENCES_ROUNDS = 20, FENCES_SENDS = 4, FENCES_BATCH = 8, FENCES_SIZE = 64 };

static uint64_t fences_word(uint64_t round, unsigned send)
{
    return send < 2 ? 2 * round + send : send == 2 ? mix64(round) : 2 * (round + 1);
}

/* Twice an atomic and a fenced send of its result. Then a read and a fenced send with bytes taken
 * when the batch was posted. Then a read and a fenced send of its result. */
static void fences_post(struct side *side, struct rdmux_remote *remote, uint64_t round)
{
    uint64_t found[2] = { 77, 77 };
    uint64_t reads[2] = { 0, 0 };
    uint64_t given = fences_word(round, 2);
    struct rdmux_sge sges[] = { { &found[0], 8, NULL },
                                { &found[1], 8, NULL },
                                { &reads[0], 8, NULL },
                                { &given, 8, NULL },
                                { &reads[1], 8, NULL } };
    struct rdmux_wr batch[FENCES_BATCH] = {
        { .op = RDMUX_OP_FETCH_ADD, .sges = &sges[0] }, { .op = RDMUX_OP_SEND, .sges = &sges[0] },
        { .op = RDMUX_OP_FETCH_ADD, .sges = &sges[1] }, { .op = RDMUX_OP_SEND, .sges = &sges[1] },
        { .op = RDMUX_OP_READ, .sges = &sges[2] },      { .op = RDMUX_OP_SEND, .sges = &sges[3] },
        { .op = RDMUX_OP_READ, .sges = &sges[4] },      { .op = RDMUX_OP_SEND, .sges = &sges[4] }
    };
    size_t posted = 0;
    for (size_t i = 0; i < FENCES_BATCH; i++) {
        batch[i].context = CTX(i);
        batch[i].sge_count = 1;
        batch[i].flags = i % 2 == 1 ? RDMUX_FENCE : 0;
        batch[i].remote = i % 2 == 0 ? remote : NULL;
        batch[i].operand = batch[i].op == RDMUX_OP_FETCH_ADD ? 1 : 0;
    }
    batch[5].flags |= RDMUX_INLINE;
    EXPECT_OK(rdmux_post(side->ep, batch, FENCES_BATCH, &posted));
    EXPECT_EQUAL(posted, FENCES_BATCH);
    memset(&given, 0xcc, sizeof(given));
    memset(sges, 0xcc, sizeof(sges));
    memset(batch, 0xcc, sizeof(batch));
    for (size_t i = 0; i < FENCES_BATCH; i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.status == RDMUX_OK && wc.context == CTX(i), "entry %zu is %s", i, wc_text(&wc));
    }
    EXPECT_EQUAL(found[0], fences_word(round, 0));
    EXPECT_EQUAL(found[1], fences_word(round, 1));
    EXPECT_EQUAL(reads[0], fences_word(round + 1, 0));
    EXPECT_EQUAL(reads[1], fences_word(round + 1, 0));
}

static void fences_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    for (unsigned kind = 0; kind < REGION_KINDS; kind++) {
        struct rdmux_remote *remote = take_remote(side, side->ep);
        for (uint64_t round = 0; round < FENCES_ROUNDS; round++) {
            BARRIER(side); /* receives are posted */
            fences_post(side, remote, round);
        }
        BARRIER(side);
        rdmux_remote_close(remote);
    }
    side_finish(side);
}

static void fences_target(struct side *side)
{
    side_open_pair(side, NULL);
    for (unsigned kind = 0; kind < REGION_KINDS; kind++) {
        struct region region = region_of_kind(side, kind, FENCES_SIZE);
        memset(region.addr, 0, FENCES_SIZE);
        give_token(side, &region);
        for (uint64_t round = 0; round < FENCES_ROUNDS; round++) {
            uint64_t words[FENCES_SENDS] = { 99, 99, 99, 99 };
            for (unsigned i = 0; i < FENCES_SENDS; i++) {
                EXPECT_OK(rdmux_recv(side->ep, &words[i], 8, NULL, CTX(i)));
            }
            BARRIER(side);
            for (unsigned i = 0; i < FENCES_SENDS; i++) {
                (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(i));
                EXPECT_EQUAL(words[i], fences_word(round, i));
            }
        }
        BARRIER(side);
        region_free(side, &region);
    }
    side_finish(side);
}

/* -------------------------------------------------------------------------- behind a long write */

enum { BEHIND_ROUNDS = 8, BEHIND_LONGEST = 4 * MIB, BEHIND_WORD = 8 };

/* Reads, or accesses by an atomic if the path has them, the last bytes of a write that has just
 * been posted, in one batch with it or not. Each bit of round is a choice. */
static void behind_post(struct side *side, struct rdmux_remote *remote, struct region *source,
                        unsigned round)
{
    const bool is_atomic = (round & 1) != 0 && side_has(side, NEEDS_ATOMICS);
    const size_t length = (round & 2) != 0 ? BEHIND_LONGEST : MIB + BEHIND_WORD;
    const size_t last = length - BEHIND_WORD;
    uint64_t found = 0;
    struct rdmux_sge sges[] = { { source->addr, length, source->mr },
                                { &found, sizeof(found), NULL } };
    const struct rdmux_wr batch[] = {
        { .op = RDMUX_OP_WRITE,
          .context = CTX(0),
          .sges = &sges[0],
          .sge_count = 1,
          .remote = remote },
        { .op = is_atomic ? RDMUX_OP_FETCH_ADD : RDMUX_OP_READ,
          .context = CTX(1),
          .sges = &sges[1],
          .sge_count = 1,
          .remote = remote,
          .offset = last },
    };
    pattern_fill(source->addr, length, side->seed + round, 0);
    if ((round & 4) != 0) {
        EXPECT_OK(rdmux_post(side->ep, batch, COUNT_OF(batch), NULL));
    } else {
        EXPECT_OK(rdmux_post(side->ep, &batch[0], 1, NULL));
        EXPECT_OK(rdmux_post(side->ep, &batch[1], 1, NULL));
    }
    for (size_t i = 0; i < COUNT_OF(batch); i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.status == RDMUX_OK && wc.context == CTX(i), "entry %zu is %s", i, wc_text(&wc));
    }
    EXPECT(memcmp(&found, source->addr + last, sizeof(found)) == 0,
           "%s behind a write of %zu bytes found 0x%" PRIx64
           " in its last bytes, not what was written",
           is_atomic ? "a fetch_add" : "a read", length, found);
}

static void behind_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct region source = region_make(side, MEMORY_REGISTERED, BEHIND_LONGEST, 0);
    for (unsigned kind = 0; kind < REGION_KINDS; kind++) {
        struct rdmux_remote *remote = take_remote(side, side->ep);
        for (unsigned round = 0; round < BEHIND_ROUNDS; round++) {
            behind_post(side, remote, &source, round);
        }
        BARRIER(side);
        rdmux_remote_close(remote);
    }
    side_finish(side);
}

static void behind_target(struct side *side)
{
    side_open_pair(side, NULL);
    for (unsigned kind = 0; kind < REGION_KINDS; kind++) {
        struct region region = region_of_kind(side, kind, BEHIND_LONGEST);
        memset(region.addr, 0, BEHIND_LONGEST);
        give_token(side, &region);
        BARRIER(side);
        region_free(side, &region);
    }
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "4.1, 4.2, 1.11, 1.14",
      "each fence of a batch waits for the requests before it, and INLINE bytes are free on return "
      "all the same",
      NEEDS_FENCE | NEEDS_ATOMICS | NEEDS_SEND | NEEDS_READ, 20, 0, fences_initiator,
      fences_target },
    { "2.6, 1.4",
      "a read and an atomic posted right behind a write of megabytes find its last bytes",
      NEEDS_WRITE | NEEDS_READ, 30, 0, behind_initiator, behind_target },
};

const struct suite overtaking_suite = { "overtaking", cases, COUNT_OF(cases) };
