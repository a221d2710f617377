/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The provider tables of the plug-in. */
#ifndef RDMUX_VERBS_VERBS_PLUGIN_H
#define RDMUX_VERBS_VERBS_PLUGIN_H

#include <rdmux/provider.h>

extern const struct rdmux_provider_ops rdmux_ib_provider;
extern const struct rdmux_provider_ops rdmux_roce_provider;
extern const struct rdmux_provider_ops rdmux_iwarp_provider;

#endif
