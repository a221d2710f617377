/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Writes the result of a conformance run as text, TAP, JSON and JUnit XML. */
#include "conformance.h"

#include "json.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TITLE_WIDTH = 66, CELL_WIDTH = 15 };

static bool has_failed(const struct case_result *result)
{
    return result->outcome == CASE_FAILED || result->outcome == CASE_FAILED_TO_REFUSE;
}

/* XML 1.0 text allows no control characters, not even as references. */
void report_escaped(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\n':
            fputs("&#10;", out);
            break;
        default:
            fputc((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e ? '?' : *text, out);
            break;
        }
    }
}

/* ----------------------------------------------------------------------------------------- text */

static void print_indented(FILE *out, const char *text)
{
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        fprintf(out, "    %.*s\n", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

static void print_failures(const struct conformance_run *run,
                           const struct provider_results *provider, FILE *out)
{
    for (size_t i = 0; i < provider->count; i++) {
        const struct case_result *result = &provider->cases[i];
        if (!has_failed(result)) {
            continue;
        }
        fprintf(out, "%s: FAIL: %s%s\n", provider->name,
                result->outcome == CASE_FAILED ? "" : "what is not advertised is not refused: ",
                result->test->name);
        for (size_t rule = 0; rule < rule_count; rule++) {
            if (run->wanted[rule] && fails_rule(result, &rules[rule])) {
                fprintf(out, "    rule %s  %s\n", rules[rule].id, rules[rule].title);
            }
        }
        print_indented(out, result->text);
        fprintf(out, "    again: %s\n\n", result->replay);
    }
}

static void print_matrix(const struct conformance_run *run, FILE *out)
{
    fprintf(out, "%-6s%-*s", "rule", TITLE_WIDTH, "");
    for (size_t i = 0; i < run->provider_count; i++) {
        fprintf(out, " %-*s", CELL_WIDTH, run->providers[i].name);
    }
    fputc('\n', out);
    for (size_t i = 0; i < rule_count; i++) {
        if (!run->wanted[i]) {
            continue;
        }
        fprintf(out, "%-6s%-*s", rules[i].id, TITLE_WIDTH, rules[i].title);
        for (size_t j = 0; j < run->provider_count; j++) {
            struct rule_result result = judge_rule(&run->providers[j], &rules[i]);
            fprintf(out, " %-*s", j + 1 < run->provider_count ? CELL_WIDTH : 0, rule_cell(&result));
        }
        fputc('\n', out);
    }
}

/* Prints each reason for left-out cases once. */
static void print_left_out(const struct provider_results *provider, FILE *out)
{
    for (size_t i = 0; i < provider->count; i++) {
        const char *why = provider->cases[i].why;
        bool told = why == NULL;
        for (size_t j = 0; j < i && !told; j++) {
            told = provider->cases[j].why == why;
        }
        if (told) {
            continue;
        }
        fprintf(out, "%s: not run, %s:\n", provider->name, why);
        for (size_t j = i; j < provider->count; j++) {
            if (provider->cases[j].why == why) {
                fprintf(out, "    %s [%s]\n", provider->cases[j].test->name,
                        provider->cases[j].test->rule);
            }
        }
    }
}

static void print_unexercised(const struct conformance_run *run,
                              const struct provider_results *provider, FILE *out)
{
    for (size_t i = 0; i < rule_count; i++) {
        struct rule_result result = judge_rule(provider, &rules[i]);
        if (run->wanted[i] && result.status == RULE_FAIL && result.why != NULL) {
            fprintf(out, "%s: FAIL: rule %s  %s: %s\n", provider->name, rules[i].id, rules[i].title,
                    result.why);
        }
    }
}

static unsigned cases_run(const struct provider_results *provider)
{
    unsigned count = 0;
    for (size_t i = 0; i < provider->count; i++) {
        count += provider->cases[i].outcome != CASE_LEFT_OUT;
    }
    return count;
}

void report_text(const struct conformance_run *run, FILE *out)
{
    for (size_t i = 0; i < run->provider_count; i++) {
        print_failures(run, &run->providers[i], out);
        print_unexercised(run, &run->providers[i], out);
    }
    print_matrix(run, out);
    fputc('\n', out);
    for (size_t i = 0; i < run->provider_count; i++) {
        print_left_out(&run->providers[i], out);
    }
    for (size_t i = 0; i < run->provider_count; i++) {
        const struct provider_results *provider = &run->providers[i];
        struct rule_counts counts = judge_all(run, provider);
        fprintf(out,
                "%s%s%s: %u rules kept, %u broken, %u not advertised, %u not run; %u cases in "
                "%.1f s, seed %" PRIu64 "\n",
                provider->name, run->peer == NULL ? "" : " to ", run->peer == NULL ? "" : run->peer,
                counts.passed, counts.failed, counts.not_advertised, counts.not_run,
                cases_run(provider), (double)provider->took_ns / 1e9, run->seed);
    }
}

/* ------------------------------------------------------------------------------------------ TAP */

/* Each case that was run is a test point. */
static size_t points_of(const struct provider_results *provider)
{
    size_t count = 0;
    for (size_t i = 0; i < provider->count; i++) {
        count += provider->cases[i].is_run;
    }
    return count;
}

void report_tap(const struct conformance_run *run, FILE *out)
{
    size_t points = 0;
    for (size_t i = 0; i < run->provider_count; i++) {
        const struct provider_results *provider = &run->providers[i];
        struct rule_counts counts = judge_all(run, provider);
        points += points_of(provider);
        for (size_t rule = 0; rule < rule_count; rule++) {
            struct rule_result result = judge_rule(provider, &rules[rule]);
            if (run->wanted[rule] && result.status == RULE_FAIL) {
                fprintf(out, "# %s: rule %s is broken: %s%s%s\n", provider->name, rules[rule].id,
                        rules[rule].title, result.why == NULL ? "" : ": ",
                        result.why == NULL ? "" : result.why);
            }
        }
        fprintf(out,
                "# %s: %u rules kept, %u broken, %u not advertised, %u not run; %.1f s, seed "
                "%" PRIu64 "\n",
                provider->name, counts.passed, counts.failed, counts.not_advertised, counts.not_run,
                (double)provider->took_ns / 1e9, run->seed);
    }
    fprintf(out, "1..%zu\n", points);
}

/* ----------------------------------------------------------------------------------------- JSON */

static void json_failures(struct json *json, const struct provider_results *provider,
                          const struct rule *rule)
{
    json_array_begin(json, "failures");
    for (size_t i = 0; i < provider->count; i++) {
        const struct case_result *result = &provider->cases[i];
        if (fails_rule(result, rule)) {
            json_object_begin(json, NULL);
            json_string(json, "case", result->test->name);
            json_string(json, "text", result->text);
            json_string(json, "replay", result->replay);
            json_object_end(json);
        }
    }
    json_array_end(json);
}

static void json_rule(struct json *json, const struct conformance_run *run,
                      const struct provider_results *provider, const struct rule *rule)
{
    struct rule_result result = judge_rule(provider, rule);
    json_object_begin(json, NULL);
    json_string(json, "id", rule->id);
    json_string(json, "title", rule->title);
    json_string(json, "status", rule_status_name(result.status));
    json_unsigned(json, "cases", result.cases);
    json_unsigned(json, "seed", run->seed);
    if (result.status == RULE_PASS && rule->needs != 0) {
        json_string(json, "how", rule_cell(&result));
    }
    if (result.why != NULL) {
        json_string(json, "why", result.why);
    }
    if (result.status == RULE_FAIL) {
        json_failures(json, provider, rule);
    }
    json_object_end(json);
}

static void json_provider(struct json *json, const struct conformance_run *run,
                          const struct provider_results *provider)
{
    struct rule_counts counts = judge_all(run, provider);
    json_object_begin(json, NULL);
    json_string(json, "provider", provider->name);
    if (run->peer != NULL) {
        json_string(json, "peer", run->peer);
    }
    json_array_begin(json, "rules");
    for (size_t i = 0; i < rule_count; i++) {
        if (run->wanted[i]) {
            json_rule(json, run, provider, &rules[i]);
        }
    }
    json_array_end(json);
    json_unsigned(json, "passed", counts.passed);
    json_unsigned(json, "failed", counts.failed);
    json_unsigned(json, "not_advertised", counts.not_advertised);
    json_unsigned(json, "not_run", counts.not_run);
    json_unsigned(json, "seed", run->seed);
    json_real(json, "seconds", (double)provider->took_ns / 1e9);
    json_object_end(json);
}

void report_json(const struct conformance_run *run, FILE *out)
{
    struct json json;
    json_begin(&json, out);
    if (run->provider_count != 1) {
        json_array_begin(&json, NULL);
    }
    for (size_t i = 0; i < run->provider_count; i++) {
        json_provider(&json, run, &run->providers[i]);
    }
    if (run->provider_count != 1) {
        json_array_end(&json);
    }
    json_end(&json);
}

void report_json_object(const struct conformance_run *run, FILE *out)
{
    struct json json;
    json_begin(&json, out);
    json_object_begin(&json, NULL);
    json_array_begin(&json, "providers");
    for (size_t i = 0; i < run->provider_count; i++) {
        json_provider(&json, run, &run->providers[i]);
    }
    json_array_end(&json);
    json_object_end(&json);
    json_end(&json);
}

/* ---------------------------------------------------------------------------------------- JUnit */

static void junit_failures(const struct provider_results *provider, const struct rule *rule,
                           FILE *out)
{
    for (size_t i = 0; i < provider->count; i++) {
        const struct case_result *result = &provider->cases[i];
        if (fails_rule(result, rule)) {
            report_escaped(out, result->test->name);
            fputc('\n', out);
            report_escaped(out, result->text);
            fputs("\nagain: ", out);
            report_escaped(out, result->replay);
            fputc('\n', out);
        }
    }
}

static void junit_rule(const struct provider_results *provider, const struct rule *rule, FILE *out)
{
    struct rule_result result = judge_rule(provider, rule);
    fprintf(out, "    <testcase classname=\"conformance.%s\" name=\"%s ", provider->name, rule->id);
    report_escaped(out, rule->title);
    fprintf(out, "\" time=\"%.3f\">", (double)result.took_ns / 1e9);
    switch (result.status) {
    case RULE_PASS:
        break;
    case RULE_FAIL:
        fputs("<failure type=\"conformance\" message=\"rule ", out);
        fprintf(out, "%s: ", rule->id);
        report_escaped(out, result.why != NULL ? result.why : "a case failed");
        fputs("\">", out);
        junit_failures(provider, rule, out);
        fputs("</failure>", out);
        break;
    case RULE_NOT_ADVERTISED:
    case RULE_NOT_RUN:
        fputs("<skipped/>", out);
        break;
    }
    fputs("</testcase>\n", out);
}

void report_junit(const struct conformance_run *run, FILE *out)
{
    char host[256] = "";
    char stamp[32] = "";
    time_t now = time(NULL);
    struct tm utc;
    (void)gethostname(host, sizeof(host) - 1);
    if (gmtime_r(&now, &utc) != NULL) {
        (void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);
    }
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n", out);
    for (size_t i = 0; i < run->provider_count; i++) {
        const struct provider_results *provider = &run->providers[i];
        struct rule_counts counts = judge_all(run, provider);
        fprintf(out,
                "  <testsuite name=\"%s\" package=\"conformance\" id=\"%zu\" timestamp=\"%s\" "
                "hostname=\"",
                provider->name, i, stamp);
        report_escaped(out, host);
        fprintf(out, "\" tests=\"%u\" failures=\"%u\" errors=\"0\" skipped=\"%u\" time=\"%.3f\">\n",
                counts.passed + counts.failed + counts.not_advertised + counts.not_run,
                counts.failed, counts.not_advertised + counts.not_run,
                (double)provider->took_ns / 1e9);
        fprintf(out,
                "    <properties><property name=\"seed\" value=\"%" PRIu64 "\"/></properties>\n",
                run->seed);
        for (size_t rule = 0; rule < rule_count; rule++) {
            if (run->wanted[rule]) {
                junit_rule(provider, &rules[rule], out);
            }
        }
        fputs("    <system-out/>\n    <system-err/>\n  </testsuite>\n", out);
    }
    fputs("</testsuites>\n", out);
}
