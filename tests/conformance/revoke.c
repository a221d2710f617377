/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Revoking rights: the promise when revoke returns, and the endpoints that may end by it. */
#include "harness.h"
#include "lateness.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, REGION_SIZE = 64 * PAGE };

/* The endpoint was refused at the target: all its queued requests complete, then DISCONNECTED comes
 * with DENIED. */
static void drain_denied(struct queue *queue, struct rdmux_ep *ep, uint64_t outstanding)
{
    for (;;) {
        struct rdmux_wc wc = NEXT(queue);
        EXPECT(wc.ep == ep, "the other endpoint has %s", wc_text(&wc));
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            EXPECT_STATUS(wc.status, RDMUX_DENIED);
            break;
        }
        EXPECT(outstanding > 0, "one completion too many: %s", wc_text(&wc));
        EXPECT(wc.status == RDMUX_OK || wc.status == RDMUX_DENIED || wc.status == RDMUX_FLUSHED ||
                   wc.status == RDMUX_OUTCOME_UNKNOWN,
               "got %s", wc_text(&wc));
        outstanding--;
    }
    EXPECT(outstanding == 0, "%" PRIu64 " requests never completed", outstanding);
}

/* ------------------------------------------------------------------------ after the revoke */

/* Every operation after revoke has returned is refused, and the region's content stays. Either the
 * post returns DENIED, or this endpoint ends with DENIED if it had not yet learned of the
 * revoke. */
static void after_initiator(struct side *side)
{
    static uint8_t bytes[PAGE];
    uint64_t word = 0;
    side_open_pair(side, NULL);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_ep *other = side_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, ep);
    struct rdmux_remote *kept = take_remote(side, ep);
    memset(bytes, 0xee, sizeof(bytes));
    (void)POST_AND_WAIT(&side->queue,
                        rdmux_write(ep, bytes, 8, NULL, remote, 0, CTX(1), RDMUX_PLACED),
                        RDMUX_WC_WRITE, CTX(1));
    BARRIER(side);
    BARRIER(side); /* revoked */
    enum rdmux_status status = rdmux_write(ep, bytes, sizeof(bytes), NULL, remote, 0, CTX(2),
                                           RDMUX_PLACED);
    if (status == RDMUX_OK) {
        drain_denied(&side->queue, ep, 1);
    } else {
        EXPECT_STATUS(status, RDMUX_DENIED);
        EXPECT_STATUS(rdmux_read(ep, bytes, 8, NULL, remote, 0, CTX(3), 0), RDMUX_DENIED);
        EXPECT_STATUS(rdmux_fetch_add(ep, &word, NULL, remote, 0, 1, CTX(4), 0), RDMUX_DENIED);
        struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
        EXPECT_OK(rdmux_remote_info(remote, &info));
        EXPECT_EQUAL(info.status, RDMUX_DENIED);
        /* the endpoint and its other imports survive */
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_write(ep, "k", 1, NULL, kept, 0, CTX(5), RDMUX_PLACED),
                            RDMUX_WC_WRITE, CTX(5));
        EXPECT_QUIET(&side->queue);
    }
    bool lives = status == RDMUX_DENIED;
    GIVE(side, &lives, sizeof(lives));
    exercise(side, &side->queue, other);
    side_finish(side);
}

static void after_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_ep *other = side_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, PAGE, ACCESS_ALL);
    struct region kept = region_make(side, MEMORY_ALLOCATED, PAGE, ACCESS_ALL);
    give_token(side, &region);
    give_token(side, &kept);
    BARRIER(side);
    EXPECT_FILLED(region.addr, 8, 0xee);
    struct stopwatch watch;
    stopwatch_start(&watch);
    EXPECT_OK(rdmux_mr_revoke(region.mr));
    expect_took(&watch, "revoke", 0, 200 + UINT64_C(300) * side->patience);
    pattern_fill(region.addr, PAGE, side->seed, 0);
    BARRIER(side);
    bool lives = false;
    TAKE(side, &lives, sizeof(lives));
    EXPECT_PATTERN(region.addr, PAGE, side->seed);
    EXPECT_EQUAL(kept.addr[0], lives ? 'k' : 0);
    if (!lives) {
        (void)WAIT_OF(&side->queue, ep, RDMUX_WC_DISCONNECTED, NULL, RDMUX_DENIED);
    }
    exercise(side, &side->queue, other);
    EXPECT_PATTERN(region.addr, PAGE, side->seed);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ during traffic */

enum { DEPTH = 16, DURING_ROUNDS = 9 };

/* The initiator's in-flight requests on one endpoint. */
struct traffic {
    struct rdmux_ep *ep;
    struct rdmux_remote *remote;
    uint64_t posted;
    uint64_t done;
    bool failed; /* a request was refused at the target */
    bool ended;  /* DISCONNECTED was seen */
};

static uint8_t traffic_bytes[DEPTH][8 * PAGE];
static uint8_t traffic_read[8 * PAGE];

/* Each write has other bytes than those before it, so that a late one shows. */
static enum rdmux_status traffic_post(struct traffic *traffic)
{
    uint64_t i = traffic->posted;
    uint64_t offset = i % 8 * 8 * PAGE;
    size_t length = i % 3 == 0 ? 100 : sizeof(traffic_read);
    uint8_t *bytes = traffic_bytes[i % DEPTH];
    memset(bytes, 1 + (int)(i % 255), length);
    enum rdmux_status status = i % 4 == 3 ? rdmux_read(traffic->ep, traffic_read, length, NULL,
                                                       traffic->remote, offset, CTX(i), 0)
                                          : rdmux_write(traffic->ep, bytes, length, NULL,
                                                        traffic->remote, offset, CTX(i), 0);
    traffic->posted += status == RDMUX_OK;
    return status;
}

static void traffic_take(struct queue *queue, struct traffic *traffic)
{
    struct rdmux_wc wc = NEXT(queue);
    EXPECT(wc.ep == traffic->ep, "the other endpoint has %s", wc_text(&wc));
    if (wc.opcode == RDMUX_WC_DISCONNECTED) {
        EXPECT_STATUS(wc.status, RDMUX_DENIED);
        EXPECT(traffic->done == traffic->posted, "DISCONNECTED came before %" PRIu64 " completions",
               traffic->posted - traffic->done);
        traffic->ended = true;
        return;
    }
    EXPECT(CTX_NUMBER(wc.context) == traffic->done, "completion %" PRIu64 " is %s", traffic->done,
           wc_text(&wc));
    EXPECT(wc.status == RDMUX_OK || wc.status == RDMUX_DENIED || wc.status == RDMUX_FLUSHED ||
               wc.status == RDMUX_OUTCOME_UNKNOWN,
           "got %s", wc_text(&wc));
    EXPECT(wc.status != RDMUX_OK || !traffic->failed, "after a refused request came %s",
           wc_text(&wc));
    traffic->failed = traffic->failed || wc.status != RDMUX_OK;
    traffic->done++;
}

/* The only event allowed meanwhile is the end of the endpoint whose access was refused. */
static void drop_denied(struct side *side, const struct rdmux_ep *ep)
{
    while (queue_poll(&side->queue) > 0) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_DISCONNECTED && wc.ep == ep && wc.status == RDMUX_DENIED,
               "got %s", wc_text(&wc));
    }
}

/* Writes and reads run while the target revokes. Late ones are refused. Once revoke has returned
 * the bytes never change again. */
static void during_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = DEPTH;
    side_open_pair(side, &attr);
    struct rdmux_ep *other = side_pair(side, NULL);
    struct queue *queue = &side->queue;
    for (unsigned round = 0; round < DURING_ROUNDS; round++) {
        struct rdmux_ep *ep = round == 0 ? side->ep : side_pair(side, &attr);
        struct traffic traffic = { .ep = ep, .remote = take_remote(side, ep) };
        BARRIER(side);
        while (!traffic.failed && !traffic.ended) {
            enum rdmux_status status = traffic_post(&traffic);
            if (status != RDMUX_OK) {
                EXPECT_STATUS(status, RDMUX_DENIED);
                break;
            }
            if (traffic.posted - traffic.done == DEPTH) {
                traffic_take(queue, &traffic);
            }
        }
        while (!traffic.ended && (traffic.failed || traffic.done < traffic.posted)) {
            traffic_take(queue, &traffic);
        }
        BARRIER(side);
        exercise(side, queue, other);
        drop_denied(side, ep);
        BARRIER(side);
        side_close_ep(side, ep);
    }
    side_finish(side);
}

static void during_target(struct side *side)
{
    uint8_t *snapshot = malloc(REGION_SIZE);
    EXPECT(snapshot != NULL, "out of memory");
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = DEPTH;
    side_open_pair(side, &attr);
    struct rdmux_ep *other = side_pair(side, NULL);
    uint64_t random = side->seed;
    for (unsigned round = 0; round < DURING_ROUNDS; round++) {
        struct rdmux_ep *ep = round == 0 ? side->ep : side_pair(side, &attr);
        struct region region = region_of_kind(side, round, REGION_SIZE);
        give_token(side, &region);
        BARRIER(side);
        uint64_t until = now_ns() + random_below(&random, 5000000);
        while (now_ns() < until) {
        }
        EXPECT_OK(rdmux_mr_revoke(region.mr));
        memcpy(snapshot, region.addr, REGION_SIZE);
        BARRIER(side); /* the initiator has noticed, so all requests in flight have arrived */
        EXPECT(memcmp(snapshot, region.addr, REGION_SIZE) == 0,
               "round %u: bytes changed after revoke had returned", round);
        drop_denied(side, ep);
        exercise(side, &side->queue, other);
        drop_denied(side, ep);
        BARRIER(side);
        EXPECT(memcmp(snapshot, region.addr, REGION_SIZE) == 0,
               "round %u: bytes changed after revoke had returned", round);
        side_close_ep(side, ep);
        region_free(side, &region);
    }
    free(snapshot);
    side_finish(side);
}

/* ----------------------------------------------------------------------- copies in progress */

enum {
    LATE_ROUNDS = 12,
    LATE_SIZE = 12 << 20,
    LATE_WRITES = 4,  /* each with other bytes */
    LATE_POSTS = 160, /* they take longer than a revoke waits for an importer */
    LATE_STEP = 64 << 10,
    LATE_SAMPLES = LATE_SIZE / LATE_STEP,
    LATE_WAIT_NS = 100000000,
};

static uint8_t late_byte(unsigned round, uint64_t write)
{
    return (uint8_t)((uint64_t)round * LATE_WRITES + write + 1);
}

/* A copy is in progress once this byte is in the region. The wait is bounded, because the copy may
 * pass the place between two checks. */
static void late_await(const struct region *region, uint64_t at, uint8_t byte)
{
    const volatile uint8_t *place = region->addr + at;
    const uint64_t until = now_ns() + LATE_WAIT_NS;
    while (*place < byte && now_ns() < until) {
    }
}

/* Long writes to the same place, each with other bytes. Then the import is closed, which does not
 * stop them, so that a revoke has no importer to ask. They use the last endpoint made, or the last
 * but one. */
static void late_initiator(struct side *side)
{
    uint8_t *bytes = malloc((size_t)LATE_WRITES * LATE_SIZE);
    struct rdmux_ep_attr attr = ep_attr_of(side);
    EXPECT(bytes != NULL, "out of memory");
    attr.send_depth = LATE_POSTS;
    side_open_pair(side, NULL);
    for (unsigned round = 0; round < LATE_ROUNDS; round++) {
        struct rdmux_ep *ep = side_pair(side, &attr);
        struct rdmux_ep *idle = round % 2 == 0 ? NULL : side_pair(side, NULL);
        struct rdmux_remote *remote = take_remote(side, ep);
        bool goes_well = true;
        bool is_ended = false;
        for (uint64_t i = 0; i < LATE_WRITES; i++) {
            memset(bytes + i * LATE_SIZE, late_byte(round, i), LATE_SIZE);
        }
        BARRIER(side);
        uint64_t done = 0;
        for (uint64_t i = 0; i < LATE_POSTS; i++) {
            EXPECT_OK(rdmux_write(ep, bytes + i % LATE_WRITES * LATE_SIZE, LATE_SIZE, NULL, remote,
                                  0, CTX(i), 0));
        }
        rdmux_remote_close(remote);
        GIVE(side, "g", 1);
        while (done < LATE_POSTS || (!goes_well && !is_ended)) {
            struct rdmux_wc wc = NEXT(&side->queue);
            EXPECT(wc.ep == ep, "got %s", wc_text(&wc));
            is_ended = wc.opcode == RDMUX_WC_DISCONNECTED;
            EXPECT(!is_ended || (done == LATE_POSTS && wc.status == RDMUX_DENIED),
                   "%" PRIu64 " of %d requests completed, then %s", done, LATE_POSTS, wc_text(&wc));
            goes_well = goes_well && wc.status == RDMUX_OK;
            done += !is_ended;
        }
        BARRIER(side);
        drop_denied(side, ep);
        BARRIER(side);
        side_close_ep(side, ep);
        if (idle != NULL) {
            side_close_ep(side, idle);
        }
    }
    free(bytes);
    side_finish(side);
}

/* Samples some bytes, the last first: a copy in progress goes in the other direction. */
static void late_sample(const struct region *region, uint8_t samples[LATE_SAMPLES])
{
    for (size_t i = LATE_SAMPLES; i-- > 0;) {
        samples[i] = region->addr[(i + 1) * LATE_STEP - 1];
    }
}

static void late_target(struct side *side)
{
    static uint8_t before[LATE_SAMPLES];
    static uint8_t after[LATE_SAMPLES];
    uint64_t random = side->seed;
    side_open_pair(side, NULL);
    for (unsigned round = 0; round < LATE_ROUNDS; round++) {
        char byte = 0;
        struct rdmux_ep *ep = side_pair(side, NULL);
        struct rdmux_ep *idle = round % 2 == 0 ? NULL : side_pair(side, NULL);
        struct region region = region_of_kind(side, round / 2, LATE_SIZE);
        memset(region.addr, 0, LATE_SIZE);
        give_token(side, &region);
        BARRIER(side);
        TAKE(side, &byte, 1);
        (void)queue_poll(&side->queue); /* learns that the import is closed */
        late_await(&region, random_below(&random, LATE_SIZE),
                   late_byte(round, random_below(&random, LATE_WRITES)));
        EXPECT_OK(rdmux_mr_revoke(region.mr));
        late_sample(&region, before);
        BARRIER(side); /* the initiator has noticed, so all requests in flight have arrived */
        late_sample(&region, after);
        for (size_t i = 0; i < LATE_SAMPLES; i++) {
            EXPECT(before[i] == after[i],
                   "round %u: byte %zu became 0x%02x, it was 0x%02x when revoke returned", round,
                   (i + 1) * LATE_STEP - 1, after[i], before[i]);
        }
        drop_denied(side, ep);
        BARRIER(side); /* from here on neither side polls before it has closed both */
        side_close_ep(side, ep);
        if (idle != NULL) {
            side_close_ep(side, idle);
        }
        region_free(side, &region);
    }
    side_finish(side);
}

/* ----------------------------------------------------------------- requests that cross a revoke */

enum {
    CROSSED_KINDS = 3,
    CROSSED_OPS = 5,
    CROSSED_LONG = 100003,
    CROSSED_SIZE = CROSSED_LONG + 64,
    CROSSED_BEFORE = 0x11,
    CROSSED_WRITTEN = 0xee,
    CROSSED_RECEIVES = 2,
    CROSSED_FILL = 600, /* fill a path, so that the device has not begun the requests behind */
};

static bool crossed_fills(unsigned round)
{
    return round % CROSSED_OPS == 4 || round % 2 != 0;
}

static struct rdmux_ep_attr crossed_attr(const struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = CROSSED_FILL + 8;
    attr.recv_depth = CROSSED_FILL + 8;
    return attr;
}

/* Posts two requests that name the region or are behind one that does. */
static void crossed_post(struct side *side, struct rdmux_ep *ep, struct rdmux_remote *remote,
                         unsigned op, uint8_t *bytes, uint64_t *word)
{
    const uint32_t placed = flag_if_there(side, RDMUX_PLACED);
    switch (op) {
    case 0:
        EXPECT_OK(rdmux_write(ep, bytes, 8, NULL, remote, 0, CTX(2), placed));
        EXPECT_OK(rdmux_write(ep, bytes, CROSSED_LONG, NULL, remote, 8, CTX(3), placed));
        break;
    case 1:
        EXPECT_OK(rdmux_write(ep, bytes, CROSSED_LONG, NULL, remote, 1, CTX(2), 0));
        EXPECT_OK(rdmux_write(ep, NULL, 0, NULL, placed != 0 ? NULL : remote, 0, CTX(3), placed));
        break;
    case 2:
        EXPECT_OK(rdmux_write_imm(ep, bytes, CROSSED_LONG, NULL, remote, 3, 7, CTX(2), placed));
        EXPECT_OK(rdmux_send(ep, bytes, 8, NULL, CTX(3), placed));
        break;
    case 3:
        EXPECT_OK(rdmux_read(ep, bytes, CROSSED_LONG, NULL, remote, 5, CTX(2), 0));
        EXPECT_OK(rdmux_read(ep, word, 8, NULL, remote, 16, CTX(3), 0));
        break;
    default:
        EXPECT_OK(rdmux_fetch_add(ep, word, NULL, remote, 8, 5, CTX(2), 0));
        EXPECT_OK(rdmux_write(ep, bytes, 8, NULL, remote, 8, CTX(3), placed));
        break;
    }
}

static bool crossed_can(const struct side *side, unsigned op)
{
    return op == 2 ? side_has(side, NEEDS_IMM) : op != 4 || side_has(side, NEEDS_ATOMICS);
}

/* Takes the completion of the earlier send. It arrives. If the target's device stops at the
 * refusal, its answer may be lost with all others (6.9). Returns whether the send is reported as
 * done. */
static bool crossed_take_send(struct side *side, const struct rdmux_ep *ep)
{
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.ep == ep && wc.opcode == RDMUX_WC_SEND && wc.context == CTX(1) &&
               (wc.status == RDMUX_OK || wc.status == RDMUX_OUTCOME_UNKNOWN),
           "got %s", wc_text(&wc));
    return wc.status == RDMUX_OK;
}

/* A send without a receive holds back the requests behind it, or their completions, until long
 * after the revoke. The import is closed meanwhile, or not. Requests reported as done were done
 * before the revoke. */
static void crossed_initiator(struct side *side)
{
    static uint8_t bytes[CROSSED_LONG];
    static uint8_t before[CROSSED_LONG];
    struct rdmux_ep_attr attr = crossed_attr(side);
    side_open_pair(side, NULL);
    struct rdmux_ep *other = side->ep;
    memset(before, CROSSED_BEFORE, sizeof(before));
    for (unsigned round = 0; round < CROSSED_KINDS * CROSSED_OPS; round++) {
        const unsigned op = round % CROSSED_OPS;
        uint8_t done[2] = { 0, 0 };
        uint64_t word = 0;
        if (!crossed_can(side, op)) {
            continue;
        }
        struct rdmux_ep *ep = side_pair(side, &attr);
        struct rdmux_remote *remote = take_remote(side, ep);
        memset(bytes, CROSSED_WRITTEN, sizeof(bytes));
        for (unsigned i = 0; i < CROSSED_FILL && crossed_fills(round); i++) {
            EXPECT_OK(rdmux_send(ep, "f", 1, NULL, CTX(0), RDMUX_INLINE | RDMUX_UNSIGNALED));
        }
        EXPECT_OK(rdmux_send(ep, &word, 8, NULL, CTX(1), RDMUX_INLINE));
        crossed_post(side, ep, remote, op, bytes, &word);
        if (round % 2 == 0) {
            rdmux_remote_close(remote);
        }
        BARRIER(side);
        BARRIER(side); /* revoked, and receives are posted */
        const bool was_sent = crossed_take_send(side, ep);
        for (uint64_t i = 0; i < 2; i++) {
            struct rdmux_wc wc = NEXT(&side->queue);
            EXPECT(wc.ep == ep && wc.context == CTX(2 + i), "got %s", wc_text(&wc));
            EXPECT(wc.status == RDMUX_DENIED || wc.status == RDMUX_FLUSHED ||
                       wc.status == RDMUX_OUTCOME_UNKNOWN || wc.status == RDMUX_OK,
                   "a request on a revoked region, or behind one, is %s", wc_text(&wc));
            EXPECT(wc.status != RDMUX_OK || (i == 0 ? was_sent : done[0] != 0),
                   "after a failed request came %s", wc_text(&wc));
            done[i] = wc.status == RDMUX_OK;
        }
        EXPECT(op != 3 || done[0] == 0 || memcmp(bytes, before, CROSSED_LONG) == 0,
               "a read brought what was written to the region after its revoke");
        EXPECT(op != 3 || done[1] == 0 || memcmp(&word, before, 8) == 0,
               "a read brought what was written to the region after its revoke");
        GIVE(side, done, sizeof(done));
        if (done[0] == 0 || done[1] == 0) {
            (void)WAIT_OF(&side->queue, ep, RDMUX_WC_DISCONNECTED, NULL, RDMUX_DENIED);
        }
        BARRIER(side);
        exercise(side, &side->queue, other);
        BARRIER(side);
        side_close_ep(side, ep);
    }
    side_finish(side);
}

/* Checks the bytes that a completion with PLACED, or a flush behind it, reported as placed. then:
 * the region's bytes when the revoke returned. */
static void crossed_check(const struct side *side, unsigned op, const uint8_t done[2],
                          const uint8_t *then)
{
    if (flag_if_there(side, RDMUX_PLACED) == 0) {
        return;
    }
    if (op == 0 && done[0] != 0) {
        EXPECT_FILLED(then, 8, CROSSED_WRITTEN);
    }
    if (op == 0 && done[1] != 0) {
        EXPECT_FILLED(then + 8, CROSSED_LONG, CROSSED_WRITTEN);
    }
    if (op == 1 && done[1] != 0) {
        EXPECT_FILLED(then + 1, CROSSED_LONG, CROSSED_WRITTEN);
    }
    if (op == 2 && done[0] != 0) {
        EXPECT_FILLED(then + 3, CROSSED_LONG, CROSSED_WRITTEN);
    }
}

static void crossed_target(struct side *side)
{
    static uint8_t then[CROSSED_SIZE];
    uint64_t words[CROSSED_RECEIVES + 1];
    struct rdmux_ep_attr attr = crossed_attr(side);
    uint8_t fill = 0;
    side_open_pair(side, NULL);
    struct rdmux_ep *other = side->ep;
    for (unsigned round = 0; round < CROSSED_KINDS * CROSSED_OPS; round++) {
        const unsigned op = round % CROSSED_OPS;
        uint8_t done[2];
        if (!crossed_can(side, op)) {
            continue;
        }
        struct rdmux_ep *ep = side_pair(side, &attr);
        const unsigned fills = crossed_fills(round) ? CROSSED_FILL : 0;
        struct region region = region_of_kind(side, round / CROSSED_OPS, CROSSED_SIZE);
        memset(region.addr, CROSSED_BEFORE, CROSSED_SIZE);
        give_token(side, &region);
        BARRIER(side);
        EXPECT_OK(rdmux_mr_revoke(region.mr));
        memcpy(then, region.addr, CROSSED_SIZE);
        pattern_fill(region.addr, CROSSED_SIZE, side->seed + round, 0);
        for (unsigned i = 0; i < fills; i++) {
            EXPECT_OK(rdmux_recv(ep, &fill, 1, NULL, CTX(CROSSED_FILL)));
        }
        for (uint64_t i = 0; i <= CROSSED_RECEIVES; i++) {
            EXPECT_OK(rdmux_recv(ep, &words[i], 8, NULL, CTX(i)));
        }
        BARRIER(side);
        for (unsigned i = 0; i < fills; i++) {
            (void)WAIT_OF(&side->queue, ep, RDMUX_WC_RECV, CTX(CROSSED_FILL), RDMUX_OK);
        }
        (void)WAIT_OF(&side->queue, ep, RDMUX_WC_RECV, CTX(0), RDMUX_OK);
        TAKE(side, done, sizeof(done));
        crossed_check(side, op, done, then);
        if (done[0] == 0 || done[1] == 0) {
            drain_denied(&side->queue, ep, CROSSED_RECEIVES);
        } else if (op == 2) {
            (void)WAIT_OF(&side->queue, ep, RDMUX_WC_RECV_WRITE_IMM, CTX(1), RDMUX_OK);
            (void)WAIT_OF(&side->queue, ep, RDMUX_WC_RECV, CTX(2), RDMUX_OK);
        }
        BARRIER(side);
        EXPECT_PATTERN(region.addr, CROSSED_SIZE, side->seed + round);
        exercise(side, &side->queue, other);
        BARRIER(side);
        side_close_ep(side, ep);
        region_free(side, &region);
    }
    side_finish(side);
}

/* ------------------------------------------------------------- an importer that does not answer */

/* The importer is a third process, stopped in the middle of its writes. Revoke nevertheless returns
 * within its time. When the importer runs again, none of its writes reaches the region. The
 * initiator owns the region. */
static void stopped_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, REGION_SIZE,
                                       ACCESS_ALL | RDMUX_ACCESS_NO_MAP);
    give_token(side, &region);
    BARRIER(side); /* the importer is stopped */
    struct stopwatch watch;
    stopwatch_start(&watch);
    EXPECT_OK(rdmux_mr_revoke(region.mr));
    expect_took(&watch, "revoke", 0, 200 + UINT64_C(300) * side->patience);
    pattern_fill(region.addr, REGION_SIZE, side->seed, 0);
    BARRIER(side); /* the importer may run again */
    BARRIER(side); /* the importer was refused */
    EXPECT_PATTERN(region.addr, REGION_SIZE, side->seed);
    side_end(side);
}

static void stopped_importer(struct side *side)
{
    static uint8_t bytes[REGION_SIZE];
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    memset(bytes, 0xdd, sizeof(bytes));
    struct rdmux_wc wc = { .status = RDMUX_OK };
    enum rdmux_status status = RDMUX_OK;
    for (uint64_t i = 0; status == RDMUX_OK && wc.status == RDMUX_OK; i++) {
        if (i == 20) {
            victim_ready(side); /* the process is stopped at any time from here on */
        }
        status = rdmux_write(side->ep, bytes, sizeof(bytes), NULL, remote, 0, CTX(1), RDMUX_PLACED);
        if (status == RDMUX_OK) {
            wc = NEXT(&side->queue);
        }
    }
    EXPECT(status == RDMUX_OK || status == RDMUX_DENIED, "a write after revoke gave %s",
           rdmux_status_name(status));
    EXPECT(wc.status == RDMUX_OK || wc.status == RDMUX_DENIED ||
               wc.status == RDMUX_OUTCOME_UNKNOWN || wc.status == RDMUX_FLUSHED,
           "got %s", wc_text(&wc));
    victim_ready(side);
    for (;;) {
        sleep_ms(1000);
    }
}

static void stopped_target(struct side *side)
{
    struct victim victim;
    victim_start(&victim, side, stopped_importer);
    victim_await(&victim);
    victim_signal(&victim, SIGSTOP);
    BARRIER(side);
    BARRIER(side);
    victim_signal(&victim, SIGCONT);
    victim_await(&victim);
    BARRIER(side);
    victim_end(&victim);
}

/* --------------------------------------------------------------------------------- suspended */

enum { HALF = PAGE / 2 };

/* Writes to the region's second half with the import that it had before. */
static void suspended_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_ep *other = side_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, ep);
    bool may = false;
    (void)POST_AND_WAIT(&side->queue,
                        rdmux_write(ep, "before", 6, NULL, remote, 0, CTX(1), RDMUX_PLACED),
                        RDMUX_WC_WRITE, CTX(1));
    BARRIER(side);
    TAKE(side, &may, sizeof(may));
    (void)POST_AND_WAIT(&side->queue,
                        rdmux_write(ep, "resumed", 7, NULL, remote, HALF, CTX(2), RDMUX_PLACED),
                        RDMUX_WC_WRITE, CTX(2));
    BARRIER(side);
    BARRIER(side); /* suspended again */
    if (may) {
        EXPECT_OK(rdmux_write(ep, "too late", 8, NULL, remote, HALF, CTX(3), RDMUX_PLACED));
        drain_denied(&side->queue, ep, 1);
    }
    exercise(side, &side->queue, other);
    side_finish(side);
}

static void suspended_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_ep *other = side_pair(side, NULL);
    struct region region = region_make(side, MEMORY_REGISTERED, PAGE,
                                       ACCESS_ALL | RDMUX_ACCESS_NO_MAP);
    memset(region.addr, 0, PAGE);
    give_token(side, &region);
    BARRIER(side);
    const enum rdmux_status status = rdmux_mr_suspend(region.mr);
    const bool may = status == RDMUX_OK;
    if (may) {
        EXPECT_STATUS(rdmux_mr_suspend(region.mr), RDMUX_INVALID);
        EXPECT_OK(rdmux_mr_resume(region.mr, HALF, HALF));
    } else {
        EXPECT_STATUS(status, RDMUX_UNSUPPORTED);
    }
    EXPECT_STATUS(rdmux_mr_resume(region.mr, 0, PAGE), RDMUX_INVALID);
    GIVE(side, &may, sizeof(may));
    BARRIER(side);
    if (may) {
        EXPECT_OK(rdmux_mr_suspend(region.mr));
    }
    BARRIER(side);
    if (may) {
        (void)WAIT_OF(&side->queue, ep, RDMUX_WC_DISCONNECTED, NULL, RDMUX_DENIED);
    }
    exercise(side, &side->queue, other);
    EXPECT(memcmp(region.addr, "before", 6) == 0 && memcmp(region.addr + HALF, "resumed", 8) == 0,
           "the region has other bytes");
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "6.6, 6.7, 6.8, -6.6, -6.7, -6.8",
      "after revoke no access succeeds and no byte changes; other imports and endpoints go on",
      NEEDS_PLACED | NEEDS_ATOMICS | NEEDS_WRITE | NEEDS_READ, 0, 0, after_initiator, after_target },
    { "6.6, 6.8, 6.9, -6.6, -6.8, -6.9",
      "revoke in the midst of reads and writes: nothing changes once it has returned, other "
      "endpoints live",
      NEEDS_WRITE | NEEDS_READ, 30, 0, during_initiator, during_target },
    { "6.6, 6.8, -6.6",
      "a copy that is under way when a region is revoked is over when revoke returns, in memory of "
      "every kind",
      NEEDS_WRITE, 30, 0, late_initiator, late_target },
    { "6.6, 6.10, 11.1, -6.6, -6.10",
      "revoke does not wait for an importer that is stopped, which reaches nothing when it runs "
      "again",
      NEEDS_PLACED | NEEDS_WRITE, 0, CASE_UNTOUCHED, stopped_initiator, stopped_target },
    { "6.8, 6.10, 6.9, 6.6, 7.2, -6.8, -6.10, -6.6",
      "requests that are held back until after a revoke change nothing, and none that was not done "
      "completes with success",
      NEEDS_BASICS, 30, 0, crossed_initiator, crossed_target },
    { "6.22, -6.22, 6.8",
      "a suspended region serves no access; resumed, it serves those to the bytes that were given "
      "back, by the import made before",
      NEEDS_PLACED | NEEDS_WRITE, 0, 0, suspended_initiator, suspended_target },
};

const struct suite revoke_suite = { "revoke", cases, COUNT_OF(cases) };
