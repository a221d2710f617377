/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints: from fi_endpoint() over connect or accept to the end. */
#include "adapters/fi/fi_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct fi_rdmux_ep *ep_of(struct fid *fid)
{
    return FI_OF(fid, struct fi_rdmux_ep, fid.fid);
}

/* domain->lock is held. */
static void set_state(struct fi_rdmux_ep *ep, enum fi_ep_state state)
{
    ep->domain->setups -= ep->state == FI_EP_CONNECTING;
    ep->state = state;
    if (state == FI_EP_CONNECTING) {
        ep->domain->setups++;
        fi_attend(ep->domain);
    }
}

/* --------------------------------------------------------------------------------------- events */

/* Takes what the peer said about itself; then the peer's directory is imported. */
static bool meet_peer(struct fi_rdmux_ep *ep, const struct rdmux_ep_info *info,
                      struct rdmux_fi_greeting *greeting)
{
    if (!rdmux_fi_greeting_decode(info->private_data, info->private_length, greeting)) {
        return false;
    }
    ep->peer_directory = greeting->directory;
    return true;
}

static void import_directory(struct fi_rdmux_ep *ep)
{
    enum rdmux_status status = rdmux_remote_import(ep->ep, &ep->peer_directory, 0, &ep->directory);
    ep->directory_state = status == RDMUX_IN_PROGRESS ? FI_IMPORT_ASKING : FI_IMPORT_FAILED;
    if (status != RDMUX_IN_PROGRESS) {
        FI_COMPLAIN(FI_LOG_EP_CTRL, "%s\n", rdmux_last_error());
    }
}

void rdmux_fi_ep_connected(struct fi_rdmux_ep *ep, const struct rdmux_wc *wc)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_fi_greeting greeting = { 0 };
    const bool has_info = rdmux_ep_info(ep->ep, &info) == RDMUX_OK;
    if (wc->status != RDMUX_OK) {
        set_state(ep, FI_EP_ENDED);
        FI_COMPLAIN(FI_LOG_EP_CTRL, "not connected: %s\n", has_info ? info.text : "");
        rdmux_fi_eq_push_error(ep->eq, &ep->fid.fid, -rdmux_fi_error((enum rdmux_status)wc->status),
                               (int)wc->status, info.private_data,
                               wc->status == RDMUX_REFUSED ? info.private_length : 0);
        return;
    }
    if (!has_info || !meet_peer(ep, &info, &greeting)) {
        set_state(ep, FI_EP_ENDED);
        FI_COMPLAIN(FI_LOG_EP_CTRL, "%s is no program of libfabric over rdmux\n", info.peer_address);
        rdmux_fi_eq_push_error(ep->eq, &ep->fid.fid, FI_ECONNABORTED, RDMUX_PROTOCOL, NULL, 0);
        return;
    }
    if (strcmp(info.provider, "shm") != 0 && strcmp(info.provider, "tcp") != 0) {
        rdmux_fi_memory_use_device(ep->domain);
    }
    ep->max_inline = info.max_inline;
    set_state(ep, FI_EP_CONNECTED);
    free(ep->early);
    ep->early = NULL;
    ep->early_count = ep->early_room = 0;
    import_directory(ep);
    /* What the acceptor hears was in the request's event already. */
    (void)rdmux_fi_eq_push(ep->eq, FI_CONNECTED, &ep->fid.fid, NULL, greeting.data,
                           ep->is_acceptor ? 0 : greeting.length);
}

void rdmux_fi_ep_disconnected(struct fi_rdmux_ep *ep, const struct rdmux_wc *wc)
{
    (void)wc;
    set_state(ep, FI_EP_ENDED);
    if (!ep->is_told_down) {
        ep->is_told_down = true;
        (void)rdmux_fi_eq_push(ep->eq, FI_SHUTDOWN, &ep->fid.fid, NULL, NULL, 0);
    }
}

/* --------------------------------------------------------------------------- connecting, ending */

static uint32_t depth_of(size_t size)
{
    return size == 0 ? FI_DEPTH_DEFAULT : size > FI_DEPTH_MAX ? FI_DEPTH_MAX : (uint32_t)size;
}

/* Starts set-up, as connector or as acceptor. domain->lock is held. */
static enum rdmux_status start(struct fi_rdmux_ep *ep, const char *address, const void *data,
                               size_t length)
{
    uint8_t bytes[RDMUX_PRIVATE_DATA_MAX];
    struct rdmux_fi_greeting greeting = { .directory = ep->domain->directory_token,
                                          .data = data,
                                          .length = length };
    rdmux_fi_host_put(ep->info->src_addr, ep->info->src_addrlen, &greeting);
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.flags = RDMUX_EP_SEND_WISH;
    attr.send_depth = depth_of(ep->info->tx_attr->size);
    attr.recv_depth = depth_of(ep->info->rx_attr->size);
    attr.max_send_sge = attr.max_recv_sge = FI_PIECES_MAX;
    attr.max_inline = FI_INJECT_MAX;
    attr.max_send = attr.max_recv = FI_MESSAGE_MAX;
    attr.srq = ep->srx != NULL ? ep->srx->srq : NULL;
    attr.private_data = bytes;
    attr.private_length = rdmux_fi_greeting_encode(&greeting, bytes);
    attr.user = ep;
    enum rdmux_status status;
    if (ep->request != NULL) {
        attr.peer = ep->request->peer;
        status = rdmux_accept(ep->request->pep->listener, ep->domain->cq, &attr, 0, &ep->ep);
    } else {
        status = rdmux_connect(ep->domain->fabric->rdmux, ep->domain->cq, address, &attr, 0,
                               &ep->ep);
    }
    if (status == RDMUX_OK || status == RDMUX_IN_PROGRESS) {
        set_state(ep, FI_EP_CONNECTING);
        status = rdmux_fi_early_receives_post(ep);
        if (status != RDMUX_OK) {
            (void)rdmux_ep_close(ep->ep);
            ep->ep = NULL;
            set_state(ep, FI_EP_NEW);
        }
    }
    if (status != RDMUX_OK) {
        FI_COMPLAIN(FI_LOG_EP_CTRL, "%s\n", rdmux_last_error());
    }
    return status;
}

static int begin(struct fi_rdmux_ep *ep, const char *address, const void *data, size_t length)
{
    if (length > FI_USER_DATA_MAX) {
        return -FI_EINVAL;
    }
    if (!ep->is_enabled || ep->eq == NULL || ep->state != FI_EP_NEW) {
        return -FI_EOPBADSTATE;
    }
    (void)pthread_mutex_lock(&ep->domain->lock);
    const enum rdmux_status status = start(ep, address, data, length);
    (void)pthread_mutex_unlock(&ep->domain->lock);
    return rdmux_fi_error(status);
}

static int ep_enable(struct fi_rdmux_ep *ep)
{
    if (ep->eq == NULL) {
        return -FI_ENOEQ;
    }
    if (ep->send_cq == NULL || (ep->receive_cq == NULL && ep->srx == NULL)) {
        return -FI_ENOCQ;
    }
    ep->is_enabled = true;
    return 0;
}

static int ep_connect(struct fid_ep *fid, const void *address, const void *data, size_t length)
{
    struct fi_rdmux_ep *ep = fi_ep_of(fid);
    char target[RDMUX_ADDRESS_MAX];
    const struct sockaddr *to = address != NULL ? address : ep->info->dest_addr;
    if (to == NULL) {
        return -FI_EINVAL;
    }
    const size_t size = to->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                  : sizeof(struct sockaddr_in);
    if (rdmux_fi_address_print(to, size, target) != 0) {
        return -FI_EINVAL;
    }
    if (!ep->is_enabled) { /* fi_connect() may stand for fi_enable() */
        const int result = ep_enable(ep);
        if (result != 0) {
            return result;
        }
    }
    return begin(ep, target, data, length);
}

static int ep_accept(struct fid_ep *fid, const void *data, size_t length)
{
    struct fi_rdmux_ep *ep = fi_ep_of(fid);
    if (ep->request == NULL || ep->request->pep == NULL) {
        return -FI_EINVAL;
    }
    if (!ep->is_enabled) {
        const int result = ep_enable(ep);
        if (result != 0) {
            return result;
        }
    }
    ep->is_acceptor = true;
    const int result = begin(ep, "", data, length);
    if (result == 0) {
        rdmux_fi_request_free(ep->request);
        ep->request = NULL;
    }
    return result;
}

static int ep_shutdown(struct fid_ep *fid, uint64_t flags)
{
    (void)flags;
    struct fi_rdmux_ep *ep = fi_ep_of(fid);
    (void)pthread_mutex_lock(&ep->domain->lock);
    enum rdmux_status status = RDMUX_OK;
    if (ep->state == FI_EP_CONNECTED) {
        status = rdmux_ep_shutdown(ep->ep, 0);
    }
    (void)pthread_mutex_unlock(&ep->domain->lock);
    return status == RDMUX_IN_PROGRESS ? 0 : rdmux_fi_error(status);
}

static int ep_setname(fid_t fid, void *address, size_t size)
{
    struct fi_rdmux_ep *ep = ep_of(fid);
    void *copy = malloc(size);
    if (copy == NULL) {
        return -FI_ENOMEM;
    }
    memcpy(copy, address, size);
    free(ep->info->src_addr);
    ep->info->src_addr = copy;
    ep->info->src_addrlen = size;
    return 0;
}

/* The address of this side or of the peer. */
static int name_of(struct fi_rdmux_ep *ep, bool is_peer, void *address, size_t *room)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct sockaddr_storage found;
    size_t size = 0;
    (void)pthread_mutex_lock(&ep->domain->lock);
    if (ep->ep != NULL && rdmux_ep_info(ep->ep, &info) == RDMUX_OK) {
        size = rdmux_fi_address_parse(is_peer ? info.peer_address : info.local_address, &found);
    }
    (void)pthread_mutex_unlock(&ep->domain->lock);
    if (size != 0) {
        return rdmux_fi_address_copy(&found, size, address, room);
    }
    const struct fi_info *own = ep->info;
    const void *known = is_peer ? own->dest_addr : own->src_addr;
    if (known == NULL) {
        return -FI_EOPBADSTATE;
    }
    return rdmux_fi_address_copy(known, is_peer ? own->dest_addrlen : own->src_addrlen, address,
                                 room);
}

static int ep_getname(fid_t fid, void *address, size_t *size)
{
    return name_of(ep_of(fid), false, address, size);
}

static int ep_getpeer(struct fid_ep *fid, void *address, size_t *size)
{
    return name_of(fi_ep_of(fid), true, address, size);
}

static int ep_listen(struct fid_pep *fid)
{
    (void)fid;
    return -FI_ENOSYS;
}

static int ep_reject(struct fid_pep *fid, fid_t handle, const void *data, size_t length)
{
    (void)fid;
    (void)handle;
    (void)data;
    (void)length;
    return -FI_ENOSYS;
}

static int ep_join(struct fid_ep *fid, const void *address, uint64_t flags, struct fid_mc **out,
                   void *context)
{
    (void)fid;
    (void)address;
    (void)flags;
    (void)out;
    (void)context;
    return -FI_ENOSYS;
}

/* -------------------------------------------------------------------------------------- options */

static ssize_t ep_cancel(fid_t fid, void *context)
{
    (void)fid;
    (void)context;
    return -FI_ENOSYS; /* rdmux takes nothing back; closing the endpoint does */
}

static int ep_getopt(fid_t fid, int level, int name, void *value, size_t *size)
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

static int ep_setopt(fid_t fid, int level, int name, const void *value, size_t size)
{
    (void)fid;
    (void)level;
    (void)name;
    (void)value;
    (void)size;
    return -FI_ENOPROTOOPT;
}

static int no_context(struct fid_ep *fid, int index, struct fi_tx_attr *attr, struct fid_ep **out,
                      void *context)
{
    (void)fid;
    (void)index;
    (void)attr;
    (void)out;
    (void)context;
    return -FI_ENOSYS;
}

static int no_receive_context(struct fid_ep *fid, int index, struct fi_rx_attr *attr,
                              struct fid_ep **out, void *context)
{
    (void)fid;
    (void)index;
    (void)attr;
    (void)out;
    (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_size_left(struct fid_ep *fid)
{
    (void)fid;
    return -FI_ENOSYS;
}

/* -------------------------------------------------------------------------- opening and closing */

static void set_receive_cq(struct fi_rdmux_ep *ep, struct fi_rdmux_cq *cq)
{
    ep->receive_cq = cq;
    cq->endpoints++;
    cq->selects = cq->selects || ep->selects_receives;
}

static int bind_cq(struct fi_rdmux_ep *ep, struct fi_rdmux_cq *cq, uint64_t flags)
{
    if (cq->domain != ep->domain || (flags & (FI_TRANSMIT | FI_RECV)) == 0 ||
        ((flags & FI_TRANSMIT) != 0 && ep->send_cq != NULL) ||
        ((flags & FI_RECV) != 0 && ep->receive_cq != NULL)) {
        return -FI_EINVAL;
    }
    const bool selects = (flags & FI_SELECTIVE_COMPLETION) != 0;
    (void)pthread_mutex_lock(&ep->domain->lock);
    if ((flags & FI_TRANSMIT) != 0) {
        ep->send_cq = cq;
        cq->endpoints++;
        ep->selects_sends = selects;
        const uint64_t standing = ep->info->tx_attr->op_flags;
        ep->send_flags = rdmux_fi_post_flags(standing & ~FI_INJECT,
                                             !selects || (standing & FI_COMPLETION) != 0);
    }
    if ((flags & FI_RECV) != 0) {
        ep->selects_receives = selects;
        set_receive_cq(ep, cq);
    }
    (void)pthread_mutex_unlock(&ep->domain->lock);
    return 0;
}

static int ep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
    struct fi_rdmux_ep *ep = ep_of(fid);
    if (ep->state != FI_EP_NEW || ep->is_enabled) {
        return -FI_EOPBADSTATE;
    }
    if (other->fclass == FI_CLASS_CQ) {
        return bind_cq(ep, FI_OF(other, struct fi_rdmux_cq, fid.fid), flags);
    }
    if (other->fclass == FI_CLASS_EQ && ep->eq == NULL) {
        struct fi_rdmux_eq *eq = FI_OF(other, struct fi_rdmux_eq, fid.fid);
        const int result = rdmux_fi_eq_add_domain(eq, ep->domain);
        if (result == 0) {
            ep->eq = eq;
        }
        return result;
    }
    if (other->fclass == FI_CLASS_SRX_CTX) {
        struct fi_rdmux_srx *srx = FI_OF(other, struct fi_rdmux_srx, fid.fid);
        if (srx->domain != ep->domain || ep->srx != NULL) {
            return -FI_EINVAL;
        }
        ep->srx = srx;
        return 0;
    }
    return -FI_EINVAL;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
    (void)arg;
    return command == FI_ENABLE ? ep_enable(ep_of(fid)) : -FI_ENOSYS;
}

/* Tells what has gone over the endpoint (FI_LOG_LEVEL=info). domain->lock is held. */
static void tell_counts(struct fi_rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    if (rdmux_ep_info(ep->ep, &info) == RDMUX_OK && rdmux_ep_stats(ep->ep, &stats) == RDMUX_OK) {
        FI_INFO(&rdmux_fi_provider, FI_LOG_EP_CTRL,
                "%s to %s: %" PRIu64 " sends, %" PRIu64 " writes, %" PRIu64 " reads; %" PRIu64
                " bytes sent, %" PRIu64 " bytes received\n",
                info.provider, info.peer_address, stats.sends, stats.writes, stats.reads,
                stats.bytes_sent, stats.bytes_received);
    }
}

static int ep_close(struct fid *fid)
{
    struct fi_rdmux_ep *ep = ep_of(fid);
    struct fi_rdmux_domain *domain = ep->domain;
    (void)pthread_mutex_lock(&domain->lock);
    /* Entries that have come stay in their queues: the program may learn what has happened. */
    if (ep->ep != NULL) {
        (void)rdmux_fi_domain_poll(domain);
        tell_counts(ep);
        (void)rdmux_ep_close(ep->ep); /* with its imports */
    }
    set_state(ep, FI_EP_ENDED);
    rdmux_fi_own_requests_end(domain, ep);
    rdmux_fi_imports_drop(ep);
    rdmux_fi_early_receives_cancel(ep);
    if (ep->send_cq != NULL) {
        ep->send_cq->endpoints--;
    }
    if (ep->receive_cq != NULL) {
        ep->receive_cq->endpoints--;
    }
    fi_link_remove(&ep->link);
    (void)pthread_mutex_unlock(&domain->lock);
    if (ep->eq != NULL) {
        rdmux_fi_eq_remove_domain(ep->eq, domain);
        rdmux_fi_eq_forget(ep->eq, fid);
    }
    fi_freeinfo(ep->info);
    free(ep->early);
    free(ep);
    atomic_fetch_sub(&domain->children, 1);
    return 0;
}

static struct fi_ops ep_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = ep_close,
    .bind = ep_bind,
    .control = ep_control,
    .ops_open = rdmux_fi_no_ops_open,
};

static struct fi_ops_ep ep_ops = {
    .size = sizeof(struct fi_ops_ep),
    .cancel = ep_cancel,
    .getopt = ep_getopt,
    .setopt = ep_setopt,
    .tx_ctx = no_context,
    .rx_ctx = no_receive_context,
    .rx_size_left = no_size_left,
    .tx_size_left = no_size_left,
};

static struct fi_ops_cm ep_cm_ops = {
    .size = sizeof(struct fi_ops_cm),
    .setname = ep_setname,
    .getname = ep_getname,
    .getpeer = ep_getpeer,
    .connect = ep_connect,
    .listen = ep_listen,
    .accept = ep_accept,
    .reject = ep_reject,
    .shutdown = ep_shutdown,
    .join = ep_join,
};

int rdmux_fi_ep_open(struct fid_domain *fid, struct fi_info *info, struct fid_ep **out,
                     void *context)
{
    struct fi_rdmux_domain *domain = FI_OF(fid, struct fi_rdmux_domain, fid);
    if (info == NULL || info->ep_attr == NULL || info->ep_attr->type != FI_EP_MSG ||
        (info->handle != NULL && info->handle->fclass != FI_CLASS_CONNREQ)) {
        return -FI_EINVAL;
    }
    struct fi_rdmux_ep *ep = calloc(1, sizeof(*ep));
    if (ep == NULL) {
        return -FI_ENOMEM;
    }
    ep->info = fi_dupinfo(info);
    if (ep->info == NULL) {
        free(ep);
        return -FI_ENOMEM;
    }
    ep->domain = domain;
    ep->request = info->handle != NULL ? FI_OF(info->handle, struct fi_rdmux_request, fid) : NULL;
    ep->max_inline = FI_INJECT_MAX;
    ep->fid.fid.fclass = FI_CLASS_EP;
    ep->fid.fid.context = context;
    ep->fid.fid.ops = &ep_fid_ops;
    ep->fid.ops = &ep_ops;
    ep->fid.cm = &ep_cm_ops;
    ep->fid.msg = &rdmux_fi_message_ops;
    ep->fid.rma = &rdmux_fi_rma_ops;
    (void)pthread_mutex_lock(&domain->lock);
    fi_link_insert(&domain->eps, &ep->link);
    (void)pthread_mutex_unlock(&domain->lock);
    atomic_fetch_add(&domain->children, 1);
    *out = &ep->fid;
    return 0;
}

/* ----------------------------------------------------------------------- shared receive contexts */

static int srx_close(struct fid *fid)
{
    struct fi_rdmux_srx *srx = FI_OF(fid, struct fi_rdmux_srx, fid.fid);
    (void)pthread_mutex_lock(&srx->domain->lock);
    const enum rdmux_status status = rdmux_srq_destroy(srx->srq);
    (void)pthread_mutex_unlock(&srx->domain->lock);
    if (status != RDMUX_OK) {
        return -FI_EBUSY;
    }
    atomic_fetch_sub(&srx->domain->children, 1);
    free(srx);
    return 0;
}

static struct fi_ops srx_fid_ops = {
    .size = sizeof(struct fi_ops),
    .close = srx_close,
    .bind = rdmux_fi_no_bind,
    .control = rdmux_fi_no_control,
    .ops_open = rdmux_fi_no_ops_open,
};

int rdmux_fi_srx_open(struct fid_domain *fid, struct fi_rx_attr *attr, struct fid_ep **out,
                      void *context)
{
    struct fi_rdmux_domain *domain = FI_OF(fid, struct fi_rdmux_domain, fid);
    struct fi_rdmux_srx *srx = calloc(1, sizeof(*srx));
    if (srx == NULL) {
        return -FI_ENOMEM;
    }
    srx->domain = domain;
    struct rdmux_srq_attr options = RDMUX_SRQ_ATTR_INIT;
    options.depth = depth_of(attr != NULL ? attr->size : 0);
    options.max_sge = FI_PIECES_MAX;
    (void)pthread_mutex_lock(&domain->lock);
    const enum rdmux_status status = rdmux_srq_create(domain->fabric->rdmux, domain->cq, &options,
                                                      &srx->srq);
    (void)pthread_mutex_unlock(&domain->lock);
    if (status != RDMUX_OK) {
        FI_COMPLAIN(FI_LOG_EP_CTRL, "%s\n", rdmux_last_error());
        free(srx);
        return rdmux_fi_error(status);
    }
    srx->fid.fid.fclass = FI_CLASS_SRX_CTX;
    srx->fid.fid.context = context;
    srx->fid.fid.ops = &srx_fid_ops;
    srx->fid.ops = &ep_ops;
    srx->fid.msg = &rdmux_fi_shared_receive_ops;
    atomic_fetch_add(&domain->children, 1);
    *out = &srx->fid;
    return 0;
}
