/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Paths that end without a reason: the endpoint asks the peer, which reports what it knows.
 * Endpoint a has the device. */
#define SLOW_CLOCK 8
#include "tests/unit/device_scene.h"
#include "tests/unit/fair_time.h"

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/remote.h"
#include "api/progress/cq_owner.h"
#include "negotiation/control_channel.h"

enum { GRACE_MS = 500 * SLOW_CLOCK }; /* timeout of an answer, by the machine's clock */

static const char lost[] = "device: nothing is heard of the peer's";

/* Posts a write of a that stays in flight forever. */
static void post_write(struct scene *scene, uintptr_t context)
{
    static uint8_t byte;
    device.conduct = DONE_BY_POLL;
    CHECK_OK(rdmux_write(scene->pair.a, &byte, 1, NULL, scene->remote, 0, CONTEXT(context), 0));
    assert_int_equal(device.held_count, 1);
    device.held_count = 0;
    device.conduct = CARRY;
}

static void expect_context(struct rdmux_cq *cq, enum rdmux_status status, uintptr_t context)
{
    assert_ptr_equal(expect_entry(cq, RDMUX_WC_WRITE, status).context, CONTEXT(context));
}

static void expect_text(struct rdmux_ep *ep, const char *part)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(ep, &info));
    if (strstr(info.text, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", info.text, part);
    }
}

/* Two sides that progress only by their own calls. */
static void set_still_scene(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    open_sides(&scene->pair, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, RDMUX_FABRIC_NO_SERVICE_THREAD);
    make_device(scene->pair.fabric_a, 0, 0);
    connect_more(&scene->pair, NULL, &scene->pair.a, &scene->pair.b);
    alarm(HANG_S);
}

/* Progresses one side once, without taking an entry. */
static void progress(struct rdmux_cq *cq)
{
    CHECK_OK(rdmux_fabric_progress(cq->fabric));
    assert_int_equal(rdmux_cq_poll(cq, NULL, 0), 0);
}

/* Takes the next entry, while both sides progress. */
static struct rdmux_wc next_of_both(const struct scene *scene, struct rdmux_cq *cq)
{
    struct rdmux_wc wc;
    uint64_t until = now_ms() + PATIENT_MS;
    while (rdmux_cq_poll(cq, &wc, 1) == 0) {
        progress(scene->pair.cq_a);
        progress(scene->pair.cq_b);
        assert_true(now_ms() < until);
    }
    return wc;
}

static struct rdmux_remote *import_still(const struct scene *scene, struct rdmux_ep *ep)
{
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    CHECK_OK(rdmux_mr_export(scene->mr, &token));
    CHECK_STATUS(rdmux_remote_import(ep, &token, 0, &remote), RDMUX_IN_PROGRESS);
    struct rdmux_wc wc = next_of_both(scene, ep->cq);
    assert_int_equal(wc.opcode, RDMUX_WC_REMOTE_READY);
    assert_int_equal(wc.status, RDMUX_OK);
    return remote;
}

static void an_end_that_neither_side_can_explain_is_reported_at_once(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, 0, 0, 8, 0);
    post_write(&scene, 1);
    struct span span = span_begin();
    rdmux_provider_failed(device.path, RDMUX_FLUSHED, lost);

    expect_context(scene.pair.cq_a, RDMUX_PEER_GONE, 1);
    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);

    check_span("unexplained", span, 0, GRACE_MS / 2);
    expect_text(scene.pair.a, lost);
    expect_entry(scene.pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    clear_scene(&scene);
}

/* A peer that is suspended, or of a version that skips the question. */
static void a_peer_that_does_not_answer_delays_the_end_only_briefly(void **state)
{
    (void)state;
    struct scene scene;
    set_still_scene(&scene);
    struct span span = span_begin();
    rdmux_provider_failed(device.path, RDMUX_FLUSHED, lost);

    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);

    check_span("unanswered", span, GRACE_MS - SLOW_CLOCK, 2UL * GRACE_MS * SLACK);
    clear_scene(&scene);
}

/* b revoked a region while a's write was in flight. a's path ends, and a does not know that the
 * write was refused. */
static void a_peer_that_invalidated_a_key_reports_it(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, 0, 0, 8, 0);
    post_write(&scene, 1);
    CHECK_OK(rdmux_mr_revoke(scene.mr));
    rdmux_provider_failed(device.path, RDMUX_FLUSHED, lost);

    expect_context(scene.pair.cq_a, RDMUX_OUTCOME_UNKNOWN, 1);
    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_DENIED);
    expect_text(scene.pair.a, "a region was revoked");
    expect_entry(scene.pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_DENIED);
    clear_scene(&scene);
}

/* Two revocations in a row, each of which is answered when its requests are done. */
static void a_peer_whose_revocation_was_answered_has_refused_nothing(void **state)
{
    (void)state;
    enum { REVOCATIONS = 2 };
    struct scene scene;
    struct rdmux_request *requests[REVOCATIONS];
    set_still_scene(&scene);
    CHECK_OK(rdmux_mr_alloc(scene.pair.fabric_b, SHORT, RDMUX_ACCESS_REMOTE_WRITE, &scene.mr));
    for (uintptr_t i = 0; i < REVOCATIONS; i++) {
        scene.remote = import_still(&scene, scene.pair.a);
        post_write(&scene, i);
        requests[i] = device.held[0];
        CHECK_OK(rdmux_mr_revoke(scene.mr)); /* a does not answer */
        assert_int_equal(scene.pair.b->revocations.awaited, i + 1);
        struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
        do { /* a hears of it */
            progress(scene.pair.cq_a);
            CHECK_OK(rdmux_remote_info(scene.remote, &info));
        } while (info.status != RDMUX_DENIED);
    }
    for (uintptr_t i = 0; i < REVOCATIONS; i++) {
        rdmux_provider_done(device.path, requests[i], RDMUX_OK);
        struct rdmux_wc wc = next_of_both(&scene, scene.pair.cq_a);
        assert_int_equal(wc.status, RDMUX_OK);
        while (scene.pair.b->revocations.awaited != REVOCATIONS - 1 - i) {
            progress(scene.pair.cq_a);
            progress(scene.pair.cq_b);
        }
    }
    rdmux_provider_failed(device.path, RDMUX_FLUSHED, lost);

    struct rdmux_wc wc = next_of_both(&scene, scene.pair.cq_a);

    assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(wc.status, RDMUX_PEER_GONE);
    clear_scene(&scene);
}

/* Here a revoked, and b did not answer; a's own path ends without a reason. */
static void a_side_that_invalidated_a_key_needs_no_answer(void **state)
{
    (void)state;
    struct scene scene;
    set_still_scene(&scene);
    CHECK_OK(rdmux_mr_alloc(scene.pair.fabric_a, SHORT, RDMUX_ACCESS_REMOTE_READ, &scene.mr));
    (void)import_still(&scene, scene.pair.b);
    CHECK_OK(rdmux_mr_revoke(scene.mr)); /* b does not answer */
    rdmux_provider_failed(device.path, RDMUX_FLUSHED, lost);

    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_DENIED);

    expect_text(scene.pair.a, "a region was revoked");
    struct rdmux_wc wc = next_of_both(&scene, scene.pair.cq_b);
    assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(wc.status, RDMUX_DENIED);
    clear_scene(&scene);
}

/* b's path ends first, and a refusal is on its way to a, which has a write in flight. */
static void a_peer_with_requests_under_way_waits_for_their_outcome(void **state)
{
    (void)state;
    struct scene scene;
    set_still_scene(&scene);
    CHECK_OK(rdmux_mr_alloc(scene.pair.fabric_b, SHORT, RDMUX_ACCESS_REMOTE_WRITE, &scene.mr));
    scene.remote = import_still(&scene, scene.pair.a);
    post_write(&scene, 1);
    rdmux_provider_failed(scene.pair.b->path, RDMUX_FLUSHED, lost);
    uint64_t until = now_ms() + PATIENT_MS;
    while (!scene.pair.a->session.is_silence_asked) {
        progress(scene.pair.cq_a);
        progress(scene.pair.cq_b);
        assert_true(now_ms() < until);
    }
    progress(scene.pair.cq_b);
    assert_int_equal(scene.pair.b->phase, RDMUX_PHASE_READY);
    rdmux_provider_failed(device.path, RDMUX_DENIED, "device: access denied");

    struct rdmux_wc wc = next_of_both(&scene, scene.pair.cq_b);
    assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(wc.status, RDMUX_DENIED);
    wc = next_of_both(&scene, scene.pair.cq_a);
    assert_int_equal(wc.opcode, RDMUX_WC_WRITE);
    assert_int_equal(wc.status, RDMUX_DENIED);
    wc = next_of_both(&scene, scene.pair.cq_a);
    assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
    assert_int_equal(wc.status, RDMUX_DENIED);
    clear_scene(&scene);
}

/* Both paths end without a reason: neither side waits for the other. */
static void two_ends_without_a_cause_are_reported_at_once(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, 0, 0, 8, 0);
    post_write(&scene, 1);
    struct span span = span_begin();
    assert_true(rdmux_cq_enter(scene.pair.cq_b));
    rdmux_provider_failed(scene.pair.b->path, RDMUX_FLUSHED, lost);
    rdmux_cq_leave(scene.pair.cq_b);
    rdmux_provider_failed(device.path, RDMUX_FLUSHED, lost);

    expect_context(scene.pair.cq_a, RDMUX_PEER_GONE, 1);
    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    expect_entry(scene.pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);

    check_span("both", span, 0, GRACE_MS / 2);
    clear_scene(&scene);
}

/* A process that ends: its end is reported, not the key that was taken from it. */
static void a_peer_that_ends_during_the_question_is_gone(void **state)
{
    (void)state;
    struct scene scene;
    set_still_scene(&scene);
    scene.pair.a->revocations.awaited = 1;
    rdmux_provider_failed(device.path, RDMUX_FLUSHED, lost);
    assert_int_equal(shutdown(rdmux_channel_socket(scene.pair.b->channel), SHUT_RDWR), 0);

    expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    clear_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_that_neither_side_can_explain_is_reported_at_once),
        cmocka_unit_test(a_peer_that_does_not_answer_delays_the_end_only_briefly),
        cmocka_unit_test(a_peer_that_invalidated_a_key_reports_it),
        cmocka_unit_test(a_peer_whose_revocation_was_answered_has_refused_nothing),
        cmocka_unit_test(a_side_that_invalidated_a_key_needs_no_answer),
        cmocka_unit_test(a_peer_with_requests_under_way_waits_for_their_outcome),
        cmocka_unit_test(two_ends_without_a_cause_are_reported_at_once),
        cmocka_unit_test(a_peer_that_ends_during_the_question_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
