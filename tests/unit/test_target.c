/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The target side of software providers: keys, bounds, access rights, and removal of a region while
 * other threads use it. */
#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/object/target.h"
#include "tests/unit/fake_fabric.h"

#include <linux/membarrier.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

enum { LENGTH = 4096 };

/* A region, its registration, and an endpoint of one cq that uses the region. */
struct scene {
    struct fake_fabric *fake;
    struct rdmux_cq cq;
    struct rdmux_provider_cq provider_cq;
    struct rdmux_provider_ep ep;
    struct rdmux_mr mr;
    struct rdmux_provider_mr registration;
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
    _Alignas(64) unsigned char bytes[LENGTH];
};

static void add(struct scene *scene)
{
    struct rdmux_fabric *fabric = &scene->fake->fabric;
    pthread_mutex_lock(&fabric->lock);
    enum rdmux_status status = rdmux_region_table_add(fabric, &scene->mr);
    pthread_mutex_unlock(&fabric->lock);
    assert_int_equal(status, RDMUX_OK);
    rdmux_target_key(&scene->registration, scene->key);
}

static void attach_cq(struct scene *scene)
{
    struct rdmux_fabric *fabric = &scene->fake->fabric;
    scene->cq.alive = fabric->alive;
    scene->cq.fabric = fabric;
    scene->cq.fence = fabric->has_membarrier ? 0 : 1;
    scene->provider_cq.cq = &scene->cq;
    scene->ep.cq = &scene->provider_cq;
    pthread_mutex_lock(&fabric->lock);
    rdmux_list_append(&fabric->cqs, &scene->cq.link);
    pthread_mutex_unlock(&fabric->lock);
}

static struct scene *set_scene(uint32_t access)
{
    struct scene *scene = aligned_alloc(64, (sizeof(*scene) + 63) / 64 * 64);
    assert_non_null(scene);
    memset(scene, 0, sizeof(*scene));
    scene->fake = fake_fabric_create();
    scene->mr.fabric = &scene->fake->fabric;
    scene->mr.addr = scene->bytes;
    scene->mr.length = LENGTH;
    scene->mr.access = access;
    scene->registration.mr = &scene->mr;
    attach_cq(scene);
    add(scene);
    return scene;
}

static void clear_scene(struct scene *scene)
{
    rdmux_region_table_remove(&scene->fake->fabric, &scene->mr);
    assert_int_equal(fake_fabric_destroy(scene->fake), 0);
    free(scene);
}

static enum rdmux_status try(struct scene *scene, const uint8_t *key, uint64_t offset,
                             uint64_t length, uint32_t access)
{
    void *addr = NULL;
    enum rdmux_status status = rdmux_target_enter(&scene->ep, key, offset, length, access, &addr);
    if (status == RDMUX_OK) {
        assert_ptr_equal(addr, scene->bytes + offset);
        assert_ptr_equal(atomic_load(&scene->cq.hazard), &scene->mr);
        rdmux_target_leave(&scene->ep);
    }
    assert_null(atomic_load(&scene->cq.hazard));
    return status;
}

static void a_key_opens_its_region_within_its_bounds(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset;
        uint64_t length;
        enum rdmux_status status;
    } cases[] = {
        { 0, LENGTH, RDMUX_OK },
        { 0, 0, RDMUX_OK },
        { LENGTH, 0, RDMUX_OK },
        { LENGTH - 1, 1, RDMUX_OK },
        { 17, 100, RDMUX_OK },
        { LENGTH - 1, 2, RDMUX_OUT_OF_RANGE },
        { LENGTH, 1, RDMUX_OUT_OF_RANGE },
        { LENGTH + 1, 0, RDMUX_OUT_OF_RANGE },
        { 0, LENGTH + 1, RDMUX_OUT_OF_RANGE },
        { UINT64_MAX, 2, RDMUX_OUT_OF_RANGE },
        { 2, UINT64_MAX, RDMUX_OUT_OF_RANGE },
        { UINT64_MAX, UINT64_MAX, RDMUX_OUT_OF_RANGE },
    };
    struct scene *scene = set_scene(RDMUX_ACCESS_REMOTE_READ);

    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        enum rdmux_status status = try(scene, scene->key, cases[i].offset, cases[i].length,
                                       RDMUX_ACCESS_REMOTE_READ);
        assert_int_equal(status, cases[i].status);
    }
    clear_scene(scene);
}

static void only_the_rights_of_the_region_are_granted(void **state)
{
    (void)state;
    static const uint32_t rights[] = { RDMUX_ACCESS_REMOTE_READ, RDMUX_ACCESS_REMOTE_WRITE,
                                       RDMUX_ACCESS_REMOTE_ATOMIC };

    for (uint32_t granted = 1; granted < 8; granted++) {
        uint32_t access = granted * RDMUX_ACCESS_REMOTE_READ;
        struct scene *scene = set_scene(access);
        for (size_t i = 0; i < RDMUX_COUNT_OF(rights); i++) {
            enum rdmux_status want = (access & rights[i]) != 0 ? RDMUX_OK : RDMUX_DENIED;
            assert_int_equal(try(scene, scene->key, 0, 8, rights[i]), want);
        }
        clear_scene(scene);
    }
}

static void a_key_with_any_bit_changed_is_denied(void **state)
{
    (void)state;
    struct scene *scene = set_scene(RDMUX_ACCESS_REMOTE_WRITE);

    for (size_t bit = 0; bit < 8 * sizeof(scene->key); bit++) {
        uint8_t forged[RDMUX_TARGET_KEY_SIZE];
        memcpy(forged, scene->key, sizeof(forged));
        forged[bit / 8] = (uint8_t)(forged[bit / 8] ^ 1U << bit % 8);
        assert_int_equal(try(scene, forged, 0, 1, RDMUX_ACCESS_REMOTE_WRITE), RDMUX_DENIED);
    }
    static const uint8_t zero[RDMUX_TARGET_KEY_SIZE];
    assert_int_equal(try(scene, zero, 0, 1, RDMUX_ACCESS_REMOTE_WRITE), RDMUX_DENIED);
    assert_int_equal(try(scene, scene->key, 0, 1, RDMUX_ACCESS_REMOTE_WRITE), RDMUX_OK);
    clear_scene(scene);
}

static void a_removed_region_is_denied_and_its_next_key_differs(void **state)
{
    (void)state;
    struct scene *scene = set_scene(RDMUX_ACCESS_REMOTE_READ);
    uint8_t old[RDMUX_TARGET_KEY_SIZE];
    memcpy(old, scene->key, sizeof(old));

    rdmux_region_table_remove(&scene->fake->fabric, &scene->mr);
    assert_int_equal(try(scene, old, 0, 1, RDMUX_ACCESS_REMOTE_READ), RDMUX_DENIED);
    add(scene);

    assert_memory_not_equal(old, scene->key, sizeof(old));
    assert_int_equal(try(scene, old, 0, 1, RDMUX_ACCESS_REMOTE_READ), RDMUX_DENIED);
    assert_int_equal(try(scene, scene->key, 0, 1, RDMUX_ACCESS_REMOTE_READ), RDMUX_OK);
    clear_scene(scene);
}

static void a_suspended_region_is_denied_and_resumed_in_part(void **state)
{
    (void)state;
    struct scene *scene = set_scene(RDMUX_ACCESS_REMOTE_READ);
    struct rdmux_fabric *fabric = &scene->fake->fabric;
    const uint32_t reads = RDMUX_ACCESS_REMOTE_READ;

    rdmux_region_table_suspend(fabric, &scene->mr);
    assert_int_equal(try(scene, scene->key, 0, 1, reads), RDMUX_DENIED);
    rdmux_region_table_resume(fabric, &scene->mr, 100, 50);

    assert_int_equal(try(scene, scene->key, 100, 50, reads), RDMUX_OK);
    assert_int_equal(try(scene, scene->key, 149, 1, reads), RDMUX_OK);
    assert_int_equal(try(scene, scene->key, 99, 1, reads), RDMUX_OUT_OF_RANGE);
    assert_int_equal(try(scene, scene->key, 149, 2, reads), RDMUX_OUT_OF_RANGE);
    assert_int_equal(try(scene, scene->key, 100, 50, RDMUX_ACCESS_REMOTE_WRITE), RDMUX_DENIED);

    rdmux_region_table_suspend(fabric, &scene->mr);
    assert_int_equal(try(scene, scene->key, 100, 50, reads), RDMUX_DENIED);
    rdmux_region_table_resume(fabric, &scene->mr, 0, LENGTH);
    assert_int_equal(try(scene, scene->key, 0, LENGTH, reads), RDMUX_OK);
    clear_scene(scene);
}

static void a_region_without_entry_has_a_key_that_opens_nothing(void **state)
{
    (void)state;
    struct scene *scene = set_scene(RDMUX_ACCESS_REMOTE_READ);
    rdmux_region_table_remove(&scene->fake->fabric, &scene->mr);

    rdmux_target_key(&scene->registration, scene->key);

    assert_int_equal(try(scene, scene->key, 0, 1, RDMUX_ACCESS_REMOTE_READ), RDMUX_DENIED);
    rdmux_region_table_remove(&scene->fake->fabric, &scene->mr); /* and may be removed twice */
    clear_scene(scene);
}

static void atomics_are_executed_and_return_the_previous_value(void **state)
{
    (void)state;
    struct scene *scene = set_scene(RDMUX_ACCESS_REMOTE_ATOMIC);
    uint64_t *word = (uint64_t *)(void *)(scene->bytes + 16);
    uint64_t old = 0;
    *word = 40;

    enum rdmux_status added = rdmux_target_atomic(&scene->ep, scene->key, RDMUX_OP_FETCH_ADD, 16, 2,
                                                  0, &old);
    assert_int_equal(added, RDMUX_OK);
    assert_int_equal(old, 40);
    assert_int_equal(*word, 42);
    enum rdmux_status swapped = rdmux_target_atomic(&scene->ep, scene->key, RDMUX_OP_COMPARE_SWAP,
                                                    16, 7, 42, &old);
    assert_int_equal(swapped, RDMUX_OK);
    assert_int_equal(old, 42);
    assert_int_equal(*word, 7);
    enum rdmux_status kept = rdmux_target_atomic(&scene->ep, scene->key, RDMUX_OP_COMPARE_SWAP, 16,
                                                 9, 42, &old);
    assert_int_equal(kept, RDMUX_OK);
    assert_int_equal(old, 7);
    assert_int_equal(*word, 7);
    enum rdmux_status wrapped = rdmux_target_atomic(&scene->ep, scene->key, RDMUX_OP_FETCH_ADD, 16,
                                                    UINT64_MAX, 0, &old);
    assert_int_equal(wrapped, RDMUX_OK);
    assert_int_equal(*word, 6);
    clear_scene(scene);
}

static void a_bad_atomic_changes_nothing(void **state)
{
    (void)state;
    static const struct {
        uint64_t offset;
        uint32_t op;
        enum rdmux_status status;
    } cases[] = {
        { 4, RDMUX_OP_FETCH_ADD, RDMUX_INVALID },
        { 1, RDMUX_OP_COMPARE_SWAP, RDMUX_INVALID },
        { 0, RDMUX_OP_WRITE, RDMUX_INVALID },
        { LENGTH - 7, RDMUX_OP_FETCH_ADD, RDMUX_OUT_OF_RANGE },
        { LENGTH, RDMUX_OP_FETCH_ADD, RDMUX_OUT_OF_RANGE },
        { UINT64_MAX - 7, RDMUX_OP_FETCH_ADD, RDMUX_OUT_OF_RANGE },
    };
    static const unsigned char zero[LENGTH];
    struct scene *scene = set_scene(RDMUX_ACCESS_REMOTE_ATOMIC);
    uint64_t old = 0;

    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        enum rdmux_status status = rdmux_target_atomic(&scene->ep, scene->key, cases[i].op,
                                                       cases[i].offset, 1, 0, &old);
        assert_int_equal(status, cases[i].status);
        assert_memory_equal(scene->bytes, zero, LENGTH);
        assert_null(atomic_load(&scene->cq.hazard));
    }
    clear_scene(scene);
}

static void a_region_of_device_scope_has_no_software_atomics(void **state)
{
    (void)state;
    struct scene *scene = set_scene(RDMUX_ACCESS_REMOTE_ATOMIC | RDMUX_ACCESS_REMOTE_READ |
                                    RDMUX_ACCESS_ATOMIC_DEVICE);
    uint64_t old = 0;

    enum rdmux_status status = rdmux_target_atomic(&scene->ep, scene->key, RDMUX_OP_FETCH_ADD, 0, 1,
                                                   0, &old);

    assert_int_equal(status, RDMUX_DENIED);
    assert_int_equal(try(scene, scene->key, 0, 8, RDMUX_ACCESS_REMOTE_READ), RDMUX_OK);
    clear_scene(scene);
}

static void thousands_of_regions_come_and_go(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    struct scene *scene = set_scene(RDMUX_ACCESS_REMOTE_READ);
    struct rdmux_fabric *fabric = &scene->fake->fabric;
    struct rdmux_mr *regions = calloc(COUNT, sizeof(*regions));
    uint8_t(*keys)[RDMUX_TARGET_KEY_SIZE] = calloc(COUNT, sizeof(*keys));
    assert_non_null(regions);
    assert_non_null(keys);

    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            struct rdmux_provider_mr registration = { .mr = &regions[i] };
            regions[i] = scene->mr;
            pthread_mutex_lock(&fabric->lock);
            assert_int_equal(rdmux_region_table_add(fabric, &regions[i]), RDMUX_OK);
            pthread_mutex_unlock(&fabric->lock);
            rdmux_target_key(&registration, keys[i]);
        }
        for (size_t i = 0; i < COUNT; i++) {
            void *addr = NULL;
            assert_int_equal(
                rdmux_target_enter(&scene->ep, keys[i], 0, 1, RDMUX_ACCESS_REMOTE_READ, &addr),
                RDMUX_OK);
            assert_ptr_equal(atomic_load(&scene->cq.hazard), &regions[i]);
            rdmux_target_leave(&scene->ep);
        }
        for (size_t i = 0; i < COUNT; i++) {
            rdmux_region_table_remove(fabric, &regions[i]);
            assert_int_equal(try(scene, keys[i], 0, 1, RDMUX_ACCESS_REMOTE_READ), RDMUX_DENIED);
        }
    }
    free(regions);
    free(keys);
    clear_scene(scene);
}

static void successive_regions_use_one_place_of_the_table(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    struct scene *scene = set_scene(RDMUX_ACCESS_REMOTE_READ);
    scene->fake->allocations = 0; /* so the table cannot grow */

    for (unsigned i = 0; i < COUNT; i++) {
        rdmux_region_table_remove(&scene->fake->fabric, &scene->mr);
        add(scene);
    }

    assert_int_equal(try(scene, scene->key, 0, 1, RDMUX_ACCESS_REMOTE_READ), RDMUX_OK);
    clear_scene(scene);
}

static void a_table_without_memory_refuses_and_stays_intact(void **state)
{
    (void)state;
    struct scene *scene = set_scene(RDMUX_ACCESS_REMOTE_READ);
    struct rdmux_fabric *fabric = &scene->fake->fabric;
    struct rdmux_mr *regions = calloc(2000, sizeof(*regions));
    assert_non_null(regions);
    size_t count = 0;
    enum rdmux_status status = RDMUX_OK;

    scene->fake->allocations = 0; /* the next chunk is not to be had */
    while (status == RDMUX_OK && count < 2000) {
        regions[count] = scene->mr;
        regions[count].index = 0;
        pthread_mutex_lock(&fabric->lock);
        status = rdmux_region_table_add(fabric, &regions[count]);
        pthread_mutex_unlock(&fabric->lock);
        count += status == RDMUX_OK;
    }

    assert_int_equal(status, RDMUX_NO_MEMORY);
    assert_int_equal(count, 1022);
    assert_int_equal(try(scene, scene->key, 0, 1, RDMUX_ACCESS_REMOTE_READ), RDMUX_OK);
    while (count-- > 0) {
        rdmux_region_table_remove(fabric, &regions[count]);
    }
    free(regions);
    clear_scene(scene);
}

/* ------------------------------------------------------------------------------ two threads */

/* A removal that has found a thread inside the region checks again after a nap. */
static _Atomic unsigned naps;
static sem_t remover_stirs; /* it naps, or has returned */

int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    atomic_fetch_add(&naps, 1);
    (void)sem_post(&remover_stirs);
    return __real_nanosleep(time, left);
}

struct removal {
    struct scene *scene;
    _Atomic int removed;
};

static void *remove_region(void *user)
{
    struct removal *removal = user;
    rdmux_region_table_remove(&removal->scene->fake->fabric, &removal->scene->mr);
    atomic_store(&removal->removed, 1);
    (void)sem_post(&remover_stirs);
    return NULL;
}

static void removing_a_region_waits_for_accesses_under_way(void **state)
{
    (void)state;
    struct scene *scene = set_scene(RDMUX_ACCESS_REMOTE_WRITE);
    struct removal removal = { .scene = scene };
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
    void *addr = NULL;
    pthread_t thread;
    memcpy(key, scene->key, sizeof(key));
    assert_int_equal(sem_init(&remover_stirs, 0, 0), 0);
    atomic_store(&naps, 0);

    assert_int_equal(
        rdmux_target_enter(&scene->ep, key, 0, LENGTH, RDMUX_ACCESS_REMOTE_WRITE, &addr), RDMUX_OK);
    assert_int_equal(pthread_create(&thread, NULL, remove_region, &removal), 0);
    while (atomic_load(&naps) < 3 && !atomic_load(&removal.removed)) {
        (void)sem_wait(&remover_stirs);
    }
    assert_int_equal(atomic_load(&removal.removed), 0);
    rdmux_target_leave(&scene->ep);
    assert_int_equal(pthread_join(thread, NULL), 0);

    assert_int_equal(atomic_load(&removal.removed), 1);
    assert_int_equal(try(scene, key, 0, 1, RDMUX_ACCESS_REMOTE_WRITE), RDMUX_DENIED);
    clear_scene(scene);
}

enum {
    LOOKERS = 3,
    RACES = RDMUX_TSAN ? 500 : 2000, /* enough to see a missing barrier */
    LOOKS_BEFORE_REMOVAL = 20,
    LOOKS_MAX = 2000,
    LOOKS_AFTERWARDS = 50,
};

/* In each round the lookers write to the region for as long as its key lets them, while it is taken
 * away. They do so for half a millisecond at most, and all other waiting is sleep: among threads
 * that spin, each wake-up and each sched_yield() costs a slice of the processor, which is longer
 * than all the rest of a round. */
struct race {
    pthread_barrier_t border; /* of a round: all lookers and the remover */
    sem_t busy;               /* a looker has been let in a few times */
    uint8_t key[RDMUX_TARGET_KEY_SIZE];
    uint32_t writes;         /* while inside */
    _Atomic int removed;     /* the removal has returned */
    _Atomic int let_in_late; /* accesses granted after that, or after a denied one */
    _Atomic int raced;       /* lookers of this round that were let in, then denied */
    bool over;
};

/* A cq's owner. */
struct looker {
    struct race *race;
    struct rdmux_cq cq;
    struct rdmux_provider_cq provider_cq;
    struct rdmux_provider_ep ep;
    pthread_t thread;
};

static bool write_if_let(struct looker *looker)
{
    struct race *race = looker->race;
    void *addr = NULL;
    if (rdmux_target_enter(&looker->ep, race->key, 0, 8, RDMUX_ACCESS_REMOTE_WRITE, &addr) !=
        RDMUX_OK) {
        return false;
    }
    for (uint32_t i = 0; i < race->writes; i++) {
        __atomic_store_n((uint64_t *)addr, UINT64_MAX, __ATOMIC_RELAXED);
    }
    rdmux_target_leave(&looker->ep);
    return true;
}

static void look_until_denied(struct looker *looker)
{
    struct race *race = looker->race;
    bool let_in = true;
    unsigned looks = 0;
    while (let_in && looks < LOOKS_MAX) {
        int removed = atomic_load(&race->removed);
        let_in = write_if_let(looker);
        atomic_fetch_add(&race->let_in_late, removed && let_in);
        if (++looks == LOOKS_BEFORE_REMOVAL || (!let_in && looks < LOOKS_BEFORE_REMOVAL)) {
            (void)sem_post(&race->busy);
        }
    }
    atomic_fetch_add(&race->raced, !let_in && looks > 1);
    for (int i = 0; !let_in && i < LOOKS_AFTERWARDS; i++) {
        atomic_fetch_add(&race->let_in_late, write_if_let(looker));
    }
}

static void *look(void *user)
{
    struct looker *looker = user;
    for (;;) {
        (void)pthread_barrier_wait(&looker->race->border);
        if (looker->race->over) {
            return NULL;
        }
        look_until_denied(looker);
        (void)pthread_barrier_wait(&looker->race->border);
    }
}

static void start_lookers(struct looker *lookers, struct race *race, struct rdmux_fabric *fabric)
{
    for (size_t i = 0; i < LOOKERS; i++) {
        struct looker *looker = &lookers[i];
        looker->race = race;
        looker->cq.fabric = fabric;
        looker->cq.fence = fabric->has_membarrier ? 0 : 1;
        looker->provider_cq.cq = &looker->cq;
        looker->ep.cq = &looker->provider_cq;
        rdmux_list_append(&fabric->cqs, &looker->cq.link);
    }
    for (size_t i = 0; i < LOOKERS; i++) {
        assert_int_equal(pthread_create(&lookers[i].thread, NULL, look, &lookers[i]), 0);
    }
}

static void stop_lookers(struct looker *lookers, struct race *race)
{
    race->over = true;
    (void)pthread_barrier_wait(&race->border);
    for (size_t i = 0; i < LOOKERS; i++) {
        assert_int_equal(pthread_join(lookers[i].thread, NULL), 0);
        rdmux_list_remove(&lookers[i].cq.link);
    }
}

/* One round. Returns whether a looker was inside the region when it was removed. */
static bool run_race(struct scene *scene, struct race *race, unsigned round)
{
    uint64_t *word = (uint64_t *)(void *)scene->bytes;
    memcpy(race->key, scene->key, sizeof(race->key));
    race->writes = 1U << round % 8;
    atomic_store(&race->removed, 0);
    atomic_store(&race->raced, 0);
    (void)pthread_barrier_wait(&race->border);
    /* Now all of them are in the middle of it, now others are about to begin. */
    for (unsigned i = 0; i <= round % LOOKERS; i++) {
        assert_int_equal(sem_wait(&race->busy), 0);
    }
    rdmux_region_table_remove(&scene->fake->fabric, &scene->mr);
    __atomic_store_n(word, 0, __ATOMIC_RELAXED);
    atomic_store(&race->removed, 1);
    (void)pthread_barrier_wait(&race->border);
    while (sem_trywait(&race->busy) == 0) {
    }
    /* A thread that was still inside would have left a write behind that was not cleared. */
    assert_int_equal(__atomic_load_n(word, __ATOMIC_RELAXED), 0);
    assert_int_equal(atomic_load(&race->let_in_late), 0);
    return atomic_load(&race->raced) > 0;
}

static void check_that_nobody_gets_in(bool membarrier)
{
    struct scene *scene = set_scene(RDMUX_ACCESS_REMOTE_WRITE);
    struct rdmux_fabric *fabric = &scene->fake->fabric;
    struct race race = { .over = false };
    struct looker *lookers = calloc(LOOKERS, sizeof(*lookers));
    assert_non_null(lookers);
    fabric->has_membarrier = membarrier;
    assert_int_equal(pthread_barrier_init(&race.border, NULL, LOOKERS + 1), 0);
    assert_int_equal(sem_init(&race.busy, 0, 0), 0);
    start_lookers(lookers, &race, fabric);

    unsigned races = 0;
    for (unsigned round = 0; races < RACES; round++) {
        races += run_race(scene, &race, round);
        add(scene);
    }

    stop_lookers(lookers, &race);
    (void)pthread_barrier_destroy(&race.border);
    free(lookers);
    clear_scene(scene);
}

static void no_access_enters_a_removed_region(void **state)
{
    (void)state;
    check_that_nobody_gets_in(false);
}

static void no_access_enters_a_removed_region_with_membarrier(void **state)
{
    (void)state;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0) {
        skip();
    }
    check_that_nobody_gets_in(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_opens_its_region_within_its_bounds),
        cmocka_unit_test(only_the_rights_of_the_region_are_granted),
        cmocka_unit_test(a_key_with_any_bit_changed_is_denied),
        cmocka_unit_test(a_removed_region_is_denied_and_its_next_key_differs),
        cmocka_unit_test(a_suspended_region_is_denied_and_resumed_in_part),
        cmocka_unit_test(a_region_without_entry_has_a_key_that_opens_nothing),
        cmocka_unit_test(atomics_are_executed_and_return_the_previous_value),
        cmocka_unit_test(a_bad_atomic_changes_nothing),
        cmocka_unit_test(a_region_of_device_scope_has_no_software_atomics),
        cmocka_unit_test(thousands_of_regions_come_and_go),
        cmocka_unit_test(successive_regions_use_one_place_of_the_table),
        cmocka_unit_test(a_table_without_memory_refuses_and_stays_intact),
        cmocka_unit_test(removing_a_region_waits_for_accesses_under_way),
        cmocka_unit_test(no_access_enters_a_removed_region),
        cmocka_unit_test(no_access_enters_a_removed_region_with_membarrier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
