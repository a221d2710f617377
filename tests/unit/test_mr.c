/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Memory regions: creation and its rollback, tokens, importers, revocation. */
#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/core/mail.h"
#include "api/core/mr.h"
#include "api/object/mr.h"
#include "api/object/mr_export.h"
#include "api/object/revoke.h"
#include "tests/unit/descriptors.h"
#include "tests/unit/fake_fabric.h"

#include <fcntl.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    ACCESS_ALL = RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                 RDMUX_ACCESS_REMOTE_ATOMIC,
    MAILS_MAX = 16,
};

/* ------------------------------------------------------------------------- a provider to see */

struct fake_domain {
    struct rdmux_provider_domain base;
    size_t registered;  /* living registrations */
    size_t invalidated; /* calls of mr_invalidate */
    bool refuses;
    size_t accepts; /* registrations before it refuses, if it refuses */
    struct rdmux_provider_mr_attr seen;
    enum rdmux_status invalidate_status;
};

static enum rdmux_status fake_register(struct rdmux_provider_mr *mr,
                                       const struct rdmux_provider_mr_attr *attr)
{
    struct fake_domain *domain = (struct fake_domain *)mr->domain;
    if (domain->refuses && domain->accepts-- == 0) {
        rdmux_provider_error("fake: memlock is 64 KiB; raise it");
        domain->accepts = 0;
        return RDMUX_NO_MEMORY;
    }
    domain->seen = *attr;
    domain->registered++;
    return RDMUX_OK;
}

static void fake_deregister(struct rdmux_provider_mr *mr)
{
    ((struct fake_domain *)mr->domain)->registered--;
}

static enum rdmux_status fake_invalidate(struct rdmux_provider_mr *mr)
{
    struct fake_domain *domain = (struct fake_domain *)mr->domain;
    domain->invalidated++;
    return domain->invalidate_status;
}

static const struct rdmux_provider_ops fake_ops = {
    .name = "fake",
    .mr_size = sizeof(struct rdmux_provider_mr),
    .mr_register = fake_register,
    .mr_deregister = fake_deregister,
    .mr_invalidate = fake_invalidate,
};

static void open_domain(struct fake_fabric *fake, struct fake_domain *domain)
{
    struct rdmux_fabric *fabric = &fake->fabric;
    memset(domain, 0, sizeof(*domain));
    domain->base.ops = &fake_ops;
    domain->base.fabric = fabric;
    fabric->domains[fabric->domain_count].ops = &fake_ops;
    fabric->domains[fabric->domain_count].domain = &domain->base;
    fabric->domain_count++;
}

/* ------------------------------------------------------------ mail and service, as seen here */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct rdmux_revoke_mail mails[MAILS_MAX];
    struct rdmux_cq *cqs[MAILS_MAX];
    size_t count;
    size_t steps;
    struct rdmux_fabric *answer_in_step; /* the service answers all, once it runs */
} post = { .lock = PTHREAD_MUTEX_INITIALIZER, .arrived = PTHREAD_COND_INITIALIZER };

void __wrap_rdmux_cq_mail(struct rdmux_cq *cq, struct rdmux_mail *mail);
void __wrap_rdmux_service_step(struct rdmux_fabric *fabric, int timeout_ms);
void __wrap_rdmux_cq_service_attend_revocations(struct rdmux_fabric *fabric);

void __wrap_rdmux_cq_service_attend_revocations(struct rdmux_fabric *fabric)
{
    (void)fabric; /* it has no service; test_deregister.c sees what this does */
}

void __wrap_rdmux_cq_mail(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    struct rdmux_revoke_mail *revoke = (struct rdmux_revoke_mail *)mail;
    pthread_mutex_lock(&post.lock);
    assert_true(post.count < MAILS_MAX);
    assert_ptr_equal(mail->deliver, rdmux_revoke_deliver);
    post.mails[post.count] = *revoke;
    post.cqs[post.count++] = cq;
    (void)pthread_cond_broadcast(&post.arrived);
    pthread_mutex_unlock(&post.lock);
    rdmux_release(cq->fabric, mail);
}

/* Waits for the mail with this index, from 0, and returns it. */
static struct rdmux_revoke_mail await_mail(size_t index)
{
    pthread_mutex_lock(&post.lock);
    while (post.count <= index) {
        (void)pthread_cond_wait(&post.arrived, &post.lock);
    }
    struct rdmux_revoke_mail mail = post.mails[index];
    pthread_mutex_unlock(&post.lock);
    return mail;
}

static void answer_all(struct rdmux_fabric *fabric)
{
    for (size_t i = 0; i < post.count; i++) {
        rdmux_mr_revoke_answered(fabric, post.mails[i].region, post.mails[i].number,
                                 post.mails[i].ep_id);
    }
}

void __wrap_rdmux_service_step(struct rdmux_fabric *fabric, int timeout_ms)
{
    (void)timeout_ms;
    post.steps++;
    if (fabric == post.answer_in_step) {
        answer_all(fabric);
    }
}

/* Records every thread that waits for a condition under this lock. */
static struct {
    pthread_mutex_t *lock;
    sem_t waits;
} watched;

int __real_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    if (lock == watched.lock) {
        (void)sem_post(&watched.waits);
    }
    return __real_pthread_cond_wait(condition, lock);
}

static struct fake_fabric *make_fabric(void)
{
    post.count = 0;
    post.steps = 0;
    post.answer_in_step = NULL;
    return fake_fabric_create();
}

static uint64_t milliseconds(void)
{
    return fake_clock_ns(NULL) / 1000000;
}

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
    struct fake_fabric *fake = make_fabric();
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
    struct fake_fabric *fake = make_fabric();
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
    struct fake_fabric *fake = make_fabric();
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
    struct fake_fabric *fake = make_fabric();
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
    struct fake_fabric *fake = make_fabric();
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
    struct fake_fabric *fake = make_fabric();
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
    struct fake_fabric *fake = make_fabric();
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
    struct fake_fabric *fake = make_fabric();
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
    struct fake_fabric *fake = make_fabric();

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

/* ------------------------------------------------------------------------------------ tokens */

/* A region with all rights, in one domain, and a cq whose endpoints import it. */
struct scene {
    struct fake_fabric *fake;
    struct fake_domain domain;
    struct rdmux_cq cq;
    struct rdmux_mr *mr;
    struct rdmux_token token;
};

static struct scene *set_scene(void)
{
    struct scene *scene = aligned_alloc(64, (sizeof(*scene) + 63) / 64 * 64);
    assert_non_null(scene);
    memset(scene, 0, sizeof(*scene));
    scene->fake = make_fabric();
    scene->cq.fabric = &scene->fake->fabric;
    open_domain(scene->fake, &scene->domain);
    assert_int_equal(rdmux_mr_alloc(&scene->fake->fabric, 4096, ACCESS_ALL, &scene->mr), RDMUX_OK);
    assert_int_equal(rdmux_mr_export(scene->mr, &scene->token), RDMUX_OK);
    return scene;
}

static void clear_scene(struct scene *scene)
{
    rdmux_mr_deregister(scene->mr);
    assert_int_equal(scene->domain.registered, 0);
    for (size_t i = 0; i < RDMUX_REGION_BUCKETS; i++) {
        assert_null(scene->fake->fabric.importer_buckets[i]);
        assert_null(scene->fake->fabric.region_buckets[i]);
    }
    assert_int_equal(fake_fabric_destroy(scene->fake), 0);
    free(scene);
}

static enum rdmux_status import(struct scene *scene, const struct rdmux_token *token, uint64_t ep_id)
{
    struct rdmux_mr *mr = (struct rdmux_mr *)(uintptr_t)1;
    struct rdmux_provider_mr *registration = (struct rdmux_provider_mr *)(uintptr_t)1;
    enum rdmux_status status = rdmux_mr_import(&scene->fake->fabric, token, "", &scene->cq, ep_id,
                                               &scene->domain.base, &mr, &registration);
    if (status == RDMUX_OK) {
        assert_ptr_equal(mr, scene->mr);
        assert_ptr_equal(registration, rdmux_mr_with(mr, &scene->domain.base));
        rdmux_mr_import_done(mr);
    } else {
        assert_null(mr);
        assert_null(registration);
    }
    return status;
}

static void a_token_is_the_same_until_revoke_and_then_another(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    struct rdmux_token again;
    struct rdmux_token later;

    assert_int_equal(rdmux_mr_export(scene->mr, &again), RDMUX_OK);
    assert_int_equal(rdmux_mr_revoke(scene->mr), RDMUX_OK);
    assert_int_equal(rdmux_mr_export(scene->mr, &later), RDMUX_OK);

    assert_memory_equal(&again, &scene->token, sizeof(again));
    assert_memory_not_equal(&later, &scene->token, sizeof(later));
    assert_true(rdmux_token_is_valid(&later));
    assert_int_equal(import(scene, &scene->token, 1), RDMUX_DENIED);
    assert_int_equal(import(scene, &later, 1), RDMUX_OK);
    clear_scene(scene);
}

static void a_token_has_the_documented_layout(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    const uint8_t *bytes = scene->token.bytes;
    static const uint8_t zero[8];

    assert_memory_equal(bytes, "RDXT\0\0\0\1", 8);
    assert_int_equal(bytes[15], scene->mr->id);
    assert_memory_equal(bytes + 16, "\0\0\0\0\0\0\x10\0", 8);
    assert_memory_equal(bytes + 24, "\0\0\0\x0e\0\0\0\0", 8);
    assert_memory_equal(bytes + 32, scene->fake->fabric.process, 8);
    assert_memory_not_equal(bytes + 40, zero, 8);
    assert_memory_not_equal(bytes + 48, zero, 8);
    assert_memory_equal(bytes + 56, zero, 8);
    clear_scene(scene);
}

static void a_region_without_remote_rights_has_no_token(void **state)
{
    (void)state;
    struct fake_fabric *fake = make_fabric();
    struct rdmux_mr *mr = NULL;
    struct rdmux_token token;
    assert_int_equal(rdmux_mr_alloc(&fake->fabric, 1, RDMUX_ACCESS_LOCAL_WRITE, &mr), RDMUX_OK);

    assert_int_equal(rdmux_mr_export(mr, &token), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_revoke(mr), RDMUX_OK);

    rdmux_mr_deregister(mr);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void a_token_with_any_bit_changed_is_denied(void **state)
{
    (void)state;
    struct scene *scene = set_scene();

    for (size_t bit = 0; bit < 8 * sizeof(scene->token); bit++) {
        struct rdmux_token forged = scene->token;
        forged.bytes[bit / 8] = (uint8_t)(forged.bytes[bit / 8] ^ 1U << bit % 8);
        assert_int_equal(import(scene, &forged, 1), RDMUX_DENIED);
        assert_int_equal(rdmux_token_is_valid(&forged), bit >= 64);
    }
    assert_true(rdmux_list_empty(&scene->mr->importers));
    assert_int_equal(import(scene, &scene->token, 1), RDMUX_OK);
    clear_scene(scene);
}

static int fail_random(void *user, void *out, size_t size)
{
    (void)user;
    (void)out;
    (void)size;
    return -1;
}

static void no_token_is_made_without_random_bytes(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    struct rdmux_token token;
    assert_int_equal(rdmux_mr_revoke(scene->mr), RDMUX_OK);

    scene->fake->fabric.hooks.random = fail_random;
    assert_int_equal(rdmux_mr_export(scene->mr, &token), RDMUX_IO);
    scene->fake->fabric.hooks.random = NULL;

    assert_int_equal(rdmux_mr_export(scene->mr, &token), RDMUX_OK);
    clear_scene(scene);
}

static void a_revocation_without_random_bytes_leaves_the_new_key_to_the_next_export(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    struct rdmux_token token;

    scene->fake->fabric.hooks.random = fail_random;
    assert_int_equal(rdmux_mr_revoke(scene->mr), RDMUX_OK);
    assert_int_equal(scene->mr->index, 0);
    scene->fake->fabric.hooks.random = NULL;

    assert_int_equal(rdmux_mr_export(scene->mr, &token), RDMUX_OK);
    assert_int_not_equal(scene->mr->index, 0);
    clear_scene(scene);
}

static void an_import_over_an_unknown_domain_is_unsupported(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    struct rdmux_provider_domain other = { .ops = &fake_ops };
    struct rdmux_mr *mr = NULL;
    struct rdmux_provider_mr *registration = NULL;

    enum rdmux_status status = rdmux_mr_import(&scene->fake->fabric, &scene->token, "", &scene->cq,
                                               1, &other, &mr, &registration);

    assert_int_equal(status, RDMUX_UNSUPPORTED);
    assert_true(rdmux_list_empty(&scene->mr->importers));
    clear_scene(scene);
}

static void an_import_without_memory_records_no_importer(void **state)
{
    (void)state;
    struct scene *scene = set_scene();

    scene->fake->allocations = 0;
    enum rdmux_status status = import(scene, &scene->token, 1);
    scene->fake->allocations = -1;

    assert_int_equal(status, RDMUX_NO_MEMORY);
    assert_true(rdmux_list_empty(&scene->mr->importers));
    clear_scene(scene);
}

/* -------------------------------------------------------------------------------- revocation */

/* Answers each mail as it arrives, from another thread. */
struct answerer {
    struct rdmux_fabric *fabric;
    size_t awaited;
    pthread_t thread;
};

static void *answer_mails(void *user)
{
    struct answerer *answerer = user;
    for (size_t i = 0; i < answerer->awaited; i++) {
        struct rdmux_revoke_mail mail = await_mail(i);
        rdmux_mr_revoke_answered(answerer->fabric, mail.region, mail.number, mail.ep_id);
    }
    return NULL;
}

static void a_revocation_tells_every_importer_once_and_waits_for_it(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    struct answerer answerer = { .fabric = &scene->fake->fabric, .awaited = 3 };
    for (uint64_t ep_id = 1; ep_id <= 3; ep_id++) {
        assert_int_equal(import(scene, &scene->token, ep_id), RDMUX_OK);
        assert_int_equal(import(scene, &scene->token, ep_id), RDMUX_OK);
    }

    assert_int_equal(pthread_create(&answerer.thread, NULL, answer_mails, &answerer), 0);
    enum rdmux_status status = rdmux_mr_revoke(scene->mr);
    assert_int_equal(pthread_join(answerer.thread, NULL), 0);

    assert_int_equal(status, RDMUX_OK);
    assert_int_equal(post.count, 3);
    for (size_t i = 0; i < post.count; i++) {
        assert_ptr_equal(post.cqs[i], &scene->cq);
        assert_int_equal(post.mails[i].region, scene->mr->id);
        assert_int_equal(post.mails[i].ep_id, i + 1);
    }
    assert_int_equal(scene->domain.invalidated, 1);
    assert_int_equal(scene->domain.registered, 1);
    assert_true(rdmux_list_empty(&scene->mr->importers));
    clear_scene(scene);
}

static void a_revocation_waits_100_ms_for_an_importer_that_does_not_answer(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    assert_int_equal(import(scene, &scene->token, 1), RDMUX_OK);
    rdmux_mr_revoke_answered(&scene->fake->fabric, scene->mr->id, 1, 1); /* no side has asked yet */

    uint64_t before = milliseconds();
    enum rdmux_status status = rdmux_mr_revoke(scene->mr);
    uint64_t took = milliseconds() - before;

    assert_int_equal(status, RDMUX_OK);
    assert_true(took >= 99 && took < 1000);
    assert_int_equal(scene->domain.invalidated, 1);
    assert_int_equal(import(scene, &scene->token, 1), RDMUX_DENIED);
    answer_all(&scene->fake->fabric); /* too late, and harmless */
    clear_scene(scene);
}

/* Counts warnings about importers that did not answer. */
static void count_line(void *user, enum rdmux_log_level level, const char *line)
{
    (void)level;
    (void)line;
    ++*(int *)user;
}

static void count_warnings(struct scene *scene, int *warnings)
{
    scene->fake->fabric.hooks.log = count_line;
    scene->fake->fabric.hooks.log_user = warnings;
    scene->fake->fabric.hooks.log_level = RDMUX_LOG_WARN;
}

/* Its answers are wrong at first. */
struct liar {
    struct rdmux_mr *mr;
    uint32_t awaited_before; /* answers awaited when the revocation was sent */
    uint32_t awaited_after;  /* answers awaited after the wrong ones */
    pthread_t thread;
};

static uint32_t answers_awaited(struct rdmux_mr *mr)
{
    pthread_mutex_lock(&mr->fabric->lock);
    uint32_t awaited = mr->revoke_awaited;
    pthread_mutex_unlock(&mr->fabric->lock);
    return awaited;
}

static void *answer_wrongly_then_go(void *user)
{
    struct liar *liar = user;
    struct rdmux_fabric *fabric = liar->mr->fabric;
    struct rdmux_revoke_mail mail = await_mail(0);
    liar->awaited_before = answers_awaited(liar->mr);
    rdmux_mr_revoke_answered(fabric, mail.region, mail.number + 1, mail.ep_id);
    rdmux_mr_revoke_answered(fabric, mail.region + 1, mail.number, mail.ep_id);
    rdmux_mr_revoke_answered(fabric, mail.region, mail.number, mail.ep_id + 1);
    liar->awaited_after = answers_awaited(liar->mr);
    rdmux_mr_importer_gone(fabric, mail.ep_id);
    return NULL;
}

static void an_endpoint_that_ends_counts_as_answered_and_a_wrong_answer_does_not(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    struct liar liar = { .mr = scene->mr };
    int warnings = 0;
    count_warnings(scene, &warnings);
    assert_int_equal(import(scene, &scene->token, 5), RDMUX_OK);

    assert_int_equal(pthread_create(&liar.thread, NULL, answer_wrongly_then_go, &liar), 0);
    enum rdmux_status status = rdmux_mr_revoke(scene->mr);
    assert_int_equal(pthread_join(liar.thread, NULL), 0);

    assert_int_equal(status, RDMUX_OK);
    assert_int_equal(liar.awaited_before, 1);
    assert_int_equal(liar.awaited_after, 1);
    assert_int_equal(warnings, 0); /* the end of the endpoint ended the wait */
    clear_scene(scene);
}

static void a_revocation_skips_an_endpoint_that_has_ended(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    assert_int_equal(import(scene, &scene->token, 1), RDMUX_OK);
    assert_int_equal(import(scene, &scene->token, 1 + RDMUX_REGION_BUCKETS), RDMUX_OK);
    rdmux_mr_importer_gone(&scene->fake->fabric, 1);
    rdmux_mr_importer_gone(&scene->fake->fabric, 1 + RDMUX_REGION_BUCKETS);

    assert_int_equal(rdmux_mr_revoke(scene->mr), RDMUX_OK);

    assert_int_equal(post.count, 0);
    clear_scene(scene);
}

/* A peer may import and close all day long, of a region that lives for as long as the program. */
static void an_importer_that_closed_all_its_imports_is_removed_unless_reads_may_linger(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    struct rdmux_fabric *fabric = &scene->fake->fabric;
    assert_int_equal(import(scene, &scene->token, 1), RDMUX_OK);
    size_t with_one = scene->fake->live;
    assert_int_equal(import(scene, &scene->token, 2), RDMUX_OK);
    assert_int_equal(import(scene, &scene->token, 2), RDMUX_OK);
    assert_true(scene->fake->live > with_one);

    rdmux_mr_import_closed(fabric, scene->mr->id, 2, 7, 1, false);
    assert_true(scene->fake->live > with_one);
    rdmux_mr_import_closed(fabric, scene->mr->id, 2, 7, 1, false);
    assert_int_equal(scene->fake->live, with_one);

    assert_int_equal(import(scene, &scene->token, 2), RDMUX_OK);
    rdmux_mr_import_closed(fabric, scene->mr->id, 2, 8, 1, true);
    assert_true(scene->fake->live > with_one);
    rdmux_mr_importer_gone(fabric, 2);
    assert_int_equal(scene->fake->live, with_one);

    clear_scene(scene);
}

static void a_revoke_without_a_service_thread_does_that_work_itself(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    scene->fake->fabric.hooks.flags = RDMUX_FABRIC_NO_SERVICE_THREAD;
    post.answer_in_step = &scene->fake->fabric;
    int warnings = 0;
    count_warnings(scene, &warnings);
    assert_int_equal(import(scene, &scene->token, 1), RDMUX_OK);

    enum rdmux_status status = rdmux_mr_revoke(scene->mr);

    assert_int_equal(status, RDMUX_OK);
    assert_true(post.steps > 0);
    assert_int_equal(warnings, 0); /* the answer ended the wait */
    clear_scene(scene);
}

/* An import in progress when its region is deregistered. */
struct late_import {
    struct rdmux_mr *mr;
    _Atomic bool deregistered;
    bool was_waited_for;
    pthread_t thread;
};

static void *finish_import(void *user)
{
    struct late_import *late = user;
    while (sem_wait(&watched.waits) != 0) {
    }
    late->was_waited_for = !atomic_load(&late->deregistered);
    if (late->was_waited_for) {
        rdmux_mr_importer_gone(late->mr->fabric, 1);
        rdmux_mr_import_done(late->mr);
    }
    return NULL;
}

static void a_revocation_waits_for_an_import_under_way(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    struct late_import late = { .deregistered = false };
    struct rdmux_provider_mr *registration = NULL;
    assert_int_equal(rdmux_mr_import(&scene->fake->fabric, &scene->token, "", &scene->cq, 1,
                                     &scene->domain.base, &late.mr, &registration),
                     RDMUX_OK);
    assert_int_equal(sem_init(&watched.waits, 0, 0), 0);
    watched.lock = &scene->fake->fabric.lock;

    assert_int_equal(pthread_create(&late.thread, NULL, finish_import, &late), 0);
    rdmux_mr_deregister(scene->mr);
    atomic_store(&late.deregistered, true);
    (void)sem_post(&watched.waits);
    assert_int_equal(pthread_join(late.thread, NULL), 0);

    watched.lock = NULL;
    assert_true(late.was_waited_for);
    assert_int_equal(scene->domain.registered, 0);
    assert_int_equal(fake_fabric_destroy(scene->fake), 0);
    free(scene);
}

static void a_key_that_a_device_does_not_invalidate_is_reported(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    scene->domain.invalidate_status = RDMUX_IO;

    assert_int_equal(rdmux_mr_revoke(scene->mr), RDMUX_IO);
    scene->domain.invalidate_status = RDMUX_OK;

    assert_int_equal(import(scene, &scene->token, 1), RDMUX_DENIED);
    clear_scene(scene);
}

static void *revoke_too(void *user)
{
    (void)rdmux_mr_revoke(user);
    return NULL;
}

static void two_concurrent_revocations_both_take_effect(void **state)
{
    (void)state;
    struct scene *scene = set_scene();

    for (unsigned round = 0; round < 50; round++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, revoke_too, scene->mr), 0);
        assert_int_equal(rdmux_mr_revoke(scene->mr), RDMUX_OK);
        assert_int_equal(import(scene, &scene->token, 1), RDMUX_DENIED);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(rdmux_mr_export(scene->mr, &scene->token), RDMUX_OK);
    }
    clear_scene(scene);
}

static void a_region_created_before_fork_is_invalid_in_the_child(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    static const uint32_t dead = 0;
    struct rdmux_token token;
    struct rdmux_mr *mr = NULL;

    scene->fake->fabric.alive = &dead;
    assert_int_equal(rdmux_mr_export(scene->mr, &token), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_revoke(scene->mr), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_alloc(&scene->fake->fabric, 1, 0, &mr), RDMUX_INVALID);
    rdmux_mr_deregister(scene->mr);
    scene->fake->fabric.alive = &fake_alive;

    assert_int_equal(scene->domain.registered, 1);
    clear_scene(scene);
}

/* ------------------------------------------------------------------------------------ finding */

static void a_region_is_found_by_its_bytes_and_rights_until_it_is_deregistered(void **state)
{
    (void)state;
    struct fake_fabric *fake = make_fabric();
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
    struct fake_fabric *fake = make_fabric();
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
    struct fake_fabric *fake = make_fabric();
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
    struct fake_fabric *fake = make_fabric();
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
    struct fake_fabric *fake = make_fabric();
    static unsigned char bytes[64];
    struct rdmux_mr *mr = NULL;
    assert_int_equal(rdmux_mr_register(&fake->fabric, bytes, sizeof(bytes),
                                       RDMUX_ACCESS_REMOTE_READ, &mr),
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
        cmocka_unit_test(a_token_is_the_same_until_revoke_and_then_another),
        cmocka_unit_test(a_token_has_the_documented_layout),
        cmocka_unit_test(a_region_without_remote_rights_has_no_token),
        cmocka_unit_test(a_token_with_any_bit_changed_is_denied),
        cmocka_unit_test(no_token_is_made_without_random_bytes),
        cmocka_unit_test(a_revocation_without_random_bytes_leaves_the_new_key_to_the_next_export),
        cmocka_unit_test(an_import_over_an_unknown_domain_is_unsupported),
        cmocka_unit_test(an_import_without_memory_records_no_importer),
        cmocka_unit_test(a_revocation_tells_every_importer_once_and_waits_for_it),
        cmocka_unit_test(a_revocation_waits_100_ms_for_an_importer_that_does_not_answer),
        cmocka_unit_test(an_endpoint_that_ends_counts_as_answered_and_a_wrong_answer_does_not),
        cmocka_unit_test(a_revocation_skips_an_endpoint_that_has_ended),
        cmocka_unit_test(an_importer_that_closed_all_its_imports_is_removed_unless_reads_may_linger),
        cmocka_unit_test(a_revoke_without_a_service_thread_does_that_work_itself),
        cmocka_unit_test(a_revocation_waits_for_an_import_under_way),
        cmocka_unit_test(a_key_that_a_device_does_not_invalidate_is_reported),
        cmocka_unit_test(two_concurrent_revocations_both_take_effect),
        cmocka_unit_test(a_region_created_before_fork_is_invalid_in_the_child),
        cmocka_unit_test(a_region_is_found_by_its_bytes_and_rights_until_it_is_deregistered),
        cmocka_unit_test(a_region_that_was_not_created_is_not_found),
        cmocka_unit_test(one_of_ten_thousand_regions_is_found),
        cmocka_unit_test(a_search_refuses_arguments_that_name_no_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
