/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Handover of a completion queue between the application that polls and the service thread that
 * works while the application is away, and the service thread's wake-ups. */
#include "tests/unit/api_pair.h"
#include "tests/unit/fair_time.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/time.h>

enum {
    WINDOW_MS = 50,
    /* An application that does not call for this long, some yields of the service thread, may be
     * taken for away. */
    AWAY_NS = 10 * 1000,
    PREEMPTED_NS = 1000 * 1000, /* no call of rdmux takes that long */
    REGION = 4096,
    SERVED_MS = 10, /* rule 10's bound on an idle machine */
};

static const char *const all_paths[] = { "tcp", "shm" };

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Polls for that long. Returns how often the machine kept us from polling for longer than
 * AWAY_NS. */
static uint64_t poll_for_ms(struct rdmux_cq *cq, unsigned ms)
{
    uint64_t gaps = 0;
    uint64_t last = now_ns();
    uint64_t until = last + (uint64_t)ms * 1000000;
    while (last < until) {
        struct rdmux_wc wc;
        assert_int_equal(rdmux_cq_poll(cq, &wc, 1), 0);
        uint64_t now = now_ns();
        gaps += now - last > AWAY_NS;
        last = now;
    }
    return gaps;
}

/* a writes, reads and adds in b's region. */
static void check_one_sided(struct pair *pair, struct rdmux_remote *remote, unsigned char *bytes,
                            uint64_t number)
{
    uint64_t read_back = 0;
    uint64_t before = 0;
    uint64_t *word = (uint64_t *)(void *)(bytes + 64);
    for (int i = 0; i < 3; i++) {
        if (i == 0) {
            CHECK_OK(rdmux_write(pair->a, &number, sizeof(number), NULL, remote, 64, NULL,
                                 RDMUX_PLACED));
            expect_entry(pair->cq_a, RDMUX_WC_WRITE, RDMUX_OK);
            assert_int_equal(*word, number);
        } else if (i == 1) {
            CHECK_OK(rdmux_read(pair->a, &read_back, sizeof(read_back), NULL, remote, 64, NULL, 0));
            expect_entry(pair->cq_a, RDMUX_WC_READ, RDMUX_OK);
            assert_int_equal(read_back, number);
        } else {
            CHECK_OK(rdmux_fetch_add(pair->a, &before, NULL, remote, 64, 5, NULL, 0));
            expect_entry(pair->cq_a, RDMUX_WC_FETCH_ADD, RDMUX_OK);
            assert_int_equal(before, number);
            assert_int_equal(*word, number + 5);
        }
    }
}

static struct rdmux_mr *make_region(struct rdmux_fabric *fabric)
{
    struct rdmux_mr *mr = NULL;
    CHECK_OK(rdmux_mr_alloc(
        fabric, REGION,
        RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC, &mr));
    return mr;
}

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

/* Polls until no event comes and the descriptor is armed. */
static void arm(struct rdmux_cq *cq)
{
    uint64_t until = now_ms() + PATIENT_MS;
    enum rdmux_status status;
    do {
        struct rdmux_wc wc;
        assert_int_equal(rdmux_cq_poll(cq, &wc, 1), 0);
        status = rdmux_cq_arm(cq);
        assert_true(now_ms() < until);
    } while (status == RDMUX_AGAIN);
    CHECK_STATUS(status, RDMUX_OK);
}

/* ------------------------------------------------------------------------------------ the owner */

static void check_that_service_comes_and_goes(const char *paths)
{
    struct pair pair;
    open_pair(&pair, paths, NULL);
    struct rdmux_mr *mr = make_region(pair.fabric_b);
    struct rdmux_remote *remote = import_region(pair.a, mr);
    for (uint64_t round = 1; round <= 2; round++) {
        (void)poll_for_ms(pair.cq_b, 10); /* b is back */
        uint64_t slices = slices_of(pair.b);
        uint64_t gaps = poll_for_ms(pair.cq_b, WINDOW_MS);
        uint64_t grown = slices_of(pair.b) - slices;
        if (grown > gaps) {
            fail_msg("%s: %llu slices, while the application polled with %llu gaps", paths,
                     (unsigned long long)grown, (unsigned long long)gaps);
        }

        slices = slices_of(pair.b);
        uint64_t begin = now_ms();
        do { /* b computes; a window may pass before a busy machine runs the service thread */
            for (uint64_t from = now_ms(); now_ms() - from < WINDOW_MS;) {
                check_one_sided(&pair, remote, rdmux_mr_addr(mr), round * 100);
            }
        } while (slices_of(pair.b) == slices && now_ms() - begin < PATIENT_MS);
        assert_true(slices_of(pair.b) > slices);
    }
    check_messages(&pair);
    rdmux_mr_deregister(mr);
    close_pair(&pair);
}

static void a_polling_application_owns_its_cq_and_the_service_thread_serves_while_it_is_away(
    void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        check_that_service_comes_and_goes(all_paths[i]);
    }
}

static void the_service_thread_serves_a_cq_within_ten_milliseconds_of_the_last_call(void **state)
{
    (void)state;
    enum { BACK_MS = 1 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        struct rdmux_mr *mr = make_region(pair.fabric_b);
        struct rdmux_remote *remote = import_region(pair.a, mr);
        uint64_t best_ns = UINT64_MAX;
        for (int trial = 0; trial < 8; trial++) {
            (void)poll_for_ms(pair.cq_b, 12);
            struct span span = span_begin();
            (void)poll_for_ms(pair.cq_b, BACK_MS); /* it takes a while to begin a span */
            check_one_sided(&pair, remote, rdmux_mr_addr(mr), 7);
            struct span took = span_end(span);
            uint64_t fair_ns = span_fair_ns(&took);
            best_ns = fair_ns < best_ns ? fair_ns : best_ns;
        }
        if (best_ns / 1000000 > (BACK_MS + SERVED_MS) * SLACK) {
            fail_msg("%s: %llu ms", all_paths[i], (unsigned long long)best_ns / 1000000);
        }
        rdmux_mr_deregister(mr);
        close_pair(&pair);
    }
}

/* Sleeps in one call; ends when the first entry comes. */
struct waiter {
    struct rdmux_cq *cq;
    enum rdmux_status status;
    size_t count;
    struct rdmux_wc wc;
};

static void *wait_in_call(void *argument)
{
    struct waiter *waiter = argument;
    waiter->status = rdmux_cq_wait(waiter->cq, &waiter->wc, 1, PATIENT_MS, &waiter->count);
    return NULL;
}

static void a_thread_that_sleeps_in_a_call_owns_the_cq_and_serves_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        struct rdmux_mr *mr = make_region(pair.fabric_b);
        struct rdmux_remote *remote = import_region(pair.a, mr);
        uint32_t got = 0;
        uint32_t sent = 99;
        CHECK_OK(rdmux_recv(pair.b, &got, sizeof(got), NULL, NULL));
        poll_for_ms(pair.cq_b, 12);
        uint64_t slices = slices_of(pair.b);
        uint64_t away = now_ms();
        struct waiter waiter = { .cq = pair.cq_b };
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, wait_in_call, &waiter), 0);
        while (atomic_load(rdmux_cq_inside(pair.cq_b)) != RDMUX_GATE_INSIDE) {
            pause_ms(1);
        }
        uint64_t begin = now_ms();
        slices += 1 + begin - away; /* before the call had begun, on a machine that was late */
        while (now_ms() - begin < WINDOW_MS) {
            check_one_sided(&pair, remote, rdmux_mr_addr(mr), 31);
        }

        CHECK_OK(rdmux_send(pair.a, &sent, sizeof(sent), NULL, NULL, 0));

        expect_entry(pair.cq_a, RDMUX_WC_SEND, RDMUX_OK);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(waiter.status, RDMUX_OK);
        assert_int_equal(waiter.wc.opcode, RDMUX_WC_RECV);
        assert_int_equal(got, sent);
        assert_true(slices_of(pair.b) <= slices);
        rdmux_mr_deregister(mr);
        close_pair(&pair);
    }
}

static void do_nothing(int number)
{
    (void)number;
}

static void signals_never_end_a_wait(void **state)
{
    (void)state;
    enum { WAIT_MS = 120 };
    struct pair pair;
    struct rdmux_wc wc;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep *ep = NULL;
    size_t count = 0;
    open_pair(&pair, "tcp", NULL);
    const struct sigaction action = { .sa_handler = do_nothing }; /* without SA_RESTART */
    struct sigaction before;
    const struct itimerval often = { .it_interval.tv_usec = 3000, .it_value.tv_usec = 3000 };
    const struct itimerval never = { .it_value.tv_usec = 0 };
    assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (int call = 0; call < 5; call++) {
        enum rdmux_status status = RDMUX_OK;
        uint64_t begin = now_ms();
        switch (call) {
        case 0:
            status = rdmux_cq_wait(pair.cq_a, &wc, 1, WAIT_MS, &count);
            break;
        case 1:
            status = rdmux_accept(pair.listener, pair.cq_b, NULL, WAIT_MS, &ep);
            break;
        case 2:
            status = rdmux_listener_next(pair.listener, WAIT_MS, &peer);
            break;
        case 3:
            /* No call takes it. */
            CHECK_OK(rdmux_send(pair.a, "x", 1, NULL, NULL, RDMUX_UNSIGNALED));
            status = rdmux_ep_shutdown(pair.a, WAIT_MS);
            break;
        default: /* no call accepts */
            status = rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, WAIT_MS, &ep);
            break;
        }
        if (status != RDMUX_TIMED_OUT || now_ms() - begin < WAIT_MS - 10) {
            fail_msg("call %d: %s after %llu ms: %s", call, rdmux_status_name(status),
                     (unsigned long long)(now_ms() - begin), rdmux_last_error());
        }
    }
    struct rdmux_explanation *explanation = NULL;
    CHECK_OK(rdmux_explain(pair.fabric_a, pair.address, NULL, PATIENT_MS, &explanation));
    rdmux_explanation_free(explanation);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
    close_pair(&pair);
}

/* ------------------------------------------------------------------------------- the descriptor */

/* Tells whether the service thread has handled the descriptor's wake-up, and left. */
static bool was_taken(struct rdmux_cq *cq)
{
    return atomic_load(&cq->armed) == RDMUX_TOLD &&
           (atomic_load(rdmux_cq_signal(cq)) & RDMUX_SIGNAL_CLAIM) == 0;
}

static void an_armed_descriptor_stays_readable_until_the_poll_although_the_work_was_taken(
    void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        int fd = rdmux_cq_fd(pair.cq_b);
        for (uint32_t round = 0; round < 3; round++) {
            uint32_t got = ~round;
            CHECK_OK(rdmux_recv(pair.b, &got, sizeof(got), NULL, NULL));
            arm(pair.cq_b);
            assert_false(is_readable(fd));
            CHECK_OK(rdmux_send(pair.a, &round, sizeof(round), NULL, NULL, RDMUX_INLINE));
            expect_entry(pair.cq_a, RDMUX_WC_SEND, RDMUX_OK);
            assert_true(becomes_readable(fd));
            uint64_t until = now_ms() + PATIENT_MS;
            while (!was_taken(pair.cq_b) && now_ms() < until) {
                assert_true(is_readable(fd));
                pause_ms(1);
            }
            assert_true(is_readable(fd));

            struct rdmux_wc wc;
            assert_int_equal(rdmux_cq_poll(pair.cq_b, &wc, 1), 1);

            assert_int_equal(wc.opcode, RDMUX_WC_RECV);
            assert_int_equal(got, round);
            arm(pair.cq_b);
            assert_false(is_readable(fd)); /* or a program that sleeps on it would spin */
        }
        assert_int_equal(rdmux_cq_fd(pair.cq_b), fd);
        close_pair(&pair);
    }
}

static void an_armed_descriptor_sleeps_again_after_library_work(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        struct rdmux_mr *mr = make_region(pair.fabric_b);
        struct rdmux_remote *remote = import_region(pair.a, mr);
        int fd = rdmux_cq_fd(pair.cq_b);
        arm(pair.cq_b);

        check_one_sided(&pair, remote, rdmux_mr_addr(mr),
                        3); /* may wake b, which has nothing to return */

        arm(pair.cq_b);
        uint64_t until = now_ms() + PATIENT_MS;
        while (is_readable(fd) && now_ms() < until) {
            arm(pair.cq_b);
        }
        assert_false(is_readable(fd));
        rdmux_mr_deregister(mr);
        close_pair(&pair);
    }
}

/* A device reports a completion when its last endpoint is closed already. The event is an eventfd
 * here, inside the descriptor that stands for the device. */
static void a_device_without_endpoints_does_not_wake_an_armed_descriptor(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        const struct rdmux_cq_domain *domain = &pair.cq_b->domains[0];
        struct epoll_event event = { .events = EPOLLIN };
        int late = eventfd(1, EFD_CLOEXEC);
        CHECK_OK(rdmux_ep_close(pair.b));
        arm(pair.cq_b);

        assert_int_equal(epoll_ctl(domain->ops->fd(domain->cq), EPOLL_CTL_ADD, late, &event), 0);

        assert_false(is_readable(rdmux_cq_fd(pair.cq_b)));
        close(late);
        CHECK_OK(rdmux_ep_close(pair.a));
        connect_more(&pair, NULL, &pair.a, &pair.b); /* and is watched again */
        uint32_t got = 0;
        uint32_t sent = 8;
        CHECK_OK(rdmux_recv(pair.b, &got, sizeof(got), NULL, NULL));
        arm(pair.cq_b);
        CHECK_OK(rdmux_send(pair.a, &sent, sizeof(sent), NULL, NULL, 0));
        assert_true(becomes_readable(rdmux_cq_fd(pair.cq_b)));
        expect_entry(pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
        close_pair(&pair);
    }
}

static void another_thread_may_post_while_one_sleeps_on_the_descriptor(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        uint32_t got = 0;
        uint32_t sent = 8;
        arm(pair.cq_b);
        CHECK_OK(rdmux_recv(pair.b, &got, sizeof(got), NULL,
                            NULL)); /* a call after arm that is none of poll, wait and arm */

        CHECK_OK(rdmux_send(pair.a, &sent, sizeof(sent), NULL, NULL, 0));

        assert_true(becomes_readable(rdmux_cq_fd(pair.cq_b)));
        expect_entry(pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
        assert_int_equal(got, sent);
        close_pair(&pair);
    }
}

static void arm_returns_again_while_an_entry_is_waiting(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        uint32_t got[2];
        uint32_t sent = 8;
        for (int k = 0; k < 2; k++) {
            CHECK_OK(rdmux_recv(pair.b, &got[k], sizeof(got[k]), NULL, NULL));
            CHECK_OK(rdmux_send(pair.a, &sent, sizeof(sent), NULL, NULL, 0));
            expect_entry(pair.cq_a, RDMUX_WC_SEND, RDMUX_OK);
        }
        expect_entry(pair.cq_b, RDMUX_WC_RECV,
                     RDMUX_OK); /* and the second one may be there or not */
        uint64_t until = now_ms() + PATIENT_MS;
        enum rdmux_status status = rdmux_cq_arm(pair.cq_b);
        while (status == RDMUX_OK && now_ms() < until) {
            assert_true(becomes_readable(rdmux_cq_fd(pair.cq_b)));
            status = rdmux_cq_arm(pair.cq_b);
        }

        CHECK_STATUS(status, RDMUX_AGAIN);

        expect_entry(pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
        CHECK_STATUS(rdmux_cq_arm(NULL), RDMUX_INVALID);
        close_pair(&pair);
    }
}

/* ----------------------------------------------------------------------- without service thread */

static void a_cq_without_a_service_thread_is_served_by_calls_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_sides(&pair, all_paths[i], 0, RDMUX_FABRIC_NO_SERVICE_THREAD);
        connect_more(&pair, NULL, &pair.a, &pair.b);
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        CHECK_OK(rdmux_ep_info(pair.a, &info));
        assert_int_equal(info.peer_has_service, 0);
        CHECK_OK(rdmux_ep_info(pair.b, &info));
        assert_int_equal(info.peer_has_service, 1);
        uint32_t got = 0;
        uint32_t sent = 77;
        CHECK_OK(rdmux_recv(pair.b, &got, sizeof(got), NULL, NULL));
        CHECK_OK(rdmux_send(pair.a, &sent, sizeof(sent), NULL, NULL, RDMUX_PLACED));

        struct rdmux_wc wc;
        size_t count = 0;
        CHECK_STATUS(rdmux_cq_wait(pair.cq_a, &wc, 1, WINDOW_MS, &count),
                     RDMUX_TIMED_OUT); /* b does not poll */
        assert_true(becomes_readable(rdmux_fabric_fd(pair.fabric_b)));
        uint64_t until = now_ms() + PATIENT_MS;
        while (rdmux_cq_poll(pair.cq_a, &wc, 1) == 0 && now_ms() < until) {
            CHECK_OK(rdmux_fabric_progress(pair.fabric_b));
        }

        assert_int_equal(wc.opcode, RDMUX_WC_SEND);
        assert_int_equal(wc.status, RDMUX_OK);
        assert_int_equal(got, sent);
        expect_entry(pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
        while (is_readable(rdmux_fabric_fd(pair.fabric_b)) && now_ms() < until) {
            CHECK_OK(rdmux_fabric_progress(pair.fabric_b));
        }
        /* Or a program that sleeps on it would spin. */
        assert_false(is_readable(rdmux_fabric_fd(pair.fabric_b)));
        close_pair(&pair);
    }
}

static void two_sides_without_service_and_worker_threads_exchange_messages(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        uint32_t flags = RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD;
        open_sides(&pair, all_paths[i], flags, flags);

        connect_more(&pair, NULL, &pair.a, &pair.b);

        check_messages(&pair);
        struct rdmux_mr *mr = make_region(pair.fabric_b);
        struct rdmux_token token;
        struct rdmux_remote *remote = NULL;
        CHECK_OK(rdmux_mr_export(mr, &token));
        CHECK_STATUS(rdmux_remote_import(pair.a, &token, 0, &remote), RDMUX_IN_PROGRESS);
        uint64_t until = now_ms() + PATIENT_MS;
        struct rdmux_wc wc = { .opcode = 0 };
        while (rdmux_cq_poll(pair.cq_a, &wc, 1) == 0 && now_ms() < until) {
            CHECK_OK(rdmux_fabric_progress(pair.fabric_a));
            CHECK_OK(rdmux_fabric_progress(pair.fabric_b));
        }
        assert_int_equal(wc.opcode, RDMUX_WC_REMOTE_READY);
        assert_int_equal(wc.status, RDMUX_OK);
        assert_ptr_equal(wc.context, remote);
        rdmux_mr_deregister(mr);
        close_pair(&pair);
    }
}

static void a_progress_call_does_nothing_with_a_service_thread(void **state)
{
    (void)state;
    struct rdmux_fabric *fabric = open_fabric(NULL, 0, NULL);
    assert_true(rdmux_fabric_fd(fabric) >= 0);

    CHECK_OK(rdmux_fabric_progress(fabric));

    CHECK_STATUS(rdmux_fabric_progress(NULL), RDMUX_INVALID);
    assert_int_equal(rdmux_fabric_fd(NULL), -1);
    CHECK_OK(rdmux_fabric_close(fabric));
}

/* ------------------------------------------------------------------------------------- wake-ups */

static uint64_t voluntary_switches_of(const char *tid)
{
    char path[64];
    char line[256];
    uint64_t switches = 0;
    (void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", tid);
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(line, sizeof(line), file) == NULL ||
        strcmp(line, "rdmux-service\n") != 0) {
        line[0] = '\0';
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    if (line[0] == '\0') {
        return 0;
    }
    (void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", tid);
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "voluntary_ctxt_switches:", 24) == 0) {
            switches = strtoull(line + 24, NULL, 10);
        }
    }
    (void)fclose(file);
    return switches;
}

/* How often all service threads of this process have slept. */
static uint64_t service_sleeps(void)
{
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    uint64_t switches = 0;
    for (const struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) {
        switches += voluntary_switches_of(entry->d_name);
    }
    (void)closedir(tasks);
    return switches;
}

/* Messages go back and forth for that long, by polling alone. Returns how often the machine kept
 * the application from polling for longer than PREEMPTED_NS. */
static uint64_t talk_for_ms(struct pair *pair, unsigned ms)
{
    uint64_t gaps = 0;
    uint64_t last = now_ns();
    uint64_t until = last + (uint64_t)ms * 1000000;
    for (uint32_t number = 0; last < until; number++) {
        uint32_t got = 0;
        bool sent = false;
        bool received = false;
        CHECK_OK(rdmux_recv(pair->b, &got, sizeof(got), NULL, NULL));
        CHECK_OK(rdmux_send(pair->a, &number, sizeof(number), NULL, NULL, RDMUX_INLINE));
        while (!sent || !received) {
            struct rdmux_wc wc;
            sent = rdmux_cq_poll(pair->cq_a, &wc, 1) == 1 || sent;
            received = rdmux_cq_poll(pair->cq_b, &wc, 1) == 1 || received;
            uint64_t now = now_ns();
            gaps += now - last > PREEMPTED_NS;
            last = now;
        }
    }
    return gaps;
}

static void a_polling_application_rarely_wakes_the_service_thread(void **state)
{
    (void)state;
    enum { POLLED_MS = 100, PERIOD_MS = 10, TRIALS = 5 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        uint64_t sleeps = 0;
        uint64_t most = 0;
        uint64_t gaps = 0;
        open_pair(&pair, all_paths[i], NULL);
        for (int trial = 0; trial < TRIALS && sleeps >= most; trial++) {
            uint64_t begin = now_ms();
            uint64_t before = service_sleeps();
            gaps = talk_for_ms(&pair, POLLED_MS);
            sleeps = service_sleeps() - before;
            /* Two fabrics. Each may sleep before and after it stands in for the application. */
            most = 2 * ((now_ms() - begin) / PERIOD_MS + 6 + 2 * gaps);
        }
        if (sleeps > most) {
            fail_msg("%s: the two service threads woke %llu times in %d ms with %llu gaps",
                     all_paths[i], (unsigned long long)sleeps, POLLED_MS, (unsigned long long)gaps);
        }
        close_pair(&pair);
    }
}

static void an_idle_process_is_not_woken(void **state)
{
    (void)state;
    enum { IDLE_MS = 300, TRIALS = 4, MOST = 4 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        uint64_t best = UINT64_MAX;
        /* A heartbeat may fall into one of them. */
        for (int trial = 0; trial < TRIALS && best > MOST; trial++) {
            uint64_t before = service_sleeps();
            pause_ms(IDLE_MS);
            uint64_t sleeps = service_sleeps() - before;
            best = sleeps < best ? sleeps : best;
        }
        if (best > MOST) { /* two fabrics */
            fail_msg("%s: the two service threads woke %llu times in %d ms", all_paths[i],
                     (unsigned long long)best, IDLE_MS);
        }
        close_pair(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_polling_application_owns_its_cq_and_the_service_thread_serves_while_it_is_away),
        cmocka_unit_test(the_service_thread_serves_a_cq_within_ten_milliseconds_of_the_last_call),
        cmocka_unit_test(a_thread_that_sleeps_in_a_call_owns_the_cq_and_serves_it),
        cmocka_unit_test(signals_never_end_a_wait),
        cmocka_unit_test(
            an_armed_descriptor_stays_readable_until_the_poll_although_the_work_was_taken),
        cmocka_unit_test(an_armed_descriptor_sleeps_again_after_library_work),
        cmocka_unit_test(a_device_without_endpoints_does_not_wake_an_armed_descriptor),
        cmocka_unit_test(another_thread_may_post_while_one_sleeps_on_the_descriptor),
        cmocka_unit_test(arm_returns_again_while_an_entry_is_waiting),
        cmocka_unit_test(a_cq_without_a_service_thread_is_served_by_calls_alone),
        cmocka_unit_test(two_sides_without_service_and_worker_threads_exchange_messages),
        cmocka_unit_test(a_progress_call_does_nothing_with_a_service_thread),
        cmocka_unit_test(a_polling_application_rarely_wakes_the_service_thread),
        cmocka_unit_test(an_idle_process_is_not_woken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
