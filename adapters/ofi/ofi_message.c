/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The messages of an endpoint: memory, sending, receiving. */
#include "adapters/ofi/ofi_internal.h"

#include <rdma/fi_errno.h>
#include <string.h>

static struct fid_mr *register_slab(struct ofi_domain *domain, struct ofi_slab *slab, size_t size,
                                    int *result)
{
    struct fid_mr *mr = NULL;
    *result = 0;
    if ((domain->info->domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
        *result = fi_mr_reg(domain->domain, slab, size, FI_SEND | FI_RECV, 0, 0, 0, &mr, NULL);
    }
    return *result == 0 ? mr : NULL;
}

/* shm reads a long message from the sender's memory when there is a receive for it. */
static bool is_shm(const struct fi_info *info)
{
    return strcmp(info->fabric_attr->prov_name, "shm") == 0;
}

/* Returns the most pieces of a body; 0: no bodies. These providers leave a message where it is until
 * there is a receive for it, and need no registration. */
static size_t body_pieces(const struct fi_info *info)
{
    const char *name = info->fabric_attr->prov_name;
    const bool is_tcp = info->ep_attr->type == FI_EP_MSG &&
                        (strcmp(name, "net") == 0 || strcmp(name, "tcp") == 0);
    const bool has_bodies = (is_tcp || is_shm(info)) &&
                            (info->domain_attr->mr_mode & FI_MR_LOCAL) == 0 &&
                            info->ep_attr->max_msg_size >= FRAMED_BODY_MAX;
    size_t pieces = info->tx_attr->iov_limit;
    pieces = info->rx_attr->iov_limit < pieces ? info->rx_attr->iov_limit : pieces;
    pieces = pieces < FRAMED_PIECES_MAX ? pieces : FRAMED_PIECES_MAX;
    return has_bodies ? pieces : 0;
}

/* Returns the bytes of the longest message. ofi_rxm fetches one that exceeds its buffers by a read,
 * which tcp of libfabric 1.17 frees twice if the connection ends meanwhile. */
static size_t longest_message(const struct ofi_ep *ep)
{
    const struct fi_info *info = ofi_domain_of(ep)->info;
    size_t longest = info->ep_attr->max_msg_size;
    size_t buffered = 0;
    size_t size = sizeof(buffered);
    if (ofi_is_rxm(info) &&
        fi_getopt(&ep->ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &buffered, &size) == 0) {
        longest = buffered < longest ? buffered : longest;
    }
    return longest < OFI_MESSAGE_MAX ? longest : OFI_MESSAGE_MAX;
}

enum rdmux_status rdmux_ofi_slab_create(struct ofi_ep *ep)
{
    struct ofi_domain *domain = ofi_domain_of(ep);
    struct rdmux_fabric *fabric = domain->base.base.fabric;
    const size_t longest = longest_message(ep);
    const uint32_t message_max = (uint32_t)longest & ~UINT32_C(63);
    if (longest < FRAMED_MESSAGE_MIN) {
        const char *name = domain->info->fabric_attr->prov_name;
        rdmux_provider_error("ofi: %s takes messages of %zu bytes, and %d are needed%s", name,
                             longest, FRAMED_MESSAGE_MIN,
                             ofi_is_rxm(domain->info) ? "; unset FI_OFI_RXM_BUFFER_SIZE" : "");
        return RDMUX_UNSUPPORTED;
    }
    const size_t pieces = body_pieces(domain->info);
    const int receives = pieces > 0 ? 1 : OFI_RECEIVES;
    const size_t head = (sizeof(struct ofi_slab) + 63) & ~(size_t)63;
    const size_t messages = (size_t)(receives + OFI_SENDS) * message_max;
    const size_t copies = (size_t)OFI_COPIES * FRAMED_PART_MAX;
    const size_t size = head + messages + (pieces > 0 ? FRAMED_BODY_MAX + copies : 0);
    struct ofi_slab *slab = rdmux_provider_allocate(fabric, size);
    if (slab == NULL) {
        rdmux_provider_error("ofi: no memory for %zu bytes of messages", size);
        return RDMUX_NO_MEMORY;
    }
    int result;
    slab->mr = register_slab(domain, slab, size, &result);
    if (result != 0) {
        rdmux_provider_release(fabric, slab);
        return rdmux_ofi_error(domain, "fi_mr_reg", result);
    }
    slab->desc = slab->mr != NULL ? fi_mr_desc(slab->mr) : NULL;
    slab->ep = ep;
    slab->message_max = message_max;
    slab->has_bodies = pieces > 0;
    slab->collected = (uint8_t *)slab + head + messages;
    slab->copied = slab->collected + FRAMED_BODY_MAX;
    for (int i = receives + OFI_SENDS - 1; i >= 0; i--) {
        struct ofi_message *message = &slab->messages[i];
        message->slab = slab;
        message->bytes = (uint8_t *)slab + head + (size_t)i * message_max;
        message->kind = i < receives ? OFI_RECEIVE : OFI_SEND;
        ofi_message_push(i < receives ? &slab->unposted : &slab->free_sends, message);
    }
    for (int i = 0; i < FRAMED_BODIES; i++) {
        slab->bodies_out[i].slab = slab;
        slab->bodies_out[i].kind = OFI_SEND_BODY;
    }
    for (int i = 0; i < FRAMED_EXPECTED; i++) {
        slab->bodies_in[i].slab = slab;
        slab->bodies_in[i].kind = OFI_RECEIVE_BODY;
    }
    for (int i = pieces > 0 ? OFI_COPIES - 1 : -1; i >= 0; i--) {
        slab->copies[i].slab = slab;
        slab->copies[i].kind = OFI_SEND_COPY;
        slab->copies[i].bytes = slab->copied + (size_t)i * FRAMED_PART_MAX;
        ofi_message_push(&slab->free_copies, &slab->copies[i]);
    }
    ep->slab = slab;
    ep->base.body_pieces = (uint32_t)pieces;
    ep->base.copy_max = FRAMED_PART_MAX;
    ep->base.copies_bodies = is_shm(domain->info);
    ep->base.message_max = message_max;
    ep->base.window = OFI_WINDOW;
    return RDMUX_OK;
}

static bool may_post(const struct ofi_slab *slab)
{
    return slab->unposted != NULL &&
           (!slab->has_bodies || (slab->oldest == NULL && !rdmux_framed_keeps(&slab->ep->base)));
}

void rdmux_ofi_slab_post(struct ofi_slab *slab)
{
    while (may_post(slab)) {
        struct ofi_message *message = slab->unposted;
        ssize_t result = fi_recv(slab->ep->ep, message->bytes, slab->message_max, slab->desc,
                                 FI_ADDR_UNSPEC, &message->context);
        if (result == -FI_EAGAIN) {
            return; /* the next poll goes on */
        }
        if (result != 0) {
            rdmux_ofi_shut(slab->ep, "fi_recv", result);
            return;
        }
        slab->unposted = message->next;
        message->next = NULL;
        message->has_arrived = false;
        if (slab->oldest == NULL) {
            slab->oldest = message;
        } else {
            slab->newest->next = message;
        }
        slab->newest = message;
    }
}

struct ofi_message *rdmux_ofi_slab_next(struct ofi_slab *slab)
{
    struct ofi_message *message = slab->oldest;
    if (message == NULL || !message->has_arrived) {
        return NULL;
    }
    slab->oldest = message->next;
    return message;
}

void rdmux_ofi_slab_bury(struct ofi_cq *cq, struct ofi_slab *slab)
{
    slab->ep = NULL;
    if (slab->mr != NULL) {
        (void)fi_close(&slab->mr->fid);
        slab->mr = NULL;
    }
    rdmux_list_append(&cq->slabs, &slab->buried);
}

void rdmux_ofi_slab_free_buried(struct ofi_cq *cq)
{
    struct rdmux_fabric *fabric = cq->base.base.base.domain->fabric;
    while (!rdmux_list_empty(&cq->slabs)) {
        struct ofi_slab *slab = RDMUX_CONTAINER(cq->slabs.next, struct ofi_slab, buried);
        rdmux_node_remove(&slab->buried);
        rdmux_provider_release(fabric, slab);
    }
}

static uint8_t *take_from(struct ofi_message **list)
{
    struct ofi_message *message = *list;
    if (message == NULL) {
        return NULL;
    }
    *list = message->next;
    return message->bytes;
}

uint8_t *rdmux_ofi_take(struct framed_ep *base)
{
    return take_from(&((struct ofi_ep *)base)->slab->free_sends);
}

uint8_t *rdmux_ofi_take_copy(struct framed_ep *base)
{
    return take_from(&((struct ofi_ep *)base)->slab->free_copies);
}

/* Returns the message or the copy that has this memory. */
static struct ofi_message *message_at(struct ofi_slab *slab, const uint8_t *bytes)
{
    return slab->has_bodies && bytes >= slab->copied
               ? &slab->copies[(size_t)(bytes - slab->copied) / FRAMED_PART_MAX]
               : &slab->messages[(size_t)(bytes - slab->messages[0].bytes) / slab->message_max];
}

enum rdmux_status rdmux_ofi_send(struct framed_ep *base, uint8_t *bytes, uint32_t length)
{
    struct ofi_ep *ep = (struct ofi_ep *)base;
    struct ofi_slab *slab = ep->slab;
    struct ofi_message *message = message_at(slab, bytes);
    const bool is_injected = length <= ep->inject_max && message->kind == OFI_SEND;
    ssize_t result = is_injected
                         ? fi_inject(ep->ep, bytes, length, ep->peer)
                         : fi_send(ep->ep, bytes, length, slab->desc, ep->peer, &message->context);
    if (result == -FI_EAGAIN) {
        return RDMUX_AGAIN;
    }
    if (result != 0) {
        rdmux_ofi_shut(ep, is_injected ? "fi_inject" : "fi_send", result);
        return RDMUX_AGAIN;
    }
    if (base->rings) {
        rdmux_ofi_bell_ring(ep);
    }
    if (is_injected) {
        ofi_message_push(&slab->free_sends, message);
        rdmux_framed_sent(base);
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_ofi_send_body(struct framed_ep *base, const struct iovec *pieces,
                                      size_t count)
{
    struct ofi_ep *ep = (struct ofi_ep *)base;
    struct ofi_slab *slab = ep->slab;
    struct ofi_message *message = &slab->bodies_out[slab->bodies_sent % FRAMED_BODIES];
    ssize_t result = count == 1
                         ? fi_send(ep->ep, pieces[0].iov_base, pieces[0].iov_len, NULL, ep->peer,
                                   &message->context)
                         : fi_sendv(ep->ep, pieces, NULL, count, ep->peer, &message->context);
    if (result == -FI_EAGAIN) {
        return RDMUX_AGAIN;
    }
    if (result != 0) {
        rdmux_ofi_shut(ep, "fi_send", result);
        return RDMUX_AGAIN;
    }
    slab->bodies_sent++;
    return RDMUX_OK;
}

enum rdmux_status rdmux_ofi_receive_body(struct framed_ep *base, const struct iovec *pieces,
                                         size_t count, size_t length)
{
    struct ofi_ep *ep = (struct ofi_ep *)base;
    struct ofi_slab *slab = ep->slab;
    struct ofi_message *message = &slab->bodies_in[slab->bodies_received % FRAMED_EXPECTED];
    const size_t part = slab->bodies_received % FRAMED_EXPECTED;
    const struct iovec collected = {
        slab->collected + (length > FRAMED_PART_MAX ? 0 : part * FRAMED_PART_MAX), length
    };
    message->bytes = NULL;
    if (count == 0) {
        message->bytes = collected.iov_base;
        pieces = &collected;
        count = 1;
    }
    ssize_t result = count == 1
                         ? fi_recv(ep->ep, pieces[0].iov_base, pieces[0].iov_len, NULL,
                                   FI_ADDR_UNSPEC, &message->context)
                         : fi_recvv(ep->ep, pieces, NULL, count, FI_ADDR_UNSPEC, &message->context);
    if (result != 0) { /* never for want of room: the queue is hardly used */
        rdmux_ofi_fail(ep, RDMUX_IO, "fi_recv", result);
        return RDMUX_IO;
    }
    slab->bodies_received++;
    return RDMUX_OK;
}
