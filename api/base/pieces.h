/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Parts of scatter/gather lists, and copies between lists and contiguous bytes. [data path] */
#ifndef RDMUX_API_BASE_PIECES_H
#define RDMUX_API_BASE_PIECES_H

#include <rdmux/provider.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

/*
 * Walks a list in search of `*length` bytes from byte `*offset` on; one call for each entry, of
 * `size` bytes, until `*length` is 0. Returns how many of the bytes are in this entry, from its byte
 * `*at` on, and takes them off `*length`. 0: the bytes begin behind this entry.
 */
static inline uint64_t rdmux_piece_step(uint64_t size, uint64_t *offset, uint64_t *length,
                                        uint64_t *at)
{
    if (*offset >= size) {
        *offset -= size;
        return 0;
    }
    uint64_t here = size - *offset < *length ? size - *offset : *length;
    *at = *offset;
    *offset = 0;
    *length -= here;
    return here;
}

/* Finds the pieces of the request's list that hold `length` bytes from byte `offset` on. `out` has
 * room for RDMUX_SGE_MAX pieces. Returns the number of pieces. */
static inline size_t rdmux_pieces(const struct rdmux_request *request, uint64_t offset,
                                  uint64_t length, struct iovec *out)
{
    size_t count = 0;
    for (uint16_t i = 0; i < request->sge_count && length > 0; i++) {
        const struct rdmux_provider_sge *sge = &request->sges[i];
        uint64_t at = 0;
        uint64_t here = rdmux_piece_step(sge->length, &offset, &length, &at);
        if (here != 0) {
            out[count].iov_base = (uint8_t *)sge->addr + at;
            out[count].iov_len = (size_t)here;
            count++;
        }
    }
    return count;
}

/* Makes a list of `length` bytes of the request from byte `offset` on, with the regions of the
 * request's list. `out` has room for RDMUX_SGE_MAX entries. Returns the number of entries. */
static inline uint16_t rdmux_slice(const struct rdmux_request *request, uint64_t offset,
                                   uint64_t length, struct rdmux_provider_sge *out)
{
    uint16_t count = 0;
    for (size_t i = 0; i < request->sge_count && length > 0; i++) {
        const struct rdmux_provider_sge *sge = &request->sges[i];
        uint64_t at = 0;
        uint64_t here = rdmux_piece_step(sge->length, &offset, &length, &at);
        if (here != 0) {
            out[count] = (struct rdmux_provider_sge){ .addr = (uint8_t *)sge->addr + at,
                                                      .length = here,
                                                      .mr = sge->mr };
            count++;
        }
    }
    return count;
}

/* Copies `length` bytes of a list, from its byte `offset` on, to `to`; and from `from` into the
 * list. Bytes beyond the list's end are left out. */
void rdmux_gather_list(const struct rdmux_provider_sge *sges, size_t count, uint64_t offset,
                       void *to, uint64_t length);
void rdmux_scatter_list(const struct rdmux_provider_sge *sges, size_t count, uint64_t offset,
                        const void *from, uint64_t length);

/* The same for a list that holds all these bytes. Most lists have one entry. */
static inline void rdmux_gather(const struct rdmux_provider_sge *sges, size_t count,
                                uint64_t offset, void *to, uint64_t length)
{
    if (length == 0) {
        return;
    }
    if (count == 1) {
        memcpy(to, (const uint8_t *)sges[0].addr + offset, (size_t)length);
        return;
    }
    rdmux_gather_list(sges, count, offset, to, length);
}

static inline void rdmux_scatter(const struct rdmux_provider_sge *sges, size_t count,
                                 uint64_t offset, const void *from, uint64_t length)
{
    if (length == 0) {
        return;
    }
    if (count == 1) {
        memcpy((uint8_t *)sges[0].addr + offset, from, (size_t)length);
        return;
    }
    rdmux_scatter_list(sges, count, offset, from, length);
}

#endif
