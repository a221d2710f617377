/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Authentication by keys and certificates: which peers are admitted, which are refused, and the
 * errors they get. */
#include "api/core/ep.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/object/offer.h"
#include "api/progress/cq_owner.h"
#include "negotiation/control_channel.h"
#include "negotiation/message.h"
#include "tests/unit/auth_scene.h"

#include <openssl/ssl.h>

/* ------------------------------------------------------------------------------ pre-shared keys */

static void peers_with_the_same_key_connect_and_know_each_other(void **state)
{
    char file[FILE_NAME_MAX];
    char other[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth_a = psk_of(write_file("a", "anna:" KEY_ONE "\n", file));
    struct rdmux_fabric_auth auth_b = psk_of(
        write_file("b", "# who may come\n\nbert:" KEY_TWO "\nanna:" KEY_ONE "\n", other));
    struct pair pair;
    (void)state;
    open_auth_sides(&pair, "tcp", &auth_a, &auth_b, NULL);

    connect_more(&pair, NULL, &pair.a, &pair.b);

    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(pair.b, &info));
    assert_string_equal(info.peer_identity, "anna");
    assert_int_equal(info.security, RDMUX_SECURITY_ENCRYPTED);
    CHECK_OK(rdmux_ep_info(pair.a, &info));
    assert_string_equal(info.peer_identity, "anna");
    check_messages(&pair);
    close_pair(&pair);
}

static void a_fabric_with_auth_reports_tcp_as_encrypted(void **state)
{
    enum { PATHS = 16 };
    static struct rdmux_path_info infos[PATHS];
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
    struct pair pair;
    size_t count = 0;
    bool found = false;
    (void)state;
    open_auth_sides(&pair, "tcp", &auth, &auth, NULL);
    for (size_t i = 0; i < PATHS; i++) {
        infos[i].size = sizeof(infos[i]);
    }

    CHECK_OK(rdmux_fabric_paths(pair.fabric_a, infos, PATHS, &count));

    for (size_t i = 0; i < count && i < PATHS; i++) {
        if (strcmp(infos[i].provider, "tcp") == 0) {
            found = true;
            assert_int_equal(infos[i].security, RDMUX_SECURITY_ENCRYPTED);
        }
    }
    assert_true(found);
    close_pair(&pair);
}

static void shared_memory_works_between_authenticated_peers(void **state)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
    struct pair pair;
    (void)state;
    open_auth_sides(&pair, "shm", &auth, &auth, NULL);

    connect_more(&pair, NULL, &pair.a, &pair.b);

    check_messages(&pair);
    close_pair(&pair);
}

static void a_thousand_imports_travel_through_the_session(void **state)
{
    enum { IMPORTS = 1000 };
    static struct rdmux_remote *remotes[IMPORTS];
    static uint8_t bytes[4096];
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
    struct pair pair;
    struct rdmux_mr *mr = NULL;
    struct rdmux_token token;
    (void)state;
    open_auth_sides(&pair, "tcp", &auth, &auth, NULL);
    connect_more(&pair, NULL, &pair.a, &pair.b);
    CHECK_OK(rdmux_mr_register(pair.fabric_b, bytes, sizeof(bytes), RDMUX_ACCESS_REMOTE_READ, &mr));
    CHECK_OK(rdmux_mr_export(mr, &token));

    for (size_t i = 0; i < IMPORTS; i++) {
        CHECK_STATUS(rdmux_remote_import(pair.a, &token, 0, &remotes[i]), RDMUX_IN_PROGRESS);
    }

    for (size_t i = 0; i < IMPORTS; i++) {
        expect_entry(pair.cq_a, RDMUX_WC_REMOTE_READY, RDMUX_OK);
    }
    for (size_t i = 0; i < IMPORTS; i++) {
        rdmux_remote_close(remotes[i]);
    }
    rdmux_mr_deregister(mr);
    close_pair(&pair);
}

/* The socket does not signal frames that a record has brought beside the first one, and the peer
 * sends nothing after. */
static void all_frames_of_a_record_are_read(void **state)
{
    enum { HEARTBEATS = 100 };
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    const struct rdmux_message heartbeat = { .type = RDMUX_FRAME_HEARTBEAT };
    const struct rdmux_message fault = { .type = RDMUX_FRAME_FAULT, .status = RDMUX_IO };
    uint8_t record[2048];
    size_t size = 0;
    struct pair pair;
    (void)state;
    attr.liveness_ms = RDMUX_NEVER;
    open_auth_sides(&pair, "tcp", &auth, &auth, NULL);
    connect_more(&pair, &attr, &pair.a, &pair.b);
    for (size_t i = 0; i < HEARTBEATS; i++) {
        size += rdmux_message_encode(&heartbeat, record + size);
    }
    size += rdmux_message_encode(&fault, record + size);

    assert_true(rdmux_cq_enter(pair.cq_a));
    CHECK_OK(rdmux_channel_send(pair.a->channel, record, size));
    rdmux_cq_leave(pair.cq_a);

    expect_entry(pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_IO);
    close_pair(&pair);
}

static void a_listener_shows_the_identity_of_a_connection_before_it_is_accepted(void **state)
{
    char file[FILE_NAME_MAX];
    char other[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth_a = psk_of(write_file("a", "bert:" KEY_TWO "\n", file));
    struct rdmux_fabric_auth auth_b = psk_of(
        write_file("b", "anna:" KEY_ONE "\nbert:" KEY_TWO "\n", other));
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct pair pair;
    (void)state;
    open_auth_sides(&pair, "tcp", &auth_a, &auth_b, NULL);
    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &pair.a),
                 RDMUX_IN_PROGRESS);

    uint64_t until = now_ms() + PATIENT_MS;
    enum rdmux_status status = RDMUX_AGAIN;
    while (status == RDMUX_AGAIN && now_ms() < until) {
        (void)rdmux_cq_poll(pair.cq_a, NULL, 0);
        status = rdmux_listener_next(pair.listener, 0, &peer);
    }

    CHECK_STATUS(status, RDMUX_OK);
    assert_string_equal(peer.identity, "bert");
    CHECK_OK(rdmux_reject(pair.listener, peer.id, 77, NULL, 0));
    struct rdmux_wc wc = expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_REFUSED);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(wc.ep, &info));
    assert_int_equal(info.reject_reason, 77);
    close_pair(&pair);
}

/* Connects with these key files; checks how the connect ends. */
static void check_psk_refusal(const char *keys_a, const char *keys_b, const char *const *peers,
                              size_t peer_count, const char *logged)
{
    static struct logbook book;
    char file[FILE_NAME_MAX];
    char other[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth_a = psk_of(write_file("a", keys_a, file));
    struct rdmux_fabric_auth auth_b = psk_of(write_file("b", keys_b, other));
    struct pair pair;
    auth_b.peers = peers;
    auth_b.peer_count = peer_count;
    pthread_mutex_init(&book.lock, NULL);
    logbook_clear(&book);
    open_auth_sides(&pair, "tcp", &auth_a, &auth_b, &book);

    expect_refusal(&pair, pair.address, RDMUX_AUTH, "the peer has refused identity \"anna\"");

    wait_for_line(&book, logged);
    expect_nobody(&pair);
    close_pair(&pair);
}

static void a_wrong_key_is_refused(void **state)
{
    (void)state;
    check_psk_refusal("anna:" KEY_ONE "\n", "anna:" KEY_TWO "\n", NULL, 0,
                      "is the identity's key the same in both key files?");
}

static void an_unknown_identity_is_refused(void **state)
{
    (void)state;
    check_psk_refusal("anna:" KEY_ONE "\n", "bert:" KEY_ONE "\n", NULL, 0,
                      "its identity is in no line of auth.key_file");
}

static void an_identity_that_is_not_listed_is_refused(void **state)
{
    static const char *const peers[] = { "bert", "carl" };
    (void)state;
    check_psk_refusal("anna:" KEY_ONE "\n", "anna:" KEY_ONE "\n", peers, 2,
                      "\"anna\" is not one of auth.peers");
}

/* A list of keys admits connectors. A connector has already named its peer by the key that it
 * uses. */
static void a_connector_may_use_a_key_that_its_own_list_does_not_admit(void **state)
{
    static const char *const peers[] = { "bert" };
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(
        write_file("k", "anna:" KEY_ONE "\nbert:" KEY_TWO "\n", file));
    struct rdmux_fabric_auth auth_a = auth;
    struct pair pair;
    (void)state;
    auth_a.identity = "anna";
    auth_a.peers = peers;
    auth_a.peer_count = 1;
    open_auth_sides(&pair, "tcp", &auth_a, &auth, NULL);

    connect_more(&pair, NULL, &pair.a, &pair.b);

    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(pair.a, &info));
    assert_string_equal(info.peer_identity, "anna");
    close_pair(&pair);
    check_psk_refusal("anna:" KEY_ONE "\n", "anna:" KEY_ONE "\nbert:" KEY_TWO "\n", peers, 1,
                      "\"anna\" is not one of auth.peers");
}

/* Returns the error text of a connector, which is all that it can see. */
static void refusal_of(const char *keys_a, char out[RDMUX_TEXT_MAX])
{
    char file[FILE_NAME_MAX];
    char other[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth_a = psk_of(write_file("a", keys_a, file));
    struct rdmux_fabric_auth auth_b = psk_of(write_file("b", "anna:" KEY_ONE "\n", other));
    struct pair pair;
    struct rdmux_ep *ep = NULL;
    open_auth_sides(&pair, "tcp", &auth_a, &auth_b, NULL);
    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, PATIENT_MS, &ep),
                 RDMUX_AUTH);
    const char *reason = strchr(rdmux_last_error(), '(');
    assert_non_null(reason);
    snprintf(out, RDMUX_TEXT_MAX, "%s", reason);
    close_pair(&pair);
}

static void a_refusal_does_not_show_whether_an_identity_exists(void **state)
{
    char wrong_key[RDMUX_TEXT_MAX];
    char wrong_identity[RDMUX_TEXT_MAX];
    (void)state;

    refusal_of("anna:" KEY_TWO "\n", wrong_key);
    refusal_of("nora:" KEY_TWO "\n", wrong_identity);

    assert_string_equal(wrong_key, wrong_identity);
}

/* A TLS server with a certificate and no key. */
struct rogue {
    pthread_t thread;
    int listening;
    char address[RDMUX_ADDRESS_MAX];
    struct certified_key papers;
    bool trusted; /* some client took it */
};

static void *serve_as_rogue(void *user)
{
    struct rogue *rogue = user;
    uint8_t hello[RDMUX_HELLO_SIZE];
    int fd = accept(rogue->listening, NULL, NULL);
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(context, rogue->papers.certificate);
    SSL_CTX_use_PrivateKey(context, rogue->papers.key);
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    if (recv(fd, hello, sizeof(hello), MSG_WAITALL) == sizeof(hello) && SSL_accept(ssl) == 1) {
        uint8_t byte;
        rogue->trusted = SSL_read(ssl, &byte, 1) == 1;
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(fd);
    return NULL;
}

static void a_connector_with_a_key_refuses_a_server_with_a_certificate(void **state)
{
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(here);
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
    struct rogue rogue = { .listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    struct pair pair;
    (void)state;
    rogue.papers = make_certificate("127.0.0.1", "IP:127.0.0.1", NULL, 10, NULL);
    assert_int_equal(bind(rogue.listening, (struct sockaddr *)&here, sizeof(here)), 0);
    assert_int_equal(listen(rogue.listening, 1), 0);
    assert_int_equal(getsockname(rogue.listening, (struct sockaddr *)&here, &length), 0);
    snprintf(rogue.address, sizeof(rogue.address), "127.0.0.1:%u", ntohs(here.sin_port));
    open_auth_sides(&pair, "tcp", &auth, &auth, NULL);
    assert_int_equal(pthread_create(&rogue.thread, NULL, serve_as_rogue, &rogue), 0);

    expect_refusal(&pair, rogue.address, RDMUX_AUTH, "the peer is not let in: its certificate");

    pthread_join(rogue.thread, NULL);
    assert_false(rogue.trusted);
    close(rogue.listening);
    free_certificate(&rogue.papers);
    close_pair(&pair);
}

/* ---------------------------------------------------------------------- sides that do not agree */

static void a_connector_without_authentication_is_told_the_missing_setting(void **state)
{
    static struct logbook book = LOGBOOK_INIT;
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
    struct pair pair;
    (void)state;
    open_auth_sides(&pair, "tcp", NULL, &auth, &book);

    expect_refusal(&pair, pair.address, RDMUX_AUTH,
                   "the peer asks for authentication by a pre-shared key; set");

    wait_for_line(&book, "the peer not at all");
    expect_nobody(&pair);
    close_pair(&pair);
}

static void a_connector_with_a_key_refuses_a_listener_without_authentication(void **state)
{
    static struct logbook book = LOGBOOK_INIT;
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
    struct pair pair;
    (void)state;
    open_auth_sides(&pair, "tcp", &auth, NULL, &book);

    expect_refusal(&pair, pair.address, RDMUX_AUTH,
                   "this side authenticates by a pre-shared key, the peer not at all");

    wait_for_line(&book, "asks for authentication by a pre-shared key");
    expect_nobody(&pair);
    close_pair(&pair);
}

static void an_explain_goes_through_the_session(void **state)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
    struct rdmux_explanation *explanation = NULL;
    struct pair pair;
    (void)state;
    open_auth_sides(&pair, "tcp", &auth, &auth, NULL);

    CHECK_OK(rdmux_explain(pair.fabric_a, pair.address, NULL, PATIENT_MS, &explanation));

    const char *json = NULL;
    CHECK_OK(rdmux_explanation_json(explanation, &json));
    assert_non_null(strstr(json, "\"encrypted\""));
    rdmux_explanation_free(explanation);
    close_pair(&pair);
}

static void explain_names_the_missing_setting(void **state)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
    struct rdmux_explanation *explanation = NULL;
    struct pair pair;
    (void)state;
    open_auth_sides(&pair, "tcp", NULL, &auth, NULL);

    CHECK_STATUS(rdmux_explain(pair.fabric_a, pair.address, NULL, PATIENT_MS, &explanation),
                 RDMUX_AUTH);

    assert_non_null(strstr(rdmux_last_error(), "--auth psk"));
    close_pair(&pair);
}

/* --------------------------------------------------------------------------------- certificates */

/* One authority, and a certificate for each side. */
struct office {
    struct certified_key authority;
    struct certified_key own_a;
    struct certified_key own_b;
    struct certificate_files papers_a;
    struct certificate_files papers_b;
};

static void open_office(struct office *office, const char *names_b, const char *usage_a)
{
    office->authority = make_certificate("the authority", NULL, NULL, 100, NULL);
    office->own_a = make_certificate("anna", NULL, usage_a, 100, &office->authority);
    office->own_b = make_certificate("bert", names_b, "serverAuth,clientAuth", 100,
                                     &office->authority);
    write_certificate_files("a", &office->own_a, &office->authority, &office->papers_a);
    write_certificate_files("b", &office->own_b, &office->authority, &office->papers_b);
}

static void close_office(struct office *office)
{
    free_certificate(&office->authority);
    free_certificate(&office->own_a);
    free_certificate(&office->own_b);
}

/* Both sides have a certificate of the same authority; b's is for these names. */
static void open_certified_sides(struct office *office, struct pair *pair, const char *names)
{
    open_office(office, names, NULL);
    struct rdmux_fabric_auth auth_a = cert_of(&office->papers_a);
    struct rdmux_fabric_auth auth_b = cert_of(&office->papers_b);
    open_auth_sides(pair, "tcp", &auth_a, &auth_b, NULL);
}

static void peers_with_certificates_of_one_authority_connect(void **state)
{
    struct office office;
    struct pair pair;
    (void)state;
    open_certified_sides(&office, &pair, "DNS:bert.example,IP:127.0.0.1");

    connect_more(&pair, NULL, &pair.a, &pair.b);

    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(pair.b, &info));
    assert_string_equal(info.peer_identity, "anna");
    CHECK_OK(rdmux_ep_info(pair.a, &info));
    assert_string_equal(info.peer_identity, "bert.example");
    check_messages(&pair);
    close_pair(&pair);
    close_office(&office);
}

static void check_cert_refusal(const struct rdmux_fabric_auth *auth_a,
                               const struct rdmux_fabric_auth *auth_b, const char *part,
                               const char *logged)
{
    static struct logbook book;
    struct pair pair;
    pthread_mutex_init(&book.lock, NULL);
    logbook_clear(&book);
    open_auth_sides(&pair, "tcp", auth_a, auth_b, &book);

    expect_refusal(&pair, pair.address, RDMUX_AUTH, part);

    wait_for_line(&book, logged);
    expect_nobody(&pair);
    close_pair(&pair);
}

static void a_certificate_for_another_host_is_refused(void **state)
{
    struct office office;
    (void)state;
    open_office(&office, "DNS:bert.example,IP:127.0.0.2", NULL);
    struct rdmux_fabric_auth auth_a = cert_of(&office.papers_a);
    struct rdmux_fabric_auth auth_b = cert_of(&office.papers_b);

    check_cert_refusal(&auth_a, &auth_b, "is that of \"bert.example\", not of 127.0.0.1",
                       "authentication: the peer has refused this side's certificate");

    close_office(&office);
}

static void a_certificate_of_a_listed_identity_may_name_any_host(void **state)
{
    static const char *const bert[] = { "bert.example" };
    struct office office;
    struct pair pair;
    (void)state;
    open_office(&office, "DNS:bert.example", NULL);
    struct rdmux_fabric_auth auth_a = cert_of(&office.papers_a);
    struct rdmux_fabric_auth auth_b = cert_of(&office.papers_b);
    auth_a.peers = bert;
    auth_a.peer_count = 1;
    open_auth_sides(&pair, "tcp", &auth_a, &auth_b, NULL);

    connect_more(&pair, NULL, &pair.a, &pair.b);

    check_messages(&pair);
    close_pair(&pair);
    close_office(&office);
}

/* Checks how side b's certificate does on a socket of the program, for a side that names this
 * peer. */
static void check_adopted(const struct office *office, const char *peer, enum rdmux_status expected)
{
    const char *const peers[] = { peer };
    struct rdmux_fabric_auth auth_a = cert_of(&office->papers_a);
    struct rdmux_fabric_auth auth_b = cert_of(&office->papers_b);
    struct pair pair;
    int sockets[2];
    auth_a.peers = peers;
    auth_a.peer_count = 1;
    open_auth_sides(&pair, "tcp", &auth_a, &auth_b, NULL);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);

    CHECK_STATUS(
        rdmux_adopt(pair.fabric_a, pair.cq_a, sockets[0], RDMUX_ROLE_CONNECT, NULL, 0, &pair.a),
        RDMUX_IN_PROGRESS);
    CHECK_STATUS(
        rdmux_adopt(pair.fabric_b, pair.cq_b, sockets[1], RDMUX_ROLE_ACCEPT, NULL, 0, &pair.b),
        RDMUX_IN_PROGRESS); /* an acceptor needs no list */

    expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, expected);
    expect_entry(pair.cq_b, RDMUX_WC_CONNECTED, expected);
    if (expected == RDMUX_OK) {
        check_messages(&pair);
    }
    close_pair(&pair);
}

static void a_connector_of_an_adopted_socket_must_list_its_peers(void **state)
{
    struct office office;
    struct pair pair;
    int sockets[2];
    (void)state;
    open_certified_sides(&office, &pair, "DNS:bert.example");
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);

    CHECK_STATUS(
        rdmux_adopt(pair.fabric_a, pair.cq_a, sockets[0], RDMUX_ROLE_CONNECT, NULL, 0, &pair.a),
        RDMUX_INVALID);

    assert_null(pair.a);
    assert_non_null(strstr(rdmux_last_error(), "name in auth.peers who may"));
    assert_int_equal(send(sockets[0], "ours", 4, MSG_NOSIGNAL), 4); /* it was left alone */
    close(sockets[0]);
    close(sockets[1]);
    close_pair(&pair);
    check_adopted(&office, "bert.example", RDMUX_OK);
    check_adopted(&office, "carl", RDMUX_AUTH);
    close_office(&office);
}

static void a_certificate_that_is_not_listed_is_refused(void **state)
{
    static const char *const carl[] = { "carl" };
    struct office office;
    (void)state;
    open_office(&office, "IP:127.0.0.1", NULL);
    struct rdmux_fabric_auth auth_a = cert_of(&office.papers_a);
    struct rdmux_fabric_auth auth_b = cert_of(&office.papers_b);
    auth_b.peers = carl;
    auth_b.peer_count = 1;

    check_cert_refusal(&auth_a, &auth_b, "the peer has refused this side's certificate",
                       "\"anna\" is not one of auth.peers");

    close_office(&office);
}

static void a_certificate_of_another_authority_is_refused(void **state)
{
    struct office office;
    struct certified_key stranger = make_certificate("another authority", NULL, NULL, 100, NULL);
    struct certificate_files forged;
    (void)state;
    open_office(&office, "IP:127.0.0.1", NULL);
    struct certified_key own = make_certificate("anna", NULL, NULL, 100, &stranger);
    write_certificate_files("forged", &own, &office.authority, &forged);
    struct rdmux_fabric_auth auth_a = cert_of(&forged);
    struct rdmux_fabric_auth auth_b = cert_of(&office.papers_b);

    check_cert_refusal(&auth_a, &auth_b, "the peer has refused this side's certificate",
                       "unable to get local issuer certificate");

    free_certificate(&own);
    free_certificate(&stranger);
    close_office(&office);
}

static void an_expired_certificate_is_refused(void **state)
{
    struct office office;
    struct certificate_files late;
    (void)state;
    open_office(&office, "IP:127.0.0.1", NULL);
    struct certified_key own = make_certificate("anna", NULL, NULL, -1, &office.authority);
    write_certificate_files("late", &own, &office.authority, &late);
    struct rdmux_fabric_auth auth_a = cert_of(&late);
    struct rdmux_fabric_auth auth_b = cert_of(&office.papers_b);

    check_cert_refusal(&auth_a, &auth_b, "certificate expired", "certificate has expired");

    free_certificate(&own);
    close_office(&office);
}

static void a_server_certificate_is_refused_from_a_client(void **state)
{
    struct office office;
    (void)state;
    open_office(&office, "IP:127.0.0.1", "serverAuth");
    struct rdmux_fabric_auth auth_a = cert_of(&office.papers_a);
    struct rdmux_fabric_auth auth_b = cert_of(&office.papers_b);

    check_cert_refusal(&auth_a, &auth_b, "the peer has refused this side's certificate",
                       "its certificate: unsuitable certificate purpose");

    close_office(&office);
}

/* Signed for a name of any bytes, as an authority might that looks less closely. */
static void name_again(struct certified_key *own, const char *name, size_t length,
                       const struct certified_key *authority)
{
    X509_NAME *subject = X509_get_subject_name(own->certificate);
    X509_NAME_ENTRY_free(X509_NAME_delete_entry(subject, 0));
    assert_int_equal(X509_NAME_add_entry_by_NID(subject, NID_commonName, V_ASN1_UTF8STRING,
                                                (const unsigned char *)name, (int)length, -1, 0),
                     1);
    assert_true(X509_sign(own->certificate, authority->key, EVP_sha256()) > 0);
}

/* "anna" is admitted. "anna" followed by NUL and more bytes is another name, and an invalid one. */
static void a_name_with_control_characters_is_refused(void **state)
{
    static const struct {
        const char *name;
        size_t length;
    } cases[] = { { "anna\0.example", 13 }, { "anna\n", 5 }, { "anna\x7f", 5 }, { "\0anna", 5 } };
    static const char *const anna[] = { "anna" };
    struct office office;
    (void)state;
    open_office(&office, "IP:127.0.0.1", NULL);
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct certificate_files odd;
        struct certified_key own = make_certificate("anna", NULL, NULL, 100, &office.authority);
        name_again(&own, cases[i].name, cases[i].length, &office.authority);
        write_certificate_files("odd", &own, &office.authority, &odd);
        struct rdmux_fabric_auth auth_a = cert_of(&odd);
        struct rdmux_fabric_auth auth_b = cert_of(&office.papers_b);
        auth_b.peers = anna;
        auth_b.peer_count = 1;

        check_cert_refusal(&auth_a, &auth_b, "the peer has refused this side's certificate",
                           "its certificate has neither a DNS name nor a common name");

        free_certificate(&own);
    }
    close_office(&office);
}

/* Connects with an OpenSSL client that has valid certificates, speaks only this version of TLS, and
 * offers these key exchanges; NULL: OpenSSL's defaults. Tells whether it is admitted. */
static bool gets_through(const struct pair *pair, const struct certified_key *own, int version,
                         const char *groups)
{
    struct rdmux_hello hello;
    uint8_t bytes[RDMUX_HELLO_SIZE];
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    assert_non_null(context);
    assert_int_equal(SSL_CTX_set_min_proto_version(context, version), 1);
    assert_int_equal(SSL_CTX_set_max_proto_version(context, version), 1);
    if (groups != NULL) {
        char list[64]; /* the macro drops const */
        (void)snprintf(list, sizeof(list), "%s", groups);
        assert_int_equal(SSL_CTX_set1_groups_list(context, list), 1);
    }
    assert_int_equal(SSL_CTX_use_certificate(context, own->certificate), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(context, own->key), 1);
    rdmux_hello_fill(pair->fabric_a, &hello);
    rdmux_hello_encode(&hello, bytes);
    int fd = dial_raw(pair->address);
    send_bytes(fd, bytes, sizeof(bytes));
    SSL *ssl = SSL_new(context);
    assert_int_equal(SSL_set_fd(ssl, fd), 1);
    bool through = SSL_connect(ssl) == 1;
    SSL_free(ssl);
    SSL_CTX_free(context);
    close(fd);
    return through;
}

static void older_versions_of_tls_are_refused(void **state)
{
    struct office office;
    struct pair pair;
    (void)state;
    open_certified_sides(&office, &pair, "IP:127.0.0.1");

    assert_true(gets_through(&pair, &office.own_a, TLS1_3_VERSION, NULL)); /* sanity check */
    assert_false(gets_through(&pair, &office.own_a, TLS1_2_VERSION, NULL));

    close_pair(&pair);
    close_office(&office);
}

static void a_stranger_cannot_choose_an_expensive_key_exchange(void **state)
{
    static const struct {
        const char *groups;
        bool good;
    } cases[] = {
        { "X25519", true },
        { "P-256", true },
        { "P-384", true },
        { "P-521", false },
        { "X448", false },
        { "ffdhe2048", false },
        { "ffdhe3072", false },
        { "ffdhe4096", false },
        { "ffdhe6144", false },
        { "ffdhe8192", false },
        { "ffdhe8192:P-521:X448", false },
        { "ffdhe8192:P-384", true }, /* by the other: it is asked again */
    };
    struct office office;
    struct pair pair;
    (void)state;
    open_certified_sides(&office, &pair, "IP:127.0.0.1");

    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        if (gets_through(&pair, &office.own_a, TLS1_3_VERSION, cases[i].groups) != cases[i].good) {
            fail_msg("who offers %s %s", cases[i].groups,
                     cases[i].good ? "does not get through" : "gets through");
        }
    }

    close_pair(&pair);
    close_office(&office);
}

static void a_peer_with_a_key_and_a_peer_with_a_certificate_refuse_each_other(void **state)
{
    char file[FILE_NAME_MAX];
    struct office office;
    (void)state;
    open_office(&office, "IP:127.0.0.1", NULL);
    struct rdmux_fabric_auth auth_a = psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
    struct rdmux_fabric_auth auth_b = cert_of(&office.papers_b);

    check_cert_refusal(&auth_a, &auth_b,
                       "this side authenticates by a pre-shared key, the peer by certificates",
                       "this side authenticates by certificates, the peer by a pre-shared key");

    close_office(&office);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_with_the_same_key_connect_and_know_each_other),
        cmocka_unit_test(a_fabric_with_auth_reports_tcp_as_encrypted),
        cmocka_unit_test(shared_memory_works_between_authenticated_peers),
        cmocka_unit_test(a_thousand_imports_travel_through_the_session),
        cmocka_unit_test(all_frames_of_a_record_are_read),
        cmocka_unit_test(a_listener_shows_the_identity_of_a_connection_before_it_is_accepted),
        cmocka_unit_test(a_wrong_key_is_refused),
        cmocka_unit_test(an_unknown_identity_is_refused),
        cmocka_unit_test(an_identity_that_is_not_listed_is_refused),
        cmocka_unit_test(a_connector_may_use_a_key_that_its_own_list_does_not_admit),
        cmocka_unit_test(a_refusal_does_not_show_whether_an_identity_exists),
        cmocka_unit_test(a_connector_with_a_key_refuses_a_server_with_a_certificate),
        cmocka_unit_test(a_connector_without_authentication_is_told_the_missing_setting),
        cmocka_unit_test(a_connector_with_a_key_refuses_a_listener_without_authentication),
        cmocka_unit_test(an_explain_goes_through_the_session),
        cmocka_unit_test(explain_names_the_missing_setting),
        cmocka_unit_test(peers_with_certificates_of_one_authority_connect),
        cmocka_unit_test(a_certificate_for_another_host_is_refused),
        cmocka_unit_test(a_certificate_of_a_listed_identity_may_name_any_host),
        cmocka_unit_test(a_connector_of_an_adopted_socket_must_list_its_peers),
        cmocka_unit_test(a_certificate_that_is_not_listed_is_refused),
        cmocka_unit_test(a_certificate_of_another_authority_is_refused),
        cmocka_unit_test(an_expired_certificate_is_refused),
        cmocka_unit_test(a_server_certificate_is_refused_from_a_client),
        cmocka_unit_test(a_name_with_control_characters_is_refused),
        cmocka_unit_test(older_versions_of_tls_are_refused),
        cmocka_unit_test(a_stranger_cannot_choose_an_expensive_key_exchange),
        cmocka_unit_test(a_peer_with_a_key_and_a_peer_with_a_certificate_refuse_each_other),
    };
    return cmocka_run_group_tests_name("auth", tests, make_auth_folder, remove_auth_folder);
}
