/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* TLS of one control channel over sockets that take and return few bytes at a time. */
#include "api/core/fabric.h"
#include "api/object/offer.h"
#include "negotiation/tls.h"
#include "tests/unit/auth_scene.h"

enum { LENGTH = 1 << 20 };

/* Two ends of a socket, with a session on one or both. */
struct line {
    struct rdmux_fabric *fabric;
    int sockets[2];
    struct rdmux_tls *connector; /* on sockets[0] */
    struct rdmux_tls *acceptor;  /* on sockets[1] */
    uint8_t hello[RDMUX_HELLO_SIZE];
};

static void open_line(struct line *line)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "zoe:" KEY_TWO "\nanna:" KEY_ONE, file));
    auth.identity = "anna";
    struct rdmux_fabric_attr attr = attr_with("tcp", &auth, NULL, NULL);
    struct rdmux_hello hello;
    memset(line, 0, sizeof(*line));
    CHECK_OK(rdmux_fabric_open(&attr, &line->fabric));
    assert_int_equal(
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, line->sockets), 0);
    for (size_t i = 0; i < 2; i++) {
        int least = 1;
        assert_int_equal(setsockopt(line->sockets[i], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)),
                         0);
    }
    CHECK_OK(rdmux_tls_create(line->fabric->auth, RDMUX_ROLE_CONNECT, line->sockets[0], NULL,
                              &line->connector));
    CHECK_OK(rdmux_tls_create(line->fabric->auth, RDMUX_ROLE_ACCEPT, line->sockets[1], NULL,
                              &line->acceptor));
    rdmux_hello_fill(line->fabric, &hello);
    rdmux_hello_encode(&hello, line->hello);
}

static void close_line(struct line *line)
{
    rdmux_tls_destroy(line->connector);
    rdmux_tls_destroy(line->acceptor);
    close(line->sockets[0]);
    close(line->sockets[1]);
    CHECK_OK(rdmux_fabric_close(line->fabric));
}

/* Sends the rest of LENGTH bytes as far as the socket takes them. Returns true if it had to wait
 * for room. */
static bool send_on(struct rdmux_tls *tls, const uint8_t *bytes, size_t *sent)
{
    while (*sent < LENGTH) {
        size_t done = 0;
        enum rdmux_status status = rdmux_tls_send(tls, bytes + *sent, LENGTH - *sent, &done);
        if (status == RDMUX_AGAIN) {
            return rdmux_tls_wants_room(tls);
        }
        CHECK_STATUS(status, RDMUX_OK);
        *sent += done;
    }
    return false;
}

static void receive_on(struct rdmux_tls *tls, uint8_t *bytes, size_t *have)
{
    while (*have < LENGTH) {
        size_t got = 0;
        enum rdmux_status status = rdmux_tls_receive(tls, bytes + *have, LENGTH - *have, &got);
        if (status == RDMUX_AGAIN) {
            return;
        }
        CHECK_STATUS(status, RDMUX_OK);
        assert_true(got > 0);
        *have += got;
    }
}

static void a_megabyte_each_way_passes_sockets_with_little_room(void **state)
{
    struct line line;
    uint8_t *up = malloc(LENGTH);
    uint8_t *up_again = malloc(LENGTH);
    uint8_t *down = malloc(LENGTH);
    uint8_t *up_there = calloc(1, LENGTH);
    uint8_t *down_there = calloc(1, LENGTH);
    size_t sent[2] = { 0, 0 };
    size_t have[2] = { 0, 0 };
    size_t waits = 0;
    (void)state;
    open_line(&line);
    for (size_t i = 0; i < LENGTH; i++) {
        up[i] = (uint8_t)(i * 7 >> 3);
        down[i] = (uint8_t)(i * 5 >> 2);
    }
    memcpy(up, line.hello, sizeof(line.hello)); /* a connector begins with it */
    memcpy(up_again, up, LENGTH);

    uint64_t until = now_ms() + PATIENT_MS;
    while (have[0] < LENGTH || have[1] < LENGTH) {
        assert_true(now_ms() < until);
        /* A channel's buffer grows, and is elsewhere then. */
        waits += send_on(line.connector, sent[0] % 3 == 0 ? up : up_again, &sent[0]);
        waits += send_on(line.connector, sent[0] % 3 == 0 ? up_again : up, &sent[0]);
        receive_on(line.acceptor, up_there, &have[1]);
        waits += rdmux_tls_is_open(line.acceptor) && send_on(line.acceptor, down, &sent[1]);
        receive_on(line.connector, down_there, &have[0]);
    }

    assert_true(waits > 0); /* a sanity check */
    assert_memory_equal(up_there, up, LENGTH);
    assert_memory_equal(down_there, down, LENGTH);
    assert_string_equal(rdmux_tls_identity(line.acceptor), "anna"); /* not the file's first line */
    free(up);
    free(up_again);
    free(down);
    free(up_there);
    free(down_there);
    close_line(&line);
}

static void a_hello_waits_for_room(void **state)
{
    struct line line;
    uint8_t waste[4096] = { 0 };
    uint8_t heard[RDMUX_HELLO_SIZE];
    size_t done = 0;
    (void)state;
    open_line(&line);
    while (send(line.sockets[0], waste, sizeof(waste), MSG_NOSIGNAL) > 0) {
    }
    while (send(line.sockets[0], waste, 1, MSG_NOSIGNAL) > 0) {
    }

    CHECK_STATUS(rdmux_tls_send(line.connector, line.hello, sizeof(line.hello), &done), RDMUX_AGAIN);

    assert_true(rdmux_tls_wants_room(line.connector));
    while (recv(line.sockets[1], waste, sizeof(waste), 0) > 0) {
    }
    CHECK_STATUS(rdmux_tls_send(line.connector, line.hello, sizeof(line.hello), &done), RDMUX_AGAIN);
    assert_int_equal(recv(line.sockets[1], heard, sizeof(heard), 0), sizeof(heard));
    assert_memory_equal(heard, line.hello, sizeof(heard));
    close_line(&line);
}

static void a_partial_client_hello_begins_no_session(void **state)
{
    struct line line;
    size_t done = 0;
    (void)state;
    open_line(&line);

    CHECK_STATUS(rdmux_tls_send(line.connector, line.hello, sizeof(line.hello) - 1, &done),
                 RDMUX_PROTOCOL);

    assert_int_equal(recv(line.sockets[1], line.hello, 1, 0), -1);
    close_line(&line);
}

/* The session that sends when a MSG_PEEK has found no byte. */
static struct rdmux_tls *speaks_behind_a_look;

ssize_t __real_recv(int fd, void *out, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *out, size_t size, int flags);

ssize_t __wrap_recv(int fd, void *out, size_t size, int flags)
{
    ssize_t got = __real_recv(fd, out, size, flags);
    int error = errno;
    if (got < 0 && (flags & MSG_PEEK) != 0 && speaks_behind_a_look != NULL) {
        struct rdmux_tls *speaker = speaks_behind_a_look;
        uint8_t waste[16];
        size_t none = 0;
        speaks_behind_a_look = NULL;
        CHECK_STATUS(rdmux_tls_receive(speaker, waste, sizeof(waste), &none), RDMUX_AGAIN);
    }
    errno = error;
    return got;
}

/* Returns the record of these bytes: one record, if there is room for all of them. */
static size_t record_of(struct line *line, const uint8_t *bytes, size_t size)
{
    static uint8_t waste[LENGTH];
    int room = 1 << 20;
    size_t done = 0;
    size_t got = 0;
    uint64_t until = now_ms() + PATIENT_MS;
    enum rdmux_status status = RDMUX_AGAIN;
    assert_int_equal(setsockopt(line->sockets[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)), 0);
    while (status == RDMUX_AGAIN) { /* the handshake comes first */
        assert_true(now_ms() < until);
        status = rdmux_tls_send(line->connector, bytes, size, &done);
        while (rdmux_tls_receive(line->acceptor, waste, sizeof(waste), &got) == RDMUX_OK) {
        }
    }
    CHECK_STATUS(status, RDMUX_OK);
    return done;
}

static void a_session_that_may_carry_data_has_long_records(void **state)
{
    static uint8_t bytes[3 * RDMUX_STREAM_PIECE];
    struct line line;
    (void)state;
    open_line(&line);
    assert_int_equal(record_of(&line, line.hello, sizeof(line.hello)), sizeof(line.hello));
    assert_true(record_of(&line, bytes, sizeof(bytes)) < RDMUX_STREAM_PIECE);
    close_line(&line);

    open_line(&line);
    rdmux_tls_allow_data(line.connector);
    assert_int_equal(record_of(&line, line.hello, sizeof(line.hello)), sizeof(line.hello));
    assert_int_equal(record_of(&line, bytes, sizeof(bytes)), RDMUX_STREAM_PIECE);
    struct rdmux_path_stream *stream = rdmux_tls_carry_data(line.connector);
    assert_int_equal(record_of(&line, bytes, sizeof(bytes)), RDMUX_STREAM_PIECE);

    stream->ops->close(stream); /* it is the channel's */
    assert_int_equal(record_of(&line, bytes, sizeof(bytes)), RDMUX_STREAM_PIECE);
    close_line(&line);
}

static void an_answer_between_two_checks_is_not_mistaken_for_another(void **state)
{
    struct line line;
    uint8_t out[16];
    size_t got = 0;
    (void)state;
    open_line(&line);
    speaks_behind_a_look = line.acceptor;
    CHECK_STATUS(rdmux_tls_send(line.connector, line.hello, sizeof(line.hello), &got), RDMUX_AGAIN);
    assert_null(speaks_behind_a_look); /* a sanity check */

    for (int i = 0; i < 4 && !rdmux_tls_is_open(line.acceptor); i++) {
        CHECK_STATUS(rdmux_tls_receive(line.connector, out, sizeof(out), &got), RDMUX_AGAIN);
        CHECK_STATUS(rdmux_tls_receive(line.acceptor, out, sizeof(out), &got), RDMUX_AGAIN);
    }

    assert_true(rdmux_tls_is_open(line.connector));
    assert_true(rdmux_tls_is_open(line.acceptor));
    close_line(&line);
}

/* Passes bytes one by one to a session, which must wait until the last. Returns its final
 * status. */
static enum rdmux_status bring_slowly(struct rdmux_tls *tls, int from, const uint8_t *bytes,
                                      size_t size)
{
    uint8_t out[16];
    size_t got = 0;
    enum rdmux_status status = RDMUX_AGAIN;
    for (size_t i = 0; i < size; i++) {
        assert_int_equal(send(from, bytes + i, 1, MSG_NOSIGNAL), 1);
        status = rdmux_tls_receive(tls, out, sizeof(out), &got);
        if (status != RDMUX_AGAIN && i + 1 < size) {
            fail_msg("%s after %zu bytes of %zu: %s", rdmux_status_name(status), i + 1, size,
                     rdmux_last_error());
        }
    }
    assert_int_equal(got, 0);
    return status;
}

static void greet(struct line *line)
{
    size_t done = 0;
    CHECK_STATUS(rdmux_tls_send(line->connector, line->hello, sizeof(line->hello), &done),
                 RDMUX_AGAIN);
}

/* Checks the error for an acceptor's clear answer with this byte at this place of its HELLO. */
static void check_refusal(size_t at, uint8_t byte, enum rdmux_status expected, const char *says)
{
    struct line line;
    open_line(&line);
    greet(&line);
    uint8_t answer[RDMUX_HELLO_SIZE];
    memcpy(answer, line.hello, sizeof(answer));
    answer[at] = byte;

    enum rdmux_status status = bring_slowly(line.connector, line.sockets[1], answer, sizeof(answer));

    CHECK_STATUS(status, expected);
    assert_non_null(strstr(rdmux_last_error(), says));
    assert_false(rdmux_tls_is_open(line.connector));
    close_line(&line);
}

static void a_refusal_may_come_byte_by_byte(void **state)
{
    (void)state;
    check_refusal(27, 0, RDMUX_AUTH, "the peer not at all");
    check_refusal(27, RDMUX_AUTH_CERT, RDMUX_AUTH, "set both alike");
    check_refusal(27, RDMUX_AUTH_PSK, RDMUX_AUTH, "does not authenticate as it says");
    check_refusal(27, 1 << 5, RDMUX_AUTH, "a method of another version");
    check_refusal(9, 2, RDMUX_PROTOCOL, "not one we understand"); /* from 2 to 1 */
    check_refusal(12, 0x77, RDMUX_PROTOCOL, "not one we understand");
}

static void an_acceptor_of_another_version_is_recognized(void **state)
{
    struct line line;
    (void)state;
    open_line(&line);
    greet(&line);
    uint8_t answer[RDMUX_HELLO_SIZE];
    memcpy(answer, line.hello, sizeof(answer));
    answer[9] = 2; /* versions 2 to 9 */
    answer[11] = 9;

    CHECK_STATUS(bring_slowly(line.connector, line.sockets[1], answer, sizeof(answer)),
                 RDMUX_VERSION);

    close_line(&line);
}

static void a_connectors_hello_may_come_byte_by_byte(void **state)
{
    struct line line;
    uint8_t answer[RDMUX_HELLO_SIZE];
    struct rdmux_hello hello;
    (void)state;
    open_line(&line);
    CHECK_STATUS(bring_slowly(line.acceptor, line.sockets[0], line.hello, sizeof(line.hello)),
                 RDMUX_AGAIN); /* for TLS */
    rdmux_tls_destroy(line.acceptor);
    CHECK_OK(rdmux_tls_create(line.fabric->auth, RDMUX_ROLE_ACCEPT, line.sockets[1], NULL,
                              &line.acceptor));
    line.hello[27] = 0;

    CHECK_STATUS(bring_slowly(line.acceptor, line.sockets[0], line.hello, sizeof(line.hello)),
                 RDMUX_AUTH);

    assert_int_equal(recv(line.sockets[0], answer, sizeof(answer), 0), sizeof(answer));
    CHECK_OK(rdmux_hello_decode(answer, sizeof(answer), &hello));
    assert_int_equal(hello.authentication, RDMUX_AUTH_PSK);
    close_line(&line);
}

static void a_malformed_hello_ends_the_session_at_its_first_wrong_byte(void **state)
{
    struct line line;
    (void)state;
    open_line(&line);

    CHECK_STATUS(bring_slowly(line.acceptor, line.sockets[0], (const uint8_t *)"RDMUZ", 5),
                 RDMUX_PROTOCOL);

    close_line(&line);
}

static void an_end_before_authentication_reports_possible_causes(void **state)
{
    struct line line;
    uint8_t out[16];
    size_t got = 0;
    (void)state;
    open_line(&line);
    greet(&line);

    shutdown(line.sockets[1], SHUT_WR);

    CHECK_STATUS(rdmux_tls_receive(line.connector, out, sizeof(out), &got), RDMUX_PEER_GONE);
    assert_non_null(strstr(rdmux_last_error(), "is auth set there?"));
    close_line(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_megabyte_each_way_passes_sockets_with_little_room),
        cmocka_unit_test(a_hello_waits_for_room),
        cmocka_unit_test(a_partial_client_hello_begins_no_session),
        cmocka_unit_test(a_session_that_may_carry_data_has_long_records),
        cmocka_unit_test(an_answer_between_two_checks_is_not_mistaken_for_another),
        cmocka_unit_test(a_refusal_may_come_byte_by_byte),
        cmocka_unit_test(an_acceptor_of_another_version_is_recognized),
        cmocka_unit_test(a_connectors_hello_may_come_byte_by_byte),
        cmocka_unit_test(a_malformed_hello_ends_the_session_at_its_first_wrong_byte),
        cmocka_unit_test(an_end_before_authentication_reports_possible_causes),
    };
    return cmocka_run_group_tests_name("tls", tests, make_auth_folder, remove_auth_folder);
}
