/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The tcp provider without the core: messages, credits, shared receives, one-sided requests. */
#include "api/base/pieces.h"
#include "tcp_fallback/tcp_completion.h"
#include "tcp_fallback/tcp_credit.h"
#include "tcp_fallback/tcp_endpoint.h"
#include "tcp_fallback/tcp_frame.h"
#include "tcp_fallback/tcp_hot.h"
#include "tcp_fallback/tcp_lane.h"
#include "tcp_fallback/tcp_send.h"
#include "tests/unit/tcp_pair.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

/* ------------------------------------------------------------------------------------- messages */

static const uint64_t sizes[] = { 0,     1,      8,      4095,    4096,    4097,    16384,  65536,
                                  70001, 262143, 262144, 1048576, 1048577, 3000001, 5 << 20 };

static void messages_of_any_size_arrive_in_order(void **state)
{
    (void)state;
    for (enum wiring wiring = 0; wiring < WIRED_COUNT; wiring++) {
        struct pair pair = pair_create(wiring);
        uint8_t *from[COUNT_OF(sizes)];
        uint8_t *to[COUNT_OF(sizes)];
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            from[i] = malloc(sizes[i] + 1);
            to[i] = malloc(sizes[i] + 1);
            fill(from[i], sizes[i], i);
            receive(pair.b, to[i], sizes[i]);
            uint32_t op = i % 2 ? RDMUX_OP_SEND_IMM : RDMUX_OP_SEND;
            uint32_t flags = i % 3 ? 0 : RDMUX_PLACED;
            queue(pair.a, op, from[i], sizes[i], -1, 0, flags)->imm = (uint32_t)i;
        }

        RUN_UNTIL(pair.a, pair.b, pair.b->core.arrived_count == COUNT_OF(sizes));
        RUN_UNTIL(pair.a, pair.b, pair.a->requests[COUNT_OF(sizes) - 1].done);

        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            const struct rdmux_request *arrived = pair.b->core.arrived[i];
            assert_ptr_equal(arrived, &pair.b->receives[i]);
            assert_int_equal(arrived->status, RDMUX_OK);
            assert_int_equal(arrived->opcode, RDMUX_WC_RECV);
            assert_true(arrived->length == sizes[i]);
            assert_int_equal(arrived->wc_flags, i % 2 ? RDMUX_WC_HAS_IMM : 0);
            assert_int_equal(arrived->imm, i % 2 ? i : 0);
            check(to[i], sizes[i], i);
            assert_int_equal(pair.a->requests[i].done, 1);
            assert_int_equal(pair.a->requests[i].status, RDMUX_OK);
            free(from[i]);
            free(to[i]);
        }
        assert_int_equal(pair.a->core.failed, RDMUX_OK);
        assert_int_equal(pair.b->core.failed, RDMUX_OK);
        struct rdmux_provider_counts counts;
        assert_int_equal(ops->ep_quiesce(pair.b->ep, &counts), RDMUX_OK);
        assert_true(counts.received == COUNT_OF(sizes));
        pair_destroy(pair);
    }
}

static void an_8_byte_ping_pong_is_one_send_and_one_recv_on_each_side(void **state)
{
    (void)state;
    enum { ROUNDS = 200, DEPTH = 8 };
    struct pair pair = pair_create(WIRED_ONE);
    uint64_t ping = 1;
    uint64_t at_a[DEPTH];
    uint64_t at_b[DEPTH];
    for (int i = 0; i < DEPTH; i++) {
        receive(pair.a, &at_a[i], 8);
        receive(pair.b, &at_b[i], 8);
    }
    for (int i = 0; i < 2 * TCP_SPINNING; i++) {
        step_ends(pair.a, pair.b);
    }
    uint64_t a_before = pair.a->ep->system_calls;
    uint64_t b_before = pair.b->ep->system_calls;

    for (uint32_t i = 1; i <= ROUNDS; i++) {
        queue(pair.a, RDMUX_OP_SEND, &ping, 8, -1, 0, 0);
        post_queued(pair.a);
        (void)ops->poll(pair.b->cq, BUDGET);
        assert_int_equal(pair.b->core.arrived_count, i);
        receive(pair.b, &at_b[i % DEPTH], 8);
        queue(pair.b, RDMUX_OP_SEND, &ping, 8, -1, 0, 0);
        post_queued(pair.b);
        (void)ops->poll(pair.a->cq, BUDGET);
        assert_int_equal(pair.a->core.arrived_count, i);
        receive(pair.a, &at_a[i % DEPTH], 8);
    }

    assert_true(pair.a->ep->system_calls - a_before == UINT64_C(2) * ROUNDS);
    assert_true(pair.b->ep->system_calls - b_before == UINT64_C(2) * ROUNDS);
    pair_destroy(pair);
}

/* Each byte alone, and all bytes from it on: pieces before the place are skipped, empty ones,
 * too. */
static void the_pieces_of_a_list_from_an_offset_are_its_bytes_from_there(void **state)
{
    (void)state;
    uint8_t bytes[16];
    struct rdmux_provider_sge sges[] = {
        { bytes, 3, NULL }, { bytes + 3, 0, NULL }, { bytes + 3, 5, NULL }, { bytes + 8, 8, NULL }
    };
    struct rdmux_request request = { .sges = sges, .sge_count = 4, .length = sizeof(bytes) };
    fill(bytes, sizeof(bytes), 6);
    for (uint64_t from = 0; from < sizeof(bytes); from++) {
        for (uint64_t length = 1; length <= sizeof(bytes) - from; length++) {
            struct iovec iov[COUNT_OF(sges)];
            uint8_t got[sizeof(bytes)];
            size_t at = 0;

            int count = (int)rdmux_pieces(&request, from, length, iov);

            for (int i = 0; i < count; i++) {
                assert_true(at + iov[i].iov_len <= length);
                memcpy(got + at, iov[i].iov_base, iov[i].iov_len);
                at += iov[i].iov_len;
            }
            assert_int_equal(at, length);
            assert_memory_equal(got, bytes + from, length);
        }
    }
}

static void a_batch_is_one_system_call(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    uint8_t target[64 * 64] = { 0 };
    uint8_t from[64];
    (void)fake_region(0, target, sizeof(target), ALL_ACCESS);
    import_region(pair.b, pair.a, 0);
    for (uint64_t i = 0; i < 64; i++) {
        from[i] = (uint8_t)i;
        queue(pair.a, RDMUX_OP_WRITE, &from[i], 1, 0, i * 64, i == 63 ? RDMUX_PLACED : 0);
    }
    for (int i = 0; i < 3; i++) {
        (void)ops->poll(pair.a->cq, BUDGET);
    }
    uint64_t before = pair.a->ep->system_calls;

    post_queued(pair.a);

    assert_int_equal(pair.a->started, 64);
    assert_true(pair.a->ep->system_calls - before == 1);
    before = pair.b->ep->system_calls;
    (void)ops->poll(pair.b->cq, BUDGET);
    assert_true(pair.b->ep->system_calls - before == 2); /* one recv, one acknowledgment */
    (void)ops->poll(pair.a->cq, BUDGET);
    assert_int_equal(pair.a->requests[63].done, 1);
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(target[i * 64], i);
    }
    pair_destroy(pair);
}

static void requests_held_back_by_more_are_sent_by_the_doorbell_or_the_next_poll(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    uint64_t value = 7;
    uint64_t got[2] = { 0 };
    size_t posted = 0;
    receive(pair.b, &got[0], 8);
    receive(pair.b, &got[1], 8);
    for (int i = 0; i < 10; i++) {
        step_ends(pair.a, pair.b);
    }
    uint64_t before = pair.a->ep->system_calls;
    (void)queue(pair.a, RDMUX_OP_SEND, &value, 8, -1, 0, 0);
    (void)queue(pair.a, RDMUX_OP_SEND, &value, 8, -1, 0, 0);

    assert_int_equal(ops->post(pair.a->ep, &pair.a->requests[0], 1, RDMUX_POST_MORE, &posted),
                     RDMUX_OK);
    assert_true(pair.a->ep->system_calls == before);
    ops->doorbell(pair.a->ep);
    assert_true(pair.a->ep->system_calls == before + 1);
    assert_int_equal(ops->post(pair.a->ep, &pair.a->requests[1], 1, RDMUX_POST_MORE, &posted),
                     RDMUX_OK);
    pair.a->started = 2;
    (void)ops->poll(pair.a->cq, BUDGET);
    RUN_UNTIL(pair.b, NULL, pair.b->core.arrived_count == 2);

    assert_true(got[0] == 7 && got[1] == 7);
    pair_destroy(pair);
}

/* -------------------------------------------------------------------------------------- credits */

static void a_send_waits_for_a_receive_and_answers_do_not_wait_behind_it(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    uint8_t at_a[64];
    uint8_t at_b[64];
    static uint8_t message[TCP_EARLY_MAX + 1]; /* too long to go without a credit */
    static uint8_t arrived[TCP_EARLY_MAX + 1];
    uint64_t result = 0;
    fill(message, sizeof(message), 5);
    memset(at_a, 3, sizeof(at_a));
    memset(at_b, 4, sizeof(at_b));
    (void)fake_region(0, at_a, sizeof(at_a), ALL_ACCESS);
    import_region(pair.a, pair.b, 0);
    struct rdmux_request *send = queue(pair.a, RDMUX_OP_SEND, message, sizeof(message), -1, 0, 0);
    struct rdmux_request *read = queue(pair.b, RDMUX_OP_READ, &result, 8, 0, 0, 0);

    RUN_UNTIL(pair.a, pair.b, read->done);
    assert_int_equal(send->done, 0);
    assert_int_equal(pair.a->started, 0);
    assert_true(result == 0x0303030303030303);
    receive(pair.b, arrived, sizeof(arrived));
    RUN_UNTIL(pair.a, pair.b, pair.b->core.arrived_count == 1);

    check(arrived, sizeof(arrived), 5);
    pair_destroy(pair);
}

static void a_stream_of_messages_needs_only_a_single_receive(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    uint64_t values[500];
    uint64_t slot = 0;
    for (uint64_t i = 0; i < COUNT_OF(values); i++) {
        values[i] = i;
        queue(pair.a, RDMUX_OP_SEND, &values[i], 8, -1, 0, 0);
    }

    for (uint32_t i = 0; i < COUNT_OF(values); i++) {
        receive(pair.b, &slot, 8);
        RUN_UNTIL(pair.a, pair.b, pair.b->core.arrived_count == i + 1);
        assert_true(slot == i);
    }

    pair_destroy(pair);
}

/* ------------------------------------------------------------------------------ shared receives */

static void endpoints_share_receives_and_idle_ones_return_credits(void **state)
{
    (void)state;
    enum { PEERS = 5, ROUNDS = 40 };
    struct rdmux_srq *core_srq = calloc(1, sizeof(*core_srq));
    struct tcp_srq *srq = calloc(1, ops->srq_size);
    struct end *a[PEERS];
    struct end *b[PEERS];
    uint64_t values[PEERS];
    uint64_t slots[FAKE_RECEIVES_MAX];
    uint32_t total = 0;
    assert_non_null(core_srq);
    assert_non_null(srq);
    for (int i = 0; i < PEERS; i++) {
        a[i] = end_create(RDMUX_ROLE_CONNECT, i > 0 ? a[0]->cq : NULL);
        b[i] = end_create(RDMUX_ROLE_ACCEPT, i > 0 ? b[0]->cq : NULL);
        if (i == 0) {
            srq->base.cq = b[0]->cq;
            assert_int_equal(ops->srq_open(&srq->base, 64, 1), RDMUX_OK);
        }
        b[i]->core.srq = core_srq;
        b[i]->attr.srq = &srq->base;
        connect_ends(a[i], b[i], WIRED_ONE);
    }
    for (uint32_t receives = 1; receives <= 8; receives *= 2) {
        for (uint32_t i = 0; i < receives; i++) {
            receive(b[0], &slots[core_srq->receives.posted], 8);
        }
        assert_int_equal(ops->srq_post_recv(&srq->base, NULL, receives), RDMUX_OK);
        for (int round = 0; round < ROUNDS; round++) {
            /* One peer sends, then another, so that the first still holds the credits it was
             * given. */
            int who = round % PEERS;
            values[who] = (uint64_t)round;
            queue(a[who], RDMUX_OP_SEND, &values[who], 8, -1, 0, 0);
            total++;
            for (int t = 0; t < TURNS_MAX && core_srq->receives.taken < total; t++) {
                for (int i = 0; i < PEERS; i++) {
                    post_queued(a[i]);
                }
                step_ends(a[0], b[0]);
            }
            assert_int_equal(core_srq->receives.taken, total);
            assert_true(slots[total - 1] == (uint64_t)round);
            receive(b[0], &slots[core_srq->receives.posted], 8);
            assert_int_equal(ops->srq_post_recv(&srq->base, NULL, 1), RDMUX_OK);
            assert_true(srq->scheduler.pool.promised <=
                        core_srq->receives.posted - core_srq->receives.taken);
        }
    }
    for (int i = PEERS - 1; i >= 0; i--) {
        end_destroy(a[i], i == 0);
        end_destroy(b[i], i == 0);
    }
    assert_true(srq->scheduler.pool.promised == 0);
    ops->srq_close(&srq->base);
    free(srq);
    free(core_srq);
    assert_int_equal(fake_fabric.allocations, 0);
}

static void shared_receives_reach_every_endpoint_in_any_order_of_events(void **state)
{
    (void)state;
    enum { PEERS = 4, EACH = 60, SEEDS = 30 };
    static uint64_t slots[FAKE_RECEIVES_MAX];
    static uint64_t value = 1;
    for (uint64_t run = 1; run <= SEEDS; run++) {
        struct rdmux_srq *core_srq = calloc(1, sizeof(*core_srq));
        struct tcp_srq *srq = calloc(1, ops->srq_size);
        struct end *a[PEERS];
        struct end *b[PEERS];
        uint64_t seed = run * 7919;
        uint32_t credits = (uint32_t)(run % 6) + 1; /* receives at a time */
        for (int i = 0; i < PEERS; i++) {
            a[i] = end_create(RDMUX_ROLE_CONNECT, i > 1 ? a[i - 2]->cq : NULL);
            b[i] = end_create(RDMUX_ROLE_ACCEPT, i > 0 ? b[0]->cq : NULL);
            if (i == 0) {
                srq->base.cq = b[0]->cq;
                assert_int_equal(ops->srq_open(&srq->base, 64, 1), RDMUX_OK);
            }
            b[i]->core.srq = core_srq;
            b[i]->attr.srq = &srq->base;
            connect_ends(a[i], b[i], i == 0 ? WIRED_UNIX : WIRED_ONE);
            for (int n = 0; n < EACH; n++) {
                uint32_t op = n % 5 == 4 ? RDMUX_OP_WRITE : RDMUX_OP_SEND;
                bool flush = op == RDMUX_OP_WRITE;
                queue(a[i], op, &value, flush ? 0 : 8, -1, 0, flush ? RDMUX_PLACED : 0);
            }
        }
        uint32_t total = PEERS * (EACH - EACH / 5);
        for (int t = 0; t < TURNS_MAX && core_srq->receives.taken < total; t++) {
            uint64_t dice = next_random(&seed) % (PEERS + 3);
            if (dice < PEERS) {
                post_queued(a[dice]);
                (void)ops->poll(a[dice]->cq, BUDGET);
            } else if (dice == PEERS) {
                (void)ops->poll(b[0]->cq, BUDGET);
            } else if (dice == PEERS + 1) {
                (void)ops->arm(b[0]->cq);
                (void)ops->arm(a[next_random(&seed) % PEERS]->cq);
            } else if (core_srq->receives.posted - core_srq->receives.taken < credits) {
                receive(b[0], &slots[core_srq->receives.posted], 8);
                assert_int_equal(ops->srq_post_recv(&srq->base, NULL, 1), RDMUX_OK);
            }
            assert_true(srq->scheduler.pool.promised <=
                        core_srq->receives.posted - core_srq->receives.taken);
        }
        if (core_srq->receives.taken != total) {
            fail_msg("run %d: %u of %u messages came", (int)run, core_srq->receives.taken, total);
        }
        for (int i = PEERS - 1; i >= 0; i--) {
            int fds[2] = { a[i]->attr.shared_socket, b[i]->attr.shared_socket };
            end_destroy(a[i], i < 2);
            end_destroy(b[i], i == 0);
            for (int n = 0; n < 2 && fds[n] >= 0; n++) {
                (void)close(fds[n]);
            }
        }
        assert_true(srq->scheduler.pool.promised == 0);
        ops->srq_close(&srq->base);
        free(srq);
        free(core_srq);
        assert_int_equal(fake_fabric.allocations, 0);
    }
}

/* ------------------------------------------------------------------------------------ one-sided */

static void writes_reads_and_atomics_of_any_size_have_the_right_effect(void **state)
{
    (void)state;
    enum { SIZE = 6 << 20 };
    uint8_t *target = aligned_alloc(64, SIZE);
    uint8_t *from = malloc(SIZE);
    uint8_t *back = malloc(SIZE);
    for (enum wiring wiring = 0; wiring < WIRED_COUNT; wiring++) {
        struct pair pair = pair_create(wiring);
        memset(target, 0, SIZE);
        (void)fake_region(0, target, SIZE, ALL_ACCESS);
        import_region(pair.b, pair.a, 0);
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            uint64_t result = 0;
            uint64_t swapped = 0;
            uint64_t word = 0;
            uint64_t slot = 0;
            fill(from, sizes[i], i + 5);
            memset(back, 0, SIZE);
            uint32_t first = pair.a->queued;
            uint32_t arrived = pair.b->core.arrived_count;
            receive(pair.b, &slot, 8);
            queue(pair.a, RDMUX_OP_WRITE, from, sizes[i], 0, 8, 0);
            queue(pair.a, RDMUX_OP_READ, back, sizes[i], 0, 8, 0);
            queue(pair.a, RDMUX_OP_WRITE_IMM, from, sizes[i], 0, 8, RDMUX_PLACED)->imm = 77;
            queue(pair.a, RDMUX_OP_WRITE, &word, 8, 0, 0, 0);
            queue(pair.a, RDMUX_OP_FETCH_ADD, &result, 8, 0, 0, 0)->operand = 41;
            struct rdmux_request *swap = queue(pair.a, RDMUX_OP_COMPARE_SWAP, &swapped, 8, 0, 0, 0);
            swap->expected = 41;
            swap->operand = 1000;
            queue(pair.a, RDMUX_OP_WRITE, NULL, 0, -1, 0, RDMUX_PLACED);

            RUN_UNTIL(pair.a, pair.b, pair.a->requests[pair.a->queued - 1].done && swap->done);

            for (uint32_t r = first; r < pair.a->queued; r++) {
                assert_int_equal(pair.a->requests[r].done, 1);
                assert_int_equal(pair.a->requests[r].status, RDMUX_OK);
            }
            check(target + 8, sizes[i], i + 5);
            check(back, sizes[i], i + 5);
            assert_true(result == 0 && swapped == 41);
            memcpy(&word, target, 8);
            assert_true(word == 1000);
            assert_int_equal(pair.b->core.arrived_count, arrived + 1);
            const struct rdmux_request *notice = pair.b->core.arrived[arrived];
            assert_int_equal(notice->opcode, RDMUX_WC_RECV_WRITE_IMM);
            assert_int_equal(notice->imm, 77);
            assert_true(notice->length == sizes[i]);
            assert_true(slot == 0);
        }
        pair_destroy(pair);
    }
    free(target);
    free(from);
    free(back);
}

static void a_random_mix_in_both_directions_keeps_every_promise(void **state)
{
    (void)state;
    enum { SIZE = 4 << 20, COUNT = 600, MAX_LENGTH = 1 << 20 };
    for (enum wiring wiring = 0; wiring < WIRED_COUNT; wiring++) {
        struct pair pair = pair_create(wiring);
        struct end *ends[2] = { pair.a, pair.b };
        uint8_t *memory[2];
        uint8_t *model[2];
        uint8_t *bytes[2];
        uint8_t *results[2];
        uint8_t *expected[2];
        uint8_t *into[2];
        uint64_t seed = 88172645463325252ULL + (uint64_t)wiring;
        for (int i = 0; i < 2; i++) {
            memory[i] = aligned_alloc(64, SIZE);
            model[i] = malloc(SIZE);
            bytes[i] = malloc(SIZE);
            results[i] = calloc(COUNT, 64);
            expected[i] = calloc(COUNT, 64);
            into[i] = calloc(COUNT, 64);
            memset(memory[i], 0, SIZE);
            memset(model[i], 0, SIZE);
            for (size_t at = 0; at < SIZE; at++) {
                bytes[i][at] = (uint8_t)(next_random(&seed) >> 11);
            }
            (void)fake_region((size_t)i, memory[i], SIZE, ALL_ACCESS);
        }
        import_region(pair.b, pair.a, 1);
        import_region(pair.a, pair.b, 0);
        uint32_t messages[2] = { 0 };
        for (int n = 0; n < COUNT; n++) {
            int i = (int)(next_random(&seed) & 1);
            struct end *end = ends[i];
            int r = 1 - i;
            uint64_t kind = next_random(&seed) % 6;
            uint64_t length = next_random(&seed) % (next_random(&seed) % 4 ? 3000 : MAX_LENGTH);
            uint64_t offset = next_random(&seed) % (SIZE - MAX_LENGTH);
            uint64_t source = next_random(&seed) % (SIZE - MAX_LENGTH);
            uint64_t index = end->queued;
            uint32_t placed = next_random(&seed) % 4 ? 0 : RDMUX_PLACED;
            uint64_t value = 0;
            if (kind == 0) {
                length %= 65;
                queue(end, RDMUX_OP_SEND, bytes[i] + source, length, -1, 0, placed);
                receive(ends[r], into[r] + 64 * (size_t)messages[r], 64);
                messages[r]++;
            } else if (kind == 1) {
                queue(end, RDMUX_OP_WRITE, bytes[i] + source, length, r, offset, placed);
                memcpy(model[r] + offset, bytes[i] + source, length);
            } else if (kind == 2) {
                queue(end, RDMUX_OP_WRITE_IMM, bytes[i] + source, length, r, offset, placed);
                memcpy(model[r] + offset, bytes[i] + source, length);
                receive(ends[r], into[r] + 64 * (size_t)messages[r], 64);
                messages[r]++;
            } else if (kind == 3) {
                length %= 65;
                queue(end, RDMUX_OP_READ, results[i] + 64 * index, length, r, offset, 0);
                memcpy(expected[i] + 64 * index, model[r] + offset, length);
            } else {
                offset &= ~(uint64_t)7;
                uint32_t op = kind == 4 ? RDMUX_OP_FETCH_ADD : RDMUX_OP_COMPARE_SWAP;
                memcpy(&value, model[r] + offset, 8);
                memcpy(expected[i] + 64 * index, &value, 8);
                struct rdmux_request *request = queue(end, op, results[i] + 64 * index, 8, r,
                                                      offset, 0);
                request->operand = 12345;
                request->expected = value;
                value = kind == 4 ? value + 12345 : 12345;
                memcpy(model[r] + offset, &value, 8);
            }
            /* A read and a later write of this end may overlap: rule 4 requires a fence. */
            if (kind >= 3) {
                RUN_UNTIL(pair.a, pair.b, end->requests[index].done);
            }
            if (next_random(&seed) % 3 == 0) {
                step_ends(pair.a, pair.b);
            }
        }
        for (int i = 0; i < 2; i++) {
            queue(ends[i], RDMUX_OP_WRITE, NULL, 0, -1, 0, RDMUX_PLACED);
        }

        RUN_UNTIL(pair.a, pair.b,
                  pair.a->started == pair.a->queued && pair.b->started == pair.b->queued &&
                      pair.a->requests[pair.a->queued - 1].done &&
                      pair.b->requests[pair.b->queued - 1].done);

        for (int i = 0; i < 2; i++) {
            assert_int_equal(ends[i]->core.failed, RDMUX_OK);
            assert_int_equal(ends[i]->core.arrived_count, messages[i]);
            assert_memory_equal(memory[i], model[i], SIZE);
            assert_memory_equal(results[i], expected[i], (size_t)COUNT * 64);
            for (uint32_t n = 0; n < ends[i]->queued; n++) {
                assert_int_equal(ends[i]->requests[n].done, 1);
                assert_int_equal(ends[i]->requests[n].status, RDMUX_OK);
            }
            free(memory[i]);
            free(model[i]);
            free(bytes[i]);
            free(results[i]);
            free(expected[i]);
            free(into[i]);
        }
        pair_destroy(pair);
    }
}

static void more_reads_than_may_be_under_way_wait_their_turn(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20, COUNT = 100 };
    uint8_t *target = malloc(SIZE);
    uint8_t *back = malloc((size_t)COUNT * 70000);
    struct pair pair = pair_create(WIRED_ONE);
    fill(target, SIZE, 9);
    (void)fake_region(0, target, SIZE, ALL_ACCESS);
    import_region(pair.b, pair.a, 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        queue(pair.a, RDMUX_OP_READ, back + i * 70000, 70000, 0, i, 0);
    }

    RUN_UNTIL(pair.a, pair.b, pair.a->requests[COUNT - 1].done);

    for (uint64_t i = 0; i < COUNT; i++) {
        assert_memory_equal(back + i * 70000, target + i, 70000);
    }
    pair_destroy(pair);
    free(target);
    free(back);
}

/* The socket is full, a message waits for room, and an answer waits that is too long to be
 * copied. */
static void requests_that_wait_for_room_precede_a_long_answer(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20, MESSAGES = 24, ANSWER = 100000 };
    uint8_t *bytes = malloc(SIZE);
    uint8_t *arrived = malloc(SIZE);
    uint8_t *back = malloc(ANSWER);
    struct pair pair = pair_create(WIRED_ONE);
    fill(bytes, SIZE, 3);
    (void)fake_region(0, bytes, SIZE, ALL_ACCESS);
    import_region(pair.a, pair.b, 0);
    for (int i = 0; i < MESSAGES; i++) {
        receive(pair.b, arrived, SIZE);
    }
    for (int i = 0; i < 10; i++) {
        step_ends(pair.a, pair.b); /* a learns of the receives */
    }
    for (int i = 0; i < MESSAGES; i++) {
        queue(pair.a, RDMUX_OP_SEND, bytes, SIZE, -1, 0, 0);
    }
    while (!pair.a->held) {
        step_ends(pair.a, NULL);
    }
    struct rdmux_request *read = queue(pair.b, RDMUX_OP_READ, back, ANSWER, 0, 0, 0);
    post_queued(pair.b);
    step_ends(pair.a, NULL);

    RUN_UNTIL(pair.a, pair.b, read->done && pair.b->core.arrived_count == MESSAGES);

    assert_memory_equal(back, bytes, ANSWER);
    assert_memory_equal(arrived, bytes, SIZE);
    pair_destroy(pair);
    free(bytes);
    free(arrived);
    free(back);
}

/* A new session waits for the other end, which may take its time. */
static void a_connecting_socket_wakes_for_the_event_it_waits_for(void **state)
{
    uint8_t description[TCP_DESCRIPTION_SIZE];
    uint8_t join[RDMUX_JOIN_SIZE + 1];
    (void)state;
    struct end *end = end_create(RDMUX_ROLE_CONNECT, NULL);
    int listener = listen_on_loopback(&end->address);
    end->attr.peer_address = (const struct sockaddr *)&end->address;
    end->attr.peer_address_length = sizeof(struct sockaddr_in);
    end_open(end);
    rdmux_tcp_description_encode(
        &(struct tcp_description){ .sockets = 1, .answers = 32, .encrypted = 1 }, description);
    assert_int_equal(ops->ep_connect(end->ep, description, sizeof(description)), RDMUX_IN_PROGRESS);
    int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(peer >= 0);
    struct pollfd look = { .fd = ops->fd(end->cq), .events = POLLIN };
    while (recv(peer, join, sizeof(join), MSG_PEEK | MSG_DONTWAIT) != sizeof(join)) {
        assert_int_equal(ops->ep_connect(end->ep, NULL, 0), RDMUX_IN_PROGRESS);
    }

    assert_int_equal(ops->arm(end->cq), RDMUX_OK);
    assert_int_equal(poll(&look, 1, 0), 0); /* nothing to do */
    assert_int_equal(send(peer, "!", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(poll(&look, 1, 1000), 1);

    assert_true(ops->poll(end->cq, BUDGET) > 0);
    assert_int_equal(ops->ep_connect(end->ep, NULL, 0), RDMUX_OK);
    end_destroy(end, true);
    assert_int_equal(close(peer), 0);
    assert_int_equal(close(listener), 0);
}

/* Polls with a small budget, then sleeps on the descriptor, but never while the stream has read
 * ahead. */
static void bytes_read_ahead_wake_the_caller(void **state)
{
    (void)state;
    enum { LENGTH = 65536, SMALL = 40 };
    uint8_t *from = malloc(LENGTH);
    uint8_t *to = calloc(1, LENGTH);
    uint8_t words[SMALL] = { 0 };
    fill(from, LENGTH, 1);
    for (enum wiring wiring = WIRED_UNIX; wiring <= WIRED_ONE; wiring++) {
        for (size_t budget = 1; budget < 8; budget++) {
            struct pair pair = pair_create(wiring);
            receive(pair.b, to, LENGTH);
            for (size_t i = 0; i < SMALL; i++) {
                receive(pair.b, &words[i], 1);
            }
            for (int i = 0; i < 10; i++) {
                step_ends(pair.a, pair.b); /* a learns of the receives */
            }
            queue(pair.a, RDMUX_OP_SEND, from, LENGTH, -1, 0, 0);
            for (size_t i = 0; i < SMALL; i++) {
                queue(pair.a, RDMUX_OP_SEND, from, 1, -1, 0, 0);
            }
            rdmux_tcp_cool(rdmux_tcp_ep(pair.b->ep)); /* only epoll signals it */

            for (int i = 0; i < TURNS_MAX && pair.a->started < pair.a->queued; i++) {
                post_queued(pair.a);
                (void)ops->poll(pair.a->cq, BUDGET);
                (void)ops->poll(pair.b->cq, budget);
                rdmux_tcp_cool(rdmux_tcp_ep(pair.b->ep));
            }
            (void)ops->poll(pair.a->cq, BUDGET);

            for (int sleeps = 0; pair.b->core.arrived_count < SMALL + 1; sleeps++) {
                if (ops->arm(pair.b->cq) == RDMUX_OK) {
                    struct pollfd look = { .fd = ops->fd(pair.b->cq), .events = POLLIN };
                    if (poll(&look, 1, 0) != 1) {
                        fail_msg("wiring %d, budget %zu: it sleeps forever with %u messages",
                                 (int)wiring, budget, pair.b->core.arrived_count);
                    }
                }
                (void)ops->poll(pair.b->cq, budget);
                rdmux_tcp_cool(rdmux_tcp_ep(pair.b->ep));
                assert_true(sleeps < TURNS_MAX);
            }
            check(to, LENGTH, 1);
            pair_destroy(pair);
        }
    }
    free(from);
    free(to);
}

/* Striped frames in a row: a stream reads the shares of the second with those of the first. */
static void a_share_that_was_read_ahead_is_not_waited_for(void **state)
{
    (void)state;
    enum { LENGTH = 256 << 10, COUNT = 6 };
    uint8_t *from = malloc(LENGTH);
    uint8_t *to = calloc(COUNT, LENGTH);
    struct pair pair = pair_create(WIRED_FOUR);
    fill(from, LENGTH, 1);
    for (size_t i = 0; i < COUNT; i++) {
        receive(pair.b, to + i * LENGTH, LENGTH);
    }
    for (int i = 0; i < 10; i++) {
        step_ends(pair.a, pair.b);
    }
    for (size_t i = 0; i < COUNT; i++) {
        queue(pair.a, RDMUX_OP_SEND, from, LENGTH, -1, 0, 0);
    }

    for (int turns = 0; pair.b->core.arrived_count < COUNT; turns++) {
        post_queued(pair.a);
        size_t did = ops->poll(pair.a->cq, BUDGET);
        if (ops->arm(pair.b->cq) == RDMUX_OK && did == 0 && ops->arm(pair.a->cq) == RDMUX_OK) {
            struct pollfd look[2] = { { .fd = ops->fd(pair.b->cq), .events = POLLIN },
                                      { .fd = ops->fd(pair.a->cq), .events = POLLIN } };
            if (poll(look, 2, 0) < 1) {
                fail_msg("both sleep forever with %u messages", pair.b->core.arrived_count);
            }
        }
        (void)ops->poll(pair.b->cq, 1);
        rdmux_tcp_cool(rdmux_tcp_ep(pair.b->ep));
        assert_true(turns < TURNS_MAX);
    }

    for (size_t i = 0; i < COUNT; i++) {
        check(to + i * LENGTH, LENGTH, 1);
    }
    pair_destroy(pair);
    free(from);
    free(to);
}

static ssize_t send_when_full(struct tcp_lane *lane, const void *bytes, size_t size)
{
    (void)lane;
    (void)bytes;
    (void)size;
    errno = EAGAIN;
    return -1;
}

static ssize_t send_list_when_full(struct tcp_lane *lane, struct iovec *iov, int count)
{
    (void)iov;
    (void)count;
    return send_when_full(lane, NULL, 0);
}

/* Makes the socket take no bytes until its stream is restored. Returns the stream to restore. */
static struct tcp_stream fill_socket(struct end *end, uint32_t index)
{
    struct tcp_lane *lane = rdmux_tcp_lane(rdmux_tcp_ep(end->ep), index);
    struct tcp_stream before = lane->stream;
    lane->stream.send = send_when_full;
    lane->stream.send_list = send_list_when_full;
    return before;
}

/* One share of a striped message is missing, so the endpoint reads nothing else. Room in the socket
 * that its own message waits for still wakes it, whichever of the two came first, and whether the
 * arm came before or after. */
static void room_in_a_socket_wakes_a_side_that_waits_to_send_a_share(void **state)
{
    (void)state;
    enum { LENGTH = 256 << 10, SOCKETS = 4 };
    uint8_t *from = malloc(LENGTH);
    uint8_t *to = calloc(2, LENGTH);
    fill(from, LENGTH, 1);
    for (uint32_t which = 0; which < 3 * SOCKETS; which++) {
        const uint32_t full = which / 3;
        const bool armed_before = which % 3 == 0;
        const bool full_before = which % 3 == 1;
        struct pair pair = pair_create(WIRED_FOUR);
        struct tcp_ep *ep = rdmux_tcp_ep(pair.a->ep);
        struct pollfd look = { .fd = ops->fd(pair.a->cq), .events = POLLIN };
        receive(pair.a, to, LENGTH);
        receive(pair.b, to + LENGTH, LENGTH);
        for (int i = 0; i < 10; i++) {
            step_ends(pair.a, pair.b);
        }
        struct tcp_stream whole = fill_socket(pair.b, 1);
        struct tcp_stream of_a = fill_socket(pair.a, full);
        if (full_before) {
            queue(pair.a, RDMUX_OP_SEND, from, LENGTH, -1, 0, 0);
            post_queued(pair.a);
            (void)ops->poll(pair.a->cq, BUDGET);
        }
        queue(pair.b, RDMUX_OP_SEND, from, LENGTH, -1, 0, 0);
        RUN_UNTIL(pair.b, pair.a, ep->in.is_paused);
        if (armed_before) {
            while (ops->arm(pair.a->cq) != RDMUX_OK) {
                (void)ops->poll(pair.a->cq, BUDGET);
            }
        }
        if (!full_before) {
            queue(pair.a, RDMUX_OP_SEND, from, LENGTH, -1, 0, 0);
            post_queued(pair.a);
        }
        while (!armed_before && ops->arm(pair.a->cq) != RDMUX_OK) {
            (void)ops->poll(pair.a->cq, BUDGET);
        }
        assert_true(ep->in.is_paused);
        assert_true(rdmux_tcp_lane(ep, full)->is_blocked);
        assert_int_equal(ep->lane0.events & EPOLLIN, 0); /* else unread bytes wake the cq */

        rdmux_tcp_lane(ep, full)->stream = of_a; /* the kernel's socket had room all the time */
        if (poll(&look, 1, 0) != 1) {
            fail_msg("case %u: room in socket %u does not wake", which, full);
        }

        RUN_UNTIL(pair.b, pair.a, pair.b->core.arrived_count == 1);
        rdmux_tcp_lane(rdmux_tcp_ep(pair.b->ep), 1)->stream = whole;
        RUN_UNTIL(pair.b, pair.a, pair.a->core.arrived_count == 1);
        check(to, LENGTH, 1);
        check(to + LENGTH, LENGTH, 1);
        pair_destroy(pair);
    }
    free(from);
    free(to);
}

/* Socket and batch are full: a question waits. Then credits are recalled, and there is room. */
static void a_recall_keeps_a_credit_request_that_found_no_room(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_ONE);
    struct tcp_ep *ep = rdmux_tcp_ep(pair.a->ep);
    struct tcp_frame frame;
    size_t used = 0;
    step_ends(pair.a, pair.b);
    struct tcp_stream before = fill_socket(pair.a, 0);
    ep->waits |= TCP_WAIT_CREDIT;
    ep->is_asked = true;
    ep->out.is_asking = true;
    ep->out.is_giving_back = true;

    rdmux_tcp_pump(ep);

    const uint8_t *bytes = ep->out.batch + ep->out.head;
    const size_t size = ep->out.tail - ep->out.head;
    assert_int_equal(rdmux_tcp_frame_decode(bytes, size, &frame, &used), RDMUX_OK);
    assert_int_equal(frame.kind, TCP_RETURN);
    assert_int_equal(rdmux_tcp_frame_decode(bytes + used, size - used, &frame, &used), RDMUX_OK);
    assert_int_equal(frame.kind, TCP_ASK);
    ep->out.tail = ep->out.head; /* the peer has recalled nothing */
    rdmux_tcp_lane(ep, 0)->stream = before;
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(messages_of_any_size_arrive_in_order, clear_state),
        cmocka_unit_test_setup(an_8_byte_ping_pong_is_one_send_and_one_recv_on_each_side,
                               clear_state),
        cmocka_unit_test_setup(the_pieces_of_a_list_from_an_offset_are_its_bytes_from_there,
                               clear_state),
        cmocka_unit_test_setup(a_batch_is_one_system_call, clear_state),
        cmocka_unit_test_setup(requests_held_back_by_more_are_sent_by_the_doorbell_or_the_next_poll,
                               clear_state),
        cmocka_unit_test_setup(a_send_waits_for_a_receive_and_answers_do_not_wait_behind_it,
                               clear_state),
        cmocka_unit_test_setup(a_stream_of_messages_needs_only_a_single_receive, clear_state),
        cmocka_unit_test_setup(endpoints_share_receives_and_idle_ones_return_credits, clear_state),
        cmocka_unit_test_setup(shared_receives_reach_every_endpoint_in_any_order_of_events,
                               clear_state),
        cmocka_unit_test_setup(writes_reads_and_atomics_of_any_size_have_the_right_effect,
                               clear_state),
        cmocka_unit_test_setup(a_random_mix_in_both_directions_keeps_every_promise, clear_state),
        cmocka_unit_test_setup(more_reads_than_may_be_under_way_wait_their_turn, clear_state),
        cmocka_unit_test_setup(requests_that_wait_for_room_precede_a_long_answer, clear_state),
        cmocka_unit_test_setup(room_in_a_socket_wakes_a_side_that_waits_to_send_a_share,
                               clear_state),
        cmocka_unit_test_setup(a_recall_keeps_a_credit_request_that_found_no_room, clear_state),
    };
    const struct CMUnitTest carried[] = {
        cmocka_unit_test_setup(messages_of_any_size_arrive_in_order, clear_state_and_stream),
        cmocka_unit_test_setup(an_8_byte_ping_pong_is_one_send_and_one_recv_on_each_side,
                               clear_state_and_stream),
        cmocka_unit_test_setup(a_batch_is_one_system_call, clear_state_and_stream),
        cmocka_unit_test_setup(a_send_waits_for_a_receive_and_answers_do_not_wait_behind_it,
                               clear_state_and_stream),
        cmocka_unit_test_setup(a_stream_of_messages_needs_only_a_single_receive,
                               clear_state_and_stream),
        cmocka_unit_test_setup(endpoints_share_receives_and_idle_ones_return_credits,
                               clear_state_and_stream),
        cmocka_unit_test_setup(shared_receives_reach_every_endpoint_in_any_order_of_events,
                               clear_state_and_stream),
        cmocka_unit_test_setup(writes_reads_and_atomics_of_any_size_have_the_right_effect,
                               clear_state_and_stream),
        cmocka_unit_test_setup(a_random_mix_in_both_directions_keeps_every_promise,
                               clear_state_and_stream),
        cmocka_unit_test_setup(more_reads_than_may_be_under_way_wait_their_turn,
                               clear_state_and_stream),
        cmocka_unit_test_setup(requests_that_wait_for_room_precede_a_long_answer,
                               clear_state_and_stream),
        cmocka_unit_test_setup(a_connecting_socket_wakes_for_the_event_it_waits_for,
                               clear_state_and_stream),
        cmocka_unit_test_setup(bytes_read_ahead_wake_the_caller, clear_state_and_stream),
        cmocka_unit_test_setup(a_share_that_was_read_ahead_is_not_waited_for,
                               clear_state_and_stream),
        cmocka_unit_test_setup(room_in_a_socket_wakes_a_side_that_waits_to_send_a_share,
                               clear_state_and_stream),
        cmocka_unit_test_setup(a_recall_keeps_a_credit_request_that_found_no_room,
                               clear_state_and_stream),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + cmocka_run_group_tests_name("carried", carried, NULL, NULL);
}
