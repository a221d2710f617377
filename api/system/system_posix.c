/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The primitives of system.h with POSIX calls alone, except pollers (poller_posix.c). What POSIX
 * lacks is reported as missing, as the contract of the primitive allows. */
#include "api/system/system.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------------- descriptors, sockets */

/* Makes a new descriptor non-blocking and closed on exec, or closes it. A fork and exec of another
 * thread in between hands it on: POSIX.1-2008 has no call that does both at once. */
static int own_fd(int fd)
{
    int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
    if (flags >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 &&
        fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0) {
        return fd;
    }
    if (fd >= 0) {
        int error = errno;
        (void)close(fd);
        errno = error;
    }
    return -1;
}

int rdmux_posix_wake_open(struct rdmux_wake *wake)
{
    int ends[2];
    wake->fd = -1;
    if (pipe(ends) != 0) {
        return -1;
    }
    if (own_fd(ends[0]) < 0) {
        (void)close(ends[1]);
        return -1;
    }
    if (own_fd(ends[1]) < 0) {
        (void)close(ends[0]);
        return -1;
    }
    wake->fd = ends[0];
    wake->signal_fd = ends[1];
    return 0;
}

int rdmux_socket_open(int family)
{
    return own_fd(socket(family, SOCK_STREAM, 0));
}

int rdmux_socket_accept(int listener, struct sockaddr *address, socklen_t *length)
{
    return own_fd(accept(listener, address, length));
}

void rdmux_socket_use_all_ports(int socket)
{
    (void)socket; /* the system's own rules for ports apply */
}

/* NOLINTNEXTLINE(readability-non-const-parameter): system_linux.c writes there */
int rdmux_socket_unread(int socket, int *bytes)
{
    (void)socket;
    (void)bytes;
    errno = ENOTSUP;
    return -1;
}

bool rdmux_socket_has_ended(int socket)
{
    char byte;
    ssize_t got = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

uint64_t rdmux_socket_round_trip_ns(int socket)
{
    (void)socket;
    return 0;
}

struct rdmux_socket_counts rdmux_socket_count(int socket)
{
    (void)socket;
    return (struct rdmux_socket_counts){ .retransmissions = 0 };
}

/* NOLINTNEXTLINE(readability-non-const-parameter): system_linux.c writes there */
int rdmux_socket_peer(int socket, uint8_t out[RDMUX_PEER_NAME_SIZE])
{
    (void)socket;
    (void)out;
    errno = ENOTSUP;
    return -1;
}

/* --------------------------------------------------------------------------------------- memory */

/* In front of pages. */
struct pages_header {
    struct pages_header *next; /* pages that a fork wipes */
    struct pages_header **link;
    void *given; /* by calloc(), whose large pieces are untouched zeroed pages */
    void *pages;
    size_t size;
};

static pthread_mutex_t wiped_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static pthread_once_t wiped_once = PTHREAD_ONCE_INIT;
static struct pages_header *wiped_pages;

static void lock_wiped_pages(void)
{
    pthread_mutex_lock(&wiped_lock);
}

static void unlock_wiped_pages(void)
{
    pthread_mutex_unlock(&wiped_lock);
}

static void wipe_pages_in_child(void)
{
    for (struct pages_header *at = wiped_pages; at != NULL; at = at->next) {
        memset(at->pages, 0, at->size);
    }
    pthread_mutex_unlock(&wiped_lock);
}

static void prepare_to_wipe(void)
{
    (void)pthread_atfork(lock_wiped_pages, unlock_wiped_pages, wipe_pages_in_child);
}

static struct pages_header *header_of(void *pages)
{
    return (struct pages_header *)pages - 1;
}

void *rdmux_pages_map(size_t size, unsigned kinds)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t extra = page + sizeof(struct pages_header);
    char *given = size > SIZE_MAX - extra ? NULL : calloc(1, size + extra);
    if (given == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    const size_t rest = ((uintptr_t)given + sizeof(struct pages_header)) % page;
    void *pages = given + sizeof(struct pages_header) + (rest == 0 ? 0 : page - rest);
    struct pages_header *header = header_of(pages);
    *header = (struct pages_header){ .given = given, .pages = pages, .size = size };
    if ((kinds & RDMUX_PAGES_WIPED) != 0) {
        (void)pthread_once(&wiped_once, prepare_to_wipe);
        pthread_mutex_lock(&wiped_lock);
        header->next = wiped_pages;
        header->link = &wiped_pages;
        if (header->next != NULL) {
            header->next->link = &header->next;
        }
        wiped_pages = header;
        pthread_mutex_unlock(&wiped_lock);
    }
    return pages;
}

void rdmux_pages_unmap(void *pages, size_t size)
{
    struct pages_header *header = header_of(pages);
    assert(header->size == size);
    (void)size;
    if (header->link != NULL) {
        pthread_mutex_lock(&wiped_lock);
        *header->link = header->next;
        if (header->next != NULL) {
            header->next->link = header->link;
        }
        pthread_mutex_unlock(&wiped_lock);
    }
    free(header->given);
}

/* The compiler does not know what this points to, so it keeps the call. */
static void *(*const volatile wipe_call)(void *, int, size_t) = memset;

void rdmux_wipe(void *bytes, size_t size)
{
    (void)wipe_call(bytes, 0, size);
}

void *rdmux_region_map(size_t size, uint64_t page, int *fd)
{
    if (page != 0) {
        errno = ENOTSUP;
        return NULL;
    }
    if (fd != NULL) {
        *fd = -1;
    }
    return rdmux_pages_map(size, 0);
}

void rdmux_region_unmap(void *addr, size_t size)
{
    rdmux_pages_unmap(addr, size);
}

int rdmux_region_seal(int fd, bool writes)
{
    (void)fd;
    (void)writes;
    errno = ENOTSUP;
    return -1;
}

void rdmux_region_prefer_huge(void *addr, size_t size)
{
    (void)addr;
    (void)size;
}

void rdmux_region_prefer_node(void *addr, size_t size, uint32_t node)
{
    (void)addr;
    (void)size;
    (void)node;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): system_linux.c writes there */
const char *rdmux_memory_fault(const void *addr, size_t length, bool writes, uint64_t *at)
{
    (void)addr;
    (void)length;
    (void)writes;
    (void)at;
    return NULL;
}

bool rdmux_fd_is_dmabuf(int fd)
{
    (void)fd;
    return false;
}

int rdmux_dmabuf_begin(int fd, bool writes)
{
    (void)fd;
    (void)writes;
    errno = ENOTSUP;
    return -1;
}

int rdmux_dmabuf_end(int fd, bool writes)
{
    return rdmux_dmabuf_begin(fd, writes);
}

/* -------------------------------------------------------------------------------------- threads */

void rdmux_thread_name(pthread_t thread, const char *name)
{
    (void)thread;
    (void)name;
}

bool rdmux_membarrier_register(void)
{
    return false;
}

void rdmux_membarrier_register_global(void)
{
}

void rdmux_membarrier(void)
{
    assert(!"registered");
}

long rdmux_processors(void)
{
    long running = sysconf(_SC_NPROCESSORS_ONLN); /* not in POSIX.1-2008, but everywhere */
    return running < 1 ? 1 : running;
}

/* -------------------------------------------------------------------------------------- process */

int rdmux_random_bytes(void *out, size_t size)
{
    unsigned char *at = out;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t got;
    do {
        got = read(fd, at, size);
        at += got > 0 ? got : 0;
        size -= got > 0 ? (size_t)got : 0;
    } while (size > 0 && (got > 0 || (got < 0 && errno == EINTR)));
    int error = errno;
    (void)close(fd);
    errno = error;
    return size == 0 ? 0 : -1;
}

bool rdmux_process_is_secure(void)
{
    return geteuid() != getuid() || getegid() != getgid();
}

const char *rdmux_environment(const char *name)
{
    return rdmux_process_is_secure() ? NULL : getenv(name);
}

const char *rdmux_process_name(void)
{
    return "";
}

void rdmux_object_path(const void *address, char *out, size_t size)
{
    (void)address;
    (void)size;
    out[0] = '\0';
}

bool rdmux_is_same_object(const void *one, const void *other)
{
    (void)one;
    (void)other;
    return true;
}

const char *rdmux_errno_words(int error)
{
    return strerror(error);
}
