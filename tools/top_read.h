/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Reads the counts that processes of this user share (RDMUX_FABRIC_SHARE_STATS). */
#ifndef RDMUX_TOOL_TOP_READ_H
#define RDMUX_TOOL_TOP_READ_H

#include "api/base/stats_layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TOP_FILE_MAX = 256,
    TOP_REASON_MAX = 160,
    TOP_REFUSED_MAX = 32,
};

/* An endpoint of a running process. */
struct top_endpoint {
    struct rdmux_stats_entry entry; /* its texts end */
    char file[TOP_FILE_MAX];
    char command[RDMUX_STATS_COMMAND_MAX];
    int32_t pid;
    uint64_t written_ns;
    double sent_per_second;
    double received_per_second;
    double requests_per_second;
};

/* A file that is not believed. */
struct top_refused {
    char file[TOP_FILE_MAX];
    char reason[TOP_REASON_MAX];
};

struct top_sample {
    struct top_endpoint *endpoints;
    size_t count;
    size_t room;
    size_t processes;
    size_t left_out; /* endpoints that their process has no entry for */
    size_t cleaned;  /* files of processes that are gone */
    struct top_refused refused[TOP_REFUSED_MAX];
    size_t refused_count;
};

/* Checks the bytes of a file. Returns false, with the reason, if they are not what a fabric
 * writes. */
bool top_check(const void *bytes, size_t size, char reason[TOP_REASON_MAX]);

/* Reads all files in the folder, and removes those of processes that are gone. Returns false, with
 * the reason, if the folder cannot be trusted or read; a folder that is not there has no files.
 * The caller frees the sample. */
bool top_read(const char *folder, struct top_sample *out, char reason[TOP_REASON_MAX]);

/* Computes the rates since an earlier sample, and sorts by them: the busiest endpoint first. */
void top_compare(const struct top_sample *earlier, struct top_sample *sample);

void top_free(struct top_sample *sample);

#endif
