/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Lifetimes of objects: order of destruction, room, threads, fabrics side by side, fork. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --------------------------------------------------------------- objects with living dependents */

static void children_initiator(struct side *side)
{
    struct rdmux_srq *srq = NULL;
    struct rdmux_listener *listener = NULL;
    side_open_pair(side, NULL);
    struct rdmux_cq *cq = side->queue.cq;
    EXPECT_STATUS(rdmux_fabric_close(side->fabric), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_cq_destroy(cq), RDMUX_INVALID); /* an endpoint is left */
    exercise(side, &side->queue, side->ep);
    BARRIER(side);
    side_close_ep(side, side->ep);

    if (side_has(side, NEEDS_SRQ)) {
        EXPECT_OK(rdmux_srq_create(side->fabric, cq, NULL, &srq));
        EXPECT_STATUS(rdmux_cq_destroy(cq), RDMUX_INVALID); /* an SRQ is left */
        EXPECT_OK(rdmux_srq_destroy(srq));
    }
    EXPECT_STATUS(rdmux_fabric_close(side->fabric), RDMUX_INVALID); /* a cq is left */
    EXPECT_QUIET(&side->queue);
    EXPECT_OK(rdmux_cq_destroy(cq));
    queue_close(&side->queue);

    struct region region = region_make(side, MEMORY_ALLOCATED, 100, ACCESS_ALL);
    EXPECT_STATUS(rdmux_fabric_close(side->fabric), RDMUX_INVALID); /* a region is left */
    region_free(side, &region);
    EXPECT_OK(rdmux_listen(side->fabric, "127.0.0.1:0", NULL, &listener));
    EXPECT_STATUS(rdmux_fabric_close(side->fabric), RDMUX_INVALID); /* a listener is left */
    EXPECT(*rdmux_last_error() != '\0', "there is no error text");
    rdmux_listener_close(listener);

    EXPECT_OK(rdmux_cq_destroy(NULL));
    EXPECT_OK(rdmux_srq_destroy(NULL));
    EXPECT_OK(rdmux_fabric_close(NULL));
    side_end(side);
}

static void children_target(struct side *side)
{
    side_open_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    BARRIER(side);
    side_end(side);
}

/* ------------------------------------------------------------------------------ room in a cq */

static void room_initiator(struct side *side)
{
    struct rdmux_cq_attr cq_attr = RDMUX_CQ_ATTR_INIT;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep_attr big = ep_attr_of(side);
    struct rdmux_srq_attr srq_attr = RDMUX_SRQ_ATTR_INIT;
    struct rdmux_srq *srq = CTX(1);
    struct rdmux_ep *none = CTX(1);
    struct rdmux_cq *cq = NULL;
    struct queue queue;
    side_open(side, NULL);
    side_meet(side);
    cq_attr.depth = 100;
    EXPECT_OK(rdmux_cq_create(side->fabric, &cq_attr, &cq));
    queue_open(&queue, side, cq);
    attr.send_depth = attr.recv_depth = 40;
    big.send_depth = big.recv_depth = 51;

    EXPECT_STATUS(rdmux_connect(side->fabric, cq, side->address, &big, side->patient_ms, &none),
                  RDMUX_NO_MEMORY);
    EXPECT(none == NULL, "an endpoint after RDMUX_NO_MEMORY");
    struct rdmux_ep *first = side_pair_on(side, &queue, &attr);
    EXPECT_STATUS(rdmux_connect(side->fabric, cq, side->address, &attr, side->patient_ms, &none),
                  RDMUX_NO_MEMORY);
    srq_attr.depth = 21;
    if (side_has(side, NEEDS_SRQ)) {
        EXPECT_STATUS(rdmux_srq_create(side->fabric, cq, &srq_attr, &srq), RDMUX_NO_MEMORY);
        EXPECT(srq == NULL, "an SRQ after RDMUX_NO_MEMORY");
    }
    exercise(side, &queue, first);
    BARRIER(side);
    side_close_ep(side, first);
    struct rdmux_ep *second = side_pair_on(side, &queue, &attr); /* its room is free again */
    exercise(side, &queue, second);
    EXPECT_QUIET(&queue);
    BARRIER(side);
    side_close_ep(side, second);
    EXPECT_OK(rdmux_cq_destroy(cq));
    queue_close(&queue);
    side_end(side);
}

static void room_target(struct side *side)
{
    side_open(side, NULL);
    side_meet(side);
    for (unsigned i = 0; i < 2; i++) {
        struct rdmux_ep *ep = side_pair(side, NULL);
        exercise(side, &side->queue, ep);
        BARRIER(side);
        side_close_ep(side, ep);
    }
    side_end(side);
}

/* ------------------------------------------------------------------------------ two fabrics */

static void fabrics_initiator(struct side *side)
{
    struct rdmux_fabric_attr attr = fabric_attr_of(side);
    struct rdmux_fabric *other = NULL;
    struct rdmux_cq *other_cq = NULL;
    struct rdmux_mr *other_mr = NULL;
    struct rdmux_ep *none = CTX(1);
    struct queue other_queue;
    uint8_t bytes[64] = { 0 };
    side_open_pair(side, NULL);
    EXPECT_OK(rdmux_fabric_open(&attr, &other));
    EXPECT_OK(rdmux_cq_create(other, NULL, &other_cq));
    queue_open(&other_queue, side, other_cq);
    EXPECT_OK(rdmux_mr_register(other, bytes, sizeof(bytes), RDMUX_ACCESS_LOCAL_WRITE, &other_mr));

    /* objects of one fabric are invalid in the other */
    struct rdmux_ep_attr ep_attr = ep_attr_of(side);
    EXPECT_STATUS(
        rdmux_connect(side->fabric, other_cq, side->address, &ep_attr, side->patient_ms, &none),
        RDMUX_INVALID);
    EXPECT_STATUS(rdmux_send(side->ep, bytes, 8, other_mr, CTX(1), 0), RDMUX_INVALID);

    struct rdmux_fabric *mine = side->fabric;
    side->fabric = other;
    struct rdmux_ep *second = side_pair_on(side, &other_queue, NULL);
    side->fabric = mine;
    exercise(side, &side->queue, side->ep);
    exercise(side, &other_queue, second);
    EXPECT_QUIET(&other_queue);
    BARRIER(side);
    side_close_ep(side, second);
    rdmux_mr_deregister(other_mr);
    EXPECT_OK(rdmux_cq_destroy(other_cq));
    queue_close(&other_queue);
    EXPECT_OK(rdmux_fabric_close(other));
    exercise(side, &side->queue, side->ep); /* the first fabric continues */
    side_finish(side);
}

static void fabrics_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_ep *second = side_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    exercise(side, &side->queue, second);
    BARRIER(side);
    (void)WAIT_OF(&side->queue, second, RDMUX_WC_DISCONNECTED, NULL, RDMUX_PEER_GONE);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ with itself */

/* Both ends in one process, on one cq. */
static void itself(struct side *side)
{
    enum { LENGTH = 300000 };
    uint8_t *source = region_make(side, MEMORY_UNREGISTERED, LENGTH, 0).addr;
    uint8_t *sink = region_make(side, MEMORY_UNREGISTERED, LENGTH, 0).addr;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    struct rdmux_ep *eps[2] = { NULL, NULL };
    side_open(side, NULL);
    struct queue *queue = &side->queue;
    EXPECT_OK(rdmux_listen(side->fabric, "127.0.0.1:0", NULL, &side->listener));
    EXPECT_OK(rdmux_listener_address(side->listener, side->address, sizeof(side->address)));
    EXPECT_STATUS(rdmux_connect(side->fabric, queue->cq, side->address, &attr, 0, &eps[0]),
                  RDMUX_IN_PROGRESS);
    side_track(side, eps[0]);
    EXPECT_OK(rdmux_accept(side->listener, queue->cq, &attr, side->patient_ms, &eps[1]));
    side_track(side, eps[1]);
    (void)WAIT_OF(queue, eps[0], RDMUX_WC_CONNECTED, NULL, RDMUX_OK);
    check_endpoint(side, eps[0], &side->info);
    check_endpoint(side, eps[1], &side->info);

    struct region region = region_make(side, MEMORY_ALLOCATED, LENGTH, ACCESS_ALL);
    EXPECT_OK(rdmux_mr_export(region.mr, &token));
    EXPECT_OK(rdmux_remote_import(eps[0], &token, side->patient_ms, &remote));
    pattern_fill(source, LENGTH, side->seed, 0);
    EXPECT_OK(rdmux_recv(eps[1], sink, LENGTH, NULL, CTX(1)));
    EXPECT_OK(rdmux_write(eps[0], source, LENGTH, NULL, remote, 0, CTX(2), 0));
    EXPECT_OK(rdmux_send(eps[0], source, LENGTH, NULL, CTX(3), 0));
    (void)WAIT_OF(queue, eps[1], RDMUX_WC_RECV, CTX(1), RDMUX_OK);
    (void)WAIT_OF(queue, eps[0], RDMUX_WC_WRITE, CTX(2), RDMUX_OK);
    (void)WAIT_OF(queue, eps[0], RDMUX_WC_SEND, CTX(3), RDMUX_OK);
    EXPECT_PATTERN(sink, LENGTH, side->seed);
    EXPECT_PATTERN(region.addr, LENGTH, side->seed);
    memset(sink, 0, LENGTH);
    EXPECT_OK(rdmux_read(eps[0], sink, LENGTH, NULL, remote, 0, CTX(4), 0));
    (void)WAIT_OF(queue, eps[0], RDMUX_WC_READ, CTX(4), RDMUX_OK);
    EXPECT_PATTERN(sink, LENGTH, side->seed);
    EXPECT_OK(rdmux_recv(eps[0], sink, 8, NULL, CTX(5)));
    EXPECT_OK(rdmux_send(eps[1], "back", 4, NULL, CTX(6), 0));
    (void)WAIT_OF(queue, eps[0], RDMUX_WC_RECV, CTX(5), RDMUX_OK);
    (void)WAIT_OF(queue, eps[1], RDMUX_WC_SEND, CTX(6), RDMUX_OK);

    /* shutdown waits while the other end uses the same cq */
    EXPECT_OK(rdmux_ep_shutdown(eps[0], side->patient_ms));
    (void)WAIT_OF(queue, eps[1], RDMUX_WC_DISCONNECTED, NULL, RDMUX_OK);
    side_finish(side);
}

static void alone(struct side *side)
{
    side_open(side, NULL);
    side_finish(side);
}

/* ------------------------------------------------------------------------------ threads */

enum { THREADS = 3, THREAD_ROUNDS = 300 };

struct worker {
    struct side *side;
    struct queue queue;
    struct rdmux_ep *ep;
    struct rdmux_remote *remote;
    uint64_t index;
};

/* Reads, writes and adds in its own part of the region, through its own endpoint and cq. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    uint8_t out[1000];
    uint8_t in[1000];
    uint64_t offset = 4096 * worker->index;
    for (uint64_t round = 0; round < THREAD_ROUNDS; round++) {
        pattern_fill(out, sizeof(out), worker->side->seed + 1000 * worker->index + round, 0);
        EXPECT_OK(
            rdmux_write(worker->ep, out, sizeof(out), NULL, worker->remote, offset, CTX(1), 0));
        EXPECT_OK(rdmux_read(worker->ep, in, sizeof(in), NULL, worker->remote, offset, CTX(2), 0));
        (void)WAIT(&worker->queue, RDMUX_WC_WRITE, CTX(1));
        (void)WAIT(&worker->queue, RDMUX_WC_READ, CTX(2));
        EXPECT_PATTERN(in, sizeof(in), worker->side->seed + 1000 * worker->index + round);
    }
    return NULL;
}

static void threads_initiator(struct side *side)
{
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    side_open(side, NULL);
    side_meet(side);
    for (uint64_t i = 0; i < THREADS; i++) {
        struct rdmux_cq *cq = NULL;
        EXPECT_OK(rdmux_cq_create(side->fabric, NULL, &cq));
        workers[i] = (struct worker){ .side = side, .index = i };
        queue_open(&workers[i].queue, side, cq);
        workers[i].ep = side_pair_on(side, &workers[i].queue, NULL);
        workers[i].remote = take_remote(side, workers[i].ep);
    }
    for (size_t i = 0; i < THREADS; i++) {
        EXPECT(pthread_create(&threads[i], NULL, work, &workers[i]) == 0, "no thread");
    }
    for (size_t i = 0; i < THREADS; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0, "no join");
    }
    for (size_t i = 0; i < THREADS; i++) {
        EXPECT_QUIET(&workers[i].queue);
    }
    BARRIER(side);
    for (size_t i = 0; i < THREADS; i++) {
        side_close_ep(side, workers[i].ep);
        EXPECT_OK(rdmux_cq_destroy(workers[i].queue.cq));
        queue_close(&workers[i].queue);
    }
    side_end(side);
}

static void threads_target(struct side *side)
{
    side_open(side, NULL);
    side_meet(side);
    struct region region = region_make(side, MEMORY_ALLOCATED, (size_t)THREADS * 4096, ACCESS_ALL);
    for (unsigned i = 0; i < THREADS; i++) {
        (void)side_pair(side, NULL);
        give_token(side, &region);
    }
    BARRIER(side);
    side_end(side);
}

/* One cq, passed from thread to thread under a lock. Another thread than the creator closes the
 * endpoint. */
struct baton {
    struct worker worker;
    pthread_mutex_t lock;
    uint64_t rounds;
};

static void *run_with_baton(void *argument)
{
    struct baton *baton = argument;
    uint64_t word = 0;
    bool more = true;
    while (more) {
        (void)pthread_mutex_lock(&baton->lock);
        more = baton->rounds < THREAD_ROUNDS;
        if (more) {
            uint64_t round = baton->rounds++;
            EXPECT_OK(rdmux_write(baton->worker.ep, &round, 8, NULL, baton->worker.remote, 0,
                                  CTX(1), RDMUX_INLINE | RDMUX_UNSIGNALED));
            EXPECT_OK(
                rdmux_read(baton->worker.ep, &word, 8, NULL, baton->worker.remote, 0, CTX(2), 0));
            (void)WAIT(&baton->worker.queue, RDMUX_WC_READ, CTX(2));
            EXPECT_EQUAL(word, round);
        }
        (void)pthread_mutex_unlock(&baton->lock);
        (void)sched_yield();
    }
    return NULL;
}

static void baton_initiator(struct side *side)
{
    static struct baton baton = { .lock = PTHREAD_MUTEX_INITIALIZER };
    pthread_t threads[THREADS];
    side_open_pair(side, NULL);
    baton.worker = (struct worker){ .side = side, .queue = side->queue, .ep = side->ep };
    baton.worker.remote = take_remote(side, side->ep);
    for (size_t i = 0; i < THREADS; i++) {
        EXPECT(pthread_create(&threads[i], NULL, run_with_baton, &baton) == 0, "no thread");
    }
    for (size_t i = 0; i < THREADS; i++) {
        EXPECT(pthread_join(threads[i], NULL) == 0, "no join");
    }
    side->queue = baton.worker.queue;
    side_finish(side);
}

static void baton_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 64, ACCESS_ALL);
    give_token(side, &region);
    side_finish(side);
}

/* ---------------------------------------------------------------------- fork and exec */

static void expect_dead_child(struct side *side, struct rdmux_remote *remote)
{
    struct rdmux_wc wc;
    struct rdmux_token token;
    struct rdmux_cq *cq = NULL;
    struct rdmux_mr *mr = NULL;
    struct rdmux_listener *listener = NULL;
    struct rdmux_ep *ep = NULL;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    uint64_t word = 0;
    size_t count = 0;
    EXPECT_STATUS(rdmux_send(side->ep, &word, 8, NULL, NULL, 0), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_recv(side->ep, &word, 8, NULL, NULL), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_write(side->ep, &word, 8, NULL, remote, 0, NULL, 0), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_read(side->ep, &word, 8, NULL, remote, 0, NULL, 0), RDMUX_INVALID);
    EXPECT(rdmux_cq_poll(side->queue.cq, &wc, 1) == 0, "a poll in the child brings %s",
           wc_text(&wc));
    EXPECT_STATUS(rdmux_cq_wait(side->queue.cq, &wc, 1, 100, &count), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_cq_arm(side->queue.cq), RDMUX_INVALID);
    EXPECT(rdmux_cq_fd(side->queue.cq) == -1 && rdmux_fabric_fd(side->fabric) == -1,
           "descriptors in the child");
    EXPECT_STATUS(rdmux_fabric_progress(side->fabric), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_cq_create(side->fabric, NULL, &cq), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_mr_alloc(side->fabric, 100, 0, &mr), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_mr_export(side->regions[0].mr, &token), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_listen(side->fabric, "127.0.0.1:0", NULL, &listener), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, side->address, NULL, 100, &ep),
                  RDMUX_INVALID);
    EXPECT_STATUS(rdmux_ep_info(side->ep, &info), RDMUX_INVALID);
    EXPECT_STATUS(rdmux_ep_shutdown(side->ep, 100), RDMUX_INVALID);
    EXPECT(rdmux_mr_revoke(side->regions[0].mr) == RDMUX_INVALID, "revoke in the child");
    _exit(0);
}

static void fork_initiator(struct side *side)
{
    enum { LENGTH = 400000 };
    uint8_t *bytes = region_make(side, MEMORY_UNREGISTERED, LENGTH, 0).addr;
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    struct region region = region_make(side, MEMORY_ALLOCATED, LENGTH, ACCESS_ALL);
    for (unsigned round = 0; round < 3; round++) {
        /* with requests in flight */
        pattern_fill(bytes, LENGTH, side->seed + round, 0);
        EXPECT_OK(rdmux_write(side->ep, bytes, LENGTH, NULL, remote, 0, CTX(1), 0));
        EXPECT_OK(rdmux_read(side->ep, region.addr, region.length, region.mr, remote, 0, CTX(2), 0));
        pid_t pid = fork();
        EXPECT(pid >= 0, "fork: %s", strerror(errno));
        if (pid == 0) {
            expect_dead_child(side, remote);
        }
        (void)WAIT(&side->queue, RDMUX_WC_WRITE, CTX(1));
        (void)WAIT(&side->queue, RDMUX_WC_READ, CTX(2));
        EXPECT_PATTERN(region.addr, region.length, side->seed + round);
        int wait_status = 0;
        while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
        }
        EXPECT(wait_status == 0, "the child ended with 0x%x", (unsigned)wait_status);
    }
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static void fork_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 400000, ACCESS_ALL);
    give_token(side, &region);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static void exec_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    exercise(side, &side->queue, side->ep); /* some are opened by the first operation */
    for (int fd = 0; fd < SIDE_DESCRIPTORS_MAX; fd++) {
        int flags = fcntl(fd, F_GETFD);
        EXPECT(side->descriptors[fd] || flags < 0 || (flags & FD_CLOEXEC) != 0,
               "descriptor %d stays open on exec", fd);
    }
    side_finish(side);
}

static void exec_target(struct side *side)
{
    side_open_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static const struct conformance_case cases[] = {
    { "15.1, 15.5, -15.1",
      "destroying an object that has living children is INVALID and does nothing", 0, 0, 0,
      children_initiator, children_target },
    { "15.6, -15.6",
      "endpoints and SRQs reserve their depths in the cq: no room is NO_MEMORY, and close gives it "
      "back",
      0, 0, 0, room_initiator, room_target },
    { "15.9, -15.9",
      "two fabrics in one process do not see each other, and one ends without the other",
      NEEDS_SEND, 0, 0, fabrics_initiator, fabrics_target },
    { "15.10", "a process connects to itself, both ends on one cq",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0, itself, alone },
    { "15.8", "threads with a cq each work side by side", NEEDS_WRITE | NEEDS_READ, 20, 0,
      threads_initiator, threads_target },
    { "15.8", "a cq may be handed from thread to thread", NEEDS_WRITE | NEEDS_READ, 20, 0,
      baton_initiator, baton_target },
    { "15.7, -15.7",
      "after fork every call of the child is INVALID, and the parent goes on unharmed",
      NEEDS_SEND | NEEDS_WRITE | NEEDS_READ, 0, 0, fork_initiator, fork_target },
    { "15.7", "no descriptor stays open in a program that exec starts", NEEDS_SEND, 0, 0,
      exec_initiator, exec_target },
};

const struct suite objects_suite = { "objects", cases, COUNT_OF(cases) };
