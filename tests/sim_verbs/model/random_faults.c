/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Random programs over the RDMA providers, with a fault in the middle of each. */
#include "runs.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LIVENESS_MS = 1000,
    POLLED_MAX = 64, /* entries */
    /* Adapters of like=hca give up after 8 times 4.096 us * 2^16, as their peers may take half of
     * that for an answer (local_ca_ack_delay). The ping that they answer is up to two heartbeats
     * late, and the control channel may still report more for a tenth of a second. */
    GIVE_UP_MS = 2148 + LIVENESS_MS / 2 + 100,
    PATIENCE_MS = 6000, /* in the world's time, until every endpoint concerned has ended */
    STEPS_BEHIND = 60,
    ENOUGH_FOR_ALL = 500, /* runs, to meet each fault */
};

enum fault {
    POST_SEND,
    POST_RECV,
    POLL_CQ,
    REMOVAL,
    PORT,
    RENUMBER,
    CUT,
    FATAL,
    CLOSE,
    OVERRUN,
    RNR,
    ACCESS,
    OPERATION,
    REQUEST,
    LOCAL,
    FAULTS,
};
_Static_assert((int)FAULTS == (int)FAULTS_MAX, "they are counted in the run's counts");

enum { WORDS_MAX = 2, STATUSES_MAX = 4 };

/* The kinds of faults: the name; the statuses with which endpoints that a fault hits end, beside
 * PEER_GONE, which the peer may report first; and words of which one is in the error text at the
 * side that saw the fault. For a request that the peer's device refused, iWARP reports an access
 * error, or only that the connection is lost. */
static const struct kind {
    const char *name;
    uint32_t statuses[STATUSES_MAX];
    const char *words[WORDS_MAX];
    bool spares_iwarp;
} kinds[FAULTS] = {
    [POST_SEND] = { .name = "post_send fails",
                    .statuses = { RDMUX_IO },
                    .words = { "did not take requests" } },
    [POST_RECV] = { .name = "post_recv fails",
                    .statuses = { RDMUX_IO },
                    .words = { "receive", "cannot be taken" } },
    [POLL_CQ] = { .name = "poll_cq fails",
                  .statuses = { RDMUX_IO },
                  .words = { "completion queue of the device failed" } },
    [REMOVAL] = { .name = "the device is removed",
                  .statuses = { RDMUX_IO },
                  .words = { "was taken away" } },
    [PORT] = { .name = "the port is down", .statuses = { 0 }, .words = { "the port is down" } },
    [RENUMBER] = { .name = "addresses change",
                   .statuses = { 0 },
                   .words = { "is gone from the adapter's GID table", "LID has changed" },
                   .spares_iwarp = true },
    [CUT] = { .name = "packets vanish",
              .statuses = { 0 },
              .words = { "does not answer", "has not answered" } },
    [FATAL] = { .name = "queue pairs fail",
                .statuses = { RDMUX_IO },
                .words = { "into error", "ended the connection" } },
    [CLOSE] = { .name = "the peer closes", .statuses = { 0 }, .words = { "closed its endpoint" } },
    [OVERRUN] = { .name = "completion queues overrun",
                  .statuses = { RDMUX_IO },
                  .words = { "completion queue of the device failed" } },
    [RNR] = { .name = "what meets no receive is given up",
              .statuses = { 0 },
              .words = { "had no receive for too long" },
              .spares_iwarp = true },
    [ACCESS] = { .name = "the peer's device denies an access",
                 .statuses = { RDMUX_DENIED },
                 .words = { "denied an access" } },
    [OPERATION] = { .name = "the peer's device cannot carry a request out",
                    .statuses = { RDMUX_IO, RDMUX_LENGTH, RDMUX_PROTOCOL, RDMUX_DENIED },
                    .words = { "could not carry a request out", "refused a request of the peer" } },
    [REQUEST] = { .name = "the peer's device calls a request invalid",
                  .statuses = { RDMUX_IO, RDMUX_LENGTH, RDMUX_PROTOCOL, RDMUX_DENIED },
                  .words = { "refused a request as invalid", "refused a request of the peer" } },
    [LOCAL] = { .name = "the device may not use local memory",
                .statuses = { RDMUX_IO },
                .words = { "may not use a local buffer" } },
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
    const bool is_iwarp = strcmp(scene->shape.link, "iwarp") == 0;
    while (is_iwarp && kinds[fault].spares_iwarp) {
        fault = (enum fault)below(chance, FAULTS);
    }
    struct side *side = &scene->sides[below(chance, SIDES)];
    const uint64_t nth = 1 + below(chance, 8);
    char text[64];
    scene->is_broken = true;
    trace(scene, "fault: %s (%c)", kinds[fault].name, 'A' + (char)side->index);
    switch (fault) {
    case POST_SEND:
        (void)sim_fail_call(scene->world, "post_send", nth, ENOMEM);
        break;
    case POST_RECV:
        (void)sim_fail_call(scene->world, "post_recv", nth, ENOMEM);
        break;
    case POLL_CQ:
        (void)sim_fail_call(scene->world, "poll_cq", nth, EIO);
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
        } else {
            sim_lid_set(side->device, (uint16_t)(1000 + nth));
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
    case OVERRUN:
        sim_device_kill_cqs(side->device);
        break;
    case RNR:
        sim_device_rnr_tries(side->device, 1);
        break;
    case ACCESS:
        sim_device_refuse(side->device, nth, IBV_WC_REM_ACCESS_ERR);
        break;
    case OPERATION:
        sim_device_refuse(side->device, nth, IBV_WC_REM_OP_ERR);
        break;
    case REQUEST:
        sim_device_refuse(side->device, nth, IBV_WC_REM_INV_REQ_ERR);
        break;
    case LOCAL:
        sim_device_fail_request(side->device, nth, IBV_WC_LOC_PROT_ERR);
        break;
    default:
        close_one(scene, chance);
    }
    return fault;
}

static bool has_status(const struct kind *kind, uint32_t status)
{
    for (int i = 0; i < STATUSES_MAX; i++) {
        if (status == kind->statuses[i] && status != RDMUX_OK) {
            return true;
        }
    }
    return status == RDMUX_PEER_GONE;
}

static bool is_named(const struct kind *kind, const char *text)
{
    for (int i = 0; i < WORDS_MAX; i++) {
        if (kind->words[i] != NULL && strstr(text, kind->words[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static void check_end(struct scene *scene, enum fault fault, struct end *end)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    fault_check_end(end);
    if (rdmux_ep_info(end->ep, &info) != RDMUX_OK || !has_status(&kinds[fault], end->end_status)) {
        mismatch(scene, "%c%u has ended with %s: %s", 'A' + (char)end->side->index, end->pair,
                 rdmux_status_name((enum rdmux_status)end->end_status), info.text);
    }
    scene->counts.ended++;
    scene->counts.named[fault] += is_named(&kinds[fault], info.text);
}

/* Tells whether both ends of every pair have ended, or neither. */
static bool pairs_agree(const struct scene *scene)
{
    for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
        if (scene->sides[0].ends[pair].ended != scene->sides[1].ends[pair].ended) {
            return false;
        }
    }
    return true;
}

static bool all_have_ended(const struct scene *scene)
{
    for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
        if (!scene->sides[0].ends[pair].ended || !scene->sides[1].ends[pair].ended) {
            return false;
        }
    }
    return true;
}

/* 8.1, 8.2: endpoints end in time, even while the control channel lives, and whatever requests are
 * in flight. */
static void check_liveness(struct scene *scene, uint64_t since)
{
    const bool is_iwarp = strcmp(scene->shape.link, "iwarp") == 0;
    const uint64_t limit_ms = is_iwarp ? LIVENESS_MS : GIVE_UP_MS;
    uint64_t took_ms = (sim_now(scene->world) - since) / 1000000;
    if (!all_have_ended(scene) && took_ms > limit_ms) {
        mismatch(scene, "nothing has come through for %llu ms, and not all endpoints have ended",
                 (unsigned long long)took_ms);
    }
}

/* Advances the world by at least so many milliseconds, for the devices' timers, heartbeats and the
 * control channel. */
static void wait_for_ends(struct scene *scene, uint32_t least_ms, bool is_cut)
{
    const uint64_t since = sim_now(scene->world);
    for (uint32_t ms = 0; ms < PATIENCE_MS; ms++) {
        for (int i = 0; i < 4; i++) {
            progress(scene);
            (void)poll_side(&scene->sides[0], POLLED_MAX);
            (void)poll_side(&scene->sides[1], POLLED_MAX);
        }
        (void)sim_advance(scene->world, 1000000);
        if (is_cut) {
            check_liveness(scene, since);
        }
        if (ms >= least_ms && (is_cut ? all_have_ended(scene) : pairs_agree(scene))) {
            return;
        }
    }
    mismatch(scene, "one end of a pair has ended, and the other has not");
}

/* A removed device does not affect regions that other devices may use: they are registered and
 * revoked as before. */
static void check_regions(struct scene *scene)
{
    for (uint32_t i = 0; i < SIDES; i++) {
        struct rdmux_mr *mr = NULL;
        struct rdmux_token token;
        use(&scene->sides[i]);
        if (rdmux_mr_alloc(scene->sides[i].fabric, 1,
                           RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE, &mr) != RDMUX_OK ||
            rdmux_mr_export(mr, &token) != RDMUX_OK || rdmux_mr_revoke(mr) != RDMUX_OK ||
            rdmux_mr_revoke(scene->sides[i].region) != RDMUX_OK) {
            mismatch(scene, "a region, after a device has gone: %s", rdmux_last_error());
        }
        rdmux_mr_deregister(mr);
    }
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
    const enum fault fault = break_something(scene, &chance);
    scene->counts.faults[fault]++;
    for (uint32_t i = 0; i < STEPS_BEHIND; i++) {
        step_take(scene, &chance);
    }
    wait_for_ends(scene, 2 * LIVENESS_MS, fault == CUT);
    step_finish_pairs(scene, &chance);
    wait_for_ends(scene, 0, false); /* a fault at the nth call may hit only now */
    if (fault == REMOVAL) {
        check_regions(scene);
    }
    for (uint32_t i = 0; i < SIDES; i++) {
        for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
            struct end *end = &scene->sides[i].ends[pair];
            if (end->ended && !end->is_closed) {
                check_end(scene, fault, end);
            }
        }
    }
    scene_close(scene);
}

/* Faults that no endpoint has ever reported would prove nothing. */
static bool has_met_all(const struct counts *counts, const char *link)
{
    for (int fault = 0; fault < FAULTS; fault++) {
        bool is_spared = kinds[fault].spares_iwarp && strcmp(link, "iwarp") == 0;
        if (counts->named[fault] == 0 && !is_spared) {
            return false;
        }
    }
    return true;
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
            printf("# %s: %llu times, named by %llu endpoints\n", kinds[fault].name,
                   (unsigned long long)result.counts.faults[fault],
                   (unsigned long long)result.counts.named[fault]);
        }
        printf("# %llu endpoints have ended\n", (unsigned long long)result.counts.ended);
        if (result.has_failed) {
            runs_explain(run, what, &result);
            continue;
        }
        if (seeds >= ENOUGH_FOR_ALL) {
            tap_case(has_met_all(&result.counts, what.link), "%s: endpoints have named each fault",
                     what.link);
        }
        struct result one = runs_in_child(run, &what, 4);
        struct result two = runs_in_child(run, &what, 4);
        tap_case(one.hash == two.hash, "%s: the same faults give the same trace", what.link);
    }
    return tap_plan();
}
