/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A link of examples/embedding between both sides of a measurement. */
#ifndef RDMUX_BENCH_LINKS_H
#define RDMUX_BENCH_LINKS_H

#include "bench.h"

#include "examples/embedding/link/link.h"

/* Side 1 listens, side 0 connects. */
struct link *links_open(const struct bench *bench, const char *paths);

#endif
