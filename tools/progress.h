/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A progress bar on standard error: share, speed, time left. Off a terminal, a plain line every few
 * seconds. */
#ifndef RDMUX_TOOL_PROGRESS_H
#define RDMUX_TOOL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    uint64_t total; /* bytes */
    uint64_t start_ns;
    uint64_t next_ns; /* when to draw again */
    bool terminal;
    bool drawn;
};

void progress_begin(struct progress *progress, uint64_t total);
void progress_update(struct progress *progress,
                     uint64_t done);            /* cheap; draws only when it is time */
void progress_clear(struct progress *progress); /* wipes the bar, so that other text may follow */

#endif
