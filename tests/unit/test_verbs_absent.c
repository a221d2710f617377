/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How often the providers of RDMA devices ask a kernel for its devices. */
#include "tests/unit/api_pair.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdmux/verbs_plugin.h>

static int answer; /* errno of the list of devices */
static unsigned asked;

struct ibv_device **__wrap_ibv_get_device_list(int *count);
struct ibv_device **__wrap_ibv_get_device_list(int *count)
{
    asked++;
    *count = 0;
    errno = answer;
    return NULL;
}

static void probe_all(struct rdmux_fabric *fabric)
{
    for (size_t i = 0; i < rdmux_verbs_plugin.count; i++) {
        struct rdmux_local_path paths[4];
        size_t count = 0;
        CHECK_OK(
            rdmux_verbs_plugin.providers[i]->probe(fabric, paths, RDMUX_COUNT_OF(paths), &count));
        assert_int_equal(count, 1);
        assert_int_equal(paths[0].reason, RDMUX_REASON_NO_DEVICE);
    }
}

static void a_list_that_fails_is_asked_for_by_each_provider(void **state)
{
    (void)state;
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    answer = EPERM;
    asked = 0;

    probe_all(fabric);

    assert_int_equal(asked, rdmux_verbs_plugin.count);
    CHECK_OK(rdmux_fabric_close(fabric));
}

/* The subject is time: the library believes for a limited time that the kernel has no RDMA. */
static void a_kernel_without_rdma_is_asked_again_after_a_while(void **state)
{
    (void)state;
    enum { ROUNDS = 100 };
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    answer = ENOSYS;
    asked = 0;
    const uint64_t began = now_ms();

    for (int i = 0; i < ROUNDS; i++) {
        probe_all(fabric);
    }

    assert_in_range(asked, 1, 1 + (now_ms() - began) / 50);
    const unsigned before = asked;
    const uint64_t until = now_ms() + PATIENT_MS;
    while (asked == before) {
        assert_true(now_ms() < until);
        probe_all(fabric);
    }
    CHECK_OK(rdmux_fabric_close(fabric));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_that_fails_is_asked_for_by_each_provider),
        cmocka_unit_test(a_kernel_without_rdma_is_asked_again_after_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
