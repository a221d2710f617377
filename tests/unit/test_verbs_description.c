/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Descriptions of regions, and messages of the side channel, parsed from untrusted bytes. */
#include "verbs/verbs_description.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct verbs_region region = {
    .flags = VERBS_REGION_HAS_KEY | VERBS_REGION_LIBRARY_ATOMICS,
    .rkey = 0x01020304,
    .addr = UINT64_C(0x1122334455667788),
    .key = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 },
};

static void a_region_decodes_to_the_encoded_values(void **state)
{
    (void)state;
    uint8_t bytes[VERBS_REGION_SIZE + 8] = { 0 };
    struct verbs_region out;
    rdmux_verbs_region_encode(&region, bytes);

    assert_int_equal(rdmux_verbs_region_decode(bytes, VERBS_REGION_SIZE, 4096, &out), RDMUX_OK);
    assert_int_equal(out.flags, region.flags);
    assert_int_equal(out.rkey, region.rkey);
    assert_true(out.addr == region.addr);
    assert_memory_equal(out.key, region.key, sizeof(region.key));
    /* A later version may send more. */
    assert_int_equal(rdmux_verbs_region_decode(bytes, sizeof(bytes), 4096, &out), RDMUX_OK);
}

static void a_region_cut_short_or_impossible_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[VERBS_REGION_SIZE];
    struct verbs_region out = { .rkey = 99 };
    rdmux_verbs_region_encode(&region, bytes);
    for (size_t cut = 0; cut < sizeof(bytes); cut++) {
        assert_int_equal(rdmux_verbs_region_decode(bytes, cut, 4096, &out), RDMUX_PROTOCOL);
    }
    bytes[0] = 2; /* version */
    assert_int_equal(rdmux_verbs_region_decode(bytes, sizeof(bytes), 4096, &out), RDMUX_PROTOCOL);
    bytes[0] = 1;
    /* The region would end beyond the address space. */
    assert_int_equal(
        rdmux_verbs_region_decode(bytes, sizeof(bytes), UINT64_MAX - region.addr + 1, &out),
        RDMUX_PROTOCOL);
    bytes[1] = VERBS_REGION_NATIVE_ATOMICS; /* by a key that is not there */
    assert_int_equal(rdmux_verbs_region_decode(bytes, sizeof(bytes), 4096, &out), RDMUX_PROTOCOL);
    assert_int_equal(out.rkey, 99);
    bytes[1] = 0xf0; /* bits of a later version */
    assert_int_equal(rdmux_verbs_region_decode(bytes, sizeof(bytes), 4096, &out), RDMUX_OK);
    assert_int_equal(out.flags, 0);
}

static const struct verbs_side_message request = {
    .kind = VERBS_SIDE_REQUEST,
    .op = RDMUX_OP_COMPARE_SWAP,
    .number = 0xfffffffe,
    .offset = UINT64_C(0x8000000000000008),
    .operand = UINT64_C(0x0102030405060708),
    .expected = UINT64_MAX,
    .key = { 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1 },
};

static void a_side_message_decodes_to_the_encoded_values(void **state)
{
    (void)state;
    uint8_t bytes[VERBS_SIDE_SIZE];
    struct verbs_side_message out;
    rdmux_verbs_side_encode(&request, bytes);

    assert_int_equal(rdmux_verbs_side_decode(bytes, sizeof(bytes), &out), RDMUX_OK);
    assert_int_equal(out.kind, request.kind);
    assert_int_equal(out.op, request.op);
    assert_int_equal(out.number, request.number);
    assert_true(out.offset == request.offset);
    assert_true(out.operand == request.operand);
    assert_true(out.expected == request.expected);
    assert_memory_equal(out.key, request.key, sizeof(request.key));
}

static void a_side_message_of_another_size_or_kind_is_refused(void **state)
{
    (void)state;
    static const struct {
        uint8_t kind;
        uint8_t op;
        enum rdmux_status status;
    } cases[] = {
        { VERBS_SIDE_REQUEST, RDMUX_OP_FETCH_ADD, RDMUX_OK },
        { VERBS_SIDE_REQUEST, RDMUX_OP_WRITE, RDMUX_PROTOCOL },
        { VERBS_SIDE_REQUEST, 0, RDMUX_PROTOCOL },
        { VERBS_SIDE_ANSWER, RDMUX_OK, RDMUX_OK },
        { VERBS_SIDE_ANSWER, RDMUX_IO, RDMUX_OK },
        { VERBS_SIDE_ANSWER, RDMUX_IO + 1, RDMUX_PROTOCOL },
        { 0, 0, RDMUX_PROTOCOL },
        { 3, RDMUX_OP_FETCH_ADD, RDMUX_PROTOCOL },
    };
    uint8_t bytes[VERBS_SIDE_SIZE + 1] = { 0 };
    struct verbs_side_message out = { .number = 99 };
    rdmux_verbs_side_encode(&request, bytes);
    for (size_t size = 0; size <= sizeof(bytes); size++) {
        if (size != VERBS_SIDE_SIZE) {
            assert_int_equal(rdmux_verbs_side_decode(bytes, size, &out), RDMUX_PROTOCOL);
        }
    }
    assert_int_equal(out.number, 99);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bytes[0] = cases[i].kind;
        bytes[1] = cases[i].op;
        assert_int_equal(rdmux_verbs_side_decode(bytes, VERBS_SIDE_SIZE, &out), cases[i].status);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_region_decodes_to_the_encoded_values),
        cmocka_unit_test(a_region_cut_short_or_impossible_is_refused),
        cmocka_unit_test(a_side_message_decodes_to_the_encoded_values),
        cmocka_unit_test(a_side_message_of_another_size_or_kind_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
