/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Both ends of a provider of adapters/framed, in one thread, over the fake core and over a lane in
 * memory. The lane aborts if the framed part has more messages under way than the window allows, or
 * sends memory that it did not take. The test takes each step by hand. */
#ifndef RDMUX_TESTS_FRAMED_SCENE_H
#define RDMUX_TESTS_FRAMED_SCENE_H

#include "adapters/framed/framed.h"
#include "adapters/framed/framed_frame.h"
#include "tests/unit/fake_core.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    LANE_SHORT_MAX = FRAMED_MESSAGE_MIN,
    LANE_MESSAGE_MAX = 2 * LANE_SHORT_MAX,
    LANE_WINDOW = 8,
    LANE_ROOM = LANE_WINDOW + FRAMED_UNCOUNTED,
    LANE_PIECES = 2, /* of a body */
    END_REQUESTS_MAX = 512,
    BUDGET = 64,
};

struct lane_message {
    alignas(8) uint8_t bytes[LANE_MESSAGE_MAX];
    uint32_t length;
    bool is_taken; /* the framed part fills it, or the lane sends it */
    uint8_t *body; /* that arrives, in the place of a message */
};

/* Where a body belongs that will arrive. */
struct lane_place {
    struct iovec pieces[LANE_PIECES];
    size_t count; /* 0: the lane's own memory */
    size_t length;
};

/* What the lanes opened from now on do. */
static bool lanes_have_bells;
static bool lanes_have_bodies;
static bool lanes_copy_bodies;
static bool lanes_prefer_short; /* messages of at most LANE_SHORT_MAX */

struct lane_ep {
    struct framed_ep base;
    struct lane_ep *peer; /* NULL: what is sent is dropped */
    bool refuses;         /* send says RDMUX_AGAIN */
    bool holds;           /* messages that were sent stay under way */
    bool is_stopped;
    struct lane_message *held[LANE_ROOM]; /* messages under way */
    uint32_t held_count;
    uint32_t rung;    /* messages after which the lane rang */
    uint32_t longest; /* bytes of the longest message that was sent */
    uint32_t sent;
    uint32_t bodies;           /* that were sent */
    uint32_t bodies_under_way; /* and are not reported */
    struct lane_message out[LANE_ROOM];
    struct lane_message in[LANE_ROOM + FRAMED_BODIES]; /* oldest first */
    uint32_t in_count;
    struct lane_message kept;
    struct lane_place places[FRAMED_EXPECTED]; /* oldest first */
    uint32_t place_count;
    uint32_t most_places;            /* at a time */
    uint32_t collected;              /* bodies that came into the lane's memory */
    uint8_t memory[FRAMED_BODY_MAX]; /* for them */
};

struct lane_cq {
    struct framed_cq base;
    struct lane_ep *ep; /* the only one */
};

static inline struct lane_ep *lane_of(struct framed_ep *ep)
{
    return (struct lane_ep *)ep;
}

static inline enum rdmux_status lane_cq_open(struct framed_cq *cq)
{
    cq->has_bell = lanes_have_bells;
    return RDMUX_OK;
}

static inline void lane_cq_close(struct framed_cq *cq)
{
    (void)cq;
}

/* What is under way has left. */
static inline void lane_sent(struct lane_ep *lane)
{
    while (lane->bodies_under_way > 0 && !lane->holds) {
        lane->bodies_under_way--;
        rdmux_framed_body_sent(&lane->base);
    }
    while (lane->held_count > 0 && !lane->holds) {
        lane->held[--lane->held_count]->is_taken = false;
        rdmux_framed_sent(&lane->base);
    }
}

/* Takes the oldest message that has arrived as the next body. */
static inline size_t lane_take_body(struct lane_ep *lane, const uint8_t *bytes, size_t length)
{
    const struct lane_place place = lane->places[0];
    lane->place_count--;
    memmove(&lane->places[0], &lane->places[1], lane->place_count * sizeof(lane->places[0]));
    if (length > place.length) {
        rdmux_framed_failed(&lane->base, RDMUX_IO, "lane: a body is longer than its place");
        return 1;
    }
    size_t at = 0;
    for (size_t i = 0; i < place.count && at < length; i++) {
        const size_t part = length - at < place.pieces[i].iov_len ? length - at
                                                                  : place.pieces[i].iov_len;
        memcpy(place.pieces[i].iov_base, bytes + at, part);
        at += part;
    }
    if (place.count == 0) {
        lane->collected++;
        memcpy(lane->memory, bytes, length);
    }
    return rdmux_framed_body_arrived(&lane->base, place.count == 0 ? lane->memory : NULL, length);
}

static inline size_t lane_progress(struct framed_cq *base, size_t budget)
{
    struct lane_ep *lane = ((struct lane_cq *)base)->ep;
    size_t did = 0;
    if (lane == NULL || lane->is_stopped) {
        return 0;
    }
    lane_sent(lane);
    while (lane->in_count > 0 && did < budget && !lane->is_stopped) {
        struct lane_message message = lane->in[0];
        lane->in_count--;
        memmove(&lane->in[0], &lane->in[1], lane->in_count * sizeof(lane->in[0]));
        if (lane->place_count > 0) {
            did += lane_take_body(lane, message.body != NULL ? message.body : message.bytes,
                                  message.length);
        } else if (lane->base.state < FRAMED_FAILED) {
            fake_expect(message.body == NULL && !rdmux_framed_keeps(&lane->base));
            lane->kept = message;
            did += rdmux_framed_arrived(&lane->base, lane->kept.bytes, message.length);
        }
        free(message.body);
    }
    return did;
}

static inline enum rdmux_status lane_arm(struct framed_cq *base)
{
    const struct lane_ep *lane = ((struct lane_cq *)base)->ep;
    return lane != NULL && lane->in_count > 0 ? RDMUX_AGAIN : RDMUX_OK;
}

static inline enum rdmux_status lane_open(struct framed_ep *base)
{
    base->message_max = LANE_MESSAGE_MAX;
    base->window = LANE_WINDOW;
    base->short_max = lanes_prefer_short ? LANE_SHORT_MAX : 0;
    base->body_pieces = lanes_have_bodies ? LANE_PIECES : 0;
    base->copy_max = LANE_MESSAGE_MAX;
    base->copies_bodies = lanes_copy_bodies;
    return RDMUX_OK;
}

static inline enum rdmux_status lane_describe(struct framed_ep *base, uint8_t *out, size_t *size)
{
    (void)base;
    (void)out;
    *size = 0;
    return RDMUX_OK;
}

static inline enum rdmux_status lane_connect(struct framed_ep *base, const uint8_t *peer,
                                             size_t size)
{
    (void)base;
    (void)peer;
    (void)size;
    return RDMUX_OK;
}

static inline uint8_t *lane_take(struct framed_ep *base)
{
    struct lane_ep *lane = lane_of(base);
    for (uint32_t i = 0; i < LANE_ROOM; i++) {
        if (!lane->out[i].is_taken) {
            lane->out[i].is_taken = true;
            return lane->out[i].bytes;
        }
    }
    return NULL;
}

/* A message arrives at an endpoint, in a later poll. */
static inline void lane_arrive(struct lane_ep *lane, const uint8_t *bytes, uint32_t length)
{
    /* Bodies in memory of the lane are messages here, and not counted by the window. */
    fake_expect(lane->in_count < LANE_ROOM + (lanes_have_bodies ? FRAMED_BODIES : 0));
    fake_expect(length <= LANE_MESSAGE_MAX);
    struct lane_message *message = &lane->in[lane->in_count++];
    memcpy(message->bytes, bytes, length);
    message->length = length;
    message->body = NULL;
}

static inline enum rdmux_status lane_send(struct framed_ep *base, uint8_t *bytes, uint32_t length)
{
    struct lane_ep *lane = lane_of(base);
    struct lane_message *message = (struct lane_message *)(void *)bytes;
    fake_expect(message >= lane->out && message < lane->out + LANE_ROOM && message->is_taken);
    fake_expect(length <= base->send_max && !lane->is_stopped);
    if (lane->refuses) {
        return RDMUX_AGAIN;
    }
    if (lane->peer != NULL && !lane->peer->is_stopped) {
        lane_arrive(lane->peer, bytes, length);
    }
    lane->rung += base->rings;
    lane->longest = length > lane->longest ? length : lane->longest;
    lane->sent++;
    lane->held[lane->held_count++] = message;
    lane_sent(lane);
    return RDMUX_OK;
}

static inline enum rdmux_status lane_send_body(struct framed_ep *base, const struct iovec *pieces,
                                               size_t count)
{
    struct lane_ep *lane = lane_of(base);
    struct lane_ep *peer = lane->peer;
    fake_expect(count > 0 && count <= LANE_PIECES && !lane->is_stopped);
    if (lane->refuses) {
        return RDMUX_AGAIN;
    }
    lane->bodies++;
    lane->bodies_under_way++;
    if (peer != NULL && !peer->is_stopped) {
        fake_expect(peer->in_count < LANE_ROOM + FRAMED_BODIES);
        struct lane_message *message = &peer->in[peer->in_count++];
        message->body = fake_object(FRAMED_BODY_MAX);
        message->length = 0;
        for (size_t i = 0; i < count; i++) {
            fake_expect(pieces[i].iov_len <= FRAMED_BODY_MAX - message->length);
            memcpy(message->body + message->length, pieces[i].iov_base, pieces[i].iov_len);
            message->length += (uint32_t)pieces[i].iov_len;
        }
    }
    return RDMUX_OK;
}

static inline enum rdmux_status lane_receive_body(struct framed_ep *base,
                                                  const struct iovec *pieces, size_t count,
                                                  size_t length)
{
    struct lane_ep *lane = lane_of(base);
    fake_expect(lane->place_count < FRAMED_EXPECTED && count <= LANE_PIECES);
    fake_expect(length <= FRAMED_BODY_MAX);
    fake_expect(count > 0 || lane->place_count == 0 || length <= FRAMED_PART_MAX);
    struct lane_place *place = &lane->places[lane->place_count++];
    *place = (struct lane_place){ .count = count, .length = length };
    lane->most_places = lane->place_count > lane->most_places ? lane->place_count
                                                              : lane->most_places;
    for (size_t i = 0; i < count; i++) {
        place->pieces[i] = pieces[i];
    }
    return RDMUX_OK;
}

static inline enum rdmux_status lane_stop(struct framed_ep *base)
{
    struct lane_ep *lane = lane_of(base);
    lane->is_stopped = true;
    while (lane->in_count > 0) {
        free(lane->in[--lane->in_count].body);
    }
    return RDMUX_OK;
}

static inline void lane_close(struct framed_ep *base)
{
    fake_expect(lane_of(base)->is_stopped);
}

static const struct framed_lane_ops lane_ops = {
    .cq_open = lane_cq_open,
    .cq_close = lane_cq_close,
    .progress = lane_progress,
    .arm = lane_arm,
    .open = lane_open,
    .describe = lane_describe,
    .connect = lane_connect,
    .take = lane_take,
    .take_copy = lane_take,
    .send = lane_send,
    .send_body = lane_send_body,
    .receive_body = lane_receive_body,
    .stop = lane_stop,
    .close = lane_close,
};

static const struct rdmux_provider_ops lane_provider = {
    .abi = RDMUX_PROVIDER_ABI,
    .size = sizeof(struct rdmux_provider_ops),
    .name = "lane",
    .flags = RDMUX_PROVIDER_PING_BUSY,
    .domain_size = sizeof(struct framed_domain),
    .cq_size = sizeof(struct lane_cq),
    .ep_size = sizeof(struct lane_ep),
    RDMUX_FRAMED_OPS,
};

static const struct rdmux_provider_ops *const ops = &lane_provider;

/* ------------------------------------------------------------------------------------- one end */

struct end {
    struct framed_domain domain;
    struct lane_cq *cq;
    struct lane_ep *lane;
    struct framed_srq *srq;
    struct rdmux_provider_ep_attr attr;
    struct rdmux_cq core_cq;
    struct rdmux_srq *core_srq;
    struct rdmux_ep *core;
    struct rdmux_software_remote remote; /* of region 0 */
    struct rdmux_request requests[END_REQUESTS_MAX];
    struct rdmux_provider_sge sges[END_REQUESTS_MAX];
    uint32_t request_count;
};

static inline struct rdmux_provider_ep *ep_of(struct end *end)
{
    return &end->lane->base.base;
}

static inline struct rdmux_provider_cq *cq_of(struct end *end)
{
    return &end->cq->base.base.base;
}

static inline struct end *end_open(enum rdmux_role role, bool with_srq)
{
    struct end *end = fake_object(sizeof(*end));
    end->domain.base.ops = ops;
    end->domain.base.fabric = &fake_fabric;
    end->domain.lane = &lane_ops;
    end->cq = fake_object(ops->cq_size);
    *cq_of(end) = (struct rdmux_provider_cq){ &end->domain.base, &end->core_cq, 1, 0 };
    fake_expect(ops->cq_open(cq_of(end), 64) == RDMUX_OK);
    end->core = fake_object(sizeof(*end->core));
    end->attr = (struct rdmux_provider_ep_attr){ .role = role, .liveness_ms = RDMUX_NEVER };
    if (with_srq) {
        end->core_srq = fake_object(sizeof(*end->core_srq));
        end->core->srq = end->core_srq;
        end->srq = fake_object(ops->srq_size);
        end->attr.srq = &end->srq->base;
        fake_expect(ops->srq_open(&end->srq->base, 4, 1) == RDMUX_OK);
    }
    end->lane = fake_object(ops->ep_size);
    ep_of(end)->ops = ops;
    ep_of(end)->cq = cq_of(end);
    ep_of(end)->ep = end->core;
    fake_expect(ops->ep_open(ep_of(end), &end->attr) == RDMUX_OK);
    end->cq->ep = end->lane;
    return end;
}

static inline void end_close(struct end *end)
{
    struct rdmux_provider_counts counts;
    fake_expect(ops->ep_quiesce(ep_of(end), &counts) == RDMUX_OK);
    ops->ep_close(ep_of(end));
    fake_expect(end->cq->base.under_way == 0 && end->cq->base.asked == 0);
    end->cq->ep = NULL;
    cq_of(end)->ep_count--;
    if (end->srq != NULL) {
        fake_expect(end->srq->scheduler.pool.promised == 0);
        ops->srq_close(&end->srq->base);
    }
    ops->cq_close(cq_of(end));
    free(end->lane);
    free(end->srq);
    free(end->core_srq);
    free(end->core);
    free(end->cq);
    free(end);
    fake_expect(fake_fabric.allocations == 0);
}

/* Connects with the data of a peer that has the same lane. */
static inline enum rdmux_status end_connect(struct end *end, bool on_demand)
{
    uint8_t description[FRAMED_HEAD_SIZE];
    const struct framed_description peer = { .window = LANE_WINDOW,
                                             .message_max = LANE_MESSAGE_MAX,
                                             .on_demand = on_demand,
                                             .bodies = lanes_have_bodies };
    rdmux_framed_description_encode(&peer, description);
    return ops->ep_connect(ep_of(end), description, sizeof(description));
}

/* ------------------------------------------------------------------------------------- requests */

static inline struct rdmux_request *end_request(struct end *end, uint32_t op, void *bytes,
                                                uint64_t length, uint64_t offset, uint32_t flags)
{
    fake_expect(end->request_count < END_REQUESTS_MAX);
    struct rdmux_provider_sge *sge = &end->sges[end->request_count];
    struct rdmux_request *request = &end->requests[end->request_count++];
    *sge = (struct rdmux_provider_sge){ bytes, length, NULL };
    *request = (struct rdmux_request){ .op = op,
                                       .flags = flags,
                                       .sge_count = length > 0 ? 1 : 0,
                                       .length = length,
                                       .sges = sge,
                                       .offset = offset };
    if (op != RDMUX_OP_SEND && op != RDMUX_OP_SEND_IMM && op != RDMUX_OP_RECV) {
        request->remote = &end->remote.base;
    }
    return request;
}

static inline struct rdmux_request *end_receive(struct end *end, void *bytes, uint64_t length)
{
    struct rdmux_request *request = end_request(end, RDMUX_OP_RECV, bytes, length, 0, 0);
    fake_receive(fake_receives_of(end->core), request);
    if (end->srq != NULL) {
        fake_expect(ops->srq_post_recv(&end->srq->base, request, 1) == RDMUX_OK);
    } else {
        fake_expect(ops->post_recv(ep_of(end), request, 1) == RDMUX_OK);
    }
    return request;
}

#endif
