/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Set-up and teardown of a tcp endpoint. The connector dials the data sockets to the peer address
 * of its control channel. The core hands the acceptor its data sockets (ep_join). An adopted socket
 * is connected already. */
#include "tcp_fallback/tcp_endpoint.h"

#include "api/base/list.h"
#include "api/base/stream.h"
#include "api/system/system.h"
#include "tcp_fallback/tcp_capture.h"
#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_credit.h"
#include "tcp_fallback/tcp_frame.h"
#include "tcp_fallback/tcp_hot.h"
#include "tcp_fallback/tcp_lane.h"
#include "tcp_fallback/tcp_pool.h"
#include "tcp_fallback/tcp_receive.h"
#include "tcp_fallback/tcp_send.h"
#include "tcp_fallback/tcp_socket.h"
#include "tcp_fallback/tcp_state.h"
#include "tcp_fallback/tcp_stream.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static_assert(offsetof(struct tcp_ep, base) == 0, "rdmux_tcp_ep() relies on it");
static_assert(offsetof(struct tcp_cq, base) == 0, "rdmux_tcp_cq() relies on it");

enum { QUIESCE_READS = 64 }; /* most rounds of reading while an endpoint quiesces */

static struct rdmux_fabric *fabric_of(const struct tcp_ep *ep)
{
    return ep->base.cq->domain->fabric;
}

static enum rdmux_status status_of(int error)
{
    switch (error) {
    case ECONNREFUSED:
        return RDMUX_REFUSED;
    case ETIMEDOUT:
        return RDMUX_TIMED_OUT;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
        return RDMUX_NO_MEMORY;
    default:
        return RDMUX_IO;
    }
}

enum rdmux_status rdmux_tcp_ep_open(struct rdmux_provider_ep *base,
                                    const struct rdmux_provider_ep_attr *attr)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    ep->attr = attr;
    ep->role = attr->role;
    ep->is_shared = attr->shared_socket >= 0;
    ep->lane_count = ep->is_shared || attr->data_sockets == 0 ? 1 : attr->data_sockets;
    if (ep->lane_count > TCP_SOCKETS_MAX) {
        rdmux_provider_error("tcp: %u data sockets are too many, at most %d", attr->data_sockets,
                             TCP_SOCKETS_MAX);
        return RDMUX_INVALID;
    }
    if (ep->lane_count > 1) {
        ep->lanes = rdmux_provider_allocate(fabric_of(ep), ep->lane_count * sizeof(*ep->lanes));
        if (ep->lanes == NULL) {
            rdmux_provider_error("tcp: out of memory");
            return RDMUX_NO_MEMORY;
        }
    }
    for (uint32_t i = 0; i < ep->lane_count; i++) {
        struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
        lane->ep = ep;
        lane->index = i;
        lane->fd = -1;
        rdmux_tcp_stream_clear(lane);
    }
    /* Pooled buffers: the batch, the stash (unparsed bytes of a pause or a partial control frame),
     * waiting control frames, and an early message. */
    bool may_stash = ep->is_shared || ep->lane_count > 1 || attr->srq != NULL;
    /* With failover a message that is done has been received. The end of a shared socket is that of
     * the control channel, too, and cannot wait for a receive. */
    ep->takes_early = !ep->is_shared && attr->srq == NULL && attr->has_failover == 0;
    ep->reserved = 1U + may_stash + ep->is_shared + ep->takes_early;
    enum rdmux_status status = rdmux_tcp_pool_reserve(fabric_of(ep), &rdmux_tcp_cq_of(ep)->pool,
                                                      ep->reserved);
    if (status != RDMUX_OK) {
        rdmux_provider_release(fabric_of(ep), ep->lanes);
        ep->lanes = NULL;
        return status;
    }
    if (attr->srq != NULL) {
        rdmux_tcp_credit_join(ep, (struct tcp_srq *)attr->srq);
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_tcp_ep_describe(struct rdmux_provider_ep *base, uint8_t *out, size_t *size)
{
    const struct tcp_ep *ep = rdmux_tcp_ep(base);
    if (*size < TCP_DESCRIPTION_SIZE) {
        rdmux_provider_error("tcp: connection data needs %d bytes", TCP_DESCRIPTION_SIZE);
        return RDMUX_INVALID;
    }
    struct tcp_description description = {
        .sockets = ep->lane_count,
        .answers = TCP_ANSWERS,
        .on_demand = ep->srq != NULL,
        .encrypted = rdmux_paths_are_encrypted(fabric_of(ep)),
        .early = ep->takes_early,
    };
    rdmux_tcp_description_encode(&description, out);
    *size = TCP_DESCRIPTION_SIZE;
    return RDMUX_OK;
}

/* ----------------------------------------------------------------------------------- connecting */

/* Reports an error like "tcp: data socket 1 of 2 to 192.0.2.1 port 7471: connect: ...". */
static enum rdmux_status dial_error(const struct tcp_ep *ep, uint32_t index, const char *what,
                                    int error)
{
    char address[INET6_ADDRSTRLEN] = "?";
    unsigned port = 0;
    const struct sockaddr *peer = ep->attr->peer_address;
    if (peer != NULL && peer->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, peer, sizeof(in));
        (void)inet_ntop(AF_INET, &in.sin_addr, address, sizeof(address));
        port = ntohs(in.sin_port);
    } else if (peer != NULL && peer->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, peer, sizeof(in6));
        (void)inet_ntop(AF_INET6, &in6.sin6_addr, address, sizeof(address));
        port = ntohs(in6.sin6_port);
    }
    char doing[RDMUX_TEXT_MAX];
    char text[RDMUX_TEXT_MAX];
    (void)snprintf(doing, sizeof(doing), "tcp: data socket %u of %u to %s port %u: %s", index + 1,
                   ep->lane_count, address, port, what);
    rdmux_tcp_error_text(text, sizeof(text), doing, error);
    rdmux_provider_error("%s", text);
    return status_of(error);
}

static enum rdmux_status dial_socket(struct tcp_lane *lane)
{
    struct tcp_ep *ep = lane->ep;
    const struct rdmux_provider_ep_attr *attr = ep->attr;
    if (attr->peer_address == NULL) {
        rdmux_provider_error("tcp: the peer's address is not known, there is nowhere to dial");
        return RDMUX_INVALID;
    }
    lane->fd = rdmux_socket_open(attr->peer_address->sa_family);
    if (lane->fd < 0) {
        return dial_error(ep, lane->index, "socket", errno);
    }
    rdmux_socket_use_all_ports(lane->fd);
    rdmux_tcp_socket_setup(ep, lane->fd);
    if (attr->local_address != NULL &&
        bind(lane->fd, attr->local_address, attr->local_address_length) != 0) {
        int error = errno;
        rdmux_provider_error(
            "tcp: data socket %u of %u: cannot come from the address that the control "
            "channel comes from: %s; is it still this machine's (ip address)?",
            lane->index + 1, ep->lane_count, rdmux_errno_words(error));
        return status_of(error);
    }
    if (connect(lane->fd, attr->peer_address, attr->peer_address_length) != 0 &&
        errno != EINPROGRESS) {
        return dial_error(ep, lane->index, "connect", errno);
    }
    return rdmux_tcp_watch(lane, RDMUX_READY_OUT);
}

static void lane_advance(struct tcp_lane *lane, enum tcp_lane_state next)
{
    assert((int)next == lane->state + 1);
    lane->state = (uint8_t)next;
}

/* Sends the join on a dialled socket once it is connected. IN_PROGRESS: it is not connected yet. */
static enum rdmux_status introduce_socket(struct tcp_lane *lane)
{
    struct tcp_ep *ep = lane->ep;
    struct pollfd look = { .fd = lane->fd, .events = POLLOUT };
    int error = 0;
    socklen_t size = sizeof(error);
    if (poll(&look, 1, 0) <= 0) {
        return RDMUX_IN_PROGRESS;
    }
    if (getsockopt(lane->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
    }
    if (error != 0) {
        return dial_error(ep, lane->index, "connect", error);
    }
    rdmux_tcp_socket_dialled(ep, lane->fd);
    uint8_t join[RDMUX_JOIN_SIZE];
    rdmux_provider_join(&ep->base, lane->index, join);
    ssize_t sent = send(lane->fd, join, sizeof(join), MSG_NOSIGNAL | MSG_DONTWAIT);
    rdmux_tcp_capture_join(lane, join);
    rdmux_wipe(join, sizeof(join));      /* without encryption it has the connection's secret */
    if (sent != (ssize_t)sizeof(join)) { /* a new socket has room for more bytes */
        return dial_error(ep, lane->index, "send", sent < 0 ? errno : EIO);
    }
    lane_advance(lane, TCP_LANE_JOINED);
    return rdmux_tcp_stream_begin(lane);
}

/* Takes the next step to make a socket ready. IN_PROGRESS: the socket waits, and the poller reports when
 * to continue. */
static enum rdmux_status lane_step(struct tcp_lane *lane)
{
    bool dialled = lane->state == TCP_LANE_NEW;
    enum rdmux_status status = dialled ? introduce_socket(lane) : RDMUX_OK;
    if (status == RDMUX_OK) {
        status = rdmux_tcp_stream_step(lane);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    lane_advance(lane, TCP_LANE_READY);
    lane->ep->lanes_ready++;
    /* After the last one sockets_connected() watches all. */
    bool waits = lane->ep->lanes_ready < lane->ep->lane_count && (dialled || lane->is_watched);
    return waits ? rdmux_tcp_watch(lane, RDMUX_READY_END) : RDMUX_OK;
}

/* Starts the data path, once all sockets are ready. */
static enum rdmux_status sockets_connected(struct tcp_ep *ep)
{
    for (uint32_t i = 0; i < ep->lane_count; i++) {
        uint32_t events = i == 0 ? RDMUX_READY_IN | RDMUX_READY_END : RDMUX_READY_END;
        enum rdmux_status status = rdmux_tcp_watch(rdmux_tcp_lane(ep, i), events);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    rdmux_tcp_write_state(ep, TCP_CONNECTED);
    if (ep->srq == NULL) {
        ep->given.posted = rdmux_provider_receives(&ep->base);
    }
    rdmux_tcp_heat(ep);
    rdmux_tcp_attend(ep);
    return RDMUX_OK;
}

static enum rdmux_status peer_learn(struct tcp_ep *ep, const uint8_t *peer, size_t size)
{
    struct tcp_description description;
    enum rdmux_status status = rdmux_tcp_description_decode(peer, size, &description);
    if (status != RDMUX_OK) {
        rdmux_provider_error("tcp: the peer's connection data is not of version %d", TCP_VERSION);
        return status;
    }
    if (description.sockets != ep->lane_count) {
        rdmux_provider_error("tcp: the peer has %u data sockets, %u were agreed",
                             description.sockets, ep->lane_count);
        return RDMUX_PROTOCOL;
    }
    if (description.encrypted != (uint32_t)rdmux_paths_are_encrypted(fabric_of(ep))) {
        rdmux_provider_error("tcp: %s encrypts data sockets, %s does not; use the same version on "
                             "both sides",
                             description.encrypted ? "the peer" : "this side",
                             description.encrypted ? "this side" : "the peer");
        return RDMUX_VERSION;
    }
    ep->peer_answers = description.answers < TCP_ANSWERS ? description.answers : TCP_ANSWERS;
    ep->is_peer_on_demand = description.on_demand;
    ep->takes_peer_early = description.early;
    return RDMUX_OK;
}

enum rdmux_status rdmux_tcp_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                       size_t size)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    if (ep->state == TCP_OPEN) {
        enum rdmux_status status = peer_learn(ep, peer, size);
        if (status != RDMUX_OK) {
            return status;
        }
        rdmux_tcp_write_state(ep, TCP_CONNECTING);
        if (ep->is_shared) {
            ep->lane0.fd = ep->attr->shared_socket;
            rdmux_tcp_socket_setup(ep, ep->lane0.fd);
            lane_advance(&ep->lane0, TCP_LANE_JOINED);
            status = rdmux_tcp_stream_begin(&ep->lane0);
            if (status != RDMUX_OK) {
                return status;
            }
        } else if (ep->role == RDMUX_ROLE_CONNECT) {
            for (uint32_t i = 0; i < ep->lane_count; i++) {
                status = dial_socket(rdmux_tcp_lane(ep, i));
                if (status != RDMUX_OK) {
                    return status;
                }
            }
        }
    }
    if (ep->state != TCP_CONNECTING) {
        rdmux_provider_error("tcp: the endpoint was connected already");
        return RDMUX_INVALID;
    }
    for (uint32_t i = 0; i < ep->lane_count; i++) {
        struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
        bool waits = lane->state == TCP_LANE_READY || lane->fd < 0;
        enum rdmux_status status = waits ? RDMUX_OK : lane_step(lane);
        if (status != RDMUX_OK && status != RDMUX_IN_PROGRESS) {
            return status;
        }
    }
    return ep->lanes_ready == ep->lane_count ? sockets_connected(ep) : RDMUX_IN_PROGRESS;
}

enum rdmux_status rdmux_tcp_ep_join(struct rdmux_provider_ep *base, int socket, uint32_t index)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    if (ep->role != RDMUX_ROLE_ACCEPT || ep->is_shared || index >= ep->lane_count ||
        (ep->state != TCP_OPEN && ep->state != TCP_CONNECTING) ||
        rdmux_tcp_lane(ep, index)->fd >= 0) {
        rdmux_provider_error("tcp: data socket %u of %u is not wanted", index + 1, ep->lane_count);
        return RDMUX_INVALID;
    }
    struct tcp_lane *lane = rdmux_tcp_lane(ep, index);
    lane->fd = socket;
    enum rdmux_status status = rdmux_tcp_stream_begin(lane);
    if (status != RDMUX_OK) {
        lane->fd = -1;
        return status;
    }
    rdmux_tcp_socket_setup(ep, socket);
    lane_advance(lane, TCP_LANE_JOINED); /* ep_connect continues */
    rdmux_tcp_cq_of(ep)->has_joined = true;
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------------- teardown */

/* Reads and drops the bytes that have come. A socket closed with unread bytes resets the
 * connection, and the peer would lose the bytes sent last. */
static void discard_bytes(struct tcp_ep *ep)
{
    uint8_t *waste = rdmux_tcp_cq_of(ep)->waste;
    for (uint32_t i = 0; i < ep->lane_count && !ep->is_shared; i++) {
        struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
        for (int reads = 0; lane->fd >= 0 && reads < QUIESCE_READS; reads++) {
            ep->base.system_calls++;
            if (recv(lane->fd, waste, TCP_SCRATCH_SIZE, MSG_DONTWAIT) <= 0) {
                break;
            }
        }
    }
}

/* Stops the endpoint. No request is accessed afterwards. */
static void stop_endpoint(struct tcp_ep *ep)
{
    rdmux_tcp_detach(ep);
    rdmux_tcp_write_state(ep, TCP_QUIET);
    rdmux_tcp_in_finish(ep);
    rdmux_tcp_out_finish(ep);
    ep->unplaced = (struct tcp_queue){ 0 };
    ep->unanswered = (struct tcp_queue){ 0 };
    for (uint32_t i = 0; i < ep->lane_count && !ep->is_shared; i++) {
        struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
        if (lane->fd >= 0) {
            (void)shutdown(lane->fd, SHUT_RDWR);
        }
    }
}

enum rdmux_status rdmux_tcp_ep_quiesce(struct rdmux_provider_ep *base,
                                       struct rdmux_provider_counts *counts)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    ep->is_quiescing = true;
    for (int reads = 0; ep->state == TCP_CONNECTED && reads < QUIESCE_READS; reads++) {
        if (rdmux_tcp_read(ep, SIZE_MAX) == 0) { /* all bytes that have come are delivered */
            break;
        }
    }
    if (ep->state != TCP_QUIET) {
        discard_bytes(ep);
        stop_endpoint(ep);
    }
    *counts = ep->counts;
    return RDMUX_OK;
}

void rdmux_tcp_ep_stop(struct tcp_ep *ep)
{
    if (ep->state != TCP_QUIET) {
        stop_endpoint(ep);
    }
}

void rdmux_tcp_ep_close(struct rdmux_provider_ep *base)
{
    struct tcp_ep *ep = rdmux_tcp_ep(base);
    if (ep->state != TCP_QUIET) {
        discard_bytes(ep);
        stop_endpoint(ep);
    }
    for (uint32_t i = 0; i < ep->lane_count; i++) {
        struct tcp_lane *lane = rdmux_tcp_lane(ep, i);
        rdmux_tcp_stream_end(lane);
        if (lane->fd >= 0 && ep->is_shared) {
            rdmux_tcp_socket_restore(ep, lane->fd);
        } else if (lane->fd >= 0) {
            (void)close(lane->fd);
        }
        lane->fd = -1;
    }
    rdmux_tcp_pool_unreserve(&rdmux_tcp_cq_of(ep)->pool, ep->reserved);
    rdmux_provider_release(fabric_of(ep), ep->lanes);
}
