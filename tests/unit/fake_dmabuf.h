/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory files that pass for dma-bufs, as the kernel has none without a driver. What the library
 * asks the kernel about them is answered here: the program links with --wrap=fstatfs, --wrap=ioctl
 * and --wrap=process_vm_readv. As with a driver's pages, no other process can copy them. Included by
 * one source of a program.
 */
#ifndef RDMUX_TESTS_FAKE_DMABUF_H
#define RDMUX_TESTS_FAKE_DMABUF_H

#include <rdmux/rdmux.h>

#include <errno.h>
#include <linux/dma-buf.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

enum { FAKE_SYNCS_MAX = 16 };

static struct {
    ino_t inode; /* of the file that passes for a dma-buf */
    /* What the library asked of DMA_BUF_IOCTL_SYNC, and the errors that answer; 0: it succeeds. */
    uint64_t syncs[FAKE_SYNCS_MAX];
    size_t sync_count;
    int errors[FAKE_SYNCS_MAX];
    struct rdmux_mr *regions[2]; /* whose bytes no other process can copy; NULL: none */
} fake_dmabuf;

static inline int fake_dmabuf_create(size_t size)
{
    struct stat facts;
    int fd = memfd_create("fake-dmabuf", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(fstat(fd, &facts), 0);
    memset(&fake_dmabuf, 0, sizeof(fake_dmabuf));
    fake_dmabuf.inode = facts.st_ino;
    return fd;
}

static inline bool is_fake_dmabuf(int fd)
{
    struct stat facts;
    return fake_dmabuf.inode != 0 && fstat(fd, &facts) == 0 && facts.st_ino == fake_dmabuf.inode;
}

int __real_fstatfs(int fd, struct statfs *out);
int __wrap_fstatfs(int fd, struct statfs *out);
int __wrap_fstatfs(int fd, struct statfs *out)
{
    int result = __real_fstatfs(fd, out);
    if (result == 0 && is_fake_dmabuf(fd)) {
        out->f_type = DMA_BUF_MAGIC;
    }
    return result;
}

int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument)
{
    if (request != DMA_BUF_IOCTL_SYNC || !is_fake_dmabuf(fd)) {
        return __real_ioctl(fd, request, argument);
    }
    const struct dma_buf_sync *sync = argument;
    assert_true(fake_dmabuf.sync_count < FAKE_SYNCS_MAX);
    errno = fake_dmabuf.errors[fake_dmabuf.sync_count];
    fake_dmabuf.syncs[fake_dmabuf.sync_count++] = sync->flags;
    return errno == 0 ? 0 : -1;
}

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *ours, unsigned long our_count,
                                const struct iovec *theirs, unsigned long their_count,
                                unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *ours, unsigned long our_count,
                                const struct iovec *theirs, unsigned long their_count,
                                unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *ours, unsigned long our_count,
                                const struct iovec *theirs, unsigned long their_count,
                                unsigned long flags)
{
    for (unsigned long i = 0; i < 2 * their_count; i++) {
        const struct rdmux_mr *mr = fake_dmabuf.regions[i % 2];
        uintptr_t offset = (uintptr_t)theirs[i / 2].iov_base - (uintptr_t)rdmux_mr_addr(mr);
        if (mr != NULL && offset < rdmux_mr_length(mr)) {
            errno = EFAULT;
            return -1;
        }
    }
    return __real_process_vm_readv(pid, ours, our_count, theirs, their_count, flags);
}

#endif
