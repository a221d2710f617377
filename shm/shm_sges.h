/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Copies between a request's scatter/gather list and bytes in one piece. [data path] */
#ifndef RDMUX_SHM_SGES_H
#define RDMUX_SHM_SGES_H

#include <rdmux/provider.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

/* The pieces that hold bytes offset to offset + length of the request, which it has. out has room
 * for RDMUX_SGE_MAX. Returns how many. */
static inline size_t shm_sges_slice(const struct rdmux_request *request, uint64_t offset,
                                    uint64_t length, struct iovec *out)
{
    size_t count = 0;
    for (uint16_t i = 0; i < request->sge_count && length > 0; i++) {
        const struct rdmux_provider_sge *sge = &request->sges[i];
        if (offset >= sge->length) {
            offset -= sge->length;
            continue;
        }
        uint64_t here = sge->length - offset < length ? sge->length - offset : length;
        out[count].iov_base = (uint8_t *)sge->addr + offset;
        out[count].iov_len = (size_t)here;
        count++;
        length -= here;
        offset = 0;
    }
    return count;
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
    struct iovec pieces[RDMUX_SGE_MAX];
    size_t count = shm_sges_slice(request, offset, length, pieces);
    for (size_t i = 0; i < count; i++) {
        memcpy(to, pieces[i].iov_base, pieces[i].iov_len);
        to += pieces[i].iov_len;
    }
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
    struct iovec pieces[RDMUX_SGE_MAX];
    size_t count = shm_sges_slice(request, offset, length, pieces);
    for (size_t i = 0; i < count; i++) {
        memcpy(pieces[i].iov_base, from, pieces[i].iov_len);
        from += pieces[i].iov_len;
    }
}

#endif
