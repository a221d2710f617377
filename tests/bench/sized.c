/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Messages of unknown size: a header of 8 bytes with the size, and then exactly that into a receive
 * of its own, which the receiver posts when it has the header. Both sides sleep.
 *
 *   sized PATHS SIZE SECONDS   half a round trip of a header and SIZE bytes each way, in us
 *
 * raw_tcp sized does the same with a plain socket.
 */
#include "bench.h"

#include <rdmux/rdmux.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct side {
    struct bench *bench;
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    size_t size;
    uint64_t header; /* of the next message that comes */
    uint8_t *out;
    uint8_t *in;
};

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        bench_fail("%s: %s", what, rdmux_last_error());
    }
}

static void receive(struct side *side, void *into, size_t size)
{
    must(rdmux_recv(side->ep, into, size, NULL, NULL), "rdmux_recv");
}

/* Sleeps until the receive that was posted last has its message. */
static void await_message(struct side *side)
{
    struct rdmux_wc wc;
    size_t count = 0;
    must(rdmux_cq_wait(side->cq, &wc, 1, -1, &count), "rdmux_cq_wait");
    if (wc.opcode != RDMUX_WC_RECV || wc.status != RDMUX_OK) {
        bench_fail("%s: %s", rdmux_wc_opcode_name(wc.opcode),
                   rdmux_status_name((enum rdmux_status)wc.status));
    }
}

static void send_sized(struct side *side)
{
    const uint64_t size = side->size;
    must(rdmux_send(side->ep, &size, sizeof(size), NULL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED),
         "rdmux_send");
    must(rdmux_send(side->ep, side->out, side->size, NULL, NULL, RDMUX_UNSIGNALED), "rdmux_send");
}

/* Leaves the next header's receive posted. */
static void receive_sized(struct side *side)
{
    await_message(side);
    if (side->header != side->size) {
        bench_fail("a header says %llu bytes", (unsigned long long)side->header);
    }
    receive(side, side->in, side->header);
    await_message(side);
    receive(side, &side->header, sizeof(side->header));
}

/* The first byte of a message says whether it is the last. */
static void ping(void *user, bool last)
{
    struct side *side = user;
    side->out[0] = last;
    send_sized(side);
    receive_sized(side);
}

static void pong(struct side *side)
{
    do {
        receive_sized(side);
        side->out[0] = side->in[0];
        send_sized(side);
    } while (side->in[0] == 0);
}

static void open_side(struct side *side, const char *paths)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    struct rdmux_listener *listener = NULL;
    char mine[RDMUX_ADDRESS_MAX] = "";
    char address[RDMUX_ADDRESS_MAX];
    attr.paths = paths;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT;
    must(rdmux_fabric_open(&attr, &fabric), "rdmux_fabric_open");
    must(rdmux_cq_create(fabric, NULL, &side->cq), "rdmux_cq_create");
    if (side->bench->side == 1) {
        must(rdmux_listen(fabric, "127.0.0.1:0", NULL, &listener), "rdmux_listen");
        must(rdmux_listener_address(listener, mine, sizeof(mine)), "rdmux_listener_address");
    }
    bench_exchange(side->bench, mine, address, sizeof(mine));
    if (side->bench->side == 1) {
        must(rdmux_accept(listener, side->cq, NULL, -1, &side->ep), "rdmux_accept");
    } else {
        must(rdmux_connect(fabric, side->cq, address, NULL, 5000, &side->ep), "rdmux_connect");
    }
    receive(side, &side->header, sizeof(side->header));
    bench_meet(side->bench);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        bench_fail("usage: sized PATHS SIZE SECONDS");
    }
    struct bench bench;
    const size_t size = bench_size(argv[2]);
    bench_fork(&bench, strtod(argv[3], NULL), 0);
    struct side side = {
        .bench = &bench,
        .size = size,
        .out = bench_buffer(size),
        .in = bench_buffer(size),
    };
    double value = 0;
    uint64_t rounds = 0;
    open_side(&side, argv[1]);
    if (bench.side == 0) {
        value = bench_ping_pong(&bench, ping, &side, &rounds);
    } else {
        bench_start(&bench);
        pong(&side);
    }
    bench_meet(&bench); /* neither process ends before the other has its last message */
    bench_finish(&bench, value, rounds * 2);
    return 0;
}
