/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "outcome.h"

#include "json.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 4096 };

/* Static, because a process runs one command only. The error is written under the lock of standard
 * error. */
static struct {
    bool wants_json;
    bool is_printed;
    FILE *out; /* with --json; NULL: nothing was reported yet */
    char *report;
    size_t length;
    char text[TEXT_MAX];
    enum rdmux_status cause;
} outcome;

static const struct {
    int code;
    const char *status; /* if no call of the library failed */
    const char *hint;   /* if the text has no remedy */
} ends[] = {
    { TOOL_FAILED, "FAILED", "RDMUX_LOG=debug shows the steps that led there" },
    { TOOL_USAGE, "USAGE", "\"rdmux COMMAND --help\" describes the arguments" },
    { TOOL_NO_PATH, "RDMUX_NO_PATH",
      "\"rdmux explain HOST --verbose\" has the reason and a remedy for each path" },
    { TOOL_INTERRUPTED, "INTERRUPTED", "start it again" },
};

void outcome_wants_json(bool wanted)
{
    outcome.wants_json = wanted;
}

FILE *outcome_out(void)
{
    if (!outcome.wants_json || outcome.is_printed) {
        return stdout;
    }
    if (outcome.out == NULL) {
        outcome.out = open_memstream(&outcome.report, &outcome.length);
        outcome.is_printed = outcome.out == NULL;
    }
    return outcome.out != NULL ? outcome.out : stdout;
}

void outcome_error(const char *text)
{
    flockfile(stderr);
    if (outcome.text[0] == '\0') {
        snprintf(outcome.text, sizeof(outcome.text), "%s", text);
    }
    funlockfile(stderr);
}

void outcome_cause(enum rdmux_status status)
{
    flockfile(stderr);
    if (outcome.cause == RDMUX_OK) {
        outcome.cause = status;
    }
    funlockfile(stderr);
}

void outcome_keep(struct outcome_kept *out)
{
    *out = (struct outcome_kept){ .cause = outcome.cause };
    snprintf(out->text, sizeof(out->text), "%.1023s", outcome.text);
}

void outcome_is_printed(void)
{
    outcome.is_printed = true;
}

/* Returns the remedy in the text, and ends the text before it. NULL: it has none. */
static const char *cut_remedy(char *text)
{
    char *found = NULL;
    for (char *at = strstr(text, "; "); at != NULL; at = strstr(at + 1, "; ")) {
        found = at;
    }
    if (found == NULL || found[2] == '\0') {
        return NULL;
    }
    *found = '\0';
    return found + 2;
}

/* An explanation has its own status and text, as its first and last members. */
static bool has_status(const char *report)
{
    static const char first[] = "{\"status\":";
    return strncmp(report, first, sizeof(first) - 1) == 0;
}

/* Writes the members of the error that the report lacks. */
static void write_error(FILE *out, int code, const char *report)
{
    size_t end = 0;
    while (end + 1 < TOOL_COUNT_OF(ends) && ends[end].code != code) {
        end++;
    }
    const char *hint = cut_remedy(outcome.text);
    struct json json;
    json_begin(&json, out);
    if (!has_status(report)) {
        json_string(&json, "status",
                    outcome.cause != RDMUX_OK ? rdmux_status_name(outcome.cause) : ends[end].status);
        json_string(&json, "text", outcome.text[0] != '\0' ? outcome.text : "the command failed");
    }
    json_string(&json, "hint", hint != NULL ? hint : ends[end].hint);
}

/* The report is an object, or nothing. A failed command's has the members of the error first. */
static void write_object(int code)
{
    const char *report = outcome.length > 0 ? outcome.report : "{}\n";
    if (code == TOOL_OK) {
        fwrite(outcome.report, 1, outcome.length, stdout);
    } else {
        putchar('{');
        write_error(stdout, code, report);
        fputs(report[1] != '}' ? "," : "", stdout);
        fputs(report + 1, stdout);
    }
}

int outcome_end(const char *command, int code)
{
    bool is_kept = outcome.out == NULL || fclose(outcome.out) == 0;
    if (!is_kept) {
        tool_error(command, "out of memory for the report; free some memory");
        outcome.length = 0;
        code = TOOL_FAILED;
    }
    outcome.out = NULL;
    if (outcome.wants_json && !outcome.is_printed) {
        write_object(code);
        outcome.is_printed = true;
    }
    free(outcome.report);
    outcome.report = NULL;
    if (fflush(stdout) != 0 && code == TOOL_OK) {
        tool_error(command, "standard output cannot be written; the report is incomplete");
        code = TOOL_FAILED;
    }
    return code;
}
