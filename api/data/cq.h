/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Calls on a completion queue. */
#ifndef RDMUX_API_DATA_CQ_H
#define RDMUX_API_DATA_CQ_H

#include "api/core/cq.h"

/* Owner: lets endpoints go on although nobody takes entries: resumes, held requests, faults.
 * Returns whether to do so again at once. */
bool rdmux_cq_move(struct rdmux_cq *cq);
/* Owner, inside a call: progresses the cq and sleeps until done(user) or the time is over. RDMUX_OK
 * or RDMUX_TIMED_OUT. timeout_ms as in rdmux.h. */
enum rdmux_status rdmux_cq_wait_until(struct rdmux_cq *cq, bool (*done)(void *user), void *user,
                                      int timeout_ms);

#endif
