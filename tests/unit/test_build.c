/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The build itself: the compiled version is the version of the project. */
#include <rdmux/rdmux.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void the_library_has_the_version_of_the_project(void **state)
{
    (void)state;

    const char *version = rdmux_version();

    assert_non_null(version);
    assert_string_equal(version, RDMUX_PROJECT_VERSION);
}

static void the_header_has_the_version_of_the_library(void **state)
{
    (void)state;
    char expected[32];
    (void)snprintf(expected, sizeof(expected), "%d.%d.%d", RDMUX_VERSION_MAJOR, RDMUX_VERSION_MINOR,
                   RDMUX_VERSION_PATCH);

    const char *version = rdmux_version();

    assert_string_equal(version, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_has_the_version_of_the_project),
        cmocka_unit_test(the_header_has_the_version_of_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
