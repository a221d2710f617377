/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Output of `rdmux perf`: text, tables, CSV, and the JSON of one measurement. */
#include "perf.h"

#include "json.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>

/* Shares of the time beyond which the figures are doubtful. A thread that sleeps waits for a
 * processor after each wake-up. */
static const double waited_max = 0.03;
static const double waited_max_asleep = 0.2;
static const double stolen_max = 0.01;

static const char *const quantile_names[PERF_QUANTILE_COUNT] = {
    [PERF_MIN] = "min",   [PERF_P50] = "p50",     [PERF_P90] = "p90", [PERF_P99] = "p99",
    [PERF_P999] = "p999", [PERF_P9999] = "p9999", [PERF_MAX] = "max", [PERF_MEAN] = "mean",
};

static double rate_of(const struct perf_flow *flow)
{
    return flow->seconds > 0 ? (double)flow->operations / flow->seconds : 0.0;
}

double perf_messages_per_second(const struct perf_figures *figures)
{
    return rate_of(&figures->flows[PERF_TO_SERVER]) + rate_of(&figures->flows[PERF_FROM_SERVER]);
}

double perf_bytes_per_second(const struct perf_figures *figures)
{
    return perf_messages_per_second(figures) * (double)figures->size;
}

double perf_main_figure(const struct perf_figures *figures)
{
    switch ((enum perf_test)figures->test) {
    case PERF_LATENCY:
        return figures->latency_us[PERF_P50];
    case PERF_BANDWIDTH:
        return perf_bytes_per_second(figures);
    case PERF_RATE:
    case PERF_TEST_COUNT:
        break;
    }
    return perf_messages_per_second(figures);
}

static double gbit(double bytes_per_second)
{
    return bytes_per_second * 8 / 1e9;
}

void perf_format_size(uint64_t size, char out[TOOL_NUMBER_MAX])
{
    if (size != 0 && size % (1 << 20) == 0) {
        snprintf(out, TOOL_NUMBER_MAX, "%" PRIu64 "M", size >> 20);
    } else if (size != 0 && size % (1 << 10) == 0) {
        snprintf(out, TOOL_NUMBER_MAX, "%" PRIu64 "K", size >> 10);
    } else {
        snprintf(out, TOOL_NUMBER_MAX, "%" PRIu64, size);
    }
}

void perf_format_figure(const struct perf_figures *figures, char out[TOOL_NUMBER_MAX])
{
    double value = perf_main_figure(figures);
    switch ((enum perf_test)figures->test) {
    case PERF_LATENCY:
        snprintf(out, TOOL_NUMBER_MAX, "%.2f us", value);
        return;
    case PERF_BANDWIDTH:
        snprintf(out, TOOL_NUMBER_MAX, "%.3f GB/s", value / 1e9);
        return;
    case PERF_RATE:
    case PERF_TEST_COUNT:
        break;
    }
    snprintf(out, TOOL_NUMBER_MAX, "%.0f/s", value);
}

/* ----------------------------------------------------------------------------- a busy machine */

const char *perf_busy_warning(const struct perf_figures *figures, char out[RDMUX_TEXT_MAX])
{
    const struct perf_busy *busy = &figures->busy;
    double limit = figures->wait == PERF_SLEEP ? waited_max_asleep : waited_max;
    size_t length = 0;
    out[0] = '\0';
    if (busy->client_waited > limit) {
        length += (size_t)snprintf(out + length, RDMUX_TEXT_MAX - length,
                                   "the measuring threads were ready %.0f %% of the time without "
                                   "a processor",
                                   busy->client_waited * 100);
    }
    if (busy->server_waited > limit) {
        length += (size_t)snprintf(out + length, RDMUX_TEXT_MAX - length,
                                   "%sthe server's thread was ready %.0f %% of the time without a "
                                   "processor",
                                   length > 0 ? ", " : "", busy->server_waited * 100);
    }
    if (busy->stolen > stolen_max) {
        length += (size_t)snprintf(out + length, RDMUX_TEXT_MAX - length,
                                   "%sthe hypervisor took %.0f %% of the processors' time",
                                   length > 0 ? ", " : "", busy->stolen * 100);
    }
    return length > 0 ? out : NULL;
}

/* ------------------------------------------------------------------------------ one measurement */

static void print_rate(const char *name, double rate, uint64_t size, FILE *out)
{
    double bytes = rate * (double)size;
    char text[TOOL_NUMBER_MAX], bits[TOOL_NUMBER_MAX];
    tool_format_rate(bytes, text);
    tool_format_gbit(bytes, bits);
    fprintf(out, "  %-17s %s, %s, %.0f messages/s\n", name, text, bits, rate);
}

static void print_rates(const struct perf_figures *figures, FILE *out)
{
    const char *name = figures->test == PERF_BANDWIDTH ? "bandwidth" : "rate";
    print_rate(name, perf_messages_per_second(figures), figures->size, out);
    if (figures->direction == PERF_BOTH) {
        print_rate("  to the server", rate_of(&figures->flows[PERF_TO_SERVER]), figures->size, out);
        print_rate("  from the server", rate_of(&figures->flows[PERF_FROM_SERVER]), figures->size,
                   out);
    }
    fprintf(out, "  %-17s depth %" PRIu64 ", batch %" PRIu64 "\n", "window", figures->depth,
            figures->batch);
}

void perf_report_text(const struct perf_figures *figures, const struct perf_options *options,
                      FILE *out)
{
    static const char *const directions[] = { "", " from the server", " in both directions" };
    const double *us = figures->latency_us;
    fprintf(out, "%s %s%s, %" PRIu64 " bytes, over %s%s%s to %s%s\n", perf_op_names[figures->op],
            perf_test_names[figures->test], directions[figures->direction], figures->size,
            figures->provider, figures->device[0] != '\0' ? " " : "", figures->device,
            options->address, figures->interrupted ? "; interrupted, so far:" : "");
    if (figures->test == PERF_LATENCY) {
        fprintf(out,
                "  %-17s min %.3f  p50 %.3f  p90 %.3f  p99 %.3f  p99.9 %.3f  p99.99 %.3f  max "
                "%.3f us\n",
                figures->half_round_trip ? "half round trip" : "round trip", us[PERF_MIN],
                us[PERF_P50], us[PERF_P90], us[PERF_P99], us[PERF_P999], us[PERF_P9999],
                us[PERF_MAX]);
        fprintf(out, "  %-17s %s, %u operations a sample\n", "timed by", figures->timer,
                (unsigned)figures->group_size);
    } else {
        print_rates(figures, out);
    }
    const struct perf_flow *to = &figures->flows[PERF_TO_SERVER];
    const struct perf_flow *from = &figures->flows[PERF_FROM_SERVER];
    double seconds = to->seconds > from->seconds ? to->seconds : from->seconds;
    fprintf(out, "  %-17s %" PRIu64 " in %.3f s, memory %s, wait %s%s\n", "operations",
            to->operations + from->operations, seconds, perf_memory_names[figures->memory],
            perf_wait_names[figures->wait],
            figures->verified ? ", contents verified at both ends" : "");
    if (figures->endpoints > 1) {
        fprintf(out, "  %-17s %" PRIu64 ", driven by %" PRIu64 " thread%s\n", "endpoints",
                figures->endpoints, figures->threads, figures->threads > 1 ? "s" : "");
    }
    if (figures->spread >= 0) {
        fprintf(out, "  %-17s %.1f %% between %u parts of the time\n", "spread",
                figures->spread * 100, figures->slices);
    }
    fprintf(out, "  %-17s client %.2f s, server %.2f s\n", "cpu time", figures->client_cpu,
            figures->server_cpu);
    fprintf(out, "  %-17s %" PRIu64 " operations since the test began", "server's count",
            figures->served);
    if (figures->busy.server_waited >= 0) {
        fprintf(out, ", ready without a processor for %.1f %% of the time",
                figures->busy.server_waited * 100);
    }
    fputc('\n', out);
}

void perf_report_interval_heading(const struct perf_figures *figures, FILE *out)
{
    char size[TOOL_NUMBER_MAX];
    perf_format_size(figures->size, size);
    fprintf(out, "%s %s, %s, over %s by intervals:\n", perf_op_names[figures->op],
            perf_test_names[figures->test], size, figures->provider);
}

void perf_report_interval(const struct perf_figures *figures, const struct perf_interval *interval,
                          FILE *out)
{
    double seconds = interval->end - interval->begin;
    double operations = (double)interval->operations[PERF_TO_SERVER] +
                        (double)interval->operations[PERF_FROM_SERVER];
    double rate = seconds > 0 ? operations / seconds : 0;
    fprintf(out, "  %7.2f - %7.2f s", interval->begin, interval->end);
    if (figures->test == PERF_LATENCY) {
        double us = rate > 0 ? (double)figures->threads * 1e6 / rate : 0;
        fprintf(out, "  %10.3f us on average", figures->half_round_trip ? us / 2 : us);
    } else {
        double bytes = rate * (double)figures->size;
        fprintf(out, "  %9.3f GB/s  %9.3f Gbit/s", bytes / 1e9, gbit(bytes));
    }
    fprintf(out, "  %12.0f messages/s\n", rate);
}

/* ----------------------------------------------------------------------------------- tables */

void perf_report_table_heading(const struct perf_figures *figures, FILE *out)
{
    static const char *const directions[] = { "", " from the server", " in both directions" };
    fprintf(out, "%s %s%s over %s%s%s", perf_op_names[figures->op], perf_test_names[figures->test],
            directions[figures->direction], figures->provider,
            figures->device[0] != '\0' ? " " : "", figures->device);
    if (figures->test == PERF_LATENCY) {
        fprintf(out, ", %s in us\n%9s %9s %9s %9s %9s %9s %9s %9s\n",
                figures->half_round_trip ? "half round trip" : "round trip", "bytes", "min", "p50",
                "p90", "p99", "p99.9", "p99.99", "max");
    } else {
        fprintf(out, "\n%9s %10s %10s %14s %8s %10s %10s\n", "bytes", "GB/s", "Gbit/s",
                "messages/s", "spread", "client cpu", "server cpu");
    }
}

void perf_report_table_row(const struct perf_figures *figures, FILE *out)
{
    char size[TOOL_NUMBER_MAX];
    perf_format_size(figures->size, size);
    fprintf(out, "%9s", size);
    if (figures->test == PERF_LATENCY) {
        for (size_t i = PERF_MIN; i <= PERF_MAX; i++) {
            fprintf(out, " %9.3f", figures->latency_us[i]);
        }
    } else {
        double bytes = perf_bytes_per_second(figures);
        char spread[TOOL_NUMBER_MAX] = "-";
        if (figures->spread >= 0) {
            snprintf(spread, sizeof(spread), "%.1f %%", figures->spread * 100);
        }
        fprintf(out, " %10.3f %10.3f %14.0f %8s %8.2f s %8.2f s", bytes / 1e9, gbit(bytes),
                perf_messages_per_second(figures), spread, figures->client_cpu,
                figures->server_cpu);
    }
    fprintf(out, "%s\n", figures->interrupted ? "  interrupted" : "");
}

/* -------------------------------------------------------------------------------------- CSV */

void perf_report_csv_heading(FILE *out)
{
    fputs("row,op,test,direction,provider,device,size,endpoints,threads,depth,batch,memory,wait,"
          "verified,begin_s,end_s,operations,messages_per_second,bytes_per_second,"
          "gbit_per_second,latency_kind,min_us,p50_us,p90_us,p99_us,p999_us,p9999_us,max_us,"
          "mean_us,spread,client_cpu_s,server_cpu_s,busy\n",
          out);
}

/* A name of a device: in quotes, RFC 4180, if it has to be. */
static void print_csv_text(const char *text, FILE *out)
{
    bool quotes = strpbrk(text, ",\"\r\n") != NULL;
    fputs(quotes ? "\"" : "", out);
    for (; *text != '\0'; text++) {
        fputs(*text == '"' ? "\"" : "", out);
        fputc(*text, out);
    }
    fputs(quotes ? "\"" : "", out);
}

/* The columns up to bytes per second. */
static void print_csv_begin(const struct perf_figures *figures, const char *row, double begin,
                            double end, uint64_t operations, double rate, FILE *out)
{
    double bytes = rate * (double)figures->size;
    fprintf(out, "%s,%s,%s,%s,%s,", row, perf_op_names[figures->op], perf_test_names[figures->test],
            perf_direction_names[figures->direction], figures->provider);
    print_csv_text(figures->device, out);
    fprintf(out,
            ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
            ",%s,%s,%s,%.6f,%.6f,%" PRIu64 ",%.6g,%.6g,%.6g",
            figures->size, figures->endpoints, figures->threads, figures->depth, figures->batch,
            perf_memory_names[figures->memory], perf_wait_names[figures->wait],
            figures->verified ? "yes" : "no", begin, end, operations, rate, bytes, gbit(bytes));
}

void perf_report_csv(const struct perf_figures *figures, FILE *out)
{
    for (size_t i = 0; i < figures->interval_count; i++) {
        const struct perf_interval *interval = &figures->intervals[i];
        double seconds = interval->end - interval->begin;
        uint64_t operations = interval->operations[PERF_TO_SERVER] +
                              interval->operations[PERF_FROM_SERVER];
        print_csv_begin(figures, "interval", interval->begin, interval->end, operations,
                        seconds > 0 ? (double)operations / seconds : 0, out);
        fputs(",,,,,,,,,,,,,\n", out);
    }
    const struct perf_flow *to = &figures->flows[PERF_TO_SERVER];
    const struct perf_flow *from = &figures->flows[PERF_FROM_SERVER];
    print_csv_begin(figures, figures->interrupted ? "interrupted" : "total", 0,
                    to->seconds > from->seconds ? to->seconds : from->seconds,
                    to->operations + from->operations, perf_messages_per_second(figures), out);
    if (figures->test == PERF_LATENCY) {
        fputs(figures->half_round_trip ? ",half_round_trip" : ",round_trip", out);
        for (size_t i = 0; i < PERF_QUANTILE_COUNT; i++) {
            fprintf(out, ",%.6g", figures->latency_us[i]);
        }
    } else {
        fputs(",,,,,,,,,", out);
    }
    char spread[TOOL_NUMBER_MAX] = "";
    if (figures->spread >= 0) {
        snprintf(spread, sizeof(spread), "%.6f", figures->spread);
    }
    char warning[RDMUX_TEXT_MAX];
    fprintf(out, ",%s,%.6f,%.6f,%s\n", spread, figures->client_cpu, figures->server_cpu,
            perf_busy_warning(figures, warning) != NULL ? "yes" : "no");
}

/* ------------------------------------------------------------------------------------- JSON */

static void rates_json(struct json *json, const struct perf_figures *figures, double rate)
{
    double bytes = rate * (double)figures->size;
    json_real(json, "messages_per_second", rate);
    json_real(json, "bytes_per_second", bytes);
    json_real(json, "gbit_per_second", gbit(bytes));
}

/* One direction of a test of both; else null. */
static void flow_json(struct json *json, const struct perf_figures *figures, const char *key,
                      enum perf_way way)
{
    const struct perf_flow *flow = &figures->flows[way];
    if (figures->direction != PERF_BOTH) {
        json_null(json, key);
        return;
    }
    json_object_begin(json, key);
    json_unsigned(json, "iterations", flow->operations);
    json_real(json, "seconds", flow->seconds);
    rates_json(json, figures, rate_of(flow));
    json_object_end(json);
}

static void share_json(struct json *json, const char *key, double share)
{
    if (share >= 0) {
        json_real(json, key, share);
    } else {
        json_null(json, key);
    }
}

static void intervals_json(struct json *json, const struct perf_figures *figures)
{
    json_array_begin(json, "intervals");
    for (size_t i = 0; i < figures->interval_count; i++) {
        const struct perf_interval *interval = &figures->intervals[i];
        double seconds = interval->end - interval->begin;
        uint64_t operations = interval->operations[PERF_TO_SERVER] +
                              interval->operations[PERF_FROM_SERVER];
        json_object_begin(json, NULL);
        json_real(json, "begin", interval->begin);
        json_real(json, "end", interval->end);
        json_unsigned(json, "iterations", operations);
        rates_json(json, figures, seconds > 0 ? (double)operations / seconds : 0);
        json_object_end(json);
    }
    json_array_end(json);
}

void perf_report_json_members(const struct perf_figures *figures, struct json *json)
{
    const struct perf_flow *to = &figures->flows[PERF_TO_SERVER];
    const struct perf_flow *from = &figures->flows[PERF_FROM_SERVER];
    json_string(json, "op", perf_op_names[figures->op]);
    json_string(json, "test", perf_test_names[figures->test]);
    json_string(json, "direction", perf_direction_names[figures->direction]);
    json_unsigned(json, "size", figures->size);
    json_object_begin(json, "path");
    json_string(json, "provider", figures->provider);
    json_string(json, "device", figures->device);
    json_object_end(json);
    json_unsigned(json, "iterations", to->operations + from->operations);
    json_real(json, "seconds", to->seconds > from->seconds ? to->seconds : from->seconds);
    if (figures->test == PERF_LATENCY) {
        json_string(json, "latency_kind",
                    figures->half_round_trip ? "half_round_trip" : "round_trip");
        json_object_begin(json, "latency_us");
        for (size_t i = 0; i < PERF_QUANTILE_COUNT; i++) {
            json_real(json, quantile_names[i], figures->latency_us[i]);
        }
        json_object_end(json);
    } else {
        json_null(json, "latency_kind");
        json_null(json, "latency_us");
    }
    rates_json(json, figures, perf_messages_per_second(figures));
    flow_json(json, figures, "to_server", PERF_TO_SERVER);
    flow_json(json, figures, "from_server", PERF_FROM_SERVER);
    json_object_begin(json, "spread");
    share_json(json, "relative", figures->spread);
    json_unsigned(json, "slices", figures->slices);
    json_object_end(json);
    intervals_json(json, figures);
    json_object_begin(json, "cpu_seconds");
    json_real(json, "client", figures->client_cpu);
    json_real(json, "server", figures->server_cpu);
    json_object_end(json);
    json_unsigned(json, "served", figures->served); /* operations for that CPU time */
    json_object_begin(json, "busy");
    share_json(json, "client_waited", figures->busy.client_waited);
    share_json(json, "server_waited", figures->busy.server_waited);
    share_json(json, "stolen", figures->busy.stolen);
    char warning[RDMUX_TEXT_MAX];
    if (perf_busy_warning(figures, warning) != NULL) {
        json_string(json, "warning", warning);
    } else {
        json_null(json, "warning");
    }
    json_object_end(json);
    json_bool(json, "verified", figures->verified);
    json_bool(json, "interrupted", figures->interrupted);
    json_string(json, "timer", figures->timer);
    json_unsigned(json, "group_size", figures->group_size);
    json_unsigned(json, "depth", figures->depth);
    json_unsigned(json, "batch", figures->batch);
    json_unsigned(json, "endpoints", figures->endpoints);
    json_unsigned(json, "threads", figures->threads);
    json_string(json, "memory", perf_memory_names[figures->memory]);
    json_string(json, "wait", perf_wait_names[figures->wait]);
}
