/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The primitives of system.h for Linux. memory_linux.c has rdmux_memory_fault(). */
#include "api/system/system.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/dma-buf.h>
#include <linux/magic.h>
#include <linux/membarrier.h>
#include <linux/memfd.h>
#include <linux/mempolicy.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* -------------------------------------------------------------------------------------- sockets */

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51 /* linux/in.h, since Linux 6.3 */
#endif

int rdmux_socket_open(int family)
{
    return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int rdmux_socket_accept(int listener, struct sockaddr *address, socklen_t *length)
{
    return accept4(listener, address, length, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

void rdmux_socket_use_all_ports(int socket)
{
    /* A bound outside ip_local_port_range has no effect (ip(7)), but since Linux 6.14 a socket with
     * a range of its own takes even and odd ports alike. */
    const uint32_t range = UINT32_C(65535) << 16;
    const int one = 1;
    (void)setsockopt(socket, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, sizeof(range));
    (void)setsockopt(socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
}

int rdmux_socket_unread(int socket, int *bytes)
{
    return ioctl(socket, FIONREAD, bytes);
}

bool rdmux_socket_has_ended(int socket)
{
    struct pollfd look = { .fd = socket, .events = POLLRDHUP };
    return poll(&look, 1, 0) != 0;
}

uint64_t rdmux_socket_round_trip_ns(int socket)
{
    struct tcp_info info = { 0 };
    socklen_t length = sizeof(info);
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) {
        return 0;
    }
    return (uint64_t)info.tcpi_rtt * 1000;
}

/* Offsets of members of the kernel's struct tcp_info, which is longer than that of glibc;
 * <linux/tcp.h> cannot be included beside <netinet/tcp.h>. A kernel before 4.18 fills in less. */
enum {
    TCP_INFO_RETRANSMISSIONS = 100, /* u32 tcpi_total_retrans */
    TCP_INFO_ECN_MARKS = 196,       /* u32 tcpi_delivered_ce */
    TCP_INFO_COUNTS_SIZE = 200,
};
_Static_assert(offsetof(struct tcp_info, tcpi_total_retrans) == TCP_INFO_RETRANSMISSIONS,
               "both have the same first members");

/* Reads a count, unless the kernel has filled in fewer bytes. */
static bool read_count(const uint8_t *info, socklen_t filled, size_t offset, uint64_t *out)
{
    uint32_t count;
    if (filled < offset + sizeof(count)) {
        return false;
    }
    memcpy(&count, info + offset, sizeof(count));
    *out = count;
    return true;
}

struct rdmux_socket_counts rdmux_socket_count(int socket)
{
    struct rdmux_socket_counts counts = { .retransmissions = 0 };
    uint8_t info[TCP_INFO_COUNTS_SIZE];
    socklen_t filled = sizeof(info);
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, info, &filled) == 0) {
        counts.has_retransmissions = read_count(info, filled, TCP_INFO_RETRANSMISSIONS,
                                                &counts.retransmissions);
        counts.has_ecn_marks = read_count(info, filled, TCP_INFO_ECN_MARKS, &counts.ecn_marks);
    }
    return counts;
}

_Static_assert(sizeof(struct ucred) == RDMUX_PEER_NAME_SIZE, "process, user and group");

int rdmux_socket_peer(int socket, uint8_t out[RDMUX_PEER_NAME_SIZE])
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        return -1;
    }
    memcpy(out, &peer, sizeof(peer));
    return 0;
}

/* --------------------------------------------------------------------------------------- memory */

void *rdmux_pages_map(size_t size, unsigned kinds)
{
    const int lazy = (kinds & RDMUX_PAGES_LAZY) != 0 ? MAP_NORESERVE : 0;
    void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | lazy, -1,
                       0);
    if (pages == MAP_FAILED) {
        return NULL;
    }
    if ((kinds & RDMUX_PAGES_HIDDEN) != 0) {
        (void)madvise(pages, size, MADV_DONTDUMP);
    }
    if ((kinds & RDMUX_PAGES_WIPED) != 0) {
        /* Before Linux 4.14 not supported: then a child does not see that it is one. */
        (void)madvise(pages, size, MADV_WIPEONFORK);
    }
    return pages;
}

void rdmux_pages_unmap(void *pages, size_t size)
{
    (void)munmap(pages, size);
}

void rdmux_wipe(void *bytes, size_t size)
{
    explicit_bzero(bytes, size);
}

/* Maps `size` bytes that no peer may map. flags: of mmap, for huge pages. */
static void *map_private(size_t size, int flags)
{
    void *addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
                      0);
    return addr == MAP_FAILED ? NULL : addr;
}

/* As ftruncate(). The limit on file sizes applies to memory files, too, and exceeding it raises
 * SIGXFSZ, which ends the process. So the limit is checked first. */
static int set_size(int fd, size_t size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        size > limit.rlim_cur) {
        errno = EFBIG;
        return -1;
    }
    return ftruncate(fd, (off_t)size);
}

/* Maps `size` bytes of a new memfd. flags: of memfd_create, for huge pages. */
static void *map_memfd(size_t size, unsigned flags, int *out_fd)
{
    int fd = memfd_create("rdmux-region", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (fd < 0) {
        return NULL;
    }
    void *addr = MAP_FAILED;
    if (set_size(fd, size) == 0) {
        addr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (addr == MAP_FAILED) {
        int before = errno;
        close(fd);
        errno = before;
        return NULL;
    }
    *out_fd = fd;
    return addr;
}

void *rdmux_region_map(size_t size, uint64_t page, int *fd)
{
    const bool huge = page != 0;
    const unsigned bits = huge ? (unsigned)__builtin_ctzll(page) : 0;
    return fd == NULL ? map_private(size, huge ? MAP_HUGETLB | (int)(bits << MAP_HUGE_SHIFT) : 0)
                      : map_memfd(size, huge ? MFD_HUGETLB | bits << MFD_HUGE_SHIFT : 0, fd);
}

void rdmux_region_unmap(void *addr, size_t size)
{
    (void)munmap(addr, size);
}

int rdmux_region_seal(int fd, bool writes)
{
    int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    if (!writes) {
        seals |= F_SEAL_FUTURE_WRITE;
    }
    return fcntl(fd, F_ADD_SEALS, seals) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) == 0 ? 0 : -1;
}

void rdmux_region_prefer_huge(void *addr, size_t size)
{
    (void)madvise(addr, size, MADV_HUGEPAGE);
}

/* The pages come from elsewhere if the node has none. */
void rdmux_region_prefer_node(void *addr, size_t size, uint32_t node)
{
    enum { NODES_MAX = 1024, BITS = 8 * (int)sizeof(unsigned long) };
    unsigned long nodes[NODES_MAX / BITS + 1] = { 0 };
    if (node < NODES_MAX) {
        nodes[node / BITS] = 1UL << (node % BITS);
        (void)syscall(SYS_mbind, addr, size, MPOL_PREFERRED, nodes, NODES_MAX + 1UL, 0UL);
    }
}

bool rdmux_fd_is_dmabuf(int fd)
{
    struct statfs facts;
    return fstatfs(fd, &facts) == 0 && (uint64_t)facts.f_type == DMA_BUF_MAGIC;
}

static int synchronize_dmabuf(int fd, uint64_t step, bool writes)
{
    struct dma_buf_sync sync = { .flags = step | (writes ? DMA_BUF_SYNC_RW : DMA_BUF_SYNC_READ) };
    int result;
    do {
        result = ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync);
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
    return result;
}

int rdmux_dmabuf_begin(int fd, bool writes)
{
    return synchronize_dmabuf(fd, DMA_BUF_SYNC_START, writes);
}

int rdmux_dmabuf_end(int fd, bool writes)
{
    return synchronize_dmabuf(fd, DMA_BUF_SYNC_END, writes);
}

/* -------------------------------------------------------------------------------------- threads */

void rdmux_thread_name(pthread_t thread, const char *name)
{
    (void)pthread_setname_np(thread, name);
}

bool rdmux_membarrier_register(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void rdmux_membarrier_register_global(void)
{
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
}

void rdmux_membarrier(void)
{
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0); /* cannot fail */
}

long rdmux_processors(void)
{
    return sysconf(_SC_NPROCESSORS_ONLN);
}

/* -------------------------------------------------------------------------------------- process */

int rdmux_random_bytes(void *out, size_t size)
{
    unsigned char *at = out;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno != EINTR) {
            return -1;
        }
        at += got < 0 ? 0 : got;
        size -= got < 0 ? 0 : (size_t)got;
    }
    return 0;
}

bool rdmux_process_is_secure(void)
{
    return getauxval(AT_SECURE) != 0;
}

const char *rdmux_environment(const char *name)
{
    return secure_getenv(name);
}

const char *rdmux_process_name(void)
{
    return program_invocation_short_name;
}

struct object_search {
    uintptr_t address;
    char *out;
    size_t size;
};

static bool object_contains(const struct dl_phdr_info *object, uintptr_t address)
{
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        uintptr_t first = (uintptr_t)object->dlpi_addr + (uintptr_t)part->p_vaddr;
        if (part->p_type == PT_LOAD && address - first < part->p_memsz) {
            return true;
        }
    }
    return false;
}

/* dladdr() names a program by argv[0], which the user who starts it chooses. */
static int take_object_path(struct dl_phdr_info *object, size_t size, void *user)
{
    struct object_search *search = user;
    (void)size;
    if (!object_contains(object, search->address)) {
        return 0;
    }
    const char *path = object->dlpi_name;
    bool is_program = path[0] == '\0' || (uintptr_t)object->dlpi_phdr == getauxval(AT_PHDR);
    if (!is_program && strlen(path) < search->size) {
        memcpy(search->out, path, strlen(path) + 1);
    }
    return 1;
}

void rdmux_object_path(const void *address, char *out, size_t size)
{
    struct object_search search = { .address = (uintptr_t)address, .out = out, .size = size };
    out[0] = '\0';
    (void)dl_iterate_phdr(take_object_path, &search);
}

bool rdmux_is_same_object(const void *one, const void *other)
{
    Dl_info of_one = { 0 };
    Dl_info of_other = { 0 };
    return dladdr(one, &of_one) == 0 || dladdr(other, &of_other) == 0 ||
           of_one.dli_fbase == of_other.dli_fbase;
}

#ifdef __GLIBC__
/* strerror() of glibc speaks the program's language. */
const char *rdmux_errno_words(int error)
{
    const char *words = strerrordesc_np(error);
    return words != NULL ? words : "unknown error";
}
#else
/* musl */
const char *rdmux_errno_words(int error)
{
    return strerror(error);
}
#endif
