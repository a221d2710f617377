/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Writes the result of a conformance run as one self-contained HTML file. */
#include "conformance.h"

#include <inttypes.h>

static const char
    head[] = "<!DOCTYPE html>\n"
             "<html lang=\"en\">\n"
             "<head>\n"
             "<meta charset=\"utf-8\">\n"
             "<title>rdmux conformance</title>\n"
             "<style>\n"
             "body { font-family: sans-serif; margin: 2em; }\n"
             "table { border-collapse: collapse; }\n"
             "th, td { border: 1px solid #bbb; padding: 0.2em 0.6em; text-align: left; }\n"
             ".pass { background: #dff2df; }\n"
             ".fail { background: #f8c9c4; font-weight: bold; }\n"
             ".not_advertised { background: #eee; }\n"
             ".not_run { background: #fdf3c8; }\n"
             "pre { background: #f4f4f4; padding: 0.6em; overflow-x: auto; }\n"
             "</style>\n"
             "</head>\n"
             "<body>\n"
             "<h1>rdmux conformance</h1>\n";

static void print_summary(const struct conformance_run *run, FILE *out)
{
    fputs("<ul>\n", out);
    for (size_t i = 0; i < run->provider_count; i++) {
        struct rule_counts counts = judge_all(run, &run->providers[i]);
        fputs("<li>", out);
        report_escaped(out, run->providers[i].name);
        if (run->peer != NULL) {
            fputs(" to ", out);
            report_escaped(out, run->peer);
        }
        fprintf(out,
                ": %u rules kept, %u broken, %u not advertised, %u not run; %.1f s, seed %" PRIu64
                "</li>\n",
                counts.passed, counts.failed, counts.not_advertised, counts.not_run,
                (double)run->providers[i].took_ns / 1e9, run->seed);
    }
    fputs("</ul>\n", out);
}

static void print_matrix(const struct conformance_run *run, FILE *out)
{
    fputs("<table>\n<tr><th>rule</th><th>title</th>", out);
    for (size_t i = 0; i < run->provider_count; i++) {
        fputs("<th>", out);
        report_escaped(out, run->providers[i].name);
        fputs("</th>", out);
    }
    fputs("</tr>\n", out);
    for (size_t i = 0; i < rule_count; i++) {
        if (!run->wanted[i]) {
            continue;
        }
        fprintf(out, "<tr><td>%s</td><td>", rules[i].id);
        report_escaped(out, rules[i].title);
        fputs("</td>", out);
        for (size_t j = 0; j < run->provider_count; j++) {
            struct rule_result result = judge_rule(&run->providers[j], &rules[i]);
            fprintf(out, "<td class=\"%s\"", rule_status_name(result.status));
            if (result.why != NULL) {
                fputs(" title=\"", out);
                report_escaped(out, result.why);
                fputc('"', out);
            }
            fprintf(out, ">%s</td>", rule_cell(&result));
        }
        fputs("</tr>\n", out);
    }
    fputs("</table>\n", out);
}

static void print_failures(const struct provider_results *provider, FILE *out)
{
    for (size_t i = 0; i < provider->count; i++) {
        const struct case_result *result = &provider->cases[i];
        if (result->text == NULL) {
            continue;
        }
        fputs("<h2>", out);
        report_escaped(out, provider->name);
        fputs(": ", out);
        report_escaped(out, result->test->name);
        fputs("</h2>\n<p>rules ", out);
        report_escaped(out, result->test->rule);
        fputs("</p>\n<pre>", out);
        report_escaped(out, result->text);
        fputs("again: ", out);
        report_escaped(out, result->replay);
        fputs("</pre>\n", out);
    }
}

void report_html(const struct conformance_run *run, FILE *out)
{
    fputs(head, out);
    print_summary(run, out);
    print_matrix(run, out);
    for (size_t i = 0; i < run->provider_count; i++) {
        print_failures(&run->providers[i], out);
    }
    fputs("</body>\n</html>\n", out);
}
