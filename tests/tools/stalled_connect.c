/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * An endpoint connects over a path whose address drops all packets, while another endpoint of the
 * same cq has work. The other one must go on, the attempt must end when its time is over, and close
 * must not wait for the peer. Usage: stalled_connect PROVIDER ADDRESS [END_MS], where this program
 * listens at ADDRESS, which tcp reaches. The caller ensures that the address of PROVIDER drops
 * packets. END_MS: limit for the end of cq and fabric, if the kernel keeps objects. Prints TAP.
 *
 * The limits are of time in which the machine lets this process run: see moment_now().
 */
#include "tests/run_delay.h"
#include "tests/tools/acceptor.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    PATIENT_MS = 120000,
    PATH_MS = 3000,  /* the attempt's time */
    STALL_MS = 1000, /* an attempt that ends earlier did not stall */
    HALF_WAY_MS = 700,
    GAP_MAX_MS = 500,
    END_MAX_MS = 1000,
    ACCEPT_MS = 50,
    NAP_MS = 20,
};

/* A moment, and the time that was lost until then. */
struct moment {
    uint64_t at_ms;
    uint64_t lost_ms;
};

struct scene {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_ep *ep; /* the one with work */
    struct rdmux_remote *remote;
    uint64_t word;
    struct moment last;  /* when a write completed */
    uint64_t longest_ms; /* between two */
    uint64_t writes;
    bool is_writing;
};

struct other {
    struct acceptor acceptor;
    struct rdmux_mr *mr;
    struct rdmux_ep *ep;
};

static unsigned cases;
static unsigned failures;

static void check(bool is_good, const char *name)
{
    failures += is_good ? 0 : 1;
    (void)printf("%s %u - %s\n", is_good ? "ok" : "not ok", ++cases, name);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ------------------------------------------------------------------------------ a busy machine */

static _Atomic uint64_t naps;
static uint64_t naps_began_ms;

/* Measures how late the machine wakes a thread. */
static void *nap(void *none)
{
    const struct timespec length = { .tv_nsec = NAP_MS * 1000000L };
    for (;;) {
        (void)nanosleep(&length, NULL);
        (void)atomic_fetch_add(&naps, 1);
    }
    return none;
}

static void watch_machine(void)
{
    pthread_t thread;
    naps_began_ms = now_ms();
    if (pthread_create(&thread, NULL, nap, NULL) != 0 || pthread_detach(thread) != 0) {
        must(RDMUX_NO_MEMORY, "a thread");
    }
}

/* What counts is the difference of two: in it the naps are up to one nap more or less than there
 * should have been. */
static struct moment moment_now(void)
{
    struct moment now = { .lost_ms = run_delay_ns(getpid(), 0) / 1000000 };
    now.at_ms = now_ms();
    uint64_t slept_ms = atomic_load(&naps) * NAP_MS;
    uint64_t passed_ms = now.at_ms - naps_began_ms;
    now.lost_ms += passed_ms > slept_ms ? passed_ms - slept_ms : 0;
    return now;
}

/* Returns the time since then, without what was lost of it. */
static uint64_t own_ms_since(const struct moment *then)
{
    struct moment now = moment_now();
    uint64_t passed_ms = now.at_ms - then->at_ms;
    /* less only by threads that have ended */
    uint64_t lost_ms = now.lost_ms > then->lost_ms ? now.lost_ms - then->lost_ms : 0;
    return passed_ms > lost_ms ? passed_ms - lost_ms : 0;
}

/* ------------------------------------------------------------------------------- the other side */

static void *accept_all(void *argument)
{
    struct other *other = argument;
    while (!atomic_load(&other->acceptor.stops)) {
        struct rdmux_ep *ep = NULL;
        enum rdmux_status status = rdmux_accept(other->acceptor.listener, other->acceptor.cq, NULL,
                                                ACCEPT_MS, &ep);
        if (status == RDMUX_OK) {
            other->ep = ep;
        }
    }
    return NULL;
}

static void start_other(struct other *other, const char *host, char *address)
{
    acceptor_open(&other->acceptor, NULL, host, address);
    must(rdmux_mr_alloc(other->acceptor.fabric, sizeof(uint64_t), RDMUX_ACCESS_REMOTE_WRITE,
                        &other->mr),
         "a region");
    acceptor_start(&other->acceptor, accept_all, other);
}

static void stop_other(struct other *other)
{
    acceptor_stop(&other->acceptor);
    must(rdmux_ep_close(other->ep), "closing");
    rdmux_mr_deregister(other->mr);
    acceptor_close(&other->acceptor);
}

/* ------------------------------------------------------------------------------------- our side */

static void connect_busy(struct scene *scene, const char *address, struct rdmux_mr *target)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_token token;
    attr.paths = "tcp";
    must(rdmux_fabric_open(NULL, &scene->fabric), "a fabric");
    must(rdmux_cq_create(scene->fabric, NULL, &scene->cq), "a cq");
    must(rdmux_connect(scene->fabric, scene->cq, address, &attr, PATIENT_MS, &scene->ep),
         "connecting over tcp");
    must(rdmux_mr_export(target, &token), "a token");
    must(rdmux_remote_import(scene->ep, &token, PATIENT_MS, &scene->remote), "its import");
}

static void note_write(struct scene *scene)
{
    uint64_t gap_ms = scene->writes == 0 ? 0 : own_ms_since(&scene->last);
    scene->longest_ms = gap_ms > scene->longest_ms ? gap_ms : scene->longest_ms;
    scene->last = moment_now();
    scene->writes++;
    scene->is_writing = false;
}

/* Writes one word after the other until the set-up of `stalled`, which may be NULL, has ended, or
 * the time is over. Returns the result of the set-up. */
static enum rdmux_status write_on(struct scene *scene, const struct rdmux_ep *stalled,
                                  uint64_t time_ms)
{
    uint64_t until_ms = now_ms() + time_ms;
    while (now_ms() < until_ms) {
        struct rdmux_wc wc;
        if (!scene->is_writing) {
            must(rdmux_write(scene->ep, &scene->word, sizeof(scene->word), NULL, scene->remote, 0,
                             NULL, RDMUX_PLACED),
                 "a write");
            scene->is_writing = true;
        }
        if (rdmux_cq_poll(scene->cq, &wc, 1) == 0) {
            continue;
        }
        if (wc.ep == scene->ep) {
            must((enum rdmux_status)wc.status, "a completion");
            note_write(scene);
        } else if (wc.ep == stalled && wc.opcode == RDMUX_WC_CONNECTED) {
            return (enum rdmux_status)wc.status;
        }
    }
    return RDMUX_IN_PROGRESS;
}

static struct rdmux_ep *begin(struct scene *scene, const char *provider, const char *address)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep *ep = NULL;
    attr.paths = provider;
    attr.path_timeout_ms = PATH_MS;
    attr.setup_timeout_ms = PATIENT_MS;
    struct moment from = moment_now();
    enum rdmux_status status = rdmux_connect(scene->fabric, scene->cq, address, &attr, 0, &ep);
    if (status != RDMUX_IN_PROGRESS) {
        must(status == RDMUX_OK ? RDMUX_INVALID : status, "connecting");
    }
    check(own_ms_since(&from) < GAP_MAX_MS, "connect returns at once");
    return ep;
}

static void end(struct rdmux_ep *ep, const char *name)
{
    struct moment from = moment_now();
    must(rdmux_ep_close(ep), "closing");
    uint64_t took_ms = own_ms_since(&from);
    (void)printf("# close took %llu ms\n", (unsigned long long)took_ms);
    check(took_ms < GAP_MAX_MS, name);
}

static void check_gaps(struct scene *scene, const char *name)
{
    (void)printf("# %llu writes, the longest gap is %llu ms\n", (unsigned long long)scene->writes,
                 (unsigned long long)scene->longest_ms);
    check(scene->writes > 0 && scene->longest_ms < GAP_MAX_MS, name);
    scene->longest_ms = 0;
    scene->writes = 0;
}

int main(int count, char **arguments)
{
    static struct other other;
    static struct scene scene;
    char address[RDMUX_ADDRESS_MAX];
    if (count != 3 && count != 4) {
        (void)fprintf(stderr, "usage: stalled_connect PROVIDER ADDRESS [END_MS]\n");
        return EXIT_FAILURE;
    }
    watch_machine();
    const uint64_t end_max_ms = count == 4 ? strtoull(arguments[3], NULL, 10) : END_MAX_MS;
    start_other(&other, arguments[2], address);
    connect_busy(&scene, address, other.mr);

    struct rdmux_ep *stalled = begin(&scene, arguments[1], address);
    struct moment from = moment_now();
    enum rdmux_status status = write_on(&scene, stalled, PATIENT_MS);
    uint64_t own_ms = own_ms_since(&from);
    uint64_t took_ms = now_ms() - from.at_ms;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    must(rdmux_ep_info(stalled, &info), "its end");
    (void)printf("# after %llu ms: %s: %s\n", (unsigned long long)took_ms,
                 rdmux_status_name(status), info.text);
    check(status == RDMUX_NO_PATH, "the attempt ends without a path");
    check(took_ms >= STALL_MS, "it did stall before");
    check(own_ms < PATH_MS + 2 * GAP_MAX_MS, "it ends when its time is over");
    check_gaps(&scene, "the other endpoint goes on meanwhile");
    end(stalled, "closing it afterwards does not wait");

    stalled = begin(&scene, arguments[1], address);
    status = write_on(&scene, stalled, HALF_WAY_MS);
    check(status == RDMUX_IN_PROGRESS, "another one stalls");
    end(stalled, "closing one that stalls does not wait");
    (void)write_on(&scene, NULL, HALF_WAY_MS);
    check_gaps(&scene, "the other endpoint goes on all the time");

    must(rdmux_ep_close(scene.ep), "closing");
    from = moment_now();
    must(rdmux_cq_destroy(scene.cq), "the cq's end");
    must(rdmux_fabric_close(scene.fabric), "the fabric's end");
    took_ms = own_ms_since(&from);
    (void)printf("# the fabric's end took %llu ms\n", (unsigned long long)took_ms);
    check(took_ms < end_max_ms, "the fabric ends without waiting");
    stop_other(&other);
    (void)printf("1..%u\n", cases);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
