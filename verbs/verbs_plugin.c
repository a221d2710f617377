/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The providers that need libibverbs and librdmacm, as one plug-in. */
#include "verbs/verbs_plugin.h"

#include "verbs/verbs_macros.h"

#include <rdmux/verbs_plugin.h>

static const struct rdmux_provider_ops *const providers[] = {
    &rdmux_ib_provider,
    &rdmux_roce_provider,
    &rdmux_iwarp_provider,
};

const struct rdmux_plugin rdmux_verbs_plugin = {
    .abi = RDMUX_PROVIDER_ABI,
    .count = VERBS_COUNT_OF(providers),
    .providers = providers,
};
