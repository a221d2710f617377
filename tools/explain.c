/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux explain: shows the path to a server that would be chosen, and why not the others. */
#include "client.h"
#include "options.h"
#include "outcome.h"
#include "text.h"
#include "tool.h"

#include "negotiation/verdict.h"

#include <string.h>

static const char command_name[] = "explain";

enum {
    LINE_COLUMNS = 80,
    CELL_MAX = 2 * RDMUX_NAME_MAX + 2, /* bytes of a cell of a table, with its NUL */
    PATH_COLUMNS = 24,
    COLUMN_COUNT = 3, /* the text behind them is wrapped */
    WORDS_MAX = 1024,
};

/* ------------------------------------------------------------------------------- text in columns */

/* Columns of a cleaned text on a terminal, a character each. */
static size_t columns_of(const char *text)
{
    size_t columns = 0;
    for (; *text != '\0'; text++) {
        columns += ((unsigned char)*text & 0xc0) != 0x80 ? 1 : 0;
    }
    return columns;
}

static void pad(FILE *out, size_t columns)
{
    for (; columns > 0; columns--) {
        fputc(' ', out);
    }
}

static void print_cell(FILE *out, const char *text, size_t width)
{
    size_t columns = columns_of(text);
    fputs(text, out);
    pad(out, width > columns ? width - columns : 0);
}

/* Returns the bytes of the next part of a line: of a word with the blanks before it, or, if no word
 * is so short, of room columns. */
static size_t next_part(const char *text, size_t room, size_t *columns)
{
    size_t blanks = strspn(text, " ");
    size_t length = blanks + strcspn(text + blanks, " ");
    *columns = 0;
    for (size_t i = 0; i < length; i++) {
        bool begins = ((unsigned char)text[i] & 0xc0) != 0x80;
        if (begins && *columns == room) {
            return i;
        }
        *columns += begins ? 1 : 0;
    }
    return length;
}

/* Prints a text from the column `at` on, and ends the line. Lines after the first begin at
 * `indent`. */
static void print_wrapped(FILE *out, const char *text, size_t at, size_t indent)
{
    char words[WORDS_MAX];
    snprintf(words, sizeof(words), "%s", text);
    text_clean(words);
    const char *next = words;
    bool is_first = true; /* word of its line */
    while (*next != '\0') {
        size_t columns = 0;
        size_t length = next_part(next, LINE_COLUMNS - indent, &columns);
        if (!is_first && at + columns > LINE_COLUMNS) {
            fputc('\n', out);
            pad(out, indent);
            at = indent;
            is_first = true;
            next += strspn(next, " ");
            continue;
        }
        fwrite(next, 1, length, out);
        at += columns;
        next += length;
        is_first = false;
    }
    fputc('\n', out);
}

/* ------------------------------------------------------------------------------------- the table */

struct table_row {
    char cells[COLUMN_COUNT][CELL_MAX]; /* path, cost, where the cost is from */
};

/* Writes a path's name, cut to some columns. */
static void name_path(char out[CELL_MAX], size_t columns, const char *provider, const char *device)
{
    snprintf(out, CELL_MAX, "%s%s%s", provider, device[0] != '\0' ? " " : "", device);
    text_clean(out);
    while (columns_of(out) > columns) {
        size_t last = strlen(out) - 1;
        while (((unsigned char)out[last] & 0xc0) == 0x80) {
            last--;
        }
        out[last] = '\0';
    }
}

static void format_time(char out[CELL_MAX], uint64_t ns)
{
    if (ns < 100000000) {
        snprintf(out, CELL_MAX, "%.2f us", (double)ns / 1e3);
    } else {
        snprintf(out, CELL_MAX, "%.3g s", (double)ns / 1e9);
    }
}

static void fill_row(struct table_row *row, const struct rdmux_candidate *candidate)
{
    bool ours = candidate->device[0] != '\0';
    name_path(row->cells[0], PATH_COLUMNS, candidate->provider,
              ours ? candidate->device : candidate->peer_device);
    if (candidate->cost_ns != 0) {
        format_time(row->cells[1], candidate->cost_ns);
        snprintf(row->cells[2], CELL_MAX, "%s", candidate->measured != 0 ? "measured" : "constant");
    } else {
        snprintf(row->cells[1], CELL_MAX, "-");
        snprintf(row->cells[2], CELL_MAX, "-");
    }
}

static void widen(size_t widths[COLUMN_COUNT], const struct table_row *row)
{
    for (size_t column = 0; column < COLUMN_COUNT; column++) {
        size_t width = columns_of(row->cells[column]);
        widths[column] = width > widths[column] ? width : widths[column];
    }
}

/* Prints the cells, and the text wrapped behind them. */
static void print_row(FILE *out, const size_t widths[COLUMN_COUNT], const struct table_row *row,
                      const char *text)
{
    size_t at = 0;
    for (size_t column = 0; column < COLUMN_COUNT; column++) {
        pad(out, 2);
        print_cell(out, row->cells[column], widths[column]);
        at += 2 + widths[column];
    }
    pad(out, 2);
    print_wrapped(out, text, at + 2, at + 2);
}

/* A candidate's text without the cost in front, which has its own column. */
static const char *text_behind_cost(const struct rdmux_candidate *candidate)
{
    char cost[CELL_MAX];
    snprintf(cost, sizeof(cost), "%llu ns for ", (unsigned long long)candidate->cost_ns);
    const char *behind = strstr(candidate->text, "; ");
    bool begins = candidate->cost_ns != 0 && strncmp(candidate->text, cost, strlen(cost)) == 0 &&
                  behind != NULL;
    return begins ? behind + 2 : candidate->text;
}

static void print_candidate(FILE *out, const size_t widths[COLUMN_COUNT],
                            const struct rdmux_candidate *candidate)
{
    struct table_row row;
    char text[WORDS_MAX];
    fill_row(&row, candidate);
    snprintf(text, sizeof(text), "%s: %s", rdmux_reason_name((enum rdmux_reason)candidate->reason),
             text_behind_cost(candidate));
    print_row(out, widths, &row, text);
}

static void print_hint(FILE *out, const size_t widths[COLUMN_COUNT], const char *hint)
{
    const struct table_row blank = { .cells = { "" } };
    char text[WORDS_MAX];
    if (hint[0] != '\0') {
        snprintf(text, sizeof(text), "to do: %s", hint);
        print_row(out, widths, &blank, text);
    }
}

/* ------------------------------------------------------------------------------------ absent kinds */

/* A kind of path that neither side has, or that this side has on request only and was not asked for:
 * nothing to do with the connection at hand. */
static bool is_absent(const struct rdmux_candidate *candidate)
{
    return candidate->rank == 0 && candidate->stage == RDMUX_STAGE_PROBE &&
           candidate->device[0] == '\0' && candidate->peer_device[0] == '\0' &&
           (candidate->reason == RDMUX_REASON_NO_DEVICE ||
            candidate->reason == RDMUX_REASON_NO_LIBRARY ||
            (candidate->reason == RDMUX_REASON_FILTERED &&
             (candidate->sides & RDMUX_SIDE_HERE) != 0));
}

/* Prints "absent: ib, roce (NO_DEVICE), iwarp (NO_LIBRARY); --verbose says why". */
static void print_absent(FILE *out, const struct rdmux_explanation *explanation)
{
    static const enum rdmux_reason reasons[] = { RDMUX_REASON_NO_DEVICE, RDMUX_REASON_NO_LIBRARY,
                                                 RDMUX_REASON_FILTERED };
    char text[WORDS_MAX] = "";
    size_t used = 0;
    for (size_t i = 0; i < TOOL_COUNT_OF(reasons); i++) {
        const char *last = NULL;
        for (uint32_t at = 0; at < explanation->candidate_count; at++) {
            const struct rdmux_candidate *candidate = explanation->candidates[at];
            bool again = last != NULL && strcmp(last, candidate->provider) == 0;
            if (!is_absent(candidate) || candidate->reason != (uint32_t)reasons[i] || again ||
                used > sizeof(text) - 2 * (size_t)RDMUX_NAME_MAX) {
                continue;
            }
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
                                     used == 0 ? "" : ", ", candidate->provider);
            last = candidate->provider;
        }
        if (last != NULL) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, " (%s)",
                                     rdmux_reason_name(reasons[i]));
        }
    }
    if (used != 0) {
        snprintf(text + used, sizeof(text) - used, "; --verbose says why");
        fputs("  absent: ", out);
        print_wrapped(out, text, 10, 4);
    }
}

/* ------------------------------------------------------------------------------------- folded pairs */

/* What the table leaves out of the pairs of a path of this side with a path of the peer. */
struct folded {
    uint32_t alike; /* with the same line as another one */
    uint32_t apart; /* that cannot reach each other, where this side's path has a better pair */
};

/* Returns whether one line says it all. */
static bool is_same_line(const struct rdmux_candidate *a, const struct rdmux_candidate *b)
{
    return rdmux_verdict_is_same(a, b) && a->cost_ns == b->cost_ns && a->measured == b->measured &&
           strcmp(a->hint, b->hint) == 0;
}

/* Counts the candidate as folded if it is, and returns whether it is. */
static bool fold(const struct rdmux_explanation *explanation, uint32_t at, struct folded *folded)
{
    const struct rdmux_candidate *candidate = explanation->candidates[at];
    bool is_alike = false;
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        const struct rdmux_candidate *other = explanation->candidates[i];
        if (rdmux_verdict_is_outdone(candidate, other)) {
            folded->apart++;
            return true;
        }
        is_alike = is_alike || ((i < at || i == explanation->chosen) && i != at &&
                                is_same_line(other, candidate));
    }
    folded->alike += is_alike ? 1 : 0;
    return is_alike;
}

/* Prints "more pairs of paths: 8 like one above, 24 that cannot reach each other; ...". */
static void print_folded(FILE *out, const struct folded *folded, const char *option)
{
    char alike[CELL_MAX] = "";
    char apart[CELL_MAX] = "";
    char text[WORDS_MAX];
    if (folded->alike != 0) {
        snprintf(alike, sizeof(alike), "%u like one above", (unsigned)folded->alike);
    }
    if (folded->apart != 0) {
        snprintf(apart, sizeof(apart), "%u that cannot reach each other", (unsigned)folded->apart);
    }
    if (folded->alike != 0 || folded->apart != 0) {
        snprintf(text, sizeof(text), "%s%s%s; %s shows them", alike,
                 alike[0] != '\0' && apart[0] != '\0' ? ", " : "", apart, option);
        fputs("  more pairs of paths: ", out);
        print_wrapped(out, text, 23, 4);
    }
}

/* -------------------------------------------------------------------------------------- both sides */

enum {
    KIND_COLUMNS = 7,
    DEVICE_COLUMNS = 10,
    SIDE_COLUMNS = 34, /* a device and two figures */
};

/* Formats "memory, 0.20 us, 12.3 GB/s". */
static void format_side(char *out, size_t size, const char *device, uint32_t latency_ns,
                        uint64_t bandwidth)
{
    char name[CELL_MAX];
    char time[CELL_MAX] = "";
    char rate[TOOL_NUMBER_MAX] = "";
    name_path(name, DEVICE_COLUMNS, device[0] != '\0' ? device : "yes", "");
    if (latency_ns != 0) {
        format_time(time, latency_ns);
    }
    if (bandwidth != 0 && bandwidth != UINT64_MAX) {
        tool_format_rate((double)bandwidth, rate);
    }
    snprintf(out, size, "%s%s%s%s%s", name, time[0] != '\0' ? ", " : "", time,
             rate[0] != '\0' ? ", " : "", rate);
}

static void print_side_row(FILE *out, const char *kind, const char *here, const char *peer)
{
    pad(out, 2);
    print_cell(out, kind, KIND_COLUMNS + 1);
    print_cell(out, here, SIDE_COLUMNS + 1);
    fprintf(out, "%s\n", peer);
}

/* Prints what each side has, a line for each candidate. */
static void print_sides(FILE *out, const struct rdmux_explanation *explanation)
{
    fputc('\n', out);
    print_side_row(out, "path", "this side (connector)", "the peer (acceptor)");
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        const struct rdmux_candidate *candidate = explanation->candidates[i];
        char kind[CELL_MAX];
        char here[2 * CELL_MAX + TOOL_NUMBER_MAX] = "none";
        char peer[2 * CELL_MAX + TOOL_NUMBER_MAX] = "none";
        bool here_alone = candidate->sides == RDMUX_SIDE_HERE;
        bool peer_alone = candidate->sides == RDMUX_SIDE_PEER;
        bool unusable = candidate->stage == RDMUX_STAGE_PROBE;
        name_path(kind, KIND_COLUMNS, candidate->provider, "");
        if (unusable) {
            /* the other side's path of this kind has a line of its own */
            snprintf(here, sizeof(here), "%s", peer_alone ? "" : "not usable");
            snprintf(peer, sizeof(peer), "%s", here_alone ? "" : "not usable");
        } else {
            if (!peer_alone) {
                format_side(here, sizeof(here), candidate->device, candidate->latency_ns,
                            candidate->bandwidth);
            }
            if (!here_alone) {
                format_side(peer, sizeof(peer), candidate->peer_device, candidate->peer_latency_ns,
                            candidate->peer_bandwidth);
            }
        }
        print_side_row(out, kind, here, peer);
    }
    fputs("  half a round trip and bandwidth, as each side's device or provider has them\n", out);
}

/* ------------------------------------------------------------------------------ the whole of it */

static const struct rdmux_candidate *chosen_of(const struct rdmux_explanation *explanation)
{
    return explanation->chosen < explanation->candidate_count
               ? explanation->candidates[explanation->chosen]
               : NULL;
}

static void print_protection(FILE *out, const struct rdmux_candidate *chosen)
{
    if (chosen->security == RDMUX_SECURITY_ENCRYPTED) {
        bool is_tcp = strcmp(chosen->provider, "tcp") == 0;
        fputs("  every byte is ", out);
        print_wrapped(out,
                      is_tcp ? "encrypted: TLS 1.3, by the two processes and not by their kernels"
                             : "encrypted",
                      16, 4);
    }
}

/* verbose_option: what prints all of it. */
static void print_explanation(FILE *out, const struct rdmux_explanation *explanation, bool verbose,
                              const char *verbose_option)
{
    static const struct table_row heading = { { "path", "cost", "figures" } };
    const struct rdmux_candidate *chosen = chosen_of(explanation);
    size_t widths[COLUMN_COUNT] = { 0 };
    const bool shows_absent = verbose || chosen == NULL; /* they are the reasons then */
    struct folded folded = { 0 };
    widen(widths, &heading);
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        struct table_row row;
        fill_row(&row, explanation->candidates[i]);
        widen(widths, &row);
    }
    print_row(out, widths, &heading, "why");
    const char *hint = "";
    if (chosen != NULL) {
        print_candidate(out, widths, chosen);
        hint = chosen->hint;
    }
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        const struct rdmux_candidate *candidate = explanation->candidates[i];
        if (candidate != chosen && (shows_absent || !is_absent(candidate)) &&
            (verbose || !fold(explanation, i, &folded))) {
            if (strcmp(hint, candidate->hint) != 0) {
                print_hint(out, widths, hint); /* of all the lines before that have it */
            }
            print_candidate(out, widths, candidate);
            hint = candidate->hint;
        }
    }
    print_hint(out, widths, hint);
    if (!shows_absent) {
        print_absent(out, explanation);
    }
    print_folded(out, &folded, verbose_option);
    if (chosen == NULL) {
        fputs("  no path can be used\n", out);
    } else {
        print_protection(out, chosen);
    }
}

void tool_print_explanation(FILE *out, const struct rdmux_explanation *explanation)
{
    print_explanation(out, explanation, false, "\"rdmux explain HOST --verbose\"");
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
        print_explanation(out, explanation, options->verbose, "--verbose");
        if (options->both) {
            print_sides(out, explanation);
        }
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
    if (status == RDMUX_REFUSED) {
        tool_refused(command_name, options->address);
    } else if (status != RDMUX_OK) {
        tool_error(command_name, "%s: %s: %s", options->address, rdmux_status_name(status),
                   tool_last_error());
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
        { .name = "both",
          .kind = OPTION_FLAG,
          .flag = &explain.both,
          .help = "also show what each side has, with its figures" },
        { .name = "verbose",
          .kind = OPTION_FLAG,
          .flag = &explain.verbose,
          .help = "a line, the reason and a remedy also for kinds that neither side has, "
                  "and for each pair of a path here with one of the peer" },
        { .name = "json", .kind = OPTION_FLAG, .flag = &explain.json, .help = "print JSON" },
    };
    const struct command_spec command = {
        .name = command_name,
        .authenticates = true,
        .usage = "HOST[:PORT] [--paths LIST] [--probe] [--both] [--verbose] [--json]",
        .description = "Negotiates with the server at HOST (\"rdmux serve\" or any rdmux "
                       "listener)\n"
                       "as far as ranking. Reports for every candidate path why it was chosen or\n"
                       "not, and a remedy; the chosen one is the first. Its cost is measured, or\n"
                       "follows from constants: the figures of providers and devices. Exits with "
                       "3\n"
                       "if there is no path.\n",
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
    return tool_explain(&explain, outcome_out());
}
