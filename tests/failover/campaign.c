/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Faults under load on simulated adapters: two hosts in one process, virtual
 * time, a seed. Each run connects the two by several paths, runs the load of
 * load.h in both directions, breaks the path in use, often a second time during
 * the move, mends the broken parts, and so on. At the end each message must
 * have arrived once. Without failover (--plain) the same faults end both
 * endpoints, by rules 7 and 8 of docs/SEMANTICS.md.
 */
#include "campaign_scene.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* -------------------------------------------------------------------------------------- a fault */

/* Delays the packets sent now until the move is over. */
static void hold_packets(struct scene *scene)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "latency=%uns", (unsigned)LATE_NS);
    (void)sim_world_set(scene->world, text);
    for (uint32_t i = 0; i < 12; i++) {
        scene_turn(scene, true);
    }
    (void)sim_world_set(scene->world, "latency=0");
}

/* Breaks the path at one of its ends. Returns the fault, which may be another
 * one: some faults need an adapter, others a socket. */
static enum fault strike(struct scene *scene, enum fault fault, struct side *side)
{
    const struct rdmux_ep_info info = scene_info(side);
    const int link = scene_link(info.provider);
    const uint64_t nth = 1 + below(&scene->chance, 8);
    if (link < 0 && fault != CHANNEL) {
        fault = SOCKET;
    } else if (link >= 0 && fault == SOCKET) {
        fault = PORT_DOWN;
    }
    scene_trace(scene, fault_names[fault], side);
    switch (fault) {
    case REMOVAL:
        sim_device_remove(side->devices[link]);
        break;
    case QP_FATAL:
        (void)sim_world_set(scene->world, "at=1us:qp_fatal");
        break;
    case SILENCE:
        sim_cut(scene->sides[0].host, scene->sides[1].host, true);
        break;
    case POST_SEND:
        (void)sim_fail_call(scene->world, "post_send", nth, ENOMEM);
        break;
    case POLL_CQ:
        (void)sim_fail_call(scene->world, "poll_cq", nth, EIO);
        break;
    case OVERRUN:
        sim_device_kill_cqs(side->devices[link]);
        break;
    case SOCKET:
    case CHANNEL:
        if (!scene_cut_socket(scene, fault == CHANNEL)) {
            (void)scene_fail(scene, "there is no such socket: %s", fault_names[fault]);
        }
        break;
    case LATE:
        hold_packets(scene);
        sim_device_kill_cqs(side->devices[link]); /* noticed at once, and only here */
        break;
    default:
        sim_port_set(side->devices[link], false);
        break;
    }
    return fault;
}

/* Mends all faults that can be mended. */
static void mend(struct scene *scene)
{
    sim_cut(scene->sides[0].host, scene->sides[1].host, false);
    for (uint32_t i = 0; i < SIDES; i++) {
        for (int j = 0; j < LINKS; j++) {
            sim_port_set(scene->sides[i].devices[j], true);
        }
    }
    (void)sim_fail_call(scene->world, "post_send", 0, 0);
    (void)sim_fail_call(scene->world, "poll_cq", 0, 0);
}

static void note_sample(struct result *result, const char *from, const char *to, uint64_t noticed,
                        uint64_t moved)
{
    char name[sizeof(result->pairs[0].name)];
    (void)snprintf(name, sizeof(name), "%s -> %s", from, to);
    for (int i = 0; i < PAIRS; i++) {
        struct pair *pair = &result->pairs[i];
        if (pair->count == 0) {
            memcpy(pair->name, name, sizeof(name));
        }
        if (strcmp(pair->name, name) == 0) {
            if (pair->count < SAMPLES) {
                pair->noticed_ns[pair->count] = noticed;
                pair->moved_ns[pair->count++] = moved;
            }
            return;
        }
    }
}

static bool has_ended(const struct scene *scene)
{
    return load_has_ended(scene->sides[0].load) || load_has_ended(scene->sides[1].load);
}

static bool both_have_ended(const struct scene *scene)
{
    return load_has_ended(scene->sides[0].load) && load_has_ended(scene->sides[1].load);
}

static uint64_t received(const struct scene *scene)
{
    return load_counts(scene->sides[0].load)->messages +
           load_counts(scene->sides[1].load)->messages;
}

/* Fails the run with the states of both sides. */
static bool stands_still(struct scene *scene, const char *what)
{
    char a[RUN_TEXT / 3];
    char b[RUN_TEXT / 3];
    return scene_fail(scene, "%s: A: %s; B: %s", what,
                      load_state(scene->sides[0].load, a, sizeof(a)),
                      load_state(scene->sides[1].load, b, sizeof(b)));
}

static const char *ends_text(struct scene *scene)
{
    static char text[2 * RDMUX_TEXT_MAX + 64];
    struct rdmux_ep_info a = scene_info(&scene->sides[0]);
    struct rdmux_ep_info b = scene_info(&scene->sides[1]);
    (void)snprintf(text, sizeof(text), "A %s \"%s\", B %s \"%s\"",
                   rdmux_status_name((enum rdmux_status)a.status), a.text,
                   rdmux_status_name((enum rdmux_status)b.status), b.text);
    return text;
}

/* Runs the load until so many more messages have arrived. */
static bool carry(struct scene *scene, uint64_t more)
{
    const uint64_t until = received(scene) + more;
    for (uint32_t i = 0; received(scene) < until; i++) {
        if (i == TURNS_MAX) {
            return stands_still(scene, "no more messages come");
        }
        if (has_ended(scene)) {
            return scene_fail(scene, "the endpoints have ended: %s", ends_text(scene));
        }
        scene_turn(scene, true);
    }
    return true;
}

/* The time is virtual, so no machine is too slow. A second fault has its own time. */
static bool was_in_time(struct scene *scene, enum fault fault, uint64_t noticed_ns,
                        uint64_t moved_ns, bool has_second)
{
    enum { NS_PER_MS = 1000000, DEAD_MAX = 2 };
    const uint64_t standbys_ms = fault == SILENCE ? DEAD_MAX * STANDBY_MS : 0;
    if (noticed_ns > (uint64_t)(LIVENESS_MS + LATER_MS) * NS_PER_MS) {
        return scene_fail(scene, "%s: noticed after %.3f ms only", fault_names[fault],
                          (double)noticed_ns / NS_PER_MS);
    }
    if (!has_second && moved_ns > (MOVE_MS + standbys_ms) * NS_PER_MS) {
        return scene_fail(scene, "%s: moved %.3f ms after it was noticed", fault_names[fault],
                          (double)moved_ns / NS_PER_MS);
    }
    return true;
}

/* Runs the load until both have moved to another path. */
static bool await_move(struct scene *scene, const struct rdmux_ep_info *before, enum fault fault,
                       bool strikes_again)
{
    const bool has_second = strikes_again;
    const uint64_t since = sim_now(scene->world);
    uint64_t noticed = 0;
    uint32_t delay = below(&scene->chance, 60);
    for (uint32_t i = 0;; i++) {
        struct rdmux_ep_info a = scene_info(&scene->sides[0]);
        struct rdmux_ep_info b = scene_info(&scene->sides[1]);
        const bool is_moving = a.state == RDMUX_EP_MOVING || b.state == RDMUX_EP_MOVING;
        if (noticed == 0 && (is_moving || a.epoch != before->epoch || b.epoch != before->epoch)) {
            noticed = sim_now(scene->world);
        }
        if (strikes_again && noticed != 0 && is_moving && delay-- == 0) {
            struct side *side = &scene->sides[below(&scene->chance, SIDES)];
            const enum fault second = percent(&scene->chance, 50) ? CHANNEL : PORT_DOWN;
            const int link = (int)below(&scene->chance, LINKS);
            strikes_again = false;
            scene->result->faults[second]++;
            scene->result->second++;
            scene_trace(scene, fault_names[second], side);
            if (second == CHANNEL) {
                (void)scene_cut_socket(scene, true);
            } else {
                sim_port_set(side->devices[link], false);
            }
        }
        if (a.state == RDMUX_EP_CONNECTED && b.state == RDMUX_EP_CONNECTED &&
            a.epoch > before->epoch && a.epoch == b.epoch) {
            const uint64_t moved = sim_now(scene->world) - noticed;
            note_sample(scene->result, before->provider, a.provider, noticed - since, moved);
            return was_in_time(scene, fault, noticed - since, moved, has_second);
        }
        if (has_ended(scene)) {
            return scene_fail(scene, "the endpoints have ended: %s", ends_text(scene));
        }
        if (i == TURNS_MAX) {
            return scene_fail(scene,
                              "the endpoints have not moved; states %u and %u, epochs %u and %u",
                              a.state, b.state, a.epoch, b.epoch);
        }
        scene_turn(scene, true);
    }
}

/* Breaks the path, waits for the move, and continues the load. */
static bool survive(struct scene *scene, enum fault fault, bool has_second)
{
    struct side *side = &scene->sides[below(&scene->chance, SIDES)];
    const struct rdmux_ep_info before = scene_info(side);
    const uint64_t struck_before = scene->result->second;
    fault = strike(scene, fault, side);
    scene->result->faults[fault]++;
    if (fault == CHANNEL) {
        scene->result->survived++;
        return carry(scene, 50); /* the path is as it was */
    }
    if (!await_move(scene, &before, fault, has_second)) {
        return false;
    }
    scene->result->survived += 1 + scene->result->second - struck_before;
    return carry(scene, 20);
}

static uint64_t in_doubt(const struct scene *scene)
{
    return load_counts(scene->sides[0].load)->doubtful +
           load_counts(scene->sides[1].load)->doubtful;
}

/* Runs the load until failback to the first path, which must leave no request
 * in doubt. */
static bool go_back(struct scene *scene)
{
    const uint32_t epoch = scene_info(&scene->sides[0]).epoch;
    if (!carry(scene, 200)) { /* requests in doubt by the fault have completed by then */
        return false;
    }
    const uint64_t doubtful = in_doubt(scene);
    if (scene_info(&scene->sides[0]).state != RDMUX_EP_CONNECTED ||
        scene_info(&scene->sides[1]).epoch != epoch) {
        return scene_fail(scene, "it went back before the hold-down time was over");
    }
    bool strikes = scene->scenario.has_second;
    uint32_t delay = below(&scene->chance, 60);
    for (uint32_t i = 0;; i++) {
        struct rdmux_ep_info a = scene_info(&scene->sides[0]);
        struct rdmux_ep_info b = scene_info(&scene->sides[1]);
        if (a.state == RDMUX_EP_CONNECTED && b.state == RDMUX_EP_CONNECTED &&
            percent(&scene->chance, 10)) {
            (void)sim_advance(scene->world, LEAP_NS); /* the hold-down time is long */
        }
        if (strikes && (a.state == RDMUX_EP_MOVING || b.state == RDMUX_EP_MOVING) && delay-- == 0) {
            struct side *side = &scene->sides[below(&scene->chance, SIDES)];
            strikes = false;
            scene->result->faults[PORT_DOWN]++;
            scene->result->second++;
            scene->result->survived++;
            scene_trace(scene, fault_names[PORT_DOWN], side);
            sim_port_set(side->devices[scene_link(scene->scenario.path)], false);
        }
        if (a.state == RDMUX_EP_CONNECTED && b.state == RDMUX_EP_CONNECTED && a.epoch == b.epoch &&
            a.epoch > epoch) {
            if (strcmp(a.provider, scene->scenario.path) == 0) {
                break; /* a fault that was due later did not happen */
            }
            mend(scene); /* and then it is better again */
        }
        if (has_ended(scene)) {
            return scene_fail(scene, "the endpoints have ended: %s", ends_text(scene));
        }
        if (i == TURNS_MAX) {
            return scene_fail(scene, "the endpoints have not gone back; they are on %s and %s",
                              a.provider, b.provider);
        }
        scene_turn(scene, true);
    }
    scene->result->returned++;
    if (!carry(scene, 20)) {
        return false;
    }
    if (!scene->scenario.has_second && in_doubt(scene) != doubtful) {
        return scene_fail(scene, "%llu requests are in doubt by going back",
                          (unsigned long long)(in_doubt(scene) - doubtful));
    }
    return true;
}

static bool finish(struct scene *scene)
{
    (void)sim_advance(scene->world, LATE_NS); /* delayed packets arrive now */
    for (uint32_t i = 0; i < SIDES; i++) {
        load_finish(scene->sides[i].load);
    }
    for (uint32_t i = 0; !load_is_done(scene->sides[0].load) || !load_is_done(scene->sides[1].load);
         i++) {
        if (has_ended(scene)) {
            return scene_fail(scene, "the endpoints have ended: %s", ends_text(scene));
        }
        if (i == TURNS_MAX) {
            return stands_still(scene, "the two are not done");
        }
        scene_turn(scene, true);
    }
    (void)sim_advance(scene->world, LATE_NS);
    scene_use(&scene->sides[0]);
    if (rdmux_ep_shutdown(scene->sides[0].ep, 0) != RDMUX_IN_PROGRESS) {
        return scene_fail(scene, "rdmux_ep_shutdown(): %s", rdmux_last_error());
    }
    for (uint32_t i = 0; !both_have_ended(scene); i++) {
        if (i == TURNS_MAX) {
            return scene_fail(scene, "the end does not come");
        }
        scene_turn(scene, false);
    }
    for (uint32_t i = 0; i < SIDES; i++) {
        if (load_end_status(scene->sides[i].load) != RDMUX_OK) {
            return scene_fail(
                scene, "side %u has ended with %s", i,
                rdmux_status_name((enum rdmux_status)load_end_status(scene->sides[i].load)));
        }
    }
    return true;
}

static bool go_with_failover(struct scene *scene)
{
    static const enum fault others[] = { PORT_DOWN, QP_FATAL, SILENCE, LATE, SOCKET, OVERRUN };
    const uint32_t rounds = 2;
    for (uint32_t i = 0; i < rounds; i++) {
        const bool is_first = i == 0;
        if (!carry(scene, 20 + below(&scene->chance, MESSAGES_BETWEEN)) ||
            !survive(scene, is_first ? scene->scenario.fault : PICK(&scene->chance, others),
                     is_first && scene->scenario.has_second && !scene->scenario.goes_back)) {
            return false;
        }
        mend(scene);
        if (is_first && scene->scenario.goes_back && !go_back(scene)) {
            return false;
        }
    }
    return finish(scene);
}

/* Checks rules 7 and 8: both end, in time, and each request completes once. */
static bool go_without(struct scene *scene)
{
    struct side *side = &scene->sides[below(&scene->chance, SIDES)];
    if (!carry(scene, 20 + below(&scene->chance, MESSAGES_BETWEEN))) {
        return false;
    }
    const enum fault fault = strike(scene, scene->scenario.fault, side);
    const uint64_t since = sim_now(scene->world);
    scene->result->faults[fault]++;
    for (uint32_t i = 0; !both_have_ended(scene); i++) {
        if (i == TURNS_MAX) {
            return scene_fail(scene, "not both endpoints have ended: %s", ends_text(scene));
        }
        scene_turn(scene, true);
    }
    const uint64_t after_ns = sim_now(scene->world) - since;
    if (after_ns > scene->result->ended_ns) {
        scene->result->ended_ns = after_ns;
    }
    if (after_ns > (uint64_t)(HEARTBEAT_MS + TRIES_MS + LATER_MS) * 1000000) {
        (void)scene_fail(scene, "%s: the endpoints have ended after %.3f ms only",
                         fault_names[fault], (double)after_ns / 1e6);
    }
    (void)sim_advance(scene->world, LATE_NS);
    for (uint32_t i = 0; i < 100; i++) {
        scene_turn(scene, true);
    }
    for (uint32_t i = 0; i < SIDES; i++) {
        uint32_t status = load_end_status(scene->sides[i].load);
        if (status != RDMUX_PEER_GONE && status != RDMUX_IO) {
            (void)scene_fail(scene, "an endpoint has ended with %s: %s",
                             rdmux_status_name((enum rdmux_status)status), ends_text(scene));
        }
        load_check_end(scene->sides[i].load);
    }
    scene->result->ended += SIDES;
    return scene->text[0] == '\0';
}

/* ----------------------------------------------------------------------------------------- runs */

static void add_words(void *sum, const void *more, size_t size)
{
    uint64_t *into = sum;
    const uint64_t *from = more;
    for (size_t i = 0; i < size / sizeof(*into); i++) {
        into[i] += from[i];
    }
}

static void take_counts(struct scene *scene)
{
    for (uint32_t i = 0; i < SIDES; i++) {
        struct load *load = scene->sides[i].load;
        if (load == NULL) {
            continue;
        }
        load_check_marks(load);
        add_words(&scene->result->errors, load_errors(load), sizeof(struct load_errors));
        add_words(&scene->result->counts, load_counts(load), sizeof(struct load_counts));
        if (!load_is_clean(load)) {
            (void)scene_fail(scene, "%s", load_text(load));
        }
    }
}

static void run(const char *plugin, const struct scenario *scenario, uint64_t seed, bool is_verbose,
                struct result *result)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    char options[128];
    if (scene == NULL) {
        abort();
    }
    scene->plugin = plugin;
    scene->scenario = *scenario;
    scene->seed = seed;
    scene->chance.state = seed * 0x2545f4914f6cdd1dU + scenario->fault;
    scene->is_verbose = is_verbose;
    scene->result = result;
    (void)snprintf(options, sizeof(options), "seed=%llu%s", (unsigned long long)seed,
                   percent(&scene->chance, 40) ? ",freedoms=all" : "");
    scene->world = sim_world_create(options);
    process_enter(scene->world);
    bool is_good = scene->world != NULL && scene_open_side(scene, 0) && scene_open_side(scene, 1) &&
                   scene_open_pair(scene);
    if (is_good) {
        (void)(scenario->has_failover ? go_with_failover(scene) : go_without(scene));
    }
    take_counts(scene);
    scene_close(scene);
    result->runs++;
    if (scene->text[0] != '\0' && result->failed++ == 0) {
        result->failed_seed = seed;
        memcpy(result->text, scene->text, sizeof(result->text));
    }
    free(scene);
}

static int compare(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *)one;
    const uint64_t b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

static double percentile_ms(const uint64_t *sorted, uint32_t count, uint32_t which)
{
    const size_t index = (size_t)(count - 1) * which / 100;
    return (double)sorted[index] / 1e6;
}

static void add_result(struct result *sum, const struct result *more)
{
    sum->runs += more->runs;
    add_words(sum->faults, more->faults, sizeof(sum->faults));
    sum->second += more->second;
    sum->returned += more->returned;
    sum->survived += more->survived;
    sum->ended += more->ended;
    sum->ended_ns = more->ended_ns > sum->ended_ns ? more->ended_ns : sum->ended_ns;
    add_words(&sum->errors, &more->errors, sizeof(sum->errors));
    add_words(&sum->counts, &more->counts, sizeof(sum->counts));
    for (int i = 0; i < PAIRS; i++) {
        const struct pair *pair = &more->pairs[i];
        const char *arrow = strstr(pair->name, " -> ");
        for (uint32_t j = 0; j < pair->count; j++) {
            char from[RDMUX_NAME_MAX];
            (void)snprintf(from, sizeof(from), "%.*s", (int)(arrow - pair->name), pair->name);
            note_sample(sum, from, arrow + 4, pair->noticed_ns[j], pair->moved_ns[j]);
        }
    }
    if (more->failed != 0 && sum->failed == 0) {
        sum->failed_seed = more->failed_seed;
        memcpy(sum->text, more->text, sizeof(sum->text));
    }
    sum->failed += more->failed;
}

/* A run that takes more time of a processor hangs: SIGPROF ends it. It never sleeps, and takes longer
 * by the clock the busier the machine is. */
static void limit_run(void)
{
    const struct itimerval limit = { .it_value = { .tv_sec = RUN_SECONDS } };
    (void)setitimer(ITIMER_PROF, &limit, NULL);
}

/* Runs the seeds of a scenario in a process of their own, so that a crash ends
 * no other scenario. */
static pid_t start(const char *plugin, const struct scenario *scenario, uint64_t seed,
                   uint64_t count, struct result *result)
{
    memset(result, 0, sizeof(*result));
    (void)fflush(stdout);
    pid_t child = fork();
    if (child != 0) {
        return child;
    }
    for (uint64_t i = 0; i < count; i++) {
        limit_run();
        result->failed_seed = result->failed == 0 ? seed + i : result->failed_seed;
        run(plugin, scenario, seed + i, false, result);
    }
    exit(0); /* not _exit(): the sanitizer looks for leaks then */
}

static void await_child(pid_t child, struct result *result)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0 && result->failed == 0) {
        result->failed++;
        (void)snprintf(result->text, sizeof(result->text), "the process %s %d",
                       WIFSIGNALED(status) ? "died of signal" : "exited with",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

/* ------------------------------------------------------------------------------------ scenarios */

enum { SCENARIOS_MAX = 96 };

static const char *paths_of(const char *path)
{
    if (strcmp(path, "roce") == 0) {
        return "roce,iwarp,tcp";
    }
    if (strcmp(path, "ib") == 0) {
        return "ib,roce,tcp";
    }
    return strcmp(path, "iwarp") == 0 ? "iwarp,tcp" : "tcp";
}

static size_t make_scenarios(struct scenario *out, bool has_failover)
{
    static const char *const paths[] = { "roce", "ib", "iwarp", "tcp" };
    static const enum fault passing[] = { PORT_DOWN, QP_FATAL, SILENCE, OVERRUN };
    size_t count = 0;
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        const bool is_tcp = strcmp(paths[i], "tcp") == 0;
        for (int fault = 0; fault < FAULTS; fault++) {
            if (is_tcp != (fault == SOCKET) && fault != CHANNEL) {
                continue;
            }
            for (int second = 0; second <= (has_failover && fault != CHANNEL); second++) {
                out[count++] = (struct scenario){ paths[i],          paths_of(paths[i]),
                                                  (enum fault)fault, second != 0,
                                                  has_failover,      false };
            }
        }
        for (int second = 0; second < 2 && has_failover && !is_tcp; second++) {
            for (size_t j = 0; j < sizeof(passing) / sizeof(*passing); j++) {
                out[count++] = (struct scenario){ paths[i],   paths_of(paths[i]),
                                                  passing[j], second != 0,
                                                  true,       true };
            }
        }
    }
    return count;
}

static void describe(char *out, size_t size, const struct scenario *scenario)
{
    const char *then = scenario->goes_back && scenario->has_second
                           ? ", and passes, and on the way back the port is down"
                       : scenario->goes_back  ? ", and passes, and the path is gone back to"
                       : scenario->has_second ? ", and another fault during the move"
                                              : "";
    (void)snprintf(out, size, "%s%s: %s%s", scenario->has_failover ? "" : "without failover, ",
                   scenario->path, fault_names[scenario->fault], then);
}

static uint64_t faults_of(const struct result *result)
{
    uint64_t faults = 0;
    for (int i = 0; i < FAULTS; i++) {
        faults += result->faults[i];
    }
    return faults;
}

static void print_result(struct result *sum, bool has_failover)
{
    const uint64_t faults = faults_of(sum);
    for (int i = 0; i < FAULTS; i++) {
        printf("# %s: %llu times\n", fault_names[i], (unsigned long long)sum->faults[i]);
    }
    printf("# faults injected %llu (%llu of them during a move), %s %llu; "
           "messages %llu; lost "
           "%llu, doubled "
           "%llu, out of order %llu, memory mismatches %llu, completions wrong "
           "%llu\n",
           (unsigned long long)faults, (unsigned long long)sum->second,
           has_failover ? "survived" : "endpoints ended",
           (unsigned long long)(has_failover ? sum->survived : sum->ended),
           (unsigned long long)sum->counts.messages, (unsigned long long)sum->errors.lost,
           (unsigned long long)sum->errors.doubled, (unsigned long long)sum->errors.disordered,
           (unsigned long long)sum->errors.mismatched, (unsigned long long)sum->errors.broken);
    if (has_failover) {
        printf("# gone back to the better path %llu times\n", (unsigned long long)sum->returned);
    } else {
        printf("# both endpoints had ended after %.3f ms at most\n", (double)sum->ended_ns / 1e6);
    }
    printf("# requests %llu: writes %llu, reads %llu, atomics %llu, unsignaled "
           "%llu, lists %llu, "
           "inline %llu, NO_REPLAY %llu, in doubt %llu\n",
           (unsigned long long)sum->counts.requests, (unsigned long long)sum->counts.writes,
           (unsigned long long)sum->counts.reads, (unsigned long long)sum->counts.atomics,
           (unsigned long long)sum->counts.unsignaled, (unsigned long long)sum->counts.listed,
           (unsigned long long)sum->counts.inlined, (unsigned long long)sum->counts.single,
           (unsigned long long)sum->counts.doubtful);
    for (int i = 0; i < PAIRS && sum->pairs[i].count > 0; i++) {
        struct pair *pair = &sum->pairs[i];
        qsort(pair->noticed_ns, pair->count, sizeof(uint64_t), compare);
        qsort(pair->moved_ns, pair->count, sizeof(uint64_t), compare);
        printf(
            "# %s: %u moves; noticed after p50 %.3f ms, p99 %.3f ms; moved after another p50 %.3f "
            "ms, p99 %.3f ms (the world's time)\n",
            pair->name, pair->count, percentile_ms(pair->noticed_ns, pair->count, 50),
            percentile_ms(pair->noticed_ns, pair->count, 99),
            percentile_ms(pair->moved_ns, pair->count, 50),
            percentile_ms(pair->moved_ns, pair->count, 99));
    }
}

static int usage(void)
{
    (void)fputs("usage: campaign --plugin PLUGIN [--runs N] [--seed N] [--jobs N] "
                "[--plain] [--case TEXT]\n"
                "                [--replay]\n"
                "  --runs N     runs of each scenario (default 1)\n"
                "  --plain      without failover\n"
                "  --case TEXT  only scenarios whose name has this in it\n"
                "  --replay     one run of the first such scenario, printed step by step\n",
                stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "plugin", required_argument, NULL, 'p' }, { "runs", required_argument, NULL, 'n' },
        { "seed", required_argument, NULL, 's' },   { "jobs", required_argument, NULL, 'j' },
        { "case", required_argument, NULL, 'c' },   { "plain", no_argument, NULL, 'x' },
        { "replay", no_argument, NULL, 'r' },       { NULL, 0, NULL, 0 }
    };
    const char *plugin = NULL;
    const char *wanted = "";
    uint64_t runs = 1;
    uint64_t seed = 1;
    uint32_t jobs = 1;
    bool has_failover = true;
    bool is_replay = false;
    for (int option = 0; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'p':
            plugin = optarg;
            break;
        case 'n':
            runs = strtoull(optarg, NULL, 10);
            break;
        case 's':
            seed = strtoull(optarg, NULL, 10);
            break;
        case 'j':
            jobs = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'c':
            wanted = optarg;
            break;
        case 'x':
            has_failover = false;
            break;
        case 'r':
            is_replay = true;
            break;
        default:
            return usage();
        }
    }
    if (plugin == NULL || runs == 0 || jobs == 0 || optind != argc) {
        return usage();
    }
    struct scenario scenarios[SCENARIOS_MAX];
    char names[SCENARIOS_MAX][160];
    pid_t children[SCENARIOS_MAX] = { 0 };
    const size_t count = make_scenarios(scenarios, has_failover);
    struct result *results = mmap(NULL, (count + 1) * sizeof(*results), PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (results == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    struct result *sum = &results[count];
    size_t cases = 0;
    size_t failures = 0;
    size_t begun = 0;
    for (size_t i = 0; i < count; i++) {
        describe(names[i], sizeof(names[i]), &scenarios[i]);
        if (strstr(names[i], wanted) != NULL && is_replay) {
            (void)setvbuf(stdout, NULL, _IOLBF, 0);
            run(plugin, &scenarios[i], seed, true, sum);
            printf("# %s: %s\n", names[i], sum->text);
            return sum->failed != 0;
        }
    }
    for (size_t i = 0; i < count; i++) {
        for (; begun < count && begun < i + jobs; begun++) {
            if (strstr(names[begun], wanted) != NULL) {
                children[begun] = start(plugin, &scenarios[begun], seed + begun * runs, runs,
                                        &results[begun]);
            }
        }
        if (children[i] == 0) {
            continue;
        }
        struct result *result = &results[i];
        await_child(children[i], result);
        printf("%sok %zu - %s\n", result->failed == 0 ? "" : "not ", ++cases, names[i]);
        if (result->failed != 0) {
            failures++;
            printf("# %llu of %llu runs have failed; seed %llu: %s\n",
                   (unsigned long long)result->failed, (unsigned long long)runs,
                   (unsigned long long)result->failed_seed, result->text);
            printf("# again, step by step: campaign --plugin PLUGIN%s --case '%s' "
                   "--seed %llu "
                   "--replay\n",
                   has_failover ? "" : " --plain", names[i],
                   (unsigned long long)result->failed_seed);
        }
        printf("#   %llu faults, %llu messages\n", (unsigned long long)faults_of(result),
               (unsigned long long)result->counts.messages);
        add_result(sum, result);
    }
    printf("# seeds %llu to %llu\n", (unsigned long long)seed,
           (unsigned long long)(seed + count * runs - 1));
    print_result(sum, has_failover);
    printf("1..%zu\n", cases);
    return failures != 0;
}
