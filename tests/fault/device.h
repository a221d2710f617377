/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A simulated adapter for lives over ib, roce and iwarp. The plug-in is linked into the program, so that its
 * calls can be made to fail; dlopen() of a file called FAULT_PLUGIN finds it there. Where the headers of
 * rdma-core are missing there is none (no_device.c).
 */
#ifndef RDMUX_TESTS_FAULT_DEVICE_H
#define RDMUX_TESTS_FAULT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#define FAULT_PLUGIN "rdmux-verbs.so"

bool device_is_possible(void);
/* An adapter with these options (tests/sim_verbs) for this process. false: the text says why. */
bool device_start(const char *options, const char **text);
/* Takes the port's link away, or gives it back. */
void device_port(bool up);
/* The completion queues die, as if they had overrun. */
void device_break(void);
/* How many of the adapter's objects are there: contexts, queues, regions, ids. */
size_t device_objects(void);
/* Does a failure of this call leave an object there, which nobody can take away? */
bool device_keeps_objects(const char *victim);
void device_end(void);

#endif
