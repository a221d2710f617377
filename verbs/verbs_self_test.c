/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Device self-test. Only a wrong answer counts: other bytes, or a refused request. A device that
 * gives no answer, because it is busy or does not carry messages to itself, is taken as it
 * describes itself; the proof of each path tests again (docs/NEGOTIATION.md).
 */
#include "verbs/verbs_self_test.h"

#include "verbs/verbs_macros.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
    BYTES = 1024, /* size of each buffer; limits the inline send */
    DEPTH = 4,
    LOOKS_MIN = 1000,  /* least polls for an answer, even after the time: a millisecond */
    FIRST_PSN = 0x5d1, /* both ways; no other peer knows these queue pairs */
    RNR_CODE = 1,      /* 10 us; a receive is always posted */
    ACK_CODE = 14,     /* 67 ms: nothing is lost inside a port */
    RETRIES = 1,
};

#define ASKED UINT64_C(1)   /* bit of a wr_id: completion of the request */
#define NOTICED UINT64_C(2) /* bit of a wr_id: completion of the receive */
#define ROUND_SHIFT \
    8 /* bits of a wr_id from here on: the experiment's number; completions of other experiments
         are ignored */
#define OLD UINT64_C(0x0102030405060708)
#define ADDED UINT64_C(0x1112131415161718)
#define OTHER UINT64_C(0x2122232425262728)
#define NUMBER UINT32_C(0x31323334)

struct memory {
    uint8_t ours[BYTES];
    uint8_t theirs[BYTES];
    /* The word is 8-byte aligned but not 16-byte aligned. */
    _Alignas(16) uint64_t before;
    uint64_t word;
    uint64_t result;
    uint64_t seen;
};

enum answer { RIGHT, WRONG, NONE };

struct bench {
    const struct verbs_self_test_way *way;
    struct verbs_self_test *out;
    char *words; /* VERBS_SELF_TEST_TEXT_MAX bytes; say_result() writes there */
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *asks;
    struct ibv_qp *answers;
    struct memory *memory;
    uint32_t max_inline;
    uint64_t round;
    uint64_t until_ns;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* Sets the text; only the first one counts. */
static void say_result(struct bench *bench, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void say_result(struct bench *bench, const char *format, ...)
{
    va_list arguments;
    if (bench->words[0] != '\0') {
        return;
    }
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vsnprintf(bench->words, VERBS_SELF_TEST_TEXT_MAX, format, arguments);
    va_end(arguments);
}

/* -------------------------------------------------------------------------------- the queue
 * pairs */

static bool has_atomics(const struct bench *bench)
{
    return bench->way->device->atomic_cap != IBV_ATOMIC_NONE;
}

static unsigned access_of(const struct bench *bench)
{
    unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    return has_atomics(bench) ? access | IBV_ACCESS_REMOTE_ATOMIC : access;
}

/* Creates a queue pair with as many inline bytes as granted. Devices refuse more than they have, or
 * grant more than was asked for. */
static struct ibv_qp *make_queue(struct bench *bench)
{
    static const uint32_t steps[] = { 512, 256, 128, 96, 64, 32, 0 };
    struct ibv_qp *qp = NULL;
    for (size_t i = 0; i < VERBS_COUNT_OF(steps) && qp == NULL; i++) {
        struct ibv_qp_init_attr attr = {
            .send_cq = bench->cq,
            .recv_cq = bench->cq,
            .cap = { .max_send_wr = DEPTH,
                     .max_recv_wr = DEPTH,
                     .max_send_sge = 1,
                     .max_recv_sge = 1,
                     .max_inline_data = steps[i] },
            .qp_type = IBV_QPT_RC,
        };
        qp = ibv_create_qp(bench->pd, &attr);
        bench->max_inline = attr.cap.max_inline_data;
    }
    return qp;
}

/* Creates the objects. False: errno has the reason; the caller destroys what was made. */
static bool make_objects(struct bench *bench)
{
    void *pages = mmap(NULL, sizeof(*bench->memory), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bench->memory = pages == MAP_FAILED ? NULL : pages;
    bench->pd = bench->memory != NULL ? ibv_alloc_pd(bench->way->context) : NULL;
    bench->cq = bench->pd != NULL ? ibv_create_cq(bench->way->context, 4 * DEPTH, NULL, NULL, 0)
                                  : NULL;
    if (bench->cq == NULL) {
        return false;
    }
    bench->mr = ibv_reg_mr_iova2(bench->pd, bench->memory, sizeof(*bench->memory),
                                 (uintptr_t)bench->memory, access_of(bench));
    bench->answers = bench->mr != NULL ? make_queue(bench) : NULL;
    bench->asks = bench->answers != NULL ? make_queue(bench) : NULL;
    return bench->asks != NULL;
}

static void destroy_objects(struct bench *bench)
{
    if (bench->asks != NULL) {
        (void)ibv_destroy_qp(bench->asks);
    }
    if (bench->answers != NULL) {
        (void)ibv_destroy_qp(bench->answers);
    }
    if (bench->mr != NULL) {
        (void)ibv_dereg_mr(bench->mr);
    }
    if (bench->cq != NULL) {
        (void)ibv_destroy_cq(bench->cq);
    }
    if (bench->pd != NULL) {
        (void)ibv_dealloc_pd(bench->pd);
    }
    if (bench->memory != NULL) {
        (void)munmap(bench->memory, sizeof(*bench->memory));
    }
}

static bool can_read(const struct bench *bench)
{
    return bench->way->device->max_qp_rd_atom > 0 && bench->way->device->max_qp_init_rd_atom > 0;
}

/* Connects a queue pair from any state; its outstanding work is dropped. */
static int connect_queue(const struct bench *bench, struct ibv_qp *qp, const struct ibv_qp *peer)
{
    const uint8_t reads = can_read(bench) ? 1 : 0;
    struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
    struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT,
                                .pkey_index = bench->way->pkey_index,
                                .port_num = bench->way->address.port_num,
                                .qp_access_flags = access_of(bench) };
    struct ibv_qp_attr ready = { .qp_state = IBV_QPS_RTR,
                                 .path_mtu = bench->way->mtu,
                                 .dest_qp_num = peer->qp_num,
                                 .rq_psn = FIRST_PSN,
                                 .max_dest_rd_atomic = reads,
                                 .min_rnr_timer = RNR_CODE,
                                 .ah_attr = bench->way->address };
    struct ibv_qp_attr sending = { .qp_state = IBV_QPS_RTS,
                                   .sq_psn = FIRST_PSN,
                                   .timeout = ACK_CODE,
                                   .retry_cnt = RETRIES,
                                   .rnr_retry = RETRIES,
                                   .max_rd_atomic = reads };
    int error = ibv_modify_qp(qp, &reset, IBV_QP_STATE);
    if (error == 0) {
        error = ibv_modify_qp(qp, &init,
                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    }
    if (error == 0) {
        error = ibv_modify_qp(qp, &ready,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    }
    if (error == 0) {
        error = ibv_modify_qp(qp, &sending,
                              IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                  IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    }
    return error;
}

static int connect_queues(const struct bench *bench)
{
    int error = connect_queue(bench, bench->answers, bench->asks);
    return error != 0 ? error : connect_queue(bench, bench->asks, bench->answers);
}

static bool make_pair(struct bench *bench)
{
    if (!make_objects(bench)) {
        say_result(bench, "no queue pairs to try it with: %s", strerror(errno));
        return false;
    }
    int error = connect_queues(bench);
    if (error != 0) {
        say_result(bench, "no connection to itself: %s", strerror(verbs_error_of(error)));
    }
    return error == 0;
}

/* ----------------------------------------------------------------------------------- the
 * requests */

static struct ibv_sge piece_of(const struct bench *bench, void *at, uint32_t length)
{
    return (struct ibv_sge){ .addr = (uintptr_t)at, .length = length, .lkey = bench->mr->lkey };
}

static void receive_next(struct bench *bench)
{
    struct ibv_sge piece = piece_of(bench, bench->memory->theirs, BYTES);
    struct ibv_recv_wr work = { .wr_id = bench->round << ROUND_SHIFT | NOTICED,
                                .sg_list = &piece,
                                .num_sge = 1 };
    struct ibv_recv_wr *bad = NULL;
    (void)ibv_post_recv(bench->answers, &work, &bad); /* a failure shows as a missing message */
}

/* Makes a signaled request. */
static struct ibv_send_wr request_of(const struct bench *bench, enum ibv_wr_opcode opcode,
                                     struct ibv_sge *piece)
{
    return (struct ibv_send_wr){ .wr_id = bench->round << ROUND_SHIFT | ASKED,
                                 .sg_list = piece,
                                 .num_sge = piece != NULL ? 1 : 0,
                                 .opcode = opcode,
                                 .send_flags = IBV_SEND_SIGNALED };
}

static void name_target(const struct bench *bench, struct ibv_send_wr *work, const void *at)
{
    work->wr.rdma.remote_addr = (uintptr_t)at;
    work->wr.rdma.rkey = bench->mr->rkey;
}

/* True for statuses that say nothing about the request itself. */
static bool is_silence(enum ibv_wc_status status)
{
    return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR ||
           status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_FATAL_ERR ||
           status == IBV_WC_RESP_TIMEOUT_ERR;
}

/* Takes completions until all awaited ones have come. notice: the receive's. A device in software
 * may need this processor, so the loop yields after each empty poll. On a busy machine the thread
 * may run so seldom that the time is over after few polls; the rest of LOOKS_MIN then follow at
 * once. */
static enum answer take_completions(struct bench *bench, uint64_t awaited, struct ibv_wc *notice)
{
    for (int looks = 1; awaited != 0; looks++) {
        struct ibv_wc wc;
        bool is_late = now_ns() > bench->until_ns;
        int got = ibv_poll_cq(bench->cq, 1, &wc);
        if (got < 0 || (got == 0 && is_late && looks >= LOOKS_MIN)) {
            return NONE;
        }
        if (got == 0) {
            if (!is_late) {
                (void)sched_yield();
            }
            continue;
        }
        if (wc.wr_id >> ROUND_SHIFT != bench->round) {
            continue;
        }
        if (wc.status != IBV_WC_SUCCESS) {
            say_result(bench, "%s", ibv_wc_status_str(wc.status));
            return is_silence(wc.status) ? NONE : WRONG;
        }
        if ((wc.wr_id & NOTICED) != 0) {
            *notice = wc;
        }
        awaited &= ~(wc.wr_id & (ASKED | NOTICED));
    }
    return RIGHT;
}

static enum answer ask_peer(struct bench *bench, struct ibv_send_wr *work, uint64_t awaited,
                            struct ibv_wc *notice)
{
    struct ibv_send_wr *bad = NULL;
    int error = ibv_post_send(bench->asks, work, &bad);
    if (error != 0) {
        say_result(bench, "the device does not take the request: %s",
                   strerror(verbs_error_of(error)));
        return WRONG;
    }
    return take_completions(bench, awaited, notice);
}

static void fill_bytes(uint8_t *bytes, size_t size, uint8_t seed)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(i * 7 + seed);
    }
}

static bool is_filled(const uint8_t *bytes, size_t size, uint8_t seed)
{
    uint8_t wanted[BYTES];
    fill_bytes(wanted, size, seed);
    return memcmp(bytes, wanted, size) == 0;
}

/* -------------------------------------------------------------------------------- the
 * experiments */

/* Tests a write and a send behind it, of half the buffer each: a device that does both carries
 * messages to itself. */
static enum answer try_send(struct bench *bench)
{
    enum { HALF = BYTES / 2 };
    struct memory *memory = bench->memory;
    struct ibv_wc notice;
    fill_bytes(memory->ours, BYTES, 1);
    receive_next(bench);
    struct ibv_sge first = piece_of(bench, memory->ours, HALF);
    struct ibv_sge second = piece_of(bench, memory->ours + HALF, HALF);
    struct ibv_send_wr send = request_of(bench, IBV_WR_SEND, &first);
    struct ibv_send_wr write = request_of(bench, IBV_WR_RDMA_WRITE, &second);
    name_target(bench, &write, memory->theirs + HALF);
    write.wr_id = bench->round << ROUND_SHIFT;
    write.send_flags = 0;
    write.next = &send;
    enum answer answer = ask_peer(bench, &write, ASKED | NOTICED, &notice);
    if (answer == RIGHT && !is_filled(memory->theirs, BYTES, 1)) {
        say_result(bench, "other bytes arrive than were sent");
        return WRONG;
    }
    return answer;
}

static enum answer try_inline(struct bench *bench)
{
    struct memory *memory = bench->memory;
    uint32_t length = bench->max_inline < BYTES ? bench->max_inline : (uint32_t)BYTES;
    struct ibv_wc notice;
    fill_bytes(memory->ours, length, 2);
    receive_next(bench);
    struct ibv_sge piece = piece_of(bench, memory->ours, length);
    struct ibv_send_wr work = request_of(bench, IBV_WR_SEND, &piece);
    work.send_flags |= IBV_SEND_INLINE;
    enum answer answer = ask_peer(bench, &work, ASKED | NOTICED, &notice);
    if (answer == RIGHT && (notice.byte_len != length || !is_filled(memory->theirs, length, 2))) {
        say_result(bench, "other bytes arrive than were sent");
        return WRONG;
    }
    return answer;
}

static enum answer try_write_imm(struct bench *bench)
{
    enum { LENGTH = 64 };
    struct memory *memory = bench->memory;
    struct ibv_wc notice;
    fill_bytes(memory->ours, LENGTH, 3);
    receive_next(bench);
    struct ibv_sge piece = piece_of(bench, memory->ours, LENGTH);
    struct ibv_send_wr work = request_of(bench, IBV_WR_RDMA_WRITE_WITH_IMM, &piece);
    name_target(bench, &work, memory->theirs);
    work.imm_data = htonl(NUMBER);
    enum answer answer = ask_peer(bench, &work, ASKED | NOTICED, &notice);
    if (answer != RIGHT) {
        return answer;
    }
    if (notice.opcode != IBV_WC_RECV_RDMA_WITH_IMM || (notice.wc_flags & IBV_WC_WITH_IMM) == 0 ||
        notice.imm_data != htonl(NUMBER) || notice.byte_len != LENGTH) {
        say_result(bench, "its notice has another number or length");
        return WRONG;
    }
    if (!is_filled(memory->theirs, LENGTH, 3)) {
        say_result(bench, "its notice comes before its bytes");
        return WRONG;
    }
    return RIGHT;
}

static enum answer read_into(struct bench *bench, void *to, const void *from, uint32_t length)
{
    struct ibv_wc notice;
    struct ibv_sge piece = piece_of(bench, to, length);
    struct ibv_send_wr work = request_of(bench, IBV_WR_RDMA_READ, &piece);
    name_target(bench, &work, from);
    return ask_peer(bench, &work, ASKED, &notice);
}

/* Tests a read behind a write: the bytes of the write are in place, and a read of all of them
 * returns them. */
static enum answer try_read(struct bench *bench)
{
    struct memory *memory = bench->memory;
    struct ibv_wc notice;
    fill_bytes(memory->ours, BYTES, 4);
    struct ibv_sge from = piece_of(bench, memory->ours, BYTES);
    struct ibv_send_wr write = request_of(bench, IBV_WR_RDMA_WRITE, &from);
    name_target(bench, &write, memory->theirs);
    struct ibv_sge to = piece_of(bench, &memory->seen, sizeof(memory->seen));
    struct ibv_send_wr read = request_of(bench, IBV_WR_RDMA_READ, &to);
    name_target(bench, &read, &memory->before);
    write.wr_id = bench->round << ROUND_SHIFT;
    write.send_flags = 0;
    write.next = &read;
    memory->before = OLD;
    memory->seen = 0;
    enum answer answer = ask_peer(bench, &write, ASKED, &notice);
    if (answer == RIGHT && (memory->seen != OLD || !is_filled(memory->theirs, BYTES, 4))) {
        say_result(bench, "what was written before a read is not in place behind it");
        return WRONG;
    }
    memset(memory->ours, 0, BYTES);
    bench->round++;
    answer = answer != RIGHT ? answer : read_into(bench, memory->ours, memory->theirs, BYTES);
    if (answer == RIGHT && !is_filled(memory->ours, BYTES, 4)) {
        say_result(bench, "it brings other bytes than there are");
        return WRONG;
    }
    return answer;
}

/* Tests an atomic on OLD. Its result must be OLD in this host's byte order, and the word that it
 * leaves, read as a peer would, must be `left`. */
static enum answer try_atomic(struct bench *bench, enum ibv_wr_opcode opcode, uint64_t compare_add,
                              uint64_t left)
{
    struct memory *memory = bench->memory;
    struct ibv_wc notice;
    memory->word = OLD;
    memory->result = 0;
    bench->round++;
    struct ibv_sge piece = piece_of(bench, &memory->result, sizeof(memory->result));
    struct ibv_send_wr work = request_of(bench, opcode, &piece);
    work.wr.atomic.remote_addr = (uintptr_t)&memory->word;
    work.wr.atomic.rkey = bench->mr->rkey;
    work.wr.atomic.compare_add = compare_add;
    work.wr.atomic.swap = OTHER;
    enum answer answer = ask_peer(bench, &work, ASKED, &notice);
    if (answer == RIGHT && memory->result != OLD) {
        say_result(bench, memory->result == __builtin_bswap64(OLD)
                              ? "their results come in the other byte order"
                              : "their results are not what was there");
        return WRONG;
    }
    bench->round++;
    answer = answer != RIGHT ? answer
                             : read_into(bench, &memory->seen, &memory->word, sizeof(memory->word));
    if (answer == RIGHT && memory->seen != left) {
        say_result(bench, "they leave another word than they should");
        return WRONG;
    }
    return answer;
}

static enum answer try_atomics(struct bench *bench)
{
    enum answer answer = try_atomic(bench, IBV_WR_ATOMIC_FETCH_AND_ADD, ADDED, OLD + ADDED);
    if (answer == RIGHT) {
        answer = try_atomic(bench, IBV_WR_ATOMIC_CMP_AND_SWP, OLD, OTHER);
    }
    return answer == RIGHT ? try_atomic(bench, IBV_WR_ATOMIC_CMP_AND_SWP, OTHER, OLD) : answer;
}

static enum answer try_nothing(struct bench *bench)
{
    struct ibv_wc notice;
    struct ibv_send_wr read = request_of(bench, IBV_WR_RDMA_READ, NULL);
    struct ibv_send_wr write = request_of(bench, IBV_WR_RDMA_WRITE, NULL);
    if (!can_read(bench)) {
        return ask_peer(bench, &write, ASKED, &notice);
    }
    write.wr_id = bench->round << ROUND_SHIFT;
    write.send_flags = 0;
    write.next = &read;
    return ask_peer(bench, &write, ASKED, &notice);
}

static bool has_inline(const struct bench *bench)
{
    return bench->max_inline > 0;
}

static bool has_readable_atomics(const struct bench *bench)
{
    return has_atomics(bench) && can_read(bench);
}

static bool has_everything(const struct bench *bench)
{
    (void)bench;
    return true;
}

/* In the order of the fault bits. */
static const struct {
    uint32_t fault;
    bool (*applies)(const struct bench *bench);
    enum answer (*run)(struct bench *bench);
} experiments[] = {
    { VERBS_SELF_TEST_INLINE, has_inline, try_inline },
    { VERBS_SELF_TEST_IMM, has_everything, try_write_imm },
    { VERBS_SELF_TEST_READ, can_read, try_read },
    { VERBS_SELF_TEST_NOTHING, has_everything, try_nothing },
    { VERBS_SELF_TEST_ATOMICS, has_readable_atomics, try_atomics },
};

_Static_assert(VERBS_COUNT_OF(experiments) == VERBS_SELF_TEST_FAULTS,
               "each fault has words of its own");

static void start_clock(struct bench *bench)
{
    bench->until_ns = now_ns() + VERBS_SELF_TEST_TIME_MS * UINT64_C(1000000);
}

/* Runs the experiments. One that failed may have broken the connection, so a new connection is made
 * after it. */
static void run_experiments(struct bench *bench)
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
        enum answer answer = is_silent ? NONE : experiments[i].run(bench);
        if (answer == WRONG) {
            bench->out->faults |= experiments[i].fault;
            is_silent = connect_queues(bench) != 0;
        } else if (answer == NONE) {
            bench->out->skipped |= experiments[i].fault;
            is_silent = true;
        }
    }
    bench->words = bench->out->text;
}

void rdmux_verbs_self_test_run(const struct verbs_self_test_way *way, struct verbs_self_test *out)
{
    const uint64_t began_ns = now_ns();
    struct bench bench = { .way = way, .out = out, .words = out->text };
    start_clock(&bench);
    *out = (struct verbs_self_test){ .is_complete = false };
    out->is_connected = make_pair(&bench);
    out->is_complete = out->is_connected && try_send(&bench) == RIGHT;
    if (out->is_complete) {
        run_experiments(&bench);
    }
    if (out->skipped != 0) {
        say_result(&bench, "the device left a request unanswered");
    } else if (!out->is_complete) {
        say_result(&bench, "no answer within %d ms", VERBS_SELF_TEST_TIME_MS);
    }
    destroy_objects(&bench);
    out->took_ns = now_ns() - began_ns;
}

/* ---------------------------------------------------------------------------------- what is
 * known */

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
