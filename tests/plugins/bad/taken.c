/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Two providers: one whose name is taken, and a good one, which the first must not harm. */
#include "../toy/toy.h"

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

const struct rdmux_plugin *rdmux_plugin(void)
{
    static struct rdmux_provider_ops tcp;
    static struct rdmux_provider_ops other;
    static const struct rdmux_provider_ops *const providers[] = { &tcp, &other };
    static const struct rdmux_plugin plugin = {
        .abi = RDMUX_PROVIDER_ABI,
        .count = 2,
        .providers = providers,
    };
    tcp = toy_provider;
    tcp.name = "tcp";
    other = toy_provider;
    other.name = "toy-two";
    return &plugin;
}
