/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A region that endpoints of one cq import. What the core mails to their cq is recorded, and the
 * test plays the service thread: the program links with --wrap=rdmux_cq_mail,
 * --wrap=rdmux_service_step and --wrap=rdmux_cq_service_attend_revocations. Included by one source
 * of a program. */
#ifndef RDMUX_TESTS_MR_SCENE_H
#define RDMUX_TESTS_MR_SCENE_H

#include "api/core/cq.h"
#include "api/core/fabric.h"
#include "api/core/mail.h"
#include "api/object/mr.h"
#include "api/object/mr_export.h"
#include "api/object/revoke.h"
#include "tests/unit/fake_domain.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MAILS_MAX = 16 };

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

static inline void answer_all(struct rdmux_fabric *fabric)
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

/* A region with all rights, in one domain, and a cq whose endpoints import it. */
struct scene {
    struct fake_fabric *fake;
    struct fake_domain domain;
    struct rdmux_cq cq;
    struct rdmux_mr *mr;
    struct rdmux_token token;
};

static inline struct scene *set_scene(void)
{
    struct scene *scene = aligned_alloc(64, (sizeof(*scene) + 63) / 64 * 64);
    assert_non_null(scene);
    memset(scene, 0, sizeof(*scene));
    post.count = 0;
    post.steps = 0;
    post.answer_in_step = NULL;
    scene->fake = fake_fabric_create();
    scene->cq.fabric = &scene->fake->fabric;
    open_domain(scene->fake, &scene->domain);
    assert_int_equal(rdmux_mr_alloc(&scene->fake->fabric, 4096, ACCESS_ALL, &scene->mr), RDMUX_OK);
    assert_int_equal(rdmux_mr_export(scene->mr, &scene->token), RDMUX_OK);
    return scene;
}

static inline void clear_scene(struct scene *scene)
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

static inline enum rdmux_status import(struct scene *scene, const struct rdmux_token *token,
                                       uint64_t ep_id)
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

#endif
