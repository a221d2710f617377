/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Frames of adapters/framed: an encoded frame decodes to itself, and a short or wrong one is
 * refused. */
#include "adapters/framed/framed_frame.h"

#include "adapters/framed/framed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const uint8_t key[RDMUX_TARGET_KEY_SIZE] = { 1, 2,  3,  4,  5,  6,  7,  8,
                                                    9, 10, 11, 12, 13, 14, 15, 16 };

/* A frame, and the bytes of its header. */
static const struct sample {
    struct framed_frame frame;
    size_t size;
} samples[] = {
    { { .kind = FRAMED_SEND, .size = 8, .length = 8 }, 16 },
    { { .kind = FRAMED_SEND, .flags = FRAMED_IMM | FRAMED_PLACED, .imm = 0x01020304 }, 24 },
    { { .kind = FRAMED_SEND, .credits = UINT16_MAX, .size = 3, .length = UINT64_MAX }, 16 },
    { { .kind = FRAMED_WRITE, .key = key, .offset = UINT64_MAX }, 40 },
    { { .kind = FRAMED_WRITE, .flags = FRAMED_IMM, .key = key, .offset = 7, .imm = 5 }, 48 },
    { { .kind = FRAMED_MORE, .size = 9, .length = 9 }, 16 },
    { { .kind = FRAMED_MORE, .flags = FRAMED_BODY, .size = 70000, .length = 70000 }, 16 },
    { { .kind = FRAMED_FLUSH, .flags = FRAMED_PLACED }, 16 },
    { { .kind = FRAMED_READ, .length = 77, .key = key, .offset = 88 }, 40 },
    { { .kind = FRAMED_FETCH_ADD, .length = 8, .key = key, .operand = UINT64_MAX }, 48 },
    { { .kind = FRAMED_COMPARE_SWAP, .length = 8, .key = key, .operand = 1, .expected = 2 }, 56 },
    { { .kind = FRAMED_DATA, .size = 1, .length = 1 }, 16 },
    { { .kind = FRAMED_RESULT, .length = 8, .operand = 0x0102030405060708 }, 24 },
    { { .kind = FRAMED_ACK, .length = 4 }, 16 },
    { { .kind = FRAMED_CREDIT, .credits = 64 }, 16 },
    { { .kind = FRAMED_RETURN, .length = 2 }, 16 },
    { { .kind = FRAMED_REFUSAL, .length = RDMUX_DENIED, .operand = 12 }, 24 },
    { { .kind = FRAMED_HUSH }, 16 },
};

/* Bytes of the payload within the frame. */
static size_t inside(const struct framed_frame *frame)
{
    return (frame->flags & FRAMED_BODY) != 0 ? 0 : (size_t)framed_padded(frame->size);
}

static void a_frame_decodes_to_the_encoded_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(samples); i++) {
        const struct framed_frame *in = &samples[i].frame;
        uint8_t bytes[FRAMED_HEADER_MAX + 16] = { 0 };
        struct framed_frame out = { 0 };
        const uint8_t *payload = NULL;
        size_t used = 0;

        size_t size = rdmux_framed_frame_encode(in, bytes);
        enum rdmux_status status = rdmux_framed_frame_decode(bytes, sizeof(bytes), &out, &payload,
                                                             &used);

        assert_int_equal(size, samples[i].size);
        assert_int_equal(rdmux_framed_header_size(in->kind, in->flags), size);
        assert_int_equal(status, RDMUX_OK);
        assert_ptr_equal(payload, bytes + size);
        assert_int_equal(used, size + inside(in));
        assert_int_equal(out.kind, in->kind);
        assert_int_equal(out.flags, in->flags);
        assert_int_equal(out.credits, in->credits);
        assert_int_equal(out.size, in->size);
        assert_true(out.length == in->length);
        assert_int_equal(out.imm, in->imm);
        assert_true(out.offset == in->offset);
        assert_true(out.operand == in->operand);
        assert_true(out.expected == in->expected);
        if (in->key != NULL) {
            assert_memory_equal(out.key, key, sizeof(key));
        }
    }
}

static void a_frame_cut_at_any_byte_is_refused_and_no_byte_beyond_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(samples); i++) {
        uint8_t bytes[FRAMED_HEADER_MAX + 16] = { 0 };
        size_t size = rdmux_framed_frame_encode(&samples[i].frame, bytes) +
                      inside(&samples[i].frame);
        for (size_t cut = 0; cut < size; cut++) {
            struct framed_frame out = { .length = 99 };
            const uint8_t *payload = NULL;
            size_t used = 77;
            uint8_t *exact = malloc(cut + 1); /* the address sanitizer watches its end */
            assert_non_null(exact);
            memcpy(exact + 1, bytes, cut);

            enum rdmux_status status = rdmux_framed_frame_decode(exact + 1, cut, &out, &payload,
                                                                 &used);

            assert_int_equal(status, RDMUX_PROTOCOL);
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
        struct framed_frame frame;
    } cases[] = {
        { "a flag that does not exist", { .kind = FRAMED_SEND, .flags = 1 << 3 } },
        { "a body without bytes", { .kind = FRAMED_SEND, .flags = FRAMED_BODY } },
        { "a body of a request without payload",
          { .kind = FRAMED_READ, .key = key, .flags = FRAMED_BODY, .size = 8, .length = 8 } },
        { "a body that is too long",
          { .kind = FRAMED_SEND,
            .flags = FRAMED_BODY,
            .size = FRAMED_BODY_MAX + 1,
            .length = FRAMED_BODY_MAX + 1 } },
        { "a read with payload", { .kind = FRAMED_READ, .key = key, .size = 8, .length = 8 } },
        { "a read with immediate data", { .kind = FRAMED_READ, .key = key, .flags = FRAMED_IMM } },
        { "a read to be placed", { .kind = FRAMED_READ, .key = key, .flags = FRAMED_PLACED } },
        { "more to be placed", { .kind = FRAMED_MORE, .flags = FRAMED_PLACED } },
        { "more payload than the whole request", { .kind = FRAMED_SEND, .size = 9, .length = 8 } },
        { "a flush that asks for nothing", { .kind = FRAMED_FLUSH } },
        { "a flush with a length", { .kind = FRAMED_FLUSH, .flags = FRAMED_PLACED, .length = 1 } },
        { "an atomic of 4 bytes", { .kind = FRAMED_FETCH_ADD, .key = key, .length = 4 } },
        { "a result of 2^32 + 8 bytes",
          { .kind = FRAMED_RESULT, .length = (UINT64_C(1) << 32) + 8 } },
        { "a question with a length", { .kind = FRAMED_ASK, .length = 1 } },
        { "a hush with a length", { .kind = FRAMED_HUSH, .length = 1 } },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint8_t bytes[FRAMED_HEADER_MAX + 16] = { 0 };
        struct framed_frame out = { .length = 99 };
        const uint8_t *payload = NULL;
        size_t used = 77;
        (void)rdmux_framed_frame_encode(&cases[i].frame, bytes);

        enum rdmux_status status = rdmux_framed_frame_decode(bytes, sizeof(bytes), &out, &payload,
                                                             &used);

        if (status != RDMUX_PROTOCOL || out.length != 99 || used != 77) {
            fail_msg("%s: status %d", cases[i].says, (int)status);
        }
    }
}

static void a_kind_that_does_not_exist_is_refused(void **state)
{
    (void)state;
    for (unsigned kind = FRAMED_KINDS; kind < 256; kind++) {
        const uint8_t bytes[FRAMED_HEADER_MAX] = { (uint8_t)kind };
        struct framed_frame out;
        const uint8_t *payload = NULL;
        size_t used = 0;

        assert_int_equal(rdmux_framed_frame_decode(bytes, sizeof(bytes), &out, &payload, &used),
                         RDMUX_PROTOCOL);
    }
}

static void a_prefix_is_checked(void **state)
{
    (void)state;
    const struct framed_prefix in = { .tag = UINT64_MAX - 1,
                                      .returned = 513,
                                      .flags = FRAMED_UNCOUNTED_FLAG,
                                      .sequence = 0x01020304 };
    struct framed_prefix out = { 0 };
    uint8_t bytes[FRAMED_PREFIX_SIZE];
    rdmux_framed_prefix_encode(&in, bytes);

    for (size_t cut = 0; cut < sizeof(bytes); cut++) {
        assert_int_equal(rdmux_framed_prefix_decode(bytes, cut, &out), RDMUX_PROTOCOL);
    }
    assert_int_equal(rdmux_framed_prefix_decode(bytes, sizeof(bytes), &out), RDMUX_OK);
    assert_true(out.tag == in.tag);
    assert_int_equal(out.returned, in.returned);
    assert_int_equal(out.flags, in.flags);
    assert_int_equal(out.sequence, in.sequence);
    bytes[11] |= 2; /* another flag */
    assert_int_equal(rdmux_framed_prefix_decode(bytes, sizeof(bytes), &out), RDMUX_PROTOCOL);
}

static void connection_data_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        struct framed_description in;
        enum rdmux_status status;
    } cases[] = {
        { "the least", { 2, FRAMED_MESSAGE_MIN, 1, 1 }, RDMUX_OK },
        { "the most", { FRAMED_WINDOW_MAX, FRAMED_MESSAGE_MAX, 0, 0 }, RDMUX_OK },
        { "a window of 1", { 1, FRAMED_MESSAGE_MIN, 0, 0 }, RDMUX_PROTOCOL },
        { "a window too large", { FRAMED_WINDOW_MAX + 1, 8192, 0, 0 }, RDMUX_PROTOCOL },
        { "messages too short", { 8, FRAMED_MESSAGE_MIN - 1, 0, 0 }, RDMUX_PROTOCOL },
        { "messages too long", { 8, FRAMED_MESSAGE_MAX + 1, 0, 0 }, RDMUX_PROTOCOL },
    };
    uint8_t bytes[FRAMED_HEAD_SIZE];
    struct framed_description out = { 0 };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        rdmux_framed_description_encode(&cases[i].in, bytes);
        enum rdmux_status status = rdmux_framed_description_decode(bytes, sizeof(bytes), &out);
        if (status != cases[i].status ||
            (status == RDMUX_OK && memcmp(&out, &cases[i].in, sizeof(out)) != 0)) {
            fail_msg("%s: status %d", cases[i].says, (int)status);
        }
    }
    for (size_t cut = 0; cut < sizeof(bytes); cut++) {
        assert_int_equal(rdmux_framed_description_decode(bytes, cut, &out), RDMUX_PROTOCOL);
    }
    bytes[0]++;
    assert_int_equal(rdmux_framed_description_decode(bytes, sizeof(bytes), &out), RDMUX_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_decodes_to_the_encoded_values),
        cmocka_unit_test(a_frame_cut_at_any_byte_is_refused_and_no_byte_beyond_is_read),
        cmocka_unit_test(an_impossible_frame_is_refused),
        cmocka_unit_test(a_kind_that_does_not_exist_is_refused),
        cmocka_unit_test(a_prefix_is_checked),
        cmocka_unit_test(connection_data_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
