/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The resources of a completion queue: provider domains, room for entries, descriptors. */
#include "api/progress/cq_domain.h"
#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/progress/cq_progress.h"

#include <assert.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum rdmux_status rdmux_cq_reserve(struct rdmux_cq *cq, uint64_t entries)
{
    if (entries > cq->depth - cq->reserved) {
        return rdmux_fail(RDMUX_NO_MEMORY,
                          "cq: depth %llu is reserved up to %llu entries, %llu more are needed; "
                          "raise rdmux_cq_attr.depth",
                          (unsigned long long)cq->depth, (unsigned long long)cq->reserved,
                          (unsigned long long)entries);
    }
    cq->reserved += entries;
    return RDMUX_OK;
}

void rdmux_cq_unreserve(struct rdmux_cq *cq, uint64_t entries)
{
    assert(cq->reserved >= entries);
    cq->reserved -= entries;
}

static enum rdmux_status add_to_epoll(int epoll, int fd, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.fd = fd };
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        return rdmux_fail(RDMUX_IO, "cq: epoll_ctl failed: errno %d", errno);
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_cq_domain(struct rdmux_cq *cq, struct rdmux_provider_domain *domain,
                                  uint32_t depth, struct rdmux_provider_cq **out)
{
    for (uint32_t i = 0; i < cq->domain_count; i++) {
        if (cq->domains[i].cq->domain == domain) {
            *out = cq->domains[i].cq;
            return RDMUX_OK;
        }
    }
    if (cq->domain_count == RDMUX_CQ_DOMAINS_MAX) {
        return rdmux_fail(RDMUX_NO_MEMORY, "cq: attached to %d devices already, the most it can be",
                          RDMUX_CQ_DOMAINS_MAX);
    }
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
        status = add_to_epoll(cq->work_fd, fd, 0);
        if (status != RDMUX_OK) {
            goto close;
        }
    }
    cq->domains[cq->domain_count].ops = ops;
    cq->domains[cq->domain_count].cq = provider_cq;
    cq->domain_count++;
    *out = provider_cq;
    return RDMUX_OK;

close:
    ops->cq_close(provider_cq);
release:
    rdmux_release(cq->fabric, provider_cq);
    return status;
}

/* Sets the events of the domain's descriptor. The cq polls, arms and watches a domain only while
 * the domain has endpoints. Otherwise the event of a late completion would keep the cq's descriptor
 * readable forever, as no call takes that event. */
static void watch_domain(struct rdmux_provider_cq *provider_cq, uint32_t events)
{
    int fd = provider_cq->domain->ops->fd(provider_cq);
    struct epoll_event event = { .events = events, .data.fd = fd };
    if (fd >= 0) {
        /* Needs no memory: rdmux_cq_domain() added the descriptor. */
        (void)epoll_ctl(provider_cq->cq->work_fd, EPOLL_CTL_MOD, fd, &event);
    }
}

void rdmux_cq_domain_enter(struct rdmux_provider_cq *provider_cq)
{
    if (provider_cq->ep_count++ == 0) {
        watch_domain(provider_cq, EPOLLIN);
    }
}

void rdmux_cq_domain_leave(struct rdmux_provider_cq *provider_cq)
{
    if (--provider_cq->ep_count == 0) {
        watch_domain(provider_cq, 0);
    }
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

enum rdmux_status rdmux_cq_open_descriptors(struct rdmux_cq *cq)
{
    cq->fd = epoll_create1(EPOLL_CLOEXEC);
    cq->work_fd = epoll_create1(EPOLL_CLOEXEC);
    cq->control_fd = epoll_create1(EPOLL_CLOEXEC);
    cq->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cq->fd < 0 || cq->work_fd < 0 || cq->control_fd < 0 || cq->wake_fd < 0) {
        return rdmux_fail(
            errno == EMFILE || errno == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO,
            "rdmux_cq_create: no descriptor to be had (errno %d); raise the limit with ulimit -n",
            errno);
    }
    enum rdmux_status status = add_to_epoll(cq->fd, cq->work_fd, EPOLLIN);
    if (status == RDMUX_OK) {
        status = add_to_epoll(cq->fd, cq->wake_fd, EPOLLIN);
    }
    if (status == RDMUX_OK) {
        status = add_to_epoll(cq->fd, cq->control_fd, EPOLLIN);
    }
    return status;
}

void rdmux_cq_close_descriptors(struct rdmux_cq *cq)
{
    close_fd(cq->wake_fd);
    close_fd(cq->control_fd);
    close_fd(cq->work_fd);
    close_fd(cq->fd);
}
