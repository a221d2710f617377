/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux_ep_move() between the cqs of several threads. */
#include "tests/unit/change_cq_scene.h"

#include <pthread.h>
#include <stdatomic.h>

struct sleeper {
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    bool sleeps_on_descriptor;
};

static void *sleep_until_moved(void *argument)
{
    const struct sleeper *sleeper = argument;
    if (sleeper->sleeps_on_descriptor) {
        struct rdmux_wc wc;
        while (rdmux_cq_poll(sleeper->cq, &wc, 1) == 0) {
            if (rdmux_cq_arm(sleeper->cq) == RDMUX_OK) {
                struct pollfd fd = { .fd = rdmux_cq_fd(sleeper->cq), .events = POLLIN };
                assert_int_equal(poll(&fd, 1, PATIENT_MS), 1);
            }
        }
        assert_int_equal(wc.opcode, RDMUX_WC_MOVED);
        assert_ptr_equal(wc.ep, sleeper->ep);
    } else {
        expect_moved(sleeper->cq, sleeper->ep);
    }
    return NULL;
}

static void a_move_wakes_the_owner_of_the_new_cq(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct move move;
        open_move(&move, paths[i]);
        for (int round = 0; round < 20; round++) {
            struct rdmux_cq *from = round % 2 == 0 ? move.pair.cq_b : move.to;
            struct sleeper sleeper = { .cq = round % 2 == 0 ? move.to : move.pair.cq_b,
                                       .ep = move.pair.b,
                                       .sleeps_on_descriptor = round % 4 < 2 };
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, sleep_until_moved, &sleeper), 0);
            if (round >= 10) {
                pause_ms(2); /* it sleeps by now; else it may be anywhere */
            }
            check_message(move.pair.a, move.pair.cq_a, move.pair.b, from, (uint32_t)round);
            CHECK_OK(rdmux_ep_move(move.pair.b, sleeper.cq));
            assert_int_equal(pthread_join(thread, NULL), 0);
        }
        close_move(&move);
    }
}

/* Two threads with a cq each send the endpoint to each other, and echo what they receive. */
enum { TURN = 25, ECHOES = 4000, SLOTS = 16 };

struct shards {
    struct rdmux_ep *ep;
    struct rdmux_cq *cqs[2];
    uint64_t words[SLOTS];
    /* The owner's alone, handed over by the move. */
    uint64_t received;
    uint64_t sent;
    _Atomic bool is_over;
};

struct shard {
    struct shards *shards;
    size_t index;
};

static void echo(struct shards *shards, const struct rdmux_wc *wc)
{
    assert_int_equal(wc->status, RDMUX_OK);
    assert_ptr_equal(wc->ep, shards->ep);
    if (wc->opcode == RDMUX_WC_SEND) {
        assert_ptr_equal(wc->context, CONTEXT(shards->sent));
        shards->sent++;
        return;
    }
    assert_int_equal(wc->opcode, RDMUX_WC_RECV);
    assert_ptr_equal(wc->context, CONTEXT(shards->received));
    uint64_t *word = &shards->words[shards->received % SLOTS];
    assert_int_equal(*word, shards->received);
    CHECK_OK(
        rdmux_send(shards->ep, word, sizeof(*word), NULL, CONTEXT(shards->received), RDMUX_INLINE));
    CHECK_OK(rdmux_recv(shards->ep, word, sizeof(*word), NULL, CONTEXT(shards->received + SLOTS)));
    shards->received++;
}

static void *run_shard(void *argument)
{
    const struct shard *shard = argument;
    struct shards *shards = shard->shards;
    struct rdmux_cq *cq = shards->cqs[shard->index];
    uint64_t turn = 0;
    while (!atomic_load(&shards->is_over)) {
        struct rdmux_wc wcs[3];
        size_t count = rdmux_cq_poll(cq, wcs, 3);
        for (size_t i = 0; i < count; i++) {
            if (wcs[i].opcode == RDMUX_WC_MOVED) {
                turn = TURN;
            } else {
                echo(shards, &wcs[i]);
            }
        }
        if (turn != 0 && count != 0 && --turn == 0) {
            if (shards->sent == ECHOES) {
                atomic_store(&shards->is_over, true);
            } else {
                CHECK_OK(rdmux_ep_move(shards->ep, shards->cqs[1 - shard->index]));
            }
        } else if (turn != 0 && shards->sent == ECHOES) {
            atomic_store(&shards->is_over, true);
        }
    }
    return NULL;
}

static void no_entry_is_lost_or_twice_while_threads_move_the_endpoint(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct move move;
        open_move(&move, paths[i]);
        struct pair *pair = &move.pair;
        static struct shards shards;
        memset(&shards, 0, sizeof(shards));
        shards.ep = pair->b;
        shards.cqs[0] = pair->cq_b;
        shards.cqs[1] = move.to;
        for (uint64_t n = 0; n < SLOTS; n++) {
            CHECK_OK(rdmux_recv(pair->b, &shards.words[n], sizeof(uint64_t), NULL, CONTEXT(n)));
        }
        struct shard halves[2] = { { &shards, 0 }, { &shards, 1 } };
        pthread_t threads[2];
        CHECK_OK(rdmux_ep_move(pair->b, move.to));
        for (size_t n = 0; n < 2; n++) {
            assert_int_equal(pthread_create(&threads[n], NULL, run_shard, &halves[n]), 0);
        }
        uint64_t answers[SLOTS];
        for (uint64_t n = 0; n < SLOTS; n++) {
            CHECK_OK(rdmux_recv(pair->a, &answers[n], sizeof(uint64_t), NULL, CONTEXT(n)));
        }
        for (uint64_t sent = 0, got = 0; got < ECHOES;) {
            for (; sent < ECHOES && sent < got + SLOTS; sent++) {
                CHECK_OK(rdmux_send(pair->a, &sent, sizeof(sent), NULL, NULL,
                                    RDMUX_INLINE | RDMUX_UNSIGNALED));
            }
            struct rdmux_wc wc = expect_entry(pair->cq_a, RDMUX_WC_RECV, RDMUX_OK);
            assert_ptr_equal(wc.context, CONTEXT(got));
            assert_int_equal(answers[got % SLOTS], got);
            CHECK_OK(rdmux_recv(pair->a, &answers[got % SLOTS], sizeof(uint64_t), NULL,
                                CONTEXT(got + SLOTS)));
            got++;
        }
        for (size_t n = 0; n < 2; n++) {
            assert_int_equal(pthread_join(threads[n], NULL), 0);
        }
        assert_int_equal(shards.received, ECHOES);
        assert_int_equal(shards.sent, ECHOES);
        close_move(&move);
    }
}

/* Revocations mail the cq that the endpoint is leaving. */
static void *revoke_often(void *argument)
{
    struct rdmux_mr *mr = argument;
    for (int i = 0; i < 60; i++) {
        struct rdmux_token token;
        CHECK_OK(rdmux_mr_export(mr, &token));
        CHECK_OK(rdmux_mr_revoke(mr));
    }
    return NULL;
}

static void revocations_meet_moves(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct move move;
        struct rdmux_mr *mr = NULL;
        struct rdmux_token token;
        pthread_t thread;
        open_move(&move, paths[i]);
        struct pair *pair = &move.pair;
        CHECK_OK(rdmux_mr_alloc(pair->fabric_b, 64, RDMUX_ACCESS_REMOTE_WRITE, &mr));
        CHECK_OK(rdmux_mr_export(mr, &token));
        assert_int_equal(pthread_create(&thread, NULL, revoke_often, mr), 0);
        struct rdmux_cq *at = pair->cq_b;
        for (int round = 0; round < 60; round++) {
            struct rdmux_cq *to = at == pair->cq_b ? move.to : pair->cq_b;
            struct rdmux_remote *remote = NULL;
            CHECK_OK(rdmux_mr_export(mr, &token));
            enum rdmux_status status = rdmux_remote_import(pair->a, &token, PATIENT_MS, &remote);
            (void)status; /* the token may be revoked already */
            CHECK_OK(rdmux_ep_move(pair->b, to));
            expect_moved(to, pair->b);
            rdmux_remote_close(remote);
            at = to;
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        struct rdmux_remote *last = import_region(pair->a, mr);
        CHECK_OK(rdmux_mr_revoke(mr));
        uint64_t word = 0;
        CHECK_STATUS(rdmux_write(pair->a, &word, sizeof(word), NULL, last, 0, NULL, 0),
                     RDMUX_DENIED);
        check_message(pair->a, pair->cq_a, pair->b, at, 9);
        assert_int_equal(pair->cq_b->revocations, 0);
        assert_int_equal(move.to->revocations, 0);
        rdmux_mr_deregister(mr);
        if (at == pair->cq_b) {
            close_move(&move);
        } else {
            struct rdmux_cq *other = pair->cq_b;
            pair->cq_b = move.to;
            move.to = other;
            close_move(&move);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_move_wakes_the_owner_of_the_new_cq),
        cmocka_unit_test(no_entry_is_lost_or_twice_while_threads_move_the_endpoint),
        cmocka_unit_test(revocations_meet_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
