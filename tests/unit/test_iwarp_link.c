/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The stages of a connection, driven by events in orders that no network brings. */
#include "iwarp/iwarp_link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static enum iwarp_action step(struct iwarp_link *link, enum iwarp_event event)
{
    return rdmux_iwarp_link_step(link, event);
}

static void the_connector_dials_connects_and_ends(void **state)
{
    (void)state;
    struct iwarp_link link = { .stage = IWARP_STAGE_NEW };
    assert_int_equal(step(&link, IWARP_EVENT_DIAL), IWARP_ACTION_FIND_ADDRESS);
    assert_int_equal(step(&link, IWARP_EVENT_ADDRESS_FOUND), IWARP_ACTION_FIND_ROUTE);
    assert_int_equal(step(&link, IWARP_EVENT_ROUTE_FOUND), IWARP_ACTION_CONNECT);
    assert_int_equal(step(&link, IWARP_EVENT_ESTABLISHED), IWARP_ACTION_TELL_UP);
    assert_int_equal(link.stage, IWARP_STAGE_UP);
    assert_int_equal(step(&link, IWARP_EVENT_DISCONNECTED), IWARP_ACTION_TELL_END);
    assert_int_equal(step(&link, IWARP_EVENT_DISCONNECTED), IWARP_ACTION_NONE);
}

static void the_acceptor_takes_one_connection_and_rejects_the_next(void **state)
{
    (void)state;
    struct iwarp_link link = { .stage = IWARP_STAGE_NEW };
    assert_int_equal(step(&link, IWARP_EVENT_REQUESTED), IWARP_ACTION_REJECT);
    assert_int_equal(step(&link, IWARP_EVENT_AWAIT), IWARP_ACTION_NONE);
    assert_int_equal(step(&link, IWARP_EVENT_REQUESTED), IWARP_ACTION_ACCEPT);
    assert_int_equal(step(&link, IWARP_EVENT_REQUESTED), IWARP_ACTION_REJECT);
    assert_int_equal(link.stage, IWARP_STAGE_ACCEPTING);
    assert_int_equal(step(&link, IWARP_EVENT_ESTABLISHED), IWARP_ACTION_TELL_UP);
    assert_int_equal(step(&link, IWARP_EVENT_REQUESTED), IWARP_ACTION_REJECT);
    assert_int_equal(link.stage, IWARP_STAGE_UP);
}

static void an_address_that_does_not_answer_is_tried_again_and_finally_given_up(void **state)
{
    (void)state;
    struct iwarp_link link = { .stage = IWARP_STAGE_NEW };
    (void)step(&link, IWARP_EVENT_DIAL);
    for (int i = 1; i < IWARP_ADDRESS_TRIES; i++) {
        assert_int_equal(step(&link, IWARP_EVENT_ADDRESS_FAILED), IWARP_ACTION_FIND_ADDRESS);
        assert_int_equal(link.stage, IWARP_STAGE_FINDING_ADDRESS);
    }
    assert_int_equal(step(&link, IWARP_EVENT_ADDRESS_FAILED), IWARP_ACTION_FAIL);
    assert_int_equal(link.stage, IWARP_STAGE_OVER);
}

static void an_attempt_with_an_occupied_port_begins_anew_a_bounded_number_of_times(void **state)
{
    (void)state;
    struct iwarp_link link = { .stage = IWARP_STAGE_NEW };
    enum iwarp_action action = step(&link, IWARP_EVENT_DIAL);
    int tries = 0;
    while (action == IWARP_ACTION_FIND_ADDRESS) {
        tries++;
        assert_true(tries <= IWARP_ADDRESS_TRIES);
        assert_int_equal(step(&link, IWARP_EVENT_ADDRESS_FOUND), IWARP_ACTION_FIND_ROUTE);
        assert_int_equal(step(&link, IWARP_EVENT_ROUTE_FOUND), IWARP_ACTION_CONNECT);
        action = step(&link, IWARP_EVENT_PORT_TAKEN);
    }
    assert_int_equal(action, IWARP_ACTION_FAIL);
    assert_int_equal(tries, IWARP_ADDRESS_TRIES);
}

/* For events in any order: a connection fails or ends at most once, only rejections follow, and an
 * action belongs to its stage. */
static void every_event_in_every_stage_is_harmless(void **state)
{
    (void)state;
    for (int stage = IWARP_STAGE_NEW; stage < IWARP_STAGES; stage++) {
        for (int event = 0; event < IWARP_EVENTS; event++) {
            struct iwarp_link link = { .stage = (enum iwarp_stage)stage };
            enum iwarp_action action = step(&link, (enum iwarp_event)event);
            bool is_over = link.stage == IWARP_STAGE_OVER;
            switch (action) {
            case IWARP_ACTION_FIND_ADDRESS:
                assert_int_equal(link.stage, IWARP_STAGE_FINDING_ADDRESS);
                break;
            case IWARP_ACTION_FIND_ROUTE:
                assert_int_equal(link.stage, IWARP_STAGE_FINDING_ROUTE);
                break;
            case IWARP_ACTION_CONNECT:
                assert_int_equal(link.stage, IWARP_STAGE_CONNECTING);
                break;
            case IWARP_ACTION_ACCEPT:
                assert_int_equal(link.stage, IWARP_STAGE_ACCEPTING);
                break;
            case IWARP_ACTION_TELL_UP:
                assert_int_equal(link.stage, IWARP_STAGE_UP);
                break;
            case IWARP_ACTION_TELL_END:
                assert_int_equal(stage, IWARP_STAGE_UP);
                assert_true(is_over);
                break;
            case IWARP_ACTION_FAIL:
                assert_true(is_over && stage != IWARP_STAGE_UP && stage != IWARP_STAGE_OVER);
                break;
            case IWARP_ACTION_REJECT:
                assert_int_equal(event, IWARP_EVENT_REQUESTED);
                assert_int_equal(link.stage, stage);
                break;
            case IWARP_ACTION_NONE:
                assert_true(link.stage == (enum iwarp_stage)stage || event == IWARP_EVENT_AWAIT);
                break;
            }
        }
    }
}

static void a_fatal_event_ends_an_attempt_in_every_stage(void **state)
{
    (void)state;
    static const enum iwarp_event ends[] = { IWARP_EVENT_CALL_FAILED, IWARP_EVENT_DEVICE_REMOVED };
    for (int stage = IWARP_STAGE_FINDING_ADDRESS; stage <= IWARP_STAGE_ACCEPTING; stage++) {
        for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
            struct iwarp_link link = { .stage = (enum iwarp_stage)stage };
            assert_int_equal(step(&link, ends[i]), IWARP_ACTION_FAIL);
        }
    }
    static const enum iwarp_event refusals[] = {
        IWARP_EVENT_REFUSED,
        IWARP_EVENT_UNREACHABLE,
        IWARP_EVENT_DISCONNECTED,
    };
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct iwarp_link connecting = { .stage = IWARP_STAGE_CONNECTING };
        struct iwarp_link accepting = { .stage = IWARP_STAGE_ACCEPTING };
        assert_int_equal(step(&connecting, refusals[i]), IWARP_ACTION_FAIL);
        assert_int_equal(step(&accepting, refusals[i]), IWARP_ACTION_FAIL);
    }
    struct iwarp_link routing = { .stage = IWARP_STAGE_FINDING_ROUTE };
    assert_int_equal(step(&routing, IWARP_EVENT_ROUTE_FAILED), IWARP_ACTION_FAIL);
}

static void every_stage_and_event_has_a_text(void **state)
{
    (void)state;
    for (int stage = IWARP_STAGE_NEW; stage < IWARP_STAGES; stage++) {
        assert_string_not_equal(rdmux_iwarp_stage_text((enum iwarp_stage)stage), "?");
    }
    for (int event = 0; event < IWARP_EVENTS; event++) {
        assert_string_not_equal(rdmux_iwarp_event_text((enum iwarp_event)event), "?");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_connector_dials_connects_and_ends),
        cmocka_unit_test(the_acceptor_takes_one_connection_and_rejects_the_next),
        cmocka_unit_test(an_address_that_does_not_answer_is_tried_again_and_finally_given_up),
        cmocka_unit_test(an_attempt_with_an_occupied_port_begins_anew_a_bounded_number_of_times),
        cmocka_unit_test(every_event_in_every_stage_is_harmless),
        cmocka_unit_test(a_fatal_event_ends_an_attempt_in_every_stage),
        cmocka_unit_test(every_stage_and_event_has_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
