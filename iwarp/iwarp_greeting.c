/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The beginning of an endpoint's two connections.
 *
 * First sender. The acceptor's device may send nothing before it has received something from the
 * connector's (RFC 5044, 7.1.1). So the connector reads the peer's flush word over the data
 * connection. When the read has completed, it sends HELLO over the side channel. The acceptor may
 * then use both connections, and answers with HELLO.
 *
 * Early data. Bytes that arrive while the acceptor's kernel still attaches the connection to its
 * queue pair may stay in the socket until more bytes come (soft iWARP: siw_cm_llp_data_ready() in
 * state RDMA_MODE). So the connector repeats an unanswered read or HELLO, first after 20 ms, then
 * after twice as long each time.
 */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_chain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_side.h"
#include "verbs/verbs_state.h"

enum {
    NUDGE_NS = 20000000,
    NUDGES_MAX = 6,
};

static void wait_for_answer(struct iwarp_ep *ep)
{
    uint64_t now_ns = rdmux_provider_now_ns(verbs_fabric_of_ep(&ep->base));
    ep->nudge_at_ns = now_ns + ((uint64_t)NUDGE_NS << ep->nudges++);
}

static void prove_path(struct iwarp_ep *ep)
{
    if (verbs_send_ring_room(&ep->base.data.sent) != 0) {
        rdmux_verbs_chain_flush(&ep->base, NULL, VERBS_WISH_DONE);
        (void)rdmux_verbs_chain_ring(&ep->base.data);
    }
    wait_for_answer(ep);
}

static void greet_peer(struct iwarp_ep *ep)
{
    const struct iwarp_side hello = { .kind = IWARP_SIDE_HELLO };
    if (rdmux_verbs_side_has_room(&ep->base)) {
        rdmux_iwarp_side_say(ep, &hello);
    }
    wait_for_answer(ep);
}

void rdmux_iwarp_channel_up(struct iwarp_ep *ep)
{
    rdmux_provider_ready(&ep->base.base);
    if (!iwarp_is_up(ep) || ep->base.state > VERBS_EP_CONNECTED) {
        return;
    }
    rdmux_verbs_ep_enter(&ep->base, VERBS_EP_CONNECTED);
    if (ep->base.attr->role == RDMUX_ROLE_CONNECT) {
        ep->proof_end = ep->base.data.sent.head + 1;
        prove_path(ep);
    }
}

void rdmux_iwarp_look_at_proof(struct iwarp_ep *ep)
{
    if (verbs_send_ring_is_under_way(&ep->base.data.sent, ep->proof_end)) {
        return;
    }
    ep->is_proved = true;
    ep->nudges = 0;
    greet_peer(ep);
}

void rdmux_iwarp_greeted(struct iwarp_ep *ep)
{
    if (!ep->is_greeted && ep->base.attr->role == RDMUX_ROLE_ACCEPT) {
        greet_peer(ep);
    }
    ep->is_greeted = true;
    rdmux_provider_ready(&ep->base.base);
}

void rdmux_iwarp_nudge(struct iwarp_ep *ep)
{
    uint64_t now_ns = rdmux_provider_now_ns(verbs_fabric_of_ep(&ep->base));
    if (ep->base.attr->role != RDMUX_ROLE_CONNECT || ep->base.state != VERBS_EP_CONNECTED ||
        ep->is_greeted || ep->nudges > NUDGES_MAX || now_ns < ep->nudge_at_ns) {
        return;
    }
    if (ep->is_proved) {
        greet_peer(ep);
    } else {
        prove_path(ep);
    }
}
