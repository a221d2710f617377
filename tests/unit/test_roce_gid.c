/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Which entries of a GID table are used, for tables as adapters have them, and what packets
 * carry. */
#include "roce/roce_gid.h"

#include "roce/roce_traffic.h"

#include <arpa/inet.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ENTRIES_MAX = 8, V1 = 1, V2 = ROCE_GID_TYPE_V2, ETH0 = 2, VLAN7 = 5, OTHER = 9 };

/* "192.0.2.1", "2001:db8::1", or "" for zeros. */
static void set_gid(uint8_t gid[VERBS_GID_SIZE], const char *address)
{
    memset(gid, 0, VERBS_GID_SIZE);
    if (address[0] == '\0' || inet_pton(AF_INET6, address, gid) == 1) {
        return;
    }
    gid[10] = 0xff;
    gid[11] = 0xff;
    assert_int_equal(inet_pton(AF_INET, address, gid + 12), 1);
}

struct entry {
    const char *address; /* NULL: the end of the table */
    uint32_t type;
    uint32_t interface;
    enum { UP, DOWN, VLAN } how;
};

static const struct test_case {
    const char *says;
    struct entry table[ENTRIES_MAX];
    const char *wished;
    const char *chosen[4]; /* in the order of kinds */
    enum roce_lack lack;
} cases[] = {
    { "an adapter as it comes: both versions of each address",
      { { "fe80::1", V1, ETH0, UP },
        { "fe80::1", V2, ETH0, UP },
        { "192.0.2.1", V1, ETH0, UP },
        { "192.0.2.1", V2, ETH0, UP } },
      "",
      { "192.0.2.1", "fe80::1" },
      ROCE_LACK_NOTHING },
    { "IPv6 only",
      { { "fe80::1", V2, ETH0, UP }, { "2001:db8::1", V2, ETH0, UP } },
      "",
      { "2001:db8::1", "fe80::1" },
      ROCE_LACK_NOTHING },
    { "unique local addresses are addresses",
      { { "fd00::1", V2, ETH0, UP } },
      "",
      { "fd00::1" },
      ROCE_LACK_NOTHING },
    { "169.254/16 is link-local, too",
      { { "169.254.7.7", V2, ETH0, UP } },
      "",
      { "169.254.7.7" },
      ROCE_LACK_NOTHING },
    { "an address that shares one byte with 169.254/16 is not",
      { { "192.0.2.1", V2, ETH0, UP },
        { "169.253.7.7", V2, ETH0, UP },
        { "10.254.7.7", V2, ETH0, UP } },
      "",
      { "192.0.2.1" },
      ROCE_LACK_NOTHING },
    { "the lowest index of several",
      { { "192.0.2.2", V2, ETH0, UP }, { "192.0.2.1", V2, ETH0, UP } },
      "",
      { "192.0.2.2" },
      ROCE_LACK_NOTHING },
    { "the address on the way to the peer before that",
      { { "192.0.2.2", V2, ETH0, UP }, { "192.0.2.1", V2, ETH0, UP } },
      "192.0.2.1",
      { "192.0.2.1" },
      ROCE_LACK_NOTHING },
    { "the interface on the way to the peer for the other family",
      { { "2001:db8::1", V2, ETH0, UP },
        { "2001:db8::2", V2, OTHER, UP },
        { "192.0.2.9", V2, OTHER, UP } },
      "192.0.2.9",
      { "192.0.2.9", "2001:db8::2" },
      ROCE_LACK_NOTHING },
    { "no VLAN, if nothing speaks for it",
      { { "192.0.2.1", V2, VLAN7, VLAN }, { "192.0.2.2", V2, ETH0, UP } },
      "",
      { "192.0.2.2" },
      ROCE_LACK_NOTHING },
    { "the VLAN that leads to the peer",
      { { "192.0.2.2", V2, ETH0, UP }, { "198.51.100.1", V2, VLAN7, VLAN } },
      "198.51.100.1",
      { "198.51.100.1" },
      ROCE_LACK_NOTHING },
    { "an interface that is down is left out",
      { { "192.0.2.1", V2, ETH0, DOWN }, { "192.0.2.2", V2, OTHER, UP } },
      "192.0.2.1",
      { "192.0.2.2" },
      ROCE_LACK_NOTHING },
    { "an interface of another namespace is left out",
      { { "192.0.2.1", V2, 0, UP }, { "2001:db8::1", V2, ETH0, UP } },
      "",
      { "2001:db8::1" },
      ROCE_LACK_NOTHING },
    { "an empty table", { { .address = NULL } }, "", { NULL }, ROCE_LACK_ENTRIES },
    { "RoCE v1 only", { { "192.0.2.1", V1, ETH0, UP } }, "", { NULL }, ROCE_LACK_VERSION_2 },
    { "all interfaces are down",
      { { "192.0.2.1", V2, ETH0, DOWN }, { "fe80::1", V1, ETH0, UP } },
      "",
      { NULL },
      ROCE_LACK_INTERFACE },
    { "entries without address",
      { { "", V2, ETH0, UP }, { "0.0.0.0", V2, ETH0, UP }, { "ff02::1", V2, ETH0, UP } },
      "",
      { NULL },
      ROCE_LACK_ADDRESS },
};

static size_t fill(struct roce_gid *table, const struct entry *entries)
{
    size_t count = 0;
    while (count < ENTRIES_MAX && entries[count].address != NULL) {
        table[count] = (struct roce_gid){ .index = (uint32_t)count,
                                          .type = entries[count].type,
                                          .interface = entries[count].interface,
                                          .is_interface_up = entries[count].how != DOWN,
                                          .is_vlan = entries[count].how == VLAN };
        set_gid(table[count].gid, entries[count].address);
        count++;
    }
    return count;
}

static void check(const struct test_case *test, struct roce_gid *table, size_t count)
{
    struct roce_wish wish = { .interface = 0 };
    struct roce_choice choice;
    set_gid(wish.local, test->wished);
    for (size_t i = 0; i < count; i++) {
        if (test->wished[0] != '\0' && memcmp(table[i].gid, wish.local, sizeof(wish.local)) == 0) {
            wish.interface = table[i].interface;
        }
    }

    enum roce_lack lack = rdmux_roce_gid_choose(table, count, &wish, &choice);

    size_t wanted = 0;
    while (wanted < 4 && test->chosen[wanted] != NULL) {
        wanted++;
    }
    if (lack != test->lack || choice.count != wanted) {
        fail_msg("%s: lack %d, %zu chosen", test->says, lack, choice.count);
    }
    for (size_t i = 0; i < wanted; i++) {
        uint8_t gid[VERBS_GID_SIZE];
        set_gid(gid, test->chosen[i]);
        if (memcmp(table[choice.entries[i]].gid, gid, sizeof(gid)) != 0 ||
            table[choice.entries[i]].type != V2 || choice.kinds[i] != rdmux_roce_gid_kind(gid)) {
            fail_msg("%s: choice %zu is entry %zu", test->says, i, choice.entries[i]);
        }
    }
}

static void the_best_entry_of_each_kind_is_chosen(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct roce_gid table[ENTRIES_MAX];
        size_t count = fill(table, cases[i].table);
        check(&cases[i], table, count);
    }
}

/* Adapters fill their tables in any order; only the index breaks ties. */
static void the_order_of_the_table_does_not_matter(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct roce_gid table[ENTRIES_MAX];
        size_t count = fill(table, cases[i].table);
        for (size_t at = 0; at < count / 2; at++) {
            struct roce_gid swapped = table[at];
            table[at] = table[count - 1 - at];
            table[count - 1 - at] = swapped;
        }
        check(&cases[i], table, count);
    }
}

static void the_traffic_class_is_dscp_and_ecn(void **state)
{
    (void)state;
    assert_int_equal(rdmux_roce_traffic_class(26, 2), 106);
    assert_int_equal(rdmux_roce_traffic_class(26, 0), 104);
    assert_int_equal(rdmux_roce_traffic_class(0, 0), 0);
    assert_int_equal(rdmux_roce_traffic_class(63, 3), 255);
    assert_int_equal(rdmux_roce_traffic_class(64, 4), 0); /* nothing spills over */
}

static void flow_labels_differ_and_are_never_zero(void **state)
{
    (void)state;
    enum { PAIRS = 1000, PORTS = 0x4000 };
    static uint8_t seen[PORTS];
    int distinct = 0;
    memset(seen, 0, sizeof(seen));
    for (uint32_t i = 0; i < PAIRS; i++) {
        uint32_t label = rdmux_roce_flow_label(100 + i, 500 + 2 * i);
        assert_in_range(label, 1, 0xfffff);
        /* ibv_flow_label_to_udp_sport(): what switches see */
        uint32_t port = (label & 0x3fff) ^ (label & 0xfc000) >> 14;
        distinct += seen[port] == 0;
        seen[port] = 1;
    }
    assert_true(distinct > PAIRS * 9 / 10);
    assert_int_equal(rdmux_roce_flow_label(7, 9), rdmux_roce_flow_label(7, 9));
    assert_true(rdmux_roce_flow_label(0, 0) != 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_entry_of_each_kind_is_chosen),
        cmocka_unit_test(the_order_of_the_table_does_not_matter),
        cmocka_unit_test(the_traffic_class_is_dscp_and_ecn),
        cmocka_unit_test(flow_labels_differ_and_are_never_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
