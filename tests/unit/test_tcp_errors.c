/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Texts of the tcp provider for system errors: the object, the cause, and the remedy. */
#include "tcp_fallback/tcp_frame.h"
#include "tcp_fallback/tcp_socket.h"
#include "tests/unit/tcp_pair.h"

#include <errno.h>

enum { LOOKS = 1000, NO_ERROR = 100000 };

static void an_error_with_a_remedy_names_it(void **state)
{
    (void)state;
    static const struct {
        int error;
        const char *remedy;
    } cases[] = {
        { EMFILE, "ulimit -n" },
        { ENFILE, "fs.file-max" },
        { ENOSPC, "fs.epoll.max_user_watches" },
        { EADDRNOTAVAIL, "net.ipv4.ip_local_port_range" },
        { ETIMEDOUT, "liveness" },
        { ECONNREFUSED, "nobody listens" },
    };
    char text[RDMUX_TEXT_MAX];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        rdmux_tcp_error_text(text, sizeof(text), "tcp: the thing", cases[i].error);
        assert_int_equal(strncmp(text, "tcp: the thing: ", strlen("tcp: the thing: ")), 0);
        assert_non_null(strstr(text, strerror(cases[i].error)));
        assert_non_null(strstr(text, cases[i].remedy));
    }
}

static void an_error_without_a_remedy_is_reported_without_one(void **state)
{
    (void)state;
    char text[RDMUX_TEXT_MAX];
    rdmux_tcp_error_text(text, sizeof(text), "tcp: the thing", EPIPE);
    assert_string_equal(text, "tcp: the thing: Broken pipe");
    rdmux_tcp_error_text(text, sizeof(text), "tcp: the thing", NO_ERROR);
    assert_string_equal(text, "tcp: the thing: unknown error");
}

/* Finds a port of the IPv6 loopback without a listener. Returns false if there is no IPv6. */
static bool find_closed_port(struct sockaddr_in6 *out)
{
    socklen_t size = sizeof(*out);
    *out = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found = fd >= 0 && bind(fd, (struct sockaddr *)out, size) == 0 &&
                 getsockname(fd, (struct sockaddr *)out, &size) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return found;
}

static void a_refusal_over_ipv6_names_the_address(void **state)
{
    (void)state;
    struct end *end = end_create(RDMUX_ROLE_CONNECT, NULL);
    uint8_t description[TCP_DESCRIPTION_SIZE];
    struct sockaddr_in6 address;
    char port[32];
    bool is_here = find_closed_port(&address);
    end->attr.peer_address = (const struct sockaddr *)&address;
    end->attr.peer_address_length = sizeof(address);
    end_open(end);
    if (!is_here) {
        end_destroy(end, true);
        skip();
        return; /* skip() does not return, which clang-tidy does not know */
    }
    rdmux_tcp_description_encode(&(struct tcp_description){ .sockets = 1, .answers = 32 },
                                 description);

    enum rdmux_status status = ops->ep_connect(end->ep, description, sizeof(description));
    for (int i = 0; i < LOOKS && status == RDMUX_IN_PROGRESS; i++) {
        (void)ops->poll(end->cq, BUDGET);
        status = ops->ep_connect(end->ep, NULL, 0);
    }

    (void)snprintf(port, sizeof(port), "port %u", (unsigned)ntohs(address.sin6_port));
    assert_int_equal(status, RDMUX_REFUSED);
    assert_non_null(strstr(fake_error, "::1"));
    assert_non_null(strstr(fake_error, port));
    end_destroy(end, true);
    assert_int_equal(fake_fabric.allocations, 0);
}

static void an_endpoint_connects_at_most_once(void **state)
{
    (void)state;
    struct end *end = end_create(RDMUX_ROLE_CONNECT, NULL);
    int sockets[2];
    uint8_t description[TCP_DESCRIPTION_SIZE];
    socket_pair(false, sockets);
    end->attr.shared_socket = sockets[0];
    end_open(end);
    rdmux_tcp_description_encode(&(struct tcp_description){ .sockets = 1, .answers = 32 },
                                 description);
    assert_int_equal(ops->ep_connect(end->ep, description, sizeof(description)), RDMUX_OK);

    assert_int_equal(ops->ep_connect(end->ep, description, sizeof(description)), RDMUX_INVALID);
    assert_non_null(strstr(fake_error, "connected already"));

    end_destroy(end, true);
    close(sockets[0]);
    close(sockets[1]);
}

static void only_a_control_frame_is_sent_as_one(void **state)
{
    (void)state;
    struct end *end = end_create(RDMUX_ROLE_CONNECT, NULL);
    uint8_t frame[TCP_CONTROL_HEADER_SIZE + TCP_CONTROL_PAYLOAD_MAX + 1] = { 0 };
    end_open(end);
    assert_int_equal(ops->ep_control(end->ep, frame, TCP_CONTROL_HEADER_SIZE), RDMUX_INVALID);
    assert_non_null(strstr(fake_error, "cannot be sent here")); /* its sockets are its own */
    end_destroy(end, true);

    int sockets[2];
    end = end_create(RDMUX_ROLE_CONNECT, NULL);
    socket_pair(false, sockets);
    end->attr.shared_socket = sockets[0];
    end_open(end);
    assert_int_equal(ops->ep_control(end->ep, frame, sizeof(frame)), RDMUX_INVALID);
    assert_non_null(strstr(fake_error, "cannot be sent here")); /* too long */
    end_destroy(end, true);
    close(sockets[0]);
    close(sockets[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_error_with_a_remedy_names_it, clear_state),
        cmocka_unit_test_setup(an_error_without_a_remedy_is_reported_without_one, clear_state),
        cmocka_unit_test_setup(a_refusal_over_ipv6_names_the_address, clear_state),
        cmocka_unit_test_setup(an_endpoint_connects_at_most_once, clear_state),
        cmocka_unit_test_setup(only_a_control_frame_is_sent_as_one, clear_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
