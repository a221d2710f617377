/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Passive endpoints: a listener of rdmux, and the connections that wait there. */
#include "adapters/fi/fi_internal.h"

#include <stdlib.h>
#include <string.h>

static struct fi_rdmux_pep *pep_of(struct fid *fid)
{
    return FI_OF(fid, struct fi_rdmux_pep, fid.fid);
}

void rdmux_fi_request_free(struct fi_rdmux_request *request)
{
    if (request->pep != NULL) {
        (void)pthread_mutex_lock(&request->pep->lock);
        fi_link_remove(&request->link);
        (void)pthread_mutex_unlock(&request->pep->lock);
    }
    free(request);
}

/* The address by which ofi_rxm knows the peer: that of its listener, as the peer tells it. The control
 * channel may come from another one of the peer's host, as no path is bound to an address. */
static size_t peer_address(const struct rdmux_peer *peer, const struct rdmux_fi_greeting *greeting,
                           struct sockaddr_storage *out)
{
    const size_t size = rdmux_fi_host_take(greeting, out);
    return size != 0 ? size : rdmux_fi_address_parse(peer->address, out);
}

/* Turns a waiting connection into an event. False: out of memory. */
static bool announce(struct fi_rdmux_pep *pep, const struct rdmux_peer *peer,
                     const struct rdmux_fi_greeting *greeting)
{
    struct sockaddr_storage address;
    const size_t size = peer_address(peer, greeting, &address);
    struct fi_rdmux_request *request = calloc(1, sizeof(*request));
    struct fi_info *info = fi_dupinfo(pep->info);
    void *target = malloc(sizeof(address));
    if (request == NULL || info == NULL || target == NULL) {
        free(request);
        free(target);
        fi_freeinfo(info);
        return false;
    }
    memcpy(target, &address, sizeof(address));
    free(info->dest_addr);
    info->dest_addr = target;
    info->dest_addrlen = size;
    request->fid.fclass = FI_CLASS_CONNREQ;
    request->pep = pep;
    request->peer = peer->id;
    info->handle = &request->fid;
    (void)pthread_mutex_lock(&pep->lock);
    fi_link_insert(&pep->requests, &request->link);
    (void)pthread_mutex_unlock(&pep->lock);
    return rdmux_fi_eq_push(pep->eq, FI_CONNREQ, &pep->fid.fid, info, greeting->data,
                            greeting->length);
}

void rdmux_fi_pep_progress(struct fi_rdmux_pep *pep)
{
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    while (pep->listener != NULL && rdmux_listener_next(pep->listener, 0, &peer) == RDMUX_OK) {
        struct rdmux_fi_greeting greeting;
        if (!rdmux_fi_greeting_decode(peer.private_data, peer.private_length, &greeting)) {
            FI_COMPLAIN(FI_LOG_EP_CTRL, "rejected %s: no program of libfabric over rdmux\n",
                        peer.address);
            (void)rdmux_reject(pep->listener, peer.id, 0, NULL, 0);
        } else if (!announce(pep, &peer, &greeting)) {
            (void)rdmux_reject(pep->listener, peer.id, RDMUX_REJECT_BUSY, NULL, 0);
        }
        peer = (struct rdmux_peer)RDMUX_PEER_INIT;
    }
}

/* ------------------------------------------------------------------------- connection management */

static int pep_setname(fid_t fid, void *address, size_t size)
{
    struct fi_rdmux_pep *pep = pep_of(fid);
    if (pep->listener != NULL) {
        return -FI_EOPBADSTATE;
    }
    void *copy = malloc(size);
    if (copy == NULL) {
        return -FI_ENOMEM;
    }
    memcpy(copy, address, size);
    free(pep->info->src_addr);
    pep->info->src_addr = copy;
    pep->info->src_addrlen = size;
    return 0;
}

static int pep_getname(fid_t fid, void *address, size_t *size)
{
    struct fi_rdmux_pep *pep = pep_of(fid);
    return rdmux_fi_address_copy(pep->info->src_addr, pep->info->src_addrlen, address, size);
}

static int pep_listen(struct fid_pep *fid)
{
    struct fi_rdmux_pep *pep = pep_of(&fid->fid);
    char text[RDMUX_ADDRESS_MAX] = ":0";
    if (pep->eq == NULL) {
        return -FI_ENOEQ;
    }
    if (pep->listener != NULL) {
        return -FI_EOPBADSTATE;
    }
    if (pep->info->src_addr != NULL &&
        rdmux_fi_address_print(pep->info->src_addr, pep->info->src_addrlen, text) != 0) {
        return -FI_EINVAL;
    }
    struct rdmux_listener *listener = NULL;
    enum rdmux_status status = rdmux_listen(pep->fabric->rdmux, text, NULL, &listener);
    if (status != RDMUX_OK) {
        FI_COMPLAIN(FI_LOG_EP_CTRL, "%s\n", rdmux_last_error());
        return status == RDMUX_IO ? -FI_EADDRINUSE : rdmux_fi_error(status);
    }
    struct sockaddr_storage address;
    size_t size = 0;
    if (rdmux_listener_address(listener, text, sizeof(text)) == RDMUX_OK) {
        size = rdmux_fi_address_parse(text, &address);
    }
    int result = size == 0 ? -FI_EIO : pep_setname(&fid->fid, &address, size);
    if (result == 0) {
        result = rdmux_fi_eq_watch(pep->eq, rdmux_listener_fd(listener));
    }
    if (result != 0) {
        rdmux_listener_close(listener);
        return result;
    }
    (void)pthread_mutex_lock(&pep->eq->sources_lock);
    pep->listener = listener;
    (void)pthread_mutex_unlock(&pep->eq->sources_lock);
    rdmux_fi_eq_signal(pep->eq);
    return 0;
}

static int pep_reject(struct fid_pep *fid, fid_t handle, const void *data, size_t length)
{
    struct fi_rdmux_pep *pep = pep_of(&fid->fid);
    if (handle == NULL || handle->fclass != FI_CLASS_CONNREQ) {
        return -FI_EINVAL;
    }
    struct fi_rdmux_request *request = FI_OF(handle, struct fi_rdmux_request, fid);
    enum rdmux_status status = rdmux_reject(pep->listener, request->peer, 0, data, length);
    rdmux_fi_request_free(request);
    /* A connection that has gone by itself is as good as rejected. */
    return status == RDMUX_OK || status == RDMUX_INVALID ? 0 : rdmux_fi_error(status);
}

static int no_getpeer(struct fid_ep *fid, void *address, size_t *size)
{
    (void)fid;
    (void)address;
    *size = 0;
    return -FI_ENOSYS;
}

static int no_connect(struct fid_ep *fid, const void *address, const void *data, size_t length)
{
    (void)fid;
    (void)address;
    (void)data;
    (void)length;
    return -FI_ENOSYS;
}

static int no_accept(struct fid_ep *fid, const void *data, size_t length)
{
    (void)fid;
    (void)data;
    (void)length;
    return -FI_ENOSYS;
}

static int no_shutdown(struct fid_ep *fid, uint64_t flags)
{
    (void)fid;
    (void)flags;
    return -FI_ENOSYS;
}

static int no_join(struct fid_ep *fid, const void *address, uint64_t flags, struct fid_mc **out,
                   void *context)
{
    (void)fid;
    (void)address;
    (void)flags;
    (void)out;
    (void)context;
    return -FI_ENOSYS;
}

static int pep_getopt(fid_t fid, int level, int name, void *value, size_t *size)
{
    (void)fid;
    const size_t room = FI_USER_DATA_MAX;
    if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) {
        return -FI_ENOPROTOOPT;
    }
    if (*size < sizeof(room)) {
        return -FI_ETOOSMALL;
    }
    memcpy(value, &room, sizeof(room));
    *size = sizeof(room);
    return 0;
}

static int pep_setopt(fid_t fid, int level, int name, const void *value, size_t size)
{
    (void)fid;
    (void)level;
    (void)name;
    (void)value;
    (void)size;
    return -FI_ENOPROTOOPT;
}

/* -------------------------------------------------------------------------- opening and closing */

static int pep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
    (void)flags;
    struct fi_rdmux_pep *pep = pep_of(fid);
    if (other->fclass != FI_CLASS_EQ || pep->eq != NULL) {
        return -FI_EINVAL;
    }
    struct fi_rdmux_eq *eq = FI_OF(other, struct fi_rdmux_eq, fid.fid);
    const int result = rdmux_fi_eq_add_pep(eq, pep);
    if (result == 0) {
        pep->eq = eq;
    }
    return result;
}

static int pep_close(struct fid *fid)
{
    struct fi_rdmux_pep *pep = pep_of(fid);
    if (pep->eq != NULL) {
        rdmux_fi_eq_remove_pep(pep->eq, pep);
        rdmux_fi_eq_forget(pep->eq, fid);
    }
    /* Requests that the application holds live on; rdmux_listener_close() drops the connections. */
    (void)pthread_mutex_lock(&pep->lock);
    while (!fi_link_is_empty(&pep->requests)) {
        struct fi_rdmux_request *request = FI_OF(pep->requests.next, struct fi_rdmux_request, link);
        fi_link_remove(&request->link);
        request->pep = NULL;
    }
    (void)pthread_mutex_unlock(&pep->lock);
    rdmux_listener_close(pep->listener);
    (void)pthread_mutex_destroy(&pep->lock);
    atomic_fetch_sub(&pep->fabric->children, 1);
    fi_freeinfo(pep->info);
    free(pep);
    return 0;
}

static int pep_control(struct fid *fid, int command, void *arg)
{
    (void)fid;
    (void)arg;
    return command == FI_BACKLOG ? 0 : -FI_ENOSYS;
}

static struct fi_ops pep_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = pep_close,
    .bind = pep_bind,
    .control = pep_control,
    .ops_open = rdmux_fi_no_ops_open,
};

static struct fi_ops_ep pep_ops = {
    .size = sizeof(struct fi_ops_ep),
    .getopt = pep_getopt,
    .setopt = pep_setopt,
};

static struct fi_ops_cm pep_cm_ops = {
    .size = sizeof(struct fi_ops_cm),
    .setname = pep_setname,
    .getname = pep_getname,
    .getpeer = no_getpeer,
    .connect = no_connect,
    .listen = pep_listen,
    .accept = no_accept,
    .reject = pep_reject,
    .shutdown = no_shutdown,
    .join = no_join,
};

int rdmux_fi_pep_open(struct fid_fabric *fid, struct fi_info *info, struct fid_pep **out,
                      void *context)
{
    struct fi_rdmux_pep *pep = calloc(1, sizeof(*pep));
    if (pep == NULL) {
        return -FI_ENOMEM;
    }
    pep->info = fi_dupinfo(info);
    if (pep->info == NULL) {
        free(pep);
        return -FI_ENOMEM;
    }
    pep->fabric = FI_OF(fid, struct fi_rdmux_fabric, fid);
    fi_link_init(&pep->requests);
    (void)pthread_mutex_init(&pep->lock, NULL);
    pep->fid.fid.fclass = FI_CLASS_PEP;
    pep->fid.fid.context = context;
    pep->fid.fid.ops = &pep_fid_ops;
    pep->fid.ops = &pep_ops;
    pep->fid.cm = &pep_cm_ops;
    atomic_fetch_add(&pep->fabric->children, 1);
    *out = &pep->fid;
    return 0;
}
