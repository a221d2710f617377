/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdmux demo: the main functions in one command, on one machine. A second process serves; a third
 * one explains, copies and measures. This process waits for both and for signals, and cleans up in
 * any case.
 */
#include "json.h"
#include "options.h"
#include "outcome.h"
#include "protocol.h"
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static const char command_name[] = "demo";

enum {
    INPUT_SIZE = 64 << 20,
    START_TIMEOUT_MS = 10000,
    STOP_TIMEOUT_MS = 10000,
    STOP_STEP_MS = 5,
    TEST_SECONDS = 2,
};

struct demo {
    char folder[PATH_MAX]; /* temporary: holds the generated input and the received files */
    char received[PATH_MAX + 16];
    char generated[PATH_MAX + 16];
    char address[RDMUX_ADDRESS_MAX];
    pid_t server;      /* 0: none */
    pid_t worker;      /* 0: none */
    int signals;       /* signalfd for SIGCHLD and the terminating signals; -1: none */
    sigset_t previous; /* earlier signal mask, restored in the children */
    int ended_by;      /* the signal that ends the demo; 0: none */
};

/* -------------------------------------------------------------------------------------- signals */

/* Makes the signals readable by a descriptor, so that the demo cleans up whichever arrives. */
static bool open_signals(struct demo *demo)
{
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < TOOL_COUNT_OF(ends); i++) {
        struct sigaction action;
        /* nohup(1) ignores SIGHUP. Shells ignore SIGINT in background jobs; kill(1) may send it. */
        if (ends[i] != SIGHUP ||
            (sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler != SIG_IGN)) {
            sigaddset(&set, ends[i]);
        }
    }
    sigprocmask(SIG_BLOCK, &set, &demo->previous);
    demo->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (demo->signals < 0) {
        tool_error(command_name, "cannot watch for signals: signalfd: %s", strerror(errno));
    }
    return demo->signals >= 0;
}

/* Takes the pending signals. Returns true if one of them ends the demo. */
static bool told_to_end(struct demo *demo)
{
    struct signalfd_siginfo info;
    while (read(demo->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo != SIGCHLD && demo->ended_by == 0) {
            demo->ended_by = (int)info.ssi_signo;
        }
    }
    return demo->ended_by != 0;
}

/* In a child: it does not outlive the demo. A terminal sends its signals to all processes of the
 * demo. The children leave them to the parent, which ends the children in order: the server last, so
 * that it removes what both ends share. A signalfd reads ignored signals, too: the worker then stops
 * to measure, and the server has a process group of its own, which the terminal leaves out. */
static void become_child(const struct demo *demo, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    sigprocmask(SIG_SETMASK, &demo->previous, NULL);
    if (getppid() != parent) {
        _exit(TOOL_FAILED);
    }
}

/* Ends a child: in order, or if that takes too long, at once. */
static void stop_child(pid_t *child)
{
    if (*child <= 0) {
        return;
    }
    kill(*child, SIGTERM);
    pid_t gone = 0;
    for (int waited_ms = 0; gone == 0 && waited_ms < STOP_TIMEOUT_MS; waited_ms += STOP_STEP_MS) {
        gone = waitpid(*child, NULL, WNOHANG);
        if (gone == 0) {
            (void)poll(NULL, 0, STOP_STEP_MS);
        }
    }
    if (gone == 0) {
        kill(*child, SIGKILL);
        while (waitpid(*child, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    *child = 0;
}

/* --------------------------------------------------------------------------- the server process */

/* In the child, between fork and exec: makes only async-signal-safe calls. */
static void become_server(const struct demo *demo, int output, pid_t parent)
{
    become_child(demo, parent);
    if (setpgid(0, 0) != 0 || dup2(output, STDOUT_FILENO) < 0) {
        _exit(TOOL_FAILED);
    }
    int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nothing >= 0 && getenv("RDMUX_LOG") == NULL) {
        dup2(nothing, STDERR_FILENO);
    }
    execl("/proc/self/exe", "rdmux", "serve", "127.0.0.1:0", "--receive", demo->received,
          (char *)NULL);
    _exit(TOOL_FAILED);
}

/* Reads the line "listening on ADDRESS:PORT". */
static bool read_address(struct demo *demo, int input)
{
    static const char prefix[] = "listening on ";
    char line[sizeof(prefix) + RDMUX_ADDRESS_MAX];
    size_t length = 0;
    while (length < sizeof(line) - 1 && memchr(line, '\n', length) == NULL) {
        struct pollfd fds[] = { { .fd = input, .events = POLLIN },
                                { .fd = demo->signals, .events = POLLIN } };
        int ready = poll(fds, TOOL_COUNT_OF(fds), START_TIMEOUT_MS);
        if (ready > 0 && fds[1].revents != 0 && told_to_end(demo)) {
            return false;
        }
        if (ready > 0 && fds[0].revents == 0) {
            continue;
        }
        ssize_t count = ready > 0 ? read(input, line + length, sizeof(line) - 1 - length) : -1;
        if (count <= 0) {
            return false;
        }
        length += (size_t)count;
    }
    line[length] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, prefix, sizeof(prefix) - 1) != 0) {
        return false;
    }
    snprintf(demo->address, sizeof(demo->address), "%.*s", RDMUX_ADDRESS_MAX - 1,
             line + sizeof(prefix) - 1);
    return true;
}

static bool start_server(struct demo *demo)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        tool_error(command_name, "cannot start a server: pipe: %s", strerror(errno));
        return false;
    }
    fflush(stdout);
    pid_t parent = getpid();
    demo->server = fork();
    if (demo->server == 0) {
        become_server(demo, ends[1], parent);
    }
    close(ends[1]);
    if (demo->server < 0) {
        tool_error(command_name, "cannot start a server: fork: %s", strerror(errno));
        demo->server = 0;
        close(ends[0]);
        return false;
    }
    bool good = read_address(demo, ends[0]);
    close(ends[0]);
    if (!good && demo->ended_by == 0) {
        tool_error(command_name,
                   "the server process did not start; try \"rdmux serve 127.0.0.1:0\" to see why");
    }
    return good;
}

/* ---------------------------------------------------------------------------------------- files */

static int remove_entry(const char *path, const struct stat *stat, int kind, struct FTW *where)
{
    (void)stat;
    (void)kind;
    (void)where;
    remove(path);
    return 0;
}

static void remove_folder(const struct demo *demo)
{
    if (demo->folder[0] != '\0') {
        nftw(demo->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
}

static bool make_folder(struct demo *demo)
{
    const char *base = getenv("TMPDIR");
    if (base == NULL || base[0] == '\0' || strlen(base) > PATH_MAX / 2) {
        base = "/tmp";
    }
    snprintf(demo->folder, sizeof(demo->folder), "%s/rdmux-demo-XXXXXX", base);
    if (mkdtemp(demo->folder) == NULL) {
        tool_error(command_name, "cannot create a folder in %s: %s; name another in TMPDIR", base,
                   strerror(errno));
        demo->folder[0] = '\0';
        return false;
    }
    snprintf(demo->received, sizeof(demo->received), "%s/received", demo->folder);
    snprintf(demo->generated, sizeof(demo->generated), "%s/input", demo->folder);
    if (mkdir(demo->received, 0700) != 0) {
        tool_error(command_name, "cannot create %s: %s", demo->received, strerror(errno));
        return false;
    }
    return true;
}

/* Fills a file with bytes so that no two blocks are equal (xorshift64*). */
static bool generate_input(const struct demo *demo)
{
    FILE *file = fopen(demo->generated, "we");
    if (file == NULL) {
        tool_error(command_name, "cannot create %s: %s", demo->generated, strerror(errno));
        return false;
    }
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    static uint64_t block[8192];
    bool good = true;
    for (size_t done = 0; good && done < INPUT_SIZE; done += sizeof(block)) {
        for (size_t i = 0; i < TOOL_COUNT_OF(block); i++) {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            block[i] = state * UINT64_C(0x2545f4914f6cdd1d);
        }
        good = fwrite(block, sizeof(block), 1, file) == 1;
    }
    good = fclose(file) == 0 && good;
    if (!good) {
        tool_error(command_name, "cannot write %s: %s; make room, or name another folder in TMPDIR",
                   demo->generated, strerror(errno));
    }
    return good;
}

static int read_entry(const char *path, const struct stat *stat, int kind, struct FTW *where)
{
    static uint8_t block[1 << 18];
    (void)where;
    int fd = kind == FTW_F ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW) : -1;
    if (fd >= 0) {
        while (S_ISREG(stat->st_mode) && read(fd, block, sizeof(block)) > 0) {
        }
        close(fd);
    }
    return 0;
}

/* Reads the source, so that its files are in memory and the copy does not measure the disk. What
 * cannot be read is the copy's to report. */
static void read_source(const char *source)
{
    char *real = realpath(source, NULL);
    if (real != NULL) {
        nftw(real, read_entry, 16, FTW_PHYS);
        free(real);
    }
}

/* ------------------------------------------------------------------------------------ the steps */

/* The four steps. Each writes its report to `out`. */
static int step_explain(const struct demo *demo, const char *source, bool json, FILE *out)
{
    (void)source;
    struct explain_options explain = { .address = demo->address, .json = json };
    return tool_explain(&explain, out);
}

static int step_copy(const struct demo *demo, const char *source, bool json, FILE *out)
{
    struct copy_options copy = { .source = source, .address = demo->address, .json = json };
    return tool_copy(&copy, out);
}

static int step_latency(const struct demo *demo, const char *source, bool json, FILE *out)
{
    (void)source;
    struct perf_options perf = {
        .address = demo->address,
        .op = PERF_SEND,
        .test = PERF_LATENCY,
        .memory = PERF_REGISTERED,
        .wait = PERF_POLL,
        .size = 8,
        .depth = 64,
        .batch = 1,
        .seconds = TEST_SECONDS,
        .json = json,
    };
    return tool_perf(&perf, out);
}

static int step_bandwidth(const struct demo *demo, const char *source, bool json, FILE *out)
{
    (void)source;
    struct perf_options perf = {
        .address = demo->address,
        .op = PERF_WRITE,
        .test = PERF_BANDWIDTH,
        .memory = PERF_ALLOCATED,
        .wait = PERF_POLL,
        .size = 1 << 20,
        .depth = 64,
        .batch = 1,
        .seconds = TEST_SECONDS,
        .json = json,
    };
    return tool_perf(&perf, out);
}

static const struct {
    const char *key;
    const char *title;
    int (*run)(const struct demo *demo, const char *source, bool json, FILE *out);
} steps[] = {
    { "explanation", "Which path, and why", step_explain },
    { "copy",
      "Copy to the other process, every checksum compared there. The files were read once before,\n"
      "so this is the speed of checksums and of writing files, not of a disk, nor of the path "
      "alone",
      step_copy },
    { "latency", "Latency of the path: a send of 8 bytes", step_latency },
    { "bandwidth", "Bandwidth of the path: writes of 1 MiB", step_bandwidth },
};

static int run_steps(const struct demo *demo, const char *source)
{
    int code = TOOL_OK;
    for (size_t i = 0; i < TOOL_COUNT_OF(steps) && code == TOOL_OK; i++) {
        printf("%s%s\n", i > 0 ? "\n" : "", steps[i].title);
        fflush(stdout);
        code = steps[i].run(demo, source, false, stdout);
    }
    return code;
}

/* Prints one object with a member per step; null for a failed step. */
static int run_steps_as_json(const struct demo *demo, const char *source)
{
    int worst = TOOL_OK;
    for (size_t i = 0; i < TOOL_COUNT_OF(steps); i++) {
        char *text = NULL;
        size_t length = 0;
        FILE *out = open_memstream(&text, &length);
        int code = out != NULL ? steps[i].run(demo, source, true, out) : TOOL_FAILED;
        if (out != NULL && fclose(out) != 0) {
            code = TOOL_FAILED;
        }
        while (length > 0 && text[length - 1] == '\n') {
            text[--length] = '\0';
        }
        fprintf(outcome_out(), "%s\"%s\":%s", i == 0 ? "{" : ",", steps[i].key,
                text != NULL && length > 0 ? text : "null");
        free(text);
        worst = code > worst ? code : worst;
    }
    fputs("}\n", outcome_out());
    return worst;
}

/* Runs in the worker process. */
static int work(const struct demo *demo, const char *source, bool json)
{
    signal(SIGXFSZ, SIG_IGN); /* a file over the limit is an error, EFBIG */
    if (source == NULL) {
        if (!generate_input(demo)) {
            return TOOL_FAILED;
        }
        source = demo->generated;
    }
    read_source(source);
    int code = json ? run_steps_as_json(demo, source) : run_steps(demo, source);
    return fflush(stdout) == 0 ? code : TOOL_FAILED;
}

/* Waits for the worker's end or a signal. Returns an exit code. */
static int wait_for_worker(struct demo *demo)
{
    for (;;) {
        struct pollfd fd = { .fd = demo->signals, .events = POLLIN };
        int wait_status = 0;
        if (told_to_end(demo)) {
            outcome_error("interrupted by a signal; start it again");
            return TOOL_FAILED;
        }
        if (waitpid(demo->worker, &wait_status, WNOHANG) == demo->worker) {
            demo->worker = 0;
            if (WIFEXITED(wait_status)) {
                outcome_is_printed(); /* its object has the error, too */
                return WEXITSTATUS(wait_status);
            }
            tool_error(command_name, "the process that works ended by signal %d",
                       WTERMSIG(wait_status));
            return TOOL_FAILED;
        }
        (void)poll(&fd, 1, -1);
    }
}

static int run_worker(struct demo *demo, const char *source, bool json)
{
    pid_t parent = getpid();
    fflush(stdout);
    demo->worker = fork();
    if (demo->worker == 0) {
        become_child(demo, parent);
        close(demo->signals);
        exit(outcome_end(command_name, work(demo, source, json)));
    }
    if (demo->worker < 0) {
        tool_error(command_name, "cannot start a process: fork: %s", strerror(errno));
        demo->worker = 0;
        return TOOL_FAILED;
    }
    return wait_for_worker(demo);
}

int tool_demo_main(int argc, char **argv)
{
    bool json = false;
    const struct option_spec options[] = {
        { .name = "json", .kind = OPTION_FLAG, .flag = &json, .help = "print JSON" },
    };
    const struct command_spec command = {
        .name = command_name,
        .usage = "[FILE|DIR] [--json]",
        .description = "Starts \"rdmux serve\" in a second process, negotiates a path with it, "
                       "and\n"
                       "explains the choice. Copies FILE or DIR (without one, 64 MiB that it\n"
                       "makes) and compares every checksum. Measures latency and bandwidth of\n"
                       "the path. Reads FILE or DIR once before, so that no figure depends on\n"
                       "what was in memory.\n"
                       "RDMUX_PATHS=tcp shows the same without shared memory. The copies are\n"
                       "removed at the end, also after Ctrl-C.\n",
        .options = options,
        .option_count = TOOL_COUNT_OF(options),
        .positional_max = 1,
    };
    const char *positionals[1];
    enum options_outcome outcome = options_parse(&command, argc, argv, positionals);
    if (outcome != OPTIONS_RUN) {
        return outcome == OPTIONS_HELP ? TOOL_OK : TOOL_USAGE;
    }
    struct demo demo = { .signals = -1 };
    int code = TOOL_FAILED;
    if (open_signals(&demo) && make_folder(&demo) && start_server(&demo)) {
        code = run_worker(&demo, positionals[0], json);
    }
    stop_child(&demo.worker);
    stop_child(&demo.server);
    remove_folder(&demo);
    if (demo.signals >= 0) {
        (void)told_to_end(&demo); /* signals that came during the clean-up */
        close(demo.signals);
    }
    return demo.ended_by != 0 ? 128 + demo.ended_by : code;
}
