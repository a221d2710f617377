/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How plugin_opener ends. */
#ifndef RDMUX_TESTS_PLUGIN_OPENER_H
#define RDMUX_TESTS_PLUGIN_OPENER_H

enum {
    OPENER_QUIET = 10,   /* it opened a fabric, whose log does not have the word */
    OPENER_NAMED = 12,   /* the log has it */
    OPENER_SECURE = 1,   /* added to these: the program has rights that its user lacks */
    OPENER_FAILED = 20,  /* no fabric */
    OPENER_TRAPPED = 42, /* code of the trap ran */
};

#endif
