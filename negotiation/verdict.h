/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Verdicts that tell a reader nothing new. A path of this side has a pair with each of the peer's
 * paths of its provider, so that most of many candidates are like others. For texts and tables. */
#ifndef RDMUX_NEGOTIATION_VERDICT_H
#define RDMUX_NEGOTIATION_VERDICT_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <string.h>

/* Returns whether both are of one path and say the same of it. That the peer has none says the same
 * of each path of the provider. */
static inline bool rdmux_verdict_is_same(const struct rdmux_candidate *a,
                                         const struct rdmux_candidate *b)
{
    const bool ours = a->device[0] != '\0';
    const bool is_same_path = strcmp(ours ? a->device : a->peer_device,
                                     ours ? b->device : b->peer_device) == 0 ||
                              a->reason == RDMUX_REASON_PEER_HAS_NONE;
    return is_same_path && ours == (b->device[0] != '\0') &&
           strcmp(a->provider, b->provider) == 0 && a->reason == b->reason &&
           strcmp(a->text, b->text) == 0;
}

/* Returns whether the pair cannot reach each other, and the other is one of the same path here that
 * could. */
static inline bool rdmux_verdict_is_outdone(const struct rdmux_candidate *candidate,
                                            const struct rdmux_candidate *other)
{
    return candidate->reason == RDMUX_REASON_NOT_REACHABLE && candidate->device[0] != '\0' &&
           other->reason != RDMUX_REASON_NOT_REACHABLE &&
           strcmp(other->provider, candidate->provider) == 0 &&
           strcmp(other->device, candidate->device) == 0;
}

#endif
