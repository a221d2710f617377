/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The local ports and the local address of outgoing connections: all ports that the kernel has, and
 * an error that says so if none is free. */
#include "tests/unit/api_pair.h"

#include <arpa/inet.h>
#include <errno.h>

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif

enum {
    SOCKETS_EACH = 2, /* of a tcp endpoint: control and data */
    DIALLED_MAX = 16,
};

static struct {
    int fds[DIALLED_MAX];
    size_t count;
    size_t refused; /* from this one on there is no port; 0: there are ports */
    size_t bound;
    size_t gone_after; /* bindings, the address to bind to is gone; 0: it stays */
} dialled;

int __real_connect(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length);

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    if (address->sa_family == AF_INET && dialled.count < DIALLED_MAX) {
        dialled.fds[dialled.count++] = fd;
        if (dialled.refused != 0 && dialled.count >= dialled.refused) {
            errno = EADDRNOTAVAIL;
            return -1;
        }
    }
    return __real_connect(fd, address, length);
}

static uint32_t option_of(int fd, int name)
{
    uint32_t value = 0;
    socklen_t size = sizeof(value);
    assert_int_equal(getsockopt(fd, IPPROTO_IP, name, &value, &size), 0);
    return value;
}

int __real_bind(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length);

/* Of a dialled socket: no port is wished. rdmux_check_local() in api/setup/setup_offer.c looks with a socket that
 * does not wish to put the port off. */
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length)
{
    if (address->sa_family == AF_INET && option_of(fd, IP_BIND_ADDRESS_NO_PORT) != 0) {
        if (dialled.gone_after != 0 && dialled.bound >= dialled.gone_after) {
            errno = EADDRNOTAVAIL;
            return -1;
        }
        dialled.bound++;
    }
    return __real_bind(fd, address, length);
}

static bool kernel_has_ranges(void)
{
    uint32_t value = 0;
    socklen_t size = sizeof(value);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = getsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &value, &size) == 0;
    close(fd);
    return has;
}

static void each_dialled_socket_may_have_any_port(void **state)
{
    (void)state;
    struct pair pair;
    bool has_ranges = kernel_has_ranges();
    memset(&dialled, 0, sizeof(dialled));

    open_pair(&pair, "tcp", NULL);

    assert_int_equal(dialled.count, SOCKETS_EACH);
    for (size_t i = 0; i < dialled.count; i++) {
        assert_int_not_equal(option_of(dialled.fds[i], IP_BIND_ADDRESS_NO_PORT), 0);
        if (has_ranges) {
            assert_int_not_equal(option_of(dialled.fds[i], IP_LOCAL_PORT_RANGE), 0);
        }
    }
    close_pair(&pair);
}

static void check_remedy(const char *text)
{
    if (strstr(text, "net.ipv4.ip_local_port_range") == NULL) {
        fail_msg("what to do is not told: %s", text);
    }
}

static void a_lack_of_ports_is_reported_with_its_remedy(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_ep *ep = NULL;
    open_sides(&pair, "tcp", 0, 0);
    memset(&dialled, 0, sizeof(dialled));
    dialled.refused = 1;

    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &ep), RDMUX_IO);

    check_remedy(rdmux_last_error());
    close_pair(&pair);
}

static void a_lack_of_ports_for_data_sockets_is_reported_with_its_remedy(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    open_sides(&pair, "tcp", 0, 0);
    memset(&dialled, 0, sizeof(dialled));
    dialled.refused = SOCKETS_EACH;

    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &pair.a),
                 RDMUX_IN_PROGRESS);
    struct rdmux_wc wc;
    uint64_t until = now_ms() + PATIENT_MS;
    do {
        assert_true(now_ms() < until);
        CHECK_STATUS(rdmux_accept(pair.listener, pair.cq_b, NULL, 1, &pair.b), RDMUX_TIMED_OUT);
    } while (rdmux_cq_poll(pair.cq_a, &wc, 1) == 0);

    assert_int_equal(wc.status, RDMUX_NO_PATH);
    CHECK_OK(rdmux_ep_info(pair.a, &info));
    check_remedy(info.text);
    close_pair(&pair);
}

/* ---------------------------------------------------------------------------------- the address */

static void bind_attr(const char *local, uint32_t data_sockets, struct rdmux_ep_attr *out)
{
    *out = (struct rdmux_ep_attr)RDMUX_EP_ATTR_INIT;
    out->local = local;
    out->data_sockets = data_sockets;
    memset(&dialled, 0, sizeof(dialled));
}

static void check_address(int fd, int family, const char *expected)
{
    struct sockaddr_storage address = { 0 };
    socklen_t size = sizeof(address);
    char text[INET6_ADDRSTRLEN];
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(address.ss_family, family);
    const void *bytes = family == AF_INET
                            ? (const void *)&((struct sockaddr_in *)&address)->sin_addr
                            : (const void *)&((struct sockaddr_in6 *)&address)->sin6_addr;
    assert_non_null(inet_ntop(family, bytes, text, sizeof(text)));
    assert_string_equal(text, expected);
}

static void every_socket_comes_from_attr_local(void **state)
{
    enum { DATA_SOCKETS = 3 };
    (void)state;
    struct pair pair;
    struct rdmux_ep_attr attr;
    open_sides(&pair, "tcp", 0, 0);
    bind_attr("127.0.0.9", DATA_SOCKETS, &attr);

    connect_more(&pair, &attr, &pair.a, &pair.b);

    assert_int_equal(dialled.count, 1 + DATA_SOCKETS);
    for (size_t i = 0; i < dialled.count; i++) {
        check_address(dialled.fds[i], AF_INET, "127.0.0.9");
    }
    check_message(pair.a, pair.cq_a, pair.b, pair.cq_b, 1);
    close_pair(&pair);
}

static void the_routes_decide_without_attr_local(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_ep_attr attr;
    open_sides(&pair, "tcp", 0, 0);
    static const char *const not_addresses[] = { NULL, "lo" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(not_addresses); i++) {
        struct rdmux_ep *a = NULL;
        struct rdmux_ep *b = NULL;
        bind_attr(not_addresses[i], 1, &attr);

        connect_more(&pair, &attr, &a, &b);

        assert_int_equal(dialled.count, SOCKETS_EACH);
        for (size_t j = 0; j < dialled.count; j++) {
            check_address(dialled.fds[j], AF_INET, "127.0.0.1");
        }
        CHECK_OK(rdmux_ep_close(a));
        CHECK_OK(rdmux_ep_close(b));
    }
    close_pair(&pair);
}

static void an_address_that_disappears_during_set_up_is_reported(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_ep_attr attr;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_wc wc;
    open_sides(&pair, "tcp", 0, 0);
    bind_attr("127.0.0.9", 1, &attr);
    dialled.gone_after = 1; /* the control channel's socket was bound */

    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, &attr, 0, &pair.a),
                 RDMUX_IN_PROGRESS);
    uint64_t until = now_ms() + PATIENT_MS;
    do {
        assert_true(now_ms() < until);
        CHECK_STATUS(rdmux_accept(pair.listener, pair.cq_b, NULL, 1, &pair.b), RDMUX_TIMED_OUT);
    } while (rdmux_cq_poll(pair.cq_a, &wc, 1) == 0);

    assert_int_equal(wc.status, RDMUX_NO_PATH);
    CHECK_OK(rdmux_ep_info(pair.a, &info));
    if (strstr(info.text, "is it still this machine's") == NULL) {
        fail_msg("what to do is not told: %s", info.text);
    }
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_socket_comes_from_attr_local),
        cmocka_unit_test(the_routes_decide_without_attr_local),
        cmocka_unit_test(an_address_that_disappears_during_set_up_is_reported),
        cmocka_unit_test(each_dialled_socket_may_have_any_port),
        cmocka_unit_test(a_lack_of_ports_is_reported_with_its_remedy),
        cmocka_unit_test(a_lack_of_ports_for_data_sockets_is_reported_with_its_remedy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
