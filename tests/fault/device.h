/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A simulated adapter for lives over ib, roce and iwarp. The plug-in is linked into the program, so
 * that its calls can be made to fail; dlopen() of a file named FAULT_PLUGIN finds it there. Without
 * the headers of rdma-core there is no adapter (no_device.c).
 */
#ifndef RDMUX_TESTS_FAULT_DEVICE_H
#define RDMUX_TESTS_FAULT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#define FAULT_PLUGIN "rdmux-verbs.so"

bool device_is_possible(void);
/* Starts an adapter with these options (tests/sim_verbs) in this process. false: the text has the
 * reason. */
bool device_start(const char *options, const char **text);
/* Sets the link of the port up or down. */
void device_port(bool up);
/* Breaks the completion queues, as an overrun would. */
void device_break(void);
/* Returns the number of the adapter's live objects: contexts, queues, regions, ids. */
size_t device_objects(void);
/* Tells whether a failure of this call leaves an object that no call can destroy. */
bool device_keeps_objects(const char *victim);
void device_end(void);

#endif
