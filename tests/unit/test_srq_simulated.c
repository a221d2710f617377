/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Receives that endpoints over two kinds of simulated adapters share. */
#include "api/core/srq.h"
#include "tests/unit/simulated_scene.h"

enum { KINDS_LINKS = 4, KINDS_DEPTH = 16, KINDS_ROUNDS = 60, KINDS_BURST = 6, KINDS_LAST = 3 };

/* Endpoints of b share receives. Those of even number are over the RoCE adapter at first, the others
 * over iWARP. A receive's context is its slot. */
struct kinds {
    struct scene scene;
    struct rdmux_srq *srq;
    struct rdmux_ep *a[KINDS_LINKS];
    struct rdmux_ep *b[KINDS_LINKS];
    uint64_t sent[KINDS_LINKS];
    uint64_t came[KINDS_LINKS];
    uint64_t words[KINDS_DEPTH];
    bool is_posted[KINDS_DEPTH];
};

static struct rdmux_fabric *open_over_both(void)
{
    struct rdmux_fabric *fabric = open_fabric("roce,iwarp", RDMUX_FABRIC_NO_SERVICE_THREAD, NULL);
    for (size_t i = 0; i < fabric->registry.count; i++) {
        struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        if (strcmp(entry->name, "roce") == 0) {
            entry->ops = &rdmux_roce_provider;
        } else if (strcmp(entry->name, "iwarp") == 0) {
            entry->ops = &rdmux_iwarp_provider;
        }
    }
    return fabric;
}

static void post_kinds(struct kinds *kinds, size_t slot)
{
    assert_false(kinds->is_posted[slot]);
    kinds->is_posted[slot] = true;
    CHECK_OK(rdmux_srq_recv(kinds->srq, &kinds->words[slot], sizeof(uint64_t), NULL, CONTEXT(slot)));
}

static const char *provider_of(struct rdmux_ep *ep)
{
    static struct rdmux_ep_info info;
    info = (struct rdmux_ep_info)RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(ep, &info));
    return info.provider;
}

/* even: the paths of the endpoints of even number. */
static void set_kinds(struct kinds *kinds, const char *even, uint32_t failover)
{
    memset(kinds, 0, sizeof(*kinds));
    struct scene *scene = &kinds->scene;
    struct pair *pair = &scene->pair;
    struct rdmux_srq_attr srq_attr = RDMUX_SRQ_ATTR_INIT;
    srq_attr.depth = KINDS_DEPTH;
    host_addresses[0] = "127.0.0.1";
    host_addresses[1] = NULL;
    scene->world = sim_world_create(NULL);
    assert_non_null(scene->world);
    struct sim_host *host = sim_host_add(scene->world);
    sim_default_host(host);
    scene->device = sim_device_add(host, "link=roce");
    assert_non_null(scene->device);
    assert_non_null(sim_device_add(host, "link=iwarp,addr=127.0.0.1"));
    for (unsigned i = 0; i < GIDS; i++) {
        set_gid(scene->device, i, i == 0 ? "127.0.0.1" : NULL, NEAR);
    }
    pair->fabric_a = open_over_both();
    pair->fabric_b = open_over_both();
    listen_in(scene);
    CHECK_OK(rdmux_srq_create(pair->fabric_b, pair->cq_b, &srq_attr, &kinds->srq));
    for (size_t i = 0; i < KINDS_DEPTH / 2; i++) {
        post_kinds(kinds, i); /* the others when the adapters are known */
    }
    for (size_t i = 0; i < KINDS_LINKS; i++) {
        struct rdmux_ep_attr as_a = RDMUX_EP_ATTR_INIT;
        as_a.paths = i % 2 == 0 ? even : "iwarp";
        as_a.failover = i % 2 == 0 ? failover : 0;
        struct rdmux_ep_attr as_b = as_a;
        as_b.srq = kinds->srq;
        connect_as(pair, &as_a, &as_b, &kinds->a[i], &kinds->b[i]);
        assert_string_equal(provider_of(kinds->b[i]), i % 2 == 0 ? "roce" : "iwarp");
    }
    for (size_t i = KINDS_DEPTH / 2; i < KINDS_DEPTH; i++) {
        post_kinds(kinds, i);
    }
}

static void clear_kinds(struct kinds *kinds)
{
    for (size_t i = 0; i < KINDS_LINKS; i++) {
        CHECK_OK(rdmux_ep_close(kinds->a[i]));
        CHECK_OK(rdmux_ep_close(kinds->b[i]));
    }
    CHECK_OK(rdmux_srq_destroy(kinds->srq));
    clear_scene(&kinds->scene);
}

static void send_kinds(struct kinds *kinds, size_t link)
{
    uint64_t word = kinds->sent[link]++;
    CHECK_OK(rdmux_send(kinds->a[link], &word, sizeof(word), NULL, NULL,
                        RDMUX_INLINE | RDMUX_UNSIGNALED));
}

/* Takes b's next entry. A message is the next one of its endpoint, in a receive that was posted. */
static struct rdmux_wc take_kinds(struct kinds *kinds, bool posts_again)
{
    struct rdmux_wc wc = await_entry(&kinds->scene.pair, kinds->scene.pair.cq_b);
    if (wc.opcode != RDMUX_WC_RECV) {
        return wc;
    }
    size_t link = 0;
    while (link < KINDS_LINKS && kinds->b[link] != wc.ep) {
        link++;
    }
    size_t slot = (size_t)(uintptr_t)wc.context;
    assert_in_range(link, 0, KINDS_LINKS - 1);
    assert_int_equal(wc.status, RDMUX_OK);
    assert_true(kinds->is_posted[slot]);
    assert_int_equal(kinds->words[slot], kinds->came[link]);
    kinds->is_posted[slot] = false;
    kinds->came[link]++;
    if (posts_again) {
        post_kinds(kinds, slot);
    }
    return wc;
}

/* Bursts of messages over both adapters, in a random order. */
static void send_bursts(struct kinds *kinds)
{
    unsigned seed = 3;
    for (size_t round = 0; round < KINDS_ROUNDS; round++) {
        for (size_t i = 0; i < KINDS_BURST; i++) {
            send_kinds(kinds, (size_t)rand_r(&seed) % KINDS_LINKS);
        }
        for (size_t i = 0; i < KINDS_BURST; i++) {
            assert_int_equal(take_kinds(kinds, true).opcode, RDMUX_WC_RECV);
        }
    }
}

/* Messages by one endpoint fill so many receives, without a post. */
static void fill_receives(struct kinds *kinds, size_t link, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        send_kinds(kinds, link);
    }
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(take_kinds(kinds, false).opcode, RDMUX_WC_RECV);
    }
}

static void receives_of_an_adapter_that_is_removed_serve_one_of_another_kind(void **state)
{
    (void)state;
    struct kinds kinds;
    set_kinds(&kinds, "roce", RDMUX_FAILOVER_OFF);
    send_bursts(&kinds);
    for (size_t i = 0; i < KINDS_LAST; i++) {
        send_kinds(&kinds, 0);
        send_kinds(&kinds, 2);
    }

    sim_device_remove(kinds.scene.device);

    for (size_t ended = 0; ended < KINDS_LINKS / 2;) {
        struct rdmux_wc wc = take_kinds(&kinds, true);
        ended += wc.opcode == RDMUX_WC_DISCONNECTED;
    }
    assert_int_equal(kinds.srq->device_count, 1);
    fill_receives(&kinds, 1, KINDS_DEPTH);
    clear_kinds(&kinds);
}

static void receives_follow_an_endpoint_that_moves_to_another_kind_of_adapter(void **state)
{
    (void)state;
    struct kinds kinds;
    set_kinds(&kinds, "roce,iwarp", RDMUX_FAILOVER_ON);
    send_bursts(&kinds);
    for (size_t i = 0; i < KINDS_LAST; i++) {
        send_kinds(&kinds, 0);
        send_kinds(&kinds, 2);
    }

    sim_device_remove(kinds.scene.device);

    size_t moved = 0;
    while (moved < KINDS_LINKS / 2 || kinds.came[0] < kinds.sent[0] ||
           kinds.came[2] < kinds.sent[2]) {
        struct rdmux_wc wc = take_kinds(&kinds, true);
        assert_true(wc.opcode == RDMUX_WC_RECV || wc.opcode == RDMUX_WC_PATH_CHANGED);
        moved += wc.opcode == RDMUX_WC_PATH_CHANGED;
    }
    assert_string_equal(provider_of(kinds.b[0]), "iwarp");
    send_bursts(&kinds);
    fill_receives(&kinds, 0, KINDS_DEPTH);
    clear_kinds(&kinds);
}

static void an_endpoint_over_roce_cannot_be_paused_and_one_over_iwarp_can(void **state)
{
    (void)state;
    struct kinds kinds;
    struct rdmux_wc none;
    set_kinds(&kinds, "roce", RDMUX_FAILOVER_OFF);
    struct pair *pair = &kinds.scene.pair;
    CHECK_STATUS(rdmux_ep_pause(kinds.b[0], 1), RDMUX_UNSUPPORTED);
    assert_non_null(strstr(rdmux_last_error(), "roce"));
    CHECK_OK(rdmux_ep_pause(kinds.b[0], 0));

    CHECK_OK(rdmux_ep_pause(kinds.b[1], 1));
    for (size_t i = 0; i < KINDS_LAST; i++) {
        send_kinds(&kinds, 1);
    }
    poll_both(pair);
    assert_int_equal(rdmux_cq_poll(pair->cq_b, &none, 1), 0);
    fill_receives(&kinds, 3, KINDS_DEPTH / 2); /* the other half is with the RoCE adapter */

    CHECK_OK(rdmux_ep_pause(kinds.b[1], 0));
    for (size_t i = 0; i < KINDS_DEPTH; i++) {
        if (!kinds.is_posted[i]) {
            post_kinds(&kinds, i);
        }
    }
    while (kinds.came[1] < kinds.sent[1]) {
        assert_int_equal(take_kinds(&kinds, true).opcode, RDMUX_WC_RECV);
    }
    clear_kinds(&kinds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receives_of_an_adapter_that_is_removed_serve_one_of_another_kind),
        cmocka_unit_test(receives_follow_an_endpoint_that_moves_to_another_kind_of_adapter),
        cmocka_unit_test(an_endpoint_over_roce_cannot_be_paused_and_one_over_iwarp_can),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
