/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shows the counts of a fabric's endpoints to other processes of its user, in a file. */
#ifndef RDMUX_API_OBJECT_SHARED_STATS_H
#define RDMUX_API_OBJECT_SHARED_STATS_H

#include "api/core/fabric.h"

/* Begins to share. A folder or file that cannot be had is a line of the log, and nothing is
 * shared. RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_shared_stats_open(struct rdmux_fabric *fabric);
/* Writes the file, and asks the owners of the cqs for the next counts. Returns the time of the next
 * call; UINT64_MAX: never. step_lock is held. */
uint64_t rdmux_shared_stats_timer(struct rdmux_fabric *fabric, uint64_t now_ns);
/* Removes the file. No cq is left. */
void rdmux_shared_stats_close(struct rdmux_fabric *fabric);

#endif
