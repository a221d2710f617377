/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * own_monitor.so: preloaded, makes any program one that has given libfabric a monitor of memory of its
 * own.
 */
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

static int start(struct fid_mem_monitor *monitor)
{
    (void)monitor;
    return 0;
}

static void stop(struct fid_mem_monitor *monitor)
{
    (void)monitor;
}

/* No registration is cached. */
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

static struct fi_ops_mem_monitor ops = {
    sizeof(ops), start, stop, subscribe, unsubscribe, is_valid
};
static struct fid_mem_monitor own = { .export_ops = &ops };

static int import(struct fid_mem_monitor *monitor)
{
    monitor->fid.fclass = FI_CLASS_MEM_MONITOR;
    return fi_import(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), "mr_cache", NULL, 0, 0,
                     &monitor->fid, NULL);
}

__attribute__((constructor)) static void begin(void)
{
    struct fi_info *info = NULL;
    /* The first call initialises libfabric, which chooses a monitor. */
    if (fi_getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), NULL, NULL, 0, NULL, &info) ==
        0) {
        fi_freeinfo(info);
    }
    if (import(&own) != 0) {
        (void)fprintf(stderr, "own_monitor: libfabric refuses the monitor\n");
        _exit(2);
    }
}
