/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * An endpoint of the shm provider (the victim) and a peer that writes anything into the segment,
 * the socket and the descriptions, by a script; and on the same cq an endpoint whose peer is good.
 * Included by one source of a program, which may set hooks that run before and after each call of
 * the victim.
 */
#ifndef RDMUX_TESTS_FUZZ_SHM_VICTIM_H
#define RDMUX_TESTS_FUZZ_SHM_VICTIM_H

#include "tests/unit/shm_pair.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    RECEIVE_COUNT = 16,
    SEND_COUNT = 16,
    BUFFER_SIZE = 5000,
    REGION_SIZE = 300,
    GUARD_SIZE = 128,
    GUARD = 0xa5,
    ENDS_WITHIN = 1000, /* polls */
};

struct victim;
typedef void victim_hook(struct victim *victim);

struct input {
    const uint8_t *at;
    size_t left;
};

static inline uint64_t take(struct input *in, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size && in->left > 0; i++) {
        value = value << 8 | *in->at++;
        in->left--;
    }
    return value;
}

struct request {
    struct rdmux_request base;
    struct rdmux_provider_sge sge;
    uint8_t *buffer;
};

struct victim {
    struct shm_pair *pair;
    struct shm_ep *ep;
    victim_hook *begins; /* NULL: no hook */
    victim_hook *ends;
    struct request receives[RECEIVE_COUNT];
    struct request sends[SEND_COUNT];
    struct request last[SHM_SLOT_COUNT]; /* receives for messages that the peer sent before its end */
    size_t receive_count;
    size_t last_count;
    size_t send_count;
    struct shm_remote remote;
    bool imported;
    uint64_t hostile_head;  /* of the slots that the peer publishes */
    int passed;             /* memory that the peer may pass: good, and as long as a page */
    struct shm_end good[2]; /* neighbours: 0 on the peer's cq, 1 on the victim's */
    uint8_t memory[GUARD_SIZE + REGION_SIZE + GUARD_SIZE];
};

static inline void victim_begins(struct victim *victim)
{
    if (victim->begins != NULL) {
        victim->begins(victim);
    }
}

static inline void victim_ends(struct victim *victim)
{
    if (victim->ends != NULL) {
        victim->ends(victim);
    }
}

static inline struct request *make_request(struct request *request, uint32_t op, size_t length)
{
    memset(request, 0, sizeof(*request));
    request->buffer = calloc(1, length == 0 ? 1 : length);
    request->sge = (struct rdmux_provider_sge){ .addr = request->buffer, .length = length };
    request->base.op = op;
    request->base.length = length;
    request->base.sges = &request->sge;
    request->base.sge_count = length > 0 ? 1 : 0;
    return request;
}

static inline void publish_slot(struct victim *victim, struct input *in)
{
    struct shm_direction *incoming = &victim->pair->ends[0].ep->segment->directions[0];
    struct shm_slot *slot = &incoming->slots[victim->hostile_head % SHM_SLOT_COUNT];
    slot->kind = (uint8_t)take(in, 1);
    slot->flags = (uint8_t)take(in, 1);
    slot->inline_length = (uint16_t)take(in, 1);
    slot->chunk = (uint32_t)take(in, 2);
    slot->imm = 1;
    for (size_t i = 0; i < SHM_BODY_SIZE; i++) {
        slot->body[i] = (uint8_t)take(in, 1);
    }
    victim->hostile_head++;
    atomic_store(&slot->sequence, (uint32_t)victim->hostile_head);
}

static inline void post_receive(struct victim *victim, struct input *in)
{
    if (victim->receive_count == RECEIVE_COUNT) {
        return;
    }
    struct request *request = make_request(&victim->receives[victim->receive_count++],
                                           RDMUX_OP_RECV, (size_t)take(in, 2) % BUFFER_SIZE);
    fake_receive(&victim->pair->ends[1].core.own, &request->base);
    victim_begins(victim);
    (void)rdmux_shm_post_recv(&victim->ep->base, &request->base, 1);
    victim_ends(victim);
}

static inline void post_send(struct victim *victim, struct input *in)
{
    static const uint32_t ops[] = { RDMUX_OP_SEND,      RDMUX_OP_SEND_IMM,    RDMUX_OP_WRITE,
                                    RDMUX_OP_WRITE_IMM, RDMUX_OP_READ,        RDMUX_OP_FETCH_ADD,
                                    RDMUX_OP_SEND,      RDMUX_OP_COMPARE_SWAP };
    if (victim->send_count == SEND_COUNT) {
        return;
    }
    uint32_t op = ops[take(in, 1) % 8];
    size_t length = (size_t)take(in, 2) % BUFFER_SIZE;
    bool one_sided = op != RDMUX_OP_SEND && op != RDMUX_OP_SEND_IMM;
    bool atomic = op == RDMUX_OP_FETCH_ADD || op == RDMUX_OP_COMPARE_SWAP;
    if (one_sided && !victim->imported) {
        return;
    }
    length = atomic ? 8 : one_sided ? length % REGION_SIZE : length;
    struct request *request = make_request(&victim->sends[victim->send_count++], op, length);
    request->base.flags = (take(in, 1) & 1) != 0 ? RDMUX_PLACED : 0;
    request->base.remote = one_sided ? &victim->remote.base : NULL;
    size_t posted = 0;
    victim_begins(victim);
    (void)rdmux_shm_post(&victim->ep->base, &request->base, 1, 0, &posted);
    victim_ends(victim);
}

/* Lets the victim import from a forged description. */
static inline void import(struct victim *victim, struct input *in)
{
    if (victim->imported) {
        return;
    }
    uint8_t description[64];
    for (size_t i = 0; i < sizeof(description); i++) {
        description[i] = (uint8_t)take(in, 1);
    }
    description[0] = 1;
    description[1] &= 1; /* a copy by address would write into this process */
    victim->remote.base.ep = &victim->ep->base;
    victim->remote.base.length = REGION_SIZE;
    victim->remote.base.access = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE;
    victim->imported = rdmux_shm_remote_open(&victim->remote.base, description,
                                             (size_t)take(in, 1) % sizeof(description)) == RDMUX_OK;
}

/* Sends the victim the descriptor of good memory, or of memory that cannot be written to. */
static inline void pass_region(struct victim *victim, struct input *in)
{
    uint8_t bytes[SHM_HELLO_SIZE];
    for (size_t i = 0; i < SHM_REGION_SIZE; i++) {
        bytes[i] = (uint8_t)take(in, 1);
    }
    const uint32_t magic = 0x52534852;
    const int fds[] = { (bytes[0] & 1) != 0 ? victim->passed : victim->pair->domain->regions_fd };
    memcpy(bytes, &magic, sizeof(magic));
    enum rdmux_status status = rdmux_shm_socket_send(victim->pair->ends[0].ep->peer.socket, bytes,
                                                     SHM_REGION_SIZE, fds, 1);
    (void)status; /* the queue may be full */
}

static inline void scribble(struct victim *victim, struct input *in)
{
    uint8_t *segment = (uint8_t *)victim->pair->ends[0].ep->segment;
    size_t at = (size_t)take(in, 3) % sizeof(struct shm_segment);
    size_t size = (size_t)take(in, 1) % 64;
    for (size_t i = 0; i < size && at + i < sizeof(struct shm_segment); i++) {
        segment[at + i] = (uint8_t)take(in, 1);
    }
}

static inline void decode(const uint8_t *data, size_t size)
{
    struct shm_description description;
    struct shm_hello hello;
    struct shm_region_message region;
    int good = rdmux_shm_description_decode(data, size, &description) == RDMUX_OK;
    good += rdmux_shm_hello_decode(data, size, &hello) == RDMUX_OK;
    good += rdmux_shm_region_message_decode(data, size, &region) == RDMUX_OK;
    (void)good;
}

static inline void victim_poll(struct victim *victim)
{
    victim_begins(victim);
    (void)rdmux_shm_poll(victim->ep->base.cq, 64);
    (void)rdmux_shm_arm(victim->ep->base.cq);
    victim_ends(victim);
}

/* ------------------------------------------------------------------------------- the neighbours */

static inline void neighbour_open(struct victim *victim, int index)
{
    struct shm_end *end = &victim->good[index];
    end->cq = victim->pair->ends[index].cq;
    end->ep = fake_object(sizeof(*end->ep));
    end->ep->base.ops = &rdmux_shm_provider;
    end->ep->base.cq = &end->cq->base;
    end->ep->base.ep = &end->core;
    end->attr.role = index == 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT;
    fake_expect(rdmux_shm_provider.ep_open(&end->ep->base, &end->attr) == RDMUX_OK);
}

static inline void neighbours_connect(struct victim *victim)
{
    uint8_t data[2][RDMUX_DESCRIPTION_MAX];
    size_t sizes[2] = { RDMUX_DESCRIPTION_MAX, RDMUX_DESCRIPTION_MAX };
    enum rdmux_status statuses[2];
    for (int i = 0; i < 2; i++) {
        neighbour_open(victim, i);
        fake_expect(rdmux_shm_ep_describe(&victim->good[i].ep->base, data[i], &sizes[i]) ==
                    RDMUX_OK);
    }
    for (int i = 0; i < 2; i++) {
        statuses[i] = rdmux_shm_ep_connect(&victim->good[i].ep->base, data[1 - i], sizes[1 - i]);
    }
    for (int step = 0; step < 10; step++) {
        for (int i = 0; i < 2; i++) {
            (void)rdmux_shm_poll(&victim->good[i].cq->base, 64);
            if (statuses[i] == RDMUX_IN_PROGRESS) {
                statuses[i] = rdmux_shm_ep_connect(&victim->good[i].ep->base, NULL, 0);
            }
        }
    }
    fake_expect(statuses[0] == RDMUX_OK && statuses[1] == RDMUX_OK);
}

/* A message of the good peer must arrive intact, whatever the hostile peer did. */
static inline void neighbours_check(struct victim *victim)
{
    struct request from;
    struct request to;
    size_t posted = 0;
    (void)make_request(&from, RDMUX_OP_SEND, BUFFER_SIZE);
    (void)make_request(&to, RDMUX_OP_RECV, BUFFER_SIZE);
    memset(from.buffer, 0x60, BUFFER_SIZE);
    fake_receive(&victim->good[1].core.own, &to.base);
    fake_expect(rdmux_shm_post_recv(&victim->good[1].ep->base, &to.base, 1) == RDMUX_OK);
    fake_expect(rdmux_shm_post(&victim->good[0].ep->base, &from.base, 1, 0, &posted) == RDMUX_OK);
    for (int i = 0; i < ENDS_WITHIN && to.base.done == 0; i++) {
        victim_poll(victim);
    }
    fake_expect(victim->good[1].core.failed == RDMUX_OK);
    fake_expect(to.base.done != 0 && to.base.status == RDMUX_OK && to.base.length == BUFFER_SIZE);
    fake_expect(memcmp(from.buffer, to.buffer, BUFFER_SIZE) == 0);
    free(from.buffer);
    free(to.buffer);
}

/* ------------------------------------------------------------------------------------ the scene */

static inline struct victim *victim_open(victim_hook *begins, victim_hook *ends)
{
    struct victim *victim = calloc(1, sizeof(*victim));
    fake_expect(victim != NULL);
    victim->begins = begins;
    victim->ends = ends;
    victim->pair = shm_pair_connect();
    victim->ep = victim->pair->ends[1].ep;
    neighbours_connect(victim);
    victim->passed = memfd_create("passed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    fake_expect(victim->passed >= 0 && ftruncate(victim->passed, SHM_PAGE) == 0);
    fake_expect(fcntl(victim->passed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    memset(fake_regions, 0, sizeof(fake_regions));
    memset(victim->memory, GUARD, sizeof(victim->memory));
    /* Its key is a 1 and a 0: inputs find it easily, and it is not all zeros. */
    fake_region(1, victim->memory + GUARD_SIZE, REGION_SIZE, UINT32_MAX)->serial = 0;
    return victim;
}

static inline void victim_run(struct victim *victim, struct input *in)
{
    while (in->left > 0) {
        switch (take(in, 1) % 8) {
        case 0:
        case 1:
            publish_slot(victim, in);
            break;
        case 2:
            post_receive(victim, in);
            break;
        case 3:
            post_send(victim, in);
            break;
        case 4:
            import(victim, in);
            break;
        case 5:
            pass_region(victim, in);
            break;
        case 6:
            scribble(victim, in);
            break;
        case 7:
            atomic_store(&victim->pair->ends[0].ep->mine->consumed, take(in, 1));
            break;
        default:
            break;
        }
        victim_poll(victim);
    }
}

static inline bool victim_is_told(struct victim *victim)
{
    for (int i = 0; i < ENDS_WITHIN && victim->pair->ends[1].core.failed == RDMUX_OK; i++) {
        victim_poll(victim);
    }
    return victim->pair->ends[1].core.failed != RDMUX_OK;
}

/* The peer has ended, so the victim must report a status, after the messages that the peer sent.
 * These may wait for receives, at most one for each slot. */
static inline void victim_expect_end(struct victim *victim)
{
    while (!victim_is_told(victim)) {
        fake_expect(victim->ep->is_end_waiting && victim->ep->is_stalled);
        fake_expect(victim->last_count < SHM_SLOT_COUNT);
        struct request *request = make_request(&victim->last[victim->last_count++], RDMUX_OP_RECV,
                                               BUFFER_SIZE);
        fake_receive(&victim->pair->ends[1].core.own, &request->base);
        victim_begins(victim);
        (void)rdmux_shm_post_recv(&victim->ep->base, &request->base, 1);
        victim_ends(victim);
    }
}

/* Ends the peer. Only the victim's region may have changed. */
static inline void victim_close(struct victim *victim)
{
    neighbours_check(victim);
    atomic_store(&victim->pair->ends[0].ep->mine->state, SHM_CLOSED);
    victim_expect_end(victim);
    neighbours_check(victim);
    for (size_t i = 0; i < GUARD_SIZE; i++) {
        fake_expect(victim->memory[i] == GUARD &&
                    victim->memory[GUARD_SIZE + REGION_SIZE + i] == GUARD);
    }
    if (victim->imported) {
        rdmux_shm_remote_close(&victim->remote.base);
    }
    for (int i = 0; i < 2; i++) {
        rdmux_shm_ep_close(&victim->good[i].ep->base);
        free(victim->good[i].ep);
    }
    shm_pair_close(victim->pair);
    (void)close(victim->passed);
    for (size_t i = 0; i < victim->receive_count; i++) {
        free(victim->receives[i].buffer);
    }
    for (size_t i = 0; i < victim->send_count; i++) {
        free(victim->sends[i].buffer);
    }
    for (size_t i = 0; i < victim->last_count; i++) {
        free(victim->last[i].buffer);
    }
    free(victim);
    fake_expect(fake_fabric.allocations == 0);
}

#endif
