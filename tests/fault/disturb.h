/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Lives in a process in which something else goes on, and in which nothing may fail: signals to all threads, and
 * forks. Prints TAP.
 */
#ifndef RDMUX_TESTS_FAULT_DISTURB_H
#define RDMUX_TESTS_FAULT_DISTURB_H

#include <stdbool.h>

/* SIGUSR1 and SIGALRM, with handlers and without SA_RESTART, to each thread in turn, all the time. */
bool disturb_by_signals(void);
/* Children that call into rdmux, execute another program, or open a fabric of their own. */
bool disturb_by_forks(void);
/* What the other program is: this one. Returns 0 if no descriptor came along that is not standard. */
int disturb_look_for_descriptors(void);

#endif
