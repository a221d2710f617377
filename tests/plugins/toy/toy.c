/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * toy - a small provider: two processes of one user on one host, over two AF_UNIX packet sockets.
 * The worked example of docs/PROVIDER-GUIDE.md.
 *
 * Each side sends its requests on one socket and gets their answers on the same one; the other
 * socket is the peer's. So an answer never waits behind a request, and a message that waits for a
 * receive stops only the requests behind it. A request is one packet or several; what cannot be
 * dealt with yet stays in the socket. Whoever polls the target's cq carries requests out, in order.
 */
#include "toy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    PACKET_MAX = 32 * 1024, /* bytes of data in one packet */
    INLINE_MAX = 256,       /* less than a packet, so an inline request is sent whole or refused */
    EVENTS_MAX = 32,
    ANSWER = 0x80, /* op: this is an answer. wants: one is due */
};

/* What a packet begins with; data may follow. Both ends are on one host and run the same version of
 * this file (ep_connect looks), so it travels as it lies in memory. */
struct frame {
    uint32_t op; /* RDMUX_OP_*, ANSWER */
    uint32_t wants;
    uint32_t imm;
    uint32_t status;  /* of an answer */
    uint64_t length;  /* of the whole message; of a read or its answer: bytes wanted */
    uint64_t at;      /* where in the message the data of this packet belongs */
    uint64_t offset;  /* into the region */
    uint64_t operand; /* of an answer to an atomic: the value before */
    uint64_t expected;
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
};
_Static_assert(sizeof(struct frame) == 72, "a frame has no holes");

static const char DESCRIPTION[] = "toy-1";

struct toy_remote {
    struct rdmux_provider_remote base;
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
};

struct toy_cq {
    struct rdmux_provider_cq base;
    int epoll;
};

struct stream {
    struct toy_ep *ep;
    int fd;          /* -1: none */
    uint32_t events; /* asked of epoll */
    bool ended;      /* the peer closed it */
};

struct toy_ep {
    struct rdmux_provider_ep base;
    const struct rdmux_provider_ep_attr *attr;
    int listener;                  /* acceptor, until both sockets are there */
    struct stream ours;            /* our requests, their answers */
    struct stream theirs;          /* their requests, our answers */
    struct rdmux_request *writing; /* ours of which some packets are sent */
    struct frame out;              /* its next packet's */
    struct rdmux_request *waiting; /* those that wait for an answer, oldest first, by next_of() */
    struct rdmux_request *waiting_last;
    struct rdmux_request *receive; /* their message goes there */
    struct frame answer;
    bool answering; /* answer is not all sent */
    bool starved;   /* their message waits for a receive */
    bool refused;   /* post said AGAIN */
    bool failed;
    struct rdmux_provider_counts counts;
};

static struct toy_cq *toy_cq_of(struct rdmux_provider_cq *cq)
{
    return (struct toy_cq *)cq;
}

static struct toy_ep *toy_ep_of(struct rdmux_provider_ep *ep)
{
    return (struct toy_ep *)ep;
}

static struct rdmux_request *next_of(const struct rdmux_request *request)
{
    return (struct rdmux_request *)(uintptr_t)request->provider[0];
}

/* ----------------------------------------------------------------------------- paths, domains */

/* Who can reach whom: the same boot of the same kernel, and one network namespace, which is where
 * the names of abstract sockets live. */
struct reach {
    char boot[40];
    uint64_t namespace;
};

static enum rdmux_status toy_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                   size_t max, size_t *count)
{
    (void)fabric;
    struct reach reach = { .boot = "" };
    struct stat info;
    *count = 1;
    if (max == 0) {
        return RDMUX_OK;
    }
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->device, sizeof(out->device), "toy");
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, reach.boot, 36) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (got != 36 || stat("/proc/self/ns/net", &info) != 0) {
        out->reason = RDMUX_REASON_NO_DEVICE;
        (void)snprintf(out->text, sizeof(out->text), "toy: /proc does not tell which host this is");
        (void)snprintf(out->hint, sizeof(out->hint), "mount /proc");
        return RDMUX_OK;
    }
    reach.namespace = info.st_ino;
    memcpy(out->reach, &reach, sizeof(reach));
    out->reach_length = sizeof(reach);
    out->reason = RDMUX_REASON_USABLE;
    out->bandwidth = UINT64_C(2000000000);
    out->latency_ns = 15000;
    out->native = RDMUX_CAP_SEND | RDMUX_CAP_SEND_IMM | RDMUX_CAP_WRITE | RDMUX_CAP_WRITE_IMM |
                  RDMUX_CAP_READ | RDMUX_CAP_PLACED | RDMUX_CAP_SRQ | RDMUX_CAP_FENCE;
    out->emulated = RDMUX_CAP_FETCH_ADD | RDMUX_CAP_COMPARE_SWAP; /* by the target's CPU */
    out->max_inline = INLINE_MAX;
    out->security = RDMUX_SECURITY_SAME_USER;
    return RDMUX_OK;
}

static enum rdmux_reason toy_reach(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                   size_t theirs_length, char *text)
{
    struct reach a;
    struct reach b;
    if (ours_length != sizeof(a) || theirs_length != sizeof(b)) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "toy: the peer runs another version of it");
        return RDMUX_REASON_NOT_REACHABLE;
    }
    memcpy(&a, ours, sizeof(a));
    memcpy(&b, theirs, sizeof(b));
    if (memcmp(a.boot, b.boot, sizeof(a.boot)) != 0) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "toy: the peer is on another host");
        return RDMUX_REASON_OTHER_HOST;
    }
    if (a.namespace != b.namespace) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "toy: the peer is in another network namespace");
        return RDMUX_REASON_OTHER_NAMESPACE;
    }
    return RDMUX_REASON_NONE;
}

static enum rdmux_status toy_domain_open(struct rdmux_provider_domain *domain,
                                         const struct rdmux_local_path *path)
{
    (void)domain;
    (void)path;
    return RDMUX_OK;
}

static void toy_domain_close(struct rdmux_provider_domain *domain)
{
    (void)domain;
}

/* ------------------------------------------------------------------------------------- regions */

/* The target side of rdmux keeps bounds, rights and revocation; a region needs nothing else. */
static enum rdmux_status toy_mr_register(struct rdmux_provider_mr *mr,
                                         const struct rdmux_provider_mr_attr *attr)
{
    (void)mr;
    (void)attr;
    return RDMUX_OK;
}

static void toy_mr_deregister(struct rdmux_provider_mr *mr)
{
    (void)mr;
}

static enum rdmux_status toy_mr_describe(struct rdmux_provider_mr *mr, struct rdmux_provider_ep *ep,
                                         uint8_t *out, size_t *size)
{
    (void)ep;
    rdmux_target_key(mr, out);
    *size = RDMUX_TARGET_KEY_SIZE;
    return RDMUX_OK;
}

static enum rdmux_status toy_mr_invalidate(struct rdmux_provider_mr *mr)
{
    (void)mr; /* the core took the key out of its table before it called */
    return RDMUX_OK;
}

static enum rdmux_status toy_remote_open(struct rdmux_provider_remote *remote,
                                         const uint8_t *description, size_t size)
{
    struct toy_remote *toy = (struct toy_remote *)remote;
    if (size != sizeof(toy->key)) {
        rdmux_provider_error("toy: the peer described a region in %zu bytes", size);
        return RDMUX_PROTOCOL;
    }
    memcpy(toy->key, description, size);
    return RDMUX_OK;
}

static void toy_remote_close(struct rdmux_provider_remote *remote)
{
    (void)remote;
}

/* ------------------------------------------------------------------------------------- packets */

static void fail(struct toy_ep *ep, enum rdmux_status status, const char *text)
{
    if (!ep->failed) {
        ep->failed = true;
        rdmux_provider_failed(&ep->base, status, text);
    }
}

/* Tells epoll what the stream waits for, where that has changed. */
static void watch(struct stream *stream, bool input, bool output)
{
    uint32_t events = (input ? (uint32_t)EPOLLIN : 0) | (output ? (uint32_t)EPOLLOUT : 0);
    if (stream->fd >= 0 && events != stream->events) {
        struct epoll_event event = { .events = events, .data.ptr = stream };
        int epoll = toy_cq_of(stream->ep->base.cq)->epoll;
        (void)epoll_ctl(epoll, EPOLL_CTL_MOD, stream->fd, &event);
        stream->events = events;
        stream->ep->base.system_calls++;
    }
}

/* Appends the pieces of a list from its byte `skip` on, `length` bytes; returns how many. */
static size_t pieces(const struct rdmux_request *request, uint64_t skip, uint64_t length,
                     struct iovec *out)
{
    size_t count = 0;
    for (size_t i = 0; i < request->sge_count && length > 0; i++) {
        const struct rdmux_provider_sge *sge = &request->sges[i];
        if (skip >= sge->length) {
            skip -= sge->length;
            continue;
        }
        uint64_t here = sge->length - skip < length ? sge->length - skip : length;
        out[count].iov_base = (char *)sge->addr + skip;
        out[count++].iov_len = here;
        skip = 0;
        length -= here;
    }
    return count;
}

static uint64_t packet_length(const struct frame *frame)
{
    uint64_t left = frame->length - frame->at;
    return left < PACKET_MAX ? left : PACKET_MAX;
}

/* iov[0] is the frame's place. False: not now, or never again (stream->ended). */
static bool transfer(struct stream *stream, struct frame *frame, struct iovec *iov, size_t count,
                     bool in, int flags)
{
    iov[0].iov_base = frame;
    iov[0].iov_len = sizeof(*frame);
    struct msghdr message = { .msg_iov = iov, .msg_iovlen = count };
    flags |= MSG_DONTWAIT | MSG_NOSIGNAL;
    ssize_t moved;
    do {
        stream->ep->base.system_calls++;
        moved = in ? recvmsg(stream->fd, &message, flags) : sendmsg(stream->fd, &message, flags);
        /* Told once, before packets that have arrived: they come first. */
    } while (moved < 0 && in && errno == ECONNRESET);
    if (moved > 0) {
        return true;
    }
    stream->ended = moved == 0 || (errno != EAGAIN && errno != EINTR);
    return false;
}

/* Looks at the next packet's frame without taking it. */
static bool peek(struct stream *stream, struct frame *frame)
{
    struct iovec iov[1];
    return transfer(stream, frame, iov, 1, true, MSG_PEEK);
}

/* ---------------------------------------------------------------------------- our own requests */

/* Sends the packets that are left of ep->writing, as far as the socket takes them. */
static void push_request(struct toy_ep *ep)
{
    struct rdmux_request *request = ep->writing;
    const bool has_data = request->op < RDMUX_OP_READ;
    do {
        struct iovec iov[RDMUX_SGE_MAX + 1];
        uint64_t length = has_data ? packet_length(&ep->out) : ep->out.length;
        size_t count = has_data ? pieces(request, ep->out.at, length, iov + 1) : 0;
        if (!transfer(&ep->ours, &ep->out, iov, count + 1, false, 0)) {
            return;
        }
        ep->out.at += length;
    } while (ep->out.at < ep->out.length);
    ep->writing = NULL;
    if (ep->out.wants != ANSWER) {
        rdmux_provider_done(&ep->base, request, RDMUX_OK);
        return;
    }
    request->provider[0] = 0;
    if (ep->waiting == NULL) {
        ep->waiting = request;
    } else {
        ep->waiting_last->provider[0] = (uint64_t)(uintptr_t)request;
    }
    ep->waiting_last = request;
}

static void start_request(struct toy_ep *ep, struct rdmux_request *request)
{
    const bool answered = request->op >= RDMUX_OP_READ || (request->flags & RDMUX_PLACED) != 0;
    ep->out = (struct frame){
        .op = request->op,
        .wants = answered ? ANSWER : 0,
        .imm = request->imm,
        .length = request->op > RDMUX_OP_READ ? 0 : request->length,
        .offset = request->offset,
        .operand = request->operand,
        .expected = request->expected,
    };
    if (request->remote != NULL) {
        const struct toy_remote *remote = (const struct toy_remote *)request->remote;
        memcpy(ep->out.key, remote->key, sizeof(remote->key));
    }
    ep->writing = request;
    push_request(ep);
}

static void watch_all(struct toy_ep *ep)
{
    watch(&ep->ours, true, ep->writing != NULL || ep->refused);
    watch(&ep->theirs, !ep->starved && !ep->answering, ep->answering);
}

static enum rdmux_status toy_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                  size_t count, uint32_t flags, size_t *posted)
{
    (void)flags;
    struct toy_ep *ep = toy_ep_of(base);
    for (*posted = 0; *posted < count; ++*posted) {
        if (ep->writing == NULL) {
            start_request(ep, &requests[*posted]);
            if (ep->writing == NULL || ep->out.at > 0) {
                continue;
            }
            ep->writing = NULL; /* nothing of it is sent: the core may keep it */
        }
        ep->refused = true;
        break;
    }
    watch_all(ep);
    return *posted < count ? RDMUX_AGAIN : RDMUX_OK;
}

/* Takes answers; returns how many. */
static size_t pull_answers(struct toy_ep *ep, size_t budget)
{
    size_t done = 0;
    struct frame in;
    while (done < budget && !ep->failed && peek(&ep->ours, &in)) {
        struct rdmux_request *request = ep->waiting;
        struct iovec iov[RDMUX_SGE_MAX + 1];
        if (in.op != ANSWER || in.status != RDMUX_OK || request == NULL || in.at > in.length ||
            in.length != (request->op == RDMUX_OP_READ ? request->length : 0)) {
            fail(ep,
                 in.op == ANSWER && in.status != RDMUX_OK ? (enum rdmux_status)in.status
                                                          : RDMUX_PROTOCOL,
                 "toy: the peer refused a request");
            break;
        }
        uint64_t length = packet_length(&in);
        size_t count = pieces(request, in.at, length, iov + 1);
        if (!transfer(&ep->ours, &in, iov, count + 1, true, 0)) {
            break;
        }
        if (in.at + length < in.length) {
            continue;
        }
        if (request->op > RDMUX_OP_READ) {
            memcpy(request->sges[0].addr, &in.operand, sizeof(in.operand));
        }
        ep->waiting = next_of(request);
        rdmux_provider_done(&ep->base, request, RDMUX_OK);
        done++;
    }
    return done;
}

/* ------------------------------------------------------------------------------ their requests */

/* Sends the packets that are left of our answer, with the bytes of a read. */
static void push_answer(struct toy_ep *ep)
{
    struct frame *out = &ep->answer;
    while (ep->answering && !ep->failed) {
        struct iovec iov[2];
        uint64_t length = packet_length(out);
        enum rdmux_status status = RDMUX_OK;
        if (length > 0) {
            /* Asked anew for each packet: the region may be revoked between two of them. */
            status = rdmux_target_enter(&ep->base, out->key, out->offset + out->at, length,
                                        RDMUX_ACCESS_REMOTE_READ, &iov[1].iov_base);
            iov[1].iov_len = length;
        }
        if (status != RDMUX_OK) {
            fail(ep, status, "toy: a region was taken back while the peer read it");
            return;
        }
        bool sent = transfer(&ep->theirs, out, iov, length > 0 ? 2 : 1, false, 0);
        if (length > 0) {
            rdmux_target_leave(&ep->base);
        }
        if (!sent) {
            return;
        }
        out->at += length;
        ep->answering = out->at < out->length;
    }
}

/* The request `in` is carried out, or refused. */
static void answer(struct toy_ep *ep, const struct frame *in, enum rdmux_status status,
                   uint64_t value)
{
    if (status == RDMUX_OK && in->wants != ANSWER) {
        return;
    }
    ep->answer = *in;
    ep->answer.op = ANSWER;
    ep->answer.status = (uint32_t)status;
    ep->answer.operand = value;
    ep->answer.at = 0;
    if (in->op != RDMUX_OP_READ || status != RDMUX_OK) {
        ep->answer.length = 0;
    }
    ep->answering = true;
    push_answer(ep);
    if (status != RDMUX_OK) {
        fail(ep, status, "toy: a request of the peer was refused");
    }
}

/* The receive that their message meets; false if there is none yet. */
static bool has_receive(struct toy_ep *ep)
{
    if (ep->receive == NULL) {
        ep->receive = rdmux_provider_take_receive(&ep->base);
    }
    ep->starved = ep->receive == NULL;
    return !ep->starved;
}

static void deliver(struct toy_ep *ep, const struct frame *in, enum rdmux_status status)
{
    bool is_write = in->op == RDMUX_OP_WRITE_IMM;
    struct rdmux_request *receive = ep->receive;
    ep->receive = NULL;
    ep->counts.received++;
    rdmux_provider_received(
        &ep->base, receive, status, is_write ? RDMUX_WC_RECV_WRITE_IMM : RDMUX_WC_RECV, in->length,
        is_write || in->op == RDMUX_OP_SEND_IMM ? RDMUX_WC_HAS_IMM : 0, in->imm);
}

/* A packet of a send or write. False: it has to stay. */
static bool take_data(struct toy_ep *ep, struct frame *in)
{
    const bool is_send = in->op == RDMUX_OP_SEND || in->op == RDMUX_OP_SEND_IMM;
    const uint64_t length = packet_length(in);
    const bool is_last = in->at + length == in->length;
    struct iovec iov[RDMUX_SGE_MAX + 1];
    size_t count = 0;
    enum rdmux_status status = RDMUX_OK;
    if ((is_send || (is_last && in->op == RDMUX_OP_WRITE_IMM)) && !has_receive(ep)) {
        return false;
    }
    if (is_send && in->length > ep->receive->length) {
        deliver(ep, in, RDMUX_LENGTH);
        status = RDMUX_LENGTH;
    } else if (is_send) {
        count = pieces(ep->receive, in->at, length, iov + 1);
    } else if (length > 0) {
        status = rdmux_target_enter(&ep->base, in->key, in->offset + in->at, length,
                                    RDMUX_ACCESS_REMOTE_WRITE, &iov[1].iov_base);
        iov[1].iov_len = length;
        count = 1;
    }
    if (status != RDMUX_OK) {
        answer(ep, in, status, 0);
        return false;
    }
    bool taken = transfer(&ep->theirs, in, iov, count + 1, true, 0);
    if (!is_send && length > 0) {
        rdmux_target_leave(&ep->base);
    }
    if (taken && is_last) {
        if (in->op != RDMUX_OP_WRITE) {
            deliver(ep, in, RDMUX_OK);
        }
        answer(ep, in, RDMUX_OK, 0);
    }
    return taken;
}

/* A read or an atomic. False: it has to stay. */
static bool take_question(struct toy_ep *ep, struct frame *in)
{
    struct iovec iov[1];
    uint64_t old = 0;
    void *addr = NULL;
    enum rdmux_status status = RDMUX_OK;
    if (!transfer(&ep->theirs, in, iov, 1, true, 0)) {
        return false;
    }
    if (in->op != RDMUX_OP_READ) {
        status = rdmux_target_atomic(&ep->base, in->key, in->op, in->offset, in->operand,
                                     in->expected, &old);
        ep->counts.executed += status == RDMUX_OK;
    } else if (in->length > 0) {
        status = rdmux_target_enter(&ep->base, in->key, in->offset, in->length,
                                    RDMUX_ACCESS_REMOTE_READ, &addr);
        if (status == RDMUX_OK) {
            rdmux_target_leave(&ep->base);
        }
    }
    answer(ep, in, status, old);
    return true;
}

/* Takes requests; returns how many packets. */
static size_t pull_requests(struct toy_ep *ep, size_t budget)
{
    size_t done = 0;
    struct frame in;
    push_answer(ep);
    while (done < budget && !ep->failed && !ep->answering && peek(&ep->theirs, &in)) {
        bool taken = false;
        if (in.at > in.length || in.op < RDMUX_OP_SEND || in.op == RDMUX_OP_RECV) {
            fail(ep, RDMUX_PROTOCOL, "toy: the peer sent no request");
        } else {
            taken = in.op < RDMUX_OP_READ ? take_data(ep, &in) : take_question(ep, &in);
        }
        if (!taken) {
            break;
        }
        done++;
    }
    return done;
}

/* One round of an endpoint; returns how much it did. */
static size_t progress(struct toy_ep *ep, size_t budget)
{
    if (ep->failed || ep->ours.fd < 0 || ep->theirs.fd < 0) {
        return 0;
    }
    size_t done = pull_requests(ep, budget) + pull_answers(ep, budget);
    if (ep->writing != NULL && !ep->failed) {
        push_request(ep);
        done += ep->writing == NULL;
    }
    if (ep->refused && ep->writing == NULL) {
        ep->refused = false;
        rdmux_provider_resume(&ep->base);
    }
    /* What came before the end is delivered first, as far as there are receives. */
    if (ep->theirs.ended || (ep->ours.ended && ep->starved)) {
        fail(ep, RDMUX_PEER_GONE, "toy: the peer closed its sockets");
    }
    watch_all(ep);
    return done + ep->failed;
}

/* The socket is watched again for the message that waits. */
static enum rdmux_status toy_post_recv(struct rdmux_provider_ep *base,
                                       struct rdmux_request *requests, size_t count)
{
    (void)requests;
    (void)count;
    struct toy_ep *ep = toy_ep_of(base);
    if (ep->starved) {
        ep->starved = false;
        watch_all(ep);
    }
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------------------ cq */

static enum rdmux_status toy_cq_open(struct rdmux_provider_cq *base, uint32_t depth)
{
    (void)depth;
    struct toy_cq *cq = toy_cq_of(base);
    cq->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (cq->epoll < 0) {
        rdmux_provider_error("toy: epoll: %s; raise the limit on open files", strerror(errno));
        return RDMUX_NO_MEMORY;
    }
    return RDMUX_OK;
}

static void toy_cq_close(struct rdmux_provider_cq *base)
{
    close(toy_cq_of(base)->epoll);
}

static bool take_sockets(struct toy_ep *ep);

static size_t toy_poll(struct rdmux_provider_cq *base, size_t budget)
{
    struct epoll_event events[EVENTS_MAX];
    size_t done = 0;
    int count = epoll_wait(toy_cq_of(base)->epoll, events, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        struct toy_ep *ep = ((struct stream *)events[i].data.ptr)->ep;
        done += ep->listener >= 0 ? take_sockets(ep) : progress(ep, budget);
    }
    return done;
}

/* The sockets are level-triggered: the descriptor is readable while there is something. */
static enum rdmux_status toy_arm(struct rdmux_provider_cq *base)
{
    (void)base;
    return RDMUX_OK;
}

static int toy_fd(struct rdmux_provider_cq *base)
{
    return toy_cq_of(base)->epoll;
}

/* ----------------------------------------------------------------------------------- endpoints */

/* Where both sides meet: an abstract name that only they know. */
static socklen_t meeting_place(struct toy_ep *ep, struct sockaddr_un *out)
{
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    rdmux_provider_secret(&ep->base, (uint8_t *)out->sun_path + 1);
    return offsetof(struct sockaddr_un, sun_path) + 1 + RDMUX_SECRET_SIZE;
}

static enum rdmux_status system_error(const char *what)
{
    rdmux_provider_error("toy: %s: %s", what, strerror(errno));
    return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? RDMUX_NO_MEMORY : RDMUX_IO;
}

static enum rdmux_status toy_ep_open(struct rdmux_provider_ep *base,
                                     const struct rdmux_provider_ep_attr *attr)
{
    struct toy_ep *ep = toy_ep_of(base);
    ep->attr = attr;
    ep->listener = -1;
    ep->ours.ep = ep->theirs.ep = ep;
    ep->ours.fd = ep->theirs.fd = -1;
    if (attr->role != RDMUX_ROLE_ACCEPT) {
        return RDMUX_OK;
    }
    struct sockaddr_un place;
    socklen_t length = meeting_place(ep, &place);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return system_error("socket");
    }
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = &ep->theirs };
    if (bind(fd, (struct sockaddr *)&place, length) != 0 || listen(fd, 2) != 0 ||
        epoll_ctl(toy_cq_of(base->cq)->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        enum rdmux_status status = system_error("listen");
        close(fd);
        return status;
    }
    ep->listener = fd;
    return RDMUX_OK;
}

static enum rdmux_status toy_ep_describe(struct rdmux_provider_ep *ep, uint8_t *out, size_t *size)
{
    (void)ep;
    memcpy(out, DESCRIPTION, sizeof(DESCRIPTION));
    *size = sizeof(DESCRIPTION);
    return RDMUX_OK;
}

/* The kernel says who is at the other end: nobody but this user may be. */
static bool is_same_user(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

static bool use_socket(struct stream *stream, int fd)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = stream };
    if (!is_same_user(fd) ||
        epoll_ctl(toy_cq_of(stream->ep->base.cq)->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        close(fd);
        return false;
    }
    stream->fd = fd;
    stream->events = EPOLLIN;
    return true;
}

/* Acceptor: takes what dialled. The connector's own stream comes first. True: something changed. */
static bool take_sockets(struct toy_ep *ep)
{
    bool took = false;
    int fd;
    while (ep->listener >= 0 &&
           (fd = accept4(ep->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        took |= use_socket(ep->theirs.fd < 0 ? &ep->theirs : &ep->ours, fd);
        if (ep->ours.fd >= 0) {
            close(ep->listener);
            ep->listener = -1;
        }
    }
    return took;
}

/* Connector: dials one stream. */
static enum rdmux_status dial(struct toy_ep *ep, struct stream *stream)
{
    struct sockaddr_un place;
    socklen_t length = meeting_place(ep, &place);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return system_error("socket");
    }
    if (connect(fd, (struct sockaddr *)&place, length) != 0) {
        enum rdmux_status status = system_error("connect");
        close(fd);
        return status;
    }
    if (!use_socket(stream, fd)) {
        rdmux_provider_error("toy: the acceptor is another user's");
        return RDMUX_DENIED;
    }
    return RDMUX_OK;
}

static enum rdmux_status toy_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                        size_t size)
{
    struct toy_ep *ep = toy_ep_of(base);
    if (peer != NULL &&
        (size != sizeof(DESCRIPTION) || memcmp(peer, DESCRIPTION, sizeof(DESCRIPTION)) != 0)) {
        rdmux_provider_error("toy: the peer runs another version of it");
        return RDMUX_PROTOCOL;
    }
    if (ep->attr->role == RDMUX_ROLE_ACCEPT) {
        (void)take_sockets(ep);
        return ep->ours.fd >= 0 ? RDMUX_OK : RDMUX_IN_PROGRESS;
    }
    enum rdmux_status status = dial(ep, &ep->ours);
    return status == RDMUX_OK ? dial(ep, &ep->theirs) : status;
}

static enum rdmux_status toy_ep_quiesce(struct rdmux_provider_ep *base,
                                        struct rdmux_provider_counts *counts)
{
    struct toy_ep *ep = toy_ep_of(base);
    ep->failed = true; /* from here on no byte is moved */
    int *const fds[] = { &ep->listener, &ep->ours.fd, &ep->theirs.fd };
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (*fds[i] >= 0) {
            close(*fds[i]);
            *fds[i] = -1;
        }
    }
    *counts = ep->counts;
    return RDMUX_OK;
}

static void toy_ep_close(struct rdmux_provider_ep *base)
{
    struct rdmux_provider_counts counts;
    (void)toy_ep_quiesce(base, &counts);
}

const struct rdmux_provider_ops toy_provider = {
    .abi = RDMUX_PROVIDER_ABI,
    .size = sizeof(struct rdmux_provider_ops),
    .name = "toy",
    .flags = RDMUX_PROVIDER_QUICK,
    .domain_size = sizeof(struct rdmux_provider_domain),
    .cq_size = sizeof(struct toy_cq),
    .ep_size = sizeof(struct toy_ep),
    .srq_size = sizeof(struct rdmux_provider_srq),
    .mr_size = sizeof(struct rdmux_provider_mr),
    .remote_size = sizeof(struct toy_remote),
    .probe = toy_probe,
    .reach = toy_reach,
    .domain_open = toy_domain_open,
    .domain_close = toy_domain_close,
    .async_event = rdmux_unsupported_async_event,
    .domain_fd = rdmux_unsupported_domain_fd,
    .inspect = rdmux_unsupported_inspect,
    .mr_register = toy_mr_register,
    .mr_deregister = toy_mr_deregister,
    .mr_describe = toy_mr_describe,
    .mr_invalidate = toy_mr_invalidate,
    .cq_open = toy_cq_open,
    .cq_close = toy_cq_close,
    .poll = toy_poll,
    .arm = toy_arm,
    .fd = toy_fd,
    .ep_open = toy_ep_open,
    .ep_describe = toy_ep_describe,
    .ep_connect = toy_ep_connect,
    .ep_join = rdmux_unsupported_ep_join,
    .ep_control = rdmux_unsupported_ep_control,
    .ep_ping = rdmux_unsupported_ep_ping,
    .ep_quiesce = toy_ep_quiesce,
    .ep_close = toy_ep_close,
    .post = toy_post,
    .doorbell = rdmux_unsupported_doorbell,
    .post_recv = toy_post_recv,
    .srq_open = rdmux_software_srq_open,
    .srq_close = rdmux_software_srq_close,
    .srq_post_recv = rdmux_software_srq_post_recv,
    .remote_open = toy_remote_open,
    .remote_close = toy_remote_close,
};
