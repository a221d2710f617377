/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Headers of messages, and messages of the side channel, parsed from untrusted bytes. */
#include "iwarp/iwarp_message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { BYTES = 1000, LONGEST = 1 << 20 /* of the writes that a peer may have done */ };

static const struct iwarp_header message = {
    .kind = IWARP_MESSAGE,
    .has_imm = true,
    .imm = 0x01020304,
    .length = BYTES,
    .granted = 0xfffffffe,
};

static const struct iwarp_header notice = {
    .kind = IWARP_NOTICE,
    .has_imm = true,
    .imm = 0xffffffff,
    .length = LONGEST,
    .granted = 7,
};

static void check_header(const struct iwarp_header *out, const struct iwarp_header *expected)
{
    assert_int_equal(out->kind, expected->kind);
    assert_int_equal(out->has_imm, expected->has_imm);
    assert_int_equal(out->imm, expected->imm);
    assert_int_equal(out->length, expected->length);
    assert_int_equal(out->granted, expected->granted);
}

static void a_header_decodes_to_the_encoded_values(void **state)
{
    (void)state;
    uint8_t bytes[IWARP_HEADER_SIZE];
    struct iwarp_header out;

    rdmux_iwarp_header_encode(&message, bytes);
    assert_int_equal(rdmux_iwarp_header_decode(bytes, IWARP_HEADER_SIZE + BYTES, LONGEST, &out),
                     RDMUX_OK);
    check_header(&out, &message);

    rdmux_iwarp_header_encode(&notice, bytes);
    assert_int_equal(rdmux_iwarp_header_decode(bytes, IWARP_HEADER_SIZE, LONGEST, &out), RDMUX_OK);
    check_header(&out, &notice);
}

static void a_header_has_the_layout_of_its_description(void **state)
{
    (void)state;
    static const uint8_t expected[IWARP_HEADER_SIZE] = {
        1, 1, 0, 0, 1, 2, 3, 4, 0, 0, 0x03, 0xe8, 0xff, 0xff, 0xff, 0xfe,
    };
    uint8_t bytes[IWARP_HEADER_SIZE];
    memset(bytes, 0x55, sizeof(bytes));
    rdmux_iwarp_header_encode(&message, bytes);
    assert_memory_equal(bytes, expected, sizeof(bytes));
}

static void a_message_cut_short_at_any_byte_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[IWARP_HEADER_SIZE];
    struct iwarp_header out = { .imm = 99 };
    rdmux_iwarp_header_encode(&message, bytes);
    for (uint64_t size = 0; size < IWARP_HEADER_SIZE + BYTES; size++) {
        assert_int_equal(rdmux_iwarp_header_decode(bytes, size, LONGEST, &out), RDMUX_PROTOCOL);
    }
    assert_int_equal(out.imm, 99);
}

static void an_impossible_header_is_refused(void **state)
{
    (void)state;
    static const struct {
        struct iwarp_header header;
        uint64_t size;
    } cases[] = {
        { { .kind = 0, .length = 0 }, IWARP_HEADER_SIZE },
        { { .kind = 3, .length = 0 }, IWARP_HEADER_SIZE },
        { { .kind = IWARP_MESSAGE, .length = BYTES }, IWARP_HEADER_SIZE + BYTES + 1 },
        { { .kind = IWARP_MESSAGE, .length = UINT32_MAX }, IWARP_HEADER_SIZE + BYTES },
        { { .kind = IWARP_NOTICE, .has_imm = true, .length = 8 }, IWARP_HEADER_SIZE + 8 },
        { { .kind = IWARP_NOTICE, .length = 8 }, IWARP_HEADER_SIZE },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[IWARP_HEADER_SIZE];
        struct iwarp_header out = { .imm = 99 };
        rdmux_iwarp_header_encode(&cases[i].header, bytes);
        assert_int_equal(rdmux_iwarp_header_decode(bytes, cases[i].size, LONGEST, &out),
                         RDMUX_PROTOCOL);
        assert_int_equal(out.imm, 99);
    }
}

/* The program takes the length of a write from it. */
static void a_notice_of_more_bytes_than_a_peer_may_have_written_is_refused(void **state)
{
    (void)state;
    struct iwarp_header told = notice;
    uint8_t bytes[IWARP_HEADER_SIZE];
    struct iwarp_header out = { .imm = 99 };

    told.length = LONGEST + 1;
    rdmux_iwarp_header_encode(&told, bytes);
    assert_int_equal(rdmux_iwarp_header_decode(bytes, IWARP_HEADER_SIZE, LONGEST, &out),
                     RDMUX_PROTOCOL);
    told.length = 1;
    rdmux_iwarp_header_encode(&told, bytes);
    assert_int_equal(rdmux_iwarp_header_decode(bytes, IWARP_HEADER_SIZE, 0, &out), RDMUX_PROTOCOL);
    assert_int_equal(out.imm, 99);

    told.length = 0;
    rdmux_iwarp_header_encode(&told, bytes);
    assert_int_equal(rdmux_iwarp_header_decode(bytes, IWARP_HEADER_SIZE, 0, &out), RDMUX_OK);
}

static const struct iwarp_side credits = {
    .kind = IWARP_SIDE_CREDITS,
    .status = RDMUX_OK,
    .is_key_revoked = true,
    .seen = 0x11121314,
    .granted = 0x21222324,
    .returned = 0x31323334,
    .asked = 0x41424344,
    .recalled = 0x51525354,
    .answered = 0x61626364,
    .known = 0x71727374,
};

static void a_side_message_decodes_to_the_encoded_values(void **state)
{
    (void)state;
    uint8_t bytes[IWARP_SIDE_SIZE];
    struct iwarp_side out;
    memset(bytes, 0x55, sizeof(bytes));
    rdmux_iwarp_side_encode(&credits, bytes);

    assert_int_equal(rdmux_iwarp_side_decode(bytes, sizeof(bytes), &out), RDMUX_OK);
    assert_int_equal(out.kind, credits.kind);
    assert_int_equal(out.status, credits.status);
    assert_int_equal(out.is_key_revoked, credits.is_key_revoked);
    assert_int_equal(out.seen, credits.seen);
    assert_int_equal(out.granted, credits.granted);
    assert_int_equal(out.returned, credits.returned);
    assert_int_equal(out.asked, credits.asked);
    assert_int_equal(out.recalled, credits.recalled);
    assert_int_equal(out.answered, credits.answered);
    assert_int_equal(out.known, credits.known);
    for (size_t i = 32; i < sizeof(bytes); i++) {
        assert_int_equal(bytes[i], 0);
    }
}

static void a_side_message_cut_short_or_impossible_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[IWARP_SIDE_SIZE + 1] = { 0 };
    struct iwarp_side out = { .seen = 99 };
    rdmux_iwarp_side_encode(&credits, bytes);
    for (size_t size = 0; size < IWARP_SIDE_SIZE; size++) {
        assert_int_equal(rdmux_iwarp_side_decode(bytes, size, &out), RDMUX_PROTOCOL);
    }
    assert_int_equal(rdmux_iwarp_side_decode(bytes, sizeof(bytes), &out), RDMUX_PROTOCOL);
    static const struct {
        size_t at;
        uint8_t byte;
    } cases[] = {
        { 0, IWARP_SIDE_HELLO - 1 },
        { 0, IWARP_SIDE_ENDED + 1 },
        { 1, RDMUX_IO + 1 },
        { 2, 2 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rdmux_iwarp_side_encode(&credits, bytes);
        bytes[cases[i].at] = cases[i].byte;
        assert_int_equal(rdmux_iwarp_side_decode(bytes, IWARP_SIDE_SIZE, &out), RDMUX_PROTOCOL);
    }
    assert_int_equal(out.seen, 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_decodes_to_the_encoded_values),
        cmocka_unit_test(a_header_has_the_layout_of_its_description),
        cmocka_unit_test(a_message_cut_short_at_any_byte_is_refused),
        cmocka_unit_test(an_impossible_header_is_refused),
        cmocka_unit_test(a_notice_of_more_bytes_than_a_peer_may_have_written_is_refused),
        cmocka_unit_test(a_side_message_decodes_to_the_encoded_values),
        cmocka_unit_test(a_side_message_cut_short_or_impossible_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
