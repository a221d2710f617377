/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The paths of libfabric that rdmux can use, and which of them can talk to each other. */
#ifndef RDMUX_OFI_PATH_H
#define RDMUX_OFI_PATH_H

#include "adapters/ofi/ofi_library.h"

#include <rdmux/provider.h>

#include <rdma/fabric.h>

#include <stddef.h>
#include <stdint.h>

enum rdmux_status rdmux_ofi_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                  size_t max, size_t *count);
enum rdmux_reason rdmux_ofi_reach(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                  size_t theirs_length, char *text);
/* Returns a copy of what libfabric says of a path that probe listed, for freeinfo. NULL: it is
 * gone; the error text is set. */
struct fi_info *rdmux_ofi_find(const struct ofi_library *library,
                               const struct rdmux_local_path *path);

#endif
