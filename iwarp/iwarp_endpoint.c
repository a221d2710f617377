/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Endpoints: two connections to the peer, one for the data, one for the side channel.
 */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_address.h"
#include "verbs/verbs_chain.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_side.h"
#include "verbs/verbs_state.h"
#include "verbs/verbs_transport.h"

#include <assert.h>

static_assert(offsetof(struct iwarp_ep, base) == 0, "iwarp_ep_of() relies on it");

enum {
    READS_MAX = 64, /* in either direction; each takes device memory */
    MTU_LEAST = 1,  /* an MTU code */
    PING_CALLS = 2, /* that may come before the answer */
};

/* ----------------------------------------------------------------------------------------- open */

enum rdmux_status rdmux_iwarp_open_reads(struct verbs_queue *queue)
{
    const uint32_t slots = queue->sent.mask + 1;
    queue->is_read = rdmux_provider_allocate(verbs_fabric_of_ep(queue->ep),
                                             slots * sizeof(*queue->is_read));
    if (queue->is_read == NULL) {
        rdmux_provider_error("iwarp: out of memory for an endpoint");
        return RDMUX_NO_MEMORY;
    }
    return RDMUX_OK;
}

static enum rdmux_status open_slots(struct iwarp_ep *ep)
{
    struct verbs_queue *data = &ep->base.data;
    enum rdmux_status status = rdmux_iwarp_open_reads(data);
    if (status != RDMUX_OK) {
        return status;
    }
    return rdmux_verbs_headers_open(&ep->send_headers, verbs_domain_of_ep(&ep->base),
                                    data->sent.mask + 1);
}

enum rdmux_status rdmux_iwarp_ep_open(struct rdmux_provider_ep *base,
                                      const struct rdmux_provider_ep_attr *attr)
{
    struct iwarp_ep *ep = iwarp_ep_of(base);
    rdmux_iwarp_deferred_destroy_collect(&iwarp_cq_of_ep(ep)->deferred);
    enum rdmux_status status = rdmux_verbs_ep_open(base, attr);
    if (status != RDMUX_OK) {
        return status;
    }
    for (size_t i = 0; i < IWARP_LINKS; i++) {
        ep->channels[i].cm.base.heard = rdmux_iwarp_channel_heard;
        ep->channels[i].cm.ep = ep;
        ep->channels[i].index = (uint8_t)i;
    }
    ep->is_proved = attr->role == RDMUX_ROLE_ACCEPT;
    ep->revoked_before = atomic_load(&iwarp_domain_of_ep(ep)->revoked);
    rdmux_provider_secret(base, ep->secret);
    rdmux_iwarp_srq_join(ep);
    status = open_slots(ep);
    if (status != RDMUX_OK) {
        rdmux_iwarp_ep_close(base);
    }
    return status;
}

/* -------------------------------------------------------------------------------------- connect */

static enum rdmux_status locate_device(struct iwarp_ep *ep)
{
    const struct rdmux_provider_ep_attr *attr = ep->base.attr;
    const char *device = verbs_domain_of_ep(&ep->base)->device;
    uint8_t near[VERBS_GID_SIZE];
    rdmux_verbs_own_address(attr, near);
    enum rdmux_status status = rdmux_iwarp_find_addresses(device, ep->base.port, near,
                                                          &ep->ours.verbs.where, NULL);
    if (status == RDMUX_OK && ep->ours.verbs.where.address_count == 0) {
        rdmux_provider_error("%s port %u has no IP address; give its network interface one", device,
                             ep->base.port);
        return RDMUX_IO;
    }
    return status;
}

enum rdmux_status rdmux_iwarp_ep_describe(struct rdmux_provider_ep *base, uint8_t *out, size_t *size)
{
    struct iwarp_ep *ep = iwarp_ep_of(base);
    const struct verbs_domain *domain = verbs_domain_of_ep(&ep->base);
    struct verbs_connection *ours = &ep->ours.verbs;
    if (*size < IWARP_CONNECTION_MAX) {
        rdmux_provider_error("iwarp: connection data needs %d bytes", IWARP_CONNECTION_MAX);
        return RDMUX_INVALID;
    }
    enum rdmux_status status = rdmux_verbs_describe_port(&ep->base);
    *ours = ep->base.ours;
    ours->mtu = ours->mtu >= MTU_LEAST ? ours->mtu : (uint8_t)MTU_LEAST;
    if (status == RDMUX_OK) {
        status = locate_device(ep);
    }
    ours->answers = verbs_read_depth(domain->attr.max_qp_rd_atom, READS_MAX);
    ours->asks = verbs_read_depth(domain->attr.max_qp_init_rd_atom, READS_MAX);
    ours->side_depth = ep->base.ours.side_depth;
    ours->qpn = ep->base.data.qp->qp_num & VERBS_QPN_MASK;
    ours->side_qpn = ep->base.side.queue.qp->qp_num & VERBS_QPN_MASK;
    ours->flush_rkey = domain->flush_mr->rkey;
    ours->flush_addr = (uintptr_t)&domain->page->flush_word;
    ep->base.ours = *ours;
    ep->ours.shares_receives = ep->base.attr->srq != NULL;
    if (status == RDMUX_OK && ep->base.attr->role == RDMUX_ROLE_ACCEPT) {
        status = rdmux_iwarp_listen(ep);
    }
    if (status == RDMUX_OK) {
        *size = rdmux_iwarp_connection_encode(&ep->ours, out);
    }
    return status;
}

static enum rdmux_status learn_description(struct iwarp_ep *ep, const uint8_t *peer, size_t size)
{
    enum rdmux_status status = rdmux_iwarp_connection_decode(peer, size, &ep->theirs);
    if (status != RDMUX_OK) {
        rdmux_provider_error("iwarp: the peer's connection data, %zu bytes, makes no sense or is "
                             "of another version",
                             size);
        return status;
    }
    const struct verbs_connection *ours = &ep->ours.verbs;
    const struct verbs_connection *theirs = &ep->theirs.verbs;
    ep->base.theirs = *theirs;
    ep->base.kind = rdmux_verbs_common_kind(&ours->where, &theirs->where);
    if (ep->base.kind == 0) {
        rdmux_provider_error("iwarp: %s port %u and the peer's adapter have no addresses of one "
                             "family",
                             verbs_domain_of_ep(&ep->base)->device, ep->base.port);
        return RDMUX_IO;
    }
    size_t other = rdmux_verbs_address_of_kind(&theirs->where, ep->base.kind);
    if (ep->base.attr->role == RDMUX_ROLE_CONNECT && ep->theirs.ports[other] == 0) {
        rdmux_provider_error("iwarp: the peer does not say at which port it can be reached");
        return RDMUX_PROTOCOL;
    }
    if (ours->asks == 0 || ours->answers == 0 || theirs->asks == 0 || theirs->answers == 0) {
        rdmux_provider_error("iwarp: one of the two devices does no remote reads (depths %u and %u "
                             "here, %u and %u at the peer)",
                             ours->asks, ours->answers, theirs->asks, theirs->answers);
        return RDMUX_UNSUPPORTED;
    }
    return RDMUX_OK;
}

static enum rdmux_status progress_of(struct iwarp_ep *ep)
{
    if (ep->connect_status != RDMUX_OK) {
        rdmux_provider_error("%s", ep->connect_text);
        return ep->connect_status;
    }
    if (ep->base.state >= VERBS_EP_FAILED) {
        rdmux_provider_error("iwarp: the connection failed while it was made");
        return RDMUX_IO;
    }
    return iwarp_is_up(ep) && ep->is_greeted ? RDMUX_OK : RDMUX_IN_PROGRESS;
}

static void log_connection(const struct iwarp_ep *ep)
{
    const struct verbs_whereabouts *ours = &ep->ours.verbs.where;
    const struct verbs_whereabouts *theirs = &ep->theirs.verbs.where;
    size_t own = rdmux_verbs_address_of_kind(ours, ep->base.kind);
    size_t other = rdmux_verbs_address_of_kind(theirs, ep->base.kind);
    char from[64];
    char to[64];
    rdmux_verbs_gid_print(ep->base.kind, ours->addresses[own].gid, from, sizeof(from));
    rdmux_verbs_gid_print(ep->base.kind, theirs->addresses[other].gid, to, sizeof(to));
    rdmux_provider_log(verbs_fabric_of_ep(&ep->base), RDMUX_LOG_DEBUG,
                       "iwarp %s port %u: %s to %s, DSCP %u", verbs_domain_of_ep(&ep->base)->device,
                       ep->base.port, from, to, ep->base.attr->dscp);
}

enum rdmux_status rdmux_iwarp_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                         size_t size)
{
    struct iwarp_ep *ep = iwarp_ep_of(base);
    if (!ep->is_known) {
        enum rdmux_status status = learn_description(ep, peer, size);
        if (status != RDMUX_OK) {
            return status;
        }
        ep->is_known = true;
        rdmux_iwarp_start_connecting(ep);
        if (ep->base.attr->role == RDMUX_ROLE_CONNECT) {
            rdmux_iwarp_dial(ep);
        }
    }
    enum rdmux_status status = progress_of(ep);
    if (status != RDMUX_IN_PROGRESS) {
        rdmux_iwarp_stop_connecting(ep);
    }
    if (status == RDMUX_OK) {
        log_connection(ep);
    }
    return status;
}

/* Reads the peer's flush word over the side channel, which has no long transfers in its way. */
static void ping_side(struct iwarp_ep *ep)
{
    rdmux_verbs_chain_side_flush(&ep->base);
    ep->ping_calls = 1;
    (void)rdmux_verbs_chain_ring(&ep->base.side.queue);
}

/*
 * The heartbeat. iWARP has no timeout for a silent peer: TCP retransmits for minutes. Calls come a
 * quarter of the liveness time apart, as long as the peer's process is heard elsewhere. The first
 * call after the path breaks sends a read over the side channel; the second call after that one
 * must find the answer. A read over the data connection must complete as well, whatever state the
 * connection reports. Requests in flight there replace it, and prove as much unless all are writes.
 */
enum rdmux_status rdmux_iwarp_ep_ping(struct rdmux_provider_ep *base)
{
    struct iwarp_ep *ep = iwarp_ep_of(base);
    struct verbs_queue *data = &ep->base.data;
    if (ep->base.state != VERBS_EP_CONNECTED || ep->is_data_over) {
        return RDMUX_OK;
    }
    if (ep->ping_calls != 0) {
        ep->ping_calls++;
    } else if (rdmux_verbs_side_has_room(&ep->base)) {
        ping_side(ep);
    } else {
        ep->ping_calls = 1;
        ep->has_ping_failed = true;
    }
    if (ep->ping_calls > PING_CALLS) {
        rdmux_verbs_fail(&ep->base, RDMUX_PEER_GONE,
                         "the peer's device has not answered for half the liveness time");
        return RDMUX_OK;
    }
    if (verbs_send_ring_awaits(&data->sent)) {
        return RDMUX_OK;
    }
    if (verbs_send_ring_room(&data->sent) == 0) {
        return RDMUX_AGAIN;
    }
    rdmux_verbs_chain_flush(&ep->base, NULL, VERBS_WISH_DONE);
    (void)rdmux_verbs_chain_ring(data);
    return RDMUX_OK;
}

enum rdmux_status rdmux_iwarp_ep_quiesce(struct rdmux_provider_ep *base,
                                         struct rdmux_provider_counts *counts)
{
    rdmux_iwarp_give_up(iwarp_ep_of(base));
    return rdmux_verbs_ep_quiesce(base, counts);
}

void rdmux_iwarp_ep_close(struct rdmux_provider_ep *base)
{
    struct iwarp_ep *ep = iwarp_ep_of(base);
    rdmux_iwarp_give_up(ep);
    rdmux_iwarp_stop_connecting(ep);
    rdmux_iwarp_srq_leave(ep);
    rdmux_iwarp_leave_talkers(ep);
    rdmux_verbs_ep_close(base);
    rdmux_iwarp_hang_up(ep);
    rdmux_verbs_headers_close(&ep->send_headers);
}
