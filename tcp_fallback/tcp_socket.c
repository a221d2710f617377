/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Socket options of data sockets, and their place in the poller of the cq. */
#include "tcp_fallback/tcp_socket.h"

#include "api/system/system.h"
#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_lane.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* Indices into tcp_ep.options. */
enum option {
    OPTION_NODELAY,
    OPTION_KEEPALIVE,
    OPTION_KEEPIDLE,
    OPTION_KEEPINTVL,
    OPTION_KEEPCNT,
    OPTION_USER_TIMEOUT,
    OPTION_TOS,
    OPTION_TCLASS,
};

static const struct {
    int level;
    int name;
} options[TCP_OPTIONS] = {
    [OPTION_NODELAY] = { IPPROTO_TCP, TCP_NODELAY },
    [OPTION_KEEPALIVE] = { SOL_SOCKET, SO_KEEPALIVE },
    [OPTION_KEEPIDLE] = { IPPROTO_TCP, RDMUX_TCP_KEEPIDLE },
    [OPTION_KEEPINTVL] = { IPPROTO_TCP, RDMUX_TCP_KEEPINTVL },
    [OPTION_KEEPCNT] = { IPPROTO_TCP, RDMUX_TCP_KEEPCNT },
    [OPTION_USER_TIMEOUT] = { IPPROTO_TCP, RDMUX_TCP_USER_TIMEOUT },
    [OPTION_TOS] = { IPPROTO_IP, IP_TOS },
    [OPTION_TCLASS] = { IPPROTO_IPV6, IPV6_TCLASS },
};

/* Sets one option, and saves the old value of a shared socket first. AF_UNIX sockets have none of
 * these options and need none. Returns whether the option is set. */
static bool option_set(struct tcp_ep *ep, int fd, enum option which, uint32_t value)
{
    int level = options[which].level;
    int name = options[which].name;
    if (ep->is_shared) {
        socklen_t size = sizeof(ep->options[which]);
        if (getsockopt(fd, level, name, &ep->options[which], &size) != 0) {
            return false;
        }
        ep->options_set |= 1U << which;
    }
    int number = value > INT32_MAX ? INT32_MAX : (int)value;
    return setsockopt(fd, level, name, &number, sizeof(number)) == 0;
}

static bool is_loopback(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    if (address->ss_family == AF_INET) {
        return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return address->ss_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
            (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET));
}

static bool is_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    const struct sockaddr_in *a4 = (const void *)a;
    const struct sockaddr_in *b4 = (const void *)b;
    const struct sockaddr_in6 *a6 = (const void *)a;
    const struct sockaddr_in6 *b6 = (const void *)b;
    if (a->ss_family != b->ss_family) {
        return false;
    }
    return a->ss_family == AF_INET    ? a4->sin_addr.s_addr == b4->sin_addr.s_addr
           : a->ss_family == AF_INET6 ? memcmp(&a6->sin6_addr, &b6->sin6_addr, 16) == 0
                                      : false;
}

/* BBR paces a connection by the bandwidth that it has measured. Between two processes of a host
 * there is no network to protect, and BBR's timers cost a third and more of a core's throughput
 * (docs/TUNING.md). Reno sends as much as the window allows. Every kernel has it and lets every
 * user choose it. */
static bool is_paced(int fd)
{
    char name[16] = ""; /* TCP_CA_NAME_MAX */
    socklen_t size = sizeof(name) - 1;
    return getsockopt(fd, IPPROTO_TCP, RDMUX_TCP_CONGESTION, name, &size) == 0 &&
           strcmp(name, "bbr") == 0;
}

static void avoid_pacing(int fd)
{
    (void)setsockopt(fd, IPPROTO_TCP, RDMUX_TCP_CONGESTION, "reno", strlen("reno"));
}

/* The address that a socket dials. */
static struct sockaddr_storage dialled_address(const struct tcp_ep *ep)
{
    const struct rdmux_provider_ep_attr *attr = ep->attr;
    struct sockaddr_storage peer = { .ss_family = AF_UNSPEC };
    if (attr->peer_address != NULL && attr->peer_address_length <= sizeof(peer)) {
        memcpy(&peer, attr->peer_address, attr->peer_address_length);
    }
    return peer;
}

/* Before connect(), because BBR keeps its timers once it has begun. */
static void avoid_pacing_to(const struct sockaddr_storage *peer, int fd)
{
    if (is_loopback(peer) && is_paced(fd)) {
        avoid_pacing(fd);
    }
}

/* The socket is connected. */
static void avoid_pacing_between(const struct sockaddr_storage *local, int fd)
{
    struct sockaddr_storage peer = { .ss_family = AF_UNSPEC };
    socklen_t size = sizeof(peer);
    if (is_paced(fd) && getpeername(fd, (struct sockaddr *)&peer, &size) == 0 &&
        (is_loopback(&peer) || is_same_host(local, &peer))) {
        avoid_pacing(fd);
    }
}

void rdmux_tcp_socket_dialled(const struct tcp_ep *ep, int fd)
{
    const struct sockaddr_storage peer = dialled_address(ep);
    struct sockaddr_storage local = { .ss_family = AF_UNSPEC };
    socklen_t size = sizeof(local);
    if (!is_loopback(&peer) && is_paced(fd) &&
        getsockname(fd, (struct sockaddr *)&local, &size) == 0 && is_same_host(&local, &peer)) {
        avoid_pacing(fd);
    }
}

void rdmux_tcp_socket_setup(struct tcp_ep *ep, int fd)
{
    const struct rdmux_provider_ep_attr *attr = ep->attr;
    const struct tcp_domain *domain = (const struct tcp_domain *)rdmux_tcp_cq_of(ep)->base.domain;
    const bool dials = ep->role == RDMUX_ROLE_CONNECT && !ep->is_shared;
    struct sockaddr_storage address = { .ss_family = AF_UNSPEC };
    socklen_t size = sizeof(address);
    if (dials) {
        address = dialled_address(ep);
    } else {
        (void)getsockname(fd, (struct sockaddr *)&address, &size);
    }
    if (address.ss_family != AF_INET && address.ss_family != AF_INET6) {
        return;
    }
    (void)option_set(ep, fd, OPTION_NODELAY, 1);
    /* The kernel controls the two ECN bits of a TCP socket itself. It sets them if both hosts
     * agreed on ECN (net.ipv4.tcp_ecn). */
    uint32_t traffic_class = (attr->dscp & 0x3f) << 2 | (attr->ecn & 3);
    (void)option_set(ep, fd, OPTION_TOS, traffic_class);
    if (address.ss_family == AF_INET6) {
        (void)option_set(ep, fd, OPTION_TCLASS, traffic_class);
    }
    if (attr->liveness_ms != RDMUX_NEVER && attr->liveness_ms > 0) {
        uint32_t quarter_s = attr->liveness_ms / 4000;
        uint32_t idle_s = quarter_s < 1 ? 1 : quarter_s;
        bool is_set = option_set(ep, fd, OPTION_KEEPALIVE, 1) &&
                      option_set(ep, fd, OPTION_KEEPIDLE, idle_s) &&
                      option_set(ep, fd, OPTION_KEEPINTVL, idle_s) &&
                      option_set(ep, fd, OPTION_KEEPCNT, 3) &&
                      option_set(ep, fd, OPTION_USER_TIMEOUT, attr->liveness_ms);
        /* The kernel counts in whole seconds: too coarse for shorter liveness times. */
        ep->is_kept_alive = is_set && quarter_s >= 1;
    }
    if (domain->is_dctcp && !ep->is_shared && attr->ecn != 0) {
        (void)setsockopt(fd, IPPROTO_TCP, RDMUX_TCP_CONGESTION, "dctcp", strlen("dctcp"));
    } else if (dials) {
        avoid_pacing_to(&address, fd);
    } else if (!ep->is_shared) {
        avoid_pacing_between(&address, fd);
    }
}

void rdmux_tcp_socket_restore(struct tcp_ep *ep, int fd)
{
    for (uint32_t i = 0; i < TCP_OPTIONS; i++) {
        if (ep->options_set & 1U << i) {
            (void)setsockopt(fd, options[i].level, options[i].name, &ep->options[i],
                             sizeof(ep->options[i]));
        }
    }
    ep->options_set = 0;
}

enum rdmux_status rdmux_tcp_watch(struct tcp_lane *lane, uint32_t events)
{
    struct tcp_cq *cq = rdmux_tcp_cq_of(lane->ep);
    if (lane->is_watched && lane->events == events) {
        return RDMUX_OK;
    }
    lane->ep->base.system_calls++;
    if ((lane->is_watched ? rdmux_poller_change(cq->poller, lane->fd, events, lane)
                          : rdmux_poller_add(cq->poller, lane->fd, events, lane)) != 0) {
        char text[RDMUX_TEXT_MAX];
        rdmux_tcp_error_text(text, sizeof(text), "tcp: the poller does not take the data socket",
                             errno);
        rdmux_provider_error("%s", text);
        return errno == ENOMEM || errno == ENOSPC ? RDMUX_NO_MEMORY : RDMUX_IO;
    }
    cq->watched += lane->is_watched ? 0 : 1;
    lane->is_watched = true;
    lane->events = events;
    return RDMUX_OK;
}

void rdmux_tcp_unwatch(struct tcp_lane *lane)
{
    struct tcp_cq *cq = rdmux_tcp_cq_of(lane->ep);
    if (lane->is_watched) {
        (void)rdmux_poller_remove(cq->poller, lane->fd);
        lane->ep->base.system_calls++;
        lane->is_watched = false;
        lane->events = 0;
        cq->watched--;
        for (uint32_t i = cq->found_at; i < cq->found_count; i++) {
            if (rdmux_ready_data(&cq->found[i]) == lane) {
                rdmux_ready_set_data(&cq->found[i], NULL);
            }
        }
    }
}

const char rdmux_tcp_bad_buffer
    [] = "tcp: the memory of a request or region is not mapped any more; keep it "
         "until the request completes";

void rdmux_tcp_error_text(char *out, size_t size, const char *text, int error)
{
    const char *remedy = "";
    if (error == EMFILE) {
        remedy = "; raise the process's limit on descriptors (ulimit -n)";
    } else if (error == ENFILE) {
        remedy = "; raise the system's limit on descriptors (fs.file-max)";
    } else if (error == ENOSPC) {
        remedy = "; raise fs.epoll.max_user_watches";
    } else if (error == EADDRNOTAVAIL) {
        remedy = "; no local port is free (net.ipv4.ip_local_port_range)";
    } else if (error == ETIMEDOUT) {
        remedy = "; the peer's host did not answer within the liveness time";
    } else if (error == ECONNREFUSED) {
        remedy = "; nobody listens there, or a firewall refuses";
    }
    (void)snprintf(out, size, "%s: %s%s", text, rdmux_errno_words(error), remedy);
}
