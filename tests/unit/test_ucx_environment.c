/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Which environments let UCX's libraries be loaded, which transports may be named, and what users of
 * the others are told. */
#include "adapters/ucx/ucx_environment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *name;
    const char *value;
} safe[] = {
    { "UCX_HANDLE_ERRORS", "none" },
    { "UCX_DEBUG_SIGNO", "0" },
    { "UCX_MEM_EVENTS", "n" },
};
enum { SAFE_COUNT = sizeof(safe) / sizeof(safe[0]), ALL_SET = SAFE_COUNT };

/* The environment of a case: the safe one, except for one variable, which has another value or none. */
static size_t other;
static const char *other_value;

static char *get(const char *name)
{
    for (size_t i = 0; i < SAFE_COUNT; i++) {
        if (strcmp(name, safe[i].name) == 0) {
            return (char *)(uintptr_t)(i == other ? other_value : safe[i].value);
        }
    }
    return NULL;
}

static char text[RDMUX_TEXT_MAX];
static char hint[RDMUX_TEXT_MAX];

static bool is_safe(size_t index, const char *value)
{
    const struct ucx_environment environment = { .get = get };
    other = index;
    other_value = value;
    memset(text, '?', sizeof(text));
    memset(hint, '?', sizeof(hint));
    return rdmux_ucx_environment_is_safe(&environment, text, hint);
}

/* The same, of a program that was started with these strings. */
static bool is_safe_since(const char *start, size_t size)
{
    const struct ucx_environment environment = { .get = get, .start = start, .start_size = size };
    other = 0;
    other_value = NULL;
    return rdmux_ucx_environment_is_safe(&environment, text, hint);
}

static void the_environment_that_the_hint_names_is_safe(void **state)
{
    (void)state;

    assert_true(is_safe(ALL_SET, NULL));

    assert_string_equal(text, "");
    assert_string_equal(hint, "");
}

static void each_missing_variable_is_refused_by_its_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < SAFE_COUNT; i++) {
        assert_false(is_safe(i, NULL));

        assert_non_null(strstr(text, safe[i].name));
        for (size_t k = 0; k < SAFE_COUNT; k++) {
            char *setting = strstr(hint, safe[k].name);
            assert_non_null(setting);
            assert_int_equal(
                strncmp(strchr(setting, '=') + 1, safe[k].value, strlen(safe[k].value)), 0);
        }
        assert_null(strstr(text, "has changed"));
    }
}

static void only_values_that_turn_the_harm_off_are_safe(void **state)
{
    static const struct {
        size_t index;
        const char *value;
        bool is_safe;
    } cases[] = {
        { 0, "none", true },  { 0, "", false },      { 0, "bt", false }, { 0, "none,bt", false },
        { 0, "None", false }, { 1, "0", true },      { 1, "", false },   { 1, "SIGHUP", false },
        { 1, "1", false },    { 1, "00", false },    { 2, "n", true },   { 2, "N", true },
        { 2, "no", true },    { 2, "0", true },      { 2, "", false },   { 2, "y", false },
        { 2, "1", false },    { 2, "never", false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(is_safe(cases[i].index, cases[i].value), cases[i].is_safe);
    }
}

static void a_variable_that_the_program_has_removed_is_named_as_such(void **state)
{
    static const char start[] = "HOME=/\0UCX_HANDLE_ERRORS=none\0UCX_DEBUG_SIGNO=0";
    (void)state;

    assert_false(is_safe_since(start, sizeof(start)));

    assert_non_null(strstr(text, "the program has changed that variable since it started"));
    assert_non_null(strstr(hint, "leave it so"));
}

static void only_a_whole_safe_string_counts_as_removed(void **state)
{
    static const char *const starts[] = {
        "UCX_HANDLE_ERRORS=bt",    "XUCX_HANDLE_ERRORS=none",   "UCX_HANDLE_ERRORS",
        "UCX_HANDLE_ERRORSX=none", "UCX_HANDLE_ERRORS=none,bt",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        assert_false(is_safe_since(starts[i], strlen(starts[i]) + 1));
        assert_null(strstr(text, "has changed"));
    }
    /* Cut off, as the buffer for it was full: the value may go on. */
    assert_false(is_safe_since("UCX_HANDLE_ERRORS=none", strlen("UCX_HANDLE_ERRORS=none")));
    assert_null(strstr(text, "has changed"));
}

static void a_program_with_more_rights_than_its_user_loads_nothing(void **state)
{
    const struct ucx_environment environment = { .get = get, .is_secure = true };
    (void)state;
    other = ALL_SET;

    assert_false(rdmux_ucx_environment_is_safe(&environment, text, hint));

    assert_non_null(strstr(text, "rights"));
    assert_string_not_equal(hint, "");
}

static void a_process_is_judged_by_its_own_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < SAFE_COUNT; i++) {
        assert_int_equal(setenv(safe[i].name, safe[i].value, 1), 0);
    }
    assert_true(rdmux_ucx_process_is_safe(text, hint));
    for (size_t i = 0; i < SAFE_COUNT; i++) {
        assert_int_equal(unsetenv(safe[i].name), 0);

        assert_false(rdmux_ucx_process_is_safe(text, hint));

        assert_non_null(strstr(text, safe[i].name));
        assert_int_equal(setenv(safe[i].name, safe[i].value, 1), 0);
    }
}

static bool transports_are_safe(const char *tls, const char *version)
{
    memset(text, '?', sizeof(text));
    memset(hint, '?', sizeof(hint));
    return rdmux_ucx_transports_are_safe(tls, version, text, hint);
}

static void a_list_with_ud_is_refused_under_any_of_its_names(void **state)
{
    static const char *const lists[] = {
        "ud",   "ud_verbs", "tcp,ud_mlx5", "rc",  "dc,tcp",     "tcp,ib",       "all",
        "rc_v", "dc_x",     "ud_x",        "u*",  "\\ud_verbs", "ud_verbs:aux", "rc_verbs,tcp,rc",
        "^tcp", "^",        "^tcp,sm",     "^rc",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        assert_false(transports_are_safe(lists[i], "1.13.1"));

        assert_non_null(strstr(text, "1.13.1"));
        assert_non_null(strstr(hint, "UCX_TLS=rc_verbs,tcp"));
    }
}

static void a_list_without_ud_is_safe(void **state)
{
    static const char *const lists[] = {
        NULL, "", "tcp", "rc_verbs,tcp", "tcp,rc_mlx5", "sm,tcp", "self", "^ud", "^ib,sm", "t*",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        assert_true(transports_are_safe(lists[i], "1.13.1"));

        assert_string_equal(text, "");
        assert_string_equal(hint, "");
    }
}

static void the_remedy_for_ud_is_safe_itself(void **state)
{
    (void)state;
    assert_false(transports_are_safe("all", "1.13.1"));
    unsigned count = 0;
    for (const char *at = strstr(hint, "UCX_TLS="); at != NULL; at = strstr(at, "UCX_TLS=")) {
        char list[64] = "";
        at += strlen("UCX_TLS=");
        const size_t length = strcspn(at, " ;");
        memcpy(list, at, at[length - 1] == ',' ? length - 1 : length);
        count++;
        assert_true(
            rdmux_ucx_transports_are_safe(list, "1.13.1", text, (char[RDMUX_TEXT_MAX]){ 0 }));
    }
    assert_int_equal(count, 3);
}

static void later_versions_may_use_ud(void **state)
{
    (void)state;
    assert_true(transports_are_safe("ud", "1.14.0"));
    assert_true(transports_are_safe("ud", "1.22.0"));
    assert_true(transports_are_safe("ud", "2.0.0"));
    assert_false(transports_are_safe("ud", "1.9.0"));
    assert_false(transports_are_safe("ud", "unknown"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_that_the_hint_names_is_safe),
        cmocka_unit_test(each_missing_variable_is_refused_by_its_name),
        cmocka_unit_test(only_values_that_turn_the_harm_off_are_safe),
        cmocka_unit_test(a_variable_that_the_program_has_removed_is_named_as_such),
        cmocka_unit_test(only_a_whole_safe_string_counts_as_removed),
        cmocka_unit_test(a_program_with_more_rights_than_its_user_loads_nothing),
        cmocka_unit_test(a_process_is_judged_by_its_own_environment),
        cmocka_unit_test(a_list_with_ud_is_refused_under_any_of_its_names),
        cmocka_unit_test(a_list_without_ud_is_safe),
        cmocka_unit_test(the_remedy_for_ud_is_safe_itself),
        cmocka_unit_test(later_versions_may_use_ud),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
