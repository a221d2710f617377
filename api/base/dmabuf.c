/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Dma-bufs as regions. The descriptor is checked before anything else is done with it, so that a
 * wrong one is left as it was. */
#include "api/base/dmabuf.h"

#include "api/base/error.h"
#include "api/system/system.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static enum rdmux_status duplicate(uint32_t dmabuf_fd, struct rdmux_dmabuf *out)
{
    int given = dmabuf_fd - 1 > INT_MAX ? -1 : (int)(dmabuf_fd - 1);
    out->fd = fcntl(given, F_DUPFD_CLOEXEC, 0);
    if (out->fd < 0 && errno == EBADF) {
        return rdmux_fail(RDMUX_INVALID,
                          "region: dmabuf_fd %u stands for descriptor %d, which is not open; "
                          "dmabuf_fd is 1 + the descriptor",
                          dmabuf_fd, given);
    }
    if (out->fd < 0) {
        return rdmux_fail(RDMUX_NO_MEMORY,
                          "region: no descriptor for the dma-buf: %s; raise the limit (ulimit -n)",
                          strerror(errno));
    }
    if (!rdmux_fd_is_dmabuf(out->fd)) {
        return rdmux_fail(RDMUX_INVALID,
                          "region: descriptor %d is no dma-buf; register memory of other kinds by "
                          "its address",
                          given);
    }
    return RDMUX_OK;
}

static enum rdmux_status check_span(const struct rdmux_mr_attr *attr, int fd)
{
    const uint64_t offset = attr->dmabuf_offset;
    const long page = sysconf(_SC_PAGESIZE);
    const off_t size = lseek(fd, 0, SEEK_END);
    if (offset % (uint64_t)page != 0) {
        return rdmux_fail(RDMUX_INVALID,
                          "region: dmabuf_offset %llu is no multiple of the page size, %ld bytes",
                          (unsigned long long)offset, page);
    }
    if (size < 0) {
        return rdmux_fail(RDMUX_UNSUPPORTED,
                          "region: the kernel does not tell a dma-buf's size: %s", strerror(errno));
    }
    if (offset > (uint64_t)size || attr->length > (uint64_t)size - offset) {
        return rdmux_fail(RDMUX_INVALID,
                          "region: %zu bytes from dmabuf_offset %llu on end beyond the dma-buf of "
                          "%llu bytes",
                          attr->length, (unsigned long long)offset, (unsigned long long)size);
    }
    return RDMUX_OK;
}

static enum rdmux_status map(const struct rdmux_mr_attr *attr, struct rdmux_dmabuf *out)
{
    void *addr = mmap(NULL, attr->length, PROT_READ | (out->written ? PROT_WRITE : 0), MAP_SHARED,
                      out->fd, (off_t)attr->dmabuf_offset);
    if (addr != MAP_FAILED) {
        out->addr = addr;
        out->size = attr->length;
        return RDMUX_OK;
    }
    int error = errno;
    if (error == EACCES || error == EPERM) {
        return rdmux_fail(RDMUX_INVALID,
                          "region: the dma-buf may not be %s: %s; export it with O_RDWR (DRM: "
                          "DRM_RDWR), or ask for less access",
                          out->written ? "written" : "read", strerror(error));
    }
    if (error == ENOMEM) {
        return rdmux_fail(RDMUX_NO_MEMORY, "region: cannot map %zu bytes of the dma-buf: %s",
                          attr->length, strerror(error));
    }
    return rdmux_fail(RDMUX_UNSUPPORTED,
                      "region: the dma-buf's driver does not let the processor map it: %s; paths "
                      "without an adapter need that, and any path may be the next one",
                      strerror(error));
}

static enum rdmux_status open_span(const struct rdmux_mr_attr *attr, struct rdmux_dmabuf *out)
{
    enum rdmux_status status = duplicate(attr->dmabuf_fd, out);
    if (status == RDMUX_OK) {
        status = check_span(attr, out->fd);
    }
    if (status == RDMUX_OK) {
        status = map(attr, out);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    return rdmux_dmabuf_begin(out->fd, out->written) == 0
               ? RDMUX_OK
               : rdmux_fail(RDMUX_IO,
                            "region: the dma-buf's driver refuses the processor's access: %s",
                            strerror(errno));
}

static void release(struct rdmux_dmabuf *dmabuf)
{
    if (dmabuf->addr != NULL) {
        (void)munmap(dmabuf->addr, dmabuf->size);
    }
    if (dmabuf->fd >= 0) {
        (void)close(dmabuf->fd);
    }
    *dmabuf = (struct rdmux_dmabuf){ .fd = -1 };
}

enum rdmux_status rdmux_dmabuf_open(const struct rdmux_mr_attr *attr, bool writes,
                                    struct rdmux_dmabuf *out)
{
    struct rdmux_dmabuf dmabuf = { .fd = -1, .written = writes };
    enum rdmux_status status = open_span(attr, &dmabuf);
    if (status != RDMUX_OK) {
        release(&dmabuf);
    }
    *out = dmabuf;
    return status;
}

void rdmux_dmabuf_close(struct rdmux_dmabuf *dmabuf)
{
    if (dmabuf->fd >= 0) {
        /* The mapping ends, whatever the driver says. */
        (void)rdmux_dmabuf_end(dmabuf->fd, dmabuf->written);
    }
    release(dmabuf);
}
