/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Copies between a request's scatter/gather list and contiguous bytes. [data path] */
#ifndef RDMUX_SHM_SGES_H
#define RDMUX_SHM_SGES_H

#include "shm_layout.h"

#include "api/base/pieces.h"

#include <rdmux/provider.h>

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

/* memcpy() of at most SHM_BODY_SIZE bytes, without a call: copies overlapping pieces. */
static inline void shm_copy_small(uint8_t *to, const uint8_t *from, size_t length)
{
    enum { PIECE = 16, WORD = sizeof(uint64_t) };
    struct {
        uint8_t bytes[PIECE];
    } first, middle, last;
    static_assert(SHM_BODY_SIZE <= 3 * PIECE, "three pieces are all");
    if (length == WORD) {
        memcpy(to, from, WORD);
    } else if (length > PIECE) {
        memcpy(&first, from, PIECE);
        memcpy(&last, from + length - PIECE, PIECE);
        if (length > 2 * (size_t)PIECE) {
            memcpy(&middle, from + PIECE, PIECE);
            memcpy(to + PIECE, &middle, PIECE);
        }
        memcpy(to, &first, PIECE);
        memcpy(to + length - PIECE, &last, PIECE);
    } else if (length > WORD) {
        uint64_t low;
        uint64_t high;
        memcpy(&low, from, WORD);
        memcpy(&high, from + length - WORD, WORD);
        memcpy(to, &low, WORD);
        memcpy(to + length - WORD, &high, WORD);
    } else {
        for (size_t i = 0; i < length; i++) {
            to[i] = from[i];
        }
    }
}

/* Out of line, as their lists are on the stack. */
static __attribute__((noinline, unused)) void shm_sges_gather_list(
    const struct rdmux_request *request, uint64_t offset, uint8_t *to, uint64_t length)
{
    struct iovec pieces[RDMUX_SGE_MAX];
    size_t count = rdmux_pieces(request, offset, length, pieces);
    for (size_t i = 0; i < count; i++) {
        memcpy(to, pieces[i].iov_base, pieces[i].iov_len);
        to += pieces[i].iov_len;
    }
}

static __attribute__((noinline, unused)) void shm_sges_scatter_list(
    const struct rdmux_request *request, uint64_t offset, const uint8_t *from, uint64_t length)
{
    struct iovec pieces[RDMUX_SGE_MAX];
    size_t count = rdmux_pieces(request, offset, length, pieces);
    for (size_t i = 0; i < count; i++) {
        memcpy(pieces[i].iov_base, from, pieces[i].iov_len);
        from += pieces[i].iov_len;
    }
}

/* Copies length bytes of the request, from offset, to `to`. */
static inline void shm_sges_gather(const struct rdmux_request *request, uint64_t offset,
                                   uint8_t *to, uint64_t length)
{
    if (length == 0) {
        return;
    }
    if (request->sge_count == 1) {
        memcpy(to, (const uint8_t *)request->sges[0].addr + offset, (size_t)length);
        return;
    }
    shm_sges_gather_list(request, offset, to, length);
}

/* Copies length bytes from `from` into the request's buffers, at offset. */
static inline void shm_sges_scatter(const struct rdmux_request *request, uint64_t offset,
                                    const uint8_t *from, uint64_t length)
{
    if (length == 0) {
        return;
    }
    if (request->sge_count == 1) {
        memcpy((uint8_t *)request->sges[0].addr + offset, from, (size_t)length);
        return;
    }
    shm_sges_scatter_list(request, offset, from, length);
}

#endif
