/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux-conformance: runs every case against every provider asked for, and prints TAP. */
#include "harness.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PROVIDERS_MAX = 16,
    PLUGINS_MAX = 16,
    EXIT_USAGE = 2,
};

static const struct suite *const suites[] = {
    &transfer_suite, &long_suite,    &batch_suite,   &order_suite,   &atomic_suite,
    &receive_suite,  &memory_suite,  &revoke_suite,  &wakeup_suite,  &passive_suite,
    &end_suite,      &failure_suite, &connect_suite, &hello_suite,   &adopt_suite,
    &objects_suite,  &library_suite, &model_suite,   &goodbye_suite,
};

struct program {
    const char *providers[PROVIDERS_MAX];
    size_t provider_count;
    const char *plugins[PLUGINS_MAX];
    const char *filter;
    bool list;
    bool times;
    struct run_options run;
    unsigned number; /* of the last test point */
    unsigned failed;
    uint64_t slowest_ns;
    const char *slowest;
};

static void usage(FILE *out)
{
    (void)fputs(
        "usage: rdmux-conformance [OPTION]...\n"
        "Checks that providers keep the rules of docs/SEMANTICS.md. TAP on stdout; exit 1: a case "
        "failed.\n"
        "  --provider NAME    check this one (may be repeated; default: tcp and shm, or with "
        "--plugin\n"
        "                     the providers the plug-in brings)\n"
        "  --plugin FILE.so   load this plug-in too (may be repeated)\n"
        "  --case SUBSTRING   only cases with this in their name, their rules or their suite\n"
        "  --quick            without the long cases\n"
        "  --thorough         also cases that need gigabytes of memory\n"
        "  --wait poll|sleep  how completions are waited for (default poll)\n"
        "  --seed NUMBER      of patterns and random choices (default: another one in each run)\n"
        "  --patience N       N times the time for everything (sanitisers, slow machines)\n"
        "  --list             print the cases and end\n",
        out);
}

static uint64_t number_of(const char *text, const char *option)
{
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &end, 0);
    if (errno != 0 || end == text || *end != '\0') {
        (void)fprintf(stderr, "rdmux-conformance: --%s %s is not a number\n", option, text);
        exit(EXIT_USAGE);
    }
    return value;
}

static void add(const char **list, size_t *count, size_t max, const char *value)
{
    if (*count == max) {
        (void)fprintf(stderr, "rdmux-conformance: more than %zu of one option\n", max);
        exit(EXIT_USAGE);
    }
    list[(*count)++] = value;
}

static void parse(struct program *program, int argc, char **argv)
{
    enum {
        PROVIDER = 1,
        PLUGIN,
        CASE,
        QUICK,
        THOROUGH,
        WAIT_STYLE,
        SEED,
        PATIENCE,
        LIST,
        TIMES,
        HELP
    };
    static const struct option options[] = {
        { "provider", required_argument, NULL, PROVIDER },
        { "plugin", required_argument, NULL, PLUGIN },
        { "case", required_argument, NULL, CASE },
        { "quick", no_argument, NULL, QUICK },
        { "thorough", no_argument, NULL, THOROUGH },
        { "wait", required_argument, NULL, WAIT_STYLE },
        { "seed", required_argument, NULL, SEED },
        { "patience", required_argument, NULL, PATIENCE },
        { "list", no_argument, NULL, LIST },
        { "times", no_argument, NULL, TIMES },
        { "help", no_argument, NULL, HELP },
        { NULL, 0, NULL, 0 },
    };
    int option = 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case PROVIDER:
            add(program->providers, &program->provider_count, PROVIDERS_MAX, optarg);
            break;
        case PLUGIN:
            add(program->plugins, &program->run.plugin_count, PLUGINS_MAX, optarg);
            break;
        case CASE:
            program->filter = optarg;
            break;
        case QUICK:
            program->run.quick = true;
            break;
        case THOROUGH:
            program->run.thorough = true;
            break;
        case WAIT_STYLE:
            program->run.sleeps = strcmp(optarg, "sleep") == 0;
            if (!program->run.sleeps && strcmp(optarg, "poll") != 0) {
                usage(stderr);
                exit(EXIT_USAGE);
            }
            break;
        case SEED:
            program->run.seed = number_of(optarg, "seed");
            break;
        case PATIENCE:
            program->run.patience = (unsigned)number_of(optarg, "patience");
            break;
        case LIST:
            program->list = true;
            break;
        case TIMES:
            program->times = true;
            break;
        case HELP:
            usage(stdout);
            exit(0);
        default:
            usage(stderr);
            exit(EXIT_USAGE);
        }
    }
    if (optind != argc || program->run.patience == 0 || program->run.patience > 1000) {
        usage(stderr);
        exit(EXIT_USAGE);
    }
}

/* ------------------------------------------------------------------------ what a plug-in brings */

/* Writes the providers of a fabric with these plug-ins, a line each. Runs in a process of its own:
 * the runner itself makes no rdmux call before it forks. */
static void write_providers(const char *const *plugins, size_t plugin_count, int out)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    size_t count = 0;
    attr.plugins = plugins;
    attr.plugin_count = plugin_count;
    if (rdmux_fabric_open(&attr, &fabric) != RDMUX_OK ||
        rdmux_fabric_paths(fabric, NULL, 0, &count) != RDMUX_OK) {
        _exit(1);
    }
    struct rdmux_path_info *paths = calloc(count + 1, sizeof(*paths));
    if (paths == NULL) {
        _exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        paths[i].size = (uint32_t)sizeof(paths[i]);
    }
    size_t now = 0;
    if (rdmux_fabric_paths(fabric, paths, count, &now) != RDMUX_OK) {
        _exit(1);
    }
    for (size_t i = 0; i < count && i < now; i++) {
        if (paths[i].reason == RDMUX_REASON_NO_LIBRARY ||
            paths[i].reason == RDMUX_REASON_BAD_PLUGIN) {
            continue;
        }
        (void)dprintf(out, "%.*s\n", (int)sizeof(paths[i].provider), paths[i].provider);
    }
    _exit(0);
}

static bool read_providers(const char *const *plugins, size_t plugin_count, char *text, size_t size)
{
    int ends[2];
    if (pipe(ends) != 0) {
        return false;
    }
    pid_t pid = fork();
    if (pid == 0) {
        write_providers(plugins, plugin_count, ends[1]);
    }
    (void)close(ends[1]);
    size_t used = 0;
    ssize_t count = 0;
    while (used + 1 < size && (count = read(ends[0], text + used, size - used - 1)) > 0) {
        used += (size_t)count;
    }
    text[used] = '\0';
    (void)close(ends[0]);
    int wait_status = 0;
    return pid > 0 && waitpid(pid, &wait_status, 0) == pid && wait_status == 0;
}

static bool has_line(const char *text, const char *line)
{
    size_t length = strlen(line);
    for (const char *at = strstr(text, line); at != NULL; at = strstr(at + 1, line)) {
        if ((at == text || at[-1] == '\n') && at[length] == '\n') {
            return true;
        }
    }
    return false;
}

/* Providers that are there with the plug-ins and not without. */
static void find_plugin_providers(struct program *program)
{
    static char with[4096];
    static char without[4096];
    if (!read_providers(program->plugins, program->run.plugin_count, with, sizeof(with) - 1) ||
        !read_providers(NULL, 0, without, sizeof(without) - 1)) {
        (void)printf("Bail out! a fabric with the plug-in does not open\n");
        exit(1);
    }
    char *rest = NULL;
    static char lines[sizeof(with)]; /* the providers' names stay in it */
    memcpy(lines, with, sizeof(lines));
    for (char *line = strtok_r(lines, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        bool known = has_line(without, line);
        for (size_t i = 0; i < program->provider_count; i++) {
            known = known || strcmp(program->providers[i], line) == 0;
        }
        if (!known) {
            add(program->providers, &program->provider_count, PROVIDERS_MAX, line);
        }
    }
    if (program->provider_count == 0) {
        (void)printf("Bail out! the plug-in brings no provider; name one with --provider\n");
        exit(1);
    }
}

/* ------------------------------------------------------------------------------ the plan */

static bool is_wanted(const struct program *program, const struct suite *suite,
                      const struct conformance_case *test)
{
    if ((test->flags & CASE_LONG) != 0 && program->run.quick) {
        return false;
    }
    if ((test->flags & CASE_THOROUGH) != 0 && !program->run.thorough) {
        return false;
    }
    return program->filter == NULL || strstr(test->name, program->filter) != NULL ||
           strstr(test->rule, program->filter) != NULL ||
           strstr(suite->name, program->filter) != NULL;
}

static void print_diagnostics(const char *text)
{
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        (void)printf("# %.*s\n", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

static void run_one(struct program *program, const char *provider,
                    const struct conformance_case *test, struct provider_caps *caps)
{
    static struct run_result result;
    uint64_t missing = caps->known ? test->needs & ~(caps->native | caps->emulated) : 0;
    run_case(test, provider, &program->run, caps, &result);
    program->number++;
    (void)printf("%s %u - %s: %s%s [rule %s]\n", result.passed ? "ok" : "not ok", program->number,
                 provider, missing == 0 ? "" : "the path lacks it, so it is refused: ", test->name,
                 test->rule);
    if (!result.passed) {
        program->failed++;
        print_diagnostics(result.text);
    }
    if (program->times) {
        (void)printf("# %" PRIu64 " ms\n", result.took_ns / 1000000);
    }
    if (result.took_ns > program->slowest_ns) {
        program->slowest_ns = result.took_ns;
        program->slowest = test->name;
    }
    (void)fflush(stdout);
}

static void smoke(struct side *side)
{
    side_open_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static const struct conformance_case first_case = {
    "N.1", "two processes connect through this provider and every operation does its work",
    0,     0,
    0,     smoke,
    smoke,
};

static void run_provider(struct program *program, const char *provider)
{
    struct provider_caps caps = { .known = false };
    run_one(program, provider, &first_case, &caps);
    if (!caps.known) {
        (void)printf("# %s: no further cases, as no endpoint uses this provider\n", provider);
        return;
    }
    for (size_t i = 0; i < COUNT_OF(suites); i++) {
        for (size_t j = 0; j < suites[i]->count; j++) {
            if (is_wanted(program, suites[i], &suites[i]->cases[j])) {
                run_one(program, provider, &suites[i]->cases[j], &caps);
            }
        }
    }
}

static void list_cases(const struct program *program)
{
    for (size_t i = 0; i < COUNT_OF(suites); i++) {
        for (size_t j = 0; j < suites[i]->count; j++) {
            const struct conformance_case *test = &suites[i]->cases[j];
            if (is_wanted(program, suites[i], test)) {
                (void)printf("%s: %s [rule %s]%s%s\n", suites[i]->name, test->name, test->rule,
                             (test->flags & CASE_LONG) != 0 ? " (long)" : "",
                             (test->flags & CASE_THOROUGH) != 0 ? " (thorough)" : "");
            }
        }
    }
}

int main(int argc, char **argv)
{
    static struct program program = { .run = { .patience = 1 } };
    uint64_t start = now_ns();
    program.run.seed = mix64(start ^ (uint64_t)getpid()) % 1000000;
    parse(&program, argc, argv);
    if (program.list) {
        list_cases(&program);
        return 0;
    }
    program.run.plugins = program.plugins;
    if (program.provider_count == 0 && program.run.plugin_count > 0) {
        find_plugin_providers(&program);
    }
    if (program.provider_count == 0) {
        add(program.providers, &program.provider_count, PROVIDERS_MAX, "tcp");
        add(program.providers, &program.provider_count, PROVIDERS_MAX, "shm");
    }
    (void)unsetenv("RDMUX_PATHS");

    sigset_t child;
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &child, NULL);

    for (size_t i = 0; i < program.provider_count; i++) {
        run_provider(&program, program.providers[i]);
    }
    (void)printf("# %u of %u failed, %" PRIu64 " ms, seed %" PRIu64 "; slowest, %" PRIu64
                 " ms: %s\n",
                 program.failed, program.number, ms_since(start), program.run.seed,
                 program.slowest_ns / 1000000, program.slowest);
    (void)printf("1..%u\n", program.number);
    return program.failed == 0 ? 0 : 1;
}
