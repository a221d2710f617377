/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The streams that carry a data socket's bytes between peers that authenticate: all bytes arrive,
 * in order, from the right peer, or none do. */
#include "api/core/fabric.h"
#include "negotiation/tls.h"
#include "negotiation/tls_internal.h"
#include "tests/unit/auth_scene.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>

enum {
    OVERHEAD = 22, /* bytes of a record: header 5, type 1, tag 16 (RFC 8446, 5.2) */
    KEY_UPDATE = 5 + OVERHEAD,
    WIRE_MAX = 64 << 10,
    RENEWALS_MAX = 8, /* that a peer may do in a minute */
    BARREN_MAX = 16,  /* records in one call that bring nothing */
};
#define SECOND_NS UINT64_C(1000000000)

/* Two ends, each on a socket whose other end the test holds: the test passes all bytes by hand. */
struct wire {
    struct rdmux_fabric *fabric;
    int outer[2];
    int inner[2]; /* the test's */
    struct rdmux_path_stream *stream[2];
};

static const uint8_t secret[RDMUX_SECRET_SIZE] = "0123456789abcde";

/* The inputs of each end's key. */
struct ends {
    const uint8_t *secret[2];
    uint32_t attempt[2];
    uint32_t socket[2];
};

/* The fabrics' clock. */
static _Atomic uint64_t clock_now_ns = 1; /* the service thread looks at it, too */

static uint64_t read_clock(void *user)
{
    (void)user;
    return clock_now_ns;
}

static void open_wire(struct wire *wire, const struct ends *ends)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE, file));
    struct rdmux_fabric_attr attr = attr_with("tcp", &auth, NULL, NULL);
    attr.clock_ns = read_clock;
    memset(wire, 0, sizeof(*wire));
    CHECK_OK(rdmux_fabric_open(&attr, &wire->fabric));
    for (size_t i = 0; i < 2; i++) {
        int pair[2];
        uint8_t key[RDMUX_DATA_KEY_SIZE];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair),
                         0);
        wire->outer[i] = pair[0];
        wire->inner[i] = pair[1];
        assert_true(rdmux_data_key(ends->secret[i], ends->attempt[i], ends->socket[i], key));
        CHECK_OK(rdmux_tls_create_data(wire->fabric->auth,
                                       i == 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT, pair[0],
                                       key, &wire->stream[i]));
    }
}

static void close_wire(struct wire *wire)
{
    for (size_t i = 0; i < 2; i++) {
        wire->stream[i]->ops->close(wire->stream[i]);
        close(wire->outer[i]);
        close(wire->inner[i]);
    }
    CHECK_OK(rdmux_fabric_close(wire->fabric));
}

/* Takes the bytes that this end has sent. */
static size_t take(struct wire *wire, size_t end, uint8_t out[WIRE_MAX])
{
    size_t have = 0;
    ssize_t got;
    while ((got = recv(wire->inner[end], out + have, WIRE_MAX - have, MSG_DONTWAIT)) > 0) {
        have += (size_t)got;
    }
    return have;
}

static void hand_over(struct wire *wire, size_t to, const uint8_t *bytes, size_t size)
{
    assert_int_equal(send(wire->inner[to], bytes, size, MSG_NOSIGNAL), size);
}

static enum rdmux_status step(struct wire *wire, size_t end)
{
    bool wants_room = true;
    enum rdmux_status status = wire->stream[end]->ops->open(wire->stream[end], &wants_room);
    assert_true(status != RDMUX_AGAIN || !wants_room);
    return status;
}

/* Lets both get to know each other, as far as they want to. */
static void introduce(struct wire *wire, enum rdmux_status status[2])
{
    static uint8_t bytes[WIRE_MAX];
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < 2; i++) {
            status[i] = step(wire, i);
            size_t size = take(wire, i, bytes);
            if (size > 0) {
                hand_over(wire, 1 - i, bytes, size);
            }
        }
    }
}

static void open_good_wire(struct wire *wire)
{
    static const struct ends ends = { { secret, secret }, { 1, 1 }, { 0, 0 } };
    enum rdmux_status status[2];
    open_wire(wire, &ends);
    introduce(wire, status);
    CHECK_OK(status[0]);
    CHECK_OK(status[1]);
}

/* Encrypts the bytes at `end`, as they go on the wire. */
static size_t record_of(struct wire *wire, size_t end, const void *bytes, size_t size,
                        uint8_t out[WIRE_MAX])
{
    size_t done = 0;
    CHECK_OK(wire->stream[end]->ops->send(wire->stream[end], bytes, size, &done));
    assert_int_equal(done, size);
    return take(wire, end, out);
}

static enum rdmux_status receive(struct wire *wire, size_t end, void *out, size_t size, size_t *got)
{
    *got = 0;
    return wire->stream[end]->ops->receive(wire->stream[end], out, size, got);
}

static void expect_bytes(struct wire *wire, size_t end, const void *bytes, size_t size)
{
    uint8_t heard[256];
    size_t got = 0;
    CHECK_OK(receive(wire, end, heard, sizeof(heard), &got));
    assert_int_equal(got, size);
    assert_memory_equal(heard, bytes, size);
}

static void expect_nothing(struct wire *wire, size_t end, enum rdmux_status status)
{
    uint8_t heard[256];
    size_t got = 0;
    CHECK_STATUS(receive(wire, end, heard, sizeof(heard), &got), status);
    assert_int_equal(got, 0);
}

/* Checks that the stream ends here, says why, and stays ended. */
static void expect_forgery(struct wire *wire, size_t end)
{
    expect_nothing(wire, end, RDMUX_PROTOCOL);
    if (strstr(wire->stream[end]->text, "not what the peer has sent") == NULL) {
        fail_msg("it says: %s", wire->stream[end]->text);
    }
    assert_true(wire->stream[end]->ops->holds_bytes(wire->stream[end])); /* its end is unreported */
    expect_nothing(wire, end, RDMUX_PROTOCOL);
}

/* ------------------------------------------------------------------------------------ in pieces */

static void records_may_come_in_two_pieces_cut_anywhere(void **state)
{
    static uint8_t bytes[WIRE_MAX];
    static const char first[] = "the first of two records";
    static const char second[] = "and the second";
    struct wire wire;
    (void)state;
    open_good_wire(&wire);
    for (size_t from = 0; from < 2; from++) {
        size_t size = sizeof(first) + sizeof(second) + (size_t)2 * OVERHEAD;
        for (size_t cut = 1; cut < size; cut++) {
            size_t at = record_of(&wire, from, first, sizeof(first), bytes);
            assert_int_equal(at, sizeof(first) + OVERHEAD);
            uint8_t *rest = bytes + at;
            assert_int_equal(at + record_of(&wire, from, second, sizeof(second), rest), size);

            hand_over(&wire, 1 - from, bytes, cut);
            if (cut >= at) {
                expect_bytes(&wire, 1 - from, first, sizeof(first));
            }
            expect_nothing(&wire, 1 - from, RDMUX_AGAIN);
            /* The socket signals the rest; half a record needs no wake-up. */
            assert_false(wire.stream[1 - from]->ops->holds_bytes(wire.stream[1 - from]));

            hand_over(&wire, 1 - from, bytes + cut, size - cut);
            if (cut < at) {
                expect_bytes(&wire, 1 - from, first, sizeof(first));
            }
            expect_bytes(&wire, 1 - from, second, sizeof(second));
        }
    }
    close_wire(&wire);
}

static void bytes_read_ahead_are_reported(void **state)
{
    static uint8_t bytes[WIRE_MAX];
    struct wire wire;
    uint8_t heard[4];
    size_t got = 0;
    (void)state;
    open_good_wire(&wire);
    const struct rdmux_path_stream *there = wire.stream[1];
    size_t size = record_of(&wire, 0, "abcdefgh", 8, bytes);
    size += record_of(&wire, 0, "ijkl", 4, bytes + size);
    hand_over(&wire, 1, bytes, size);

    CHECK_OK(receive(&wire, 1, heard, 4, &got));
    assert_true(there->ops->holds_bytes(there)); /* of the same record */
    CHECK_OK(receive(&wire, 1, heard, 4, &got));
    assert_true(there->ops->holds_bytes(there)); /* the next one, which the socket has given out */
    assert_int_equal(recv(wire.outer[1], heard, 1, MSG_PEEK | MSG_DONTWAIT), -1);
    CHECK_OK(receive(&wire, 1, heard, 4, &got));
    assert_false(there->ops->holds_bytes(there));
    close_wire(&wire);
}

/* Pieces of any size through sockets that take little, elsewhere each time that they are
 * offered. */
static void a_megabyte_passes_sockets_with_little_room(void **state)
{
    enum { LENGTH = 1 << 20 };
    static uint8_t bytes[WIRE_MAX];
    uint8_t *sent = malloc(LENGTH);
    uint8_t *again = malloc(LENGTH);
    uint8_t *heard = calloc(1, LENGTH);
    struct wire wire;
    size_t at = 0;
    size_t have = 0;
    size_t waits = 0;
    (void)state;
    open_good_wire(&wire);
    int least = 1;
    assert_int_equal(setsockopt(wire.outer[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)), 0);
    for (size_t i = 0; i < LENGTH; i++) {
        sent[i] = (uint8_t)(i * 7 >> 3);
        again[i] = sent[i];
    }

    for (size_t turn = 0; have < LENGTH; turn++) {
        size_t done = 0;
        size_t size = 1 + turn * 7919 % 40000;
        size = size < LENGTH - at ? size : LENGTH - at;
        const uint8_t *from = turn % 2 == 0 ? sent : again;
        enum rdmux_status status = size == 0 ? RDMUX_OK : RDMUX_AGAIN;
        for (int tries = 0; status == RDMUX_AGAIN && tries < 2; tries++) {
            status = wire.stream[0]->ops->send(wire.stream[0], from + at, size, &done);
            waits += status == RDMUX_AGAIN;
            if (status == RDMUX_AGAIN) { /* the same bytes and more, elsewhere */
                from = from == sent ? again : sent;
                size = LENGTH - at;
            }
            size_t moved = take(&wire, 0, bytes);
            for (size_t given = 0; given < moved;) {
                ssize_t part = send(wire.inner[1], bytes + given, moved - given, MSG_NOSIGNAL);
                given += part > 0 ? (size_t)part : 0;
                size_t got = 0;
                while (have < LENGTH &&
                       receive(&wire, 1, heard + have, 1 + turn % 5000 % (LENGTH - have), &got) ==
                           RDMUX_OK) {
                    have += got;
                }
            }
            tries -= status == RDMUX_AGAIN && moved > 0;
        }
        CHECK_OK(status);
        at += done;
    }

    assert_true(waits > 0); /* a sanity check */
    assert_memory_equal(heard, sent, LENGTH);
    free(sent);
    free(again);
    free(heard);
    close_wire(&wire);
}

/* ------------------------------------------------------------------------------------ tampering */

static void a_changed_byte_ends_the_stream(void **state)
{
    static uint8_t bytes[WIRE_MAX];
    static const char word[] = "pay 100 to anna";
    (void)state;
    for (size_t from = 0; from < 2; from++) {
        for (size_t at = 0; at < sizeof(word) + OVERHEAD; at++) {
            struct wire wire;
            open_good_wire(&wire);
            size_t size = record_of(&wire, from, word, sizeof(word), bytes);
            bytes[at] ^= 0x01;
            hand_over(&wire, 1 - from, bytes, size);
            if (at == 4 &&
                bytes[at] > sizeof(word) + OVERHEAD - 5) { /* longer: waits for bytes that never
                                                            * come */
                expect_nothing(&wire, 1 - from, RDMUX_AGAIN);
            } else if (at == 3) { /* the length's upper byte, the same */
                expect_nothing(&wire, 1 - from, RDMUX_AGAIN);
                hand_over(&wire, 1 - from, bytes, 256);
                expect_forgery(&wire, 1 - from);
            } else {
                expect_forgery(&wire, 1 - from);
                /* The other side gets a report. */
                size = take(&wire, 1 - from, bytes);
                hand_over(&wire, from, bytes, size);
                expect_nothing(&wire, from, RDMUX_PROTOCOL);
                assert_non_null(strstr(wire.stream[from]->text, "changed or lost on their way"));
            }
            close_wire(&wire);
        }
    }
}

static void a_record_cut_short_is_not_read(void **state)
{
    static uint8_t bytes[WIRE_MAX];
    static const char word[] = "pay 100 to anna";
    (void)state;
    for (size_t cut = 1; cut < sizeof(word) + OVERHEAD; cut++) {
        struct wire wire;
        open_good_wire(&wire);
        (void)record_of(&wire, 0, word, sizeof(word), bytes);
        hand_over(&wire, 1, bytes, cut);
        assert_int_equal(shutdown(wire.inner[1], SHUT_WR), 0);
        expect_nothing(&wire, 1, RDMUX_PEER_GONE);
        assert_non_null(strstr(wire.stream[1]->text, "closed it"));
        expect_nothing(&wire, 1, RDMUX_PEER_GONE);
        close_wire(&wire);
    }
}

static void a_missing_or_repeated_record_ends_the_stream(void **state)
{
    static uint8_t bytes[WIRE_MAX];
    struct wire wire;
    (void)state;
    open_good_wire(&wire);
    (void)record_of(&wire, 0, "one", 3, bytes);
    size_t size = record_of(&wire, 0, "two", 3, bytes);
    hand_over(&wire, 1, bytes, size); /* the first never comes */
    expect_forgery(&wire, 1);
    close_wire(&wire);

    open_good_wire(&wire);
    size = record_of(&wire, 0, "one", 3, bytes);
    hand_over(&wire, 1, bytes, size);
    hand_over(&wire, 1, bytes, size);
    expect_bytes(&wire, 1, "one", 3);
    expect_forgery(&wire, 1);
    close_wire(&wire);

    /* A record of the other direction, sent back to its sender. */
    open_good_wire(&wire);
    size = record_of(&wire, 0, "one", 3, bytes);
    hand_over(&wire, 0, bytes, size);
    expect_forgery(&wire, 0);
    close_wire(&wire);
}

static void unencrypted_bytes_end_the_stream(void **state)
{
    static const uint8_t clear[] = "\x17\x03\x03\x00\x18pay 100 to somebody else";
    struct wire wire;
    (void)state;
    open_good_wire(&wire);
    hand_over(&wire, 1, clear, sizeof(clear) - 1);
    expect_forgery(&wire, 1);
    close_wire(&wire);
}

/* The bytes that came before the end are read, though nothing can be sent any more. */
static void bytes_before_the_end_are_read(void **state)
{
    static uint8_t bytes[WIRE_MAX];
    struct wire wire;
    size_t done = 0;
    (void)state;
    open_good_wire(&wire);
    size_t size = record_of(&wire, 0, "farewell", 8, bytes);
    hand_over(&wire, 1, bytes, size);
    close(wire.inner[1]);
    wire.inner[1] = dup(wire.inner[0]);

    CHECK_STATUS(wire.stream[1]->ops->send(wire.stream[1], "hello", 5, &done), RDMUX_PEER_GONE);
    expect_bytes(&wire, 1, "farewell", 8);
    expect_nothing(&wire, 1, RDMUX_PEER_GONE);
    close_wire(&wire);
}

/* ----------------------------------------------------------------------------------- identity */

static void check_strangers(const struct ends *ends)
{
    struct wire wire;
    enum rdmux_status status[2];
    open_wire(&wire, ends);
    introduce(&wire, status);
    for (size_t i = 0; i < 2; i++) {
        CHECK_STATUS(status[i], RDMUX_AUTH);
        if (strstr(wire.stream[i]->text, "does not know this connection's secret") == NULL) {
            fail_msg("it says: %s", wire.stream[i]->text);
        }
        expect_nothing(&wire, i, RDMUX_AUTH);
    }
    close_wire(&wire);
}

static void ends_of_different_sockets_refuse_each_other(void **state)
{
    static const uint8_t other[RDMUX_SECRET_SIZE] = "0123456789abcdE";
    static const struct ends cases[] = {
        { { secret, other }, { 1, 1 }, { 0, 0 } },  /* of another connection */
        { { secret, secret }, { 1, 2 }, { 0, 0 } }, /* of another attempt */
        { { secret, secret }, { 1, 1 }, { 0, 1 } }, /* another socket of the same attempt */
        { { secret, secret }, { 1, 0 }, { 0, 1 } }, /* numbers that may be mistaken */
    };
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        check_strangers(&cases[i]);
    }
}

static void an_end_cannot_choose_an_expensive_key_exchange(void **state)
{
    static const struct ends ends = { { secret, secret }, { 1, 1 }, { 0, 0 } };
    static const struct {
        const char *groups;
        enum rdmux_status expected;
    } cases[] = {
        { "X25519", RDMUX_OK },      { "P-256", RDMUX_OK },  { "P-384", RDMUX_OK },
        { "P-521", RDMUX_AUTH },     { "X448", RDMUX_AUTH }, { "ffdhe2048", RDMUX_AUTH },
        { "ffdhe8192", RDMUX_AUTH },
    };
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct wire wire;
        enum rdmux_status status[2];
        open_wire(&wire, &ends);
        struct rdmux_tls *connector = (struct rdmux_tls *)wire.stream[0]; /* base is its first */
        char groups[16]; /* the macro drops const */
        (void)snprintf(groups, sizeof(groups), "%s", cases[i].groups);
        assert_int_equal(SSL_set1_groups_list(connector->ssl, groups), 1);

        introduce(&wire, status);

        if (status[1] != cases[i].expected) {
            fail_msg("who offers %s: %s", cases[i].groups, rdmux_status_name(status[1]));
        }
        close_wire(&wire);
    }
}

static void nothing_is_read_before_the_other_end_is_authenticated(void **state)
{
    static const uint8_t clear[] = "\x17\x03\x03\x00\x18pay 100 to somebody else";
    static const struct ends ends = { { secret, secret }, { 1, 1 }, { 0, 0 } };
    struct wire wire;
    (void)state;
    for (size_t end = 0; end < 2; end++) {
        open_wire(&wire, &ends);
        (void)step(&wire, end);
        hand_over(&wire, end, clear, sizeof(clear) - 1);
        CHECK_STATUS(step(&wire, end), RDMUX_AUTH);
        close_wire(&wire);
    }
}

/* ------------------------------------------------------------------------------ in the long run */

static void keys_are_renewed_without_a_gap_in_the_data(void **state)
{
    enum { RECORDS = 1000, AFTER = 7 };
    static uint8_t bytes[WIRE_MAX];
    struct wire wire;
    size_t passed = 0;
    (void)state;
    open_good_wire(&wire);
    for (size_t i = 0; i < 2; i++) {
        rdmux_tls_renew_after(wire.stream[i], AFTER);
    }
    for (uint32_t i = 0; i < RECORDS; i++) {
        clock_now_ns += 2 * SECOND_NS;
        for (size_t from = 0; from < 2; from++) {
            size_t size = record_of(&wire, from, &i, sizeof(i), bytes);
            passed += size;
            hand_over(&wire, 1 - from, bytes, size);
            expect_bytes(&wire, 1 - from, &i, sizeof(i));
        }
    }
    size_t renewals = (RECORDS - 1) / AFTER;
    assert_int_equal(passed, 2 * (RECORDS * (sizeof(uint32_t) + OVERHEAD) + renewals * KEY_UPDATE));
    close_wire(&wire);
}

/* A session that waits with a renewal does not read: two that did so for each other would wait for
 * ever. */
static void a_renewal_waits_for_room_while_reading_continues(void **state)
{
    static uint8_t bytes[WIRE_MAX];
    static uint8_t piece[4096];
    struct wire wire;
    size_t done = 0;
    size_t records = 0;
    (void)state;
    open_good_wire(&wire);
    int least = 1;
    assert_int_equal(setsockopt(wire.outer[0], SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)), 0);
    struct pollfd look = { .fd = wire.outer[0], .events = POLLOUT };
    while (poll(&look, 1, 0) == 1) {
        CHECK_OK(wire.stream[0]->ops->send(wire.stream[0], piece, 512, &done));
        records++;
    }
    rdmux_tls_renew_after(wire.stream[0], records);

    CHECK_STATUS(wire.stream[0]->ops->send(wire.stream[0], piece, 512, &done), RDMUX_AGAIN);
    uint8_t said[WIRE_MAX / 64];
    size_t size = record_of(&wire, 1, "ahoy", 4, bytes);
    memcpy(said, bytes, size);
    hand_over(&wire, 0, said, size);
    expect_bytes(&wire, 0, "ahoy", 4);

    size = take(&wire, 0, bytes); /* there is room again */
    hand_over(&wire, 1, bytes, size);
    CHECK_OK(wire.stream[0]->ops->send(wire.stream[0], "land", 4, &done));
    size = take(&wire, 0, bytes);
    assert_int_equal(size, KEY_UPDATE + 4 + OVERHEAD);
    hand_over(&wire, 1, bytes, size);
    for (size_t i = 0; i < records; i++) {
        size_t got = 0;
        CHECK_OK(receive(&wire, 1, piece, sizeof(piece), &got));
        assert_int_equal(got, 512);
    }
    expect_bytes(&wire, 1, "land", 4);
    close_wire(&wire);
}

static struct rdmux_tls *session_of(struct wire *wire, size_t end)
{
    return (struct rdmux_tls *)wire->stream[end]; /* base is its first */
}

/* Makes the records of a peer that renews its key count times. Returns their size. */
static size_t renewals_of(struct wire *wire, size_t end, size_t count, uint8_t out[WIRE_MAX])
{
    SSL *ssl = session_of(wire, end)->ssl;
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        assert_int_equal(SSL_do_handshake(ssl), 1);
        size += take(wire, end, out + size);
    }
    return size;
}

/* Checks that the stream ended because the peer broke the protocol; no more bytes are read. */
static void expect_broken_off(struct wire *wire, size_t end, const char *why)
{
    expect_nothing(wire, end, RDMUX_PROTOCOL);
    if (strstr(wire->stream[end]->text, why) == NULL) {
        fail_msg("it says: %s", wire->stream[end]->text);
    }
    uint32_t renewals = session_of(wire, end)->renewals;
    expect_nothing(wire, end, RDMUX_PROTOCOL);
    assert_int_equal(session_of(wire, end)->renewals, renewals);
}

/* All of them lie in one OpenSSL buffer, so its read function would not return before their end. */
static void a_peer_that_renews_its_key_without_end_is_ended(void **state)
{
    enum { MANY = 2000 };
    static uint8_t bytes[WIRE_MAX];
    (void)state;
    for (size_t from = 0; from < 2; from++) {
        struct wire wire;
        open_good_wire(&wire);
        size_t size = renewals_of(&wire, from, MANY, bytes);
        assert_int_equal(size, (size_t)MANY * KEY_UPDATE);
        hand_over(&wire, 1 - from, bytes, size);

        expect_broken_off(&wire, 1 - from, "renews its key");

        assert_int_equal(session_of(&wire, 1 - from)->renewals, RENEWALS_MAX + 1);
        close_wire(&wire);
    }
}

static void renewals_are_counted_per_minute(void **state)
{
    static uint8_t bytes[WIRE_MAX];
    struct wire wire;
    (void)state;
    open_good_wire(&wire);
    for (int minute = 0; minute < 3; minute++) {
        for (int i = 0; i < RENEWALS_MAX; i++) {
            size_t size = renewals_of(&wire, 0, 1, bytes);
            size += record_of(&wire, 0, "data", 4, bytes + size);
            hand_over(&wire, 1, bytes, size);
            expect_bytes(&wire, 1, "data", 4);
        }
        clock_now_ns += 60 * SECOND_NS;
    }
    size_t size = renewals_of(&wire, 0, RENEWALS_MAX, bytes);
    clock_now_ns += 60 * SECOND_NS - 1;
    size += renewals_of(&wire, 0, 1, bytes + size);
    hand_over(&wire, 1, bytes, size);
    expect_broken_off(&wire, 1, "renews its key");
    close_wire(&wire);
}

/* --------------------------------------------------- records that OpenSSL itself would not send */

enum { SECRET_SIZE = 32, KEY_SIZE = 16, IV_SIZE = 12, TAG_SIZE = 16 };

/* The connector's secret for its first records, reported by OpenSSL. */
static uint8_t traffic_secret[SECRET_SIZE];

static void note_secret(const SSL *ssl, const char *line)
{
    static const char label[] = "CLIENT_TRAFFIC_SECRET_0 ";
    (void)ssl;
    if (strncmp(line, label, sizeof(label) - 1) == 0) {
        const char *at = strrchr(line, ' ') + 1;
        for (size_t i = 0; i < SECRET_SIZE; i++) {
            const char byte[] = { at[2 * i], at[2 * i + 1], '\0' };
            traffic_secret[i] = (uint8_t)strtoul(byte, NULL, 16);
        }
    }
}

/* HKDF-Expand-Label (RFC 8446, 7.1) of at most a digest, without a context. */
static void expand(const char *label, uint8_t *out, size_t size)
{
    uint8_t info[64];
    uint8_t block[SECRET_SIZE];
    unsigned int made = 0;
    int length = snprintf((char *)info + 3, sizeof(info) - 5, "tls13 %s", label);
    info[0] = 0;
    info[1] = (uint8_t)size;
    info[2] = (uint8_t)length;
    info[3 + length] = 0; /* bytes of context */
    info[4 + length] = 1; /* the first block */
    assert_non_null(
        HMAC(EVP_sha256(), traffic_secret, SECRET_SIZE, info, (size_t)length + 5, block, &made));
    memcpy(out, block, size);
}

/* Encrypts the connector's record of this number, as it goes on the wire; inner is its content and
 * type. */
static size_t forge(uint64_t number, const uint8_t *inner, size_t size, uint8_t *out)
{
    uint8_t key[KEY_SIZE];
    uint8_t iv[IV_SIZE];
    int made = 0;
    const uint8_t header[] = { 0x17, 0x03, 0x03, 0, (uint8_t)(size + TAG_SIZE) };
    expand("key", key, sizeof(key));
    expand("iv", iv, sizeof(iv));
    for (size_t i = 0; i < sizeof(number); i++) {
        iv[IV_SIZE - 1 - i] ^= (uint8_t)(number >> (8 * i));
    }
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    assert_int_equal(EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), NULL, key, iv), 1);
    assert_int_equal(EVP_EncryptUpdate(cipher, NULL, &made, header, sizeof(header)), 1);
    assert_int_equal(EVP_EncryptUpdate(cipher, out + sizeof(header), &made, inner, (int)size), 1);
    assert_int_equal(EVP_EncryptFinal_ex(cipher, out + sizeof(header) + size, &made), 1);
    assert_int_equal(
        EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, TAG_SIZE, out + sizeof(header) + size), 1);
    EVP_CIPHER_CTX_free(cipher);
    memcpy(out, header, sizeof(header));
    return sizeof(header) + size + TAG_SIZE;
}

static void open_forged_wire(struct wire *wire)
{
    static const struct ends ends = { { secret, secret }, { 1, 1 }, { 0, 0 } };
    enum rdmux_status status[2];
    open_wire(wire, &ends);
    SSL_CTX_set_keylog_callback(wire->fabric->auth->data, note_secret);
    introduce(wire, status);
    CHECK_OK(status[0]);
    CHECK_OK(status[1]);
}

static void a_peer_that_sends_empty_records_is_ended(void **state)
{
    enum { MANY = 1000 };
    static const uint8_t nothing[] = { SSL3_RT_APPLICATION_DATA };
    static const uint8_t data[] = { 'd', 'a', 't', 'a', SSL3_RT_APPLICATION_DATA };
    static uint8_t bytes[WIRE_MAX];
    struct wire wire;
    size_t size = 0;
    uint64_t number = 0;
    (void)state;
    open_forged_wire(&wire);
    for (; number < BARREN_MAX - 1; number++) {
        size += forge(number, nothing, sizeof(nothing), bytes + size);
    }
    size += forge(number++, data, sizeof(data), bytes + size);
    hand_over(&wire, 1, bytes, size);
    expect_bytes(&wire, 1, "data", 4);

    size = 0;
    for (int i = 0; i < MANY; i++) {
        size += forge(number++, nothing, sizeof(nothing), bytes + size);
    }
    hand_over(&wire, 1, bytes, size);
    expect_broken_off(&wire, 1, "records that bring nothing");
    assert_int_equal(session_of(&wire, 1)->call_records, BARREN_MAX + 1);
    close_wire(&wire);
}

/* One byte of a KeyUpdate each: none is complete, and each costs as much as a complete one. */
static void a_peer_that_renews_its_key_in_pieces_is_ended(void **state)
{
    static const uint8_t update[] = { 24, 0, 0, 1, 0 };
    static uint8_t bytes[WIRE_MAX];
    struct wire wire;
    size_t size = 0;
    (void)state;
    open_forged_wire(&wire);
    for (size_t i = 0; i < sizeof(update); i++) {
        const uint8_t piece[] = { update[i], SSL3_RT_HANDSHAKE };
        size += forge(i, piece, sizeof(piece), bytes + size);
    }
    hand_over(&wire, 1, bytes, size);
    expect_nothing(&wire, 1, RDMUX_AGAIN);
    assert_int_equal(session_of(&wire, 1)->renewals, sizeof(update));
    close_wire(&wire);
}

/* OpenSSL 3.0 takes some 40 bytes while it writes or checks a header, and gives them back. */
enum { SMALL = 64 };

static size_t allocations; /* of more */

static void *count_malloc(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    allocations += size > SMALL;
    return malloc(size);
}

static void *count_realloc(void *memory, size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    allocations += size > SMALL;
    return realloc(memory, size);
}

static void count_free(void *memory, const char *file, int line)
{
    (void)file;
    (void)line;
    free(memory);
}

static void records_need_no_new_buffers(void **state)
{
    static uint8_t bytes[WIRE_MAX];
    static uint8_t piece[RDMUX_STREAM_PIECE];
    struct wire wire;
    (void)state;
    assert_true(allocations == 0);
    open_good_wire(&wire);
    assert_true(allocations > 0); /* else nothing is counted */
    for (size_t turn = 0; turn < 200; turn++) {
        if (turn == 10) {
            allocations = 0; /* the buffers are there */
        }
        for (size_t from = 0; from < 2; from++) {
            size_t sent = turn % 2 == 0 ? 8 : sizeof(piece);
            size_t size = record_of(&wire, from, piece, sent, bytes);
            hand_over(&wire, 1 - from, bytes, size);
            size_t have = 0;
            size_t got = 0;
            while (receive(&wire, 1 - from, piece + have, sizeof(piece) - have, &got) == RDMUX_OK) {
                have = (have + got) % sizeof(piece);
            }
        }
    }
    assert_int_equal(allocations, 0);
    close_wire(&wire);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_need_no_new_buffers),
        cmocka_unit_test(records_may_come_in_two_pieces_cut_anywhere),
        cmocka_unit_test(bytes_read_ahead_are_reported),
        cmocka_unit_test(a_megabyte_passes_sockets_with_little_room),
        cmocka_unit_test(a_changed_byte_ends_the_stream),
        cmocka_unit_test(a_record_cut_short_is_not_read),
        cmocka_unit_test(a_missing_or_repeated_record_ends_the_stream),
        cmocka_unit_test(unencrypted_bytes_end_the_stream),
        cmocka_unit_test(bytes_before_the_end_are_read),
        cmocka_unit_test(ends_of_different_sockets_refuse_each_other),
        cmocka_unit_test(an_end_cannot_choose_an_expensive_key_exchange),
        cmocka_unit_test(nothing_is_read_before_the_other_end_is_authenticated),
        cmocka_unit_test(keys_are_renewed_without_a_gap_in_the_data),
        cmocka_unit_test(a_renewal_waits_for_room_while_reading_continues),
        cmocka_unit_test(a_peer_that_renews_its_key_without_end_is_ended),
        cmocka_unit_test(renewals_are_counted_per_minute),
        cmocka_unit_test(a_peer_that_sends_empty_records_is_ended),
        cmocka_unit_test(a_peer_that_renews_its_key_in_pieces_is_ended),
    };
    if (CRYPTO_set_mem_functions(count_malloc, count_realloc, count_free) != 1) {
        return 1;
    }
    return cmocka_run_group_tests_name("stream", tests, make_auth_folder, remove_auth_folder);
}
