/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The scheduler of a shared receive queue's credits: order, shares, recalls. */
#include "providers/credit_scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { USERS = 3 };

/* The provider of the test: the receives of the queue, and the messages to each peer. */
static struct {
    struct rdmux_credit_scheduler scheduler;
    struct rdmux_credit_user users[USERS];
    struct rdmux_credits_given given[USERS];
    uint64_t receives; /* posted, used by no message */
    int told[USERS];   /* tell() at once */
    int recalled[USERS];
    int recalls;  /* calls of recall() */
    int order[8]; /* of the users told at once */
    int order_count;
} world;

static int index_of(const struct rdmux_credit_user *user)
{
    return (int)(user - world.users);
}

static bool lend(struct rdmux_credit_user *user, uint64_t waiting)
{
    return rdmux_credits_lend(&world.scheduler.pool, user->given, user->level, world.receives,
                              waiting) != 0;
}

static bool has_some(struct rdmux_credit_user *user)
{
    return rdmux_credits_window(user->given) != 0;
}

static void tell(struct rdmux_credit_user *user, bool at_once)
{
    if (at_once) {
        world.told[index_of(user)]++;
        world.order[world.order_count++] = index_of(user);
    }
    (void)rdmux_credits_tell(user->given, UINT64_MAX);
}

static void recall(struct rdmux_credit_user *user)
{
    world.recalls++;
    (void)rdmux_credits_withdraw(&world.scheduler.pool, user->given);
    if (rdmux_credits_outstanding(user->given) != 0 && rdmux_credit_begin_recall(user)) {
        world.recalled[index_of(user)]++;
    }
}

static const struct rdmux_credit_ops ops = {
    .lend = lend,
    .has_some = has_some,
    .tell = tell,
    .recall = recall,
};

static void make_world(uint64_t receives)
{
    memset(&world, 0, sizeof(world));
    world.receives = receives;
    rdmux_credit_scheduler_init(&world.scheduler, &ops);
    for (int i = 0; i < USERS; i++) {
        rdmux_credit_join(&world.scheduler, &world.users[i], &world.given[i]);
    }
}

static void ask(int user)
{
    rdmux_credit_asked(&world.scheduler, &world.users[user]);
}

static void give_back(int user)
{
    uint64_t count = rdmux_credits_outstanding(&world.given[user]);
    assert_true(rdmux_credits_return(&world.scheduler.pool, &world.given[user], count));
    rdmux_credit_answered(&world.scheduler, &world.users[user]);
}

static void a_peer_that_asks_gets_credits_at_once(void **state)
{
    (void)state;
    make_world(100);

    ask(1);

    assert_int_equal(world.told[1], 1);
    assert_int_equal(rdmux_credits_outstanding(&world.given[1]), RDMUX_CREDITS_LEVEL_FIRST);
    assert_int_equal(world.scheduler.pool.promised, RDMUX_CREDITS_LEVEL_FIRST);
    assert_false(world.users[1].is_asking);
    assert_int_equal(world.told[0] + world.told[2], 0);
}

static void peers_get_credits_in_the_order_of_their_requests(void **state)
{
    (void)state;
    static const int order[] = { 2, 0, 1 };
    make_world(0);
    for (int i = 0; i < USERS; i++) {
        ask(order[i]);
    }
    assert_int_equal(world.order_count, 0);

    world.receives = 3;
    rdmux_credit_serve(&world.scheduler);

    assert_int_equal(world.order_count, USERS);
    assert_memory_equal(world.order, order, sizeof(order));
    assert_int_equal(world.scheduler.pool.promised, 3); /* each got its share */
    assert_int_equal(world.scheduler.asking_count, 0);
}

static void unused_credits_are_recalled_from_all_others_once(void **state)
{
    (void)state;
    make_world(UINT64_C(2) * RDMUX_CREDITS_LEVEL_FIRST);
    ask(0);
    ask(1);
    assert_int_equal(world.recalled[0] + world.recalled[1], 0);

    ask(2);
    rdmux_credit_serve(&world.scheduler);

    assert_int_equal(world.recalled[0], 1);
    assert_int_equal(world.recalled[1], 1);
    assert_int_equal(world.told[2], 0);

    give_back(0);

    assert_int_equal(world.told[2], 1);
    assert_int_equal(world.users[0].level, 0);
    assert_false(world.users[0].is_recalling);
}

static void a_request_that_precedes_the_answer_to_a_recall_is_kept(void **state)
{
    (void)state;
    make_world(RDMUX_CREDITS_LEVEL_FIRST);
    ask(0);
    ask(1);
    assert_true(world.users[0].is_recalling);
    for (int i = 0; i < RDMUX_CREDITS_LEVEL_FIRST; i++) {
        assert_true(rdmux_credits_use_shared(&world.scheduler.pool, &world.given[0]));
        world.receives--;
    }

    ask(0);
    rdmux_credit_answered(&world.scheduler, &world.users[0]);
    assert_int_equal(world.users[0].level, RDMUX_CREDITS_LEVEL_FIRST);
    assert_true(world.users[0].is_asking);

    world.receives = 2;
    rdmux_credit_serve(&world.scheduler);
    assert_int_equal(world.told[1], 1);
    assert_int_equal(world.told[0], 2);
}

static void used_receives_are_replaced_while_no_peer_waits(void **state)
{
    (void)state;
    make_world(64);
    ask(0);

    assert_true(rdmux_credits_use_shared(&world.scheduler.pool, &world.given[0]));
    world.receives--;
    rdmux_credit_top_up(&world.scheduler, &world.users[0]);

    assert_int_equal(rdmux_credits_window(&world.given[0]), RDMUX_CREDITS_LEVEL_FIRST);
}

static void a_hungry_endpoint_gets_receives_posted_later(void **state)
{
    (void)state;
    make_world(RDMUX_CREDITS_LEVEL_FIRST);
    ask(0);
    assert_true(rdmux_credits_use_shared(&world.scheduler.pool, &world.given[0]));
    world.receives--;
    rdmux_credit_top_up(&world.scheduler, &world.users[0]);
    rdmux_credit_note_hungry(&world.scheduler, &world.users[0]);
    assert_int_equal(rdmux_credits_window(&world.given[0]), RDMUX_CREDITS_LEVEL_FIRST - 1);

    world.receives++;
    rdmux_credit_serve(&world.scheduler);

    assert_int_equal(rdmux_credits_window(&world.given[0]), RDMUX_CREDITS_LEVEL_FIRST);
    assert_false(rdmux_node_is_listed(&world.users[0].wanting));
}

static void an_endpoint_that_leaves_returns_all_its_credits(void **state)
{
    (void)state;
    make_world(RDMUX_CREDITS_LEVEL_FIRST);
    ask(0);
    ask(1);

    assert_int_equal(rdmux_credit_leave(&world.scheduler, &world.users[0]),
                     RDMUX_CREDITS_LEVEL_FIRST);
    rdmux_credit_serve(&world.scheduler);
    assert_int_equal(world.told[1], 1);

    assert_int_equal(rdmux_credit_leave(&world.scheduler, &world.users[1]),
                     RDMUX_CREDITS_LEVEL_FIRST);
    assert_int_equal(world.scheduler.pool.promised, 0);
    assert_int_equal(world.scheduler.asking_count, 0);
}

/* Receives are posted one by one while a peer waits, which costs the same with any number of
 * endpoints. */
static void only_endpoints_with_credits_are_asked_for_them_and_once(void **state)
{
    (void)state;
    make_world(RDMUX_CREDITS_LEVEL_FIRST);
    ask(0); /* it gets all of them */
    assert_int_equal(world.recalls, 0);

    ask(1);
    rdmux_credit_serve(&world.scheduler);
    rdmux_credit_serve(&world.scheduler);

    assert_int_equal(world.recalls, 1);
    assert_int_equal(world.recalled[0], 1);
    ask(2);
    assert_int_equal(world.recalls, 1);
    give_back(0);
    assert_int_equal(world.told[1], 1);
    assert_int_equal(world.told[2], 1);
}

/* ---------------------------------------------------------------------------------------- pauses */

static void a_paused_endpoint_gets_no_credits_and_holds_up_no_other(void **state)
{
    (void)state;
    make_world(0);
    ask(0);
    ask(1);
    rdmux_credit_pause(&world.scheduler, &world.users[0], true);
    ask(0);

    world.receives = 1;
    rdmux_credit_serve(&world.scheduler);

    assert_int_equal(world.told[0], 0);
    assert_int_equal(world.told[1], 1);
    assert_int_equal(world.scheduler.asking_count, 0);
    assert_int_equal(rdmux_credits_window(&world.given[0]), 0);
}

static void a_question_of_a_paused_endpoint_is_answered_when_it_continues(void **state)
{
    (void)state;
    for (int when = 0; when < 2; when++) { /* the peer asks before the pause, or during it */
        make_world(0);
        if (when == 0) {
            ask(0);
        }
        rdmux_credit_pause(&world.scheduler, &world.users[0], true);
        if (when == 1) {
            ask(0);
        }
        world.receives = 8;
        rdmux_credit_serve(&world.scheduler);
        assert_int_equal(world.told[0], 0);

        rdmux_credit_pause(&world.scheduler, &world.users[0], false);

        assert_int_equal(world.told[0], 1);
        assert_int_equal(rdmux_credits_window(&world.given[0]), RDMUX_CREDITS_LEVEL_FIRST);
    }
}

static void unused_credits_of_a_paused_endpoint_go_to_those_that_ask(void **state)
{
    (void)state;
    make_world(RDMUX_CREDITS_LEVEL_FIRST);
    ask(0);

    rdmux_credit_pause(&world.scheduler, &world.users[0], true);
    rdmux_credit_pause(&world.scheduler, &world.users[0], true);

    assert_int_equal(world.recalled[0], 1);
    ask(1);
    give_back(0);
    assert_int_equal(world.told[1], 1);
    assert_int_equal(world.scheduler.pool.promised, RDMUX_CREDITS_LEVEL_FIRST);
}

static void a_paused_endpoint_gets_none_for_the_credits_that_it_uses(void **state)
{
    (void)state;
    make_world(64);
    ask(0);
    rdmux_credit_pause(&world.scheduler, &world.users[0], true);
    ask(0);

    assert_true(rdmux_credits_use_shared(&world.scheduler.pool, &world.given[0]));
    world.receives--;
    rdmux_credit_answered(&world.scheduler, &world.users[0]); /* the others crossed the answer */
    rdmux_credit_top_up(&world.scheduler, &world.users[0]);
    rdmux_credit_note_hungry(&world.scheduler, &world.users[0]);
    rdmux_credit_serve(&world.scheduler);

    assert_int_equal(rdmux_credits_window(&world.given[0]), RDMUX_CREDITS_LEVEL_FIRST - 1);
    assert_false(rdmux_node_is_listed(&world.users[0].wanting));
}

/* The messages that used its credits are still on their way, so it has some by our count. */
static void a_question_whose_answer_a_pause_withdraws_is_kept(void **state)
{
    (void)state;
    make_world(64);
    ask(0);
    ask(0); /* the answer is set aside, and told: twice as many */
    assert_int_equal(rdmux_credits_window(&world.given[0]), 2 * RDMUX_CREDITS_LEVEL_FIRST);
    world.given[0].granted -= RDMUX_CREDITS_LEVEL_FIRST; /* not told yet */

    rdmux_credit_pause(&world.scheduler, &world.users[0], true);
    assert_int_equal(rdmux_credits_window(&world.given[0]), RDMUX_CREDITS_LEVEL_FIRST);
    for (int i = 0; i < RDMUX_CREDITS_LEVEL_FIRST; i++) {
        assert_true(rdmux_credits_use_shared(&world.scheduler.pool, &world.given[0]));
        world.receives--;
    }
    rdmux_credit_answered(&world.scheduler, &world.users[0]);
    world.told[0] = 0;

    rdmux_credit_pause(&world.scheduler, &world.users[0], false);

    assert_int_equal(world.told[0], 1);
}

static void an_endpoint_that_has_left_does_not_ask_when_its_pause_ends(void **state)
{
    (void)state;
    make_world(0);
    ask(0);
    rdmux_credit_pause(&world.scheduler, &world.users[0], true);
    (void)rdmux_credit_leave(&world.scheduler, &world.users[0]);

    rdmux_credit_pause(&world.scheduler, &world.users[0], false);

    assert_false(rdmux_node_is_listed(&world.users[0].wanting));
    assert_int_equal(world.scheduler.asking_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_asks_gets_credits_at_once),
        cmocka_unit_test(peers_get_credits_in_the_order_of_their_requests),
        cmocka_unit_test(unused_credits_are_recalled_from_all_others_once),
        cmocka_unit_test(a_request_that_precedes_the_answer_to_a_recall_is_kept),
        cmocka_unit_test(used_receives_are_replaced_while_no_peer_waits),
        cmocka_unit_test(a_hungry_endpoint_gets_receives_posted_later),
        cmocka_unit_test(an_endpoint_that_leaves_returns_all_its_credits),
        cmocka_unit_test(only_endpoints_with_credits_are_asked_for_them_and_once),
        cmocka_unit_test(a_paused_endpoint_gets_no_credits_and_holds_up_no_other),
        cmocka_unit_test(a_question_of_a_paused_endpoint_is_answered_when_it_continues),
        cmocka_unit_test(unused_credits_of_a_paused_endpoint_go_to_those_that_ask),
        cmocka_unit_test(a_paused_endpoint_gets_none_for_the_credits_that_it_uses),
        cmocka_unit_test(a_question_whose_answer_a_pause_withdraws_is_kept),
        cmocka_unit_test(an_endpoint_that_has_left_does_not_ask_when_its_pause_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
