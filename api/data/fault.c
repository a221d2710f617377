/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Failures of paths, as providers report them. The owner of the cq handles them at the next drain. */
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/progress/cq_owner.h"

#include <assert.h>
#include <string.h>

void rdmux_provider_failed(struct rdmux_provider_ep *path, enum rdmux_status status,
                           const char *text)
{
    assert(path != NULL);
    struct rdmux_ep *ep = path->ep;
    if (path == ep->retention.dying) {
        return; /* the path is lost already */
    }
    if (ep->fault == RDMUX_OK) {
        ep->session.is_unexplained = status == RDMUX_FLUSHED;
        ep->fault = ep->session.is_unexplained ? RDMUX_PEER_GONE : (uint32_t)status;
        size_t length = text == NULL ? 0 : strnlen(text, sizeof(ep->end.fault_text) - 1);
        memcpy(ep->end.fault_text, text == NULL ? "" : text, length);
        ep->end.fault_text[length] = '\0';
    }
    path->ready = 1;
    rdmux_cq_pend(ep->cq, ep);
}
