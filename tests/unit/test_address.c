/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Addresses as text: parsed, formatted, resolved. */
#include "api/base/address.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "tests/unit/api_pair.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/un.h>

static void an_address_splits_into_its_parts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *host;
        const char *port;
    } cases[] = {
        { "192.0.2.1:80", "192.0.2.1", "80" },
        { "node7", "node7", "7471" },
        { "node7:0", "node7", "0" },
        { "node7:65535", "node7", "65535" },
        { "node7:007471", "node7", "7471" },
        { ":9", "", "9" },
        { "*", "", "7471" },
        { "*:12", "", "12" },
        { "", "", "7471" },
        { "[2001:db8::1]:99", "2001:db8::1", "99" },
        { "[2001:db8::1]", "2001:db8::1", "7471" },
        { "[fe80::1%eth0]:1", "fe80::1%eth0", "1" },
        { "2001:db8::1", "2001:db8::1", "7471" },
        { "::", "::", "7471" },
        { "::1", "::1", "7471" },
        { "[]:5", "", "5" },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_address_text parts;

        CHECK_OK(rdmux_address_split(cases[i].text, &parts));

        assert_string_equal(parts.host, cases[i].host);
        assert_string_equal(parts.port, cases[i].port);
    }
}

static void a_malformed_address_is_refused_and_the_text_names_it(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "node7:",
        "node7:http",
        "node7:-1",
        "node7:+1",
        "node7: 1",
        "node7:65536",
        "node7:99999999999999999999",
        "node7:80x",
        "[::1",
        "[::1]x",
        "[::1]80",
        "[::1]:",
        "[::1]:x",
        "[::1]:65536",
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_address_text parts;

        CHECK_STATUS(rdmux_address_split(cases[i], &parts), RDMUX_INVALID);

        assert_non_null(strstr(rdmux_last_error(), cases[i]));
    }
}

static void a_missing_address_and_an_endless_one_are_refused(void **state)
{
    (void)state;
    struct rdmux_address_text parts;
    char host[RDMUX_HOST_MAX + 8];
    memset(host, 'a', sizeof(host));
    host[sizeof(host) - 1] = '\0';

    CHECK_STATUS(rdmux_address_split(NULL, &parts), RDMUX_INVALID);
    CHECK_STATUS(rdmux_address_split(host, &parts), RDMUX_INVALID);
    host[RDMUX_HOST_MAX - 1] = '\0';
    CHECK_OK(rdmux_address_split(host, &parts));
}

static void a_printed_address_can_be_dialled(void **state)
{
    (void)state;
    char text[RDMUX_ADDRESS_MAX];
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(7471) };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(65535) };
    struct sockaddr_un local = { .sun_family = AF_UNIX };
    assert_int_equal(inet_pton(AF_INET, "192.0.2.1", &in.sin_addr), 1);
    assert_int_equal(inet_pton(AF_INET6, "2001:db8:1111:2222:3333:4444:5555:6666", &in6.sin6_addr),
                     1);

    assert_true(rdmux_address_format((struct sockaddr *)&in, sizeof(in), text));
    assert_string_equal(text, "192.0.2.1:7471");
    assert_true(rdmux_address_format((struct sockaddr *)&in6, sizeof(in6), text));
    assert_string_equal(text, "[2001:db8:1111:2222:3333:4444:5555:6666]:65535");
    assert_false(rdmux_address_format((struct sockaddr *)&local, sizeof(local), text));
    assert_string_equal(text, "socket");
}

static void a_printed_address_means_the_same_when_read(void **state)
{
    (void)state;
    static const char *const cases[] = { "192.0.2.1:7471", "[2001:db8::1]:80", "[::1]:1" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_address_text parts;
        struct addrinfo *addresses = NULL;
        char text[RDMUX_ADDRESS_MAX];
        CHECK_OK(rdmux_address_split(cases[i], &parts));
        CHECK_OK(rdmux_address_resolve(&parts, false, true, &addresses));

        assert_true(rdmux_address_format(addresses->ai_addr, addresses->ai_addrlen, text));

        assert_string_equal(text, cases[i]);
        freeaddrinfo(addresses);
    }
}

static void a_name_is_no_number_and_an_unknown_name_is_invalid(void **state)
{
    (void)state;
    struct rdmux_address_text parts;
    struct addrinfo *addresses = NULL;
    CHECK_OK(rdmux_address_split("nobody.invalid:1", &parts));

    CHECK_STATUS(rdmux_address_resolve(&parts, false, true, &addresses), RDMUX_AGAIN);
    CHECK_STATUS(rdmux_address_resolve(&parts, false, false, &addresses), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "nobody.invalid"));
}

static void a_listener_reports_its_address(void **state)
{
    (void)state;
    static const struct {
        const char *listen;
        const char *begins;
    } cases[] = { { "127.0.0.1:0", "127.0.0.1:" },
                  { "localhost:0", NULL },
                  { ":0", NULL },
                  { "*:0", NULL },
                  { "[::1]:0", "[::1]:" } };
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_listener *listener = NULL;
        char text[RDMUX_ADDRESS_MAX];
        struct rdmux_address_text parts;
        enum rdmux_status status = rdmux_listen(fabric, cases[i].listen, NULL, &listener);
        if (status == RDMUX_IO && cases[i].listen[0] == '[') {
            continue; /* a machine without IPv6 */
        }
        CHECK_OK(status);

        CHECK_OK(rdmux_listener_address(listener, text, sizeof(text)));

        CHECK_OK(rdmux_address_split(text, &parts));
        assert_string_not_equal(parts.port, "0");
        if (cases[i].begins != NULL) {
            assert_memory_equal(text, cases[i].begins, strlen(cases[i].begins));
        }
        rdmux_listener_close(listener);
    }
    CHECK_OK(rdmux_fabric_close(fabric));
}

static void a_listener_refuses_an_address_it_cannot_listen_on(void **state)
{
    (void)state;
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_listener *first = listen_here(fabric, NULL, address);
    static const struct {
        const char *address;
        enum rdmux_status status;
    } cases[] = {
        { NULL, RDMUX_INVALID },
        { "127.0.0.1:x", RDMUX_INVALID },
        { "nobody.invalid:0", RDMUX_INVALID },
        { "192.0.2.77:0", RDMUX_IO },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_listener *listener = (struct rdmux_listener *)(void *)&listener;

        CHECK_STATUS(rdmux_listen(fabric, cases[i].address, NULL, &listener), cases[i].status);

        assert_null(listener);
        assert_true(cases[i].address == NULL ||
                    strstr(rdmux_last_error(), cases[i].status == RDMUX_IO ? "192.0.2.77" : "\"") !=
                        NULL);
    }
    struct rdmux_listener *second = NULL;
    CHECK_STATUS(rdmux_listen(fabric, address, NULL, &second), RDMUX_IO);
    assert_non_null(strstr(rdmux_last_error(), "in use"));
    rdmux_listener_close(first);
    CHECK_OK(rdmux_fabric_close(fabric));
}

static void a_connector_needs_a_host(void **state)
{
    (void)state;
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    struct rdmux_cq *cq = create_cq(fabric);
    static const char *const cases[] = { NULL, "", ":7471", "*:7471", "127.0.0.1:70000" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_ep *ep = (struct rdmux_ep *)(void *)&ep;

        CHECK_STATUS(rdmux_connect(fabric, cq, cases[i], NULL, 100, &ep), RDMUX_INVALID);

        assert_null(ep);
    }
    CHECK_OK(rdmux_cq_destroy(cq));
    CHECK_OK(rdmux_fabric_close(fabric));
}

static void a_connector_dials_all_addresses_of_a_name(void **state)
{
    (void)state;
    struct pair pair;
    open_sides(&pair, "tcp", 0, 0);
    const char *port = strrchr(pair.address, ':');
    assert_non_null(port);
    char named[RDMUX_ADDRESS_MAX];
    (void)snprintf(named, sizeof(named), "localhost%s",
                   port); /* maybe ::1 first, without a listener */
    memcpy(pair.address, named, sizeof(named));

    connect_more(&pair, NULL, &pair.a, &pair.b);

    check_messages(&pair);
    close_pair(&pair);
}

static void an_unknown_name_ends_the_attempt(void **state)
{
    (void)state;
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    struct rdmux_cq *cq = create_cq(fabric);
    struct rdmux_ep *ep = NULL;

    CHECK_STATUS(rdmux_connect(fabric, cq, "nobody.invalid:1", NULL, PATIENT_MS, &ep),
                 RDMUX_INVALID);

    assert_non_null(strstr(rdmux_last_error(), "nobody.invalid"));
    CHECK_OK(rdmux_cq_destroy(cq));
    CHECK_OK(rdmux_fabric_close(fabric));
}

static void a_refusal_names_the_port_and_what_may_be_the_cause(void **state)
{
    (void)state;
    static const struct {
        const char *host;
        bool is_remote;
    } cases[] = { { "127.0.0.1", false },
                  { "::1", false },
                  { "127.3.2.1", false },
                  { "192.0.2.1", true },
                  { "2001:db8::1", true } };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_address_text text = { .port = "7471" };
        struct addrinfo *addresses = NULL;
        char why[RDMUX_TEXT_MAX];
        (void)snprintf(text.host, sizeof(text.host), "%s", cases[i].host);
        CHECK_OK(rdmux_address_resolve(&text, false, true, &addresses));

        rdmux_address_explain_refusal(addresses, why, sizeof(why));

        assert_non_null(strstr(why, "connection refused: nothing listens on port 7471"));
        assert_int_equal(strstr(why, "loopback") != NULL, cases[i].is_remote);
        freeaddrinfo(addresses);
    }
    char why[RDMUX_TEXT_MAX];
    rdmux_address_explain_refusal(NULL, why, sizeof(why));
    assert_string_equal(why, "connection refused");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_splits_into_its_parts),
        cmocka_unit_test(a_malformed_address_is_refused_and_the_text_names_it),
        cmocka_unit_test(a_missing_address_and_an_endless_one_are_refused),
        cmocka_unit_test(a_printed_address_can_be_dialled),
        cmocka_unit_test(a_printed_address_means_the_same_when_read),
        cmocka_unit_test(a_name_is_no_number_and_an_unknown_name_is_invalid),
        cmocka_unit_test(a_listener_reports_its_address),
        cmocka_unit_test(a_listener_refuses_an_address_it_cannot_listen_on),
        cmocka_unit_test(a_connector_needs_a_host),
        cmocka_unit_test(a_refusal_names_the_port_and_what_may_be_the_cause),
        cmocka_unit_test(a_connector_dials_all_addresses_of_a_name),
        cmocka_unit_test(an_unknown_name_ends_the_attempt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
