/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Connection data of iWARP ends, parsed from untrusted bytes. */
#include "iwarp/iwarp_connection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct iwarp_connection connection = {
    .ports = { 0x1234, 65535, 0, 1 },
    .shares_receives = true,
    .verbs = {
        .mtu = 3,
        .answers = 16,
        .asks = 32,
        .qpn = 0x000102,
        .side_qpn = 0x000304,
        .max_message = UINT32_MAX,
        .flush_rkey = 0xa1a2a3a4,
        .flush_addr = UINT64_C(0x1122334455667788),
        .where = {
            .fabric = VERBS_FABRIC_IWARP,
            .port = 1,
            .prefers = 4,
            .address_count = 2,
            .addresses = {
                { VERBS_ADDRESS_IPV4, { [10] = 0xff, [11] = 0xff, 10, 9, 1, 1 } },
                { VERBS_ADDRESS_IPV6, { 0xfd, 9, [15] = 1 } },
            },
        },
    },
};

static void connection_data_decodes_to_the_encoded_values(void **state)
{
    (void)state;
    uint8_t bytes[IWARP_CONNECTION_MAX + 4];
    struct iwarp_connection out;
    memset(bytes, 0x55, sizeof(bytes));
    size_t size = rdmux_iwarp_connection_encode(&connection, bytes);
    assert_in_range(size, IWARP_CONNECTION_FIXED, IWARP_CONNECTION_MAX);

    /* A later version may send more. */
    for (size_t more = 0; more < 4; more++) {
        memset(&out, 0, sizeof(out));
        assert_int_equal(rdmux_iwarp_connection_decode(bytes, size + more, &out), RDMUX_OK);
        assert_memory_equal(out.ports, connection.ports, sizeof(out.ports));
        assert_true(out.shares_receives);
        assert_int_equal(out.verbs.asks, connection.verbs.asks);
        assert_int_equal(out.verbs.answers, connection.verbs.answers);
        assert_int_equal(out.verbs.side_qpn, connection.verbs.side_qpn);
        assert_int_equal(out.verbs.max_message, connection.verbs.max_message);
        assert_int_equal(out.verbs.flush_rkey, connection.verbs.flush_rkey);
        assert_true(out.verbs.flush_addr == connection.verbs.flush_addr);
        assert_int_equal(out.verbs.where.address_count, 2);
        assert_memory_equal(out.verbs.where.addresses, connection.verbs.where.addresses,
                            2 * sizeof(struct verbs_address));
    }
}

static void connection_data_cut_short_at_any_byte_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[IWARP_CONNECTION_MAX];
    struct iwarp_connection out = { .ports = { 99 } };
    size_t size = rdmux_iwarp_connection_encode(&connection, bytes);
    for (size_t cut = 0; cut < size; cut++) {
        assert_int_equal(rdmux_iwarp_connection_decode(bytes, cut, &out), RDMUX_PROTOCOL);
    }
    assert_int_equal(out.ports[0], 99);
}

static void connection_data_of_another_kind_or_version_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[IWARP_CONNECTION_MAX];
    struct iwarp_connection out = { .ports = { 99 } };
    struct iwarp_connection other = connection;
    size_t size = rdmux_iwarp_connection_encode(&connection, bytes);
    for (size_t at = 0; at < 5; at++) { /* magic and version */
        bytes[at] ^= 0x80;
        assert_int_equal(rdmux_iwarp_connection_decode(bytes, size, &out), RDMUX_PROTOCOL);
        bytes[at] ^= 0x80;
    }
    other.verbs.where.fabric = VERBS_FABRIC_ROCE;
    size = rdmux_iwarp_connection_encode(&other, bytes);
    assert_int_equal(rdmux_iwarp_connection_decode(bytes, size, &out), RDMUX_PROTOCOL);
    assert_int_equal(out.ports[0], 99);
}

static const struct iwarp_private private_data = {
    .link = IWARP_SIDE,
    .secret = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 },
};

static void private_data_decodes_to_the_encoded_values_padded_or_not(void **state)
{
    (void)state;
    uint8_t bytes[56] = { 0 }; /* as some devices pad it */
    struct iwarp_private out;
    rdmux_iwarp_private_encode(&private_data, bytes);
    for (size_t size = IWARP_PRIVATE_SIZE; size <= sizeof(bytes); size++) {
        memset(&out, 0, sizeof(out));
        assert_int_equal(rdmux_iwarp_private_decode(bytes, size, &out), RDMUX_OK);
        assert_int_equal(out.link, IWARP_SIDE);
        assert_memory_equal(out.secret, private_data.secret, sizeof(out.secret));
    }
}

static void a_strangers_private_data_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[IWARP_PRIVATE_SIZE];
    struct iwarp_private out = { .link = 99 };
    rdmux_iwarp_private_encode(&private_data, bytes);
    for (size_t cut = 0; cut < sizeof(bytes); cut++) {
        assert_int_equal(rdmux_iwarp_private_decode(bytes, cut, &out), RDMUX_PROTOCOL);
    }
    for (size_t at = 0; at < 6; at++) { /* magic, version, and which connection it is */
        bytes[at] ^= 0x80;
        assert_int_equal(rdmux_iwarp_private_decode(bytes, sizeof(bytes), &out), RDMUX_PROTOCOL);
        bytes[at] ^= 0x80;
    }
    assert_int_equal(out.link, 99);
}

static void secrets_are_equal_only_if_every_bit_is(void **state)
{
    (void)state;
    uint8_t other[RDMUX_SECRET_SIZE];
    memcpy(other, private_data.secret, sizeof(other));
    assert_true(rdmux_iwarp_same_secret(private_data.secret, other));
    for (size_t bit = 0; bit < sizeof(other) * 8; bit++) {
        other[bit / 8] ^= (uint8_t)(1U << bit % 8);
        assert_false(rdmux_iwarp_same_secret(private_data.secret, other));
        other[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connection_data_decodes_to_the_encoded_values),
        cmocka_unit_test(connection_data_cut_short_at_any_byte_is_refused),
        cmocka_unit_test(connection_data_of_another_kind_or_version_is_refused),
        cmocka_unit_test(private_data_decodes_to_the_encoded_values_padded_or_not),
        cmocka_unit_test(a_strangers_private_data_is_refused),
        cmocka_unit_test(secrets_are_equal_only_if_every_bit_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
