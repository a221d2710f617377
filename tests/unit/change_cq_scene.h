/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* An endpoint that changes its cq: endpoint b of a pair, and the cq that it moves to. */
#ifndef RDMUX_TESTS_CHANGE_CQ_SCENE_H
#define RDMUX_TESTS_CHANGE_CQ_SCENE_H

#include "tests/unit/api_pair.h"

enum { MESSAGES = 40 };

static const char *const paths[] = { "shm", "tcp" };

/* A pair over one path, and a second cq of b's fabric. */
struct move {
    struct pair pair;
    struct rdmux_cq *to;
};

static inline void open_move(struct move *move, const char *path)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.send_depth = attr.recv_depth = MESSAGES;
    open_pair(&move->pair, path, &attr);
    move->to = create_cq(move->pair.fabric_b);
}

static inline void close_move(struct move *move)
{
    CHECK_OK(rdmux_ep_close(move->pair.b));
    move->pair.b = NULL;
    CHECK_OK(rdmux_cq_destroy(move->to));
    close_pair(&move->pair);
}

static inline void expect_moved(struct rdmux_cq *cq, const struct rdmux_ep *ep)
{
    struct rdmux_wc wc = expect_entry(cq, RDMUX_WC_MOVED, RDMUX_OK);
    assert_ptr_equal(wc.ep, ep);
    assert_null(wc.context);
    assert_int_equal(wc.length, 0);
}

static inline void expect_no_entry(struct rdmux_cq *cq)
{
    struct rdmux_wc wc;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rdmux_cq_poll(cq, &wc, 1), 0);
    }
}

#endif
