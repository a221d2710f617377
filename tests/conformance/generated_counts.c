/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Counts that pass 2^8 and 2^16, both ways at once, and offsets that pass 2^31 and 2^32. */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ------------------------------------------------------------------------------------- messages */

enum {
    DEEP = 65536, /* the longest queue there may be */
    SENDS = 512,
    AT_ONCE = 256,
    SIGNAL_EVERY = 61,
    MESSAGES_CONTEXT = 1000000,
};

/* Receives posted at once, and then as many messages. 2^16 are passed on the way, and at once. */
static const uint64_t batches[] = { 1, 255, 256, 257, 511, 512, 513, 4097, DEEP, 3 };

struct crowd {
    struct side *side;
    uint64_t *words; /* a receive's 8 bytes each */
    uint64_t sent;
    uint64_t received;
    uint64_t completed; /* number behind the last message whose completion came */
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

/* By one call for 256 at a time, so that as many are news to the peer at once. */
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

/* -------------------------------------------------------------------------------------- requests */

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

/* What requests up to this one brought. Those that may have been overwritten are not looked at. */
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
/* A path on which no program and no mapping takes part leaves it to a device, which has to pin. */
#define FAR_PINNED (UINT64_C(6) << 30)

enum { FAR_MOST = 40003, FAR_SIZES = 5, FAR_REGIONS = 3, REASON_MAX = 256 };

static const size_t far_sizes[FAR_SIZES] = { 1, 8, 49, 4097, FAR_MOST };
static const uint64_t far_places[] = {
    (UINT64_C(1) << 31) - 40000, GIB4 - 40000, GIB4 - 3, GIB4, GIB4 + 4099, FAR_LENGTH,
};

/* Where an access of this size is: the last place is the region's end. */
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

/* Sparse memory: a few pages of it are ever touched. False: *reason has why it is not to be had. */
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

/* Gigabytes pinned by a device are gigabytes of memory, which the host may not have. */
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
    BARRIER(side); /* the target has looked */
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

/* The bytes are there and not at what is left of the offset in 32 or 31 bits, nor beside it. */
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
    if (offset < GIB4 && offset + size > GIB4) { /* what lies across the border */
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
                    &side->queue); /* a call is what orders memory with a device in software */
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

static const struct conformance_case cases[] = {
    { "1.12, 1.1, 1.2, 1.6, 1.8, 1.10, 2.1, 2.8, 13.1",
      "more than 65,536 messages both ways at once, up to 65,536 receives posted at once",
      NEEDS_IMM, 120, CASE_LONG, crowd_case, crowd_case },
    { "1.1, 1.2, 1.8, 1.10, 2.6, 2.11, 3.3, 3.4",
      "more than 65,536 writes, reads and atomics, most of them unsignaled, are each done once",
      NEEDS_WRITE | NEEDS_READ, 120, CASE_LONG, many_initiator, many_target },
    { "12.5, 6.1, -6.1, 2.6, 3.3, 3.4, 6.15",
      "writes, reads and atomics reach offsets around 2 GiB and beyond 4 GiB, up to the last odd "
      "byte",
      NEEDS_WRITE | NEEDS_READ, 60, 0, far_initiator, far_target },
};

const struct suite counts_suite = { "counts", cases, COUNT_OF(cases) };
