/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A pending connection whose introduction has arrived, but is not yet read by the listener when the
 * limit is exceeded. The test takes each step itself, so it knows what is read when. */
#include "tests/unit/listener_scene.h"

static void a_connection_with_unread_bytes_is_not_silent(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    uint8_t *opening = malloc(OPENING_MAX);
    assert_non_null(opening);
    memset(&pair, 0, sizeof(pair));
    pair.fabric_a = open_fabric("tcp", 0, NULL);
    pair.fabric_b = open_fabric(
        "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD, NULL);
    pair.cq_a = create_cq(pair.fabric_a);
    pair.cq_b = create_cq(pair.fabric_b);
    attr.max_pending = 1;
    pair.listener = listen_here(pair.fabric_b, &attr, pair.address);
    size_t size = make_opening(pair.fabric_a, opening);
    int first = dial_raw(pair.address);
    CHECK_OK(rdmux_fabric_progress(pair.fabric_b)); /* it is there, and silent */

    int second = dial_raw(pair.address); /* arrives before the first one's bytes are read */
    send_bytes(first, opening, size);
    CHECK_OK(rdmux_fabric_progress(pair.fabric_b));

    CHECK_OK(rdmux_listener_next(pair.listener, 0, &peer));
    assert_false(is_dropped(first, 0));
    close(first);
    close(second);
    free(opening);
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_with_unread_bytes_is_not_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
