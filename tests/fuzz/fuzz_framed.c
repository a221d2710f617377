/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * adapters/framed against a peer's messages: the decoders, and a whole endpoint whose lane delivers
 * the input. Byte 0 has options. Then comes message after message: its size (2 bytes, big-endian),
 * and its bytes. Of these the prefix is made right unless RAW is set, as an input can hardly find the
 * tag. Where the endpoint expects a body, the next message is that body.
 *
 * Always: no byte beside the exported region is written, this side never believes that the peer has
 * more receives than it offered, and the endpoint can be ended.
 */
#include "driver.h"
#include "tests/unit/framed_scene.h"

enum {
    WITH_REQUESTS = 1 << 0, /* requests of ours are in flight, so answers may be valid */
    WITH_SRQ = 1 << 1,
    CONNECTS = 1 << 2, /* and the lane prefers short messages */
    RAW = 1 << 3,
    ON_DEMAND = 1 << 4, /* the peer gives credits when asked; and the lanes have bodies */
    ARMS = 1 << 5,      /* the cq is armed after each message, as of a program that sleeps */
    BELLS = 1 << 6,
    REFUSES = 1 << 7, /* the lane takes every second message at the next poll, and copies bodies */
    REGION_SIZE = 4096,
    GUARD_SIZE = 256,
    GUARD = 0xa5,
    RECEIVES = 4,
};

static void decode(const uint8_t *data, size_t size)
{
    struct framed_frame frame;
    struct framed_description description;
    const uint8_t *payload = NULL;
    size_t used = 0;
    if (rdmux_framed_frame_decode(data, size, &frame, &payload, &used) == RDMUX_OK) {
        uint8_t again[FRAMED_HEADER_MAX];
        size_t header = rdmux_framed_frame_encode(&frame, again);
        fake_expect(used <= size && payload == data + header);
        fake_expect((frame.flags & FRAMED_BODY) != 0 || frame.size <= size - header);
        /* The last 4 bytes of the field with the immediate data are ignored. */
        size_t compared = (frame.flags & FRAMED_IMM) != 0 ? header - 4 : header;
        fake_expect((frame.flags & FRAMED_BODY) == 0 || used == header);
        fake_expect(memcmp(again, data, compared) == 0);
    }
    if (rdmux_framed_description_decode(data, size, &description) == RDMUX_OK) {
        fake_expect(description.window > 1 && description.message_max >= FRAMED_MESSAGE_MIN);
    }
}

struct victim {
    struct end *end;
    uint8_t *memory; /* a guard, the region, a guard */
    uint8_t *results;
    uint8_t *buffers[RECEIVES];
};

static void post(struct victim *victim, uint32_t op, uint64_t length, uint32_t flags)
{
    size_t posted = 0;
    struct rdmux_request *request = end_request(victim->end, op, victim->results, length, 0, flags);
    (void)ops->post(ep_of(victim->end), request, 1, 0, &posted);
}

static void victim_open(struct victim *victim, uint8_t options)
{
    static const size_t sizes[RECEIVES] = { 0, 8, 100, 70000 };
    memset(victim, 0, sizeof(*victim));
    memset(fake_regions, 0, sizeof(fake_regions));
    lanes_have_bells = (options & BELLS) != 0;
    lanes_prefer_short = (options & CONNECTS) != 0;
    lanes_have_bodies = (options & ON_DEMAND) != 0;
    lanes_copy_bodies = (options & REFUSES) != 0;
    victim->memory = fake_object(GUARD_SIZE + REGION_SIZE + GUARD_SIZE);
    memset(victim->memory, GUARD, GUARD_SIZE + REGION_SIZE + GUARD_SIZE);
    victim->results = fake_object(REGION_SIZE);
    fake_region(0, victim->memory + GUARD_SIZE, REGION_SIZE,
                RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC)
        ->serial = 0; /* so that a key of zeros, which inputs find easily, is valid */
    victim->end = end_open((options & CONNECTS) != 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT,
                           (options & WITH_SRQ) != 0);
    for (size_t i = 0; i < RECEIVES; i++) {
        victim->buffers[i] = malloc(sizes[i] + 1);
        fake_expect(victim->buffers[i] != NULL);
        (void)end_receive(victim->end, victim->buffers[i], sizes[i]);
    }
    fake_expect(end_connect(victim->end, (options & ON_DEMAND) != 0) == RDMUX_IN_PROGRESS);
}

/* The prefix that the peer would write. */
static void make_prefix(struct framed_ep *ep, uint8_t *message, size_t size)
{
    struct framed_prefix prefix = { .returned = size > 9 ? message[9] % (LANE_WINDOW + 1) : 0,
                                    .tag = ep->tag_in,
                                    .sequence = ep->sequence_in };
    if (size > 8 && message[8] == 1) { /* beyond the window */
        prefix.flags = FRAMED_UNCOUNTED_FLAG;
        prefix.sequence = 0;
    }
    if (size >= FRAMED_PREFIX_SIZE) {
        rdmux_framed_prefix_encode(&prefix, message);
    }
}

static void greet(struct victim *victim)
{
    uint8_t message[FRAMED_PREFIX_SIZE + FRAMED_HEADER_MIN] = { 0 };
    struct framed_ep *ep = &victim->end->lane->base;
    make_prefix(ep, message, sizeof(message));
    (void)rdmux_framed_frame_encode(&(struct framed_frame){ .kind = FRAMED_HELLO },
                                    message + FRAMED_PREFIX_SIZE);
    lane_arrive(victim->end->lane, message, sizeof(message));
    (void)ops->poll(cq_of(victim->end), BUDGET);
    fake_expect(ops->ep_connect(ep_of(victim->end), NULL, 0) == RDMUX_OK);
}

static void victim_run(struct victim *victim, const uint8_t *data, size_t size)
{
    const uint8_t options = data[0];
    struct lane_ep *lane = victim->end->lane;
    for (size_t at = 1; at + 2 <= size && victim->end->core->failed == RDMUX_OK;) {
        uint8_t message[LANE_MESSAGE_MAX];
        size_t length = ((size_t)data[at] << 8 | data[at + 1]) % (LANE_MESSAGE_MAX + 1);
        at += 2;
        length = size - at < length ? size - at : length;
        memcpy(message, data + at, length);
        at += length;
        if ((options & RAW) == 0) {
            make_prefix(&lane->base, message, length);
        }
        lane->refuses = (options & REFUSES) != 0 && at % 2 == 0;
        lane_arrive(lane, message, (uint32_t)length);
        (void)ops->poll(cq_of(victim->end), BUDGET);
        fake_expect(lane->base.window_left <= LANE_WINDOW);
        if ((options & ARMS) != 0) {
            (void)ops->arm(cq_of(victim->end));
        }
    }
}

static void victim_close(struct victim *victim)
{
    victim->end->lane->refuses = false;
    (void)ops->poll(cq_of(victim->end), BUDGET);
    for (size_t i = 0; i < GUARD_SIZE; i++) {
        fake_expect(victim->memory[i] == GUARD &&
                    victim->memory[GUARD_SIZE + REGION_SIZE + i] == GUARD);
    }
    end_close(victim->end);
    for (size_t i = 0; i < RECEIVES; i++) {
        free(victim->buffers[i]);
    }
    free(victim->memory);
    free(victim->results);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode(data, size);
    if (size < 1) {
        return 0;
    }
    struct victim victim;
    victim_open(&victim, data[0]);
    greet(&victim);
    if (data[0] & WITH_REQUESTS) {
        post(&victim, RDMUX_OP_READ, 100, 0);
        post(&victim, RDMUX_OP_FETCH_ADD, 8, 0);
        post(&victim, RDMUX_OP_WRITE, 16, RDMUX_PLACED);
        post(&victim, RDMUX_OP_READ, REGION_SIZE, 0);
        post(&victim, RDMUX_OP_SEND, 8, RDMUX_PLACED);
    }
    victim_run(&victim, data, size);
    victim_close(&victim);
    return 0;
}
