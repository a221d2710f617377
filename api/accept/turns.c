/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Scheduling by used time. */
#include "api/accept/turns.h"

void rdmux_turns_init(struct rdmux_turns *turns)
{
    rdmux_list_init(&turns->waiting);
    turns->floor_ns = 0;
}

void rdmux_turn_init(struct rdmux_turn *turn)
{
    rdmux_list_init(&turn->link);
}

void rdmux_turns_enter(struct rdmux_turns *turns, struct rdmux_turn *turn)
{
    if (!rdmux_list_empty(&turn->link)) {
        return;
    }
    if (turn->used_ns < turns->floor_ns) {
        turn->used_ns = turns->floor_ns;
    }
    rdmux_list_append(&turns->waiting, &turn->link);
}

void rdmux_turns_leave(struct rdmux_turn *turn)
{
    rdmux_list_remove(&turn->link);
}

/* A scan of all: there are no more sources than addresses with a handshake, and each step costs a
 * hundred times more. */
struct rdmux_turn *rdmux_turns_next(struct rdmux_turns *turns)
{
    struct rdmux_turn *next = NULL;
    for (struct rdmux_list *at = turns->waiting.next; at != &turns->waiting; at = at->next) {
        struct rdmux_turn *turn = RDMUX_CONTAINER(at, struct rdmux_turn, link);
        if (next == NULL || turn->used_ns < next->used_ns) {
            next = turn;
        }
    }
    if (next != NULL) {
        turns->floor_ns = next->used_ns;
    }
    return next;
}

void rdmux_turns_charge(struct rdmux_turns *turns, struct rdmux_turn *turn, uint64_t ns)
{
    turn->used_ns += ns;
    if (!rdmux_list_empty(&turn->link)) {
        rdmux_list_remove(&turn->link);
        rdmux_list_append(&turns->waiting, &turn->link);
    }
}
