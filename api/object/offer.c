/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What a fabric offers: its providers, their paths, the filters over them, and its HELLO. */
#include "api/object/offer.h"
#include "api/core/fabric.h"
#include "negotiation/auth.h"
#include "negotiation/filter.h"
#include "negotiation/handshake.h"

#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------------------------------- filters */

/* Writes the names that a filter may have, "shm, ib, roce". */
static void list_names(const struct rdmux_fabric *fabric, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < fabric->registry.count; i++) {
        const char *name = fabric->registry.entries[i].name;
        if (rdmux_filter_check(name, NULL) != RDMUX_OK || used + strlen(name) + 3 > size) {
            continue; /* a refused plug-in goes by its file name */
        }
        used += (size_t)snprintf(out + used, size - used, "%s%s", used != 0 ? ", " : "", name);
    }
}

/* Rejects a filter that names an unknown provider, as the user should hear of the mistake. */
enum rdmux_status rdmux_fabric_check_filter(struct rdmux_fabric *fabric, const char *source,
                                            const char *filter)
{
    const char *word = NULL;
    char names[RDMUX_TEXT_MAX / 2];
    if (filter == NULL) {
        return RDMUX_OK;
    }
    if (strlen(filter) >= RDMUX_FILTER_MAX || rdmux_filter_check(filter, &word) != RDMUX_OK) {
        list_names(fabric, names, sizeof(names));
        return rdmux_fail(RDMUX_INVALID,
                          "%s \"%.40s\" is no filter; write names as in \"roce,tcp\" or \"!shm\"; "
                          "there are: %s",
                          source, filter, names);
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
            list_names(fabric, names, sizeof(names));
            return rdmux_fail(RDMUX_INVALID,
                              "%s \"%.40s\" names an unknown provider \"%.*s\"; there are: %s",
                              source, filter, length < 40 ? (int)length : 40, at, names);
        }
        at += length;
    }
    return RDMUX_OK;
}

/* Merges the filters of the attribute and the environment: the names that both allow. */
enum rdmux_status rdmux_fabric_intersect_filters(struct rdmux_fabric *fabric, const char *attribute,
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
        struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        const char *name = entry->name;
        if (rdmux_filter_check(name, NULL) != RDMUX_OK) {
            continue; /* a refused plug-in goes by its file name */
        }
        entry->is_named = rdmux_filter_names(attribute, name) ||
                          rdmux_filter_names(environment, name);
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

/* ---------------------------------------------------------------------------------------- paths */

const struct rdmux_provider_ops *rdmux_fabric_provider(const struct rdmux_fabric *fabric,
                                                       const char *name)
{
    for (size_t i = 0; i < fabric->registry.count; i++) {
        const struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        if (entry->ops != NULL && strcmp(entry->ops->name, name) == 0) {
            return entry->ops;
        }
    }
    return NULL;
}

/* Where peers authenticate, the keys that paths exchange are bound to the session. */
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
    /* Longer inline data than the device takes goes through bounce buffers (bounce.h). */
    const struct rdmux_provider_ops *ops = rdmux_fabric_provider(fabric, from->provider);
    bool any_length = path->max_inline == 0 || path->max_inline > RDMUX_INLINE_MAX ||
                      (ops != NULL && (ops->flags & RDMUX_PROVIDER_LOCAL_KEYS) != 0);
    info.max_inline = any_length ? RDMUX_INLINE_MAX : path->max_inline;
    info.software = path->software;
    info.security = path->security;
    info.source = from->source;
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
    offer->max_send = RDMUX_DEFAULT_MAX_MESSAGE;
    offer->max_recv = RDMUX_DEFAULT_MAX_MESSAGE;
    offer->liveness_ms = RDMUX_DEFAULT_LIVENESS_MS;
    offer->data_sockets = 1;
    offer->path_timeout_ms = RDMUX_DEFAULT_PATH_TIMEOUT_MS;
    offer->setup_timeout_ms = RDMUX_DEFAULT_SETUP_TIMEOUT_MS;
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
               sizeof(hello->nonce)); /* the secret is drawn apart, where this is an error */
    }
}
