/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* One SRQ for a device that matches messages by itself and for endpoints that the core serves: who
 * gets the receives. The device holds them and delivers what a test says. */
#include "api/core/srq.h"
#include "api/progress/cq_owner.h"
#include "tests/unit/device_scene.h"

enum { DEPTH = 8 };

/* b shares receives over the device (path tcp) and over shm. */
struct shared {
    struct pair pair;
    struct rdmux_srq *srq;
    uint64_t slots[DEPTH]; /* a receive's context is its slot */
};

/* A connection: a sends, b receives from the SRQ. */
struct link {
    struct rdmux_ep *a;
    struct rdmux_ep *b;
};

static void set_up(struct shared *shared, uint32_t device_share, uint32_t limit,
                   uint32_t provider_flags, uint32_t fabric_flags)
{
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    attr.depth = DEPTH;
    attr.device_share = device_share;
    attr.limit = limit;
    memset(shared, 0, sizeof(*shared));
    open_sides(&shared->pair, "shm,tcp", 0, RDMUX_FABRIC_NO_SERVICE_THREAD | fabric_flags);
    make_device(shared->pair.fabric_b, RDMUX_PROVIDER_DEVICE_SRQ | provider_flags, 0);
    CHECK_OK(rdmux_srq_create(shared->pair.fabric_b, shared->pair.cq_b, &attr, &shared->srq));
    alarm(HANG_S);
}

static void set_shared(struct shared *shared, uint32_t device_share)
{
    set_up(shared, device_share, 0, 0, 0);
}

static struct link connect_over(struct shared *shared, const char *path)
{
    struct pair *pair = &shared->pair;
    struct link link = { NULL, NULL };
    struct rdmux_ep_attr connecting = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep_attr accepting = RDMUX_EP_ATTR_INIT;
    connecting.paths = path;
    accepting.srq = shared->srq;
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, &connecting, 0, &link.a),
                 RDMUX_IN_PROGRESS);
    CHECK_OK(rdmux_accept(pair->listener, pair->cq_b, &accepting, PATIENT_MS, &link.b));
    expect_entry(pair->cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
    return link;
}

static void close_link(struct link *link)
{
    CHECK_OK(rdmux_ep_close(link->b));
    CHECK_OK(rdmux_ep_close(link->a));
}

static void clear_shared(struct shared *shared)
{
    alarm(0);
    assert_int_equal(shared->srq->set_aside, 0);
    CHECK_OK(rdmux_srq_destroy(shared->srq));
    close_pair(&shared->pair);
}

static void post_receives(struct shared *shared, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        CHECK_OK(rdmux_srq_recv(shared->srq, &shared->slots[i], sizeof(uint64_t), NULL, CONTEXT(i)));
    }
}

static void send_word(struct rdmux_ep *ep, uint64_t word)
{
    CHECK_OK(rdmux_send(ep, &word, sizeof(word), NULL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED));
}

/* Returns the slot of the next message, which is this endpoint's. */
static size_t expect_message(struct shared *shared, const struct rdmux_ep *ep)
{
    struct rdmux_wc wc = expect_entry(shared->pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
    assert_ptr_equal(wc.ep, ep);
    return (size_t)(uintptr_t)wc.context;
}

/* The device fills the oldest receive that it holds. */
static void fill_at_device(struct rdmux_ep *ep)
{
    assert_int_not_equal(device.shared_count, 0);
    struct rdmux_request *receive = device.shared[0];
    device.shared_count--;
    for (size_t i = 0; i < device.shared_count; i++) {
        device.shared[i] = device.shared[i + 1];
    }
    assert_true(rdmux_cq_enter(ep->cq));
    rdmux_provider_received(ep->path, receive, RDMUX_OK, RDMUX_WC_RECV, sizeof(uint64_t), 0, 0);
    rdmux_cq_leave(ep->cq);
}

/* ---------------------------------------------------------------------------------------- tests */

static void a_device_holds_no_more_than_its_share(void **state)
{
    (void)state;
    static const struct {
        uint32_t asked;
        size_t granted;
    } shares[] = { { 0, DEPTH / 2 }, { 1, 1 }, { 3, 3 }, { DEPTH, DEPTH } };
    for (size_t i = 0; i < RDMUX_COUNT_OF(shares); i++) {
        struct shared shared;
        set_shared(&shared, shares[i].asked);
        post_receives(&shared, 0, DEPTH / 2); /* some before the device is known, and some after */
        struct link link = connect_over(&shared, "tcp");
        post_receives(&shared, DEPTH / 2, DEPTH / 2);
        assert_int_equal(device.shared_count, shares[i].granted);
        assert_int_equal(shared.srq->posted_count, DEPTH - shares[i].granted);
        close_link(&link);
        clear_shared(&shared);
    }
}

static void a_share_beyond_the_depth_is_refused(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_srq *srq;
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    open_sides(&pair, "tcp", 0, 0);
    attr.depth = DEPTH;
    attr.device_share = DEPTH + 1;
    CHECK_STATUS(rdmux_srq_create(pair.fabric_b, pair.cq_b, &attr, &srq), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "device_share"));
    close_pair(&pair);
}

/* The device gets a receive for each that it filled, and the pool gives the others to shm. */
static void a_device_is_topped_up_as_its_receives_complete(void **state)
{
    (void)state;
    struct shared shared;
    set_shared(&shared, 2);
    struct link over_device = connect_over(&shared, "tcp");
    struct link over_shm = connect_over(&shared, "shm");
    bool was_used[DEPTH] = { false };
    post_receives(&shared, 0, DEPTH);
    for (size_t i = 0; i < DEPTH; i++) {
        bool is_device = i % 2 == 0 || DEPTH - i <= 2; /* the device holds the last two */
        if (is_device) {
            fill_at_device(over_device.b);
        } else {
            send_word(over_shm.a, i);
        }
        size_t slot = expect_message(&shared, is_device ? over_device.b : over_shm.b);
        assert_false(was_used[slot]);
        was_used[slot] = true;
        size_t left = DEPTH - 1 - i;
        assert_int_equal(device.shared_count, left < 2 ? left : 2);
    }
    close_link(&over_device);
    close_link(&over_shm);
    clear_shared(&shared);
}

/* No call takes the entries, as while the service thread makes progress for a busy program. */
static void a_device_is_topped_up_before_its_completions_are_returned(void **state)
{
    (void)state;
    struct shared shared;
    set_shared(&shared, 2);
    struct link link = connect_over(&shared, "tcp");
    post_receives(&shared, 0, DEPTH);
    for (size_t i = 0; i < DEPTH; i++) {
        fill_at_device(link.b);
        assert_int_equal(rdmux_cq_poll(shared.pair.cq_b, NULL, 0), 0);
        size_t left = DEPTH - 1 - i;
        assert_int_equal(device.shared_count, left < 2 ? left : 2);
    }
    for (size_t i = 0; i < DEPTH; i++) {
        assert_int_equal(expect_message(&shared, link.b), i);
    }
    close_link(&link);
    clear_shared(&shared);
}

/* Both are out of receives: new ones go to them in turn. */
static void a_device_and_a_waiting_endpoint_take_turns(void **state)
{
    (void)state;
    struct shared shared;
    set_shared(&shared, DEPTH);
    struct link over_device = connect_over(&shared, "tcp");
    struct link over_shm = connect_over(&shared, "shm");
    size_t came = 0;
    for (uint64_t i = 0; i < DEPTH; i++) {
        send_word(over_shm.a, i);
    }
    while (rdmux_list_empty(&shared.srq->waiting)) {
        assert_int_equal(rdmux_cq_poll(shared.pair.cq_b, NULL, 0), 0);
    }
    for (size_t i = 0; i < DEPTH; i++) {
        struct rdmux_wc wc;
        post_receives(&shared, i, 1);
        for (int polls = 0; polls < 100; polls++) {
            if (rdmux_cq_poll(shared.pair.cq_b, &wc, 1) == 1) {
                assert_ptr_equal(wc.ep, over_shm.b);
                came++;
            }
        }
    }
    assert_int_equal(came, DEPTH / 2);
    assert_int_equal(device.shared_count, DEPTH / 2);
    close_link(&over_device);
    while (came < DEPTH) { /* the loan has ended with the device's last endpoint */
        expect_message(&shared, over_shm.b);
        came++;
    }
    close_link(&over_shm);
    clear_shared(&shared);
}

/* A set-up over the device fails, or its last endpoint closes: its receives serve the others. */
static void receives_of_a_device_without_endpoints_go_to_the_others(void **state)
{
    (void)state;
    struct shared shared;
    set_shared(&shared, DEPTH);
    struct link first = connect_over(&shared, "tcp");
    struct link second = connect_over(&shared, "tcp");
    struct link over_shm = connect_over(&shared, "shm");
    post_receives(&shared, 0, DEPTH);
    assert_int_equal(device.shared_count, DEPTH);
    send_word(over_shm.a, 1);
    while (rdmux_list_empty(&shared.srq->waiting)) {
        assert_int_equal(rdmux_cq_poll(shared.pair.cq_b, NULL, 0), 0);
    }
    close_link(&first);
    assert_int_equal(device.shared_count, DEPTH);
    close_link(&second);
    assert_int_equal(device.shared_count, 0);
    expect_message(&shared, over_shm.b);

    struct link again = connect_over(&shared, "tcp");
    assert_int_equal(device.shared_count, DEPTH - 1);
    close_link(&again);
    close_link(&over_shm);
    clear_shared(&shared);
}

/* A message that the device delivered is returned though its endpoint and loan have ended. */
static void a_filled_receive_outlives_the_loan(void **state)
{
    (void)state;
    struct shared shared;
    set_shared(&shared, 2);
    struct link over_device = connect_over(&shared, "tcp");
    struct link over_shm = connect_over(&shared, "shm");
    post_receives(&shared, 0, 3);
    fill_at_device(over_device.b);
    CHECK_OK(rdmux_ep_close(over_device.a));
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    do {
        assert_int_equal(rdmux_cq_poll(shared.pair.cq_b, NULL, 0), 0);
        CHECK_OK(rdmux_ep_info(over_device.b, &info));
    } while (info.state != RDMUX_EP_ENDED);
    assert_int_equal(shared.srq->device_count, 0);
    assert_int_equal(shared.srq->posted_count, 2);
    expect_message(&shared, over_device.b);
    CHECK_OK(rdmux_ep_close(over_device.b));
    close_link(&over_shm);
    clear_shared(&shared);
}

/* An endpoint that the core serves holds all receives in reserve, and is asked for them. */
static void reserved_receives_are_recalled_for_a_device_that_has_none(void **state)
{
    (void)state;
    struct shared shared;
    set_shared(&shared, 1);
    struct link over_shm = connect_over(&shared, "shm");
    post_receives(&shared, 0, 2);
    assert_true(rdmux_cq_enter(shared.pair.cq_b));
    assert_int_equal(rdmux_provider_reserve(over_shm.b->path, 2), 2);
    assert_int_equal(rdmux_provider_receives_awaited(over_shm.b->path), 0);
    rdmux_cq_leave(shared.pair.cq_b);
    struct link over_device = connect_over(&shared, "tcp");
    assert_int_equal(device.shared_count, 0);
    assert_true(rdmux_cq_enter(shared.pair.cq_b));
    assert_int_equal(rdmux_provider_receives_awaited(over_shm.b->path), 1);
    rdmux_provider_unreserve(over_shm.b->path, 1);
    assert_int_equal(device.shared_count, 1);
    assert_int_equal(rdmux_provider_receives_awaited(over_shm.b->path), 0);
    rdmux_provider_unreserve(over_shm.b->path, 1);
    rdmux_cq_leave(shared.pair.cq_b);
    assert_int_equal(device.shared_count, 1);
    close_link(&over_device);
    close_link(&over_shm);
    clear_shared(&shared);
}

/* Receives that a device holds are left, too, until a message fills them. */
static void the_limit_counts_receives_that_a_device_holds(void **state)
{
    (void)state;
    enum { SHARE = 4, LIMIT = 3 };
    struct shared shared;
    set_up(&shared, SHARE, LIMIT, 0, 0);
    struct link over_device = connect_over(&shared, "tcp");
    struct link over_shm = connect_over(&shared, "shm");
    post_receives(&shared, 0, DEPTH);
    for (size_t i = 0; i < DEPTH - SHARE; i++) { /* the pool is empty then */
        send_word(over_shm.a, i);
        expect_message(&shared, over_shm.b);
    }
    fill_at_device(over_device.b);
    expect_message(&shared, over_device.b);
    assert_int_equal(device.shared_count, LIMIT);

    fill_at_device(over_device.b);

    struct rdmux_wc wc = expect_entry(shared.pair.cq_b, RDMUX_WC_SRQ_LIMIT, RDMUX_OK);
    assert_null(wc.ep);
    assert_ptr_equal(wc.context, shared.srq);
    expect_message(&shared, over_device.b);
    close_link(&over_device); /* its loan ends, which is no post */
    close_link(&over_shm);
    assert_int_equal(rdmux_cq_poll(shared.pair.cq_b, &wc, 1), 0);
    clear_shared(&shared);
}

static void an_endpoint_that_moves_to_a_device_is_paused_no_longer(void **state)
{
    (void)state;
    struct shared shared;
    set_shared(&shared, 2);
    struct pair *pair = &shared.pair;
    struct rdmux_ep_attr connecting = RDMUX_EP_ATTR_INIT;
    connecting.failover = RDMUX_FAILOVER_ON;
    struct rdmux_ep_attr accepting = connecting;
    struct link link;
    accepting.srq = shared.srq;
    connect_as(pair, &connecting, &accepting, &link.a, &link.b);
    CHECK_OK(rdmux_ep_pause(link.b, 1));

    assert_true(rdmux_cq_enter(pair->cq_b));
    rdmux_provider_failed(link.b->path, RDMUX_IO, "broken by a test");
    rdmux_cq_leave(pair->cq_b);
    while (link.b->ops != &device.ops) {
        CHECK_OK(rdmux_ep_pause(link.b, 1)); /* a move keeps the pause */
        assert_int_equal(rdmux_cq_poll(pair->cq_a, NULL, 0), 0);
        assert_int_equal(rdmux_cq_poll(pair->cq_b, NULL, 0), 0);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    }

    CHECK_STATUS(rdmux_ep_pause(link.b, 1), RDMUX_UNSUPPORTED);
    assert_non_null(strstr(rdmux_last_error(), "device"));
    CHECK_OK(rdmux_ep_pause(link.b, 0));
    close_link(&link);
    clear_shared(&shared);
}

/* A receive that is too long to be copied, posted before and after the device is known. */
static void a_long_receive_without_region_uses_one_that_covers_it(void **state)
{
    (void)state;
    enum { LONG = 8192 };
    static uint8_t bytes[LONG + 1];
    for (uint32_t finds = 0; finds < 2; finds++) {
        struct shared shared;
        struct rdmux_mr *mr = NULL;
        set_up(&shared, DEPTH, 0, RDMUX_PROVIDER_LOCAL_KEYS,
               finds != 0 ? RDMUX_FABRIC_FIND_REGIONS : 0);
        CHECK_OK(
            rdmux_mr_register(shared.pair.fabric_b, bytes, LONG, RDMUX_ACCESS_LOCAL_WRITE, &mr));
        if (finds != 0) {
            CHECK_OK(rdmux_srq_recv(shared.srq, bytes, LONG, NULL, CONTEXT(0)));
        }
        struct link link = connect_over(&shared, "tcp");

        CHECK_STATUS(rdmux_srq_recv(shared.srq, bytes, LONG + 1, NULL, NULL), RDMUX_INVALID);
        CHECK_STATUS(rdmux_srq_recv(shared.srq, bytes, LONG, NULL, CONTEXT(1)),
                     finds != 0 ? RDMUX_OK : RDMUX_INVALID);

        assert_int_equal(device.shared_count, 2 * finds);
        for (size_t i = 0; i < device.shared_count; i++) {
            assert_ptr_equal(device.shared[i]->sges[0].addr, bytes);
            assert_ptr_equal(device.shared[i]->sges[0].mr->mr, mr);
        }
        close_link(&link);
        alarm(0);
        CHECK_OK(rdmux_srq_destroy(shared.srq));
        rdmux_mr_deregister(mr);
        close_pair(&shared.pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_holds_no_more_than_its_share),
        cmocka_unit_test(a_share_beyond_the_depth_is_refused),
        cmocka_unit_test(a_device_is_topped_up_as_its_receives_complete),
        cmocka_unit_test(a_device_is_topped_up_before_its_completions_are_returned),
        cmocka_unit_test(a_device_and_a_waiting_endpoint_take_turns),
        cmocka_unit_test(receives_of_a_device_without_endpoints_go_to_the_others),
        cmocka_unit_test(a_filled_receive_outlives_the_loan),
        cmocka_unit_test(reserved_receives_are_recalled_for_a_device_that_has_none),
        cmocka_unit_test(the_limit_counts_receives_that_a_device_holds),
        cmocka_unit_test(an_endpoint_that_moves_to_a_device_is_paused_no_longer),
        cmocka_unit_test(a_long_receive_without_region_uses_one_that_covers_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
