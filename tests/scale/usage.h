/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What a process holds: memory, descriptors, mappings, threads. */
#ifndef RDMUX_TESTS_SCALE_USAGE_H
#define RDMUX_TESTS_SCALE_USAGE_H

#include <rdmux/rdmux.h>

#include <stdint.h>

struct usage {
    int64_t library_bytes; /* allocated by fabrics that have the hooks of usage_count_memory() */
    int64_t library_blocks;
    int64_t resident_bytes; /* private memory */
    int64_t shared_bytes;   /* shared memory that this process has touched */
    int64_t descriptors;
    int64_t mappings; /* of all kinds; vm.max_map_count bounds them */
    int64_t shared_mappings;
    int64_t threads;
};

/* Sets the memory hooks, so that usage_read() knows the blocks of all fabrics with them. */
void usage_count_memory(struct rdmux_fabric_attr *attr);

/* Ends the process if the system does not report it. Its own descriptor is not counted. */
struct usage usage_read(void);

/* The processor time of this process, in seconds. */
double usage_processor_seconds(void);

/* Raises the soft limit of descriptors to the hard one, and returns it. */
uint64_t usage_raise_descriptors(void);

#endif
