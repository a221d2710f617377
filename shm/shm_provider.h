/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The provider for two processes of one user on one host; docs/WIRE-SHM.md says how it works. */
#ifndef RDMUX_SHM_PROVIDER_H
#define RDMUX_SHM_PROVIDER_H

#include <rdmux/provider.h>

extern const struct rdmux_provider_ops rdmux_shm_provider;

#endif
