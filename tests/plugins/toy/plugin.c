/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What makes a shared object a plug-in: the one function that rdmux looks for. */
#include "toy.h"

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

const struct rdmux_plugin *rdmux_plugin(void)
{
    static const struct rdmux_provider_ops *const providers[] = { &toy_provider };
    static const struct rdmux_plugin plugin = {
        .abi = RDMUX_PROVIDER_ABI,
        .count = 1,
        .providers = providers,
    };
    return &plugin;
}
