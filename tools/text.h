/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Prepares text from a peer for a terminal or a log. */
#ifndef RDMUX_TOOL_TEXT_H
#define RDMUX_TOOL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Returns the length of the valid UTF-8 sequence at text, 0 if there is none (RFC 3629: no
 * surrogates, no overlong forms). */
size_t text_utf8_length(const char *text);

/* Returns the length of the character at text if it may be shown. Returns 0 if no valid character
 * begins here, or if it is a control character (newlines included) or changes the direction or the
 * line of the text behind it. */
size_t text_shown_length(const char *text);

/* Replaces each byte that may not be shown with '?'. */
void text_clean(char *text);

/* Prints text; a byte that may not be shown is printed as \xNN. The output therefore stays on one
 * line. */
void text_print(FILE *out, const char *text);

enum { LOG_LIMIT_LINES = 64 }; /* per ten seconds */

/* Limits the number of log lines. All zero: no line was printed yet. */
struct log_limit {
    uint64_t since_ns; /* start of the ten seconds */
    unsigned told;
    uint64_t untold;
};

/* Returns whether a line may be printed now. On false, the line is counted as left out. */
bool log_limit_take(struct log_limit *limit, uint64_t now_ns);

/* Returns how many lines were left out, once the ten seconds are over; each line is counted once.
 * Call it before each line and from time to time. */
uint64_t log_limit_left_out(struct log_limit *limit, uint64_t now_ns);

#endif
