/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* One endpoint's lane. */
#include "adapters/ucx/ucx_internal.h"
#include "api/base/bytes.h"

#include <string.h>

/* Connection data, in the hosts' byte order, which is the same. Offset, size, field:
 *   0  4  version of what the lanes exchange
 *   4  4  bytes of the worker's address
 *   8  8  number of the link
 *  16     the worker's address */
enum {
    LANE_VERSION = 1,
    DATA_AT_LENGTH = 4,
    DATA_AT_NUMBER = 8,
    DATA_AT_ADDRESS = UCX_ADDRESS_HEAD,
};

/* Gives the link a place, and a number that nobody can guess. */
static enum rdmux_status enter_link(struct ucx_cq *cq, struct ucx_link *link)
{
    uint32_t random = 0;
    enum rdmux_status status = rdmux_provider_random(cq->fabric, &random, sizeof(random));
    if (status != RDMUX_OK) {
        rdmux_provider_error("ucx: there are no random bytes");
        return status;
    }
    uint32_t place = 0;
    while (place < cq->link_room && cq->links[place] != NULL) {
        place++;
    }
    if (place == cq->link_room) {
        const uint32_t room = cq->link_room == 0 ? 16 : 2 * cq->link_room;
        struct ucx_link **links = rdmux_provider_allocate(cq->fabric,
                                                          room * sizeof(struct ucx_link *));
        if (links == NULL) {
            rdmux_provider_error("ucx: no memory for %u endpoints", room);
            return RDMUX_NO_MEMORY;
        }
        if (cq->links != NULL) {
            memcpy(links, cq->links, cq->link_room * sizeof(struct ucx_link *));
        }
        rdmux_provider_release(cq->fabric, cq->links);
        cq->links = links;
        cq->link_room = room;
    }
    link->number = (uint64_t)random << 32 | place;
    cq->links[place] = link;
    return RDMUX_OK;
}

/* After that, no message for the link is delivered. */
static void leave_link(struct ucx_cq *cq, struct ucx_link *link)
{
    if (rdmux_ucx_link_find(cq, link->number) == link) {
        cq->links[(uint32_t)link->number] = NULL;
    }
    rdmux_node_remove(&link->node);
}

static enum rdmux_status lane_open(struct framed_ep *base)
{
    struct ucx_ep *ep = rdmux_ucx_ep_of(base);
    struct ucx_cq *cq = rdmux_ucx_cq_of(framed_cq_of(base));
    struct ucx_link *link = rdmux_provider_allocate(cq->fabric, sizeof(*link));
    if (link == NULL) {
        rdmux_provider_error("ucx: no memory for an endpoint's messages, %zu bytes", sizeof(*link));
        return RDMUX_NO_MEMORY;
    }
    link->ep = base;
    link->cq = cq;
    enum rdmux_status status = enter_link(cq, link);
    if (status != RDMUX_OK) {
        rdmux_provider_release(cq->fabric, link);
        return status;
    }
    for (size_t i = 0; i < sizeof(link->messages) / sizeof(link->messages[0]); i++) {
        link->messages[i].link = link;
        link->messages[i].next = link->free;
        link->free = &link->messages[i];
    }
    base->message_max = UCX_MESSAGE_MAX;
    base->window = UCX_WINDOW;
    ep->link = link;
    return RDMUX_OK;
}

static enum rdmux_status lane_describe(struct framed_ep *ep, uint8_t *out, size_t *size)
{
    const struct ucx_cq *cq = rdmux_ucx_cq_of(framed_cq_of(ep));
    rdmux_store_host32(out, LANE_VERSION);
    rdmux_store_host32(out + DATA_AT_LENGTH, (uint32_t)cq->address_length);
    rdmux_store_host64(out + DATA_AT_NUMBER, rdmux_ucx_ep_of(ep)->link->number);
    memcpy(out + DATA_AT_ADDRESS, cq->address, cq->address_length);
    *size = DATA_AT_ADDRESS + cq->address_length;
    return RDMUX_OK;
}

static enum rdmux_status lane_connect(struct framed_ep *ep, const uint8_t *peer, size_t size)
{
    struct ucx_link *link = rdmux_ucx_ep_of(ep)->link;
    if (peer == NULL) {
        return RDMUX_OK; /* UCX connects while the first message waits */
    }
    if (size <= DATA_AT_ADDRESS || rdmux_load_host32(peer) != LANE_VERSION ||
        rdmux_load_host32(peer + DATA_AT_LENGTH) != size - DATA_AT_ADDRESS) {
        rdmux_provider_error("ucx: the peer's connection data is not that of this version; run "
                             "the same version of rdmux on both hosts");
        return RDMUX_PROTOCOL;
    }
    link->peer_number = rdmux_load_host64(peer + DATA_AT_NUMBER);
    enum rdmux_status status = rdmux_ucx_peer_get(link->cq, peer + DATA_AT_ADDRESS,
                                                  size - DATA_AT_ADDRESS, &link->peer);
    if (status == RDMUX_OK) {
        rdmux_list_append(&link->peer->links, &link->node);
    }
    return status;
}

static uint8_t *lane_take(struct framed_ep *ep)
{
    struct ucx_link *link = rdmux_ucx_ep_of(ep)->link;
    struct ucx_message *message = link->free;
    if (message == NULL) {
        return NULL;
    }
    link->free = message->next;
    return message->wire.bytes;
}

static struct ucx_message *message_of(uint8_t *bytes)
{
    return (struct ucx_message *)(void *)(bytes - offsetof(struct ucx_message, wire.bytes));
}

static void give_back(struct ucx_message *message)
{
    struct ucx_link *link = message->link;
    message->next = link->free;
    link->free = message;
}

/* UCX has sent a message, or gave it up. */
static void on_sent(void *request, ucs_status_t status, void *argument)
{
    struct ucx_message *message = argument;
    struct ucx_link *link = message->link;
    struct ucx_cq *cq = link->cq;
    cq->calls->ucp_request_free(request);
    give_back(message);
    link->under_way--;
    link->peer->under_way--;
    cq->work++;
    if (status != UCS_OK) {
        rdmux_ucx_peer_fail(link->peer, status);
    } else if (link->ep != NULL) {
        rdmux_framed_sent(link->ep);
    }
    if (link->is_orphan && link->under_way == 0) {
        rdmux_node_remove(&link->node);
        rdmux_provider_release(cq->fabric, link);
    }
}

static enum rdmux_status lane_send(struct framed_ep *ep, uint8_t *bytes, uint32_t length)
{
    struct ucx_link *link = rdmux_ucx_ep_of(ep)->link;
    struct ucx_message *message = message_of(bytes);
    struct ucx_peer *peer = link->peer;
    if (peer->failure != RDMUX_OK) {
        give_back(message);
        return RDMUX_IO;
    }
    message->wire.number = link->peer_number;
    /* Eager: a message is never announced first, so all arrive in the order in which they are
     * sent. */
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = on_sent,
        .user_data = message,
    };
    void *request = link->cq->calls->ucp_am_send_nbx(peer->ep, UCX_ACTIVE_MESSAGE, NULL, 0,
                                                     message->wire.padding, UCX_HEAD_SIZE + length,
                                                     &param);
    if (request == NULL) {
        give_back(message);
        rdmux_framed_sent(ep);
    } else if (UCS_PTR_IS_ERR(request)) {
        give_back(message);
        rdmux_ucx_peer_fail(peer, UCS_PTR_STATUS(request));
        return RDMUX_IO;
    } else {
        link->under_way++;
        peer->under_way++;
    }
    return RDMUX_OK;
}

/* UCX may still have messages. They are in the link's memory, which on_sent() frees. */
static enum rdmux_status lane_stop(struct framed_ep *ep)
{
    struct ucx_link *link = rdmux_ucx_ep_of(ep)->link;
    if (link != NULL) {
        leave_link(link->cq, link);
        link->ep = NULL;
    }
    return RDMUX_OK;
}

static void lane_close(struct framed_ep *base)
{
    struct ucx_ep *ep = rdmux_ucx_ep_of(base);
    struct ucx_link *link = ep->link;
    ep->link = NULL;
    if (link == NULL) {
        return;
    }
    if (link->under_way == 0) {
        rdmux_provider_release(link->cq->fabric, link);
    } else {
        link->is_orphan = true;
        rdmux_list_append(&link->cq->orphans, &link->node);
    }
}

void rdmux_ucx_orphans_free(struct ucx_cq *cq)
{
    while (!rdmux_list_empty(&cq->orphans)) {
        struct ucx_link *link = (struct ucx_link *)cq->orphans.next;
        rdmux_node_remove(&link->node);
        rdmux_provider_release(cq->fabric, link);
    }
}

const struct framed_lane_ops rdmux_ucx_lane = {
    .cq_open = rdmux_ucx_cq_open,
    .cq_close = rdmux_ucx_cq_close,
    .progress = rdmux_ucx_progress,
    .arm = rdmux_ucx_arm,
    .open = lane_open,
    .describe = lane_describe,
    .connect = lane_connect,
    .take = lane_take,
    .send = lane_send,
    .stop = lane_stop,
    .close = lane_close,
};
