/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux-verbs.so: what the file exports. It is no part of librdmux_verbs.a, as a program may link
 * several plug-ins, each of which has such a function. */
#include <rdmux/provider.h>
#include <rdmux/verbs_plugin.h>

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

const struct rdmux_plugin *rdmux_plugin(void)
{
    return &rdmux_verbs_plugin;
}
