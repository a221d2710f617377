/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Path filters: their syntax, and which paths they admit. */
#include "negotiation/filter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void a_filter_admits_the_providers_it_names(void **state)
{
    (void)state;
    static const struct {
        const char *filter;
        const char *allowed; /* of "shm ib roce iwarp tcp" */
    } cases[] = {
        { NULL, "shm ib roce iwarp tcp " },
        { "", "shm ib roce iwarp tcp " },
        { " \t", "shm ib roce iwarp tcp " },
        { "auto", "shm ib roce iwarp tcp " },
        { "roce,tcp", "roce tcp " },
        { "tcp,roce", "roce tcp " },
        { " tcp , roce\t", "roce tcp " },
        { "!shm", "ib roce iwarp tcp " },
        { "!shm,!tcp", "ib roce iwarp " },
        { "auto,!shm", "ib roce iwarp tcp " },
        { "!shm,auto", "ib roce iwarp tcp " },
        { "shm,tcp,!shm", "tcp " },
        { "!tcp,tcp", "" },
        { "tc", "" },
        { "tcpx", "" },
        { "!ro", "shm ib roce iwarp tcp " },
    };
    static const char *const providers[] = { "shm", "ib", "roce", "iwarp", "tcp" };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char allowed[64] = "";
        size_t used = 0;

        enum rdmux_status status = rdmux_filter_check(cases[i].filter, NULL);
        for (size_t j = 0; j < 5; j++) {
            if (rdmux_filter_allows(cases[i].filter, providers[j])) {
                used += (size_t)snprintf(allowed + used, sizeof(allowed) - used, "%s ",
                                         providers[j]);
            }
        }

        assert_int_equal(status, RDMUX_OK);
        assert_string_equal(allowed, cases[i].allowed);
    }
}

static void the_error_names_the_bad_word_of_a_filter(void **state)
{
    (void)state;
    static const struct {
        const char *filter;
        size_t at;
    } cases[] = {
        { "TCP", 0 },      { "tcp,RoCE", 4 },      { "tcp, ro ce", 5 }, { "tcp,", 4 },
        { ",tcp", 0 },     { "tcp,,shm", 4 },      { "!", 0 },          { "shm, !", 5 },
        { "!!shm", 0 },    { "shm;tcp", 0 },       { "! shm", 0 },      { "tcp,!auto", 4 },
        { "tcp\nshm", 0 }, { "shm,t\xc3\xa9", 4 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *word = NULL;

        enum rdmux_status status = rdmux_filter_check(cases[i].filter, &word);

        assert_int_equal(status, RDMUX_INVALID);
        assert_ptr_equal(word, cases[i].filter + cases[i].at);
    }
}

static void an_unchecked_word_names_no_provider(void **state)
{
    (void)state;

    assert_true(rdmux_filter_allows("shm,lib.so", "shm"));
    assert_false(rdmux_filter_allows("shm,lib.so", "tcp"));
    assert_true(rdmux_filter_allows("!lib.so,!", "tcp"));
    assert_false(rdmux_filter_allows(",", "tcp"));
    assert_false(rdmux_filter_allows("TCP", "tcp"));
}

static void a_name_or_a_filter_that_is_too_long_is_refused(void **state)
{
    (void)state;
    char name[RDMUX_NAME_MAX + 1];
    memset(name, 'a', sizeof(name));
    name[RDMUX_NAME_MAX] = '\0';
    char filter[RDMUX_FILTER_MAX + 1];
    memset(filter, ' ', sizeof(filter));
    filter[0] = 'a';
    filter[RDMUX_FILTER_MAX] = '\0';

    enum rdmux_status too_long = rdmux_filter_check(name, NULL);
    name[RDMUX_NAME_MAX - 1] = '\0';
    enum rdmux_status longest = rdmux_filter_check(name, NULL);
    enum rdmux_status too_much = rdmux_filter_check(filter, NULL);
    filter[RDMUX_FILTER_MAX - 1] = '\0';
    enum rdmux_status most = rdmux_filter_check(filter, NULL);

    assert_int_equal(too_long, RDMUX_INVALID);
    assert_int_equal(longest, RDMUX_OK);
    assert_int_equal(too_much, RDMUX_INVALID);
    assert_int_equal(most, RDMUX_OK);
}

static void only_a_name_without_negation_counts_as_named(void **state)
{
    (void)state;

    assert_true(rdmux_filter_names("shm, tcp", "tcp"));
    assert_false(rdmux_filter_names("!tcp", "tcp"));
    assert_false(rdmux_filter_names("auto", "tcp"));
    assert_false(rdmux_filter_names("", "tcp"));
    assert_false(rdmux_filter_names(NULL, "tcp"));
    assert_false(rdmux_filter_names("tcpx,xtcp", "tcp"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_filter_admits_the_providers_it_names),
        cmocka_unit_test(the_error_names_the_bad_word_of_a_filter),
        cmocka_unit_test(an_unchecked_word_names_no_provider),
        cmocka_unit_test(a_name_or_a_filter_that_is_too_long_is_refused),
        cmocka_unit_test(only_a_name_without_negation_counts_as_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
