/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How endpoints of rdma:// end. */
#include "tests/interop/rdmacm_pair.h"
#include "tests/unit/descriptors.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

static void a_message_too_long_fails_both_ends(void **state)
{
    struct pair pair;
    char text[SMALL];
    bool ended[2] = { false, false };
    (void)state;
    open_fabric(&pair);
    connect_pair_to(&pair, text, 4);

    GOES(rdmux_send(pair.client, "longer than it", 15, NULL, NULL, 0));

    while (!ended[0] || !ended[1]) {
        struct rdmux_wc wc = next_entry(&pair);
        bool is_server = wc.ep == pair.server;
        ended[is_server] = ended[is_server] || wc.opcode == RDMUX_WC_DISCONNECTED;
        if (wc.opcode == RDMUX_WC_RECV) {
            assert_int_equal(wc.status, RDMUX_LENGTH);
        }
        if (wc.opcode == RDMUX_WC_DISCONNECTED && is_server) {
            assert_int_equal(wc.status, RDMUX_LENGTH);
        }
        if (wc.opcode == RDMUX_WC_DISCONNECTED && !is_server) {
            assert_int_equal(wc.status, is_iwarp(pair.client) ? RDMUX_PEER_GONE : RDMUX_LENGTH);
        }
    }
    close_pair(&pair);
}

static void a_shutdown_delivers_everything_and_ends_both(void **state)
{
    enum { MESSAGES = 20 };
    struct pair pair;
    (void)state;
    open_fabric(&pair);
    add_region(&pair, RDMUX_ACCESS_LOCAL_WRITE);
    listen_here(&pair, "rdma://");
    dial(&pair);
    take(&pair, await_dialled(&pair, NULL));
    for (size_t i = 0; i < MESSAGES; i++) {
        GOES(rdmux_recv(pair.server, pair.bytes + i * SMALL, SMALL, pair.mr, NULL));
    }
    await_both(&pair);
    for (size_t i = 0; i < MESSAGES; i++) {
        GOES(rdmux_send(pair.client, "goodbye", 8, NULL, NULL, RDMUX_UNSIGNALED));
    }

    assert_int_equal(rdmux_ep_shutdown(pair.client, 0), RDMUX_IN_PROGRESS);

    size_t received = 0;
    bool client_ended = false;
    bool server_ended = false;
    while (!client_ended || !server_ended) {
        struct rdmux_wc wc = next_entry(&pair);
        if (wc.ep == pair.client) {
            assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
            assert_int_equal(wc.status, RDMUX_OK);
            client_ended = true;
        } else if (wc.opcode == RDMUX_WC_RECV) {
            assert_int_equal(wc.status, RDMUX_OK);
            received++;
        } else {
            assert_int_equal(wc.opcode, RDMUX_WC_DISCONNECTED);
            assert_int_equal(wc.status, RDMUX_PEER_GONE); /* rdma_cm says no more */
            server_ended = true;
        }
    }
    assert_int_equal(received, MESSAGES);
    assert_string_equal((const char *)pair.bytes + (size_t)(MESSAGES - 1) * SMALL, "goodbye");
    close_pair(&pair);
}

static void a_close_ends_the_other_and_completes_everything(void **state)
{
    struct pair pair;
    char text[2][SMALL];
    (void)state;
    open_fabric(&pair);
    connect_pair(&pair);
    GOES(rdmux_recv(pair.server, text[0], SMALL, NULL, text[0]));
    GOES(rdmux_recv(pair.server, text[1], SMALL, NULL, text[1]));

    OK(rdmux_ep_close(pair.client));
    pair.client = NULL;

    for (size_t i = 0; i < 2; i++) {
        struct rdmux_wc wc = next_entry(&pair);
        assert_int_equal(wc.opcode, RDMUX_WC_RECV);
        assert_int_equal(wc.status, RDMUX_FLUSHED);
        assert_ptr_equal(wc.context, text[i]);
    }
    expect(&pair, pair.server, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    assert_int_equal(rdmux_send(pair.server, "x", 1, NULL, NULL, 0), RDMUX_PEER_GONE);
    close_pair(&pair);
}

/* Until there are no more than so many: another thread of the library may have one in hand. No event
 * tells of that. */
static void await_descriptors(size_t most)
{
    for (int ms = 0; open_descriptors() > most; ms++) {
        assert_true(ms < PATIENCE_MS);
        (void)poll(NULL, 0, 1);
    }
}

/* What is left by each of several is too much, even where the first count had one in hand. */
static void connections_leave_no_descriptor(void **state)
{
    enum { ROUNDS = 10 };
    struct pair pair;
    size_t before = 0;
    (void)state;
    open_fabric(&pair);
    connect_pair(&pair);
    for (int i = 0; i < ROUNDS; i++) {
        OK(rdmux_ep_close(pair.client));
        OK(rdmux_ep_close(pair.server));
        rdmux_listener_close(pair.listener);
        if (i == 0) {
            before = open_descriptors();
        }
        await_descriptors(before);
        connect_pair(&pair);
        struct rdmux_ep *none = NULL;
        (void)snprintf(pair.address, sizeof(pair.address), "rdma://%s:1", host);
        assert_int_equal(rdmux_connect(pair.fabric, pair.cq, pair.address, NULL, PATIENCE_MS, &none),
                         RDMUX_REFUSED);
    }
    close_pair(&pair);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_message_too_long_fails_both_ends),
    cmocka_unit_test(a_shutdown_delivers_everything_and_ends_both),
    cmocka_unit_test(a_close_ends_the_other_and_completes_everything),
    cmocka_unit_test(connections_leave_no_descriptor),
};

const struct rdmacm_cases rdmacm_end_cases = { cases, sizeof(cases) / sizeof(cases[0]) };
