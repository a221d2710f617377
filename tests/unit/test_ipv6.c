/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A connection over IPv6 does what one over IPv4 does: addresses are in brackets, and data sockets
 * reach the same host. */
#include "tests/unit/api_pair.h"

/* Whether this machine has the loopback of IPv6. */
static bool has_ipv6(void)
{
    struct sockaddr_in6 here = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&here, sizeof(here)) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return has;
}

static void open_sides_over_ipv6(struct pair *pair, const char *paths)
{
    memset(pair, 0, sizeof(*pair));
    pair->fabric_a = open_fabric(paths, 0, NULL);
    pair->fabric_b = open_fabric(paths, 0, NULL);
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    CHECK_OK(rdmux_listen(pair->fabric_b, "[::1]:0", NULL, &pair->listener));
    CHECK_OK(rdmux_listener_address(pair->listener, pair->address, sizeof(pair->address)));
    assert_int_equal(strncmp(pair->address, "[::1]:", 6), 0);
}

static void data_uses_as_many_sockets_as_requested(void **state)
{
    (void)state;
    static const uint32_t sockets[] = { 1, 3 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(sockets) && has_ipv6(); i++) {
        struct pair pair;
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        attr.data_sockets = sockets[i];
        open_sides_over_ipv6(&pair, "tcp");

        connect_more(&pair, &attr, &pair.a, &pair.b);

        check_messages(&pair);
        CHECK_OK(rdmux_ep_info(pair.a, &info));
        assert_int_equal(info.data_sockets, sockets[i]);
        assert_string_equal(info.peer_address, pair.address);
        assert_int_equal(strncmp(info.local_address, "[::1]:", 6), 0);
        close_pair(&pair);
    }
    if (!has_ipv6()) {
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_uses_as_many_sockets_as_requested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
