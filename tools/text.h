/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Text that a peer may have made, on its way to a terminal or a log. */
#ifndef RDMUX_TOOL_TEXT_H
#define RDMUX_TOOL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Length of the valid UTF-8 sequence at text, 0 if there is none (RFC 3629: no surrogates, no
 * overlong forms). */
size_t text_utf8_length(const char *text);

/* Length of the character at text if it may be shown; 0: none begins here, or it is a control
 * character (newlines included), or one that changes the direction or the line of what follows. */
size_t text_shown_length(const char *text);

/* Replaces each byte that may not be shown by one '?'. */
void text_clean(char *text);

/* Prints text; a byte that may not be shown is printed as \xNN. So one call prints within a line. */
void text_print(FILE *out, const char *text);

enum { LOG_LIMIT_LINES = 64 }; /* in ten seconds */

/* How many lines a log gets. Zeroed: none was printed yet. */
struct log_limit {
    uint64_t since_ns; /* when the ten seconds began */
    unsigned told;
    uint64_t untold;
};

/* May a line be printed now? False: it is counted as left out. */
bool log_limit_take(struct log_limit *limit, uint64_t now_ns);

/* How many lines were left out, once the ten seconds are over; each is counted once. To be asked
 * before each line, and from time to time. */
uint64_t log_limit_left_out(struct log_limit *limit, uint64_t now_ns);

#endif
