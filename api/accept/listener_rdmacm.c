/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * An rdma:// listener has its provider's listener instead of a socket, and calls instead of
 * accepted sockets. A call is introduced when it arrives.
 */
#include "api/accept/listener.h"
#include "api/accept/peer_quota.h"
#include "api/accept/pending_connection.h"
#include "api/base/address.h"
#include "api/core/fabric.h"
#include "api/setup/rdmacm_endpoint.h"

#include <netdb.h>
#include <string.h>

static struct rdmux_pending_connection *find_call(struct rdmux_listener *listener,
                                                  const struct rdmux_rdmacm_call *call)
{
    for (struct rdmux_list *at = listener->introduced.next; at != &listener->introduced;
         at = at->next) {
        struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
            at, struct rdmux_pending_connection, link);
        if (pending->call == call) {
            return pending;
        }
    }
    return NULL;
}

static void reject_newcomer(struct rdmux_listener *listener, struct rdmux_rdmacm_call *call)
{
    rdmux_count(&listener->fabric->counts.dropped);
    if (rdmux_listener_may_tell(listener)) {
        rdmux_log(listener->fabric, RDMUX_LOG_WARN,
                  "listener %s: connection from %s: out of memory; rejected", listener->address,
                  call->peer_address);
    }
    call->ops->call_drop(call, 0, NULL, 0);
}

static void take_call(struct rdmux_listener *listener, struct rdmux_rdmacm_call *call)
{
    struct rdmux_fabric *fabric = listener->fabric;
    struct rdmux_pending_connection *pending = rdmux_allocate(fabric, sizeof(*pending));
    if (pending == NULL) {
        reject_newcomer(listener, call);
        return;
    }
    pending->listener = listener;
    pending->call = call;
    pending->socket = -1;
    pending->bytes = pending->first;
    pending->id = atomic_fetch_add(&fabric->next_id, 1);
    pending->private_length = call->peer_private_length;
    memcpy(pending->private_data, call->peer_private_data, sizeof(pending->private_data));
    rdmux_list_init(&pending->link);
    rdmux_list_init(&pending->quota_link);
    rdmux_list_init(&pending->place_link);
    pthread_mutex_lock(&fabric->lock);
    bool counted = rdmux_peer_quota_enter(pending) == RDMUX_OK;
    listener->count += counted;
    pthread_mutex_unlock(&fabric->lock);
    if (!counted) {
        rdmux_release(fabric, pending);
        reject_newcomer(listener, call);
    } else if (rdmux_pending_has_room(pending)) {
        rdmux_pending_becomes_known(pending);
    }
}

static void rdmacm_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    struct rdmux_listener *listener = RDMUX_CONTAINER(watch, struct rdmux_listener, watch);
    const struct rdmux_rdmacm_ops *ops = listener->rdmacm->ops;
    (void)fabric;
    for (int i = 0; i < RDMUX_ACCEPTS_PER_EVENT; i++) {
        struct rdmux_rdmacm_call *call = NULL;
        int gone = 0;
        if (ops->next(listener->rdmacm, &call, &gone) != RDMUX_OK) {
            return;
        }
        struct rdmux_pending_connection *known = gone != 0 ? find_call(listener, call) : NULL;
        if (known != NULL) {
            rdmux_pending_drop(known, "left before it was accepted");
        } else if (gone == 0) {
            take_call(listener, call);
        }
    }
}

enum rdmux_status rdmux_listener_listen_rdmacm(struct rdmux_listener *listener, const char *text,
                                               uint32_t backlog)
{
    struct rdmux_fabric *fabric = listener->fabric;
    const struct rdmux_rdmacm_ops *ops = rdmux_rdmacm_find(fabric);
    struct rdmux_address_text parts;
    struct addrinfo *addresses = NULL;
    enum rdmux_status status = rdmux_address_split(text, &parts);
    if (status != RDMUX_OK) {
        return status;
    }
    if (fabric->auth != NULL) {
        return rdmux_rdmacm_refuse_auth("rdmux_listen");
    }
    if (ops == NULL) {
        return rdmux_rdmacm_refuse_absent(fabric, "rdmux_listen");
    }
    status = rdmux_address_resolve(&parts, true, false, &addresses);
    if (status != RDMUX_OK) {
        return status;
    }
    rdmux_error_clear();
    status = ops->listen(fabric, addresses->ai_addr, backlog, &listener->rdmacm);
    freeaddrinfo(addresses);
    if (status != RDMUX_OK) {
        return status;
    }
    listener->watch.ready = rdmacm_ready;
    memcpy(listener->address, listener->rdmacm->address, sizeof(listener->address));
    return RDMUX_OK;
}
