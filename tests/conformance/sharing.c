/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* More of endpoints that share the receives of an SRQ: the limit, the pause of one endpoint, and
 * endpoints over paths of two kinds. */
#include "harness.h"

#include <inttypes.h>
#include <string.h>

/* Receives of one word each. A receive's context is its slot. */
enum { SLOTS_MAX = 128 };
struct receives {
    struct rdmux_srq *srq;
    uint64_t words[SLOTS_MAX];
    bool is_posted[SLOTS_MAX];
};

static void receives_make(struct side *side, struct receives *receives, uint32_t depth,
                          uint32_t device_share, uint32_t limit)
{
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    attr.depth = depth;
    attr.device_share = device_share;
    attr.limit = limit;
    memset(receives, 0, sizeof(*receives));
    EXPECT_OK(rdmux_srq_create(side->fabric, side->queue.cq, &attr, &receives->srq));
}

static void receives_post(struct receives *receives, uint64_t slot)
{
    EXPECT(!receives->is_posted[slot], "the case is wrong: slot %" PRIu64 " is posted", slot);
    receives->is_posted[slot] = true;
    receives->words[slot] = UINT64_MAX;
    EXPECT_OK(rdmux_srq_recv(receives->srq, &receives->words[slot], 8, NULL, CTX(slot)));
}

/* Takes a completed receive, and returns its word. */
static uint64_t receives_take(struct receives *receives, const struct rdmux_wc *wc)
{
    const uint64_t slot = CTX_NUMBER(wc->context);
    EXPECT(wc->opcode == RDMUX_WC_RECV && wc->status == RDMUX_OK && slot < SLOTS_MAX, "got %s",
           wc_text(wc));
    EXPECT(receives->is_posted[slot], "receive %" PRIu64 " of an SRQ completes twice", slot);
    receives->is_posted[slot] = false;
    return receives->words[slot];
}

static struct rdmux_ep *share(struct side *side, const struct receives *receives)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.srq = receives->srq;
    return side_pair(side, &attr);
}

static void send_word(struct rdmux_ep *ep, uint64_t word)
{
    EXPECT_OK(rdmux_send(ep, &word, 8, NULL, CTX(word), RDMUX_INLINE));
}

/* ------------------------------------------------------------------------------------ the limit */

enum { LIMIT_DEPTH = 8, LIMIT = 3 };

/* Each step posts some receives and gets some messages. The last message brings the event, or
 * none does. */
static const struct limit_step {
    unsigned posts;
    unsigned messages;
    bool has_event;
} limit_steps[] = {
    { LIMIT_DEPTH, LIMIT_DEPTH - LIMIT, false }, /* 3 are left */
    { 0, 1, true },                              /* 2 */
    { 0, 1, false },                             /* 1 */
    { 1, 1, false },                             /* 1: the post did not reach the limit */
    { 2, 1, true },                              /* 2 */
    { 0, 2, false },                             /* 0 */
    { LIMIT_DEPTH, LIMIT_DEPTH - LIMIT + 1, true },
};

static void limit_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    uint64_t word = 0;
    for (size_t i = 0; i < COUNT_OF(limit_steps); i++) {
        for (unsigned k = 0; k < limit_steps[i].messages; k++) {
            BARRIER(side);
            send_word(side->ep, word);
            (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(word));
            word++;
        }
    }
    side_finish(side);
}

/* Lets the initiator send a message, and takes it. Returns whether the event came with it. */
static bool limit_message(struct side *side, struct receives *receives, uint64_t word)
{
    bool has_come = false;
    bool has_event = false;
    BARRIER(side);
    while (!has_come || queue_poll(&side->queue) > 0) {
        struct rdmux_wc wc = NEXT(&side->queue);
        if (wc.opcode != RDMUX_WC_SRQ_LIMIT) {
            EXPECT_EQUAL(receives_take(receives, &wc), word);
            has_come = true;
            continue;
        }
        EXPECT(!has_event, "SRQ_LIMIT comes twice");
        EXPECT(wc.context == receives->srq && wc.ep == NULL && wc.status == RDMUX_OK &&
                   wc.length == 0,
               "got %s", wc_text(&wc));
        has_event = true;
    }
    return has_event;
}

static void limit_target(struct side *side)
{
    static struct receives receives;
    uint64_t word = 0;
    uint64_t slot = 0;
    side_open(side, NULL);
    side_meet(side);
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    struct rdmux_srq *none = NULL;
    attr.depth = LIMIT_DEPTH;
    attr.limit = LIMIT_DEPTH + 1;
    EXPECT_STATUS(rdmux_srq_create(side->fabric, side->queue.cq, &attr, &none), RDMUX_INVALID);
    receives_make(side, &receives, LIMIT_DEPTH, 0, LIMIT);
    struct rdmux_ep *ep = share(side, &receives);
    EXPECT_QUIET(&side->queue); /* none are left, but none were posted */
    for (size_t i = 0; i < COUNT_OF(limit_steps); i++) {
        const struct limit_step *step = &limit_steps[i];
        for (unsigned k = 0; k < step->posts; k++) {
            receives_post(&receives, slot++);
        }
        for (unsigned k = 0; k < step->messages; k++) {
            const bool is_last = k + 1 == step->messages;
            EXPECT(limit_message(side, &receives, word) == (is_last && step->has_event),
                   "step %zu: message %u comes with%s", i, k,
                   is_last && step->has_event ? "out SRQ_LIMIT" : " SRQ_LIMIT");
            word++;
        }
    }
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    side_close_ep(side, ep);
    EXPECT_OK(rdmux_srq_destroy(receives.srq));
    side_end(side);
}

/* -------------------------------------------------------------------------------------- pausing */

enum {
    PAUSE_DEPTH = 128,
    PAUSE_EARLY = 4,  /* messages of the paused endpoint, which has had none before */
    PAUSE_LATE = 100, /* more, after receives may have been promised to it */
    PAUSE_PROMISED = 64,
    PAUSE_ROUNDS = 50, /* messages of the other endpoint meanwhile */
};

/* The paused endpoint, and the other one. */
struct pausing {
    struct receives receives;
    struct rdmux_ep *eps[2];
    uint64_t came[2];
};

static void pause_rounds_initiator(struct side *side, struct rdmux_ep *const *eps, uint64_t first,
                                   uint64_t count, uint64_t round)
{
    BARRIER(side); /* the endpoint is paused */
    for (uint64_t i = first; i < first + count; i++) {
        send_word(eps[0], i);
    }
    for (uint64_t i = round; i < round + PAUSE_ROUNDS; i++) {
        send_word(eps[1], i);
        (void)WAIT_OF(&side->queue, eps[1], RDMUX_WC_SEND, CTX(i), RDMUX_OK);
        BARRIER(side);
    }
    for (uint64_t i = first; i < first + count; i++) {
        (void)WAIT_OF(&side->queue, eps[0], RDMUX_WC_SEND, CTX(i), RDMUX_OK);
    }
    BARRIER(side); /* all have come */
}

static void pause_initiator(struct side *side)
{
    struct rdmux_ep *eps[2];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    uint8_t pauses = 0;
    attr.send_depth = PAUSE_DEPTH; /* the messages that wait are posted all at once */
    side_open(side, NULL);
    side_meet(side);
    for (unsigned i = 0; i < COUNT_OF(eps); i++) {
        eps[i] = side_pair(side, &attr);
    }
    EXPECT_STATUS(rdmux_ep_pause(eps[0], 1), RDMUX_INVALID); /* it has no SRQ */
    TAKE(side, &pauses, sizeof(pauses));
    if (pauses == 0) {
        leave_out("on this path the device matches messages with receives, so no endpoint pauses");
    }
    pause_rounds_initiator(side, eps, 0, PAUSE_EARLY, 0);
    pause_rounds_initiator(side, eps, PAUSE_EARLY, PAUSE_LATE, PAUSE_ROUNDS);
    side_finish(side);
}

/* Takes the next message, and posts its receive again. */
static void pause_take(struct side *side, struct pausing *pausing)
{
    struct rdmux_wc wc = NEXT(&side->queue);
    const unsigned from = wc.ep == pausing->eps[0] ? 0 : 1;
    EXPECT(wc.ep == pausing->eps[from], "got %s", wc_text(&wc));
    EXPECT_EQUAL(receives_take(&pausing->receives, &wc), pausing->came[from]);
    pausing->came[from]++;
    receives_post(&pausing->receives, CTX_NUMBER(wc.context));
}

/* Messages of the other endpoint come, and at most `promised` of the paused one. When it continues,
 * its others come. */
static void pause_rounds_target(struct side *side, struct pausing *pausing, bool pauses,
                                uint64_t count, uint64_t promised)
{
    const uint64_t before = pausing->came[0];
    if (pauses) {
        EXPECT_OK(rdmux_ep_pause(pausing->eps[0], 1));
        EXPECT_OK(rdmux_ep_pause(pausing->eps[0], 1)); /* which changes nothing */
    }
    BARRIER(side);
    for (unsigned i = 0; i < PAUSE_ROUNDS; i++) {
        const uint64_t awaited = pausing->came[1] + 1;
        while (pausing->came[1] < awaited) {
            pause_take(side, pausing);
        }
        BARRIER(side);
    }
    EXPECT(!pauses || pausing->came[0] - before <= promised,
           "%" PRIu64 " messages of a paused endpoint came", pausing->came[0] - before);
    EXPECT_OK(rdmux_ep_pause(pausing->eps[0], 0));
    while (pausing->came[0] < before + count) {
        pause_take(side, pausing);
    }
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
}

/* Paths of these providers can make the messages of one endpoint wait. */
static bool pause_is_due(const struct side *side)
{
    return strcmp(side->provider, "shm") == 0 || strcmp(side->provider, "tcp") == 0 ||
           strcmp(side->provider, "iwarp") == 0;
}

static void pause_target(struct side *side)
{
    static struct pausing pausing;
    memset(&pausing, 0, sizeof(pausing));
    side_open(side, NULL);
    side_meet(side);
    receives_make(side, &pausing.receives, PAUSE_DEPTH, 0, 0);
    for (unsigned i = 0; i < COUNT_OF(pausing.eps); i++) {
        pausing.eps[i] = share(side, &pausing.receives);
    }
    for (uint64_t i = 0; i < PAUSE_DEPTH; i++) {
        receives_post(&pausing.receives, i);
    }
    enum rdmux_status status = rdmux_ep_pause(pausing.eps[0], 1);
    const uint8_t pauses = status == RDMUX_OK;
    if (pauses == 0) {
        EXPECT_EQUAL(status, RDMUX_UNSUPPORTED);
        EXPECT(!pause_is_due(side), "pausing is UNSUPPORTED: %s", rdmux_last_error());
    }
    GIVE(side, &pauses, sizeof(pauses));
    pause_rounds_target(side, &pausing, pauses != 0, PAUSE_EARLY, 0);
    pause_rounds_target(side, &pausing, pauses != 0, PAUSE_LATE, PAUSE_PROMISED);
    BARRIER(side);
    for (unsigned i = 0; i < COUNT_OF(pausing.eps); i++) {
        side_close_ep(side, pausing.eps[i]);
    }
    EXPECT_OK(rdmux_srq_destroy(pausing.receives.srq));
    side_end(side);
}

/* --------------------------------------------------------------------------- two kinds of paths */

enum {
    KINDS_EPS = 4, /* those of even number over the provider, the others over another one */
    KINDS_DEPTH = 8,
    KINDS_SHARE = 1, /* of the provider's device, if it has one */
    KINDS_AHEAD = 4,
    KINDS_MESSAGES = 60, /* of each endpoint */
    KINDS_LAST = 3,      /* messages in front of an end */
    KINDS_WORDS = 1000,  /* words of an endpoint: its number times this, and on */
};

static const char *kinds_other(const struct side *side)
{
    return strcmp(side->provider, "tcp") == 0 ? "shm" : "tcp";
}

static struct rdmux_ep *kinds_pair(struct side *side, unsigned number, struct rdmux_srq *srq)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_ep *ep = NULL;
    attr.srq = srq;
    if (number % 2 == 0) {
        return side_pair(side, &attr);
    }
    attr.paths = kinds_other(side);
    if (side->is_initiator) {
        EXPECT_OK(rdmux_connect(side->fabric, side->queue.cq, side->address, &attr,
                                side->patient_ms, &ep));
    } else {
        EXPECT_OK(rdmux_accept(side->listener, side->queue.cq, &attr, side->patient_ms, &ep));
    }
    side_track(side, ep);
    EXPECT_OK(rdmux_ep_info(ep, &info));
    EXPECT(strcmp(info.provider, kinds_other(side)) == 0, "the endpoint uses provider \"%s\"",
           info.provider);
    return ep;
}

/* Opens the side and returns whether there is another kind of path. Without one both sides end. */
static bool kinds_open(struct side *side)
{
    uint8_t is_there = 0;
    side_open(side, NULL);
    side_meet(side);
    if (side->is_initiator) {
        struct rdmux_ep_attr attr = ep_attr_of(side);
        struct rdmux_explanation *explanation = NULL;
        attr.paths = kinds_other(side);
        enum rdmux_status status = rdmux_explain(side->fabric, side->address, &attr,
                                                 side->patient_ms, &explanation);
        EXPECT(status == RDMUX_OK || status == RDMUX_NO_PATH, "rdmux_explain gave %s",
               rdmux_status_name(status));
        rdmux_explanation_free(explanation);
        is_there = status == RDMUX_OK;
        GIVE(side, &is_there, sizeof(is_there));
    } else {
        TAKE(side, &is_there, sizeof(is_there));
    }
    if (is_there == 0) {
        if (side->is_initiator) {
            leave_out("the sides have no second kind of path");
        }
        side_finish(side);
    }
    return is_there != 0;
}

/* Each endpoint sends its messages, some at a time, in a random order. */
static void kinds_crowd(struct side *side, struct rdmux_ep *const *eps)
{
    uint64_t sent[KINDS_EPS] = { 0 };
    uint64_t done[KINDS_EPS] = { 0 };
    uint64_t random = side->seed;
    for (unsigned all = 0; all < KINDS_EPS * KINDS_MESSAGES;) {
        const uint64_t i = random_below(&random, KINDS_EPS);
        for (uint64_t burst = random_below(&random, KINDS_AHEAD) + 1;
             burst > 0 && sent[i] < KINDS_MESSAGES && sent[i] - done[i] < KINDS_AHEAD; burst--) {
            send_word(eps[i], i * KINDS_WORDS + sent[i]++);
        }
        while (queue_poll(&side->queue) > 0) {
            struct rdmux_wc wc = NEXT(&side->queue);
            const uint64_t from = CTX_NUMBER(wc.context) / KINDS_WORDS;
            EXPECT(wc.opcode == RDMUX_WC_SEND && wc.status == RDMUX_OK && from < KINDS_EPS &&
                       wc.ep == eps[from],
                   "got %s", wc_text(&wc));
            done[from]++;
            all++;
        }
        EXPECT(!time_is_up(), "%u of %u messages are done", all, KINDS_EPS * KINDS_MESSAGES);
    }
}

static void kinds_fill(struct side *side, struct rdmux_ep *ep, uint64_t first, uint64_t count)
{
    for (uint64_t word = first; word < first + count; word++) {
        send_word(ep, word);
    }
    for (uint64_t word = first; word < first + count; word++) {
        (void)WAIT_OF(&side->queue, ep, RDMUX_WC_SEND, CTX(word), RDMUX_OK);
    }
}

static void kinds_initiator(struct side *side)
{
    struct rdmux_ep *eps[KINDS_EPS];
    if (!kinds_open(side)) {
        return;
    }
    for (unsigned i = 0; i < KINDS_EPS; i++) {
        eps[i] = kinds_pair(side, i, NULL);
    }
    BARRIER(side);
    kinds_crowd(side, eps);
    BARRIER(side);
    for (unsigned i = 0; i + 1 < KINDS_EPS; i++) {
        for (uint64_t k = 0; k < KINDS_LAST; k++) {
            send_word(eps[i], i * KINDS_WORDS + KINDS_MESSAGES + k);
        }
        side_close_ep(side, eps[i]); /* with messages on their way */
        BARRIER(side);
    }
    struct rdmux_ep *last = eps[KINDS_EPS - 1];
    const uint64_t word = (KINDS_EPS - 1) * KINDS_WORDS + KINDS_MESSAGES;
    kinds_fill(side, last, word, KINDS_DEPTH);
    BARRIER(side);
    struct rdmux_ep *again = kinds_pair(side, 0, NULL);
    BARRIER(side);
    kinds_fill(side, last, word + KINDS_DEPTH, 1);
    BARRIER(side);
    kinds_fill(side, again, 0, KINDS_DEPTH - 1);
    BARRIER(side);
    kinds_fill(side, again, KINDS_DEPTH - 1, 1);
    BARRIER(side);
    kinds_fill(side, last, word + KINDS_DEPTH + 1, KINDS_DEPTH - 1 - KINDS_SHARE);
    side_finish(side);
}

/* Takes a message, and returns the number of its endpoint. */
static uint64_t kinds_take(struct receives *receives, const struct rdmux_wc *wc,
                           struct rdmux_ep *const *eps, uint64_t *came)
{
    const uint64_t word = receives_take(receives, wc);
    const uint64_t from = word / KINDS_WORDS;
    EXPECT(from < KINDS_EPS && wc->ep == eps[from] && word % KINDS_WORDS == came[from],
           "a message brings %" PRIu64 ", after %" PRIu64 " of that endpoint", word,
           from < KINDS_EPS ? came[from] : 0);
    came[from]++;
    return from;
}

/* Endpoint `number` sends a little and ends; the messages that come take a receive each. */
static void kinds_end(struct side *side, struct receives *receives, struct rdmux_ep *const *eps,
                      uint64_t *came, unsigned number)
{
    for (;;) {
        struct rdmux_wc wc = NEXT(&side->queue);
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            EXPECT(wc.ep == eps[number] && wc.status == RDMUX_PEER_GONE, "got %s", wc_text(&wc));
            break;
        }
        EXPECT_EQUAL(kinds_take(receives, &wc, eps, came), number);
        receives_post(receives, CTX_NUMBER(wc.context));
    }
    side_close_ep(side, eps[number]);
}

/* So many receives get a message, without a post. */
static void kinds_empty(struct side *side, struct receives *receives, struct rdmux_ep *const *eps,
                        uint64_t *came, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct rdmux_wc wc = NEXT_AFTER(&side->queue, "a receive of an SRQ is lost");
        (void)kinds_take(receives, &wc, eps, came);
    }
    EXPECT_QUIET(&side->queue);
}

static void kinds_refill(struct receives *receives)
{
    for (uint64_t i = 0; i < KINDS_DEPTH; i++) {
        if (!receives->is_posted[i]) {
            receives_post(receives, i);
        }
    }
}

static void kinds_target(struct side *side)
{
    static struct receives receives;
    struct rdmux_ep *eps[KINDS_EPS];
    uint64_t came[KINDS_EPS] = { 0 };
    uint64_t slot = 0;
    if (!kinds_open(side)) {
        return;
    }
    receives_make(side, &receives, KINDS_DEPTH, KINDS_SHARE, 0);
    for (unsigned i = 0; i < KINDS_EPS; i++) {
        eps[i] = kinds_pair(side, i, receives.srq);
        for (unsigned k = 0; k < KINDS_DEPTH / KINDS_EPS; k++) {
            receives_post(&receives, slot++);
        }
    }
    BARRIER(side);
    for (unsigned all = 0; all < KINDS_EPS * KINDS_MESSAGES; all++) {
        struct rdmux_wc wc = NEXT_AFTER(&side->queue, "an endpoint of an SRQ gets no receive");
        (void)kinds_take(&receives, &wc, eps, came);
        receives_post(&receives, CTX_NUMBER(wc.context));
    }
    BARRIER(side);
    for (unsigned i = 0; i + 1 < KINDS_EPS; i++) {
        kinds_end(side, &receives, eps, came, i);
        BARRIER(side);
    }
    kinds_empty(side, &receives, eps, came, KINDS_DEPTH);
    BARRIER(side);
    eps[0] = kinds_pair(side, 0, receives.srq);
    came[0] = 0;
    kinds_refill(&receives);
    BARRIER(side);
    /* With a message, an endpoint whose peer is promised receives gets more of them. It keeps none
     * that it does not use, but those of its device. */
    kinds_empty(side, &receives, eps, came, 1);
    BARRIER(side);
    kinds_empty(side, &receives, eps, came, KINDS_DEPTH - 1);
    kinds_refill(&receives);
    BARRIER(side);
    kinds_empty(side, &receives, eps, came, 1);
    BARRIER(side);
    kinds_empty(side, &receives, eps, came, KINDS_DEPTH - 1 - KINDS_SHARE);
    kinds_refill(&receives); /* the SRQ's end drops them */
    BARRIER(side);
    side_close_ep(side, eps[0]);
    side_close_ep(side, eps[KINDS_EPS - 1]);
    EXPECT_OK(rdmux_srq_destroy(receives.srq));
    EXPECT_QUIET(&side->queue);
    side_end(side);
}

static const struct conformance_case cases[] = {
    { "2.16",
      "SRQ_LIMIT comes once when fewer receives than the limit are left, and again after a post "
      "that reached the limit",
      NEEDS_SRQ | NEEDS_SEND, 20, 0, limit_initiator, limit_target },
    { "2.17, -2.17, 2.2, 1.5",
      "messages of a paused endpoint wait while another endpoint of the SRQ gets its own, and come "
      "in order when it continues",
      NEEDS_SRQ | NEEDS_SEND, 30, 0, pause_initiator, pause_target },
    { "2.14, -2.14, 2.1, 7.9, -7.9, 7.11",
      "endpoints over two kinds of paths share an SRQ: no receive is lost or used twice, in "
      "whatever order messages come and endpoints end",
      NEEDS_SRQ | NEEDS_SEND, 30, 0, kinds_initiator, kinds_target },
};

const struct suite sharing_suite = { "sharing", cases, COUNT_OF(cases) };
