/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux-ucx.so: what the file exports. */
#include "adapters/ucx/ucx_internal.h"

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

static const struct rdmux_provider_ops *const providers[] = { &rdmux_ucx_provider };

static const struct rdmux_plugin plugin = {
    .abi = RDMUX_PROVIDER_ABI,
    .count = 1,
    .providers = providers,
};

const struct rdmux_plugin *rdmux_plugin(void)
{
    return &plugin;
}
