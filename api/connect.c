/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The calls that make endpoints: connect, accept, adopt. */
#include "api/connection.h"

#include "api/address.h"
#include "api/descriptors.h"
#include "api/plain.h"
#include "api/setup.h"
#include "negotiation/auth.h"
#include "negotiation/bytes.h"
#include "negotiation/explain.h"
#include "negotiation/filter.h"

#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
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
enum rdmux_status rdmux_check_local(struct rdmux_fabric *fabric, const char *call, const char *local)
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
        if (rdmux_ep_was_connected(ep)) {
            *out = ep;
            return RDMUX_OK;
        }
        return give_up(ep, call);
    }
    enum rdmux_status status = rdmux_cq_wait_until(ep->cq, setup_is_over, ep, timeout_ms);
    if (status == RDMUX_OK && rdmux_ep_was_connected(ep)) {
        *out = ep; /* it may have ended already: its event tells */
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
    return status == RDMUX_OK ? rdmux_check_local(fabric, call, all->local) : status;
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

/* A program's socket has no host that a certificate could be compared with. */
static enum rdmux_status check_who_answers(const struct rdmux_fabric *fabric, enum rdmux_role role)
{
    if (role == RDMUX_ROLE_CONNECT && rdmux_auth_needs_host(fabric->auth)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_adopt: with certificates and no auth.peers everybody with a "
                          "certificate of the authority could answer, since no host was dialled; "
                          "name in auth.peers who may");
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
        status = check_who_answers(fabric, role);
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

enum {
    SETUP_IDLE_NS = 500 * 1000 *
                    1000, /* a set-up whose peer is silent for so long may be given up */
    FAR_FEWER = 4,        /* … for somebody who has so many times fewer */
    LOOKS = 16, /* rounds of progress for what set-ups have to read before another connection is taken */
};

struct accepting {
    struct rdmux_listener *listener;
    struct rdmux_cq *cq;
    const struct rdmux_ep_attr *attr;
    struct rdmux_accept_wait wait;
    struct rdmux_ep *proved;
    uint32_t looks;
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

/* Endpoints that are being set up for this listener's calls on the cq. */
static uint32_t count_setups(const struct accepting *accepting)
{
    uint32_t count = 0;
    for (struct rdmux_list *at = accepting->cq->accepting.next; at != &accepting->cq->accepting;
         at = at->next) {
        const struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, accept_link);
        count += ep->listener == accepting->listener && !ep->proved;
    }
    return count;
}

/* The one to give up for an address or identity that has `least` in set-up: its peer has been silent
 * for long, and it is of those that have the most. If there is none yet, a timer comes back when there
 * may be. */
static struct rdmux_ep *find_idle(const struct accepting *accepting, uint32_t least)
{
    uint64_t now_ns = rdmux_now(accepting->cq->fabric);
    uint64_t earliest_ns = UINT64_MAX;
    struct rdmux_ep *earliest = NULL;
    struct rdmux_ep *idle = NULL;
    uint32_t most = FAR_FEWER * least;
    for (struct rdmux_list *at = accepting->cq->accepting.next; at != &accepting->cq->accepting;
         at = at->next) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, accept_link);
        if (ep->listener != accepting->listener || ep->proved ||
            rdmux_listener_setups_beside(ep) <= most) {
            continue;
        }
        uint64_t since_ns = rdmux_setup_silent_since(ep);
        if (since_ns <= now_ns - SETUP_IDLE_NS) {
            if (!rdmux_setup_has_news(ep)) {
                most = rdmux_listener_setups_beside(ep);
                idle = ep;
            }
        } else if (since_ns < earliest_ns) {
            earliest_ns = since_ns;
            earliest = ep;
        }
    }
    if (idle == NULL && earliest != NULL) {
        earliest->setup->yield_ns = earliest_ns + SETUP_IDLE_NS;
        rdmux_ep_timer(earliest);
    }
    return idle;
}

/* Gives one up. False: there is none for that now. */
static bool make_room(struct accepting *accepting, uint32_t least, bool *has_none)
{
    struct rdmux_ep *idle = find_idle(accepting, least);
    if (idle == NULL) {
        return false;
    }
    rdmux_setup_fail(
        idle, RDMUX_TIMED_OUT,
        "the peer is silent, and others wait; raise rdmux_listen_attr.max_setups if it "
        "is slow",
        false);
    *has_none = find_taken(accepting) == NULL;
    return true;
}

/* Has a set-up something to read that may be the word that its connector is connected? */
static bool has_news(const struct accepting *accepting)
{
    for (struct rdmux_list *at = accepting->cq->accepting.next; at != &accepting->cq->accepting;
         at = at->next) {
        const struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, accept_link);
        if (ep->listener == accepting->listener && rdmux_setup_is_committed(ep) &&
            rdmux_setup_has_news(ep)) {
            return true;
        }
    }
    return false;
}

/* A peer may connect twice, one connection after the other. When the second arrives, the CONFIRM of the
 * first may still be unread. This call reads it first and leaves the second to the next call, which may
 * have other attributes. A peer that keeps talking delays others by LOOKS rounds at most. */
static bool looks_first(struct accepting *accepting)
{
    if (accepting->looks == LOOKS || !has_news(accepting)) {
        accepting->looks = 0;
        return false;
    }
    accepting->looks++;
    rdmux_cq_raise(accepting->cq, RDMUX_SIGNAL_ATTEND);
    return true;
}

/* Takes a connection if there is one for this call; false: not now. The endpoint is made first, so
 * that a connection stays with the listener if there is no room for it here. */
static bool take_arrival(struct accepting *accepting, bool *has_none)
{
    struct rdmux_listener *listener = accepting->listener;
    struct rdmux_arrival arrival;
    struct rdmux_ep *ep;
    uint32_t setups = 0;
    if (!rdmux_listener_offers(listener, &accepting->wait, *has_none, &setups) ||
        (!*has_none && looks_first(accepting))) {
        return false;
    }
    if (count_setups(accepting) >= rdmux_listener_max_setups(listener) &&
        !make_room(accepting, setups, has_none)) {
        return false;
    }
    rdmux_descriptors_make_room(accepting->cq->fabric);
    enum rdmux_status status = make_endpoint(accepting->cq->fabric, accepting->cq, accepting->attr,
                                             listener, rdmux_listener_is_plain(listener), 0, &ep);
    if (status == RDMUX_NO_MEMORY && make_room(accepting, setups, has_none)) {
        return true;
    }
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
        ep->origin = arrival.origin;
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
    ep->user = accepting->attr->user; /* it may have been taken by a call before */
    ep->events &= ~(uint32_t)RDMUX_EVENT_HELD;
    rdmux_cq_pend(ep->cq, ep); /* messages may be there already, in receives of an SRQ, or its end */
    rdmux_ep_linger_anew(ep);
    rdmux_listener_proved(accepting->listener, -1);
    rdmux_listener_release(ep);
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
