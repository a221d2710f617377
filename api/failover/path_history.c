/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How the paths of an endpoint fared, and the order in which a move tries them. */
#include "api/core/ep.h"
#include "api/failover/failover.h"
#include "api/failover/failover_state.h"
#include "api/session/setup_state.h"
#include "negotiation/handshake.h"

#include <stdio.h>
#include <string.h>

static struct rdmux_handshake *handshake_of(const struct rdmux_ep *ep)
{
    const struct rdmux_setup *setup = ep->setup != NULL ? ep->setup : ep->failover->setup;
    return setup->handshake;
}

bool rdmux_failover_leaves_out(const struct rdmux_ep *ep, size_t rank)
{
    const struct rdmux_failover *failover = ep->failover;
    uint64_t oldest = failover->lost_ns[rank - 1][RDMUX_LOSSES - 1];
    return oldest != 0 && rdmux_now(ep->fabric) - oldest < failover->hold_ns;
}

void rdmux_failover_note_loss(struct rdmux_ep *ep, uint64_t now_ns)
{
    struct rdmux_failover *failover = ep->failover;
    size_t rank = rdmux_handshake_current_rank(handshake_of(ep));
    if (rank == 0 || rank > RDMUX_MATCH_MAX) {
        return;
    }
    uint64_t *lost = failover->lost_ns[rank - 1];
    memmove(lost + 1, lost, (RDMUX_LOSSES - 1) * sizeof(*lost));
    lost[0] = now_ns;
    if (rdmux_failover_leaves_out(ep, rank)) {
        snprintf(failover->move.left_text, sizeof(failover->move.left_text),
                 "failed %d times within %llu ms, left out while another works: %.160s",
                 RDMUX_LOSSES, (unsigned long long)(failover->hold_ns / RDMUX_NS_PER_MS),
                 failover->move.cause_text);
        rdmux_log_about(ep->fabric, RDMUX_CATEGORY_FAILOVER, RDMUX_LOG_WARN,
                        "endpoint %llu: %s %s %s", (unsigned long long)ep->id, ep->info.provider,
                        ep->info.device, failover->move.left_text);
    }
}

void rdmux_failover_order_pairs(struct rdmux_ep *ep)
{
    struct rdmux_failover *failover = ep->failover;
    uint8_t *out = failover->search.order;
    size_t ranked = rdmux_handshake_ranked(ep->setup->handshake);
    size_t goal = failover->move.cause == RDMUX_OK && rdmux_failback_goal(ep) <= ranked
                      ? rdmux_failback_goal(ep)
                      : 0;
    size_t count = 0;
    if (goal != 0) {
        out[count++] = (uint8_t)goal;
    }
    const uint64_t now_ns = rdmux_now(ep->fabric);
    uint64_t latest_ns = 0;
    for (size_t rank = 1; rank <= ranked; rank++) {
        uint64_t lost_ns = failover->lost_ns[rank - 1][0];
        latest_ns = lost_ns > latest_ns ? lost_ns : latest_ns;
    }
    for (int round = 0; round < 4; round++) {
        for (size_t rank = 1; rank <= ranked; rank++) {
            const uint64_t vain_ns = failover->search.vain_ns[rank - 1];
            int repute = rdmux_failover_leaves_out(ep, rank)                             ? 3
                         : vain_ns != 0 && now_ns - vain_ns < failover->hold_ns          ? 2
                         : failover->lost_ns[rank - 1][0] == latest_ns && latest_ns != 0 ? 1
                                                                                         : 0;
            if (repute == round && rank != goal &&
                rdmux_handshake_takes_granted(ep->setup->handshake, rank)) {
                out[count++] = (uint8_t)rank;
            }
        }
    }
    failover->search.order_count = count;
}
