/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How a command ends: its exit status and, with --json, the one JSON object on standard output. An
 * object of a command that failed has the members status, text and hint. */
#ifndef RDMUX_TOOL_OUTCOME_H
#define RDMUX_TOOL_OUTCOME_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdio.h>

/* Whether the command was called with --json. */
void outcome_wants_json(bool wanted);

/* Returns the stream for the report. With --json it is kept until outcome_end(), so that members
 * can be added to the object. */
FILE *outcome_out(void);

/* Keeps the error of the command: the first one of the process. The remedy is what follows the last
 * "; ". Any thread. */
void outcome_error(const char *text);

/* Keeps the status of the library call that failed: the first one. Any thread. */
void outcome_cause(enum rdmux_status status);

/* What a child process kept, for its parent to keep. */
struct outcome_kept {
    enum rdmux_status cause;
    char text[1024];
};
void outcome_keep(struct outcome_kept *out);

/* Another process has written the object, or it was written because the command runs on. */
void outcome_is_printed(void);

/* Writes what is left to write. Returns the exit status: code, or that of a failed output. */
int outcome_end(const char *command, int code);

#endif
