/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A peer of the tcp provider that breaks off one request and begins another, sends a frame where
 * none is allowed, or loses a socket: the endpoint ends with an explanation. */
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_frame.h"
#include "tests/unit/tcp_pair.h"

#include <poll.h>

enum {
    REST = 100,
    LONG = TCP_CHUNK_MAX + REST,
    TURNS = 100,
    STREAM = 6 << 20,
    STRIPED = 1 << 16,
    PATIENT_MS = 8000
};

#define HEAD(kind) (TCP_MARK | (kind))

static uint8_t target[2 << 20];

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

static void write_all(struct end *end, int peer, const uint8_t *bytes, size_t size)
{
    size_t at = 0;
    for (int turns = 0; at < size && turns < TURNS_MAX; turns++) {
        ssize_t sent = write(peer, bytes + at, size - at);
        at += sent > 0 ? (size_t)sent : 0;
        (void)ops->poll(end->cq, BUDGET);
    }
    assert_int_equal(at, size);
}

/* The header and the first chunk of a write of LONG bytes: REST more have to follow. */
static void begin_write(struct end *end, int peer)
{
    static const uint8_t chunk[TCP_CHUNK_MAX];
    uint8_t header[TCP_HEADER_MAX];
    uint8_t key[TCP_KEY_SIZE] = { 0, 1 };
    size_t size = rdmux_tcp_frame_encode(
        &(struct tcp_frame){ .kind = TCP_WRITE, .key = key, .length = LONG }, header);
    (void)fake_region(0, target, sizeof(target), ALL_ACCESS);
    write_all(end, peer, header, size);
    write_all(end, peer, chunk, sizeof(chunk));
    assert_int_equal(end->core.failed, RDMUX_OK);
}

static void check_end_after_chunk(const struct tcp_frame *frame, const char *part)
{
    struct end *end = end_create(RDMUX_ROLE_ACCEPT, NULL);
    int peer = connect_to_test(end);
    uint8_t bytes[TCP_HEADER_MAX + 2 * REST] = { 0 };
    uint8_t slot[REST];
    receive(end, slot, sizeof(slot));
    begin_write(end, peer);
    size_t size = rdmux_tcp_frame_encode(frame, bytes);
    assert_true(write(peer, bytes, size) == (ssize_t)size);
    for (int i = 0; i < TURNS && end->core.failed == RDMUX_OK; i++) {
        (void)ops->poll(end->cq, BUDGET);
    }
    assert_int_equal(end->core.failed, RDMUX_PROTOCOL);
    if (strstr(end->core.text, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", end->core.text, part);
    }
    assert_int_equal(end->core.arrived_count, 0);
    end_destroy(end, true);
    (void)close(peer);
    (void)clear_state(NULL);
}

static void no_request_may_begin_within_another(void **state)
{
    (void)state;
    uint8_t key[TCP_KEY_SIZE] = { 0, 1 };
    check_end_after_chunk(&(struct tcp_frame){ .kind = TCP_SEND, .length = 4 }, "within another");
    check_end_after_chunk(&(struct tcp_frame){ .kind = TCP_WRITE, .key = key, .length = 4 },
                          "within another");
    check_end_after_chunk(&(struct tcp_frame){ .kind = TCP_READ, .key = key, .length = 4 },
                          "within another");
    check_end_after_chunk(
        &(struct tcp_frame){ .kind = TCP_FETCH_ADD, .key = key, .length = 8, .operand = 1 },
        "within another");
}

static void the_next_chunk_must_have_the_remaining_length(void **state)
{
    (void)state;
    check_end_after_chunk(&(struct tcp_frame){ .kind = TCP_MORE, .length = REST - 1 },
                          "more of a request than it announced");
    check_end_after_chunk(&(struct tcp_frame){ .kind = TCP_MORE, .length = REST + 1 },
                          "more of a request than it announced");
}

static void a_chunk_of_the_remaining_length_completes_the_write(void **state)
{
    (void)state;
    struct end *end = end_create(RDMUX_ROLE_ACCEPT, NULL);
    int peer = connect_to_test(end);
    uint8_t bytes[TCP_HEADER_MAX + REST];
    begin_write(end, peer);
    memset(bytes, 0x5a, sizeof(bytes));
    size_t size = rdmux_tcp_frame_encode(&(struct tcp_frame){ .kind = TCP_MORE, .length = REST },
                                         bytes);
    memset(target, 0x77, sizeof(target));
    write_all(end, peer, bytes, size + REST);
    for (int i = 0; i < TURNS && target[LONG - 1] == 0x77; i++) {
        (void)ops->poll(end->cq, BUDGET);
    }
    assert_int_equal(end->core.failed, RDMUX_OK);
    for (size_t i = 0; i < REST; i++) {
        assert_int_equal(target[TCP_CHUNK_MAX + i], 0x5a);
    }
    assert_int_equal(target[LONG], 0x77);
    end_destroy(end, true);
    (void)close(peer);
}

static void a_control_frame_on_a_data_socket_ends_the_endpoint(void **state)
{
    (void)state;
    static const uint8_t control[8 + 3] = { 1, 0, 0, 0, 0, 0, 0, 3, 'a', 'b', 'c' };
    struct pair pair = pair_create(WIRED_ONE);
    int fd = rdmux_tcp_lane(rdmux_tcp_ep(pair.a->ep), 0)->fd;

    assert_int_equal(send(fd, control, sizeof(control), MSG_NOSIGNAL), sizeof(control));

    RUN_UNTIL(pair.a, pair.b, pair.b->core.failed != RDMUX_OK);
    assert_int_equal(pair.b->core.failed, RDMUX_PROTOCOL);
    assert_non_null(strstr(pair.b->core.text, "control frame on a data socket"));
    assert_int_equal(pair.b->core.control_size, 0);
    pair_destroy(pair);
}

static void send_share(struct end *from, uint32_t index, const uint8_t *bytes)
{
    uint64_t begin = 0;
    uint64_t end = 0;
    rdmux_tcp_share(STRIPED, 4, index, &begin, &end);
    int fd = rdmux_tcp_lane(rdmux_tcp_ep(from->ep), index)->fd;
    assert_int_equal(send(fd, bytes + begin, end - begin, MSG_NOSIGNAL), end - begin);
}

static void poll_some(struct end *end)
{
    for (int i = 0; i < TURNS; i++) {
        (void)ops->poll(end->cq, BUDGET);
    }
    assert_int_equal(end->core.failed, RDMUX_OK);
}

/* b's receive for the message after the write, and the bytes that both tests send. */
static uint8_t slot[4];
static uint8_t striped[STRIPED];

/* Sends the frame of a write in four shares, and after it, on the same socket, the frame of a
 * message. */
static void send_striped_write(struct pair pair)
{
    int fd = rdmux_tcp_lane(rdmux_tcp_ep(pair.a->ep), 0)->fd;
    uint8_t key[TCP_KEY_SIZE] = { 0, 1 };
    uint8_t message[TCP_HEADER_MAX];
    fill(striped, sizeof(striped), 3);
    memset(slot, 0, sizeof(slot));
    memset(target, 0, sizeof(target));
    (void)fake_region(0, target, sizeof(target), ALL_ACCESS);
    receive(pair.b, slot, sizeof(slot));
    poll_some(pair.b);

    size_t size = rdmux_tcp_frame_encode(
        &(struct tcp_frame){
            .kind = TCP_WRITE, .flags = TCP_STRIPED, .key = key, .length = STRIPED },
        message);
    assert_int_equal(send(fd, message, size, MSG_NOSIGNAL), size);
    send_share(pair.a, 0, striped);
    size = rdmux_tcp_frame_encode(&(struct tcp_frame){ .kind = TCP_SEND, .length = sizeof(slot) },
                                  message);
    assert_int_equal(send(fd, message, size, MSG_NOSIGNAL), size);
    assert_int_equal(send(fd, "four", sizeof(slot), MSG_NOSIGNAL), sizeof(slot));
    poll_some(pair.b);
}

static void check_all_arrived(struct pair pair)
{
    assert_int_equal(pair.b->core.arrived_count, 1);
    assert_memory_equal(slot, "four", sizeof(slot));
    assert_memory_equal(target, striped, sizeof(striped));
}

static void a_message_behind_a_striped_write_waits_for_its_last_share(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_FOUR);
    send_striped_write(pair);
    send_share(pair.a, 3, striped);
    send_share(pair.a, 1, striped);
    poll_some(pair.b);
    assert_int_equal(pair.b->core.arrived_count, 0);

    send_share(pair.a, 2, striped);
    poll_some(pair.b);

    check_all_arrived(pair);
    pair_destroy(pair);
}

static bool is_readable(const struct end *end, int timeout_ms)
{
    struct pollfd wait = { .fd = ops->fd(end->cq), .events = POLLIN };
    return poll(&wait, 1, timeout_ms) == 1;
}

/* Checks that a poll finds no work, that the cq can be armed, and that nothing wakes it. */
static void check_asleep(const struct end *end)
{
    assert_int_equal(ops->poll(end->cq, BUDGET), 0);
    assert_int_equal(ops->arm(end->cq), RDMUX_OK);
    assert_false(is_readable(end, 0));
}

/* It must wake neither for the message on socket 0, nor for bytes of a next share on a socket whose
 * own share is complete: it would spin as long as the peer likes. */
static void a_side_that_waits_for_a_share_sleeps_until_it_arrives(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_FOUR);
    send_striped_write(pair);
    check_asleep(pair.b);

    send_share(pair.a, 1, striped);
    assert_true(is_readable(pair.b, PATIENT_MS));
    poll_some(pair.b);
    send_share(pair.a, 1, striped); /* of the next write */
    check_asleep(pair.b);

    send_share(pair.a, 3, striped);
    assert_true(is_readable(pair.b, PATIENT_MS));
    poll_some(pair.b);
    check_asleep(pair.b);

    send_share(pair.a, 2, striped);
    assert_true(is_readable(pair.b, PATIENT_MS));
    poll_some(pair.b);
    check_all_arrived(pair);
    pair_destroy(pair);
}

/* One data socket of several breaks: both sides learn it, and no request in flight succeeds. */
static void a_broken_data_socket_ends_the_connection(void **state)
{
    (void)state;
    for (uint32_t broken = 0; broken < 4; broken++) {
        uint8_t *there = calloc(1, STREAM);
        uint8_t *here = calloc(1, STREAM);
        assert_non_null(there);
        assert_non_null(here);
        struct pair pair = pair_create(WIRED_FOUR);
        (void)fake_region(0, there, STREAM, ALL_ACCESS);
        import_region(pair.b, pair.a, 0);
        struct rdmux_request *write = queue(pair.a, RDMUX_OP_WRITE, here, STREAM, 0, 0,
                                            RDMUX_PLACED);
        post_queued(pair.a);
        assert_int_equal(write->done, 0);

        (void)shutdown(rdmux_tcp_lane(rdmux_tcp_ep(pair.a->ep), broken)->fd, SHUT_RDWR);

        RUN_UNTIL(pair.a, pair.b,
                  pair.a->core.failed != RDMUX_OK && pair.b->core.failed != RDMUX_OK);
        assert_int_equal(pair.a->core.failed, RDMUX_PEER_GONE);
        assert_int_equal(pair.b->core.failed, RDMUX_PEER_GONE);
        assert_true(pair.a->core.text[0] != '\0');
        assert_true(!write->done || write->status != RDMUX_OK);
        pair_destroy(pair);
        free(here);
        free(there);
        (void)clear_state(NULL);
    }
}

/* Neither side has bytes to read there, or to send. */
static void a_broken_data_socket_of_an_idle_connection_is_noticed(void **state)
{
    (void)state;
    for (uint32_t broken = 0; broken < 4; broken++) {
        struct pair pair = pair_create(WIRED_FOUR);
        for (int i = 0; i < TURNS; i++) {
            step_ends(pair.a, pair.b);
        }

        (void)shutdown(rdmux_tcp_lane(rdmux_tcp_ep(pair.a->ep), broken)->fd, SHUT_RDWR);

        RUN_UNTIL(pair.a, pair.b,
                  pair.a->core.failed != RDMUX_OK && pair.b->core.failed != RDMUX_OK);
        assert_int_equal(pair.a->core.failed, RDMUX_PEER_GONE);
        assert_int_equal(pair.b->core.failed, RDMUX_PEER_GONE);
        pair_destroy(pair);
        (void)clear_state(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(no_request_may_begin_within_another, clear_state),
        cmocka_unit_test_setup(the_next_chunk_must_have_the_remaining_length, clear_state),
        cmocka_unit_test_setup(a_chunk_of_the_remaining_length_completes_the_write, clear_state),
        cmocka_unit_test_setup(a_control_frame_on_a_data_socket_ends_the_endpoint, clear_state),
        cmocka_unit_test_setup(a_message_behind_a_striped_write_waits_for_its_last_share,
                               clear_state),
        cmocka_unit_test_setup(a_side_that_waits_for_a_share_sleeps_until_it_arrives, clear_state),
        cmocka_unit_test_setup(a_broken_data_socket_ends_the_connection, clear_state),
        cmocka_unit_test_setup(a_broken_data_socket_of_an_idle_connection_is_noticed, clear_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
