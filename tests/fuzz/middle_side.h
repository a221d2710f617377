/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The two ends of the connection of fuzz target middle: their memory between guards, and their
 * progress. */
#ifndef RDMUX_TESTS_FUZZ_MIDDLE_SIDE_H
#define RDMUX_TESTS_FUZZ_MIDDLE_SIDE_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

enum {
    EXPORTER_CONNECTS = 1 << 0,
    FROM_THE_START = 1 << 1,

    GUARD = 0xa5,
    GUARD_SIZE = 256,
    REGION_SIZE = 1024,
    BUFFER_SIZE = 2048,
    PENDING_MAX = 32 << 10,
    PATIENCE = 200, /* rounds */
    STEP_NS = 20 * 1000 * 1000,
    GOOD = 77, /* context of the neighbours' requests */
};

/* Memory that a peer may write to, between guards that it may not touch. */
struct guarded_region {
    uint8_t before[GUARD_SIZE];
    uint8_t bytes[REGION_SIZE];
    uint8_t after[GUARD_SIZE];
};

struct guarded_buffer {
    uint8_t before[GUARD_SIZE];
    uint8_t bytes[BUFFER_SIZE];
    uint8_t after[GUARD_SIZE];
};

/* One end of the connection: 0 exports and is the victim, 1 is its peer. */
struct side {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_mr *mr;
    struct rdmux_ep *ep;
    struct rdmux_remote *remote;
    bool forged;           /* imported by a token that no side exported */
    struct rdmux_ep *good; /* the neighbour; of side 1 in a fabric of its own */
    struct guarded_region region;
    struct guarded_buffer received;
    uint8_t sent[BUFFER_SIZE];
    uint32_t good_got;
    bool good_came;
    bool ended;
    bool disconnected; /* its last entry has arrived */
    int middle;        /* our end of its socket */
    uint8_t *pending;  /* received from this side, not yet forwarded */
    size_t pending_size;
};

static struct side sides[2];
static struct side stranger; /* the other end of the neighbours' connection */
static uint64_t time_ns;
static uint64_t random_state;
static bool authenticates;
static bool
    tampered; /* bytes of a side were changed effectively: with authentication, by a side itself */

static void check(bool good, const char *text)
{
    if (!good) {
        (void)fprintf(stderr, "fuzz: %s: %s\n", text, rdmux_last_error());
        abort();
    }
}

static uint64_t clock_of(void *user)
{
    (void)user;
    return time_ns;
}

static int random_of(void *user, void *out, size_t size)
{
    (void)user;
    for (size_t i = 0; i < size; i++) {
        random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        ((uint8_t *)out)[i] = (uint8_t)(random_state >> 56);
    }
    return 0;
}

/* ----------------------------------------------------------------------------------- the guards */

static void set_guards(struct side *side)
{
    memset(&side->region, GUARD, sizeof(side->region));
    memset(&side->received, GUARD, sizeof(side->received));
}

static void check_guards(const struct side *side)
{
    for (size_t i = 0; i < GUARD_SIZE; i++) {
        check(side->region.before[i] == GUARD && side->region.after[i] == GUARD,
              "bytes beside the region were written");
        check(side->received.before[i] == GUARD && side->received.after[i] == GUARD,
              "bytes beside a receive were written");
    }
}

/* ------------------------------------------------------------------------------------- progress */

/* Moves the bytes of a side into its pending bytes. */
static void collect(struct side *side)
{
    while (side->middle >= 0 && side->pending_size < PENDING_MAX) {
        ssize_t got = recv(side->middle, side->pending + side->pending_size,
                           PENDING_MAX - side->pending_size, MSG_DONTWAIT);
        if (got <= 0) {
            return;
        }
        side->pending_size += (size_t)got;
    }
}

/* Forwards the first count pending bytes of sides[from] to the other side. */
static void forward(int from, size_t count)
{
    struct side *side = &sides[from];
    count = count < side->pending_size ? count : side->pending_size;
    ssize_t sent = send(sides[1 - from].middle, side->pending, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
        side->pending_size -= (size_t)sent;
        memmove(side->pending, side->pending + sent, side->pending_size);
    }
}

static void step(struct side *side)
{
    struct rdmux_wc wc;
    while (rdmux_cq_poll(side->cq, &wc, 1) == 1) {
        if (wc.ep == side->good && side->good != NULL) {
            check(wc.status == RDMUX_OK, "the neighbour met with a failure");
            side->good_came = side->good_came || wc.opcode == RDMUX_WC_RECV;
            continue;
        }
        check(!side->disconnected, "an entry behind the end");
        check(wc.status <= RDMUX_IO, "an entry has a status that there is not");
        side->disconnected = wc.opcode == RDMUX_WC_DISCONNECTED;
        if (side->disconnected || (wc.opcode == RDMUX_WC_CONNECTED && wc.status != RDMUX_OK)) {
            check(!side->ended, "an endpoint ended twice");
            side->ended = true;
        }
    }
    check(rdmux_fabric_progress(side->fabric) == RDMUX_OK, "progress");
}

static void step_all(void)
{
    step(&sides[0]);
    step(&sides[1]);
    step(&stranger);
    collect(&sides[0]);
    collect(&sides[1]);
}

static void flow(size_t rounds)
{
    for (size_t i = 0; i < rounds; i++) {
        forward(0, PENDING_MAX);
        forward(1, PENDING_MAX);
        step_all();
    }
}

#endif
