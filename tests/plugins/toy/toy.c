/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * toy - a small provider: two processes of one user on one host, over an AF_UNIX packet socket.
 * The worked example of docs/PROVIDER-GUIDE.md.
 *
 * A request travels in parts of at most PART_MAX bytes, one packet each, and each is answered: with
 * the bytes of a read, with the value before of an atomic, else with a status alone. The next part,
 * or the next request, goes when the answer is here. So at most one packet with a request and one
 * with an answer are on the way in each direction, which any socket has room for, and a request that
 * is done has been carried out at the target: PLACED and FENCE hold by themselves.
 *
 * A message that meets no receive is held back, unanswered, until there is one. Answers to this
 * side's own requests go on meanwhile.
 */
#include "toy.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    PART_MAX = 32 * 1024, /* bytes of data in one packet */
    INLINE_MAX = 256,     /* less than a part, so an inline request is sent whole or refused */
    EVENTS_MAX = 32,
    ANSWER = 0x80, /* packet.op: no request, but the answer to the one under way */
};

/* Both ends run the same version on one host (ep_connect looks), so it travels as it lies in
 * memory. Only the data that there are follow the head. */
struct packet {
    uint32_t op; /* RDMUX_OP_*, or ANSWER */
    uint32_t imm;
    uint32_t status; /* of an answer */
    uint32_t spare;
    uint64_t length; /* of the whole request */
    uint64_t at;     /* where in the request this part begins */
    uint64_t offset; /* into the region */
    uint64_t operand;
    uint64_t expected;
    uint64_t old; /* of an answer to an atomic: the value before */
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
    uint8_t data[PART_MAX];
};
enum { HEAD_SIZE = offsetof(struct packet, data) };

static const char DESCRIPTION[] = "toy-2";

struct toy_cq {
    struct rdmux_software_cq base;
    struct packet in; /* scratch: the cq's owner is alone */
    struct packet out;
};

struct toy_ep {
    struct rdmux_provider_ep base;
    bool accepts;
    int listener;                  /* acceptor's, until the connector has dialled; -1: none */
    int socket;                    /* -1: none */
    struct rdmux_request *ours;    /* the one under way; NULL: none */
    uint64_t at;                   /* of it: where the part under way begins */
    bool refused;                  /* post said AGAIN */
    struct rdmux_request *receive; /* their message goes there */
    struct packet held;            /* their message, while it waits for a receive */
    bool holds;
    bool failed;
    struct rdmux_provider_counts counts;
};

static struct toy_ep *toy_ep_of(struct rdmux_provider_ep *ep)
{
    return (struct toy_ep *)ep;
}

static struct toy_cq *toy_cq_of(struct toy_ep *ep)
{
    return (struct toy_cq *)ep->base.cq;
}

static enum rdmux_status toy_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                   size_t max, size_t *count)
{
    (void)fabric;
    *count = 1;
    if (max == 0) {
        return RDMUX_OK;
    }
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->device, sizeof(out->device), "toy");
    rdmux_software_here(out);
    out->bandwidth = UINT64_C(1000000000);
    out->latency_ns = 20000;
    out->native = RDMUX_CAP_SEND | RDMUX_CAP_SEND_IMM | RDMUX_CAP_WRITE | RDMUX_CAP_WRITE_IMM |
                  RDMUX_CAP_READ | RDMUX_CAP_PLACED | RDMUX_CAP_SRQ | RDMUX_CAP_FENCE;
    out->emulated = RDMUX_CAP_FETCH_ADD | RDMUX_CAP_COMPARE_SWAP; /* by the target's CPU */
    out->max_inline = INLINE_MAX;
    out->security = RDMUX_SECURITY_SAME_USER;
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------------- packets */

static void fail(struct toy_ep *ep, enum rdmux_status status, const char *text)
{
    if (!ep->failed) {
        ep->failed = true;
        rdmux_provider_failed(&ep->base, status, text);
    }
}

/* Bytes of the part that begins at `at`. */
static uint64_t part(uint64_t length, uint64_t at)
{
    return length - at < PART_MAX ? length - at : PART_MAX;
}

static bool is_send(uint32_t op)
{
    return op == RDMUX_OP_SEND || op == RDMUX_OP_SEND_IMM;
}

static bool is_write(uint32_t op)
{
    return op == RDMUX_OP_WRITE || op == RDMUX_OP_WRITE_IMM;
}

static bool is_atomic(uint32_t op)
{
    return op == RDMUX_OP_FETCH_ADD || op == RDMUX_OP_COMPARE_SWAP;
}

static void send_packet(struct toy_ep *ep, const struct packet *packet, uint64_t data)
{
    ssize_t sent = send(ep->socket, packet, HEAD_SIZE + data, MSG_DONTWAIT | MSG_NOSIGNAL);
    ep->base.system_calls++;
    /* A peer that has gone is noticed behind what it sent before. */
    if (sent < 0 && errno != EPIPE && errno != ECONNRESET) {
        fail(ep, RDMUX_IO, "toy: the socket does not take a packet");
    }
}

/* ----------------------------------------------------------------------------- our own requests */

static void send_part(struct toy_ep *ep)
{
    const struct rdmux_request *request = ep->ours;
    struct packet *out = &toy_cq_of(ep)->out;
    out->op = request->op;
    out->imm = request->imm;
    out->length = is_atomic(request->op) ? 0 : request->length;
    out->at = ep->at;
    out->offset = request->offset;
    out->operand = request->operand;
    out->expected = request->expected;
    if (request->remote != NULL) {
        memcpy(out->key, ((const struct rdmux_software_remote *)request->remote)->key,
               sizeof(out->key));
    }
    bool has_data = is_send(request->op) || is_write(request->op);
    uint64_t data = has_data ? part(out->length, out->at) : 0;
    rdmux_software_gather(request, out->at, out->data, data);
    send_packet(ep, out, data);
}

static enum rdmux_status toy_post(struct rdmux_provider_ep *base, struct rdmux_request *requests,
                                  size_t count, uint32_t flags, size_t *posted)
{
    (void)flags;
    struct toy_ep *ep = toy_ep_of(base);
    *posted = 0;
    if (count > 0 && ep->ours == NULL) {
        ep->ours = &requests[0];
        ep->at = 0;
        send_part(ep);
        *posted = 1;
    }
    ep->refused = *posted < count;
    return ep->refused ? RDMUX_AGAIN : RDMUX_OK;
}

/* data: bytes that came with it. */
static void take_answer(struct toy_ep *ep, const struct packet *in, uint64_t data)
{
    struct rdmux_request *request = ep->ours;
    if (in->status != RDMUX_OK) {
        fail(ep, (enum rdmux_status)in->status, "toy: the peer refused a request");
        return;
    }
    uint64_t length = request == NULL || is_atomic(request->op) ? 0 : request->length;
    uint64_t size = part(length, ep->at);
    if (request == NULL || data != (request->op == RDMUX_OP_READ ? size : 0)) {
        fail(ep, RDMUX_PROTOCOL, "toy: the peer's answer is none to our request");
        return;
    }
    rdmux_software_scatter(request, ep->at, in->data, data);
    if (is_atomic(request->op)) {
        rdmux_software_scatter(request, 0, &in->old, sizeof(in->old));
    }
    ep->at += size;
    if (ep->at < length) {
        send_part(ep);
        return;
    }
    ep->ours = NULL;
    rdmux_provider_done(&ep->base, request, RDMUX_OK);
    if (ep->refused) {
        rdmux_provider_resume(&ep->base);
    }
}

/* ------------------------------------------------------------------------------ their requests */

/* One part of a write or read; *data is how many bytes go with the answer. */
static enum rdmux_status move(struct toy_ep *ep, const struct packet *in, uint64_t *data)
{
    void *addr = NULL;
    uint64_t size = part(in->length, in->at);
    if (size == 0) {
        return RDMUX_OK;
    }
    /* Asked anew for each part: the region may be revoked between two of them. */
    enum rdmux_status status = rdmux_target_enter(
        &ep->base, in->key, in->offset + in->at, size,
        is_write(in->op) ? RDMUX_ACCESS_REMOTE_WRITE : RDMUX_ACCESS_REMOTE_READ, &addr);
    if (status != RDMUX_OK) {
        return status;
    }
    if (is_write(in->op)) {
        memcpy(addr, in->data, size);
    } else {
        memcpy(toy_cq_of(ep)->out.data, addr, size);
        *data = size;
    }
    rdmux_target_leave(&ep->base);
    return RDMUX_OK;
}

static void deliver(struct toy_ep *ep, const struct packet *in, enum rdmux_status status)
{
    struct rdmux_request *receive = ep->receive;
    ep->receive = NULL;
    ep->counts.received++;
    rdmux_provider_received(&ep->base, receive, status,
                            is_write(in->op) ? RDMUX_WC_RECV_WRITE_IMM : RDMUX_WC_RECV, in->length,
                            in->op == RDMUX_OP_SEND ? 0 : RDMUX_WC_HAS_IMM, in->imm);
}

/* Carries a part out and answers. False: it has to wait for a receive. */
static bool serve(struct toy_ep *ep, const struct packet *in)
{
    const uint64_t size = part(in->length, in->at);
    const bool is_last = in->at + size == in->length;
    const bool needs_receive = is_send(in->op) || (in->op == RDMUX_OP_WRITE_IMM && is_last);
    struct packet *out = &toy_cq_of(ep)->out;
    enum rdmux_status status = RDMUX_OK;
    uint64_t data = 0;
    if (needs_receive && ep->receive == NULL) {
        ep->receive = rdmux_provider_take_receive(&ep->base);
        if (ep->receive == NULL) {
            return false;
        }
    }
    if (is_atomic(in->op)) {
        status = rdmux_target_atomic(&ep->base, in->key, in->op, in->offset, in->operand,
                                     in->expected, &out->old);
        ep->counts.executed += status == RDMUX_OK;
    } else if (!is_send(in->op)) {
        status = move(ep, in, &data);
    } else if (in->length > ep->receive->length) {
        status = RDMUX_LENGTH;
    } else {
        rdmux_software_scatter(ep->receive, in->at, in->data, size);
    }
    if (needs_receive && (status == RDMUX_LENGTH || (status == RDMUX_OK && is_last))) {
        deliver(ep, in, status);
    }
    out->op = ANSWER;
    out->status = (uint32_t)status;
    out->length = out->at = 0;
    send_packet(ep, out, data);
    if (status != RDMUX_OK) {
        fail(ep, status, "toy: a request of the peer was refused");
    }
    return true;
}

/* A peer's bytes are a stranger's: data is what came behind the head. */
static bool is_sound(const struct toy_ep *ep, const struct packet *in, uint64_t data)
{
    if (in->op == ANSWER) {
        return true; /* take_answer() looks */
    }
    bool has_data = is_send(in->op) || is_write(in->op);
    return (has_data || is_atomic(in->op) || in->op == RDMUX_OP_READ) && in->at <= in->length &&
           data == (has_data ? part(in->length, in->at) : 0) && !ep->holds;
}

/* ------------------------------------------------------------------------------------ progress */

/* Takes packets; returns how many. */
static size_t progress(struct toy_ep *ep, size_t budget)
{
    struct packet *in = &toy_cq_of(ep)->in;
    size_t done = 0;
    while (done < budget && !ep->failed) {
        ssize_t got = recv(ep->socket, in, sizeof(*in), MSG_DONTWAIT);
        ep->base.system_calls++;
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }
        done++;
        uint64_t data = (uint64_t)got - HEAD_SIZE;
        if (got < 0 && errno == ECONNRESET) {
            continue; /* told once, before packets that have arrived: they come first */
        }
        if (got <= 0) {
            fail(ep, RDMUX_PEER_GONE, "toy: the peer closed its socket");
        } else if (got < HEAD_SIZE || !is_sound(ep, in, data)) {
            fail(ep, RDMUX_PROTOCOL, "toy: the peer sent no request");
        } else if (in->op == ANSWER) {
            take_answer(ep, in, data);
        } else if (!serve(ep, in)) {
            memcpy(&ep->held, in, (size_t)got);
            ep->holds = true;
        }
    }
    return done;
}

static size_t toy_poll(struct rdmux_provider_cq *cq, size_t budget)
{
    struct epoll_event events[EVENTS_MAX];
    size_t done = 0;
    int count = epoll_wait(rdmux_software_fd(cq), events, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        struct toy_ep *ep = events[i].data.ptr;
        done += ep->socket >= 0 ? progress(ep, budget) : 1; /* 1: ep_connect is called again */
    }
    return done;
}

static enum rdmux_status toy_post_recv(struct rdmux_provider_ep *base,
                                       struct rdmux_request *requests, size_t count)
{
    (void)requests;
    (void)count;
    struct toy_ep *ep = toy_ep_of(base);
    if (ep->holds && !ep->failed) {
        ep->holds = !serve(ep, &ep->held);
    }
    return RDMUX_OK;
}

/* ----------------------------------------------------------------------------------- endpoints */

static enum rdmux_status system_error(const char *what)
{
    rdmux_provider_error("toy: %s: %s", what, strerror(errno));
    return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? RDMUX_NO_MEMORY : RDMUX_IO;
}

/* Puts a descriptor of the endpoint into the cq's set; it is closed if that fails. */
static enum rdmux_status watch(struct toy_ep *ep, int fd, int *out)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = ep };
    if (epoll_ctl(rdmux_software_fd(ep->base.cq), EPOLL_CTL_ADD, fd, &event) != 0) {
        enum rdmux_status status = system_error("epoll");
        close(fd);
        return status;
    }
    *out = fd;
    return RDMUX_OK;
}

/* Binds or connects a new socket to the place where both sides meet: an abstract name that only
 * they know. */
static enum rdmux_status meet(struct toy_ep *ep, int *out)
{
    struct sockaddr_un place = { .sun_family = AF_UNIX };
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + RDMUX_SECRET_SIZE;
    rdmux_provider_secret(&ep->base, (uint8_t *)place.sun_path + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return system_error("socket");
    }
    if (ep->accepts ? bind(fd, (struct sockaddr *)&place, length) != 0 || listen(fd, 8) != 0
                    : connect(fd, (struct sockaddr *)&place, length) != 0) {
        enum rdmux_status status = system_error(ep->accepts ? "listen" : "connect");
        close(fd);
        return status;
    }
    return watch(ep, fd, out);
}

static enum rdmux_status toy_ep_open(struct rdmux_provider_ep *base,
                                     const struct rdmux_provider_ep_attr *attr)
{
    struct toy_ep *ep = toy_ep_of(base);
    ep->accepts = attr->role == RDMUX_ROLE_ACCEPT;
    ep->listener = ep->socket = -1;
    return ep->accepts ? meet(ep, &ep->listener) : RDMUX_OK;
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

static enum rdmux_status toy_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                        size_t size)
{
    struct toy_ep *ep = toy_ep_of(base);
    enum rdmux_status status = RDMUX_IN_PROGRESS;
    if (peer != NULL &&
        (size != sizeof(DESCRIPTION) || memcmp(peer, DESCRIPTION, sizeof(DESCRIPTION)) != 0)) {
        rdmux_provider_error("toy: the peer runs another version of it");
        return RDMUX_PROTOCOL;
    }
    if (!ep->accepts) {
        status = meet(ep, &ep->socket);
        if (status == RDMUX_OK && !is_same_user(ep->socket)) {
            rdmux_provider_error("toy: the acceptor is another user's");
            return RDMUX_DENIED;
        }
        return status;
    }
    int fd;
    while (status == RDMUX_IN_PROGRESS &&
           (fd = accept4(ep->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (is_same_user(fd)) {
            status = watch(ep, fd, &ep->socket);
        } else {
            close(fd);
        }
    }
    if (status != RDMUX_IN_PROGRESS) {
        close(ep->listener);
        ep->listener = -1;
    }
    return status;
}

static enum rdmux_status toy_ep_quiesce(struct rdmux_provider_ep *base,
                                        struct rdmux_provider_counts *counts)
{
    struct toy_ep *ep = toy_ep_of(base);
    ep->failed = true; /* from here on no byte is moved */
    if (ep->listener >= 0) {
        close(ep->listener);
    }
    if (ep->socket >= 0) {
        close(ep->socket);
    }
    ep->listener = ep->socket = -1;
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
    .flags = RDMUX_PROVIDER_QUICK | RDMUX_PROVIDER_NATIVE_FENCE,
    .domain_size = sizeof(struct rdmux_provider_domain),
    .cq_size = sizeof(struct toy_cq),
    .ep_size = sizeof(struct toy_ep),
    .srq_size = sizeof(struct rdmux_provider_srq),
    .mr_size = sizeof(struct rdmux_provider_mr),
    .remote_size = sizeof(struct rdmux_software_remote),
    .probe = toy_probe,
    .reach = rdmux_software_reach,
    .domain_open = rdmux_software_domain_open,
    .domain_close = rdmux_software_domain_close,
    .async_event = rdmux_unsupported_async_event,
    .domain_fd = rdmux_unsupported_domain_fd,
    .inspect = rdmux_unsupported_inspect,
    .mr_register = rdmux_software_mr_register,
    .mr_deregister = rdmux_software_mr_deregister,
    .mr_describe = rdmux_software_mr_describe,
    .mr_invalidate = rdmux_software_mr_invalidate,
    .cq_open = rdmux_software_cq_open,
    .cq_close = rdmux_software_cq_close,
    .poll = toy_poll,
    .arm = rdmux_software_arm,
    .fd = rdmux_software_fd,
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
    .remote_open = rdmux_software_remote_open,
    .remote_close = rdmux_software_remote_close,
};
