/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * An endpoint has unsignaled writes under way, so no completion reports their end. Another endpoint
 * of the same cq makes every poll find an entry. Still a revocation of the written region must be
 * answered. Usage: busy_neighbour PROVIDER ADDRESS, where this program listens at ADDRESS and the
 * device carries out posted requests at once. Prints TAP.
 */
#include "tests/tools/acceptor.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATIENT_MS = 120000,
    ACCEPT_MS = 50,
    SIZE = 4096,
    EPS = 2,
    IDLE_MAX = 63, /* polls in a row after which the library takes the cq to be at rest */
};

struct other {
    struct acceptor acceptor;
    struct rdmux_ep *eps[EPS];
    atomic_bool is_revoked;
    atomic_uint warnings; /* about the revocation */
    struct rdmux_mr *quiet;
    struct rdmux_mr *busy;
};

struct scene {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_ep *quiet;
    struct rdmux_ep *busy;
    struct rdmux_remote *to_quiet;
    struct rdmux_remote *to_busy;
    char bytes[SIZE];
};

/* ------------------------------------------------------------------------------- the other side */

static void hear(void *user, enum rdmux_log_level level, const char *line)
{
    struct other *other = user;
    (void)level;
    if (strstr(line, "did not answer the revocation") != NULL) {
        atomic_fetch_add(&other->warnings, 1);
    }
    (void)printf("# %s\n", line);
}

static void *accept_all(void *argument)
{
    struct other *other = argument;
    struct acceptor *acceptor = &other->acceptor;
    size_t count = 0;
    while (!atomic_load(&acceptor->stops)) {
        struct rdmux_wc wc;
        struct rdmux_ep *ep = NULL;
        if (count < EPS &&
            rdmux_accept(acceptor->listener, acceptor->cq, NULL, ACCEPT_MS, &ep) == RDMUX_OK) {
            other->eps[count++] = ep;
        }
        (void)rdmux_cq_poll(acceptor->cq, &wc, 1);
    }
    return NULL;
}

static void start_other(struct other *other, const char *host, char *address)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.log = hear;
    attr.log_user = other;
    attr.log_level = RDMUX_LOG_WARN;
    acceptor_open(&other->acceptor, &attr, host, address);
    struct rdmux_fabric *fabric = other->acceptor.fabric;
    must(rdmux_mr_alloc(fabric, SIZE, RDMUX_ACCESS_REMOTE_WRITE, &other->quiet), "a region");
    must(rdmux_mr_alloc(fabric, SIZE, RDMUX_ACCESS_REMOTE_WRITE, &other->busy), "a region");
    acceptor_start(&other->acceptor, accept_all, other);
}

static void stop_other(struct other *other)
{
    acceptor_stop(&other->acceptor);
    for (size_t i = 0; i < EPS; i++) {
        must(rdmux_ep_close(other->eps[i]), "closing");
    }
    rdmux_mr_deregister(other->quiet);
    rdmux_mr_deregister(other->busy);
    acceptor_close(&other->acceptor);
}

static void *revoke(void *argument)
{
    struct other *other = argument;
    must(rdmux_mr_revoke(other->quiet), "revoking");
    atomic_store(&other->is_revoked, true);
    return NULL;
}

/* ------------------------------------------------------------------------------------- our side */

static void connect_to(struct scene *scene, const char *provider, const char *address,
                       struct rdmux_mr *target, struct rdmux_ep **ep, struct rdmux_remote **remote)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_token token;
    attr.paths = provider;
    must(rdmux_connect(scene->fabric, scene->cq, address, &attr, PATIENT_MS, ep), "connecting");
    must(rdmux_mr_export(target, &token), "a token");
    must(rdmux_remote_import(*ep, &token, PATIENT_MS, remote), "its import");
}

/* Posts one write after the other over the busy endpoint. Returns the number of polls in a row that
 * found nothing. */
static unsigned write_until(struct scene *scene, struct rdmux_mr *source, const atomic_bool *over)
{
    unsigned most = 0;
    while (!atomic_load(over)) {
        struct rdmux_wc wc;
        unsigned idle = 0;
        must(rdmux_write(scene->busy, rdmux_mr_addr(source), SIZE, source, scene->to_busy, 0, NULL,
                         0),
             "a write");
        while (rdmux_cq_poll(scene->cq, &wc, 1) == 0) {
            idle++;
        }
        must((enum rdmux_status)wc.status, "its completion");
        most = idle > most ? idle : most;
    }
    return most;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        (void)fprintf(stderr, "usage: busy_neighbour PROVIDER ADDRESS\n");
        return 2;
    }
    struct other other = { 0 };
    struct scene scene = { 0 };
    struct rdmux_mr *source = NULL;
    char address[RDMUX_ADDRESS_MAX];
    start_other(&other, argv[2], address);
    must(rdmux_fabric_open(NULL, &scene.fabric), "a fabric");
    must(rdmux_cq_create(scene.fabric, NULL, &scene.cq), "a cq");
    must(rdmux_mr_alloc(scene.fabric, SIZE, RDMUX_ACCESS_LOCAL_WRITE, &source), "a region");
    connect_to(&scene, argv[1], address, other.quiet, &scene.quiet, &scene.to_quiet);
    connect_to(&scene, argv[1], address, other.busy, &scene.busy, &scene.to_busy);

    for (int i = 0; i < 3; i++) { /* the first raises a completion in any case */
        must(rdmux_write(scene.quiet, rdmux_mr_addr(source), SIZE, source, scene.to_quiet, 0, NULL,
                         RDMUX_UNSIGNALED),
             "a write");
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, revoke, &other) != 0) {
        must(RDMUX_NO_MEMORY, "a thread");
    }
    unsigned most = write_until(&scene, source, &other.is_revoked);
    (void)pthread_join(thread, NULL);

    (void)printf("1..2\n# at most %u polls in a row found nothing\n", most);
    bool is_busy = most <= IDLE_MAX;
    bool is_answered = atomic_load(&other.warnings) == 0;
    (void)printf("%s 1 - the cq was never at rest, over %s\n", is_busy ? "ok" : "not ok", argv[1]);
    (void)printf(
        "%s 2 - a revocation is answered where only the neighbour's requests tell of their end, "
        "over %s\n",
        is_answered ? "ok" : "not ok", argv[1]);
    must(rdmux_ep_close(scene.quiet), "closing");
    must(rdmux_ep_close(scene.busy), "closing");
    rdmux_mr_deregister(source);
    must(rdmux_cq_destroy(scene.cq), "the cq's end");
    must(rdmux_fabric_close(scene.fabric), "the fabric's end");
    stop_other(&other);
    return is_busy && is_answered ? EXIT_SUCCESS : EXIT_FAILURE;
}
