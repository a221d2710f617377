/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * nng over TCP on loopback, for comparison, through its public interface. A pair of pair0 sockets
 * exchanges buffers of the library's own without a copy. NNG_FLAG_ALLOC would not copy either; the
 * manual recommends nng_sendmsg(). nng moves messages only.
 *
 *   peer_nng tcp pingpong SIZE SECONDS   half a round trip in us; its threads sleep; it has
 *                                        no other way to wait
 *   peer_nng tcp rate SIZE SECONDS       messages/s
 *   peer_nng tcp stream SIZE SECONDS     bytes/s
 */
#include "tests/bench/bench.h"

#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKS = 64, QUEUE = 128 };

struct side {
    struct bench *bench;
    nng_socket socket;
    size_t size;
};

static void must(int error, const char *what)
{
    if (error != 0) {
        bench_fail("%s: %s", what, nng_strerror(error));
    }
}

static void put(const struct side *side, uint8_t last)
{
    nng_msg *message = NULL;
    must(nng_msg_alloc(&message, side->size), "nng_msg_alloc");
    *(uint8_t *)nng_msg_body(message) = last;
    must(nng_sendmsg(side->socket, message, 0), "nng_sendmsg");
}

static uint8_t get(const struct side *side)
{
    nng_msg *message = NULL;
    must(nng_recvmsg(side->socket, &message, 0), "nng_recvmsg");
    if (nng_msg_len(message) != side->size) {
        bench_fail("a message of %zu bytes", nng_msg_len(message));
    }
    uint8_t last = *(const uint8_t *)nng_msg_body(message);
    nng_msg_free(message);
    return last;
}

static void ping(void *user, bool last)
{
    put(user, last);
    (void)get(user);
}

static void run_ping_pong(struct side *side)
{
    double value = 0;
    uint64_t rounds = 0;
    if (side->bench->side == 0) {
        value = bench_ping_pong(side->bench, ping, side, &rounds);
    } else {
        uint8_t last = 0;
        bench_start(side->bench);
        while (last == 0) {
            last = get(side);
            put(side, last);
        }
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
                put(side, over && i + 1 == looks);
            }
            count += looks;
        }
        (void)get(side);
    } else {
        while (get(side) == 0) {
        }
        put(side, 0);
    }
    bench_stop(side->bench);
    bench_meet(side->bench);
    double rate = (double)count / side->bench->elapsed;
    bench_finish(side->bench, bytes_per_second ? rate * (double)side->size : rate, count);
}

static void open_socket(struct side *side)
{
    int port = 0;
    int other = 0;
    char address[64];
    must(nng_pair0_open(&side->socket), "nng_pair0_open");
    must(nng_socket_set_size(side->socket, NNG_OPT_RECVMAXSZ, 0), "NNG_OPT_RECVMAXSZ");
    must(nng_socket_set_int(side->socket, NNG_OPT_SENDBUF, QUEUE), "NNG_OPT_SENDBUF");
    must(nng_socket_set_int(side->socket, NNG_OPT_RECVBUF, QUEUE), "NNG_OPT_RECVBUF");
    if (side->bench->side == 1) {
        nng_listener listener;
        must(nng_listen(side->socket, "tcp://127.0.0.1:0", &listener, 0), "nng_listen");
        must(nng_listener_get_int(listener, NNG_OPT_TCP_BOUND_PORT, &port), "the listener's port");
    }
    bench_exchange(side->bench, &port, &other, sizeof(port));
    if (side->bench->side == 0) {
        snprintf(address, sizeof(address), "tcp://127.0.0.1:%d", other);
        must(nng_dial(side->socket, address, NULL, 0), "nng_dial");
    }
}

int main(int argc, char **argv)
{
    if (argc != 5 || strcmp(argv[1], "tcp") != 0) {
        bench_fail("usage: peer_nng tcp pingpong|rate|stream SIZE SECONDS");
    }
    struct bench bench;
    struct side side = { .bench = &bench, .size = bench_size(argv[3]) };
    bench_fork(&bench, strtod(argv[4], NULL), 0);
    open_socket(&side);
    if (strcmp(argv[2], "pingpong") == 0) {
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
