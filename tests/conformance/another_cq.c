/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Endpoints that change their cq: rdmux_ep_move(). A path that cannot refuses, and its endpoint
 * goes on where it is. */
#include "harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = 12, /* messages of each direction that are under way */
    STAY = 7,    /* entries that the endpoint stays for */
    SPARE = 256, /* bytes of the region behind a slot, so that writes go to several offsets */
    SHORT = 700,
    SHORT_MESSAGES = 1200, /* of each direction */
    LONG = 600000,         /* over several sockets, and more than they hold */
    LONG_MESSAGES = 24,
    LONG_SOCKETS = 3,
    FAILOVER_MESSAGES = 150, /* each change of cq may open a path */
};

/* ---------------------------------------------------------------------------------- the traffic */

/* One side of the traffic: numbered requests, every fourth a write with a read behind it, the
 * others messages. Both sides do the same. */
struct traffic {
    struct side *side;
    struct rdmux_ep *ep;
    struct rdmux_remote *remote;
    size_t slot;       /* bytes of a message */
    uint64_t messages; /* of each direction */
    uint64_t posted;   /* messages */
    uint64_t requests; /* requests of the send side */
    uint64_t done;     /* entries of these */
    uint64_t received;
    uint8_t *from;         /* WINDOW slots */
    uint8_t *into;         /* the same */
    uint8_t *back;         /* one */
    uint64_t read_context; /* of the read under way; 0: none */
    uint64_t read_seed;
};

static void post_receive(struct traffic *traffic, uint64_t number)
{
    uint8_t *slot = traffic->into + number % WINDOW * traffic->slot;
    memset(slot, 0, traffic->slot);
    EXPECT_OK(rdmux_recv(traffic->ep, slot, traffic->slot, NULL, CTX(number)));
}

/* A write of the whole slot, and a read of the same bytes behind it (2.6). */
static void post_write_and_read(struct traffic *traffic, const uint8_t *slot, uint64_t seed)
{
    const uint64_t offset = traffic->requests * 8 % SPARE;
    EXPECT_OK(rdmux_write(traffic->ep, slot, traffic->slot, NULL, traffic->remote, offset,
                          CTX(traffic->requests++), 0));
    traffic->read_context = traffic->requests;
    traffic->read_seed = seed;
    EXPECT_OK(rdmux_read(traffic->ep, traffic->back, traffic->slot, NULL, traffic->remote, offset,
                         CTX(traffic->requests++), 0));
}

static void post_more(struct traffic *traffic)
{
    while (traffic->posted < traffic->messages && traffic->requests < traffic->done + WINDOW - 2) {
        uint8_t *slot = traffic->from + traffic->posted % WINDOW * traffic->slot;
        const uint64_t seed = traffic->side->seed + traffic->posted;
        pattern_fill(slot, traffic->slot, seed, 0);
        if (traffic->posted % 4 == 3 && traffic->read_context == 0) {
            post_write_and_read(traffic, slot, seed);
        }
        EXPECT_OK(rdmux_send(traffic->ep, slot, traffic->slot, NULL, CTX(traffic->requests++), 0));
        traffic->posted++;
    }
}

static void handle_entry(struct traffic *traffic, const struct rdmux_wc *wc)
{
    if (wc->opcode == RDMUX_WC_PATH_CHANGED) { /* with failover: the path was opened anew */
        EXPECT(wc->ep == traffic->ep && wc->status == RDMUX_OK, "%s came", wc_text(wc));
        return;
    }
    EXPECT(wc->ep == traffic->ep && wc->status == RDMUX_OK, "%s came", wc_text(wc));
    if (wc->opcode == RDMUX_WC_RECV) {
        EXPECT(wc->context == CTX(traffic->received) && wc->length == traffic->slot,
               "%s came in place of message %ju", wc_text(wc), (uintmax_t)traffic->received);
        EXPECT_PATTERN(traffic->into + traffic->received % WINDOW * traffic->slot, traffic->slot,
                       traffic->side->seed + traffic->received);
        post_receive(traffic, traffic->received + WINDOW);
        traffic->received++;
        return;
    }
    EXPECT(wc->context == CTX(traffic->done), "%s came in place of request %ju", wc_text(wc),
           (uintmax_t)traffic->done);
    if (wc->opcode == RDMUX_WC_READ) {
        EXPECT_EQUAL(CTX_NUMBER(wc->context), traffic->read_context);
        EXPECT_PATTERN(traffic->back, traffic->slot, traffic->read_seed);
        traffic->read_context = 0;
    }
    traffic->done++;
}

static bool traffic_is_over(const struct traffic *traffic)
{
    return traffic->posted == traffic->messages && traffic->done == traffic->requests &&
           traffic->received == traffic->messages;
}

static void traffic_begin(struct traffic *traffic, struct side *side, size_t slot,
                          uint64_t messages, struct region *region)
{
    memset(traffic, 0, sizeof(*traffic));
    traffic->side = side;
    traffic->ep = side->ep;
    traffic->slot = slot;
    traffic->messages = messages;
    traffic->from = calloc(WINDOW, slot);
    traffic->into = calloc(WINDOW, slot);
    traffic->back = calloc(1, slot);
    EXPECT(traffic->from != NULL && traffic->into != NULL && traffic->back != NULL, "no memory");
    for (uint64_t i = 0; i < WINDOW; i++) {
        post_receive(traffic, i);
    }
    *region = region_make(side, MEMORY_ALLOCATED, traffic->slot + SPARE, ACCESS_ALL);
    give_token(side, region);
    traffic->remote = take_remote(side, side->ep);
    BARRIER(side);
}

static void traffic_end(struct traffic *traffic)
{
    free(traffic->from);
    free(traffic->into);
    free(traffic->back);
}

static struct rdmux_ep_attr attr_of_traffic(const struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.send_depth = WINDOW;
    attr.recv_depth = WINDOW;
    return attr;
}

/* ------------------------------------------------------------------------------- one thread a side */

enum result {
    GOES,
    NOT_NOW, /* failover works on the path, as the other side changes its cq */
    CANNOT,  /* the endpoint stays for good */
};

static enum result move_to(struct side *side, struct rdmux_ep *ep, struct rdmux_cq *to)
{
    enum rdmux_status status = rdmux_ep_move(ep, to);
    if (status == RDMUX_UNSUPPORTED) {
        EXPECT(*rdmux_last_error() != '\0', "UNSUPPORTED without a text");
        return CANNOT;
    }
    if (status == RDMUX_AGAIN && side->info.failover != 0) {
        return NOT_NOW;
    }
    EXPECT_STATUS(status, RDMUX_OK);
    /* Several threads may get here. */
    __atomic_fetch_or(&side->caps->emulated, NEEDS_CQ_CHANGE, __ATOMIC_RELAXED);
    return GOES;
}

/* Moves the endpoint from one queue to the other one. Entries that were polled before come
 * first. */
static enum result change_queue(struct traffic *traffic, struct queue *from, struct queue *to)
{
    while (from->kept_count != 0) {
        struct rdmux_wc wc = NEXT(from);
        handle_entry(traffic, &wc);
    }
    enum result result = move_to(traffic->side, traffic->ep, to->cq);
    if (result == GOES) {
        EXPECT_QUIET(from);
        struct rdmux_wc wc = NEXT_AFTER(to, "there is no MOVED");
        EXPECT(wc.opcode == RDMUX_WC_MOVED && wc.status == RDMUX_OK && wc.ep == traffic->ep,
               "%s came in place of MOVED", wc_text(&wc));
    }
    return result;
}

/* Returns whether there is an entry after a few polls. */
static bool has_entry_soon(struct queue *queue)
{
    for (int polls = 0; polls < 3 && queue->kept_count == 0; polls++) {
        (void)queue_poll(queue);
    }
    return queue->kept_count != 0;
}

/* With long messages the endpoint changes its cq whenever there is no entry: in the middle of
 * messages. */
static void move_in_traffic(struct side *side, size_t slot, uint64_t messages, uint32_t sockets,
                            uint32_t failover)
{
    static struct traffic traffic;
    struct rdmux_ep_attr attr = attr_of_traffic(side);
    struct rdmux_cq *cq = NULL;
    struct queue other;
    struct region region;
    attr.data_sockets = sockets;
    attr.failover = failover;
    attr.failover_attempts = 1000;
    side_open(side, NULL);
    side_meet(side);
    (void)side_pair(side, &attr);
    EXPECT_OK(rdmux_cq_create(side->fabric, NULL, &cq));
    queue_open(&other, side, cq);
    traffic_begin(&traffic, side, slot, messages, &region);

    struct queue *at = &side->queue;
    bool moves = true;
    for (unsigned entries = 0; !traffic_is_over(&traffic); entries++) {
        post_more(&traffic);
        if (moves && (entries % STAY == 0 || (slot == LONG && !has_entry_soon(at)))) {
            struct queue *to = at == &other ? &side->queue : &other;
            enum result result = change_queue(&traffic, at, to);
            moves = result != CANNOT;
            at = result == GOES ? to : at;
            continue;
        }
        struct rdmux_wc wc = NEXT(at);
        handle_entry(&traffic, &wc);
    }
    BARRIER(side);
    while (at == &other) {
        EXPECT(!time_is_up(), "the endpoint does not come back: %s", rdmux_last_error());
        (void)queue_poll(&other);
        at = change_queue(&traffic, &other, &side->queue) == GOES ? &side->queue : at;
    }
    EXPECT_QUIET(&other);
    EXPECT_OK(rdmux_cq_destroy(cq));
    queue_close(&other);
    rdmux_remote_close(traffic.remote);
    BARRIER(side);
    side_close_ep(side, side->ep); /* flushes the receives that are left */
    traffic_end(&traffic);
    region_free(side, &region);
    side_end(side);
}

static void move_in_short_messages(struct side *side)
{
    move_in_traffic(side, SHORT, SHORT_MESSAGES, 1, RDMUX_FAILOVER_OFF);
}

static void move_in_long_messages(struct side *side)
{
    move_in_traffic(side, LONG, LONG_MESSAGES, LONG_SOCKETS, RDMUX_FAILOVER_OFF);
}

static void move_with_failover(struct side *side)
{
    move_in_traffic(side, SHORT, FAILOVER_MESSAGES, 1, RDMUX_FAILOVER_ON);
}

/* -------------------------------------------------------------------------------- threads of a side */

/* Two threads with a queue each, which send the endpoint to each other. */
struct shards {
    struct traffic traffic; /* of the thread that has the endpoint */
    struct queue queues[2];
    _Atomic bool moves;
    _Atomic bool is_over;
};

struct shard {
    struct shards *shards;
    size_t index;
    bool has_it;
};

/* Takes an entry of the thread's own queue; false: there is none now. */
static bool next_of_shard(struct queue *queue, struct rdmux_wc *wc)
{
    if (queue->kept_count == 0 && queue_poll(queue) == 0) {
        return false;
    }
    *wc = NEXT(queue);
    return true;
}

static void *run_shard(void *argument)
{
    struct shard *shard = argument;
    struct shards *shards = shard->shards;
    struct traffic *traffic = &shards->traffic;
    struct queue *queue = &shards->queues[shard->index];
    unsigned entries = 0;
    while (!atomic_load(&shards->is_over)) {
        struct rdmux_wc wc;
        if (shard->has_it) {
            post_more(traffic);
        }
        if (!next_of_shard(queue, &wc)) {
            EXPECT(!time_is_up(), "the traffic has not ended");
            if (queue->progress != NULL) {
                EXPECT_OK(rdmux_fabric_progress(queue->progress));
            }
            continue;
        }
        if (wc.opcode == RDMUX_WC_MOVED) {
            EXPECT(!shard->has_it && wc.status == RDMUX_OK && wc.ep == traffic->ep, "%s came",
                   wc_text(&wc));
            shard->has_it = true;
            continue;
        }
        EXPECT(shard->has_it, "%s came before MOVED", wc_text(&wc));
        handle_entry(traffic, &wc);
        if (traffic_is_over(traffic)) {
            atomic_store(&shards->is_over, true);
        } else if (++entries % STAY == 0 && queue->kept_count == 0 && atomic_load(&shards->moves)) {
            shard->has_it = false; /* the other thread may have it before the call returns */
            if (move_to(traffic->side, traffic->ep, shards->queues[1 - shard->index].cq) != GOES) {
                shard->has_it = true;
                atomic_store(&shards->moves, false);
            }
        }
    }
    return NULL;
}

static void move_between_threads(struct side *side)
{
    static struct shards shards;
    struct rdmux_ep_attr attr = attr_of_traffic(side);
    struct rdmux_cq *cq = NULL;
    struct region region;
    pthread_t threads[2];
    side_open(side, NULL);
    side_meet(side);
    (void)side_pair(side, &attr);
    EXPECT_OK(rdmux_cq_create(side->fabric, NULL, &cq));
    shards.queues[0] = side->queue;
    queue_open(&shards.queues[1], side, cq);
    atomic_store(&shards.moves, true);
    traffic_begin(&shards.traffic, side, SHORT, SHORT_MESSAGES, &region);
    shards.queues[0] = side->queue; /* with what traffic_begin() has kept there */
    struct shard halves[2] = { { &shards, 0, true }, { &shards, 1, false } };
    for (size_t i = 0; i < 2; i++) {
        EXPECT(pthread_create(&threads[i], NULL, run_shard, &halves[i]) == 0, "no thread");
    }
    for (size_t i = 0; i < 2; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0, "no join");
    }
    side->queue = shards.queues[0];
    EXPECT_QUIET(&side->queue);
    EXPECT_QUIET(&shards.queues[1]);
    BARRIER(side);
    side_close_ep(side, side->ep);
    EXPECT_OK(rdmux_cq_destroy(cq));
    queue_close(&shards.queues[1]);
    traffic_end(&shards.traffic);
    region_free(side, &region);
    side_end(side);
}

/* -------------------------------------------------------------------------------------- a sleeper */

enum { WAKE_ROUNDS = 5, ASLEEP_MS = 20 };

static void *await_moved(void *argument)
{
    const struct side *side = argument;
    struct rdmux_wc wc = { .opcode = 0 };
    size_t count = 0;
    EXPECT_OK(rdmux_cq_wait(side->queue.cq, &wc, 1, side->patient_ms, &count));
    EXPECT(count == 1 && wc.opcode == RDMUX_WC_MOVED, "%s came", wc_text(&wc));
    return NULL;
}

/* No wake-up of a message may be lost, either. One call waits: WAIT would look again from time to
 * time. */
static void be_woken(struct side *side, struct queue *queue)
{
    uint64_t word = 0;
    for (uint64_t i = 0; i < WAKE_ROUNDS; i++) {
        EXPECT_OK(rdmux_recv(side->ep, &word, sizeof(word), NULL, CTX(i)));
        BARRIER(side);
        struct rdmux_wc wc = { .opcode = 0 };
        size_t count = 0;
        EXPECT_OK(rdmux_cq_wait(queue->cq, &wc, 1, side->patient_ms, &count));
        EXPECT(count == 1 && wc.opcode == RDMUX_WC_RECV && wc.context == CTX(i), "%s came",
               wc_text(&wc));
        EXPECT_EQUAL(word, i);
    }
}

static void wake_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = still_ep_attr_of(side);
    struct rdmux_cq *cq = NULL;
    struct queue other;
    side_open(side, NULL);
    side_meet(side);
    (void)side_pair(side, &attr);
    EXPECT_OK(rdmux_cq_create(side->fabric, NULL, &cq));
    queue_open(&other, side, cq);
    const bool moves = move_to(side, side->ep, cq) == GOES;
    if (moves) {
        (void)WAIT(&other, RDMUX_WC_MOVED, NULL);
    }
    be_woken(side, moves ? &other : &side->queue);
    if (moves) {
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, await_moved, side) == 0, "no thread");
        sleep_ms(ASLEEP_MS); /* it sleeps by now; if not, the case shows less */
        EXPECT_OK(rdmux_ep_move(side->ep, side->queue.cq));
        EXPECT(pthread_join(thread, NULL) == 0, "no join");
    }
    be_woken(side, &side->queue);
    EXPECT_QUIET(&other);
    EXPECT_OK(rdmux_cq_destroy(cq));
    queue_close(&other);
    side_finish(side);
}

static void wake_target(struct side *side)
{
    struct rdmux_ep_attr attr = still_ep_attr_of(side);
    side_open(side, NULL);
    side_meet(side);
    (void)side_pair(side, &attr);
    for (uint64_t i = 0; i < 2 * (uint64_t)WAKE_ROUNDS; i++) {
        uint64_t word = i % WAKE_ROUNDS;
        BARRIER(side);
        sleep_ms(ASLEEP_MS); /* the peer sleeps by now */
        (void)POST_AND_WAIT(&side->queue,
                            rdmux_send(side->ep, &word, sizeof(word), NULL, CTX(i), 0),
                            RDMUX_WC_SEND, CTX(i));
    }
    side_finish(side);
}

/* --------------------------------------------------------------------------------- the control channel */

enum { CONTROL_ROUNDS = 4 };

/* Each round moves there and back. The other cq has room for one endpoint alone. */
static void control_initiator(struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_cq_attr small = RDMUX_CQ_ATTR_INIT;
    struct rdmux_cq *cq = NULL;
    struct queue other;
    attr.send_depth = attr.recv_depth = 20;
    small.depth = 40;
    side_open(side, NULL);
    side_meet(side);
    (void)side_pair(side, &attr);
    EXPECT_OK(rdmux_cq_create(side->fabric, &small, &cq));
    queue_open(&other, side, cq);
    for (unsigned round = 0; round < CONTROL_ROUNDS; round++) {
        struct region region = region_of_kind(side, round, 100);
        give_token(side, &region);
        struct rdmux_remote *before = take_remote(side, side->ep);
        const bool moves = move_to(side, side->ep, cq) == GOES;
        if (moves) {
            (void)WAIT(&other, RDMUX_WC_MOVED, NULL);
        }
        struct rdmux_remote *after = take_remote(side, side->ep);
        BARRIER(side);
        EXPECT_OK(rdmux_mr_revoke(region.mr)); /* asks the peer through the cq of now */
        BARRIER(side);
        rdmux_remote_close(before);
        rdmux_remote_close(after);
        if (moves) {
            EXPECT_OK(rdmux_ep_move(side->ep, side->queue.cq));
            EXPECT_QUIET(&other);
            (void)WAIT(&side->queue, RDMUX_WC_MOVED, NULL);
        }
        region_free(side, &region);
    }
    EXPECT_OK(rdmux_cq_destroy(cq));
    queue_close(&other);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static void control_target(struct side *side)
{
    side_open_pair(side, NULL);
    for (unsigned round = 0; round < CONTROL_ROUNDS; round++) {
        struct rdmux_remote *remote = take_remote(side, side->ep);
        struct region region = region_of_kind(side, round, 100);
        give_token(side, &region); /* before the move, and after */
        give_token(side, &region);
        BARRIER(side);
        await_revoked(side, remote);
        EXPECT_STATUS(rdmux_write(side->ep, region.addr, 8, NULL, remote, 0, NULL, 0), RDMUX_DENIED);
        BARRIER(side);
        rdmux_remote_close(remote);
        region_free(side, &region);
    }
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

/* ---------------------------------------------------------------------------------------- refusals */

static void expect_refused(struct rdmux_ep *ep, struct rdmux_cq *to, enum rdmux_status expected)
{
    EXPECT_STATUS(rdmux_ep_move(ep, to), expected);
    EXPECT(*rdmux_last_error() != '\0', "there is no error text");
}

static void refuse_initiator(struct side *side)
{
    struct rdmux_fabric_attr fabric_attr = fabric_attr_of(side);
    struct rdmux_cq_attr small = RDMUX_CQ_ATTR_INIT;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_fabric *fabric = NULL;
    struct rdmux_cq *strange = NULL;
    struct rdmux_cq *narrow = NULL;
    struct rdmux_cq *cq = NULL;
    struct rdmux_listener *listener = NULL;
    struct rdmux_ep *early = NULL;
    char address[RDMUX_ADDRESS_MAX];
    side_open(side, NULL);
    side_meet(side);
    EXPECT_OK(rdmux_cq_create(side->fabric, NULL, &cq));
    EXPECT_OK(rdmux_listen(side->fabric, side_any_port(side), NULL, &listener));
    EXPECT_OK(rdmux_listener_address(listener, address, sizeof(address)));
    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, address, &attr, 0, &early),
                  RDMUX_IN_PROGRESS);
    expect_refused(early, cq, RDMUX_AGAIN); /* nobody accepts it */
    EXPECT_OK(rdmux_ep_close(early));
    expect_refused(early, cq, RDMUX_INVALID);
    rdmux_listener_close(listener);

    attr.send_depth = attr.recv_depth = 20;
    small.depth = 39;
    (void)side_pair(side, &attr);
    EXPECT_OK(rdmux_fabric_open(&fabric_attr, &fabric));
    EXPECT_OK(rdmux_cq_create(fabric, NULL, &strange));
    expect_refused(side->ep, strange, RDMUX_INVALID);
    expect_refused(side->ep, NULL, RDMUX_INVALID);
    expect_refused(NULL, cq, RDMUX_INVALID);
    EXPECT_OK(rdmux_cq_create(side->fabric, &small, &narrow));
    enum rdmux_status status = rdmux_ep_move(side->ep, narrow);
    EXPECT(status == RDMUX_NO_MEMORY || status == RDMUX_UNSUPPORTED, "39 entries of 40: %s",
           rdmux_status_name(status));
    EXPECT_OK(rdmux_cq_destroy(narrow)); /* nothing is on its way */
    EXPECT_OK(rdmux_cq_destroy(strange));
    EXPECT_OK(rdmux_fabric_close(fabric));

    if (side_has(side, NEEDS_SRQ)) {
        struct rdmux_srq *srq = NULL;
        EXPECT_OK(rdmux_srq_create(side->fabric, side->queue.cq, NULL, &srq));
        attr.srq = srq;
        struct rdmux_ep *shared = side_pair(side, &attr);
        expect_refused(shared, cq, RDMUX_INVALID);
        BARRIER(side);
        side_close_ep(side, shared);
        EXPECT_OK(rdmux_srq_destroy(srq));
    }
    EXPECT_OK(rdmux_cq_destroy(cq));
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static void refuse_target(struct side *side)
{
    side_open(side, NULL);
    side_meet(side);
    struct rdmux_ep *ep = side_pair(side, NULL);
    if (side_has(side, NEEDS_SRQ)) {
        struct rdmux_ep *shared = side_pair(side, NULL);
        BARRIER(side);
        side_close_ep(side, shared);
    }
    exercise(side, &side->queue, ep);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "15.14, 15.15, 1.6, 2.1",
      "an endpoint that changes its cq in the middle of traffic loses nothing, on both sides",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 30, 0, move_in_short_messages, move_in_short_messages },
    { "15.14, 15.15, 12.5",
      "an endpoint that changes its cq in the middle of long messages loses no byte",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 30, 0, move_in_long_messages, move_in_long_messages },
    { "15.14, 15.15, F.7",
      "with failover an endpoint changes its cq on every path, and no outcome is unknown",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 60, 0, move_with_failover, move_with_failover },
    { "15.14, 15.15, 15.8", "threads with a cq each send an endpoint to each other",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 30, 0, move_between_threads, move_between_threads },
    { "15.14, 15.6, 6.7", "imports and revocations follow the endpoint, and room is given back",
      NEEDS_WRITE, 0, 0, control_initiator, control_target },
    { "15.15", "MOVED wakes a thread that sleeps in a wait on the new cq", NEEDS_SEND, 0, 0,
      wake_initiator, wake_target },
    { "15.16, -15.16", "a move that is refused says why, and the endpoint stays where it was", 0, 0,
      0, refuse_initiator, refuse_target },
};

const struct suite another_cq_suite = { "another_cq", cases, COUNT_OF(cases) };
