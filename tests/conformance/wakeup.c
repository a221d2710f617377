/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Sleeping and wake-ups: wait, arm and the descriptor, WRITABLE. */
#include "harness.h"
#include "lateness.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <unistd.h>

static void open_still_pair(struct side *side)
{
    const struct rdmux_ep_attr attr = still_ep_attr_of(side);
    side_open_pair(side, &attr);
}

static void sleep_on_at(int line, struct side *side, int fd)
{
    struct pollfd wait = { .fd = fd, .events = POLLIN };
    int ready = 0;
    stand_at(__FILE__, line, "poll(2) on the armed descriptor");
    do {
        ready = poll(&wait, 1, side->patient_ms);
    } while (ready < 0 && errno == EINTR);
    if (ready != 1 || wait.revents != POLLIN) {
        fail_at(__FILE__, line, "a wake-up was lost or late: poll gave %d, events 0x%x", ready,
                (unsigned)wait.revents);
    }
}

#define SLEEP_ON(side, fd) sleep_on_at(__LINE__, side, fd)

/* No entry is available. The library's own work may cost a few more turns. */
static void arm_idle(struct side *side)
{
    for (;;) {
        EXPECT_QUIET(&side->queue);
        enum rdmux_status status = rdmux_cq_arm(side->queue.cq);
        if (status != RDMUX_AGAIN) {
            EXPECT_STATUS(status, RDMUX_OK);
            return;
        }
        EXPECT(!time_is_up(),
               "an idle cq cannot be armed: always RDMUX_AGAIN, and nothing to poll");
    }
}

/* -------------------------------------------------------------------- ping-pong without polling */

enum { PING_ROUNDS = 2000 };

/* Returns a side's next completion. */
typedef struct rdmux_wc (*next_fn)(struct side *side, int epoll);

static struct rdmux_wc next_by_epoll(struct side *side, int epoll)
{
    struct rdmux_wc wc;
    for (;;) {
        if (rdmux_cq_poll(side->queue.cq, &wc, 1) == 1) {
            return wc;
        }
        enum rdmux_status status = rdmux_cq_arm(side->queue.cq);
        if (status == RDMUX_AGAIN) {
            continue;
        }
        EXPECT_STATUS(status, RDMUX_OK);
        struct epoll_event event;
        int ready = 0;
        STAND("epoll_wait on the armed descriptor");
        do {
            ready = epoll_wait(epoll, &event, 1, side->patient_ms);
        } while (ready < 0 && errno == EINTR);
        if (ready != 1) {
            size_t there = rdmux_cq_poll(side->queue.cq, &wc, 1);
            EXPECT(there == 0, "a wake-up was lost: %s is there, and epoll_wait gave %d",
                   wc_text(&wc), ready);
            EXPECT(false, "nothing came for %d ms: epoll_wait gave %d", side->patient_ms, ready);
        }
    }
}

/* Uses another way each time: wait after arm, poll after arm, arm after arm. */
static struct rdmux_wc next_by_turns(struct side *side, int epoll)
{
    static uint64_t turn;
    struct rdmux_wc wc;
    size_t count = 0;
    enum rdmux_status status;
    switch (random_below(&turn, 5)) {
    case 0:
        EXPECT_OK(rdmux_cq_wait(side->queue.cq, &wc, 1, side->patient_ms, &count));
        return wc;
    case 1:
        status = rdmux_cq_arm(side->queue.cq);
        EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN, "arm gave %s",
               rdmux_status_name(status));
        EXPECT_OK(rdmux_cq_wait(side->queue.cq, &wc, 1, side->patient_ms, &count));
        return wc;
    case 2:
        status = rdmux_cq_arm(side->queue.cq);
        EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN, "arm gave %s",
               rdmux_status_name(status));
        while (rdmux_cq_poll(side->queue.cq, &wc, 1) == 0) {
            EXPECT(!time_is_up(), "polling after arm brings nothing");
            (void)sched_yield();
        }
        return wc;
    case 3:
        status = rdmux_cq_arm(side->queue.cq);
        EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN, "arm gave %s",
               rdmux_status_name(status));
        return next_by_epoll(side, epoll);
    default:
        return next_by_epoll(side, epoll);
    }
}

static struct rdmux_wc next_by_wait(struct side *side, int epoll)
{
    struct rdmux_wc wc;
    size_t count = 0;
    (void)epoll;
    EXPECT_OK(rdmux_cq_wait(side->queue.cq, &wc, 1, side->patient_ms, &count));
    EXPECT_EQUAL(count, 1);
    return wc;
}

/* Sends a number back and forth; each side gets its completions by `next` only. */
static void ping_pong(struct side *side, next_fn next, uint64_t rounds)
{
    uint64_t in[2] = { 0, 0 };
    open_still_pair(side);
    int fd = rdmux_cq_fd(side->queue.cq);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = { .events = EPOLLIN };
    EXPECT(fd >= 0 && epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0,
           "no epoll on descriptor %d: %s", fd, strerror(errno));
    EXPECT_OK(rdmux_recv(side->ep, &in[0], 8, NULL, CTX(0)));
    EXPECT_OK(rdmux_recv(side->ep, &in[1], 8, NULL, CTX(1)));
    BARRIER(side);
    uint64_t sent = 0;
    uint64_t received = 0;
    uint64_t completed = 0;
    uint64_t out = side->seed;
    if (side->is_initiator) {
        EXPECT_OK(rdmux_send(side->ep, &out, 8, NULL, CTX(100), RDMUX_INLINE));
        sent++;
    }
    while (received < rounds || completed < rounds) {
        struct rdmux_wc wc = next(side, epoll);
        EXPECT_EQUAL(wc.status, RDMUX_OK);
        if (wc.opcode == RDMUX_WC_SEND) {
            completed++;
            continue;
        }
        EXPECT(wc.opcode == RDMUX_WC_RECV && CTX_NUMBER(wc.context) == received % 2, "got %s",
               wc_text(&wc));
        EXPECT_EQUAL(in[received % 2], side->seed + received);
        received++;
        if (received + 1 < rounds) {
            EXPECT_OK(
                rdmux_recv(side->ep, &in[(received + 1) % 2], 8, NULL, CTX((received + 1) % 2)));
        }
        if (sent < rounds) {
            out = side->seed + sent;
            EXPECT_OK(rdmux_send(side->ep, &out, 8, NULL, CTX(100), RDMUX_INLINE));
            sent++;
        }
    }
    EXPECT(rdmux_cq_fd(side->queue.cq) == fd, "the cq's descriptor changed");
    (void)close(epoll);
    side_finish(side);
}

static void ping_pong_epoll(struct side *side)
{
    ping_pong(side, next_by_epoll, PING_ROUNDS);
}

static void ping_pong_turns(struct side *side)
{
    ping_pong(side, next_by_turns, PING_ROUNDS / 2);
}

static void ping_pong_wait(struct side *side)
{
    ping_pong(side, next_by_wait, PING_ROUNDS / 2);
}

/* ---------------------------------------------- a header, then exactly as many bytes as it says */

enum { SIZED_ROUNDS = 140, SIZED_MOST = 70000, SIZED_REPLY = 1000 };

static const size_t sized_lengths[] = { 0, 1, 8, 4095, 4096, 4097, SIZED_MOST };

static struct rdmux_wc sized_next(struct side *side, uint32_t opcode, uint64_t context)
{
    struct rdmux_wc wc = next_by_wait(side, -1);
    EXPECT(wc.opcode == opcode && wc.status == RDMUX_OK && CTX_NUMBER(wc.context) == context,
           "got %s", wc_text(&wc));
    return wc;
}

static void sized_initiator(struct side *side)
{
    static uint8_t bytes[SIZED_MOST];
    uint8_t reply = 0;
    open_still_pair(side);
    for (uint64_t round = 0; round < SIZED_ROUNDS; round++) {
        const uint64_t length = sized_lengths[round % COUNT_OF(sized_lengths)];
        pattern_fill(bytes, length, side->seed + round, 0);
        EXPECT_OK(rdmux_recv(side->ep, &reply, 1, NULL, CTX(SIZED_REPLY)));
        EXPECT_OK(rdmux_send(side->ep, &length, 8, NULL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED));
        EXPECT_OK(rdmux_send(side->ep, bytes, length, NULL, NULL, RDMUX_UNSIGNALED));
        (void)sized_next(side, RDMUX_WC_RECV, SIZED_REPLY);
        EXPECT_EQUAL(reply, (uint8_t)round);
    }
    side_finish(side);
}

static void sized_target(struct side *side)
{
    static uint8_t bytes[SIZED_MOST + 1];
    uint64_t length = 0;
    open_still_pair(side);
    EXPECT_OK(rdmux_recv(side->ep, &length, 8, NULL, CTX(0)));
    for (uint64_t round = 0; round < SIZED_ROUNDS; round++) {
        const uint8_t reply = (uint8_t)round;
        (void)sized_next(side, RDMUX_WC_RECV, 2 * round);
        EXPECT_EQUAL(length, sized_lengths[round % COUNT_OF(sized_lengths)]);
        const size_t size = (size_t)length;
        memset(bytes, 0xee, sizeof(bytes));
        EXPECT_OK(rdmux_recv(side->ep, bytes, size, NULL, CTX(2 * round + 1)));
        EXPECT_EQUAL(sized_next(side, RDMUX_WC_RECV, 2 * round + 1).length, size);
        EXPECT_PATTERN(bytes, size, side->seed + round);
        EXPECT_EQUAL(bytes[size], 0xee);
        EXPECT_OK(rdmux_recv(side->ep, &length, 8, NULL, CTX(2 * round + 2)));
        EXPECT_OK(rdmux_send(side->ep, &reply, 1, NULL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED));
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------------ arm */

static void arm_initiator(struct side *side)
{
    open_still_pair(side);
    for (unsigned i = 0; i < 3; i++) {
        BARRIER(side);
        (void)POST_AND_WAIT(&side->queue, rdmux_send(side->ep, "m", 1, NULL, CTX(i), RDMUX_PLACED),
                            RDMUX_WC_SEND, CTX(i));
        BARRIER(side);
    }
    side_finish(side);
}

static void arm_target(struct side *side)
{
    uint8_t bytes[3];
    open_still_pair(side);
    struct rdmux_cq *cq = side->queue.cq;
    int fd = rdmux_cq_fd(cq);
    for (uint64_t i = 0; i < 3; i++) {
        EXPECT_OK(rdmux_recv(side->ep, &bytes[i], 1, NULL, CTX(i)));
    }
    EXPECT_QUIET(&side->queue);

    /* an entry is already available: AGAIN until it is taken */
    BARRIER(side);
    BARRIER(side);
    for (unsigned i = 0; i < 3; i++) {
        EXPECT_STATUS(rdmux_cq_arm(cq), RDMUX_AGAIN);
    }
    (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(0));

    /* armed before an entry comes: readable until the next poll */
    arm_idle(side);
    BARRIER(side);
    BARRIER(side);
    for (unsigned i = 0; i < 3; i++) {
        SLEEP_ON(side, fd);
    }
    (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));

    /* arming twice equals arming once */
    arm_idle(side);
    arm_idle(side);
    BARRIER(side);
    BARRIER(side);
    SLEEP_ON(side, fd);
    (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(2));
    side_finish(side);
}

/* ------------------------------------------------------------- one thread sleeps, another posts */

enum { HAND_ROUNDS = 300 };

struct poster {
    struct side *side;
    struct rdmux_remote *remote;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t asked;  /* rounds for which the sleeper has armed */
    uint64_t posted; /* rounds for which the poster has posted */
    uint64_t word;
};

static void *post_for_the_sleeper(void *argument)
{
    struct poster *poster = argument;
    for (uint64_t round = 0; round < HAND_ROUNDS; round++) {
        (void)pthread_mutex_lock(&poster->lock);
        while (poster->asked <= round) {
            (void)pthread_cond_wait(&poster->changed, &poster->lock);
        }
        /* The other thread sleeps in poll(2), or is about to; it makes no call before its
         * wake-up. */
        EXPECT_OK(rdmux_read(poster->side->ep, &poster->word, 8, NULL, poster->remote,
                             8 * (round % 100), CTX(round), 0));
        poster->posted = round + 1;
        (void)pthread_cond_signal(&poster->changed);
        (void)pthread_mutex_unlock(&poster->lock);
    }
    return NULL;
}

static void hand_initiator(struct side *side)
{
    static struct poster poster = { .lock = PTHREAD_MUTEX_INITIALIZER,
                                    .changed = PTHREAD_COND_INITIALIZER };
    pthread_t thread;
    open_still_pair(side);
    poster.side = side;
    poster.remote = take_remote(side, side->ep);
    int fd = rdmux_cq_fd(side->queue.cq);
    EXPECT(pthread_create(&thread, NULL, post_for_the_sleeper, &poster) == 0, "no thread");
    for (uint64_t round = 0; round < HAND_ROUNDS; round++) {
        (void)pthread_mutex_lock(&poster.lock);
        arm_idle(side);
        poster.asked = round + 1;
        (void)pthread_cond_signal(&poster.changed);
        (void)pthread_mutex_unlock(&poster.lock);

        SLEEP_ON(side, fd);

        (void)pthread_mutex_lock(&poster.lock);
        while (poster.posted <= round) {
            (void)pthread_cond_wait(&poster.changed, &poster.lock);
        }
        (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(round));
        EXPECT_EQUAL(poster.word, mix64(round % 100));
        (void)pthread_mutex_unlock(&poster.lock);
    }
    EXPECT(pthread_join(thread, NULL) == 0, "no join");
    side_finish(side);
}

static void hand_target(struct side *side)
{
    open_still_pair(side);
    struct region region = region_make(side, MEMORY_ALLOCATED, 800, RDMUX_ACCESS_REMOTE_READ);
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t word = mix64(i);
        memcpy(region.addr + 8 * i, &word, 8);
    }
    give_token(side, &region);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ WRITABLE */

enum { DEPTH = 16 };

static void writable_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = still_ep_attr_of(side);
    attr.send_depth = DEPTH;
    side_open_pair(side, &attr);
    for (unsigned turn = 0; turn < 3; turn++) {
        BARRIER(side); /* no receive is posted */
        for (uint64_t i = 0; i < DEPTH; i++) {
            EXPECT_OK(rdmux_send(side->ep, "m", 1, NULL, CTX(i), 0));
        }
        for (unsigned i = 0; i < 3; i++) {
            EXPECT_STATUS(rdmux_send(side->ep, "x", 1, NULL, CTX(1000), 0), RDMUX_AGAIN);
        }
        BARRIER(side); /* receives are posted now */
        /* Takes entries one by one. WRITABLE comes when a quarter of the queue is free and not
         * before, and once for the three refusals. The request posted then takes the last
         * receive. */
        uint64_t taken = 0;
        unsigned writable = 0;
        while (taken <= DEPTH || writable == 0) {
            struct rdmux_wc wc = next_by_wait(side, -1);
            EXPECT(wc.ep == side->ep && wc.status == RDMUX_OK, "got %s", wc_text(&wc));
            if (wc.opcode == RDMUX_WC_WRITABLE) {
                EXPECT(wc.context == NULL, "got %s", wc_text(&wc));
                EXPECT(taken >= DEPTH / 4, "WRITABLE with %" PRIu64 " of %d entries free", taken,
                       DEPTH);
                EXPECT(writable == 0, "a second WRITABLE");
                writable++;
                EXPECT_OK(rdmux_send(side->ep, "m", 1, NULL, CTX(DEPTH), 0));
                continue;
            }
            EXPECT(wc.opcode == RDMUX_WC_SEND && CTX_NUMBER(wc.context) == taken, "got %s",
                   wc_text(&wc));
            taken++;
        }
        EXPECT_QUIET(&side->queue);
        BARRIER(side);
    }
    side_finish(side);
}

static void writable_target(struct side *side)
{
    uint8_t bytes[DEPTH + 1];
    open_still_pair(side);
    for (unsigned turn = 0; turn < 3; turn++) {
        BARRIER(side);
        BARRIER(side);
        for (uint64_t i = 0; i < COUNT_OF(bytes); i++) {
            EXPECT_OK(rdmux_recv(side->ep, &bytes[i], 1, NULL, CTX(i)));
        }
        for (uint64_t i = 0; i < COUNT_OF(bytes); i++) {
            (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(i));
        }
        BARRIER(side);
    }
    side_finish(side);
}

/* Unsignaled requests cause no other wake-up. */
enum { WAKES_SIZE = 65536, WAKES_MOST = 10000 };

static void writable_wakes_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = still_ep_attr_of(side);
    attr.send_depth = DEPTH;
    side_open_pair(side, &attr);
    struct region source = region_make(side, MEMORY_UNREGISTERED, WAKES_SIZE, 0);
    for (unsigned turn = 0; turn < 10; turn++) {
        uint64_t count = 0;
        enum rdmux_status status;
        while ((status = rdmux_send(side->ep, source.addr, WAKES_SIZE, NULL, CTX(count),
                                    RDMUX_UNSIGNALED)) == RDMUX_OK) {
            count++;
            EXPECT(count < WAKES_MOST, "%" PRIu64 " sends without a receive fill no queue of %d",
                   count, DEPTH);
        }
        EXPECT_STATUS(status, RDMUX_AGAIN);
        GIVE(side, &count, sizeof(count));
        struct rdmux_wc wc = next_by_wait(side, -1);
        EXPECT(wc.opcode == RDMUX_WC_WRITABLE && wc.status == RDMUX_OK, "got %s", wc_text(&wc));
        BARRIER(side);
    }
    side_finish(side);
}

static void writable_wakes_target(struct side *side)
{
    open_still_pair(side);
    struct region sink = region_make(side, MEMORY_REGISTERED, WAKES_SIZE, ACCESS_SINK);
    for (unsigned turn = 0; turn < 10; turn++) {
        uint64_t count = 0;
        TAKE(side, &count, sizeof(count));
        for (uint64_t i = 0; i < count; i++) {
            (void)POST_AND_WAIT(&side->queue,
                                rdmux_recv(side->ep, sink.addr, WAKES_SIZE, sink.mr, CTX(i)),
                                RDMUX_WC_RECV, CTX(i));
        }
        BARRIER(side);
    }
    side_finish(side);
}

/* ------------------------------------------------------------------------------ time */

static void on_alarm(int signal)
{
    (void)signal;
}

static void time_initiator(struct side *side)
{
    struct rdmux_wc wc;
    size_t count = 99;
    open_still_pair(side);
    struct rdmux_cq *cq = side->queue.cq;
    EXPECT_QUIET(&side->queue);
    EXPECT_STATUS(rdmux_cq_wait(cq, &wc, 1, 0, &count), RDMUX_AGAIN);
    EXPECT_EQUAL(count, 0);

    /* Frequent signals, with a handler that does not restart system calls. */
    struct sigaction action = { .sa_handler = on_alarm };
    struct itimerval every_3_ms = { .it_interval = { .tv_usec = 3000 },
                                    .it_value = { .tv_usec = 3000 } };
    struct itimerval never = { .it_value = { .tv_usec = 0 } };
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every_3_ms, NULL) == 0,
           "no timer: %s", strerror(errno));
    struct stopwatch watch;
    stopwatch_start(&watch);
    count = 99;
    EXPECT_STATUS(rdmux_cq_wait(cq, &wc, 1, 150, &count), RDMUX_TIMED_OUT);
    expect_took(&watch, "a wait of 150 ms", 150, 150 + UINT64_C(200) * side->patience);
    EXPECT_EQUAL(count, 0);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    (void)POST_AND_WAIT(&side->queue, rdmux_write(side->ep, "t", 1, NULL, remote, 0, CTX(1), 0),
                        RDMUX_WC_WRITE, CTX(1));
    struct rdmux_ep *second = side_pair(side, NULL);
    BARRIER(side);
    EXPECT_OK(rdmux_ep_shutdown(second, side->patient_ms));
    EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0, "no timer: %s", strerror(errno));
    BARRIER(side);
    side_finish(side);
}

static void time_target(struct side *side)
{
    open_still_pair(side);
    struct region region = region_make(side, MEMORY_ALLOCATED, 8, RDMUX_ACCESS_REMOTE_WRITE);
    give_token(side, &region);
    struct rdmux_ep *second = side_pair(side, NULL);
    BARRIER(side);
    (void)WAIT_OF(&side->queue, second, RDMUX_WC_DISCONNECTED, NULL, RDMUX_OK);
    BARRIER(side);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "13.6", "2,000 rounds of ping-pong by poll, arm and epoll alone lose no wake-up", NEEDS_SEND,
      30, 0, ping_pong_epoll, ping_pong_epoll },
    { "13.6, 13.11", "arm, wait and poll may be mixed in any order without a lost wake-up",
      NEEDS_SEND, 30, 0, ping_pong_turns, ping_pong_turns },
    { "13.12", "1,000 rounds of ping-pong by rdmux_cq_wait wake each time", NEEDS_SEND, 30, 0,
      ping_pong_wait, ping_pong_wait },
    { "2.2, 2.1, 13.12",
      "a header and then as many bytes as it says, each into a receive of just that size, wake a "
      "side that sleeps",
      NEEDS_SEND, 20, 0, sized_initiator, sized_target },
    { "13.7, 13.8, -13.7",
      "arm gives AGAIN if an entry is pending, else the descriptor becomes readable and stays so "
      "until the next poll",
      NEEDS_PLACED | NEEDS_SEND, 0, 0, arm_initiator, arm_target },
    { "13.10, 13.9",
      "while one thread sleeps on the armed descriptor another may post, and its completion wakes "
      "the sleeper",
      NEEDS_READ, 20, 0, hand_initiator, hand_target },
    { "13.1, 13.2, 1.3, -13.1",
      "after AGAIN there is exactly one WRITABLE, when a quarter of the queue is free, and a post "
      "works then",
      NEEDS_SEND, 0, 0, writable_initiator, writable_target },
    { "13.3, 1.2", "WRITABLE wakes a sleeper whose requests are all unsignaled", NEEDS_SEND, 20, 0,
      writable_wakes_initiator, writable_wakes_target },
    { "11.1, 11.4, 13.12, -11.1, -11.4, -13.12",
      "a wait lasts as long as its timeout, also under a rain of signals", NEEDS_WRITE, 0, 0,
      time_initiator, time_target },
};

const struct suite wakeup_suite = { "wakeup", cases, COUNT_OF(cases) };
