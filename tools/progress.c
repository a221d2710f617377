/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "progress.h"

#include "timer.h"
#include "tool.h"

#include <string.h>
#include <unistd.h>

enum { BAR_WIDTH = 28 };

static const uint64_t terminal_period_ns = 100000000;
static const uint64_t plain_period_ns = 5000000000;

void progress_begin(struct progress *progress, uint64_t total)
{
    *progress = (struct progress){
        .total = total,
        .start_ns = timer_clock_ns(),
        .terminal = isatty(STDERR_FILENO) == 1,
    };
    progress->next_ns = progress->start_ns +
                        (progress->terminal ? terminal_period_ns : plain_period_ns);
}

static void draw(struct progress *progress, uint64_t done, uint64_t now_ns)
{
    double share = progress->total == 0 ? 1.0 : (double)done / (double)progress->total;
    share = share > 1.0 ? 1.0 : share;
    double seconds = (double)(now_ns - progress->start_ns) / 1e9;
    double speed = seconds > 0.0 ? (double)done / seconds : 0.0;
    char done_text[TOOL_NUMBER_MAX], total_text[TOOL_NUMBER_MAX], speed_text[TOOL_NUMBER_MAX];
    tool_format_bytes((double)done, done_text);
    tool_format_bytes((double)progress->total, total_text);
    tool_format_rate(speed, speed_text);
    char left_text[TOOL_NUMBER_MAX] = "";
    if (speed > 0.0 && progress->total > done) {
        uint64_t left = (uint64_t)((double)(progress->total - done) / speed + 0.5);
        snprintf(left_text, sizeof(left_text), ", %llu:%02llu left",
                 (unsigned long long)(left / 60), (unsigned long long)(left % 60));
    }
    if (!progress->terminal) {
        fprintf(stderr, "%3.0f %%, %s of %s, %s%s\n", share * 100.0, done_text, total_text,
                speed_text, left_text);
        return;
    }
    char bar[BAR_WIDTH + 1];
    size_t filled = (size_t)(share * BAR_WIDTH);
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', filled);
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %3.0f %%, %s of %s, %s%s\033[K", bar, share * 100.0, done_text,
            total_text, speed_text, left_text);
    fflush(stderr);
    progress->drawn = true;
}

void progress_update(struct progress *progress, uint64_t done)
{
    uint64_t now_ns = timer_clock_ns();
    if (now_ns >= progress->next_ns) {
        draw(progress, done, now_ns);
        progress->next_ns = now_ns + (progress->terminal ? terminal_period_ns : plain_period_ns);
    }
}

void progress_line(struct progress *progress, const char *line)
{
    if (progress->terminal) {
        fprintf(stderr, "\r%s\033[K", line);
        fflush(stderr);
        progress->drawn = true;
    }
}

void progress_clear(struct progress *progress)
{
    if (progress->drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        progress->drawn = false;
    }
}
