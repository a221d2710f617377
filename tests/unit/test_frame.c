/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* HELLO, JOIN and the header of a frame. */
#include "negotiation/handshake.h"
#include "negotiation/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { AT_VERSION_MIN = 8, AT_VERSION_MAX = 10, AT_BYTE_ORDER = 12 };

static struct rdmux_hello some_hello(void)
{
    struct rdmux_hello hello = {
        .version_min = 1,
        .version_max = 3,
        .flags = RDMUX_HELLO_HASH | RDMUX_HELLO_ADOPTED,
        .epoch = 1,
        .authentication = 0x01020304,
    };
    memset(hello.process, 0xa1, sizeof(hello.process));
    memset(hello.nonce, 0xb2, sizeof(hello.nonce));
    memset(hello.resume, 0xc3, sizeof(hello.resume));
    return hello;
}

/* A heap block of exactly this size, so that a read beyond it is found. */
static uint8_t *copy_of(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    return copy;
}

static void a_hello_decodes_to_the_encoded_values(void **state)
{
    (void)state;
    const struct rdmux_hello hello = some_hello();
    uint8_t bytes[RDMUX_HELLO_SIZE];
    struct rdmux_hello back;
    memset(&back, 0, sizeof(back));

    rdmux_hello_encode(&hello, bytes);
    enum rdmux_status status = rdmux_hello_decode(bytes, sizeof(bytes), &back);

    assert_int_equal(status, RDMUX_OK);
    assert_memory_equal(&back, &hello, sizeof(hello));
}

static void a_hello_has_the_bytes_of_the_specification(void **state)
{
    (void)state;
    const struct rdmux_hello hello = some_hello();
    uint8_t bytes[RDMUX_HELLO_SIZE];

    rdmux_hello_encode(&hello, bytes);

    assert_memory_equal(bytes, "RDMUX\x01\r\n\x00\x01\x00\x03", 12);
    assert_memory_equal(bytes + 16,
                        "\x00\x00\x00\x0c\x00\x00\x00\x01\x01\x02\x03\x04\x00\x00\x00\x00", 16);
    assert_memory_equal(bytes + 32, hello.process, 16);
    assert_memory_equal(bytes + 48, hello.nonce, 16);
    assert_memory_equal(bytes + 64, hello.resume, 16);
    for (size_t i = 80; i < sizeof(bytes); i++) {
        assert_int_equal(bytes[i], 0);
    }
}

static void a_hello_cut_anywhere_is_refused_and_leaves_the_output_alone(void **state)
{
    (void)state;
    const struct rdmux_hello hello = some_hello();
    uint8_t bytes[RDMUX_HELLO_SIZE];
    rdmux_hello_encode(&hello, bytes);
    for (size_t size = 0; size < sizeof(bytes); size++) {
        uint8_t *cut = copy_of(bytes, size);
        struct rdmux_hello back = { .version_max = 99 };

        enum rdmux_status status = rdmux_hello_decode(cut, size, &back);

        assert_int_equal(status, RDMUX_PROTOCOL);
        assert_int_equal(back.version_max, 99);
        free(cut);
    }
}

static void a_flipped_byte_of_a_hello_is_refused_or_changes_one_field(void **state)
{
    (void)state;
    const struct rdmux_hello hello = some_hello();
    for (size_t at = 0; at < RDMUX_HELLO_SIZE; at++) {
        uint8_t bytes[RDMUX_HELLO_SIZE];
        struct rdmux_hello back;
        rdmux_hello_encode(&hello, bytes);
        bytes[at] ^= 0xff;

        enum rdmux_status status = rdmux_hello_decode(bytes, sizeof(bytes), &back);

        bool magic_or_order = at < AT_VERSION_MIN ||
                              (at >= AT_BYTE_ORDER && at < AT_BYTE_ORDER + 4);
        /* a version_min of 0x01fe or 0xff01 is beyond version_max */
        bool range = at == AT_VERSION_MIN || at == AT_VERSION_MIN + 1;
        assert_int_equal(status, magic_or_order || range ? RDMUX_PROTOCOL : RDMUX_OK);
        if (status == RDMUX_OK) {
            assert_true(back.version_min == 1 && back.version_max >= 1);
        }
    }
}

static void hosts_of_different_byte_order_refuse_each_other(void **state)
{
    (void)state;
    const struct rdmux_hello hello = some_hello();
    uint8_t bytes[RDMUX_HELLO_SIZE];
    struct rdmux_hello back;
    rdmux_hello_encode(&hello, bytes);
    uint8_t marker[4];
    memcpy(marker, bytes + AT_BYTE_ORDER, sizeof(marker));
    for (size_t i = 0; i < sizeof(marker); i++) {
        bytes[AT_BYTE_ORDER + i] = marker[3 - i];
    }

    enum rdmux_status status = rdmux_hello_decode(bytes, sizeof(bytes), &back);

    assert_int_equal(status, RDMUX_VERSION);
}

static void an_impossible_version_range_is_refused(void **state)
{
    (void)state;
    static const uint8_t ranges[][2] = { { 0, 1 }, { 0, 0 }, { 2, 1 } };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        struct rdmux_hello hello = some_hello();
        uint8_t bytes[RDMUX_HELLO_SIZE];
        hello.version_min = ranges[i][0];
        hello.version_max = ranges[i][1];
        rdmux_hello_encode(&hello, bytes);

        enum rdmux_status status = rdmux_hello_decode(bytes, sizeof(bytes), &hello);

        assert_int_equal(status, RDMUX_PROTOCOL);
    }
}

static void the_zeros_of_a_hello_and_a_join_are_ignored(void **state)
{
    (void)state;
    const struct rdmux_hello hello = some_hello();
    const struct rdmux_join join = { .epoch = 1 };
    uint8_t hello_bytes[RDMUX_HELLO_SIZE];
    uint8_t join_bytes[RDMUX_JOIN_SIZE];
    struct rdmux_hello hello_back;
    struct rdmux_join join_back;
    rdmux_hello_encode(&hello, hello_bytes);
    rdmux_join_encode(&join, join_bytes);
    memset(hello_bytes + 28, 0xff, 4);
    memset(hello_bytes + 80, 0xff, 16);
    memset(join_bytes + 10, 0xff, 2);
    memset(join_bytes + 40, 0xff, 24);

    assert_int_equal(rdmux_hello_decode(hello_bytes, sizeof(hello_bytes), &hello_back), RDMUX_OK);
    assert_int_equal(rdmux_join_decode(join_bytes, &join_back), RDMUX_OK);
}

static void a_join_decodes_to_the_encoded_values(void **state)
{
    (void)state;
    struct rdmux_join join = { .epoch = 1, .attempt = 0x01020304, .index = 0xfffefdfc };
    memset(join.secret, 0x5e, sizeof(join.secret));
    uint8_t bytes[RDMUX_JOIN_SIZE];
    struct rdmux_join back;
    memset(&back, 0, sizeof(back));

    rdmux_join_encode(&join, bytes);
    enum rdmux_status status = rdmux_join_decode(bytes, &back);

    assert_int_equal(status, RDMUX_OK);
    assert_memory_equal(&back, &join, sizeof(join));
    assert_memory_equal(bytes, "RDMUJ\x01\r\n\x00\x01\x00\x00", 12);
    assert_memory_equal(bytes + 12, join.secret, 16);
    assert_memory_equal(bytes + 28, "\x00\x00\x00\x01\x01\x02\x03\x04\xff\xfe\xfd\xfc", 12);
}

static void a_flipped_byte_of_a_joins_head_is_refused(void **state)
{
    (void)state;
    const struct rdmux_join join = { .epoch = 1 };
    for (size_t at = 0; at < 10; at++) {
        uint8_t bytes[RDMUX_JOIN_SIZE];
        struct rdmux_join back = { .attempt = 99 };
        rdmux_join_encode(&join, bytes);
        bytes[at] ^= 0x01;

        enum rdmux_status status = rdmux_join_decode(bytes, &back);

        assert_int_equal(status, at < 8 ? RDMUX_PROTOCOL : RDMUX_VERSION);
        assert_int_equal(back.attempt, 99);
    }
}

static void the_first_bytes_distinguish_a_hello_a_join_and_a_stranger(void **state)
{
    (void)state;
    const struct rdmux_hello hello = some_hello();
    const struct rdmux_join join = { .epoch = 1 };
    uint8_t bytes[2][RDMUX_HELLO_SIZE];
    rdmux_hello_encode(&hello, bytes[0]);
    rdmux_join_encode(&join, bytes[1]);
    for (size_t kind = 0; kind < 2; kind++) {
        for (size_t size = 0; size <= RDMUX_JOIN_SIZE; size++) {
            uint8_t *cut = copy_of(bytes[kind], size);
            bool bad = true;

            size_t total = rdmux_frame_total(cut, size, true, &bad);

            assert_false(bad);
            assert_int_equal(total, size < 8 ? 0 : kind == 0 ? RDMUX_HELLO_SIZE : RDMUX_JOIN_SIZE);
            free(cut);
        }
        assert_int_equal(rdmux_frame_is_join(bytes[kind]), kind == 1);
    }
}

static void a_stranger_is_noticed_with_the_first_wrong_byte(void **state)
{
    (void)state;
    for (size_t at = 0; at < 8; at++) {
        uint8_t bytes[8] = { 'R', 'D', 'M', 'U', 'X', 0x01, 0x0d, 0x0a };
        bytes[at] ^= 0x20;
        bool before = true;
        bool with = false;

        (void)rdmux_frame_total(bytes, at, true, &before);
        size_t total = rdmux_frame_total(bytes, at + 1, true, &with);

        assert_false(before);
        assert_true(with);
        assert_int_equal(total, 0);
    }
}

static void the_length_of_a_frame_is_known_from_its_first_eight_bytes(void **state)
{
    (void)state;
    static const size_t lengths[] = { 0, 1, 255, 256, 65535, RDMUX_FRAME_PAYLOAD_MAX };
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint8_t header[RDMUX_FRAME_HEADER_SIZE];
        rdmux_frame_header_encode(RDMUX_FRAME_OFFER, RDMUX_FRAME_OPTIONAL, lengths[i], header);
        for (size_t size = 0; size <= sizeof(header); size++) {
            bool bad = true;

            size_t total = rdmux_frame_total(header, size, false, &bad);

            assert_false(bad);
            assert_int_equal(total, size < 8 ? 0 : 8 + lengths[i]);
        }
        assert_true(rdmux_frame_is_optional(header));
    }
}

static void a_frame_longer_than_allowed_is_refused(void **state)
{
    (void)state;
    static const uint8_t headers[][8] = {
        { 1, 0, 0, 0, 0x00, 0x01, 0x00, 0x01 },
        { 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff },
        { 'R', 'D', 'M', 'U', 'X', 0x01, 0x0d, 0x0a }, /* a second HELLO */
    };
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        bool bad = false;

        size_t total = rdmux_frame_total(headers[i], 8, false, &bad);

        assert_true(bad);
        assert_int_equal(total, 0);
    }
}

static void every_frame_has_a_name(void **state)
{
    (void)state;
    const struct rdmux_hello hello = { .flags = 0 };
    const struct rdmux_join join = { .index = 1 };
    uint8_t bytes[RDMUX_HELLO_SIZE + RDMUX_JOIN_SIZE];
    size_t named = 0;

    rdmux_hello_encode(&hello, bytes);
    assert_string_equal(rdmux_frame_name(bytes, RDMUX_HELLO_SIZE), "HELLO");
    rdmux_join_encode(&join, bytes);
    assert_string_equal(rdmux_frame_name(bytes, RDMUX_JOIN_SIZE), "JOIN");
    assert_string_equal(rdmux_frame_name(bytes, 0), "?");
    for (unsigned type = 0; type < 256; type++) {
        const uint8_t frame[RDMUX_FRAME_HEADER_SIZE] = { (uint8_t)type };
        named += strcmp(rdmux_frame_name(frame, sizeof(frame)), "?") != 0;
    }
    assert_int_equal(named, 27); /* those of docs/WIRE.md that are in use */
    const uint8_t end[] = { RDMUX_FRAME_END };
    assert_string_equal(rdmux_frame_name(end, sizeof(end)), "END");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_frame_has_a_name),
        cmocka_unit_test(a_hello_decodes_to_the_encoded_values),
        cmocka_unit_test(a_hello_has_the_bytes_of_the_specification),
        cmocka_unit_test(a_hello_cut_anywhere_is_refused_and_leaves_the_output_alone),
        cmocka_unit_test(a_flipped_byte_of_a_hello_is_refused_or_changes_one_field),
        cmocka_unit_test(hosts_of_different_byte_order_refuse_each_other),
        cmocka_unit_test(an_impossible_version_range_is_refused),
        cmocka_unit_test(the_zeros_of_a_hello_and_a_join_are_ignored),
        cmocka_unit_test(a_join_decodes_to_the_encoded_values),
        cmocka_unit_test(a_flipped_byte_of_a_joins_head_is_refused),
        cmocka_unit_test(the_first_bytes_distinguish_a_hello_a_join_and_a_stranger),
        cmocka_unit_test(a_stranger_is_noticed_with_the_first_wrong_byte),
        cmocka_unit_test(the_length_of_a_frame_is_known_from_its_first_eight_bytes),
        cmocka_unit_test(a_frame_longer_than_allowed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
