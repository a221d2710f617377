/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Many endpoints between two queues of the shm provider: what they share, and how a queue finds the
 * few that have work. */
#include "shm/shm_watch.h"
#include "tests/unit/shm_pair.h"

#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
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
    struct shm_cq *cqs[3]; /* side 0, side 1, and another one to which endpoints of side 1 go */
    struct rdmux_cq core_cqs[3];
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
    for (int side = 0; side < 3; side++) {
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
    for (int side = 0; side < 3; side++) {
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
    struct shm_ep **eps = calloc(COUNT, sizeof(struct shm_ep *));
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

/* ------------------------------------------------------------------------ changes of the queue */

static void leave(struct crowd *crowd, size_t i)
{
    assert_int_equal(rdmux_shm_ep_leave(&crowd->members[i].eps[1]->base), RDMUX_OK);
}

static void enter(struct crowd *crowd, size_t i, int cq)
{
    struct rdmux_provider_ep *ep = &crowd->members[i].eps[1]->base;
    ep->cq = &crowd->cqs[cq]->base;
    assert_int_equal(rdmux_shm_ep_enter(ep), RDMUX_OK);
}

static void move(struct crowd *crowd, size_t i, int cq)
{
    leave(crowd, i);
    enter(crowd, i, cq);
}

/* The message of member i wakes its queue and no other one. */
static void expect_wakes(struct crowd *crowd, size_t i, int cq)
{
    struct member *member = &crowd->members[i];
    member->cores[1]->arrived_count = 0;
    for (int at = 1; at < 3; at++) {
        (void)rdmux_shm_poll(&crowd->cqs[at]->base, BUDGET);
        arm(crowd->cqs[at]);
        assert_false(is_readable(crowd->cqs[at]));
    }
    send_message(crowd, i);
    assert_true(is_readable(crowd->cqs[cq]));
    assert_false(is_readable(crowd->cqs[3 - cq]));
    (void)rdmux_shm_poll(&crowd->cqs[cq]->base, BUDGET);
    assert_int_equal(member->cores[1]->arrived_count, 1);
}

static void expect_arrives(struct crowd *crowd, size_t i, int cq)
{
    struct member *member = &crowd->members[i];
    member->cores[1]->arrived_count = 0;
    send_message(crowd, i);
    (void)rdmux_shm_poll(&crowd->cqs[cq]->base, BUDGET);
    assert_int_equal(member->cores[1]->arrived_count, 1);
}

static void an_endpoint_that_changes_its_queue_is_woken_there(void **state)
{
    struct crowd *crowd = *state;
    connect_member(crowd, false);
    connect_member(crowd, false);
    expect_wakes(crowd, 0, 1);
    expect_wakes(crowd, 1, 1);

    move(crowd, 1, 2);

    assert_int_equal(crowd->cqs[1]->neighbours[0]->refs, 1);
    assert_int_equal(crowd->cqs[2]->neighbours[0]->refs, 1);
    expect_arrives(crowd, 1, 2); /* before the peer is told */
    for (int turn = 0; turn < 3; turn++) {
        expect_wakes(crowd, 0, 1);
        expect_wakes(crowd, 1, 2);
        expect_arrives(crowd, 0, 1);
        expect_arrives(crowd, 1, 2);
    }
    move(crowd, 0, 2);
    assert_int_equal(crowd->cqs[1]->neighbour_count, 0);
    assert_int_equal(crowd->cqs[2]->neighbours[0]->refs, 2);
    move(crowd, 1, 1);
    expect_wakes(crowd, 0, 2);
    expect_wakes(crowd, 1, 1);
}

static void idle_endpoints_that_change_their_queue_are_marked_there(void **state)
{
    struct crowd *crowd = *state;
    arm(crowd->cqs[1]);
    for (size_t i = 0; i < MEMBERS; i += 2) {
        move(crowd, i, 2);
    }
    assert_int_equal(crowd->cqs[1]->count, MEMBERS / 2);
    arm(crowd->cqs[2]);
    assert_int_equal(crowd->cqs[2]->watched, HOT);
    for (size_t i = 0; i < MEMBERS; i++) {
        expect_wakes(crowd, i, i % 2 == 0 ? 2 : 1);
    }
}

static void a_message_that_comes_between_two_queues_is_found_at_the_new_one(void **state)
{
    struct crowd *crowd = *state;
    connect_member(crowd, false);
    arm(crowd->cqs[1]);
    leave(crowd, 0);
    assert_null(crowd->members[0].eps[1]->neighbour);
    send_message(crowd, 0); /* rings for the old queue */
    enter(crowd, 0, 2);
    assert_int_equal(rdmux_shm_arm(&crowd->cqs[2]->base), RDMUX_AGAIN);
    (void)rdmux_shm_poll(&crowd->cqs[2]->base, BUDGET);
    assert_int_equal(count_arrived(crowd), 1);
    expect_wakes(crowd, 0, 2);
}

static void a_queue_may_close_when_its_endpoints_have_left(void **state)
{
    struct crowd *crowd = *state;
    connect_member(crowd, false);
    const struct shm_ep *peer = crowd->members[0].eps[0];
    const struct shm_region *table = peer->regions.table;
    arm(crowd->cqs[1]);
    move(crowd, 0, 2);
    rdmux_shm_cq_close(&crowd->cqs[1]->base);
    struct shm_cq *cq = crowd->cqs[1];
    memset(cq, 0, sizeof(*cq));
    cq->base.domain = &crowd->domain->base;
    cq->base.cq = &crowd->core_cqs[1];
    assert_int_equal(rdmux_shm_cq_open(&cq->base, 0), RDMUX_OK);

    expect_wakes(crowd, 0, 2);
    assert_ptr_not_equal(peer->queue, peer->first_queue);
    assert_ptr_equal(peer->regions.table, table); /* remotes refer to its words */
    move(crowd, 0, 1);
    expect_wakes(crowd, 0, 1);
}

/* The socket to an idle peer becomes full of news. The queue stays awake until the peer, which it
 * rings, has taken them. */
static void a_peer_that_polls_after_many_changes_is_told_of_the_last(void **state)
{
    enum { CHANGES = 2000 };
    struct crowd *crowd = *state;
    connect_member(crowd, false);
    const struct shm_ep *ep = crowd->members[0].eps[1];
    arm(crowd->cqs[0]);
    int at = 1;
    for (int i = 0; i < CHANGES && !ep->is_untold; i++) {
        at = 3 - at;
        move(crowd, 0, at);
        (void)rdmux_shm_arm(&crowd->cqs[at]->base);
    }
    assert_true(ep->is_untold);
    assert_int_equal(rdmux_shm_arm(&crowd->cqs[at]->base), RDMUX_AGAIN);
    assert_true(is_readable(crowd->cqs[0]));
    (void)rdmux_shm_poll(&crowd->cqs[0]->base, BUDGET);
    expect_wakes(crowd, 0, at);
    assert_false(ep->is_untold);
}

static void news_whose_descriptors_are_lost_end_the_path(void **state)
{
    struct crowd *crowd = *state;
    connect_member(crowd, false);
    struct shm_ep *peer = crowd->members[0].eps[0];
    arm(crowd->cqs[0]);
    rdmux_shm_queue_change(peer, 0, NULL, 0);
    assert_false(rdmux_shm_peer_is_gone(peer));
    (void)rdmux_shm_poll(&crowd->cqs[0]->base, BUDGET);
    assert_int_equal(crowd->members[0].cores[0]->failed, RDMUX_IO);
}

/* Its peer has no ready sets and gets no news: the doorbell of the endpoint comes along. */
static void an_endpoint_to_an_older_version_takes_its_doorbell_along(void **state)
{
    struct crowd *crowd = *state;
    connect_member(crowd, true);
    connect_member(crowd, true);
    move(crowd, 1, 2);
    assert_false(crowd->members[1].eps[1]->is_untold);
    expect_wakes(crowd, 0, 1);
    expect_wakes(crowd, 1, 2);
}

static void an_endpoint_whose_process_ended_between_two_queues_ends(void **state)
{
    struct crowd *crowd = *state;
    connect_member(crowd, false);
    connect_member(crowd, false);
    struct shm_ep *ep = crowd->members[0].eps[1];
    int ended[2];
    move(crowd, 1, 2);
    leave(crowd, 0);
    assert_int_equal(pipe(ended), 0); /* readable, as a pidfd after the end */
    assert_int_equal(write(ended[1], "", 1), 1);
    assert_true(dup2(ended[0], ep->peer.pidfd) >= 0);
    enter(crowd, 0, 2);
    assert_ptr_not_equal(ep->neighbour, crowd->members[1].eps[1]->neighbour);
    (void)rdmux_shm_arm(&crowd->cqs[2]->base);
    for (int i = 0; i < 3; i++) {
        (void)rdmux_shm_poll(&crowd->cqs[2]->base, BUDGET);
    }
    assert_int_equal(crowd->members[0].cores[1]->failed, RDMUX_PEER_GONE);
    assert_int_equal(crowd->members[1].cores[1]->failed, RDMUX_OK);
    assert_int_equal(close(ended[0]), 0);
    assert_int_equal(close(ended[1]), 0);
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
        CROWD_TEST(idle_endpoints_that_change_their_queue_are_marked_there),
        EMPTY_TEST(an_endpoint_that_changes_its_queue_is_woken_there),
        EMPTY_TEST(a_message_that_comes_between_two_queues_is_found_at_the_new_one),
        EMPTY_TEST(a_queue_may_close_when_its_endpoints_have_left),
        EMPTY_TEST(a_peer_that_polls_after_many_changes_is_told_of_the_last),
        EMPTY_TEST(news_whose_descriptors_are_lost_end_the_path),
        EMPTY_TEST(an_endpoint_to_an_older_version_takes_its_doorbell_along),
        EMPTY_TEST(an_endpoint_whose_process_ended_between_two_queues_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
