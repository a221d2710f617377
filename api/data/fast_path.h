/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The fast path of a cq, described in provider.h. Its gate is the words by which calls and the
 * service thread agree on the owner of the cq. Every other call uses the gate, too.
 *
 * While the fast path is open, the counters of its endpoint's send ring stand still: they keep
 * their values from when it was opened, when no request was in flight. No other code sees that,
 * since every other owner of the cq closes the fast path first: rdmux_cq_enter(), rdmux_cq_claim().
 */
#ifndef RDMUX_API_DATA_FAST_PATH_H
#define RDMUX_API_DATA_FAST_PATH_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/mr.h"
#include "api/core/remote.h"

/* Reads a word before the cq is entered. The service thread, which may own the cq, changes such
 * words. An outdated value leads to a fast path that turns out to be closed. A plain read of a
 * word, so that the compiler joins the read with its use. */
#if RDMUX_TSAN
#define RDMUX_GLANCE(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#else
#define RDMUX_GLANCE(word) (word)
#endif

/* Creates the gate and the closed fast path. `poll` is the poll without the fast path.
 * RDMUX_NO_MEMORY. */
enum rdmux_status rdmux_fast_path_create(struct rdmux_cq *cq, rdmux_fast_path_poll_fn poll);
void rdmux_fast_path_destroy(struct rdmux_cq *cq);

/* Returns whether the endpoint's path can have a fast path. */
bool rdmux_fast_path_is_possible(const struct rdmux_ep *ep);
/* Called for a write on the slow path that the fast path might take. Returns whether the fast path
 * is now open for this endpoint, with room. Works in any state of the cq, which the caller does not
 * own. [data path] */
bool rdmux_fast_path_ready(struct rdmux_ep *ep);
/* Owner: closes the fast path. [data path] */
void rdmux_fast_path_close(struct rdmux_cq *cq);
/* Owner: detaches the endpoint from the fast path, which is closed. */
void rdmux_fast_path_forget(struct rdmux_ep *ep);
/* Owner: updates the fast-path fields of the remote after a change of what the endpoint may do with
 * it. */
void rdmux_fast_path_aim(struct rdmux_remote *remote);

#endif
