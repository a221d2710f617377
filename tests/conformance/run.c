/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Runs one case in two processes, each in a process group of its own so that nothing of it outlives
 * the case. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    DEFAULT_TIMEOUT_S = 10,
    GRACE_MS = 1000,        /* for the other side, once one has failed */
    EARLIER_NS = 300000000, /* a process gives up so much before it is killed */
};

struct shared {
    struct report reports[2]; /* initiator, target */
    struct provider_caps caps;
};

struct process {
    pid_t pid;
    bool ended;
    int wait_status;
};

static const char *const side_names[2] = { "initiator", "target" };

static void result_line(struct run_result *result, const char *format, ...) PRINTF_LIKE(2, 3);
static void result_line(struct run_result *result, const char *format, ...)
{
    size_t used = strlen(result->text);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(result->text + used, sizeof(result->text) - used, format, arguments);
    va_end(arguments);
    used = strlen(result->text);
    if (used + 1 < sizeof(result->text)) {
        (void)snprintf(result->text + used, sizeof(result->text) - used, "\n");
    }
}

static unsigned timeout_s(const struct conformance_case *test, const struct run_options *options)
{
    return (test->timeout_s == 0 ? DEFAULT_TIMEOUT_S : test->timeout_s) * options->patience;
}

/* Libraries below a provider may keep descriptors until the process ends (librdmacm: one or two for
 * each device). What the first fabric leaves behind is theirs; what a later one adds is a leak. */
static void open_libraries(const struct side *side)
{
    struct rdmux_fabric_attr attr = fabric_attr_of(side);
    struct rdmux_fabric *fabric = NULL;
    attr.flags |= RDMUX_FABRIC_NO_SERVICE_THREAD;
    size_t count = 0;
    EXPECT_OK(rdmux_fabric_open(&attr, &fabric));
    EXPECT_OK(rdmux_fabric_paths(fabric, NULL, 0, &count)); /* looks for devices */
    EXPECT_OK(rdmux_fabric_close(fabric));
}

/* Runs in the new process; does not return. */
static _Noreturn void run_side(const struct conformance_case *test, struct side *side)
{
    open_libraries(side);
    for (int fd = 0; fd < SIDE_DESCRIPTORS_MAX; fd++) {
        side->descriptors[fd] = fcntl(fd, F_GETFD) >= 0;
    }
    bool refused = side->missing != 0;
    if (side->is_initiator) {
        (refused ? refused_initiator : test->run_initiator)(side);
    } else {
        (refused ? refused_target : test->run_target)(side);
    }
    exit(0);
}

static pid_t start_side(const struct conformance_case *test, const char *provider,
                        const struct run_options *options, struct shared *shared, unsigned index,
                        int sync[2], int sockets[2])
{
    pid_t runner = getpid();
    pid_t pid = fork();
    if (pid != 0) {
        if (pid > 0) {
            (void)setpgid(pid, pid);
        }
        return pid;
    }
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != runner) {
        _exit(1);
    }
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)close(sync[1 - index]);
    (void)close(sockets[1 - index]);
    report_begin(&shared->reports[index],
                 now_ns() + timeout_s(test, options) * UINT64_C(1000000000) - EARLIER_NS);

    struct side *side = calloc(1, sizeof(*side));
    if (side == NULL) {
        FAIL("out of memory");
    }
    side->provider = provider;
    side->plugins = options->plugins;
    side->plugin_count = options->plugin_count;
    side->is_initiator = index == 0;
    side->sleeps = options->sleeps;
    side->quick = options->quick;
    side->thorough = options->thorough;
    side->patience = options->patience;
    side->patient_ms = (int)(PATIENT_MS * options->patience);
    side->seed = options->seed;
    side->caps = &shared->caps;
    if (shared->caps.known) {
        side->missing = test->needs & ~(shared->caps.native | shared->caps.emulated);
    }
    side->sync = sync[index];
    side->socket = sockets[index];
    run_side(test, side);
}

static void reap(struct process *process, int options)
{
    if (!process->ended && waitpid(process->pid, &process->wait_status, options) == process->pid) {
        process->ended = true;
    }
}

static bool has_failed(const struct process *process, const struct report *report)
{
    return report->failed != 0 || (process->ended && process->wait_status != 0);
}

/* Waits until both have ended, or one failed and the other had its grace, or the time is over.
 * Returns false for the last. */
static bool wait_for_both(struct process processes[2], struct shared *shared, uint64_t deadline)
{
    sigset_t child;
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    bool failing = false;
    for (;;) {
        reap(&processes[0], WNOHANG);
        reap(&processes[1], WNOHANG);
        if (processes[0].ended && processes[1].ended) {
            return true;
        }
        if (!failing && (has_failed(&processes[0], &shared->reports[0]) ||
                         has_failed(&processes[1], &shared->reports[1]))) {
            failing = true;
            uint64_t grace = now_ns() + (uint64_t)GRACE_MS * 1000000;
            deadline = grace < deadline ? grace : deadline;
        }
        uint64_t now = now_ns();
        if (now >= deadline) {
            return failing;
        }
        uint64_t left = deadline - now;
        struct timespec wait = { .tv_sec = (time_t)(left / 1000000000),
                                 .tv_nsec = (long)(left % 1000000000) };
        (void)sigtimedwait(&child, NULL, &wait);
    }
}

static void describe(struct run_result *result, const struct process *process,
                     const struct report *report, const char *name, bool killed)
{
    if (report->failed) {
        result_line(result, "%s: %s", name, report->text);
        return;
    }
    const char *file = report->file == NULL ? "" : strrchr(report->file, '/');
    file = file == NULL ? report->file : file + (*file == '/');
    char place[512] = "before its first step";
    if (report->file != NULL) {
        (void)snprintf(place, sizeof(place), "at %s:%d: %s", file, report->line, report->what);
    }
    if (killed) {
        result_line(result, "%s: stood %s", name, place);
    } else if (WIFSIGNALED(process->wait_status)) {
        result_line(result, "%s: killed by signal %d (%s), last seen %s", name,
                    WTERMSIG(process->wait_status), strsignal(WTERMSIG(process->wait_status)),
                    place);
    } else if (WEXITSTATUS(process->wait_status) != 0) {
        result_line(result, "%s: ended with exit status %d, last seen %s", name,
                    WEXITSTATUS(process->wait_status), place);
    } else {
        result_line(result, "%s: ended without a failure", name);
    }
}

static void judge(struct run_result *result, struct process processes[2], const bool killed[2],
                  struct shared *shared, bool in_time, const struct conformance_case *test,
                  const struct run_options *options)
{
    result->passed = in_time;
    for (size_t i = 0; i < 2; i++) {
        if (killed[i] || has_failed(&processes[i], &shared->reports[i])) {
            result->passed = false;
        }
    }
    if (result->passed) {
        return;
    }
    if (!in_time) {
        result_line(result, "not done after %u s", timeout_s(test, options));
    }
    /* The one that failed by itself first, then the one that only noticed. */
    size_t first = shared->reports[0].consequence ? 1 : 0;
    describe(result, &processes[first], &shared->reports[first], side_names[first], killed[first]);
    describe(result, &processes[1 - first], &shared->reports[1 - first], side_names[1 - first],
             killed[1 - first]);
    result_line(result, "seed %" PRIu64, options->seed);
}

void run_case(const struct conformance_case *test, const char *provider,
              const struct run_options *options, struct provider_caps *caps,
              struct run_result *result)
{
    *result = (struct run_result){ .passed = false };
    uint64_t start = now_ns();
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        result_line(result, "mmap: %s", strerror(errno));
        return;
    }
    shared->caps = *caps;

    int sync[2] = { -1, -1 };
    int sockets[2] = { -1, -1 };
    struct process processes[2] = { { .pid = -1 }, { .pid = -1 } };
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sync) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) {
        result_line(result, "socketpair: %s", strerror(errno));
        goto close_sockets;
    }
    (void)fflush(NULL);
    for (unsigned i = 0; i < 2; i++) {
        processes[i].pid = start_side(test, provider, options, shared, i, sync, sockets);
        if (processes[i].pid < 0) {
            result_line(result, "fork: %s", strerror(errno));
            goto kill_processes;
        }
    }
    for (size_t i = 0; i < 2; i++) {
        (void)close(sync[i]);
        (void)close(sockets[i]);
        sync[i] = sockets[i] = -1;
    }
    uint64_t deadline = start + timeout_s(test, options) * UINT64_C(1000000000);
    bool in_time = wait_for_both(processes, shared, deadline);
    const bool killed[2] = { !processes[0].ended, !processes[1].ended };
    for (size_t i = 0; i < 2; i++) {
        (void)kill(-processes[i].pid, SIGKILL);
        reap(&processes[i], 0);
    }
    judge(result, processes, killed, shared, in_time, test, options);
    *caps = shared->caps;

kill_processes:
    for (size_t i = 0; i < 2; i++) {
        if (processes[i].pid > 0 && !processes[i].ended) {
            (void)kill(-processes[i].pid, SIGKILL);
            reap(&processes[i], 0);
        }
    }
close_sockets:
    for (size_t i = 0; i < 2; i++) {
        if (sync[i] >= 0) {
            (void)close(sync[i]);
        }
        if (sockets[i] >= 0) {
            (void)close(sockets[i]);
        }
    }
    result->took_ns = now_ns() - start;
    (void)munmap(shared, sizeof(*shared));
}
