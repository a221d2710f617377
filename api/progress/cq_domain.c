/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The resources of a completion queue: provider domains, room for entries, descriptors. */
#include "api/progress/cq_domain.h"
#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/progress/cq_progress.h"
#include "api/system/system.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>

/* The counts of both reservations guard no other memory, so their order is relaxed. */

enum rdmux_status rdmux_cq_reserve(struct rdmux_cq *cq, uint64_t entries)
{
    uint64_t reserved = atomic_load_explicit(&cq->reserved, memory_order_relaxed);
    do {
        if (entries > cq->depth - reserved) {
            return rdmux_fail(RDMUX_NO_MEMORY,
                              "cq: depth %llu is reserved up to %llu entries, %llu more are "
                              "needed; raise rdmux_cq_attr.depth",
                              (unsigned long long)cq->depth, (unsigned long long)reserved,
                              (unsigned long long)entries);
        }
    } while (!atomic_compare_exchange_weak_explicit(&cq->reserved, &reserved, reserved + entries,
                                                    memory_order_relaxed, memory_order_relaxed));
    return RDMUX_OK;
}

void rdmux_cq_unreserve(struct rdmux_cq *cq, uint64_t entries)
{
    uint64_t before = atomic_fetch_sub_explicit(&cq->reserved, entries, memory_order_relaxed);
    assert(before >= entries);
    (void)before;
}

static enum rdmux_status reserve_domain(struct rdmux_cq *cq)
{
    uint32_t reserved = atomic_load_explicit(&cq->domains_reserved, memory_order_relaxed);
    do {
        if (reserved == RDMUX_CQ_DOMAINS_MAX) {
            return rdmux_fail(RDMUX_NO_MEMORY,
                              "cq: attached to %d devices already, the most it can be",
                              RDMUX_CQ_DOMAINS_MAX);
        }
    } while (!atomic_compare_exchange_weak_explicit(&cq->domains_reserved, &reserved, reserved + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    return RDMUX_OK;
}

static void unreserve_domain(struct rdmux_cq *cq)
{
    (void)atomic_fetch_sub_explicit(&cq->domains_reserved, 1, memory_order_relaxed);
}

static enum rdmux_status add_to_poller(int poller, int fd, uint32_t events, void *data)
{
    if (rdmux_poller_add(poller, fd, events, data) != 0) {
        return rdmux_fail(RDMUX_IO, "cq: its poller takes no descriptor: errno %d", errno);
    }
    return RDMUX_OK;
}

/* Any thread: entries up to domain_count never change. NULL: there is none on this domain. */
static struct rdmux_provider_cq *find_provider_cq(const struct rdmux_cq *cq,
                                                  const struct rdmux_provider_domain *domain)
{
    /* Pairs with add_domain(). */
    uint32_t count = __atomic_load_n(&cq->domain_count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count; i++) {
        if (cq->domains[i].cq->domain == domain) {
            return cq->domains[i].cq;
        }
    }
    return NULL;
}

/* Opens a provider cq whose entry of cq->domains is reserved. The cq does not use it yet. */
static enum rdmux_status open_domain(struct rdmux_cq *cq, struct rdmux_provider_domain *domain,
                                     uint32_t depth, struct rdmux_provider_cq **out)
{
    const struct rdmux_provider_ops *ops = domain->ops;
    struct rdmux_provider_cq *provider_cq = rdmux_allocate(cq->fabric, ops->cq_size);
    if (provider_cq == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "cq: out of memory");
    }
    provider_cq->domain = domain;
    provider_cq->cq = cq;
    rdmux_error_clear();
    enum rdmux_status status = ops->cq_open(provider_cq, depth);
    if (status != RDMUX_OK) {
        goto release;
    }
    int fd = ops->fd(provider_cq);
    if (fd >= 0) {
        status = add_to_poller(cq->work_fd, fd, 0, NULL);
        if (status != RDMUX_OK) {
            goto close;
        }
    }
    *out = provider_cq;
    return RDMUX_OK;

close:
    ops->cq_close(provider_cq);
release:
    rdmux_release(cq->fabric, provider_cq);
    return status;
}

static void add_domain(struct rdmux_cq *cq, struct rdmux_provider_cq *provider_cq)
{
    cq->domains[cq->domain_count].ops = provider_cq->domain->ops;
    cq->domains[cq->domain_count].cq = provider_cq;
    /* Pairs with find_provider_cq() of other threads. */
    __atomic_store_n(&cq->domain_count, cq->domain_count + 1, __ATOMIC_RELEASE);
}

enum rdmux_status rdmux_cq_domain(struct rdmux_cq *cq, struct rdmux_provider_domain *domain,
                                  uint32_t depth, struct rdmux_provider_cq **out)
{
    struct rdmux_provider_cq *found = find_provider_cq(cq, domain);
    if (found != NULL) {
        *out = found;
        return RDMUX_OK;
    }
    enum rdmux_status status = reserve_domain(cq);
    if (status != RDMUX_OK) {
        return status;
    }
    status = open_domain(cq, domain, depth, out);
    if (status != RDMUX_OK) {
        unreserve_domain(cq);
        return status;
    }
    add_domain(cq, *out);
    return RDMUX_OK;
}

enum rdmux_status rdmux_cq_domain_prepare(struct rdmux_cq *cq, struct rdmux_provider_domain *domain,
                                          struct rdmux_provider_cq **out)
{
    *out = NULL;
    if (find_provider_cq(cq, domain) != NULL) {
        return RDMUX_OK;
    }
    enum rdmux_status status = reserve_domain(cq);
    if (status != RDMUX_OK) {
        return status;
    }
    status = open_domain(cq, domain, cq->depth > UINT32_MAX ? UINT32_MAX : (uint32_t)cq->depth, out);
    if (status != RDMUX_OK) {
        unreserve_domain(cq);
    }
    return status;
}

void rdmux_cq_domain_give_up(struct rdmux_cq *cq, struct rdmux_provider_cq *prepared)
{
    if (prepared != NULL) {
        prepared->domain->ops->cq_close(prepared);
        rdmux_release(cq->fabric, prepared);
        unreserve_domain(cq);
    }
}

struct rdmux_provider_cq *rdmux_cq_domain_take(struct rdmux_cq *cq,
                                               struct rdmux_provider_domain *domain,
                                               struct rdmux_provider_cq *prepared)
{
    struct rdmux_provider_cq *found = find_provider_cq(cq, domain);
    if (found != NULL) {
        rdmux_cq_domain_give_up(cq, prepared); /* the cq has opened its own meanwhile */
        return found;
    }
    add_domain(cq, prepared);
    return prepared;
}

/* Sets the events of the domain's descriptor. The cq polls, arms and watches a domain only while
 * the domain has endpoints. Otherwise the event of a late completion would keep the cq's descriptor
 * readable forever, as no call takes that event. */
static void watch_domain(struct rdmux_provider_cq *provider_cq, uint32_t events)
{
    int fd = provider_cq->domain->ops->fd(provider_cq);
    if (fd >= 0) {
        /* Cannot fail: rdmux_cq_domain() added the descriptor. */
        (void)rdmux_poller_change(provider_cq->cq->work_fd, fd, events, NULL);
    }
}

void rdmux_cq_domain_enter(struct rdmux_provider_cq *provider_cq)
{
    if (provider_cq->ep_count++ == 0) {
        watch_domain(provider_cq, RDMUX_READY_IN);
    }
}

void rdmux_cq_domain_leave(struct rdmux_provider_cq *provider_cq)
{
    if (--provider_cq->ep_count == 0) {
        watch_domain(provider_cq, 0);
    }
}

static void close_poller(int poller)
{
    if (poller >= 0) {
        rdmux_poller_close(poller);
    }
}

enum rdmux_status rdmux_cq_open_descriptors(struct rdmux_cq *cq)
{
    cq->fd = rdmux_poller_open();
    cq->work_fd = rdmux_poller_open();
    cq->control_fd = rdmux_poller_open();
    (void)rdmux_wake_open(&cq->wake);
    cq->outlet.fd = -1;
    if (cq->fd < 0 || cq->work_fd < 0 || cq->control_fd < 0 || cq->wake.fd < 0) {
        return rdmux_fail(
            errno == EMFILE || errno == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO,
            "rdmux_cq_create: no descriptor to be had (errno %d); raise the limit with ulimit -n",
            errno);
    }
    if (!RDMUX_POLLER_IS_DESCRIPTOR && rdmux_wake_open(&cq->outlet) != 0) {
        return rdmux_fail(
            RDMUX_NO_MEMORY,
            "rdmux_cq_create: no descriptor to be had (errno %d); raise the limit with "
            "ulimit -n",
            errno);
    }
    enum rdmux_status status = add_to_poller(cq->fd, cq->work_fd, RDMUX_READY_IN, NULL);
    if (status == RDMUX_OK) {
        status = add_to_poller(cq->fd, cq->wake.fd, RDMUX_READY_IN, cq);
    }
    if (status == RDMUX_OK) {
        status = add_to_poller(cq->fd, cq->control_fd, RDMUX_READY_IN, cq);
    }
    return status;
}

void rdmux_cq_close_descriptors(struct rdmux_cq *cq)
{
    rdmux_wake_close(&cq->outlet);
    close_poller(cq->fd);
    rdmux_wake_close(&cq->wake);
    close_poller(cq->control_fd);
    close_poller(cq->work_fd);
}
