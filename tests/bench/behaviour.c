/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Effects of the library that an application does not measure: fairness, wake-ups.
 *
 *   behaviour PATHS fairness SIZE SECONDS   p99 of half an 8-byte round trip in us while the other
 *                                           side floods another endpoint of the same queue with
 *                                           messages of SIZE bytes
 *   behaviour PATHS alone 8 SECONDS         the same p99 without a flood
 *   behaviour PATHS polling 8 SECONDS       wake-ups a second of the library's threads while the
 *                                           application plays ping-pong and polls
 *   behaviour PATHS empty 8 SECONDS         the same while it polls and nothing arrives
 *   behaviour PATHS idle 8 SECONDS          the same while it is away and nothing arrives; without
 *                                           a liveness time, as heartbeats are intended wake-ups
 *
 * A wake-up is a voluntary context switch of a thread of the library: before each the thread had
 * gone to sleep. The program prints the larger number of both processes.
 */
#include "bench.h"

#include "tools/stats.h"

#include <rdmux/rdmux.h>

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RECEIVES = 64,
    COMPLETIONS = 16,
    FLOOD_WINDOW = 32,
    PING_SIZE = 8,
    FLOOD_SIZE_MIN = 16,   /* the first half of the buffer has room for a ping each way */
    SETTLE_NS = 200000000, /* silence before the absence of an application is measured */
};

struct side {
    struct bench *bench;
    struct rdmux_cq *cq;
    struct rdmux_ep *ping;
    struct rdmux_ep *flood;
    struct rdmux_mr *mr;
    uint8_t *buffer; /* pings, then the messages of the flood */
    size_t size;
    uint64_t pings;   /* received */
    uint64_t flooded; /* sent, and done */
    uint64_t under_way;
    bool floods;
    bool over;
};

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        bench_fail("%s: %s", what, rdmux_last_error());
    }
}

static void post_receive(struct side *side, struct rdmux_ep *ep)
{
    bool ping = ep == side->ping;
    must(rdmux_recv(ep, side->buffer + (ping ? PING_SIZE : side->size),
                    ping ? PING_SIZE : side->size, side->mr, NULL),
         "rdmux_recv");
}

static void take(struct side *side)
{
    struct rdmux_wc wc[COMPLETIONS];
    size_t count = rdmux_cq_poll(side->cq, wc, COMPLETIONS);
    for (size_t i = 0; i < count; i++) {
        if (wc[i].status != RDMUX_OK || wc[i].opcode == RDMUX_WC_DISCONNECTED) {
            bench_fail("%s: %s", rdmux_wc_opcode_name(wc[i].opcode),
                       rdmux_status_name((enum rdmux_status)wc[i].status));
        }
        if (wc[i].opcode == RDMUX_WC_SEND) {
            side->under_way--;
            side->flooded++;
        } else if (wc[i].opcode == RDMUX_WC_RECV) {
            if (wc[i].ep == side->ping) {
                side->pings++;
                side->over = side->buffer[PING_SIZE] != 0;
            }
            post_receive(side, wc[i].ep);
        }
    }
}

static void keep_flooding(struct side *side)
{
    while (side->floods && side->under_way < FLOOD_WINDOW) {
        enum rdmux_status status = rdmux_send(side->flood, side->buffer + side->size, side->size,
                                              side->mr, NULL, 0);
        if (status == RDMUX_AGAIN) {
            return;
        }
        must(status, "rdmux_send");
        side->under_way++;
    }
}

static void send_ping(struct side *side, bool last)
{
    side->buffer[0] = last;
    enum rdmux_status status;
    while ((status = rdmux_send(side->ping, side->buffer, PING_SIZE, NULL, NULL,
                                RDMUX_INLINE | RDMUX_UNSIGNALED)) == RDMUX_AGAIN) {
        take(side);
    }
    must(status, "rdmux_send");
}

static void ping(struct side *side, bool last)
{
    uint64_t number = side->pings + 1;
    send_ping(side, last);
    while (side->pings != number) {
        take(side);
    }
}

/* Answers pings until the last one. A flood goes on meanwhile, and ends before the last ping. */
static void serve(struct side *side)
{
    uint64_t answered = 0;
    while (!side->over) {
        keep_flooding(side);
        take(side);
        if (side->pings != answered && !side->over) {
            answered++;
            send_ping(side, false);
        }
    }
    while (side->under_way > 0) {
        take(side);
    }
    send_ping(side, true);
}

static double p99_us(struct side *side)
{
    struct stats *stats = malloc(sizeof(*stats));
    if (stats == NULL) {
        bench_fail("out of memory");
    }
    stats_begin(stats);
    bench_start(side->bench);
    uint64_t before_ns = timer_clock_ns();
    while (!bench_is_over(side->bench)) {
        ping(side, false);
        uint64_t now_ns = timer_clock_ns();
        stats_add(stats, now_ns - before_ns);
        before_ns = now_ns;
    }
    bench_stop(side->bench);
    ping(side, true);
    double result = stats_quantile(stats, 0.99) / 2e3;
    free(stats);
    return result;
}

/* ------------------------------------------------------------------------------------- wake-ups */

static uint64_t switches_of(const char *thread)
{
    char path[64];
    char line[256];
    unsigned long long switches = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", thread);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "voluntary_ctxt_switches: %llu", &switches) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return switches;
}

/* Counts the wake-ups of all threads but this one. */
static uint64_t wake_ups(void)
{
    char self[24];
    snprintf(self, sizeof(self), "%d", (int)getpid());
    DIR *threads = opendir("/proc/self/task");
    if (threads == NULL) {
        bench_fail("cannot list the threads in /proc/self/task");
    }
    uint64_t sum = 0;
    const struct dirent *entry;
    while ((entry = readdir(threads)) != NULL) {
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, self) != 0) {
            sum += switches_of(entry->d_name);
        }
    }
    closedir(threads);
    return sum;
}

static void play(struct side *side, const char *how)
{
    if (strcmp(how, "polling") == 0) {
        while (side->bench->side == 0 && !bench_is_over(side->bench)) {
            ping(side, false);
        }
        if (side->bench->side == 0) {
            ping(side, true);
        } else {
            serve(side);
        }
    } else if (strcmp(how, "empty") == 0) {
        while (!bench_is_over(side->bench)) {
            take(side);
        }
    } else { /* measures an application that is away: time passes without a call */
        struct timespec time = { .tv_sec = (time_t)side->bench->seconds };
        time.tv_nsec = (long)((side->bench->seconds - (double)time.tv_sec) * 1e9);
        nanosleep(&time, NULL);
    }
}

static double wake_ups_per_second(struct side *side, const char *how)
{
    if (strcmp(how, "idle") == 0) {
        /* Nothing waits for this: what is measured are applications that have been away for a
         * while, and the library notices that within 10 ms (10.3). A longer time would measure the
         * same. */
        nanosleep(&(struct timespec){ .tv_nsec = SETTLE_NS }, NULL);
    }
    bench_meet(side->bench);
    uint64_t before = wake_ups();
    bench_start(side->bench);
    play(side, how);
    bench_stop(side->bench);
    /* What lies between them counts: the first one may come at once, so that 26 fit into 250 ms at
     * 10 ms each. */
    uint64_t count = wake_ups() - before;
    double mine = count == 0 ? 0 : (double)(count - 1) / side->bench->elapsed;
    double theirs = 0;
    bench_exchange(side->bench, &mine, &theirs, sizeof(mine));
    return mine > theirs ? mine : theirs;
}

/* --------------------------------------------------------------------------------------- set-up */

static void open_side(struct side *side, const char *paths, bool idle)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.paths = paths;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT;
    struct rdmux_ep_attr ep_attr = RDMUX_EP_ATTR_INIT;
    ep_attr.liveness_ms = idle ? RDMUX_NEVER : ep_attr.liveness_ms;
    struct rdmux_fabric *fabric = NULL;
    struct rdmux_listener *listener = NULL;
    char mine[RDMUX_ADDRESS_MAX] = "";
    char address[RDMUX_ADDRESS_MAX];
    must(rdmux_fabric_open(&attr, &fabric), "rdmux_fabric_open");
    must(rdmux_cq_create(fabric, NULL, &side->cq), "rdmux_cq_create");
    side->buffer = bench_buffer(2 * side->size);
    memset(side->buffer, 0, 2 * side->size);
    must(rdmux_mr_register(fabric, side->buffer, 2 * side->size, RDMUX_ACCESS_LOCAL_WRITE,
                           &side->mr),
         "rdmux_mr_register");
    if (side->bench->side == 1) {
        must(rdmux_listen(fabric, "127.0.0.1:0", NULL, &listener), "rdmux_listen");
        must(rdmux_listener_address(listener, mine, sizeof(mine)), "rdmux_listener_address");
    }
    bench_exchange(side->bench, mine, address, sizeof(mine));
    struct rdmux_ep **eps[] = { &side->ping, &side->flood };
    for (size_t i = 0; i < 2; i++) {
        if (side->bench->side == 1) {
            must(rdmux_accept(listener, side->cq, &ep_attr, -1, eps[i]), "rdmux_accept");
        } else {
            must(rdmux_connect(fabric, side->cq, address, &ep_attr, 5000, eps[i]), "rdmux_connect");
        }
        for (int j = 0; j < RECEIVES; j++) {
            post_receive(side, *eps[i]);
        }
        bench_meet(side->bench);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        bench_fail("usage: behaviour PATHS fairness|alone|polling|empty|idle SIZE SECONDS");
    }
    struct bench bench;
    const char *what = argv[2];
    size_t size = bench_size(argv[3]);
    bench_fork(&bench, strtod(argv[4], NULL), 0);
    struct side side = { .bench = &bench, .size = size < FLOOD_SIZE_MIN ? FLOOD_SIZE_MIN : size };
    open_side(&side, argv[1], strcmp(what, "idle") == 0);
    double value = 0;
    if (strcmp(what, "fairness") == 0 || strcmp(what, "alone") == 0) {
        side.floods = bench.side == 1 && what[0] == 'f';
        if (bench.side == 0) {
            value = p99_us(&side);
        } else {
            bench_start(&bench);
            serve(&side);
        }
    } else if (strcmp(what, "polling") == 0 || strcmp(what, "empty") == 0 ||
               strcmp(what, "idle") == 0) {
        value = wake_ups_per_second(&side, what);
    } else {
        bench_fail("there is no '%s'", what);
    }
    bench_meet(&bench);
    bench_finish(&bench, value, side.pings);
    return 0;
}
