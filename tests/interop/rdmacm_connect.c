/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Connecting over rdma://, and what comes with it. */
#include "tests/interop/by_hand.h"
#include "tests/interop/rdmacm_pair.h"

#include <stdlib.h>
#include <string.h>

static void messages_go_both_ways(void **state)
{
    struct pair pair;
    char text[SMALL] = "";
    char back[SMALL] = "";
    (void)state;
    open_fabric(&pair);
    connect_pair_to(&pair, text, sizeof(text));

    GOES(rdmux_recv(pair.client, back, sizeof(back), NULL,
                    NULL)); /* before what it is answered to */
    GOES(rdmux_send(pair.client, "to you", 7, NULL, NULL, RDMUX_UNSIGNALED));
    assert_int_equal(expect(&pair, pair.server, RDMUX_WC_RECV, RDMUX_OK).length, 7);
    assert_string_equal(text, "to you");
    GOES(rdmux_send(pair.server, "to me", 6, NULL, NULL, RDMUX_UNSIGNALED));
    assert_int_equal(expect(&pair, pair.client, RDMUX_WC_RECV, RDMUX_OK).length, 6);
    assert_string_equal(back, "to me");
    close_pair(&pair);
}

/* The library sees to it that it learns of the end of what was posted, before the program sleeps. */
static void fall_asleep(struct pair *pair)
{
    struct rdmux_wc wc;
    do {
        assert_int_equal(rdmux_cq_poll(pair->cq, &wc, 1), 0);
    } while (rdmux_cq_arm(pair->cq) == RDMUX_AGAIN);
}

/* The peer has lent nothing: whatever came beside the messages it would refuse, and end the connection. */
static void unsignaled_messages_bring_nothing_else(void **state)
{
    enum { TOGETHER = 2, ROUNDS = 20 };
    struct pair pair;
    char texts[TOGETHER][SMALL];
    (void)state;
    open_fabric(&pair);
    connect_pair_to(&pair, texts[0], SMALL);
    for (int round = 0; round < ROUNDS; round++) {
        char back[SMALL] = "";
        if (round > 0) {
            GOES(rdmux_recv(pair.server, texts[0], SMALL, NULL, NULL));
        }
        GOES(rdmux_recv(pair.server, texts[1], SMALL, NULL, NULL));
        GOES(rdmux_recv(pair.client, back, sizeof(back), NULL, NULL));
        for (int i = 0; i < TOGETHER; i++) {
            GOES(rdmux_send(pair.client, "to you", 7, NULL, NULL, RDMUX_UNSIGNALED));
        }
        for (int i = 0; i < TOGETHER; i++) {
            expect(&pair, pair.server, RDMUX_WC_RECV, RDMUX_OK);
        }
        fall_asleep(&pair);
        GOES(rdmux_send(pair.server, "to me", 6, NULL, NULL, RDMUX_UNSIGNALED));
        expect(&pair, pair.client, RDMUX_WC_RECV, RDMUX_OK);
        assert_string_equal(back, "to me");
    }
    close_pair(&pair);
}

static void both_ends_say_what_they_are(void **state)
{
    struct pair pair;
    struct rdmux_explanation *explanation = NULL;
    (void)state;
    open_fabric(&pair);
    connect_pair(&pair);

    const struct rdmux_ep_info client = info_of(pair.client);
    const struct rdmux_ep_info server = info_of(pair.server);
    GOES(rdmux_ep_explanation(pair.client, &explanation));

    assert_string_equal(client.provider, server.provider);
    assert_string_equal(client.peer_address, server.local_address);
    assert_string_equal(client.local_address, server.peer_address);
    assert_string_equal(client.peer_address, pair.address + strlen("rdma://"));
    assert_int_equal(client.state, RDMUX_EP_CONNECTED);
    assert_int_equal(client.security, RDMUX_SECURITY_NONE);
    assert_int_equal(client.emulated, 0);
    assert_true((client.native & RDMUX_CAP_SEND) != 0);
    assert_int_equal(explanation->candidate_count, 1);
    assert_int_equal(explanation->chosen, 0);
    assert_int_equal(explanation->candidates[0]->reason, RDMUX_REASON_CHOSEN);
    assert_string_equal(explanation->candidates[0]->provider, client.provider);
    assert_string_equal(explanation->candidates[0]->device, client.device);
    rdmux_explanation_free(explanation);
    close_pair(&pair);
}

static void calls_that_wait_connect_as_well(void **state)
{
    struct pair pair;
    struct by_hand peer;
    (void)state;
    open_fabric(&pair);
    listen_here(&pair, "rdma://");
    by_hand_start(&peer, BY_HAND_LEAVES, pair.address + strlen("rdma://"));

    GOES(rdmux_accept(pair.listener, pair.cq, NULL, PATIENCE_MS, &pair.server));

    assert_int_equal(info_of(pair.server).state, RDMUX_EP_CONNECTED);
    by_hand_end(&peer);
    expect(&pair, pair.server, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    close_pair(&pair);
}

static void private_data_goes_both_ways(void **state)
{
    struct pair pair;
    struct rdmux_peer peer;
    (void)state;
    open_fabric(&pair);
    pair.client_attr.private_data = "who asks";
    pair.client_attr.private_length = 9;
    pair.server_attr.private_data = "who answers";
    pair.server_attr.private_length = 12;
    listen_here(&pair, "rdma://");
    dial(&pair);

    take(&pair, await_dialled(&pair, &peer));
    await_both(&pair);

    const struct rdmux_ep_info client = info_of(pair.client);
    assert_true(peer.private_length >= 9);
    assert_string_equal((const char *)peer.private_data, "who asks");
    assert_true(client.private_length >= 12);
    assert_string_equal((const char *)client.private_data, "who answers");
    assert_string_equal((const char *)info_of(pair.server).private_data, "who asks");
    if (is_iwarp(pair.client)) { /* tells the length; the others fill a field up */
        assert_int_equal(peer.private_length, 9);
        assert_int_equal(client.private_length, 12);
    }
    close_pair(&pair);
}

static void private_data_too_long_is_invalid(void **state)
{
    struct pair pair;
    static const char data[RDMUX_PRIVATE_DATA_MAX] = "long";
    (void)state;
    open_fabric(&pair);
    pair.client_attr.private_data = data;
    pair.client_attr.private_length = 57;
    listen_here(&pair, "rdma://");

    enum rdmux_status status = rdmux_connect(pair.fabric, pair.cq, pair.address, &pair.client_attr,
                                             200, &pair.client);

    if (status == RDMUX_TIMED_OUT) { /* iWARP: it was asked, nobody has answered */
        assert_int_equal(await_peer(&pair, NULL) != 0, 1);
    } else {
        assert_int_equal(status, RDMUX_INVALID);
        assert_non_null(strstr(rdmux_last_error(), "57"));
        assert_non_null(strstr(rdmux_last_error(), "56 bytes"));
    }
    close_pair(&pair);
}

static void a_rejection_brings_its_reason(void **state)
{
    struct pair pair;
    (void)state;
    open_fabric(&pair);
    listen_here(&pair, "rdma://");
    dial(&pair);

    GOES(rdmux_reject(pair.listener, await_dialled(&pair, NULL), 4711, NULL, 0));

    expect(&pair, pair.client, RDMUX_WC_CONNECTED, RDMUX_REFUSED);
    assert_int_equal(info_of(pair.client).reject_reason, 4711);
    assert_non_null(strstr(info_of(pair.client).text, "4711"));
    close_pair(&pair);
}

static void a_rejection_with_private_data_tells_of_it(void **state)
{
    struct pair pair;
    static const uint8_t data[RDMUX_PRIVATE_DATA_MAX] = { 'n', 'o', '!', '!', '!', '!' };
    (void)state;
    open_fabric(&pair);
    listen_here(&pair, "rdma://");
    dial(&pair);
    uint64_t id = await_dialled(&pair, NULL);

    if (rdmux_reject(pair.listener, id, 0, data, 149) == RDMUX_INVALID) {
        assert_non_null(strstr(rdmux_last_error(), "148 bytes"));
        GOES(rdmux_reject(pair.listener, id, 0, data, 6)); /* nothing was lost */
    }

    expect(&pair, pair.client, RDMUX_WC_CONNECTED, RDMUX_REFUSED);
    assert_int_equal(info_of(pair.client).reject_reason, 0);
    assert_int_equal(rdmux_reject(pair.listener, id, 0, NULL, 0), RDMUX_INVALID);
    close_pair(&pair);
}

static void nobody_listening_is_refused(void **state)
{
    struct pair pair;
    (void)state;
    open_fabric(&pair);
    listen_here(&pair, "rdma://");
    rdmux_listener_close(pair.listener);
    pair.listener = NULL;

    enum rdmux_status status = rdmux_connect(pair.fabric, pair.cq, pair.address, NULL, PATIENCE_MS,
                                             &pair.client);

    assert_int_equal(status, RDMUX_REFUSED);
    assert_non_null(strstr(rdmux_last_error(), "listen"));
    assert_null(pair.client);
    close_pair(&pair);
}

static void a_listener_that_closes_refuses_who_waits(void **state)
{
    struct pair pair;
    (void)state;
    open_fabric(&pair);
    listen_here(&pair, "rdma://");
    dial(&pair);
    (void)await_dialled(&pair, NULL);

    rdmux_listener_close(pair.listener);
    pair.listener = NULL;

    expect(&pair, pair.client, RDMUX_WC_CONNECTED, RDMUX_REFUSED);
    close_pair(&pair);
}

static void a_connector_that_gives_up_is_gone(void **state)
{
    struct pair pair;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    (void)state;
    open_fabric(&pair);
    listen_here(&pair, "rdma://");

    assert_int_equal(rdmux_connect(pair.fabric, pair.cq, pair.address, NULL, 200, &pair.client),
                     RDMUX_TIMED_OUT);
    assert_non_null(strstr(rdmux_last_error(), "connecting"));
    assert_null(pair.client);

    /* Whether it is shown before it is gone is a matter of time; accepting it leads nowhere. */
    if (rdmux_listener_next(pair.listener, 0, &peer) == RDMUX_OK) {
        pair.server_attr.peer = peer.id;
        assert_int_not_equal(
            rdmux_accept(pair.listener, pair.cq, &pair.server_attr, 500, &pair.server), RDMUX_OK);
        assert_null(pair.server);
    }
    close_pair(&pair);
}

static void a_device_is_listened_at_or_nothing(void **state)
{
    struct pair pair;
    (void)state;
    open_fabric(&pair);

    assert_int_equal(rdmux_listen(pair.fabric, "rdma://198.51.100.7:0", NULL, &pair.listener),
                     RDMUX_NO_PATH);
    assert_non_null(strstr(rdmux_last_error(), "198.51.100.7"));
    assert_null(pair.listener);
    close_pair(&pair);
}

static void a_port_in_use_is_told(void **state)
{
    struct pair pair;
    struct rdmux_listener *second = NULL;
    (void)state;
    open_fabric(&pair);
    listen_here(&pair, "rdma://");

    enum rdmux_status status = rdmux_listen(pair.fabric, pair.address, NULL, &second);

    assert_int_equal(status, RDMUX_IO);
    assert_non_null(strstr(rdmux_last_error(), "in use"));
    close_pair(&pair);
}

static void a_filter_leaves_the_device_out(void **state)
{
    struct pair pair;
    struct rdmux_explanation *explanation = NULL;
    (void)state;
    open_fabric(&pair);
    pair.client_attr.paths = "shm,tcp";
    listen_here(&pair, "rdma://");

    enum rdmux_status status = rdmux_connect(pair.fabric, pair.cq, pair.address, &pair.client_attr,
                                             PATIENCE_MS, &pair.client);

    assert_int_equal(status, RDMUX_NO_PATH);
    GOES(rdmux_last_explanation(&explanation));
    assert_int_equal(explanation->candidate_count, 1);
    assert_int_equal(explanation->candidates[0]->reason, RDMUX_REASON_FILTERED);
    assert_non_null(strstr(explanation->candidates[0]->text, "shm,tcp"));
    rdmux_explanation_free(explanation);
    close_pair(&pair);
}

static void what_is_not_native_cannot_be_required(void **state)
{
    struct pair pair;
    (void)state;
    open_fabric(&pair);
    connect_pair(&pair);
    uint64_t lacking = (RDMUX_CAP_SEND_IMM | RDMUX_CAP_FETCH_ADD) & ~info_of(pair.client).native;
    struct rdmux_ep *ep = NULL;

    if (lacking != 0) {
        pair.client_attr.require = lacking;
        assert_int_equal(
            rdmux_connect(pair.fabric, pair.cq, pair.address, &pair.client_attr, PATIENCE_MS, &ep),
            RDMUX_NO_PATH);
        assert_non_null(strstr(rdmux_last_error(), "CAPABILITY_MISSING"));
    }
    assert_null(ep);
    close_pair(&pair);
}

static void the_local_address_is_the_one_wished_for(void **state)
{
    struct pair pair;
    (void)state;
    open_fabric(&pair);
    pair.client_attr.local = host;
    pair.server_attr.local = host;
    connect_pair(&pair);

    assert_int_equal(strncmp(info_of(pair.client).local_address, host, strlen(host)), 0);
    close_pair(&pair);
}

static void explain_says_that_it_cannot(void **state)
{
    struct pair pair;
    struct rdmux_explanation *explanation = NULL;
    (void)state;
    open_fabric(&pair);

    assert_int_equal(rdmux_explain(pair.fabric, "rdma://127.0.0.1:7174", NULL, 1000, &explanation),
                     RDMUX_UNSUPPORTED);
    assert_non_null(strstr(rdmux_last_error(), "not rdmux"));
    close_pair(&pair);
}

static void bad_addresses_are_invalid(void **state)
{
    static const char *const bad[] = { "rdma://", "rdma://:7174", "rdma://host:port",
                                       "rdma://[::1" };
    struct pair pair;
    (void)state;
    open_fabric(&pair);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(rdmux_connect(pair.fabric, pair.cq, bad[i], NULL, 1000, &pair.client),
                         RDMUX_INVALID);
    }
    close_pair(&pair);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(messages_go_both_ways),
    cmocka_unit_test(unsignaled_messages_bring_nothing_else),
    cmocka_unit_test(both_ends_say_what_they_are),
    cmocka_unit_test(calls_that_wait_connect_as_well),
    cmocka_unit_test(private_data_goes_both_ways),
    cmocka_unit_test(private_data_too_long_is_invalid),
    cmocka_unit_test(a_rejection_brings_its_reason),
    cmocka_unit_test(a_rejection_with_private_data_tells_of_it),
    cmocka_unit_test(nobody_listening_is_refused),
    cmocka_unit_test(a_listener_that_closes_refuses_who_waits),
    cmocka_unit_test(a_connector_that_gives_up_is_gone),
    cmocka_unit_test(a_device_is_listened_at_or_nothing),
    cmocka_unit_test(a_port_in_use_is_told),
    cmocka_unit_test(a_filter_leaves_the_device_out),
    cmocka_unit_test(what_is_not_native_cannot_be_required),
    cmocka_unit_test(the_local_address_is_the_one_wished_for),
    cmocka_unit_test(explain_says_that_it_cannot),
    cmocka_unit_test(bad_addresses_are_invalid),
};

const struct rdmacm_cases rdmacm_connect_cases = { cases, sizeof(cases) / sizeof(cases[0]) };
