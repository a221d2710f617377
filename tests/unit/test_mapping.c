/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Memory registration checks the mappings of the memory, and touches none of its pages. */
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/object/mapping.h"
#include "tests/unit/api_pair.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { PAGES = 8 };

static size_t questions;
static bool is_old; /* the kernel: it knows no questions */

int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument);

int __wrap_ioctl(int fd, unsigned long request, void *argument)
{
    questions++;
    if (is_old) {
        errno = ENOTTY;
        return -1;
    }
    return __real_ioctl(fd, request, argument);
}

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static unsigned char *map_pages(void)
{
    void *pages = mmap(NULL, PAGES * page_size(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    return pages;
}

static void check_refused(const void *addr, size_t length, bool writes, const char *word,
                          const void *at)
{
    char place[32];
    (void)snprintf(place, sizeof(place), "%p ", at);
    CHECK_STATUS(rdmux_mapping_check(addr, length, writes), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), word));
    assert_non_null(strstr(rdmux_last_error(), place));
}

static void judge_everything(void)
{
    static const unsigned char constant[] = "read-only";
    static unsigned char variable[64];
    size_t page = page_size();
    unsigned char *pages = map_pages();
    unsigned char resident[PAGES];
    struct rlimit stack;

    CHECK_OK(rdmux_mapping_check(pages, PAGES * page, true));
    CHECK_OK(rdmux_mapping_check(pages + 1, 1, true));
    CHECK_OK(rdmux_mapping_check(variable, sizeof(variable), true));
    CHECK_OK(rdmux_mapping_check(constant, sizeof(constant), false));
    CHECK_STATUS(rdmux_mapping_check(constant, sizeof(constant), true), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "cannot be written"));
    /* Adjacent mappings with different rights count as one. */
    assert_int_equal(mprotect(pages + 2 * page, page, PROT_READ), 0);
    CHECK_OK(rdmux_mapping_check(pages, PAGES * page, false));
    check_refused(pages, PAGES * page, true, "cannot be written", pages + 2 * page);
    check_refused(pages + 3 * page - 1, 2, true, "cannot be written", pages + 3 * page - 1);
    CHECK_OK(rdmux_mapping_check(pages + 3 * page, page, true));
    assert_int_equal(mprotect(pages + 4 * page, page, PROT_NONE), 0);
    CHECK_OK(rdmux_mapping_check(pages, 4 * page, false));
    check_refused(pages, 4 * page + 1, false, "cannot be read", pages + 4 * page);
    check_refused(pages + 5 * page - 1, 1, false, "cannot be read", pages + 5 * page - 1);
    assert_int_equal(munmap(pages + 6 * page, page), 0);
    CHECK_OK(rdmux_mapping_check(pages + 5 * page, page, true));
    check_refused(pages + 5 * page, page + 1, false, "is not mapped", pages + 6 * page);
    check_refused(pages + 7 * page - 1, 2, false, "is not mapped", pages + 7 * page - 1);
    CHECK_OK(rdmux_mapping_check(pages + 7 * page, page, true));
    check_refused((void *)(uintptr_t)page, 1, false, "is not mapped", (void *)(uintptr_t)page);

    assert_int_equal(mincore(pages, 2 * page, resident), 0);
    assert_false((resident[0] | resident[1]) & 1); /* nothing was paged in */
    /* The stack has not grown there yet, but may. */
    assert_int_equal(getrlimit(RLIMIT_STACK, &stack), 0);
    if (stack.rlim_cur >= (rlim_t)1 << 20) {
        unsigned char *here = (unsigned char *)__builtin_frame_address(0);
        CHECK_OK(rdmux_mapping_check(here - (1 << 19), 1 << 19, true));
    }
    assert_int_equal(munmap(pages, PAGES * page), 0);
}

static void a_span_is_checked_by_system_calls(void **state)
{
    (void)state;
    questions = 0;
    judge_everything();
    assert_true(questions >= 19);
}

static void a_kernel_without_those_system_calls_gives_the_same_answers_by_proc(void **state)
{
    (void)state;
    is_old = true;
    judge_everything();
    is_old = false;
}

static void nothing_is_refused_when_proc_cannot_be_read(void **state)
{
    (void)state;
    struct rlimit before;
    struct rlimit none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){ 0, before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum rdmux_status status = rdmux_mapping_check((void *)(uintptr_t)1, 1, true);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK_OK(status);
}

static void a_region_needs_memory_that_permits_its_access(void **state)
{
    (void)state;
    static const uint32_t writing[] = { RDMUX_ACCESS_LOCAL_WRITE, RDMUX_ACCESS_REMOTE_WRITE,
                                        RDMUX_ACCESS_REMOTE_ATOMIC, RDMUX_ACCESS_READ_SINK };
    size_t page = page_size();
    unsigned char *pages = map_pages();
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    struct rdmux_mr *mr = NULL;
    assert_int_equal(mprotect(pages, page, PROT_NONE), 0);
    assert_int_equal(mprotect(pages + page, page, PROT_READ), 0);

    CHECK_STATUS(rdmux_mr_register(fabric, pages, page, 0, &mr), RDMUX_INVALID);
    assert_null(mr);
    CHECK_OK(rdmux_mr_register(fabric, pages + page, page, RDMUX_ACCESS_REMOTE_READ, &mr));
    rdmux_mr_deregister(mr);
    for (size_t i = 0; i < RDMUX_COUNT_OF(writing); i++) {
        CHECK_STATUS(rdmux_mr_register(fabric, pages + page, page, writing[i], &mr), RDMUX_INVALID);
        assert_null(mr);
        CHECK_OK(rdmux_mr_register(fabric, pages + 2 * page, page, writing[i], &mr));
        rdmux_mr_deregister(mr);
    }
    assert_int_equal(munmap(pages, PAGES * page), 0);
    CHECK_OK(rdmux_fabric_close(fabric));
}

/* Unmaps the bytes for good: no other mapping may take their place. */
static void take_away(void *bytes, size_t size)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    assert_ptr_equal(mmap(bytes, size, PROT_NONE, flags, -1, 0), bytes);
}

/* Takes a buffer away after its registration: the request fails, and the process continues.
 * at_peer: the status that the peer, which has done nothing wrong, gets. */
static void check_lost_buffer(const char *path, uint32_t access, bool reads,
                              enum rdmux_status at_peer)
{
    enum { SIZE = 1 << 20 };
    struct pair pair;
    struct rdmux_mr *source = NULL;
    struct rdmux_mr *sink = NULL;
    struct rdmux_remote *remote = NULL;
    struct rdmux_token token;
    struct rdmux_wc wc;
    open_pair(&pair, path, NULL);
    void *bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    CHECK_OK(rdmux_mr_register(pair.fabric_a, bytes, SIZE, RDMUX_ACCESS_LOCAL_WRITE, &source));
    void *there = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(there, MAP_FAILED); /* over shm the kernel copies to it */
    CHECK_OK(rdmux_mr_register(pair.fabric_b, there, SIZE, access, &sink));
    CHECK_OK(rdmux_mr_export(sink, &token));
    CHECK_OK(rdmux_remote_import(pair.a, &token, PATIENT_MS, &remote));
    take_away(bytes, SIZE);

    CHECK_OK(reads ? rdmux_read(pair.a, bytes, SIZE, source, remote, 0, CONTEXT(1), 0)
                   : rdmux_write(pair.a, bytes, SIZE, source, remote, 0, CONTEXT(1), 0));
    wc = next_entry(pair.cq_a);

    if (wc.status != RDMUX_INVALID) {
        fail_msg("%s: %s", path, rdmux_status_name((enum rdmux_status)wc.status));
    }
    assert_ptr_equal(wc.context, CONTEXT(1));
    (void)expect_entry(pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_INVALID);
    (void)expect_entry(pair.cq_b, RDMUX_WC_DISCONNECTED, at_peer);
    rdmux_remote_close(remote);
    rdmux_mr_deregister(source);
    rdmux_mr_deregister(sink);
    close_pair(&pair);
    assert_int_equal(munmap(bytes, SIZE), 0);
    assert_int_equal(munmap(there, SIZE), 0);
}

static void an_unmapped_buffer_makes_its_request_invalid(void **state)
{
    (void)state;
    const uint32_t access = RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ;
    check_lost_buffer("tcp", access, false, RDMUX_PEER_GONE);
    check_lost_buffer("shm", access, false, RDMUX_IO);
    check_lost_buffer("shm", access, true, RDMUX_IO);
}

/* Over shm it is the peer that copies the bytes of a long message, out of this process. */
static void a_message_with_unmapped_bytes_is_invalid(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20, GONE = 65536 };
    const size_t places[] = { 0, SIZE / 2, SIZE - GONE };
    static uint8_t into[SIZE];
    for (size_t i = 0; i < RDMUX_COUNT_OF(places); i++) {
        struct pair pair;
        struct rdmux_wc wc;
        uint8_t *bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                              0);
        assert_ptr_not_equal(bytes, MAP_FAILED);
        open_pair(&pair, "shm", NULL);
        CHECK_OK(rdmux_recv(pair.b, into, SIZE, NULL, CONTEXT(2)));
        take_away(bytes + places[i], GONE);

        CHECK_OK(rdmux_send(pair.a, bytes, SIZE, NULL, CONTEXT(1), 0));
        (void)expect_entry(pair.cq_b, RDMUX_WC_RECV, RDMUX_FLUSHED);
        wc = expect_entry(pair.cq_a, RDMUX_WC_SEND, RDMUX_INVALID);

        assert_ptr_equal(wc.context, CONTEXT(1));
        (void)expect_entry(pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_INVALID);
        (void)expect_entry(pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_IO);
        close_pair(&pair);
        assert_int_equal(munmap(bytes, SIZE), 0);
    }
}

static void an_unmapped_receive_is_invalid_on_the_side_that_posted_it(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    static uint8_t from[SIZE];
    struct pair pair;
    void *bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    open_pair(&pair, "shm", NULL);
    CHECK_OK(rdmux_recv(pair.b, bytes, SIZE, NULL, CONTEXT(2)));
    take_away(bytes, SIZE);

    CHECK_OK(rdmux_send(pair.a, from, SIZE, NULL, CONTEXT(1), 0));
    (void)expect_entry(pair.cq_b, RDMUX_WC_RECV, RDMUX_FLUSHED);

    (void)expect_entry(pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_INVALID);
    (void)expect_entry(pair.cq_a, RDMUX_WC_SEND, RDMUX_IO);
    (void)expect_entry(pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_IO);
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_span_is_checked_by_system_calls),
        cmocka_unit_test(a_kernel_without_those_system_calls_gives_the_same_answers_by_proc),
        cmocka_unit_test(nothing_is_refused_when_proc_cannot_be_read),
        cmocka_unit_test(a_region_needs_memory_that_permits_its_access),
        cmocka_unit_test(an_unmapped_buffer_makes_its_request_invalid),
        cmocka_unit_test(a_message_with_unmapped_bytes_is_invalid),
        cmocka_unit_test(an_unmapped_receive_is_invalid_on_the_side_that_posted_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
