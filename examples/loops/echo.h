/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What the event loops of this folder drive: an echo server, or many clients of one. It knows no
 * loop. A loop watches the descriptors of echo_fds(), all level-triggered and for reading, and calls
 * echo_turn() when one of them is readable, and once before it first sleeps.
 */
#ifndef ECHO_H
#define ECHO_H

enum echo_next {
    ECHO_SLEEP, /* armed: sleep until a descriptor is readable, however long that takes */
    ECHO_AGAIN, /* there may be more: let the other users of the loop run, then take another turn */
    ECHO_END,   /* done: leave the loop */
};

enum { ECHO_FDS = 2 };

/* Opens a server or clients as the arguments say. Exits with the usage text if they are wrong. */
void echo_open(int argc, char **argv);

/* The descriptor of the completion queue, which stands for all endpoints, and that of the listener,
 * -1 for clients. They stay the same until echo_close(). */
void echo_fds(int fds[ECHO_FDS]);

/* Handles at most a few dozen completions, so that one busy peer does not hold up the loop. */
enum echo_next echo_turn(void);

/* For the loop's handler of SIGTERM: ends the connections in order. Take a turn after it. */
void echo_finish(void);

void echo_close(void);

/* Prints what failed, and exits with 1. */
_Noreturn void echo_fail(const char *what, const char *why);

#endif
