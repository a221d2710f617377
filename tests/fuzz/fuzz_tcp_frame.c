/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The tcp provider against a stranger's bytes: the decoders, and a whole endpoint whose peer sends
 * the input. Byte 0 has options, byte 1 the size of the pieces that arrive; the rest is what comes.
 */
#include "driver.h"

#include "tcp_fallback/tcp_internal.h"
#include "tcp_fallback/tcp_provider.h"
#include "tests/unit/fake_core.h"

#include <sys/socket.h>
#include <unistd.h>

enum {
    WITH_REQUESTS = 1 << 0, /* ours are under way, so answers may be right */
    WITH_SRQ = 1 << 1,
    REGION_SIZE = 4096,
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
    struct tcp_remote remote;
    struct rdmux_provider_ep_attr attr;
    struct rdmux_request requests[REQUESTS];
    struct rdmux_provider_sge sges[REQUESTS];
    uint32_t request_count;
    struct rdmux_request receives[RECEIVES];
    struct rdmux_provider_sge receive_sges[RECEIVES];
    uint8_t *buffers[RECEIVES];
    uint8_t *region;
    uint8_t *results;
    int peer;
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

static void victim_open(struct victim *victim, uint8_t options)
{
    int pair[2];
    uint8_t description[TCP_DESCRIPTION_SIZE];
    memset(victim, 0, sizeof(*victim));
    fake_expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    victim->peer = pair[1];
    victim->domain = make(ops->domain_size);
    victim->domain->ops = ops;
    victim->domain->fabric = &fake_fabric;
    victim->cq = make(ops->cq_size);
    victim->cq->base = (struct rdmux_provider_cq){ victim->domain, &victim->core_cq, 1, 0 };
    fake_expect(ops->cq_open(&victim->cq->base, 64) == RDMUX_OK);
    victim->core = make(sizeof(*victim->core));
    victim->attr = (struct rdmux_provider_ep_attr){ .role = RDMUX_ROLE_ACCEPT,
                                                    .data_sockets = 1,
                                                    .liveness_ms = RDMUX_NEVER,
                                                    .shared_socket = pair[0] };
    if (options & WITH_SRQ) {
        victim->core_srq = make(sizeof(*victim->core_srq));
        victim->srq = make(ops->srq_size);
        victim->core->srq = victim->core_srq;
        victim->attr.srq = &victim->srq->base;
        fake_expect(ops->srq_open(&victim->srq->base, 4, 1) == RDMUX_OK);
    }
    victim->ep = make(ops->ep_size);
    victim->ep->base.ops = ops;
    victim->ep->base.cq = &victim->cq->base;
    victim->ep->base.ep = victim->core;
    victim->region = make(REGION_SIZE);
    victim->results = make(REGION_SIZE);
    fake_region(0, victim->region, REGION_SIZE,
                RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC)
        ->serial = 0; /* so that a key of zeros, easily found, is right */
    fake_expect(ops->ep_open(&victim->ep->base, &victim->attr) == RDMUX_OK);
    rdmux_tcp_description_encode(&(struct tcp_description){ .sockets = 1, .answers = 32 },
                                 description);
    fake_expect(ops->ep_connect(&victim->ep->base, description, sizeof(description)) == RDMUX_OK);
    receives_post(victim);
    if (options & WITH_REQUESTS) {
        post(victim, RDMUX_OP_READ, 100, 0);
        post(victim, RDMUX_OP_FETCH_ADD, 8, 0);
        post(victim, RDMUX_OP_WRITE, 16, RDMUX_PLACED);
        post(victim, RDMUX_OP_READ, REGION_SIZE, 0);
        post(victim, RDMUX_OP_SEND, 8, RDMUX_PLACED);
    }
}

static void victim_close(struct victim *victim)
{
    struct rdmux_provider_counts counts;
    fake_expect(ops->ep_quiesce(&victim->ep->base, &counts) == RDMUX_OK);
    ops->ep_close(&victim->ep->base);
    if (victim->srq != NULL) {
        fake_expect(victim->srq->pool.promised == 0);
        ops->srq_close(&victim->srq->base);
    }
    ops->cq_close(&victim->cq->base);
    (void)close(victim->peer);
    (void)close(victim->attr.shared_socket);
    for (size_t i = 0; i < RECEIVES; i++) {
        free(victim->buffers[i]);
    }
    free(victim->region);
    free(victim->results);
    free(victim->ep);
    free(victim->srq);
    free(victim->core_srq);
    free(victim->core);
    free(victim->cq);
    free(victim->domain);
    fake_expect(fake_fabric.allocations == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode(data, size);
    if (size < 2) {
        return 0;
    }
    struct victim victim;
    victim_open(&victim, data[0]);
    size_t piece = data[1] == 0 ? PIECES_MAX : data[1];
    for (size_t at = 2; at < size && victim.core->failed == RDMUX_OK;) {
        uint8_t sink[PIECES_MAX];
        size_t here = size - at < piece ? size - at : piece;
        ssize_t sent = send(victim.peer, data + at, here, MSG_NOSIGNAL | MSG_DONTWAIT);
        at += sent > 0 ? (size_t)sent : 0;
        (void)ops->poll(&victim.cq->base, 16);
        (void)ops->arm(&victim.cq->base);
        while (recv(victim.peer, sink, sizeof(sink), MSG_DONTWAIT) > 0) {
        }
    }
    victim_close(&victim);
    return 0;
}
