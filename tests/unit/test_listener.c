/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Listeners and valid connections: those that stall or fail during the handshake, and which
 * connection is shown, taken or rejected, and when. */
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/object/offer.h"
#include "tcp_fallback/tcp_frame.h"
#include "tests/unit/listener_scene.h"

#include <errno.h>

/* --------------------------------------------------------------------------------------- stalls */

/* Where a connector falls silent. */
enum stop {
    AFTER_OPENING,
    AFTER_RANKING,
    AFTER_TRY,
    AFTER_READY,
    AFTER_JOIN,
    AFTER_UP,
    STOP_COUNT,
};

/* A connector written by hand, for the tcp path. */
struct client {
    struct scene *scene;
    int fd;
    int data_fd;
    void *memory;
    struct rdmux_handshake *handshake;
    uint8_t frame[RDMUX_FRAME_HEADER_SIZE + RDMUX_FRAME_PAYLOAD_MAX];
};

/* Reads a whole frame, while the acceptor progresses. Returns its type, 0 for HELLO. */
static uint8_t read_frame(struct client *client, bool first)
{
    size_t have = 0;
    uint64_t until = now_ms() + PATIENT_MS;
    for (;;) {
        bool bad = false;
        size_t total = rdmux_frame_total(client->frame, have, first, &bad);
        assert_false(bad);
        if (total != 0 && have == total) {
            rdmux_handshake_frame(client->handshake, client->frame, total, now_ms() * 1000000);
            return first ? 0 : client->frame[0];
        }
        size_t want = total == 0 ? RDMUX_FRAME_HEADER_SIZE : total;
        ssize_t got = recv(client->fd, client->frame + have, want - have, MSG_DONTWAIT);
        if (got > 0) {
            have += (size_t)got;
            continue;
        }
        assert_true(got < 0 && errno == EAGAIN && now_ms() < until);
        struct rdmux_ep *none = NULL;
        CHECK_STATUS(
            rdmux_accept(client->scene->pair.listener, client->scene->pair.cq_b, NULL, 1, &none),
            RDMUX_TIMED_OUT);
    }
}

static void join(struct client *client, uint32_t attempt)
{
    struct rdmux_join join = { .epoch = 1, .attempt = attempt };
    uint8_t bytes[RDMUX_JOIN_SIZE];
    memcpy(join.secret, rdmux_handshake_granted(client->handshake)->secret, sizeof(join.secret));
    rdmux_join_encode(&join, bytes);
    client->data_fd = dial_raw(client->scene->pair.address);
    send_bytes(client->data_fd, bytes, sizeof(bytes));
}

static void go_until(struct client *client, enum stop stop)
{
    static const uint8_t description[TCP_DESCRIPTION_SIZE] = { TCP_VERSION, 1, 0, 1 };
    bool first = true;
    for (;;) {
        struct rdmux_handshake_action action;
        rdmux_handshake_next(client->handshake, &action);
        uint8_t type = 0;
        switch (action.kind) {
        case RDMUX_ACTION_SEND:
            send_bytes(client->fd, action.bytes, action.size);
            type = action.bytes[0];
            if (type == RDMUX_FRAME_READY && stop >= AFTER_UP) {
                rdmux_handshake_result(client->handshake, RDMUX_ACTION_CONNECT, action.attempt,
                                       RDMUX_OK, RDMUX_REASON_NONE, "", description,
                                       sizeof(description), now_ms() * 1000000);
            }
            break;
        case RDMUX_ACTION_NONE:
            if (stop == AFTER_OPENING) {
                return;
            }
            type = read_frame(client, first);
            first = false;
            break;
        case RDMUX_ACTION_OPEN:
            rdmux_handshake_result(client->handshake, action.kind, action.attempt, RDMUX_OK,
                                   RDMUX_REASON_NONE, "", description, sizeof(description),
                                   now_ms() * 1000000);
            break;
        case RDMUX_ACTION_CONNECT:
            if (stop >= AFTER_JOIN) {
                join(client, action.attempt);
            }
            break;
        default:
            fail_msg("the handshake wants %d", (int)action.kind);
        }
        if ((stop == AFTER_RANKING && type == RDMUX_FRAME_RANKING) ||
            (stop == AFTER_TRY && type == RDMUX_FRAME_TRY) ||
            (stop <= AFTER_JOIN && type == RDMUX_FRAME_READY) ||
            (stop == AFTER_UP && type == RDMUX_FRAME_UP)) {
            return;
        }
    }
}

static void stall(struct client *client, struct scene *scene, enum stop stop)
{
    client->scene = scene;
    client->fd = dial_raw(scene->pair.address);
    client->data_fd = -1;
    client->memory = calloc(1, rdmux_handshake_size());
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    assert_non_null(client->memory);
    assert_non_null(offer);
    rdmux_offer_defaults(scene->pair.fabric_a, "tcp", offer);
    struct rdmux_handshake_config config = { .role = RDMUX_ROLE_CONNECT,
                                             .hello_timeout_ms = UINT32_MAX,
                                             .offer = offer };
    rdmux_hello_fill(scene->pair.fabric_a, &config.hello);
    CHECK_OK(rdmux_handshake_init(client->memory, &config, now_ms() * 1000000, &client->handshake));
    free(offer);
    go_until(client, stop);
}

static void leave(struct client *client)
{
    close(client->fd);
    if (client->data_fd >= 0) {
        close(client->data_fd);
    }
    free(client->memory);
}

static void a_connector_that_stalls_at_any_stage_delays_no_other(void **state)
{
    (void)state;
    struct scene *scene = set_scene(NULL);
    struct client *clients = calloc(STOP_COUNT, sizeof(*clients));
    assert_non_null(clients);
    for (int stop = AFTER_OPENING; stop < STOP_COUNT; stop++) {
        stall(&clients[stop], scene, (enum stop)stop);

        check_good_connection(&scene->pair); /* beside all that have stalled so far */
    }
    for (int stop = AFTER_OPENING; stop < STOP_COUNT; stop++) {
        leave(&clients[stop]);
        check_good_connection(&scene->pair);
    }
    free(clients);
    clear_scene(scene);
}

static void a_stalled_connector_is_given_up_after_the_path_timeout(void **state)
{
    (void)state;
    struct scene *scene = set_scene(NULL);
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.path_timeout_ms = 200;
    struct client *client = calloc(1, sizeof(*client));
    assert_non_null(client);
    stall(client, scene, AFTER_OPENING);
    struct rdmux_ep *none = NULL;
    uint64_t begin = now_ms();

    /* 200 ms for the peer's READY, 200 ms for its FAILED. */
    while (!is_dropped(client->fd, 0) && now_ms() - begin < PATIENT_MS) {
        CHECK_STATUS(rdmux_accept(scene->pair.listener, scene->pair.cq_b, &attr, 10, &none),
                     RDMUX_TIMED_OUT);
    }

    assert_true(now_ms() - begin < PATIENT_MS);
    assert_true(now_ms() - begin >= 180);
    leave(client);
    free(client);
    clear_scene(scene);
}

static void connections_that_fail_during_one_accept_leave_nothing_behind(void **state)
{
    (void)state;
    enum { ROUNDS = 200, WARM_UP = 20 };
    struct scene *scene = set_scene(NULL);
    uint8_t *opening = malloc(OPENING_MAX);
    assert_non_null(opening);
    size_t opening_size = make_opening(scene->pair.fabric_a, opening);
    opening[11] = 9; /* versions 9 to 9: dropped only after it was taken */
    opening[9] = 9;
    size_t before = 0;
    for (size_t i = 0; i < ROUNDS; i++) {
        int fd = dial_raw(scene->pair.address);
        send_bytes(fd, opening, opening_size);
        while (!is_dropped(fd, 0)) {
            struct rdmux_ep *none = NULL;
            CHECK_STATUS(rdmux_accept(scene->pair.listener, scene->pair.cq_b, NULL, 1, &none),
                         RDMUX_TIMED_OUT);
        }
        close(fd);
        before = i == WARM_UP ? atomic_load(&scene->meter.pieces) : before;
    }

    assert_true(atomic_load(&scene->meter.pieces) <= before + 20);
    check_good_connection(&scene->pair);
    free(opening);
    clear_scene(scene);
}

/* --------------------------------------------------------------------------- showing and taking */

static bool is_readable(int fd)
{
    struct pollfd look = { .fd = fd, .events = POLLIN };
    return poll(&look, 1, 0) > 0;
}

static bool becomes_readable(int fd)
{
    struct pollfd look = { .fd = fd, .events = POLLIN };
    return poll(&look, 1, PATIENT_MS) > 0;
}

static void connections_are_shown_once_and_oldest_first_with_their_private_data(void **state)
{
    (void)state;
    struct pair pair;
    open_sides(&pair, "tcp", 0, 0);
    int fd = rdmux_listener_fd(pair.listener);
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    CHECK_STATUS(rdmux_listener_next(pair.listener, 0, &peer), RDMUX_AGAIN);
    CHECK_STATUS(rdmux_listener_next(pair.listener, 20, &peer), RDMUX_TIMED_OUT);
    assert_false(is_readable(fd));
    struct rdmux_ep *eps[3];
    uint64_t ids[3] = { 0 };
    for (uint32_t i = 0; i < 3; i++) {
        char private_data[] = { 'n', (char)('0' + i) };
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        attr.private_data = private_data;
        attr.private_length = sizeof(private_data);
        CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, &attr, 0, &eps[i]),
                     RDMUX_IN_PROGRESS);
        private_data[0] = 'x'; /* copied */
        assert_true(becomes_readable(fd));

        CHECK_OK(rdmux_listener_next(pair.listener, PATIENT_MS, &peer));

        assert_int_equal(peer.private_length, 2);
        assert_int_equal(peer.private_data[0], 'n');
        assert_int_equal(peer.private_data[1], '0' + i);
        assert_memory_equal(peer.address, "127.0.0.1:", 10);
        assert_string_equal(peer.identity, "");
        assert_int_not_equal(peer.id, 0);
        ids[i] = peer.id;
        assert_false(is_readable(fd));
        CHECK_STATUS(rdmux_listener_next(pair.listener, 0, &peer), RDMUX_AGAIN);
    }
    assert_true(ids[0] != ids[1] && ids[1] != ids[2]);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(rdmux_ep_close(eps[i]));
    }
    close_pair(&pair);
}

static void accept_takes_the_connection_it_names(void **state)
{
    (void)state;
    struct pair pair;
    open_sides(&pair, "tcp", 0, 0);
    struct rdmux_ep *eps[2];
    struct rdmux_peer peers[2] = { RDMUX_PEER_INIT, RDMUX_PEER_INIT };
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &eps[i]),
                     RDMUX_IN_PROGRESS);
        CHECK_OK(rdmux_listener_next(pair.listener, PATIENT_MS, &peers[i]));
    }
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.peer = peers[1].id;

    CHECK_OK(rdmux_accept(pair.listener, pair.cq_b, &attr, PATIENT_MS, &pair.b));

    struct rdmux_wc wc = expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
    assert_ptr_equal(wc.ep, eps[1]);
    struct rdmux_ep *again = NULL;
    CHECK_STATUS(rdmux_accept(pair.listener, pair.cq_b, &attr, PATIENT_MS, &again), RDMUX_INVALID);
    assert_null(again);
    CHECK_STATUS(rdmux_reject(pair.listener, peers[1].id, 1, NULL, 0), RDMUX_INVALID);
    CHECK_OK(rdmux_reject(pair.listener, peers[0].id, 1, NULL, 0));
    wc = expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_REFUSED);
    assert_ptr_equal(wc.ep, eps[0]);
    check_message(eps[1], pair.cq_a, pair.b, pair.cq_b, 3);
    CHECK_OK(rdmux_ep_close(eps[0]));
    CHECK_OK(rdmux_ep_close(eps[1]));
    close_pair(&pair);
}

static void the_descriptor_is_readable_until_a_proved_connection_is_returned(void **state)
{
    (void)state;
    struct pair pair;
    open_sides(&pair, "tcp", 0, 0);
    int fd = rdmux_listener_fd(pair.listener);
    struct rdmux_ep *none = NULL;
    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &pair.a),
                 RDMUX_IN_PROGRESS);
    assert_true(becomes_readable(fd));

    enum rdmux_status status = rdmux_accept(pair.listener, pair.cq_b, NULL, 0,
                                            &none); /* takes it, negotiation begins */

    CHECK_STATUS(status, RDMUX_AGAIN);
    expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_OK); /* the service thread did b's part */
    assert_true(becomes_readable(fd));
    CHECK_OK(rdmux_accept(pair.listener, pair.cq_b, NULL, 0, &pair.b));
    assert_false(is_readable(fd));
    check_messages(&pair);
    close_pair(&pair);
}

static void a_proved_connection_whose_peer_left_is_returned_with_its_end(void **state)
{
    (void)state;
    static const char *const all_paths[] = { "tcp", "shm" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_sides(&pair, all_paths[i], 0, 0);
        int fd = rdmux_listener_fd(pair.listener);
        struct rdmux_ep *none = NULL;
        struct rdmux_ep *gone = NULL;
        struct rdmux_ep *returned = NULL;
        CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &gone),
                     RDMUX_IN_PROGRESS);
        assert_true(becomes_readable(fd));
        CHECK_STATUS(rdmux_accept(pair.listener, pair.cq_b, NULL, 0, &none), RDMUX_AGAIN);
        expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);

        CHECK_OK(rdmux_ep_close(gone));

        CHECK_OK(rdmux_accept(pair.listener, pair.cq_b, NULL, PATIENT_MS, &returned));
        assert_ptr_equal(expect_entry(pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE).ep,
                         returned);
        assert_false(is_readable(fd));
        CHECK_OK(rdmux_ep_close(returned));
        connect_more(&pair, NULL, &pair.a, &pair.b);
        check_messages(&pair);
        close_pair(&pair);
    }
}

static void a_rejected_connector_learns_the_reason(void **state)
{
    (void)state;
    struct pair pair;
    open_sides(&pair, "tcp", 0, 0);
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &pair.a),
                 RDMUX_IN_PROGRESS);
    CHECK_OK(rdmux_listener_next(pair.listener, PATIENT_MS, &peer));
    uint8_t data[RDMUX_PRIVATE_DATA_MAX + 1] = { 0 };
    CHECK_STATUS(rdmux_reject(pair.listener, peer.id, 42, data, sizeof(data)), RDMUX_INVALID);
    CHECK_STATUS(rdmux_reject(pair.listener, peer.id, 42, NULL, 1), RDMUX_INVALID);
    CHECK_STATUS(rdmux_reject(pair.listener, 0, 42, NULL, 0), RDMUX_INVALID);
    CHECK_STATUS(rdmux_reject(NULL, peer.id, 42, NULL, 0), RDMUX_INVALID);

    CHECK_OK(rdmux_reject(pair.listener, peer.id, 42, data, RDMUX_PRIVATE_DATA_MAX));

    expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_REFUSED);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(pair.a, &info));
    assert_int_equal(info.reject_reason, 42);
    assert_int_equal(info.status, RDMUX_REFUSED);
    assert_int_equal(info.state, RDMUX_EP_ENDED);
    assert_non_null(strstr(info.text, "42"));
    assert_int_equal(counts_of(pair.fabric_b).rejected, 1);
    assert_int_equal(counts_of(pair.fabric_a).setups_failed, 1);
    close_pair(&pair);
}

static void a_connection_that_left_before_accept_is_gone(void **state)
{
    (void)state;
    struct pair pair;
    open_sides(&pair, "tcp", 0, 0);
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep *ep = NULL;
    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &ep),
                 RDMUX_IN_PROGRESS);
    CHECK_OK(rdmux_listener_next(pair.listener, PATIENT_MS, &peer));
    CHECK_OK(rdmux_ep_close(ep));
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.peer = peer.id;
    struct rdmux_ep *none = NULL;

    enum rdmux_status status = rdmux_accept(pair.listener, pair.cq_b, &attr, PATIENT_MS, &none);

    assert_true(status == RDMUX_INVALID ||
                status == RDMUX_PEER_GONE); /* whether the listener has seen it yet or not */
    assert_null(none);
    close_pair(&pair);
}

static void wrong_options_are_refused_and_those_of_an_older_program_work(void **state)
{
    (void)state;
    struct rdmux_fabric *fabric = open_fabric(NULL, 0, NULL);
    struct rdmux_listener *listener = NULL;
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.flags = 1;
    CHECK_STATUS(rdmux_listen(fabric, "127.0.0.1:0", &attr, &listener), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "flags"));
    attr.flags = 0;
    attr.paths = "!";
    CHECK_STATUS(rdmux_listen(fabric, "127.0.0.1:0", &attr, &listener), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "paths"));
    attr.size = 4;
    CHECK_STATUS(rdmux_listen(fabric, "127.0.0.1:0", &attr, &listener), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "size"));
    assert_null(listener);

    attr.size = offsetof(struct rdmux_listen_attr, paths); /* the later fields are not read */

    CHECK_OK(rdmux_listen(fabric, "127.0.0.1:0", &attr, &listener));
    char text[RDMUX_ADDRESS_MAX];
    CHECK_STATUS(rdmux_listener_address(listener, text, sizeof(text) - 1), RDMUX_INVALID);
    CHECK_STATUS(rdmux_listener_address(listener, NULL, sizeof(text)), RDMUX_INVALID);
    CHECK_STATUS(rdmux_listener_next(listener, -2, NULL), RDMUX_INVALID);
    CHECK_STATUS(rdmux_fabric_close(fabric), RDMUX_INVALID);
    rdmux_listener_close(listener);
    CHECK_OK(rdmux_fabric_close(fabric));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connector_that_stalls_at_any_stage_delays_no_other),
        cmocka_unit_test(a_stalled_connector_is_given_up_after_the_path_timeout),
        cmocka_unit_test(connections_that_fail_during_one_accept_leave_nothing_behind),
        cmocka_unit_test(connections_are_shown_once_and_oldest_first_with_their_private_data),
        cmocka_unit_test(accept_takes_the_connection_it_names),
        cmocka_unit_test(the_descriptor_is_readable_until_a_proved_connection_is_returned),
        cmocka_unit_test(a_proved_connection_whose_peer_left_is_returned_with_its_end),
        cmocka_unit_test(a_rejected_connector_learns_the_reason),
        cmocka_unit_test(a_connection_that_left_before_accept_is_gone),
        cmocka_unit_test(wrong_options_are_refused_and_those_of_an_older_program_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
