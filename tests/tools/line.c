/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A plug-in for tests: an adapter that reports a high speed, on a line that may be slow. It is the
 * toy provider with its packets on a TCP connection. RDMUX_LINE has the address of a side's own
 * end. The wire decides the bandwidth. Each packet is received RDMUX_LINE_DELAY_MS (default: 0)
 * after its receiver first found it.
 *
 * Every process may connect: use it only in networks of the test.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

/* The toy's socket keeps packets apart; here the length comes before each packet. */

static ssize_t line_send(int fd, const void *packet, size_t size, int flags)
{
    uint32_t length = (uint32_t)size;
    struct iovec pieces[] = {
        { .iov_base = &length, .iov_len = sizeof(length) },
        { .iov_base = (void *)(uintptr_t)packet, .iov_len = size },
    };
    const struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 2 };
    ssize_t sent = sendmsg(fd, &message, flags);
    if (sent >= 0 && (size_t)sent != sizeof(length) + size) {
        errno = ENOBUFS; /* the buffer holds all packets that the toy has under way */
        return -1;
    }
    return sent < 0 ? sent : (ssize_t)size;
}

enum { LINE_SOCKETS_MAX = 1024, LINE_NS_PER_MS = 1000000 };

/* When the packet at the front of each socket was found; 0: none was. */
static _Atomic uint64_t found_ns[LINE_SOCKETS_MAX];

/* Returns whether the delay of the packet at the front of the socket is over. */
static bool line_is_due(int fd)
{
    const char *delay = getenv("RDMUX_LINE_DELAY_MS");
    struct timespec now;
    if (delay == NULL || fd >= LINE_SOCKETS_MAX) {
        return true;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    const uint64_t now_ns = (uint64_t)now.tv_sec * 1000 * LINE_NS_PER_MS + (uint64_t)now.tv_nsec;
    if (found_ns[fd] == 0) {
        found_ns[fd] = now_ns;
    }
    if (now_ns - found_ns[fd] < strtoull(delay, NULL, 10) * LINE_NS_PER_MS) {
        return false;
    }
    found_ns[fd] = 0;
    return true;
}

static ssize_t line_recv(int fd, void *packet, size_t size, int flags)
{
    uint32_t length = 0;
    int there = 0;
    ssize_t got = recv(fd, &length, sizeof(length), flags | MSG_PEEK);
    if (got <= 0 && fd < LINE_SOCKETS_MAX) {
        found_ns[fd] = 0; /* of a socket that had this number before */
    }
    if (got <= 0 || length > size) {
        return got < 0 ? got : 0;
    }
    if (ioctl(fd, FIONREAD, &there) != 0 || (size_t)there < sizeof(length) + length ||
        !line_is_due(fd)) {
        errno = EAGAIN;
        return -1;
    }
    (void)recv(fd, &length, sizeof(length), flags);
    return recv(fd, packet, length, flags);
}

#define send line_send
#define recv line_recv
/* NOLINTNEXTLINE(bugprone-suspicious-include): the same program except for these two calls */
#include "../plugins/toy/toy.c"
#undef send
#undef recv

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>

enum {
    LINE_LATENCY_NS = 1000,
    SOCKET_BUFFER = 8 * sizeof(struct packet),
};
static const uint64_t line_bandwidth = UINT64_C(12500000000); /* 100 Gbit/s, says the adapter */

static bool own_address(struct sockaddr_in *out)
{
    const char *text = getenv("RDMUX_LINE");
    *out = (struct sockaddr_in){ .sin_family = AF_INET };
    return text != NULL && inet_pton(AF_INET, text, &out->sin_addr) == 1;
}

static enum rdmux_status line_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                    size_t max, size_t *count)
{
    struct sockaddr_in address;
    enum rdmux_status status = toy_probe(fabric, out, max, count);
    if (status != RDMUX_OK || max == 0) {
        return status;
    }
    out->bandwidth = line_bandwidth;
    out->latency_ns = LINE_LATENCY_NS;
    out->reason = RDMUX_REASON_USABLE;
    out->reach_length = 0;
    out->text[0] = out->hint[0] = '\0';
    (void)snprintf(out->device, sizeof(out->device), "line");
    if (!own_address(&address)) {
        out->reason = RDMUX_REASON_NO_DEVICE;
        (void)snprintf(out->text, sizeof(out->text), "RDMUX_LINE has no IPv4 address");
    }
    return RDMUX_OK;
}

static enum rdmux_reason line_reach(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                    size_t theirs_length, char *text)
{
    (void)ours;
    (void)ours_length;
    (void)theirs;
    (void)theirs_length;
    text[0] = '\0';
    return RDMUX_REASON_NONE;
}

/* -1, with errno, if there is none. */
static int make_socket(void)
{
    int one = 1;
    int size = SOCKET_BUFFER;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0 ||
                    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Makes a socket that meet() binds or connects: the acceptor's at a port of its own choice. */
static enum rdmux_status line_ep_open(struct rdmux_provider_ep *base,
                                      const struct rdmux_provider_ep_attr *attr)
{
    struct toy_ep *ep = toy_ep_of(base);
    struct sockaddr_in address;
    ep->accepts = attr->role == RDMUX_ROLE_ACCEPT;
    ep->listener = ep->socket = -1;
    if (!ep->accepts) {
        return RDMUX_OK;
    }
    int fd = make_socket();
    if (fd < 0 || !own_address(&address) ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 8) != 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
        enum rdmux_status status = system_error("listen at RDMUX_LINE");
        close(fd);
        return status;
    }
    return watch(ep, fd, &ep->listener);
}

/* The acceptor's address; the connector's is empty. */
static enum rdmux_status line_ep_describe(struct rdmux_provider_ep *base, uint8_t *out, size_t *size)
{
    const struct toy_ep *ep = toy_ep_of(base);
    struct sockaddr_in address = { 0 };
    socklen_t length = sizeof(address);
    if (ep->accepts && getsockname(ep->listener, (struct sockaddr *)&address, &length) != 0) {
        return system_error("getsockname");
    }
    memcpy(out, &address, sizeof(address));
    *size = sizeof(address);
    return RDMUX_OK;
}

/* The two sides connect at almost the same time: the connector may wait for the line. */
static enum rdmux_status dial(struct toy_ep *ep, const struct sockaddr_in *address)
{
    int fd = make_socket();
    if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
        enum rdmux_status status = system_error("connect to the other end of the line");
        close(fd);
        return status;
    }
    return watch(ep, fd, &ep->socket);
}

static enum rdmux_status line_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                         size_t size)
{
    struct toy_ep *ep = toy_ep_of(base);
    struct sockaddr_in address;
    if (!ep->accepts) {
        if (peer == NULL || size != sizeof(address)) {
            rdmux_provider_error("line: the peer runs another version of it");
            return RDMUX_PROTOCOL;
        }
        memcpy(&address, peer, sizeof(address));
        return dial(ep, &address);
    }
    int fd = accept4(ep->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        return errno == EAGAIN ? RDMUX_IN_PROGRESS : system_error("accept");
    }
    close(ep->listener);
    ep->listener = -1;
    return watch(ep, fd, &ep->socket);
}

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

const struct rdmux_plugin *rdmux_plugin(void)
{
    static struct rdmux_provider_ops line_provider;
    static const struct rdmux_provider_ops *const providers[] = { &line_provider };
    static const struct rdmux_plugin plugin = {
        .abi = RDMUX_PROVIDER_ABI,
        .count = 1,
        .providers = providers,
    };
    line_provider = toy_provider;
    line_provider.name = "line";
    line_provider.probe = line_probe;
    line_provider.reach = line_reach;
    line_provider.ep_open = line_ep_open;
    line_provider.ep_describe = line_ep_describe;
    line_provider.ep_connect = line_ep_connect;
    return &plugin;
}
