/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ping-pong: how long does a message take?
 *
 *   pingpong [PORT]                      answers one client, then ends
 *   pingpong HOST:PORT [SIZE [ROUNDS]]   prints half of the mean round trip
 *
 * Both sides do the same: post the receive for the next message, send, wait for both to complete.
 */
#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SIZE_MAX_BYTES = 1 << 20,
    WARM_UP_ROUNDS = 100,
    SPINS = 100000, /* polls without result before a side goes to sleep */
    WAIT_MS = 10000,
};

struct side {
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    struct rdmux_mr *mr; /* two buffers: one is sent while the other receives */
};

static void check(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fprintf(stderr, "pingpong: %s: %s\n", what, rdmux_last_error());
        exit(1);
    }
}

static unsigned char *buffer_at(const struct side *side, unsigned index)
{
    return (unsigned char *)rdmux_mr_addr(side->mr) + (size_t)index * SIZE_MAX_BYTES;
}

static struct rdmux_wc next_completion(struct rdmux_cq *cq)
{
    struct rdmux_wc wc;
    for (int i = 0; i < SPINS; i++) {
        if (rdmux_cq_poll(cq, &wc, 1) == 1) {
            return wc;
        }
    }
    size_t count;
    check(rdmux_cq_wait(cq, &wc, 1, WAIT_MS, &count), "wait");
    return wc;
}

/* Waits until as many requests as wanted have succeeded; false if the peer said goodbye before.
 * A failed request means that the endpoint has ended: DISCONNECTED follows and has the cause. */
static bool complete(struct side *side, unsigned wanted, size_t *received)
{
    while (wanted > 0) {
        struct rdmux_wc wc = next_completion(side->cq);
        if (wc.opcode == RDMUX_WC_DISCONNECTED && wc.status == RDMUX_OK) {
            return false;
        }
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
            check(rdmux_ep_info(side->ep, &info), "info");
            fprintf(stderr, "pingpong: connection lost: %s\n", info.text);
            exit(1);
        }
        if (wc.status == RDMUX_OK && wc.opcode == RDMUX_WC_RECV) {
            *received = (size_t)wc.length;
        }
        if (wc.status == RDMUX_OK) {
            wanted--;
        }
    }
    return true;
}

/* Sends length bytes of buffer `out`; waits until they are gone and the other buffer is filled. */
static bool exchange(struct side *side, unsigned out, size_t length, size_t *received)
{
    check(rdmux_recv(side->ep, buffer_at(side, 1 - out), SIZE_MAX_BYTES, side->mr, NULL), "recv");
    check(rdmux_send(side->ep, buffer_at(side, out), length, side->mr, NULL, 0), "send");
    return complete(side, 2, received);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void measure(struct side *side, size_t size, unsigned long rounds)
{
    memset(buffer_at(side, 0), 'p', size);
    double start = now_us();
    for (unsigned long i = 0; i < WARM_UP_ROUNDS + rounds; i++) {
        size_t received = 0;
        if (i == WARM_UP_ROUNDS) {
            start = now_us();
        }
        if (!exchange(side, 0, size, &received) || received != size) {
            fprintf(stderr, "pingpong: the server does not answer in kind\n");
            exit(1);
        }
    }
    double half_us = (now_us() - start) / (2.0 * (double)rounds);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    check(rdmux_ep_info(side->ep, &info), "info");
    printf("%zu bytes over %s: %.2f us half round trip\n", size, info.provider, half_us);
    check(rdmux_ep_shutdown(side->ep, WAIT_MS), "shutdown");
}

static void answer(struct side *side)
{
    unsigned in = 0;
    size_t length = 0;
    check(rdmux_recv(side->ep, buffer_at(side, in), SIZE_MAX_BYTES, side->mr, NULL), "recv");
    bool more = complete(side, 1, &length);
    while (more) {
        more = exchange(side, in, length, &length);
        in = 1 - in;
    }
}

int main(int argc, char **argv)
{
    bool is_client = argc > 1 && strchr(argv[1], ':') != NULL;
    unsigned long size = argc > 2 ? strtoul(argv[2], NULL, 10) : 8;
    unsigned long rounds = argc > 3 ? strtoul(argv[3], NULL, 10) : 10000;
    if (argc > (is_client ? 4 : 2) || size > SIZE_MAX_BYTES || rounds == 0) {
        fprintf(stderr, "usage: pingpong [PORT] | pingpong HOST:PORT [SIZE [ROUNDS]]\n");
        return 2;
    }
    struct rdmux_fabric *fabric;
    struct rdmux_listener *listener = NULL;
    struct side side;
    check(rdmux_fabric_open(NULL, &fabric), "open");
    check(rdmux_cq_create(fabric, NULL, &side.cq), "create a completion queue");
    check(rdmux_mr_alloc(fabric, (size_t)2 * SIZE_MAX_BYTES, RDMUX_ACCESS_LOCAL_WRITE, &side.mr),
          "allocate buffers");
    if (is_client) {
        check(rdmux_connect(fabric, side.cq, argv[1], NULL, WAIT_MS, &side.ep), "connect");
        measure(&side, size, rounds);
    } else {
        char address[RDMUX_ADDRESS_MAX];
        snprintf(address, sizeof(address), ":%s", argc > 1 ? argv[1] : "7471");
        check(rdmux_listen(fabric, address, NULL, &listener), "listen");
        check(rdmux_listener_address(listener, address, sizeof(address)), "address");
        printf("listening on %s\n", address);
        fflush(stdout);
        check(rdmux_accept(listener, side.cq, NULL, -1, &side.ep), "accept");
        answer(&side);
    }
    rdmux_ep_close(side.ep);
    rdmux_mr_deregister(side.mr);
    rdmux_listener_close(listener);
    check(rdmux_cq_destroy(side.cq), "destroy the completion queue");
    check(rdmux_fabric_close(fabric), "close");
    return 0;
}
