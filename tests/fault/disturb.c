/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "disturb.h"

#include "device.h"
#include "life.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    STORM_PAUSE_NS = 100000,
    LIVES_MAX = 5,
    FORK_EVERY = 5, /* steps */
    FORKS_MAX = 24, /* in a life */
    CASE_S = 120,
    DESCRIPTORS_MAX = 1024,
};

/* -------------------------------------------------------------------------------------- signals */

static size_t lives; /* of a case */

static _Atomic unsigned handled;
static _Atomic unsigned handled_by_library;
static _Atomic bool storm_is_over;

static void handle(int number)
{
    char name[16] = "";
    (void)number;
    (void)prctl(PR_GET_NAME, name);
    atomic_fetch_add(&handled, 1);
    if (strncmp(name, "rdmux-", 6) == 0) {
        atomic_fetch_add(&handled_by_library, 1);
    }
}

static void signal_all_threads(pid_t own, unsigned round)
{
    DIR *folder = opendir("/proc/self/task");
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        long thread = strtol(entry->d_name, NULL, 10);
        if (thread > 0 && thread != own) {
            (void)syscall(SYS_tgkill, getpid(), thread, round % 2 == 0 ? SIGUSR1 : SIGALRM);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
}

static void *storm(void *argument)
{
    const struct timespec pause_time = { .tv_nsec = STORM_PAUSE_NS };
    sigset_t all;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (unsigned round = 0; !atomic_load(&storm_is_over); round++) {
        signal_all_threads(gettid(), round);
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause_time, NULL);
    }
    return argument;
}

static void live_in_a_storm(const struct scenario *scenario, enum mode mode)
{
    enum { HANDLED_LEAST = 20 };
    struct sigaction action = { .sa_handler = handle }; /* without SA_RESTART */
    pthread_t thread;
    (void)sigaction(SIGUSR1, &action, NULL);
    (void)sigaction(SIGALRM, &action, NULL);
    if (pthread_create(&thread, NULL, storm, NULL) != 0) {
        wrong("no thread");
    }
    while (atomic_load(&handled) < HANDLED_LEAST) {
        (void)live(scenario, mode, false);
    }
    for (size_t i = 0; i < lives; i++) {
        if (!live(scenario, mode, false)) {
            wrong("a life ended early");
        }
    }
    atomic_store(&storm_is_over, true);
    (void)pthread_join(thread, NULL);
    if (atomic_load(&handled_by_library) != 0) {
        wrong("%u of %u signals ran in threads of the library", atomic_load(&handled_by_library),
              atomic_load(&handled));
    }
}

/* ---------------------------------------------------------------------------------------- forks */

static pid_t children[FORKS_MAX * LIVES_MAX];
static size_t child_count;
static size_t life_children;

/* Exits the child with the line number of the condition that does not hold. */
#define EXPECT(condition)          \
    do {                           \
        if (!(condition)) {        \
            return __LINE__ & 127; \
        }                          \
    } while (0)

static int call_into_rdmux(struct life *life)
{
    uint64_t word = 0;
    struct rdmux_wc wc;
    struct rdmux_cq *cq = NULL;
    EXPECT(rdmux_fabric_progress(life->a.fabric) == RDMUX_INVALID);
    EXPECT(rdmux_cq_create(life->a.fabric, NULL, &cq) == RDMUX_INVALID);
    EXPECT(life->a.cq == NULL || rdmux_cq_poll(life->a.cq, &wc, 1) == 0);
    EXPECT(life->a.cq == NULL || rdmux_cq_arm(life->a.cq) == RDMUX_INVALID);
    if (life->a.ep != NULL) {
        EXPECT(rdmux_send(life->a.ep, &word, sizeof(word), NULL, NULL, 0) == RDMUX_INVALID);
        EXPECT(rdmux_recv(life->a.ep, &word, sizeof(word), NULL, NULL) == RDMUX_INVALID);
        EXPECT(rdmux_ep_shutdown(life->a.ep, 10) == RDMUX_INVALID);
        EXPECT(rdmux_ep_close(life->a.ep) == RDMUX_INVALID);
    }
    if (life->a.stream != NULL) {
        size_t moved = 1;
        EXPECT(rdmux_stream_read(life->a.stream, &word, 1, 0, &moved) == RDMUX_INVALID);
        EXPECT(rdmux_stream_write(life->a.stream, &word, 1, 0, &moved) == RDMUX_INVALID);
        EXPECT(word == 0 && moved == 0);
        EXPECT(rdmux_stream_close(life->a.stream) == RDMUX_INVALID);
    }
    if (life->b.mr != NULL) {
        EXPECT(rdmux_mr_revoke(life->b.mr) == RDMUX_INVALID);
        rdmux_mr_deregister(life->b.mr);
    }
    rdmux_listener_close(life->listener);
    EXPECT(rdmux_cq_destroy(life->a.cq) == RDMUX_INVALID);
    EXPECT(rdmux_fabric_close(life->a.fabric) == RDMUX_INVALID);
    return 0;
}

static int open_a_fabric(void)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    struct rdmux_cq *cq = NULL;
    struct rdmux_listener *listener = NULL;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    EXPECT(rdmux_fabric_open(&attr, &fabric) == RDMUX_OK);
    EXPECT(rdmux_cq_create(fabric, NULL, &cq) == RDMUX_OK);
    EXPECT(rdmux_listen(fabric, "127.0.0.1:0", NULL, &listener) == RDMUX_OK);
    rdmux_listener_close(listener);
    EXPECT(rdmux_cq_destroy(cq) == RDMUX_OK);
    EXPECT(rdmux_fabric_close(fabric) == RDMUX_OK);
    return 0;
}

static _Noreturn void be_child(struct life *life, size_t number)
{
    enum { KINDS = 3 };
    alarm(CASE_S);
    switch (number % KINDS) {
    case 0:
        _exit(call_into_rdmux(life));
    case 1:
        _exit(open_a_fabric());
    default:
        (void)execl("/proc/self/exe", "fault", "--descriptors", (char *)NULL);
        _exit(EXIT_WRONG);
    }
}

static void fork_now_and_then(struct life *life)
{
    if (life->steps % FORK_EVERY != 0 || life_children == FORKS_MAX) {
        return;
    }
    uint64_t from_ms = now_ms();
    pid_t pid = fork();
    if (pid < 0) {
        wrong("no process");
    }
    if (pid == 0) {
        be_child(life, child_count);
    }
    life->until_ms += now_ms() - from_ms; /* the time of the call is not the library's */
    life_children++;
    children[child_count++] = pid;
}

static void live_with_children(const struct scenario *scenario, enum mode mode)
{
    life_disturb = fork_now_and_then;
    for (size_t i = 0; i < lives; i++) {
        life_children = 0;
        if (!live(scenario, mode, false)) {
            wrong("a life ended early");
        }
    }
    for (size_t i = 0; i < child_count; i++) {
        int status = 0;
        if (waitpid(children[i], &status, 0) != children[i] || status != 0) {
            wrong("child %zu of %zu ended with %#x (line %d of disturb.c, or a signal)", i,
                  child_count, (unsigned)status, WEXITSTATUS(status));
        }
    }
    if (child_count < 3) {
        wrong("%zu children are too few", child_count);
    }
}

int disturb_look_for_descriptors(void)
{
    for (int fd = STDERR_FILENO + 1; fd < DESCRIPTORS_MAX; fd++) {
        char path[64];
        char name[32] = "";
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (readlink(path, name, sizeof(name) - 1) > 0 &&
            (strncmp(name, "socket:", 7) == 0 || strncmp(name, "anon_inode:", 11) == 0 ||
             strncmp(name, "/memfd:", 7) == 0)) {
            fprintf(stderr, "# descriptor %d came along: %s\n", fd, name);
            return EXIT_WRONG;
        }
    }
    return 0;
}

/* ----------------------------------------------------------------------------------- both kinds */

static bool try_case(unsigned number, const char *what, const struct scenario *scenario,
                     enum mode mode, void (*run)(const struct scenario *, enum mode))
{
    const char *text = NULL;
    int status = 0;
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (scenario->device != NULL && !device_start(scenario->device, &text)) {
            wrong("the simulated adapter: %s", text);
        }
        run(scenario, mode);
        device_end();
        _exit(0);
    }
    bool good = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
    printf("%sok %u - %s, %s: %s\n", good ? "" : "not ", number, scenario->name, mode_names[mode],
           what);
    if (!good) {
        printf("# exit status %d, signal %d\n", WEXITSTATUS(status), WTERMSIG(status));
    }
    return good;
}

static bool try_cases(const char *what, unsigned modes,
                      void (*run)(const struct scenario *, enum mode))
{
    unsigned number = 0;
    bool good = true;
    for (size_t i = 0; i < scenario_count * MODES; i++) {
        const struct scenario *scenario = &scenarios[i / MODES];
        enum mode mode = (enum mode)(i % MODES);
        if ((scenario->modes & modes & (1U << mode)) == 0 ||
            (scenario->device != NULL && !device_is_possible())) {
            continue;
        }
        good = try_case(++number, what, scenario, mode, run) && good;
    }
    printf("1..%u\n", number);
    return good;
}

bool disturb_by_signals(size_t count)
{
    lives = count < LIVES_MAX ? count : LIVES_MAX;
    return try_cases("signals to all threads make nothing fail", ~0U, live_in_a_storm);
}

bool disturb_by_forks(size_t count)
{
    lives = count < LIVES_MAX ? count : LIVES_MAX;
    return try_cases("children are refused, and do no harm", ~0U, live_with_children);
}
