/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "providers/registry.h"

#include "api/base/compiler.h"
#include "api/base/error.h"
#include "api/base/hooks.h"
#include "api/system/system.h"
#include "negotiation/filter.h"
#include "providers/binding.h"
#include "providers/loader.h"
#include "providers/trust.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Providers that every explanation lists, and rdmux's own plug-in that has them. */
static const char VERBS_PLUGIN[] = "rdmux-verbs.so";
static const char *const verbs_names[] = { "ib", "roce", "iwarp" };

/* Sources of providers, as rdmux_path_info.source names them; else the name of a plug-in's file. */
static const char LIBRARY[] = "library";
static const char BUILTIN[] = "builtin";

/* A plug-in file that was loaded or tried. The same file under another name is skipped. */
struct seen_file {
    dev_t device;
    ino_t inode;
};

struct loading {
    struct rdmux_registry *registry;
    struct seen_file *seen;
    size_t seen_count;
};

/* -------------------------------------------------------------------------------------- entries */

static const struct rdmux_provider_entry *find_entry(const struct rdmux_registry *registry,
                                                     const char *name)
{
    for (size_t i = 0; i < registry->count; i++) {
        if (strcmp(registry->entries[i].name, name) == 0) {
            return &registry->entries[i];
        }
    }
    return NULL;
}

/* Adds an entry. Returns NULL if the registry is full. */
static struct rdmux_provider_entry *add_entry(struct rdmux_registry *registry, const char *name)
{
    if (registry->count == RDMUX_FABRIC_PROVIDERS_MAX) {
        rdmux_log(registry->fabric, RDMUX_LOG_WARN,
                  "provider %s: there are %d already; it is left out", name,
                  RDMUX_FABRIC_PROVIDERS_MAX);
        return NULL;
    }
    struct rdmux_provider_entry *entry = &registry->entries[registry->count++];
    memset(entry, 0, sizeof(*entry));
    (void)snprintf(entry->name, sizeof(entry->name), "%s", name);
    return entry;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Adds an entry for a refusal. name: the entry's name in lists of paths. */
static void add_refused_as(struct rdmux_registry *registry, const char *name, const char *path,
                           const struct rdmux_refusal *refusal)
{
    bool elsewhere = refusal->place[0] != '\0' && strcmp(refusal->place, path) != 0;
    rdmux_log(registry->fabric, RDMUX_LOG_WARN, "plug-in %s: %s: %s%s%s; it is left out", path,
              rdmux_reason_name((enum rdmux_reason)refusal->reason), refusal->text,
              elsewhere ? ": " : "", elsewhere ? refusal->place : "");
    struct rdmux_provider_entry *entry = add_entry(registry, name);
    if (entry != NULL) {
        (void)snprintf(entry->source, sizeof(entry->source), "%s", file_name(path));
        entry->reason = refusal->reason;
        memcpy(entry->text, refusal->text, sizeof(entry->text));
        memcpy(entry->hint, refusal->hint, sizeof(entry->hint));
    }
}

static void add_refused(struct rdmux_registry *registry, const char *path,
                        const struct rdmux_refusal *refusal)
{
    add_refused_as(registry, file_name(path), path, refusal);
}

/* The entry's name ends with a slash, which the name of a provider or file never has. */
static void add_refused_folder(struct rdmux_registry *registry, const char *path,
                               const struct rdmux_refusal *refusal)
{
    char name[RDMUX_NAME_MAX];
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/') {
        end--;
    }
    size_t first = end;
    while (first > 0 && path[first - 1] != '/') {
        first--;
    }
    (void)snprintf(name, sizeof(name), "%.*s/", (int)(end - first < 32 ? end - first : 32),
                   path + first);
    add_refused_as(registry, name, path, refusal);
}

/* Adds a provider, or a refusal. path: of the plug-in's file, or what a refusal names in its
 * place. */
static void add_provider(struct rdmux_registry *registry, const struct rdmux_provider_ops *ops,
                         const char *path, bool is_builtin)
{
    struct rdmux_refusal refusal = { .reason = RDMUX_REASON_BAD_PLUGIN };
    if (rdmux_provider_check(ops, &refusal) != RDMUX_OK) {
        add_refused(registry, path, &refusal);
        return;
    }
    const struct rdmux_provider_entry *taken = find_entry(registry, ops->name);
    if (taken != NULL && !is_builtin && strcmp(taken->source, BUILTIN) == 0) {
        rdmux_log(registry->fabric, RDMUX_LOG_INFO,
                  "provider %s: the one that is linked into the program is used, not that of %s",
                  ops->name, path);
        return;
    }
    if (taken != NULL) {
        (void)snprintf(refusal.text, sizeof(refusal.text), "there is a provider %s already",
                       ops->name);
        (void)snprintf(refusal.hint, sizeof(refusal.hint), "load one plug-in for %s, not two",
                       ops->name);
        add_refused(registry, path, &refusal);
        return;
    }
    struct rdmux_provider_entry *entry = add_entry(registry, ops->name);
    if (entry != NULL) {
        entry->ops = ops;
        (void)snprintf(entry->source, sizeof(entry->source), "%s",
                       is_builtin ? BUILTIN : file_name(path));
        rdmux_log(registry->fabric, RDMUX_LOG_DEBUG, "provider %s: from %s", ops->name, path);
    }
}

/* ------------------------------------------------------------------------------------- plug-ins */

/* Adds the providers of the plug-ins that the program has linked. */
static void add_builtin(struct rdmux_registry *registry, const struct rdmux_fabric_attr *attr)
{
    for (size_t i = 0; i < attr->builtin_count; i++) {
        const struct rdmux_plugin *plugin = attr->builtin[i];
        struct rdmux_refusal refusal = { .reason = RDMUX_REASON_BAD_PLUGIN };
        char name[RDMUX_NAME_MAX];
        (void)snprintf(name, sizeof(name), "builtin[%zu]", i);
        if (rdmux_plugin_check(plugin, &refusal) != RDMUX_OK) {
            add_refused(registry, name, &refusal);
            continue;
        }
        registry->plugins++;
        for (uint32_t k = 0; k < plugin->count; k++) {
            add_provider(registry, plugin->providers[k], name, true);
        }
    }
}

/* Sets *seen if the file was tried before, else records the file. */
static enum rdmux_status see_entry(struct loading *loading, const char *path, bool *seen)
{
    *seen = false;
    struct stat info;
    if (stat(path, &info) != 0) {
        return RDMUX_OK; /* the load fails later and reports why */
    }
    for (size_t i = 0; i < loading->seen_count; i++) {
        if (loading->seen[i].device == info.st_dev && loading->seen[i].inode == info.st_ino) {
            *seen = true;
            return RDMUX_OK;
        }
    }
    struct seen_file *more = realloc(loading->seen,
                                     (loading->seen_count + 1) * sizeof(*loading->seen));
    if (more == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "plug-in %s: no memory to load it", path);
    }
    more[loading->seen_count].device = info.st_dev;
    more[loading->seen_count].inode = info.st_ino;
    loading->seen = more;
    loading->seen_count++;
    return RDMUX_OK;
}

static enum rdmux_status load_file(struct loading *loading, const char *path)
{
    bool seen = false;
    enum rdmux_status status = see_entry(loading, path, &seen);
    if (status != RDMUX_OK || seen) {
        return status;
    }
    const struct rdmux_plugin *plugin = NULL;
    struct rdmux_refusal refusal;
    if (rdmux_plugin_load(path, &plugin, &refusal) != RDMUX_OK) {
        add_refused(loading->registry, path, &refusal);
        return RDMUX_OK;
    }
    loading->registry->plugins++;
    for (uint32_t i = 0; i < plugin->count; i++) {
        add_provider(loading->registry, plugin->providers[i], path, false);
    }
    return RDMUX_OK;
}

static int is_plugin_file(const struct dirent *file)
{
    size_t length = strlen(file->d_name);
    return length > 3 && file->d_name[0] != '.' && strcmp(file->d_name + length - 3, ".so") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* wanted: the program or the environment named the folder, so its absence is logged. */
static enum rdmux_status load_folder(struct loading *loading, const char *path, bool wanted)
{
    struct rdmux_refusal refusal = { .reason = 0 };
    char folder[PATH_MAX];
    if (rdmux_trust_check(path, RDMUX_TRUST_FOLDER, folder, &refusal) != RDMUX_OK) {
        if (refusal.reason != RDMUX_REASON_NO_LIBRARY) {
            add_refused_folder(loading->registry, path, &refusal);
        } else if (wanted) {
            rdmux_log(loading->registry->fabric, RDMUX_LOG_WARN,
                      "plug-ins in %s: %s; none is loaded", path, refusal.text);
        }
        return RDMUX_OK;
    }
    struct dirent **files = NULL;
    int count = scandir(folder, &files, is_plugin_file, by_name);
    if (count < 0) {
        if (errno == ENOMEM) {
            return rdmux_fail(RDMUX_NO_MEMORY, "plug-ins in %s: no memory to list them", folder);
        }
        if (wanted) {
            rdmux_log(loading->registry->fabric, RDMUX_LOG_WARN,
                      "plug-ins in %s: %s; none is loaded", folder, strerror(errno));
        }
        return RDMUX_OK;
    }
    enum rdmux_status status = RDMUX_OK;
    for (int i = 0; i < count; i++) {
        char file[PATH_MAX];
        int length = snprintf(file, sizeof(file), "%s/%s", folder, files[i]->d_name);
        if (status == RDMUX_OK && length > 0 && (size_t)length < sizeof(file)) {
            status = load_file(loading, file);
        }
        free(files[i]);
    }
    free(files);
    return status;
}

/* Loads the default plug-in folder. It lies beside the library and moves with an installed tree. */
static enum rdmux_status load_own_folder(struct loading *loading)
{
    char folder[PATH_MAX];
    rdmux_plugin_folder(folder, sizeof(folder));
    return folder[0] == '\0' ? RDMUX_OK : load_folder(loading, folder, false);
}

/* Loads a folder that the program or the environment names. The name may come from the user, and a
 * program with rights that its user lacks cannot tell rdmux whether it does. So it is refused
 * there. */
static enum rdmux_status load_named_folder(struct loading *loading, const char *folder)
{
    if (folder == NULL || folder[0] == '\0') {
        return RDMUX_OK;
    }
    if (rdmux_trust_is_secure()) {
        static const struct rdmux_refusal refusal = {
            .reason = RDMUX_REASON_BAD_PLUGIN,
            .text = "a program with rights that its user lacks searches no folder but the one that "
                    "was compiled in",
            .hint = "name the plug-in's file in rdmux_fabric_attr.plugins",
        };
        add_refused_folder(loading->registry, folder, &refusal);
        return RDMUX_OK;
    }
    return load_folder(loading, folder, true);
}

static enum rdmux_status load_named(struct loading *loading, const char *path)
{
    char here[PATH_MAX + 2];
    if (path == NULL || path[0] == '\0') {
        return RDMUX_OK;
    }
    if (strchr(path, '/') == NULL) {
        /* dlopen() would search the system's folders for a name without a slash. */
        (void)snprintf(here, sizeof(here), "./%s", path);
        path = here;
    }
    return load_file(loading, path);
}

static enum rdmux_status load_plugins(struct loading *loading, const struct rdmux_fabric_attr *attr,
                                      const char *environment_dir)
{
    enum rdmux_status status = RDMUX_OK;
    if ((attr->flags & RDMUX_FABRIC_NO_DEFAULT_PLUGINS) == 0) {
        status = load_own_folder(loading);
        if (status == RDMUX_OK) {
            status = load_named_folder(loading, attr->provider_dir);
        }
        if (status == RDMUX_OK) {
            status = load_named_folder(loading, environment_dir);
        }
    }
    for (size_t i = 0; i < attr->plugin_count && status == RDMUX_OK; i++) {
        status = load_named(loading, attr->plugins[i]);
    }
    return status;
}

/* Returns the first of ib, roce and iwarp that has a provider; NULL: none. */
static const struct rdmux_provider_entry *find_sibling(const struct rdmux_registry *registry)
{
    for (size_t i = 0; i < RDMUX_COUNT_OF(verbs_names); i++) {
        const struct rdmux_provider_entry *entry = find_entry(registry, verbs_names[i]);
        if (entry != NULL && entry->ops != NULL) {
            return entry;
        }
    }
    return NULL;
}

/* Returns the entry of rdmux's own plug-in that was refused, or of a refused folder that may have
 * it; NULL: no refusal. */
static const struct rdmux_provider_entry *find_refused(const struct rdmux_registry *registry)
{
    const struct rdmux_provider_entry *refused = find_entry(registry, VERBS_PLUGIN);
    for (size_t i = 0; i < registry->count && refused == NULL; i++) {
        const char *slash = strchr(registry->entries[i].name, '/');
        if (slash != NULL) { /* a folder */
            refused = &registry->entries[i];
        }
    }
    return refused;
}

/* With POSIX calls alone: the providers of other builds. */
static void add_not_built(struct rdmux_registry *registry)
{
    static const char *const names[] = { "shm", "ib", "roce", "iwarp" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(names); i++) {
        struct rdmux_provider_entry *entry = find_entry(registry, names[i]) == NULL
                                                 ? add_entry(registry, names[i])
                                                 : NULL;
        if (entry != NULL) {
            entry->reason = RDMUX_REASON_NO_LIBRARY;
            (void)snprintf(entry->text, sizeof(entry->text),
                           "this build of rdmux (RDMUX_POSIX_ONLY) has tcp alone");
            (void)snprintf(entry->hint, sizeof(entry->hint), "use tcp");
        }
    }
}

void rdmux_registry_add_absent(struct rdmux_registry *registry)
{
    if (!RDMUX_LOADS_PLUGINS) {
        add_not_built(registry);
        return;
    }
    const struct rdmux_provider_entry *refused = find_refused(registry);
    const struct rdmux_provider_entry *sibling = find_sibling(registry);
    for (size_t i = 0; i < RDMUX_COUNT_OF(verbs_names); i++) {
        if (find_entry(registry, verbs_names[i]) != NULL) {
            continue;
        }
        struct rdmux_provider_entry *entry = add_entry(registry, verbs_names[i]);
        if (entry == NULL) {
            continue;
        }
        if (refused != NULL) {
            entry->reason = refused->reason;
            (void)snprintf(entry->text, sizeof(entry->text), "%s: %.*s", refused->name,
                           RDMUX_TEXT_MAX - RDMUX_NAME_MAX - 2, refused->text);
            (void)snprintf(entry->hint, sizeof(entry->hint), "%s",
                           refused->reason == RDMUX_REASON_NO_LIBRARY
                               ? "install libibverbs and librdmacm (Debian: libibverbs1 librdmacm1 "
                                 "ibverbs-providers)"
                               : refused->hint);
        } else if (sibling != NULL) {
            entry->reason = RDMUX_REASON_NO_LIBRARY;
            (void)snprintf(entry->text, sizeof(entry->text),
                           "the plug-in that provides %s has no provider %s", sibling->name,
                           entry->name);
            (void)snprintf(
                entry->hint, sizeof(entry->hint),
                "install a build of %s that has it; all providers of this version are in "
                "one",
                VERBS_PLUGIN);
        } else if (!rdmux_binding_is_shared()) {
            entry->reason = RDMUX_REASON_NO_LIBRARY;
            (void)snprintf(entry->text, sizeof(entry->text),
                           "rdmux is linked into the program without rdmux_verbs_plugin");
            (void)snprintf(entry->hint, sizeof(entry->hint),
                           "link librdmux_verbs.a, too, and name rdmux_verbs_plugin in "
                           "rdmux_fabric_attr.builtin (rdmux/verbs_plugin.h)");
        } else {
            entry->reason = RDMUX_REASON_NO_LIBRARY;
            (void)snprintf(entry->text, sizeof(entry->text), "plug-in %s is not installed",
                           VERBS_PLUGIN);
            (void)snprintf(entry->hint, sizeof(entry->hint),
                           "install rdmux's plug-in %s into rdmux/ beside librdmux.so, with "
                           "libibverbs and librdmacm",
                           VERBS_PLUGIN);
        }
    }
}

enum rdmux_status rdmux_registry_fill(struct rdmux_registry *registry, struct rdmux_fabric *fabric,
                                      const struct rdmux_provider_ops *const *built_in,
                                      const struct rdmux_fabric_attr *attr,
                                      const char *environment_dir)
{
    registry->fabric = fabric;
    registry->count = 0;
    registry->plugins = 0;
    for (size_t i = 0; built_in[i] != NULL; i++) {
        add_provider(registry, built_in[i], LIBRARY, false);
    }
    add_builtin(registry, attr);
    struct loading loading = { .registry = registry };
    enum rdmux_status status = load_plugins(&loading, attr, environment_dir);
    free(loading.seen);
    if (status == RDMUX_OK) {
        rdmux_registry_add_absent(registry);
    }
    return status;
}

/* ---------------------------------------------------------------------------------------- paths */

static struct rdmux_offer_path *add_offer_path(struct rdmux_offer *offer,
                                               const struct rdmux_provider_entry *entry)
{
    struct rdmux_offer_path *path = &offer->paths[offer->path_count++];
    memset(path, 0, sizeof(*path));
    memcpy(path->provider, entry->name, sizeof(path->provider));
    path->source = entry->source;
    return path;
}

static void add_absent_path(struct rdmux_offer *offer, const struct rdmux_provider_entry *entry,
                            uint32_t reason, const char *text, const char *hint)
{
    struct rdmux_offer_path *path = add_offer_path(offer, entry);
    path->path.reason = reason;
    (void)snprintf(path->path.text, sizeof(path->path.text), "%s", text);
    (void)snprintf(path->path.hint, sizeof(path->path.hint), "%s", hint);
}

/* Terminates the strings that a provider wrote, and limits its lengths. */
static void trim_path(struct rdmux_local_path *path)
{
    path->device[sizeof(path->device) - 1] = '\0';
    path->address[sizeof(path->address) - 1] = '\0';
    path->text[sizeof(path->text) - 1] = '\0';
    path->hint[sizeof(path->hint) - 1] = '\0';
    if (path->reach_length > RDMUX_REACH_MAX) {
        path->reach_length = RDMUX_REACH_MAX;
    }
}

/* Adds a provider's paths, at most room of them; room is at least 1. */
static void add_paths(struct rdmux_fabric *fabric, struct rdmux_offer *offer,
                      const struct rdmux_provider_entry *entry, size_t room)
{
    const struct rdmux_provider_ops *ops = entry->ops;
    struct rdmux_local_path *paths = rdmux_allocate(fabric, room * sizeof(*paths));
    if (paths == NULL) {
        add_absent_path(offer, entry, RDMUX_REASON_OPEN_FAILED, "no memory to look for paths", "");
        return;
    }
    size_t count = 0;
    rdmux_error_clear();
    enum rdmux_status status = ops->probe(fabric, paths, room, &count);
    if (status != RDMUX_OK) {
        const char *text = rdmux_last_error();
        add_absent_path(offer, entry, RDMUX_REASON_OPEN_FAILED,
                        text[0] != '\0' ? text : rdmux_status_name(status), "");
    } else if (count == 0) {
        add_absent_path(offer, entry, RDMUX_REASON_NO_DEVICE, "the provider found no device", "");
    } else {
        if (count > room) {
            rdmux_log(fabric, RDMUX_LOG_WARN, "provider %s: %zu paths; the first %zu are offered",
                      ops->name, count, room);
            count = room;
        }
        for (size_t i = 0; i < count; i++) {
            struct rdmux_offer_path *path = add_offer_path(offer, entry);
            path->provider_flags = ops->flags;
            path->reach = ops->reach;
            path->path = paths[i];
            trim_path(&path->path);
        }
    }
    rdmux_release(fabric, paths);
}

/* Returns whether the provider has paths only on request, and no filter names it. */
static bool is_not_requested(const struct rdmux_provider_entry *entry,
                             const struct rdmux_offer *offer)
{
    return (entry->ops->flags & RDMUX_PROVIDER_ON_REQUEST) != 0 && entry->is_named == 0 &&
           !rdmux_filter_names(offer->filter[1], entry->name);
}

static void add_unrequested_path(struct rdmux_offer *offer, const struct rdmux_provider_entry *entry)
{
    char hint[RDMUX_TEXT_MAX];
    (void)snprintf(hint, sizeof(hint), "name it in the path filter of both sides (RDMUX_PATHS=%s)",
                   entry->name);
    add_absent_path(offer, entry, RDMUX_REASON_FILTERED,
                    "it has paths only where a path filter names it", hint);
}

_Static_assert((int)RDMUX_FABRIC_PROVIDERS_MAX <= (int)RDMUX_OFFER_PATHS_MAX,
               "an offer has a line for each");

void rdmux_registry_offer_paths(const struct rdmux_registry *registry, struct rdmux_offer *offer)
{
    offer->path_count = 0;
    for (size_t i = 0; i < registry->count; i++) {
        const struct rdmux_provider_entry *entry = &registry->entries[i];
        if (entry->ops == NULL) {
            add_absent_path(offer, entry, entry->reason, entry->text, entry->hint);
        } else if (is_not_requested(entry, offer)) {
            add_unrequested_path(offer, entry);
        } else {
            /* Keeps one line for each provider that follows. */
            add_paths(registry->fabric, offer, entry,
                      RDMUX_OFFER_PATHS_MAX - offer->path_count - (registry->count - 1 - i));
        }
    }
}
