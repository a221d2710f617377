/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The socket of a listener: binding it, and accepting connections from it. A connection that is
 * accepted becomes a pending connection. If descriptors run out, a pending connection is evicted
 * for it, or it is closed.
 */
#include "api/accept/listener.h"
#include "api/accept/pending_connection.h"
#include "api/base/address.h"
#include "api/core/fabric.h"
#include "api/loop/descriptors.h"
#include "api/loop/service.h"
#include "api/session/channel_socket.h"
#include "api/system/system.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------ accepting */

/* accept4(2) may allocate the descriptor before it looks for a connection. It then also fails with
 * an empty backlog once the last descriptor is used, so an eviction leaves one descriptor free,
 * which a set-up needs. True: a connection was evicted. */
static bool out_of_descriptors(struct rdmux_listener *listener)
{
    if (rdmux_listeners_shed(
            listener->fabric,
            "out of descriptors, and its address or identity has the most connections")) {
        return true;
    }
    /* Nothing to evict: accepts the newcomer with the spare descriptor and closes it, since a full
     * backlog would wake the service thread forever. */
    int socket = -1;
    if (listener->spare_fd >= 0) {
        close(listener->spare_fd);
        socket = rdmux_socket_accept(listener->socket, NULL, NULL);
    }
    if (socket >= 0) {
        close(socket);
        rdmux_count(&listener->fabric->counts.dropped);
        if (rdmux_listener_may_tell(listener)) {
            rdmux_log(
                listener->fabric, RDMUX_LOG_WARN,
                "listener %s: descriptors run out; a connection was turned away; raise the limit "
                "with ulimit -n",
                listener->address);
        }
    } else {
        /* Another thread took the spare descriptor. */
        rdmux_service_unwatch(listener->fabric, listener->socket, &listener->watch);
        pthread_mutex_lock(&listener->fabric->lock);
        rdmux_listener_set_state(listener, RDMUX_LISTENER_RESTING);
        pthread_mutex_unlock(&listener->fabric->lock);
        rdmux_service_timer(listener->fabric, rdmux_now(listener->fabric) + RDMUX_PENDING_TIMER_NS);
    }
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return false;
}

/* Ends the rest of a listener that ran out of descriptors, once there is a spare one again. */
void rdmux_listener_watch_again(struct rdmux_listener *listener)
{
    if (listener->spare_fd < 0) {
        listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    if (listener->spare_fd >= 0 &&
        rdmux_service_watch(listener->fabric, listener->socket, RDMUX_READY_IN, &listener->watch) ==
            RDMUX_OK) {
        rdmux_listener_set_state(listener, RDMUX_LISTENER_OPEN);
    }
}

/* Keeps descriptors in reserve: a newcomer whose descriptor is in the reserve displaces a pending
 * connection and gets a lower descriptor. Returns the newcomer's descriptor. If there is nothing to
 * evict, the newcomer keeps its descriptor, so that a peer is served even if its own connections
 * use all others. */
static int keep_reserve(struct rdmux_listener *listener, int socket)
{
    if (!rdmux_descriptor_is_reserved(listener->descriptors, socket) ||
        !rdmux_listeners_shed(
            listener->fabric,
            "descriptors run short, and none has more than its address or identity")) {
        return socket;
    }
    int lower = fcntl(socket, F_DUPFD_CLOEXEC, 0);
    if (lower < 0) {
        return socket;
    }
    close(lower < socket ? socket : lower);
    return lower < socket ? lower : socket;
}

static void listener_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    (void)fabric;
    struct rdmux_listener *listener = RDMUX_CONTAINER(watch, struct rdmux_listener, watch);
    rdmux_listener_follow_descriptors(listener);
    for (int i = 0; i < RDMUX_ACCEPTS_PER_EVENT; i++) {
        struct sockaddr_storage address;
        socklen_t length = sizeof(address);
        int socket = rdmux_socket_accept(listener->socket, (struct sockaddr *)&address, &length);
        if (socket >= 0) {
            rdmux_pending_take(listener, keep_reserve(listener, socket), &address, length);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (!out_of_descriptors(listener)) {
                return;
            }
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

/* -------------------------------------------------------------------------------------- binding */

static enum rdmux_status open_listening_socket(struct rdmux_listener *listener,
                                               const struct addrinfo *address, const char *text,
                                               uint32_t backlog)
{
    assert(address != NULL); /* getaddrinfo() succeeded */
    int fd = rdmux_socket_open(address->ai_family);
    if (fd < 0) {
        return rdmux_fail(
            errno == EMFILE || errno == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO,
            "rdmux_listen: no socket to be had (errno %d); raise the limit with ulimit -n", errno);
    }
    int one = 1;
    int zero = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    rdmux_channel_socket_prepare(fd); /* each accepted socket inherits it */
    if (address->ai_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero,
                   sizeof(zero)); /* with "all addresses", IPv4 too */
    }
    if (bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, (int)backlog) != 0) {
        int error = errno;
        close(fd);
        return rdmux_fail(
            RDMUX_IO, "rdmux_listen: %s: %s", text,
            error == EADDRINUSE
                ? "the address is in use by another program; choose another port, or 0"
            : error == EADDRNOTAVAIL ? "not an address of this machine"
            : error == EACCES        ? "ports below 1024 need privileges"
                                     : strerror(error));
    }
    struct sockaddr_storage bound;
    socklen_t length = sizeof(bound);
    if (getsockname(fd, (struct sockaddr *)&bound, &length) != 0 ||
        !rdmux_address_format((struct sockaddr *)&bound, length, listener->address)) {
        close(fd);
        return rdmux_fail(RDMUX_NO_MEMORY,
                          "rdmux_listen: %s: no memory to tell the address that was bound", text);
    }
    listener->socket = fd;
    listener->watch.ready = listener_ready;
    return RDMUX_OK;
}

enum rdmux_status rdmux_listener_bind(struct rdmux_listener *listener, const char *text,
                                      uint32_t backlog)
{
    struct rdmux_address_text parts;
    enum rdmux_status status = rdmux_address_split(text, &parts);
    if (status != RDMUX_OK) {
        return status;
    }
    struct addrinfo *addresses = NULL;
    status = rdmux_address_resolve(&parts, true, false, &addresses);
    if (status != RDMUX_OK) {
        return status;
    }
    /* For all addresses: an IPv6 socket accepts IPv4 too, if the machine has IPv6. */
    const struct addrinfo *first = addresses;
    for (const struct addrinfo *at = addresses; at != NULL && parts.host[0] == '\0';
         at = at->ai_next) {
        if (at->ai_family == AF_INET6) {
            first = at;
            break;
        }
    }
    status = open_listening_socket(listener, first, text, backlog);
    for (const struct addrinfo *at = addresses; at != NULL && status != RDMUX_OK; at = at->ai_next) {
        if (at != first) {
            status = open_listening_socket(listener, at, text, backlog);
        }
    }
    freeaddrinfo(addresses);
    return status;
}
