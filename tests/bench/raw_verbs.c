/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The smallest program on libibverbs that writes 8 bytes inline, signaled, and takes the
 * completion, over the simulated device. tests/instructions compares loop_write_8 of instructions.c
 * with it. It dumps callgrind's counts and describes them in the same way.
 */
#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define CAN_COUNT 1
#endif
#endif
#ifndef CAN_COUNT
#define CALLGRIND_TOGGLE_COLLECT ((void)0)
#define CALLGRIND_ZERO_STATS ((void)0)
#define CALLGRIND_DUMP_STATS_AT(text) ((void)(text))
#endif

enum { WARM_UP = 16, FEW_ROUNDS = 16, ROUNDS = 128, SMALL = 8, DEPTH = 128, BATCH = 32 };

/* Two queue pairs of one device, which write to each other. */
struct pair {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp[2];
    uint64_t word[2]; /* the written word, and its destination */
    struct ibv_mr *mr;
    struct ibv_port_attr port;
    union ibv_gid gid;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void must(bool good, const char *what)
{
    if (!good) {
        die(what);
    }
}

static struct ibv_qp *open_queue(const struct pair *pair)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = pair->cq,
        .recv_cq = pair->cq,
        .cap = { DEPTH, 1, 1, 1, SMALL },
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = ibv_create_qp(pair->pd, &attr);
    must(qp != NULL, "ibv_create_qp");
    return qp;
}

static void connect_queue(const struct pair *pair, struct ibv_qp *qp, uint32_t peer)
{
    struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT,
                                .port_num = 1,
                                .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
    struct ibv_qp_attr ready = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = pair->port.active_mtu,
        .dest_qp_num = peer,
        .min_rnr_timer = 1,
        .ah_attr = { .dlid = pair->port.lid,
                     .port_num = 1,
                     .is_global = 1,
                     .grh = { .dgid = pair->gid, .hop_limit = 1 } },
    };
    struct ibv_qp_attr sending = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7
    };
    must(ibv_modify_qp(qp, &init,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
         "INIT");
    must(ibv_modify_qp(qp, &ready,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
         "RTR");
    must(ibv_modify_qp(qp, &sending,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
         "RTS");
}

static void open_pair(struct pair *pair)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    must(devices != NULL && devices[0] != NULL, "no device; is SIM_VERBS set?");
    pair->context = ibv_open_device(devices[0]);
    must(pair->context != NULL, "ibv_open_device");
    ibv_free_device_list(devices);
    must(ibv_query_port(pair->context, 1, &pair->port) == 0, "ibv_query_port");
    must(ibv_query_gid(pair->context, 1, 0, &pair->gid) == 0, "ibv_query_gid");
    pair->pd = ibv_alloc_pd(pair->context);
    pair->cq = ibv_create_cq(pair->context, 2 * DEPTH, NULL, NULL, 0);
    must(pair->pd != NULL && pair->cq != NULL, "ibv_create_cq");
    pair->mr = ibv_reg_mr(pair->pd, pair->word, sizeof(pair->word),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    must(pair->mr != NULL, "ibv_reg_mr");
    pair->qp[0] = open_queue(pair);
    pair->qp[1] = open_queue(pair);
    connect_queue(pair, pair->qp[0], pair->qp[1]->qp_num);
    connect_queue(pair, pair->qp[1], pair->qp[0]->qp_num);
}

static void close_pair(struct pair *pair)
{
    must(ibv_destroy_qp(pair->qp[0]) == 0 && ibv_destroy_qp(pair->qp[1]) == 0, "ibv_destroy_qp");
    must(ibv_dereg_mr(pair->mr) == 0 && ibv_destroy_cq(pair->cq) == 0, "ibv_destroy_cq");
    must(ibv_dealloc_pd(pair->pd) == 0 && ibv_close_device(pair->context) == 0, "ibv_close_device");
}

/* The measured loop. */
static void write_and_take(struct pair *pair)
{
    struct ibv_qp *qp = pair->qp[0];
    struct ibv_cq *cq = pair->cq;
    struct ibv_mr *mr = pair->mr;
    uint64_t *from = &pair->word[0];
    uint64_t to = (uintptr_t)&pair->word[1];
    CALLGRIND_TOGGLE_COLLECT;
    for (int i = 0; i < BATCH; i++) {
        struct ibv_sge piece = { .addr = (uintptr_t)from, .length = SMALL, .lkey = mr->lkey };
        struct ibv_send_wr work = {
            .wr_id = (uintptr_t)from,
            .sg_list = &piece,
            .num_sge = 1,
            .opcode = IBV_WR_RDMA_WRITE,
            .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
            .wr.rdma = { .remote_addr = to, .rkey = mr->rkey },
        };
        struct ibv_send_wr *bad;
        if (ibv_post_send(qp, &work, &bad) != 0) {
            die("ibv_post_send");
        }
        struct ibv_wc wc;
        int got;
        do {
            got = ibv_poll_cq(cq, 1, &wc);
        } while (got == 0);
        if (got < 0 || wc.status != IBV_WC_SUCCESS) {
            die("ibv_poll_cq");
        }
    }
    CALLGRIND_TOGGLE_COLLECT;
}

static void count(struct pair *pair, const char *path, unsigned long rounds)
{
    char text[64];
    CALLGRIND_ZERO_STATS;
    for (unsigned long i = 0; i < rounds; i++) {
        write_and_take(pair);
    }
    snprintf(text, sizeof(text), "%s loop_write_8 raw %lu 0 0", path, rounds * BATCH);
    CALLGRIND_DUMP_STATS_AT(text);
    puts(text);
}

/* The path's name is only printed; SIM_VERBS says what the device is. */
int main(int argc, char **argv)
{
    static struct pair pair;
    if (argc != 2) {
        fprintf(stderr, "usage: raw_verbs PATH\n");
        return 2;
    }
    open_pair(&pair);
    pair.word[0] = 0x5a5a5a5a5a5a5a5a;
    for (int i = 0; i < WARM_UP; i++) {
        write_and_take(&pair);
    }
    count(&pair, argv[1], FEW_ROUNDS);
    count(&pair, argv[1], FEW_ROUNDS + ROUNDS);
    if (pair.word[1] != pair.word[0]) {
        fprintf(stderr, "raw_verbs: the bytes did not arrive\n");
        return 1;
    }
    close_pair(&pair);
    return 0;
}
