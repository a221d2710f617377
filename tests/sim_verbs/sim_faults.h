/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Planned faults: calls that fail, and requests that fail. */
#ifndef SIM_FAULTS_H
#define SIM_FAULTS_H

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stdint.h>

struct sim_world;

/* The functions that can be made to fail, by the names that sim_fail_call() takes. */
#define SIM_CALLS(X)        \
    X(get_device_list)      \
    X(open_device)          \
    X(query_device)         \
    X(query_port)           \
    X(query_gid)            \
    X(query_pkey)           \
    X(alloc_pd)             \
    X(dealloc_pd)           \
    X(reg_mr)               \
    X(dereg_mr)             \
    X(create_ah)            \
    X(create_comp_channel)  \
    X(create_cq)            \
    X(resize_cq)            \
    X(req_notify_cq)        \
    X(poll_cq)              \
    X(create_srq)           \
    X(modify_srq)           \
    X(post_srq_recv)        \
    X(create_qp)            \
    X(modify_qp)            \
    X(query_qp)             \
    X(post_send)            \
    X(wr_complete)          \
    X(post_recv)            \
    X(create_event_channel) \
    X(create_id)            \
    X(bind_addr)            \
    X(resolve_addr)         \
    X(resolve_route)        \
    X(listen)               \
    X(connect)              \
    X(accept)               \
    X(reject)               \
    X(establish)            \
    X(disconnect)           \
    X(set_option)           \
    X(migrate_id)           \
    X(init_qp_attr)

#define SIM_CALL_NAME(name) SIM_CALL_##name,
enum sim_call_name { SIM_CALLS(SIM_CALL_NAME) SIM_CALL_COUNT };
#undef SIM_CALL_NAME

struct sim_plan {
    uint64_t left; /* calls until the failing one; 0: none planned */
    int error;
};

/* A request that will fail. */
struct sim_refusal {
    uint64_t in; /* requests until the failing one; 0: none */
    enum ibv_wc_status status;
};

/* The lock is held. See the functions of sim_verbs.h. */
bool sim_plan_call(struct sim_world *world, const char *name, uint64_t nth, int error);
bool sim_faults_plan(struct sim_world *world); /* plans the faults of options fail= and at=, once */
enum ibv_wc_status sim_refusal_next(struct sim_refusal *refusal); /* IBV_WC_SUCCESS: none */

#endif
