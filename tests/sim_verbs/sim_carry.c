/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Packets between queue pairs: reachability, latency, loss. */
#include "sim_carry.h"

#include "sim_device.h"
#include "sim_macros.h"
#include "sim_net.h"
#include "sim_options.h"
#include "sim_packet.h"
#include "sim_place.h"
#include "sim_queue.h"
#include "sim_requester.h"
#include "sim_responder.h"
#include "sim_verbs.h"
#include "sim_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_packet {
    struct sim_event event;
    struct sim_world *world;
    enum sim_packet_kind kind;
    union {
        struct sim_request request;
        struct sim_answer answer;
    } header;
    size_t length;
    uint8_t bytes[];
};

/* --------------------------------------------------------------------------------- reachability */

static bool pkeys_match(uint16_t one, uint16_t other)
{
    enum { FULL_MEMBER = 0x8000 };
    return ((one ^ other) & ~FULL_MEMBER & 0xffff) == 0 && ((one | other) & FULL_MEMBER) != 0;
}

/* Fills in the addresses of a queue pair's packets. False: packets do not leave the device. */
static bool address_fill(const struct sim_qp *qp, struct sim_request *request)
{
    const struct sim_device *device = qp->device;
    const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
    request->source = sim_qp_num(qp);
    request->target = qp->attr.dest_qp_num;
    request->link = (uint8_t)device->options.link;
    request->mtu = (uint8_t)qp->attr.path_mtu;
    request->pkey = device->pkeys[qp->attr.pkey_index];
    request->dgid = ah->grh.dgid;
    request->dlid = ah->dlid;
    request->global = ah->is_global;
    if (!sim_device_alive(device) || !device->port_up) {
        return false;
    }
    if (sim_is_iwarp(device) || !ah->is_global) {
        return true;
    }
    const struct sim_gid_place *place = &device->gids[ah->grh.sgid_index];
    request->gid_type = (uint8_t)place->type;
    return place->used;
}

static bool has_address(const struct sim_device *device, const struct sim_request *request)
{
    if (request->link == SIM_IWARP) {
        return true; /* the connection manager found it */
    }
    if (request->link == SIM_IB && request->dlid != device->lid) {
        return false;
    }
    for (size_t i = 0; request->global && i < SIM_GIDS; i++) {
        const struct sim_gid_place *place = &device->gids[i];
        if (place->used && place->type == request->gid_type &&
            sim_gid_equal(&place->gid, &request->dgid)) {
            return true;
        }
    }
    return !request->global;
}

/* Would the device accept the packet? */
static bool is_for(const struct sim_qp *qp, const struct sim_request *request)
{
    const struct sim_device *device = qp->device;
    return sim_device_alive(device) && device->options.link == request->link &&
           qp->attr.dest_qp_num == request->source && has_address(device, request) &&
           (request->link == SIM_IWARP ||
            pkeys_match(request->pkey, device->pkeys[qp->attr.pkey_index]));
}

static bool accepts(const struct sim_qp *qp, const struct sim_request *request)
{
    return qp->device->port_up && is_for(qp, request);
}

static bool is_cut(const struct sim_host *one, const struct sim_host *other)
{
    return other->slot < 64 && (one->cut_from >> other->slot & 1) != 0;
}

static bool is_foreign(const struct sim_world *world, uint32_t number)
{
    return sim_net_has(world->net) && number >> SIM_SLOT_BITS != world->slot;
}

static bool reaches(struct sim_qp *qp)
{
    struct sim_request address = { .psn = 0 };
    bool leaves = address_fill(qp, &address);
    qp->route.peer = NULL;
    if (!leaves || is_foreign(qp->world, qp->attr.dest_qp_num)) {
        return leaves && !qp->world->cut;
    }
    qp->route.peer = sim_qp_find(qp->world, qp->attr.dest_qp_num);
    return qp->route.peer != NULL && accepts(qp->route.peer, &address) &&
           (qp->route.peer->device != qp->device || qp->device->options.loopback != 0) &&
           !is_cut(qp->device->host, qp->route.peer->device->host);
}

bool sim_reaches(struct sim_qp *qp)
{
    if (qp->route.generation != qp->world->generation) {
        qp->peer_lost = !reaches(qp);
        qp->route.generation = qp->world->generation;
    }
    return !qp->peer_lost;
}

static void cut_mark(struct sim_host *host, const struct sim_host *other, bool cut)
{
    uint64_t bit = other->slot < 64 ? (uint64_t)1 << other->slot : 0;
    host->cut_from = cut ? host->cut_from | bit : host->cut_from & ~bit;
}

void sim_cut(struct sim_host *one, struct sim_host *other, bool cut)
{
    sim_lock(one->world);
    cut_mark(one, other, cut);
    cut_mark(other, one, cut);
    sim_world_changed(one->world);
    sim_unlock(one->world);
}

/* -------------------------------------------------------------------------------------- packets */

static void packet_run(struct sim_event *event);

uint64_t sim_transit(struct sim_world *world, size_t bytes)
{
    const struct sim_world_options *options = &world->options;
    uint64_t time = options->latency + sim_chance(world, options->jitter + 1);
    return options->bandwidth == 0 ? time : time + bytes * 1000 / options->bandwidth;
}

uint64_t sim_arrival(struct sim_world *world, uint64_t *flow, size_t bytes)
{
    sim_clock(world);
    uint64_t arrival = world->now + sim_transit(world, bytes);
    *flow = arrival > *flow ? arrival : *flow + 1;
    return *flow;
}

/* Packets of a queue pair never overtake each other; on iWARP it has one stream for both kinds. */
static uint64_t *flow_of(struct sim_qp *qp, bool answer)
{
    return answer && !sim_is_iwarp(qp->device) ? &qp->route.answer_arrival
                                               : &qp->route.request_arrival;
}

static struct sim_packet *packet_make(struct sim_world *world, enum sim_packet_kind kind,
                                      const void *header, size_t header_size, size_t length)
{
    struct sim_packet *packet = sim_alloc(world, sizeof(*packet) + length);
    if (packet == NULL) {
        perror("sim_verbs: packet");
        abort();
    }
    packet->world = world;
    packet->kind = kind;
    memcpy(&packet->header, header, header_size);
    packet->length = length;
    return packet;
}

static bool dropped(struct sim_world *world, const struct sim_device *device)
{
    uint64_t drop = world->options.drop;
    /* TCP hides loss below it. */
    return drop > 0 && !sim_is_iwarp(device) && sim_chance(world, 1000) < drop;
}

static void lose_request(struct sim_qp *qp, const struct sim_request *request)
{
    struct sim_answer answer = { .target = request->source,
                                 .psn = request->psn,
                                 .round = request->round,
                                 .code = SIM_ANSWER_LOST };
    sim_requester_answer(qp, &answer, NULL);
}

static void serve_at_once(struct sim_qp *qp, const struct sim_request *request,
                          const struct sim_bytes *bytes)
{
    struct sim_bytes read;
    read.count = 0;
    struct sim_answer answer = sim_respond(qp->route.peer, request, bytes, &read);
    qp->world->counters.answers++;
    sim_requester_answer(qp, &answer, &read);
}

void sim_carry_request(struct sim_qp *qp, struct sim_request *request, const struct sim_bytes *bytes)
{
    struct sim_world *world = qp->world;
    sim_responder_finish(qp);
    world->counters.requests++;
    sim_trace(world, SIM_TRACE_REQUEST, (uint64_t)sim_qp_num(qp) << 32 | request->psn,
              (uint64_t)request->opcode << 56 | request->length);
    if (!sim_reaches(qp)) {
        lose_request(qp, request);
        return;
    }
    request->source = sim_qp_num(qp);
    request->target = qp->attr.dest_qp_num;
    request->mtu = (uint8_t)qp->attr.path_mtu;
    if (world->direct && qp->route.peer != NULL) {
        serve_at_once(qp, request, bytes);
        return;
    }
    if (dropped(world, qp->device)) {
        lose_request(qp, request);
        return;
    }
    (void)address_fill(qp, request);
    if (qp->route.peer == NULL) {
        uint16_t slot = (uint16_t)(qp->attr.dest_qp_num >> SIM_SLOT_BITS);
        if (!sim_net_send(world->net, slot, SIM_PACKET_REQUEST, request, sizeof(*request), bytes)) {
            lose_request(qp, request);
        }
        return;
    }
    size_t length = sim_bytes_length(bytes);
    struct sim_packet *packet = packet_make(world, SIM_PACKET_REQUEST, request, sizeof(*request),
                                            length);
    sim_bytes_copy_out(bytes, packet->bytes);
    sim_schedule_at(world, &packet->event, sim_arrival(world, flow_of(qp, false), length),
                    packet_run);
}

static const struct sim_bytes nothing = { .count = 0 };

/* To the requester a vanished answer is the same as a lost request. */
static struct sim_answer as_lost(const struct sim_answer *answer)
{
    struct sim_answer lost = *answer;
    lost.code = SIM_ANSWER_LOST;
    lost.length = 0;
    return lost;
}

static void send_answer(struct sim_world *world, struct sim_qp *from,
                        const struct sim_answer *answer, const struct sim_bytes *data)
{
    struct sim_answer sent = *answer;
    world->counters.answers++;
    if (from != NULL && (dropped(world, from->device) || !from->device->port_up)) {
        sent = as_lost(&sent);
    }
    data = sent.code == SIM_ANSWER_DATA ? data : &nothing;
    if (is_foreign(world, sent.target)) {
        uint16_t slot = (uint16_t)(sent.target >> SIM_SLOT_BITS);
        (void)sim_net_send(world->net, slot, SIM_PACKET_ANSWER, &sent, sizeof(sent), data);
        return;
    }
    size_t length = sim_bytes_length(data);
    struct sim_packet *packet = packet_make(world, SIM_PACKET_ANSWER, &sent, sizeof(sent), length);
    sim_bytes_copy_out(data, packet->bytes);
    uint64_t nobody = 0;
    uint64_t *flow = from != NULL ? flow_of(from, true) : &nobody;
    sim_schedule_at(world, &packet->event, sim_arrival(world, flow, length), packet_run);
}

/* iWARP while the link is down: TCP keeps the answer and retries. No answer overtakes another. */
static bool must_hold(const struct sim_qp *from)
{
    return from != NULL && sim_is_iwarp(from->device) &&
           (!from->device->port_up || from->answers_held > 0);
}

static void held_run(struct sim_event *event)
{
    struct sim_packet *packet = SIM_OUTER(struct sim_packet, event, event);
    struct sim_qp *from = sim_qp_find(packet->world, packet->header.answer.source);
    struct sim_bytes data = { .count = 0 };
    if (from != NULL && sim_device_alive(from->device) && !from->device->port_up) {
        sim_schedule(packet->world, event, SIM_TCP_RETRY_TIME, held_run);
        return;
    }
    if (from != NULL && sim_device_alive(from->device)) {
        from->answers_held--;
        sim_bytes_add(&data, packet->bytes, packet->length);
        send_answer(packet->world, from, &packet->header.answer, &data);
    }
    sim_free(packet);
}

static void hold_answer(struct sim_qp *from, const struct sim_answer *answer,
                        const struct sim_bytes *data)
{
    struct sim_world *world = from->world;
    struct sim_packet *packet = packet_make(world, SIM_PACKET_ANSWER, answer, sizeof(*answer),
                                            sim_bytes_length(data));
    sim_bytes_copy_out(data, packet->bytes);
    from->answers_held++;
    sim_schedule(world, &packet->event, SIM_TCP_RETRY_TIME, held_run);
}

void sim_carry_answer(struct sim_world *world, struct sim_qp *from, const struct sim_answer *answer,
                      const struct sim_bytes *data)
{
    data = answer->code == SIM_ANSWER_DATA && data != NULL ? data : &nothing;
    if (answer->code == SIM_ANSWER_LATER) {
        return;
    }
    if (must_hold(from)) {
        hold_answer(from, answer, data);
    } else {
        send_answer(world, from, answer, data);
    }
}

/* -------------------------------------------------------------------------------------- arrival */

static void request_arrived(struct sim_world *world, const struct sim_request *request,
                            const struct sim_bytes *bytes)
{
    struct sim_answer answer = { .source = request->target,
                                 .target = request->source,
                                 .psn = request->psn,
                                 .round = request->round,
                                 .code = SIM_ANSWER_LOST };
    struct sim_bytes read;
    read.count = 0;
    struct sim_qp *qp = sim_qp_find(world, request->target);
    bool cut = is_foreign(world, request->source) && world->cut;
    /* TCP hides that the link was down meanwhile. */
    bool is_taken = request->link == SIM_IWARP ? qp != NULL && is_for(qp, request)
                                               : qp != NULL && accepts(qp, request);
    if (is_taken && !cut) {
        answer = sim_respond(qp, request, bytes, &read);
    } else {
        qp = NULL;
    }
    sim_carry_answer(world, qp, &answer, &read);
}

static void answer_arrived(struct sim_world *world, const struct sim_answer *answer,
                           const struct sim_bytes *data)
{
    struct sim_qp *qp = sim_qp_find(world, answer->target);
    sim_trace(world, SIM_TRACE_ANSWER, (uint64_t)answer->target << 32 | answer->psn, answer->code);
    if (qp == NULL || !sim_device_alive(qp->device)) {
        return;
    }
    struct sim_answer seen = is_foreign(world, answer->source) && world->cut &&
                                     !sim_is_iwarp(qp->device)
                                 ? as_lost(answer)
                                 : *answer;
    sim_requester_answer(qp, &seen, data);
}

static void arrived(struct sim_packet *packet)
{
    struct sim_bytes bytes = { .count = 0 };
    sim_bytes_add(&bytes, packet->bytes, packet->length);
    if (packet->kind == SIM_PACKET_REQUEST) {
        request_arrived(packet->world, &packet->header.request, &bytes);
    } else {
        answer_arrived(packet->world, &packet->header.answer, &bytes);
    }
}

static void packet_run(struct sim_event *event)
{
    struct sim_packet *packet = SIM_OUTER(struct sim_packet, event, event);
    arrived(packet);
    sim_free(packet);
}

void sim_carry_arrived(struct sim_world *world, enum sim_packet_kind kind, const void *header,
                       uint8_t *bytes, size_t length)
{
    struct sim_bytes data = { .count = 0 };
    sim_bytes_add(&data, bytes, length);
    size_t size = kind == SIM_PACKET_REQUEST ? sizeof(struct sim_request)
                                             : sizeof(struct sim_answer);
    uint32_t target = kind == SIM_PACKET_REQUEST ? ((const struct sim_request *)header)->target
                                                 : ((const struct sim_answer *)header)->target;
    struct sim_qp *qp = sim_qp_find(world, target);
    if (qp == NULL || world->options.latency + world->options.jitter == 0) {
        if (kind == SIM_PACKET_REQUEST) {
            request_arrived(world, header, &data);
        } else {
            answer_arrived(world, header, &data);
        }
        return;
    }
    /* The receiver spends the transit time here, where the clock is. */
    struct sim_packet *packet = packet_make(world, kind, header, size, length);
    sim_bytes_copy_out(&data, packet->bytes);
    sim_schedule_at(world, &packet->event, sim_arrival(world, &qp->route.incoming_arrival, length),
                    packet_run);
}
