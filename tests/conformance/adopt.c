/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints over a socket of the program's own. */
#include "harness.h"
#include "lateness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A TCP connection between the two sides, set up without rdmux. */
static int tcp_socket(struct side *side)
{
    if (side->remote) {
        side->descriptors[side->socket] = false; /* rdmux closes it */
        return side->socket;
    }
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t length = sizeof(name);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0, "socket: %s", strerror(errno));
    if (side->is_initiator) {
        TAKE(side, &name.sin_port, sizeof(name.sin_port));
        EXPECT(connect(fd, (const struct sockaddr *)&name, length) == 0, "connect: %s",
               strerror(errno));
        return fd;
    }
    EXPECT(bind(fd, (const struct sockaddr *)&name, length) == 0 && listen(fd, 1) == 0 &&
               getsockname(fd, (struct sockaddr *)&name, &length) == 0,
           "listen: %s", strerror(errno));
    GIVE(side, &name.sin_port, sizeof(name.sin_port));
    int accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    EXPECT(accepted >= 0, "accept: %s", strerror(errno));
    (void)close(fd);
    return accepted;
}

/* Uses the harness's own socketpair, because another one between the same processes can no longer
 * be made. */
static int unix_socket(struct side *side)
{
    side->descriptors[side->socket] = false; /* rdmux closes it */
    return side->socket;
}

static void adopt(struct side *side, int fd, enum rdmux_role role)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    EXPECT_OK(rdmux_adopt(side->fabric, side->queue.cq, fd, role, &attr, side->patient_ms, &ep));
    EXPECT(ep != NULL, "RDMUX_OK without an endpoint");
    side_track(side, ep);
    check_endpoint(side, ep, &side->info);
}

/* Large messages, writes and control messages (imports) share the one socket. */
static void use_initiator(struct side *side)
{
    enum { LONG = 3 << 20 };
    uint8_t *bytes = region_make(side, MEMORY_UNREGISTERED, LONG, 0).addr;
    struct rdmux_remote *remotes[8];
    struct rdmux_token token;
    exercise(side, &side->queue, side->ep);
    TAKE(side, &token, sizeof(token));
    pattern_fill(bytes, LONG, side->seed, 0);
    EXPECT_OK(rdmux_send(side->ep, bytes, LONG, NULL, CTX(1), 0));
    for (size_t i = 0; i < COUNT_OF(remotes); i++) {
        EXPECT_STATUS(rdmux_remote_import(side->ep, &token, 0, &remotes[i]), RDMUX_IN_PROGRESS);
    }
    EXPECT_OK(rdmux_send(side->ep, bytes, MIB, NULL, CTX(2), 0));
    for (size_t i = 0; i < COUNT_OF(remotes); i++) {
        (void)WAIT(&side->queue, RDMUX_WC_REMOTE_READY, remotes[i]);
    }
    (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(1));
    (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(2));
    for (size_t i = 0; i < COUNT_OF(remotes); i++) {
        EXPECT_OK(rdmux_write(side->ep, bytes, MIB, NULL, remotes[i], 0, CTX(10 + i), 0));
    }
    for (size_t i = 0; i < COUNT_OF(remotes); i++) {
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(10 + i));
    }
    EXPECT_OK(rdmux_ep_shutdown(side->ep, side->patient_ms));
}

static void use_target(struct side *side)
{
    exercise(side, &side->queue, side->ep);
    struct region sink = region_make(side, MEMORY_REGISTERED, 3 * MIB, ACCESS_SINK);
    struct region region = region_make(side, MEMORY_ALLOCATED, MIB, RDMUX_ACCESS_REMOTE_WRITE);
    give_token(side, &region);
    (void)POST_AND_WAIT(&side->queue, rdmux_recv(side->ep, sink.addr, sink.length, sink.mr, CTX(1)),
                        RDMUX_WC_RECV, CTX(1));
    EXPECT_PATTERN(sink.addr, 3 * MIB, side->seed);
    (void)POST_AND_WAIT(&side->queue, rdmux_recv(side->ep, sink.addr, sink.length, sink.mr, CTX(2)),
                        RDMUX_WC_RECV, CTX(2));
    (void)WAIT(&side->queue, RDMUX_WC_DISCONNECTED, NULL);
    EXPECT_PATTERN(region.addr, MIB, side->seed);
}

static void unix_case(struct side *side)
{
    side_open(side, NULL);
    adopt(side, unix_socket(side), side->is_initiator ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT);
    (side->is_initiator ? use_initiator : use_target)(side);
    side_finish(side);
}

static void unix_swapped_case(struct side *side)
{
    side_open(side, NULL);
    adopt(side, unix_socket(side), side->is_initiator ? RDMUX_ROLE_ACCEPT : RDMUX_ROLE_CONNECT);
    (side->is_initiator ? use_initiator : use_target)(side);
    side_finish(side);
}

static void tcp_case(struct side *side)
{
    side_open(side, NULL);
    adopt(side, tcp_socket(side), side->is_initiator ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT);
    (side->is_initiator ? use_initiator : use_target)(side);
    side_finish(side);
}

static void tcp_swapped_case(struct side *side)
{
    side_open(side, NULL);
    adopt(side, tcp_socket(side), side->is_initiator ? RDMUX_ROLE_ACCEPT : RDMUX_ROLE_CONNECT);
    (side->is_initiator ? use_initiator : use_target)(side);
    side_finish(side);
}

/* -------------------------------------------------------------------------- a narrow connection */

enum {
    NARROW_BUFFER = 1, /* bytes; the system raises it to its minimum, some thousands */
    NARROW_STEPS = 30,
    NARROW_AT_ONCE = 64,
    NARROW_SLOT = 64,
    NARROW_POLLS = 32,
};

static uint8_t *narrow_slot(uint8_t *bytes, uint64_t number)
{
    return bytes + number % ((uint64_t)NARROW_STEPS * NARROW_AT_ONCE) * NARROW_SLOT;
}

static size_t narrow_length(uint64_t number)
{
    return 1 + (size_t)(mix64(number) % NARROW_SLOT);
}

static void narrow_open(struct side *side)
{
    const int bytes = NARROW_BUFFER;
    side_open(side, NULL);
    int fd = tcp_socket(side);
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0, "setsockopt: %s",
           strerror(errno));
    adopt(side, fd, side->is_initiator ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT);
}

/* The two sides take turns. So the bytes sent by one stop at any point, and the other polls before
 * the rest comes. */
static void narrow_initiator(struct side *side)
{
    static uint8_t bytes[(size_t)NARROW_STEPS * NARROW_AT_ONCE * NARROW_SLOT];
    narrow_open(side);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    uint64_t posted = 0;
    uint64_t done = 0;
    pattern_fill(bytes, sizeof(bytes), side->seed, 0);
    for (unsigned step = 0; step < NARROW_STEPS; step++) {
        const size_t room = side->info.send_depth < NARROW_AT_ONCE ? side->info.send_depth
                                                                   : NARROW_AT_ONCE;
        while (posted - done < room) {
            uint8_t *slot = narrow_slot(bytes, posted);
            EXPECT_OK(rdmux_write(side->ep, slot, narrow_length(posted), NULL, remote,
                                  (uint64_t)(slot - bytes), CTX(posted), 0));
            posted++;
        }
        BARRIER(side);
        BARRIER(side); /* the target has polled */
        while (queue_poll(&side->queue) > 0) {
            (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(done));
            done++;
        }
    }
    GIVE(side, &posted, sizeof(posted));
    for (; done < posted; done++) {
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(done));
    }
    (void)POST_AND_WAIT(&side->queue,
                        rdmux_send(side->ep, &posted, sizeof(posted), NULL, CTX(posted), 0),
                        RDMUX_WC_SEND, CTX(posted));
    side_finish(side);
}

static void narrow_target(struct side *side)
{
    static uint8_t expected[(size_t)NARROW_STEPS * NARROW_AT_ONCE * NARROW_SLOT];
    narrow_open(side);
    struct region region = region_make(side, MEMORY_REGISTERED, sizeof(expected),
                                       RDMUX_ACCESS_REMOTE_WRITE);
    uint64_t posted = 0;
    give_token(side, &region);
    for (unsigned step = 0; step < NARROW_STEPS; step++) {
        BARRIER(side);
        for (unsigned i = 0; i < NARROW_POLLS; i++) {
            EXPECT(queue_poll(&side->queue) == 0, "a completion at the target of writes");
        }
        BARRIER(side);
    }
    TAKE(side, &posted, sizeof(posted));
    uint64_t count = 0;
    (void)POST_AND_WAIT(&side->queue, rdmux_recv(side->ep, &count, sizeof(count), NULL, CTX(1)),
                        RDMUX_WC_RECV, CTX(1));
    EXPECT_EQUAL(count, posted);
    pattern_fill(expected, sizeof(expected), side->seed, 0);
    for (uint64_t i = 0; i < posted; i++) {
        const uint8_t *slot = narrow_slot(region.addr, i);
        const size_t length = narrow_length(i);
        EXPECT(memcmp(slot, expected + (slot - region.addr), length) == 0,
               "the bytes of write %" PRIu64 ", %zu of them, are not those that were sent", i,
               length);
        EXPECT_FILLED(slot + length, NARROW_SLOT - length, 0);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------------ without waiting */

static void adopt_later(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    side_open(side, NULL);
    EXPECT_STATUS(rdmux_adopt(side->fabric, side->queue.cq, unix_socket(side),
                              side->is_initiator ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT, &attr, 0,
                              &ep),
                  RDMUX_IN_PROGRESS);
    side_track(side, ep);
    (void)WAIT(&side->queue, RDMUX_WC_CONNECTED, NULL);
    check_endpoint(side, ep, &side->info);
    exercise(side, &side->queue, ep);
    side_finish(side);
}

/* ----------------------------------------------------------------------- bytes before and after */

/* The program has used the socket before. No bytes of rdmux are taken for the program's or the
 * reverse. If there is no path, the socket is returned unchanged, and the program's next bytes are
 * not consumed. */
static void no_path_on(struct side *side, int fd)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = CTX(1);
    char filter[RDMUX_NAME_MAX + 1] = "!";
    char word[16] = "";
    int flags = fcntl(fd, F_GETFL);
    int fd_flags = fcntl(fd, F_GETFD);
    struct timeval timeout = { .tv_sec = 7 };
    struct timeval found = { .tv_sec = 0 };
    socklen_t length = sizeof(found);
    side->descriptors[fd] = true; /* the program owns it again in the end */
    side_open(side, NULL);
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) == 0,
           "setsockopt: %s", strerror(errno));
    EXPECT(send(fd, "before", 6, 0) == 6 && recv(fd, word, 6, MSG_WAITALL) == 6 &&
               memcmp(word, "before", 6) == 0,
           "the socket does not work: %s", strerror(errno));
    if (!side->is_initiator) {
        (void)strncat(filter, side->provider, sizeof(filter) - 2);
        attr.paths = filter;
    }
    EXPECT_STATUS(rdmux_adopt(side->fabric, side->queue.cq, fd,
                              side->is_initiator ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT, &attr,
                              side->patient_ms, &ep),
                  RDMUX_NO_PATH);
    EXPECT(ep == NULL, "an endpoint after RDMUX_NO_PATH");
    /* The side that returns first writes at once, possibly before the other has returned. */
    EXPECT(send(fd, "after!", 6, MSG_NOSIGNAL) == 6, "the socket was not given back: %s",
           strerror(errno));
    EXPECT(recv(fd, word, 6, MSG_WAITALL) == 6 && memcmp(word, "after!", 6) == 0,
           "not the program's bytes: \"%.6s\" (%s)", word, strerror(errno));
    EXPECT_EQUAL(fcntl(fd, F_GETFL), flags);
    EXPECT_EQUAL(fcntl(fd, F_GETFD), fd_flags);
    EXPECT(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &found, &length) == 0 && found.tv_sec == 7,
           "SO_RCVTIMEO has changed");
    EXPECT(recv(fd, word, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK),
           "bytes that are not the program's are left on the socket");
    side_finish(side);
}

static void unix_no_path(struct side *side)
{
    no_path_on(side, side->socket);
}

static void tcp_no_path(struct side *side)
{
    int fd = tcp_socket(side);
    int before = 0;
    int after = 0;
    socklen_t length = sizeof(before);
    EXPECT(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &before, &length) == 0, "getsockopt: %s",
           strerror(errno));
    no_path_on(side, fd);
    EXPECT(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &after, &length) == 0 && after == before,
           "TCP_NODELAY has changed");
    (void)close(fd);
}

/* The program sends bytes before adopt, and the other program reads exactly these. The server peeks
 * at the first 8 bytes. */
static void peek_initiator(struct side *side)
{
    EXPECT(send(side->socket, "go", 2, 0) == 2, "send: %s", strerror(errno));
    side_open(side, NULL);
    adopt(side, unix_socket(side), RDMUX_ROLE_CONNECT);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static void peek_target(struct side *side)
{
    static const uint8_t magic[8] = { 'R', 'D', 'M', 'U', 'X', 0x01, 0x0d, 0x0a };
    uint8_t bytes[8] = { 0 };
    EXPECT(recv(side->socket, bytes, 2, MSG_WAITALL) == 2 && memcmp(bytes, "go", 2) == 0,
           "recv: %s", strerror(errno));
    ssize_t count = 0;
    while (count < 8) { /* MSG_WAITALL does not wait when peeking at a Unix socket */
        count = recv(side->socket, bytes, 8, MSG_PEEK);
        EXPECT(count > 0 && !time_is_up(), "recv: %s", strerror(errno));
    }
    EXPECT(memcmp(bytes, magic, sizeof(magic)) == 0, "HELLO begins with other bytes");
    side_open(side, NULL);
    adopt(side, unix_socket(side), RDMUX_ROLE_ACCEPT);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

/* --------------------------------------------------------------------------- refused and failed */

static void untouched(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *ep = CTX(1);
    int ends[2];
    side_open(side, NULL);
    struct rdmux_fabric *fabric = side->fabric;
    struct rdmux_cq *cq = side->queue.cq;
    EXPECT_STATUS(rdmux_adopt(fabric, cq, -1, RDMUX_ROLE_CONNECT, &attr, 100, &ep), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_adopt(fabric, cq, side->socket, (enum rdmux_role)7, &attr, 100, &ep),
                  RDMUX_INVALID);
    EXPECT_STATUS(rdmux_adopt(fabric, NULL, side->socket, RDMUX_ROLE_CONNECT, &attr, 100, &ep),
                  RDMUX_INVALID);
    EXPECT(ep == NULL, "an endpoint after RDMUX_INVALID");
    attr.paths = "nonsense";
    EXPECT_STATUS(rdmux_adopt(fabric, cq, side->socket, RDMUX_ROLE_CONNECT, &attr, 100, &ep),
                  RDMUX_INVALID);
    attr.paths = side->provider;

    /* not a stream socket */
    EXPECT(pipe(ends) == 0, "pipe: %s", strerror(errno));
    EXPECT_STATUS(rdmux_adopt(fabric, cq, ends[0], RDMUX_ROLE_CONNECT, &attr, 100, &ep),
                  RDMUX_INVALID);
    EXPECT(fcntl(ends[0], F_GETFD) >= 0, "RDMUX_INVALID closed the descriptor");
    (void)close(ends[0]);
    (void)close(ends[1]);

    /* the socket is unchanged */
    char byte = 0;
    EXPECT(send(side->socket, "u", 1, 0) == 1 && recv(side->socket, &byte, 1, 0) == 1 && byte == 'u',
           "RDMUX_INVALID touched the socket: %s", strerror(errno));
    BARRIER(side);

    /* a silent peer: time-out, and the socket is closed */
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair: %s",
           strerror(errno));
    struct stopwatch watch;
    stopwatch_start(&watch);
    EXPECT_STATUS(rdmux_adopt(fabric, cq, ends[0], RDMUX_ROLE_ACCEPT, &attr, 100, &ep),
                  RDMUX_TIMED_OUT);
    expect_took(&watch, "an adoption of 100 ms", 100, 100 + UINT64_C(300) * side->patience);
    while (recv(ends[1], &byte, 1, 0) > 0) { /* the bytes sent, then the end */
    }
    (void)close(ends[1]);

    /* a peer that hangs up */
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair: %s",
           strerror(errno));
    (void)close(ends[1]);
    EXPECT_STATUS(rdmux_adopt(fabric, cq, ends[0], RDMUX_ROLE_CONNECT, &attr, side->patient_ms, &ep),
                  RDMUX_PEER_GONE);
    side_finish(side);
}

/* An adopted endpoint that loses its one socket ends: there is no address to reconnect to. */
static void lost_initiator(struct side *side)
{
    uint8_t byte = 0;
    side_open(side, NULL);
    adopt(side, unix_socket(side), RDMUX_ROLE_CONNECT);
    EXPECT_OK(rdmux_recv(side->ep, &byte, 1, NULL, CTX(1)));
    BARRIER(side);
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.opcode == RDMUX_WC_RECV &&
               (wc.status == RDMUX_PEER_GONE || wc.status == RDMUX_FLUSHED),
           "got %s", wc_text(&wc));
    (void)WAIT_STATUS(&side->queue, RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);
    side_finish(side);
}

static void lost_target(struct side *side)
{
    side_open(side, NULL);
    /* A second descriptor of the same socket, used to shut it down without the library's
     * knowledge. */
    int other = fcntl(side->socket, F_DUPFD_CLOEXEC, 0);
    EXPECT(other >= 0, "dup: %s", strerror(errno));
    side->descriptors[other] = true;
    adopt(side, unix_socket(side), RDMUX_ROLE_ACCEPT);
    BARRIER(side);
    EXPECT(shutdown(other, SHUT_RDWR) == 0, "shutdown: %s", strerror(errno));
    (void)WAIT_STATUS(&side->queue, RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);
    side_finish(side);
    (void)close(other);
}

static const struct conformance_case cases[] = {
    { "N.16", "a Unix socketpair can be adopted, and control frames and data share it",
      NEEDS_SEND | NEEDS_WRITE, 0, CASE_ONE_HOST, unix_case, unix_case },
    { "N.16", "the roles on an adopted Unix socket may be the other way round",
      NEEDS_SEND | NEEDS_WRITE, 0, CASE_ONE_HOST, unix_swapped_case, unix_swapped_case },
    { "N.16", "a TCP connection of the program can be adopted", NEEDS_SEND | NEEDS_WRITE, 0, 0,
      tcp_case, tcp_case },
    { "N.16", "the roles on an adopted TCP connection may be the other way round",
      NEEDS_SEND | NEEDS_WRITE, 0, 0, tcp_swapped_case, tcp_swapped_case },
    { "N.16, 1.1, 2.3",
      "thousands of small writes over an adopted connection that takes little at a time arrive as "
      "they "
      "were sent",
      NEEDS_SEND | NEEDS_WRITE, 0, 0, narrow_initiator, narrow_target },
    { "N.16, 11.2", "adopt without waiting ends with CONNECTED", 0, 0, 0, adopt_later, adopt_later },
    { "N.17", "NO_PATH gives a Unix socket back as it was, with no byte eaten or left over", 0, 0,
      CASE_ONE_HOST, unix_no_path, unix_no_path },
    { "N.17", "NO_PATH gives a TCP socket back as it was, with no byte eaten or left over", 0, 0, 0,
      tcp_no_path, tcp_no_path },
    { "N.16",
      "the program may use the socket before, and peek at the eight bytes that HELLO begins with",
      0, 0, 0, peek_initiator, peek_target },
    { "N.17, 11.3, -N.17",
      "adopt leaves the socket alone if the call is INVALID, and closes it if the other side is "
      "silent or gone",
      0, 0, 0, untouched, untouched },
    { "N.16, 8.4, -N.16", "an adopted endpoint that loses its socket ends with PEER_GONE", 0, 0, 0,
      lost_initiator, lost_target },
};

const struct suite adopt_suite = { "adopt", cases, COUNT_OF(cases) };
