/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A provider with one operation that is not set. */
#include "../toy/toy.h"

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

const struct rdmux_plugin *rdmux_plugin(void)
{
    static struct rdmux_provider_ops ops;
    static const struct rdmux_provider_ops *const providers[] = { &ops };
    static const struct rdmux_plugin plugin = {
        .abi = RDMUX_PROVIDER_ABI,
        .count = 1,
        .providers = providers,
    };
    ops = toy_provider;
    ops.name = "holey";
    ops.ep_ping = NULL;
    return &plugin;
}
