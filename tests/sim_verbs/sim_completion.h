/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completion queues and channels. */
#ifndef SIM_COMPLETION_H
#define SIM_COMPLETION_H

#include "sim_world.h"

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stdint.h>

struct sim_context;
struct sim_qp;
struct sim_srq;

struct sim_cqe {
    uint64_t wr_id;
    enum ibv_wc_status status;
    enum ibv_wc_opcode opcode;
    uint32_t vendor_err;
    uint32_t byte_len;
    uint32_t imm_data;
    uint32_t qp_num;
    uint32_t src_qp;
    unsigned int wc_flags;
    struct sim_qp *qp; /* NULL once it is destroyed */
    struct sim_srq *srq;
    uint64_t placed;  /* placements of the queue pair up to this one are visible after the poll */
    uint32_t request; /* index in the send queue */
    bool send_side;
    bool solicited;
};

/* An entry that the device has not shown yet. */
struct sim_late_cqe {
    struct sim_event event;
    struct sim_late_cqe *next;
    struct sim_cq *cq;
    struct sim_cqe cqe;
};

struct sim_cq_event {
    struct sim_cq_event *next;
    struct sim_cq *cq;
};

struct sim_comp_channel {
    struct ibv_comp_channel ib;
    struct sim_cq_event *events; /* oldest first */
};

enum sim_armed { SIM_ARMED_NOT, SIM_ARMED_SOLICITED, SIM_ARMED_ANY };

struct sim_cq {
    struct ibv_cq_ex ex; /* first: struct ibv_cq is its beginning */
    struct sim_world *world;
    struct sim_context *context;
    struct sim_cqe *ring;
    uint32_t room;
    uint32_t head; /* counts entries polled */
    uint32_t tail; /* counts entries shown */
    struct sim_late_cqe *late;
    uint32_t held;          /* number of late entries */
    struct sim_cqe current; /* of start_poll */
    enum sim_armed armed;
    bool dead;
    bool ignore_overrun;
    bool extended;
    bool polling; /* between start_poll and end_poll */
    uint32_t users;
    uint32_t comp_events_given;
    uint32_t async_events_given;
};

void sim_cq_put(struct sim_cq *cq, const struct sim_cqe *cqe);
void sim_cq_fail(struct sim_cq *cq);
void sim_qps_of_dead_cq(const struct sim_cq *cq);
void sim_cq_forget_qp(struct sim_cq *cq, struct sim_qp *qp, bool keep_entries);
int sim_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int sim_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *sim_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);

#endif
