/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Endpoints of rdma://, on whatever device there is: rules P.1 and following of docs/SEMANTICS.md.
 * One side is rdmux, the other rdmux as well, or librdmacm's calls written by hand. run.sh runs it
 * over simulated adapters.
 */
#include "tests/interop/by_hand.h"
#include "tests/interop/rdmacm_pair.h"

#include <stdio.h>
#include <string.h>

/* ----------------------------------------------------------------------- a peer written by hand */

static void a_client_by_hand_is_served(void **state)
{
    struct pair pair;
    struct by_hand peer;
    char text[SMALL] = "";
    (void)state;
    open_fabric(&pair);
    listen_here(&pair, "rdma://");
    by_hand_start(&peer, BY_HAND_SENDS, pair.address + strlen("rdma://"));
    uint64_t id = await_peer(&pair, NULL);

    take(&pair, id);
    GOES(rdmux_recv(pair.server, text, sizeof(text), NULL, NULL));

    /* It speaks as soon as it is connected. */
    expect(&pair, pair.server, RDMUX_WC_CONNECTED, RDMUX_OK);
    assert_int_equal(expect(&pair, pair.server, RDMUX_WC_RECV, RDMUX_OK).length,
                     sizeof(BY_HAND_GREETING));
    assert_string_equal(text, BY_HAND_GREETING);
    GOES(rdmux_send(pair.server, "thanks", 7, NULL, NULL, RDMUX_UNSIGNALED));
    expect(&pair, pair.server, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    assert_string_equal(by_hand_end(&peer), "thanks");
    close_pair(&pair);
}

static void a_client_by_hand_lends_its_memory(void **state)
{
    struct pair pair;
    struct by_hand peer;
    struct by_hand_key key;
    struct rdmux_remote *remote = NULL;
    char text[sizeof(BY_HAND_GREETING)] = "";
    (void)state;
    open_fabric(&pair);
    listen_here(&pair, "rdma://");
    by_hand_start(&peer, BY_HAND_LENDS, pair.address + strlen("rdma://"));
    take(&pair, await_peer(&pair, NULL));
    GOES(rdmux_recv(pair.server, &key, sizeof(key), NULL, NULL));
    expect(&pair, pair.server, RDMUX_WC_CONNECTED, RDMUX_OK);
    expect(&pair, pair.server, RDMUX_WC_RECV, RDMUX_OK);

    GOES(rdmux_remote_import_raw(pair.server, key.addr, key.key, BY_HAND_SIZE, &remote));
    GOES(rdmux_read(pair.server, text, sizeof(text), NULL, remote, 0, NULL, 0));
    expect(&pair, pair.server, RDMUX_WC_READ, RDMUX_OK);
    assert_string_equal(text, BY_HAND_GREETING);
    GOES(rdmux_write(pair.server, "by rdmux", 9, NULL, remote, 0, NULL, RDMUX_PLACED));
    expect(&pair, pair.server, RDMUX_WC_WRITE, RDMUX_OK);
    GOES(rdmux_send(pair.server, "done", 5, NULL, NULL, RDMUX_UNSIGNALED));

    expect(&pair, pair.server, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    assert_string_equal(by_hand_end(&peer), "by rdmux");
    close_pair(&pair);
}

/* The peer grants none: a device would hold one forever. */
static void refuses_reads(struct pair *pair)
{
    struct rdmux_remote *remote = NULL;
    char text[SMALL];
    assert_int_equal(info_of(pair->client).native & (RDMUX_CAP_READ | RDMUX_CAP_PLACED), 0);
    GOES(rdmux_remote_import_raw(pair->client, 4096, 1, 8, &remote));
    assert_int_equal(rdmux_read(pair->client, text, 8, NULL, remote, 0, NULL, 0), RDMUX_UNSUPPORTED);
    rdmux_remote_close(remote);
}

static void a_server_by_hand_is_spoken_to(void **state)
{
    struct pair pair;
    struct by_hand peer;
    char text[SMALL] = "";
    char address[RDMUX_ADDRESS_MAX];
    (void)state;
    open_fabric(&pair);
    by_hand_start(&peer, BY_HAND_ECHOES, host);
    (void)snprintf(address, sizeof(address), "rdma://%s:%u", host, by_hand_port(&peer));
    GOES(rdmux_connect(pair.fabric, pair.cq, address, NULL, PATIENCE_MS, &pair.client));

    GOES(rdmux_recv(pair.client, text, sizeof(text), NULL, NULL));
    GOES(rdmux_send(pair.client, "echo", 5, NULL, NULL, RDMUX_UNSIGNALED));
    expect(&pair, pair.client, RDMUX_WC_RECV, RDMUX_OK);
    assert_string_equal(text, "echo");
    if (!is_iwarp(pair.client)) {
        refuses_reads(&pair);
    }
    GOES(rdmux_ep_shutdown(pair.client, PATIENCE_MS));

    assert_string_equal(by_hand_end(&peer), "echo");
    close_pair(&pair);
}

/* ------------------------------------------------------------------------------------- no way */

static void an_address_without_a_device_is_no_path(void **state)
{
    struct pair pair;
    (void)state;
    open_fabric(&pair);

    enum rdmux_status status = rdmux_connect(pair.fabric, pair.cq, "rdma://198.51.100.7:7174", NULL,
                                             PATIENCE_MS, &pair.client);

    assert_int_equal(status, RDMUX_NO_PATH);
    assert_non_null(strstr(rdmux_last_error(), "198.51.100.7"));
    assert_non_null(strstr(rdmux_last_error(), "NOT_REACHABLE"));
    assert_non_null(strstr(rdmux_last_error(), "No such device"));
    close_pair(&pair);
}

/* ---------------------------------------------------------------------------------- all of them */

static const struct CMUnitTest by_hand[] = {
    cmocka_unit_test(a_client_by_hand_is_served),
    cmocka_unit_test(a_client_by_hand_lends_its_memory),
    cmocka_unit_test(a_server_by_hand_is_spoken_to),
};

static const struct rdmacm_cases by_hand_cases = { by_hand, sizeof(by_hand) / sizeof(by_hand[0]) };

/* One group, which has one plan. */
static int run_all(void)
{
    enum { CASES_MAX = 64 };
    static struct CMUnitTest tests[CASES_MAX];
    const struct rdmacm_cases *subjects[] = { &rdmacm_connect_cases, &rdmacm_memory_cases,
                                              &rdmacm_end_cases, &by_hand_cases };
    size_t count = 0;
    for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++) {
        if (subjects[i]->count > CASES_MAX - count) {
            (void)fprintf(stderr, "test_rdmacm has more than %d cases\n", (int)CASES_MAX);
            return 1;
        }
        memcpy(&tests[count], subjects[i]->cases, subjects[i]->count * sizeof(tests[0]));
        count += subjects[i]->count;
    }
    return _cmocka_run_group_tests("tests", tests, count, NULL, NULL);
}

int main(int argc, char **argv)
{
    /* Where SIM_VERBS says that no way is found: fail=resolve_addr:1:19. */
    static const struct CMUnitTest without_way[] = {
        cmocka_unit_test(an_address_without_a_device_is_no_path),
    };
    if (argc > 1 && strcmp(argv[1], "--without-way") == 0) {
        return cmocka_run_group_tests(without_way, NULL, NULL);
    }
    find_host();
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return run_all();
}
