/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The state of a listener, and what it shows: its descriptor and its waiting accept calls to the
 * program, and a bounded number of log lines. */
#include "api/accept/listener.h"
#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/loop/service.h"
#include "api/progress/cq_owner.h"

#include <assert.h>
#include <unistd.h>

enum { LINES_MAX = 64 }; /* log lines caused by pending connections, within LINES_NS */
#define LINES_NS (10 * UINT64_C(1000000000))

static bool listener_state_may_follow(enum rdmux_listener_state before,
                                      enum rdmux_listener_state next)
{
    switch (next) {
    case RDMUX_LISTENER_OPEN:
        return before == RDMUX_LISTENER_RESTING;
    case RDMUX_LISTENER_RESTING:
        return before == RDMUX_LISTENER_OPEN;
    case RDMUX_LISTENER_CLOSED:
        return before != RDMUX_LISTENER_CLOSED;
    }
    return false;
}

void rdmux_listener_set_state(struct rdmux_listener *listener, enum rdmux_listener_state state)
{
    bool allowed = listener_state_may_follow(listener->state, state);
    assert(allowed);
    (void)allowed;
    listener->state = state;
}

void rdmux_listener_update_descriptor(struct rdmux_listener *listener)
{
    bool wanted = listener->unshown != 0 || listener->proved > 0;
    if (wanted && !listener->is_readable) {
        rdmux_wake_signal(&listener->event);
    } else if (!wanted && listener->is_readable) {
        rdmux_wake_drain(&listener->event);
    }
    listener->is_readable = wanted;
}

void rdmux_listener_poke_waits(struct rdmux_listener *listener)
{
    for (struct rdmux_list *at = listener->waits.next; at != &listener->waits; at = at->next) {
        rdmux_cq_poke(RDMUX_CONTAINER(at, struct rdmux_accept_wait, link)->cq);
    }
}

/* ----------------------------------------------------------------------------------- log lines */

void rdmux_listener_log_left_out(struct rdmux_listener *listener)
{
    if (listener->untold > 0) {
        rdmux_log(
            listener->fabric, RDMUX_LOG_WARN,
            "listener %s: %llu more lines about connections that came to nothing were left out",
            listener->address, (unsigned long long)listener->untold);
    }
    listener->told = 0;
    listener->untold = 0;
}

bool rdmux_listener_may_tell(struct rdmux_listener *listener)
{
    uint64_t now_ns = rdmux_now(listener->fabric);
    if (now_ns - listener->told_since_ns >= LINES_NS) {
        rdmux_listener_log_left_out(listener);
        listener->told_since_ns = now_ns;
    }
    bool may = listener->told < LINES_MAX;
    listener->told += may;
    listener->untold += !may;
    if (listener->untold == 1) {
        rdmux_service_timer(listener->fabric, listener->told_since_ns + LINES_NS);
    }
    return may;
}

uint64_t rdmux_listener_lines_deadline(const struct rdmux_listener *listener)
{
    return listener->untold > 0 ? listener->told_since_ns + LINES_NS : UINT64_MAX;
}
