/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Exit statuses of plugin_opener. */
#ifndef RDMUX_TESTS_PLUGIN_OPENER_H
#define RDMUX_TESTS_PLUGIN_OPENER_H

enum {
    OPENER_QUIET = 10,   /* the fabric opened, and its log lacks the word */
    OPENER_NAMED = 12,   /* the fabric opened, and its log has the word */
    OPENER_SECURE = 1,   /* added to the two above: the program has rights that its user lacks */
    OPENER_FAILED = 20,  /* no fabric opened */
    OPENER_TRAPPED = 42, /* code of the trap ran */
};

#endif
