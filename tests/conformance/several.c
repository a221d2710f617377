/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Several of a kind: endpoints of an SRQ, imports of a region, regions over the same bytes,
 * requests in both directions at once, flags together, lists in every kind of memory. */
#include "harness.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, GUARD_BYTE = 0x3c };

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
        EXPECT(wc.ep == eps[i], "a message is told of another endpoint");
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
                   "message %" PRIu64 " is told of another endpoint", number);
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
               "message %u says it is %u: %s", i, number, wc_text(&wc));
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

/* ---------------------------------------------------------------------------- several imports */

enum { IMPORT_KINDS = 3, IMPORT_SIZE = 3 * PAGE };

static struct rdmux_remote *import(struct side *side, struct rdmux_ep *ep,
                                   const struct rdmux_token *token)
{
    struct rdmux_remote *remote = NULL;
    EXPECT_OK(rdmux_remote_import(ep, token, side->patient_ms, &remote));
    return remote;
}

/* Writes and reads back through this import. */
static void use_import(struct side *side, struct rdmux_ep *ep, struct rdmux_remote *remote,
                       uint64_t seed)
{
    static uint8_t out[IMPORT_SIZE];
    static uint8_t in[IMPORT_SIZE];
    pattern_fill(out, sizeof(out), side->seed + seed, 0);
    EXPECT_OK(rdmux_write(ep, out, sizeof(out), NULL, remote, 0, CTX(seed), 0));
    EXPECT_OK(rdmux_read(ep, in, sizeof(in), NULL, remote, 0, CTX(1000 + seed), 0));
    (void)WAIT_OF(&side->queue, ep, RDMUX_WC_WRITE, CTX(seed), RDMUX_OK);
    (void)WAIT_OF(&side->queue, ep, RDMUX_WC_READ, CTX(1000 + seed), RDMUX_OK);
    EXPECT_PATTERN(in, sizeof(in), side->seed + seed);
}

static void imports_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *first = side->ep;
    struct rdmux_ep *second = side_pair(side, NULL);
    for (unsigned kind = 0; kind < IMPORT_KINDS; kind++) {
        struct rdmux_token token;
        TAKE(side, &token, sizeof(token));
        struct rdmux_remote *a = import(side, first, &token);
        struct rdmux_remote *b = import(side, first, &token);
        struct rdmux_remote *c = import(side, second, &token);
        use_import(side, first, a, 1);
        use_import(side, first, b, 2);
        use_import(side, second, c, 3);
        rdmux_remote_close(a);
        use_import(side, first, b, 4);
        use_import(side, second, c, 5);
        a = import(side, first, &token);
        use_import(side, first, b, 6);
        use_import(side, first, a, 7);
        rdmux_remote_close(b);
        rdmux_remote_close(c);
        use_import(side, first, a, 8);
        b = import(side, second, &token);
        use_import(side, second, b, 9);
        use_import(side, first, a, 10);
        BARRIER(side);
        rdmux_remote_close(a);
        rdmux_remote_close(b);
        BARRIER(side);
    }
    side_finish(side);
}

static void imports_target(struct side *side)
{
    side_open_pair(side, NULL);
    (void)side_pair(side, NULL);
    for (unsigned kind = 0; kind < IMPORT_KINDS; kind++) {
        struct region region = region_of_kind(side, kind, IMPORT_SIZE);
        give_token(side, &region);
        BARRIER(side);
        EXPECT_PATTERN(region.addr, IMPORT_SIZE, side->seed + 10);
        BARRIER(side);
        region_free(side, &region);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------ regions over the same bytes */

enum { OVERLAP_ROUNDS = 60 };

/* Two tokens for the same bytes, one with NO_MAP, so that a path may access them in two ways.
 * Writes through one are found through the other, in posting order. */
static void overlap_initiator(struct side *side)
{
    static uint8_t out[PAGE];
    static uint8_t in[PAGE];
    side_open_pair(side, NULL);
    struct rdmux_remote *remotes[2] = { take_remote(side, side->ep), take_remote(side, side->ep) };
    for (uint64_t round = 0; round < OVERLAP_ROUNDS; round++) {
        size_t length = round % 3 == 0 ? sizeof(out) : 8;
        struct rdmux_remote *by = remotes[round % 2];
        struct rdmux_remote *after = remotes[1 - round % 2];
        uint64_t old = 0;
        uint64_t word = 0;
        pattern_fill(out, length, side->seed + round, 0);
        memcpy(&word, out, 8);
        EXPECT_OK(rdmux_write(side->ep, out, length, NULL, by, 0, CTX(1), 0));
        EXPECT_OK(rdmux_read(side->ep, in, length, NULL, after, 0, CTX(2), 0));
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
        (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(2));
        EXPECT_PATTERN(in, length, side->seed + round);
        if (side_has(side, NEEDS_ATOMICS)) {
            EXPECT_OK(rdmux_write(side->ep, &round, 8, NULL, by, 8, CTX(1), 0));
            EXPECT_OK(rdmux_fetch_add(side->ep, &old, NULL, after, 8, 1, CTX(3), 0));
            (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
            (void)WAIT(&side->queue, RDMUX_WC_FETCH_ADD, CTX(3));
            EXPECT_EQUAL(old, round);
        }
    }
    BARRIER(side);
    side_finish(side);
}

static void overlap_target(struct side *side)
{
    struct rdmux_mr *mr = NULL;
    struct rdmux_token token;
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, PAGE, ACCESS_ALL);
    give_token(side, &region);
    EXPECT_OK(
        rdmux_mr_register(side->fabric, region.addr, PAGE, ACCESS_ALL | RDMUX_ACCESS_NO_MAP, &mr));
    EXPECT_OK(rdmux_mr_export(mr, &token));
    GIVE(side, &token, sizeof(token));
    BARRIER(side);
    rdmux_mr_deregister(mr);
    side_finish(side);
}

/* --------------------------------------------------------------------- both directions at once */

enum { BOTH_SIZES = 6, BOTH_MOST = 3000000, BOTH_DEPTH = 12, BOTH_LONG = 24 << 20 };

/* Sends as much as the path takes while there is no receive; then takes the peer's messages. */
static void both_send(struct side *side, const uint8_t *bytes, size_t length, uint64_t seed)
{
    uint64_t sent = 0;
    uint64_t theirs = 0;
    enum rdmux_status status = RDMUX_OK;
    struct region sink = region_make(side, MEMORY_REGISTERED, length, ACCESS_SINK);
    BARRIER(side);
    while ((status = rdmux_send(side->ep, bytes, length, NULL, CTX(sent), 0)) == RDMUX_OK) {
        sent++;
        EXPECT(sent <= BOTH_DEPTH, "a queue of %d takes one send more", BOTH_DEPTH);
    }
    EXPECT_STATUS(status, RDMUX_AGAIN);
    GIVE(side, &sent, sizeof(sent));
    TAKE(side, &theirs, sizeof(theirs));
    for (uint64_t came = 0; came < theirs; came++) {
        EXPECT_OK(rdmux_recv(side->ep, sink.addr, length, sink.mr, CTX(5000)));
        EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(5000)).length, length);
        EXPECT_PATTERN(sink.addr, length, seed + !side->is_initiator);
    }
    for (uint64_t done = 0; done < sent; done++) {
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(done));
    }
    (void)WAIT(&side->queue, RDMUX_WC_WRITABLE, NULL);
    BARRIER(side);
    region_free(side, &sink);
}

/* Both sides write more than fits between them, at once, and both wait. */
static void both_write(struct side *side)
{
    uint64_t seed = side->seed + 100;
    struct region bytes = region_make(side, MEMORY_UNREGISTERED, BOTH_LONG, 0);
    struct region region = region_make(side, MEMORY_REGISTERED, BOTH_LONG,
                                       ACCESS_ALL | RDMUX_ACCESS_NO_MAP);
    pattern_fill(bytes.addr, BOTH_LONG, seed + side->is_initiator, 0);
    give_token(side, &region);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    BARRIER(side);
    EXPECT_OK(rdmux_write(side->ep, bytes.addr, BOTH_LONG, NULL, remote, 0, CTX(1), 0));
    EXPECT_OK(rdmux_read(side->ep, bytes.addr, 8, NULL, remote, 0, CTX(2), 0));
    (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
    (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(2)); /* so it is placed */
    BARRIER(side);
    EXPECT_PATTERN(region.addr, BOTH_LONG, seed + !side->is_initiator);
    BARRIER(side);
    rdmux_remote_close(remote);
    region_free(side, &bytes);
    BARRIER(side);
    region_free(side, &region);
}

/* Both sides' queues are full, and each makes progress only by its own calls. */
static void both(struct side *side)
{
    static const size_t lengths[BOTH_SIZES] = { 8, 9000, 9000, 9000, 9000, BOTH_MOST };
    static uint8_t bytes[BOTH_MOST];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = BOTH_DEPTH;
    attr.recv_depth = 4;
    side_open_pair(side, &attr);
    for (unsigned i = 0; i < BOTH_SIZES; i++) {
        pattern_fill(bytes, lengths[i], side->seed + 2 * (uint64_t)i + side->is_initiator, 0);
        both_send(side, bytes, lengths[i], side->seed + 2 * (uint64_t)i);
    }
    both_write(side);
    side->queue.sleeps = true;
    both_write(side);
    side_finish(side);
}

/* --------------------------------------------------------------------- beside a waiting message */

enum { BESIDE_MESSAGES = 40, BESIDE_SIZE = 3000000 };

/* A message waits for a receive at the target, which continues with its own requests meanwhile. */
static void beside_initiator(struct side *side)
{
    static uint64_t words[BESIDE_MESSAGES];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.recv_depth = BESIDE_MESSAGES;
    side_open_pair(side, &attr);
    struct region region = region_make(side, MEMORY_REGISTERED, BESIDE_SIZE,
                                       ACCESS_ALL | RDMUX_ACCESS_NO_MAP);
    EXPECT_OK(rdmux_send(side->ep, "waits", 6, NULL, CTX(1000), 0));
    for (uint64_t i = 0; i < BESIDE_MESSAGES; i++) {
        EXPECT_OK(rdmux_recv(side->ep, &words[i], 8, NULL, CTX(i)));
    }
    give_token(side, &region);
    for (uint64_t i = 0; i < BESIDE_MESSAGES; i++) {
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(i));
        EXPECT_EQUAL(words[i], i);
    }
    BARRIER(side); /* the target has all its completions, and posts the receive */
    (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(1000));
    BARRIER(side);
    side_finish(side);
}

static void beside_target(struct side *side)
{
    uint8_t message[8] = { 0 };
    uint32_t placed = flag_if_there(side, RDMUX_PLACED);
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = BESIDE_MESSAGES;
    side_open_pair(side, &attr);
    struct region bytes = region_make(side, MEMORY_UNREGISTERED, BESIDE_SIZE, 0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    EXPECT_OK(rdmux_write(side->ep, bytes.addr, BESIDE_SIZE, NULL, remote, 0, CTX(2000), placed));
    EXPECT_OK(rdmux_read(side->ep, bytes.addr, BESIDE_SIZE, NULL, remote, 0, CTX(2001), 0));
    (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(2000));
    (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(2001));
    for (uint64_t i = 0; i < BESIDE_MESSAGES; i++) {
        EXPECT_OK(rdmux_send(side->ep, &i, 8, NULL, CTX(i), placed | RDMUX_INLINE));
    }
    for (uint64_t i = 0; i < BESIDE_MESSAGES; i++) {
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(i));
    }
    BARRIER(side);
    (void)POST_AND_WAIT(&side->queue, rdmux_recv(side->ep, message, sizeof(message), NULL, CTX(1)),
                        RDMUX_WC_RECV, CTX(1));
    EXPECT(memcmp(message, "waits", 6) == 0, "the message that waited is another one");
    BARRIER(side);
    side_finish(side);
}

/* ------------------------------------------------------------------------------- flags together */

enum { FLAGS_ROUNDS = 8, FLAGS_POLLS = 2000, FLAGS_LONG = 9000 };

/* Returns whether the completion comes while the target makes no call and has no thread that makes
 * progress. */
static bool flags_comes(struct side *side)
{
    for (unsigned polls = 0; polls < FLAGS_POLLS; polls++) {
        if (queue_poll(&side->queue) > 0) {
            return true;
        }
        if (polls % 64 == 0) {
            sleep_ms(1);
        }
    }
    return false;
}

/* PLACED keeps its meaning with INLINE: for a message, a write of nothing, and a write into a
 * region, behind a long message or behind messages alone. If it completes while the target does
 * nothing, the bytes are placed nevertheless. */
static void flags_initiator(struct side *side)
{
    static uint8_t bytes[FLAGS_LONG];
    uint64_t context = 100;
    side_open_pair(side, NULL);
    struct rdmux_ep *ep = side->ep;
    for (unsigned kind = 0; kind < IMPORT_KINDS; kind++) {
        struct rdmux_remote *remote = take_remote(side, ep);
        for (unsigned round = 0; round < FLAGS_ROUNDS; round++) {
            size_t before = round % 2 == 0 ? 40 : sizeof(bytes);
            uint32_t opcode = round / 2 == 0 ? RDMUX_WC_SEND : RDMUX_WC_WRITE;
            uint64_t last = ++context;
            uint8_t go = 0;
            pattern_fill(bytes, sizeof(bytes), side->seed + round, 0);
            BARRIER(side); /* receives are posted */
            TAKE(side, &go, 1);
            EXPECT_OK(rdmux_send(ep, bytes, before, NULL, NULL, RDMUX_UNSIGNALED));
            switch (round / 2) {
            case 0: /* a short message */
                EXPECT_OK(rdmux_send(ep, bytes, 40, NULL, CTX(last), RDMUX_INLINE | RDMUX_PLACED));
                break;
            case 1: /* a flush; no write precedes the first */
                EXPECT_OK(rdmux_write(ep, NULL, 0, NULL, NULL, 0, CTX(last), RDMUX_PLACED));
                break;
            case 2: /* a flush that names a region */
                EXPECT_OK(rdmux_write(ep, NULL, 0, NULL, remote, 0, CTX(last), RDMUX_PLACED));
                break;
            default: /* a write */
                EXPECT_OK(rdmux_write(ep, bytes, 64, NULL, remote, 0, CTX(last),
                                      RDMUX_INLINE | RDMUX_PLACED));
                break;
            }
            bool is_placed = flags_comes(side);
            GIVE(side, &is_placed, sizeof(is_placed));
            (void)WAIT(&side->queue, opcode, CTX(last));
            BARRIER(side);
        }
        rdmux_remote_close(remote);
    }
    side_finish(side);
}

static void flags_look(const struct side *side, const struct region *sink,
                       const struct region *region, unsigned round)
{
    EXPECT_PATTERN(sink->addr, round % 2 == 0 ? 40 : FLAGS_LONG, side->seed + round);
    if (round / 2 == 0) {
        EXPECT_PATTERN(sink->addr + FLAGS_LONG, 40, side->seed + round);
    }
    if (round / 2 == 3) {
        EXPECT_PATTERN(region->addr, 64, side->seed + round);
    }
}

static void flags_target(struct side *side)
{
    side->manual = true; /* no service thread */
    side_open_pair(side, NULL);
    struct region sink = region_make(side, MEMORY_REGISTERED, (size_t)2 * FLAGS_LONG, ACCESS_SINK);
    for (unsigned kind = 0; kind < IMPORT_KINDS; kind++) {
        struct region region = region_of_kind(side, kind, IMPORT_SIZE);
        give_token(side, &region);
        for (unsigned round = 0; round < FLAGS_ROUNDS; round++) {
            bool is_placed = false;
            memset(sink.addr, 0, sink.length);
            memset(region.addr, 0, region.length);
            EXPECT_OK(rdmux_recv(side->ep, sink.addr, FLAGS_LONG, sink.mr, CTX(1)));
            if (round / 2 == 0) {
                EXPECT_OK(rdmux_recv(side->ep, sink.addr + FLAGS_LONG, FLAGS_LONG, sink.mr, CTX(2)));
            }
            BARRIER(side);
            side->manual = false; /* from here on it makes no call */
            GIVE(side, "g", 1);
            TAKE(side, &is_placed, sizeof(is_placed));
            if (is_placed) {
                flags_look(side, &sink, &region, round);
            }
            side->manual = true;
            BARRIER(side);
            flags_look(side, &sink, &region, round);
            (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
            if (round / 2 == 0) {
                (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(2));
            }
        }
        region_free(side, &region);
    }
    side_finish(side);
}

/* INLINE bytes held back by MORE are nevertheless free on return. */
static void held_initiator(struct side *side)
{
    static uint8_t bytes[PAGE];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.max_inline = 1024;
    side_open_pair(side, &attr);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    size_t length = side->info.max_inline < sizeof(bytes) ? side->info.max_inline : sizeof(bytes);
    GIVE(side, &length, sizeof(length));
    for (unsigned round = 0; round < 4; round++) {
        BARRIER(side);
        pattern_fill(bytes, length, side->seed + round, 0);
        EXPECT_OK(rdmux_write(side->ep, bytes, length, NULL, remote, 0, CTX(1),
                              RDMUX_INLINE | RDMUX_MORE | RDMUX_UNSIGNALED));
        memset(bytes, 0, sizeof(bytes));
        pattern_fill(bytes, length, side->seed + 100 + round, 0);
        EXPECT_OK(rdmux_send(side->ep, bytes, length, NULL, CTX(2), RDMUX_INLINE | RDMUX_MORE));
        memset(bytes, 0, sizeof(bytes));
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(2));
        BARRIER(side);
    }
    side_finish(side);
}

static void held_target(struct side *side)
{
    static uint8_t bytes[PAGE];
    size_t length = 0;
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_REGISTERED, PAGE, ACCESS_ALL);
    give_token(side, &region);
    TAKE(side, &length, sizeof(length));
    for (unsigned round = 0; round < 4; round++) {
        EXPECT_OK(rdmux_recv(side->ep, bytes, sizeof(bytes), NULL, CTX(1)));
        BARRIER(side);
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
        EXPECT_PATTERN(region.addr, length, side->seed + round);
        EXPECT_PATTERN(bytes, length, side->seed + 100 + round);
        BARRIER(side);
    }
    side_finish(side);
}

/* Many unsignaled atomics, far more than the queue and than a path has in flight at a time. */
enum { SILENT_ATOMICS = 1500 };

static void silent_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    static uint64_t olds[64];
    attr.send_depth = 48;
    side_open_pair(side, &attr);
    for (unsigned kind = 0; kind < IMPORT_KINDS; kind++) {
        struct rdmux_remote *remote = take_remote(side, side->ep);
        for (unsigned i = 0; i < SILENT_ATOMICS;) {
            enum rdmux_status status = rdmux_fetch_add(side->ep, &olds[i % COUNT_OF(olds)], NULL,
                                                       remote, 8, 1, NULL, RDMUX_UNSIGNALED);
            if (status == RDMUX_AGAIN) {
                (void)WAIT(&side->queue, RDMUX_WC_WRITABLE, NULL);
                continue;
            }
            EXPECT_STATUS(status, RDMUX_OK);
            i++;
        }
        uint64_t sum = 0;
        enum rdmux_status status = RDMUX_AGAIN;
        while ((status = rdmux_fetch_add(side->ep, &sum, NULL, remote, 8, 0, CTX(2), 0)) ==
               RDMUX_AGAIN) {
            (void)WAIT(&side->queue, RDMUX_WC_WRITABLE, NULL);
        }
        EXPECT_STATUS(status, RDMUX_OK);
        (void)WAIT(&side->queue, RDMUX_WC_FETCH_ADD, CTX(2));
        EXPECT_EQUAL(sum, SILENT_ATOMICS);
        while (queue_poll(&side->queue) > 0) { /* WRITABLE for the last refusal */
            EXPECT_EQUAL(NEXT(&side->queue).opcode, RDMUX_WC_WRITABLE);
        }
        rdmux_remote_close(remote);
    }
    BARRIER(side);
    side_finish(side);
}

static void silent_target(struct side *side)
{
    side_open_pair(side, NULL);
    for (unsigned kind = 0; kind < IMPORT_KINDS; kind++) {
        struct region region = region_of_kind(side, kind, PAGE);
        give_token(side, &region);
    }
    BARRIER(side);
    side_finish(side);
}

/* --------------------------------------------------------------- receives where peers may write */

enum { LISTED_TOTAL = 9000, LISTED_GAP = 1000, LISTED_ROUNDS = 6 };

/* Lists of receives, with empty pieces, in regions that a path may let the sender write to. */
static void listed_initiator(struct side *side)
{
    static uint8_t bytes[LISTED_TOTAL];
    side_open_pair(side, NULL);
    const struct rdmux_sge pieces[3] = { { .addr = bytes, .length = 2000 },
                                         { .addr = bytes + 2000, .length = 0 },
                                         { .addr = bytes + 2000, .length = LISTED_TOTAL - 2000 } };
    const struct rdmux_wr list = {
        .op = RDMUX_OP_SEND, .context = CTX(1), .sges = pieces, .sge_count = 3
    };
    for (unsigned round = 0; round < IMPORT_KINDS * LISTED_ROUNDS; round++) {
        BARRIER(side);
        pattern_fill(bytes, sizeof(bytes), side->seed + round, 0);
        if (round % 2 == 0) {
            EXPECT_OK(rdmux_post(side->ep, &list, 1, NULL));
        } else {
            EXPECT_OK(rdmux_send(side->ep, bytes, sizeof(bytes), NULL, CTX(1), 0));
        }
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(1));
    }
    side_finish(side);
}

static void listed_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region regions[IMPORT_KINDS];
    for (unsigned kind = 0; kind < IMPORT_KINDS; kind++) {
        regions[kind] = region_of_kind(side, kind, LISTED_TOTAL + (size_t)2 * LISTED_GAP);
    }
    for (unsigned round = 0; round < IMPORT_KINDS * LISTED_ROUNDS; round++) {
        struct region *region = &regions[round % IMPORT_KINDS];
        uint8_t *at = region->addr;
        const size_t first = round % 4 < 2 ? 2500 : 5000;
        const struct rdmux_sge pieces[4] = {
            { .addr = at, .length = first, .mr = region->mr },
            { .addr = at, .length = 0, .mr = region->mr },
            { .addr = at + first + LISTED_GAP, .length = 1, .mr = region->mr },
            { .addr = at + first + 1 + (size_t)2 * LISTED_GAP - 1,
              .length = LISTED_TOTAL - first - 1,
              .mr = region->mr },
        };
        const struct rdmux_wr list = {
            .op = RDMUX_OP_RECV, .context = CTX(round), .sges = pieces, .sge_count = 4
        };
        memset(at, GUARD_BYTE, region->length);
        EXPECT_OK(rdmux_post_recv(side->ep, &list, 1, NULL));
        BARRIER(side);
        EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(round)).length, LISTED_TOTAL);
        for (size_t i = 0, done = 0; i < COUNT_OF(pieces); i++) {
            EXPECT_PATTERN_FROM(pieces[i].addr, pieces[i].length, side->seed + round, done);
            done += pieces[i].length;
        }
        EXPECT_FILLED(at + first, LISTED_GAP, GUARD_BYTE);
        EXPECT_FILLED(at + first + LISTED_GAP + 1, LISTED_GAP - 1, GUARD_BYTE);
    }
    side_finish(side);
}

/* Lists of the maximum length, with another length in every piece, sent, written and received. */
enum { LONGEST_PIECE = 3000, SHORTER_PIECE = 700, LONGEST_MOST = 16, LONGEST_ROUNDS = 3 };

static size_t longest_list(uint8_t *bytes, unsigned round, uint32_t count, struct rdmux_sge *out)
{
    const size_t longest = round < 2 ? SHORTER_PIECE : LONGEST_PIECE;
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *piece = bytes + used;
        out[i] = (struct rdmux_sge){ .addr = piece, .length = longest - 3 * (size_t)i };
        used += longest - 3 * (size_t)i;
    }
    return used;
}

static void longest_initiator(struct side *side)
{
    static uint8_t bytes[LONGEST_MOST * LONGEST_PIECE];
    struct rdmux_sge pieces[LONGEST_MOST];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.max_send_sge = LONGEST_MOST;
    side_open_pair(side, &attr);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    EXPECT_EQUAL(side->info.max_send_sge, LONGEST_MOST);
    BARRIER(side);
    for (unsigned round = 0; round < LONGEST_ROUNDS; round++) {
        uint32_t count = round == 1 ? 5 : LONGEST_MOST; /* some paths copy one and not the other */
        size_t length = longest_list(bytes, round, count, pieces);
        const struct rdmux_wr wrs[2] = {
            { .op = RDMUX_OP_WRITE,
              .context = CTX(1),
              .sges = pieces,
              .sge_count = count,
              .remote = remote },
            { .op = RDMUX_OP_SEND, .context = CTX(2), .sges = pieces, .sge_count = count },
        };
        pattern_fill(bytes, length, side->seed + round, 0);
        EXPECT_OK(rdmux_post(side->ep, wrs, 2, NULL));
        memset(pieces, 0, sizeof(pieces));
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(2));
        BARRIER(side);
    }
    side_finish(side);
}

static void longest_target(struct side *side)
{
    static uint8_t bytes[LONGEST_MOST * LONGEST_PIECE];
    struct rdmux_sge pieces[LONGEST_MOST];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.max_recv_sge = LONGEST_MOST;
    side_open_pair(side, &attr);
    struct region region = region_make(side, MEMORY_REGISTERED, sizeof(bytes), ACCESS_ALL);
    give_token(side, &region);
    EXPECT_EQUAL(side->info.max_recv_sge, LONGEST_MOST);
    const struct rdmux_wr list = {
        .op = RDMUX_OP_RECV, .context = CTX(1), .sges = pieces, .sge_count = LONGEST_MOST
    };
    for (unsigned round = 0; round < LONGEST_ROUNDS; round++) {
        (void)longest_list(bytes, round, LONGEST_MOST, pieces);
        EXPECT_OK(rdmux_post_recv(side->ep, &list, 1, NULL));
        memset(pieces, 0, sizeof(pieces));
        if (round == 0) {
            BARRIER(side);
        }
        size_t length = WAIT(&side->queue, RDMUX_WC_RECV, CTX(1)).length;
        EXPECT_PATTERN(bytes, length, side->seed + round);
        EXPECT_PATTERN(region.addr, length, side->seed + round);
        BARRIER(side);
    }
    side_finish(side);
}

/* A message longer than a receive in such a region, by one byte or by many: no byte behind the
 * receive changes. */
enum { EXCEEDED = 4096 };

static void exceeded_initiator(struct side *side)
{
    static uint8_t bytes[2 * EXCEEDED];
    side_open(side, NULL);
    side_meet(side);
    memset(bytes, 0xee, sizeof(bytes));
    for (unsigned round = 0; round < 2 * IMPORT_KINDS; round++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        BARRIER(side);
        EXPECT_OK(
            rdmux_send(ep, bytes, round % 2 == 0 ? EXCEEDED + 1 : 2 * EXCEEDED, NULL, CTX(1), 0));
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_SEND && wc.context == CTX(1), "got %s", wc_text(&wc));
        (void)WAIT_OF(&side->queue, ep, RDMUX_WC_DISCONNECTED, NULL, RDMUX_LENGTH);
        BARRIER(side);
        side_close_ep(side, ep);
    }
    side_finish(side);
}

static void exceeded_target(struct side *side)
{
    side_open(side, NULL);
    side_meet(side);
    for (unsigned round = 0; round < 2 * IMPORT_KINDS; round++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        struct region region = region_of_kind(side, round / 2, (size_t)3 * EXCEEDED);
        memset(region.addr, GUARD_BYTE, region.length);
        EXPECT_OK(rdmux_recv(ep, region.addr, EXCEEDED, region.mr, CTX(1)));
        BARRIER(side);
        (void)WAIT_STATUS(&side->queue, RDMUX_WC_RECV, CTX(1), RDMUX_LENGTH);
        (void)WAIT_OF(&side->queue, ep, RDMUX_WC_DISCONNECTED, NULL, RDMUX_LENGTH);
        EXPECT_FILLED(region.addr + EXCEEDED, 2 * (size_t)EXCEEDED, GUARD_BYTE);
        BARRIER(side);
        side_close_ep(side, ep);
        region_free(side, &region);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------- parts over several sockets */

enum { PARTS_SIZE = (9 << 20) + 12345 };

/* A request that needs several frames on every socket, from a list, in both directions. */
static void parts_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.data_sockets = 4;
    side_open_pair(side, &attr);
    struct region out = region_make(side, MEMORY_UNREGISTERED, PARTS_SIZE, 0);
    struct region in = region_make(side, MEMORY_UNREGISTERED, PARTS_SIZE, 0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    pattern_fill(out.addr, PARTS_SIZE, side->seed, 0);
    const struct rdmux_sge pieces[4] = {
        { .addr = out.addr, .length = 3000001 },
        { .addr = out.addr, .length = 0 },
        { .addr = out.addr + 3000001, .length = 1 },
        { .addr = out.addr + 3000002, .length = PARTS_SIZE - 3000002 },
    };
    const struct rdmux_wr list = {
        .op = RDMUX_OP_WRITE, .context = CTX(1), .sges = pieces, .sge_count = 4, .remote = remote
    };
    EXPECT_OK(rdmux_post(side->ep, &list, 1, NULL));
    EXPECT_OK(rdmux_read(side->ep, in.addr, PARTS_SIZE, NULL, remote, 0, CTX(2), 0));
    (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
    (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(2));
    EXPECT_PATTERN(in.addr, PARTS_SIZE, side->seed);
    for (unsigned i = 0; i < 3; i++) {
        EXPECT_OK(rdmux_send(side->ep, out.addr + i, (8 << 20) - i, NULL, CTX(3), 0));
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(3));
    }
    side_finish(side);
}

static void parts_target(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.data_sockets = 4;
    side_open_pair(side, &attr);
    struct region region = region_make(side, MEMORY_REGISTERED, PARTS_SIZE, ACCESS_ALL);
    struct region sink = region_make(side, MEMORY_UNREGISTERED, (size_t)3 * (8 << 20), 0);
    for (uint64_t i = 0; i < 3; i++) {
        EXPECT_OK(rdmux_recv(side->ep, sink.addr + i * (8 << 20), 8 << 20, NULL, CTX(i)));
    }
    give_token(side, &region);
    for (uint64_t i = 0; i < 3; i++) {
        EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(i)).length, (8 << 20) - i);
        EXPECT_PATTERN_FROM(sink.addr + i * (8 << 20), (8 << 20) - i, side->seed, i);
    }
    EXPECT_PATTERN(region.addr, PARTS_SIZE, side->seed);
    side_finish(side);
}

/* --------------------------------------------------------------------- bursts over many sockets */

enum {
    BURST_SOCKETS = 16,
    BURST_MESSAGES = 36,
    BURST_LONG = 256 << 10, /* part of it is on each socket, and the next header is close behind */
    BURST_ROOM = BURST_LONG + (32 << 10),
    BURST_ROUNDS = 4,
};

static size_t burst_length(unsigned message)
{
    return message % 4 == 3 ? 24 : BURST_LONG + (size_t)message % 7 * 4096 + message % 2;
}

static void burst_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.data_sockets = BURST_SOCKETS;
    attr.send_depth = BURST_MESSAGES;
    side_open_pair(side, &attr);
    struct region from = region_make(side, MEMORY_UNREGISTERED, (size_t)BURST_MESSAGES * BURST_ROOM,
                                     0);
    for (uint64_t round = 0; round < BURST_ROUNDS; round++) {
        BARRIER(side);
        for (unsigned i = 0; i < BURST_MESSAGES; i++) {
            uint8_t *at = from.addr + (size_t)i * BURST_ROOM;
            pattern_fill(at, burst_length(i), side->seed + round, i);
        }
        for (unsigned i = 0; i < BURST_MESSAGES; i++) {
            EXPECT_OK(rdmux_send(side->ep, from.addr + (size_t)i * BURST_ROOM, burst_length(i),
                                 NULL, CTX(i), 0));
        }
        for (unsigned i = 0; i < BURST_MESSAGES; i++) {
            (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(i));
        }
        BARRIER(side);
    }
    side_finish(side);
}

static void burst_target(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.data_sockets = BURST_SOCKETS;
    attr.recv_depth = BURST_MESSAGES;
    side_open_pair(side, &attr);
    struct region into = region_make(side, MEMORY_UNREGISTERED, (size_t)BURST_MESSAGES * BURST_ROOM,
                                     0);
    for (uint64_t round = 0; round < BURST_ROUNDS; round++) {
        for (unsigned i = 0; i < BURST_MESSAGES; i++) {
            EXPECT_OK(
                rdmux_recv(side->ep, into.addr + (size_t)i * BURST_ROOM, BURST_ROOM, NULL, CTX(i)));
        }
        BARRIER(side);
        for (unsigned i = 0; i < BURST_MESSAGES; i++) {
            EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(i)).length, burst_length(i));
            EXPECT_PATTERN_FROM(into.addr + (size_t)i * BURST_ROOM, burst_length(i),
                                side->seed + round, i);
        }
        BARRIER(side);
    }
    side_finish(side);
}

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

/* Pauses between two polls until the message is heard, so that there is always more work than one poll handles. */
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
                       "a message was not heard before %d writes by another endpoint, all posted "
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
    { "2.14, 1.5, 7.9, -7.9",
      "receives of an SRQ that an endpoint was lent and does not use are there for the others, and "
      "when it ends",
      NEEDS_SRQ | NEEDS_SEND, 30, 0, loan_initiator, loan_target },
    { "2.14, 2.1, 1.5",
      "six endpoints that send at once share five receives of an SRQ, and all messages come",
      NEEDS_SRQ | NEEDS_SEND, 60, 0, rush_initiator, rush_target },
    { "2.14, 2.1", "three endpoints share receives of an SRQ that lie where a peer may write",
      NEEDS_SRQ | NEEDS_SEND, 20, 0, open_initiator, open_target },
    { "6.12, 6.14, 6.11",
      "several imports of a region are used and closed in any order, in memory of every kind",
      NEEDS_WRITE | NEEDS_READ, 20, 0, imports_initiator, imports_target },
    { "2.6, 6.17",
      "a write by one token shows in a read and an atomic by another for the same bytes",
      NEEDS_WRITE | NEEDS_READ, 20, 0, overlap_initiator, overlap_target },
    { "1.5, 2.2, 13.1",
      "both send queues are full and no receive is there; then receives come, and all arrives; so "
      "do "
      "writes",
      NEEDS_BASICS, 30, 0, both, both },
    { "1.5, -1.5",
      "while a message waits for its receive, the side that has none goes on with its own requests",
      NEEDS_BASICS, 20, 0, beside_initiator, beside_target },
    { "1.9, 3.4, 3.5",
      "PLACED with INLINE, on a write of nothing that names a region, and behind sends alone, "
      "means "
      "what it means",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_PLACED, 20, 0, flags_initiator, flags_target },
    { "1.14, 1.15, -1.14", "the bytes of an INLINE request that MORE holds back may be overwritten",
      NEEDS_SEND | NEEDS_WRITE, 0, 0, held_initiator, held_target },
    { "1.10, 1.4, 2.11",
      "thousands of unsignaled atomics pass a queue of 48 entries, in memory of every kind",
      NEEDS_ATOMICS, 20, 0, silent_initiator, silent_target },
    { "1.13, 2.1, 5.2",
      "lists of receives with empty pieces, in regions of every kind where a peer may write",
      NEEDS_SEND, 20, 0, listed_initiator, listed_target },
    { "1.13, 2.3",
      "lists of as many pieces as may be are sent, written and received whole, and free on return",
      NEEDS_SEND | NEEDS_WRITE, 0, 0, longest_initiator, longest_target },
    { "5.1, 5.2, -5.1, -5.2",
      "a message too long for its receive in a region of any kind changes nothing behind it",
      NEEDS_SEND, 20, 0, exceeded_initiator, exceeded_target },
    { "2.15, 12.5, 1.13",
      "with four data sockets requests of many parts, from lists, are whole both ways",
      NEEDS_BASICS, 30, 0, parts_initiator, parts_target },
    { "2.15, 2.1",
      "with sixteen data sockets messages just long enough to be spread, and short ones, arrive "
      "whole",
      NEEDS_SEND, 30, 0, burst_initiator, burst_target },
    { "1.5, 7.11, 9.6",
      "endpoints of a cq come and go in any order, and those that are there are heard", NEEDS_SEND,
      60, 0, churn, churn },
    { "1.5", "a message by one endpoint is heard while another one is written to without a pause",
      NEEDS_SEND | NEEDS_WRITE, 60, 0, turns_initiator, turns_target },
};

const struct suite several_suite = { "several", cases, COUNT_OF(cases) };
