/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The messages of the control channel after the handshake. */
#include "negotiation/handshake.h"
#include "negotiation/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KIND_COUNT = 16 };

static const enum rdmux_frame_type kinds[KIND_COUNT] = {
    RDMUX_FRAME_HEARTBEAT, RDMUX_FRAME_IMPORT,  RDMUX_FRAME_IMPORTED, RDMUX_FRAME_REVOKE,
    RDMUX_FRAME_REVOKED,   RDMUX_FRAME_FAULT,   RDMUX_FRAME_END,      RDMUX_FRAME_ENDED,
    RDMUX_FRAME_REJECT,    RDMUX_FRAME_SILENT,  RDMUX_FRAME_MOVE,     RDMUX_FRAME_RECEIVED,
    RDMUX_FRAME_RESUME,    RDMUX_FRAME_RESUMED, RDMUX_FRAME_BACK,     RDMUX_FRAME_RELEASED,
};

/* A message of this type with every field in use. */
static struct rdmux_message some_message(enum rdmux_frame_type type)
{
    struct rdmux_message message;
    memset(&message, 0, sizeof(message));
    message.type = type;
    switch (type) {
    case RDMUX_FRAME_IMPORT:
        message.id = 0x01020304;
        memset(message.token.bytes, 0x70, sizeof(message.token.bytes));
        break;
    case RDMUX_FRAME_IMPORTED:
        message.id = 7;
        message.status = RDMUX_DENIED;
        message.access = RDMUX_ACCESS_REMOTE_READ;
        message.length = UINT64_C(0x1122334455667788);
        message.region = 42;
        message.description_length = RDMUX_DESCRIPTION_MAX;
        memset(message.description, 0xde, sizeof(message.description));
        break;
    case RDMUX_FRAME_REVOKE:
    case RDMUX_FRAME_REVOKED:
        message.id = 8;
        message.region = UINT64_C(0xfedcba9876543210);
        break;
    case RDMUX_FRAME_RELEASED:
        message.id = 9;
        message.count = UINT32_MAX;
        message.region = UINT64_C(0xfedcba9876543210);
        break;
    case RDMUX_FRAME_SILENT:
        message.id = RDMUX_SILENT_ANSWERS;
        break;
    case RDMUX_FRAME_FAULT:
    case RDMUX_FRAME_END:
        message.status = RDMUX_PEER_GONE;
        memset(message.text, 't', sizeof(message.text) - 1);
        break;
    case RDMUX_FRAME_MOVE:
        message.status = RDMUX_IO;
        message.epoch = 2;
        message.count = UINT64_C(0x0102030405060708);
        memset(message.text, 't', sizeof(message.text) - 1);
        break;
    case RDMUX_FRAME_RECEIVED:
        message.epoch = UINT32_MAX;
        message.count = UINT64_MAX;
        break;
    case RDMUX_FRAME_BACK:
        message.status = RDMUX_AGAIN;
        message.epoch = 6;
        message.count = 2;
        break;
    case RDMUX_FRAME_RESUME:
    case RDMUX_FRAME_RESUMED:
        message.epoch = 3;
        message.count = 4;
        message.is_steady = true;
        memset(message.proof, 0x3c, sizeof(message.proof));
        break;
    case RDMUX_FRAME_REJECT:
        message.status = 0xffffffff; /* the application's own number */
        message.description_length = RDMUX_PRIVATE_DATA_MAX;
        memset(message.description, 0xab, RDMUX_PRIVATE_DATA_MAX);
        break;
    default:
        break;
    }
    return message;
}

/* Decodes from a heap block of exactly this size, so that a read beyond it is found. */
static enum rdmux_status decode(const uint8_t *bytes, size_t size, struct rdmux_message *out)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    enum rdmux_status status = rdmux_message_decode(copy, size, out);
    free(copy);
    return status;
}

static void assert_sane(const struct rdmux_message *message)
{
    assert_true(message->description_length <= RDMUX_DESCRIPTION_MAX);
    assert_non_null(memchr(message->text, '\0', sizeof(message->text)));
    if (message->type == RDMUX_FRAME_REJECT) {
        assert_true(message->description_length <= RDMUX_PRIVATE_DATA_MAX);
    } else {
        assert_true(message->status <= RDMUX_IO);
        assert_true((message->status != RDMUX_AGAIN || message->type == RDMUX_FRAME_BACK) &&
                    message->status != RDMUX_IN_PROGRESS);
    }
    for (const char *c = message->text; *c != '\0'; c++) {
        assert_true((unsigned char)*c >= 0x20);
    }
}

static void every_message_decodes_to_the_encoded_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const struct rdmux_message message = some_message(kinds[i]);
        uint8_t bytes[RDMUX_MESSAGE_MAX];
        struct rdmux_message back;
        memset(&back, 0xee, sizeof(back));

        size_t size = rdmux_message_encode(&message, bytes);
        enum rdmux_status status = decode(bytes, size, &back);

        assert_int_equal(status, RDMUX_OK);
        assert_memory_equal(&back, &message, sizeof(message));
    }
}

static void every_message_is_no_longer_than_its_fields(void **state)
{
    (void)state;
    static const size_t sizes[KIND_COUNT] = { 0,       68, 32 + 512, 16, 16, 4 + 255, 4 + 255, 0,
                                              4 + 196, 4,  16 + 255, 16, 48, 48,      16,      16 };
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const struct rdmux_message message = some_message(kinds[i]);
        uint8_t bytes[RDMUX_MESSAGE_MAX];

        size_t size = rdmux_message_encode(&message, bytes);

        assert_int_equal(size, RDMUX_FRAME_HEADER_SIZE + sizes[i]);
        assert_int_equal(bytes[0], kinds[i]);
    }
}

static void a_message_cut_anywhere_is_refused_and_leaves_the_output_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const struct rdmux_message message = some_message(kinds[i]);
        uint8_t bytes[RDMUX_MESSAGE_MAX];
        size_t size = rdmux_message_encode(&message, bytes);
        for (size_t cut = 0; cut < size; cut++) {
            struct rdmux_message back = { .id = 99 };

            enum rdmux_status status = decode(bytes, cut, &back);

            assert_int_equal(status, RDMUX_PROTOCOL);
            assert_int_equal(back.id, 99);
        }
    }
}

/* The frame is cut, and its header says so. Then the fields do not fit, or a text or description is
 * shorter. */
static void a_shorter_payload_is_refused_or_has_a_shorter_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const struct rdmux_message message = some_message(kinds[i]);
        uint8_t bytes[RDMUX_MESSAGE_MAX];
        size_t size = rdmux_message_encode(&message, bytes);
        size_t fixed = kinds[i] == RDMUX_FRAME_IMPORTED ? 32
                       : kinds[i] == RDMUX_FRAME_MOVE   ? 16
                                                        : 4;
        bool has_end = kinds[i] == RDMUX_FRAME_IMPORTED || kinds[i] == RDMUX_FRAME_FAULT ||
                       kinds[i] == RDMUX_FRAME_END || kinds[i] == RDMUX_FRAME_REJECT ||
                       kinds[i] == RDMUX_FRAME_MOVE;
        for (size_t payload = 0; payload + RDMUX_FRAME_HEADER_SIZE < size; payload++) {
            struct rdmux_message back;
            rdmux_frame_header_encode(kinds[i], 0, payload, bytes);

            enum rdmux_status status = decode(bytes, RDMUX_FRAME_HEADER_SIZE + payload, &back);

            assert_int_equal(status, has_end && payload >= fixed ? RDMUX_OK : RDMUX_PROTOCOL);
            if (status == RDMUX_OK) {
                assert_int_equal(back.description_length + strlen(back.text), payload - fixed);
            }
        }
    }
}

static void a_longer_payload_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const struct rdmux_message message = some_message(kinds[i]);
        uint8_t bytes[RDMUX_MESSAGE_MAX];
        struct rdmux_message back;
        size_t size = rdmux_message_encode(&message, bytes) + 1;
        bytes[size - 1] = 'x';
        rdmux_frame_header_encode(kinds[i], 0, size - RDMUX_FRAME_HEADER_SIZE, bytes);

        enum rdmux_status status = decode(bytes, size, &back);

        assert_int_equal(status, RDMUX_PROTOCOL);
    }
}

static void a_message_with_any_byte_changed_is_refused_or_decodes_within_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < KIND_COUNT; i++) {
        const struct rdmux_message message = some_message(kinds[i]);
        uint8_t bytes[RDMUX_MESSAGE_MAX];
        size_t size = rdmux_message_encode(&message, bytes);
        for (size_t at = 0; at < size; at++) {
            for (unsigned value = 0; value < 256; value++) {
                uint8_t before = bytes[at];
                struct rdmux_message back;
                bytes[at] = (uint8_t)value;

                enum rdmux_status status = rdmux_message_decode(bytes, size, &back);

                assert_true(status == RDMUX_OK || status == RDMUX_PROTOCOL || status == RDMUX_AGAIN);
                if (status == RDMUX_OK) {
                    assert_sane(&back);
                }
                bytes[at] = before;
            }
        }
    }
}

static void an_unknown_status_is_a_failure(void **state)
{
    (void)state;
    static const enum rdmux_frame_type types[] = { RDMUX_FRAME_FAULT, RDMUX_FRAME_END,
                                                   RDMUX_FRAME_IMPORTED };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct rdmux_message message = some_message(types[i]);
        uint8_t bytes[RDMUX_MESSAGE_MAX];
        struct rdmux_message back;
        message.status = 1000;

        size_t size = rdmux_message_encode(&message, bytes);
        enum rdmux_status status = decode(bytes, size, &back);

        assert_int_equal(status, RDMUX_OK);
        assert_int_equal(back.status, RDMUX_IO);
    }
}

static void an_epoch_of_zero_is_refused(void **state)
{
    (void)state;
    static const enum rdmux_frame_type types[] = { RDMUX_FRAME_MOVE, RDMUX_FRAME_RECEIVED,
                                                   RDMUX_FRAME_RESUME, RDMUX_FRAME_RESUMED,
                                                   RDMUX_FRAME_BACK };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct rdmux_message message = some_message(types[i]);
        uint8_t bytes[RDMUX_MESSAGE_MAX];
        message.epoch = 0;

        size_t size = rdmux_message_encode(&message, bytes);

        assert_int_equal(decode(bytes, size, &message), RDMUX_PROTOCOL);
    }
}

static void a_fault_without_an_error_status_is_refused(void **state)
{
    (void)state;
    static const uint32_t statuses[] = { RDMUX_OK, RDMUX_AGAIN, RDMUX_IN_PROGRESS };
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        struct rdmux_message message = some_message(RDMUX_FRAME_FAULT);
        uint8_t bytes[RDMUX_MESSAGE_MAX];
        message.status = statuses[i];

        size_t size = rdmux_message_encode(&message, bytes);
        enum rdmux_status status = decode(bytes, size, &message);

        assert_int_equal(status, RDMUX_PROTOCOL);
    }
}

/* A side that is asked for failback is ready, or is not. */
static void back_has_one_of_two_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t said;
        enum rdmux_status status;
    } cases[] = {
        { RDMUX_OK, RDMUX_OK },
        { RDMUX_AGAIN, RDMUX_OK },
        { RDMUX_IO, RDMUX_PROTOCOL },
        { UINT32_MAX, RDMUX_PROTOCOL },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rdmux_message message = some_message(RDMUX_FRAME_BACK);
        uint8_t bytes[RDMUX_MESSAGE_MAX];
        message.status = cases[i].said;
        size_t size = rdmux_message_encode(&message, bytes);
        assert_true(rdmux_frame_is_optional(bytes));
        assert_int_equal(decode(bytes, size, &message), cases[i].status);
    }
}

/* A peer that does not know the question skips it, and the side that asked does not wait for
 * ever. */
static void a_silent_frame_asks_or_answers_and_may_be_skipped(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        enum rdmux_status status;
    } cases[] = {
        { RDMUX_SILENT_ASKS, RDMUX_OK },
        { RDMUX_SILENT_ANSWERS, RDMUX_OK },
        { RDMUX_SILENT_ANSWERS + 1, RDMUX_PROTOCOL },
        { UINT32_MAX, RDMUX_PROTOCOL },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct rdmux_message message = { .type = RDMUX_FRAME_SILENT, .id = cases[i].id };
        uint8_t bytes[RDMUX_MESSAGE_MAX];
        struct rdmux_message back = { .id = 99 };

        size_t size = rdmux_message_encode(&message, bytes);
        enum rdmux_status status = decode(bytes, size, &back);

        assert_true(rdmux_frame_is_optional(bytes));
        assert_int_equal(status, cases[i].status);
        assert_int_equal(back.id, status == RDMUX_OK ? cases[i].id : 99);
    }
}

static void a_decoded_text_is_safe_to_print(void **state)
{
    (void)state;
    struct rdmux_message message = some_message(RDMUX_FRAME_END);
    uint8_t bytes[RDMUX_MESSAGE_MAX];
    (void)snprintf(message.text, sizeof(message.text),
                   "bell \a escape \x1b[2J latin \xe9 good \xc3\xa9");

    size_t size = rdmux_message_encode(&message, bytes);
    enum rdmux_status status = decode(bytes, size, &message);

    assert_int_equal(status, RDMUX_OK);
    assert_string_equal(message.text, "bell ? escape ?[2J latin ? good \xc3\xa9");
}

static void a_frame_of_another_type_is_no_message(void **state)
{
    (void)state;
    for (unsigned type = 0; type < 256; type++) {
        bool is_message = false;
        for (size_t i = 0; i < KIND_COUNT; i++) {
            is_message = is_message || kinds[i] == (enum rdmux_frame_type)type;
        }
        uint8_t bytes[RDMUX_FRAME_HEADER_SIZE] = { (uint8_t)type };
        struct rdmux_message back;

        enum rdmux_status status = decode(bytes, sizeof(bytes), &back);

        bool empty = type == RDMUX_FRAME_HEARTBEAT || type == RDMUX_FRAME_ENDED;
        assert_int_equal(status, is_message && empty ? RDMUX_OK : RDMUX_PROTOCOL);
    }
}

static void only_an_optional_frame_of_an_unknown_type_is_skipped(void **state)
{
    (void)state;
    static const struct {
        unsigned type;
        uint8_t flags;
        enum rdmux_status status;
    } cases[] = {
        { 0x3f, 0, RDMUX_PROTOCOL },
        { 0x3f, RDMUX_FRAME_OPTIONAL, RDMUX_AGAIN },
        { 0x3f, 0xfe, RDMUX_PROTOCOL },
        { RDMUX_FRAME_TRY, RDMUX_FRAME_OPTIONAL, RDMUX_PROTOCOL },
        { RDMUX_FRAME_AUTH, RDMUX_FRAME_OPTIONAL, RDMUX_PROTOCOL },
        { RDMUX_FRAME_IMPORT, RDMUX_FRAME_OPTIONAL, RDMUX_PROTOCOL }, /* of the wrong size */
        { RDMUX_FRAME_HEARTBEAT, 0xff, RDMUX_OK },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[RDMUX_FRAME_HEADER_SIZE];
        struct rdmux_message back;
        rdmux_frame_header_encode((enum rdmux_frame_type)cases[i].type, cases[i].flags, 0, bytes);

        enum rdmux_status status = decode(bytes, sizeof(bytes), &back);

        assert_int_equal(status, cases[i].status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_decodes_to_the_encoded_values),
        cmocka_unit_test(every_message_is_no_longer_than_its_fields),
        cmocka_unit_test(a_message_cut_anywhere_is_refused_and_leaves_the_output_alone),
        cmocka_unit_test(a_shorter_payload_is_refused_or_has_a_shorter_end),
        cmocka_unit_test(a_longer_payload_is_refused),
        cmocka_unit_test(a_message_with_any_byte_changed_is_refused_or_decodes_within_bounds),
        cmocka_unit_test(an_unknown_status_is_a_failure),
        cmocka_unit_test(an_epoch_of_zero_is_refused),
        cmocka_unit_test(a_fault_without_an_error_status_is_refused),
        cmocka_unit_test(back_has_one_of_two_answers),
        cmocka_unit_test(a_silent_frame_asks_or_answers_and_may_be_skipped),
        cmocka_unit_test(a_decoded_text_is_safe_to_print),
        cmocka_unit_test(a_frame_of_another_type_is_no_message),
        cmocka_unit_test(only_an_optional_frame_of_an_unknown_type_is_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
