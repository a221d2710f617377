/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "stream_end.h"

struct rdmux_stream_attr stream_attr_of(const struct side *side, const struct rdmux_ep_attr *ep)
{
    struct rdmux_stream_attr attr = RDMUX_STREAM_ATTR_INIT;
    attr.ep = ep;
    attr.ring = RING;
    attr.direct = DIRECT;
    attr.linger_ms = (uint32_t)side->patient_ms;
    return attr;
}

static struct rdmux_cq *cq_of(const struct end *end)
{
    return end->has_own_cq ? NULL : end->side->queue.cq;
}

void end_open(struct end *end, const struct rdmux_ep_attr *ep)
{
    struct side *side = end->side;
    struct rdmux_stream_attr attr = stream_attr_of(side, ep);
    attr.flags = end->flags;
    attr.ring = end->ring != 0 ? end->ring : RING;
    if (side->is_initiator) {
        EXPECT_OK(rdmux_stream_connect(side->fabric, cq_of(end), side->address, &attr,
                                       side->patient_ms, &end->stream));
    } else {
        EXPECT_OK(
            rdmux_stream_accept(side->listener, cq_of(end), &attr, side->patient_ms, &end->stream));
    }
}

struct end end_open_any(struct side *side, bool has_own_cq, const struct rdmux_ep_attr *ep)
{
    struct end end = { .side = side, .has_own_cq = has_own_cq };
    end_open(&end, ep);
    return end;
}

struct end end_open_with(struct side *side, bool has_own_cq, const struct rdmux_ep_attr *ep)
{
    struct end end = end_open_any(side, has_own_cq, ep);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    check_endpoint(side, rdmux_stream_ep(end.stream), &info);
    return end;
}

struct end end_open_ring(struct side *side, bool has_own_cq, uint64_t ring)
{
    const struct rdmux_ep_attr ep = still_ep_attr_of(side);
    struct end end = { .side = side, .has_own_cq = has_own_cq, .ring = ring };
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    side_open(side, NULL);
    side_meet(side);
    end_open(&end, &ep);
    check_endpoint(side, rdmux_stream_ep(end.stream), &info);
    return end;
}

struct end end_open_stream(struct side *side, bool has_own_cq)
{
    return end_open_ring(side, has_own_cq, RING);
}

void end_await(const struct end *end, uint32_t events)
{
    if (end->side->sleeps || end->sleeps) {
        EXPECT_OK(rdmux_stream_wait(end->stream, events, end->side->patient_ms));
    } else {
        EXPECT(!time_is_up(), "the stream does not become ready for events 0x%x", events);
    }
}

void end_put(const struct end *end, const void *bytes, size_t length, uint32_t flags)
{
    size_t done = 0;
    for (size_t at = 0; at < length; at += done) {
        enum rdmux_status status = rdmux_stream_write(end->stream, (const uint8_t *)bytes + at,
                                                      length - at, flags, &done);
        if (status == RDMUX_AGAIN) {
            EXPECT_EQUAL(done, 0);
            end_await(end, RDMUX_STREAM_WRITE);
            continue;
        }
        EXPECT_STATUS(status, RDMUX_OK);
        EXPECT(done > 0 && done <= length - at, "a write took %zu of %zu bytes", done, length - at);
        EXPECT(flags == 0 || done == length - at, "a lent write took %zu of %zu bytes", done,
               length - at);
    }
}

size_t end_get_some(const struct end *end, void *bytes, size_t length, uint32_t flags)
{
    size_t got = 0;
    for (;;) {
        enum rdmux_status status = rdmux_stream_read(end->stream, bytes, length, flags, &got);
        if (status != RDMUX_AGAIN) {
            EXPECT_STATUS(status, RDMUX_OK);
            return got;
        }
        EXPECT_EQUAL(got, 0);
        end_await(end, RDMUX_STREAM_READ);
    }
}

void end_get(const struct end *end, void *bytes, size_t length, uint32_t flags)
{
    for (size_t at = 0, got; at < length; at += got) {
        got = end_get_some(end, (uint8_t *)bytes + at, length - at, flags);
        EXPECT(got > 0, "the stream ended after %zu of %zu bytes", at, length);
        EXPECT(flags == 0 || got == length - at, "ALL gave %zu of %zu bytes", got, length - at);
    }
}

void end_expect_end(const struct end *end)
{
    uint8_t byte;
    EXPECT_EQUAL(end_get_some(end, &byte, 1, 0), 0);
}

/* Takes entries until the one that tells of the end; STREAM_* entries before it do not matter. */
static void end_await_end(const struct end *end)
{
    if (end->has_own_cq) {
        EXPECT_OK(rdmux_stream_wait(end->stream, RDMUX_STREAM_END, end->side->patient_ms));
        return;
    }
    struct rdmux_wc wc;
    do {
        wc = NEXT(&end->side->queue);
        EXPECT(wc.context == end->stream, "another object's entry: %s", wc_text(&wc));
    } while (wc.opcode != RDMUX_WC_DISCONNECTED);
    EXPECT_EQUAL(wc.status, RDMUX_OK);
}

void end_shut_down(const struct end *end)
{
    struct rdmux_stream_info info = RDMUX_STREAM_INFO_INIT;
    EXPECT_OK(rdmux_stream_shutdown(end->stream, RDMUX_STREAM_WRITE));
    end_expect_end(end);
    end_await_end(end);
    EXPECT_OK(rdmux_stream_info(end->stream, &info));
    EXPECT_EQUAL(info.state, RDMUX_STREAM_ENDED);
    EXPECT_EQUAL(info.status, RDMUX_OK);
    EXPECT_EQUAL(info.ends, RDMUX_STREAM_READ | RDMUX_STREAM_WRITE);
}

void end_finish(struct end *end)
{
    end_shut_down(end);
    EXPECT_OK(rdmux_stream_close(end->stream));
    side_finish(end->side);
}

uint8_t *side_bytes(struct side *side, size_t length)
{
    return region_make(side, MEMORY_UNREGISTERED, length, 0).addr;
}
