/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Counts that exceed 2^8 and 2^16, in both directions at once, and offsets that exceed 2^31 and
 * 2^32. */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ------------------------------------------------------------------------------------- messages */

enum {
    DEEP = 65536, /* the maximum queue depth */
    SENDS = 512,
    AT_ONCE = 256,
    SIGNAL_EVERY = 61,
    MESSAGES_CONTEXT = 1000000,
};

/* Numbers of receives posted at once; as many messages follow. 2^16 is exceeded by the sum and by a
 * single batch. */
static const uint64_t batches[] = { 1, 255, 256, 257, 511, 512, 513, 4097, DEEP, 3 };

struct crowd {
    struct side *side;
    uint64_t *words; /* 8 bytes for each receive */
    uint64_t sent;
    uint64_t received;
    uint64_t completed; /* 1 + number of the last completed message */
    uint64_t seed;      /* of the peer's messages */
};

static uint64_t word_of(uint64_t seed, uint64_t number)
{
    return mix64(seed + number);
}

static void crowd_take(struct crowd *crowd, const struct rdmux_wc *wc, uint64_t first)
{
    const uint64_t number = CTX_NUMBER(wc->context);
    if (wc->opcode == RDMUX_WC_SEND) {
        EXPECT(wc->status == RDMUX_OK && number >= MESSAGES_CONTEXT + crowd->completed &&
                   number < MESSAGES_CONTEXT + crowd->sent,
               "after message %" PRIu64 " of %" PRIu64 " came %s", crowd->completed, crowd->sent,
               wc_text(wc));
        crowd->completed = number - MESSAGES_CONTEXT + 1;
        return;
    }
    const uint64_t slot = crowd->received - first;
    EXPECT(wc->opcode == RDMUX_WC_RECV && wc->status == RDMUX_OK && number == slot &&
               wc->length == 8 && wc->imm == (uint32_t)crowd->received &&
               (wc->flags & RDMUX_WC_HAS_IMM) != 0,
           "message %" PRIu64 ": %s, expected RECV of length 8 in receive %" PRIu64 " with imm "
           "0x%" PRIx32,
           crowd->received, wc_text(wc), slot, (uint32_t)crowd->received);
    const uint64_t expected = word_of(crowd->seed, crowd->received);
    EXPECT(crowd->words[slot] == expected,
           "message %" PRIu64 " has 0x%016" PRIx64 ", expected 0x%016" PRIx64, crowd->received,
           crowd->words[slot], expected);
    crowd->received++;
}

/* Posts 256 per call, so that the peer learns of as many at once. */
static void post_receives(struct crowd *crowd, uint64_t count)
{
    struct rdmux_sge sges[AT_ONCE];
    struct rdmux_wr wrs[AT_ONCE];
    memset(crowd->words, 0, count * sizeof(*crowd->words));
    for (uint64_t done = 0; done < count;) {
        const uint64_t some = count - done < AT_ONCE ? count - done : AT_ONCE;
        for (uint64_t i = 0; i < some; i++) {
            sges[i] = (struct rdmux_sge){ .addr = &crowd->words[done + i], .length = 8 };
            wrs[i] = (struct rdmux_wr){
                .op = RDMUX_OP_RECV, .context = CTX(done + i), .sges = &sges[i], .sge_count = 1
            };
        }
        size_t posted = 0;
        EXPECT_OK(rdmux_post_recv(crowd->side->ep, wrs, some, &posted));
        EXPECT_EQUAL(posted, some);
        done += some;
    }
}

static void crowd_batch(struct crowd *crowd, uint64_t count)
{
    struct side *side = crowd->side;
    const uint64_t first = crowd->received;
    const uint64_t end = crowd->sent + count;
    bool is_full = false;
    post_receives(crowd, count);
    while (crowd->sent < end || crowd->received < first + count || crowd->completed < end) {
        while (!is_full && crowd->sent < end) {
            const uint64_t number = crowd->sent;
            const uint64_t word = word_of(side->seed + side->is_initiator, number);
            const bool signaled = number % SIGNAL_EVERY == 0 || number + 1 == end;
            enum rdmux_status status = rdmux_send_imm(
                side->ep, &word, 8, NULL, (uint32_t)number, CTX(MESSAGES_CONTEXT + number),
                RDMUX_INLINE | (signaled ? 0U : RDMUX_UNSIGNALED));
            is_full = status == RDMUX_AGAIN;
            EXPECT(is_full || status == RDMUX_OK, "message %" PRIu64 ": %s: %s", number,
                   rdmux_status_name(status), rdmux_last_error());
            crowd->sent += !is_full;
        }
        struct rdmux_wc wc = NEXT_AFTER(&side->queue, "a message or its completion never came");
        if (wc.opcode == RDMUX_WC_WRITABLE) {
            EXPECT(is_full, "a WRITABLE for which no post was refused");
            is_full = false;
        } else {
            crowd_take(crowd, &wc, first);
        }
    }
    EXPECT(!is_full, "a refused post was not followed by WRITABLE");
}

static void crowd_case(struct side *side)
{
    static struct crowd crowd;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = SENDS;
    attr.recv_depth = DEEP;
    side_open_pair(side, &attr);
    crowd = (struct crowd){ .side = side, .seed = side->seed + !side->is_initiator };
    crowd.words = calloc(DEEP, sizeof(*crowd.words));
    EXPECT(crowd.words != NULL, "out of memory");
    EXPECT_EQUAL(side->info.recv_depth, DEEP);
    for (size_t i = 0; i < COUNT_OF(batches); i++) {
        crowd_batch(&crowd, batches[i]);
        BARRIER(side);
    }
    EXPECT_QUIET(&side->queue);
    side_finish(side);
    free(crowd.words);
}

/* ------------------------------------------------------------------------------------- requests */

enum { REQUESTS = 70003, REQUEST_DEPTH = 300, SLOTS = 509, WORD_AT = 8 * SLOTS };

enum counted { COUNT_WRITES, COUNT_READS, COUNT_ADDS, COUNT_KINDS };

struct many {
    struct side *side;
    struct rdmux_remote *remote;
    uint64_t results[REQUEST_DEPTH];
    uint64_t seed;
    uint64_t done;
};

static uint64_t last_in_slot(uint64_t slot)
{
    return slot + (REQUESTS - 1 - slot) / SLOTS * SLOTS;
}

static enum rdmux_status post_counted(struct many *many, enum counted kind, uint64_t number,
                                      uint32_t flags)
{
    const uint64_t word = word_of(many->seed, number);
    uint64_t *result = &many->results[number % REQUEST_DEPTH];
    struct rdmux_ep *ep = many->side->ep;
    void *context = CTX(number);
    switch (kind) {
    case COUNT_WRITES:
        return rdmux_write(ep, &word, 8, NULL, many->remote, number % SLOTS * 8, context,
                           flags | RDMUX_INLINE);
    case COUNT_READS:
        return rdmux_read(ep, result, 8, NULL, many->remote, number % SLOTS * 8, context, flags);
    default:
        return rdmux_fetch_add(ep, result, NULL, many->remote, WORD_AT, 1, context, flags);
    }
}

/* Checks the results of requests up to this one. Results that may have been overwritten are
 * skipped. */
static void check_counted(struct many *many, enum counted kind, uint64_t last)
{
    for (; many->done <= last; many->done++) {
        const uint64_t number = many->done;
        const uint64_t found = many->results[number % REQUEST_DEPTH];
        const uint64_t expected = kind == COUNT_READS
                                      ? word_of(many->seed, last_in_slot(number % SLOTS))
                                      : number;
        EXPECT(kind == COUNT_WRITES || found == expected,
               "%s %" PRIu64 " found 0x%" PRIx64 ", expected 0x%" PRIx64,
               kind == COUNT_READS ? "read" : "fetch_add", number, found, expected);
    }
}

static void count_requests(struct many *many, enum counted kind)
{
    struct side *side = many->side;
    uint64_t posted = 0;
    many->done = 0;
    while (many->done < REQUESTS) {
        bool is_full = false;
        while (posted < REQUESTS && posted - many->done < REQUEST_DEPTH && !is_full) {
            const bool signaled = posted % SIGNAL_EVERY == 0 || posted + 1 == REQUESTS;
            enum rdmux_status status = post_counted(many, kind, posted,
                                                    signaled ? 0 : RDMUX_UNSIGNALED);
            is_full = status == RDMUX_AGAIN;
            EXPECT(is_full || status == RDMUX_OK, "request %" PRIu64 ": %s: %s", posted,
                   rdmux_status_name(status), rdmux_last_error());
            posted += !is_full;
        }
        struct rdmux_wc wc = NEXT_AFTER(&side->queue, "a completion never came");
        const uint64_t number = CTX_NUMBER(wc.context);
        if (wc.opcode == RDMUX_WC_WRITABLE) {
            continue;
        }
        EXPECT(wc.status == RDMUX_OK && number >= many->done && number < posted &&
                   (number % SIGNAL_EVERY == 0 || number + 1 == REQUESTS),
               "with %" PRIu64 " of %" PRIu64 " requests done came %s", many->done, posted,
               wc_text(&wc));
        check_counted(many, kind, number);
    }
    settle_writes(side, &side->queue, side->ep, many->remote);
}

static void many_initiator(struct side *side)
{
    static struct many many;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = REQUEST_DEPTH + 1;
    side_open_pair(side, &attr);
    many = (struct many){ .side = side, .seed = side->seed };
    many.remote = take_remote(side, side->ep);
    count_requests(&many, COUNT_WRITES);
    count_requests(&many, COUNT_READS);
    if (side_has(side, NEEDS_ATOMICS)) {
        count_requests(&many, COUNT_ADDS);
    }
    BARRIER(side);
    side_finish(side);
}

static void expect_word(const uint8_t *bytes, uint64_t expected, uint64_t slot)
{
    uint64_t word = 0;
    memcpy(&word, bytes, sizeof(word));
    EXPECT(word == expected, "word %" PRIu64 " is 0x%016" PRIx64 ", expected 0x%016" PRIx64, slot,
           word, expected);
}

static void many_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, WORD_AT + 16, ACCESS_ALL);
    give_token(side, &region);
    BARRIER(side);
    for (uint64_t slot = 0; slot < SLOTS; slot++) {
        expect_word(region.addr + 8 * slot, word_of(side->seed, last_in_slot(slot)), slot);
    }
    if (side_has(side, NEEDS_ATOMICS)) {
        expect_word(region.addr + WORD_AT, REQUESTS, SLOTS);
    }
    side_finish(side);
}

/* --------------------------------------------------------------------------------- far offsets */

#define GIB4 (UINT64_C(1) << 32)
#define FAR_LENGTH (GIB4 + 131101) /* odd */
/* On a path without program or mapping, a device does the access and must pin the memory. */
#define FAR_PINNED (UINT64_C(6) << 30)

enum { FAR_MOST = 40003, FAR_SIZES = 5, FAR_REGIONS = 3, REASON_MAX = 256 };

static const size_t far_sizes[FAR_SIZES] = { 1, 8, 49, 4097, FAR_MOST };
static const uint64_t far_places[] = {
    (UINT64_C(1) << 31) - 40000, GIB4 - 40000, GIB4 - 3, GIB4, GIB4 + 4099, FAR_LENGTH,
};

/* Returns the offset of an access of this size; the last place is the region's end. */
static uint64_t far_offset(size_t place, size_t size)
{
    return far_places[place] == FAR_LENGTH ? FAR_LENGTH - size : far_places[place];
}

static const char *const far_names[FAR_REGIONS] = { "registered", "registered with NO_MAP",
                                                    "allocated" };

static uint8_t *far_map(void)
{
    void *bytes = mmap(NULL, FAR_LENGTH, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return bytes == MAP_FAILED ? NULL : bytes;
}

struct far {
    struct rdmux_mr *mrs[FAR_REGIONS];
    uint8_t *bytes[FAR_REGIONS];
    void *maps[FAR_REGIONS];
};

/* Sparse memory, of which only a few pages are touched. Returns false with the reason in *reason if
 * it is not available. */
static bool far_make(struct side *side, struct far *far, char reason[REASON_MAX])
{
    const uint32_t access = side_has(side, NEEDS_ATOMICS)
                                ? ACCESS_ALL
                                : ACCESS_ALL & ~(uint32_t)RDMUX_ACCESS_REMOTE_ATOMIC;
    for (size_t i = 0; i < FAR_REGIONS; i++) {
        enum rdmux_status status = RDMUX_NO_MEMORY;
        if (i == 2) {
            status = rdmux_mr_alloc(side->fabric, FAR_LENGTH, access, &far->mrs[i]);
            far->bytes[i] = rdmux_mr_addr(far->mrs[i]);
        } else if ((far->maps[i] = far->bytes[i] = far_map()) != NULL) {
            status = rdmux_mr_register(side->fabric, far->bytes[i], FAR_LENGTH,
                                       access | (i == 1 ? RDMUX_ACCESS_NO_MAP : 0U), &far->mrs[i]);
        }
        if (status == RDMUX_NO_MEMORY || status == RDMUX_UNSUPPORTED) {
            (void)snprintf(reason, REASON_MAX,
                           "a region of more than 4 GiB, %s, is not to be had: %s: %s",
                           far_names[i], rdmux_status_name(status), rdmux_last_error());
            return false;
        }
        EXPECT_STATUS(status, RDMUX_OK);
    }
    return true;
}

static void far_end(struct far *far)
{
    for (size_t i = 0; i < FAR_REGIONS; i++) {
        rdmux_mr_deregister(far->mrs[i]);
        if (far->maps[i] != NULL) {
            (void)munmap(far->maps[i], FAR_LENGTH);
        }
    }
}

/* Memory pinned by a device must be present. The host may lack these gigabytes. */
static bool far_is_pinned_and_too_much(struct side *side, char reason[REASON_MAX])
{
    if ((side->info.native & RDMUX_CAP_TARGET_PASSIVE) == 0 || memory_available() >= FAR_PINNED) {
        return false;
    }
    (void)snprintf(
        reason, REASON_MAX,
        "a region of more than 4 GiB may have to be pinned by the device, and this host has "
        "%" PRIu64 " MiB of free memory",
        memory_available() >> 20);
    return true;
}

static void far_access(struct side *side, struct rdmux_remote *remote, uint8_t *bytes,
                       size_t region, size_t place, size_t size)
{
    struct rdmux_ep *ep = side->ep;
    const uint64_t offset = far_offset(place, size);
    const uint64_t seed = side->seed + 1000 * region + 10 * place + size;
    const uint32_t placed = flag_if_there(side, RDMUX_PLACED);
    pattern_fill(bytes, size, seed, 0);
    struct rdmux_wc wc = POST_AND_WAIT(
        &side->queue, rdmux_write(ep, bytes, size, NULL, remote, offset, CTX(1), placed),
        RDMUX_WC_WRITE, CTX(1));
    EXPECT_EQUAL(wc.length, size);
    memset(bytes, 0, size);
    (void)POST_AND_WAIT(&side->queue, rdmux_read(ep, bytes, size, NULL, remote, offset, CTX(2), 0),
                        RDMUX_WC_READ, CTX(2));
    EXPECT_PATTERN(bytes, size, seed);
    if (size == 8 && offset % 8 == 0 && side_has(side, NEEDS_ATOMICS)) {
        uint64_t old = 0;
        uint64_t word = 0;
        memcpy(&word, bytes, sizeof(word));
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_fetch_add(ep, &old, NULL, remote, offset, 5, CTX(3), 0),
                            RDMUX_WC_FETCH_ADD, CTX(3));
        EXPECT_EQUAL(old, word);
        (void)POST_AND_WAIT(
            &side->queue,
            rdmux_compare_swap(ep, &old, NULL, remote, offset, word + 5, word, CTX(4), 0),
            RDMUX_WC_COMPARE_SWAP, CTX(4));
        EXPECT_EQUAL(old, word + 5);
    }
    BARRIER(side);
    BARRIER(side); /* the target has checked, and has a receive posted at the same place */
    (void)POST_AND_WAIT(&side->queue, rdmux_send(ep, bytes, size, NULL, CTX(6), 0), RDMUX_WC_SEND,
                        CTX(6));
    BARRIER(side);
    EXPECT_STATUS(rdmux_write(ep, bytes, size, NULL, remote, FAR_LENGTH - size + 1, CTX(5), 0),
                  RDMUX_OUT_OF_RANGE);
    EXPECT_STATUS(rdmux_read(ep, bytes, size, NULL, remote, FAR_LENGTH - size + 1, CTX(5), 0),
                  RDMUX_OUT_OF_RANGE);
}

static void far_initiator(struct side *side)
{
    static uint8_t bytes[FAR_MOST];
    char reason[REASON_MAX];
    side_open_pair(side, NULL);
    TAKE(side, reason, sizeof(reason));
    if (reason[0] != '\0') {
        side_finish(side);
        leave_out(reason);
        return;
    }
    for (size_t region = 0; region < FAR_REGIONS; region++) {
        struct rdmux_token token;
        struct rdmux_remote *remote = NULL;
        TAKE(side, &token, sizeof(token));
        enum rdmux_status status = rdmux_remote_import(side->ep, &token, side->patient_ms, &remote);
        const uint8_t imported = status == RDMUX_OK;
        GIVE(side, &imported, sizeof(imported));
        if (status == RDMUX_NO_MEMORY || status == RDMUX_UNSUPPORTED) {
            (void)snprintf(reason, sizeof(reason),
                           "a region of more than 4 GiB, %s, cannot be used: %s: %s",
                           far_names[region], rdmux_status_name(status), rdmux_last_error());
            leave_out(reason);
            break;
        }
        EXPECT_STATUS(status, RDMUX_OK);
        for (size_t place = 0; place < COUNT_OF(far_places); place++) {
            for (size_t size = 0; size < FAR_SIZES; size++) {
                far_access(side, remote, bytes, region, place, far_sizes[size]);
            }
        }
        rdmux_remote_close(remote);
    }
    side_finish(side);
}

static void expect_zero(const uint8_t *bytes, uint64_t from, uint64_t to, const char *what)
{
    for (uint64_t i = from; i < to && i < FAR_LENGTH; i++) {
        EXPECT(bytes[i] == 0, "%s: byte %" PRIu64 " is 0x%02x, expected 0x00", what, i, bytes[i]);
    }
}

/* Checks that the bytes are in place. They must not be at the offset truncated to 32 or 31 bits,
 * nor beside it. */
static void far_look(const struct side *side, uint8_t *bytes, size_t region, size_t place,
                     size_t size)
{
    const uint64_t offset = far_offset(place, size);
    const uint64_t low = offset & (GIB4 - 1);
    EXPECT_PATTERN(bytes + offset, size, side->seed + 1000 * region + 10 * place + size);
    expect_zero(bytes, offset - 64, offset, "in front of a write beyond 2 GiB");
    expect_zero(bytes, offset + size, offset + size + 64, "behind a write beyond 2 GiB");
    if (offset >= GIB4) {
        expect_zero(bytes, low, low + size, "4 GiB before a write");
    } else if (offset > INT32_MAX) {
        expect_zero(bytes, low & INT32_MAX, (low & INT32_MAX) + size, "2 GiB before a write");
    }
    if (offset < GIB4 && offset + size > GIB4) { /* the part across the border */
        expect_zero(bytes, 0, offset + size - GIB4, "at the first bytes, for a write across 4 GiB");
    }
    memset(bytes + offset, 0, size);
}

static void far_target(struct side *side)
{
    static struct far far;
    char reason[REASON_MAX] = "";
    side_open_pair(side, NULL);
    const bool is_there = !far_is_pinned_and_too_much(side, reason) && far_make(side, &far, reason);
    GIVE(side, reason, sizeof(reason));
    for (size_t region = 0; is_there && region < FAR_REGIONS; region++) {
        struct rdmux_token token;
        uint8_t imported = 0;
        EXPECT_OK(rdmux_mr_export(far.mrs[region], &token));
        GIVE(side, &token, sizeof(token));
        TAKE(side, &imported, sizeof(imported));
        if (imported == 0) {
            break;
        }
        for (size_t place = 0; place < COUNT_OF(far_places); place++) {
            for (size_t size = 0; size < FAR_SIZES; size++) {
                BARRIER(side);
                EXPECT_QUIET(
                    &side->queue); /* only an rdmux call orders memory with a software device */
                far_look(side, far.bytes[region], region, place, far_sizes[size]);
                EXPECT_QUIET(&side->queue);
                EXPECT_OK(rdmux_recv(side->ep,
                                     far.bytes[region] + far_offset(place, far_sizes[size]),
                                     far_sizes[size], far.mrs[region], CTX(1)));
                BARRIER(side);
                (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
                far_look(side, far.bytes[region], region, place, far_sizes[size]);
                EXPECT_QUIET(&side->queue);
                BARRIER(side);
            }
        }
    }
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    side_close_ep(side, side->ep);
    far_end(&far);
    side_end(side);
}

/* -------------------------------------------------------------------------------------- at once */

enum { HELD_MOST = 1025, HELD_BEGIN = 4096, HELD_KINDS = 5 };

static const uint64_t held_counts[] = { 255, 256, 257, 513, HELD_MOST };

/* Posts one of many requests of a kind; MORE holds them back until the last is posted. */
static enum rdmux_status post_held(struct side *side, unsigned kind, struct rdmux_remote *remote,
                                   uint64_t *results, uint64_t number, uint32_t flags)
{
    const uint64_t word = word_of(side->seed + kind, number);
    const uint64_t at = HELD_BEGIN + 8 * number;
    const uint32_t placed = flag_if_there(side, RDMUX_PLACED);
    struct rdmux_ep *ep = side->ep;
    switch (kind) {
    case 0:
        return rdmux_write(ep, &word, 8, NULL, remote, at, CTX(number),
                           flags | RDMUX_INLINE | placed);
    case 1:
        return rdmux_send(ep, &word, 8, NULL, CTX(number), flags | RDMUX_INLINE | placed);
    case 2:
        return rdmux_write(ep, NULL, 0, NULL, placed != 0 ? NULL : remote, 0, CTX(number),
                           flags | placed);
    case 3:
        return rdmux_read(ep, &results[number], 8, NULL, remote, at, CTX(number), flags);
    default:
        return rdmux_fetch_add(ep, &results[number], NULL, remote, 0, 1, CTX(number), flags);
    }
}

static void held_round(struct side *side, unsigned kind, struct rdmux_remote *remote, uint64_t count)
{
    static uint64_t results[HELD_MOST];
    static const uint32_t opcodes[] = { RDMUX_WC_WRITE, RDMUX_WC_SEND, RDMUX_WC_WRITE,
                                        RDMUX_WC_READ, RDMUX_WC_FETCH_ADD };
    uint64_t first = 0;
    memset(results, 0, sizeof(results));
    for (uint64_t i = 0; i < count; i++) {
        EXPECT_OK(post_held(side, kind, remote, results, i, i + 1 < count ? RDMUX_MORE : 0));
    }
    for (uint64_t i = 0; i < count; i++) {
        struct rdmux_wc wc = NEXT_AFTER(
            &side->queue, "one of many requests that were posted at once never completed");
        EXPECT(wc.opcode == opcodes[kind] && wc.status == RDMUX_OK && wc.context == CTX(i),
               "completion %" PRIu64 " of %" PRIu64 " is %s", i, count, wc_text(&wc));
        if (kind == 3) {
            EXPECT_EQUAL(results[i], word_of(side->seed, i));
        } else if (kind == 4) {
            first = i == 0 ? results[0] : first;
            EXPECT_EQUAL(results[i], first + i);
        }
    }
}

static void held_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = HELD_MOST;
    side_open_pair(side, &attr);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (size_t i = 0; i < COUNT_OF(held_counts); i++) {
        for (unsigned kind = 0; kind < HELD_KINDS; kind++) {
            if (kind < 4 || side_has(side, NEEDS_ATOMICS)) {
                BARRIER(side);
                held_round(side, kind, remote, held_counts[i]);
                BARRIER(side);
            }
        }
    }
    side_finish(side);
}

static void held_target(struct side *side)
{
    static uint64_t words[HELD_MOST];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.recv_depth = HELD_MOST;
    side_open_pair(side, &attr);
    struct region region = region_make(side, MEMORY_REGISTERED, HELD_BEGIN + 8 * HELD_MOST,
                                       ACCESS_ALL);
    give_token(side, &region);
    for (size_t i = 0; i < COUNT_OF(held_counts); i++) {
        for (unsigned kind = 0; kind < HELD_KINDS; kind++) {
            const uint64_t messages = kind == 1 ? held_counts[i] : 0;
            if (kind == 4 && !side_has(side, NEEDS_ATOMICS)) {
                continue;
            }
            for (uint64_t k = 0; k < messages; k++) {
                EXPECT_OK(rdmux_recv(side->ep, &words[k], 8, NULL, CTX(k)));
            }
            BARRIER(side);
            for (uint64_t k = 0; k < messages; k++) {
                (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(k));
                EXPECT_EQUAL(words[k], word_of(side->seed + 1, k));
            }
            BARRIER(side);
        }
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------ full queues and rings */

enum {
    BRIM_ROUNDS = 48,
    BRIM_ROUNDS_OF_DEVICES = 8, /* no wrapping ring of bytes; lacking receives show by time */
    BRIM_DEPTH = 512,
    BRIM_LENGTH = 20011,
    BRIM_RECEIVES = 64,
    BRIM_TRIES = 300,
};

/* Rounds of short messages, of messages of some hundred bytes, and of all lengths. */
static size_t brim_length(uint64_t seed, uint64_t round, uint64_t number)
{
    static const size_t most[] = { 1500, 130, 5000, BRIM_LENGTH };
    return mix64(seed + round * 100003 + number) % (most[round % COUNT_OF(most)] + 1);
}

/* Sends until the path takes no more, while the peer does not receive. Messages flow both ways, so
 * the next one begins at another position each time. */
static uint64_t brim_send(struct side *side, uint8_t *bytes, uint64_t round)
{
    uint64_t sent = 0;
    unsigned refused = 0;
    while (refused < BRIM_TRIES && sent < BRIM_DEPTH) {
        const size_t length = brim_length(side->seed, round, sent);
        uint8_t *at = bytes + sent * BRIM_LENGTH;
        pattern_fill(at, length, side->seed + round, sent);
        enum rdmux_status status = rdmux_send_imm(side->ep, at, length, NULL, (uint32_t)sent,
                                                  CTX(sent), 0);
        EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN, "got %s: %s", rdmux_status_name(status),
               rdmux_last_error());
        sent += status == RDMUX_OK;
        refused += status == RDMUX_AGAIN;
    }
    return sent;
}

static void brim_sender(struct side *side, uint8_t *bytes, uint64_t round)
{
    const uint64_t sent = brim_send(side, bytes, round);
    GIVE(side, &sent, sizeof(sent));
    for (uint64_t i = 0; i < sent; i++) {
        struct rdmux_wc wc = NEXT_AFTER(&side->queue, "a send never completed");
        EXPECT(wc.opcode == RDMUX_WC_SEND && wc.status == RDMUX_OK && wc.context == CTX(i),
               "after send %" PRIu64 " came %s", i, wc_text(&wc));
    }
    BARRIER(side);
    EXPECT_QUIET(&side->queue);
}

static void brim_receiver(struct side *side, uint8_t *bytes, uint64_t round)
{
    uint64_t sent = 0;
    uint64_t posted = 0;
    TAKE(side, &sent, sizeof(sent));
    for (uint64_t i = 0; i < sent; i++) {
        for (; posted < sent && posted < i + BRIM_RECEIVES; posted++) {
            EXPECT_OK(rdmux_recv(side->ep, bytes + posted % BRIM_RECEIVES * BRIM_LENGTH,
                                 BRIM_LENGTH, NULL, CTX(posted)));
        }
        struct rdmux_wc wc = NEXT_AFTER(&side->queue, "a message never came");
        const size_t length = brim_length(side->seed, round, i);
        EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK && wc.context == CTX(i) &&
                   wc.length == length && wc.imm == i,
               "message %" PRIu64 " of %" PRIu64 ", of %zu bytes: %s", i, sent, length,
               wc_text(&wc));
        EXPECT_PATTERN_FROM(bytes + i % BRIM_RECEIVES * BRIM_LENGTH, length, side->seed + round, i);
    }
    BARRIER(side);
}

static void brim(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    uint8_t *bytes = malloc((size_t)BRIM_DEPTH * BRIM_LENGTH);
    EXPECT(bytes != NULL, "out of memory");
    attr.send_depth = BRIM_DEPTH;
    attr.recv_depth = BRIM_RECEIVES;
    side_open_pair(side, &attr);
    const uint64_t rounds = (side->info.native & RDMUX_CAP_TARGET_PASSIVE) != 0
                                ? BRIM_ROUNDS_OF_DEVICES
                                : BRIM_ROUNDS;
    for (uint64_t round = 0; round < rounds; round++) {
        BARRIER(side);
        if ((round % 8 < 6) == side->is_initiator) {
            brim_sender(side, bytes, round);
        } else {
            brim_receiver(side, bytes, round);
        }
    }
    side_finish(side);
    free(bytes);
}

/* ------------------------------------------------------------------ message numbers around 2^16 */

enum {
    WRAP_FIRST = 65536 - 200,
    WRAP_COUNT = 400,
    WRAP_WINDOW = 32,
    WRAP_LENGTH = 20000,
    WRAP_GO = 1000,
};

/* Returns the length of the endpoint's message with this number. */
static size_t wrap_length(uint64_t number)
{
    static const size_t lengths[] = { 4096, 8, 3000, WRAP_LENGTH, 60 };
    return number < WRAP_FIRST ? 0 : lengths[number % COUNT_OF(lengths)];
}

static void wrap_initiator(struct side *side)
{
    static uint8_t bytes[WRAP_LENGTH];
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = WRAP_GO;
    side_open_pair(side, &attr);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (uint64_t i = 0; i < WRAP_FIRST + WRAP_COUNT; i++) {
        const bool is_early = i < WRAP_FIRST;
        const bool signaled = !is_early || i % WRAP_GO == 0;
        const uint32_t flags = signaled ? 0 : RDMUX_UNSIGNALED;
        pattern_fill(bytes, wrap_length(i), side->seed, i);
        enum rdmux_status status = RDMUX_AGAIN;
        while ((status = i % 7 == 3 ? rdmux_write_imm(side->ep, bytes, wrap_length(i), NULL, remote,
                                                      i % 3, (uint32_t)i, CTX(i), flags)
                                    : rdmux_send_imm(side->ep, bytes, wrap_length(i), NULL,
                                                     (uint32_t)i, CTX(i), flags)) == RDMUX_AGAIN) {
            (void)WAIT(&side->queue, RDMUX_WC_WRITABLE, NULL);
        }
        EXPECT_STATUS(status, RDMUX_OK);
        if (signaled) {
            (void)WAIT(&side->queue, i % 7 == 3 ? RDMUX_WC_WRITE : RDMUX_WC_SEND, CTX(i));
        }
    }
    BARRIER(side);
    side_finish(side);
}

/* Receives lie in memory that a path may let the sender write. */
static void wrap_target(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.recv_depth = WRAP_GO;
    side_open_pair(side, &attr);
    struct region sink = region_make(side, MEMORY_ALLOCATED, (size_t)WRAP_WINDOW * WRAP_LENGTH,
                                     ACCESS_ALL);
    struct region region = region_make(side, MEMORY_ALLOCATED, WRAP_LENGTH + 3, ACCESS_ALL);
    give_token(side, &region);
    uint64_t posted = 0;
    for (uint64_t i = 0; i < WRAP_FIRST + WRAP_COUNT; i++) {
        const bool written = i % 7 == 3;
        for (; posted < i + WRAP_WINDOW && posted < WRAP_FIRST + WRAP_COUNT; posted++) {
            EXPECT_OK(rdmux_recv(side->ep, sink.addr + posted % WRAP_WINDOW * WRAP_LENGTH,
                                 WRAP_LENGTH, sink.mr, CTX(posted)));
        }
        struct rdmux_wc wc = NEXT_AFTER(&side->queue, "a message never came");
        EXPECT(wc.opcode == (written ? RDMUX_WC_RECV_WRITE_IMM : RDMUX_WC_RECV) &&
                   wc.status == RDMUX_OK && wc.context == CTX(i) && wc.length == wrap_length(i) &&
                   wc.imm == (uint32_t)i,
               "message %" PRIu64 ", of %zu bytes: %s", i, wrap_length(i), wc_text(&wc));
        EXPECT_PATTERN_FROM(sink.addr + i % WRAP_WINDOW * WRAP_LENGTH, written ? 0 : wrap_length(i),
                            side->seed, i);
    }
    BARRIER(side);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "1.12, 1.1, 1.2, 1.6, 1.8, 1.10, 2.1, 2.8, 13.1",
      "more than 65,536 messages arrive both ways at once, with up to 65,536 receives posted at "
      "once",
      NEEDS_IMM, 120, CASE_LONG, crowd_case, crowd_case },
    { "1.1, 1.2, 1.8, 1.10, 2.6, 2.11, 3.3, 3.4",
      "more than 65,536 writes, reads and atomics, most of them unsignaled, are each done once",
      NEEDS_WRITE | NEEDS_READ, 120, CASE_LONG, many_initiator, many_target },
    { "12.5, 6.1, -6.1, 2.1, 2.6, 3.3, 3.4, 3.7, 6.15",
      "writes, reads, atomics and receives reach offsets around 2 GiB and beyond 4 GiB, up to the "
      "last odd "
      "byte",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 60, 0, far_initiator, far_target },
    { "1.1, 1.4, 1.6, 1.9, 1.15",
      "255 to 1,025 requests of a kind that MORE holds back until the last complete once each",
      NEEDS_BASICS, 30, 0, held_initiator, held_target },
    { "2.1, 2.2, 2.8, 1.4",
      "messages of all lengths that fill the path again and again arrive whole", NEEDS_IMM, 60, 0,
      brim, brim },
    { "2.1, 2.7, 2.8, 1.16",
      "messages of all lengths, and notices, arrive in receives in a region, around the 65,536th",
      NEEDS_IMM | NEEDS_WRITE, 60, CASE_LONG, wrap_initiator, wrap_target },
};

const struct suite counts_suite = { "counts", cases, COUNT_OF(cases) };
