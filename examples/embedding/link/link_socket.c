/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Links over TCP sockets. */
#include "link_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct link {
    int fd;
};

struct link_listener {
    int fd;
};

static struct link *link_of(int fd)
{
    static const int on = 1;
    struct link *link = fd >= 0 ? malloc(sizeof(*link)) : NULL;
    if (link != NULL) {
        link->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    } else if (fd >= 0) {
        close(fd);
    }
    return link;
}

/* Returns a socket that listens, or is connected; -1: errno. */
static int open_socket(const char *address, bool listens)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = listens ? AI_PASSIVE : 0 };
    struct addrinfo *found = NULL;
    char host[LINK_ADDRESS_MAX];
    const char *port = strrchr(address, ':');
    int fd = -1;
    if (port == NULL || (size_t)(port - address) >= sizeof(host)) {
        errno = EINVAL;
        return -1;
    }
    memcpy(host, address, (size_t)(port - address));
    host[port - address] = '\0';
    if (getaddrinfo(host, port + 1, &hints, &found) != 0) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (listens ? bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 64) != 0
                            : connect(fd, found->ai_addr, found->ai_addrlen) != 0)) {
        int why = errno;
        close(fd);
        errno = why;
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

bool link_start(void)
{
    return true;
}

void link_stop(void)
{
}

struct link_listener *link_listen(const char *address, char text[LINK_ADDRESS_MAX])
{
    struct link_listener *listener = malloc(sizeof(*listener));
    struct sockaddr_storage bound;
    socklen_t size = sizeof(bound);
    char host[LINK_ADDRESS_MAX - 8];
    char port[8];
    if (listener == NULL) {
        return NULL;
    }
    listener->fd = open_socket(address, true);
    if (listener->fd < 0 || getsockname(listener->fd, (struct sockaddr *)&bound, &size) != 0 ||
        getnameinfo((struct sockaddr *)&bound, size, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        link_unlisten(listener);
        return NULL;
    }
    snprintf(text, LINK_ADDRESS_MAX, "%s:%s", host, port);
    return listener;
}

void link_unlisten(struct link_listener *listener)
{
    if (listener->fd >= 0) {
        close(listener->fd);
    }
    free(listener);
}

struct link *link_accept(struct link_listener *listener)
{
    int fd;
    do {
        fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    return link_of(fd);
}

struct link *link_connect(const char *address)
{
    return link_of(open_socket(address, false));
}

bool link_write(struct link *link, struct iovec *pieces, int count)
{
    int at = 0;
    while (at < count) {
        struct msghdr message = { .msg_iov = pieces + at, .msg_iovlen = (size_t)(count - at) };
        ssize_t sent = sendmsg(link->fd, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        size_t done = sent > 0 ? (size_t)sent : 0;
        while (at < count && done >= pieces[at].iov_len) {
            done -= pieces[at++].iov_len;
        }
        if (at < count) {
            pieces[at].iov_base = (char *)pieces[at].iov_base + done;
            pieces[at].iov_len -= done;
        }
    }
    return true;
}

long link_read(struct link *link, void *bytes, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t got = recv(link->fd, (char *)bytes + done, length - done, MSG_WAITALL);
        if (got == 0) {
            break;
        }
        if (got < 0 && errno != EINTR) {
            return -1;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return (long)done;
}

const char *link_over(const struct link *link)
{
    (void)link;
    return "socket";
}

void link_close(struct link *link)
{
    if (link != NULL) {
        close(link->fd);
    }
    free(link);
}

const char *link_error(void)
{
    return strerror(errno);
}

int link_fd(const struct link *link)
{
    return link->fd;
}
