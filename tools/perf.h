/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Internals of `rdmux perf`: perf.c runs a test, perf_report.c reports the result. */
#ifndef RDMUX_TOOL_PERF_H
#define RDMUX_TOOL_PERF_H

#include "client.h"
#include "perf_memory.h"
#include "stats.h"
#include "timer.h"

enum { PERF_RECEIVE_BATCH = 16 }; /* receives reposted together */

struct perf {
    struct client client;
    const struct perf_options *options;
    struct proto_perf_request request;
    struct perf_layout layout;
    struct perf_memory memory;
    struct rdmux_remote *remote;
    uint64_t target_offset; /* offset of the area at the server */
    uint32_t inline_flag;   /* RDMUX_INLINE if the size allows it */

    /* Counts since PERF_READY. Requests are numbered from 0; their context is number + 1. */
    uint64_t posted;
    uint64_t completed;    /* all requests below this number are done */
    uint64_t answers;      /* ping-pong answers received */
    uint64_t acknowledged; /* verified writes */
    uint64_t wrong;        /* messages and results with wrong contents */

    uint32_t receives_taken; /* not reposted yet */
    uint32_t next_receive;   /* slot of the receive posted next */
    struct rdmux_sge receive_sges[PERF_RECEIVE_BATCH];
    struct rdmux_wr receive_wrs[PERF_RECEIVE_BATCH];

    bool message_here; /* a control message was received into `message` */
    uint8_t message[PROTO_CONTROL_MAX];
    size_t message_length;

    struct timer timer;
    uint32_t group_size; /* operations timed together */
    struct stats *stats; /* latency tests: ticks per operation */
    uint64_t measured;   /* operations in the report */
    double seconds;
    uint64_t client_cpu_ns;
    struct proto_perf_result result;
};

/* Returns whether sends and writes are answered in kind; the latency is half of a round trip. */
static inline bool is_ping_pong(const struct perf *perf)
{
    return perf->request.test == PERF_LATENCY &&
           (perf->request.op == PERF_SEND || perf->request.op == PERF_WRITE);
}

void perf_report_json(const struct perf *perf, FILE *out);
void perf_report_text(const struct perf *perf, FILE *out);

#endif
