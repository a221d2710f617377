/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdmux perf: latency, bandwidth and message rate.
 *
 * The options make a plan: tests by sizes by paths. Each point of it is one measurement over
 * connections of its own. Its figures are shown at once and kept for what is printed at the end.
 */
#include "perf.h"

#include "json.h"
#include "options.h"
#include "outcome.h"
#include "perf_machine.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const char command_name[] = "perf";

enum {
    PATHS_MAX = 32,
    CELL_MAX = TOOL_NUMBER_MAX + 1,
    PATH_NAME_MAX = 2 * RDMUX_NAME_MAX + 2,
    SIZE_DEFAULT = 8,
    SIZE_DEFAULT_BANDWIDTH = 1 << 20,
};
static const double seconds_default = 3.0;
static const double seconds_default_of_several = 1.0;

/* A path that --paths all measures, or cannot. */
struct path {
    char provider[RDMUX_NAME_MAX];
    char device[RDMUX_NAME_MAX];
    char text[RDMUX_TEXT_MAX]; /* why it is not usable */
    uint32_t reason;           /* enum rdmux_reason */
    bool usable;
    bool by_device; /* another one has the same provider */
};

struct plan {
    struct perf_options options; /* op, test, size and paths differ from point to point */
    bool op_given, test_given, size_given, seconds_given, iterations_given, others_given;
    bool reverse, both, csv, compare;
    const char *sizes; /* as given */
    const char *plot;
    uint64_t first_size; /* of a range by powers of two */
    uint64_t last_size;
    unsigned tests[PERF_TEST_COUNT];
    size_t test_count;
    bool all_paths;
    bool single; /* one measurement: with the long report */
    struct path paths[PATHS_MAX];
    size_t path_count;

    /* What was measured. */
    struct perf_figures *figures;
    size_t figure_count;
    bool failed; /* a path of --paths all */
};

/* ------------------------------------------------------------------------------ one measurement */

static void report_single_json(const struct perf_figures *figures, FILE *out)
{
    struct json json;
    json_begin(&json, out);
    json_object_begin(&json, NULL);
    perf_report_json_members(figures, &json);
    json_object_end(&json);
    json_end(&json);
}

static void warn_if_busy(const struct perf_figures *figures)
{
    char warning[RDMUX_TEXT_MAX];
    if (perf_busy_warning(figures, warning) != NULL) {
        tool_notice(command_name, "warning: the machine was busy: %s; the figures are lower bounds",
                    warning);
    }
}

int tool_perf(const struct perf_options *options, FILE *out)
{
    struct perf_session session = { .signal_fd = -1 };
    struct perf_figures figures;
    int code = tool_fabric_open(command_name, &session.fabric);
    if (code != TOOL_OK) {
        return code;
    }
    code = perf_measure(&session, options, &figures);
    if (code == TOOL_OK) {
        if (options->json) {
            report_single_json(&figures, out);
        } else {
            perf_report_text(&figures, options, out);
        }
        free(figures.intervals);
    }
    rdmux_fabric_close(session.fabric);
    return code;
}

/* ---------------------------------------------------------------------------------------- paths */

/* Finds the paths of --paths all: those that the two sides would rank, and why not the others. */
static int find_paths(struct plan *plan, struct rdmux_fabric *fabric)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_explanation *explanation = NULL;
    enum rdmux_status status = rdmux_explain(fabric, plan->options.address, &attr,
                                             TOOL_CONNECT_TIMEOUT_MS, &explanation);
    if (status != RDMUX_OK && explanation == NULL) {
        if (status == RDMUX_REFUSED) {
            tool_refused(command_name, plan->options.address);
        } else {
            tool_error(command_name, "--paths all: cannot ask %s for its paths: %s: %s",
                       plan->options.address, rdmux_status_name(status), rdmux_last_error());
        }
        return tool_exit_code(status);
    }
    for (uint32_t i = 0; i < explanation->candidate_count && plan->path_count < PATHS_MAX; i++) {
        const struct rdmux_candidate *candidate = explanation->candidates[i];
        struct path *path = &plan->paths[plan->path_count];
        *path = (struct path){ .usable = candidate->rank != 0, .reason = candidate->reason };
        memcpy(path->provider, candidate->provider, sizeof(path->provider));
        memcpy(path->device, candidate->device, sizeof(path->device));
        memcpy(path->text, candidate->text, sizeof(path->text));
        bool known = false;
        for (size_t k = 0; path->usable && k < plan->path_count; k++) {
            struct path *other = &plan->paths[k];
            if (other->usable && strcmp(other->provider, path->provider) == 0) {
                bool same = strcmp(other->device, path->device) == 0;
                known = known || same;
                other->by_device = other->by_device || !same;
                path->by_device = path->by_device || !same;
            }
        }
        /* Two devices of the peer, one here: which is used is for the two sides to choose. */
        plan->path_count += known ? 0 : 1;
    }
    bool any = false;
    for (size_t i = 0; i < plan->path_count; i++) {
        any = any || plan->paths[i].usable;
    }
    if (!any) {
        tool_error(command_name, "--paths all: no path to %s is usable", plan->options.address);
        tool_print_explanation(stderr, explanation);
    }
    rdmux_explanation_free(explanation);
    return any ? TOOL_OK : TOOL_NO_PATH;
}

static void name_path(const struct path *path, char out[PATH_NAME_MAX])
{
    bool device = path->by_device && path->device[0] != '\0';
    snprintf(out, PATH_NAME_MAX, "%s%s%s", path->provider, device ? "/" : "",
             device ? path->device : "");
    text_clean(out);
}

/* ----------------------------------------------------------------------------------- the points */

/* Keeps figures. Returns false if memory is short. */
static bool keep(struct plan *plan, const struct perf_figures *figures)
{
    struct perf_figures *more = realloc(plan->figures, (plan->figure_count + 1) * sizeof(*more));
    if (more == NULL) {
        tool_error(command_name, "out of memory for the figures");
        free(figures->intervals);
        return false;
    }
    plan->figures = more;
    plan->figures[plan->figure_count++] = *figures;
    return true;
}

/* Whether a table's heading has to precede these figures. */
static bool needs_heading(const struct plan *plan, const struct perf_figures *figures)
{
    const struct perf_figures *last = plan->figure_count > 1
                                          ? &plan->figures[plan->figure_count - 2]
                                          : NULL;
    return last == NULL || last->test != figures->test ||
           strcmp(last->provider, figures->provider) != 0 ||
           strcmp(last->device, figures->device) != 0;
}

/* Shows the figures of a point at once, where they are not a cell of a larger row. */
static void show(const struct plan *plan, const struct perf_figures *figures)
{
    if (plan->options.json) {
        return;
    }
    if (plan->csv) {
        if (plan->figure_count == 1) {
            perf_report_csv_heading(stdout);
        }
        perf_report_csv(figures, stdout);
    } else if (plan->single) {
        perf_report_text(figures, &plan->options, stdout);
    } else if (!plan->all_paths) {
        if (needs_heading(plan, figures)) {
            fputs(plan->figure_count > 1 ? "\n" : "", stdout);
            perf_report_table_heading(figures, stdout);
        }
        perf_report_table_row(figures, stdout);
    }
    fflush(stdout);
}

/* Measures one point of the plan. *has: there are figures, the last ones of the plan. */
static int measure(struct plan *plan, struct perf_session *session,
                   const struct perf_options *options, bool *has)
{
    struct perf_figures figures;
    *has = false;
    int code = perf_measure(session, options, &figures);
    if (code != TOOL_OK) {
        return code;
    }
    if (perf_messages_per_second(&figures) <= 0) { /* interrupted before the first one was done */
        free(figures.intervals);
        return session->interrupted ? TOOL_INTERRUPTED : TOOL_OK;
    }
    if (!keep(plan, &figures)) {
        return TOOL_FAILED;
    }
    *has = true;
    show(plan, &figures);
    warn_if_busy(&figures);
    return session->interrupted ? TOOL_INTERRUPTED : TOOL_OK;
}

/* The heading of the table of --paths all. */
static void print_path_heading(const struct plan *plan)
{
    printf("%s to %s\n%-19s", perf_op_names[plan->options.op], plan->options.address, "");
    for (size_t i = 0; i < plan->path_count; i++) {
        if (plan->paths[i].usable) {
            char name[PATH_NAME_MAX];
            name_path(&plan->paths[i], name);
            printf(" %16s", name);
        }
    }
    putchar('\n');
}

static void print_unusable(const struct plan *plan)
{
    for (size_t i = 0; i < plan->path_count; i++) {
        const struct path *path = &plan->paths[i];
        if (!path->usable) {
            printf("not usable: %s%s", path->provider, path->device[0] != '\0' ? " " : "");
            text_print(stdout, path->device);
            printf(": %s: ", rdmux_reason_name((enum rdmux_reason)path->reason));
            text_print(stdout, path->text);
            putchar('\n');
        }
    }
}

/* Measures a test of one size over each path, and prints the row. */
static int measure_row(struct plan *plan, struct perf_session *session, struct perf_options *options)
{
    char size[TOOL_NUMBER_MAX];
    /* The row is printed at once: the line of progress uses the same line of a terminal. */
    char cells[PATHS_MAX * CELL_MAX] = "", bits[PATHS_MAX * CELL_MAX] = "";
    size_t length = 0, bits_length = 0;
    int code = TOOL_OK;
    for (size_t i = 0; i < plan->path_count; i++) {
        const struct path *path = &plan->paths[i];
        if (!path->usable) {
            continue;
        }
        char cell[TOOL_NUMBER_MAX] = "-", gbit[TOOL_NUMBER_MAX] = "";
        bool has = false;
        options->paths = path->provider;
        options->local = path->by_device ? path->device : NULL;
        int outcome = code == TOOL_OK ? measure(plan, session, options, &has) : code;
        if (has) {
            const struct perf_figures *figures = &plan->figures[plan->figure_count - 1];
            perf_format_figure(figures, cell);
            snprintf(gbit, sizeof(gbit), "%.3f Gbit/s", perf_bytes_per_second(figures) * 8 / 1e9);
        } else if (outcome != TOOL_OK && outcome != TOOL_INTERRUPTED) {
            plan->failed = true; /* the error was printed; the other paths go on */
            memcpy(cell, "failed", sizeof("failed"));
        }
        code = outcome == TOOL_INTERRUPTED ? outcome : code;
        length += (size_t)snprintf(cells + length, sizeof(cells) - length, " %16.31s", cell);
        bits_length += (size_t)snprintf(bits + bits_length, sizeof(bits) - bits_length, " %16.31s",
                                        gbit);
    }
    if (!plan->options.json && !plan->csv) {
        perf_format_size(options->size, size);
        printf("%-9s %9s%s\n", perf_test_names[options->test], size, cells);
        if (options->test == PERF_BANDWIDTH) {
            printf("%-19s%s\n", "", bits);
        }
        fflush(stdout);
    }
    return code;
}

static uint64_t default_size(const struct plan *plan, unsigned test)
{
    bool atomic = plan->options.op == PERF_FETCH_ADD || plan->options.op == PERF_COMPARE_SWAP;
    return test == PERF_BANDWIDTH && !atomic ? SIZE_DEFAULT_BANDWIDTH : SIZE_DEFAULT;
}

static int measure_all(struct plan *plan, struct perf_session *session)
{
    struct perf_options options = plan->options;
    if (plan->all_paths) {
        int code = find_paths(plan, session->fabric);
        if (code != TOOL_OK) {
            return code;
        }
        if (!plan->options.json && !plan->csv) {
            print_path_heading(plan);
        }
    }
    for (size_t i = 0; i < plan->test_count; i++) {
        options.test = plan->tests[i];
        uint64_t size = plan->size_given ? plan->first_size : default_size(plan, options.test);
        uint64_t last = plan->size_given ? plan->last_size : size;
        for (; size <= last; size = size == 0 ? 1 : size * 2) {
            bool has = false;
            options.size = size;
            int code = plan->all_paths ? measure_row(plan, session, &options)
                                       : measure(plan, session, &options, &has);
            if (code != TOOL_OK) {
                return code;
            }
            if (size == last) {
                break;
            }
        }
    }
    return plan->failed ? TOOL_FAILED : TOOL_OK;
}

/* -------------------------------------------------------------------------------------- the end */

static void report_all_json(const struct plan *plan, int code)
{
    char name[256] = "";
    gethostname(name, sizeof(name) - 1);
    struct json json;
    json_begin(&json, outcome_out());
    json_object_begin(&json, NULL);
    json_string(&json, "address", plan->options.address);
    json_bool(&json, "interrupted", code == TOOL_INTERRUPTED);
    json_bool(&json, "failed", code != TOOL_OK && code != TOOL_INTERRUPTED);
    json_object_begin(&json, "machine");
    json_string(&json, "name", name);
    json_unsigned(&json, "processors", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    json_object_end(&json);
    if (plan->all_paths) {
        json_array_begin(&json, "paths");
        for (size_t i = 0; i < plan->path_count; i++) {
            const struct path *path = &plan->paths[i];
            json_object_begin(&json, NULL);
            json_string(&json, "provider", path->provider);
            json_string(&json, "device", path->device);
            json_bool(&json, "usable", path->usable);
            json_string(&json, "reason", rdmux_reason_name((enum rdmux_reason)path->reason));
            json_string(&json, "text", path->text);
            json_object_end(&json);
        }
        json_array_end(&json);
    } else {
        json_null(&json, "paths");
    }
    json_array_begin(&json, "runs");
    for (size_t i = 0; i < plan->figure_count; i++) {
        json_object_begin(&json, NULL);
        perf_report_json_members(&plan->figures[i], &json);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
    json_end(&json);
}

/* Prints what comes at the end. Returns the exit code. */
static int finish(const struct plan *plan, int code)
{
    if (plan->options.json) {
        if (!plan->single) {
            report_all_json(plan, code);
        } else if (plan->figure_count > 0) {
            report_single_json(&plan->figures[0], outcome_out());
        }
    } else if (plan->all_paths && !plan->csv) {
        print_unusable(plan);
    }
    if (code == TOOL_INTERRUPTED) {
        tool_error(command_name, plan->figure_count > 0
                                     ? "interrupted; this was measured so far"
                                     : "interrupted before anything was measured");
    }
    if (plan->plot != NULL && plan->figure_count > 0) {
        int drawn = perf_plot(plan->plot, plan->figures, plan->figure_count, NULL);
        code = code == TOOL_OK ? drawn : code;
    }
    return code;
}

/* Makes the signals that end the command readable. They are blocked before the library starts its
 * threads, which inherit the mask. Returns -1 if that fails: the signals then end the command at
 * once. */
static int open_signals(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    int fd = signalfd(-1, &signals, SFD_CLOEXEC);
    if (fd >= 0) {
        sigprocmask(SIG_BLOCK, &signals, NULL);
    }
    return fd;
}

static int run_plan(struct plan *plan)
{
    if (plan->plot != NULL) {
        int code = perf_plot_check(plan->plot);
        if (code != TOOL_OK) {
            return code;
        }
    }
    bool text = !plan->options.json && !plan->csv;
    struct perf_session session = {
        .signal_fd = open_signals(),
        .lines = text && !plan->all_paths ? stdout : NULL,
    };
    int code = tool_fabric_open(command_name, &session.fabric);
    if (code == TOOL_OK) {
        code = finish(plan, measure_all(plan, &session));
        if (session.left_threads) {
            _exit(outcome_end(command_name, code));
        }
        rdmux_fabric_close(session.fabric);
    }
    for (size_t i = 0; i < plan->figure_count; i++) {
        free(plan->figures[i].intervals);
    }
    free(plan->figures);
    if (session.signal_fd >= 0) {
        close(session.signal_fd);
    }
    return code;
}

/* -------------------------------------------------------------------------------- the arguments */

/* Reads "8", "4K" or "8:16M". */
static bool read_sizes(struct plan *plan)
{
    const char *colon = strchr(plan->sizes, ':');
    char first[TOOL_NUMBER_MAX];
    size_t length = colon != NULL ? (size_t)(colon - plan->sizes) : strlen(plan->sizes);
    bool good = length < sizeof(first);
    if (good) {
        memcpy(first, plan->sizes, length);
        first[length] = '\0';
        good = options_read_size(first, &plan->first_size) &&
               plan->first_size <= PROTO_PERF_SIZE_MAX;
    }
    plan->last_size = plan->first_size;
    if (good && colon != NULL) {
        good = options_read_size(colon + 1, &plan->last_size) &&
               plan->last_size <= PROTO_PERF_SIZE_MAX && plan->first_size <= plan->last_size;
    }
    if (!good) {
        tool_error(command_name,
                   "--size: \"%s\" is no number from 0 to %d bytes, nor a range FIRST:LAST of them "
                   "(K and M are understood)",
                   plan->sizes, PROTO_PERF_SIZE_MAX);
    }
    return good;
}

/* Without --test: all that the other options allow. */
static void choose_tests(struct plan *plan)
{
    bool range = plan->size_given && plan->first_size != plan->last_size;
    bool atomic = plan->options.op == PERF_FETCH_ADD || plan->options.op == PERF_COMPARE_SWAP;
    if (plan->test_given) {
        plan->tests[plan->test_count++] = plan->options.test;
        return;
    }
    if (plan->options.direction == PERF_FORWARD) {
        plan->tests[plan->test_count++] = PERF_LATENCY;
    }
    if (!range) {
        plan->tests[plan->test_count++] = PERF_RATE;
    }
    if (!atomic) {
        plan->tests[plan->test_count++] = PERF_BANDWIDTH;
    }
}

static bool direction_fits(struct plan *plan)
{
    struct perf_options *options = &plan->options;
    const char *name = plan->reverse ? "--reverse" : "--both";
    if (plan->reverse && plan->both) {
        tool_error(command_name, "--reverse and --both exclude each other; give one of them");
        return false;
    }
    options->direction = plan->reverse ? PERF_REVERSE : plan->both ? PERF_BOTH : PERF_FORWARD;
    if (options->direction == PERF_FORWARD) {
        return true;
    }
    if (plan->test_given && options->test == PERF_LATENCY) {
        tool_error(command_name,
                   "%s: a latency test has one direction; use --test bandwidth or --test rate",
                   name);
        return false;
    }
    if (options->verify && !perf_op_sends(options->op)) {
        tool_error(command_name,
                   "--verify: with %s only sends are checked; use --op send or --op send_imm",
                   name);
        return false;
    }
    return true;
}

static bool threads_fit(struct plan *plan)
{
    struct perf_options *options = &plan->options;
    if (options->endpoints == 0) {
        options->endpoints = options->threads != 0 ? options->threads : 1;
    }
    if (options->threads > options->endpoints) {
        tool_error(command_name,
                   "--threads: %" PRIu64 " threads have no endpoint each with --endpoints %" PRIu64
                   "; use fewer threads, or more endpoints",
                   options->threads, options->endpoints);
        return false;
    }
    unsigned cpus[PERF_CPUS_MAX];
    char why[RDMUX_TEXT_MAX];
    if (options->cpus != NULL && perf_cpus_read(options->cpus, cpus, why) == 0) {
        tool_error(command_name, "--cpu: %s", why);
        return false;
    }
    return true;
}

static bool arguments_fit(struct plan *plan)
{
    struct perf_options *options = &plan->options;
    bool atomic = options->op == PERF_FETCH_ADD || options->op == PERF_COMPARE_SWAP;
    if (plan->seconds_given && plan->iterations_given) {
        tool_error(command_name, "--seconds and --iterations exclude each other; give one of them");
        return false;
    }
    if (options->json && plan->csv) {
        tool_error(command_name, "--json and --csv exclude each other; give one of them");
        return false;
    }
    if (plan->size_given && !read_sizes(plan)) {
        return false;
    }
    if (plan->size_given && !plan->op_given && plan->last_size > PERF_SEND_SIZE_MAX) {
        options->op = PERF_WRITE;
    }
    if (atomic && plan->size_given && (plan->first_size != 8 || plan->last_size != 8)) {
        tool_error(command_name, "--size: atomics are 8 bytes; leave --size away");
        return false;
    }
    if (perf_op_sends(options->op) && plan->size_given && plan->last_size > PERF_SEND_SIZE_MAX) {
        tool_error(command_name, "--size: a send is at most %d bytes; use --op write or --op read",
                   PERF_SEND_SIZE_MAX);
        return false;
    }
    if (options->batch > options->depth) {
        tool_error(command_name,
                   "--batch: a batch of %" PRIu64 " does not fit into --depth %" PRIu64,
                   options->batch, options->depth);
        return false;
    }
    if (!direction_fits(plan) || !threads_fit(plan)) {
        return false;
    }
    plan->all_paths = options->paths != NULL && strcmp(options->paths, "all") == 0;
    if (plan->all_paths && options->probe) {
        tool_error(command_name, "--probe: with --paths all no path is chosen; leave one away");
        return false;
    }
    choose_tests(plan);
    plan->single = !plan->all_paths && plan->test_count == 1 &&
                   (!plan->size_given || plan->first_size == plan->last_size ||
                    plan->first_size * 2 > plan->last_size);
    if (!plan->seconds_given) {
        options->seconds = plan->single ? seconds_default : seconds_default_of_several;
    }
    return true;
}

static int compare(const struct plan *plan, const char *const *files)
{
    if (files[1] == NULL) {
        tool_error(command_name, "--compare takes two files of --json: rdmux perf --compare "
                                 "BEFORE.json AFTER.json");
        return TOOL_USAGE;
    }
    if (plan->op_given || plan->test_given || plan->size_given || plan->seconds_given ||
        plan->iterations_given || plan->others_given) {
        tool_error(command_name, "--compare measures nothing; besides it only --json, --csv and "
                                 "--plot make sense");
        return TOOL_USAGE;
    }
    if (plan->options.json && plan->csv) {
        tool_error(command_name, "--json and --csv exclude each other; give one of them");
        return TOOL_USAGE;
    }
    struct perf_compare_options options = {
        .before = files[0],
        .after = files[1],
        .plot = plan->plot,
        .json = plan->options.json,
        .csv = plan->csv,
    };
    return perf_compare(&options, outcome_out());
}

int tool_perf_main(int argc, char **argv)
{
    static struct plan plan = { .options = { .size = SIZE_DEFAULT, .depth = 64, .batch = 1 } };
    struct perf_options *perf = &plan.options;
    const struct option_spec options[] = {
        { .name = "op",
          .kind = OPTION_CHOICE,
          .choice = &perf->op,
          .choices = perf_op_names,
          .given = &plan.op_given,
          .argument = "OP",
          .help = "send (default; write if --size exceeds 8M), write, read,\n"
                  "fetch_add, compare_swap, send_imm, write_imm" },
        { .name = "test",
          .kind = OPTION_CHOICE,
          .choice = &perf->test,
          .choices = perf_test_names,
          .given = &plan.test_given,
          .argument = "TEST",
          .help = "latency, bandwidth, rate; default: all of them, for a range\n"
                  "of sizes latency and bandwidth" },
        { .name = "size",
          .kind = OPTION_TEXT,
          .text = &plan.sizes,
          .given = &plan.size_given,
          .argument = "BYTES[:LAST]",
          .help = "bytes of an operation (8; 1M for bandwidth); K and M are\n"
                  "understood; 8:16M: a sweep of 8, 16, 32 and so on" },
        { .name = "seconds",
          .kind = OPTION_SECONDS,
          .seconds = &perf->seconds,
          .given = &plan.seconds_given,
          .argument = "S",
          .help = "how long each measurement takes (3; 1 if there are several)" },
        { .name = "iterations",
          .kind = OPTION_NUMBER,
          .number = &perf->iterations,
          .given = &plan.iterations_given,
          .min = 1,
          .max = UINT64_C(1) << 48,
          .argument = "N",
          .help = "number of operations of each endpoint, instead of a duration;\n"
                  "with --reverse and --both at least so many of each side" },
        { .name = "interval",
          .kind = OPTION_SECONDS,
          .seconds = &perf->interval,
          .given = &plan.others_given,
          .argument = "S",
          .help = "also report each S seconds" },
        { .name = "reverse",
          .kind = OPTION_FLAG,
          .flag = &plan.reverse,
          .given = &plan.others_given,
          .help = "the server posts the operations, to this side" },
        { .name = "both",
          .kind = OPTION_FLAG,
          .flag = &plan.both,
          .given = &plan.others_given,
          .help = "both sides post operations at once" },
        { .name = "endpoints",
          .kind = OPTION_NUMBER,
          .number = &perf->endpoints,
          .given = &plan.others_given,
          .min = 1,
          .max = PERF_ENDPOINTS_MAX,
          .argument = "N",
          .help = "endpoints to the server (1, or as many as threads); the\n"
                  "server drives all of them with one thread" },
        { .name = "threads",
          .kind = OPTION_NUMBER,
          .number = &perf->threads,
          .given = &plan.others_given,
          .min = 1,
          .max = PERF_THREADS_MAX,
          .argument = "N",
          .help = "threads of this side that drive them (1)" },
        { .name = "cpu",
          .kind = OPTION_TEXT,
          .text = &perf->cpus,
          .given = &plan.others_given,
          .argument = "LIST",
          .help = "pin the threads to these processors in turn: \"2\", \"0,2-3\"" },
        { .name = "depth",
          .kind = OPTION_NUMBER,
          .number = &perf->depth,
          .given = &plan.others_given,
          .min = 1,
          .max = PROTO_DEPTH_MAX,
          .argument = "D",
          .help = "requests under way in rate and bandwidth tests (64), on each\n"
                  "endpoint and side" },
        { .name = "batch",
          .kind = OPTION_NUMBER,
          .number = &perf->batch,
          .given = &plan.others_given,
          .min = 1,
          .max = PROTO_DEPTH_MAX,
          .argument = "B",
          .help = "requests posted together (1; by the server at most 64)" },
        { .name = "memory",
          .kind = OPTION_CHOICE,
          .choice = &perf->memory,
          .choices = perf_memory_names,
          .given = &plan.others_given,
          .argument = "KIND",
          .help = "registered (ordinary memory, default), allocated (by the library)" },
        { .name = "wait",
          .kind = OPTION_CHOICE,
          .choice = &perf->wait,
          .choices = perf_wait_names,
          .given = &plan.others_given,
          .argument = "HOW",
          .help = "poll (default), sleep; on both sides" },
        { .name = "verify",
          .kind = OPTION_FLAG,
          .flag = &perf->verify,
          .given = &plan.others_given,
          .help = "check the contents; costs time" },
        { .name = "paths",
          .kind = OPTION_TEXT,
          .text = &perf->paths,
          .given = &plan.others_given,
          .argument = "LIST",
          .help = "paths to consider: \"shm,tcp\", \"!shm\"; \"all\": measure each\n"
                  "usable path, side by side" },
        { .name = "probe",
          .kind = OPTION_FLAG,
          .flag = &perf->probe,
          .given = &plan.others_given,
          .help = "measure the paths before one is chosen" },
        { .name = "json", .kind = OPTION_FLAG, .flag = &perf->json, .help = "print JSON" },
        { .name = "csv",
          .kind = OPTION_FLAG,
          .flag = &plan.csv,
          .help = "print CSV, a line for each measurement and interval" },
        { .name = "plot",
          .kind = OPTION_TEXT,
          .text = &plan.plot,
          .argument = "FILE",
          .help = "draw the figures by size, a curve for each path: FILE.svg, or\n"
                  "FILE.png with the help of another program" },
        { .name = "compare",
          .kind = OPTION_FLAG,
          .flag = &plan.compare,
          .help = "compare two files of --json, and mark what differs by more\n"
                  "than the spread within the two runs" },
    };
    const struct command_spec command = {
        .name = command_name,
        .authenticates = true,
        .usage = "HOST[:PORT] [OPTION...] | --compare BEFORE.json AFTER.json",
        .description = "Measures operations to the server \"rdmux serve\" at HOST. Without "
                       "options:\n"
                       "the latency of sends of 8 bytes, their rate, and the bandwidth of sends "
                       "of\n"
                       "1 MiB, a second each. The latency of sends and writes is half the round "
                       "trip\n"
                       "of a ping-pong; that of read, fetch_add and compare_swap is a whole round\n"
                       "trip. Tests of rate and bandwidth keep --depth requests under way, and\n"
                       "count delivered operations. Ctrl-C ends the measurement, reports what was\n"
                       "measured so far and exits with 130; a second one ends at once.\n",
        .options = options,
        .option_count = TOOL_COUNT_OF(options),
        .positional_min = 1,
        .positional_max = 2,
    };
    const char *positionals[2];
    enum options_outcome outcome = options_parse(&command, argc, argv, positionals);
    if (outcome != OPTIONS_RUN) {
        return outcome == OPTIONS_HELP ? TOOL_OK : TOOL_USAGE;
    }
    if (plan.compare) {
        return compare(&plan, positionals);
    }
    if (positionals[1] != NULL) {
        tool_error(command_name, "\"%s\" is one argument too many; usage: rdmux perf %s",
                   positionals[1], command.usage);
        return TOOL_USAGE;
    }
    perf->address = positionals[0];
    if (tool_refuses_address(command_name, perf->address) || !arguments_fit(&plan)) {
        return TOOL_USAGE;
    }
    return run_plan(&plan);
}
