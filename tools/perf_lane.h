/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A lane: one endpoint of a measurement with its memory, receives and window. Each lane belongs to
 * a worker: a thread with a completion queue of its own that drives one lane or several.
 *
 * perf_measure.c has the workers, perf_lane.c their lanes; perf_latency.c and perf_rate.c are the
 * two kinds of measurement. */
#ifndef RDMUX_TOOL_PERF_LANE_H
#define RDMUX_TOOL_PERF_LANE_H

#include "client.h"
#include "perf.h"
#include "perf_memory.h"
#include "stats.h"
#include "timer.h"

#include <pthread.h>

enum {
    PERF_RECEIVE_BATCH = 16, /* receives reposted together, at most */
    /* The server's notices are 10 ms apart at least, and its warm-up takes 20 ms: this one comes
     * after it. */
    PERF_FIRST_MEASURED_NOTICE = 3,
};

/* What the threads of a measurement share. */
struct perf_shared {
    struct perf_options
        options; /* of its own: a worker that a signal leaves behind outlives the caller */
    struct rdmux_fabric *fabric;
    atomic_bool stop;   /* end the measurement now */
    atomic_bool failed; /* a lane has failed */
    atomic_bool told;   /* see struct client */
    pthread_barrier_t barrier;
    unsigned worker_count;
    struct perf_worker *workers;
    int changed_fd;        /* eventfd: a worker has begun to measure, or has ended */
    atomic_uint measuring; /* workers that have begun */
    atomic_uint ended;     /* workers that have ended */
    struct timer timer;    /* latency tests: chosen by the first worker */
    uint32_t group_size;   /* operations timed together */
    atomic_uint exit_code; /* of the first lane that failed */
};

/* Detects the end of a period without a clock read per message: reads the clock about once in
 * a millisecond. */
struct perf_alarm {
    uint64_t end_ns;
    uint64_t last_ns;
    uint64_t step; /* requests between two clock reads */
    uint64_t next_number;
};

/* A window of requests, posted in batches of prepared work requests. */
struct perf_window {
    struct rdmux_wr *wrs; /* `batch` entries; perf_lane_close() frees both arrays */
    struct rdmux_sge *sges;
    uint32_t batch;
    uint32_t slot;        /* slot of the next request */
    uint64_t signal_mask; /* request n is signaled if (n + 1) & signal_mask is 0 */
    uint64_t limit;       /* requests to post; UINT64_MAX: until it is over */
    uint64_t least;       /* requests of each side after which it is over; 0: the alarm ends it */
    struct perf_alarm alarm;
};

struct perf_lane {
    struct client client;
    struct perf_shared *shared;
    struct perf_worker *worker;
    struct proto_perf_request request;
    struct perf_layout layout;
    struct perf_memory memory;
    struct rdmux_remote *remote;
    uint64_t target_offset; /* offset of the area at the server */
    uint32_t inline_flag;   /* RDMUX_INLINE if the size allows it */
    struct perf_window window;

    /* Counts since PERF_READY. Requests are numbered from 0; their context is number + 1. */
    uint64_t posted;
    uint64_t completed;    /* all requests below this number are done */
    uint64_t answers;      /* messages received: answers of a ping-pong, the server's sends */
    uint64_t acknowledged; /* verified writes; operations of the server that are no sends */
    uint64_t wrong;        /* messages and results with wrong contents */

    /* Operations done, for the thread that watches; a lower bound that is behind by one poll. */
    _Atomic uint64_t published[PERF_WAY_COUNT];

    uint32_t receives_taken; /* not reposted yet */
    uint32_t repost_batch;
    uint32_t next_receive; /* slot of the receive posted next */
    struct rdmux_sge receive_sges[PERF_RECEIVE_BATCH];
    struct rdmux_wr receive_wrs[PERF_RECEIVE_BATCH];

    bool server_started; /* the server has read PERF_START, and posts */
    uint64_t ready_ns;   /* time of PERF_READY */
    bool message_here;   /* a control message was received into `message` */
    uint8_t message[PROTO_CONTROL_MAX];
    size_t message_length;

    uint64_t first_posted; /* counts when the measurement began */
    uint64_t first_answers;
    uint64_t first_acknowledged; /* of the server's measurement, at the earliest */
    uint32_t notices;            /* no more are counted than the server's warm-up needs */
    struct proto_perf_result result;
};

struct perf_worker {
    struct perf_shared *shared;
    unsigned index;
    pthread_t thread;
    struct rdmux_cq *cq;
    struct perf_lane *lanes;
    size_t lane_count;
    struct stats *stats; /* latency tests: ticks per operation */
    uint64_t start_ns;   /* the measurement of this worker */
    uint64_t end_ns;
    uint64_t start_cpu_ns; /* of the process */
    uint64_t end_cpu_ns;
    bool has_waited;
    uint64_t waited_ns; /* timer_waited_ns() of the measurement */
};

/* Returns whether sends and writes are answered in kind; the latency is half of a round trip. */
static inline bool perf_is_ping_pong(const struct proto_perf_request *request)
{
    return request->test == PERF_LATENCY &&
           (perf_op_sends(request->op) || perf_op_writes(request->op));
}

/* Returns whether the measurement has to end now: a signal came, or a lane has failed. */
static inline bool perf_stopped(const struct perf_worker *worker)
{
    return atomic_load_explicit(&worker->shared->stop, memory_order_relaxed);
}

/* Returns the slot of an area that follows `slot` in its ring. */
static inline uint32_t perf_slot_after(const struct perf_lane *lane, uint32_t slot)
{
    return slot + 1 == lane->layout.slots ? 0 : slot + 1;
}

/* perf_measure.c: the measurement of this worker begins or ends. Both read the clocks; the first
 * also keeps the counts of the lanes, and wakes the thread that watches. */
void perf_begin_measuring(struct perf_worker *worker);
void perf_end_measuring(struct perf_worker *worker);

/* perf_lane.c: connects over the worker's cq, allocates the memory, posts receives, sends the
 * request and imports the server's memory. On failure prints the error and returns the exit code;
 * perf_lane_close() follows in any case. */
int perf_lane_open(struct perf_lane *lane, struct perf_worker *worker);
void perf_lane_close(struct perf_lane *lane);

/* Take the available completions of all lanes of the worker. perf_take() with --wait sleep waits
 * for one, 100 ms at most. If the test has failed, print the error and return false. */
bool perf_take(struct perf_worker *worker);
bool perf_take_now(struct perf_worker *worker);

/* Takes completions until one of them has set the flag, a member of *lane. Prints the error and
 * returns false if the test fails or the server does not answer. */
bool perf_wait_for(struct perf_lane *lane, const bool *flag);

/* Tells the server that all requests of all lanes are posted; its results prove that all have
 * arrived. Prints the error and returns false if one does not match the counts here. */
bool perf_exchange_ends(struct perf_worker *worker);

/* perf_latency.c and perf_rate.c, run by the worker's thread, once all its lanes are open. Each
 * prints the error on failure and returns false. perf_run_latency() and perf_run_rate() do the
 * whole measurement, up to the server's results. */
bool perf_warm_up_latency(struct perf_worker *worker);
bool perf_run_latency(struct perf_worker *worker);
bool perf_run_rate(struct perf_worker *worker);

#endif
