/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Several endpoints of one cq. */
#include "harness.h"

enum { PAGE = 4096 };

/* ------------------------------------------------------------------- endpoints that come and go */

enum { CHURN_STEPS = 110, CHURN_MOST = 40, CHURN_FEW = 20, CHURN_TALKS = 6, CHURN_DEPTH = 4 };

/* Sends a message to the target on this endpoint, and one back. */
static void talk(struct side *side, struct rdmux_ep *ep, uint64_t number)
{
    uint64_t in = 0;
    const uint64_t out = side->is_initiator ? number : ~number;
    EXPECT_OK(rdmux_recv(ep, &in, 8, NULL, CTX(1)));
    if (side->is_initiator) {
        EXPECT_OK(rdmux_send(ep, &out, 8, NULL, CTX(2), RDMUX_INLINE));
    }
    (void)WAIT_OF(&side->queue, ep, RDMUX_WC_RECV, CTX(1), RDMUX_OK);
    EXPECT_EQUAL(in, side->is_initiator ? ~number : number);
    if (!side->is_initiator) {
        EXPECT_OK(rdmux_send(ep, &out, 8, NULL, CTX(2), RDMUX_INLINE));
    }
    (void)WAIT_OF(&side->queue, ep, RDMUX_WC_SEND, CTX(2), RDMUX_OK);
}

/* Both sides take the same steps: one endpoint more, or one less, and then messages on any of
 * them. */
static void churn(struct side *side)
{
    struct rdmux_ep *eps[CHURN_MOST];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    const uint64_t most = side->quick ? CHURN_FEW : CHURN_MOST;
    uint64_t random = side->seed;
    uint64_t count = 0;
    attr.send_depth = CHURN_DEPTH; /* limited for a device's queues */
    attr.recv_depth = CHURN_DEPTH;
    side_open(side, NULL);
    side_meet(side);
    for (uint64_t step = 0; step < CHURN_STEPS; step++) {
        const uint64_t growth = random_below(&random, step < CHURN_STEPS / 2 ? 6 : 2);
        if (count < 2 || (count < most && growth > 0)) {
            eps[count++] = side_pair(side, &attr);
        } else {
            const uint64_t gone = random_below(&random, count);
            BARRIER(side);
            side_close_ep(side, eps[gone]);
            eps[gone] = eps[--count];
            BARRIER(side);
        }
        for (uint64_t i = 0; i < CHURN_TALKS; i++) {
            talk(side, eps[random_below(&random, count)], CHURN_TALKS * step + i);
        }
    }
    side_finish(side);
}

/* ---------------------------------------------------------------------------- one busy endpoint */

enum {
    TURN_ROUNDS = 9,
    TURN_BEFORE = 1500,
    TURN_WRITES = TURN_BEFORE + 10000,
    TURN_AT_ONCE = 32, /* held back by MORE */
    TURN_DEPTH = 512,
};

static void turn_write(struct side *side, struct rdmux_remote *remote, uint64_t number)
{
    const uint32_t more = number % TURN_AT_ONCE + 1 == TURN_AT_ONCE ? 0 : RDMUX_MORE;
    enum rdmux_status status = RDMUX_AGAIN;
    while ((status = rdmux_write(side->ep, &number, 8, NULL, remote, number % 64 * 8, NULL,
                                 RDMUX_INLINE | RDMUX_UNSIGNALED | more)) == RDMUX_AGAIN) {
        (void)WAIT(&side->queue, RDMUX_WC_WRITABLE, NULL);
    }
    EXPECT_STATUS(status, RDMUX_OK);
}

/* Writes without pause on one endpoint, and sends a message on another in between. */
static void turns_initiator(struct side *side)
{
    uint64_t word = 0;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = TURN_DEPTH;
    side_open_pair(side, &attr);
    struct rdmux_ep *other = side_pair(side, &attr);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (unsigned round = 0; round < TURN_ROUNDS; round++) {
        BARRIER(side);
        for (uint64_t i = 0; i < TURN_WRITES; i++) {
            if (i == TURN_BEFORE) {
                EXPECT_OK(rdmux_send(other, &word, 8, NULL, CTX(2), RDMUX_INLINE));
                (void)WAIT_OF(&side->queue, other, RDMUX_WC_SEND, CTX(2), RDMUX_OK);
            }
            turn_write(side, remote, i);
        }
        enum rdmux_status status = RDMUX_AGAIN;
        while ((status = rdmux_send(side->ep, &word, 8, NULL, CTX(1), RDMUX_INLINE)) ==
               RDMUX_AGAIN) {
            (void)WAIT(&side->queue, RDMUX_WC_WRITABLE, NULL);
        }
        EXPECT_STATUS(status, RDMUX_OK);
        (void)WAIT_OF(&side->queue, side->ep, RDMUX_WC_SEND, CTX(1), RDMUX_OK);
        BARRIER(side);
        while (queue_poll(&side->queue) > 0) { /* WRITABLE for the last refusal */
            EXPECT_EQUAL(NEXT(&side->queue).opcode, RDMUX_WC_WRITABLE);
        }
    }
    side_finish(side);
}

/* Pauses between two polls until the message arrives, so that there is always more work than one
 * poll handles. */
static void turns_target(struct side *side)
{
    static const uint64_t pauses_ns[] = { 50000, 200000, 2000000 };
    uint64_t words[2];
    side_open_pair(side, NULL);
    struct rdmux_ep *other = side_pair(side, NULL);
    struct region region = region_make(side, MEMORY_REGISTERED, PAGE,
                                       ACCESS_ALL | RDMUX_ACCESS_NO_MAP);
    give_token(side, &region);
    for (unsigned round = 0; round < TURN_ROUNDS; round++) {
        EXPECT_OK(rdmux_recv(side->ep, &words[0], 8, NULL, CTX(1)));
        EXPECT_OK(rdmux_recv(other, &words[1], 8, NULL, CTX(2)));
        BARRIER(side);
        for (uint64_t came = 0; came < 2;) {
            const uint64_t until = now_ns() + pauses_ns[round % COUNT_OF(pauses_ns)];
            while (came == 0 && now_ns() < until) {
            }
            EXPECT(!time_is_up(), "a message does not come");
            if (queue_poll(&side->queue) > 0) {
                struct rdmux_wc wc = NEXT(&side->queue);
                EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK, "got %s", wc_text(&wc));
                EXPECT(wc.ep == other || came > 0,
                       "a message did not arrive before %d writes by another endpoint, all posted "
                       "behind it, were done",
                       TURN_WRITES - TURN_BEFORE);
                came++;
            }
        }
        BARRIER(side);
    }
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "1.5, 7.11, 9.6",
      "endpoints of a cq come and go in any order, and the messages of those that are open arrive",
      NEEDS_SEND, 60, 0, churn, churn },
    { "1.5", "a message of one endpoint arrives while the peer writes to another without a pause",
      NEEDS_SEND | NEEDS_WRITE, 60, 0, turns_initiator, turns_target },
};

const struct suite endpoints_suite = { "endpoints", cases, COUNT_OF(cases) };
