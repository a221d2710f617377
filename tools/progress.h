/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A progress bar on standard error: percentage, speed, time left. If standard error is not a
 * terminal, a plain line every few seconds. */
#ifndef RDMUX_TOOL_PROGRESS_H
#define RDMUX_TOOL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    uint64_t total; /* bytes */
    uint64_t start_ns;
    uint64_t next_ns; /* time of the next update */
    bool terminal;
    bool drawn;
};

void progress_begin(struct progress *progress, uint64_t total);
void progress_update(struct progress *progress,
                     uint64_t done); /* cheap; draws only when an update is due */
void progress_line(struct progress *progress, const char *line); /* shows it on a terminal */
void progress_clear(struct progress *progress); /* clears the bar before other output */

#endif
