/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the objects of this process take of its RDMA adapter. adapter_sim.c asks the simulated
 * adapter; adapter_none.c knows of none. */
#ifndef RDMUX_TESTS_SCALE_ADAPTER_H
#define RDMUX_TESTS_SCALE_ADAPTER_H

#include <stdbool.h>
#include <stdint.h>

struct adapter_use {
    uint64_t queue_pairs;
    uint64_t send_entries;
    uint64_t receive_entries;
    uint64_t completion_queues;
    uint64_t completion_entries;
    uint64_t regions;
    uint64_t region_bytes;
    uint64_t requests; /* packets of requests sent so far */
};

/* False: there is no adapter that tells. */
bool adapter_read(struct adapter_use *out);

#endif
