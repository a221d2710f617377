/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux explain: shows the path to a server that would be chosen, and why not the others. */
#include "client.h"
#include "options.h"
#include "text.h"
#include "tool.h"

#include <string.h>

static const char command_name[] = "explain";

enum { COLUMN_MAX = 24, COLUMN_COUNT = 6 };

struct table_row {
    char cells[COLUMN_COUNT][COLUMN_MAX]; /* the last column, the text, is printed unaligned */
};

static void fill_row(struct table_row *row, const struct rdmux_candidate *candidate)
{
    memset(row, 0, sizeof(*row));
    if (candidate->rank != 0) {
        snprintf(row->cells[0], COLUMN_MAX, "%u", (unsigned)candidate->rank);
    } else {
        snprintf(row->cells[0], COLUMN_MAX, "-");
    }
    snprintf(row->cells[1], COLUMN_MAX, "%.20s", candidate->provider);
    snprintf(row->cells[2], COLUMN_MAX, "%.20s",
             candidate->device[0] != '\0' ? candidate->device : "-");
    snprintf(row->cells[3], COLUMN_MAX, "%s", rdmux_stage_name((enum rdmux_stage)candidate->stage));
    if (candidate->cost_ns != 0) {
        snprintf(row->cells[4], COLUMN_MAX, "%.2f us", (double)candidate->cost_ns / 1e3);
    } else {
        snprintf(row->cells[4], COLUMN_MAX, "-");
    }
    snprintf(row->cells[5], COLUMN_MAX, "%s",
             rdmux_reason_name((enum rdmux_reason)candidate->reason));
    for (size_t column = 0; column < COLUMN_COUNT; column++) {
        text_clean(row->cells[column]);
    }
}

static void widen(size_t widths[COLUMN_COUNT], const struct table_row *row)
{
    for (size_t column = 0; column < COLUMN_COUNT; column++) {
        size_t width = strlen(row->cells[column]);
        widths[column] = width > widths[column] ? width : widths[column];
    }
}

static void print_row(FILE *out, const size_t widths[COLUMN_COUNT], const struct table_row *row,
                      const char *text)
{
    for (size_t column = 0; column < COLUMN_COUNT; column++) {
        fprintf(out, "  %-*s", (int)widths[column], row->cells[column]);
    }
    fputs("  ", out);
    text_print(out, text);
    fputc('\n', out);
}

void tool_print_explanation(FILE *out, const struct rdmux_explanation *explanation)
{
    static const struct table_row heading = { { "rank", "path", "device", "stage", "cost",
                                                "reason" } };
    size_t widths[COLUMN_COUNT] = { 0 };
    struct table_row row;
    widen(widths, &heading);
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        fill_row(&row, explanation->candidates[i]);
        widen(widths, &row);
    }
    size_t indent = 2;
    for (size_t column = 0; column < COLUMN_COUNT; column++) {
        indent += widths[column] + 2;
    }
    print_row(out, widths, &heading, "why");
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        const struct rdmux_candidate *candidate = explanation->candidates[i];
        fill_row(&row, candidate);
        print_row(out, widths, &row, candidate->text);
        if (candidate->hint[0] != '\0') {
            fprintf(out, "%*sto do: ", (int)indent, "");
            text_print(out, candidate->hint);
            fputc('\n', out);
        }
    }
    fputs("  ", out);
    text_print(out, explanation->text != NULL ? explanation->text : "");
    fputc('\n', out);
    if (explanation->chosen >= explanation->candidate_count) {
        return;
    }
    const struct rdmux_candidate *chosen = explanation->candidates[explanation->chosen];
    if (chosen->security == RDMUX_SECURITY_ENCRYPTED) {
        bool is_tcp = strcmp(chosen->provider, "tcp") == 0;
        fprintf(out, "  every byte is encrypted%s\n",
                is_tcp ? ": TLS 1.3, by the two processes and not by their kernels" : "");
    }
}

static bool print_json(struct rdmux_explanation *explanation, FILE *out)
{
    const char *text = NULL;
    enum rdmux_status status = rdmux_explanation_json(explanation, &text);
    if (status != RDMUX_OK) {
        tool_error(command_name, "cannot write the explanation as JSON: %s: %s",
                   rdmux_status_name(status), rdmux_last_error());
        return false;
    }
    size_t length = strlen(text);
    fputs(text, out);
    if (length == 0 || text[length - 1] != '\n') {
        fputc('\n', out);
    }
    return true;
}

/* Prints the explanation, if any, and frees it. Returns code, or the code of a failed output. */
static int print_and_free(const struct explain_options *options,
                          struct rdmux_explanation *explanation, int code, FILE *out)
{
    if (explanation == NULL) {
        return code;
    }
    if (!options->json) {
        fprintf(out, "paths to %s\n", options->address);
        tool_print_explanation(out, explanation);
    } else if (!print_json(explanation, out)) {
        code = TOOL_FAILED;
    }
    rdmux_explanation_free(explanation);
    return code;
}

/* Connects, because measuring needs a connection. */
static int explain_measured(const struct explain_options *options, struct rdmux_ep_attr *attr,
                            FILE *out)
{
    struct client client;
    struct rdmux_explanation *explanation = NULL;
    attr->probe = 1;
    int code = client_open(&client, command_name, options->address, attr, 1);
    if (code == TOOL_OK) {
        enum rdmux_status status = rdmux_ep_explanation(client.ep, &explanation);
        code = tool_exit_code(status);
        if (status != RDMUX_OK) {
            client_fail_call(&client, "explain the path", status);
        }
    }
    client_close(&client);
    return print_and_free(options, explanation, code, out);
}

int tool_explain(const struct explain_options *options, FILE *out)
{
    if (tool_refuses_address(command_name, options->address)) {
        return TOOL_USAGE;
    }
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.paths = options->paths;
    if (options->probe) {
        return explain_measured(options, &attr, out);
    }
    struct rdmux_fabric *fabric = NULL;
    int code = tool_fabric_open(command_name, &fabric);
    if (code != TOOL_OK) {
        return code;
    }
    struct rdmux_explanation *explanation = NULL;
    enum rdmux_status status = rdmux_explain(fabric, options->address, &attr,
                                             TOOL_CONNECT_TIMEOUT_MS, &explanation);
    code = tool_exit_code(status);
    if (status != RDMUX_OK) {
        tool_error(command_name, "%s: %s: %s%s", options->address, rdmux_status_name(status),
                   rdmux_last_error(),
                   status == RDMUX_REFUSED ? " (is \"rdmux serve\" running there?)" : "");
    }
    code = print_and_free(options, explanation, code, out);
    rdmux_fabric_close(fabric);
    return code;
}

int tool_explain_main(int argc, char **argv)
{
    struct explain_options explain = { 0 };
    const struct option_spec options[] = {
        { .name = "paths",
          .kind = OPTION_TEXT,
          .text = &explain.paths,
          .argument = "LIST",
          .help = "paths to consider: \"shm,tcp\", \"!shm\"" },
        { .name = "probe",
          .kind = OPTION_FLAG,
          .flag = &explain.probe,
          .help = "connect, measure the paths, and rank them by the result" },
        { .name = "json", .kind = OPTION_FLAG, .flag = &explain.json, .help = "print JSON" },
    };
    const struct command_spec command = {
        .name = command_name,
        .authenticates = true,
        .usage = "HOST[:PORT] [--paths LIST] [--probe] [--json]",
        .description = "Negotiates with the server at HOST (\"rdmux serve\" or any rdmux "
                       "listener)\n"
                       "as far as ranking. Reports for every candidate path why it was chosen or\n"
                       "not, and a remedy. Exits with 1 and NO_PATH if there is no path.\n",
        .options = options,
        .option_count = TOOL_COUNT_OF(options),
        .positional_min = 1,
        .positional_max = 1,
    };
    const char *positionals[1];
    enum options_outcome outcome = options_parse(&command, argc, argv, positionals);
    if (outcome != OPTIONS_RUN) {
        return outcome == OPTIONS_HELP ? TOOL_OK : TOOL_USAGE;
    }
    explain.address = positionals[0];
    return tool_explain(&explain, stdout);
}
