/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A cq and several threads: waking its owner, finding two calls at once, and serialized calls. */
#include "api/loop/service.h"
#include "api/progress/cq_owner.h"
#include "tests/unit/api_pair.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHORT_MS = 20 };

/* Two sides over shm whose cqs have these flags. */
static void open_flagged(struct pair *pair, uint32_t flags)
{
    struct rdmux_cq_attr attr = RDMUX_CQ_ATTR_INIT;
    attr.flags = flags;
    open_sides(pair, "shm,tcp", 0, 0);
    CHECK_OK(rdmux_cq_destroy(pair->cq_a));
    CHECK_OK(rdmux_cq_destroy(pair->cq_b));
    CHECK_OK(rdmux_cq_create(pair->fabric_a, &attr, &pair->cq_a));
    CHECK_OK(rdmux_cq_create(pair->fabric_b, &attr, &pair->cq_b));
}

static void connect_flagged(struct pair *pair, uint32_t flags)
{
    open_flagged(pair, flags);
    connect_more(pair, NULL, &pair->a, &pair->b);
}

static void expect_woken(struct rdmux_cq *cq)
{
    struct rdmux_wc wc = expect_entry(cq, RDMUX_WC_WOKEN, RDMUX_OK);
    assert_null(wc.ep);
    assert_ptr_equal(wc.context, cq);
    assert_int_equal(wc.length, 0);
}

static void expect_nothing(struct rdmux_cq *cq)
{
    struct rdmux_wc wc;
    size_t count = 1;
    CHECK_STATUS(rdmux_cq_wait(cq, &wc, 1, SHORT_MS, &count), RDMUX_TIMED_OUT);
    assert_int_equal(count, 0);
}

static bool is_readable(struct rdmux_cq *cq, int timeout_ms)
{
    struct pollfd fd = { .fd = rdmux_cq_fd(cq), .events = POLLIN };
    return poll(&fd, 1, timeout_ms) == 1;
}

/* ------------------------------------------------------------------------------------- wake-ups */

static void wakes_before_a_wait_are_one_event(void **state)
{
    (void)state;
    struct pair pair;
    open_flagged(&pair, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(rdmux_cq_wake(pair.cq_a));
    }
    expect_woken(pair.cq_a);
    expect_nothing(pair.cq_a);
    CHECK_OK(rdmux_cq_wake(pair.cq_a));
    struct rdmux_wc wc;
    assert_int_equal(rdmux_cq_poll(pair.cq_a, &wc, 1), 1); /* the first poll after the wake */
    assert_int_equal(wc.opcode, RDMUX_WC_WOKEN);
    assert_int_equal(rdmux_cq_poll(pair.cq_a, &wc, 1), 0);
    close_pair(&pair);
}

static void *wake_soon(void *cq)
{
    pause_ms(SHORT_MS);
    CHECK_OK(rdmux_cq_wake(cq));
    return NULL;
}

static void another_thread_wakes_a_sleeper(void **state)
{
    (void)state;
    struct pair pair;
    pthread_t thread;
    connect_flagged(&pair, 0);
    assert_int_equal(pthread_create(&thread, NULL, wake_soon, pair.cq_a), 0);
    expect_woken(pair.cq_a);
    assert_int_equal(pthread_join(thread, NULL), 0);
    expect_nothing(pair.cq_a);
    close_pair(&pair);
}

static void a_wake_makes_an_armed_descriptor_readable(void **state)
{
    (void)state;
    struct pair pair;
    pthread_t thread;
    connect_flagged(&pair, 0);
    CHECK_OK(rdmux_cq_arm(pair.cq_a));
    assert_false(is_readable(pair.cq_a, 0));
    assert_int_equal(pthread_create(&thread, NULL, wake_soon, pair.cq_a), 0);
    assert_true(is_readable(pair.cq_a, PATIENT_MS));
    pause_ms(SHORT_MS); /* the service thread may take the cq meanwhile */
    assert_true(is_readable(pair.cq_a, 0));
    assert_int_equal(pthread_join(thread, NULL), 0);
    expect_woken(pair.cq_a);
    CHECK_OK(rdmux_cq_arm(pair.cq_a));
    assert_false(is_readable(pair.cq_a, SHORT_MS));

    CHECK_OK(rdmux_cq_wake(pair.cq_a));
    expect_woken(pair.cq_a);
    CHECK_OK(rdmux_cq_wake(pair.cq_a));
    CHECK_STATUS(rdmux_cq_arm(pair.cq_a), RDMUX_AGAIN);
    expect_woken(pair.cq_a);
    close_pair(&pair);
}

/* The service thread has the cq in between. */
static void a_wake_outlives_a_turn_of_the_service_thread(void **state)
{
    (void)state;
    struct pair pair;
    connect_flagged(&pair, 0);
    CHECK_OK(rdmux_cq_wake(pair.cq_a));
    pause_ms(3 * SHORT_MS);
    expect_woken(pair.cq_a);
    expect_nothing(pair.cq_a);
    close_pair(&pair);
}

static void a_wake_comes_beside_messages(void **state)
{
    (void)state;
    struct pair pair;
    uint64_t word = 0;
    connect_flagged(&pair, 0);
    for (uint64_t i = 1; i <= 100; i++) {
        CHECK_OK(rdmux_recv(pair.b, &word, sizeof(word), NULL, CONTEXT(i)));
        CHECK_OK(rdmux_send(pair.a, &i, sizeof(i), NULL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED));
        CHECK_OK(rdmux_cq_wake(pair.cq_b));
        bool was_woken = false;
        bool has_come = false;
        while (!was_woken || !has_come) {
            struct rdmux_wc wc = next_entry(pair.cq_b);
            if (wc.opcode == RDMUX_WC_WOKEN) {
                assert_false(was_woken);
                was_woken = true;
            } else {
                assert_int_equal(wc.opcode, RDMUX_WC_RECV);
                assert_int_equal(word, i);
                assert_false(has_come);
                has_come = true;
            }
        }
    }
    close_pair(&pair);
}

static struct rdmux_cq *signaled_cq;
static volatile sig_atomic_t signals;

static void wake_in_handler(int number)
{
    (void)number;
    int before = errno;
    errno = E2BIG;
    if (rdmux_cq_wake(signaled_cq) == RDMUX_OK && errno == E2BIG) {
        signals++;
    }
    errno = before;
}

/* The handler runs within the sleep and, at its second time, within polls of the same thread. */
static void a_signal_handler_wakes_its_own_thread(void **state)
{
    (void)state;
    struct pair pair;
    const struct sigaction action = { .sa_handler = wake_in_handler };
    const struct itimerval soon = { .it_value.tv_usec = 1000L * SHORT_MS };
    struct rdmux_wc wc;
    connect_flagged(&pair, 0);
    signaled_cq = pair.cq_a;
    signals = 0;
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    CHECK_STATUS(rdmux_cq_arm(NULL), RDMUX_INVALID);
    char *text = strdup(rdmux_last_error());
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    expect_woken(pair.cq_a);
    assert_string_equal(rdmux_last_error(), text);
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    while (rdmux_cq_poll(pair.cq_a, &wc, 1) == 0) {
    }
    assert_int_equal(wc.opcode, RDMUX_WC_WOKEN);
    assert_string_equal(rdmux_last_error(), text);
    assert_int_equal(signals, 2);
    free(text);
    close_pair(&pair);
}

static void a_wake_without_a_cq_is_refused_without_a_text(void **state)
{
    (void)state;
    struct pair pair;
    open_flagged(&pair, 0);
    CHECK_STATUS(rdmux_cq_arm(NULL), RDMUX_INVALID);
    char *text = strdup(rdmux_last_error());
    assert_int_equal(rdmux_cq_wake(NULL), RDMUX_INVALID);
    assert_string_equal(rdmux_last_error(), text);
    pid_t child = fork();
    if (child == 0) {
        _exit(rdmux_cq_wake(pair.cq_a) == RDMUX_INVALID ? 0 : 1);
    }
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    expect_nothing(pair.cq_a);
    free(text);
    close_pair(&pair);
}

/* Some threads wake while the owner waits: each wake after a returned event makes another one. */
static void *wake_often(void *cq)
{
    for (int i = 0; i < 2000; i++) {
        CHECK_OK(rdmux_cq_wake(cq));
    }
    return NULL;
}

static void no_wake_is_lost_among_threads(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    struct pair pair;
    pthread_t threads[THREADS];
    connect_flagged(&pair, 0);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, wake_often, pair.cq_a), 0);
    }
    expect_woken(pair.cq_a);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    struct rdmux_wc wc;
    while (rdmux_cq_poll(pair.cq_a, &wc, 1) == 1) {
        assert_int_equal(wc.opcode, RDMUX_WC_WOKEN);
    }
    CHECK_OK(rdmux_cq_wake(pair.cq_a));
    expect_woken(pair.cq_a);
    expect_nothing(pair.cq_a);
    close_pair(&pair);
}

/* ---------------------------------------------------------------------------------- two at once */

static void *wait_for_wake(void *cq)
{
    expect_woken(cq);
    return NULL;
}

/* The wait itself is refused while another call is inside. */
static void *wait_for_wake_alone(void *cq)
{
    struct rdmux_wc wc;
    size_t count = 0;
    enum rdmux_status status;
    do {
        status = rdmux_cq_wait(cq, &wc, 1, PATIENT_MS, &count);
    } while (status == RDMUX_INVALID);
    assert_int_equal(status, RDMUX_OK);
    assert_int_equal(wc.opcode, RDMUX_WC_WOKEN);
    return NULL;
}

static void calls_beside_another_one_are_found(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_wc wc;
    size_t count = 0;
    uint64_t word = 7;
    pthread_t thread;
    connect_flagged(&pair, RDMUX_CQ_CHECKED);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_wake_alone, pair.cq_a), 0);
    uint64_t until = now_ms() + PATIENT_MS;
    while (rdmux_cq_arm(pair.cq_a) != RDMUX_INVALID) { /* until the thread is in its wait */
        assert_true(now_ms() < until);
    }
    assert_non_null(strstr(rdmux_last_error(), "rdmux_cq_arm"));
    assert_non_null(strstr(rdmux_last_error(), "another thread"));
    assert_int_equal(rdmux_cq_poll(pair.cq_a, &wc, 1), 0);
    assert_non_null(strstr(rdmux_last_error(), "rdmux_cq_poll"));
    CHECK_STATUS(rdmux_cq_wait(pair.cq_a, &wc, 1, 0, &count), RDMUX_INVALID);
    CHECK_STATUS(rdmux_send(pair.a, &word, sizeof(word), NULL, NULL, 0), RDMUX_INVALID);
    CHECK_STATUS(rdmux_recv(pair.a, &word, sizeof(word), NULL, NULL), RDMUX_INVALID);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_STATUS(rdmux_ep_info(pair.a, &info), RDMUX_INVALID);
    CHECK_STATUS(rdmux_ep_close(pair.a), RDMUX_INVALID);

    CHECK_OK(rdmux_cq_wake(pair.cq_a));
    assert_int_equal(pthread_join(thread, NULL), 0);
    CHECK_OK(rdmux_recv(pair.b, &word, sizeof(word), NULL, NULL));
    CHECK_OK(rdmux_send(pair.a, &word, sizeof(word), NULL, NULL, 0));
    expect_entry(pair.cq_a, RDMUX_WC_SEND, RDMUX_OK);
    expect_entry(pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
    close_pair(&pair);
}

static void unknown_flags_are_refused(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_cq *cq = NULL;
    struct rdmux_cq_attr attr = RDMUX_CQ_ATTR_INIT;
    open_sides(&pair, "shm", 0, 0);
    attr.flags = 1 << 2;
    CHECK_STATUS(rdmux_cq_create(pair.fabric_a, &attr, &cq), RDMUX_INVALID);
    assert_null(cq);
    attr.size = offsetof(struct rdmux_cq_attr, flags); /* an older program's */
    CHECK_OK(rdmux_cq_create(pair.fabric_a, &attr, &cq));
    CHECK_OK(rdmux_cq_destroy(cq));
    close_pair(&pair);
}

/* ----------------------------------------------------------------------------------- serialized */

enum { MESSAGES = 4000, DEPTH = 32 };

struct traffic {
    struct pair pair;
    _Atomic uint64_t next;                /* message to send */
    _Atomic uint64_t came;                /* messages received */
    _Atomic unsigned char seen[MESSAGES]; /* times that each has come */
    uint64_t words[DEPTH];
};

static void *send_some(void *user)
{
    struct traffic *traffic = user;
    for (;;) {
        uint64_t word = atomic_fetch_add(&traffic->next, 1);
        if (word >= MESSAGES) {
            return NULL;
        }
        while (rdmux_send(traffic->pair.a, &word, sizeof(word), NULL, NULL,
                          RDMUX_INLINE | RDMUX_UNSIGNALED) != RDMUX_OK) {
            struct rdmux_wc wc;
            while (rdmux_cq_poll(traffic->pair.cq_a, &wc, 1) == 1) {
                assert_int_equal(wc.opcode, RDMUX_WC_WRITABLE);
            }
        }
    }
}

static void *receive_some(void *user)
{
    struct traffic *traffic = user;
    while (atomic_load(&traffic->came) < MESSAGES) {
        struct rdmux_wc wc;
        size_t count = 0;
        enum rdmux_status status = rdmux_cq_wait(traffic->pair.cq_b, &wc, 1, PATIENT_MS, &count);
        assert_int_equal(status, RDMUX_OK);
        if (wc.opcode == RDMUX_WC_WOKEN) {
            continue;
        }
        assert_int_equal(wc.opcode, RDMUX_WC_RECV);
        uint64_t slot = (uintptr_t)wc.context;
        assert_true(traffic->words[slot] < MESSAGES);
        assert_int_equal(atomic_fetch_add(&traffic->seen[traffic->words[slot]], 1), 0);
        CHECK_OK(rdmux_recv(traffic->pair.b, &traffic->words[slot], sizeof(uint64_t), NULL,
                            CONTEXT(slot)));
        if (atomic_fetch_add(&traffic->came, 1) + 1 == MESSAGES) {
            for (int i = 0; i < 2; i++) { /* for the others, which look at the count */
                CHECK_OK(rdmux_cq_wake(traffic->pair.cq_b));
                pause_ms(1);
            }
        }
    }
    CHECK_OK(rdmux_cq_wake(traffic->pair.cq_b));
    return NULL;
}

static void threads_share_a_serialized_cq(void **state)
{
    (void)state;
    enum { EACH = 3 };
    static const char *const paths[] = { "shm", "tcp" };
    for (size_t path = 0; path < RDMUX_COUNT_OF(paths); path++) {
        static struct traffic traffic;
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        pthread_t threads[2 * EACH];
        memset(&traffic, 0, sizeof(traffic));
        attr.paths = paths[path];
        open_flagged(&traffic.pair, RDMUX_CQ_SERIALIZED);
        connect_more(&traffic.pair, &attr, &traffic.pair.a, &traffic.pair.b);
        for (uint64_t i = 0; i < DEPTH; i++) {
            CHECK_OK(
                rdmux_recv(traffic.pair.b, &traffic.words[i], sizeof(uint64_t), NULL, CONTEXT(i)));
        }
        for (size_t i = 0; i < 2 * (size_t)EACH; i++) {
            assert_int_equal(
                pthread_create(&threads[i], NULL, i < EACH ? send_some : receive_some, &traffic), 0);
        }
        for (size_t i = 0; i < 2 * (size_t)EACH; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        }
        for (size_t i = 0; i < MESSAGES; i++) {
            assert_int_equal(traffic.seen[i], 1);
        }
        close_pair(&traffic.pair);
    }
}

/* The other thread sleeps in its wait all the time that this one works on the same cq. */
static void a_sleeper_keeps_no_call_out(void **state)
{
    (void)state;
    struct pair pair;
    pthread_t thread;
    uint64_t word = 0;
    connect_flagged(&pair, RDMUX_CQ_SERIALIZED);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_wake, pair.cq_a), 0);
    pause_ms(SHORT_MS);
    for (uint64_t i = 0; i < 200; i++) {
        CHECK_OK(rdmux_recv(pair.b, &word, sizeof(word), NULL, NULL));
        CHECK_OK(rdmux_send(pair.a, &i, sizeof(i), NULL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED));
        expect_entry(pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
        assert_int_equal(word, i);
        struct rdmux_wc wc;
        assert_int_equal(rdmux_cq_poll(pair.cq_a, &wc, 1), 0);
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        CHECK_OK(rdmux_ep_info(pair.a, &info));
    }
    CHECK_OK(rdmux_cq_wake(pair.cq_a));
    assert_int_equal(pthread_join(thread, NULL), 0);
    close_pair(&pair);
}

/* One thread polls and takes nothing that the sleeper waits for: the message still wakes it. */
static void polls_of_others_do_not_disarm_a_sleeper(void **state)
{
    (void)state;
    static const char *const paths[] = { "shm", "tcp" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        pthread_t thread;
        attr.paths = paths[i];
        open_flagged(&pair, RDMUX_CQ_SERIALIZED);
        connect_more(&pair, &attr, &pair.a, &pair.b);
        for (int round = 0; round < 20; round++) {
            assert_int_equal(pthread_create(&thread, NULL, wait_for_wake, pair.cq_a), 0);
            for (int polls = 0; polls < 100; polls++) {
                assert_int_equal(rdmux_cq_poll(pair.cq_a, NULL, 0), 0);
            }
            CHECK_OK(rdmux_cq_wake(pair.cq_a));
            assert_int_equal(rdmux_cq_poll(pair.cq_a, NULL, 0), 0); /* handles it, takes nothing */
            assert_int_equal(pthread_join(thread, NULL), 0);
        }
        close_pair(&pair);
    }
}

/* As a call does that sleeps until a connection is there: it waits for no entry. */
static void fall_asleep(struct rdmux_cq *cq, bool is_asleep)
{
    assert_true(rdmux_cq_enter(cq));
    cq->sleepers = is_asleep ? 1 : 0;
    cq->askers = cq->sleepers;
    cq->asked_errands = cq->counts.errands;
    rdmux_cq_leave(cq);
}

/* Another call handles what came, or the service thread does. Neither returns an entry of it, and
 * the sleeper may have been slower to wake. */
static void a_call_that_waits_for_no_entry_is_told_what_others_did(void **state)
{
    (void)state;
    struct pair pair;
    connect_flagged(&pair, RDMUX_CQ_SERIALIZED);
    struct rdmux_cq *cq = pair.cq_b;
    fall_asleep(cq, true);
    rdmux_cq_poke(cq);
    assert_int_equal(rdmux_cq_poll(cq, NULL, 0), 0);
    assert_true(is_readable(cq, 0));

    fall_asleep(cq, false);
    uint64_t until = now_ms() + PATIENT_MS;
    do {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(cq, NULL, 0), 0);
    } while (rdmux_cq_arm(cq) != RDMUX_OK);
    fall_asleep(cq, true);
    rdmux_cq_poke(cq);
    while ((atomic_load(rdmux_cq_signal(cq)) & RDMUX_SIGNAL_ATTEND) != 0) {
        assert_true(now_ms() < until);
        pause_ms(1);
    }
    rdmux_service_lock(pair.fabric_b); /* its step is over */
    rdmux_service_unlock(pair.fabric_b);
    assert_true(is_readable(cq, 0));
    fall_asleep(cq, false);
    close_pair(&pair);
}

/* ------------------------------------------------------------------------------- refused posts */

/* A refused post makes progress: it neither ends the arming nor hides what it found. */
static void a_refused_post_keeps_the_cq_armed(void **state)
{
    (void)state;
    static const char *const paths[] = { "shm", "tcp" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        uint64_t word = 0;
        size_t sent = 0;
        attr.paths = paths[i];
        attr.send_depth = 4;
        open_flagged(&pair, 0);
        connect_more(&pair, &attr, &pair.a, &pair.b);
        CHECK_OK(rdmux_cq_arm(pair.cq_a));
        while (rdmux_send(pair.a, &word, sizeof(word), NULL, NULL,
                          RDMUX_INLINE | RDMUX_UNSIGNALED) == RDMUX_OK) {
            sent++;
        }
        for (int tries = 0; tries < 3; tries++) {
            CHECK_STATUS(rdmux_send(pair.a, &word, sizeof(word), NULL, NULL, RDMUX_INLINE),
                         RDMUX_AGAIN);
        }
        for (; sent > 0; sent--) {
            CHECK_OK(rdmux_recv(pair.b, &word, sizeof(word), NULL, NULL));
            expect_entry(pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
        }
        assert_true(is_readable(pair.cq_a, PATIENT_MS));
        expect_entry(pair.cq_a, RDMUX_WC_WRITABLE, RDMUX_OK);
        close_pair(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wakes_before_a_wait_are_one_event),
        cmocka_unit_test(another_thread_wakes_a_sleeper),
        cmocka_unit_test(a_wake_makes_an_armed_descriptor_readable),
        cmocka_unit_test(a_wake_outlives_a_turn_of_the_service_thread),
        cmocka_unit_test(a_wake_comes_beside_messages),
        cmocka_unit_test(a_signal_handler_wakes_its_own_thread),
        cmocka_unit_test(a_wake_without_a_cq_is_refused_without_a_text),
        cmocka_unit_test(no_wake_is_lost_among_threads),
        cmocka_unit_test(calls_beside_another_one_are_found),
        cmocka_unit_test(unknown_flags_are_refused),
        cmocka_unit_test(threads_share_a_serialized_cq),
        cmocka_unit_test(a_sleeper_keeps_no_call_out),
        cmocka_unit_test(polls_of_others_do_not_disarm_a_sleeper),
        cmocka_unit_test(a_call_that_waits_for_no_entry_is_told_what_others_did),
        cmocka_unit_test(a_refused_post_keeps_the_cq_armed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
