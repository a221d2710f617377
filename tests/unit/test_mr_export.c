/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Tokens of memory regions, and their import. */
#include "tests/unit/mr_scene.h"

static void a_token_is_the_same_until_revoke_and_then_another(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    struct rdmux_token again;
    struct rdmux_token later;

    assert_int_equal(rdmux_mr_export(scene->mr, &again), RDMUX_OK);
    assert_int_equal(rdmux_mr_revoke(scene->mr), RDMUX_OK);
    assert_int_equal(rdmux_mr_export(scene->mr, &later), RDMUX_OK);

    assert_memory_equal(&again, &scene->token, sizeof(again));
    assert_memory_not_equal(&later, &scene->token, sizeof(later));
    assert_true(rdmux_token_is_valid(&later));
    assert_int_equal(import(scene, &scene->token, 1), RDMUX_DENIED);
    assert_int_equal(import(scene, &later, 1), RDMUX_OK);
    clear_scene(scene);
}

static void a_token_has_the_documented_layout(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    const uint8_t *bytes = scene->token.bytes;
    static const uint8_t zero[8];

    assert_memory_equal(bytes, "RDXT\0\0\0\1", 8);
    assert_int_equal(bytes[15], scene->mr->id);
    assert_memory_equal(bytes + 16, "\0\0\0\0\0\0\x10\0", 8);
    assert_memory_equal(bytes + 24, "\0\0\0\x0e\0\0\0\0", 8);
    assert_memory_equal(bytes + 32, scene->fake->fabric.process, 8);
    assert_memory_not_equal(bytes + 40, zero, 8);
    assert_memory_not_equal(bytes + 48, zero, 8);
    assert_memory_equal(bytes + 56, zero, 8);
    clear_scene(scene);
}

static void a_region_without_remote_rights_has_no_token(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    struct rdmux_mr *mr = NULL;
    struct rdmux_token token;
    assert_int_equal(rdmux_mr_alloc(&fake->fabric, 1, RDMUX_ACCESS_LOCAL_WRITE, &mr), RDMUX_OK);

    assert_int_equal(rdmux_mr_export(mr, &token), RDMUX_INVALID);
    assert_int_equal(rdmux_mr_revoke(mr), RDMUX_OK);

    rdmux_mr_deregister(mr);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void a_token_with_any_bit_changed_is_denied(void **state)
{
    (void)state;
    struct scene *scene = set_scene();

    for (size_t bit = 0; bit < 8 * sizeof(scene->token); bit++) {
        struct rdmux_token forged = scene->token;
        forged.bytes[bit / 8] = (uint8_t)(forged.bytes[bit / 8] ^ 1U << bit % 8);
        assert_int_equal(import(scene, &forged, 1), RDMUX_DENIED);
        assert_int_equal(rdmux_token_is_valid(&forged), bit >= 64);
    }
    assert_true(rdmux_list_empty(&scene->mr->importers));
    assert_int_equal(import(scene, &scene->token, 1), RDMUX_OK);
    clear_scene(scene);
}

static int fail_random(void *user, void *out, size_t size)
{
    (void)user;
    (void)out;
    (void)size;
    return -1;
}

static void no_token_is_made_without_random_bytes(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    struct rdmux_token token;
    assert_int_equal(rdmux_mr_revoke(scene->mr), RDMUX_OK);

    scene->fake->fabric.hooks.random = fail_random;
    assert_int_equal(rdmux_mr_export(scene->mr, &token), RDMUX_IO);
    scene->fake->fabric.hooks.random = NULL;

    assert_int_equal(rdmux_mr_export(scene->mr, &token), RDMUX_OK);
    clear_scene(scene);
}

static void a_revocation_without_random_bytes_leaves_the_new_key_to_the_next_export(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    struct rdmux_token token;

    scene->fake->fabric.hooks.random = fail_random;
    assert_int_equal(rdmux_mr_revoke(scene->mr), RDMUX_OK);
    assert_int_equal(scene->mr->index, 0);
    scene->fake->fabric.hooks.random = NULL;

    assert_int_equal(rdmux_mr_export(scene->mr, &token), RDMUX_OK);
    assert_int_not_equal(scene->mr->index, 0);
    clear_scene(scene);
}

static void an_import_over_an_unknown_domain_is_unsupported(void **state)
{
    (void)state;
    struct scene *scene = set_scene();
    struct rdmux_provider_domain other = { .ops = &fake_ops };
    struct rdmux_mr *mr = NULL;
    struct rdmux_provider_mr *registration = NULL;

    enum rdmux_status status = rdmux_mr_import(&scene->fake->fabric, &scene->token, "", &scene->cq,
                                               1, &other, &mr, &registration);

    assert_int_equal(status, RDMUX_UNSUPPORTED);
    assert_true(rdmux_list_empty(&scene->mr->importers));
    clear_scene(scene);
}

static void an_import_without_memory_records_no_importer(void **state)
{
    (void)state;
    struct scene *scene = set_scene();

    scene->fake->allocations = 0;
    enum rdmux_status status = import(scene, &scene->token, 1);
    scene->fake->allocations = -1;

    assert_int_equal(status, RDMUX_NO_MEMORY);
    assert_true(rdmux_list_empty(&scene->mr->importers));
    clear_scene(scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_the_same_until_revoke_and_then_another),
        cmocka_unit_test(a_token_has_the_documented_layout),
        cmocka_unit_test(a_region_without_remote_rights_has_no_token),
        cmocka_unit_test(a_token_with_any_bit_changed_is_denied),
        cmocka_unit_test(no_token_is_made_without_random_bytes),
        cmocka_unit_test(a_revocation_without_random_bytes_leaves_the_new_key_to_the_next_export),
        cmocka_unit_test(an_import_over_an_unknown_domain_is_unsupported),
        cmocka_unit_test(an_import_without_memory_records_no_importer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
