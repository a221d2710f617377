/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The calls that make endpoints: connect, accept, adopt; and explain, which makes none. */
#include "api/connection.h"

#include "api/address.h"
#include "api/plain.h"
#include "negotiation/bytes.h"
#include "negotiation/explain.h"
#include "negotiation/filter.h"
#include "negotiation/tls.h"

#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* ----------------------------------------------------------------------------------- attr.local */

/* Can a socket be bound to this text? */
static bool is_address_here(const char *local)
{
    struct rdmux_address_text text = { .port = "0" };
    struct addrinfo *addresses = NULL;
    snprintf(text.host, sizeof(text.host), "%s", local);
    if (text.host[0] == '\0' || rdmux_address_resolve(&text, false, true, &addresses) != RDMUX_OK) {
        return false;
    }
    int fd = socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool here;
    if (fd >= 0) {
        here = bind(fd, addresses->ai_addr, addresses->ai_addrlen) == 0;
        close(fd);
    } else {
        here = errno != EAFNOSUPPORT; /* no descriptor to be had: whoever needs one next says so */
    }
    freeaddrinfo(addresses);
    return here;
}

static bool is_at(const struct rdmux_local_path *path, const char *local)
{
    return strcmp(path->device, local) == 0 || strcmp(path->address, local) == 0;
}

/* attr.local is a network interface, a device or an address of this machine; usable or not, that is
 * negotiation's business. */
static enum rdmux_status check_local(struct rdmux_fabric *fabric, const char *call,
                                     const char *local)
{
    if (local == NULL || if_nametoindex(local) != 0 || is_address_here(local)) {
        return RDMUX_OK;
    }
    struct rdmux_offer *offer = rdmux_allocate(fabric, sizeof(*offer));
    if (offer == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: out of memory", call);
    }
    rdmux_fabric_offer_paths(fabric, offer);
    bool found = false;
    for (uint32_t i = 0; i < offer->path_count && *local != '\0'; i++) {
        found = found || is_at(&offer->paths[i].path, local);
    }
    rdmux_release(fabric, offer);
    return found ? RDMUX_OK
                 : rdmux_fail(RDMUX_INVALID,
                              "%s: attr.local \"%s\" is neither a device nor an address of this "
                              "machine; `rdmux info` and `ip address` list them",
                              call, local);
}

/* --------------------------------------------------------------------------------------- offers */

enum rdmux_status rdmux_offer_fill(struct rdmux_fabric *fabric, const struct rdmux_ep_attr *attr,
                                   const char *listener_paths, struct rdmux_offer *offer)
{
    char both[2 * RDMUX_FILTER_MAX];
    const char *paths = attr->paths;
    if (listener_paths != NULL && strcmp(listener_paths, "auto") != 0) {
        /* An offer has room for two filters, the fabric's and this one: the endpoint's cuts the
         * listener's. */
        size_t used = 0;
        both[0] = '\0';
        for (size_t i = 0; i < fabric->registry.count; i++) {
            const char *name = fabric->registry.entries[i].name;
            if (rdmux_filter_check(name, NULL) != RDMUX_OK) {
                continue; /* a refused plug-in goes by its file's name */
            }
            bool through = rdmux_filter_allows(listener_paths, name) &&
                           rdmux_filter_allows(attr->paths, name);
            int written = snprintf(both + used, sizeof(both) - used, "%s%s%s", used == 0 ? "" : ",",
                                   through ? "" : "!", name);
            used += written < 0 ? 0 : (size_t)written;
            if (used >= sizeof(offer->filter[1])) {
                return rdmux_fail(
                    RDMUX_INVALID,
                    "endpoint: attr.paths and the listener's filter together are too long");
            }
        }
        paths = both;
    }
    rdmux_offer_defaults(fabric, paths, offer);
    offer->prefer = attr->prefer;
    offer->typical_size = attr->typical_size != 0                  ? attr->typical_size
                          : attr->prefer == RDMUX_PREFER_BANDWIDTH ? 1 << 20
                                                                   : 0;
    offer->max_send = attr->max_send;
    offer->max_recv = attr->max_recv;
    offer->require = attr->require;
    offer->require_native = attr->require_native;
    offer->liveness_ms = attr->liveness_ms;
    offer->data_sockets = attr->data_sockets;
    offer->path_timeout_ms = attr->path_timeout_ms;
    offer->setup_timeout_ms = attr->setup_timeout_ms;
    offer->private_length = (uint32_t)attr->private_length;
    if (attr->private_length != 0) {
        memcpy(offer->private_data, attr->private_data, attr->private_length);
    }
    for (uint32_t i = 0; i < offer->path_count && attr->local != NULL; i++) {
        struct rdmux_local_path *path = &offer->paths[i].path;
        bool placed = path->device[0] != '\0' || path->address[0] != '\0';
        if (placed && !is_at(path, attr->local)) {
            path->reason = RDMUX_REASON_FILTERED;
            snprintf(path->text, sizeof(path->text), "attr.local asks for %s", attr->local);
        }
    }
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------------- outcomes */

void rdmux_ep_setup_failed(struct rdmux_ep *ep)
{
    rdmux_ep_end_unconnected(ep);
    if (ep->announce) {
        ep->events |= RDMUX_EVENT_CONNECTED;
    }
    rdmux_cq_pend(ep->cq, ep);
}

static bool setup_is_over(void *user)
{
    const struct rdmux_ep *ep = user;
    return ep->phase != RDMUX_PHASE_SETUP;
}

/* Turns an endpoint whose set-up failed into the status and texts of the call that made it. */
static enum rdmux_status give_up(struct rdmux_ep *ep, const char *call)
{
    enum rdmux_status status = ep->status == RDMUX_OK ? RDMUX_PEER_GONE
                                                      : (enum rdmux_status)ep->status;
    char text[RDMUX_TEXT_MAX];
    snprintf(text, sizeof(text), "%s", ep->info.text);
    if (status == RDMUX_NO_PATH) {
        rdmux_set_last_explanation(rdmux_explanation_create(
            status, ep->candidates, ep->candidate_count, ep->info.peer_address));
        char all[RDMUX_ERROR_MAX];
        rdmux_explain_no_path(ep->candidates, ep->candidate_count, all, sizeof(all));
        rdmux_ep_dismantle(ep);
        return rdmux_fail(status, "%s: %s", call, all);
    }
    rdmux_ep_dismantle(ep);
    return rdmux_fail(status, "%s: %s", call, text);
}

/* Waits for the set-up, or promises an event. */
static enum rdmux_status finish_call(struct rdmux_ep *ep, const char *call, int timeout_ms,
                                     struct rdmux_ep **out)
{
    if (timeout_ms == 0) {
        if (ep->phase == RDMUX_PHASE_SETUP) {
            ep->announce = true;
            *out = ep;
            return RDMUX_IN_PROGRESS;
        }
        if (ep->phase == RDMUX_PHASE_READY) {
            *out = ep;
            return RDMUX_OK;
        }
        return give_up(ep, call);
    }
    enum rdmux_status status = rdmux_cq_wait_until(ep->cq, setup_is_over, ep, timeout_ms);
    if (status == RDMUX_OK && ep->phase == RDMUX_PHASE_READY) {
        *out = ep;
        return RDMUX_OK;
    }
    if (status == RDMUX_OK) {
        return give_up(ep, call);
    }
    char stage[RDMUX_TEXT_MAX];
    rdmux_ep_setup_stage(ep, stage, sizeof(stage));
    rdmux_ep_dismantle(ep);
    return status == RDMUX_TIMED_OUT
               ? rdmux_fail(status, "%s: not connected within %d ms; it was %s", call, timeout_ms,
                            stage)
               : status;
}

/* ------------------------------------------------------------------------------- connect, adopt */

/* What the calls that make endpoints have in common; attr, all defaults filled in, goes to *all. */
static enum rdmux_status check_call(const char *call, struct rdmux_fabric *fabric,
                                    struct rdmux_cq *cq, const struct rdmux_ep_attr *attr,
                                    int timeout_ms, struct rdmux_ep_attr *all)
{
    if (fabric == NULL || cq == NULL || cq->fabric != fabric || timeout_ms < -1) {
        return rdmux_fail(RDMUX_INVALID, "%s: %s", call,
                          fabric == NULL    ? "fabric is NULL"
                          : cq == NULL      ? "cq is NULL"
                          : timeout_ms < -1 ? "timeout_ms is below -1"
                                            : "cq belongs to another fabric");
    }
    if (*fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID, "%s: the process forked; the cq belongs to the parent",
                          call);
    }
    rdmux_set_last_explanation(NULL);
    enum rdmux_status status = rdmux_ep_attr_check(attr, fabric, cq, all);
    return status == RDMUX_OK ? check_local(fabric, call, all->local) : status;
}

static enum rdmux_status check_out(const char *call, struct rdmux_ep **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "%s: out is NULL", call);
    }
    *out = NULL;
    return RDMUX_OK;
}

/* What has no control channel of its own, or none that can be dialled again. */
static enum rdmux_status check_failover(const char *call, const struct rdmux_ep_attr *attr,
                                        const char *without)
{
    if (attr->failover == RDMUX_FAILOVER_OFF) {
        return RDMUX_OK;
    }
    if (without != NULL) {
        return rdmux_fail(RDMUX_UNSUPPORTED,
                          "%s: attr.failover is not possible with %s; leave it 0", call, without);
    }
    return RDMUX_OK;
}

/* An endpoint with its set-up, not started. */
static enum rdmux_status make_endpoint(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                       const struct rdmux_ep_attr *attr,
                                       const struct rdmux_listener *listener, bool plain,
                                       int timeout_ms, struct rdmux_ep **out)
{
    struct rdmux_ep *ep;
    struct rdmux_ep_attr offered = *attr;
    enum rdmux_status status = rdmux_ep_create(fabric, cq, attr, &ep);
    if (status != RDMUX_OK) {
        return status;
    }
    if (plain) {
        offered.local = NULL; /* the way tells which device it is */
    }
    status = rdmux_ep_setup_create(
        ep, &offered, listener == NULL ? NULL : rdmux_listener_paths(listener), timeout_ms);
    if (status != RDMUX_OK) {
        rdmux_ep_dismantle(ep);
        return status;
    }
    if (plain) {
        rdmux_plain_begin(ep, attr);
    }
    *out = ep;
    return RDMUX_OK;
}

enum rdmux_status rdmux_connect(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                const char *address, const struct rdmux_ep_attr *attr,
                                int timeout_ms, struct rdmux_ep **out)
{
    struct rdmux_ep_attr all = RDMUX_EP_ATTR_INIT;
    enum rdmux_status status = check_out("rdmux_connect", out);
    if (status == RDMUX_OK) {
        status = check_call("rdmux_connect", fabric, cq, attr, timeout_ms, &all);
    }
    if (status == RDMUX_OK) {
        status = check_failover("rdmux_connect", &all,
                                address != NULL && rdmux_plain_address(address) != NULL
                                    ? "an address of rdma://, which has no control channel"
                                    : NULL);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    if (!rdmux_cq_enter(cq)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_connect: the process forked; the cq belongs to the parent");
    }
    struct rdmux_ep *ep;
    status = make_endpoint(fabric, cq, &all, NULL, rdmux_plain_address(address) != NULL, timeout_ms,
                           &ep);
    if (status == RDMUX_OK) {
        status = rdmux_ep_start_connect(ep, address);
        if (status != RDMUX_OK) {
            rdmux_ep_dismantle(ep);
        } else {
            status = finish_call(ep, "rdmux_connect", timeout_ms, out);
        }
    }
    rdmux_cq_leave(cq);
    return status;
}

static enum rdmux_status check_socket(int socket, enum rdmux_role role)
{
    int type = 0;
    socklen_t length = sizeof(type);
    if (role != RDMUX_ROLE_CONNECT && role != RDMUX_ROLE_ACCEPT) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_adopt: role %d is not RDMUX_ROLE_CONNECT or RDMUX_ROLE_ACCEPT",
                          (int)role);
    }
    if (getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_adopt: socket %d is not a stream socket", socket);
    }
    struct sockaddr_storage peer;
    length = sizeof(peer);
    if (getpeername(socket, (struct sockaddr *)&peer, &length) != 0) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_adopt: socket %d is not connected", socket);
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_adopt(struct rdmux_fabric *fabric, struct rdmux_cq *cq, int socket,
                              enum rdmux_role role, const struct rdmux_ep_attr *attr,
                              int timeout_ms, struct rdmux_ep **out)
{
    struct rdmux_ep_attr all = RDMUX_EP_ATTR_INIT;
    enum rdmux_status status = check_out("rdmux_adopt", out);
    if (status == RDMUX_OK) {
        status = check_socket(socket, role);
    }
    if (status == RDMUX_OK) {
        status = check_call("rdmux_adopt", fabric, cq, attr, timeout_ms, &all);
    }
    if (status == RDMUX_OK) {
        status = check_failover("rdmux_adopt", &all, "an adopted socket, in this version of rdmux");
    }
    if (status != RDMUX_OK) {
        if (status != RDMUX_INVALID) {
            close(socket);
        }
        return status;
    }
    if (!rdmux_cq_enter(cq)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_adopt: the process forked; the cq belongs to the parent");
    }
    struct rdmux_ep *ep;
    status = make_endpoint(fabric, cq, &all, NULL, false, timeout_ms, &ep);
    if (status != RDMUX_OK) {
        if (status != RDMUX_INVALID) {
            close(socket);
        }
    } else {
        status = rdmux_ep_start_adopt(ep, socket, role);
        if (status != RDMUX_OK) {
            rdmux_ep_dismantle(ep);
        } else {
            status = finish_call(ep, "rdmux_adopt", timeout_ms, out);
        }
    }
    rdmux_cq_leave(cq);
    return status;
}

/* --------------------------------------------------------------------------------------- accept */

struct accepting {
    struct rdmux_listener *listener;
    struct rdmux_cq *cq;
    const struct rdmux_ep_attr *attr;
    struct rdmux_accept_wait wait;
    struct rdmux_ep *proved;
    enum rdmux_status status; /* why no connection can be taken */
};

/* One of the cq's connections from this listener that no call has returned yet, proved ones first.
 * NULL: there is none. */
static struct rdmux_ep *find_taken(const struct accepting *accepting)
{
    struct rdmux_ep *any = NULL;
    for (struct rdmux_list *at = accepting->cq->accepting.next; at != &accepting->cq->accepting;
         at = at->next) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, accept_link);
        if (ep->listener == accepting->listener) {
            any = ep;
            if (ep->proved) {
                break;
            }
        }
    }
    return any;
}

/* Takes a connection if there is one for this call; false: not now. The endpoint is made first, so
 * that a connection stays with the listener if there is no room for it here. */
static bool take_arrival(struct accepting *accepting, bool *has_none)
{
    struct rdmux_listener *listener = accepting->listener;
    struct rdmux_arrival arrival;
    struct rdmux_ep *ep;
    if (!rdmux_listener_offers(listener, &accepting->wait, *has_none)) {
        return false;
    }
    enum rdmux_status status = make_endpoint(accepting->cq->fabric, accepting->cq, accepting->attr,
                                             listener, rdmux_listener_is_plain(listener), 0, &ep);
    if (status != RDMUX_OK) {
        accepting->status = *has_none ? status : RDMUX_OK; /* one under way may still be proved */
        return false;
    }
    status = rdmux_listener_take_any(listener, &accepting->wait, &arrival);
    if (status == RDMUX_AGAIN) {
        rdmux_ep_dismantle(ep); /* another call was faster */
        return false;
    }
    if (status == RDMUX_OK) {
        rdmux_listener_get(listener);
        ep->listener = listener;
        ep->events |= RDMUX_EVENT_HELD;
        rdmux_list_append(&accepting->cq->accepting, &ep->accept_link);
        status = rdmux_ep_start_accept(ep, &arrival);
    }
    if (status != RDMUX_OK) {
        rdmux_log(accepting->cq->fabric, RDMUX_LOG_ERROR, "listener: a connection is dropped: %s",
                  rdmux_last_error());
        rdmux_ep_dismantle(ep);
        return true;
    }
    *has_none = false;
    return true;
}

/* Takes what there is for this call. One that can return an endpoint takes nothing: what it does
 * not need is for others. */
static bool accept_is_over(void *user)
{
    struct accepting *accepting = user;
    struct rdmux_ep *taken = find_taken(accepting);
    if (taken != NULL && taken->proved) {
        accepting->proved = taken;
        return true;
    }
    bool has_none = taken == NULL;
    while (take_arrival(accepting, &has_none)) {
    }
    return accepting->status != RDMUX_OK;
}

static enum rdmux_status accept_any(struct accepting *accepting, int timeout_ms,
                                    struct rdmux_ep **out)
{
    accepting->wait.cq = accepting->cq;
    accepting->wait.has_none = find_taken(accepting) == NULL;
    rdmux_listener_wait_begin(accepting->listener, &accepting->wait);
    enum rdmux_status status = rdmux_cq_wait_until(accepting->cq, accept_is_over, accepting,
                                                   timeout_ms);
    rdmux_listener_wait_end(accepting->listener, &accepting->wait);
    if (status != RDMUX_OK) {
        if (status == RDMUX_TIMED_OUT) {
            return timeout_ms == 0
                       ? rdmux_fail(RDMUX_AGAIN, "rdmux_accept: no connection is proved yet")
                       : rdmux_fail(RDMUX_TIMED_OUT, "rdmux_accept: no connection within %d ms",
                                    timeout_ms);
        }
        return status;
    }
    struct rdmux_ep *ep = accepting->proved;
    if (ep == NULL) {
        return accepting->status;
    }
    rdmux_list_remove(&ep->accept_link);
    ep->proved = false;
    ep->listener = NULL;
    ep->events &= ~(uint32_t)RDMUX_EVENT_HELD;
    rdmux_cq_pend(ep->cq, ep); /* messages may be there already, in receives of an SRQ */
    rdmux_listener_proved(accepting->listener, -1);
    rdmux_listener_put(accepting->listener);
    *out = ep;
    return RDMUX_OK;
}

static enum rdmux_status accept_one(struct accepting *accepting, int timeout_ms,
                                    struct rdmux_ep **out)
{
    struct rdmux_arrival arrival;
    struct rdmux_ep *ep;
    enum rdmux_status status = make_endpoint(
        accepting->cq->fabric, accepting->cq, accepting->attr, accepting->listener,
        rdmux_listener_is_plain(accepting->listener), timeout_ms, &ep);
    if (status != RDMUX_OK) {
        return status;
    }
    status = rdmux_listener_take(accepting->listener, accepting->attr->peer, &arrival);
    if (status == RDMUX_OK) {
        status = rdmux_ep_start_accept(ep, &arrival);
    }
    if (status != RDMUX_OK) {
        rdmux_ep_dismantle(ep);
        return status;
    }
    return finish_call(ep, "rdmux_accept", timeout_ms, out);
}

enum rdmux_status rdmux_accept(struct rdmux_listener *listener, struct rdmux_cq *cq,
                               const struct rdmux_ep_attr *attr, int timeout_ms,
                               struct rdmux_ep **out)
{
    struct rdmux_ep_attr all = RDMUX_EP_ATTR_INIT;
    enum rdmux_status status = check_out("rdmux_accept", out);
    if (status == RDMUX_OK && listener == NULL) {
        status = rdmux_fail(RDMUX_INVALID, "rdmux_accept: listener is NULL");
    }
    if (status == RDMUX_OK) {
        status = check_call("rdmux_accept", rdmux_listener_fabric(listener), cq, attr, timeout_ms,
                            &all);
    }
    if (status == RDMUX_OK) {
        status = check_failover("rdmux_accept", &all,
                                rdmux_listener_is_plain(listener)
                                    ? "a listener of rdma://, which has no control channel"
                                    : NULL);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    if (!rdmux_cq_enter(cq)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_accept: the process forked; the cq belongs to the parent");
    }
    struct accepting accepting = { .listener = listener, .cq = cq, .attr = &all };
    status = all.peer == 0 ? accept_any(&accepting, timeout_ms, out)
                           : accept_one(&accepting, timeout_ms, out);
    rdmux_cq_leave(cq);
    return status;
}

/* -------------------------------------------------------------------------------------- explain */

/* A conversation of its own, on the caller's thread. */
struct explaining {
    struct rdmux_fabric *fabric;
    const char *address;
    int socket;
    struct rdmux_tls *tls; /* NULL: in clear */
    uint64_t until_ns;     /* UINT64_MAX = never */
    uint8_t *bytes;        /* room for the largest frame */
};

/* Until poll(2) finds events on fd. late: what has not happened when the time is over. */
static enum rdmux_status wait_for(const struct explaining *explaining, int fd, short events,
                                  const char *late)
{
    for (;;) {
        uint64_t now = rdmux_now(explaining->fabric);
        if (now >= explaining->until_ns) {
            return rdmux_fail(RDMUX_TIMED_OUT, "rdmux_explain: %s: %s in time", explaining->address,
                              late);
        }
        uint64_t ms = explaining->until_ns == UINT64_MAX
                          ? 1000
                          : (explaining->until_ns - now) / 1000000 + 1;
        if (rdmux_fabric_is_manual(explaining->fabric)) {
            rdmux_service_step(explaining->fabric, 0); /* the listener may be our own */
            ms = ms > 5 ? 5 : ms;
        }
        struct pollfd look = { .fd = fd, .events = events };
        if (poll(&look, 1, ms > INT_MAX ? INT_MAX : (int)ms) > 0) {
            return RDMUX_OK;
        }
    }
}

static enum rdmux_status wait_for_peer(const struct explaining *explaining, short events)
{
    return wait_for(explaining, explaining->socket, events, "the listener did not answer");
}

/* A name on its way through the worker. A caller whose time is over does not wait for it: the last
 * of both frees it. */
struct lookup {
    struct rdmux_job job;
    struct rdmux_fabric *fabric;
    struct rdmux_address_text text;
    struct addrinfo *addresses;
    enum rdmux_status status;
    char error[RDMUX_TEXT_MAX];
    int done_fd; /* eventfd: the worker has been here */
    _Atomic uint32_t refs;
};

static void put_lookup(struct lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->refs, 1) != 1) {
        return;
    }
    if (lookup->addresses != NULL) {
        freeaddrinfo(lookup->addresses);
    }
    if (lookup->done_fd >= 0) {
        close(lookup->done_fd);
    }
    rdmux_release(lookup->fabric, lookup);
}

static void look_up(struct rdmux_job *job)
{
    struct lookup *lookup = RDMUX_CONTAINER(job, struct lookup, job);
    lookup->status = rdmux_address_resolve(&lookup->text, false, false, &lookup->addresses);
    if (lookup->status != RDMUX_OK) {
        snprintf(lookup->error, sizeof(lookup->error), "%s", rdmux_last_error());
    }
    uint64_t one = 1;
    ssize_t written = write(lookup->done_fd, &one, sizeof(one));
    (void)written; /* the counter is 0: there is room */
    put_lookup(lookup);
}

static enum rdmux_status take_addresses(struct lookup *lookup, struct addrinfo **out)
{
    uint64_t count;
    ssize_t taken = read(lookup->done_fd, &count, sizeof(count)); /* behind the worker's write */
    (void)taken;
    if (lookup->status != RDMUX_OK) {
        return rdmux_fail(lookup->status, "%s", lookup->error);
    }
    *out = lookup->addresses;
    lookup->addresses = NULL;
    return RDMUX_OK;
}

/* What may block for longer than there is time is the worker's. */
static enum rdmux_status resolve(const struct explaining *explaining,
                                 const struct rdmux_address_text *text, struct addrinfo **out)
{
    enum rdmux_status status = rdmux_address_resolve(text, false, true, out);
    if (status != RDMUX_AGAIN) {
        return status;
    }
    struct lookup *lookup = rdmux_allocate(explaining->fabric, sizeof(*lookup));
    if (lookup == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_explain: out of memory");
    }
    lookup->job.work = look_up;
    lookup->fabric = explaining->fabric;
    lookup->text = *text;
    atomic_store(&lookup->refs, 1);
    lookup->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lookup->done_fd < 0) {
        status = rdmux_fail(
            RDMUX_NO_MEMORY,
            "rdmux_explain: no descriptor to be had (errno %d); raise the limit with ulimit -n",
            errno);
    } else {
        atomic_store(&lookup->refs, 2);
        rdmux_worker_run(explaining->fabric, &lookup->job);
        status = wait_for(explaining, lookup->done_fd, POLLIN, "the name was not resolved");
    }
    if (status == RDMUX_OK) {
        status = take_addresses(lookup, out);
    }
    put_lookup(lookup);
    return status;
}

static enum rdmux_status dial(struct explaining *explaining, struct sockaddr_storage *peer,
                              socklen_t *peer_length)
{
    const char *address = explaining->address;
    struct rdmux_address_text text;
    struct addrinfo *addresses = NULL;
    enum rdmux_status status = rdmux_address_split(address, &text);
    if (status == RDMUX_OK && text.host[0] == '\0') {
        status = rdmux_fail(RDMUX_INVALID, "address \"%s\": a host is missing; write HOST:PORT",
                            address);
    }
    if (status == RDMUX_OK) {
        status = resolve(explaining, &text, &addresses);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    int error = 0;
    status = RDMUX_REFUSED;
    for (struct addrinfo *at = addresses; at != NULL; at = at->ai_next) {
        explaining->socket = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (explaining->socket < 0) {
            error = errno;
            continue;
        }
        error = connect(explaining->socket, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
        if (error == EINPROGRESS) {
            status = wait_for_peer(explaining, POLLOUT);
            socklen_t length = sizeof(error);
            if (status != RDMUX_OK ||
                getsockopt(explaining->socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
                error = ETIMEDOUT;
            }
        }
        if (error == 0) {
            memcpy(peer, at->ai_addr, at->ai_addrlen);
            *peer_length = at->ai_addrlen;
            status = RDMUX_OK;
            break;
        }
        close(explaining->socket);
        explaining->socket = -1;
    }
    freeaddrinfo(addresses);
    if (status == RDMUX_OK && explaining->socket >= 0) {
        return RDMUX_OK;
    }
    bool full = error == EMFILE || error == ENFILE;
    return rdmux_fail(full                    ? RDMUX_NO_MEMORY
                      : error == ETIMEDOUT    ? RDMUX_TIMED_OUT
                      : error == ECONNREFUSED ? RDMUX_REFUSED
                                              : RDMUX_IO,
                      "rdmux_explain: %s: %s; %s", address, strerror(error),
                      full ? "raise the limit with ulimit -n" : "is a server listening there?");
}

/* The same through the session. */
static enum rdmux_status send_secured(struct explaining *explaining, const uint8_t *bytes,
                                      size_t size)
{
    while (size != 0) {
        size_t done = 0;
        enum rdmux_status status = rdmux_tls_send(explaining->tls, bytes, size, &done);
        if (status == RDMUX_AGAIN) {
            status = wait_for_peer(explaining,
                                   rdmux_tls_wants_room(explaining->tls) ? POLLOUT : POLLIN);
        }
        if (status != RDMUX_OK) {
            return status;
        }
        bytes += done;
        size -= done;
    }
    return RDMUX_OK;
}

static enum rdmux_status send_all(struct explaining *explaining, const uint8_t *bytes, size_t size)
{
    if (explaining->tls != NULL) {
        return send_secured(explaining, bytes, size);
    }
    while (size != 0) {
        ssize_t sent = send(explaining->socket, bytes, size, MSG_NOSIGNAL);
        if (sent > 0) {
            bytes += sent;
            size -= (size_t)sent;
        } else if (errno == EAGAIN) {
            enum rdmux_status status = wait_for_peer(explaining, POLLOUT);
            if (status != RDMUX_OK) {
                return status;
            }
        } else if (errno != EINTR) {
            return rdmux_fail(RDMUX_PEER_GONE,
                              "rdmux_explain: the listener closed the connection: %s",
                              strerror(errno));
        }
    }
    return RDMUX_OK;
}

/* At least one byte more. */
static enum rdmux_status receive_secured(struct explaining *explaining, uint8_t *out, size_t size,
                                         size_t *got)
{
    for (;;) {
        enum rdmux_status status = rdmux_tls_receive(explaining->tls, out, size, got);
        if (status == RDMUX_AGAIN) {
            status = wait_for_peer(explaining,
                                   rdmux_tls_wants_room(explaining->tls) ? POLLOUT : POLLIN);
            if (status == RDMUX_OK) {
                continue;
            }
        }
        return status;
    }
}

static enum rdmux_status receive_frame(struct explaining *explaining, bool first, size_t *size)
{
    size_t have = 0;
    for (;;) {
        bool bad = false;
        size_t total = rdmux_frame_total(explaining->bytes, have, first, &bad);
        if (bad) {
            return rdmux_fail(RDMUX_PROTOCOL,
                              "rdmux_explain: what listens there does not speak rdmux");
        }
        if (total != 0 && have == total) {
            *size = total;
            return RDMUX_OK;
        }
        size_t want = total == 0 ? RDMUX_FRAME_HEADER_SIZE : total;
        if (explaining->tls != NULL) {
            size_t more = 0;
            enum rdmux_status status = receive_secured(explaining, explaining->bytes + have,
                                                       want - have, &more);
            if (status != RDMUX_OK) {
                return status;
            }
            have += more;
            continue;
        }
        ssize_t got = recv(explaining->socket, explaining->bytes + have, want - have, 0);
        if (got > 0) {
            have += (size_t)got;
        } else if (got == 0) {
            return rdmux_fail(RDMUX_PEER_GONE, "rdmux_explain: the listener closed the connection");
        } else if (errno == EAGAIN) {
            enum rdmux_status status = wait_for_peer(explaining, POLLIN);
            if (status != RDMUX_OK) {
                return status;
            }
        } else if (errno != EINTR) {
            return rdmux_fail(RDMUX_PEER_GONE, "rdmux_explain: the connection broke: %s",
                              strerror(errno));
        }
    }
}

/* Runs the handshake to its end, which with explain_only comes before any path is touched. */
static enum rdmux_status converse(struct explaining *explaining, struct rdmux_handshake *handshake)
{
    bool first = true;
    for (;;) {
        struct rdmux_handshake_action action;
        rdmux_handshake_next(handshake, &action);
        enum rdmux_status status = RDMUX_OK;
        size_t size = 0;
        switch (action.kind) {
        case RDMUX_ACTION_SEND:
            status = send_all(explaining, action.bytes, action.size);
            break;
        case RDMUX_ACTION_NONE:
            status = receive_frame(explaining, first, &size);
            first = false;
            if (status == RDMUX_OK) {
                rdmux_handshake_frame(handshake, explaining->bytes, size,
                                      rdmux_now(explaining->fabric));
            }
            break;
        case RDMUX_ACTION_DONE:
            return RDMUX_OK;
        case RDMUX_ACTION_FAIL:
            return rdmux_fail(action.status, "rdmux_explain: %s",
                              action.text == NULL ? "" : action.text);
        case RDMUX_ACTION_OPEN:
        case RDMUX_ACTION_CHOOSE:
        case RDMUX_ACTION_CONNECT:
        case RDMUX_ACTION_WRITE_PROOF:
        case RDMUX_ACTION_CHECK_PROOF:
        case RDMUX_ACTION_MEASURE:
        case RDMUX_ACTION_CLOSE_PATH:
            return rdmux_fail(
                RDMUX_PROTOCOL,
                "rdmux_explain: the listener wants to connect, although only asked to rank");
        }
        if (status != RDMUX_OK) {
            return status;
        }
    }
}

static enum rdmux_status make_explanation(enum rdmux_status status,
                                          const struct rdmux_handshake *handshake,
                                          const char *peer_address, struct rdmux_fabric *fabric,
                                          struct rdmux_explanation **out)
{
    struct rdmux_candidate *candidates = rdmux_allocate(fabric,
                                                        RDMUX_MATCH_MAX * sizeof(*candidates));
    if (candidates == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_explain: out of memory");
    }
    size_t count = rdmux_handshake_candidates(handshake, candidates, RDMUX_MATCH_MAX);
    bool chosen = false;
    for (size_t i = 0; i < count; i++) {
        chosen = chosen || candidates[i].reason == RDMUX_REASON_CHOSEN;
    }
    if (status == RDMUX_OK && !chosen) {
        char text[RDMUX_ERROR_MAX];
        rdmux_explain_no_path(candidates, count, text, sizeof(text));
        status = rdmux_fail(RDMUX_NO_PATH, "rdmux_explain: %s", text);
    }
    if (status == RDMUX_OK || status == RDMUX_NO_PATH) {
        *out = rdmux_explanation_create(status, candidates, count, peer_address);
        status = *out == NULL ? rdmux_fail(RDMUX_NO_MEMORY, "rdmux_explain: out of memory")
                              : status;
    }
    rdmux_release(fabric, candidates);
    return status;
}

static enum rdmux_status secure(struct explaining *explaining)
{
    struct rdmux_address_text text;
    enum rdmux_status status = rdmux_address_split(explaining->address, &text);
    return status != RDMUX_OK ? status
                              : rdmux_tls_create(explaining->fabric->auth, RDMUX_ROLE_CONNECT,
                                                 explaining->socket, text.host, &explaining->tls);
}

static enum rdmux_status explain(const struct rdmux_ep_attr *attr, struct explaining *explaining,
                                 struct rdmux_offer *offer, void *memory,
                                 struct rdmux_explanation **out)
{
    struct rdmux_fabric *fabric = explaining->fabric;
    struct sockaddr_storage peer;
    socklen_t peer_length = 0;
    enum rdmux_status status = rdmux_offer_fill(fabric, attr, NULL, offer);
    if (status == RDMUX_OK) {
        status = dial(explaining, &peer, &peer_length);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_handshake_config config = { .role = RDMUX_ROLE_CONNECT,
                                             .hello_timeout_ms = UINT32_MAX,
                                             .offer = offer,
                                             .secured = fabric->auth != NULL };
    if (fabric->auth != NULL) {
        status = secure(explaining);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    rdmux_hello_fill(fabric, &config.hello);
    config.hello.flags |= RDMUX_HELLO_EXPLAIN_ONLY;
    config.hello.flags |= attr->probe != 0 ? RDMUX_HELLO_MEASURE : 0;
    struct rdmux_handshake *handshake = NULL;
    status = rdmux_handshake_init(memory, &config, rdmux_now(fabric), &handshake);
    if (status == RDMUX_OK) {
        status = converse(explaining, handshake);
    }
    if (status != RDMUX_OK && status != RDMUX_NO_PATH) {
        return status;
    }
    char text[RDMUX_ADDRESS_MAX];
    rdmux_address_format((const struct sockaddr *)&peer, peer_length, text);
    return make_explanation(status, handshake, text, fabric, out);
}

enum rdmux_status rdmux_explain(struct rdmux_fabric *fabric, const char *address,
                                const struct rdmux_ep_attr *attr, int timeout_ms,
                                struct rdmux_explanation **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_explain: out is NULL");
    }
    *out = NULL;
    if (fabric == NULL || *fabric->alive == 0 || timeout_ms < -1 || timeout_ms == 0) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_explain: %s",
                          fabric == NULL        ? "fabric is NULL"
                          : *fabric->alive == 0 ? "the fabric belongs to the parent process"
                          : timeout_ms == 0
                              ? "timeout_ms is 0; there would be nothing to return the outcome with"
                              : "timeout_ms is below -1");
    }
    if (rdmux_plain_address(address) != NULL) {
        return rdmux_plain_refuse("rdmux_explain", address);
    }
    struct rdmux_ep_attr all;
    struct rdmux_ep_attr given = RDMUX_EP_ATTR_INIT;
    if (attr != NULL) {
        memcpy(&given, attr, attr->size < sizeof(given) ? attr->size : sizeof(given));
        given.size = attr->size;
        given.srq = NULL;
    }
    enum rdmux_status status = rdmux_ep_attr_check(attr == NULL ? NULL : &given, fabric, NULL, &all);
    if (status == RDMUX_OK) {
        status = check_local(fabric, "rdmux_explain", all.local);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    struct explaining explaining = {
        .fabric = fabric,
        .address = address,
        .socket = -1,
        .until_ns = timeout_ms < 0 ? UINT64_MAX : rdmux_now(fabric) + (uint64_t)timeout_ms * 1000000,
        .bytes = rdmux_allocate(fabric, RDMUX_FRAME_HEADER_SIZE + RDMUX_FRAME_PAYLOAD_MAX),
    };
    struct rdmux_offer *offer = rdmux_allocate(fabric, sizeof(*offer));
    void *memory = rdmux_allocate(fabric, rdmux_handshake_size());
    if (explaining.bytes == NULL || offer == NULL || memory == NULL) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "rdmux_explain: out of memory");
    } else {
        status = explain(&all, &explaining, offer, memory, out);
    }
    rdmux_tls_destroy(explaining.tls);
    if (explaining.socket >= 0) {
        close(explaining.socket);
    }
    rdmux_release(fabric, memory);
    rdmux_release(fabric, offer);
    rdmux_release(fabric, explaining.bytes);
    return status;
}
