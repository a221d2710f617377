/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Internals of `rdmux perf`: perf.c reads the options and plans the measurements, perf_measure.c
 * does one of them with its threads, perf_lane.c is one endpoint with its completions,
 * perf_latency.c and perf_rate.c post its requests. perf_report.c, perf_plot.c and perf_compare.c
 * show the figures.
 */
#ifndef RDMUX_TOOL_PERF_H
#define RDMUX_TOOL_PERF_H

#include "progress.h"
#include "protocol.h"
#include "tool.h"

#include <stddef.h>

enum {
    PERF_SLICES_MAX = 32,
    PERF_SLICES_MIN = 5, /* fewer tell nothing about the spread */
    PERF_ENDPOINTS_MAX = 1024,
    PERF_THREADS_MAX = 256,
    PERF_SEND_SIZE_MAX = 8 << 20, /* default limit of an endpoint */
};

/* Operations of one direction. */
struct perf_flow {
    uint64_t operations;
    double seconds;
};

enum perf_way { PERF_TO_SERVER, PERF_FROM_SERVER, PERF_WAY_COUNT };

/* Order of latencies in reports. */
enum perf_quantile {
    PERF_MIN,
    PERF_P50,
    PERF_P90,
    PERF_P99,
    PERF_P999,
    PERF_P9999,
    PERF_MAX,
    PERF_MEAN,
    PERF_QUANTILE_COUNT
};

/* Operations between two times since the measurement began. */
struct perf_interval {
    double begin;
    double end;
    uint64_t operations[PERF_WAY_COUNT];
};

/* Whether others used the processors meanwhile. Shares are below 0 if the kernel does not tell. */
struct perf_busy {
    double client_waited; /* of the time of the measuring threads */
    double server_waited; /* of the time of the server's thread */
    double stolen;        /* of all processors, by the hypervisor */
};

/* The figures of one measurement, as in its report. */
struct perf_figures {
    unsigned op;        /* enum perf_op */
    unsigned test;      /* enum perf_test */
    unsigned direction; /* enum perf_direction */
    unsigned memory;    /* enum perf_memory_kind */
    unsigned wait;      /* enum perf_wait */
    bool verified;
    bool interrupted;
    uint64_t size;
    uint64_t depth;
    uint64_t batch;
    uint64_t endpoints;
    uint64_t threads;
    char provider[RDMUX_NAME_MAX];
    char device[RDMUX_NAME_MAX];
    struct perf_flow flows[PERF_WAY_COUNT];
    bool half_round_trip;
    double latency_us[PERF_QUANTILE_COUNT]; /* latency tests */
    const char *timer;
    uint32_t group_size; /* operations timed together */
    double client_cpu;   /* seconds */
    double server_cpu;
    uint64_t served; /* operations of the server's CPU time */
    double spread;   /* relative; below 0: not known */
    unsigned slices; /* parts of the time that it is from */
    struct perf_busy busy;
    struct perf_interval *intervals; /* the owner of the figures frees them */
    size_t interval_count;
};

/* Sums over both directions. */
double perf_messages_per_second(const struct perf_figures *figures);
double perf_bytes_per_second(const struct perf_figures *figures);

/* The figure that a test is about: the median latency in microseconds, bytes per second, or
 * messages per second. */
double perf_main_figure(const struct perf_figures *figures);

/* What the measurements of a command share. */
struct perf_session {
    struct rdmux_fabric *fabric;
    int signal_fd;     /* readable once the command shall end; -1: none */
    bool interrupted;  /* by a signal */
    bool left_threads; /* which still use the fabric, until the process ends */
    bool quiet;        /* no progress line */
    FILE *lines;       /* for the lines of intervals; NULL: none */
};

/* Does one measurement. On failure prints the error and returns the exit code, with nothing to
 * free in *out. After a signal the figures are those so far. */
int perf_measure(struct perf_session *session, const struct perf_options *options,
                 struct perf_figures *out);

/* perf_report.c */
struct json;
void perf_report_text(const struct perf_figures *figures, const struct perf_options *options,
                      FILE *out);
void perf_report_interval_heading(const struct perf_figures *figures, FILE *out);
void perf_report_interval(const struct perf_figures *figures, const struct perf_interval *interval,
                          FILE *out);
void perf_report_json_members(const struct perf_figures *figures, struct json *json);
void perf_report_csv_heading(FILE *out);
void perf_report_csv(const struct perf_figures *figures, FILE *out);
void perf_report_table_heading(const struct perf_figures *figures, FILE *out);
void perf_report_table_row(const struct perf_figures *figures, FILE *out);

/* Formats a size as it is given: "8", "4K", "1M". */
void perf_format_size(uint64_t size, char out[TOOL_NUMBER_MAX]);

/* Formats the main figure with its unit. */
void perf_format_figure(const struct perf_figures *figures, char out[TOOL_NUMBER_MAX]);

/* Returns the warning about a busy machine, or NULL. */
const char *perf_busy_warning(const struct perf_figures *figures, char out[RDMUX_TEXT_MAX]);

/* perf_plot.c: checks, before anything is measured, that the file can be drawn. On failure prints
 * the error and returns the exit code. */
int perf_plot_check(const char *file);

/* Draws a curve for each path, a panel for each test. labels: of each figure's curve; NULL: its
 * path. */
int perf_plot(const char *file, const struct perf_figures *figures, size_t count,
              const char *const *labels);

/* perf_load.c: figures of a file of --json. On failure prints the error and returns the exit
 * code, with *out unchanged or empty; else the caller frees out->figures. */
struct perf_loaded {
    struct perf_figures *figures;
    size_t count;
};
int perf_load(const char *file, struct perf_loaded *out);

/* perf_compare.c: compares two files of --json. */
struct perf_compare_options {
    const char *before;
    const char *after;
    const char *plot;
    bool json;
    bool csv;
};
int perf_compare(const struct perf_compare_options *options, FILE *out);

#endif
