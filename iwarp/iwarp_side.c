/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Messages over the side channel, and the endpoints of a cq that have credits to tell of
 * (iwarp_cq.talkers).
 */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_side.h"

void rdmux_iwarp_side_say(struct iwarp_ep *ep, const struct iwarp_side *message)
{
    uint8_t bytes[IWARP_SIDE_SIZE];
    rdmux_iwarp_side_encode(message, bytes);
    rdmux_verbs_side_send(&ep->base, bytes);
}

/* False: there is more to tell. */
static bool talk_to_peer(struct iwarp_ep *ep)
{
    struct iwarp_side message;
    if (ep->base.state != VERBS_EP_CONNECTED || ep->is_side_over) {
        return true;
    }
    if (!ep->is_greeted || !rdmux_verbs_side_has_room(&ep->base)) {
        return false;
    }
    if (rdmux_iwarp_credit_tell(&ep->credit, &message)) {
        rdmux_iwarp_side_say(ep, &message);
    }
    return true; /* a message that waits for an acknowledgment goes when that comes */
}

void rdmux_iwarp_talk_all(struct iwarp_cq *cq)
{
    struct iwarp_ep *ep = cq->talkers;
    cq->talkers = NULL;
    while (ep != NULL) {
        struct iwarp_ep *next = ep->talk_next;
        ep->is_talking = false;
        if (!talk_to_peer(ep)) {
            ep->is_talking = true;
            ep->talk_next = cq->talkers;
            cq->talkers = ep;
        }
        ep = next;
    }
}

void rdmux_iwarp_talk_soon(struct iwarp_ep *ep)
{
    struct iwarp_cq *cq = iwarp_cq_of_ep(ep);
    if (cq->base.is_armed && talk_to_peer(ep)) {
        return; /* the next poll may be far away */
    }
    if (!ep->is_talking) {
        ep->is_talking = true;
        ep->talk_next = cq->talkers;
        cq->talkers = ep;
    }
}

void rdmux_iwarp_leave_talkers(struct iwarp_ep *ep)
{
    for (struct iwarp_ep **at = &iwarp_cq_of_ep(ep)->talkers; *at != NULL; at = &(*at)->talk_next) {
        if (*at == ep) {
            *at = ep->talk_next;
            break;
        }
    }
    ep->is_talking = false;
}

/* A message that waits uses a credit first; otherwise two waiting messages could take the same
 * credit from each other forever. */
void rdmux_iwarp_give_back(struct iwarp_ep *ep)
{
    bool keeps = ep->waits_for_credit && iwarp_credit_left(&ep->credit) != 0;
    if (ep->credit.answered != ep->credit.recalled_us && !keeps) {
        iwarp_credit_return(&ep->credit);
        rdmux_iwarp_talk_soon(ep);
    }
}
