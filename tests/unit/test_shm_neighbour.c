/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Many endpoints between two queues of the shm provider: what they share, and how a queue finds the
 * few that have work. */
#include "tests/unit/shm_pair.h"

#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    MEMBERS = 100,
    HOT = 16, /* endpoints that a queue polls in any case */
    BUDGET = 64,
};

struct member {
    struct shm_ep *eps[2]; /* 0 connects, 1 accepts */
    struct rdmux_provider_ep_attr attrs[2];
    struct rdmux_ep *cores[2];
    struct rdmux_request receive;
    struct rdmux_provider_sge sge;
    uint8_t buffer[8];
};

struct crowd {
    struct shm_domain *domain;
    struct shm_cq *cqs[2];
    struct rdmux_cq core_cqs[2];
    size_t count;
    struct member members[MEMBERS];
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

static void open_end(struct crowd *crowd, struct member *member, int side)
{
    struct shm_ep *ep = fake_object(sizeof(*ep));
    ep->base.ops = &rdmux_shm_provider;
    ep->base.cq = &crowd->cqs[side]->base;
    ep->base.ep = member->cores[side] = calloc(1, sizeof(struct rdmux_ep));
    fake_expect(ep->base.ep != NULL);
    member->eps[side] = ep;
    member->attrs[side].role = side == 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT;
    assert_int_equal(rdmux_shm_ep_open(&ep->base, &member->attrs[side]), RDMUX_OK);
}

/* is_old: each side takes the other one for a version without ready sets. */
static void connect_member(struct crowd *crowd, bool is_old)
{
    struct member *member = &crowd->members[crowd->count++];
    uint8_t data[2][RDMUX_DESCRIPTION_MAX];
    size_t sizes[2] = { RDMUX_DESCRIPTION_MAX, RDMUX_DESCRIPTION_MAX };
    enum rdmux_status statuses[2] = { RDMUX_IN_PROGRESS, RDMUX_IN_PROGRESS };
    for (int side = 0; side < 2; side++) {
        struct shm_description description;
        open_end(crowd, member, side);
        assert_int_equal(rdmux_shm_ep_describe(&member->eps[side]->base, data[side], &sizes[side]),
                         RDMUX_OK);
        assert_int_equal(rdmux_shm_description_decode(data[side], sizes[side], &description),
                         RDMUX_OK);
        assert_int_equal(description.features, SHM_FEATURE_READY);
        description.features = is_old ? 0 : description.features;
        rdmux_shm_description_encode(&description, data[side]);
    }
    for (int step = 0; step < 10; step++) {
        for (int side = 0; side < 2; side++) {
            (void)rdmux_shm_poll(&crowd->cqs[side]->base, BUDGET);
            if (statuses[side] == RDMUX_IN_PROGRESS) {
                statuses[side] = rdmux_shm_ep_connect(&member->eps[side]->base,
                                                      step == 0 ? data[1 - side] : NULL,
                                                      step == 0 ? sizes[1 - side] : 0);
            }
        }
    }
    assert_int_equal(statuses[0], RDMUX_OK);
    assert_int_equal(statuses[1], RDMUX_OK);
}

static struct crowd *open_crowd(void)
{
    struct crowd *crowd = calloc(1, sizeof(*crowd));
    assert_non_null(crowd);
    crowd->domain = shm_pair_domain();
    for (int side = 0; side < 2; side++) {
        struct shm_cq *cq = fake_object(sizeof(*cq));
        cq->base.domain = &crowd->domain->base;
        cq->base.cq = &crowd->core_cqs[side];
        assert_int_equal(rdmux_shm_cq_open(&cq->base, 0), RDMUX_OK);
        crowd->cqs[side] = cq;
    }
    return crowd;
}

static int set_up(void **state)
{
    *state = open_crowd();
    return 0;
}

static int set_up_crowd(void **state)
{
    struct crowd *crowd = open_crowd();
    for (size_t i = 0; i < MEMBERS; i++) {
        connect_member(crowd, false);
    }
    *state = crowd;
    return 0;
}

static void close_member(struct member *member)
{
    for (int side = 0; side < 2; side++) {
        rdmux_shm_ep_close(&member->eps[side]->base);
        free(member->eps[side]);
        free(member->cores[side]);
    }
}

static int tear_down(void **state)
{
    struct crowd *crowd = *state;
    for (size_t i = 0; i < crowd->count; i++) {
        close_member(&crowd->members[i]);
    }
    for (int side = 0; side < 2; side++) {
        assert_int_equal(crowd->cqs[side]->neighbour_count, 0);
        rdmux_shm_cq_close(&crowd->cqs[side]->base);
        free(crowd->cqs[side]);
    }
    rdmux_shm_provider.domain_close(&crowd->domain->base);
    free(crowd->domain);
    free(crowd);
    assert_int_equal(fake_fabric.allocations, 0);
    return 0;
}

static bool is_readable(const struct shm_cq *cq)
{
    struct pollfd item = { .fd = cq->epoll, .events = POLLIN };
    return poll(&item, 1, 0) == 1;
}

/* Arms as the core does: an event that is there already is polled before. */
static void arm(struct shm_cq *cq)
{
    for (int i = 0; i < 100 && rdmux_shm_arm(&cq->base) != RDMUX_OK; i++) {
        (void)rdmux_shm_poll(&cq->base, BUDGET);
    }
    assert_int_equal(rdmux_shm_arm(&cq->base), RDMUX_OK);
}

/* Posts a receive at the acceptor's side. */
static void post_receive(struct member *member)
{
    member->sge = (struct rdmux_provider_sge){ .addr = member->buffer, .length = 8 };
    member->receive = (struct rdmux_request){
        .op = RDMUX_OP_RECV, .length = 8, .sges = &member->sge, .sge_count = 1
    };
    fake_receive(&member->cores[1]->own, &member->receive);
    assert_int_equal(rdmux_shm_post_recv(&member->eps[1]->base, &member->receive, 1), RDMUX_OK);
}

/* The connector's side sends a message, for which the other one has a receive. */
static void send_message(struct crowd *crowd, size_t i)
{
    struct member *member = &crowd->members[i];
    uint8_t byte = (uint8_t)i;
    struct rdmux_provider_sge sge = { .addr = &byte, .length = 1 };
    struct rdmux_request request = {
        .op = RDMUX_OP_SEND, .length = 1, .sges = &sge, .sge_count = 1
    };
    size_t posted = 0;
    post_receive(member);
    assert_int_equal(rdmux_shm_post(&member->eps[0]->base, &request, 1, 0, &posted), RDMUX_OK);
    assert_int_equal(posted, 1);
}

static size_t count_arrived(const struct crowd *crowd)
{
    size_t count = 0;
    for (size_t i = 0; i < crowd->count; i++) {
        const struct member *member = &crowd->members[i];
        if (member->cores[1]->arrived_count > 0) {
            assert_int_equal(member->buffer[0], (uint8_t)i);
            count++;
        }
    }
    return count;
}

static uint64_t count_rings(const struct crowd *crowd)
{
    uint64_t calls = 0;
    for (size_t i = 0; i < crowd->count; i++) {
        calls += crowd->members[i].eps[0]->base.system_calls;
    }
    return calls;
}

static void endpoints_to_one_process_take_one_descriptor_each(void **state)
{
    enum { SHARED = 8 }; /* a side: pidfd, ready set, the peer's doorbell */
    struct crowd *crowd = *state;
    size_t before = count_descriptors();
    for (size_t i = 0; i < MEMBERS; i++) {
        connect_member(crowd, false);
    }
    assert_true(count_descriptors() - before <= 2 * MEMBERS + SHARED);

    for (size_t i = 0; i < MEMBERS; i++) {
        close_member(&crowd->members[i]);
    }
    crowd->count = 0;

    assert_int_equal(count_descriptors(), before);
}

static void endpoints_beyond_the_hot_ones_become_idle_when_the_queue_is_armed(void **state)
{
    struct crowd *crowd = *state;
    struct shm_cq *cq = crowd->cqs[1];

    arm(cq);

    assert_int_equal(cq->watched, HOT);
}

static void endpoints_become_idle_in_a_queue_that_is_never_armed(void **state)
{
    struct crowd *crowd = *state;
    struct shm_cq *cq = crowd->cqs[1];

    for (size_t i = 0; i < MEMBERS; i++) {
        send_message(crowd, i);
        (void)rdmux_shm_poll(&cq->base, BUDGET);
    }

    assert_true(cq->watched < MEMBERS);
}

static void each_idle_endpoint_is_served_when_its_peer_has_sent(void **state)
{
    struct crowd *crowd = *state;
    struct shm_cq *cq = crowd->cqs[1];
    for (int is_armed = 0; is_armed < 2; is_armed++) {
        for (size_t i = 0; i < MEMBERS; i++) {
            crowd->members[i].cores[1]->arrived_count = 0;
        }
        if (is_armed == 1) {
            arm(cq);
            assert_int_equal(cq->watched, HOT);
        }
        for (size_t i = 0; i < MEMBERS; i++) {
            send_message(crowd, i);
        }
        for (int polls = 0; polls < 20; polls++) { /* far fewer than endpoints */
            (void)rdmux_shm_poll(&cq->base, BUDGET);
        }
        assert_int_equal(count_arrived(crowd), MEMBERS);
    }
}

static void a_message_to_an_idle_endpoint_wakes_its_queue(void **state)
{
    struct crowd *crowd = *state;
    struct shm_cq *cq = crowd->cqs[1];
    for (size_t i = 0; i < MEMBERS; i++) {
        arm(cq);
        assert_false(is_readable(cq));

        send_message(crowd, i);

        assert_true(is_readable(cq));
        (void)rdmux_shm_poll(&cq->base, BUDGET);
        assert_int_equal(count_arrived(crowd), i + 1);
    }
}

static void many_messages_to_a_sleeping_queue_ring_once(void **state)
{
    struct crowd *crowd = *state;
    arm(crowd->cqs[1]);
    uint64_t before = count_rings(crowd);

    for (size_t i = 0; i < MEMBERS; i++) {
        send_message(crowd, i);
    }

    assert_int_equal(count_rings(crowd) - before, 1);
}

static void a_queue_that_is_awake_is_not_rung(void **state)
{
    struct crowd *crowd = *state;
    (void)rdmux_shm_poll(&crowd->cqs[1]->base, BUDGET);
    uint64_t before = count_rings(crowd);

    for (size_t i = 0; i < MEMBERS; i++) {
        send_message(crowd, i);
    }

    assert_int_equal(count_rings(crowd), before);
}

/* The peer has cleared the sleeping word; before it rings, its mark is served and the queue sleeps
 * again. */
static void a_ring_that_comes_behind_its_mark_leaves_the_queue_able_to_sleep(void **state)
{
    struct crowd *crowd = *state;
    struct shm_cq *cq = crowd->cqs[1];
    struct shm_ready *ready = cq->neighbours[0]->ready;
    const uint64_t one = 1;
    arm(cq);
    assert_int_equal(atomic_exchange(&ready->sleeping, 0), 1);
    assert_int_equal(write(cq->bell, &one, sizeof(one)), sizeof(one));
    assert_true(is_readable(cq));
    (void)rdmux_shm_poll(&cq->base, BUDGET);

    arm(cq);

    assert_int_equal(atomic_load(&ready->sleeping), 1);
    send_message(crowd, MEMBERS - 1);
    assert_true(is_readable(cq));
}

static void marks_of_no_endpoint_and_of_idle_ones_are_no_work(void **state)
{
    struct crowd *crowd = *state;
    struct shm_cq *cq = crowd->cqs[1];
    struct shm_ready *ready = cq->neighbours[0]->ready;
    arm(cq);
    for (size_t i = 0; i < SHM_MARK_WORDS; i++) {
        atomic_store(&ready->marks[i], UINT64_MAX);
    }
    atomic_store(&ready->summary, UINT64_MAX);

    size_t done = 0;
    for (int i = 0; i < SHM_MARK_COUNT / BUDGET; i++) {
        done += rdmux_shm_poll(&cq->base, BUDGET);
    }

    assert_int_equal(done, 0);
    assert_int_equal(atomic_load(&ready->summary), 0);
    arm(cq);
}

/* The request of an idle endpoint waits for the peer, so the queue has to look at it again. */
static void an_idle_endpoint_that_waits_for_its_peer_is_told(void **state)
{
    struct crowd *crowd = *state;
    struct member *member = &crowd->members[MEMBERS - 1];
    uint8_t byte = 7;
    struct rdmux_provider_sge sge = { .addr = &byte, .length = 1 };
    struct rdmux_request request = {
        .op = RDMUX_OP_SEND, .flags = RDMUX_PLACED, .length = 1, .sges = &sge, .sge_count = 1
    };
    size_t posted = 0;
    arm(crowd->cqs[0]);
    assert_true(member->eps[0]->place >= crowd->cqs[0]->watched);
    assert_int_equal(rdmux_shm_post(&member->eps[0]->base, &request, 1, 0, &posted), RDMUX_OK);
    assert_true(member->eps[0]->place < crowd->cqs[0]->watched);
    (void)rdmux_shm_poll(&crowd->cqs[0]->base, BUDGET); /* the post has rung the own doorbell */
    arm(crowd->cqs[0]);
    assert_true(member->eps[0]->place >= crowd->cqs[0]->watched);
    assert_false(is_readable(crowd->cqs[0]));

    post_receive(member);
    for (int polls = 0; polls < 20; polls++) {
        (void)rdmux_shm_poll(&crowd->cqs[1]->base, BUDGET);
    }

    assert_true(is_readable(crowd->cqs[0]));
    (void)rdmux_shm_poll(&crowd->cqs[0]->base, BUDGET);
    assert_int_equal(request.done, 1);
}

static void the_end_of_an_idle_endpoint_is_noticed(void **state)
{
    struct crowd *crowd = *state;
    struct rdmux_provider_counts counts;
    arm(crowd->cqs[1]);
    assert_int_equal(rdmux_shm_ep_quiesce(&crowd->members[MEMBERS - 1].eps[0]->base, &counts),
                     RDMUX_OK);

    assert_true(is_readable(crowd->cqs[1]));
    (void)rdmux_shm_poll(&crowd->cqs[1]->base, BUDGET);

    assert_int_equal(crowd->members[MEMBERS - 1].cores[1]->failed, RDMUX_PEER_GONE);
    assert_int_equal(crowd->members[0].cores[1]->failed, RDMUX_OK);
}

static void the_end_of_a_process_ends_all_its_endpoints(void **state)
{
    struct crowd *crowd = *state;
    struct shm_cq *cq = crowd->cqs[1];
    int ended[2];
    arm(cq);
    assert_int_equal(pipe(ended), 0); /* readable, as a pidfd after the end */
    assert_int_equal(write(ended[1], "", 1), 1);
    assert_true(dup2(ended[0], cq->neighbours[0]->pidfd) >= 0);
    assert_int_equal(
        rdmux_shm_cq_watch(cq, cq->neighbours[0], cq->neighbours[0]->pidfd, SHM_WATCH_PID, POLLIN),
        RDMUX_OK);

    for (int i = 0; i < MEMBERS; i++) {
        (void)rdmux_shm_poll(&cq->base, BUDGET);
    }

    for (size_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(crowd->members[i].cores[1]->failed, RDMUX_PEER_GONE);
    }
    assert_int_equal(close(ended[0]), 0);
    assert_int_equal(close(ended[1]), 0);
}

/* A peer of an older version rings a doorbell of the endpoint, and marks nothing. */
static void endpoints_to_an_older_version_have_their_own_doorbell(void **state)
{
    enum { COUNT = 40 };
    struct crowd *crowd = *state;
    struct shm_cq *cq = crowd->cqs[1];
    for (size_t i = 0; i < COUNT; i++) {
        connect_member(crowd, true);
    }
    for (size_t i = 0; i < COUNT; i++) {
        arm(cq);
        assert_false(is_readable(cq));

        send_message(crowd, i);

        assert_true(is_readable(cq));
        (void)rdmux_shm_poll(&cq->base, BUDGET);
        assert_int_equal(count_arrived(crowd), i + 1);
    }
    assert_int_equal(cq->watched, COUNT);
    assert_null(cq->neighbours[0]->ready);
}

static void endpoints_beyond_the_number_of_marks_share_them(void **state)
{
    enum { COUNT = SHM_MARK_COUNT + 300 };
    struct crowd *crowd = *state;
    struct shm_ep **eps = calloc(COUNT, sizeof(*eps));
    assert_non_null(eps);
    for (size_t i = 0; i < COUNT; i++) {
        eps[i] = fake_object(sizeof(**eps));
        eps[i]->base.cq = &crowd->cqs[0]->base;
        eps[i]->peer.pid = getpid();
        assert_int_equal(rdmux_shm_neighbour_join(eps[i], true), RDMUX_OK);
        assert_true(eps[i]->mark < SHM_MARK_COUNT);
    }
    struct shm_neighbour *neighbour = eps[0]->neighbour;
    assert_int_equal(neighbour->refs, COUNT);
    size_t found = 0;
    for (uint32_t mark = 0; mark < neighbour->marked_room; mark++) {
        size_t here = 0;
        for (struct shm_ep *ep = neighbour->marked[mark]; ep != NULL; ep = ep->mark_next) {
            here++;
        }
        assert_true(here >= 1 && here <= 2);
        found += here;
    }
    assert_int_equal(found, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        rdmux_shm_neighbour_leave(eps[i]);
        free(eps[i]);
    }
    free(eps);
    assert_int_equal(crowd->cqs[0]->neighbour_count, 0);
}

#define CROWD_TEST(name) cmocka_unit_test_setup_teardown(name, set_up_crowd, tear_down)
#define EMPTY_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EMPTY_TEST(endpoints_to_one_process_take_one_descriptor_each),
        CROWD_TEST(endpoints_beyond_the_hot_ones_become_idle_when_the_queue_is_armed),
        CROWD_TEST(endpoints_become_idle_in_a_queue_that_is_never_armed),
        CROWD_TEST(each_idle_endpoint_is_served_when_its_peer_has_sent),
        CROWD_TEST(a_message_to_an_idle_endpoint_wakes_its_queue),
        CROWD_TEST(many_messages_to_a_sleeping_queue_ring_once),
        CROWD_TEST(a_queue_that_is_awake_is_not_rung),
        CROWD_TEST(a_ring_that_comes_behind_its_mark_leaves_the_queue_able_to_sleep),
        CROWD_TEST(marks_of_no_endpoint_and_of_idle_ones_are_no_work),
        CROWD_TEST(an_idle_endpoint_that_waits_for_its_peer_is_told),
        CROWD_TEST(the_end_of_an_idle_endpoint_is_noticed),
        CROWD_TEST(the_end_of_a_process_ends_all_its_endpoints),
        EMPTY_TEST(endpoints_to_an_older_version_have_their_own_doorbell),
        EMPTY_TEST(endpoints_beyond_the_number_of_marks_share_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
