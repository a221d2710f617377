/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Makes each allocation and each call of the library fail, the first, the second and so on, one per
 * run, in whole lives of connections: set-up, negotiation, regions, every operation, the end. Both
 * sides are in this process. After each failure the same life must succeed, and nothing may be
 * left: no memory, mapping, descriptor, thread or object of an adapter.
 *
 * Prints TAP, a case for each life, mode and kind, with the number of points tried. --points N
 * limits a case to N points, evenly spread, and the first call of each function, once for all lives
 * that meet alike; without it all points run.
 */
#include "device.h"
#include "disturb.h"
#include "inject.h"
#include "life.h"
#include "papers.h"
#include "tests/counted.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    POINT_S = 60, /* after which a run counts as hung */
    WORKERS = 6,  /* points tried at a time: most of the time is spent waiting for an end */
    DESCRIPTORS_MAX = 256,
    BAD_MAX = 20, /* failures after which a case is given up */
    CALLS_MAX = 256,
    FIRSTS_MAX = 16384,
    EXIT_HANDLED = 0,
    EXIT_NOT_REACHED = 3,
};

static const char *const kind_names[INJECT_KINDS] = { "allocation", "call", "verb" };

/* A life in one mode, with failures of one kind. */
struct trial {
    const struct scenario *scenario;
    enum mode mode;
    enum inject_kind kind;
};

/* The nth call of the named function; NULL: of any function. */
struct point {
    const char *name;
    size_t nth;
};

/* Shared with the processes that try points. */
struct tally {
    _Atomic size_t points;
    _Atomic size_t bad;
    struct inject_record record;
    size_t chosen_count;
    struct point chosen[2 * INJECT_RECORD_MAX];
};

/* The functions that were made to fail, over all trials. */
struct reached {
    _Atomic(const char *) names[CALLS_MAX];
};

/* First calls of functions that trials have chosen. Two lives that meet alike make the same ones. */
struct first {
    struct trial trial;
    const char *name;
};

static struct first *firsts;
static size_t first_count;
static struct tally *tally;
static struct reached *reached;
static size_t points_tried;
static size_t points_known;

/* --------------------------------------------------------------------------------------- points */

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

static unsigned threads_now(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/task");
    if (folder == NULL) {
        return 0;
    }
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count;
}

/* Counts the threads. The kernel removes a thread from its list a moment after pthread_join()
 * returns. */
static unsigned living_threads(unsigned expected)
{
    enum { PATIENCE_MS = 2000 };
    uint64_t until_ms = now_ms() + PATIENCE_MS;
    unsigned count = threads_now();
    while (count != expected && now_ms() < until_ms) {
        (void)sched_yield();
        count = threads_now();
    }
    return count;
}

/* Resources that a life must not leave behind. */
struct belongings {
    long blocks;
    long mapped;
    unsigned descriptors;
    unsigned threads;
    size_t objects;
};

static struct belongings count_belongings(unsigned threads)
{
    threads = living_threads(threads);
    return (struct belongings){ inject_blocks(), inject_mapped(), open_descriptors(), threads,
                                device_objects() };
}

static void compare_belongings(const struct belongings *before)
{
    const struct belongings now = count_belongings(before->threads);
    if (now.blocks != before->blocks) {
        wrong("%ld blocks of memory are left", now.blocks - before->blocks);
    }
    if (now.mapped != before->mapped) {
        wrong("%ld bytes stay mapped", now.mapped - before->mapped);
    }
    if (now.descriptors != before->descriptors) {
        wrong("%u descriptors have become %u", before->descriptors, now.descriptors);
    }
    if (now.threads != before->threads) {
        wrong("%u threads have become %u", before->threads, now.threads);
    }
    if (now.objects != before->objects && !device_keeps_objects(inject_victim())) {
        wrong("%zu objects of the adapter have become %zu", before->objects, now.objects);
    }
}

/* Prepares the process for a trial. Returns the number of threads without a life. */
static unsigned begin(const struct trial *trial)
{
    const char *text = NULL;
    alarm(POINT_S);
    if (trial->scenario->device != NULL && !device_start(trial->scenario->device, &text)) {
        wrong("the simulated adapter: %s", text);
    }
    unsigned threads = threads_now();
    (void)live(trial->scenario, trial->mode,
               false); /* makes the objects that libraries keep forever */
    return threads;
}

static void note_reached(const char *name)
{
    for (size_t i = 0; i < CALLS_MAX; i++) {
        const char *none = NULL;
        if (atomic_compare_exchange_strong(&reached->names[i], &none, name) ||
            strcmp(none, name) == 0) {
            return;
        }
    }
}

/* Runs in a process of its own that has begun. */
static _Noreturn void run_point(const struct trial *trial, struct point point, unsigned threads)
{
    alarm(POINT_S);
    const struct belongings before = count_belongings(threads);

    inject_arm(trial->kind, point.name, point.nth);
    if (!live(trial->scenario, trial->mode, true) && inject_victim() == NULL) {
        inject_arm(trial->kind, point.name,
                   point.nth); /* the machine is too busy for short limits */
        (void)live(trial->scenario, trial->mode, false);
    }
    inject_disarm();

    const char *victim = inject_victim();
    compare_belongings(&before);
    if (victim != NULL) {
        note_reached(victim);
    }
    const struct belongings after = count_belongings(before.threads);
    inject_arm(trial->kind, NULL, 0); /* no call fails from now on, so the life must succeed */
    inject_disarm();
    (void)live(trial->scenario, trial->mode, false);
    compare_belongings(&after);
    device_end();
    end_counted(victim != NULL ? EXIT_HANDLED : EXIT_NOT_REACHED);
}

/* Records the called functions, in order. Runs in a process of its own. */
static _Noreturn void write_down(const struct trial *trial)
{
    (void)begin(trial);
    inject_write_down(trial->kind, &tally->record);
    (void)live(trial->scenario, trial->mode, false);
    inject_disarm();
    end_counted(EXIT_HANDLED);
}

static int wait_for_exit(pid_t pid)
{
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return EXIT_WRONG;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Tries it in a process that begins, or is a copy of this one, which has begun with that many
 * threads. Returns the exit status, or 128 + a signal. */
static int try_point(const struct trial *trial, struct point point, unsigned threads)
{
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        run_point(trial, point, threads != 0 ? threads : begin(trial));
    }
    return wait_for_exit(pid);
}

/* --------------------------------------------------------------------------------------- trials */

/* Returns whether the first calls are those of the same steps: the same threads set up the same path
 * in the same way. */
static bool meet_alike(const struct trial *one, const struct trial *other)
{
    const struct scenario *a = one->scenario;
    const struct scenario *b = other->scenario;
    const size_t length = strcspn(a->paths, ",");
    return (one->mode == MODE_MANUAL) == (other->mode == MODE_MANUAL) && one->kind == other->kind &&
           a->auth == b->auth && a->stages[0] == b->stages[0] && strcspn(b->paths, ",") == length &&
           strncmp(a->paths, b->paths, length) == 0;
}

/* Returns whether no trial of a life that meets alike has chosen the first call of the function, and
 * notes it as chosen. */
static bool is_new_first(const struct trial *trial, const char *name)
{
    for (size_t i = 0; i < first_count; i++) {
        if (strcmp(firsts[i].name, name) == 0 && meet_alike(&firsts[i].trial, trial)) {
            return false;
        }
    }
    if (first_count < FIRSTS_MAX) {
        firsts[first_count++] = (struct first){ *trial, name };
    }
    return true;
}

/* Chooses at most `most` of the count points, evenly spread, and the first call of each function
 * that no life that meets alike has made before; 0: all. The life recorded last may be longer than
 * count: its last calls are points, too. */
static void choose_points(const struct trial *trial, size_t count, size_t most)
{
    size_t chosen = 0;
    for (size_t i = 0; i < count; i++) {
        if (most == 0 || ((i + 1) * most) / count != (i * most) / count) {
            tally->chosen[chosen++] = (struct point){ NULL, i + 1 };
        }
    }
    const size_t written = atomic_load(&tally->record.count);
    for (size_t i = 0; i < written && i < INJECT_RECORD_MAX && most != 0; i++) {
        if (is_new_first(trial, tally->record.names[i])) {
            tally->chosen[chosen++] = (struct point){ tally->record.names[i], 1 };
        }
    }
    tally->chosen_count = chosen;
}

static void tell_point(const struct trial *trial, struct point point, int status)
{
    printf("# exit status %d; again: fault %s %s %s ", status, trial->scenario->name,
           mode_names[trial->mode], kind_names[trial->kind]);
    if (point.name == NULL) {
        printf("%zu\n", point.nth);
    } else {
        printf("%s\n", point.name);
    }
    (void)fflush(stdout);
}

/* Tries a point of a sample. On a busy machine both recorded lives may have polled many times more
 * than this one does, so a point beyond its end moves to half of its number. */
static int try_sampled(const struct trial *trial, struct point *point, unsigned threads)
{
    int status = try_point(trial, *point, threads);
    while (status == EXIT_NOT_REACHED && point->name == NULL && point->nth > 1) {
        point->nth /= 2;
        status = try_point(trial, *point, threads);
    }
    return status;
}

/* Tries every WORKERSth of the chosen points, in a process of its own. If asked to continue, it
 * tries all points, and later ones until one is beyond the end, as a life may be longer than the
 * recorded one. */
static _Noreturn void work(const struct trial *trial, size_t worker, size_t count, bool goes_on)
{
    unsigned threads = 0;
    if (trial->scenario->device == NULL) { /* a simulated adapter must not be copied */
        threads = begin(trial);
        alarm(0);
    }
    for (size_t i = worker; goes_on || i < tally->chosen_count; i += WORKERS) {
        bool is_beyond = i >= tally->chosen_count;
        struct point point = { NULL, count + 1 + i - tally->chosen_count };
        point = is_beyond ? point : tally->chosen[i];
        int status = goes_on ? try_point(trial, point, threads)
                             : try_sampled(trial, &point, threads);
        if (status == EXIT_NOT_REACHED && is_beyond) {
            break;
        }
        if (status == EXIT_NOT_REACHED) {
            continue;
        }
        atomic_fetch_add(&tally->points, 1);
        if (status != EXIT_HANDLED) {
            tell_point(trial, point, status);
            if (atomic_fetch_add(&tally->bad, 1) >= BAD_MAX) {
                break;
            }
        }
    }
    _exit(0);
}

/* Tells whether all workers ended normally. */
static bool work_all(const struct trial *trial, size_t count, bool goes_on)
{
    pid_t workers[WORKERS];
    bool ended = true;
    (void)fflush(stdout);
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = fork();
        if (workers[i] == 0) {
            work(trial, i, count, goes_on);
        }
    }
    for (size_t i = 0; i < WORKERS; i++) {
        ended = wait_for_exit(workers[i]) == 0 && ended;
    }
    return ended;
}

/* Records the calls of a life. Returns their number, 0 if the life failed. On a busy machine a
 * polling program makes many calls without effect, so the shortest of several lives counts. */
static size_t count_calls(const struct trial *trial, size_t lives)
{
    size_t least = INJECT_RECORD_MAX;
    for (size_t i = 0; i < lives; i++) {
        atomic_store(&tally->record.count, 0);
        (void)fflush(stdout);
        const pid_t pid = fork();
        if (pid == 0) {
            write_down(trial);
        }
        if (wait_for_exit(pid) != EXIT_HANDLED) {
            return 0;
        }
        size_t count = atomic_load(&tally->record.count);
        least = count < least ? count : least;
    }
    return least;
}

/* Tries all points of a trial. Returns false if one failed. */
static bool try_all(unsigned number, const struct trial *trial, size_t most)
{
    atomic_store(&tally->points, 0);
    atomic_store(&tally->bad, 0);
    size_t count = count_calls(trial, most == 0 ? 4 : 2);
    bool good = count > 0 && count <= INJECT_RECORD_MAX;
    if (good) {
        choose_points(trial, count, most);
        good = work_all(trial, count, most == 0);
    }
    size_t points = atomic_load(&tally->points);
    good = good && atomic_load(&tally->bad) == 0 && points > 0;
    count = count < points ? points : count;
    printf("%sok %u - %s, %s: each %s of a connection's life fails in turn, %zu of %zu points\n",
           good ? "" : "not ", number, trial->scenario->name, mode_names[trial->mode],
           kind_names[trial->kind], points, count);
    if (!good && atomic_load(&tally->bad) == 0) {
        printf("# %s\n", count == 0    ? "a life in which no call fails did not succeed"
                         : points == 0 ? "no point was reached"
                                       : "a process that tries points did not end");
    }
    (void)fflush(stdout);
    points_tried += points;
    points_known += count;
    return good;
}

/* ------------------------------------------------------------------------------------ all of it */

static bool was_reached(const char *name, size_t size)
{
    for (size_t i = 0; i < CALLS_MAX; i++) {
        const char *other = atomic_load(&reached->names[i]);
        if (other != NULL && strlen(other) == size && strncmp(other, name, size) == 0) {
            return true;
        }
    }
    return false;
}

/* Checks that every function that can be made to fail was called in a life and did fail. */
static bool judge_reached(unsigned number)
{
    char missing[1024] = "";
    size_t count = 0;
    for (const char *at = FAULT_CALLS; *at != '\0';) {
        size_t size = strcspn(at, " ");
        if (!was_reached(at, size)) {
            (void)snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), " %.*s",
                           (int)size, at);
        }
        count++;
        at += size + (at[size] == ' ');
    }
    printf("%sok %u - each of %zu functions was made to fail\n", missing[0] == '\0' ? "" : "not ",
           number, count);
    if (missing[0] != '\0') {
        printf("# never:%s\n", missing);
    }
    return missing[0] == '\0';
}

static bool is_wanted(const struct trial *trial, const char *only)
{
    bool has_mode = (trial->scenario->modes & (1U << trial->mode)) != 0;
    bool has_kind = trial->kind != INJECT_VERBS || trial->scenario->device != NULL;
    return has_mode && has_kind && (only == NULL || strcmp(only, trial->scenario->name) == 0);
}

static bool try_each(const char *only, size_t most)
{
    unsigned number = 0;
    bool good = true;
    bool is_whole = only == NULL;
    const size_t each = (size_t)MODES * INJECT_KINDS;
    for (size_t i = 0; i < scenario_count * each; i++) {
        const struct trial trial = { &scenarios[i / each], (enum mode)(i % each / INJECT_KINDS),
                                     (enum inject_kind)(i % INJECT_KINDS) };
        if (!is_wanted(&trial, only)) {
            continue;
        }
        if (trial.scenario->device != NULL && !device_is_possible()) {
            printf(
                "ok %u - %s, %s, %s # SKIP the headers of libibverbs and librdmacm are not there\n",
                ++number, trial.scenario->name, mode_names[trial.mode], kind_names[trial.kind]);
            is_whole = false;
            continue;
        }
        good = try_all(++number, &trial, most) && good;
    }
    if (is_whole) {
        good = judge_reached(++number) && good;
    }
    printf("# figures: %zu of %zu points tried\n1..%u\n", points_tried, points_known, number);
    return good;
}

/* Returns false if there is no such trial. */
static bool find_trial(char **names, struct trial *out)
{
    for (size_t i = 0; i < scenario_count; i++) {
        if (strcmp(scenarios[i].name, names[0]) == 0) {
            out->scenario = &scenarios[i];
        }
    }
    out->mode = MODES;
    out->kind = INJECT_KINDS;
    for (int mode = 0; mode < MODES; mode++) {
        out->mode = strcmp(mode_names[mode], names[1]) == 0 ? (enum mode)mode : out->mode;
    }
    for (int kind = 0; kind < INJECT_KINDS; kind++) {
        out->kind = strcmp(kind_names[kind], names[2]) == 0 ? (enum inject_kind)kind : out->kind;
    }
    return out->scenario != NULL && out->mode != MODES && out->kind != INJECT_KINDS;
}

static void *share(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: fault [--points N] [LIFE]   at most N points of a case; one life\n"
            "       fault LIFE MODE KIND POINT  one point: a number, or a function, whose first "
            "call it is\n"
            "       fault --list                what can be made to fail\n");
    return 2;
}

static int run(int argc, char **argv)
{
    struct trial trial = { 0 };
    size_t most = 0;
    if (argc == 5) {
        if (!find_trial(argv + 1, &trial)) {
            return usage();
        }
        size_t nth = strtoul(argv[4], NULL, 10);
        int status = try_point(
            &trial, nth == 0 ? (struct point){ argv[4], 1 } : (struct point){ NULL, nth }, 0);
        printf("# exit status %d\n", status);
        return status;
    }
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        (void)puts(FAULT_CALLS);
        return 0;
    }
    const size_t lives = argc == 3 ? strtoul(argv[2], NULL, 10) : 5;
    if (argc >= 2 && argc <= 3 && strcmp(argv[1], "--signals") == 0) {
        return disturb_by_signals(lives) ? 0 : 1;
    }
    if (argc >= 2 && argc <= 3 && strcmp(argv[1], "--forks") == 0) {
        return disturb_by_forks(lives) ? 0 : 1;
    }
    if (argc > 2 && strcmp(argv[1], "--points") == 0) {
        most = strtoul(argv[2], NULL, 10);
        argc -= 2;
        argv += 2;
    }
    if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
        return usage();
    }
    return try_each(argc == 2 ? argv[1] : NULL, most) ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--descriptors") == 0) {
        return disturb_look_for_descriptors();
    }
    for (size_t i = 0; i < sizeof(life_pattern); i++) {
        life_pattern[i] = (uint8_t)(i * 7 + i / 251);
    }
    tally = share(sizeof(*tally));
    reached = share(sizeof(*reached));
    firsts = calloc(FIRSTS_MAX, sizeof(*firsts));
    if (tally == NULL || reached == NULL || firsts == NULL || !papers_write()) {
        papers_remove();
        printf("Bail out! no memory, or no folder for keys\n");
        return 1;
    }
    int status = run(argc, argv);
    papers_remove();
    return status;
}
