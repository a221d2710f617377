/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The tcp provider without the core: refusals, ends, sleeping, the shared socket, and a peer that
 * violates the protocol. */
#include "api/base/bytes.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_frame.h"
#include "tests/unit/tcp_pair.h"

#include <poll.h>

/* ------------------------------------------------------------------------------------- refusals */

static void a_refused_access_fails_that_request_and_changes_no_byte(void **state)
{
    (void)state;
    static const struct {
        uint32_t op;
        uint32_t access;
        uint64_t offset;
        uint64_t length;
        enum rdmux_status status;
    } cases[] = {
        { RDMUX_OP_WRITE, RDMUX_ACCESS_REMOTE_READ, 0, 8, RDMUX_DENIED },
        { RDMUX_OP_WRITE, RDMUX_ACCESS_REMOTE_READ, 0, 0, RDMUX_DENIED },
        { RDMUX_OP_WRITE, ALL_ACCESS, 4092, 8, RDMUX_OUT_OF_RANGE },
        { RDMUX_OP_WRITE, ALL_ACCESS, UINT64_MAX - 3, 8, RDMUX_OUT_OF_RANGE },
        { RDMUX_OP_WRITE, ALL_ACCESS, 0, 300000, RDMUX_OUT_OF_RANGE },
        { RDMUX_OP_WRITE_IMM, RDMUX_ACCESS_REMOTE_READ, 0, 8, RDMUX_DENIED },
        { RDMUX_OP_READ, RDMUX_ACCESS_REMOTE_WRITE, 0, 8, RDMUX_DENIED },
        { RDMUX_OP_READ, ALL_ACCESS, 4090, 8, RDMUX_OUT_OF_RANGE },
        { RDMUX_OP_READ, ALL_ACCESS, UINT64_MAX - 3, 8, RDMUX_OUT_OF_RANGE },
        { RDMUX_OP_FETCH_ADD, RDMUX_ACCESS_REMOTE_WRITE, 0, 8, RDMUX_DENIED },
        { RDMUX_OP_COMPARE_SWAP, ALL_ACCESS, 4096, 8, RDMUX_OUT_OF_RANGE },
    };
    uint8_t *bytes = malloc(300000);
    memset(bytes, 7, 300000);
    for (size_t i = 0; i < COUNT_OF(cases) * WIRED_COUNT; i++) {
        size_t c = i % COUNT_OF(cases);
        struct pair pair = pair_create((enum wiring)(i / COUNT_OF(cases)));
        _Alignas(8) uint8_t target[4096] = { 0 };
        uint8_t zeros[4096] = { 0 };
        uint64_t slot = 0;
        (void)fake_region(0, target, sizeof(target), cases[c].access);
        import_region(pair.b, pair.a, 0);
        receive(pair.b, &slot, 8);
        queue(pair.a, RDMUX_OP_WRITE, NULL, 0, -1, 0, RDMUX_PLACED);
        struct rdmux_request *bad = queue(pair.a, cases[c].op, bytes, cases[c].length, 0,
                                          cases[c].offset, RDMUX_PLACED);
        struct rdmux_request *after = queue(pair.a, RDMUX_OP_SEND, bytes, 8, -1, 0, RDMUX_PLACED);

        RUN_UNTIL(pair.a, pair.b, pair.a->core.failed != RDMUX_OK);

        assert_int_equal(pair.a->core.failed, cases[c].status);
        assert_int_equal(pair.a->requests[0].status, RDMUX_OK);
        assert_int_equal(pair.a->requests[0].done, 1);
        assert_int_equal(bad->done, 1);
        assert_int_equal(bad->status, cases[c].status);
        assert_int_equal(after->done, 0);
        assert_int_equal(pair.b->core.failed, RDMUX_OK);
        assert_int_equal(pair.b->core.arrived_count, 0);
        assert_memory_equal(target, zeros, sizeof(target));
        pair_destroy(pair);
    }
    free(bytes);
}

static void a_region_revoked_during_a_copy_stops_it_and_refuses_the_request(void **state)
{
    (void)state;
    enum { SIZE = 8 << 20 };
    uint8_t *target = malloc(SIZE);
    uint8_t *bytes = malloc(SIZE);
    for (enum wiring wiring = 0; wiring < WIRED_COUNT; wiring++) {
        for (int read = 0; read < 2; read++) {
            struct pair pair = pair_create(wiring);
            memset(target, read ? 9 : 0, SIZE);
            memset(bytes, read ? 0 : 9, SIZE);
            (void)fake_region(0, target, SIZE, ALL_ACCESS);
            import_region(pair.b, pair.a, 0);
            fake_regions[0].dies_after = 4;
            struct rdmux_request *bad = queue(pair.a, read ? RDMUX_OP_READ : RDMUX_OP_WRITE, bytes,
                                              SIZE, 0, 0, RDMUX_PLACED);

            RUN_UNTIL(pair.a, pair.b, pair.a->core.failed != RDMUX_OK);

            assert_int_equal(pair.a->core.failed, RDMUX_DENIED);
            assert_int_equal(bad->status, RDMUX_DENIED);
            assert_int_equal(bad->done, 1);
            const uint8_t *changed = read ? bytes : target;
            assert_int_equal(changed[SIZE - 1], 0);
            pair_destroy(pair);
        }
    }
    free(target);
    free(bytes);
}

static void a_message_longer_than_its_receive_fails_both_ends(void **state)
{
    (void)state;
    static const uint64_t lengths[] = { 9, 5000, 2 << 20 };
    uint8_t *bytes = calloc(1, 2 << 20);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        for (enum wiring wiring = 0; wiring < WIRED_COUNT; wiring++) {
            struct pair pair = pair_create(wiring);
            uint64_t slot = 0x1122334455667788;
            receive(pair.b, &slot, 8);
            struct rdmux_request *send = queue(pair.a, RDMUX_OP_SEND, bytes, lengths[i], -1, 0,
                                               RDMUX_PLACED);

            RUN_UNTIL(pair.a, pair.b, pair.b->core.failed != RDMUX_OK);
            struct rdmux_provider_counts counts;
            assert_int_equal(ops->ep_quiesce(pair.b->ep, &counts), RDMUX_OK);
            RUN_UNTIL(pair.a, NULL, pair.a->core.failed != RDMUX_OK);

            assert_int_equal(pair.b->core.failed, RDMUX_LENGTH);
            assert_int_equal(pair.b->core.arrived_count, 1);
            assert_int_equal(pair.b->core.arrived[0]->status, RDMUX_LENGTH);
            assert_true(pair.b->core.arrived[0]->length == lengths[i]);
            assert_true(slot == 0x1122334455667788);
            assert_int_equal(pair.a->core.failed, RDMUX_LENGTH);
            assert_int_equal(send->status, RDMUX_LENGTH);
            pair_destroy(pair);
        }
    }
    free(bytes);
}

/* ----------------------------------------------------------------------------------------- ends */

static void messages_that_arrived_are_reported_before_the_end(void **state)
{
    (void)state;
    for (enum wiring wiring = WIRED_ONE; wiring < WIRED_COUNT; wiring++) {
        struct pair pair = pair_create(wiring);
        uint64_t values[20];
        uint64_t slots[20] = { 0 };
        for (uint64_t i = 0; i < 20; i++) {
            values[i] = i;
            receive(pair.b, &slots[i], 8);
        }
        RUN_UNTIL(pair.a, pair.b, rdmux_tcp_ep(pair.a->ep)->held.left == 20);
        for (uint64_t i = 0; i < 20; i++) {
            queue(pair.a, RDMUX_OP_SEND, &values[i], 8, -1, 0, 0);
        }
        post_queued(pair.a);
        assert_int_equal(pair.a->started, 20);
        struct rdmux_provider_counts counts;
        assert_int_equal(ops->ep_quiesce(pair.a->ep, &counts), RDMUX_OK);

        RUN_UNTIL(pair.b, NULL, pair.b->core.failed != RDMUX_OK);

        assert_int_equal(pair.b->core.failed, RDMUX_PEER_GONE);
        assert_int_equal(pair.b->core.arrived_count, 20);
        pair_destroy(pair);
    }
}

static void quiesce_delivers_the_arrived_messages_and_counts_them(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    uint64_t value = 3;
    uint64_t slots[5] = { 0 };
    for (int i = 0; i < 5; i++) {
        receive(pair.b, &slots[i], 8);
    }
    RUN_UNTIL(pair.a, pair.b, rdmux_tcp_ep(pair.a->ep)->held.left == 5);
    for (int i = 0; i < 5; i++) {
        queue(pair.a, RDMUX_OP_SEND, &value, 8, -1, 0, 0);
    }
    post_queued(pair.a);
    struct rdmux_provider_counts counts = { 0 };

    assert_int_equal(ops->ep_quiesce(pair.b->ep, &counts), RDMUX_OK);

    assert_int_equal(pair.b->core.arrived_count, 5);
    assert_true(counts.received == 5);
    assert_int_equal(pair.b->core.failed, RDMUX_OK);
    pair_destroy(pair);
}

/* The thread sanitizer checks each byte, and finds no more in four times as many. */
#ifdef __SANITIZE_THREAD__
enum { MUCH = 1 << 20 };
#else
enum { MUCH = 4 << 20 };
#endif

static void an_endpoint_may_end_at_any_moment(void **state)
{
    (void)state;
    enum { SIZE = MUCH };
    uint8_t *target = malloc(SIZE);
    uint8_t *bytes = malloc(SIZE);
    memset(bytes, 1, SIZE);
    for (int turns = 0; turns < 40; turns++) {
        struct pair pair = pair_create((enum wiring)(turns % WIRED_COUNT));
        (void)fake_region(0, target, SIZE, ALL_ACCESS);
        import_region(pair.b, pair.a, 0);
        for (int i = 0; i < 4; i++) {
            receive(pair.b, target, SIZE);
            queue(pair.a, RDMUX_OP_WRITE, bytes, SIZE, 0, 0, 0);
            queue(pair.a, RDMUX_OP_READ, bytes, SIZE, 0, 0, 0);
            queue(pair.a, RDMUX_OP_SEND, bytes, SIZE, -1, 0, RDMUX_PLACED);
        }

        for (int i = 0; i < turns / 2; i++) {
            step_ends(pair.a, pair.b);
        }

        pair_destroy(pair); /* leaks, double frees and stray copies are the sanitizer's to see */
    }
    free(target);
    free(bytes);
}

/* ------------------------------------------------------------------------------------- sleeping */

static void the_descriptor_wakes_only_for_a_message(void **state)
{
    (void)state;
    for (enum wiring wiring = 0; wiring < WIRED_COUNT; wiring++) {
        struct pair pair = pair_create(wiring);
        uint8_t *bytes = calloc(1, 3 << 20);
        uint8_t *slot = calloc(1, 3 << 20);
        receive(pair.b, slot, 3 << 20);
        RUN_UNTIL(pair.a, pair.b, rdmux_tcp_ep(pair.a->ep)->held.left == 1);
        struct pollfd look = { .fd = ops->fd(pair.b->cq), .events = POLLIN };
        while (ops->poll(pair.b->cq, BUDGET) > 0 || ops->arm(pair.b->cq) != RDMUX_OK) {
        }
        assert_int_equal(poll(&look, 1, 0), 0);

        queue(pair.a, RDMUX_OP_SEND, bytes, 3 << 20, -1, 0, 0);
        for (int turns = 0; turns < TURNS_MAX && pair.b->core.arrived_count == 0; turns++) {
            post_queued(pair.a);
            (void)ops->poll(pair.a->cq, BUDGET);
            /* b sleeps, and polls only when its descriptor is readable */
            if (ops->arm(pair.b->cq) == RDMUX_OK && poll(&look, 1, 0) == 0) {
                continue;
            }
            (void)ops->poll(pair.b->cq, BUDGET);
        }

        assert_int_equal(pair.b->core.arrived_count, 1);
        while (ops->poll(pair.b->cq, BUDGET) > 0 || ops->arm(pair.b->cq) != RDMUX_OK) {
        }
        assert_int_equal(poll(&look, 1, 0), 0);
        pair_destroy(pair);
        free(bytes);
        free(slot);
    }
}

/* ---------------------------------------------------------------------------- the shared socket */

static void control_frames_travel_between_data_frames(void **state)
{
    (void)state;
    enum { SIZE = 12 << 20, BIG = 65536 };
    uint8_t *target = malloc(SIZE);
    uint8_t *bytes = malloc(SIZE);
    uint8_t *frame = calloc(1, BIG + 8);
    memset(bytes, 5, SIZE);
    for (enum wiring wiring = WIRED_UNIX; wiring <= WIRED_TCP; wiring++) {
        struct pair pair = pair_create(wiring);
        (void)fake_region(0, target, SIZE, ALL_ACCESS);
        import_region(pair.b, pair.a, 0);
        struct rdmux_request *write = queue(pair.a, RDMUX_OP_WRITE, bytes, SIZE, 0, 0, RDMUX_PLACED);
        post_queued(pair.a);
        size_t sent = 0;
        size_t expected = 0;

        for (uint32_t length = 0; length <= BIG; length = length * 3 + 1) {
            frame[0] = 7;
            rdmux_store_be32(frame + 4, length);
            while (ops->ep_control(pair.a->ep, frame, 8 + length) == RDMUX_AGAIN) {
                step_ends(pair.a, pair.b);
            }
            sent++;
            expected += 8 + length;
        }
        /* They do not wait for the requests in flight. */
        RUN_UNTIL(pair.a, pair.b, pair.b->core.control_size >= 8);
        assert_int_equal(write->done, 0);
        RUN_UNTIL(pair.a, pair.b, pair.b->core.control_size == expected && write->done);
        rdmux_store_be32(frame + 4, BIG);
        assert_int_equal(ops->ep_control(pair.a->ep, frame, 8 + BIG), RDMUX_OK);
        RUN_UNTIL(pair.a, pair.b, pair.b->core.control_size == expected + 8 + BIG);

        assert_true(sent > 5);
        assert_memory_equal(target, bytes, SIZE);
        pair_destroy(pair);
    }
    free(target);
    free(bytes);
    free(frame);
}

/* The peer reads nothing: a frame that does not fit is refused, and the frames taken arrive. */
static void control_frames_without_room_are_refused_and_none_is_lost(void **state)
{
    (void)state;
    enum { SIZE = 12 << 20, LENGTH = 2000, FRAME = TCP_CONTROL_HEADER_SIZE + LENGTH };
    uint8_t *target = calloc(1, SIZE);
    uint8_t *bytes = calloc(1, SIZE);
    uint8_t frame[FRAME] = { 7 };
    struct pair pair = pair_create(WIRED_UNIX);
    (void)fake_region(0, target, SIZE, ALL_ACCESS);
    import_region(pair.b, pair.a, 0);
    struct rdmux_request *write = queue(pair.a, RDMUX_OP_WRITE, bytes, SIZE, 0, 0, RDMUX_PLACED);
    post_queued(pair.a);
    rdmux_store_be32(frame + 4, LENGTH);
    uint8_t taken = 0;

    while (ops->ep_control(pair.a->ep, frame, FRAME) == RDMUX_OK) {
        assert_true((taken + 1) * FRAME <= FAKE_CONTROL_MAX);
        frame[TCP_CONTROL_HEADER_SIZE] = ++taken;
    }

    assert_true(taken > 1);
    RUN_UNTIL(pair.a, pair.b, write->done && pair.b->core.control_size == (size_t)taken * FRAME);
    for (size_t i = 0; i < taken; i++) {
        assert_int_equal(pair.b->core.control[i * FRAME + TCP_CONTROL_HEADER_SIZE], i);
    }
    assert_int_equal(ops->ep_control(pair.a->ep, frame, FRAME), RDMUX_OK);
    RUN_UNTIL(pair.a, pair.b, pair.b->core.control_size == (size_t)(taken + 1) * FRAME);
    pair_destroy(pair);
    free(target);
    free(bytes);
}

static void a_shared_socket_keeps_its_options_and_stays_open(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_TCP);
    int fd = pair.a->attr.shared_socket;
    int value = 0;
    socklen_t size = sizeof(value);
    assert_int_equal(getsockopt(fd, IPPROTO_IP, IP_TOS, &value, &size), 0);
    assert_int_equal(value & 0xfc, 26 << 2);

    ops->ep_close(pair.a->ep);

    assert_int_equal(getsockopt(fd, IPPROTO_IP, IP_TOS, &value, &size), 0);
    assert_int_equal(value & 0xfc, 0);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    pair.a->cq->ep_count--;
    free(pair.a->ep);
    pair.a->ep = calloc(1, ops->ep_size);
    pair.a->ep->ops = ops;
    pair.a->ep->cq = pair.a->cq;
    pair.a->ep->ep = &pair.a->core;
    pair.a->attr.shared_socket = -1;
    end_open(pair.a);
    (void)close(fd);
    pair_destroy(pair);
}

/* ----------------------------------------------------------------------------- a peer that lies */

/* A peer that is only a socket: its end of a shared AF_UNIX pair. */
static int connect_to_test(struct end *end)
{
    int pair[2];
    uint8_t description[TCP_DESCRIPTION_SIZE];
    socket_pair(false, pair);
    end->attr.shared_socket = pair[0];
    end_open(end);
    rdmux_tcp_description_encode(&(struct tcp_description){ .sockets = 1, .answers = 32 },
                                 description);
    assert_int_equal(ops->ep_connect(end->ep, description, sizeof(description)), RDMUX_OK);
    return pair[1];
}

#define HEAD(kind) (TCP_MARK | (kind))

static void a_peer_that_breaks_the_protocol_ends_its_endpoint(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        uint8_t bytes[96];
        size_t size;
    } cases[] = {
        { "a message without a credit", { HEAD(TCP_SEND) }, 8 },
        { "a write_imm without a credit", { HEAD(TCP_WRITE) | TCP_IMM, [8] = 0, 1 }, 36 },
        { "more of nothing", { HEAD(TCP_MORE), [7] = 1, 0 }, 9 },
        { "data nobody asked for", { HEAD(TCP_DATA), [7] = 1, 0 }, 9 },
        { "empty data nobody asked for", { HEAD(TCP_DATA) }, 8 },
        { "a result nobody asked for", { HEAD(TCP_RESULT), [7] = 8 }, 16 },
        { "an acknowledgment of nothing", { HEAD(TCP_ACK), [7] = 1 }, 8 },
        { "2^47 acknowledgments", { HEAD(TCP_ACK), 0, 0x80 }, 8 },
        { "2^47 credits", { HEAD(TCP_CREDIT), 0, 0x80 }, 8 },
        { "credits back that were never given", { HEAD(TCP_RETURN) }, 8 },
        { "a refusal of nothing", { HEAD(TCP_NAK), [7] = RDMUX_DENIED }, 16 },
        { "a refusal with success", { HEAD(TCP_NAK), [7] = RDMUX_OK }, 16 },
        { "an unaligned atomic", { HEAD(TCP_FETCH_ADD), [7] = 8, [8] = 0, 1, [31] = 4 }, 40 },
        { "a striped write with one socket",
          { HEAD(TCP_WRITE) | TCP_STRIPED, [7] = 8, [8] = 0, 1 },
          48 },
        { "a control frame of 65,537 bytes", { 0x01, 0, 0, 0, 0, 1, 0, 1 }, 8 },
        { "a request within another",
          { HEAD(TCP_WRITE), 0, 0, 0, 0, 0x10, 0, 1, 0, 1 },
          33 }, /* completed below */
        { "an unknown flag", { HEAD(TCP_PING) | TCP_IMM }, 8 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        _Alignas(8) static uint8_t target[2 << 20];
        struct end *end = end_create(RDMUX_ROLE_ACCEPT, NULL);
        int peer = connect_to_test(end);
        (void)fake_region(0, target, sizeof(target), ALL_ACCESS);

        assert_int_equal(write(peer, cases[i].bytes, cases[i].size), cases[i].size);
        if (strcmp(cases[i].says, "a request within another") == 0) {
            /* The first 1 MiB, then not the MORE that has to follow. */
            uint8_t *rest = calloc(1, TCP_CHUNK_MAX);
            size_t left = TCP_CHUNK_MAX - 1;
            while (left > 0) {
                ssize_t got = write(peer, rest, left);
                left -= got > 0 ? (size_t)got : 0;
                (void)ops->poll(end->cq, BUDGET);
            }
            uint8_t ping[8] = { HEAD(TCP_PING) };
            uint8_t flush[8] = { HEAD(TCP_FLUSH) | TCP_PLACED };
            assert_int_equal(write(peer, ping, 8), 8);
            assert_int_equal(write(peer, flush, 8), 8);
            free(rest);
        }
        for (int turns = 0; turns < 100 && end->core.failed == RDMUX_OK; turns++) {
            (void)ops->poll(end->cq, BUDGET);
        }

        if (end->core.failed != RDMUX_PROTOCOL) {
            fail_msg("%s: status %d", cases[i].says, (int)end->core.failed);
        }
        end_destroy(end, true);
        (void)close(peer);
    }
}

static void a_peer_with_more_reads_under_way_than_agreed_is_ended(void **state)
{
    (void)state;
    struct end *end = end_create(RDMUX_ROLE_ACCEPT, NULL);
    int peer = connect_to_test(end);
    static uint8_t target[1 << 20];
    (void)fake_region(0, target, sizeof(target), ALL_ACCESS);
    uint8_t read[32] = { HEAD(TCP_READ), 0, 0, 0, 0, 0x10, 0, 0, 0, 1 };

    for (int i = 0; i < 64 && end->core.failed == RDMUX_OK; i++) {
        assert_int_equal(write(peer, read, sizeof(read)), sizeof(read));
        (void)ops->poll(end->cq, BUDGET);
    }

    assert_int_equal(end->core.failed, RDMUX_PROTOCOL);
    end_destroy(end, true);
    (void)close(peer);
}

static void frames_that_arrive_byte_by_byte_are_decoded(void **state)
{
    (void)state;
    struct end *end = end_create(RDMUX_ROLE_ACCEPT, NULL);
    int peer = connect_to_test(end);
    _Alignas(8) static uint8_t target[64];
    uint8_t slot[4] = { 0 };
    uint8_t bytes[512];
    size_t size = 0;
    uint8_t key[TCP_KEY_SIZE];
    (void)fake_region(0, target, sizeof(target), ALL_ACCESS);
    memset(key, 0, sizeof(key));
    key[1] = 1;
    receive(end, slot, sizeof(slot));
    (void)ops->poll(end->cq, BUDGET);
    size += rdmux_tcp_frame_encode(&(struct tcp_frame){ .kind = TCP_PING }, bytes + size);
    size += rdmux_tcp_frame_encode(
        &(struct tcp_frame){
            .kind = TCP_WRITE, .length = 5, .key = key, .offset = 3, .flags = TCP_PLACED },
        bytes + size);
    static const uint8_t written[] = { 'h', 'e', 'l', 'l', 'o' };
    memcpy(bytes + size, written, sizeof(written));
    size += sizeof(written);
    uint8_t control[11] = { 2, 0, 0, 0, 0, 0, 0, 3, 'a', 'b', 'c' };
    memcpy(bytes + size, control, sizeof(control));
    size += sizeof(control);
    size += rdmux_tcp_frame_encode(
        &(struct tcp_frame){ .kind = TCP_SEND, .flags = TCP_IMM, .imm = 9, .length = 4 },
        bytes + size);
    static const uint8_t sent[] = { 'f', 'o', 'u', 'r' };
    memcpy(bytes + size, sent, sizeof(sent));
    size += sizeof(sent);
    size += rdmux_tcp_frame_encode(
        &(struct tcp_frame){
            .kind = TCP_FETCH_ADD, .key = key, .offset = 16, .operand = 2, .length = 8 },
        bytes + size);

    for (size_t i = 0; i < size; i++) {
        assert_int_equal(write(peer, bytes + i, 1), 1);
        (void)ops->poll(end->cq, BUDGET);
    }

    assert_int_equal(end->core.failed, RDMUX_OK);
    assert_memory_equal(target + 3, "hello", 5);
    assert_memory_equal(slot, "four", 4);
    assert_int_equal(end->core.arrived_count, 1);
    assert_int_equal(end->core.arrived[0]->imm, 9);
    assert_int_equal(end->core.control_size, sizeof(control));
    assert_memory_equal(end->core.control, control, sizeof(control));
    assert_int_equal(target[16], 2);
    end_destroy(end, true);
    (void)close(peer);
}

/* Writes a piece of a stream, which the endpoint takes in. */
static void send_piece(struct end *end, int peer, const uint8_t *bytes, size_t size)
{
    assert_int_equal(write(peer, bytes, size), size);
    while (ops->poll(end->cq, BUDGET) > 0) {
    }
}

/* A control frame arrived in two pieces, and its buffer is free again when the next ones are sent.
 * The peer does not read them, and sends most of another frame meanwhile. */
static void a_partial_frame_is_kept_apart_from_the_bytes_to_send(void **state)
{
    (void)state;
    enum { LENGTH = 60000, FRAME = TCP_CONTROL_HEADER_SIZE + LENGTH, PIECE = FRAME - 1 };
    static uint8_t theirs[FRAME] = { 7 };
    static uint8_t ours[FRAME] = { 7 };
    static uint8_t got[FRAME];
    struct end *end = end_create(RDMUX_ROLE_ACCEPT, NULL);
    int peer = connect_to_test(end);
    rdmux_store_be32(theirs + 4, LENGTH);
    rdmux_store_be32(ours + 4, LENGTH);
    fill(theirs + TCP_CONTROL_HEADER_SIZE, LENGTH, 1);
    fill(ours + TCP_CONTROL_HEADER_SIZE, LENGTH, 2);
    send_piece(end, peer, theirs, PIECE);
    send_piece(end, peer, theirs + PIECE, FRAME - PIECE);
    assert_int_equal(end->core.control_size, FRAME);
    size_t taken = 0;

    while (ops->ep_control(end->ep, ours, FRAME) == RDMUX_OK) {
        taken++;
    }
    send_piece(end, peer, theirs, PIECE);

    for (size_t i = 0; i < taken; i++) {
        size_t at = 0;
        for (int turns = 0; at < FRAME && turns < TURNS_MAX; turns++) {
            ssize_t size = read(peer, got + at, FRAME - at);
            at += size > 0 ? (size_t)size : 0;
            (void)ops->poll(end->cq, BUDGET);
        }
        assert_memory_equal(got, ours, FRAME);
    }
    send_piece(end, peer, theirs + PIECE, FRAME - PIECE);
    assert_int_equal(end->core.control_size, 2 * FRAME);
    assert_memory_equal(end->core.control + FRAME, theirs, FRAME);
    end_destroy(end, true);
    (void)close(peer);
}

/* ---------------------------------------------------------------------------- set-up that fails */

static void a_refused_connection_names_the_address_and_the_reason(void **state)
{
    (void)state;
    struct end *end = end_create(RDMUX_ROLE_CONNECT, NULL);
    uint8_t description[TCP_DESCRIPTION_SIZE];
    int listener = listen_on_loopback(&end->address);
    (void)close(listener);
    end->attr.peer_address = (const struct sockaddr *)&end->address;
    end->attr.peer_address_length = sizeof(struct sockaddr_in);
    end_open(end);
    rdmux_tcp_description_encode(&(struct tcp_description){ .sockets = 1, .answers = 32 },
                                 description);

    enum rdmux_status status = ops->ep_connect(end->ep, description, sizeof(description));
    for (int i = 0; i < 1000 && status == RDMUX_IN_PROGRESS; i++) {
        (void)ops->poll(end->cq, BUDGET);
        status = ops->ep_connect(end->ep, NULL, 0);
    }

    assert_int_equal(status, RDMUX_REFUSED);
    assert_non_null(strstr(fake_error, "data socket 1 of 1 to 127.0.0.1 port"));
    assert_non_null(strstr(fake_error, "refused"));
    end_destroy(end, true);
    assert_int_equal(fake_fabric.allocations, 0);
}

/* Authentication is the core's to agree on, and the version's to carry through. */
static void an_encrypting_side_and_a_clear_one_refuse_each_other(void **state)
{
    uint8_t description[TCP_DESCRIPTION_SIZE];
    (void)state;
    for (uint32_t theirs = 0; theirs < 2; theirs++) {
        fake_streams = theirs == 0;
        struct end *end = end_create(RDMUX_ROLE_ACCEPT, NULL);
        end_open(end);
        rdmux_tcp_description_encode(
            &(struct tcp_description){ .sockets = 1, .answers = 32, .encrypted = theirs },
            description);

        assert_int_equal(ops->ep_connect(end->ep, description, sizeof(description)), RDMUX_VERSION);

        assert_non_null(strstr(fake_error, "use the same version on both sides"));
        end_destroy(end, true);
    }
    assert_int_equal(fake_fabric.allocations, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_refused_access_fails_that_request_and_changes_no_byte, clear_state),
        cmocka_unit_test_setup(a_region_revoked_during_a_copy_stops_it_and_refuses_the_request,
                               clear_state),
        cmocka_unit_test_setup(a_message_longer_than_its_receive_fails_both_ends, clear_state),
        cmocka_unit_test_setup(messages_that_arrived_are_reported_before_the_end, clear_state),
        cmocka_unit_test_setup(quiesce_delivers_the_arrived_messages_and_counts_them, clear_state),
        cmocka_unit_test_setup(an_endpoint_may_end_at_any_moment, clear_state),
        cmocka_unit_test_setup(the_descriptor_wakes_only_for_a_message, clear_state),
        cmocka_unit_test_setup(control_frames_travel_between_data_frames, clear_state),
        cmocka_unit_test_setup(control_frames_without_room_are_refused_and_none_is_lost,
                               clear_state),
        cmocka_unit_test_setup(a_shared_socket_keeps_its_options_and_stays_open, clear_state),
        cmocka_unit_test_setup(a_peer_that_breaks_the_protocol_ends_its_endpoint, clear_state),
        cmocka_unit_test_setup(a_peer_with_more_reads_under_way_than_agreed_is_ended, clear_state),
        cmocka_unit_test_setup(frames_that_arrive_byte_by_byte_are_decoded, clear_state),
        cmocka_unit_test_setup(a_partial_frame_is_kept_apart_from_the_bytes_to_send, clear_state),
        cmocka_unit_test_setup(a_refused_connection_names_the_address_and_the_reason, clear_state),
        cmocka_unit_test_setup(an_encrypting_side_and_a_clear_one_refuse_each_other, clear_state),
    };
    const struct CMUnitTest carried[] = {
        cmocka_unit_test_setup(a_refused_access_fails_that_request_and_changes_no_byte,
                               clear_state_and_stream),
        cmocka_unit_test_setup(a_region_revoked_during_a_copy_stops_it_and_refuses_the_request,
                               clear_state_and_stream),
        cmocka_unit_test_setup(a_message_longer_than_its_receive_fails_both_ends,
                               clear_state_and_stream),
        cmocka_unit_test_setup(messages_that_arrived_are_reported_before_the_end,
                               clear_state_and_stream),
        cmocka_unit_test_setup(quiesce_delivers_the_arrived_messages_and_counts_them,
                               clear_state_and_stream),
        cmocka_unit_test_setup(an_endpoint_may_end_at_any_moment, clear_state_and_stream),
        cmocka_unit_test_setup(the_descriptor_wakes_only_for_a_message, clear_state_and_stream),
        cmocka_unit_test_setup(control_frames_travel_between_data_frames, clear_state_and_stream),
        cmocka_unit_test_setup(control_frames_without_room_are_refused_and_none_is_lost,
                               clear_state_and_stream),
        cmocka_unit_test_setup(a_shared_socket_keeps_its_options_and_stays_open,
                               clear_state_and_stream),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + cmocka_run_group_tests_name("carried", carried, NULL, NULL);
}
