/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Regions, tokens and imports: the rights they grant, accesses refused at the caller, and memory
 * that comes and goes. */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

/* ------------------------------------------------------------------------ refused at the caller */

#define BOUND UINT64_C(10000)

static void range_initiator(struct side *side)
{
    static uint8_t bytes[2 * BOUND];
    static const struct {
        uint64_t offset;
        size_t length;
    } beyond[] = {
        { 0, BOUND + 1 },           { BOUND, 1 },
        { BOUND - 7, 8 },           { BOUND - 1, 2 },
        { 2 * BOUND, 1 },           { UINT64_MAX, 1 },
        { UINT64_MAX - 7, 8 },      { UINT64_MAX - 3, 8 },
        { UINT64_MAX, BOUND },      { UINT64_MAX / 2, 1 },
        { UINT64_C(1) << 32, 100 }, { UINT64_C(1) << 63, 8 },
    };
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (size_t i = 0; i < COUNT_OF(beyond); i++) {
        uint64_t offset = beyond[i].offset;
        size_t length = beyond[i].length;
        EXPECT_STATUS(rdmux_write(side->ep, bytes, length, NULL, remote, offset, CTX(1), 0),
                      RDMUX_OUT_OF_RANGE);
        EXPECT_STATUS(rdmux_read(side->ep, bytes, length, NULL, remote, offset, CTX(1), 0),
                      RDMUX_OUT_OF_RANGE);
        EXPECT_STATUS(rdmux_write(side->ep, bytes, length, NULL, remote, offset, CTX(1),
                                  RDMUX_UNSIGNALED | flag_if_there(side, RDMUX_FENCE)),
                      RDMUX_OUT_OF_RANGE);
    }
    EXPECT_QUIET(&side->queue);
    (void)POST_AND_WAIT(&side->queue,
                        rdmux_write(side->ep, "e", 1, NULL, remote, BOUND - 1, CTX(2),
                                    flag_if_there(side, RDMUX_PLACED)),
                        RDMUX_WC_WRITE, CTX(2));
    settle_writes(side, &side->queue, side->ep, remote);
    BARRIER(side);
    side_finish(side);
}

static void range_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, BOUND, ACCESS_ALL);
    give_token(side, &region);
    BARRIER(side);
    EXPECT_FILLED(region.addr, BOUND - 1, 0);
    EXPECT_EQUAL(region.addr[BOUND - 1], 'e');
    side_finish(side);
}

/* Each right alone: accesses it allows succeed, others are DENIED by the post. */
static const uint32_t single_rights[] = { RDMUX_ACCESS_REMOTE_READ, RDMUX_ACCESS_REMOTE_WRITE,
                                          RDMUX_ACCESS_REMOTE_ATOMIC };

static void rights_initiator(struct side *side)
{
    uint64_t word = 0;
    side_open_pair(side, NULL);
    struct rdmux_ep *ep = side->ep;
    for (size_t i = 0; i < COUNT_OF(single_rights); i++) {
        struct rdmux_remote *remote = take_remote(side, ep);
        struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
        uint32_t right = single_rights[i];
        EXPECT_OK(rdmux_remote_info(remote, &info));
        EXPECT_EQUAL(info.access, right);
        EXPECT_EQUAL(info.length, PAGE);
        EXPECT_EQUAL(info.status, RDMUX_OK);
        enum rdmux_status reads = right == RDMUX_ACCESS_REMOTE_READ ? RDMUX_OK : RDMUX_DENIED;
        enum rdmux_status writes = right == RDMUX_ACCESS_REMOTE_WRITE ? RDMUX_OK : RDMUX_DENIED;
        enum rdmux_status atomics = right == RDMUX_ACCESS_REMOTE_ATOMIC ? RDMUX_OK : RDMUX_DENIED;
        EXPECT_STATUS(rdmux_read(ep, &word, 8, NULL, remote, 0, CTX(1), 0), reads);
        EXPECT_STATUS(rdmux_write(ep, "w", 1, NULL, remote, 0, CTX(2), 0), writes);
        EXPECT_STATUS(rdmux_write_imm(ep, "i", 1, NULL, remote, 1, 0, CTX(3), 0), writes);
        EXPECT_STATUS(rdmux_fetch_add(ep, &word, NULL, remote, 8, 1, CTX(4), 0), atomics);
        EXPECT_STATUS(rdmux_compare_swap(ep, &word, NULL, remote, 16, 0, 1, CTX(5), 0), atomics);
        if (reads == RDMUX_OK) {
            (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(1));
        }
        if (writes == RDMUX_OK) {
            (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(2));
            (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(3));
        }
        if (atomics == RDMUX_OK) {
            (void)WAIT(&side->queue, RDMUX_WC_FETCH_ADD, CTX(4));
            (void)WAIT(&side->queue, RDMUX_WC_COMPARE_SWAP, CTX(5));
        }
        EXPECT_QUIET(&side->queue);
        rdmux_remote_close(remote);
        EXPECT_OK(rdmux_write(ep, NULL, 0, NULL, NULL, 0, CTX(6), RDMUX_PLACED));
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(6));
        BARRIER(side);
    }
    side_finish(side);
}

static void rights_target(struct side *side)
{
    uint8_t byte = 0;
    side_open_pair(side, NULL);
    EXPECT_OK(rdmux_recv(side->ep, &byte, 1, NULL, CTX(1)));
    for (size_t i = 0; i < COUNT_OF(single_rights); i++) {
        struct region region = region_make(side, MEMORY_ALLOCATED, PAGE, single_rights[i]);
        give_token(side, &region);
        BARRIER(side);
        bool written = single_rights[i] == RDMUX_ACCESS_REMOTE_WRITE;
        bool added = single_rights[i] == RDMUX_ACCESS_REMOTE_ATOMIC;
        EXPECT_EQUAL(region.addr[0], written ? 'w' : 0);
        EXPECT_EQUAL(region.addr[1], written ? 'i' : 0);
        EXPECT_EQUAL(region.addr[8] + region.addr[15], added ? 1 : 0);
        EXPECT_EQUAL(region.addr[16] + region.addr[23], added ? 1 : 0);
    }
    (void)WAIT(&side->queue, RDMUX_WC_RECV_WRITE_IMM, CTX(1));
    side_finish(side);
}

/* The local side of a request is checked as well. */
static void local_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *ep = side->ep;
    struct region readable = region_make(side, MEMORY_REGISTERED, 1000, 0);
    struct region sink = region_make(side, MEMORY_ALLOCATED, 1000, ACCESS_SINK);
    struct rdmux_remote *remote = take_remote(side, ep);
    EXPECT_STATUS(rdmux_write(ep, readable.addr, 1001, readable.mr, remote, 0, CTX(1), 0),
                  RDMUX_OUT_OF_RANGE);
    EXPECT_STATUS(rdmux_send(ep, readable.addr + 999, 2, readable.mr, CTX(1), 0),
                  RDMUX_OUT_OF_RANGE);
    EXPECT_STATUS(rdmux_send(ep, readable.addr - 1, 1, readable.mr, CTX(1), 0), RDMUX_OUT_OF_RANGE);
    EXPECT_STATUS(rdmux_recv(ep, sink.addr + 1, 1000, sink.mr, CTX(1)), RDMUX_OUT_OF_RANGE);
    EXPECT_STATUS(rdmux_send(ep, sink.addr, 8, readable.mr, CTX(1), 0), RDMUX_OUT_OF_RANGE);

    /* without RDMUX_ACCESS_LOCAL_WRITE nothing may arrive in a region */
    enum rdmux_status status = rdmux_read(ep, readable.addr, 8, readable.mr, remote, 0, CTX(1), 0);
    EXPECT(status == RDMUX_INVALID || status == RDMUX_DENIED,
           "a read into a region without local write gave %s", rdmux_status_name(status));
    status = rdmux_recv(ep, readable.addr, 8, readable.mr, CTX(1));
    EXPECT(status == RDMUX_INVALID || status == RDMUX_DENIED,
           "a receive into a region without local write gave %s", rdmux_status_name(status));
    EXPECT_QUIET(&side->queue);

    (void)POST_AND_WAIT(&side->queue,
                        rdmux_read(ep, sink.addr, 1000, sink.mr, remote, 0, CTX(2), 0),
                        RDMUX_WC_READ, CTX(2));
    EXPECT_PATTERN(sink.addr, 1000, side->seed);
    BARRIER(side);
    side_finish(side);
}

static void local_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, PAGE, ACCESS_ALL);
    pattern_fill(region.addr, PAGE, side->seed, 0);
    give_token(side, &region);
    BARRIER(side);
    EXPECT_PATTERN(region.addr, PAGE, side->seed);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ tokens */

static enum rdmux_status try_import(struct side *side, const struct rdmux_token *token)
{
    struct rdmux_remote *remote = CTX(1);
    enum rdmux_status status = rdmux_remote_import(side->ep, token, side->patient_ms, &remote);
    EXPECT((status == RDMUX_OK) == (remote != NULL), "%s with remote %p", rdmux_status_name(status),
           (void *)remote);
    rdmux_remote_close(remote);
    return status;
}

static void forged_initiator(struct side *side)
{
    struct rdmux_token token;
    struct rdmux_token forged;
    side_open_pair(side, NULL);
    TAKE(side, &token, sizeof(token));
    EXPECT_STATUS(try_import(side, &token), RDMUX_OK);
    for (size_t at = 0; at < sizeof(token.bytes); at++) {
        for (unsigned bit = 0; bit < 8; bit += 7) {
            forged = token;
            forged.bytes[at] ^= (uint8_t)(1U << bit);
            enum rdmux_status status = try_import(side, &forged);
            EXPECT(status == RDMUX_DENIED || status == RDMUX_INVALID,
                   "a token with bit %u of byte %zu turned over imports with %s", bit, at,
                   rdmux_status_name(status));
        }
    }
    /* a token that only this process exported, and bytes that never were a token */
    struct region own = region_make(side, MEMORY_ALLOCATED, PAGE, ACCESS_ALL);
    EXPECT_OK(rdmux_mr_export(own.mr, &forged));
    EXPECT_STATUS(try_import(side, &forged), RDMUX_DENIED);
    pattern_fill(&forged, sizeof(forged), side->seed, 0);
    enum rdmux_status status = try_import(side, &forged);
    EXPECT(status == RDMUX_DENIED || status == RDMUX_INVALID, "random bytes import with %s",
           rdmux_status_name(status));
    memset(&forged, 0, sizeof(forged));
    status = try_import(side, &forged);
    EXPECT(status == RDMUX_DENIED || status == RDMUX_INVALID, "zero bytes import with %s",
           rdmux_status_name(status));

    EXPECT_QUIET(&side->queue);
    EXPECT_STATUS(try_import(side, &token), RDMUX_OK);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static void forged_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, PAGE, ACCESS_ALL);
    give_token(side, &region);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static void export_initiator(struct side *side)
{
    struct rdmux_token first;
    struct rdmux_token again;
    side_open_pair(side, NULL);
    TAKE(side, &first, sizeof(first));
    TAKE(side, &again, sizeof(again));
    EXPECT(memcmp(&first, &again, sizeof(first)) != 0, "after revoke the token is the same");
    EXPECT_STATUS(try_import(side, &first), RDMUX_DENIED);
    struct rdmux_remote *remote = NULL;
    EXPECT_OK(rdmux_remote_import(side->ep, &again, side->patient_ms, &remote));
    (void)POST_AND_WAIT(
        &side->queue,
        rdmux_write(side->ep, "x", 1, NULL, remote, 5, CTX(1), flag_if_there(side, RDMUX_PLACED)),
        RDMUX_WC_WRITE, CTX(1));
    settle_writes(side, &side->queue, side->ep, remote);
    BARRIER(side);
    side_finish(side);
}

static void export_target(struct side *side)
{
    struct rdmux_token tokens[4];
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_REGISTERED, PAGE, ACCESS_ALL);
    struct region other = region_make(side, MEMORY_REGISTERED, PAGE, ACCESS_ALL);
    struct region private = region_make(side, MEMORY_ALLOCATED, PAGE, RDMUX_ACCESS_LOCAL_WRITE);
    EXPECT_OK(rdmux_mr_export(region.mr, &tokens[0]));
    EXPECT_OK(rdmux_mr_export(region.mr, &tokens[1]));
    EXPECT_OK(rdmux_mr_export(other.mr, &tokens[2]));
    EXPECT(memcmp(&tokens[0], &tokens[1], sizeof(tokens[0])) == 0,
           "exporting twice gave two tokens");
    EXPECT(memcmp(&tokens[0], &tokens[2], sizeof(tokens[0])) != 0, "two regions have one token");
    EXPECT_STATUS(rdmux_mr_export(private.mr, &tokens[3]), RDMUX_INVALID);
    EXPECT_OK(rdmux_mr_revoke(region.mr));
    EXPECT_OK(rdmux_mr_export(region.mr, &tokens[3]));
    GIVE(side, &tokens[0], sizeof(tokens[0]));
    GIVE(side, &tokens[3], sizeof(tokens[3]));
    BARRIER(side);
    EXPECT_EQUAL(region.addr[5], 'x');
    side_finish(side);
}

/* ------------------------------------------------------------------------- many imports at once */

enum { IMPORTS = 100, REVOKED_IMPORT = 33 };

static void pipeline_initiator(struct side *side)
{
    static struct rdmux_token tokens[IMPORTS];
    static struct rdmux_remote *remotes[IMPORTS];
    static bool ready[IMPORTS];
    side_open_pair(side, NULL);
    TAKE(side, tokens, sizeof(tokens));
    const size_t revoked = REVOKED_IMPORT;
    for (size_t i = 0; i < IMPORTS; i++) {
        EXPECT_STATUS(rdmux_remote_import(side->ep, &tokens[i], 0, &remotes[i]), RDMUX_IN_PROGRESS);
        EXPECT(remotes[i] != NULL, "IN_PROGRESS without a handle");
    }
    /* If this side was held up meanwhile, its service thread may have taken the peer's answer. */
    enum rdmux_status early = rdmux_write(side->ep, "x", 1, NULL, remotes[0], 0, CTX(1),
                                          RDMUX_UNSIGNALED);
    if (early == RDMUX_OK) {
        struct rdmux_remote_info answered = RDMUX_REMOTE_INFO_INIT;
        EXPECT_OK(rdmux_remote_info(remotes[0], &answered));
        EXPECT_STATUS(answered.status, RDMUX_OK);
    } else {
        EXPECT_STATUS(early, RDMUX_AGAIN);
    }
    for (size_t left = IMPORTS; left > 0; left--) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_REMOTE_READY && wc.ep == side->ep, "got %s", wc_text(&wc));
        size_t i = 0;
        while (i < IMPORTS && remotes[i] != wc.context) {
            i++;
        }
        EXPECT(i < IMPORTS && !ready[i], "REMOTE_READY of no import, or twice: %s", wc_text(&wc));
        EXPECT_STATUS(wc.status, i == revoked ? RDMUX_DENIED : RDMUX_OK);
        ready[i] = true;
    }
    EXPECT_STATUS(rdmux_write(side->ep, "x", 1, NULL, remotes[revoked], 0, CTX(1), 0), RDMUX_DENIED);
    struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
    EXPECT_OK(rdmux_remote_info(remotes[revoked], &info));
    EXPECT_EQUAL(info.status, RDMUX_DENIED);
    for (uint64_t i = 0; i < IMPORTS; i++) {
        if (i != revoked) {
            (void)POST_AND_WAIT(&side->queue,
                                rdmux_write(side->ep, &i, 8, NULL, remotes[i], 0, CTX(i),
                                            flag_if_there(side, RDMUX_PLACED)),
                                RDMUX_WC_WRITE, CTX(i));
            settle_writes(side, &side->queue, side->ep, remotes[i]);
        }
        rdmux_remote_close(remotes[i]);
    }
    BARRIER(side);
    side_finish(side);
}

static void pipeline_target(struct side *side)
{
    static struct rdmux_token tokens[IMPORTS];
    struct region regions[IMPORTS];
    side_open_pair(side, NULL);
    for (size_t i = 0; i < IMPORTS; i++) {
        /* also registered after the endpoint was connected */
        regions[i] = region_make(side, i % 2 == 0 ? MEMORY_REGISTERED : MEMORY_ALLOCATED, 64,
                                 RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ);
        EXPECT_OK(rdmux_mr_export(regions[i].mr, &tokens[i]));
    }
    EXPECT_OK(rdmux_mr_revoke(regions[REVOKED_IMPORT].mr));
    GIVE(side, tokens, sizeof(tokens));
    BARRIER(side);
    for (uint64_t i = 0; i < IMPORTS; i++) {
        uint64_t word = 0;
        memcpy(&word, regions[i].addr, 8);
        EXPECT_EQUAL(word, i == REVOKED_IMPORT ? 0 : i);
    }
    side_finish(side);
}

/* ---------------------------------------------------- one token, several endpoints; early close */

static void spread_initiator(struct side *side)
{
    uint8_t *bytes = region_make(side, MEMORY_UNREGISTERED, MIB, 0).addr;
    struct rdmux_ep *eps[3];
    struct rdmux_remote *remotes[3];
    struct rdmux_token token;
    side_open_pair(side, NULL);
    eps[0] = side->ep;
    eps[1] = side_pair(side, NULL);
    eps[2] = side_pair(side, NULL);
    TAKE(side, &token, sizeof(token));
    pattern_fill(bytes, MIB, side->seed, 0);
    for (uint64_t i = 0; i < 3; i++) {
        EXPECT_OK(rdmux_remote_import(eps[i], &token, side->patient_ms, &remotes[i]));
    }
    /* A remote of one endpoint is invalid on another. */
    EXPECT_STATUS(rdmux_write(eps[0], bytes, 8, NULL, remotes[1], 0, CTX(1), 0), RDMUX_INVALID);
    for (uint64_t i = 0; i < 3; i++) {
        EXPECT_OK(rdmux_write(eps[i], bytes, MIB, NULL, remotes[i], i * MIB, CTX(i),
                              flag_if_there(side, RDMUX_PLACED)));
        rdmux_remote_close(remotes[i]); /* requests posted with it proceed */
    }
    for (uint64_t i = 0; i < 3; i++) {
        (void)WAIT_OF(&side->queue, eps[i], RDMUX_WC_WRITE, CTX(i), RDMUX_OK);
        EXPECT_OK(rdmux_remote_import(eps[i], &token, side->patient_ms, &remotes[i]));
        settle_writes(side, &side->queue, eps[i], remotes[i]);
    }
    BARRIER(side);
    side_finish(side);
}

static void spread_target(struct side *side)
{
    side_open_pair(side, NULL);
    (void)side_pair(side, NULL);
    (void)side_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 3 * MIB, ACCESS_ALL);
    give_token(side, &region);
    BARRIER(side);
    for (uint64_t i = 0; i < 3; i++) {
        EXPECT_PATTERN(region.addr + i * MIB, MIB, side->seed);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------- memory that comes and goes */

/* Reserves a span of addresses. An access while nothing is mapped there is a fault. */
static uint8_t *span_reserve(size_t length)
{
    void *span = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(span != MAP_FAILED, "mmap: %s", strerror(errno));
    return span;
}

static void span_map(uint8_t *span, size_t length)
{
    void *got = mmap(span, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                     -1, 0);
    EXPECT(got == span, "mmap: %s", strerror(errno));
}

static void span_unmap(uint8_t *span, size_t length)
{
    void *got = mmap(span, length, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    EXPECT(got == span, "mmap: %s", strerror(errno));
}

enum { REMAP_ROUNDS = 40 };

static size_t remap_length(uint64_t round)
{
    static const size_t lengths[] = { PAGE, 16 * PAGE, MIB, 3 * MIB };
    return lengths[round % COUNT_OF(lengths)];
}

/* Local bytes without a region, at the same address on other pages each time: writes, reads, sends,
 * receives. */
static void remap_local_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    uint8_t *bytes = span_reserve(3 * MIB);
    for (uint64_t round = 0; round < REMAP_ROUNDS; round++) {
        size_t length = remap_length(round);
        span_map(bytes, length);
        pattern_fill(bytes, length, side->seed + round, 0);
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_write(side->ep, bytes, length, NULL, remote, 0, CTX(1), 0),
                            RDMUX_WC_WRITE, CTX(1));
        span_unmap(bytes, length);

        span_map(bytes, length);
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_read(side->ep, bytes, length, NULL, remote, 0, CTX(2), 0),
                            RDMUX_WC_READ, CTX(2));
        EXPECT_PATTERN(bytes, length, side->seed + round);
        span_unmap(bytes, length);

        span_map(bytes, length);
        pattern_fill(bytes, length, side->seed + round + 1000, 0);
        (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, bytes, length, NULL, CTX(3), 0),
                            RDMUX_WC_SEND, CTX(3));
        span_unmap(bytes, length);
    }
    side_finish(side);
}

static void remap_local_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 3 * MIB, ACCESS_ALL);
    uint8_t *bytes = span_reserve(3 * MIB);
    give_token(side, &region);
    for (uint64_t round = 0; round < REMAP_ROUNDS; round++) {
        size_t length = remap_length(round);
        span_map(bytes, length);
        struct rdmux_wc wc = POST_AND_WAIT(
            &side->queue, rdmux_recv(side->ep, bytes, length, NULL, CTX(1)), RDMUX_WC_RECV, CTX(1));
        EXPECT_EQUAL(wc.length, length);
        EXPECT_PATTERN(bytes, length, side->seed + round + 1000);
        span_unmap(bytes, length);
    }
    side_finish(side);
}

/* A peer's region ends; its address gets other pages and a new region. The old token is invalid;
 * the new one reaches the new pages. */
static void remap_remote_initiator(struct side *side)
{
    uint8_t *bytes = region_make(side, MEMORY_UNREGISTERED, MIB, 0).addr;
    struct rdmux_remote *old = NULL;
    side_open_pair(side, NULL);
    for (uint64_t round = 0; round < 10; round++) {
        struct rdmux_remote *remote = take_remote(side, side->ep);
        size_t length = round % 2 == 0 ? MIB : PAGE;
        pattern_fill(bytes, length, side->seed + round, 0);
        if (old != NULL) {
            await_revoked(side, old);
            EXPECT_STATUS(rdmux_write(side->ep, bytes, 8, NULL, old, 0, CTX(9), 0), RDMUX_DENIED);
            rdmux_remote_close(old);
        }
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_write(side->ep, bytes, length, NULL, remote, 0, CTX(1),
                                        flag_if_there(side, RDMUX_PLACED)),
                            RDMUX_WC_WRITE, CTX(1));
        memset(bytes, 0, length);
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_read(side->ep, bytes, length, NULL, remote, 0, CTX(2), 0),
                            RDMUX_WC_READ, CTX(2));
        EXPECT_PATTERN(bytes, length, side->seed + round);
        old = remote;
        BARRIER(side);
    }
    side_finish(side);
}

static void remap_remote_target(struct side *side)
{
    side_open_pair(side, NULL);
    uint8_t *bytes = span_reserve(MIB);
    for (uint64_t round = 0; round < 10; round++) {
        struct rdmux_mr *mr = NULL;
        struct rdmux_token token;
        size_t length = round % 2 == 0 ? MIB : PAGE;
        span_map(bytes, MIB);
        EXPECT_OK(rdmux_mr_register(side->fabric, bytes, MIB, ACCESS_ALL, &mr));
        EXPECT_OK(rdmux_mr_export(mr, &token));
        GIVE(side, &token, sizeof(token));
        BARRIER(side);
        EXPECT_PATTERN(bytes, length, side->seed + round);
        EXPECT_FILLED(bytes + length, MIB - length, 0);
        rdmux_mr_deregister(mr);
        span_unmap(bytes, MIB);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------- how regions are made */

static void alone_target(struct side *side)
{
    side_open_pair(side, NULL);
    side_finish(side);
}

/* ---------------------------------------------------------------------------- regions by bytes */

enum { FOUND_ROUNDS = 5 };
#define FOUND_SIZE ((size_t)40000)

#define EXPECT_FOUND(mr_wanted, addr, length, access)                                     \
    EXPECT(rdmux_mr_find(side->fabric, addr, length, access) == (mr_wanted),              \
           "%zu bytes at %zu with access 0x%x: another region or none", (size_t)(length), \
           (size_t)((const uint8_t *)(addr)-bytes), (unsigned)(access))

static void find_initiator(struct side *side)
{
    static uint8_t bytes[3 * FOUND_SIZE];
    const uint32_t writes = RDMUX_ACCESS_LOCAL_WRITE;
    const uint32_t reads = RDMUX_ACCESS_REMOTE_READ;
    struct rdmux_mr *whole = NULL;
    struct rdmux_mr *middle = NULL;
    side_open_pair(side, NULL);
    EXPECT_FOUND(NULL, bytes, 1, 0);
    EXPECT_OK(rdmux_mr_register(side->fabric, bytes, sizeof(bytes), reads, &whole));
    EXPECT_OK(rdmux_mr_register(side->fabric, bytes + FOUND_SIZE, FOUND_SIZE, writes, &middle));
    EXPECT_FOUND(whole, bytes, sizeof(bytes), reads);
    EXPECT_FOUND(whole, bytes + sizeof(bytes) - 1, 1, 0);
    EXPECT_FOUND(NULL, bytes + sizeof(bytes) - 1, 2, 0);
    EXPECT_FOUND(middle, bytes + FOUND_SIZE, FOUND_SIZE, writes);
    EXPECT_FOUND(middle, bytes + 2 * FOUND_SIZE - 1, 1, writes);
    EXPECT_FOUND(whole, bytes + FOUND_SIZE, FOUND_SIZE, reads);
    EXPECT_FOUND(NULL, bytes + FOUND_SIZE, FOUND_SIZE, reads | writes);
    EXPECT_FOUND(NULL, bytes + FOUND_SIZE - 1, 2, writes);
    EXPECT_FOUND(NULL, bytes + 2 * FOUND_SIZE - 1, 2, writes);
    EXPECT_FOUND(whole, bytes + 2 * FOUND_SIZE - 1, 2, 0);
    EXPECT_FOUND(NULL, bytes, 0, 0);
    EXPECT_FOUND(NULL, bytes, SIZE_MAX, 0);
    rdmux_mr_deregister(middle);
    EXPECT_FOUND(NULL, bytes + FOUND_SIZE, FOUND_SIZE, writes);
    EXPECT_FOUND(whole, bytes + FOUND_SIZE, FOUND_SIZE, 0);
    rdmux_mr_deregister(whole);
    EXPECT_FOUND(NULL, bytes, 1, 0);
    side_finish(side);
}

/* Where the bytes of a round lie: within the writable region, across its end, behind it. */
static size_t found_offset(uint64_t round)
{
    static const size_t offsets[] = { 0, 1, 2 * FOUND_SIZE - 1, FOUND_SIZE * 3 / 2, 2 * FOUND_SIZE };
    return offsets[round % COUNT_OF(offsets)];
}

static void open_finding(struct side *side)
{
    struct rdmux_fabric_attr attr = fabric_attr_of(side);
    attr.flags |= RDMUX_FABRIC_FIND_REGIONS;
    side_open(side, &attr);
    side_meet(side);
    (void)side_pair(side, NULL);
}

static void found_initiator(struct side *side)
{
    static uint8_t bytes[4 * FOUND_SIZE];
    struct rdmux_mr *mr[2] = { NULL, NULL };
    open_finding(side);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    EXPECT_OK(rdmux_mr_register(side->fabric, bytes, sizeof(bytes), 0, &mr[0]));
    for (uint64_t round = 0; round < FOUND_ROUNDS; round++) {
        uint8_t *at = bytes + found_offset(round);
        const size_t length = round % 2 == 0 ? FOUND_SIZE : 1000;
        EXPECT_OK(rdmux_mr_register(side->fabric, bytes, 2 * FOUND_SIZE, RDMUX_ACCESS_LOCAL_WRITE,
                                    &mr[1]));
        pattern_fill(at, length, side->seed + round, 0);
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_write(side->ep, at, length, NULL, remote, 0, CTX(1), 0),
                            RDMUX_WC_WRITE, CTX(1));
        memset(bytes, 0, sizeof(bytes));
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_read(side->ep, at, length, NULL, remote, 0, CTX(2), 0),
                            RDMUX_WC_READ, CTX(2));
        EXPECT_PATTERN(at, length, side->seed + round);
        rdmux_mr_deregister(mr[1]); /* found before, and gone for the send */
        (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, at, length, NULL, CTX(3), 0),
                            RDMUX_WC_SEND, CTX(3));
    }
    rdmux_mr_deregister(mr[0]);
    side_finish(side);
}

static void found_target(struct side *side)
{
    static uint8_t bytes[4 * FOUND_SIZE];
    struct rdmux_mr *mr = NULL;
    open_finding(side);
    struct region region = region_make(side, MEMORY_ALLOCATED, FOUND_SIZE, ACCESS_ALL);
    EXPECT_OK(rdmux_mr_register(side->fabric, bytes, 2 * FOUND_SIZE, RDMUX_ACCESS_LOCAL_WRITE, &mr));
    give_token(side, &region);
    for (uint64_t round = 0; round < FOUND_ROUNDS; round++) {
        uint8_t *at = bytes + found_offset(round + 1);
        struct rdmux_wc wc = POST_AND_WAIT(&side->queue,
                                           rdmux_recv(side->ep, at, FOUND_SIZE, NULL, CTX(1)),
                                           RDMUX_WC_RECV, CTX(1));
        EXPECT_EQUAL(wc.length, round % 2 == 0 ? FOUND_SIZE : 1000);
        EXPECT_PATTERN(at, (size_t)wc.length, side->seed + round);
    }
    rdmux_mr_deregister(mr);
    side_finish(side);
}

/* ------------------------------------------------------------------------------------- dma-bufs */

static void no_dmabuf_initiator(struct side *side)
{
    int ends[2];
    struct rdmux_mr *mr = CTX(1);
    struct rdmux_mr_attr attr = RDMUX_MR_ATTR_INIT;
    side_open_pair(side, NULL);
    EXPECT(pipe(ends) == 0, "pipe: %s", strerror(errno));
    int memory = memfd_create("no dma-buf", MFD_CLOEXEC);
    EXPECT(memory >= 0 && ftruncate(memory, (off_t)(4 * PAGE)) == 0, "memfd: %s", strerror(errno));
    EXPECT(lseek(memory, 5, SEEK_SET) == 5, "lseek: %s", strerror(errno));
    const int files[] = { memory, ends[0], ends[1] };
    attr.length = PAGE;
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        attr.dmabuf_fd = (uint32_t)(files[i] + 1);
        attr.access = i == 0 ? RDMUX_ACCESS_LOCAL_WRITE : 0;
        EXPECT_STATUS(rdmux_mr_create(side->fabric, &attr, &mr), RDMUX_INVALID);
        EXPECT(mr == NULL, "a region after RDMUX_INVALID");
    }
    EXPECT(lseek(memory, 0, SEEK_CUR) == 5, "the file's position was changed");
    attr.dmabuf_fd = (uint32_t)(memory + 1);
    attr.dmabuf_offset = 1;
    EXPECT_STATUS(rdmux_mr_create(side->fabric, &attr, &mr), RDMUX_INVALID);
    (void)close(memory);
    attr.dmabuf_offset = 0;
    EXPECT_STATUS(rdmux_mr_create(side->fabric, &attr, &mr), RDMUX_INVALID);
    attr.dmabuf_fd = UINT32_MAX;
    EXPECT_STATUS(rdmux_mr_create(side->fabric, &attr, &mr), RDMUX_INVALID);
    attr.dmabuf_fd = 0;
    attr.dmabuf_offset = PAGE;
    EXPECT_STATUS(rdmux_mr_create(side->fabric, &attr, &mr), RDMUX_INVALID);
    EXPECT(write(ends[1], "", 1) == 1, "the pipe does not work any more");
    (void)close(ends[0]);
    (void)close(ends[1]);
    side_finish(side);
}

/* ----------------------------------------------------------------------------- regions as made */

static void make_initiator(struct side *side)
{
    static uint8_t bytes[100];
    struct rdmux_mr *mr = NULL;
    side_open_pair(side, NULL);
    for (size_t length = 1; length <= 4 * MIB; length = 3 * length + 1) {
        EXPECT_OK(rdmux_mr_alloc(side->fabric, length, ACCESS_ALL, &mr));
        uint8_t *addr = rdmux_mr_addr(mr);
        EXPECT(addr != NULL && (uintptr_t)addr % (uintptr_t)sysconf(_SC_PAGESIZE) == 0,
               "an allocation of %zu bytes is at %p", length, (void *)addr);
        EXPECT_EQUAL(rdmux_mr_length(mr), length);
        EXPECT_FILLED(addr, length, 0);
        memset(addr, 0xff, length);
        rdmux_mr_deregister(mr);
    }
    EXPECT_OK(rdmux_mr_register(side->fabric, bytes + 1, 98, RDMUX_ACCESS_LOCAL_WRITE, &mr));
    EXPECT(rdmux_mr_addr(mr) == bytes + 1, "a region is not where it was registered");
    EXPECT_EQUAL(rdmux_mr_length(mr), 98);
    rdmux_mr_deregister(mr);
    EXPECT(rdmux_mr_addr(NULL) == NULL && rdmux_mr_length(NULL) == 0, "a NULL region has bytes");
    rdmux_mr_deregister(NULL);

    struct rdmux_mr_attr attr = RDMUX_MR_ATTR_INIT;
    attr.length = 3 * MIB;
    attr.access = ACCESS_ALL;
    attr.page_size = UINT64_C(2) << 20; /* a preference: other page sizes are valid */
    attr.numa_node = 1;
    EXPECT_OK(rdmux_mr_create(side->fabric, &attr, &mr));
    EXPECT_EQUAL(rdmux_mr_length(mr), attr.length);
    EXPECT_FILLED(rdmux_mr_addr(mr), attr.length, 0);
    rdmux_mr_deregister(mr);

    attr.page_size = 0;
    attr.numa_node = 0;
    attr.ordering = RDMUX_ORDERING_RELAXED; /* the region allows atomics */
    mr = CTX(1);
    EXPECT_STATUS(rdmux_mr_create(side->fabric, &attr, &mr), RDMUX_INVALID);
    EXPECT(mr == NULL, "a region after RDMUX_INVALID");
    attr.access = RDMUX_ACCESS_REMOTE_WRITE;
    EXPECT_OK(rdmux_mr_create(side->fabric, &attr, &mr));
    rdmux_mr_deregister(mr);
    attr.ordering = RDMUX_ORDERING_DEFAULT;
    attr.dmabuf_fd = 1; /* the standard input, which is none */
    EXPECT_STATUS(rdmux_mr_create(side->fabric, &attr, &mr), RDMUX_INVALID);
    side_finish(side);
}

static void no_map_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    for (unsigned kind = 0; kind < MEMORY_UNREGISTERED; kind++) {
        struct rdmux_remote *remote = take_remote(side, side->ep);
        struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
        EXPECT_OK(rdmux_remote_info(remote, &info));
        EXPECT_EQUAL(info.mapped, 0);
        static uint8_t bytes[100000];
        pattern_fill(bytes, sizeof(bytes), side->seed + kind, 0);
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_write(side->ep, bytes, sizeof(bytes), NULL, remote, 1, CTX(1),
                                        flag_if_there(side, RDMUX_PLACED)),
                            RDMUX_WC_WRITE, CTX(1));
        memset(bytes, 0, sizeof(bytes));
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_read(side->ep, bytes, sizeof(bytes), NULL, remote, 1, CTX(2), 0),
                            RDMUX_WC_READ, CTX(2));
        EXPECT_PATTERN(bytes, sizeof(bytes), side->seed + kind);
        BARRIER(side);
        BARRIER(side); /* the initiator has checked */
        if (side_has(side, NEEDS_IMM)) {
            (void)POST_AND_WAIT(
                &side->queue,
                rdmux_write_imm(side->ep, bytes, sizeof(bytes), NULL, remote, 0, kind, CTX(3), 0),
                RDMUX_WC_WRITE, CTX(3));
        }
    }
    side_finish(side);
}

static void no_map_target(struct side *side)
{
    side_open_pair(side, NULL);
    for (unsigned kind = 0; kind < MEMORY_UNREGISTERED; kind++) {
        struct region region = region_make(side, (enum memory_kind)kind, 100001,
                                           RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ |
                                               RDMUX_ACCESS_NO_MAP);
        if (side_has(side, NEEDS_IMM)) {
            EXPECT_OK(rdmux_recv(side->ep, NULL, 0, NULL, CTX(4)));
        }
        give_token(side, &region);
        BARRIER(side);
        EXPECT_PATTERN(region.addr + 1, 100000, side->seed + kind);
        BARRIER(side);
        if (side_has(side, NEEDS_IMM)) {
            struct rdmux_wc wc = WAIT(&side->queue, RDMUX_WC_RECV_WRITE_IMM, CTX(4));
            EXPECT_EQUAL(wc.imm, kind);
            EXPECT_EQUAL(wc.length, 100000);
            EXPECT_PATTERN(region.addr, 100000, side->seed + kind);
        }
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------- imports closed early */

/* One import is closed before its answer arrives. Another is closed after its answer, with
 * REMOTE_READY not yet taken and a request in flight. No event comes for either, and the request
 * completes. */
static void unheard_initiator(struct side *side)
{
    struct rdmux_token token;
    struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
    struct rdmux_remote *remote = NULL;
    uint64_t word = 0;
    side_open_pair(side, NULL);
    TAKE(side, &token, sizeof(token));
    EXPECT_STATUS(rdmux_remote_import(side->ep, &token, 0, &remote), RDMUX_IN_PROGRESS);
    rdmux_remote_close(remote);
    EXPECT_STATUS(rdmux_remote_import(side->ep, &token, 0, &remote), RDMUX_IN_PROGRESS);
    for (info.status = RDMUX_IN_PROGRESS; info.status == RDMUX_IN_PROGRESS;) {
        EXPECT(!time_is_up(), "the import is never answered");
        (void)rdmux_cq_poll(side->queue.cq, NULL, 0);
        EXPECT_OK(rdmux_remote_info(remote, &info));
    }
    EXPECT_EQUAL(info.status, RDMUX_OK);
    EXPECT_OK(rdmux_read(side->ep, &word, sizeof(word), NULL, remote, 0, CTX(1), 0));
    rdmux_remote_close(remote);
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.opcode == RDMUX_WC_READ && wc.status == RDMUX_OK && wc.context == CTX(1), "got %s",
           wc_text(&wc));
    EXPECT_EQUAL(word, 0);
    BARRIER(side);
    EXPECT_QUIET(&side->queue);
    side_finish(side);
}

static void unheard_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 4096, ACCESS_ALL);
    give_token(side, &region);
    BARRIER(side);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "6.1, 6.3, -6.1, -6.3",
      "an access beyond the region, wrapping or not, is OUT_OF_RANGE at the caller, and the "
      "endpoint lives",
      NEEDS_WRITE | NEEDS_READ | NEEDS_SETTLED, 0, 0, range_initiator, range_target },
    { "6.2, 6.3, 6.16, -6.2, -6.3",
      "each remote right allows its operations and no others: the rest is DENIED at the caller",
      NEEDS_PLACED | NEEDS_IMM | NEEDS_ATOMICS | NEEDS_WRITE | NEEDS_READ, 0, 0, rights_initiator,
      rights_target },
    { "3.9, -3.9",
      "a request that leaves its local region, or would write where only reading is allowed, is "
      "refused",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0, local_initiator, local_target },
    { "6.4, 6.5, -6.4, -6.5",
      "a token changed in any byte, a foreign one and random bytes are refused, and the endpoint "
      "lives",
      0, 0, 0, forged_initiator, forged_target },
    { "6.11, 6.5, -6.11",
      "a region has one token until it is revoked, then another; without remote rights it has none",
      NEEDS_WRITE | NEEDS_SETTLED, 0, 0, export_initiator, export_target },
    { "6.13, 6.4, 6.17, -6.13",
      "100 imports without waiting give 100 REMOTE_READY, AGAIN before, and a revoked one is "
      "DENIED",
      NEEDS_WRITE | NEEDS_SETTLED, 0, 0, pipeline_initiator, pipeline_target },
    { "6.12, 6.14",
      "one token serves several endpoints, and closing an import does not touch what was posted "
      "with it",
      NEEDS_WRITE | NEEDS_SETTLED, 0, 0, spread_initiator, spread_target },
    { "3.8, 3.7",
      "local bytes may be unmapped and other pages mapped at their address between requests",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 20, 0, remap_local_initiator, remap_local_target },
    { "15.2, 3.8, 6.5, -3.8, -15.2",
      "a peer's region may end and another begin at its address: the old token is dead, the new "
      "one works",
      NEEDS_WRITE | NEEDS_READ, 0, 0, remap_remote_initiator, remap_remote_target },
    { "6.18",
      "allocated regions are zeroed and page aligned, registered ones are where the caller's bytes "
      "are",
      0, 0, 0, make_initiator, alone_target },
    { "6.19, 15.2",
      "a region is found by bytes within it and by its rights, alone or among others, until it is "
      "deregistered",
      0, 0, 0, find_initiator, alone_target },
    { "6.20, 3.7, 3.8",
      "requests without region work within, across and beyond the regions that they may use, which "
      "come and go",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0, found_initiator, found_target },
    { "6.21, -6.21",
      "descriptors that are closed, or of other kinds than dma-bufs, make no region and stay as "
      "they "
      "were",
      0, 0, 0, no_dmabuf_initiator, alone_target },
    { "6.15, 2.7", "a region with NO_MAP is never mapped by the peer, and works",
      NEEDS_WRITE | NEEDS_READ, 0, 0, no_map_initiator, no_map_target },
    { "6.13, 6.14",
      "an import that is closed before its REMOTE_READY was taken has none, and its requests are "
      "done",
      NEEDS_READ, 0, 0, unheard_initiator, unheard_target },
};

const struct suite memory_suite = { "memory", cases, COUNT_OF(cases) };
