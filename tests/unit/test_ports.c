/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The ports that connections are dialled from: all that the kernel has, and an error that says so if
 * there is none. */
#include "tests/unit/api_pair.h"

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

static bool kernel_has_ranges(void)
{
    uint32_t value = 0;
    socklen_t size = sizeof(value);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool has = getsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &value, &size) == 0;
    close(fd);
    return has;
}

static void each_socket_that_is_dialled_may_have_any_port(void **state)
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

static void no_free_port_is_told_with_its_remedy(void **state)
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

static void no_free_port_for_the_data_is_told_with_its_remedy(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_socket_that_is_dialled_may_have_any_port),
        cmocka_unit_test(no_free_port_is_told_with_its_remedy),
        cmocka_unit_test(no_free_port_for_the_data_is_told_with_its_remedy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
