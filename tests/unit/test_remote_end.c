/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* An import in progress when its endpoint ends. */
#include "tests/unit/api_pair.h"

static void an_unanswered_import_completes_when_its_endpoint_ends(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_mr *mr = NULL;
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    const uint32_t by_hand = RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD;
    open_sides(&pair, "tcp", by_hand, by_hand);
    connect_more(&pair, NULL, &pair.a, &pair.b);
    CHECK_OK(rdmux_mr_alloc(pair.fabric_b, 4096, RDMUX_ACCESS_REMOTE_READ, &mr));
    CHECK_OK(rdmux_mr_export(mr, &token));

    CHECK_STATUS(rdmux_remote_import(pair.a, &token, 0, &remote), RDMUX_IN_PROGRESS);
    CHECK_OK(rdmux_ep_close(pair.b)); /* it has not answered */
    pair.b = NULL;

    struct rdmux_wc wc = expect_entry(pair.cq_a, RDMUX_WC_REMOTE_READY, RDMUX_PEER_GONE);
    assert_ptr_equal(wc.context, remote);
    (void)expect_entry(pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    rdmux_remote_close(remote);
    rdmux_mr_deregister(mr);
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unanswered_import_completes_when_its_endpoint_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
