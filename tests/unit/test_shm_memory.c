/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Memory of the shm provider: regions, one-sided operations on them, and the memory files that
 * endpoints pass to each other. */
#include "tests/unit/shm_scene.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Sends one message of 4 KiB into the region. Returns the system calls that both ends made. */
static uint64_t send_into(struct scene *scene, struct region *region)
{
    struct request receive;
    struct request send;
    uint64_t before = scene->pair->ends[0].ep->base.system_calls +
                      scene->pair->ends[1].ep->base.system_calls;
    memset(region->addr, 0, 4096);
    fill_request(&receive, RDMUX_OP_RECV, region->addr, 4096);
    receive.sge.mr = &region->mr->base;
    fill_request(&send, RDMUX_OP_SEND, scene->source, 4096);
    post_receive(&scene->pair->ends[1], &receive);
    assert_int_equal(post(&scene->pair->ends[0], &send), RDMUX_OK);
    shm_pair_poll(scene->pair);
    assert_int_equal(receive.base.done, 1);
    assert_memory_equal(region->addr, scene->source, 4096);
    return scene->pair->ends[0].ep->base.system_calls + scene->pair->ends[1].ep->base.system_calls -
           before;
}

static void memory_that_the_peer_may_not_write_is_not_passed_for_a_receive(void **state)
{
    struct scene *scene = *state;
    struct region *region = make_region(scene, NULL, BUFFER_SIZE, RDMUX_ACCESS_LOCAL_WRITE);

    assert_int_equal(send_into(scene, region), 0);
    assert_int_equal(send_into(scene, region), 0);
}

static void mapping_a_receive_is_tried_once(void **state)
{
    struct scene *scene = *state;
    struct region *region = make_region(scene, NULL, BUFFER_SIZE, WRITABLE);
    assert_int_equal(fcntl(region->core->memory_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);

    assert_true(send_into(scene, region) > 0);
    assert_int_equal(send_into(scene, region), 0);
    assert_int_equal(send_into(scene, region), 0);
}

static void writes_reads_and_atomics_work_in_each_mode(void **state)
{
    struct scene *scene = *state;
    static const enum shm_remote_mode modes[] = { SHM_REMOTE_MAPPED, SHM_REMOTE_COPY,
                                                  SHM_REMOTE_RING };
    for (size_t way = 0; way < 3; way++) {
        struct region *region = region_of_way(scene, way);
        struct shm_remote remote;
        uint8_t *back = calloc(1, BUFFER_SIZE);
        uint64_t old[2] = { 99, 99 };
        struct request write;
        struct request read;
        struct request atomics[2];
        import_region(scene, region, &remote);
        fill_request(&write, RDMUX_OP_WRITE, scene->source, BUFFER_SIZE - 8);
        fill_request(&read, RDMUX_OP_READ, back, BUFFER_SIZE - 8);
        fill_request(&atomics[0], RDMUX_OP_FETCH_ADD, &old[0], 8);
        fill_request(&atomics[1], RDMUX_OP_COMPARE_SWAP, &old[1], 8);
        write.base.offset = read.base.offset = 8;
        atomics[0].base.operand = 5;
        atomics[1].base.expected = 5;
        atomics[1].base.operand = 77;
        write.base.remote = read.base.remote = &remote.base;
        atomics[0].base.remote = atomics[1].base.remote = &remote.base;
        memset(region->addr, 0, 8);

        post_patiently(scene->pair, 0, &write);
        post_patiently(scene->pair, 0, &read);
        post_patiently(scene->pair, 0, &atomics[0]);
        post_patiently(scene->pair, 0, &atomics[1]);
        shm_pair_poll(scene->pair);

        assert_int_equal(remote.mode, modes[way]);
        assert_int_equal(remote.base.mapped, way == 0);
        assert_int_equal(write.base.done, 1);
        assert_memory_equal(region->addr + 8, scene->source, BUFFER_SIZE - 8);
        assert_int_equal(read.base.done, 1);
        assert_memory_equal(back, scene->source, BUFFER_SIZE - 8);
        assert_int_equal(old[0], 0);
        assert_int_equal(old[1], 5);
        uint64_t word;
        memcpy(&word, region->addr, sizeof(word));
        assert_int_equal(word, 77);
        rdmux_shm_remote_close(&remote.base);
        free(back);
    }
}

static void the_notice_of_a_write_imm_comes_after_its_bytes(void **state)
{
    struct scene *scene = *state;
    for (size_t way = 0; way < 3; way++) {
        struct region *region = region_of_way(scene, way);
        struct shm_remote remote;
        struct request receive;
        struct request write;
        import_region(scene, region, &remote);
        fill_request(&receive, RDMUX_OP_RECV, NULL, 0);
        fill_request(&write, RDMUX_OP_WRITE_IMM, scene->source, 70000);
        write.base.remote = &remote.base;
        write.base.imm = 42;
        memset(region->addr, 0, 70000);

        post_receive(&scene->pair->ends[1], &receive);
        post_patiently(scene->pair, 0, &write);
        shm_pair_poll(scene->pair);

        assert_int_equal(write.base.done, 1);
        assert_int_equal(receive.base.done, 1);
        assert_int_equal(receive.base.opcode, RDMUX_WC_RECV_WRITE_IMM);
        assert_int_equal(receive.base.length, 70000);
        assert_int_equal(receive.base.imm, 42);
        assert_memory_equal(region->addr, scene->source, 70000);
        rdmux_shm_remote_close(&remote.base);
    }
}

static void no_access_succeeds_after_invalidate(void **state)
{
    struct scene *scene = *state;
    for (size_t way = 0; way < 3; way++) {
        struct region *region = region_of_way(scene, way);
        struct shm_remote remote;
        struct request write;
        import_region(scene, region, &remote);
        memset(region->addr, 7, 100);
        fill_request(&write, RDMUX_OP_WRITE, scene->source, 100);
        write.base.remote = &remote.base;
        write.base.flags = RDMUX_PLACED;

        assert_int_equal(rdmux_shm_mr_invalidate(&region->mr->base), RDMUX_OK);
        region->core->serial++;
        (void)post(&scene->pair->ends[0], &write);
        shm_pair_poll(scene->pair);

        assert_int_equal(write.base.done, 1);
        assert_int_equal(write.base.status, RDMUX_DENIED);
        assert_int_equal(region->addr[0], 7);
        assert_int_equal(region->addr[99], 7);
        assert_int_equal(scene->pair->ends[0].core.failed, RDMUX_DENIED);
        rdmux_shm_remote_close(&remote.base);
        close_regions(scene);
        shm_pair_close(scene->pair);
        scene->pair = shm_pair_connect();
    }
}

enum { LONG = 2 * 1024 * 1024 }; /* a write that is copied in steps */

/* The refusal ends both endpoints, so the messages before it must have arrived. Message 2 has no
 * receive yet when the write is refused, at its beginning or in its midst. */
static void an_access_is_refused_behind_the_messages_before_it(void **state)
{
    struct scene *scene = *state;
    for (size_t turn = 0; turn < 4; turn++) {
        struct shm_end *sender = &scene->pair->ends[0];
        struct shm_end *receiver = &scene->pair->ends[1];
        struct region *region = region_of_way(scene, turn % 2); /* those that this side copies */
        const bool in_its_midst = turn >= 2;
        struct shm_remote remote;
        struct request receives[2];
        struct request sends[2];
        struct request write;
        import_region(scene, region, &remote);
        for (size_t i = 0; i < 2; i++) {
            fill_request(&receives[i], RDMUX_OP_RECV, scene->sink, 8);
            fill_request(&sends[i], RDMUX_OP_SEND, scene->source, 8);
            assert_int_equal(post(sender, &sends[i]), RDMUX_OK);
        }
        fill_request(&write, RDMUX_OP_WRITE, scene->source, LONG);
        write.base.remote = &remote.base;
        post_receive(receiver, &receives[0]);
        enum rdmux_status status = in_its_midst ? post(sender, &write) : RDMUX_AGAIN;
        assert_int_equal(rdmux_shm_mr_invalidate(&region->mr->base), RDMUX_OK);
        region->core->serial++;
        status = in_its_midst ? status : post(sender, &write);
        shm_pair_poll(scene->pair);

        assert_int_equal(receives[0].base.done, 1);
        assert_int_equal(write.base.done, 0);
        assert_int_equal(sender->core.failed, RDMUX_OK);
        assert_int_equal(receiver->core.failed, RDMUX_OK);
        assert_int_equal(rdmux_shm_arm(&sender->cq->base), RDMUX_OK); /* it sleeps */

        post_receive(receiver, &receives[1]);
        shm_pair_poll(scene->pair);
        if (status == RDMUX_AGAIN) {
            assert_int_equal(sender->ep->base.resume, 1);
            (void)post(sender, &write);
            shm_pair_poll(scene->pair);
        }

        assert_int_equal(receives[1].base.done, 1);
        assert_int_equal(receives[1].base.status, RDMUX_OK);
        assert_int_equal(write.base.done, 1);
        assert_int_equal(write.base.status, RDMUX_DENIED);
        assert_int_equal(sender->core.failed, RDMUX_DENIED);
        assert_int_equal(receiver->core.failed, RDMUX_DENIED);
        rdmux_shm_remote_close(&remote.base);
        close_regions(scene);
        shm_pair_close(scene->pair);
        scene->pair = shm_pair_connect();
    }
}

static void a_region_imported_again_is_mapped_once(void **state)
{
    struct scene *scene = *state;
    struct region *region = make_region(scene, NULL, 4096, ALL_RIGHTS);
    struct shm_remote remotes[3];

    for (size_t i = 0; i < 3; i++) {
        import_region(scene, region, &remotes[i]);
    }

    assert_ptr_equal(remotes[0].mapped, remotes[1].mapped);
    assert_ptr_equal(remotes[0].mapped, remotes[2].mapped);
    for (size_t i = 0; i < 3; i++) {
        rdmux_shm_remote_close(&remotes[i].base);
    }
}

static void memory_that_could_shrink_is_not_mapped(void **state)
{
    (void)state;
    uint8_t *base = NULL;
    int open_end = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int small = memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(open_end, 8192), 0);
    assert_int_equal(ftruncate(small, 4096), 0);
    assert_true(rdmux_shm_memory_seal(small));

    assert_int_equal(rdmux_shm_memory_map(open_end, 8192, true, &base), RDMUX_PROTOCOL);
    assert_int_equal(rdmux_shm_memory_map(small, 8192, true, &base), RDMUX_PROTOCOL);
    assert_int_equal(rdmux_shm_memory_map(small, 4096, false, &base), RDMUX_OK);

    rdmux_shm_memory_unmap(base, 4096);
    (void)close(open_end);
    (void)close(small);
}

/* A hole in huge pages is filled from a pool that may be empty; an access then raises SIGBUS. */
static void memory_of_huge_pages_is_not_mapped(void **state)
{
    (void)state;
    enum { SIZE = 2 << 20 };
    uint8_t *base = NULL;
    int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (fd < 0) {
        print_message("needs a kernel with huge pages\n");
        skip();
    }
    assert_int_equal(ftruncate(fd, SIZE), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);

    assert_int_equal(rdmux_shm_memory_map(fd, SIZE, false, &base), RDMUX_PROTOCOL);
    assert_false(rdmux_shm_memory_seal(fd));

    (void)close(fd);
}

/* Writes a notice into the ring, as the peer would. */
static void say_notice(struct shm_pair *pair, uint64_t length)
{
    struct shm_ep *peer = pair->ends[0].ep;
    const struct shm_message_body body = { .length = length };
    uint8_t *data = NULL;
    struct shm_slot *slot = shm_producer_reserve(&peer->out, 0, &data);
    slot->kind = SHM_NOTICE;
    slot->flags = SHM_HAS_IMM;
    slot->inline_length = 0;
    slot->imm = 1;
    memcpy(slot->body, &body, sizeof(body));
    (void)shm_producer_publish(&peer->out);
}

static void a_notice_of_more_bytes_than_any_region_has_is_refused(void **state)
{
    struct scene *scene = *state;
    struct request receives[2];
    (void)make_region(scene, NULL, 8192, WRITABLE);
    for (size_t i = 0; i < 2; i++) {
        fill_request(&receives[i], RDMUX_OP_RECV, NULL, 0);
        post_receive(&scene->pair->ends[1], &receives[i]);
    }

    say_notice(scene->pair, 8192);
    shm_pair_poll(scene->pair);
    say_notice(scene->pair, 8193);
    shm_pair_poll(scene->pair);

    assert_int_equal(receives[0].base.done, 1);
    assert_int_equal(receives[0].base.length, 8192);
    assert_int_equal(receives[1].base.done, 0);
    assert_int_equal(scene->pair->ends[1].core.failed, RDMUX_PROTOCOL);
}

/* Passes memory files that belong to no region. */
static void pass_junk(struct shm_end *peer, size_t count)
{
    struct shm_region_message message = { .index = 7, .writable = 1, .length = 4096 };
    uint8_t bytes[SHM_REGION_SIZE];
    int fd = memfd_create("junk", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0 && ftruncate(fd, 4096) == 0 && rdmux_shm_memory_seal(fd));
    for (size_t i = 0; i < count; i++) {
        message.life = 1000000 + i;
        rdmux_shm_region_message_encode(&message, bytes);
        assert_int_equal(rdmux_shm_socket_send(peer->ep->peer.socket, bytes, sizeof(bytes), &fd, 1),
                         RDMUX_OK);
    }
    (void)close(fd);
}

/* A peer may send any number of such messages, faster than they are taken. */
static void messages_with_regions_are_taken_a_few_at_a_time(void **state)
{
    struct scene *scene = *state;
    enum {
        JUNK = 80,
        AT_A_TIME = 16,
        OTHERS = 4 /* calls for the doorbell, and of the receiver */
    };
    struct region *region = make_region(scene, NULL, BUFFER_SIZE, WRITABLE);
    pass_junk(&scene->pair->ends[1], JUNK);

    uint64_t least = UINT64_MAX;
    for (int i = 0; i < JUNK / AT_A_TIME + 2; i++) {
        uint64_t calls = send_into(scene, region);
        assert_true(calls <= AT_A_TIME + OTHERS);
        least = calls < least ? calls : least;
    }

    assert_int_equal(least, 0); /* once all are taken, the region is there */
}

/* Runs under a limit on file sizes, which holds for memory files. Exits with 0 if the limit is
 * reported. */
static int create_under_limit(enum rdmux_status (*create)(int *fd))
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit tight = { .rlim_cur = 4096, .rlim_max = 4096 };
        int fd = -1;
        bool told = setrlimit(RLIMIT_FSIZE, &tight) == 0 && create(&fd) == RDMUX_NO_MEMORY &&
                    strstr(fake_error, "ulimit -f") != NULL;
        _exit(told ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status; /* the signal, if one has ended it */
}

static enum rdmux_status create_segment(int *fd)
{
    struct shm_segment *segment = NULL;
    return rdmux_shm_segment_create(&segment, fd);
}

static enum rdmux_status create_regions(int *fd)
{
    struct shm_region *regions = NULL;
    return rdmux_shm_regions_create(&regions, fd);
}

static void a_limit_on_file_sizes_is_reported_and_ends_no_process(void **state)
{
    (void)state;
    assert_int_equal(create_under_limit(create_segment), 0);
    assert_int_equal(create_under_limit(create_regions), 0);
}

int main(void)
{
#define SCENE_TEST(name) cmocka_unit_test_setup_teardown(name, set_scene, clear_scene)
    const struct CMUnitTest tests[] = {
        SCENE_TEST(memory_that_the_peer_may_not_write_is_not_passed_for_a_receive),
        SCENE_TEST(mapping_a_receive_is_tried_once),
        SCENE_TEST(writes_reads_and_atomics_work_in_each_mode),
        SCENE_TEST(the_notice_of_a_write_imm_comes_after_its_bytes),
        SCENE_TEST(no_access_succeeds_after_invalidate),
        SCENE_TEST(an_access_is_refused_behind_the_messages_before_it),
        SCENE_TEST(a_region_imported_again_is_mapped_once),
        SCENE_TEST(memory_that_could_shrink_is_not_mapped),
        SCENE_TEST(memory_of_huge_pages_is_not_mapped),
        SCENE_TEST(a_notice_of_more_bytes_than_any_region_has_is_refused),
        SCENE_TEST(messages_with_regions_are_taken_a_few_at_a_time),
        SCENE_TEST(a_limit_on_file_sizes_is_reported_and_ends_no_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
