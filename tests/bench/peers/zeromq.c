/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * ZeroMQ over TCP on loopback, for comparison, through its public interface. A pair of PAIR
 * sockets, one I/O thread each. It moves messages only, and does not access memory of another
 * process.
 *
 *   peer_zeromq tcp pingpong SIZE SECONDS   half a round trip in us; both sides poll
 *   peer_zeromq tcp sleep SIZE SECONDS      the same; both sides block in zmq_recv()
 *   peer_zeromq tcp rate SIZE SECONDS       messages/s
 *   peer_zeromq tcp stream SIZE SECONDS     bytes/s
 */
#include "tests/bench/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum { LOOKS = 64, ADDRESS_MAX = 128 };

struct side {
    struct bench *bench;
    void *socket;
    size_t size;
    uint8_t *out;
    uint8_t *in;
    int flags; /* of the calls: ZMQ_DONTWAIT to spin */
};

static void put(const struct side *side)
{
    while (zmq_send(side->socket, side->out, side->size, side->flags) != (int)side->size) {
        if (errno != EAGAIN) {
            bench_fail("zmq_send: %s", zmq_strerror(errno));
        }
    }
}

static void get(const struct side *side)
{
    while (zmq_recv(side->socket, side->in, side->size, side->flags) != (int)side->size) {
        if (errno != EAGAIN) {
            bench_fail("zmq_recv: %s", zmq_strerror(errno));
        }
    }
}

static void ping(void *user, bool last)
{
    struct side *side = user;
    side->out[0] = last;
    put(side);
    get(side);
}

static void run_ping_pong(struct side *side)
{
    double value = 0;
    uint64_t rounds = 0;
    if (side->bench->side == 0) {
        value = bench_ping_pong(side->bench, ping, side, &rounds);
    } else {
        bench_start(side->bench);
        do {
            get(side);
            side->out[0] = side->in[0];
            put(side);
        } while (side->in[0] == 0);
    }
    bench_meet(side->bench);
    bench_finish(side->bench, value, rounds * 2);
}

static void run_stream(struct side *side, bool bytes_per_second)
{
    uint64_t count = 0;
    bench_start(side->bench);
    if (side->bench->side == 0) {
        uint64_t looks = side->size < 4096 ? LOOKS : 1;
        bool over = false;
        while (!over) {
            over = bench_is_over(side->bench);
            for (uint64_t i = 0; i < looks; i++) {
                side->out[0] = over && i + 1 == looks;
                put(side);
            }
            count += looks;
        }
        get(side);
    } else {
        do {
            get(side);
        } while (side->in[0] == 0);
        put(side);
    }
    bench_stop(side->bench);
    bench_meet(side->bench);
    double rate = (double)count / side->bench->elapsed;
    bench_finish(side->bench, bytes_per_second ? rate * (double)side->size : rate, count);
}

static void open_socket(struct side *side)
{
    char mine[ADDRESS_MAX] = "";
    char theirs[ADDRESS_MAX];
    size_t length = sizeof(mine);
    side->socket = zmq_socket(zmq_ctx_new(), ZMQ_PAIR);
    if (side->socket == NULL) {
        bench_fail("zmq_socket: %s", zmq_strerror(errno));
    }
    if (side->bench->side == 1 &&
        (zmq_bind(side->socket, "tcp://127.0.0.1:*") != 0 ||
         zmq_getsockopt(side->socket, ZMQ_LAST_ENDPOINT, mine, &length) != 0)) {
        bench_fail("zmq_bind: %s", zmq_strerror(errno));
    }
    bench_exchange(side->bench, mine, theirs, sizeof(mine));
    if (side->bench->side == 0 && zmq_connect(side->socket, theirs) != 0) {
        bench_fail("zmq_connect: %s", zmq_strerror(errno));
    }
}

int main(int argc, char **argv)
{
    if (argc != 5 || strcmp(argv[1], "tcp") != 0) {
        bench_fail("usage: peer_zeromq tcp pingpong|sleep|rate|stream SIZE SECONDS");
    }
    struct bench bench;
    size_t size = bench_size(argv[3]);
    bench_fork(&bench, strtod(argv[4], NULL), 0);
    struct side side = {
        .bench = &bench, .size = size, .out = bench_buffer(size), .in = bench_buffer(size)
    };
    memset(side.out, 0, size);
    open_socket(&side);
    if (strcmp(argv[2], "pingpong") == 0) {
        side.flags = ZMQ_DONTWAIT;
        run_ping_pong(&side);
    } else if (strcmp(argv[2], "sleep") == 0) {
        run_ping_pong(&side);
    } else if (strcmp(argv[2], "rate") == 0) {
        run_stream(&side, false);
    } else if (strcmp(argv[2], "stream") == 0) {
        run_stream(&side, true);
    } else {
        bench_fail("there is no '%s'", argv[2]);
    }
    return 0;
}
