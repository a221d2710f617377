/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The limit of the machine over TCP on loopback: the smallest program that does each job. It has no
 * header, check or queue that the job does not need.
 *
 *   raw_tcp pingpong SIZE SECONDS    half a round trip in us; both sides spin on their socket
 *   raw_tcp round SIZE SECONDS       a whole one
 *   raw_tcp sleep SIZE SECONDS       half a round trip; both sides sleep in epoll_wait()
 *   raw_tcp sized SIZE SECONDS       the same behind a header of 8 bytes with the size, each sent
 *                                    and received by a call of its own
 *   raw_tcp single SIZE SECONDS      messages/s, one system call for each on either side
 *   raw_tcp coalesced BATCH SECONDS  messages/s of 8 bytes with 8 bytes of header, BATCH in a send
 *   raw_tcp stream SIZE SECONDS      bytes/s of messages from one buffer into one buffer
 *   raw_tcp read SIZE SECONDS        bytes/s fetched by requests, READ_WINDOW of them under way
 *   raw_tcp requests BATCH SECONDS   requests/s of 40 bytes that are answered with 16, BATCH of
 *                                    them under way and in a send
 *   raw_tcp connect 1 SECONDS        connections/s: connect, accept, close
 *   raw_tcp hold COUNT SECONDS       the same in pairs/s: COUNT pairs of connections that stay open
 *   raw_tcp even COUNT SECONDS       the same with the ports that connect() chooses
 *
 * With a fourth argument, `system`, the socket keeps the congestion control that the system gives
 * it.
 */
#include "bench.h"

#include "api/system/system.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_WINDOW = 16,
    REQUEST = 40, /* kind, key, offset, operand: the fields of a fetch-and-add */
    ANSWER = 16,
    HEADER = 8,
    PAYLOAD = 8,
    RECEIVE_BUFFER = 256 << 10,
    LOOKS = 64, /* small messages between two reads of the clock */
};

struct link {
    struct bench *bench;
    int fd;
    int poller; /* -1: spin */
    bool has_header;
    size_t size;
    uint8_t *out;
    uint8_t *in;
};

static void wait_until_readable(const struct link *link)
{
    struct epoll_event event;
    if (link->poller >= 0 && epoll_wait(link->poller, &event, 1, -1) < 0 && errno != EINTR) {
        bench_fail("epoll_wait: %s", strerror(errno));
    }
}

static void send_all(const struct link *link, const void *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t sent = send(link->fd, (const uint8_t *)bytes + done, size - done, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) {
            bench_fail("send: %s", strerror(errno));
        }
        done += sent > 0 ? (size_t)sent : 0;
    }
}

/* Returns false if the other side has ended. */
static bool receive_all(const struct link *link, void *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = recv(link->fd, (uint8_t *)bytes + done, size - done, 0);
        if (got == 0) {
            return false;
        }
        if (got < 0) {
            if (errno != EAGAIN) {
                bench_fail("recv: %s", strerror(errno));
            }
            wait_until_readable(link);
            continue;
        }
        done += (size_t)got;
    }
    return true;
}

static void send_message(const struct link *link)
{
    const uint64_t size = link->size;
    if (link->has_header) {
        send_all(link, &size, sizeof(size));
    }
    send_all(link, link->out, link->size);
}

/* Returns false if the other side has ended. */
static bool receive_message(const struct link *link)
{
    uint64_t size = link->size;
    wait_until_readable(link);
    if (link->has_header && (!receive_all(link, &size, sizeof(size)) || size != link->size)) {
        return false;
    }
    return receive_all(link, link->in, size);
}

/* The first byte of a message says whether it is the last. */
static void ping(void *user, bool last)
{
    struct link *link = user;
    link->out[0] = last;
    send_message(link);
    (void)receive_message(link);
}

static void pong(const struct link *link)
{
    do {
        if (!receive_message(link)) {
            return;
        }
        link->out[0] = link->in[0];
        send_message(link);
    } while (link->in[0] == 0);
}

static void run_ping_pong(struct link *link, bool sleeps, bool whole)
{
    if (sleeps) {
        struct epoll_event event = { .events = EPOLLIN };
        link->poller = epoll_create1(0);
        if (link->poller < 0 || epoll_ctl(link->poller, EPOLL_CTL_ADD, link->fd, &event) != 0) {
            bench_fail("epoll: %s", strerror(errno));
        }
    }
    double value = 0;
    uint64_t rounds = 0;
    if (link->bench->side == 0) {
        value = whole ? bench_round_trips(link->bench, ping, link, &rounds)
                      : bench_ping_pong(link->bench, ping, link, &rounds);
    } else {
        bench_start(link->bench);
        pong(link);
    }
    bench_finish(link->bench, value, whole ? rounds : rounds * 2);
}

/* Side 1 has read all bytes, and reports it by a byte. */
static void end_stream(const struct link *link)
{
    uint8_t byte = 0;
    if (link->bench->side == 0) {
        shutdown(link->fd, SHUT_WR);
        receive_all(link, &byte, 1);
    } else {
        send_all(link, &byte, 1);
    }
}

static void run_stream(struct link *link, bool bytes_per_second)
{
    uint64_t count = 0;
    bench_start(link->bench);
    if (link->bench->side == 0) {
        uint64_t looks = link->size < 4096 ? LOOKS : 1;
        do {
            for (uint64_t i = 0; i < looks; i++) {
                send_all(link, link->out, link->size);
            }
            count += looks;
        } while (!bench_is_over(link->bench));
    } else {
        while (receive_all(link, link->in, link->size)) {
        }
    }
    end_stream(link);
    bench_stop(link->bench);
    double rate = (double)count / link->bench->elapsed;
    bench_finish(link->bench, bytes_per_second ? rate * (double)link->size : rate, count);
}

static void put_batch(uint8_t *out, size_t batch, uint64_t first)
{
    for (uint64_t i = 0; i < batch; i++) {
        uint64_t header = PAYLOAD;
        uint64_t payload = first + i;
        memcpy(out + i * (HEADER + PAYLOAD), &header, HEADER);
        memcpy(out + i * (HEADER + PAYLOAD) + HEADER, &payload, PAYLOAD);
    }
}

/* Takes whole messages; the rest of an incomplete one moves to the front. */
static size_t take_messages(uint8_t *in, size_t length, uint64_t *sum)
{
    size_t at = 0;
    while (length - at >= HEADER + PAYLOAD) {
        uint64_t header = 0;
        uint64_t payload = 0;
        memcpy(&header, in + at, HEADER);
        memcpy(&payload, in + at + HEADER, PAYLOAD);
        *sum += payload;
        at += HEADER + header;
    }
    memmove(in, in + at, length - at);
    return length - at;
}

static void run_coalesced(struct link *link, size_t batch)
{
    uint64_t count = 0;
    uint64_t sum = 0;
    uint8_t *out = bench_buffer(batch * (HEADER + PAYLOAD));
    uint8_t *in = bench_buffer(RECEIVE_BUFFER);
    bench_start(link->bench);
    if (link->bench->side == 0) {
        do {
            for (int i = 0; i < LOOKS; i++) {
                put_batch(out, batch, count);
                send_all(link, out, batch * (HEADER + PAYLOAD));
                count += batch;
            }
        } while (!bench_is_over(link->bench));
    } else {
        size_t length = 0;
        ssize_t got = 0;
        while ((got = recv(link->fd, in + length, RECEIVE_BUFFER - length, 0)) != 0) {
            length = take_messages(in, length + (got > 0 ? (size_t)got : 0), &sum);
        }
    }
    end_stream(link);
    bench_stop(link->bench);
    if (link->bench->side == 1 && sum == 0) {
        bench_fail("nothing came");
    }
    bench_finish(link->bench, (double)count / link->bench->elapsed, count);
}

static void run_read(struct link *link)
{
    uint8_t request[24] = { 0 };
    uint64_t asked = 0;
    uint64_t got = 0;
    bench_start(link->bench);
    if (link->bench->side == 0) {
        bool over = false;
        while (!over || got < asked) {
            while (!over && asked - got < READ_WINDOW) {
                send_all(link, request, sizeof(request));
                asked++;
            }
            receive_all(link, link->in, link->size);
            got++;
            over = over || bench_is_over(link->bench);
        }
        shutdown(link->fd, SHUT_WR);
    } else {
        while (receive_all(link, request, sizeof(request))) {
            send_all(link, link->out, link->size);
        }
    }
    bench_stop(link->bench);
    bench_finish(link->bench, (double)(got * link->size) / link->bench->elapsed, got);
}

/* The server answers all requests that have arrived. */
static void run_requests(struct link *link, size_t batch)
{
    uint8_t *requests = bench_buffer(batch * REQUEST);
    uint8_t *answers = bench_buffer(batch * ANSWER);
    uint64_t count = 0;
    bench_start(link->bench);
    if (link->bench->side == 0) {
        while (!bench_is_over(link->bench)) {
            send_all(link, requests, batch * REQUEST);
            receive_all(link, answers, batch * ANSWER);
            count += batch;
        }
        shutdown(link->fd, SHUT_WR);
    } else {
        size_t length = 0;
        ssize_t got = 0;
        while ((got = recv(link->fd, requests + length, batch * REQUEST - length, 0)) != 0) {
            length += got > 0 ? (size_t)got : 0;
            send_all(link, answers, length / REQUEST * ANSWER);
            memmove(requests, requests + length / REQUEST * REQUEST, length % REQUEST);
            length %= REQUEST;
        }
    }
    bench_stop(link->bench);
    bench_finish(link->bench, (double)count / link->bench->elapsed, count);
}

static void run_connect(struct bench *bench)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in other;
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bench->side == 1 &&
        (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 16) != 0 ||
         getsockname(listener, (struct sockaddr *)&address, &length) != 0)) {
        bench_fail("no listening socket: %s", strerror(errno));
    }
    bench_exchange(bench, &address, &other, sizeof(other));
    uint64_t count = 0;
    bool over = false;
    bench_start(bench);
    while (!over) {
        int fd = bench->side == 1 ? accept(listener, NULL, NULL) : socket(AF_INET, SOCK_STREAM, 0);
        if (bench->side == 0) {
            over = bench_is_over(bench);
            if (connect(fd, (struct sockaddr *)&other, sizeof(other)) != 0) {
                bench_fail("connect: %s", strerror(errno));
            }
            uint8_t last = over;
            uint8_t answer = 0;
            if (send(fd, &last, 1, MSG_NOSIGNAL) != 1 || recv(fd, &answer, 1, 0) != 1) {
                bench_fail("the connection broke");
            }
        } else {
            uint8_t last = 0;
            over = recv(fd, &last, 1, 0) != 1 || last != 0;
            if (send(fd, &last, 1, MSG_NOSIGNAL) != 1) {
                bench_fail("the connection broke");
            }
        }
        close(fd);
        count++;
    }
    bench_stop(bench);
    bench_finish(bench, (double)count / bench->elapsed, count);
}

/* BBR paces connections between two programs of a host by timers, at a third and more of the rate
 * of a core. This is no limit of the machine. So these sockets have no pacing, like those of
 * rdmux. */
static void avoid_pacing(int fd)
{
    char name[16] = "";
    socklen_t size = sizeof(name) - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0 && strcmp(name, "bbr") == 0 &&
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno")) != 0) {
        bench_fail("Reno cannot be had instead of BBR: %s", strerror(errno));
    }
}

/* The number of pairs decides, not the time. */
static void run_hold(struct bench *bench, size_t pairs, bool use_all_ports)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in other;
    socklen_t length = sizeof(address);
    int listener = bench->side == 1 ? socket(AF_INET, SOCK_STREAM, 0) : -1;
    if (bench->side == 1 &&
        (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1024) != 0 ||
         getsockname(listener, (struct sockaddr *)&address, &length) != 0)) {
        bench_fail("no listening socket: %s", strerror(errno));
    }
    bench_exchange(bench, &address, &other, sizeof(other));
    bench_start(bench);
    for (size_t i = 0; i < 2 * pairs; i++) {
        if (bench->side == 1) {
            if (accept(listener, NULL, NULL) < 0) {
                bench_fail("accept: %s; raise the limit on open files", strerror(errno));
            }
            continue;
        }
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (use_all_ports) {
            rdmux_socket_use_all_ports(fd);
        }
        if (fd < 0 || connect(fd, (struct sockaddr *)&other, sizeof(other)) != 0) {
            bench_fail("connection %zu: %s", i, strerror(errno));
        }
    }
    bench_meet(bench);
    bench_stop(bench);
    bench_finish(bench, (double)pairs / bench->elapsed, pairs);
}

int main(int argc, char **argv)
{
    bool is_as_set = argc == 5 && strcmp(argv[4], "system") == 0;
    if (argc != 4 && !is_as_set) {
        bench_fail("usage: raw_tcp "
                   "pingpong|round|sleep|sized|single|coalesced|stream|read|requests|connect|hold|"
                   "even "
                   "SIZE SECONDS [system]");
    }
    struct bench bench;
    size_t size = bench_size(argv[2]);
    bench_fork(&bench, strtod(argv[3], NULL), 0);
    if (strcmp(argv[1], "connect") == 0) {
        run_connect(&bench);
        return 0;
    }
    if (strcmp(argv[1], "hold") == 0 || strcmp(argv[1], "even") == 0) {
        run_hold(&bench, size, argv[1][0] == 'h');
        return 0;
    }
    struct link link = {
        .bench = &bench,
        .fd = bench_tcp_pair(&bench),
        .poller = -1,
        .size = size,
        .out = bench_buffer(size),
        .in = bench_buffer(size),
    };
    if (!is_as_set) {
        avoid_pacing(link.fd);
    }
    bench_meet(&bench);
    link.has_header = strcmp(argv[1], "sized") == 0;
    if (strcmp(argv[1], "pingpong") == 0 || strcmp(argv[1], "sleep") == 0 || link.has_header ||
        strcmp(argv[1], "round") == 0) {
        run_ping_pong(&link, argv[1][0] == 's', argv[1][0] == 'r');
    } else if (strcmp(argv[1], "single") == 0) {
        run_stream(&link, false);
    } else if (strcmp(argv[1], "coalesced") == 0) {
        run_coalesced(&link, size);
    } else if (strcmp(argv[1], "stream") == 0) {
        run_stream(&link, true);
    } else if (strcmp(argv[1], "read") == 0) {
        run_read(&link);
    } else if (strcmp(argv[1], "requests") == 0) {
        run_requests(&link, size);
    } else {
        bench_fail("there is no '%s'", argv[1]);
    }
    return 0;
}
