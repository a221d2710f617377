/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A domain: an opened device with its protection domain, and the reader of its asynchronous events.
 * Events of one queue pair concern one endpoint, and only its cq's owner may report them: the
 * reader sets a mark and wakes the cq.
 */
#include "verbs/verbs_domain.h"

#include "verbs/verbs_completion.h"
#include "verbs/verbs_device.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_self_test.h"
#include "verbs/verbs_transport.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static_assert(offsetof(struct verbs_domain, base) == 0, "verbs_domain_of() relies on it");

enum { PORT_BITS = 64 };

/* ----------------------------------------------------------------------------------------- open */

/* Keeps children of a fork from taking pinned pages of this process. Kernels since 5.12 ensure
 * that; on older ones the library does, if asked before the first registration
 * (ibv_fork_init(3)). */
static void protect_from_fork(struct rdmux_fabric *fabric)
{
    if (ibv_is_fork_initialized() != IBV_FORK_DISABLED) {
        return;
    }
    int error = ibv_fork_init();
    if (error != 0) {
        rdmux_provider_log(fabric, RDMUX_LOG_WARN,
                           "verbs: this kernel does not protect pinned memory from fork, and "
                           "libibverbs cannot: %s; do not fork while endpoints are open",
                           strerror(error));
    }
}

static enum rdmux_status open_page(struct verbs_domain *domain)
{
    domain->page = rdmux_verbs_pages_map(sizeof(*domain->page));
    if (domain->page == NULL) {
        rdmux_provider_error("%s: out of memory", domain->device);
        return RDMUX_NO_MEMORY;
    }
    uint64_t *word = &domain->page->flush_word;
    enum rdmux_status status = rdmux_verbs_pin(domain, "flush word", word, sizeof(*word),
                                               (uintptr_t)word, IBV_ACCESS_REMOTE_READ, 1,
                                               &domain->flush_mr);
    if (status != RDMUX_OK) {
        goto unmap;
    }
    uint64_t *sink = &domain->page->sink;
    status = rdmux_verbs_pin(domain, "flush sink", sink, sizeof(*sink), (uintptr_t)sink,
                             IBV_ACCESS_LOCAL_WRITE | domain->transport->sink_access, 1,
                             &domain->sink_mr);
    if (status != RDMUX_OK) {
        goto deregister;
    }
    return RDMUX_OK;

deregister:
    (void)ibv_dereg_mr(domain->flush_mr);
unmap:
    rdmux_verbs_pages_unmap(domain->page, sizeof(*domain->page));
    return status;
}

static void close_page(struct verbs_domain *domain)
{
    (void)ibv_dereg_mr(domain->sink_mr);
    (void)ibv_dereg_mr(domain->flush_mr);
    rdmux_verbs_pages_unmap(domain->page, sizeof(*domain->page));
}

/* Applies the device's latest self-test result, see rdmux_verbs_probe(). */
static void mind_self_test(struct verbs_domain *domain)
{
    struct verbs_self_test self_test;
    if (!rdmux_verbs_self_test_recall(domain->device, domain->attr.node_guid, &self_test)) {
        return;
    }
    if ((self_test.faults & VERBS_SELF_TEST_ATOMICS) != 0) {
        domain->attr.atomic_cap = IBV_ATOMIC_NONE;
    }
    domain->lacks_inline = (self_test.faults & VERBS_SELF_TEST_INLINE) != 0;
    domain->lacks_nothing |= (self_test.faults & VERBS_SELF_TEST_NOTHING) != 0;
}

static enum rdmux_status set_up(struct verbs_domain *domain)
{
    int error = ibv_query_device(domain->context, &domain->attr);
    if (error != 0) {
        rdmux_provider_error("%s cannot be queried: %s", domain->device, strerror(error));
        return RDMUX_IO;
    }
    /* A retransmitted fenced request of soft RoCE waits for reads behind it, and those wait for it:
     * rxe_req.c counts every read ever sent, up to Linux 6.12 at least. */
    domain->lacks_fence = rdmux_verbs_is_rxe(&domain->attr);
    /* When soft RoCE retransmits a read and the peer has meanwhile carried out a write or read of
     * no bytes, the peer takes the read for one of no bytes and finds no region. Both queue pairs
     * then fail. read_reply() in rxe_resp.c looks at the length of the latest request, up to Linux
     * 6.12 at least. */
    domain->lacks_nothing = domain->lacks_fence;
    /* The library of soft RoCE takes the length of a list's first piece for the whole list's in
     * ibv_wr_set_sge_list(), and drops all lengths in ibv_wr_set_inline_data_list(): rxe.c in
     * rdma-core 44; pull request 1744 fixes the first. */
    domain->lacks_calls = domain->lacks_fence;
    /* After packet loss or reordering an acknowledgment of soft RoCE may come twice or late, in the
     * middle of a read's response. check_psn() in rxe_comp.c lets it pass, and the next packet of
     * the response counts as an error. The read nevertheless completes with IB_WC_SUCCESS
     * (COMPST_ERROR in rxe_completer(), with a warning in the kernel's log); only then the queue
     * pair fails. This holds up to Linux 6.12 at least. */
    domain->doubts_reads = domain->lacks_fence;
    mind_self_test(domain);
    int flags = fcntl(domain->context->async_fd, F_GETFL);
    if (flags < 0 || fcntl(domain->context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        rdmux_provider_error("%s: its events cannot be read without waiting: %s", domain->device,
                             strerror(errno));
        return RDMUX_IO;
    }
    domain->pd = ibv_alloc_pd(domain->context);
    if (domain->pd == NULL) {
        rdmux_provider_error("%s has no protection domain to give: %s", domain->device,
                             strerror(errno));
        return RDMUX_NO_MEMORY;
    }
    enum rdmux_status status = open_page(domain);
    if (status != RDMUX_OK) {
        (void)ibv_dealloc_pd(domain->pd);
    }
    return status;
}

enum rdmux_status rdmux_verbs_domain_open(const struct verbs_transport *transport,
                                          struct rdmux_provider_domain *base,
                                          const struct rdmux_local_path *path)
{
    struct verbs_domain *domain = verbs_domain_of(base);
    domain->transport = transport;
    memcpy(domain->device, path->device, sizeof(domain->device));
    protect_from_fork(base->fabric);
    enum rdmux_status status = rdmux_verbs_device_open(domain->device, &domain->context);
    if (status != RDMUX_OK) {
        return status;
    }
    status = set_up(domain);
    if (status != RDMUX_OK) {
        (void)ibv_close_device(domain->context);
        return status;
    }
    (void)pthread_mutex_init(&domain->lock, NULL);
    rdmux_provider_log(base->fabric, RDMUX_LOG_DEBUG,
                       "%s: device %s opened; atomics of the device %s", transport->name,
                       domain->device,
                       domain->attr.atomic_cap == IBV_ATOMIC_GLOB
                           ? "hold for the CPU, too"
                           : (domain->attr.atomic_cap == IBV_ATOMIC_HCA ? "hold within the device"
                                                                        : "are missing"));
    return RDMUX_OK;
}

void rdmux_verbs_domain_close(struct rdmux_provider_domain *base)
{
    struct verbs_domain *domain = verbs_domain_of(base);
    close_page(domain);
    (void)ibv_dealloc_pd(domain->pd);
    (void)ibv_close_device(domain->context);
    (void)pthread_mutex_destroy(&domain->lock);
}

/* --------------------------------------------------------------------------------------- events */

static void mark_cq(struct verbs_cq *cq, uint32_t events)
{
    uint64_t one = 1;
    atomic_fetch_or_explicit(&cq->attention, events, memory_order_release);
    ssize_t written = write(cq->event, &one, sizeof(one));
    (void)written; /* a full counter is readable as well */
}

static void mark_all(struct verbs_domain *domain, uint32_t events)
{
    (void)pthread_mutex_lock(&domain->lock);
    for (struct verbs_cq *cq = domain->cqs; cq != NULL; cq = cq->domain_next) {
        mark_cq(cq, events);
    }
    (void)pthread_mutex_unlock(&domain->lock);
}

/* Sets a mark in a queue. The queue pair lives until its event is acknowledged
 * (ibv_ack_async_event(3)), and so does its queue, unless rdmux_verbs_queue_release() detached
 * it. */
static void mark_queue(struct verbs_domain *domain, const struct ibv_qp *qp, uint32_t events)
{
    (void)pthread_mutex_lock(&domain->lock);
    struct verbs_queue *queue = qp->qp_context;
    if (queue != NULL) {
        atomic_fetch_or_explicit(&queue->events, events, memory_order_release);
        mark_cq(queue->cq, VERBS_EVENT_QUEUE);
    }
    (void)pthread_mutex_unlock(&domain->lock);
}

static void tell_event(struct rdmux_provider_event *out, enum rdmux_reason reason,
                       const char *format, ...) RDMUX_PRINTF(3, 4);
static void tell_event(struct rdmux_provider_event *out, enum rdmux_reason reason,
                       const char *format, ...)
{
    va_list arguments;
    out->reason = (uint32_t)reason;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vsnprintf(out->text, sizeof(out->text), format, arguments);
    va_end(arguments);
}

static void set_port(struct verbs_domain *domain, int port, bool is_down)
{
    if (port < 0 || port >= PORT_BITS) {
        return;
    }
    if (is_down) {
        atomic_fetch_or(&domain->ports_down, UINT64_C(1) << port);
    } else {
        atomic_fetch_and(&domain->ports_down, ~(UINT64_C(1) << port));
    }
}

/* Handles an event. True: the event is to be reported, in *out. */
static bool take_event(struct verbs_domain *domain, const struct ibv_async_event *event,
                       struct rdmux_provider_event *out)
{
    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
        mark_queue(domain, event->element.qp, VERBS_EVENT_FATAL);
        return false;
    case IBV_EVENT_QP_ACCESS_ERR:
        mark_queue(domain, event->element.qp, VERBS_EVENT_ACCESS);
        return false;
    case IBV_EVENT_QP_REQ_ERR:
        mark_queue(domain, event->element.qp, VERBS_EVENT_REQUEST);
        return false;
    case IBV_EVENT_CQ_ERR:
        mark_cq(event->element.cq->cq_context, VERBS_EVENT_FATAL);
        return false;
    case IBV_EVENT_DEVICE_FATAL:
        atomic_store(&domain->is_gone, true);
        mark_all(domain, VERBS_EVENT_DEVICE);
        tell_event(out, RDMUX_REASON_NO_DEVICE, "device %s failed, or was taken away",
                   domain->device);
        return true;
    case IBV_EVENT_PORT_ERR:
        set_port(domain, event->element.port_num, true);
        tell_event(out, RDMUX_REASON_PORT_DOWN, "port %d of device %s went down",
                   event->element.port_num, domain->device);
        return true;
    case IBV_EVENT_PORT_ACTIVE:
        set_port(domain, event->element.port_num, false);
        mark_all(domain, VERBS_EVENT_ADDRESS);
        tell_event(out, RDMUX_REASON_USABLE, "port %d of device %s is up", event->element.port_num,
                   domain->device);
        return true;
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
        mark_all(domain, VERBS_EVENT_ADDRESS);
        tell_event(out, RDMUX_REASON_USABLE, "port %d of device %s has other addresses: %s",
                   event->element.port_num, domain->device, ibv_event_type_str(event->event_type));
        return true;
    default: /* irrelevant, or of a later library */
        return false;
    }
}

enum rdmux_status rdmux_verbs_async_event(struct rdmux_provider_domain *base,
                                          struct rdmux_provider_event *out)
{
    struct verbs_domain *domain = verbs_domain_of(base);
    struct ibv_async_event event;
    while (ibv_get_async_event(domain->context, &event) == 0) {
        bool is_told = take_event(domain, &event, out);
        ibv_ack_async_event(&event);
        if (is_told) {
            return RDMUX_OK;
        }
    }
    return RDMUX_AGAIN;
}

int rdmux_verbs_domain_fd(struct rdmux_provider_domain *base)
{
    return verbs_domain_of(base)->context->async_fd;
}

/* --------------------------------------------------------------------------------------- doctor */

typedef void (*report_fn)(void *user, const struct rdmux_provider_finding *finding);

static void inspect_path(const struct rdmux_local_path *path, report_fn report, void *user)
{
    char words[2 * RDMUX_TEXT_MAX + 2];
    bool is_usable = path->reason == RDMUX_REASON_USABLE;
    (void)snprintf(words, sizeof(words), "%s%s%s", path->text, path->hint[0] != '\0' ? "; " : "",
                   path->hint);
    report(user, &(struct rdmux_provider_finding){ .severity = is_usable ? RDMUX_LOG_INFO
                                                                         : RDMUX_LOG_ERROR,
                                                   .object = path->device,
                                                   .text = words });
}

static void inspect_memlock(const char *name, report_fn report, void *user)
{
    const rlim_t wanted = (rlim_t)64 << 20;
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= wanted || geteuid() == 0) {
        return;
    }
    char words[RDMUX_TEXT_MAX];
    (void)snprintf(words, sizeof(words),
                   "at most %llu bytes can be registered: the limit on locked memory",
                   (unsigned long long)limit.rlim_cur);
    report(user, &(struct rdmux_provider_finding){
                     .severity = RDMUX_LOG_WARN,
                     .object = name,
                     .text = words,
                     .remedy = "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity)" });
}

enum rdmux_status rdmux_verbs_inspect(const struct verbs_transport *transport,
                                      struct rdmux_fabric *fabric, report_fn report, void *user)
{
    enum { PATHS_MAX = 16 };
    struct rdmux_local_path *paths = rdmux_provider_allocate(fabric, PATHS_MAX * sizeof(*paths));
    if (paths == NULL) {
        rdmux_provider_error("%s: out of memory", transport->name);
        return RDMUX_NO_MEMORY;
    }
    size_t count = 0;
    enum rdmux_status status = rdmux_verbs_probe(transport, fabric, paths, PATHS_MAX, &count);
    bool has_device = false;
    for (size_t i = 0; i < count && i < PATHS_MAX && status == RDMUX_OK; i++) {
        if (paths[i].device[0] != '\0') {
            has_device = true;
            inspect_path(&paths[i], report, user);
        }
    }
    if (has_device) {
        inspect_memlock(transport->name, report, user);
    }
    rdmux_provider_release(fabric, paths);
    return status;
}
