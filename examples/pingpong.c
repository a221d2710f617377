/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ping-pong: measures the duration of a message.
 *
 * Both sides do the same: post the receive for the next message, send the last one back, wait until
 * both have completed. A waiting side sleeps; with --poll it polls without pause, which is faster
 * and keeps a processor busy.
 */
#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BALL_MAX = 1 << 20, WAIT_MS = 10000 };

static const char usage[] = "usage: pingpong [--poll] serve ADDRESS    serves one client\n"
                            "       pingpong [--poll] measure ADDRESS [SIZE [ROUNDS]]\n"
                            "SIZE is 0 to 1048576 bytes (8), ROUNDS at least 1 (10000).\n"
                            "ADDRESS is HOST:PORT, or *:PORT to serve; PORT 0: a free port.\n";

static struct rdmux_cq *cq;
static struct rdmux_ep *ep;
static struct rdmux_mr *memory; /* two balls: one is sent while the other comes back */
static size_t ball_size;        /* bytes of the last ball received */
static bool polls;

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        const char *name = rdmux_status_name(status);
        fprintf(stderr, "pingpong: %s: %s %s\n", what, name, rdmux_last_error());
        exit(1);
    }
}

static char *ball(size_t index)
{
    return (char *)rdmux_mr_addr(memory) + index % 2 * BALL_MAX;
}

/* Waits for this number of successes; returns false if the peer disconnects instead. After a failed
 * request the endpoint has ended: DISCONNECTED follows with the cause. */
static bool complete(unsigned wanted)
{
    while (wanted > 0) {
        struct rdmux_wc wc;
        size_t count = 0;
        while (polls && count == 0) {
            count = rdmux_cq_poll(cq, &wc, 1);
        }
        if (!polls) {
            must(rdmux_cq_wait(cq, &wc, 1, WAIT_MS, &count), "wait");
        }
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            must((enum rdmux_status)wc.status, "connection");
            return false;
        }
        if (wc.opcode == RDMUX_WC_RECV) {
            ball_size = (size_t)wc.length;
        }
        wanted -= wc.status == RDMUX_OK;
    }
    return true;
}

/* Sends a ball back; the next one arrives meanwhile. */
static bool return_ball(size_t index)
{
    must(rdmux_recv(ep, ball(index + 1), BALL_MAX, memory, NULL), "receive");
    must(rdmux_send(ep, ball(index), ball_size, memory, NULL, 0), "send");
    return complete(2);
}

static void answer(void)
{
    must(rdmux_recv(ep, ball(0), BALL_MAX, memory, NULL), "receive");
    bool more = complete(1);
    for (size_t i = 0; more; i++) {
        more = return_ball(i);
    }
}

static void measure(size_t size, size_t rounds)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct timespec from, to;
    memset(ball(0), 'p', size);
    ball_size = size;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (size_t i = 0; i < rounds; i++) {
        if (!return_ball(i) || ball_size != size) {
            fprintf(stderr, "pingpong: the answer of the server differs\n");
            exit(1);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    double us = (double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3;
    must(rdmux_ep_info(ep, &info), "info");
    printf("%zu bytes over %s: %.2f us half round trip\n", size, info.provider,
           us / (2 * (double)rounds));
    must(rdmux_ep_shutdown(ep, WAIT_MS), "shutdown");
}

int main(int argc, char **argv)
{
    size_t size = 8, rounds = 10000;
    char address[RDMUX_ADDRESS_MAX], rest;
    bool helps = argc == 2 && strcmp(argv[1], "--help") == 0;
    polls = argc > 1 && strcmp(argv[1], "--poll") == 0;
    argc -= polls;
    argv += polls;
    bool serves = argc == 3 && strcmp(argv[1], "serve") == 0;
    bool measures = argc >= 3 && argc <= 5 && strcmp(argv[1], "measure") == 0;
    if (!(serves || measures) || (argc > 3 && sscanf(argv[3], "%zu%c", &size, &rest) != 1) ||
        (argc > 4 && sscanf(argv[4], "%zu%c", &rounds, &rest) != 1) || size > BALL_MAX ||
        rounds == 0) {
        fputs(usage, helps ? stdout : stderr);
        return helps ? 0 : 2;
    }
    struct rdmux_fabric *fabric;
    struct rdmux_listener *listener = NULL;
    must(rdmux_fabric_open(NULL, &fabric), "open");
    must(rdmux_cq_create(fabric, NULL, &cq), "create a completion queue");
    must(rdmux_mr_alloc(fabric, (size_t)2 * BALL_MAX, RDMUX_ACCESS_LOCAL_WRITE, &memory),
         "allocate");
    if (serves) {
        must(rdmux_listen(fabric, argv[2], NULL, &listener), "listen");
        must(rdmux_listener_address(listener, address, sizeof(address)), "address");
        printf("listening on %s\n", address);
        fflush(stdout);
        must(rdmux_accept(listener, cq, NULL, -1, &ep), "accept");
        answer();
    } else {
        must(rdmux_connect(fabric, cq, argv[2], NULL, WAIT_MS, &ep), "connect");
        measure(size, rounds);
    }
    rdmux_ep_close(ep);
    rdmux_mr_deregister(memory);
    rdmux_listener_close(listener);
    must(rdmux_cq_destroy(cq), "destroy the completion queue");
    must(rdmux_fabric_close(fabric), "close");
    return 0;
}
