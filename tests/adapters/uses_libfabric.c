/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * uses_libfabric.so: preloaded, makes any program one that uses libfabric beside rdmux. What it does
 * with it is in the variable USES: "monitor" gives libfabric a monitor of memory; "domain" opens a
 * domain of verbs, whose cache of registrations libfabric watches by a monitor of its own.
 */
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int give_monitor(void)
{
    static struct fi_ops_mem_monitor ops = {
        sizeof(ops), start, stop, subscribe, unsubscribe, is_valid,
    };
    static struct fid_mem_monitor monitor = {
        .fid = { .fclass = FI_CLASS_MEM_MONITOR },
        .export_ops = &ops,
    };
    return fi_import(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), "mr_cache", NULL, 0, 0,
                     &monitor.fid, NULL);
}

static int open_domain(void)
{
    struct fid_fabric *fabric = NULL;
    struct fid_domain *domain = NULL;
    struct fi_info *info = NULL;
    struct fi_info *hints = fi_allocinfo();
    if (hints == NULL) {
        return -FI_ENOMEM;
    }
    hints->caps = FI_MSG;
    hints->ep_attr->type = FI_EP_MSG;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup("verbs");
    int result = fi_getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), NULL, NULL, 0, hints,
                            &info);
    if (result == 0) {
        result = fi_fabric(info->fabric_attr, &fabric, NULL);
    }
    if (result == 0) {
        result = fi_domain(fabric, info, &domain, NULL); /* open until the process ends */
    }
    fi_freeinfo(info);
    fi_freeinfo(hints);
    return result;
}

__attribute__((constructor)) static void begin(void)
{
    const char *uses = getenv("USES");
    const int result = uses == NULL                   ? -FI_EINVAL
                       : strcmp(uses, "monitor") == 0 ? give_monitor()
                       : strcmp(uses, "domain") == 0  ? open_domain()
                                                      : -FI_EINVAL;
    if (result != 0) {
        (void)fprintf(stderr, "uses_libfabric: USES=%s: %s\n", uses != NULL ? uses : "",
                      fi_strerror(-result));
        _exit(2);
    }
}
