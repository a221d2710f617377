/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Random requests over the ib, roce and iwarp providers on simulated adapters, checked against a
 * model. */
#include "runs.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char
    usage[] = "usage: random_model --plugin FILE [options]\n"
              "\n"
              "Random requests over the RDMA providers on simulated adapters, checked against a "
              "model. Prints TAP.\n"
              "\n"
              "  --plugin FILE     the plug-in with the providers\n"
              "  --link NAME       ib, roce or iwarp (default: all three, one after the other)\n"
              "  --operations N    requests over each (default: 1000000)\n"
              "  --seeds N         runs over each instead\n"
              "  --seed N          of the first run (default: 1)\n"
              "  --steps N         of each run (default: 3000)\n"
              "  --jobs N          processes at a time (default: 1)\n"
              "  --brief           do not look for the shortest run that fails\n"
              "  --replay          show the run of --seed, step by step\n";

static void run(struct scene *scene, const struct run *what)
{
    if (!scene_open(scene)) {
        mismatch(scene, "the pairs were not connected: %s", scene_why());
    }
    for (; scene->step < what->steps; scene->step++) {
        if (what->left_out == NULL || !what->left_out[scene->step]) {
            struct chance chance = { (what->seed * 0x9e3779b97f4a7c15U + scene->step) ^
                                     (uint64_t)what->link[0] << 56 };
            (void)draw(&chance);
            step_take(scene, &chance);
        }
    }
    struct chance chance = { what->seed };
    step_finish(scene, &chance);
    scene_close(scene);
}

struct options {
    struct run run;
    uint64_t operations;
    uint64_t seeds;
    uint32_t jobs;
    bool is_brief;
    bool is_replay;
};

/* Fails unless the runs have met every case that the model is for. */
static bool has_met_all(const struct counts *counts)
{
    return counts->again > 0 && counts->writable > 0 && counts->refused > 0 && counts->fenced > 0 &&
           counts->placed > 0 && counts->forwarded > 0 && counts->atomics > 0 &&
           counts->split > 0 && counts->late > 0 && counts->reads_loose > 0 &&
           counts->receives > 0 && counts->calls > 0 && counts->without_calls > 0;
}

static void print_counts(const struct result *result)
{
    const struct counts *counts = &result->counts;
    printf(
        "# %llu runs, trace %016llx: %llu requests, %llu messages, %llu fences, %llu placed, %llu "
        "atomics, %llu forwarded, %llu split\n",
        (unsigned long long)result->runs, (unsigned long long)result->hash,
        (unsigned long long)counts->requests, (unsigned long long)counts->receives,
        (unsigned long long)counts->fenced, (unsigned long long)counts->placed,
        (unsigned long long)counts->atomics, (unsigned long long)counts->forwarded,
        (unsigned long long)counts->split);
    printf("# met: %llu AGAIN, %llu WRITABLE, %llu refused, %llu reads that saw later writes, %llu "
           "late "
           "placements, %llu late reads, %llu times no receive, %llu losses, %llu chains by "
           "ibv_wr_*\n",
           (unsigned long long)counts->again, (unsigned long long)counts->writable,
           (unsigned long long)counts->refused, (unsigned long long)counts->reads_loose,
           (unsigned long long)counts->late, (unsigned long long)counts->reads_late,
           (unsigned long long)counts->rnr, (unsigned long long)counts->retries,
           (unsigned long long)counts->calls);
}

static void test_link(const struct options *options, const char *link)
{
    struct run what = options->run;
    what.link = link;
    struct result result = runs_until(run, what, options->seeds, options->operations, options->jobs);
    print_counts(&result);
    tap_case(!result.has_failed, "%s: %llu random requests agree with the model", link,
             (unsigned long long)result.counts.requests);
    if (result.has_failed && options->is_brief) {
        printf("# seed %llu: %s\n", (unsigned long long)result.seed, result.text);
        return;
    }
    if (result.has_failed) {
        runs_explain(run, what, &result);
        return;
    }
    if (options->operations != 0) {
        tap_case(has_met_all(&result.counts), "%s: the runs have met all that the model is for",
                 link);
    }
    struct result one = runs_in_child(run, &what, 8);
    struct result two = runs_in_child(run, &what, 8);
    tap_case(one.hash == two.hash && !one.has_failed && !two.has_failed,
             "%s: the same seeds give the same trace in another process", link);
    what.seed += 8;
    struct result three = runs_in_child(run, &what, 8);
    tap_case(one.hash != three.hash, "%s: other seeds give another trace", link);
}

static struct options read_options(int argc, char **argv)
{
    enum { PLUGIN, LINK, OPERATIONS, SEEDS, SEED, STEPS, JOBS, BRIEF, REPLAY };
    static const struct option known[] = {
        { "plugin", required_argument, NULL, PLUGIN },
        { "link", required_argument, NULL, LINK },
        { "operations", required_argument, NULL, OPERATIONS },
        { "seeds", required_argument, NULL, SEEDS },
        { "seed", required_argument, NULL, SEED },
        { "steps", required_argument, NULL, STEPS },
        { "jobs", required_argument, NULL, JOBS },
        { "brief", no_argument, NULL, BRIEF },
        { "replay", no_argument, NULL, REPLAY },
        { NULL, 0, NULL, 0 },
    };
    struct options options = {
        .run = { .seed = 1, .steps = 3000 },
        .operations = 1000000,
        .jobs = 1,
    };
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) >= 0;) {
        uint64_t number = optarg != NULL ? strtoull(optarg, NULL, 10) : 0;
        switch (option) {
        case PLUGIN:
            options.run.plugin = optarg;
            break;
        case LINK:
            options.run.link = optarg;
            break;
        case OPERATIONS:
            options.operations = number;
            break;
        case SEEDS:
            options.seeds = number;
            options.operations = 0;
            break;
        case SEED:
            options.run.seed = number;
            break;
        case STEPS:
            options.run.steps = (uint32_t)number;
            break;
        case JOBS:
            options.jobs = (uint32_t)number;
            break;
        case BRIEF:
            options.is_brief = true;
            break;
        case REPLAY:
            options.is_replay = true;
            break;
        default:
            options.run.steps = 0;
        }
    }
    if (options.run.plugin == NULL || options.run.steps == 0 || options.run.steps > STEPS_MAX ||
        options.jobs == 0 || optind != argc) {
        (void)fputs(usage, stderr);
        exit(2);
    }
    return options;
}

int main(int argc, char **argv)
{
    static const char *const links[] = { "ib", "roce", "iwarp" };
    struct options options = read_options(argc, argv);
    if (options.is_replay) {
        options.run.is_verbose = true;
        options.run.link = options.run.link != NULL ? options.run.link : "roce";
        struct result result = runs_in_child(run, &options.run, 1);
        print_counts(&result);
        tap_case(!result.has_failed, "%s: seed %llu %s", options.run.link,
                 (unsigned long long)options.run.seed, result.text);
        return tap_plan();
    }
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
        if (options.run.link == NULL || strcmp(options.run.link, links[i]) == 0) {
            test_link(&options, links[i]);
        }
    }
    return tap_plan();
}
