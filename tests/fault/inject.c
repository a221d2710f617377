/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "inject.h"

#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/membarrier.h>
#include <net/if.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

static struct {
    _Atomic bool armed;
    enum inject_kind kind;
    const char *name;
    _Atomic size_t left;
    _Atomic(const char *) victim;
    struct inject_record *record;
    _Atomic long blocks;
    _Atomic long mapped;
} injection;

static _Thread_local bool is_paused;

static void arm(enum inject_kind kind, const char *name, size_t nth, struct inject_record *record)
{
    injection.kind = kind;
    injection.name = name;
    injection.record = record;
    atomic_store(&injection.left, nth);
    atomic_store(&injection.victim, NULL);
    atomic_store(&injection.armed, true);
}

void inject_arm(enum inject_kind kind, const char *name, size_t nth)
{
    arm(kind, name, nth, NULL);
}

void inject_write_down(enum inject_kind kind, struct inject_record *record)
{
    arm(kind, NULL, 0, record);
}

void inject_disarm(void)
{
    atomic_store(&injection.armed, false);
}

void inject_pause(void)
{
    is_paused = true;
}

void inject_resume(void)
{
    is_paused = false;
}

const char *inject_victim(void)
{
    return atomic_load(&injection.victim);
}

long inject_blocks(void)
{
    return atomic_load(&injection.blocks);
}

long inject_mapped(void)
{
    return atomic_load(&injection.mapped);
}

bool inject_fails(enum inject_kind kind, const char *name)
{
    if (!atomic_load(&injection.armed) || kind != injection.kind || is_paused) {
        return false;
    }
    if (injection.record != NULL) {
        size_t at = atomic_fetch_add(&injection.record->count, 1);
        if (at < INJECT_RECORD_MAX) {
            injection.record->names[at] = name;
        }
        return false;
    }
    bool is_meant = injection.name == NULL || strcmp(injection.name, name) == 0;
    if (!is_meant || atomic_fetch_sub(&injection.left, 1) != 1) {
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
    return inject_fails(INJECT_ALLOCATION, "malloc") ? NULL : count_block(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return inject_fails(INJECT_ALLOCATION, "calloc") ? NULL
                                                     : count_block(__real_calloc(count, size));
}

void *__wrap_realloc(void *memory, size_t size)
{
    if (inject_fails(INJECT_ALLOCATION, "realloc")) {
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

static long whole_pages(size_t size)
{
    enum { PAGE = 4096 };
    return (long)((size + PAGE - 1) / PAGE * PAGE);
}

#define FAILING(result, name, parameters, arguments, error, failure) \
    INJECT_FAILING(INJECT_CALL, result, name, parameters, arguments, error, failure)

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
FAILING(int, faccessat, (int folder, const char *path, int mode, int flags),
        (folder, path, mode, flags), EACCES, -1)
FAILING(int, fchmod, (int fd, mode_t mode), (fd, mode), EPERM, -1)
FAILING(int, fstat, (int fd, struct stat *out), (fd, out), EIO, -1)
FAILING(int, fstatat, (int folder, const char *path, struct stat *out, int flags),
        (folder, path, out, flags), ENOENT, -1)
FAILING(int, fstatfs, (int fd, struct statfs *out), (fd, out), EIO, -1)
FAILING(int, lstat, (const char *path, struct stat *out), (path, out), ENOENT, -1)
FAILING(DIR *, opendir, (const char *path), (path), EMFILE, NULL)
FAILING(struct dirent *, readdir, (DIR * folder), (folder), EBADF, NULL)
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
FAILING(int, mkdir, (const char *path, mode_t mode), (path, mode), EACCES, -1)
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
FAILING(int, renameat, (int from, const char *path, int to, const char *name),
        (from, path, to, name), EACCES, -1)
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
FAILING(int, getaddrinfo,
        (const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **out),
        (node, service, hints, out), ENOMEM, EAI_MEMORY)
FAILING(int, getnameinfo,
        (const struct sockaddr *address, socklen_t length, char *host, socklen_t host_size,
         char *service, socklen_t service_size, int flags),
        (address, length, host, host_size, service, service_size, flags), ENOMEM, EAI_MEMORY)
FAILING(char *, if_indextoname, (unsigned index, char *out), (index, out), ENXIO, NULL)
FAILING(int, pthread_condattr_init, (pthread_condattr_t * out), (out), ENOMEM, ENOMEM)
FAILING(int, timerfd_create, (int clock, int flags), (clock, flags), EMFILE, -1)

/* A call of OpenSSL fails for lack of memory, and OpenSSL's error queue says so. */
#define FAILING_TLS(result, name, parameters, arguments, failure) \
    result __real_##name parameters;                              \
    result __wrap_##name parameters;                              \
    result __wrap_##name parameters                               \
    {                                                             \
        if (inject_fails(INJECT_CALL, #name)) {                   \
            ERR_raise(ERR_LIB_SSL, ERR_R_MALLOC_FAILURE);         \
            return failure;                                       \
        }                                                         \
        return __real_##name arguments;                           \
    }

FAILING_TLS(EVP_MD_CTX *, EVP_MD_CTX_new, (void), (), NULL)
FAILING_TLS(int, EVP_DigestInit_ex, (EVP_MD_CTX * context, const EVP_MD *type, ENGINE *engine),
            (context, type, engine), 0)
FAILING_TLS(int, EVP_DigestUpdate, (EVP_MD_CTX * context, const void *bytes, size_t size),
            (context, bytes, size), 0)
FAILING_TLS(int, EVP_DigestFinal_ex, (EVP_MD_CTX * context, unsigned char *out, unsigned *size),
            (context, out, size), 0)
FAILING_TLS(int, EVP_Digest,
            (const void *bytes, size_t size, unsigned char *out, unsigned *out_size,
             const EVP_MD *type, ENGINE *engine),
            (bytes, size, out, out_size, type, engine), 0)
FAILING_TLS(unsigned char *, HMAC,
            (const EVP_MD *type, const void *key, int key_size, const unsigned char *bytes,
             size_t size, unsigned char *out, unsigned *out_size),
            (type, key, key_size, bytes, size, out, out_size), NULL)
FAILING_TLS(BIO *, BIO_new, (const BIO_METHOD *type), (type), NULL)
FAILING_TLS(BIO *, BIO_new_mem_buf, (const void *bytes, int size), (bytes, size), NULL)
FAILING_TLS(BIO_METHOD *, BIO_meth_new, (int type, const char *name), (type, name), NULL)
FAILING_TLS(EVP_PKEY *, PEM_read_bio_PrivateKey,
            (BIO * bio, EVP_PKEY **key, pem_password_cb *ask, void *user), (bio, key, ask, user),
            NULL)
FAILING_TLS(SSL_CTX *, SSL_CTX_new, (const SSL_METHOD *method), (method), NULL)
FAILING_TLS(int, SSL_CTX_set_ciphersuites, (SSL_CTX * context, const char *suites),
            (context, suites), 0)
FAILING_TLS(int, SSL_CTX_set_num_tickets, (SSL_CTX * context, size_t count), (context, count), 0)
FAILING_TLS(int, SSL_CTX_use_certificate_chain_file, (SSL_CTX * context, const char *path),
            (context, path), 0)
FAILING_TLS(int, SSL_CTX_load_verify_locations,
            (SSL_CTX * context, const char *file, const char *folder), (context, file, folder), 0)
FAILING_TLS(int, SSL_CTX_use_PrivateKey, (SSL_CTX * context, EVP_PKEY *key), (context, key), 0)
FAILING_TLS(int, SSL_CTX_check_private_key, (const SSL_CTX *context), (context), 0)
FAILING_TLS(SSL *, SSL_new, (SSL_CTX * context), (context), NULL)
FAILING_TLS(int, SSL_set_session_id_context, (SSL * ssl, const unsigned char *id, unsigned size),
            (ssl, id, size), 0)
FAILING_TLS(int, SSL_do_handshake, (SSL * ssl), (ssl), -1)
FAILING_TLS(int, SSL_read_ex, (SSL * ssl, void *out, size_t size, size_t *got),
            (ssl, out, size, got), 0)
FAILING_TLS(int, SSL_write_ex, (SSL * ssl, const void *bytes, size_t size, size_t *done),
            (ssl, bytes, size, done), 0)
FAILING_TLS(SSL_SESSION *, SSL_SESSION_new, (void), (), NULL)
FAILING_TLS(int, SSL_SESSION_set1_master_key,
            (SSL_SESSION * session, const unsigned char *key, size_t size), (session, key, size), 0)
FAILING_TLS(int, SSL_SESSION_set_cipher, (SSL_SESSION * session, const SSL_CIPHER *suite),
            (session, suite), 0)
FAILING_TLS(int, SSL_SESSION_set_protocol_version, (SSL_SESSION * session, int version),
            (session, version), 0)
FAILING_TLS(const SSL_CIPHER *, SSL_CIPHER_find, (SSL * ssl, const unsigned char *suite),
            (ssl, suite), NULL)
FAILING_TLS(void *, X509_get_ext_d2i, (const X509 *certificate, int which, int *critical, int *at),
            (certificate, which, critical, at), NULL)
FAILING_TLS(int, X509_check_ip_asc, (X509 * certificate, const char *address, unsigned flags),
            (certificate, address, flags), -2)
FAILING_TLS(int, X509_check_host,
            (X509 * certificate, const char *name, size_t size, unsigned flags, char **out),
            (certificate, name, size, flags, out), -2)

/* ----------------------------------------------------------- those that need more than one line */

/* Only setting the list of groups can fail, as it is copied; the other uses fail for wrong
 * arguments. */
long __real_SSL_CTX_ctrl(SSL_CTX *context, int command, long number, void *argument);
long __wrap_SSL_CTX_ctrl(SSL_CTX *context, int command, long number, void *argument);
long __wrap_SSL_CTX_ctrl(SSL_CTX *context, int command, long number, void *argument)
{
    if (command == SSL_CTRL_SET_GROUPS_LIST && inject_fails(INJECT_CALL, "SSL_CTX_ctrl")) {
        ERR_raise(ERR_LIB_SSL, ERR_R_MALLOC_FAILURE);
        return 0;
    }
    return __real_SSL_CTX_ctrl(context, command, number, argument);
}

void *__real_mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int rights, int flags, int fd, off_t offset)
{
    if (inject_fails(INJECT_CALL, "mmap")) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *mapped = __real_mmap(at, size, rights, flags, fd, offset);
    if (mapped != MAP_FAILED && (flags & MAP_FIXED) == 0) {
        atomic_fetch_add(&injection.mapped, whole_pages(size));
    }
    return mapped;
}

/* The caller frees the list. */
int __real_scandir(const char *folder, struct dirent ***out, int (*wanted)(const struct dirent *),
                   int (*order)(const struct dirent **, const struct dirent **));
int __wrap_scandir(const char *folder, struct dirent ***out, int (*wanted)(const struct dirent *),
                   int (*order)(const struct dirent **, const struct dirent **));
int __wrap_scandir(const char *folder, struct dirent ***out, int (*wanted)(const struct dirent *),
                   int (*order)(const struct dirent **, const struct dirent **))
{
    if (inject_fails(INJECT_CALL, "scandir")) {
        errno = ENOMEM;
        return -1;
    }
    int count = __real_scandir(folder, out, wanted, order);
    atomic_fetch_add(&injection.blocks, count < 0 ? 0 : count + (*out != NULL));
    return count;
}

/* Lists the interfaces, with the loopback interface as an ordinary one: iWARP ignores loopback
 * addresses, but the simulated adapter has no others. */
int __real_getifaddrs(struct ifaddrs **out);
int __wrap_getifaddrs(struct ifaddrs **out);
int __wrap_getifaddrs(struct ifaddrs **out)
{
    if (inject_fails(INJECT_CALL, "getifaddrs")) {
        errno = ENOMEM;
        return -1;
    }
    int result = __real_getifaddrs(out);
    for (struct ifaddrs *entry = result == 0 ? *out : NULL; entry != NULL; entry = entry->ifa_next) {
        entry->ifa_flags &= ~(unsigned)IFF_LOOPBACK;
    }
    return result;
}

int __real_munmap(void *at, size_t size);
int __wrap_munmap(void *at, size_t size);
int __wrap_munmap(void *at, size_t size)
{
    int result = __real_munmap(at, size);
    if (result == 0) {
        atomic_fetch_sub(&injection.mapped, whole_pages(size));
    }
    return result;
}

/* Code built with _FORTIFY_SOURCE calls this function instead. */
int __real___poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t size);
int __wrap___poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t size);
int __wrap___poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t size)
{
    if (inject_fails(INJECT_CALL, "poll")) {
        errno = EINTR;
        return -1;
    }
    return __real___poll_chk(fds, count, timeout, size);
}

/* The descriptor is closed in any case (close(2), "Dealing with error returns"). */
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    int result = __real_close(fd);
    if (result == 0 && inject_fails(INJECT_CALL, "close")) {
        errno = EINTR;
        return -1;
    }
    return result;
}

/* Only reads of files fail: a read of an eventfd fails with EAGAIN alone. */
ssize_t __real_read(int fd, void *out, size_t size);
ssize_t __wrap_read(int fd, void *out, size_t size);
ssize_t __wrap_read(int fd, void *out, size_t size)
{
    struct stat kind;
    if (__real_fstat(fd, &kind) == 0 && S_ISREG(kind.st_mode) && inject_fails(INJECT_CALL, "read")) {
        errno = EIO;
        return -1;
    }
    return __real_read(fd, out, size);
}

int __real_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
    /* Only adding needs memory (fs/eventpoll.c); the others fail for missing entries alone. */
    if (operation == EPOLL_CTL_ADD && inject_fails(INJECT_CALL, "epoll_ctl")) {
        errno = ENOMEM;
        return -1;
    }
    return __real_epoll_ctl(epoll, operation, fd, event);
}

int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (inject_fails(INJECT_CALL, "ioctl")) {
        errno = ENODEV;
        return -1;
    }
    return __real_ioctl(fd, request, argument);
}

int __real_fcntl(int fd, int command, void *argument);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *); /* as wide as any */
    va_end(arguments);
    if (inject_fails(INJECT_CALL, "fcntl")) {
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
    if (inject_fails(INJECT_CALL, "open")) {
        errno = EMFILE;
        return -1;
    }
    return __real_open(path, flags, mode);
}

int __real_openat(int folder, const char *path, int flags, unsigned mode);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    unsigned mode = va_arg(arguments, unsigned);
    va_end(arguments);
    if (inject_fails(INJECT_CALL, "openat")) {
        errno = EMFILE;
        return -1;
    }
    return __real_openat(folder, path, flags, mode);
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    /* A process that is registered for them cannot be refused (membarrier(2)). */
    bool is_barrier = number == SYS_membarrier && (a == MEMBARRIER_CMD_PRIVATE_EXPEDITED ||
                                                   a == MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    if (!is_barrier && inject_fails(INJECT_CALL, "syscall")) {
        errno = ENOSYS;
        return -1;
    }
    return __real_syscall(number, a, b, c, d, e, f);
}
