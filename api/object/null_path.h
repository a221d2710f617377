/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#ifndef RDMUX_API_OBJECT_NULL_PATH_H
#define RDMUX_API_OBJECT_NULL_PATH_H

#include <rdmux/provider.h>

/* The path of an endpoint that has none: it takes nothing. */
extern const struct rdmux_provider_ops rdmux_null_path_ops;

#endif
