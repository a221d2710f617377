/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Revocation of a region's remote rights: its importers are asked, and waited for. */
#include "tests/unit/mr_scene.h"

#include <semaphore.h>

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

static uint64_t milliseconds(void)
{
    return fake_clock_ns(NULL) / 1000000;
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
