/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Two shm endpoints of one process, driven as the core drives them. */
#include "tests/unit/shm_pair.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAIR_SIZE = 3 * 1024 * 1024 };

/* Calls by which this process has accessed a peer's memory, and the lowest address in them. */
static size_t asked_count;
static uintptr_t asked_lowest;

static void note_asked(const struct iovec *pieces, unsigned long count)
{
    asked_count++;
    for (unsigned long i = 0; i < count; i++) {
        uintptr_t at = (uintptr_t)pieces[i].iov_base;
        asked_lowest = at < asked_lowest ? at : asked_lowest;
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
    note_asked(theirs, count);
    return __real_process_vm_readv(pid, ours, our_count, theirs, count, flags);
}

ssize_t __wrap_process_vm_writev(pid_t pid, const struct iovec *ours, unsigned long our_count,
                                 const struct iovec *theirs, unsigned long count,
                                 unsigned long flags)
{
    note_asked(theirs, count);
    return __real_process_vm_writev(pid, ours, our_count, theirs, count, flags);
}

/* Each mutex checks which thread unlocks it. */
static _Atomic size_t wrong_unlocks;

int __real_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr)
{
    pthread_mutexattr_t checking;
    assert_null(attr);
    assert_int_equal(pthread_mutexattr_init(&checking), 0);
    assert_int_equal(pthread_mutexattr_settype(&checking, PTHREAD_MUTEX_ERRORCHECK), 0);
    int result = __real_pthread_mutex_init(mutex, &checking);
    (void)pthread_mutexattr_destroy(&checking);
    return result;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    int result = __real_pthread_mutex_unlock(mutex);
    wrong_unlocks += result != 0;
    return result;
}

/* A region of side 1's application. */
struct region {
    struct rdmux_mr *core;
    struct shm_mr *mr;
    uint8_t *addr;
    uint64_t length;
    uint32_t access;
};

struct bench {
    struct shm_pair *pair;
    uint8_t *source;
    uint8_t *sink;
    struct region regions[FAKE_REGIONS_MAX];
    size_t region_count;
};

static int set_up(void **state)
{
    struct bench *bench = calloc(1, sizeof(*bench));
    assert_non_null(bench);
    bench->pair = shm_pair_connect();
    bench->source = malloc(PAIR_SIZE);
    bench->sink = malloc(PAIR_SIZE);
    assert_true(bench->source != NULL && bench->sink != NULL);
    for (size_t i = 0; i < PAIR_SIZE; i++) {
        bench->source[i] = (uint8_t)(i * 2654435761U >> 13);
    }
    memset(bench->sink, 0, PAIR_SIZE);
    *state = bench;
    return 0;
}

static void close_regions(struct bench *bench)
{
    for (size_t i = 0; i < bench->region_count; i++) {
        struct region *region = &bench->regions[i];
        rdmux_shm_mr_deregister(&region->mr->base);
        free(region->mr);
        if (region->core->memory_fd >= 0) {
            (void)munmap(region->addr, region->length);
            (void)close(region->core->memory_fd);
        }
    }
    bench->region_count = 0;
    memset(fake_regions, 0, sizeof(fake_regions));
}

static int tear_down(void **state)
{
    struct bench *bench = *state;
    close_regions(bench);
    shm_pair_close(bench->pair);
    free(bench->source);
    free(bench->sink);
    free(bench);
    assert_int_equal(fake_fabric.allocations, 0);
    assert_int_equal(wrong_unlocks, 0);
    return 0;
}

/* A request over one buffer. */
struct request {
    struct rdmux_request base;
    struct rdmux_provider_sge sge;
};

static void fill(struct request *request, uint32_t op, void *buffer, uint64_t length)
{
    memset(request, 0, sizeof(*request));
    request->sge = (struct rdmux_provider_sge){ .addr = buffer, .length = length };
    request->base.op = op;
    request->base.length = length;
    request->base.sges = &request->sge;
    request->base.sge_count = length > 0 ? 1 : 0;
}

static void post_receive(struct shm_end *end, struct request *request)
{
    fake_receive(&end->core.own, &request->base);
    assert_int_equal(rdmux_shm_post_recv(&end->ep->base, &request->base, 1), RDMUX_OK);
}

static enum rdmux_status post(struct shm_end *end, struct request *request)
{
    size_t posted = 99;
    enum rdmux_status status = rdmux_shm_post(&end->ep->base, &request->base, 1, 0, &posted);
    assert_int_equal(posted, status == RDMUX_OK ? 1 : 0);
    return status;
}

/* As the core: holds a refused request until resume. */
static void post_patiently(struct shm_pair *pair, int index, struct request *request)
{
    struct shm_end *end = &pair->ends[index];
    while (post(end, request) != RDMUX_OK) {
        end->ep->base.resume = 0;
        shm_pair_poll(pair);
        assert_int_equal(end->core.failed, RDMUX_OK);
        assert_int_equal(end->ep->base.resume, 1);
    }
}

/* addr NULL: memory that the peer may map. */
static struct region *make_region(struct bench *bench, void *addr, uint64_t length, uint32_t access)
{
    size_t index = bench->region_count++;
    struct region *region = &bench->regions[index];
    int memory_fd = -1;
    if (addr == NULL) {
        memory_fd = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_true(memory_fd >= 0 && ftruncate(memory_fd, (off_t)length) == 0);
        addr = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
        assert_true(addr != MAP_FAILED);
    }
    region->core = fake_region(index, addr, length, access);
    region->core->memory_fd = memory_fd;
    region->addr = addr;
    region->length = length;
    region->access = access;
    region->mr = fake_object(sizeof(*region->mr));
    region->mr->base.domain = &bench->pair->domain->base;
    region->mr->base.mr = region->core;
    const struct rdmux_provider_mr_attr attr = {
        .addr = addr, .length = length, .access = access, .memory_fd = memory_fd
    };
    assert_int_equal(rdmux_shm_mr_register(&region->mr->base, &attr), RDMUX_OK);
    return region;
}

/* Side 0 imports a region of side 1. */
static void import(struct bench *bench, struct region *region, struct shm_remote *remote)
{
    uint8_t description[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(description);
    assert_int_equal(rdmux_shm_mr_describe(&region->mr->base, &bench->pair->ends[1].ep->base,
                                           description, &size),
                     RDMUX_OK);
    memset(remote, 0, sizeof(*remote));
    remote->base.ep = &bench->pair->ends[0].ep->base;
    remote->base.length = region->length;
    remote->base.access = region->access & (RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                            RDMUX_ACCESS_REMOTE_ATOMIC);
    assert_int_equal(rdmux_shm_remote_open(&remote->base, description, size), RDMUX_OK);
}

enum {
    WRITABLE = RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_WRITE,
    ALL_RIGHTS = RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                 RDMUX_ACCESS_REMOTE_ATOMIC
};

static const uint64_t sizes[] = { 0,     1,     8,     48,     49,      64,      2047,     2048,
                                  16384, 16385, 65536, 200000, 1048576, 1048577, PAIR_SIZE };

static void a_message_of_any_size_arrives_whole(void **state)
{
    struct bench *bench = *state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct request receive;
        struct request send;
        memset(bench->sink, 0, PAIR_SIZE);
        fill(&receive, RDMUX_OP_RECV, bench->sink, PAIR_SIZE);
        fill(&send, RDMUX_OP_SEND_IMM, bench->source, sizes[i]);
        send.base.imm = 0xabcd0000U + (uint32_t)i;

        post_receive(&bench->pair->ends[1], &receive);
        assert_int_equal(post(&bench->pair->ends[0], &send), RDMUX_OK);
        shm_pair_poll(bench->pair);

        assert_int_equal(send.base.done, 1);
        assert_int_equal(send.base.status, RDMUX_OK);
        assert_int_equal(receive.base.done, 1);
        assert_int_equal(receive.base.length, sizes[i]);
        assert_int_equal(receive.base.imm, send.base.imm);
        assert_int_equal(receive.base.wc_flags, RDMUX_WC_HAS_IMM);
        assert_memory_equal(bench->sink, bench->source, sizes[i]);
    }
}

/* The bytes of a message that fits into a slot are copied in overlapping pieces, and no byte beyond
 * the message is touched. */
static void a_small_message_touches_its_own_bytes_only(void **state)
{
    struct bench *bench = *state;
    uint8_t expected[SHM_BODY_SIZE + 2];
    for (size_t length = 1; length <= SHM_BODY_SIZE; length++) {
        struct request receive;
        struct request send;
        memset(bench->sink, 0xee, sizeof(expected));
        memset(expected, 0xee, sizeof(expected));
        memcpy(expected + 1, bench->source + length, length);
        fill(&receive, RDMUX_OP_RECV, bench->sink + 1, length);
        fill(&send, RDMUX_OP_SEND, bench->source + length, length);

        post_receive(&bench->pair->ends[1], &receive);
        assert_int_equal(post(&bench->pair->ends[0], &send), RDMUX_OK);
        shm_pair_poll(bench->pair);

        assert_int_equal(receive.base.done, 1);
        assert_int_equal(receive.base.length, length);
        assert_memory_equal(bench->sink, expected, sizeof(expected));
    }
}

enum {
    RUN = 48,
    LISTED = 9,
    CHUNKED = 41,
    SPACE = 8192
}; /* messages whose receives are adjacent records, bytes of each */

/* Small messages in a run are handled together; requests between them, and lists, are not. */
static void a_run_of_messages_meets_adjacent_receives_in_order(void **state)
{
    struct bench *bench = *state;
    struct shm_end *receiver = &bench->pair->ends[1];
    static struct rdmux_request receives[RUN];
    static struct rdmux_provider_sge pieces[RUN][2];
    static struct request sends[RUN];
    memset(bench->sink, 0, PAIR_SIZE);
    for (size_t i = 0; i < RUN; i++) {
        uint8_t *at = bench->sink + i * SPACE;
        bool listed = i == LISTED;
        memset(&receives[i], 0, sizeof(receives[i]));
        pieces[i][0] = (struct rdmux_provider_sge){ .addr = at, .length = listed ? 5 : SPACE };
        pieces[i][1] = (struct rdmux_provider_sge){ .addr = at + SPACE / 2, .length = SPACE / 2 };
        receives[i].op = RDMUX_OP_RECV;
        receives[i].length = listed ? 5 + SPACE / 2 : SPACE;
        receives[i].sges = pieces[i];
        receives[i].sge_count = listed ? 2 : 1;
        fake_receive(&receiver->core.own, &receives[i]);
        fill(&sends[i], RDMUX_OP_SEND_IMM, bench->source + i * SPACE, i == CHUNKED ? 3000 : i);
        sends[i].base.imm = (uint32_t)i;
    }
    assert_int_equal(rdmux_shm_post_recv(&receiver->ep->base, receives, RUN), RDMUX_OK);
    for (size_t i = 0; i < RUN; i++) {
        assert_int_equal(post(&bench->pair->ends[0], &sends[i]), RDMUX_OK);
        if (i == RUN / 2) {
            shm_pair_poll(bench->pair);
        }
    }
    shm_pair_poll(bench->pair);

    assert_int_equal(receiver->core.arrived_count, RUN);
    for (size_t i = 0; i < RUN; i++) {
        assert_ptr_equal(receiver->core.arrived[i], &receives[i]);
        assert_int_equal(receives[i].done, 1);
        assert_int_equal(receives[i].opcode, RDMUX_WC_RECV);
        assert_int_equal(receives[i].wc_flags, RDMUX_WC_HAS_IMM);
        assert_int_equal(receives[i].imm, i);
        assert_int_equal(receives[i].length, sends[i].base.length);
        uint64_t first = receives[i].sge_count == 2 && receives[i].length > 5 ? 5
                                                                              : receives[i].length;
        const uint8_t *source = bench->source + i * SPACE;
        const uint8_t *sink = bench->sink + i * SPACE;
        assert_memory_equal(sink, source, first);
        assert_memory_equal(sink + SPACE / 2, source + first, receives[i].length - first);
    }
}

static void a_message_is_streamed_where_the_kernel_may_not_copy(void **state)
{
    struct bench *bench = *state;
    atomic_store(&bench->pair->ends[1].ep->mine->can_copy, 0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct request receive;
        struct request send;
        memset(bench->sink, 0, PAIR_SIZE);
        fill(&receive, RDMUX_OP_RECV, bench->sink, PAIR_SIZE);
        fill(&send, RDMUX_OP_SEND, bench->source, sizes[i]);
        send.base.flags = RDMUX_PLACED;

        assert_int_equal(post(&bench->pair->ends[0], &send), RDMUX_OK);
        shm_pair_poll(bench->pair);
        assert_int_equal(send.base.done, 0);
        post_receive(&bench->pair->ends[1], &receive);
        shm_pair_poll(bench->pair);

        assert_int_equal(send.base.done, 1);
        assert_int_equal(receive.base.done, 1);
        assert_memory_equal(bench->sink, bench->source, sizes[i]);
    }
}

static void a_message_is_written_into_a_mappable_receive(void **state)
{
    struct bench *bench = *state;
    struct region *region = make_region(bench, NULL, PAIR_SIZE, WRITABLE);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct request receive;
        struct request send;
        memset(region->addr, 0, PAIR_SIZE);
        fill(&receive, RDMUX_OP_RECV, region->addr, PAIR_SIZE);
        receive.sge.mr = &region->mr->base;
        fill(&send, RDMUX_OP_SEND, bench->source, sizes[i]);

        post_receive(&bench->pair->ends[1], &receive);
        assert_int_equal(post(&bench->pair->ends[0], &send), RDMUX_OK);
        bool wrote_itself = sizes[i] >= 2048 && sizes[i] <= 1048576 &&
                            memcmp(region->addr, bench->source, sizes[i]) == 0;
        shm_pair_poll(bench->pair);

        assert_int_equal(wrote_itself, sizes[i] >= 2048 && sizes[i] <= 1048576);
        assert_int_equal(send.base.done, 1);
        assert_int_equal(receive.base.done, 1);
        assert_int_equal(receive.base.length, sizes[i]);
        assert_memory_equal(region->addr, bench->source, sizes[i]);
    }
}

/* Sends one message of 4 KiB into the region. Returns the system calls that both ends made. */
static uint64_t send_into(struct bench *bench, struct region *region)
{
    struct request receive;
    struct request send;
    uint64_t before = bench->pair->ends[0].ep->base.system_calls +
                      bench->pair->ends[1].ep->base.system_calls;
    memset(region->addr, 0, 4096);
    fill(&receive, RDMUX_OP_RECV, region->addr, 4096);
    receive.sge.mr = &region->mr->base;
    fill(&send, RDMUX_OP_SEND, bench->source, 4096);
    post_receive(&bench->pair->ends[1], &receive);
    assert_int_equal(post(&bench->pair->ends[0], &send), RDMUX_OK);
    shm_pair_poll(bench->pair);
    assert_int_equal(receive.base.done, 1);
    assert_memory_equal(region->addr, bench->source, 4096);
    return bench->pair->ends[0].ep->base.system_calls + bench->pair->ends[1].ep->base.system_calls -
           before;
}

static void memory_that_the_peer_may_not_write_is_not_passed_for_a_receive(void **state)
{
    struct bench *bench = *state;
    struct region *region = make_region(bench, NULL, PAIR_SIZE, RDMUX_ACCESS_LOCAL_WRITE);

    assert_int_equal(send_into(bench, region), 0);
    assert_int_equal(send_into(bench, region), 0);
}

static void a_receive_that_cannot_be_mapped_is_asked_for_once(void **state)
{
    struct bench *bench = *state;
    struct region *region = make_region(bench, NULL, PAIR_SIZE, WRITABLE);
    assert_int_equal(fcntl(region->core->memory_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);

    assert_true(send_into(bench, region) > 0);
    assert_int_equal(send_into(bench, region), 0);
    assert_int_equal(send_into(bench, region), 0);
}

static void messages_wait_in_order_for_receives_and_lose_nothing(void **state)
{
    struct bench *bench = *state;
    enum { COUNT = 2000 };
    struct request *sends = calloc(COUNT, sizeof(*sends));
    struct request receive;
    uint32_t numbers[COUNT];
    size_t received = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        numbers[i] = i;
        fill(&sends[i], RDMUX_OP_SEND, &numbers[i], sizeof(numbers[i]));
        while (post(&bench->pair->ends[0], &sends[i]) != RDMUX_OK) {
            uint32_t number = 0;
            fill(&receive, RDMUX_OP_RECV, &number, sizeof(number));
            post_receive(&bench->pair->ends[1], &receive);
            shm_pair_poll(bench->pair);
            assert_int_equal(receive.base.done, 1);
            assert_int_equal(number, received);
            assert_int_equal(bench->pair->ends[0].ep->base.resume, 1);
            bench->pair->ends[0].ep->base.resume = 0;
            received++;
        }
    }
    while (received < COUNT) {
        uint32_t number = 0;
        fill(&receive, RDMUX_OP_RECV, &number, sizeof(number));
        post_receive(&bench->pair->ends[1], &receive);
        shm_pair_poll(bench->pair);
        assert_int_equal(number, received);
        received++;
    }

    assert_int_equal(bench->pair->ends[1].ep->counts.received, COUNT);
    free(sends);
}

static void a_message_longer_than_its_receive_fails_both_with_length(void **state)
{
    struct bench *bench = *state;
    static const uint64_t lengths[] = { 9, 1000, 100000 };
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct request receive;
        struct request send;
        fill(&receive, RDMUX_OP_RECV, bench->sink, 8);
        fill(&send, RDMUX_OP_SEND, bench->source, lengths[i]);
        send.base.flags = RDMUX_PLACED;

        post_receive(&bench->pair->ends[1], &receive);
        assert_int_equal(post(&bench->pair->ends[0], &send), RDMUX_OK);
        shm_pair_poll(bench->pair);

        assert_int_equal(bench->pair->ends[0].core.failed, RDMUX_LENGTH);
        assert_int_equal(bench->pair->ends[1].core.failed, RDMUX_LENGTH);
        assert_int_equal(receive.base.status, RDMUX_LENGTH);
        assert_int_equal(receive.base.length, lengths[i]);
        assert_int_equal(send.base.status, RDMUX_LENGTH);
        assert_int_equal(bench->sink[0], 0);
        shm_pair_close(bench->pair);
        bench->pair = shm_pair_connect();
    }
}

/* The three ways to reach a region: mapped, by the kernel, by the target's CPU. */
static struct region *region_of_way(struct bench *bench, size_t way)
{
    static const uint32_t access[] = { ALL_RIGHTS, ALL_RIGHTS, ALL_RIGHTS | RDMUX_ACCESS_NO_MAP };
    return make_region(bench, way == 0 ? NULL : bench->sink, PAIR_SIZE, access[way]);
}

static void writes_reads_and_atomics_work_in_each_way(void **state)
{
    struct bench *bench = *state;
    static const enum shm_remote_mode modes[] = { SHM_REMOTE_MAPPED, SHM_REMOTE_COPY,
                                                  SHM_REMOTE_RING };
    for (size_t way = 0; way < 3; way++) {
        struct region *region = region_of_way(bench, way);
        struct shm_remote remote;
        uint8_t *back = calloc(1, PAIR_SIZE);
        uint64_t old[2] = { 99, 99 };
        struct request write;
        struct request read;
        struct request atomics[2];
        import(bench, region, &remote);
        fill(&write, RDMUX_OP_WRITE, bench->source, PAIR_SIZE - 8);
        fill(&read, RDMUX_OP_READ, back, PAIR_SIZE - 8);
        fill(&atomics[0], RDMUX_OP_FETCH_ADD, &old[0], 8);
        fill(&atomics[1], RDMUX_OP_COMPARE_SWAP, &old[1], 8);
        write.base.offset = read.base.offset = 8;
        atomics[0].base.operand = 5;
        atomics[1].base.expected = 5;
        atomics[1].base.operand = 77;
        write.base.remote = read.base.remote = &remote.base;
        atomics[0].base.remote = atomics[1].base.remote = &remote.base;
        memset(region->addr, 0, 8);

        post_patiently(bench->pair, 0, &write);
        post_patiently(bench->pair, 0, &read);
        post_patiently(bench->pair, 0, &atomics[0]);
        post_patiently(bench->pair, 0, &atomics[1]);
        shm_pair_poll(bench->pair);

        assert_int_equal(remote.mode, modes[way]);
        assert_int_equal(remote.base.mapped, way == 0);
        assert_int_equal(write.base.done, 1);
        assert_memory_equal(region->addr + 8, bench->source, PAIR_SIZE - 8);
        assert_int_equal(read.base.done, 1);
        assert_memory_equal(back, bench->source, PAIR_SIZE - 8);
        assert_int_equal(old[0], 0);
        assert_int_equal(old[1], 5);
        uint64_t word;
        memcpy(&word, region->addr, sizeof(word));
        assert_int_equal(word, 77);
        rdmux_shm_remote_close(&remote.base);
        free(back);
    }
}

static void a_write_imm_is_noticed_after_its_bytes(void **state)
{
    struct bench *bench = *state;
    for (size_t way = 0; way < 3; way++) {
        struct region *region = region_of_way(bench, way);
        struct shm_remote remote;
        struct request receive;
        struct request write;
        import(bench, region, &remote);
        fill(&receive, RDMUX_OP_RECV, NULL, 0);
        fill(&write, RDMUX_OP_WRITE_IMM, bench->source, 70000);
        write.base.remote = &remote.base;
        write.base.imm = 42;
        memset(region->addr, 0, 70000);

        post_receive(&bench->pair->ends[1], &receive);
        post_patiently(bench->pair, 0, &write);
        shm_pair_poll(bench->pair);

        assert_int_equal(write.base.done, 1);
        assert_int_equal(receive.base.done, 1);
        assert_int_equal(receive.base.opcode, RDMUX_WC_RECV_WRITE_IMM);
        assert_int_equal(receive.base.length, 70000);
        assert_int_equal(receive.base.imm, 42);
        assert_memory_equal(region->addr, bench->source, 70000);
        rdmux_shm_remote_close(&remote.base);
    }
}

static void a_flush_waits_for_all_sends_before_it(void **state)
{
    struct bench *bench = *state;
    struct request send;
    struct request flush;
    struct request receive;
    fill(&send, RDMUX_OP_SEND, bench->source, 8);
    fill(&flush, RDMUX_OP_WRITE, NULL, 0);
    flush.base.flags = RDMUX_PLACED;
    fill(&receive, RDMUX_OP_RECV, bench->sink, 8);

    assert_int_equal(post(&bench->pair->ends[0], &send), RDMUX_OK);
    assert_int_equal(post(&bench->pair->ends[0], &flush), RDMUX_OK);
    shm_pair_poll(bench->pair);
    uint8_t done_before = flush.base.done;
    post_receive(&bench->pair->ends[1], &receive);
    shm_pair_poll(bench->pair);

    assert_int_equal(send.base.done, 1);
    assert_int_equal(done_before, 0);
    assert_int_equal(flush.base.done, 1);
}

static void after_invalidate_no_access_succeeds(void **state)
{
    struct bench *bench = *state;
    for (size_t way = 0; way < 3; way++) {
        struct region *region = region_of_way(bench, way);
        struct shm_remote remote;
        struct request write;
        import(bench, region, &remote);
        memset(region->addr, 7, 100);
        fill(&write, RDMUX_OP_WRITE, bench->source, 100);
        write.base.remote = &remote.base;
        write.base.flags = RDMUX_PLACED;

        assert_int_equal(rdmux_shm_mr_invalidate(&region->mr->base), RDMUX_OK);
        region->core->serial++;
        (void)post(&bench->pair->ends[0], &write);
        shm_pair_poll(bench->pair);

        assert_int_equal(write.base.done, 1);
        assert_int_equal(write.base.status, RDMUX_DENIED);
        assert_int_equal(region->addr[0], 7);
        assert_int_equal(region->addr[99], 7);
        assert_int_equal(bench->pair->ends[0].core.failed, RDMUX_DENIED);
        rdmux_shm_remote_close(&remote.base);
        close_regions(bench);
        shm_pair_close(bench->pair);
        bench->pair = shm_pair_connect();
    }
}

static void a_region_imported_again_is_mapped_once(void **state)
{
    struct bench *bench = *state;
    struct region *region = make_region(bench, NULL, 4096, ALL_RIGHTS);
    struct shm_remote remotes[3];

    for (size_t i = 0; i < 3; i++) {
        import(bench, region, &remotes[i]);
    }

    assert_ptr_equal(remotes[0].mapped, remotes[1].mapped);
    assert_ptr_equal(remotes[0].mapped, remotes[2].mapped);
    for (size_t i = 0; i < 3; i++) {
        rdmux_shm_remote_close(&remotes[i].base);
    }
}

static bool is_readable(int fd)
{
    struct pollfd item = { .fd = fd, .events = POLLIN };
    return poll(&item, 1, 0) == 1;
}

static void an_armed_queue_wakes_for_a_message_and_only_then(void **state)
{
    struct bench *bench = *state;
    struct rdmux_provider_cq *cq = &bench->pair->ends[1].cq->base;
    struct request receives[4];
    struct request send;
    for (size_t i = 0; i < 4; i++) {
        fill(&receives[i], RDMUX_OP_RECV, bench->sink, 64);
    }
    fill(&send, RDMUX_OP_SEND, bench->source, 64);
    post_receive(&bench->pair->ends[1], &receives[0]);
    for (int i = 0; i < 3; i++) {
        shm_pair_poll(bench->pair);

        assert_int_equal(rdmux_shm_arm(cq), RDMUX_OK);
        assert_false(is_readable(rdmux_shm_cq_fd(cq)));
        post_receive(&bench->pair->ends[1], &receives[i + 1]);
        assert_int_equal(post(&bench->pair->ends[0], &send), RDMUX_OK);
        assert_true(is_readable(rdmux_shm_cq_fd(cq)));
        assert_true(rdmux_shm_poll(cq, 64) > 0);
        assert_false(is_readable(rdmux_shm_cq_fd(cq)));
    }
}

static void arm_says_again_when_a_message_is_there(void **state)
{
    struct bench *bench = *state;
    struct rdmux_provider_cq *cq = &bench->pair->ends[1].cq->base;
    struct request receive;
    struct request send;
    fill(&receive, RDMUX_OP_RECV, bench->sink, 64);
    fill(&send, RDMUX_OP_SEND, bench->source, 64);
    post_receive(&bench->pair->ends[1], &receive);
    shm_pair_poll(bench->pair);

    assert_int_equal(post(&bench->pair->ends[0], &send), RDMUX_OK);

    assert_int_equal(rdmux_shm_arm(cq), RDMUX_AGAIN);
}

static void arm_says_again_until_the_message_is_taken(void **state)
{
    struct bench *bench = *state;
    struct rdmux_provider_cq *cq = &bench->pair->ends[1].cq->base;
    struct request receive;
    struct request send;
    fill(&receive, RDMUX_OP_RECV, bench->sink, 64);
    fill(&send, RDMUX_OP_SEND, bench->source, 64);
    post_receive(&bench->pair->ends[1], &receive);
    shm_pair_poll(bench->pair);
    assert_int_equal(post(&bench->pair->ends[0], &send), RDMUX_OK);

    for (int i = 0; i < 3; i++) {
        assert_int_equal(rdmux_shm_arm(cq), RDMUX_AGAIN);
    }
    assert_true(rdmux_shm_poll(cq, 64) > 0);
    assert_int_equal(rdmux_shm_arm(cq), RDMUX_OK);
}

static void a_sleeping_sender_wakes_when_its_message_is_placed(void **state)
{
    struct bench *bench = *state;
    struct rdmux_provider_cq *cq = &bench->pair->ends[0].cq->base;
    struct request receive;
    struct request send;
    fill(&receive, RDMUX_OP_RECV, bench->sink, 64);
    fill(&send, RDMUX_OP_SEND, bench->source, 64);
    send.base.flags = RDMUX_PLACED;
    assert_int_equal(post(&bench->pair->ends[0], &send), RDMUX_OK);
    shm_pair_poll(bench->pair);

    assert_int_equal(rdmux_shm_arm(cq), RDMUX_OK);
    assert_false(is_readable(rdmux_shm_cq_fd(cq)));
    post_receive(&bench->pair->ends[1], &receive);
    assert_true(rdmux_shm_poll(&bench->pair->ends[1].cq->base, 64) > 0);

    assert_true(is_readable(rdmux_shm_cq_fd(cq)));
    assert_true(rdmux_shm_poll(cq, 64) > 0);
    assert_int_equal(send.base.done, 1);
}

static void a_post_that_is_done_at_once_wakes_the_sleeper(void **state)
{
    struct bench *bench = *state;
    struct rdmux_provider_cq *cq = &bench->pair->ends[0].cq->base;
    struct region *region = make_region(bench, NULL, 4096, ALL_RIGHTS);
    struct shm_remote remote;
    struct request read;
    import(bench, region, &remote);
    fill(&read, RDMUX_OP_READ, bench->sink, 8);
    read.base.remote = &remote.base;
    assert_int_equal(rdmux_shm_arm(cq), RDMUX_OK);
    assert_false(is_readable(rdmux_shm_cq_fd(cq)));

    assert_int_equal(post(&bench->pair->ends[0], &read), RDMUX_OK);

    assert_int_equal(read.base.done, 1);
    assert_true(is_readable(rdmux_shm_cq_fd(cq)));
    (void)rdmux_shm_poll(cq, 64);
    assert_false(is_readable(rdmux_shm_cq_fd(cq)));
    rdmux_shm_remote_close(&remote.base);
}

static void a_peer_that_closes_is_noticed_after_its_last_message(void **state)
{
    struct bench *bench = *state;
    struct rdmux_provider_counts counts;
    struct request receive;
    struct request send;
    fill(&receive, RDMUX_OP_RECV, bench->sink, 64);
    fill(&send, RDMUX_OP_SEND, bench->source, 64);
    post_receive(&bench->pair->ends[1], &receive);
    assert_int_equal(post(&bench->pair->ends[0], &send), RDMUX_OK);

    assert_int_equal(rdmux_shm_ep_quiesce(&bench->pair->ends[0].ep->base, &counts), RDMUX_OK);
    shm_pair_poll(bench->pair);

    assert_int_equal(receive.base.done, 1);
    assert_int_equal(bench->pair->ends[1].core.failed, RDMUX_PEER_GONE);
    assert_int_equal(bench->pair->ends[0].core.failed, RDMUX_OK);
}

/* Otherwise requests after it could reach the peer through the ring without it. */
static void a_request_that_finds_the_peer_gone_holds_back_those_behind_it(void **state)
{
    struct bench *bench = *state;
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
        struct shm_end *ends = bench->pair->ends;
        struct region *region = region_of_way(bench, cases[i].way);
        struct shm_remote remote;
        struct request receive;
        struct request first;
        struct request send;
        struct rdmux_provider_counts counts;
        import(bench, region, &remote);
        fill(&receive, RDMUX_OP_RECV, bench->sink, 64);
        fill(&first, cases[i].op, bench->source, 8);
        fill(&send, RDMUX_OP_SEND, bench->source, 8);
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
        shm_pair_poll(bench->pair);

        if (status != RDMUX_AGAIN || posted != 0 || run[0].done != 0 || receive.base.done != 0) {
            fail_msg("%s: status %d, %zu posted, done %u, the message behind it %s", cases[i].says,
                     (int)status, posted, run[0].done,
                     receive.base.done != 0 ? "arrived" : "did not arrive");
        }
        assert_int_equal(ends[0].core.failed, RDMUX_PEER_GONE);
        rdmux_shm_remote_close(&remote.base);
        close_regions(bench);
        shm_pair_close(bench->pair);
        bench->pair = shm_pair_connect();
    }
}

static void a_peer_whose_socket_ends_is_noticed_by_an_armed_queue(void **state)
{
    struct bench *bench = *state;
    struct rdmux_provider_cq *cq = &bench->pair->ends[1].cq->base;
    assert_int_equal(rdmux_shm_arm(cq), RDMUX_OK);
    assert_false(is_readable(rdmux_shm_cq_fd(cq)));

    assert_int_equal(shutdown(bench->pair->ends[0].ep->peer.socket, SHUT_RDWR), 0);

    assert_true(is_readable(rdmux_shm_cq_fd(cq)));
    (void)rdmux_shm_poll(cq, 64);
    assert_int_equal(bench->pair->ends[1].core.failed, RDMUX_PEER_GONE);
    assert_false(is_readable(rdmux_shm_cq_fd(cq)));
}

static void quiesce_waits_for_a_copy_of_the_peer(void **state)
{
    struct bench *bench = *state;
    struct rdmux_provider_counts counts;
    struct shm_ep *us = bench->pair->ends[0].ep;
    struct shm_ep *peer = bench->pair->ends[1].ep;
    assert_true(shm_access_begin(peer, NULL, 0));

    enum rdmux_status while_inside = rdmux_shm_ep_quiesce(&us->base, &counts);
    shm_access_end(peer);
    enum rdmux_status afterwards = rdmux_shm_ep_quiesce(&us->base, &counts);

    assert_int_equal(while_inside, RDMUX_IN_PROGRESS);
    assert_int_equal(afterwards, RDMUX_OK);
    assert_false(shm_access_begin(peer, NULL, 0));
}

/* A page of the peer could make us wait for it (userfaultfd(2)). */
static void set_up_touches_no_memory_of_the_peer(void **state)
{
    (void)state;
    const uintptr_t last_page = UINTPTR_MAX - SHM_PAGE + 1; /* no process has it */
    asked_count = 0;
    asked_lowest = UINTPTR_MAX;

    struct shm_pair *pair = shm_pair_connect();

    assert_true(asked_count > 0); /* it asks whether it may copy */
    assert_true(asked_lowest >= last_page);
    assert_true(pair->ends[0].ep->can_copy && pair->ends[1].ep->can_copy);
    shm_pair_close(pair);
}

static void a_stranger_at_the_socket_is_turned_away(void **state)
{
    struct bench *bench = *state;
    struct shm_pair *pair = shm_pair_open();
    uint8_t data[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(data);
    struct shm_description description;
    int stranger = -1;
    (void)bench;
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

static void a_greeting_without_the_secret_is_refused(void **state)
{
    struct bench *bench = *state;
    struct shm_pair *pair = shm_pair_open();
    uint8_t data[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(data);
    uint8_t bytes[SHM_HELLO_SIZE];
    struct shm_description description;
    const struct shm_hello hello = { .magic = SHM_HELLO_CONNECTOR, .pid = (uint32_t)getpid() };
    int stranger = -1;
    (void)bench;
    assert_int_equal(rdmux_shm_ep_describe(&pair->ends[1].ep->base, data, &size), RDMUX_OK);
    assert_int_equal(rdmux_shm_description_decode(data, size, &description), RDMUX_OK);
    assert_int_equal(rdmux_shm_meeting_connect(&description.place, getpid(), &stranger), RDMUX_OK);
    rdmux_shm_hello_encode(&hello, bytes);
    const int fds[] = { pair->ends[0].ep->peer.our_bell, pair->domain->regions_fd, stranger };
    assert_int_equal(rdmux_shm_socket_send(stranger, bytes, sizeof(bytes), fds, 3), RDMUX_OK);

    enum rdmux_status status = rdmux_shm_ep_connect(&pair->ends[1].ep->base, data, size);

    assert_int_equal(status, RDMUX_DENIED);
    (void)close(stranger);
    shm_pair_close(pair);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* A message may have descriptors and no bytes; it looks like the end. */
static void descriptors_that_come_without_bytes_are_closed(void **state)
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
    int next = sent[COUNT - 1] + 1; /* the next messages would have these numbers */
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

/* A hole in huge pages is filled from a pool that may be empty: touching it is SIGBUS. */
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

/* Writes into its ring by itself, as the peer does. */
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
    struct bench *bench = *state;
    struct request receives[2];
    (void)make_region(bench, NULL, 8192, WRITABLE);
    for (size_t i = 0; i < 2; i++) {
        fill(&receives[i], RDMUX_OP_RECV, NULL, 0);
        post_receive(&bench->pair->ends[1], &receives[i]);
    }

    say_notice(bench->pair, 8192);
    shm_pair_poll(bench->pair);
    say_notice(bench->pair, 8193);
    shm_pair_poll(bench->pair);

    assert_int_equal(receives[0].base.done, 1);
    assert_int_equal(receives[0].base.length, 8192);
    assert_int_equal(receives[1].base.done, 0);
    assert_int_equal(bench->pair->ends[1].core.failed, RDMUX_PROTOCOL);
}

/* Passes so many memory files that belong to no region. */
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

/* A peer may send as many of them as it likes, and faster than they are taken. */
static void messages_with_regions_are_taken_a_few_at_a_time(void **state)
{
    struct bench *bench = *state;
    enum { JUNK = 80, AT_A_TIME = 16, OTHERS = 4 /* the bell, and what the receiver does */ };
    struct region *region = make_region(bench, NULL, PAIR_SIZE, WRITABLE);
    pass_junk(&bench->pair->ends[1], JUNK);

    uint64_t least = UINT64_MAX;
    for (int i = 0; i < JUNK / AT_A_TIME + 2; i++) {
        uint64_t calls = send_into(bench, region);
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

static void a_limit_on_file_sizes_is_told_and_ends_no_process(void **state)
{
    (void)state;
    assert_int_equal(create_under_limit(create_segment), 0);
    assert_int_equal(create_under_limit(create_regions), 0);
}

/* A process at its descriptor limit gets a message without the descriptors that came with it. */
static void descriptors_that_find_no_room_are_told_from_a_malformed_message(void **state)
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

/* Connects two endpoints, and closes them whatever came of it. */
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

static void set_up_that_finds_no_descriptor_fails_and_leaves_none_behind(void **state)
{
    struct bench *bench = *state;
    struct shm_cq *cq = bench->pair->ends[0].cq;
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
#define ENDPOINT_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ENDPOINT_TEST(a_message_of_any_size_arrives_whole),
        ENDPOINT_TEST(a_small_message_touches_its_own_bytes_only),
        ENDPOINT_TEST(a_run_of_messages_meets_adjacent_receives_in_order),
        ENDPOINT_TEST(a_message_is_streamed_where_the_kernel_may_not_copy),
        ENDPOINT_TEST(a_message_is_written_into_a_mappable_receive),
        ENDPOINT_TEST(memory_that_the_peer_may_not_write_is_not_passed_for_a_receive),
        ENDPOINT_TEST(a_receive_that_cannot_be_mapped_is_asked_for_once),
        ENDPOINT_TEST(messages_wait_in_order_for_receives_and_lose_nothing),
        ENDPOINT_TEST(a_message_longer_than_its_receive_fails_both_with_length),
        ENDPOINT_TEST(writes_reads_and_atomics_work_in_each_way),
        ENDPOINT_TEST(a_write_imm_is_noticed_after_its_bytes),
        ENDPOINT_TEST(a_flush_waits_for_all_sends_before_it),
        ENDPOINT_TEST(after_invalidate_no_access_succeeds),
        ENDPOINT_TEST(a_region_imported_again_is_mapped_once),
        ENDPOINT_TEST(an_armed_queue_wakes_for_a_message_and_only_then),
        ENDPOINT_TEST(arm_says_again_when_a_message_is_there),
        ENDPOINT_TEST(arm_says_again_until_the_message_is_taken),
        ENDPOINT_TEST(a_sleeping_sender_wakes_when_its_message_is_placed),
        ENDPOINT_TEST(a_post_that_is_done_at_once_wakes_the_sleeper),
        ENDPOINT_TEST(a_peer_that_closes_is_noticed_after_its_last_message),
        ENDPOINT_TEST(a_request_that_finds_the_peer_gone_holds_back_those_behind_it),
        ENDPOINT_TEST(a_peer_whose_socket_ends_is_noticed_by_an_armed_queue),
        ENDPOINT_TEST(quiesce_waits_for_a_copy_of_the_peer),
        ENDPOINT_TEST(set_up_touches_no_memory_of_the_peer),
        ENDPOINT_TEST(a_stranger_at_the_socket_is_turned_away),
        ENDPOINT_TEST(a_greeting_without_the_secret_is_refused),
        ENDPOINT_TEST(set_up_that_finds_no_descriptor_fails_and_leaves_none_behind),
        ENDPOINT_TEST(descriptors_that_come_without_bytes_are_closed),
        ENDPOINT_TEST(memory_that_could_shrink_is_not_mapped),
        ENDPOINT_TEST(memory_of_huge_pages_is_not_mapped),
        ENDPOINT_TEST(a_notice_of_more_bytes_than_any_region_has_is_refused),
        ENDPOINT_TEST(messages_with_regions_are_taken_a_few_at_a_time),
        ENDPOINT_TEST(a_limit_on_file_sizes_is_told_and_ends_no_process),
        ENDPOINT_TEST(descriptors_that_find_no_room_are_told_from_a_malformed_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
