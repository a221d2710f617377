/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Requests in both directions at once. */
#include "harness.h"

#include <string.h>

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
    uint8_t *bytes = region_make(side, MEMORY_UNREGISTERED, BOTH_MOST, 0).addr;
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

static const struct conformance_case cases[] = {
    { "1.5, 2.2, 13.1",
      "when both send queues are full, messages arrive once receives are posted, and so do writes",
      NEEDS_BASICS, 30, 0, both, both },
    { "1.5, -1.5",
      "while a message waits for its receive, the side without a receive completes its own "
      "requests",
      NEEDS_BASICS, 20, 0, beside_initiator, beside_target },
};

const struct suite duplex_suite = { "duplex", cases, COUNT_OF(cases) };
