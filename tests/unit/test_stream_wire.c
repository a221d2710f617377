/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* HELLO, ADVERT and immediate data of streams. */
#include "stream/stream_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct rdmux_stream_hello good_hello(void)
{
    struct rdmux_stream_hello hello = { .slots = 16, .ring = 4096, .window = 1 << 26 };
    memset(hello.token.bytes, 0x5a, sizeof(hello.token.bytes));
    return hello;
}

static void a_hello_is_decoded_as_it_was_encoded(void **state)
{
    (void)state;
    const struct rdmux_stream_hello hello = good_hello();
    uint8_t bytes[RDMUX_STREAM_HELLO_SIZE];
    struct rdmux_stream_hello again;

    rdmux_stream_hello_encode(&hello, bytes);

    assert_int_equal(rdmux_stream_hello_decode(bytes, sizeof(bytes), &again), RDMUX_OK);
    assert_int_equal(again.slots, hello.slots);
    assert_int_equal(again.ring, hello.ring);
    assert_int_equal(again.window, hello.window);
    assert_memory_equal(again.token.bytes, hello.token.bytes, sizeof(hello.token.bytes));
    assert_memory_equal(bytes, "rdmuxstr\0\0\0\1\0\0\0\x10", 16);
}

static void a_malformed_hello_is_refused_and_leaves_the_output_alone(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t byte;
        enum rdmux_status status;
    } cases[] = {
        { 0, 'R', RDMUX_PROTOCOL },
        { 7, 'x', RDMUX_PROTOCOL },
        { RDMUX_HELLO_AT_VERSION + 3, 2, RDMUX_VERSION },
        { RDMUX_HELLO_AT_SLOTS + 3, 0, RDMUX_PROTOCOL },     /* none */
        { RDMUX_HELLO_AT_SLOTS, 1, RDMUX_PROTOCOL },         /* too many */
        { RDMUX_HELLO_AT_RING + 7, 1, RDMUX_PROTOCOL },      /* no power of two */
        { RDMUX_HELLO_AT_RING + 6, 0x08, RDMUX_PROTOCOL },   /* 2048 */
        { RDMUX_HELLO_AT_WINDOW + 4, 0x08, RDMUX_PROTOCOL }, /* 2^27 */
        { RDMUX_HELLO_AT_WINDOW + 4, 0, RDMUX_PROTOCOL },    /* 0 */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct rdmux_stream_hello hello = good_hello();
        uint8_t bytes[RDMUX_STREAM_HELLO_SIZE];
        struct rdmux_stream_hello out = { .slots = 99 };
        rdmux_stream_hello_encode(&hello, bytes);
        bytes[cases[i].at] = cases[i].byte;

        assert_int_equal(rdmux_stream_hello_decode(bytes, sizeof(bytes), &out), cases[i].status);
        assert_int_equal(out.slots, 99);
    }
}

static void a_hello_of_another_length_is_refused(void **state)
{
    (void)state;
    const struct rdmux_stream_hello hello = good_hello();
    uint8_t bytes[RDMUX_STREAM_HELLO_SIZE + 1] = { 0 };
    struct rdmux_stream_hello out;
    rdmux_stream_hello_encode(&hello, bytes);

    for (size_t size = 0; size < RDMUX_STREAM_HELLO_SIZE; size++) {
        assert_int_equal(rdmux_stream_hello_decode(bytes, size, &out), RDMUX_PROTOCOL);
    }
    assert_int_equal(rdmux_stream_hello_decode(bytes, sizeof(bytes), &out), RDMUX_PROTOCOL);
}

static void an_advert_is_decoded_as_it_was_encoded(void **state)
{
    (void)state;
    const struct rdmux_stream_advert advert = { .index = UINT64_C(1) << 40, .length = 12345 };
    uint8_t bytes[RDMUX_STREAM_ADVERT_SIZE];
    struct rdmux_stream_advert again;

    rdmux_stream_advert_encode(&advert, bytes);

    assert_int_equal(rdmux_stream_advert_decode(bytes, sizeof(bytes), &again), RDMUX_OK);
    assert_int_equal(again.index, advert.index);
    assert_int_equal(again.length, advert.length);
}

static void an_advert_of_no_bytes_is_refused(void **state)
{
    (void)state;
    const struct rdmux_stream_advert advert = { .index = 7, .length = 0 };
    uint8_t bytes[RDMUX_STREAM_ADVERT_SIZE];
    struct rdmux_stream_advert out = { .index = 99 };
    rdmux_stream_advert_encode(&advert, bytes);

    assert_int_equal(rdmux_stream_advert_decode(bytes, sizeof(bytes), &out), RDMUX_PROTOCOL);
    bytes[15] = 1;
    assert_int_equal(rdmux_stream_advert_decode(bytes, sizeof(bytes) - 1, &out), RDMUX_PROTOCOL);
    assert_int_equal(out.index, 99);
}

static void immediate_data_hold_a_kind_and_a_whole_ring(void **state)
{
    (void)state;
    const uint32_t imm = rdmux_stream_imm(RDMUX_STREAM_PAD, RDMUX_STREAM_RING_MAX);

    assert_int_equal(rdmux_stream_imm_kind(imm), RDMUX_STREAM_PAD);
    assert_int_equal(rdmux_stream_imm_freed(imm), RDMUX_STREAM_RING_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hello_is_decoded_as_it_was_encoded),
        cmocka_unit_test(a_malformed_hello_is_refused_and_leaves_the_output_alone),
        cmocka_unit_test(a_hello_of_another_length_is_refused),
        cmocka_unit_test(an_advert_is_decoded_as_it_was_encoded),
        cmocka_unit_test(an_advert_of_no_bytes_is_refused),
        cmocka_unit_test(immediate_data_hold_a_kind_and_a_whole_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
