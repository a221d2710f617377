/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Runs one case in two processes, each in a process group of its own so that none of its processes
 * outlives the case. */
#include "run.h"

#include "peer.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
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
    GRACE_MS = 1000,        /* for the other side, after one has failed */
    EARLIER_NS = 300000000, /* a process gives up this much before it is killed */
    PEER_LOOK_NS = 1000000,
};

struct process {
    pid_t pid;         /* -1: not started, or on another host */
    struct peer *peer; /* the peer on another host, else NULL */
    bool ended;
    bool killed;
    int wait_status;
    struct peer_end *end; /* of a process on another host */
    char threads[512];    /* of a process that had to be killed: the place of each thread */
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

unsigned case_timeout_s(const struct conformance_case *test, const struct run_options *options)
{
    unsigned own = (test->timeout_s == 0 ? DEFAULT_TIMEOUT_S : test->timeout_s) * options->patience;
    return options->limit_s != 0 && options->limit_s < own ? options->limit_s : own;
}

/* Returns whether this library has cqs without a service thread. If not, it refuses them, says why,
 * and the case is left out. */
static bool has_manual_cqs(const struct side *side)
{
    struct rdmux_fabric_attr attr = fabric_attr_of(side);
    struct rdmux_fabric *fabric = NULL;
    struct rdmux_cq *cq = NULL;
    attr.flags |= RDMUX_FABRIC_NO_SERVICE_THREAD;
    EXPECT_OK(rdmux_fabric_open(&attr, &fabric));
    const bool has = rdmux_cq_create(fabric, NULL, &cq) == RDMUX_OK;
    if (!has) {
        EXPECT_STATUS(rdmux_cq_create(fabric, NULL, &cq), RDMUX_UNSUPPORTED);
        EXPECT(strstr(rdmux_last_error(), "RDMUX_FABRIC_NO_SERVICE_THREAD") != NULL,
               "the library does not say why: %s", rdmux_last_error());
        leave_out("this build of rdmux has no cqs without a service thread");
    }
    EXPECT_OK(rdmux_cq_destroy(cq));
    EXPECT_OK(rdmux_fabric_close(fabric));
    return has;
}

/* Runs in the new process; does not return. */
static _Noreturn void run_side(const struct conformance_case *test, struct side *side)
{
    if ((test->flags & CASE_UNTOUCHED) == 0) {
        side_open_libraries(side); /* else side_open() does it */
    }
    bool refused = side->missing != 0;
    if ((test->flags & CASE_MANUAL) != 0 && !has_manual_cqs(side)) {
        exit(0);
    }
    if (side->is_initiator) {
        (refused ? refused_initiator : test->run_initiator)(side);
    } else {
        (refused ? refused_target : test->run_target)(side);
    }
    exit(0);
}

/* Writes "127.0.0.1" and "[::1]", as in addresses of rdmux.h. */
static void name_host(int fd, int (*name_of)(int, struct sockaddr *, socklen_t *),
                      char out[HOST_TEXT_MAX])
{
    struct sockaddr_storage name = { .ss_family = AF_UNSPEC };
    socklen_t length = sizeof(name);
    char host[INET6_ADDRSTRLEN];
    EXPECT(name_of(fd, (struct sockaddr *)(void *)&name, &length) == 0 &&
               getnameinfo((struct sockaddr *)(void *)&name, length, host, sizeof(host), NULL, 0,
                           NI_NUMERICHOST) == 0,
           "the address of the connection to the other side is not known");
    const char *mapped = strncmp(host, "::ffff:", 7) == 0 && strchr(host, '.') != NULL ? host + 7
                                                                                       : host;
    bool six = strchr(mapped, ':') != NULL;
    (void)snprintf(out, HOST_TEXT_MAX, "%s%s%s", six ? "[" : "", mapped, six ? "]" : "");
}

static void place_side(struct side *side, bool remote)
{
    side->remote = remote;
    (void)snprintf(side->host, sizeof(side->host), "127.0.0.1");
    (void)snprintf(side->other_host, sizeof(side->other_host), "127.0.0.1");
    if (remote) {
        name_host(side->sync, getsockname, side->host);
        name_host(side->sync, getpeername, side->other_host);
    }
}

pid_t start_side(const struct start *start)
{
    const struct run_options *options = start->options;
    struct shared *shared = start->shared;
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
    (void)signal(SIGPIPE, SIG_DFL); /* makes a library that raises it visible */
    for (size_t i = 0; i < COUNT_OF(start->others); i++) {
        if (start->others[i] >= 0) {
            (void)close(start->others[i]);
        }
    }
    report_begin(&shared->reports[start->index],
                 now_ns() + case_timeout_s(start->test, options) * UINT64_C(1000000000) -
                     EARLIER_NS);

    struct side *side = calloc(1, sizeof(*side));
    if (side == NULL) {
        FAIL("out of memory");
    }
    side->provider = start->provider;
    (void)snprintf(side->paths, sizeof(side->paths), "auto,%s", start->provider);
    side->plugins = options->plugins;
    side->plugin_count = options->plugin_count;
    side->auth = (struct rdmux_fabric_auth)RDMUX_FABRIC_AUTH_INIT;
    side->auth.method = RDMUX_AUTH_PSK;
    side->auth.key_file = options->key_file;
    side->is_initiator = start->index == 0;
    side->sleeps = options->sleeps;
    side->quick = options->quick;
    side->thorough = options->thorough;
    side->patience = options->patience;
    side->patient_ms = (int)(PATIENT_MS * options->patience);
    side->seed = options->seed;
    side->sequence = options->sequence;
    side->caps = &shared->caps;
    side->missing = caps_missing(&shared->caps, start->test->needs);
    side->sync = start->sync;
    side->socket = start->socket;
    place_side(side, start->remote);
    run_side(start->test, side);
}

struct shared *shared_map(void)
{
    void *memory = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void shared_unmap(struct shared *shared)
{
    (void)munmap(shared, sizeof(*shared));
}

/* Enters the other host's report as if the process had run here. */
static void take_remote_end(struct process *process, struct report *report)
{
    if (!peer_take_end(process->peer, process->end)) {
        return;
    }
    const struct peer_end *end = process->end;
    process->ended = true;
    process->killed = end->killed;
    process->wait_status = end->wait_status;
    report->failed = end->failed;
    report->consequence = end->consequence;
    report->file = end->file[0] == '\0' ? NULL : end->file;
    report->what = end->what;
    report->line = end->line;
    (void)snprintf(report->text, sizeof(report->text), "%s", end->text);
}

static void reap(struct process *process, struct report *report, int options)
{
    if (process->ended) {
        return;
    }
    if (process->peer != NULL) {
        take_remote_end(process, report);
    } else if (waitpid(process->pid, &process->wait_status, options) == process->pid) {
        process->ended = true;
    }
}

static void end_process(struct process *process, struct report *report)
{
    if (process->peer != NULL && !process->ended) {
        peer_kill(process->peer);
        uint64_t deadline = now_ns() + UINT64_C(5000000000);
        while (!process->ended && now_ns() < deadline) {
            take_remote_end(process, report);
            sleep_ms(process->ended ? 0 : 1);
        }
        process->killed = true;
        process->ended = true;
    } else if (process->peer == NULL && process->pid > 0) {
        process->killed = !process->ended;
        (void)kill(-process->pid, SIGKILL);
        reap(process, report, 0);
    }
}

static bool has_failed(const struct process *process, const struct report *report)
{
    return report->failed != 0 || (process->ended && process->wait_status != 0);
}

/* Waits until both processes have ended, or one has failed and the other has had its grace period,
 * or the time is over. Returns false in the last case. */
static bool wait_for_both(struct process processes[2], struct shared *shared, uint64_t deadline)
{
    sigset_t child;
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    bool failing = false;
    for (;;) {
        reap(&processes[0], &shared->reports[0], WNOHANG);
        reap(&processes[1], &shared->reports[1], WNOHANG);
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
        if (processes[1].peer != NULL && left > PEER_LOOK_NS) {
            left = PEER_LOOK_NS; /* no signal reports a process on another host */
        }
        struct timespec wait = { .tv_sec = (time_t)(left / 1000000000),
                                 .tv_nsec = (long)(left % 1000000000) };
        (void)sigtimedwait(&child, NULL, &wait);
    }
}

/* Reads the first line of a file of /proc, "" if there is none. */
static void read_line(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "re");
    out[0] = '\0';
    if (file != NULL) {
        if (fgets(out, (int)size, file) == NULL) {
            out[0] = '\0';
        }
        out[strcspn(out, "\n")] = '\0';
        (void)fclose(file);
    }
}

/* Keeps the first `count` words of a line. */
static void keep_words(char *line, size_t count)
{
    while (*line != '\0' && (*line != ' ' || --count != 0)) {
        line++;
    }
    *line = '\0';
}

/* Records for each thread its name, where in the kernel it waits (0: it runs), and its system call
 * with three arguments. */
static void note_threads(struct process *process)
{
    static const char *const files[] = { "comm", "wchan", "syscall" };
    char path[64];
    size_t used = 0;
    if (process->ended || process->pid <= 0) {
        return;
    }
    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)process->pid);
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL && used < sizeof(process->threads)) {
        const long thread = strtol(entry->d_name, NULL, 10);
        char text[COUNT_OF(files)][96];
        if (thread == 0) {
            continue; /* "." and ".." */
        }
        for (size_t i = 0; i < COUNT_OF(files); i++) {
            (void)snprintf(path, sizeof(path), "/proc/%d/task/%ld/%s", (int)process->pid, thread,
                           files[i]);
            read_line(path, text[i], sizeof(text[i]));
        }
        keep_words(text[2], 4);
        int length = snprintf(process->threads + used, sizeof(process->threads) - used,
                              "%s%s in %s, system call %s", used == 0 ? "" : "; ", text[0], text[1],
                              text[2]);
        used += length < 0 ? 0 : (size_t)length;
    }
    (void)closedir(folder);
}

static void describe(struct run_result *result, const struct process *process,
                     const struct report *report, const char *name)
{
    if (report->failed) {
        result_line(result, "%s: %s", name, report->text);
        return;
    }
    char place[512] = "before its first step";
    if (report->file != NULL) {
        char step[64];
        (void)write_place(report->file, report->line, step, sizeof(step));
        (void)snprintf(place, sizeof(place), "at %s (%s)", report->what, step);
    }
    if (process->killed) {
        result_line(result, "%s: stood %s", name, place);
        if (process->threads[0] != '\0') {
            result_line(result, "%s: its threads: %s", name, process->threads);
        }
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

/* Reads the one broken rule from a text that names it behind BROKEN_RULE. */
static void read_broken_rule(struct run_result *result)
{
    const char *at = strstr(result->text, BROKEN_RULE);
    if (at != NULL) {
        at += strlen(BROKEN_RULE);
        (void)snprintf(result->rule, sizeof(result->rule), "%.*s", (int)strcspn(at, ":\n"), at);
    }
}

/* Returns the cause before its consequences: the side that failed by itself, and if both did, the
 * earlier. Clocks of two hosts are not compared. */
static size_t first_to_fail(const struct process processes[2], const struct report reports[2])
{
    if (reports[0].consequence != reports[1].consequence) {
        return reports[0].consequence ? 1 : 0;
    }
    for (size_t i = 0; i < 2; i++) {
        if (processes[i].ended && !processes[i].killed && WIFSIGNALED(processes[i].wait_status)) {
            return i;
        }
    }
    const bool both = reports[0].failed != 0 && reports[1].failed != 0;
    if (both && processes[1].peer == NULL) {
        return reports[1].failed_ns < reports[0].failed_ns ? 1 : 0;
    }
    return reports[0].failed == 0 && reports[1].failed != 0 ? 1 : 0;
}

static void judge(struct run_result *result, struct process processes[2], struct shared *shared,
                  bool in_time, const struct conformance_case *test,
                  const struct run_options *options)
{
    result->passed = in_time;
    for (size_t i = 0; i < 2; i++) {
        if (processes[i].killed || has_failed(&processes[i], &shared->reports[i])) {
            result->passed = false;
        }
    }
    if (result->passed) {
        result->left_out = shared->reports[0].left_out != 0;
        (void)snprintf(result->text, sizeof(result->text), "%s",
                       result->left_out ? shared->reports[0].text : "");
        return;
    }
    result->late = !in_time;
    if (!in_time) {
        result_line(result, "not done after %u s", case_timeout_s(test, options));
    }
    result->row = shared->reports[0].row;
    size_t first = first_to_fail(processes, shared->reports);
    describe(result, &processes[first], &shared->reports[first], side_names[first]);
    describe(result, &processes[1 - first], &shared->reports[1 - first], side_names[1 - first]);
    result_line(result, "seed %" PRIu64, options->seed);
    read_broken_rule(result);
}

static void close_both(int fds[2])
{
    for (size_t i = 0; i < 2; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
        fds[i] = -1;
    }
}

/* Starts both sides here. sync and sockets: a pair of each. On failure records the error and
 * returns false. */
static bool start_here(struct process processes[2], const struct start *common, int sync[2],
                       int sockets[2], struct run_result *result)
{
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sync) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) {
        result_line(result, "socketpair: %s", strerror(errno));
        return false;
    }
    for (unsigned i = 0; i < 2; i++) {
        struct start start = *common;
        start.index = i;
        start.sync = sync[i];
        start.socket = sockets[i];
        start.others[0] = sync[1 - i];
        start.others[1] = sockets[1 - i];
        processes[i].pid = start_side(&start);
        if (processes[i].pid < 0) {
            result_line(result, "fork: %s", strerror(errno));
            return false;
        }
    }
    return true;
}

/* Starts the target's side on another host. On failure records the error and returns false. */
static bool start_there(struct process processes[2], const struct start *common,
                        const struct case_place *place, int sync[2], int sockets[2],
                        struct run_result *result)
{
    static struct peer_end end;
    struct peer *peer = common->options->peer;
    end = (struct peer_end){ .failed = false };
    if (!peer_start(peer, place->suite, place->test, common->provider, common->options,
                    &common->shared->caps, &sync[0], &sockets[0])) {
        result_line(result, "the other host's session is lost");
        return false;
    }
    processes[1].peer = peer;
    processes[1].end = &end;
    struct start start = *common;
    start.sync = sync[0];
    start.socket = sockets[0];
    start.others[0] = peer->control;
    start.remote = true;
    processes[0].pid = start_side(&start);
    if (processes[0].pid < 0) {
        result_line(result, "fork: %s", strerror(errno));
        return false;
    }
    return true;
}

void run_case(const struct case_place *place, const char *provider,
              const struct run_options *options, struct provider_caps *caps,
              struct run_result *result)
{
    const struct conformance_case *test = &suites[place->suite]->cases[place->test];
    *result = (struct run_result){ .passed = false };
    uint64_t begin = now_ns();
    struct shared *shared = shared_map();
    if (shared == NULL) {
        result_line(result, "mmap: %s", strerror(errno));
        return;
    }
    shared->caps = *caps;

    int sync[2] = { -1, -1 };
    int sockets[2] = { -1, -1 };
    struct process processes[2] = { { .pid = -1 }, { .pid = -1 } };
    struct start start = {
        .test = test,
        .provider = provider,
        .options = options,
        .shared = shared,
        .others = { -1, -1 },
    };
    (void)fflush(NULL);
    bool started = options->peer == NULL
                       ? start_here(processes, &start, sync, sockets, result)
                       : start_there(processes, &start, place, sync, sockets, result);
    close_both(sync);
    close_both(sockets);
    bool in_time = false;
    if (started) {
        uint64_t deadline = begin + case_timeout_s(test, options) * UINT64_C(1000000000);
        in_time = wait_for_both(processes, shared, deadline);
    }
    for (size_t i = 0; i < 2; i++) {
        note_threads(&processes[i]); /* of a process that must be killed */
        end_process(&processes[i], &shared->reports[i]);
    }
    if (started) {
        judge(result, processes, shared, in_time, test, options);
        *caps = shared->caps;
    }
    result->took_ns = now_ns() - begin;
    shared_unmap(shared);
}
