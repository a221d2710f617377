/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Tokens that only one peer may use. */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "tests/unit/auth_scene.h"

enum { LENGTH = 64, EVERY_RIGHT = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE };

/* The peers anna and bert, each connected to an owner of regions that knows both. */
struct scene {
    struct pair anna; /* b is the owner's side */
    struct rdmux_fabric *fabric_bert;
    struct rdmux_cq *cq_bert;
    struct rdmux_ep *bert;
    struct rdmux_ep *to_bert;
    struct rdmux_mr *mr;
    uint8_t memory[LENGTH];
};

static void open_scene(struct scene *scene, const char *paths)
{
    char file[3][FILE_NAME_MAX];
    struct rdmux_fabric_auth anna = psk_of(write_file("anna", "anna:" KEY_ONE "\n", file[0]));
    struct rdmux_fabric_auth bert = psk_of(write_file("bert", "bert:" KEY_TWO "\n", file[1]));
    struct rdmux_fabric_auth both = psk_of(
        write_file("both", "anna:" KEY_ONE "\nbert:" KEY_TWO "\n", file[2]));
    struct rdmux_fabric_attr attr = attr_with(paths, &bert, NULL, NULL);
    memset(scene, 0, sizeof(*scene));
    open_auth_sides(&scene->anna, paths, &anna, &both, NULL);
    CHECK_OK(rdmux_fabric_open(&attr, &scene->fabric_bert));
    scene->cq_bert = create_cq(scene->fabric_bert);
    connect_more(&scene->anna, NULL, &scene->anna.a, &scene->anna.b);
    struct pair second = scene->anna;
    second.fabric_a = scene->fabric_bert;
    second.cq_a = scene->cq_bert;
    connect_more(&second, NULL, &scene->bert, &scene->to_bert);
    CHECK_OK(
        rdmux_mr_register(scene->anna.fabric_b, scene->memory, LENGTH, EVERY_RIGHT, &scene->mr));
}

static void close_scene(struct scene *scene)
{
    CHECK_OK(rdmux_ep_close(scene->bert));
    CHECK_OK(rdmux_ep_close(scene->to_bert));
    CHECK_OK(rdmux_cq_destroy(scene->cq_bert));
    CHECK_OK(rdmux_fabric_close(scene->fabric_bert));
    rdmux_mr_deregister(scene->mr);
    close_pair(&scene->anna);
}

static void grant(struct scene *scene, const char *identity, struct rdmux_token *out)
{
    CHECK_OK(rdmux_mr_export_to(scene->mr, identity, out));
}

static void expect_import(struct rdmux_ep *ep, const struct rdmux_token *token,
                          enum rdmux_status expected)
{
    struct rdmux_remote *remote = NULL;
    CHECK_STATUS(rdmux_remote_import(ep, token, PATIENT_MS, &remote), expected);
    assert_true((remote != NULL) == (expected == RDMUX_OK));
    rdmux_remote_close(remote);
}

static void check_who_may_import(const char *paths)
{
    struct scene scene;
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    open_scene(&scene, paths);
    grant(&scene, "anna", &token);

    expect_import(scene.bert, &token, RDMUX_DENIED); /* before anybody has, */
    CHECK_OK(rdmux_remote_import(scene.anna.a, &token, PATIENT_MS, &remote));
    expect_import(scene.bert, &token, RDMUX_DENIED); /* and after */

    CHECK_OK(rdmux_write(scene.anna.a, "granted", 8, NULL, remote, 0, NULL, RDMUX_PLACED));
    expect_entry(scene.anna.cq_a, RDMUX_WC_WRITE, RDMUX_OK);
    assert_string_equal((const char *)scene.memory, "granted");
    rdmux_remote_close(remote);
    close_scene(&scene);
}

static void a_granted_token_is_valid_for_its_peer_alone(void **state)
{
    (void)state;
    check_who_may_import("tcp");
    check_who_may_import("shm");
}

static void each_peer_has_a_token_of_its_own(void **state)
{
    struct scene scene;
    struct rdmux_token anna;
    struct rdmux_token again;
    struct rdmux_token bert;
    struct rdmux_token all;
    (void)state;
    open_scene(&scene, "tcp");

    grant(&scene, "anna", &anna);
    grant(&scene, "bert", &bert);
    grant(&scene, "anna", &again);
    CHECK_OK(rdmux_mr_export(scene.mr, &all));

    assert_memory_equal(&anna, &again, sizeof(anna));
    assert_memory_not_equal(&anna, &bert, sizeof(anna));
    assert_memory_not_equal(&anna, &all, sizeof(anna));
    assert_memory_not_equal(&bert, &all, sizeof(anna));
    expect_import(scene.anna.a, &anna, RDMUX_OK);
    expect_import(scene.anna.a, &bert, RDMUX_DENIED);
    expect_import(scene.bert, &anna, RDMUX_DENIED);
    expect_import(scene.bert, &bert, RDMUX_OK);
    expect_import(scene.anna.a, &all, RDMUX_OK);
    expect_import(scene.bert, &all, RDMUX_OK);
    close_scene(&scene);
}

/* "ann" and "annab" begin as "anna" does. */
static void a_token_is_not_valid_for_a_similar_name(void **state)
{
    static const char *const others[] = { "ann", "annab", "Anna", "anna ", "bert" };
    struct scene scene;
    struct rdmux_token token;
    (void)state;
    open_scene(&scene, "tcp");
    for (size_t i = 0; i < RDMUX_COUNT_OF(others); i++) {
        grant(&scene, others[i], &token);
        expect_import(scene.anna.a, &token, RDMUX_DENIED);
    }
    close_scene(&scene);
}

static void a_granted_token_with_a_changed_bit_opens_nothing(void **state)
{
    struct scene scene;
    struct rdmux_token token;
    (void)state;
    open_scene(&scene, "tcp");
    grant(&scene, "anna", &token);
    for (size_t bit = (size_t)8 * 8; bit < 8 * sizeof(token.bytes);
         bit += 5) { /* magic and version: INVALID */
        token.bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
        expect_import(scene.anna.a, &token, RDMUX_DENIED);
        token.bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    expect_import(scene.anna.a, &token, RDMUX_OK);
    close_scene(&scene);
}

static void check_revocation(const char *paths)
{
    struct scene scene;
    struct rdmux_token token;
    struct rdmux_token later;
    struct rdmux_remote *remote = NULL;
    open_scene(&scene, paths);
    grant(&scene, "anna", &token);
    CHECK_OK(rdmux_remote_import(scene.anna.a, &token, PATIENT_MS, &remote));

    CHECK_OK(rdmux_mr_revoke(scene.mr)); /* nothing was exported but this */

    expect_import(scene.anna.a, &token, RDMUX_DENIED);
    CHECK_STATUS(rdmux_write(scene.anna.a, "after", 6, NULL, remote, 0, NULL, RDMUX_PLACED),
                 RDMUX_DENIED);
    assert_int_equal(scene.memory[0], 0);
    grant(&scene, "anna", &later);
    assert_memory_not_equal(&token, &later, sizeof(token));
    expect_import(scene.anna.a, &token, RDMUX_DENIED);
    expect_import(scene.anna.a, &later, RDMUX_OK);
    rdmux_remote_close(remote);
    close_scene(&scene);
}

static void revoking_invalidates_granted_tokens(void **state)
{
    (void)state;
    check_revocation("tcp");
    check_revocation("shm");
}

/* The general token is not revived by a granted one, nor the other way round. */
static void a_revoked_token_stays_invalid_when_a_token_of_the_other_kind_is_exported(void **state)
{
    struct scene scene;
    struct rdmux_token all;
    struct rdmux_token anna;
    struct rdmux_token token;
    (void)state;
    open_scene(&scene, "tcp");
    CHECK_OK(rdmux_mr_export(scene.mr, &all));
    CHECK_OK(rdmux_mr_revoke(scene.mr));
    grant(&scene, "anna", &anna);
    expect_import(scene.anna.a, &all, RDMUX_DENIED);
    CHECK_OK(rdmux_mr_revoke(scene.mr));
    CHECK_OK(rdmux_mr_export(scene.mr, &token));
    expect_import(scene.anna.a, &anna, RDMUX_DENIED);
    expect_import(scene.anna.a, &token, RDMUX_OK);
    close_scene(&scene);
}

static void check_refused(struct rdmux_mr *mr, const char *identity, const char *part)
{
    struct rdmux_token token;
    struct rdmux_token untouched;
    memset(&token, 0x5a, sizeof(token));
    untouched = token;
    CHECK_STATUS(rdmux_mr_export_to(mr, identity, &token), RDMUX_INVALID);
    if (strstr(rdmux_last_error(), part) == NULL) {
        fail_msg("no \"%s\" in: %s", part, rdmux_last_error());
    }
    assert_memory_equal(&token, &untouched, sizeof(token));
}

static void a_grant_needs_a_name_rights_and_authentication(void **state)
{
    char long_name[RDMUX_IDENTITY_MAX + 1] = { 0 };
    struct scene scene;
    struct rdmux_mr *mr = NULL;
    struct rdmux_token token;
    (void)state;
    open_scene(&scene, "tcp");
    memset(long_name, 'a', RDMUX_IDENTITY_MAX);
    check_refused(scene.mr, "", "no bytes");
    check_refused(scene.mr, long_name, "too many bytes");
    long_name[RDMUX_IDENTITY_MAX - 1] = '\0';
    grant(&scene, long_name, &token);
    CHECK_OK(rdmux_mr_alloc(scene.anna.fabric_b, LENGTH, RDMUX_ACCESS_LOCAL_WRITE, &mr));
    check_refused(mr, "anna", "no remote rights");
    rdmux_mr_deregister(mr);
    close_scene(&scene);

    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    CHECK_OK(rdmux_mr_alloc(fabric, LENGTH, EVERY_RIGHT, &mr));
    check_refused(mr, "anna", "rdmux_fabric_attr.auth");
    rdmux_mr_deregister(mr);
    CHECK_OK(rdmux_fabric_close(fabric));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_granted_token_is_valid_for_its_peer_alone),
        cmocka_unit_test(each_peer_has_a_token_of_its_own),
        cmocka_unit_test(a_token_is_not_valid_for_a_similar_name),
        cmocka_unit_test(a_granted_token_with_a_changed_bit_opens_nothing),
        cmocka_unit_test(revoking_invalidates_granted_tokens),
        cmocka_unit_test(a_revoked_token_stays_invalid_when_a_token_of_the_other_kind_is_exported),
        cmocka_unit_test(a_grant_needs_a_name_rights_and_authentication),
    };
    return cmocka_run_group_tests_name("grants", tests, make_auth_folder, remove_auth_folder);
}
