/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* attr.probe ranks paths by measurements. The constants of tcp are false here: they say that it is
 * quicker than shared memory, while each of its posts takes PAUSE_NS. The clock of both fabrics is
 * slow, so that the load of the machine decides nothing. */
#include "api/core/ep.h"
#include "api/core/fabric.h"

#include "tests/unit/api_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum {
    SLOWNESS = 16, /* of the clock: a second takes 16 */
    PAUSE_NS = 2000000,
    LIVE_S = 300,               /* how long figures are remembered */
    MEASURED = 8,               /* bytes of the first writes that measure */
    INTERRUPTION_NS = 60000000, /* longer than all measuring may take */
};

static struct {
    const struct rdmux_provider_ops *tcp;
    const struct rdmux_provider_ops *shm;
    struct rdmux_provider_ops liar;
    struct rdmux_provider_ops interrupted;
    _Atomic size_t posts;
    _Atomic uint64_t ahead_ns;      /* how far the clock is ahead */
    _Atomic size_t measuring_posts; /* over shm */
    size_t interrupted_post;        /* the number of the post that takes INTERRUPTION_NS; 0: none */
} world;

static enum rdmux_status liars_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                     size_t max, size_t *count)
{
    enum rdmux_status status = world.tcp->probe(fabric, out, max, count);
    for (size_t i = 0; i < *count && i < max; i++) {
        out[i].latency_ns = 1;
        out[i].bandwidth = UINT64_C(1) << 50;
    }
    return status;
}

static enum rdmux_status slow_post(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                                   size_t count, uint32_t flags, size_t *posted)
{
    atomic_fetch_add(&world.posts, 1);
    atomic_fetch_add(&world.ahead_ns, PAUSE_NS);
    return world.tcp->post(ep, requests, count, flags, posted);
}

static enum rdmux_status interrupted_post(struct rdmux_provider_ep *ep,
                                          struct rdmux_request *requests, size_t count,
                                          uint32_t flags, size_t *posted)
{
    bool measures = requests[0].internal != 0 && requests[0].op == RDMUX_OP_WRITE &&
                    (requests[0].flags & RDMUX_PLACED) != 0 && requests[0].length == MEASURED;
    if (measures && atomic_fetch_add(&world.measuring_posts, 1) + 1 == world.interrupted_post) {
        atomic_fetch_add(&world.ahead_ns, INTERRUPTION_NS);
        *posted = count; /* none is done before the path is given up */
        return RDMUX_OK;
    }
    return world.shm->post(ep, requests, count, flags, posted);
}

static uint64_t slow_clock(void *user)
{
    (void)user;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    return now_ns / SLOWNESS + atomic_load(&world.ahead_ns);
}

static void change_providers(struct rdmux_fabric *fabric)
{
    for (size_t i = 0; i < fabric->registry.count; i++) {
        struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        if (strcmp(entry->name, "tcp") == 0) {
            world.tcp = world.tcp == NULL ? entry->ops : world.tcp;
            world.liar = *world.tcp;
            world.liar.flags &= ~(uint32_t)RDMUX_PROVIDER_LAST_RESORT;
            world.liar.probe = liars_probe;
            world.liar.post = slow_post;
            entry->ops = &world.liar;
        } else if (strcmp(entry->name, "shm") == 0) {
            world.shm = world.shm == NULL ? entry->ops : world.shm;
            world.interrupted = *world.shm;
            world.interrupted.post = interrupted_post;
            entry->ops = &world.interrupted;
        }
    }
}

static void set_scene(struct pair *pair)
{
    memset(pair, 0, sizeof(*pair));
    memset(&world, 0, sizeof(world));
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.clock_ns = slow_clock;
    struct rdmux_fabric **fabrics[] = { &pair->fabric_a, &pair->fabric_b };
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(rdmux_fabric_open(&attr, fabrics[i]));
    }
    change_providers(pair->fabric_a);
    change_providers(pair->fabric_b);
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, NULL, pair->address);
}

static const char *provider_of(struct rdmux_ep *ep)
{
    static char name[RDMUX_NAME_MAX];
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(ep, &info));
    memcpy(name, info.provider, sizeof(name));
    return name;
}

/* Connects, and tells whether the paths were measured. */
static bool connect_and_look(struct pair *pair, uint32_t probe)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.probe = probe;
    size_t posts = atomic_load(&world.posts);
    connect_more(pair, &attr, &pair->a, &pair->b);
    return atomic_load(&world.posts) > posts + 2; /* these are the proof's */
}

static void close_endpoints(struct pair *pair)
{
    CHECK_OK(rdmux_ep_close(pair->a));
    CHECK_OK(rdmux_ep_close(pair->b));
    pair->a = NULL;
    pair->b = NULL;
}

static void unmeasured_paths_are_chosen_by_their_constants(void **state)
{
    (void)state;
    struct pair pair;
    set_scene(&pair);

    connect_and_look(&pair, 0);

    assert_string_equal(provider_of(pair.a), "tcp");
    close_pair(&pair);
}

static void measuring_chooses_the_faster_path(void **state)
{
    (void)state;
    struct pair pair;
    set_scene(&pair);

    assert_true(connect_and_look(&pair, 1));

    assert_string_equal(provider_of(pair.a), "shm");
    assert_string_equal(provider_of(pair.b), "shm");
    check_messages(&pair);
    close_pair(&pair);
}

/* As on a machine whose processors were busy with others. */
static void an_interruption_does_not_count_as_latency_of_the_path(void **state)
{
    (void)state;
    enum { ROUNDS = 8 };
    for (size_t i = 2; i <= ROUNDS; i++) {
        struct pair pair;
        set_scene(&pair);
        world.interrupted_post = i;

        assert_true(connect_and_look(&pair, 1));

        assert_true(atomic_load(&world.measuring_posts) >= i);
        assert_string_equal(provider_of(pair.a), "shm");
        close_pair(&pair);
    }
}

static void both_sides_explain_the_measured_choice(void **state)
{
    (void)state;
    struct pair pair;
    set_scene(&pair);
    connect_and_look(&pair, 1);
    struct rdmux_ep *sides[] = { pair.a, pair.b };
    for (size_t i = 0; i < 2; i++) {
        struct rdmux_explanation *explanation = NULL;
        const char *json = NULL;
        CHECK_OK(rdmux_ep_explanation(sides[i], &explanation));
        CHECK_OK(rdmux_explanation_json(explanation, &json));

        const char *shm = strstr(json, "\"shm\"");
        assert_non_null(shm);
        assert_non_null(strstr(shm, "CHOSEN"));
        assert_non_null(strstr(json, "measured; before it comes shm"));
        rdmux_explanation_free(explanation);
    }
    close_pair(&pair);
}

static void measured_figures_are_cached_for_a_time(void **state)
{
    (void)state;
    struct pair pair;
    set_scene(&pair);
    assert_true(connect_and_look(&pair, 1));
    close_endpoints(&pair);

    assert_false(connect_and_look(&pair, 1));
    assert_string_equal(provider_of(pair.a), "shm");
    close_endpoints(&pair);

    atomic_fetch_add(&world.ahead_ns, (LIVE_S + 1) * UINT64_C(1000000000));
    assert_true(connect_and_look(&pair, 1));
    assert_string_equal(provider_of(pair.a), "shm");
    close_pair(&pair);
}

static void cached_figures_do_not_affect_connections_without_measuring(void **state)
{
    (void)state;
    struct pair pair;
    set_scene(&pair);
    connect_and_look(&pair, 1);
    close_endpoints(&pair);

    connect_and_look(&pair, 0);

    assert_string_equal(provider_of(pair.a), "tcp");
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unmeasured_paths_are_chosen_by_their_constants),
        cmocka_unit_test(measuring_chooses_the_faster_path),
        cmocka_unit_test(an_interruption_does_not_count_as_latency_of_the_path),
        cmocka_unit_test(both_sides_explain_the_measured_choice),
        cmocka_unit_test(measured_figures_are_cached_for_a_time),
        cmocka_unit_test(cached_figures_do_not_affect_connections_without_measuring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
