/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* One process of a storm: connects to those of higher rank, accepts those of lower rank. */
#include "storm.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    ENTRIES = 64, /* taken by one poll */
    BYTES = 64,   /* of a message */
    FIRST_PAUSE_MS = 20,
    LAST_PAUSE_MS = 2000,
};

struct message {
    uint32_t from;
    uint32_t to;
    uint8_t bytes[BYTES - 2 * sizeof(uint32_t)];
};

/* This process and another one. */
struct pair {
    struct rdmux_ep *ep;
    uint32_t rank; /* the other's */
    uint32_t attempts;
    uint64_t retry_ns; /* when to connect again; 0: not waiting for that */
    struct message in;
    struct message out;
    bool has_sent;
    bool has_received;
};

struct process {
    struct storm *storm;
    struct storm_process *mine;
    uint32_t rank;
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_srq *srq; /* NULL: each endpoint has its own receives */
    struct rdmux_listener *listener;
    struct message *shared; /* buffers of the SRQ */
    struct pair *pairs;     /* by rank */
    uint32_t under_way;
    uint32_t next; /* rank to connect to */
    uint32_t complete;
    uint32_t over;
    uint32_t rounds;
    bool is_finishing;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void tell_parent(const struct storm *storm)
{
    uint64_t one = 1;
    if (write(storm->news, &one, sizeof(one)) != sizeof(one)) {
        perror("storm: write to the parent");
        exit(1);
    }
}

static void must(const struct process *process, enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fprintf(stderr, "storm: process %u: %s: %s: %s\n", process->rank, what,
                rdmux_status_name(status), rdmux_last_error());
        exit(1);
    }
}

static uint32_t pair_count(const struct process *process)
{
    return process->storm->options.processes - 1;
}

/* -------------------------------------------------------------------------------------- messages */

static void fill(struct message *message, uint32_t from, uint32_t to)
{
    message->from = from;
    message->to = to;
    for (size_t i = 0; i < sizeof(message->bytes); i++) {
        message->bytes[i] = (uint8_t)(31 * from + 17 * to + i);
    }
}

static void note_progress(struct process *process, struct pair *pair)
{
    if (pair->has_sent && pair->has_received && ++process->complete == pair_count(process)) {
        process->mine->done_ns = now_ns() - atomic_load(&process->storm->start_ns);
        process->mine->at_peak = usage_read();
        atomic_fetch_add(&process->storm->done, 1);
        tell_parent(process->storm);
    }
}

static void start_exchange(struct process *process, struct pair *pair)
{
    /* The acceptor may learn only here that the connector has given up. Its end follows. */
    if (process->srq == NULL) {
        memset(&pair->in, 0, sizeof(pair->in));
        enum rdmux_status posted = rdmux_recv(pair->ep, &pair->in, sizeof(pair->in), NULL,
                                              &pair->in);
        if (posted != RDMUX_OK) {
            reasons_add(&process->storm->reasons, "rdmux_recv", posted, rdmux_last_error());
            return;
        }
    }
    fill(&pair->out, process->rank, pair->rank);
    if (process->storm->options.flaw == STORM_FLAW_MESSAGE && process->rank == 0 &&
        pair->rank == 1) {
        pair->out.bytes[7] ^= 1;
    }
    enum rdmux_status status = rdmux_send(pair->ep, &pair->out, sizeof(pair->out), NULL, NULL, 0);
    if (status != RDMUX_OK) {
        reasons_add(&process->storm->reasons, "rdmux_send", status, rdmux_last_error());
    }
}

static void take_message(struct process *process, struct pair *pair, const struct rdmux_wc *wc)
{
    struct message right;
    fill(&right, pair->rank, process->rank);
    if (pair->has_received || wc->length != sizeof(right) ||
        memcmp(wc->context, &right, sizeof(right)) != 0) {
        process->mine->wrong++;
        fprintf(stderr, "storm: process %u: a wrong message from process %u\n", process->rank,
                pair->rank);
    } else {
        process->mine->messages++;
    }
    if (!pair->has_received) {
        pair->has_received = true;
        note_progress(process, pair);
    }
}

/* --------------------------------------------------------------------------------- coming and going */

static struct rdmux_ep_attr endpoint_attr(const struct process *process)
{
    const struct storm_options *options = &process->storm->options;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.send_depth = options->depth;
    attr.recv_depth = options->depth;
    attr.setup_timeout_ms = options->setup_ms;
    attr.path_timeout_ms = options->setup_ms;
    attr.liveness_ms = options->liveness_ms;
    attr.srq = process->srq;
    attr.private_data = &process->rank;
    attr.private_length = sizeof(process->rank);
    return attr;
}

static void tell_reason(struct process *process, const char *where, enum rdmux_status status,
                        struct rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    must(process, rdmux_ep_info(ep, &info), "rdmux_ep_info");
    reasons_add(&process->storm->reasons, where, status, info.text);
}

static void drop_endpoint(struct pair *pair)
{
    (void)rdmux_ep_close(pair->ep);
    pair->ep = NULL;
}

/* The set-up has failed. Connects again after a pause that doubles, or gives the pair up. */
static void try_later(struct process *process, struct pair *pair)
{
    const struct storm_options *options = &process->storm->options;
    process->under_way--;
    if (pair->attempts > options->retries) {
        atomic_fetch_add(&process->storm->given_up, 1);
        tell_parent(process->storm);
        return;
    }
    uint64_t pause_ms = FIRST_PAUSE_MS;
    for (uint32_t i = 1; i < pair->attempts && pause_ms < LAST_PAUSE_MS; i++) {
        pause_ms *= 2;
    }
    /* Ranks differ, so that those who failed together do not come back together. */
    pair->retry_ns = now_ns() + pause_ms * 1000000 * (100 + process->rank % 100) / 100;
}

static void connect_pair(struct process *process, struct pair *pair)
{
    struct rdmux_ep_attr attr = endpoint_attr(process);
    attr.user = pair;
    pair->retry_ns = 0;
    pair->attempts++;
    process->under_way++;
    if (process->under_way > process->mine->most_under_way) {
        process->mine->most_under_way = process->under_way;
    }
    enum rdmux_status status = rdmux_connect(process->fabric, process->cq,
                                             process->storm->each[pair->rank].address, &attr, 0,
                                             &pair->ep);
    if (status != RDMUX_IN_PROGRESS) {
        reasons_add(&process->storm->reasons, "rdmux_connect", status, rdmux_last_error());
        pair->ep = NULL;
        try_later(process, pair);
    }
}

static void connect_more(struct process *process)
{
    const struct storm_options *options = &process->storm->options;
    while (process->next < options->processes && process->under_way < options->window) {
        connect_pair(process, &process->pairs[process->next++]);
    }
    uint64_t now = now_ns();
    for (uint32_t i = process->rank + 1; i < process->next && process->under_way < options->window;
         i++) {
        struct pair *pair = &process->pairs[i];
        if (pair->retry_ns != 0 && pair->retry_ns <= now) {
            connect_pair(process, pair);
        }
    }
}

static void take_endpoint(struct process *process, struct rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    uint32_t rank = UINT32_MAX;
    must(process, rdmux_ep_info(ep, &info), "rdmux_ep_info");
    memcpy(&rank, info.private_data, sizeof(rank));
    if (info.private_length != sizeof(rank) || rank >= process->rank) {
        fprintf(stderr, "storm: process %u: private data of no process\n", process->rank);
        exit(1);
    }
    struct pair *pair = &process->pairs[rank];
    if (pair->ep != NULL) { /* its connector has given that attempt up, and its end is on the way */
        process->mine->stale++;
        drop_endpoint(pair);
    }
    process->mine->accepted++;
    pair->ep = ep;
    must(process, rdmux_ep_set_user(ep, pair), "rdmux_ep_set_user");
    start_exchange(process, pair);
}

static void accept_all(struct process *process)
{
    struct rdmux_ep_attr attr = endpoint_attr(process);
    for (;;) {
        struct rdmux_ep *ep = NULL;
        enum rdmux_status status = rdmux_accept(process->listener, process->cq, &attr, 0, &ep);
        if (status == RDMUX_OK) {
            take_endpoint(process, ep);
            continue;
        }
        if (status != RDMUX_AGAIN) {
            reasons_add(&process->storm->reasons, "rdmux_accept", status, rdmux_last_error());
        }
        return;
    }
}

static void end_pair(struct process *process, struct pair *pair, enum rdmux_status status)
{
    bool is_connector = pair->rank > process->rank;
    bool may_end = atomic_load(&process->storm->done) == process->storm->options.processes;
    if (may_end && status == RDMUX_OK) {
        process->mine->ends++;
    } else if (!is_connector && !pair->has_received) {
        /* The connector has given up this attempt, and comes back. */
        tell_reason(process, "accepted, then ended", status, pair->ep);
        process->mine->stale++;
        drop_endpoint(pair);
        return;
    } else {
        tell_reason(process, "ended early", status, pair->ep);
        process->mine->lost++;
    }
    drop_endpoint(pair);
    process->over++;
}

static void take_entry(struct process *process, struct pair *pair, const struct rdmux_wc *wc)
{
    switch (wc->opcode) {
    case RDMUX_WC_CONNECTED:
        if (wc->status == RDMUX_OK) {
            process->under_way--;
            process->mine->connected++;
            start_exchange(process, pair);
        } else {
            tell_reason(process, "connect", (enum rdmux_status)wc->status, pair->ep);
            drop_endpoint(pair);
            try_later(process, pair);
        }
        break;
    case RDMUX_WC_SEND:
        if (wc->status == RDMUX_OK) {
            pair->has_sent = true;
            note_progress(process, pair);
        }
        break;
    case RDMUX_WC_RECV:
        if (wc->status == RDMUX_OK) {
            take_message(process, pair, wc);
        }
        break;
    case RDMUX_WC_DISCONNECTED:
        end_pair(process, pair, (enum rdmux_status)wc->status);
        break;
    default:
        break;
    }
}

/* Each process exits after another number of rounds, so that they do in all stages of set-ups. */
static void exit_in_the_midst(const struct process *process)
{
    enum { STRIDE = 5, LAST = 24 };
    if (process->storm->options.exits && process->rank % 2 == 0 &&
        process->rounds == 1 + process->rank * STRIDE % LAST) {
        exit(STORM_EXIT);
    }
}

static void take_entries(struct process *process)
{
    struct rdmux_wc wc[ENTRIES];
    size_t count = 0;
    while ((count = rdmux_cq_poll(process->cq, wc, ENTRIES)) != 0) {
        for (size_t i = 0; i < count; i++) {
            struct pair *pair = rdmux_ep_user(wc[i].ep);
            if (pair->ep == wc[i].ep) { /* else an entry before has closed it */
                take_entry(process, pair, &wc[i]);
            }
        }
    }
}

/* ------------------------------------------------------------------------------------------ life */

static void open_process(struct process *process)
{
    const struct storm_options *options = &process->storm->options;
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.paths = options->paths;
    attr.plugins = &options->plugin;
    attr.plugin_count = options->plugin != NULL;
    if (options->counts_blocks) {
        usage_count_memory(&attr);
    }
    must(process, rdmux_fabric_open(&attr, &process->fabric), "rdmux_fabric_open");
    must(process, rdmux_cq_create(process->fabric, NULL, &process->cq), "rdmux_cq_create");
    must(process,
         rdmux_listen(process->fabric, "127.0.0.1:0", &options->listen, &process->listener),
         "rdmux_listen");
    must(process,
         rdmux_listener_address(process->listener, process->mine->address,
                                sizeof(process->mine->address)),
         "rdmux_listener_address");
    if (options->shares) {
        struct rdmux_srq_attr srq = RDMUX_SRQ_ATTR_INIT;
        srq.depth = pair_count(process);
        must(process, rdmux_srq_create(process->fabric, process->cq, &srq, &process->srq),
             "rdmux_srq_create");
        for (uint32_t i = 0; i < srq.depth; i++) {
            struct message *in = &process->shared[i];
            must(process, rdmux_srq_recv(process->srq, in, sizeof(*in), NULL, in), "rdmux_srq_recv");
        }
    }
}

static void close_process(struct process *process)
{
    rdmux_listener_close(process->listener);
    must(process, rdmux_srq_destroy(process->srq), "rdmux_srq_destroy");
    must(process, rdmux_cq_destroy(process->cq), "rdmux_cq_destroy");
    must(process, rdmux_fabric_close(process->fabric), "rdmux_fabric_close");
}

static void wait_for(int fd)
{
    struct pollfd poller = { .fd = fd, .events = POLLIN };
    while (poll(&poller, 1, -1) < 1) {
    }
}

/* Ends what this process has connected. */
static void begin_end(struct process *process)
{
    process->is_finishing = true;
    for (uint32_t i = process->rank + 1; i < process->storm->options.processes; i++) {
        struct pair *pair = &process->pairs[i];
        if (pair->ep == NULL) {
            continue;
        }
        if (process->storm->options.flaw == STORM_FLAW_END && process->rank == 0 && i == 1) {
            drop_endpoint(pair);
            process->over++;
            continue;
        }
        enum rdmux_status status = rdmux_ep_shutdown(pair->ep, 0);
        if (status != RDMUX_IN_PROGRESS) {
            reasons_add(&process->storm->reasons, "rdmux_ep_shutdown", status, rdmux_last_error());
        }
    }
}

/* Milliseconds until the next connection is due again; -1: none is. One that is to exit in some
 * round need not have news for so many. */
static int next_retry_ms(const struct process *process)
{
    if (process->storm->options.exits) {
        return FIRST_PAUSE_MS;
    }
    uint64_t earliest = UINT64_MAX;
    for (uint32_t i = process->rank + 1; i < process->next; i++) {
        uint64_t at = process->pairs[i].retry_ns;
        earliest = at != 0 && at < earliest ? at : earliest;
    }
    uint64_t now = now_ns();
    return earliest == UINT64_MAX ? -1
           : earliest <= now      ? 1
                                  : (int)((earliest - now) / 1000000) + 1;
}

static void run_process(struct process *process)
{
    struct pollfd fds[] = {
        { .fd = rdmux_cq_fd(process->cq), .events = POLLIN },
        { .fd = rdmux_listener_fd(process->listener), .events = POLLIN },
        { .fd = process->storm->finish, .events = POLLIN },
    };
    while (process->over < pair_count(process)) {
        take_entries(process);
        accept_all(process);
        connect_more(process);
        process->rounds++;
        exit_in_the_midst(process);
        if (process->over == pair_count(process) || rdmux_cq_arm(process->cq) != RDMUX_OK) {
            continue;
        }
        (void)poll(fds, 3, next_retry_ms(process));
        process->mine->wakes += !process->is_finishing;
        if (fds[2].revents != 0 && !process->is_finishing) {
            begin_end(process);
            fds[2].fd = -1;
        }
    }
}

static bool is_equal(const struct process *process, const char *what, int64_t before, int64_t after)
{
    if (before != after) {
        fprintf(stderr, "storm: process %u left something behind: %lld %s before, %lld after\n",
                process->rank, (long long)before, what, (long long)after);
    }
    return before == after;
}

static bool has_left_nothing(const struct process *process)
{
    const struct usage *before = &process->mine->before;
    const struct usage *after = &process->mine->after;
    bool same = is_equal(process, "descriptors", before->descriptors, after->descriptors);
    same = is_equal(process, "shared mappings", before->shared_mappings, after->shared_mappings) &&
           same;
    same = is_equal(process, "blocks of the library", before->library_blocks,
                    after->library_blocks) &&
           same;
    return is_equal(process, "threads", before->threads, after->threads) && same;
}

static void plant_leftovers(const struct process *process)
{
    if (process->rank != 0) {
        return;
    }
    if (process->storm->options.flaw == STORM_FLAW_DESCRIPTOR) {
        (void)dup(STDERR_FILENO);
    } else if (process->storm->options.flaw == STORM_FLAW_MAPPING) {
        (void)mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    }
}

int storm_process_run(struct storm *storm, uint32_t rank)
{
    static struct pair pairs[STORM_PROCESSES_MAX];
    static struct message shared[STORM_PROCESSES_MAX];
    struct process process = {
        .storm = storm,
        .mine = &storm->each[rank],
        .rank = rank,
        .pairs = pairs,
        .shared = shared,
        .next = rank + 1,
    };
    for (uint32_t i = 0; i < storm->options.processes; i++) {
        pairs[i].rank = i;
    }
    process.mine->before = usage_read();
    open_process(&process);
    atomic_fetch_add(&storm->ready, 1);
    tell_parent(storm);
    wait_for(storm->start);
    run_process(&process);
    close_process(&process);
    plant_leftovers(&process);
    process.mine->after = usage_read();
    bool is_clean = has_left_nothing(&process);
    bool is_right = process.mine->wrong == 0 && process.mine->lost == 0 &&
                    process.mine->messages == pair_count(&process) &&
                    process.mine->ends == pair_count(&process);
    return is_clean && is_right ? 0 : 1;
}
