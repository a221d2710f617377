/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The echo server and its clients. Everything that takes time is started with timeout 0, and its
 * outcome is an entry of the completion queue: a loop has one descriptor to watch, however many
 * endpoints there are, and no call here sleeps.
 */
#include "echo.h"

#include <rdmux/rdmux.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32, RECEIVES = 1024, CLIENTS_MAX = 10000 };
enum { SEND_FLAGS = RDMUX_INLINE | RDMUX_UNSIGNALED };

/* One call of a client, and its echo. A client has one call under way at a time. */
struct message {
    uint64_t client, call;
};

struct client {
    struct rdmux_ep *ep;
    uint64_t calls; /* answered */
    struct message answer;
    bool is_connected;
};

static struct rdmux_fabric *fabric;
static struct rdmux_cq *cq;
static struct rdmux_listener *listener; /* NULL: these are clients */
static struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
static struct message receives[RECEIVES]; /* of a server, for messages of all its clients */
static struct rdmux_ep **peers;           /* of a server, with room for peers_max */
static struct client *clients;
static size_t peer_count, peers_max; /* endpoints of this side that are not closed */
static uint64_t calls_wanted, answered;
static size_t clients_wanted, clients_done;
static bool stays, finishes;

_Noreturn void echo_fail(const char *what, const char *why)
{
    fprintf(stderr, "echo: %s: %s\n", what, why);
    exit(1);
}

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fprintf(stderr, "echo: %s: %s: %s\n", what, rdmux_status_name(status), rdmux_last_error());
        exit(1);
    }
}

/* Fails with the text of the endpoint: an event leaves none in rdmux_last_error(). */
static void must_have(const struct rdmux_wc *wc, const char *what)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    if (wc->status != RDMUX_OK) {
        must(rdmux_ep_info(wc->ep, &info), "info");
        echo_fail(what, info.text);
    }
}

/* --------------------------------------------------------------------------------------- server */

static void open_server(const char *address)
{
    struct rdmux_srq_attr srq_attr = RDMUX_SRQ_ATTR_INIT;
    char text[RDMUX_ADDRESS_MAX];
    srq_attr.depth = RECEIVES;
    must(rdmux_srq_create(fabric, cq, &srq_attr, &attr.srq), "create a shared receive queue");
    for (size_t i = 0; i < RECEIVES; i++) {
        must(rdmux_srq_recv(attr.srq, &receives[i], sizeof(receives[i]), NULL, &receives[i]),
             "receive");
    }
    must(rdmux_listen(fabric, address, NULL, &listener), "listen");
    must(rdmux_listener_address(listener, text, sizeof(text)), "address");
    printf("listening on %s\n", text);
}

static void shut_down(struct rdmux_ep *ep)
{
    /* RDMUX_WC_DISCONNECTED follows, also if the endpoint has ended already. */
    if (rdmux_ep_shutdown(ep, 0) == RDMUX_INVALID) {
        echo_fail("shutdown", rdmux_last_error());
    }
}

/* Accepts all that wait, as the listener's descriptor is readable until then. */
static void accept_clients(void)
{
    struct rdmux_ep *ep;
    enum rdmux_status status;
    while ((status = rdmux_accept(listener, cq, &attr, 0, &ep)) == RDMUX_OK) {
        if (peer_count == peers_max) {
            peers_max = 2 * peers_max + 16;
            peers = realloc(peers, peers_max * sizeof(void *));
            if (peers == NULL) {
                echo_fail("accept", "no memory");
            }
        }
        peers[peer_count++] = ep;
        if (finishes) {
            shut_down(ep);
        }
    }
    must(status == RDMUX_AGAIN ? RDMUX_OK : status, "accept");
}

static void serve(const struct rdmux_wc *wc)
{
    if (wc->opcode == RDMUX_WC_RECV) {
        /* A client has one call under way, so there is room for its answer; if it has left, the
         * answer goes nowhere. */
        if (wc->status == RDMUX_OK) {
            answered += rdmux_send(wc->ep, wc->context, (size_t)wc->length, NULL, NULL,
                                   SEND_FLAGS) == RDMUX_OK;
        }
        must(rdmux_srq_recv(attr.srq, wc->context, sizeof(struct message), NULL, wc->context),
             "receive");
    } else if (wc->opcode == RDMUX_WC_DISCONNECTED) {
        for (size_t i = 0; i < peer_count; i++) {
            if (peers[i] == wc->ep) {
                peers[i] = peers[--peer_count];
            }
        }
        rdmux_ep_close(wc->ep);
    }
}

/* -------------------------------------------------------------------------------------- clients */

static void open_clients(const char *address)
{
    clients = calloc(clients_wanted, sizeof(*clients));
    if (clients == NULL) {
        echo_fail("clients", "no memory");
    }
    for (; peer_count < clients_wanted; peer_count++) {
        struct client *client = &clients[peer_count];
        attr.user = client;
        enum rdmux_status status = rdmux_connect(fabric, cq, address, &attr, 0, &client->ep);
        must(status == RDMUX_IN_PROGRESS ? RDMUX_OK : status, "connect");
    }
}

/* Posting to an endpoint that has ended returns the cause. That is left to RDMUX_WC_DISCONNECTED, which
 * brings the cause, too, and comes last. */
static void must_post(const struct client *client, enum rdmux_status status, const char *what)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    if (status != RDMUX_OK &&
        (rdmux_ep_info(client->ep, &info) != RDMUX_OK || info.state != RDMUX_EP_ENDED)) {
        must(status, what);
    }
}

static void call(struct client *client)
{
    struct message message = { .client = (uint64_t)(client - clients), .call = client->calls };
    must_post(client, rdmux_recv(client->ep, &client->answer, sizeof(client->answer), NULL, NULL),
              "receive");
    must_post(client, rdmux_send(client->ep, &message, sizeof(message), NULL, NULL, SEND_FLAGS),
              "send");
}

static void take_answer(struct client *client, const struct rdmux_wc *wc)
{
    if (wc->length != sizeof(client->answer) || client->answer.call != client->calls ||
        client->answer.client != (uint64_t)(client - clients)) {
        echo_fail("call", "the echo is not what was sent");
    }
    answered++;
    if (++client->calls < calls_wanted) {
        call(client);
    } else if (++clients_done == clients_wanted) {
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        must(rdmux_ep_info(wc->ep, &info), "info");
        printf("%" PRIu64 " calls of %zu clients echoed over %s\n", answered, clients_wanted,
               info.provider);
        if (!stays) {
            echo_finish();
        }
    }
}

static void advance(const struct rdmux_wc *wc)
{
    struct client *client = rdmux_ep_user(wc->ep);
    if (wc->opcode == RDMUX_WC_CONNECTED) {
        must_have(wc, "connect");
        client->is_connected = true;
        call(client);
    } else if (wc->opcode == RDMUX_WC_RECV && wc->status == RDMUX_OK) {
        take_answer(client, wc);
    } else if (wc->opcode == RDMUX_WC_DISCONNECTED) {
        if (!finishes && !stays) {
            must_have(wc, "the server has gone");
            echo_fail("the server has gone", "it has ended the connection");
        }
        rdmux_ep_close(wc->ep);
        client->ep = NULL;
        peer_count--;
    }
}

/* ------------------------------------------------------------------------------------- the loop */

/* The order loses no wake-up: first everything that may add completions, as rdmux_accept() does,
 * then polls until nothing is left, and then the arming, which refuses if something came between. */
enum echo_next echo_turn(void)
{
    struct rdmux_wc wcs[BATCH];
    if (listener != NULL) {
        accept_clients();
    }
    size_t count = rdmux_cq_poll(cq, wcs, BATCH);
    for (size_t i = 0; i < count; i++) {
        (listener != NULL ? serve : advance)(&wcs[i]);
    }
    if (peer_count == 0 && (listener == NULL || finishes)) {
        return ECHO_END;
    }
    /* Unarmed, the descriptor would not wake the loop. */
    return count > 0 || rdmux_cq_arm(cq) != RDMUX_OK ? ECHO_AGAIN : ECHO_SLEEP;
}

void echo_finish(void)
{
    if (finishes) {
        return;
    }
    finishes = true;
    for (size_t i = 0; listener != NULL && i < peer_count; i++) {
        shut_down(peers[i]);
    }
    for (struct client *client = clients; listener == NULL && client < clients + clients_wanted;
         client++) {
        if (client->is_connected && client->ep != NULL) {
            shut_down(client->ep);
        } else if (client->ep != NULL) {
            rdmux_ep_close(client->ep); /* cancels the connecting */
            client->ep = NULL;
            peer_count--;
        }
    }
}

void echo_fds(int fds[ECHO_FDS])
{
    fds[0] = rdmux_cq_fd(cq);
    fds[1] = listener != NULL ? rdmux_listener_fd(listener) : -1;
}

void echo_open(int argc, char **argv)
{
    static const char usage[] = "usage: %s serve ADDRESS                       until SIGTERM\n"
                                "       %s call ADDRESS CLIENTS CALLS [stay]   CALLS calls by each "
                                "of CLIENTS clients\n"
                                "Clients share one loop. With \"stay\" they stay connected "
                                "afterwards, until SIGTERM.\n"
                                "ADDRESS is HOST:PORT, or *:PORT to serve; PORT 0: a free port.\n";
    bool serves = argc == 3 && strcmp(argv[1], "serve") == 0;
    bool helps = argc == 2 && strcmp(argv[1], "--help") == 0;
    char rest;
    stays = argc == 6 && strcmp(argv[5], "stay") == 0;
    if (!serves && !((argc == 5 || stays) && strcmp(argv[1], "call") == 0 &&
                     sscanf(argv[3], "%zu%c", &clients_wanted, &rest) == 1 &&
                     sscanf(argv[4], "%" SCNu64 "%c", &calls_wanted, &rest) == 1 &&
                     clients_wanted >= 1 && clients_wanted <= CLIENTS_MAX && calls_wanted >= 1)) {
        fprintf(helps ? stdout : stderr, usage, argv[0], argv[0]);
        exit(helps ? 0 : 2);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    must(rdmux_fabric_open(NULL, &fabric), "open");
    must(rdmux_cq_create(fabric, NULL, &cq), "create a completion queue");
    (serves ? open_server : open_clients)(argv[2]);
}

void echo_close(void)
{
    if (listener != NULL) {
        printf("%" PRIu64 " calls echoed\n", answered);
    }
    rdmux_listener_close(listener);
    must(rdmux_srq_destroy(attr.srq), "destroy the shared receive queue");
    must(rdmux_cq_destroy(cq), "destroy the completion queue");
    must(rdmux_fabric_close(fabric), "close");
    free(clients);
    free(peers);
}
