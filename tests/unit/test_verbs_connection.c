/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Connection data and addresses, parsed from untrusted bytes, and the choices that both ends must
 * make alike. */
#include "verbs/verbs_connection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t v4[] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1 };
static const uint8_t v6[] = { 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7 };
static const uint8_t local[] = { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9 };
static const uint8_t ib[] = { 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0x1f, 0x5a, 1 };

static void add(struct verbs_whereabouts *where, uint8_t kind, const uint8_t *gid)
{
    struct verbs_address *address = &where->addresses[where->address_count++];
    address->kind = kind;
    memcpy(address->gid, gid, sizeof(address->gid));
}

static struct verbs_connection fullest(void)
{
    struct verbs_connection connection = {
        .mtu = 5,
        .ack_delay = 15,
        .service_level = 3,
        .answers = 16,
        .asks = 128,
        .side_depth = 4,
        .qpn = 0x123456,
        .psn = 0xfedcba,
        .side_qpn = 0x123457,
        .side_psn = 1,
        .max_message = 0x80000000,
        .flush_rkey = 0xdeadbeef,
        .flush_addr = UINT64_C(0x7fff12345678),
        .where = { .fabric = VERBS_FABRIC_ROCE, .port = 2, .prefers = 4, .lid = 0xbeef },
    };
    add(&connection.where, VERBS_ADDRESS_IB, ib);
    add(&connection.where, VERBS_ADDRESS_IPV4, v4);
    add(&connection.where, VERBS_ADDRESS_IPV6, v6);
    add(&connection.where, VERBS_ADDRESS_LINK_LOCAL, local);
    connection.where.pkey_count = VERBS_PKEYS_MAX;
    for (unsigned i = 0; i < VERBS_PKEYS_MAX; i++) {
        connection.where.pkeys[i] = (uint16_t)(0x8001U + i);
    }
    return connection;
}

static void connection_data_decodes_to_the_encoded_values(void **state)
{
    (void)state;
    const struct verbs_connection in = fullest();
    uint8_t bytes[VERBS_CONNECTION_MAX];
    struct verbs_connection out;

    size_t size = rdmux_verbs_connection_encode(&in, bytes);
    enum rdmux_status status = rdmux_verbs_connection_decode(bytes, size, VERBS_FABRIC_ROCE, &out);

    assert_int_equal(size, VERBS_CONNECTION_MAX);
    assert_int_equal(status, RDMUX_OK);
    assert_int_equal(out.mtu, in.mtu);
    assert_int_equal(out.ack_delay, in.ack_delay);
    assert_int_equal(out.service_level, in.service_level);
    assert_int_equal(out.answers, in.answers);
    assert_int_equal(out.asks, in.asks);
    assert_int_equal(out.side_depth, in.side_depth);
    assert_int_equal(out.qpn, in.qpn);
    assert_int_equal(out.psn, in.psn);
    assert_int_equal(out.side_qpn, in.side_qpn);
    assert_int_equal(out.side_psn, in.side_psn);
    assert_int_equal(out.max_message, in.max_message);
    assert_int_equal(out.flush_rkey, in.flush_rkey);
    assert_true(out.flush_addr == in.flush_addr);
    assert_int_equal(out.where.fabric, in.where.fabric);
    assert_int_equal(out.where.port, in.where.port);
    assert_int_equal(out.where.prefers, in.where.prefers);
    assert_int_equal(out.where.lid, in.where.lid);
    assert_int_equal(out.where.address_count, in.where.address_count);
    assert_memory_equal(out.where.addresses, in.where.addresses, sizeof(in.where.addresses));
    assert_int_equal(out.where.pkey_count, in.where.pkey_count);
    assert_memory_equal(out.where.pkeys, in.where.pkeys, sizeof(in.where.pkeys));
}

static void a_missing_depth_of_the_side_channel_means_the_most(void **state)
{
    (void)state;
    struct verbs_connection in = fullest();
    struct verbs_connection out;
    uint8_t bytes[VERBS_CONNECTION_MAX];
    in.side_depth = 0;
    size_t size = rdmux_verbs_connection_encode(&in, bytes);
    assert_int_equal(rdmux_verbs_connection_decode(bytes, size, in.where.fabric, &out), RDMUX_OK);
    assert_int_equal(out.side_depth, VERBS_SIDE_DEPTH);
}

static void data_cut_short_at_any_byte_is_refused_and_leaves_the_output_alone(void **state)
{
    (void)state;
    const struct verbs_connection in = fullest();
    uint8_t bytes[VERBS_CONNECTION_MAX];
    size_t size = rdmux_verbs_connection_encode(&in, bytes);

    for (size_t cut = 0; cut < size; cut++) {
        uint8_t exact[VERBS_CONNECTION_MAX]; /* its end is the end of the readable bytes */
        uint8_t *at = exact + sizeof(exact) - cut;
        struct verbs_connection out = { .qpn = 99 };
        memcpy(at, bytes, cut);
        assert_int_equal(rdmux_verbs_connection_decode(at, cut, VERBS_FABRIC_ROCE, &out),
                         RDMUX_PROTOCOL);
        assert_int_equal(out.qpn, 99);
    }
}

static void data_of_a_later_version_may_be_longer(void **state)
{
    (void)state;
    const struct verbs_connection in = fullest();
    uint8_t bytes[VERBS_CONNECTION_MAX + 40] = { 0 };
    struct verbs_connection out;
    size_t size = rdmux_verbs_connection_encode(&in, bytes);

    assert_int_equal(rdmux_verbs_connection_decode(bytes, size + 40, VERBS_FABRIC_ROCE, &out),
                     RDMUX_OK);
}

static void impossible_values_are_refused(void **state)
{
    (void)state;
    enum { WHERE = VERBS_CONNECTION_FIXED, FIRST_KIND = WHERE + 8, SECOND_KIND = FIRST_KIND + 17 };
    static const struct {
        const char *says;
        size_t at;
        uint8_t byte;
    } cases[] = {
        { "magic", 0, 'X' },
        { "version", 4, 2 },
        { "mtu 0", 5, 0 },
        { "mtu 6", 5, 6 },
        { "ack delay of six bits", 6, 32 },
        { "service level of five bits", 7, 16 },
        { "queue pair of 25 bits", 12, 1 },
        { "packet sequence number of 25 bits", 16, 1 },
        { "side queue pair of 25 bits", 20, 1 },
        { "side packet sequence number of 25 bits", 24, 1 },
        { "whereabouts' version", WHERE, 0 },
        { "fabric 0", WHERE + 1, 0 },
        { "fabric 4", WHERE + 1, 4 },
        { "another fabric", WHERE + 1, VERBS_FABRIC_IB },
        { "port 0", WHERE + 2, 0 },
        { "family 5", WHERE + 3, 5 },
        { "five addresses", WHERE + 4, 5 },
        { "nine P_Keys", WHERE + 5, 9 },
        { "kind 0", FIRST_KIND, 0 },
        { "kind 5", FIRST_KIND, 5 },
        { "a kind twice", SECOND_KIND, VERBS_ADDRESS_IB },
    };
    const struct verbs_connection in = fullest();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[VERBS_CONNECTION_MAX];
        struct verbs_connection out = { .qpn = 99 };
        size_t size = rdmux_verbs_connection_encode(&in, bytes);
        bytes[cases[i].at] = cases[i].byte;

        enum rdmux_status status = rdmux_verbs_connection_decode(bytes, size, VERBS_FABRIC_ROCE,
                                                                 &out);

        if (status != RDMUX_PROTOCOL || out.qpn != 99) {
            fail_msg("%s was not refused", cases[i].says);
        }
    }
    struct verbs_connection silent = fullest();
    uint8_t bytes[VERBS_CONNECTION_MAX];
    silent.max_message = 0;
    size_t size = rdmux_verbs_connection_encode(&silent, bytes);
    assert_int_equal(rdmux_verbs_connection_decode(bytes, size, VERBS_FABRIC_ROCE, &silent),
                     RDMUX_PROTOCOL);
}

static void both_ends_choose_the_same_kind_of_address(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        uint8_t a[4]; /* kinds, then 0 */
        uint8_t a_prefers;
        uint8_t b[4];
        uint8_t b_prefers;
        uint8_t kind;
    } cases[] = {
        { "IPv4 first", { 2, 3, 4 }, 4, { 2, 3, 4 }, 4, VERBS_ADDRESS_IPV4 },
        { "IPv4 without a wish", { 2, 3 }, 0, { 2, 3 }, 0, VERBS_ADDRESS_IPV4 },
        { "IPv6 if both prefer it", { 2, 3 }, 6, { 2, 3 }, 6, VERBS_ADDRESS_IPV6 },
        { "IPv4 if one prefers it", { 2, 3 }, 6, { 2, 3 }, 4, VERBS_ADDRESS_IPV4 },
        { "what one has not is not chosen", { 2, 3 }, 4, { 3, 4 }, 4, VERBS_ADDRESS_IPV6 },
        { "a preference for what one has not", { 2 }, 6, { 2, 3 }, 6, VERBS_ADDRESS_IPV4 },
        { "link-local in the last place", { 2, 4 }, 4, { 3, 4 }, 4, VERBS_ADDRESS_LINK_LOCAL },
        { "nothing in common", { 2 }, 4, { 3, 4 }, 4, 0 },
        { "nothing at all", { 0 }, 4, { 2 }, 4, 0 },
        { "InfiniBand", { 1 }, 0, { 1 }, 0, VERBS_ADDRESS_IB },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct verbs_whereabouts a = { .prefers = cases[i].a_prefers };
        struct verbs_whereabouts b = { .prefers = cases[i].b_prefers };
        for (size_t k = 0; k < 4 && cases[i].a[k] != 0; k++) {
            add(&a, cases[i].a[k], v4);
        }
        for (size_t k = 0; k < 4 && cases[i].b[k] != 0; k++) {
            add(&b, cases[i].b[k], v6);
        }
        if (rdmux_verbs_common_kind(&a, &b) != cases[i].kind ||
            rdmux_verbs_common_kind(&b, &a) != cases[i].kind) {
            fail_msg("%s: kinds %u and %u", cases[i].says, rdmux_verbs_common_kind(&a, &b),
                     rdmux_verbs_common_kind(&b, &a));
        }
    }
}

static void both_ends_choose_the_same_partition(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        uint16_t a[3];
        uint16_t b[3];
        int a_index; /* -1: none */
        int b_index;
    } cases[] = {
        { "the default partition", { 0xffff }, { 0xffff }, 0, 0 },
        { "one full member is enough", { 0x7fff }, { 0xffff }, 0, 0 },
        { "two limited members do not talk", { 0x7fff }, { 0x7fff }, -1, -1 },
        { "the highest of several", { 0x8001, 0xffff }, { 0xffff, 0x8001 }, 1, 0 },
        { "one where both are, not the highest", { 0xffff, 0x8002 }, { 0x8001, 0x8002 }, 1, 1 },
        { "none", { 0x8001 }, { 0x8002 }, -1, -1 },
        { "an empty entry is no partition", { 0x8000 }, { 0x8000 }, -1, -1 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct verbs_whereabouts a = { .pkey_count = 0 };
        struct verbs_whereabouts b = { .pkey_count = 0 };
        for (size_t k = 0; k < 3; k++) {
            a.pkeys[k] = cases[i].a[k];
            b.pkeys[k] = cases[i].b[k];
            a.pkey_count = (uint8_t)(a.pkey_count + (cases[i].a[k] != 0));
            b.pkey_count = (uint8_t)(b.pkey_count + (cases[i].b[k] != 0));
        }
        size_t at_a = 77;
        size_t at_b = 77;
        enum rdmux_status status = rdmux_verbs_common_pkey(&a, &b, &at_a);
        assert_int_equal(rdmux_verbs_common_pkey(&b, &a, &at_b), status);
        if (cases[i].a_index < 0) {
            assert_int_equal(status, RDMUX_UNSUPPORTED);
            assert_int_equal(at_a, 77);
        } else if (at_a != (size_t)cases[i].a_index || at_b != (size_t)cases[i].b_index) {
            fail_msg("%s: %zu and %zu", cases[i].says, at_a, at_b);
        }
    }
}

static void gids_are_printed_in_the_form_of_their_kind(void **state)
{
    (void)state;
    char text[64];
    rdmux_verbs_gid_print(VERBS_ADDRESS_IPV4, v4, text, sizeof(text));
    assert_string_equal(text, "192.0.2.1");
    rdmux_verbs_gid_print(VERBS_ADDRESS_IPV6, v6, text, sizeof(text));
    assert_string_equal(text, "2001:db8::7");
    rdmux_verbs_gid_print(VERBS_ADDRESS_IB, ib, text, sizeof(text));
    assert_string_equal(text, "fe80::2:c903:1f:5a01");
    rdmux_verbs_gid_print(VERBS_ADDRESS_IPV6, v6, text, 3);
    assert_string_equal(text, "");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(connection_data_decodes_to_the_encoded_values),
        cmocka_unit_test(a_missing_depth_of_the_side_channel_means_the_most),
        cmocka_unit_test(data_cut_short_at_any_byte_is_refused_and_leaves_the_output_alone),
        cmocka_unit_test(data_of_a_later_version_may_be_longer),
        cmocka_unit_test(impossible_values_are_refused),
        cmocka_unit_test(both_ends_choose_the_same_kind_of_address),
        cmocka_unit_test(both_ends_choose_the_same_partition),
        cmocka_unit_test(gids_are_printed_in_the_form_of_their_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
