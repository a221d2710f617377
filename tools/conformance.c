/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux conformance: runs every case against every requested provider. */
#include "conformance.h"

#include "conformance_peer.h"
#include "options.h"
#include "outcome.h"
#include "tests/conformance/random.h"
#include "timer.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PROVIDERS_MAX = 16,
    BAR_WIDTH = 28,
    REPLAY_MAX = 2048 + SEQUENCE_TEXT_MAX,
    PATIENCE_MAX = 1000,
    PROVIDERS_S = 60, /* after which a plug-in that lists its paths counts as hung */
    SHRINK_MS = 30000,
    SHRINK_THOROUGH_MS = 300000,
};

static const char command_name[] = "conformance";

/* Options and progress of the run. */
struct conformance {
    const char *providers[PROVIDERS_MAX];
    size_t provider_count;
    const struct option_list *parts; /* arguments of --case */
    bool wanted[256];                /* by rule index, rule_count entries */
    bool some_rules;                 /* --rules was given */
    bool times;
    enum conformance_format format;
    struct run_options run;
    struct peer peer; /* argument of --peer */
    struct conformance_run results;
    size_t planned; /* cases of all providers */
    size_t done;
    unsigned failed;
    bool bar; /* draw a bar on the terminal */
};

/* ---------------------------------------------------------------------- providers of plug-ins */

/* Begins a line with the reason why a plug-in was refused; other lines are provider names. */
enum { REFUSED_MARK = '!', PATH_LINES_MAX = 16384 };

/* Writes the providers of a fabric with these plug-ins, then the refused plug-ins, one per line.
 * Runs in a process of its own because the runner makes no rdmux call before it forks. */
static _Noreturn void write_providers(const struct option_list *plugins, int out)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    size_t count = 0;
    attr.plugins = plugins->values;
    attr.plugin_count = plugins->count;
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
        const struct rdmux_path_info *path = &paths[i];
        if (path->reason == RDMUX_REASON_NO_LIBRARY || path->reason == RDMUX_REASON_BAD_PLUGIN) {
            (void)dprintf(out, "%c%s: %s: %s; %s\n", REFUSED_MARK, path->provider,
                          rdmux_reason_name((enum rdmux_reason)path->reason), path->text,
                          path->hint);
        } else {
            (void)dprintf(out, "%s\n", path->provider);
        }
    }
    _exit(0);
}

static bool read_providers(const struct option_list *plugins, char *text, size_t size)
{
    int ends[2];
    if (pipe(ends) != 0) {
        return false;
    }
    pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(PROVIDERS_S);
        write_providers(plugins, ends[1]);
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

/* A line is a provider, or REFUSED_MARK, a provider and the reason why it is absent. */
static bool is_known(const char *lines, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = lines; *at != '\0';) {
        const char *begin = at + (*at == REFUSED_MARK ? 1 : 0);
        if (strncmp(begin, name, length) == 0 && (begin[length] == '\n' || begin[length] == ':')) {
            return true;
        }
        at += strcspn(at, "\n");
        at += *at == '\n' ? 1 : 0;
    }
    return false;
}

/* Writes the names in the lines, each once: "shm, tcp". */
static void list_names(const char *lines, char *out, size_t size)
{
    size_t used = 0;
    for (const char *at = lines; *at != '\0';) {
        const char *begin = at + (*at == REFUSED_MARK ? 1 : 0);
        size_t length = strcspn(begin, ":\n");
        bool listed = false;
        for (const char *other = lines; other < at && !listed;) {
            const char *name = other + (*other == REFUSED_MARK ? 1 : 0);
            listed = strcspn(name, ":\n") == length && strncmp(name, begin, length) == 0;
            other += strcspn(other, "\n");
            other += *other == '\n' ? 1 : 0;
        }
        if (!listed && used + length + 3 < size) {
            used += (size_t)snprintf(out + used, size - used, "%s%.*s", used != 0 ? ", " : "",
                                     (int)length, begin);
        }
        at += strcspn(at, "\n");
        at += *at == '\n' ? 1 : 0;
    }
}

static void take_provider(struct conformance *conformance, const char *name)
{
    bool known = conformance->provider_count == PROVIDERS_MAX;
    for (size_t i = 0; i < conformance->provider_count; i++) {
        known = known || strcmp(conformance->providers[i], name) == 0;
    }
    if (!known) {
        conformance->providers[conformance->provider_count++] = name;
    }
}

/* Returns an exit code. A provider that no plug-in and not the library has is a mistake in its
 * name. */
static int look_at_names(const struct conformance *conformance, const struct option_list *plugins)
{
    static char known[PATH_LINES_MAX];
    if (!read_providers(plugins, known, sizeof(known))) {
        return TOOL_OK; /* the first case has the reason */
    }
    for (size_t i = 0; i < conformance->provider_count; i++) {
        if (!is_known(known, conformance->providers[i])) {
            char names[512] = "";
            list_names(known, names, sizeof(names));
            tool_error(command_name, "--provider: there is no \"%s\"; there are: %s",
                       conformance->providers[i], names);
            return TOOL_USAGE;
        }
    }
    return TOOL_OK;
}

/* Compares the providers with and without the plug-ins. Reports refused plug-ins. Selects the
 * plug-ins' providers unless the user named some. Returns an exit code. */
static int look_at_plugins(struct conformance *conformance, const struct option_list *plugins)
{
    static char with[PATH_LINES_MAX]; /* the providers' names point into it */
    static char without[PATH_LINES_MAX];
    static const struct option_list none = { .count = 0 };
    bool were_named = conformance->provider_count > 0;
    if (!read_providers(plugins, with, sizeof(with)) ||
        !read_providers(&none, without, sizeof(without))) {
        tool_error(command_name, "a fabric with the plug-in does not open");
        return TOOL_FAILED;
    }
    bool refused = false;
    char *rest = NULL;
    for (char *line = strtok_r(with, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        if (has_line(without, line)) {
            continue;
        }
        if (line[0] == REFUSED_MARK) {
            tool_error(command_name, "--plugin: %s", line + 1);
            refused = true;
        } else if (!were_named) {
            take_provider(conformance, line);
        }
    }
    if (!refused && conformance->provider_count == 0) {
        tool_error(command_name,
                   "the plug-in has no provider that is not known already; name one with "
                   "--provider to try it");
    }
    return refused || conformance->provider_count == 0 ? TOOL_FAILED : TOOL_OK;
}

/* ------------------------------------------------------------------------------------ selection */

/* "6.1" selects that rule, "6" the whole chapter. */
static bool want_rules(struct conformance *conformance, const char *list)
{
    for (const char *at = list + strspn(list, ", "); *at != '\0'; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ", ");
        bool found = false;
        for (size_t i = 0; i < rule_count; i++) {
            bool chapter = strncmp(rules[i].id, at, length) == 0 && rules[i].id[length] == '.';
            if (chapter || rule_find(at, length) == &rules[i]) {
                conformance->wanted[i] = found = true;
            }
        }
        if (!found) {
            tool_error(
                command_name,
                "--rules: there is no rule %.*s; --list-rules names them, as docs/SEMANTICS.md "
                "does",
                (int)length, at);
            return false;
        }
        at += length;
    }
    return true;
}

static bool has_part(const struct suite *suite, const struct conformance_case *test,
                     const char *part)
{
    return strstr(test->name, part) != NULL || strstr(test->rule, part) != NULL ||
           strstr(suite->name, part) != NULL;
}

/* Returns whether the case cites one of the rules of --rules, or there are none. */
static bool cites_wanted(const struct conformance *conformance, const struct conformance_case *test)
{
    bool wanted = !conformance->some_rules;
    for (size_t i = 0; i < rule_count && !wanted; i++) {
        wanted = conformance->wanted[i] && case_cites(test, &rules[i]);
    }
    return wanted;
}

static bool is_wanted(const struct conformance *conformance, const struct suite *suite,
                      const struct conformance_case *test)
{
    const struct option_list *parts = conformance->parts;
    bool matches = parts->count == 0;
    for (size_t i = 0; i < parts->count && !matches; i++) {
        matches = has_part(suite, test, parts->values[i]);
    }
    return matches && cites_wanted(conformance, test);
}

/* Returns whether a case has the part (NULL: any) and cites a wanted rule. */
static bool is_there(const struct conformance *conformance, const char *part)
{
    for (size_t i = 0; i < suite_count; i++) {
        for (size_t j = 0; j < suites[i]->count; j++) {
            const struct conformance_case *test = &suites[i]->cases[j];
            if ((part == NULL || has_part(suites[i], test, part)) &&
                cites_wanted(conformance, test)) {
                return true;
            }
        }
    }
    return false;
}

/* A run without cases must not count as passed, nor may one part of it be without. */
static bool check_parts(const struct conformance *conformance)
{
    const struct option_list *parts = conformance->parts;
    const char *of_rules = conformance->some_rules ? " and is one of these rules" : "";
    if (parts->count == 0 && !is_there(conformance, NULL)) {
        tool_error(command_name, "--rules: no case has one of these rules; --list names them all");
        return false;
    }
    for (size_t i = 0; i < parts->count; i++) {
        if (!is_there(conformance, parts->values[i])) {
            tool_error(command_name,
                       "--case: no case has \"%s\" in its name%s; --list names them all",
                       parts->values[i], of_rules);
            return false;
        }
    }
    return true;
}

/* Returns the reason for leaving the case out, NULL if it is to run. */
static const char *why_left_out(const struct conformance *conformance,
                                const struct conformance_case *test)
{
    if ((test->flags & CASE_LONG) != 0 && conformance->run.quick) {
        return "left out by --quick";
    }
    if ((test->flags & CASE_ONE_HOST) != 0 && conformance->results.peer != NULL) {
        return "not here: it needs both processes on one host";
    }
    if ((test->flags & CASE_THOROUGH) != 0 && memory_available() < CASE_THOROUGH_MEMORY) {
        return "not on this host: it needs 10 GiB of free memory";
    }
    if ((test->flags & CASE_THOROUGH) != 0 && !conformance->run.thorough) {
        return "only with --thorough";
    }
    return NULL;
}

/* The first case shows whether the provider is usable and what it supports, so it always runs. */
static size_t count_planned(const struct conformance *conformance)
{
    size_t count = 1;
    for (size_t i = 1; i < suite_count; i++) {
        for (size_t j = 0; j < suites[i]->count; j++) {
            const struct conformance_case *test = &suites[i]->cases[j];
            count += is_wanted(conformance, suites[i], test) &&
                     why_left_out(conformance, test) == NULL;
        }
    }
    return count;
}

/* Without --rules, all rules are reported; with --case, the rules that its cases cite. */
static void want_the_rest(struct conformance *conformance)
{
    for (size_t rule = 0; rule < rule_count && !conformance->some_rules; rule++) {
        conformance->wanted[rule] = conformance->parts->count == 0;
        for (size_t i = 0; i < suite_count && !conformance->wanted[rule]; i++) {
            for (size_t j = 0; j < suites[i]->count && !conformance->wanted[rule]; j++) {
                const struct conformance_case *test = &suites[i]->cases[j];
                conformance->wanted[rule] = is_wanted(conformance, suites[i], test) &&
                                            case_cites(test, &rules[rule]);
            }
        }
    }
}

/* ------------------------------------------------------------------------------------- progress */

static void clear_bar(const struct conformance *conformance)
{
    if (conformance->bar) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}

static void draw_bar(const struct conformance *conformance, const char *provider, const char *name)
{
    if (!conformance->bar) {
        return;
    }
    size_t total = conformance->planned * conformance->provider_count;
    char bar[BAR_WIDTH + 1];
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', conformance->done * BAR_WIDTH / total);
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %zu of %zu", bar, conformance->done, total);
    if (conformance->failed > 0) {
        fprintf(stderr, ", %u failed", conformance->failed);
    }
    fprintf(stderr, ", %s: %.30s\033[K", provider, name);
    fflush(stderr);
}

static void print_diagnostics(const char *text)
{
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        printf("# %.*s\n", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

static void print_tap(const struct conformance *conformance, const char *provider,
                      const struct case_result *result)
{
    if (conformance->format != FORMAT_TAP) {
        return;
    }
    bool failed = result->outcome == CASE_FAILED || result->outcome == CASE_FAILED_TO_REFUSE;
    bool refusal = result->outcome == CASE_REFUSED || result->outcome == CASE_FAILED_TO_REFUSE;
    bool left_out = result->outcome == CASE_LEFT_OUT;
    printf("%s %zu - %s: %s%s [rule %s]%s%s\n", failed ? "not ok" : "ok", conformance->done,
           provider, refusal ? "the path lacks it, so it is refused: " : "", result->test->name,
           result->test->rule, left_out ? " # SKIP not applicable: " : "",
           left_out ? result->why : "");
    if (failed) {
        print_diagnostics(result->text);
        printf("# again: %s\n", result->replay);
    }
    if (conformance->times) {
        printf("# %" PRIu64 " ms\n", result->took_ns / 1000000);
    }
    fflush(stdout);
}

/* ---------------------------------------------------------------------------- running the cases */

static char *replay_of(const struct conformance *conformance, const char *provider,
                       const struct conformance_case *test, const char *sequence)
{
    char text[REPLAY_MAX] = "";
    size_t used = 0;
    FILE *out = fmemopen(text, sizeof(text) - 1, "w");
    if (out == NULL) {
        return NULL;
    }
    const struct run_options *run = &conformance->run;
    fputs("rdmux conformance", out);
    if (run->key_file != NULL) {
        fprintf(out, " --key-file %s", run->key_file);
    }
    for (size_t i = 0; i < run->plugin_count; i++) {
        fprintf(out, " --plugin %s", run->plugins[i]);
    }
    if (conformance->results.peer != NULL) {
        fprintf(out, " --peer %s", conformance->results.peer);
    }
    fprintf(out, " --provider %s --case \"%s\" --seed %" PRIu64, provider, test->name, run->seed);
    fputs(run->sleeps ? " --wait sleep" : "", out);
    fputs(run->quick ? " --quick" : "", out);
    fputs(run->thorough ? " --thorough" : "", out);
    if (sequence != NULL && *sequence != '\0') {
        fprintf(out, " --sequence %s", sequence);
    }
    if (run->patience != 1) {
        fprintf(out, " --patience %u", run->patience);
    }
    fclose(out);
    used = strlen(text);
    return strndup(text, used);
}

/* Shortens a random case that failed. Returns the command that runs the rest. */
static char *shortest_replay(struct conformance *conformance, const struct case_place *place,
                             const struct provider_results *provider, struct run_result *result)
{
    const struct conformance_case *test = &suites[place->suite]->cases[place->test];
    char sequence[SEQUENCE_TEXT_MAX];
    const char *given = conformance->run.sequence;
    if (given != NULL) {
        snprintf(sequence, sizeof(sequence), "%s", given);
    } else if ((test->flags & (CASE_RANDOM | CASE_ROWS)) != 0) {
        static char first[sizeof(result->text)];
        uint64_t limit_ms = conformance->run.thorough ? SHRINK_THOROUGH_MS : SHRINK_MS;
        memcpy(first, result->text, sizeof(first));
        draw_bar(conformance, provider->name, "looking for the shortest sequence");
        ((test->flags & CASE_ROWS) != 0 ? shrink_rows : shrink)(
            place, provider->name, &conformance->run, &provider->caps,
            limit_ms * conformance->run.patience, result, sequence);
        if (sequence[0] != '\0') {
            size_t used = strlen(result->text);
            snprintf(result->text + used, sizeof(result->text) - used, "with all of them:\n%s",
                     first);
        }
    } else {
        sequence[0] = '\0';
    }
    return replay_of(conformance, provider->name, test, sequence);
}

static void run_one(struct conformance *conformance, struct provider_results *provider,
                    const struct case_place *place)
{
    const struct suite *suite = suites[place->suite];
    const struct conformance_case *test = &suite->cases[place->test];
    static struct run_result result;
    struct case_result *kept = &provider->cases[provider->count++];
    *kept = (struct case_result){ .suite = suite, .test = test };
    kept->why = why_left_out(conformance, test);
    if (kept->why != NULL) {
        kept->outcome = CASE_LEFT_OUT;
        return;
    }
    draw_bar(conformance, provider->name, test->name);
    uint64_t missing = caps_missing(&provider->caps, test->needs);
    run_case(place, provider->name, &conformance->run, &provider->caps, &result);
    kept->is_run = true;
    kept->took_ns = result.took_ns;
    provider->took_ns += result.took_ns;
    conformance->done++;
    kept->outcome = missing == 0 ? CASE_PASSED : CASE_REFUSED;
    if (result.left_out) {
        kept->outcome = CASE_LEFT_OUT;
        kept->text = strdup(result.text);
        kept->why = kept->text == NULL ? "not here" : kept->text;
    }
    if (!result.passed) {
        kept->outcome = missing == 0 ? CASE_FAILED : CASE_FAILED_TO_REFUSE;
        kept->replay = missing == 0 ? shortest_replay(conformance, place, provider, &result)
                                    : replay_of(conformance, provider->name, test, NULL);
        snprintf(kept->rule, sizeof(kept->rule), "%s", result.rule);
        kept->text = strdup(result.text);
        conformance->failed++;
    }
    clear_bar(conformance);
    print_tap(conformance, provider->name, kept);
}

static void run_provider(struct conformance *conformance, struct provider_results *provider)
{
    for (size_t i = 0; i < suite_count; i++) {
        for (size_t j = 0; j < suites[i]->count; j++) {
            if (i > 0 && !is_wanted(conformance, suites[i], &suites[i]->cases[j])) {
                continue;
            }
            run_one(conformance, provider, &(struct case_place){ i, j });
            if (!provider->caps.known) {
                want_rules(conformance, suites[i]->cases[j].rule);
                if (conformance->format == FORMAT_TAP) {
                    printf("# %s: no further cases, as no endpoint uses this provider\n",
                           provider->name);
                }
                return;
            }
        }
    }
}

static bool any_rule_failed(const struct conformance_run *results)
{
    for (size_t i = 0; i < results->provider_count; i++) {
        if (judge_all(results, &results->providers[i]).failed > 0) {
            return true;
        }
    }
    return false;
}

/* Keeps the first failure as the reason why the command fails. */
static void keep_failure(const struct conformance_run *results)
{
    for (size_t i = 0; i < results->provider_count; i++) {
        const struct provider_results *provider = &results->providers[i];
        for (size_t j = 0; j < provider->count; j++) {
            const struct case_result *result = &provider->cases[j];
            if (result->replay != NULL) {
                char text[REPLAY_MAX + RDMUX_TEXT_MAX];
                snprintf(text, sizeof(text), "%s breaks rule %s: %s; %s", provider->name,
                         result->rule[0] != '\0' ? result->rule : result->test->rule,
                         result->test->name, result->replay);
                outcome_error(text);
                return;
            }
        }
    }
    outcome_error("a rule that is advertised has no case that saw it kept; \"why\" of the rules "
                  "that fail has the reason");
}

static void report(const struct conformance *conformance)
{
    switch (conformance->format) {
    case FORMAT_TEXT:
        report_text(&conformance->results, stdout);
        break;
    case FORMAT_TAP:
        report_tap(&conformance->results, stdout);
        break;
    case FORMAT_JUNIT:
        report_junit(&conformance->results, stdout);
        break;
    case FORMAT_JSON:
        report_json(&conformance->results, stdout);
        break;
    case FORMAT_HTML:
        report_html(&conformance->results, stdout);
        break;
    case FORMAT_JSON_OBJECT:
        report_json_object(&conformance->results, outcome_out());
        break;
    }
}

static void free_results(struct conformance_run *results)
{
    for (size_t i = 0; results->providers != NULL && i < results->provider_count; i++) {
        for (size_t j = 0; j < results->providers[i].count; j++) {
            free(results->providers[i].cases[j].text);
            free(results->providers[i].cases[j].replay);
        }
        free(results->providers[i].cases);
    }
    free(results->providers);
}

static int run_all(struct conformance *conformance)
{
    struct conformance_run *results = &conformance->results;
    size_t cases = 1;
    for (size_t i = 0; i < suite_count; i++) {
        cases += suites[i]->count;
    }
    results->seed = conformance->run.seed;
    results->wanted = conformance->wanted;
    results->provider_count = conformance->provider_count;
    results->providers = calloc(PROVIDERS_MAX, sizeof(*results->providers));
    for (size_t i = 0; results->providers != NULL && i < conformance->provider_count; i++) {
        results->providers[i].name = conformance->providers[i];
        results->providers[i].cases = calloc(cases, sizeof(*results->providers[i].cases));
        if (results->providers[i].cases == NULL) {
            free_results(results);
            results->providers = NULL;
        }
    }
    if (results->providers == NULL) {
        tool_error(command_name, "out of memory");
        return TOOL_FAILED;
    }
    for (size_t i = 0; i < conformance->provider_count; i++) {
        run_provider(conformance, &results->providers[i]);
    }
    report(conformance);
    bool failed = conformance->failed > 0 || any_rule_failed(results);
    if (failed) {
        keep_failure(results);
    }
    free_results(results);
    return failed ? TOOL_FAILED : TOOL_OK;
}

/* --------------------------------------------------------------------------------------- lists */

static void list_cases(const struct conformance *conformance)
{
    for (size_t i = 0; i < suite_count; i++) {
        for (size_t j = 0; j < suites[i]->count; j++) {
            const struct conformance_case *test = &suites[i]->cases[j];
            if (is_wanted(conformance, suites[i], test)) {
                printf("%s: %s [rule %s]%s%s\n", suites[i]->name, test->name, test->rule,
                       (test->flags & CASE_LONG) != 0 ? " (long)" : "",
                       (test->flags & CASE_THOROUGH) != 0 ? " (thorough)" : "");
            }
        }
    }
}

struct rule_cases {
    unsigned positive;
    unsigned negative;
    unsigned always; /* cases that run on every path which advertises the rule */
};

static struct rule_cases cases_of(const struct rule *rule)
{
    struct rule_cases cases = { 0 };
    for (size_t i = 0; i < suite_count; i++) {
        for (size_t j = 0; j < suites[i]->count; j++) {
            const struct conformance_case *test = &suites[i]->cases[j];
            const char *at = test->rule;
            struct citation citation;
            while (citation_next(&at, &citation)) {
                if (citation.rule == rule) {
                    cases.positive += !citation.negative;
                    cases.negative += citation.negative;
                    cases.always += (test->needs & ~(rule->needs | NEEDS_BASICS)) == 0 &&
                                    (test->flags & CASE_THOROUGH) == 0;
                }
            }
        }
    }
    return cases;
}

static void list_unknown_citations(void)
{
    for (size_t i = 0; i < suite_count; i++) {
        for (size_t j = 0; j < suites[i]->count; j++) {
            const char *at = suites[i]->cases[j].rule;
            struct citation citation;
            while (citation_next(&at, &citation)) {
                if (citation.rule == NULL) {
                    printf("%.*s\tunknown, cited by: %s\n", (int)citation.length, citation.text,
                           suites[i]->cases[j].name);
                }
            }
        }
    }
}

/* Prints a line for each rule, with tabs between its fields. */
static void list_rules(void)
{
    for (size_t i = 0; i < rule_count; i++) {
        struct rule_cases cases = cases_of(&rules[i]);
        printf("%s\t%s\t", rules[i].id, rules[i].title);
        const char *comma = "";
        for (unsigned bit = 0; tool_capability_name(bit) != NULL; bit++) {
            if ((rules[i].needs >> bit & 1) != 0) {
                printf("%s%s", comma, tool_capability_name(bit));
                comma = ",";
            }
        }
        if ((rules[i].needs & NEEDS_FAILOVER) != 0) {
            printf("%sfailover", comma);
            comma = ",";
        }
        if ((rules[i].needs & NEEDS_BREAKS) != 0) {
            printf("%sconnections that break", comma);
            comma = ",";
        }
        if ((rules[i].needs & NEEDS_CQ_CHANGE) != 0) {
            printf("%sendpoints that change their cq", comma);
            comma = ",";
        }
        printf("%s\t%s\t%u\t%u\t%u\n", *comma == '\0' ? "-" : "",
               rules[i].breakable ? "breakable" : "-", cases.positive, cases.negative,
               cases.always);
    }
    list_unknown_citations();
}

/* ------------------------------------------------------------------------------------ arguments */

struct arguments {
    struct option_list providers;
    struct option_list plugins;
    const char *key_file;
    const char *rules;
    struct option_list parts;
    const char *peer;
    const char *sequence;
    uint64_t seed;
    bool seed_given;
    uint64_t patience;
    unsigned format;
    bool format_given;
    bool json;
    unsigned wait;
    bool quick;
    bool thorough;
    bool list;
    bool list_rules;
    bool times;
};

static enum options_outcome parse(struct arguments *arguments, int argc, char **argv)
{
    static const char *const formats[] = { "text", "tap", "junit", "json", "html", NULL };
    static const char *const waits[] = { "poll", "sleep", NULL };
    const struct option_spec options[] = {
        { .name = "provider",
          .kind = OPTION_LIST,
          .list = &arguments->providers,
          .argument = "NAME",
          .help = "check this provider; may be repeated (default: tcp and shm, or with\n"
                  "--plugin those of the plug-in)" },
        { .name = "plugin",
          .kind = OPTION_LIST,
          .list = &arguments->plugins,
          .argument = "FILE.so",
          .help = "also load this plug-in; may be repeated" },
        { .name = "peer",
          .kind = OPTION_TEXT,
          .text = &arguments->peer,
          .argument = "HOST[:PORT]",
          .help = "run one of the two processes there, where \"rdmux serve\" starts it\n"
                  "(default provider: tcp)" },
        { .name = "rules",
          .kind = OPTION_TEXT,
          .text = &arguments->rules,
          .argument = "LIST",
          .help = "only these rules, such as 6.1,13 (13: the whole chapter)" },
        { .name = "case",
          .kind = OPTION_LIST,
          .list = &arguments->parts,
          .argument = "SUBSTRING",
          .help = "only cases with this in their name, their rules or their suite; may\n"
                  "be repeated" },
        { .name = "seed",
          .kind = OPTION_NUMBER,
          .number = &arguments->seed,
          .given = &arguments->seed_given,
          .max = UINT64_MAX,
          .argument = "N",
          .help = "seed of patterns and random choices (default: another one in each run)" },
        { .name = "sequence",
          .kind = OPTION_TEXT,
          .text = &arguments->sequence,
          .argument = "LIST",
          .help = "in the random case, only these operations, as a failure names them:\n"
                  "i3,i10-40,t7 (i: of the initiator, t: of the target)" },
        { .name = "thorough",
          .kind = OPTION_FLAG,
          .flag = &arguments->thorough,
          .help = "also cases that need gigabytes of memory or much time" },
        { .name = "quick",
          .kind = OPTION_FLAG,
          .flag = &arguments->quick,
          .help = "without the cases whose subject is time; their rules are \"not run\"" },
        { .name = "format",
          .kind = OPTION_CHOICE,
          .choice = &arguments->format,
          .choices = formats,
          .given = &arguments->format_given,
          .argument = "FORMAT",
          .help = "text, tap, junit, json, html" },
        { .name = "json",
          .kind = OPTION_FLAG,
          .flag = &arguments->json,
          .help = "print JSON: one object, however many providers" },
        { .name = "wait",
          .kind = OPTION_CHOICE,
          .choice = &arguments->wait,
          .choices = waits,
          .argument = "HOW",
          .help = "poll, sleep: how to wait for completions (default poll)" },
        { .name = "patience",
          .kind = OPTION_NUMBER,
          .number = &arguments->patience,
          .min = 1,
          .max = PATIENCE_MAX,
          .argument = "N",
          .help = "multiply all time limits by N (sanitizers, slow machines)" },
        { .name = "times",
          .kind = OPTION_FLAG,
          .flag = &arguments->times,
          .help = "with --format tap: how long each case took" },
        { .name = "list",
          .kind = OPTION_FLAG,
          .flag = &arguments->list,
          .help = "print the cases and end; \"-6.1\": the case tries to break 6.1" },
        { .name = "key-file",
          .kind = OPTION_TEXT,
          .text = &arguments->key_file,
          .argument = "FILE",
          .help = "both sides authenticate by the first key of FILE, lines IDENTITY:KEY;\n"
                  "not with --peer" },
        { .name = "list-rules",
          .kind = OPTION_FLAG,
          .flag = &arguments->list_rules,
          .help = "print the rules and end: number, title, needed capabilities, breakable\n"
                  "or not, numbers of cases that see them kept, that try to break them,\n"
                  "and that run on every path that advertises them" },
    };
    const struct command_spec command = {
        .name = command_name,
        .usage = "[--provider NAME | --plugin FILE.so] [--peer HOST] [OPTION]...",
        .description = "Checks that providers keep the rules of docs/SEMANTICS.md. Each case\n"
                       "runs in two processes on this host. At the end a matrix shows how the\n"
                       "provider keeps each rule: natively, emulated by rdmux, not advertised\n"
                       "(then its use must be refused), or FAIL. A failure comes with what both\n"
                       "sides did and with the command that runs it again. Exit status: 0\n"
                       "every rule that is advertised was kept, 1 one was not, 2 wrong "
                       "arguments.\n",
        .options = options,
        .option_count = TOOL_COUNT_OF(options),
    };
    return options_parse(&command, argc, argv, NULL);
}

static bool take_arguments(struct conformance *conformance, const struct arguments *arguments)
{
    conformance->run = (struct run_options){
        .plugins = arguments->plugins.values,
        .plugin_count = arguments->plugins.count,
        .key_file = arguments->key_file,
        .sleeps = arguments->wait == 1,
        .quick = arguments->quick,
        .thorough = arguments->thorough,
        .patience = (unsigned)arguments->patience,
        .seed = arguments->seed_given ? arguments->seed
                                      : mix64(now_ns() ^ (uint64_t)getpid()) % 1000000,
    };
    conformance->run.sequence = arguments->sequence;
    conformance->parts = &arguments->parts;
    conformance->results.peer = arguments->peer;
    conformance->times = arguments->times;
    conformance->format = (enum conformance_format)arguments->format;
    conformance->some_rules = arguments->rules != NULL;
    for (size_t i = 0; i < arguments->providers.count; i++) {
        const char *name = arguments->providers.values[i];
        if (name[0] == '\0' || name[strcspn(name, ", !")] != '\0') {
            tool_error(command_name, "--provider: \"%s\" is not one name; for several repeat it",
                       name);
            return false;
        }
        take_provider(conformance, name);
    }
    if (arguments->json && (arguments->format_given || arguments->list || arguments->list_rules)) {
        tool_error(command_name, "--json and --%s exclude each other; give one of them",
                   arguments->format_given ? "format"
                   : arguments->list       ? "list"
                                           : "list-rules");
        return false;
    }
    if (arguments->json) {
        conformance->format = FORMAT_JSON_OBJECT;
    }
    if (arguments->quick && arguments->thorough) {
        tool_error(command_name, "--quick and --thorough exclude each other");
        return false;
    }
    if (rule_count > TOOL_COUNT_OF(conformance->wanted)) {
        tool_error(command_name, "rules.def has more than %zu rules",
                   TOOL_COUNT_OF(conformance->wanted));
        return false;
    }
    if (arguments->rules != NULL && !want_rules(conformance, arguments->rules)) {
        return false;
    }
    if (!check_parts(conformance)) {
        return false;
    }
    want_the_rest(conformance);
    if (arguments->sequence != NULL && (strlen(arguments->sequence) >= SEQUENCE_TEXT_MAX ||
                                        !sequence_is_valid(arguments->sequence))) {
        tool_error(command_name, "--sequence: \"%s\" is not a list such as i3,i10-40,t7",
                   arguments->sequence);
        return false;
    }
    return true;
}

static int run_with_peer(struct conformance *conformance, const struct arguments *arguments)
{
    if (arguments->peer == NULL) {
        return run_all(conformance);
    }
    int code = conformance_peer_open(arguments->peer, &conformance->peer);
    if (code != TOOL_OK) {
        return code;
    }
    conformance->run.peer = &conformance->peer;
    code = run_all(conformance);
    peer_close(&conformance->peer);
    return code;
}

int tool_conformance_main(int argc, char **argv)
{
    static struct conformance conformance;
    static struct arguments arguments;
    arguments = (struct arguments){
        .patience = 1,
        .format = strcmp(argv[0], command_name) == 0 ? FORMAT_TEXT : FORMAT_TAP,
    };
    conformance = (struct conformance){ .parts = NULL };
    enum options_outcome outcome = parse(&arguments, argc, argv);
    if (outcome != OPTIONS_RUN) {
        return outcome == OPTIONS_HELP ? TOOL_OK : TOOL_USAGE;
    }
    if (arguments.key_file != NULL && arguments.peer != NULL) {
        tool_error(command_name, "--key-file: the server of --peer does not have it; run it there "
                                 "without --peer");
        return TOOL_USAGE;
    }
    if (!take_arguments(&conformance, &arguments)) {
        return TOOL_USAGE;
    }
    if (arguments.list || arguments.list_rules) {
        (arguments.list ? list_cases(&conformance) : list_rules());
        return TOOL_OK;
    }
    conformance.planned = count_planned(&conformance);
    if (conformance.provider_count > 0) {
        int code = look_at_names(&conformance, &arguments.plugins);
        if (code != TOOL_OK) {
            return code;
        }
    }
    if (arguments.plugins.count > 0) {
        int code = look_at_plugins(&conformance, &arguments.plugins);
        if (code != TOOL_OK) {
            return code;
        }
    }
    if (conformance.provider_count == 0) {
        conformance.providers[conformance.provider_count++] = "tcp";
        if (arguments.peer == NULL) {
            conformance.providers[conformance.provider_count++] = "shm";
        }
    }
    conformance.bar = conformance.format != FORMAT_TAP && isatty(STDERR_FILENO) == 1;
    unsetenv("RDMUX_PATHS");

    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    return run_with_peer(&conformance, &arguments);
}
