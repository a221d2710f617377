/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A program that links the toy provider. */
#include "../toy/toy.h"
#include "own.h"

static const struct rdmux_provider_ops *const providers[] = { &toy_provider };
static const struct rdmux_plugin plugin = {
    .abi = RDMUX_PROVIDER_ABI,
    .count = 1,
    .providers = providers,
};

const struct rdmux_plugin *const own_plugins[] = { &plugin };
const size_t own_plugin_count = 1;
