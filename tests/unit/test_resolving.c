/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Name resolution may block for long; it costs the calling function no more than its timeout. */
#include "tests/unit/api_pair.h"
#include "tests/unit/fair_time.h"

#include <netdb.h>
#include <pthread.h>

/* ------------------------------------------------------------------------------ the name server */

enum {
    SHORT_MS = 100, /* a caller's patience */
    DEAD_MS = 5000, /* of the name server: a call that waits for it fails the test, but soon */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool dead;        /* "slow" is not answered */
    size_t asked;     /* for names, not for numbers */
    size_t answered;  /* of these */
    pthread_t thread; /* that asked last */
} server = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

int __real_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out);

/* "slow" and "fast" are this machine, every other name is unknown. */
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    if (node == NULL || (hints->ai_flags & AI_NUMERICHOST) != 0 || *node < 'A') {
        return __real_getaddrinfo(node, service, hints, out);
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += DEAD_MS / 1000;
    pthread_mutex_lock(&server.lock);
    server.asked++;
    server.thread = pthread_self();
    pthread_cond_broadcast(&server.changed);
    bool slow = strcmp(node, "slow") == 0;
    while (slow && server.dead &&
           pthread_cond_timedwait(&server.changed, &server.lock, &until) == 0) {
    }
    server.answered++;
    pthread_cond_broadcast(&server.changed);
    pthread_mutex_unlock(&server.lock);
    return slow || strcmp(node, "fast") == 0 ? __real_getaddrinfo("127.0.0.1", service, hints, out)
                                             : EAI_NONAME;
}

static void start_server(bool dead)
{
    server.dead = dead;
    server.asked = 0;
    server.answered = 0;
}

static void revive_server(void)
{
    pthread_mutex_lock(&server.lock);
    server.dead = false;
    pthread_cond_broadcast(&server.changed);
    pthread_mutex_unlock(&server.lock);
}

static void wait_until_asked(size_t times)
{
    pthread_mutex_lock(&server.lock);
    while (server.asked < times) {
        pthread_cond_wait(&server.changed, &server.lock);
    }
    pthread_mutex_unlock(&server.lock);
}

/* ------------------------------------------------------------------------------------ the scene */

struct scene {
    struct pair pair;
    struct meter meter;
    char slow[RDMUX_ADDRESS_MAX]; /* the listener's address by these names */
    char fast[RDMUX_ADDRESS_MAX];
    char unknown[RDMUX_ADDRESS_MAX];
};

static void set_scene(struct scene *scene, bool dead, uint32_t flags)
{
    memset(scene, 0, sizeof(*scene));
    start_server(dead);
    struct pair *pair = &scene->pair;
    pair->fabric_a = open_metered_fabric("tcp", flags, NULL, &scene->meter);
    pair->fabric_b = open_fabric("tcp", 0, NULL);
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, NULL, pair->address);
    const char *port = strrchr(pair->address, ':');
    assert_non_null(port);
    (void)snprintf(scene->slow, sizeof(scene->slow), "slow%s", port);
    (void)snprintf(scene->fast, sizeof(scene->fast), "fast%s", port);
    (void)snprintf(scene->unknown, sizeof(scene->unknown), "unknown%s", port);
}

/* Whatever is still asked for is answered and freed by then. */
static void clear_scene(struct scene *scene)
{
    revive_server();
    close_pair(&scene->pair);
    assert_int_equal(server.asked, server.answered);
    assert_int_equal(atomic_load(&scene->meter.pieces), 0);
}

/* ----------------------------------------------------------------------------------------- time */

static void an_explain_of_an_unresolved_name_ends_in_time(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, true, 0);
    struct rdmux_explanation *explanation = (struct rdmux_explanation *)&scene;
    struct span span = span_begin();

    CHECK_STATUS(rdmux_explain(scene.pair.fabric_a, scene.slow, NULL, SHORT_MS, &explanation),
                 RDMUX_TIMED_OUT);

    check_span("explain", span, SHORT_MS, DEAD_MS / 2);
    assert_null(explanation);
    assert_non_null(strstr(rdmux_last_error(), scene.slow));
    assert_non_null(strstr(rdmux_last_error(), "resolved"));
    clear_scene(&scene);
}

static void a_name_that_was_not_resolved_in_time_does_no_harm_later(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, true, 0);
    struct rdmux_explanation *explanation = NULL;
    for (size_t i = 0; i < 3; i++) {
        CHECK_STATUS(rdmux_explain(scene.pair.fabric_a, scene.slow, NULL, 1, &explanation),
                     RDMUX_TIMED_OUT);
    }
    wait_until_asked(1);
    revive_server();

    CHECK_OK(rdmux_explain(scene.pair.fabric_a, scene.slow, NULL, PATIENT_MS, &explanation));

    assert_int_equal(explanation->status, RDMUX_OK);
    assert_string_equal(explanation->peer_address, scene.pair.address);
    rdmux_explanation_free(explanation);
    assert_int_equal(server.asked, 4); /* one after the other */
    clear_scene(&scene);
}

static void a_connect_to_an_unresolved_name_ends_in_time(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, true, 0);
    struct span span = span_begin();

    CHECK_STATUS(rdmux_connect(scene.pair.fabric_a, scene.pair.cq_a, scene.slow, NULL, SHORT_MS,
                               &scene.pair.a),
                 RDMUX_TIMED_OUT);

    check_span("connect", span, 0, DEAD_MS / 2);
    assert_null(scene.pair.a);
    clear_scene(&scene);
}

/* -------------------------------------------------------------------------------------- threads */

static void the_worker_thread_resolves_names_and_the_caller_without_one(void **state)
{
    (void)state;
    static const uint32_t flags[] = { 0, RDMUX_FABRIC_NO_WORKER_THREAD };
    for (size_t i = 0; i < RDMUX_COUNT_OF(flags); i++) {
        struct scene scene;
        struct rdmux_explanation *explanation = NULL;
        set_scene(&scene, false, flags[i]);

        CHECK_OK(rdmux_explain(scene.pair.fabric_a, scene.fast, NULL, PATIENT_MS, &explanation));

        assert_int_equal(server.asked, 1);
        assert_int_equal(pthread_equal(server.thread, pthread_self()) != 0, flags[i] != 0);
        rdmux_explanation_free(explanation);
        clear_scene(&scene);
    }
}

static void a_numeric_address_needs_no_resolver(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_explanation *explanation = NULL;
    set_scene(&scene, true, 0);

    CHECK_OK(rdmux_explain(scene.pair.fabric_a, scene.pair.address, NULL, PATIENT_MS, &explanation));

    assert_int_equal(server.asked, 0);
    rdmux_explanation_free(explanation);
    clear_scene(&scene);
}

/* ------------------------------------------------------------------------------------- failures */

static void an_unknown_name_is_reported_by_name(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_explanation *explanation = NULL;
    set_scene(&scene, false, 0);

    CHECK_STATUS(rdmux_explain(scene.pair.fabric_a, scene.unknown, NULL, PATIENT_MS, &explanation),
                 RDMUX_INVALID);

    assert_null(explanation);
    assert_non_null(strstr(rdmux_last_error(), "\"unknown\""));
    clear_scene(&scene);
}

/* The worker thread found the error; its text reaches an endpoint that no call waits for. */
static void an_endpoint_of_an_unknown_name_reports_it(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    set_scene(&scene, false, 0);
    CHECK_STATUS(
        rdmux_connect(scene.pair.fabric_a, scene.pair.cq_a, scene.unknown, NULL, 0, &scene.pair.a),
        RDMUX_IN_PROGRESS);

    expect_entry(scene.pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_INVALID);

    CHECK_OK(rdmux_ep_info(scene.pair.a, &info));
    assert_int_equal(info.status, RDMUX_INVALID);
    assert_non_null(strstr(info.text, "\"unknown\""));
    clear_scene(&scene);
}

/* The worker thread may be about to release the job whose answer the caller has taken. */
static void wait_for_pieces(struct meter *meter, size_t expected)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (atomic_load(&meter->pieces) != expected && now_ms() < until) {
        pause_ms(1);
    }
    assert_int_equal(atomic_load(&meter->pieces), expected);
}

static void a_failure_of_any_allocation_leaks_nothing(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_explanation *explanation = NULL;
    set_scene(&scene, false, 0);
    size_t before = atomic_load(&scene.meter.pieces);
    size_t failures = 0;
    bool reached = true;
    for (long failing = 1; reached; failing++) {
        atomic_store(&scene.meter.left, failing);
        enum rdmux_status status = rdmux_explain(scene.pair.fabric_a, scene.fast, NULL, PATIENT_MS,
                                                 &explanation);
        reached = atomic_exchange(&scene.meter.left, 0) <= 0;
        /* Without memory for a query of a provider's paths, a line is missing, or a path. */
        if (status == RDMUX_NO_MEMORY) {
            assert_null(explanation);
            failures++;
        } else if (status != RDMUX_NO_PATH) {
            assert_string_equal(rdmux_status_name(status), "RDMUX_OK");
        }
        rdmux_explanation_free(explanation);
        wait_for_pieces(&scene.meter, before);
    }
    assert_true(failures >= 4); /* room for a frame, the offer, the handshake, the name */
    clear_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_explain_of_an_unresolved_name_ends_in_time),
        cmocka_unit_test(a_name_that_was_not_resolved_in_time_does_no_harm_later),
        cmocka_unit_test(a_connect_to_an_unresolved_name_ends_in_time),
        cmocka_unit_test(the_worker_thread_resolves_names_and_the_caller_without_one),
        cmocka_unit_test(a_numeric_address_needs_no_resolver),
        cmocka_unit_test(an_unknown_name_is_reported_by_name),
        cmocka_unit_test(an_endpoint_of_an_unknown_name_reports_it),
        cmocka_unit_test(a_failure_of_any_allocation_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
