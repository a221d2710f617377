/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Queue pairs and shared receive queues, with their rings. */
#ifndef SIM_QUEUE_H
#define SIM_QUEUE_H

#include "sim_faults.h"
#include "sim_world.h"

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SIM_SGES_MAX = 32,   /* of one request, on any device */
    SIM_WINDOW_MAX = 64, /* packets of a queue pair in flight; bits of sim_flight.answered */
};

struct sim_cm_id;
struct sim_context;
struct sim_cq;
struct sim_device;
struct sim_held_answer;
struct sim_late_read;
struct sim_placement;
struct sim_staged;

struct sim_wqe {
    uint64_t wr_id;
    uint64_t remote_addr;
    uint64_t compare_add;
    uint64_t swap;
    uint64_t length;
    uint32_t rkey;
    uint32_t imm_data;
    uint32_t first_psn;
    uint64_t piece;    /* bytes of each packet except the last */
    uint32_t packets;  /* number of packets; known once it has started */
    uint32_t answered; /* answered packets */
    enum ibv_wc_status status;
    uint8_t opcode; /* enum ibv_wr_opcode */
    uint8_t flags;  /* enum ibv_send_flags */
    uint8_t num_sge;
    bool inlined;
    bool started;
    bool done;
    bool shown;  /* its result was reported to the completion queue */
    bool entry;  /* that report was an entry */
    bool polled; /* the entry was polled */
};

struct sim_receive {
    uint64_t wr_id;
    int num_sge;
    struct ibv_sge sges[SIM_SGES_MAX];
};

/* A ring of receives: of a queue pair, or shared. */
struct sim_receives {
    uint64_t *wr_ids;
    uint8_t *counts;
    struct ibv_sge *sges;
    uint32_t room;
    uint32_t max_sge;
    uint32_t posted;
    uint32_t taken;
    uint32_t polled; /* completions of receives that were polled: only polling frees a place */
};

struct sim_srq {
    struct ibv_srq ib;
    struct sim_world *world;
    struct sim_context *context;
    struct sim_receives queue;
    uint32_t limit; /* 0: not armed */
    uint32_t users;
    uint32_t async_events_given;
};

/* Requests of a queue pair: counters that only grow; a ring place is its counter modulo room
 * (sim_post.c, sim_requester.c). */
struct sim_send_queue {
    struct sim_wqe *wqes;
    struct ibv_sge *sges;
    uint8_t *inlined;
    struct sim_event doorbell;
    uint32_t room;
    uint32_t posted;
    uint32_t next;        /* next request to be started or continued */
    uint32_t complete;    /* oldest incomplete request */
    uint32_t retired;     /* oldest request whose place is not free */
    uint32_t next_packet; /* of the request at next: packets before it were sent */
    uint32_t covered;     /* for requests before this one a later completion was polled */
    uint32_t reads;       /* started reads and atomics without their data */
};

/* Packets in flight: first unanswered, next to send, answered ones among the first 64
 * (sim_requester.c). */
struct sim_flight {
    uint64_t answered;
    struct sim_held_answer *held;
    struct sim_event retry;
    struct sim_event rnr;
    uint32_t una_psn;
    uint32_t next_psn;
    uint32_t retry_psn;
    uint32_t round; /* rounds of retransmission of the packets in flight */
};

/* The way to the peer, if it is in this world; valid while generation is the world's
 * (sim_carry.c). */
struct sim_route {
    struct sim_qp *peer;
    uint64_t generation;
    uint64_t request_arrival; /* of the last packet sent, so that no packet overtakes another */
    uint64_t answer_arrival;
    uint64_t incoming_arrival; /* of packets from other processes */
};

/* Execution of the peer's requests (sim_responder.c). */
struct sim_target {
    struct sim_receive receive; /* the receive that a message is filling */
    struct sim_late_read *late_reads;
    uint64_t atomic_results[SIM_WINDOW_MAX];
    uint32_t atomic_psns[SIM_WINDOW_MAX];
    uint32_t atomic_count;
    uint32_t expected_psn;
};

/* Requests of ibv_wr_*() that are not posted yet (sim_post.c). */
struct sim_staging {
    struct sim_staged *requests;
    uint32_t count;
    int error;
};

struct sim_qp {
    struct ibv_qp_ex ex; /* first: struct ibv_qp is its beginning */
    struct sim_world *world;
    struct sim_context *context;
    struct sim_device *device;
    struct sim_cq *send_cq;
    struct sim_cq *recv_cq;
    struct sim_srq *srq;
    struct sim_cm_id *cm;
    struct ibv_qp_attr attr;
    struct ibv_qp_cap cap;
    enum ibv_qp_state state; /* the device's; the program's copy changes only by its own calls */
    uint32_t async_events_given;

    struct sim_send_queue sq;
    struct sim_flight flight;
    struct sim_refusal starts; /* the failing one of its requests */
    struct sim_route route;

    /* As a target. */
    struct sim_receives rq;
    struct sim_target target;
    struct sim_placement *placements; /* oldest first */
    uint64_t place_serial;
    uint32_t answers_held; /* iWARP: held until the link is up again */

    struct sim_staging staged;

    uint8_t retries;     /* retransmission rounds since the last answer */
    uint8_t rnr_retries; /* likewise */
    bool signal_all;
    bool extended;
    bool waiting;   /* for retry or rnr: no packet is sent */
    bool stopped;   /* a request failed: later requests are not started */
    bool working;   /* inside sim_requester_work */
    bool peer_lost; /* packets to the peer vanish */
    bool receiving;
    bool heard;     /* a packet arrived */
    bool swallow;   /* iWARP after an error: posts succeed and never complete */
    bool closing;   /* iWARP: closes when its requests are done */
    bool connected; /* iWARP: a connection is attached */
    bool silent;    /* failed by a fault: no completions */
    bool last_wqe_told;
};

static inline struct sim_qp *sim_qp_of(struct ibv_qp *qp)
{
    return (struct sim_qp *)(void *)qp;
}

static inline struct sim_cq *sim_cq_of(struct ibv_cq *cq)
{
    return (struct sim_cq *)(void *)cq;
}

static inline struct sim_srq *sim_srq_of(struct ibv_srq *srq)
{
    return (struct sim_srq *)(void *)srq;
}

static inline uint32_t sim_qp_num(const struct sim_qp *qp)
{
    return qp->ex.qp_base.qp_num;
}

struct sim_qp *sim_qp_find(struct sim_world *world, uint32_t number);
void sim_qp_set_state(struct sim_qp *qp, enum ibv_qp_state state);
int sim_qp_modify(struct sim_qp *qp, const struct ibv_qp_attr *attr, int mask); /* lock held */
void sim_qp_async(struct sim_qp *qp, enum ibv_event_type type);
void sim_qp_retire(struct sim_qp *qp, uint32_t request); /* its completion was polled */
bool sim_receives_take(struct sim_receives *queue, struct sim_receive *out);
int sim_receives_post(struct sim_receives *queue, const struct ibv_recv_wr *wr);
struct ibv_qp *sim_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);

static inline struct sim_wqe *sim_wqe_at(const struct sim_qp *qp, uint32_t counter)
{
    return &qp->sq.wqes[counter % qp->sq.room];
}

static inline struct ibv_sge *sim_wqe_sges(const struct sim_qp *qp, uint32_t counter)
{
    size_t each = qp->cap.max_send_sge > 0 ? qp->cap.max_send_sge : 1;
    return &qp->sq.sges[(counter % qp->sq.room) * each];
}

static inline uint8_t *sim_wqe_inline(const struct sim_qp *qp, uint32_t counter)
{
    return &qp->sq.inlined[(size_t)(counter % qp->sq.room) * qp->cap.max_inline_data];
}

static inline uint32_t sim_receives_waiting(const struct sim_receives *queue)
{
    return queue->posted - queue->taken;
}

/* The lock is held. See sim_verbs.h. */
void sim_qp_give_up(struct sim_qp *qp, bool quiet);

#endif
