/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The fast path: small writes, one work request filled in place for each. */
#ifndef RDMUX_VERBS_FAST_PATH_H
#define RDMUX_VERBS_FAST_PATH_H

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <stdint.h>

struct verbs_cq;

int rdmux_verbs_fast_path_open(struct rdmux_provider_ep *base, struct rdmux_fast_path *fast,
                               rdmux_fast_path_poll_fn *poll);
void rdmux_verbs_fast_path_close(struct rdmux_provider_ep *base, struct rdmux_fast_path *fast,
                                 uint64_t posted, uint64_t done);
void rdmux_verbs_fast_path_target(const struct rdmux_provider_remote *base,
                                  struct rdmux_fast_path_target *out);
/* Handles a completion whose wr_id names no queue: work that was in flight on the fast path when it
 * was closed. */
void rdmux_verbs_fast_path_completed(struct verbs_cq *cq, const struct ibv_wc *wc);

#endif
