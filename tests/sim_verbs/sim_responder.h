/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Execution of a request at its target. */
#ifndef SIM_RESPONDER_H
#define SIM_RESPONDER_H

#include "sim_packet.h"

struct sim_qp;

/* Executes a request at its target. bytes: the request's bytes, for SEND and WRITE. read: set to
 * the pieces of the target's memory that a read returns. */
struct sim_answer sim_respond(struct sim_qp *qp, const struct sim_request *request,
                              const struct sim_bytes *bytes, struct sim_bytes *read);
/* Serves the oldest late reads, as long as their key is already checked. */
void sim_responder_finish(struct sim_qp *qp);
void sim_responder_reset(struct sim_qp *qp);
void sim_responder_flush(struct sim_qp *qp); /* completes the receives as flushed */

#endif
