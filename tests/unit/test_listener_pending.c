/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Listeners against hostile clients: those that do not speak rdmux, are slow, or are too many. Good
 * connections succeed meanwhile. */
#include "api/base/bytes.h"
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "tests/unit/fair_time.h"
#include "tests/unit/listener_scene.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ------------------------------------------------------------------------------------ bad input */

static void bytes_of_another_protocol_cost_one_log_line_and_good_connections_succeed(void **state)
{
    (void)state;
    struct scene *scene = set_scene(NULL);
    uint8_t *opening = malloc(OPENING_MAX);
    assert_non_null(opening);
    size_t opening_size = make_opening(scene->pair.fabric_a, opening);
    uint8_t garbage[200];
    memset(garbage, 0xa5, sizeof(garbage));
    uint8_t damaged[RDMUX_HELLO_SIZE];
    memcpy(damaged, opening, sizeof(damaged));
    damaged[7] ^= 1; /* the end of the magic */
    uint8_t too_long[RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE];
    memcpy(too_long, opening, sizeof(too_long));
    memset(too_long + RDMUX_HELLO_SIZE + 4, 0xff, 4); /* 4 GiB - 1 */
    uint8_t *lying = malloc(opening_size);
    assert_non_null(lying);
    memcpy(lying, opening, opening_size);
    memset(lying + RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE, 0xff, 8);
    uint8_t other_frame[RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE];
    memcpy(other_frame, opening, RDMUX_HELLO_SIZE);
    rdmux_frame_header_encode(RDMUX_FRAME_HEARTBEAT, 0, 0, other_frame + RDMUX_HELLO_SIZE);
    struct rdmux_join join = { .secret = { 1, 2, 3 }, .epoch = 1, .attempt = 1 };
    uint8_t stranger[RDMUX_JOIN_SIZE];
    rdmux_join_encode(&join, stranger);
    uint8_t newer[RDMUX_JOIN_SIZE];
    rdmux_join_encode(&join, newer);
    newer[9] = 99;
    const struct {
        const char *says;
        const void *bytes;
        size_t size;
    } cases[] = {
        { "garbage", garbage, sizeof(garbage) },
        { "8 bytes of garbage", garbage, 8 },
        { "HTTP", "GET / HTTP/1.1\r\nHost: here\r\n\r\n", 30 },
        { "a HELLO with another magic", damaged, sizeof(damaged) },
        { "an OFFER of 4 GiB", too_long, sizeof(too_long) },
        { "an OFFER whose entries lie about sizes", lying, opening_size },
        { "another frame than OFFER", other_frame, sizeof(other_frame) },
        { "a JOIN with an unknown secret", stranger, sizeof(stranger) },
        { "a JOIN of another version", newer, sizeof(newer) },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        logbook_clear(&scene->book);
        int fd = dial_raw(scene->pair.address);

        send_bytes(fd, cases[i].bytes, cases[i].size);

        if (!is_dropped(fd, PATIENT_MS)) {
            fail_msg("%s: not dropped", cases[i].says);
        }
        wait_for_lines(&scene->book, 1);
        if (logbook_total(&scene->book) != 1 ||
            logbook_count(&scene->book, "listener 127.0.0.1") != 1) {
            fail_msg("%s: %zu lines: %s", cases[i].says, logbook_total(&scene->book),
                     scene->book.lines[0]);
        }
        close(fd);
    }
    struct rdmux_fabric_stats counts = counts_of(scene->pair.fabric_b);
    assert_int_equal(counts.introduced + counts.expired + counts.evicted + counts.turned_away, 0);
    assert_true(counts.dropped > 0); /* a socket with an unknown JOIN is none of the listener's */
    check_good_connection(&scene->pair);
    free(lying);
    free(opening);
    clear_scene(scene);
}

static void a_connection_that_leaves_is_logged_only_if_it_has_sent_bytes(void **state)
{
    (void)state;
    struct scene *scene = set_scene(NULL);
    uint8_t *opening = malloc(OPENING_MAX);
    assert_non_null(opening);
    size_t opening_size = make_opening(scene->pair.fabric_a, opening);
    const size_t sizes[] = {
        1, 8, RDMUX_HELLO_SIZE - 1, RDMUX_HELLO_SIZE, RDMUX_HELLO_SIZE + 4, opening_size - 1
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(sizes); i++) {
        logbook_clear(&scene->book);
        int fd = dial_raw(scene->pair.address);
        send_bytes(fd, opening, sizes[i]);

        close(fd);

        wait_for_lines(&scene->book, 1);
        assert_int_equal(logbook_total(&scene->book), 1);
        assert_int_equal(logbook_count(&scene->book, "dropped"), 1);
    }
    logbook_clear(&scene->book);
    close(dial_raw(scene->pair.address)); /* a port scan, or a health check */
    check_good_connection(&scene->pair);
    assert_int_equal(logbook_count(&scene->book, "listener"), 0);
    free(opening);
    clear_scene(scene);
}

static void a_connection_of_an_unknown_version_gets_an_answer_and_is_dropped(void **state)
{
    (void)state;
    struct scene *scene = set_scene(NULL);
    uint8_t *opening = malloc(OPENING_MAX);
    assert_non_null(opening);
    size_t opening_size = make_opening(scene->pair.fabric_a, opening);
    for (int other_order = 0; other_order <= 1; other_order++) {
        uint8_t bytes[4] = { 0, 7, 0, 9 };
        size_t at = 8;
        if (other_order) {
            uint8_t swapped[4] = { opening[15], opening[14], opening[13], opening[12] };
            memcpy(bytes, swapped, sizeof(bytes));
            at = 12;
            rdmux_store_be16(opening + 8, 1);
            rdmux_store_be16(opening + 10, 1);
        }
        memcpy(opening + at, bytes, sizeof(bytes));
        logbook_clear(&scene->book);
        int fd = dial_raw(scene->pair.address);
        send_bytes(fd, opening, opening_size);
        struct rdmux_ep *none = NULL;

        CHECK_STATUS(rdmux_accept(scene->pair.listener, scene->pair.cq_b, NULL, 300, &none),
                     RDMUX_TIMED_OUT);

        uint8_t answer[RDMUX_HELLO_SIZE];
        struct rdmux_hello hello;
        assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
        CHECK_OK(rdmux_hello_decode(answer, sizeof(answer), &hello));
        assert_int_equal(hello.version_max, RDMUX_WIRE_VERSION);
        assert_true(is_dropped(fd, PATIENT_MS));
        assert_int_equal(logbook_total(&scene->book), 1);
        assert_int_equal(logbook_count(&scene->book, "RDMUX_VERSION"), 1);
        close(fd);
        check_good_connection(&scene->pair);
    }
    free(opening);
    clear_scene(scene);
}

/* -------------------------------------------------------------------------------------- silence */

static void a_connection_without_an_introduction_in_time_is_dropped(void **state)
{
    (void)state;
    enum { LIMIT_MS = 300 };
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.hello_timeout_ms = LIMIT_MS;
    struct scene *scene = set_scene(&attr);
    uint8_t *opening = malloc(OPENING_MAX);
    assert_non_null(opening);
    size_t opening_size = make_opening(scene->pair.fabric_a, opening);
    const size_t sizes[] = { 0, 4, RDMUX_HELLO_SIZE / 2, RDMUX_HELLO_SIZE, opening_size - 1 };
    int fds[RDMUX_COUNT_OF(sizes)];
    uint64_t begin = now_ms();
    struct span span = span_begin();
    for (size_t i = 0; i < RDMUX_COUNT_OF(sizes); i++) {
        fds[i] = dial_raw(scene->pair.address);
        if (sizes[i] != 0) {
            send_bytes(fds[i], opening, sizes[i]);
        }
    }
    int patient = dial_raw(scene->pair.address);
    send_bytes(patient, opening, opening_size);

    check_good_connection(&scene->pair);
    for (size_t i = 0; i < RDMUX_COUNT_OF(sizes); i++) {
        assert_true(is_dropped(fds[i], PATIENT_MS));
        assert_true(now_ms() - begin >= LIMIT_MS - 20);
        close(fds[i]);
    }
    check_span("dropped", span, LIMIT_MS - 20, LIMIT_MS + 700 * SLACK);
    wait_for_lines(&scene->book, RDMUX_COUNT_OF(sizes));
    assert_int_equal(logbook_count(&scene->book, "in time"), RDMUX_COUNT_OF(sizes));
    assert_int_equal(counts_of(scene->pair.fabric_b).expired, RDMUX_COUNT_OF(sizes));
    close(patient);
    free(opening);
    clear_scene(scene);
}

static void a_thousand_silent_connections_cost_little_and_delay_no_other(void **state)
{
    (void)state;
    enum { SILENT = 1000, LIMIT_MS = 4000, EACH_MAX = 2048, LINES = 64 };
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    struct rlimit more = { .rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max };
    if (limit.rlim_max < 2 * SILENT + 200 || setrlimit(RLIMIT_NOFILE, &more) != 0) {
        skip();
    }
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.hello_timeout_ms = LIMIT_MS;
    struct scene *scene = set_scene(&attr);
    /* So that everything is there that is made when first needed. */
    check_good_connection(&scene->pair);
    size_t before = atomic_load(&scene->meter.bytes);
    logbook_clear(&scene->book);
    static int fds[SILENT];
    for (size_t i = 0; i < SILENT; i++) {
        fds[i] = dial_raw(scene->pair.address);
    }

    check_good_connection(&scene->pair);

    size_t bytes = atomic_load(&scene->meter.bytes) - before;
    if (bytes > (size_t)SILENT * EACH_MAX) {
        fail_msg("%d silent connections cost %zu bytes", SILENT, bytes);
    }
    for (size_t i = 0; i < SILENT; i++) {
        assert_true(is_dropped(fds[i], PATIENT_MS));
        close(fds[i]);
    }
    check_good_connection(&scene->pair);
    assert_int_equal(logbook_count(&scene->book, "in time; dropped"), LINES);
    assert_int_equal(logbook_total(&scene->book), LINES + 2); /* and the ends of two good ones */
    clear_scene(scene);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void the_oldest_silent_connection_is_evicted_beyond_max_pending(void **state)
{
    (void)state;
    enum { PENDING = 8, EXTRA = 5 };
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.max_pending = PENDING;
    struct scene *scene = set_scene(&attr);
    int fds[PENDING + EXTRA];
    for (size_t i = 0; i < PENDING + EXTRA; i++) {
        fds[i] = dial_raw(scene->pair.address);
    }

    for (size_t i = 0; i < EXTRA; i++) {
        assert_true(is_dropped(fds[i], PATIENT_MS));
    }
    wait_for_lines(&scene->book, EXTRA);
    assert_int_equal(logbook_count(&scene->book, "too many"), EXTRA);
    assert_int_equal(counts_of(scene->pair.fabric_b).evicted, EXTRA);
    for (size_t i = EXTRA; i < PENDING + EXTRA; i++) {
        assert_false(is_dropped(fds[i], 0));
    }
    check_good_connection(&scene->pair);
    assert_true(is_dropped(fds[EXTRA], PATIENT_MS));
    for (size_t i = 0; i < PENDING + EXTRA; i++) {
        close(fds[i]);
    }
    clear_scene(scene);
}

/* -------------------------------------------------------------------- introduced, and not taken */

/* Connections of one address that have introduced themselves, and that the listener has shown. */
struct waiting {
    int fd;
    uint64_t id;
};

static void make_wait(struct scene *scene, const char *from, struct waiting *out, size_t count)
{
    uint8_t *opening = malloc(OPENING_MAX);
    assert_non_null(opening);
    size_t opening_size = make_opening(scene->pair.fabric_a, opening);
    for (size_t i = 0; i < count; i++) {
        struct rdmux_peer peer = RDMUX_PEER_INIT;
        out[i].fd = dial_from(scene->pair.address, from);
        send_bytes(out[i].fd, opening, opening_size);
        CHECK_OK(rdmux_listener_next(scene->pair.listener, PATIENT_MS, &peer));
        out[i].id = peer.id;
    }
    free(opening);
}

/* Checks that the connection has stayed all the time. */
static void check_waits(struct scene *scene, struct waiting *waiting)
{
    assert_false(is_dropped(waiting->fd, 0));
    CHECK_OK(rdmux_reject(scene->pair.listener, waiting->id, 1, NULL, 0));
    assert_true(is_dropped(waiting->fd, PATIENT_MS));
    close(waiting->fd);
}

static void check_went(struct scene *scene, struct waiting *went)
{
    assert_true(is_dropped(went->fd, PATIENT_MS));
    CHECK_STATUS(rdmux_reject(scene->pair.listener, went->id, 1, NULL, 0), RDMUX_INVALID);
    close(went->fd);
}

static void the_address_with_the_most_connections_loses_one_beyond_max_pending(void **state)
{
    (void)state;
    enum { MANY = 3, LATE = 2 };
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.max_pending = MANY + 1;
    struct scene *scene = set_scene(&attr);
    struct waiting one;
    struct waiting many[MANY];
    struct waiting late[LATE];
    make_wait(scene, "127.0.0.3", &one, 1);
    make_wait(scene, "127.0.0.2", many, MANY);

    make_wait(scene, "127.0.0.4", &late[0], 1);
    make_wait(scene, "127.0.0.2", &late[1], 1);

    check_went(scene, &many[0]);
    check_went(scene, &many[1]); /* for one of its own address */
    check_waits(scene, &one);
    check_waits(scene, &many[2]);
    check_waits(scene, &late[0]);
    check_waits(scene, &late[1]);
    assert_int_equal(logbook_count(&scene->book, "too many connections wait"), 2);
    check_good_connection(&scene->pair);
    clear_scene(scene);
}

static void a_newcomer_evicts_no_connection_when_all_addresses_have_equally_many(void **state)
{
    (void)state;
    static const char *const from[] = { "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5" };
    struct waiting waiting[RDMUX_COUNT_OF(from)];
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.max_pending = RDMUX_COUNT_OF(from);
    struct scene *scene = set_scene(&attr);
    for (size_t i = 0; i < RDMUX_COUNT_OF(from); i++) {
        make_wait(scene, from[i], &waiting[i], 1);
    }

    int late = dial_from(scene->pair.address, "127.0.0.6");

    assert_true(is_dropped(late, PATIENT_MS));
    close(late);
    for (size_t i = 0; i < RDMUX_COUNT_OF(from); i++) {
        check_waits(scene, &waiting[i]);
    }
    check_good_connection(&scene->pair);
    clear_scene(scene);
}

static void the_waiting_connections_of_an_address_are_bounded(void **state)
{
    (void)state;
    enum { LIMIT = 3, COUNT = 5 };
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.max_waiting_per_address = LIMIT;
    struct scene *scene = set_scene(&attr);
    struct waiting one;
    struct waiting many[COUNT];
    make_wait(scene, "127.0.0.3", &one, 1);

    make_wait(scene, "127.0.0.2", many, COUNT);

    for (size_t i = 0; i < COUNT - LIMIT; i++) {
        check_went(scene, &many[i]);
    }
    for (size_t i = COUNT - LIMIT; i < COUNT; i++) {
        check_waits(scene, &many[i]);
    }
    check_waits(scene, &one);
    assert_int_equal(logbook_count(&scene->book, "too many connections of its address or identity"),
                     COUNT - LIMIT);
    clear_scene(scene);
}

static void a_connection_that_is_not_accepted_in_time_is_dropped(void **state)
{
    (void)state;
    enum { LIMIT_MS = 300 };
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.accept_timeout_ms = LIMIT_MS;
    struct scene *scene = set_scene(&attr);
    struct waiting one;
    struct span span = span_begin();

    make_wait(scene, "127.0.0.2", &one, 1);

    check_went(scene, &one);
    check_span("dropped", span, LIMIT_MS - 20, LIMIT_MS + 700 * SLACK);
    wait_for_lines(&scene->book, 1);
    assert_int_equal(logbook_count(&scene->book, "nobody has accepted it in time"), 1);
    assert_int_equal(counts_of(scene->pair.fabric_b).introduced, 1);
    assert_int_equal(counts_of(scene->pair.fabric_b).expired, 1);
    check_good_connection(&scene->pair);
    clear_scene(scene);
}

/* A connector that is dropped beyond a limit learns that it may come back. */
static void a_connector_that_a_listener_has_no_room_for_is_told(void **state)
{
    (void)state;
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.max_waiting_per_address = 1;
    struct scene *scene = set_scene(&attr);
    struct pair *pair = &scene->pair;
    struct rdmux_ep *eps[2];
    for (size_t i = 0; i < 2; i++) {
        struct rdmux_peer peer = RDMUX_PEER_INIT;
        CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &eps[i]),
                     RDMUX_IN_PROGRESS);
        CHECK_OK(rdmux_listener_next(pair->listener, PATIENT_MS, &peer));
    }

    struct rdmux_wc wc = { .opcode = 0 };
    size_t count = 0;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_cq_wait(pair->cq_a, &wc, 1, PATIENT_MS, &count));
    CHECK_OK(rdmux_ep_info(eps[0], &info));

    assert_ptr_equal(wc.ep, eps[0]);
    assert_int_equal(wc.opcode, RDMUX_WC_CONNECTED);
    assert_int_equal(wc.status, RDMUX_REFUSED);
    assert_int_equal(info.reject_reason, RDMUX_REJECT_BUSY);
    assert_non_null(strstr(info.text, "try again later"));
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(rdmux_ep_close(eps[i]));
    }
    clear_scene(scene);
}

static _Atomic uint64_t clock_ahead_ns;

static uint64_t clock_ahead(void *user)
{
    (void)user;
    return fair_clock_ns() + atomic_load(&clock_ahead_ns);
}

/* Reopens the accepting side with the test's clock; it logs into the scene's book. */
static void listen_by_our_clock(struct scene *scene, const struct rdmux_listen_attr *attr)
{
    struct rdmux_fabric_attr fabric_attr = RDMUX_FABRIC_ATTR_INIT;
    fabric_attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    fabric_attr.clock_ns = clock_ahead;
    fabric_attr.paths = "tcp";
    fabric_attr.log = logbook_write;
    fabric_attr.log_user = &scene->book;
    fabric_attr.log_level = RDMUX_LOG_WARN;
    rdmux_listener_close(scene->pair.listener);
    CHECK_OK(rdmux_cq_destroy(scene->pair.cq_b));
    CHECK_OK(rdmux_fabric_close(scene->pair.fabric_b));
    CHECK_OK(rdmux_fabric_open(&fabric_attr, &scene->pair.fabric_b));
    scene->pair.cq_b = create_cq(scene->pair.fabric_b);
    scene->pair.listener = listen_here(scene->pair.fabric_b, attr, scene->pair.address);
}

/* Waits until the timers have dropped a silent client twice, so that all other timers have run at
 * least once. */
static void let_timers_run(struct scene *scene)
{
    for (size_t i = 0; i < 2; i++) {
        struct waiting after;
        int silent = dial_from(scene->pair.address, "127.0.0.4");
        make_wait(scene, "127.0.0.4", &after,
                  1); /* the listener has seen the previous connection, too */
        atomic_fetch_add(&clock_ahead_ns, UINT64_C(3600) * 1000000000);
        assert_true(is_dropped(silent, PATIENT_MS));
        check_waits(scene, &after);
        close(silent);
    }
}

/* By a clock that the test sets: a program that accepts once an hour loses only connections of a
 * crowd. */
static void only_connections_of_a_crowd_are_dropped_after_ten_seconds(void **state)
{
    (void)state;
    enum { LIMIT = 4, CROWD = 4 };
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    struct waiting one;
    struct waiting crowd[CROWD];
    struct scene *scene = set_scene(NULL);
    attr.max_waiting_per_address = LIMIT;
    listen_by_our_clock(scene, &attr);
    make_wait(scene, "127.0.0.3", &one, 1);
    make_wait(scene, "127.0.0.2", crowd, CROWD);

    atomic_store(&clock_ahead_ns, UINT64_C(3600) * 1000000000);

    for (size_t i = 0; i < CROWD - LIMIT / 2; i++) {
        check_went(scene, &crowd[i]);
    }
    let_timers_run(scene);
    for (size_t i = CROWD - LIMIT / 2; i < CROWD; i++) {
        check_waits(scene, &crowd[i]); /* no crowd any more */
    }
    check_waits(scene, &one);
    clear_scene(scene);
}

/* -------------------------------------------------------------------------------------- the log */

static void shout(struct scene *scene, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int fd = dial_raw(scene->pair.address);
        send_bytes(fd, "GET / HTTP/1.0\r\n\r\n", 18);
        assert_true(is_dropped(fd, PATIENT_MS));
        close(fd);
    }
}

/* Strangers may cause any number of lines. The log gets a bounded number in ten seconds, and then
 * the count of the suppressed ones. */
static void strangers_do_not_fill_the_log(void **state)
{
    (void)state;
    enum { LINES = 64, MORE = 30, LATE = 3 };
    static const char
        left_out[] = "more lines about connections that came to nothing were left out";
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    struct scene *scene = set_scene(NULL);
    attr.hello_timeout_ms = 60000;
    listen_by_our_clock(scene, &attr);
    int silent = dial_raw(scene->pair.address); /* so that there are timers by this clock */

    shout(scene, LINES + MORE);

    assert_int_equal(logbook_count(&scene->book, "does not speak this protocol; dropped"), LINES);
    assert_int_equal(logbook_total(&scene->book), LINES);
    atomic_fetch_add(&clock_ahead_ns, UINT64_C(10) * 1000000000);
    wait_for_lines(&scene->book, LINES + 1);
    assert_int_equal(logbook_count(&scene->book, ": 30 more lines about"), 1);
    shout(scene, LATE);
    assert_int_equal(logbook_total(&scene->book), LINES + 1 + LATE);
    shout(scene, LINES);
    assert_int_equal(logbook_count(&scene->book, left_out), 1);
    rdmux_listener_close(scene->pair.listener); /* nothing is left untold */
    scene->pair.listener = NULL;
    assert_int_equal(logbook_count(&scene->book, ": 3 more lines about"), 1);
    close(silent);
    clear_scene(scene);
}

/* ------------------------------------------------------------------------ taken, and not set up */

/* A connection of the pair's own address is made within this time. */
static void check_connects(struct scene *scene, uint64_t least_ms, uint64_t most_ms)
{
    struct rdmux_ep *a = NULL;
    struct rdmux_ep *b = NULL;
    struct span span = span_begin();
    connect_more(&scene->pair, NULL, &a, &b);
    check_span("a good connection", span, least_ms, most_ms * SLACK);
    CHECK_OK(rdmux_ep_close(a));
    CHECK_OK(rdmux_ep_close(b));
}

/* The program takes them, and each set-up waits for its peer, which sends nothing more. */
static void open_and_stall(struct scene *scene, const char *from, int *fds, size_t count)
{
    uint8_t *opening = malloc(OPENING_MAX);
    assert_non_null(opening);
    size_t opening_size = make_opening(scene->pair.fabric_a, opening);
    for (size_t i = 0; i < count; i++) {
        fds[i] = dial_from(scene->pair.address, from);
        send_bytes(fds[i], opening, opening_size);
    }
    free(opening);
}

static bool is_answered(int fd)
{
    struct pollfd look = { .fd = fd, .events = POLLIN };
    return poll(&look, 1, 0) > 0;
}

/* Accepts until this many have been answered. */
static void take_stalled(struct scene *scene, const struct rdmux_ep_attr *attr, const int *fds,
                         size_t count, size_t until)
{
    uint64_t deadline = now_ms() + PATIENT_MS;
    for (size_t answered = 0; answered < until;) {
        struct rdmux_ep *none = NULL;
        CHECK_STATUS(rdmux_accept(scene->pair.listener, scene->pair.cq_b, attr, 1, &none),
                     RDMUX_TIMED_OUT);
        answered = 0;
        for (size_t i = 0; i < count; i++) {
            answered += is_answered(fds[i]);
        }
        assert_true(now_ms() < deadline);
    }
}

static size_t count_answered(const int *fds, size_t count)
{
    size_t answered = 0;
    for (size_t i = 0; i < count; i++) {
        answered += is_answered(fds[i]);
    }
    return answered;
}

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        close(fds[i]);
    }
}

static void one_address_has_at_most_half_of_the_set_ups(void **state)
{
    (void)state;
    enum { SETUPS = 6, COUNT = 20 };
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.max_setups = SETUPS;
    struct scene *scene = set_scene(&attr);
    int fds[COUNT];
    open_and_stall(scene, "127.0.0.2", fds, COUNT);
    take_stalled(scene, NULL, fds, COUNT, SETUPS / 2);

    check_connects(scene, 0, 400); /* there is room for it at once */

    assert_int_equal(count_answered(fds, COUNT), SETUPS / 2);
    assert_int_equal(logbook_count(&scene->book, "the peer is silent"), 0);
    close_all(fds, COUNT);
    clear_scene(scene);
}

static void a_set_up_whose_peer_is_silent_makes_room_for_another_address(void **state)
{
    (void)state;
    enum { SETUPS = 4, COUNT = 8 };
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.max_setups = SETUPS;
    struct scene *scene = set_scene(&attr);
    int fds[2 * COUNT];
    open_and_stall(scene, "127.0.0.2", fds, COUNT);
    open_and_stall(scene, "127.0.0.3", fds + COUNT, COUNT);
    take_stalled(scene, NULL, fds, RDMUX_COUNT_OF(fds), SETUPS);

    check_connects(scene, 0, 1000);

    assert_int_equal(logbook_count(&scene->book, "the peer is silent, and others wait"), 1);
    close_all(fds, RDMUX_COUNT_OF(fds));
    clear_scene(scene);
}

/* For a cq without room for more endpoints, the same rule holds as at the limit of a listener's
 * set-ups. */
static void silent_peers_do_not_use_up_the_room_of_a_cq(void **state)
{
    (void)state;
    enum { ENDPOINTS = 3, COUNT = 8 };
    struct scene *scene = set_scene(NULL);
    struct rdmux_cq_attr cq_attr = RDMUX_CQ_ATTR_INIT;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep *a = NULL;
    struct rdmux_ep *b = NULL;
    int fds[COUNT];
    attr.send_depth = 16;
    attr.recv_depth = 16;
    cq_attr.depth = ENDPOINTS * (attr.send_depth + attr.recv_depth);
    CHECK_OK(rdmux_cq_destroy(scene->pair.cq_b));
    scene->pair.cq_b = NULL;
    CHECK_OK(rdmux_cq_create(scene->pair.fabric_b, &cq_attr, &scene->pair.cq_b));
    open_and_stall(scene, "127.0.0.2", fds, COUNT);
    take_stalled(scene, &attr, fds, COUNT, ENDPOINTS);
    struct span span = span_begin();

    connect_more(&scene->pair, &attr, &a, &b);

    check_span("a good connection", span, 0, 1000 * SLACK);
    assert_true(logbook_count(&scene->book, "the peer is silent, and others wait") >= 1);
    CHECK_OK(rdmux_ep_close(a));
    CHECK_OK(rdmux_ep_close(b));
    close_all(fds, COUNT);
    clear_scene(scene);
}

/* ------------------------------------------------------------------------------- no descriptors */

static uint64_t cpu_ms(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

static size_t open_descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* The listener has not yet read their bytes when other connections wait as well. */
static void a_connection_with_unread_bytes_is_read_before_another_evicts_it(void **state)
{
    (void)state;
    for (int by_address = 0; by_address < 2; by_address++) {
        struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
        struct pair pair = { .a = NULL };
        uint8_t opening[OPENING_MAX];
        attr.max_per_address = by_address ? 1 : 0;
        attr.max_pending = by_address ? 0 : 1;
        pair.fabric_a = open_fabric("tcp", 0, NULL);
        pair.fabric_b = open_fabric("tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, NULL);
        pair.cq_a = create_cq(pair.fabric_a);
        pair.cq_b = create_cq(pair.fabric_b);
        pair.listener = listen_here(pair.fabric_b, &attr, pair.address);
        int speaks = dial_raw(pair.address);
        send_bytes(speaks, opening, make_opening(pair.fabric_a, opening));
        int silent = dial_raw(pair.address);

        struct rdmux_peer peer = RDMUX_PEER_INIT;
        uint64_t until = now_ms() + PATIENT_MS;
        while (rdmux_listener_next(pair.listener, 0, &peer) != RDMUX_OK) {
            assert_true(now_ms() < until);
            CHECK_OK(rdmux_fabric_progress(pair.fabric_b));
        }

        assert_false(is_dropped(speaks, 0));
        close(speaks);
        close(silent);
        close_pair(&pair);
    }
}

static void limit_descriptors(rlim_t room)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = room < limit.rlim_max ? room : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* A server with few descriptors. Reports its address, then accepts and greets all clients until
 * `command` closes. Commands: 'w' stops accepting, and reports it; 'a' resumes, and reports when no
 * client has a descriptor any more; 'n' leaves no free descriptor at all, 'm' many. Returns the
 * processor time it used, in ms. */
static uint64_t serve_with_few_descriptors(int report, int command, size_t spare)
{
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    struct rdmux_cq *cq = create_cq(fabric);
    char address[RDMUX_ADDRESS_MAX] = "";
    struct rdmux_listener *listener = listen_here(fabric, NULL, address);
    size_t own = open_descriptors();
    limit_descriptors((rlim_t)(own + spare));
    uint64_t begin = cpu_ms();
    assert_int_equal(write(report, address, sizeof(address)), sizeof(address));
    bool accepts = true;
    bool awaits_leave = false;
    for (;;) {
        struct pollfd look = { .fd = command, .events = POLLIN };
        char what = 0;
        if (poll(&look, 1, accepts ? 0 : 20) > 0) {
            if (read(command, &what, 1) != 1) {
                break;
            }
            if (what == 'n' || what == 'm') {
                limit_descriptors(what == 'n' ? 3 : 1024);
            }
            accepts = what == 'a' || what == 'm';
            awaits_leave = what == 'a';
        }
        if (awaits_leave && open_descriptors() <= own) {
            what = 'a';
            awaits_leave = false;
        }
        if (what != 0 && !awaits_leave) {
            assert_int_equal(write(report, &what, 1), 1);
        }
        struct rdmux_ep *ep = NULL;
        if (accepts && rdmux_accept(listener, cq, NULL, 20, &ep) == RDMUX_OK) {
            CHECK_OK(rdmux_send(ep, "hello", 6, NULL, NULL, RDMUX_INLINE));
        }
        struct rdmux_wc wc;
        while (rdmux_cq_poll(cq, &wc, 1) == 1) {
            if (wc.opcode == RDMUX_WC_DISCONNECTED) {
                CHECK_OK(rdmux_ep_close(wc.ep));
            }
        }
    }
    return cpu_ms() - begin;
}

struct server {
    pid_t pid;
    int command;
    int report;
    char address[RDMUX_ADDRESS_MAX];
};

static void start_server(struct server *server, size_t spare)
{
    int command[2];
    int report[2];
    assert_int_equal(pipe2(command, O_CLOEXEC), 0);
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0) {
        close(command[1]);
        uint64_t used = serve_with_few_descriptors(report[1], command[0], spare);
        ssize_t written = write(report[1], &used, sizeof(used));
        _exit(written == sizeof(used) ? 0 : 1);
    }
    close(command[0]);
    close(report[1]);
    server->command = command[1];
    server->report = report[0];
    assert_int_equal(read(server->report, server->address, sizeof(server->address)),
                     sizeof(server->address));
}

/* Returns the processor time the server has used. */
static uint64_t stop_server(struct server *server)
{
    uint64_t used = 0;
    int status = 0;
    close(server->command);
    assert_int_equal(read(server->report, &used, sizeof(used)), sizeof(used));
    close(server->report);
    assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
    assert_int_equal(status, 0);
    return used;
}

/* Connects, is greeted, ends. */
static void check_greeted(struct rdmux_fabric *fabric, struct rdmux_cq *cq, const char *address)
{
    struct rdmux_ep *ep = NULL;
    char greeting[6] = "";
    CHECK_OK(rdmux_connect(fabric, cq, address, NULL, PATIENT_MS, &ep));
    CHECK_OK(rdmux_recv(ep, greeting, sizeof(greeting), NULL, NULL));
    expect_entry(cq, RDMUX_WC_RECV, RDMUX_OK);
    assert_string_equal(greeting, "hello");
    CHECK_OK(rdmux_ep_close(ep));
}

static void the_oldest_silent_connection_is_evicted_when_descriptors_run_out(void **state)
{
    (void)state;
    enum { SPARE = 24, SILENT = 60 };
    struct server server;
    start_server(&server, SPARE);
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    struct rdmux_cq *cq = create_cq(fabric);
    int fds[SILENT];
    uint64_t begin = now_ms();
    for (size_t i = 0; i < SILENT; i++) {
        fds[i] = dial_raw(server.address);
    }

    for (size_t i = 0; i < SILENT - SPARE; i++) {
        assert_true(is_dropped(fds[i], PATIENT_MS));
    }
    assert_false(is_dropped(fds[SILENT - 1], 0));
    check_greeted(fabric, cq, server.address);
    check_greeted(fabric, cq, server.address);
    for (size_t i = 0; i < SILENT; i++) {
        close(fds[i]);
    }
    check_greeted(fabric, cq, server.address);
    uint64_t wall = now_ms() - begin;
    uint64_t used = stop_server(&server);
    if (used > wall / 2 + 300 * SLACK) {
        fail_msg("%llu ms of processor time in %llu ms", (unsigned long long)used,
                 (unsigned long long)wall);
    }
    CHECK_OK(rdmux_cq_destroy(cq));
    CHECK_OK(rdmux_fabric_close(fabric));
}

static void the_oldest_connection_is_evicted_when_descriptors_run_out_and_none_is_silent(void **state)
{
    (void)state;
    enum { SPARE = 12, TALKING = 40 };
    struct server server;
    start_server(&server, SPARE);
    char done;
    assert_int_equal(write(server.command, "w", 1), 1); /* accept nothing */
    assert_int_equal(read(server.report, &done, 1), 1);
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    struct rdmux_cq *cq = create_cq(fabric);
    uint8_t *opening = malloc(OPENING_MAX);
    assert_non_null(opening);
    size_t opening_size = make_opening(fabric, opening);
    int fds[TALKING];
    uint64_t begin = now_ms();
    size_t dropped = 0;
    for (size_t i = 0; i < TALKING; i++) {
        fds[i] = dial_raw(server.address);
        (void)send(fds[i], opening, opening_size, MSG_NOSIGNAL);
    }
    uint64_t until = now_ms() + PATIENT_MS;
    while (dropped < TALKING - SPARE - 8 && now_ms() < until) {
        dropped = 0;
        for (size_t i = 0; i < TALKING; i++) {
            dropped += is_dropped(fds[i], 1);
        }
    }

    assert_true(dropped >= TALKING - SPARE - 8);
    assert_true(is_dropped(fds[0], PATIENT_MS));
    pause_ms(300); /* the time in which a listener would spin */
    for (size_t i = 0; i < TALKING; i++) {
        close(fds[i]);
    }
    assert_int_equal(write(server.command, "a", 1), 1);
    assert_int_equal(read(server.report, &done, 1), 1);
    check_greeted(fabric, cq, server.address);
    uint64_t wall = now_ms() - begin;
    uint64_t used = stop_server(&server);
    if (used > wall / 2 + 50 * SLACK) {
        fail_msg("%llu ms of processor time in %llu ms", (unsigned long long)used,
                 (unsigned long long)wall);
    }
    free(opening);
    CHECK_OK(rdmux_cq_destroy(cq));
    CHECK_OK(rdmux_fabric_close(fabric));
}

static void a_listener_without_descriptors_waits_and_then_serves_again(void **state)
{
    (void)state;
    enum { COUNT = 4, STARVED_MS = 500 };
    struct server server;
    char done;
    start_server(&server, 20);
    assert_int_equal(write(server.command, "n", 1), 1);
    assert_int_equal(read(server.report, &done, 1), 1);
    int fds[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        fds[i] = dial_raw(server.address);
    }
    pause_ms(STARVED_MS); /* the time in which a listener would spin */
    assert_int_equal(write(server.command, "m", 1), 1);
    assert_int_equal(read(server.report, &done, 1), 1);
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    struct rdmux_cq *cq = create_cq(fabric);

    check_greeted(fabric, cq, server.address);

    for (size_t i = 0; i < COUNT; i++) {
        close(fds[i]);
    }
    uint64_t used = stop_server(&server);
    if (used > STARVED_MS / 5 * SLACK) {
        fail_msg("%llu ms of processor time", (unsigned long long)used);
    }
    CHECK_OK(rdmux_cq_destroy(cq));
    CHECK_OK(rdmux_fabric_close(fabric));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_another_protocol_cost_one_log_line_and_good_connections_succeed),
        cmocka_unit_test(a_connection_that_leaves_is_logged_only_if_it_has_sent_bytes),
        cmocka_unit_test(a_connection_of_an_unknown_version_gets_an_answer_and_is_dropped),
        cmocka_unit_test(a_connection_without_an_introduction_in_time_is_dropped),
        cmocka_unit_test(a_thousand_silent_connections_cost_little_and_delay_no_other),
        cmocka_unit_test(the_oldest_silent_connection_is_evicted_beyond_max_pending),
        cmocka_unit_test(the_address_with_the_most_connections_loses_one_beyond_max_pending),
        cmocka_unit_test(a_connector_that_a_listener_has_no_room_for_is_told),
        cmocka_unit_test(a_newcomer_evicts_no_connection_when_all_addresses_have_equally_many),
        cmocka_unit_test(the_waiting_connections_of_an_address_are_bounded),
        cmocka_unit_test(a_connection_that_is_not_accepted_in_time_is_dropped),
        cmocka_unit_test(only_connections_of_a_crowd_are_dropped_after_ten_seconds),
        cmocka_unit_test(strangers_do_not_fill_the_log),
        cmocka_unit_test(one_address_has_at_most_half_of_the_set_ups),
        cmocka_unit_test(a_set_up_whose_peer_is_silent_makes_room_for_another_address),
        cmocka_unit_test(silent_peers_do_not_use_up_the_room_of_a_cq),
        cmocka_unit_test(a_connection_with_unread_bytes_is_read_before_another_evicts_it),
        cmocka_unit_test(the_oldest_silent_connection_is_evicted_when_descriptors_run_out),
        cmocka_unit_test(
            the_oldest_connection_is_evicted_when_descriptors_run_out_and_none_is_silent),
        cmocka_unit_test(a_listener_without_descriptors_waits_and_then_serves_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
