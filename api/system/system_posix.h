/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The inline primitives of system.h with POSIX calls and poll(2) alone: pollers are sets in the
 * memory of this process (poller_posix.c), wake-ups pipes. */
#ifndef RDMUX_API_SYSTEM_SYSTEM_POSIX_H
#define RDMUX_API_SYSTEM_SYSTEM_POSIX_H

#include "api/system/system.h"

#include <fcntl.h>
#include <unistd.h>

/* -------------------------------------------------------------------------------------- pollers */

#define RDMUX_POLLER_IS_DESCRIPTOR 0

enum {
    RDMUX_READY_IN = 1 << 0,
    RDMUX_READY_OUT = 1 << 1,
    RDMUX_READY_END = 1 << 2,
    RDMUX_READY_ERROR = 1 << 3,
    RDMUX_READY_HANGUP = 1 << 4,
    RDMUX_READY_ONCE = 1 << 5,
};

struct rdmux_ready {
    void *data;
    uint32_t events;
};

int rdmux_posix_poller_open(void);
void rdmux_posix_poller_close(int poller);
int rdmux_posix_poller_set(int poller, int fd, uint32_t events, void *data, bool may_add);
int rdmux_posix_poller_remove(int poller, int fd);
int rdmux_posix_poller_wait(int poller, struct rdmux_ready *out, int max, int timeout_ms);
int rdmux_posix_poll(struct pollfd *fds, nfds_t count, int timeout_ms);

static inline int rdmux_poller_open(void)
{
    return rdmux_posix_poller_open();
}

static inline void rdmux_poller_close(int poller)
{
    rdmux_posix_poller_close(poller);
}

static inline int rdmux_poller_add(int poller, int fd, uint32_t events, void *data)
{
    return rdmux_posix_poller_set(poller, fd, events, data, true);
}

static inline int rdmux_poller_change(int poller, int fd, uint32_t events, void *data)
{
    return rdmux_posix_poller_set(poller, fd, events, data, false);
}

static inline int rdmux_poller_remove(int poller, int fd)
{
    return rdmux_posix_poller_remove(poller, fd);
}

static inline int rdmux_poller_wait(int poller, struct rdmux_ready *out, int max, int timeout_ms)
{
    return rdmux_posix_poller_wait(poller, out, max, timeout_ms);
}

static inline uint32_t rdmux_ready_events(const struct rdmux_ready *ready)
{
    return ready->events;
}

static inline void *rdmux_ready_data(const struct rdmux_ready *ready)
{
    return ready->data;
}

static inline void rdmux_ready_set_data(struct rdmux_ready *ready, void *data)
{
    ready->data = data;
}

static inline int rdmux_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    return rdmux_posix_poll(fds, count, timeout_ms);
}

/* ------------------------------------------------------------------------------------- wake-ups */

struct rdmux_wake {
    int fd;        /* the end of a pipe to read from */
    int signal_fd; /* the end to write to */
};

int rdmux_posix_wake_open(struct rdmux_wake *wake);

static inline int rdmux_wake_open(struct rdmux_wake *wake)
{
    return rdmux_posix_wake_open(wake);
}

static inline void rdmux_wake_close(struct rdmux_wake *wake)
{
    if (wake->fd >= 0) {
        (void)close(wake->fd);
        (void)close(wake->signal_fd);
    }
}

static inline void rdmux_wake_signal(const struct rdmux_wake *wake)
{
    ssize_t written = write(wake->signal_fd, "", 1);
    (void)written; /* a full pipe is readable, too */
}

static inline void rdmux_wake_drain(const struct rdmux_wake *wake)
{
    char waste[256];
    while (read(wake->fd, waste, sizeof(waste)) == (ssize_t)sizeof(waste)) {
        /* there may be more */
    }
}

/* ---------------------------------------------------------------------------- sockets, process */

#define RDMUX_TCP_KEEPIDLE (-1)
#define RDMUX_TCP_KEEPINTVL (-1)
#define RDMUX_TCP_KEEPCNT (-1)
#define RDMUX_TCP_USER_TIMEOUT (-1)
#define RDMUX_TCP_CONGESTION (-1)

#define RDMUX_LOADS_PLUGINS 0
#define RDMUX_O_PATH O_RDONLY

#endif
