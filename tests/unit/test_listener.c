/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Listeners against strangers: what is no rdmux, what is slow, what is too much. Good connections come through meanwhile. */
#include "api/listener.h"
#include "negotiation/bytes.h"
#include "negotiation/handshake_frames.h"
#include "tcp_fallback/tcp_frame.h"
#include "tests/unit/api_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum {
    OPENING_MAX = RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE + RDMUX_OFFER_BYTES_MAX,
    PROMPT_MS = 1500, /* a good connection, whatever else goes on; below every time limit of a path or a set-up */
};

/* A pair whose accepting side keeps a book and counts its memory. */
struct scene {
    struct pair pair;
    struct book book;
    struct meter meter;
};

static struct scene *set_scene(const struct rdmux_listen_attr *attr)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    assert_non_null(scene);
    pthread_mutex_init(&scene->book.lock, NULL);
    scene->pair.fabric_a = open_fabric("tcp", 0, NULL);
    scene->pair.fabric_b = open_metered_fabric("tcp", 0, &scene->book, &scene->meter);
    scene->pair.cq_a = create_cq(scene->pair.fabric_a);
    scene->pair.cq_b = create_cq(scene->pair.fabric_b);
    scene->pair.listener = listen_here(scene->pair.fabric_b, attr, scene->pair.address);
    return scene;
}

static void clear_scene(struct scene *scene)
{
    close_pair(&scene->pair);
    assert_int_equal(atomic_load(&scene->meter.pieces), 0);
    free(scene);
}

/* A connection is made, promptly, carries bytes, and ends. */
static void check_good_connection(struct pair *pair)
{
    struct rdmux_ep *a = NULL;
    struct rdmux_ep *b = NULL;
    uint64_t begin = now_ms();

    connect_more(pair, NULL, &a, &b);

    uint64_t took = now_ms() - begin;
    if (took > (uint64_t)PROMPT_MS * SLACK) {
        fail_msg("a good connection took %llu ms", (unsigned long long)took);
    }
    check_message(a, pair->cq_a, b, pair->cq_b, 5);
    CHECK_OK(rdmux_ep_close(a));
    expect_entry(pair->cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    CHECK_OK(rdmux_ep_close(b));
}

static void wait_for_lines(struct book *book, size_t count)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (book_total(book) < count && now_ms() < until) {
        pause_ms(1);
    }
}

/* HELLO and OFFER as a connector of this fabric says them. Returns their size. */
static size_t make_opening(struct rdmux_fabric *fabric, uint8_t out[OPENING_MAX])
{
    struct rdmux_hello hello;
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    assert_non_null(offer);
    rdmux_hello_fill(fabric, &hello);
    rdmux_hello_encode(&hello, out);
    rdmux_offer_defaults(fabric, "tcp", offer);
    size_t size = RDMUX_OFFER_BYTES_MAX;
    CHECK_OK(rdmux_offer_encode(offer, out + RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE, &size));
    rdmux_frame_header_encode(RDMUX_FRAME_OFFER, 0, size, out + RDMUX_HELLO_SIZE);
    free(offer);
    return RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE + size;
}

/* ------------------------------------------------------------------------------------------------- bad input */

static void what_is_no_rdmux_is_dropped_with_one_line_and_good_connections_come_through(void **state)
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
        book_clear(&scene->book);
        int fd = dial_raw(scene->pair.address);

        say(fd, cases[i].bytes, cases[i].size);

        if (!is_dropped(fd, PATIENT_MS)) {
            fail_msg("%s: not dropped", cases[i].says);
        }
        wait_for_lines(&scene->book, 1);
        if (book_total(&scene->book) != 1 || book_count(&scene->book, "listener 127.0.0.1") != 1) {
            fail_msg("%s: %zu lines: %s", cases[i].says, book_total(&scene->book),
                     scene->book.lines[0]);
        }
        close(fd);
    }
    check_good_connection(&scene->pair);
    free(lying);
    free(opening);
    clear_scene(scene);
}

static void one_that_leaves_in_the_middle_costs_a_line_and_one_that_said_nothing_none(void **state)
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
        book_clear(&scene->book);
        int fd = dial_raw(scene->pair.address);
        say(fd, opening, sizes[i]);

        close(fd);

        wait_for_lines(&scene->book, 1);
        assert_int_equal(book_total(&scene->book), 1);
        assert_int_equal(book_count(&scene->book, "dropped"), 1);
    }
    book_clear(&scene->book);
    close(dial_raw(scene->pair.address)); /* a port scan, or a health check */
    check_good_connection(&scene->pair);
    assert_int_equal(book_count(&scene->book, "listener"), 0);
    free(opening);
    clear_scene(scene);
}

static void one_that_speaks_no_known_version_is_told_so_and_dropped(void **state)
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
        book_clear(&scene->book);
        int fd = dial_raw(scene->pair.address);
        say(fd, opening, opening_size);
        struct rdmux_ep *none = NULL;

        CHECK_STATUS(rdmux_accept(scene->pair.listener, scene->pair.cq_b, NULL, 300, &none),
                     RDMUX_TIMED_OUT);

        uint8_t answer[RDMUX_HELLO_SIZE];
        struct rdmux_hello hello;
        assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
        CHECK_OK(rdmux_hello_decode(answer, sizeof(answer), &hello));
        assert_int_equal(hello.version_max, RDMUX_WIRE_VERSION);
        assert_true(is_dropped(fd, PATIENT_MS));
        assert_int_equal(book_total(&scene->book), 1);
        assert_int_equal(book_count(&scene->book, "RDMUX_VERSION"), 1);
        close(fd);
        check_good_connection(&scene->pair);
    }
    free(opening);
    clear_scene(scene);
}

/* ------------------------------------------------------------------------------------------------- silence */

static void who_does_not_introduce_himself_in_time_is_dropped(void **state)
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
    for (size_t i = 0; i < RDMUX_COUNT_OF(sizes); i++) {
        fds[i] = dial_raw(scene->pair.address);
        if (sizes[i] != 0) {
            say(fds[i], opening, sizes[i]);
        }
    }
    int patient = dial_raw(scene->pair.address);
    say(patient, opening, opening_size);

    check_good_connection(&scene->pair);
    for (size_t i = 0; i < RDMUX_COUNT_OF(sizes); i++) {
        assert_true(is_dropped(fds[i], PATIENT_MS));
        assert_true(now_ms() - begin >= LIMIT_MS - 20);
        close(fds[i]);
    }
    assert_true(now_ms() - begin < (uint64_t)LIMIT_MS + 700 * SLACK);
    wait_for_lines(&scene->book, RDMUX_COUNT_OF(sizes));
    assert_int_equal(book_count(&scene->book, "in time"), RDMUX_COUNT_OF(sizes));
    close(patient);
    free(opening);
    clear_scene(scene);
}

static void a_thousand_silent_connections_cost_little_and_delay_nobody(void **state)
{
    (void)state;
    enum { SILENT = 1000, LIMIT_MS = 4000, EACH_MAX = 2048 };
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    struct rlimit more = { .rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max };
    if (limit.rlim_max < 2 * SILENT + 200 || setrlimit(RLIMIT_NOFILE, &more) != 0) {
        skip();
    }
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.hello_timeout_ms = LIMIT_MS;
    struct scene *scene = set_scene(&attr);
    check_good_connection(
        &scene->pair); /* so that everything is there that is made when first needed */
    size_t before = atomic_load(&scene->meter.bytes);
    book_clear(&scene->book);
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
    wait_for_lines(&scene->book, SILENT);
    check_good_connection(&scene->pair);
    assert_int_equal(book_total(&scene->book), SILENT + 2); /* and the ends of two good ones */
    clear_scene(scene);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void beyond_max_pending_the_oldest_silent_one_goes(void **state)
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
    assert_int_equal(book_count(&scene->book, "too many"), EXTRA);
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

static void beyond_max_pending_those_who_introduced_themselves_stay(void **state)
{
    (void)state;
    enum { PENDING = 4 };
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.max_pending = PENDING;
    struct scene *scene = set_scene(&attr);
    uint8_t *opening = malloc(OPENING_MAX);
    assert_non_null(opening);
    size_t opening_size = make_opening(scene->pair.fabric_a, opening);
    int fds[PENDING];
    uint64_t ids[PENDING];
    for (size_t i = 0; i < PENDING; i++) {
        fds[i] = dial_raw(scene->pair.address);
        say(fds[i], opening, opening_size);
        struct rdmux_peer peer = RDMUX_PEER_INIT;
        CHECK_OK(rdmux_listener_next(scene->pair.listener, PATIENT_MS, &peer));
        ids[i] = peer.id;
    }

    int late = dial_raw(scene->pair.address);

    assert_true(is_dropped(late, PATIENT_MS));
    close(late);
    for (size_t i = 0; i < PENDING; i++) {
        assert_false(is_dropped(fds[i], 0));
        CHECK_OK(rdmux_reject(scene->pair.listener, ids[i], 1, NULL, 0));
        assert_true(is_dropped(fds[i], PATIENT_MS));
        close(fds[i]);
    }
    check_good_connection(&scene->pair);
    free(opening);
    clear_scene(scene);
}

/* ------------------------------------------------------------------------------------------------- no descriptors */

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

static void limit_descriptors(rlim_t room)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = room < limit.rlim_max ? room : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* A server with room for few descriptors: tells its address, accepts whoever comes and greets him, until `command` closes.
 * Commands: 'w' accepts nobody from now on, 'a' does again; 'n' has no descriptor at all to spare, 'm' many. Returns the
 * processor time it used, in ms. */
static uint64_t serve_with_few_descriptors(int report, int command, size_t spare)
{
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    struct rdmux_cq *cq = create_cq(fabric);
    char address[RDMUX_ADDRESS_MAX] = "";
    struct rdmux_listener *listener = listen_here(fabric, NULL, address);
    limit_descriptors((rlim_t)(open_descriptors() + spare));
    uint64_t begin = cpu_ms();
    assert_int_equal(write(report, address, sizeof(address)), sizeof(address));
    char what = 'a';
    for (;;) {
        struct pollfd look = { .fd = command, .events = POLLIN };
        if (poll(&look, 1, what == 'w' ? 20 : 0) > 0 && read(command, &what, 1) != 1) {
            break;
        }
        if (what == 'n' || what == 'm') {
            limit_descriptors(what == 'n' ? 3 : 1024);
            what = what == 'n' ? 'w' : 'a';
            assert_int_equal(write(report, &what, 1), 1);
        }
        struct rdmux_ep *ep = NULL;
        if (what != 'w' && rdmux_accept(listener, cq, NULL, 20, &ep) == RDMUX_OK) {
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

static void when_descriptors_run_out_the_oldest_silent_connection_goes(void **state)
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

static void when_descriptors_run_out_and_nobody_is_silent_newcomers_are_turned_away(void **state)
{
    (void)state;
    enum { SPARE = 12, TALKING = 40 };
    struct server server;
    start_server(&server, SPARE);
    assert_int_equal(write(server.command, "w", 1), 1); /* accept nothing */
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
    pause_ms(300); /* the time in which a listener would spin */
    for (size_t i = 0; i < TALKING; i++) {
        close(fds[i]);
    }
    assert_int_equal(write(server.command, "a", 1), 1);
    for (bool full = true; full;) { /* until the server has seen that they left */
        int fd = dial_raw(server.address);
        full = is_dropped(fd, 50);
        close(fd);
        assert_true(now_ms() < until + PATIENT_MS);
    }
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

static void without_any_descriptor_a_listener_waits_and_then_serves_again(void **state)
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

/* ------------------------------------------------------------------------------------------------- stalls */

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

/* Reads a whole frame, while the acceptor goes on. Returns its type, 0 for HELLO. */
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
    say(client->data_fd, bytes, sizeof(bytes));
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
            say(client->fd, action.bytes, action.size);
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

static void a_connector_that_stalls_at_any_stage_delays_nobody(void **state)
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
        say(fd, opening, opening_size);
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

/* ------------------------------------------------------------------------------------------------- showing and taking */

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

static void connections_are_shown_once_oldest_first_with_what_they_said(void **state)
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

static void the_one_that_is_named_is_accepted(void **state)
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

static void a_proved_connection_whose_peer_left_is_never_returned(void **state)
{
    (void)state;
    static const char *const all_paths[] = { "tcp", "shm" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_sides(&pair, all_paths[i], 0, 0);
        int fd = rdmux_listener_fd(pair.listener);
        struct rdmux_ep *none = NULL;
        struct rdmux_ep *gone = NULL;
        struct rdmux_wc wc;
        CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &gone),
                     RDMUX_IN_PROGRESS);
        assert_true(becomes_readable(fd));
        CHECK_STATUS(rdmux_accept(pair.listener, pair.cq_b, NULL, 0, &none), RDMUX_AGAIN);
        expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);

        CHECK_OK(rdmux_ep_close(gone));

        uint64_t until = now_ms() + PATIENT_MS;
        while (is_readable(fd) && now_ms() < until) {
            assert_int_equal(rdmux_cq_poll(pair.cq_b, &wc, 1), 0); /* of an endpoint nobody knows */
        }
        CHECK_STATUS(rdmux_accept(pair.listener, pair.cq_b, NULL, 0, &none), RDMUX_AGAIN);
        assert_false(is_readable(fd));
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
    close_pair(&pair);
}

static void one_that_left_before_it_was_accepted_is_gone(void **state)
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

static void bad_options_are_refused_and_those_of_an_older_program_work(void **state)
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

    attr.size = offsetof(struct rdmux_listen_attr, paths); /* what follows is not looked at */

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
        cmocka_unit_test(
            what_is_no_rdmux_is_dropped_with_one_line_and_good_connections_come_through),
        cmocka_unit_test(one_that_leaves_in_the_middle_costs_a_line_and_one_that_said_nothing_none),
        cmocka_unit_test(one_that_speaks_no_known_version_is_told_so_and_dropped),
        cmocka_unit_test(who_does_not_introduce_himself_in_time_is_dropped),
        cmocka_unit_test(a_thousand_silent_connections_cost_little_and_delay_nobody),
        cmocka_unit_test(beyond_max_pending_the_oldest_silent_one_goes),
        cmocka_unit_test(beyond_max_pending_those_who_introduced_themselves_stay),
        cmocka_unit_test(when_descriptors_run_out_the_oldest_silent_connection_goes),
        cmocka_unit_test(when_descriptors_run_out_and_nobody_is_silent_newcomers_are_turned_away),
        cmocka_unit_test(without_any_descriptor_a_listener_waits_and_then_serves_again),
        cmocka_unit_test(a_connector_that_stalls_at_any_stage_delays_nobody),
        cmocka_unit_test(a_stalled_connector_is_given_up_after_the_path_timeout),
        cmocka_unit_test(connections_that_fail_during_one_accept_leave_nothing_behind),
        cmocka_unit_test(connections_are_shown_once_oldest_first_with_what_they_said),
        cmocka_unit_test(the_one_that_is_named_is_accepted),
        cmocka_unit_test(the_descriptor_is_readable_until_a_proved_connection_is_returned),
        cmocka_unit_test(a_proved_connection_whose_peer_left_is_never_returned),
        cmocka_unit_test(a_rejected_connector_learns_the_reason),
        cmocka_unit_test(one_that_left_before_it_was_accepted_is_gone),
        cmocka_unit_test(bad_options_are_refused_and_those_of_an_older_program_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
