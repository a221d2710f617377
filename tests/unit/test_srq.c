/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Receives shared by endpoints of several fabrics: a reserved receive is always delivered, and no
 * sender waits forever. */
#include "api/core/srq.h"
#include "api/data/srq.h"
#include "api/progress/cq_owner.h"
#include "tests/unit/api_pair.h"

enum { DEPTH = 64 };

/* Peers in one process whose endpoints here share their receives. */
struct scene {
    struct pair pair;
    struct rdmux_srq *srq;
    uint64_t slots[DEPTH]; /* a receive's context is its slot */
};

/* A connection: a sends, b receives from the SRQ. */
struct link {
    struct rdmux_ep *a;
    struct rdmux_ep *b;
};

static void set_scene_with(struct scene *scene, uint32_t flags_a, uint32_t flags_b)
{
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    attr.depth = DEPTH;
    memset(scene, 0, sizeof(*scene));
    open_sides(&scene->pair, "shm,tcp", flags_a, flags_b);
    CHECK_OK(rdmux_srq_create(scene->pair.fabric_b, scene->pair.cq_b, &attr, &scene->srq));
}

static void set_scene(struct scene *scene, uint32_t flags_a)
{
    set_scene_with(scene, flags_a, 0);
}

static struct link link_over(struct scene *scene, const char *path)
{
    struct pair *pair = &scene->pair;
    struct link link = { NULL, NULL };
    struct rdmux_ep_attr connecting = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep_attr accepting = RDMUX_EP_ATTR_INIT;
    connecting.paths = path;
    accepting.srq = scene->srq;
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, &connecting, 0, &link.a),
                 RDMUX_IN_PROGRESS);
    bool connected = false;
    uint64_t until = now_ms() + PATIENT_MS;
    while (!connected || link.b == NULL) {
        struct rdmux_wc wc;
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        connected = rdmux_cq_poll(pair->cq_a, &wc, 1) == 1 || connected;
        if (link.b == NULL) {
            enum rdmux_status status = rdmux_accept(pair->listener, pair->cq_b, &accepting, 1,
                                                    &link.b);
            assert_true(status == RDMUX_OK || status == RDMUX_TIMED_OUT);
        }
    }
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(link.b, &info));
    assert_string_equal(info.provider, path);
    return link;
}

static void unlink_pair(struct link *link)
{
    CHECK_OK(rdmux_ep_close(link->b));
    CHECK_OK(rdmux_ep_close(link->a));
}

/* The counts of the SRQ, read as the owner of the cq, which the service thread may be between two calls. */
struct srq_counts {
    uint64_t posted;
    uint64_t set_aside;
    size_t waiting; /* endpoints */
};

static struct srq_counts srq_counts(struct scene *scene)
{
    assert_true(rdmux_cq_enter(scene->pair.cq_b));
    const struct rdmux_list *waiting = &scene->srq->waiting;
    struct srq_counts counts = { .posted = scene->srq->posted_count,
                                 .set_aside = scene->srq->set_aside };
    for (const struct rdmux_list *at = waiting->next; at != waiting; at = at->next) {
        counts.waiting++;
    }
    rdmux_cq_leave(scene->pair.cq_b);
    return counts;
}

/* Checks that every reserved receive has been returned. */
static void clear_scene(struct scene *scene)
{
    const struct srq_counts counts = srq_counts(scene);
    assert_int_equal(counts.set_aside, 0);
    assert_int_equal(counts.waiting, 0);
    CHECK_OK(rdmux_srq_destroy(scene->srq));
    close_pair(&scene->pair);
}

static void post_receives(struct scene *scene, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        CHECK_OK(rdmux_srq_recv(scene->srq, &scene->slots[i], sizeof(uint64_t), NULL, CONTEXT(i)));
    }
}

static void send_word(struct rdmux_ep *ep, uint64_t word)
{
    CHECK_OK(rdmux_send(ep, &word, sizeof(word), NULL, NULL, RDMUX_INLINE | RDMUX_UNSIGNALED));
}

/* The next message, which must be of this endpoint. Returns its slot. */
static size_t expect_word(struct scene *scene, const struct rdmux_ep *from, uint64_t word)
{
    struct rdmux_wc wc = expect_entry(scene->pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
    size_t slot = (size_t)(uintptr_t)wc.context;
    assert_ptr_equal(wc.ep, from);
    assert_int_equal(scene->slots[slot], word);
    return slot;
}

static void expect_silence(struct rdmux_cq *cq, int ms)
{
    struct rdmux_wc wc;
    size_t count = 0;
    CHECK_STATUS(rdmux_cq_wait(cq, &wc, 1, ms, &count), RDMUX_TIMED_OUT);
}

/* Lets the cq make progress, without taking anything, until so many endpoints wait for a
 * receive. */
static void wait_until_waiting(struct scene *scene, size_t wanted)
{
    uint64_t until = now_ms() + PATIENT_MS;
    do {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(scene->pair.cq_b, NULL, 0), 0);
    } while (srq_counts(scene).waiting < wanted);
}

/* ------------------------------------------------------------------------------------- promises */

/* Over a byte stream a message without receive would be in front of the answer. */
static void a_message_without_a_receive_on_tcp_holds_back_no_answer(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_mr *mr = NULL;
    uint64_t word = 0;
    set_scene(&scene, 0);
    struct link tcp = link_over(&scene, "tcp");
    struct link shm = link_over(&scene, "shm");
    CHECK_OK(rdmux_mr_alloc(scene.pair.fabric_a, sizeof(word), RDMUX_ACCESS_REMOTE_READ, &mr));
    struct rdmux_remote *remote = import_region(tcp.b, mr);
    memset(rdmux_mr_addr(mr), 0x5a, sizeof(word));
    post_receives(&scene, 0, 4);
    send_word(tcp.a, 1);
    expect_word(&scene, tcp.b, 1); /* its peer may send more by now */
    for (uint64_t i = 0; i < 3; i++) {
        send_word(shm.a, i);
    }
    for (uint64_t i = 0; i < 3; i++) {
        expect_word(&scene, shm.b, i);
    }
    send_word(tcp.a, 2);

    CHECK_OK(rdmux_read(tcp.b, &word, sizeof(word), NULL, remote, 0, NULL, 0));

    expect_entry(scene.pair.cq_b, RDMUX_WC_READ, RDMUX_OK);
    assert_true(word == UINT64_C(0x5a5a5a5a5a5a5a5a));
    expect_silence(scene.pair.cq_b, 20);
    post_receives(&scene, 0, 1);
    expect_word(&scene, tcp.b, 2);
    rdmux_mr_deregister(mr);
    unlink_pair(&tcp);
    unlink_pair(&shm);
    clear_scene(&scene);
}

/* The peer's process does nothing here: its reserved receives stay reserved until the endpoint
 * ends. */
static void the_receives_promised_to_a_silent_peer_are_free_once_its_endpoint_closes(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, RDMUX_FABRIC_NO_SERVICE_THREAD);
    struct link tcp = link_over(&scene, "tcp");
    struct link shm = link_over(&scene, "shm");
    struct rdmux_wc wc;
    post_receives(&scene, 0, 4);
    send_word(tcp.a, 1);
    uint64_t until = now_ms() + PATIENT_MS;
    while (rdmux_cq_poll(scene.pair.cq_b, &wc, 1) == 0) {
        assert_true(now_ms() < until);
        CHECK_OK(rdmux_fabric_progress(scene.pair.fabric_a));
    }
    assert_ptr_equal(wc.ep, tcp.b);
    send_word(shm.a, 2);
    expect_silence(scene.pair.cq_b, 50);

    CHECK_OK(rdmux_ep_close(tcp.b));

    expect_word(&scene, shm.b, 2);
    CHECK_OK(rdmux_ep_close(tcp.a));
    unlink_pair(&shm);
    clear_scene(&scene);
}

static void receives_of_a_closed_endpoint_go_to_a_waiting_endpoint(void **state)
{
    (void)state;
    static const char *const paths[] = { "shm", "tcp" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct scene scene;
        set_scene(&scene, 0);
        struct link first = link_over(&scene, "shm");
        struct link second = link_over(&scene, paths[i]);
        post_receives(&scene, 0, 1);
        send_word(first.a, 1);
        uint64_t until = now_ms() + PATIENT_MS;
        while (srq_counts(&scene).posted != 0) { /* taken, and not returned to the program */
            assert_true(now_ms() < until);
            assert_int_equal(rdmux_cq_poll(scene.pair.cq_b, NULL, 0), 0);
        }
        send_word(second.a, 2);
        wait_until_waiting(&scene, 1);

        CHECK_OK(rdmux_ep_close(first.b));

        expect_word(&scene, second.b, 2);
        CHECK_OK(rdmux_ep_close(first.a));
        unlink_pair(&second);
        clear_scene(&scene);
    }
}

/* --------------------------------------------------------------------------------- not accepted */

/* The peer connects, sends and ends in order, all while no call returns the endpoint. */
static void messages_that_precede_the_return_of_accept_are_delivered_after_it(void **state)
{
    (void)state;
    static const char *const paths[] = { "shm", "tcp" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct scene scene;
        struct rdmux_ep_attr connecting = RDMUX_EP_ATTR_INIT;
        struct rdmux_ep_attr accepting = RDMUX_EP_ATTR_INIT;
        struct rdmux_ep *a = NULL;
        struct rdmux_ep *b = NULL;
        set_scene(&scene, 0);
        struct pair *pair = &scene.pair;
        connecting.paths = paths[i];
        accepting.srq = scene.srq;
        post_receives(&scene, 0, 2);
        CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, &connecting, 0, &a),
                     RDMUX_IN_PROGRESS);
        uint64_t until = now_ms() + PATIENT_MS;
        while (rdmux_list_empty(&pair->cq_b->lists.accepting)) { /* taken, and far from proved */
            assert_true(now_ms() < until);
            CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, &accepting, 0, &b), RDMUX_AGAIN);
        }
        expect_entry(pair->cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
        send_word(a, 7);
        CHECK_OK(rdmux_ep_shutdown(a, PATIENT_MS)); /* so the message is in its receive */
        expect_silence(pair->cq_b, 1);

        CHECK_OK(rdmux_accept(pair->listener, pair->cq_b, &accepting, PATIENT_MS, &b));

        expect_word(&scene, b, 7);
        expect_entry(pair->cq_b, RDMUX_WC_DISCONNECTED, RDMUX_OK);
        CHECK_OK(rdmux_ep_close(a));
        CHECK_OK(rdmux_ep_close(b));
        clear_scene(&scene);
    }
}

/* The program does not want them any more, and the SRQ can go. */
static void an_srq_can_be_destroyed_once_its_unaccepted_endpoints_are_gone(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep_attr accepting = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep *a = NULL;
    struct rdmux_ep *b = NULL;
    set_scene(&scene, 0);
    struct pair *pair = &scene.pair;
    accepting.srq = scene.srq;
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &a),
                 RDMUX_IN_PROGRESS);
    uint64_t until = now_ms() + PATIENT_MS;
    while (rdmux_list_empty(&pair->cq_b->lists.accepting)) {
        assert_true(now_ms() < until);
        CHECK_STATUS(rdmux_accept(pair->listener, pair->cq_b, &accepting, 0, &b), RDMUX_AGAIN);
    }
    CHECK_STATUS(rdmux_srq_destroy(scene.srq), RDMUX_INVALID);
    rdmux_listener_close(pair->listener);
    pair->listener = NULL;

    CHECK_OK(rdmux_srq_destroy(scene.srq));

    CHECK_OK(rdmux_ep_close(a));
    close_pair(pair);
}

/* ---------------------------------------------------------------------------------------- turns */

static void endpoints_of_all_fabrics_take_turns(void **state)
{
    (void)state;
    enum { EACH = 50 };
    struct scene scene;
    set_scene(&scene, 0);
    struct link links[] = { link_over(&scene, "tcp"), link_over(&scene, "shm"),
                            link_over(&scene, "tcp"), link_over(&scene, "shm") };
    enum { LINKS = RDMUX_COUNT_OF(links) };
    uint64_t came[LINKS] = { 0 };
    for (uint64_t i = 0; i < EACH; i++) {
        for (size_t j = 0; j < LINKS; j++) {
            send_word(links[j].a, i);
        }
    }
    wait_until_waiting(&scene, 3); /* of those of tcp the first */
    post_receives(&scene, 0, 1);

    for (size_t total = 1; total <= (size_t)EACH * LINKS; total++) {
        struct rdmux_wc wc = expect_entry(scene.pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
        for (size_t j = 0; j < LINKS; j++) {
            if (wc.ep == links[j].b) {
                assert_int_equal(scene.slots[0], came[j]);
                came[j]++;
            }
        }
        if (total == (size_t)EACH * LINKS / 2) {
            for (size_t j = 0; j < LINKS; j++) {
                assert_true(came[j] >= EACH / 5);
            }
        }
        post_receives(&scene, 0, total < (size_t)EACH * LINKS);
    }

    for (size_t j = 0; j < LINKS; j++) {
        assert_int_equal(came[j], EACH);
        unlink_pair(&links[j]);
    }
    clear_scene(&scene);
}

/* Random bursts; the program sleeps on the descriptor and posts receives late. */
static void messages_of_every_sender_arrive_in_order(void **state)
{
    (void)state;
    enum { EACH = 400, RECEIVES = 6, IN_FLIGHT = 32 };
    struct scene scene;
    set_scene(&scene, 0);
    struct link links[] = { link_over(&scene, "tcp"), link_over(&scene, "shm"),
                            link_over(&scene, "tcp"), link_over(&scene, "shm"),
                            link_over(&scene, "tcp"), link_over(&scene, "shm") };
    enum { LINKS = RDMUX_COUNT_OF(links) };
    uint64_t sent[LINKS] = { 0 };
    uint64_t came[LINKS] = { 0 };
    size_t total = 0;
    unsigned seed = 7;
    struct rdmux_cq *cq = scene.pair.cq_b;
    post_receives(&scene, 0, RECEIVES);
    while (total < (size_t)EACH * LINKS) {
        size_t j = (size_t)rand_r(&seed) % LINKS;
        for (int burst = rand_r(&seed) % 12; burst > 0 && sent[j] < EACH; burst--) {
            if (sent[j] - came[j] < IN_FLIGHT) {
                send_word(links[j].a, sent[j]++);
            }
        }
        size_t awaited = 0;
        for (size_t k = 0; k < LINKS; k++) {
            awaited += sent[k] - came[k];
        }
        struct rdmux_wc wc;
        assert_int_equal(rdmux_cq_poll(scene.pair.cq_a, &wc, 1), 0); /* room for sends */
        bool got = rdmux_cq_poll(cq, &wc, 1) == 1;
        if (!got && awaited > 0 && rand_r(&seed) % 3 == 0 && rdmux_cq_arm(cq) == RDMUX_OK) {
            struct pollfd fd = { .fd = rdmux_cq_fd(cq), .events = POLLIN };
            assert_int_equal(poll(&fd, 1, PATIENT_MS), 1);
        }
        if (got) {
            assert_int_equal(wc.opcode, RDMUX_WC_RECV);
            assert_int_equal(wc.status, RDMUX_OK);
            size_t slot = (size_t)(uintptr_t)wc.context;
            for (size_t k = 0; k < LINKS; k++) {
                if (wc.ep == links[k].b) {
                    assert_int_equal(scene.slots[slot], came[k]);
                    came[k]++;
                }
            }
            total++;
            const struct srq_counts counts = srq_counts(&scene);
            assert_true(counts.set_aside <= counts.posted);
            post_receives(&scene, slot, 1);
        }
    }
    for (size_t j = 0; j < LINKS; j++) {
        unlink_pair(&links[j]);
    }
    clear_scene(&scene);
}

/* ------------------------------------------------------------------------------------ the limit */

enum { LIMIT = 2 };

static void limit_scene(struct scene *scene)
{
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    set_scene(scene, 0);
    CHECK_OK(rdmux_srq_destroy(scene->srq));
    attr.depth = DEPTH;
    attr.limit = LIMIT;
    CHECK_OK(rdmux_srq_create(scene->pair.fabric_b, scene->pair.cq_b, &attr, &scene->srq));
}

static void the_limit_wakes_a_sleeper(void **state)
{
    (void)state;
    static const char *const paths[] = { "shm", "tcp" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct scene scene;
        limit_scene(&scene);
        struct link link = link_over(&scene, paths[i]);
        struct rdmux_cq *cq = scene.pair.cq_b;
        post_receives(&scene, 0, LIMIT);
        while (rdmux_cq_arm(cq) == RDMUX_AGAIN) {
            assert_int_equal(rdmux_cq_poll(cq, NULL, 0), 0);
        }
        send_word(link.a, 1);
        struct pollfd fd = { .fd = rdmux_cq_fd(cq), .events = POLLIN };
        assert_int_equal(poll(&fd, 1, PATIENT_MS), 1);

        struct rdmux_wc wc[2];
        for (size_t got = 0; got < 2; got++) {
            wc[got] = next_entry(cq);
        }
        struct rdmux_wc *event = wc[0].opcode == RDMUX_WC_RECV ? &wc[1] : &wc[0];
        assert_int_equal(event->opcode, RDMUX_WC_SRQ_LIMIT);
        assert_ptr_equal(event->context, scene.srq);
        assert_null(event->ep);
        unlink_pair(&link);
        clear_scene(&scene);
    }
}

/* The program destroys the SRQ before it takes the event. */
static void an_srq_that_is_destroyed_takes_its_event_along(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_wc wc;
    limit_scene(&scene);
    struct link link = link_over(&scene, "shm");
    struct rdmux_cq *cq = scene.pair.cq_b;
    post_receives(&scene, 0, LIMIT);
    send_word(link.a, 1);
    uint64_t until = now_ms() + PATIENT_MS;
    while (srq_counts(&scene).posted == LIMIT) {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(cq, NULL, 0), 0);
    }
    unlink_pair(&link);

    CHECK_OK(rdmux_srq_destroy(scene.srq));

    assert_int_equal(rdmux_cq_poll(cq, &wc, 1), 0);
    while (rdmux_cq_arm(cq) == RDMUX_AGAIN) {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(cq, &wc, 1), 0);
    }
    close_pair(&scene.pair);
}

static void an_srq_with_a_limit_reserves_an_entry_for_its_event(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_cq *cq = NULL;
    struct rdmux_srq *srq = NULL;
    struct rdmux_cq_attr cq_attr = RDMUX_CQ_ATTR_INIT;
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    open_sides(&pair, "shm", 0, 0);
    cq_attr.depth = DEPTH;
    attr.depth = DEPTH;
    attr.limit = DEPTH;
    CHECK_OK(rdmux_cq_create(pair.fabric_b, &cq_attr, &cq));

    CHECK_STATUS(rdmux_srq_create(pair.fabric_b, cq, &attr, &srq), RDMUX_NO_MEMORY);

    for (int i = 0; i < 2; i++) { /* and gives it back */
        attr.depth = DEPTH - 1;
        attr.limit = DEPTH - 1;
        CHECK_OK(rdmux_srq_create(pair.fabric_b, cq, &attr, &srq));
        CHECK_OK(rdmux_srq_destroy(srq));
        attr.depth = DEPTH;
        attr.limit = 0;
        CHECK_OK(rdmux_srq_create(pair.fabric_b, cq, &attr, &srq));
        CHECK_OK(rdmux_srq_destroy(srq));
    }
    CHECK_OK(rdmux_cq_destroy(cq));
    close_pair(&pair);
}

/* -------------------------------------------------------------------------------------- pausing */

/* A receive was set aside for the endpoint when it paused. Another endpoint gets it. */
static void a_paused_endpoint_gives_up_the_receive_that_it_waited_for(void **state)
{
    (void)state;
    struct scene scene;
    set_scene_with(&scene, 0, RDMUX_FABRIC_NO_SERVICE_THREAD); /* so that it does not take it */
    struct link paused = link_over(&scene, "shm");
    struct link other = link_over(&scene, "shm");
    send_word(paused.a, 1);
    wait_until_waiting(&scene, 1);
    send_word(other.a, 2);
    wait_until_waiting(&scene, 2);
    post_receives(&scene, 0, 1);
    assert_int_equal(srq_counts(&scene).set_aside, 1);

    CHECK_OK(rdmux_ep_pause(paused.b, 1));

    expect_word(&scene, other.b, 2);
    post_receives(&scene, 0, 1);
    CHECK_OK(rdmux_ep_pause(paused.b, 0));
    expect_word(&scene, paused.b, 1);
    unlink_pair(&paused);
    unlink_pair(&other);
    clear_scene(&scene);
}

/* Its peer has receives promised; what it does not use serves others, and no message is lost. */
static void a_peer_of_a_paused_endpoint_gives_its_credits_back(void **state)
{
    (void)state;
    enum { RECEIVES = 8, MESSAGES = 20 };
    struct scene scene;
    set_scene(&scene, 0);
    struct link paused = link_over(&scene, "tcp");
    struct link other = link_over(&scene, "tcp");
    post_receives(&scene, 0, RECEIVES);
    send_word(paused.a, 0);
    expect_word(&scene, paused.b, 0);
    post_receives(&scene, 0, 1);

    CHECK_OK(rdmux_ep_pause(paused.b, 1));

    uint64_t until = now_ms() + PATIENT_MS;
    while (srq_counts(&scene).set_aside != 0) {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(scene.pair.cq_b, NULL, 0), 0);
    }
    for (uint64_t i = 1; i <= MESSAGES; i++) {
        send_word(paused.a, i);
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        send_word(other.a, i);
        post_receives(&scene, expect_word(&scene, other.b, i), 1);
    }
    CHECK_OK(rdmux_ep_pause(paused.b, 0));
    for (uint64_t i = 1; i <= MESSAGES; i++) {
        post_receives(&scene, expect_word(&scene, paused.b, i), 1);
    }
    unlink_pair(&paused);
    unlink_pair(&other);
    clear_scene(&scene);
}

static void only_a_connected_endpoint_can_be_paused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep *ep = NULL;
    set_scene(&scene, 0);
    attr.srq = scene.srq;
    CHECK_STATUS(
        rdmux_connect(scene.pair.fabric_b, scene.pair.cq_b, scene.pair.address, &attr, 0, &ep),
        RDMUX_IN_PROGRESS);
    CHECK_STATUS(rdmux_ep_pause(ep, 1), RDMUX_AGAIN);
    CHECK_OK(rdmux_ep_close(ep));
    CHECK_STATUS(rdmux_ep_pause(ep, 1), RDMUX_INVALID);

    struct link link = link_over(&scene, "tcp");
    CHECK_OK(rdmux_ep_close(link.a));
    expect_entry(scene.pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    CHECK_STATUS(rdmux_ep_pause(link.b, 0), RDMUX_PEER_GONE);
    CHECK_OK(rdmux_ep_close(link.b));
    clear_scene(&scene);
}

/* -------------------------------------------------------------------------- the provider's side */

static void reserved_receives_belong_to_their_endpoint_alone(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene, 0);
    struct link first = link_over(&scene, "shm");
    struct link second = link_over(&scene, "shm");
    post_receives(&scene, 0, 5);
    assert_true(rdmux_cq_enter(scene.pair.cq_b));
    struct rdmux_provider_ep *one = first.b->path;
    struct rdmux_provider_ep *two = second.b->path;

    assert_int_equal(rdmux_provider_reserve(one, 0), 0);
    assert_int_equal(rdmux_provider_reserve(one, 3), 3);
    assert_int_equal(rdmux_provider_receives(two), 2);
    assert_int_equal(rdmux_provider_reserve(two, 9), 2);
    assert_int_equal(rdmux_provider_receives(one), 0);
    assert_int_equal(rdmux_provider_receives_awaited(one), 0);

    assert_int_equal(rdmux_provider_reserve(two, 1), 0); /* it waits for the next */
    assert_int_equal(rdmux_provider_receives_awaited(one), 1);
    rdmux_provider_unreserve(one, 1);
    assert_int_equal(rdmux_provider_receives_awaited(one), 0);
    assert_int_equal(rdmux_provider_receives(one), 0);
    assert_int_equal(rdmux_provider_receives(two), 1);
    assert_int_equal(rdmux_provider_reserve(two, 2), 1);

    for (int i = 0; i < 3; i++) {
        struct rdmux_request *receive = rdmux_provider_take_receive(two);
        assert_non_null(receive);
        rdmux_provider_received(two, receive, RDMUX_OK, RDMUX_WC_RECV, 0, 0, 0);
    }
    assert_null(rdmux_provider_take_receive(two)); /* those left are the other's */
    assert_int_equal(rdmux_provider_receives_awaited(one), 1);
    for (int i = 0; i < 2; i++) {
        struct rdmux_request *receive = rdmux_provider_take_receive(one);
        assert_non_null(receive);
        rdmux_provider_received(one, receive, RDMUX_OK, RDMUX_WC_RECV, 0, 0, 0);
    }
    rdmux_cq_leave(scene.pair.cq_b);

    for (int i = 0; i < 5; i++) {
        expect_entry(scene.pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
    }
    post_receives(&scene, 0, 1); /* for the endpoint that waits */
    assert_true(rdmux_cq_enter(scene.pair.cq_b));
    assert_int_equal(rdmux_provider_receives(one), 0);
    assert_int_equal(rdmux_provider_receives(two), 1);
    rdmux_cq_leave(scene.pair.cq_b);
    unlink_pair(&second);
    assert_true(rdmux_cq_enter(scene.pair.cq_b));
    assert_int_equal(rdmux_provider_receives(one), 1);
    rdmux_cq_leave(scene.pair.cq_b);
    unlink_pair(&first);
    clear_scene(&scene);
}

/* An endpoint that waits for a receive asks those over other paths that have some in reserve, and
 * no other endpoint. */
static void only_endpoints_with_reserved_receives_are_told_that_others_wait(void **state)
{
    (void)state;
    struct scene scene;
    set_scene_with(&scene, 0, RDMUX_FABRIC_NO_SERVICE_THREAD);
    struct link holder = link_over(&scene, "tcp");
    struct link idle = link_over(&scene, "tcp");
    struct link waiting = link_over(&scene, "shm");
    post_receives(&scene, 0, 3);
    assert_true(rdmux_cq_enter(scene.pair.cq_b));
    assert_int_equal(rdmux_provider_reserve(holder.b->path, 3), 3);

    assert_null(rdmux_provider_take_receive(waiting.b->path));

    assert_true(holder.b->shared.news);
    assert_false(idle.b->shared.news);
    assert_false(waiting.b->shared.news);

    rdmux_provider_unreserve(holder.b->path, 1); /* which serves the endpoint that waits */
    rdmux_srq_tell(holder.b); /* too late: it keeps the others, and is told again */
    struct rdmux_request *receive = rdmux_provider_take_receive(waiting.b->path);
    assert_non_null(receive);
    assert_null(rdmux_provider_take_receive(waiting.b->path));
    assert_true(holder.b->shared.news);
    rdmux_provider_received(waiting.b->path, receive, RDMUX_OK, RDMUX_WC_RECV, 0, 0, 0);
    rdmux_provider_unreserve(holder.b->path, 2);
    rdmux_cq_leave(scene.pair.cq_b);
    expect_entry(scene.pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
    unlink_pair(&holder);
    unlink_pair(&idle);
    unlink_pair(&waiting);
    clear_scene(&scene);
}

static void without_an_srq_nothing_is_reserved(void **state)
{
    (void)state;
    struct pair pair;
    uint64_t word;
    open_pair(&pair, "tcp", NULL);
    CHECK_OK(rdmux_recv(pair.b, &word, sizeof(word), NULL, NULL));
    assert_true(rdmux_cq_enter(pair.cq_b));

    assert_int_equal(rdmux_provider_reserve(pair.b->path, 1), 0);
    assert_int_equal(rdmux_provider_receives_awaited(pair.b->path), 0);
    rdmux_provider_unreserve(pair.b->path, 0);
    assert_int_equal(rdmux_provider_receives(pair.b->path), 1);

    rdmux_cq_leave(pair.cq_b);
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_without_a_receive_on_tcp_holds_back_no_answer),
        cmocka_unit_test(the_receives_promised_to_a_silent_peer_are_free_once_its_endpoint_closes),
        cmocka_unit_test(receives_of_a_closed_endpoint_go_to_a_waiting_endpoint),
        cmocka_unit_test(messages_that_precede_the_return_of_accept_are_delivered_after_it),
        cmocka_unit_test(an_srq_can_be_destroyed_once_its_unaccepted_endpoints_are_gone),
        cmocka_unit_test(endpoints_of_all_fabrics_take_turns),
        cmocka_unit_test(messages_of_every_sender_arrive_in_order),
        cmocka_unit_test(the_limit_wakes_a_sleeper),
        cmocka_unit_test(an_srq_that_is_destroyed_takes_its_event_along),
        cmocka_unit_test(an_srq_with_a_limit_reserves_an_entry_for_its_event),
        cmocka_unit_test(a_paused_endpoint_gives_up_the_receive_that_it_waited_for),
        cmocka_unit_test(a_peer_of_a_paused_endpoint_gives_its_credits_back),
        cmocka_unit_test(only_a_connected_endpoint_can_be_paused),
        cmocka_unit_test(reserved_receives_belong_to_their_endpoint_alone),
        cmocka_unit_test(only_endpoints_with_reserved_receives_are_told_that_others_wait),
        cmocka_unit_test(without_an_srq_nothing_is_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
