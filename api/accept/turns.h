/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Scheduling by used time: of the waiting sources, the one that has used the least time is next. So
 * a source with expensive work does not use up the time of one with cheap work, whatever the number
 * of their jobs. Pure; the caller locks.
 */
#ifndef RDMUX_API_ACCEPT_TURNS_H
#define RDMUX_API_ACCEPT_TURNS_H

#include "api/core/fabric.h"

/* The waiting sources. */
struct rdmux_turns {
    struct rdmux_list waiting; /* rdmux_turn, oldest first */
    uint64_t floor_ns;         /* used_ns of the source that was next last */
};

/* A source. Zeroed, then rdmux_turn_init(). */
struct rdmux_turn {
    struct rdmux_list link; /* turns->waiting */
    uint64_t used_ns;
};

void rdmux_turns_init(struct rdmux_turns *turns);
void rdmux_turn_init(struct rdmux_turn *turn);
/* Adds a source to the queue, unless it is queued already. A new or returning source has no time
 * saved up. */
void rdmux_turns_enter(struct rdmux_turns *turns, struct rdmux_turn *turn);
/* Removes a source from the queue. */
void rdmux_turns_leave(struct rdmux_turn *turn);
/* Returns the source that is next, which stays queued. Of two with equal time, the longer-waiting
 * one. NULL: none waits. */
struct rdmux_turn *rdmux_turns_next(struct rdmux_turns *turns);
/* Adds ns to the time of a source. The source moves behind others with equal time. */
void rdmux_turns_charge(struct rdmux_turns *turns, struct rdmux_turn *turn, uint64_t ns);

#endif
