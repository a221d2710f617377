/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Fabrics: an instance of the library, its options and its lifetime. */
#include "api/core/fabric.h"
#include "api/accept/listener.h"
#include "api/accept/shake.h"
#include "api/base/capture.h"
#include "api/data/cq_service.h"
#include "api/failover/failover.h"
#include "api/life.h"
#include "api/loop/exit.h"
#include "api/loop/service.h"
#include "api/loop/worker.h"
#include "api/object/offer.h"
#include "api/object/peer_process.h"
#include "api/object/shared_stats.h"
#include "api/object/target.h"
#include "api/system/system.h"
#include "negotiation/auth.h"
#include "negotiation/filter.h"
#include "negotiation/openssl_life.h"
#include "providers/registry.h"
#ifndef RDMUX_POSIX_ONLY
#include "shm/shm_provider.h"
#endif
#include "tcp_fallback/tcp_provider.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    KNOWN_FABRIC_FLAGS = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_SERVICE_THREAD |
                         RDMUX_FABRIC_NO_WORKER_THREAD | RDMUX_FABRIC_NO_DEFAULT_PLUGINS |
                         RDMUX_FABRIC_FIND_REGIONS | RDMUX_FABRIC_SHARE_STATS,
};

static uint64_t monotonic_ns(void *user)
{
    (void)user;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* -------------------------------------------------------------------------------------- options */

static enum rdmux_status check_plugins(const struct rdmux_fabric_attr *attr)
{
    if (attr->plugin_count != 0 && attr->plugins == NULL) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_fabric_open: attr.plugins is NULL, plugin_count is %zu",
                          attr->plugin_count);
    }
    for (size_t i = 0; i < attr->plugin_count; i++) {
        if (attr->plugins[i] == NULL) {
            return rdmux_fail(RDMUX_INVALID, "rdmux_fabric_open: attr.plugins[%zu] is NULL", i);
        }
    }
    if (attr->builtin_count != 0 && attr->builtin == NULL) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_fabric_open: attr.builtin is NULL, builtin_count is %zu",
                          attr->builtin_count);
    }
    for (size_t i = 0; i < attr->builtin_count; i++) {
        if (attr->builtin[i] == NULL) {
            return rdmux_fail(RDMUX_INVALID, "rdmux_fabric_open: attr.builtin[%zu] is NULL", i);
        }
    }
    return RDMUX_OK;
}

static enum rdmux_status check_hooks(const struct rdmux_fabric_attr *attr)
{
    if ((attr->allocate == NULL) != (attr->release == NULL)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_fabric_open: attr.allocate and attr.release come together");
    }
    if (attr->log_level > RDMUX_LOG_TRACE) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_fabric_open: attr.log_level %u is not one of RDMUX_LOG_*",
                          attr->log_level);
    }
    return RDMUX_OK;
}

static enum rdmux_status take_attr(const struct rdmux_fabric_attr *from,
                                   struct rdmux_fabric_attr *to)
{
    struct rdmux_fabric_attr all = RDMUX_FABRIC_ATTR_INIT;
    *to = all;
    if (from != NULL) {
        if (from->size < offsetof(struct rdmux_fabric_attr, paths)) {
            return rdmux_fail(RDMUX_INVALID,
                              "rdmux_fabric_open: attr.size is %u; use RDMUX_FABRIC_ATTR_INIT",
                              from->size);
        }
        memcpy(to, from, from->size < sizeof(*to) ? from->size : sizeof(*to));
    }
    if ((to->flags & ~(uint32_t)KNOWN_FABRIC_FLAGS) != 0) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_fabric_open: attr.flags 0x%x are unknown",
                          to->flags & ~(uint32_t)KNOWN_FABRIC_FLAGS);
    }
    enum rdmux_status status = check_plugins(to);
    return status == RDMUX_OK ? check_hooks(to) : status;
}

/* ----------------------------------------------------------------------------------------- life */

static enum rdmux_status map_alive(struct rdmux_fabric *fabric)
{
    uint32_t *alive = rdmux_pages_map(sizeof(*alive), RDMUX_PAGES_WIPED);
    if (alive == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_fabric_open: out of memory");
    }
    *alive = 1;
    fabric->alive = alive;
    return RDMUX_OK;
}

static void unmap_alive(struct rdmux_fabric *fabric)
{
    if (fabric->alive != NULL) {
        rdmux_pages_unmap((void *)(uintptr_t)fabric->alive, sizeof(*fabric->alive));
    }
}

static void take_hooks(struct rdmux_fabric *fabric, const struct rdmux_fabric_attr *attr)
{
    fabric->hooks.flags = attr->flags;
    fabric->hooks.log = attr->log;
    fabric->hooks.log_event = attr->log_event;
    fabric->hooks.log_user = attr->log_user;
    fabric->hooks.log_level = attr->log_level;
    fabric->hooks.log_fd = -1;
    fabric->hooks.allocate = attr->allocate;
    fabric->hooks.release = attr->release;
    fabric->hooks.allocate_user = attr->allocate_user;
    fabric->hooks.clock_ns = attr->clock_ns == NULL ? monotonic_ns : attr->clock_ns;
    fabric->hooks.clock_user = attr->clock_user;
    fabric->hooks.random = attr->random;
    fabric->hooks.random_user = attr->random_user;
    fabric->hooks.thread_start = attr->thread_start;
    fabric->hooks.thread_user = attr->thread_user;
}

/* Undoes what open did; the lists are empty. */
static void destroy_fabric(struct rdmux_fabric *fabric)
{
    rdmux_service_stop(fabric);
    rdmux_shared_stats_close(fabric);
    rdmux_shakes_stop(fabric);
    rdmux_worker_stop(fabric);
    for (size_t i = fabric->domain_count; i-- > 0;) {
        fabric->domains[i].ops->domain_close(fabric->domains[i].domain);
        rdmux_release(fabric, fabric->domains[i].domain);
    }
    rdmux_worker_destroy(fabric);
    rdmux_service_destroy(fabric);
    if (fabric->table != NULL) {
        rdmux_region_table_destroy(fabric);
    }
    rdmux_span_index_destroy(fabric->spans);
    rdmux_peers_free(fabric);
    rdmux_release(fabric, fabric->figures);
    rdmux_auth_destroy(fabric->auth);
    pthread_mutex_destroy(&fabric->hooks.secrets_lock);
    pthread_mutex_destroy(&fabric->lock);
    pthread_mutex_destroy(&fabric->setup_lock);
    rdmux_capture_close(fabric);
    rdmux_log_close(fabric);
    unmap_alive(fabric);
    void (*release)(void *user, void *memory) = fabric->hooks.release;
    void *user = fabric->hooks.allocate_user;
    if (release != NULL) {
        release(user, fabric);
    } else {
        free(fabric);
    }
}

static const struct rdmux_provider_ops *const built_in[] = {
#ifndef RDMUX_POSIX_ONLY
    &rdmux_shm_provider,
#endif
    &rdmux_tcp_provider,
    NULL,
};

static uint64_t run_timers(struct rdmux_fabric *fabric, uint64_t now_ns)
{
    uint64_t listeners_ns = rdmux_listeners_timers(fabric, now_ns);
    uint64_t stats_ns = rdmux_shared_stats_timer(fabric, now_ns);
    return listeners_ns < stats_ns ? listeners_ns : stats_ns;
}

static bool shares_stats(const struct rdmux_fabric_attr *attr, bool environment)
{
    const char *setting = environment ? rdmux_environment("RDMUX_STATS") : NULL;
    return (attr->flags & RDMUX_FABRIC_SHARE_STATS) != 0 ||
           (setting != NULL && strcmp(setting, "1") == 0);
}

/* The attribute comes before the environment. */
static enum rdmux_status open_capture(struct rdmux_fabric *fabric,
                                      const struct rdmux_fabric_attr *attr, bool environment)
{
    const char *setting = environment ? rdmux_environment("RDMUX_CAPTURE") : NULL;
    if (attr->capture != NULL) {
        return rdmux_capture_open(fabric, "rdmux_fabric_open: attr.capture", attr->capture);
    }
    return setting == NULL || *setting == '\0'
               ? RDMUX_OK
               : rdmux_capture_open(fabric, "RDMUX_CAPTURE", setting);
}

static const struct rdmux_service_steps service_steps = {
    .handshakes = rdmux_shakes_step,
    .timers = run_timers,
    .cqs = rdmux_cq_service_step,
};

static const struct rdmux_auth_host auth_host = {
    .fill_hello = rdmux_hello_fill,
    .check_filter = rdmux_fabric_check_filter,
};

enum rdmux_status rdmux_fabric_open(const struct rdmux_fabric_attr *attr, struct rdmux_fabric **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_fabric_open: out is NULL");
    }
    *out = NULL;
    struct rdmux_fabric_attr all;
    enum rdmux_status status = take_attr(attr, &all);
    if (status != RDMUX_OK) {
        return status;
    }
    struct rdmux_fabric *fabric = all.allocate == NULL
                                      ? malloc(sizeof(*fabric))
                                      : all.allocate(all.allocate_user, sizeof(*fabric));
    if (fabric == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_fabric_open: out of memory");
    }
    memset(fabric, 0, sizeof(*fabric));
    take_hooks(fabric, &all);
    fabric->life = &rdmux_life;
    fabric->failover_hooks = &rdmux_failover_hooks;
    pthread_mutex_init(&fabric->lock, NULL);
    pthread_mutex_init(&fabric->hooks.secrets_lock, NULL);
    pthread_mutex_init(&fabric->setup_lock, NULL);
    rdmux_list_init(&fabric->cqs);
    rdmux_list_init(&fabric->listeners);
    rdmux_list_init(&fabric->regions);
    rdmux_list_init(&fabric->joins);
    rdmux_list_init(&fabric->reconnects);
    rdmux_list_init(&fabric->served_cqs);
    atomic_store(&fabric->next_id, 1);
    fabric->processors = rdmux_processors();
    fabric->has_membarrier = rdmux_membarrier_register();

    bool environment = (all.flags & RDMUX_FABRIC_IGNORE_ENVIRONMENT) == 0;
    const char *log_text = environment ? rdmux_environment("RDMUX_LOG") : NULL;
    rdmux_openssl_keep();
    status = map_alive(fabric);
    if (status == RDMUX_OK) {
        status = rdmux_exit_register();
    }
    if (status == RDMUX_OK && log_text != NULL && *log_text != '\0') {
        status = rdmux_log_take_setting(fabric, log_text);
    }
    if (status == RDMUX_OK) {
        status = open_capture(fabric, &all, environment);
    }
    if (status == RDMUX_OK) {
        status = rdmux_random(fabric, fabric->process, sizeof(fabric->process));
    }
    if (status == RDMUX_OK) {
        status = rdmux_registry_fill(&fabric->registry, fabric, built_in, &all,
                                     environment ? rdmux_environment("RDMUX_PROVIDER_DIR") : NULL);
    }
    if (status == RDMUX_OK) {
        status = rdmux_fabric_intersect_filters(
            fabric, all.paths, environment ? rdmux_environment("RDMUX_PATHS") : NULL);
    }
    if (status == RDMUX_OK && all.auth != NULL) {
        status = rdmux_auth_create(fabric, &auth_host, all.auth, &fabric->auth);
    }
    if (status == RDMUX_OK && rdmux_filter_allows(fabric->filter, "shm")) {
        /* Before the fabric starts threads, what shm registers when its domain is opened. In a
         * process with threads the kernel waits for all processors of the machine: 900 ms were seen
         * on a busy one, which rdmux_cq_poll() would then take. */
        rdmux_membarrier_register_global();
    }
    if (status == RDMUX_OK) {
        status = rdmux_region_table_create(fabric);
    }
    if (status == RDMUX_OK) {
        fabric->spans = rdmux_span_index_create(fabric);
        status = fabric->spans != NULL
                     ? RDMUX_OK
                     : rdmux_fail(RDMUX_NO_MEMORY, "fabric: no memory for the index of regions");
    }
    if (status == RDMUX_OK) {
        status = rdmux_worker_create(fabric);
    }
    if (status == RDMUX_OK) {
        status = rdmux_service_create(fabric, &service_steps);
    }
    if (status == RDMUX_OK && shares_stats(&all, environment)) {
        status = rdmux_shared_stats_open(fabric);
    }
    if (status != RDMUX_OK) {
        destroy_fabric(fabric);
        return status;
    }
    *out = fabric;
    return RDMUX_OK;
}

enum rdmux_status rdmux_fabric_close(struct rdmux_fabric *fabric)
{
    if (fabric == NULL) {
        return RDMUX_OK;
    }
    if (*fabric->alive == 0) {
        return rdmux_fail(
            RDMUX_INVALID,
            "rdmux_fabric_close: the process forked; the fabric belongs to the parent");
    }
    pthread_mutex_lock(&fabric->lock);
    const char *living = !rdmux_list_empty(&fabric->cqs)         ? "cqs"
                         : !rdmux_list_empty(&fabric->listeners) ? "listeners"
                         : !rdmux_list_empty(&fabric->regions)   ? "regions"
                                                                 : NULL;
    pthread_mutex_unlock(&fabric->lock);
    if (living != NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_fabric_close: %s are still open; end them first",
                          living);
    }
    destroy_fabric(fabric);
    return RDMUX_OK;
}

static uint64_t length_of(const struct rdmux_list *list)
{
    uint64_t length = 0;
    for (const struct rdmux_list *at = list->next; at != list; at = at->next) {
        length++;
    }
    return length;
}

static uint64_t count_of(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

enum rdmux_status rdmux_fabric_stats(struct rdmux_fabric *fabric, struct rdmux_fabric_stats *out)
{
    if (fabric == NULL || *fabric->alive == 0 || out == NULL ||
        out->size < offsetof(struct rdmux_fabric_stats, providers)) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_fabric_stats: %s",
                          fabric == NULL        ? "fabric is NULL"
                          : *fabric->alive == 0 ? "the fabric belongs to the parent process"
                                                : "out is NULL or without size; use "
                                                  "RDMUX_FABRIC_STATS_INIT");
    }
    struct rdmux_fabric_stats stats = RDMUX_FABRIC_STATS_INIT;
    const struct rdmux_fabric_counts *counts = &fabric->counts;
    for (size_t i = 0; i < fabric->registry.count; i++) {
        stats.providers += fabric->registry.entries[i].ops != NULL;
    }
    stats.plugins = fabric->registry.plugins;
    pthread_mutex_lock(&fabric->lock);
    stats.cqs = length_of(&fabric->cqs);
    stats.listeners = length_of(&fabric->listeners);
    stats.regions = fabric->region_count;
    stats.region_bytes = fabric->region_bytes;
    pthread_mutex_unlock(&fabric->lock);
    stats.endpoints = count_of(&counts->endpoints);
    stats.connected = count_of(&counts->connected);
    stats.accepted = count_of(&counts->accepted);
    stats.setups_failed = count_of(&counts->setups_failed);
    stats.introduced = count_of(&counts->introduced);
    stats.rejected = count_of(&counts->rejected);
    stats.turned_away = count_of(&counts->turned_away);
    stats.expired = count_of(&counts->expired);
    stats.evicted = count_of(&counts->evicted);
    stats.dropped = count_of(&counts->dropped);
    stats.jobs = rdmux_worker_jobs(fabric);
    uint32_t size = out->size;
    memcpy(out, &stats, size < sizeof(stats) ? size : sizeof(stats));
    out->size = size;
    return RDMUX_OK;
}

int rdmux_fabric_fd(struct rdmux_fabric *fabric)
{
    return fabric == NULL || *fabric->alive == 0 ? -1
           : RDMUX_POLLER_IS_DESCRIPTOR          ? rdmux_service_fd(fabric)
                                                 : -1;
}

enum rdmux_status rdmux_fabric_progress(struct rdmux_fabric *fabric)
{
    if (fabric == NULL || *fabric->alive == 0) {
        return rdmux_fail(
            RDMUX_INVALID,
            "rdmux_fabric_progress: fabric is NULL, or belongs to the parent process");
    }
    if (rdmux_fabric_is_manual(fabric)) {
        rdmux_service_step(fabric, 0);
    }
    return RDMUX_OK;
}

int rdmux_provider_may_start_threads(const struct rdmux_fabric *fabric)
{
    return (fabric->hooks.flags & RDMUX_FABRIC_NO_WORKER_THREAD) == 0;
}
