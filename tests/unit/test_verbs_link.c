/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A port's codes and their meaning. */
#include "verbs/verbs_link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void the_bandwidth_of_a_link_is_speed_times_width(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t speed;
        uint32_t width;
        uint64_t mega; /* 10^6 bytes per second, rounded down */
    } cases[] = {
        { "SDR", 1, 1, 250 },      { "SDR", 1, 2, 1000 },    { "DDR", 2, 2, 2000 },
        { "QDR", 4, 2, 4000 },     { "FDR10", 8, 2, 5000 },  { "FDR", 16, 2, 6818 },
        { "EDR", 32, 1, 3125 },    { "EDR", 32, 2, 12500 },  { "HDR", 64, 2, 25000 },
        { "HDR", 64, 16, 12500 },  { "NDR", 128, 2, 50000 }, { "NDR", 128, 16, 25000 },
        { "XDR", 256, 2, 100000 }, { "EDR", 32, 8, 37500 },  { "XDR", 256, 4, 200000 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bandwidth = rdmux_verbs_link_bandwidth(cases[i].speed, cases[i].width);
        assert_int_equal(bandwidth / 1000000, cases[i].mega);
        assert_string_equal(rdmux_verbs_link_speed_name(cases[i].speed), cases[i].name);
    }
}

static void an_unknown_code_gives_no_figure(void **state)
{
    (void)state;
    assert_true(rdmux_verbs_link_bandwidth(0, 2) == 0);
    assert_true(rdmux_verbs_link_bandwidth(512, 2) == 0);
    assert_true(rdmux_verbs_link_bandwidth(32, 3) == 0);
    assert_string_equal(rdmux_verbs_link_speed_name(3), "?");
    assert_int_equal(rdmux_verbs_link_lanes(0), 0);
}

static void mtu_codes_are_powers_of_two(void **state)
{
    (void)state;
    static const uint32_t bytes[] = { 0, 256, 512, 1024, 2048, 4096, 0 };
    for (uint32_t code = 0; code < sizeof(bytes) / sizeof(bytes[0]); code++) {
        assert_int_equal(rdmux_verbs_mtu_bytes(code), bytes[code]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bandwidth_of_a_link_is_speed_times_width),
        cmocka_unit_test(an_unknown_code_gives_no_figure),
        cmocka_unit_test(mtu_codes_are_powers_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
