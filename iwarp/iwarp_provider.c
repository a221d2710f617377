/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The iwarp provider: its table, its paths, and workarounds for devices. */
#include "iwarp/iwarp_internal.h"
#include "verbs/verbs_address.h"
#include "verbs/verbs_completion.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_device.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_plugin.h"
#include "verbs/verbs_rdmacm.h"
#include "verbs/verbs_receive.h"
#include "verbs/verbs_send.h"
#include "verbs/verbs_srq.h"
#include "verbs/verbs_table.h"
#include "verbs/verbs_transport.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    LATENCY_NS = 3000,
    MESSAGE_MAX = 1 << 30, /* drivers count in int */
    VENDOR_SIW = 0x626d74, /* drivers/infiniband/sw/siw/siw.h */
};

struct iwarp_mr {
    struct verbs_mr base;
    _Atomic bool is_described; /* a peer has the key */
};

/* ---------------------------------------------------------------------------------------- paths */

static void probe_port(const struct verbs_port *port, struct rdmux_local_path *out)
{
    const uint64_t by_header = RDMUX_CAP_SEND_IMM | RDMUX_CAP_WRITE_IMM;
    const uint8_t nowhere[VERBS_GID_SIZE] = { 0 };
    struct verbs_whereabouts where;
    struct rdmux_local_path named = { .address = "" };
    enum rdmux_status status = rdmux_iwarp_find_addresses(port->device, port->number, nowhere,
                                                          &where, &named);
    out->native &= ~by_header;
    out->emulated |= by_header;
    out->max_message = out->max_message > MESSAGE_MAX ? (uint64_t)MESSAGE_MAX
                                                      : out->max_message - IWARP_HEADER_SIZE;
    if (status != RDMUX_OK) {
        rdmux_verbs_path_refuse(out, RDMUX_REASON_NO_PERMISSION,
                                "give this user access to /dev/infiniband/rdma_cm, which the "
                                "driver rdma_ucm makes",
                                "%s port %u: the connection manager cannot be used", port->device,
                                port->number);
        return;
    }
    if (out->max_sge == 0) {
        rdmux_verbs_path_refuse(out, RDMUX_REASON_CAPABILITY_MISSING, NULL,
                                "%s takes lists of one piece, and messages have a header, which is "
                                "one more",
                                port->device);
        return;
    }
    if (where.address_count == 0) {
        rdmux_verbs_path_refuse(
            out, RDMUX_REASON_NO_USABLE_GID, "give the adapter's network interface an IP address",
            "%s port %u has no IP address by which it can be reached", port->device, port->number);
        return;
    }
    (void)snprintf(out->address, sizeof(out->address), "%.110s, port %u", named.address,
                   port->number);
    rdmux_verbs_path_set_reach(out, &where);
}

/* --------------------------------------------------------------------------------------- domain */

/* ib and roce locate addresses and routes themselves; here rdma_cm does that. */
static enum rdmux_status iwarp_locate(struct verbs_ep *ep, struct verbs_whereabouts *out)
{
    (void)out;
    rdmux_provider_error("%s: nothing to locate", ep->transport->name);
    return RDMUX_UNSUPPORTED;
}

static enum rdmux_status iwarp_route(struct verbs_ep *ep, struct verbs_route *out)
{
    (void)out;
    rdmux_provider_error("%s: no route by hand", ep->transport->name);
    return RDMUX_UNSUPPORTED;
}

/* A connection ends by itself when its address no longer works. */
static bool iwarp_holds(struct verbs_ep *ep, char *text, size_t size)
{
    (void)ep;
    if (size > 0) {
        text[0] = '\0';
    }
    return true;
}

static const struct verbs_transport iwarp_transport = {
    .name = "iwarp",
    .fabric_name = "iWARP",
    .fabric = VERBS_FABRIC_IWARP,
    .latency_ns = LATENCY_NS,
    .header_size = IWARP_HEADER_SIZE,
    .request_slots = 3, /* a write, its notice, and the read of the flush word behind them */
    .read_slots = 2,    /* see iwarp_read_parts() */
    .side_own = IWARP_UNSEEN_MAX + IWARP_SEEN_MAX + IWARP_ONCE_MAX,
    /* The peer's device writes the answer of a read through the sink's key (RFC 5040, 3.3). */
    .sink_access = IBV_ACCESS_REMOTE_WRITE,
    /* soft iWARP reports a read that it may not answer, as one by an unknown key, as a refused
     * request (siw_qp_sq_proc_tx() in siw_qp_tx.c). It ends the connection, as for any other denied
     * access. */
    .request_refused = RDMUX_DENIED,
    .probe_port = probe_port,
    .locate = iwarp_locate,
    .route = iwarp_route,
    .holds = iwarp_holds,
    .start = rdmux_iwarp_start,
    .sent = rdmux_iwarp_sent,
    .received = rdmux_iwarp_received,
    .receives_posted = rdmux_iwarp_receives_posted,
    .srq_news = rdmux_iwarp_srq_news,
    .receive_failed = rdmux_iwarp_receive_failed,
    .broke = rdmux_iwarp_broke,
    .refuses = rdmux_iwarp_refuses,
    .side_message = rdmux_iwarp_side_message,
};

static bool is_siw(const struct iwarp_domain *domain)
{
    return domain->base.attr.vendor_id == VENDOR_SIW;
}

/*
 * The user-space half of soft iWARP takes the 145th page of a context's queues for "there is none"
 * (SIW_INVAL_UOBJ_KEY in siw-abi.h). A queue that begins there cannot be created, and every later
 * one would begin there. An unused completion queue that lies across that page, created first,
 * keeps others off it.
 */
static void guard_siw(struct iwarp_domain *domain)
{
    enum { GUARD_ENTRIES = 32768 }; /* of 32 bytes: up to the 256th page */
    if (domain->base.attr.max_cqe < GUARD_ENTRIES) {
        return;
    }
    domain->guard = ibv_create_cq(domain->base.context, GUARD_ENTRIES, NULL, NULL, 0);
    if (domain->guard == NULL) {
        rdmux_provider_log(domain->base.base.fabric, RDMUX_LOG_WARN,
                           "%s: %s; this process can have few endpoints on it", domain->base.device,
                           strerror(errno));
    }
}

static enum rdmux_status domain_open(struct rdmux_provider_domain *base,
                                     const struct rdmux_local_path *path)
{
    struct iwarp_domain *domain = iwarp_domain_of(base);
    enum rdmux_status status = rdmux_verbs_domain_open(&iwarp_transport, base, path);
    if (status == RDMUX_OK) {
        /* Not every device takes a fenced read (siw: siw_activate_tx_from_sq()). */
        domain->base.lacks_fence = true;
        /* siw checks for local write only (siw_proc_rresp()). */
        domain->base.needs_sinks = !is_siw(domain);
        /* siw takes no other address and does not report that (siw_reg_user_mr()). */
        domain->base.keeps_address = is_siw(domain);
        /* siw_qp_prepare_tx(): TCP has the pages themselves. */
        domain->base.lends_silent = is_siw(domain);
        if (is_siw(domain)) {
            guard_siw(domain);
        }
    }
    return status;
}

static void domain_close(struct rdmux_provider_domain *base)
{
    struct iwarp_domain *domain = iwarp_domain_of(base);
    if (domain->guard != NULL) {
        (void)ibv_destroy_cq(domain->guard);
    }
    rdmux_verbs_domain_close(base);
}

/* -------------------------------------------------------------------------------------- regions */

/* Notes a region's length to check the lengths of peers' writes. No peer has the region's key
 * yet. */
static void note_length(struct iwarp_domain *domain, uint64_t length)
{
    uint64_t longest = atomic_load_explicit(&domain->longest, memory_order_relaxed);
    while (length > longest &&
           !atomic_compare_exchange_weak_explicit(&domain->longest, &longest, length,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

static enum rdmux_status mr_register(struct rdmux_provider_mr *base,
                                     const struct rdmux_provider_mr_attr *attr)
{
    if ((attr->access & RDMUX_ACCESS_REMOTE_WRITE) != 0) {
        note_length(iwarp_domain_of(base->domain), attr->length);
    }
    return rdmux_verbs_mr_register(base, attr);
}

static enum rdmux_status mr_describe(struct rdmux_provider_mr *base, struct rdmux_provider_ep *ep,
                                     uint8_t *out, size_t *size)
{
    atomic_store(&((struct iwarp_mr *)base)->is_described, true);
    return rdmux_verbs_mr_describe(base, ep, out, size);
}

static enum rdmux_status mr_invalidate(struct rdmux_provider_mr *base)
{
    if (atomic_exchange(&((struct iwarp_mr *)base)->is_described, false)) {
        (void)atomic_fetch_add(&iwarp_domain_of(base->domain)->revoked, 1);
    }
    return rdmux_verbs_mr_invalidate(base);
}

/* ---------------------------------------------------------------------------------------- table */

static enum rdmux_reason iwarp_reach(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                     size_t theirs_length, char *text)
{
    return rdmux_verbs_reach_by_address(&iwarp_transport, ours, ours_length, theirs, theirs_length,
                                        text);
}

static enum rdmux_status iwarp_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                     size_t max, size_t *count)
{
    return rdmux_verbs_probe(&iwarp_transport, fabric, out, max, count);
}

static enum rdmux_status iwarp_inspect(struct rdmux_fabric *fabric,
                                       void (*report)(void *user,
                                                      const struct rdmux_provider_finding *finding),
                                       void *user)
{
    return rdmux_verbs_inspect(&iwarp_transport, fabric, report, user);
}

const struct rdmux_provider_ops rdmux_iwarp_provider = {
    .abi = RDMUX_PROVIDER_ABI,
    .size = sizeof(struct rdmux_provider_ops),
    .name = "iwarp",
    /* READS_LINGER: siw checks the key once for each read (siw_qp_sq_proc_tx()). */
    .flags = RDMUX_PROVIDER_NATIVE_FENCE | RDMUX_PROVIDER_LOCAL_KEYS | RDMUX_PROVIDER_DEVICE_SRQ |
             RDMUX_PROVIDER_READS_LINGER | RDMUX_PROVIDER_PING_BUSY | RDMUX_PROVIDER_PAUSES,
    .domain_size = sizeof(struct iwarp_domain),
    .cq_size = sizeof(struct iwarp_cq),
    .ep_size = sizeof(struct iwarp_ep),
    .srq_size = sizeof(struct iwarp_srq),
    .mr_size = sizeof(struct iwarp_mr),
    .remote_size = sizeof(struct verbs_remote),
    .probe = iwarp_probe,
    .reach = iwarp_reach,
    .domain_open = domain_open,
    .domain_close = domain_close,
    .async_event = rdmux_verbs_async_event,
    .domain_fd = rdmux_verbs_domain_fd,
    .inspect = iwarp_inspect,
    .mr_register = mr_register,
    .mr_deregister = rdmux_verbs_mr_deregister,
    .mr_describe = mr_describe,
    .mr_invalidate = mr_invalidate,
    .cq_open = rdmux_iwarp_cq_open,
    .cq_close = rdmux_iwarp_cq_close,
    .poll = rdmux_iwarp_poll,
    .arm = rdmux_iwarp_arm,
    .fd = rdmux_verbs_fd,
    .ep_open = rdmux_iwarp_ep_open,
    .ep_describe = rdmux_iwarp_ep_describe,
    .ep_connect = rdmux_iwarp_ep_connect,
    .ep_join = rdmux_unsupported_ep_join,
    .ep_control = rdmux_unsupported_ep_control,
    .ep_ping = rdmux_iwarp_ep_ping,
    .ep_quiesce = rdmux_iwarp_ep_quiesce,
    .ep_close = rdmux_iwarp_ep_close,
    .post = rdmux_verbs_post,
    .doorbell = rdmux_verbs_doorbell,
    .post_recv = rdmux_verbs_post_recv,
    .srq_open = rdmux_iwarp_srq_open,
    .srq_close = rdmux_verbs_srq_close,
    .srq_post_recv = rdmux_iwarp_srq_post_recv,
    .remote_open = rdmux_verbs_remote_open,
    .remote_close = rdmux_verbs_remote_close,
    .rdmacm = &rdmux_iwarp_rdmacm,
};
