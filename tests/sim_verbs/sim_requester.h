/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The requests of a queue pair, from their start to their completion. */
#ifndef SIM_REQUESTER_H
#define SIM_REQUESTER_H

#include "sim_packet.h"

#include <stdbool.h>

enum {
    SIM_TCP_RETRY_TIME = 200000000, /* retry period of an iWARP stream, without end */
};

struct sim_qp;

void sim_requester_work(struct sim_qp *qp);
void sim_requester_ring(struct sim_qp *qp); /* the doorbell: starts work now or a little later */
void sim_requester_answer(struct sim_qp *qp, const struct sim_answer *answer,
                          const struct sim_bytes *data);
void sim_requester_reset(struct sim_qp *qp);
void sim_requester_flush(struct sim_qp *qp); /* completes all posted requests as flushed */
void sim_requester_cancel(struct sim_qp *qp);
void sim_qp_enter_error(struct sim_qp *qp);
void sim_qp_peer_gone(struct sim_qp *qp);        /* requests in flight are lost */
void sim_qp_break_connection(struct sim_qp *qp); /* iWARP: this end of the connection is gone */
void sim_qp_close_connection(struct sim_qp *qp); /* iWARP: ends it once requests are done */

#endif
