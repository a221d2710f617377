/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Key files, and the errors of a fabric for unusable options. */
#include "api/core/fabric.h"
#include "tests/unit/auth_scene.h"

static struct rdmux_fabric *fabric;

static int open_all(void **state)
{
    fabric = open_fabric("tcp", 0, NULL);
    return make_auth_folder(state);
}

static int close_all(void **state)
{
    CHECK_OK(rdmux_fabric_close(fabric));
    return remove_auth_folder(state);
}

/* -------------------------------------------------------------------------------------- parsing */

static void a_file_has_a_key_on_each_line(void **state)
{
    static const char text[] = "# all of them\n\nanna:" KEY_ONE "\r\n  \nbert.example:" KEY_TWO;
    struct rdmux_auth_key *keys = NULL;
    size_t count = 0;
    (void)state;

    CHECK_OK(rdmux_auth_keys_parse(fabric, "keys", text, sizeof(text) - 1, &keys, &count));

    assert_int_equal(count, 2);
    assert_string_equal(keys[0].identity, "anna");
    assert_int_equal(keys[0].size, 32);
    assert_int_equal(keys[0].bytes[1], 0x11);
    assert_string_equal(keys[1].identity, "bert.example");
    assert_int_equal(keys[1].bytes[0], 0xff);
    rdmux_secret_unmap(keys, count * sizeof(*keys));
}

static void a_key_may_have_16_to_64_bytes(void **state)
{
    static const char shortest[] = "a:00112233445566778899aabbccddeeff";
    static const char longest[] = "a:" KEY_ONE KEY_TWO;
    struct rdmux_auth_key *keys = NULL;
    size_t count = 0;
    (void)state;

    CHECK_OK(rdmux_auth_keys_parse(fabric, "keys", shortest, sizeof(shortest) - 1, &keys, &count));
    assert_int_equal(keys[0].size, RDMUX_AUTH_KEY_MIN);
    rdmux_secret_unmap(keys, count * sizeof(*keys));
    CHECK_OK(rdmux_auth_keys_parse(fabric, "keys", longest, sizeof(longest) - 1, &keys, &count));
    assert_int_equal(keys[0].size, RDMUX_AUTH_KEY_MAX);
    rdmux_secret_unmap(keys, count * sizeof(*keys));
}

static void a_malformed_key_file_is_refused_and_the_line_named(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        { "", "no line" },
        { "# nothing\n\n", "no line" },
        { "anna\n", "line 1 is not IDENTITY:KEY" },
        { "\n:" KEY_ONE, "line 2 is not IDENTITY:KEY" },
        { "an na:" KEY_ONE, "line 1 is not IDENTITY:KEY" },
        { "anna:", "line 1 has a key that is not of 32 to 128" },
        { "anna:00112233445566778899aabbccddee", "line 1 has a key that is not of 32 to 128" },
        { "anna:00112233445566778899aabbccddeeff0", "line 1 has a key that is not of 32 to 128" },
        { "anna:" KEY_ONE KEY_ONE "00", "line 1 has a key that is not of 32 to 128" },
        { "anna:g0112233445566778899aabbccddeeff", "something else than hexadecimal digits" },
        { "anna:" KEY_ONE "\nanna:" KEY_TWO, "line 2 has an identity that is there already" },
    };
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_auth_key *keys = NULL;
        size_t count = 0;
        enum rdmux_status status = rdmux_auth_keys_parse(fabric, "keys", cases[i].text,
                                                         strlen(cases[i].text), &keys, &count);
        if (status != RDMUX_INVALID || strstr(rdmux_last_error(), cases[i].says) == NULL) {
            fail_msg("\"%s\": %s: %s", cases[i].text, rdmux_status_name(status), rdmux_last_error());
        }
        assert_null(keys);
    }
}

static void a_nul_byte_does_not_end_a_line(void **state)
{
    static const char text[] = "anna\0:" KEY_ONE;
    struct rdmux_auth_key *keys = NULL;
    size_t count = 0;
    (void)state;

    CHECK_STATUS(rdmux_auth_keys_parse(fabric, "keys", text, sizeof(text) - 1, &keys, &count),
                 RDMUX_INVALID);
}

/* -------------------------------------------------------------------------------------- options */

static void expect_invalid(const struct rdmux_fabric_auth *auth, enum rdmux_status expected,
                           const char *part)
{
    struct rdmux_fabric_attr attr = attr_with("tcp", auth, NULL, NULL);
    struct rdmux_fabric *opened = NULL;
    enum rdmux_status status = rdmux_fabric_open(&attr, &opened);
    if (status != expected || strstr(rdmux_last_error(), part) == NULL) {
        fail_msg("%s: %s; expected %s and \"%s\"", rdmux_status_name(status), rdmux_last_error(),
                 rdmux_status_name(expected), part);
    }
    assert_null(opened);
}

static void wrong_options_are_refused_by_name(void **state)
{
    static const char *const empty_peer[] = { "" };
    char file[FILE_NAME_MAX];
    const struct rdmux_fabric_auth good = psk_of(write_file("k", "anna:" KEY_ONE, file));
    struct rdmux_fabric_auth auth;
    (void)state;

    auth = good;
    auth.size = 4;
    expect_invalid(&auth, RDMUX_INVALID, "auth.size");
    auth = good;
    auth.method = 3;
    expect_invalid(&auth, RDMUX_INVALID, "auth.method 3");
    auth = good;
    auth.flags = 0x80;
    expect_invalid(&auth, RDMUX_INVALID, "auth.flags 0x80");
    auth = good;
    auth.key_file = NULL;
    expect_invalid(&auth, RDMUX_INVALID, "auth.key_file is missing");
    auth = good;
    auth.ca_file = file;
    expect_invalid(&auth, RDMUX_INVALID, "auth.ca_file is of no use");
    auth = good;
    auth.identity = "bert";
    expect_invalid(&auth, RDMUX_INVALID, "\"bert\" is not in");
    auth = good;
    auth.peer_count = 1;
    expect_invalid(&auth, RDMUX_INVALID, "auth.peers is NULL");
    auth.peers = empty_peer;
    expect_invalid(&auth, RDMUX_INVALID, "auth.peers[0] is empty");
    auth = good;
    auth.trusted = "nonsense";
    expect_invalid(&auth, RDMUX_INVALID, "unknown provider \"nonsense\"");
}

static void trusted_takes_names_of_providers_alone(void **state)
{
    static const char *const lists[] = { "", "auto", "!tcp", "shm,!tcp" };
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE, file));
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(lists); i++) {
        auth.trusted = lists[i];
        expect_invalid(&auth, RDMUX_INVALID, "does not name the providers");
    }
}

static void a_key_that_others_may_read_is_refused(void **state)
{
    static const mode_t modes[] = { 0640, 0604, 0660, 0601 };
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE, file));
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(modes); i++) {
        assert_int_equal(chmod(file, modes[i]), 0);
        expect_invalid(&auth, RDMUX_INVALID, "is open to other users");
    }
}

static void a_path_that_is_no_file_is_refused(void **state)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(file);
    (void)state;

    name_file("absent", file);
    expect_invalid(&auth, RDMUX_IO, "cannot open");
    assert_int_equal(mkdir(file, 0700), 0);
    expect_invalid(&auth, RDMUX_INVALID, "is no file");
}

static void a_certificate_needs_its_own_key(void **state)
{
    struct certified_key authority = make_certificate("the authority", NULL, NULL, 10, NULL);
    struct certified_key anna = make_certificate("anna", NULL, NULL, 10, &authority);
    struct certified_key bert = make_certificate("bert", NULL, NULL, 10, &authority);
    struct certificate_files of_anna;
    struct certificate_files of_bert;
    char file[FILE_NAME_MAX];
    (void)state;
    write_certificate_files("anna", &anna, &authority, &of_anna);
    write_certificate_files("bert", &bert, &authority, &of_bert);

    struct rdmux_fabric_auth auth = cert_of(&of_anna);
    auth.key_file = of_bert.key;
    expect_invalid(&auth, RDMUX_INVALID, "is not that of");
    auth = cert_of(&of_anna);
    auth.key_file = write_file("noise", "noise", file);
    expect_invalid(&auth, RDMUX_INVALID, "is no private key");
    auth = cert_of(&of_anna);
    auth.cert_file = file;
    expect_invalid(&auth, RDMUX_IO, "is no certificate");
    auth = cert_of(&of_anna);
    auth.ca_file = file;
    expect_invalid(&auth, RDMUX_IO, "has no certificates");

    free_certificate(&anna);
    free_certificate(&bert);
    free_certificate(&authority);
}

/* Each allocation of a fabric that authenticates fails once, and nothing leaks. */
static void a_fabric_that_gets_no_memory_does_not_open_and_leaks_nothing(void **state)
{
    char file[FILE_NAME_MAX];
    struct rdmux_fabric_auth auth = psk_of(write_file("k", "anna:" KEY_ONE, file));
    static const char *const peers[] = { "anna" };
    struct meter meter = { .left = 0 };
    enum rdmux_status status = RDMUX_NO_MEMORY;
    long failing = 0;
    (void)state;
    auth.peers = peers;
    auth.peer_count = 1;

    while (status == RDMUX_NO_MEMORY) {
        struct rdmux_fabric_attr attr = attr_with("tcp", &auth, NULL, &meter);
        struct rdmux_fabric *opened = NULL;
        failing++;
        atomic_store(&meter.left, failing);
        status = rdmux_fabric_open(&attr, &opened);
        if (status == RDMUX_OK) {
            CHECK_OK(rdmux_fabric_close(opened));
        }
        assert_int_equal(atomic_load(&meter.pieces), 0);
    }

    CHECK_STATUS(status, RDMUX_OK);
    assert_true(failing > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_has_a_key_on_each_line),
        cmocka_unit_test(a_key_may_have_16_to_64_bytes),
        cmocka_unit_test(a_malformed_key_file_is_refused_and_the_line_named),
        cmocka_unit_test(a_nul_byte_does_not_end_a_line),
        cmocka_unit_test(wrong_options_are_refused_by_name),
        cmocka_unit_test(trusted_takes_names_of_providers_alone),
        cmocka_unit_test(a_key_that_others_may_read_is_refused),
        cmocka_unit_test(a_path_that_is_no_file_is_refused),
        cmocka_unit_test(a_certificate_needs_its_own_key),
        cmocka_unit_test(a_fabric_that_gets_no_memory_does_not_open_and_leaks_nothing),
    };
    return cmocka_run_group_tests_name("auth_keys", tests, open_all, close_all);
}
