/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The end of a process that has open fabrics.
 *
 * exit() calls handlers by which libraries free what they have: OpenSSL its algorithms, the
 * libraries of adapters their contexts. The threads of open fabrics use them. So the handler of
 * this library comes first, waits for the turns of these threads that are under way, and lets none
 * begin another one.
 */
#ifndef RDMUX_API_LOOP_EXIT_H
#define RDMUX_API_LOOP_EXIT_H

#include <rdmux/rdmux.h>

#include <stdbool.h>

/* Registers the handler, once in a process, after those of the libraries that turns use. */
enum rdmux_status rdmux_exit_register(void);
/* Begins a turn of a library's thread. False: the process is ending; the thread does nothing any
 * more. */
bool rdmux_exit_begin_turn(void);
void rdmux_exit_end_turn(void);

#endif
