/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Provider between two processes of one user on one host, specified in docs/WIRE-SHM.md. */
#ifndef RDMUX_SHM_PROVIDER_H
#define RDMUX_SHM_PROVIDER_H

#include <rdmux/provider.h>

extern const struct rdmux_provider_ops rdmux_shm_provider;

#endif
