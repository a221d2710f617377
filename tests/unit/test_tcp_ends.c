/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What remains of an endpoint's sockets after its end. */
#include "tcp_fallback/tcp_endpoint.h"
#include "tests/unit/tcp_pair.h"

#include <poll.h>

/* A process that was forked may hold copies of the sockets, so closing them would not end them. */
static void a_quiesced_endpoint_has_ended_each_of_its_sockets(void **state)
{
    (void)state;
    struct pair pair = pair_create(WIRED_FOUR);
    struct tcp_ep *peer = rdmux_tcp_ep(pair.b->ep);
    struct rdmux_provider_counts counts;

    assert_int_equal(ops->ep_quiesce(pair.a->ep, &counts), RDMUX_OK);

    assert_int_equal(peer->lane_count, 4);
    for (uint32_t i = 0; i < peer->lane_count; i++) {
        struct pollfd socket = { .fd = rdmux_tcp_lane(peer, i)->fd, .events = POLLIN | POLLRDHUP };
        assert_int_equal(poll(&socket, 1, 0), 1);
        assert_true((socket.revents & POLLRDHUP) != 0);
    }
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_quiesced_endpoint_has_ended_each_of_its_sockets, clear_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
