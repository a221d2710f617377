/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Two streams of one process, each with a fabric and a cq of its own. */
#ifndef RDMUX_TESTS_STREAM_SCENE_H
#define RDMUX_TESTS_STREAM_SCENE_H

#include "tests/unit/api_pair.h"

#include <rdmux/stream.h>

/* Stream a connects, stream b accepts. The pair has their fabrics, cqs and listener. */
struct stream_pair {
    struct pair pair;
    struct rdmux_stream *a;
    struct rdmux_stream *b;
};

/* Connects the two of a pair whose sides are open. own: each stream has a cq of its own. */
static inline void connect_streams(struct stream_pair *streams, bool own,
                                   const struct rdmux_stream_attr *attr)
{
    struct pair *pair = &streams->pair;
    struct rdmux_stream_attr patient = RDMUX_STREAM_ATTR_INIT;
    struct rdmux_ep_attr ep;
    if (attr != NULL) {
        patient = *attr;
    }
    patient.ep = patient_attr(patient.ep, &ep);
    patient.linger_ms = patient.linger_ms == 0 ? PATIENT_MS : patient.linger_ms;
    CHECK_STATUS(rdmux_stream_connect(pair->fabric_a, own ? NULL : pair->cq_a, pair->address,
                                      &patient, 0, &streams->a),
                 RDMUX_IN_PROGRESS);
    CHECK_OK(rdmux_stream_accept(pair->listener, own ? NULL : pair->cq_b, &patient, PATIENT_MS,
                                 &streams->b));
    CHECK_OK(rdmux_stream_wait(streams->a, RDMUX_STREAM_WRITE, PATIENT_MS));
    CHECK_OK(rdmux_stream_wait(streams->b, RDMUX_STREAM_WRITE, PATIENT_MS));
}

static inline void open_streams(struct stream_pair *streams, const char *path, bool own,
                                const struct rdmux_stream_attr *attr)
{
    memset(streams, 0, sizeof(*streams));
    open_sides(&streams->pair, path, 0, 0);
    connect_streams(streams, own, attr);
}

static inline void close_streams(struct stream_pair *streams)
{
    (void)rdmux_stream_close(streams->a);
    (void)rdmux_stream_close(streams->b);
    close_pair(&streams->pair);
}

/* Moves bytes from one stream to the other, with both in this thread. */
static inline void check_flow(struct rdmux_stream *from, struct rdmux_stream *to, size_t length)
{
    uint8_t *out = malloc(length);
    uint8_t *in = malloc(length);
    size_t written = 0;
    size_t got = 0;
    assert_non_null(out);
    assert_non_null(in);
    for (size_t i = 0; i < length; i++) {
        out[i] = (uint8_t)(i * 7 + i / 251);
    }
    const uint64_t until = now_ms() + PATIENT_MS;
    while (got < length) {
        size_t moved = 0;
        assert_true(now_ms() < until);
        enum rdmux_status status = rdmux_stream_write(from, out + written, length - written, 0,
                                                      &moved);
        assert_true(status == RDMUX_OK || status == RDMUX_AGAIN);
        written += moved;
        status = rdmux_stream_read(to, in + got, length - got, 0, &moved);
        assert_true(status == RDMUX_OK || status == RDMUX_AGAIN);
        got += moved;
    }
    assert_memory_equal(in, out, length);
    free(out);
    free(in);
}

#endif
