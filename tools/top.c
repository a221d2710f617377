/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux top: the endpoints of this user's running processes, as far as these share their counts. */
#include "json.h"
#include "options.h"
#include "outcome.h"
#include "text.h"
#include "tool.h"
#include "top_read.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char command_name[] = "top";

enum {
    ROWS_MAX = 40, /* of the table on a terminal */
    CELL_MAX = 160,
};

struct column {
    const char *title;
    int width;
    bool is_text; /* at the left */
};

/* 80 columns with the blanks between them. */
static const struct column columns[] = {
    { "PID", 7, false },    { "COMMAND", 8, true }, { "PATH", 10, true }, { "PEER", 15, true },
    { "SENT/S", 6, false }, { "RECV/S", 6, false }, { "RETR", 4, false }, { "ECN", 4, false },
    { "CRED", 4, false },   { "MOVES", 5, false },
};
enum { COLUMN_COUNT = TOOL_COUNT_OF(columns) };

static void print_cell(FILE *out, size_t column, const char *text)
{
    char cell[CELL_MAX];
    snprintf(cell, sizeof(cell), "%.*s", columns[column].width, text);
    text_clean(cell);
    fprintf(out, "%s%*s", column == 0 ? "" : " ",
            columns[column].is_text ? -columns[column].width : columns[column].width, cell);
}

/* Formats a number in four characters: "873", "12k", "1.2M". */
static void format_short(char out[CELL_MAX], double value)
{
    static const char *const prefixes[] = { "", "k", "M", "G", "T", "P", "E" };
    size_t prefix = 0;
    while (value >= 999.5 && prefix + 1 < TOOL_COUNT_OF(prefixes)) {
        value /= 1000.0;
        prefix++;
    }
    snprintf(out, CELL_MAX, "%.*f%s", prefix != 0 && value < 9.95 ? 1 : 0, value, prefixes[prefix]);
}

static void print_count(FILE *out, size_t column, bool is_counted, uint64_t value)
{
    char text[CELL_MAX] = "-";
    if (is_counted) {
        format_short(text, (double)value);
    }
    print_cell(out, column, text);
}

static void print_row(FILE *out, const struct top_endpoint *endpoint)
{
    const struct rdmux_stats_entry *entry = &endpoint->entry;
    char text[CELL_MAX];
    snprintf(text, sizeof(text), "%d", (int)endpoint->pid);
    print_cell(out, 0, text);
    print_cell(out, 1, endpoint->command);
    snprintf(text, sizeof(text), "%s%s%s", entry->provider[0] != '\0' ? entry->provider : "-",
             entry->device[0] != '\0' ? " " : "", entry->device);
    print_cell(out, 2, text);
    print_cell(out, 3, entry->peer_address);
    format_short(text, endpoint->sent_per_second);
    print_cell(out, 4, text);
    format_short(text, endpoint->received_per_second);
    print_cell(out, 5, text);
    print_count(out, 6, (entry->counted & RDMUX_COUNTED_RETRANSMISSIONS) != 0,
                entry->retransmissions);
    print_count(out, 7, (entry->counted & RDMUX_COUNTED_ECN_MARKS) != 0, entry->ecn_marks);
    print_count(out, 8, (entry->counted & RDMUX_COUNTED_CREDITS) != 0, entry->credits);
    print_count(out, 9, true, entry->moves);
    fputc('\n', out);
}

static void print_table(FILE *out, const struct top_sample *sample, size_t rows)
{
    if (sample->processes == 0) {
        fputs("no process of this user shares its counts; start one with RDMUX_STATS=1\n", out);
        return;
    }
    fprintf(out, "%zu endpoints of %zu processes; bytes a second\n",
            sample->count + sample->left_out, sample->processes);
    for (size_t column = 0; column < COLUMN_COUNT; column++) {
        print_cell(out, column, columns[column].title);
    }
    fputc('\n', out);
    for (size_t i = 0; i < sample->count && i < rows; i++) {
        print_row(out, &sample->endpoints[i]);
    }
    size_t hidden = sample->left_out + (sample->count > rows ? sample->count - rows : 0);
    if (hidden != 0) {
        fprintf(out, "and %zu more\n", hidden);
    }
}

static const char *name_of_state(uint32_t state)
{
    switch (state) {
    case RDMUX_EP_CONNECTING:
        return "connecting";
    case RDMUX_EP_CONNECTED:
        return "connected";
    case RDMUX_EP_MOVING:
        return "moving";
    case RDMUX_EP_ENDED:
        return "ended";
    default:
        return "?";
    }
}

/* null: the path does not count it. */
static void write_count(struct json *json, const char *key, bool is_counted, uint64_t value)
{
    if (is_counted) {
        json_unsigned(json, key, value);
    } else {
        json_null(json, key);
    }
}

static void write_endpoint(struct json *json, const struct top_endpoint *endpoint)
{
    const struct rdmux_stats_entry *entry = &endpoint->entry;
    json_object_begin(json, NULL);
    json_unsigned(json, "pid", (uint64_t)endpoint->pid);
    json_string(json, "command", endpoint->command);
    json_unsigned(json, "endpoint", entry->endpoint);
    json_string(json, "peer", entry->peer_address);
    json_string(json, "provider", entry->provider);
    json_string(json, "device", entry->device);
    json_string(json, "state", name_of_state(entry->state));
    json_string(json, "security", rdmux_security_name((enum rdmux_security)entry->security));
    json_unsigned(json, "bytes_sent", entry->bytes_sent);
    json_unsigned(json, "bytes_received", entry->bytes_received);
    json_unsigned(json, "requests", entry->requests);
    json_unsigned(json, "receives", entry->receives);
    json_unsigned(json, "again", entry->again);
    json_unsigned(json, "system_calls", entry->system_calls);
    json_real(json, "bytes_sent_per_second", endpoint->sent_per_second);
    json_real(json, "bytes_received_per_second", endpoint->received_per_second);
    json_real(json, "requests_per_second", endpoint->requests_per_second);
    write_count(json, "retransmissions", (entry->counted & RDMUX_COUNTED_RETRANSMISSIONS) != 0,
                entry->retransmissions);
    write_count(json, "ecn_marks", (entry->counted & RDMUX_COUNTED_ECN_MARKS) != 0,
                entry->ecn_marks);
    write_count(json, "credits", (entry->counted & RDMUX_COUNTED_CREDITS) != 0, entry->credits);
    json_unsigned(json, "failovers", entry->moves);
    json_unsigned(json, "epoch", entry->epoch);
    json_object_end(json);
}

static void write_json(FILE *out, const struct top_sample *sample)
{
    struct json json;
    json_begin(&json, out);
    json_object_begin(&json, NULL);
    json_unsigned(&json, "processes", sample->processes);
    json_array_begin(&json, "endpoints");
    for (size_t i = 0; i < sample->count; i++) {
        write_endpoint(&json, &sample->endpoints[i]);
    }
    json_array_end(&json);
    json_unsigned(&json, "left_out", sample->left_out);
    json_array_begin(&json, "refused");
    for (size_t i = 0; i < sample->refused_count; i++) {
        json_object_begin(&json, NULL);
        json_string(&json, "file", sample->refused[i].file);
        json_string(&json, "reason", sample->refused[i].reason);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
    json_end(&json);
}

static bool read_sample(const char *folder, struct top_sample *sample)
{
    char reason[TOP_REASON_MAX];
    if (!top_read(folder, sample, reason)) {
        tool_error(command_name,
                   "%s: %s: nothing in it is believed; remove it, or correct its owner and mode",
                   folder, reason);
        return false;
    }
    return true;
}

static void print_refused(const char *folder, const struct top_sample *sample)
{
    for (size_t i = 0; i < sample->refused_count; i++) {
        tool_notice(command_name, "%s/%s: %s; it is left out", folder, sample->refused[i].file,
                    sample->refused[i].reason);
    }
}

static void wait_a_second(void)
{
    const struct timespec second = { .tv_sec = 1 };
    (void)nanosleep(&second, NULL);
}

int tool_top_main(int argc, char **argv)
{
    bool once = false;
    bool as_json = false;
    const struct option_spec options[] = {
        { .name = "once",
          .kind = OPTION_FLAG,
          .flag = &once,
          .help = "print the table of one second, and end" },
        { .name = "json",
          .kind = OPTION_FLAG,
          .flag = &as_json,
          .help = "print JSON of one second, and end" },
    };
    const struct command_spec command = {
        .name = command_name,
        .usage = "[--once] [--json]",
        .description = "Lists the endpoints of this user's running processes, the busiest first:\n"
                       "path, peer, bytes a second, segments sent again, congestion marks, "
                       "credits\n"
                       "and failovers. A process is listed if it was started with RDMUX_STATS=1 "
                       "or\n"
                       "if its program asks for it (RDMUX_FABRIC_SHARE_STATS). On a terminal the\n"
                       "table is renewed each second.\n",
        .options = options,
        .option_count = TOOL_COUNT_OF(options),
    };
    enum options_outcome outcome = options_parse(&command, argc, argv, NULL);
    if (outcome != OPTIONS_RUN) {
        return outcome == OPTIONS_HELP ? TOOL_OK : TOOL_USAGE;
    }
    once = once || as_json || isatty(STDOUT_FILENO) == 0;
    char folder[RDMUX_STATS_FOLDER_MAX];
    struct top_sample before;
    rdmux_stats_folder(secure_getenv("XDG_RUNTIME_DIR"), folder);
    if (!read_sample(folder, &before)) {
        return TOOL_FAILED;
    }
    print_refused(folder, &before);
    for (bool more = true; more;) {
        struct top_sample now;
        if (before.processes != 0 || !once) {
            wait_a_second();
        }
        if (!read_sample(folder, &now)) {
            top_free(&before);
            return TOOL_FAILED;
        }
        top_compare(&before, &now);
        if (as_json) {
            write_json(outcome_out(), &now);
        } else {
            fputs(once ? "" : "\033[H\033[J", stdout); /* the terminal's top left; clears it */
            print_table(stdout, &now, once ? now.count : ROWS_MAX);
        }
        more = !once && fflush(stdout) == 0;
        top_free(&before);
        before = now;
    }
    top_free(&before);
    return TOOL_OK;
}
