/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How often the service thread checks whether the application is present. The test advances time:
 * each sleep of the service thread lasts until the test wakes it, and the clock stands still
 * meanwhile. */
#include "api/core/mail.h"
#include "api/progress/cq_owner.h"
#include "tests/unit/api_pair.h"

#include <pthread.h>

enum { LOOKS = 100 };

int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_sched_yield(void);

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool steered;           /* else nothing of this is in force */
    unsigned asleep;        /* sleeps that began */
    unsigned looks;         /* that were let go on */
    int timeout_ms;         /* of the current sleep */
    uint64_t now_ns;        /* the fabric's clock */
    struct rdmux_cq *polls; /* an application polls it all the time; NULL: none does */
    unsigned yields;        /* of the current check */
} stage = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static uint64_t stage_clock(void *user)
{
    (void)user;
    pthread_mutex_lock(&stage.lock);
    uint64_t now_ns = stage.now_ns;
    pthread_mutex_unlock(&stage.lock);
    return now_ns;
}

/* Only the service thread sleeps by poll(2) in these tests. */
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    pthread_mutex_lock(&stage.lock);
    bool steered = stage.steered;
    if (steered) {
        stage.timeout_ms = timeout_ms;
        stage.asleep++;
        pthread_cond_broadcast(&stage.changed);
        while (stage.steered && stage.looks < stage.asleep) {
            pthread_cond_wait(&stage.changed, &stage.lock);
        }
    }
    pthread_mutex_unlock(&stage.lock);
    return steered ? 0 : __real_poll(fds, count, timeout_ms);
}

static void poll_once(struct rdmux_cq *cq)
{
    struct rdmux_wc wc;
    assert_int_equal(rdmux_cq_poll(cq, &wc, 1), 0);
}

/* The service thread waits for a call of the application, which comes here. */
int __wrap_sched_yield(void)
{
    pthread_mutex_lock(&stage.lock);
    struct rdmux_cq *cq = stage.polls;
    stage.yields++;
    pthread_mutex_unlock(&stage.lock);
    if (cq != NULL) {
        struct rdmux_wc wc;
        (void)rdmux_cq_poll(cq, &wc, 1);
    }
    return 0;
}

/* Waits until the service thread sleeps; returns for how long it wants to. */
static int await_sleep(void)
{
    pthread_mutex_lock(&stage.lock);
    while (stage.asleep == stage.looks) {
        pthread_cond_wait(&stage.changed, &stage.lock);
    }
    int timeout_ms = stage.timeout_ms;
    pthread_mutex_unlock(&stage.lock);
    return timeout_ms;
}

/* It looks after so many milliseconds. Returns for how long it sleeps then. */
static int look_after(int ms)
{
    pthread_mutex_lock(&stage.lock);
    stage.now_ns += (uint64_t)ms * 1000000;
    stage.yields = 0;
    stage.looks++;
    pthread_cond_broadcast(&stage.changed);
    pthread_mutex_unlock(&stage.lock);
    return await_sleep();
}

static void steer(bool steered)
{
    pthread_mutex_lock(&stage.lock);
    stage.steered = steered;
    pthread_cond_broadcast(&stage.changed);
    pthread_mutex_unlock(&stage.lock);
}

static void set_polling(struct rdmux_cq *cq)
{
    pthread_mutex_lock(&stage.lock);
    stage.polls = cq;
    pthread_mutex_unlock(&stage.lock);
}

struct scene {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
};

static int open_stage(void **state)
{
    static struct scene made;
    stage.asleep = 0;
    stage.looks = 0;
    stage.now_ns = 1000000000;
    stage.polls = NULL;
    stage.steered = true;
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.clock_ns = stage_clock;
    CHECK_OK(rdmux_fabric_open(&attr, &made.fabric));
    CHECK_OK(rdmux_cq_create(made.fabric, NULL, &made.cq));
    (void)await_sleep();
    *state = &made;
    return 0;
}

static int close_stage(void **state)
{
    struct scene *scene = *state;
    steer(false);
    CHECK_OK(rdmux_cq_destroy(scene->cq));
    CHECK_OK(rdmux_fabric_close(scene->fabric));
    return 0;
}

/* Waits until the service thread knows the new cq, and the application polls. */
static int begin_polling(struct scene *scene)
{
    poll_once(scene->cq);
    set_polling(scene->cq);
    return look_after(0);
}

static void a_polling_application_costs_one_check_in_ten_milliseconds(void **state)
{
    struct scene *scene = *state;
    int sleep_ms = begin_polling(scene);
    for (int i = 0; i < LOOKS; i++) {
        assert_int_equal(sleep_ms, 10);
        poll_once(scene->cq);
        sleep_ms = look_after(sleep_ms);
        assert_int_equal(stage.yields, 1);
    }
    assert_int_equal(scene->cq->claim.slices, 0);
}

static void a_check_that_finds_no_call_takes_the_cq_and_schedules_no_other(void **state)
{
    struct scene *scene = *state;
    int sleep_ms = begin_polling(scene);
    poll_once(scene->cq); /* right after the check, and then never again */
    set_polling(NULL);
    assert_int_equal(sleep_ms, 10);
    assert_int_equal(scene->cq->claim.slices, 0);

    sleep_ms = look_after(sleep_ms);

    assert_int_equal(scene->cq->claim.slices, 1);
    assert_int_equal(sleep_ms, -1);
}

static void an_application_that_called_only_before_the_last_check_is_not_asked_to_yield(void **state)
{
    struct scene *scene = *state;
    int sleep_ms = begin_polling(scene);
    sleep_ms = look_after(sleep_ms);
    assert_int_equal(stage.yields, 1);
    set_polling(NULL);

    sleep_ms = look_after(sleep_ms);

    assert_int_equal(stage.yields, 0);
    assert_int_equal(scene->cq->claim.slices, 1);
    assert_int_equal(sleep_ms, -1);
}

static void an_application_that_comes_back_is_checked_again(void **state)
{
    struct scene *scene = *state;
    int sleep_ms = begin_polling(scene);
    set_polling(NULL);
    assert_int_equal(look_after(sleep_ms), -1);

    poll_once(scene->cq);
    set_polling(scene->cq);
    sleep_ms = look_after(50); /* its call woke the thread */

    assert_int_equal(sleep_ms, 10);
    assert_int_equal(scene->cq->claim.slices, 1);
}

static bool mail_came;

static void note_mail(struct rdmux_cq *cq, struct rdmux_mail *mail)
{
    (void)cq;
    (void)mail;
    mail_came = true;
}

/* Mail wakes an application that sleeps on the armed descriptor, and that may do anything but call:
 * between the arm and the service thread's next check as well as later. */
static void mail_of_an_armed_cq_is_taken_though_it_came_before_the_check(void **state)
{
    struct scene *scene = *state;
    static struct rdmux_mail mail = { .deliver = note_mail };
    int sleep_ms = begin_polling(scene);
    set_polling(NULL);
    mail_came = false;
    CHECK_OK(rdmux_cq_arm(scene->cq));
    rdmux_cq_mail(scene->cq, &mail);
    sleep_ms = look_after(0); /* the mail woke the thread */
    assert_int_equal(sleep_ms, 10);

    for (int i = 0; i < 3 && !mail_came; i++) {
        assert_true(sleep_ms >= 0);
        sleep_ms = look_after(sleep_ms);
    }

    assert_true(mail_came);
    assert_int_equal(scene->cq->claim.slices, 1);
    assert_int_equal(sleep_ms, -1);
}

int main(void)
{
#define STAGED(test) cmocka_unit_test_setup_teardown(test, open_stage, close_stage)
    const struct CMUnitTest tests[] = {
        STAGED(a_polling_application_costs_one_check_in_ten_milliseconds),
        STAGED(a_check_that_finds_no_call_takes_the_cq_and_schedules_no_other),
        STAGED(an_application_that_called_only_before_the_last_check_is_not_asked_to_yield),
        STAGED(an_application_that_comes_back_is_checked_again),
        STAGED(mail_of_an_armed_cq_is_taken_though_it_came_before_the_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
