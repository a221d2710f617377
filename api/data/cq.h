/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Calls on completion queues. */
#ifndef RDMUX_API_DATA_CQ_H
#define RDMUX_API_DATA_CQ_H

#include "api/core/cq.h"

/* Owner, inside a call: progresses the cq and sleeps until done(user) returns true or the timeout.
 * RDMUX_OK or RDMUX_TIMED_OUT. timeout_ms as in rdmux.h. */
enum rdmux_status rdmux_cq_wait_until(struct rdmux_cq *cq, bool (*done)(void *user), void *user,
                                      int timeout_ms);
/* Owner, inside a call: arms the cq as rdmux_cq_arm() does. */
enum rdmux_status rdmux_cq_arm_inside(struct rdmux_cq *cq);

#endif
