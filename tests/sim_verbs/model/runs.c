/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "runs.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SECONDS_MAX = 240, /* of one child; a longer run has hung unnoticed */
    SEEDS_A_CHILD = 16,
    TRIES_MAX = 1500, /* to leave steps out */
    JOBS_MAX = 16,
};

/* ---------------------------------------------------------------------------------------- child */

static struct result *shared; /* of the child that runs */

static size_t memory_size(void)
{
    size_t arena = (size_t)SLOT_SIZE * (SLOTS + RECEIVES_MAX) * PAIRS_MAX +
                   (size_t)SLOT_SIZE * RECEIVES_MAX;
    return (size_t)2 * SIDES * arena;
}

static void describe(const struct scene *scene)
{
    const struct shape *shape = &scene->shape;
    (void)snprintf(shared->shape, sizeof(shared->shape),
                   "world \"%.500s\"; A \"%.400s\"%s; B \"%.400s\"%s; %u pairs, depths %u and %u, "
                   "lists of %u, "
                   "inline %u, max_send %llu",
                   shape->world, shape->device[0], shape->has_srq[0] ? " with an SRQ" : "",
                   shape->device[1], shape->has_srq[1] ? " with an SRQ" : "", shape->pairs,
                   shape->send_depth, shape->recv_depth, shape->max_sge, shape->max_inline,
                   (unsigned long long)shape->max_send);
}

_Noreturn static void failed(struct scene *scene, const char *text)
{
    shared->has_failed = true;
    shared->step = scene->step;
    (void)snprintf(shared->text, sizeof(shared->text), "%s", text);
    describe(scene);
    (void)fflush(stdout);
    _exit(1);
}

static void failed_in(struct scene *scene, const char *text)
{
    failed(scene, text);
}

static void add_counts(struct counts *sum, const struct counts *more)
{
    uint64_t *into = (uint64_t *)(void *)sum;
    const uint64_t *from = (const uint64_t *)(const void *)more;
    for (size_t i = 0; i < sizeof(*sum) / sizeof(*into); i++) {
        into[i] += from[i];
    }
}

static void run_one(run_body *body, const struct run *run, uint8_t *memory)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    if (scene == NULL) {
        abort();
    }
    scene->seed = run->seed;
    scene->plugin = run->plugin;
    scene->is_verbose = run->is_verbose;
    scene->memory = memory;
    scene->failed = failed_in;
    shape_draw(&scene->shape, run->link, run->seed);
    shared->seed = run->seed;
    if (run->is_verbose) {
        describe(scene);
        printf("# %s\n", shared->shape);
    }
    body(scene, run);
    shared->hash = (shared->hash ^ scene->hash) * 0x9e3779b97f4a7c15U;
    shared->hash ^= shared->hash >> 31;
    shared->runs++;
    add_counts(&shared->counts, &scene->counts);
    free(scene);
}

static void *map_memory(size_t size, int flags)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return memory;
}

static pid_t start_child(run_body *body, struct run run, uint64_t count, struct result *result)
{
    (void)fflush(stdout);
    pid_t child = fork();
    if (child != 0) {
        return child;
    }
    shared = result;
    (void)alarm(SECONDS_MAX);
    uint8_t *memory = map_memory(memory_size(), MAP_PRIVATE | MAP_NORESERVE);
    for (uint64_t i = 0; i < count; i++, run.seed++) {
        run_one(body, &run, memory);
    }
    (void)fflush(stdout);
    exit(0); /* not _exit(): exit() lets the sanitizer look for leaks */
}

static void end_child(pid_t child, struct result *result)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!result->has_failed && status != 0) {
        result->has_failed = true;
        result->step = STEPS_MAX;
        (void)snprintf(result->text, sizeof(result->text), "the process %s %d",
                       WIFSIGNALED(status) ? "died of signal" : "exited with",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

struct result runs_in_child(run_body *body, const struct run *run, uint64_t count)
{
    struct result *result = map_memory(sizeof(*result), MAP_SHARED);
    end_child(start_child(body, *run, count, result), result);
    struct result copy = *result;
    (void)munmap(result, sizeof(*result));
    return copy;
}

/* Waits for the children in the order of their seeds, so that the sum does not depend on which
 * child was faster. */
struct result runs_until(run_body *body, struct run run, uint64_t count, uint64_t requests,
                         uint32_t jobs)
{
    struct result sum = { .has_failed = false };
    struct result *results = map_memory(JOBS_MAX * sizeof(*results), MAP_SHARED);
    pid_t children[JOBS_MAX];
    uint64_t begun = 0;
    jobs = jobs < JOBS_MAX ? jobs : JOBS_MAX;
    while (!sum.has_failed && (requests != 0 ? sum.counts.requests < requests : begun < count)) {
        for (uint32_t i = 0; i < jobs; i++) {
            uint64_t seeds = requests != 0 || count - begun > SEEDS_A_CHILD ? SEEDS_A_CHILD
                                                                            : count - begun;
            memset(&results[i], 0, sizeof(results[i]));
            children[i] = start_child(body, run, seeds, &results[i]);
            run.seed += seeds;
            begun += seeds;
        }
        for (uint32_t i = 0; i < jobs; i++) {
            end_child(children[i], &results[i]);
            if (sum.has_failed) {
                continue;
            }
            sum.runs += results[i].runs;
            sum.hash = (sum.hash ^ results[i].hash) * 0x9e3779b97f4a7c15U;
            add_counts(&sum.counts, &results[i].counts);
            if (results[i].has_failed) {
                struct counts counts = sum.counts;
                uint64_t runs = sum.runs;
                sum = results[i];
                sum.counts = counts;
                sum.runs = runs;
            }
        }
    }
    (void)munmap(results, JOBS_MAX * sizeof(*results));
    return sum;
}

/* ------------------------------------------------------------------------------------ shrinking */

static bool still_fails(run_body *body, struct run *run, const bool *left_out, uint32_t *tries)
{
    ++*tries;
    run->left_out = left_out;
    return runs_in_child(body, run, 1).has_failed;
}

/* Leaves out ever smaller groups of steps, as long as the run fails without them. */
static uint32_t shrink(run_body *body, struct run *run, bool *left_out)
{
    uint32_t tries = 0;
    for (uint32_t part = run->steps / 2; part >= 1 && tries < TRIES_MAX; part /= 2) {
        for (uint32_t at = 0; at < run->steps && tries < TRIES_MAX; at += part) {
            bool tried[STEPS_MAX];
            bool is_new = false;
            memcpy(tried, left_out, sizeof(tried));
            for (uint32_t i = at; i < at + part && i < run->steps; i++) {
                is_new = is_new || !tried[i];
                tried[i] = true;
            }
            if (is_new && still_fails(body, run, tried, &tries)) {
                memcpy(left_out, tried, sizeof(tried));
            }
        }
    }
    run->left_out = left_out;
    return tries;
}

void runs_explain(run_body *body, struct run run, const struct result *failed_run)
{
    static bool left_out[STEPS_MAX];
    memset(left_out, 0, sizeof(left_out));
    run.seed = failed_run->seed;
    run.is_verbose = false;
    printf("# seed %llu over %s, step %llu: %s\n", (unsigned long long)run.seed, run.link,
           (unsigned long long)failed_run->step, failed_run->text);
    printf("# %s\n", failed_run->shape);
    struct result whole = runs_in_child(body, &run, 1);
    if (!whole.has_failed) {
        printf("# alone it does not fail: it depends on the runs before it in its process\n");
        return;
    }
    if (whole.step < run.steps) {
        run.steps = (uint32_t)whole.step + 1;
    }
    uint32_t tries = shrink(body, &run, left_out);
    uint32_t steps = 0;
    for (uint32_t i = 0; i < run.steps; i++) {
        steps += !left_out[i];
    }
    run.is_verbose = true;
    printf("# it fails with %u of its %u steps (%u tries):\n", steps, run.steps, tries);
    struct result last = runs_in_child(body, &run, 1);
    printf("# %s\n", last.text);
}

/* ------------------------------------------------------------------------------------------ TAP */

static int cases;
static int failures;

void tap_case(bool passed, const char *format, ...)
{
    va_list arguments;
    printf("%sok %d - ", passed ? "" : "not ", ++cases);
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    (void)fflush(stdout);
    failures += passed ? 0 : 1;
}

int tap_plan(void)
{
    printf("1..%d\n", cases);
    return failures != 0;
}
