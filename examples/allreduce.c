/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Allreduce: each rank has a vector of doubles; afterwards each has the sum of all vectors.
 *
 *   allreduce [RANKS [LENGTH]]              forks RANKS ranks on this host
 *   allreduce RANKS LENGTH RANK ADDRESS     one rank; it listens on ADDRESS, say 192.0.2.1:0, and
 *                                           reads the line that its right neighbour, rank RANK + 1
 *                                           (the last one's is rank 0), prints
 *
 * The ranks form a ring and cut their vectors into RANKS parts. In RANKS - 1 steps each part goes
 * round and collects its sum, in as many more the sum goes round. So a rank sends and receives less
 * than twice its vector, however many ranks there are.
 */
#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 64, WAIT_MS = 20000 };

struct ring {
    size_t rank, ranks, length; /* length: doubles in the vector */
    struct rdmux_cq *cq;
    struct rdmux_ep *left, *right; /* received from, sent to */
    struct rdmux_mr *vector, *incoming;
    bool left_ended;
};

static void check(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fprintf(stderr, "allreduce: %s: %s\n", what, rdmux_last_error());
        exit(1);
    }
}

static void take_entry(struct ring *ring, struct rdmux_wc *wc)
{
    size_t count;
    check(rdmux_cq_wait(ring->cq, wc, 1, WAIT_MS, &count), "wait");
    if (wc->status != RDMUX_OK) {
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        check(rdmux_ep_info(wc->ep, &info), "info");
        fprintf(stderr, "allreduce: rank %zu has no %s neighbour: %s\n", ring->rank,
                wc->ep == ring->left ? "left" : "right", info.text);
        exit(1);
    }
    if (wc->opcode == RDMUX_WC_DISCONNECTED && wc->ep == ring->left) {
        ring->left_ended = true; /* it has all it needs, and we have all it sent */
    }
}

/* A ring closes only if every rank does both at once: connect to the right and accept the left. */
static void join(struct ring *ring, struct rdmux_fabric *fabric, struct rdmux_listener *listener,
                 const char *right_address)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_wc wc;
    attr.max_send = attr.max_recv = rdmux_mr_length(ring->incoming);
    attr.prefer = RDMUX_PREFER_BANDWIDTH;
    enum rdmux_status status = rdmux_connect(fabric, ring->cq, right_address, &attr, 0,
                                             &ring->right);
    check(status == RDMUX_IN_PROGRESS ? RDMUX_OK : status, "connect");
    check(rdmux_accept(listener, ring->cq, &attr, WAIT_MS, &ring->left), "accept");
    do {
        take_entry(ring, &wc);
    } while (wc.opcode != RDMUX_WC_CONNECTED);
}

static double *part_at(const struct ring *ring, size_t part, size_t *count)
{
    size_t begin = ring->length * part / ring->ranks;
    *count = ring->length * (part + 1) / ring->ranks - begin;
    return (double *)rdmux_mr_addr(ring->vector) + begin;
}

/* Sends one part to the right while another comes from the left: into place, or to be added. */
static void step(struct ring *ring, size_t out, size_t in, bool adds)
{
    size_t out_count, in_count;
    const double *source = part_at(ring, out % ring->ranks, &out_count);
    double *target = part_at(ring, in % ring->ranks, &in_count);
    double *landing = adds ? rdmux_mr_addr(ring->incoming) : target;
    struct rdmux_mr *landing_mr = adds ? ring->incoming : ring->vector;
    unsigned pending = 0;
    if (in_count > 0) { /* vectors may be shorter than the ring */
        check(rdmux_recv(ring->left, landing, in_count * sizeof(double), landing_mr, NULL), "recv");
        pending++;
    }
    if (out_count > 0) {
        check(rdmux_send(ring->right, source, out_count * sizeof(double), ring->vector, NULL, 0),
              "send");
        pending++;
    }
    while (pending > 0) {
        struct rdmux_wc wc;
        take_entry(ring, &wc);
        pending -= wc.opcode == RDMUX_WC_RECV || wc.opcode == RDMUX_WC_SEND;
    }
    for (size_t i = 0; adds && i < in_count; i++) {
        target[i] += landing[i];
    }
}

static void allreduce(struct ring *ring)
{
    size_t last = ring->ranks - 1, first = ring->rank + ring->ranks; /* no number is negative */
    for (size_t i = 0; i < last; i++) {
        step(ring, first - i, first - i - 1, true);
    }
    for (size_t i = 0; i < last; i++) {
        step(ring, first + 1 - i, first - i, false);
    }
}

/* Element i of rank r is (r + 1) * (i % 1000), so that sums are exact. */
static void verify(const struct ring *ring)
{
    const double *vector = rdmux_mr_addr(ring->vector);
    double factor = (double)ring->ranks * (double)(ring->ranks + 1) / 2;
    for (size_t i = 0; i < ring->length; i++) {
        if (vector[i] != factor * (double)(i % 1000)) {
            fprintf(stderr, "allreduce: rank %zu has a wrong element %zu\n", ring->rank, i);
            exit(1);
        }
    }
}

static int run_rank(struct ring ring, const char *address, FILE *tell_left, FILE *hear_right)
{
    struct rdmux_fabric *fabric;
    struct rdmux_listener *listener;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct timespec from, to;
    char own_address[RDMUX_ADDRESS_MAX], right_address[RDMUX_ADDRESS_MAX];
    size_t part_size = (ring.length / ring.ranks + 1) * sizeof(double);
    check(rdmux_fabric_open(NULL, &fabric), "open");
    check(rdmux_cq_create(fabric, NULL, &ring.cq), "create a completion queue");
    check(rdmux_mr_alloc(fabric, ring.length * sizeof(double), RDMUX_ACCESS_LOCAL_WRITE,
                         &ring.vector),
          "allocate the vector");
    check(rdmux_mr_alloc(fabric, part_size, RDMUX_ACCESS_LOCAL_WRITE, &ring.incoming),
          "allocate a part");
    check(rdmux_listen(fabric, address, NULL, &listener), "listen");
    check(rdmux_listener_address(listener, own_address, sizeof(own_address)), "address");
    fprintf(tell_left, "listening on %s\n", own_address);
    fflush(tell_left);
    if (fscanf(hear_right, "listening on %127s", right_address) != 1) {
        fprintf(stderr, "allreduce: rank %zu was not told its right neighbour\n", ring.rank);
        return 1;
    }
    join(&ring, fabric, listener, right_address);
    double *vector = rdmux_mr_addr(ring.vector);
    for (size_t i = 0; i < ring.length; i++) {
        vector[i] = (double)((ring.rank + 1) * (i % 1000));
    }
    clock_gettime(CLOCK_MONOTONIC, &from);
    allreduce(&ring);
    clock_gettime(CLOCK_MONOTONIC, &to);
    verify(&ring);
    check(rdmux_ep_info(ring.right, &info), "info");
    printf("rank %zu of %zu has the right sum; %.2f ms over %s\n", ring.rank, ring.ranks,
           (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6,
           info.provider);
    check(rdmux_ep_shutdown(ring.right, WAIT_MS), "shutdown");
    while (!ring.left_ended) {
        struct rdmux_wc wc;
        take_entry(&ring, &wc);
    }
    rdmux_ep_close(ring.left);
    rdmux_ep_close(ring.right);
    rdmux_listener_close(listener);
    rdmux_mr_deregister(ring.vector);
    rdmux_mr_deregister(ring.incoming);
    check(rdmux_cq_destroy(ring.cq), "destroy the completion queue");
    check(rdmux_fabric_close(fabric), "close");
    return 0;
}

/* Rank r hears of rank r + 1 through pipe r. No fabric is open yet: none would survive the fork. */
static int fork_ranks(struct ring ring)
{
    int pipes[RANKS_MAX][2], failed = 0, status;
    for (size_t i = 0; i < ring.ranks; i++) {
        if (pipe(pipes[i]) != 0) {
            perror("allreduce: pipe");
            return 1;
        }
    }
    for (ring.rank = 0; ring.rank < ring.ranks; ring.rank++) {
        pid_t child = fork();
        if (child == 0) {
            size_t left = (ring.rank + ring.ranks - 1) % ring.ranks;
            for (size_t i = 0; i < ring.ranks; i++) {
                if (i != ring.rank) {
                    close(pipes[i][0]);
                }
                if (i != left) {
                    close(pipes[i][1]);
                }
            }
            exit(run_rank(ring, "127.0.0.1:0", fdopen(pipes[left][1], "w"),
                          fdopen(pipes[ring.rank][0], "r")));
        }
        failed += child < 0;
    }
    for (size_t i = 0; i < ring.ranks; i++) {
        close(pipes[i][0]);
        close(pipes[i][1]);
    }
    while (wait(&status) > 0) {
        failed += status != 0;
    }
    return failed == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct ring ring = { .ranks = argc > 1 ? strtoul(argv[1], NULL, 10) : 4,
                         .length = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000000,
                         .rank = argc > 3 ? strtoul(argv[3], NULL, 10) : 0 };
    if (argc == 4 || argc > 5 || ring.ranks == 0 || ring.ranks > RANKS_MAX || ring.length == 0 ||
        ring.rank >= ring.ranks) {
        fprintf(stderr,
                "usage: allreduce [RANKS [LENGTH]] | allreduce RANKS LENGTH RANK ADDRESS\n");
        return 2;
    }
    return argc == 5 ? run_rank(ring, argv[4], stdout, stdin) : fork_ranks(ring);
}
