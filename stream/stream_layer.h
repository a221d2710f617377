/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A stream as the layer of its endpoint. */
#ifndef RDMUX_STREAM_LAYER_H
#define RDMUX_STREAM_LAYER_H

#include "api/core/ep.h"

extern const struct rdmux_ep_layer rdmux_stream_layer;

#endif
