/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The provider `ofi`: the networks of libfabric, as lanes of the framed part. */
#include "adapters/ofi/ofi_internal.h"
#include "adapters/ofi/ofi_path.h"

#include <rdmux/provider.h>

#include <string.h>

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

static const struct framed_lane_ops lane = {
    .cq_open = rdmux_ofi_cq_open,
    .cq_close = rdmux_ofi_cq_close,
    .progress = rdmux_ofi_progress,
    .arm = rdmux_ofi_arm,
    .open = rdmux_ofi_open,
    .describe = rdmux_ofi_describe,
    .connect = rdmux_ofi_connect,
    .take = rdmux_ofi_take,
    .take_copy = rdmux_ofi_take_copy,
    .send = rdmux_ofi_send,
    .send_body = rdmux_ofi_send_body,
    .receive_body = rdmux_ofi_receive_body,
    .stop = rdmux_ofi_stop,
    .close = rdmux_ofi_close,
};

/* Providers without a device cache no registration. */
static bool may_cache(const struct fi_info *info)
{
    static const char *const without[] = { "tcp", "net", "sockets", "udp", "shm" };
    const char *name = info->fabric_attr->prov_name;
    for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++) {
        if (strncmp(name, without[i], strlen(without[i])) == 0) {
            return false;
        }
    }
    return true;
}

static enum rdmux_status ofi_domain_open(struct rdmux_provider_domain *base,
                                         const struct rdmux_local_path *path)
{
    struct ofi_domain *domain = (struct ofi_domain *)base;
    char text[RDMUX_TEXT_MAX];
    domain->base.lane = &lane;
    domain->library = rdmux_ofi_library(text);
    if (domain->library == NULL) {
        rdmux_provider_error("ofi: %s", text);
        return RDMUX_IO;
    }
    domain->info = rdmux_ofi_find(domain->library, path);
    if (domain->info == NULL) {
        return RDMUX_IO;
    }
    domain->installs_handlers = strcmp(domain->info->fabric_attr->prov_name, "shm") == 0;
    domain->is_connected_kind = domain->info->ep_attr->type == FI_EP_MSG;
    enum rdmux_status status = RDMUX_OK;
    int result = domain->library->fabric(domain->info->fabric_attr, &domain->fabric, NULL);
    sigset_t mask;
    if (result != 0) {
        status = rdmux_ofi_error(domain, "fi_fabric", result);
        goto free_info;
    }
    result = may_cache(domain->info) ? rdmux_ofi_forbid_caches(domain->library) : 0;
    if (result != 0) {
        status = rdmux_ofi_error(domain, "giving libfabric a monitor of memory", result);
        goto close_fabric;
    }
    rdmux_ofi_block_signals(&mask);
    result = fi_domain(domain->fabric, domain->info, &domain->domain, NULL);
    rdmux_ofi_unblock_signals(&mask);
    if (result != 0) {
        status = rdmux_ofi_error(domain, "fi_domain", result);
        goto close_fabric;
    }
    return RDMUX_OK;

close_fabric:
    (void)fi_close(&domain->fabric->fid);
free_info:
    domain->library->freeinfo(domain->info);
    return status;
}

static void ofi_domain_close(struct rdmux_provider_domain *base)
{
    struct ofi_domain *domain = (struct ofi_domain *)base;
    (void)fi_close(&domain->domain->fid);
    (void)fi_close(&domain->fabric->fid);
    domain->library->freeinfo(domain->info);
}

static const struct rdmux_provider_ops ofi_provider = {
    .abi = RDMUX_PROVIDER_ABI,
    .size = sizeof(struct rdmux_provider_ops),
    .name = "ofi",
    .flags = RDMUX_PROVIDER_PING_BUSY | RDMUX_PROVIDER_ON_REQUEST,
    .domain_size = sizeof(struct ofi_domain),
    .cq_size = sizeof(struct ofi_cq),
    .ep_size = sizeof(struct ofi_ep),
    .probe = rdmux_ofi_probe,
    .reach = rdmux_ofi_reach,
    .domain_open = ofi_domain_open,
    .domain_close = ofi_domain_close,
    RDMUX_FRAMED_OPS,
};

static const struct rdmux_provider_ops *const providers[] = { &ofi_provider };

static const struct rdmux_plugin plugin = {
    .abi = RDMUX_PROVIDER_ABI,
    .count = sizeof(providers) / sizeof(providers[0]),
    .providers = providers,
};

const struct rdmux_plugin *rdmux_plugin(void)
{
    return &plugin;
}
