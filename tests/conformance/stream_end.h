/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The stream of a side, for the suites about rdmux/stream.h. A call that fails ends the case. */
#ifndef CONFORMANCE_STREAM_END_H
#define CONFORMANCE_STREAM_END_H

#include "harness.h"

#include <rdmux/stream.h>

/* Bytes of the ring, and of the shortest direct receive. */
enum { RING = 64 << 10, DIRECT = 16 << 10 };

struct end {
    struct side *side;
    struct rdmux_stream *stream;
    bool has_own_cq;
    bool sleeps;    /* whatever the side does */
    uint32_t flags; /* of the stream */
    uint64_t ring;  /* 0: RING */
};

/* Options with RING and DIRECT, and patience. */
struct rdmux_stream_attr stream_attr_of(const struct side *side, const struct rdmux_ep_attr *ep);
/* Connects or accepts a stream whose endpoint has these options, and may have ended. */
void end_open(struct end *end, const struct rdmux_ep_attr *ep);
struct end end_open_any(struct side *side, bool has_own_cq, const struct rdmux_ep_attr *ep);
/* The same, with a peer that keeps it. */
struct end end_open_with(struct side *side, bool has_own_cq, const struct rdmux_ep_attr *ep);
/* A side that meets its peer, and a stream without heartbeats, which could hide a lost wake-up. */
struct end end_open_ring(struct side *side, bool has_own_cq, uint64_t ring);
struct end end_open_stream(struct side *side, bool has_own_cq);

/* Sleeps or polls until an event may have come. */
void end_await(const struct end *end, uint32_t events);
/* Writes all bytes, and reads as many. flags: of rdmux_stream_write() and _read(). */
void end_put(const struct end *end, const void *bytes, size_t length, uint32_t flags);
void end_get(const struct end *end, void *bytes, size_t length, uint32_t flags);
/* Waits for one read; 0: the peer's end. */
size_t end_get_some(const struct end *end, void *bytes, size_t length, uint32_t flags);
void end_expect_end(const struct end *end);
/* Both sides end their direction; then the endpoint ends. */
void end_shut_down(const struct end *end);
/* The same, then the stream and the side end. */
void end_finish(struct end *end);

/* The caller's memory, unregistered. Freed with the side. */
uint8_t *side_bytes(struct side *side, size_t length);

#endif
