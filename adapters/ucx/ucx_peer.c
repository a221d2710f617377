/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "adapters/ucx/ucx_internal.h"

#include <stdio.h>
#include <string.h>

/* UCX reads an address as far as its own lengths lead. Zeros behind it end that. */
enum { ADDRESS_TAIL = 1024 };

/* UCX calls it within ucp_worker_progress(). */
static void on_failure(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    rdmux_ucx_peer_fail(argument, status);
}

static struct ucx_peer *find_peer(const struct ucx_cq *cq, const uint8_t *address, size_t length)
{
    for (struct rdmux_list *node = cq->peers.next; node != &cq->peers; node = node->next) {
        struct ucx_peer *peer = (struct ucx_peer *)node;
        if (peer->address_length == length && memcmp(peer->address, address, length) == 0) {
            return peer;
        }
    }
    return NULL;
}

enum rdmux_status rdmux_ucx_peer_get(struct ucx_cq *cq, const uint8_t *address, size_t length,
                                     struct ucx_peer **out)
{
    *out = find_peer(cq, address, length);
    if (*out != NULL) {
        return RDMUX_OK;
    }
    struct ucx_peer *peer = rdmux_provider_allocate(cq->fabric,
                                                    sizeof(*peer) + length + ADDRESS_TAIL);
    if (peer == NULL) {
        rdmux_provider_error("ucx: no memory for a peer");
        return RDMUX_NO_MEMORY;
    }
    peer->cq = cq;
    rdmux_list_init(&peer->links);
    peer->address_length = length;
    memcpy(peer->address, address, length);
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)peer->address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = { .cb = on_failure, .arg = peer },
    };
    sigset_t signals;
    rdmux_ucx_forget_error();
    rdmux_ucx_block_signals(&signals);
    ucs_status_t status = cq->calls->ucp_ep_create(cq->worker, &params, &peer->ep);
    rdmux_ucx_restore_signals(&signals);
    if (status != UCS_OK) {
        rdmux_provider_release(cq->fabric, peer);
        return rdmux_ucx_error(cq->calls, "the peer's worker cannot be reached", status);
    }
    rdmux_list_append(&cq->peers, &peer->node);
    *out = peer;
    return RDMUX_OK;
}

void rdmux_ucx_peer_fail(struct ucx_peer *peer, ucs_status_t status)
{
    if (peer->failure != RDMUX_OK) {
        return;
    }
    peer->failure = status == UCS_ERR_NO_MEMORY ? RDMUX_NO_MEMORY : RDMUX_PEER_GONE;
    (void)snprintf(peer->text, sizeof(peer->text),
                   "ucx: the connection to the peer has failed: %s; connect again",
                   peer->cq->calls->ucs_status_string(status));
    rdmux_list_remove(&peer->node);
    rdmux_list_append(&peer->cq->ending, &peer->node);
    for (struct rdmux_list *node = peer->links.next; node != &peer->links; node = node->next) {
        struct ucx_link *link = (struct ucx_link *)node;
        rdmux_framed_failed(link->ep, peer->failure, peer->text);
    }
}

/* Begins the close, or looks whether it is done. Never waits for the peer. */
static bool close_peer(struct ucx_peer *peer)
{
    const struct ucx_calls *calls = peer->cq->calls;
    if (peer->ep != NULL) {
        const ucp_request_param_t param = {
            .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
            .flags = UCP_EP_CLOSE_FLAG_FORCE,
        };
        void *request = calls->ucp_ep_close_nbx(peer->ep, &param);
        peer->ep = NULL;
        peer->closing = UCS_PTR_IS_PTR(request) ? request : NULL;
    }
    if (peer->closing != NULL) {
        if (calls->ucp_request_check_status(peer->closing) == UCS_INPROGRESS) {
            return false;
        }
        calls->ucp_request_free(peer->closing);
        peer->closing = NULL;
    }
    return true;
}

void rdmux_ucx_peers_end(struct ucx_cq *cq)
{
    for (struct rdmux_list *node = cq->ending.next, *next; node != &cq->ending; node = next) {
        struct ucx_peer *peer = (struct ucx_peer *)node;
        next = node->next;
        if (close_peer(peer) && peer->under_way == 0 && rdmux_list_empty(&peer->links)) {
            rdmux_list_remove(&peer->node);
            rdmux_provider_release(cq->fabric, peer);
        }
    }
}

/* How often UCX may work for the end of its endpoints, before the end of the worker ends them. */
enum { CLOSING_STEPS = 1000 };

void rdmux_ucx_peers_close(struct ucx_cq *cq)
{
    while (!rdmux_list_empty(&cq->peers)) {
        rdmux_ucx_peer_fail((struct ucx_peer *)cq->peers.next, UCS_ERR_CANCELED);
    }
    rdmux_ucx_peers_end(cq);
    for (int i = 0; i < CLOSING_STEPS && !rdmux_list_empty(&cq->ending); i++) {
        (void)cq->calls->ucp_worker_progress(cq->worker);
        rdmux_ucx_peers_end(cq);
    }
}

void rdmux_ucx_peers_free(struct ucx_cq *cq)
{
    while (!rdmux_list_empty(&cq->ending)) {
        struct rdmux_list *node = cq->ending.next;
        rdmux_list_remove(node);
        rdmux_provider_release(cq->fabric, node);
    }
}
