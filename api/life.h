/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The stages of endpoints outside the data path, see struct rdmux_life. */
#ifndef RDMUX_API_LIFE_H
#define RDMUX_API_LIFE_H

#include "api/core/fabric.h"

extern const struct rdmux_life rdmux_life;

#endif
