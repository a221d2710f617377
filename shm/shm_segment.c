/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Memory that two processes share: sealed memory files. They are checked before they are mapped, so
 * a peer can neither remove pages of a mapping nor make this process read beyond them. */
#include "shm_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { REGIONS_SIZE = SHM_REGION_COUNT * sizeof(struct shm_region) };
static_assert(REGIONS_SIZE % SHM_PAGE == 0, "whole pages");

static enum rdmux_status no_memory_for(const char *what, int error)
{
    const char *remedy = error == EMFILE  ? "; raise the limit on open files"
                         : error == EFBIG ? "; raise the limit on file sizes (ulimit -f)"
                                          : "";
    rdmux_provider_error("shm: no memory for %s: errno %d%s", what, error, remedy);
    return RDMUX_NO_MEMORY;
}

/* As ftruncate(), but checks RLIMIT_FSIZE first. The limit holds for memory files, too, and to
 * exceed it raises SIGXFSZ, which ends the process. */
static int set_segment_size(int fd, size_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        size > limit.rlim_cur) {
        errno = EFBIG;
        return -1;
    }
    return ftruncate(fd, (off_t)size);
}

/* Returns whether fd is a memory file of ordinary pages that cannot shrink. Then no access to its
 * first `length` bytes can raise SIGBUS. A file of huge pages can raise it: any process that has
 * the file can punch a hole, and the next access there takes a page from a pool that may be empty.
 * F_GET_SEALS comes first, as it succeeds only on memory files. The other calls would ask the file
 * system of any other file, which could make this thread wait (FUSE). */
static bool is_lasting_memory(int fd, uint64_t length)
{
    struct statfs system;
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstatfs(fd, &system) == 0 &&
           system.f_type == TMPFS_MAGIC && fstat(fd, &info) == 0 && length != 0 &&
           length <= SIZE_MAX && (uint64_t)info.st_size >= length;
}

static enum rdmux_status create_segment(const char *name, size_t size, void **out, int *out_fd)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return no_memory_for(name, errno);
    }
    void *base = MAP_FAILED;
    if (set_segment_size(fd, size) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
        base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (base == MAP_FAILED) {
        enum rdmux_status status = no_memory_for(name, errno);
        (void)close(fd);
        return status;
    }
    *out = base;
    *out_fd = fd;
    return RDMUX_OK;
}

enum rdmux_status rdmux_shm_memory_map(int fd, uint64_t length, bool writable, uint8_t **out)
{
    if (!is_lasting_memory(fd, length)) {
        rdmux_provider_error(
            "shm: the peer passed memory that is too short, could shrink, or has huge "
            "pages");
        return RDMUX_PROTOCOL;
    }
    void *base = mmap(NULL, (size_t)length, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                      MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        return no_memory_for("a mapping of the peer's", errno);
    }
    /* A forked child has no use for the mapping, and the peer's pages should end with this
     * process. */
    (void)madvise(base, (size_t)length, MADV_DONTFORK);
    *out = base;
    return RDMUX_OK;
}

void rdmux_shm_memory_unmap(uint8_t *base, uint64_t length)
{
    if (base != NULL) {
        (void)munmap(base, (size_t)length);
    }
}

bool rdmux_shm_memory_seal(int fd)
{
    enum { ONE_BYTE = 1 };
    int seals = fcntl(fd, F_GET_SEALS);
    bool sealed = seals >= 0 && ((seals & F_SEAL_SHRINK) != 0 ||
                                 fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return sealed && is_lasting_memory(fd, ONE_BYTE);
}

enum rdmux_status rdmux_shm_segment_create(struct shm_segment **out, int *fd)
{
    void *base = NULL;
    enum rdmux_status status = create_segment("rdmux segment", sizeof(struct shm_segment), &base,
                                              fd);
    if (status != RDMUX_OK) {
        return status;
    }
    if (fcntl(*fd, F_ADD_SEALS, F_SEAL_SEAL) != 0) {
        status = no_memory_for("a sealed segment", errno);
        (void)munmap(base, sizeof(struct shm_segment));
        (void)close(*fd);
        return status;
    }
    struct shm_segment *segment = base;
    segment->magic = SHM_SEGMENT_MAGIC;
    segment->size = sizeof(*segment);
    *out = segment;
    return RDMUX_OK;
}

enum rdmux_status rdmux_shm_segment_map(int fd, struct shm_segment **out)
{
    uint8_t *base = NULL;
    enum rdmux_status status = rdmux_shm_memory_map(fd, sizeof(struct shm_segment), true, &base);
    if (status != RDMUX_OK) {
        return status;
    }
    struct shm_segment *segment = (struct shm_segment *)(void *)base;
    if (segment->magic != SHM_SEGMENT_MAGIC || segment->size != sizeof(*segment)) {
        rdmux_provider_error("shm: the peer's segment is of another version");
        rdmux_shm_memory_unmap(base, sizeof(*segment));
        return RDMUX_VERSION;
    }
    *out = segment;
    return RDMUX_OK;
}

void rdmux_shm_segment_unmap(struct shm_segment *segment)
{
    if (segment != NULL) {
        (void)munmap(segment, sizeof(*segment));
    }
}

enum rdmux_status rdmux_shm_ready_create(struct shm_ready **out, int *fd)
{
    void *base = NULL;
    enum rdmux_status status = create_segment("rdmux ready set", SHM_PAGE, &base, fd);
    if (status != RDMUX_OK) {
        return status;
    }
    struct shm_ready *ready = base;
    ready->magic = SHM_READY_MAGIC;
    ready->size = sizeof(*ready);
    *out = ready;
    return RDMUX_OK;
}

enum rdmux_status rdmux_shm_ready_map(int fd, struct shm_ready **out)
{
    uint8_t *base = NULL;
    enum rdmux_status status = rdmux_shm_memory_map(fd, SHM_PAGE, true, &base);
    if (status != RDMUX_OK) {
        return status;
    }
    struct shm_ready *ready = (struct shm_ready *)(void *)base;
    if (ready->magic != SHM_READY_MAGIC || ready->size != sizeof(*ready)) {
        rdmux_provider_error("shm: the peer's ready set is of another version");
        rdmux_shm_memory_unmap(base, SHM_PAGE);
        return RDMUX_VERSION;
    }
    *out = ready;
    return RDMUX_OK;
}

void rdmux_shm_ready_unmap(struct shm_ready *ready)
{
    if (ready != NULL) {
        (void)munmap(ready, SHM_PAGE);
    }
}

enum rdmux_status rdmux_shm_regions_create(struct shm_region **out, int *fd)
{
    void *base = NULL;
    enum rdmux_status status = create_segment("rdmux regions", REGIONS_SIZE, &base, fd);
    if (status != RDMUX_OK) {
        return status;
    }
    /* Our mapping stays writable, and no other can become writable: one peer cannot forge words
     * that another reads. Kernels before 5.1 lack the seal; there only peers that follow the
     * protocol leave the table alone. */
    (void)fcntl(*fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    *out = base;
    return RDMUX_OK;
}

enum rdmux_status rdmux_shm_regions_map(int fd, const struct shm_region **out)
{
    uint8_t *base = NULL;
    enum rdmux_status status = rdmux_shm_memory_map(fd, REGIONS_SIZE, false, &base);
    if (status == RDMUX_OK) {
        *out = (const struct shm_region *)(const void *)base;
    }
    return status;
}

void rdmux_shm_regions_unmap(const struct shm_region *regions)
{
    if (regions != NULL) {
        (void)munmap((void *)(uintptr_t)regions, REGIONS_SIZE);
    }
}
