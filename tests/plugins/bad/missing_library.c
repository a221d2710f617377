/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A plug-in that needs a library which is not installed. */
#include <rdmux/provider.h>

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);
int gone_library_call(void);

const struct rdmux_plugin *rdmux_plugin(void)
{
    static struct rdmux_plugin plugin = { .abi = RDMUX_PROVIDER_ABI };
    plugin.count = (uint32_t)gone_library_call();
    return &plugin;
}
