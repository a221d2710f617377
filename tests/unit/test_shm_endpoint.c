/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Two endpoints of the shm provider: set-up, waking, and the end of a peer. */
#include "tests/unit/shm_scene.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

/* Calls by which this process has accessed a peer's memory, and the lowest address in them. */
static size_t access_count;
static uintptr_t lowest_access;

static void note_access(const struct iovec *pieces, unsigned long count)
{
    access_count++;
    for (unsigned long i = 0; i < count; i++) {
        uintptr_t at = (uintptr_t)pieces[i].iov_base;
        lowest_access = at < lowest_access ? at : lowest_access;
    }
}

ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *ours, unsigned long our_count,
                                const struct iovec *theirs, unsigned long count,
                                unsigned long flags);
ssize_t __real_process_vm_writev(pid_t pid, const struct iovec *ours, unsigned long our_count,
                                 const struct iovec *theirs, unsigned long count,
                                 unsigned long flags);
ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *ours, unsigned long our_count,
                                const struct iovec *theirs, unsigned long count,
                                unsigned long flags);
ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *ours, unsigned long our_count,
                                 const struct iovec *theirs, unsigned long count,
                                 unsigned long flags);

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *ours, unsigned long our_count,
                                const struct iovec *theirs, unsigned long count,
                                unsigned long flags)
{
    note_access(theirs, count);
    return __real_process_vm_readv(pid, ours, our_count, theirs, count, flags);
}

ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *ours, unsigned long our_count,
                                 const struct iovec *theirs, unsigned long count,
                                 unsigned long flags)
{
    note_access(theirs, count);
    return __real_process_vm_writev(pid, ours, our_count, theirs, count, flags);
}

static bool is_readable(int fd)
{
    struct pollfd item = { .fd = fd, .events = POLLIN };
    return poll(&item, 1, 0) == 1;
}

static void an_armed_queue_wakes_for_a_message_and_only_for_that(void **state)
{
    struct scene *scene = *state;
    struct rdmux_provider_cq *cq = &scene->pair->ends[1].cq->base;
    struct request receives[4];
    struct request send;
    for (size_t i = 0; i < 4; i++) {
        fill_request(&receives[i], RDMUX_OP_RECV, scene->sink, 64);
    }
    fill_request(&send, RDMUX_OP_SEND, scene->source, 64);
    post_receive(&scene->pair->ends[1], &receives[0]);
    for (int i = 0; i < 3; i++) {
        shm_pair_poll(scene->pair);

        assert_int_equal(rdmux_shm_arm(cq), RDMUX_OK);
        assert_false(is_readable(rdmux_shm_cq_fd(cq)));
        post_receive(&scene->pair->ends[1], &receives[i + 1]);
        assert_int_equal(post(&scene->pair->ends[0], &send), RDMUX_OK);
        assert_true(is_readable(rdmux_shm_cq_fd(cq)));
        assert_true(rdmux_shm_poll(cq, 64) > 0);
        assert_false(is_readable(rdmux_shm_cq_fd(cq)));
    }
}

static void arm_returns_again_when_a_message_is_waiting(void **state)
{
    struct scene *scene = *state;
    struct rdmux_provider_cq *cq = &scene->pair->ends[1].cq->base;
    struct request receive;
    struct request send;
    fill_request(&receive, RDMUX_OP_RECV, scene->sink, 64);
    fill_request(&send, RDMUX_OP_SEND, scene->source, 64);
    post_receive(&scene->pair->ends[1], &receive);
    shm_pair_poll(scene->pair);

    assert_int_equal(post(&scene->pair->ends[0], &send), RDMUX_OK);

    assert_int_equal(rdmux_shm_arm(cq), RDMUX_AGAIN);
}

static void arm_returns_again_until_the_message_is_taken(void **state)
{
    struct scene *scene = *state;
    struct rdmux_provider_cq *cq = &scene->pair->ends[1].cq->base;
    struct request receive;
    struct request send;
    fill_request(&receive, RDMUX_OP_RECV, scene->sink, 64);
    fill_request(&send, RDMUX_OP_SEND, scene->source, 64);
    post_receive(&scene->pair->ends[1], &receive);
    shm_pair_poll(scene->pair);
    assert_int_equal(post(&scene->pair->ends[0], &send), RDMUX_OK);

    for (int i = 0; i < 3; i++) {
        assert_int_equal(rdmux_shm_arm(cq), RDMUX_AGAIN);
    }
    assert_true(rdmux_shm_poll(cq, 64) > 0);
    assert_int_equal(rdmux_shm_arm(cq), RDMUX_OK);
}

static void a_sleeping_sender_wakes_when_its_message_is_placed(void **state)
{
    struct scene *scene = *state;
    struct rdmux_provider_cq *cq = &scene->pair->ends[0].cq->base;
    struct request receive;
    struct request send;
    fill_request(&receive, RDMUX_OP_RECV, scene->sink, 64);
    fill_request(&send, RDMUX_OP_SEND, scene->source, 64);
    send.base.flags = RDMUX_PLACED;
    assert_int_equal(post(&scene->pair->ends[0], &send), RDMUX_OK);
    shm_pair_poll(scene->pair);

    assert_int_equal(rdmux_shm_arm(cq), RDMUX_OK);
    assert_false(is_readable(rdmux_shm_cq_fd(cq)));
    post_receive(&scene->pair->ends[1], &receive);
    assert_true(rdmux_shm_poll(&scene->pair->ends[1].cq->base, 64) > 0);

    assert_true(is_readable(rdmux_shm_cq_fd(cq)));
    assert_true(rdmux_shm_poll(cq, 64) > 0);
    assert_int_equal(send.base.done, 1);
}

static void a_post_that_completes_at_once_wakes_the_queue(void **state)
{
    struct scene *scene = *state;
    struct rdmux_provider_cq *cq = &scene->pair->ends[0].cq->base;
    struct region *region = make_region(scene, NULL, 4096, ALL_RIGHTS);
    struct shm_remote remote;
    struct request read;
    import_region(scene, region, &remote);
    fill_request(&read, RDMUX_OP_READ, scene->sink, 8);
    read.base.remote = &remote.base;
    assert_int_equal(rdmux_shm_arm(cq), RDMUX_OK);
    assert_false(is_readable(rdmux_shm_cq_fd(cq)));

    assert_int_equal(post(&scene->pair->ends[0], &read), RDMUX_OK);

    assert_int_equal(read.base.done, 1);
    assert_true(is_readable(rdmux_shm_cq_fd(cq)));
    (void)rdmux_shm_poll(cq, 64);
    assert_false(is_readable(rdmux_shm_cq_fd(cq)));
    rdmux_shm_remote_close(&remote.base);
}

static void a_peer_that_closes_is_noticed_after_its_last_message(void **state)
{
    struct scene *scene = *state;
    struct rdmux_provider_counts counts;
    struct request receive;
    struct request send;
    fill_request(&receive, RDMUX_OP_RECV, scene->sink, 64);
    fill_request(&send, RDMUX_OP_SEND, scene->source, 64);
    post_receive(&scene->pair->ends[1], &receive);
    assert_int_equal(post(&scene->pair->ends[0], &send), RDMUX_OK);

    assert_int_equal(rdmux_shm_ep_quiesce(&scene->pair->ends[0].ep->base, &counts), RDMUX_OK);
    shm_pair_poll(scene->pair);

    assert_int_equal(receive.base.done, 1);
    assert_int_equal(scene->pair->ends[1].core.failed, RDMUX_PEER_GONE);
    assert_int_equal(scene->pair->ends[0].core.failed, RDMUX_OK);
}

/* Otherwise a later request could reach the peer through the ring, without this one. */
static void a_request_that_finds_the_peer_gone_holds_back_later_ones(void **state)
{
    struct scene *scene = *state;
    static const struct {
        const char *says;
        size_t way;
        uint32_t op;
        bool closes;
    } cases[] = {
        { "a mapped write, the peer closed", 0, RDMUX_OP_WRITE, true },
        { "a mapped read, the peer closed", 0, RDMUX_OP_READ, true },
        { "a mapped atomic, the peer closed", 0, RDMUX_OP_FETCH_ADD, true },
        { "a copied write, the peer closed", 1, RDMUX_OP_WRITE, true },
        { "a copied write, the socket ended", 1, RDMUX_OP_WRITE, false },
        { "a copied read, the socket ended", 1, RDMUX_OP_READ, false },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct shm_end *ends = scene->pair->ends;
        struct region *region = region_of_way(scene, cases[i].way);
        struct shm_remote remote;
        struct request receive;
        struct request first;
        struct request send;
        struct rdmux_provider_counts counts;
        import_region(scene, region, &remote);
        fill_request(&receive, RDMUX_OP_RECV, scene->sink, 64);
        fill_request(&first, cases[i].op, scene->source, 8);
        fill_request(&send, RDMUX_OP_SEND, scene->source, 8);
        first.base.remote = &remote.base;
        struct rdmux_request run[2] = { first.base, send.base };
        post_receive(&ends[1], &receive);
        if (cases[i].closes) {
            assert_int_equal(rdmux_shm_ep_quiesce(&ends[1].ep->base, &counts), RDMUX_OK);
        } else {
            assert_int_equal(shutdown(ends[0].ep->peer.socket, SHUT_RDWR), 0);
            ends[0].ep->peer.alive_at_ns = 0;
        }

        size_t posted = 99;
        enum rdmux_status status = rdmux_shm_post(&ends[0].ep->base, run, 2, 0, &posted);
        shm_pair_poll(scene->pair);

        if (status != RDMUX_AGAIN || posted != 0 || run[0].done != 0 || receive.base.done != 0) {
            fail_msg("%s: status %d, %zu posted, done %u, the message behind it %s", cases[i].says,
                     (int)status, posted, run[0].done,
                     receive.base.done != 0 ? "arrived" : "did not arrive");
        }
        assert_int_equal(ends[0].core.failed, RDMUX_PEER_GONE);
        rdmux_shm_remote_close(&remote.base);
        close_regions(scene);
        shm_pair_close(scene->pair);
        scene->pair = shm_pair_connect();
    }
}

static void a_peer_whose_socket_ends_is_noticed_by_an_armed_queue(void **state)
{
    struct scene *scene = *state;
    struct rdmux_provider_cq *cq = &scene->pair->ends[1].cq->base;
    assert_int_equal(rdmux_shm_arm(cq), RDMUX_OK);
    assert_false(is_readable(rdmux_shm_cq_fd(cq)));

    assert_int_equal(shutdown(scene->pair->ends[0].ep->peer.socket, SHUT_RDWR), 0);

    assert_true(is_readable(rdmux_shm_cq_fd(cq)));
    (void)rdmux_shm_poll(cq, 64);
    assert_int_equal(scene->pair->ends[1].core.failed, RDMUX_PEER_GONE);
    assert_false(is_readable(rdmux_shm_cq_fd(cq)));
}

static void quiesce_waits_for_a_copy_by_the_peer(void **state)
{
    struct scene *scene = *state;
    struct rdmux_provider_counts counts;
    struct shm_ep *us = scene->pair->ends[0].ep;
    struct shm_ep *peer = scene->pair->ends[1].ep;
    assert_true(shm_access_begin(peer, NULL, 0));

    enum rdmux_status while_inside = rdmux_shm_ep_quiesce(&us->base, &counts);
    shm_access_end(peer);
    enum rdmux_status afterwards = rdmux_shm_ep_quiesce(&us->base, &counts);

    assert_int_equal(while_inside, RDMUX_IN_PROGRESS);
    assert_int_equal(afterwards, RDMUX_OK);
    assert_false(shm_access_begin(peer, NULL, 0));
}

/* An access to a page of the peer may block for as long as the peer likes (userfaultfd(2)). */
static void set_up_touches_no_memory_of_the_peer(void **state)
{
    (void)state;
    const uintptr_t last_page = UINTPTR_MAX - SHM_PAGE + 1; /* of no process */
    access_count = 0;
    lowest_access = UINTPTR_MAX;

    struct shm_pair *pair = shm_pair_connect();

    assert_true(access_count > 0); /* the probe whether copies are permitted */
    assert_true(lowest_access >= last_page);
    assert_true(pair->ends[0].ep->can_copy && pair->ends[1].ep->can_copy);
    shm_pair_close(pair);
}

/* A server sleeps as often as one of its clients asks, and membarrier(2) costs more than a fence with
 * each message. */
static void a_side_with_an_srq_has_both_sides_fence_their_messages(void **state)
{
    (void)state;
    for (int side = 0; side < 2; side++) {
        struct shm_pair *pair = shm_pair_open();
        pair->ends[side].core.srq = (struct rdmux_srq *)pair; /* only its presence matters */
        shm_pair_meet(pair);
        assert_true(pair->ends[0].ep->is_fencing);
        assert_true(pair->ends[1].ep->is_fencing);
        shm_pair_close(pair);
    }
    struct shm_pair *pair = shm_pair_connect();
    assert_int_equal(pair->ends[0].ep->is_fencing, SHM_TSAN || !pair->domain->has_membarrier);
    assert_int_equal(pair->ends[1].ep->is_fencing, SHM_TSAN || !pair->domain->has_membarrier);
    shm_pair_close(pair);
}

static void a_stranger_at_the_socket_is_refused(void **state)
{
    struct scene *scene = *state;
    struct shm_pair *pair = shm_pair_open();
    uint8_t data[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(data);
    struct shm_description description;
    int stranger = -1;
    (void)scene;
    assert_int_equal(rdmux_shm_ep_describe(&pair->ends[1].ep->base, data, &size), RDMUX_OK);
    assert_int_equal(rdmux_shm_description_decode(data, size, &description), RDMUX_OK);
    assert_int_equal(rdmux_shm_meeting_connect(&description.place, getpid(), &stranger), RDMUX_OK);
    description.pid = 1; /* the acceptor expects another process than ours */
    rdmux_shm_description_encode(&description, data);

    enum rdmux_status status = rdmux_shm_ep_connect(&pair->ends[1].ep->base, data, size);

    assert_int_equal(status, RDMUX_IN_PROGRESS);
    struct pollfd item = { .fd = stranger, .events = POLLRDHUP };
    assert_int_equal(poll(&item, 1, 0), 1);
    (void)close(stranger);
    shm_pair_close(pair);
}

/* A connector that knows the acceptor's place sends it a greeting. Returns what the acceptor makes
 * of it. */
static enum rdmux_status greet_acceptor(struct shm_pair *pair, const struct shm_hello *hello,
                                        int ready_fd)
{
    uint8_t data[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(data);
    uint8_t bytes[SHM_HELLO_SIZE];
    struct shm_description description;
    int stranger = -1;
    assert_int_equal(rdmux_shm_ep_describe(&pair->ends[1].ep->base, data, &size), RDMUX_OK);
    assert_int_equal(rdmux_shm_description_decode(data, size, &description), RDMUX_OK);
    assert_int_equal(rdmux_shm_meeting_connect(&description.place, getpid(), &stranger), RDMUX_OK);
    rdmux_shm_hello_encode(hello, bytes);
    const int fds[] = { pair->ends[0].cq->bell, pair->domain->regions_fd, stranger, ready_fd };
    assert_int_equal(rdmux_shm_socket_send(stranger, bytes, sizeof(bytes), fds, 4), RDMUX_OK);
    enum rdmux_status status = rdmux_shm_ep_connect(&pair->ends[1].ep->base, data, size);
    (void)close(stranger);
    return status;
}

static void a_greeting_without_the_secret_is_refused(void **state)
{
    struct shm_pair *pair = shm_pair_open();
    const struct shm_hello hello = { .magic = SHM_HELLO_CONNECTOR, .pid = (uint32_t)getpid() };
    (void)state;

    enum rdmux_status status = greet_acceptor(pair, &hello, pair->domain->regions_fd);

    assert_int_equal(status, RDMUX_DENIED);
    shm_pair_close(pair);
}

static void a_greeting_without_a_usable_ready_set_is_refused(void **state)
{
    static const struct {
        const char *says;
        uint32_t mark;
        bool is_memory;
        enum rdmux_status status;
    } cases[] = {
        { "the mark is beyond the set", SHM_MARK_COUNT, true, RDMUX_PROTOCOL },
        { "the set is no memory file", 0, false, RDMUX_PROTOCOL },
        { "the memory is no ready set", SHM_MARK_COUNT - 1, true, RDMUX_VERSION },
    };
    (void)state;
    int memory = memfd_create("no ready set", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(memory >= 0 && ftruncate(memory, SHM_PAGE) == 0 && rdmux_shm_memory_seal(memory));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct shm_pair *pair = shm_pair_open();
        struct shm_hello hello = { .magic = SHM_HELLO_CONNECTOR,
                                   .pid = (uint32_t)getpid(),
                                   .mark = cases[i].mark };
        rdmux_provider_secret(&pair->ends[1].ep->base, hello.secret);

        enum rdmux_status status = greet_acceptor(
            pair, &hello, cases[i].is_memory ? memory : pair->ends[0].cq->bell);

        if (status != cases[i].status) {
            fail_msg("%s: status %d", cases[i].says, (int)status);
        }
        shm_pair_close(pair);
    }
    (void)close(memory);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* A message may have descriptors and no bytes; it looks like the end. */
static void descriptors_that_arrive_without_bytes_are_closed(void **state)
{
    (void)state;
    enum { COUNT = 3 };
    uint8_t none = 0;
    int sockets[2];
    int sent[COUNT];
    int fds[COUNT] = { -1, -1, -1 };
    uint8_t bytes[SHM_HELLO_SIZE];
    size_t size = sizeof(bytes);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    for (size_t i = 0; i < COUNT; i++) {
        sent[i] = eventfd(0, EFD_CLOEXEC);
        assert_true(sent[i] >= 0);
    }
    int next = sent[COUNT - 1] + 1; /* the received descriptors would have these numbers */
    assert_int_equal(rdmux_shm_socket_send(sockets[0], &none, 0, sent, COUNT), RDMUX_OK);

    assert_int_equal(rdmux_shm_socket_receive(sockets[1], bytes, &size, fds, COUNT - 1),
                     RDMUX_PROTOCOL);

    for (int i = 0; i < COUNT; i++) {
        assert_false(is_open(next + i));
        (void)close(sent[i]);
    }
    (void)close(sockets[0]);
    assert_int_equal(rdmux_shm_socket_receive(sockets[1], bytes, &size, fds, COUNT),
                     RDMUX_PEER_GONE);
    (void)close(sockets[1]);
}

/* A process at its descriptor limit gets a message without the descriptors that came with it. */
static void a_lack_of_descriptors_is_not_reported_as_a_malformed_message(void **state)
{
    (void)state;
    int sockets[2];
    int got[2] = { -1, -1 };
    uint8_t bytes[8] = { 0 };
    size_t size = sizeof(bytes);
    struct rlimit before;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    assert_int_equal(rdmux_shm_socket_send(sockets[0], bytes, sizeof(bytes), sockets, 2), RDMUX_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit tight = { .rlim_cur = 3, .rlim_max = before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);

    enum rdmux_status status = rdmux_shm_socket_receive(sockets[1], bytes, &size, got, 2);

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, RDMUX_NO_MEMORY);
    (void)close(sockets[0]);
    (void)close(sockets[1]);
}

static size_t open_descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    }
    return count;
}

/* Opens one endpoint as the core does. Returns NULL on failure. */
static struct shm_ep *try_open(struct shm_cq *cq, struct shm_end *end, enum rdmux_role role)
{
    struct shm_ep *ep = fake_object(sizeof(*ep));
    ep->base.ops = &rdmux_shm_provider;
    ep->base.cq = &cq->base;
    ep->base.ep = &end->core;
    end->attr.role = role;
    if (rdmux_shm_ep_open(&ep->base, &end->attr) == RDMUX_OK) {
        return ep;
    }
    free(ep);
    return NULL;
}

/* Connects two endpoints, and closes them. Tells whether they connected. */
static bool try_to_connect(struct shm_cq *cq)
{
    struct shm_end *ends = calloc(2, sizeof(*ends));
    assert_non_null(ends);
    uint8_t data[2][RDMUX_DESCRIPTION_MAX];
    size_t data_sizes[2] = { RDMUX_DESCRIPTION_MAX, RDMUX_DESCRIPTION_MAX };
    struct shm_ep *eps[2] = { try_open(cq, &ends[0], RDMUX_ROLE_CONNECT),
                              try_open(cq, &ends[1], RDMUX_ROLE_ACCEPT) };
    enum rdmux_status statuses[2] = { RDMUX_IN_PROGRESS, RDMUX_IN_PROGRESS };
    if (eps[0] != NULL && eps[1] != NULL) {
        for (int side = 0; side < 2; side++) {
            assert_int_equal(rdmux_shm_ep_describe(&eps[side]->base, data[side], &data_sizes[side]),
                             RDMUX_OK);
        }
        for (int side = 0; side < 2; side++) {
            statuses[side] = rdmux_shm_ep_connect(&eps[side]->base, data[1 - side],
                                                  data_sizes[1 - side]);
        }
        (void)rdmux_shm_poll(&cq->base, 64);
        if (statuses[0] == RDMUX_IN_PROGRESS) {
            statuses[0] = rdmux_shm_ep_connect(&eps[0]->base, NULL, 0);
        }
    }
    for (int side = 0; side < 2; side++) {
        if (eps[side] != NULL) {
            rdmux_shm_ep_close(&eps[side]->base);
            free(eps[side]);
        }
    }
    free(ends);
    return statuses[0] == RDMUX_OK && statuses[1] == RDMUX_OK;
}

static void a_set_up_without_descriptors_fails_and_leaks_none(void **state)
{
    struct scene *scene = *state;
    struct shm_cq *cq = scene->pair->ends[0].cq;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    size_t count = open_descriptors();
    unsigned failures = 0;
    bool connected = false;
    for (rlim_t limit = 3; !connected; limit++) {
        const struct rlimit tight = { .rlim_cur = limit, .rlim_max = before.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);

        connected = try_to_connect(cq);

        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(open_descriptors(), count);
        assert_int_equal(cq->count, 1);
        assert_int_equal(cq->connecting, 0);
        failures += connected ? 0 : 1;
    }
    assert_true(failures >= 8);
}

int main(void)
{
#define SCENE_TEST(name) cmocka_unit_test_setup_teardown(name, set_scene, clear_scene)
    const struct CMUnitTest tests[] = {
        SCENE_TEST(an_armed_queue_wakes_for_a_message_and_only_for_that),
        SCENE_TEST(arm_returns_again_when_a_message_is_waiting),
        SCENE_TEST(arm_returns_again_until_the_message_is_taken),
        SCENE_TEST(a_sleeping_sender_wakes_when_its_message_is_placed),
        SCENE_TEST(a_post_that_completes_at_once_wakes_the_queue),
        SCENE_TEST(a_peer_that_closes_is_noticed_after_its_last_message),
        SCENE_TEST(a_request_that_finds_the_peer_gone_holds_back_later_ones),
        SCENE_TEST(a_peer_whose_socket_ends_is_noticed_by_an_armed_queue),
        SCENE_TEST(quiesce_waits_for_a_copy_by_the_peer),
        SCENE_TEST(set_up_touches_no_memory_of_the_peer),
        SCENE_TEST(a_stranger_at_the_socket_is_refused),
        cmocka_unit_test(a_side_with_an_srq_has_both_sides_fence_their_messages),
        SCENE_TEST(a_greeting_without_the_secret_is_refused),
        SCENE_TEST(a_greeting_without_a_usable_ready_set_is_refused),
        SCENE_TEST(a_set_up_without_descriptors_fails_and_leaks_none),
        SCENE_TEST(descriptors_that_arrive_without_bytes_are_closed),
        SCENE_TEST(a_lack_of_descriptors_is_not_reported_as_a_malformed_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
