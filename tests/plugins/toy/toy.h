/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#ifndef TOY_H
#define TOY_H

#include <rdmux/provider.h>

extern const struct rdmux_provider_ops toy_provider;

#endif
