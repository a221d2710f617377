/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "verbs/verbs_state.h"

#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_transport.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

void rdmux_verbs_ep_enter(struct verbs_ep *ep, enum verbs_ep_state state)
{
    assert(state > ep->state);
    assert(state != VERBS_EP_QUIET || ep->state == VERBS_EP_DRAINING);
    ep->state = state;
}

static const char *port_state(const struct verbs_ep *ep)
{
    uint64_t down = atomic_load_explicit(&verbs_domain_of_ep(ep)->ports_down, memory_order_relaxed);
    return (down >> ep->port & 1) != 0 ? "; the port is down" : "";
}

void rdmux_verbs_fail(struct verbs_ep *ep, enum rdmux_status status, const char *format, ...)
{
    char text[RDMUX_TEXT_MAX];
    char words[RDMUX_TEXT_MAX];
    assert(status != RDMUX_OK); /* a transport's table has a hole */
    if (ep->state >= VERBS_EP_FAILED) {
        return;
    }
    rdmux_verbs_ep_enter(ep, VERBS_EP_FAILED);
    ep->is_unexplained = status == RDMUX_FLUSHED;
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    (void)snprintf(text, sizeof(text), "%.16s %.40s port %u: %.160s%.20s", ep->transport->name,
                   verbs_domain_of_ep(ep)->device, ep->port, words, port_state(ep));
    rdmux_provider_failed(&ep->base, status, text);
}
