/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How much work a peer may cause at a time: a turn ends after a fixed number of records and frames,
 * however small they are. Counted, never timed. */
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/object/offer.h"
#include "api/progress/cq_owner.h"
#include "negotiation/control_channel.h"
#include "negotiation/tls_internal.h"
#include "tests/unit/auth_scene.h"
#include "tests/unit/listener_scene.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>

enum {
    TURN_READS = 256,
    RENEWALS = 10000,
    OVERHEAD = 22, /* bytes of a record: header 5, type 1, tag 16 (RFC 8446, 5.2) */
};

/* ---------------------------------------------------------------------------- one channel alone */

/* A session whose peer, at the other end of a socket pair, sends any bytes; and the channel on
 * it. */
struct line {
    struct rdmux_fabric *fabric;
    int sockets[2];
    int epoll_fd;
    struct rdmux_tls *peer;
    struct rdmux_tls *own; /* the channel's */
    struct rdmux_channel *channel;
};

/* Sends all bytes, with one record for each `each` bytes. */
static void say_secured(struct rdmux_tls *peer, const uint8_t *bytes, size_t size, size_t each)
{
    for (size_t sent = 0; sent < size;) {
        size_t done = 0;
        size_t part = size - sent < each ? size - sent : each;
        CHECK_OK(rdmux_tls_send(peer, bytes + sent, part, &done));
        sent += done;
    }
}

static void open_line(struct line *line)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE, file));
    struct rdmux_fabric_attr attr = attr_with("tcp", &auth, NULL, NULL);
    struct rdmux_hello hello;
    uint8_t bytes[RDMUX_HELLO_SIZE];
    const uint8_t *heard = NULL;
    size_t size = 0;
    size_t done = 0;
    memset(line, 0, sizeof(*line));
    CHECK_OK(rdmux_fabric_open(&attr, &line->fabric));
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, line->sockets), 0);
    int room = 1 << 20;
    assert_int_equal(setsockopt(line->sockets[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
    line->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_true(line->epoll_fd >= 0);
    CHECK_OK(rdmux_tls_create(line->fabric->auth, RDMUX_ROLE_CONNECT, line->sockets[0], NULL,
                              &line->peer));
    CHECK_OK(rdmux_tls_create(line->fabric->auth, RDMUX_ROLE_ACCEPT, line->sockets[1], NULL,
                              &line->own));
    CHECK_OK(rdmux_channel_create(line->fabric, line->sockets[1], line->epoll_fd, line, false,
                                  &line->channel));
    rdmux_channel_secure(line->channel, line->own);
    rdmux_hello_fill(line->fabric, &hello);
    rdmux_hello_encode(&hello, bytes);
    while (rdmux_tls_send(line->peer, bytes, sizeof(bytes), &done) == RDMUX_AGAIN) {
        CHECK_STATUS(rdmux_channel_receive(line->channel, &heard, &size), RDMUX_AGAIN);
    }
    CHECK_OK(rdmux_channel_receive(line->channel, &heard, &size));
    assert_int_equal(size, RDMUX_HELLO_SIZE);
    rdmux_channel_begin_turn(line->channel);
}

static void close_line(struct line *line)
{
    rdmux_tls_destroy(line->peer);
    rdmux_channel_destroy(line->channel);
    close(line->sockets[0]);
    close(line->epoll_fd);
    CHECK_OK(rdmux_fabric_close(line->fabric));
}

static int unread(const struct line *line)
{
    int bytes = 0;
    assert_int_equal(ioctl(line->sockets[1], FIONREAD, &bytes), 0);
    return bytes;
}

/* A frame in records of one byte, of which one turn takes only the permitted number. */
static void a_turn_of_a_control_channel_ends_after_a_fixed_number_of_records(void **state)
{
    enum { PAYLOAD = 320, TAKEN = TURN_READS };
    static uint8_t frame[RDMUX_FRAME_HEADER_SIZE + PAYLOAD];
    const int size_of_all = (int)sizeof(frame) * (1 + OVERHEAD);
    struct line line;
    const uint8_t *heard = NULL;
    size_t size = 0;
    size_t turns = 1;
    (void)state;
    open_line(&line);
    rdmux_frame_header_encode(RDMUX_FRAME_OFFER, 0, PAYLOAD, frame);
    say_secured(line.peer, frame, sizeof(frame), 1);
    assert_int_equal(unread(&line), size_of_all);

    CHECK_STATUS(rdmux_channel_receive(line.channel, &heard, &size), RDMUX_AGAIN);
    assert_int_equal(unread(&line), size_of_all - TAKEN * (1 + OVERHEAD));
    CHECK_STATUS(rdmux_channel_receive(line.channel, &heard, &size), RDMUX_AGAIN);
    assert_int_equal(unread(&line), size_of_all - TAKEN * (1 + OVERHEAD));

    enum rdmux_status status = RDMUX_AGAIN;
    for (; status == RDMUX_AGAIN && turns < 10; turns++) {
        rdmux_channel_begin_turn(line.channel);
        status = rdmux_channel_receive(line.channel, &heard, &size);
    }
    CHECK_OK(status);
    assert_int_equal(size, sizeof(frame));
    assert_memory_equal(heard, frame, sizeof(frame));
    assert_int_equal(turns, 1 + sizeof(frame) / TURN_READS);
    close_line(&line);
}

/* The same in clear, where the socket is read that often. */
static void a_turn_in_clear_ends_after_a_fixed_number_of_frames(void **state)
{
    enum { FRAMES = 1000 };
    static uint8_t frames[FRAMES * RDMUX_FRAME_HEADER_SIZE];
    struct line line;
    const uint8_t *heard = NULL;
    size_t size = 0;
    size_t count = 0;
    (void)state;
    open_line(&line);
    rdmux_channel_secure(line.channel, NULL);
    rdmux_tls_destroy(line.own);
    for (size_t i = 0; i < FRAMES; i++) {
        rdmux_frame_header_encode(RDMUX_FRAME_HEARTBEAT, 0, 0, frames + i * RDMUX_FRAME_HEADER_SIZE);
    }
    assert_int_equal(send(line.sockets[0], frames, sizeof(frames), MSG_NOSIGNAL), sizeof(frames));

    while (rdmux_channel_receive(line.channel, &heard, &size) == RDMUX_OK) {
        count++;
    }

    assert_in_range(count, 1, TURN_READS);
    assert_int_equal(unread(&line), (int)(sizeof(frames) - count * RDMUX_FRAME_HEADER_SIZE));
    close_line(&line);
}

/* The handshake of a pending connection in records of one byte. */
static void a_step_of_a_handshake_ends_after_a_fixed_number_of_records(void **state)
{
    enum { RECORD = 6, MESSAGE = 1000, RECORDS = 2 * RDMUX_TLS_SHAKE_RECORDS };
    static const uint8_t beginning[] = { 0x01, 0x00, MESSAGE >> 8, MESSAGE & 0xff };
    struct line line;
    struct rdmux_tls *own = NULL;
    uint8_t hello[RDMUX_HELLO_SIZE] = { 0 };
    uint8_t out[16];
    size_t got = 0;
    (void)state;
    open_line(&line);
    CHECK_OK(rdmux_tls_create(line.fabric->auth, RDMUX_ROLE_ACCEPT, line.sockets[1], NULL, &own));
    rdmux_tls_greeted(own, hello);
    for (size_t i = 0; i < RECORDS; i++) {
        const uint8_t record[RECORD] = { 0x16, 0x03, 0x01,
                                         0x00, 0x01, i < sizeof(beginning) ? beginning[i] : 0x03 };
        assert_int_equal(send(line.sockets[0], record, RECORD, MSG_NOSIGNAL), RECORD);
    }

    for (int left = RECORDS; left > 0; left -= RDMUX_TLS_SHAKE_RECORDS) {
        assert_int_equal(unread(&line), left * RECORD);
        CHECK_STATUS(rdmux_tls_receive(own, out, sizeof(out), &got), RDMUX_AGAIN);
        assert_false(rdmux_tls_wants_room(own));
    }

    assert_int_equal(unread(&line), 0);
    rdmux_tls_destroy(own);
    close_line(&line);
}

/* -------------------------------------------------------------------------- a connection of two */

static void open_auth_pair(struct pair *pair, struct logbook *book)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
    open_auth_sides(pair, "tcp", &auth, &auth, book);
    connect_more(pair, NULL, &pair->a, &pair->b);
}

/* The session of an endpoint's control channel. */
static struct rdmux_tls *session_of(struct rdmux_ep *ep)
{
    return (struct rdmux_tls *)rdmux_channel_carry_data(ep->channel); /* the stream is its first */
}

/* Renews keys as often as the peer reads. */
static void renew_without_end(struct rdmux_tls *tls)
{
    for (int i = 0; i < RENEWALS; i++) {
        struct pollfd look = { .fd = tls->socket, .events = POLLOUT };
        if (poll(&look, 1, PATIENT_MS) != 1 ||
            SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1 ||
            SSL_do_handshake(tls->ssl) != 1) {
            return;
        }
    }
}

static void a_peer_that_renews_its_key_without_end_breaks_the_protocol(void **state)
{
    struct pair pair;
    (void)state;
    open_auth_pair(&pair, NULL);
    assert_true(rdmux_cq_enter(pair.cq_a));

    renew_without_end(session_of(pair.a));

    rdmux_cq_leave(pair.cq_a);
    expect_entry(pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PROTOCOL);
    CHECK_OK(rdmux_ep_close(pair.a));
    CHECK_OK(rdmux_ep_close(pair.b));
    connect_more(&pair, NULL, &pair.a, &pair.b); /* others are served */
    check_messages(&pair);
    close_pair(&pair);
}

/* Frames that lie in the session when the turn is over: no socket signals them. */
static void frames_left_at_the_end_of_a_turn_are_read_in_the_next(void **state)
{
    enum { FRAMES = 5 * RDMUX_CHANNEL_TURN_FRAMES };
    static uint8_t bytes[FRAMES * RDMUX_FRAME_HEADER_SIZE + RDMUX_MESSAGE_MAX];
    static const bool sleeps[] = { false, true };
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(sleeps); i++) {
        struct pair pair;
        struct rdmux_message last = { .type = RDMUX_FRAME_END, .status = RDMUX_PEER_GONE };
        size_t size = (size_t)FRAMES * RDMUX_FRAME_HEADER_SIZE;
        size_t done = 0;
        open_auth_pair(&pair, NULL);
        for (size_t frame = 0; frame < FRAMES; frame++) {
            rdmux_frame_header_encode(RDMUX_FRAME_HEARTBEAT, 0, 0,
                                      bytes + frame * RDMUX_FRAME_HEADER_SIZE);
        }
        snprintf(last.text, sizeof(last.text), "the last of them");
        size += rdmux_message_encode(&last, bytes + size);
        if (sleeps[i]) { /* else the service thread has it */
            struct rdmux_wc none;
            while (rdmux_cq_arm(pair.cq_b) == RDMUX_AGAIN) {
                assert_int_equal(rdmux_cq_poll(pair.cq_b, &none, 1), 0);
            }
        }
        assert_true(rdmux_cq_enter(pair.cq_a));
        struct rdmux_tls *tls = session_of(pair.a);
        assert_int_equal(SSL_set_max_send_fragment(tls->ssl, RDMUX_STREAM_PIECE), 1);
        assert_int_equal(SSL_set_split_send_fragment(tls->ssl, RDMUX_STREAM_PIECE), 1);
        for (size_t sent = 0; sent < size; sent += done) {
            CHECK_OK(rdmux_tls_send(tls, bytes + sent, size - sent, &done));
        }
        rdmux_cq_leave(pair.cq_a);

        if (sleeps[i]) {
            struct pollfd look = { .fd = rdmux_cq_fd(pair.cq_b), .events = POLLIN };
            assert_int_equal(poll(&look, 1, PATIENT_MS), 1);
        }
        expect_entry(pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
        close_pair(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_turn_of_a_control_channel_ends_after_a_fixed_number_of_records),
        cmocka_unit_test(a_turn_in_clear_ends_after_a_fixed_number_of_frames),
        cmocka_unit_test(a_step_of_a_handshake_ends_after_a_fixed_number_of_records),
        cmocka_unit_test(a_peer_that_renews_its_key_without_end_breaks_the_protocol),
        cmocka_unit_test(frames_left_at_the_end_of_a_turn_are_read_in_the_next),
    };
    return cmocka_run_group_tests_name("turns", tests, make_auth_folder, remove_auth_folder);
}
