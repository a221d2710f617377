/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints ended by their program: shutdown and close. */
#include "harness.h"
#include "lateness.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ------------------------------------------------------------------------------ shutdown */

enum { SENDS = 40, SEND_SIZE = 9000, WRITES = 10, WRITE_SIZE = 100000 };

static void post_before_the_end(struct side *side, struct region *source,
                                struct rdmux_remote *remote)
{
    pattern_fill(source->addr, source->length, side->seed, 0);
    for (uint64_t i = 0; i < WRITES; i++) {
        EXPECT_OK(rdmux_write(side->ep, source->addr + i * WRITE_SIZE, WRITE_SIZE, source->mr,
                              remote, i * WRITE_SIZE, CTX(100 + i), RDMUX_UNSIGNALED));
    }
    for (uint64_t i = 0; i < SENDS; i++) {
        EXPECT_OK(
            rdmux_send(side->ep, source->addr + i * SEND_SIZE, SEND_SIZE, source->mr, CTX(i), 0));
    }
}

static void shutdown_initiator_with(struct side *side, bool waits)
{
    uint8_t byte = 0;
    side_open_pair(side, NULL);
    struct region source = region_make(side, MEMORY_REGISTERED, (size_t)WRITES * WRITE_SIZE, 0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    EXPECT_OK(rdmux_recv(side->ep, &byte, 1, NULL, CTX(500)));
    post_before_the_end(side, &source, remote);
    if (waits) {
        EXPECT_OK(rdmux_ep_shutdown(side->ep, side->patient_ms));
    } else {
        EXPECT_STATUS(rdmux_ep_shutdown(side->ep, 0), RDMUX_IN_PROGRESS);
    }
    for (uint64_t i = 0; i < SENDS; i++) {
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(i));
    }
    (void)WAIT_STATUS(&side->queue, RDMUX_WC_RECV, CTX(500), RDMUX_FLUSHED);
    if (!waits) {
        (void)WAIT(&side->queue, RDMUX_WC_DISCONNECTED, NULL);
    }
    BARRIER(side);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    EXPECT_OK(rdmux_ep_info(side->ep, &info));
    EXPECT_EQUAL(info.state, RDMUX_EP_ENDED);
    EXPECT_EQUAL(info.status, RDMUX_OK);
    enum rdmux_status status = rdmux_send(side->ep, "x", 1, NULL, CTX(1), 0);
    EXPECT(status != RDMUX_OK && status != RDMUX_AGAIN, "a send after shutdown gave %s",
           rdmux_status_name(status));
    BARRIER(side);
    side_finish(side); /* checks that no DISCONNECTED follows a shutdown that waited */
}

static void shutdown_initiator(struct side *side)
{
    shutdown_initiator_with(side, true);
}

static void shutdown_event_initiator(struct side *side)
{
    shutdown_initiator_with(side, false);
}

static void shutdown_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region sink = region_make(side, MEMORY_REGISTERED, (size_t)SENDS * SEND_SIZE,
                                     ACCESS_SINK);
    struct region region = region_make(side, MEMORY_ALLOCATED, (size_t)WRITES * WRITE_SIZE,
                                       RDMUX_ACCESS_REMOTE_WRITE);
    for (uint64_t i = 0; i < SENDS + 2; i++) {
        uint64_t slot = i % SENDS;
        EXPECT_OK(rdmux_recv(side->ep, sink.addr + slot * SEND_SIZE, SEND_SIZE, sink.mr, CTX(i)));
    }
    give_token(side, &region);
    BARRIER(side); /* the other side has ended; nothing was polled here since */
    for (uint64_t i = 0; i < SENDS; i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK && CTX_NUMBER(wc.context) == i,
               "message %" PRIu64 ": %s", i, wc_text(&wc));
        EXPECT_PATTERN_FROM(sink.addr + i * SEND_SIZE, SEND_SIZE, side->seed, i * SEND_SIZE);
    }
    EXPECT_PATTERN(region.addr, region.length, side->seed);
    for (uint64_t i = SENDS; i < SENDS + 2; i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_FLUSHED &&
                   CTX_NUMBER(wc.context) == i,
               "an unused receive: %s", wc_text(&wc));
    }
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.opcode == RDMUX_WC_DISCONNECTED && wc.status == RDMUX_OK && wc.ep == side->ep,
           "got %s", wc_text(&wc));
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    EXPECT_OK(rdmux_ep_info(side->ep, &info));
    EXPECT_EQUAL(info.state, RDMUX_EP_ENDED);
    EXPECT_EQUAL(info.status, RDMUX_OK);
    BARRIER(side);
    side_finish(side);
}

/* The peer never posts a receive, so some sends cannot be placed. */
static void stuck_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    for (uint64_t i = 0; i < 5; i++) {
        EXPECT_OK(rdmux_send(side->ep, "stuck", 5, NULL, CTX(i), 0));
    }
    struct stopwatch watch;
    stopwatch_start(&watch);
    EXPECT_STATUS(rdmux_ep_shutdown(side->ep, 200), RDMUX_TIMED_OUT);
    expect_took(&watch, "a shutdown of 200 ms", 200, 200 + UINT64_C(300) * side->patience);
    for (uint64_t i = 0; i < 5; i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_SEND && CTX_NUMBER(wc.context) == i, "got %s", wc_text(&wc));
    }
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    EXPECT_OK(rdmux_ep_info(side->ep, &info));
    EXPECT_EQUAL(info.state, RDMUX_EP_ENDED);
    EXPECT_EQUAL(info.status, RDMUX_PEER_GONE);
    BARRIER(side);
    while (queue_poll(&side->queue) > 0) {
        struct rdmux_wc wc = NEXT(&side->queue);
        EXPECT(wc.opcode == RDMUX_WC_DISCONNECTED && wc.status == RDMUX_PEER_GONE, "got %s",
               wc_text(&wc));
    }
    side_finish(side);
}

static void stuck_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_wc wc = WAIT_STATUS(&side->queue, RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);
    EXPECT(wc.ep == side->ep, "another endpoint");
    BARRIER(side);
    side_finish(side);
}

/* Both sides shut down at the same time. The later one may find that the endpoint has already
 * ended. Either way the end is orderly for both. */
static void both(struct side *side)
{
    uint8_t bytes[8];
    side_open(side, NULL);
    side_meet(side);
    for (unsigned round = 0; round < 10; round++) {
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        struct rdmux_ep *ep = side_pair(side, NULL);
        EXPECT_OK(rdmux_recv(ep, bytes, sizeof(bytes), NULL, CTX(1)));
        EXPECT_OK(rdmux_send(ep, "last", 4, NULL, CTX(2), RDMUX_UNSIGNALED));
        EXPECT_EQUAL(WAIT(&side->queue, RDMUX_WC_RECV, CTX(1)).length, 4);
        BARRIER(side);
        enum rdmux_status status = rdmux_ep_shutdown(ep, side->patient_ms);
        EXPECT(status == RDMUX_OK || status == RDMUX_INVALID, "shutdown gave %s: %s",
               rdmux_status_name(status), rdmux_last_error());
        if (status == RDMUX_INVALID) {
            (void)WAIT(&side->queue, RDMUX_WC_DISCONNECTED, NULL);
        }
        EXPECT_OK(rdmux_ep_info(ep, &info));
        EXPECT_EQUAL(info.state, RDMUX_EP_ENDED);
        EXPECT_EQUAL(info.status, RDMUX_OK);
        BARRIER(side);
        while (queue_poll(&side->queue) > 0) {
            struct rdmux_wc wc = NEXT(&side->queue);
            EXPECT(status == RDMUX_OK && wc.opcode == RDMUX_WC_DISCONNECTED && wc.status == RDMUX_OK,
                   "got %s", wc_text(&wc));
            status = RDMUX_INVALID; /* a second shutdown is refused */
        }
        side_close_ep(side, ep);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------------ close */

enum { FLIGHT = 100, FLIGHT_SIZE = 60000 };

/* 100 requests are in flight, none of them can finish, and their memory is unmapped right after
 * close. */
static void flight_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = FLIGHT;
    attr.recv_depth = FLIGHT;
    side_open_pair(side, &attr);
    struct rdmux_ep *other = side_pair(side, NULL);
    for (unsigned round = 0; round < 4; round++) {
        struct rdmux_ep *ep = round == 0 ? side->ep : side_pair(side, &attr);
        struct rdmux_remote *remote = take_remote(side, ep);
        size_t length = (size_t)FLIGHT * FLIGHT_SIZE;
        uint8_t *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                              0);
        EXPECT(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
        for (uint64_t i = 0; i < FLIGHT; i++) {
            uint8_t *piece = bytes + i * FLIGHT_SIZE;
            EXPECT_OK(rdmux_recv(ep, piece, 64, NULL, CTX(i)));
            if (i % 3 == 0) {
                EXPECT_OK(rdmux_read(ep, piece, FLIGHT_SIZE, NULL, remote, 0, CTX(i), 0));
            } else if (i % 3 == 1) {
                EXPECT_OK(
                    rdmux_write(ep, piece, FLIGHT_SIZE, NULL, remote, 0, CTX(i), RDMUX_UNSIGNALED));
            } else {
                EXPECT_OK(rdmux_send(ep, piece, FLIGHT_SIZE, NULL, CTX(i), 0));
            }
        }
        if (round % 2 == 1) {
            (void)queue_poll(&side->queue);
        }
        side_close_ep(side, ep);
        EXPECT(munmap(bytes, length) == 0, "munmap: %s", strerror(errno));
        /* Completions polled before close belong to the program; after close none names the
         * endpoint. */
        while (side->queue.kept_count > 0) {
            (void)NEXT(&side->queue);
        }
        exercise(side, &side->queue, other);
        EXPECT_QUIET(&side->queue);
        BARRIER(side);
    }
    side_finish(side);
}

static void flight_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *other = side_pair(side, NULL);
    for (unsigned round = 0; round < 4; round++) {
        struct rdmux_ep *ep = round == 0 ? side->ep : side_pair(side, NULL);
        struct region region = region_make(side, MEMORY_ALLOCATED, MIB, ACCESS_ALL);
        give_token(side, &region);
        exercise(side, &side->queue, other);
        (void)WAIT_OF(&side->queue, ep, RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);
        BARRIER(side);
        side_close_ep(side, ep);
        region_free(side, &region);
    }
    side_finish(side);
}

/* Messages that had arrived when the peer closed without shutdown are delivered; then the end is
 * reported. */
static void abrupt_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    for (uint64_t i = 0; i < 20; i++) {
        (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, &i, 8, NULL, CTX(i), RDMUX_PLACED),
                            RDMUX_WC_SEND, CTX(i));
    }
    side_close_ep(side, side->ep);
    BARRIER(side);
    side_finish(side);
}

static void abrupt_target(struct side *side)
{
    uint64_t words[25];
    side_open_pair(side, NULL);
    for (uint64_t i = 0; i < COUNT_OF(words); i++) {
        EXPECT_OK(rdmux_recv(side->ep, &words[i], 8, NULL, CTX(i)));
    }
    BARRIER(side); /* the peer has closed; nothing was polled here since */
    for (uint64_t i = 0; i < COUNT_OF(words); i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        enum rdmux_status expected = i < 20 ? RDMUX_OK : RDMUX_FLUSHED;
        bool cause = i == 20 && wc.status == RDMUX_PEER_GONE;
        EXPECT(wc.opcode == RDMUX_WC_RECV && CTX_NUMBER(wc.context) == i &&
                   (wc.status == (uint32_t)expected || cause),
               "receive %" PRIu64 ": %s", i, wc_text(&wc));
        EXPECT(i >= 20 || words[i] == i, "message %" PRIu64 " brings %" PRIu64, i, words[i]);
    }
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.opcode == RDMUX_WC_DISCONNECTED && wc.status == RDMUX_PEER_GONE, "got %s",
           wc_text(&wc));
    side_finish(side);
}

/* ----------------------------------------------------------------------- the handle after close */

static void handle_initiator(struct side *side)
{
    static int mine;
    static int first_user;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_wc wc[16];
    uint64_t word = 0;
    attr.user = &first_user;
    side_open_pair(side, &attr);
    struct rdmux_ep *ep = side->ep;
    struct rdmux_remote *remote = take_remote(side, ep);
    EXPECT(rdmux_ep_user(ep) == &first_user, "the pointer of the attributes is not there");
    EXPECT_OK(rdmux_ep_set_user(ep, &mine));
    EXPECT(rdmux_ep_user(ep) == &mine, "the pointer that was set is not there");

    /* One poll returns several entries. The program closes the endpoint at the first and must still
     * know the endpoint of the others. */
    for (uint64_t i = 0; i < 4; i++) {
        EXPECT_OK(rdmux_read(ep, &word, 8, NULL, remote, 0, CTX(i), 0));
    }
    size_t count = 0;
    while (count == 0) {
        count = rdmux_cq_poll(side->queue.cq, wc, COUNT_OF(wc));
        EXPECT(!time_is_up(), "no completion came");
    }
    side_close_ep(side, ep);
    for (size_t i = 0; i < count; i++) {
        EXPECT(wc[i].ep == ep && rdmux_ep_user(wc[i].ep) == &mine,
               "after close its pointer is gone");
    }
    EXPECT_STATUS(rdmux_send(ep, "x", 1, NULL, NULL, 0), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_recv(ep, &word, 1, NULL, NULL), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_ep_info(ep, &info), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_ep_shutdown(ep, 0), RDMUX_INVALID);
    EXPECT(rdmux_ep_user(ep) == &mine, "after close its pointer is gone");
    BARRIER(side);
    EXPECT_OK(rdmux_ep_close(NULL));
    EXPECT(rdmux_ep_user(NULL) == NULL, "no endpoint has a pointer");
    side_finish(side);
}

static void handle_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 8, ACCESS_ALL);
    give_token(side, &region);
    BARRIER(side);
    (void)WAIT_STATUS(&side->queue, RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);
    side_finish(side);
}

/* ------------------------------------------------------- close is quick and releases everything */

enum { CYCLES = 60, CYCLES_QUICK = 25, CYCLES_WARM = 5 };

static size_t lines_of(const char *path)
{
    FILE *file = fopen(path, "r");
    size_t lines = 0;
    EXPECT(file != NULL, "%s: %s", path, strerror(errno));
    for (int c = getc(file); c != EOF; c = getc(file)) {
        lines += c == '\n';
    }
    (void)fclose(file);
    return lines;
}

static size_t entries_of(const char *path)
{
    DIR *folder = opendir(path);
    size_t entries = 0;
    EXPECT(folder != NULL, "%s: %s", path, strerror(errno));
    while (readdir(folder) != NULL) {
        entries++;
    }
    (void)closedir(folder);
    return entries;
}

/* Device objects may be released shortly after close has returned. They are gone after some time
 * without a further call. Allocators (above all a sanitizer's) and threads map memory of their own,
 * so fewer mappings than one per endpoint are no leak. */
static void expect_back_to(struct side *side, size_t descriptors, size_t mappings, size_t endpoints)
{
    uint64_t start = now_ns();
    for (;;) {
        size_t now_descriptors = entries_of("/proc/self/fd");
        size_t now_mappings = lines_of("/proc/self/maps");
        if (now_descriptors <= descriptors && now_mappings < mappings + endpoints * 3 / 4) {
            return;
        }
        EXPECT(ms_since(start) < (uint64_t)side->patient_ms,
               "%zu descriptors and %zu mappings have become %zu and %zu", descriptors, mappings,
               now_descriptors, now_mappings);
        sleep_ms(5);
    }
}

static void cycle_of(struct side *side)
{
    uint64_t took[CYCLES];
    size_t descriptors = 0;
    size_t mappings = 0;
    size_t cycles = side->quick ? CYCLES_QUICK : CYCLES;
    struct stopwatch watch;
    side_open(side, NULL);
    side_meet(side);
    stopwatch_start(&watch);
    for (size_t i = 0; i < cycles; i++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        exercise(side, &side->queue, ep);
        BARRIER(side);
        uint64_t start = now_ns();
        side_close_ep(side, ep);
        took[i] = now_ns() - start;
        while (queue_poll(&side->queue) > 0) {
            struct rdmux_wc wc = NEXT(&side->queue);
            FAIL("after close came %s", wc_text(&wc));
        }
        BARRIER(side);
        if (i + 1 == CYCLES_WARM) {
            descriptors = entries_of("/proc/self/fd");
            mappings = lines_of("/proc/self/maps");
        }
    }
    expect_back_to(side, descriptors, mappings, cycles - CYCLES_WARM);
    expect_half_took(&watch, "closes", took, cycles, UINT64_C(10) * side->patience);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "9.1, 9.2, 9.4, 7.3, 7.1, 7.2, 7.4, 7.5, 7.8, 7.10",
      "shutdown delivers all requests before it, then the peer gets DISCONNECTED with RDMUX_OK, "
      "and the caller no event",
      NEEDS_SEND | NEEDS_WRITE, 0, 0, shutdown_initiator, shutdown_target },
    { "9.1, 9.2, 9.4",
      "shutdown with timeout 0 delivers all requests before it and ends with an event",
      NEEDS_SEND | NEEDS_WRITE, 0, 0, shutdown_event_initiator, shutdown_target },
    { "9.3, 11.1, -9.3",
      "a shutdown that cannot finish gives TIMED_OUT in time, and the endpoint has ended",
      NEEDS_SEND, 0, 0, stuck_initiator, stuck_target },
    { "9.5", "both sides may shut down at the same time, and the end is an orderly one for both",
      NEEDS_SEND, 20, 0, both, both },
    { "9.6, 9.7, 7.11, -9.6, -9.7",
      "after close with 100 requests in flight no completion names the endpoint, and its memory "
      "may be unmapped",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 20, 0, flight_initiator, flight_target },
    { "9.11, 7.2, 7.3, 7.4, -9.11",
      "when a peer closes, messages that it placed before are received first, then receives are "
      "flushed, then the endpoint ends",
      NEEDS_PLACED | NEEDS_SEND, 0, 0, abrupt_initiator, abrupt_target },
    { "9.9, -9.9",
      "between close and the next poll the handle gives its user pointer, and every other call is "
      "INVALID",
      NEEDS_SEND | NEEDS_READ, 0, 0, handle_initiator, handle_target },
    { "9.8, 9.10",
      "endpoints come and go: close is quick and leaves no descriptor and no mapping behind", 0, 30,
      0, cycle_of, cycle_of },
};

const struct suite end_suite = { "end", cases, COUNT_OF(cases) };
