/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Descriptor limit and reserve. RLIMIT_NOFILE (the soft limit) bounds the descriptors of a process,
 * and each connection that a listener takes uses one. The highest quarter of the numbers, at most
 * RDMUX_RESERVE_MAX, is a reserve that pending connections do not get. The kernel gives out the
 * lowest free number, so a number within the reserve means that all below it are in use. The
 * reserve is for endpoint set-up: sockets, wake-ups, pollers, memory.
 */
#ifndef RDMUX_API_LOOP_DESCRIPTORS_H
#define RDMUX_API_LOOP_DESCRIPTORS_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    /* Descriptors of one endpoint in set-up, besides those of its cq. */
    RDMUX_SETUP_DESCRIPTORS = 4,
    RDMUX_RESERVE_SHARE = 4, /* divisor of the limit that gives the reserve */
    RDMUX_RESERVE_MAX = 256 * RDMUX_SETUP_DESCRIPTORS,
};

struct rdmux_descriptor_limit {
    uint32_t all;     /* current limit of the process */
    uint32_t reserve; /* the highest numbers, for peers in set-up */
};
struct rdmux_descriptor_limit rdmux_descriptor_limit(void);
/* Returns whether this number is in the reserve. */
static inline bool rdmux_descriptor_is_reserved(struct rdmux_descriptor_limit limit, int fd)
{
    return (uint32_t)fd >= limit.all - limit.reserve;
}

/* Makes room before a set-up opens descriptors. If few are left, drops pending connections (the
 * fabric's shed hook). The hook takes step_lock, so the caller holds no other lock of the fabric,
 * except claim.lock within a slice. Any thread, not on the data path. */
void rdmux_descriptors_make_room(struct rdmux_fabric *fabric);
/* Drops pending connections after a call has failed with this errno for lack of descriptors or
 * memory. Returns true if another try makes sense. Locks as above. */
bool rdmux_descriptors_retry(struct rdmux_fabric *fabric, int error);

#endif
