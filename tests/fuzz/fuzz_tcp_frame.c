/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The tcp provider against a stranger's bytes: the decoders, and a whole endpoint whose peer sends
 * the input. Byte 0 has options, byte 1 the size of the pieces that arrive; the rest is the stream.
 * With SOCKETS each piece begins with a byte: the data socket in its lower 2 bits, its size in the
 * others.
 *
 * Always: no byte beside the exported region is written, the endpoint ends with a status once its
 * peer is gone, and an endpoint of a good peer on the same cq continues.
 */
#include "driver.h"
#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_credit.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_frame.h"
#include "tcp_fallback/tcp_provider.h"
#include "tests/unit/fake_core.h"

#include <sys/socket.h>
#include <unistd.h>

enum {
    WITH_REQUESTS = 1 << 0, /* requests of ours are in flight, so answers may be valid */
    WITH_SRQ = 1 << 1,
    CONNECTS = 1 << 2,
    SOCKETS = 1 << 3,   /* several data sockets, each with its share of the bytes */
    ON_DEMAND = 1 << 4, /* the peer gives credits when asked */
    NO_ARM = 1 << 5,    /* polls all the time and never arms */
    SOCKET_COUNT = 4,
    REGION_SIZE = 4096,
    GUARD_SIZE = 256,
    GUARD = 0xa5,
    ENDS_WITHIN = 1000, /* polls */
    RECEIVES = 4,
    REQUESTS = 5,
    PIECES_MAX = 4096,
};

static void decode(const uint8_t *data, size_t size)
{
    struct tcp_frame frame;
    struct tcp_description description;
    size_t used = 0;
    if (rdmux_tcp_frame_decode(data, size, &frame, &used) == RDMUX_OK) {
        uint8_t again[TCP_HEADER_MAX];
        fake_expect(used <= size && used <= TCP_HEADER_MAX);
        size_t filler = frame.kind == TCP_PING ? (size_t)frame.length : 0;
        fake_expect(rdmux_tcp_frame_encode(&frame, again) == used - filler);
        fake_expect(memcmp(again, data, used - filler) == 0);
    }
    if (rdmux_tcp_control_size(data, size, &used) == RDMUX_OK) {
        fake_expect(used <= TCP_CONTROL_HEADER_SIZE + TCP_CONTROL_PAYLOAD_MAX);
    }
    if (rdmux_tcp_description_decode(data, size, &description) == RDMUX_OK) {
        fake_expect(description.sockets > 0 && description.answers > 0);
    }
}

struct victim {
    struct rdmux_provider_domain *domain;
    struct tcp_cq *cq;
    struct tcp_srq *srq;
    struct tcp_ep *ep;
    struct rdmux_cq core_cq;
    struct rdmux_ep *core;
    struct rdmux_srq *core_srq;
    struct rdmux_software_remote remote;
    struct rdmux_provider_ep_attr attr;
    struct rdmux_request requests[REQUESTS];
    struct rdmux_provider_sge sges[REQUESTS];
    uint32_t request_count;
    struct rdmux_request receives[RECEIVES];
    struct rdmux_provider_sge receive_sges[RECEIVES];
    uint8_t *buffers[RECEIVES];
    uint8_t *memory; /* a guard, the region, a guard */
    uint8_t *results;
    int peers[SOCKET_COUNT];
    int ours; /* our end of a shared socket; -1: none */
    uint32_t sockets;
    /* For an early message that waits at the end. */
    struct rdmux_request last_receive;
    struct rdmux_provider_sge last_sge;
    uint8_t last_buffer[TCP_EARLY_MAX];
    /* The endpoint of a good peer. */
    struct tcp_ep *good;
    struct rdmux_ep *good_core;
    struct rdmux_provider_ep_attr good_attr;
    struct rdmux_request good_receive;
    struct rdmux_provider_sge good_sge;
    uint8_t good_buffer[8];
    int good_peer;
};

static const struct rdmux_provider_ops *const ops = &rdmux_tcp_provider;

static void *make(size_t size)
{
    void *memory = calloc(1, size);
    fake_expect(memory != NULL);
    return memory;
}

static void post(struct victim *victim, uint32_t op, uint64_t length, uint32_t flags)
{
    uint32_t index = victim->request_count++;
    size_t posted = 0;
    victim->sges[index] = (struct rdmux_provider_sge){ victim->results, length, NULL };
    victim->requests[index] = (struct rdmux_request){
        .op = op,
        .flags = flags,
        .sge_count = 1,
        .length = length,
        .sges = &victim->sges[index],
        .remote = &victim->remote.base,
    };
    (void)ops->post(&victim->ep->base, &victim->requests[index], 1, 0, &posted);
}

static void receives_post(struct victim *victim)
{
    static const size_t sizes[RECEIVES] = { 0, 8, 100, 70000 };
    for (size_t i = 0; i < RECEIVES; i++) {
        victim->buffers[i] = make(sizes[i] + 1);
        victim->receive_sges[i] = (struct rdmux_provider_sge){ victim->buffers[i], sizes[i], NULL };
        victim->receives[i] = (struct rdmux_request){ .op = RDMUX_OP_RECV,
                                                      .sge_count = 1,
                                                      .length = sizes[i],
                                                      .sges = &victim->receive_sges[i] };
        fake_receive(fake_receives_of(victim->core), &victim->receives[i]);
    }
    if (victim->srq != NULL) {
        (void)ops->srq_post_recv(&victim->srq->base, NULL, RECEIVES);
    } else {
        (void)ops->post_recv(&victim->ep->base, victim->receives, RECEIVES);
    }
}

static void make_pair(int out[2])
{
    fake_expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, out) == 0);
}

static struct tcp_ep *ep_make(struct victim *victim, struct rdmux_ep *core,
                              const struct rdmux_provider_ep_attr *attr)
{
    struct tcp_ep *ep = make(ops->ep_size);
    ep->base.ops = ops;
    ep->base.cq = &victim->cq->base;
    ep->base.ep = core;
    fake_expect(ops->ep_open(&ep->base, attr) == RDMUX_OK);
    return ep;
}

static enum rdmux_status ep_connect(struct tcp_ep *ep, uint32_t sockets, bool on_demand)
{
    uint8_t description[TCP_DESCRIPTION_SIZE];
    const struct tcp_description peer = { .sockets = sockets,
                                          .answers = 32,
                                          .on_demand = on_demand };
    rdmux_tcp_description_encode(&peer, description);
    return ops->ep_connect(&ep->base, description, sizeof(description));
}

/* -------------------------------------------------------------------------------- the neighbour */

static void neighbour_open(struct victim *victim)
{
    int pair[2];
    make_pair(pair);
    victim->good_peer = pair[1];
    victim->good_core = make(sizeof(*victim->good_core));
    victim->good_attr = (struct rdmux_provider_ep_attr){ .role = RDMUX_ROLE_ACCEPT,
                                                         .data_sockets = 1,
                                                         .liveness_ms = RDMUX_NEVER,
                                                         .shared_socket = pair[0] };
    victim->good_sge = (struct rdmux_provider_sge){ victim->good_buffer, 8, NULL };
    victim->good_receive = (struct rdmux_request){
        .op = RDMUX_OP_RECV, .sge_count = 1, .length = 8, .sges = &victim->good_sge
    };
    fake_receive(fake_receives_of(victim->good_core), &victim->good_receive);
    victim->good = ep_make(victim, victim->good_core, &victim->good_attr);
    fake_expect(ep_connect(victim->good, 1, false) == RDMUX_OK);
    (void)ops->post_recv(&victim->good->base, &victim->good_receive, 1);
    (void)ops->poll(&victim->cq->base, 16); /* the victim may grant a credit */
}

/* A message of the good peer arrives, whatever the state of the victim. */
static void neighbour_check(struct victim *victim)
{
    uint8_t bytes[TCP_HEADER_MAX + 8];
    static const uint8_t peace[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    const struct tcp_frame frame = { .kind = TCP_SEND, .length = 8 };
    size_t size = rdmux_tcp_frame_encode(&frame, bytes);
    memcpy(bytes + size, peace, sizeof(peace));
    size += 8;
    fake_expect(send(victim->good_peer, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
    for (int i = 0; i < ENDS_WITHIN && victim->good_receive.done == 0; i++) {
        (void)ops->poll(&victim->cq->base, 16);
    }
    fake_expect(victim->good_core->failed == RDMUX_OK);
    fake_expect(victim->good_receive.done != 0 && victim->good_receive.status == RDMUX_OK);
    fake_expect(memcmp(victim->good_buffer, peace, sizeof(peace)) == 0);
}

/* ----------------------------------------------------------------------------------- the victim */

static void victim_connect(struct victim *victim, uint8_t options)
{
    int pair[2];
    bool on_demand = (options & ON_DEMAND) != 0;
    if ((options & SOCKETS) == 0) {
        make_pair(pair);
        victim->sockets = 1;
        victim->ours = pair[0];
        victim->peers[0] = pair[1];
        victim->attr.shared_socket = pair[0];
        victim->attr.role = (options & CONNECTS) != 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT;
        victim->ep = ep_make(victim, victim->core, &victim->attr);
        fake_expect(ep_connect(victim->ep, 1, on_demand) == RDMUX_OK);
        return;
    }
    victim->sockets = SOCKET_COUNT;
    victim->ours = -1;
    victim->attr.data_sockets = SOCKET_COUNT;
    victim->attr.shared_socket = -1;
    victim->ep = ep_make(victim, victim->core, &victim->attr);
    fake_expect(ep_connect(victim->ep, SOCKET_COUNT, on_demand) == RDMUX_IN_PROGRESS);
    for (uint32_t i = 0; i < SOCKET_COUNT; i++) {
        make_pair(pair);
        victim->peers[i] = pair[1];
        fake_expect(ops->ep_join(&victim->ep->base, pair[0], i) == RDMUX_OK);
    }
    fake_expect(ops->ep_connect(&victim->ep->base, NULL, 0) == RDMUX_OK);
}

static void victim_open(struct victim *victim, uint8_t options)
{
    memset(victim, 0, sizeof(*victim));
    victim->domain = make(ops->domain_size);
    victim->domain->ops = ops;
    victim->domain->fabric = &fake_fabric;
    victim->cq = make(ops->cq_size);
    victim->cq->base = (struct rdmux_provider_cq){ victim->domain, &victim->core_cq, 2, 0 };
    fake_expect(ops->cq_open(&victim->cq->base, 64) == RDMUX_OK);
    victim->core = make(sizeof(*victim->core));
    victim->attr = (struct rdmux_provider_ep_attr){ .role = RDMUX_ROLE_ACCEPT,
                                                    .data_sockets = 1,
                                                    .liveness_ms = RDMUX_NEVER };
    if (options & WITH_SRQ) {
        victim->core_srq = make(sizeof(*victim->core_srq));
        victim->srq = make(ops->srq_size);
        victim->core->srq = victim->core_srq;
        victim->attr.srq = &victim->srq->base;
        fake_expect(ops->srq_open(&victim->srq->base, 4, 1) == RDMUX_OK);
    }
    victim->memory = make(GUARD_SIZE + REGION_SIZE + GUARD_SIZE);
    memset(victim->memory, GUARD, GUARD_SIZE + REGION_SIZE + GUARD_SIZE);
    victim->results = make(REGION_SIZE);
    memset(fake_regions, 0, sizeof(fake_regions));
    fake_region(0, victim->memory + GUARD_SIZE, REGION_SIZE,
                RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC)
        ->serial = 0; /* so that a key of zeros, which inputs find easily, is valid */
    victim_connect(victim, options);
    neighbour_open(victim);
    receives_post(victim);
    if (options & WITH_REQUESTS) {
        post(victim, RDMUX_OP_READ, 100, 0);
        post(victim, RDMUX_OP_FETCH_ADD, 8, 0);
        post(victim, RDMUX_OP_WRITE, 16, RDMUX_PLACED);
        post(victim, RDMUX_OP_READ, REGION_SIZE, 0);
        post(victim, RDMUX_OP_SEND, 8, RDMUX_PLACED);
    }
}

static void check_memory(const struct victim *victim)
{
    for (size_t i = 0; i < GUARD_SIZE; i++) {
        fake_expect(victim->memory[i] == GUARD &&
                    victim->memory[GUARD_SIZE + REGION_SIZE + i] == GUARD);
    }
}

/* Ends the peer; the endpoint must end with a status. */
static void victim_end(struct victim *victim)
{
    neighbour_check(victim);
    for (uint32_t i = 0; i < victim->sockets; i++) {
        (void)close(victim->peers[i]);
    }
    for (int i = 0; i < ENDS_WITHIN && victim->core->failed == RDMUX_OK; i++) {
        (void)ops->poll(&victim->cq->base, 16);
    }
    if (victim->core->failed == RDMUX_OK) { /* an early message waits for a receive */
        fake_expect(victim->ep->in.is_end_waiting);
        victim->last_sge = (struct rdmux_provider_sge){ victim->last_buffer,
                                                        sizeof(victim->last_buffer), NULL };
        victim->last_receive = (struct rdmux_request){ .op = RDMUX_OP_RECV,
                                                       .sge_count = 1,
                                                       .length = sizeof(victim->last_buffer),
                                                       .sges = &victim->last_sge };
        fake_receive(fake_receives_of(victim->core), &victim->last_receive);
        (void)ops->post_recv(&victim->ep->base, &victim->last_receive, 1);
        fake_expect(victim->last_receive.done != 0);
    }
    fake_expect(victim->core->failed != RDMUX_OK);
    check_memory(victim);
}

static void ep_free(struct tcp_ep *ep)
{
    struct rdmux_provider_counts counts;
    fake_expect(ops->ep_quiesce(&ep->base, &counts) == RDMUX_OK);
    ops->ep_close(&ep->base);
    free(ep);
}

static void victim_close(struct victim *victim)
{
    ep_free(victim->ep);
    ep_free(victim->good);
    if (victim->srq != NULL) {
        fake_expect(victim->srq->scheduler.pool.promised == 0);
        ops->srq_close(&victim->srq->base);
    }
    ops->cq_close(&victim->cq->base);
    if (victim->ours >= 0) {
        (void)close(victim->ours);
    }
    (void)close(victim->good_peer);
    (void)close(victim->good_attr.shared_socket);
    for (size_t i = 0; i < RECEIVES; i++) {
        free(victim->buffers[i]);
    }
    free(victim->memory);
    free(victim->results);
    free(victim->good_core);
    free(victim->srq);
    free(victim->core_srq);
    free(victim->core);
    free(victim->cq);
    free(victim->domain);
    fake_expect(fake_fabric.allocations == 0);
}

/* Discards the victim's bytes. */
static void drain(const struct victim *victim)
{
    uint8_t sink[PIECES_MAX];
    for (uint32_t i = 0; i < victim->sockets; i++) {
        while (recv(victim->peers[i], sink, sizeof(sink), MSG_DONTWAIT) > 0) {
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode(data, size);
    if (size < 2) {
        return 0;
    }
    struct victim victim;
    victim_open(&victim, data[0]);
    size_t most = data[1] == 0 ? PIECES_MAX : data[1];
    uint32_t stuck = 0;
    for (size_t at = 2; at < size && victim.core->failed == RDMUX_OK && stuck < ENDS_WITHIN;) {
        uint32_t index = 0;
        size_t piece = most;
        if (victim.sockets > 1) {
            index = data[at] % SOCKET_COUNT;
            piece = data[at] / SOCKET_COUNT;
            at++;
        }
        piece = size - at < piece ? size - at : piece;
        for (size_t end = at + piece; at < end && victim.core->failed == RDMUX_OK;) {
            ssize_t sent = send(victim.peers[index], data + at, end - at,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
            at += sent > 0 ? (size_t)sent : 0;
            stuck = sent > 0 ? 0 : stuck + 1; /* a socket that the victim does not read now */
            if (stuck == ENDS_WITHIN) {
                break;
            }
            (void)ops->poll(&victim.cq->base, 16);
            if ((data[0] & NO_ARM) == 0) {
                (void)ops->arm(&victim.cq->base);
            }
            drain(&victim);
        }
    }
    victim_end(&victim);
    victim_close(&victim);
    return 0;
}
