/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Failures of paths, as providers report them. The owner of the cq handles them at the next drain. */
#include "api/data/fault.h"

#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/progress/cq_owner.h"

#include <assert.h>
#include <string.h>

void rdmux_ep_set_fault(struct rdmux_ep *ep, enum rdmux_status status, const char *text)
{
    ep->fault = (uint32_t)status;
    size_t length = text == NULL ? 0 : strnlen(text, sizeof(ep->cause.text) - 1);
    memcpy(ep->cause.text, text == NULL ? "" : text, length);
    ep->cause.text[length] = '\0';
}

void rdmux_ep_clear_fault(struct rdmux_ep *ep)
{
    ep->fault = RDMUX_OK;
}

void rdmux_ep_fault_explained(struct rdmux_ep *ep)
{
    ep->cause.is_unexplained = false;
}

void rdmux_ep_set_in_doubt(struct rdmux_ep *ep, bool is_in_doubt)
{
    ep->cause.is_in_doubt = is_in_doubt;
}

void rdmux_provider_failed(struct rdmux_provider_ep *path, enum rdmux_status status,
                           const char *text)
{
    assert(path != NULL);
    struct rdmux_ep *ep = path->ep;
    if (path == ep->retention.dying) {
        return; /* the path is lost already */
    }
    if (ep->fault == RDMUX_OK) {
        ep->cause.is_unexplained = status == RDMUX_FLUSHED;
        rdmux_ep_set_fault(ep, ep->cause.is_unexplained ? RDMUX_PEER_GONE : status, text);
    }
    path->ready = 1;
    rdmux_cq_pend(ep->cq, ep);
}
