/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Lives in a process with other activity: signals to all threads, and forks. No call may fail.
 * Prints TAP.
 */
#ifndef RDMUX_TESTS_FAULT_DISTURB_H
#define RDMUX_TESTS_FAULT_DISTURB_H

#include <stdbool.h>
#include <stddef.h>

/* Sends SIGUSR1 and SIGALRM, with handlers and without SA_RESTART, to each thread in turn, all the
 * time. Each case is that many lives, five at most. */
bool disturb_by_signals(size_t count);
/* Forks children that call into rdmux, execute another program, or open a fabric of their own. */
bool disturb_by_forks(size_t count);
/* Runs in the executed program, which is this one. Returns 0 if it inherited only the standard
 * descriptors. */
int disturb_look_for_descriptors(void);

#endif
