/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Runs small programs of a few threads in every order that C11's memory model allows, and finds
 * data races, broken checks and threads that wait for ever. The code is rdmux's own, compiled with
 * -fsanitize=thread: the compiler then calls a function at each access, and model.c is these
 * functions in place of the sanitizer's library.
 */
#ifndef RDMUX_TESTS_ORDERS_MODEL_H
#define RDMUX_TESTS_ORDERS_MODEL_H

#include <stdbool.h>

enum { MODEL_THREADS = 3 };

struct model_program {
    const char *name;      /* a sentence that is true if no order breaks it */
    void (*prepare)(void); /* sets the memory, before the threads */
    void (*threads[MODEL_THREADS])(void);
    void (*check)(void); /* after the threads; NULL: nothing to check */
};

/* Explores the program and prints a case of TAP. Returns whether no order broke it. */
bool model_explore(const struct model_program *program);

/* The rest is for the threads of a program. */

/* Fails the program, with the order that led here. */
void model_check(bool holds, const char *text);
/* Between two turns of a loop that waits: the next load waits for a value that the last one did not
 * read. */
void model_spin(void);
/* membarrier(2): all threads pass a full barrier. */
void model_membarrier(void);
/* Names a variable in the order that is printed. */
void model_name(const volatile void *at, const char *name);

#endif
