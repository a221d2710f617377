/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Every operation with verified bytes: from and to every kind of memory, in sizes around every
 * limit that a provider may have. */
#include "harness.h"

#include <inttypes.h>
#include <string.h>

enum { GUARD = 64, GUARD_VALUE = 0xa5 };

static const size_t sizes[] = { 0, 1, 8, 63, 64, 65, 4095, 4096, 65537, MIB, 3 * MIB + 7 };

enum { SIZE_MAX_USED = 3 * MIB + 7, ROOM = SIZE_MAX_USED + 2 * GUARD + 8 };

/* Returns the place of round number `round`'s bytes; the alignment differs from the round
 * before. */
static uint8_t *window_of(const struct region *region, uint64_t round)
{
    return region->addr + GUARD + round % 8;
}

static void guard_set(uint8_t *window, size_t size)
{
    memset(window - GUARD, GUARD_VALUE, GUARD);
    memset(window + size, GUARD_VALUE, GUARD);
}

static void guard_check(const uint8_t *window, size_t size)
{
    EXPECT_FILLED(window - GUARD, GUARD, GUARD_VALUE);
    EXPECT_FILLED(window + size, GUARD, GUARD_VALUE);
}

static void make_regions(struct side *side, struct region regions[MEMORY_KINDS], uint32_t access)
{
    for (unsigned kind = 0; kind < MEMORY_KINDS; kind++) {
        regions[kind] = region_make(side, (enum memory_kind)kind, ROOM, access);
    }
}

static uint32_t imm_of(uint64_t round)
{
    return (uint32_t)(round * UINT32_C(0x9e3779b1));
}

/* ------------------------------------------------------------------------------ send, receive */

static void sends_initiator(struct side *side, bool with_imm)
{
    struct region sources[MEMORY_KINDS];
    side_open_pair(side, NULL);
    make_regions(side, sources, 0);
    uint64_t round = 0;
    for (unsigned sink = 0; sink < MEMORY_KINDS; sink++) {
        for (unsigned source = 0; source < MEMORY_KINDS; source++) {
            for (size_t i = 0; i < COUNT_OF(sizes); i++, round++) {
                uint8_t *bytes = window_of(&sources[source], round);
                struct rdmux_mr *mr = sources[source].mr;
                pattern_fill(bytes, sizes[i], side->seed + round, 0);
                if (sizes[i] == 0 && mr == NULL) {
                    bytes = NULL;
                }
                if (with_imm) {
                    (void)POST_AND_WAIT(
                        &side->queue,
                        rdmux_send_imm(side->ep, bytes, sizes[i], mr, imm_of(round), CTX(round), 0),
                        RDMUX_WC_SEND, CTX(round));
                } else {
                    (void)POST_AND_WAIT(&side->queue,
                                        rdmux_send(side->ep, bytes, sizes[i], mr, CTX(round), 0),
                                        RDMUX_WC_SEND, CTX(round));
                }
            }
        }
    }
    side_finish(side);
}

static void sends_target(struct side *side, bool with_imm)
{
    struct region sinks[MEMORY_KINDS];
    side_open_pair(side, NULL);
    make_regions(side, sinks, ACCESS_SINK);
    uint64_t round = 0;
    for (unsigned sink = 0; sink < MEMORY_KINDS; sink++) {
        for (unsigned source = 0; source < MEMORY_KINDS; source++) {
            for (size_t i = 0; i < COUNT_OF(sizes); i++, round++) {
                uint8_t *bytes = window_of(&sinks[sink], round);
                size_t room = sizes[i] == 0 ? 1 : sizes[i];
                guard_set(bytes, room);
                struct rdmux_wc wc = POST_AND_WAIT(
                    &side->queue, rdmux_recv(side->ep, bytes, room, sinks[sink].mr, CTX(round)),
                    RDMUX_WC_RECV, CTX(round));
                EXPECT_EQUAL(wc.length, sizes[i]);
                EXPECT(wc.ep == side->ep, "the completion names another endpoint");
                EXPECT_EQUAL(wc.flags & RDMUX_WC_HAS_IMM, with_imm ? RDMUX_WC_HAS_IMM : 0);
                if (with_imm) {
                    EXPECT_EQUAL(wc.imm, imm_of(round));
                }
                EXPECT_PATTERN(bytes, sizes[i], side->seed + round);
                guard_check(bytes, room);
            }
        }
    }
    side_finish(side);
}

static void send_initiator(struct side *side)
{
    sends_initiator(side, false);
}

static void send_target(struct side *side)
{
    sends_target(side, false);
}

static void send_imm_initiator(struct side *side)
{
    sends_initiator(side, true);
}

static void send_imm_target(struct side *side)
{
    sends_target(side, true);
}

/* ------------------------------------------------------------------------------ write */

enum { REMOTE_KINDS = 2 }; /* registered, allocated */

static void write_initiator(struct side *side)
{
    struct region sources[MEMORY_KINDS];
    struct rdmux_remote *remotes[REMOTE_KINDS];
    side_open_pair(side, NULL);
    make_regions(side, sources, 0);
    for (unsigned i = 0; i < REMOTE_KINDS; i++) {
        remotes[i] = take_remote(side, side->ep);
    }
    uint64_t round = 0;
    for (unsigned remote = 0; remote < REMOTE_KINDS; remote++) {
        for (unsigned source = 0; source < MEMORY_KINDS; source++) {
            for (size_t i = 0; i < COUNT_OF(sizes); i++, round++) {
                uint8_t *bytes = window_of(&sources[source], round + 3);
                pattern_fill(bytes, sizes[i], side->seed + round, 0);
                struct rdmux_wc wc = POST_AND_WAIT(
                    &side->queue,
                    rdmux_write(side->ep, bytes, sizes[i], sources[source].mr, remotes[remote],
                                GUARD + round % 8, CTX(round), RDMUX_PLACED),
                    RDMUX_WC_WRITE, CTX(round));
                EXPECT_EQUAL(wc.length, sizes[i]);
                BARRIER(side); /* the bytes are placed */
                BARRIER(side); /* and verified */
            }
        }
    }
    side_finish(side);
}

static void write_target(struct side *side)
{
    struct region regions[REMOTE_KINDS];
    side_open_pair(side, NULL);
    for (unsigned i = 0; i < REMOTE_KINDS; i++) {
        regions[i] = region_make(side, (enum memory_kind)i, ROOM, RDMUX_ACCESS_REMOTE_WRITE);
        give_token(side, &regions[i]);
    }
    uint64_t round = 0;
    for (unsigned remote = 0; remote < REMOTE_KINDS; remote++) {
        for (unsigned source = 0; source < MEMORY_KINDS; source++) {
            for (size_t i = 0; i < COUNT_OF(sizes); i++, round++) {
                BARRIER(side);
                uint8_t *bytes = window_of(&regions[remote], round);
                EXPECT_PATTERN(bytes, sizes[i], side->seed + round);
                EXPECT_FILLED(regions[remote].addr, GUARD, 0);
                EXPECT_FILLED(bytes + sizes[i], GUARD, 0);
                memset(regions[remote].addr, 0, GUARD + 8 + sizes[i]);
                BARRIER(side);
            }
        }
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------------ write_imm */

static void write_imm_initiator(struct side *side)
{
    struct region sources[MEMORY_KINDS];
    side_open_pair(side, NULL);
    make_regions(side, sources, 0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    uint64_t round = 0;
    for (unsigned source = 0; source < MEMORY_KINDS; source++) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++, round++) {
            uint8_t *bytes = window_of(&sources[source], round);
            pattern_fill(bytes, sizes[i], side->seed + round, 0);
            (void)POST_AND_WAIT(&side->queue,
                                rdmux_write_imm(side->ep, bytes, sizes[i], sources[source].mr,
                                                remote, GUARD, imm_of(round), CTX(round), 0),
                                RDMUX_WC_WRITE, CTX(round));
            BARRIER(side);
        }
    }
    side_finish(side);
}

static void write_imm_target(struct side *side)
{
    uint8_t untouched[64];
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, ROOM, RDMUX_ACCESS_REMOTE_WRITE);
    memset(untouched, GUARD_VALUE, sizeof(untouched));
    give_token(side, &region);
    uint64_t round = 0;
    for (unsigned source = 0; source < MEMORY_KINDS; source++) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++, round++) {
            struct rdmux_wc wc = POST_AND_WAIT(
                &side->queue, rdmux_recv(side->ep, untouched, sizeof(untouched), NULL, CTX(round)),
                RDMUX_WC_RECV_WRITE_IMM, CTX(round));
            EXPECT_EQUAL(wc.length, sizes[i]);
            EXPECT_EQUAL(wc.imm, imm_of(round));
            EXPECT((wc.flags & RDMUX_WC_HAS_IMM) != 0, "a write_imm's notice has no HAS_IMM");
            EXPECT_PATTERN(region.addr + GUARD, sizes[i], side->seed + round);
            EXPECT_FILLED(region.addr, GUARD, 0);
            EXPECT_FILLED(region.addr + GUARD + sizes[i], GUARD, 0);
            EXPECT_FILLED(untouched, sizeof(untouched), GUARD_VALUE);
            memset(region.addr, 0, GUARD + sizes[i] + GUARD);
            BARRIER(side);
        }
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------------ read */

static void read_initiator(struct side *side)
{
    struct region sinks[MEMORY_KINDS];
    struct rdmux_remote *remotes[REMOTE_KINDS];
    side_open_pair(side, NULL);
    make_regions(side, sinks, ACCESS_SINK);
    for (unsigned i = 0; i < REMOTE_KINDS; i++) {
        remotes[i] = take_remote(side, side->ep);
    }
    uint64_t round = 0;
    for (unsigned remote = 0; remote < REMOTE_KINDS; remote++) {
        for (unsigned sink = 0; sink < MEMORY_KINDS; sink++) {
            for (size_t i = 0; i < COUNT_OF(sizes); i++, round++) {
                uint8_t *bytes = window_of(&sinks[sink], round);
                uint64_t offset = round % (ROOM - SIZE_MAX_USED);
                guard_set(bytes, sizes[i]);
                struct rdmux_wc wc = POST_AND_WAIT(&side->queue,
                                                   rdmux_read(side->ep, bytes, sizes[i],
                                                              sinks[sink].mr, remotes[remote],
                                                              offset, CTX(round), 0),
                                                   RDMUX_WC_READ, CTX(round));
                EXPECT_EQUAL(wc.length, sizes[i]);
                EXPECT_PATTERN_FROM(bytes, sizes[i], side->seed + remote, offset);
                guard_check(bytes, sizes[i]);
            }
        }
    }
    BARRIER(side);
    side_finish(side);
}

static void read_target(struct side *side)
{
    struct region regions[REMOTE_KINDS];
    side_open_pair(side, NULL);
    for (unsigned i = 0; i < REMOTE_KINDS; i++) {
        regions[i] = region_make(side, (enum memory_kind)i, ROOM, RDMUX_ACCESS_REMOTE_READ);
        pattern_fill(regions[i].addr, ROOM, side->seed + i, 0);
        give_token(side, &regions[i]);
    }
    BARRIER(side);
    for (unsigned i = 0; i < REMOTE_KINDS; i++) {
        EXPECT_PATTERN(regions[i].addr, ROOM, side->seed + i);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------------ atomics */

enum { WORDS = 16 };

static const uint64_t atomic_operands[] = { 1, 0, UINT64_MAX, UINT64_C(1) << 63,
                                            0x0123456789abcdef };

static void atomics_initiator(struct side *side)
{
    struct region results[MEMORY_KINDS];
    uint64_t model[WORDS] = { 0 };
    side_open_pair(side, NULL);
    for (unsigned kind = 0; kind < MEMORY_KINDS; kind++) {
        results[kind] = region_make(side, (enum memory_kind)kind, 64, ACCESS_SINK);
    }
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t round = 0; round < 200; round++) {
        struct region *sink = &results[round % MEMORY_KINDS];
        uint64_t *old = (uint64_t *)(void *)(sink->addr + 8 * (round % 8));
        uint64_t word = round % WORDS;
        uint64_t operand = atomic_operands[round % COUNT_OF(atomic_operands)];
        struct rdmux_wc wc;
        *old = 0xdead;
        if (round % 3 == 0) {
            wc = POST_AND_WAIT(
                &side->queue,
                rdmux_fetch_add(side->ep, old, sink->mr, remote, 8 * word, operand, CTX(round), 0),
                RDMUX_WC_FETCH_ADD, CTX(round));
            EXPECT_EQUAL(*old, model[word]);
            model[word] += operand;
        } else {
            bool matches = round % 3 == 1;
            uint64_t expected = matches ? model[word] : model[word] + 1;
            wc = POST_AND_WAIT(&side->queue,
                               rdmux_compare_swap(side->ep, old, sink->mr, remote, 8 * word,
                                                  expected, operand, CTX(round), 0),
                               RDMUX_WC_COMPARE_SWAP, CTX(round));
            EXPECT_EQUAL(*old, model[word]);
            model[word] = matches ? operand : model[word];
        }
        EXPECT_EQUAL(wc.length, 8);
    }
    GIVE(side, model, sizeof(model));
    side_finish(side);
}

static void atomics_target(struct side *side)
{
    uint64_t model[WORDS];
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_REGISTERED, sizeof(model) + 8,
                                       RDMUX_ACCESS_REMOTE_ATOMIC);
    give_token(side, &region);
    TAKE(side, model, sizeof(model));
    for (size_t i = 0; i < WORDS; i++) {
        uint64_t word = 0;
        memcpy(&word, region.addr + 8 * i, sizeof(word));
        EXPECT(word == model[i], "word %zu is 0x%" PRIx64 ", expected 0x%" PRIx64, i, word,
               model[i]);
    }
    EXPECT_FILLED(region.addr + sizeof(model), 8, 0);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ zero length */

static void zero_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    EXPECT_OK(rdmux_send(side->ep, NULL, 0, NULL, CTX(1), 0));
    EXPECT_OK(rdmux_write(side->ep, NULL, 0, NULL, remote, 0, CTX(2), 0));
    EXPECT_OK(rdmux_write(side->ep, NULL, 0, NULL, remote, 100, CTX(3), 0)); /* at the end */
    EXPECT_OK(rdmux_read(side->ep, NULL, 0, NULL, remote, 100, CTX(4), 0));
    EXPECT_OK(rdmux_write(side->ep, NULL, 0, NULL, NULL, 0, CTX(5), RDMUX_PLACED));
    const struct rdmux_wr empty = { .op = RDMUX_OP_SEND, .context = CTX(6) };
    EXPECT_OK(rdmux_post(side->ep, &empty, 1, NULL));
    for (uint64_t i = 1; i <= 6; i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT_EQUAL(wc.status, RDMUX_OK);
        EXPECT_EQUAL(CTX_NUMBER(wc.context), i);
    }
    side_finish(side);
}

static void zero_target(struct side *side)
{
    uint8_t bytes[2] = { GUARD_VALUE, GUARD_VALUE };
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 100,
                                       RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ);
    EXPECT_OK(rdmux_recv(side->ep, bytes, 1, NULL, CTX(1)));
    EXPECT_OK(rdmux_recv(side->ep, bytes + 1, 1, NULL, CTX(2)));
    give_token(side, &region);
    EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(1)).length, 0);
    EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(2)).length, 0);
    EXPECT_FILLED(bytes, sizeof(bytes), GUARD_VALUE);
    EXPECT_FILLED(region.addr, 100, 0);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "2.1, 3.7, 12.5, 3.9, 5.1, 5.2, 5.3",
      "a send of any size from any memory arrives whole in a receive in any memory", NEEDS_SEND, 20,
      0, send_initiator, send_target },
    { "2.8, 3.7", "a send_imm brings its 32 bits and its bytes", NEEDS_IMM, 20, 0,
      send_imm_initiator, send_imm_target },
    { "3.4, 3.7, 12.5",
      "a write of any size from any memory changes these bytes of the region and no other",
      NEEDS_PLACED | NEEDS_WRITE, 20, 0, write_initiator, write_target },
    { "2.5, 2.7, 2.8",
      "a write_imm's bytes are there at its notice, which has length and imm and leaves the "
      "receive's buffer alone",
      NEEDS_IMM, 20, 0, write_imm_initiator, write_imm_target },
    { "3.3, 3.7, 12.5",
      "a read of any size at any offset brings these bytes into any memory and changes no other",
      NEEDS_READ, 20, 0, read_initiator, read_target },
    { "2.11, 3.3, 12.4, 12.2, 12.3",
      "fetch_add and compare_swap do 64-bit arithmetic in host order and bring the value before",
      NEEDS_ATOMICS, 0, 0, atomics_initiator, atomics_target },
    { "12.1", "sends, writes and reads of no bytes are legal, and so is a zero-length write at a region's end",
      NEEDS_PLACED | NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0, zero_initiator, zero_target },
};

const struct suite transfer_suite = { "transfer", cases, COUNT_OF(cases) };
