/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Measures the cost of idle endpoints: resident memory of each side for each endpoint, and the time
 * that they add to a poll of their queue. Two processes: the parent connects, the child accepts. */
#include "listener_reserve.h"

#include <rdmux/rdmux.h>

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    BATCH = 32, /* connections under way at a time */
    POLLS = 200000,
    RESERVED_DESCRIPTORS = 64,
    DESCRIPTORS_EACH = 2, /* of an endpoint on one side */
};

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fprintf(stderr, "idle_endpoints: %s: %s\n", what, rdmux_last_error());
        exit(1);
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static long resident_bytes(void)
{
    long total = 0;
    long resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &total, &resident) != 2) {
        perror("/proc/self/statm");
        exit(1);
    }
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

struct side {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
};

static void open_side(struct side *side, const char *paths)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.paths = paths;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT;
    must(rdmux_fabric_open(&attr, &side->fabric), "rdmux_fabric_open");
    must(rdmux_cq_create(side->fabric, NULL, &side->cq), "rdmux_cq_create");
}

static double poll_ns(struct side *side)
{
    struct rdmux_wc wc;
    uint64_t begin = now_ns();
    for (int i = 0; i < POLLS; i++) {
        (void)rdmux_cq_poll(side->cq, &wc, 1);
    }
    return (double)(now_ns() - begin) / POLLS;
}

static void tell(int fd, const void *bytes, size_t size)
{
    if (write(fd, bytes, size) != (ssize_t)size) {
        exit(1);
    }
}

static void hear(int fd, void *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = read(fd, (char *)bytes + done, size - done);
        if (got <= 0) {
            fprintf(stderr, "idle_endpoints: the other process ended\n");
            exit(1);
        }
        done += (size_t)got;
    }
}

/* Accepts the endpoints, reports their cost on this side, and ends when the parent asks for it. */
static void serve(const char *paths, long count, int to_parent, int from_parent)
{
    struct side side;
    struct rdmux_listener *listener = NULL;
    char address[RDMUX_ADDRESS_MAX];
    open_side(&side, paths);
    must(rdmux_listen(side.fabric, "127.0.0.1:0", NULL, &listener), "rdmux_listen");
    must(rdmux_listener_address(listener, address, sizeof(address)), "rdmux_listener_address");
    tell(to_parent, address, sizeof(address));
    long before = 0;
    for (long i = 0; i < count; i++) {
        struct rdmux_ep *ep = NULL;
        must(rdmux_accept(listener, side.cq, NULL, -1, &ep), "rdmux_accept");
        if (i == 0) {
            before = resident_bytes();
        }
    }
    double each = (double)(resident_bytes() - before) / (double)(count > 1 ? count - 1 : 1);
    tell(to_parent, &each, sizeof(each));
    char end;
    hear(from_parent, &end, 1);
    _exit(0);
}

static void connect_all(struct side *side, const char *address, long count, long *before)
{
    long started = 0;
    long connected = 0;
    while (connected < count) {
        while (started < count && started - connected < BATCH) {
            struct rdmux_ep *ep = NULL;
            enum rdmux_status status = rdmux_connect(side->fabric, side->cq, address, NULL, 0, &ep);
            if (status != RDMUX_IN_PROGRESS) {
                char what[64];
                (void)snprintf(what, sizeof(what), "%ld of %ld are connected", connected, count);
                must(status, what);
                connected++;
            }
            started++;
        }
        struct rdmux_wc wc[BATCH];
        size_t got = 0;
        must(rdmux_cq_wait(side->cq, wc, BATCH, -1, &got), "rdmux_cq_wait");
        for (size_t i = 0; i < got; i++) {
            if (wc[i].opcode != RDMUX_WC_CONNECTED || wc[i].status != RDMUX_OK) {
                struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
                must(rdmux_ep_info(wc[i].ep, &info), "rdmux_ep_info");
                fprintf(stderr, "idle_endpoints: %ld of %ld are connected: %s %s: %s\n", connected,
                        count, rdmux_wc_opcode_name(wc[i].opcode),
                        rdmux_status_name((enum rdmux_status)wc[i].status), info.text);
                exit(1);
            }
            connected++;
        }
        if (*before == 0 && connected > 0) {
            *before = resident_bytes();
            started = started < 1 ? 1 : started;
        }
    }
}

int main(int argc, char **argv)
{
    const char *paths = argc > 1 ? argv[1] : "tcp";
    long count = argc > 2 ? strtol(argv[2], NULL, 10) : 10000;
    struct rlimit files;
    if (argc > 3 || count < 1) {
        fprintf(stderr, "usage: idle_endpoints [PATHS [COUNT]]\n");
        return 2;
    }
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    /* A set-up over shared memory takes some more for a moment. */
    long reserved = RESERVED_DESCRIPTORS + (long)listener_reserve(files.rlim_cur) +
                    (strcmp(paths, "tcp") == 0 ? 0 : 4 * BATCH);
    long most = ((long)files.rlim_cur - reserved) / DESCRIPTORS_EACH;
    if (count > most) {
        fprintf(
            stderr,
            "idle_endpoints: %ld of %ld, as a process may have %llu descriptors; raise the hard "
            "limit (ulimit -Hn)\n",
            most, count, (unsigned long long)files.rlim_cur);
        count = most;
    }
    int up[2];
    int down[2];
    if (pipe(up) != 0 || pipe(down) != 0) {
        perror("pipe");
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* without its parent it would wait forever */
        serve(paths, count, up[1], down[0]);
    }
    close(up[1]);
    char address[RDMUX_ADDRESS_MAX];
    struct side side;
    open_side(&side, paths);
    double empty_ns = poll_ns(&side);
    hear(up[0], address, sizeof(address));
    long before = 0;
    uint64_t begin = now_ns();
    connect_all(&side, address, count, &before);
    double seconds = (double)(now_ns() - begin) / 1e9;
    double each = (double)(resident_bytes() - before) / (double)(count > 1 ? count - 1 : 1);
    double acceptor_each = 0;
    hear(up[0], &acceptor_each, sizeof(acceptor_each));
    double idle_ns = poll_ns(&side);
    printf("{\"paths\":\"%s\",\"endpoints\":%ld,\"connector_bytes_each\":%.0f,"
           "\"acceptor_bytes_each\":%.0f,\"connections_per_second\":%.0f,"
           "\"poll_ns\":{\"none\":%.0f,\"idle\":%.0f}}\n",
           paths, count, each, acceptor_each, (double)count / seconds, empty_ns, idle_ns);
    tell(down[1], "", 1);
    waitpid(child, NULL, 0);
    return 0;
}
