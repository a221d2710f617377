/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Built for another provider ABI: nothing but its number may be looked at. */
#include <rdmux/provider.h>

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

const struct rdmux_plugin *rdmux_plugin(void)
{
    static const struct rdmux_plugin plugin = {
        .abi = RDMUX_PROVIDER_ABI + 98,
        .count = UINT32_MAX,
        .providers = (const struct rdmux_provider_ops *const *)(uintptr_t)8,
    };
    return &plugin;
}
