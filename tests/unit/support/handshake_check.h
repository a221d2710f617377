/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The final checks of tests that drive two handshakes. */
#ifndef RDMUX_TESTS_UNIT_HANDSHAKE_CHECK_H
#define RDMUX_TESTS_UNIT_HANDSHAKE_CHECK_H

#include "tests/unit/support/handshake_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const enum rdmux_handshake_action_kind steps[] = { RDMUX_ACTION_OPEN, RDMUX_ACTION_CONNECT,
                                                          RDMUX_ACTION_WRITE_PROOF,
                                                          RDMUX_ACTION_CHECK_PROOF };

static inline void assert_consistent(const struct pair *pair)
{
    const char *contradiction = pair_contradiction(pair);
    if (contradiction != NULL) {
        fail_msg("%s (acceptor: %s; connector: %s)", contradiction, pair->acceptor.end_text,
                 pair->connector.end_text);
    }
}

static inline void run(struct pair *pair)
{
    if (!pair_run(pair, NULL)) {
        fail_msg("stuck: acceptor %s, connector %s",
                 rdmux_handshake_state(pair->acceptor.handshake),
                 rdmux_handshake_state(pair->connector.handshake));
    }
    assert_consistent(pair);
}

static inline void assert_both_failed(const struct pair *pair, enum rdmux_status acceptor,
                                      enum rdmux_status connector)
{
    assert_true(pair->acceptor.failed);
    assert_true(pair->connector.failed);
    assert_int_equal(pair->acceptor.end.status, acceptor);
    assert_int_equal(pair->connector.end.status, connector);
}

#endif
