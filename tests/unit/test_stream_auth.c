/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Streams between peers that authenticate. */
#include "auth_scene.h"

#include "stream_scene.h"

static void streams_of_peers_with_one_key_flow(void **state)
{
    char key[FILE_NAME_MAX];
    struct stream_pair streams;
    const struct rdmux_fabric_auth auth = psk_of(write_file("one", "anna:" KEY_ONE "\n", key));
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    memset(&streams, 0, sizeof(streams));
    open_auth_sides(&streams.pair, *state, &auth, &auth, NULL);
    connect_streams(&streams, true, NULL);

    check_flow(streams.a, streams.b, 300000);
    check_flow(streams.b, streams.a, 300000);

    CHECK_OK(rdmux_ep_info(rdmux_stream_ep(streams.b), &info));
    assert_string_equal(info.peer_identity, "anna");
    close_streams(&streams);
}

static void a_peer_with_another_key_gets_no_stream(void **state)
{
    char one[FILE_NAME_MAX];
    char two[FILE_NAME_MAX];
    struct pair pair;
    struct rdmux_stream *stream = NULL;
    const struct rdmux_fabric_auth auth_a = psk_of(write_file("a", "anna:" KEY_TWO "\n", two));
    const struct rdmux_fabric_auth auth_b = psk_of(write_file("b", "anna:" KEY_ONE "\n", one));
    open_auth_sides(&pair, *state, &auth_a, &auth_b, NULL);

    CHECK_STATUS(rdmux_stream_connect(pair.fabric_a, NULL, pair.address, NULL, PATIENT_MS, &stream),
                 RDMUX_AUTH);

    assert_null(stream);
    expect_nobody(&pair);
    close_pair(&pair);
}

int main(void)
{
    static char tcp[] = "tcp";
    static char shm[] = "shm";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(streams_of_peers_with_one_key_flow, tcp),
        cmocka_unit_test_prestate(streams_of_peers_with_one_key_flow, shm),
        cmocka_unit_test_prestate(a_peer_with_another_key_gets_no_stream, tcp),
    };
    return cmocka_run_group_tests(tests, make_auth_folder, remove_auth_folder);
}
