/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* For programs that connect to themselves: the listening side, with a thread of its own. A call
 * that fails ends the program. */
#ifndef RDMUX_TESTS_ACCEPTOR_H
#define RDMUX_TESTS_ACCEPTOR_H

#include <rdmux/rdmux.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct acceptor {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_listener *listener;
    atomic_bool stops; /* the thread reads it */
    pthread_t thread;
};

static inline void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        (void)printf("Bail out! %s: %s: %s\n", what, rdmux_status_name(status), rdmux_last_error());
        exit(EXIT_FAILURE);
    }
}

/* Listens at a free port of the host. address has room for RDMUX_ADDRESS_MAX bytes. attr may be
 * NULL. */
static inline void acceptor_open(struct acceptor *acceptor, const struct rdmux_fabric_attr *attr,
                                 const char *host, char *address)
{
    char wanted[RDMUX_ADDRESS_MAX];
    (void)snprintf(wanted, sizeof(wanted), "%s:0", host);
    must(rdmux_fabric_open(attr, &acceptor->fabric), "a fabric");
    must(rdmux_cq_create(acceptor->fabric, NULL, &acceptor->cq), "a cq");
    must(rdmux_listen(acceptor->fabric, wanted, NULL, &acceptor->listener), "listening");
    must(rdmux_listener_address(acceptor->listener, address, RDMUX_ADDRESS_MAX), "its address");
}

static inline void acceptor_start(struct acceptor *acceptor, void *(*accept_all)(void *),
                                  void *argument)
{
    if (pthread_create(&acceptor->thread, NULL, accept_all, argument) != 0) {
        must(RDMUX_NO_MEMORY, "a thread");
    }
}

/* The thread has ended when this returns. */
static inline void acceptor_stop(struct acceptor *acceptor)
{
    atomic_store(&acceptor->stops, true);
    (void)pthread_join(acceptor->thread, NULL);
    rdmux_listener_close(acceptor->listener);
}

/* All endpoints and regions must be closed before. */
static inline void acceptor_close(struct acceptor *acceptor)
{
    must(rdmux_cq_destroy(acceptor->cq), "the cq's end");
    must(rdmux_fabric_close(acceptor->fabric), "the fabric's end");
}

#endif
