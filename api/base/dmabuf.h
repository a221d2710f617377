/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The memory of a dma-buf, a buffer of a device's driver that several devices share (Linux:
 * Documentation/driver-api/dma-buf.rst), as a region: mapped, and held by a descriptor of its
 * own. */
#ifndef RDMUX_API_BASE_DMABUF_H
#define RDMUX_API_BASE_DMABUF_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>

struct rdmux_dmabuf {
    int fd;       /* the library's own; -1: no dma-buf */
    void *addr;   /* the first byte of the region */
    size_t size;  /* bytes mapped */
    bool written; /* the CPU's access, which began at rdmux_dmabuf_open(), writes */
};

/* Maps attr->length bytes of attr->dmabuf_fd from attr->dmabuf_offset on, and begins the CPU's
 * access to them, which waits for devices that are at work on them. writes: the access may write.
 * The errors are those of rdmux_mr_create(). */
enum rdmux_status rdmux_dmabuf_open(const struct rdmux_mr_attr *attr, bool writes,
                                    struct rdmux_dmabuf *out);
/* Ends the CPU's access and the mapping. Does nothing without a dma-buf. */
void rdmux_dmabuf_close(struct rdmux_dmabuf *dmabuf);

#endif
