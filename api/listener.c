/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Listeners: one TCP address for all paths.
 *
 * The service thread accepts sockets and reads exactly what each says first: HELLO and OFFER of a
 * connection, which then waits to be shown and taken; or JOIN, which is handed to the cq of the
 * connection with that secret. Strangers cost one small record each until they have said something
 * sensible; when there are too many, or too many of one address, the oldest silent one goes. Where the
 * fabric authenticates, only the HELLO comes in clear, and all else through the session.
 *
 * A plain listener has its provider's instead of a socket, and calls instead of strangers' sockets; they
 * have introduced themselves when they come.
 */
#include "api/listener.h"

#include "api/address.h"
#include "api/plain.h"
#include "negotiation/auth_methods.h"
#include "negotiation/path_secret.h"
#include "negotiation/tls.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    DEFAULT_BACKLOG = 1024,
    DEFAULT_MAX_PENDING = 4096,
    MIN_PER_ADDRESS = 256, /* unless the program says so */
    DEFAULT_HELLO_TIMEOUT_MS = 5000,
    ACCEPTS_PER_EVENT = 64,
    FIRST_SIZE = 128, /* room in the record itself: a HELLO or a JOIN */
    /* Bytes of an OFFER that a stranger may have us keep: more than 32 paths take with all their
     * texts. */
    STRANGERS_OFFER_MAX = 48 << 10,
    IGNORED_MAX = 64 << 10, /* bytes dropped of one that was turned away, until it leaves */
    ADDRESSES = 1024,       /* buckets that strangers are counted in, by address */
    TIMER_NS = 100 * 1000 * 1000,
};

/* A connection nobody has taken yet. */
struct stranger {
    struct rdmux_watch watch;
    struct rdmux_list link; /* listener->silent or listener->introduced */
    struct rdmux_listener *listener;
    struct rdmux_plain_call *call; /* then there is no socket */
    int socket;
    struct rdmux_list address_link; /* listener->addresses, while it is silent */
    struct rdmux_tls *tls;          /* NULL: in clear */
    uint32_t events;                /* that are watched */
    uint32_t bucket;                /* of its address */
    bool introduced;
    bool shown;
    bool turned_away; /* and told so: what it says is dropped until it leaves */
    size_t ignored;   /* bytes of it */
    uint64_t id;
    uint64_t deadline_ns;
    struct sockaddr_storage address;
    socklen_t address_length;
    uint8_t first[FIRST_SIZE];
    uint8_t *bytes; /* first, or an allocation once an OFFER is known to come */
    size_t have;
    size_t hello_size; /* bytes of the HELLO at the beginning, 0 while it is not complete */
    uint32_t private_length;
    uint8_t private_data[RDMUX_PRIVATE_DATA_MAX];
};

struct rdmux_listener {
    struct rdmux_watch watch;
    struct rdmux_fabric *fabric;
    struct rdmux_plain_listener *plain; /* its provider's; then there is no socket; step_lock */
    struct rdmux_list link;             /* fabric->listeners; fabric->lock, like all below */
    int socket;
    int event_fd;
    /* Given up for a moment when descriptors run out, so that a connection can be refused. */
    int spare_fd;
    char address[RDMUX_ADDRESS_MAX];
    char paths[256];
    uint32_t max_pending;
    uint32_t hello_timeout_ms;
    uint32_t max_per_address;
    uint64_t address_seed; /* so that nobody chooses whom he shares a bucket with */
    /* Silent ones by address, oldest first. step_lock. */
    struct {
        struct rdmux_list strangers;
        uint32_t count;
    } addresses[ADDRESSES];
    uint32_t count; /* strangers */
    uint32_t unshown;
    int proved;
    uint32_t refs; /* endpoints in set-up, and the application's handle */
    bool closed;
    bool readable;
    /* step_lock: not watched until the next timer, as there is no descriptor for anybody. */
    bool resting;
    struct rdmux_list silent;     /* oldest first */
    struct rdmux_list introduced; /* oldest first */
    pthread_cond_t changed;
    struct rdmux_list waits; /* rdmux_accept_wait */
};

/* The descriptor follows: readable while something is neither shown nor taken, or proved and not
 * returned. */
static void update_descriptor(struct rdmux_listener *listener)
{
    bool wanted = listener->unshown != 0 || listener->proved > 0;
    if (wanted && !listener->readable) {
        uint64_t one = 1;
        ssize_t written = write(listener->event_fd, &one, sizeof(one));
        (void)written;
    } else if (!wanted && listener->readable) {
        uint64_t count;
        ssize_t taken = read(listener->event_fd, &count, sizeof(count));
        (void)taken;
    }
    listener->readable = wanted;
}

/* Makes accept calls look whether there is something for them; fabric->lock is held. */
static void poke_waits(struct rdmux_listener *listener)
{
    for (struct rdmux_list *at = listener->waits.next; at != &listener->waits; at = at->next) {
        rdmux_cq_poke(RDMUX_CONTAINER(at, struct rdmux_accept_wait, link)->cq);
    }
}

/* ------------------------------------------------------------------------------------ addresses */

/* What strangers are told apart by: an IPv4 address, or the part of an IPv6 one that a network has,
 * which hands out the rest at will. */
static uint64_t network_of(const struct sockaddr_storage *address)
{
    uint64_t network = 0;
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        network = in->sin_addr.s_addr;
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
            memcpy(&network, in6->sin6_addr.s6_addr + 12, sizeof(in_addr_t));
        } else {
            memcpy(&network, in6->sin6_addr.s6_addr, sizeof(network));
        }
    }
    return network;
}

/* One step of SplitMix64 for each word: who does not know the seed cannot tell who shares a bucket. */
static uint32_t bucket_of(const struct rdmux_listener *listener,
                          const struct sockaddr_storage *address)
{
    uint64_t mixed = network_of(address) ^ listener->address_seed;
    for (int i = 0; i < 2; i++) {
        mixed += UINT64_C(0x9e3779b97f4a7c15) ^ listener->address_seed;
        mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
        mixed ^= mixed >> 31;
    }
    return (uint32_t)(mixed % ADDRESSES);
}

static void count_silent(struct stranger *stranger)
{
    struct rdmux_listener *listener = stranger->listener;
    stranger->bucket = bucket_of(listener, &stranger->address);
    rdmux_list_append(&listener->addresses[stranger->bucket].strangers, &stranger->address_link);
    listener->addresses[stranger->bucket].count++;
}

/* It is silent no more. */
static void uncount_silent(struct stranger *stranger)
{
    if (!rdmux_list_empty(&stranger->address_link)) {
        rdmux_list_remove(&stranger->address_link);
        stranger->listener->addresses[stranger->bucket].count--;
    }
}

/* ------------------------------------------------------------------------------------ strangers */

/* Takes it off its list; fabric->lock is held. */
static void unlink_stranger(struct stranger *stranger)
{
    struct rdmux_listener *listener = stranger->listener;
    uncount_silent(stranger);
    rdmux_list_remove(&stranger->link);
    listener->count--;
    if (stranger->introduced && !stranger->shown) {
        listener->unshown--;
        update_descriptor(listener);
    }
}

/* Its connection ends. */
static void hang_up(struct stranger *stranger)
{
    if (stranger->call != NULL) {
        stranger->call->ops->call_drop(stranger->call, 0, NULL, 0);
        stranger->call = NULL;
    } else {
        close(stranger->socket);
    }
}

static void free_stranger(struct stranger *stranger)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    rdmux_tls_destroy(stranger->tls);
    if (stranger->bytes != stranger->first) {
        rdmux_release(fabric, stranger->bytes);
    }
    rdmux_release(fabric, stranger);
}

static void unwatch(struct stranger *stranger)
{
    if (stranger->call == NULL) {
        rdmux_service_unwatch(stranger->listener->fabric, stranger->socket, &stranger->watch);
    }
}

static void address_of(struct stranger *stranger, char out[RDMUX_ADDRESS_MAX])
{
    if (stranger->call != NULL) {
        memcpy(out, stranger->call->peer_address, RDMUX_ADDRESS_MAX);
    } else {
        rdmux_address_format((struct sockaddr *)&stranger->address, stranger->address_length, out);
    }
}

static void drop_stranger(struct stranger *stranger, const char *why)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    char from[RDMUX_ADDRESS_MAX];
    address_of(stranger, from);
    if (why != NULL) {
        rdmux_log(fabric, RDMUX_LOG_WARN, "listener %s: connection from %s: %s; dropped",
                  stranger->listener->address, from, why);
    }
    unwatch(stranger);
    pthread_mutex_lock(&fabric->lock);
    unlink_stranger(stranger);
    pthread_mutex_unlock(&fabric->lock);
    hang_up(stranger);
    free_stranger(stranger);
}

static void drop_oldest_silent(struct rdmux_listener *listener, const char *why)
{
    if (!rdmux_list_empty(&listener->silent)) {
        drop_stranger(RDMUX_CONTAINER(listener->silent.next, struct stranger, link), why);
    }
}

/* Is it the one that the socket joins? Where peers authenticate, no JOIN shows a secret. */
static bool is_joined(const struct rdmux_ep *ep, const struct rdmux_join *join)
{
    if (ep->fabric->auth == NULL) {
        return !join->sealed && rdmux_secret_matches(ep->secret, join->secret);
    }
    return rdmux_secret_matches(ep->join_name, join->secret) &&
           rdmux_join_is_sealed_by(join, ep->secret);
}

/* The endpoint in set-up that the socket joins; cq NULL: on any queue. fabric->lock is held. */
static struct rdmux_ep *find_join(struct rdmux_fabric *fabric, const struct rdmux_cq *cq,
                                  const struct rdmux_join *join)
{
    for (struct rdmux_list *at = fabric->joins.next; at != &fabric->joins; at = at->next) {
        struct rdmux_ep *ep = RDMUX_CONTAINER(at, struct rdmux_ep, join_link);
        if ((cq == NULL || ep->cq == cq) && is_joined(ep, join)) {
            return ep;
        }
    }
    return NULL;
}

struct rdmux_ep *rdmux_joins_find(struct rdmux_cq *cq, const struct rdmux_join *join)
{
    pthread_mutex_lock(&cq->fabric->lock);
    struct rdmux_ep *ep = find_join(cq->fabric, cq, join);
    pthread_mutex_unlock(&cq->fabric->lock);
    return ep;
}

/* A JOIN: the socket belongs to the connection with this secret. */
static void hand_over_join(struct stranger *stranger)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    struct rdmux_join join;
    if (rdmux_join_decode(stranger->bytes, &join) != RDMUX_OK) {
        drop_stranger(stranger, "says JOIN, but not as the protocol does");
        return;
    }
    struct rdmux_join_mail *mail = rdmux_allocate(fabric, sizeof(*mail));
    if (mail == NULL) {
        drop_stranger(stranger, "out of memory");
        return;
    }
    rdmux_service_unwatch(fabric, stranger->socket, &stranger->watch);
    mail->mail.deliver = rdmux_ep_deliver_join;
    mail->fabric = fabric;
    mail->join = join;
    mail->socket = stranger->socket;
    pthread_mutex_lock(&fabric->lock);
    const struct rdmux_ep *ep = find_join(fabric, NULL, &join);
    if (ep != NULL) {
        rdmux_cq_mail(ep->cq, &mail->mail);
    }
    unlink_stranger(stranger);
    pthread_mutex_unlock(&fabric->lock);
    if (ep == NULL) {
        rdmux_log(fabric, RDMUX_LOG_WARN,
                  "listener %s: a socket joins a connection that is not there; dropped",
                  stranger->listener->address);
        close(stranger->socket);
        rdmux_release(fabric, mail);
    }
    free_stranger(stranger);
}

/* As send(2), all or nothing: a few KiB on a fresh socket, so only a dead peer is in the way. */
static bool say(struct stranger *stranger, const uint8_t *bytes, size_t size)
{
    if (stranger->tls == NULL) {
        return send(stranger->socket, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
    }
    while (size != 0) {
        size_t done = 0;
        if (rdmux_tls_send(stranger->tls, bytes, size, &done) != RDMUX_OK) {
            return false;
        }
        bytes += done;
        size -= done;
    }
    return true;
}

/* `rdmux explain`: ranked and answered here, nothing is connected. */
static void answer_explain(struct stranger *stranger)
{
    struct rdmux_listener *listener = stranger->listener;
    struct rdmux_fabric *fabric = listener->fabric;
    struct rdmux_offer *offer = rdmux_allocate(fabric, sizeof(*offer));
    void *memory = rdmux_allocate(fabric, rdmux_handshake_size());
    struct rdmux_handshake *handshake = NULL;
    if (offer != NULL && memory != NULL) {
        struct rdmux_handshake_config config = {
            .role = RDMUX_ROLE_ACCEPT,
            .hello_timeout_ms = listener->hello_timeout_ms,
            .offer = offer,
            .received = stranger->bytes,
            .received_size = stranger->have,
            .secured = stranger->tls != NULL,
        };
        rdmux_offer_defaults(fabric, listener->paths, offer);
        rdmux_hello_fill(fabric, &config.hello);
        if (rdmux_handshake_init(memory, &config, rdmux_now(fabric), &handshake) == RDMUX_OK) {
            struct rdmux_handshake_action action;
            for (rdmux_handshake_next(handshake, &action); action.kind == RDMUX_ACTION_SEND;
                 rdmux_handshake_next(handshake, &action)) {
                if (!say(stranger, action.bytes, action.size)) {
                    break;
                }
            }
        }
    }
    rdmux_release(fabric, memory);
    rdmux_release(fabric, offer);
    drop_stranger(stranger, NULL);
}

/* It may be shown and taken. */
static void becomes_known(struct stranger *stranger)
{
    struct rdmux_listener *listener = stranger->listener;
    struct rdmux_fabric *fabric = listener->fabric;
    pthread_mutex_lock(&fabric->lock);
    uncount_silent(stranger);
    rdmux_list_remove(&stranger->link);
    rdmux_list_append(&listener->introduced, &stranger->link);
    stranger->introduced = true;
    listener->unshown++;
    update_descriptor(listener);
    pthread_cond_broadcast(&listener->changed);
    poke_waits(listener);
    pthread_mutex_unlock(&fabric->lock);
}

/* HELLO and OFFER are here. */
static void introduce(struct stranger *stranger)
{
    struct rdmux_listener *listener = stranger->listener;
    struct rdmux_fabric *fabric = listener->fabric;
    struct rdmux_hello hello;
    if (stranger->bytes[stranger->hello_size] != RDMUX_FRAME_OFFER) {
        drop_stranger(stranger, "its second frame is no OFFER");
        return;
    }
    if (rdmux_hello_decode(stranger->bytes, stranger->hello_size, &hello) == RDMUX_OK &&
        (hello.flags & RDMUX_HELLO_EXPLAIN_ONLY) != 0) {
        answer_explain(stranger);
        return;
    }
    struct rdmux_offer *offer = rdmux_allocate(fabric, sizeof(*offer));
    if (offer == NULL) {
        drop_stranger(stranger, "out of memory");
        return;
    }
    size_t offer_at = stranger->hello_size + RDMUX_FRAME_HEADER_SIZE;
    enum rdmux_status status = rdmux_offer_decode(stranger->bytes + offer_at,
                                                  stranger->have - offer_at, offer);
    if (status == RDMUX_OK) {
        stranger->private_length = offer->private_length;
        memcpy(stranger->private_data, offer->private_data, sizeof(stranger->private_data));
    }
    rdmux_release(fabric, offer);
    if (status != RDMUX_OK) {
        drop_stranger(stranger, "its OFFER breaks the protocol");
        return;
    }
    becomes_known(stranger);
}

/* It has been told so. It has until its time is over to leave: a socket that is closed with bytes
 * unread would take the answer back. */
static void turn_away(struct stranger *stranger, const char *why)
{
    struct rdmux_listener *listener = stranger->listener;
    char from[RDMUX_ADDRESS_MAX];
    address_of(stranger, from);
    rdmux_log(listener->fabric, RDMUX_LOG_WARN, "listener %s: connection from %s: %s; turned away",
              listener->address, from, why);
    (void)shutdown(stranger->socket, SHUT_WR);
    rdmux_tls_destroy(stranger->tls);
    stranger->tls = NULL;
    stranger->turned_away = true;
}

/* Its methods are not ours: it is told ours, in clear. */
static void turn_away_other_methods(struct stranger *stranger, uint32_t theirs)
{
    struct rdmux_listener *listener = stranger->listener;
    struct rdmux_hello hello;
    uint8_t bytes[RDMUX_HELLO_SIZE];
    char text[RDMUX_TEXT_MAX];
    char why[RDMUX_ERROR_MAX];
    rdmux_hello_fill(listener->fabric, &hello);
    rdmux_hello_encode(&hello, bytes);
    (void)say(stranger, bytes, sizeof(bytes)); /* one that is gone needs no answer */
    rdmux_auth_explain_mismatch(hello.authentication, theirs, text, sizeof(text));
    snprintf(why, sizeof(why), "authentication: %s", text);
    turn_away(stranger, why);
}

/* Drops what one that was turned away says. Returns false if it is gone. */
static bool ignore(struct stranger *stranger)
{
    uint8_t waste[1024];
    for (;;) {
        ssize_t got = recv(stranger->socket, waste, sizeof(waste), MSG_DONTWAIT);
        if (got > 0) {
            stranger->ignored += (size_t)got;
        }
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return true;
        }
        if (got == 0 || (got < 0 && errno != EINTR) || stranger->ignored > IGNORED_MAX) {
            drop_stranger(stranger, NULL);
            return false;
        }
    }
}

/* Its HELLO in clear is here: what follows? Returns false if it is gone. */
static bool greet(struct stranger *stranger)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    uint32_t ours = rdmux_auth_methods(fabric->auth);
    struct rdmux_hello hello;
    bool understood = rdmux_hello_decode(stranger->bytes, RDMUX_HELLO_SIZE, &hello) == RDMUX_OK;
    if (!understood && ours != 0) {
        drop_stranger(stranger, "says HELLO, but not as the protocol does");
        return false;
    }
    if (!understood) {
        return true; /* such as another byte order: the handshake says so */
    }
    if ((hello.authentication & ours) == 0 && (hello.authentication | ours) != 0) {
        turn_away_other_methods(stranger, hello.authentication);
        return ignore(stranger);
    }
    if (ours == 0) {
        return true;
    }
    if (rdmux_tls_create(fabric->auth, RDMUX_ROLE_ACCEPT, stranger->socket, NULL, &stranger->tls) !=
        RDMUX_OK) {
        drop_stranger(stranger, "out of memory");
        return false;
    }
    rdmux_tls_greeted(stranger->tls, stranger->bytes);
    stranger->have = 0;
    stranger->hello_size = 0;
    return true;
}

/* As recv(2), through the session if there is one. EPROTO: it is none of ours, the error text tells
 * why. */
static ssize_t hear(struct stranger *stranger, uint8_t *out, size_t size)
{
    if (stranger->tls == NULL) {
        return recv(stranger->socket, out, size, 0);
    }
    size_t got = 0;
    switch (rdmux_tls_receive(stranger->tls, out, size, &got)) {
    case RDMUX_OK:
        return (ssize_t)got;
    case RDMUX_AGAIN:
        errno = EAGAIN;
        return -1;
    case RDMUX_PEER_GONE:
        return 0;
    default:
        errno = EPROTO;
        return -1;
    }
}

/* Nothing more for now: watches for what it needs to go on. Returns false if it is gone. */
static bool await_more(struct stranger *stranger)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    bool room = stranger->tls != NULL && rdmux_tls_wants_room(stranger->tls);
    uint32_t events = room ? EPOLLIN | EPOLLOUT : EPOLLIN;
    if (events == stranger->events) {
        return true;
    }
    rdmux_service_unwatch(fabric, stranger->socket, &stranger->watch);
    if (rdmux_service_watch(fabric, stranger->socket, events, &stranger->watch) != RDMUX_OK) {
        drop_stranger(stranger, "cannot be watched");
        return false;
    }
    stranger->events = events;
    return true;
}

/* It has broken off, or is none of ours. Returns false if it is gone. */
static bool end_failed(struct stranger *stranger, ssize_t got)
{
    if (got < 0 && errno == EPROTO && stranger->tls != NULL) {
        char why[RDMUX_ERROR_MAX];
        snprintf(why, sizeof(why), "%s", rdmux_last_error());
        turn_away(stranger, why);
        return ignore(stranger);
    }
    drop_stranger(stranger, stranger->have == 0 && stranger->tls == NULL
                                ? NULL
                                : "ended before it had introduced itself");
    return false;
}

/* Reads no further than HELLO and OFFER, or JOIN. Returns false if the stranger is gone. */
static bool read_stranger(struct stranger *stranger)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    for (;;) {
        bool bad = false;
        if (stranger->turned_away) {
            return ignore(stranger);
        }
        size_t part = stranger->have - stranger->hello_size;
        size_t total = rdmux_frame_total(stranger->bytes + stranger->hello_size, part,
                                         stranger->hello_size == 0, &bad);
        if (bad || total > STRANGERS_OFFER_MAX) {
            drop_stranger(stranger, "does not speak this protocol");
            return false;
        }
        size_t want = total == 0 ? RDMUX_FRAME_HEADER_SIZE : total;
        if (total != 0 && part == total) {
            if (stranger->hello_size != 0) {
                introduce(stranger);
                return false;
            }
            if (rdmux_frame_is_join(stranger->bytes)) {
                hand_over_join(stranger);
                return false;
            }
            stranger->hello_size = total;
            if (stranger->tls == NULL && !greet(stranger)) {
                return false;
            }
            continue;
        }
        if (stranger->hello_size + want > FIRST_SIZE && stranger->bytes == stranger->first) {
            uint8_t *bytes = rdmux_allocate(fabric, stranger->hello_size + want);
            if (bytes == NULL) {
                drop_stranger(stranger, "out of memory");
                return false;
            }
            memcpy(bytes, stranger->first, stranger->have);
            stranger->bytes = bytes;
        }
        ssize_t got = hear(stranger, stranger->bytes + stranger->have, want - part);
        if (got > 0) {
            stranger->have += (size_t)got;
        } else if (got < 0 && errno == EINTR) {
            continue;
        } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return await_more(stranger);
        } else {
            return end_failed(stranger, got);
        }
    }
}

static void stranger_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    struct stranger *stranger = RDMUX_CONTAINER(watch, struct stranger, watch);
    if (!stranger->introduced) {
        read_stranger(stranger);
        return;
    }
    /* It says more, or left, before it was taken. */
    char byte;
    ssize_t got = recv(stranger->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        drop_stranger(stranger, "left before it was accepted");
    } else if (got > 0) {
        rdmux_service_unwatch(fabric, stranger->socket, watch);
    }
}

/* ---------------------------------------------------------------------------- accepting sockets */

static bool out_of_descriptors(struct rdmux_listener *listener)
{
    if (!rdmux_list_empty(&listener->silent)) {
        drop_oldest_silent(listener, "descriptors run out, and it has said nothing");
        return true;
    }
    /* Nobody to drop: take the newcomer with the spare descriptor and turn it away, else the
     * backlog would wake us for ever. */
    int socket = -1;
    if (listener->spare_fd >= 0) {
        close(listener->spare_fd);
        socket = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    }
    if (socket >= 0) {
        close(socket);
        rdmux_log(listener->fabric, RDMUX_LOG_WARN,
                  "listener %s: descriptors run out; a connection was turned away; raise the limit "
                  "with ulimit -n",
                  listener->address);
    } else {
        /* Somebody else took the spare one. */
        rdmux_service_unwatch(listener->fabric, listener->socket, &listener->watch);
        listener->resting = true;
        rdmux_service_timer(listener->fabric, rdmux_now(listener->fabric) + TIMER_NS);
    }
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return false;
}

/* The listener was resting: are there descriptors again? */
static void watch_again(struct rdmux_listener *listener)
{
    if (listener->spare_fd < 0) {
        listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    listener->resting = listener->spare_fd < 0 ||
                        rdmux_service_watch(listener->fabric, listener->socket, EPOLLIN,
                                            &listener->watch) != RDMUX_OK;
}

static void take_newcomer(struct rdmux_listener *listener, int socket,
                          const struct sockaddr_storage *address, socklen_t address_length)
{
    struct rdmux_fabric *fabric = listener->fabric;
    struct stranger *stranger = rdmux_allocate(fabric, sizeof(*stranger));
    if (stranger == NULL) {
        close(socket);
        rdmux_log(fabric, RDMUX_LOG_ERROR,
                  "listener %s: out of memory; a connection was turned away", listener->address);
        return;
    }
    stranger->watch.ready = stranger_ready;
    stranger->events = EPOLLIN;
    rdmux_list_init(&stranger->address_link);
    stranger->listener = listener;
    stranger->socket = socket;
    stranger->bytes = stranger->first;
    stranger->address = *address;
    stranger->address_length = address_length;
    stranger->id = atomic_fetch_add(&fabric->next_id, 1);
    stranger->deadline_ns = rdmux_now(fabric) + (uint64_t)listener->hello_timeout_ms * 1000000;
    pthread_mutex_lock(&fabric->lock);
    rdmux_list_append(&listener->silent, &stranger->link);
    count_silent(stranger);
    listener->count++;
    pthread_mutex_unlock(&fabric->lock);
    int one = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (rdmux_service_watch(fabric, socket, EPOLLIN, &stranger->watch) != RDMUX_OK) {
        drop_stranger(stranger, "cannot be watched");
        return;
    }
    rdmux_service_timer(fabric, rdmux_now(fabric) + TIMER_NS);
    if (listener->addresses[stranger->bucket].count > listener->max_per_address) {
        struct rdmux_list *oldest = listener->addresses[stranger->bucket].strangers.next;
        drop_stranger(RDMUX_CONTAINER(oldest, struct stranger, address_link),
                      "too many connections of its address have not introduced themselves");
    }
    if (listener->count > listener->max_pending) {
        drop_oldest_silent(listener, "too many connections wait, and it has said nothing");
    }
}

static void listener_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    (void)fabric;
    struct rdmux_listener *listener = RDMUX_CONTAINER(watch, struct rdmux_listener, watch);
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        struct sockaddr_storage address;
        socklen_t length = sizeof(address);
        int socket = accept4(listener->socket, (struct sockaddr *)&address, &length,
                             SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket >= 0) {
            take_newcomer(listener, socket, &address, length);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (!out_of_descriptors(listener)) {
                return;
            }
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

uint64_t rdmux_listeners_timers(struct rdmux_fabric *fabric, uint64_t now_ns)
{
    bool waiting = false;
    pthread_mutex_lock(&fabric->lock);
    for (struct rdmux_list *at = fabric->listeners.next; at != &fabric->listeners; at = at->next) {
        struct rdmux_listener *listener = RDMUX_CONTAINER(at, struct rdmux_listener, link);
        if (listener->resting) {
            watch_again(listener);
            waiting = waiting || listener->resting;
        }
        while (!rdmux_list_empty(&listener->silent)) {
            struct stranger *oldest = RDMUX_CONTAINER(listener->silent.next, struct stranger, link);
            if (now_ns < oldest->deadline_ns) {
                waiting = true;
                break;
            }
            /* step_lock keeps lists and listeners where they are. */
            pthread_mutex_unlock(&fabric->lock);
            drop_stranger(oldest, "has not introduced itself in time");
            pthread_mutex_lock(&fabric->lock);
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    return waiting ? now_ns + TIMER_NS : UINT64_MAX;
}

/* --------------------------------------------------------------------------- showing and taking */

static struct stranger *find_introduced(struct rdmux_listener *listener, uint64_t id)
{
    for (struct rdmux_list *at = listener->introduced.next; at != &listener->introduced;
         at = at->next) {
        struct stranger *stranger = RDMUX_CONTAINER(at, struct stranger, link);
        if (id == 0 || stranger->id == id) {
            return stranger;
        }
    }
    return NULL;
}

/* May this call take a connection? One that has none may, one that has some only while nobody has
 * none, so that nobody is left empty-handed. fabric->lock is held. */
static bool may_take(struct rdmux_listener *listener, const struct rdmux_accept_wait *wait)
{
    for (struct rdmux_list *at = listener->waits.next; at != &listener->waits && !wait->has_none;
         at = at->next) {
        const struct rdmux_accept_wait *other = RDMUX_CONTAINER(at, struct rdmux_accept_wait, link);
        if (other->has_none) {
            return false;
        }
    }
    return true;
}

/* Unlinks an introduced stranger and stops watching it; NULL if there is none. With a wait: the
 * oldest that it may take. */
static struct stranger *take_stranger(struct rdmux_listener *listener, uint64_t id,
                                      struct rdmux_accept_wait *wait)
{
    struct rdmux_fabric *fabric = listener->fabric;
    rdmux_service_lock(fabric); /* the service thread may be about to read from it */
    pthread_mutex_lock(&fabric->lock);
    struct stranger *stranger = wait == NULL || may_take(listener, wait)
                                    ? find_introduced(listener, id)
                                    : NULL;
    if (stranger != NULL) {
        unlink_stranger(stranger);
        if (wait != NULL && wait->has_none) {
            wait->has_none = false;
            if (find_introduced(listener, 0) != NULL && may_take(listener, wait)) {
                poke_waits(listener); /* it was the last that had none: the rest is for all */
            }
        }
    }
    pthread_mutex_unlock(&fabric->lock);
    if (stranger != NULL) {
        unwatch(stranger);
    }
    rdmux_service_unlock(fabric);
    return stranger;
}

/* Hands a call over, which its listener forgets; the stranger is freed. */
static enum rdmux_status arrive_plain(struct stranger *stranger, struct rdmux_arrival *out)
{
    struct rdmux_plain_call *call = stranger->call;
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    *out = (struct rdmux_arrival){ .id = stranger->id, .call = call, .socket = -1 };
    rdmux_service_lock(fabric);
    rdmux_error_clear();
    enum rdmux_status status = call->ops->call_take(call);
    if (status != RDMUX_OK) {
        hang_up(stranger);
    }
    rdmux_service_unlock(fabric);
    free_stranger(stranger);
    return status;
}

/* Hands what the stranger said over; it is freed. */
static enum rdmux_status arrive(struct stranger *stranger, struct rdmux_arrival *out)
{
    struct rdmux_fabric *fabric = stranger->listener->fabric;
    if (stranger->call != NULL) {
        return arrive_plain(stranger, out);
    }
    out->call = NULL;
    out->received = stranger->bytes;
    if (stranger->bytes == stranger->first) {
        out->received = rdmux_allocate(fabric, stranger->have);
        if (out->received != NULL) {
            memcpy(out->received, stranger->first, stranger->have);
        }
    }
    stranger->bytes = stranger->first;
    out->tls = stranger->tls;
    stranger->tls = NULL;
    out->id = stranger->id;
    out->socket = stranger->socket;
    out->received_size = stranger->have;
    out->address = stranger->address;
    out->address_length = stranger->address_length;
    free_stranger(stranger);
    if (out->received == NULL) {
        rdmux_tls_destroy(out->tls);
        close(out->socket);
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_accept: out of memory");
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_listener_take(struct rdmux_listener *listener, uint64_t id,
                                      struct rdmux_arrival *out)
{
    struct stranger *stranger = take_stranger(listener, id, NULL);
    if (stranger == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_accept: attr.peer %llu is not a waiting connection",
                          (unsigned long long)id);
    }
    return arrive(stranger, out);
}

enum rdmux_status rdmux_listener_take_any(struct rdmux_listener *listener,
                                          struct rdmux_accept_wait *wait, struct rdmux_arrival *out)
{
    struct stranger *stranger = take_stranger(listener, 0, wait);
    return stranger == NULL ? RDMUX_AGAIN : arrive(stranger, out);
}

bool rdmux_listener_offers(struct rdmux_listener *listener, struct rdmux_accept_wait *wait,
                           bool has_none)
{
    pthread_mutex_lock(&listener->fabric->lock);
    wait->has_none = has_none;
    bool offers = find_introduced(listener, 0) != NULL && may_take(listener, wait);
    pthread_mutex_unlock(&listener->fabric->lock);
    return offers;
}

void rdmux_listener_wait_begin(struct rdmux_listener *listener, struct rdmux_accept_wait *wait)
{
    pthread_mutex_lock(&listener->fabric->lock);
    rdmux_list_append(&listener->waits, &wait->link);
    pthread_mutex_unlock(&listener->fabric->lock);
}

void rdmux_listener_wait_end(struct rdmux_listener *listener, struct rdmux_accept_wait *wait)
{
    pthread_mutex_lock(&listener->fabric->lock);
    rdmux_list_remove(&wait->link);
    if (wait->has_none && find_introduced(listener, 0) != NULL) {
        poke_waits(listener); /* what was left to this call */
    }
    pthread_mutex_unlock(&listener->fabric->lock);
}

void rdmux_listener_proved(struct rdmux_listener *listener, int change)
{
    pthread_mutex_lock(&listener->fabric->lock);
    listener->proved += change;
    update_descriptor(listener);
    pthread_mutex_unlock(&listener->fabric->lock);
}

struct rdmux_fabric *rdmux_listener_fabric(struct rdmux_listener *listener)
{
    return listener->fabric;
}

const char *rdmux_listener_paths(const struct rdmux_listener *listener)
{
    return listener->paths;
}

bool rdmux_listener_is_plain(const struct rdmux_listener *listener)
{
    return listener->plain != NULL;
}

static void show(struct stranger *stranger, struct rdmux_peer *out)
{
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    peer.id = stranger->id;
    address_of(stranger, peer.address);
    if (stranger->tls != NULL) {
        snprintf(peer.identity, sizeof(peer.identity), "%s", rdmux_tls_identity(stranger->tls));
    }
    peer.private_length = stranger->private_length;
    memcpy(peer.private_data, stranger->private_data, sizeof(peer.private_data));
    uint32_t size = out->size < sizeof(peer) ? out->size : (uint32_t)sizeof(peer);
    peer.size = out->size;
    memcpy(out, &peer, size);
}

enum rdmux_status rdmux_listener_next(struct rdmux_listener *listener, int timeout_ms,
                                      struct rdmux_peer *out)
{
    if (listener == NULL || *listener->fabric->alive == 0 || out == NULL || timeout_ms < -1 ||
        out->size < offsetof(struct rdmux_peer, address)) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_listener_next: %s",
                          listener == NULL  ? "listener is NULL"
                          : out == NULL     ? "out is NULL"
                          : timeout_ms < -1 ? "timeout_ms is below -1"
                          : *listener->fabric->alive == 0
                              ? "the listener belongs to the parent process"
                              : "out->size is too small; use RDMUX_PEER_INIT");
    }
    struct rdmux_fabric *fabric = listener->fabric;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    if (timeout_ms > 0) {
        until.tv_sec += timeout_ms / 1000;
        until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
    }
    for (;;) {
        if (rdmux_fabric_is_manual(fabric)) {
            rdmux_service_step(fabric, 0);
        }
        pthread_mutex_lock(&fabric->lock);
        for (struct rdmux_list *at = listener->introduced.next; at != &listener->introduced;
             at = at->next) {
            struct stranger *stranger = RDMUX_CONTAINER(at, struct stranger, link);
            if (!stranger->shown) {
                stranger->shown = true;
                listener->unshown--;
                update_descriptor(listener);
                show(stranger, out);
                pthread_mutex_unlock(&fabric->lock);
                return RDMUX_OK;
            }
        }
        int error = 0;
        if (timeout_ms == 0) {
            error = EAGAIN;
        } else if (!rdmux_fabric_is_manual(fabric)) {
            error = timeout_ms < 0
                        ? pthread_cond_wait(&listener->changed, &fabric->lock)
                        : pthread_cond_timedwait(&listener->changed, &fabric->lock, &until);
        }
        pthread_mutex_unlock(&fabric->lock);
        if (timeout_ms != 0 && rdmux_fabric_is_manual(fabric)) {
            struct timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            if (timeout_ms > 0 && (now.tv_sec > until.tv_sec ||
                                   (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec))) {
                error = ETIMEDOUT;
            } else {
                rdmux_service_step(fabric, 10);
            }
        }
        if (error == EAGAIN) {
            return rdmux_fail(RDMUX_AGAIN, "rdmux_listener_next: no connection waits");
        }
        if (error == ETIMEDOUT) {
            return rdmux_fail(RDMUX_TIMED_OUT,
                              "rdmux_listener_next: no connection came within %d ms", timeout_ms);
        }
    }
}

/* How much there is room for depends on the device by which the peer came. */
static enum rdmux_status reject_plain(struct rdmux_listener *listener, uint64_t peer,
                                      uint32_t reason, const void *private_data, size_t length)
{
    struct rdmux_fabric *fabric = listener->fabric;
    enum rdmux_status status = RDMUX_OK;
    rdmux_service_lock(fabric);
    pthread_mutex_lock(&fabric->lock);
    struct stranger *stranger = find_introduced(listener, peer);
    if (stranger == NULL) {
        status = rdmux_fail(RDMUX_INVALID, "rdmux_reject: peer %llu is not a waiting connection",
                            (unsigned long long)peer);
    } else if (length > stranger->call->ops->reject_private_max) {
        status = rdmux_fail(RDMUX_INVALID,
                            "rdmux_reject: length of private_data is %zu; over %s the connection "
                            "manager carries %u bytes with a rejection",
                            length, stranger->call->place.provider,
                            stranger->call->ops->reject_private_max);
    } else {
        unlink_stranger(stranger);
    }
    pthread_mutex_unlock(&fabric->lock);
    if (stranger != NULL && status == RDMUX_OK) {
        stranger->call->ops->call_drop(stranger->call, reason, private_data, length);
        free_stranger(stranger);
    }
    rdmux_service_unlock(fabric);
    return status;
}

enum rdmux_status rdmux_reject(struct rdmux_listener *listener, uint64_t peer, uint32_t reason,
                               const void *private_data, size_t length)
{
    if (listener == NULL || *listener->fabric->alive == 0 || peer == 0 ||
        length > RDMUX_PRIVATE_DATA_MAX || (private_data == NULL && length != 0)) {
        return rdmux_fail(
            RDMUX_INVALID, "rdmux_reject: %s",
            listener == NULL                  ? "listener is NULL"
            : *listener->fabric->alive == 0   ? "the listener belongs to the parent process"
            : peer == 0                       ? "peer is 0"
            : length > RDMUX_PRIVATE_DATA_MAX ? "length of private_data is above 196"
                                              : "private_data is NULL, length is not 0");
    }
    struct rdmux_fabric *fabric = listener->fabric;
    if (listener->plain != NULL) {
        return reject_plain(listener, peer, reason, private_data, length);
    }
    struct stranger *stranger = take_stranger(listener, peer, NULL);
    if (stranger == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_reject: peer %llu is not a waiting connection",
                          (unsigned long long)peer);
    }
    struct rdmux_message message = {
        .type = RDMUX_FRAME_REJECT,
        .status = reason,
        .description_length = (uint32_t)length,
    };
    if (length != 0) {
        memcpy(message.description, private_data, length);
    }
    uint8_t frame[RDMUX_HELLO_SIZE + RDMUX_MESSAGE_MAX];
    struct rdmux_hello hello;
    rdmux_hello_fill(fabric, &hello);
    rdmux_hello_encode(&hello, frame);
    size_t size = RDMUX_HELLO_SIZE + rdmux_message_encode(&message, frame + RDMUX_HELLO_SIZE);
    (void)say(stranger, frame, size); /* one that is gone needs no answer */
    close(stranger->socket);
    free_stranger(stranger);
    return RDMUX_OK;
}

/* ----------------------------------------------------------------------------------------- life */

static enum rdmux_status open_socket(struct rdmux_listener *listener,
                                     const struct addrinfo *address, const char *text,
                                     uint32_t backlog)
{
    assert(address != NULL); /* getaddrinfo() succeeded */
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return rdmux_fail(
            errno == EMFILE || errno == ENFILE ? RDMUX_NO_MEMORY : RDMUX_IO,
            "rdmux_listen: no socket to be had (errno %d); raise the limit with ulimit -n", errno);
    }
    int one = 1;
    int zero = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (address->ai_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero,
                   sizeof(zero)); /* "all addresses" means IPv4 too */
    }
    if (bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, (int)backlog) != 0) {
        int error = errno;
        close(fd);
        return rdmux_fail(
            RDMUX_IO, "rdmux_listen: %s: %s", text,
            error == EADDRINUSE
                ? "the address is in use by another program; choose another port, or 0"
            : error == EADDRNOTAVAIL ? "not an address of this machine"
            : error == EACCES        ? "ports below 1024 need privileges"
                                     : strerror(error));
    }
    struct sockaddr_storage bound;
    socklen_t length = sizeof(bound);
    if (getsockname(fd, (struct sockaddr *)&bound, &length) != 0 ||
        !rdmux_address_format((struct sockaddr *)&bound, length, listener->address)) {
        close(fd);
        return rdmux_fail(RDMUX_NO_MEMORY,
                          "rdmux_listen: %s: no memory to tell the address that was bound", text);
    }
    listener->socket = fd;
    return RDMUX_OK;
}

static enum rdmux_status bind_first(struct rdmux_listener *listener, const char *text,
                                    uint32_t backlog)
{
    struct rdmux_address_text parts;
    enum rdmux_status status = rdmux_address_split(text, &parts);
    if (status != RDMUX_OK) {
        return status;
    }
    struct addrinfo *addresses = NULL;
    status = rdmux_address_resolve(&parts, true, false, &addresses);
    if (status != RDMUX_OK) {
        return status;
    }
    /* For all addresses an IPv6 socket takes IPv4 too, where the machine has IPv6. */
    const struct addrinfo *first = addresses;
    for (const struct addrinfo *at = addresses; at != NULL && parts.host[0] == '\0';
         at = at->ai_next) {
        if (at->ai_family == AF_INET6) {
            first = at;
            break;
        }
    }
    status = open_socket(listener, first, text, backlog);
    for (const struct addrinfo *at = addresses; at != NULL && status != RDMUX_OK; at = at->ai_next) {
        if (at != first) {
            status = open_socket(listener, at, text, backlog);
        }
    }
    freeaddrinfo(addresses);
    return status;
}

/* ---------------------------------------------------------------------------------------- plain */

static struct stranger *find_call(struct rdmux_listener *listener,
                                  const struct rdmux_plain_call *call)
{
    for (struct rdmux_list *at = listener->introduced.next; at != &listener->introduced;
         at = at->next) {
        struct stranger *stranger = RDMUX_CONTAINER(at, struct stranger, link);
        if (stranger->call == call) {
            return stranger;
        }
    }
    return NULL;
}

static void take_call(struct rdmux_listener *listener, struct rdmux_plain_call *call)
{
    struct rdmux_fabric *fabric = listener->fabric;
    struct stranger *stranger = listener->count >= listener->max_pending
                                    ? NULL
                                    : rdmux_allocate(fabric, sizeof(*stranger));
    if (stranger == NULL) {
        rdmux_log(fabric, RDMUX_LOG_WARN,
                  "listener %s: connection from %s: too many wait, or no memory; rejected",
                  listener->address, call->peer_address);
        call->ops->call_drop(call, 0, NULL, 0);
        return;
    }
    stranger->listener = listener;
    stranger->call = call;
    stranger->socket = -1;
    stranger->bytes = stranger->first;
    stranger->id = atomic_fetch_add(&fabric->next_id, 1);
    stranger->private_length = call->peer_private_length;
    memcpy(stranger->private_data, call->peer_private_data, sizeof(stranger->private_data));
    rdmux_list_init(&stranger->link);
    rdmux_list_init(&stranger->address_link);
    pthread_mutex_lock(&fabric->lock);
    listener->count++;
    pthread_mutex_unlock(&fabric->lock);
    becomes_known(stranger);
}

static void plain_ready(struct rdmux_fabric *fabric, struct rdmux_watch *watch)
{
    struct rdmux_listener *listener = RDMUX_CONTAINER(watch, struct rdmux_listener, watch);
    const struct rdmux_plain_ops *ops = listener->plain->ops;
    (void)fabric;
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        struct rdmux_plain_call *call = NULL;
        int gone = 0;
        if (ops->next(listener->plain, &call, &gone) != RDMUX_OK) {
            return;
        }
        struct stranger *known = gone != 0 ? find_call(listener, call) : NULL;
        if (known != NULL) {
            drop_stranger(known, "left before it was accepted");
        } else if (gone == 0) {
            take_call(listener, call);
        }
    }
}

static enum rdmux_status listen_plain(struct rdmux_listener *listener, const char *text,
                                      uint32_t backlog)
{
    struct rdmux_fabric *fabric = listener->fabric;
    const struct rdmux_plain_ops *ops = rdmux_plain_find(fabric);
    struct rdmux_address_text parts;
    struct addrinfo *addresses = NULL;
    enum rdmux_status status = rdmux_address_split(text, &parts);
    if (status != RDMUX_OK) {
        return status;
    }
    if (fabric->auth != NULL) {
        return rdmux_plain_refuse_auth("rdmux_listen");
    }
    if (ops == NULL) {
        return rdmux_plain_refuse_absent(fabric, "rdmux_listen");
    }
    status = rdmux_address_resolve(&parts, true, false, &addresses);
    if (status != RDMUX_OK) {
        return status;
    }
    rdmux_error_clear();
    status = ops->listen(fabric, addresses->ai_addr, backlog, &listener->plain);
    freeaddrinfo(addresses);
    if (status != RDMUX_OK) {
        return status;
    }
    listener->watch.ready = plain_ready;
    memcpy(listener->address, listener->plain->address, sizeof(listener->address));
    return RDMUX_OK;
}

static enum rdmux_status take_attr(struct rdmux_listener *listener,
                                   const struct rdmux_listen_attr *attr, uint32_t *backlog)
{
    struct rdmux_listen_attr all = RDMUX_LISTEN_ATTR_INIT;
    if (attr != NULL) {
        if (attr->size < offsetof(struct rdmux_listen_attr, paths)) {
            return rdmux_fail(RDMUX_INVALID,
                              "rdmux_listen: attr.size is %u; use RDMUX_LISTEN_ATTR_INIT",
                              attr->size);
        }
        memcpy(&all, attr, attr->size < sizeof(all) ? attr->size : sizeof(all));
    }
    if (all.flags != 0) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_listen: attr.flags 0x%x are unknown", all.flags);
    }
    enum rdmux_status status = rdmux_fabric_check_filter(listener->fabric, "attr.paths", all.paths);
    if (status != RDMUX_OK) {
        return status;
    }
    snprintf(listener->paths, sizeof(listener->paths), "%s", all.paths == NULL ? "auto" : all.paths);
    *backlog = all.backlog == 0 ? DEFAULT_BACKLOG : all.backlog > 65535 ? 65535 : all.backlog;
    listener->max_pending = all.max_pending == 0 ? DEFAULT_MAX_PENDING : all.max_pending;
    listener->hello_timeout_ms = all.hello_timeout_ms == 0 ? DEFAULT_HELLO_TIMEOUT_MS
                                                           : all.hello_timeout_ms;
    uint32_t quarter = listener->max_pending / 4;
    listener->max_per_address = all.max_per_address != 0    ? all.max_per_address
                                : quarter > MIN_PER_ADDRESS ? quarter
                                                            : MIN_PER_ADDRESS;
    return rdmux_random(listener->fabric, &listener->address_seed, sizeof(listener->address_seed));
}

/* -1: none. */
static int watched_fd(const struct rdmux_listener *listener)
{
    return listener->plain != NULL ? listener->plain->ops->listener_fd(listener->plain)
                                   : listener->socket;
}

enum rdmux_status rdmux_listen(struct rdmux_fabric *fabric, const char *address,
                               const struct rdmux_listen_attr *attr, struct rdmux_listener **out)
{
    if (out == NULL) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_listen: out is NULL");
    }
    *out = NULL;
    if (fabric == NULL || *fabric->alive == 0) {
        return rdmux_fail(RDMUX_INVALID,
                          "rdmux_listen: fabric is NULL, or belongs to the parent process");
    }
    struct rdmux_listener *listener = rdmux_allocate(fabric, sizeof(*listener));
    if (listener == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "rdmux_listen: out of memory");
    }
    listener->fabric = fabric;
    listener->refs = 1;
    listener->watch.ready = listener_ready;
    listener->socket = -1;
    rdmux_list_init(&listener->link);
    rdmux_list_init(&listener->silent);
    rdmux_list_init(&listener->introduced);
    rdmux_list_init(&listener->waits);
    for (size_t i = 0; i < ADDRESSES; i++) {
        rdmux_list_init(&listener->addresses[i].strangers);
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&listener->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    listener->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    uint32_t backlog = 0;
    enum rdmux_status status = take_attr(listener, attr, &backlog);
    if (status == RDMUX_OK && (listener->event_fd < 0 || listener->spare_fd < 0)) {
        status = rdmux_fail(
            RDMUX_NO_MEMORY,
            "rdmux_listen: no descriptor to be had; raise the limit with ulimit -n");
    }
    const char *plain = rdmux_plain_address(address);
    if (status == RDMUX_OK) {
        status = plain != NULL ? listen_plain(listener, plain, backlog)
                               : bind_first(listener, address, backlog);
    }
    if (status == RDMUX_OK) {
        pthread_mutex_lock(&fabric->lock);
        rdmux_list_append(&fabric->listeners, &listener->link);
        pthread_mutex_unlock(&fabric->lock);
        status = rdmux_service_watch(fabric, watched_fd(listener), EPOLLIN, &listener->watch);
    }
    if (status != RDMUX_OK) {
        rdmux_listener_close(listener);
        return status;
    }
    *out = listener;
    return RDMUX_OK;
}

void rdmux_listener_get(struct rdmux_listener *listener)
{
    pthread_mutex_lock(&listener->fabric->lock);
    listener->refs++;
    pthread_mutex_unlock(&listener->fabric->lock);
}

void rdmux_listener_put(struct rdmux_listener *listener)
{
    struct rdmux_fabric *fabric = listener->fabric;
    pthread_mutex_lock(&fabric->lock);
    bool last = --listener->refs == 0;
    pthread_mutex_unlock(&fabric->lock);
    if (!last) {
        return;
    }
    if (listener->event_fd >= 0) {
        close(listener->event_fd);
    }
    if (listener->spare_fd >= 0) {
        close(listener->spare_fd);
    }
    pthread_cond_destroy(&listener->changed);
    rdmux_release(fabric, listener);
}

bool rdmux_listener_is_closed(struct rdmux_listener *listener)
{
    pthread_mutex_lock(&listener->fabric->lock);
    bool closed = listener->closed;
    pthread_mutex_unlock(&listener->fabric->lock);
    return closed;
}

void rdmux_listener_close(struct rdmux_listener *listener)
{
    if (listener == NULL || *listener->fabric->alive == 0) {
        return;
    }
    struct rdmux_fabric *fabric = listener->fabric;
    rdmux_service_lock(fabric);
    if (watched_fd(listener) >= 0) {
        rdmux_service_unwatch(fabric, watched_fd(listener), &listener->watch);
    }
    while (!rdmux_list_empty(&listener->silent)) {
        drop_stranger(RDMUX_CONTAINER(listener->silent.next, struct stranger, link), NULL);
    }
    while (!rdmux_list_empty(&listener->introduced)) {
        drop_stranger(RDMUX_CONTAINER(listener->introduced.next, struct stranger, link), NULL);
    }
    pthread_mutex_lock(&fabric->lock);
    rdmux_list_remove(&listener->link);
    pthread_mutex_unlock(&fabric->lock);
    if (listener->plain != NULL) {
        listener->plain->ops->unlisten(listener->plain);
        listener->plain = NULL;
    }
    rdmux_service_unlock(fabric);
    if (listener->socket >= 0) {
        close(listener->socket);
        listener->socket = -1;
    }
    /* Endpoints accepted here that nobody can return any more are dropped by their cqs. */
    pthread_mutex_lock(&fabric->lock);
    listener->closed = true;
    for (struct rdmux_list *at = fabric->cqs.next; at != &fabric->cqs; at = at->next) {
        rdmux_cq_poke(RDMUX_CONTAINER(at, struct rdmux_cq, link));
    }
    pthread_mutex_unlock(&fabric->lock);
    rdmux_listener_put(listener);
}

enum rdmux_status rdmux_listener_address(struct rdmux_listener *listener,
                                         char out[RDMUX_ADDRESS_MAX], size_t size)
{
    if (listener == NULL || *listener->fabric->alive == 0 || out == NULL ||
        size < RDMUX_ADDRESS_MAX) {
        return rdmux_fail(RDMUX_INVALID, "rdmux_listener_address: %s",
                          listener == NULL ? "listener is NULL"
                          : out == NULL    ? "out is NULL"
                          : size < RDMUX_ADDRESS_MAX
                              ? "size is below RDMUX_ADDRESS_MAX"
                              : "the listener belongs to the parent process");
    }
    memcpy(out, listener->address, RDMUX_ADDRESS_MAX);
    return RDMUX_OK;
}

int rdmux_listener_fd(struct rdmux_listener *listener)
{
    return listener == NULL || *listener->fabric->alive == 0 ? -1 : listener->event_fd;
}
