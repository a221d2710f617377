/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Endpoints of InfiniBand and RoCE: a reliable connection set up by the library, with its
 * connection data on the control channel.
 */
#include "verbs/verbs_endpoint.h"

#include "verbs/verbs_chain.h"
#include "verbs/verbs_completion.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_device.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_link.h"
#include "verbs/verbs_macros.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_ring.h"
#include "verbs/verbs_side.h"
#include "verbs/verbs_silent.h"
#include "verbs/verbs_srq.h"
#include "verbs/verbs_state.h"
#include "verbs/verbs_timing.h"
#include "verbs/verbs_transport.h"

#include <string.h>

enum {
    SLOTS_SPARE = 8, /* for the library's own work: pings, flushes */
    SIGNAL_EVERY_MAX = 64,
    /* small requests of every kind are inlined up to this size, if the device can */
    INLINE_WISH = 128,
    READS_MAX = 255, /* the field has eight bits */
    DRAIN_ROUNDS = 16,
    DRAIN_BUDGET = 256,
    GRACE_NS = 5000000,  /* waits for acknowledgments in flight when the endpoint ends */
    QUIET_NS = 20000000, /* time without a completion after which the endpoint counts as drained */
};

/* ----------------------------------------------------------------------------------------- open */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t at_least_one(uint32_t value)
{
    return value > 0 ? value : 1;
}

/* Returns the number of pieces in each list that hold the transport's header. */
static uint32_t header_pieces(const struct verbs_ep *ep)
{
    return ep->transport->header_size != 0 ? 1 : 0;
}

/* Returns the bytes of the program that the device inlines in each request. */
static uint32_t granted_inline(const struct verbs_ep *ep)
{
    uint32_t header = ep->transport->header_size;
    return ep->data.max_inline > header ? ep->data.max_inline - header : 0;
}

/* Every work request is signaled if the peer lends no flush word: the peer may refuse whatever is
 * posted behind silent work to learn of its end. */
static uint32_t signal_every(const struct verbs_ep *ep)
{
    return ep->transport->lacks_word
               ? 1
               : at_least_one(smaller(ep->attr->send_depth / 2, SIGNAL_EVERY_MAX));
}

static enum rdmux_status open_data(struct verbs_ep *ep)
{
    const struct rdmux_provider_ep_attr *attr = ep->attr;
    const struct ibv_device_attr *device = &verbs_domain_of_ep(ep)->attr;
    const uint32_t reads_a_list = device->max_sge_rd > 0 ? (uint32_t)device->max_sge_rd
                                                         : (uint32_t)device->max_sge;
    ep->max_read_sge = smaller(at_least_one(reads_a_list), at_least_one(attr->max_send_sge));
    uint32_t slots_a_read = (at_least_one(attr->max_send_sge) + ep->max_read_sge - 1) /
                                ep->max_read_sge * ep->transport->read_slots +
                            (verbs_domain_of_ep(ep)->doubts_reads ? 1 : 0);
    struct verbs_srq *srq = attr->srq == NULL ? NULL : verbs_srq_of(attr->srq);
    struct verbs_queue_wish wish = {
        .send_depth = ep->transport->request_slots * attr->send_depth +
                      larger(SLOTS_SPARE, slots_a_read),
        .send_least = larger(SLOTS_SPARE, slots_a_read),
        .receive_depth = srq == NULL
                             ? at_least_one(smaller(attr->recv_depth, (uint32_t)device->max_qp_wr))
                             : 0,
        .max_send_sge = at_least_one(attr->max_send_sge) + header_pieces(ep),
        .max_receive_sge = at_least_one(attr->max_recv_sge) + header_pieces(ep),
        .max_inline = larger(attr->max_inline, INLINE_WISH),
        .signal_every = signal_every(ep),
        .srq = srq,
    };
    wish.send_depth = smaller(wish.send_depth, (uint32_t)device->max_qp_wr);
    enum rdmux_status status = rdmux_verbs_queue_open(&ep->data, ep, &wish);
    ep->base.max_inline = status == RDMUX_OK ? granted_inline(ep) : 0;
    ep->base.needs_sinks = verbs_domain_of_ep(ep)->needs_sinks ? 1 : 0;
    return status;
}

static size_t copies_size(const struct verbs_ep *ep)
{
    return ((size_t)ep->data.sent.mask + 1) * ep->copy_size;
}

/* Allocates buffers for inline requests longer than the device inlines. */
static enum rdmux_status open_copies(struct verbs_ep *ep)
{
    if (ep->attr->max_inline <= granted_inline(ep)) {
        return RDMUX_OK;
    }
    ep->copy_size = ep->attr->max_inline;
    ep->copies = rdmux_verbs_pages_map(copies_size(ep));
    if (ep->copies == NULL) {
        rdmux_provider_error("%s: out of memory for inline requests", ep->transport->name);
        return RDMUX_NO_MEMORY;
    }
    enum rdmux_status status = rdmux_verbs_pin(verbs_domain_of_ep(ep), "buffer of inline requests",
                                               ep->copies, copies_size(ep), (uintptr_t)ep->copies,
                                               0, 1, &ep->copies_mr);
    if (status != RDMUX_OK) {
        rdmux_verbs_pages_unmap(ep->copies, copies_size(ep));
        ep->copies = NULL;
    }
    return status;
}

static void close_copies(struct verbs_ep *ep)
{
    if (ep->copies_mr != NULL) {
        (void)ibv_dereg_mr(ep->copies_mr);
        ep->copies_mr = NULL;
        rdmux_verbs_pages_unmap(ep->copies, copies_size(ep));
        ep->copies = NULL;
    }
}

enum rdmux_status rdmux_verbs_ep_open(struct rdmux_provider_ep *base,
                                      const struct rdmux_provider_ep_attr *attr)
{
    struct verbs_ep *ep = verbs_ep_of(base);
    if (ep->transport == NULL) {
        ep->transport = verbs_domain_of(base->cq->domain)->transport;
    }
    ep->flush_size = ep->transport->flush_size != 0 ? ep->transport->flush_size
                                                    : (uint32_t)VERBS_FLUSH_SIZE;
    ep->attr = attr;
    ep->port = rdmux_verbs_path_port(attr->path);
    enum rdmux_status status = open_data(ep);
    if (status != RDMUX_OK) {
        return status;
    }
    status = open_copies(ep);
    if (status != RDMUX_OK) {
        goto close_data;
    }
    status = ep->transport->lacks_side ? RDMUX_OK : rdmux_verbs_side_open(ep);
    if (status != RDMUX_OK) {
        goto close_copies;
    }
    return RDMUX_OK;

close_copies:
    close_copies(ep);
close_data:
    rdmux_verbs_queue_close(&ep->data);
    return status;
}

/* -------------------------------------------------------------------------------------- connect */

enum rdmux_status rdmux_verbs_describe_port(struct verbs_ep *ep)
{
    const struct verbs_domain *domain = verbs_domain_of_ep(ep);
    struct ibv_port_attr port;
    int error = ibv_query_port(domain->context, ep->port, &port);
    if (error != 0 || (port.state != IBV_PORT_ACTIVE && port.state != IBV_PORT_ACTIVE_DEFER)) {
        rdmux_provider_error("%s port %u is not up: %s", domain->device, ep->port,
                             error != 0 ? strerror(error) : ibv_port_state_str(port.state));
        return RDMUX_IO;
    }
    ep->ours.mtu = (uint8_t)port.active_mtu;
    ep->ours.max_message = port.max_msg_sz;
    return RDMUX_OK;
}

enum rdmux_status rdmux_verbs_ep_describe(struct rdmux_provider_ep *base, uint8_t *out, size_t *size)
{
    struct verbs_ep *ep = verbs_ep_of(base);
    const struct verbs_domain *domain = verbs_domain_of_ep(ep);
    uint32_t psns[2];
    if (*size < VERBS_CONNECTION_MAX) {
        rdmux_provider_error("%s: connection data needs %d bytes", ep->transport->name,
                             VERBS_CONNECTION_MAX);
        return RDMUX_INVALID;
    }
    enum rdmux_status status = rdmux_provider_random(domain->base.fabric, psns, sizeof(psns));
    if (status != RDMUX_OK) {
        rdmux_provider_error("%s: no random numbers to be had", ep->transport->name);
        return status;
    }
    status = rdmux_verbs_describe_port(ep);
    if (status != RDMUX_OK) {
        return status;
    }
    ep->ours.ack_delay = domain->attr.local_ca_ack_delay & VERBS_DELAY_CODE_MAX;
    ep->ours.service_level = (uint8_t)ep->attr->service_level;
    ep->ours.answers = verbs_read_depth(domain->attr.max_qp_rd_atom, READS_MAX);
    ep->ours.asks = verbs_read_depth(domain->attr.max_qp_init_rd_atom, READS_MAX);
    ep->ours.qpn = ep->data.qp->qp_num;
    ep->ours.psn = psns[0] & VERBS_PSN_MASK;
    ep->ours.side_qpn = ep->side.queue.qp->qp_num;
    ep->ours.side_psn = psns[1] & VERBS_PSN_MASK;
    ep->ours.flush_rkey = domain->flush_mr->rkey;
    ep->ours.flush_addr = (uintptr_t)&domain->page->flush_word;
    status = ep->transport->locate(ep, &ep->ours.where);
    if (status != RDMUX_OK) {
        return status;
    }
    *size = rdmux_verbs_connection_encode(&ep->ours, out);
    return RDMUX_OK;
}

static enum rdmux_status learn_description(struct verbs_ep *ep, const uint8_t *peer, size_t size)
{
    enum rdmux_status status = rdmux_verbs_connection_decode(peer, size, ep->transport->fabric,
                                                             &ep->theirs);
    if (status != RDMUX_OK) {
        rdmux_provider_error("%s: the peer's connection data, %zu bytes, makes no sense or is of "
                             "another version",
                             ep->transport->name, size);
        return status;
    }
    if (smaller(ep->ours.asks, ep->theirs.answers) == 0 ||
        smaller(ep->ours.answers, ep->theirs.asks) == 0) {
        rdmux_provider_error("%s: one of the two devices does no remote reads (depths %u and %u "
                             "here, %u and %u at the peer)",
                             ep->transport->name, ep->ours.asks, ep->ours.answers, ep->theirs.asks,
                             ep->theirs.answers);
        return RDMUX_UNSUPPORTED;
    }
    return RDMUX_OK;
}

static void log_connection(const struct verbs_ep *ep)
{
    const uint32_t ack = rdmux_verbs_ack_code(ep->attr->liveness_ms, ep->theirs.ack_delay);
    const uint32_t retries = rdmux_verbs_retries(ep->attr->liveness_ms, ack,
                                                 ep->attr->has_failover != 0);
    const uint32_t rnr = rdmux_verbs_rnr_code(ep->attr->liveness_ms);
    rdmux_provider_log(
        verbs_fabric_of_ep(ep), RDMUX_LOG_DEBUG,
        "%s %s port %u: queue pair %u to %u, mtu %u; a peer that does not answer is given up after "
        "%.3f s (timeout code %u, %u tries), at the latest after %.3f s; what meets no receive is "
        "sent again after %.3f ms",
        ep->transport->name, verbs_domain_of_ep(ep)->device, ep->port, ep->ours.qpn, ep->theirs.qpn,
        rdmux_verbs_mtu_bytes(smaller(ep->ours.mtu, ep->theirs.mtu)),
        (double)rdmux_verbs_give_up_ns(ack, retries) / 1e9, ack, retries + 1,
        (double)rdmux_verbs_give_up_longest_ns(ack, retries) / 1e9,
        (double)rdmux_verbs_rnr_ns(rnr) / 1e6);
}

/* Logs each attribute that the device rounded, clamped or ignored silently (ibv_query_qp(3)). */
static void report_drift(struct verbs_ep *ep, const struct verbs_route *route)
{
    struct ibv_qp_attr now;
    struct ibv_qp_init_attr init;
    const int mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT;
    const uint32_t ack = rdmux_verbs_ack_code(ep->attr->liveness_ms, ep->theirs.ack_delay);
    if (ibv_query_qp(ep->data.qp, &now, mask, &init) != 0) {
        return;
    }
    const struct ibv_ah_attr *wished = &route->address;
    const struct {
        const char *what;
        uint32_t wished;
        uint32_t got;
    } fields[] = {
        { "traffic class", wished->grh.traffic_class, now.ah_attr.grh.traffic_class },
        { "flow label", wished->grh.flow_label, now.ah_attr.grh.flow_label },
        { "GID index", wished->grh.sgid_index, now.ah_attr.grh.sgid_index },
        { "service level", wished->sl, now.ah_attr.sl },
        { "path MTU code", smaller(ep->ours.mtu, ep->theirs.mtu), (uint32_t)now.path_mtu },
        { "ACK timeout code", ack, now.timeout },
    };
    for (size_t i = 0; i < VERBS_COUNT_OF(fields); i++) {
        bool is_grh_field = i < 3;
        if ((!is_grh_field || wished->is_global != 0) && fields[i].wished != fields[i].got) {
            rdmux_provider_log(verbs_fabric_of_ep(ep), RDMUX_LOG_WARN,
                               "%s %s port %u: the device uses %s %u, not %u as asked",
                               ep->transport->name, verbs_domain_of_ep(ep)->device, ep->port,
                               fields[i].what, fields[i].got, fields[i].wished);
        }
    }
}

static enum rdmux_status connect_queues(struct verbs_ep *ep, const struct verbs_route *route)
{
    enum rdmux_status status = rdmux_verbs_queue_init(&ep->data, route);
    if (status == RDMUX_OK) {
        status = rdmux_verbs_queue_connect(&ep->data, route, ep->theirs.qpn, ep->theirs.psn,
                                           ep->ours.psn);
    }
    if (status != RDMUX_OK || ep->theirs.side_qpn == 0) {
        return status;
    }
    status = rdmux_verbs_queue_init(&ep->side.queue, route);
    if (status == RDMUX_OK) {
        status = rdmux_verbs_side_start(ep);
    }
    if (status == RDMUX_OK) {
        status = rdmux_verbs_queue_connect(&ep->side.queue, route, ep->theirs.side_qpn,
                                           ep->theirs.side_psn, ep->ours.side_psn);
    }
    return status;
}

enum rdmux_status rdmux_verbs_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                         size_t size)
{
    struct verbs_ep *ep = verbs_ep_of(base);
    struct verbs_route route = { .pkey_index = 0 };
    if (ep->state != VERBS_EP_OPEN) {
        rdmux_provider_error("%s: the endpoint was connected already", ep->transport->name);
        return RDMUX_INVALID;
    }
    enum rdmux_status status = learn_description(ep, peer, size);
    if (status == RDMUX_OK) {
        status = ep->transport->route(ep, &route);
    }
    if (status == RDMUX_OK) {
        status = connect_queues(ep, &route);
    }
    if (status == RDMUX_OK) {
        rdmux_verbs_ep_enter(ep, VERBS_EP_CONNECTED);
        log_connection(ep);
        report_drift(ep, &route);
    }
    return status;
}

/* Posts a zero-length write, which the peer's device acknowledges, or the device gives up.
 * In-flight signaled work serves as well. */
enum rdmux_status rdmux_verbs_ep_ping(struct rdmux_provider_ep *base)
{
    struct verbs_ep *ep = verbs_ep_of(base);
    if (ep->state != VERBS_EP_CONNECTED || verbs_send_ring_awaits(&ep->data.sent)) {
        return RDMUX_OK;
    }
    if (!rdmux_verbs_chain_nothing(ep)) {
        return RDMUX_AGAIN;
    }
    (void)rdmux_verbs_chain_ring(&ep->data);
    return RDMUX_OK;
}

/* ---------------------------------------------------------------------------------------- close */

static uint32_t outstanding_requests(const struct verbs_ep *ep)
{
    return rdmux_verbs_queue_outstanding(&ep->data) +
           rdmux_verbs_queue_outstanding(&ep->side.queue);
}

/* Takes completions until the device has given everything back, for a bounded number of rounds. */
static void drain_queues(struct verbs_ep *ep)
{
    for (int i = 0; i < DRAIN_ROUNDS && outstanding_requests(ep) != 0; i++) {
        (void)rdmux_verbs_reap(verbs_cq_of(ep->base.cq), DRAIN_BUDGET);
    }
}

static void kill_queues(struct verbs_ep *ep)
{
    /* Messages that have arrived belong to the program. */
    (void)rdmux_verbs_reap(verbs_cq_of(ep->base.cq), DRAIN_BUDGET);
    rdmux_verbs_ep_enter(ep, VERBS_EP_DRAINING);
    rdmux_verbs_queue_kill(&ep->data);
    rdmux_verbs_queue_kill(&ep->side.queue);
    ep->drain.quiet_since_ns = rdmux_provider_now_ns(verbs_fabric_of_ep(ep));
    ep->drain.outstanding = outstanding_requests(ep);
}

/* Destroys the queue pairs: the device holds nothing of the endpoint any more. Receives of an SRQ
 * that it gave back are there by then. */
static void destroy_queues(struct verbs_ep *ep)
{
    (void)rdmux_verbs_reap(verbs_cq_of(ep->base.cq), DRAIN_BUDGET);
    rdmux_verbs_queue_destroy(&ep->data);
    rdmux_verbs_queue_destroy(&ep->side.queue);
    rdmux_verbs_ep_enter(ep, VERBS_EP_QUIET);
}

/* A healthy endpoint may end on the peer's word before the peer's device has acknowledged what the
 * peer has received: the control channel and the data path are independent. */
static bool is_in_grace(struct verbs_ep *ep)
{
    if (ep->state != VERBS_EP_CONNECTED || !verbs_send_ring_awaits(&ep->data.sent)) {
        return false;
    }
    uint64_t now_ns = rdmux_provider_now_ns(verbs_fabric_of_ep(ep));
    if (ep->drain.grace_until_ns == 0) {
        ep->drain.grace_until_ns = now_ns + GRACE_NS;
    }
    (void)rdmux_verbs_reap(verbs_cq_of(ep->base.cq), DRAIN_BUDGET);
    return ep->state == VERBS_EP_CONNECTED && verbs_send_ring_awaits(&ep->data.sent) &&
           now_ns < ep->drain.grace_until_ns;
}

/* Counting misses requests that succeeded without a completion. A queue pair in error flushes what
 * it has at once, so a time without any completion is a sign, too; destroying the queue pair makes
 * sure. Only a change of the count matters: each poll of the cq also takes completions of other
 * endpoints. */
static bool is_drained(struct verbs_ep *ep)
{
    uint64_t now_ns = rdmux_provider_now_ns(verbs_fabric_of_ep(ep));
    drain_queues(ep);
    uint32_t left = outstanding_requests(ep);
    if (left != ep->drain.outstanding) {
        ep->drain.outstanding = left;
        ep->drain.quiet_since_ns = now_ns;
    }
    return left == 0 || now_ns - ep->drain.quiet_since_ns >= QUIET_NS;
}

enum rdmux_status rdmux_verbs_ep_quiesce(struct rdmux_provider_ep *base,
                                         struct rdmux_provider_counts *counts)
{
    struct verbs_ep *ep = verbs_ep_of(base);
    if (is_in_grace(ep)) {
        return RDMUX_IN_PROGRESS;
    }
    if (ep->state < VERBS_EP_DRAINING) {
        kill_queues(ep);
    }
    if (ep->state == VERBS_EP_DRAINING) {
        if (!is_drained(ep)) {
            return RDMUX_IN_PROGRESS;
        }
        destroy_queues(ep);
    }
    *counts = ep->counts;
    return RDMUX_OK;
}

void rdmux_verbs_ep_close(struct rdmux_provider_ep *base)
{
    struct verbs_ep *ep = verbs_ep_of(base);
    if (ep->state < VERBS_EP_FAILED) {
        /* its imports are closed: completions must start nothing */
        rdmux_verbs_ep_enter(ep, VERBS_EP_FAILED);
    }
    if (ep->state == VERBS_EP_FAILED) {
        kill_queues(ep);
    }
    if (ep->state == VERBS_EP_DRAINING) {
        drain_queues(ep);
        destroy_queues(ep);
    }
    rdmux_verbs_silent_leave(ep);
    rdmux_verbs_side_close(ep);
    close_copies(ep);
    rdmux_verbs_queue_close(&ep->data);
}
