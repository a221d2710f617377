/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A sleeping program: its requests proceed, requests of its peers wake it, and nothing else
 * does. */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAGE = 4096 };

static void open_still_pair(struct side *side)
{
    const struct rdmux_ep_attr attr = still_ep_attr_of(side);
    side_open_pair(side, &attr);
}

/* Sleeps until the armed descriptor is readable. Returns false on time-out. */
static bool sleeps_until_woken(const struct side *side)
{
    struct pollfd wait = { .fd = rdmux_cq_fd(side->queue.cq), .events = POLLIN };
    int ready = 0;
    STAND("poll(2) on the armed descriptor");
    do {
        ready = poll(&wait, 1, side->patient_ms);
    } while (ready < 0 && errno == EINTR);
    return ready == 1;
}

static bool has_come(const struct queue *queue, uint64_t context)
{
    for (size_t i = 0; i < queue->kept_count; i++) {
        if (queue->kept[i].context == CTX(context)) {
            return true;
        }
    }
    return false;
}

/* Arms, without a poll before, and sleeps until the entry comes. */
static void sleep_for(struct side *side, uint32_t opcode, uint64_t context, const char *what)
{
    struct queue *queue = &side->queue;
    while (!has_come(queue, context)) {
        enum rdmux_status status = rdmux_cq_arm(queue->cq);
        EXPECT(status == RDMUX_OK || status == RDMUX_AGAIN, "arm gives %s",
               rdmux_status_name(status));
        if (status == RDMUX_OK && !sleeps_until_woken(side)) {
            size_t before = queue->kept_count;
            FAIL("%s: a wake-up was lost; a poll then brings %s", what,
                 queue_poll(queue) > before ? wc_text(&queue->kept[before]) : "nothing");
        }
        (void)queue_poll(queue);
        EXPECT(!time_is_up(), "%s: its completion does not come", what);
    }
    (void)WAIT(queue, opcode, CTX(context));
}

/* ----------------------------------------------------------------------- arm right after a post */

enum { ARM_SIZE = 12 << 20, ARM_MESSAGE = 3 << 20, ARM_KINDS = 3 };

/* Each operation, short and long, into memory of each kind: posts, arms at once, sleeps until it
 * completes. */
static void arm_initiator(struct side *side)
{
    uint8_t *bytes = region_make(side, MEMORY_UNREGISTERED, ARM_SIZE, 0).addr;
    uint64_t context = 1;
    uint64_t old = 0;
    uint32_t placed = flag_if_there(side, RDMUX_PLACED);
    open_still_pair(side);
    struct rdmux_ep *ep = side->ep;
    for (unsigned kind = 0; kind < ARM_KINDS; kind++) {
        struct rdmux_remote *remote = take_remote(side, ep);
        for (unsigned i = 0; i < 3; i++) {
            static const size_t lengths[] = { 8, 70000, ARM_SIZE };
            EXPECT_OK(rdmux_write(ep, bytes, lengths[i], NULL, remote, 0, CTX(++context), placed));
            sleep_for(side, RDMUX_WC_WRITE, context, "a write");
            EXPECT_OK(rdmux_read(ep, bytes, lengths[i], NULL, remote, 0, CTX(++context), 0));
            sleep_for(side, RDMUX_WC_READ, context, "a read");
        }
        if (side_has(side, NEEDS_ATOMICS)) {
            EXPECT_OK(rdmux_fetch_add(ep, &old, NULL, remote, 0, 1, CTX(++context), 0));
            sleep_for(side, RDMUX_WC_FETCH_ADD, context, "an atomic");
        }
        if (placed != 0) {
            EXPECT_OK(rdmux_write(ep, NULL, 0, NULL, NULL, 0, CTX(++context), placed));
            sleep_for(side, RDMUX_WC_WRITE, context, "a flush");
        }
        EXPECT_OK(rdmux_send(ep, bytes, 8, NULL, CTX(++context), placed));
        sleep_for(side, RDMUX_WC_SEND, context, "a short send");
        EXPECT_OK(rdmux_send(ep, bytes, ARM_MESSAGE, NULL, CTX(++context), placed));
        sleep_for(side, RDMUX_WC_SEND, context, "a long send");
        rdmux_remote_close(remote);
    }
    side_finish(side);
}

static void arm_target(struct side *side)
{
    open_still_pair(side);
    struct region sink = region_make(side, MEMORY_UNREGISTERED, ARM_MESSAGE, 0);
    for (unsigned kind = 0; kind < ARM_KINDS; kind++) {
        struct region region = region_make(side, kind == 0 ? MEMORY_ALLOCATED : MEMORY_REGISTERED,
                                           ARM_SIZE,
                                           ACCESS_ALL | (kind == 2 ? RDMUX_ACCESS_NO_MAP : 0));
        uint64_t word = 0;
        EXPECT_OK(rdmux_recv(side->ep, &word, 8, NULL, CTX(1)));
        EXPECT_OK(rdmux_recv(side->ep, sink.addr, ARM_MESSAGE, NULL, CTX(2)));
        give_token(side, &region);
        sleep_for(side, RDMUX_WC_RECV, 1, "a short message");
        sleep_for(side, RDMUX_WC_RECV, 2, "a long message");
    }
    side_finish(side);
}

/* ----------------------------------------------------------- another thread posts for a sleeper */

enum { OTHER_ROUNDS = 32, FED_ROUNDS = 12, OTHER_LONG = 70000 };

/* One thread sleeps on the armed cq while the other posts; they take turns. */
struct hands {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t armed;  /* rounds for which the sleeper has armed */
    uint64_t posted; /* rounds posted */
    struct side *side;
    struct rdmux_remote *remote;
    struct rdmux_srq *srq; /* receives are posted here; NULL: to the endpoint */
    struct region bytes;
};

static struct hands hands = { .lock = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER };

static void await(const uint64_t *what, uint64_t least)
{
    (void)pthread_mutex_lock(&hands.lock);
    while (*what < least) {
        (void)pthread_cond_wait(&hands.changed, &hands.lock);
    }
    (void)pthread_mutex_unlock(&hands.lock);
}

static void announce(uint64_t *what, uint64_t value)
{
    (void)pthread_mutex_lock(&hands.lock);
    *what = value;
    (void)pthread_cond_broadcast(&hands.changed);
    (void)pthread_mutex_unlock(&hands.lock);
}

/* Arms while no completion is available. */
static void arm_quiet(struct side *side)
{
    for (;;) {
        EXPECT_QUIET(&side->queue);
        enum rdmux_status status = rdmux_cq_arm(side->queue.cq);
        if (status == RDMUX_OK) {
            return;
        }
        EXPECT_STATUS(status, RDMUX_AGAIN);
        EXPECT(!time_is_up(), "an idle cq cannot be armed");
    }
}

/* Lets the other thread post while the cq is armed, and sleeps until the post has an effect. */
static void sleep_round(struct side *side, uint64_t round, const char *what)
{
    arm_quiet(side);
    announce(&hands.armed, round + 1);
    for (bool is_done = false; !is_done;) {
        EXPECT(sleeps_until_woken(side), "%s that another thread posted wakes no sleeper", what);
        await(&hands.posted, round + 1);
        while (!is_done && queue_poll(&side->queue) > 0) {
            struct rdmux_wc wc = NEXT(&side->queue);
            EXPECT(wc.context == CTX(round) && wc.status == RDMUX_OK, "got %s", wc_text(&wc));
            is_done = true;
        }
        if (!is_done) { /* woken by the library's own work */
            while (rdmux_cq_arm(side->queue.cq) == RDMUX_AGAIN) {
                if (queue_poll(&side->queue) > 0) {
                    break;
                }
            }
        }
        if (side->queue.kept_count > 0) {
            struct rdmux_wc wc = NEXT(&side->queue);
            EXPECT(wc.context == CTX(round) && wc.status == RDMUX_OK, "got %s", wc_text(&wc));
            is_done = true;
        }
    }
}

static void *post_all_kinds(void *argument)
{
    struct side *side = argument;
    uint32_t placed = flag_if_there(side, RDMUX_PLACED);
    for (uint64_t round = 0; round < OTHER_ROUNDS; round++) {
        size_t length = round % 2 == 0 ? 8 : OTHER_LONG;
        await(&hands.armed, round + 1);
        switch (round / 2 % 4) {
        case 0:
            EXPECT_OK(rdmux_send(side->ep, hands.bytes.addr, length, NULL, CTX(round), placed));
            break;
        case 1:
            EXPECT_OK(rdmux_write(side->ep, hands.bytes.addr, length, NULL, hands.remote, 0,
                                  CTX(round), placed));
            break;
        case 2:
            EXPECT_OK(rdmux_read(side->ep, hands.bytes.addr, length, NULL, hands.remote, 0,
                                 CTX(round), 0));
            break;
        default:
            EXPECT_OK(rdmux_write(side->ep, NULL, 0, NULL, placed != 0 ? NULL : hands.remote, 0,
                                  CTX(round), placed));
            break;
        }
        announce(&hands.posted, round + 1);
    }
    return NULL;
}

static void others_initiator(struct side *side)
{
    pthread_t thread;
    open_still_pair(side);
    hands.side = side;
    hands.bytes = region_make(side, MEMORY_REGISTERED, OTHER_LONG, ACCESS_SINK);
    hands.remote = take_remote(side, side->ep);
    BARRIER(side);
    EXPECT(pthread_create(&thread, NULL, post_all_kinds, side) == 0, "no thread");
    for (uint64_t round = 0; round < OTHER_ROUNDS; round++) {
        sleep_round(side, round, "a request");
    }
    EXPECT(pthread_join(thread, NULL) == 0, "no join");
    side_finish(side);
}

static void others_target(struct side *side)
{
    open_still_pair(side);
    struct region region = region_make(side, MEMORY_REGISTERED, OTHER_LONG,
                                       ACCESS_ALL | RDMUX_ACCESS_NO_MAP);
    struct region sink = region_make(side, MEMORY_UNREGISTERED, OTHER_LONG, 0);
    uint64_t messages = 0;
    for (uint64_t round = 0; round < OTHER_ROUNDS; round++) {
        if (round / 2 % 4 == 0) {
            EXPECT_OK(rdmux_recv(side->ep, sink.addr, OTHER_LONG, NULL, CTX(1)));
            messages++;
        }
    }
    give_token(side, &region);
    BARRIER(side);
    for (; messages > 0; messages--) {
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
    }
    side_finish(side);
}

/* The peer's messages wait for receives; one thread posts these while the other sleeps. */
static void *post_receives(void *argument)
{
    struct side *side = argument;
    for (uint64_t round = 0; round < FED_ROUNDS; round++) {
        await(&hands.armed, round + 1);
        if (hands.srq != NULL) {
            EXPECT_OK(rdmux_srq_recv(hands.srq, hands.bytes.addr, OTHER_LONG, hands.bytes.mr,
                                     CTX(round)));
        } else {
            EXPECT_OK(
                rdmux_recv(side->ep, hands.bytes.addr, OTHER_LONG, hands.bytes.mr, CTX(round)));
        }
        announce(&hands.posted, round + 1);
    }
    return NULL;
}

static void fed_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = still_ep_attr_of(side);
    attr.send_depth = FED_ROUNDS;
    side_open_pair(side, &attr);
    struct region source = region_make(side, MEMORY_UNREGISTERED, OTHER_LONG, 0);
    for (uint64_t round = 0; round < FED_ROUNDS; round++) {
        EXPECT_OK(rdmux_send(side->ep, source.addr, round % 2 == 0 ? 8 : OTHER_LONG, NULL,
                             CTX(round), 0));
    }
    BARRIER(side);
    for (uint64_t round = 0; round < FED_ROUNDS; round++) {
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(round));
    }
    side_finish(side);
}

static void fed_target_on(struct side *side)
{
    pthread_t thread;
    hands.side = side;
    hands.bytes = region_make(side, MEMORY_REGISTERED, OTHER_LONG, ACCESS_SINK);
    BARRIER(side);
    EXPECT(pthread_create(&thread, NULL, post_receives, side) == 0, "no thread");
    for (uint64_t round = 0; round < FED_ROUNDS; round++) {
        sleep_round(side, round, "a receive");
    }
    EXPECT(pthread_join(thread, NULL) == 0, "no join");
}

static void fed_target(struct side *side)
{
    struct rdmux_ep_attr attr = still_ep_attr_of(side);
    attr.recv_depth = FED_ROUNDS;
    side_open_pair(side, &attr);
    fed_target_on(side);
    side_finish(side);
}

static void srq_fed_target(struct side *side)
{
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    struct rdmux_ep_attr ep_attr = still_ep_attr_of(side);
    side_open(side, NULL);
    side_meet(side);
    attr.depth = 8;
    EXPECT_OK(rdmux_srq_create(side->fabric, side->queue.cq, &attr, &hands.srq));
    ep_attr.srq = hands.srq;
    (void)side_pair(side, &ep_attr);
    fed_target_on(side);
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    side_close_ep(side, side->ep);
    EXPECT_OK(rdmux_srq_destroy(hands.srq));
    side_end(side);
}

/* ----------------------------------------------------------------------------------------- idle */

enum {
    IDLE_MS = 300,
    IDLE_WAKES_MAX = 30,      /* wake-ups of the program; a few heartbeats are allowed */
    IDLE_SWITCHES_MAX = 1000, /* of all threads of the process */
    IDLE_LONG = 5 << 20,
    IDLE_RECEIVES = 9,
};

/* The thread of a simulated device acts as hardware does, such as polling for a receive every 120
 * us. */
static bool is_device(const char *name)
{
    return strcmp(name, "Name:\tsim-device\n") == 0;
}

/* Counts how often all threads of this process together went to sleep; each time costs at least one
 * system call. */
static uint64_t sleeps_of_all_threads(void)
{
    uint64_t sum = 0;
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char path[64 + sizeof(entry->d_name)];
        char line[256];
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "re");
        bool counts = true;
        while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
            unsigned long long count = 0;
            counts = counts && !is_device(line);
            if (counts && sscanf(line, "voluntary_ctxt_switches: %llu", &count) == 1) {
                sum += count;
            }
        }
        if (file != NULL) {
            (void)fclose(file);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return sum;
}

static unsigned descriptors_open(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL) {
        count++;
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return count;
}

/* Returns the bytes that this process has mapped with this right, one of "rwxs" in /proc's
 * notation. An allocator's arena for a further thread is address space, most of it without any
 * right. */
static uint64_t bytes_mapped(char right)
{
    uint64_t sum = 0;
    char line[512];
    FILE *file = fopen("/proc/self/maps", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        unsigned long long begin = 0;
        unsigned long long end = 0;
        char rights[8] = "";
        if (sscanf(line, "%llx-%llx %7s", &begin, &end, rights) == 3 &&
            strchr(rights, right) != NULL) {
            sum += end - begin;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return sum;
}

/* Arms and sleeps for IDLE_MS like a program without work. No event of its own comes. */
static void expect_idle(struct side *side, const char *when)
{
    struct pollfd wait = { .fd = rdmux_cq_fd(side->queue.cq), .events = POLLIN };
    uint64_t slept = sleeps_of_all_threads();
    uint64_t end = now_ns() + (uint64_t)IDLE_MS * 1000000;
    unsigned wakes = 0;
    unsigned arms = 0;
    while (now_ns() < end) {
        EXPECT_QUIET(&side->queue);
        EXPECT(++arms < 100 * IDLE_WAKES_MAX, "%s, an idle cq is armed in vain", when);
        enum rdmux_status status = rdmux_cq_arm(side->queue.cq);
        if (status == RDMUX_AGAIN) {
            continue;
        }
        EXPECT_STATUS(status, RDMUX_OK);
        uint64_t left = (end - now_ns()) / 1000000 + 1;
        wakes += poll(&wait, 1, (int)(left > IDLE_MS ? 0 : left)) == 1;
        EXPECT(wakes <= IDLE_WAKES_MAX,
               "%s, an idle program was woken %u times within %d ms, and there was nothing", when,
               wakes, IDLE_MS);
    }
    slept = sleeps_of_all_threads() - slept;
    EXPECT(slept <= IDLE_SWITCHES_MAX,
           "%s, the threads of an idle process slept and woke %" PRIu64 " times within %d ms", when,
           slept, IDLE_MS);
}

/* The same through rdmux_cq_wait(). */
static void expect_idle_wait(struct side *side, const char *when)
{
    struct rdmux_wc wc;
    size_t count = 0;
    uint64_t slept = sleeps_of_all_threads();
    enum rdmux_status status = rdmux_cq_wait(side->queue.cq, &wc, 1, IDLE_MS, &count);
    EXPECT(status == RDMUX_TIMED_OUT, "%s, a wait gives %s and %zu entries", when,
           rdmux_status_name(status), count);
    slept = sleeps_of_all_threads() - slept;
    EXPECT(slept <= IDLE_SWITCHES_MAX,
           "%s, the threads of a waiting process slept and woke %" PRIu64 " times within %d ms",
           when, slept, IDLE_MS);
}

static void idle_both(struct side *side, const char *when)
{
    BARRIER(side);
    expect_idle(side, when);
    expect_idle_wait(side, when);
    BARRIER(side);
}

/* Both sides are idle in each of these states: new; after traffic that filled the resources between
 * them; with messages that wait for receives in both directions. */
static void idle(struct side *side)
{
    struct rdmux_ep_attr attr = still_ep_attr_of(side);
    uint64_t words[4] = { 0 };
    side_open_pair(side, &attr);
    struct region out = region_make(side, MEMORY_UNREGISTERED, IDLE_LONG, 0);
    struct region in = region_make(side, MEMORY_UNREGISTERED, IDLE_LONG, 0);
    uint32_t placed = flag_if_there(side, RDMUX_PLACED);
    idle_both(side, "after the connection was made");
    EXPECT_OK(rdmux_recv(side->ep, in.addr, IDLE_LONG, NULL, CTX(1)));
    BARRIER(side);
    EXPECT_OK(rdmux_send(side->ep, out.addr, IDLE_LONG, NULL, CTX(2), placed));
    sleep_for(side, RDMUX_WC_SEND, 2, "a long send");
    (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
    for (unsigned i = 0; i < 2; i++) {
        bool is_sleeper = side->is_initiator == (i == 0);
        if (is_sleeper) {
            EXPECT_OK(rdmux_recv(side->ep, in.addr, 8, NULL, CTX(3)));
            arm_quiet(side);
        }
        BARRIER(side); /* one side is armed and makes no call, the other sends */
        if (is_sleeper) {
            EXPECT(sleeps_until_woken(side), "a message wakes no sleeper");
            (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(3));
        } else {
            EXPECT_OK(rdmux_send(side->ep, &words[i], 8, NULL, CTX(4), 0));
            (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(4));
        }
        BARRIER(side);
    }
    idle_both(side, "after a long message each way, and one that woke a sleeper");
    for (uint64_t i = 0; i < 4; i++) {
        EXPECT_OK(rdmux_send(side->ep, &words[i], 8, NULL, CTX(10 + i), placed));
    }
    BARRIER(side);
    if (placed != 0) {
        idle_both(side, "while messages wait for receives, each way");
    }
    for (uint64_t i = 0; i < 4; i++) {
        EXPECT_OK(rdmux_recv(side->ep, in.addr + 8 * i, 8, NULL, CTX(20 + i)));
    }
    for (uint64_t i = 0; i < 4; i++) {
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(10 + i));
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(20 + i));
    }
    /* One side has unused receives, and messages of the same side wait. */
    for (unsigned i = 0; i < 2; i++) {
        const bool waits = side->is_initiator == (i == 0);
        if (waits) {
            for (uint64_t k = 0; k < 4; k++) {
                EXPECT_OK(rdmux_send(side->ep, &words[k], 8, NULL, CTX(30 + k), placed));
            }
            for (uint64_t k = 0; k < IDLE_RECEIVES; k++) {
                EXPECT_OK(rdmux_recv(side->ep, in.addr + 8 * k, 8, NULL, CTX(40 + k)));
            }
        }
        if (placed != 0) {
            idle_both(side, "while messages wait one way, and receives the other");
        }
        BARRIER(side);
        for (uint64_t k = 0; k < (waits ? 0 : 4); k++) {
            EXPECT_OK(rdmux_recv(side->ep, in.addr + 8 * k, 8, NULL, CTX(50 + k)));
            (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(50 + k));
        }
        for (uint64_t k = 0; k < IDLE_RECEIVES && !waits; k++) {
            EXPECT_OK(rdmux_send(side->ep, &words[0], 8, NULL, CTX(60 + k), placed));
            (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(60 + k));
        }
        for (uint64_t k = 0; k < 4 && waits; k++) {
            (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(30 + k));
        }
        for (uint64_t k = 0; k < IDLE_RECEIVES && waits; k++) {
            (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(40 + k));
        }
        BARRIER(side);
    }
    side_finish(side);
}

/* -------------------------------------------------------------- descriptors that come and go */

static void expect_no_longer_shared(uint64_t before)
{
    const uint64_t now = bytes_mapped('s');
    EXPECT(now <= before,
           "when all is closed %" PRIu64 " bytes of shared memory are mapped, %" PRIu64 " were",
           now, before);
}

enum {
    DESCRIPTOR_ROUNDS = 120,
    DESCRIPTOR_FIRST = 40, /* rounds before the first count */
    DESCRIPTORS_KEPT = 24, /* imports, and regions, open at a time */
    DESCRIPTOR_REGION = 1 << 20,
};

/* Resources that a process holds. */
struct holdings {
    unsigned descriptors;
    uint64_t bytes;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* A sanitizer's allocator keeps freed memory, including the case's own regions. */
enum { ALLOCATOR_RETURNS = 0 };
#else
enum { ALLOCATOR_RETURNS = 1 };
#endif

static struct holdings hold_now(void)
{
    return (struct holdings){ descriptors_open(), ALLOCATOR_RETURNS ? bytes_mapped('r') : 0 };
}

static void expect_no_more(const struct holdings *before, const char *what)
{
    const struct holdings now = hold_now();
    const int rounds = DESCRIPTOR_ROUNDS - DESCRIPTOR_FIRST;
    EXPECT(now.descriptors <= before->descriptors + 8,
           "%d %s later %u descriptors are open, %u were", rounds, what, now.descriptors,
           before->descriptors);
    /* A third of the memory of all rounds is more than an allocator's arenas. */
    EXPECT(now.bytes <= before->bytes + (uint64_t)rounds / 3 * DESCRIPTOR_REGION,
           "%d %s of %d bytes later %" PRIu64 " bytes are mapped, %" PRIu64 " were", rounds, what,
           DESCRIPTOR_REGION, now.bytes, before->bytes);
}

/* Regions, imports and messages come and go, some of them open at a time. None leaves a resource
 * behind. */
static void descriptors_initiator(struct side *side)
{
    uint8_t bytes[PAGE] = { 0 };
    struct rdmux_remote *remotes[DESCRIPTORS_KEPT] = { NULL };
    struct holdings before = { 0 };
    const uint64_t shared = bytes_mapped('s');
    open_still_pair(side);
    for (uint64_t round = 0; round < DESCRIPTOR_ROUNDS; round++) {
        struct rdmux_remote **remote = &remotes[round % DESCRIPTORS_KEPT];
        rdmux_remote_close(*remote);
        if (round == DESCRIPTOR_FIRST) {
            before = hold_now();
        }
        BARRIER(side);
        *remote = take_remote(side, side->ep);
        EXPECT_OK(rdmux_write(side->ep, bytes, sizeof(bytes), NULL, *remote, 0, CTX(1), 0));
        EXPECT_OK(rdmux_send(side->ep, bytes, sizeof(bytes), NULL, CTX(2), 0));
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
        (void)WAIT(&side->queue, RDMUX_WC_SEND, CTX(2));
    }
    BARRIER(side);
    expect_no_more(&before, "imports");
    for (size_t i = 0; i < DESCRIPTORS_KEPT; i++) {
        rdmux_remote_close(remotes[i]);
    }
    side_finish(side);
    expect_no_longer_shared(shared);
}

static void descriptors_target(struct side *side)
{
    struct region regions[DESCRIPTORS_KEPT];
    struct holdings before = { 0 };
    const uint64_t shared = bytes_mapped('s');
    open_still_pair(side);
    for (uint64_t round = 0; round < DESCRIPTOR_ROUNDS; round++) {
        struct region *region = &regions[round % DESCRIPTORS_KEPT];
        BARRIER(side);
        if (round >= DESCRIPTORS_KEPT) {
            region_free(side, region);
        }
        if (round == DESCRIPTOR_FIRST) {
            before = hold_now();
        }
        *region = region_make(side, round % 3 == 0 ? MEMORY_REGISTERED : MEMORY_ALLOCATED,
                              DESCRIPTOR_REGION, ACCESS_ALL);
        EXPECT_OK(rdmux_recv(side->ep, region->addr + PAGE, PAGE, region->mr, CTX(1)));
        give_token(side, region);
        (void)WAIT(&side->queue, RDMUX_WC_RECV, CTX(1));
    }
    BARRIER(side);
    expect_no_more(&before, "regions");
    side_finish(side);
    expect_no_longer_shared(shared);
}

/* ---------------------------------------------------------------------- a peer that says nothing */

enum { TURNS = 64, NEWS = 2 }; /* the connection, and the peer's bytes, each in one or two events */

/* Polls, arms and looks at the descriptor; returns in how many turns it was readable. */
static unsigned count_wakes(struct side *side)
{
    struct pollfd look = { .fd = rdmux_cq_fd(side->queue.cq), .events = POLLIN };
    struct rdmux_wc wc;
    unsigned count = 0;
    for (unsigned i = 0; i < TURNS; i++) {
        const size_t entries = rdmux_cq_poll(side->queue.cq, &wc, 1);
        EXPECT(entries == 0, "an entry: %s", wc_text(&wc));
        count += rdmux_cq_arm(side->queue.cq) != RDMUX_OK || poll(&look, 1, 0) != 0;
    }
    return count;
}

/* Without a service thread nothing but the polls of this loop can end what wakes it. */
static void silent_peer(struct side *side)
{
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_fabric_attr fabric_attr = fabric_attr_of(side);
    struct rdmux_ep_attr attr = still_ep_attr_of(side);
    struct rdmux_ep *ep = NULL;
    int fd = side_bound_socket(side, true, address);
    fabric_attr.flags |= RDMUX_FABRIC_NO_SERVICE_THREAD;
    attr.setup_timeout_ms = 600000;
    side_open(side, &fabric_attr);
    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, address, &attr, 0, &ep),
                  RDMUX_IN_PROGRESS);
    side_track(side, ep);
    int peer = accept(fd, NULL, NULL);
    EXPECT(peer >= 0, "accept: %s", strerror(errno));
    unsigned wakes = count_wakes(side);
    EXPECT(wakes <= NEWS, "%u of %u arms of a cq whose set-up waits did not sleep", wakes, TURNS);

    EXPECT(send(peer, "RD", 2, MSG_NOSIGNAL) == 2, "send: %s", strerror(errno));
    wakes = count_wakes(side);
    EXPECT(wakes <= NEWS, "%u of %u arms did not sleep after the peer's first bytes", wakes, TURNS);
    side_close_ep(side, ep);
    (void)close(peer);
    side_finish(side);
    (void)close(fd);
}

static void alone(struct side *side)
{
    side_open(side, NULL);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "13.6, 13.7",
      "a cq that is armed right after a post, without a poll, wakes when the request is done, "
      "short or long, in memory of every kind",
      NEEDS_BASICS, 30, 0, arm_initiator, arm_target },
    { "13.10",
      "requests of every kind that a thread posts are done while another sleeps on the armed cq",
      NEEDS_BASICS, 30, 0, others_initiator, others_target },
    { "13.10, 2.2",
      "a receive that a thread posts while another sleeps on the armed cq takes the message that "
      "waits for it",
      NEEDS_SEND, 30, 0, fed_initiator, fed_target },
    { "13.10, 2.2, 2.14",
      "a receive of an SRQ that a thread posts while another sleeps on the armed cq takes the "
      "message that waits for it",
      NEEDS_SEND | NEEDS_SRQ, 30, 0, fed_initiator, srq_fed_target },
    { "13.8, 13.12",
      "an idle cq that is armed, or waited for, sleeps: new, after long messages, and while "
      "messages wait for receives",
      NEEDS_SEND, 30, 0, idle, idle },
    { "13.8", "an armed cq sleeps while a set-up waits for its peer, and wakes once for its bytes",
      0, 0, CASE_MANUAL, silent_peer, alone },
    { "9.8",
      "regions, imports and messages that come and go leave no descriptor and no memory with an "
      "endpoint",
      NEEDS_SEND | NEEDS_WRITE, 20, 0, descriptors_initiator, descriptors_target },
};

const struct suite asleep_suite = { "asleep", cases, COUNT_OF(cases) };
