/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Streams: set-up, bytes of all sizes both ways, the end of each direction. Whatever fails, a read
 * returns the peer's bytes in order, or why there are none; the end comes behind all bytes or not at
 * all.
 */
#include "stages.h"

#include "api/core/ep.h"
#include "api/core/failover.h"
#include "api/progress/cq_owner.h"

#include <stdio.h>
#include <string.h>

enum {
    RING = 4096,
    DIRECT = 4096,
    TOTAL = 40000,
    LENT_AT = 10000, /* from here on writes and reads are lent */
};

/* One direction. */
struct flow {
    struct rdmux_stream *from;
    struct rdmux_stream *to;
    size_t written;
    size_t got;
    uint8_t in[TOTAL];
};

static struct flow there;
static struct flow back;

static struct rdmux_stream_attr stream_attr_of(const struct rdmux_ep_attr *ep)
{
    struct rdmux_stream_attr attr = RDMUX_STREAM_ATTR_INIT;
    attr.ep = ep;
    attr.ring = RING;
    attr.direct = DIRECT;
    attr.linger_ms = RDMUX_OFF; /* close_all() does not go on with the other side meanwhile */
    return attr;
}

static uint32_t state_of(struct rdmux_stream *stream)
{
    struct rdmux_stream_info info = RDMUX_STREAM_INFO_INIT;
    if (rdmux_stream_info(stream, &info) != RDMUX_OK) {
        wrong("rdmux_stream_info: %s", rdmux_last_error());
    }
    return info.state;
}

/* Goes on with both sides. A stream with a cq of its own goes on in its own calls. */
static void step(struct life *life)
{
    struct side *sides[2] = { &life->a, &life->b };
    for (size_t i = 0; i < 2; i++) {
        if (sides[i]->stream != NULL) {
            enum rdmux_status status = rdmux_stream_wait(sides[i]->stream, RDMUX_STREAM_END, 0);
            sides[i]->has_ended = sides[i]->has_ended || status == RDMUX_OK;
        }
    }
    progress_or_end(life);
}

static void connect_streams(struct life *life, bool own)
{
    char address[RDMUX_ADDRESS_MAX];
    const struct rdmux_ep_attr ep_a = attr_of(life, &life->a);
    const struct rdmux_ep_attr ep_b = attr_of(life, &life->b);
    const struct rdmux_stream_attr as_a = stream_attr_of(&ep_a);
    const struct rdmux_stream_attr as_b = stream_attr_of(&ep_b);
    TRY(life, rdmux_listen(life->b.fabric, "127.0.0.1:0", NULL, &life->listener));
    TRY(life, rdmux_listener_address(life->listener, address, sizeof(address)));
    enum rdmux_status status = rdmux_stream_connect(life->a.fabric, own ? NULL : life->a.cq,
                                                    address, &as_a, 0, &life->a.stream);
    check(life, status == RDMUX_IN_PROGRESS ? RDMUX_OK : status, "rdmux_stream_connect");
    while (life->b.stream == NULL) {
        status = rdmux_stream_accept(life->listener, own ? NULL : life->b.cq, &as_b, 0,
                                     &life->b.stream);
        check(life, status == RDMUX_IN_PROGRESS || status == RDMUX_AGAIN ? RDMUX_OK : status,
              "rdmux_stream_accept");
        step(life);
    }
    while (state_of(life->a.stream) == RDMUX_STREAM_CONNECTING ||
           state_of(life->b.stream) == RDMUX_STREAM_CONNECTING) {
        step(life);
    }
}

void meet_as_streams(struct life *life)
{
    connect_streams(life, false);
}

void meet_as_lone_streams(struct life *life)
{
    connect_streams(life, true);
}

/* Makes streams of the endpoints. */
void become_streams(struct life *life)
{
    const struct rdmux_stream_attr attr = stream_attr_of(NULL);
    struct side *sides[2] = { &life->a, &life->b };
    for (size_t i = 0; i < 2; i++) {
        TRY(life, rdmux_stream_open(sides[i]->ep, &attr, &sides[i]->stream));
        sides[i]->ep = NULL; /* the stream's */
    }
}

/* ------------------------------------------------------------------------------------- the bytes */

/* A failed write or read, before the endpoint is seen to have ended. */
static void check_call(struct life *life, enum rdmux_status status, const char *call)
{
    check(life, status == RDMUX_AGAIN ? RDMUX_OK : status, call);
}

static void write_some(struct life *life, struct flow *flow)
{
    const bool lent = flow->written >= LENT_AT;
    const size_t most = lent ? TOTAL : LENT_AT;
    size_t done = 0;
    if (flow->written == TOTAL) {
        return;
    }
    enum rdmux_status status = rdmux_stream_write(flow->from, life_pattern + flow->written,
                                                  most - flow->written,
                                                  lent ? RDMUX_STREAM_LEND : 0, &done);
    flow->written += done;
    check_call(life, status, "rdmux_stream_write");
}

static void read_some(struct life *life, struct flow *flow)
{
    const bool lent = flow->got >= LENT_AT;
    const size_t most = lent ? TOTAL : LENT_AT;
    size_t got = 0;
    if (flow->got == TOTAL) {
        return;
    }
    enum rdmux_status status = rdmux_stream_read(flow->to, flow->in + flow->got, most - flow->got,
                                                 lent ? RDMUX_STREAM_ALL : 0, &got);
    if (memcmp(flow->in + flow->got, life_pattern + flow->got, got) != 0) {
        wrong("other bytes came behind %zu", flow->got);
    }
    if (status == RDMUX_OK && got == 0) {
        wrong("the end came behind %zu bytes, and nobody has sent it", flow->got);
    }
    flow->got += got;
    check_call(life, status, "rdmux_stream_read");
}

static void begin(struct flow *flow, const struct side *from, const struct side *to)
{
    memset(flow, 0, sizeof(*flow));
    flow->from = from->stream;
    flow->to = to->stream;
}

static void move_until(struct life *life, size_t bytes)
{
    while (there.got < bytes || back.got < bytes || there.written < bytes || back.written < bytes) {
        write_some(life, &there);
        write_some(life, &back);
        read_some(life, &there);
        read_some(life, &back);
        step(life);
    }
}

void move_bytes(struct life *life)
{
    begin(&there, &life->a, &life->b);
    begin(&back, &life->b, &life->a);
    move_until(life, TOTAL);
}

/* The provider reports a fault while bytes are on their way, copied and lent. */
void move_bytes_and_lose_path(struct life *life)
{
    begin(&there, &life->a, &life->b);
    begin(&back, &life->b, &life->a);
    move_until(life, LENT_AT / 2);
    struct rdmux_ep *ep = rdmux_stream_ep(life->a.stream);
    if (!rdmux_cq_enter(ep->cq)) {
        wrong("the cq cannot be entered");
    }
    if (ep->phase == RDMUX_PHASE_READY && ep->failover != NULL && !rdmux_failover_is_moving(ep)) {
        rdmux_provider_failed(ep->path, RDMUX_IO, "broken by a test");
        life->breaks++;
        life->until_ms = now_ms() + STUCK_MS;
    }
    rdmux_cq_leave(ep->cq);
    move_until(life, TOTAL);
}

/* Goes on while one side may have ended. */
static void step_to_the_end(struct life *life)
{
    /* A side that has ended or failed has nothing to wait for. */
    enum rdmux_status a = rdmux_stream_wait(life->a.stream, RDMUX_STREAM_END, 0);
    enum rdmux_status b = rdmux_stream_wait(life->b.stream, RDMUX_STREAM_END, 0);
    if (a == RDMUX_INVALID || b == RDMUX_INVALID) {
        wrong("rdmux_stream_wait refuses a stream");
    }
    if (!progress(life) && now_ms() > life->until_ms) {
        longjmp(life->end, 1);
    }
}

static void await_end(struct life *life, struct rdmux_stream *stream)
{
    uint8_t byte;
    size_t got = 1;
    enum rdmux_status status;
    while ((status = rdmux_stream_read(stream, &byte, 1, 0, &got)) == RDMUX_AGAIN) {
        step_to_the_end(life);
    }
    check(life, status, "rdmux_stream_read");
    if (got != 0) {
        wrong("a byte came that nobody has written");
    }
}

/* Both directions end, then the endpoints. */
void end_streams(struct life *life)
{
    TRY(life, rdmux_stream_shutdown(life->a.stream, RDMUX_STREAM_WRITE));
    await_end(life, life->b.stream);
    TRY(life, rdmux_stream_shutdown(life->b.stream, RDMUX_STREAM_WRITE));
    await_end(life, life->a.stream);
    while (state_of(life->a.stream) != RDMUX_STREAM_ENDED ||
           state_of(life->b.stream) != RDMUX_STREAM_ENDED) {
        step_to_the_end(life);
    }
}
