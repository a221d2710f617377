/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Dma-bufs as regions: the descriptors that are refused, the mapping and its end, and requests over
 * paths without an adapter. test_dmabuf_simulated.c has those over adapters. */
#include "api/base/dmabuf.h"

#include "tests/unit/api_pair.h"
#include "tests/unit/descriptors.h"
#include "tests/unit/fake_dmabuf.h"

#include <fcntl.h>
#include <stdio.h>

enum { PAGES = 4, SIZE = 1 << 20 };
#define PAGE ((size_t)4096)

static int mmap_error; /* of the next calls with a fake dma-buf; 0: they succeed */

void *__real_mmap(void *addr, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *addr, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *addr, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (mmap_error != 0 && fd >= 0 && is_fake_dmabuf(fd)) {
        errno = mmap_error;
        return MAP_FAILED;
    }
    return __real_mmap(addr, length, protection, flags, fd, offset);
}

static struct rdmux_mr_attr attr_of(int fd, uint64_t offset, size_t length)
{
    struct rdmux_mr_attr attr = RDMUX_MR_ATTR_INIT;
    attr.dmabuf_fd = (uint32_t)(fd + 1);
    attr.dmabuf_offset = offset;
    attr.length = length;
    return attr;
}

/* The text names the cause; no descriptor and no mapping stays. */
static void expect_refusal(const struct rdmux_mr_attr *attr, bool writes, enum rdmux_status status,
                           const char *says)
{
    struct rdmux_dmabuf dmabuf = { .fd = 7, .addr = &dmabuf };
    const size_t descriptors = open_descriptors();
    assert_int_equal(rdmux_dmabuf_open(attr, writes, &dmabuf), status);
    if (strstr(rdmux_last_error(), says) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", rdmux_last_error(), says);
    }
    assert_int_equal(dmabuf.fd, -1);
    assert_null(dmabuf.addr);
    assert_int_equal(open_descriptors(), descriptors);
}

/* ---------------------------------------------------------------------------------------- refusals */

static void a_descriptor_that_is_no_dmabuf_is_refused_and_left_as_it_was(void **state)
{
    (void)state;
    int ends[2];
    int memory = memfd_create("plain", MFD_CLOEXEC);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(ftruncate(memory, (off_t)PAGES * PAGE), 0);
    assert_int_equal(lseek(memory, 100, SEEK_SET), 100);
    struct rdmux_mr_attr attr = attr_of(memory, 0, PAGE);
    expect_refusal(&attr, true, RDMUX_INVALID, "is no dma-buf");
    assert_int_equal(lseek(memory, 0, SEEK_CUR), 100);
    attr = attr_of(ends[0], 0, PAGE);
    expect_refusal(&attr, true, RDMUX_INVALID, "is no dma-buf");
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)close(memory);

    attr = attr_of(memory, 0, PAGE);
    expect_refusal(&attr, true, RDMUX_INVALID, "which is not open");
    attr.dmabuf_fd = UINT32_MAX;
    expect_refusal(&attr, true, RDMUX_INVALID, "which is not open");
}

static void bytes_that_the_dmabuf_does_not_have_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset;
        size_t length;
        const char *says;
    } cases[] = {
        { 0, PAGES * PAGE + 1, "end beyond the dma-buf of 16384 bytes" },
        { PAGE, (PAGES - 1) * PAGE + 1, "end beyond the dma-buf" },
        { PAGES * PAGE, 1, "end beyond the dma-buf" },
        { UINT64_C(1) << 40, 1, "end beyond the dma-buf" },
        { UINT64_MAX - PAGE + 1, 2 * PAGE, "end beyond the dma-buf" },
        { 0, SIZE_MAX, "end beyond the dma-buf" },
        { 1, 1, "no multiple of the page size" },
        { PAGE / 2, 1, "no multiple of the page size" },
    };
    int fd = fake_dmabuf_create((size_t)PAGES * PAGE);
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_mr_attr attr = attr_of(fd, cases[i].offset, cases[i].length);
        expect_refusal(&attr, true, RDMUX_INVALID, cases[i].says);
    }
    (void)close(fd);
}

static void what_a_driver_refuses_is_named(void **state)
{
    (void)state;
    static const struct {
        int mmap_error;
        int sync_error;
        enum rdmux_status status;
        const char *says;
    } cases[] = {
        { EACCES, 0, RDMUX_INVALID, "export it with O_RDWR" },
        { ENOMEM, 0, RDMUX_NO_MEMORY, "cannot map" },
        { ENODEV, 0, RDMUX_UNSUPPORTED, "does not let the processor map it" },
        { 0, EIO, RDMUX_IO, "refuses the processor's access" },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        int fd = fake_dmabuf_create((size_t)PAGES * PAGE);
        struct rdmux_mr_attr attr = attr_of(fd, 0, PAGE);
        mmap_error = cases[i].mmap_error;
        fake_dmabuf.errors[0] = cases[i].sync_error;
        expect_refusal(&attr, true, cases[i].status, cases[i].says);
        mmap_error = 0;
        (void)close(fd);
    }
}

static void a_dmabuf_exported_for_reading_is_mapped_for_reading_alone(void **state)
{
    (void)state;
    char path[64];
    int fd = fake_dmabuf_create((size_t)PAGES * PAGE);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int reading = open(path, O_RDONLY | O_CLOEXEC);
    struct rdmux_mr_attr attr = attr_of(reading, 0, PAGE);
    struct rdmux_dmabuf dmabuf;
    expect_refusal(&attr, true, RDMUX_INVALID, "may not be written");

    assert_int_equal(rdmux_dmabuf_open(&attr, false, &dmabuf), RDMUX_OK);

    assert_int_equal(fake_dmabuf.syncs[0], DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ);
    rdmux_dmabuf_close(&dmabuf);
    (void)close(reading);
    (void)close(fd);
}

/* ------------------------------------------------------------------------------------------- life */

static void a_mapped_dmabuf_outlives_the_callers_descriptor(void **state)
{
    (void)state;
    const size_t descriptors = open_descriptors();
    int fd = fake_dmabuf_create((size_t)PAGES * PAGE);
    int other = dup(fd);
    struct rdmux_mr_attr attr = attr_of(fd, PAGE, 100);
    struct rdmux_dmabuf dmabuf;
    fake_dmabuf.errors[0] = EINTR;
    fake_dmabuf.errors[1] = EAGAIN;

    assert_int_equal(rdmux_dmabuf_open(&attr, true, &dmabuf), RDMUX_OK);

    assert_int_equal(fcntl(dmabuf.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fake_dmabuf.sync_count, 3);
    assert_int_equal(fake_dmabuf.syncs[2], DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW);
    (void)close(fd);
    char byte = 0;
    memset(dmabuf.addr, 'd', 100);
    assert_int_equal(pread(other, &byte, 1, PAGE + 99), 1);
    assert_int_equal(byte, 'd');
    rdmux_dmabuf_close(&dmabuf);
    assert_int_equal(fake_dmabuf.sync_count, 4);
    assert_int_equal(fake_dmabuf.syncs[3], DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW);
    rdmux_dmabuf_close(&dmabuf); /* it has none any more */
    assert_int_equal(fake_dmabuf.sync_count, 4);
    (void)close(other);
    assert_int_equal(open_descriptors(), descriptors);
}

/* ------------------------------------------------------------------------------------------ paths */

static struct rdmux_mr *create(struct rdmux_fabric *fabric, int fd, uint64_t offset, uint32_t access)
{
    struct rdmux_mr_attr attr = attr_of(fd, offset, SIZE);
    struct rdmux_mr *mr = NULL;
    attr.access = access;
    CHECK_OK(rdmux_mr_create(fabric, &attr, &mr));
    return mr;
}

static void check_messages_of(struct pair *pair, uint8_t *here, struct rdmux_mr *mr)
{
    static uint8_t there[SIZE];
    memset(here, 1, SIZE);
    CHECK_OK(rdmux_recv(pair->b, there, SIZE, NULL, NULL));
    CHECK_OK(rdmux_send(pair->a, here, SIZE, mr, NULL, 0));
    expect_entry(pair->cq_b, RDMUX_WC_RECV, RDMUX_OK);
    expect_entry(pair->cq_a, RDMUX_WC_SEND, RDMUX_OK);
    assert_memory_equal(there, here, SIZE);
    memset(there, 2, SIZE);
    CHECK_OK(rdmux_recv(pair->a, here, SIZE, mr, NULL));
    CHECK_OK(rdmux_send(pair->b, there, SIZE, NULL, NULL, 0));
    expect_entry(pair->cq_a, RDMUX_WC_RECV, RDMUX_OK);
    expect_entry(pair->cq_b, RDMUX_WC_SEND, RDMUX_OK);
    assert_memory_equal(here, there, SIZE);
}

static void check_accesses(struct pair *pair, uint8_t *here, struct rdmux_mr *mr,
                           struct rdmux_mr *remote_mr)
{
    uint8_t *there = rdmux_mr_addr(remote_mr);
    struct rdmux_remote *remote = import_region(pair->a, remote_mr);
    struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
    CHECK_OK(rdmux_remote_info(remote, &info));
    assert_int_equal(info.mapped, 0);
    memset(here, 3, SIZE);
    CHECK_OK(rdmux_write(pair->a, here, SIZE, mr, remote, 0, NULL, RDMUX_PLACED));
    expect_entry(pair->cq_a, RDMUX_WC_WRITE, RDMUX_OK);
    assert_memory_equal(there, here, SIZE);
    memset(there, 4, SIZE);
    CHECK_OK(rdmux_read(pair->a, here, SIZE, mr, remote, 0, NULL, 0));
    expect_entry(pair->cq_a, RDMUX_WC_READ, RDMUX_OK);
    assert_memory_equal(here, there, SIZE);
    const uint64_t one = 1;
    memcpy(there, &one, sizeof(one));
    uint64_t *result = (uint64_t *)(void *)here;
    CHECK_OK(rdmux_fetch_add(pair->a, result, mr, remote, 0, 4, NULL, 0));
    expect_entry(pair->cq_a, RDMUX_WC_FETCH_ADD, RDMUX_OK);
    assert_int_equal(*result, 1);
    assert_int_equal(there[0], 5);
    rdmux_remote_close(remote);
}

static void requests_reach_dmabufs_at_both_ends(void **state)
{
    (void)state;
    static const char *const paths[] = { "tcp", "shm" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct pair pair;
        int fd = fake_dmabuf_create((size_t)2 * SIZE);
        open_pair(&pair, paths[i], NULL);
        struct rdmux_mr *mr = create(pair.fabric_a, fd, 0, RDMUX_ACCESS_LOCAL_WRITE);
        struct rdmux_mr *remote_mr = create(pair.fabric_b, fd, SIZE,
                                            RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                                RDMUX_ACCESS_REMOTE_ATOMIC);
        (void)close(fd);
        fake_dmabuf.regions[0] = mr;
        fake_dmabuf.regions[1] = remote_mr;

        check_messages_of(&pair, rdmux_mr_addr(mr), mr);
        check_accesses(&pair, rdmux_mr_addr(mr), mr, remote_mr);

        fake_dmabuf.regions[0] = fake_dmabuf.regions[1] = NULL;
        rdmux_mr_deregister(remote_mr);
        rdmux_mr_deregister(mr);
        close_pair(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_descriptor_that_is_no_dmabuf_is_refused_and_left_as_it_was),
        cmocka_unit_test(bytes_that_the_dmabuf_does_not_have_are_refused),
        cmocka_unit_test(what_a_driver_refuses_is_named),
        cmocka_unit_test(a_dmabuf_exported_for_reading_is_mapped_for_reading_alone),
        cmocka_unit_test(a_mapped_dmabuf_outlives_the_callers_descriptor),
        cmocka_unit_test(requests_reach_dmabufs_at_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
