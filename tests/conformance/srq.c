/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints that share the receives of an SRQ. */
#include "harness.h"

#include <inttypes.h>
#include <string.h>

/* ---------------------------------------------------------------------------- receives on loan */

enum {
    LOAN_EPS = 4,
    LOAN_DEPTH = 12, /* receives posted at a time */
    LOAN_PAST = 4,   /* rounds for each endpoint */
};

static struct rdmux_srq *srq_make(struct side *side, uint32_t depth)
{
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    struct rdmux_srq *srq = NULL;
    attr.depth = depth;
    EXPECT_OK(rdmux_srq_create(side->fabric, side->queue.cq, &attr, &srq));
    return srq;
}

/* Returns which endpoint sends a message of a round's LOAN_DEPTH messages. Each round two endpoints
 * begin with one message each, which may bring them more receives than they use. A third endpoint
 * sends all the others. The next round shifts the three by one. */
static unsigned loan_sender(unsigned round, unsigned message)
{
    return message < 2 ? (round + message) % LOAN_EPS : (round + 2) % LOAN_EPS;
}

static void loan_initiator(struct side *side)
{
    struct rdmux_ep *eps[LOAN_EPS];
    side_open(side, NULL);
    side_meet(side);
    for (unsigned i = 0; i < LOAN_EPS; i++) {
        eps[i] = side_pair(side, NULL);
    }
    for (unsigned round = 0; round < LOAN_PAST * LOAN_EPS; round++) {
        BARRIER(side);
        for (unsigned i = 0; i < LOAN_DEPTH; i++) {
            uint64_t word = round * LOAN_DEPTH + i;
            EXPECT_OK(rdmux_send(eps[loan_sender(round, i)], &word, 8, NULL, CTX(word),
                                 RDMUX_INLINE | flag_if_there(side, RDMUX_PLACED)));
            (void)WAIT_OF(&side->queue, eps[loan_sender(round, i)], RDMUX_WC_SEND, CTX(word),
                          RDMUX_OK);
        }
        BARRIER(side);
    }
    /* More endpoints wait than there are receives. As many messages arrive as receives are
     * posted. */
    BARRIER(side);
    for (uint64_t i = 0; i < LOAN_EPS; i++) {
        EXPECT_OK(rdmux_send(eps[i], &i, 8, NULL, CTX(i), RDMUX_INLINE));
    }
    BARRIER(side);
    for (uint64_t i = 0; i < LOAN_EPS; i++) {
        (void)WAIT_OF(&side->queue, eps[i], RDMUX_WC_SEND, CTX(i), RDMUX_OK);
    }
    BARRIER(side);
    /* An endpoint that has sent a little is closed: receives reserved for it become available to
     * the others. */
    for (unsigned i = 0; i + 1 < LOAN_EPS; i++) {
        uint64_t word = i;
        BARRIER(side);
        EXPECT_OK(rdmux_send(eps[i], &word, 8, NULL, CTX(word), RDMUX_INLINE));
        (void)WAIT_OF(&side->queue, eps[i], RDMUX_WC_SEND, CTX(word), RDMUX_OK);
        BARRIER(side);
        side_close_ep(side, eps[i]);
        for (word = 1; word < LOAN_DEPTH; word++) {
            EXPECT_OK(rdmux_send(eps[LOAN_EPS - 1], &word, 8, NULL, CTX(word), RDMUX_INLINE));
            (void)WAIT_OF(&side->queue, eps[LOAN_EPS - 1], RDMUX_WC_SEND, CTX(word), RDMUX_OK);
        }
        BARRIER(side);
    }
    side_finish(side);
}

/* Posts all receives and takes as many messages. */
static void loan_post(struct rdmux_srq *srq, uint64_t *words, unsigned count)
{
    for (uint64_t i = 0; i < count; i++) {
        words[i] = UINT64_MAX;
        EXPECT_OK(rdmux_srq_recv(srq, &words[i], 8, NULL, CTX(i)));
    }
}

static struct rdmux_wc loan_take(struct side *side, const char *what)
{
    struct rdmux_wc wc = NEXT_AFTER(&side->queue, what);
    EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK &&
               CTX_NUMBER(wc.context) < LOAN_DEPTH,
           "got %s", wc_text(&wc));
    return wc;
}

static void loan_close(struct side *side, struct rdmux_srq *srq, struct rdmux_ep **eps,
                       uint64_t *words)
{
    for (unsigned i = 0; i + 1 < LOAN_EPS; i++) {
        loan_post(srq, words, LOAN_DEPTH);
        BARRIER(side);
        struct rdmux_wc wc = loan_take(side, "a message does not come");
        EXPECT(wc.ep == eps[i], "a message names another endpoint");
        BARRIER(side);
        (void)WAIT_OF(&side->queue, eps[i], RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);
        side_close_ep(side, eps[i]);
        for (unsigned k = 1; k < LOAN_DEPTH; k++) {
            wc = loan_take(side, "receives that were set aside for an endpoint are not the others' "
                                 "when it has ended");
            EXPECT(wc.ep == eps[LOAN_EPS - 1] && words[CTX_NUMBER(wc.context)] == k,
                   "message %u: %s brings %" PRIu64, k, wc_text(&wc),
                   words[CTX_NUMBER(wc.context)]);
        }
        BARRIER(side);
    }
}

static void loan_target(struct side *side)
{
    static uint64_t words[LOAN_DEPTH];
    struct rdmux_ep *eps[LOAN_EPS];
    side_open(side, NULL);
    side_meet(side);
    struct rdmux_srq *srq = srq_make(side, LOAN_DEPTH);
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.srq = srq;
    for (unsigned i = 0; i < LOAN_EPS; i++) {
        eps[i] = side_pair(side, &attr);
    }
    for (unsigned round = 0; round < LOAN_PAST * LOAN_EPS; round++) {
        unsigned came = 0; /* the order between endpoints is not promised */
        loan_post(srq, words, LOAN_DEPTH);
        BARRIER(side);
        for (unsigned i = 0; i < LOAN_DEPTH; i++) {
            struct rdmux_wc wc = loan_take(
                side, "receives that another endpoint of the SRQ does not use are kept from one");
            uint64_t number = words[CTX_NUMBER(wc.context)] - (uint64_t)round * LOAN_DEPTH;
            EXPECT(number < LOAN_DEPTH && (came & 1U << number) == 0,
                   "message %" PRIu64 " of %d came", number, LOAN_DEPTH);
            EXPECT(wc.ep == eps[loan_sender(round, (unsigned)number)],
                   "message %" PRIu64 " names another endpoint", number);
            came |= 1U << number;
        }
        BARRIER(side);
    }
    BARRIER(side);
    BARRIER(side);
    for (unsigned taken = 0; taken < LOAN_EPS; taken += 2) {
        loan_post(srq, words, 2);
        (void)loan_take(side, "two receives for four endpoints that wait bring no message");
        (void)loan_take(side, "two receives for four endpoints that wait bring one message");
    }
    BARRIER(side);
    loan_close(side, srq, eps, words);
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    side_close_ep(side, eps[LOAN_EPS - 1]);
    EXPECT_OK(rdmux_srq_destroy(srq));
    side_end(side);
}

/* ----------------------------------------------------------------------------- too few receives */

enum { RUSH_EPS = 6, RUSH_DEPTH = 5, RUSH_AHEAD = 8, RUSH_MESSAGES = 300 };

/* All endpoints send as much as the path takes. So they request receives and return unused ones at
 * the same time. */
static void rush_initiator(struct side *side)
{
    struct rdmux_ep *eps[RUSH_EPS];
    uint64_t sent[RUSH_EPS] = { 0 };
    uint64_t done[RUSH_EPS] = { 0 };
    side_open(side, NULL);
    side_meet(side);
    for (unsigned i = 0; i < RUSH_EPS; i++) {
        eps[i] = side_pair(side, NULL);
    }
    BARRIER(side);
    for (uint64_t all = 0; all < (uint64_t)RUSH_EPS * RUSH_MESSAGES;) {
        for (uint64_t i = 0; i < RUSH_EPS; i++) {
            /* In bursts: each endpoint is at times without a message. */
            while (sent[i] < RUSH_MESSAGES && sent[i] - done[i] < RUSH_AHEAD &&
                   (sent[i] % RUSH_AHEAD != 0 || sent[i] == done[i])) {
                const uint64_t word = i * RUSH_MESSAGES + sent[i];
                EXPECT_OK(rdmux_send(eps[i], &word, 8, NULL, CTX(word),
                                     RDMUX_INLINE | flag_if_there(side, RDMUX_PLACED)));
                sent[i]++;
            }
        }
        struct rdmux_wc wc = NEXT_AFTER(
            &side->queue, "one of several endpoints that want receives of an SRQ gets none");
        const uint64_t i = CTX_NUMBER(wc.context) / RUSH_MESSAGES;
        EXPECT(wc.opcode == RDMUX_WC_SEND && wc.status == RDMUX_OK && i < RUSH_EPS &&
                   wc.ep == eps[i] && CTX_NUMBER(wc.context) % RUSH_MESSAGES == done[i],
               "got %s", wc_text(&wc));
        done[i]++;
        all++;
    }
    side_finish(side);
}

static void rush_target(struct side *side)
{
    uint64_t words[RUSH_DEPTH];
    struct rdmux_ep *eps[RUSH_EPS];
    uint64_t came[RUSH_EPS] = { 0 };
    side_open(side, NULL);
    side_meet(side);
    struct rdmux_srq *srq = srq_make(side, RUSH_DEPTH);
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.srq = srq;
    for (unsigned i = 0; i < RUSH_EPS; i++) {
        eps[i] = side_pair(side, &attr);
    }
    loan_post(srq, words, RUSH_DEPTH);
    BARRIER(side);
    for (uint64_t all = 0; all < (uint64_t)RUSH_EPS * RUSH_MESSAGES; all++) {
        struct rdmux_wc wc = loan_take(
            side, "one of several endpoints that want receives of an SRQ gets none");
        uint64_t *word = &words[CTX_NUMBER(wc.context)];
        const uint64_t i = *word / RUSH_MESSAGES;
        EXPECT(i < RUSH_EPS && wc.ep == eps[i] && *word % RUSH_MESSAGES == came[i],
               "message %" PRIu64 " of all brings %" PRIu64, all, *word);
        came[i]++;
        EXPECT_OK(rdmux_srq_recv(srq, word, 8, NULL, wc.context));
    }
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    for (unsigned i = 0; i < RUSH_EPS; i++) {
        side_close_ep(side, eps[i]);
    }
    EXPECT_OK(rdmux_srq_destroy(srq));
    side_end(side);
}

/* ----------------------------------------------------- receives of an SRQ where peers may write */

enum { OPEN_EPS = 3, OPEN_SIZE = 5000, OPEN_DEPTH = 6, OPEN_MESSAGES = 60 };

static size_t open_length(unsigned message)
{
    return message % 5 == 0 ? 100 : OPEN_SIZE - message;
}

static void open_initiator(struct side *side)
{
    static uint8_t bytes[OPEN_SIZE];
    struct rdmux_ep *eps[OPEN_EPS];
    side_open(side, NULL);
    side_meet(side);
    for (unsigned i = 0; i < OPEN_EPS; i++) {
        eps[i] = side_pair(side, NULL);
    }
    BARRIER(side);
    for (unsigned i = 0; i < OPEN_MESSAGES; i++) {
        struct rdmux_ep *ep = eps[i * 7 % OPEN_EPS];
        pattern_fill(bytes, open_length(i), side->seed + i, 0);
        memcpy(bytes, &(uint32_t){ i }, sizeof(uint32_t));
        EXPECT_OK(
            rdmux_send(ep, bytes, open_length(i), NULL, CTX(i), flag_if_there(side, RDMUX_PLACED)));
        (void)WAIT_OF(&side->queue, ep, RDMUX_WC_SEND, CTX(i), RDMUX_OK);
    }
    side_finish(side);
}

static void open_target(struct side *side)
{
    struct rdmux_ep *eps[OPEN_EPS];
    side_open(side, NULL);
    side_meet(side);
    struct rdmux_srq *srq = srq_make(side, OPEN_DEPTH);
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.srq = srq;
    for (unsigned i = 0; i < OPEN_EPS; i++) {
        eps[i] = side_pair(side, &attr);
    }
    struct region region = region_make(side, MEMORY_ALLOCATED, (size_t)OPEN_DEPTH * OPEN_SIZE,
                                       ACCESS_ALL);
    for (uint64_t i = 0; i < OPEN_DEPTH; i++) {
        EXPECT_OK(rdmux_srq_recv(srq, region.addr + i * OPEN_SIZE, OPEN_SIZE, region.mr, CTX(i)));
    }
    BARRIER(side);
    for (unsigned i = 0; i < OPEN_MESSAGES; i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK &&
                   CTX_NUMBER(wc.context) < OPEN_DEPTH,
               "message %u: %s", i, wc_text(&wc));
        uint8_t *bytes = region.addr + CTX_NUMBER(wc.context) * OPEN_SIZE;
        uint32_t number = 0;
        memcpy(&number, bytes, sizeof(number));
        EXPECT(number < OPEN_MESSAGES && wc.ep == eps[number * 7 % OPEN_EPS] &&
                   wc.length == open_length(number),
               "message %u has the number %u: %s", i, number, wc_text(&wc));
        EXPECT_PATTERN_FROM(bytes + 4, open_length(number) - 4, side->seed + number, 4);
        EXPECT_OK(rdmux_srq_recv(srq, bytes, OPEN_SIZE, region.mr, wc.context));
    }
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    for (unsigned i = 0; i < OPEN_EPS; i++) {
        side_close_ep(side, eps[i]);
    }
    EXPECT_OK(rdmux_srq_destroy(srq));
    side_end(side);
}

static const struct conformance_case cases[] = {
    { "2.14, 1.5, 7.9, -7.9",
      "receives of an SRQ that an endpoint was lent and does not use go to the others, also after "
      "its end",
      NEEDS_SRQ | NEEDS_SEND, 30, 0, loan_initiator, loan_target },
    { "2.14, 2.1, 1.5",
      "six endpoints that send at once share five receives of an SRQ, and all messages come",
      NEEDS_SRQ | NEEDS_SEND, 60, 0, rush_initiator, rush_target },
    { "2.14, 2.1", "three endpoints share receives of an SRQ in a region that a peer may write to",
      NEEDS_SRQ | NEEDS_SEND, 20, 0, open_initiator, open_target },
};

const struct suite srq_suite = { "srq", cases, COUNT_OF(cases) };
