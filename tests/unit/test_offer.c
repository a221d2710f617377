/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The OFFER's payload: it decodes to what was encoded, and untrusted bytes do no harm. */
#include "negotiation/offer.h"

#include "api/base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* TLV types as docs/WIRE.md has them. */
enum { TLV_PREFER = 1, TLV_PRIVATE_DATA = 12, TLV_FILTER = 13, TLV_SECRET = 15, TLV_PATH = 16 };
enum { TLV_PROVIDER = 1, TLV_DEVICE = 3, TLV_TEXT = 7, TLV_REACH = 18 };

static struct rdmux_offer *new_offer(void)
{
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    assert_non_null(offer);
    return offer;
}

static void fill_text(char *text, size_t size, char with)
{
    memset(text, with, size - 1);
    text[size - 1] = '\0';
}

/* Every field in use, every text and array as long as it may be. */
static struct rdmux_offer *full_offer(uint32_t path_count)
{
    struct rdmux_offer *offer = new_offer();
    offer->path_count = path_count;
    offer->prefer = RDMUX_PREFER_BANDWIDTH;
    offer->typical_size = UINT64_C(0x0102030405060708);
    offer->max_send = UINT64_MAX;
    offer->max_recv = 1;
    offer->require = RDMUX_CAP_SEND;
    offer->require_native = RDMUX_CAP_READ;
    offer->liveness_ms = RDMUX_NEVER;
    offer->data_sockets = 16;
    offer->path_timeout_ms = 2000;
    offer->setup_timeout_ms = 10000;
    offer->require_encryption = 1;
    offer->send_wish = 1;
    offer->private_length = RDMUX_PRIVATE_DATA_MAX;
    memset(offer->private_data, 0xda, sizeof(offer->private_data));
    memset(offer->secret, 0x5e, sizeof(offer->secret));
    (void)snprintf(offer->filter[0], sizeof(offer->filter[0]), "shm,tcp");
    (void)snprintf(offer->filter[1], sizeof(offer->filter[1]), "!shm%248s", "");
    for (uint32_t i = 0; i < path_count; i++) {
        struct rdmux_offer_path *path = &offer->paths[i];
        fill_text(path->provider, sizeof(path->provider), 'p');
        path->provider_flags = RDMUX_PROVIDER_LAST_RESORT;
        fill_text(path->path.device, sizeof(path->path.device), 'd');
        fill_text(path->path.address, sizeof(path->path.address), 'a');
        fill_text(path->path.text, sizeof(path->path.text), 't');
        fill_text(path->path.hint, sizeof(path->path.hint), 'h');
        path->path.reason = RDMUX_REASON_USABLE;
        path->path.software = 1;
        path->path.bandwidth = 12500000000 + i;
        path->path.latency_ns = 1300;
        path->path.mtu = 4096;
        path->path.native = UINT64_C(1) << 63;
        path->path.emulated = RDMUX_CAP_FETCH_ADD;
        path->path.max_message = UINT64_C(1) << 31;
        path->path.max_sge = 16;
        path->path.max_inline = 220;
        path->path.security = RDMUX_SECURITY_TOKEN;
        path->path.reach_length = RDMUX_REACH_MAX;
        memset(path->path.reach, 0xee, sizeof(path->path.reach));
    }
    return offer;
}

static size_t encode(const struct rdmux_offer *offer, uint8_t out[RDMUX_OFFER_BYTES_MAX])
{
    size_t size = RDMUX_OFFER_BYTES_MAX;
    assert_int_equal(rdmux_offer_encode(offer, out, &size), RDMUX_OK);
    return size;
}

/* Decodes from a heap block of exactly this size, so that a read beyond it is found. */
static enum rdmux_status decode(const uint8_t *bytes, size_t size, struct rdmux_offer *out)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    enum rdmux_status status = rdmux_offer_decode(copy, size, out);
    free(copy);
    return status;
}

#define ENDS(text) (memchr((text), '\0', sizeof(text)) != NULL)

static void assert_sane(const struct rdmux_offer *offer)
{
    assert_true(offer->path_count <= RDMUX_OFFER_PATHS_MAX);
    assert_true(offer->private_length <= RDMUX_PRIVATE_DATA_MAX);
    assert_true(ENDS(offer->filter[0]) && ENDS(offer->filter[1]));
    for (uint32_t i = 0; i < offer->path_count; i++) {
        const struct rdmux_offer_path *path = &offer->paths[i];
        assert_true(ENDS(path->provider) && path->provider[0] != '\0');
        assert_true(ENDS(path->path.device) && ENDS(path->path.address));
        assert_true(ENDS(path->path.text) && ENDS(path->path.hint));
        assert_true(path->path.reach_length <= RDMUX_REACH_MAX);
        assert_true(path->path.software <= 1);
        assert_null(path->reach);
    }
}

/* Appends a TLV to out; returns the bytes used then. */
static size_t put(uint8_t *out, size_t used, unsigned type, const void *value, size_t length)
{
    rdmux_store_be16(out + used, (uint16_t)type);
    rdmux_store_be16(out + used + 2, (uint16_t)length);
    if (length > 0) {
        memcpy(out + used + 4, value, length);
    }
    return used + 4 + length;
}

static void an_offer_decodes_to_the_encoded_values(void **state)
{
    (void)state;
    struct rdmux_offer *offers[] = { new_offer(), full_offer(0), full_offer(1),
                                     full_offer(RDMUX_OFFER_PATHS_MAX) };
    static uint8_t bytes[RDMUX_OFFER_BYTES_MAX];
    for (size_t i = 0; i < sizeof(offers) / sizeof(offers[0]); i++) {
        struct rdmux_offer *back = new_offer();
        memset(back, 0xff, sizeof(*back));

        size_t size = encode(offers[i], bytes);
        enum rdmux_status status = decode(bytes, size, back);

        assert_int_equal(status, RDMUX_OK);
        assert_memory_equal(back, offers[i], rdmux_offer_used(offers[i]));
        free(back);
        free(offers[i]);
    }
}

static void zero_and_empty_fields_take_no_bytes(void **state)
{
    (void)state;
    struct rdmux_offer *offer = new_offer();
    static uint8_t bytes[RDMUX_OFFER_BYTES_MAX];
    size_t nothing = encode(offer, bytes);
    offer->prefer = RDMUX_PREFER_LATENCY;
    offer->path_count = 1;
    strcpy(offer->paths[0].provider, "tcp");

    size_t size = encode(offer, bytes);

    assert_int_equal(nothing, 0);
    assert_int_equal(size, 19);
    assert_memory_equal(bytes,
                        "\x00\x01\x00\x04\x00\x00\x00\x01\x00\x10\x00\x07\x00\x01\x00\x03tcp", 19);
    free(offer);
}

static void an_offer_that_does_not_fit_its_buffer_is_refused(void **state)
{
    (void)state;
    struct rdmux_offer *offer = full_offer(2);
    static uint8_t bytes[RDMUX_OFFER_BYTES_MAX];
    size_t needed = encode(offer, bytes);
    for (size_t room = 0; room < needed; room++) {
        uint8_t *small = malloc(room > 0 ? room : 1);
        assert_non_null(small);
        size_t size = room;

        enum rdmux_status status = rdmux_offer_encode(offer, small, &size);

        assert_int_equal(status, RDMUX_LENGTH);
        assert_int_equal(size, room);
        free(small);
    }
    free(offer);
}

static void an_offer_cut_anywhere_is_refused_or_lacks_its_end(void **state)
{
    (void)state;
    struct rdmux_offer *offer = full_offer(2);
    struct rdmux_offer *back = new_offer();
    static uint8_t bytes[RDMUX_OFFER_BYTES_MAX];
    size_t size = encode(offer, bytes);
    size_t good = 0;
    for (size_t cut = 0; cut < size; cut++) {
        enum rdmux_status status = decode(bytes, cut, back);

        assert_true(status == RDMUX_OK || status == RDMUX_PROTOCOL);
        if (status == RDMUX_OK) {
            assert_sane(back);
            good++;
        }
    }
    assert_int_equal(good, 18); /* the borders of 16 fields and 2 paths */
    free(back);
    free(offer);
}

static void an_offer_with_any_byte_changed_is_refused_or_decodes_within_bounds(void **state)
{
    (void)state;
    struct rdmux_offer *offer = full_offer(2);
    struct rdmux_offer *back = new_offer();
    static uint8_t bytes[RDMUX_OFFER_BYTES_MAX];
    size_t size = encode(offer, bytes);
    static const uint8_t values[] = { 0x00, 0x01, 0x04, 0x08, 0x10, 0x7f, 0x80, 0xff };
    for (size_t at = 0; at < size; at++) {
        for (size_t i = 0; i < 8 + sizeof(values); i++) {
            uint8_t before = bytes[at];
            unsigned value = i < 8 ? before ^ (1u << i) : values[i - 8];
            bytes[at] = (uint8_t)value;

            enum rdmux_status status = rdmux_offer_decode(bytes, size, back);

            assert_true(status == RDMUX_OK || status == RDMUX_PROTOCOL);
            if (status == RDMUX_OK) {
                assert_sane(back);
            }
            bytes[at] = before;
        }
    }
    free(back);
    free(offer);
}

static void an_unknown_tlv_is_skipped_at_both_levels(void **state)
{
    (void)state;
    uint8_t path[64];
    uint8_t bytes[128];
    struct rdmux_offer *back = new_offer();
    size_t path_size = put(path, 0, 0x7fff, "????", 4);
    path_size = put(path, path_size, TLV_PROVIDER, "tcp", 3);
    path_size = put(path, path_size, 0, NULL, 0);
    size_t size = put(bytes, 0, 0x4000, "new", 3);
    size = put(bytes, size, TLV_PATH, path, path_size);
    size = put(bytes, size, 0x4000, "new", 3);

    enum rdmux_status status = decode(bytes, size, back);

    assert_int_equal(status, RDMUX_OK);
    assert_int_equal(back->path_count, 1);
    assert_string_equal(back->paths[0].provider, "tcp");
    free(back);
}

static void a_false_size_is_refused(void **state)
{
    (void)state;
    static const uint8_t zeros[300];
    static const struct {
        unsigned type;
        size_t length;
    } cases[] = {
        { TLV_PREFER, 0 },
        { TLV_PREFER, 3 },
        { TLV_PREFER, 5 },
        { TLV_PREFER, 8 },
        { 2, 4 },
        { TLV_SECRET, 15 },
        { TLV_SECRET, 17 },
        { TLV_SECRET, 0 },
        { TLV_PRIVATE_DATA, 197 },
        { TLV_FILTER, 256 },
        { TLV_FILTER, 1 /* NUL */ },
        { TLV_PATH, 3 },
        { TLV_PATH, 0 },
    };
    struct rdmux_offer *back = new_offer();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[512];
        size_t size = put(bytes, 0, cases[i].type, zeros, cases[i].length);

        enum rdmux_status status = decode(bytes, size, back);

        assert_int_equal(status, RDMUX_PROTOCOL);
    }
    free(back);
}

static void a_false_size_in_a_path_is_refused(void **state)
{
    (void)state;
    char name[300];
    memset(name, 'x', sizeof(name));
    static const struct {
        unsigned type;
        size_t length;
    } cases[] = { { 2, 3 },          { 9, 4 },   { TLV_DEVICE, 64 }, { 4, 128 },
                  { TLV_TEXT, 256 }, { 8, 256 }, { TLV_REACH, 129 } };
    struct rdmux_offer *back = new_offer();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t path[512];
        uint8_t bytes[512];
        size_t path_size = put(path, 0, TLV_PROVIDER, "tcp", 3);
        path_size = put(path, path_size, cases[i].type, name, cases[i].length);
        size_t size = put(bytes, 0, TLV_PATH, path, path_size);

        enum rdmux_status status = decode(bytes, size, back);

        assert_int_equal(status, RDMUX_PROTOCOL);
    }
    free(back);
}

static void a_provider_without_name_or_with_a_nul_in_it_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t length;
    } cases[] = { { "", 0 }, { "t\0p", 3 }, { "\0", 1 } };
    struct rdmux_offer *back = new_offer();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t path[16];
        uint8_t bytes[32];
        size_t path_size = put(path, 0, TLV_PROVIDER, cases[i].name, cases[i].length);
        size_t size = put(bytes, 0, TLV_PATH, path, path_size);

        enum rdmux_status status = decode(bytes, size, back);

        assert_int_equal(status, RDMUX_PROTOCOL);
    }
    free(back);
}

static void a_field_that_comes_twice_is_refused(void **state)
{
    (void)state;
    uint8_t path[32];
    uint8_t bytes[64];
    struct rdmux_offer *back = new_offer();

    size_t size = put(bytes, 0, TLV_PREFER, "\0\0\0\1", 4);
    size = put(bytes, size, TLV_PREFER, "\0\0\0\1", 4);
    enum rdmux_status outside = decode(bytes, size, back);
    size_t path_size = put(path, 0, TLV_PROVIDER, "tcp", 3);
    path_size = put(path, path_size, TLV_PROVIDER, "tcp", 3);
    size = put(bytes, 0, TLV_PATH, path, path_size);
    enum rdmux_status inside = decode(bytes, size, back);

    assert_int_equal(outside, RDMUX_PROTOCOL);
    assert_int_equal(inside, RDMUX_PROTOCOL);
    free(back);
}

static void one_path_too_many_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[RDMUX_OFFER_PATHS_MAX * 16 + 16];
    struct rdmux_offer *back = new_offer();
    size_t size = 0;
    for (size_t i = 0; i < RDMUX_OFFER_PATHS_MAX; i++) {
        size = put(bytes, size, TLV_PATH, "\x00\x01\x00\x03tcp", 7);
    }

    enum rdmux_status most = decode(bytes, size, back);
    size = put(bytes, size, TLV_PATH, "\x00\x01\x00\x03tcp", 7);
    enum rdmux_status more = decode(bytes, size, back);

    assert_int_equal(most, RDMUX_OK);
    assert_int_equal(more, RDMUX_PROTOCOL);
    free(back);
}

static void a_decoded_text_is_safe_to_print(void **state)
{
    (void)state;
    uint8_t path[64];
    uint8_t bytes[64];
    struct rdmux_offer *back = new_offer();
    size_t path_size = put(path, 0, TLV_PROVIDER, "t\x1b[m", 4);
    path_size = put(path, path_size, TLV_DEVICE, "\xff\xc3\xa9", 3);
    path_size = put(path, path_size, TLV_TEXT, "a\nb", 3);
    size_t size = put(bytes, 0, TLV_PATH, path, path_size);

    enum rdmux_status status = decode(bytes, size, back);

    assert_int_equal(status, RDMUX_OK);
    assert_string_equal(back->paths[0].provider, "t?[m");
    assert_string_equal(back->paths[0].path.device, "?\xc3\xa9");
    assert_string_equal(back->paths[0].path.text, "a?b");
    free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_offer_decodes_to_the_encoded_values),
        cmocka_unit_test(zero_and_empty_fields_take_no_bytes),
        cmocka_unit_test(an_offer_that_does_not_fit_its_buffer_is_refused),
        cmocka_unit_test(an_offer_cut_anywhere_is_refused_or_lacks_its_end),
        cmocka_unit_test(an_offer_with_any_byte_changed_is_refused_or_decodes_within_bounds),
        cmocka_unit_test(an_unknown_tlv_is_skipped_at_both_levels),
        cmocka_unit_test(a_false_size_is_refused),
        cmocka_unit_test(a_false_size_in_a_path_is_refused),
        cmocka_unit_test(a_provider_without_name_or_with_a_nul_in_it_is_refused),
        cmocka_unit_test(a_field_that_comes_twice_is_refused),
        cmocka_unit_test(one_path_too_many_is_refused),
        cmocka_unit_test(a_decoded_text_is_safe_to_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
