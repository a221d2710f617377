/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* adapters/framed over a lane in memory: requests of all kinds, a lane that takes nothing, a peer
 * that breaks the protocol, bells, and silence. Most cases run without bodies and with them. */
#include "tests/unit/framed_scene.h"

#include "adapters/framed/framed_send.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum {
    LONG = 3 * LANE_MESSAGE_MAX + 17, /* bytes of several messages */
    BODY = 16 << 10,                  /* bytes of the shortest body */
    REGION_SIZE = 4 * LANE_MESSAGE_MAX,
    ALL_ACCESS = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC,
    TURNS = 200,
    POLLS_UNTIL_HUSH = 4096,
    POLLS_UNTIL_SLEEP = 64,
};

static struct end *a; /* connects */
static struct end *b;
static _Alignas(8) uint8_t region[REGION_SIZE];
static uint8_t out[LONG];
static uint8_t in[LONG];

static void fill(uint8_t *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 251 + seed);
    }
}

/* ------------------------------------------------------------------------------------ the scene */

static void forget(void)
{
    memset(&fake_fabric, 0, sizeof(fake_fabric));
    memset(fake_regions, 0, sizeof(fake_regions));
    memset(region, 0, sizeof(region));
    memset(in, 0, sizeof(in));
    fill(out, sizeof(out), 1);
    (void)fake_region(0, region, sizeof(region), ALL_ACCESS);
}

static void aim(struct end *end)
{
    memset(end->remote.key, 0, sizeof(end->remote.key));
    end->remote.key[1] = (uint8_t)fake_regions[0].serial;
}

static void turn(void)
{
    (void)ops->poll(cq_of(a), BUDGET);
    (void)ops->poll(cq_of(b), BUDGET);
}

/* Turns until a request is done. */
static void until_done(const struct rdmux_request *request)
{
    for (int i = 0; i < TURNS && !request->done; i++) {
        turn();
    }
    assert_int_equal(request->done, 1);
}

static void open_ends(bool with_srq)
{
    a = end_open(RDMUX_ROLE_CONNECT, false);
    b = end_open(RDMUX_ROLE_ACCEPT, with_srq);
    a->lane->peer = b->lane;
    b->lane->peer = a->lane;
    enum rdmux_status at_a = end_connect(a, with_srq);
    enum rdmux_status at_b = end_connect(b, false);
    for (int i = 0; i < TURNS && (at_a != RDMUX_OK || at_b != RDMUX_OK); i++) {
        turn();
        at_a = at_a == RDMUX_OK ? at_a : ops->ep_connect(ep_of(a), NULL, 0);
        at_b = at_b == RDMUX_OK ? at_b : ops->ep_connect(ep_of(b), NULL, 0);
    }
    assert_int_equal(at_a, RDMUX_OK);
    assert_int_equal(at_b, RDMUX_OK);
    aim(a);
    aim(b);
    turn();
    turn();
}

static void open_pair(bool bells, bool with_srq)
{
    forget();
    lanes_have_bells = bells;
    lanes_prefer_short = false;
    open_ends(with_srq);
}

static void open_pair_of_short_ones(void)
{
    forget();
    lanes_have_bells = false;
    lanes_prefer_short = true;
    open_ends(false);
}

static void close_pair(void)
{
    end_close(a);
    end_close(b);
}

/* Posts, and turns while the provider takes it not. */
static struct rdmux_request *post(struct end *end, uint32_t op, void *bytes, uint64_t length,
                                  uint64_t offset, uint32_t flags)
{
    struct rdmux_request *request = end_request(end, op, bytes, length, offset, flags);
    size_t posted = 0;
    request->imm = 0x01020304;
    for (int i = 0; i < TURNS && posted == 0; i++) {
        enum rdmux_status status = ops->post(ep_of(end), request, 1, 0, &posted);
        assert_true(status == RDMUX_OK || status == RDMUX_AGAIN);
        if (posted == 0) {
            turn();
        }
    }
    assert_int_equal(posted, 1);
    return request;
}

/* ------------------------------------------------------------------------------------- requests */

static void sends_of_any_length_arrive_whole(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {
        0, 1, 8, LANE_MESSAGE_MAX - 33, LANE_MESSAGE_MAX - 32, 4064, 4065, LONG, 100
    };
    open_pair(false, false);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        const struct rdmux_request *receive = end_receive(b, in, LONG);
        const uint32_t op = i % 2 == 0 ? RDMUX_OP_SEND : RDMUX_OP_SEND_IMM;
        memset(in, 0, sizeof(in));

        const struct rdmux_request *sent = post(a, op, out, lengths[i], 0, RDMUX_PLACED);
        until_done(sent);

        assert_int_equal(sent->status, RDMUX_OK);
        assert_int_equal(receive->done, 1);
        assert_int_equal(receive->opcode, RDMUX_WC_RECV);
        assert_true(receive->length == lengths[i]);
        assert_int_equal(receive->wc_flags, i % 2 == 0 ? 0 : RDMUX_WC_HAS_IMM);
        assert_int_equal(receive->imm, i % 2 == 0 ? 0 : 0x01020304);
        assert_memory_equal(in, out, lengths[i]);
    }
    close_pair();
}

static void writes_and_reads_reach_their_bytes_only(void **state)
{
    (void)state;
    open_pair(false, false);
    const struct rdmux_request *receive = end_receive(b, in, 0);

    until_done(post(a, RDMUX_OP_WRITE, out, LONG, 100, RDMUX_PLACED));
    until_done(post(a, RDMUX_OP_WRITE_IMM, out, 5, 10, RDMUX_PLACED));
    const struct rdmux_request *read = post(a, RDMUX_OP_READ, in, LONG, 100, 0);
    until_done(read);

    assert_memory_equal(region + 10, out, 5);
    assert_int_equal(region[9] | region[15] | region[99] | region[100 + LONG], 0);
    assert_memory_equal(region + 100, out, LONG);
    assert_memory_equal(in, out, LONG);
    assert_int_equal(receive->done, 1);
    assert_int_equal(receive->opcode, RDMUX_WC_RECV_WRITE_IMM);
    close_pair();
}

static void atomics_return_the_old_value(void **state)
{
    (void)state;
    uint64_t old = 0;
    uint64_t value = 40;
    open_pair(false, false);
    memcpy(region + 8, &value, sizeof(value));
    struct rdmux_request *request = end_request(a, RDMUX_OP_FETCH_ADD, &old, 8, 8, 0);
    size_t posted = 0;
    request->operand = 2;

    assert_int_equal(ops->post(ep_of(a), request, 1, 0, &posted), RDMUX_OK);
    until_done(request);
    assert_true(old == 40);
    request = end_request(a, RDMUX_OP_COMPARE_SWAP, &old, 8, 8, 0);
    request->expected = 42;
    request->operand = 7;
    assert_int_equal(ops->post(ep_of(a), request, 1, 0, &posted), RDMUX_OK);
    until_done(request);

    assert_true(old == 42);
    memcpy(&value, region + 8, sizeof(value));
    assert_true(value == 7);
    close_pair();
}

static void a_flush_is_done_when_the_peer_has_what_went_before(void **state)
{
    (void)state;
    open_pair(false, false);
    (void)post(a, RDMUX_OP_WRITE, out, LONG, 0, 0);
    struct rdmux_request *flush = end_request(a, RDMUX_OP_WRITE, NULL, 0, 0, RDMUX_PLACED);
    size_t posted = 0;
    flush->remote = NULL;

    for (int i = 0; i < TURNS && posted == 0; i++) {
        (void)ops->post(ep_of(a), flush, 1, 0, &posted);
        turn();
    }
    until_done(flush);

    assert_memory_equal(region, out, LONG);
    close_pair();
}

static void a_lane_that_takes_nothing_loses_nothing(void **state)
{
    (void)state;
    open_pair(false, false);
    for (unsigned i = 0; i < 20; i++) {
        const struct rdmux_request *receive = end_receive(b, in, LONG);
        memset(in, 0, sizeof(in));
        turn(); /* the credit */
        turn();
        a->lane->refuses = true;
        b->lane->refuses = true;
        const struct rdmux_request *sent = post(a, RDMUX_OP_SEND, out + i, LONG - i, 0,
                                                RDMUX_PLACED);
        turn();
        turn();
        assert_int_equal(receive->done, 0);
        a->lane->refuses = false;
        turn();
        b->lane->refuses = false;
        until_done(sent);
        assert_memory_equal(in, out + i, LONG - i);
    }
    close_pair();
}

/* The lane aborts if more than the window is under way. */
static void a_peer_that_does_not_poll_stops_the_sender(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    open_pair(false, false);
    const struct rdmux_request *receives[COUNT];
    struct rdmux_request *sends = NULL;
    size_t done = 0;
    for (size_t i = 0; i < COUNT; i++) {
        receives[i] = end_receive(b, in, LONG);
    }
    turn();
    turn();
    for (size_t i = 0; i < COUNT; i++) {
        struct rdmux_request *request = end_request(a, RDMUX_OP_SEND, out, 8000, 0, 0);
        sends = i == 0 ? request : sends;
    }

    assert_int_equal(ops->post(ep_of(a), sends, COUNT, 0, &done), RDMUX_AGAIN);
    for (int i = 0; i < TURNS; i++) {
        (void)ops->poll(cq_of(a), BUDGET);
    }
    assert_true(done <= LANE_WINDOW + 1);
    for (int i = 0; i < TURNS && done < COUNT; i++) {
        size_t posted = 0;
        turn();
        (void)ops->post(ep_of(a), sends + done, COUNT - done, 0, &posted);
        done += posted;
    }

    until_done(receives[COUNT - 1]);
    assert_int_equal(b->core->arrived_count, COUNT);
    close_pair();
}

static void a_payload_of_two_short_messages_goes_in_short_ones(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        bool is_short;
    } cases[] = { { 4064, true }, { 4065, true }, { 8192, true }, { 8193, false }, { LONG, false } };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        open_pair_of_short_ones();
        const struct rdmux_request *receive = end_receive(b, in, LONG);

        until_done(post(a, RDMUX_OP_SEND, out, cases[i].length, 0, RDMUX_PLACED));
        const bool was_short = a->lane->longest <= LANE_SHORT_MAX;
        until_done(post(a, RDMUX_OP_READ, in, cases[i].length, 0, 0));

        assert_int_equal(receive->done, 1);
        assert_int_equal(was_short, cases[i].is_short);
        assert_int_equal(b->lane->longest <= LANE_SHORT_MAX, cases[i].is_short);
        close_pair();
    }
}

static void messages_under_way_keep_their_memory(void **state)
{
    (void)state;
    open_pair(false, false);
    a->lane->holds = true;
    const struct rdmux_request *receive = end_receive(b, in, LONG);

    until_done(post(a, RDMUX_OP_SEND, out, LONG, 0, RDMUX_PLACED));
    const uint32_t under_way = a->cq->base.under_way;
    a->lane->holds = false;
    turn();

    assert_int_equal(under_way, (LONG + LANE_MESSAGE_MAX - 1) / LANE_MESSAGE_MAX);
    assert_int_equal(a->cq->base.under_way, 0);
    assert_int_equal(receive->done, 1);
    close_pair();
}

static void shared_receives_are_lent_on_request(void **state)
{
    (void)state;
    open_pair(false, true);
    for (unsigned i = 0; i < 20; i++) {
        const struct rdmux_request *receive = end_receive(b, in, LONG);
        until_done(post(a, RDMUX_OP_SEND, out, 100, 0, RDMUX_PLACED));
        assert_int_equal(receive->done, 1);
    }
    close_pair();
}

/* --------------------------------------------------------------------------------------- bodies */

enum { HUGE_LENGTH = 2 * FRAMED_BODY_MAX + LONG }; /* bytes of three bodies */

/* What two ends move by one request of each kind, in memory of its own. */
static void move(uint64_t length, uint16_t pieces)
{
    uint8_t *from = fake_object(length);
    uint8_t *to = fake_object(length);
    struct rdmux_provider_sge parts[4];
    open_pair(false, false);
    (void)fake_region(0, to, length, ALL_ACCESS);
    aim(a);
    fill(from, length, 3);
    for (uint16_t i = 0; i < pieces; i++) {
        const uint64_t part = i + 1 == pieces ? length - i * (length / pieces) : length / pieces;
        parts[i] = (struct rdmux_provider_sge){ to + i * (length / pieces), part, NULL };
    }
    struct rdmux_request *receive = end_receive(b, to, length);
    receive->sges = parts;
    receive->sge_count = pieces;

    until_done(post(a, RDMUX_OP_SEND, from, length, 0, 0));
    until_done(receive);
    assert_memory_equal(to, from, length);
    memset(to, 0, length);
    until_done(post(a, RDMUX_OP_WRITE, from, length, 0, RDMUX_PLACED));
    assert_memory_equal(to, from, length);
    memset(from, 0, length);
    until_done(post(a, RDMUX_OP_READ, from, length, 0, 0));
    assert_memory_equal(to, from, length);
    free(from);
    free(to);
}

static void long_payloads_go_as_bodies(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        uint16_t pieces;    /* of the receive */
        uint32_t of_send;   /* bodies */
        uint32_t of_write;  /* bodies; the target's lane has memory for them */
        uint32_t collected; /* bodies of the send with too many pieces, which the lane has, too */
    } cases[] = {
        { BODY - 1, 1, 0, 0, 0 },        { BODY, 1, 1, 1, 0 },
        { FRAMED_BODY_MAX, 2, 1, 8, 0 }, { FRAMED_BODY_MAX + 9, 1, 1, 8, 0 },
        { HUGE_LENGTH, 1, 3, 17, 0 },    { HUGE_LENGTH, 3, 3, 17, 0 },
        { FRAMED_BODY_MAX, 3, 1, 8, 1 }, { 3 * FRAMED_BODY_MAX, 4, 3, 24, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        move(cases[i].length, cases[i].pieces);

        assert_int_equal(a->lane->bodies, cases[i].of_send + cases[i].of_write);
        assert_int_equal(b->lane->bodies, 0);
        assert_int_equal(b->lane->collected, cases[i].collected + cases[i].of_write);
        close_pair();
    }
}

static void a_request_keeps_its_bytes_until_its_body_has_left(void **state)
{
    (void)state;
    static const uint32_t flags[] = { 0, RDMUX_PLACED };
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        open_pair(false, false);
        const struct rdmux_request *receive = end_receive(b, in, LONG);
        turn();
        turn();
        a->lane->holds = true;

        const struct rdmux_request *sent = post(a, RDMUX_OP_SEND, out, LONG, 0, flags[i]);
        for (int j = 0; j < TURNS; j++) {
            turn();
        }
        const int was_done = sent->done;
        a->lane->holds = false;
        until_done(sent);

        assert_int_equal(was_done, 0);
        assert_int_equal(receive->done, 1);
        assert_memory_equal(in, out, LONG);
        close_pair();
    }
}

/* The body comes by a later poll than its message, behind which nothing is left to do. */
static void a_body_that_comes_late_is_acknowledged(void **state)
{
    (void)state;
    open_pair(false, false);

    const struct rdmux_request *sent = post(a, RDMUX_OP_WRITE, out, BODY, 0, RDMUX_PLACED);

    (void)ops->poll(cq_of(b), 1);
    assert_int_equal(b->lane->in_count, 1); /* the body */
    assert_memory_not_equal(region, out, BODY);
    until_done(sent);
    assert_memory_equal(region, out, BODY);
    close_pair();
}

/* The lane is given two bodies and their messages; the rest shares the third message. */
static void a_lane_that_is_busy_gets_many_bodies_by_one_message(void **state)
{
    (void)state;
    enum { COUNT = 10 };
    open_pair(false, false);
    for (size_t i = 0; i < COUNT; i++) {
        (void)end_receive(b, in, LONG);
    }
    turn();
    turn();
    turn();
    const uint32_t before = a->lane->sent;
    a->lane->holds = true;
    for (size_t i = 0; i < COUNT; i++) {
        (void)post(a, RDMUX_OP_SEND, out, LONG, 0, 0);
    }
    const uint32_t given = a->lane->bodies;
    a->lane->holds = false;

    for (int i = 0; i < TURNS; i++) {
        turn();
    }

    assert_int_equal(given, 2);
    assert_int_equal(a->lane->sent - before, 3);
    assert_int_equal(b->core->arrived_count, COUNT);
    assert_int_equal(b->lane->most_places, COUNT - 2);
    close_pair();
}

/* Opens a pair whose next requests of a share one message, behind two sends. Returns the second. */
static const struct rdmux_request *open_busy_pair(void)
{
    open_pair(false, false);
    (void)end_receive(b, in, LONG);
    (void)end_receive(b, in, LONG);
    (void)end_receive(b, in, LONG - 1);
    turn();
    turn();
    a->lane->holds = true;
    (void)post(a, RDMUX_OP_SEND, out, LONG, 0, 0);
    return post(a, RDMUX_OP_SEND, out, LONG, 0, 0);
}

static void until_failed(enum rdmux_status status)
{
    a->lane->holds = false;
    for (int i = 0; i < TURNS && a->core->failed == RDMUX_OK; i++) {
        turn();
    }
    assert_int_equal(a->core->failed, status);
}

/* A frame that fails does not overtake the bodies before it. */
static void a_failure_waits_for_the_bodies_before_it(void **state)
{
    (void)state;
    static uint8_t key[RDMUX_TARGET_KEY_SIZE];
    const struct rdmux_request *before = open_busy_pair();
    const struct rdmux_request *good = post(a, RDMUX_OP_WRITE, out, BODY, 8, RDMUX_PLACED);
    const struct rdmux_request *bad = post(a, RDMUX_OP_SEND, out, LONG, 0, RDMUX_PLACED);
    until_failed(RDMUX_LENGTH);
    assert_int_equal(before->status, RDMUX_OK);
    assert_int_equal(good->done, 1);
    assert_int_equal(good->status, RDMUX_OK);
    assert_memory_equal(region + 8, out, BODY);
    assert_int_equal(bad->status, RDMUX_LENGTH);
    assert_int_equal(b->core->arrived_count, 3);
    close_pair();

    before = open_busy_pair();
    good = post(a, RDMUX_OP_WRITE, out, BODY, 8, RDMUX_PLACED);
    memcpy(a->remote.key, key, sizeof(key));
    bad = post(a, RDMUX_OP_WRITE, out, BODY, 8, RDMUX_PLACED);
    until_failed(RDMUX_DENIED);
    assert_int_equal(before->status, RDMUX_OK);
    assert_int_equal(good->status, RDMUX_OK);
    assert_memory_equal(region + 8, out, BODY);
    assert_int_equal(bad->status, RDMUX_DENIED);
    close_pair();
}

/* The key dies when both writes were begun, before a body came: the first one is refused. */
static void a_refusal_names_the_request_of_the_body(void **state)
{
    (void)state;
    (void)open_busy_pair();
    const struct rdmux_request *first = post(a, RDMUX_OP_WRITE, out, BODY, 8, RDMUX_PLACED);
    const struct rdmux_request *second = post(a, RDMUX_OP_WRITE, out, BODY, 8, RDMUX_PLACED);
    fake_regions[0].dies_after = 4;
    until_failed(RDMUX_DENIED);
    assert_int_equal(first->done, 1);
    assert_int_equal(first->status, RDMUX_DENIED);
    assert_int_equal(second->done, 0); /* the core ends it */
    assert_int_equal(region[8], 0);
    close_pair();
}

/* The lane has messages for a few bodies of LANE_MESSAGE_MAX bytes at a time. */
static void a_copied_body_is_done_at_once(void **state)
{
    (void)state;
    open_pair(false, false);
    const struct rdmux_request *receive = end_receive(b, in, LONG);
    turn();
    turn();
    a->lane->holds = true;

    const struct rdmux_request *sent = post(a, RDMUX_OP_SEND, out, LONG, 0, 0);

    assert_int_equal(sent->done, 1);
    a->lane->holds = false;
    until_done(receive);
    assert_memory_equal(in, out, LONG);
    assert_int_equal(a->lane->bodies, 0);
    assert_int_equal(b->lane->collected, 0);
    until_done(post(a, RDMUX_OP_WRITE, out, sizeof(out), 0, RDMUX_PLACED));
    assert_memory_equal(region, out, sizeof(out));
    assert_true(b->lane->collected > 0);
    close_pair();
}

/* Copies for which the lane has no memory: a post that was refused is not resumed before there is
 * some, or the core would try for ever. */
static void copies_without_memory_wait_in_the_core(void **state)
{
    (void)state;
    open_pair(false, false);
    a->lane->holds = true;
    struct rdmux_request *first = NULL;
    for (size_t i = 0; i < FRAMED_BODIES; i++) {
        struct rdmux_request *request = end_request(a, RDMUX_OP_WRITE, out, BODY, 0, 0);
        first = i == 0 ? request : first;
    }
    size_t posted = 0;

    assert_int_equal(ops->post(ep_of(a), first, FRAMED_BODIES, 0, &posted), RDMUX_AGAIN);
    assert_in_range(posted, 1, FRAMED_BODIES - 1);
    for (int i = 0; i < TURNS; i++) {
        (void)ops->poll(cq_of(a), 1);
        assert_int_equal(ep_of(a)->resume, 0);
    }
    a->lane->holds = false;
    for (int i = 0; i < TURNS && posted < FRAMED_BODIES; i++) {
        size_t more = 0;
        turn();
        if (ep_of(a)->resume != 0) {
            ep_of(a)->resume = 0;
            (void)ops->post(ep_of(a), first + posted, FRAMED_BODIES - posted, 0, &more);
            posted += more;
        }
    }
    until_done(first + FRAMED_BODIES - 1);
    assert_memory_equal(region, out, BODY);
    close_pair();
}

/* More bodies than may be announced: the rest waits. */
static void bodies_without_room_wait_in_the_core(void **state)
{
    (void)state;
    open_pair(false, false);
    a->lane->holds = true;
    struct rdmux_request *first = NULL;
    for (size_t i = 0; i < FRAMED_BODIES + 2; i++) {
        struct rdmux_request *request = end_request(a, RDMUX_OP_WRITE, out, BODY, 0, 0);
        first = i == 0 ? request : first;
    }
    size_t posted = 0;

    assert_int_equal(ops->post(ep_of(a), first, FRAMED_BODIES + 2, 0, &posted), RDMUX_AGAIN);
    assert_int_equal(posted, FRAMED_BODIES);
    a->lane->holds = false;
    for (int i = 0; i < TURNS && posted < FRAMED_BODIES + 2; i++) {
        size_t more = 0;
        turn();
        (void)ops->post(ep_of(a), first + posted, FRAMED_BODIES + 2 - posted, 0, &more);
        posted += more;
    }
    until_done(first + FRAMED_BODIES + 1);
    assert_memory_equal(region, out, BODY);
    close_pair();
}

/* ------------------------------------------------------------------------------------- refusals */

/* A request that the peer refuses ends both ends with the status. */
static void check_refusal(uint32_t op, uint8_t *bytes, uint64_t length, uint64_t offset,
                          enum rdmux_status status)
{
    const struct rdmux_request *request = post(a, op, bytes, length, offset, RDMUX_PLACED);
    struct rdmux_provider_counts counts;
    for (int i = 0; i < TURNS && a->core->failed == RDMUX_OK; i++) {
        turn();
    }
    assert_int_equal(a->core->failed, status);
    assert_int_equal(request->done, 1);
    assert_int_equal(request->status, status);
    assert_int_equal(ops->ep_quiesce(ep_of(a), &counts), RDMUX_OK);
    close_pair();
}

static void an_access_beyond_the_region_is_refused(void **state)
{
    (void)state;
    open_pair(false, false);
    check_refusal(RDMUX_OP_WRITE, out, 8, REGION_SIZE - 7, RDMUX_OUT_OF_RANGE);
    open_pair(false, false);
    check_refusal(RDMUX_OP_READ, out, 8, UINT64_MAX - 3, RDMUX_OUT_OF_RANGE);
}

static void an_access_by_a_dead_key_is_refused(void **state)
{
    (void)state;
    open_pair(false, false);
    fake_regions[0].serial++;
    check_refusal(RDMUX_OP_WRITE, out, 8, 0, RDMUX_DENIED);
    assert_int_equal(region[0], 0);
    open_pair(false, false);
    fake_regions[0].dies_after = lanes_have_bodies ? 2
                                                   : 3; /* between two parts, or before the body */
    check_refusal(RDMUX_OP_WRITE, out, LONG, 0, RDMUX_DENIED);
    open_pair(false, false);
    fake_regions[0].dies_after = 3;
    check_refusal(RDMUX_OP_READ, out, LONG, 0, RDMUX_DENIED);
}

/* The key dies after the write was begun: its later bodies do not reach the region. */
static void a_body_by_a_dead_key_is_dropped(void **state)
{
    (void)state;
    enum { LENGTH = 3 * FRAMED_BODY_MAX };
    uint8_t *from = fake_object(LENGTH);
    uint8_t *to = fake_object(LENGTH);
    open_pair(false, false);
    (void)fake_region(0, to, LENGTH, ALL_ACCESS);
    aim(a);
    memset(from, 1, LENGTH);
    fake_regions[0].dies_after = 3; /* all of it was checked, and one body came */

    check_refusal(RDMUX_OP_WRITE, from, LENGTH, 0, RDMUX_DENIED);

    assert_int_equal(to[0], 1);
    assert_int_equal(to[FRAMED_PART_MAX] | to[LENGTH - 1], 0);
    free(from);
    free(to);
}

static void a_message_that_is_too_long_ends_both_ends(void **state)
{
    (void)state;
    open_pair(false, false);
    const struct rdmux_request *receive = end_receive(b, in, 99);
    turn();
    struct end *acceptor = b;
    const struct rdmux_request *sent = post(a, RDMUX_OP_SEND, out, 100, 0, RDMUX_PLACED);
    for (int i = 0; i < TURNS && a->core->failed == RDMUX_OK; i++) {
        turn();
    }
    assert_int_equal(sent->status, RDMUX_LENGTH);
    assert_int_equal(acceptor->core->failed, RDMUX_LENGTH);
    assert_int_equal(a->core->failed, RDMUX_LENGTH);
    assert_int_equal(receive->status, RDMUX_LENGTH);
    close_pair();
}

/* --------------------------------------------------------------------------------------- a liar */

/* A message of a's tag and next sequence, with one frame. */
static void arrive(const struct framed_prefix *changes, const struct framed_frame *frame)
{
    uint8_t message[LANE_MESSAGE_MAX] = { 0 };
    struct framed_prefix prefix = *changes;
    uint32_t size = FRAMED_PREFIX_SIZE;
    prefix.tag ^= b->lane->base.tag_in;
    prefix.sequence += prefix.flags != 0 ? 0 : b->lane->base.sequence_in;
    rdmux_framed_prefix_encode(&prefix, message);
    if (frame != NULL) {
        size += (uint32_t)rdmux_framed_frame_encode(frame, message + size);
        size += (frame->flags & FRAMED_BODY) != 0 ? 0 : (uint32_t)framed_padded(frame->size);
    }
    lane_arrive(b->lane, message, size);
    (void)ops->poll(cq_of(b), BUDGET);
}

static void a_peer_that_breaks_the_protocol_ends_the_endpoint(void **state)
{
    (void)state;
    static const uint8_t key[RDMUX_TARGET_KEY_SIZE] = { 0, 1 };
    static const struct {
        const char *says;
        struct framed_prefix prefix;
        struct framed_frame frame;
    } cases[] = {
        { "missing, or came twice", { .sequence = 1 }, { .kind = FRAMED_CREDIT } },
        { "missing, or came twice", { .sequence = UINT32_MAX }, { .kind = FRAMED_CREDIT } },
        { "beyond its window", { .flags = FRAMED_UNCOUNTED_FLAG }, { .kind = FRAMED_CREDIT } },
        { "returned more messages", { .returned = LANE_WINDOW + 1 }, { .kind = FRAMED_CREDIT } },
        { "another version", { .flags = 4 }, { .kind = FRAMED_CREDIT } },
        { "does not exist", { 0 }, { .kind = FRAMED_ASK, .length = 1 } },
        { "without a credit", { 0 }, { .kind = FRAMED_SEND } },
        { "more of a request", { 0 }, { .kind = FRAMED_MORE, .size = 8, .length = 8 } },
        { "answered a read", { 0 }, { .kind = FRAMED_DATA, .size = 8, .length = 8 } },
        { "answered an atomic", { 0 }, { .kind = FRAMED_RESULT, .length = 8 } },
        { "acknowledged more", { 0 }, { .kind = FRAMED_ACK, .length = 1 } },
        { "never had", { 0 }, { .kind = FRAMED_RETURN, .length = 1 } },
        { "refused a request", { 0 }, { .kind = FRAMED_REFUSAL, .length = RDMUX_DENIED } },
        { "not aligned", { 0 }, { .kind = FRAMED_FETCH_ADD, .length = 8, .key = key, .offset = 4 } },
        { "does not take",
          { 0 },
          { .kind = FRAMED_WRITE, .flags = FRAMED_BODY, .size = 8, .length = 8, .key = key } },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        open_pair(false, false);

        arrive(&cases[i].prefix, &cases[i].frame);

        assert_int_equal(b->core->failed, RDMUX_PROTOCOL);
        if (strstr(b->core->text, cases[i].says) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", b->core->text, cases[i].says);
        }
        close_pair();
    }
}

static void a_body_of_another_length_ends_the_endpoint(void **state)
{
    (void)state;
    static const uint8_t key[RDMUX_TARGET_KEY_SIZE] = { 0, 1 };
    static const uint8_t body[16] = { 1 };
    static const struct framed_frame frame = {
        .kind = FRAMED_WRITE, .flags = FRAMED_BODY, .size = 8, .length = 8, .key = key
    };
    for (uint32_t length = 7; length <= 9; length++) {
        open_pair(false, false);
        arrive(&(struct framed_prefix){ 0 }, &frame);
        assert_int_equal(b->core->failed, RDMUX_OK);

        lane_arrive(b->lane, body, length);
        (void)ops->poll(cq_of(b), BUDGET);

        assert_int_equal(b->core->failed == RDMUX_OK, length == 8);
        close_pair();
    }
}

static void no_request_may_begin_within_another(void **state)
{
    (void)state;
    static const uint8_t key[RDMUX_TARGET_KEY_SIZE] = { 0, 1 };
    static const struct framed_frame others[] = {
        { .kind = FRAMED_WRITE, .key = key, .length = 4 },
        { .kind = FRAMED_READ, .key = key, .length = 4 },
        { .kind = FRAMED_FETCH_ADD, .key = key, .length = 8 },
        { .kind = FRAMED_FLUSH, .flags = FRAMED_PLACED },
    };
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        open_pair(false, false);
        arrive(&(struct framed_prefix){ 0 },
               &(struct framed_frame){ .kind = FRAMED_WRITE, .key = key, .size = 8, .length = 16 });
        assert_int_equal(b->core->failed, RDMUX_OK);

        arrive(&(struct framed_prefix){ 0 }, &others[i]);

        assert_int_equal(b->core->failed, RDMUX_PROTOCOL);
        assert_non_null(strstr(b->core->text, "within another"));
        close_pair();
    }
}

static void a_strangers_message_is_dropped(void **state)
{
    (void)state;
    open_pair(false, false);
    static const uint8_t short_one[FRAMED_PREFIX_SIZE - 1];

    arrive(&(struct framed_prefix){ .tag = 1 }, &(struct framed_frame){ .kind = FRAMED_SEND });
    lane_arrive(b->lane, short_one, sizeof(short_one));
    turn();

    assert_int_equal(b->core->failed, RDMUX_OK);
    const struct rdmux_request *receive = end_receive(b, in, LONG);
    until_done(post(a, RDMUX_OP_SEND, out, 8, 0, RDMUX_PLACED));
    assert_int_equal(receive->done, 1);
    close_pair();
}

/* ---------------------------------------------------------------------------- bells and silence */

/* a sends, b polls and answers. Returns how often b has rung. */
static uint32_t rung_by(struct end *end)
{
    const uint32_t before = end->lane->rung;
    struct end *other = end == a ? b : a;
    const struct rdmux_request *receive = end_receive(other, in, LONG);
    until_done(post(end, RDMUX_OP_SEND, out, 8, 0, RDMUX_PLACED));
    assert_int_equal(receive->done, 1);
    return end->lane->rung - before;
}

static void peers_ring_only_for_a_cq_that_may_sleep(void **state)
{
    (void)state;
    open_pair(true, false);
    assert_true(rung_by(b) > 0); /* at first it may */

    for (int i = 0; i < POLLS_UNTIL_HUSH + 2; i++) {
        turn();
    }
    assert_int_equal(rung_by(b), 0);
    assert_int_equal(rung_by(a), 0);
    assert_int_equal(ops->arm(cq_of(a)), RDMUX_OK);
    assert_true(a->cq->base.is_ticking); /* until the peer has agreed */
    (void)ops->poll(cq_of(b), BUDGET);
    assert_int_equal(a->lane->in_count, 1); /* the answer, which was rung */
    turn();
    assert_int_equal(ops->arm(cq_of(a)), RDMUX_OK);

    assert_false(a->cq->base.is_ticking);
    assert_true(rung_by(b) > 0);
    assert_int_equal(rung_by(a), 0);
    close_pair();
}

/* A tick of its timer is long: while work comes, it is not waited for. */
static void a_sleeper_without_wake_ups_looks_on_while_there_is_work(void **state)
{
    (void)state;
    open_pair(false, false);
    a->cq->base.has_no_wake = true;
    until_done(post(a, RDMUX_OP_WRITE, out, 8, 0, RDMUX_PLACED));
    assert_int_equal(ops->arm(cq_of(a)), RDMUX_AGAIN);

    for (int i = 0; i < POLLS_UNTIL_SLEEP; i++) {
        turn();
    }
    assert_int_equal(ops->arm(cq_of(a)), RDMUX_OK);
    assert_true(a->cq->base.is_ticking);
    turn(); /* the timer wakes the sleeper, and the poll finds nothing */
    assert_int_equal(ops->arm(cq_of(a)), RDMUX_OK);

    close_pair();
}

static void a_peer_that_answers_no_ping_is_gone(void **state)
{
    (void)state;
    open_pair(false, false);
    a->attr.liveness_ms = 0; /* at once */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops->ep_ping(ep_of(a)), RDMUX_OK);
        turn();
        turn();
    }
    assert_int_equal(a->lane->base.silent_pings, 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(a->core->failed, RDMUX_OK);
        assert_int_equal(ops->ep_ping(ep_of(a)), RDMUX_OK);
        (void)ops->poll(cq_of(a), BUDGET);
    }
    assert_int_equal(a->core->failed, RDMUX_PEER_GONE);
    close_pair();
}

static void connection_data_of_another_version_is_refused(void **state)
{
    (void)state;
    forget();
    b = end_open(RDMUX_ROLE_ACCEPT, false);
    const uint8_t other[FRAMED_HEAD_SIZE] = { 99 };

    assert_int_equal(ops->ep_connect(ep_of(b), other, sizeof(other)), RDMUX_VERSION);

    assert_non_null(strstr(fake_error, "same version"));
    end_close(b);
}

/* The lanes of a group have bodies, or not. */
static int with_bodies(void **state)
{
    (void)state;
    lanes_have_bodies = true;
    lanes_copy_bodies = false;
    return 0;
}

static int with_copied_bodies(void **state)
{
    (void)state;
    lanes_have_bodies = true;
    lanes_copy_bodies = true;
    return 0;
}

static int without_bodies(void **state)
{
    (void)state;
    lanes_have_bodies = false;
    lanes_copy_bodies = false;
    return 0;
}

int main(void)
{
    const struct CMUnitTest always[] = {
        cmocka_unit_test(sends_of_any_length_arrive_whole),
        cmocka_unit_test(writes_and_reads_reach_their_bytes_only),
        cmocka_unit_test(atomics_return_the_old_value),
        cmocka_unit_test(a_flush_is_done_when_the_peer_has_what_went_before),
        cmocka_unit_test(a_lane_that_takes_nothing_loses_nothing),
        cmocka_unit_test(a_peer_that_does_not_poll_stops_the_sender),
        cmocka_unit_test(shared_receives_are_lent_on_request),
        cmocka_unit_test(an_access_beyond_the_region_is_refused),
        cmocka_unit_test(an_access_by_a_dead_key_is_refused),
        cmocka_unit_test(a_message_that_is_too_long_ends_both_ends),
        cmocka_unit_test(no_request_may_begin_within_another),
        cmocka_unit_test(a_strangers_message_is_dropped),
        cmocka_unit_test(peers_ring_only_for_a_cq_that_may_sleep),
        cmocka_unit_test(a_sleeper_without_wake_ups_looks_on_while_there_is_work),
        cmocka_unit_test(a_peer_that_answers_no_ping_is_gone),
        cmocka_unit_test(connection_data_of_another_version_is_refused),
    };
    const struct CMUnitTest no_bodies[] = {
        cmocka_unit_test(a_payload_of_two_short_messages_goes_in_short_ones),
        cmocka_unit_test(messages_under_way_keep_their_memory),
        cmocka_unit_test(a_peer_that_breaks_the_protocol_ends_the_endpoint),
    };
    const struct CMUnitTest bodies[] = {
        cmocka_unit_test(long_payloads_go_as_bodies),
        cmocka_unit_test(a_request_keeps_its_bytes_until_its_body_has_left),
        cmocka_unit_test(a_body_that_comes_late_is_acknowledged),
        cmocka_unit_test(a_lane_that_is_busy_gets_many_bodies_by_one_message),
        cmocka_unit_test(a_failure_waits_for_the_bodies_before_it),
        cmocka_unit_test(a_refusal_names_the_request_of_the_body),
        cmocka_unit_test(bodies_without_room_wait_in_the_core),
        cmocka_unit_test(a_body_by_a_dead_key_is_dropped),
        cmocka_unit_test(a_body_of_another_length_ends_the_endpoint),
    };
    const struct CMUnitTest copied[] = {
        cmocka_unit_test(a_copied_body_is_done_at_once),
        cmocka_unit_test(copies_without_memory_wait_in_the_core),
    };
    return cmocka_run_group_tests(always, without_bodies, NULL) +
           cmocka_run_group_tests(no_bodies, without_bodies, NULL) +
           cmocka_run_group_tests(always, with_bodies, NULL) +
           cmocka_run_group_tests(bodies, with_bodies, NULL) +
           cmocka_run_group_tests(always, with_copied_bodies, NULL) +
           cmocka_run_group_tests(copied, with_copied_bodies, NULL);
}
