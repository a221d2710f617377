/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Credits of one endpoint, and between two ends over two streams without order between them. */
#include "iwarp/iwarp_credit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void post(struct iwarp_credit *credit, uint64_t count)
{
    credit->given.posted += count;
}

/* Passes the credit message of `from` to `to`. Returns false if there is none. */
static bool talk(struct iwarp_credit *from, struct iwarp_credit *to, struct iwarp_credit_news *news)
{
    struct iwarp_side message = { 0 };
    if (!rdmux_iwarp_credit_tell(from, &message)) {
        return false;
    }
    assert_int_equal(rdmux_iwarp_credit_hear(to, &message, news), RDMUX_OK);
    return true;
}

static void nothing_may_be_sent_before_the_first_grant(void **state)
{
    (void)state;
    struct iwarp_credit sender = { 0 };
    struct iwarp_credit receiver = { 0 };
    struct iwarp_credit_news news = { 0 };
    assert_false(iwarp_credit_spend(&sender));
    assert_false(talk(&receiver, &sender, &news));
    post(&receiver, 2);
    assert_true(talk(&receiver, &sender, &news));
    assert_int_equal(news.granted, 2);
    assert_true(iwarp_credit_spend(&sender));
    assert_true(iwarp_credit_spend(&sender));
    assert_false(iwarp_credit_spend(&sender));
}

static void a_header_carries_credits_and_an_older_number_takes_none_back(void **state)
{
    (void)state;
    struct iwarp_credit sender = { 0 };
    struct iwarp_credit receiver = { 0 };
    post(&receiver, 3);
    uint32_t first = iwarp_credit_grant(&receiver);
    post(&receiver, 4);
    uint32_t second = iwarp_credit_grant(&receiver);
    assert_false(iwarp_credit_is_due(&receiver));
    assert_int_equal(iwarp_credit_granted(&sender, second), 7);
    assert_int_equal(iwarp_credit_granted(&sender, first), 0);
    assert_int_equal(iwarp_credit_left(&sender), 7);
}

static void an_impossible_grant_of_a_peer_is_refused(void **state)
{
    (void)state;
    struct iwarp_credit sender = { 0 };
    assert_int_equal(iwarp_credit_granted(&sender, RDMUX_CREDITS_MAX), RDMUX_CREDITS_MAX);
    assert_int_equal(iwarp_credit_granted(&sender, RDMUX_CREDITS_MAX + 1U), -1);
    assert_int_equal(iwarp_credit_left(&sender), RDMUX_CREDITS_MAX);
}

static void counts_may_wrap_at_32_bits(void **state)
{
    (void)state;
    struct iwarp_credit sender = { 0 };
    struct iwarp_credit receiver = { 0 };
    const uint64_t start = UINT32_MAX - 5ULL;
    sender.granted = sender.spent = start;
    receiver.given = (struct rdmux_credits_given){ start, start, start };
    for (int i = 0; i < 20; i++) {
        post(&receiver, 1);
        assert_int_equal(iwarp_credit_granted(&sender, iwarp_credit_grant(&receiver)), 1);
        assert_true(iwarp_credit_spend(&sender));
        assert_true(rdmux_credits_use(&receiver.given));
    }
    assert_int_equal(iwarp_credit_left(&sender), 0);
}

static void messages_in_flight_never_exceed_the_receives_for_them(void **state)
{
    (void)state;
    struct iwarp_credit talker = { 0 };
    struct iwarp_side message;
    unsigned sent = 0;
    for (int i = 0; i < 100; i++) {
        talker.has_news = true;
        sent += rdmux_iwarp_credit_tell(&talker, &message) ? 1U : 0U;
    }
    assert_int_equal(sent, IWARP_UNSEEN_MAX);
    assert_true(talker.has_news); /* and it is not forgotten */

    /* An acknowledgment makes room again. */
    struct iwarp_credit_news news = { 0 };
    const struct iwarp_side seen = { .kind = IWARP_SIDE_SEEN, .seen = 5 };
    assert_int_equal(rdmux_iwarp_credit_hear(&talker, &seen, &news), RDMUX_OK);
    assert_true(rdmux_iwarp_credit_tell(&talker, &message));
    assert_int_equal(message.kind, IWARP_SIDE_CREDITS);
}

static void an_acknowledgment_is_sent_by_itself_when_half_the_room_is_used(void **state)
{
    (void)state;
    struct iwarp_credit one = { 0 };
    struct iwarp_credit other = { 0 };
    struct iwarp_credit_news news = { 0 };
    struct iwarp_side message;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < IWARP_UNSEEN_MAX / 2; i++) {
            assert_false(rdmux_iwarp_credit_tell(&other, &message));
            one.has_news = true;
            assert_true(talk(&one, &other, &news));
        }
        assert_true(rdmux_iwarp_credit_tell(&other, &message));
        assert_int_equal(message.kind, IWARP_SIDE_SEEN);
        assert_int_equal(rdmux_iwarp_credit_hear(&one, &message, &news), RDMUX_OK);
        assert_false(rdmux_iwarp_credit_tell(&one, &message)); /* none for an acknowledgment */
    }
}

static void a_peer_that_sends_or_acknowledges_too_much_is_refused(void **state)
{
    (void)state;
    struct iwarp_credit credit = { 0 };
    struct iwarp_credit_news news = { 0 };
    const struct iwarp_side unsent = { .kind = IWARP_SIDE_SEEN, .seen = 1 };
    const struct iwarp_side backwards = { .kind = IWARP_SIDE_SEEN, .seen = UINT32_MAX };
    const struct iwarp_side one = { .kind = IWARP_SIDE_CREDITS };
    assert_int_equal(rdmux_iwarp_credit_hear(&credit, &unsent, &news), RDMUX_PROTOCOL);
    assert_int_equal(rdmux_iwarp_credit_hear(&credit, &backwards, &news), RDMUX_PROTOCOL);
    for (int i = 0; i < IWARP_UNSEEN_MAX; i++) {
        assert_int_equal(rdmux_iwarp_credit_hear(&credit, &one, &news), RDMUX_OK);
    }
    assert_int_equal(rdmux_iwarp_credit_hear(&credit, &one, &news), RDMUX_PROTOCOL);
}

static void requests_and_recalls_of_credits_are_sent_once(void **state)
{
    (void)state;
    struct iwarp_credit sender = { 0 };
    struct iwarp_credit receiver = { 0 };
    struct iwarp_credit_news news = { 0 };
    iwarp_credit_ask(&sender);
    assert_true(talk(&sender, &receiver, &news));
    assert_true(news.is_question);
    sender.has_news = true;
    assert_true(talk(&sender, &receiver, &news));
    assert_false(news.is_question);

    post(&receiver, 4);
    assert_true(talk(&receiver, &sender, &news));
    assert_true(iwarp_credit_spend(&sender));
    iwarp_credit_recall(&receiver);
    assert_true(talk(&receiver, &sender, &news));
    assert_true(news.is_recall);
    iwarp_credit_return(&sender);
    assert_false(iwarp_credit_spend(&sender));
    assert_true(talk(&sender, &receiver, &news));
    assert_true(news.is_answer);
    assert_int_equal(news.returned, 3);
}

static void a_request_that_crossed_a_credit_does_not_count(void **state)
{
    (void)state;
    struct iwarp_credit sender = { 0 };
    struct iwarp_credit receiver = { 0 };
    struct iwarp_credit_news news = { 0 };
    struct iwarp_side question;
    iwarp_credit_ask(&sender);
    assert_true(rdmux_iwarp_credit_tell(&sender, &question));
    post(&receiver, 1);
    (void)iwarp_credit_grant(&receiver); /* in the header of a message */
    assert_int_equal(rdmux_iwarp_credit_hear(&receiver, &question, &news), RDMUX_OK);
    assert_false(news.is_question);
}

/* After a return the numbers on the wire go on from where they were. */
static void returned_credits_can_be_granted_again(void **state)
{
    (void)state;
    struct iwarp_credit sender = { 0 };
    struct iwarp_credit receiver = { 0 };
    struct rdmux_credits_pool pool = { 0 };
    struct iwarp_credit_news news = { 0 };
    for (uint32_t round = 0; round < 100; round++) {
        uint64_t lent = rdmux_credits_lend(&pool, &receiver.given, 4, 10, 1);
        assert_int_equal(lent, 4);
        receiver.has_news = true;
        assert_true(talk(&receiver, &sender, &news));
        assert_int_equal(news.granted, 4);
        assert_true(iwarp_credit_spend(&sender));
        assert_true(rdmux_credits_use_shared(&pool, &receiver.given));
        iwarp_credit_recall(&receiver);
        assert_true(talk(&receiver, &sender, &news));
        iwarp_credit_return(&sender);
        assert_true(talk(&sender, &receiver, &news));
        assert_true(rdmux_credits_return(&pool, &receiver.given, news.returned));
        assert_int_equal(pool.promised, 0);
    }
}

/* ------------------------------------------------------------------------------ two streams */

enum { STREAM_MAX = 64, RECEIVES = 5, ROUNDS = 200000 };

/* Data in flight in one direction: headers in one stream, side-channel messages in another. */
struct way {
    uint32_t headers[STREAM_MAX];
    size_t header_count;
    struct iwarp_side side[STREAM_MAX];
    size_t side_count;
    size_t counted; /* the acknowledged ones of these */
};

struct end {
    struct iwarp_credit credit;
    uint64_t free_receives;
    uint64_t sent;
    uint64_t received;
};

static uint32_t random_below(uint64_t *state, uint32_t limit)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33) % limit;
}

static void send_one(struct end *end, struct way *way)
{
    if (way->header_count < STREAM_MAX && iwarp_credit_spend(&end->credit)) {
        way->headers[way->header_count++] = iwarp_credit_grant(&end->credit);
        end->sent++;
    }
}

static void say_one(struct end *end, struct way *way)
{
    if (way->side_count < STREAM_MAX &&
        rdmux_iwarp_credit_tell(&end->credit, &way->side[way->side_count])) {
        way->counted += way->side[way->side_count++].kind == IWARP_SIDE_CREDITS ? 1 : 0;
        assert_true(way->counted <= IWARP_UNSEEN_MAX);
        assert_true(way->side_count - way->counted <= IWARP_SEEN_MAX);
    }
}

static void receive_one(struct end *end, struct way *way)
{
    if (way->header_count == 0) {
        return;
    }
    assert_true(end->free_receives > 0); /* or the connection would have ended */
    end->free_receives--;
    end->received++;
    assert_true(rdmux_credits_use(&end->credit.given));
    assert_true(iwarp_credit_granted(&end->credit, way->headers[0]) >= 0);
    memmove(way->headers, way->headers + 1, --way->header_count * sizeof(way->headers[0]));
}

static void hear_one(struct end *end, struct way *way)
{
    struct iwarp_credit_news news = { 0 };
    if (way->side_count == 0) {
        return;
    }
    way->counted -= way->side[0].kind == IWARP_SIDE_CREDITS ? 1 : 0;
    assert_int_equal(rdmux_iwarp_credit_hear(&end->credit, &way->side[0], &news), RDMUX_OK);
    memmove(way->side, way->side + 1, --way->side_count * sizeof(way->side[0]));
}

static void post_one(struct end *end)
{
    if (end->free_receives < RECEIVES) {
        end->free_receives++;
        post(&end->credit, 1);
    }
}

/* Both ends send and post receives at random times, and the two streams are slow at random. Each
 * message finds a receive, the side channel's receives suffice, and there is no deadlock. */
static void every_message_meets_a_receive_and_traffic_never_stalls(void **state)
{
    (void)state;
    uint64_t random = 1;
    struct end ends[2] = { 0 };
    struct way ways[2] = { 0 }; /* from 0, from 1 */
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t who = random_below(&random, 2);
        switch (random_below(&random, 5)) {
        case 0:
            send_one(&ends[who], &ways[who]);
            break;
        case 1:
            say_one(&ends[who], &ways[who]);
            break;
        case 2:
            receive_one(&ends[who], &ways[1 - who]);
            break;
        case 3:
            hear_one(&ends[who], &ways[1 - who]);
            break;
        default:
            post_one(&ends[who]);
            break;
        }
    }
    for (int who = 0; who < 2; who++) {
        assert_true(ends[who].received > ROUNDS / 50);
        assert_true(ends[who].sent - ends[1 - who].received == ways[who].header_count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_may_be_sent_before_the_first_grant),
        cmocka_unit_test(a_header_carries_credits_and_an_older_number_takes_none_back),
        cmocka_unit_test(an_impossible_grant_of_a_peer_is_refused),
        cmocka_unit_test(counts_may_wrap_at_32_bits),
        cmocka_unit_test(messages_in_flight_never_exceed_the_receives_for_them),
        cmocka_unit_test(an_acknowledgment_is_sent_by_itself_when_half_the_room_is_used),
        cmocka_unit_test(a_peer_that_sends_or_acknowledges_too_much_is_refused),
        cmocka_unit_test(requests_and_recalls_of_credits_are_sent_once),
        cmocka_unit_test(a_request_that_crossed_a_credit_does_not_count),
        cmocka_unit_test(returned_credits_can_be_granted_again),
        cmocka_unit_test(every_message_meets_a_receive_and_traffic_never_stalls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
