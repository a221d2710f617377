/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Device self-test. Only a wrong answer counts: other bytes, or a refused request. A device that
 * gives no answer, because it is busy or does not carry messages to itself, is taken as it
 * describes itself; the proof of each path tests again (docs/NEGOTIATION.md).
 */
#include "verbs/verbs_self_test.h"

#include "verbs/verbs_bench.h"
#include "verbs/verbs_macros.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define OLD UINT64_C(0x0102030405060708)
#define ADDED UINT64_C(0x1112131415161718)
#define OTHER UINT64_C(0x2122232425262728)
#define NUMBER UINT32_C(0x31323334)

static void fill_bytes(uint8_t *bytes, size_t size, uint8_t seed)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(i * 7 + seed);
    }
}

static bool is_filled(const uint8_t *bytes, size_t size, uint8_t seed)
{
    uint8_t wanted[VERBS_BENCH_BYTES];
    fill_bytes(wanted, size, seed);
    return memcmp(bytes, wanted, size) == 0;
}

/* ---------------------------------------------------------------------------------- experiments */

/* Tests a write and a send behind it, of half the buffer each: a device that does both carries
 * messages to itself. */
static enum verbs_bench_answer try_send(struct verbs_bench *bench)
{
    enum { HALF = VERBS_BENCH_BYTES / 2 };
    struct verbs_bench_memory *memory = bench->memory;
    struct ibv_wc notice;
    fill_bytes(memory->ours, VERBS_BENCH_BYTES, 1);
    rdmux_verbs_bench_receive(bench);
    struct ibv_sge first = verbs_bench_piece(bench, memory->ours, HALF);
    struct ibv_sge second = verbs_bench_piece(bench, memory->ours + HALF, HALF);
    struct ibv_send_wr send = verbs_bench_request(bench, IBV_WR_SEND, &first);
    struct ibv_send_wr write = verbs_bench_request(bench, IBV_WR_RDMA_WRITE, &second);
    verbs_bench_name_target(bench, &write, memory->theirs + HALF);
    write.wr_id = bench->round << VERBS_BENCH_ROUND_SHIFT;
    write.send_flags = 0;
    write.next = &send;
    enum verbs_bench_answer answer = rdmux_verbs_bench_ask(
        bench, &write, VERBS_BENCH_ASKED | VERBS_BENCH_NOTICED, &notice);
    if (answer == VERBS_BENCH_RIGHT && !is_filled(memory->theirs, VERBS_BENCH_BYTES, 1)) {
        rdmux_verbs_bench_say(bench, "other bytes arrive than were sent");
        return VERBS_BENCH_WRONG;
    }
    return answer;
}

static enum verbs_bench_answer try_inline(struct verbs_bench *bench)
{
    struct verbs_bench_memory *memory = bench->memory;
    uint32_t length = bench->max_inline < VERBS_BENCH_BYTES ? bench->max_inline
                                                            : (uint32_t)VERBS_BENCH_BYTES;
    struct ibv_wc notice;
    fill_bytes(memory->ours, length, 2);
    rdmux_verbs_bench_receive(bench);
    struct ibv_sge piece = verbs_bench_piece(bench, memory->ours, length);
    struct ibv_send_wr work = verbs_bench_request(bench, IBV_WR_SEND, &piece);
    work.send_flags |= IBV_SEND_INLINE;
    enum verbs_bench_answer answer = rdmux_verbs_bench_ask(
        bench, &work, VERBS_BENCH_ASKED | VERBS_BENCH_NOTICED, &notice);
    if (answer == VERBS_BENCH_RIGHT &&
        (notice.byte_len != length || !is_filled(memory->theirs, length, 2))) {
        rdmux_verbs_bench_say(bench, "other bytes arrive than were sent");
        return VERBS_BENCH_WRONG;
    }
    return answer;
}

static enum verbs_bench_answer try_write_imm(struct verbs_bench *bench)
{
    enum { LENGTH = 64 };
    struct verbs_bench_memory *memory = bench->memory;
    struct ibv_wc notice;
    fill_bytes(memory->ours, LENGTH, 3);
    rdmux_verbs_bench_receive(bench);
    struct ibv_sge piece = verbs_bench_piece(bench, memory->ours, LENGTH);
    struct ibv_send_wr work = verbs_bench_request(bench, IBV_WR_RDMA_WRITE_WITH_IMM, &piece);
    verbs_bench_name_target(bench, &work, memory->theirs);
    work.imm_data = htonl(NUMBER);
    enum verbs_bench_answer answer = rdmux_verbs_bench_ask(
        bench, &work, VERBS_BENCH_ASKED | VERBS_BENCH_NOTICED, &notice);
    if (answer != VERBS_BENCH_RIGHT) {
        return answer;
    }
    if (notice.opcode != IBV_WC_RECV_RDMA_WITH_IMM || (notice.wc_flags & IBV_WC_WITH_IMM) == 0 ||
        notice.imm_data != htonl(NUMBER) || notice.byte_len != LENGTH) {
        rdmux_verbs_bench_say(bench, "its notice has another number or length");
        return VERBS_BENCH_WRONG;
    }
    if (!is_filled(memory->theirs, LENGTH, 3)) {
        rdmux_verbs_bench_say(bench, "its notice comes before its bytes");
        return VERBS_BENCH_WRONG;
    }
    return VERBS_BENCH_RIGHT;
}

static enum verbs_bench_answer read_into(struct verbs_bench *bench, void *to, const void *from,
                                         uint32_t length)
{
    struct ibv_wc notice;
    struct ibv_sge piece = verbs_bench_piece(bench, to, length);
    struct ibv_send_wr work = verbs_bench_request(bench, IBV_WR_RDMA_READ, &piece);
    verbs_bench_name_target(bench, &work, from);
    return rdmux_verbs_bench_ask(bench, &work, VERBS_BENCH_ASKED, &notice);
}

/* Tests a read behind a write: the bytes of the write are in place, and a read of all of them
 * returns them. */
static enum verbs_bench_answer try_read(struct verbs_bench *bench)
{
    struct verbs_bench_memory *memory = bench->memory;
    struct ibv_wc notice;
    fill_bytes(memory->ours, VERBS_BENCH_BYTES, 4);
    struct ibv_sge from = verbs_bench_piece(bench, memory->ours, VERBS_BENCH_BYTES);
    struct ibv_send_wr write = verbs_bench_request(bench, IBV_WR_RDMA_WRITE, &from);
    verbs_bench_name_target(bench, &write, memory->theirs);
    struct ibv_sge to = verbs_bench_piece(bench, &memory->seen, sizeof(memory->seen));
    struct ibv_send_wr read = verbs_bench_request(bench, IBV_WR_RDMA_READ, &to);
    verbs_bench_name_target(bench, &read, &memory->before);
    write.wr_id = bench->round << VERBS_BENCH_ROUND_SHIFT;
    write.send_flags = 0;
    write.next = &read;
    memory->before = OLD;
    memory->seen = 0;
    enum verbs_bench_answer answer = rdmux_verbs_bench_ask(bench, &write, VERBS_BENCH_ASKED,
                                                           &notice);
    if (answer == VERBS_BENCH_RIGHT &&
        (memory->seen != OLD || !is_filled(memory->theirs, VERBS_BENCH_BYTES, 4))) {
        rdmux_verbs_bench_say(bench, "what was written before a read is not in place behind it");
        return VERBS_BENCH_WRONG;
    }
    memset(memory->ours, 0, VERBS_BENCH_BYTES);
    bench->round++;
    answer = answer != VERBS_BENCH_RIGHT
                 ? answer
                 : read_into(bench, memory->ours, memory->theirs, VERBS_BENCH_BYTES);
    if (answer == VERBS_BENCH_RIGHT && !is_filled(memory->ours, VERBS_BENCH_BYTES, 4)) {
        rdmux_verbs_bench_say(bench, "it brings other bytes than there are");
        return VERBS_BENCH_WRONG;
    }
    return answer;
}

/* Tests an atomic on OLD. Its result must be OLD in this host's byte order, and the word that it
 * leaves, read as a peer would, must be `left`. */
static enum verbs_bench_answer try_atomic(struct verbs_bench *bench, enum ibv_wr_opcode opcode,
                                          uint64_t compare_add, uint64_t left)
{
    struct verbs_bench_memory *memory = bench->memory;
    struct ibv_wc notice;
    memory->word = OLD;
    memory->result = 0;
    bench->round++;
    struct ibv_sge piece = verbs_bench_piece(bench, &memory->result, sizeof(memory->result));
    struct ibv_send_wr work = verbs_bench_request(bench, opcode, &piece);
    work.wr.atomic.remote_addr = (uintptr_t)&memory->word;
    work.wr.atomic.rkey = bench->mr->rkey;
    work.wr.atomic.compare_add = compare_add;
    work.wr.atomic.swap = OTHER;
    enum verbs_bench_answer answer = rdmux_verbs_bench_ask(bench, &work, VERBS_BENCH_ASKED, &notice);
    if (answer == VERBS_BENCH_RIGHT && memory->result != OLD) {
        rdmux_verbs_bench_say(bench, memory->result == __builtin_bswap64(OLD)
                                         ? "their results come in the other byte order"
                                         : "their results are not what was there");
        return VERBS_BENCH_WRONG;
    }
    bench->round++;
    answer = answer != VERBS_BENCH_RIGHT
                 ? answer
                 : read_into(bench, &memory->seen, &memory->word, sizeof(memory->word));
    if (answer == VERBS_BENCH_RIGHT && memory->seen != left) {
        rdmux_verbs_bench_say(bench, "they leave another word than they should");
        return VERBS_BENCH_WRONG;
    }
    return answer;
}

static enum verbs_bench_answer try_atomics(struct verbs_bench *bench)
{
    enum verbs_bench_answer answer = try_atomic(bench, IBV_WR_ATOMIC_FETCH_AND_ADD, ADDED,
                                                OLD + ADDED);
    if (answer == VERBS_BENCH_RIGHT) {
        answer = try_atomic(bench, IBV_WR_ATOMIC_CMP_AND_SWP, OLD, OTHER);
    }
    return answer == VERBS_BENCH_RIGHT ? try_atomic(bench, IBV_WR_ATOMIC_CMP_AND_SWP, OTHER, OLD)
                                       : answer;
}

static enum verbs_bench_answer try_nothing(struct verbs_bench *bench)
{
    struct ibv_wc notice;
    struct ibv_send_wr read = verbs_bench_request(bench, IBV_WR_RDMA_READ, NULL);
    struct ibv_send_wr write = verbs_bench_request(bench, IBV_WR_RDMA_WRITE, NULL);
    if (!verbs_bench_can_read(bench)) {
        return rdmux_verbs_bench_ask(bench, &write, VERBS_BENCH_ASKED, &notice);
    }
    write.wr_id = bench->round << VERBS_BENCH_ROUND_SHIFT;
    write.send_flags = 0;
    write.next = &read;
    return rdmux_verbs_bench_ask(bench, &write, VERBS_BENCH_ASKED, &notice);
}

static bool has_inline(const struct verbs_bench *bench)
{
    return bench->max_inline > 0;
}

static bool has_readable_atomics(const struct verbs_bench *bench)
{
    return verbs_bench_has_atomics(bench) && verbs_bench_can_read(bench);
}

static bool has_everything(const struct verbs_bench *bench)
{
    (void)bench;
    return true;
}

/* In the order of the fault bits. */
static const struct {
    uint32_t fault;
    bool (*applies)(const struct verbs_bench *bench);
    enum verbs_bench_answer (*run)(struct verbs_bench *bench);
} experiments[] = {
    { VERBS_SELF_TEST_INLINE, has_inline, try_inline },
    { VERBS_SELF_TEST_IMM, has_everything, try_write_imm },
    { VERBS_SELF_TEST_READ, verbs_bench_can_read, try_read },
    { VERBS_SELF_TEST_NOTHING, has_everything, try_nothing },
    { VERBS_SELF_TEST_ATOMICS, has_readable_atomics, try_atomics },
};

_Static_assert(VERBS_COUNT_OF(experiments) == VERBS_SELF_TEST_FAULTS,
               "each fault has words of its own");

static void start_clock(struct verbs_bench *bench)
{
    bench->until_ns = rdmux_verbs_bench_now_ns() + VERBS_SELF_TEST_TIME_MS * UINT64_C(1000000);
}

/* Runs the experiments. One that failed may have broken the connection, so a new connection is made
 * after it. */
static void run_experiments(struct verbs_bench *bench)
{
    bool is_silent = false;
    for (size_t i = 0; i < VERBS_COUNT_OF(experiments); i++) {
        if (!experiments[i].applies(bench)) {
            continue;
        }
        bench->round++;
        bench->words = bench->out->why[i];
        /* A full period for each: the device has answered before, however busy the machine is. */
        start_clock(bench);
        enum verbs_bench_answer answer = is_silent ? VERBS_BENCH_NONE : experiments[i].run(bench);
        if (answer == VERBS_BENCH_WRONG) {
            bench->out->faults |= experiments[i].fault;
            is_silent = rdmux_verbs_bench_connect(bench) != 0;
        } else if (answer == VERBS_BENCH_NONE) {
            bench->out->skipped |= experiments[i].fault;
            is_silent = true;
        }
    }
    bench->words = bench->out->text;
}

void rdmux_verbs_self_test_run(const struct verbs_self_test_way *way, struct verbs_self_test *out)
{
    const uint64_t began_ns = rdmux_verbs_bench_now_ns();
    struct verbs_bench bench = { .way = way, .out = out, .words = out->text };
    start_clock(&bench);
    *out = (struct verbs_self_test){ .is_complete = false };
    out->is_connected = rdmux_verbs_bench_open(&bench);
    out->is_complete = out->is_connected && try_send(&bench) == VERBS_BENCH_RIGHT;
    if (out->is_complete) {
        run_experiments(&bench);
    }
    if (out->skipped != 0) {
        rdmux_verbs_bench_say(&bench, "the device left a request unanswered");
    } else if (!out->is_complete) {
        rdmux_verbs_bench_say(&bench, "no answer within %d ms", VERBS_SELF_TEST_TIME_MS);
    }
    rdmux_verbs_bench_close(&bench);
    out->took_ns = rdmux_verbs_bench_now_ns() - began_ns;
}

/* -------------------------------------------------------------------------------- known results */

/* Results per device, for all fabrics of the process. An entry is written once, by the thread that
 * took it. */
static struct known {
    _Atomic uint32_t state;
    uint64_t guid;
    char device[IBV_SYSFS_NAME_MAX];
    struct verbs_self_test self_test;
} known[32];

enum { FREE, TAKEN, FILLED };

bool rdmux_verbs_self_test_recall(const char *device, uint64_t guid, struct verbs_self_test *out)
{
    for (size_t i = 0; i < VERBS_COUNT_OF(known); i++) {
        if (atomic_load_explicit(&known[i].state, memory_order_acquire) == FILLED &&
            known[i].guid == guid && strcmp(known[i].device, device) == 0) {
            *out = known[i].self_test;
            return true;
        }
    }
    return false;
}

void rdmux_verbs_self_test_keep(const char *device, uint64_t guid,
                                const struct verbs_self_test *self_test)
{
    for (size_t i = 0; i < VERBS_COUNT_OF(known); i++) {
        uint32_t state = FREE;
        if (atomic_compare_exchange_strong(&known[i].state, &state, TAKEN)) {
            known[i].guid = guid;
            (void)snprintf(known[i].device, sizeof(known[i].device), "%s", device);
            known[i].self_test = *self_test;
            atomic_store_explicit(&known[i].state, FILLED, memory_order_release);
            return;
        }
    }
}
