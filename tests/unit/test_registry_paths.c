/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What a provider reports for its paths, as the core passes it on. */
#include "api/core/fabric.h"
#include "tests/unit/device_scene.h"

/* No string is terminated, and the reach is longer than its buffer. */
static enum rdmux_status boundless_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                         size_t max, size_t *count)
{
    (void)fabric;
    assert_true(max > 0);
    memset(out, 0, sizeof(*out));
    memset(out->device, 'd', sizeof(out->device));
    memset(out->address, 'a', sizeof(out->address));
    memset(out->text, 't', sizeof(out->text));
    memset(out->hint, 'h', sizeof(out->hint));
    out->bandwidth = UINT64_MAX;
    out->reach_length = RDMUX_REACH_MAX + 1;
    *count = 1;
    return RDMUX_OK;
}

static void unterminated_strings_are_cut_and_nothing_else_changes(void **state)
{
    (void)state;
    struct rdmux_fabric *fabric = open_fabric(
        "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD, NULL);
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    const struct rdmux_local_path *path = NULL;
    assert_non_null(offer);
    make_device(fabric, 0, 0);
    device.ops.probe = boundless_probe;

    rdmux_registry_offer_paths(&fabric->registry, offer);

    for (size_t i = 0; i < offer->path_count; i++) {
        if (strcmp(offer->paths[i].provider, "tcp") == 0) {
            path = &offer->paths[i].path;
        }
    }
    assert_non_null(path);
    assert_int_equal(strnlen(path->device, sizeof(path->device)), sizeof(path->device) - 1);
    assert_int_equal(strnlen(path->address, sizeof(path->address)), sizeof(path->address) - 1);
    assert_int_equal(strnlen(path->text, sizeof(path->text)), sizeof(path->text) - 1);
    assert_int_equal(strnlen(path->hint, sizeof(path->hint)), sizeof(path->hint) - 1);
    assert_true(path->bandwidth == UINT64_MAX);
    assert_int_equal(path->reach_length, RDMUX_REACH_MAX);
    free(offer);
    CHECK_OK(rdmux_fabric_close(fabric));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unterminated_strings_are_cut_and_nothing_else_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
