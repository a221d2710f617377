/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Domains: open devices of providers, each with registrations of all regions. */
#include "api/object/domain.h"

#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/loop/service.h"
#include "api/object/mr.h"
#include "api/progress/cq_owner.h"
#include "api/system/system.h"

#include <string.h>

/* setup_lock is held. */
static struct rdmux_provider_domain *find_domain(const struct rdmux_fabric *fabric,
                                                 const struct rdmux_provider_ops *ops,
                                                 const struct rdmux_local_path *path)
{
    for (size_t i = 0; i < fabric->domain_count; i++) {
        const struct rdmux_domain_slot *slot = &fabric->domains[i];
        if (slot->ops == ops && !slot->is_gone && strcmp(slot->path.device, path->device) == 0) {
            return slot->domain;
        }
    }
    return NULL;
}

bool rdmux_fabric_domain_is_open(struct rdmux_fabric *fabric, const struct rdmux_provider_ops *ops,
                                 const struct rdmux_local_path *path)
{
    if (pthread_mutex_trylock(&fabric->setup_lock) != 0) {
        return false;
    }
    bool found = find_domain(fabric, ops, path) != NULL;
    pthread_mutex_unlock(&fabric->setup_lock);
    return found;
}

/* Handles device events. An event concerns the endpoints of the device; their provider ends them at
 * its next poll, which the poke triggers. */
static void device_tells(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    struct rdmux_domain_slot *slot = RDMUX_CONTAINER(watch, struct rdmux_domain_slot, events);
    struct rdmux_provider_event event;
    bool any = false;
    while (slot->ops->async_event(slot->domain, &event) == RDMUX_OK) {
        bool good = event.reason == RDMUX_REASON_USABLE || event.reason == RDMUX_REASON_NONE;
        any = true;
        rdmux_log_about(fabric, RDMUX_CATEGORY_PROVIDER, good ? RDMUX_LOG_INFO : RDMUX_LOG_WARN,
                        "%s %s: %s", slot->ops->name, slot->path.device, event.text);
        if (event.reason == RDMUX_REASON_NO_DEVICE) {
            rdmux_service_unwatch(fabric, slot->ops->domain_fd(slot->domain), watch);
            slot->is_gone = true;
            break;
        }
    }
    if (!any) {
        return;
    }
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->cqs.next; at != &fabric->cqs; at = at->next) {
        rdmux_cq_poke(RDMUX_CONTAINER(at, struct rdmux_cq, link));
    }
    pthread_mutex_unlock(&fabric->lock);
}

static void watch_device(struct rdmux_fabric *fabric, struct rdmux_domain_slot *slot)
{
    int fd = slot->ops->domain_fd(slot->domain);
    slot->events.ready = device_tells;
    if (fd >= 0 && rdmux_service_watch(fabric, fd, RDMUX_READY_IN, &slot->events) != RDMUX_OK) {
        rdmux_log_about(fabric, RDMUX_CATEGORY_PROVIDER, RDMUX_LOG_WARN,
                        "%s %s: its events cannot be watched: %s", slot->ops->name,
                        slot->path.device, rdmux_last_error());
    }
}

enum rdmux_status rdmux_fabric_domain(struct rdmux_fabric *fabric,
                                      const struct rdmux_provider_ops *ops,
                                      const struct rdmux_local_path *path,
                                      struct rdmux_provider_domain **out)
{
    enum rdmux_status status = RDMUX_OK;
    pthread_mutex_lock(&fabric->setup_lock);
    *out = find_domain(fabric, ops, path);
    if (*out != NULL) {
        goto unlock;
    }
    if (fabric->domain_count == RDMUX_FABRIC_DOMAINS_MAX) {
        status = rdmux_fail(RDMUX_NO_MEMORY,
                            "fabric: %d devices are open already, the most it can have",
                            RDMUX_FABRIC_DOMAINS_MAX);
        goto unlock;
    }
    struct rdmux_provider_domain *domain = rdmux_allocate(fabric, ops->domain_size);
    if (domain == NULL) {
        status = rdmux_fail(RDMUX_NO_MEMORY, "fabric: out of memory");
        goto unlock;
    }
    domain->ops = ops;
    domain->fabric = fabric;
    rdmux_error_clear();
    status = ops->domain_open(domain, path);
    if (status != RDMUX_OK) {
        rdmux_release(fabric, domain);
        goto unlock;
    }
    struct rdmux_domain_slot *slot = &fabric->domains[fabric->domain_count];
    slot->ops = ops;
    slot->path = *path;
    slot->domain = domain;
    slot->is_gone = false;
    fabric->domain_count++; /* new regions register themselves; older ones below */
    status = rdmux_mr_register_all(fabric, domain);
    if (status != RDMUX_OK) {
        fabric->domain_count--;
        ops->domain_close(domain);
        rdmux_release(fabric, domain);
        goto unlock;
    }
    watch_device(fabric, slot);
    *out = domain;

unlock:
    pthread_mutex_unlock(&fabric->setup_lock);
    return status;
}
