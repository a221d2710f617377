/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux-verbs.so: the providers that need libibverbs and librdmacm. */
#include "verbs/verbs_plugin.h"

#include "verbs/verbs_macros.h"

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

const struct rdmux_plugin *rdmux_plugin(void)
{
    static const struct rdmux_provider_ops *const providers[] = {
        &rdmux_ib_provider,
        &rdmux_roce_provider,
        &rdmux_iwarp_provider,
    };
    static const struct rdmux_plugin plugin = {
        .abi = RDMUX_PROVIDER_ABI,
        .count = VERBS_COUNT_OF(providers),
        .providers = providers,
    };
    return &plugin;
}
