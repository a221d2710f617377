/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Encoding and decoding of RANKING and of an attempt's frames, and the transcript hash. */
#include "negotiation/handshake_frames.h"

#include "api/base/bytes.h"
#include "negotiation/transcript.h"
#include "tests/unit/support/handshake_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const enum rdmux_frame_type types[] = {
    RDMUX_FRAME_TRY,     RDMUX_FRAME_READY,  RDMUX_FRAME_UP,
    RDMUX_FRAME_WRITTEN, RDMUX_FRAME_PROVED, RDMUX_FRAME_COMMIT,
    RDMUX_FRAME_CONFIRM, RDMUX_FRAME_FAILED, RDMUX_FRAME_NO_PATH,
};

/* A frame with a value in every field that its type has. */
static struct rdmux_attempt_frame full_frame(enum rdmux_frame_type type)
{
    struct rdmux_attempt_frame frame = { .type = type };
    if (type != RDMUX_FRAME_NO_PATH) {
        frame.attempt = UINT32_C(0x01020304);
    }
    if (type == RDMUX_FRAME_TRY) {
        frame.acceptor_path = 0x0506;
        frame.connector_path = 0x0708;
    }
    if (type == RDMUX_FRAME_TRY || type == RDMUX_FRAME_READY || type == RDMUX_FRAME_UP) {
        frame.size = RDMUX_DESCRIPTION_MAX;
        memset(frame.bytes, 0x11, sizeof(frame.bytes));
    }
    if (type == RDMUX_FRAME_WRITTEN) {
        memset(frame.nonce, 0x22, sizeof(frame.nonce));
    }
    if (type == RDMUX_FRAME_COMMIT || type == RDMUX_FRAME_CONFIRM) {
        frame.hash_kind = RDMUX_HASH_SHA256;
        memset(frame.hash, 0x33, sizeof(frame.hash));
    }
    if (type == RDMUX_FRAME_FAILED) {
        frame.stage = RDMUX_STAGE_PROOF;
        frame.reason = RDMUX_REASON_PROOF_FAILED;
        frame.status = RDMUX_IO;
        memset(frame.text, 't', sizeof(frame.text) - 1);
    }
    return frame;
}

static void a_frame_decodes_to_the_encoded_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        const struct rdmux_attempt_frame frame = full_frame(types[i]);
        struct rdmux_attempt_frame decoded;
        uint8_t bytes[RDMUX_ATTEMPT_FRAME_MAX];

        size_t size = rdmux_attempt_frame_encode(&frame, bytes);
        enum rdmux_status status = rdmux_attempt_frame_decode(bytes, size, &decoded);

        assert_int_equal(status, RDMUX_OK);
        assert_memory_equal(&decoded, &frame, sizeof(frame));
    }
}

/* In a block of exactly its size, so that a sanitizer sees each byte read beyond it. */
static enum rdmux_status decode_exact(const uint8_t *bytes, size_t size,
                                      struct rdmux_attempt_frame *out)
{
    uint8_t *exact = malloc(size + 1);
    memcpy(exact + 1, bytes, size);
    enum rdmux_status status = rdmux_attempt_frame_decode(exact + 1, size, out);
    free(exact);
    return status;
}

static void a_frame_of_any_other_length_is_refused_and_leaves_the_output_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        const struct rdmux_attempt_frame frame = full_frame(types[i]);
        uint8_t bytes[RDMUX_ATTEMPT_FRAME_MAX + 8] = { 0 };
        size_t whole = rdmux_attempt_frame_encode(&frame, bytes);
        for (size_t size = 0; size <= whole + 8; size++) {
            struct rdmux_attempt_frame decoded = { .attempt = 99 };
            if (size == whole) {
                continue;
            }
            /* Both with a correct header, and with the old one. */
            assert_int_equal(decode_exact(bytes, size, &decoded), RDMUX_PROTOCOL);
            if (size >= RDMUX_FRAME_HEADER_SIZE) {
                uint8_t truthful[sizeof(bytes)];
                memcpy(truthful, bytes, sizeof(bytes));
                rdmux_store_be32(truthful + 4, (uint32_t)(size - RDMUX_FRAME_HEADER_SIZE));
                assert_int_equal(decode_exact(truthful, size, &decoded), RDMUX_PROTOCOL);
            }
            assert_int_equal(decoded.attempt, 99);
        }
    }
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        size_t at;
        enum rdmux_frame_type type;
        uint16_t value;
    } cases[] = {
        { "more data than there is", 8 + 8, RDMUX_FRAME_TRY, RDMUX_DESCRIPTION_MAX + 1 },
        { "less data than there is", 8 + 8, RDMUX_FRAME_TRY, RDMUX_DESCRIPTION_MAX - 1 },
        { "all the data in the world", 8 + 4, RDMUX_FRAME_READY, 0xffff },
        { "no data where there is some", 8 + 4, RDMUX_FRAME_UP, 0 },
        { "a stage after the last", 8 + 4, RDMUX_FRAME_FAILED, RDMUX_STAGE_COMMIT + 1 },
        { "a text too long", 8 + 10, RDMUX_FRAME_FAILED, RDMUX_TEXT_MAX },
        { "a type that is no attempt's", 0, RDMUX_FRAME_PROVED, RDMUX_FRAME_OFFER << 8 },
        { "a message's type", 0, RDMUX_FRAME_PROVED, RDMUX_FRAME_END << 8 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct rdmux_attempt_frame frame = full_frame(cases[i].type);
        struct rdmux_attempt_frame decoded;
        uint8_t bytes[RDMUX_ATTEMPT_FRAME_MAX];
        size_t size = rdmux_attempt_frame_encode(&frame, bytes);
        rdmux_store_be16(bytes + cases[i].at, cases[i].value);

        if (decode_exact(bytes, size, &decoded) != RDMUX_PROTOCOL) {
            fail_msg("%s was accepted", cases[i].says);
        }
    }
}

static void a_decoded_text_has_no_control_characters(void **state)
{
    (void)state;
    struct rdmux_attempt_frame frame = { .type = RDMUX_FRAME_FAILED, .text = "a\033[2Jb\nc" };
    uint8_t bytes[RDMUX_ATTEMPT_FRAME_MAX];
    struct rdmux_attempt_frame decoded;

    size_t size = rdmux_attempt_frame_encode(&frame, bytes);

    assert_int_equal(rdmux_attempt_frame_decode(bytes, size, &decoded), RDMUX_OK);
    assert_string_equal(decoded.text, "a?[2Jb?c");
}

/* -------------------------------------------------------------------- RANKING */

static struct rdmux_offer connectors;
static struct rdmux_offer acceptors;
static struct rdmux_match matches[RDMUX_MATCH_MAX];
static struct rdmux_match decoded_matches[RDMUX_MATCH_MAX];
static uint8_t ranking[RDMUX_RANKING_FRAME_MAX + 8];

/* The acceptor's paths shm, tcp; the connector's shm, tcp, roce. */
static size_t make_ranking(size_t *count)
{
    pair_offer(&acceptors, 2);
    pair_offer(&connectors, 3);
    *count = rdmux_match_paths(&acceptors, &connectors, 4096, matches);
    matches[1].cost_is_measured = 1;
    return rdmux_ranking_encode(matches, *count, ranking);
}

static enum rdmux_status decode_ranking(size_t size, size_t *count)
{
    uint8_t *exact = malloc(size + 1);
    memcpy(exact + 1, ranking, size);
    enum rdmux_status status = rdmux_ranking_decode(exact + 1, size, &connectors, &acceptors,
                                                    decoded_matches, count);
    free(exact);
    return status;
}

static void a_ranking_decodes_to_the_encoded_one_with_the_sides_swapped(void **state)
{
    (void)state;
    size_t count = 0;
    size_t decoded_count = 0;
    size_t size = make_ranking(&count);

    assert_int_equal(decode_ranking(size, &decoded_count), RDMUX_OK);

    assert_int_equal(count, 3);
    assert_int_equal(decoded_count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(decoded_matches[i].ours, matches[i].theirs);
        assert_int_equal(decoded_matches[i].theirs, matches[i].ours);
        assert_int_equal(decoded_matches[i].rank, matches[i].rank);
        assert_int_equal(decoded_matches[i].reason, matches[i].reason);
        assert_int_equal(decoded_matches[i].stage, matches[i].stage);
        assert_int_equal(decoded_matches[i].cost_ns, matches[i].cost_ns);
        assert_int_equal(decoded_matches[i].cost_is_measured, i == 1);
        assert_int_equal(decoded_matches[i].native, matches[i].native);
        assert_int_equal(decoded_matches[i].emulated, matches[i].emulated);
        assert_string_equal(decoded_matches[i].text, matches[i].text);
        assert_string_equal(decoded_matches[i].hint, matches[i].hint);
    }
}

static void the_longest_ranking_fits_one_frame(void **state)
{
    (void)state;
    size_t count = 0;
    (void)make_ranking(&count);
    for (size_t i = 0; i < RDMUX_MATCH_MAX; i++) {
        matches[i] = matches[0];
        matches[i].rank = (uint16_t)(i + 1);
        memset(matches[i].text, 't', RDMUX_TEXT_MAX - 1);
        memset(matches[i].hint, 'h', RDMUX_TEXT_MAX - 1);
    }

    size_t size = rdmux_ranking_encode(matches, RDMUX_MATCH_MAX, ranking);

    assert_true(size <= RDMUX_RANKING_FRAME_MAX);
    assert_int_equal(decode_ranking(size, &count), RDMUX_OK);
    assert_int_equal(count, RDMUX_MATCH_MAX);
    assert_int_equal(strlen(decoded_matches[63].hint), RDMUX_TEXT_MAX - 1);
}

static void a_ranking_cut_anywhere_is_refused(void **state)
{
    (void)state;
    size_t count = 0;
    size_t whole = make_ranking(&count);
    for (size_t size = 0; size < whole + 8; size++) {
        if (size == whole) {
            continue;
        }
        if (size >= RDMUX_FRAME_HEADER_SIZE) {
            rdmux_store_be32(ranking + 4, (uint32_t)(size - RDMUX_FRAME_HEADER_SIZE));
        }
        assert_int_equal(decode_ranking(size, &count), RDMUX_PROTOCOL);
    }
}

static void an_impossible_ranking_is_refused(void **state)
{
    (void)state;
    enum { FIRST = 12 };
    static const struct {
        const char *says;
        size_t at;
        uint16_t value;
    } cases[] = {
        { "more entries than there are", 8, 4 },
        { "more entries than may be", 8, RDMUX_MATCH_MAX + 1 },
        { "fewer entries than there are", 8, 2 },
        { "no entries", 8, 0 },
        { "it begins with rank 2", FIRST + 0, 2 },
        { "a rank after an entry without one", FIRST + 0, 0 },
        { "a stage after MATCH", FIRST + 4, RDMUX_STAGE_OPEN },
        { "a path the acceptor does not have", FIRST + 6, 2 },
        { "a path the connector does not have", FIRST + 8, 3 },
        { "a rank without the acceptor's path", FIRST + 6, 0xffff },
        { "a rank without the connector's path", FIRST + 8, 0xffff },
        { "a pair of two providers", FIRST + 6, 1 },
        { "a text too long", FIRST + 10, RDMUX_TEXT_MAX },
        { "a hint longer than the frame", FIRST + 12, 0xfff },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t count = 0;
        size_t size = make_ranking(&count);
        rdmux_store_be16(ranking + cases[i].at, cases[i].value);

        if (decode_ranking(size, &count) != RDMUX_PROTOCOL) {
            fail_msg("%s was accepted", cases[i].says);
        }
    }
}

static void a_rank_that_breaks_our_own_demands_is_refused(void **state)
{
    (void)state;
    static const char *const says[] = { "not usable",        "filtered by the fabric",
                                        "filtered here",     "lacks a capability",
                                        "lacks it natively", "not encrypted" };
    for (size_t i = 0; i < COUNT_OF(says); i++) {
        size_t count = 0;
        size_t size = make_ranking(&count);
        struct rdmux_offer *ours = &connectors;
        struct rdmux_local_path *path = &ours->paths[0].path;
        path->reason = i == 0 ? RDMUX_REASON_PORT_DOWN : RDMUX_REASON_USABLE;
        (void)snprintf(ours->filter[0], sizeof(ours->filter[0]), "%s", i == 1 ? "!shm" : "");
        (void)snprintf(ours->filter[1], sizeof(ours->filter[1]), "%s", i == 2 ? "tcp" : "auto");
        ours->require = i == 3 ? RDMUX_CAP_FETCH_ADD : RDMUX_CAP_SEND;
        ours->require_native = i == 4 ? RDMUX_CAP_PLACED : RDMUX_CAP_READ;
        path->emulated = RDMUX_CAP_PLACED;
        ours->require_encryption = i == 5;

        if (decode_ranking(size, &count) != RDMUX_PROTOCOL) {
            fail_msg("%s: was accepted", says[i]);
        }
    }
}

/* -------------------------------------------------------------------- transcript */

static void the_transcript_hash_is_the_sha256_of_the_pieces_in_order(void **state)
{
    (void)state;
    static const struct rdmux_transcript_piece pieces[] = { { (const uint8_t *)"a", 1 },
                                                            { (const uint8_t *)"", 0 },
                                                            { (const uint8_t *)"bc", 2 } };
    /* FIPS 180-2, appendix B.1: "abc" */
    static const uint8_t expected[RDMUX_TRANSCRIPT_SIZE] = {
        0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
        0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
        0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad
    };
    uint8_t hash[RDMUX_TRANSCRIPT_SIZE];

    enum rdmux_status status = rdmux_transcript_hash(pieces, COUNT_OF(pieces), hash);

    if (!rdmux_transcript_available()) {
        assert_int_equal(status, RDMUX_UNSUPPORTED);
        return;
    }
    assert_int_equal(status, RDMUX_OK);
    assert_memory_equal(hash, expected, sizeof(expected));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_decodes_to_the_encoded_values),
        cmocka_unit_test(a_frame_of_any_other_length_is_refused_and_leaves_the_output_alone),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(a_decoded_text_has_no_control_characters),
        cmocka_unit_test(a_ranking_decodes_to_the_encoded_one_with_the_sides_swapped),
        cmocka_unit_test(the_longest_ranking_fits_one_frame),
        cmocka_unit_test(a_ranking_cut_anywhere_is_refused),
        cmocka_unit_test(an_impossible_ranking_is_refused),
        cmocka_unit_test(a_rank_that_breaks_our_own_demands_is_refused),
        cmocka_unit_test(the_transcript_hash_is_the_sha256_of_the_pieces_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
