/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Descriptors. A process may have so many (RLIMIT_NOFILE, the soft limit), and each connection that a listener
 * takes uses one. The highest quarter of the numbers is a reserve that strangers do not get: the kernel gives out the lowest
 * number that is free, so one within the reserve tells that all below are in use. The reserve is for set-ups and what they need:
 * sockets, eventfds, epolls, memory.
 */
#ifndef RDMUX_API_LOOP_DESCRIPTORS_H
#define RDMUX_API_LOOP_DESCRIPTORS_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    RDMUX_SETUP_DESCRIPTORS = 4, /* of one endpoint in set-up, beside those of its cq */
    RDMUX_RESERVE_SHARE = 4,     /* of the limit, the reserve is one part */
    RDMUX_RESERVE_MAX = 256 * RDMUX_SETUP_DESCRIPTORS,
};

struct rdmux_descriptor_limit {
    uint32_t all;     /* that the process may have now */
    uint32_t reserve; /* the highest ones, for peers that are set up */
};
struct rdmux_descriptor_limit rdmux_descriptor_limit(void);
/* Is this number in the reserve? */
static inline bool rdmux_descriptor_is_reserved(struct rdmux_descriptor_limit limit, int fd)
{
    return (uint32_t)fd >= limit.all - limit.reserve;
}

/* A set-up is about to open some: connections that nobody has taken go (the fabric's shed hook) if few are left. Any thread
 * that holds no lock of the fabric's but step_lock. Not on the data path. */
void rdmux_descriptors_make_room(struct rdmux_fabric *fabric);
/* The same after a call has failed with this errno. True: it is worth another try. */
bool rdmux_descriptors_retry(struct rdmux_fabric *fabric, int error);

#endif
