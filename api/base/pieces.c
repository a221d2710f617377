/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Copies between scatter/gather lists and contiguous bytes. */
#include "api/base/pieces.h"

#include <stdbool.h>

static inline void copy_list(const struct rdmux_provider_sge *sges, size_t count, uint64_t offset,
                             uint8_t *bytes, uint64_t length, bool into_list)
{
    for (size_t i = 0; i < count && length > 0; i++) {
        uint64_t at = 0;
        uint64_t here = rdmux_piece_step(sges[i].length, &offset, &length, &at);
        if (here != 0) {
            uint8_t *piece = (uint8_t *)sges[i].addr + at;
            memcpy(into_list ? piece : bytes, into_list ? bytes : piece, (size_t)here);
            bytes += here;
        }
    }
}

void rdmux_gather_list(const struct rdmux_provider_sge *sges, size_t count, uint64_t offset,
                       void *to, uint64_t length)
{
    copy_list(sges, count, offset, to, length, false);
}

void rdmux_scatter_list(const struct rdmux_provider_sge *sges, size_t count, uint64_t offset,
                        const void *from, uint64_t length)
{
    copy_list(sges, count, offset, (uint8_t *)(uintptr_t)from, length, true);
}
