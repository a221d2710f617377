/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Pairs with failover, and ways to break their paths. */
#ifndef RDMUX_TESTS_FAILOVER_SCENE_H
#define RDMUX_TESTS_FAILOVER_SCENE_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/srq.h"
#include "api/progress/cq_owner.h"
#include "tests/unit/endpoint_scene.h"

#include "negotiation/control_channel.h"
#include "negotiation/reconnect_proof.h"

/* Opens a pair with failover on both sides. */
static inline void open_failover(struct scene *scene, const char *paths, uint32_t flags,
                                 const struct rdmux_ep_attr *wishes)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    if (wishes != NULL) {
        attr = *wishes;
    }
    attr.failover = RDMUX_FAILOVER_ON;
    set_scene(scene, paths, flags);
    connect_more(&scene->pair, &attr, &scene->pair.a, &scene->pair.b);
}

/* Reports to this side that the endpoint's path has failed. */
static inline void fail_path(struct rdmux_ep *ep, enum rdmux_status status)
{
    assert_true(rdmux_cq_enter(ep->cq));
    rdmux_provider_failed(ep->path, status, "broken by a test");
    rdmux_cq_leave(ep->cq);
}

static inline unsigned port_at(int fd, int (*name_of)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_in name = { .sin_family = AF_UNSPEC };
    socklen_t length = sizeof(name);
    if (name_of(fd, (struct sockaddr *)&name, &length) != 0 || name.sin_family != AF_INET) {
        return 0;
    }
    return ntohs(name.sin_port);
}

/* Cuts the tcp connections of a path between a and b, but not their control channel. Returns how
 * many it has cut. */
static inline size_t cut_data_sockets(const struct pair *pair)
{
    const char *colon = strrchr(pair->address, ':');
    assert_non_null(colon);
    unsigned port = (unsigned)strtoul(colon + 1, NULL, 10);
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        if ((pair->a->channel == NULL || fd != rdmux_channel_socket(pair->a->channel)) &&
            port_at(fd, getpeername) == port) {
            assert_int_equal(shutdown(fd, SHUT_RDWR), 0);
            count++;
        }
    }
    return count;
}

/* Tells whether a control channel can reconnect: not without OpenSSL. */
static inline bool can_resume(void)
{
    const uint8_t secret[RDMUX_SECRET_SIZE] = { 0 };
    uint8_t name[RDMUX_RECONNECT_NAME_SIZE];
    return rdmux_reconnect_name(secret, name);
}

/* Cuts the control channel for both ends. Enters the cq first, as the service thread may own it. */
static inline void cut_control(const struct pair *pair)
{
    assert_true(rdmux_cq_enter(pair->cq_a));
    assert_non_null(pair->a->channel);
    assert_int_equal(shutdown(rdmux_channel_socket(pair->a->channel), SHUT_RDWR), 0);
    rdmux_cq_leave(pair->cq_a);
}

static inline struct rdmux_ep_info info_of(struct rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(ep, &info));
    return info;
}

static inline uint64_t moves_of(struct rdmux_ep *ep)
{
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    CHECK_OK(rdmux_ep_stats(ep, &stats));
    return stats.moves;
}

/* ------------------------------------------------------------------------------------- traffic */

enum { TRAFFIC_DEPTH = 32 };

/* Both sides send numbers as fast as their queues take them, and check the numbers received. */
struct traffic_side {
    struct rdmux_ep *ep;
    struct rdmux_srq *srq; /* NULL: the endpoint has its own receives */
    struct rdmux_cq *cq;
    uint64_t posted;
    uint64_t completed;
    uint64_t received;
    uint64_t changes;
    uint64_t out[TRAFFIC_DEPTH];
    uint64_t in[TRAFFIC_DEPTH];
};

static inline void post_receive(struct traffic_side *half, uint64_t number)
{
    uint64_t *word = &half->in[number % TRAFFIC_DEPTH];
    CHECK_OK(half->srq == NULL
                 ? rdmux_recv(half->ep, word, sizeof(*word), NULL, CONTEXT(number))
                 : rdmux_srq_recv(half->srq, word, sizeof(*word), NULL, CONTEXT(number)));
}

static inline void begin_traffic(struct traffic_side *half, struct rdmux_ep *ep, struct rdmux_cq *cq)
{
    memset(half, 0, sizeof(*half));
    half->ep = ep;
    half->cq = cq;
    half->srq = ep->srq;
    for (uint64_t i = 0; i < TRAFFIC_DEPTH; i++) {
        post_receive(half, i);
    }
}

static inline void send_some(struct traffic_side *half, uint64_t until)
{
    while (half->posted < until && half->posted - half->completed < TRAFFIC_DEPTH) {
        uint64_t *word = &half->out[half->posted % TRAFFIC_DEPTH];
        *word = half->posted;
        uint32_t flags = half->posted % 3 == 0 ? (uint32_t)RDMUX_INLINE : 0;
        CHECK_OK(rdmux_send(half->ep, word, sizeof(*word), NULL, CONTEXT(half->posted), flags));
        if (flags != 0) {
            *word = ~*word; /* an inline post has copied the buffer */
        }
        half->posted++;
    }
}

static inline void take_some(struct traffic_side *half)
{
    struct rdmux_wc wcs[8];
    size_t count = rdmux_cq_poll(half->cq, wcs, 8);
    for (size_t i = 0; i < count; i++) {
        const struct rdmux_wc *wc = &wcs[i];
        if (wc->status != RDMUX_OK && wc->opcode != RDMUX_WC_PATH_CHANGED) {
            struct rdmux_ep_info info = info_of(half->ep);
            fail_msg("%s with %s: %s", rdmux_wc_opcode_name(wc->opcode),
                     rdmux_status_name((enum rdmux_status)wc->status), info.text);
        }
        if (wc->opcode == RDMUX_WC_SEND) {
            assert_ptr_equal(wc->context, CONTEXT(half->completed));
            half->completed++;
        } else if (wc->opcode == RDMUX_WC_RECV) {
            assert_ptr_equal(wc->context, CONTEXT(half->received));
            assert_int_equal(wc->length, sizeof(uint64_t));
            assert_int_equal(half->in[half->received % TRAFFIC_DEPTH], half->received);
            post_receive(half, half->received + TRAFFIC_DEPTH);
            half->received++;
        } else {
            assert_int_equal(wc->opcode, RDMUX_WC_PATH_CHANGED);
            half->changes++;
        }
    }
}

/* After IDLE idle rounds, yields the processor: the test may be waiting for a silence timeout. */
static inline void rest_if_idle(const struct traffic_side *a, const struct traffic_side *b,
                                uint64_t *done, unsigned *idle)
{
    enum { IDLE = 1000 };
    uint64_t now_done = a->received + a->completed + b->received + b->completed;
    *idle = now_done == *done ? *idle + 1 : 0;
    *done = now_done;
    if (*idle >= IDLE) {
        pause_ms(1);
    }
}

static inline bool has_channel(const struct rdmux_ep *ep)
{
    assert_true(rdmux_cq_enter(ep->cq));
    bool has = ep->channel != NULL;
    rdmux_cq_leave(ep->cq);
    return has;
}

static inline bool has_channels(const struct pair *pair)
{
    return has_channel(pair->a) && has_channel(pair->b);
}

/* Breaks the path after every `period` messages of a. */
static inline void run_traffic(struct pair *pair, uint64_t total, uint64_t period,
                               void (*break_path)(struct pair *pair))
{
    struct traffic_side a;
    struct traffic_side b;
    uint64_t breaks = 0;
    uint64_t done = 0;
    unsigned idle = 0;
    uint64_t until = now_ms() + 4UL * PATIENT_MS;
    begin_traffic(&a, pair->a, pair->cq_a);
    begin_traffic(&b, pair->b, pair->cq_b);
    while (a.received < total || b.received < total || a.completed < total || b.completed < total) {
        assert_true(now_ms() < until);
        send_some(&a, total);
        send_some(&b, total);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
        take_some(&a);
        take_some(&b);
        rest_if_idle(&a, &b, &done, &idle);
        if (b.received >= (breaks + 1) * period && breaks == moves_of(pair->a) &&
            breaks == moves_of(pair->b) && has_channels(pair)) {
            break_path(pair);
            breaks++;
        }
    }
    while (a.changes < breaks || b.changes < breaks) {
        assert_true(now_ms() < until);
        take_some(&a);
        take_some(&b);
        rest_if_idle(&a, &b, &done, &idle);
    }
    assert_int_equal(a.received, total);
    assert_int_equal(b.received, total);
    assert_int_equal(a.changes, breaks);
    assert_int_equal(b.changes, breaks);
    assert_true(breaks >= total / period - 1);
}

static inline void cut_tcp(struct pair *pair)
{
    assert_int_equal(cut_data_sockets(pair), 1);
}

static inline void fail_a(struct pair *pair)
{
    fail_path(pair->a, RDMUX_IO);
}

static inline void fail_b(struct pair *pair)
{
    fail_path(pair->b, RDMUX_PEER_GONE);
}

static inline void fail_both(struct pair *pair)
{
    fail_path(pair->a, RDMUX_IO);
    fail_path(pair->b, RDMUX_IO);
}

static inline void cut_both(struct pair *pair)
{
    cut_control(pair);
    fail_path(pair->b, RDMUX_IO);
}

static inline void cut_both_and_fail_here(struct pair *pair)
{
    fail_path(pair->a, RDMUX_IO);
    cut_control(pair);
}

static const struct rdmux_ep_attr traffic_attr = {
    .size = sizeof(struct rdmux_ep_attr),
    .send_depth = TRAFFIC_DEPTH,
    .recv_depth = TRAFFIC_DEPTH,
    .failover_attempts = 1000,
};

#endif
