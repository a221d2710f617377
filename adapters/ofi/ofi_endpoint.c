/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Endpoints. With connections (FI_EP_MSG) the acceptor listens on a port of its own for each
 * endpoint, and takes the connection that brings the secret of the path. Without (FI_EP_RDM) each
 * side has a libfabric endpoint of its own for each endpoint, and learns the other's address.
 */
#include "adapters/ofi/ofi_internal.h"

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ofi_ep *ofi_ep(struct framed_ep *ep)
{
    return (struct ofi_ep *)ep;
}

/* ------------------------------------------------------------------------------------- failures */

static enum rdmux_status status_of(int64_t result)
{
    switch (-result) {
    case FI_ENOMEM:
    case FI_EMFILE:
    case FI_ENOSPC:
        return RDMUX_NO_MEMORY;
    case FI_ECONNREFUSED:
    case FI_ECONNRESET:
    case FI_ENOTCONN:
    case FI_ESHUTDOWN:
        return RDMUX_PEER_GONE;
    default:
        return RDMUX_IO;
    }
}

enum rdmux_status rdmux_ofi_error(const struct ofi_domain *domain, const char *call, int64_t result)
{
    rdmux_provider_error("ofi: provider %s: %s: %s; FI_LOG_LEVEL=warn has libfabric say more",
                         domain->info->fabric_attr->prov_name, call,
                         domain->library->strerror((int)-result));
    return status_of(result);
}

void rdmux_ofi_fail(struct ofi_ep *ep, enum rdmux_status status, const char *call, int64_t result)
{
    char text[RDMUX_TEXT_MAX];
    const struct ofi_domain *domain = ofi_domain_of(ep);
    (void)snprintf(text, sizeof(text), "ofi: provider %s: %s: %s",
                   domain->info->fabric_attr->prov_name, call,
                   domain->library->strerror((int)-result));
    rdmux_framed_failed(&ep->base, status, text);
}

void rdmux_ofi_shut(struct ofi_ep *ep, const char *call, int64_t result)
{
    if (!ep->is_shut) {
        ep->failed_call = call;
        ep->failure = result;
    }
    ep->is_shut = true;
    ofi_cq_of(ep)->is_event_due = true;
}

/* ------------------------------------------------------------------------------------- opening */

/* Opens the endpoint of libfabric by info, bound to the cq, and posts nothing yet. */
static int open_endpoint(struct ofi_ep *ep, struct fi_info *info)
{
    struct ofi_cq *cq = ofi_cq_of(ep);
    int result = fi_endpoint(ofi_domain_of(ep)->domain, info, &ep->ep, NULL);
    if (result == 0) {
        result = fi_ep_bind(ep->ep, &cq->cq->fid, FI_TRANSMIT | FI_RECV);
    }
    if (result == 0 && cq->eq != NULL) {
        result = fi_ep_bind(ep->ep, &cq->eq->fid, 0);
    }
    if (result == 0 && ep->av != NULL) {
        result = fi_ep_bind(ep->ep, &ep->av->fid, 0);
    }
    if (result == 0) {
        result = fi_enable(ep->ep);
    }
    return result;
}

static int open_listener(struct ofi_ep *ep)
{
    struct ofi_domain *domain = ofi_domain_of(ep);
    int result = fi_passive_ep(domain->fabric, domain->info, &ep->pep, NULL);
    if (result == 0) {
        result = fi_pep_bind(ep->pep, &ofi_cq_of(ep)->eq->fid, 0);
    }
    return result == 0 ? fi_listen(ep->pep) : result;
}

static int open_connectionless(struct ofi_ep *ep)
{
    struct ofi_domain *domain = ofi_domain_of(ep);
    struct fi_av_attr attr = { .type = domain->info->domain_attr->av_type, .count = 1 };
    int result = fi_av_open(domain->domain, &attr, &ep->av, NULL);
    return result == 0 ? open_endpoint(ep, domain->info) : result;
}

enum rdmux_status rdmux_ofi_open(struct framed_ep *base)
{
    struct ofi_ep *ep = ofi_ep(base);
    struct ofi_domain *domain = ofi_domain_of(ep);
    ep->is_acceptor = base->attr->role == RDMUX_ROLE_ACCEPT;
    ep->peer = FI_ADDR_UNSPEC;
    ep->inject_max = domain->info->tx_attr->inject_size;
    /* shm copies these through its own memory, and longer ones by a call of the kernel and an
     * answer. */
    if (strcmp(domain->info->fabric_attr->prov_name, "shm") == 0 &&
        ep->inject_max >= FRAMED_MESSAGE_MIN) {
        base->short_max = (uint32_t)ep->inject_max;
    }
    rdmux_list_append(&ofi_cq_of(ep)->eps, &ep->link);
    int result = 0;
    struct ofi_dispositions before;
    if (domain->installs_handlers) {
        rdmux_ofi_remember(&before);
    } else {
        rdmux_ofi_block_signals(&before.mask);
    }
    if (!domain->is_connected_kind) {
        result = open_connectionless(ep);
    } else if (ep->is_acceptor) {
        result = open_listener(ep);
    }
    if (domain->installs_handlers) {
        rdmux_ofi_put_back(&before);
    } else {
        rdmux_ofi_unblock_signals(&before.mask);
    }
    enum rdmux_status status = result == 0 ? rdmux_ofi_slab_create(ep)
                                           : rdmux_ofi_error(domain, "opening an endpoint", result);
    if (status != RDMUX_OK) {
        (void)rdmux_ofi_stop(base);
    }
    return status;
}

/* The lane's connection data: the length of an address (2, big-endian), its bytes, the length of a
 * bell's port (1), its bytes. */
enum rdmux_status rdmux_ofi_describe(struct framed_ep *base, uint8_t *out, size_t *size)
{
    struct ofi_ep *ep = ofi_ep(base);
    size_t length = 0;
    int result = 0;
    if (ep->pep != NULL || ep->ep != NULL) {
        length = *size - 2 < OFI_ADDRESS_MAX ? *size - 2 : OFI_ADDRESS_MAX;
        result = fi_getname(ep->pep != NULL ? &ep->pep->fid : &ep->ep->fid, out + 2, &length);
    }
    if (result != 0) {
        return rdmux_ofi_error(ofi_domain_of(ep), "fi_getname", result);
    }
    out[0] = (uint8_t)(length >> 8);
    out[1] = (uint8_t)length;
    *size = 2 + length;
    *size += rdmux_ofi_bell_describe(ofi_cq_of(ep), out + *size);
    rdmux_ofi_close_on_exec(ep->pep != NULL ? &ep->pep->fid : ep->ep != NULL ? &ep->ep->fid : NULL);
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------------ connecting */

static void connection_is_up(struct ofi_ep *ep)
{
    ep->state = OFI_CONNECTED;
    ofi_cq_of(ep)->connecting--;
    rdmux_ofi_close_on_exec(&ep->ep->fid);
}

static int accept_request(struct ofi_ep *ep)
{
    int result = open_endpoint(ep, ep->request);
    ofi_domain_of(ep)->library->freeinfo(ep->request);
    ep->request = NULL;
    if (result == 0) {
        rdmux_ofi_slab_post(ep->slab);
        result = fi_accept(ep->ep, NULL, 0);
    }
    return result;
}

static int dial(struct ofi_ep *ep, const uint8_t *address, size_t length)
{
    struct ofi_domain *domain = ofi_domain_of(ep);
    struct fi_info *info = domain->library->dupinfo(domain->info);
    uint8_t secret[RDMUX_SECRET_SIZE];
    if (info == NULL) {
        return -FI_ENOMEM;
    }
    free(info->dest_addr);
    info->dest_addr = malloc(length); /* freeinfo frees it */
    info->dest_addrlen = length;
    int result = -FI_ENOMEM;
    if (info->dest_addr != NULL) {
        memcpy(info->dest_addr, address, length);
        result = open_endpoint(ep, info);
    }
    if (result == 0) {
        rdmux_ofi_slab_post(ep->slab);
        rdmux_provider_secret(&ep->base.base, secret);
        result = fi_connect(ep->ep, info->dest_addr, secret, sizeof(secret));
        explicit_bzero(secret, sizeof(secret));
    }
    domain->library->freeinfo(info);
    return result;
}

static int know_peer(struct ofi_ep *ep, const uint8_t *address)
{
    int result = fi_av_insert(ep->av, address, 1, &ep->peer, 0, NULL);
    if (result != 1) {
        return result < 0 ? result : -FI_EADDRNOTAVAIL;
    }
    rdmux_ofi_slab_post(ep->slab);
    return 0;
}

static enum rdmux_status begin(struct ofi_ep *ep, const uint8_t *peer, size_t size)
{
    struct ofi_domain *domain = ofi_domain_of(ep);
    size_t length = size < 2 ? 0 : (size_t)peer[0] << 8 | peer[1];
    bool needs_address = !ep->is_acceptor || !domain->is_connected_kind;
    /* libfabric reads an address of the provider's own size, whatever its length. */
    bool is_sound = size >= 2 && length < size - 2 &&
                    rdmux_ofi_bell_learn(ep, peer + 2 + length, size - 2 - length) &&
                    (!needs_address || (length > 0 && (domain->info->src_addrlen == 0 ||
                                                       domain->info->addr_format == FI_ADDR_STR ||
                                                       length == domain->info->src_addrlen)));
    if (is_sound && needs_address && domain->info->addr_format == FI_ADDR_STR) {
        is_sound = peer[2 + length - 1] == '\0';
    }
    if (!is_sound) {
        rdmux_provider_error("ofi: the peer's connection data has no address of this provider");
        return RDMUX_PROTOCOL;
    }
    int result = 0;
    if (!domain->is_connected_kind) {
        result = know_peer(ep, peer + 2);
        ep->state = OFI_CONNECTED;
    } else {
        ep->state = OFI_WAITING;
        ofi_cq_of(ep)->connecting++;
        result = ep->is_acceptor ? 0 : dial(ep, peer + 2, length);
    }
    return result == 0 ? RDMUX_OK : rdmux_ofi_error(domain, "connecting", result);
}

static enum rdmux_status connect_endpoint(struct ofi_ep *ep, const uint8_t *peer, size_t size)
{
    if (ep->state == OFI_OPEN) {
        enum rdmux_status status = begin(ep, peer, size);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    if (ep->request != NULL) {
        int result = accept_request(ep);
        if (result != 0) {
            return rdmux_ofi_error(ofi_domain_of(ep), "fi_accept", result);
        }
    }
    return ep->state == OFI_CONNECTED ? RDMUX_OK : RDMUX_IN_PROGRESS;
}

enum rdmux_status rdmux_ofi_connect(struct framed_ep *ep, const uint8_t *peer, size_t size)
{
    sigset_t mask;
    rdmux_ofi_block_signals(&mask);
    enum rdmux_status status = connect_endpoint(ofi_ep(ep), peer, size);
    rdmux_ofi_unblock_signals(&mask);
    return status;
}

/* --------------------------------------------------------------------------------------- events */

/* Finds a living endpoint, as an event may be of one that has ended. */
static struct ofi_ep *find(struct ofi_cq *cq, const struct fid *fid)
{
    for (struct rdmux_list *at = cq->eps.next; at != &cq->eps; at = at->next) {
        struct ofi_ep *ep = RDMUX_CONTAINER(at, struct ofi_ep, link);
        if ((ep->ep != NULL && &ep->ep->fid == fid) || (ep->pep != NULL && &ep->pep->fid == fid)) {
            return ep;
        }
    }
    return NULL;
}

/* A connection that does not bring the secret is a stranger's. */
static bool brings_secret(struct ofi_ep *ep, const struct fi_eq_cm_entry *entry, size_t size)
{
    uint8_t secret[RDMUX_SECRET_SIZE];
    rdmux_provider_secret(&ep->base.base, secret);
    unsigned difference = size < sizeof(*entry) + sizeof(secret);
    for (size_t i = 0; difference == 0 && i < sizeof(secret); i++) {
        difference |= (unsigned)(secret[i] ^ entry->data[i]);
    }
    explicit_bzero(secret, sizeof(secret));
    return difference == 0;
}

static void requested(struct ofi_ep *ep, const struct fi_eq_cm_entry *entry, size_t size)
{
    if (ep->request != NULL || ep->ep != NULL || !brings_secret(ep, entry, size)) {
        (void)fi_reject(ep->pep, entry->info->handle, NULL, 0);
        ofi_domain_of(ep)->library->freeinfo(entry->info);
        return;
    }
    ep->request = entry->info; /* ep_connect goes on */
}

/* Ends a connection whose listener has gone. Its socket belongs to the request: only an endpoint can
 * take it over then, and close it. */
static void drop_request(struct ofi_cq *cq, struct fi_info *request)
{
    struct ofi_domain *domain = (struct ofi_domain *)cq->base.base.base.domain;
    struct fid_ep *ep = NULL;
    if (fi_endpoint(domain->domain, request, &ep, NULL) == 0) {
        (void)fi_close(&ep->fid);
    }
    domain->library->freeinfo(request);
}

void rdmux_ofi_event(struct ofi_cq *cq, uint32_t event, const struct fi_eq_cm_entry *entry,
                     size_t size)
{
    struct ofi_ep *ep = find(cq, entry->fid);
    if (ep == NULL) {
        if (event == FI_CONNREQ) {
            drop_request(cq, entry->info);
        }
        return;
    }
    if (event == FI_CONNREQ) {
        requested(ep, entry, size);
    } else if (event == FI_CONNECTED && ep->state == OFI_WAITING) {
        connection_is_up(ep);
    } else if (event == FI_SHUTDOWN) {
        ep->is_shut = true;
        cq->is_event_due = true;
    }
}

/* -------------------------------------------------------------------------------------- the end */

static void close_fid(struct fid *fid)
{
    if (fid != NULL) {
        (void)fi_close(fid);
    }
}

enum rdmux_status rdmux_ofi_stop(struct framed_ep *base)
{
    struct ofi_ep *ep = ofi_ep(base);
    struct ofi_cq *cq = ofi_cq_of(ep);
    if (ep->state == OFI_STOPPED) {
        return RDMUX_OK;
    }
    if (ep->pep != NULL) {
        (void)rdmux_ofi_read_events(cq); /* rejects connections while that is possible */
    }
    cq->connecting -= ep->state == OFI_WAITING ? 1 : 0;
    ep->state = OFI_STOPPED;
    rdmux_node_remove(&ep->link);
    if (ep->request != NULL && ep->pep != NULL) {
        (void)fi_reject(ep->pep, ep->request->handle, NULL, 0);
        ofi_domain_of(ep)->library->freeinfo(ep->request);
        ep->request = NULL;
    }
    close_fid(ep->ep != NULL ? &ep->ep->fid : NULL);
    close_fid(ep->pep != NULL ? &ep->pep->fid : NULL);
    close_fid(ep->av != NULL ? &ep->av->fid : NULL);
    ep->ep = NULL;
    ep->pep = NULL;
    ep->av = NULL;
    if (ep->slab != NULL) {
        rdmux_ofi_slab_bury(cq, ep->slab);
        ep->slab = NULL;
    }
    return RDMUX_OK;
}

void rdmux_ofi_close(struct framed_ep *base)
{
    (void)rdmux_ofi_stop(base);
}
