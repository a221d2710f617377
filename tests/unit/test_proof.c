/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The pattern of a proof: it never changes between versions, it differs for each nonce, and the
 * check finds every wrong byte. */
#include "negotiation/handshake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t nonce[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

static void the_pattern_is_the_one_of_the_protocol(void **state)
{
    (void)state;
    /* Computed by a program of its own from the words of docs/WIRE.md. */
    static const uint8_t of_nonce[] = { 0x9a, 0x9a, 0x32, 0x1d, 0x79, 0xc5, 0x0d, 0xc0, 0xd5, 0x1c,
                                        0x30, 0x48, 0x95, 0x4a, 0x1c, 0x72, 0x50, 0xd6, 0x16 };
    static const uint8_t of_zeros[] = { 0xcf, 0x2f, 0x80, 0xfe, 0x9c, 0xfa, 0x4b, 0x1d,
                                        0x1b, 0xfd, 0xf1, 0x1e, 0xf0, 0xdc, 0x97, 0xa6 };
    static const uint8_t zeros[16] = { 0 };
    uint8_t pattern[sizeof(of_nonce)];

    rdmux_proof_fill(nonce, pattern, sizeof(pattern));
    assert_memory_equal(pattern, of_nonce, sizeof(of_nonce));
    rdmux_proof_fill(zeros, pattern, sizeof(of_zeros));
    assert_memory_equal(pattern, of_zeros, sizeof(of_zeros));
}

static void a_pattern_matches_its_nonce_in_any_size(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 7, 8, 9, 4096, RDMUX_PROOF_SIZE, RDMUX_PROOF_SIZE + 3 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint8_t *pattern = calloc(1, sizes[i] + 1);

        rdmux_proof_fill(nonce, pattern, sizes[i]);

        assert_true(rdmux_proof_matches(nonce, pattern, sizes[i]));
        assert_int_equal(pattern[sizes[i]], 0);
        free(pattern);
    }
}

static void a_single_wrong_bit_is_detected_at_any_place(void **state)
{
    (void)state;
    uint8_t pattern[1021];
    rdmux_proof_fill(nonce, pattern, sizeof(pattern));
    for (size_t bit = 0; bit < sizeof(pattern) * 8; bit++) {
        pattern[bit / 8] ^= (uint8_t)(1U << bit % 8);

        assert_false(rdmux_proof_matches(nonce, pattern, sizeof(pattern)));

        pattern[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    assert_true(rdmux_proof_matches(nonce, pattern, sizeof(pattern)));
}

static void nonces_that_differ_in_one_bit_have_unlike_patterns(void **state)
{
    (void)state;
    uint8_t pattern[RDMUX_PROOF_SIZE];
    uint8_t other[RDMUX_PROOF_SIZE];
    rdmux_proof_fill(nonce, pattern, sizeof(pattern));
    for (size_t bit = 0; bit < 128; bit++) {
        uint8_t changed[16];
        memcpy(changed, nonce, sizeof(changed));
        changed[bit / 8] ^= (uint8_t)(1U << bit % 8);

        rdmux_proof_fill(changed, other, sizeof(other));

        size_t same = 0;
        for (size_t i = 0; i < sizeof(pattern); i++) {
            same += pattern[i] == other[i];
        }
        assert_true(same < sizeof(pattern) / 64); /* 1 in 256 by chance */
    }
}

static void unwritten_buffers_match_no_nonce(void **state)
{
    (void)state;
    uint8_t buffer[RDMUX_PROOF_SIZE];
    for (unsigned value = 0; value < 256; value++) {
        memset(buffer, (int)value, sizeof(buffer));
        assert_false(rdmux_proof_matches(nonce, buffer, sizeof(buffer)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pattern_is_the_one_of_the_protocol),
        cmocka_unit_test(a_pattern_matches_its_nonce_in_any_size),
        cmocka_unit_test(a_single_wrong_bit_is_detected_at_any_place),
        cmocka_unit_test(nonces_that_differ_in_one_bit_have_unlike_patterns),
        cmocka_unit_test(unwritten_buffers_match_no_nonce),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
