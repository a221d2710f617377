/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Liveness of a connected endpoint: heartbeats, silence of the peer, and the timers of this
 * phase. */
#include "api/session/liveness.h"

#include "api/core/ep.h"
#include "api/core/failover.h"
#include "api/data/completion.h"
#include "api/object/control_send.h"
#include "api/object/ep.h"
#include "api/object/peer_process.h"
#include "api/progress/endpoint_table.h"
#include "api/session/control.h"
#include "api/system/system.h"
#include "negotiation/control_channel.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static uint64_t period_ns(const struct rdmux_ep *ep)
{
    uint64_t period = (uint64_t)ep->info.liveness_ms * 1000000 / RDMUX_HEARTBEATS;
    return period - period / 16 * (ep->id % 4); /* spreads the heartbeats of endpoints */
}

/* Many endpoints share a wake-up: their heartbeats fall on the same few instants. */
static uint64_t next_beat_ns(uint64_t now_ns, uint64_t wait_ns)
{
    enum { INSTANTS = 16 }; /* in the time waited */
    uint64_t apart = wait_ns / INSTANTS + 1;
    return (now_ns + wait_ns) / apart * apart;
}

/* Enables TCP keepalive. Other endpoints may send the heartbeats for this one, so this channel may
 * be idle for long; the kernel then checks that the other end is alive. */
void rdmux_ep_watch_channel(const struct rdmux_ep *ep)
{
    enum { PROBES = 3 };
    const uint32_t liveness_ms = ep->info.liveness_ms;
    if (liveness_ms == RDMUX_NEVER || ep->channel == NULL) {
        return;
    }
    const uint32_t seconds = liveness_ms / 1000 / (PROBES + 1);
    const struct {
        int level;
        int name;
        uint32_t value;
    } options[] = {
        { IPPROTO_TCP, RDMUX_TCP_KEEPIDLE, seconds < 1 ? 1 : seconds },
        { IPPROTO_TCP, RDMUX_TCP_KEEPINTVL, seconds < 1 ? 1 : seconds },
        { IPPROTO_TCP, RDMUX_TCP_KEEPCNT, PROBES },
        { IPPROTO_TCP, RDMUX_TCP_USER_TIMEOUT, liveness_ms },
        { SOL_SOCKET, SO_KEEPALIVE, 1 },
    };
    /* Other kinds of sockets lack these options. */
    for (size_t i = 0; i < RDMUX_COUNT_OF(options); i++) {
        (void)setsockopt(rdmux_channel_socket(ep->channel), options[i].level, options[i].name,
                         &options[i].value, sizeof(options[i].value));
    }
}

void rdmux_ep_start_liveness(struct rdmux_ep *ep)
{
    rdmux_ep_watch_channel(ep);
    ep->session.connected_ns = rdmux_now(ep->fabric);
    ep->session.checked_ns = ep->session.connected_ns;
    if (ep->info.liveness_ms == RDMUX_NEVER || ep->process.peer == NULL) {
        ep->session.heartbeat_ns = UINT64_MAX;
    } else {
        ep->session.heartbeat_ns = next_beat_ns(ep->session.connected_ns, period_ns(ep));
    }
    rdmux_ep_timer(ep);
}

uint64_t rdmux_ep_silent_ns(const struct rdmux_ep *ep)
{
    if (ep->info.liveness_ms == RDMUX_NEVER || ep->process.peer == NULL) {
        return UINT64_MAX;
    }
    uint64_t heard = atomic_load(&ep->process.peer->heard_ns);
    uint64_t missed = heard == ep->session.missed_since_ns ? ep->session.missed_ns : 0;
    heard = heard > ep->session.connected_ns ? heard : ep->session.connected_ns;
    return heard + (uint64_t)ep->info.liveness_ms * 1000000 + missed;
}

/* Excludes time in which this side did not run, as its machine was suspended or its processor taken
 * away. Such time says nothing of the peer, which the same cause may have stopped. */
static void count_missed(struct rdmux_ep *ep, uint64_t now_ns)
{
    uint64_t period = period_ns(ep);
    uint64_t since = ep->session.checked_ns != 0 ? now_ns - ep->session.checked_ns : 0;
    uint64_t heard = atomic_load(&ep->process.peer->heard_ns);
    if (heard != ep->session.missed_since_ns) {
        ep->session.missed_since_ns = heard;
        ep->session.missed_ns = 0;
    }
    /* Late by more than a period: idle endpoints plan their checks further apart. */
    if (since > 2 * period && now_ns > ep->session.heartbeat_ns + period) {
        ep->session.missed_ns += since - period;
    }
    ep->session.checked_ns = now_ns;
}

static void beat_endpoint(struct rdmux_ep *ep, uint64_t now_ns)
{
    uint64_t period = period_ns(ep);
    count_missed(ep, now_ns);
    if (now_ns >= rdmux_ep_silent_ns(ep)) {
        char text[RDMUX_TEXT_MAX];
        snprintf(text, sizeof(text), "the peer was silent for %u ms, its liveness time",
                 ep->info.liveness_ms);
        rdmux_ep_drain_path(ep);
        if (!rdmux_failover_takes_silence(ep, text)) {
            rdmux_ep_fail(ep, RDMUX_PEER_GONE, "%s", text);
        }
        return;
    }
    if (now_ns < ep->session.heartbeat_ns) {
        return;
    }
    bool is_needed = false;
    uint64_t sent = atomic_load(&ep->process.heartbeat_group->sent_ns);
    /* Another endpoint to the same process may have sent the heartbeat for the group. An endpoint
     * whose channel is lost sends none. */
    if (ep->channel != NULL && now_ns - sent >= period / 4 * 3) {
        atomic_store(&ep->process.heartbeat_group->sent_ns, now_ns);
        struct rdmux_message message = { .type = RDMUX_FRAME_HEARTBEAT };
        rdmux_ep_tell(ep, &message);
        is_needed = true;
    }
    /* If the control channel is silent as well, the peer is silent, which is counted above.
     * Heartbeats of both sides have the same period but no order, so the next one may be just
     * behind. */
    bool speaks = atomic_load(&ep->process.peer->heard_ns) + period + period / 2 > now_ns;
    bool is_wanted = ep->session.ping_head == ep->send.head ||
                     (ep->ops->flags & RDMUX_PROVIDER_PING_BUSY) != 0;
    if (is_wanted && speaks && ep->phase == RDMUX_PHASE_READY) {
        enum rdmux_status status = ep->ops->ep_ping(ep->path);
        is_needed = is_needed || status != RDMUX_UNSUPPORTED;
        if (status != RDMUX_OK && status != RDMUX_AGAIN && status != RDMUX_UNSUPPORTED) {
            rdmux_provider_failed(ep->path, status, rdmux_last_error());
        }
    }
    is_needed = is_needed || !is_wanted || !speaks;
    /* Where another endpoint sends the heartbeats of the group, and the path needs none, this one
     * looks half as often whether that goes on. */
    ep->session.heartbeat_ns = next_beat_ns(now_ns, is_needed ? period : 2 * period);
    ep->session.ping_head = ep->send.head;
}

void rdmux_ep_live_timers(struct rdmux_ep *ep, uint64_t now_ns)
{
    if (ep->session.unexplained_deadline_ns != 0 && now_ns >= ep->session.unexplained_deadline_ns) {
        rdmux_ep_path_fault(ep);
        return;
    }
    if (ep->info.liveness_ms != RDMUX_NEVER && ep->process.peer != NULL) {
        beat_endpoint(ep, now_ns);
    }
    if (ep->phase == RDMUX_PHASE_READY && ep->session.shutdown_deadline_ns != 0 &&
        now_ns >= ep->session.shutdown_deadline_ns) {
        rdmux_ep_fail(ep, RDMUX_PEER_GONE,
                      "the peer did not take the shutdown within the liveness time");
    }
}
