/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Opens the session on another host for `rdmux conformance --peer`. */
#ifndef RDMUX_TOOL_CONFORMANCE_PEER_H
#define RDMUX_TOOL_CONFORMANCE_PEER_H

#include "tests/conformance/peer.h"

/* Asks the server at address (HOST[:PORT]) for a session and connects to it. Makes rdmux calls only
 * in a process of its own. Prints errors and returns an exit code. */
int conformance_peer_open(const char *address, struct peer *out);

#endif
