/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What goes over an rdma:// endpoint: requests, and raw keys in place of tokens. */
#include "verbs/verbs_description.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_rdmacm.h"
#include "verbs/verbs_receive.h"
#include "verbs/verbs_send.h"
#include "verbs/verbs_transport.h"

#include <string.h>

enum {
    KEY_AT = 8, /* offset of the key in a struct rdmux_rdmacm_key, after the address */
};

/* -------------------------------------------------------------------------------------- regions */

enum rdmux_status rdmux_verbs_rdmacm_mr_describe(struct rdmux_provider_mr *base,
                                                 struct rdmux_provider_ep *ep, uint8_t *out,
                                                 size_t *size)
{
    const struct verbs_mr *mr = verbs_mr_of(base);
    const char *device = verbs_domain_of(base->domain)->device;
    (void)ep;
    if (mr->remote == NULL) {
        rdmux_provider_error(mr->remote_access == 0
                                 ? "%s can grant a peer none of the region's rights"
                                 : "%s: the region has had no key since it was revoked; raise the "
                                   "limit on locked memory (ulimit -l)",
                             device);
        return mr->remote_access == 0 ? RDMUX_UNSUPPORTED : RDMUX_NO_MEMORY;
    }
    memcpy(out, &mr->iova, sizeof(mr->iova));
    memcpy(out + KEY_AT, &mr->remote->rkey, sizeof(mr->remote->rkey));
    *size = RDMUX_RAW_KEY_SIZE;
    return RDMUX_OK;
}

enum rdmux_status rdmux_verbs_rdmacm_remote_open(struct rdmux_provider_remote *base,
                                                 const uint8_t *description, size_t size)
{
    struct verbs_remote *remote = verbs_remote_of(base);
    if (size != RDMUX_RAW_KEY_SIZE) {
        rdmux_provider_error("a raw key has %d bytes, not %zu", RDMUX_RAW_KEY_SIZE, size);
        return RDMUX_INVALID;
    }
    remote->region.flags = VERBS_REGION_HAS_KEY | VERBS_REGION_NATIVE_ATOMICS;
    memcpy(&remote->region.addr, description, sizeof(remote->region.addr));
    memcpy(&remote->region.rkey, description + KEY_AT, sizeof(remote->region.rkey));
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------------- requests */

void rdmux_verbs_rdmacm_aim(struct verbs_ep *ep, const struct rdmux_request *request)
{
    const struct verbs_remote *remote = (const struct verbs_remote *)request->remote;
    uint64_t end = request->offset + request->length;
    uint64_t last = end == 0 ? 0 : end - 1;
    ep->theirs.flush_addr = remote->region.addr + last;
    ep->theirs.flush_rkey = remote->region.rkey;
}

enum rdmux_status rdmux_verbs_rdmacm_start(struct verbs_ep *ep, struct rdmux_request *request)
{
    if (VERBS_UNLIKELY((request->flags & RDMUX_PLACED) != 0 && request->remote != NULL)) {
        if ((verbs_rdmacm_of(ep)->call->base.lacks & RDMUX_CAP_PLACED) != 0) {
            rdmux_provider_error("%s: RDMUX_PLACED is a read behind the write, and the peer grants "
                                 "no reads; rdmux_ep_info.native says so",
                                 ep->transport->name);
            return RDMUX_UNSUPPORTED;
        }
        rdmux_verbs_rdmacm_aim(ep, request);
    } else if (request->op == RDMUX_OP_READ && request->remote != NULL) {
        /* A one-byte read may replace or follow the read, see lacks_nothing and doubts_reads. */
        rdmux_verbs_rdmacm_aim(ep, request);
    }
    return rdmux_verbs_start(ep, request);
}

bool rdmux_verbs_rdmacm_holds(struct verbs_ep *ep, char *text, size_t size)
{
    /* The connection manager chose the address; the connection ends when that no longer works. */
    (void)ep;
    if (size > 0) {
        text[0] = '\0';
    }
    return true;
}

void rdmux_verbs_rdmacm_receive_failed(struct verbs_ep *ep, struct rdmux_request *request,
                                       const struct ibv_wc *wc)
{
    if (wc->status == IBV_WC_WR_FLUSH_ERR && verbs_rdmacm_of(ep)->has_hung_up) {
        return; /* teardown has begun; the connection manager reports its end */
    }
    rdmux_verbs_receive_failed(ep, request, wc);
}
