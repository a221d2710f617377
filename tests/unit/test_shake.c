/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Scheduling of the handshakes of pending connections: whose turn it is, which thread runs it, and
 * whom it delays. The test holds up steps, so that it sees the order and times nothing. */
#include "api/accept/listener.h"
#include "api/accept/pending_connection.h"
#include "api/accept/shake.h"
#include "api/accept/turns.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/loop/service.h"
#include "api/object/offer.h"
#include "negotiation/tls_internal.h"
#include "tests/unit/auth_scene.h"
#include "tests/unit/listener_scene.h"

#include "tests/unit/descriptors.h"

#include <netinet/in.h>

/* -------------------------------------------------------------------------------- turns by time */

/* Takes `turns` turns, each of which costs cost[i] of its source, and counts those of each in
 * had[]. */
static void take_turns(struct rdmux_turn *turn[], const uint64_t cost[], size_t count, size_t turns,
                       size_t had[])
{
    struct rdmux_turns all;
    rdmux_turns_init(&all);
    for (size_t i = 0; i < count; i++) {
        memset(turn[i], 0, sizeof(*turn[i]));
        rdmux_turn_init(turn[i]);
        rdmux_turns_enter(&all, turn[i]);
        had[i] = 0;
    }
    for (size_t i = 0; i < turns; i++) {
        const struct rdmux_turn *next = rdmux_turns_next(&all);
        for (size_t which = 0; which < count; which++) {
            if (next == turn[which]) {
                had[which]++;
                rdmux_turns_charge(&all, turn[which], cost[which]);
            }
        }
    }
}

static void expensive_work_gets_equal_time_and_not_equal_turns(void **state)
{
    static const uint64_t cost[] = { 26, 4, 1 };
    struct rdmux_turn turns[3];
    struct rdmux_turn *each[] = { &turns[0], &turns[1], &turns[2] };
    size_t had[3];
    (void)state;

    take_turns(each, cost, 3, (size_t)3 * (26 + 4 + 1) * 4, had);

    for (size_t i = 1; i < 3; i++) {
        assert_in_range(had[i] * cost[i], had[0] * cost[0] - cost[0], had[0] * cost[0] + cost[0]);
    }
}

static void a_newcomer_has_no_saved_up_time(void **state)
{
    struct rdmux_turns all;
    struct rdmux_turn old = { .used_ns = 0 };
    struct rdmux_turn newcomer = { .used_ns = 0 };
    (void)state;
    rdmux_turns_init(&all);
    rdmux_turn_init(&old);
    rdmux_turn_init(&newcomer);
    assert_null(rdmux_turns_next(&all));
    rdmux_turns_enter(&all, &old);
    for (int i = 0; i < 100; i++) {
        assert_ptr_equal(rdmux_turns_next(&all), &old);
        rdmux_turns_charge(&all, &old, 1000);
    }

    rdmux_turns_enter(&all, &newcomer);

    assert_ptr_equal(rdmux_turns_next(&all), &newcomer); /* it is next, */
    rdmux_turns_charge(&all, &newcomer, 1500);
    assert_ptr_equal(rdmux_turns_next(&all), &old); /* and no more than that */
    rdmux_turns_leave(&old);
    rdmux_turns_leave(&newcomer);
    assert_null(rdmux_turns_next(&all));
}

/* ------------------------------------------------------------------------------- steps, held up */

enum { STEPS_MAX = 1024 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closed; /* steps wait */
    size_t queued;
    size_t begun;
    size_t done;
    uint32_t from[STEPS_MAX]; /* addresses, in the order in which their steps began */
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

enum rdmux_status __real_rdmux_tls_step(struct rdmux_tls *tls);
enum rdmux_status __wrap_rdmux_tls_step(struct rdmux_tls *tls);
bool __real_rdmux_shake_queue(struct rdmux_shake *shake, struct rdmux_shake_source *source);
bool __wrap_rdmux_shake_queue(struct rdmux_shake *shake, struct rdmux_shake_source *source);

enum rdmux_status __wrap_rdmux_tls_step(struct rdmux_tls *tls)
{
    struct sockaddr_in peer = { .sin_family = AF_INET };
    socklen_t length = sizeof(peer);
    (void)getpeername(tls->socket, (struct sockaddr *)&peer, &length);
    pthread_mutex_lock(&gate.lock);
    if (gate.begun < STEPS_MAX) {
        gate.from[gate.begun] = ntohl(peer.sin_addr.s_addr);
    }
    gate.begun++;
    pthread_cond_broadcast(&gate.changed);
    while (gate.closed) {
        pthread_cond_wait(&gate.changed, &gate.lock);
    }
    pthread_mutex_unlock(&gate.lock);
    enum rdmux_status status = __real_rdmux_tls_step(tls);
    pthread_mutex_lock(&gate.lock);
    gate.done++;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    return status;
}

bool __wrap_rdmux_shake_queue(struct rdmux_shake *shake, struct rdmux_shake_source *source)
{
    bool queued = __real_rdmux_shake_queue(shake, source);
    pthread_mutex_lock(&gate.lock);
    gate.queued++;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    return queued;
}

static void set_gate(bool closed)
{
    pthread_mutex_lock(&gate.lock);
    gate.closed = closed;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

/* Waits until so many have been counted. */
static void await_count(const size_t *counter, size_t count)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENT_MS / 1000;
    pthread_mutex_lock(&gate.lock);
    while (*counter < count) {
        assert_int_equal(pthread_cond_timedwait(&gate.changed, &gate.lock, &until), 0);
    }
    pthread_mutex_unlock(&gate.lock);
}

static struct rdmux_fabric_auth keys(char file[FILE_NAME_MAX])
{
    return psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
}

/* Encodes the first bytes of a connector with a key, before it has received any. */
static size_t make_opening_of_tls(struct rdmux_fabric *fabric, uint8_t out[2048])
{
    int sockets[2];
    struct rdmux_tls *tls = NULL;
    struct rdmux_hello hello;
    uint8_t bytes[RDMUX_HELLO_SIZE];
    size_t done = 0;
    rdmux_hello_fill(fabric, &hello);
    rdmux_hello_encode(&hello, bytes);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
    CHECK_OK(rdmux_tls_create(fabric->auth, RDMUX_ROLE_CONNECT, sockets[0], NULL, &tls));
    CHECK_STATUS(rdmux_tls_send(tls, bytes, sizeof(bytes), &done), RDMUX_AGAIN);
    ssize_t got = recv(sockets[1], out, 2048, 0);
    assert_in_range(got, RDMUX_HELLO_SIZE + 1, 2047);
    rdmux_tls_destroy(tls);
    close(sockets[0]);
    close(sockets[1]);
    return (size_t)got;
}

static int begin_handshake(struct pair *pair, const char *from)
{
    uint8_t opening[2048];
    size_t size = make_opening_of_tls(pair->fabric_a, opening);
    int fd = dial_from(pair->address, from);
    send_bytes(fd, opening, size);
    return fd;
}

static void open_sides_with_keys(struct pair *pair)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys(file);
    memset(&gate.queued, 0, sizeof(gate) - offsetof(__typeof__(gate), queued));
    open_auth_sides(pair, "tcp", &auth, &auth, NULL);
}

static void an_address_with_one_handshake_is_next_after_an_address_with_many(void **state)
{
    enum { MANY = 8, FIRST = 1 };
    struct pair pair;
    int fds[MANY + 1];
    (void)state;
    open_sides_with_keys(&pair);
    set_gate(true);
    fds[0] = begin_handshake(&pair, "127.0.0.2");
    await_count(&gate.begun, FIRST); /* it is held up */
    for (size_t i = 1; i < MANY; i++) {
        fds[i] = begin_handshake(&pair, "127.0.0.2");
    }
    await_count(&gate.queued, MANY);
    fds[MANY] = begin_handshake(&pair, "127.0.0.1");
    await_count(&gate.queued, MANY + 1);

    set_gate(false);

    await_count(&gate.done, MANY + 1);
    for (size_t i = 0; i < MANY + 1; i++) {
        assert_int_equal(gate.from[i], i == FIRST ? INADDR_LOOPBACK : INADDR_LOOPBACK + 1);
        close(fds[i]);
    }
    close_pair(&pair);
}

/* The service thread owns the cq, as its program is away. */
static void a_handshake_under_way_delays_no_other_call(void **state)
{
    static uint8_t region[64];
    static const uint8_t word[] = "ahoy";
    struct pair pair;
    struct rdmux_mr *mr = NULL;
    (void)state;
    open_sides_with_keys(&pair);
    connect_more(&pair, NULL, &pair.a, &pair.b);
    CHECK_OK(rdmux_mr_register(pair.fabric_b, region, sizeof(region),
                               RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE, &mr));
    struct rdmux_remote *remote = import_region(pair.a, mr);
    size_t begun = gate.begun;
    set_gate(true);
    int fd = begin_handshake(&pair, "127.0.0.2");
    await_count(&gate.begun, begun + 1);

    CHECK_OK(rdmux_write(pair.a, word, sizeof(word), NULL, remote, 0, NULL, RDMUX_PLACED));
    expect_entry(pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);

    assert_memory_equal(region, word, sizeof(word));
    set_gate(false);
    close(fd);
    rdmux_remote_close(remote);
    rdmux_mr_deregister(mr);
    close_pair(&pair);
}

static void a_listener_closes_while_a_handshake_is_under_way(void **state)
{
    enum { QUEUED = 3 };
    struct pair pair;
    int fds[QUEUED];
    (void)state;
    open_sides_with_keys(&pair);
    set_gate(true);
    for (size_t i = 0; i < QUEUED; i++) {
        fds[i] = begin_handshake(&pair, "127.0.0.2");
    }
    await_count(&gate.queued, QUEUED);
    await_count(&gate.begun, 1);

    rdmux_listener_close(pair.listener);

    pair.listener = NULL;
    for (size_t i = 0; i < QUEUED; i++) {
        assert_true(is_dropped(fds[i], PATIENT_MS)); /* including the handshake in progress */
        close(fds[i]);
    }
    assert_int_equal(gate.done, 0);
    set_gate(false);
    close_pair(&pair);
    assert_int_equal(gate.begun, 1); /* the others never began */
}

/* As in api/accept/sessions.c. */
enum { PLACES = 512, IDLE_MS = 250 };

static _Atomic uint64_t stopped_clock_ns = 1;

static uint64_t read_stopped_clock(void *user)
{
    (void)user;
    return atomic_load(&stopped_clock_ns);
}

/* The accepting side's clock stands still. */
static void open_sides_without_time(struct pair *pair)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys(file);
    struct rdmux_fabric_attr attr = attr_with("tcp", &auth, NULL, NULL);
    open_sides_with_keys(pair);
    rdmux_listener_close(pair->listener);
    CHECK_OK(rdmux_cq_destroy(pair->cq_b));
    CHECK_OK(rdmux_fabric_close(pair->fabric_b));
    attr.clock_ns = read_stopped_clock;
    CHECK_OK(rdmux_fabric_open(&attr, &pair->fabric_b));
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, NULL, pair->address);
}

/* A time limit does not wait for the arithmetic. The limit passes only once the step has begun. */
static void a_stranger_is_dropped_in_time_while_its_handshake_is_under_way(void **state)
{
    enum { LIMIT_MS = 50, LATER_MS = 1000 }; /* a listener looks now and then */
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    struct pair pair;
    (void)state;
    open_sides_without_time(&pair);
    rdmux_listener_close(pair.listener);
    attr.hello_timeout_ms = LIMIT_MS;
    pair.listener = listen_here(pair.fabric_b, &attr, pair.address);
    set_gate(true);
    int fd = begin_handshake(&pair, "127.0.0.2");
    await_count(&gate.begun, 1);

    atomic_fetch_add(&stopped_clock_ns, LATER_MS * UINT64_C(1000000));

    assert_true(is_dropped(fd, PATIENT_MS));
    assert_int_equal(gate.done, 0);
    set_gate(false);
    await_count(&gate.done, 1);
    close(fd);
    close_pair(&pair);
}

/* Counts clients that have sent enough for a session, and have none. */
static size_t count_hopeful(const struct pair *pair)
{
    const struct rdmux_list *hopeful = &pair->listener->hopeful;
    size_t count = 0;
    rdmux_service_lock(pair->fabric_b);
    for (const struct rdmux_list *at = hopeful->next; at != hopeful; at = at->next) {
        count++;
    }
    rdmux_service_unlock(pair->fabric_b);
    return count;
}

/* Waits until so many clients have sent enough for a session, and have none. */
static void await_hopeful(const struct pair *pair, size_t count)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (count_hopeful(pair) < count) {
        assert_true(now_ms() < until);
        pause_ms(1);
    }
}

/* Waits until so many sessions wait for the peer's next flight. */
static void await_flights(const struct pair *pair, size_t sessions)
{
    const struct rdmux_list *places = &pair->listener->places;
    uint64_t until = now_ms() + PATIENT_MS;
    for (size_t waiting = 0; waiting < sessions;) {
        waiting = 0;
        rdmux_service_lock(pair->fabric_b);
        for (struct rdmux_list *at = places->next; at != places; at = at->next) {
            const struct rdmux_pending_connection *pending = RDMUX_CONTAINER(
                at, struct rdmux_pending_connection, place_link);
            waiting += pending->stage == RDMUX_PENDING_SHAKING;
        }
        rdmux_service_unlock(pair->fabric_b);
        assert_true(now_ms() < until);
        pause_ms(1);
    }
}

/* Waits until the newest connection's HELLO is read. */
static void await_greeting(const struct pair *pair, uint32_t connections)
{
    const struct rdmux_list *silent = &pair->listener->silent;
    uint64_t until = now_ms() + PATIENT_MS;
    for (bool greeted = false; !greeted;) {
        rdmux_service_lock(pair->fabric_b);
        const struct rdmux_pending_connection *newest = RDMUX_CONTAINER(
            silent->prev, struct rdmux_pending_connection, link);
        greeted = pair->listener->count == connections && newest->stage == RDMUX_PENDING_SHAKING;
        rdmux_service_unlock(pair->fabric_b);
        assert_true(now_ms() < until);
        pause_ms(1);
    }
}

static size_t steps_queued(void)
{
    pthread_mutex_lock(&gate.lock);
    size_t queued = gate.queued;
    pthread_mutex_unlock(&gate.lock);
    return queued;
}

/* Opens the sides, and returns room for the sockets of so many clients. */
static int *open_crowd(struct pair *pair, size_t room)
{
    int *fds = calloc(room, sizeof(*fds));
    assert_non_null(fds);
    (void)raise_descriptors();
    open_sides_without_time(pair);
    return fds;
}

/* The clients [first, end) begin their handshakes. */
static void join_crowd(struct pair *pair, int *fds, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        fds[i] = begin_handshake(pair, "127.0.0.2");
    }
}

static void close_crowd(struct pair *pair, int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        close(fds[i]);
    }
    free(fds);
    close_pair(pair);
}

/* Clients that do not continue their handshakes hold all places. They have one address, from which
 * more arrive. */
static void sessions_are_bounded_and_a_free_one_goes_to_another_address(void **state)
{
    enum { MORE = 32 };
    struct pair pair;
    int *fds = open_crowd(&pair, PLACES + MORE);
    (void)state;
    join_crowd(&pair, fds, 0, PLACES);
    await_count(&gate.done, PLACES);
    join_crowd(&pair, fds, PLACES, PLACES + MORE);
    int other = begin_handshake(&pair, "127.0.0.1");
    int last = begin_handshake(&pair, "127.0.0.3");
    await_hopeful(&pair, MORE + 2);
    assert_int_equal(steps_queued(), PLACES);
    await_flights(&pair, PLACES);

    atomic_fetch_add(&stopped_clock_ns, IDLE_MS * UINT64_C(1000000));

    await_count(&gate.done, PLACES + 2);
    assert_int_equal(gate.from[PLACES], INADDR_LOOPBACK);
    assert_int_equal(gate.from[PLACES + 1], INADDR_LOOPBACK + 2);
    assert_true(is_dropped(fds[0], PATIENT_MS)); /* the oldest */
    assert_false(is_dropped(other, 0));
    close(other);
    close(last);
    close_crowd(&pair, fds, PLACES + MORE);
}

/* A slow peer, all places but one held by clients of another address that are not idle yet, and one
 * more of these. */
static void an_address_with_many_sessions_takes_none_of_an_address_with_one(void **state)
{
    struct pair pair;
    int *fds = open_crowd(&pair, PLACES);
    (void)state;
    int slow = begin_handshake(&pair, "127.0.0.1");
    await_flights(&pair, 1);
    atomic_fetch_add(&stopped_clock_ns, IDLE_MS * UINT64_C(1000000));
    join_crowd(&pair, fds, 0, PLACES - 1);
    await_flights(&pair, PLACES);

    fds[PLACES - 1] = begin_handshake(&pair, "127.0.0.2");

    await_hopeful(&pair, 1);
    assert_false(is_dropped(slow, 0));
    atomic_fetch_add(&stopped_clock_ns, IDLE_MS * UINT64_C(1000000));
    await_count(&gate.done, PLACES + 1);
    assert_true(is_dropped(fds[0], PATIENT_MS)); /* of its own address, the oldest */
    assert_false(is_dropped(slow, 0));
    close(slow);
    close_crowd(&pair, fds, PLACES);
}

/* The listener's process gets no processor, while the peer's next flight arrives. */
static void a_session_whose_next_flight_is_unread_is_not_idle(void **state)
{
    struct pair pair;
    int *fds = open_crowd(&pair, PLACES);
    uint8_t opening[2048];
    (void)state;
    join_crowd(&pair, fds, 0, PLACES);
    await_flights(&pair, PLACES);
    size_t size = make_opening_of_tls(pair.fabric_a, opening);
    int newcomer = dial_from(pair.address, "127.0.0.1");
    send_bytes(newcomer, opening, RDMUX_HELLO_SIZE + 1);
    await_greeting(&pair, PLACES + 1);

    rdmux_service_lock(pair.fabric_b);
    send_bytes(newcomer, opening + RDMUX_HELLO_SIZE + 1, size - RDMUX_HELLO_SIZE - 1);
    send_bytes(fds[0], "\x16", 1); /* of a record */
    atomic_fetch_add(&stopped_clock_ns, IDLE_MS * UINT64_C(1000000));
    rdmux_service_unlock(pair.fabric_b);

    assert_true(is_dropped(fds[1], PATIENT_MS));
    assert_false(is_dropped(fds[0], 0));
    close(newcomer);
    close_crowd(&pair, fds, PLACES);
}

static void a_fabric_without_threads_does_one_step_at_a_time(void **state)
{
    enum { COUNT = 5 };
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys(file);
    struct rdmux_fabric_attr attr = attr_with("tcp", &auth, NULL, NULL);
    struct pair pair;
    int fds[COUNT];
    (void)state;
    open_sides_with_keys(&pair);
    rdmux_listener_close(pair.listener);
    CHECK_OK(rdmux_cq_destroy(pair.cq_b));
    CHECK_OK(rdmux_fabric_close(pair.fabric_b));
    attr.flags |= RDMUX_FABRIC_NO_SERVICE_THREAD;
    CHECK_OK(rdmux_fabric_open(&attr, &pair.fabric_b));
    pair.cq_b = create_cq(pair.fabric_b);
    pair.listener = listen_here(pair.fabric_b, NULL, pair.address);
    for (size_t i = 0; i < COUNT; i++) {
        fds[i] = begin_handshake(&pair, "127.0.0.2");
    }

    while (gate.done < COUNT) {
        size_t before = gate.done;
        struct pollfd look = { .fd = rdmux_fabric_fd(pair.fabric_b), .events = POLLIN };
        assert_int_equal(poll(&look, 1, PATIENT_MS), 1);
        CHECK_OK(rdmux_fabric_progress(pair.fabric_b));
        assert_in_range(gate.done, before, before + 1);
    }

    for (size_t i = 0; i < COUNT; i++) {
        close(fds[i]);
    }
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expensive_work_gets_equal_time_and_not_equal_turns),
        cmocka_unit_test(a_newcomer_has_no_saved_up_time),
        cmocka_unit_test(an_address_with_one_handshake_is_next_after_an_address_with_many),
        cmocka_unit_test(a_handshake_under_way_delays_no_other_call),
        cmocka_unit_test(a_listener_closes_while_a_handshake_is_under_way),
        cmocka_unit_test(a_stranger_is_dropped_in_time_while_its_handshake_is_under_way),
        cmocka_unit_test(sessions_are_bounded_and_a_free_one_goes_to_another_address),
        cmocka_unit_test(an_address_with_many_sessions_takes_none_of_an_address_with_one),
        cmocka_unit_test(a_session_whose_next_flight_is_unread_is_not_idle),
        cmocka_unit_test(a_fabric_without_threads_does_one_step_at_a_time),
    };
    return cmocka_run_group_tests_name("shake", tests, make_auth_folder, remove_auth_folder);
}
