/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The memory of a perf test, laid out alike on both sides: an area to send from, an area to receive
 * or be written into, and room for one control message.
 *
 * An area is a ring of slots of one message each. Without --verify the ring is small, so that a
 * test measures the path and not the caches, as other benchmarks do by reusing one buffer. Receives
 * then share slots; their contents do not matter. With --verify every in-flight message has a slot
 * of its own.
 */
#ifndef RDMUX_TOOL_PERF_MEMORY_H
#define RDMUX_TOOL_PERF_MEMORY_H

#include "protocol.h"

/* Layout derived from a request, by the same rule on both sides. */
struct perf_layout {
    uint32_t slots; /* of each area */
    uint32_t depth; /* requests in flight: the request's depth, or less where --verify would need
                       too much memory */
    uint32_t group; /* writes verified together, then acknowledged; two groups fit in an area if
                       slots > 1 */
    uint32_t receive_size; /* bytes of each receive */
    uint64_t stride;       /* bytes from slot to slot */
    uint64_t target_at;    /* offset of the second area; the first one begins at 0 */
    uint64_t control_at;   /* offset of the room for a control message */
    uint64_t length;       /* bytes of the region */
};

struct perf_layout perf_layout_of(const struct proto_perf_request *request);

struct perf_memory {
    struct rdmux_mr *mr;
    uint8_t *base;
    bool owned; /* base must be freed */
};

/* Allocates and touches a region of length bytes. On failure returns the status and leaves nothing
 * behind. */
enum rdmux_status perf_memory_open(struct rdmux_fabric *fabric, enum perf_memory_kind kind,
                                   uint64_t length, uint32_t access, struct perf_memory *out);
void perf_memory_close(struct perf_memory *memory); /* a memory that is all zero is allowed */

/* Fill and check contents by sequence number. */
void perf_pattern_fill(uint8_t *bytes, size_t length, uint64_t seed);
bool perf_pattern_matches(const uint8_t *bytes, size_t length, uint64_t seed);

/* Seeds of message `sequence` of each direction. */
static inline uint64_t perf_seed_to_server(uint64_t sequence)
{
    return 2 * sequence + 1;
}
static inline uint64_t perf_seed_to_client(uint64_t sequence)
{
    return 2 * sequence + 2;
}

#endif
