/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#ifndef RDMUX_API_OBJECT_NULL_PATH_H
#define RDMUX_API_OBJECT_NULL_PATH_H

#include <rdmux/provider.h>

/* The null path: the path of an endpoint without a provider. It accepts no request. */
extern const struct rdmux_provider_ops rdmux_null_path_ops;

#endif
