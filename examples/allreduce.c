/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Allreduce: each rank begins with a vector of doubles and ends with the sum of all vectors.
 *
 * The ranks are processes on this host, in a ring of sockets that rdmux_adopt() turns into
 * endpoints. Each vector is cut into as many parts as there are ranks. In RANKS - 1 steps each part
 * travels round the ring and collects its sum; in as many further steps the sums travel round. So a
 * rank sends and receives less than twice its vector, whatever the number of ranks.
 */
#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 64, LENGTH_MAX = 1000000000, WAIT_MS = 20000 };

static const char usage[] = "usage: allreduce [RANKS [LENGTH]]\n"
                            "1 to 64 RANKS (4) sum vectors of up to 1e9 doubles (1000000).\n";

static size_t rank, ranks = 4, length = 1000000;
static struct rdmux_cq *cq;
static struct rdmux_ep *left, *right; /* neighbours: source and destination of the parts */
static bool left_ended;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "allreduce: rank %zu: %s: %s\n", rank, what, why);
    exit(1);
}

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK && status != RDMUX_IN_PROGRESS) {
        fail(what, rdmux_last_error());
    }
}

/* Waits for the next successful completion and returns its opcode. */
static uint32_t next(void)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_wc wc;
    size_t count;
    must(rdmux_cq_wait(cq, &wc, 1, WAIT_MS, &count), "wait");
    if (wc.status != RDMUX_OK) {
        must(rdmux_ep_info(wc.ep, &info), "info");
        fail(wc.ep == left ? "no left neighbour" : "no right neighbour", info.text);
    }
    left_ended |= wc.opcode == RDMUX_WC_DISCONNECTED; /* this rank ends the right one */
    return wc.opcode;
}

/* Leaves the sum in vector; memory is the region of both arrays. Each step sends one part to the
 * right and receives one from the left, in the first half to add it, in the second to keep it. */
static void allreduce(double *vector, double *incoming, size_t part, struct rdmux_mr *memory)
{
    size_t size = part * sizeof(double), steps = 2 * (ranks - 1);
    for (size_t i = 0; i < steps; i++) {
        bool adds = i < steps / 2;
        size_t index = rank + 2 * ranks - i;
        const double *source = vector + index % ranks * part;
        double *sum = vector + (index - 1) % ranks * part;
        must(rdmux_recv(left, adds ? incoming : sum, size, memory, NULL), "receive");
        must(rdmux_send(right, source, size, memory, NULL, 0), "send");
        for (unsigned pending = 2; pending > 0;) {
            pending -= next() != RDMUX_WC_DISCONNECTED;
        }
        for (size_t j = 0; adds && j < part; j++) {
            sum[j] += incoming[j];
        }
    }
}

static void run_rank(int left_socket, int right_socket)
{
    struct rdmux_fabric *fabric;
    struct rdmux_mr *memory;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    size_t part = (length + ranks - 1) / ranks;        /* the last one may be padded with zeros */
    size_t size = (ranks + 1) * part * sizeof(double); /* the vector, and one part received */
    attr.max_send = attr.max_recv = part * sizeof(double);
    must(rdmux_fabric_open(NULL, &fabric), "open");
    must(rdmux_cq_create(fabric, NULL, &cq), "create a completion queue");
    must(rdmux_mr_alloc(fabric, size, RDMUX_ACCESS_LOCAL_WRITE, &memory), "allocate");
    /* Every rank must connect to both neighbours at once to close the ring: neither call waits. */
    must(rdmux_adopt(fabric, cq, right_socket, RDMUX_ROLE_CONNECT, &attr, 0, &right), "adopt");
    must(rdmux_adopt(fabric, cq, left_socket, RDMUX_ROLE_ACCEPT, &attr, 0, &left), "adopt");
    next(); /* one is connected, */
    next(); /* and then the other */
    double *vector = rdmux_mr_addr(memory);
    size_t factor = ranks * (ranks + 1) / 2;
    for (size_t i = 0; i < length; i++) {
        vector[i] = (double)((rank + 1) * (i % 1000)); /* integers, so that sums are exact */
    }
    allreduce(vector, vector + ranks * part, part, memory);
    for (size_t i = 0; i < length; i++) {
        if (vector[i] != (double)(factor * (i % 1000))) {
            fail("check", "a sum is wrong");
        }
    }
    must(rdmux_ep_info(right, &info), "info");
    printf("rank %zu of %zu has the right sum over %s\n", rank, ranks, info.provider);
    must(rdmux_ep_shutdown(right, WAIT_MS), "shutdown");
    while (!left_ended) {
        next();
    }
    rdmux_ep_close(left);
    rdmux_ep_close(right);
    rdmux_mr_deregister(memory);
    must(rdmux_cq_destroy(cq), "destroy the completion queue");
    must(rdmux_fabric_close(fabric), "close");
}

int main(int argc, char **argv)
{
    char rest;
    bool helps = argc == 2 && strcmp(argv[1], "--help") == 0;
    if (argc > 3 || (argc > 1 && sscanf(argv[1], "%zu%c", &ranks, &rest) != 1) ||
        (argc > 2 && sscanf(argv[2], "%zu%c", &length, &rest) != 1) || ranks == 0 ||
        ranks > RANKS_MAX || length == 0 || length > LENGTH_MAX) {
        fputs(usage, helps ? stdout : stderr);
        return helps ? 0 : 2;
    }
    int sockets[RANKS_MAX][2], status, failed = 0; /* pair i connects rank i and rank i + 1 */
    for (size_t i = 0; i < ranks; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets[i]) != 0) {
            perror("allreduce: socketpair");
            return 1;
        }
    }
    int from_left = -1, to_right = -1;
    for (; rank < ranks; rank++) {
        pid_t child = fork();
        if (child == 0) {
            from_left = dup(sockets[(rank + ranks - 1) % ranks][1]);
            to_right = dup(sockets[rank][0]);
            break;
        }
        failed += child < 0;
    }
    for (size_t i = 0; i < ranks; i++) { /* an open copy would hide the end of a rank */
        close(sockets[i][0]);
        close(sockets[i][1]);
    }
    if (rank < ranks) { /* a child */
        run_rank(from_left, to_right);
        return 0;
    }
    while (wait(&status) > 0) {
        failed += status != 0;
    }
    return failed == 0 ? 0 : 1;
}
