/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "adapters/ucx/ucx_library.h"

#include "adapters/ucx/ucx_descriptors.h"
#include "adapters/ucx/ucx_environment.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char LIBRARY[] = "libucp.so.0";

/* The library with the constructors that change a process. */
static const char CORE_LIBRARY[] = "libucs.so.0";

/* A process has UCX loaded once, or not, so this is not a fabric's. `lock` guards all of it; `calls`
 * is constant once is_loaded is set. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_loaded;
static struct ucx_calls calls;

static _Thread_local char last_error[RDMUX_TEXT_MAX];

/* Takes what UCX would print. Also called by UCX's own threads. */
static ucs_log_func_rc_t keep_message(const char *file, unsigned line, const char *function,
                                      ucs_log_level_t level,
                                      const ucs_log_component_config_t *component,
                                      const char *message, va_list arguments)
    __attribute__((format(printf, 6, 0)));
static ucs_log_func_rc_t keep_message(const char *file, unsigned line, const char *function,
                                      ucs_log_level_t level,
                                      const ucs_log_component_config_t *component,
                                      const char *message, va_list arguments)
{
    (void)file;
    (void)line;
    (void)function;
    (void)component;
    if (level == UCS_LOG_LEVEL_FATAL || level > UCS_LOG_LEVEL_WARN) {
        return UCS_LOG_FUNC_RC_CONTINUE; /* the user asked for it by UCX_LOG_LEVEL, or all ends */
    }
    if (level == UCS_LOG_LEVEL_ERROR || last_error[0] == '\0') {
        (void)vsnprintf(last_error, sizeof(last_error), message, arguments);
    }
    return UCS_LOG_FUNC_RC_STOP;
}

const char *rdmux_ucx_last_error(void)
{
    return last_error;
}

void rdmux_ucx_forget_error(void)
{
    last_error[0] = '\0';
}

/* Sets every member of calls. Returns the name of a function that is missing, NULL if none is. */
static const char *find_functions(void *library)
{
#define FIND(name)                                       \
    {                                                    \
        void *found = dlsym(library, #name);             \
        if (found == NULL) {                             \
            return #name;                                \
        }                                                \
        memcpy(&calls.name, &found, sizeof(calls.name)); \
    }
    RDMUX_UCX_FUNCTIONS(FIND)
#undef FIND
    return NULL;
}

static enum rdmux_reason load(char *text, char *hint)
{
    /* A program that uses UCX itself has brought about whatever UCX changes. Then rdmux leaves
     * UCX's log and descriptors alone, too. */
    void *core = dlopen(CORE_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    const bool was_there = core != NULL;
    if (was_there) {
        (void)dlclose(core);
    } else if (!rdmux_ucx_process_is_safe(text, hint)) {
        return RDMUX_REASON_OPEN_FAILED;
    }
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "%s", dlerror());
        (void)snprintf(hint, RDMUX_TEXT_MAX, "install UCX (Debian: libucx0)");
        return RDMUX_REASON_NO_LIBRARY;
    }
    const char *missing = find_functions(library);
    if (missing != NULL) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "%s has no function %s()", LIBRARY, missing);
        (void)snprintf(hint, RDMUX_TEXT_MAX, "install UCX %d.%d or later", UCP_API_MAJOR,
                       UCP_API_MINOR);
        return RDMUX_REASON_NO_LIBRARY;
    }
    if (!was_there) {
        calls.ucs_log_push_handler(keep_message);
        (void)rdmux_ucx_close_on_exec();
    }
    is_loaded = true;
    return RDMUX_REASON_USABLE;
}

enum rdmux_reason rdmux_ucx_load(const struct ucx_calls **out, char *text, char *hint)
{
    enum rdmux_reason reason = RDMUX_REASON_USABLE;
    (void)pthread_mutex_lock(&lock);
    if (!is_loaded) {
        reason = load(text, hint);
    }
    (void)pthread_mutex_unlock(&lock);
    if (reason == RDMUX_REASON_USABLE) {
        *out = &calls;
    }
    return reason;
}
