/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Reads and writes of the peer's memory. A key is looked up in the peer's directory when it is used
 * first; until then requests give -FI_EAGAIN. */
#include "adapters/fi/fi_internal.h"

#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- imports */

static void fail_import(struct fi_import *import, int error)
{
    import->state = FI_IMPORT_FAILED;
    import->error = error;
}

/* The slot of the key was read: imports the region that it names. */
static void slot_read(struct fi_own_request *request, const struct rdmux_wc *wc)
{
    struct fi_import *import = FI_OF(request, struct fi_import, read);
    struct fi_rdmux_ep *ep = request->ep;
    if (wc == NULL || wc->status != RDMUX_OK) {
        fail_import(import,
                    wc == NULL ? -FI_ECANCELED : rdmux_fi_error((enum rdmux_status)wc->status));
        return;
    }
    if (!rdmux_fi_slot_decode(import->bytes, import->key, &import->slot)) {
        fail_import(import, -FI_EKEYREJECTED);
        return;
    }
    const enum rdmux_status status = rdmux_remote_import(ep->ep, &import->slot.token, 0,
                                                         &import->remote);
    memset(import->bytes, 0, sizeof(import->bytes));
    if (status != RDMUX_IN_PROGRESS) {
        fail_import(import, rdmux_fi_error(status));
        return;
    }
    import->state = FI_IMPORT_ASKING;
    fi_attend(ep->domain);
}

void rdmux_fi_import_answered(struct fi_rdmux_ep *ep, const struct rdmux_wc *wc)
{
    if (wc->context == ep->directory) {
        ep->directory_state = wc->status == RDMUX_OK ? FI_IMPORT_READY : FI_IMPORT_FAILED;
        return;
    }
    for (size_t i = 0; i < FI_SLOT_COUNT && ep->imports != NULL; i++) {
        struct fi_import *import = ep->imports[i];
        if (import != NULL && import->state == FI_IMPORT_ASKING && import->remote == wc->context) {
            if (wc->status == RDMUX_OK) {
                import->state = FI_IMPORT_READY;
            } else {
                fail_import(import, wc->status == RDMUX_DENIED
                                        ? -FI_EKEYREJECTED
                                        : rdmux_fi_error((enum rdmux_status)wc->status));
            }
            return;
        }
    }
}

/* Starts the look-up of a key. The slot has no import, or that of an earlier key. */
static ssize_t look_up(struct fi_rdmux_ep *ep, uint64_t key)
{
    const uint32_t slot = rdmux_fi_key_slot(key);
    if (ep->imports == NULL) {
        ep->imports = calloc(FI_SLOT_COUNT, sizeof(struct fi_import *));
        if (ep->imports == NULL) {
            return -FI_ENOMEM;
        }
    }
    struct fi_import *import = ep->imports[slot];
    if (import == NULL) {
        import = calloc(1, sizeof(*import));
        if (import == NULL) {
            return -FI_ENOMEM;
        }
        ep->imports[slot] = import;
    } else if (import->state == FI_IMPORT_READING || import->state == FI_IMPORT_ASKING) {
        return -FI_EAGAIN; /* of the earlier key */
    } else {
        rdmux_remote_close(import->remote);
        memset(import, 0, sizeof(*import));
    }
    fi_link_init(&import->read.link);
    import->read.ep = ep;
    import->read.done = slot_read;
    import->key = key;
    import->state = FI_IMPORT_READING;
    fi_own_begin(ep->domain, &import->read);
    const enum rdmux_status status = rdmux_read(ep->ep, import->bytes, FI_SLOT_SIZE, NULL,
                                                ep->directory, (uint64_t)slot * FI_SLOT_SIZE,
                                                &import->read, 0);
    if (status != RDMUX_OK) {
        fi_link_remove(&import->read.link);
        fail_import(import, rdmux_fi_error(status));
        return import->error;
    }
    return -FI_EAGAIN;
}

/* Finds the place of an access. -FI_EAGAIN: it is being looked up. domain->lock is held. */
static ssize_t find(struct fi_rdmux_ep *ep, uint64_t key, uint64_t address, size_t length,
                    struct rdmux_remote **remote, uint64_t *offset)
{
    struct fi_import *import = ep->imports != NULL ? ep->imports[rdmux_fi_key_slot(key)] : NULL;
    if (import == NULL || import->key != key) {
        if (ep->directory_state != FI_IMPORT_READY) {
            return ep->directory_state == FI_IMPORT_ASKING ? -FI_EAGAIN : -FI_EACCES;
        }
        return look_up(ep, key);
    }
    if (import->state == FI_IMPORT_FAILED) {
        const int error = import->error;
        import->key = 0; /* the next request asks again */
        return error;
    }
    if (import->state != FI_IMPORT_READY) {
        return -FI_EAGAIN;
    }
    if (!rdmux_fi_slot_offset(&import->slot, address, length, offset)) {
        return -FI_EINVAL;
    }
    *remote = import->remote;
    return 0;
}

void rdmux_fi_imports_drop(struct fi_rdmux_ep *ep)
{
    for (size_t i = 0; i < FI_SLOT_COUNT && ep->imports != NULL; i++) {
        free(ep->imports[i]);
    }
    free(ep->imports);
    ep->imports = NULL;
}

/* ------------------------------------------------------------------------------------- requests */

/* Posts a read or write. length 0 needs no region. */
static ssize_t post(struct fi_rdmux_ep *ep, struct rdmux_wr *wr, const struct iovec *iov,
                    void **desc, size_t count, uint64_t address, uint64_t key)
{
    struct rdmux_sge pieces[FI_PIECES_MAX];
    size_t length;
    if (count > FI_PIECES_MAX) {
        return -FI_EINVAL;
    }
    wr->sge_count = rdmux_fi_pieces(iov, desc, count, pieces, &length);
    wr->sges = pieces;
    (void)pthread_mutex_lock(&ep->domain->lock);
    ssize_t result = ep->state == FI_EP_CONNECTED    ? 0
                     : ep->state == FI_EP_CONNECTING ? -FI_EAGAIN
                                                     : -FI_ENOTCONN;
    if (result == 0) {
        result = find(ep, key, address, length, &wr->remote, &wr->offset);
    }
    if (result == 0) {
        const enum rdmux_status status = rdmux_fi_post(ep, wr, length);
        result = status == RDMUX_DENIED ? -FI_EKEYREJECTED : rdmux_fi_error(status);
    }
    (void)pthread_mutex_unlock(&ep->domain->lock);
    wr->sges = NULL; /* the pieces end here */
    return result;
}

static ssize_t rma_readv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                         fi_addr_t source, uint64_t address, uint64_t key, void *context)
{
    (void)source;
    struct fi_rdmux_ep *ep = fi_ep_of(fid);
    struct rdmux_wr wr = { .op = RDMUX_OP_READ,
                           .flags = ep->send_flags & ~(uint32_t)RDMUX_PLACED,
                           .context = context };
    return post(ep, &wr, iov, desc, count, address, key);
}

static ssize_t rma_read(struct fid_ep *fid, void *buf, size_t length, void *desc, fi_addr_t source,
                        uint64_t address, uint64_t key, void *context)
{
    const struct iovec iov = { .iov_base = buf, .iov_len = length };
    return rma_readv(fid, &iov, &desc, 1, source, address, key, context);
}

static ssize_t rma_readmsg(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags)
{
    struct fi_rdmux_ep *ep = fi_ep_of(fid);
    const bool completes = !ep->selects_sends || (flags & FI_COMPLETION) != 0;
    struct rdmux_wr wr = {
        .op = RDMUX_OP_READ,
        .flags = rdmux_fi_post_flags(flags & ~(FI_INJECT | FI_DELIVERY_COMPLETE), completes),
        .context = msg->context,
    };
    if (msg->rma_iov_count != 1) {
        return -FI_EINVAL;
    }
    return post(ep, &wr, msg->msg_iov, msg->desc, msg->iov_count, msg->rma_iov[0].addr,
                msg->rma_iov[0].key);
}

static ssize_t write_pieces(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                            uint64_t address, uint64_t key, void *context, uint32_t flags,
                            const uint64_t *data)
{
    struct fi_rdmux_ep *ep = fi_ep_of(fid);
    if (data != NULL && (*data > UINT32_MAX || (ep->info->mode & FI_RX_CQ_DATA) == 0)) {
        return -FI_EINVAL;
    }
    struct rdmux_wr wr = { .op = data != NULL ? RDMUX_OP_WRITE_IMM : RDMUX_OP_WRITE,
                           .flags = flags,
                           .context = context,
                           .imm = data != NULL ? (uint32_t)*data : 0 };
    return post(ep, &wr, iov, desc, count, address, key);
}

static ssize_t rma_writev(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count,
                          fi_addr_t target, uint64_t address, uint64_t key, void *context)
{
    (void)target;
    return write_pieces(fid, iov, desc, count, address, key, context, fi_ep_of(fid)->send_flags,
                        NULL);
}

static ssize_t rma_write(struct fid_ep *fid, const void *buf, size_t length, void *desc,
                         fi_addr_t target, uint64_t address, uint64_t key, void *context)
{
    const struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = length };
    return rma_writev(fid, &iov, &desc, 1, target, address, key, context);
}

static ssize_t rma_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags)
{
    struct fi_rdmux_ep *ep = fi_ep_of(fid);
    const bool completes = !ep->selects_sends || (flags & FI_COMPLETION) != 0;
    if (msg->rma_iov_count != 1) {
        return -FI_EINVAL;
    }
    return write_pieces(fid, msg->msg_iov, msg->desc, msg->iov_count, msg->rma_iov[0].addr,
                        msg->rma_iov[0].key, msg->context, rdmux_fi_post_flags(flags, completes),
                        (flags & FI_REMOTE_CQ_DATA) != 0 ? &msg->data : NULL);
}

static ssize_t rma_inject(struct fid_ep *fid, const void *buf, size_t length, fi_addr_t target,
                          uint64_t address, uint64_t key)
{
    (void)target;
    const struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = length };
    return write_pieces(fid, &iov, NULL, 1, address, key, &rdmux_fi_silent,
                        RDMUX_INLINE | RDMUX_UNSIGNALED, NULL);
}

static ssize_t rma_writedata(struct fid_ep *fid, const void *buf, size_t length, void *desc,
                             uint64_t data, fi_addr_t target, uint64_t address, uint64_t key,
                             void *context)
{
    (void)target;
    const struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = length };
    return write_pieces(fid, &iov, &desc, 1, address, key, context, fi_ep_of(fid)->send_flags,
                        &data);
}

static ssize_t rma_injectdata(struct fid_ep *fid, const void *buf, size_t length, uint64_t data,
                              fi_addr_t target, uint64_t address, uint64_t key)
{
    (void)target;
    const struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = length };
    return write_pieces(fid, &iov, NULL, 1, address, key, &rdmux_fi_silent,
                        RDMUX_INLINE | RDMUX_UNSIGNALED, &data);
}

struct fi_ops_rma rdmux_fi_rma_ops = {
    .size = sizeof(struct fi_ops_rma),
    .read = rma_read,
    .readv = rma_readv,
    .readmsg = rma_readmsg,
    .write = rma_write,
    .writev = rma_writev,
    .writemsg = rma_writemsg,
    .inject = rma_inject,
    .writedata = rma_writedata,
    .injectdata = rma_injectdata,
};
