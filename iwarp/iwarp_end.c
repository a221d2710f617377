/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * How a connection ends, and why. A device that refuses an access of the peer, or has no receive
 * long enough, ends the data connection (RFC 5040, 7.1); the side channel lives on. Closing an
 * endpoint ends both. So when the data connection ends alone, each end sends what it knows over the
 * side channel: that its device reported a fault, or only that it has revoked a key that the peer
 * had, as some devices do not report that (siw: siw_proc_write() with an unknown key). Requests
 * posted before and not known to have arrived are in doubt.
 *
 * A device that cannot send reports an inconsistent request, even if the connection has ended
 * meanwhile (siw: siw_qp_sq_process() with any result of TCP). So that report counts as the cause
 * only if neither end knows another one.
 */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_side.h"
#include "verbs/verbs_state.h"

#include <stdarg.h>
#include <stdio.h>

static bool has_revoked(const struct iwarp_ep *ep)
{
    return atomic_load(&iwarp_domain_of_ep(ep)->revoked) != ep->revoked_before;
}

static void tell_end(struct iwarp_ep *ep)
{
    if (ep->is_end_told || !ep->is_greeted || !rdmux_verbs_side_has_room(&ep->base)) {
        return;
    }
    const struct iwarp_side message = { .kind = IWARP_SIDE_ENDED,
                                        .is_key_revoked = has_revoked(ep) };
    ep->is_end_told = true;
    rdmux_iwarp_side_say(ep, &message);
}

/* Reports all pending requests as OUTCOME_UNKNOWN: no end knows which one was refused. */
static void leave_in_doubt(struct iwarp_ep *ep)
{
    const struct verbs_send_ring *ring = &ep->base.data.sent;
    for (uint32_t slot = ring->tail; slot != ring->head; slot++) {
        struct rdmux_request *request = ring->requests[slot & ring->mask];
        if (request != NULL && !request->done) {
            rdmux_verbs_report(&ep->base, request, RDMUX_OUTCOME_UNKNOWN);
        }
    }
}

static void conclude_end(struct iwarp_ep *ep)
{
    const bool took_key_back = ep->is_end_heard && ep->end.is_key_revoked;
    if (ep->is_side_over && !took_key_back) {
        rdmux_verbs_fail(&ep->base, RDMUX_PEER_GONE, "the peer ended the connection, or is gone");
        return;
    }
    if (!ep->is_side_over && (!ep->is_data_over || !ep->is_end_heard)) {
        return;
    }
    if (has_revoked(ep) || ep->end.is_key_revoked) {
        leave_in_doubt(ep);
        rdmux_verbs_fail(&ep->base, RDMUX_DENIED,
                         "the connection ended as it does when a key is used that was taken back; "
                         "%s has revoked a region that was imported",
                         has_revoked(ep) ? "this end" : "the peer");
        return;
    }
    if (ep->suspicion != RDMUX_OK) {
        rdmux_verbs_fail(&ep->base, ep->suspicion, "%s", ep->suspicion_text);
        return;
    }
    rdmux_verbs_fail(&ep->base, RDMUX_PEER_GONE,
                     "the connection for data was lost and no device says why, while the peer is "
                     "there");
}

void rdmux_iwarp_connect_failed(struct iwarp_ep *ep, const char *format, ...)
{
    va_list arguments;
    if (ep->connect_status != RDMUX_OK) {
        return;
    }
    ep->connect_status = RDMUX_IO;
    int used = snprintf(ep->connect_text, sizeof(ep->connect_text),
                        "iwarp %.40s port %u: ", verbs_domain_of_ep(&ep->base)->device,
                        ep->base.port);
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    (void)vsnprintf(ep->connect_text + used, sizeof(ep->connect_text) - (size_t)used, format,
                    arguments);
    va_end(arguments);
    rdmux_provider_ready(&ep->base.base);
}

void rdmux_iwarp_channel_ended(struct iwarp_ep *ep, uint8_t index)
{
    if (ep->base.state >= VERBS_EP_FAILED) {
        return;
    }
    if (ep->connect_status == RDMUX_OK && (!ep->is_greeted || ep->is_connecting)) {
        rdmux_iwarp_connect_failed(ep, "the peer ended the connection while it was made");
    }
    if (index == IWARP_SIDE) {
        ep->is_side_over = true;
    } else {
        ep->is_data_over = true;
        tell_end(ep);
    }
    conclude_end(ep);
}

/* Called whenever the device itself ended the connection; a completion may tell why. */
void rdmux_iwarp_broke(struct verbs_queue *queue)
{
    struct iwarp_ep *ep = iwarp_of(queue->ep);
    rdmux_iwarp_channel_ended(ep, queue == &ep->base.data ? IWARP_DATA : IWARP_SIDE);
}

/* Tells the peer before this end closes both connections at once. */
void rdmux_iwarp_refuses(struct verbs_queue *queue)
{
    struct iwarp_ep *ep = iwarp_of(queue->ep);
    if (queue == &ep->base.data && ep->base.state == VERBS_EP_CONNECTED) {
        tell_end(ep);
    }
}

void rdmux_iwarp_end_heard(struct iwarp_ep *ep, const struct iwarp_side *message)
{
    ep->is_end_heard = true;
    ep->end = *message;
    tell_end(ep);
    conclude_end(ep);
}
