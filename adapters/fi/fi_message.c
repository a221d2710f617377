/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Messages: sends and receives. */
#include "adapters/fi/fi_internal.h"

#include <stdlib.h>
#include <string.h>

uint32_t rdmux_fi_post_flags(uint64_t flags, bool completes)
{
    return ((flags & FI_INJECT) != 0 ? (uint32_t)RDMUX_INLINE : 0) |
           ((flags & FI_DELIVERY_COMPLETE) != 0 ? (uint32_t)RDMUX_PLACED : 0) |
           ((flags & FI_FENCE) != 0 ? (uint32_t)RDMUX_FENCE : 0) |
           ((flags & FI_MORE) != 0 ? (uint32_t)RDMUX_MORE : 0) |
           (completes ? 0 : (uint32_t)RDMUX_UNSIGNALED);
}

uint32_t rdmux_fi_pieces(const struct iovec *iov, void **desc, size_t count, struct rdmux_sge *out,
                         size_t *length)
{
    *length = 0;
    for (size_t i = 0; i < count; i++) {
        out[i] = (struct rdmux_sge){
            .addr = iov[i].iov_base,
            .length = iov[i].iov_len,
            .mr = desc != NULL ? fi_desc_mr(desc[i]) : NULL,
        };
        *length += iov[i].iov_len;
    }
    return (uint32_t)count;
}

/* ------------------------------------------------------------------------------------- receives */

static enum rdmux_status post_receive(struct fi_rdmux_ep *ep, const struct fi_early_receive *from)
{
    const struct rdmux_wr wr = { .op = RDMUX_OP_RECV,
                                 .context = from->context,
                                 .sges = from->pieces,
                                 .sge_count = from->count };
    return rdmux_post_recv(ep->ep, &wr, 1, NULL);
}

enum rdmux_status rdmux_fi_early_receives_post(struct fi_rdmux_ep *ep)
{
    enum rdmux_status status = RDMUX_OK;
    for (size_t i = 0; i < ep->early_count && status == RDMUX_OK; i++) {
        status = post_receive(ep, &ep->early[i]);
    }
    return status;
}

void rdmux_fi_early_receives_cancel(struct fi_rdmux_ep *ep)
{
    for (size_t i = 0; i < ep->early_count && ep->receive_cq != NULL; i++) {
        const struct fi_entry entry = { .context = ep->early[i].context,
                                        .flags = FI_RECV | FI_MSG,
                                        .error = FI_ECANCELED,
                                        .status = RDMUX_FLUSHED };
        rdmux_fi_cq_push(ep->receive_cq, &entry);
    }
    ep->early_count = 0;
}

static bool grow_early(struct fi_rdmux_ep *ep)
{
    const size_t room = ep->early_room == 0 ? FI_DEPTH_DEFAULT : 2 * ep->early_room;
    struct fi_early_receive *grown = realloc(ep->early, room * sizeof(*grown));
    if (grown == NULL) {
        return false;
    }
    ep->early = grown;
    ep->early_room = room;
    return true;
}

/* Keeps a receive until the endpoint is connected. */
static ssize_t receive_early(struct fi_rdmux_ep *ep, const struct fi_early_receive *receive)
{
    if (ep->state == FI_EP_ENDED) {
        return -FI_ENOTCONN;
    }
    if (ep->early_count >= ep->info->rx_attr->size) {
        return -FI_EAGAIN;
    }
    if (ep->early_count == ep->early_room && !grow_early(ep)) {
        return -FI_ENOMEM;
    }
    if (ep->ep != NULL) {
        const enum rdmux_status status = post_receive(ep, receive);
        if (status != RDMUX_OK) {
            return rdmux_fi_error(status);
        }
    }
    ep->early[ep->early_count++] = *receive;
    return 0;
}

static ssize_t receive_pieces(struct fi_rdmux_ep *ep, const struct iovec *iov, void **desc,
                              size_t count, void *context)
{
    struct fi_early_receive receive = { .context = context };
    size_t length;
    if (count > FI_PIECES_MAX || ep->srx != NULL) {
        return -FI_EINVAL;
    }
    receive.count = rdmux_fi_pieces(iov, desc, count, receive.pieces, &length);
    (void)pthread_mutex_lock(&ep->domain->lock);
    const ssize_t result = ep->state == FI_EP_CONNECTED ? rdmux_fi_error(post_receive(ep, &receive))
                                                        : receive_early(ep, &receive);
    (void)pthread_mutex_unlock(&ep->domain->lock);
    return result;
}

static ssize_t message_recv(struct fid_ep *fid, void *buf, size_t length, void *desc,
                            fi_addr_t source, void *context)
{
    (void)source;
    struct fi_rdmux_ep *ep = fi_ep_of(fid);
    (void)pthread_mutex_lock(&ep->domain->lock);
    if (ep->state == FI_EP_CONNECTED && ep->srx == NULL) {
        const enum rdmux_status status = rdmux_recv(ep->ep, buf, length, fi_desc_mr(desc), context);
        (void)pthread_mutex_unlock(&ep->domain->lock);
        return rdmux_fi_error(status);
    }
    (void)pthread_mutex_unlock(&ep->domain->lock);
    const struct iovec iov = { .iov_base = buf, .iov_len = length };
    return receive_pieces(ep, &iov, &desc, 1, context);
}

static ssize_t message_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                             fi_addr_t source, void *context)
{
    (void)source;
    return receive_pieces(fi_ep_of(fid), iov, desc, count, context);
}

static ssize_t message_recvmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
    if ((flags & ~(FI_COMPLETION | FI_MORE)) != 0) {
        return -FI_EINVAL;
    }
    return receive_pieces(fi_ep_of(fid), msg->msg_iov, msg->desc, msg->iov_count, msg->context);
}

static ssize_t shared_pieces(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                             void *context)
{
    struct fi_rdmux_srx *srx = FI_OF(fid, struct fi_rdmux_srx, fid);
    struct rdmux_sge pieces[FI_PIECES_MAX];
    size_t length;
    if (count > FI_PIECES_MAX) {
        return -FI_EINVAL;
    }
    const struct rdmux_wr wr = { .op = RDMUX_OP_RECV,
                                 .context = context,
                                 .sges = pieces,
                                 .sge_count = rdmux_fi_pieces(iov, desc, count, pieces, &length) };
    (void)pthread_mutex_lock(&srx->domain->lock);
    const enum rdmux_status status = rdmux_srq_post_recv(srx->srq, &wr, 1, NULL);
    (void)pthread_mutex_unlock(&srx->domain->lock);
    return rdmux_fi_error(status);
}

static ssize_t shared_recv(struct fid_ep *fid, void *buf, size_t length, void *desc,
                           fi_addr_t source, void *context)
{
    (void)source;
    const struct iovec iov = { .iov_base = buf, .iov_len = length };
    return shared_pieces(fid, &iov, &desc, 1, context);
}

static ssize_t shared_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                            fi_addr_t source, void *context)
{
    (void)source;
    return shared_pieces(fid, iov, desc, count, context);
}

static ssize_t shared_recvmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
    if ((flags & ~(FI_COMPLETION | FI_MORE)) != 0) {
        return -FI_EINVAL;
    }
    return shared_pieces(fid, msg->msg_iov, msg->desc, msg->iov_count, msg->context);
}

/* ---------------------------------------------------------------------------------------- sends */

/* A copy of injected bytes that are more than the path takes inline. */
struct bounce {
    struct fi_own_request request;
    void *context;
    bool is_silent;
    uint8_t bytes[];
};

static void bounce_done(struct fi_own_request *request, const struct rdmux_wc *wc)
{
    struct bounce *bounce = FI_OF(request, struct bounce, request);
    if (wc != NULL && (!bounce->is_silent || wc->status != RDMUX_OK)) {
        struct rdmux_wc told = *wc;
        told.context = bounce->context;
        rdmux_fi_domain_dispatch(request->ep->domain, &told);
    }
    free(bounce);
}

/* Posts a copy of the bytes. domain->lock is held. */
static enum rdmux_status post_copy(struct fi_rdmux_ep *ep, struct rdmux_wr *wr, size_t length)
{
    struct bounce *bounce = malloc(sizeof(*bounce) + length);
    if (bounce == NULL) {
        return RDMUX_AGAIN;
    }
    size_t at = 0;
    for (uint32_t i = 0; i < wr->sge_count; i++) {
        memcpy(bounce->bytes + at, wr->sges[i].addr, wr->sges[i].length);
        at += wr->sges[i].length;
    }
    const struct rdmux_sge piece = { .addr = bounce->bytes, .length = length };
    bounce->request.ep = ep;
    bounce->request.done = bounce_done;
    bounce->context = wr->context;
    bounce->is_silent = (wr->flags & RDMUX_UNSIGNALED) != 0;
    struct rdmux_wr copy = *wr;
    copy.sges = &piece;
    copy.sge_count = 1;
    copy.context = &bounce->request;
    copy.flags &= ~(uint32_t)(RDMUX_INLINE | RDMUX_UNSIGNALED);
    fi_own_begin(ep->domain, &bounce->request);
    const enum rdmux_status status = rdmux_post(ep->ep, &copy, 1, NULL);
    if (status != RDMUX_OK) {
        fi_link_remove(&bounce->request.link);
        free(bounce);
    }
    return status;
}

enum rdmux_status rdmux_fi_post(struct fi_rdmux_ep *ep, struct rdmux_wr *wr, size_t length)
{
    return (wr->flags & RDMUX_INLINE) != 0 && length > ep->max_inline
               ? post_copy(ep, wr, length)
               : rdmux_post(ep->ep, wr, 1, NULL);
}

/* An endpoint that is not connected takes no send. domain->lock is held. */
static bool may_send(const struct fi_rdmux_ep *ep)
{
    return ep->state == FI_EP_CONNECTED || ep->state == FI_EP_CONNECTING;
}

static ssize_t post_send(struct fi_rdmux_ep *ep, struct rdmux_wr *wr, size_t length)
{
    (void)pthread_mutex_lock(&ep->domain->lock);
    const ssize_t result = may_send(ep) ? rdmux_fi_error(rdmux_fi_post(ep, wr, length))
                                        : -FI_ENOTCONN;
    (void)pthread_mutex_unlock(&ep->domain->lock);
    return result;
}

static ssize_t send_pieces(struct fi_rdmux_ep *ep, const struct iovec *iov, void **desc,
                           size_t count, void *context, uint32_t flags, const uint64_t *data)
{
    struct rdmux_sge pieces[FI_PIECES_MAX];
    size_t length;
    if (count > FI_PIECES_MAX || (data != NULL && *data > UINT32_MAX)) {
        return -FI_EINVAL;
    }
    struct rdmux_wr wr = {
        .op = data != NULL ? RDMUX_OP_SEND_IMM : RDMUX_OP_SEND,
        .flags = flags,
        .context = context,
        .sges = pieces,
        .sge_count = rdmux_fi_pieces(iov, desc, count, pieces, &length),
        .imm = data != NULL ? (uint32_t)*data : 0,
    };
    return post_send(ep, &wr, length);
}

static ssize_t message_send(struct fid_ep *fid, const void *buf, size_t length, void *desc,
                            fi_addr_t target, void *context)
{
    (void)target;
    struct fi_rdmux_ep *ep = fi_ep_of(fid);
    (void)pthread_mutex_lock(&ep->domain->lock);
    const ssize_t result = may_send(ep)
                               ? rdmux_fi_error(rdmux_send(ep->ep, buf, length, fi_desc_mr(desc),
                                                           context, ep->send_flags))
                               : -FI_ENOTCONN;
    (void)pthread_mutex_unlock(&ep->domain->lock);
    return result;
}

static ssize_t message_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                             fi_addr_t target, void *context)
{
    (void)target;
    struct fi_rdmux_ep *ep = fi_ep_of(fid);
    return send_pieces(ep, iov, desc, count, context, ep->send_flags, NULL);
}

static ssize_t message_sendmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
    struct fi_rdmux_ep *ep = fi_ep_of(fid);
    const bool completes = !ep->selects_sends || (flags & FI_COMPLETION) != 0;
    return send_pieces(ep, msg->msg_iov, msg->desc, msg->iov_count, msg->context,
                       rdmux_fi_post_flags(flags, completes),
                       (flags & FI_REMOTE_CQ_DATA) != 0 ? &msg->data : NULL);
}

static ssize_t message_inject(struct fid_ep *fid, const void *buf, size_t length, fi_addr_t target)
{
    (void)target;
    struct fi_rdmux_ep *ep = fi_ep_of(fid);
    const uint32_t flags = RDMUX_INLINE | RDMUX_UNSIGNALED;
    (void)pthread_mutex_lock(&ep->domain->lock);
    if (may_send(ep) && length <= ep->max_inline) {
        const enum rdmux_status status = rdmux_send(ep->ep, buf, length, NULL, &rdmux_fi_silent,
                                                    flags);
        (void)pthread_mutex_unlock(&ep->domain->lock);
        return rdmux_fi_error(status);
    }
    (void)pthread_mutex_unlock(&ep->domain->lock);
    const struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = length };
    return send_pieces(ep, &iov, NULL, 1, &rdmux_fi_silent, flags, NULL);
}

static ssize_t message_senddata(struct fid_ep *fid, const void *buf, size_t length, void *desc,
                                uint64_t data, fi_addr_t target, void *context)
{
    (void)target;
    struct fi_rdmux_ep *ep = fi_ep_of(fid);
    const struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = length };
    return send_pieces(ep, &iov, &desc, 1, context, ep->send_flags, &data);
}

static ssize_t message_injectdata(struct fid_ep *fid, const void *buf, size_t length, uint64_t data,
                                  fi_addr_t target)
{
    (void)target;
    const struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = length };
    return send_pieces(fi_ep_of(fid), &iov, NULL, 1, &rdmux_fi_silent,
                       RDMUX_INLINE | RDMUX_UNSIGNALED, &data);
}

struct fi_ops_msg rdmux_fi_message_ops = {
    .size = sizeof(struct fi_ops_msg),
    .recv = message_recv,
    .recvv = message_recvv,
    .recvmsg = message_recvmsg,
    .send = message_send,
    .sendv = message_sendv,
    .sendmsg = message_sendmsg,
    .inject = message_inject,
    .senddata = message_senddata,
    .injectdata = message_injectdata,
};

static ssize_t no_send(struct fid_ep *fid, const void *buf, size_t length, void *desc,
                       fi_addr_t target, void *context)
{
    (void)fid;
    (void)buf;
    (void)length;
    (void)desc;
    (void)target;
    (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                        fi_addr_t target, void *context)
{
    (void)fid;
    (void)iov;
    (void)desc;
    (void)count;
    (void)target;
    (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_sendmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
    (void)fid;
    (void)msg;
    (void)flags;
    return -FI_ENOSYS;
}

static ssize_t no_inject(struct fid_ep *fid, const void *buf, size_t length, fi_addr_t target)
{
    (void)fid;
    (void)buf;
    (void)length;
    (void)target;
    return -FI_ENOSYS;
}

static ssize_t no_senddata(struct fid_ep *fid, const void *buf, size_t length, void *desc,
                           uint64_t data, fi_addr_t target, void *context)
{
    (void)fid;
    (void)buf;
    (void)length;
    (void)desc;
    (void)data;
    (void)target;
    (void)context;
    return -FI_ENOSYS;
}

static ssize_t no_injectdata(struct fid_ep *fid, const void *buf, size_t length, uint64_t data,
                             fi_addr_t target)
{
    (void)fid;
    (void)buf;
    (void)length;
    (void)data;
    (void)target;
    return -FI_ENOSYS;
}

struct fi_ops_msg rdmux_fi_shared_receive_ops = {
    .size = sizeof(struct fi_ops_msg),
    .recv = shared_recv,
    .recvv = shared_recvv,
    .recvmsg = shared_recvmsg,
    .send = no_send,
    .sendv = no_sendv,
    .sendmsg = no_sendmsg,
    .inject = no_inject,
    .senddata = no_senddata,
    .injectdata = no_injectdata,
};
