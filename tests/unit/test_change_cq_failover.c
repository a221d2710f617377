/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux_ep_move() and failover: paths that are bound to their cq are opened anew at the next one, and
 * moves cross with failures of the path. */
#include "api/core/failover.h"
#include "api/progress/cq_owner.h"
#include "api/setup/setup.h"
#include "negotiation/control_channel.h"
#include "negotiation/reconnect_proof.h"
#include "tests/unit/change_cq_scene.h"
#include "tests/unit/device_scene.h"

/* ----------------------------------------------------------------- paths that are bound to their cq */

/* Endpoint a has a device that cannot leave its cq, and failover. Its fabric has no service
 * thread. */
static struct rdmux_ep_attr open_bound_sides(struct scene *scene, uint32_t flags_of_b)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.failover = RDMUX_FAILOVER_ON;
    attr.send_depth = attr.recv_depth = MESSAGES;
    memset(scene, 0, sizeof(*scene));
    open_sides(&scene->pair, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, flags_of_b);
    make_device(scene->pair.fabric_a, 0, 0);
    device.ops.ep_leave = NULL;
    device.ops.ep_enter = NULL;
    return attr;
}

static struct rdmux_cq *open_bound(struct scene *scene)
{
    const struct rdmux_ep_attr attr = open_bound_sides(scene, 0);
    finish_scene(scene, &attr, 64);
    return create_cq(scene->pair.fabric_a);
}

/* Neither side has a service thread: only calls of the test progress a side. */
static struct rdmux_cq *open_bound_without_threads(struct scene *scene)
{
    const struct rdmux_ep_attr attr = open_bound_sides(scene, RDMUX_FABRIC_NO_SERVICE_THREAD);
    connect_more(&scene->pair, &attr, &scene->pair.a, &scene->pair.b);
    alarm(HANG_S);
    return create_cq(scene->pair.fabric_a);
}

/* Both fabrics have the device. */
static void bind_paths(const struct pair *pair)
{
    make_device(pair->fabric_b, 0, 0);
    const struct rdmux_provider_ops *tcp = device.tcp;
    for (size_t i = 0; i < pair->fabric_a->registry.count; i++) {
        struct rdmux_provider_entry *entry = &pair->fabric_a->registry.entries[i];
        if (entry->ops == tcp) {
            entry->ops = &device.ops;
        }
    }
    device.ops.ep_leave = NULL;
    device.ops.ep_enter = NULL;
}

static void clear_bound(struct scene *scene, struct rdmux_cq *to)
{
    CHECK_OK(rdmux_cq_destroy(scene->pair.cq_a)); /* the endpoint has left it */
    scene->pair.cq_a = to;
    clear_scene(scene);
}

/* Half of the messages have no receive yet. The other side does nothing for the move. */
static void with_failover_a_bound_path_is_opened_anew(void **state)
{
    (void)state;
    static uint64_t into[MESSAGES];
    struct scene scene;
    struct rdmux_cq *to = open_bound(&scene);
    struct pair *pair = &scene.pair;
    for (uint64_t n = 0; n < MESSAGES / 2; n++) {
        CHECK_OK(rdmux_recv(pair->b, &into[n], sizeof(into[n]), NULL, CONTEXT(n)));
    }
    for (uint64_t n = 0; n < MESSAGES; n++) {
        CHECK_OK(rdmux_send(pair->a, &n, sizeof(n), NULL, CONTEXT(n), RDMUX_INLINE));
    }
    CHECK_OK(rdmux_ep_move(pair->a, to));
    CHECK_STATUS(rdmux_ep_move(pair->a, to), RDMUX_INVALID); /* it is on its way */
    expect_moved(to, pair->a);
    expect_no_entry(pair->cq_a);
    for (uint64_t n = MESSAGES / 2; n < MESSAGES; n++) {
        CHECK_OK(rdmux_recv(pair->b, &into[n], sizeof(into[n]), NULL, CONTEXT(n)));
    }
    unsigned changes = 0;
    for (uint64_t n = 0; n < MESSAGES || changes == 0;) {
        struct rdmux_wc wc = next_entry(to);
        assert_int_equal(wc.status, RDMUX_OK);
        if (wc.opcode == RDMUX_WC_PATH_CHANGED) {
            changes++;
            continue;
        }
        assert_int_equal(wc.opcode, RDMUX_WC_SEND);
        assert_ptr_equal(wc.context, CONTEXT(n));
        n++;
    }
    assert_int_equal(changes, 1);
    changes = 0;
    for (uint64_t n = 0; n < MESSAGES || changes == 0;) {
        struct rdmux_wc wc = next_entry(pair->cq_b);
        assert_int_equal(wc.status, RDMUX_OK);
        if (wc.opcode == RDMUX_WC_PATH_CHANGED) {
            changes++;
            continue;
        }
        assert_int_equal(wc.opcode, RDMUX_WC_RECV);
        assert_ptr_equal(wc.context, CONTEXT(n));
        assert_int_equal(into[n], n);
        n++;
    }
    assert_int_equal(changes, 1);
    clear_bound(&scene, to);
}

static void no_atomic_becomes_unknown_where_a_path_is_opened_anew(void **state)
{
    (void)state;
    static uint64_t before[MESSAGES];
    struct scene scene;
    struct rdmux_cq *to = open_bound(&scene);
    for (uint64_t n = 0; n < MESSAGES; n++) {
        CHECK_OK(rdmux_fetch_add(scene.pair.a, &before[n], NULL, scene.remote, 8, 1, CONTEXT(n), 0));
    }
    CHECK_OK(rdmux_ep_move(scene.pair.a, to));
    expect_moved(to, scene.pair.a);
    for (uint64_t n = 0; n < MESSAGES;) {
        struct rdmux_wc wc = next_entry(to);
        assert_int_equal(wc.status, RDMUX_OK);
        if (wc.opcode == RDMUX_WC_FETCH_ADD) {
            assert_ptr_equal(wc.context, CONTEXT(n));
            assert_int_equal(before[n], n);
            n++;
        }
    }
    assert_int_equal(((uint64_t *)rdmux_mr_addr(scene.mr))[1], MESSAGES);
    clear_bound(&scene, to);
}

/* The move waits for a request that the device keeps. */
static void an_endpoint_that_ends_on_its_way_ends_at_its_new_cq(void **state)
{
    (void)state;
    struct scene scene;
    uint64_t word = 1;
    struct rdmux_cq *to = open_bound(&scene);
    device.conduct = HELD;
    CHECK_OK(rdmux_send(scene.pair.a, &word, sizeof(word), NULL, CONTEXT(1),
                        RDMUX_INLINE | RDMUX_NO_REPLAY));
    CHECK_OK(rdmux_ep_move(scene.pair.a, to));
    for (int i = 0; i < 5; i++) {
        expect_no_entry(to);
        expect_no_entry(scene.pair.cq_a);
    }
    CHECK_STATUS(rdmux_cq_destroy(to), RDMUX_INVALID);
    CHECK_STATUS(rdmux_cq_destroy(scene.pair.cq_a), RDMUX_INVALID);
    CHECK_OK(rdmux_ep_close(scene.pair.b));
    scene.pair.b = NULL;
    device.held_count = 0; /* it does not carry the request any more */
    device.conduct = CARRY;
    expect_moved(to, scene.pair.a);
    struct rdmux_wc wc = next_entry(to);
    assert_int_equal(wc.opcode, RDMUX_WC_SEND);
    assert_ptr_equal(wc.context, CONTEXT(1));
    assert_int_not_equal(wc.status, RDMUX_OK);
    (void)expect_entry(to, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    clear_bound(&scene, to);
}

/* Returns whether the endpoint has sent TRY, and waits for the answer. */
static bool has_tried(const struct rdmux_ep *ep)
{
    char stage[64];
    rdmux_ep_setup_stage(ep, stage, sizeof(stage));
    return strstr(stage, "waiting for READY") != NULL;
}

static bool has_new_path(struct rdmux_cq *cq)
{
    struct rdmux_wc wc;
    if (rdmux_cq_poll(cq, &wc, 1) == 0) {
        return false;
    }
    assert_int_equal(wc.opcode, RDMUX_WC_PATH_CHANGED);
    return true;
}

/* b has closed its endpoint, and its fabric refuses a reconnect. */
static void await_end(const struct pair *pair, struct rdmux_cq *cq_a)
{
    struct rdmux_wc wc;
    uint64_t until = now_ms() + PATIENT_MS;
    while (rdmux_cq_poll(cq_a, &wc, 1) == 0) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    }
    assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(wc.status, RDMUX_PEER_GONE);
}

static void await_new_paths(const struct pair *pair, struct rdmux_cq *cq_a, struct rdmux_cq *cq_b)
{
    bool is_new_at_a = false;
    bool is_new_at_b = false;
    uint64_t until = now_ms() + PATIENT_MS;
    while (!is_new_at_a || !is_new_at_b) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
        is_new_at_a = has_new_path(cq_a) || is_new_at_a;
        is_new_at_b = has_new_path(cq_b) || is_new_at_b;
    }
}

/* What happens while the peer's frames wait for the new cq. */
enum meanwhile {
    NOTHING,
    PEER_CLOSES,
    CHANNEL_BREAKS, /* last: without OpenSSL it does not reconnect */
};

static bool can_reconnect(void)
{
    const uint8_t secret[RDMUX_SECRET_SIZE] = { 0 };
    uint8_t name[RDMUX_RECONNECT_NAME_SIZE];
    return rdmux_reconnect_name(secret, name);
}

/* Endpoint a loses its path while it leaves its cq. Returns when it is cut and still there, and MOVE
 * and TRY of its peer, unread, are in its control channel. */
static void meet_before_leaving(struct pair *pair, struct rdmux_cq *to)
{
    struct rdmux_wc wc;
    CHECK_OK(rdmux_ep_move(pair->a, to));
    assert_true(rdmux_cq_enter(pair->cq_a));
    rdmux_provider_failed(pair->a->path, RDMUX_IO, "broken by a test");
    rdmux_cq_leave(pair->cq_a);
    for (uint64_t until = now_ms() + PATIENT_MS; !rdmux_failover_is_cut(pair->a);) {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1), 0);
    }
    assert_ptr_equal(pair->a->cq, pair->cq_a);
    for (uint64_t until = now_ms() + PATIENT_MS; !has_tried(pair->b);) {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(pair->cq_b, &wc, 1), 0);
    }
}

/* The peer searches as soon as it knows both cuts: its MOVE and its TRY arrive together. */
static void frames_of_the_search_wait_for_the_new_cq(void **state)
{
    (void)state;
    const enum meanwhile last = can_reconnect() ? CHANNEL_BREAKS : PEER_CLOSES;
    for (enum meanwhile meanwhile = NOTHING; meanwhile <= last; meanwhile++) {
        struct scene scene;
        struct rdmux_cq *to = open_bound_without_threads(&scene);
        struct pair *pair = &scene.pair;
        meet_before_leaving(pair, to);
        if (meanwhile == PEER_CLOSES) {
            CHECK_OK(rdmux_ep_close(pair->b));
            pair->b = NULL;
        } else if (meanwhile == CHANNEL_BREAKS) {
            assert_int_equal(shutdown(rdmux_channel_socket(pair->b->channel), SHUT_RDWR), 0);
        }
        expect_moved(to, pair->a);
        expect_no_entry(pair->cq_a);
        if (meanwhile == PEER_CLOSES) {
            await_end(pair, to);
        } else {
            await_new_paths(pair, to, pair->cq_b);
            check_message(pair->a, to, pair->b, pair->cq_b, 4);
        }
        clear_bound(&scene, to);
    }
}

/* A device whose provider has not the operations, or has local keys. */
static void a_path_that_binds_its_cq_refuses(void **state)
{
    (void)state;
    static const uint32_t flags[] = { 0, RDMUX_PROVIDER_LOCAL_KEYS };
    for (size_t i = 0; i < RDMUX_COUNT_OF(flags); i++) {
        struct scene scene;
        set_scene(&scene, flags[i], 0, 8, 0);
        struct rdmux_cq *to = create_cq(scene.pair.fabric_a);
        if (flags[i] == 0) {
            device.ops.ep_leave = NULL;
            device.ops.ep_enter = NULL;
        }
        CHECK_STATUS(rdmux_ep_move(scene.pair.a, to), RDMUX_UNSUPPORTED);
        assert_non_null(strstr(rdmux_last_error(), "rdmux_listener_next"));
        device.ops.size = (uint32_t)offsetof(struct rdmux_provider_ops, ep_leave); /* older */
        CHECK_STATUS(rdmux_ep_move(scene.pair.a, to), RDMUX_UNSUPPORTED);
        check_message(scene.pair.a, scene.pair.cq_a, scene.pair.b, scene.pair.cq_b, 3);
        CHECK_OK(rdmux_cq_destroy(to));
        clear_scene(&scene);
    }
}

/* ------------------------------------------------------------------------------ moves and failures */

enum { CROSSED = 200, EVENTS_APART = 12, SEEDS = 2 };

/* One side of a pair with failover, whose endpoint goes to and fro between two cqs. */
struct crossed_side {
    struct rdmux_ep *ep;
    struct rdmux_cq *cqs[2];
    size_t at; /* index of the cq that the endpoint is on, or is about to leave */
    bool is_on_its_way;
    uint64_t posted;
    uint64_t sent;
    uint64_t received;
    uint64_t moves;
    uint64_t out[MESSAGES];
    uint64_t in[MESSAGES];
};

static void receive_next(struct crossed_side *side, uint64_t number)
{
    uint64_t *word = &side->in[number % MESSAGES];
    CHECK_OK(rdmux_recv(side->ep, word, sizeof(*word), NULL, CONTEXT(number)));
}

static void send_next(struct crossed_side *side)
{
    while (!side->is_on_its_way && side->posted < CROSSED &&
           side->posted - side->sent < MESSAGES / 2) {
        uint64_t *word = &side->out[side->posted % MESSAGES];
        *word = side->posted;
        CHECK_OK(rdmux_send(side->ep, word, sizeof(*word), NULL, CONTEXT(side->posted), 0));
        side->posted++;
    }
}

static void take_entry(struct crossed_side *side, const struct rdmux_wc *wc)
{
    assert_ptr_equal(wc->ep, side->ep);
    if (wc->opcode == RDMUX_WC_MOVED) {
        assert_true(side->is_on_its_way);
        side->is_on_its_way = false;
        side->at = 1 - side->at;
        return;
    }
    assert_false(side->is_on_its_way);
    if (wc->opcode == RDMUX_WC_PATH_CHANGED) {
        return;
    }
    assert_int_equal(wc->status, RDMUX_OK);
    if (wc->opcode == RDMUX_WC_SEND) {
        assert_ptr_equal(wc->context, CONTEXT(side->sent));
        side->sent++;
        return;
    }
    assert_int_equal(wc->opcode, RDMUX_WC_RECV);
    assert_ptr_equal(wc->context, CONTEXT(side->received));
    assert_int_equal(side->in[side->received % MESSAGES], side->received);
    side->received++;
    receive_next(side, side->received + MESSAGES - 1);
}

/* An endpoint on its way returns its entries at the next cq alone. */
static void progress_crossed(struct crossed_side *side)
{
    struct rdmux_wc wc;
    CHECK_OK(rdmux_fabric_progress(side->ep->fabric));
    const size_t old = side->at;
    if (side->is_on_its_way) {
        assert_int_equal(rdmux_cq_poll(side->cqs[old], &wc, 1), 0);
    }
    if (rdmux_cq_poll(side->cqs[side->is_on_its_way ? 1 - old : old], &wc, 1) == 1) {
        take_entry(side, &wc);
    }
    send_next(side);
}

static void move_crossed(struct crossed_side *side)
{
    if (side->is_on_its_way) {
        return;
    }
    enum rdmux_status status = rdmux_ep_move(side->ep, side->cqs[1 - side->at]);
    if (status != RDMUX_AGAIN) { /* failover is at work */
        CHECK_OK(status);
        side->is_on_its_way = true;
        side->moves++;
    }
}

/* The path fails on this side, if it has one. */
static void fail_crossed(struct crossed_side *side)
{
    struct rdmux_ep *ep = side->ep;
    assert_true(rdmux_cq_enter(ep->cq));
    if (ep->path != NULL && ep->phase == RDMUX_PHASE_READY && !rdmux_failover_is_moving(ep) &&
        ep->path->cq->cq == ep->cq) {
        rdmux_provider_failed(ep->path, RDMUX_IO, "broken by a test");
    }
    rdmux_cq_leave(ep->cq);
}

static void cause_event(struct crossed_side *a, struct crossed_side *b, unsigned event)
{
    switch (event % 6) {
    case 0:
        move_crossed(a);
        break;
    case 1:
        move_crossed(b);
        break;
    case 2:
        move_crossed(a);
        move_crossed(b);
        break;
    case 3:
        move_crossed(a);
        fail_crossed(b);
        break;
    case 4:
        move_crossed(b);
        fail_crossed(b);
        break;
    default:
        fail_crossed(a);
        move_crossed(a);
        break;
    }
}

static void begin_crossed(struct crossed_side *side, struct rdmux_ep *ep, struct rdmux_cq *cq)
{
    memset(side, 0, sizeof(*side));
    side->ep = ep;
    side->cqs[0] = cq;
    side->cqs[1] = create_cq(ep->fabric);
    for (uint64_t n = 0; n < MESSAGES; n++) {
        receive_next(side, n);
    }
}

static bool is_over(const struct crossed_side *side)
{
    return side->sent == CROSSED && side->received == CROSSED && !side->is_on_its_way;
}

static void run_crossed(struct crossed_side *a, struct crossed_side *b, uint32_t seed)
{
    uint64_t until = now_ms() + PATIENT_MS;
    for (uint64_t events = 1; !is_over(a) || !is_over(b);) {
        assert_true(now_ms() < until);
        progress_crossed(a);
        progress_crossed(b);
        if (a->received + b->received >= events * EVENTS_APART) {
            seed = seed * 1664525 + 1013904223;
            cause_event(a, b, seed >> 16);
            events++;
        }
    }
    assert_true(a->moves > 0 && b->moves > 0);
}

/* bound: the paths of both sides cannot leave their cqs. */
static void cross(const char *path, bool bound, uint32_t seed)
{
    static struct crossed_side a;
    static struct crossed_side b;
    struct pair pair;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.failover = RDMUX_FAILOVER_ON;
    attr.failover_attempts = 1000;
    attr.send_depth = attr.recv_depth = MESSAGES;
    open_sides(&pair, path, RDMUX_FABRIC_NO_SERVICE_THREAD, RDMUX_FABRIC_NO_SERVICE_THREAD);
    if (bound) {
        bind_paths(&pair);
    }
    connect_more(&pair, &attr, &pair.a, &pair.b);
    begin_crossed(&a, pair.a, pair.cq_a);
    begin_crossed(&b, pair.b, pair.cq_b);
    run_crossed(&a, &b, seed);
    CHECK_OK(rdmux_ep_close(pair.a));
    CHECK_OK(rdmux_ep_close(pair.b));
    pair.a = NULL;
    pair.b = NULL;
    CHECK_OK(rdmux_cq_destroy(a.cqs[1]));
    CHECK_OK(rdmux_cq_destroy(b.cqs[1]));
    close_pair(&pair);
}

/* Either side moves, or both at once, while the path works or has failed on either side. */
static void moves_and_failures_cross_without_loss(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        cross("shm", false, seed);
        cross("tcp", false, seed);
        cross("tcp", true, seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_that_binds_its_cq_refuses),
        cmocka_unit_test(with_failover_a_bound_path_is_opened_anew),
        cmocka_unit_test(no_atomic_becomes_unknown_where_a_path_is_opened_anew),
        cmocka_unit_test(frames_of_the_search_wait_for_the_new_cq),
        cmocka_unit_test(an_endpoint_that_ends_on_its_way_ends_at_its_new_cq),
        cmocka_unit_test(moves_and_failures_cross_without_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
