/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Several cqs that accept from one listener: none of them starves, and no connection is lost
 * between them. */
#include "api/accept/listener.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/loop/service.h"
#include "api/object/offer.h"
#include "api/setup/setup.h"
#include "negotiation/control_channel.h"
#include "negotiation/handshake_frames.h"
#include "tests/unit/api_pair.h"

#include <pthread.h>

/* A listener with two cqs that accept from it; cq_b is the first one. */
struct scene {
    struct pair pair;
    struct rdmux_cq *other;
};

static void set_scene(struct scene *scene, uint32_t other_depth)
{
    struct rdmux_cq_attr attr = RDMUX_CQ_ATTR_INIT;
    attr.depth = other_depth;
    open_sides(&scene->pair, "tcp", 0, 0);
    CHECK_OK(rdmux_cq_create(scene->pair.fabric_b, &attr, &scene->other));
}

static void clear_scene(struct scene *scene)
{
    CHECK_OK(rdmux_cq_destroy(scene->other));
    close_pair(&scene->pair);
}

/* Starts a connect, whose outcome the test takes later. */
static struct rdmux_ep *start_connect(struct pair *pair)
{
    struct rdmux_ep *ep = NULL;
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &ep),
                 RDMUX_IN_PROGRESS);
    return ep;
}

static void expect_connected(struct pair *pair, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        expect_entry(pair->cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
    }
}

/* Waits until `count` more connections wait at the listener. The caller has the service's lock, so
 * no thread takes them meanwhile. */
static void see_arrivals(struct pair *pair, size_t count)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (count > 0) {
        struct rdmux_peer peer = RDMUX_PEER_INIT;
        assert_true(now_ms() < until);
        rdmux_service_step(pair->fabric_b, 1);
        count -= rdmux_listener_next(pair->listener, 0, &peer) == RDMUX_OK;
    }
}

/* An accept call in a thread of its own. */
struct acceptor {
    struct rdmux_listener *listener;
    struct rdmux_cq *cq;
    pthread_t thread;
    enum rdmux_status status;
    struct rdmux_ep *ep;
};

static void *accept_here(void *argument)
{
    struct acceptor *acceptor = argument;
    acceptor->status = rdmux_accept(acceptor->listener, acceptor->cq, NULL, PATIENT_MS,
                                    &acceptor->ep);
    return NULL;
}

/* Waits until the accepting thread sleeps idle, after it was awake since `calls`. */
static void wait_until_asleep(struct rdmux_cq *cq, uint64_t calls)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (atomic_load(&cq->calls) == calls || atomic_load(&cq->claim.sleeping) == 0) {
        assert_true(now_ms() < until);
        pause_ms(1);
    }
}

static void start_accept(struct acceptor *acceptor, struct pair *pair, struct rdmux_cq *cq)
{
    *acceptor = (struct acceptor){ .listener = pair->listener, .cq = cq };
    uint64_t calls = atomic_load(&cq->calls);
    assert_int_equal(pthread_create(&acceptor->thread, NULL, accept_here, acceptor), 0);
    wait_until_asleep(cq, calls);
}

static struct rdmux_ep *finish_accept(struct acceptor *acceptor)
{
    assert_int_equal(pthread_join(acceptor->thread, NULL), 0);
    assert_string_equal(rdmux_status_name(acceptor->status), "RDMUX_OK");
    assert_ptr_equal(acceptor->ep->cq, acceptor->cq);
    return acceptor->ep;
}

/* Opens a connection that introduces itself and then sends nothing. */
static int stall(struct pair *pair)
{
    struct rdmux_hello hello;
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    size_t size = RDMUX_OFFER_BYTES_MAX;
    uint8_t *opening = malloc(RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE + size);
    assert_non_null(offer);
    assert_non_null(opening);
    rdmux_hello_fill(pair->fabric_a, &hello);
    rdmux_hello_encode(&hello, opening);
    rdmux_offer_defaults(pair->fabric_a, "tcp", offer);
    CHECK_OK(rdmux_offer_encode(offer, opening + RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE, &size));
    rdmux_frame_header_encode(RDMUX_FRAME_OFFER, 0, size, opening + RDMUX_HELLO_SIZE);
    int fd = dial_raw(pair->address);
    send_bytes(fd, opening, RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE + size);
    free(opening);
    free(offer);
    return fd;
}

static bool has_taken(const struct rdmux_cq *cq)
{
    return !rdmux_list_empty(&cq->lists.accepting);
}

/* -------------------------------------------------------------------------------------- sharing */

static void an_accept_leaves_a_connection_for_each_waiting_call(void **state)
{
    (void)state;
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct acceptor acceptor;
    struct rdmux_ep *none = NULL;
    set_scene(&scene, 0);
    start_accept(&acceptor, pair, scene.other);
    rdmux_service_lock(pair->fabric_b); /* the waiting call takes nothing before this one has */
    struct rdmux_ep *first = start_connect(pair);
    struct rdmux_ep *second = start_connect(pair);
    see_arrivals(pair, 2);

    CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, NULL, 0, &none), RDMUX_AGAIN);

    rdmux_service_unlock(pair->fabric_b);
    struct rdmux_ep *theirs = finish_accept(&acceptor);
    CHECK_OK(rdmux_accept(pair->listener, pair->cq_b, NULL, PATIENT_MS, &pair->b));
    expect_connected(pair, 2);
    CHECK_OK(rdmux_ep_close(theirs));
    CHECK_OK(rdmux_ep_close(first));
    CHECK_OK(rdmux_ep_close(second));
    clear_scene(&scene);
}

static void one_call_negotiates_all_connections_and_later_calls_of_its_cq_return_them(void **state)
{
    (void)state;
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_ep *connected[3];
    struct rdmux_ep *accepted[3];
    struct rdmux_ep *none = NULL;
    set_scene(&scene, 0);
    rdmux_service_lock(pair->fabric_b);
    for (size_t i = 0; i < RDMUX_COUNT_OF(connected); i++) {
        connected[i] = start_connect(pair);
    }
    see_arrivals(pair, RDMUX_COUNT_OF(connected));
    CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, NULL, 0, &none), RDMUX_AGAIN);
    rdmux_service_unlock(pair->fabric_b);

    expect_connected(pair, RDMUX_COUNT_OF(connected)); /* all are connected, no call is running */

    CHECK_STATUS(rdmux_accept(pair->listener, scene.other, NULL, 50, &none), RDMUX_TIMED_OUT);
    for (size_t i = 0; i < RDMUX_COUNT_OF(accepted); i++) {
        struct pollfd fd = { .fd = rdmux_listener_fd(pair->listener), .events = POLLIN };
        assert_int_equal(poll(&fd, 1, PATIENT_MS), 1);
        CHECK_OK(rdmux_accept(pair->listener, pair->cq_b, NULL, PATIENT_MS, &accepted[i]));
    }
    struct pollfd fd = { .fd = rdmux_listener_fd(pair->listener), .events = POLLIN };
    assert_int_equal(poll(&fd, 1, 0), 0);
    for (size_t i = 0; i < RDMUX_COUNT_OF(accepted); i++) {
        CHECK_OK(rdmux_ep_close(accepted[i]));
        CHECK_OK(rdmux_ep_close(connected[i]));
    }
    clear_scene(&scene);
}

static void a_call_with_a_connection_to_return_takes_no_other(void **state)
{
    (void)state;
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_ep *none = NULL;
    struct rdmux_ep *theirs = NULL;
    set_scene(&scene, 0);
    struct rdmux_ep *first = start_connect(pair);
    rdmux_service_lock(pair->fabric_b);
    see_arrivals(pair, 1);
    CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, NULL, 0, &none), RDMUX_AGAIN);
    rdmux_service_unlock(pair->fabric_b);
    struct pollfd fd = { .fd = rdmux_listener_fd(pair->listener), .events = POLLIN };
    assert_int_equal(poll(&fd, 1, PATIENT_MS), 1); /* it is proved */
    struct rdmux_ep *second = start_connect(pair);
    rdmux_service_lock(pair->fabric_b);
    see_arrivals(pair, 1);
    rdmux_service_unlock(pair->fabric_b);

    CHECK_OK(rdmux_accept(pair->listener, pair->cq_b, NULL, 0, &pair->b));

    assert_false(has_taken(pair->cq_b));
    CHECK_OK(rdmux_accept(pair->listener, scene.other, NULL, PATIENT_MS, &theirs));
    expect_connected(pair, 2);
    CHECK_OK(rdmux_ep_close(theirs));
    CHECK_OK(rdmux_ep_close(first));
    CHECK_OK(rdmux_ep_close(second));
    clear_scene(&scene);
}

static void a_connection_left_for_a_waiting_call_is_free_once_that_call_ends(void **state)
{
    (void)state;
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct acceptor acceptor;
    set_scene(&scene, 0);
    start_accept(&acceptor, pair, pair->cq_b);
    uint64_t calls = atomic_load(&pair->cq_b->calls);
    int stalled = stall(pair);
    wait_until_asleep(pair->cq_b, calls);
    struct rdmux_accept_wait idle = { .cq = scene.other, .has_none = true };
    rdmux_listener_wait_begin(pair->listener, &idle);
    calls = atomic_load(&pair->cq_b->calls);
    struct rdmux_ep *late = start_connect(pair);
    wait_until_asleep(pair->cq_b, calls); /* it has looked, and has left the connection alone */
    rdmux_service_lock(pair->fabric_b);
    see_arrivals(pair, 1);
    rdmux_service_unlock(pair->fabric_b);

    rdmux_listener_wait_end(pair->listener, &idle);

    pair->b = finish_accept(&acceptor);
    expect_connected(pair, 1);
    CHECK_OK(rdmux_ep_close(late));
    close(stalled);
    clear_scene(&scene);
}

static void an_endpoint_has_the_user_of_the_call_that_returns_it(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_ep *connected[2];
    struct rdmux_ep *accepted[RDMUX_COUNT_OF(connected)];
    struct rdmux_ep *none = NULL;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    open_sides(&pair, "tcp", 0, 0);
    rdmux_service_lock(pair.fabric_b);
    for (size_t i = 0; i < RDMUX_COUNT_OF(connected); i++) {
        connected[i] = start_connect(&pair);
    }
    see_arrivals(&pair, RDMUX_COUNT_OF(connected));
    attr.user = CONTEXT(99); /* of a call that takes both and returns none */
    CHECK_STATUS(rdmux_accept(pair.listener, pair.cq_b, &attr, 0, &none), RDMUX_AGAIN);
    rdmux_service_unlock(pair.fabric_b);
    expect_connected(&pair, RDMUX_COUNT_OF(connected));

    for (size_t i = 0; i < RDMUX_COUNT_OF(accepted); i++) {
        attr.user = CONTEXT(i);
        CHECK_OK(rdmux_accept(pair.listener, pair.cq_b, &attr, PATIENT_MS, &accepted[i]));
    }

    for (size_t i = 0; i < RDMUX_COUNT_OF(accepted); i++) {
        assert_ptr_equal(rdmux_ep_user(accepted[i]), CONTEXT(i));
        CHECK_OK(rdmux_ep_close(accepted[i]));
        CHECK_OK(rdmux_ep_close(connected[i]));
    }
    close_pair(&pair);
}

/* Returns the only connection that the cq has taken. */
static struct rdmux_ep *taken_by(struct rdmux_cq *cq)
{
    assert_true(has_taken(cq));
    assert_ptr_equal(cq->lists.accepting.next, cq->lists.accepting.prev);
    return RDMUX_CONTAINER(cq->lists.accepting.next, struct rdmux_ep, places.accepting);
}

/* Progresses both sides of a pair without threads in turn, until b has sent the last message that a
 * waits for. a has not read it. */
static struct rdmux_ep *bring_to_commit(struct pair *pair)
{
    struct rdmux_ep *none = NULL;
    struct rdmux_wc wc;
    uint64_t until = now_ms() + PATIENT_MS;
    for (;;) {
        assert_true(now_ms() < until);
        CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, NULL, 0, &none), RDMUX_AGAIN);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
        if (has_taken(pair->cq_b) && rdmux_setup_is_committed(taken_by(pair->cq_b))) {
            return taken_by(pair->cq_b);
        }
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1), 0);
    }
}

/* The message that the connector is connected has arrived unread, when another connection arrives
 * that this call could take, with attributes meant for another. */
static void bytes_of_a_committed_connector_are_read_before_another_connection_is_taken(void **state)
{
    (void)state;
    enum { MANUAL = RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD };
    struct pair pair;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    open_sides(&pair, "tcp", MANUAL, MANUAL);
    pair.a = start_connect(&pair);
    struct rdmux_ep *first = bring_to_commit(&pair);
    int stalled = stall(&pair); /* queues after it */
    CHECK_OK(rdmux_listener_next(pair.listener, PATIENT_MS, &peer));
    expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
    struct pollfd said = { .fd = rdmux_channel_socket(first->channel), .events = POLLIN };
    assert_int_equal(poll(&said, 1, PATIENT_MS), 1);

    CHECK_OK(rdmux_accept(pair.listener, pair.cq_b, NULL, PATIENT_MS, &pair.b));

    assert_ptr_equal(pair.b, first);
    assert_false(has_taken(pair.cq_b));
    close(stalled);
    close_pair(&pair);
}

/* ------------------------------------------------------------------------------ nothing is lost */

static void a_connection_without_room_in_the_cq_stays_for_other_calls(void **state)
{
    (void)state;
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_ep *none = NULL;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep_attr named = RDMUX_EP_ATTR_INIT;
    set_scene(&scene, 3); /* less than any endpoint's depths */
    pair->a = start_connect(pair);
    CHECK_OK(rdmux_listener_next(pair->listener, PATIENT_MS, &peer));
    named.peer = peer.id;

    CHECK_STATUS(rdmux_accept(pair->listener, scene.other, NULL, PATIENT_MS, &none),
                 RDMUX_NO_MEMORY);
    assert_non_null(strstr(rdmux_last_error(), "depth"));
    CHECK_STATUS(rdmux_accept(pair->listener, scene.other, &named, PATIENT_MS, &none),
                 RDMUX_NO_MEMORY);
    assert_non_null(strstr(rdmux_last_error(), "depth"));

    CHECK_OK(rdmux_accept(pair->listener, pair->cq_b, &named, PATIENT_MS, &pair->b));
    expect_connected(pair, 1);
    clear_scene(&scene);
}

static void a_connection_stays_when_the_attributes_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_ep *none = NULL;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    attr.local = "no-such-device";
    set_scene(&scene, 0);
    pair->a = start_connect(pair);
    CHECK_OK(rdmux_listener_next(pair->listener, PATIENT_MS, &peer));

    CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, &attr, PATIENT_MS, &none), RDMUX_INVALID);

    assert_non_null(strstr(rdmux_last_error(), "no-such-device"));
    CHECK_OK(rdmux_accept(pair->listener, pair->cq_b, NULL, PATIENT_MS, &pair->b));
    expect_connected(pair, 1);
    clear_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_accept_leaves_a_connection_for_each_waiting_call),
        cmocka_unit_test(one_call_negotiates_all_connections_and_later_calls_of_its_cq_return_them),
        cmocka_unit_test(a_call_with_a_connection_to_return_takes_no_other),
        cmocka_unit_test(a_connection_left_for_a_waiting_call_is_free_once_that_call_ends),
        cmocka_unit_test(an_endpoint_has_the_user_of_the_call_that_returns_it),
        cmocka_unit_test(bytes_of_a_committed_connector_are_read_before_another_connection_is_taken),
        cmocka_unit_test(a_connection_without_room_in_the_cq_stays_for_other_calls),
        cmocka_unit_test(a_connection_stays_when_the_attributes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
