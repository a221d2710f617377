/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "bench.h"

#include "tools/stats.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    WARM_UP_ROUNDS = 1000,
    SKIPPED = 77,
};

struct bench_shared {
    _Atomic uint64_t server_cpu_ns;
    pid_t child;
    _Alignas(64) uint8_t memory[];
};

static struct bench *running; /* bench_fail() ends its child */

static void end_child(void)
{
    if (running != NULL && running->side == 0 && running->shared != NULL &&
        running->shared->child > 0) {
        kill(running->shared->child, SIGKILL);
    }
}

void bench_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    end_child();
    _exit(1);
}

void bench_skip(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: skipped: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    end_child();
    _exit(SKIPPED);
}

/* Pins this process to processor number `index` of those that it may use, or to the last of
 * them. */
static void pin(const cpu_set_t *allowed, int index)
{
    int last = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE && index >= 0; cpu++) {
        if (CPU_ISSET((unsigned)cpu, allowed)) {
            last = cpu;
            index--;
        }
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((unsigned)last, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        bench_fail("cannot be pinned to processor %d: %s", last, strerror(errno));
    }
}

void bench_pin(int index)
{
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    pin(&allowed, index);
}

void bench_alone(struct bench *bench, double seconds)
{
    *bench = (struct bench){ .seconds = seconds, .channel = -1 };
    bench_pin(0);
}

void bench_fork(struct bench *bench, double seconds, size_t shared_size)
{
    *bench = (struct bench){ .seconds = seconds };
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof(allowed), &allowed);
    size_t length = (sizeof(struct bench_shared) + shared_size + PAGE) & ~(size_t)(PAGE - 1);
    bench->shared = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (bench->shared == MAP_FAILED) {
        bench_fail("no memory for %zu bytes", length);
    }
    memset(bench->shared, 0, length);
    int channel[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, channel) != 0) {
        bench_fail("socketpair: %s", strerror(errno));
    }
    running = bench;
    pid_t parent = getpid();
    pid_t child = fork();
    if (child < 0) {
        bench_fail("fork: %s", strerror(errno));
    }
    bench->side = child == 0 ? 1 : 0;
    bench->channel = channel[bench->side];
    close(channel[1 - bench->side]);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
    } else {
        bench->shared->child = child;
    }
    pin(&allowed, bench->side);
}

void *bench_memory(const struct bench *bench)
{
    return bench->shared->memory;
}

void bench_exchange(const struct bench *bench, const void *mine, void *theirs, size_t size)
{
    size_t done = 0;
    if (send(bench->channel, mine, size, MSG_NOSIGNAL) != (ssize_t)size) {
        bench_fail("the other side has ended");
    }
    while (done < size) {
        ssize_t got = read(bench->channel, (char *)theirs + done, size - done);
        if (got <= 0) {
            bench_fail("the other side has ended");
        }
        done += (size_t)got;
    }
}

void bench_meet(const struct bench *bench)
{
    char mine = 0;
    char theirs = 0;
    bench_exchange(bench, &mine, &theirs, 1);
}

void bench_start(struct bench *bench)
{
    bench->cpu_start_ns = timer_cpu_ns();
    bench->start_ns = timer_clock_ns();
}

void bench_stop(struct bench *bench)
{
    bench->elapsed = (double)(timer_clock_ns() - bench->start_ns) / 1e9;
    bench->cpu_ns = timer_cpu_ns() - bench->cpu_start_ns;
}

static double median_round_us(struct bench *bench, void (*round)(void *user, bool last), void *user,
                              uint64_t *rounds)
{
    struct stats *stats = malloc(sizeof(*stats));
    if (stats == NULL) {
        bench_fail("out of memory");
    }
    struct timer timer;
    timer_use_clock(&timer);
    stats_begin(stats);
    uint64_t before = timer_ticks(&timer);
    for (int i = 0; i < WARM_UP_ROUNDS; i++) {
        round(user, false);
        uint64_t now = timer_ticks(&timer);
        stats_add(stats, now - before);
        before = now;
    }
    double usual_ns = stats_quantile(stats, 0.5);
    uint64_t group = timer_choose(&timer, usual_ns);
    stats_begin(stats);
    bench_start(bench);
    uint64_t limit = (uint64_t)(bench->seconds * 1e9 / timer.ns_per_tick);
    uint64_t start = timer_ticks(&timer);
    uint64_t done = 0;
    before = start;
    while (before - start < limit) {
        for (uint64_t i = 0; i < group; i++) {
            round(user, false);
        }
        uint64_t now = timer_ticks(&timer);
        stats_add(stats, (now - before) / group);
        before = now;
        done += group;
    }
    bench_stop(bench);
    round(user, true);
    *rounds = done;
    double median_us = stats_quantile(stats, 0.5) * timer.ns_per_tick / 1e3;
    free(stats);
    return median_us;
}

double bench_ping_pong(struct bench *bench, void (*round)(void *user, bool last), void *user,
                       uint64_t *rounds)
{
    return median_round_us(bench, round, user, rounds) / 2;
}

double bench_round_trips(struct bench *bench, void (*round)(void *user, bool last), void *user,
                         uint64_t *rounds)
{
    return median_round_us(bench, round, user, rounds);
}

void bench_finish(struct bench *bench, double value, uint64_t operations)
{
    if (bench->side == 1) {
        atomic_store(&bench->shared->server_cpu_ns, timer_cpu_ns() - bench->cpu_start_ns);
        _exit(0);
    }
    uint64_t cpu_ns = bench->cpu_ns;
    if (bench->shared != NULL) {
        int status = 0;
        pid_t child = bench->shared->child;
        bench->shared->child = 0;
        if (waitpid(child, &status, 0) != child || status != 0) {
            bench_fail("the other side failed");
        }
        cpu_ns += atomic_load(&bench->shared->server_cpu_ns);
    }
    printf("{\"value\":%.6g,\"cpu_seconds\":%.4f,\"operations\":%llu,\"seconds\":%.4f}\n", value,
           (double)cpu_ns / 1e9, (unsigned long long)operations, bench->elapsed);
}

static int listen_on_loopback(struct sockaddr_in *address)
{
    socklen_t length = sizeof(*address);
    *address = (struct sockaddr_in){ .sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)address, length) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)address, &length) != 0) {
        bench_fail("no listening socket on 127.0.0.1: %s", strerror(errno));
    }
    return fd;
}

int bench_tcp_pair(const struct bench *bench)
{
    struct sockaddr_in address = { 0 };
    struct sockaddr_in other;
    int listener = bench->side == 1 ? listen_on_loopback(&address) : -1;
    bench_exchange(bench, &address, &other, sizeof(other));
    int fd = -1;
    if (bench->side == 1) {
        fd = accept(listener, NULL, NULL);
        close(listener);
    } else {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&other, sizeof(other)) != 0) {
            bench_fail("connect: %s", strerror(errno));
        }
    }
    int one = 1;
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
        bench_fail("no connection over loopback: %s", strerror(errno));
    }
    return fd;
}

uint16_t bench_free_port(void)
{
    struct sockaddr_in address;
    close(listen_on_loopback(&address));
    return ntohs(address.sin_port);
}

size_t bench_size(const char *text)
{
    char *end = NULL;
    unsigned long value = strtoul(text, &end, 10);
    if (*end == 'K') {
        value <<= 10;
        end++;
    } else if (*end == 'M') {
        value <<= 20;
        end++;
    }
    if (end == text || *end != '\0' || value == 0) {
        bench_fail("'%s' is no size; say 8, 64K or 1M", text);
    }
    return value;
}

void *bench_buffer(size_t size)
{
    void *bytes = NULL;
    if (posix_memalign(&bytes, PAGE, size) != 0) {
        bench_fail("no memory for %zu bytes", size);
    }
    memset(bytes, 1, size);
    return bytes;
}
