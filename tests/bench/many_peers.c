/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Measures a server with many connections: one cq and one SRQ, or one epoll descriptor, and at most
 * 64 client processes. Each connection has one request of 64 bytes outstanding, and the server
 * answers with 64 bytes. The server has the second processor, the clients have the first.
 *
 *   many_peers epoll CONNECTIONS SECONDS        plain TCP: epoll_wait(), recv() and send()
 *   many_peers tcp|shm CONNECTIONS SECONDS      rdmux over this path
 *   many_peers idle-tcp|idle-shm CONNECTIONS SECONDS
 *
 * The value is requests/s; cpu_us is the server's CPU time of a request, in us. The idle modes send
 * nothing: the value is the server's CPU time in percent of a processor, and clients_percent that of
 * all clients together. Measure for a liveness time, 10 s, or longer.
 */
#include "bench.h"
#include "listener_reserve.h"

#include <rdmux/rdmux.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SIZE = 64,
    PROCESSES_MAX = 64,
    EVENTS = 64,
    UNDER_WAY = 4,             /* connections that a client sets up at a time */
    RECEIVES_EACH = 4,         /* in the SRQ */
    WARM_UP_EACH = 4,          /* requests of a connection before the measurement */
    RESERVED_DESCRIPTORS = 64, /* of a process, besides its connections */
    RESERVED_BY_SHM = 1024,    /* besides, for the set-ups under way of all clients */
    DEPTH = 8,
};

enum kind { KIND_EPOLL, KIND_RDMUX };

struct mode {
    const char *name;
    enum kind kind;
    const char *paths;
    bool is_idle;
    long descriptors_each; /* of a connection, at the server */
};

static const struct mode modes[] = {
    { "epoll", KIND_EPOLL, NULL, false, 1 },    { "tcp", KIND_RDMUX, "tcp", false, 2 },
    { "shm", KIND_RDMUX, "shm", false, 2 },     { "idle-tcp", KIND_RDMUX, "tcp", true, 2 },
    { "idle-shm", KIND_RDMUX, "shm", true, 2 },
};

/* Shared by all processes. */
struct board {
    char address[RDMUX_ADDRESS_MAX];
    uint16_t port;
    _Atomic uint32_t connected; /* clients that have all their connections */
    _Atomic uint32_t failed;
    _Atomic uint32_t has_address;
};

struct server {
    const struct mode *mode;
    struct board *board;
    size_t connections;
    double seconds;
    size_t client_count;
    pid_t clients[PROCESSES_MAX];
    int go; /* a pipe; closing it lets the clients begin */
};

static struct server server = { .go = -1 };

static void end_clients(void)
{
    for (size_t i = 0; i < server.client_count; i++) {
        (void)kill(server.clients[i], SIGKILL);
    }
    for (size_t i = 0; i < server.client_count; i++) {
        (void)waitpid(server.clients[i], NULL, 0);
    }
}

/* Of the server: ends the clients, too. Of a client: tells the server. */
static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "many_peers: %s: %s\n", what, why);
    if (server.board != NULL) {
        atomic_store(&server.board->failed, 1);
    }
    end_clients();
    _exit(1);
}

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fail(what, rdmux_last_error());
    }
}

static void must_call(bool is_done, const char *what)
{
    if (!is_done) {
        fail(what, strerror(errno));
    }
}

static uint64_t cpu_ns(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000U +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000U;
}

/* ------------------------------------------------------------------------------- measurement */

/* The server counts its requests; the clock is read with each batch of them. */
struct measurement {
    uint64_t warm_up; /* requests before it begins */
    uint64_t requests;
    uint64_t first;
    uint64_t start_ns;
    uint64_t cpu_start_ns;
};

static void check_clients(void)
{
    if (atomic_load_explicit(&server.board->failed, memory_order_relaxed) != 0) {
        fail("a client", "failed, see above");
    }
}

static _Noreturn void report(double value, double cpu_us, double others, uint64_t operations,
                             uint64_t cpu, double seconds)
{
    printf("{\"value\":%.6g,\"cpu_us\":%.4g,\"clients_percent\":%.4g,\"connections\":%zu,"
           "\"operations\":%llu,\"cpu_seconds\":%.6f,\"seconds\":%.6f}\n",
           value, cpu_us, others, server.connections, (unsigned long long)operations,
           (double)cpu / 1e9, seconds);
    (void)fflush(stdout);
    end_clients();
    _exit(0);
}

/* Counts a batch of requests. Ends the program when the time is over. */
static void count_requests(struct measurement *at, size_t count)
{
    at->requests += count;
    if (at->start_ns == 0) {
        if (at->requests >= at->warm_up) {
            at->first = at->requests;
            at->cpu_start_ns = cpu_ns();
            at->start_ns = timer_clock_ns();
        }
        return;
    }
    uint64_t now = timer_clock_ns();
    double seconds = (double)(now - at->start_ns) / 1e9;
    if (seconds >= server.seconds) {
        uint64_t cpu = cpu_ns() - at->cpu_start_ns;
        uint64_t done = at->requests - at->first;
        report((double)done / seconds, (double)cpu / 1e3 / (double)(done > 0 ? done : 1), 0, done,
               cpu, seconds);
    }
}

static uint64_t clients_cpu_ns(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < server.client_count; i++) {
        clockid_t clock;
        struct timespec time;
        if (clock_getcpuclockid(server.clients[i], &clock) == 0 &&
            clock_gettime(clock, &time) == 0) {
            sum += (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
        }
    }
    return sum;
}

/* ------------------------------------------------------------------------------------- rdmux */

struct side {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
};

static void open_side(struct side *side)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.paths = server.mode->paths;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT;
    must(rdmux_fabric_open(&attr, &side->fabric), "rdmux_fabric_open");
    must(rdmux_cq_create(side->fabric, NULL, &side->cq), "rdmux_cq_create");
}

static void check_entry(const struct rdmux_wc *wc)
{
    if (wc->status != RDMUX_OK) {
        fail(rdmux_wc_opcode_name(wc->opcode), rdmux_status_name((enum rdmux_status)wc->status));
    }
}

static void idle(struct side *side)
{
    uint64_t start_ns = timer_clock_ns();
    uint64_t cpu_start = cpu_ns();
    uint64_t clients_start = clients_cpu_ns();
    uint64_t now = start_ns;
    while ((double)(now - start_ns) < server.seconds * 1e9) {
        struct rdmux_wc wc;
        size_t count = 0;
        int left_ms = (int)(server.seconds * 1e3 - (double)(now - start_ns) / 1e6) + 1;
        enum rdmux_status status = rdmux_cq_wait(side->cq, &wc, 1, left_ms, &count);
        if (status != RDMUX_TIMED_OUT) {
            must(status, "rdmux_cq_wait");
            fail("an idle endpoint has an event", rdmux_wc_opcode_name(wc.opcode));
        }
        now = timer_clock_ns();
    }
    uint64_t cpu = cpu_ns() - cpu_start;
    double seconds = (double)(now - start_ns) / 1e9;
    report((double)cpu / 1e7 / seconds, 0,
           (double)(clients_cpu_ns() - clients_start) / 1e7 / seconds, 0, cpu, seconds);
}

/* The board is plain shared memory, and a client that dies writes nothing there: so this looks again
 * and again, before anything is measured. */
static void wait_for_clients(void)
{
    while (atomic_load(&server.board->connected) < server.client_count) {
        check_clients();
        const struct timespec moment = { .tv_nsec = 1000000 };
        (void)nanosleep(&moment, NULL);
    }
}

static struct rdmux_srq *make_srq(const struct side *side)
{
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    struct rdmux_srq *srq = NULL;
    attr.depth = (uint32_t)server.connections * RECEIVES_EACH;
    must(rdmux_srq_create(side->fabric, side->cq, &attr, &srq), "rdmux_srq_create");
    uint8_t *buffers = calloc(attr.depth, SIZE);
    if (buffers == NULL) {
        fail("buffers", "out of memory");
    }
    for (uint32_t i = 0; i < attr.depth; i++) {
        uint8_t *buffer = buffers + (size_t)i * SIZE;
        must(rdmux_srq_recv(srq, buffer, SIZE, NULL, buffer), "rdmux_srq_recv");
    }
    return srq;
}

static void serve_rdmux(void)
{
    struct side side;
    struct rdmux_listener *listener = NULL;
    struct measurement at = { .warm_up = server.connections * WARM_UP_EACH };
    open_side(&side);
    struct rdmux_srq *srq = make_srq(&side);
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.srq = srq;
    attr.send_depth = DEPTH;
    must(rdmux_listen(side.fabric, "127.0.0.1:0", NULL, &listener), "rdmux_listen");
    must(rdmux_listener_address(listener, server.board->address, sizeof(server.board->address)),
         "rdmux_listener_address");
    atomic_store(&server.board->has_address, 1);
    for (size_t i = 0; i < server.connections;) {
        struct rdmux_ep *ep = NULL;
        enum rdmux_status status = rdmux_accept(listener, side.cq, &attr, 1000, &ep);
        check_clients();
        if (status != RDMUX_TIMED_OUT) {
            must(status, "rdmux_accept");
            i++;
        }
    }
    wait_for_clients();
    if (server.mode->is_idle) {
        idle(&side);
    }
    (void)close(server.go);
    for (;;) {
        struct rdmux_wc wc[EVENTS];
        size_t count = 0;
        must(rdmux_cq_wait(side.cq, wc, EVENTS, -1, &count), "rdmux_cq_wait");
        for (size_t i = 0; i < count; i++) {
            check_entry(&wc[i]);
            must(rdmux_send(wc[i].ep, wc[i].context, SIZE, NULL, NULL,
                            RDMUX_INLINE | RDMUX_UNSIGNALED),
                 "rdmux_send");
            must(rdmux_srq_recv(srq, wc[i].context, SIZE, NULL, wc[i].context), "rdmux_srq_recv");
        }
        count_requests(&at, count);
    }
}

/* A connection of a client. */
struct caller {
    struct rdmux_ep *ep;
    uint8_t request[SIZE];
    uint8_t answer[SIZE];
};

static void ask(struct caller *caller)
{
    must(rdmux_recv(caller->ep, caller->answer, SIZE, NULL, caller), "rdmux_recv");
    must(rdmux_send(caller->ep, caller->request, SIZE, NULL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED),
         "rdmux_send");
}

static void connect_all(const struct side *side, struct caller *callers, size_t count)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    size_t started = 0;
    size_t connected = 0;
    attr.send_depth = DEPTH;
    attr.recv_depth = DEPTH;
    while (connected < count) {
        for (; started < count && started - connected < UNDER_WAY; started++) {
            enum rdmux_status status = rdmux_connect(side->fabric, side->cq, server.board->address,
                                                     &attr, 0, &callers[started].ep);
            if (status != RDMUX_IN_PROGRESS) {
                must(status, "rdmux_connect");
                connected++;
            }
        }
        struct rdmux_wc wc[EVENTS];
        size_t got = 0;
        must(rdmux_cq_wait(side->cq, wc, EVENTS, -1, &got), "rdmux_cq_wait");
        for (size_t i = 0; i < got; i++) {
            check_entry(&wc[i]);
            connected += wc[i].opcode == RDMUX_WC_CONNECTED ? 1 : 0;
        }
    }
}

static void wait_for_go(int go)
{
    char none;
    atomic_fetch_add(&server.board->connected, 1);
    while (read(go, &none, 1) < 0 && errno == EINTR) {
    }
}

static _Noreturn void call_rdmux(size_t count, int go)
{
    struct side side;
    struct caller *callers = calloc(count, sizeof(*callers));
    if (callers == NULL) {
        fail("connections", "out of memory");
    }
    open_side(&side);
    connect_all(&side, callers, count);
    if (server.mode->is_idle) {
        atomic_fetch_add(&server.board->connected, 1);
    } else {
        wait_for_go(go);
        for (size_t i = 0; i < count; i++) {
            ask(&callers[i]);
        }
    }
    for (;;) {
        struct rdmux_wc wc[EVENTS];
        size_t got = 0;
        must(rdmux_cq_wait(side.cq, wc, EVENTS, -1, &got), "rdmux_cq_wait");
        for (size_t i = 0; i < got; i++) {
            check_entry(&wc[i]);
            ask(wc[i].context);
        }
    }
}

/* ----------------------------------------------------------------------------------- plain TCP */

static void watch(int poller, int fd)
{
    const int on = 1;
    struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
    must_call(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
    must_call(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

/* Answers, or asks again, on each socket that has a message. Returns the number of messages. */
static size_t exchange(int poller)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(poller, events, EVENTS, -1);
    must_call(count >= 0 || errno == EINTR, "epoll_wait");
    size_t done = 0;
    for (int i = 0; i < count; i++) {
        uint8_t message[SIZE];
        int fd = events[i].data.fd;
        ssize_t got = recv(fd, message, SIZE, MSG_DONTWAIT);
        if (got != SIZE) { /* loopback splits no message of 64 bytes */
            fail("recv", got < 0 ? strerror(errno) : "a part of a message, or its end");
        }
        must_call(send(fd, message, SIZE, MSG_DONTWAIT | MSG_NOSIGNAL) == SIZE, "send");
        done++;
    }
    return done;
}

static void serve_epoll(void)
{
    struct measurement at = { .warm_up = server.connections * WARM_UP_EACH };
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof(address);
    int poller = epoll_create1(EPOLL_CLOEXEC);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must_call(poller >= 0 && listener >= 0, "socket");
    must_call(bind(listener, (struct sockaddr *)&address, size) == 0 &&
                  listen(listener, SOMAXCONN) == 0 &&
                  getsockname(listener, (struct sockaddr *)&address, &size) == 0,
              "listen");
    server.board->port = address.sin_port;
    atomic_store(&server.board->has_address, 1);
    for (size_t i = 0; i < server.connections; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        must_call(fd >= 0, "accept");
        watch(poller, fd);
    }
    wait_for_clients();
    (void)close(server.go);
    for (;;) {
        count_requests(&at, exchange(poller));
    }
}

static _Noreturn void call_epoll(size_t count, int go)
{
    const struct sockaddr_in address = { .sin_family = AF_INET,
                                         .sin_port = server.board->port,
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const uint8_t message[SIZE] = { 0 };
    int *fds = calloc(count, sizeof(*fds));
    int poller = epoll_create1(EPOLL_CLOEXEC);
    must_call(fds != NULL && poller >= 0, "epoll_create1");
    for (size_t i = 0; i < count; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        must_call(fds[i] >= 0, "socket");
        must_call(connect(fds[i], (const struct sockaddr *)&address, sizeof(address)) == 0,
                  "connect");
        watch(poller, fds[i]);
    }
    wait_for_go(go);
    for (size_t i = 0; i < count; i++) {
        must_call(send(fds[i], message, SIZE, MSG_NOSIGNAL) == SIZE, "send");
    }
    for (;;) {
        (void)exchange(poller);
    }
}

/* ---------------------------------------------------------------------------------- processes */

/* Raises the limit of descriptors, which the clients inherit. Reduces the connections to what the
 * hard limit allows. */
static void make_room(void)
{
    struct rlimit files;
    must_call(getrlimit(RLIMIT_NOFILE, &files) == 0, "getrlimit");
    files.rlim_cur = files.rlim_max;
    must_call(setrlimit(RLIMIT_NOFILE, &files) == 0, "setrlimit");
    bool is_shm = server.mode->paths != NULL && strcmp(server.mode->paths, "shm") == 0;
    rlim_t reserved = is_shm ? RESERVED_BY_SHM : RESERVED_DESCRIPTORS;
    if (server.mode->kind == KIND_RDMUX) {
        reserved += listener_reserve(files.rlim_cur);
    }
    size_t most = files.rlim_cur < reserved
                      ? 0
                      : (size_t)(files.rlim_cur - reserved) / (size_t)server.mode->descriptors_each;
    if (server.connections > most) {
        fprintf(stderr,
                "many_peers: %zu of %zu connections, as a process may have %llu descriptors; raise "
                "the hard limit (ulimit -Hn)\n",
                most, server.connections, (unsigned long long)files.rlim_cur);
        server.connections = most;
    }
    if (server.connections == 0) {
        fail("connections", "none is possible");
    }
}

static _Noreturn void run_client(size_t count, int go, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    server.client_count = 0; /* its siblings are the parent's */
    bench_pin(0);
    while (atomic_load(&server.board->has_address) == 0) { /* as in wait_for_clients() */
        const struct timespec moment = { .tv_nsec = 1000000 };
        (void)nanosleep(&moment, NULL);
    }
    if (server.mode->kind == KIND_EPOLL) {
        call_epoll(count, go);
    }
    call_rdmux(count, go);
}

static void start_clients(void)
{
    int go[2];
    must_call(pipe(go) == 0, "pipe");
    size_t processes = server.connections < PROCESSES_MAX ? server.connections : PROCESSES_MAX;
    pid_t parent = getpid();
    for (size_t i = 0; i < processes; i++) {
        size_t count = server.connections / processes +
                       (i < server.connections % processes ? 1 : 0);
        pid_t child = fork();
        must_call(child >= 0, "fork");
        if (child == 0) {
            (void)close(go[1]);
            run_client(count, go[0], parent);
        }
        server.clients[server.client_count++] = child;
    }
    (void)close(go[0]);
    server.go = go[1];
    bench_pin(1);
}

int main(int argc, char **argv)
{
    const struct mode *mode = NULL;
    for (size_t i = 0; argc == 4 && i < sizeof(modes) / sizeof(modes[0]); i++) {
        mode = strcmp(argv[1], modes[i].name) == 0 ? &modes[i] : mode;
    }
    long connections = argc == 4 ? strtol(argv[2], NULL, 10) : 0;
    double seconds = argc == 4 ? strtod(argv[3], NULL) : 0;
    if (mode == NULL || connections < 1 || seconds <= 0) {
        fprintf(stderr, "usage: many_peers epoll|tcp|shm|idle-tcp|idle-shm CONNECTIONS SECONDS\n");
        return 2;
    }
    server.mode = mode;
    server.connections = (size_t)connections;
    server.seconds = seconds;
    make_room();
    void *board = mmap(NULL, sizeof(*server.board), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must_call(board != MAP_FAILED, "mmap");
    server.board = board;
    start_clients();
    if (mode->kind == KIND_EPOLL) {
        serve_epoll();
    } else {
        serve_rdmux();
    }
    return 0;
}
