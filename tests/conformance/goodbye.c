/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the peer sees of an end, in each way that a program has to end an endpoint. */
#include "harness.h"

#include <inttypes.h>
#include <string.h>

enum { MESSAGES = 3, SHORT_MS = 200 };

enum way {
    SHUTDOWN,       /* waits for it */
    SHUTDOWN_EVENT, /* waits for its event */
    SHUTDOWN_CUT,   /* closes at once */
    SHUTDOWN_STUCK, /* in vain: the peer has no receive */
    CLOSE,
    WAYS,
};

static const struct {
    const char *says;
    bool orderly; /* the peer may see RDMUX_OK */
    bool abrupt;  /* ... PEER_GONE */
} ways[WAYS] = {
    [SHUTDOWN] = { "shutdown, then close", true, false },
    [SHUTDOWN_EVENT] = { "shutdown with timeout 0, its event, then close", true, false },
    [SHUTDOWN_CUT] = { "shutdown with timeout 0, then close at once", true, true },
    [SHUTDOWN_STUCK] = { "a shutdown that timed out, then close", false, true },
    [CLOSE] = { "close alone", false, true },
};

static void end_it(struct side *side, struct rdmux_ep *ep, enum way way)
{
    switch (way) {
    case SHUTDOWN:
        EXPECT_OK(rdmux_ep_shutdown(ep, side->patient_ms));
        break;
    case SHUTDOWN_EVENT:
        EXPECT_STATUS(rdmux_ep_shutdown(ep, 0), RDMUX_IN_PROGRESS);
        (void)WAIT_OF(&side->queue, ep, RDMUX_WC_DISCONNECTED, NULL, RDMUX_OK);
        break;
    case SHUTDOWN_CUT:
        EXPECT_STATUS(rdmux_ep_shutdown(ep, 0), RDMUX_IN_PROGRESS);
        break;
    case SHUTDOWN_STUCK:
        EXPECT_STATUS(rdmux_ep_shutdown(ep, SHORT_MS), RDMUX_TIMED_OUT);
        break;
    case CLOSE:
    case WAYS:
        break;
    }
}

static void goodbye_initiator(struct side *side)
{
    side_open(side, NULL);
    side_meet(side);
    for (int way = 0; way < WAYS; way++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        BARRIER(side); /* the receives are there */
        STAND(ways[way].says);
        for (uint64_t i = 0; i < MESSAGES; i++) {
            EXPECT_OK(rdmux_send(ep, &i, sizeof(i), NULL, CTX(i), RDMUX_INLINE | RDMUX_UNSIGNALED));
        }
        end_it(side, ep, (enum way)way);
        side_close_ep(side, ep);
        EXPECT_QUIET(&side->queue);
        BARRIER(side);
    }
    side_finish(side);
}

/* Takes entries up to the end; returns its status, and how many messages came before it. */
static uint32_t see_end(struct side *side, const struct rdmux_ep *ep, uint64_t *came,
                        const uint64_t *words)
{
    for (*came = 0;;) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.ep == ep, "an entry of another endpoint: %s", wc_text(&wc));
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            return wc.status;
        }
        EXPECT(wc.opcode == RDMUX_WC_RECV, "got %s", wc_text(&wc));
        if (wc.status == RDMUX_OK) {
            EXPECT(CTX_NUMBER(wc.context) == *came && words[*came] == *came,
                   "message %" PRIu64 ": %s", *came, wc_text(&wc));
            ++*came;
        }
    }
}

static void goodbye_target(struct side *side)
{
    uint64_t words[MESSAGES];
    side_open(side, NULL);
    side_meet(side);
    for (int way = 0; way < WAYS; way++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        uint64_t came = 0;
        memset(words, 0xff, sizeof(words));
        for (uint64_t i = 0; i < MESSAGES && way != SHUTDOWN_STUCK; i++) {
            EXPECT_OK(rdmux_recv(ep, &words[i], sizeof(words[i]), NULL, CTX(i)));
        }
        BARRIER(side);
        STAND(ways[way].says);
        uint32_t status = see_end(side, ep, &came, words);
        EXPECT((status == RDMUX_OK && ways[way].orderly) ||
                   (status == RDMUX_PEER_GONE && ways[way].abrupt),
               "after %s the peer saw %s", ways[way].says,
               rdmux_status_name((enum rdmux_status)status));
        EXPECT(status != RDMUX_OK || came == MESSAGES,
               "after %s RDMUX_OK came with %" PRIu64 " of %d messages", ways[way].says, came,
               MESSAGES);
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        EXPECT_OK(rdmux_ep_info(ep, &info));
        EXPECT_EQUAL(info.status, status);
        EXPECT_QUIET(&side->queue); /* it was the last one, and the only one */
        BARRIER(side);
        side_close_ep(side, ep);
    }
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "9.13, 9.2, 9.3, 9.11, 7.4, -9.13",
      "the peer sees one end: RDMUX_OK after a shutdown, PEER_GONE after a close without one",
      NEEDS_SEND, 0, 0, goodbye_initiator, goodbye_target },
};

const struct suite goodbye_suite = { "goodbye", cases, COUNT_OF(cases) };
