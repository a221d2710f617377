/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Real time: the device thread, and the sockets between processes. A process owns a slot, the name
 * of a socket that other processes dial to send it packets. Each socket carries packets in one
 * direction, so two communicating processes have two.
 */
#include "sim_net.h"

#include "sim_carry.h"
#include "sim_cm_news.h"
#include "sim_device.h"
#include "sim_macros.h"
#include "sim_options.h"
#include "sim_packet.h"
#include "sim_queue.h"
#include "sim_requester.h"
#include "sim_verbs.h"
#include "sim_world.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    HEADER_MAX = 1024,
    BACKLOG = 1024,
    READ_BUDGET = 1 << 20, /* bytes read from one peer before the next peer's turn */
    DESCRIPTORS = 16,      /* events that one wait reports */
};

/* Header of each frame on a socket. Both ends run the same library on one machine. */
struct frame {
    uint32_t kind; /* enum sim_packet_kind */
    uint32_t header_size;
    uint64_t length; /* length of the bytes behind the header */
};

struct hello {
    uint32_t request_size; /* layouts must match */
    uint32_t answer_size;
    uint32_t cm_size;
    uint16_t slot;
    uint16_t lasting; /* end of the socket = end of the process */
};

struct piece {
    struct piece *next;
    size_t length;
    size_t sent;
    uint8_t bytes[];
};

enum role { ROLE_TIMER, ROLE_WAKE, ROLE_LISTENER, ROLE_IN, ROLE_OUT };

struct peer {
    enum role role;
    int descriptor;
    struct peer *next; /* of the incoming ones, and of the listeners */
    uint16_t slot;
    bool lasting;
    struct piece *pieces; /* not yet written, oldest first */
    struct frame frame;   /* being read */
    size_t taken;
    uint8_t header[HEADER_MAX];
    uint8_t *bytes;
};

struct sim_net {
    struct sim_world *world;
    pthread_t thread;
    int epoll;
    struct peer timer;
    struct peer wake;
    struct peer *listeners;
    struct peer *incoming;
    struct peer *retired; /* closed; freed when the thread no longer refers to them */
    struct peer *outgoing[SIM_SLOTS];
    char name[64];
    uint16_t slot;
    bool meets_others;
    bool stopping;
};

/* ---------------------------------------------------------------------------------------- names */

static socklen_t address_fill(const struct sim_net *net, const char *kind, unsigned int number,
                              struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    /* Abstract name: it ends with the process, however that ends. */
    int length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
                          "sim_verbs/%u/%s/%s/%u", (unsigned int)geteuid(), net->name, kind,
                          number);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool watch(struct sim_net *net, struct peer *peer, uint32_t events, int operation)
{
    struct epoll_event event = { .events = events, .data.ptr = peer };
    return epoll_ctl(net->epoll, operation, peer->descriptor, &event) == 0;
}

static struct peer *peer_make(struct sim_net *net, enum role role, int descriptor, uint32_t events)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return NULL;
    }
    peer->role = role;
    peer->descriptor = descriptor;
    if (!watch(net, peer, events, EPOLL_CTL_ADD)) {
        free(peer);
        return NULL;
    }
    return peer;
}

static void pieces_free(struct peer *peer)
{
    while (peer->pieces != NULL) {
        struct piece *piece = peer->pieces;
        peer->pieces = piece->next;
        free(piece);
    }
}

static void peer_free(struct peer *peer)
{
    if (peer == NULL) {
        return;
    }
    pieces_free(peer);
    if (peer->descriptor >= 0) {
        (void)close(peer->descriptor);
    }
    free(peer->bytes);
    free(peer);
}

static struct peer *listen_at(struct sim_net *net, const char *kind, unsigned int number)
{
    struct sockaddr_un address;
    socklen_t length = address_fill(net, kind, number, &address);
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptor < 0) {
        return NULL;
    }
    struct peer *peer = NULL;
    if (bind(descriptor, (const struct sockaddr *)&address, length) == 0 &&
        listen(descriptor, BACKLOG) == 0) {
        peer = peer_make(net, ROLE_LISTENER, descriptor, EPOLLIN);
    }
    if (peer == NULL) {
        (void)close(descriptor);
        return NULL;
    }
    peer->next = net->listeners;
    net->listeners = peer;
    return peer;
}

int sim_net_listen(struct sim_net *net, uint16_t port)
{
    struct peer *peer = listen_at(net, "port", port);
    return peer != NULL ? peer->descriptor : -1;
}

/* The thread may hold an event that names the peer: the peer is freed after the thread's next
 * look. */
static void retire(struct sim_net *net, struct peer *peer)
{
    (void)epoll_ctl(net->epoll, EPOLL_CTL_DEL, peer->descriptor, NULL);
    (void)close(peer->descriptor);
    peer->descriptor = -1;
    peer->next = net->retired;
    net->retired = peer;
}

void sim_net_unlisten(struct sim_net *net, int descriptor)
{
    for (struct peer **at = &net->listeners; *at != NULL; at = &(*at)->next) {
        struct peer *peer = *at;
        if (peer->descriptor == descriptor) {
            *at = peer->next;
            retire(net, peer);
            return;
        }
    }
}

bool sim_net_has(const struct sim_net *net)
{
    return net != NULL && net->meets_others;
}

/* -------------------------------------------------------------------------------------- sending */

static int dial(const struct sim_net *net, const char *kind, unsigned int number)
{
    struct sockaddr_un address;
    socklen_t length = address_fill(net, kind, number, &address);
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor >= 0 && connect(descriptor, (const struct sockaddr *)&address, length) != 0) {
        (void)close(descriptor);
        return -1;
    }
    return descriptor;
}

static bool piece_add(struct peer *peer, const struct iovec *pieces, int count, size_t sent)
{
    size_t length = 0;
    for (int i = 0; i < count; i++) {
        length += pieces[i].iov_len;
    }
    if (sent == length) {
        return true;
    }
    struct piece *piece = malloc(sizeof(*piece) + length);
    if (piece == NULL) {
        return false;
    }
    *piece = (struct piece){ .length = length, .sent = sent };
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        memcpy(piece->bytes + at, pieces[i].iov_base, pieces[i].iov_len);
        at += pieces[i].iov_len;
    }
    struct piece **end = &peer->pieces;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = piece;
    return true;
}

static bool send_list(struct sim_net *net, struct peer *peer, struct iovec *pieces, int count)
{
    bool idle = peer->pieces == NULL;
    ssize_t sent = 0;
    if (idle) {
        struct msghdr message = { .msg_iov = pieces, .msg_iovlen = (size_t)count };
        sent = sendmsg(peer->descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN) {
            return false;
        }
        sent = sent < 0 ? 0 : sent;
    }
    if (!piece_add(peer, pieces, count, (size_t)sent)) {
        return false;
    }
    if (idle && peer->pieces != NULL) {
        (void)watch(net, peer, EPOLLOUT | EPOLLRDHUP, EPOLL_CTL_MOD);
    }
    return true;
}

static bool send_frame(struct sim_net *net, struct peer *peer, enum sim_packet_kind kind,
                       const void *header, size_t header_size, const struct sim_bytes *bytes)
{
    struct frame frame = { .kind = kind, .header_size = (uint32_t)header_size };
    struct iovec pieces[SIM_PIECES_MAX + 2] = { { &frame, sizeof(frame) },
                                                { (void *)(uintptr_t)header, header_size } };
    int count = 2;
    for (int i = 0; bytes != NULL && i < bytes->count; i++) {
        frame.length += bytes->pieces[i].iov_len;
        pieces[count++] = bytes->pieces[i];
    }
    return send_list(net, peer, pieces, count);
}

static bool say_hello(struct sim_net *net, struct peer *peer, bool lasting)
{
    struct hello hello = {
        .request_size = sizeof(struct sim_request),
        .answer_size = sizeof(struct sim_answer),
        .cm_size = (uint32_t)sim_cm_message_size(),
        .slot = net->slot,
        .lasting = lasting,
    };
    return send_frame(net, peer, SIM_PACKET_HELLO, &hello, sizeof(hello), NULL);
}

static struct peer *outgoing(struct sim_net *net, uint16_t slot)
{
    if (slot >= SIM_SLOTS || net->outgoing[slot] != NULL) {
        return slot < SIM_SLOTS ? net->outgoing[slot] : NULL;
    }
    int descriptor = dial(net, "slot", slot);
    struct peer *peer = descriptor >= 0 ? peer_make(net, ROLE_OUT, descriptor, EPOLLRDHUP) : NULL;
    if (peer == NULL) {
        if (descriptor >= 0) {
            (void)close(descriptor);
        }
        return NULL;
    }
    peer->slot = slot;
    net->outgoing[slot] = peer;
    return say_hello(net, peer, true) ? peer : NULL;
}

bool sim_net_send(struct sim_net *net, uint16_t slot, enum sim_packet_kind kind, const void *header,
                  size_t header_size, const struct sim_bytes *bytes)
{
    struct peer *peer = net->world->dead ? NULL : outgoing(net, slot);
    return peer != NULL && send_frame(net, peer, kind, header, header_size, bytes);
}

bool sim_net_send_to_port(struct sim_net *net, uint16_t port, const void *header, size_t header_size)
{
    int descriptor = net->world->dead ? -1 : dial(net, "port", port);
    if (descriptor < 0) {
        return false;
    }
    /* Two small frames always fit into an empty socket. */
    struct peer once = { .role = ROLE_OUT, .descriptor = descriptor };
    bool sent = say_hello(net, &once, false) &&
                send_frame(net, &once, SIM_PACKET_CM, header, header_size, NULL);
    bool whole = once.pieces == NULL;
    pieces_free(&once);
    (void)close(descriptor);
    return sent && whole;
}

static void write_more(struct sim_net *net, struct peer *peer)
{
    while (peer->pieces != NULL) {
        struct piece *piece = peer->pieces;
        ssize_t sent = send(peer->descriptor, piece->bytes + piece->sent,
                            piece->length - piece->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            return;
        }
        piece->sent += (size_t)sent;
        if (piece->sent == piece->length) {
            peer->pieces = piece->next;
            free(piece);
        }
    }
    (void)watch(net, peer, EPOLLRDHUP, EPOLL_CTL_MOD);
}

/* ------------------------------------------------------------------------------------ receiving */

static void slot_gone(struct sim_net *net, uint16_t slot)
{
    struct sim_world *world = net->world;
    struct sim_host *host = world->hosts;
    if (net->outgoing[slot] != NULL) {
        retire(net, net->outgoing[slot]);
        net->outgoing[slot] = NULL;
    }
    for (uint32_t i = 0; host != NULL && i < host->qps_room; i++) {
        struct sim_qp *qp = host->qps[i];
        if (qp == NULL || qp->attr.dest_qp_num >> SIM_SLOT_BITS != slot) {
            continue;
        }
        if (sim_is_iwarp(qp->device)) {
            struct sim_answer end = { .code = SIM_ANSWER_TERMINATE };
            sim_requester_answer(qp, &end, NULL);
        } else {
            sim_qp_peer_gone(qp);
        }
    }
    sim_cm_slot_gone(world, slot);
}

static bool hello_arrived(struct peer *peer)
{
    struct hello hello;
    memcpy(&hello, peer->header, sizeof(hello));
    if (hello.request_size != sizeof(struct sim_request) ||
        hello.answer_size != sizeof(struct sim_answer) || hello.cm_size != sim_cm_message_size() ||
        hello.slot >= SIM_SLOTS) {
        (void)fprintf(stderr,
                      "sim_verbs: a process with another version of the simulator is on this "
                      "net; give each its own net= in SIM_VERBS\n");
        return false;
    }
    peer->slot = hello.slot;
    peer->lasting = hello.lasting != 0;
    return true;
}

static bool frame_arrived(struct sim_net *net, struct peer *peer)
{
    struct sim_world *world = net->world;
    if (peer->frame.kind == SIM_PACKET_HELLO) {
        return hello_arrived(peer);
    }
    sim_lock(world);
    if (peer->frame.kind == SIM_PACKET_CM) {
        sim_cm_arrived(world, (const void *)peer->header);
    } else {
        sim_carry_arrived(world, (enum sim_packet_kind)peer->frame.kind, peer->header, peer->bytes,
                          peer->frame.length);
    }
    (void)sim_run_due(world);
    sim_unlock(world);
    return true;
}

static bool frame_sane(const struct frame *frame)
{
    return frame->kind <= SIM_PACKET_HELLO && frame->header_size <= HEADER_MAX &&
           frame->length <= (uint64_t)1 << 32;
}

/* Destination of the next bytes of the frame, and how many are missing there. */
static uint8_t *frame_gap(struct peer *peer, size_t *missing)
{
    size_t at = peer->taken;
    if (at < sizeof(peer->frame)) {
        *missing = sizeof(peer->frame) - at;
        return (uint8_t *)&peer->frame + at;
    }
    at -= sizeof(peer->frame);
    if (at < peer->frame.header_size) {
        *missing = peer->frame.header_size - at;
        return peer->header + at;
    }
    at -= peer->frame.header_size;
    *missing = peer->frame.length - at;
    return peer->bytes + at;
}

static bool frame_step(struct sim_net *net, struct peer *peer, size_t got)
{
    peer->taken += got;
    if (peer->taken == sizeof(peer->frame)) {
        if (!frame_sane(&peer->frame)) {
            return false;
        }
        peer->bytes = peer->frame.length > 0 ? malloc(peer->frame.length) : NULL;
        if (peer->frame.length > 0 && peer->bytes == NULL) {
            return false;
        }
    }
    if (peer->taken < sizeof(peer->frame) ||
        peer->taken < sizeof(peer->frame) + peer->frame.header_size + peer->frame.length) {
        return true;
    }
    bool good = frame_arrived(net, peer);
    free(peer->bytes);
    peer->bytes = NULL;
    peer->taken = 0;
    return good;
}

/* False: the peer is gone, or its bytes are invalid. */
static bool read_more(struct sim_net *net, struct peer *peer)
{
    size_t budget = READ_BUDGET;
    while (budget > 0) {
        size_t missing;
        uint8_t *gap = frame_gap(peer, &missing);
        size_t wanted = missing < budget ? missing : budget;
        ssize_t got = recv(peer->descriptor, gap, wanted, MSG_DONTWAIT);
        if (got < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        if (got == 0 || !frame_step(net, peer, (size_t)got)) {
            return false;
        }
        budget -= (size_t)got;
    }
    return true;
}

static bool is_ours(int descriptor)
{
    struct ucred who;
    socklen_t size = sizeof(who);
    return getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
           who.uid == geteuid();
}

static void accept_all(struct sim_net *net, const struct peer *listener)
{
    for (;;) {
        int descriptor = accept4(listener->descriptor, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (descriptor < 0) {
            return;
        }
        struct peer *peer = is_ours(descriptor)
                                ? peer_make(net, ROLE_IN, descriptor, EPOLLIN | EPOLLRDHUP)
                                : NULL;
        if (peer == NULL) {
            (void)close(descriptor);
            continue;
        }
        peer->next = net->incoming;
        net->incoming = peer;
    }
}

static void incoming_end(struct sim_net *net, struct peer *peer)
{
    struct peer **at = &net->incoming;
    while (*at != peer) {
        at = &(*at)->next;
    }
    *at = peer->next;
    if (peer->lasting) {
        slot_gone(net, peer->slot);
    }
    /* A child that was just forked may still have it open: closing it then leaves the watch. */
    (void)epoll_ctl(net->epoll, EPOLL_CTL_DEL, peer->descriptor, NULL);
    peer_free(peer);
}

/* --------------------------------------------------------------------------------------- thread */

static void arm(struct sim_net *net, uint64_t at)
{
    uint64_t when = at + net->world->real_start;
    struct itimerspec time = { .it_value = { .tv_sec = (time_t)(when / 1000000000U),
                                             .tv_nsec = (long)(when % 1000000000U) } };
    if (at == SIM_FOREVER) {
        memset(&time, 0, sizeof(time));
    }
    (void)timerfd_settime(net->timer.descriptor, TFD_TIMER_ABSTIME, &time, NULL);
}

void sim_net_wake(struct sim_net *net, uint64_t at)
{
    if (!net->world->dead) {
        arm(net, at);
    }
}

static void empty(int descriptor)
{
    uint64_t count;
    (void)!read(descriptor, &count, sizeof(count));
}

static void handle(struct sim_net *net, const struct epoll_event *event)
{
    struct peer *peer = event->data.ptr;
    struct sim_world *world = net->world;
    if (peer->role == ROLE_IN) {
        /* Only this thread reads: arriving bytes are copied without delaying the programs. */
        if (!read_more(net, peer)) {
            sim_lock(world);
            incoming_end(net, peer);
            sim_unlock(world);
        }
        return;
    }
    sim_lock(world);
    enum role role = peer->descriptor >= 0 ? peer->role : ROLE_IN; /* retired meanwhile: nothing */
    switch (role) {
    case ROLE_TIMER:
    case ROLE_WAKE:
        empty(peer->descriptor);
        break;
    case ROLE_LISTENER:
        accept_all(net, peer);
        break;
    case ROLE_OUT:
        if ((event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
            slot_gone(net, peer->slot);
        } else {
            write_more(net, peer);
        }
        break;
    case ROLE_IN:
        break;
    }
    sim_unlock(world);
}

static void free_retired(struct sim_net *net)
{
    while (net->retired != NULL) {
        struct peer *peer = net->retired;
        net->retired = peer->next;
        peer_free(peer);
    }
}

static void *device_thread(void *argument)
{
    struct sim_net *net = argument;
    (void)pthread_setname_np(pthread_self(), "sim-device");
    struct sim_world *world = net->world;
    struct epoll_event events[DESCRIPTORS];
    for (;;) {
        atomic_store_explicit(&world->net_works, false, memory_order_relaxed);
        int count = epoll_wait(net->epoll, events, DESCRIPTORS, -1);
        atomic_store_explicit(&world->net_works, true, memory_order_relaxed);
        for (int i = 0; i < count; i++) {
            handle(net, &events[i]);
        }
        sim_lock(world);
        free_retired(net);
        (void)sim_run_due(world);
        arm(net, world->heap_count > 0 ? world->heap[1]->time : SIM_FOREVER);
        bool stopping = net->stopping;
        sim_unlock(world);
        if (stopping) {
            return NULL;
        }
    }
}

/* -------------------------------------------------------------------------------- start and end */

static bool slot_take(struct sim_net *net)
{
    /* A new number each time: messages to the previous owner must not be taken for this one's. */
    static unsigned int times;
    unsigned int first = ((unsigned int)getpid() + 61 * times++) % (SIM_SLOTS - 1);
    for (unsigned int tried = 0; tried < SIM_SLOTS - 1; tried++) {
        unsigned int slot = 1 + (first + tried) % (SIM_SLOTS - 1);
        if (listen_at(net, "slot", slot) != NULL) {
            net->slot = (uint16_t)slot;
            return true;
        }
    }
    sim_set_error("net '%s': no free place among %d processes", net->name, SIM_SLOTS - 1);
    return false;
}

/* Acknowledged bytes are on the wire, even if the program ends: writes them out. */
static void write_out(struct peer *peer)
{
    enum { PATIENCE_MS = 1000 };
    while (peer->pieces != NULL) {
        struct piece *piece = peer->pieces;
        struct pollfd writable = { .fd = peer->descriptor, .events = POLLOUT };
        if (poll(&writable, 1, PATIENCE_MS) != 1) {
            return;
        }
        ssize_t sent = send(peer->descriptor, piece->bytes + piece->sent,
                            piece->length - piece->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN) {
            return;
        }
        piece->sent += sent > 0 ? (size_t)sent : 0;
        if (piece->sent == piece->length) {
            peer->pieces = piece->next;
            free(piece);
        }
    }
}

static void net_free(struct sim_net *net)
{
    while (net->listeners != NULL) {
        struct peer *peer = net->listeners;
        net->listeners = peer->next;
        peer_free(peer);
    }
    while (net->incoming != NULL) {
        struct peer *peer = net->incoming;
        net->incoming = peer->next;
        peer_free(peer);
    }
    for (size_t i = 0; i < SIM_SLOTS; i++) {
        if (net->outgoing[i] != NULL) {
            write_out(net->outgoing[i]);
            peer_free(net->outgoing[i]);
        }
    }
    free_retired(net);
    int descriptors[] = { net->timer.descriptor, net->wake.descriptor, net->epoll };
    for (size_t i = 0; i < SIM_COUNT_OF(descriptors); i++) {
        if (descriptors[i] >= 0) {
            (void)close(descriptors[i]);
        }
    }
    free(net);
}

static bool descriptors_make(struct sim_net *net)
{
    net->epoll = epoll_create1(EPOLL_CLOEXEC);
    net->timer = (struct peer){ .role = ROLE_TIMER,
                                .descriptor = timerfd_create(CLOCK_MONOTONIC,
                                                             TFD_CLOEXEC | TFD_NONBLOCK) };
    net->wake = (struct peer){ .role = ROLE_WAKE,
                               .descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
    if (net->epoll < 0 || net->timer.descriptor < 0 || net->wake.descriptor < 0 ||
        !watch(net, &net->timer, EPOLLIN, EPOLL_CTL_ADD) ||
        !watch(net, &net->wake, EPOLLIN, EPOLL_CTL_ADD)) {
        sim_set_error("world: %s", strerror(errno));
        return false;
    }
    return true;
}

/* The program's signals go to the program's threads. */
static int thread_start(struct sim_net *net)
{
    sigset_t all;
    sigset_t kept;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &kept);
    int error = pthread_create(&net->thread, NULL, device_thread, net);
    (void)pthread_sigmask(SIG_SETMASK, &kept, NULL);
    return error;
}

struct sim_net *sim_net_start(struct sim_world *world, uint16_t *slot)
{
    struct sim_net *net = calloc(1, sizeof(*net));
    if (net == NULL) {
        sim_set_error("world: out of memory");
        return NULL;
    }
    net->world = world;
    net->meets_others = slot != NULL;
    (void)snprintf(net->name, sizeof(net->name), "%s", world->options.net);
    if (!descriptors_make(net) || (slot != NULL && !slot_take(net))) {
        net_free(net);
        return NULL;
    }
    int error = thread_start(net);
    if (error != 0) {
        sim_set_error("world: thread: %s", strerror(error));
        net_free(net);
        return NULL;
    }
    if (slot != NULL) {
        *slot = net->slot;
    }
    return net;
}

void sim_net_stop(struct sim_net *net)
{
    if (net == NULL) {
        return;
    }
    sim_lock(net->world);
    net->stopping = true;
    sim_unlock(net->world);
    sim_event_tell(net->wake.descriptor);
    (void)pthread_join(net->thread, NULL);
    net_free(net);
}

void sim_net_forked(struct sim_net *net)
{
    /* The thread does not exist in the child; its memory stays as it is, only sockets are
     * closed. */
    for (struct peer *at = net->listeners; at != NULL; at = at->next) {
        (void)close(at->descriptor);
    }
    for (struct peer *at = net->incoming; at != NULL; at = at->next) {
        (void)close(at->descriptor);
    }
    for (size_t i = 0; i < SIM_SLOTS; i++) {
        if (net->outgoing[i] != NULL) {
            (void)close(net->outgoing[i]->descriptor);
        }
    }
}
