/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the tcp provider refuses before it moves a byte, each time with a text, and what it reports
 * of the machine. */
#include "tcp_fallback/tcp_endpoint.h"
#include "tests/unit/tcp_pair.h"

#include <sys/resource.h>

static struct end *opened(enum rdmux_role role)
{
    struct end *end = end_create(role, NULL);
    end_open(end);
    return end;
}

static void a_region_is_described_by_its_whole_key_only(void **state)
{
    (void)state;
    struct end *end = opened(RDMUX_ROLE_CONNECT);
    struct rdmux_provider_mr mr = { .domain = end->domain };
    struct rdmux_provider_remote *remote = fake_object(ops->remote_size);
    uint8_t bytes[RDMUX_TARGET_KEY_SIZE] = { 0 };
    size_t size = sizeof(bytes) - 1;
    remote->ep = end->ep;

    assert_int_equal(ops->mr_describe(&mr, end->ep, bytes, &size), RDMUX_INVALID);
    assert_int_equal(ops->remote_open(remote, bytes, sizeof(bytes) - 1), RDMUX_PROTOCOL);
    assert_int_equal(ops->remote_open(remote, bytes, sizeof(bytes)), RDMUX_OK);

    ops->remote_close(remote);
    free(remote);
    end_destroy(end, true);
}

static void connection_data_needs_room(void **state)
{
    (void)state;
    struct end *end = opened(RDMUX_ROLE_CONNECT);
    uint8_t bytes[RDMUX_DESCRIPTION_MAX];
    size_t size = 1;

    assert_int_equal(ops->ep_describe(end->ep, bytes, &size), RDMUX_INVALID);
    assert_int_equal(size, 1);
    end_destroy(end, true);
}

static void connection_data_of_strangers_is_refused(void **state)
{
    (void)state;
    struct end *end = opened(RDMUX_ROLE_ACCEPT);
    struct end *wide = end_create(RDMUX_ROLE_CONNECT, NULL);
    uint8_t bytes[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(bytes);
    wide->attr.data_sockets = 4;
    end_open(wide);

    assert_int_not_equal(ops->ep_connect(end->ep, (const uint8_t *)"", 0), RDMUX_OK);
    assert_int_equal(ops->ep_describe(wide->ep, bytes, &size), RDMUX_OK);
    assert_int_equal(ops->ep_connect(end->ep, bytes, size), RDMUX_PROTOCOL); /* 4 sockets, not 1 */

    end_destroy(wide, true);
    end_destroy(end, true);
}

static void too_many_data_sockets_are_refused(void **state)
{
    (void)state;
    struct end *end = end_create(RDMUX_ROLE_CONNECT, NULL);
    end->attr.data_sockets = TCP_SOCKETS_MAX + 1;

    assert_int_equal(ops->ep_open(end->ep, &end->attr), RDMUX_INVALID);

    free(end->ep);
    ops->cq_close(end->cq);
    ops->domain_close(end->domain);
    free(end->cq);
    free(end->domain);
    free(end);
}

static void an_unexpected_data_socket_is_not_taken(void **state)
{
    (void)state;
    struct end *connector = opened(RDMUX_ROLE_CONNECT);
    struct end *acceptor = opened(RDMUX_ROLE_ACCEPT);
    int pair[2];
    socket_pair(true, pair);

    assert_int_equal(ops->ep_join(connector->ep, pair[0], 0), RDMUX_INVALID);
    assert_int_equal(ops->ep_join(acceptor->ep, pair[0], 1), RDMUX_INVALID);
    assert_int_equal(ops->ep_join(acceptor->ep, pair[0], 0), RDMUX_OK);
    assert_int_equal(ops->ep_join(acceptor->ep, pair[1], 0), RDMUX_INVALID); /* it has one */

    (void)close(pair[1]);
    end_destroy(connector, true);
    end_destroy(acceptor, true);
}

static void a_connector_without_an_address_does_not_dial(void **state)
{
    (void)state;
    struct end *end = opened(RDMUX_ROLE_CONNECT);
    uint8_t bytes[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(bytes);
    assert_int_equal(ops->ep_describe(end->ep, bytes, &size), RDMUX_OK);

    assert_int_equal(ops->ep_connect(end->ep, bytes, size), RDMUX_INVALID);
    end_destroy(end, true);
}

/* --------------------------------------------------------------------------------------- doctor */

struct findings {
    unsigned count;
    bool tells_of_descriptors;
};

static void look(void *user, const struct rdmux_provider_finding *finding)
{
    struct findings *findings = user;
    findings->count++;
    assert_non_null(finding->object);
    assert_true(finding->text[0] != '\0');
    findings->tells_of_descriptors |= strstr(finding->text, "descriptors") != NULL;
}

static void a_low_descriptor_limit_is_a_finding_and_a_high_one_is_none(void **state)
{
    (void)state;
    struct rlimit before;
    struct findings few = { 0 };
    struct findings many = { 0 };
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit limit = { .rlim_cur = 64, .rlim_max = before.rlim_max };

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(ops->inspect(&fake_fabric, look, &few), RDMUX_OK);
    limit.rlim_cur = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(ops->inspect(&fake_fabric, look, &many), RDMUX_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);

    assert_true(few.tells_of_descriptors);
    if (before.rlim_max >= 4096) {
        assert_false(many.tells_of_descriptors);
        assert_int_equal(few.count, many.count + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_region_is_described_by_its_whole_key_only, clear_state),
        cmocka_unit_test_teardown(connection_data_needs_room, clear_state),
        cmocka_unit_test_teardown(connection_data_of_strangers_is_refused, clear_state),
        cmocka_unit_test_teardown(too_many_data_sockets_are_refused, clear_state),
        cmocka_unit_test_teardown(an_unexpected_data_socket_is_not_taken, clear_state),
        cmocka_unit_test_teardown(a_connector_without_an_address_does_not_dial, clear_state),
        cmocka_unit_test(a_low_descriptor_limit_is_a_finding_and_a_high_one_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
