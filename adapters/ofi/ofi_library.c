/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Opens libfabric and puts back what loading it changes in the process: libinfinipath, which
 * Debian's libfabric is linked to, installs handlers of signals when it is loaded, and the shm
 * provider does when it is initialised. */
#include "adapters/ofi/ofi_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LIBFABRIC "libfabric.so.1"

static struct {
    pthread_mutex_t lock; /* guards the rest, and loading */
    bool is_tried;
    bool is_loaded;
    bool has_no_caches;
    char text[RDMUX_TEXT_MAX];
    struct ofi_library library;
} loaded = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ----------------------------------------------------------------------------- signal handling */

void rdmux_ofi_block_signals(sigset_t *before)
{
    sigset_t all;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, before);
}

void rdmux_ofi_unblock_signals(const sigset_t *before)
{
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

void rdmux_ofi_remember(struct ofi_dispositions *all)
{
    rdmux_ofi_block_signals(&all->mask);
    for (int signal = 1; signal < NSIG; signal++) {
        all->is_known[signal] = sigaction(signal, NULL, &all->of[signal]) == 0;
    }
}

void rdmux_ofi_put_back(const struct ofi_dispositions *all)
{
    for (int signal = 1; signal < NSIG; signal++) {
        struct sigaction now;
        if (all->is_known[signal] && sigaction(signal, NULL, &now) == 0 &&
            (now.sa_flags != all->of[signal].sa_flags ||
             ((now.sa_flags & SA_SIGINFO) ? now.sa_sigaction != all->of[signal].sa_sigaction
                                          : now.sa_handler != all->of[signal].sa_handler))) {
            (void)sigaction(signal, &all->of[signal], NULL);
        }
    }
    rdmux_ofi_unblock_signals(&all->mask);
}

/* -------------------------------------------------------------------------------------- loading */

/* Sets a pointer to a function. POSIX allows what ISO C has no cast for. */
static bool find(void *handle, const char *name, void *out)
{
    void *symbol = dlsym(handle, name);
    memcpy(out, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static void load(void)
{
    struct ofi_library *library = &loaded.library;
    struct ofi_dispositions before;
    rdmux_ofi_remember(&before);
    void *handle = dlopen(LIBFABRIC, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    rdmux_ofi_put_back(&before);
    if (handle == NULL) {
        const char *text = dlerror();
        (void)snprintf(loaded.text, sizeof(loaded.text), "%s",
                       text != NULL ? text : LIBFABRIC " cannot be loaded");
        return;
    }
    loaded.is_loaded = find(handle, "fi_getinfo", &library->getinfo) &&
                       find(handle, "fi_freeinfo", &library->freeinfo) &&
                       find(handle, "fi_dupinfo", &library->dupinfo) &&
                       find(handle, "fi_fabric", &library->fabric) &&
                       find(handle, "fi_version", &library->version) &&
                       find(handle, "fi_strerror", &library->strerror) &&
                       find(handle, "fi_open", &library->open);
    if (!loaded.is_loaded) {
        (void)snprintf(loaded.text, sizeof(loaded.text), LIBFABRIC " lacks functions of libfabric");
    }
}

const struct ofi_library *rdmux_ofi_library(char *text)
{
    (void)pthread_mutex_lock(&loaded.lock);
    if (!loaded.is_tried) {
        loaded.is_tried = true;
        load();
    }
    memcpy(text, loaded.text, RDMUX_TEXT_MAX);
    const struct ofi_library *library = loaded.is_loaded ? &loaded.library : NULL;
    (void)pthread_mutex_unlock(&loaded.lock);
    return library;
}

int rdmux_ofi_getinfo(const struct ofi_library *library, const struct fi_info *hints,
                      struct fi_info **info)
{
    struct ofi_dispositions before;
    (void)pthread_mutex_lock(&loaded.lock);
    rdmux_ofi_remember(&before);
    int result = library->getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), NULL, NULL, 0,
                                  hints, info);
    rdmux_ofi_put_back(&before);
    (void)pthread_mutex_unlock(&loaded.lock);
    return result;
}

/* --------------------------------------------------------------------- caches of registrations */

/* A monitor of memory that watches none: libfabric caches no registration whose memory is not
 * watched. (If the monitor did not start, opening a domain of efa would fail.) */
static int start(struct fid_mem_monitor *monitor)
{
    (void)monitor;
    return 0;
}

static void stop(struct fid_mem_monitor *monitor)
{
    (void)monitor;
}

static int subscribe(struct fid_mem_monitor *monitor, const void *address, size_t size)
{
    (void)monitor;
    (void)address;
    (void)size;
    return -FI_ENOSYS;
}

static void unsubscribe(struct fid_mem_monitor *monitor, const void *address, size_t size)
{
    (void)monitor;
    (void)address;
    (void)size;
}

static bool is_valid(struct fid_mem_monitor *monitor, const void *address, size_t size)
{
    (void)monitor;
    (void)address;
    (void)size;
    return false;
}

static int import_monitor(const struct ofi_library *library)
{
    static struct fi_ops_mem_monitor ops = {
        .size = sizeof(ops),
        .start = start,
        .stop = stop,
        .subscribe = subscribe,
        .unsubscribe = unsubscribe,
        .valid = is_valid,
    };
    static struct fid_mem_monitor monitor = {
        .fid = { .fclass = FI_CLASS_MEM_MONITOR },
        .export_ops = &ops,
    };
    struct fid *cache = NULL;
    int result = library->open(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), "mr_cache", NULL, 0,
                               0, &cache, NULL);
    if (result == 0) {
        result = fi_import_fid(cache, &monitor.fid, 0);
        (void)fi_close(cache);
    }
    return result;
}

int rdmux_ofi_forbid_caches(const struct ofi_library *library)
{
    (void)pthread_mutex_lock(&loaded.lock);
    int result = 0;
    if (!loaded.has_no_caches) {
        result = import_monitor(library);
        loaded.has_no_caches = result == 0;
    }
    (void)pthread_mutex_unlock(&loaded.lock);
    /* Busy: the program has a monitor of its own, or a domain whose cache is watched already. */
    return result == -FI_EBUSY ? 0 : result;
}
