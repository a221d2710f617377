/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The inline primitives of system.h for Linux: pollers are epoll instances, wake-ups eventfds. */
#ifndef RDMUX_API_SYSTEM_SYSTEM_LINUX_H
#define RDMUX_API_SYSTEM_SYSTEM_LINUX_H

#include "api/system/system.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* -------------------------------------------------------------------------------------- pollers */

#define RDMUX_POLLER_IS_DESCRIPTOR 1

enum {
    RDMUX_READY_IN = EPOLLIN,
    RDMUX_READY_OUT = EPOLLOUT,
    RDMUX_READY_END = EPOLLRDHUP,
    RDMUX_READY_ERROR = EPOLLERR,
    RDMUX_READY_HANGUP = EPOLLHUP,
    RDMUX_READY_ONCE = EPOLLONESHOT,
};

struct rdmux_ready {
    struct epoll_event event;
};
_Static_assert(sizeof(struct rdmux_ready) == sizeof(struct epoll_event),
               "the kernel fills an array of them");

static inline int rdmux_poller_open(void)
{
    return epoll_create1(EPOLL_CLOEXEC);
}

static inline void rdmux_poller_close(int poller)
{
    (void)close(poller);
}

static inline int rdmux_poller_add(int poller, int fd, uint32_t events, void *data)
{
    struct epoll_event event = { .events = events, .data.ptr = data };
    return epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

static inline int rdmux_poller_change(int poller, int fd, uint32_t events, void *data)
{
    struct epoll_event event = { .events = events, .data.ptr = data };
    return epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event);
}

static inline int rdmux_poller_remove(int poller, int fd)
{
    return epoll_ctl(poller, EPOLL_CTL_DEL, fd, NULL);
}

static inline int rdmux_poller_wait(int poller, struct rdmux_ready *out, int max, int timeout_ms)
{
    return epoll_wait(poller, (struct epoll_event *)(void *)out, max, timeout_ms);
}

static inline uint32_t rdmux_ready_events(const struct rdmux_ready *ready)
{
    return ready->event.events;
}

static inline void *rdmux_ready_data(const struct rdmux_ready *ready)
{
    return ready->event.data.ptr;
}

static inline void rdmux_ready_set_data(struct rdmux_ready *ready, void *data)
{
    ready->event.data.ptr = data;
}

static inline int rdmux_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    return poll(fds, count, timeout_ms);
}

/* ------------------------------------------------------------------------------------- wake-ups */

struct rdmux_wake {
    int fd;
};

static inline int rdmux_wake_open(struct rdmux_wake *wake)
{
    wake->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return wake->fd < 0 ? -1 : 0;
}

static inline void rdmux_wake_close(struct rdmux_wake *wake)
{
    if (wake->fd >= 0) {
        (void)close(wake->fd);
    }
}

static inline void rdmux_wake_signal(const struct rdmux_wake *wake)
{
    uint64_t one = 1;
    ssize_t written = write(wake->fd, &one, sizeof(one));
    (void)written; /* a full counter is readable, too */
}

static inline void rdmux_wake_drain(const struct rdmux_wake *wake)
{
    uint64_t count;
    ssize_t taken = read(wake->fd, &count, sizeof(count));
    (void)taken; /* may be empty */
}

/* ---------------------------------------------------------------------------- sockets, process */

#define RDMUX_TCP_KEEPIDLE TCP_KEEPIDLE
#define RDMUX_TCP_KEEPINTVL TCP_KEEPINTVL
#define RDMUX_TCP_KEEPCNT TCP_KEEPCNT
#define RDMUX_TCP_USER_TIMEOUT TCP_USER_TIMEOUT
#define RDMUX_TCP_CONGESTION TCP_CONGESTION

#define RDMUX_LOADS_PLUGINS 1
#define RDMUX_O_PATH O_PATH

#endif
