/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Starts the processes of a storm, watches them, and reports; see storm.h and README.md. */
#include "storm.h"

#include "tests/counted.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 200, /* how often the parent looks for processes that have ended */
    /* The most that an endpoint has with what its peer's process costs, over any path, and a
     * process besides. */
    DESCRIPTORS_EACH = 5,
    DESCRIPTORS_MORE = 64,
    MAPPINGS_EACH = 8,
    MAPPINGS_MORE = 256,
    THREADS_EACH = 4,
    KIB_OF_ENDPOINT = 96,
    KIB_OF_PROCESS = 2048,
    LIMITED = 77, /* exit status: a limit of this machine is too low */
};

/* What the machine holds while all pairs are connected. */
struct machine {
    int64_t tcp_sockets;  /* in use, both ends, of this network namespace */
    int64_t tcp_bytes;    /* their buffers, of the whole machine */
    int64_t kernel_bytes; /* slab, stacks and page tables of the whole machine */
    int64_t pss_bytes;    /* of the processes: shared pages are divided among them */
};

struct parent {
    struct storm *storm;
    pid_t pids[STORM_PROCESSES_MAX];
    uint32_t running;
    uint32_t failed; /* processes that ended with another status than they should */
    uint32_t exited; /* processes that called exit() in the midst, and ended by that */
    int start[2];
    int finish[2];
    bool is_over; /* the processes that are left are killed */
    uint64_t limit_ns;
    struct machine before, at_peak;
    double connect_seconds; /* until all pairs have exchanged their messages */
    double end_seconds;     /* from then on until all processes have ended */
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* --------------------------------------------------------------------------------- the machine */

/* Adds up the numbers behind a name, wherever it stands in the file's lines. */
static int64_t number_in(const char *path, const char *line_name, const char *name)
{
    char line[4096];
    int64_t sum = 0;
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *at = strncmp(line, line_name, strlen(line_name)) == 0 ? strstr(line, name)
                                                                          : NULL;
        sum += at == NULL ? 0 : strtoll(at + strlen(name), NULL, 10);
    }
    if (file != NULL) {
        fclose(file);
    }
    return sum;
}

static struct machine look_at_machine(const struct parent *parent)
{
    static const char sockets[] = "/proc/self/net/sockstat";
    static const char memory[] = "/proc/meminfo";
    struct machine machine = {
        .tcp_sockets = number_in(sockets, "TCP:", "inuse"),
        .tcp_bytes = number_in(sockets, "TCP:", "mem") * sysconf(_SC_PAGESIZE),
        .kernel_bytes = 1024 * (number_in(memory, "Slab:", "Slab:") +
                                number_in(memory, "KernelStack:", "KernelStack:") +
                                number_in(memory, "PageTables:", "PageTables:")),
    };
    for (uint32_t i = 0; i < parent->storm->options.processes; i++) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)parent->pids[i]);
        machine.pss_bytes += parent->pids[i] > 0 ? 1024 * number_in(path, "Pss:", "Pss:") : 0;
    }
    return machine;
}

/* ----------------------------------------------------------------------------------- processes */

static void kill_all(struct parent *parent)
{
    parent->is_over = true;
    for (uint32_t i = 0; i < parent->storm->options.processes; i++) {
        if (parent->pids[i] > 0) {
            kill(parent->pids[i], SIGKILL);
        }
    }
}

static void note_end(struct parent *parent, pid_t pid, int status)
{
    for (uint32_t i = 0; i < parent->storm->options.processes; i++) {
        if (parent->pids[i] != pid) {
            continue;
        }
        parent->pids[i] = 0;
        parent->running--;
        const bool exits = parent->storm->options.exits && i % 2 == 0;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != (exits ? STORM_EXIT : 0)) {
            parent->failed++;
        } else if (exits) {
            parent->exited++;
        }
        if (WIFSIGNALED(status) && !parent->is_over) {
            fprintf(stderr, "storm: process %u died of signal %d\n", i, WTERMSIG(status));
        }
    }
}

static void reap(struct parent *parent, int flags)
{
    int status = 0;
    pid_t pid = 0;
    while (parent->running != 0 && (pid = waitpid(-1, &status, flags)) > 0) {
        note_end(parent, pid, status);
    }
}

static void start_process(struct parent *parent, uint32_t rank)
{
    pid_t pid = fork();
    if (pid < 0) {
        fprintf(stderr, "storm: process %u of %u: fork: %s\n", rank,
                parent->storm->options.processes, strerror(errno));
        kill_all(parent);
        exit(1);
    }
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(parent->start[1]);
        close(parent->finish[1]);
        end_counted(storm_process_run(parent->storm, rank));
    }
    parent->pids[rank] = pid;
    parent->running++;
}

/* Waits until all processes have counted, one of them has failed, a pair was given up, or the time
 * is over. True: all have counted. */
static bool wait_for_all(struct parent *parent, const _Atomic uint32_t *counter)
{
    struct storm *storm = parent->storm;
    struct pollfd news = { .fd = storm->news, .events = POLLIN };
    while (atomic_load(counter) != storm->options.processes) {
        uint64_t count = 0;
        if (poll(&news, 1, LOOK_MS) == 1 && read(storm->news, &count, sizeof(count)) < 0) {
            perror("storm: eventfd");
            return false;
        }
        reap(parent, WNOHANG);
        if (parent->failed != 0 || atomic_load(&storm->given_up) != 0) {
            return false;
        }
        if (now_ns() > parent->limit_ns) {
            fprintf(stderr, "storm: the time is over\n");
            return false;
        }
    }
    return true;
}

/* True: all ended, each with success. */
static bool wait_for_ends(struct parent *parent)
{
    while (parent->running != 0 && now_ns() < parent->limit_ns) {
        (void)poll(NULL, 0, LOOK_MS / 20);
        reap(parent, WNOHANG);
    }
    if (parent->running != 0) {
        fprintf(stderr, "storm: %u processes have not ended in time\n", parent->running);
        return false;
    }
    return parent->failed == 0;
}

/* Waits until all processes have exited that are to do so. */
static bool wait_for_exits(struct parent *parent)
{
    const uint32_t exits = (parent->storm->options.processes + 1) / 2;
    while (parent->exited < exits && parent->failed == 0 && now_ns() < parent->limit_ns) {
        (void)poll(NULL, 0, LOOK_MS / 20);
        reap(parent, WNOHANG);
    }
    return parent->exited == exits && parent->failed == 0;
}

static bool run(struct parent *parent)
{
    struct storm *storm = parent->storm;
    for (uint32_t i = 0; i < storm->options.processes; i++) {
        start_process(parent, i);
    }
    if (!wait_for_all(parent, &storm->ready)) {
        return false;
    }
    parent->before = look_at_machine(parent);
    uint64_t start_ns = now_ns();
    atomic_store(&storm->start_ns, start_ns);
    close(parent->start[1]); /* all are told at once */
    if (storm->options.exits) {
        return wait_for_exits(parent);
    }
    bool all = wait_for_all(parent, &storm->done);
    parent->connect_seconds = (double)(now_ns() - start_ns) / 1e9;
    parent->at_peak = look_at_machine(parent);
    if (!all) {
        return false;
    }
    uint64_t end_ns = now_ns();
    close(parent->finish[1]);
    all = wait_for_ends(parent);
    parent->end_seconds = (double)(now_ns() - end_ns) / 1e9;
    return all;
}

/* -------------------------------------------------------------------------------------- report */

struct totals {
    uint64_t connected, accepted, stale, messages, wrong, lost, ends, wakes;
    uint32_t most_under_way;
    int64_t library_bytes; /* of all processes, at the peak */
    int64_t descriptors;   /* of the process that has most of them, at the peak */
    uint64_t first_done_ns, last_done_ns;
};

static struct totals add_up(const struct storm *storm)
{
    struct totals totals = { .first_done_ns = UINT64_MAX };
    for (uint32_t i = 0; i < storm->options.processes; i++) {
        const struct storm_process *each = &storm->each[i];
        totals.connected += each->connected;
        totals.accepted += each->accepted;
        totals.stale += each->stale;
        totals.messages += each->messages;
        totals.wrong += each->wrong;
        totals.lost += each->lost;
        totals.ends += each->ends;
        totals.wakes += each->wakes;
        totals.library_bytes += each->at_peak.library_bytes;
        if (each->most_under_way > totals.most_under_way) {
            totals.most_under_way = each->most_under_way;
        }
        if (each->at_peak.descriptors > totals.descriptors) {
            totals.descriptors = each->at_peak.descriptors;
        }
        if (each->done_ns < totals.first_done_ns) {
            totals.first_done_ns = each->done_ns;
        }
        if (each->done_ns > totals.last_done_ns) {
            totals.last_done_ns = each->done_ns;
        }
    }
    return totals;
}

static double processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void print_json(const struct parent *parent, bool is_right)
{
    const struct storm *storm = parent->storm;
    const struct storm_options *options = &storm->options;
    const struct totals totals = add_up(storm);
    const uint64_t pairs = (uint64_t)options->processes * (options->processes - 1) / 2;
    printf("{\"paths\":\"%s\",\"processes\":%u,\"pairs\":%llu,\"right\":%s,\"window\":%u,"
           "\"most_under_way\":%u,\"shared_receives\":%s,\n",
           options->paths, options->processes, (unsigned long long)pairs,
           is_right ? "true" : "false", options->window, totals.most_under_way,
           options->shares ? "true" : "false");
    printf(" \"connected\":%llu,\"accepted\":%llu,\"stale\":%llu,\"messages\":%llu,\"wrong\":%llu,"
           "\"lost\":%llu,\"ends\":%llu,\"failed_setups\":%u,\"given_up\":%u,\"exited\":%u,\n",
           (unsigned long long)totals.connected, (unsigned long long)totals.accepted,
           (unsigned long long)totals.stale, (unsigned long long)totals.messages,
           (unsigned long long)totals.wrong, (unsigned long long)totals.lost,
           (unsigned long long)totals.ends, storm->reasons.total, atomic_load(&storm->given_up),
           parent->exited);
    printf(" \"connect_seconds\":%.3f,\"end_seconds\":%.3f,\"processor_seconds\":%.3f,"
           "\"first_done_seconds\":%.3f,\"last_done_seconds\":%.3f,\"wakes\":%llu,\n",
           parent->connect_seconds, parent->end_seconds, processor_seconds(),
           (double)totals.first_done_ns / 1e9, (double)totals.last_done_ns / 1e9,
           (unsigned long long)totals.wakes);
    printf(" \"pss_bytes\":%lld,\"library_bytes\":%lld,\"kernel_bytes\":%lld,\"tcp_sockets\":%lld,"
           "\"tcp_bytes\":%lld,\"descriptors_of_one\":%lld,\n \"reasons\":[",
           (long long)(parent->at_peak.pss_bytes - parent->before.pss_bytes),
           (long long)totals.library_bytes,
           (long long)(parent->at_peak.kernel_bytes - parent->before.kernel_bytes),
           (long long)(parent->at_peak.tcp_sockets - parent->before.tcp_sockets),
           (long long)(parent->at_peak.tcp_bytes - parent->before.tcp_bytes),
           (long long)totals.descriptors);
    const uint32_t count = storm->reasons.count + (storm->reasons.all[REASONS_MAX - 1].count != 0);
    for (uint32_t i = 0; i < count; i++) {
        const struct reason *reason = &storm->reasons.all[i];
        printf("%s\n  {\"count\":%u,\"where\":\"%s\",\"status\":\"%s\",\"text\":\"%s\"}",
               i == 0 ? "" : ",", reason->count, reason->where,
               rdmux_status_name((enum rdmux_status)reason->status), reason->text);
    }
    printf("]}\n");
}

/* ------------------------------------------------------------------------------------- options */

static const char usage_text
    [] = "usage: storm [OPTION...] PROCESSES\n"
         "Processes connect all to all at once, exchange a checked message for each pair and "
         "direction,\n"
         "and end. Prints a JSON object; the exit status is 1 unless all was right.\n"
         "  --paths NAMES      as in rdmux_fabric_attr.paths (default: tcp)\n"
         "  --plugin FILE      loads this plug-in\n"
         "  --window N         set-ups that a process has under way as connector (default: all)\n"
         "  --retries N        of one pair (default: 20)\n"
         "  --setup-ms N       limit of a set-up and of its path's attempt (default: 120000)\n"
         "  --liveness MS      (default: 120000)\n"
         "  --depth N          of each endpoint's queues (default: 64)\n"
         "  --shared           the endpoints of a process share their receives\n"
         "  --count            counts the library's memory, too, which is then touched as a whole\n"
         "  --backlog N, --max-pending N, --max-waiting N, --max-setups N\n"
         "                     as in rdmux_listen_attr (default: rdmux's own)\n"
         "  --limit SECONDS    ends it then (default: 900)\n"
         "  --flaw NAME        plants one: message, descriptor, mapping, end\n"
         "  --exit             processes of even rank call exit() in the midst, with all open\n"
         "  --check            only says which limits of this machine are too low, if any are\n"
         "The exit status is 77 if a limit is too low.\n";

static _Noreturn void refuse(const char *what, const char *value)
{
    fprintf(stderr, "storm: %s '%s'\n%s", what, value, usage_text);
    exit(2);
}

static uint32_t number(const char *name, const char *text, uint32_t least, uint32_t most)
{
    char *end = NULL;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || *text == '-' || value < least || value > most) {
        fprintf(stderr, "storm: %s takes a number from %u to %u\n", name, least, most);
        refuse("not", text);
    }
    return (uint32_t)value;
}

static enum storm_flaw flaw_of(const char *name)
{
    static const char *const names[] = { "message", "descriptor", "mapping", "end" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return (enum storm_flaw)(STORM_FLAW_MESSAGE + i);
        }
    }
    refuse("there is no flaw", name);
}

static uint32_t take_options(int argc, char **argv, struct storm_options *options)
{
    enum {
        PATHS,
        PLUGIN,
        WINDOW,
        RETRIES,
        SETUP,
        DEPTH,
        SHARED,
        COUNT,
        BACKLOG,
        PENDING,
        WAITING,
        SETUPS,
        LIMIT,
        FLAW,
        EXIT,
        CHECK,
        LIVENESS
    };
    static const struct option names[] = {
        { "paths", 1, NULL, PATHS },         { "plugin", 1, NULL, PLUGIN },
        { "window", 1, NULL, WINDOW },       { "retries", 1, NULL, RETRIES },
        { "setup-ms", 1, NULL, SETUP },      { "depth", 1, NULL, DEPTH },
        { "shared", 0, NULL, SHARED },       { "count", 0, NULL, COUNT },
        { "backlog", 1, NULL, BACKLOG },     { "max-pending", 1, NULL, PENDING },
        { "max-waiting", 1, NULL, WAITING }, { "max-setups", 1, NULL, SETUPS },
        { "limit", 1, NULL, LIMIT },         { "flaw", 1, NULL, FLAW },
        { "liveness", 1, NULL, LIVENESS },   { "exit", 0, NULL, EXIT },
        { "check", 0, NULL, CHECK },         { NULL, 0, NULL, 0 },
    };
    uint32_t limit_seconds = 900;
    int index = 0;
    for (int option; (option = getopt_long(argc, argv, "", names, &index)) >= 0;) {
        switch (option) {
        case PATHS:
            options->paths = optarg;
            break;
        case PLUGIN:
            options->plugin = optarg;
            break;
        case WINDOW:
            options->window = number("--window", optarg, 1, STORM_PROCESSES_MAX);
            break;
        case RETRIES:
            options->retries = number("--retries", optarg, 0, 1000);
            break;
        case SETUP:
            options->setup_ms = number("--setup-ms", optarg, 10, 3600000);
            break;
        case DEPTH:
            options->depth = number("--depth", optarg, 1, 65536);
            break;
        case SHARED:
            options->shares = true;
            break;
        case COUNT:
            options->counts_blocks = true;
            break;
        case BACKLOG:
            options->listen.backlog = number("--backlog", optarg, 1, 65535);
            break;
        case PENDING:
            options->listen.max_pending = number("--max-pending", optarg, 1, 65535);
            break;
        case WAITING:
            options->listen.max_waiting_per_address = number("--max-waiting", optarg, 1, 65535);
            break;
        case SETUPS:
            options->listen.max_setups = number("--max-setups", optarg, 1, 65535);
            break;
        case LIMIT:
            limit_seconds = number("--limit", optarg, 1, 86400);
            break;
        case LIVENESS:
            options->liveness_ms = number("--liveness", optarg, 100, 3600000);
            break;
        case EXIT:
            options->exits = true;
            break;
        case CHECK:
            options->only_checks = true;
            break;
        case FLAW:
            options->flaw = flaw_of(optarg);
            break;
        default:
            fputs(usage_text, stderr);
            exit(2);
        }
    }
    if (optind != argc - 1) {
        fputs(usage_text, stderr);
        exit(2);
    }
    options->processes = number("PROCESSES", argv[optind], 2, STORM_PROCESSES_MAX);
    return limit_seconds;
}

/* A limit of this machine, and what the storm needs of it. */
struct need {
    const char *what;
    const char *remedy;
    uint64_t need;
    uint64_t have; /* 0: the system does not tell, so that it counts as enough */
};

static uint64_t first_number(const char *path)
{
    return (uint64_t)number_in(path, "", "");
}

/* Says which limits are too low. True: none is. */
static bool is_possible(const struct storm_options *options)
{
    const uint64_t processes = options->processes;
    const uint64_t endpoints = processes * (processes - 1);
    const uint64_t each = DESCRIPTORS_EACH * processes + DESCRIPTORS_MORE;
    const struct need needs[] = {
        { "descriptors of a process", "ulimit -Hn", each, usage_raise_descriptors() },
        { "descriptors of the system", "fs.file-max", each * processes,
          first_number("/proc/sys/fs/file-max") },
        { "mappings of a process", "vm.max_map_count", MAPPINGS_EACH * processes + MAPPINGS_MORE,
          first_number("/proc/sys/vm/max_map_count") },
        { "threads of the system", "kernel.threads-max", THREADS_EACH * processes,
          first_number("/proc/sys/kernel/threads-max") },
        { "KiB of free memory", "more memory",
          KIB_OF_ENDPOINT * endpoints + KIB_OF_PROCESS * processes,
          (uint64_t)number_in("/proc/meminfo", "MemAvailable:", "MemAvailable:") },
    };
    bool is_enough = true;
    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        if (needs[i].have != 0 && needs[i].have < needs[i].need) {
            fprintf(stderr, "storm: %u processes may need %llu %s, there are %llu (%s)\n",
                    options->processes, (unsigned long long)needs[i].need, needs[i].what,
                    (unsigned long long)needs[i].have, needs[i].remedy);
            is_enough = false;
        }
    }
    return is_enough;
}

int main(int argc, char **argv)
{
    struct storm_options options = {
        .paths = "tcp",
        .window = STORM_PROCESSES_MAX,
        .retries = 20,
        .setup_ms = 120000,
        .liveness_ms = 120000,
        .depth = 64,
        .listen = RDMUX_LISTEN_ATTR_INIT,
    };
    struct parent parent = { .failed = 0 };
    const uint64_t limit_seconds = take_options(argc, argv, &options);
    if (!is_possible(&options)) {
        return LIMITED;
    }
    if (options.only_checks) {
        return 0;
    }
    const size_t size = sizeof(struct storm) + options.processes * sizeof(struct storm_process);
    parent.storm = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (parent.storm == MAP_FAILED || pipe(parent.start) != 0 || pipe(parent.finish) != 0) {
        perror("storm");
        return 1;
    }
    parent.storm->options = options;
    parent.storm->start = parent.start[0];
    parent.storm->finish = parent.finish[0];
    parent.storm->news = eventfd(0, EFD_NONBLOCK);
    parent.limit_ns = now_ns() + limit_seconds * 1000000000U;
    reasons_init(&parent.storm->reasons);
    bool is_right = run(&parent);
    kill_all(&parent);
    reap(&parent, 0);
    print_json(&parent, is_right);
    return is_right ? 0 : 1;
}
