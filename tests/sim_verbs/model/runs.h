/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Runs in processes of their own, so that a run that leaks or crashes does not affect the next. A
 * failed run is repeated with ever fewer of its steps until none can be left out. */
#ifndef MODEL_RUNS_H
#define MODEL_RUNS_H

#include "model.h"

enum { STEPS_MAX = 8192 };

struct run {
    const char *link;
    const char *plugin;
    uint64_t seed;
    uint32_t steps;
    const bool *left_out; /* by step; NULL: none */
    bool is_verbose;
};

/* The result of a run, or of several. */
struct result {
    bool has_failed;
    uint64_t seed; /* of the last run */
    uint64_t step; /* the step that failed */
    uint64_t hash; /* of all runs */
    uint64_t runs;
    struct counts counts;
    char text[4096];
    char shape[1600];
};

/* One run in this process: opens, takes the steps, closes. On failure it jumps to scene->failed. */
typedef void run_body(struct scene *scene, const struct run *run);

/* Runs `count` seeds from run->seed on in one child process. */
struct result runs_in_child(run_body *body, const struct run *run, uint64_t count);

/* Runs `count` runs, or as many as make so many requests; the other number is 0. Of several
 * failures, the result is the first in the order of seeds. */
struct result runs_until(run_body *body, struct run run, uint64_t count, uint64_t requests,
                         uint32_t jobs);

/* Prints the failure: seed, the shortest sequence of steps that fails, its trace. */
void runs_explain(run_body *body, struct run run, const struct result *failed);

/* TAP. */
void tap_case(bool passed, const char *format, ...) __attribute__((format(printf, 2, 3)));
int tap_plan(void);

#endif
