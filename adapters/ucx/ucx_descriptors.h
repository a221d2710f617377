/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Close-on-exec for UCX's descriptors. */
#ifndef RDMUX_ADAPTERS_UCX_DESCRIPTORS_H
#define RDMUX_ADAPTERS_UCX_DESCRIPTORS_H

#include <stddef.h>

/*
 * UCX 1.13 opens its sockets, pipes and epoll sets without close-on-exec, so each program that the
 * process starts would inherit them, with the peers' connections. Nothing of UCX changes that, and
 * whoever sets the flag later comes too late for another thread's fork(). This function enters calls
 * that set it into UCX's libraries' own tables of the functions that they import. Only UCX's calls
 * are concerned. Call it once, right after UCX was loaded, while no thread is within it. Returns the
 * number of entries: 0 on a processor whose tables it does not know.
 */
size_t rdmux_ucx_close_on_exec(void);

#endif
