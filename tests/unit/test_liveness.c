/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Peers that stop, die, or are merely busy: a loss is noticed in time, reported once, and never by
 * mistake. The peer is a child process. */
#include "api/core/fabric.h"
#include "api/object/peer_process.h"
#include "tests/unit/api_pair.h"
#include "tests/unit/fair_time.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum {
    LIVENESS_MS = 400,
    SLOWER = 8,                     /* times slower than the machine's: no peer must seem silent */
    NOTICED_MS = LIVENESS_MS + 600, /* with the machine's own delays */
    DEPTH = 16,
    MESSAGES = 5,
};

static const char *const all_paths[] = { "tcp", "shm" };

/* The behaviour of the child once it is connected. */
enum part {
    PART_SLEEPS,          /* in calls of rdmux */
    PART_COMPUTES,        /* never calls rdmux */
    PART_COMPUTES_SLOWLY, /* the same, by slower_clock() */
    PART_ECHOES,          /* sends received messages back */
    PART_SENDS,           /* MESSAGES messages, then sleeps outside rdmux */
};

struct child {
    pid_t pid;
    int report;
    char address[RDMUX_ADDRESS_MAX];
};

static void echo(struct rdmux_ep *ep, struct rdmux_cq *cq)
{
    static uint64_t buffers[DEPTH];
    struct rdmux_wc wc = { .opcode = 0 };
    for (size_t i = 0; i < DEPTH; i++) {
        CHECK_OK(rdmux_recv(ep, &buffers[i], sizeof(buffers[i]), NULL, &buffers[i]));
    }
    while (wc.opcode != RDMUX_WC_DISCONNECTED) {
        if (rdmux_cq_poll(cq, &wc, 1) == 1 && wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK) {
            uint64_t *buffer = wc.context;
            (void)!rdmux_send(ep, buffer, sizeof(*buffer), NULL, NULL,
                              RDMUX_INLINE | RDMUX_UNSIGNALED);
            (void)!rdmux_recv(ep, buffer, sizeof(*buffer), NULL, buffer);
        }
    }
}

static void send_some(struct rdmux_ep *ep, struct rdmux_cq *cq)
{
    for (uint64_t i = 0; i < MESSAGES; i++) {
        CHECK_OK(rdmux_send(ep, &i, sizeof(i), NULL, NULL, RDMUX_INLINE | RDMUX_PLACED));
        expect_entry(cq, RDMUX_WC_SEND, RDMUX_OK);
    }
}

static struct rdmux_fabric *open_clocked_fabric(const char *paths, uint64_t (*clock_ns)(void *))
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.paths = paths;
    attr.clock_ns = clock_ns;
    CHECK_OK(rdmux_fabric_open(&attr, &fabric));
    return fabric;
}

/* A peer that is silent for the liveness time is gone, and a busy machine silences any process
 * for a while. */
static uint64_t slower_clock(void *user)
{
    (void)user;
    return fair_clock_ns() / SLOWER;
}

static void play(enum part part, const char *paths, uint32_t liveness_ms, int report)
{
    struct rdmux_fabric *fabric = open_clocked_fabric(
        paths, part == PART_COMPUTES_SLOWLY ? slower_clock : NULL);
    struct rdmux_cq *cq = create_cq(fabric);
    char address[RDMUX_ADDRESS_MAX] = "";
    struct rdmux_listener *listener = listen_here(fabric, NULL, address);
    assert_int_equal(write(report, address, sizeof(address)), sizeof(address));
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.liveness_ms = liveness_ms;
    struct rdmux_ep *ep = NULL;
    CHECK_OK(rdmux_accept(listener, cq, &attr, PATIENT_MS, &ep));
    switch (part) {
    case PART_SLEEPS: {
        struct rdmux_wc wc;
        size_t count;
        (void)!rdmux_cq_wait(cq, &wc, 1, -1, &count);
        break;
    }
    case PART_ECHOES:
        echo(ep, cq);
        break;
    case PART_SENDS:
        send_some(ep, cq);
        assert_int_equal(write(report, "s", 1), 1);
        break;
    case PART_COMPUTES:
    case PART_COMPUTES_SLOWLY:
        break;
    }
    for (;;) {
        pause(); /* until it is killed */
    }
}

static void start_child(struct child *child, enum part part, const char *paths, uint32_t liveness_ms)
{
    int report[2];
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    child->pid = fork();
    assert_true(child->pid >= 0);
    if (child->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no child behind */
        close(report[0]);
        play(part, paths, liveness_ms, report[1]);
        _exit(0);
    }
    close(report[1]);
    child->report = report[0];
    assert_int_equal(read(child->report, child->address, sizeof(child->address)),
                     sizeof(child->address));
}

static void end_child(struct child *child)
{
    (void)kill(child->pid, SIGKILL);
    assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
    close(child->report);
}

/* A child, and this side's endpoint to it. */
struct scene {
    struct child child;
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
};

/* Opens the scene of a child that has started. */
static void join_scene(struct scene *scene, const char *paths, uint32_t liveness_ms,
                       uint64_t (*clock_ns)(void *))
{
    scene->fabric = open_clocked_fabric(paths, clock_ns);
    scene->cq = create_cq(scene->fabric);
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.liveness_ms = liveness_ms;
    attr.send_depth = DEPTH;
    attr.recv_depth = DEPTH;
    CHECK_OK(rdmux_connect(scene->fabric, scene->cq, scene->child.address, &attr, PATIENT_MS,
                           &scene->ep));
}

static void open_scene(struct scene *scene, enum part part, const char *paths, uint32_t liveness_ms,
                       uint64_t (*clock_ns)(void *))
{
    start_child(&scene->child, part, paths, liveness_ms);
    join_scene(scene, paths, liveness_ms, clock_ns);
}

static void set_scene(struct scene *scene, enum part part, const char *paths, uint32_t liveness_ms)
{
    open_scene(scene, part, paths, liveness_ms, NULL);
}

static void clear_scene(struct scene *scene)
{
    CHECK_OK(rdmux_ep_close(scene->ep));
    CHECK_OK(rdmux_cq_destroy(scene->cq));
    CHECK_OK(rdmux_fabric_close(scene->fabric));
    end_child(&scene->child);
}

/* Takes everything until DISCONNECTED: each context from 1 to posted once, the first failure with
 * the cause. seen: contexts that came before. */
static void take_the_end(struct scene *scene, uint64_t posted, bool *seen)
{
    for (;;) {
        struct rdmux_wc wc = next_entry(scene->cq);
        assert_ptr_equal(wc.ep, scene->ep);
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            assert_int_equal(wc.status, RDMUX_PEER_GONE);
            break;
        }
        uintptr_t context = (uintptr_t)wc.context;
        assert_true(context >= 1 && context <= posted);
        assert_false(seen[context]);
        seen[context] = true;
    }
    for (uint64_t i = 1; i <= posted; i++) {
        assert_true(seen[i]);
    }
    struct rdmux_wc none;
    assert_int_equal(rdmux_cq_poll(scene->cq, &none, 1), 0);
}

/* When the peer was last heard from, by this side's clock. */
static uint64_t heard_ns(const struct scene *scene)
{
    return atomic_load(&scene->ep->process.peer->heard_ns);
}

/* Checks that a peer that was heard from at that time or later was noticed in time. A busy machine
 * may have kept the peer silent before it stopped. */
static void check_noticed(const char *paths, const struct scene *scene, uint64_t heard,
                          struct span span)
{
    uint64_t silent_ms = (rdmux_now(scene->fabric) - heard) / 1000000;
    check_span(paths, span, 0, NOTICED_MS * SLACK);
    if (silent_ms < LIVENESS_MS) {
        fail_msg("%s: silent for %llu ms", paths, (unsigned long long)silent_ms);
    }
}

/* -------------------------------------------------------------------------------------- stopped */

static void a_stopped_peer_is_noticed_within_the_liveness_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        for (int part = PART_SLEEPS; part <= PART_COMPUTES; part++) {
            struct scene scene;
            bool seen[DEPTH + 1] = { false };
            uint64_t buffer;
            set_scene(&scene, (enum part)part, all_paths[i], LIVENESS_MS);
            CHECK_OK(rdmux_recv(scene.ep, &buffer, sizeof(buffer), NULL, CONTEXT(1)));
            struct span span = span_begin();
            uint64_t heard = heard_ns(&scene);

            assert_int_equal(kill(scene.child.pid, SIGSTOP), 0);

            take_the_end(&scene, 1, seen);
            check_noticed(all_paths[i], &scene, heard, span);
            struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
            CHECK_OK(rdmux_ep_info(scene.ep, &info));
            assert_int_equal(info.status, RDMUX_PEER_GONE);
            assert_non_null(strstr(info.text, "silent"));
            clear_scene(&scene);
        }
    }
}

static void a_peer_that_stops_while_messages_flow_is_noticed(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        enum { POSTS_MAX = 1 << 20 };
        struct scene scene;
        uint64_t buffer[DEPTH];
        bool *seen = calloc(POSTS_MAX, sizeof(*seen));
        assert_non_null(seen);
        set_scene(&scene, PART_ECHOES, all_paths[i], LIVENESS_MS);
        uint64_t posted = 0;
        uint64_t done = 0;
        uint64_t stopped = 0;
        uint64_t heard = 0;
        struct span span = { 0 };
        for (uint64_t k = 0; k < DEPTH; k++) {
            CHECK_OK(rdmux_recv(scene.ep, &buffer[k], sizeof(buffer[k]), NULL, CONTEXT(++posted)));
        }
        for (;;) {
            struct rdmux_wc wc;
            if (stopped == 0 && done > 200) {
                heard = heard_ns(&scene);
                assert_int_equal(kill(scene.child.pid, SIGSTOP), 0);
                stopped = now_ms();
                span = span_begin();
            }
            assert_true(posted < POSTS_MAX - 2);
            if (rdmux_send(scene.ep, &posted, sizeof(posted), NULL, CONTEXT(posted + 1),
                           RDMUX_INLINE) == RDMUX_OK) {
                posted++;
            }
            if (rdmux_cq_poll(scene.cq, &wc, 1) == 0 || wc.opcode == RDMUX_WC_WRITABLE) {
                assert_true(stopped == 0 || now_ms() < stopped + PATIENT_MS);
                continue;
            }
            if (wc.status != RDMUX_OK) {
                uintptr_t context = (uintptr_t)wc.context;
                assert_true(wc.status == RDMUX_PEER_GONE || wc.status == RDMUX_FLUSHED);
                assert_false(seen[context]);
                seen[context] = true;
                break;
            }
            uintptr_t context = (uintptr_t)wc.context;
            assert_false(seen[context]);
            seen[context] = true;
            done++;
            if (wc.opcode == RDMUX_WC_RECV) {
                CHECK_OK(
                    rdmux_recv(scene.ep, &buffer[0], sizeof(buffer[0]), NULL, CONTEXT(posted + 1)));
                posted++;
            }
        }

        take_the_end(&scene, posted, seen);
        check_noticed(all_paths[i], &scene, heard, span);

        free(seen);
        clear_scene(&scene);
    }
}

static void a_stopped_peer_is_waited_for_when_liveness_is_never(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        uint64_t got = 0;
        uint64_t sent = 5;
        struct rdmux_wc wc;
        size_t count = 0;
        set_scene(&scene, PART_ECHOES, all_paths[i], RDMUX_NEVER);
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        CHECK_OK(rdmux_ep_info(scene.ep, &info));
        assert_int_equal(info.liveness_ms, RDMUX_NEVER);
        CHECK_OK(rdmux_recv(scene.ep, &got, sizeof(got), NULL, NULL));
        assert_int_equal(kill(scene.child.pid, SIGSTOP), 0);

        enum rdmux_status status = rdmux_cq_wait(scene.cq, &wc, 1, 3 * LIVENESS_MS, &count);

        CHECK_STATUS(status, RDMUX_TIMED_OUT);
        assert_int_equal(kill(scene.child.pid, SIGCONT), 0);
        CHECK_OK(rdmux_send(scene.ep, &sent, sizeof(sent), NULL, NULL, RDMUX_UNSIGNALED));
        expect_entry(scene.cq, RDMUX_WC_RECV, RDMUX_OK);
        assert_int_equal(got, sent);
        clear_scene(&scene);
    }
}

static void the_smaller_liveness_of_both_sides_counts(void **state)
{
    (void)state;
    struct pair pair;
    open_sides(&pair, "tcp", 0, 0);
    static const uint32_t wishes[][3] = {
        { 300, 5000, 300 },        { 5000, 300, 300 },
        { RDMUX_NEVER, 700, 700 }, { RDMUX_NEVER, RDMUX_NEVER, RDMUX_NEVER },
        { 0, 0, 10000 },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(wishes); i++) {
        struct rdmux_ep_attr attr_a = RDMUX_EP_ATTR_INIT;
        struct rdmux_ep_attr attr_b = RDMUX_EP_ATTR_INIT;
        struct rdmux_ep *a = NULL;
        struct rdmux_ep *b = NULL;
        attr_a.liveness_ms = wishes[i][0];
        attr_b.liveness_ms = wishes[i][1];
        CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, &attr_a, 0, &a),
                     RDMUX_IN_PROGRESS);

        CHECK_OK(rdmux_accept(pair.listener, pair.cq_b, &attr_b, PATIENT_MS, &b));

        expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        CHECK_OK(rdmux_ep_info(a, &info));
        assert_int_equal(info.liveness_ms, wishes[i][2]);
        CHECK_OK(rdmux_ep_info(b, &info));
        assert_int_equal(info.liveness_ms, wishes[i][2]);
        CHECK_OK(rdmux_ep_close(a));
        expect_entry(pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
        CHECK_OK(rdmux_ep_close(b));
    }
    close_pair(&pair);
}

/* ---------------------------------------------------------------------------------- merely away */

static void processes_that_compute_keep_each_other_alive(void **state)
{
    (void)state;
    struct scene scenes[RDMUX_COUNT_OF(all_paths)];
    struct rdmux_wc wc;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) { /* before this process has threads */
        start_child(&scenes[i].child, PART_COMPUTES_SLOWLY, all_paths[i], LIVENESS_MS);
    }
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        join_scene(&scenes[i], all_paths[i], LIVENESS_MS, slower_clock);
    }

    pause_ms(2 * SLOWER * LIVENESS_MS); /* we compute, too */

    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        size_t count = 0;
        assert_int_equal(rdmux_cq_poll(scenes[i].cq, &wc, 1), 0);
        CHECK_STATUS(rdmux_cq_wait(scenes[i].cq, &wc, 1, LIVENESS_MS / 2, &count), RDMUX_TIMED_OUT);
        clear_scene(&scenes[i]);
    }
}

static _Atomic uint64_t clock_ahead_ns;

static uint64_t clock_ahead(void *user)
{
    (void)user;
    return now_ms() * 1000000 + atomic_load(&clock_ahead_ns);
}

/* This side's clock advances by much while the side does not run, as on a suspended machine: the
 * peer had no time to send. Then the peer stops. */
static void time_in_which_this_side_did_not_run_does_not_count(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        struct rdmux_wc wc;
        size_t count = 0;
        open_scene(&scene, PART_COMPUTES, all_paths[i], LIVENESS_MS, clock_ahead);
        for (int j = 0; j < 3; j++) {
            pause_ms(LIVENESS_MS);
            atomic_fetch_add(&clock_ahead_ns, (uint64_t)10 * LIVENESS_MS * 1000000);
        }
        CHECK_STATUS(rdmux_cq_wait(scene.cq, &wc, 1, LIVENESS_MS, &count), RDMUX_TIMED_OUT);

        uint64_t heard = heard_ns(&scene);
        (void)kill(scene.child.pid, SIGSTOP);
        struct span span = span_begin();
        CHECK_OK(rdmux_cq_wait(scene.cq, &wc, 1, PATIENT_MS, &count));
        assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
        assert_int_equal(wc.status, RDMUX_PEER_GONE);
        check_noticed(all_paths[i], &scene, heard, span);
        clear_scene(&scene);
    }
}

static void endpoints_between_the_same_processes_share_heartbeats(void **state)
{
    (void)state;
    enum {
        ENDPOINTS = 12,
        WATCHED_MS = 4 * LIVENESS_MS, /* by the slower clock */
        PERIOD_MS = LIVENESS_MS / 4,
        BEATS_LEAST = WATCHED_MS / PERIOD_MS / 2,
        BEATS_MOST = WATCHED_MS / PERIOD_MS * 2,
    };
    struct pair pair;
    struct rdmux_ep *a[ENDPOINTS];
    struct rdmux_ep *b[ENDPOINTS];
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.liveness_ms = LIVENESS_MS;
    memset(&pair, 0, sizeof(pair));
    pair.fabric_a = open_clocked_fabric("tcp", slower_clock);
    pair.fabric_b = open_clocked_fabric("tcp", slower_clock);
    pair.cq_a = create_cq(pair.fabric_a);
    pair.cq_b = create_cq(pair.fabric_b);
    pair.listener = listen_here(pair.fabric_b, NULL, pair.address);
    for (size_t i = 0; i < ENDPOINTS; i++) {
        connect_more(&pair, &attr, &a[i], &b[i]);
        assert_ptr_equal(a[i]->process.peer, a[0]->process.peer);
        assert_ptr_equal(a[i]->process.heartbeat_group, a[0]->process.heartbeat_group);
    }
    uint64_t beats = 0;
    uint64_t last = atomic_load(&a[0]->process.heartbeat_group->sent_ns);
    uint64_t begin = now_ms();
    while (now_ms() - begin < (uint64_t)SLOWER * WATCHED_MS) { /* the service threads beat */
        uint64_t sent = atomic_load(&a[0]->process.heartbeat_group->sent_ns);
        beats += sent != last;
        last = sent;
        pause_ms(1);
    }

    /* Jitter may shorten a period by a quarter. */
    if (beats < BEATS_LEAST || beats > BEATS_MOST) {
        fail_msg("%llu heartbeats in %d ms", (unsigned long long)beats, WATCHED_MS);
    }
    struct rdmux_wc wc;
    assert_int_equal(rdmux_cq_poll(pair.cq_a, &wc, 1), 0); /* none was missed by any */
    assert_int_equal(rdmux_cq_poll(pair.cq_b, &wc, 1), 0);
    for (size_t i = 0; i < ENDPOINTS; i++) {
        CHECK_OK(rdmux_ep_close(a[i]));
        CHECK_OK(rdmux_ep_close(b[i]));
    }
    close_pair(&pair);
}

/* ----------------------------------------------------------------------------------------- dead */

static void a_killed_peer_is_noticed_at_once_after_its_last_messages(void **state)
{
    (void)state;
    enum { AT_ONCE_MS = 1000, REQUESTS = 2 * DEPTH };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        bool seen[REQUESTS + 1] = { false };
        uint64_t buffers[DEPTH];
        uint64_t number = 1;
        char sent;
        set_scene(&scene, PART_SENDS, all_paths[i], 10000);
        for (size_t k = 0; k < DEPTH; k++) {
            CHECK_OK(rdmux_recv(scene.ep, &buffers[k], sizeof(buffers[k]), NULL, CONTEXT(k + 1)));
        }
        assert_int_equal(read(scene.child.report, &sent, 1), 1);
        for (size_t k = 0; k < DEPTH; k++) { /* no receive is posted for them */
            uint32_t flags = k % 3 == 0 ? RDMUX_PLACED : 0;
            CHECK_OK(
                rdmux_send(scene.ep, &number, sizeof(number), NULL, CONTEXT(DEPTH + 1 + k), flags));
        }
        struct span span = span_begin();

        assert_int_equal(kill(scene.child.pid, SIGKILL), 0);

        for (uint64_t k = 0; k < MESSAGES; k++) {
            struct rdmux_wc wc = next_entry(scene.cq);
            if (wc.opcode == RDMUX_WC_SEND) { /* no order between the two sides */
                seen[(uintptr_t)wc.context] = true;
                k--;
                continue;
            }
            assert_int_equal(wc.opcode, RDMUX_WC_RECV);
            assert_int_equal(wc.status, RDMUX_OK);
            assert_ptr_equal(wc.context, CONTEXT(k + 1));
            assert_int_equal(buffers[k], k);
            seen[k + 1] = true;
        }
        take_the_end(&scene, REQUESTS, seen);
        check_span(all_paths[i], span, 0, AT_ONCE_MS * SLACK);
        clear_scene(&scene);
    }
}

static void a_killed_peer_wakes_a_program_that_sleeps_on_the_descriptor(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        struct rdmux_wc wc;
        set_scene(&scene, PART_COMPUTES, all_paths[i], 10000);
        while (rdmux_cq_arm(scene.cq) == RDMUX_AGAIN) {
            assert_int_equal(rdmux_cq_poll(scene.cq, &wc, 1), 0);
        }
        struct pollfd look = { .fd = rdmux_cq_fd(scene.cq), .events = POLLIN };
        struct span span = span_begin();

        assert_int_equal(kill(scene.child.pid, SIGKILL), 0);

        while (rdmux_cq_poll(scene.cq, &wc, 1) == 0) {
            if (rdmux_cq_arm(scene.cq) == RDMUX_OK) {
                assert_int_equal(poll(&look, 1, PATIENT_MS), 1);
            }
        }
        assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
        check_span(all_paths[i], span, 0, 1000 * SLACK);
        clear_scene(&scene);
    }
}

static void only_the_endpoint_of_the_killed_peer_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene doomed;
        struct child other;
        struct rdmux_ep *survivor = NULL;
        uint64_t got = 0;
        uint64_t sent = 6;
        start_child(&other, PART_ECHOES, all_paths[i], 10000);
        set_scene(&doomed, PART_COMPUTES, all_paths[i], 10000);
        CHECK_OK(
            rdmux_connect(doomed.fabric, doomed.cq, other.address, NULL, PATIENT_MS, &survivor));

        assert_int_equal(kill(doomed.child.pid, SIGKILL), 0);

        struct rdmux_wc wc = expect_entry(doomed.cq, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
        assert_ptr_equal(wc.ep, doomed.ep);
        CHECK_OK(rdmux_recv(survivor, &got, sizeof(got), NULL, NULL));
        CHECK_OK(rdmux_send(survivor, &sent, sizeof(sent), NULL, NULL, RDMUX_UNSIGNALED));
        expect_entry(doomed.cq, RDMUX_WC_RECV, RDMUX_OK);
        assert_int_equal(got, sent);
        CHECK_OK(rdmux_ep_close(survivor));
        clear_scene(&doomed);
        end_child(&other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_peer_is_noticed_within_the_liveness_time),
        cmocka_unit_test(a_peer_that_stops_while_messages_flow_is_noticed),
        cmocka_unit_test(a_stopped_peer_is_waited_for_when_liveness_is_never),
        cmocka_unit_test(the_smaller_liveness_of_both_sides_counts),
        cmocka_unit_test(processes_that_compute_keep_each_other_alive),
        cmocka_unit_test(time_in_which_this_side_did_not_run_does_not_count),
        cmocka_unit_test(endpoints_between_the_same_processes_share_heartbeats),
        cmocka_unit_test(a_killed_peer_is_noticed_at_once_after_its_last_messages),
        cmocka_unit_test(a_killed_peer_wakes_a_program_that_sleeps_on_the_descriptor),
        cmocka_unit_test(only_the_endpoint_of_the_killed_peer_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
