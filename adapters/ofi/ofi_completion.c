/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completion and event queues: progress, sleeping. */
#include "adapters/ofi/ofi_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/fi_errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    BATCH = 16,        /* completions read at a time */
    EVENTS_EVERY = 64, /* polls in vain between looks at the event queue */
    OUTER_SETS = 3,    /* epoll sets around a cq's: of its fd, of the fabric's, of the program */
};

static struct ofi_cq *ofi_cq(struct framed_cq *cq)
{
    return (struct ofi_cq *)cq;
}

static struct ofi_domain *domain_of(const struct ofi_cq *cq)
{
    return (struct ofi_domain *)cq->base.base.base.domain;
}

/* ------------------------------------------------------------------------------ open and close */

/* Puts a queue's descriptor into the cq's epoll set. False: the queue has none. */
static bool watch(struct ofi_cq *cq, struct fid *queue)
{
    int fd = -1;
    struct epoll_event event = { .events = EPOLLIN };
    return fi_control(queue, FI_GETWAIT, &fd) == 0 && fd >= 0 &&
           fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 &&
           epoll_ctl(cq->base.base.epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Returns whether the cq's set can be in sets of the library and of the program. The kernel
 * allows few sets within each other, and a provider may use several itself (net of libfabric
 * 1.17). */
static bool is_shallow(const struct ofi_cq *cq)
{
    int sets[OUTER_SETS + 1] = { cq->base.base.epoll };
    bool fits = true;
    int count = 1;
    for (; count <= OUTER_SETS && fits; count++) {
        struct epoll_event event = { .events = EPOLLIN };
        sets[count] = epoll_create1(EPOLL_CLOEXEC);
        fits = sets[count] >= 0 &&
               epoll_ctl(sets[count], EPOLL_CTL_ADD, sets[count - 1], &event) == 0;
    }
    while (--count > 0) {
        if (sets[count] >= 0) {
            (void)close(sets[count]);
        }
    }
    return fits;
}

/* ofi_rxm of libfabric 1.17 looks at ended endpoints in fi_trywait(). */
static bool may_sleep(const struct ofi_domain *domain)
{
    return !ofi_is_rxm(domain->info);
}

/* Opens the queue that a sleeper waits for, or one without a descriptor. */
static int open_cq(struct ofi_cq *cq)
{
    const struct ofi_domain *domain = domain_of(cq);
    struct fi_cq_attr attr = { .size = OFI_CQ_SIZE,
                               .format = FI_CQ_FORMAT_MSG,
                               .wait_obj = FI_WAIT_FD };
    int result = may_sleep(domain) ? fi_cq_open(domain->domain, &attr, &cq->cq, NULL) : -FI_ENOSYS;
    bool is_open = result == 0;
    if (is_open && watch(cq, &cq->cq->fid) && is_shallow(cq)) {
        return 0;
    }
    if (is_open) {
        (void)fi_close(&cq->cq->fid); /* takes its descriptor out of the set */
    }
    /* A provider that stays on the host has its peers ring a bell. */
    cq->base.has_bell = strcmp(domain->info->fabric_attr->prov_name, "shm") == 0;
    cq->base.has_no_wake = !cq->base.has_bell;
    attr.wait_obj = FI_WAIT_NONE;
    return fi_cq_open(domain->domain, &attr, &cq->cq, NULL);
}

static int open_eq(struct ofi_cq *cq)
{
    struct fi_eq_attr attr = { .size = 256,
                               .wait_obj = cq->base.has_no_wake ? FI_WAIT_NONE : FI_WAIT_FD };
    int result = fi_eq_open(domain_of(cq)->fabric, &attr, &cq->eq, NULL);
    if (result == 0 && !cq->base.has_no_wake && (!watch(cq, &cq->eq->fid) || !is_shallow(cq))) {
        cq->base.has_no_wake = true;
    }
    return result;
}

static enum rdmux_status open_queues(struct ofi_cq *cq)
{
    rdmux_list_init(&cq->eps);
    rdmux_list_init(&cq->slabs);
    cq->bell = -1;
    int result = open_cq(cq);
    if (result != 0) {
        return rdmux_ofi_error(domain_of(cq), "fi_cq_open", result);
    }
    result = domain_of(cq)->is_connected_kind ? open_eq(cq) : 0;
    if (result != 0) {
        (void)fi_close(&cq->cq->fid);
        return rdmux_ofi_error(domain_of(cq), "fi_eq_open", result);
    }
    enum rdmux_status status = cq->base.has_bell ? rdmux_ofi_bell_open(cq) : RDMUX_OK;
    if (status != RDMUX_OK) {
        (void)fi_close(&cq->cq->fid);
    }
    return status;
}

enum rdmux_status rdmux_ofi_cq_open(struct framed_cq *cq)
{
    sigset_t mask;
    rdmux_ofi_block_signals(&mask);
    enum rdmux_status status = open_queues(ofi_cq(cq));
    rdmux_ofi_unblock_signals(&mask);
    return status;
}

void rdmux_ofi_cq_close(struct framed_cq *base)
{
    struct ofi_cq *cq = ofi_cq(base);
    if (cq->eq != NULL) {
        /* Connections of peers that gave up: the library forgets their sockets with the queue. */
        while (rdmux_ofi_read_events(cq) > 0) {
        }
        (void)fi_close(&cq->eq->fid);
    }
    (void)fi_close(&cq->cq->fid);
    if (cq->bell >= 0) {
        (void)close(cq->bell);
    }
    rdmux_ofi_slab_free_buried(cq);
}

/* ------------------------------------------------------------------------------------- progress */

/* Handles the messages that have arrived, in their order. Returns the amount of work done. */
static size_t deliver(struct ofi_slab *slab)
{
    struct ofi_message *message;
    size_t did = 1;
    while ((message = rdmux_ofi_slab_next(slab)) != NULL) {
        did += rdmux_framed_arrived(&slab->ep->base, message->bytes, message->length);
        if (rdmux_framed_keeps(&slab->ep->base)) {
            slab->kept = message;
            return did;
        }
        ofi_message_push(&slab->unposted, message);
    }
    if (slab->ep->base.state < FRAMED_FAILED) {
        rdmux_ofi_slab_post(slab);
    }
    return did;
}

static size_t deliver_body(struct ofi_slab *slab, const struct ofi_message *body, size_t length)
{
    struct framed_ep *ep = &slab->ep->base;
    size_t did = rdmux_framed_body_arrived(ep, body->bytes, length);
    if (slab->kept != NULL && !rdmux_framed_keeps(ep)) {
        ofi_message_push(&slab->unposted, slab->kept);
        slab->kept = NULL;
    }
    if (ep->state < FRAMED_FAILED) {
        rdmux_ofi_slab_post(slab);
    }
    return did;
}

/* A message or a body has arrived, or was sent. Returns the amount of work done. */
static size_t complete(const struct fi_cq_msg_entry *entry)
{
    struct ofi_message *message = entry->op_context;
    struct ofi_slab *slab = message->slab;
    if (slab->ep == NULL) {
        return 0;
    }
    switch (message->kind) {
    case OFI_RECEIVE:
        message->length = entry->len;
        message->has_arrived = true;
        return deliver(slab);
    case OFI_RECEIVE_BODY:
        return deliver_body(slab, message, entry->len);
    case OFI_SEND:
        ofi_message_push(&slab->free_sends, message);
        rdmux_framed_sent(&slab->ep->base);
        break;
    case OFI_SEND_COPY:
        ofi_message_push(&slab->free_copies, message);
        rdmux_framed_sent(&slab->ep->base);
        break;
    case OFI_SEND_BODY:
        rdmux_framed_body_sent(&slab->ep->base);
        break;
    }
    return 1;
}

/* An operation has failed: the connection has ended, or the endpoint was closed. */
static void complete_error(struct ofi_cq *cq)
{
    struct fi_cq_err_entry error = { .err = 0 };
    if (fi_cq_readerr(cq->cq, &error, 0) != 1) {
        return;
    }
    const struct ofi_message *message = error.op_context;
    struct ofi_ep *ep = message != NULL ? message->slab->ep : NULL;
    cq->is_event_due = true;
    if (ep != NULL && (error.err != FI_ECANCELED || domain_of(cq)->is_connected_kind)) {
        ep->is_shut = true; /* what has arrived is delivered first */
    }
}

/* Returns whether something waits for a queue without completions. */
static bool must_be_emptied(const struct ofi_cq *cq)
{
    return cq->was_armed || cq->is_event_due || cq->connecting > 0 || !rdmux_list_empty(&cq->slabs);
}

/* Returns the amount of work done. *is_empty: all completions are read, the failed ones, too. A read
 * that finds nothing has libfabric look at its network, so the one after the last is left out while
 * nothing depends on it. */
static size_t read_completions(struct ofi_cq *cq, size_t budget, bool *is_empty)
{
    struct fi_cq_msg_entry entries[BATCH];
    size_t did = 0;
    while (did < budget) {
        ssize_t count = fi_cq_read(cq->cq, entries, BATCH);
        if (count == -FI_EAVAIL) {
            complete_error(cq);
            did++;
            continue;
        }
        if (count <= 0) {
            *is_empty = true;
            return did;
        }
        for (ssize_t i = 0; i < count; i++) {
            did += complete(&entries[i]);
        }
        if (count < BATCH && !must_be_emptied(cq)) {
            return did;
        }
    }
    return did;
}

size_t rdmux_ofi_read_events(struct ofi_cq *cq)
{
    union {
        struct fi_eq_cm_entry entry;
        uint8_t room[sizeof(struct fi_eq_cm_entry) + 256];
    } event;
    size_t did = 0;
    for (; did < BATCH; did++) {
        uint32_t kind = 0;
        ssize_t size = fi_eq_read(cq->eq, &kind, &event, sizeof(event), 0);
        if (size == -FI_EAVAIL) {
            struct fi_eq_err_entry error = { .err = 0 };
            if (fi_eq_readerr(cq->eq, &error, 0) <= 0) {
                break;
            }
            event.entry.fid = error.fid;
            rdmux_ofi_event(cq, FI_SHUTDOWN, &event.entry, (size_t)error.err);
            continue;
        }
        if (size < (ssize_t)sizeof(event.entry)) {
            break;
        }
        rdmux_ofi_event(cq, kind, &event.entry, (size_t)size);
    }
    return did;
}

/* Fails the endpoints whose connection has ended. */
static size_t end_shut(struct ofi_cq *cq)
{
    size_t did = 0;
    for (struct rdmux_list *at = cq->eps.next; at != &cq->eps; at = at->next) {
        struct ofi_ep *ep = RDMUX_CONTAINER(at, struct ofi_ep, link);
        if (ep->is_shut && ep->base.state < FRAMED_FAILED) {
            /* A refusal may have been lost: the core asks the peer. */
            if (ep->failed_call != NULL) {
                rdmux_ofi_fail(ep, RDMUX_FLUSHED, ep->failed_call, ep->failure);
            } else {
                rdmux_framed_failed(&ep->base, RDMUX_FLUSHED, "ofi: the peer ended the connection");
            }
            did++;
        }
    }
    return did;
}

static void post_again(struct ofi_cq *cq)
{
    for (struct rdmux_list *at = cq->eps.next; at != &cq->eps; at = at->next) {
        struct ofi_ep *ep = RDMUX_CONTAINER(at, struct ofi_ep, link);
        if (ep->slab != NULL && ep->slab->unposted != NULL && ep->ep != NULL &&
            ep->state == OFI_CONNECTED && ep->base.state < FRAMED_FAILED) {
            rdmux_ofi_slab_post(ep->slab);
        }
    }
}

size_t rdmux_ofi_progress(struct framed_cq *base, size_t budget)
{
    struct ofi_cq *cq = ofi_cq(base);
    if (rdmux_list_empty(&cq->eps)) {
        return 0;
    }
    bool is_empty = false;
    size_t did = read_completions(cq, budget, &is_empty);
    cq->quiet_polls += did == 0 ? 1 : 0;
    if (is_empty && !rdmux_list_empty(&cq->slabs)) {
        rdmux_ofi_slab_free_buried(cq);
    }
    if (cq->eq != NULL && is_empty &&
        (cq->was_armed || cq->is_event_due || cq->connecting > 0 ||
         cq->quiet_polls >= EVENTS_EVERY)) {
        cq->quiet_polls = 0;
        cq->was_armed = false;
        did += rdmux_ofi_read_events(cq);
    }
    if (is_empty && cq->is_event_due) {
        cq->is_event_due = false;
        did += end_shut(cq);
    }
    if (did == 0) {
        post_again(cq);
    }
    return did;
}

enum rdmux_status rdmux_ofi_arm(struct framed_cq *base)
{
    struct ofi_cq *cq = ofi_cq(base);
    struct fid *queues[2] = { &cq->cq->fid, cq->eq != NULL ? &cq->eq->fid : NULL };
    cq->was_armed = true;
    if (rdmux_list_empty(&cq->eps) || cq->base.has_no_wake) {
        return RDMUX_OK;
    }
    if (cq->base.has_bell) {
        return rdmux_ofi_bell_rang(cq) ? RDMUX_AGAIN : RDMUX_OK;
    }
    int result = fi_trywait(domain_of(cq)->fabric, queues, cq->eq != NULL ? 2 : 1);
    return result == -FI_EAGAIN ? RDMUX_AGAIN : RDMUX_OK;
}
