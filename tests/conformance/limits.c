/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Counts beyond 8 or 16 bits, offsets beyond 32 bits, and many of what is usually one: reads before
 * a fence, endpoints of a cq. */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

/* ----------------------------------------------------------------- many receives posted at once */

enum { RECEIVES_MAX = 1023 };

static const unsigned receive_counts[] = {
    255, 256, 257, 511, 512, 600, 767, 768, 769, RECEIVES_MAX
};

/* The peer posts receives, and in every other round a send, with no poll between, so that one
 * message announces all of them. In other rounds its cq is armed, so that each of them may be
 * announced. */
static void credits_initiator(struct side *side)
{
    static uint64_t words[RECEIVES_MAX];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = 1024;
    side_open_pair(side, &attr);
    for (size_t round = 0; round < 2 * COUNT_OF(receive_counts); round++) {
        uint64_t count = receive_counts[round / 2];
        EXPECT_OK(rdmux_recv(side->ep, words, 8, NULL, CTX(1)));
        BARRIER(side);
        if (round % 2 == 0) {
            (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
            EXPECT_EQUAL(words[0], count);
        }
        for (uint64_t i = 0; i < count; i++) {
            bool is_last = i + 1 == count;
            words[i] = mix64(side->seed + i);
            EXPECT_OK(
                rdmux_send(side->ep, &words[i], 8, NULL, CTX(2), is_last ? 0 : RDMUX_UNSIGNALED));
        }
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(2));
        BARRIER(side);
        if (round % 2 == 1) {
            (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
        }
    }
    side_finish(side);
}

static void credits_arm(struct side *side)
{
    enum rdmux_status status = RDMUX_AGAIN;
    while (status == RDMUX_AGAIN) {
        EXPECT_QUIET(&side->queue);
        EXPECT(!time_is_up(), "an idle cq cannot be armed");
        status = rdmux_cq_arm(side->queue.cq);
    }
    EXPECT_STATUS(status, RDMUX_OK);
}

static void credits_target(struct side *side)
{
    static uint64_t words[RECEIVES_MAX];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.recv_depth = 1024;
    side->manual = true; /* a service thread would announce the receives meanwhile */
    side_open_pair(side, &attr);
    for (size_t round = 0; round < 2 * COUNT_OF(receive_counts); round++) {
        uint64_t count = receive_counts[round / 2];
        memset(words, 0, sizeof(words));
        BARRIER(side);
        EXPECT_QUIET(&side->queue);
        if (round % 2 == 1) {
            credits_arm(side);
        }
        for (uint64_t i = 0; i < count; i++) {
            EXPECT_OK(rdmux_recv(side->ep, &words[i], 8, NULL, CTX(i)));
        }
        if (round % 2 == 0) {
            EXPECT_OK(rdmux_send(side->ep, &count, 8, NULL, CTX(1000000), 0));
        }
        for (uint64_t i = 0; i < count; i++) {
            (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(i));
            EXPECT_EQUAL(words[i], mix64(side->seed + i));
        }
        BARRIER(side);
        if (round % 2 == 1) {
            EXPECT_OK(rdmux_send(side->ep, &count, 8, NULL, CTX(1000000), 0));
        }
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(1000000));
    }
    side_finish(side);
}

/* -------------------------------------------------------------------- more than 65,536 messages */

enum {
    MANY = 65536, /* messages between the two long ones, including the first of these */
    TOTAL = MANY + 700,
    WINDOW = 64, /* receives posted at a time */
    SIGNAL_EVERY = 32,
    EXTRA = 60, /* further messages that must wait for their receives */
    LONG_SIZE = PAGE,
    GUARD_BYTE = 0x3c,
};

/* Message 0 and message MANY are long, all others have 8 bytes. The receive of message 0 lies in
 * memory that a peer may write, that of message MANY does not. */
static void many_initiator(struct side *side)
{
    static uint8_t bytes[LONG_SIZE];
    static uint64_t words[2 * SIGNAL_EVERY];
    side_open_pair(side, NULL);
    pattern_fill(bytes, sizeof(bytes), side->seed, 0);
    BARRIER(side);
    (void)POST_AND_WAIT(
        &side->queue,
        rdmux_send(side->ep, bytes, sizeof(bytes), NULL, CTX(0), flag_if_there(side, RDMUX_PLACED)),
        RDMUX_WC_SEND, CTX(0));
    for (uint64_t i = 1; i < TOTAL; i++) {
        bool is_signaled = i % SIGNAL_EVERY == 0 || i == TOTAL - 1;
        if (i > SIGNAL_EVERY && i % SIGNAL_EVERY == 1) {
            (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(i - 1));
        }
        words[i % COUNT_OF(words)] = mix64(i);
        if (i == MANY) {
            pattern_fill(bytes, sizeof(bytes), side->seed + 1, 0);
        }
        EXPECT_OK(rdmux_send(side->ep, i == MANY ? bytes : (void *)&words[i % COUNT_OF(words)],
                             i == MANY ? sizeof(bytes) : 8, NULL, CTX(i),
                             is_signaled ? 0 : RDMUX_UNSIGNALED));
    }
    (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(TOTAL - 1));
    BARRIER(side);
    for (uint64_t i = 0; i < EXTRA; i++) {
        words[0] = i;
        EXPECT_OK(rdmux_send(side->ep, &words[0], 8, NULL, CTX(i), RDMUX_INLINE));
    }
    BARRIER(side);
    for (uint64_t i = 0; i < EXTRA; i++) {
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(i));
    }
    side_finish(side);
}

static void many_target(struct side *side)
{
    static uint64_t words[WINDOW];
    static uint8_t plain[LONG_SIZE];
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, LONG_SIZE, ACCESS_ALL);
    EXPECT_OK(rdmux_recv(side->ep, region.addr, LONG_SIZE, region.mr, CTX(0)));
    for (uint64_t i = 1; i < WINDOW; i++) {
        EXPECT_OK(rdmux_recv(side->ep, &words[i], 8, NULL, CTX(i)));
    }
    BARRIER(side);
    for (uint64_t i = 0; i < TOTAL; i++) {
        struct rdmux_wc wc = NEXT(&side->queue);
        bool is_long = i == 0 || i == MANY;
        EXPECT(wc.opcode == RDMUX_WC_RECV && wc.context == CTX(i) && wc.status == RDMUX_OK &&
                   wc.length == (is_long ? LONG_SIZE : 8),
               "message %" PRIu64 ": %s", i, wc_text(&wc));
        if (!is_long) {
            EXPECT_EQUAL(words[i % WINDOW], mix64(i));
        }
        if (i + WINDOW == MANY) {
            EXPECT_OK(rdmux_recv(side->ep, plain, LONG_SIZE, NULL, CTX(MANY)));
        } else if (i + WINDOW < TOTAL) {
            EXPECT_OK(rdmux_recv(side->ep, &words[i % WINDOW], 8, NULL, CTX(i + WINDOW)));
        }
    }
    EXPECT_PATTERN(region.addr, LONG_SIZE, side->seed);
    EXPECT_PATTERN(plain, LONG_SIZE, side->seed + 1);
    BARRIER(side);
    BARRIER(side); /* all of these have been sent, and there is no receive */
    for (uint64_t i = 0; i < EXTRA; i++) {
        EXPECT_OK(rdmux_recv(side->ep, &words[i], 8, NULL, CTX(i)));
    }
    for (uint64_t i = 0; i < EXTRA; i++) {
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(i));
        EXPECT_EQUAL(words[i], i);
    }
    side_finish(side);
}

/* After so many messages one is refused; the refusal must name that one. */
static void refused_late_initiator(struct side *side)
{
    static uint8_t bytes[LONG_SIZE];
    uint64_t words[2] = { 1, 2 };
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = 1024;
    side_open_pair(side, &attr);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t i = 0; i < MANY; i++) {
        bool is_signaled = i % 1024 == 1023;
        EXPECT_OK(rdmux_write(side->ep, words, 8, NULL, remote, 0, CTX(i),
                              RDMUX_INLINE | (is_signaled ? 0 : RDMUX_UNSIGNALED)));
        if (is_signaled) {
            (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(i));
        }
    }
    BARRIER(side);
    EXPECT_OK(rdmux_send(side->ep, bytes, 9, NULL, CTX(MANY), RDMUX_PLACED));
    struct rdmux_wc wc = NEXT(&side->queue);
    EXPECT(wc.opcode == RDMUX_WC_SEND && wc.context == CTX(MANY) &&
               (wc.status == RDMUX_LENGTH || wc.status == RDMUX_OUTCOME_UNKNOWN),
           "a PLACED send that is too long for its receive gives %s", wc_text(&wc));
    (void)WAIT_OF(&side->queue, side->ep, RDMUX_WC_DISCONNECTED, NULL, RDMUX_LENGTH);
    BARRIER(side);
    side_finish(side);
}

static void refused_late_target(struct side *side)
{
    uint8_t bytes[16];
    memset(bytes, GUARD_BYTE, sizeof(bytes));
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, PAGE, ACCESS_ALL);
    EXPECT_OK(rdmux_recv(side->ep, bytes, 8, NULL, CTX(1)));
    give_token(side, &region);
    BARRIER(side);
    (void)WAIT_STATUS(&side->queue, RDMUX_WC_RECV, CTX(1), RDMUX_LENGTH);
    (void)WAIT_OF(&side->queue, side->ep, RDMUX_WC_DISCONNECTED, NULL, RDMUX_LENGTH);
    EXPECT_FILLED(bytes + 8, 8, GUARD_BYTE);
    BARRIER(side);
    side_finish(side);
}

/* ------------------------------------------------------------------------- offsets beyond 4 GiB */

#define FAR (UINT64_C(1) << 32)

enum {
    FAR_MORE = 300001, /* bytes behind 4 GiB; as many at the beginning must stay unchanged */
    FAR_LONG = 200000,
    FAR_KINDS = 3,
    FAR_WHY_MAX = 256,
};

static const char *const far_kinds[FAR_KINDS] = { "registered", "registered with NO_MAP",
                                                  "allocated" };

static const uint64_t far_places[] = { FAR - 3, FAR + 11, FAR + 65536, FAR + FAR_MORE - 7 };

/* Writes, reads and atomics behind 4 GiB in one region. */
static void far_accesses(struct side *side, struct rdmux_remote *remote)
{
    static uint8_t out[FAR_LONG];
    static uint8_t in[FAR_LONG];
    uint64_t old = 1;
    for (size_t i = 0; i < COUNT_OF(far_places); i++) {
        uint64_t at = far_places[i];
        uint32_t flags = i % 2 == 0 ? RDMUX_INLINE : 0;
        pattern_fill(out, 7, side->seed, at);
        EXPECT_OK(rdmux_write(side->ep, out, 7, NULL, remote, at, CTX(i), flags));
        EXPECT_OK(rdmux_read(side->ep, in, 7, NULL, remote, at, CTX(100 + i), 0));
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(i));
        (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(100 + i));
        EXPECT_PATTERN_FROM(in, 7, side->seed, at);
    }
    pattern_fill(out, FAR_LONG, side->seed, FAR + 70001);
    EXPECT_OK(rdmux_write(side->ep, out, FAR_LONG, NULL, remote, FAR + 70001, CTX(200), 0));
    EXPECT_OK(rdmux_read(side->ep, in, FAR_LONG, NULL, remote, FAR + 70001, CTX(201), 0));
    (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(200));
    (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(201));
    EXPECT_PATTERN_FROM(in, FAR_LONG, side->seed, FAR + 70001);
    if (side_has(side, NEEDS_ATOMICS)) {
        EXPECT_OK(rdmux_fetch_add(side->ep, &old, NULL, remote, FAR + 4096, 5, CTX(202), 0));
        (void)WAIT(&side->queue, RDMUX_WC_FETCH_ADD, CTX(202));
        EXPECT_EQUAL(old, 0);
        EXPECT_OK(rdmux_compare_swap(side->ep, &old, NULL, remote, FAR + 4096, 5, 9, CTX(203), 0));
        (void)WAIT(&side->queue, RDMUX_WC_COMPARE_SWAP, CTX(203));
        EXPECT_EQUAL(old, 5);
    }
    settle_writes(side, &side->queue, side->ep, remote);
    if (flag_if_there(side, RDMUX_PLACED) != 0) {
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_write(side->ep, NULL, 0, NULL, NULL, 0, CTX(204), RDMUX_PLACED),
                            RDMUX_WC_WRITE, CTX(204));
    }
    EXPECT_STATUS(rdmux_write(side->ep, out, 8, NULL, remote, FAR + FAR_MORE - 7, CTX(1), 0),
                  RDMUX_OUT_OF_RANGE);
}

static void far_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    for (unsigned kind = 0; kind < FAR_KINDS; kind++) {
        char why[FAR_WHY_MAX];
        TAKE(side, why, sizeof(why));
        if (why[0] != '\0') {
            leave_out(why);
            continue;
        }
        struct rdmux_remote *remote = take_remote(side, side->ep);
        far_accesses(side, remote);
        BARRIER(side);
        rdmux_remote_close(remote);
        BARRIER(side);
    }
    side_finish(side);
}

static void far_look(const struct side *side, const uint8_t *bytes)
{
    uint64_t word = 0;
    for (size_t i = 0; i < COUNT_OF(far_places); i++) {
        EXPECT_PATTERN_FROM(bytes + far_places[i], 7, side->seed, far_places[i]);
    }
    EXPECT_PATTERN_FROM(bytes + FAR + 70001, FAR_LONG, side->seed, FAR + 70001);
    if (side_has(side, NEEDS_ATOMICS)) {
        memcpy(&word, bytes + FAR + 4096, 8);
        EXPECT_EQUAL(word, 9);
    }
    EXPECT_FILLED(bytes, FAR_MORE, 0);
}

/* Memory pinned by a device must be present. The host may lack these gigabytes. */
static bool far_is_pinned_and_too_much(const struct side *side)
{
    return (side->info.native & RDMUX_CAP_TARGET_PASSIVE) != 0 && memory_available() < 2 * FAR;
}

/* A region of more than 4 GiB, of which some pages are touched. Returns NULL with the reason in
 * *why if this host or its device cannot have it. */
static struct rdmux_mr *far_region(struct side *side, unsigned kind, uint8_t **bytes,
                                   char why[FAR_WHY_MAX])
{
    struct rdmux_mr *mr = NULL;
    enum rdmux_status status = RDMUX_NO_MEMORY;
    *bytes = NULL;
    if (far_is_pinned_and_too_much(side)) {
        (void)snprintf(why, FAR_WHY_MAX,
                       "a region of more than 4 GiB may have to be pinned by the device, and this "
                       "host has %" PRIu64 " MiB of free memory",
                       memory_available() >> 20);
        return NULL;
    }
    if (kind == 2) {
        status = rdmux_mr_alloc(side->fabric, FAR + FAR_MORE, ACCESS_ALL, &mr);
        if (status == RDMUX_OK) {
            *bytes = rdmux_mr_addr(mr);
        }
    } else {
        void *memory = mmap(NULL, FAR + FAR_MORE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            (void)snprintf(why, FAR_WHY_MAX, "this host maps no region of more than 4 GiB: %s",
                           strerror(errno));
            return NULL;
        }
        *bytes = memory;
        status = rdmux_mr_register(side->fabric, memory, FAR + FAR_MORE,
                                   ACCESS_ALL | (kind == 1 ? RDMUX_ACCESS_NO_MAP : 0), &mr);
    }
    EXPECT(status == RDMUX_OK || status == RDMUX_NO_MEMORY,
           "a region of 4 GiB and %d bytes gives %s: %s", FAR_MORE, rdmux_status_name(status),
           rdmux_last_error());
    if (status == RDMUX_NO_MEMORY) {
        (void)snprintf(why, FAR_WHY_MAX, "a region of more than 4 GiB, %s, is not to be had: %s",
                       far_kinds[kind], rdmux_last_error());
    }
    return mr;
}

static void far_target(struct side *side)
{
    side_open_pair(side, NULL);
    for (unsigned kind = 0; kind < FAR_KINDS; kind++) {
        uint8_t *bytes = NULL;
        char why[FAR_WHY_MAX] = "";
        struct rdmux_mr *mr = far_region(side, kind, &bytes, why);
        GIVE(side, why, sizeof(why));
        if (mr != NULL) {
            struct rdmux_token token;
            EXPECT_OK(rdmux_mr_export(mr, &token));
            GIVE(side, &token, sizeof(token));
            BARRIER(side);
            far_look(side, bytes);
            BARRIER(side);
            rdmux_mr_deregister(mr);
        }
        if (kind != 2 && bytes != NULL) {
            (void)munmap(bytes, FAR + FAR_MORE);
        }
    }
    side_finish(side);
}

/* -------------------------------------------------------------------- many reads before a fence */

enum {
    FENCED_READS = 24,
    FENCED_SLOT = 24576,
    FENCED_ROUNDS = 6,
    FENCED_SIZE = FENCED_READS * FENCED_SLOT,
};

static size_t fenced_length(unsigned read)
{
    return read % 4 == 3 ? FENCED_SLOT : 40 + read;
}

/* Reads of all slots, and one fenced write of all bytes that they read: no read may see it. */
static void fenced_initiator(struct side *side)
{
    uint8_t *in = region_make(side, MEMORY_UNREGISTERED, FENCED_SIZE, 0).addr;
    uint8_t *out = region_make(side, MEMORY_UNREGISTERED, FENCED_SIZE, 0).addr;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = 2 * FENCED_READS;
    side_open_pair(side, &attr);
    for (unsigned kind = 0; kind < 3; kind++) {
        struct rdmux_remote *remote = take_remote(side, side->ep);
        for (unsigned round = 0; round < FENCED_ROUNDS; round++) {
            unsigned reads = 1 + (round * 7) % FENCED_READS;
            memset(in, 0, FENCED_SIZE);
            memset(out, (int)round + 2, FENCED_SIZE);
            for (unsigned i = 0; i < reads; i++) {
                EXPECT_OK(rdmux_read(side->ep, in + (size_t)i * FENCED_SLOT, fenced_length(i), NULL,
                                     remote, (size_t)i * FENCED_SLOT, CTX(i),
                                     i % 3 == 1 ? RDMUX_UNSIGNALED : 0));
            }
            EXPECT_OK(
                rdmux_write(side->ep, out, FENCED_SIZE, NULL, remote, 0, CTX(1000), RDMUX_FENCE));
            (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1000));
            for (unsigned i = 0; i < reads; i++) {
                if (i % 3 != 1) {
                    (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(i));
                }
                EXPECT_FILLED(in + (size_t)i * FENCED_SLOT, fenced_length(i), (uint8_t)(round + 1));
            }
            (void)POST_AND_WAIT(
                &side->queue, rdmux_read(side->ep, in, 1, NULL, remote, FENCED_SIZE - 1, CTX(2), 0),
                RDMUX_WC_READ, CTX(2));
            EXPECT_EQUAL(in[0], round + 2);
        }
        rdmux_remote_close(remote);
    }
    side_finish(side);
}

static void fenced_target(struct side *side)
{
    side_open_pair(side, NULL);
    for (unsigned kind = 0; kind < 3; kind++) {
        struct region region = region_make(side, kind == 0 ? MEMORY_ALLOCATED : MEMORY_REGISTERED,
                                           FENCED_SIZE,
                                           ACCESS_ALL | (kind == 2 ? RDMUX_ACCESS_NO_MAP : 0));
        memset(region.addr, 1, FENCED_SIZE);
        give_token(side, &region);
    }
    side_finish(side);
}

/* ----------------------------------------------------------------------- many endpoints of a cq */

enum { CROWD = 20, CROWD_ROUNDS = 20 };

/* The peer polls and never sleeps. Messages of each of its endpoints must arrive, whichever
 * endpoints were active last. */
static void crowd_initiator(struct side *side)
{
    struct rdmux_ep *eps[CROWD];
    uint64_t word = 0;
    side_open(side, NULL);
    side_meet(side);
    for (unsigned i = 0; i < CROWD; i++) {
        eps[i] = side_pair(side, NULL);
    }
    BARRIER(side);
    for (uint64_t round = 0; round < CROWD_ROUNDS; round++) {
        for (uint64_t i = 0; i < CROWD; i++) {
            /* Alternates between a round of all endpoints and a round of a few, which become the
             * recently active ones. */
            uint64_t e = round % 2 == 0 ? i : (round + i) % 5;
            word = round * CROWD + i;
            EXPECT_OK(rdmux_send(eps[e], &word, 8, NULL, CTX(word), RDMUX_INLINE));
            (void)WAIT_OF(&side->queue, eps[e], RDMUX_WC_SEND, CTX(word), RDMUX_OK);
            EXPECT_OK(rdmux_recv(eps[e], &word, 8, NULL, CTX(1)));
            (void)WAIT_OF(&side->queue, eps[e], RDMUX_WC_RECV, CTX(1), RDMUX_OK);
            EXPECT_EQUAL(word, round * CROWD + i + 1);
        }
    }
    side_finish(side);
}

static void crowd_target(struct side *side)
{
    struct rdmux_ep *eps[CROWD];
    uint64_t words[CROWD] = { 0 };
    uint64_t out = 0;
    side_open(side, NULL);
    side_meet(side);
    for (uint64_t i = 0; i < CROWD; i++) {
        eps[i] = side_pair(side, NULL);
        EXPECT_OK(rdmux_recv(eps[i], &words[i], 8, NULL, CTX(i)));
    }
    BARRIER(side);
    for (uint64_t count = 0; count < (uint64_t)CROWD_ROUNDS * CROWD; count++) {
        struct rdmux_wc wc = { .opcode = RDMUX_WC_SEND };
        while (wc.opcode == RDMUX_WC_SEND) {
            wc = NEXT_AFTER(&side->queue, "a message to one of 20 endpoints does not arrive");
            EXPECT(wc.status == RDMUX_OK, "got %s", wc_text(&wc));
        }
        uint64_t e = CTX_NUMBER(wc.context);
        EXPECT(wc.opcode == RDMUX_WC_RECV && e < CROWD && wc.ep == eps[e], "got %s", wc_text(&wc));
        EXPECT_EQUAL(words[e], count);
        out = count + 1;
        EXPECT_OK(rdmux_recv(eps[e], &words[e], 8, NULL, CTX(e)));
        EXPECT_OK(rdmux_send(eps[e], &out, 8, NULL, CTX(1000), RDMUX_INLINE));
    }
    while (queue_poll(&side->queue) > 0) {
        EXPECT_EQUAL(NEXT(&side->queue).opcode, RDMUX_WC_SEND);
    }
    BARRIER(side);
    side_end(side);
}

static const struct conformance_case cases[] = {
    { "2.1, 2.2, 1.4",
      "255 to 1,023 receives posted at once, with a send behind them or not, take as many messages",
      NEEDS_SEND, 20, CASE_MANUAL, credits_initiator, credits_target },
    { "2.1, 2.2, 2.15, 1.10",
      "more than 65,536 messages come in order, each in its own receive, and wait for it",
      NEEDS_SEND, 60, 0, many_initiator, many_target },
    { "5.3, 5.1, -5.3, -5.1",
      "after more than 65,536 requests a message that is too long fails as the first would",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_PLACED, 60, 0, refused_late_initiator, refused_late_target },
    { "12.5, 6.1, 2.6, 3.3, -6.1",
      "accesses at offsets beyond 4 GiB reach exactly their bytes, in memory of every kind",
      NEEDS_WRITE | NEEDS_READ, 60, 0, far_initiator, far_target },
    { "4.1, 4.2, 1.2",
      "a fenced write shows in none of up to 24 reads before it, in memory of every kind",
      NEEDS_FENCE | NEEDS_READ | NEEDS_WRITE, 20, 0, fenced_initiator, fenced_target },
    { "1.5, 13.11",
      "messages of each of a cq's 20 endpoints arrive, whether the cq is polled seldom or often",
      NEEDS_SEND, 20, 0, crowd_initiator, crowd_target },
};

const struct suite limits_suite = { "limits", cases, COUNT_OF(cases) };
