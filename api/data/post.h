/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Send-side requests: from the application to the provider. */
#ifndef RDMUX_API_DATA_POST_H
#define RDMUX_API_DATA_POST_H

#include "api/core/ep.h"
#include "api/core/fabric.h"

/* Owner: posts waiting requests as far as the provider takes them. */
void rdmux_ep_push(struct rdmux_ep *ep, bool more);

#endif
