/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The bench of the device self-test: two queue pairs of one port, connected to each other, and a
 * page of their own. One asks, the other answers. verbs_self_test.c alone uses it.
 */
#ifndef RDMUX_VERBS_BENCH_H
#define RDMUX_VERBS_BENCH_H

#include "verbs/verbs_self_test.h"

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    VERBS_BENCH_BYTES = 1024, /* size of each buffer; limits the inline send */
    /* bits of a wr_id from here on: the experiment's number; completions of other experiments are
     * ignored */
    VERBS_BENCH_ROUND_SHIFT = 8,
};

#define VERBS_BENCH_ASKED UINT64_C(1)   /* bit of a wr_id: completion of the request */
#define VERBS_BENCH_NOTICED UINT64_C(2) /* bit of a wr_id: completion of the receive */

struct verbs_bench_memory {
    uint8_t ours[VERBS_BENCH_BYTES];
    uint8_t theirs[VERBS_BENCH_BYTES];
    /* The word is 8-byte aligned but not 16-byte aligned. */
    _Alignas(16) uint64_t before;
    uint64_t word;
    uint64_t result;
    uint64_t seen;
};

enum verbs_bench_answer { VERBS_BENCH_RIGHT, VERBS_BENCH_WRONG, VERBS_BENCH_NONE };

struct verbs_bench {
    const struct verbs_self_test_way *way;
    struct verbs_self_test *out;
    char *words; /* VERBS_SELF_TEST_TEXT_MAX bytes; rdmux_verbs_bench_say() writes there */
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *asks;
    struct ibv_qp *answers;
    struct verbs_bench_memory *memory;
    uint32_t max_inline;
    uint64_t round;
    uint64_t until_ns;
};

uint64_t rdmux_verbs_bench_now_ns(void);
/* Sets the text; only the first one counts. */
void rdmux_verbs_bench_say(struct verbs_bench *bench, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Makes and connects the queue pairs. False: a text tells why; the bench has to be closed, too. */
bool rdmux_verbs_bench_open(struct verbs_bench *bench);
void rdmux_verbs_bench_close(struct verbs_bench *bench);
/* Connects the queue pairs from any state; their outstanding work is dropped. Returns an errno or
 * its negative. */
int rdmux_verbs_bench_connect(const struct verbs_bench *bench);
/* Posts a receive of the whole buffer of the answering side. */
void rdmux_verbs_bench_receive(struct verbs_bench *bench);
/* Posts requests and takes completions until all awaited ones have come. notice: the receive's. */
enum verbs_bench_answer rdmux_verbs_bench_ask(struct verbs_bench *bench, struct ibv_send_wr *work,
                                              uint64_t awaited, struct ibv_wc *notice);

/* Properties of the device. */
static inline bool verbs_bench_has_atomics(const struct verbs_bench *bench)
{
    return bench->way->device->atomic_cap != IBV_ATOMIC_NONE;
}

static inline bool verbs_bench_can_read(const struct verbs_bench *bench)
{
    return bench->way->device->max_qp_rd_atom > 0 && bench->way->device->max_qp_init_rd_atom > 0;
}

static inline struct ibv_sge verbs_bench_piece(const struct verbs_bench *bench, void *at,
                                               uint32_t length)
{
    return (struct ibv_sge){ .addr = (uintptr_t)at, .length = length, .lkey = bench->mr->lkey };
}

/* Makes a signaled request. */
static inline struct ibv_send_wr verbs_bench_request(const struct verbs_bench *bench,
                                                     enum ibv_wr_opcode opcode,
                                                     struct ibv_sge *piece)
{
    return (struct ibv_send_wr){ .wr_id = bench->round << VERBS_BENCH_ROUND_SHIFT |
                                          VERBS_BENCH_ASKED,
                                 .sg_list = piece,
                                 .num_sge = piece != NULL ? 1 : 0,
                                 .opcode = opcode,
                                 .send_flags = IBV_SEND_SIGNALED };
}

static inline void verbs_bench_name_target(const struct verbs_bench *bench,
                                           struct ibv_send_wr *work, const void *at)
{
    work->wr.rdma.remote_addr = (uintptr_t)at;
    work->wr.rdma.rkey = bench->mr->rkey;
}

#endif
