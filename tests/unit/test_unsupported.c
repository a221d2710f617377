/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What a provider table returns for operations that its fabric lacks. */
#include "tests/unit/fake_core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void report_nothing(void *user, const struct rdmux_provider_finding *finding)
{
    (void)user;
    fail_msg("a finding: %s", finding->text);
}

static void a_device_without_events_has_no_descriptor_and_no_event(void **state)
{
    (void)state;
    struct rdmux_provider_event event = { .reason = RDMUX_REASON_PORT_DOWN };

    assert_int_equal(rdmux_unsupported_domain_fd(NULL), -1);
    assert_int_equal(rdmux_unsupported_async_event(NULL, &event), RDMUX_AGAIN);

    assert_int_equal(event.reason, RDMUX_REASON_PORT_DOWN);
}

static void operations_that_a_path_lacks_are_unsupported(void **state)
{
    (void)state;
    const struct rdmux_provider_ops ops = { .name = "some" };
    struct rdmux_provider_ep ep = { .ops = &ops };

    assert_int_equal(rdmux_unsupported_inspect(&fake_fabric, report_nothing, NULL),
                     RDMUX_UNSUPPORTED);
    assert_int_equal(rdmux_unsupported_ep_join(&ep, -1, 0), RDMUX_UNSUPPORTED);
    assert_string_equal(fake_error, "some: this path takes no further sockets");
    assert_int_equal(rdmux_unsupported_ep_control(&ep, "", 0), RDMUX_UNSUPPORTED);
    assert_string_equal(fake_error, "some: this path carries no control channel");
    assert_int_equal(rdmux_unsupported_ep_ping(&ep), RDMUX_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_without_events_has_no_descriptor_and_no_event),
        cmocka_unit_test(operations_that_a_path_lacks_are_unsupported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
