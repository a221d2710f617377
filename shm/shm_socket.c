/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Messages and descriptors between the two processes of an endpoint pair. */
#include "shm_socket.h"

#include "api/base/bytes.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Connection data, in host byte order, as both sides are on one host. Offset, size,
 * field:  0  1  version, 2     1  1  directory     2  1  features     3  1  zero     4  4  pid
 *         8 16  name */
enum {
    DESCRIPTION_AT_DIRECTORY = 1,
    DESCRIPTION_AT_FEATURES = 2,
    SOCKET_AT_PID = 4,
    SOCKET_AT_NAME = 8,
    SOCKET_VERSION = 2,
};
static_assert(SOCKET_AT_NAME + SHM_NAME_SIZE == SHM_DESCRIPTION_SIZE, "the name ends it");

/* HELLO:  0  4  magic     4  4  flags     8 16  secret     24  4  pid     28  4  mark */
enum {
    SHM_HELLO_AT_MAGIC = 0,
    SHM_HELLO_AT_FLAGS = 4,
    SHM_HELLO_AT_SECRET = 8,
    SHM_HELLO_AT_PID = 24,
    SHM_HELLO_AT_MARK = 28,
};
static_assert(SHM_HELLO_AT_MARK + 4 == SHM_HELLO_SIZE, "the mark ends it");

/* REGION:  0  4  magic     4  4  index     8  8  life     16  8  length     24  4  writable
 *         28  4  zero */
enum {
    REGION_AT_MAGIC = 0,
    REGION_AT_INDEX = 4,
    REGION_AT_LIFE = 8,
    REGION_AT_LENGTH = 16,
    REGION_AT_WRITABLE = 24,
};
static_assert(REGION_AT_WRITABLE + 8 == SHM_REGION_SIZE, "writable and padding end it");
#define REGION_MAGIC UINT32_C(0x52534852)

/* QUEUE:  0  4  magic     4  4  mark     8  24  zero */
enum { QUEUE_AT_MAGIC = 0, QUEUE_AT_MARK = 4 };
#define QUEUE_MAGIC UINT32_C(0x52534851)

void rdmux_shm_description_encode(const struct shm_description *in,
                                  uint8_t out[SHM_DESCRIPTION_SIZE])
{
    memset(out, 0, SHM_DESCRIPTION_SIZE);
    out[0] = SOCKET_VERSION;
    rdmux_store_host32(out + SOCKET_AT_PID, in->pid);
    out[DESCRIPTION_AT_DIRECTORY] = (uint8_t)in->place.directory;
    out[DESCRIPTION_AT_FEATURES] = (uint8_t)in->features;
    memcpy(out + SOCKET_AT_NAME, in->place.name, SHM_NAME_SIZE);
}

enum rdmux_status rdmux_shm_description_decode(const uint8_t *in, size_t size,
                                               struct shm_description *out)
{
    if (size < SHM_DESCRIPTION_SIZE || in[0] != SOCKET_VERSION ||
        in[DESCRIPTION_AT_DIRECTORY] >= SHM_DIRECTORY_COUNT) {
        rdmux_provider_error("shm: the peer's connection data is malformed (%zu bytes)", size);
        return RDMUX_PROTOCOL;
    }
    out->pid = rdmux_load_host32(in + SOCKET_AT_PID);
    out->features = in[DESCRIPTION_AT_FEATURES];
    out->place.directory = in[DESCRIPTION_AT_DIRECTORY];
    memcpy(out->place.name, in + SOCKET_AT_NAME, SHM_NAME_SIZE);
    return RDMUX_OK;
}

void rdmux_shm_hello_encode(const struct shm_hello *in, uint8_t out[SHM_HELLO_SIZE])
{
    memset(out, 0, SHM_HELLO_SIZE);
    rdmux_store_host32(out + SHM_HELLO_AT_MAGIC, in->magic);
    rdmux_store_host32(out + SHM_HELLO_AT_FLAGS, in->flags);
    memcpy(out + SHM_HELLO_AT_SECRET, in->secret, RDMUX_SECRET_SIZE);
    rdmux_store_host32(out + SHM_HELLO_AT_PID, in->pid);
    rdmux_store_host32(out + SHM_HELLO_AT_MARK, in->mark);
}

enum rdmux_status rdmux_shm_hello_decode(const uint8_t *in, size_t size, struct shm_hello *out)
{
    if (size != SHM_HELLO_SIZE) {
        return RDMUX_PROTOCOL;
    }
    out->magic = rdmux_load_host32(in + SHM_HELLO_AT_MAGIC);
    out->flags = rdmux_load_host32(in + SHM_HELLO_AT_FLAGS);
    memcpy(out->secret, in + SHM_HELLO_AT_SECRET, RDMUX_SECRET_SIZE);
    out->pid = rdmux_load_host32(in + SHM_HELLO_AT_PID);
    out->mark = rdmux_load_host32(in + SHM_HELLO_AT_MARK);
    return RDMUX_OK;
}

void rdmux_shm_region_message_encode(const struct shm_region_message *in,
                                     uint8_t out[SHM_REGION_SIZE])
{
    memset(out, 0, SHM_REGION_SIZE);
    rdmux_store_host32(out + REGION_AT_MAGIC, REGION_MAGIC);
    rdmux_store_host32(out + REGION_AT_INDEX, in->index);
    rdmux_store_host64(out + REGION_AT_LIFE, in->life);
    rdmux_store_host64(out + REGION_AT_LENGTH, in->length);
    rdmux_store_host32(out + REGION_AT_WRITABLE, in->writable);
}

enum rdmux_status rdmux_shm_region_message_decode(const uint8_t *in, size_t size,
                                                  struct shm_region_message *out)
{
    if (size != SHM_REGION_SIZE || rdmux_load_host32(in + REGION_AT_MAGIC) != REGION_MAGIC) {
        return RDMUX_PROTOCOL;
    }
    out->index = rdmux_load_host32(in + REGION_AT_INDEX);
    out->life = rdmux_load_host64(in + REGION_AT_LIFE);
    out->length = rdmux_load_host64(in + REGION_AT_LENGTH);
    out->writable = rdmux_load_host32(in + REGION_AT_WRITABLE);
    return RDMUX_OK;
}

void rdmux_shm_queue_message_encode(const struct shm_queue_message *in, uint8_t out[SHM_REGION_SIZE])
{
    memset(out, 0, SHM_REGION_SIZE);
    rdmux_store_host32(out + QUEUE_AT_MAGIC, QUEUE_MAGIC);
    rdmux_store_host32(out + QUEUE_AT_MARK, in->mark);
}

enum rdmux_status rdmux_shm_queue_message_decode(const uint8_t *in, size_t size,
                                                 struct shm_queue_message *out)
{
    if (size != SHM_REGION_SIZE || rdmux_load_host32(in + QUEUE_AT_MAGIC) != QUEUE_MAGIC) {
        return RDMUX_PROTOCOL;
    }
    out->mark = rdmux_load_host32(in + QUEUE_AT_MARK);
    return RDMUX_OK;
}

enum rdmux_status rdmux_shm_socket_check_peer(int socket, pid_t pid)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        rdmux_provider_error("shm: cannot get the process and user of the peer: errno %d", errno);
        return RDMUX_IO;
    }
    if (peer.uid != geteuid() || peer.pid != pid) {
        rdmux_provider_error("shm: process %d of user %u is at the other end, not process %d of "
                             "user %u",
                             (int)peer.pid, (unsigned)peer.uid, (int)pid, (unsigned)geteuid());
        return RDMUX_DENIED;
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_shm_socket_accept(int listener, pid_t pid, int *out)
{
    enum { TURN = 16 }; /* connections of other processes; the rest waits for the next call */
    for (int i = 0; i < TURN; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) {
                return RDMUX_AGAIN;
            }
            rdmux_provider_error("shm: cannot accept the peer: errno %d%s", errno,
                                 errno == EMFILE ? "; raise the limit on open files" : "");
            return errno == EMFILE || errno == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO;
        }
        if (rdmux_shm_socket_check_peer(fd, pid) == RDMUX_OK) {
            *out = fd;
            return RDMUX_OK;
        }
        (void)close(fd);
    }
    return RDMUX_AGAIN;
}

enum rdmux_status rdmux_shm_socket_send(int socket, const uint8_t *bytes, size_t size,
                                        const int *fds, size_t fd_count)
{
    assert(fd_count > 0 && fd_count <= SHM_FDS_MAX);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(SHM_FDS_MAX * sizeof(int))];
    } control;
    memset(&control, 0, sizeof(control));
    uint8_t copy[SHM_HELLO_SIZE];
    static_assert((int)SHM_REGION_SIZE <= (int)SHM_HELLO_SIZE, "HELLO is the longest message");
    assert(size <= sizeof(copy));
    memcpy(copy, bytes, size); /* iov_base is not const */
    struct iovec piece = { .iov_base = copy, .iov_len = size };
    struct msghdr message = {
        .msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = CMSG_SPACE(fd_count * sizeof(int)),
    };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    ssize_t sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == (ssize_t)size) {
        return RDMUX_OK;
    }
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS) {
        return RDMUX_AGAIN;
    }
    rdmux_provider_error("shm: cannot pass a descriptor to the peer: errno %d", errno);
    return errno == EPIPE || errno == ECONNRESET ? RDMUX_PEER_GONE : RDMUX_IO;
}

/* Takes the descriptors out of a received message and closes those beyond max. Returns how many the
 * message had. */
static size_t take_descriptors(struct msghdr *message, int *fds, size_t max)
{
    size_t count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
            if (count < max) {
                fds[count] = fd;
            } else {
                (void)close(fd);
            }
            count++;
        }
    }
    return count;
}

static void close_all(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        (void)close(fds[i]);
        fds[i] = -1;
    }
}

enum rdmux_status rdmux_shm_socket_receive_any(int socket, uint8_t *bytes, size_t *size,
                                               int fds[SHM_FDS_MAX], size_t *fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(SHM_FDS_MAX * sizeof(int))];
    } control;
    struct iovec pieces[] = { { .iov_base = bytes, .iov_len = *size } };
    struct msghdr message = {
        .msg_iov = pieces,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    ssize_t received = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
        return RDMUX_AGAIN;
    }
    if (received < 0) {
        rdmux_provider_error("shm: the peer has closed its socket");
        return RDMUX_PEER_GONE;
    }
    size_t count = take_descriptors(&message, fds, SHM_FDS_MAX);
    *size = (size_t)received;
    if (received == 0 && count == 0) { /* no bytes but descriptors: a message */
        rdmux_provider_error("shm: the peer has closed its socket");
        return RDMUX_PEER_GONE;
    }
    if (count <= SHM_FDS_MAX && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) {
        *fd_count = count;
        return RDMUX_OK;
    }
    close_all(fds, count < SHM_FDS_MAX ? count : SHM_FDS_MAX);
    if (count < SHM_FDS_MAX && (message.msg_flags & MSG_CTRUNC) != 0) {
        rdmux_provider_error(
            "shm: no room for the peer's descriptors; raise the limit on open files");
        return RDMUX_NO_MEMORY;
    }
    rdmux_provider_error("shm: the peer sent a malformed message: %zd bytes, %zu descriptors",
                         received, count);
    return RDMUX_PROTOCOL;
}

enum rdmux_status rdmux_shm_socket_receive(int socket, uint8_t *bytes, size_t *size, int *fds,
                                           size_t fd_count)
{
    int received[SHM_FDS_MAX] = { -1, -1, -1, -1 };
    size_t count = 0;
    enum rdmux_status status = rdmux_shm_socket_receive_any(socket, bytes, size, received, &count);
    if (status != RDMUX_OK) {
        return status;
    }
    if (count != fd_count) {
        close_all(received, count);
        rdmux_provider_error("shm: the peer sent a malformed message: %zu bytes, %zu descriptors",
                             *size, count);
        return RDMUX_PROTOCOL;
    }
    memcpy(fds, received, count * sizeof(int));
    return RDMUX_OK;
}
