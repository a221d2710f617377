/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Measures what an endpoint costs: memory, descriptors, objects of the adapter, time to connect and
 * to close, and traffic and processor time while it is idle. Two processes: the parent connects, the
 * child accepts. README.md has the members of the JSON object that it prints.
 */
#include "adapter.h"
#include "usage.h"

#include "tests/counted.h"

#include <rdmux/rdmux.h>

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    UNDER_WAY = 32, /* set-ups at a time, unless the options say otherwise */
    PEERS_MAX = 256,
    POLLS = 20000,
    ENTRIES = 64,
    SETTLE_MS = 500, /* before idle traffic is counted */
};

struct options {
    const char *paths;
    const char *plugin; /* NULL: none */
    uint32_t count;     /* endpoints */
    uint32_t peers;     /* fabrics of the accepting side, each of which is a peer of its own */
    uint32_t under_way; /* set-ups at a time */
    uint32_t depth;
    uint32_t liveness_ms;
    double idle_seconds;
    bool shares;        /* endpoints share an SRQ */
    bool counts_blocks; /* of the library; its memory is all touched then */
    bool closes;
};

/* One fabric with its queue. */
struct side {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_srq *srq;
    struct rdmux_listener *listener; /* accepting side only */
};

/* What a side of the connections tells of itself. */
struct report {
    struct usage before, after;
    struct adapter_use adapter_before, adapter_after;
    bool has_adapter;
    double idle_processor_seconds;
    double poll_ns[2]; /* before the first endpoint, and beside all of them */
    uint64_t ends;
};

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "cost: %s: %s\n", what, why);
    exit(1);
}

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        give_up(what, rdmux_last_error());
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void rest(double seconds)
{
    struct timespec left = { .tv_sec = (time_t)seconds,
                             .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* ------------------------------------------------------------------------------ the other process */

static void tell(int fd, const void *bytes, size_t size)
{
    if (write(fd, bytes, size) != (ssize_t)size) {
        exit(1);
    }
}

static void hear(int fd, void *bytes, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = read(fd, (char *)bytes + done, size - done);
        if (got <= 0) {
            give_up("the other process", "ended");
        }
        done += (size_t)got;
    }
}

/* Both sides are here. */
static void meet(int fd)
{
    char byte = 0;
    tell(fd, &byte, 1);
    hear(fd, &byte, 1);
}

/* --------------------------------------------------------------------------------------- network */

/* A counter of this network namespace: the number below `name` in the two lines that begin with
 * `line`. */
static uint64_t network_counter(const char *path, const char *line, const char *name)
{
    char names[8192] = "";
    char values[8192] = "";
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file != NULL && !found && fgets(names, sizeof(names), file) != NULL) {
        found = strncmp(names, line, strlen(line)) == 0 &&
                fgets(values, sizeof(values), file) != NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    char *names_left = NULL;
    char *values_left = NULL;
    const char *at = strtok_r(names, " \n", &names_left);
    const char *value = strtok_r(values, " \n", &values_left);
    while (at != NULL && value != NULL && strcmp(at, name) != 0) {
        at = strtok_r(NULL, " \n", &names_left);
        value = strtok_r(NULL, " \n", &values_left);
    }
    if (!found || at == NULL || value == NULL) {
        give_up(path, "lacks a counter");
    }
    return strtoull(value, NULL, 10);
}

struct traffic {
    uint64_t packets;
    uint64_t bytes; /* with IP headers */
};

static struct traffic traffic_so_far(void)
{
    return (struct traffic){
        .packets = network_counter("/proc/self/net/snmp", "Tcp:", "OutSegs"),
        .bytes = network_counter("/proc/self/net/netstat", "IpExt:", "OutOctets"),
    };
}

/* --------------------------------------------------------------------------------------- a side */

static void open_side(struct side *side, const struct options *options)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.paths = options->paths;
    attr.plugins = &options->plugin;
    attr.plugin_count = options->plugin != NULL;
    if (options->counts_blocks) {
        usage_count_memory(&attr);
    }
    must(rdmux_fabric_open(&attr, &side->fabric), "rdmux_fabric_open");
    must(rdmux_cq_create(side->fabric, NULL, &side->cq), "rdmux_cq_create");
    if (options->shares) {
        struct rdmux_srq_attr srq = RDMUX_SRQ_ATTR_INIT;
        srq.depth = options->depth;
        must(rdmux_srq_create(side->fabric, side->cq, &srq, &side->srq), "rdmux_srq_create");
    }
}

static struct rdmux_ep_attr endpoint_attr(const struct side *side, const struct options *options)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.send_depth = options->depth;
    attr.recv_depth = options->depth;
    attr.liveness_ms = options->liveness_ms;
    attr.setup_timeout_ms = 600000;
    attr.path_timeout_ms = 600000;
    attr.srq = side->srq;
    return attr;
}

static double poll_ns(struct side *side)
{
    struct rdmux_wc wc;
    double begin = now();
    for (int i = 0; i < POLLS; i++) {
        (void)rdmux_cq_poll(side->cq, &wc, 1);
    }
    return (now() - begin) * 1e9 / POLLS;
}

static void note_before(struct report *report, struct side *side)
{
    report->poll_ns[0] = poll_ns(side);
    report->has_adapter = adapter_read(&report->adapter_before);
    report->before = usage_read();
}

static void note_after(struct report *report, struct side *side)
{
    report->after = usage_read();
    (void)adapter_read(&report->adapter_after);
    report->poll_ns[1] = poll_ns(side);
}

/* Neither side calls rdmux meanwhile. */
static void be_idle(int fd, const struct options *options, struct report *report)
{
    meet(fd);
    double before = usage_processor_seconds();
    meet(fd);
    rest(options->idle_seconds);
    report->idle_processor_seconds = usage_processor_seconds() - before;
    meet(fd);
}

/* ------------------------------------------------------------------------------ the accepting side */

static void accept_one(struct side *side, const struct options *options)
{
    struct rdmux_ep_attr attr = endpoint_attr(side, options);
    struct rdmux_ep *ep = NULL;
    must(rdmux_accept(side->listener, side->cq, &attr, -1, &ep), "rdmux_accept");
}

/* Closes each endpoint whose peer has closed. */
static void close_with_peer(struct side *sides, const struct options *options, struct report *report)
{
    const uint64_t all = (uint64_t)options->count + options->peers;
    while (report->ends < all) {
        for (uint32_t i = 0; i < options->peers; i++) {
            struct rdmux_wc wc[ENTRIES];
            size_t count = 0;
            const int wait_ms = options->peers == 1 ? 1000 : 1;
            if (rdmux_cq_wait(sides[i].cq, wc, ENTRIES, wait_ms, &count) != RDMUX_OK) {
                continue; /* no entry yet */
            }
            for (size_t at = 0; at < count; at++) {
                if (wc[at].opcode == RDMUX_WC_DISCONNECTED) {
                    report->ends++;
                    (void)rdmux_ep_close(wc[at].ep);
                }
            }
        }
    }
}

static int serve(int fd, const struct options *options)
{
    static struct side sides[PEERS_MAX];
    struct report report = { .ends = 0 };
    for (uint32_t i = 0; i < options->peers; i++) {
        char address[RDMUX_ADDRESS_MAX];
        open_side(&sides[i], options);
        must(rdmux_listen(sides[i].fabric, "127.0.0.1:0", NULL, &sides[i].listener),
             "rdmux_listen");
        must(rdmux_listener_address(sides[i].listener, address, sizeof(address)),
             "rdmux_listener_address");
        tell(fd, address, sizeof(address));
    }
    for (uint32_t i = 0; i < options->peers; i++) {
        accept_one(&sides[i], options);
    }
    note_before(&report, &sides[0]);
    meet(fd);
    for (uint32_t i = 0, peer = 0; i < options->count; i++) {
        accept_one(&sides[peer], options);
        peer = peer + 1 < options->peers ? peer + 1 : 0;
    }
    meet(fd);
    note_after(&report, &sides[0]);
    be_idle(fd, options, &report);
    tell(fd, &report, sizeof(report));
    if (options->closes) {
        meet(fd);
        close_with_peer(sides, options, &report);
    }
    meet(fd);
    return 0;
}

/* ----------------------------------------------------------------------------- the connecting side */

struct pace {
    double begin, first_tenth, last_tenth, end;
};

/* Returns when the tenths of `count` steps are done. */
static void note_pace(struct pace *pace, uint32_t done, uint32_t count)
{
    if (done == count / 10) {
        pace->first_tenth = now();
    }
    if (done == count - count / 10) {
        pace->last_tenth = now();
    }
}

/* How many times longer the last tenth took than the first. */
static double slowdown(const struct pace *pace)
{
    double first = pace->first_tenth - pace->begin;
    return first > 0 ? (pace->end - pace->last_tenth) / first : 0;
}

static void expect_connected(const struct rdmux_wc *wc, uint32_t connected, uint32_t count)
{
    if (wc->opcode == RDMUX_WC_CONNECTED && wc->status == RDMUX_OK) {
        return;
    }
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    must(rdmux_ep_info(wc->ep, &info), "rdmux_ep_info");
    fprintf(stderr, "cost: %u of %u are connected: %s %s: %s\n", connected, count,
            rdmux_wc_opcode_name(wc->opcode), rdmux_status_name((enum rdmux_status)wc->status),
            info.text);
    exit(1);
}

/* Connects `count` endpoints, the one with number i to address i modulo options->peers. */
static struct pace connect_all(struct side *side, const struct options *options,
                               char (*addresses)[RDMUX_ADDRESS_MAX], uint32_t count,
                               struct rdmux_ep **out)
{
    const struct rdmux_ep_attr attr = endpoint_attr(side, options);
    struct pace pace = { .begin = now() };
    uint32_t started = 0;
    uint32_t connected = 0;
    while (connected < count) {
        while (started < count && started - connected < options->under_way) {
            enum rdmux_status status = rdmux_connect(side->fabric, side->cq,
                                                     addresses[started % options->peers], &attr, 0,
                                                     &out[started]);
            if (status != RDMUX_IN_PROGRESS) {
                char what[64];
                (void)snprintf(what, sizeof(what), "%u of %u are connected", connected, count);
                give_up(what, rdmux_last_error());
            }
            started++;
        }
        struct rdmux_wc wc[ENTRIES];
        size_t got = 0;
        must(rdmux_cq_wait(side->cq, wc, ENTRIES, -1, &got), "rdmux_cq_wait");
        for (size_t i = 0; i < got; i++) {
            expect_connected(&wc[i], connected, count);
            note_pace(&pace, ++connected, count);
        }
    }
    pace.end = now();
    return pace;
}

static struct pace close_all(struct rdmux_ep **eps, uint32_t count)
{
    struct pace pace = { .begin = now() };
    for (uint32_t i = 0; i < count; i++) {
        (void)rdmux_ep_close(eps[i]);
        note_pace(&pace, i + 1, count);
    }
    pace.end = now();
    return pace;
}

/* ---------------------------------------------------------------------------------------- report */

static double each(int64_t before, int64_t after, uint32_t count)
{
    return (double)(after - before) / (double)count;
}

static void print_side(const char *name, const struct report *report, uint32_t count)
{
    const struct usage *before = &report->before;
    const struct usage *after = &report->after;
    printf(" \"%s\":{\"resident_bytes\":%.0f,\"shared_bytes\":%.0f,\"library_bytes\":%.0f,"
           "\"library_blocks\":%.2f,\"descriptors\":%.2f,\"mappings\":%.2f,"
           "\"shared_mappings\":%.2f,"
           "\"threads\":%lld,\"poll_ns\":{\"none\":%.0f,\"all\":%.0f}},\n",
           name, each(before->resident_bytes, after->resident_bytes, count),
           each(before->shared_bytes, after->shared_bytes, count),
           each(before->library_bytes, after->library_bytes, count),
           each(before->library_blocks, after->library_blocks, count),
           each(before->descriptors, after->descriptors, count),
           each(before->mappings, after->mappings, count),
           each(before->shared_mappings, after->shared_mappings, count), (long long)after->threads,
           report->poll_ns[0], report->poll_ns[1]);
}

static double use_each(uint64_t before, uint64_t after, uint32_t count)
{
    return each((int64_t)before, (int64_t)after, count);
}

static void print_adapter(const struct report *report, uint32_t count, double requests_a_second)
{
    const struct adapter_use *before = &report->adapter_before;
    const struct adapter_use *after = &report->adapter_after;
    if (!report->has_adapter) {
        printf(" \"adapter\":null}\n");
        return;
    }
    printf(" \"adapter\":{\"queue_pairs\":%.2f,\"send_entries\":%.1f,\"receive_entries\":%.1f,"
           "\"completion_queues\":%.3f,\"completion_entries\":%.1f,\"regions\":%.2f,"
           "\"region_bytes\":%.0f,\"idle_requests_per_second\":%.3f}}\n",
           use_each(before->queue_pairs, after->queue_pairs, count),
           use_each(before->send_entries, after->send_entries, count),
           use_each(before->receive_entries, after->receive_entries, count),
           use_each(before->completion_queues, after->completion_queues, count),
           use_each(before->completion_entries, after->completion_entries, count),
           use_each(before->regions, after->regions, count),
           use_each(before->region_bytes, after->region_bytes, count), requests_a_second);
}

static void drive(int fd, const struct options *options)
{
    static char addresses[PEERS_MAX][RDMUX_ADDRESS_MAX];
    struct side side = { .fabric = NULL };
    struct report ours = { .ends = 0 };
    struct report theirs;
    struct rdmux_ep **eps = calloc(options->count + options->peers, sizeof(struct rdmux_ep *));
    if (eps == NULL) {
        give_up("the table of endpoints", "out of memory");
    }
    open_side(&side, options);
    for (uint32_t i = 0; i < options->peers; i++) {
        hear(fd, addresses[i], sizeof(addresses[i]));
    }
    /* One endpoint to each peer is there before: what only the first one costs does not count. */
    (void)connect_all(&side, options, addresses, options->peers, eps + options->count);
    note_before(&ours, &side);
    meet(fd);
    struct pace set_up = connect_all(&side, options, addresses, options->count, eps);
    meet(fd);
    note_after(&ours, &side);
    rest(SETTLE_MS / 1e3);
    struct adapter_use idle_before = { .requests = 0 };
    struct adapter_use idle_after = { .requests = 0 };
    (void)adapter_read(&idle_before);
    struct traffic traffic = traffic_so_far();
    double begin = now();
    be_idle(fd, options, &ours);
    double idle = now() - begin;
    struct traffic traffic_after = traffic_so_far();
    (void)adapter_read(&idle_after);
    hear(fd, &theirs, sizeof(theirs));
    struct pace end = { .begin = 0 };
    double all_ended = 0;
    if (options->closes) {
        meet(fd);
        end = close_all(eps, options->count);
        (void)close_all(eps + options->count, options->peers);
        struct rdmux_wc wc;
        (void)rdmux_cq_poll(side.cq, &wc, 1); /* frees them */
    }
    meet(fd);
    all_ended = now();
    printf("{\"paths\":\"%s\",\"endpoints\":%u,\"peers\":%u,\"under_way\":%u,\"depth\":%u,"
           "\"liveness_ms\":%u,"
           "\"shared_receives\":%s,\n",
           options->paths, options->count, options->peers, options->under_way, options->depth,
           options->liveness_ms, options->shares ? "true" : "false");
    printf(" \"set_up\":{\"seconds\":%.4f,\"per_second\":%.0f,\"last_tenth_over_first\":%.2f},\n",
           set_up.end - set_up.begin, (double)options->count / (set_up.end - set_up.begin),
           slowdown(&set_up));
    printf(" \"close\":{\"seconds\":%.4f,\"last_tenth_over_first\":%.2f,"
           "\"until_peer_closed_seconds\":%.4f},\n",
           end.end - end.begin, slowdown(&end), options->closes ? all_ended - end.begin : 0);
    printf(" \"idle\":{\"seconds\":%.2f,\"packets_per_second\":%.2f,\"bytes_per_second\":%.0f,"
           "\"processor_share\":%.5f},\n",
           idle, (double)(traffic_after.packets - traffic.packets) / idle,
           (double)(traffic_after.bytes - traffic.bytes) / idle,
           (ours.idle_processor_seconds + theirs.idle_processor_seconds) / idle);
    print_side("connector", &ours, options->count);
    print_side("acceptor", &theirs, options->count);
    print_adapter(&ours, options->count,
                  (double)(idle_after.requests - idle_before.requests) / idle);
    free(eps);
}

/* --------------------------------------------------------------------------------------- options */

static const char usage_text
    [] = "usage: cost [OPTION...] PATHS ENDPOINTS\n"
         "Prints what an endpoint costs as a JSON object.\n"
         "  --plugin FILE     loads this plug-in\n"
         "  --peers N         peers of the connecting side (default: 1)\n"
         "  --under-way N     set-ups at a time (default: 32)\n"
         "  --depth N         of each endpoint's queues (default: 64)\n"
         "  --liveness MS     (default: 10000)\n"
         "  --idle SECONDS    counts idle traffic for this time (default: 10)\n"
         "  --shared          the endpoints of a queue share their receives\n"
         "  --count           counts the library's memory, too, which is then touched as a whole\n"
         "  --keep            does not close the endpoints\n";

static _Noreturn void refuse(void)
{
    fputs(usage_text, stderr);
    exit(2);
}

static double number(const char *text, double least, double most)
{
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= least && value <= most)) {
        fprintf(stderr, "cost: '%s' is no number from %g to %g\n", text, least, most);
        refuse();
    }
    return value;
}

static void take_options(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {
        { "plugin", 1, NULL, 'g' },    { "peers", 1, NULL, 'p' },    { "depth", 1, NULL, 'd' },
        { "under-way", 1, NULL, 'u' }, { "liveness", 1, NULL, 'l' }, { "idle", 1, NULL, 'i' },
        { "shared", 0, NULL, 's' },    { "count", 0, NULL, 'c' },    { "keep", 0, NULL, 'k' },
        { NULL, 0, NULL, 0 },
    };
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) >= 0;) {
        switch (option) {
        case 'g':
            options->plugin = optarg;
            break;
        case 'p':
            options->peers = (uint32_t)number(optarg, 1, PEERS_MAX);
            break;
        case 'u':
            options->under_way = (uint32_t)number(optarg, 1, 1000000);
            break;
        case 'd':
            options->depth = (uint32_t)number(optarg, 1, 65536);
            break;
        case 'l':
            options->liveness_ms = (uint32_t)number(optarg, 100, 3600000);
            break;
        case 'i':
            options->idle_seconds = number(optarg, 0, 3600);
            break;
        case 's':
            options->shares = true;
            break;
        case 'c':
            options->counts_blocks = true;
            break;
        case 'k':
            options->closes = false;
            break;
        default:
            refuse();
        }
    }
    if (optind != argc - 2) {
        refuse();
    }
    options->paths = argv[optind];
    options->count = (uint32_t)number(argv[optind + 1], 1, 1000000);
}

int main(int argc, char **argv)
{
    struct options options = { .peers = 1,
                               .under_way = UNDER_WAY,
                               .depth = 64,
                               .liveness_ms = 10000,
                               .idle_seconds = 10,
                               .closes = true };
    int sockets[2];
    take_options(argc, argv, &options);
    (void)usage_raise_descriptors();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
        give_up("socketpair", strerror(errno));
    }
    pid_t child = fork();
    if (child < 0) {
        give_up("fork", strerror(errno));
    }
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(sockets[0]);
        end_counted(serve(sockets[1], &options));
    }
    close(sockets[1]);
    drive(sockets[0], &options);
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
