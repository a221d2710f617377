/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A queue with many endpoints: what each of them takes, and that each is served. */
#include "tests/unit/api_pair.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    COUNT = 150, /* endpoints, more than a queue polls in any case */
    SHARED = 16, /* descriptors of the queues and of all endpoints to a process, on both sides */
    SIZE = 64,
    RECEIVES = 4 * COUNT,
};

static const char *const paths[] = { "tcp", "shm" };

struct crowd {
    struct pair pair;
    struct rdmux_ep *a[COUNT];
    struct rdmux_ep *b[COUNT];
};

static size_t count_descriptors(void)
{
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    assert_int_equal(closedir(folder), 0);
    return count;
}

static void close_crowd(struct crowd *crowd)
{
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_OK(rdmux_ep_close(crowd->a[i]));
        CHECK_OK(rdmux_ep_close(crowd->b[i]));
    }
}

/* Both sides are in this process. */
static void an_endpoint_takes_two_descriptors_on_each_side(void **state)
{
    (void)state;
    for (size_t path = 0; path < RDMUX_COUNT_OF(paths); path++) {
        struct crowd *crowd = calloc(1, sizeof(*crowd));
        assert_non_null(crowd);
        open_sides(&crowd->pair, paths[path], 0, 0);
        size_t before = count_descriptors();
        for (size_t i = 0; i < COUNT; i++) {
            connect_more(&crowd->pair, NULL, &crowd->a[i], &crowd->b[i]);
        }

        size_t taken = count_descriptors() - before;

        if (taken > (size_t)2 * 2 * COUNT + SHARED) {
            fail_msg("%s: %zu descriptors for %d endpoints on each side", paths[path], taken, COUNT);
        }
        close_crowd(crowd);
        close_pair(&crowd->pair);
        free(crowd);
    }
}

static struct rdmux_srq *make_srq(const struct pair *pair, uint8_t *buffers)
{
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    struct rdmux_srq *srq = NULL;
    attr.depth = RECEIVES;
    CHECK_OK(rdmux_srq_create(pair->fabric_b, pair->cq_b, &attr, &srq));
    for (size_t i = 0; i < RECEIVES; i++) {
        uint8_t *buffer = buffers + i * SIZE;
        CHECK_OK(rdmux_srq_recv(srq, buffer, SIZE, NULL, buffer));
    }
    return srq;
}

/* Returns the requests that come next, each with an answer of the same bytes. */
static void answer_requests(const struct pair *pair, size_t count)
{
    for (size_t done = 0; done < count;) {
        struct rdmux_wc wc[16];
        size_t got = 0;
        CHECK_OK(rdmux_cq_wait(pair->cq_b, wc, RDMUX_COUNT_OF(wc), -1, &got));
        for (size_t i = 0; i < got; i++) {
            assert_int_equal(wc[i].opcode, RDMUX_WC_RECV);
            CHECK_OK((enum rdmux_status)wc[i].status);
            CHECK_OK(rdmux_send(wc[i].ep, wc[i].context, SIZE, NULL, NULL,
                                RDMUX_INLINE | RDMUX_UNSIGNALED));
        }
        done += got;
    }
}

static void each_of_many_endpoints_of_a_shared_receive_queue_is_served(void **state)
{
    (void)state;
    for (size_t path = 0; path < RDMUX_COUNT_OF(paths); path++) {
        struct crowd *crowd = calloc(1, sizeof(*crowd));
        uint8_t *buffers = calloc(RECEIVES, SIZE);
        uint8_t(*answers)[SIZE] = calloc(COUNT, SIZE);
        assert_true(crowd != NULL && buffers != NULL && answers != NULL);
        open_sides(&crowd->pair, paths[path], 0, 0);
        struct rdmux_srq *srq = make_srq(&crowd->pair, buffers);
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        attr.srq = srq;
        for (size_t i = 0; i < COUNT; i++) {
            connect_as(&crowd->pair, NULL, &attr, &crowd->a[i], &crowd->b[i]);
        }

        for (size_t i = 0; i < COUNT; i++) {
            uint8_t request[SIZE];
            memset(request, (int)(i + 1), sizeof(request));
            CHECK_OK(rdmux_recv(crowd->a[i], answers[i], SIZE, NULL, NULL));
            CHECK_OK(rdmux_send(crowd->a[i], request, SIZE, NULL, NULL,
                                RDMUX_INLINE | RDMUX_UNSIGNALED));
        }
        answer_requests(&crowd->pair, COUNT);

        for (size_t i = 0; i < COUNT; i++) {
            (void)expect_entry(crowd->pair.cq_a, RDMUX_WC_RECV, RDMUX_OK);
        }
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(answers[i][0], (uint8_t)(i + 1));
            assert_int_equal(answers[i][SIZE - 1], (uint8_t)(i + 1));
        }
        close_crowd(crowd);
        CHECK_OK(rdmux_srq_destroy(srq));
        close_pair(&crowd->pair);
        free(answers);
        free(buffers);
        free(crowd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_endpoint_takes_two_descriptors_on_each_side),
        cmocka_unit_test(each_of_many_endpoints_of_a_shared_receive_queue_is_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
