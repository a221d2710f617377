/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Wake-ups by the program, calls of several threads on one cq, and programs that only post. */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/time.h>

/* Connects a pair on a cq with these flags. */
static void open_flagged_pair(struct side *side, uint32_t flags)
{
    const struct rdmux_ep_attr attr = still_ep_attr_of(side);
    const struct rdmux_fabric_attr fabric_attr = fabric_attr_of(side);
    struct rdmux_cq_attr cq_attr = RDMUX_CQ_ATTR_INIT;
    struct rdmux_cq *cq = NULL;
    cq_attr.flags = flags;
    EXPECT_OK(rdmux_fabric_open(&fabric_attr, &side->fabric));
    EXPECT_OK(rdmux_cq_create(side->fabric, &cq_attr, &cq));
    queue_open(&side->queue, side, cq);
    side_meet(side);
    (void)side_pair(side, &attr);
}

static void expect_woken(const struct side *side, const struct rdmux_wc *wc)
{
    EXPECT(wc->opcode == RDMUX_WC_WOKEN && wc->status == RDMUX_OK && wc->ep == NULL &&
               wc->context == side->queue.cq && wc->length == 0,
           "a wake gave %s", wc_text(wc));
}

/* Waits for the one WOKEN of all wakes so far. */
static void wait_for_woken(struct side *side)
{
    struct rdmux_wc wc[2];
    size_t count = 0;
    EXPECT_OK(rdmux_cq_wait(side->queue.cq, wc, COUNT_OF(wc), side->patient_ms, &count));
    EXPECT_EQUAL(count, 1);
    expect_woken(side, &wc[0]);
    EXPECT_EQUAL(rdmux_cq_poll(side->queue.cq, wc, COUNT_OF(wc)), 0);
    EXPECT_EQUAL(rdmux_cq_poll(side->queue.cq, wc, COUNT_OF(wc)), 0);
}

/* The library's own work may take a few turns. */
static void arm_the_idle(struct side *side)
{
    enum rdmux_status status;
    do {
        EXPECT_QUIET(&side->queue);
        EXPECT(!time_is_up(), "an idle cq cannot be armed");
        status = rdmux_cq_arm(side->queue.cq);
    } while (status == RDMUX_AGAIN);
    EXPECT_STATUS(status, RDMUX_OK);
}

static void expect_readable(struct side *side)
{
    struct pollfd wait = { .fd = rdmux_cq_fd(side->queue.cq), .events = POLLIN };
    int ready = 0;
    STAND("poll(2) on the armed descriptor");
    do {
        ready = poll(&wait, 1, side->patient_ms);
    } while (ready < 0 && errno == EINTR);
    EXPECT(ready == 1, "a wake left the armed descriptor as it was: poll gave %d", ready);
}

/* ------------------------------------------------------------------------------------- wake-ups */

enum { WAKES = 50 };

static void *wake_once(void *cq)
{
    EXPECT_OK(rdmux_cq_wake(cq));
    return NULL;
}

static pthread_t thread_that_wakes(struct side *side)
{
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, wake_once, side->queue.cq) == 0, "no thread");
    return thread;
}

/* Both sides: no message is under way, so nothing but the wakes can end a sleep. */
static void wakes(struct side *side)
{
    struct rdmux_wc wc;
    open_flagged_pair(side, 0);
    BARRIER(side);
    for (unsigned i = 0; i < WAKES; i++) {
        for (unsigned wake = 0; wake <= i % 3; wake++) {
            EXPECT_OK(rdmux_cq_wake(side->queue.cq));
        }
        wait_for_woken(side);

        pthread_t thread = thread_that_wakes(side);
        wait_for_woken(side);
        EXPECT(pthread_join(thread, NULL) == 0, "no join");

        arm_the_idle(side);
        thread = thread_that_wakes(side);
        expect_readable(side);
        EXPECT(pthread_join(thread, NULL) == 0, "no join");
        expect_readable(side);
        wait_for_woken(side);

        EXPECT_OK(rdmux_cq_wake(side->queue.cq));
        EXPECT_STATUS(rdmux_cq_arm(side->queue.cq), RDMUX_AGAIN);
        EXPECT_EQUAL(rdmux_cq_poll(side->queue.cq, &wc, 1), 1);
        expect_woken(side, &wc);
        EXPECT_QUIET(&side->queue);
    }
    BARRIER(side);
    side_finish(side);
}

static struct rdmux_cq *signaled_cq;
static volatile sig_atomic_t signals_seen;
static volatile sig_atomic_t signals_that_kept_errno;

static void wake_in_a_handler(int number)
{
    const int before = errno;
    (void)number;
    errno = E2BIG;
    const enum rdmux_status status = rdmux_cq_wake(signaled_cq);
    signals_that_kept_errno += status == RDMUX_OK && errno == E2BIG;
    signals_seen++;
    errno = before;
}

/* The signal meets this thread outside of the library, and then asleep in it. */
static void wakes_of_a_handler(struct side *side)
{
    const struct sigaction action = { .sa_handler = wake_in_a_handler };
    const struct itimerval soon = { .it_value = { .tv_usec = 2000 } };
    char text[RDMUX_TEXT_MAX];
    open_flagged_pair(side, 0);
    BARRIER(side);
    signaled_cq = side->queue.cq;
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0, "no handler: %s", strerror(errno));
    for (int i = 1; i <= WAKES; i++) {
        EXPECT_STATUS(rdmux_cq_arm(NULL), RDMUX_INVALID);
        (void)strncpy(text, rdmux_last_error(), sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        EXPECT(raise(SIGALRM) == 0, "no signal");
        EXPECT(strcmp(rdmux_last_error(), text) == 0, "the last error was \"%s\", now it is \"%s\"",
               text, rdmux_last_error());
        wait_for_woken(side);
        EXPECT(setitimer(ITIMER_REAL, &soon, NULL) == 0, "no timer: %s", strerror(errno));
        wait_for_woken(side);
        EXPECT_EQUAL(signals_seen, 2 * i);
        EXPECT_EQUAL(signals_that_kept_errno, 2 * i);
    }
    BARRIER(side);
    side_finish(side);
}

/* -------------------------------------------------------------------------------- a checked cq */

struct waiter {
    struct side *side;
    struct rdmux_wc wc;
    uint64_t refused;
};

/* The wait itself may be the second of two calls. */
static void *wait_until_let_in(void *argument)
{
    struct waiter *waiter = argument;
    size_t count = 0;
    enum rdmux_status status;
    while ((status = rdmux_cq_wait(waiter->side->queue.cq, &waiter->wc, 1, waiter->side->patient_ms,
                                   &count)) == RDMUX_INVALID) {
        waiter->refused++;
        EXPECT(!time_is_up(), "each wait is refused: %s", rdmux_last_error());
        (void)sched_yield();
    }
    EXPECT_STATUS(status, RDMUX_OK);
    return NULL;
}

/* Checks that the call was refused as the second one, with a text that names it. */
static void expect_second_at(int line, const char *call, enum rdmux_status status)
{
    stand_at(__FILE__, line, call);
    if (status != RDMUX_INVALID || strstr(rdmux_last_error(), call) == NULL ||
        strstr(rdmux_last_error(), "RDMUX_CQ_CHECKED") == NULL) {
        fail_at(__FILE__, line, "%s beside a wait gave %s: %s", call, rdmux_status_name(status),
                rdmux_last_error());
    }
}

#define EXPECT_SECOND(name, call) expect_second_at(__LINE__, name, call)

enum { CHECKED_ROUNDS = 20 };

static void checked_initiator(struct side *side)
{
    uint64_t in = 0;
    open_flagged_pair(side, RDMUX_CQ_CHECKED);
    for (uint64_t round = 0; round < CHECKED_ROUNDS; round++) {
        struct waiter waiter = { .side = side };
        struct rdmux_wc wc;
        size_t count = 99;
        pthread_t thread;
        EXPECT_OK(rdmux_recv(side->ep, &in, sizeof(in), NULL, CTX(round)));
        EXPECT(pthread_create(&thread, NULL, wait_until_let_in, &waiter) == 0, "no thread");
        /* No message is under way: once a call meets the wait, the wait stays. */
        while (rdmux_cq_arm(side->queue.cq) != RDMUX_INVALID) {
            EXPECT(!time_is_up(), "no call was refused beside a wait of another thread");
            (void)sched_yield();
        }
        EXPECT_SECOND("rdmux_cq_arm", rdmux_cq_arm(side->queue.cq));
        EXPECT_SECOND("rdmux_cq_wait", rdmux_cq_wait(side->queue.cq, &wc, 1, 0, &count));
        EXPECT_EQUAL(count, 0);
        EXPECT_STATUS(rdmux_cq_arm(NULL), RDMUX_INVALID); /* another text */
        EXPECT_EQUAL(rdmux_cq_poll(side->queue.cq, &wc, 1), 0);
        EXPECT_SECOND("rdmux_cq_poll", RDMUX_INVALID);
        EXPECT_SECOND("post", rdmux_send(side->ep, "x", 1, NULL, CTX(1000), 0));
        EXPECT_SECOND("post", rdmux_recv(side->ep, &in, sizeof(in), NULL, CTX(1001)));
        EXPECT_STATUS(rdmux_ep_close(side->ep), RDMUX_INVALID);
        BARRIER(side); /* the target sends now */
        EXPECT(pthread_join(thread, NULL) == 0, "no join");
        EXPECT(waiter.wc.opcode == RDMUX_WC_RECV && CTX_NUMBER(waiter.wc.context) == round,
               "got %s", wc_text(&waiter.wc));
        EXPECT_EQUAL(in, mix64(round));
        EXPECT_QUIET(&side->queue); /* the refused requests were not queued */
        (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, "m", 1, NULL, CTX(round), 0),
                            RDMUX_WC_SEND, CTX(round));
        BARRIER(side);
    }
    side_finish(side);
}

static void checked_target(struct side *side)
{
    uint8_t in = 0;
    open_flagged_pair(side, 0);
    for (uint64_t round = 0; round < CHECKED_ROUNDS; round++) {
        const uint64_t word = mix64(round);
        EXPECT_OK(rdmux_recv(side->ep, &in, sizeof(in), NULL, CTX(round)));
        BARRIER(side);
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_send(side->ep, &word, sizeof(word), NULL, CTX(100 + round), 0),
                            RDMUX_WC_SEND, CTX(100 + round));
        struct rdmux_wc wc = WAIT(&side->queue, RDMUX_WC_RECV, CTX(round));
        EXPECT_EQUAL(wc.length, 1);
        EXPECT_EQUAL(in, 'm');
        BARRIER(side);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------------ a serialized cq */

enum { SHARED_MESSAGES = 3000, SHARED_RECEIVES = 32, SHARED_THREADS = 3 };

static struct {
    struct side *side;
    _Atomic uint64_t next; /* the next message to send */
    _Atomic uint64_t came;
    _Atomic uint32_t times[SHARED_MESSAGES]; /* how often each has come */
    uint64_t words[SHARED_RECEIVES];
} shared;

/* Sleeps in the cq all the time that the others work on it. */
static void *sleep_until_woken(void *argument)
{
    struct rdmux_wc wc;
    size_t count = 0;
    (void)argument;
    do {
        EXPECT_OK(rdmux_cq_wait(shared.side->queue.cq, &wc, 1, -1, &count));
        EXPECT(wc.opcode == RDMUX_WC_WOKEN || wc.opcode == RDMUX_WC_WRITABLE, "got %s",
               wc_text(&wc));
    } while (wc.opcode != RDMUX_WC_WOKEN);
    return NULL;
}

static void *send_shared(void *argument)
{
    uint64_t number;
    (void)argument;
    while ((number = atomic_fetch_add(&shared.next, 1)) < SHARED_MESSAGES) {
        enum rdmux_status status;
        while ((status = rdmux_send(shared.side->ep, &number, sizeof(number), NULL, NULL,
                                    RDMUX_INLINE | RDMUX_UNSIGNALED)) == RDMUX_AGAIN) {
            EXPECT(!time_is_up(), "message %" PRIu64 " is always refused", number);
            (void)sched_yield();
        }
        EXPECT_OK(status);
    }
    return NULL;
}

static void *receive_shared(void *argument)
{
    (void)argument;
    while (atomic_load(&shared.came) < SHARED_MESSAGES) {
        struct rdmux_wc wc;
        size_t count = 0;
        EXPECT_OK(rdmux_cq_wait(shared.side->queue.cq, &wc, 1, 4 * shared.side->patient_ms, &count));
        if (wc.opcode == RDMUX_WC_WOKEN) {
            continue;
        }
        uint64_t *word = &shared.words[CTX_NUMBER(wc.context)];
        EXPECT(wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK && *word < SHARED_MESSAGES,
               "got %s", wc_text(&wc));
        EXPECT_EQUAL(atomic_fetch_add(&shared.times[*word], 1), 0);
        EXPECT_OK(rdmux_recv(shared.side->ep, word, sizeof(*word), NULL, wc.context));
        (void)atomic_fetch_add(&shared.came, 1);
    }
    /* Another one may sleep, and does the same when it has woken. */
    EXPECT_OK(rdmux_cq_wake(shared.side->queue.cq));
    return NULL;
}

static void run_threads(void *(*body)(void *argument))
{
    pthread_t threads[SHARED_THREADS];
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        EXPECT(pthread_create(&threads[i], NULL, body, NULL) == 0, "no thread");
    }
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0, "no join");
    }
}

/* Takes the events that no thread waited for. */
static void take_events(struct side *side)
{
    struct rdmux_wc wc;
    while (rdmux_cq_poll(side->queue.cq, &wc, 1) == 1) {
        EXPECT(wc.opcode == RDMUX_WC_WOKEN || wc.opcode == RDMUX_WC_WRITABLE, "got %s",
               wc_text(&wc));
    }
}

static void serialized_initiator(struct side *side)
{
    pthread_t sleeper;
    open_flagged_pair(side, RDMUX_CQ_SERIALIZED);
    shared.side = side;
    BARRIER(side);
    EXPECT(pthread_create(&sleeper, NULL, sleep_until_woken, NULL) == 0, "no thread");
    run_threads(send_shared);
    EXPECT_OK(rdmux_cq_wake(side->queue.cq));
    EXPECT(pthread_join(sleeper, NULL) == 0, "no join");
    BARRIER(side); /* all have come */
    take_events(side);
    side_finish(side);
}

static void serialized_target(struct side *side)
{
    open_flagged_pair(side, RDMUX_CQ_SERIALIZED);
    shared.side = side;
    for (uint64_t i = 0; i < SHARED_RECEIVES; i++) {
        EXPECT_OK(rdmux_recv(side->ep, &shared.words[i], sizeof(uint64_t), NULL, CTX(i)));
    }
    BARRIER(side);
    run_threads(receive_shared);
    for (size_t i = 0; i < SHARED_MESSAGES; i++) {
        EXPECT(atomic_load(&shared.times[i]) == 1, "message %zu came %u times", i,
               atomic_load(&shared.times[i]));
    }
    BARRIER(side);
    take_events(side);
    side_finish(side);
}

/* ------------------------------------------------------------- posts that are tried until taken */

enum { TRIED_DEPTH = 16, TRIED_QUICK = 2000, TRIED_FEW = 4000, TRIED_MANY = 100000 };

static uint64_t tried_count(const struct side *side, uint64_t count)
{
    return side->quick ? TRIED_QUICK : count;
}

/* Posts each message until it is taken, and polls only at the end. */
static void try_until_taken(struct side *side, uint64_t messages)
{
    struct rdmux_ep_attr attr = still_ep_attr_of(side);
    bool was_refused = false;
    attr.send_depth = TRIED_DEPTH;
    side_open_pair(side, &attr);
    BARRIER(side);
    for (uint64_t i = 0; i < messages; i++) {
        enum rdmux_status status;
        while ((status = rdmux_send(side->ep, &i, sizeof(i), NULL, NULL,
                                    RDMUX_INLINE | RDMUX_UNSIGNALED)) == RDMUX_AGAIN) {
            was_refused = true;
            EXPECT(!time_is_up(), "message %" PRIu64 " of %" PRIu64 " is always refused", i,
                   messages);
        }
        EXPECT_OK(status);
    }
    if (was_refused) {
        (void)WAIT(&side->queue, RDMUX_WC_WRITABLE, NULL);
    }
    BARRIER(side);
    side_finish(side);
}

static void take_what_is_tried(struct side *side, uint64_t messages)
{
    uint64_t words[2 * TRIED_DEPTH];
    struct rdmux_ep_attr attr = still_ep_attr_of(side);
    attr.recv_depth = COUNT_OF(words);
    side_open_pair(side, &attr);
    for (uint64_t i = 0; i < COUNT_OF(words); i++) {
        EXPECT_OK(rdmux_recv(side->ep, &words[i], sizeof(words[i]), NULL, CTX(i)));
    }
    BARRIER(side);
    for (uint64_t i = 0; i < messages; i++) {
        const uint64_t at = i % COUNT_OF(words);
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(at));
        EXPECT_EQUAL(words[at], i);
        EXPECT_OK(rdmux_recv(side->ep, &words[at], sizeof(words[at]), NULL, CTX(at)));
    }
    BARRIER(side);
    side_finish(side);
}

static void tried_initiator(struct side *side)
{
    try_until_taken(side, tried_count(side, TRIED_MANY));
}

static void tried_target(struct side *side)
{
    take_what_is_tried(side, tried_count(side, TRIED_MANY));
}

/* Without a service thread the posts alone make progress. */
static void tried_manual_initiator(struct side *side)
{
    side->manual = true;
    try_until_taken(side, tried_count(side, TRIED_FEW));
}

static void tried_manual_target(struct side *side)
{
    take_what_is_tried(side, tried_count(side, TRIED_FEW));
}

static const struct conformance_case cases[] = {
    { "13.13",
      "wakes before a wait are one WOKEN, and a wake of another thread ends a wait and a sleep on "
      "the armed descriptor",
      0, 20, 0, wakes, wakes },
    { "13.13, 11.4",
      "a signal handler wakes its own thread and keeps errno and the text of the last error", 0, 20,
      0, wakes_of_a_handler, wakes_of_a_handler },
    { "13.14, -13.14, 15.8",
      "a call beside a wait on a checked cq is refused, and neither a request nor an entry is lost",
      NEEDS_SEND, 20, 0, checked_initiator, checked_target },
    { "13.15, 15.8",
      "threads that send, receive and sleep on serialized cqs lose no message and hold up nobody",
      NEEDS_SEND, 30, 0, serialized_initiator, serialized_target },
    { "13.16", "posts make the progress that they wait for without a service thread, too",
      NEEDS_SEND, 0, CASE_MANUAL, tried_manual_initiator, tried_manual_target },
    { "13.16, 1.10, 13.1", "posts without a poll send 100,000 messages through a queue of 16",
      NEEDS_SEND, 60, CASE_LONG, tried_initiator, tried_target },
};

const struct suite callers_suite = { "callers", cases, COUNT_OF(cases) };
