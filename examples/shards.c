/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A server whose threads share nothing: each has a completion queue and its own part of the data.
 *
 * The first thread accepts every connection and reads the client's name. The name decides which
 * thread has the data of this client, and rdmux_ep_move() gives the connection to that thread's
 * queue. From RDMUX_WC_MOVED on, that thread alone uses it, so no request takes a lock.
 */
#include <rdmux/rdmux.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 64, NAME_MAX_BYTES = 40, WAIT_MS = 10000 };

static const char usage[] = "usage: shards serve ADDRESS THREADS [CLIENTS]\n"
                            "       shards call ADDRESS NAME TIMES\n"
                            "The server ends after CLIENTS clients (default: never).\n"
                            "ADDRESS is HOST:PORT, or *:PORT to serve; PORT 0: a free port.\n"
                            "NAME has 1 to 40 bytes; a server has 1 to 64 threads.\n";

struct answer {
    uint64_t thread; /* that has the client */
    uint64_t calls;  /* of all clients of this thread so far */
};

struct shard {
    struct rdmux_cq *cq;
    uint64_t calls; /* this thread's data */
    uint64_t number;
    pthread_t thread;
};

/* A connection, as its endpoint's user pointer. It has one message of the client at a time. */
struct client {
    struct answer answer;
    bool is_at_home; /* the thread that has it is the one for its name */
    char name[NAME_MAX_BYTES + 1];
};

static struct rdmux_fabric *fabric;
static struct shard shards[THREADS_MAX];
static size_t shard_count;
static _Atomic size_t gone; /* clients that have ended */

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        const char *name = rdmux_status_name(status);
        fprintf(stderr, "shards: %s: %s %s\n", what, name, rdmux_last_error());
        exit(1);
    }
}

static void receive(struct rdmux_ep *ep, struct client *client)
{
    memset(client->name, 0, sizeof(client->name));
    /* A client that has gone is refused here, and its RDMUX_WC_DISCONNECTED follows. */
    enum rdmux_status status = rdmux_recv(ep, client->name, NAME_MAX_BYTES, NULL, client);
    (void)status;
}

static struct shard *shard_of(const char *name)
{
    uint64_t hash = 14695981039346656037U; /* FNV-1a */
    for (; *name != '\0'; name++) {
        hash = (hash ^ (unsigned char)*name) * 1099511628211U;
    }
    return &shards[hash % shard_count];
}

/* One call: the shard's own data changes, without a lock. */
static void answer(struct shard *shard, struct rdmux_ep *ep, struct client *client)
{
    client->answer = (struct answer){ .thread = shard->number, .calls = ++shard->calls };
    receive(ep, client);
    enum rdmux_status status = rdmux_send(ep, &client->answer, sizeof(client->answer), NULL, NULL,
                                          RDMUX_INLINE | RDMUX_UNSIGNALED);
    (void)status; /* the same */
}

/* The first message names the client, so it tells which thread answers. */
static void send_home(struct shard *shard, struct rdmux_ep *ep, struct client *client)
{
    struct shard *home = shard_of(client->name);
    client->is_at_home = true;
    enum rdmux_status status = rdmux_ep_move(ep, home->cq); /* also if this is the one */
    if (status == RDMUX_UNSUPPORTED) {
        answer(shard, ep, client); /* the path keeps it on its queue: this thread serves it */
    } else {
        must(status, "move");
    }
}

/* Handles an entry of the shard's queue. */
static void handle(struct shard *shard, const struct rdmux_wc *wc)
{
    if (wc->ep == NULL) { /* a wake-up */
        return;
    }
    struct client *client = rdmux_ep_user(wc->ep);
    if (wc->opcode == RDMUX_WC_RECV && wc->status == RDMUX_OK && !client->is_at_home) {
        send_home(shard, wc->ep, client);
    } else if (wc->opcode == RDMUX_WC_MOVED || /* its first message is still to be answered */
               (wc->opcode == RDMUX_WC_RECV && wc->status == RDMUX_OK)) {
        answer(shard, wc->ep, client);
    } else if (wc->opcode == RDMUX_WC_DISCONNECTED) {
        rdmux_ep_close(wc->ep);
        free(client);
        atomic_fetch_add(&gone, 1);
        must(rdmux_cq_wake(shards[0].cq), "wake"); /* the first thread counts */
    }
}

static void *run(void *argument)
{
    struct shard *shard = argument;
    struct rdmux_wc wc;
    size_t count;
    for (;;) {
        must(rdmux_cq_wait(shard->cq, &wc, 1, -1, &count), "wait");
        if (wc.opcode == RDMUX_WC_WOKEN) { /* the server ends */
            return NULL;
        }
        handle(shard, &wc);
    }
}

static void start(const char *wanted, struct rdmux_listener **listener)
{
    char address[RDMUX_ADDRESS_MAX];
    for (size_t i = 0; i < shard_count; i++) {
        shards[i].number = i;
        must(rdmux_cq_create(fabric, NULL, &shards[i].cq), "create a completion queue");
    }
    for (size_t i = 1; i < shard_count; i++) { /* thread 0 is this one */
        int error = pthread_create(&shards[i].thread, NULL, run, &shards[i]);
        must(error != 0 ? RDMUX_NO_MEMORY : RDMUX_OK, "start a thread");
    }
    must(rdmux_listen(fabric, wanted, NULL, listener), "listen");
    must(rdmux_listener_address(*listener, address, sizeof(address)), "address");
    printf("listening on %s\n", address);
    fflush(stdout);
}

static void serve(const char *wanted, size_t clients)
{
    struct shard *first = &shards[0];
    struct rdmux_listener *listener;
    struct rdmux_ep *ep;
    struct rdmux_wc wc;
    start(wanted, &listener);
    struct pollfd fds[] = { { .fd = rdmux_cq_fd(first->cq), .events = POLLIN },
                            { .fd = rdmux_listener_fd(listener), .events = POLLIN } };
    for (size_t come = 0; come < clients || atomic_load(&gone) < come;) {
        enum rdmux_status status = rdmux_accept(listener, first->cq, NULL, 0, &ep);
        if (status == RDMUX_OK) {
            struct client *client = calloc(1, sizeof(*client));
            must(client == NULL ? RDMUX_NO_MEMORY : RDMUX_OK, "a client");
            must(rdmux_ep_set_user(ep, client), "set the user pointer");
            receive(ep, client);
            come++;
            continue;
        }
        must(status == RDMUX_AGAIN ? RDMUX_OK : status, "accept");
        if (rdmux_cq_poll(first->cq, &wc, 1) == 1) {
            handle(first, &wc);
        } else if (rdmux_cq_arm(first->cq) == RDMUX_OK) {
            poll(fds, 2, -1);
        }
    }
    rdmux_listener_close(listener);
    for (size_t i = 1; i < shard_count; i++) {
        must(rdmux_cq_wake(shards[i].cq), "wake");
        pthread_join(shards[i].thread, NULL);
    }
    for (size_t i = 0; i < shard_count; i++) {
        printf("thread %zu answered %ju calls\n", i, (uintmax_t)shards[i].calls);
        must(rdmux_cq_destroy(shards[i].cq), "destroy a completion queue");
    }
}

static void call(const char *address, const char *name, size_t times)
{
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    struct rdmux_wc wc;
    struct answer got = { 0, 0 };
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    size_t count;
    must(rdmux_cq_create(fabric, NULL, &cq), "create a completion queue");
    must(rdmux_connect(fabric, cq, address, NULL, WAIT_MS, &ep), "connect");
    must(rdmux_ep_info(ep, &info), "info");
    for (size_t i = 0; i < times; i++) {
        must(rdmux_recv(ep, &got, sizeof(got), NULL, NULL), "receive");
        must(rdmux_send(ep, name, strlen(name), NULL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED),
             "send");
        must(rdmux_cq_wait(cq, &wc, 1, WAIT_MS, &count), "an answer");
        must((enum rdmux_status)wc.status, "an answer");
    }
    printf("%zu calls answered by thread %ju over %s\n", times, (uintmax_t)got.thread,
           info.provider);
    must(rdmux_ep_shutdown(ep, WAIT_MS), "shutdown");
    rdmux_ep_close(ep);
    must(rdmux_cq_destroy(cq), "destroy the completion queue");
}

int main(int argc, char **argv)
{
    bool helps = argc == 2 && strcmp(argv[1], "--help") == 0;
    bool serves = (argc == 4 || argc == 5) && strcmp(argv[1], "serve") == 0;
    bool calls = argc == 5 && strcmp(argv[1], "call") == 0;
    size_t number = SIZE_MAX, length = calls ? strlen(argv[3]) : 1;
    char rest;
    if (!(serves || calls) || length == 0 || length > NAME_MAX_BYTES ||
        (argc == 5 && sscanf(argv[4], "%zu%c", &number, &rest) != 1) ||
        (serves && (sscanf(argv[3], "%zu%c", &shard_count, &rest) != 1 || shard_count == 0 ||
                    shard_count > THREADS_MAX))) {
        fputs(usage, helps ? stdout : stderr);
        return helps ? 0 : 2;
    }
    must(rdmux_fabric_open(NULL, &fabric), "open");
    serves ? serve(argv[2], number) : call(argv[2], argv[3], number);
    must(rdmux_fabric_close(fabric), "close");
    return 0;
}
