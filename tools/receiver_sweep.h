/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Removes what receivers that were killed have left below a directory: files and links with the
 * name of an unfinished file (protocol.h). A thread of its own looks through the tree, so a server
 * with many files starts at once.
 *
 * A receiver holds a lock (flock(2)) on each file that has such a name. So the files of another
 * server that runs stay. What is younger than the sweep stays, too.
 */
#ifndef RDMUX_TOOL_RECEIVER_SWEEP_H
#define RDMUX_TOOL_RECEIVER_SWEEP_H

struct sweep;

/* root: an open directory of the caller's, which must stay open until sweep_end(). Returns NULL if
 * the thread cannot be started; then nothing is removed. */
struct sweep *sweep_begin(int root);

/* Stops the sweep if it is not done. NULL is allowed. */
void sweep_end(struct sweep *sweep);

#endif
