/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A process in a simulated world. Its clock, timers and network interfaces are the world's: process.c
 * replaces clock_gettime(), timerfd_settime(), getifaddrs() and freeifaddrs() in all libraries of
 * the process. One thread.
 */
#ifndef RDMUX_TESTS_SIM_VERBS_MODEL_PROCESS_H
#define RDMUX_TESTS_SIM_VERBS_MODEL_PROCESS_H

#include "../sim_verbs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Until process_leave() the time is the world's; before and after it is 0. */
void process_enter(struct sim_world *world);
void process_leave(void);

/* Calls `step` at each clock_gettime(), for calls that wait by the machine's time. `step` is not
 * called inside itself. NULL: none. */
void process_wait_with(void (*step)(void *user), void *user);

/* Makes the host the one whose devices and interfaces the next calls see. The interfaces are those
 * of its `count` devices, and the loopback if `has_loopback`. */
void process_use(struct sim_host *host, struct sim_device *const *devices, size_t count,
                 bool has_loopback);

/* For rdmux_fabric_attr: clock_ns with a world, random with a chance. */
uint64_t process_clock_ns(void *world);
int process_random(void *chance, void *out, size_t size);

#endif
