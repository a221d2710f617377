/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A chat room: rdmux among the other descriptors of an event loop.
 *
 * Members send the text from their stdin; the room sends it to every member. Both run the same
 * loop. The order of its steps avoids lost wake-ups: poll the completion queue until it is
 * empty, arm it, and sleep only if arming did not report a new completion.
 */
#include <rdmux/rdmux.h>

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

/* A line is sent inline, so its buffer is free at once. A longer line is sent in pieces. */
enum { TEXT_MAX = RDMUX_INLINE_MIN, PEERS = 256, WAIT_MS = 10000 };

static const char usage[] = "usage: event_loop serve ADDRESS    runs the room\n"
                            "       event_loop join ADDRESS     sends stdin, prints all texts\n"
                            "ADDRESS is HOST:PORT, or *:PORT to serve; PORT 0: a free port.\n"
                            "SIGTERM ends both; the end of stdin ends a member.\n";

static struct rdmux_cq *cq;
static struct rdmux_listener *listener; /* of the room; NULL: this is a member */
static struct rdmux_ep *peers[PEERS];   /* the room's members, or a member's room */
static size_t peer_count;
static struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT; /* attr.srq: receives from any peer */

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        const char *name = rdmux_status_name(status);
        fprintf(stderr, "event_loop: %s: %s %s\n", what, name, rdmux_last_error());
        exit(1);
    }
}

static void add_peer(struct rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    must(rdmux_ep_info(ep, &info), "info");
    fprintf(stderr, "%s joined over %s\n", info.peer_address, info.provider);
    peers[peer_count++] = ep;
}

/* Returns false if a peer could not take the text. The room does not wait: the peer misses it. */
static bool say(const char *text, size_t length)
{
    uint32_t flags = RDMUX_INLINE | RDMUX_UNSIGNALED;
    bool all = true;
    for (size_t i = 0; i < peer_count; i++) {
        all &= rdmux_send(peers[i], text, length, NULL, NULL, flags) == RDMUX_OK;
    }
    return all;
}

static void handle(const struct rdmux_wc *wc)
{
    if (wc->opcode == RDMUX_WC_RECV) {
        fwrite(wc->context, 1, (size_t)wc->length, stdout); /* empty if the receive has failed */
        if (listener != NULL && wc->status == RDMUX_OK) {
            say(wc->context, (size_t)wc->length);
        }
        must(rdmux_srq_recv(attr.srq, wc->context, TEXT_MAX, NULL, wc->context), "receive");
    } else if (wc->opcode == RDMUX_WC_DISCONNECTED) {
        must(listener != NULL ? RDMUX_OK : (enum rdmux_status)wc->status, "the room has gone");
        for (size_t i = 0; i < peer_count; i++) {
            peers[i] = peers[i] == wc->ep ? peers[--peer_count] : peers[i];
        }
        rdmux_ep_close(wc->ep);
    }
}

static void run(int signals)
{
    char text[TEXT_MAX] = ""; /* text that a member has read and not yet sent */
    while (listener != NULL || peer_count > 0) {
        bool is_room = listener != NULL, wants = is_room ? peer_count < PEERS : text[0] == '\0';
        int input = is_room ? rdmux_listener_fd(listener) : fileno(stdin);
        struct pollfd fds[] = { { .fd = rdmux_cq_fd(cq), .events = POLLIN },
                                { .fd = wants ? input : -1, .events = POLLIN }, /* -1: none */
                                { .fd = signals, .events = POLLIN } };
        enum rdmux_status status = RDMUX_AGAIN;
        struct rdmux_ep *ep;
        struct rdmux_wc wc;
        size_t count = rdmux_cq_poll(cq, &wc, 1);
        if (count == 0 && rdmux_cq_arm(cq) == RDMUX_OK) {
            poll(fds, 3, -1);
        }
        bool reads = !is_room && fds[1].revents != 0;
        if (fds[2].revents != 0 || (reads && fgets(text, TEXT_MAX, stdin) == NULL)) {
            return;
        }
        while (is_room && peer_count < PEERS && /* the sender of a text receives it, too */
               (status = rdmux_accept(listener, cq, &attr, 0, &ep)) == RDMUX_OK) {
            add_peer(ep);
        }
        must(status == RDMUX_AGAIN ? RDMUX_OK : status, "accept");
        if (count == 1) {
            handle(&wc);
        }
        if (text[0] != '\0' && say(text, strlen(text))) {
            text[0] = '\0'; /* else the queue is full: WRITABLE will wake the loop */
        }
    }
}

int main(int argc, char **argv)
{
    static char texts[PEERS][TEXT_MAX];
    bool helps = argc == 2 && strcmp(argv[1], "--help") == 0;
    bool serves = argc == 3 && strcmp(argv[1], "serve") == 0;
    if (!serves && (argc != 3 || strcmp(argv[1], "join") != 0)) {
        fputs(usage, helps ? stdout : stderr);
        return helps ? 0 : 2;
    }
    struct rdmux_fabric *fabric;
    struct rdmux_ep *ep;
    char address[RDMUX_ADDRESS_MAX];
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_BLOCK, &mask, NULL); /* a descriptor delivers it to the loop */
    int signals = signalfd(-1, &mask, SFD_CLOEXEC);
    must(rdmux_fabric_open(NULL, &fabric), "open");
    must(rdmux_cq_create(fabric, NULL, &cq), "create a completion queue");
    must(rdmux_srq_create(fabric, cq, NULL, &attr.srq), "create a shared receive queue");
    for (size_t i = 0; i < PEERS; i++) {
        must(rdmux_srq_recv(attr.srq, texts[i], TEXT_MAX, NULL, texts[i]), "receive");
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0); /* a line buffered in stdio would not wake poll(2) */
    if (serves) {
        must(rdmux_listen(fabric, argv[2], NULL, &listener), "listen");
        must(rdmux_listener_address(listener, address, sizeof(address)), "address");
        printf("listening on %s\n", address);
    } else {
        must(rdmux_connect(fabric, cq, argv[2], &attr, WAIT_MS, &ep), "connect");
        add_peer(ep);
    }
    run(signals);
    while (peer_count > 0) {
        ep = peers[--peer_count];
        if (rdmux_ep_shutdown(ep, WAIT_MS) != RDMUX_OK) {
            fprintf(stderr, "event_loop: shutdown: %s\n", rdmux_last_error());
        }
        rdmux_ep_close(ep);
    }
    rdmux_listener_close(listener);
    must(rdmux_srq_destroy(attr.srq), "destroy the shared receive queue");
    must(rdmux_cq_destroy(cq), "destroy the completion queue");
    must(rdmux_fabric_close(fabric), "close");
    return 0;
}
