/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "providers/loader.h"

#include "providers/binding.h"
#include "providers/trust.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char tell_author[] = "this is a defect of the plug-in: tell its author";

/* Names of the operations, in the table's order. */
static const char *const operation_names[] = {
    "probe",         "reach",         "domain_open",   "domain_close",
    "async_event",   "domain_fd",     "inspect",       "mr_register",
    "mr_deregister", "mr_describe",   "mr_invalidate", "cq_open",
    "cq_close",      "poll",          "arm",           "fd",
    "ep_open",       "ep_describe",   "ep_connect",    "ep_join",
    "ep_control",    "ep_ping",       "ep_quiesce",    "ep_close",
    "post",          "doorbell",      "post_recv",     "srq_open",
    "srq_close",     "srq_post_recv", "remote_open",   "remote_close",
};
enum {
    FIRST_OPERATION = offsetof(struct rdmux_provider_ops, probe),
    OPERATION_SIZE = sizeof(void (*)(void)),
    OPERATION_COUNT = sizeof(operation_names) / sizeof(operation_names[0]),
};
_Static_assert(FIRST_OPERATION + OPERATION_COUNT * OPERATION_SIZE == RDMUX_PROVIDER_OPS_SIZE_LEAST,
               "every operation has its name here");

static enum rdmux_status refuse_plugin(struct rdmux_refusal *refusal, uint32_t reason,
                                       const char *hint, const char *format, ...)
    RDMUX_PRINTF(4, 5);
static enum rdmux_status refuse_plugin(struct rdmux_refusal *refusal, uint32_t reason,
                                       const char *hint, const char *format, ...)
{
    refusal->reason = reason;
    refusal->place[0] = '\0';
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(refusal->text, sizeof(refusal->text), format, arguments);
    va_end(arguments);
    (void)snprintf(refusal->hint, sizeof(refusal->hint), "%s", hint);
    return RDMUX_NO_PATH;
}

/* --------------------------------------------------------------------------------------- tables */

static bool is_valid_name(const char *name)
{
    if (name == NULL || name[0] == '\0' || strcmp(name, "auto") == 0 ||
        strnlen(name, RDMUX_NAME_MAX) == RDMUX_NAME_MAX) {
        return false;
    }
    return strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == strlen(name);
}

/* Returns the name of the first operation that is not set, NULL if all are set. */
static const char *find_hole(const struct rdmux_provider_ops *ops)
{
    for (size_t i = 0; i < OPERATION_COUNT; i++) {
        void (*operation)(void) = NULL;
        memcpy(&operation, (const char *)ops + FIRST_OPERATION + i * OPERATION_SIZE,
               sizeof(operation));
        if (operation == NULL) {
            return operation_names[i];
        }
    }
    return NULL;
}

static bool has_part_of_a_fast_path(const struct rdmux_provider_ops *ops)
{
    if (ops->size < offsetof(struct rdmux_provider_ops, ep_leave)) {
        return false;
    }
    bool has_one = ops->fast_path_open != NULL;
    return (ops->fast_path_close != NULL) != has_one || (ops->fast_path_target != NULL) != has_one;
}

static bool has_half_of_a_cq_change(const struct rdmux_provider_ops *ops)
{
    return ops->size >= offsetof(struct rdmux_provider_ops, ep_figures) &&
           (ops->ep_leave != NULL) != (ops->ep_enter != NULL);
}

static const char *find_small_object(const struct rdmux_provider_ops *ops)
{
    const struct {
        const char *name;
        size_t size;
        size_t base;
    } objects[] = {
        { "domain_size", ops->domain_size, sizeof(struct rdmux_provider_domain) },
        { "cq_size", ops->cq_size, sizeof(struct rdmux_provider_cq) },
        { "ep_size", ops->ep_size, sizeof(struct rdmux_provider_ep) },
        { "srq_size", ops->srq_size, sizeof(struct rdmux_provider_srq) },
        { "mr_size", ops->mr_size, sizeof(struct rdmux_provider_mr) },
        { "remote_size", ops->remote_size, sizeof(struct rdmux_provider_remote) },
    };
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++) {
        if (objects[i].size < objects[i].base) {
            return objects[i].name;
        }
    }
    return NULL;
}

static enum rdmux_status refuse_abi(struct rdmux_refusal *refusal, uint32_t abi)
{
    return refuse_plugin(refusal, RDMUX_REASON_BAD_PLUGIN,
                         "rebuild the plug-in against this rdmux, or install one of its age",
                         "built for provider ABI %u, this library has %u", abi, RDMUX_PROVIDER_ABI);
}

enum rdmux_status rdmux_provider_check(const struct rdmux_provider_ops *ops,
                                       struct rdmux_refusal *refusal)
{
    if (ops == NULL) {
        return refuse_plugin(refusal, RDMUX_REASON_BAD_PLUGIN, tell_author,
                             "one of its tables is NULL");
    }
    if (ops->abi != RDMUX_PROVIDER_ABI) {
        return refuse_abi(refusal, ops->abi);
    }
    /* A longer table comes from a newer header of the same ABI. The appended part is not used. */
    if (ops->size < RDMUX_PROVIDER_OPS_SIZE_LEAST) {
        return refuse_plugin(refusal, RDMUX_REASON_BAD_PLUGIN, tell_author,
                             "its table has %u bytes, this library needs %zu", ops->size,
                             RDMUX_PROVIDER_OPS_SIZE_LEAST);
    }
    if (!is_valid_name(ops->name)) {
        return refuse_plugin(refusal, RDMUX_REASON_BAD_PLUGIN, tell_author,
                             "the provider's name '%.*s' is not 1 to %d of a-z 0-9 _ -",
                             RDMUX_NAME_MAX, ops->name != NULL ? ops->name : "",
                             RDMUX_NAME_MAX - 1);
    }
    const char *small = find_small_object(ops);
    if (small != NULL) {
        return refuse_plugin(refusal, RDMUX_REASON_BAD_PLUGIN, tell_author,
                             "provider %s: %s is smaller than the object's base", ops->name, small);
    }
    if (has_part_of_a_fast_path(ops)) {
        return refuse_plugin(
            refusal, RDMUX_REASON_BAD_PLUGIN, tell_author,
            "provider %s: of fast_path_open, fast_path_close and fast_path_target only "
            "some are set",
            ops->name);
    }
    if (has_half_of_a_cq_change(ops)) {
        return refuse_plugin(refusal, RDMUX_REASON_BAD_PLUGIN, tell_author,
                             "provider %s: of ep_leave and ep_enter only one is set", ops->name);
    }
    const char *hole = find_hole(ops);
    if (hole != NULL) {
        return refuse_plugin(refusal, RDMUX_REASON_BAD_PLUGIN, tell_author,
                             "provider %s: operation %s is not set", ops->name, hole);
    }
    return RDMUX_OK;
}

/* ---------------------------------------------------------------------------------------- files */

/* Returns whether the object that a dlerror() text names, a library or the plug-in, is missing. The
 * text names the object before its first colon, in every language. */
static bool is_missing(const char *text, const char *path)
{
    const char *colon = strstr(text, ": ");
    size_t length = colon != NULL ? (size_t)(colon - text) : 0;
    if (length == 0) {
        return access(path, F_OK) != 0;
    }
    if (memchr(text, '/', length) == NULL) {
        /* A library found in the system's folders is named with its folder, so this one is
         * missing. */
        return true;
    }
    char object[4096];
    (void)snprintf(object, sizeof(object), "%.*s", (int)length, text);
    return access(object, F_OK) != 0;
}

static void *open_plugin_file(const char *path, struct rdmux_refusal *refusal)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle != NULL) {
        return handle;
    }
    const char *text = dlerror();
    if (text == NULL) {
        text = "dlopen failed and does not say why";
    }
    bool missing = is_missing(text, path);
    size_t length = strlen(path);
    if (strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0) {
        text += length + 2;
    }
    if (missing) {
        (void)refuse_plugin(refusal, RDMUX_REASON_NO_LIBRARY,
                            "install the library named, or take the plug-in away", "%s", text);
    } else {
        (void)refuse_plugin(refusal, RDMUX_REASON_BAD_PLUGIN,
                            "rebuild the plug-in against this rdmux and this system", "%s", text);
    }
    return NULL;
}

enum rdmux_status rdmux_plugin_check(const struct rdmux_plugin *plugin,
                                     struct rdmux_refusal *refusal)
{
    if (plugin->abi != RDMUX_PROVIDER_ABI) {
        return refuse_abi(refusal, plugin->abi);
    }
    if (plugin->count == 0 || plugin->providers == NULL) {
        return refuse_plugin(refusal, RDMUX_REASON_BAD_PLUGIN, tell_author, "it brings no provider");
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_plugin_load(const char *path, const struct rdmux_plugin **out,
                                    struct rdmux_refusal *refusal)
{
    char judged[PATH_MAX];
    if (rdmux_trust_check(path, RDMUX_TRUST_FILE, judged, refusal) != RDMUX_OK ||
        rdmux_binding_check(refusal) != RDMUX_OK) {
        return RDMUX_NO_PATH;
    }
    void *handle = open_plugin_file(judged, refusal);
    if (handle == NULL || rdmux_binding_check_opened(handle, refusal) != RDMUX_OK) {
        return RDMUX_NO_PATH;
    }
    rdmux_plugin_fn entry = NULL;
    void *symbol = dlsym(handle, RDMUX_PLUGIN_SYMBOL);
    memcpy(&entry, &symbol, sizeof(entry)); /* allowed by POSIX; ISO C has no cast for it */
    if (entry == NULL) {
        return refuse_plugin(refusal, RDMUX_REASON_BAD_PLUGIN,
                             "is it a plug-in of rdmux? take it out of the folder",
                             "it exports no %s()", RDMUX_PLUGIN_SYMBOL);
    }
    const struct rdmux_plugin *plugin = entry();
    if (plugin == NULL) {
        return refuse_plugin(refusal, RDMUX_REASON_BAD_PLUGIN, tell_author,
                             "its %s() returned NULL", RDMUX_PLUGIN_SYMBOL);
    }
    if (rdmux_plugin_check(plugin, refusal) != RDMUX_OK) {
        return RDMUX_NO_PATH;
    }
    *out = plugin;
    return RDMUX_OK;
}

/* --------------------------------------------------------------------------------------- folder */

void rdmux_plugin_folder(char *out, size_t size)
{
    char library[PATH_MAX];
    rdmux_library_file(library, sizeof(library));
    out[0] = '\0';
    if (library[0] == '\0') {
        return;
    }
    const char *slash = strrchr(library, '/');
    int length = rdmux_trust_is_secure()
                     ? snprintf(out, size, "%s", RDMUX_PLUGIN_FOLDER)
                     : snprintf(out, size, "%.*s/rdmux", (int)(slash - library), library);
    if (length < 0 || (size_t)length >= size) {
        out[0] = '\0';
    }
}
