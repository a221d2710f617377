/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Which users a deregistration waits for, and which thread does the work meanwhile. The owner's
 * clock stands still, so its service thread never finds that the program is away. The caller does
 * all the work. */
#include "api/object/mr.h"
#include "api/object/revoke.h"
#include "tests/unit/api_pair.h"

static uint64_t stopped_clock(void *user)
{
    (void)user;
    return UINT64_C(1000000000);
}

struct scene {
    struct pair pair;
    struct logbook book;
    pthread_t thread;
    _Atomic bool stop;
};

/* The peer's program. */
static void *poll_peer(void *user)
{
    struct scene *scene = user;
    struct rdmux_wc wc;
    while (!atomic_load(&scene->stop)) {
        assert_int_equal(rdmux_cq_poll(scene->pair.cq_a, &wc, 1), 0);
    }
    return NULL;
}

static void open_scene(struct scene *scene, const char *paths)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct pair *pair = &scene->pair;
    memset(scene, 0, sizeof(*scene));
    pthread_mutex_init(&scene->book.lock, NULL);
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.paths = paths;
    attr.clock_ns = stopped_clock;
    attr.log = logbook_write;
    attr.log_user = &scene->book;
    attr.log_level = RDMUX_LOG_WARN;
    pair->fabric_a = open_fabric(paths, 0, NULL);
    CHECK_OK(rdmux_fabric_open(&attr, &pair->fabric_b));
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, NULL, pair->address);
    connect_more(pair, NULL, &pair->a, &pair->b);
}

static void close_scene(struct scene *scene)
{
    close_pair(&scene->pair);
    pthread_mutex_destroy(&scene->book.lock);
}

static struct rdmux_mr *make_region(struct scene *scene, struct rdmux_token *token)
{
    struct rdmux_mr *mr = NULL;
    CHECK_OK(rdmux_mr_alloc(scene->pair.fabric_b, 4096,
                            RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ, &mr));
    CHECK_OK(rdmux_mr_export(mr, token));
    return mr;
}

static void poll_both(struct scene *scene)
{
    struct rdmux_wc wc;
    assert_int_equal(rdmux_cq_poll(scene->pair.cq_a, &wc, 1), 0);
    assert_int_equal(rdmux_cq_poll(scene->pair.cq_b, &wc, 1), 0);
}

static struct rdmux_remote *import(struct scene *scene, const struct rdmux_token *token)
{
    struct rdmux_remote *remote = NULL;
    struct rdmux_wc wc;
    struct rdmux_wc none;
    uint64_t until = now_ms() + PATIENT_MS;
    CHECK_STATUS(rdmux_remote_import(scene->pair.a, token, 0, &remote), RDMUX_IN_PROGRESS);
    /* The service thread may handle the answer: then only the entry reports it. */
    while (rdmux_cq_poll(scene->pair.cq_a, &wc, 1) == 0) {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(scene->pair.cq_b, &none, 1), 0);
    }
    assert_int_equal(wc.opcode, RDMUX_WC_REMOTE_READY);
    assert_int_equal(wc.status, RDMUX_OK);
    poll_both(scene);
    return remote;
}

static bool has_importer(struct scene *scene)
{
    return rdmux_mr_has_importer(scene->pair.fabric_b, scene->pair.b->id, RDMUX_ACCESS_REMOTE_READ);
}

/* The peer's message comes over the control channel. */
static void await_no_importer(struct scene *scene)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (has_importer(scene)) {
        assert_true(now_ms() < until);
        poll_both(scene);
    }
}

static void check_caller_works(const char *paths)
{
    struct scene scene;
    struct rdmux_token token;
    open_scene(&scene, paths);
    struct rdmux_mr *mr = make_region(&scene, &token);
    struct rdmux_remote *remote = import(&scene, &token);
    assert_true(has_importer(&scene));
    assert_int_equal(pthread_create(&scene.thread, NULL, poll_peer, &scene), 0);

    rdmux_mr_deregister(mr);

    atomic_store(&scene.stop, true);
    assert_int_equal(pthread_join(scene.thread, NULL), 0);
    struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
    CHECK_OK(rdmux_remote_info(remote, &info));
    assert_int_equal(info.status, RDMUX_DENIED); /* it got the report */
    assert_int_equal(logbook_count(&scene.book, "did not answer"), 0);
    assert_int_equal(atomic_load(&scene.pair.cq_b->revocations), 0);
    check_message(scene.pair.a, scene.pair.cq_a, scene.pair.b, scene.pair.cq_b, 7);
    rdmux_remote_close(remote);
    close_scene(&scene);
}

static void the_caller_works_on_its_own_cq_while_it_waits(void **state)
{
    (void)state;
    check_caller_works("tcp");
    check_caller_works("shm");
}

static void an_endpoint_that_closed_all_its_imports_is_no_importer(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_token token;
    open_scene(&scene, "tcp");
    struct rdmux_mr *mr = make_region(&scene, &token);
    struct rdmux_remote *one = import(&scene, &token);
    struct rdmux_remote *two = import(&scene, &token);

    rdmux_remote_close(one);
    check_message(scene.pair.a, scene.pair.cq_a, scene.pair.b, scene.pair.cq_b, 1);
    assert_true(has_importer(&scene));
    rdmux_remote_close(two);
    await_no_importer(&scene);
    one = import(&scene, &token);
    assert_true(has_importer(&scene));
    rdmux_remote_close(one);
    await_no_importer(&scene);

    /* No call polls the peer, so it would not answer. */
    rdmux_mr_deregister(mr);
    assert_int_equal(logbook_count(&scene.book, "did not answer"), 0);
    close_scene(&scene);
}

static void closing_a_revoked_import_does_not_count_against_the_next_one(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_token token;
    open_scene(&scene, "tcp");
    struct rdmux_mr *mr = make_region(&scene, &token);
    struct rdmux_remote *one = import(&scene, &token);
    assert_int_equal(pthread_create(&scene.thread, NULL, poll_peer, &scene), 0);
    CHECK_OK(rdmux_mr_revoke(mr));
    atomic_store(&scene.stop, true);
    assert_int_equal(pthread_join(scene.thread, NULL), 0);
    CHECK_OK(rdmux_mr_export(mr, &token));
    struct rdmux_remote *two = import(&scene, &token);

    uint32_t old_id = one->id;
    rdmux_remote_close(one);
    rdmux_mr_import_closed(scene.pair.fabric_b, mr->id, scene.pair.b->id, old_id, 1, false);
    check_message(scene.pair.a, scene.pair.cq_a, scene.pair.b, scene.pair.cq_b, 2);
    assert_true(has_importer(&scene));

    rdmux_remote_close(two);
    await_no_importer(&scene);
    rdmux_mr_deregister(mr);
    close_scene(&scene);
}

static void an_importer_that_may_still_read_is_checked_after_its_close(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_token token;
    open_scene(&scene, "tcp");
    struct rdmux_mr *mr = make_region(&scene, &token);
    struct rdmux_remote *remote = import(&scene, &token);

    rdmux_mr_import_closed(scene.pair.fabric_b, mr->id, scene.pair.b->id, remote->id, 9, true);
    assert_false(has_importer(&scene));
    assert_false(rdmux_list_empty(&mr->importers)); /* for devices that go on answering reads */
    rdmux_mr_import_closed(scene.pair.fabric_b, mr->id, scene.pair.b->id, remote->id, 1, false);
    assert_false(rdmux_list_empty(&mr->importers));
    rdmux_mr_import_closed(scene.pair.fabric_b, mr->id + 1, scene.pair.b->id, 1, 1, false);

    rdmux_remote_close(remote);
    rdmux_mr_deregister(mr);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_caller_works_on_its_own_cq_while_it_waits),
        cmocka_unit_test(an_endpoint_that_closed_all_its_imports_is_no_importer),
        cmocka_unit_test(closing_a_revoked_import_does_not_count_against_the_next_one),
        cmocka_unit_test(an_importer_that_may_still_read_is_checked_after_its_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
