/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A connected endpoint changes its cq. Sockets, frames and requests stay as they are. What the
 * endpoint has of the old cq goes: its places on lists and in the poller, and its pooled buffers, whose
 * bytes travel as luggage. At the new cq the first poll pumps and reads, as if the endpoint had
 * just been connected.
 */
#include "tcp_fallback/tcp_change_cq.h"

#include "api/base/list.h"
#include "api/system/system.h"
#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_hot.h"
#include "tcp_fallback/tcp_lane.h"
#include "tcp_fallback/tcp_pool.h"
#include "tcp_fallback/tcp_socket.h"
#include "tcp_fallback/tcp_state.h"

#include <stdint.h>
#include <string.h>

enum { BUFFERS = 3 }; /* batch, stash, control frames */

/* Bytes of pooled buffers, one behind the other. */
struct tcp_luggage {
    bool is_there[BUFFERS]; /* the endpoint holds this buffer */
    uint8_t bytes[];
};

/* A pooled buffer of an endpoint, and the part of it that is in use. */
struct held_buffer {
    uint8_t **buffer; /* NULL in it: the endpoint does not hold it */
    uint32_t begin;
    uint32_t end;
};

static void find_buffers(struct tcp_ep *ep, struct held_buffer out[BUFFERS])
{
    out[0] = (struct held_buffer){ &ep->out.batch, ep->out.head, ep->out.tail };
    out[1] = (struct held_buffer){ &ep->in.stash, ep->in.stash_at, ep->in.stash_end };
    out[2] = (struct held_buffer){ &ep->out.control, 0, ep->out.control_size };
}

static struct rdmux_fabric *fabric_of_moved(const struct tcp_ep *ep)
{
    return ep->base.cq->domain->fabric;
}

/* Copies what is in pooled buffers; nothing has changed if there is no memory for it. */
static enum rdmux_status pack_buffers(struct tcp_ep *ep)
{
    struct held_buffer held[BUFFERS];
    size_t size = 0;
    bool any = false;
    find_buffers(ep, held);
    for (size_t i = 0; i < BUFFERS; i++) {
        any = any || *held[i].buffer != NULL;
        size += *held[i].buffer != NULL ? held[i].end - held[i].begin : 0;
    }
    if (!any) {
        return RDMUX_OK;
    }
    struct tcp_luggage *luggage = rdmux_provider_allocate(fabric_of_moved(ep),
                                                          sizeof(*luggage) + size);
    if (luggage == NULL) {
        rdmux_provider_error("tcp: out of memory for %zu bytes on their way", size);
        return RDMUX_NO_MEMORY;
    }
    uint8_t *to = luggage->bytes;
    for (size_t i = 0; i < BUFFERS; i++) {
        luggage->is_there[i] = *held[i].buffer != NULL;
        if (luggage->is_there[i]) {
            memcpy(to, *held[i].buffer + held[i].begin, held[i].end - held[i].begin);
            to += held[i].end - held[i].begin;
            rdmux_tcp_pool_put(&rdmux_tcp_cq_of(ep)->pool, *held[i].buffer);
            *held[i].buffer = NULL;
        }
    }
    ep->luggage = luggage;
    return RDMUX_OK;
}

static void drop_luggage(struct tcp_ep *ep)
{
    rdmux_provider_release(fabric_of_moved(ep), ep->luggage);
    ep->luggage = NULL;
}

/* Each part goes to where it was in its buffer: the offsets did not change. */
static void unpack_buffers(struct tcp_ep *ep)
{
    struct held_buffer held[BUFFERS];
    if (ep->luggage == NULL) {
        return;
    }
    const uint8_t *from = ep->luggage->bytes;
    find_buffers(ep, held);
    for (size_t i = 0; i < BUFFERS; i++) {
        if (ep->luggage->is_there[i]) {
            *held[i].buffer = rdmux_tcp_pool_get(&rdmux_tcp_cq_of(ep)->pool);
            memcpy(*held[i].buffer + held[i].begin, from, held[i].end - held[i].begin);
            from += held[i].end - held[i].begin;
        }
    }
    drop_luggage(ep);
}

enum rdmux_status rdmux_tcp_ep_leave(struct rdmux_provider_ep *base)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    enum rdmux_status status = pack_buffers(ep);
    if (status == RDMUX_OK) {
        rdmux_tcp_detach(ep);
        rdmux_tcp_pool_unreserve(&rdmux_tcp_cq_of(ep)->pool, ep->reserved);
    }
    return status;
}

/* Sockets that were blocked try again; the others of several sockets show their end anew. */
static enum rdmux_status resume_connected(struct tcp_ep *ep)
{
    for (uint32_t i = 0; i < ep->lane_count; i++) {
        uint32_t events = i == 0 ? RDMUX_READY_IN | RDMUX_READY_END : RDMUX_READY_END;
        enum rdmux_status status = rdmux_tcp_watch(rdmux_tcp_lane(ep, i), events);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    if (ep->in.is_paused) {
        rdmux_list_append(&rdmux_tcp_cq_of(ep)->paused, &ep->paused);
    }
    rdmux_tcp_heat(ep);
    return RDMUX_OK;
}

enum rdmux_status rdmux_tcp_ep_enter(struct rdmux_provider_ep *base)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    enum rdmux_status status = rdmux_tcp_pool_reserve(fabric_of_moved(ep),
                                                      &rdmux_tcp_cq_of(ep)->pool, ep->reserved);
    if (status != RDMUX_OK) {
        ep->reserved = 0;
        drop_luggage(ep);
        rdmux_tcp_ep_stop(ep);
        return status;
    }
    unpack_buffers(ep);
    if (ep->state == TCP_CONNECTED) {
        status = resume_connected(ep);
    }
    if (status != RDMUX_OK) {
        rdmux_tcp_ep_stop(ep);
    } else if (ep->state != TCP_QUIET) {
        rdmux_tcp_attend(ep); /* the first poll sends, and reads what no socket reports */
    }
    return status;
}
