/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A man in the middle between two peers that authenticate; paths that are not encrypted; data
 * sockets that join without authentication. */
#include "api/core/ep.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/object/joins.h"
#include "negotiation/path_secret.h"
#include "tests/unit/auth_scene.h"
#include "tests/unit/listener_scene.h"

static struct rdmux_fabric_auth keys_of_anna(char file[FILE_NAME_MAX])
{
    return psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
}

/* ------------------------------------------------------------------------------------ tampering */

/* Connects through a man in the middle that changes one byte of the connector's stream, or of the
 * acceptor's. */
static void check_tampering(size_t from_connector_at, size_t from_acceptor_at)
{
    static struct middle middle;
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys_of_anna(file);
    struct pair pair;
    struct rdmux_ep *ep = NULL;
    open_auth_sides(&pair, "tcp", &auth, &auth, NULL);
    memset(&middle, 0, sizeof(middle));
    middle.from_connector_at = from_connector_at;
    middle.from_acceptor_at = from_acceptor_at;
    middle.first_only = true; /* else a data socket could fail */
    start_middle(&middle, pair.address);

    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, middle.address, NULL, 0, &ep),
                 RDMUX_IN_PROGRESS);
    uint64_t until = now_ms() + PATIENT_MS;
    struct rdmux_wc wc = { .opcode = 0 };
    while (rdmux_cq_poll(pair.cq_a, &wc, 1) == 0) {
        struct rdmux_ep *taken = NULL;
        enum rdmux_status status = rdmux_accept(pair.listener, pair.cq_b, NULL, 0, &taken);
        if (now_ms() > until || status != RDMUX_AGAIN) {
            fail_msg("byte %zu of the connector, %zu of the acceptor changed: accept %s",
                     from_connector_at, from_acceptor_at, rdmux_status_name(status));
        }
    }

    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(ep, &info));
    if (wc.opcode != RDMUX_WC_CONNECTED || wc.status == RDMUX_OK) {
        fail_msg("byte %zu of the connector, %zu of the acceptor changed: connected",
                 from_connector_at, from_acceptor_at);
    }
    assert_true(atomic_load(&middle.changed) > 0); /* else the test proves nothing */
    CHECK_OK(rdmux_ep_close(ep));
    stop_middle(&middle);
    close_pair(&pair);
}

static void a_change_of_the_methods_in_clear_stops_the_connection(void **state)
{
    (void)state;
    check_tampering(27, SIZE_MAX); /* the lowest bit of HELLO's authentication */
}

static void a_change_of_the_clear_hello_stops_the_connection(void **state)
{
    static const size_t at[] = { 11, 19, 23, 40, 55, 70, 95 };
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(at); i++) {
        check_tampering(at[i], SIZE_MAX);
    }
}

static void a_change_of_the_tls_handshake_stops_the_connection(void **state)
{
    static const size_t at[] = { 5, 11, 60 };
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(at); i++) {
        check_tampering(RDMUX_HELLO_SIZE + at[i], SIZE_MAX);
        check_tampering(SIZE_MAX, at[i]);
    }
}

static void a_change_of_an_offer_stops_the_connection(void **state)
{
    (void)state;
    /* After HELLO in clear, some 500 bytes of the TLS handshake, and HELLO again. */
    check_tampering(700, SIZE_MAX);
    check_tampering(800, SIZE_MAX);
}

/* A connection succeeds through an eavesdropper, which learns no secret. */
static void an_eavesdropper_learns_no_secret(void **state)
{
    static struct middle middle;
    static uint8_t bytes[64];
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys_of_anna(file);
    struct pair pair;
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_mr *mr = NULL;
    struct rdmux_token token;
    (void)state;
    open_auth_sides(&pair, "tcp", &auth, &auth, NULL);
    memset(&middle, 0, sizeof(middle));
    middle.from_connector_at = SIZE_MAX;
    middle.from_acceptor_at = SIZE_MAX;
    start_middle(&middle, pair.address);
    memcpy(address, pair.address, sizeof(address));
    memcpy(pair.address, middle.address,
           sizeof(address)); /* connectors dial the port of the man in the middle */
    CHECK_OK(rdmux_mr_register(pair.fabric_b, bytes, sizeof(bytes), RDMUX_ACCESS_REMOTE_READ, &mr));
    CHECK_OK(rdmux_mr_export(mr, &token));

    connect_more(&pair, NULL, &pair.a, &pair.b);
    struct rdmux_remote *remote = import_region(pair.a, mr);

    uint8_t name[RDMUX_SECRET_SIZE];
    static const char provider[] = "tcp";
    assert_true(rdmux_join_name(pair.b->secrets->secret, name));
    assert_true(was_overheard(&middle, name, sizeof(name))); /* he did hear the JOIN */
    assert_false(was_overheard(&middle, pair.b->secrets->secret, RDMUX_SECRET_SIZE));
    assert_false(was_overheard(&middle, token.bytes + 40, 16)); /* its random bits */
    assert_false(was_overheard(&middle, provider, sizeof(provider) - 1));
    rdmux_remote_close(remote);
    rdmux_mr_deregister(mr);
    stop_middle(&middle);
    memcpy(pair.address, address, sizeof(address));
    close_pair(&pair);
}

/* ------------------------------------------------------------------------ speaking in the clear */

/* Sends an opening in clear, as a connector without authentication does, whatever methods it
 * claims. */
static void check_clear_opening(uint32_t methods)
{
    static struct logbook book;
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys_of_anna(file);
    struct pair pair;
    uint8_t opening[OPENING_MAX];
    uint8_t answer[RDMUX_HELLO_SIZE];
    struct rdmux_hello hello;
    pthread_mutex_init(&book.lock, NULL);
    logbook_clear(&book);
    open_auth_sides(&pair, "tcp", NULL, &auth, &book);
    size_t size = make_opening(pair.fabric_a, opening);
    opening[27] = (uint8_t)methods;
    int fd = dial_raw(pair.address);

    send_bytes(fd, opening, size);

    wait_for_line(&book, "turned away");
    if (methods != RDMUX_AUTH_PSK) {
        assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
        CHECK_OK(rdmux_hello_decode(answer, sizeof(answer), &hello));
        assert_int_equal(hello.authentication, RDMUX_AUTH_PSK);
    }
    assert_true(is_dropped(fd, PATIENT_MS));
    assert_int_equal(counts_of(pair.fabric_b).turned_away, 1);
    assert_int_equal(counts_of(pair.fabric_b).dropped, 0);
    expect_nobody(&pair);
    close(fd);
    close_pair(&pair);
}

static void an_offer_in_clear_is_not_read(void **state)
{
    (void)state;
    check_clear_opening(0);
    check_clear_opening(RDMUX_AUTH_PSK);
    check_clear_opening(RDMUX_AUTH_CERT);
}

static void an_adopted_socket_authenticates_or_ends(void **state)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys_of_anna(file);
    struct pair pair;
    (void)state;
    open_auth_sides(&pair, "shm", &auth, NULL, NULL);
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);

    CHECK_STATUS(
        rdmux_adopt(pair.fabric_a, pair.cq_a, sockets[0], RDMUX_ROLE_ACCEPT, NULL, 0, &pair.a),
        RDMUX_IN_PROGRESS);
    CHECK_STATUS(
        rdmux_adopt(pair.fabric_b, pair.cq_b, sockets[1], RDMUX_ROLE_CONNECT, NULL, 0, &pair.b),
        RDMUX_IN_PROGRESS);

    expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_AUTH);
    expect_entry(pair.cq_b, RDMUX_WC_CONNECTED, RDMUX_AUTH);
    close_pair(&pair);
}

/* Both sides adopt; the paths decide the outcome. */
static void adopt_both(struct pair *pair, int sockets[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    CHECK_STATUS(
        rdmux_adopt(pair->fabric_a, pair->cq_a, sockets[0], RDMUX_ROLE_CONNECT, NULL, 0, &pair->a),
        RDMUX_IN_PROGRESS);
    CHECK_STATUS(
        rdmux_adopt(pair->fabric_b, pair->cq_b, sockets[1], RDMUX_ROLE_ACCEPT, NULL, 0, &pair->b),
        RDMUX_IN_PROGRESS);
}

static void an_adopted_socket_carries_the_session(void **state)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys_of_anna(file);
    struct pair pair;
    int sockets[2];
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        open_auth_sides(&pair, i == 0 ? "shm" : "tcp", &auth, &auth, NULL);

        adopt_both(&pair, sockets);

        expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
        expect_entry(pair.cq_b, RDMUX_WC_CONNECTED, RDMUX_OK);
        check_messages(&pair);
        close_pair(&pair);
    }
}

static void peers_that_cannot_authenticate_are_refused(void **state)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys_of_anna(file);
    struct pair pair;
    struct rdmux_listener *listener = NULL;
    (void)state;
    open_auth_sides(&pair, "tcp", &auth, &auth, NULL);

    CHECK_STATUS(rdmux_listen(pair.fabric_a, "rdma://127.0.0.1:0", NULL, &listener), RDMUX_AUTH);
    expect_refusal(&pair, "rdma://127.0.0.1:7471", RDMUX_AUTH, "use a fabric without auth");

    close_pair(&pair);
}

/* ---------------------------------------------------------------------------------------- joins */

static struct rdmux_join join_of(const struct rdmux_ep *ep)
{
    struct rdmux_join join = { .epoch = 1, .attempt = ep->negotiated.attempt, .index = 0 };
    memcpy(join.secret, ep->secrets->secret, sizeof(join.secret));
    return join;
}

/* An endpoint that sockets may join, as far as the listener's look-up is concerned. */
struct joinable {
    struct pair pair;
    struct rdmux_ep ep;
    struct rdmux_ep_secrets secrets;
};

static struct joinable *open_joinable(const struct rdmux_fabric_auth *auth)
{
    struct joinable *joinable = calloc(1, sizeof(*joinable));
    assert_non_null(joinable);
    open_auth_sides(&joinable->pair, "tcp", auth, auth, NULL);
    struct rdmux_ep *ep = &joinable->ep;
    ep->fabric = joinable->pair.fabric_b;
    ep->cq = joinable->pair.cq_b;
    ep->secrets = &joinable->secrets;
    ep->negotiated.attempt = 1;
    memset(ep->secrets->secret, 0x5a, RDMUX_SECRET_SIZE);
    rdmux_list_init(&ep->join);
    if (auth != NULL) {
        assert_true(rdmux_join_name(ep->secrets->secret, ep->secrets->join_name));
    }
    CHECK_OK(rdmux_joins_add(ep->fabric, ep));
    return joinable;
}

static void close_joinable(struct joinable *joinable)
{
    rdmux_joins_remove(joinable->ep.fabric, &joinable->ep);
    close_pair(&joinable->pair);
    free(joinable);
}

static void a_sealed_join_finds_its_connection(void **state)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys_of_anna(file);
    struct joinable *joinable = open_joinable(&auth);
    struct rdmux_join join = join_of(&joinable->ep);
    uint8_t bytes[RDMUX_JOIN_SIZE];
    struct rdmux_join heard;
    (void)state;

    assert_true(rdmux_join_seal(&join, joinable->ep.secrets->secret));
    rdmux_join_encode(&join, bytes);
    CHECK_OK(rdmux_join_decode(bytes, &heard));

    assert_ptr_equal(rdmux_joins_find(joinable->pair.cq_b, &heard), &joinable->ep);
    close_joinable(joinable);
}

static void a_join_with_the_secret_in_clear_finds_nothing(void **state)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys_of_anna(file);
    struct joinable *joinable = open_joinable(&auth);
    struct rdmux_join join = join_of(&joinable->ep);
    (void)state;

    assert_null(rdmux_joins_find(joinable->pair.cq_b, &join));

    close_joinable(joinable);
}

static void a_join_changed_in_any_bit_finds_nothing(void **state)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys_of_anna(file);
    struct joinable *joinable = open_joinable(&auth);
    struct rdmux_join join = join_of(&joinable->ep);
    uint8_t bytes[RDMUX_JOIN_SIZE];
    (void)state;
    assert_true(rdmux_join_seal(&join, joinable->ep.secrets->secret));
    rdmux_join_encode(&join, bytes);

    for (size_t bit = (size_t)10 * 8; bit < (size_t)56 * 8; bit++) {
        struct rdmux_join heard;
        bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
        CHECK_OK(rdmux_join_decode(bytes, &heard));
        if (rdmux_joins_find(joinable->pair.cq_b, &heard) != NULL) {
            fail_msg("bit %zu of byte %zu of a JOIN may be changed", bit % 8, bit / 8);
        }
        bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }

    close_joinable(joinable);
}

static void a_sealed_join_finds_nothing_without_authentication(void **state)
{
    struct joinable *joinable = open_joinable(NULL);
    struct rdmux_join join = join_of(&joinable->ep);
    (void)state;
    assert_ptr_equal(rdmux_joins_find(joinable->pair.cq_b, &join), &joinable->ep);

    assert_true(rdmux_join_seal(&join, joinable->ep.secrets->secret));

    assert_null(rdmux_joins_find(joinable->pair.cq_b, &join));
    close_joinable(joinable);
}

/* ----------------------------------------------------------------------------------- encryption */

/* require_a, require_b: that side demands encryption. left_out: shm is available, but not
 * chosen. */
static void check_encryption(const char *paths, bool require_a, bool require_b, const char *trusted,
                             const char *chosen, bool left_out)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth_a = keys_of_anna(file);
    struct rdmux_fabric_auth auth_b = auth_a;
    struct pair pair;
    struct rdmux_explanation *explanation = NULL;
    const char *json = NULL;
    auth_a.flags = require_a ? RDMUX_AUTH_REQUIRE_ENCRYPTION : 0;
    auth_b.flags = require_b ? RDMUX_AUTH_REQUIRE_ENCRYPTION : 0;
    auth_a.trusted = trusted;
    auth_b.trusted = trusted;
    open_auth_sides(&pair, paths, &auth_a, &auth_b, NULL);

    enum rdmux_status status = rdmux_explain(pair.fabric_a, pair.address, NULL, PATIENT_MS,
                                             &explanation);

    CHECK_OK(status);
    CHECK_OK(rdmux_explanation_json(explanation, &json));
    assert_int_equal(strstr(json, "\"NOT_ENCRYPTED\"") != NULL, left_out);
    assert_int_equal(strstr(json, "auth.trusted") != NULL, left_out);
    rdmux_explanation_free(explanation);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    connect_more(&pair, NULL, &pair.a, &pair.b);
    CHECK_OK(rdmux_ep_info(pair.a, &info));
    assert_string_equal(info.provider, chosen);
    close_pair(&pair);
}

static void tcp_meets_a_demand_for_encryption(void **state)
{
    (void)state;
    check_encryption("tcp", true, true, "none", "tcp", false);
}

static void a_demand_for_encryption_removes_unencrypted_paths(void **state)
{
    (void)state;
    check_encryption("shm,tcp", true, true, "none", "tcp", true);
    check_encryption("shm,tcp", false, false, "none", "shm", false); /* a sanity check */
}

static void a_demand_for_encryption_by_either_side_is_enough(void **state)
{
    (void)state;
    check_encryption("shm,tcp", true, false, "none", "tcp", true);
    check_encryption("shm,tcp", false, true, "none", "tcp", true);
}

static void a_path_that_both_sides_trust_is_chosen(void **state)
{
    (void)state;
    check_encryption("shm,tcp", true, true, "shm", "shm", false);
}

static void a_path_must_be_trusted_by_both_sides(void **state)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth_a = keys_of_anna(file);
    struct rdmux_fabric_auth auth_b = auth_a;
    struct pair pair;
    struct rdmux_explanation *explanation = NULL;
    (void)state;
    auth_a.flags = RDMUX_AUTH_REQUIRE_ENCRYPTION;
    auth_b.flags = RDMUX_AUTH_REQUIRE_ENCRYPTION;
    auth_a.trusted = "shm";
    auth_b.trusted = "none";
    open_auth_sides(&pair, "shm", &auth_a, &auth_b, NULL);

    CHECK_STATUS(rdmux_explain(pair.fabric_a, pair.address, NULL, PATIENT_MS, &explanation),
                 RDMUX_NO_PATH);

    const char *json = NULL;
    CHECK_OK(rdmux_explanation_json(explanation, &json));
    if (strstr(json, "acceptor: name shm in auth.trusted") == NULL) {
        fail_msg("the explanation is: %s", json);
    }
    rdmux_explanation_free(explanation);
    close_pair(&pair);
}

static void a_side_that_trusts_no_provider_has_no_path(void **state)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys_of_anna(file);
    struct pair pair;
    struct rdmux_explanation *explanation = NULL;
    (void)state;
    auth.flags = RDMUX_AUTH_REQUIRE_ENCRYPTION;
    auth.trusted = "none";
    open_auth_sides(&pair, "shm", &auth, &auth, NULL);

    CHECK_STATUS(rdmux_explain(pair.fabric_a, pair.address, NULL, PATIENT_MS, &explanation),
                 RDMUX_NO_PATH);

    rdmux_explanation_free(explanation);
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_of_the_methods_in_clear_stops_the_connection),
        cmocka_unit_test(a_change_of_the_clear_hello_stops_the_connection),
        cmocka_unit_test(a_change_of_the_tls_handshake_stops_the_connection),
        cmocka_unit_test(a_change_of_an_offer_stops_the_connection),
        cmocka_unit_test(an_eavesdropper_learns_no_secret),
        cmocka_unit_test(an_offer_in_clear_is_not_read),
        cmocka_unit_test(an_adopted_socket_authenticates_or_ends),
        cmocka_unit_test(an_adopted_socket_carries_the_session),
        cmocka_unit_test(peers_that_cannot_authenticate_are_refused),
        cmocka_unit_test(a_sealed_join_finds_its_connection),
        cmocka_unit_test(a_join_with_the_secret_in_clear_finds_nothing),
        cmocka_unit_test(a_join_changed_in_any_bit_finds_nothing),
        cmocka_unit_test(a_sealed_join_finds_nothing_without_authentication),
        cmocka_unit_test(tcp_meets_a_demand_for_encryption),
        cmocka_unit_test(a_demand_for_encryption_removes_unencrypted_paths),
        cmocka_unit_test(a_demand_for_encryption_by_either_side_is_enough),
        cmocka_unit_test(a_path_that_both_sides_trust_is_chosen),
        cmocka_unit_test(a_path_must_be_trusted_by_both_sides),
        cmocka_unit_test(a_side_that_trusts_no_provider_has_no_path),
    };
    return cmocka_run_group_tests_name("auth_path", tests, make_auth_folder, remove_auth_folder);
}
