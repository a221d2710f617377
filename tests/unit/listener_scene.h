/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A listener whose log and memory are recorded, and the first bytes of a connector. */
#ifndef RDMUX_TESTS_LISTENER_SCENE_H
#define RDMUX_TESTS_LISTENER_SCENE_H

#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/object/offer.h"
#include "negotiation/handshake_frames.h"
#include "tests/unit/api_pair.h"
#include "tests/unit/fair_time.h"

enum {
    OPENING_MAX = RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE + RDMUX_OFFER_BYTES_MAX,
    /* Longest a good connection may take; below every time limit of a path or a set-up. */
    PROMPT_MS = 1500,
};

/* A pair whose accepting side records its log and counts its memory. */
struct scene {
    struct pair pair;
    struct logbook book;
    struct meter meter;
};

static inline struct scene *set_scene(const struct rdmux_listen_attr *attr)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    assert_non_null(scene);
    pthread_mutex_init(&scene->book.lock, NULL);
    scene->pair.fabric_a = open_fabric("tcp", 0, NULL);
    scene->pair.fabric_b = open_metered_fabric("tcp", 0, &scene->book, &scene->meter);
    scene->pair.cq_a = create_cq(scene->pair.fabric_a);
    scene->pair.cq_b = create_cq(scene->pair.fabric_b);
    scene->pair.listener = listen_here(scene->pair.fabric_b, attr, scene->pair.address);
    return scene;
}

static inline void clear_scene(struct scene *scene)
{
    close_pair(&scene->pair);
    assert_int_equal(atomic_load(&scene->meter.pieces), 0);
    free(scene);
}

/* Checks that a connection is made promptly, carries bytes, and ends. */
static inline void check_good_connection(struct pair *pair)
{
    struct rdmux_ep *a = NULL;
    struct rdmux_ep *b = NULL;
    struct span span = span_begin();

    connect_more(pair, NULL, &a, &b);

    check_span("a good connection", span, 0, PROMPT_MS * SLACK);
    check_message(a, pair->cq_a, b, pair->cq_b, 5);
    CHECK_OK(rdmux_ep_close(a));
    expect_entry(pair->cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    CHECK_OK(rdmux_ep_close(b));
}

static inline void wait_for_lines(struct logbook *book, size_t count)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (logbook_total(book) < count && now_ms() < until) {
        pause_ms(1);
    }
}

/* Encodes HELLO and OFFER of a connector of this fabric. Returns their size. */
static inline size_t make_opening(struct rdmux_fabric *fabric, uint8_t out[OPENING_MAX])
{
    struct rdmux_hello hello;
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    assert_non_null(offer);
    rdmux_hello_fill(fabric, &hello);
    rdmux_hello_encode(&hello, out);
    rdmux_offer_defaults(fabric, "tcp", offer);
    size_t size = RDMUX_OFFER_BYTES_MAX;
    CHECK_OK(rdmux_offer_encode(offer, out + RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE, &size));
    rdmux_frame_header_encode(RDMUX_FRAME_OFFER, 0, size, out + RDMUX_HELLO_SIZE);
    free(offer);
    return RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE + size;
}

#endif
