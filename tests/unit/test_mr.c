/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Memory regions: creation and its rollback, allocated memory, and the region of given bytes. */
#include "api/object/mr.h"

#include "api/core/fabric.h"
#include "api/object/mr_export.h"
#include "api/object/revoke.h"
#include "tests/unit/descriptors.h"
#include "tests/unit/fake_domain.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---------------------------------------------------------------------------------- creation */

static void wrong_arguments_are_refused_and_create_nothing(void **state)
{
    (void)state;
    static _Alignas(8) unsigned char bytes[64];
    static const struct {
        const char *says;
        struct rdmux_mr_attr attr;
        enum rdmux_status status;
    } cases[] = {
        { "length 0", { .addr = bytes, .length = 0 }, RDMUX_INVALID },
        { "ends beyond", { .addr = bytes, .length = SIZE_MAX }, RDMUX_INVALID },
        { "unknown access", { .addr = bytes, .length = 8, .access = 1U << 7 }, RDMUX_INVALID },
        { "unknown ordering", { .addr = bytes, .length = 8, .ordering = 3 }, RDMUX_INVALID },
        { "relaxed",
          { .addr = bytes,
            .length = 8,
            .ordering = RDMUX_ORDERING_RELAXED,
            .access = RDMUX_ACCESS_REMOTE_ATOMIC },
          RDMUX_INVALID },
        { "8-byte",
          { .addr = bytes + 4, .length = 8, .access = RDMUX_ACCESS_REMOTE_ATOMIC },
          RDMUX_INVALID },
        { "page_size", { .length = 8, .page_size = 3 << 20 }, RDMUX_INVALID },
        { "page_size", { .length = 8, .page_size = UINT64_C(1) << 63 }, RDMUX_INVALID },
        { "addr with dmabuf_fd", { .addr = bytes, .length = 8, .dmabuf_fd = 1 }, RDMUX_INVALID },
        { "dmabuf_offset", { .addr = bytes, .length = 8, .dmabuf_offset = 4096 }, RDMUX_INVALID },
        { "page_size with dmabuf_fd",
          { .length = 8, .dmabuf_fd = 1, .page_size = 4096 },
          RDMUX_INVALID },
        { "numa_node with dmabuf_fd",
          { .length = 8, .dmabuf_fd = 1, .numa_node = 1 },
          RDMUX_INVALID },
        { "not open", { .length = 8, .dmabuf_fd = UINT32_MAX }, RDMUX_INVALID },
        { "cannot allocate", { .length = SIZE_MAX / 4 }, RDMUX_NO_MEMORY },
        { "cannot allocate", { .length = SIZE_MAX }, RDMUX_NO_MEMORY },
        { "cannot allocate",
          { .length = SIZE_MAX / 2, .page_size = UINT64_C(1) << 30, .access = RDMUX_ACCESS_NO_MAP },
          RDMUX_NO_MEMORY },
    };
    struct fake_fabric *fake = fake_fabric_create();
    size_t before = fake->live;
    size_t descriptors = open_descriptors();

    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_mr_attr attr = cases[i].attr;
        struct rdmux_mr *mr = (struct rdmux_mr *)(uintptr_t)1;
        attr.size = sizeof(attr);
        enum rdmux_status status = rdmux_mr_create(&fake->fabric, &attr, &mr);
        assert_int_equal(status, cases[i].status);
        assert_null(mr);
        assert_non_null(strstr(rdmux_last_error(), cases[i].says));
        assert_int_equal(fake->live, before);
        assert_int_equal(open_descriptors(), descriptors);
    }
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void a_null_argument_is_refused(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    struct rdmux_mr_attr attr = RDMUX_MR_ATTR_INIT;
    struct rdmux_token token;
    struct rdmux_mr *mr = (struct rdmux_mr *)(uintptr_t)1;
    unsigned char byte = 0;

    assert_int_equal(rdmux_mr_register(&fake->fabric, NULL, 1, 0, &mr), RDMUX_INVALID);
    assert_null(mr);
    assert_int_equal(rdmux_mr_register(NULL, &byte, 1, 0, &mr), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_register(&fake->fabric, &byte, 1, 0, NULL), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_alloc(NULL, 1, 0, &mr), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_create(&fake->fabric, NULL, &mr), RDMUX_INVALID);
    attr.size = 0;
    assert_int_equal(rdmux_mr_create(&fake->fabric, &attr, &mr), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_export(NULL, &token), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_revoke(NULL), RDMUX_INVALID);
    assert_null(rdmux_mr_addr(NULL));
    assert_int_equal(rdmux_mr_length(NULL), 0);
    rdmux_mr_deregister(NULL);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void a_region_is_registered_with_every_domain(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    struct fake_domain one;
    struct fake_domain two;
    struct rdmux_mr *mr = NULL;
    unsigned char bytes[100];
    open_domain(fake, &one);
    open_domain(fake, &two);

    enum rdmux_status status = rdmux_mr_register(&fake->fabric, bytes, sizeof(bytes),
                                                 RDMUX_ACCESS_REMOTE_WRITE, &mr);

    assert_int_equal(status, RDMUX_OK);
    assert_ptr_equal(rdmux_mr_addr(mr), bytes);
    assert_int_equal(rdmux_mr_length(mr), sizeof(bytes));
    assert_int_equal(one.registered + two.registered, 2);
    assert_ptr_equal(two.seen.addr, bytes);
    assert_int_equal(two.seen.length, sizeof(bytes));
    assert_int_equal(two.seen.access, RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_LOCAL_WRITE);
    assert_int_equal(two.seen.memory_fd, -1);
    assert_ptr_equal(rdmux_mr_with(mr, &two.base)->domain, &two.base);
    assert_null(rdmux_mr_with(mr, NULL));
    rdmux_mr_deregister(mr);
    assert_int_equal(one.registered + two.registered, 0);
    /* Deregistration ends the keys; a device would make a new one only to drop it. */
    assert_int_equal(one.invalidated + two.invalidated, 0);
    assert_int_equal(fake->fabric.region_count, 0);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void a_refused_registration_undoes_the_others(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    struct fake_domain one;
    struct fake_domain two;
    struct rdmux_mr *mr = (struct rdmux_mr *)(uintptr_t)1;
    open_domain(fake, &one);
    open_domain(fake, &two);
    two.refuses = true;

    enum rdmux_status status = rdmux_mr_alloc(&fake->fabric, 100, ACCESS_ALL, &mr);

    assert_int_equal(status, RDMUX_NO_MEMORY);
    assert_string_equal(rdmux_last_error(), "fake: memlock is 64 KiB; raise it");
    assert_null(mr);
    assert_int_equal(one.registered, 0);
    assert_true(rdmux_list_empty(&fake->fabric.regions));
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void creation_fails_cleanly_at_each_allocation(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    struct fake_domain domain;
    open_domain(fake, &domain);
    size_t before = fake->live;
    size_t descriptors = open_descriptors();
    enum rdmux_status status = RDMUX_NO_MEMORY;
    long allowed = 0;
    struct rdmux_mr *mr = NULL;

    for (; status != RDMUX_OK && allowed < 20; allowed++) {
        fake->allocations = allowed;
        status = rdmux_mr_alloc(&fake->fabric, 100, ACCESS_ALL, &mr);
        if (status != RDMUX_OK) {
            assert_int_equal(status, RDMUX_NO_MEMORY);
            assert_int_equal(fake->live, before);
            assert_int_equal(domain.registered, 0);
            assert_int_equal(open_descriptors(), descriptors);
        }
    }

    assert_int_equal(status, RDMUX_OK);
    assert_true(allowed > 2);
    fake->allocations = -1;
    rdmux_mr_deregister(mr);
    assert_int_equal(open_descriptors(), descriptors);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void a_domain_opened_later_gets_all_regions_or_none(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    struct rdmux_fabric *fabric = &fake->fabric;
    struct rdmux_mr *regions[3] = { NULL };
    struct fake_domain late;
    for (size_t i = 0; i < RDMUX_COUNT_OF(regions); i++) {
        assert_int_equal(rdmux_mr_alloc(fabric, 100, 0, &regions[i]), RDMUX_OK);
    }
    memset(&late, 0, sizeof(late));
    late.base.ops = &fake_ops;
    late.base.fabric = fabric;
    late.refuses = true;
    late.accepts = 2;

    pthread_mutex_lock(&fabric->setup_lock);
    enum rdmux_status refused = rdmux_mr_register_all(fabric, &late.base);
    assert_int_equal(late.registered, 0);
    assert_null(rdmux_mr_with(regions[0], &late.base));
    late.refuses = false;
    enum rdmux_status accepted = rdmux_mr_register_all(fabric, &late.base);
    pthread_mutex_unlock(&fabric->setup_lock);

    assert_int_equal(refused, RDMUX_NO_MEMORY);
    assert_int_equal(accepted, RDMUX_OK);
    assert_int_equal(late.registered, 3);
    for (size_t i = 0; i < RDMUX_COUNT_OF(regions); i++) {
        assert_non_null(rdmux_mr_with(regions[i], &late.base));
    }
    rdmux_mr_domain_gone(fabric, &late.base);
    assert_int_equal(late.registered, 0);
    assert_null(rdmux_mr_with(regions[1], &late.base));
    for (size_t i = 0; i < RDMUX_COUNT_OF(regions); i++) {
        rdmux_mr_deregister(regions[i]);
    }
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

/* ----------------------------------------------------------------------------- our own memory */

static void allocated_memory_is_zeroed_and_sealed(void **state)
{
    (void)state;
    static const struct {
        uint32_t access;
        int seals;
    } cases[] = {
        { ACCESS_ALL, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL },
        { RDMUX_ACCESS_REMOTE_READ,
          F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE },
    };
    struct fake_fabric *fake = fake_fabric_create();
    struct fake_domain domain;
    open_domain(fake, &domain);

    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_mr *mr = NULL;
        assert_int_equal(rdmux_mr_alloc(&fake->fabric, 10001, cases[i].access, &mr), RDMUX_OK);
        unsigned char *bytes = rdmux_mr_addr(mr);
        struct stat info;
        int fd = domain.seen.memory_fd;

        assert_int_equal((uintptr_t)bytes % 4096, 0);
        assert_int_equal(rdmux_mr_length(mr), 10001);
        for (size_t at = 0; at < 10001; at++) {
            assert_int_equal(bytes[at], 0);
        }
        bytes[10000] = 7;
        assert_int_equal(rdmux_provider_mr_fd(rdmux_mr_with(mr, &domain.base)), fd);
        assert_int_equal(fstat(fd, &info), 0);
        assert_true(info.st_size >= 10001);
        assert_int_equal(fcntl(fd, F_GET_SEALS), cases[i].seals);
        assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        void *second = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if ((cases[i].seals & F_SEAL_FUTURE_WRITE) != 0) {
            assert_ptr_equal(second, MAP_FAILED);
        } else {
            assert_ptr_not_equal(second, MAP_FAILED);
            munmap(second, 4096);
        }
        rdmux_mr_deregister(mr);
        assert_int_equal(fcntl(fd, F_GETFD), -1);
    }
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void memory_that_may_not_be_mapped_has_no_descriptor(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    struct fake_domain domain;
    struct rdmux_mr *mr = NULL;
    open_domain(fake, &domain);
    size_t descriptors = open_descriptors();

    enum rdmux_status status = rdmux_mr_alloc(&fake->fabric, 5000, ACCESS_ALL | RDMUX_ACCESS_NO_MAP,
                                              &mr);

    assert_int_equal(status, RDMUX_OK);
    assert_int_equal(domain.seen.memory_fd, -1);
    assert_int_equal(open_descriptors(), descriptors);
    memset(rdmux_mr_addr(mr), 1, 5000);
    rdmux_mr_deregister(mr);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void page_size_and_numa_node_are_only_hints(void **state)
{
    (void)state;
    static const uint64_t sizes[] = { 1, 4096, UINT64_C(2) << 20, UINT64_C(1) << 30,
                                      UINT64_C(1) << 40 };
    struct fake_fabric *fake = fake_fabric_create();

    for (size_t i = 0; i < 2 * RDMUX_COUNT_OF(sizes); i++) {
        struct rdmux_mr_attr attr = RDMUX_MR_ATTR_INIT;
        struct rdmux_mr *mr = NULL;
        attr.length = 3 << 20;
        attr.page_size = sizes[i / 2];
        attr.numa_node = i % 2 == 0 ? 1 : 5000;
        attr.access = i % 2 == 0 ? 0 : RDMUX_ACCESS_NO_MAP;
        assert_int_equal(rdmux_mr_create(&fake->fabric, &attr, &mr), RDMUX_OK);
        memset(rdmux_mr_addr(mr), 1, rdmux_mr_length(mr));
        rdmux_mr_deregister(mr);
    }
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

/* ------------------------------------------------------------------------------------ finding */

static void a_region_is_found_by_its_bytes_and_rights_until_it_is_deregistered(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    struct rdmux_fabric *fabric = &fake->fabric;
    static unsigned char bytes[300];
    struct rdmux_mr *all = NULL;
    struct rdmux_mr *part = NULL;
    assert_int_equal(rdmux_mr_register(fabric, bytes, 300, 0, &all), RDMUX_OK);
    assert_int_equal(rdmux_mr_register(fabric, bytes + 100, 100, RDMUX_ACCESS_REMOTE_WRITE, &part),
                     RDMUX_OK);

    assert_ptr_equal(rdmux_mr_find(fabric, bytes, 300, 0), all);
    assert_ptr_equal(rdmux_mr_find(fabric, bytes + 299, 1, 0), all);
    assert_null(rdmux_mr_find(fabric, bytes + 299, 2, 0));
    assert_null(rdmux_mr_find(fabric, bytes, 1, RDMUX_ACCESS_REMOTE_READ));
    /* remote write implies local write */
    assert_ptr_equal(rdmux_mr_find(fabric, bytes + 100, 100, RDMUX_ACCESS_LOCAL_WRITE), part);
    assert_null(rdmux_mr_find(fabric, bytes + 99, 2, RDMUX_ACCESS_LOCAL_WRITE));
    rdmux_mr_deregister(part);
    assert_null(rdmux_mr_find(fabric, bytes + 100, 100, RDMUX_ACCESS_LOCAL_WRITE));
    assert_ptr_equal(rdmux_mr_find(fabric, bytes + 100, 100, 0), all);
    rdmux_mr_deregister(all);
    assert_null(rdmux_mr_find(fabric, bytes, 1, 0));

    assert_int_equal(fake_fabric_destroy(fake), 0);
}

/* A region of another one's bytes that no domain takes is never found. */
static void a_region_that_was_not_created_is_not_found(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    struct fake_domain domain;
    open_domain(fake, &domain);
    static unsigned char bytes[64];
    struct rdmux_mr *mr = NULL;
    domain.refuses = true;
    assert_int_equal(rdmux_mr_register(&fake->fabric, bytes, 64, 0, &mr), RDMUX_NO_MEMORY);
    assert_null(rdmux_mr_find(&fake->fabric, bytes, 64, 0));
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void one_of_ten_thousand_regions_is_found(void **state)
{
    (void)state;
    enum { REGIONS = 10000, SIZE = 16 };
    struct fake_fabric *fake = fake_fabric_create();
    static unsigned char bytes[REGIONS * SIZE];
    static struct rdmux_mr *regions[REGIONS];
    for (size_t i = 0; i < REGIONS; i++) {
        assert_int_equal(rdmux_mr_register(&fake->fabric, bytes + i * SIZE, SIZE, 0, &regions[i]),
                         RDMUX_OK);
    }

    for (size_t i = 0; i < REGIONS; i++) {
        assert_ptr_equal(rdmux_mr_find(&fake->fabric, bytes + i * SIZE, SIZE, 0), regions[i]);
        assert_null(rdmux_mr_find(&fake->fabric, bytes + i * SIZE + 1, SIZE, 0));
    }

    for (size_t i = 0; i < REGIONS; i++) {
        rdmux_mr_deregister(regions[i]);
    }
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void a_search_refuses_arguments_that_name_no_bytes(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    struct rdmux_fabric *fabric = &fake->fabric;
    static unsigned char bytes[8];
    static const uint32_t dead = 0;
    struct rdmux_mr *mr = NULL;
    assert_int_equal(rdmux_mr_register(fabric, bytes, 8, 0, &mr), RDMUX_OK);

    assert_null(rdmux_mr_find(NULL, bytes, 8, 0));
    assert_non_null(strstr(rdmux_last_error(), "fabric is NULL"));
    assert_null(rdmux_mr_find(fabric, NULL, 8, 0));
    assert_non_null(strstr(rdmux_last_error(), "addr is NULL"));
    assert_null(rdmux_mr_find(fabric, bytes, 0, 0));
    assert_non_null(strstr(rdmux_last_error(), "length of 0 bytes"));
    assert_null(rdmux_mr_find(fabric, bytes, SIZE_MAX, 0));
    assert_non_null(strstr(rdmux_last_error(), "beyond the address space"));
    assert_null(rdmux_mr_find(fabric, bytes, 8, 1U << 30));
    assert_non_null(strstr(rdmux_last_error(), "access bits 0x40000000"));
    fabric->alive = &dead;
    assert_null(rdmux_mr_find(fabric, bytes, 8, 0));
    fabric->alive = &fake_alive;

    rdmux_mr_deregister(mr);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void suspending_and_resuming_refuse_what_the_region_does_not_have(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    static unsigned char bytes[64];
    struct rdmux_mr *mr = NULL;
    assert_int_equal(
        rdmux_mr_register(&fake->fabric, bytes, sizeof(bytes), RDMUX_ACCESS_REMOTE_READ, &mr),
        RDMUX_OK);

    assert_int_equal(rdmux_mr_suspend(NULL), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_resume(NULL, 0, 1), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_resume(mr, 0, 64), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "is not suspended"));
    assert_int_equal(rdmux_mr_suspend(mr), RDMUX_OK);
    assert_int_equal(rdmux_mr_suspend(mr), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "suspended already"));
    assert_int_equal(rdmux_mr_resume(mr, 0, 0), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_resume(mr, 1, 64), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_resume(mr, SIZE_MAX, 2), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "within the"));
    assert_int_equal(rdmux_mr_resume(mr, 63, 1), RDMUX_OK);

    rdmux_mr_deregister(mr);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suspending_and_resuming_refuse_what_the_region_does_not_have),
        cmocka_unit_test(wrong_arguments_are_refused_and_create_nothing),
        cmocka_unit_test(a_null_argument_is_refused),
        cmocka_unit_test(a_region_is_registered_with_every_domain),
        cmocka_unit_test(a_refused_registration_undoes_the_others),
        cmocka_unit_test(creation_fails_cleanly_at_each_allocation),
        cmocka_unit_test(a_domain_opened_later_gets_all_regions_or_none),
        cmocka_unit_test(allocated_memory_is_zeroed_and_sealed),
        cmocka_unit_test(memory_that_may_not_be_mapped_has_no_descriptor),
        cmocka_unit_test(page_size_and_numa_node_are_only_hints),
        cmocka_unit_test(a_region_is_found_by_its_bytes_and_rights_until_it_is_deregistered),
        cmocka_unit_test(a_region_that_was_not_created_is_not_found),
        cmocka_unit_test(one_of_ten_thousand_regions_is_found),
        cmocka_unit_test(a_search_refuses_arguments_that_name_no_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
