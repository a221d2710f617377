/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The provider's table, its path, and its context. */
#include "adapters/ucx/ucx_environment.h"
#include "adapters/ucx/ucx_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* UCX does not report the speed of its transports. These figures are of its tcp; they rank paths
 * that were asked for by name. */
static const uint64_t BANDWIDTH = UINT64_C(2000000000);
static const uint32_t LATENCY_NS = 20000;

enum rdmux_status rdmux_ucx_error(const struct ucx_calls *calls, const char *what,
                                  ucs_status_t status)
{
    const char *error = rdmux_ucx_last_error();
    rdmux_provider_error("ucx: %s: %s%s%s; look at the variables UCX_TLS and UCX_NET_DEVICES", what,
                         calls->ucs_status_string(status), error[0] != '\0' ? ": " : "", error);
    switch (status) {
    case UCS_ERR_NO_MEMORY:
        return RDMUX_NO_MEMORY;
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_NO_DEVICE:
        return RDMUX_NO_PATH;
    case UCS_ERR_UNSUPPORTED:
        return RDMUX_UNSUPPORTED;
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
        return RDMUX_PEER_GONE;
    default:
        return RDMUX_IO;
    }
}

static enum rdmux_status ucx_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                   size_t max, size_t *count)
{
    (void)fabric;
    *count = 1;
    if (max == 0) {
        return RDMUX_OK;
    }
    memset(out, 0, sizeof(*out));
    const struct ucx_calls *calls = NULL;
    out->reason = rdmux_ucx_load(&calls, out->text, out->hint);
    if (out->reason != RDMUX_REASON_USABLE) {
        return RDMUX_OK;
    }
    (void)snprintf(out->device, sizeof(out->device), "ucp");
    if (!rdmux_ucx_transports_are_safe(getenv("UCX_TLS"), calls->ucp_get_version_string(),
                                       out->text, out->hint)) {
        out->reason = RDMUX_REASON_OPEN_FAILED;
        return RDMUX_OK;
    }
    (void)snprintf(out->text, sizeof(out->text), "UCX %s, active messages",
                   calls->ucp_get_version_string());
    out->software = 1; /* rdmux reaches these networks by itself: it ranks behind tcp */
    out->bandwidth = BANDWIDTH;
    out->latency_ns = LATENCY_NS;
    out->native = RDMUX_FRAMED_NATIVE;
    out->emulated = RDMUX_FRAMED_EMULATED;
    out->max_inline = FRAMED_INLINE_MAX;
    /* Whoever reaches a worker's port may write to any memory of the process: UCX's messages for
     * puts carry addresses, which nobody checks. */
    out->security = RDMUX_SECURITY_NONE;
    return RDMUX_OK;
}

/* Only ucp_ep_create() and the first message show whether two workers reach each other. */
static enum rdmux_reason ucx_reach(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                   size_t theirs_length, char *text)
{
    (void)ours;
    (void)ours_length;
    (void)theirs;
    (void)theirs_length;
    text[0] = '\0';
    return RDMUX_REASON_NONE;
}

/* When a setting is made. */
enum setting_use { SET_ALWAYS, SET_WITHOUT_TLS, SET_WITH_TLS };

/* UCX_TLS is the user's wish. Without it tcp alone is used: transports within a host cannot notice
 * that a peer fails, and RDMA devices are those of rdmux's own providers. */
static const struct setting {
    const char *prefix; /* of one part of UCX */
    const char *name;
    const char *value;
    enum setting_use use;
} settings[] = {
    { "", "TLS", "tcp", SET_WITHOUT_TLS },
    /* The cache of registrations needs the replaced munmap(), and nothing is registered here. */
    { "", "RCACHE_ENABLE", "n", SET_ALWAYS },
    /* One lane for each message: several have no order. */
    { "", "MAX_EAGER_RAILS", "1", SET_ALWAYS },
    /* UCX's tcp must not wait in connect(2), which can take minutes. */
    { "TCP_", "CONN_NB", "y", SET_ALWAYS },
    /* Soft RoCE reports one event of a queue pair several times, at which UCX ends the process.
     * Without events UCX keeps the queue pairs of ended connections until the worker ends. */
    { "IB_", "ASYNC_EVENTS", "n", SET_WITH_TLS },
};
enum { SETTING_COUNT = sizeof(settings) / sizeof(settings[0]) };

static bool is_wanted(const struct setting *setting, bool has_tls)
{
    return setting->use == SET_ALWAYS || has_tls == (setting->use == SET_WITH_TLS);
}

/* ucp_config_modify() takes any name and reports none that it does not find. Before 1.17 it finds
 * those of a part without their prefix, then with it (uct_config_modify()). */
static const char *setting_name(const struct ucx_calls *calls, const struct setting *setting)
{
    static _Thread_local char name[64];
    (void)snprintf(name, sizeof(name), "%s%s",
                   rdmux_ucx_is_version(calls->ucp_get_version_string(), 1, 17) ? setting->prefix
                                                                                : "",
                   setting->name);
    return name;
}

static enum rdmux_status open_context(struct ucx_domain *domain)
{
    const struct ucx_calls *calls = domain->calls;
    ucp_config_t *config = NULL;
    ucs_status_t status = calls->ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK) {
        return rdmux_ucx_error(calls, "its configuration cannot be read", status);
    }
    for (size_t i = 0; i < SETTING_COUNT && status == UCS_OK; i++) {
        if (is_wanted(&settings[i], domain->has_wish)) {
            status = calls->ucp_config_modify(config, setting_name(calls, &settings[i]),
                                              settings[i].value);
        }
    }
    if (status == UCS_OK) {
        const ucp_params_t params = {
            .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
            .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
            .mt_workers_shared = 1, /* each cq has its owner */
        };
        status = calls->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config,
                                         &domain->context);
    }
    calls->ucp_config_release(config);
    return status == UCS_OK ? RDMUX_OK : rdmux_ucx_error(calls, "it cannot be opened", status);
}

static enum rdmux_status ucx_domain_open(struct rdmux_provider_domain *base,
                                         const struct rdmux_local_path *path)
{
    struct ucx_domain *domain = (struct ucx_domain *)base;
    char text[RDMUX_TEXT_MAX];
    char hint[RDMUX_TEXT_MAX];
    (void)path;
    if (rdmux_ucx_load(&domain->calls, text, hint) != RDMUX_REASON_USABLE) {
        rdmux_provider_error("ucx: %s; %s", text, hint);
        return RDMUX_UNSUPPORTED;
    }
    domain->base.lane = &rdmux_ucx_lane;
    domain->has_wish = getenv("UCX_TLS") != NULL;
    sigset_t signals;
    rdmux_ucx_forget_error();
    rdmux_ucx_block_signals(&signals);
    enum rdmux_status status = open_context(domain);
    rdmux_ucx_restore_signals(&signals);
    return status;
}

static void ucx_domain_close(struct rdmux_provider_domain *base)
{
    const struct ucx_domain *domain = (const struct ucx_domain *)base;
    domain->calls->ucp_cleanup(domain->context);
}

const struct rdmux_provider_ops rdmux_ucx_provider = {
    .abi = RDMUX_PROVIDER_ABI,
    .size = sizeof(struct rdmux_provider_ops),
    .name = "ucx",
    .flags = RDMUX_PROVIDER_PING_BUSY | RDMUX_PROVIDER_ON_REQUEST,
    .domain_size = sizeof(struct ucx_domain),
    .cq_size = sizeof(struct ucx_cq),
    .ep_size = sizeof(struct ucx_ep),
    .probe = ucx_probe,
    .reach = ucx_reach,
    .domain_open = ucx_domain_open,
    .domain_close = ucx_domain_close,
    RDMUX_FRAMED_OPS,
};
