/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Edges: every size around a limit that a path may have, at every alignment; the shortest and
 * deepest queues; every combination of rights. Needs only sends, writes and reads. */
#include "harness.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void send_word(struct side *side, struct rdmux_ep *ep, uint64_t word)
{
    (void)POST_AND_WAIT(&side->queue, rdmux_send(ep, &word, 8, NULL, CTX(9000), 0), RDMUX_WC_SEND,
                        CTX(9000));
}

static uint64_t receive_word(struct side *side, struct rdmux_ep *ep)
{
    uint64_t word = 0;
    (void)POST_AND_WAIT(&side->queue, rdmux_recv(ep, &word, 8, NULL, CTX(9001)), RDMUX_WC_RECV,
                        CTX(9001));
    return word;
}

/* ---------------------------------------------------------------------------------------- sizes */

enum {
    SIZES_MAX = 160,
    FIRST_POWER = 3,
    LAST_POWER = 20,
    GAP = 64, /* between two windows; must stay unwritten */
    GAP_BYTE = 0x3c,
};

struct layout {
    size_t sizes[SIZES_MAX];
    size_t count;
};

static void add_edge(struct layout *layout, uint64_t edge)
{
    for (uint64_t size = edge == 0 ? 0 : edge - 1; size <= edge + 1; size++) {
        EXPECT(layout->count < SIZES_MAX, "the case is wrong: too many sizes");
        layout->sizes[layout->count++] = (size_t)size;
    }
}

/* Both sides use the same layout: the initiator sends the limits of its path to the target. */
static struct layout layout_of(struct side *side)
{
    struct rdmux_path_info paths[64];
    struct layout layout = { .count = 0 };
    uint32_t edges[2] = { side->info.max_inline, 0 };
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        paths[i] = (struct rdmux_path_info)RDMUX_PATH_INFO_INIT;
    }
    EXPECT_OK(rdmux_fabric_paths(side->fabric, paths, COUNT_OF(paths), &count));
    for (size_t i = 0; i < count && i < COUNT_OF(paths) && edges[1] == 0; i++) {
        if (strcmp(paths[i].provider, side->provider) == 0 && paths[i].mtu < 1 << LAST_POWER) {
            edges[1] = paths[i].mtu;
        }
    }
    if (side->is_initiator) {
        GIVE(side, edges, sizeof(edges));
    } else {
        TAKE(side, edges, sizeof(edges));
    }
    add_edge(&layout, 0);
    for (unsigned power = FIRST_POWER; power <= LAST_POWER; power++) {
        add_edge(&layout, UINT64_C(1) << power);
    }
    add_edge(&layout, edges[0]);
    if (edges[1] != 0) {
        add_edge(&layout, edges[1]);
    }
    return layout;
}

/* Returns the start of the window of size number `index`; for index = count, the length of all
 * windows. */
static size_t window_at(const struct layout *layout, size_t index)
{
    size_t at = GAP;
    for (size_t i = 0; i < index; i++) {
        at += layout->sizes[i] + GAP + i % 8;
    }
    return at;
}

static void write_window(struct side *side, struct rdmux_remote *remote,
                         const struct region *source, size_t at, size_t size)
{
    bool fits = size <= side->info.max_inline;
    pattern_fill(source->addr + at, size, side->seed, at);
    EXPECT_STATUS(rdmux_write(side->ep, source->addr + at, size, source->mr, remote, at, NULL,
                              RDMUX_UNSIGNALED | RDMUX_INLINE),
                  fits ? RDMUX_OK : RDMUX_LENGTH);
    if (!fits) {
        EXPECT_OK(rdmux_write(side->ep, source->addr + at, size, source->mr, remote, at, NULL,
                              RDMUX_UNSIGNALED));
    }
}

static void sizes_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct layout layout = layout_of(side);
    size_t room = window_at(&layout, layout.count);
    struct region source = region_make(side, MEMORY_REGISTERED, room, 0);
    struct region sink = region_make(side, MEMORY_UNREGISTERED, room, 0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (size_t i = 0; i < layout.count; i++) {
        size_t at = window_at(&layout, i);
        size_t size = layout.sizes[i];
        write_window(side, remote, &source, at, size);
        (void)POST_AND_WAIT(
            &side->queue,
            rdmux_send(side->ep, source.addr + at, size, i % 2 == 0 ? source.mr : NULL, CTX(i), 0),
            RDMUX_WC_SEND, CTX(i));
        (void)POST_AND_WAIT(
            &side->queue,
            rdmux_read(side->ep, sink.addr + at, size, sink.mr, remote, at, CTX(i), 0),
            RDMUX_WC_READ, CTX(i));
        EXPECT_PATTERN_FROM(sink.addr + at, size, side->seed, at);
    }
    side_finish(side);
}

static void sizes_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct layout layout = layout_of(side);
    size_t room = window_at(&layout, layout.count);
    struct region region = region_make(side, MEMORY_REGISTERED, room,
                                       RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ);
    struct region sink = region_make(side, MEMORY_REGISTERED, room, ACCESS_SINK);
    memset(region.addr, GAP_BYTE, room);
    give_token(side, &region);
    for (size_t i = 0; i < layout.count; i++) {
        size_t at = window_at(&layout, i);
        size_t size = layout.sizes[i];
        struct rdmux_wc wc = POST_AND_WAIT(
            &side->queue,
            rdmux_recv(side->ep, sink.addr + at, size, i % 3 == 0 ? NULL : sink.mr, CTX(i)),
            RDMUX_WC_RECV, CTX(i));
        EXPECT_EQUAL(wc.length, size);
        EXPECT_PATTERN_FROM(sink.addr + at, size, side->seed, at);
        EXPECT_PATTERN_FROM(region.addr + at, size, side->seed, at);
        EXPECT_FILLED(region.addr + at + size, GAP, GAP_BYTE);
        EXPECT_FILLED(region.addr + at - GAP, GAP, GAP_BYTE);
    }
    side_finish(side);
}

/* --------------------------------------------------------------------------------------- depths */

enum { SHORTEST = 1, SHORT_ROUNDS = 200, DEEP_DEPTH = 4096, FULL_DEEPEST = 9, FULL_POLLS = 200 };

static struct rdmux_ep_attr depth_attr(const struct side *side, uint32_t depth)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = depth;
    attr.recv_depth = depth;
    return attr;
}

/* One entry each way: the second request gets AGAIN until the completion of the first was taken. */
static void shortest_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = depth_attr(side, SHORTEST);
    side_open_pair(side, &attr);
    EXPECT_EQUAL(side->info.send_depth, SHORTEST);
    EXPECT_EQUAL(side->info.recv_depth, SHORTEST);
    uint64_t answer = 0;
    for (uint64_t round = 0; round < SHORT_ROUNDS; round++) {
        EXPECT_OK(rdmux_recv(side->ep, &answer, 8, NULL, CTX(round)));
        EXPECT_STATUS(rdmux_recv(side->ep, &answer, 8, NULL, CTX(round)), RDMUX_AGAIN);
        EXPECT_OK(rdmux_send(side->ep, &round, 8, NULL, CTX(round), 0));
        if (round % 8 == 0) {
            EXPECT_STATUS(rdmux_send(side->ep, &round, 8, NULL, CTX(round), 0), RDMUX_AGAIN);
        }
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(round));
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(round));
        if (round % 8 == 0) {
            (void)WAIT(&side->queue, RDMUX_WC_WRITABLE, NULL);
        }
        EXPECT_EQUAL(answer, round + 1);
    }
    side_finish(side);
}

static void shortest_target(struct side *side)
{
    struct rdmux_ep_attr attr = depth_attr(side, SHORTEST);
    side_open_pair(side, &attr);
    for (uint64_t round = 0; round < SHORT_ROUNDS; round++) {
        send_word(side, side->ep, receive_word(side, side->ep) + 1);
    }
    side_finish(side);
}

struct full {
    struct rdmux_ep *ep;
    uint32_t depth;
    uint32_t done;
    bool is_told; /* WRITABLE has come */
};

static void full_take(struct side *side, struct full *full)
{
    const uint32_t quarter = full->depth < 4 ? 1 : full->depth / 4;
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.ep == full->ep && wc.status == RDMUX_OK &&
               (wc.opcode == RDMUX_WC_SEND || wc.opcode == RDMUX_WC_WRITABLE),
           "got %s", wc_text(&wc));
    if (wc.opcode == RDMUX_WC_SEND) {
        full->done++;
        return;
    }
    EXPECT(!full->is_told, "WRITABLE came twice for a queue of %" PRIu32, full->depth);
    EXPECT(full->done >= quarter,
           "WRITABLE of a full queue of %" PRIu32 ", of which %" PRIu32 " were taken", full->depth,
           full->done);
    full->is_told = true;
}

/* No slot is free before the peer takes something, so no WRITABLE comes; then it comes. */
static void full_initiator(struct side *side)
{
    side_open(side, NULL);
    side_meet(side);
    for (uint32_t depth = 1; depth <= FULL_DEEPEST; depth++) {
        struct rdmux_ep_attr attr = depth_attr(side, depth);
        struct rdmux_ep *ep = side_pair(side, &attr);
        uint64_t word = depth;
        struct full full = { .ep = ep, .depth = depth };
        for (uint64_t i = 0; i < depth; i++) {
            EXPECT_OK(rdmux_send(ep, &word, 8, NULL, CTX(i), 0));
        }
        EXPECT_STATUS(rdmux_send(ep, &word, 8, NULL, CTX(depth), 0), RDMUX_AGAIN);
        BARRIER(side);
        for (unsigned i = 0; i < FULL_POLLS; i++) {
            while (queue_poll(&side->queue) > 0) { /* a path may take them without a receive */
                full_take(side, &full);
            }
        }
        BARRIER(side); /* receives are posted */
        while (full.done < depth || !full.is_told) {
            full_take(side, &full);
        }
        EXPECT_QUIET(&side->queue);
        BARRIER(side);
        side_close_ep(side, ep);
    }
    side_finish(side);
}

static void full_target(struct side *side)
{
    uint64_t words[FULL_DEEPEST];
    side_open(side, NULL);
    side_meet(side);
    for (uint32_t depth = 1; depth <= FULL_DEEPEST; depth++) {
        struct rdmux_ep_attr attr = depth_attr(side, FULL_DEEPEST);
        struct rdmux_ep *ep = side_pair(side, &attr);
        BARRIER(side);
        BARRIER(side);
        for (uint64_t i = 0; i < depth; i++) {
            EXPECT_OK(rdmux_recv(ep, &words[i], 8, NULL, CTX(i)));
        }
        for (uint64_t i = 0; i < depth; i++) {
            (void)WAIT_OF(&side->queue, ep, RDMUX_WC_RECV, CTX(i), RDMUX_OK);
            EXPECT_EQUAL(words[i], depth);
        }
        BARRIER(side);
        side_close_ep(side, ep);
    }
    side_finish(side);
}

/* Fills the queue before the first poll; one more request gets AGAIN. */
static void deep_case(struct side *side)
{
    struct rdmux_cq_attr cq_attr = RDMUX_CQ_ATTR_INIT;
    struct rdmux_ep_attr attr = depth_attr(side, DEEP_DEPTH);
    struct rdmux_cq *cq = NULL;
    struct queue queue;
    uint64_t *words = calloc(DEEP_DEPTH, sizeof(*words));
    EXPECT(words != NULL, "out of memory");
    side_open(side, NULL);
    cq_attr.depth = 4 * DEEP_DEPTH;
    EXPECT_OK(rdmux_cq_create(side->fabric, &cq_attr, &cq));
    queue_open(&queue, side, cq);
    side_meet(side);
    struct rdmux_ep *ep = side_pair_on(side, &queue, &attr);
    for (uint64_t i = 0; i < DEEP_DEPTH; i++) {
        words[i] = side->is_initiator ? mix64(i) : 0;
        EXPECT_OK(side->is_initiator ? rdmux_send(ep, &words[i], 8, NULL, CTX(i), 0)
                                     : rdmux_recv(ep, &words[i], 8, NULL, CTX(i)));
    }
    EXPECT_STATUS(side->is_initiator ? rdmux_send(ep, words, 8, NULL, CTX(0), 0)
                                     : rdmux_recv(ep, words, 8, NULL, CTX(0)),
                  RDMUX_AGAIN);
    uint32_t opcode = side->is_initiator ? RDMUX_WC_SEND : RDMUX_WC_RECV;
    unsigned writable = 0;
    for (uint64_t i = 0; i < DEEP_DEPTH;) {
        struct rdmux_wc wc = NEXT(&queue);
        if (wc.opcode == RDMUX_WC_WRITABLE) {
            writable++;
            continue;
        }
        EXPECT(wc.opcode == opcode && wc.status == RDMUX_OK && CTX_NUMBER(wc.context) == i,
               "entry %" PRIu64 " is %s", i, wc_text(&wc));
        EXPECT_EQUAL(words[i], mix64(i));
        i++;
    }
    if (side->is_initiator && writable == 0) { /* it may come behind all of them */
        struct rdmux_wc wc = NEXT(&queue);
        EXPECT(wc.opcode == RDMUX_WC_WRITABLE, "got %s", wc_text(&wc));
        writable++;
    }
    EXPECT_QUIET(&queue);
    EXPECT_EQUAL(writable, side->is_initiator ? 1 : 0);
    BARRIER(side);
    side_close_ep(side, ep);
    EXPECT_OK(rdmux_cq_destroy(cq));
    queue_close(&queue);
    side_finish(side);
    free(words);
}

/* --------------------------------------------------------------------------------------- rights */

static const uint32_t rights[] = { RDMUX_ACCESS_REMOTE_READ, RDMUX_ACCESS_REMOTE_WRITE,
                                   RDMUX_ACCESS_REMOTE_ATOMIC };

enum { COMBINATIONS = 1 << COUNT_OF(rights), RIGHTS_SIZE = 4096 };

static uint32_t combination(unsigned number)
{
    uint32_t access = 0;
    for (size_t i = 0; i < COUNT_OF(rights); i++) {
        access |= (number >> i & 1) != 0 ? rights[i] : 0;
    }
    return access;
}

static enum rdmux_status allowed(uint32_t access, uint32_t right)
{
    return (access & right) != 0 ? RDMUX_OK : RDMUX_DENIED;
}

static void expect_rights(struct side *side, struct rdmux_remote *remote, uint32_t access)
{
    uint64_t word = 5;
    struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
    EXPECT_OK(rdmux_remote_info(remote, &info));
    EXPECT_EQUAL(info.access, access);
    EXPECT_EQUAL(info.length, RIGHTS_SIZE);
    enum rdmux_status writes = allowed(access, RDMUX_ACCESS_REMOTE_WRITE);
    enum rdmux_status reads = allowed(access, RDMUX_ACCESS_REMOTE_READ);
    EXPECT_STATUS(rdmux_write(side->ep, &word, 8, NULL, remote, 8, CTX(1), 0), writes);
    if (writes == RDMUX_OK) {
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
    }
    EXPECT_STATUS(rdmux_read(side->ep, &word, 8, NULL, remote, 0, CTX(2), 0), reads);
    if (reads == RDMUX_OK) {
        (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(2));
        EXPECT_EQUAL(word, 77);
    }
    if (side_has(side, NEEDS_ATOMICS)) {
        enum rdmux_status atomics = allowed(access, RDMUX_ACCESS_REMOTE_ATOMIC);
        EXPECT_STATUS(rdmux_fetch_add(side->ep, &word, NULL, remote, 16, 1, CTX(3), 0), atomics);
        if (atomics == RDMUX_OK) {
            (void)WAIT(&side->queue, RDMUX_WC_FETCH_ADD, CTX(3));
        }
    }
    /* Beyond the end no access is allowed, whatever the rights are. */
    enum rdmux_status status = rdmux_write(side->ep, &word, 8, NULL, remote, RIGHTS_SIZE - 7,
                                           CTX(4), 0);
    EXPECT(status == RDMUX_OUT_OF_RANGE || (status == RDMUX_DENIED && writes == RDMUX_DENIED),
           "a write beyond the end gave %s", rdmux_status_name(status));
    EXPECT_QUIET(&side->queue);
}

static void every_right_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    for (unsigned number = 1; number < COMBINATIONS; number++) {
        struct rdmux_remote *remote = take_remote(side, side->ep);
        expect_rights(side, remote, combination(number));
        rdmux_remote_close(remote);
        send_word(side, side->ep, number);
    }
    side_finish(side);
}

static void every_right_target(struct side *side)
{
    struct rdmux_token token;
    side_open_pair(side, NULL);
    bool atomics = side_has(side, NEEDS_ATOMICS);
    for (unsigned number = 0; number < COMBINATIONS; number++) {
        uint32_t access = combination(number);
        struct region region = region_make(side, MEMORY_REGISTERED, RIGHTS_SIZE, access);
        uint64_t words[3] = { 77, 1, 2 };
        memcpy(region.addr, words, sizeof(words));
        if (access == 0) {
            EXPECT_STATUS(rdmux_mr_export(region.mr, &token), RDMUX_INVALID);
            region_free(side, &region);
            continue;
        }
        give_token(side, &region);
        EXPECT_EQUAL(receive_word(side, side->ep), number);
        memcpy(words, region.addr, sizeof(words));
        EXPECT_EQUAL(words[0], 77);
        EXPECT_EQUAL(words[1], (access & RDMUX_ACCESS_REMOTE_WRITE) != 0 ? 5 : 1);
        EXPECT_EQUAL(words[2], (access & RDMUX_ACCESS_REMOTE_ATOMIC) != 0 && atomics ? 3 : 2);
        EXPECT_FILLED(region.addr + sizeof(words), RIGHTS_SIZE - sizeof(words), 0);
        region_free(side, &region);
    }
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "2.3, 2.6, 3.7, 12.1, 1.14, -1.14, 12.5",
      "sizes one below, at and above every limit, at every alignment, inline where they fit",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 30, 0, sizes_initiator, sizes_target },
    { "1.12, -1.12, 13.1, -13.1, 13.4, -13.4",
      "queues of one entry each way work, and a second post gives AGAIN", NEEDS_SEND, 0, 0,
      shortest_initiator, shortest_target },
    { "1.12, -1.12, 13.1, -13.1, 13.2",
      "a full queue of one to nine entries reports WRITABLE when a quarter is free, and not before",
      NEEDS_SEND, 0, 0, full_initiator, full_target },
    { "1.12, -1.12, 1.6, 13.1, 13.4, -13.4",
      "queues of 4,096 entries are filled to the last and no further", NEEDS_SEND, 20, 0, deep_case,
      deep_case },
    { "6.1, -6.1, 6.2, -6.2, 6.3, -6.3, 6.11, -6.11, 6.16",
      "every combination of rights allows what it names and nothing else",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0, every_right_initiator, every_right_target },
};

const struct suite edges_suite = { "edges", cases, COUNT_OF(cases) };
