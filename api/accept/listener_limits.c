/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A listener's limits: those that the program asks for, lowered to what the process's descriptors
 * allow.
 */
#include "api/accept/listener.h"
#include "api/accept/peer_quota.h"
#include "api/core/fabric.h"
#include "api/loop/descriptors.h"
#include "api/object/offer.h"

#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_BACKLOG = 1024,
    DEFAULT_MAX_PENDING = 4096,
    MIN_PER_ADDRESS = 256, /* default minimum of max_per_address and max_waiting_per_address */
    DEFAULT_HELLO_TIMEOUT_MS = 5000,
    DEFAULT_MAX_SETUPS = 256,
};

enum rdmux_status rdmux_listener_take_attr(struct rdmux_listener *listener,
                                           const struct rdmux_listen_attr *attr, uint32_t *backlog)
{
    struct rdmux_listen_attr all = RDMUX_LISTEN_ATTR_INIT;
    if (attr != NULL) {
        if (attr->size < offsetof(struct rdmux_listen_attr, paths)) {
            return rdmux_fail(RDMUX_INVALID,
                              "rdmux_listen: attr.size is %u; use RDMUX_LISTEN_ATTR_INIT",
                              attr->size);
        }
        memcpy(&all, attr, attr->size < sizeof(all) ? attr->size : sizeof(all));
    }
    if (all.flags != 0) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_listen: attr.flags 0x%x are unknown", all.flags);
    }
    enum rdmux_status status = rdmux_fabric_check_filter(listener->fabric, "attr.paths", all.paths);
    if (status != RDMUX_OK) {
        return status;
    }
    snprintf(listener->paths, sizeof(listener->paths), "%s", all.paths == NULL ? "auto" : all.paths);
    *backlog = all.backlog == 0 ? DEFAULT_BACKLOG : all.backlog > 65535 ? 65535 : all.backlog;
    all.max_pending = all.max_pending == 0 ? DEFAULT_MAX_PENDING : all.max_pending;
    all.max_setups = all.max_setups == 0 ? DEFAULT_MAX_SETUPS : all.max_setups;
    listener->asked = all;
    listener->asked.paths = NULL; /* the string belongs to the caller */
    listener->hello_timeout_ms = all.hello_timeout_ms == 0 ? DEFAULT_HELLO_TIMEOUT_MS
                                                           : all.hello_timeout_ms;
    listener->acceptor.timeout_ms = all.accept_timeout_ms;
    return rdmux_random(listener->fabric, &listener->quota_seed, sizeof(listener->quota_seed));
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Sets the limits that the program asked for, lowered to what the process's descriptors allow.
 * Connections of rdma:// need no descriptors. */
void rdmux_listener_set_limits(struct rdmux_listener *listener)
{
    const struct rdmux_listen_attr *asked = &listener->asked;
    const struct rdmux_descriptor_limit limit = listener->descriptors;
    const bool counts = listener->rdmacm == NULL;
    const uint32_t room = counts ? larger(limit.all - limit.reserve, 1) : UINT32_MAX;
    const uint32_t setups = counts ? larger(limit.reserve / RDMUX_SETUP_DESCRIPTORS, 2)
                                   : UINT32_MAX;
    const uint32_t pending = smaller(asked->max_pending, room);
    listener->max_pending = pending;
    listener->max_per_address = asked->max_per_address != 0
                                    ? asked->max_per_address
                                    : larger(pending / 4, smaller(MIN_PER_ADDRESS, room / 2));
    listener->max_waiting_per_address = asked->max_waiting_per_address != 0
                                            ? asked->max_waiting_per_address
                                            : larger(pending / 2,
                                                     smaller(MIN_PER_ADDRESS, room / 2));
    atomic_store(&listener->max_setups, smaller(asked->max_setups, setups));
}

/* The descriptor limit of the process may have changed. */
void rdmux_listener_follow_descriptors(struct rdmux_listener *listener)
{
    const struct rdmux_descriptor_limit limit = rdmux_descriptor_limit();
    if (limit.all != listener->descriptors.all) {
        pthread_mutex_lock(&listener->fabric->lock);
        listener->descriptors = limit;
        rdmux_listener_set_limits(listener);
        rdmux_peer_quotas_count_crowds(listener);
        pthread_mutex_unlock(&listener->fabric->lock);
    }
}

void rdmux_listener_tell_limits(struct rdmux_listener *listener)
{
    if (listener->max_pending < listener->asked.max_pending) {
        rdmux_log(listener->fabric, RDMUX_LOG_INFO,
                  "listener %s: keeps %u connections that wait, not %u, as the process may have %u "
                  "descriptors; raise the limit with ulimit -n",
                  listener->address, listener->max_pending, listener->asked.max_pending,
                  listener->descriptors.all);
    }
}
