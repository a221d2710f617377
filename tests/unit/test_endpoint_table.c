/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The endpoint table of a cq, by id and by time: a round of timers looks only at endpoints that are
 * due, however many there are. */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/progress/endpoint_table.h"
#include "tests/unit/fake_fabric.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    MANY = 2000,
    TICK_NS = 8000000,
    FIRST_ID = 7,
};

/* An endpoint with the fields that the test needs; deadline_ns is what the endpoint reports. */
struct member {
    struct rdmux_ep ep;
    uint64_t deadline_ns;
    uint64_t next_ns; /* deadline_ns after it was called */
    unsigned calls;
    bool leaves; /* the cq, when called */
    bool enrolled;
};

static struct scene {
    struct fake_fabric *fake;
    struct rdmux_cq *cq;
    struct member *members;
    uint64_t now_ns;
    unsigned calls;     /* of life.timers */
    uint64_t called_at; /* deadline of the last one */
    unsigned wakes;
} scene;

void __wrap_rdmux_service_wake(struct rdmux_fabric *fabric);

static struct member *member_of(const struct rdmux_ep *ep)
{
    return &scene.members[ep->id - FIRST_ID];
}

static void strike(struct member *member)
{
    rdmux_cq_strike(scene.cq, &member->ep);
    member->enrolled = false;
}

static void run_timers_of(struct rdmux_ep *ep, uint64_t now_ns)
{
    struct member *member = member_of(ep);
    assert_int_equal(now_ns, scene.now_ns);
    assert_true(member->enrolled);
    assert_true(member->deadline_ns <= now_ns);
    assert_true(member->deadline_ns >= scene.called_at);
    scene.called_at = member->deadline_ns;
    scene.calls++;
    member->calls++;
    member->deadline_ns = member->next_ns;
    if (member->leaves) {
        strike(member);
    }
}

static uint64_t deadline_of(const struct rdmux_ep *ep)
{
    return member_of(ep)->deadline_ns;
}

static const struct rdmux_life life = { .timers = run_timers_of, .deadline = deadline_of };

void __wrap_rdmux_service_wake(struct rdmux_fabric *fabric)
{
    (void)fabric;
    scene.wakes++;
}

static uint64_t scene_clock(void *user)
{
    (void)user;
    return scene.now_ns;
}

static void set_deadline(struct member *member, uint64_t deadline_ns)
{
    member->deadline_ns = deadline_ns;
    rdmux_ep_timer(&member->ep);
}

/* As many calls as there were timers due. */
static unsigned run_at(uint64_t now_ns)
{
    scene.now_ns = now_ns;
    scene.calls = 0;
    scene.called_at = 0;
    rdmux_cq_run_timers(scene.cq);
    return scene.calls;
}

static uint64_t pseudo_random(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return *state >> 33;
}

static int open_scene(void **state)
{
    (void)state;
    memset(&scene, 0, sizeof(scene));
    scene.fake = fake_fabric_create();
    scene.fake->fabric.hooks.clock_ns = scene_clock;
    scene.fake->fabric.life = &life;
    scene.cq = rdmux_allocate(&scene.fake->fabric, sizeof(*scene.cq));
    assert_non_null(scene.cq);
    scene.cq->fabric = &scene.fake->fabric;
    rdmux_list_init(&scene.cq->lists.eps);
    atomic_store(&scene.cq->deadline_ns, UINT64_MAX);
    scene.members = calloc(MANY, sizeof(*scene.members));
    assert_non_null(scene.members);
    for (uint64_t i = 0; i < MANY; i++) {
        struct member *member = &scene.members[i];
        member->ep.id = FIRST_ID + i;
        member->ep.cq = scene.cq;
        member->ep.fabric = &scene.fake->fabric;
        member->deadline_ns = UINT64_MAX;
        member->next_ns = UINT64_MAX;
        rdmux_list_init(&member->ep.places.cq);
    }
    return 0;
}

static void enrol(struct member *member)
{
    assert_int_equal(rdmux_cq_enrol(scene.cq, &member->ep), RDMUX_OK);
    member->enrolled = true;
}

static void enrol_all(void)
{
    for (size_t i = 0; i < MANY; i++) {
        enrol(&scene.members[i]);
    }
}

static int close_scene(void **state)
{
    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        if (scene.members[i].enrolled) {
            strike(&scene.members[i]);
        }
    }
    assert_int_equal(scene.cq->ep_count, 0);
    assert_true(rdmux_list_empty(&scene.cq->lists.eps));
    rdmux_release(&scene.fake->fabric, scene.cq->table.timers);
    rdmux_release(&scene.fake->fabric, scene.cq);
    free(scene.members);
    return fake_fabric_destroy(scene.fake) == 0 ? 0 : -1;
}

static void a_round_calls_the_due_endpoints_in_order_and_no_others(void **state)
{
    (void)state;
    uint64_t random = 1;
    enrol_all();
    for (size_t i = 0; i < MANY; i++) {
        set_deadline(&scene.members[i], 1000 + pseudo_random(&random) % 1000 * TICK_NS);
    }
    unsigned all = 0;
    for (uint64_t tick = 0; tick <= 1001; tick++) {
        unsigned due = 0;
        uint64_t now_ns = tick * TICK_NS;
        for (size_t i = 0; i < MANY; i++) {
            due += scene.members[i].deadline_ns <= now_ns;
        }
        assert_int_equal(run_at(now_ns), due);
        all += due;
    }
    assert_int_equal(all, MANY);
    assert_int_equal(atomic_load(&scene.cq->deadline_ns), UINT64_MAX);
}

static void the_next_round_is_due_a_tick_after_the_earliest_timer(void **state)
{
    (void)state;
    enrol_all();
    set_deadline(&scene.members[5], 100 * (uint64_t)TICK_NS + 3);
    set_deadline(&scene.members[9], 200 * (uint64_t)TICK_NS);
    assert_int_equal(atomic_load(&scene.cq->deadline_ns), 101 * (uint64_t)TICK_NS);
    assert_int_equal(scene.wakes, 1);

    set_deadline(&scene.members[9], 50 * (uint64_t)TICK_NS);
    assert_int_equal(atomic_load(&scene.cq->deadline_ns), 51 * (uint64_t)TICK_NS);
    assert_int_equal(scene.wakes, 2);

    set_deadline(&scene.members[9], 300 * (uint64_t)TICK_NS);
    assert_int_equal(atomic_load(&scene.cq->deadline_ns), 101 * (uint64_t)TICK_NS);
    assert_int_equal(scene.wakes, 2);

    assert_int_equal(run_at(101 * (uint64_t)TICK_NS), 1);
    assert_int_equal(scene.members[5].calls, 1);
    assert_int_equal(atomic_load(&scene.cq->deadline_ns), 301 * (uint64_t)TICK_NS);
}

static void an_endpoint_that_is_always_late_is_called_once_in_a_round(void **state)
{
    (void)state;
    enrol_all();
    scene.members[0].next_ns = 1;
    set_deadline(&scene.members[0], 1);
    set_deadline(&scene.members[1], 2);

    assert_int_equal(run_at(2 * (uint64_t)TICK_NS), 2);
    assert_int_equal(scene.members[0].calls, 1);
    assert_int_equal(scene.members[1].calls, 1);
    assert_int_equal(run_at(4 * (uint64_t)TICK_NS), 1);
}

static void a_removed_endpoint_is_neither_called_nor_found(void **state)
{
    (void)state;
    uint64_t random = 2;
    enrol_all();
    for (size_t i = 0; i < MANY; i++) {
        scene.members[i].leaves = i % 5 == 0;
        set_deadline(&scene.members[i], pseudo_random(&random) % TICK_NS);
    }
    for (size_t i = 0; i < MANY; i += 3) {
        strike(&scene.members[i]);
    }
    unsigned staying = 0;
    for (size_t i = 0; i < MANY; i++) {
        staying += scene.members[i].enrolled;
    }

    assert_int_equal(run_at(2 * (uint64_t)TICK_NS), staying);

    for (size_t i = 0; i < MANY; i++) {
        struct member *member = &scene.members[i];
        assert_int_equal(member->enrolled, i % 3 != 0 && i % 5 != 0);
        assert_ptr_equal(rdmux_cq_endpoint(scene.cq, member->ep.id),
                         member->enrolled ? &member->ep : NULL);
    }
    assert_null(rdmux_cq_endpoint(scene.cq, FIRST_ID + MANY));
}

static void an_endpoint_without_memory_is_not_added(void **state)
{
    (void)state;
    scene.fake->allocations = 0;
    assert_int_equal(rdmux_cq_enrol(scene.cq, &scene.members[0].ep), RDMUX_NO_MEMORY);
    assert_null(rdmux_cq_endpoint(scene.cq, FIRST_ID));
    assert_true(rdmux_list_empty(&scene.cq->lists.eps));
    scene.fake->allocations = -1;
    enrol(&scene.members[0]);
    assert_ptr_equal(rdmux_cq_endpoint(scene.cq, FIRST_ID), &scene.members[0].ep);
}

int main(void)
{
#define SCENE(test) cmocka_unit_test_setup_teardown(test, open_scene, close_scene)
    const struct CMUnitTest tests[] = {
        SCENE(a_round_calls_the_due_endpoints_in_order_and_no_others),
        SCENE(the_next_round_is_due_a_tick_after_the_earliest_timer),
        SCENE(an_endpoint_that_is_always_late_is_called_once_in_a_round),
        SCENE(a_removed_endpoint_is_neither_called_nor_found),
        SCENE(an_endpoint_without_memory_is_not_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
