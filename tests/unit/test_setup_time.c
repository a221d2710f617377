/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Which time counts against a path attempt. Each side has a clock that stands still until the test
 * moves it, and no threads: a side runs only when the test makes it take a step. */
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/session/setup_state.h"
#include "tests/unit/api_pair.h"

enum {
    MANUAL = RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD,
    STEPS_MAX = 1000,    /* of a side, in which a connection is there in any case */
    STEP_MS = 50,        /* of a side that is kept running */
    ATTEMPT_MS = 500,    /* path_timeout_ms; the connector waits for twice that and a second */
    SUSPENDED_MS = 3000, /* above both, below hello_timeout_ms */
};

struct scene {
    struct pair pair;
    uint64_t clock_a_ns;
    uint64_t clock_b_ns;
    bool connected;
    enum rdmux_status status; /* of a's CONNECTED */
};

static uint64_t read_clock(void *user)
{
    const uint64_t *clock_ns = user;
    return *clock_ns;
}

static struct rdmux_fabric *open_clocked_fabric(uint64_t *clock_ns)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    *clock_ns = UINT64_C(1000000000);
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS | MANUAL;
    attr.paths = "tcp";
    attr.clock_ns = read_clock;
    attr.clock_user = clock_ns;
    CHECK_OK(rdmux_fabric_open(&attr, &fabric));
    return fabric;
}

/* A connect has begun, and neither side has made a step for it. */
static void set_scene(struct scene *scene)
{
    struct pair *pair = &scene->pair;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.path_timeout_ms = ATTEMPT_MS;
    memset(scene, 0, sizeof(*scene));
    pair->fabric_a = open_clocked_fabric(&scene->clock_a_ns);
    pair->fabric_b = open_clocked_fabric(&scene->clock_b_ns);
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, NULL, pair->address);
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, &attr, 0, &pair->a),
                 RDMUX_IN_PROGRESS);
}

static void step_a(struct scene *scene)
{
    struct rdmux_wc wc;
    CHECK_OK(rdmux_fabric_progress(scene->pair.fabric_a));
    if (!scene->connected && rdmux_cq_poll(scene->pair.cq_a, &wc, 1) == 1) {
        assert_int_equal(wc.opcode, RDMUX_WC_CONNECTED);
        scene->connected = true;
        scene->status = (enum rdmux_status)wc.status;
    }
}

static void step_b(struct scene *scene)
{
    struct pair *pair = &scene->pair;
    CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
    if (pair->b == NULL) {
        enum rdmux_status status = rdmux_accept(pair->listener, pair->cq_b, NULL, 0, &pair->b);
        assert_true(status == RDMUX_OK || status == RDMUX_AGAIN);
    }
}

static bool is_there(const struct scene *scene)
{
    return scene->connected && scene->pair.b != NULL;
}

/* Both sides in turn, b first. */
static void step(struct scene *scene, unsigned number)
{
    if (number % 2 == 0) {
        step_b(scene);
    } else {
        step_a(scene);
    }
}

static void finish(struct scene *scene, unsigned before)
{
    for (unsigned i = 0; i < STEPS_MAX && !is_there(scene); i++) {
        step(scene, i);
    }
    if (!is_there(scene) || scene->status != RDMUX_OK) {
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        CHECK_OK(rdmux_ep_info(scene->pair.a, &info));
        fail_msg("after %u steps: %s: %s", before,
                 scene->connected ? rdmux_status_name(scene->status) : "not connected", info.text);
    }
    check_messages(&scene->pair);
}

/* Tells whether b is trying the path. */
static bool is_on_trial(const struct scene *scene)
{
    const struct rdmux_list *accepting = &scene->pair.cq_b->lists.accepting;
    const struct rdmux_ep *ep = RDMUX_CONTAINER(accepting->next, struct rdmux_ep, places.accepting);
    return !rdmux_list_empty(accepting) && ep->setup != NULL && ep->setup->attempt.path != NULL;
}

static void a_connection_is_made_although_both_sides_were_suspended(void **state)
{
    (void)state;
    unsigned on_trial = 0;
    bool over = false;
    for (unsigned before = 0; !over; before++) {
        struct scene scene;
        set_scene(&scene);
        for (unsigned i = 0; i < before && !is_there(&scene); i++) {
            step(&scene, i);
        }
        on_trial += is_on_trial(&scene);
        over = is_there(&scene);

        scene.clock_a_ns += SUSPENDED_MS * UINT64_C(1000000);
        scene.clock_b_ns += SUSPENDED_MS * UINT64_C(1000000);

        finish(&scene, before);
        close_pair(&scene.pair);
    }
    assert_in_range(on_trial, 2, STEPS_MAX); /* there were such moments */
}

static void a_connection_is_made_although_the_acceptor_was_suspended(void **state)
{
    (void)state;
    enum { MOST_MS = 2 * ATTEMPT_MS };
    bool over = false;
    for (unsigned before = 0; !over; before++) {
        struct scene scene;
        set_scene(&scene);
        for (unsigned i = 0; i < before && !is_there(&scene); i++) {
            step(&scene, i);
        }
        over = is_there(&scene);

        for (unsigned ms = 0; ms < MOST_MS; ms += STEP_MS) {
            scene.clock_a_ns += STEP_MS * UINT64_C(1000000);
            step_a(&scene);
        }
        scene.clock_b_ns += MOST_MS * UINT64_C(1000000);

        finish(&scene, before);
        close_pair(&scene.pair);
    }
}

/* The acceptor waits for the path, and as long again for a word of the connector. */
static void a_running_acceptor_gives_a_silent_connector_up(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene);
    for (unsigned i = 0; i < STEPS_MAX && !is_on_trial(&scene); i++) {
        step(&scene, i);
    }
    assert_true(is_on_trial(&scene));
    unsigned ms = 0;
    for (; ms < ATTEMPT_MS - STEP_MS; ms += STEP_MS) {
        scene.clock_b_ns += STEP_MS * UINT64_C(1000000);
        step_b(&scene);
    }
    assert_true(is_on_trial(&scene));
    for (; ms < ATTEMPT_MS + 2 * STEP_MS; ms += STEP_MS) {
        scene.clock_b_ns += STEP_MS * UINT64_C(1000000);
        step_b(&scene);
    }

    assert_false(is_on_trial(&scene));

    for (; ms < 2 * ATTEMPT_MS + 4 * STEP_MS; ms += STEP_MS) {
        scene.clock_b_ns += STEP_MS * UINT64_C(1000000);
        step_b(&scene);
    }
    assert_true(rdmux_list_empty(&scene.pair.cq_b->lists.accepting));
    close_pair(&scene.pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_is_made_although_both_sides_were_suspended),
        cmocka_unit_test(a_connection_is_made_although_the_acceptor_was_suspended),
        cmocka_unit_test(a_running_acceptor_gives_a_silent_connector_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
