/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared code of the simulator's own tests: hosts with all objects, connected queue pairs,
 * requests. */
#ifndef SIM_VERBS_SUPPORT_H
#define SIM_VERBS_SUPPORT_H

#include "sim_verbs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { NODE_MEMORY = 1 << 16, NODE_DEPTH = 64 };

/* One end: a host, its device, one of each object, and memory registered with all rights. */
struct node {
    struct sim_host *host;
    struct sim_device *device;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *send_cq;
    struct ibv_cq *recv_cq;
    struct ibv_srq *srq; /* NULL unless the pair uses one */
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *memory; /* NODE_MEMORY bytes */
    /* NULL unless the connection manager made the queue pair, whose context is then librdmacm's. */
    struct rdma_event_channel *cm;
    struct rdma_cm_id *listener;
    struct rdma_cm_id *id;
};

struct pair {
    struct sim_world *world;
    struct node a;
    struct node b;
};

/* Parameters of a pair; zeros are the defaults. */
struct wishes {
    const char *world;    /* options of the world */
    const char *device;   /* of both devices */
    const char *device_b; /* of b's, if it differs */
    uint32_t depth;       /* of the queues, NODE_DEPTH if 0 */
    uint32_t cqe;         /* of the completion queues, four times the depth if 0 */
    uint32_t inline_size;
    uint32_t sges; /* 1 if 0 */
    bool srq;      /* b receives through an SRQ */
    bool extended; /* ibv_wr_*() */
    bool unconnected;
    bool cm;       /* connected by librdmacm; always on iWARP */
    uint8_t mtu_b; /* enum ibv_mtu of b's path, if it differs */
    uint8_t timeout;
    uint8_t retry_cnt;
    uint8_t rnr_retry;
    uint8_t min_rnr_timer;
    uint8_t rd_atomic; /* depth in both directions; 0: the device's limit */
    bool weak;         /* timeout, retry_cnt, rnr_retry and min_rnr_timer are used even if 0 */
};

/* Two hosts with connected queue pairs; a is the connector. Fails the test on any error. */
struct pair pair_make(const struct wishes *wishes);
void pair_end(struct pair *pair);

/* Steps of connecting by librdmacm. */
void cm_node_start(struct sim_world *world, const char *device, struct node *out);
void cm_listen(struct node *node, int backlog);
void cm_resolve(struct node *node, const struct node *to);       /* id, address, route */
void cm_objects(struct node *node, const struct wishes *wishes); /* everything on id->verbs */
struct rdma_cm_event *cm_event(struct node *node, enum rdma_cm_event_type type);
void cm_expect(struct node *node, enum rdma_cm_event_type type); /* and acknowledges it */
void cm_none(struct node *node);
void cm_connect(struct node *a, struct node *b, const struct wishes *wishes);

void node_make(struct sim_world *world, const char *device, const struct wishes *wishes,
               struct node *out);
void node_end(struct node *node);
struct ibv_qp *node_qp(struct node *node, const struct wishes *wishes);
void qp_to_init(struct ibv_qp *qp);
void qp_to_rtr(struct ibv_qp *qp, struct node *mine, struct node *theirs, struct ibv_qp *peer,
               const struct wishes *wishes);
void qp_to_rts(struct ibv_qp *qp, const struct wishes *wishes);
void qps_connect(struct node *a, struct ibv_qp *qa, struct node *b, struct ibv_qp *qb,
                 const struct wishes *wishes);
int qp_to_error(struct ibv_qp *qp);
enum ibv_qp_state qp_state(struct ibv_qp *qp);

/* A piece of a node's memory. */
struct ibv_sge at(const struct node *node, size_t offset, uint32_t length);

/* Post one piece of the node's memory; return the result of the post. */
int post_send(struct node *node, uint64_t wr_id, size_t offset, uint32_t length, unsigned int flags);
int post_send_imm(struct node *node, uint64_t wr_id, size_t offset, uint32_t length, uint32_t imm,
                  unsigned int flags);
int post_write(struct node *node, uint64_t wr_id, size_t offset, uint32_t length,
               const struct node *target, size_t target_offset, unsigned int flags);
int post_write_imm(struct node *node, uint64_t wr_id, size_t offset, uint32_t length,
                   const struct node *target, size_t target_offset, uint32_t imm,
                   unsigned int flags);
int post_read(struct node *node, uint64_t wr_id, size_t offset, uint32_t length,
              const struct node *target, size_t target_offset, unsigned int flags);
int post_fetch_add(struct node *node, uint64_t wr_id, size_t offset, const struct node *target,
                   size_t target_offset, uint64_t add, unsigned int flags);
int post_cmp_swap(struct node *node, uint64_t wr_id, size_t offset, const struct node *target,
                  size_t target_offset, uint64_t compare, uint64_t swap, unsigned int flags);
int post_recv(struct node *node, uint64_t wr_id, size_t offset, uint32_t length);
int post_wr(struct node *node, struct ibv_send_wr *wr);

/* Returns the next entry, waiting as long as an event can still occur; fails the test if none comes. */
struct ibv_wc next_wc(struct ibv_cq *cq);
/* Fails the test if there is an entry, now or after all remaining events. */
void no_wc(struct node *node, struct ibv_cq *cq);
void expect_wc(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status);
void expect_event(struct node *node, enum ibv_event_type type);
void no_event(struct node *node);

void fill(struct node *node, size_t offset, size_t length, uint8_t seed);
bool filled(const struct node *node, size_t offset, size_t length, uint8_t seed);

#endif
