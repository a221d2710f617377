/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * One measurement: threads that drive the lanes, and the caller's thread, which watches them.
 *
 * The workers meet twice: once all lanes are connected, and once all are warm. The watching thread
 * sleeps in poll(2) until a worker changes its state, a signal comes, or a slice or an interval
 * ends. It reads the counts that the workers publish, so that they read no clock for it.
 */
#include "perf_lane.h"
#include "perf_machine.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { NO_TIMER_GROUP = 1, SLICES = 10 };
static const uint64_t first_slice_ns = 20000000; /* if the number of operations is given */
static const uint64_t progress_period_ns = 200000000;

/* -------------------------------------------------------------------------------------- workers */

/* Counts a worker in `measuring` or `ended` of *shared, and wakes the thread that watches. */
static void signal_change(struct perf_shared *shared, atomic_uint *counter)
{
    atomic_fetch_add(counter, 1);
    eventfd_write(shared->changed_fd, 1);
}

void perf_begin_measuring(struct perf_worker *worker)
{
    for (size_t i = 0; i < worker->lane_count; i++) {
        worker->lanes[i].first_posted = worker->lanes[i].posted;
        worker->lanes[i].first_answers = worker->lanes[i].answers;
    }
    signal_change(worker->shared, &worker->shared->measuring);
    worker->has_waited = timer_waited_ns(&worker->waited_ns);
    worker->start_cpu_ns = timer_cpu_ns();
    worker->start_ns = timer_clock_ns();
}

void perf_end_measuring(struct perf_worker *worker)
{
    worker->end_ns = timer_clock_ns();
    worker->end_cpu_ns = timer_cpu_ns();
    uint64_t waited_ns = 0;
    worker->has_waited = worker->has_waited && timer_waited_ns(&waited_ns);
    worker->waited_ns = worker->has_waited ? waited_ns - worker->waited_ns : 0;
}

static void fail(struct perf_shared *shared, int code)
{
    unsigned none = TOOL_OK;
    atomic_compare_exchange_strong(&shared->exit_code, &none, (unsigned)code);
    atomic_store(&shared->failed, true);
    atomic_store(&shared->stop, true);
}

static int open_lanes(struct perf_worker *worker)
{
    struct perf_shared *shared = worker->shared;
    const char *command = "perf";
    if (shared->options.cpus != NULL) {
        unsigned cpus[PERF_CPUS_MAX];
        char why[RDMUX_TEXT_MAX];
        size_t count = perf_cpus_read(shared->options.cpus, cpus, why);
        int error = count > 0 ? perf_cpu_pin(cpus[worker->index % count]) : EINVAL;
        if (error != 0) {
            tool_error(command, "--cpu: a thread cannot be pinned: %s", strerror(error));
            return TOOL_FAILED;
        }
    }
    enum rdmux_status status = rdmux_cq_create(shared->fabric, NULL, &worker->cq);
    if (status != RDMUX_OK) {
        tool_error(command, "cannot create a completion queue: %s: %s", rdmux_status_name(status),
                   rdmux_last_error());
        return TOOL_FAILED;
    }
    for (size_t i = 0; i < worker->lane_count; i++) {
        int code = atomic_load(&shared->failed) ? TOOL_FAILED
                                                : perf_lane_open(&worker->lanes[i], worker);
        if (code != TOOL_OK) {
            return code;
        }
    }
    return TOOL_OK;
}

static void *run_worker(void *argument)
{
    struct perf_worker *worker = argument;
    struct perf_shared *shared = worker->shared;
    bool latency = shared->options.test == PERF_LATENCY;
    int code = open_lanes(worker);
    if (code != TOOL_OK) {
        fail(shared, code);
    }
    pthread_barrier_wait(&shared->barrier);
    if (latency && !atomic_load(&shared->failed) && !perf_warm_up_latency(worker)) {
        fail(shared, TOOL_FAILED);
    }
    pthread_barrier_wait(&shared->barrier);
    if (!atomic_load(&shared->failed) &&
        !(latency ? perf_run_latency(worker) : perf_run_rate(worker))) {
        fail(shared, TOOL_FAILED);
    }
    signal_change(shared, &shared->ended);
    for (size_t i = 0; i < worker->lane_count; i++) {
        /* Lanes after the first failure end without the wait for an orderly end. */
        worker->lanes[i].client.failed = worker->lanes[i].client.failed ||
                                         atomic_load(&shared->failed);
        perf_lane_close(&worker->lanes[i]);
    }
    rdmux_cq_destroy(worker->cq);
    return NULL;
}

static void free_shared(struct perf_shared *shared)
{
    if (shared == NULL) {
        return;
    }
    for (unsigned i = 0; shared->workers != NULL && i < shared->worker_count; i++) {
        free(shared->workers[i].lanes);
        free(shared->workers[i].stats);
    }
    free(shared->workers);
    if (shared->changed_fd >= 0) {
        close(shared->changed_fd);
    }
    free(shared);
}

/* Allocates the workers and their lanes; the lanes are dealt out in turn. */
static struct perf_shared *create_shared(const struct perf_options *options,
                                         struct rdmux_fabric *fabric)
{
    struct perf_shared *shared = calloc(1, sizeof(*shared));
    if (shared == NULL) {
        return NULL;
    }
    size_t lanes = options->endpoints != 0 ? options->endpoints : 1;
    shared->options = *options;
    shared->fabric = fabric;
    shared->worker_count = options->threads != 0 ? (unsigned)options->threads : 1;
    shared->group_size = NO_TIMER_GROUP;
    timer_use_clock(&shared->timer);
    shared->changed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    shared->workers = calloc(shared->worker_count, sizeof(*shared->workers));
    bool good = shared->changed_fd >= 0 && shared->workers != NULL;
    for (unsigned i = 0; good && i < shared->worker_count; i++) {
        struct perf_worker *worker = &shared->workers[i];
        worker->shared = shared;
        worker->index = i;
        worker->lane_count = lanes / shared->worker_count + (i < lanes % shared->worker_count);
        worker->lanes = calloc(worker->lane_count, sizeof(*worker->lanes));
        worker->stats = malloc(sizeof(*worker->stats));
        good = worker->lanes != NULL && worker->stats != NULL;
        if (good) {
            stats_begin(worker->stats);
        }
    }
    if (!good) {
        free_shared(shared);
        return NULL;
    }
    return shared;
}

/* ------------------------------------------------------------------------------------ the watch */

/* What the watching thread keeps. */
struct watch {
    struct perf_session *session;
    struct perf_shared *shared;
    struct perf_figures *figures;
    struct progress progress;
    bool measuring;                 /* all workers have begun */
    uint64_t start_ns;              /* when that was seen */
    uint64_t start[PERF_WAY_COUNT]; /* operations then */
    uint64_t slice_ns;              /* length of a slice */
    uint64_t slice_from_ns;
    uint64_t slice_start; /* operations, both ways */
    double rates[PERF_SLICES_MAX];
    uint64_t interval_ns; /* 0: none */
    uint64_t interval_from_ns;
    uint64_t interval_start[PERF_WAY_COUNT];
    bool out_of_memory;
    uint64_t progress_ns; /* time of the next line; UINT64_MAX: none */
    uint64_t progress_from_ns;
    uint64_t progress_start;
};

static void count_operations(const struct perf_shared *shared, uint64_t out[PERF_WAY_COUNT])
{
    for (size_t way = 0; way < PERF_WAY_COUNT; way++) {
        out[way] = 0;
        for (unsigned i = 0; i < shared->worker_count; i++) {
            const struct perf_worker *worker = &shared->workers[i];
            for (size_t k = 0; k < worker->lane_count; k++) {
                out[way] += atomic_load_explicit(&worker->lanes[k].published[way],
                                                 memory_order_relaxed);
            }
        }
    }
}

/* A slice ends. Once all are taken, two neighbours become one, and slices are twice as long. */
static void end_slice(struct watch *watch, uint64_t now_ns, uint64_t operations)
{
    struct perf_figures *figures = watch->figures;
    watch->rates[figures->slices++] = (double)(operations - watch->slice_start) /
                                      (double)(now_ns - watch->slice_from_ns);
    watch->slice_start = operations;
    watch->slice_from_ns = now_ns;
    if (figures->slices == PERF_SLICES_MAX) {
        figures->slices /= 2;
        for (size_t i = 0; i < figures->slices; i++) {
            watch->rates[i] = (watch->rates[2 * i] + watch->rates[2 * i + 1]) / 2;
        }
        watch->slice_ns *= 2;
    }
}

static void end_interval(struct watch *watch, uint64_t now_ns,
                         const uint64_t operations[PERF_WAY_COUNT])
{
    struct perf_figures *figures = watch->figures;
    struct perf_interval *more = realloc(figures->intervals,
                                         (figures->interval_count + 1) * sizeof(*more));
    if (more == NULL) {
        watch->out_of_memory = true;
        return;
    }
    figures->intervals = more;
    struct perf_interval *interval = &more[figures->interval_count++];
    *interval = (struct perf_interval){
        .begin = (double)(watch->interval_from_ns - watch->start_ns) / 1e9,
        .end = (double)(now_ns - watch->start_ns) / 1e9,
    };
    for (size_t way = 0; way < PERF_WAY_COUNT; way++) {
        interval->operations[way] = operations[way] - watch->interval_start[way];
        watch->interval_start[way] = operations[way];
    }
    watch->interval_from_ns = now_ns;
    if (watch->session->lines != NULL) {
        progress_clear(&watch->progress);
        if (figures->interval_count == 1) {
            perf_report_interval_heading(figures, watch->session->lines);
        }
        perf_report_interval(figures, interval, watch->session->lines);
        fflush(watch->session->lines);
    }
}

static void show_progress(struct watch *watch, uint64_t now_ns, uint64_t operations)
{
    const struct perf_options *options = &watch->shared->options;
    double seconds = (double)(now_ns - watch->start_ns) / 1e9;
    double rate = (double)(operations - watch->progress_start) * 1e9 /
                  (double)(now_ns - watch->progress_from_ns);
    char now[2 * TOOL_NUMBER_MAX] = "";
    char size[TOOL_NUMBER_MAX];
    char until[TOOL_NUMBER_MAX] = "";
    perf_format_size(options->size, size);
    if (options->iterations == 0) {
        snprintf(until, sizeof(until), " of %g", options->seconds);
    }
    if (options->test == PERF_LATENCY && rate > 0) {
        snprintf(now, sizeof(now), "%.2f us on average",
                 (double)watch->shared->worker_count * 1e6 / rate /
                     (watch->figures->half_round_trip ? 2 : 1));
    } else if (options->test == PERF_BANDWIDTH) {
        tool_format_rate(rate * (double)options->size, now);
    } else {
        snprintf(now, sizeof(now), "%.0f messages/s", rate);
    }
    char line[256];
    snprintf(line, sizeof(line), "%s %s, %s, over %s: %.1f%s s, %s", perf_op_names[options->op],
             perf_test_names[options->test], size, watch->figures->provider, seconds, until, now);
    progress_line(&watch->progress, line);
    watch->progress_start = operations;
    watch->progress_from_ns = now_ns;
    watch->progress_ns = now_ns + progress_period_ns;
}

/* Ends what is due. Returns the time of the next look. */
static uint64_t look(struct watch *watch, uint64_t now_ns)
{
    uint64_t ways[PERF_WAY_COUNT];
    count_operations(watch->shared, ways);
    uint64_t operations = ways[PERF_TO_SERVER] + ways[PERF_FROM_SERVER];
    if (now_ns >= watch->slice_from_ns + watch->slice_ns) {
        end_slice(watch, now_ns, operations);
    }
    if (watch->interval_ns != 0 && now_ns >= watch->interval_from_ns + watch->interval_ns) {
        end_interval(watch, now_ns, ways);
    }
    if (now_ns >= watch->progress_ns) {
        show_progress(watch, now_ns, operations);
    }
    uint64_t next_ns = watch->slice_from_ns + watch->slice_ns;
    uint64_t interval_ns = watch->interval_ns == 0 ? UINT64_MAX
                                                   : watch->interval_from_ns + watch->interval_ns;
    next_ns = interval_ns < next_ns ? interval_ns : next_ns;
    return watch->progress_ns < next_ns ? watch->progress_ns : next_ns;
}

/* All workers have begun to measure. */
static void begin_watching(struct watch *watch, uint64_t now_ns)
{
    const struct perf_options *options = &watch->shared->options;
    struct perf_figures *figures = watch->figures;
    const struct rdmux_ep_info *info = &watch->shared->workers[0].lanes[0].client.info;
    memcpy(figures->provider, info->provider, sizeof(figures->provider));
    memcpy(figures->device, info->device, sizeof(figures->device));
    watch->measuring = true;
    watch->start_ns = now_ns;
    count_operations(watch->shared, watch->start);
    watch->slice_ns = options->iterations != 0 ? first_slice_ns
                                               : (uint64_t)(options->seconds * 1e9 / SLICES);
    watch->slice_from_ns = now_ns;
    watch->slice_start = watch->start[PERF_TO_SERVER] + watch->start[PERF_FROM_SERVER];
    watch->interval_ns = (uint64_t)(options->interval * 1e9);
    watch->interval_from_ns = now_ns;
    memcpy(watch->interval_start, watch->start, sizeof(watch->interval_start));
    watch->progress_from_ns = now_ns;
    watch->progress_start = watch->slice_start;
    progress_begin(&watch->progress, 0);
    watch->progress_ns = watch->progress.terminal && !watch->session->quiet
                             ? now_ns + progress_period_ns
                             : UINT64_MAX;
}

/* Takes a signal. Returns false if the command cannot wait for the workers: they are still
 * connecting, or have been asked to stop before. */
static bool take_signal(struct watch *watch)
{
    struct signalfd_siginfo info;
    bool again = watch->session->interrupted;
    ssize_t length = read(watch->session->signal_fd, &info, sizeof(info));
    (void)length; /* it was readable */
    watch->session->interrupted = true;
    atomic_store(&watch->shared->stop, true);
    return watch->measuring && !again;
}

/* Returns once all workers have ended; false: they are left alone after a signal. */
static bool watch_workers(struct watch *watch)
{
    struct perf_shared *shared = watch->shared;
    struct pollfd fds[] = {
        { .fd = shared->changed_fd, .events = POLLIN },
        { .fd = watch->session->signal_fd, .events = POLLIN },
    };
    int timeout_ms = -1;
    while (atomic_load(&shared->ended) < shared->worker_count) {
        if (poll(fds, TOOL_COUNT_OF(fds), timeout_ms) > 0) {
            eventfd_t changes = 0;
            eventfd_read(shared->changed_fd, &changes);
            if ((fds[1].revents & POLLIN) != 0 && !take_signal(watch)) {
                return false;
            }
        }
        uint64_t now_ns = timer_clock_ns();
        if (!watch->measuring && atomic_load(&shared->measuring) == shared->worker_count) {
            begin_watching(watch, now_ns);
        }
        if (watch->measuring) {
            uint64_t next_ns = look(watch, now_ns);
            timeout_ms = next_ns > now_ns ? (int)((next_ns - now_ns) / 1000000 + 1) : 1;
        }
    }
    return true;
}

/* ---------------------------------------------------------------------------------- the figures */

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median_of(double *values, unsigned count)
{
    qsort(values, count, sizeof(*values), compare_doubles);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Returns the relative spread: the median distance from the median, scaled so that it is the
 * standard deviation of values that are normally distributed. Unlike that, it ignores some slices
 * that something else has disturbed. */
static double spread_of(double *rates, unsigned count)
{
    if (count < PERF_SLICES_MIN) {
        return -1.0;
    }
    double median = median_of(rates, count);
    if (median <= 0) {
        return -1.0;
    }
    for (unsigned i = 0; i < count; i++) {
        rates[i] = rates[i] < median ? median - rates[i] : rates[i] - median;
    }
    return 1.4826 * median_of(rates, count) / median;
}

static void fill_latencies(const struct perf_shared *shared, struct perf_figures *out)
{
    static const double shares[PERF_QUANTILE_COUNT] = {
        [PERF_P50] = 0.5,    [PERF_P90] = 0.9,      [PERF_P99] = 0.99,
        [PERF_P999] = 0.999, [PERF_P9999] = 0.9999,
    };
    struct stats *stats = shared->workers[0].stats;
    for (unsigned i = 1; i < shared->worker_count; i++) {
        stats_merge(stats, shared->workers[i].stats);
    }
    double us_per_tick = shared->timer.ns_per_tick / (out->half_round_trip ? 2e3 : 1e3);
    for (size_t i = PERF_P50; i <= PERF_P9999; i++) {
        out->latency_us[i] = stats_quantile(stats, shares[i]) * us_per_tick;
    }
    out->latency_us[PERF_MIN] = stats->count == 0 ? 0 : (double)stats->min * us_per_tick;
    out->latency_us[PERF_MAX] = (double)stats->max * us_per_tick;
    out->latency_us[PERF_MEAN] = stats->count == 0
                                     ? 0
                                     : (double)stats->sum / (double)stats->count * us_per_tick;
    out->timer = shared->timer.cycles     ? "cycle_counter"
                 : shared->group_size > 1 ? "groups"
                                          : "clock";
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void add_lane(const struct perf_lane *lane, double seconds, uint64_t end_ns,
                     struct perf_figures *out)
{
    const struct proto_perf_result *result = &lane->result;
    out->served += result->delivered + (result->has_posted ? result->posted : 0);
    out->server_cpu = larger(out->server_cpu, (double)result->cpu_ns / 1e9);
    if (result->has_waited && end_ns > lane->ready_ns) {
        double share = (double)result->waited_ns / (double)(end_ns - lane->ready_ns);
        out->busy.server_waited = larger(out->busy.server_waited, share < 1 ? share : 1);
    }
    struct perf_flow *to = &out->flows[PERF_TO_SERVER];
    struct perf_flow *from = &out->flows[PERF_FROM_SERVER];
    if (out->direction != PERF_REVERSE) {
        to->operations += lane->posted - lane->first_posted;
        to->seconds = larger(to->seconds, seconds);
    }
    if (out->direction == PERF_FORWARD) {
        return;
    }
    bool counted_here = perf_op_arrives(out->op);
    from->operations += counted_here ? lane->answers - lane->first_answers : result->measured;
    from->seconds = larger(from->seconds,
                           counted_here ? seconds : (double)result->measured_ns / 1e9);
}

static void fill_figures(const struct perf_shared *shared, struct perf_figures *out)
{
    uint64_t first_cpu_ns = UINT64_MAX, last_cpu_ns = 0;
    double waited = 0, measured = 0;
    bool has_waited = true;
    out->busy.server_waited = -1.0;
    for (unsigned i = 0; i < shared->worker_count; i++) {
        const struct perf_worker *worker = &shared->workers[i];
        double seconds = (double)(worker->end_ns - worker->start_ns) / 1e9;
        first_cpu_ns = worker->start_cpu_ns < first_cpu_ns ? worker->start_cpu_ns : first_cpu_ns;
        last_cpu_ns = worker->end_cpu_ns > last_cpu_ns ? worker->end_cpu_ns : last_cpu_ns;
        has_waited = has_waited && worker->has_waited;
        waited += (double)worker->waited_ns / 1e9;
        measured += seconds;
        for (size_t k = 0; k < worker->lane_count; k++) {
            add_lane(&worker->lanes[k], seconds, worker->end_ns, out);
        }
    }
    out->client_cpu = (double)(last_cpu_ns - first_cpu_ns) / 1e9;
    /* A thread may lose its processor between the readings of the two clocks. */
    double share = measured > 0 ? waited / measured : 0;
    out->busy.client_waited = has_waited && measured > 0 ? (share < 1 ? share : 1) : -1.0;
    out->depth = shared->workers[0].lanes[0].layout.depth;
    out->group_size = shared->group_size;
    out->timer = "clock";
    if (out->test == PERF_LATENCY) {
        fill_latencies(shared, out);
    }
}

/* Starts the threads. If one cannot start, those that have started wait at the barrier for ever;
 * so all are created first, and the barrier counts what there is. */
static int start_workers(struct perf_shared *shared)
{
    int error = pthread_barrier_init(&shared->barrier, NULL, shared->worker_count);
    for (unsigned i = 0; error == 0 && i < shared->worker_count; i++) {
        error = pthread_create(&shared->workers[i].thread, NULL, run_worker, &shared->workers[i]);
    }
    return error;
}

int perf_measure(struct perf_session *session, const struct perf_options *options,
                 struct perf_figures *out)
{
    struct perf_shared *shared = create_shared(options, session->fabric);
    if (shared == NULL) {
        tool_error("perf", "out of memory, or of descriptors (ulimit -n)");
        return TOOL_FAILED;
    }
    *out = (struct perf_figures){
        .op = options->op,
        .test = options->test,
        .direction = options->direction,
        .memory = options->memory,
        .wait = options->wait,
        .verified = options->verify,
        .size = options->size,
        .batch = options->batch,
        .endpoints = options->endpoints != 0 ? options->endpoints : 1,
        .threads = shared->worker_count,
        .half_round_trip = options->test == PERF_LATENCY &&
                           (perf_op_sends(options->op) || perf_op_writes(options->op)),
    };
    struct watch watch = {
        .session = session, .shared = shared, .figures = out, .progress_ns = UINT64_MAX
    };
    struct perf_processor_time before = perf_processor_time();
    int error = start_workers(shared);
    if (error != 0) {
        tool_error("perf", "cannot start a thread: %s; use fewer --threads", strerror(error));
        exit(TOOL_FAILED); /* others wait at the barrier */
    }
    if (!watch_workers(&watch)) {
        progress_clear(&watch.progress);
        free(out->intervals);
        *out = (struct perf_figures){ .interrupted = true };
        session->left_threads = true;
        return TOOL_INTERRUPTED; /* the threads keep what they use until the process ends */
    }
    uint64_t end_ns = timer_clock_ns();
    struct perf_processor_time after = perf_processor_time();
    progress_clear(&watch.progress);
    if (watch.measuring && watch.interval_ns != 0 && !atomic_load(&shared->failed)) {
        uint64_t ways[PERF_WAY_COUNT];
        count_operations(shared, ways);
        if (end_ns - watch.interval_from_ns > watch.interval_ns / 10) {
            end_interval(&watch, end_ns, ways);
        }
    }
    for (unsigned i = 0; i < shared->worker_count; i++) {
        pthread_join(shared->workers[i].thread, NULL);
    }
    int code = (int)atomic_load(&shared->exit_code);
    if (code == TOOL_OK && watch.out_of_memory) {
        tool_error("perf", "out of memory for the lines of --interval");
        code = TOOL_FAILED;
    }
    if (code == TOOL_OK) {
        if (!watch.measuring) { /* the workers were faster than this thread */
            begin_watching(&watch, end_ns);
        }
        fill_figures(shared, out);
        out->spread = spread_of(watch.rates, out->slices);
        out->busy.stolen = perf_stolen_share(&before, &after);
        out->interrupted = session->interrupted;
    } else {
        free(out->intervals);
        *out = (struct perf_figures){ 0 };
    }
    pthread_barrier_destroy(&shared->barrier);
    free_shared(shared);
    return code;
}
