/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints that use up the budget of a poll starve no other endpoint on their cq. Everything
 * happens in one thread, poll by poll, so that a bound is a number of polls. */
#include "tests/unit/api_pair.h"

enum {
    EPS = 24,      /* more than any provider looks at in each poll */
    DEPTH = 512,   /* requests of an endpoint: eight times as many as a poll handles */
    FULL = 64,     /* entries of a poll that handled all it may */
    WARM_UP = 200, /* polls after which the provider knows the busy endpoints */
    SOON = 64, /* polls a message may take beside an endpoint that floods; more beside several */
    LARGE = 8 << 20, /* bytes that fit into no socket and no ring at once */
    MANUAL = RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD,
};

/* Messages of a flood that exceed a poll's budget: one read of a socket is 64 KiB. */
static const struct path {
    const char *name;
    size_t message;
} all_paths[] = { { "tcp", 900 }, { "shm", 8 } };

struct crowd {
    struct pair pair;
    const struct path *path;
    struct rdmux_ep *a[EPS];
    struct rdmux_ep *b[EPS];
    size_t flooding; /* the first so many of a send all they may */
    uint64_t got[EPS];
    uint64_t sent; /* by b */
    uint64_t polls;
    uint64_t full_polls;
    uint8_t bytes[1024];
    uint8_t sink[1024];
};

static void post_receive(struct crowd *crowd, size_t i)
{
    CHECK_OK(rdmux_recv(crowd->b[i], crowd->sink, sizeof(crowd->sink), NULL, CONTEXT(i)));
}

static void open_crowd(struct crowd *crowd, const struct path *path, size_t flooding)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.send_depth = DEPTH;
    attr.recv_depth = DEPTH;
    memset(crowd, 0, sizeof(*crowd));
    crowd->path = path;
    crowd->flooding = flooding;
    open_sides(&crowd->pair, path->name, MANUAL, MANUAL);
    for (size_t i = 0; i < EPS; i++) {
        connect_more(&crowd->pair, &attr, &crowd->a[i], &crowd->b[i]);
        for (size_t k = 0; k < (i < flooding ? DEPTH : 1); k++) {
            post_receive(crowd, i);
        }
    }
}

static void close_crowd(struct crowd *crowd)
{
    for (size_t i = 0; i < EPS; i++) {
        CHECK_OK(rdmux_ep_close(crowd->a[i]));
        CHECK_OK(rdmux_ep_close(crowd->b[i]));
    }
    close_pair(&crowd->pair);
}

/* The flooding endpoints send all they may, then b polls once. */
static void poll_once(struct crowd *crowd)
{
    struct rdmux_wc wcs[EPS * DEPTH];
    for (size_t i = 0; i < crowd->flooding; i++) {
        enum rdmux_status status = RDMUX_OK;
        while (status == RDMUX_OK) {
            status = rdmux_send(crowd->a[i], crowd->bytes, crowd->path->message, NULL, NULL,
                                RDMUX_UNSIGNALED);
        }
        CHECK_STATUS(status, RDMUX_AGAIN);
    }
    size_t count = rdmux_cq_poll(crowd->pair.cq_a, wcs, RDMUX_COUNT_OF(wcs));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(wcs[i].status, RDMUX_OK);
    }
    count = rdmux_cq_poll(crowd->pair.cq_b, wcs, RDMUX_COUNT_OF(wcs));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(wcs[i].status, RDMUX_OK);
        if (wcs[i].opcode == RDMUX_WC_SEND) {
            crowd->sent++;
        } else {
            size_t from = (size_t)(uintptr_t)wcs[i].context;
            crowd->got[from]++;
            post_receive(crowd, from);
        }
    }
    crowd->polls++;
    crowd->full_polls += count >= FULL;
}

static void warm_up(struct crowd *crowd)
{
    for (int i = 0; i < WARM_UP; i++) {
        poll_once(crowd);
    }
    assert_true(crowd->full_polls >= WARM_UP / 2); /* else there is nothing to be seen */
}

static void check_each_is_heard(const struct path *path, size_t flooding)
{
    struct crowd crowd;
    open_crowd(&crowd, path, flooding);
    warm_up(&crowd);
    for (size_t i = EPS - 1; i >= flooding; i--) {
        uint64_t until = crowd.polls + SOON * flooding;
        CHECK_OK(rdmux_send(crowd.a[i], "one", 4, NULL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED));
        while (crowd.got[i] == 0) {
            if (crowd.polls == until) {
                fail_msg("%s, %zu flood: endpoint %zu is not heard in %zu polls", path->name,
                         flooding, i, SOON * flooding);
            }
            poll_once(&crowd);
        }
    }
    for (size_t i = 0; i < flooding; i++) {
        assert_true(crowd.got[i] >= crowd.polls * FULL / flooding / 4); /* each has its share */
    }
    close_crowd(&crowd);
}

static void a_message_arrives_beside_an_endpoint_that_floods(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        check_each_is_heard(&all_paths[i], 1);
    }
}

static void a_message_arrives_beside_several_endpoints_that_flood(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        check_each_is_heard(&all_paths[i], 6);
        check_each_is_heard(&all_paths[i], 20);
    }
}

static void a_long_send_completes_beside_an_endpoint_that_floods(void **state)
{
    (void)state;
    uint8_t *out = calloc(2, LARGE);
    uint8_t *in = out + LARGE;
    assert_non_null(out);
    memset(out, 7, LARGE);
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct crowd crowd;
        open_crowd(&crowd, &all_paths[i], 1);
        warm_up(&crowd);
        CHECK_OK(rdmux_recv(crowd.a[EPS - 1], in, LARGE, NULL, NULL));
        CHECK_OK(rdmux_send(crowd.b[EPS - 1], out, LARGE, NULL, NULL, 0));
        uint64_t until = crowd.polls + UINT64_C(100) * SOON;
        while (crowd.sent == 0) {
            if (crowd.polls == until) {
                fail_msg("%s: a message that takes its time is not sent in %u polls",
                         all_paths[i].name, 100 * SOON);
            }
            poll_once(&crowd);
        }
        close_crowd(&crowd);
    }
    free(out);
}

/* An endpoint that a poll found and left for the next one may be closed by then. */
static void endpoints_that_flood_can_be_closed_between_polls(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct crowd crowd;
        open_crowd(&crowd, &all_paths[i], EPS);
        warm_up(&crowd);
        while (crowd.flooding > 0) {
            size_t last = --crowd.flooding;
            CHECK_OK(rdmux_ep_close(crowd.a[last]));
            CHECK_OK(rdmux_ep_close(crowd.b[last]));
            crowd.a[last] = crowd.b[last] = NULL;
            poll_once(&crowd);
        }
        close_crowd(&crowd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_arrives_beside_an_endpoint_that_floods),
        cmocka_unit_test(a_message_arrives_beside_several_endpoints_that_flood),
        cmocka_unit_test(a_long_send_completes_beside_an_endpoint_that_floods),
        cmocka_unit_test(endpoints_that_flood_can_be_closed_between_polls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
