/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Output of `rdmux perf`. */
#include "perf.h"

#include "json.h"

#include <inttypes.h>

static const char *timer_name(const struct perf *perf)
{
    if (perf->timer.cycles) {
        return "cycle_counter";
    }
    return perf->group_size > 1 ? "groups" : "clock";
}

/* Converts ticks to microseconds; for a ping-pong, to half its round trip. */
static double latency_us(const struct perf *perf, double ticks)
{
    return ticks * perf->timer.ns_per_tick / (is_ping_pong(perf) ? 2e3 : 1e3);
}

void perf_report_json(const struct perf *perf, FILE *out)
{
    const struct proto_perf_request *request = &perf->request;
    double rate = (double)perf->measured / perf->seconds;
    struct json json;
    json_begin(&json, out);
    json_object_begin(&json, NULL);
    json_string(&json, "op", perf_op_names[request->op]);
    json_string(&json, "test", perf_test_names[request->test]);
    json_unsigned(&json, "size", request->size);
    json_object_begin(&json, "path");
    json_string(&json, "provider", perf->client.info.provider);
    json_string(&json, "device", perf->client.info.device);
    json_object_end(&json);
    json_unsigned(&json, "iterations", perf->measured);
    json_real(&json, "seconds", perf->seconds);
    if (request->test == PERF_LATENCY) {
        json_string(&json, "latency_kind", is_ping_pong(perf) ? "half_round_trip" : "round_trip");
        json_object_begin(&json, "latency_us");
        json_real(&json, "min", latency_us(perf, (double)perf->stats->min));
        json_real(&json, "p50", latency_us(perf, stats_quantile(perf->stats, 0.5)));
        json_real(&json, "p99", latency_us(perf, stats_quantile(perf->stats, 0.99)));
        json_real(&json, "p999", latency_us(perf, stats_quantile(perf->stats, 0.999)));
        json_real(&json, "max", latency_us(perf, (double)perf->stats->max));
        json_object_end(&json);
    } else {
        json_null(&json, "latency_kind");
        json_null(&json, "latency_us");
    }
    json_real(&json, "messages_per_second", rate);
    json_real(&json, "bytes_per_second", rate * (double)request->size);
    json_object_begin(&json, "cpu_seconds");
    json_real(&json, "client", (double)perf->client_cpu_ns / 1e9);
    json_real(&json, "server", (double)perf->result.cpu_ns / 1e9);
    json_object_end(&json);
    json_unsigned(&json, "served", perf->result.delivered); /* operations for that CPU time */
    json_bool(&json, "verified", request->verify == 1);
    json_string(&json, "timer", timer_name(perf));
    json_unsigned(&json, "group_size", perf->group_size);
    json_unsigned(&json, "depth", perf->layout.depth);
    json_unsigned(&json, "batch", perf->options->batch);
    json_string(&json, "memory", perf_memory_names[request->memory]);
    json_string(&json, "wait", perf_wait_names[request->wait]);
    json_object_end(&json);
    json_end(&json);
}

void perf_report_text(const struct perf *perf, FILE *out)
{
    const struct proto_perf_request *request = &perf->request;
    const struct rdmux_ep_info *info = &perf->client.info;
    double rate = (double)perf->measured / perf->seconds;
    char bytes[TOOL_NUMBER_MAX];
    tool_format_rate(rate * (double)request->size, bytes);
    fprintf(out, "%s %s, %u bytes, over %s%s%s to %s\n", perf_op_names[request->op],
            perf_test_names[request->test], (unsigned)request->size, info->provider,
            info->device[0] != '\0' ? " " : "", info->device, perf->client.address);
    if (request->test == PERF_LATENCY) {
        fprintf(out, "  %-17s min %.3f  p50 %.3f  p99 %.3f  p99.9 %.3f  max %.3f us\n",
                is_ping_pong(perf) ? "half round trip" : "round trip",
                latency_us(perf, (double)perf->stats->min),
                latency_us(perf, stats_quantile(perf->stats, 0.5)),
                latency_us(perf, stats_quantile(perf->stats, 0.99)),
                latency_us(perf, stats_quantile(perf->stats, 0.999)),
                latency_us(perf, (double)perf->stats->max));
        fprintf(out, "  %-17s %s, %u operations a sample\n", "timed by", timer_name(perf),
                (unsigned)perf->group_size);
    } else {
        fprintf(out, "  %-17s %s, %.0f messages/s\n",
                request->test == PERF_BANDWIDTH ? "bandwidth" : "rate", bytes, rate);
        fprintf(out, "  %-17s depth %u, batch %" PRIu64 "\n", "window",
                (unsigned)perf->layout.depth, perf->options->batch);
    }
    fprintf(out, "  %-17s %" PRIu64 " in %.3f s, memory %s, wait %s%s\n", "operations",
            perf->measured, perf->seconds, perf_memory_names[request->memory],
            perf_wait_names[request->wait],
            request->verify ? ", contents verified at both ends" : "");
    fprintf(out, "  %-17s client %.2f s, server %.2f s\n", "cpu time",
            (double)perf->client_cpu_ns / 1e9, (double)perf->result.cpu_ns / 1e9);
}
