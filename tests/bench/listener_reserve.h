/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The descriptors that a listener of rdmux keeps for set-ups, so that a program that holds as many
 * endpoints as it can leaves them. */
#ifndef RDMUX_BENCH_LISTENER_RESERVE_H
#define RDMUX_BENCH_LISTENER_RESERVE_H

#include <sys/resource.h>

/* limit: of the process's descriptors. */
static inline rlim_t listener_reserve(rlim_t limit)
{
    enum { SHARE = 4, MOST = 1536 };
    return limit / SHARE < MOST ? limit / SHARE : MOST;
}

#endif
