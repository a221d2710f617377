/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How `rdmux conformance --peer` comes to a session on another host. */
#ifndef RDMUX_TOOL_CONFORMANCE_PEER_H
#define RDMUX_TOOL_CONFORMANCE_PEER_H

#include "tests/conformance/peer.h"

/* Asks the server at address (HOST[:PORT]) for a session and connects to it. Makes rdmux calls in a
 * process of its own only. Returns an exit code; errors are printed. */
int conformance_peer_open(const char *address, struct peer *out);

#endif
