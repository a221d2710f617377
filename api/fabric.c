/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Fabrics: an instance of the library, its options, its devices, and the processes it knows. */
#include "api/core.h"

#include "api/listener.h"
#include "api/shake.h"
#include "negotiation/auth.h"
#include "negotiation/filter.h"
#include "providers/registry.h"
#include "shm/shm_provider.h"
#include "tcp_fallback/tcp_provider.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    KNOWN_FLAGS = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_SERVICE_THREAD |
                  RDMUX_FABRIC_NO_WORKER_THREAD | RDMUX_FABRIC_NO_DEFAULT_PLUGINS,
    DEFAULT_MAX_MESSAGE = 8 << 20,
    DEFAULT_LIVENESS_MS = 10000,
    DEFAULT_PATH_TIMEOUT_MS = 2000,
    DEFAULT_SETUP_TIMEOUT_MS = 10000,
};

static uint64_t monotonic_ns(void *user)
{
    (void)user;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* -------------------------------------------------------------------------------------- options */

static enum rdmux_status take_log_environment(struct rdmux_fabric *fabric, const char *text)
{
    static const char *const names[] = { "none", "error", "warn", "info", "debug", "trace" };
    size_t length = strcspn(text, ":");
    for (uint32_t level = 0; level < RDMUX_COUNT_OF(names); level++) {
        if (strlen(names[level]) != length || strncmp(names[level], text, length) != 0) {
            continue;
        }
        fabric->hooks.log_level = level > fabric->hooks.log_level ? level : fabric->hooks.log_level;
        if (text[length] == ':') {
            fabric->hooks.log_fd = open(text + length + 1,
                                        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
            if (fabric->hooks.log_fd < 0) {
                return rdmux_fail(RDMUX_IO, "RDMUX_LOG: cannot write to \"%s\": %s",
                                  text + length + 1, strerror(errno));
            }
        }
        return RDMUX_OK;
    }
    return rdmux_fail(RDMUX_INVALID,
                      "RDMUX_LOG \"%s\" is not LEVEL[:FILE] with error, warn, info, debug or trace",
                      text);
}

/* A filter that names a provider nobody knows is a mistake the user would want to hear of. */
enum rdmux_status rdmux_fabric_check_filter(struct rdmux_fabric *fabric, const char *source,
                                            const char *filter)
{
    const char *word = NULL;
    if (filter == NULL) {
        return RDMUX_OK;
    }
    if (strlen(filter) >= RDMUX_FILTER_MAX || rdmux_filter_check(filter, &word) != RDMUX_OK) {
        return rdmux_fail(RDMUX_INVALID,
                          "%s \"%s\" is no filter; write names as in \"roce,tcp\" or \"!shm\"",
                          source, filter);
    }
    const char *at = filter;
    while (*at != '\0') {
        at += strspn(at, ", !\t");
        size_t length = strcspn(at, ", \t");
        bool known = length == 0 || (length == 4 && strncmp(at, "auto", 4) == 0);
        for (size_t i = 0; i < fabric->registry.count && !known; i++) {
            const char *name = fabric->registry.entries[i].name;
            known = strlen(name) == length && strncmp(name, at, length) == 0;
        }
        if (!known) {
            return rdmux_fail(
                RDMUX_INVALID,
                "%s \"%s\" names an unknown provider \"%.*s\"; `rdmux info` lists them", source,
                filter, (int)length, at);
        }
        at += length;
    }
    return RDMUX_OK;
}

/* The attribute's filter and the environment's as one: the names that both let through. */
static enum rdmux_status intersect_filters(struct rdmux_fabric *fabric, const char *attribute,
                                           const char *environment)
{
    enum rdmux_status status = rdmux_fabric_check_filter(fabric, "attr.paths", attribute);
    if (status == RDMUX_OK) {
        status = rdmux_fabric_check_filter(fabric, "RDMUX_PATHS", environment);
    }
    if (status != RDMUX_OK) {
        return status;
    }
    size_t known = 0;
    size_t allowed = 0;
    size_t used = 0;
    char none[sizeof(fabric->filter)] = "";
    size_t none_used = 0;
    for (size_t i = 0; i < fabric->registry.count; i++) {
        const char *name = fabric->registry.entries[i].name;
        if (rdmux_filter_check(name, NULL) != RDMUX_OK) {
            continue; /* a refused plug-in goes by its file's name */
        }
        known++;
        bool through = rdmux_filter_allows(attribute, name) &&
                       rdmux_filter_allows(environment, name);
        int written;
        if (through) {
            written = snprintf(fabric->filter + used, sizeof(fabric->filter) - used, "%s%s",
                               used == 0 ? "" : ",", name);
            used += written < 0 ? 0 : (size_t)written;
            allowed++;
        } else {
            written = snprintf(none + none_used, sizeof(none) - none_used, "%s!%s",
                               none_used == 0 ? "" : ",", name);
            none_used += written < 0 ? 0 : (size_t)written;
        }
        if (used >= sizeof(fabric->filter) || none_used >= sizeof(none)) {
            return rdmux_fail(RDMUX_INVALID,
                              "fabric: the providers' names do not fit into a filter of %zu bytes",
                              sizeof(fabric->filter));
        }
    }
    if (allowed == known) {
        snprintf(fabric->filter, sizeof(fabric->filter), "auto");
    } else if (allowed == 0 ||
               (attribute == NULL && environment != NULL && strchr(environment, '!') != NULL)) {
        memcpy(fabric->filter, none, sizeof(none));
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
    if ((to->flags & ~(uint32_t)KNOWN_FLAGS) != 0) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_fabric_open: attr.flags 0x%x are unknown",
                          to->flags & ~(uint32_t)KNOWN_FLAGS);
    }
    if (to->plugin_count != 0 && to->plugins == NULL) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_fabric_open: attr.plugins is NULL, plugin_count is %zu",
                          to->plugin_count);
    }
    for (size_t i = 0; i < to->plugin_count; i++) {
        if (to->plugins[i] == NULL) {
            return rdmux_fail(RDMUX_INVALID, "rdmux_fabric_open: attr.plugins[%zu] is NULL", i);
        }
    }
    if ((to->allocate == NULL) != (to->release == NULL)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_fabric_open: attr.allocate and attr.release come together");
    }
    if (to->log_level > RDMUX_LOG_TRACE) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_fabric_open: attr.log_level %u is not one of RDMUX_LOG_*",
                          to->log_level);
    }
    return RDMUX_OK;
}

/* ----------------------------------------------------------------------------------------- life */

static bool register_membarrier(void)
{
    return syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/* What shm does when its domain is opened, before there are threads: of a process with threads the
 * kernel waits for all of the machine's processors, which was seen to take 900 ms of a busy one,
 * and would take them of somebody's rdmux_cq_poll(). */
static void register_global_membarrier(void)
{
    (void)syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
}

static enum rdmux_status map_alive(struct rdmux_fabric *fabric)
{
    long page = sysconf(_SC_PAGESIZE);
    uint32_t *alive = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                           -1, 0);
    if (alive == MAP_FAILED) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_fabric_open: out of memory");
    }
    madvise(alive, (size_t)page,
            MADV_WIPEONFORK); /* before Linux 4.14: children would not see that they are dead */
    *alive = 1;
    fabric->alive = alive;
    return RDMUX_OK;
}

static void unmap_alive(struct rdmux_fabric *fabric)
{
    if (fabric->alive != NULL) {
        munmap((void *)(uintptr_t)fabric->alive, (size_t)sysconf(_SC_PAGESIZE));
    }
}

static void take_hooks(struct rdmux_fabric *fabric, const struct rdmux_fabric_attr *attr)
{
    fabric->hooks.flags = attr->flags;
    fabric->hooks.log = attr->log;
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
}

/* Undoes whatever open did; the lists are empty. */
static void destroy(struct rdmux_fabric *fabric)
{
    rdmux_service_stop(fabric);
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
    while (!rdmux_list_empty(&fabric->peers)) {
        struct rdmux_peer_process *peer = RDMUX_CONTAINER(fabric->peers.next,
                                                          struct rdmux_peer_process, link);
        while (!rdmux_list_empty(&peer->heartbeat_groups)) {
            struct rdmux_heartbeat_group *group = RDMUX_CONTAINER(
                peer->heartbeat_groups.next, struct rdmux_heartbeat_group, link);
            rdmux_list_remove(&group->link);
            rdmux_release(fabric, group);
        }
        rdmux_list_remove(&peer->link);
        rdmux_release(fabric, peer);
    }
    rdmux_release(fabric, fabric->figures);
    rdmux_auth_destroy(fabric->auth);
    pthread_mutex_destroy(&fabric->hooks.secrets_lock);
    pthread_mutex_destroy(&fabric->lock);
    pthread_mutex_destroy(&fabric->setup_lock);
    if (fabric->hooks.log_fd >= 0) {
        close(fabric->hooks.log_fd);
    }
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
    &rdmux_shm_provider,
    &rdmux_tcp_provider,
    NULL,
};

static const struct rdmux_service_steps service_steps = {
    .handshakes = rdmux_shakes_step,
    .timers = rdmux_listeners_timers,
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
    pthread_mutex_init(&fabric->lock, NULL);
    pthread_mutex_init(&fabric->hooks.secrets_lock, NULL);
    pthread_mutex_init(&fabric->setup_lock, NULL);
    rdmux_list_init(&fabric->cqs);
    rdmux_list_init(&fabric->listeners);
    rdmux_list_init(&fabric->regions);
    rdmux_list_init(&fabric->peers);
    rdmux_list_init(&fabric->joins);
    rdmux_list_init(&fabric->resumes);
    rdmux_list_init(&fabric->served_cqs);
    atomic_store(&fabric->next_id, 1);
    fabric->processors = sysconf(_SC_NPROCESSORS_ONLN);
    fabric->membarrier = register_membarrier();

    bool environment = (all.flags & RDMUX_FABRIC_IGNORE_ENVIRONMENT) == 0;
    const char *log_text = environment ? secure_getenv("RDMUX_LOG") : NULL;
    status = map_alive(fabric);
    if (status == RDMUX_OK && log_text != NULL && *log_text != '\0') {
        status = take_log_environment(fabric, log_text);
    }
    if (status == RDMUX_OK) {
        status = rdmux_random(fabric, fabric->process, sizeof(fabric->process));
    }
    if (status == RDMUX_OK) {
        status = rdmux_registry_fill(&fabric->registry, fabric, built_in, &all,
                                     environment ? secure_getenv("RDMUX_PROVIDER_DIR") : NULL);
    }
    if (status == RDMUX_OK) {
        status = intersect_filters(fabric, all.paths,
                                   environment ? secure_getenv("RDMUX_PATHS") : NULL);
    }
    if (status == RDMUX_OK && all.auth != NULL) {
        status = rdmux_auth_create(fabric, &auth_host, all.auth, &fabric->auth);
    }
    if (status == RDMUX_OK && rdmux_filter_allows(fabric->filter, "shm")) {
        register_global_membarrier();
    }
    if (status == RDMUX_OK) {
        status = rdmux_region_table_create(fabric);
    }
    if (status == RDMUX_OK) {
        status = rdmux_worker_create(fabric);
    }
    if (status == RDMUX_OK) {
        status = rdmux_service_create(fabric, &service_steps);
    }
    if (status != RDMUX_OK) {
        destroy(fabric);
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
    destroy(fabric);
    return RDMUX_OK;
}

int rdmux_fabric_fd(struct rdmux_fabric *fabric)
{
    return fabric == NULL || *fabric->alive == 0 ? -1 : rdmux_service_fd(fabric);
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

/* ---------------------------------------------------------------------------------------- paths */

static const struct rdmux_provider_ops *find_ops(const struct rdmux_fabric *fabric, const char *name)
{
    for (size_t i = 0; i < fabric->registry.count; i++) {
        const struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        if (entry->ops != NULL && strcmp(entry->ops->name, name) == 0) {
            return entry->ops;
        }
    }
    return NULL;
}

const struct rdmux_provider_ops *rdmux_fabric_provider(const struct rdmux_fabric *fabric,
                                                       const char *name)
{
    return find_ops(fabric, name);
}

/* Where peers authenticate, what their paths show each other is bound to the session. */
static void bind_paths(const struct rdmux_fabric *fabric, struct rdmux_offer *offer)
{
    for (uint32_t i = 0; i < offer->path_count && fabric->auth != NULL; i++) {
        struct rdmux_offer_path *path = &offer->paths[i];
        path->trusted = rdmux_auth_trusts(fabric->auth, path->provider) ? 1 : 0;
        if (path->path.security == RDMUX_SECURITY_TOKEN) {
            path->path.security = RDMUX_SECURITY_BOUND_KEY;
        }
    }
}

static void fill_path(const struct rdmux_fabric *fabric, const struct rdmux_offer_path *from,
                      struct rdmux_path_info *out)
{
    const struct rdmux_local_path *path = &from->path;
    struct rdmux_path_info info = RDMUX_PATH_INFO_INIT;
    info.reason = path->reason;
    memcpy(info.provider, from->provider, sizeof(info.provider));
    memcpy(info.device, path->device, sizeof(info.device));
    memcpy(info.address, path->address, sizeof(info.address));
    memcpy(info.text, path->text, sizeof(info.text));
    memcpy(info.hint, path->hint, sizeof(info.hint));
    info.bandwidth = path->bandwidth;
    info.latency_ns = path->latency_ns;
    info.mtu = path->mtu;
    info.native = path->native;
    info.emulated = path->emulated;
    info.max_message = path->max_message == 0 ? UINT64_MAX : path->max_message;
    info.max_sge = path->max_sge == 0 ? RDMUX_SGE_MAX : path->max_sge;
    /* What a device cannot take inline goes through the library's own buffers (bounce.h). */
    const struct rdmux_provider_ops *ops = rdmux_fabric_provider(fabric, from->provider);
    bool any_length = path->max_inline == 0 || path->max_inline > RDMUX_INLINE_MAX ||
                      (ops != NULL && (ops->flags & RDMUX_PROVIDER_LOCAL_KEYS) != 0);
    info.max_inline = any_length ? RDMUX_INLINE_MAX : path->max_inline;
    info.software = path->software;
    info.security = path->security;
    if (info.reason == RDMUX_REASON_USABLE && !rdmux_filter_allows(fabric->filter, from->provider)) {
        info.reason = RDMUX_REASON_FILTERED;
        snprintf(info.text, sizeof(info.text), "left out by the fabric's filter or RDMUX_PATHS");
    }
    uint32_t size = out->size;
    memcpy(out, &info, size < sizeof(info) ? size : sizeof(info));
    out->size = size;
}

enum rdmux_status rdmux_fabric_paths(struct rdmux_fabric *fabric, struct rdmux_path_info *out,
                                     size_t max, size_t *count)
{
    if (fabric == NULL || *fabric->alive == 0 || count == NULL || (out == NULL && max != 0)) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_fabric_paths: %s",
                          fabric == NULL  ? "fabric is NULL"
                          : count == NULL ? "count is NULL"
                          : out == NULL   ? "out is NULL, max is not 0"
                                          : "the fabric belongs to the parent process");
    }
    uint32_t size = max == 0 ? 0 : out->size;
    if (max != 0 && size < offsetof(struct rdmux_path_info, provider)) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_fabric_paths: out[0].size is %u; use RDMUX_PATH_INFO_INIT", size);
    }
    struct rdmux_offer *offer = rdmux_allocate(fabric, sizeof(*offer));
    if (offer == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_fabric_paths: out of memory");
    }
    rdmux_registry_offer_paths(&fabric->registry, offer);
    bind_paths(fabric, offer);
    for (uint32_t i = 0; i < offer->path_count && i < max; i++) {
        struct rdmux_path_info *at = (struct rdmux_path_info *)(void *)((char *)out +
                                                                        (size_t)i * size);
        at->size = size;
        fill_path(fabric, &offer->paths[i], at);
    }
    *count = offer->path_count;
    rdmux_release(fabric, offer);
    return RDMUX_OK;
}

bool rdmux_fabric_path_is_usable(struct rdmux_fabric *fabric, const char *provider,
                                 const char *device)
{
    struct rdmux_offer *offer = rdmux_allocate(fabric, sizeof(*offer));
    bool found = false;
    if (offer == NULL) {
        return false;
    }
    rdmux_registry_offer_paths(&fabric->registry, offer);
    for (uint32_t i = 0; i < offer->path_count; i++) {
        const struct rdmux_offer_path *path = &offer->paths[i];
        found = found ||
                (path->path.reason == RDMUX_REASON_USABLE &&
                 strcmp(path->provider, provider) == 0 && strcmp(path->path.device, device) == 0);
    }
    rdmux_release(fabric, offer);
    return found;
}

void rdmux_offer_defaults(struct rdmux_fabric *fabric, const char *paths, struct rdmux_offer *offer)
{
    offer->max_send = DEFAULT_MAX_MESSAGE;
    offer->max_recv = DEFAULT_MAX_MESSAGE;
    offer->liveness_ms = DEFAULT_LIVENESS_MS;
    offer->data_sockets = 1;
    offer->path_timeout_ms = DEFAULT_PATH_TIMEOUT_MS;
    offer->setup_timeout_ms = DEFAULT_SETUP_TIMEOUT_MS;
    snprintf(offer->filter[0], sizeof(offer->filter[0]), "%s", fabric->filter);
    snprintf(offer->filter[1], sizeof(offer->filter[1]), "%s", paths == NULL ? "auto" : paths);
    rdmux_registry_offer_paths(&fabric->registry, offer);
    offer->require_encryption = rdmux_auth_requires_encryption(fabric->auth) ? 1 : 0;
    bind_paths(fabric, offer);
}

void rdmux_hello_fill(struct rdmux_fabric *fabric, struct rdmux_hello *hello)
{
    memset(hello, 0, sizeof(*hello));
    hello->version_min = 1;
    hello->version_max = 1;
    hello->epoch = 1;
    hello->authentication = rdmux_auth_methods(fabric->auth);
    hello->flags = rdmux_fabric_is_manual(fabric) ? RDMUX_HELLO_NO_SERVICE : 0;
    memcpy(hello->process, fabric->process, sizeof(hello->process));
    if (rdmux_random(fabric, hello->nonce, sizeof(hello->nonce)) != RDMUX_OK) {
        memset(hello->nonce, 0,
               sizeof(hello->nonce)); /* the secret is drawn apart, and there this is an error */
    }
}

/* setup_lock is held. */
static struct rdmux_provider_domain *find_domain(const struct rdmux_fabric *fabric,
                                                 const struct rdmux_provider_ops *ops,
                                                 const struct rdmux_local_path *path)
{
    for (size_t i = 0; i < fabric->domain_count; i++) {
        const struct rdmux_domain_slot *slot = &fabric->domains[i];
        if (slot->ops == ops && !slot->gone && strcmp(slot->path.device, path->device) == 0) {
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

/* What a device tells concerns its endpoints: their provider ends them at its next poll, which the poke brings about. */
static void device_tells(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    struct rdmux_domain_slot *slot = RDMUX_CONTAINER(watch, struct rdmux_domain_slot, events);
    struct rdmux_provider_event event;
    bool any = false;
    while (slot->ops->async_event(slot->domain, &event) == RDMUX_OK) {
        bool good = event.reason == RDMUX_REASON_USABLE || event.reason == RDMUX_REASON_NONE;
        any = true;
        rdmux_log(fabric, good ? RDMUX_LOG_INFO : RDMUX_LOG_WARN, "%s %s: %s", slot->ops->name,
                  slot->path.device, event.text);
        if (event.reason == RDMUX_REASON_NO_DEVICE) {
            rdmux_service_unwatch(fabric, slot->ops->domain_fd(slot->domain), watch);
            slot->gone = true;
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
    if (fd >= 0 && rdmux_service_watch(fabric, fd, EPOLLIN, &slot->events) != RDMUX_OK) {
        rdmux_log(fabric, RDMUX_LOG_WARN, "%s %s: its events go unheard: %s", slot->ops->name,
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
    slot->gone = false;
    fabric->domain_count++; /* regions made from now on register with it; the older ones here */
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

/* ------------------------------------------------------------------------------ peers and joins */

struct rdmux_peer_process *rdmux_peer_get(struct rdmux_fabric *fabric,
                                          const uint8_t id[RDMUX_PROCESS_ID_SIZE])
{
    struct rdmux_peer_process *fresh = rdmux_allocate(fabric, sizeof(*fresh));
    pthread_mutex_lock(&fabric->lock);
    struct rdmux_peer_process *found = NULL;
    for (struct rdmux_list *at = fabric->peers.next; at != &fabric->peers && found == NULL;
         at = at->next) {
        struct rdmux_peer_process *peer = RDMUX_CONTAINER(at, struct rdmux_peer_process, link);
        found = memcmp(peer->id, id, sizeof(peer->id)) == 0 ? peer : NULL;
    }
    if (found == NULL && fresh != NULL) {
        found = fresh;
        fresh = NULL;
        memcpy(found->id, id, sizeof(found->id));
        rdmux_list_init(&found->heartbeat_groups);
        rdmux_list_append(&fabric->peers, &found->link);
    }
    if (found != NULL) {
        found->refs++;
        atomic_store(&found->heard_ns, rdmux_now(fabric));
    }
    pthread_mutex_unlock(&fabric->lock);
    rdmux_release(fabric, fresh);
    return found;
}

void rdmux_peer_put(struct rdmux_fabric *fabric, struct rdmux_peer_process *peer)
{
    pthread_mutex_lock(&fabric->lock);
    bool last = --peer->refs == 0;
    if (last) {
        rdmux_list_remove(&peer->link);
    }
    pthread_mutex_unlock(&fabric->lock);
    if (last) {
        rdmux_release(fabric, peer);
    }
}

enum rdmux_status rdmux_joins_add(struct rdmux_fabric *fabric, struct rdmux_ep *ep)
{
    pthread_mutex_lock(&fabric->lock);
    if (rdmux_list_empty(&ep->join_link)) {
        rdmux_list_append(&fabric->joins, &ep->join_link);
    }
    pthread_mutex_unlock(&fabric->lock);
    return RDMUX_OK;
}

void rdmux_joins_remove(struct rdmux_fabric *fabric, struct rdmux_ep *ep)
{
    pthread_mutex_lock(&fabric->lock);
    rdmux_list_remove(&ep->join_link);
    pthread_mutex_unlock(&fabric->lock);
}

int rdmux_provider_may_start_threads(const struct rdmux_fabric *fabric)
{
    return (fabric->hooks.flags & RDMUX_FABRIC_NO_WORKER_THREAD) == 0;
}
