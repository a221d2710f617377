/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A stream whose peer is a program that sends what the input says: any message, in any order, over
 * tcp or shm, and what it likes into the ring. Byte 0 has options; then each step is a byte with the
 * kind of the step and the bytes that it needs.
 *
 * Always: no byte beside the lent buffers is written, nothing that the peer did not write is read
 * from the ring, no ring holds or has room for more than its bytes, and the stream ends with a status
 * when its peer has gone.
 */
#include "driver.h"
#include "stream/stream_state.h"
#include "stream/stream_wire.h"

#include <rdmux/stream.h>

#include <stdlib.h>
#include <string.h>

enum {
    OVER_SHM = 1 << 0,
    LENDS = 1 << 1,     /* the stream lends a large read and a large write */
    DISCARDS = 1 << 2,  /* the stream wants no bytes */
    BAD_HELLO = 1 << 3, /* HELLO is of the input, too */
    RING = 4096,
    LENT = 32 << 10,
    GUARD_SIZE = 256,
    GUARD = 0xa5,
    RECEIVES = 32,
    STEPS_MAX = 64,
    ENDS_WITHIN_MS = 10000,
    WRITTEN = 'w', /* what the peer writes into the ring */
};

/* What is kept from input to input: set-up costs more than all the rest. */
struct host {
    struct rdmux_fabric *ours;
    struct rdmux_fabric *theirs;
    struct rdmux_cq *cq;
    struct rdmux_listener *listener;
    struct rdmux_mr *ring;
    char address[RDMUX_ADDRESS_MAX];
};

static struct host hosts[2]; /* tcp, shm */

static void expect(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* A call of the peer, or of the stream's program, whose failure is the input's. */
static void attempt(enum rdmux_status status)
{
    (void)status;
}

static void must(enum rdmux_status status)
{
    expect(status == RDMUX_OK);
}

static struct host *host_of(bool shm)
{
    struct host *host = &hosts[shm];
    if (host->ours != NULL) {
        return host;
    }
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.paths = shm ? "shm" : "tcp";
    must(rdmux_fabric_open(&attr, &host->ours));
    must(rdmux_fabric_open(&attr, &host->theirs));
    must(rdmux_cq_create(host->theirs, NULL, &host->cq));
    must(rdmux_listen(host->theirs, "127.0.0.1:0", NULL, &host->listener));
    must(rdmux_listener_address(host->listener, host->address, sizeof(host->address)));
    must(rdmux_mr_alloc(host->theirs, RING, RDMUX_ACCESS_REMOTE_WRITE, &host->ring));
    return host;
}

struct scene {
    struct host *host;
    struct rdmux_stream *stream;
    struct rdmux_ep *peer;
    struct rdmux_remote *remote;
    uint8_t slots[RECEIVES][RDMUX_STREAM_SLOT_SIZE];
    uint8_t *lent; /* a guard, the bytes, a guard */
    uint8_t *given;
    const uint8_t *data;
    size_t size;
};

static uint8_t next_byte(struct scene *scene)
{
    if (scene->size == 0) {
        return 0;
    }
    scene->size--;
    return *scene->data++;
}

static uint64_t next_number(struct scene *scene, unsigned bytes)
{
    uint64_t number = 0;
    while (bytes-- > 0) {
        number = number << 8 | next_byte(scene);
    }
    return number;
}

static void poll_peer(struct scene *scene)
{
    struct rdmux_wc wc;
    while (rdmux_cq_poll(scene->host->cq, &wc, 1) != 0) {
        if (wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK) {
            attempt(rdmux_recv(scene->peer, wc.context, RDMUX_STREAM_SLOT_SIZE, NULL, wc.context));
        }
    }
}

/* The stream's program: reads and writes, small and lent. Bytes of the ring are the peer's. */
static void work(struct scene *scene, uint8_t options)
{
    uint8_t bytes[300];
    size_t moved = 0;
    if ((options & DISCARDS) != 0) {
        (void)rdmux_stream_shutdown(scene->stream, RDMUX_STREAM_READ);
    }
    if ((options & LENDS) != 0) {
        attempt(rdmux_stream_read(scene->stream, scene->lent + GUARD_SIZE, LENT, RDMUX_STREAM_ALL,
                                  &moved));
        expect(moved <= LENT);
        attempt(rdmux_stream_write(scene->stream, scene->given, LENT, RDMUX_STREAM_LEND, &moved));
        return;
    }
    if (rdmux_stream_read(scene->stream, bytes, sizeof(bytes), 0, &moved) == RDMUX_OK) {
        for (size_t i = 0; i < moved; i++) {
            expect(bytes[i] == WRITTEN || bytes[i] == 0);
        }
    }
    attempt(rdmux_stream_write(scene->stream, scene->given, 200, 0, &moved));
}

static void send_hello(struct scene *scene, bool bad)
{
    struct rdmux_stream_hello hello = { .slots = 16, .ring = RING, .window = RING };
    uint8_t bytes[RDMUX_STREAM_HELLO_SIZE];
    must(rdmux_mr_export(scene->host->ring, &hello.token));
    rdmux_stream_hello_encode(&hello, bytes);
    size_t length = sizeof(bytes);
    if (bad) {
        length = next_byte(scene) % (sizeof(bytes) + 1);
        for (size_t at = next_byte(scene) % sizeof(bytes), i = 0; i < 4 && at < sizeof(bytes); i++) {
            bytes[at++] = next_byte(scene);
        }
    }
    attempt(rdmux_send(scene->peer, bytes, length, NULL, NULL, 0));
    poll_peer(scene); /* the bytes have left: they were few, and copied */
    struct rdmux_wc wc;
    size_t count;
    attempt(rdmux_cq_wait(scene->host->cq, &wc, 1, 1, &count));
}

static void step(struct scene *scene)
{
    static uint8_t bytes[2 * RING];
    const uint8_t kind = next_byte(scene);
    const uint32_t imm = (uint32_t)next_number(scene, 4);
    memset(bytes, WRITTEN, sizeof(bytes));
    switch (kind % 5) {
    case 0: { /* a message with bytes of the input */
        uint8_t body[16];
        for (size_t i = 0; i < sizeof(body); i++) {
            body[i] = next_byte(scene);
        }
        attempt(rdmux_send_imm(scene->peer, body, kind / 5 % 17, NULL, imm, NULL,
                               RDMUX_INLINE | RDMUX_UNSIGNALED));
        break;
    }
    case 1: /* a write with immediate data, within the ring or beyond it */
        attempt(rdmux_write_imm(scene->peer, bytes, next_number(scene, 2) % (RING + 2), NULL,
                                scene->remote, next_number(scene, 2) % (RING + 1), imm, NULL,
                                RDMUX_UNSIGNALED));
        break;
    case 2: /* a long message: direct bytes, where they belong or not */
        attempt(rdmux_send_imm(scene->peer, bytes, next_number(scene, 2) % sizeof(bytes), NULL, imm,
                               NULL, RDMUX_UNSIGNALED));
        break;
    case 3: /* empty messages, up to a direct receive */
        for (unsigned i = 0; i < imm % 20; i++) {
            attempt(rdmux_send_imm(scene->peer, NULL, 0, NULL,
                                   rdmux_stream_imm(RDMUX_STREAM_PAD, 0), NULL, RDMUX_UNSIGNALED));
        }
        break;
    default: /* the bytes of the ring change behind the stream's back */
        attempt(
            rdmux_write(scene->peer, bytes, RING, NULL, scene->remote, 0, NULL, RDMUX_UNSIGNALED));
        break;
    }
}

static void check(const struct scene *scene)
{
    struct rdmux_stream_info info = RDMUX_STREAM_INFO_INIT;
    must(rdmux_stream_info(scene->stream, &info));
    expect(info.readable <= RING && info.writable <= RING);
    for (size_t i = 0; i < GUARD_SIZE; i++) {
        expect(scene->lent[i] == GUARD);
        expect(scene->lent[GUARD_SIZE + LENT + i] == GUARD);
    }
}

static void open_scene(struct scene *scene, uint8_t options)
{
    struct rdmux_stream_attr attr = RDMUX_STREAM_ATTR_INIT;
    struct rdmux_ep_attr ep = RDMUX_EP_ATTR_INIT;
    attr.ring = RING;
    attr.direct = RING;
    attr.linger_ms = RDMUX_OFF;
    ep.recv_depth = 2 * RECEIVES;
    scene->host = host_of((options & OVER_SHM) != 0);
    scene->lent = malloc(LENT + 2 * GUARD_SIZE);
    scene->given = calloc(1, LENT);
    expect(scene->lent != NULL && scene->given != NULL);
    memset(scene->lent, GUARD, LENT + 2 * GUARD_SIZE);
    enum rdmux_status status = rdmux_stream_connect(scene->host->ours, NULL, scene->host->address,
                                                    &attr, 0, &scene->stream);
    expect(status == RDMUX_IN_PROGRESS);
    must(rdmux_accept(scene->host->listener, scene->host->cq, &ep, ENDS_WITHIN_MS, &scene->peer));
    for (size_t i = 0; i < RECEIVES; i++) {
        must(rdmux_recv(scene->peer, scene->slots[i], sizeof(scene->slots[i]), NULL,
                        scene->slots[i]));
    }
    /* The token of the stream's ring stands in its HELLO, which this program takes from the object. */
    struct rdmux_stream_hello hello;
    must(rdmux_stream_hello_decode(scene->stream->hello, RDMUX_STREAM_HELLO_SIZE, &hello));
    if (rdmux_remote_import(scene->peer, &hello.token, ENDS_WITHIN_MS, &scene->remote) != RDMUX_OK) {
        scene->remote = NULL;
    }
}

static void close_scene(struct scene *scene)
{
    must(rdmux_ep_close(scene->peer));
    must(rdmux_stream_wait(scene->stream, RDMUX_STREAM_END, ENDS_WITHIN_MS));
    check(scene);
    (void)rdmux_stream_close(scene->stream);
    struct rdmux_wc wc;
    (void)rdmux_cq_poll(scene->host->cq, &wc, 1);
    free(scene->lent);
    free(scene->given);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rdmux_stream_hello hello;
    struct rdmux_stream_advert advert;
    if (rdmux_stream_hello_decode(data, size, &hello) == RDMUX_OK) {
        expect(rdmux_stream_ring_is_good(hello.ring) && hello.slots != 0);
    }
    if (rdmux_stream_advert_decode(data, size, &advert) == RDMUX_OK) {
        expect(advert.length != 0);
    }
    if (size == 0) {
        return 0;
    }
    struct scene scene = { .data = data + 1, .size = size - 1 };
    const uint8_t options = data[0];
    open_scene(&scene, options);
    send_hello(&scene, (options & BAD_HELLO) != 0);
    work(&scene, options);
    for (unsigned i = 0; i < STEPS_MAX && scene.size != 0 && scene.remote != NULL; i++) {
        step(&scene);
        poll_peer(&scene);
        work(&scene, options);
        check(&scene);
    }
    close_scene(&scene);
    return 0;
}
