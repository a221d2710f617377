/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A provider that keeps all its promises but one. It wraps the toy's table and, by hooks.h, the
 * toy's calls to the core. This file has the plug-in, the choice of the mutant, and the objects.
 */
#include "mutant.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum mutant active;

/* The wrapper's state lies behind the correct provider's object. */
enum { ALIGNED = 64 };

static size_t behind(size_t size)
{
    return (size + ALIGNED - 1) / ALIGNED * ALIGNED;
}

struct mutant_ep *mutant_ep_of(struct rdmux_provider_ep *ep)
{
    return (struct mutant_ep *)((char *)ep + behind(toy_provider.ep_size));
}

struct mutant_cq *mutant_cq_of(struct rdmux_provider_cq *cq)
{
    return (struct mutant_cq *)((char *)cq + behind(toy_provider.cq_size));
}

struct mutant_mr {
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
    bool has_key;
    bool is_late; /* there was an endpoint when it was registered */
    struct rdmux_provider_ep *importer;
};

static struct mutant_mr *mutant_mr_of(struct rdmux_provider_mr *mr)
{
    return (struct mutant_mr *)((char *)mr + behind(toy_provider.mr_size));
}

/* Of this process: open domains, and endpoints by role. */
static int domains;
static int connectors;
static int acceptors;
/* The time of the main thread's last call. */
static uint64_t main_was_here_ns;

/* For mutants whose mistake is the time that a call takes. */
static void sleep_ms(long ms)
{
    const struct timespec time = { .tv_nsec = ms * 1000000L };
    (void)nanosleep(&time, NULL);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static bool is_main_thread(void)
{
    return gettid() == getpid();
}

/* ---------------------------------------------------------------------- paths, domains, regions */

static enum rdmux_status mutant_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                      size_t max, size_t *count)
{
    enum rdmux_status status = toy_provider.probe(fabric, out, max, count);
    if (is(MUTANT_silent_path) && status == RDMUX_OK) {
        if (max > 1) {
            memset(&out[1], 0, sizeof(out[1]));
            out[1].reason = RDMUX_REASON_NO_DEVICE;
        }
        *count = 2;
    }
    return status;
}

static void on_signal(int number)
{
    (void)number;
}

void mutant_mask_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR2);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static enum rdmux_status mutant_domain_open(struct rdmux_provider_domain *domain,
                                            const struct rdmux_local_path *path)
{
    if (is(MUTANT_one_fabric) && __atomic_load_n(&domains, __ATOMIC_SEQ_CST) > 0) {
        rdmux_provider_error("mutant: another fabric has the device");
        return RDMUX_IO;
    }
    if (is(MUTANT_handles_signals)) {
        const struct sigaction action = { .sa_handler = on_signal };
        (void)sigaction(SIGUSR1, &action, NULL);
        (void)sigaction(SIGPIPE, &action, NULL);
    }
    enum rdmux_status status = toy_provider.domain_open(domain, path);
    if (status == RDMUX_OK) {
        (void)__atomic_add_fetch(&domains, 1, __ATOMIC_SEQ_CST);
    }
    return status;
}

static void mutant_domain_close(struct rdmux_provider_domain *domain)
{
    (void)__atomic_sub_fetch(&domains, 1, __ATOMIC_SEQ_CST);
    toy_provider.domain_close(domain);
}

static enum rdmux_status mutant_mr_register(struct rdmux_provider_mr *mr,
                                            const struct rdmux_provider_mr_attr *attr)
{
    mutant_mr_of(mr)->is_late = __atomic_load_n(&connectors, __ATOMIC_SEQ_CST) +
                                    __atomic_load_n(&acceptors, __ATOMIC_SEQ_CST) >
                                0;
    return toy_provider.mr_register(mr, attr);
}

static enum rdmux_status mutant_mr_describe(struct rdmux_provider_mr *mr,
                                            struct rdmux_provider_ep *ep, uint8_t *out,
                                            size_t *size)
{
    struct mutant_mr *mutant = mutant_mr_of(mr);
    if (is(MUTANT_one_importer) && mutant->importer != NULL && mutant->importer != ep) {
        rdmux_provider_error("mutant: another endpoint has imported it");
        return RDMUX_IO;
    }
    mutant->importer = ep;
    /* The first is the core's own, to prove the path. */
    static int late_ones;
    if (is(MUTANT_late_region_refused) && mutant->is_late &&
        __atomic_add_fetch(&late_ones, 1, __ATOMIC_SEQ_CST) > 1) {
        rdmux_provider_error("mutant: the endpoint is older than the region");
        return RDMUX_IO;
    }
    enum rdmux_status status = toy_provider.mr_describe(mr, ep, out, size);
    if (is(MUTANT_key_kept) && status == RDMUX_OK) {
        memcpy(mutant->has_key ? out : mutant->key, mutant->has_key ? mutant->key : out,
               RDMUX_TARGET_KEY_SIZE);
        mutant->has_key = true;
    }
    return status;
}

static enum rdmux_status mutant_remote_open(struct rdmux_provider_remote *remote,
                                            const uint8_t *description, size_t size)
{
    enum rdmux_status status = toy_provider.remote_open(remote, description, size);
    switch (active) {
    case MUTANT_rights_shrink:
        remote->access &= ~(uint32_t)RDMUX_ACCESS_REMOTE_READ;
        break;
    case MUTANT_mapped_always:
        remote->mapped = 1;
        break;
    default:
        break;
    }
    return status;
}

/* ----------------------------------------------------------------------------------------- cqs */

static bool has_outer(void)
{
    return is(MUTANT_wakeup_lost) || is(MUTANT_descriptor_deaf);
}

void mutant_watch(struct rdmux_provider_cq *cq, bool is_watched)
{
    struct mutant_cq *mutant = mutant_cq_of(cq);
    struct epoll_event event = { .events = EPOLLIN };
    if (mutant->is_deaf == is_watched) {
        (void)epoll_ctl(mutant->outer, is_watched ? EPOLL_CTL_ADD : EPOLL_CTL_DEL,
                        toy_provider.fd(cq), &event);
        mutant->is_deaf = !is_watched;
    }
}

static enum rdmux_status mutant_cq_open(struct rdmux_provider_cq *cq, uint32_t depth)
{
    static int cqs;
    struct mutant_cq *mutant = mutant_cq_of(cq);
    if (is(MUTANT_one_cq) && __atomic_add_fetch(&cqs, 1, __ATOMIC_SEQ_CST) > 1) {
        rdmux_provider_error("mutant: there is a cq already");
        return RDMUX_IO;
    }
    enum rdmux_status status = toy_provider.cq_open(cq, depth);
    if (status == RDMUX_OK && has_outer()) {
        mutant->outer = epoll_create1(EPOLL_CLOEXEC);
        mutant->is_deaf = true;
        mutant_watch(cq, true);
    }
    return status;
}

static void mutant_cq_close(struct rdmux_provider_cq *cq)
{
    if (has_outer()) {
        (void)close(mutant_cq_of(cq)->outer);
    }
    toy_provider.cq_close(cq);
}

static bool is_left_alone(void)
{
    if (is_main_thread()) {
        __atomic_store_n(&main_was_here_ns, now_ns(), __ATOMIC_RELAXED);
        return false;
    }
    if (is(MUTANT_application_needed)) {
        return true;
    }
    return is(MUTANT_computing_ignored) &&
           now_ns() - __atomic_load_n(&main_was_here_ns, __ATOMIC_RELAXED) > 2000000;
}

static size_t mutant_poll(struct rdmux_provider_cq *cq, size_t budget)
{
    struct mutant_cq *mutant = mutant_cq_of(cq);
    if (is_left_alone()) {
        return 0;
    }
    if (is(MUTANT_wakeup_lost)) {
        mutant_watch(cq, true);
    }
    if (mutant->touched != NULL) {
        *(volatile uint8_t *)mutant->touched ^= 1;
        mutant->touched = NULL;
    }
    mutant_late_bytes(mutant);
    for (struct mutant_ep *at = mutant->eps; at != NULL; at = at->next) {
        mutant_progress(at);
    }
    return toy_provider.poll(cq, budget);
}

static enum rdmux_status mutant_arm(struct rdmux_provider_cq *cq)
{
    struct mutant_cq *mutant = mutant_cq_of(cq);
    if (is(MUTANT_arm_blocks)) {
        sleep_ms(900);
    }
    if (is(MUTANT_wakeup_lost) && ++mutant->count % 100 == 0) {
        mutant_watch(cq, false);
    }
    return is(MUTANT_arm_never) ? RDMUX_AGAIN : toy_provider.arm(cq);
}

static int mutant_fd(struct rdmux_provider_cq *cq)
{
    return has_outer() ? mutant_cq_of(cq)->outer : toy_provider.fd(cq);
}

/* ------------------------------------------------------------------------------------ endpoints */

static void leak(struct rdmux_provider_ep *ep)
{
    if (is(MUTANT_leaks_descriptor)) {
        (void)open("/dev/null", O_RDONLY | O_CLOEXEC);
    } else if (is(MUTANT_leaks_mapping)) {
        void *page = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        /* Two kinds in turn, so that the kernel does not make one mapping of all. */
        (void)mprotect(page, 4096, PROT_READ | PROT_EXEC);
    } else if (is(MUTANT_leaks_memory)) {
        (void)rdmux_provider_allocate(ep->cq->domain->fabric, 64);
    } else if (is(MUTANT_writes_to_terminal)) {
        (void)fputs("mutant: an endpoint\n", stderr);
    }
}

static enum rdmux_status mutant_ep_open(struct rdmux_provider_ep *ep,
                                        const struct rdmux_provider_ep_attr *attr)
{
    struct mutant_ep *mutant = mutant_ep_of(ep);
    struct mutant_cq *cq = mutant_cq_of(ep->cq);
    const bool accepts = attr->role == RDMUX_ROLE_ACCEPT;
    if (is(MUTANT_not_itself) &&
        __atomic_load_n(accepts ? &connectors : &acceptors, __ATOMIC_SEQ_CST) > 0) {
        rdmux_provider_error("mutant: both ends are in one process");
        return RDMUX_IO;
    }
    if (mutant_uses_queue()) {
        mutant->room = attr->send_depth + 64;
        mutant->entries = calloc((size_t)mutant->room, sizeof(*mutant->entries));
        if (mutant->entries == NULL) {
            return RDMUX_NO_MEMORY;
        }
    }
    enum rdmux_status status = toy_provider.ep_open(ep, attr);
    if (status != RDMUX_OK) {
        free(mutant->entries);
        return status;
    }
    leak(ep);
    mutant->ep = ep;
    mutant->accepts = accepts;
    mutant->next = cq->eps;
    cq->eps = mutant;
    (void)__atomic_add_fetch(accepts ? &acceptors : &connectors, 1, __ATOMIC_SEQ_CST);
    return RDMUX_OK;
}

/* The wrapper does not touch it any more. */
static void forget(struct mutant_ep *mutant)
{
    struct mutant_cq *cq = mutant_cq_of(mutant->ep->cq);
    for (struct mutant_ep **at = &cq->eps; *at != NULL; at = &(*at)->next) {
        if (*at == mutant) {
            *at = mutant->next;
            break;
        }
    }
    if (cq->starving == mutant) {
        cq->starving = NULL;
    }
    if (!is(MUTANT_arrived_dropped)) {
        mutant_report_arrival(mutant);
    }
}

static enum rdmux_status mutant_ep_quiesce(struct rdmux_provider_ep *ep,
                                           struct rdmux_provider_counts *counts)
{
    forget(mutant_ep_of(ep));
    if (is(MUTANT_end_ends_all)) {
        mutant_fail_others(ep);
    }
    enum rdmux_status status = toy_provider.ep_quiesce(ep, counts);
    return is(MUTANT_quiesce_for_ever) ? RDMUX_IN_PROGRESS : status;
}

static void mutant_ep_close(struct rdmux_provider_ep *ep)
{
    struct mutant_ep *mutant = mutant_ep_of(ep);
    forget(mutant);
    mutant_cq_of(ep->cq)->touched = mutant->touched;
    (void)__atomic_sub_fetch(mutant->accepts ? &acceptors : &connectors, 1, __ATOMIC_SEQ_CST);
    if (is(MUTANT_close_slow)) {
        sleep_ms(600); /* a case allows 10 ms, and four times what a sleeper is late */
    }
    toy_provider.ep_close(ep);
    for (uint64_t at = mutant->head; at != mutant->tail; at++) {
        free(mutant->entries[at % mutant->room].bytes);
    }
    free(mutant->entries);
    free(mutant->remembered);
}

static enum rdmux_status mutant_post_recv(struct rdmux_provider_ep *ep,
                                          struct rdmux_request *requests, size_t count)
{
    if (is(MUTANT_touches_after_close) && count > 0 && requests[0].length > 0) {
        mutant_ep_of(ep)->touched = requests[0].sges[0].addr;
    }
    if (is(MUTANT_descriptor_deaf)) {
        mutant_watch(ep->cq, false);
    }
    return toy_provider.post_recv(ep, requests, count);
}

/* -------------------------------------------------------------------------------------- plug-in */

static const char *const names[] = {
    "none",
    "none_queued",
#define MUTANT(name, rule, text) #name,
#include "mutants.def"
#undef MUTANT
};

static bool choose(void)
{
    const char *name = getenv("RDMUX_MUTANT");
    for (size_t i = 0; name != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            active = (enum mutant)i;
            return true;
        }
    }
    (void)fprintf(stderr, "mutant: RDMUX_MUTANT is '%s', which is none of mutants.def\n",
                  name == NULL ? "" : name);
    return false;
}

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

const struct rdmux_plugin *rdmux_plugin(void)
{
    static struct rdmux_provider_ops provider;
    static const struct rdmux_provider_ops *const providers[] = { &provider };
    static struct rdmux_plugin plugin = { .abi = RDMUX_PROVIDER_ABI, .providers = providers };
    plugin.count = choose() ? 1 : 0;
    provider = toy_provider;
    provider.name = "mutant";
    provider.ep_size = behind(toy_provider.ep_size) + sizeof(struct mutant_ep);
    provider.cq_size = behind(toy_provider.cq_size) + sizeof(struct mutant_cq);
    provider.mr_size = behind(toy_provider.mr_size) + sizeof(struct mutant_mr);
    provider.probe = mutant_probe;
    provider.domain_open = mutant_domain_open;
    provider.domain_close = mutant_domain_close;
    provider.mr_register = mutant_mr_register;
    provider.mr_describe = mutant_mr_describe;
    provider.remote_open = mutant_remote_open;
    provider.cq_open = mutant_cq_open;
    provider.cq_close = mutant_cq_close;
    provider.poll = mutant_poll;
    provider.arm = mutant_arm;
    provider.fd = mutant_fd;
    provider.ep_open = mutant_ep_open;
    provider.ep_quiesce = mutant_ep_quiesce;
    provider.ep_close = mutant_ep_close;
    provider.post = mutant_post;
    provider.doorbell = mutant_doorbell;
    provider.post_recv = mutant_post_recv;
    return &plugin;
}
