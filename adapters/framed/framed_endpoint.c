/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints: opening, connecting, failing, closing. */
#include "adapters/framed/framed_endpoint.h"

#include "adapters/framed/framed_credit.h"
#include "adapters/framed/framed_frame.h"
#include "adapters/framed/framed_send.h"
#include "api/base/bytes.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    SILENT_PINGS = 3,  /* pings without any message of the peer, before it is silent */
    DRAIN_POLLS = 128, /* a lane with bodies has one message in each */
    DRAIN_BUDGET = 64,
    LINGER_NS = 5 * 1000 * 1000, /* how long an end waits for a refusal to leave */
};

/* Each state leads to a later one. */
void rdmux_framed_write_state(struct framed_ep *ep, enum framed_state next)
{
    assert(next > ep->state);
    ep->state = next;
}

static struct framed_domain *domain_of(const struct framed_ep *ep)
{
    return (struct framed_domain *)ep->base.cq->domain;
}

/* Takes the endpoint off everything that the cq's poll visits. */
static void leave_cq(struct framed_ep *ep)
{
    rdmux_node_remove(&ep->attention);
    rdmux_node_remove(&ep->blocked);
    rdmux_framed_bell_leave(ep);
    rdmux_framed_credit_leave(ep);
}

/* ------------------------------------------------------------------------------------- failures */

void rdmux_framed_fail(struct framed_ep *ep, enum rdmux_status status, const char *format, ...)
{
    char reason[RDMUX_TEXT_MAX];
    char text[RDMUX_TEXT_MAX];
    va_list arguments;
    if (ep->state >= FRAMED_FAILED) {
        return;
    }
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    (void)snprintf(text, sizeof(text), "%s: %.*s", ep->base.ops->name,
                   RDMUX_TEXT_MAX - RDMUX_NAME_MAX - 2, reason);
    rdmux_framed_failed(ep, status, text);
}

void rdmux_framed_failed(struct framed_ep *ep, enum rdmux_status status, const char *text)
{
    if (ep->state >= FRAMED_FAILED) {
        return;
    }
    const bool was_connected = ep->state == FRAMED_CONNECTED;
    rdmux_framed_write_state(ep, FRAMED_FAILED);
    leave_cq(ep);
    if (was_connected && !ep->is_quiescing) {
        rdmux_provider_failed(&ep->base, status, text);
    } else { /* ep_connect reports it */
        ep->failure = status;
        (void)snprintf(ep->failure_text, sizeof(ep->failure_text), "%s", text);
    }
}

/* ------------------------------------------------------------------------------------ connecting */

enum rdmux_status rdmux_framed_ep_open(struct rdmux_provider_ep *base,
                                       const struct rdmux_provider_ep_attr *attr)
{
    struct framed_ep *ep = framed_ep_of(base);
    uint8_t secret[RDMUX_SECRET_SIZE];
    ep->attr = attr;
    ep->lane = domain_of(ep)->lane;
    rdmux_provider_secret(base, secret);
    bool connects = attr->role == RDMUX_ROLE_CONNECT;
    ep->tag_out = rdmux_load_host64(secret + (connects ? 0 : 8));
    ep->tag_in = rdmux_load_host64(secret + (connects ? 8 : 0));
    explicit_bzero(secret, sizeof(secret));
    enum rdmux_status status = ep->lane->open(ep);
    if (status != RDMUX_OK) {
        return status;
    }
    rdmux_framed_bell_join(ep);
    if (attr->srq != NULL) {
        rdmux_framed_credit_join(ep, (struct framed_srq *)attr->srq);
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_framed_ep_describe(struct rdmux_provider_ep *base, uint8_t *out,
                                           size_t *size)
{
    struct framed_ep *ep = framed_ep_of(base);
    size_t lane_size = *size - FRAMED_HEAD_SIZE;
    const struct framed_description ours = { .window = ep->window,
                                             .message_max = ep->message_max,
                                             .on_demand = ep->srq != NULL,
                                             .bodies = ep->body_pieces != 0 };
    rdmux_framed_description_encode(&ours, out);
    enum rdmux_status status = ep->lane->describe(ep, out + FRAMED_HEAD_SIZE, &lane_size);
    *size = FRAMED_HEAD_SIZE + lane_size;
    return status;
}

static enum rdmux_status learn_peer(struct framed_ep *ep, const uint8_t *peer, size_t size)
{
    struct framed_description theirs;
    enum rdmux_status status = rdmux_framed_description_decode(peer, size, &theirs);
    if (status != RDMUX_OK) {
        rdmux_provider_error("%s: the peer's connection data is not of this version; use the same "
                             "version of rdmux on both sides",
                             ep->base.ops->name);
        return status;
    }
    ep->send_max = theirs.message_max < ep->message_max ? theirs.message_max : ep->message_max;
    ep->send_max &= ~UINT32_C(7);
    ep->short_max = ep->short_max < ep->send_max ? ep->short_max & ~UINT32_C(7) : 0;
    ep->peer_window = theirs.window;
    ep->window_left = theirs.window;
    ep->is_peer_on_demand = theirs.on_demand != 0;
    ep->body_pieces = theirs.bodies != 0 ? ep->body_pieces : 0;
    return RDMUX_OK;
}

enum rdmux_status rdmux_framed_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                          size_t size)
{
    struct framed_ep *ep = framed_ep_of(base);
    enum rdmux_status status = RDMUX_OK;
    if (ep->state == FRAMED_OPEN) {
        status = learn_peer(ep, peer, size);
        if (status != RDMUX_OK) {
            return status;
        }
        rdmux_framed_write_state(ep, FRAMED_CONNECTING);
        peer += FRAMED_HEAD_SIZE;
        size -= FRAMED_HEAD_SIZE;
    }
    if (ep->state == FRAMED_CONNECTING) {
        status = ep->lane->connect(ep, peer, size);
        if (status != RDMUX_OK) {
            return status;
        }
        rdmux_framed_write_state(ep, FRAMED_GREETING);
        rdmux_framed_nudge(ep);
    }
    if (ep->state == FRAMED_FAILED) {
        rdmux_provider_error("%s", ep->failure_text);
        return ep->failure;
    }
    /* Both ways work once both have been greeted; and then the peer knows us. */
    if (!ep->is_greeted || !ep->has_greeted || ep->unsent != NULL) {
        return RDMUX_IN_PROGRESS;
    }
    rdmux_framed_write_state(ep, FRAMED_CONNECTED);
    rdmux_framed_credit_begin(ep);
    rdmux_framed_nudge(ep);
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------------- liveness */

enum rdmux_status rdmux_framed_ep_ping(struct rdmux_provider_ep *base)
{
    struct framed_ep *ep = framed_ep_of(base);
    if (ep->state != FRAMED_CONNECTED) {
        return RDMUX_OK;
    }
    const uint64_t now = rdmux_provider_now_ns(domain_of(ep)->base.fabric);
    const uint64_t limit = (uint64_t)ep->attr->liveness_ms * 1000000 / 4 * 3;
    if (ep->silent_pings == 0) {
        ep->silent_since_ns = now;
    } else if (ep->silent_pings >= SILENT_PINGS && ep->attr->liveness_ms != RDMUX_NEVER &&
               now - ep->silent_since_ns >= limit) {
        rdmux_framed_fail(ep, RDMUX_PEER_GONE,
                          "the peer has answered nothing over this path for %llu ms, though its "
                          "control channel lives; is the fabric between the two cut?",
                          (unsigned long long)((now - ep->silent_since_ns) / 1000000));
        return RDMUX_OK;
    }
    ep->silent_pings++;
    ep->owes_ping = true;
    rdmux_framed_nudge(ep);
    return RDMUX_OK;
}

/* -------------------------------------------------------------------------------------- the end */

enum rdmux_status rdmux_framed_ep_quiesce(struct rdmux_provider_ep *base,
                                          struct rdmux_provider_counts *counts)
{
    struct framed_ep *ep = framed_ep_of(base);
    *counts = ep->counts;
    if (ep->state == FRAMED_QUIET) {
        return ep->lane->stop(ep);
    }
    ep->is_quiescing = true;
    for (int i = 0; i < DRAIN_POLLS && ep->state == FRAMED_CONNECTED; i++) {
        if (ep->lane->progress(framed_cq_of(ep), DRAIN_BUDGET) == 0) {
            break; /* all that has come is delivered */
        }
    }
    /* The peer learns of a refusal by the refusal, if it gets it before the end. */
    if (ep->is_over && ep->under_way > 0) {
        const uint64_t now = rdmux_provider_now_ns(domain_of(ep)->base.fabric);
        if (ep->linger_until_ns == 0) {
            ep->linger_until_ns = now + LINGER_NS;
        }
        if (now < ep->linger_until_ns) {
            (void)ep->lane->progress(framed_cq_of(ep), 1);
            if (ep->under_way > 0) {
                return RDMUX_IN_PROGRESS;
            }
        }
    }
    rdmux_framed_write_state(ep, FRAMED_QUIET);
    leave_cq(ep);
    framed_cq_of(ep)->under_way -= ep->under_way;
    ep->under_way = 0;
    ep->open = NULL;
    ep->unplaced = (struct framed_queue){ 0 };
    ep->unanswered = (struct framed_queue){ 0 };
    ep->in = (struct framed_incoming){ 0 };
    ep->kept = NULL;
    return ep->lane->stop(ep);
}

void rdmux_framed_ep_close(struct rdmux_provider_ep *base)
{
    struct framed_ep *ep = framed_ep_of(base);
    if (ep->state != FRAMED_QUIET) {
        struct rdmux_provider_counts counts;
        ep->is_over = false; /* nothing lingers */
        (void)rdmux_framed_ep_quiesce(base, &counts);
    }
    ep->lane->close(ep);
}
