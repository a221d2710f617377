/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Failover of all kinds of endpoints: with shared receives, between peers that authenticate, with
 * devices that need keys. */
#include "tests/unit/auth_scene.h"
#include "tests/unit/failover_scene.h"

#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/core/srq.h"
#include "api/failover/failover_state.h"
#include "api/object/offer.h"
#include "negotiation/reconnect_proof.h"
#include "negotiation/tls.h"
#include "providers/registry.h"

static void (*const ways_to_break[])(struct pair *pair) = { fail_a, fail_b, fail_both, cut_both };

/* ------------------------------------------------------------------------------ shared receives */

static void receives_of_an_srq_are_neither_lost_nor_filled_twice(void **state)
{
    (void)state;
    static const char *const paths[] = { "tcp", "shm,tcp" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths) * RDMUX_COUNT_OF(ways_to_break); i++) {
        struct scene scene;
        struct rdmux_srq_attr srq_attr = RDMUX_SRQ_ATTR_INIT;
        struct rdmux_ep_attr attr = traffic_attr;
        struct rdmux_srq *srq = NULL;
        srq_attr.depth = 2 * TRAFFIC_DEPTH;
        attr.failover = RDMUX_FAILOVER_ON;
        set_scene(&scene, paths[i % RDMUX_COUNT_OF(paths)], 0);
        struct pair *pair = &scene.pair;
        CHECK_OK(rdmux_srq_create(pair->fabric_a, pair->cq_a, &srq_attr, &srq));
        attr.srq = srq;
        CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, &attr, 0, &pair->a),
                     RDMUX_IN_PROGRESS);
        attr.srq = NULL;
        CHECK_OK(rdmux_accept(pair->listener, pair->cq_b, &attr, PATIENT_MS, &pair->b));
        expect_entry(pair->cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);

        run_traffic(pair, 1000, 100, ways_to_break[i / RDMUX_COUNT_OF(paths)]);

        CHECK_OK(rdmux_ep_close(pair->a));
        pair->a = NULL;
        CHECK_OK(rdmux_srq_destroy(srq));
        clear_scene(&scene);
    }
}

/* A message waits at the peer while the endpoint is paused, before its move and after it. */
static void a_paused_endpoint_is_paused_on_its_next_path(void **state)
{
    (void)state;
    static const char *const paths[] = { "tcp", "shm,tcp" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct scene scene;
        struct rdmux_ep_attr as_a = traffic_attr;
        struct rdmux_srq *srq = NULL;
        struct rdmux_wc wc;
        uint64_t word = 7;
        uint64_t got = 0;
        as_a.failover = RDMUX_FAILOVER_ON;
        set_scene(&scene, paths[i], 0);
        struct pair *pair = &scene.pair;
        CHECK_OK(rdmux_srq_create(pair->fabric_b, pair->cq_b, NULL, &srq));
        struct rdmux_ep_attr as_b = as_a;
        as_b.srq = srq;
        connect_as(pair, &as_a, &as_b, &pair->a, &pair->b);
        CHECK_OK(rdmux_srq_recv(srq, &got, sizeof(got), NULL, CONTEXT(1)));
        CHECK_OK(rdmux_ep_pause(pair->b, 1));
        CHECK_OK(rdmux_send(pair->a, &word, sizeof(word), NULL, CONTEXT(2), 0));

        fail_path(pair->b, RDMUX_IO);

        assert_int_equal(next_entry(pair->cq_b).opcode, RDMUX_WC_PATH_CHANGED);
        assert_int_equal(next_entry(pair->cq_a).opcode, RDMUX_WC_PATH_CHANGED);
        for (int polls = 0; polls < 1000; polls++) {
            assert_int_equal(rdmux_cq_poll(pair->cq_a, &wc, 1), 0);
            assert_int_equal(rdmux_cq_poll(pair->cq_b, &wc, 1), 0);
        }
        CHECK_OK(rdmux_ep_pause(pair->b, 0));
        assert_ptr_equal(expect_entry(pair->cq_b, RDMUX_WC_RECV, RDMUX_OK).context, CONTEXT(1));
        assert_int_equal(got, word);
        expect_entry(pair->cq_a, RDMUX_WC_SEND, RDMUX_OK);
        CHECK_OK(rdmux_ep_close(pair->b));
        pair->b = NULL;
        CHECK_OK(rdmux_srq_destroy(srq));
        clear_scene(&scene);
    }
}

/* ------------------------------------------------------------------------------- authentication */

static void check_authenticated(const struct rdmux_fabric_auth *auth_a,
                                const struct rdmux_fabric_auth *auth_b, const char *paths,
                                void (*break_path)(struct pair *pair))
{
    struct pair pair = { .a = NULL };
    struct rdmux_ep_attr attr = traffic_attr;
    struct rdmux_fabric_attr attr_a = attr_with(paths, auth_a, NULL, NULL);
    struct rdmux_fabric_attr attr_b = attr_with(paths, auth_b, NULL, NULL);
    attr.failover = RDMUX_FAILOVER_ON;
    CHECK_OK(rdmux_fabric_open(&attr_a, &pair.fabric_a));
    CHECK_OK(rdmux_fabric_open(&attr_b, &pair.fabric_b));
    pair.cq_a = create_cq(pair.fabric_a);
    pair.cq_b = create_cq(pair.fabric_b);
    pair.listener = listen_here(pair.fabric_b, NULL, pair.address);
    connect_more(&pair, &attr, &pair.a, &pair.b);
    struct rdmux_ep_info before = info_of(pair.b);

    run_traffic(&pair, 600, 100, break_path);

    assert_true(before.peer_identity[0] != '\0');
    assert_string_equal(info_of(pair.b).peer_identity, before.peer_identity);
    close_pair(&pair);
}

static void peers_authenticate_again_on_each_socket(void **state)
{
    (void)state;
    static const char *const paths[] = { "tcp", "shm,tcp" };
    char key_file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("key", "one:" KEY_ONE "\n", key_file));
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths) * RDMUX_COUNT_OF(ways_to_break); i++) {
        check_authenticated(&auth, &auth, paths[i % RDMUX_COUNT_OF(paths)],
                            ways_to_break[i / RDMUX_COUNT_OF(paths)]);
    }
}

static void peers_with_certificates_authenticate_again_on_each_socket(void **state)
{
    (void)state;
    struct certified_key authority = make_certificate("the authority", NULL, NULL, 100, NULL);
    struct certified_key anna = make_certificate("anna", NULL, "clientAuth", 100, &authority);
    struct certified_key bert = make_certificate("bert", "IP:127.0.0.1", "serverAuth,clientAuth",
                                                 100, &authority);
    struct certificate_files papers[2];
    write_certificate_files("anna", &anna, &authority, &papers[0]);
    write_certificate_files("bert", &bert, &authority, &papers[1]);
    struct rdmux_fabric_auth auth_a = cert_of(&papers[0]);
    struct rdmux_fabric_auth auth_b = cert_of(&papers[1]);
    for (size_t i = 0; i < RDMUX_COUNT_OF(ways_to_break); i++) {
        check_authenticated(&auth_a, &auth_b, i % 2 == 0 ? "tcp" : "shm,tcp", ways_to_break[i]);
    }
    free_certificate(&anna);
    free_certificate(&bert);
    free_certificate(&authority);
}

/* An impostor with a session of its own that resumes another peer's connection. */
struct impostor {
    int socket;
    struct rdmux_tls *tls;
    size_t said;
    size_t heard;
    uint8_t bytes[512];
};

/* Sends these bytes, after those sent before, and waits for an answer of this size. Returns the
 * outcome. */
static enum rdmux_status exchange(struct impostor *he, const uint8_t *bytes, size_t size,
                                  size_t answer)
{
    uint64_t until = now_ms() + PATIENT_MS;
    enum rdmux_status status = RDMUX_AGAIN;
    he->said = 0;
    he->heard = 0;
    while (he->said < size || he->heard < answer) {
        size_t done = 0;
        assert_true(now_ms() < until);
        if (he->said < size) {
            status = rdmux_tls_send(he->tls, bytes + he->said, size - he->said, &done);
            he->said += status == RDMUX_OK ? done : 0;
        } else {
            status = rdmux_tls_receive(he->tls, he->bytes + he->heard, answer - he->heard, &done);
            he->heard += status == RDMUX_OK ? done : 0;
        }
        if (status != RDMUX_OK && status != RDMUX_AGAIN) {
            return status;
        }
    }
    return RDMUX_OK;
}

/* A client that authenticates as this fabric resumes the connection of pair->a: it sends what a
 * would, and proves it with this secret. RDMUX_OK: the listener's endpoint takes it for a. */
static enum rdmux_status resume_as(struct rdmux_fabric *fabric, struct pair *pair,
                                   const uint8_t secret[RDMUX_SECRET_SIZE])
{
    struct impostor he = { .socket = dial_raw(pair->address) };
    struct rdmux_reconnect_greeting greeting;
    struct rdmux_message message = {
        .type = RDMUX_FRAME_RESUME,
        .epoch = 1,
        .is_steady = true,
        .count = pair->a->failover->replay.received,
    };
    struct rdmux_hello hello;
    uint8_t frame[RDMUX_MESSAGE_MAX];
    assert_int_equal(fcntl(he.socket, F_SETFL, O_NONBLOCK), 0);
    CHECK_OK(rdmux_tls_create(fabric->auth, RDMUX_ROLE_CONNECT, he.socket, NULL, &he.tls));
    rdmux_hello_fill(pair->fabric_a, &hello);
    hello.flags |= RDMUX_HELLO_FAILOVER;
    memcpy(hello.resume, pair->a->failover->reconnect.name, sizeof(hello.resume));
    rdmux_hello_encode(&hello, greeting.connectors);
    CHECK_OK(exchange(&he, greeting.connectors, RDMUX_HELLO_SIZE, RDMUX_HELLO_SIZE));
    memcpy(greeting.acceptors, he.bytes, RDMUX_HELLO_SIZE);
    assert_true(rdmux_reconnect_prove(secret, &greeting, &message));
    size_t size = rdmux_message_encode(&message, frame);

    enum rdmux_status status = exchange(&he, frame, size, size);

    if (status == RDMUX_OK) {
        CHECK_OK(rdmux_message_decode(he.bytes, size, &message));
        assert_int_equal(message.type, RDMUX_FRAME_RESUMED);
    }
    rdmux_tls_destroy(he.tls);
    close(he.socket);
    return status;
}

/* The other peer is admitted, too, and knows the secret. */
static void another_identity_resumes_nothing_even_with_the_secret(void **state)
{
    (void)state;
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(
        write_file("key", "anna:" KEY_ONE "\ncarl:" KEY_TWO "\n", file));
    struct rdmux_fabric_auth of_carl = auth;
    struct rdmux_ep_attr attr = traffic_attr;
    uint8_t wrong[RDMUX_SECRET_SIZE];
    of_carl.identity = "carl";
    attr.failover = RDMUX_FAILOVER_ON;
    struct rdmux_fabric_attr attr_carl = attr_with("tcp", &of_carl, NULL, NULL);
    struct rdmux_fabric *carls = NULL;
    struct pair pair;
    open_auth_sides(&pair, "tcp", &auth, &auth, NULL);
    CHECK_OK(rdmux_fabric_open(&attr_carl, &carls));
    connect_more(&pair, &attr, &pair.a, &pair.b);
    memcpy(wrong, pair.a->secrets->secret, sizeof(wrong));
    wrong[0] ^= 1;

    CHECK_STATUS(resume_as(carls, &pair, pair.a->secrets->secret), RDMUX_PEER_GONE);
    CHECK_STATUS(resume_as(pair.fabric_a, &pair, wrong), RDMUX_PEER_GONE);

    check_messages(&pair);
    assert_string_equal(info_of(pair.b).peer_identity, "anna");
    /* Else the test proves nothing. The real peer then dials again, and continues. */
    CHECK_OK(resume_as(pair.fabric_a, &pair, pair.a->secrets->secret));
    check_messages(&pair);
    close_pair(&pair);
    CHECK_OK(rdmux_fabric_close(carls));
}

/* --------------------------------------------------------------------------------------- scopes */

/* tcp, as if it were a device whose atomics hold among its users. */
static struct rdmux_provider_ops scoped_ops;
static const struct rdmux_provider_ops *plain_ops;

static enum rdmux_status scoped_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                      size_t max, size_t *count)
{
    enum rdmux_status status = plain_ops->probe(fabric, out, max, count);
    for (size_t i = 0; i < *count && i < max; i++) {
        out[i].native |= RDMUX_CAP_ATOMIC_DEVICE;
        (void)snprintf(out[i].device, sizeof(out[i].device), "wire");
    }
    return status;
}

static void take_for_a_device(struct rdmux_fabric *fabric)
{
    for (size_t i = 0; i < fabric->registry.count; i++) {
        struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        if (strcmp(entry->name, "tcp") == 0) {
            plain_ops = entry->ops == &scoped_ops ? plain_ops : entry->ops;
            scoped_ops = *plain_ops;
            scoped_ops.probe = scoped_probe;
            entry->ops = &scoped_ops;
        }
    }
}

/* shm, the better path, cannot keep the promise that the region makes: it is left out, and the text
 * says why. */
static void atomics_of_a_device_stay_on_it(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_mr *mr = NULL;
    struct rdmux_explanation *explanation = NULL;
    const char *json = NULL;
    uint64_t into = 0;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.failover = RDMUX_FAILOVER_ON;
    attr.failback_hold_ms = 1; /* that it was left out is no reason to try it last */
    set_scene(&scene, "shm,tcp", 0);
    struct pair *pair = &scene.pair;
    take_for_a_device(pair->fabric_a);
    take_for_a_device(pair->fabric_b);
    connect_more(pair, &attr, &pair->a, &pair->b);
    fail_path(pair->a, RDMUX_IO);
    expect_entry(pair->cq_a, RDMUX_WC_PATH_CHANGED, RDMUX_IO);
    assert_string_equal(info_of(pair->a).provider, "tcp");
    CHECK_OK(rdmux_mr_alloc(
        pair->fabric_b, 8,
        RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_ATOMIC | RDMUX_ACCESS_ATOMIC_DEVICE, &mr));
    struct rdmux_remote *remote = import_region(pair->a, mr);

    fail_path(pair->a, RDMUX_IO);
    CHECK_OK(rdmux_read(pair->a, &into, 8, NULL, remote, 0, CONTEXT(0), 0));
    uint64_t until = now_ms() + PATIENT_MS;
    struct rdmux_wc wc = { .opcode = 0 };
    while (wc.opcode != RDMUX_WC_READ) {
        assert_true(now_ms() < until);
        (void)rdmux_cq_poll(pair->cq_b, &wc, 1);
        (void)rdmux_cq_poll(pair->cq_a, &wc, 1);
    }

    assert_int_equal(wc.status, RDMUX_OK);
    assert_string_equal(info_of(pair->a).provider, "tcp");
    assert_int_equal(info_of(pair->a).epoch, 3);
    CHECK_OK(rdmux_ep_explanation(pair->b, &explanation));
    CHECK_OK(rdmux_explanation_json(explanation, &json));
    assert_non_null(strstr(json, "CAPABILITY_MISSING"));
    assert_non_null(strstr(json, "RDMUX_ACCESS_ATOMIC_DEVICE"));
    rdmux_explanation_free(explanation);

    rdmux_mr_deregister(mr); /* now it may leave the device */
    fail_path(pair->a, RDMUX_IO);
    until = now_ms() + PATIENT_MS;
    while (info_of(pair->a).epoch != 4 || info_of(pair->a).state != RDMUX_EP_CONNECTED) {
        assert_true(now_ms() < until);
        (void)rdmux_cq_poll(pair->cq_b, &wc, 1);
        (void)rdmux_cq_poll(pair->cq_a, &wc, 1);
    }
    assert_string_equal(info_of(pair->a).provider, "shm");
    clear_scene(&scene);
}

/* ---------------------------------------------------------------------------------------- order */

/* shm, which at some time opens no endpoint any more. */
static struct rdmux_provider_ops closing_ops;
static const struct rdmux_provider_ops *open_ops;
static bool is_closed;
static unsigned opened_in_vain;

static enum rdmux_status open_or_not(struct rdmux_provider_ep *ep,
                                     const struct rdmux_provider_ep_attr *attr)
{
    if (!is_closed) {
        return open_ops->ep_open(ep, attr);
    }
    opened_in_vain++;
    rdmux_provider_error("on purpose");
    return RDMUX_IO;
}

static void let_close(struct rdmux_fabric *fabric, const char *name)
{
    is_closed = false;
    opened_in_vain = 0;
    for (size_t i = 0; i < fabric->registry.count; i++) {
        struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        if (strcmp(entry->name, name) == 0) {
            open_ops = entry->ops;
            closing_ops = *open_ops;
            closing_ops.ep_open = open_or_not;
            entry->ops = &closing_ops;
        }
    }
}

static void move_by_a_fault(struct pair *pair)
{
    fail_path(pair->a, RDMUX_IO);
    expect_entry(pair->cq_a, RDMUX_WC_PATH_CHANGED, RDMUX_IO);
    struct rdmux_wc wc = next_entry(pair->cq_b);
    assert_int_equal(wc.opcode, RDMUX_WC_PATH_CHANGED);
    /* b is told the cause, or sees for itself that its peer has left the path. */
    assert_true(wc.status == RDMUX_IO || wc.status == RDMUX_PEER_GONE);
    assert_string_equal(info_of(pair->a).provider, "tcp");
}

/* A better path that does not come up is tried by the first move that might use it, and not by the
 * next moves. */
static void a_path_that_failed_to_connect_is_tried_last(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.failover = RDMUX_FAILOVER_ON;
    set_scene(&scene, "shm,tcp", 0);
    struct pair *pair = &scene.pair;
    let_close(pair->fabric_b, "shm");
    connect_more(pair, &attr, &pair->a, &pair->b);
    assert_string_equal(info_of(pair->a).provider, "shm");
    is_closed = true;

    move_by_a_fault(pair);
    assert_int_equal(opened_in_vain, 0); /* it was lost just now */
    move_by_a_fault(pair);
    assert_int_equal(opened_in_vain, 1);
    move_by_a_fault(pair);
    assert_int_equal(opened_in_vain, 1);
    clear_scene(&scene);
}

/* ----------------------------------------------------------------------------------------- keys */

/* tcp that cannot do without registrations, and takes short lists and messages. */
static struct rdmux_provider_ops device_ops;
static const struct rdmux_provider_ops *tcp_ops;

static enum rdmux_status device_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                      size_t max, size_t *count)
{
    enum rdmux_status status = tcp_ops->probe(fabric, out, max, count);
    for (size_t i = 0; i < *count && i < max; i++) {
        out[i].max_inline = 16;
        out[i].max_message = 20000;
        out[i].max_sge = 1;
    }
    return status;
}

/* Requests without a key would not do on a device. */
static enum rdmux_status device_post(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                                     size_t count, uint32_t flags, size_t *posted)
{
    for (size_t i = 0; i < count; i++) {
        for (uint16_t k = 0; k < requests[i].sge_count && requests[i].length > 16; k++) {
            assert_non_null(requests[i].sges[k].mr);
            assert_ptr_equal(requests[i].sges[k].mr->domain, ep->cq->domain);
        }
        assert_true(requests[i].sge_count <= 1);
        assert_true(requests[i].op == RDMUX_OP_SEND || requests[i].length <= 20000);
    }
    return tcp_ops->post(ep, requests, count, flags, posted);
}

static struct rdmux_fabric *open_device_fabric(struct meter *meter, uint32_t flags)
{
    struct rdmux_fabric *fabric = open_metered_fabric("tcp", flags, NULL, meter);
    for (size_t i = 0; i < fabric->registry.count; i++) {
        struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        if (strcmp(entry->name, "tcp") == 0) {
            tcp_ops = entry->ops;
            device_ops = *tcp_ops;
            device_ops.flags |= RDMUX_PROVIDER_LOCAL_KEYS;
            device_ops.probe = device_probe;
            device_ops.post = device_post;
            entry->ops = &device_ops;
        }
    }
    return fabric;
}

static void lists_without_keys_get_new_ones_on_each_path(void **state)
{
    (void)state;
    enum { BYTES = 100000, PIECES = 3, ROUNDS = 12 };
    static const size_t lengths[] = { 8, 100, 9000, 60000, BYTES };
    static uint8_t from[BYTES];
    static uint8_t back[BYTES];
    /* the read's region is not there, named, or found */
    for (int registered = 0; registered < 3; registered++) {
        struct meter meter = { .left = 0 };
        struct meter other = { .left = 0 };
        struct pair pair = { .a = NULL };
        struct rdmux_ep_attr attr = traffic_attr;
        struct rdmux_mr *mr = NULL;
        struct rdmux_mr *local = NULL;
        attr.failover = RDMUX_FAILOVER_ON;
        attr.max_send = attr.max_recv = 20000; /* of the path */
        pair.fabric_a = open_device_fabric(&meter, registered == 2 ? RDMUX_FABRIC_FIND_REGIONS : 0);
        pair.fabric_b = open_metered_fabric("tcp", 0, NULL, &other);
        pair.cq_a = create_cq(pair.fabric_a);
        pair.cq_b = create_cq(pair.fabric_b);
        pair.listener = listen_here(pair.fabric_b, NULL, pair.address);
        connect_more(&pair, &attr, &pair.a, &pair.b);
        CHECK_OK(rdmux_mr_alloc(pair.fabric_b, BYTES,
                                RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_READ, &mr));
        CHECK_OK(
            rdmux_mr_register(pair.fabric_a, back, sizeof(back), RDMUX_ACCESS_LOCAL_WRITE, &local));
        struct rdmux_remote *remote = import_region(pair.a, mr);
        struct rdmux_mr *key = registered == 1 ? local : NULL;
        for (size_t round = 0; round < ROUNDS * RDMUX_COUNT_OF(lengths); round++) {
            size_t length = lengths[round % RDMUX_COUNT_OF(lengths)];
            struct rdmux_sge out[PIECES];
            for (size_t i = 0; i < length; i++) {
                from[i] = (uint8_t)(i * 7 + round);
            }
            memset(back, 0, length);
            for (size_t k = 0; k < PIECES; k++) {
                size_t at = k * (length / PIECES);
                size_t piece = k == PIECES - 1 ? length - at : length / PIECES;
                out[k] = (struct rdmux_sge){ from + at, piece, NULL };
            }
            const struct rdmux_wr wrs[] = {
                { .op = RDMUX_OP_WRITE, .sges = out, .sge_count = PIECES, .remote = remote },
                { .op = RDMUX_OP_READ,
                  .flags = RDMUX_FENCE,
                  .sges = &(struct rdmux_sge){ back, length, key },
                  .sge_count = 1,
                  .remote = remote },
            };
            size_t posted = 0;
            CHECK_OK(rdmux_post(pair.a, wrs, 2, &posted));
            if (round % 3 != 0) {
                (void)rdmux_cq_poll(pair.cq_b, NULL, 0);
                fail_path(round % 3 == 1 ? pair.a : pair.b, RDMUX_IO);
            }
            uint64_t until = now_ms() + PATIENT_MS;
            for (int done = 0; done < 2;) {
                struct rdmux_wc wc;
                assert_true(now_ms() < until);
                (void)rdmux_cq_poll(pair.cq_b, &wc, 1);
                if (rdmux_cq_poll(pair.cq_a, &wc, 1) == 1 && wc.opcode != RDMUX_WC_PATH_CHANGED) {
                    assert_int_equal(wc.status, RDMUX_OK);
                    assert_int_equal(wc.length, length);
                    done++;
                }
            }
            assert_memory_equal(rdmux_mr_addr(mr), from, length);
            assert_memory_equal(back, from, length);
        }
        assert_true(moves_of(pair.a) > ROUNDS);
        rdmux_mr_deregister(mr);
        rdmux_mr_deregister(local);
        close_pair(&pair);
        assert_int_equal(atomic_load(&meter.pieces), 0);
        assert_int_equal(atomic_load(&other.pieces), 0);
    }
}

static void messages_into_receives_without_keys_arrive_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(ways_to_break); i++) {
        struct meter meter = { .left = 0 };
        struct meter other = { .left = 0 };
        struct pair pair = { .a = NULL };
        struct rdmux_ep_attr attr = traffic_attr;
        attr.failover = RDMUX_FAILOVER_ON;
        attr.max_send = attr.max_recv = 20000; /* of the path */
        pair.fabric_a = open_device_fabric(&meter, 0);
        pair.fabric_b = open_metered_fabric("tcp", 0, NULL, &other);
        pair.cq_a = create_cq(pair.fabric_a);
        pair.cq_b = create_cq(pair.fabric_b);
        pair.listener = listen_here(pair.fabric_b, NULL, pair.address);
        connect_more(&pair, &attr, &pair.a, &pair.b);
        run_traffic(&pair, 1000, 100, ways_to_break[i]);
        close_pair(&pair);
        assert_int_equal(atomic_load(&meter.pieces), 0);
        assert_int_equal(atomic_load(&other.pieces), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receives_of_an_srq_are_neither_lost_nor_filled_twice),
        cmocka_unit_test(a_paused_endpoint_is_paused_on_its_next_path),
        cmocka_unit_test(peers_authenticate_again_on_each_socket),
        cmocka_unit_test(peers_with_certificates_authenticate_again_on_each_socket),
        cmocka_unit_test(another_identity_resumes_nothing_even_with_the_secret),
        cmocka_unit_test(atomics_of_a_device_stay_on_it),
        cmocka_unit_test(a_path_that_failed_to_connect_is_tried_last),
        cmocka_unit_test(lists_without_keys_get_new_ones_on_each_path),
        cmocka_unit_test(messages_into_receives_without_keys_arrive_once),
    };
    return cmocka_run_group_tests(tests, make_auth_folder, remove_auth_folder);
}
