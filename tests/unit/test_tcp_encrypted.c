/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The tcp path between peers that authenticate, with a man in the middle that listens, changes
 * bytes, or holds them back. */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "tests/unit/auth_scene.h"

enum { PIECE = 64, REGION = 4096, LONG = 64 << 10 };

static struct rdmux_fabric_auth keys_of_anna(char file[FILE_NAME_MAX])
{
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE "\n", file));
    auth.flags = RDMUX_AUTH_REQUIRE_ENCRYPTION;
    return auth;
}

/* Two peers that connect through a man in the middle. */
struct scene {
    struct pair pair;
    struct middle middle;
    char address[RDMUX_ADDRESS_MAX]; /* the listener's own */
};

static void open_scene(struct scene *scene, bool authenticated)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys_of_anna(file);
    memset(scene, 0, sizeof(*scene));
    open_auth_sides(&scene->pair, "tcp", authenticated ? &auth : NULL, authenticated ? &auth : NULL,
                    NULL);
    scene->middle.from_connector_at = SIZE_MAX;
    scene->middle.from_acceptor_at = SIZE_MAX;
    memcpy(scene->address, scene->pair.address, sizeof(scene->address));
}

static void connect_through(struct scene *scene)
{
    start_middle(&scene->middle, scene->address);
    memcpy(scene->pair.address, scene->middle.address, sizeof(scene->pair.address));
    connect_more(&scene->pair, NULL, &scene->pair.a, &scene->pair.b);
}

static void close_scene(struct scene *scene)
{
    stop_middle(&scene->middle);
    close_pair(&scene->pair);
}

/* ------------------------------------------------------------------------------------ listening */

/* Fills the buffer with bytes that do not occur by chance. */
static void fill_pattern(uint8_t *bytes, size_t size, uint8_t seed)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)((size_t)seed * 29 + i * 37 + (i >> 3));
    }
}

/* On the wire a number is big-endian. */
static bool number_was_overheard(struct middle *middle, uint64_t number)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(number >> (56 - 8 * i));
    }
    return was_overheard(middle, bytes, sizeof(bytes));
}

/* Every operation once in either direction; each brings bytes of its own. */
static void check_what_is_overheard(struct scene *scene, bool expected)
{
    enum { SENT, SENT_BACK, WRITTEN, WRITTEN_IMM, READ, PATTERNS };
    static const char *const names[] = { "a send", "a send back", "a write", "a write_imm",
                                         "a read" };
    static const uint64_t before = UINT64_C(0x1122334455667788);
    static const uint64_t add = UINT64_C(0x0102030405060718);
    static const uint64_t desired = UINT64_C(0x99aabbccddeeff12);
    static _Alignas(8) uint8_t region[REGION];
    uint8_t patterns[PATTERNS][PIECE];
    uint8_t heard[2][PIECE] = { { 0 } };
    uint8_t read[PIECE] = { 0 };
    uint64_t results[2] = { 0 };
    struct pair *pair = &scene->pair;
    struct rdmux_mr *mr = NULL;
    for (size_t i = 0; i < PATTERNS; i++) {
        fill_pattern(patterns[i], PIECE, (uint8_t)(i + 1));
    }
    memset(region, 0, sizeof(region));
    memcpy(region + 1024, patterns[READ], PIECE);
    memcpy(region + 2048, &before, sizeof(before));
    CHECK_OK(rdmux_mr_register(
        pair->fabric_b, region, sizeof(region),
        RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC, &mr));
    struct rdmux_remote *remote = import_region(pair->a, mr);
    CHECK_OK(rdmux_recv(pair->b, heard[0], PIECE, NULL, NULL));
    CHECK_OK(rdmux_recv(pair->b, heard[1], PIECE, NULL, NULL));

    CHECK_OK(rdmux_send(pair->a, patterns[SENT], PIECE, NULL, NULL, 0));
    expect_entry(pair->cq_a, RDMUX_WC_SEND, RDMUX_OK);
    expect_entry(pair->cq_b, RDMUX_WC_RECV, RDMUX_OK);
    CHECK_OK(rdmux_write(pair->a, patterns[WRITTEN], PIECE, NULL, remote, 0, NULL, RDMUX_PLACED));
    expect_entry(pair->cq_a, RDMUX_WC_WRITE, RDMUX_OK);
    CHECK_OK(rdmux_write_imm(pair->a, patterns[WRITTEN_IMM], PIECE, NULL, remote, 512, 7, NULL,
                             RDMUX_PLACED));
    expect_entry(pair->cq_a, RDMUX_WC_WRITE, RDMUX_OK);
    expect_entry(pair->cq_b, RDMUX_WC_RECV_WRITE_IMM, RDMUX_OK);
    CHECK_OK(rdmux_read(pair->a, read, PIECE, NULL, remote, 1024, NULL, 0));
    expect_entry(pair->cq_a, RDMUX_WC_READ, RDMUX_OK);
    CHECK_OK(rdmux_fetch_add(pair->a, &results[0], NULL, remote, 2048, add, NULL, 0));
    expect_entry(pair->cq_a, RDMUX_WC_FETCH_ADD, RDMUX_OK);
    CHECK_OK(rdmux_compare_swap(pair->a, &results[1], NULL, remote, 2048, before + add, desired,
                                NULL, 0));
    expect_entry(pair->cq_a, RDMUX_WC_COMPARE_SWAP, RDMUX_OK);
    CHECK_OK(rdmux_recv(pair->a, heard[1], PIECE, NULL, NULL));
    CHECK_OK(rdmux_send(pair->b, patterns[SENT_BACK], PIECE, NULL, NULL, 0));
    expect_entry(pair->cq_b, RDMUX_WC_SEND, RDMUX_OK);
    expect_entry(pair->cq_a, RDMUX_WC_RECV, RDMUX_OK);

    assert_memory_equal(heard[0], patterns[SENT], PIECE);
    assert_memory_equal(heard[1], patterns[SENT_BACK], PIECE);
    assert_memory_equal(region, patterns[WRITTEN], PIECE);
    assert_memory_equal(region + 512, patterns[WRITTEN_IMM], PIECE);
    assert_memory_equal(read, patterns[READ], PIECE);
    assert_true(results[0] == before && results[1] == before + add);
    assert_true(scene->middle.taped < sizeof(scene->middle.tape)); /* he has it all */
    for (size_t i = 0; i < PATTERNS; i++) {
        if (was_overheard(&scene->middle, patterns[i], PIECE) != expected) {
            fail_msg("%s was %soverheard", names[i], expected ? "not " : "");
        }
    }
    const uint64_t numbers[] = { before, add, before + add, desired };
    for (size_t i = 0; i < RDMUX_COUNT_OF(numbers); i++) {
        if (number_was_overheard(&scene->middle, numbers[i]) != expected) {
            fail_msg("number %zu of an atomic was %soverheard", i, expected ? "not " : "");
        }
    }
    rdmux_remote_close(remote);
    rdmux_mr_deregister(mr);
}

static void an_eavesdropper_reads_nothing(void **state)
{
    static struct scene scene;
    (void)state;
    open_scene(&scene, true);
    connect_through(&scene);
    check_what_is_overheard(&scene, false);
    close_scene(&scene);
}

static void an_eavesdropper_reads_everything_without_authentication(void **state)
{
    static struct scene scene;
    (void)state;
    open_scene(&scene, false);
    connect_through(&scene);
    check_what_is_overheard(&scene, true); /* else the case before shows nothing */
    close_scene(&scene);
}

/* Makes a TCP connection of the program's, through the man in the middle. */
static void connect_raw_through(struct scene *scene, int sockets[2])
{
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(here);
    char address[RDMUX_ADDRESS_MAX];
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listening >= 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&here, sizeof(here)), 0);
    assert_int_equal(listen(listening, 1), 0);
    assert_int_equal(getsockname(listening, (struct sockaddr *)&here, &length), 0);
    snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(here.sin_port));
    start_middle(&scene->middle, address);
    sockets[0] = dial_raw(scene->middle.address);
    sockets[1] = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    assert_true(sockets[1] >= 0);
    close(listening);
}

/* A record adds 22 bytes to its content, so records should be few. */
static void check_length_of_records(struct scene *scene)
{
    enum { RECORDS = 64, OVERHEAD = 22 };
    static uint8_t sent[LONG * 16];
    static uint8_t heard[sizeof(sent)];
    uint64_t before = atomic_load(&scene->middle.seen);
    CHECK_OK(rdmux_recv(scene->pair.b, heard, sizeof(heard), NULL, NULL));
    CHECK_OK(rdmux_send(scene->pair.a, sent, sizeof(sent), NULL, NULL, 0));
    expect_entry(scene->pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
    expect_entry(scene->pair.cq_a, RDMUX_WC_SEND, RDMUX_OK);
    uint64_t seen = atomic_load(&scene->middle.seen) - before;
    if (seen >= sizeof(sent) + (uint64_t)2 * RECORDS * OVERHEAD) {
        fail_msg("%zu bytes were %llu on the wire", sizeof(sent), (unsigned long long)seen);
    }
}

static void check_adopted(bool authenticated)
{
    static struct scene scene;
    int sockets[2];
    open_scene(&scene, authenticated);
    connect_raw_through(&scene, sockets);
    CHECK_STATUS(rdmux_adopt(scene.pair.fabric_a, scene.pair.cq_a, sockets[0], RDMUX_ROLE_CONNECT,
                             NULL, 0, &scene.pair.a),
                 RDMUX_IN_PROGRESS);
    CHECK_STATUS(rdmux_adopt(scene.pair.fabric_b, scene.pair.cq_b, sockets[1], RDMUX_ROLE_ACCEPT,
                             NULL, 0, &scene.pair.b),
                 RDMUX_IN_PROGRESS);
    expect_entry(scene.pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);
    expect_entry(scene.pair.cq_b, RDMUX_WC_CONNECTED, RDMUX_OK);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    CHECK_OK(rdmux_ep_info(scene.pair.a, &info));
    assert_string_equal(info.provider, "tcp");
    assert_int_equal(info.security, authenticated ? RDMUX_SECURITY_ENCRYPTED : RDMUX_SECURITY_TOKEN);

    check_what_is_overheard(&scene, !authenticated);
    check_length_of_records(&scene);

    close_scene(&scene);
}

static void an_adopted_socket_carries_data_inside_the_session(void **state)
{
    (void)state;
    check_adopted(true);
    check_adopted(false);
}

/* ------------------------------------------------------------------------------------- changing */

/* Checks that the bytes of the buffer are those sent, or were never stored. */
static void expect_no_false_byte(const uint8_t *heard, const uint8_t *sent, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (heard[i] != 0 && heard[i] != sent[i]) {
            fail_msg("byte %zu is %02x, not %02x", i, heard[i], sent[i]);
        }
    }
}

/* Takes entries until the endpoint has ended, and returns why. No request may have succeeded. */
static enum rdmux_status end_of(struct rdmux_cq *cq, const char *says)
{
    for (;;) {
        struct rdmux_wc wc = next_entry(cq);
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
            CHECK_OK(rdmux_ep_info(wc.ep, &info));
            if (strstr(info.text, says) == NULL) {
                fail_msg("the endpoint ends with: %s", info.text);
            }
            return (enum rdmux_status)wc.status;
        }
        if (wc.opcode == RDMUX_WC_RECV || wc.opcode == RDMUX_WC_READ) {
            assert_int_not_equal(wc.status, RDMUX_OK);
        }
    }
}

static void a_byte_changed_on_its_way_to_the_acceptor_ends_both_sides(void **state)
{
    static const size_t at[] = { 20000, 30001, 50002, 70003 }; /* the proof takes 17 KiB */
    static struct scene scene;
    static uint8_t sent[LONG];
    static uint8_t heard[LONG];
    (void)state;
    memset(sent, 0x77, sizeof(sent));
    for (size_t i = 0; i < RDMUX_COUNT_OF(at); i++) {
        open_scene(&scene, true);
        scene.middle.from_connector_at = at[i];
        memset(heard, 0, sizeof(heard));
        connect_through(&scene);
        CHECK_OK(rdmux_recv(scene.pair.b, heard, sizeof(heard), NULL, NULL));

        CHECK_OK(rdmux_send(scene.pair.a, sent, sizeof(sent), NULL, NULL, 0));

        assert_int_equal(end_of(scene.pair.cq_b, "not what the peer has sent"), RDMUX_PROTOCOL);
        expect_no_false_byte(heard, sent, sizeof(sent));
        assert_int_equal(atomic_load(&scene.middle.changed), 1);
        assert_int_not_equal(end_of(scene.pair.cq_a, ""), RDMUX_OK);
        close_scene(&scene);
    }
}

static void a_byte_changed_on_its_way_to_the_connector_ends_both_sides(void **state)
{
    static const size_t at[] = { 20000, 30001, 50002, 70003 }; /* the proof takes 17 KiB */
    static struct scene scene;
    static uint8_t region[LONG];
    static uint8_t heard[LONG];
    (void)state;
    memset(region, 0x77, sizeof(region));
    for (size_t i = 0; i < RDMUX_COUNT_OF(at); i++) {
        struct rdmux_mr *mr = NULL;
        open_scene(&scene, true);
        scene.middle.from_acceptor_at = at[i];
        memset(heard, 0, sizeof(heard));
        connect_through(&scene);
        CHECK_OK(rdmux_mr_register(scene.pair.fabric_b, region, sizeof(region),
                                   RDMUX_ACCESS_REMOTE_READ, &mr));
        struct rdmux_remote *remote = import_region(scene.pair.a, mr);

        CHECK_OK(rdmux_read(scene.pair.a, heard, sizeof(heard), NULL, remote, 0, NULL, 0));

        assert_int_equal(end_of(scene.pair.cq_a, "not what the peer has sent"), RDMUX_PROTOCOL);
        expect_no_false_byte(heard, region, sizeof(region));
        assert_int_equal(atomic_load(&scene.middle.changed), 1);
        assert_int_not_equal(end_of(scene.pair.cq_b, ""), RDMUX_OK);
        rdmux_remote_close(remote);
        rdmux_mr_deregister(mr);
        close_scene(&scene);
    }
}

/* Without authentication a man in the middle can; else the two cases before would show nothing. */
static void a_changed_byte_arrives_without_authentication(void **state)
{
    static struct scene scene;
    static uint8_t sent[LONG];
    static uint8_t heard[LONG];
    (void)state;
    memset(sent, 0x77, sizeof(sent));
    open_scene(&scene, false);
    scene.middle.from_connector_at = 20000;
    connect_through(&scene);
    CHECK_OK(rdmux_recv(scene.pair.b, heard, sizeof(heard), NULL, NULL));

    CHECK_OK(rdmux_send(scene.pair.a, sent, sizeof(sent), NULL, NULL, 0));

    expect_entry(scene.pair.cq_b, RDMUX_WC_RECV, RDMUX_OK);
    assert_int_not_equal(memcmp(sent, heard, sizeof(sent)), 0);
    expect_entry(scene.pair.cq_a, RDMUX_WC_SEND, RDMUX_OK);
    close_scene(&scene);
}

/* --------------------------------------------------------------------------------- holding back */

static void a_data_socket_silent_after_its_join_costs_at_most_the_path_timeout(void **state)
{
    enum { TIME_MS = 300 };
    static struct scene scene;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    (void)state;
    attr.path_timeout_ms = TIME_MS;
    open_scene(&scene, true);
    scene.middle.joins_only = 1;
    start_middle(&scene.middle, scene.address);
    struct rdmux_ep *ep = NULL;
    struct rdmux_ep *taken = NULL;
    uint64_t begun = now_ms();
    CHECK_STATUS(
        rdmux_connect(scene.pair.fabric_a, scene.pair.cq_a, scene.middle.address, &attr, 0, &ep),
        RDMUX_IN_PROGRESS);

    struct rdmux_wc wc;
    while (rdmux_cq_poll(scene.pair.cq_a, &wc, 1) == 0) {
        assert_true(now_ms() - begun < PATIENT_MS);
        CHECK_STATUS(rdmux_accept(scene.pair.listener, scene.pair.cq_b, &attr, 0, &taken),
                     RDMUX_AGAIN);
    }
    assert_int_equal(wc.opcode, RDMUX_WC_CONNECTED);
    assert_int_equal(wc.status, RDMUX_NO_PATH);
    assert_true(now_ms() - begun >= TIME_MS);
    struct rdmux_explanation *explanation = NULL;
    const char *json = NULL;
    CHECK_OK(rdmux_ep_explanation(ep, &explanation));
    CHECK_OK(rdmux_explanation_json(explanation, &json));
    if (strstr(json, "\"CONNECT_TIMED_OUT\"") == NULL) {
        fail_msg("the explanation is: %s", json);
    }
    rdmux_explanation_free(explanation);
    CHECK_OK(rdmux_ep_close(ep));
    stop_middle(&scene.middle);
    close_pair(&scene.pair);
}

/* ------------------------------------------------------------------------------ in the long run */

/* Long and short messages, over one socket and over several, both ways at a time. */
static void a_stream_both_ways_arrives_as_it_was(uint32_t sockets)
{
    enum { COUNT = 24, LENGTH = 1 << 20 };
    static struct pair pair;
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = keys_of_anna(file);
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    uint8_t *sent = malloc(LENGTH);
    uint8_t *heard[2] = { malloc((size_t)COUNT * LENGTH), malloc((size_t)COUNT * LENGTH) };
    attr.data_sockets = sockets;
    for (size_t i = 0; i < LENGTH; i++) {
        sent[i] = (uint8_t)(i * 7 >> 3 ^ i >> 11);
    }
    open_auth_sides(&pair, "tcp", &auth, &auth, NULL);
    connect_more(&pair, &attr, &pair.a, &pair.b);
    struct rdmux_ep *eps[2] = { pair.a, pair.b };
    struct rdmux_cq *cqs[2] = { pair.cq_a, pair.cq_b };
    for (size_t end = 0; end < 2; end++) {
        for (size_t i = 0; i < COUNT; i++) {
            CHECK_OK(rdmux_recv(eps[end], heard[end] + i * LENGTH, LENGTH, NULL, CONTEXT(i)));
        }
    }
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t end = 0; end < 2; end++) {
            CHECK_OK(rdmux_send(eps[end], sent, LENGTH >> (i % 20), NULL, NULL, 0));
        }
    }
    for (size_t end = 0; end < 2; end++) {
        for (size_t i = 0; i < (size_t)2 * COUNT; i++) {
            struct rdmux_wc wc = next_entry(cqs[end]);
            assert_int_equal(wc.status, RDMUX_OK);
        }
        for (size_t i = 0; i < COUNT; i++) {
            assert_memory_equal(heard[end] + i * LENGTH, sent, LENGTH >> (i % 20));
        }
        free(heard[end]);
    }
    free(sent);
    close_pair(&pair);
}

static void a_stream_over_one_socket_arrives_unchanged(void **state)
{
    (void)state;
    a_stream_both_ways_arrives_as_it_was(1);
}

static void a_stream_over_four_sockets_arrives_unchanged(void **state)
{
    (void)state;
    a_stream_both_ways_arrives_as_it_was(4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_eavesdropper_reads_nothing),
        cmocka_unit_test(an_eavesdropper_reads_everything_without_authentication),
        cmocka_unit_test(an_adopted_socket_carries_data_inside_the_session),
        cmocka_unit_test(a_byte_changed_on_its_way_to_the_acceptor_ends_both_sides),
        cmocka_unit_test(a_byte_changed_on_its_way_to_the_connector_ends_both_sides),
        cmocka_unit_test(a_changed_byte_arrives_without_authentication),
        cmocka_unit_test(a_data_socket_silent_after_its_join_costs_at_most_the_path_timeout),
        cmocka_unit_test(a_stream_over_one_socket_arrives_unchanged),
        cmocka_unit_test(a_stream_over_four_sockets_arrives_unchanged),
    };
    return cmocka_run_group_tests_name("tcp_encrypted", tests, make_auth_folder, remove_auth_folder);
}
