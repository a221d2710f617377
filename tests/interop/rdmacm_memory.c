/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Raw keys: what they give the peer, and what not. */
#include "tests/interop/rdmacm_pair.h"

#include <stdlib.h>
#include <string.h>

static void raw_keys_write_and_read(void **state)
{
    struct pair pair;
    char text[SMALL] = "";
    uint8_t all[SIZE];
    (void)state;
    open_fabric(&pair);
    add_region(&pair, RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE);
    connect_pair(&pair);
    struct rdmux_remote *remote = import(&pair, SIZE);

    GOES(rdmux_write(pair.client, "written", 8, NULL, remote, SIZE - 8, NULL, RDMUX_PLACED));
    expect(&pair, pair.client, RDMUX_WC_WRITE, RDMUX_OK);
    assert_string_equal((const char *)pair.bytes + SIZE - 8, "written");
    GOES(rdmux_read(pair.client, text, 8, NULL, remote, SIZE - 8, NULL, 0));
    assert_int_equal(expect(&pair, pair.client, RDMUX_WC_READ, RDMUX_OK).length, 8);
    assert_string_equal(text, "written");
    GOES(rdmux_read(pair.client, all, SIZE, NULL, remote, 0, NULL, 0)); /* several packets */
    assert_int_equal(expect(&pair, pair.client, RDMUX_WC_READ, RDMUX_OK).length, SIZE);
    assert_memory_equal(all, pair.bytes, SIZE);
    GOES(rdmux_read(pair.client, NULL, 0, NULL, remote, 0, NULL, 0));
    expect(&pair, pair.client, RDMUX_WC_READ, RDMUX_OK);
    GOES(rdmux_write(pair.client, NULL, 0, NULL, remote, SIZE - 1, NULL, RDMUX_PLACED));
    expect(&pair, pair.client, RDMUX_WC_WRITE, RDMUX_OK);
    rdmux_remote_close(remote);
    close_pair(&pair);
}

/* Whatever a device makes of it, a write of no bytes wants no right to read, and behind it all goes on. */
static void no_bytes_need_no_other_right(void **state)
{
    enum { ROUNDS = 20 };
    struct pair pair;
    (void)state;
    open_fabric(&pair);
    add_region(&pair, RDMUX_ACCESS_REMOTE_WRITE);
    connect_pair(&pair);
    struct rdmux_remote *remote = import(&pair, SIZE);
    for (int round = 0; round < ROUNDS; round++) {
        GOES(rdmux_write(pair.client, NULL, 0, NULL, remote, 0, NULL, 0));
        GOES(rdmux_write(pair.client, "written", 8, NULL, remote, 0, NULL, RDMUX_UNSIGNALED));
        GOES(rdmux_write(pair.client, NULL, 0, NULL, remote, SIZE, NULL, 0));
        expect(&pair, pair.client, RDMUX_WC_WRITE, RDMUX_OK);
        expect(&pair, pair.client, RDMUX_WC_WRITE, RDMUX_OK);
    }
    rdmux_remote_close(remote);
    close_pair(&pair);
}

static void an_import_bounds_what_is_posted(void **state)
{
    struct pair pair;
    struct rdmux_remote *none = NULL;
    (void)state;
    open_fabric(&pair);
    add_region(&pair, RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE);
    connect_pair(&pair);
    struct rdmux_remote *remote = import(&pair, 8);

    assert_int_equal(rdmux_write(pair.client, "too long", 9, NULL, remote, 0, NULL, 0),
                     RDMUX_OUT_OF_RANGE);
    assert_int_equal(rdmux_remote_import_raw(pair.client, 1, 2, 0, &none), RDMUX_INVALID);
    assert_int_equal(rdmux_remote_import_raw(pair.client, UINT64_MAX, 2, 2, &none), RDMUX_INVALID);
    assert_null(none);
    close_pair(&pair);
}

static void placed_needs_a_remote(void **state)
{
    struct pair pair;
    (void)state;
    open_fabric(&pair);
    connect_pair(&pair);

    assert_int_equal(rdmux_send(pair.client, "x", 1, NULL, NULL, RDMUX_PLACED), RDMUX_UNSUPPORTED);
    assert_non_null(strstr(rdmux_last_error(), "needs a remote"));
    assert_int_equal(rdmux_write(pair.client, NULL, 0, NULL, NULL, 0, NULL, RDMUX_PLACED),
                     RDMUX_UNSUPPORTED);
    assert_int_equal(info_of(pair.client).state, RDMUX_EP_CONNECTED);
    close_pair(&pair);
}

/* Both ends know, or on iWARP nobody says which request it was. */
static void expect_denied(struct pair *pair, uint32_t opcode)
{
    bool has_ended[2] = { false, false }; /* the client, the server */
    bool has_failed = false;
    while (!has_ended[0] || !has_ended[1]) {
        struct rdmux_wc wc = next_entry(pair);
        bool is_server = wc.ep == pair->server;
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            /* The server's device may not say why the connection ended. */
            assert_true(wc.status == RDMUX_DENIED ||
                        ((is_server || is_iwarp(pair->client)) && wc.status == RDMUX_PEER_GONE));
            has_ended[is_server] = true;
        } else if (!is_server && !has_failed) {
            assert_int_equal(wc.opcode, opcode);
            assert_int_not_equal(wc.status, RDMUX_OK);
            if (!is_iwarp(pair->client)) {
                assert_int_equal(wc.status, RDMUX_DENIED);
            }
            has_failed = true;
        }
    }
    assert_true(has_failed);
}

static void a_wrong_key_ends_the_endpoint(void **state)
{
    static const struct {
        bool reads;
        uint32_t flags;
    } cases[] = { { false, RDMUX_PLACED }, { true, 0 } };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pair pair;
        struct rdmux_remote *remote = NULL;
        char text[SMALL] = "";
        open_fabric(&pair);
        add_region(&pair, RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE);
        connect_pair(&pair);
        uint64_t addr = 0;
        uint32_t key = 0;
        GOES(rdmux_mr_raw(pair.mr, pair.server, &addr, &key));
        GOES(rdmux_remote_import_raw(pair.client, addr, key ^ 0x5a5a00, SIZE, &remote));

        if (cases[i].reads) {
            GOES(rdmux_read(pair.client, text, 8, NULL, remote, 0, NULL, 0));
        } else {
            GOES(rdmux_write(pair.client, "evil", 5, NULL, remote, 0, NULL, cases[i].flags));
        }

        expect_denied(&pair, cases[i].reads ? RDMUX_WC_READ : RDMUX_WC_WRITE);
        assert_int_equal(pair.bytes[0], 0);
        assert_int_not_equal(rdmux_send(pair.client, "x", 1, NULL, NULL, 0), RDMUX_OK);
        close_pair(&pair);
    }
}

static void a_key_has_the_rights_of_its_region_alone(void **state)
{
    struct pair pair;
    (void)state;
    open_fabric(&pair);
    add_region(&pair, RDMUX_ACCESS_REMOTE_READ);
    connect_pair(&pair);
    struct rdmux_remote *remote = import(&pair, SIZE);

    GOES(rdmux_write(pair.client, "evil", 5, NULL, remote, 0, NULL, RDMUX_PLACED));

    expect_denied(&pair, RDMUX_WC_WRITE);
    assert_int_equal(pair.bytes[0], 0);
    close_pair(&pair);
}

static void a_revoked_key_is_dead_and_the_next_one_lives(void **state)
{
    struct pair pair;
    (void)state;
    open_fabric(&pair);
    add_region(&pair, RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE);
    connect_pair(&pair);
    struct rdmux_remote *old = import(&pair, SIZE);
    GOES(rdmux_mr_revoke(pair.mr));
    struct rdmux_remote *fresh = import(&pair, SIZE);

    GOES(rdmux_write(pair.client, "good", 5, NULL, fresh, 0, NULL, RDMUX_PLACED));
    expect(&pair, pair.client, RDMUX_WC_WRITE, RDMUX_OK);
    GOES(rdmux_write(pair.client, "evil", 5, NULL, old, 0, NULL, RDMUX_PLACED));

    expect_denied(&pair, RDMUX_WC_WRITE);
    assert_string_equal((const char *)pair.bytes, "good");
    close_pair(&pair);
}

static void immediate_data_and_atomics_are_native_or_refused(void **state)
{
    struct pair pair;
    _Alignas(8) uint64_t before = 0;
    char text[SMALL];
    (void)state;
    open_fabric(&pair);
    add_region(&pair, RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                          RDMUX_ACCESS_REMOTE_ATOMIC | RDMUX_ACCESS_ATOMIC_DEVICE);
    connect_pair(&pair);
    struct rdmux_remote *remote = import(&pair, SIZE);
    uint64_t native = info_of(pair.client).native;

    GOES(rdmux_recv(pair.server, text, sizeof(text), NULL, NULL));
    enum rdmux_status status = rdmux_send_imm(pair.client, "x", 1, NULL, 77, NULL, RDMUX_UNSIGNALED);
    if ((native & RDMUX_CAP_SEND_IMM) != 0) {
        OK(status);
        struct rdmux_wc wc = expect(&pair, pair.server, RDMUX_WC_RECV, RDMUX_OK);
        assert_int_equal(wc.imm, 77);
        assert_true((wc.flags & RDMUX_WC_HAS_IMM) != 0);
        GOES(rdmux_recv(pair.server, text, sizeof(text), NULL, NULL));
        GOES(rdmux_write_imm(pair.client, "w", 1, NULL, remote, 9, 78, NULL, RDMUX_UNSIGNALED));
        assert_int_equal(expect(&pair, pair.server, RDMUX_WC_RECV_WRITE_IMM, RDMUX_OK).imm, 78);
        assert_int_equal(pair.bytes[9], 'w');
    } else {
        assert_int_equal(status, RDMUX_UNSUPPORTED);
    }
    status = rdmux_fetch_add(pair.client, &before, NULL, remote, 0, 5, NULL, 0);
    if ((native & RDMUX_CAP_FETCH_ADD) != 0) {
        OK(status);
        expect(&pair, pair.client, RDMUX_WC_FETCH_ADD, RDMUX_OK);
        assert_int_equal(before, 0);
        GOES(rdmux_compare_swap(pair.client, &before, NULL, remote, 0, 5, 6, NULL, 0));
        expect(&pair, pair.client, RDMUX_WC_COMPARE_SWAP, RDMUX_OK);
        assert_int_equal(before, 5);
    } else {
        assert_int_equal(status, RDMUX_UNSUPPORTED);
    }
    close_pair(&pair);
}

static void many_requests_of_all_kinds_keep_their_order(void **state)
{
    enum { ROUNDS = 500 };
    struct pair pair;
    uint64_t value = 0;
    uint64_t back = 0;
    (void)state;
    open_fabric(&pair);
    add_region(&pair, RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE);
    connect_pair(&pair);
    struct rdmux_remote *remote = import(&pair, SIZE);
    const uint64_t *result = (const uint64_t *)(const void *)(pair.bytes + 128);

    for (value = 1; value <= ROUNDS; value++) {
        GOES(rdmux_recv(pair.server, pair.bytes + 128, sizeof(*result), pair.mr, NULL));
        GOES(rdmux_write(pair.client, &value, sizeof(value), NULL, remote, 64, NULL,
                         RDMUX_INLINE | RDMUX_UNSIGNALED));
        GOES(rdmux_read(pair.client, &back, sizeof(back), NULL, remote, 64, NULL, 0));
        GOES(rdmux_send(pair.client, &value, sizeof(value), NULL, NULL,
                        RDMUX_FENCE | RDMUX_UNSIGNALED | RDMUX_INLINE));
        for (int i = 0; i < 2; i++) {
            assert_int_equal(next_entry(&pair).status, RDMUX_OK);
        }
        assert_int_equal(back, value);
        assert_int_equal(*result, value);
    }
    close_pair(&pair);
}

static void tokens_and_raw_keys_do_not_mix(void **state)
{
    struct pair pair;
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    uint64_t addr = 0;
    uint32_t key = 0;
    (void)state;
    open_fabric(&pair);
    add_region(&pair, RDMUX_ACCESS_REMOTE_READ);
    GOES(rdmux_mr_export(pair.mr, &token));
    connect_pair(&pair);
    assert_int_equal(rdmux_remote_import(pair.client, &token, 1000, &remote), RDMUX_UNSUPPORTED);
    assert_non_null(strstr(rdmux_last_error(), "rdmux_remote_import_raw"));
    rdmux_mr_deregister(pair.mr);
    GOES(rdmux_mr_alloc(pair.fabric, SIZE, RDMUX_ACCESS_LOCAL_WRITE, &pair.mr));
    assert_int_equal(rdmux_mr_raw(pair.mr, pair.client, &addr, &key), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_raw(NULL, pair.client, &addr, &key), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_raw(pair.mr, NULL, &addr, &key), RDMUX_INVALID);
    close_pair(&pair);
}

static void raw_keys_are_invalid_on_every_other_endpoint(void **state)
{
    static const char *const paths[] = { "tcp", "shm", "ib,roce,iwarp" };
    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        struct pair pair;
        struct rdmux_remote *remote = NULL;
        uint64_t addr = 0;
        uint32_t key = 0;
        open_fabric(&pair);
        add_region(&pair, RDMUX_ACCESS_REMOTE_READ);
        pair.client_attr.paths = paths[i];
        pair.client_attr.path_timeout_ms = PATIENCE_MS; /* also on a slow machine */
        pair.server_attr.path_timeout_ms = PATIENCE_MS;
        listen_here(&pair, "");
        dial(&pair);
        assert_int_equal(rdmux_mr_raw(pair.mr, pair.client, &addr, &key), RDMUX_INVALID);
        take(&pair, await_dialled(&pair, NULL));
        await_both(&pair);

        assert_int_equal(rdmux_mr_raw(pair.mr, pair.client, &addr, &key), RDMUX_INVALID);
        assert_non_null(strstr(rdmux_last_error(), "rdma://"));
        assert_int_equal(rdmux_remote_import_raw(pair.client, 4096, 1, 8, &remote), RDMUX_INVALID);
        assert_null(remote);
        close_pair(&pair);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(raw_keys_write_and_read),
    cmocka_unit_test(no_bytes_need_no_other_right),
    cmocka_unit_test(an_import_bounds_what_is_posted),
    cmocka_unit_test(placed_needs_a_remote),
    cmocka_unit_test(a_wrong_key_ends_the_endpoint),
    cmocka_unit_test(a_key_has_the_rights_of_its_region_alone),
    cmocka_unit_test(a_revoked_key_is_dead_and_the_next_one_lives),
    cmocka_unit_test(immediate_data_and_atomics_are_native_or_refused),
    cmocka_unit_test(many_requests_of_all_kinds_keep_their_order),
    cmocka_unit_test(tokens_and_raw_keys_do_not_mix),
    cmocka_unit_test(raw_keys_are_invalid_on_every_other_endpoint),
};

const struct rdmacm_cases rdmacm_memory_cases = { cases, sizeof(cases) / sizeof(cases[0]) };
