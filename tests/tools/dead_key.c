/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tests requests with dead keys. Both ends are in this process.
 *
 *   dead_key PROVIDER ADDRESS [STATUS [AFTER_REVOKE]]   prints TAP
 *
 * First, requests with a key that the peer's device does not know. On iWARP the device reports such
 * a write as done, and the connection ends later; a read posted behind it may never complete. No
 * request with RDMUX_PLACED may be reported as done, and each endpoint has to end.
 *
 * Second, requests with a key that the own device does not know. STATUS: their status, such as
 * RDMUX_IO; devices differ. AFTER_REVOKE: their status if the peer has revoked a key of this end.
 * The library then does not believe a device that would report the same for a connection that has
 * ended (iwarp/iwarp_end.c).
 *
 * Last, keys that this end has guessed: of the connected fabric, and of another one on the same
 * device. The program accesses the library's structs, as no call of the interface makes such a
 * request.
 */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "verbs/verbs_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PATIENT_MS = 120000,
    LIVENESS_MS = 120000,
    END_MS = 60000, /* below the liveness time: the end of the connection ends the endpoint */
    ACCEPT_MS = 20,
    WAIT_MS = 10,
    SIZE = 4096,
    ROUNDS = 5,
    WORK_MAX = 4,
    WRONG_KEY = 0x5a00,
};

static struct scene {
    struct rdmux_fabric *fabrics[2];
    struct rdmux_cq *cqs[2];
    struct rdmux_listener *listener;
    char address[RDMUX_ADDRESS_MAX];
    const char *provider;
    struct rdmux_mr *mr; /* the peer's */
    uint8_t *there;
    pthread_t acceptor;
    atomic_bool stops;
    struct rdmux_ep *ep;
    struct rdmux_remote *good;
    struct rdmux_remote *dead;
} scene;

static unsigned cases;
static unsigned failures;

static void check(bool is_good, const char *name)
{
    failures += is_good ? 0 : 1;
    (void)printf("%s %u - %s: %s\n", is_good ? "ok" : "not ok", ++cases, scene.provider, name);
}

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        (void)printf("Bail out! %s: %s: %s\n", what, rdmux_status_name(status), rdmux_last_error());
        exit(EXIT_FAILURE);
    }
}

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static struct rdmux_ep_attr patient_attr(void)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.liveness_ms = LIVENESS_MS;
    return attr;
}

/* Accepts connections, and closes endpoints that have ended. */
static void *accept_all(void *argument)
{
    (void)argument;
    const struct rdmux_ep_attr attr = patient_attr();
    struct rdmux_ep *ep = NULL;
    while (!atomic_load(&scene.stops)) {
        struct rdmux_wc wc;
        if (ep == NULL &&
            rdmux_accept(scene.listener, scene.cqs[1], &attr, ACCEPT_MS, &ep) != RDMUX_OK) {
            continue;
        }
        if (rdmux_cq_poll(scene.cqs[1], &wc, 1) == 1 && wc.opcode == RDMUX_WC_DISCONNECTED) {
            must(rdmux_ep_close(ep), "closing");
            ep = NULL;
        }
    }
    must(rdmux_ep_close(ep), "closing");
    return NULL;
}

static void open_scene(const char *provider, const char *host)
{
    char wanted[RDMUX_ADDRESS_MAX];
    (void)snprintf(wanted, sizeof(wanted), "%s:0", host);
    scene.provider = provider;
    for (int i = 0; i < 2; i++) {
        must(rdmux_fabric_open(NULL, &scene.fabrics[i]), "a fabric");
        must(rdmux_cq_create(scene.fabrics[i], NULL, &scene.cqs[i]), "a cq");
    }
    must(rdmux_mr_alloc(scene.fabrics[1], SIZE,
                        RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ, &scene.mr),
         "a region");
    scene.there = rdmux_mr_addr(scene.mr);
    must(rdmux_listen(scene.fabrics[1], wanted, NULL, &scene.listener), "listening");
    must(rdmux_listener_address(scene.listener, scene.address, sizeof(scene.address)),
         "an address");
    if (pthread_create(&scene.acceptor, NULL, accept_all, NULL) != 0) {
        must(RDMUX_NO_MEMORY, "a thread");
    }
}

static void close_scene(void)
{
    atomic_store(&scene.stops, true);
    (void)pthread_join(scene.acceptor, NULL);
    rdmux_listener_close(scene.listener);
    rdmux_mr_deregister(scene.mr);
    for (int i = 0; i < 2; i++) {
        must(rdmux_cq_destroy(scene.cqs[i]), "the cq's end");
        must(rdmux_fabric_close(scene.fabrics[i]), "the fabric's end");
    }
}

/* An endpoint with two imports of the region. The key of one of them is unknown to all devices. */
static void connect_again(void)
{
    struct rdmux_ep_attr attr = patient_attr();
    struct rdmux_token token;
    attr.paths = scene.provider;
    memset(scene.there, 0, SIZE);
    must(rdmux_connect(scene.fabrics[0], scene.cqs[0], scene.address, &attr, PATIENT_MS, &scene.ep),
         "connecting");
    must(rdmux_mr_export(scene.mr, &token), "a token");
    must(rdmux_remote_import(scene.ep, &token, PATIENT_MS, &scene.good), "an import");
    must(rdmux_remote_import(scene.ep, &token, PATIENT_MS, &scene.dead), "an import");
    struct verbs_remote *remote = (struct verbs_remote *)scene.dead->path;
    remote->region.rkey ^= WRONG_KEY;
}

/* The results of requests 0 to WORK_MAX - 1, by their context. */
struct outcome {
    enum rdmux_status statuses[WORK_MAX];
    unsigned told; /* bit n: request n has completed */
    bool has_ended;
    enum rdmux_status end;
};

static void *context_of(uintptr_t number)
{
    return (void *)number;
}

/* Takes entries until the endpoint has ended, or `until` (a bit of `told`) has completed. */
static void take(struct outcome *outcome, unsigned until)
{
    uint64_t until_ms = now_ms() + END_MS;
    while (!outcome->has_ended && (until == 0 || (outcome->told & until) == 0) &&
           now_ms() < until_ms) {
        struct rdmux_wc wc;
        size_t count = 0;
        if (rdmux_cq_wait(scene.cqs[0], &wc, 1, WAIT_MS, &count) != RDMUX_OK || count == 0) {
            continue;
        }
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            outcome->has_ended = true;
            outcome->end = (enum rdmux_status)wc.status;
        } else if ((uintptr_t)wc.context < WORK_MAX) {
            outcome->statuses[(uintptr_t)wc.context] = (enum rdmux_status)wc.status;
            outcome->told |= 1U << (uintptr_t)wc.context;
        }
    }
}

static bool was_ok(const struct outcome *outcome, unsigned number)
{
    return (outcome->told >> number & 1) == 0 || outcome->statuses[number] == RDMUX_OK;
}

static enum rdmux_status write_to(struct rdmux_remote *remote, size_t length, uintptr_t number,
                                  uint32_t flags)
{
    static uint8_t bytes[SIZE];
    memset(bytes, 0xdd, sizeof(bytes));
    return rdmux_write(scene.ep, length == 0 ? NULL : bytes, length, NULL, remote, 0,
                       context_of(number), flags);
}

static bool nothing_was_written(void)
{
    for (size_t i = 0; i < SIZE; i++) {
        if (scene.there[i] != 0) {
            return false;
        }
    }
    return true;
}

static void disconnect(void)
{
    must(rdmux_ep_close(scene.ep), "closing");
}

/* ---------------------------------------------------------------------------------------- cases */

static void a_placed_write_is_never_done(void)
{
    bool is_good = true;
    for (int round = 0; round < ROUNDS; round++) {
        struct outcome outcome = { .told = 0 };
        connect_again();
        must(write_to(scene.dead, round % 2 == 0 ? 8 : SIZE, 0, RDMUX_PLACED), "a write");
        take(&outcome, 0);
        is_good = is_good && !was_ok(&outcome, 0) && outcome.has_ended && nothing_was_written();
        disconnect();
    }
    check(is_good, "a write with PLACED to a dead key is never done, and the endpoint ends");
}

/* The completion of a write before the bad one means that its bytes are free. A write behind the
 * bad one is not done, whatever its own key. */
static void those_around_it_keep_their_word(void)
{
    bool is_good = true;
    for (int round = 0; round < ROUNDS; round++) {
        struct outcome outcome = { .told = 0 };
        connect_again();
        must(write_to(scene.good, 8, 0, RDMUX_MORE), "a write");
        must(write_to(scene.dead, 8, 1, RDMUX_MORE), "a write");
        must(write_to(scene.good, 8, 2, RDMUX_PLACED | RDMUX_MORE), "a write");
        must(write_to(scene.good, 8, 3, RDMUX_PLACED), "a write");
        take(&outcome, 0);
        bool all_told = outcome.told == 15;
        is_good = is_good && all_told && outcome.has_ended && !was_ok(&outcome, 2) &&
                  !was_ok(&outcome, 3);
        disconnect();
    }
    check(is_good, "writes with PLACED behind a write to a dead key are never done");
}

/* The device may report the write as done before the connection ends. The flush is then posted to a
 * connection that has ended without an event yet. The test pauses between the two for three lengths
 * of time and waits for no event, as none reports these states: the device has refused the write
 * and not ended the connection yet, or has ended it and the library does not know. The flush must
 * work in each of them. */
static void a_flush_ends_with_the_connection(void)
{
    static const struct timespec pauses[] = { { 0, 0 }, { 0, 1000000 }, { 0, 50000000 } };
    bool is_good = true;
    for (int round = 0; round < ROUNDS; round++) {
        struct outcome outcome = { .told = 0 };
        connect_again();
        must(write_to(scene.dead, 8, 0, 0), "a write");
        take(&outcome, 1);
        (void)nanosleep(&pauses[(size_t)round % (sizeof(pauses) / sizeof(pauses[0]))], NULL);
        uint64_t from_ms = now_ms();
        enum rdmux_status status = write_to(NULL, 0, 1, RDMUX_PLACED);
        take(&outcome, 0);
        bool is_told = status != RDMUX_OK || !was_ok(&outcome, 1);
        is_good = is_good && is_told && outcome.has_ended && now_ms() - from_ms < END_MS;
        disconnect();
    }
    check(is_good, "a flush behind a write to a dead key is never done, and ends");
}

static void a_read_fails(void)
{
    uint8_t bytes[SIZE];
    struct outcome outcome = { .told = 0 };
    connect_again();
    must(rdmux_read(scene.ep, bytes, sizeof(bytes), NULL, scene.dead, 0, context_of(0), 0),
         "a read");
    take(&outcome, 0);
    check(!was_ok(&outcome, 0) && outcome.has_ended, "a read by a dead key is never done");
    disconnect();
}

/* Soft RoCE flushes the requests without a cause, others report it: so either is right,
 * unless the caller knows. */
static bool is_cause(enum rdmux_status status, const char *wanted)
{
    return wanted != NULL ? strcmp(rdmux_status_name(status), wanted) == 0
                          : status == RDMUX_IO || status == RDMUX_PEER_GONE;
}

/* The peer lends this end another region, and takes it back. */
static void let_peer_revoke(void)
{
    struct rdmux_mr *lent = NULL;
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    must(rdmux_mr_alloc(scene.fabrics[1], SIZE, RDMUX_ACCESS_REMOTE_WRITE, &lent), "a region");
    must(rdmux_mr_export(lent, &token), "a token");
    must(rdmux_remote_import(scene.ep, &token, PATIENT_MS, &remote), "an import");
    must(rdmux_mr_revoke(lent), "taking it back");
    rdmux_mr_deregister(lent);
}

/* Rule 7.2: the request has the cause or FLUSHED, the end the cause. */
static bool is_ended_by_a_local_key(const char *wanted, bool peer_revokes)
{
    bool is_good = true;
    for (int round = 0; round < 2; round++) {
        struct outcome outcome = { .told = 0 };
        struct rdmux_mr *ours = NULL;
        connect_again();
        must(rdmux_mr_alloc(scene.fabrics[0], SIZE,
                            RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK, &ours),
             "a region");
        const struct rdmux_provider_mr *registration = ours->registrations[0].mr;
        struct ibv_mr *local = ((const struct verbs_mr *)registration)->local;
        local->lkey ^= WRONG_KEY;
        if (peer_revokes) {
            let_peer_revoke();
        }
        void *bytes = rdmux_mr_addr(ours);
        /* long enough for no device to take them inline */
        enum rdmux_status posted = round == 0 ? rdmux_write(scene.ep, bytes, SIZE, ours, scene.good,
                                                            0, context_of(0), RDMUX_PLACED)
                                              : rdmux_read(scene.ep, bytes, SIZE, ours, scene.good,
                                                           0, context_of(0), 0);
        must(posted, "a request");
        take(&outcome, 0);
        enum rdmux_status status = outcome.statuses[0];
        bool is_right = outcome.told == 1 && outcome.has_ended &&
                        (status == RDMUX_FLUSHED || status == RDMUX_OUTCOME_UNKNOWN ||
                         status == outcome.end) &&
                        is_cause(outcome.end, wanted) && nothing_was_written();
        if (!is_right) {
            (void)printf("# a %s: %s, end: %s\n", round == 0 ? "write" : "read",
                         rdmux_status_name(status), rdmux_status_name(outcome.end));
        }
        is_good = is_good && is_right;
        disconnect();
        local->lkey ^= WRONG_KEY;
        rdmux_mr_deregister(ours);
    }
    return is_good;
}

/* --------------------------------------------------------------------------------- guessed keys */

/* The region's registration with the device of this fabric. */
static const struct verbs_mr *registration_of(const struct rdmux_mr *mr)
{
    for (size_t i = 0; i < mr->registration_count; i++) {
        const struct rdmux_provider_mr *registration = mr->registrations[i].mr;
        if (strcmp(registration->domain->ops->name, scene.provider) == 0) {
            return (const struct verbs_mr *)registration;
        }
    }
    must(RDMUX_UNSUPPORTED, "a registration with the device");
    return NULL;
}

/* Gives the import `dead` the key and the address of this region, as if it had guessed them. */
static void guess(const struct rdmux_mr *mr)
{
    const struct verbs_mr *registration = registration_of(mr);
    struct verbs_remote *remote = (struct verbs_remote *)scene.dead->path;
    remote->region.rkey = registration->remote->rkey;
    remote->region.addr = registration->iova;
}

static struct rdmux_mr *lend(struct rdmux_fabric *fabric)
{
    struct rdmux_mr *mr = NULL;
    must(rdmux_mr_alloc(fabric, SIZE, RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ, &mr),
         "a region");
    return mr;
}

/* Without this the next case shows nothing. docs/SECURITY.md states it. */
static void a_guess_is_good_within_a_fabric(void)
{
    struct outcome outcome = { .told = 0 };
    struct rdmux_mr *mr = lend(scene.fabrics[1]);
    connect_again();
    guess(mr);
    must(write_to(scene.dead, 8, 0, RDMUX_PLACED), "a write");
    take(&outcome, 1);
    const uint8_t *bytes = rdmux_mr_addr(mr);
    check(outcome.told == 1 && was_ok(&outcome, 0) && bytes[0] == 0xdd && bytes[7] == 0xdd,
          "a key that was guessed is good for a region of the same fabric");
    disconnect();
    rdmux_mr_deregister(mr);
}

/* Another trust group on the same device. It has a connection, so that its regions have keys
 * there. */
static void a_guess_is_no_good_for_another_fabric(void)
{
    struct rdmux_fabric *fabric = NULL;
    struct rdmux_cq *cq = NULL;
    struct rdmux_ep *ep = NULL;
    struct rdmux_ep_attr attr = patient_attr();
    bool is_good = true;
    attr.paths = scene.provider;
    must(rdmux_fabric_open(NULL, &fabric), "a fabric");
    must(rdmux_cq_create(fabric, NULL, &cq), "a cq");
    struct rdmux_mr *mr = lend(fabric);
    uint8_t *there = rdmux_mr_addr(mr);
    must(rdmux_connect(fabric, cq, scene.address, &attr, PATIENT_MS, &ep), "connecting");
    must(rdmux_ep_close(ep), "closing");
    for (int round = 0; round < 2; round++) {
        struct outcome outcome = { .told = 0 };
        static uint8_t bytes[SIZE];
        memset(bytes, 0, sizeof(bytes));
        memset(there, round == 0 ? 0 : 0x77, SIZE);
        connect_again();
        guess(mr);
        must(round == 0 ? write_to(scene.dead, 8, 0, RDMUX_PLACED)
                        : rdmux_read(scene.ep, bytes, SIZE, NULL, scene.dead, 0, context_of(0), 0),
             "a request");
        take(&outcome, 0);
        is_good = is_good && outcome.told == 1 && !was_ok(&outcome, 0) && outcome.has_ended &&
                  there[0] == (round == 0 ? 0 : 0x77) && bytes[0] == 0 && bytes[SIZE - 1] == 0;
        disconnect();
    }
    check(is_good, "a key that was guessed is no good for a region of another fabric");
    rdmux_mr_deregister(mr);
    must(rdmux_cq_destroy(cq), "the cq's end");
    must(rdmux_fabric_close(fabric), "the fabric's end");
}

/* Exports this right only, and requests the other one from the device, by an import that claims to
 * have both. */
static bool is_held_to(uint32_t right)
{
    struct outcome outcome = { .told = 0 };
    static uint8_t bytes[SIZE];
    struct rdmux_mr *mr = NULL;
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    memset(bytes, 0, sizeof(bytes));
    must(rdmux_mr_alloc(scene.fabrics[1], SIZE, right, &mr), "a region");
    memset(rdmux_mr_addr(mr), 0x77, SIZE);
    connect_again();
    must(rdmux_mr_export(mr, &token), "a token");
    must(rdmux_remote_import(scene.ep, &token, PATIENT_MS, &remote), "an import");
    remote->access = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE;
    must(right == RDMUX_ACCESS_REMOTE_READ
             ? write_to(remote, 8, 0, RDMUX_PLACED)
             : rdmux_read(scene.ep, bytes, SIZE, NULL, remote, 0, context_of(0), 0),
         "a request");
    take(&outcome, 0);
    const uint8_t *there = rdmux_mr_addr(mr);
    bool is_good = outcome.told == 1 && !was_ok(&outcome, 0) && outcome.has_ended &&
                   there[0] == 0x77 && bytes[0] == 0 && bytes[SIZE - 1] == 0;
    disconnect();
    rdmux_mr_deregister(mr);
    return is_good;
}

/* Soft iWARP does not check whether a region may be read (siw_check_sgl_tx() in the kernel's
 * siw_qp_tx.c, Linux 6.12); docs/SECURITY.md states it. */
static bool looks_before_it_answers(void)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    connect_again();
    must(rdmux_ep_info(scene.ep, &info), "the endpoint's device");
    disconnect();
    return strncmp(info.device, "siw", 3) != 0;
}

static void a_key_grants_what_was_exported(void)
{
    check(is_held_to(RDMUX_ACCESS_REMOTE_READ), "a region that may be read is not written");
    if (looks_before_it_answers()) {
        check(is_held_to(RDMUX_ACCESS_REMOTE_WRITE), "a region that may be written is not read");
    } else {
        (void)printf(
            "ok %u - %s: a region that may be written is not read # SKIP soft iWARP does not "
            "look\n",
            ++cases, scene.provider);
    }
}

int main(int count, char **arguments)
{
    if (count < 3 || count > 5) {
        (void)fprintf(stderr, "usage: dead_key PROVIDER ADDRESS [STATUS [AFTER_REVOKE]]\n");
        return EXIT_FAILURE;
    }
    open_scene(arguments[1], arguments[2]);
    a_placed_write_is_never_done();
    those_around_it_keep_their_word();
    a_flush_ends_with_the_connection();
    a_read_fails();
    check(is_ended_by_a_local_key(count > 3 ? arguments[3] : NULL, false),
          "a request by a wrong local key fails and ends the endpoint");
    if (count > 4) {
        check(
            is_ended_by_a_local_key(arguments[4], true),
            "where the peer has taken a key back, its word counts, or the device's if it is plain");
    }
    a_key_grants_what_was_exported();
    a_guess_is_good_within_a_fabric();
    a_guess_is_no_good_for_another_fabric();
    close_scene();
    (void)printf("1..%u\n", cases);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
