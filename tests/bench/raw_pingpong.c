/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The limit of the machine for an 8-byte ping-pong: the least code that could do the job, between
 * two processes.
 *
 *   raw_pingpong tcp|shm [ROUND_TRIPS]     prints the median half round trip in microseconds
 *
 * tcp: two spinning sockets on loopback, one system call a message. shm: one cache line each way,
 * the flag in the line.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GROUP = 100 }; /* round trips timed together: a clock call costs as much as a shared line */

struct line {
    _Alignas(64) _Atomic uint64_t sequence;
    uint64_t payload;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((unsigned)cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Runs the rounds in groups; round(user) is one round trip. */
static void measure(void (*round)(void *user), void *user, size_t groups)
{
    double *samples = calloc(groups, sizeof(*samples));
    if (samples == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < groups; i++) {
        uint64_t start = now_ns();
        for (int j = 0; j < GROUP; j++) {
            round(user);
        }
        samples[i] = (double)(now_ns() - start) / GROUP / 2 / 1000;
    }
    qsort(samples, groups, sizeof(*samples), compare);
    printf("%.4f\n", samples[groups / 2]);
    free(samples);
}

static void exchange(int fd, int first)
{
    uint64_t word = 1;
    if (first && send(fd, &word, sizeof(word), 0) != sizeof(word)) {
        exit(1);
    }
    while (recv(fd, &word, sizeof(word), MSG_DONTWAIT) != sizeof(word)) {
    }
    if (!first && send(fd, &word, sizeof(word), 0) != sizeof(word)) {
        exit(1);
    }
}

static void tcp_round(void *user)
{
    exchange(*(int *)user, 1);
}

static void run_tcp(size_t groups)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(address);
    int one = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0) {
        exit(1);
    }
    pid_t child = fork();
    if (child == 0) {
        pin(1);
        int fd = accept(listener, NULL, NULL);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        for (size_t i = 0; i < groups * GROUP; i++) {
            exchange(fd, 0);
        }
        _exit(0);
    }
    pin(0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, length) != 0) {
        exit(1);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    measure(tcp_round, &fd, groups);
    waitpid(child, NULL, 0);
}

static void shm_round(void *user)
{
    struct line *lines = user;
    uint64_t next = atomic_load_explicit(&lines[0].sequence, memory_order_relaxed) + 1;
    lines[0].payload = next;
    atomic_store_explicit(&lines[0].sequence, next, memory_order_release);
    while (atomic_load_explicit(&lines[1].sequence, memory_order_acquire) != next) {
    }
}

static void run_shm(size_t groups)
{
    struct line *lines = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (lines == MAP_FAILED) {
        exit(1);
    }
    pid_t child = fork();
    if (child == 0) {
        pin(1);
        for (uint64_t i = 1; i <= groups * GROUP; i++) {
            while (atomic_load_explicit(&lines[0].sequence, memory_order_acquire) != i) {
            }
            lines[1].payload = lines[0].payload;
            atomic_store_explicit(&lines[1].sequence, i, memory_order_release);
        }
        _exit(0);
    }
    pin(0);
    measure(shm_round, lines, groups);
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    size_t rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 100000;
    if (argc < 2 || rounds < GROUP) {
        fprintf(stderr, "usage: raw_pingpong tcp|shm [ROUND_TRIPS, at least %d]\n", GROUP);
        return 2;
    }
    if (strcmp(argv[1], "tcp") == 0) {
        run_tcp(rounds / GROUP);
    } else {
        run_shm(rounds / GROUP);
    }
    return 0;
}
