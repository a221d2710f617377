/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Turns by time: of those that wait, the one that has used the least time is next. So an origin with dear work
 * does not use up the time of one with cheap work, however many pieces either has. Pure; the caller locks.
 */
#ifndef RDMUX_API_TURNS_H
#define RDMUX_API_TURNS_H

#include "api/core/fabric.h"

/* Those that wait. */
struct rdmux_turns {
    struct rdmux_list waiting; /* rdmux_turn, oldest first */
    uint64_t floor_ns;         /* what the one that was next last had used */
};

/* One of them. Zeroed, then rdmux_turn_init(). */
struct rdmux_turn {
    struct rdmux_list link; /* turns->waiting */
    uint64_t used_ns;
};

void rdmux_turns_init(struct rdmux_turns *turns);
void rdmux_turn_init(struct rdmux_turn *turn);
/* Enters the queue; does nothing if it waits already. An address that is new, or returns, has no time saved up. */
void rdmux_turns_enter(struct rdmux_turns *turns, struct rdmux_turn *turn);
/* Waits no more. */
void rdmux_turns_leave(struct rdmux_turn *turn);
/* Whose turn it is; it stays. Of two that have used as much, the one that waits longer. NULL: nobody waits. */
struct rdmux_turn *rdmux_turns_next(struct rdmux_turns *turns);
/* It has used so much more. Behind others that have used as much. */
void rdmux_turns_charge(struct rdmux_turns *turns, struct rdmux_turn *turn, uint64_t ns);

#endif
