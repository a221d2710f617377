/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "inject.h"

#include <dirent.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <netdb.h>
#include <openssl/evp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static struct {
    _Atomic bool armed;
    enum inject_kind kind;
    _Atomic size_t left;
    _Atomic(const char *) victim;
    _Atomic long blocks;
} injection;

void inject_arm(enum inject_kind kind, size_t nth)
{
    injection.kind = kind;
    atomic_store(&injection.left, nth);
    atomic_store(&injection.victim, NULL);
    atomic_store(&injection.armed, true);
}

void inject_disarm(void)
{
    atomic_store(&injection.armed, false);
}

const char *inject_victim(void)
{
    return atomic_load(&injection.victim);
}

long inject_blocks(void)
{
    return atomic_load(&injection.blocks);
}

static bool fails(enum inject_kind kind, const char *name)
{
    if (!atomic_load(&injection.armed) || kind != injection.kind ||
        atomic_fetch_sub(&injection.left, 1) != 1) {
        return false;
    }
    atomic_store(&injection.victim, name);
    return true;
}

/* ---------------------------------------------------------------------------------- allocations */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void __wrap_free(void *memory);

static void *count_block(void *memory)
{
    atomic_fetch_add(&injection.blocks, memory != NULL);
    return memory;
}

void *__wrap_malloc(size_t size)
{
    return fails(INJECT_ALLOCATION, "malloc") ? NULL : count_block(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails(INJECT_ALLOCATION, "calloc") ? NULL : count_block(__real_calloc(count, size));
}

void *__wrap_realloc(void *memory, size_t size)
{
    if (fails(INJECT_ALLOCATION, "realloc")) {
        return NULL;
    }
    void *grown = __real_realloc(memory, size);
    return memory == NULL ? count_block(grown) : grown;
}

void __wrap_free(void *memory)
{
    atomic_fetch_sub(&injection.blocks, memory != NULL);
    __real_free(memory);
}

/* ---------------------------------------------------------------------------------------- calls */

/* FAILING(result, name, parameters, arguments, error, failure): name fails with this errno and this
 * result. */
#define FAILING(result, name, parameters, arguments, error, failure) \
    result __real_##name parameters;                                 \
    result __wrap_##name parameters;                                 \
    result __wrap_##name parameters                                  \
    {                                                                \
        if (fails(INJECT_CALL, #name)) {                             \
            errno = (error);                                         \
            return failure;                                          \
        }                                                            \
        return __real_##name arguments;                              \
    }

FAILING(int, accept4, (int fd, struct sockaddr *address, socklen_t *length, int flags),
        (fd, address, length, flags), EMFILE, -1)
FAILING(int, access, (const char *path, int mode), (path, mode), EACCES, -1)
FAILING(int, bind, (int fd, const struct sockaddr *address, socklen_t length),
        (fd, address, length), EADDRINUSE, -1)
FAILING(int, connect, (int fd, const struct sockaddr *address, socklen_t length),
        (fd, address, length), ENETUNREACH, -1)
FAILING(int, epoll_create1, (int flags), (flags), EMFILE, -1)
FAILING(int, epoll_wait, (int epoll, struct epoll_event *events, int max, int timeout),
        (epoll, events, max, timeout), EINTR, -1)
FAILING(int, eventfd, (unsigned value, int flags), (value, flags), EMFILE, -1)
FAILING(int, fstat, (int fd, struct stat *out), (fd, out), EIO, -1)
FAILING(int, ftruncate, (int fd, off_t size), (fd, size), ENOSPC, -1)
FAILING(int, getpeername, (int fd, struct sockaddr *address, socklen_t *length),
        (fd, address, length), ENOTCONN, -1)
FAILING(ssize_t, getrandom, (void *out, size_t size, unsigned flags), (out, size, flags), EINTR, -1)
FAILING(int, getsockname, (int fd, struct sockaddr *address, socklen_t *length),
        (fd, address, length), ENOBUFS, -1)
FAILING(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *size),
        (fd, level, name, value, size), ENOPROTOOPT, -1)
FAILING(int, listen, (int fd, int backlog), (fd, backlog), EADDRINUSE, -1)
FAILING(int, madvise, (void *at, size_t size, int advice), (at, size, advice), EINVAL, -1)
FAILING(int, memfd_create, (const char *name, unsigned flags), (name, flags), EMFILE, -1)
FAILING(void *, mmap, (void *at, size_t size, int rights, int flags, int fd, off_t offset),
        (at, size, rights, flags, fd, offset), ENOMEM, MAP_FAILED)
FAILING(int, poll, (struct pollfd * fds, nfds_t count, int timeout), (fds, count, timeout), EINTR,
        -1)
FAILING(ssize_t, process_vm_readv,
        (pid_t pid, const struct iovec *ours, unsigned long our_count, const struct iovec *theirs,
         unsigned long their_count, unsigned long flags),
        (pid, ours, our_count, theirs, their_count, flags), EPERM, -1)
FAILING(ssize_t, process_vm_writev,
        (pid_t pid, const struct iovec *ours, unsigned long our_count, const struct iovec *theirs,
         unsigned long their_count, unsigned long flags),
        (pid, ours, our_count, theirs, their_count, flags), EPERM, -1)
FAILING(int, pthread_create,
        (pthread_t * out, const pthread_attr_t *attr, void *(*run)(void *), void *argument),
        (out, attr, run, argument), EAGAIN, EAGAIN)
FAILING(ssize_t, recv, (int fd, void *out, size_t size, int flags), (fd, out, size, flags),
        ECONNRESET, -1)
FAILING(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags),
        ECONNRESET, -1)
FAILING(ssize_t, send, (int fd, const void *bytes, size_t size, int flags),
        (fd, bytes, size, flags), EPIPE, -1)
FAILING(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags),
        EPIPE, -1)
FAILING(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t size),
        (fd, level, name, value, size), ENOPROTOOPT, -1)
FAILING(int, shutdown, (int fd, int how), (fd, how), ENOTCONN, -1)
FAILING(int, socket, (int family, int type, int protocol), (family, type, protocol), EMFILE, -1)
FAILING(int, stat, (const char *path, struct stat *out), (path, out), EACCES, -1)
FAILING(int, scandir,
        (const char *folder, struct dirent ***out, int (*wanted)(const struct dirent *),
         int (*order)(const struct dirent **, const struct dirent **)),
        (folder, out, wanted, order), ENOMEM, -1)
FAILING(int, getaddrinfo,
        (const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **out),
        (node, service, hints, out), ENOMEM, EAI_MEMORY)
FAILING(int, getnameinfo,
        (const struct sockaddr *address, socklen_t length, char *host, socklen_t host_size,
         char *service, socklen_t service_size, int flags),
        (address, length, host, host_size, service, service_size, flags), ENOMEM, EAI_MEMORY)
FAILING(EVP_MD_CTX *, EVP_MD_CTX_new, (void), (), ENOMEM, NULL)
FAILING(int, EVP_DigestInit_ex, (EVP_MD_CTX * context, const EVP_MD *type, ENGINE *engine),
        (context, type, engine), ENOMEM, 0)
FAILING(int, EVP_DigestUpdate, (EVP_MD_CTX * context, const void *bytes, size_t size),
        (context, bytes, size), ENOMEM, 0)
FAILING(int, EVP_DigestFinal_ex, (EVP_MD_CTX * context, unsigned char *out, unsigned *size),
        (context, out, size), ENOMEM, 0)
FAILING(int, EVP_Digest,
        (const void *bytes, size_t size, unsigned char *out, unsigned *out_size, const EVP_MD *type,
         ENGINE *engine),
        (bytes, size, out, out_size, type, engine), ENOMEM, 0)

int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    /* Only adding takes memory (fs/eventpoll.c); the others fail for what is not there. */
    if (operation == EPOLL_CTL_ADD && fails(INJECT_CALL, "epoll_ctl")) {
        errno = ENOMEM;
        return -1;
    }
    return __real_epoll_ctl(epoll, operation, fd, event);
}

/* Those with arguments that may be missing. */

int __real_fcntl(int fd, int command, void *argument);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *); /* as wide as any */
    va_end(arguments);
    if (fails(INJECT_CALL, "fcntl")) {
        errno = ENOLCK;
        return -1;
    }
    return __real_fcntl(fd, command, argument);
}

int __real_open(const char *path, int flags, unsigned mode);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    unsigned mode = va_arg(arguments, unsigned);
    va_end(arguments);
    if (fails(INJECT_CALL, "open")) {
        errno = EMFILE;
        return -1;
    }
    return __real_open(path, flags, mode);
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    /* A process that is registered for them cannot be refused (membarrier(2)). */
    bool is_barrier = number == SYS_membarrier && (a == MEMBARRIER_CMD_PRIVATE_EXPEDITED ||
                                                   a == MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    if (!is_barrier && fails(INJECT_CALL, "syscall")) {
        errno = ENOSYS;
        return -1;
    }
    return __real_syscall(number, a, b, c, d, e, f);
}
