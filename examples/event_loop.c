/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A chat room: rdmux among the other descriptors of an event loop.
 *
 *   event_loop [PORT]                 serves until SIGTERM or SIGINT; reports every second
 *   event_loop HOST:PORT [LINES]      sends the lines of stdin and prints every member's; ends at
 *                                     the end of stdin, or once LINES lines have come
 *
 * The order of the steps decides whether a wake-up can be lost: poll the completion queue until it
 * is empty, arm it, and sleep only if arming did not answer that something is there already.
 */
#include <rdmux/rdmux.h>

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* A line travels inline, so nobody has to keep it until it is sent. Longer ones come in pieces. */
enum { TEXT_MAX = RDMUX_INLINE_MIN, MEMBERS = 256, RECEIVES = 16, WAIT_MS = 10000 };

static void check(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fprintf(stderr, "event_loop: %s: %s\n", what, rdmux_last_error());
        exit(1);
    }
}

/* ---------------------------------------------------------------------------------- the server */

struct member {
    struct rdmux_ep *ep; /* NULL = free seat */
    char text[TEXT_MAX];
};

struct room {
    struct rdmux_cq *cq;
    struct rdmux_listener *listener;
    struct member members[MEMBERS];
    unsigned long lines, missed;
};

/* Fails only if the endpoint has ended; then DISCONNECTED follows. */
static void listen_to(struct member *member)
{
    if (rdmux_recv(member->ep, member->text, TEXT_MAX, NULL, NULL) != RDMUX_OK) {
        fprintf(stderr, "event_loop: receive: %s\n", rdmux_last_error());
    }
}

static void admit(struct room *room)
{
    struct rdmux_ep *ep;
    while (rdmux_accept(room->listener, room->cq, NULL, 0, &ep) == RDMUX_OK) {
        unsigned seat = 0;
        while (seat < MEMBERS && room->members[seat].ep != NULL) {
            seat++;
        }
        if (seat == MEMBERS) {
            rdmux_ep_close(ep);
            continue;
        }
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        check(rdmux_ep_info(ep, &info), "info");
        printf("%s joined over %s\n", info.peer_address, info.provider);
        fflush(stdout);
        room->members[seat].ep = ep;
        rdmux_ep_set_user(ep, &room->members[seat]);
        listen_to(&room->members[seat]);
    }
}

/* Says a line to everyone. Who does not keep up misses it; nobody waits for anybody. */
static void broadcast(struct room *room, const char *text, size_t length)
{
    uint32_t flags = RDMUX_INLINE | RDMUX_UNSIGNALED;
    for (unsigned i = 0; i < MEMBERS; i++) {
        struct rdmux_ep *ep = room->members[i].ep;
        if (ep != NULL && rdmux_send(ep, text, length, NULL, NULL, flags) != RDMUX_OK) {
            room->missed++;
        }
    }
    room->lines++;
}

static void drain_and_arm(struct room *room)
{
    enum rdmux_status armed;
    do {
        struct rdmux_wc wc;
        while (rdmux_cq_poll(room->cq, &wc, 1) == 1) {
            struct member *member = rdmux_ep_user(wc.ep);
            if (wc.opcode == RDMUX_WC_DISCONNECTED) {
                rdmux_ep_close(member->ep);
                member->ep = NULL;
            } else if (wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK) {
                broadcast(room, member->text, (size_t)wc.length);
                listen_to(member);
            }
        }
        armed = rdmux_cq_arm(room->cq);
    } while (armed == RDMUX_AGAIN);
    check(armed, "arm");
}

static void serve(struct room *room, int timer, int signals)
{
    int listener = rdmux_listener_fd(room->listener);
    int fds[] = { rdmux_cq_fd(room->cq), listener, timer, signals };
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < 4; i++) {
        struct epoll_event event = { .events = EPOLLIN, .data.fd = fds[i] };
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event) != 0) {
            perror("event_loop: epoll");
            exit(1);
        }
    }
    for (bool stopping = false; !stopping;) {
        struct epoll_event event = { .data.fd = -1 };
        uint64_t expirations;
        drain_and_arm(room);
        epoll_wait(epoll, &event, 1, -1);
        if (event.data.fd == listener) {
            admit(room);
        } else if (event.data.fd == timer && read(timer, &expirations, sizeof(expirations)) > 0) {
            fprintf(stderr, "%lu lines, %lu missed by someone\n", room->lines, room->missed);
        } else if (event.data.fd == signals) {
            stopping = true;
        } /* else the completion queue, which the next round drains */
    }
    close(epoll);
}

static void run_server(struct rdmux_fabric *fabric, struct rdmux_cq *cq, const char *port,
                       const sigset_t *mask)
{
    static struct room room;
    char address[RDMUX_ADDRESS_MAX];
    const struct itimerspec period = { { 1, 0 }, { 1, 0 } };
    int signals = signalfd(-1, mask, SFD_CLOEXEC);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    timerfd_settime(timer, 0, &period, NULL);
    snprintf(address, sizeof(address), ":%s", port);
    room.cq = cq;
    check(rdmux_listen(fabric, address, NULL, &room.listener), "listen");
    check(rdmux_listener_address(room.listener, address, sizeof(address)), "address");
    printf("listening on %s\n", address);
    fflush(stdout);
    serve(&room, timer, signals);
    for (unsigned i = 0; i < MEMBERS; i++) {
        rdmux_ep_close(room.members[i].ep); /* a free seat's is NULL */
    }
    rdmux_listener_close(room.listener);
    close(timer);
    close(signals);
}

/* ---------------------------------------------------------------------------------- the client */

/* Prints what has come, counting lines, and arms the queue. */
static void print_and_arm(struct rdmux_cq *cq, unsigned long *lines)
{
    enum rdmux_status armed;
    do {
        struct rdmux_wc wc;
        while (rdmux_cq_poll(cq, &wc, 1) == 1) {
            if (wc.opcode == RDMUX_WC_DISCONNECTED) {
                struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
                check(rdmux_ep_info(wc.ep, &info), "info");
                fprintf(stderr, "event_loop: the room has closed: %s\n", info.text);
                exit(1);
            }
            if (wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK) {
                const char *text = wc.context;
                fwrite(text, 1, (size_t)wc.length, stdout);
                *lines += wc.length > 0 && text[wc.length - 1] == '\n';
                check(rdmux_recv(wc.ep, wc.context, TEXT_MAX, NULL, wc.context), "receive");
            }
        }
        armed = rdmux_cq_arm(cq);
    } while (armed == RDMUX_AGAIN);
    check(armed, "arm");
    fflush(stdout);
}

static void run_client(struct rdmux_fabric *fabric, struct rdmux_cq *cq, const char *address,
                       unsigned long lines_wanted)
{
    struct rdmux_ep *ep;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    char received[RECEIVES][TEXT_MAX], text[TEXT_MAX] = ""; /* text: a line not yet sent */
    unsigned long lines = 0;
    bool at_end = false;
    check(rdmux_connect(fabric, cq, address, NULL, WAIT_MS, &ep), "connect");
    for (unsigned i = 0; i < RECEIVES; i++) {
        check(rdmux_recv(ep, received[i], TEXT_MAX, NULL, received[i]), "receive");
    }
    check(rdmux_ep_info(ep, &info), "info");
    fprintf(stderr, "joined over %s\n", info.provider);
    setvbuf(stdin, NULL, _IONBF, 0); /* a line in a buffer of stdio would not wake poll(2) */
    for (;;) {
        if (text[0] != '\0') {
            enum rdmux_status status = rdmux_send(ep, text, strlen(text), NULL, NULL,
                                                  RDMUX_INLINE | RDMUX_UNSIGNALED);
            check(status == RDMUX_AGAIN ? RDMUX_OK : status, "send");
            text[0] = status == RDMUX_AGAIN ? text[0] : '\0'; /* after AGAIN, WRITABLE wakes us */
        }
        print_and_arm(cq, &lines);
        if (lines_wanted > 0 ? lines >= lines_wanted : at_end && text[0] == '\0') {
            break;
        }
        bool reads = !at_end && text[0] == '\0';
        struct pollfd fds[] = { { .fd = rdmux_cq_fd(cq), .events = POLLIN },
                                { .fd = reads ? STDIN_FILENO : -1, .events = POLLIN } };
        poll(fds, 2, -1);
        if (fds[1].revents != 0) {
            at_end = fgets(text, sizeof(text), stdin) == NULL;
        }
    }
    check(rdmux_ep_shutdown(ep, WAIT_MS), "shutdown");
    rdmux_ep_close(ep);
}

int main(int argc, char **argv)
{
    bool is_client = argc > 1 && strchr(argv[1], ':') != NULL;
    if (argc > (is_client ? 3 : 2)) {
        fprintf(stderr, "usage: event_loop [PORT] | event_loop HOST:PORT [LINES]\n");
        return 2;
    }
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    sigset_t mask; /* the server takes these from a descriptor */
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    if (!is_client) {
        sigprocmask(SIG_BLOCK, &mask, NULL);
    }
    check(rdmux_fabric_open(NULL, &fabric), "open");
    check(rdmux_cq_create(fabric, NULL, &cq), "create a completion queue");
    if (is_client) {
        run_client(fabric, cq, argv[1], argc > 2 ? strtoul(argv[2], NULL, 10) : 0);
    } else {
        run_server(fabric, cq, argc > 1 ? argv[1] : "7471", &mask);
    }
    check(rdmux_cq_destroy(cq), "destroy the completion queue");
    check(rdmux_fabric_close(fabric), "close");
    return 0;
}
