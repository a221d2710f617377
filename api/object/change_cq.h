/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints that change their cq. */
#ifndef RDMUX_API_OBJECT_CHANGE_CQ_H
#define RDMUX_API_OBJECT_CHANGE_CQ_H

#include "api/core/cq.h"

/* Owner: sends the endpoints that wait for a cut, and have been cut or have ended, to their next
 * cq. */
void rdmux_cq_send_off(struct rdmux_cq *cq);

#endif
