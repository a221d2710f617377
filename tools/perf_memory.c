/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "perf_memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    FOOTPRINT = 16 << 10, /* bytes of an area without --verify; at least one slot */
    VERIFY_AREA_MAX = PROTO_PERF_SIZE_MAX,
    PAGE = 4096,
};

struct perf_layout perf_layout_of(const struct proto_perf_request *request)
{
    struct perf_layout layout = { .depth = request->depth };
    uint64_t size = request->size > PROTO_CONTROL_MAX ? request->size : PROTO_CONTROL_MAX;
    layout.stride = (size + 63) & ~UINT64_C(63);
    if (request->test == PERF_LATENCY) {
        layout.slots = 1;
        layout.depth = 1;
    } else {
        uint64_t slots = (request->verify ? VERIFY_AREA_MAX : FOOTPRINT) / layout.stride;
        slots = slots > request->depth ? request->depth : slots;
        layout.slots = slots < 1 ? 1 : (uint32_t)slots;
        layout.depth = request->verify ? layout.slots : request->depth;
    }
    layout.group = layout.slots > 1 ? layout.slots / 2 : 1;
    layout.receive_size = perf_op_sends(request->op) ? (uint32_t)layout.stride : PROTO_CONTROL_MAX;
    layout.target_at = (layout.slots * layout.stride + PAGE - 1) / PAGE * PAGE;
    layout.control_at = 2 * layout.target_at;
    layout.length = layout.control_at + PAGE;
    return layout;
}

enum rdmux_status perf_memory_open(struct rdmux_fabric *fabric, enum perf_memory_kind kind,
                                   uint64_t length, uint32_t access, struct perf_memory *out)
{
    struct perf_memory memory = { .owned = kind == PERF_REGISTERED };
    enum rdmux_status status = RDMUX_OK;
    if (memory.owned) {
        void *bytes = NULL;
        if (posix_memalign(&bytes, PAGE, length) != 0) {
            return RDMUX_NO_MEMORY;
        }
        memory.base = bytes;
        status = rdmux_mr_register(fabric, memory.base, length, access, &memory.mr);
        if (status != RDMUX_OK) {
            free(bytes);
            return status;
        }
    } else {
        status = rdmux_mr_alloc(fabric, length, access, &memory.mr);
        if (status != RDMUX_OK) {
            return status;
        }
        memory.base = rdmux_mr_addr(memory.mr);
    }
    memset(memory.base, 0, length);
    *out = memory;
    return RDMUX_OK;
}

void perf_memory_close(struct perf_memory *memory)
{
    rdmux_mr_deregister(memory->mr);
    if (memory->owned) {
        free(memory->base);
    }
    *memory = (struct perf_memory){ 0 };
}

static uint64_t pattern_word(uint64_t seed, uint64_t index)
{
    return seed * UINT64_C(0x9e3779b97f4a7c15) + index * UINT64_C(0xbf58476d1ce4e5b9);
}

void perf_pattern_fill(uint8_t *bytes, size_t length, uint64_t seed)
{
    size_t words = length / 8;
    for (size_t i = 0; i < words; i++) {
        uint64_t word = pattern_word(seed, i);
        memcpy(bytes + 8 * i, &word, 8);
    }
    uint64_t last = pattern_word(seed, words);
    memcpy(bytes + 8 * words, &last, length % 8);
}

bool perf_pattern_matches(const uint8_t *bytes, size_t length, uint64_t seed)
{
    size_t words = length / 8;
    uint64_t difference = 0;
    for (size_t i = 0; i < words; i++) {
        uint64_t word = 0;
        memcpy(&word, bytes + 8 * i, 8);
        difference |= word ^ pattern_word(seed, i);
    }
    uint64_t last = pattern_word(seed, words);
    return difference == 0 && memcmp(bytes + 8 * words, &last, length % 8) == 0;
}
