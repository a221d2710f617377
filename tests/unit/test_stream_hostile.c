/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A stream whose peer is an endpoint that speaks the protocol of streams by hand, and breaks it. */
#include "api_pair.h"

#include <rdmux/stream.h>

#include "api/progress/cq_owner.h"
#include "stream/stream_receive.h"

enum { RING = 4096, RECEIVES = 32, SLOT = 128, LENT = 64 << 10 };

/* Side a is the stream, side b the peer. */
struct scene {
    struct pair pair;
    struct rdmux_stream *stream;
    struct rdmux_mr *ring;       /* of b */
    struct rdmux_remote *remote; /* a's ring at b */
    uint8_t slots[RECEIVES][SLOT];
    uint8_t lent[LENT];
};

static void send_imm(struct scene *scene, enum rdmux_stream_kind kind, uint64_t freed,
                     const void *bytes, size_t length)
{
    enum rdmux_status status;
    do {
        status = rdmux_send_imm(scene->pair.b, bytes, length, NULL, rdmux_stream_imm(kind, freed),
                                NULL, RDMUX_UNSIGNALED | (length <= 64 ? RDMUX_INLINE : 0U));
    } while (status == RDMUX_AGAIN);
    CHECK_OK(status);
}

static void write_imm(struct scene *scene, enum rdmux_stream_kind kind, size_t length)
{
    static uint8_t bytes[2 * RING];
    CHECK_OK(rdmux_write_imm(scene->pair.b, bytes, length, NULL, scene->remote, 0,
                             rdmux_stream_imm(kind, 0), NULL, 0));
}

/* b waits for the next message of a. */
static struct rdmux_wc next_message(struct scene *scene)
{
    struct rdmux_wc wc;
    do {
        wc = next_entry(scene->pair.cq_b);
    } while (wc.opcode == RDMUX_WC_SEND || wc.opcode == RDMUX_WC_WRITE);
    return wc;
}

static void open_scene(struct scene *scene, const char *path)
{
    struct rdmux_stream_attr attr = RDMUX_STREAM_ATTR_INIT;
    open_pair(&scene->pair, path, NULL);
    attr.ring = RING;
    attr.direct = RING;
    CHECK_OK(rdmux_mr_alloc(scene->pair.fabric_b, RING, RDMUX_ACCESS_REMOTE_WRITE, &scene->ring));
    for (size_t i = 0; i < RECEIVES; i++) {
        CHECK_OK(rdmux_recv(scene->pair.b, scene->slots[i], SLOT, NULL, scene->slots[i]));
    }
    CHECK_OK(rdmux_stream_open(scene->pair.a, &attr, &scene->stream));
    scene->pair.a = NULL; /* the stream closes it */
}

/* b takes a's HELLO and imports its ring. */
static void take_hello(struct scene *scene)
{
    struct rdmux_stream_hello hello;
    const struct rdmux_wc wc = next_message(scene);
    assert_int_equal(wc.opcode, RDMUX_WC_RECV);
    assert_int_equal(rdmux_stream_hello_decode(wc.context, (size_t)wc.length, &hello), RDMUX_OK);
    CHECK_OK(rdmux_remote_import(scene->pair.b, &hello.token, PATIENT_MS, &scene->remote));
}

static struct rdmux_stream_hello own_hello(struct scene *scene)
{
    struct rdmux_stream_hello hello = { .slots = 16, .ring = RING, .window = RING };
    CHECK_OK(rdmux_mr_export(scene->ring, &hello.token));
    return hello;
}

static void send_hello(struct scene *scene, const struct rdmux_stream_hello *hello)
{
    static uint8_t bytes[RDMUX_STREAM_HELLO_SIZE];
    rdmux_stream_hello_encode(hello, bytes);
    CHECK_OK(rdmux_send(scene->pair.b, bytes, sizeof(bytes), NULL, NULL, 0));
}

static void greet(struct scene *scene)
{
    const struct rdmux_stream_hello hello = own_hello(scene);
    take_hello(scene);
    send_hello(scene, &hello);
    CHECK_OK(rdmux_stream_wait(scene->stream, RDMUX_STREAM_WRITE, PATIENT_MS));
}

/* The stream ends with this status; all its calls return it. */
static void expect_end(struct scene *scene, enum rdmux_status status)
{
    size_t moved = 0;
    struct rdmux_stream_info info = RDMUX_STREAM_INFO_INIT;
    CHECK_OK(rdmux_stream_wait(scene->stream, RDMUX_STREAM_END, PATIENT_MS));
    CHECK_OK(rdmux_stream_info(scene->stream, &info));
    assert_int_equal(info.state, RDMUX_STREAM_ENDED);
    assert_int_equal(info.status, status);
    assert_true(info.text[0] != '\0');
    CHECK_STATUS(rdmux_stream_write(scene->stream, "x", 1, 0, &moved), status);
}

static void close_scene(struct scene *scene)
{
    (void)rdmux_stream_close(scene->stream);
    CHECK_OK(rdmux_ep_close(scene->pair.b));
    scene->pair.b = NULL;
    rdmux_mr_deregister(scene->ring);
    close_pair(&scene->pair);
    free(scene);
}

static struct scene *new_scene(const char *path)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    assert_non_null(scene);
    open_scene(scene, path);
    return scene;
}

/* ------------------------------------------------------------------------------------- greetings */

static void break_ring(struct rdmux_stream_hello *hello)
{
    hello->ring = RING + 1;
}

static void break_length(struct rdmux_stream_hello *hello)
{
    hello->ring = (uint64_t)2 * RING; /* the region has one */
}

static void break_window(struct rdmux_stream_hello *hello)
{
    hello->window = 0;
}

static void break_slots(struct rdmux_stream_hello *hello)
{
    hello->slots = 0;
}

static void break_token(struct rdmux_stream_hello *hello)
{
    memset(hello->token.bytes, 0, sizeof(hello->token.bytes));
}

static void forge_token(struct rdmux_stream_hello *hello)
{
    hello->token.bytes[RDMUX_TOKEN_SIZE - 1] ^= 1;
}

static void a_bad_greeting_ends_the_stream(void **state)
{
    static const struct {
        void (*breaks)(struct rdmux_stream_hello *hello);
        enum rdmux_status status;
    } cases[] = {
        { break_ring, RDMUX_PROTOCOL },   { break_length, RDMUX_PROTOCOL },
        { break_window, RDMUX_PROTOCOL }, { break_slots, RDMUX_PROTOCOL },
        { break_token, RDMUX_PROTOCOL },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct scene *scene = new_scene(*state);
        struct rdmux_stream_hello hello = own_hello(scene);
        cases[i].breaks(&hello);

        send_hello(scene, &hello);

        expect_end(scene, cases[i].status);
        close_scene(scene);
    }
}

static void a_forged_token_ends_the_stream(void **state)
{
    struct scene *scene = new_scene(*state);
    struct rdmux_stream_hello hello = own_hello(scene);
    struct rdmux_stream_info info = RDMUX_STREAM_INFO_INIT;
    forge_token(&hello);

    send_hello(scene, &hello);

    CHECK_OK(rdmux_stream_wait(scene->stream, RDMUX_STREAM_END, PATIENT_MS));
    CHECK_OK(rdmux_stream_info(scene->stream, &info));
    assert_true(info.status == RDMUX_DENIED || info.status == RDMUX_PROTOCOL);
    close_scene(scene);
}

static void a_short_first_message_ends_the_stream(void **state)
{
    struct scene *scene = new_scene(*state);

    CHECK_OK(rdmux_send(scene->pair.b, "hello", 5, NULL, NULL, RDMUX_INLINE));

    expect_end(scene, RDMUX_PROTOCOL);
    close_scene(scene);
}

/* A slot of the stream has a message of the peer. */
static void receive(struct rdmux_stream *stream, const struct rdmux_wc *wc)
{
    struct rdmux_wc entry = *wc;
    entry.context = stream->slots;
    rdmux_stream_received(stream, &entry);
}

/* The control channel has told of the peer's end before the adapter told of its last messages. */
static void a_greeting_behind_the_end_of_the_endpoint_counts(void **state)
{
    struct scene *scene = new_scene(*state);
    struct rdmux_stream *stream = scene->stream;
    struct rdmux_stream_hello hello = own_hello(scene);
    const struct rdmux_wc greeting = { .opcode = RDMUX_WC_RECV, .length = RDMUX_STREAM_HELLO_SIZE };
    const struct rdmux_wc fin = {
        .opcode = RDMUX_WC_RECV,
        .flags = RDMUX_WC_HAS_IMM,
        .imm = rdmux_stream_imm(RDMUX_STREAM_FIN, 0),
    };
    uint8_t byte = 0;
    size_t got = 1;
    assert_true(rdmux_cq_enter(stream->ep->cq));
    const uint32_t phase = stream->ep->phase;
    stream->ep->phase = RDMUX_PHASE_LINGERING;

    rdmux_stream_hello_encode(&hello, stream->slots);
    receive(stream, &greeting);
    receive(stream, &fin);

    stream->ep->phase = phase;
    rdmux_cq_leave(stream->ep->cq);
    CHECK_OK(rdmux_stream_read(stream, &byte, 1, 0, &got));
    assert_int_equal(got, 0);
    close_scene(scene);
}

/* ------------------------------------------------------------------------------------- messages */

static void no_kind(struct scene *scene)
{
    CHECK_OK(rdmux_send(scene->pair.b, "x", 1, NULL, NULL, RDMUX_INLINE));
}

static void unknown_kind(struct scene *scene)
{
    send_imm(scene, (enum rdmux_stream_kind)15, 0, NULL, 0);
}

static void data_without_a_write(struct scene *scene)
{
    send_imm(scene, RDMUX_STREAM_DATA, 0, "x", 1);
}

static void write_without_data(struct scene *scene)
{
    write_imm(scene, RDMUX_STREAM_CREDIT, 1);
}

static void too_much_data(struct scene *scene)
{
    write_imm(scene, RDMUX_STREAM_DATA, RING);
    write_imm(scene, RDMUX_STREAM_DATA, 1);
}

static void too_much_freed(struct scene *scene)
{
    send_imm(scene, RDMUX_STREAM_CREDIT, 1, NULL, 0);
}

static void bulk_without_an_offer(struct scene *scene)
{
    send_imm(scene, RDMUX_STREAM_BULK, 0, "x", 1);
}

static void two_ends(struct scene *scene)
{
    send_imm(scene, RDMUX_STREAM_FIN, 0, NULL, 0);
    send_imm(scene, RDMUX_STREAM_FIN, 0, NULL, 0);
}

static void data_behind_the_end(struct scene *scene)
{
    send_imm(scene, RDMUX_STREAM_FIN, 0, NULL, 0);
    write_imm(scene, RDMUX_STREAM_DATA, 1);
}

static void send_advert(struct scene *scene, uint64_t index, uint64_t length)
{
    const struct rdmux_stream_advert advert = { .index = index, .length = length };
    uint8_t bytes[RDMUX_STREAM_ADVERT_SIZE];
    rdmux_stream_advert_encode(&advert, bytes);
    send_imm(scene, RDMUX_STREAM_ADVERT, 0, bytes, sizeof(bytes));
}

static void two_offers(struct scene *scene)
{
    send_advert(scene, 10, 5000);
    send_advert(scene, 11, 5000);
}

static void a_far_offer(struct scene *scene)
{
    send_advert(scene, UINT64_MAX, 5000);
}

static void an_empty_offer(struct scene *scene)
{
    send_advert(scene, 10, 0);
}

static void a_short_offer(struct scene *scene)
{
    send_imm(scene, RDMUX_STREAM_ADVERT, 0, "x", 1);
}

static void a_broken_rule_of_the_protocol_ends_the_stream(void **state)
{
    static void (*const breaks[])(struct scene * scene) = {
        no_kind,
        unknown_kind,
        data_without_a_write,
        write_without_data,
        too_much_data,
        too_much_freed,
        bulk_without_an_offer,
        two_ends,
        data_behind_the_end,
        two_offers,
        a_far_offer,
        an_empty_offer,
        a_short_offer,
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(breaks); i++) {
        struct scene *scene = new_scene(*state);
        greet(scene);

        breaks[i](scene);

        expect_end(scene, RDMUX_PROTOCOL);
        close_scene(scene);
    }
}

/* ------------------------------------------------------------------------------------- direct bytes */

/* The stream has lent a large read; the peer gets the offer. Returns its index. */
static struct rdmux_stream_advert lend_read(struct scene *scene)
{
    struct rdmux_stream_advert advert;
    size_t got = 0;
    CHECK_STATUS(rdmux_stream_read(scene->stream, scene->lent, LENT, RDMUX_STREAM_ALL, &got),
                 RDMUX_AGAIN);
    const struct rdmux_wc wc = next_message(scene);
    assert_int_equal(rdmux_stream_imm_kind(wc.imm), RDMUX_STREAM_ADVERT);
    assert_int_equal(rdmux_stream_advert_decode(wc.context, (size_t)wc.length, &advert), RDMUX_OK);
    assert_int_equal(advert.length, LENT - RING);
    return advert;
}

static void direct_bytes_before_the_ring_is_full_end_the_stream(void **state)
{
    struct scene *scene = new_scene(*state);
    greet(scene);
    const struct rdmux_stream_advert advert = lend_read(scene);

    for (uint64_t sent = 1; sent < advert.index; sent++) { /* HELLO is number 0 */
        send_imm(scene, RDMUX_STREAM_PAD, 0, NULL, 0);
    }
    send_imm(scene, RDMUX_STREAM_BULK, 0, "x", 1);

    expect_end(scene, RDMUX_PROTOCOL);
    close_scene(scene);
}

static void ring_bytes_beyond_the_direct_receive_end_the_stream(void **state)
{
    struct scene *scene = new_scene(*state);
    greet(scene);
    (void)lend_read(scene);

    write_imm(scene, RDMUX_STREAM_DATA, RING);
    write_imm(scene, RDMUX_STREAM_DATA, 1);

    expect_end(scene, RDMUX_PROTOCOL);
    close_scene(scene);
}

static void an_honest_peer_by_hand_is_read(void **state)
{
    struct scene *scene = new_scene(*state);
    static uint8_t bytes[LENT];
    size_t got = 0;
    greet(scene);
    const struct rdmux_stream_advert advert = lend_read(scene);
    memset(bytes, 'b', sizeof(bytes));

    write_imm(scene, RDMUX_STREAM_DATA, RING);
    for (uint64_t sent = 2; sent < advert.index; sent++) {
        send_imm(scene, RDMUX_STREAM_PAD, 0, NULL, 0);
    }
    CHECK_OK(rdmux_send_imm(scene->pair.b, bytes, LENT - RING, NULL,
                            rdmux_stream_imm(RDMUX_STREAM_BULK, 0), NULL, 0));

    CHECK_OK(rdmux_stream_wait(scene->stream, RDMUX_STREAM_READ, PATIENT_MS));
    CHECK_OK(rdmux_stream_read(scene->stream, scene->lent, LENT, RDMUX_STREAM_ALL, &got));
    assert_int_equal(got, LENT);
    assert_int_equal(scene->lent[RING - 1], 0);
    assert_memory_equal(scene->lent + RING, bytes, LENT - RING);
    close_scene(scene);
}

static void a_declined_direct_receive_gives_its_buffer_back(void **state)
{
    struct scene *scene = new_scene(*state);
    size_t got = 0;
    greet(scene);
    const struct rdmux_stream_advert advert = lend_read(scene);

    for (uint64_t sent = 1; sent <= advert.index; sent++) {
        send_imm(scene, RDMUX_STREAM_PAD, 0, NULL, 0);
    }
    write_imm(scene, RDMUX_STREAM_DATA, 100);
    send_imm(scene, RDMUX_STREAM_FIN, 0, NULL, 0);

    CHECK_OK(rdmux_stream_wait(scene->stream, RDMUX_STREAM_READ, PATIENT_MS));
    CHECK_OK(rdmux_stream_read(scene->stream, scene->lent, LENT, RDMUX_STREAM_ALL, &got));
    assert_int_equal(got, 100);
    close_scene(scene);
}

static void a_revoked_ring_ends_the_stream(void **state)
{
    struct scene *scene = new_scene(*state);
    size_t done = 0;
    enum rdmux_status status = RDMUX_OK;
    greet(scene);

    CHECK_OK(rdmux_mr_revoke(scene->ring));

    uint64_t until = now_ms() + PATIENT_MS;
    while (status == RDMUX_OK || status == RDMUX_AGAIN) {
        assert_true(now_ms() < until);
        status = rdmux_stream_write(scene->stream, "x", 1, 0, &done);
    }
    assert_true(status == RDMUX_PROTOCOL || status == RDMUX_DENIED);
    close_scene(scene);
}

#define CASES(path)                                                                           \
    cmocka_unit_test_prestate(a_bad_greeting_ends_the_stream, path),                          \
        cmocka_unit_test_prestate(a_forged_token_ends_the_stream, path),                      \
        cmocka_unit_test_prestate(a_short_first_message_ends_the_stream, path),               \
        cmocka_unit_test_prestate(a_greeting_behind_the_end_of_the_endpoint_counts, path),    \
        cmocka_unit_test_prestate(a_broken_rule_of_the_protocol_ends_the_stream, path),       \
        cmocka_unit_test_prestate(direct_bytes_before_the_ring_is_full_end_the_stream, path), \
        cmocka_unit_test_prestate(ring_bytes_beyond_the_direct_receive_end_the_stream, path), \
        cmocka_unit_test_prestate(an_honest_peer_by_hand_is_read, path),                      \
        cmocka_unit_test_prestate(a_declined_direct_receive_gives_its_buffer_back, path),     \
        cmocka_unit_test_prestate(a_revoked_ring_ends_the_stream, path)

int main(void)
{
    static char tcp[] = "tcp";
    static char shm[] = "shm";
    const struct CMUnitTest tests[] = { CASES(tcp), CASES(shm) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
