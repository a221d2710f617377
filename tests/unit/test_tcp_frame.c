/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Frames of the tcp provider: an encoded frame decodes to itself, and a short or wrong one is
 * refused. */
#include "tcp_fallback/tcp_frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const uint8_t key[TCP_KEY_SIZE] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };

static const struct sample {
    struct tcp_frame frame;
    size_t size;
} samples[] = {
    { { .kind = TCP_SEND, .length = 8 }, 8 },
    { { .kind = TCP_SEND, .flags = TCP_IMM | TCP_PLACED, .length = 8, .imm = 0x01020304 }, 12 },
    { { .kind = TCP_SEND, .flags = TCP_STRIPED, .credits = 255, .length = TCP_LENGTH_MAX }, 8 },
    { { .kind = TCP_WRITE, .length = 0, .key = key, .offset = UINT64_MAX }, 32 },
    { { .kind = TCP_WRITE, .flags = TCP_IMM, .length = 9, .key = key, .offset = 7, .imm = 5 }, 36 },
    { { .kind = TCP_MORE, .length = 1 << 20 }, 8 },
    { { .kind = TCP_FLUSH, .flags = TCP_PLACED }, 8 },
    { { .kind = TCP_READ, .length = 77, .key = key, .offset = 88 }, 32 },
    { { .kind = TCP_FETCH_ADD, .length = 8, .key = key, .offset = 8, .operand = UINT64_MAX }, 40 },
    { { .kind = TCP_COMPARE_SWAP, .length = 8, .key = key, .operand = 1, .expected = 2 }, 48 },
    { { .kind = TCP_DATA, .length = 3 }, 8 },
    { { .kind = TCP_RESULT, .length = 8, .operand = 0x0102030405060708 }, 16 },
    { { .kind = TCP_ACK, .length = 4 }, 8 },
    { { .kind = TCP_CREDIT, .length = 64 }, 8 },
    { { .kind = TCP_ASK }, 8 },
    { { .kind = TCP_RECALL }, 8 },
    { { .kind = TCP_RETURN, .length = 2 }, 8 },
    { { .kind = TCP_NAK, .length = RDMUX_DENIED, .operand = 12 }, 16 },
    { { .kind = TCP_PING, .credits = 1 }, 8 },
};

static void a_frame_decodes_to_the_encoded_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(samples); i++) {
        uint8_t bytes[TCP_HEADER_MAX];
        struct tcp_frame out = { 0 };
        size_t used = 0;

        size_t size = rdmux_tcp_frame_encode(&samples[i].frame, bytes);
        enum rdmux_status status = rdmux_tcp_frame_decode(bytes, size, &out, &used);

        assert_int_equal(size, samples[i].size);
        assert_int_equal(rdmux_tcp_header_size(bytes[0]), size);
        assert_int_equal(status, RDMUX_OK);
        assert_int_equal(used, size);
        assert_int_equal(out.kind, samples[i].frame.kind);
        assert_int_equal(out.flags, samples[i].frame.flags);
        assert_int_equal(out.credits, samples[i].frame.credits);
        assert_true(out.length == samples[i].frame.length);
        assert_int_equal(out.imm, samples[i].frame.imm);
        assert_true(out.offset == samples[i].frame.offset);
        assert_true(out.operand == samples[i].frame.operand);
        assert_true(out.expected == samples[i].frame.expected);
        if (samples[i].frame.key != NULL) {
            assert_memory_equal(out.key, key, sizeof(key));
        }
    }
}

static void a_frame_cut_at_any_byte_asks_for_more_and_reads_no_byte_beyond(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(samples); i++) {
        uint8_t bytes[TCP_HEADER_MAX];
        size_t size = rdmux_tcp_frame_encode(&samples[i].frame, bytes);
        for (size_t cut = 0; cut < size; cut++) {
            struct tcp_frame out = { .length = 99 };
            size_t used = 77;
            uint8_t *exact = malloc(cut + 1); /* the address sanitizer watches its end */
            assert_non_null(exact);
            memcpy(exact + 1, bytes, cut);

            enum rdmux_status status = rdmux_tcp_frame_decode(exact + 1, cut, &out, &used);

            assert_int_equal(status, RDMUX_AGAIN);
            assert_true(out.length == 99);
            assert_int_equal(used, 77);
            free(exact);
        }
    }
}

static void an_impossible_frame_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        uint8_t bytes[TCP_HEADER_MAX];
    } cases[] = {
        { "a control frame", { 0x3f } },
        { "the mark is missing", { 0x80 } },
        { "a read with payload on many sockets", { TCP_MARK | TCP_READ | TCP_STRIPED } },
        { "a read with immediate data", { TCP_MARK | TCP_READ | TCP_IMM } },
        { "a read to be placed", { TCP_MARK | TCP_READ | TCP_PLACED } },
        { "more with immediate data", { TCP_MARK | TCP_MORE | TCP_IMM } },
        { "an answer to be placed", { TCP_MARK | TCP_DATA | TCP_PLACED } },
        { "a flush that asks for nothing", { TCP_MARK | TCP_FLUSH } },
        { "a flush with a length", { TCP_MARK | TCP_PLACED | TCP_FLUSH, 0, 0, 0, 0, 0, 0, 1 } },
        { "an atomic of 4 bytes", { TCP_MARK | TCP_FETCH_ADD, 0, 0, 0, 0, 0, 0, 4 } },
        { "an atomic of 2^40 + 8 bytes", { TCP_MARK | TCP_COMPARE_SWAP, 0, 0, 1, 0, 0, 0, 8 } },
        { "a result of 0 bytes", { TCP_MARK | TCP_RESULT } },
        { "a question with a length", { TCP_MARK | TCP_ASK, 0, 0, 0, 0, 0, 0, 1 } },
        { "a recall with a length", { TCP_MARK | TCP_RECALL, 0, 0, 0, 0, 0, 0, 1 } },
        { "a ping with 121 bytes", { TCP_MARK | TCP_PING, 0, 0, 0, 0, 0, 0, TCP_PING_MAX + 1 } },
        { "a ping with 2^47 bytes", { TCP_MARK | TCP_PING, 0, 0x80, 0, 0, 0, 0, 0 } },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tcp_frame out = { .length = 99 };
        size_t used = 77;

        enum rdmux_status status = rdmux_tcp_frame_decode(cases[i].bytes, sizeof(cases[i].bytes),
                                                          &out, &used);

        if (status != RDMUX_PROTOCOL || out.length != 99 || used != 77) {
            fail_msg("%s: status %d", cases[i].says, (int)status);
        }
    }
}

static void a_ping_includes_the_bytes_after_it(void **state)
{
    (void)state;
    uint8_t bytes[TCP_HEADER_MAX] = { 0 };
    struct tcp_frame out = { 0 };
    size_t used = 0;
    size_t size = rdmux_tcp_frame_encode(
        &(struct tcp_frame){ .kind = TCP_PING, .length = TCP_PING_MAX }, bytes);

    assert_int_equal(size, TCP_PREFIX_SIZE);
    for (size_t cut = 0; cut < sizeof(bytes); cut++) {
        assert_int_equal(rdmux_tcp_frame_decode(bytes, cut, &out, &used), RDMUX_AGAIN);
    }
    assert_int_equal(rdmux_tcp_frame_decode(bytes, sizeof(bytes), &out, &used), RDMUX_OK);
    assert_int_equal(used, sizeof(bytes));
}

static void a_control_frame_tells_its_size_and_is_bounded(void **state)
{
    (void)state;
    uint8_t bytes[8] = { 0x05, 0, 0, 0, 0, 1, 0, 0 };
    size_t size = 0;

    for (size_t cut = 0; cut < sizeof(bytes); cut++) {
        assert_int_equal(rdmux_tcp_control_size(bytes, cut, &size), RDMUX_AGAIN);
    }
    assert_int_equal(rdmux_tcp_control_size(bytes, sizeof(bytes), &size), RDMUX_OK);
    assert_int_equal(size, 65536 + 8);
    bytes[7] = 1;
    assert_int_equal(rdmux_tcp_control_size(bytes, sizeof(bytes), &size), RDMUX_PROTOCOL);
    bytes[4] = 0xff;
    assert_int_equal(rdmux_tcp_control_size(bytes, sizeof(bytes), &size), RDMUX_PROTOCOL);
    bytes[0] = TCP_MARK;
    assert_int_equal(rdmux_tcp_control_size(bytes, sizeof(bytes), &size), RDMUX_PROTOCOL);
}

static void the_shares_of_a_payload_join_without_a_gap(void **state)
{
    (void)state;
    static const uint64_t lengths[] = { 0, 1, 4095, 4096, 4097, 262144, 1000003, 16 << 20 };
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        for (uint32_t sockets = 1; sockets <= 16; sockets++) {
            uint64_t at = 0;
            for (uint32_t index = 0; index < sockets; index++) {
                uint64_t begin = 0;
                uint64_t end = 0;
                rdmux_tcp_share(lengths[i], sockets, index, &begin, &end);
                assert_true(begin == at);
                assert_true(end >= begin);
                at = end;
            }
            assert_true(at == lengths[i]);
        }
    }
}

static void connection_data_is_checked(void **state)
{
    (void)state;
    struct tcp_description description = { .sockets = 4, .answers = 32, .on_demand = 1, .early = 1 };
    struct tcp_description out = { 0 };
    uint8_t bytes[TCP_DESCRIPTION_SIZE + 1] = { 0 };
    rdmux_tcp_description_encode(&description, bytes);

    for (size_t cut = 0; cut < TCP_DESCRIPTION_SIZE; cut++) {
        assert_int_equal(rdmux_tcp_description_decode(bytes, cut, &out), RDMUX_PROTOCOL);
    }
    assert_int_equal(rdmux_tcp_description_decode(bytes, sizeof(bytes), &out), RDMUX_OK);
    assert_int_equal(out.sockets, 4);
    assert_int_equal(out.answers, 32);
    assert_int_equal(out.on_demand, 1);
    assert_int_equal(out.encrypted, 0);
    assert_int_equal(out.early, 1);
    bytes[0] = 2;
    assert_int_equal(rdmux_tcp_description_decode(bytes, sizeof(bytes), &out), RDMUX_VERSION);
    bytes[0] = 1;
    bytes[1] = 0;
    assert_int_equal(rdmux_tcp_description_decode(bytes, sizeof(bytes), &out), RDMUX_PROTOCOL);
    bytes[1] = 4;
    bytes[3] = 0;
    assert_int_equal(rdmux_tcp_description_decode(bytes, sizeof(bytes), &out), RDMUX_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_decodes_to_the_encoded_values),
        cmocka_unit_test(a_frame_cut_at_any_byte_asks_for_more_and_reads_no_byte_beyond),
        cmocka_unit_test(an_impossible_frame_is_refused),
        cmocka_unit_test(a_ping_includes_the_bytes_after_it),
        cmocka_unit_test(a_control_frame_tells_its_size_and_is_bounded),
        cmocka_unit_test(the_shares_of_a_payload_join_without_a_gap),
        cmocka_unit_test(connection_data_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
