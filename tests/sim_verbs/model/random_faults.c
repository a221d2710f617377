/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Random programs over the RDMA providers, and a fault in the middle of each. */
#include "runs.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LIVENESS_MS = 1000,
    PATIENCE_MS = 6000, /* of the world's time, for every endpoint concerned to end */
    STEPS_BEHIND = 60,
};

enum fault { POST_SEND, POST_RECV, POLL_CQ, REMOVAL, PORT, RENUMBER, CUT, FATAL, CLOSE, FAULTS };

static const char *const names[FAULTS] = {
    "post_send fails",       "post_recv fails",  "poll_cq fails",
    "the device is removed", "the port is down", "GIDs move",
    "packets vanish",        "queue pairs fail", "the peer closes",
};

static void close_one(struct scene *scene, struct chance *chance)
{
    struct side *side = &scene->sides[below(chance, SIDES)];
    struct end *end = &side->ends[below(chance, scene->shape.pairs)];
    use(side);
    end->ended = end->is_closed = true;
    (void)rdmux_ep_close(end->ep);
    end->ep = NULL;
}

static enum fault break_something(struct scene *scene, struct chance *chance)
{
    enum fault fault = (enum fault)below(chance, FAULTS);
    /* TCP waits for minutes, and the control channel, which is not cut, says that the peer lives. */
    while (strcmp(scene->shape.link, "iwarp") == 0 && (fault == CUT || fault == PORT)) {
        fault = (enum fault)below(chance, FAULTS);
    }
    struct side *side = &scene->sides[below(chance, SIDES)];
    char text[64];
    scene->is_broken = true;
    trace(scene, "fault: %s (%c)", names[fault], 'A' + (char)side->index);
    switch (fault) {
    case POST_SEND:
        (void)sim_fail_call(scene->world, "post_send", 1 + below(chance, 8), ENOMEM);
        break;
    case POST_RECV:
        (void)sim_fail_call(scene->world, "post_recv", 1 + below(chance, 8), ENOMEM);
        break;
    case POLL_CQ:
        (void)sim_fail_call(scene->world, "poll_cq", 1 + below(chance, 8), EIO);
        break;
    case REMOVAL:
        sim_device_remove(side->device);
        break;
    case PORT:
        sim_port_set(side->device, false);
        if (percent(chance, 30)) {
            (void)sim_advance(scene->world, 1000000);
            sim_port_set(side->device, true);
        }
        break;
    case RENUMBER:
        if (strcmp(scene->shape.link, "roce") == 0) {
            sim_gids_renumber(side->device);
        }
        break;
    case CUT:
        sim_cut(scene->sides[0].host, scene->sides[1].host, true);
        break;
    case FATAL:
        (void)snprintf(text, sizeof(text), "at=%lluns:qp_fatal",
                       (unsigned long long)sim_now(scene->world) + 1000);
        (void)sim_world_set(scene->world, text);
        break;
    default:
        close_one(scene, chance);
    }
    return fault;
}

/* Both ends of a pair end, or none. */
static bool pairs_agree(const struct scene *scene)
{
    for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
        if (scene->sides[0].ends[pair].ended != scene->sides[1].ends[pair].ended) {
            return false;
        }
    }
    return true;
}

/* The world's milliseconds go by, for the devices' timers, heartbeats and the control channel. */
static void wait_for_ends(struct scene *scene)
{
    for (uint32_t ms = 0; ms < PATIENCE_MS; ms++) {
        for (int i = 0; i < 4; i++) {
            progress(scene);
            (void)go_on(scene);
        }
        (void)sim_advance(scene->world, 1000000);
        if (ms > 2 * LIVENESS_MS && pairs_agree(scene)) {
            return;
        }
    }
    mismatch(scene, "one end of a pair has ended, and the other has not heard of it");
}

static void run(struct scene *scene, const struct run *what)
{
    scene->shape.liveness_ms = LIVENESS_MS;
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
    scene->counts.faults[break_something(scene, &chance)]++;
    for (uint32_t i = 0; i < STEPS_BEHIND; i++) {
        step_take(scene, &chance);
    }
    wait_for_ends(scene);
    step_finish_pairs(scene, &chance);
    for (uint32_t i = 0; i < SIDES; i++) {
        for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
            struct end *end = &scene->sides[i].ends[pair];
            if (end->ended && !end->is_closed) {
                fault_check_end(end);
                scene->counts.ended++;
            }
        }
    }
    scene_close(scene);
}

int main(int argc, char **argv)
{
    static const char *const links[] = { "ib", "roce", "iwarp" };
    struct run what = { .seed = 1, .steps = 150, .plugin = argc > 1 ? argv[1] : NULL };
    uint64_t seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    uint32_t jobs = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 1;
    if (what.plugin == NULL || seeds == 0 || jobs == 0) {
        (void)fputs("usage: random_faults PLUGIN SEEDS [JOBS [LINK [SEED]]]\n", stderr);
        return 2;
    }
    what.seed = argc > 5 ? strtoull(argv[5], NULL, 10) : 1;
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
        if (argc > 4 && strcmp(argv[4], links[i]) != 0) {
            continue;
        }
        what.link = links[i];
        struct result result = runs_until(run, what, seeds, 0, jobs);
        tap_case(!result.has_failed, "%s: the rules of failure hold in %llu runs", what.link,
                 (unsigned long long)result.runs);
        for (int fault = 0; fault < FAULTS; fault++) {
            printf("# %s: %llu times\n", names[fault],
                   (unsigned long long)result.counts.faults[fault]);
        }
        printf("# %llu endpoints have ended\n", (unsigned long long)result.counts.ended);
        if (result.has_failed) {
            runs_explain(run, what, &result);
            continue;
        }
        struct result one = runs_in_child(run, &what, 4);
        struct result two = runs_in_child(run, &what, 4);
        tap_case(one.hash == two.hash, "%s: the same faults give the same trace", what.link);
    }
    return tap_plan();
}
