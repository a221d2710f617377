/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Compares the figures of two runs of `rdmux perf --json`.
 *
 * Two measurements belong together if all that was asked for is the same, and the path. They differ
 * if the main figure changed by more than the noise: three times the spread of both, at least one
 * part in a hundred; one in ten if a run was too short for a spread.
 */
#include "perf.h"

#include "json.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double noise_factor = 3.0;
static const double noise_min = 0.01;
static const double noise_unknown = 0.1;

enum verdict { SAME, BETTER, WORSE, VERDICT_COUNT };
static const char *const verdict_names[] = { "same", "better", "worse" };

struct pair {
    const struct perf_figures *before;
    const struct perf_figures *after;
    double change; /* relative */
    double noise;
    enum verdict verdict;
};

static bool belong_together(const struct perf_figures *a, const struct perf_figures *b)
{
    return a->op == b->op && a->test == b->test && a->direction == b->direction &&
           a->memory == b->memory && a->wait == b->wait && a->verified == b->verified &&
           a->size == b->size && a->depth == b->depth && a->batch == b->batch &&
           a->endpoints == b->endpoints && a->threads == b->threads &&
           strcmp(a->provider, b->provider) == 0 && strcmp(a->device, b->device) == 0;
}

static void judge(struct pair *pair)
{
    double before = perf_main_figure(pair->before);
    double after = perf_main_figure(pair->after);
    double a = pair->before->spread, b = pair->after->spread;
    pair->change = (after - before) / before;
    pair->noise = noise_unknown;
    if (a >= 0 && b >= 0) {
        pair->noise = noise_factor * sqrt(a * a + b * b);
        pair->noise = pair->noise < noise_min ? noise_min : pair->noise;
    }
    bool less_is_better = pair->before->test == PERF_LATENCY;
    pair->verdict = fabs(pair->change) <= pair->noise      ? SAME
                    : (pair->change < 0) == less_is_better ? BETTER
                                                           : WORSE;
}

/* Takes the first partner of each; before->figures and after->figures that remain have none. */
static size_t pair_up(const struct perf_loaded *before, const struct perf_loaded *after,
                      struct pair *pairs, bool *has_partner)
{
    size_t count = 0;
    for (size_t i = 0; i < before->count; i++) {
        for (size_t k = 0; k < after->count; k++) {
            if (!has_partner[before->count + k] &&
                belong_together(&before->figures[i], &after->figures[k])) {
                pairs[count] = (struct pair){ &before->figures[i], &after->figures[k], 0, 0, SAME };
                judge(&pairs[count++]);
                has_partner[i] = has_partner[before->count + k] = true;
                break;
            }
        }
    }
    return count;
}

/* --------------------------------------------------------------------------------------- output */

static void print_subject(const struct perf_figures *figures, FILE *out)
{
    char size[TOOL_NUMBER_MAX], subject[256];
    perf_format_size(figures->size, size);
    snprintf(subject, sizeof(subject), "%s %s%s%s %s, %s%s%s", perf_op_names[figures->op],
             perf_test_names[figures->test], figures->direction != PERF_FORWARD ? " " : "",
             figures->direction != PERF_FORWARD ? perf_direction_names[figures->direction] : "",
             size, figures->provider, figures->device[0] != '\0' ? " " : "", figures->device);
    text_clean(subject);
    fprintf(out, "%-36s", subject);
}

static void print_text(const struct perf_compare_options *options, const struct pair *pairs,
                       size_t count, FILE *out)
{
    size_t counts[VERDICT_COUNT] = { 0 };
    fprintf(out, "%-36s %16s %16s %9s %9s\n", "", "before", "after", "change", "noise");
    for (size_t i = 0; i < count; i++) {
        const struct pair *pair = &pairs[i];
        char before[TOOL_NUMBER_MAX], after[TOOL_NUMBER_MAX];
        perf_format_figure(pair->before, before);
        perf_format_figure(pair->after, after);
        print_subject(pair->before, out);
        fprintf(out, " %16s %16s %+7.1f %% %7.1f %%%s%s\n", before, after, pair->change * 100,
                pair->noise * 100, pair->verdict == SAME ? "" : "  ",
                pair->verdict == SAME ? "" : verdict_names[pair->verdict]);
        counts[pair->verdict]++;
    }
    fprintf(out, "%zu of %zu changed beyond the noise: %zu better, %zu worse (",
            counts[BETTER] + counts[WORSE], count, counts[BETTER], counts[WORSE]);
    text_print(out, options->before);
    fputs(" to ", out);
    text_print(out, options->after);
    fputs(")\n", out);
}

static void print_alone(const char *name, const struct perf_loaded *loaded, const bool *has_partner,
                        FILE *out)
{
    for (size_t i = 0; i < loaded->count; i++) {
        if (!has_partner[i]) {
            fprintf(out, "only in ");
            text_print(out, name);
            fputs(": ", out);
            print_subject(&loaded->figures[i], out);
            fputc('\n', out);
        }
    }
}

static const char *unit_of(unsigned test)
{
    static const char *const units[] = {
        [PERF_LATENCY] = "us", [PERF_BANDWIDTH] = "bytes_per_second", [PERF_RATE] = "messages_per_second"
    };
    return units[test];
}

static void subject_json(struct json *json, const struct perf_figures *figures)
{
    json_string(json, "op", perf_op_names[figures->op]);
    json_string(json, "test", perf_test_names[figures->test]);
    json_string(json, "direction", perf_direction_names[figures->direction]);
    json_unsigned(json, "size", figures->size);
    json_string(json, "provider", figures->provider);
    json_string(json, "device", figures->device);
    json_unsigned(json, "endpoints", figures->endpoints);
    json_unsigned(json, "threads", figures->threads);
}

static void alone_json(struct json *json, const char *key, const struct perf_loaded *loaded,
                       const bool *has_partner)
{
    json_array_begin(json, key);
    for (size_t i = 0; i < loaded->count; i++) {
        if (!has_partner[i]) {
            json_object_begin(json, NULL);
            subject_json(json, &loaded->figures[i]);
            json_object_end(json);
        }
    }
    json_array_end(json);
}

static void print_json(const struct perf_compare_options *options,
                       const struct perf_loaded loaded[2], const bool *has_partner,
                       const struct pair *pairs, size_t count, FILE *out)
{
    uint64_t counts[VERDICT_COUNT] = { 0 };
    struct json json;
    json_begin(&json, out);
    json_object_begin(&json, NULL);
    json_string(&json, "before", options->before);
    json_string(&json, "after", options->after);
    json_array_begin(&json, "pairs");
    for (size_t i = 0; i < count; i++) {
        const struct pair *pair = &pairs[i];
        json_object_begin(&json, NULL);
        subject_json(&json, pair->before);
        json_string(&json, "unit", unit_of(pair->before->test));
        json_real(&json, "before", perf_main_figure(pair->before));
        json_real(&json, "after", perf_main_figure(pair->after));
        json_real(&json, "change", pair->change);
        json_real(&json, "noise", pair->noise);
        json_string(&json, "verdict", verdict_names[pair->verdict]);
        json_object_end(&json);
        counts[pair->verdict]++;
    }
    json_array_end(&json);
    alone_json(&json, "only_before", &loaded[0], has_partner);
    alone_json(&json, "only_after", &loaded[1], has_partner + loaded[0].count);
    for (size_t i = 0; i < VERDICT_COUNT; i++) {
        json_unsigned(&json, verdict_names[i], counts[i]);
    }
    json_object_end(&json);
    json_end(&json);
}

static void print_csv(const struct pair *pairs, size_t count, FILE *out)
{
    fputs("op,test,direction,provider,size,endpoints,threads,unit,before,after,change,noise,"
          "verdict\n",
          out);
    for (size_t i = 0; i < count; i++) {
        const struct pair *pair = &pairs[i];
        const struct perf_figures *figures = pair->before;
        fprintf(out, "%s,%s,%s,%s,%llu,%llu,%llu,%s,%.6g,%.6g,%.6f,%.6f,%s\n",
                perf_op_names[figures->op], perf_test_names[figures->test],
                perf_direction_names[figures->direction], figures->provider,
                (unsigned long long)figures->size, (unsigned long long)figures->endpoints,
                (unsigned long long)figures->threads, unit_of(figures->test),
                perf_main_figure(figures), perf_main_figure(pair->after), pair->change, pair->noise,
                verdict_names[pair->verdict]);
    }
}

/* Draws both runs, a curve for each path and run. */
static int plot_both(const char *file, const struct perf_loaded loaded[2])
{
    size_t count = loaded[0].count + loaded[1].count;
    struct perf_figures *figures = calloc(count, sizeof(*figures));
    const char **labels = calloc(count, sizeof(*labels));
    int code = TOOL_FAILED;
    if (figures == NULL || labels == NULL) {
        tool_error("perf", "--plot: out of memory");
    } else {
        for (size_t i = 0; i < count; i++) {
            bool after = i >= loaded[0].count;
            figures[i] = loaded[after].figures[after ? i - loaded[0].count : i];
            labels[i] = after ? "after" : "before";
        }
        code = perf_plot(file, figures, count, labels);
    }
    free(figures);
    free(labels);
    return code;
}

static int compare_loaded(const struct perf_compare_options *options,
                          const struct perf_loaded loaded[2], FILE *out)
{
    struct pair *pairs = calloc(loaded[0].count + 1, sizeof(*pairs));
    bool *has_partner = calloc(loaded[0].count + loaded[1].count + 1, sizeof(*has_partner));
    int code = TOOL_FAILED;
    size_t count = 0;
    if (pairs == NULL || has_partner == NULL) {
        tool_error("perf", "--compare: out of memory");
        goto done;
    }
    count = pair_up(&loaded[0], &loaded[1], pairs, has_partner);
    if (options->json) {
        print_json(options, loaded, has_partner, pairs, count, out);
    } else if (options->csv) {
        print_csv(pairs, count, out);
    } else {
        print_text(options, pairs, count, out);
        print_alone(options->before, &loaded[0], has_partner, out);
        print_alone(options->after, &loaded[1], has_partner + loaded[0].count, out);
    }
    if (count == 0) {
        tool_error("perf",
                   "--compare: %s and %s have no measurement in common: same operation, "
                   "test, size, path and options; measure both alike",
                   options->before, options->after);
    } else {
        code = options->plot != NULL ? plot_both(options->plot, loaded) : TOOL_OK;
    }
done:
    free(pairs);
    free(has_partner);
    return code;
}

int perf_compare(const struct perf_compare_options *options, FILE *out)
{
    struct perf_loaded loaded[2] = { { 0 }, { 0 } };
    int code = options->plot != NULL ? perf_plot_check(options->plot) : TOOL_OK;
    if (code == TOOL_OK) {
        code = perf_load(options->before, &loaded[0]);
    }
    if (code == TOOL_OK) {
        code = perf_load(options->after, &loaded[1]);
    }
    if (code == TOOL_OK) {
        code = compare_loaded(options, loaded, out);
    }
    free(loaded[0].figures);
    free(loaded[1].figures);
    return code;
}
