/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Numbers in byte buffers: each byte at its place, at any address. */
#include "api/base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { AT = 1, SIZE = 16 }; /* the numbers begin at an odd address */

static const uint8_t big[] = { 0x81, 0x92, 0xa3, 0xb4, 0xc5, 0xd6, 0xe7, 0xf8 };
static const uint8_t little[] = { 0xf8, 0xe7, 0xd6, 0xc5, 0xb4, 0xa3, 0x92, 0x81 };

static void put(uint8_t buffer[SIZE], const uint8_t *bytes, size_t size)
{
    memset(buffer, 0x55, SIZE);
    if (size > 0) {
        memcpy(buffer + AT, bytes, size);
    }
}

static void numbers_are_loaded_in_the_order_of_their_bytes(void **state)
{
    (void)state;
    uint8_t buffer[SIZE];

    put(buffer, big, sizeof(big));
    assert_int_equal(rdmux_load_be16(buffer + AT), 0x8192);
    assert_int_equal(rdmux_load_be32(buffer + AT), UINT32_C(0x8192a3b4));
    assert_true(rdmux_load_be64(buffer + AT) == UINT64_C(0x8192a3b4c5d6e7f8));

    put(buffer, little, sizeof(little));
    assert_int_equal(rdmux_load_le32(buffer + AT), UINT32_C(0xc5d6e7f8));
    assert_true(rdmux_load_le64(buffer + AT) == UINT64_C(0x8192a3b4c5d6e7f8));
}

static void numbers_are_stored_in_that_order_and_nothing_else_is(void **state)
{
    (void)state;
    uint8_t buffer[SIZE];
    uint8_t expected[SIZE];

    put(buffer, NULL, 0);
    put(expected, big, 2);
    rdmux_store_be16(buffer + AT, 0x8192);
    assert_memory_equal(buffer, expected, SIZE);

    put(buffer, NULL, 0);
    put(expected, big, 4);
    rdmux_store_be32(buffer + AT, UINT32_C(0x8192a3b4));
    assert_memory_equal(buffer, expected, SIZE);

    put(buffer, NULL, 0);
    put(expected, big, 8);
    rdmux_store_be64(buffer + AT, UINT64_C(0x8192a3b4c5d6e7f8));
    assert_memory_equal(buffer, expected, SIZE);

    put(buffer, NULL, 0);
    put(expected, little, 4);
    rdmux_store_le32(buffer + AT, UINT32_C(0xc5d6e7f8));
    assert_memory_equal(buffer, expected, SIZE);

    put(buffer, NULL, 0);
    put(expected, little, 8);
    rdmux_store_le64(buffer + AT, UINT64_C(0x8192a3b4c5d6e7f8));
    assert_memory_equal(buffer, expected, SIZE);
}

static void numbers_of_this_host_keep_their_layout(void **state)
{
    (void)state;
    const uint16_t two = 0x8192;
    const uint32_t four = UINT32_C(0x8192a3b4);
    const uint64_t eight = UINT64_C(0x8192a3b4c5d6e7f8);
    uint8_t buffer[SIZE];

    rdmux_store_host16(buffer + AT, two);
    assert_memory_equal(buffer + AT, &two, sizeof(two));
    assert_int_equal(rdmux_load_host16(buffer + AT), two);
    rdmux_store_host32(buffer + AT, four);
    assert_memory_equal(buffer + AT, &four, sizeof(four));
    assert_int_equal(rdmux_load_host32(buffer + AT), four);
    rdmux_store_host64(buffer + AT, eight);
    assert_memory_equal(buffer + AT, &eight, sizeof(eight));
    assert_true(rdmux_load_host64(buffer + AT) == eight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_loaded_in_the_order_of_their_bytes),
        cmocka_unit_test(numbers_are_stored_in_that_order_and_nothing_else_is),
        cmocka_unit_test(numbers_of_this_host_keep_their_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
