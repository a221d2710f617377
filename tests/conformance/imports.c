/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Several imports of a region, and regions over the same bytes. */
#include "harness.h"

#include <string.h>

enum { PAGE = 4096 };

/* ---------------------------------------------------------------------------- several imports */

enum { IMPORT_SIZE = 3 * PAGE };

static struct rdmux_remote *import(struct side *side, struct rdmux_ep *ep,
                                   const struct rdmux_token *token)
{
    struct rdmux_remote *remote = NULL;
    EXPECT_OK(rdmux_remote_import(ep, token, side->patient_ms, &remote));
    return remote;
}

/* Writes and reads back through this import. */
static void use_import(struct side *side, struct rdmux_ep *ep, struct rdmux_remote *remote,
                       uint64_t seed)
{
    static uint8_t out[IMPORT_SIZE];
    static uint8_t in[IMPORT_SIZE];
    pattern_fill(out, sizeof(out), side->seed + seed, 0);
    EXPECT_OK(rdmux_write(ep, out, sizeof(out), NULL, remote, 0, CTX(seed), 0));
    EXPECT_OK(rdmux_read(ep, in, sizeof(in), NULL, remote, 0, CTX(1000 + seed), 0));
    (void)WAIT_OF(&side->queue, ep, RDMUX_WC_WRITE, CTX(seed), RDMUX_OK);
    (void)WAIT_OF(&side->queue, ep, RDMUX_WC_READ, CTX(1000 + seed), RDMUX_OK);
    EXPECT_PATTERN(in, sizeof(in), side->seed + seed);
}

static void imports_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *first = side->ep;
    struct rdmux_ep *second = side_pair(side, NULL);
    for (unsigned kind = 0; kind < REGION_KINDS; kind++) {
        struct rdmux_token token;
        TAKE(side, &token, sizeof(token));
        struct rdmux_remote *a = import(side, first, &token);
        struct rdmux_remote *b = import(side, first, &token);
        struct rdmux_remote *c = import(side, second, &token);
        use_import(side, first, a, 1);
        use_import(side, first, b, 2);
        use_import(side, second, c, 3);
        rdmux_remote_close(a);
        use_import(side, first, b, 4);
        use_import(side, second, c, 5);
        a = import(side, first, &token);
        use_import(side, first, b, 6);
        use_import(side, first, a, 7);
        rdmux_remote_close(b);
        rdmux_remote_close(c);
        use_import(side, first, a, 8);
        b = import(side, second, &token);
        use_import(side, second, b, 9);
        use_import(side, first, a, 10);
        BARRIER(side);
        rdmux_remote_close(a);
        rdmux_remote_close(b);
        BARRIER(side);
    }
    side_finish(side);
}

static void imports_target(struct side *side)
{
    side_open_pair(side, NULL);
    (void)side_pair(side, NULL);
    for (unsigned kind = 0; kind < REGION_KINDS; kind++) {
        struct region region = region_of_kind(side, kind, IMPORT_SIZE);
        give_token(side, &region);
        BARRIER(side);
        EXPECT_PATTERN(region.addr, IMPORT_SIZE, side->seed + 10);
        BARRIER(side);
        region_free(side, &region);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------ regions over the same bytes */

enum { OVERLAP_ROUNDS = 60 };

/* Two tokens for the same bytes, one with NO_MAP, so that a path may access them in two ways.
 * Writes through one are found through the other, in posting order. */
static void overlap_initiator(struct side *side)
{
    static uint8_t out[PAGE];
    static uint8_t in[PAGE];
    side_open_pair(side, NULL);
    struct rdmux_remote *remotes[2] = { take_remote(side, side->ep), take_remote(side, side->ep) };
    for (uint64_t round = 0; round < OVERLAP_ROUNDS; round++) {
        size_t length = round % 3 == 0 ? sizeof(out) : 8;
        struct rdmux_remote *by = remotes[round % 2];
        struct rdmux_remote *after = remotes[1 - round % 2];
        uint64_t old = 0;
        uint64_t word = 0;
        pattern_fill(out, length, side->seed + round, 0);
        memcpy(&word, out, 8);
        EXPECT_OK(rdmux_write(side->ep, out, length, NULL, by, 0, CTX(1), 0));
        EXPECT_OK(rdmux_read(side->ep, in, length, NULL, after, 0, CTX(2), 0));
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
        (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(2));
        EXPECT_PATTERN(in, length, side->seed + round);
        if (side_has(side, NEEDS_ATOMICS)) {
            EXPECT_OK(rdmux_write(side->ep, &round, 8, NULL, by, 8, CTX(1), 0));
            EXPECT_OK(rdmux_fetch_add(side->ep, &old, NULL, after, 8, 1, CTX(3), 0));
            (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
            (void)WAIT(&side->queue, RDMUX_WC_FETCH_ADD, CTX(3));
            EXPECT_EQUAL(old, round);
        }
    }
    BARRIER(side);
    side_finish(side);
}

static void overlap_target(struct side *side)
{
    struct rdmux_mr *mr = NULL;
    struct rdmux_token token;
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, PAGE, ACCESS_ALL);
    give_token(side, &region);
    EXPECT_OK(
        rdmux_mr_register(side->fabric, region.addr, PAGE, ACCESS_ALL | RDMUX_ACCESS_NO_MAP, &mr));
    EXPECT_OK(rdmux_mr_export(mr, &token));
    GIVE(side, &token, sizeof(token));
    BARRIER(side);
    rdmux_mr_deregister(mr);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "6.12, 6.14, 6.11",
      "several imports of a region are used and closed in any order, in memory of every kind",
      NEEDS_WRITE | NEEDS_READ, 20, 0, imports_initiator, imports_target },
    { "2.6, 6.17",
      "a write by one token shows in a read and an atomic by another for the same bytes",
      NEEDS_WRITE | NEEDS_READ, 20, 0, overlap_initiator, overlap_target },
};

const struct suite imports_suite = { "imports", cases, COUNT_OF(cases) };
