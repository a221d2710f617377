/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Runs each operation of the data path many times, so that callgrind counts its instructions.
 * tests/instructions/run.sh reads the counts.
 *
 * Both sides are in this process, on a fabric each, without threads of the library. One thread
 * makes all calls, in the same order each time, so that the counts repeat. Only the calls of one
 * side are counted at a time. Each count is a dump of callgrind, and one line of output describes
 * it:
 *
 *   PATH OPERATION SIDE OPERATIONS SYSTEM_CALLS LATE
 *
 * SYSTEM_CALLS are those that the endpoint's provider counts (struct rdmux_ep_stats). LATE is the
 * number of polls that came before the kernel had delivered the expected entries.
 */
#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define CAN_COUNT 1
#endif
#endif
#ifndef CAN_COUNT
#define CAN_COUNT 0
#define RUNNING_ON_VALGRIND 0
#define CALLGRIND_TOGGLE_COLLECT ((void)0)
#define CALLGRIND_ZERO_STATS ((void)0)
#define CALLGRIND_DUMP_STATS_AT(text) ((void)(text))
#endif

enum {
    /* Rounds of an operation that do not count: the providers learn which endpoints are active. */
    WARM_UP = 512,
    FEW_ROUNDS = 64,
    /* The difference to FEW_ROUNDS. Providers do some things in one poll of many, the rarest in one
     * of 4,096, and the core may ask them in every second round only; a multiple of both has each
     * of them as often wherever it begins. */
    ROUNDS = 2 * 4096,
    SMALL = 8,
    LARGE = 4096,
    DEPTH = 128, /* requests, and receives, of an endpoint */
    BURST = 16,  /* unsignaled sends up to one that is signaled */
    BATCH = 32,
    CROWD = 100, /* idle endpoints */
    ENTRIES = 64,
    SMALL_RECEIVE = 64,
    SETUP_MS = 120 * 1000, /* valgrind on a busy machine takes its time */
    PATIENCE_S = 60,
    EXIT_SKIP = 77,
};

/* One of the two; both are in this process. */
struct side {
    const char *name;
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_mr *mr; /* DEPTH receives of LARGE bytes, or the bytes of sends and writes */
    uint8_t *bytes;      /* of mr */
    struct rdmux_ep *ep;
    struct rdmux_ep *crowd[CROWD];
};

struct pair {
    struct side initiator;
    struct side target;
    struct rdmux_listener *listener;
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_remote *remote;  /* the target's region */
    const struct side *counted;   /* the side whose calls are counted; NULL: none */
    uint64_t unattended;          /* RDMUX_CAP_* that need no call at the target */
    bool target_passive;          /* the operation is one of these */
    unsigned long late;           /* polls that came before their entries */
    struct rdmux_wc wc[ENTRIES];  /* of the last poll */
    struct rdmux_wr sends[BATCH]; /* the batch that is posted */
    struct rdmux_sge send_pieces[BATCH];
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "instructions: %s: %s\n", what, why);
    exit(1);
}

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        die(what, rdmux_last_error());
    }
}

static time_t now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* ------------------------------------------------------------------------------------- counting */

/* The counted calls of a side are between these two. */
static inline void begin(const struct pair *pair, const struct side *side)
{
    if (pair->counted == side) {
        CALLGRIND_TOGGLE_COLLECT;
    }
}

static inline void end(const struct pair *pair, const struct side *side)
{
    begin(pair, side);
}

static const struct side *other(const struct pair *pair, const struct side *side)
{
    return side == &pair->initiator ? &pair->target : &pair->initiator;
}

/* Polls once on the side, and expects this many entries with this opcode. If entries are late, it
 * waits for them without counting, also for progress of the other side. */
static void take(struct pair *pair, const struct side *side, uint32_t opcode, size_t wanted)
{
    begin(pair, side);
    size_t got = rdmux_cq_poll(side->cq, pair->wc, ENTRIES);
    end(pair, side);
    if (got < wanted) {
        pair->late++;
        time_t until = now_s() + PATIENCE_S;
        while (got < wanted) {
            (void)rdmux_cq_poll(other(pair, side)->cq, NULL, 0);
            got += rdmux_cq_poll(side->cq, pair->wc + got, ENTRIES - got);
            if (now_s() > until) {
                die(side->name, "an entry did not come");
            }
        }
    }
    if (got > wanted) {
        die(side->name, "a poll returned more than was asked for");
    }
    for (size_t i = 0; i < got; i++) {
        if (pair->wc[i].opcode != opcode || pair->wc[i].status != RDMUX_OK) {
            fprintf(stderr, "instructions: %s: %s %s\n", side->name,
                    rdmux_wc_opcode_name(pair->wc[i].opcode),
                    rdmux_status_name((enum rdmux_status)pair->wc[i].status));
            exit(1);
        }
    }
}

/* --------------------------------------------------------------------------------------- set-up */

static void open_side(struct side *side, const char *name, const char *path, const char *plugin)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    side->name = name;
    attr.paths = path;
    attr.plugins = &plugin;
    attr.plugin_count = plugin != NULL;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS |
                 RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD;
    must(rdmux_fabric_open(&attr, &side->fabric), "rdmux_fabric_open");
    must(rdmux_cq_create(side->fabric, NULL, &side->cq), "rdmux_cq_create");
    must(rdmux_mr_alloc(side->fabric, (size_t)DEPTH * LARGE,
                        RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_READ |
                            RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC,
                        &side->mr),
         "rdmux_mr_alloc");
    side->bytes = rdmux_mr_addr(side->mr);
}

static void close_side(struct side *side)
{
    rdmux_mr_deregister(side->mr);
    must(rdmux_cq_destroy(side->cq), "rdmux_cq_destroy");
    must(rdmux_fabric_close(side->fabric), "rdmux_fabric_close");
}

static void open_pair(struct pair *pair, const char *path, const char *plugin)
{
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.hello_timeout_ms = SETUP_MS;
    open_side(&pair->initiator, "initiator", path, plugin);
    open_side(&pair->target, "target", path, plugin);
    must(rdmux_listen(pair->target.fabric, "127.0.0.1:0", &attr, &pair->listener), "rdmux_listen");
    must(rdmux_listener_address(pair->listener, pair->address, sizeof(pair->address)),
         "rdmux_listener_address");
}

static void close_pair(struct pair *pair)
{
    rdmux_listener_close(pair->listener);
    close_side(&pair->initiator);
    close_side(&pair->target);
}

/* Does the work of the library's threads. */
static void progress(struct pair *pair)
{
    must(rdmux_fabric_progress(pair->initiator.fabric), "rdmux_fabric_progress");
    must(rdmux_fabric_progress(pair->target.fabric), "rdmux_fabric_progress");
}

/* Makes progress on both sides until the side has its event. */
static void await_event(struct pair *pair, const struct side *side, uint32_t opcode)
{
    struct rdmux_wc wc;
    time_t until = now_s() + PATIENCE_S;
    while (rdmux_cq_poll(side->cq, &wc, 1) == 0) {
        progress(pair);
        if (now_s() > until) {
            die(rdmux_wc_opcode_name(opcode), "did not come");
        }
    }
    if (wc.opcode != opcode || wc.status != RDMUX_OK) {
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        must(rdmux_ep_info(wc.ep, &info), "rdmux_ep_info");
        die(rdmux_wc_opcode_name(wc.opcode),
            info.text[0] != '\0' ? info.text : rdmux_status_name((enum rdmux_status)wc.status));
    }
}

static void must_begin(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_IN_PROGRESS) {
        die(what, status == RDMUX_OK ? "it is done already" : rdmux_last_error());
    }
}

static void connect_one(struct pair *pair, struct rdmux_ep **initiator, struct rdmux_ep **target)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    time_t until = now_s() + PATIENCE_S;
    attr.send_depth = DEPTH;
    attr.recv_depth = DEPTH;
    attr.liveness_ms = RDMUX_NEVER; /* no heartbeat comes in between */
    attr.setup_timeout_ms = SETUP_MS;
    attr.path_timeout_ms = SETUP_MS;
    must_begin(rdmux_connect(pair->initiator.fabric, pair->initiator.cq, pair->address, &attr, 0,
                             initiator),
               "rdmux_connect");
    while (rdmux_listener_next(pair->listener, 0, &peer) == RDMUX_AGAIN && now_s() < until) {
        progress(pair);
    }
    attr.peer = peer.id;
    must_begin(rdmux_accept(pair->listener, pair->target.cq, &attr, 0, target), "rdmux_accept");
    await_event(pair, &pair->target, RDMUX_WC_CONNECTED);
    await_event(pair, &pair->initiator, RDMUX_WC_CONNECTED);
}

static void learn_path(struct pair *pair, const char *path)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    must(rdmux_ep_info(pair->initiator.ep, &info), "rdmux_ep_info");
    if (strcmp(info.provider, path) != 0) {
        die(path, "another path was chosen");
    }
    pair->unattended = (info.native & RDMUX_CAP_TARGET_PASSIVE) != 0 ? info.native : 0;
}

/* Makes a new endpoint on each side, so that operations do not depend on earlier ones. */
static void connect_pair(struct pair *pair, const char *path)
{
    struct rdmux_token token;
    connect_one(pair, &pair->initiator.ep, &pair->target.ep);
    learn_path(pair, path);
    must(rdmux_mr_export(pair->target.mr, &token), "rdmux_mr_export");
    must_begin(rdmux_remote_import(pair->initiator.ep, &token, 0, &pair->remote),
               "rdmux_remote_import");
    await_event(pair, &pair->initiator, RDMUX_WC_REMOTE_READY);
}

static void disconnect_pair(struct pair *pair)
{
    must(rdmux_ep_close(pair->initiator.ep), "rdmux_ep_close");
    must(rdmux_ep_close(pair->target.ep), "rdmux_ep_close");
    progress(pair);
}

static void gather_crowd(struct pair *pair)
{
    for (size_t i = 1; i < CROWD; i++) { /* the first one exists */
        connect_one(pair, &pair->initiator.crowd[i], &pair->target.crowd[i]);
    }
}

static void disperse_crowd(struct pair *pair)
{
    for (size_t i = 1; i < CROWD; i++) {
        must(rdmux_ep_close(pair->initiator.crowd[i]), "rdmux_ep_close");
        must(rdmux_ep_close(pair->target.crowd[i]), "rdmux_ep_close");
    }
}

/* ------------------------------------------------------------------------------------- receives */

static void post_receives(const struct pair *pair, size_t size)
{
    for (size_t i = 0; i < DEPTH; i++) {
        uint8_t *buffer = pair->target.bytes + i * LARGE;
        must(rdmux_recv(pair->target.ep, buffer, size, pair->target.mr, buffer), "rdmux_recv");
    }
}

/* The target takes one message and offers its buffer again. */
static void receive_one(struct pair *pair, size_t receive_size)
{
    const struct side *target = &pair->target;
    take(pair, target, RDMUX_WC_RECV, 1);
    void *buffer = pair->wc[0].context;
    begin(pair, target);
    enum rdmux_status status = rdmux_recv(target->ep, buffer, receive_size, target->mr, buffer);
    end(pair, target);
    must(status, "rdmux_recv");
}

static void receive_batch(struct pair *pair)
{
    const struct side *target = &pair->target;
    struct rdmux_wr receives[BATCH];
    struct rdmux_sge pieces[BATCH];
    size_t posted = 0;
    take(pair, target, RDMUX_WC_RECV, BATCH);
    memset(receives, 0, sizeof(receives));
    for (size_t i = 0; i < BATCH; i++) {
        pieces[i] = (struct rdmux_sge){ pair->wc[i].context, SMALL_RECEIVE, target->mr };
        receives[i].op = RDMUX_OP_RECV;
        receives[i].context = pair->wc[i].context;
        receives[i].sges = &pieces[i];
        receives[i].sge_count = 1;
    }
    begin(pair, target);
    enum rdmux_status status = rdmux_post_recv(target->ep, receives, BATCH, &posted);
    end(pair, target);
    must(status, "rdmux_post_recv");
}

/* ----------------------------------------------------------------------------------- operations */

static void send_one(struct pair *pair, size_t length, struct rdmux_mr *mr, uint32_t flags)
{
    const struct side *initiator = &pair->initiator;
    begin(pair, initiator);
    enum rdmux_status status = rdmux_send(initiator->ep, initiator->bytes, length, mr, NULL, flags);
    end(pair, initiator);
    must(status, "rdmux_send");
}

static void send_signaled(struct pair *pair)
{
    send_one(pair, SMALL, NULL, RDMUX_INLINE);
    receive_one(pair, SMALL_RECEIVE);
    take(pair, &pair->initiator, RDMUX_WC_SEND, 1);
}

static void send_unsignaled(struct pair *pair)
{
    for (int i = 1; i < BURST; i++) {
        send_one(pair, SMALL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED);
        receive_one(pair, SMALL_RECEIVE);
    }
    send_signaled(pair);
}

static void send_large(struct pair *pair)
{
    send_one(pair, LARGE, pair->initiator.mr, 0);
    receive_one(pair, LARGE);
    take(pair, &pair->initiator, RDMUX_WC_SEND, 1);
}

static void prepare_batch(struct pair *pair)
{
    for (size_t i = 0; i < BATCH; i++) {
        pair->send_pieces[i] = (struct rdmux_sge){ pair->initiator.bytes, SMALL, NULL };
        pair->sends[i] = (struct rdmux_wr){
            .op = RDMUX_OP_SEND,
            .flags = RDMUX_INLINE | (i + 1 < BATCH ? (uint32_t)RDMUX_UNSIGNALED : 0),
            .sges = &pair->send_pieces[i],
            .sge_count = 1,
        };
    }
}

static void send_batch(struct pair *pair)
{
    const struct side *initiator = &pair->initiator;
    size_t posted = 0;
    begin(pair, initiator);
    enum rdmux_status status = rdmux_post(initiator->ep, pair->sends, BATCH, &posted);
    end(pair, initiator);
    must(status, "rdmux_post");
    receive_batch(pair);
    take(pair, initiator, RDMUX_WC_SEND, 1);
}

/* The library of the target carries out the request: one poll there. */
static void serve(struct pair *pair)
{
    if (!pair->target_passive) {
        take(pair, &pair->target, RDMUX_WC_RECV, 0);
    }
}

static void write_bytes(struct pair *pair, size_t length, struct rdmux_mr *mr, uint32_t flags)
{
    const struct side *initiator = &pair->initiator;
    begin(pair, initiator);
    enum rdmux_status status = rdmux_write(initiator->ep, initiator->bytes, length, mr,
                                           pair->remote, 0, NULL, flags);
    end(pair, initiator);
    must(status, "rdmux_write");
    serve(pair);
    take(pair, initiator, RDMUX_WC_WRITE, 1);
}

static void write_small(struct pair *pair)
{
    write_bytes(pair, SMALL, NULL, RDMUX_INLINE);
}

static void write_large(struct pair *pair)
{
    write_bytes(pair, LARGE, pair->initiator.mr, 0);
}

static void read_small(struct pair *pair)
{
    const struct side *initiator = &pair->initiator;
    begin(pair, initiator);
    enum rdmux_status status = rdmux_read(initiator->ep, initiator->bytes, SMALL, initiator->mr,
                                          pair->remote, 0, NULL, 0);
    end(pair, initiator);
    must(status, "rdmux_read");
    serve(pair);
    take(pair, initiator, RDMUX_WC_READ, 1);
}

static void fetch_add(struct pair *pair)
{
    const struct side *initiator = &pair->initiator;
    begin(pair, initiator);
    enum rdmux_status status = rdmux_fetch_add(initiator->ep, (uint64_t *)(void *)initiator->bytes,
                                               initiator->mr, pair->remote, 0, 1, NULL, 0);
    end(pair, initiator);
    must(status, "rdmux_fetch_add");
    serve(pair);
    take(pair, initiator, RDMUX_WC_FETCH_ADD, 1);
}

/* The loop of a program. Its own instructions and those of the device count as well; raw_verbs.c
 * has the same loop without rdmux. */
static void write_and_take(struct pair *pair)
{
    struct rdmux_ep *ep = pair->initiator.ep;
    struct rdmux_cq *cq = pair->initiator.cq;
    struct rdmux_remote *remote = pair->remote;
    uint8_t *from = pair->initiator.bytes;
    begin(pair, &pair->initiator);
    for (int i = 0; i < BATCH; i++) {
        if (rdmux_write(ep, from, SMALL, NULL, remote, 0, from, RDMUX_INLINE) != RDMUX_OK) {
            die("rdmux_write", rdmux_last_error());
        }
        struct rdmux_wc wc;
        size_t got;
        do {
            got = rdmux_cq_poll(cq, &wc, 1);
        } while (got == 0);
        if (wc.status != RDMUX_OK) {
            die("rdmux_cq_poll", rdmux_status_name((enum rdmux_status)wc.status));
        }
    }
    end(pair, &pair->initiator);
}

static void poll_in_vain(struct pair *pair)
{
    take(pair, &pair->initiator, RDMUX_WC_RECV, 0);
}

static const struct operation {
    const char *name;
    void (*round)(struct pair *pair);
    unsigned long each; /* operations in a round */
    size_t receive;     /* bytes of the target's receives, 0: none */
    uint64_t one_sided; /* RDMUX_CAP_* of an operation that may need no call at the target, or 0 */
    bool alone;         /* the target takes no part */
    bool crowd;         /* with CROWD endpoints on the queue */
    bool loop;          /* only if the target takes no part */
} operations[] = {
    { "send_8_signaled", send_signaled, 1, SMALL_RECEIVE, 0, false, false, false },
    { "send_8_unsignaled", send_unsignaled, BURST, SMALL_RECEIVE, 0, false, false, false },
    { "send_8_batch_32", send_batch, BATCH, SMALL_RECEIVE, 0, false, false, false },
    { "send_4096", send_large, 1, LARGE, 0, false, false, false },
    { "write_8", write_small, 1, 0, RDMUX_CAP_WRITE, false, false, false },
    { "write_4096", write_large, 1, 0, RDMUX_CAP_WRITE, false, false, false },
    { "read_8", read_small, 1, 0, RDMUX_CAP_READ, false, false, false },
    { "fetch_add", fetch_add, 1, 0, RDMUX_CAP_FETCH_ADD, false, false, false },
    { "loop_write_8", write_and_take, BATCH, 0, RDMUX_CAP_WRITE, false, false, true },
    { "empty_poll_1", poll_in_vain, 1, 0, 0, true, false, false },
    { "empty_poll_100", poll_in_vain, 1, 0, 0, true, true, false },
};

enum { OPERATION_COUNT = sizeof(operations) / sizeof(operations[0]) };

/* ---------------------------------------------------------------------------------- measurement */

static void run_rounds(struct pair *pair, const struct operation *operation, unsigned long rounds)
{
    for (unsigned long i = 0; i < rounds; i++) {
        operation->round(pair);
    }
}

static unsigned long long system_calls(const struct side *side)
{
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    must(rdmux_ep_stats(side->ep, &stats), "rdmux_ep_stats");
    return stats.system_calls;
}

/* Makes one dump of callgrind. */
static void count(struct pair *pair, const char *path, const struct operation *operation,
                  const struct side *side, unsigned long rounds)
{
    char text[128];
    unsigned long long calls = system_calls(side);
    pair->late = 0;
    pair->counted = side;
    CALLGRIND_ZERO_STATS;
    run_rounds(pair, operation, rounds);
    pair->counted = NULL;
    snprintf(text, sizeof(text), "%s %s %s %lu %llu %lu", path, operation->name, side->name,
             rounds * operation->each, system_calls(side) - calls, pair->late);
    CALLGRIND_DUMP_STATS_AT(text);
    puts(text);
}

static void count_side(struct pair *pair, const char *path, const struct operation *operation,
                       const struct side *side)
{
    count(pair, path, operation, side, FEW_ROUNDS);
    count(pair, path, operation, side, FEW_ROUNDS + ROUNDS);
}

/* Checks that the counted operation did its work. */
static void check_effect(const struct pair *pair, const struct operation *operation)
{
    uint64_t word;
    memcpy(&word, pair->target.bytes, sizeof(word));
    if (operation->round == fetch_add && word == 0) {
        die(operation->name, "nothing was added");
    }
    if ((operation->round == write_small || operation->round == write_large ||
         operation->round == read_small) &&
        memcmp(pair->initiator.bytes, pair->target.bytes, SMALL) != 0) {
        die(operation->name, "the bytes did not arrive");
    }
}

static void measure(struct pair *pair, const char *path, const struct operation *operation)
{
    connect_pair(pair, path);
    memset(pair->initiator.bytes, 0x5a, LARGE);
    memset(pair->target.bytes, 0, LARGE);
    prepare_batch(pair);
    if (operation->receive != 0) {
        post_receives(pair, operation->receive);
    }
    if (operation->crowd) {
        gather_crowd(pair);
    }
    pair->target_passive = (operation->one_sided & pair->unattended) != 0;
    if (operation->loop && !pair->target_passive) {
        disconnect_pair(pair);
        return;
    }
    run_rounds(pair, operation, WARM_UP);
    count_side(pair, path, operation, &pair->initiator);
    if (!operation->alone && !pair->target_passive) {
        count_side(pair, path, operation, &pair->target);
    }
    check_effect(pair, operation);
    if (operation->crowd) {
        disperse_crowd(pair);
    }
    disconnect_pair(pair);
}

static int usage(void)
{
    fprintf(stderr, "usage: instructions --path PATH [--plugin FILE] [OPERATION...]\n"
                    "       instructions --list | --can-count\n");
    return 2;
}

static bool is_wanted(const char *name, char **wanted, int wanted_count)
{
    for (int i = 0; i < wanted_count; i++) {
        if (strcmp(wanted[i], name) == 0) {
            return true;
        }
    }
    return wanted_count == 0;
}

static int list(void)
{
    for (size_t i = 0; i < OPERATION_COUNT; i++) {
        puts(operations[i].name);
    }
    return 0;
}

static int can_count(void)
{
    if (!CAN_COUNT) {
        fprintf(stderr, "built without valgrind/callgrind.h\n");
        return EXIT_SKIP;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct pair pair;
    const char *path = NULL;
    const char *plugin = NULL;
    int at = 1;
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        return list();
    }
    if (argc == 2 && strcmp(argv[1], "--can-count") == 0) {
        return can_count();
    }
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        if (strcmp(argv[at], "--path") == 0) {
            path = argv[at + 1];
        } else if (strcmp(argv[at], "--plugin") == 0) {
            plugin = argv[at + 1];
        } else {
            return usage();
        }
    }
    if (path == NULL || (at < argc && argv[at][0] == '-')) {
        return usage();
    }
    open_pair(&pair, path, plugin);
    for (size_t i = 0; i < OPERATION_COUNT; i++) {
        if (is_wanted(operations[i].name, argv + at, argc - at)) {
            measure(&pair, path, &operations[i]);
        }
    }
    close_pair(&pair);
    return 0;
}
