/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "verbs/verbs_bench.h"

#include "verbs/verbs_macros.h"
#include "verbs/verbs_self_test.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
    DEPTH = 4,
    LOOKS_MIN = 1000,  /* least polls for an answer, even after the time: a millisecond */
    FIRST_PSN = 0x5d1, /* both ways; no other peer knows these queue pairs */
    RNR_CODE = 1,      /* 10 us; a receive is always posted */
    ACK_CODE = 14,     /* 67 ms: nothing is lost inside a port */
    RETRIES = 1,
};

uint64_t rdmux_verbs_bench_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

void rdmux_verbs_bench_say(struct verbs_bench *bench, const char *format, ...)
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

/* ---------------------------------------------------------------------------------- queue pairs */

static unsigned access_of(const struct verbs_bench *bench)
{
    unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    return verbs_bench_has_atomics(bench) ? access | IBV_ACCESS_REMOTE_ATOMIC : access;
}

/* Creates a queue pair with as many inline bytes as granted. Devices refuse more than they have, or
 * grant more than was asked for. */
static struct ibv_qp *make_queue(struct verbs_bench *bench)
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
static bool make_objects(struct verbs_bench *bench)
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

void rdmux_verbs_bench_close(struct verbs_bench *bench)
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

/* Connects a queue pair from any state; its outstanding work is dropped. */
static int connect_queue(const struct verbs_bench *bench, struct ibv_qp *qp,
                         const struct ibv_qp *peer)
{
    const uint8_t reads = verbs_bench_can_read(bench) ? 1 : 0;
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

int rdmux_verbs_bench_connect(const struct verbs_bench *bench)
{
    int error = connect_queue(bench, bench->answers, bench->asks);
    return error != 0 ? error : connect_queue(bench, bench->asks, bench->answers);
}

bool rdmux_verbs_bench_open(struct verbs_bench *bench)
{
    if (!make_objects(bench)) {
        rdmux_verbs_bench_say(bench, "no queue pairs to try it with: %s", strerror(errno));
        return false;
    }
    int error = rdmux_verbs_bench_connect(bench);
    if (error != 0) {
        rdmux_verbs_bench_say(bench, "no connection to itself: %s", strerror(verbs_error_of(error)));
    }
    return error == 0;
}

/* ------------------------------------------------------------------------------------- requests */

void rdmux_verbs_bench_receive(struct verbs_bench *bench)
{
    struct ibv_sge piece = verbs_bench_piece(bench, bench->memory->theirs, VERBS_BENCH_BYTES);
    struct ibv_recv_wr work = { .wr_id = bench->round << VERBS_BENCH_ROUND_SHIFT |
                                         VERBS_BENCH_NOTICED,
                                .sg_list = &piece,
                                .num_sge = 1 };
    struct ibv_recv_wr *bad = NULL;
    (void)ibv_post_recv(bench->answers, &work, &bad); /* a failure shows as a missing message */
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
static enum verbs_bench_answer take_completions(struct verbs_bench *bench, uint64_t awaited,
                                                struct ibv_wc *notice)
{
    for (int looks = 1; awaited != 0; looks++) {
        struct ibv_wc wc;
        bool is_late = rdmux_verbs_bench_now_ns() > bench->until_ns;
        int got = ibv_poll_cq(bench->cq, 1, &wc);
        if (got < 0 || (got == 0 && is_late && looks >= LOOKS_MIN)) {
            return VERBS_BENCH_NONE;
        }
        if (got == 0) {
            if (!is_late) {
                (void)sched_yield();
            }
            continue;
        }
        if (wc.wr_id >> VERBS_BENCH_ROUND_SHIFT != bench->round) {
            continue;
        }
        if (wc.status != IBV_WC_SUCCESS) {
            rdmux_verbs_bench_say(bench, "%s", ibv_wc_status_str(wc.status));
            return is_silence(wc.status) ? VERBS_BENCH_NONE : VERBS_BENCH_WRONG;
        }
        if ((wc.wr_id & VERBS_BENCH_NOTICED) != 0) {
            *notice = wc;
        }
        awaited &= ~(wc.wr_id & (VERBS_BENCH_ASKED | VERBS_BENCH_NOTICED));
    }
    return VERBS_BENCH_RIGHT;
}

enum verbs_bench_answer rdmux_verbs_bench_ask(struct verbs_bench *bench, struct ibv_send_wr *work,
                                              uint64_t awaited, struct ibv_wc *notice)
{
    struct ibv_send_wr *bad = NULL;
    int error = ibv_post_send(bench->asks, work, &bad);
    if (error != 0) {
        rdmux_verbs_bench_say(bench, "the device does not take the request: %s",
                              strerror(verbs_error_of(error)));
        return VERBS_BENCH_WRONG;
    }
    return take_completions(bench, awaited, notice);
}
