/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What providers without a device share: scatter/gather lists, regions by key, which peers are on
 * this host. */
#include <rdmux/provider.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct rdmux_provider_ops ops = { .name = "some" };

/* ---------------------------------------------------------------------------------------- lists */

/* "abcdef" in pieces of 2, 0 and 4 bytes, with guards around. */
struct list {
    char bytes[16];
    struct rdmux_provider_sge sges[3];
    struct rdmux_request request;
};

static void fill(struct list *list)
{
    memset(list, 0, sizeof(*list));
    memcpy(list->bytes, "<ab><><cdef>", 12);
    list->sges[0] = (struct rdmux_provider_sge){ .addr = list->bytes + 1, .length = 2 };
    list->sges[1] = (struct rdmux_provider_sge){ .addr = list->bytes + 5, .length = 0 };
    list->sges[2] = (struct rdmux_provider_sge){ .addr = list->bytes + 7, .length = 4 };
    list->request.sges = list->sges;
    list->request.sge_count = 3;
    list->request.length = 6;
}

static void bytes_are_gathered_from_any_offset_of_a_list(void **state)
{
    (void)state;
    static const char letters[] = "abcdef";
    struct list list;
    fill(&list);
    for (uint64_t from = 0; from <= 6; from++) {
        for (uint64_t length = 0; from + length <= 6; length++) {
            char out[8] = "-------";
            rdmux_software_gather(&list.request, from, out, length);
            assert_memory_equal(out, letters + from, length);
            assert_int_equal(out[length], '-');
        }
    }
}

static void bytes_are_scattered_to_any_offset_of_a_list_and_nowhere_else(void **state)
{
    (void)state;
    static const size_t places[] = { 1, 2, 7, 8, 9, 10 };
    for (uint64_t from = 0; from <= 6; from++) {
        for (uint64_t length = 0; from + length <= 6; length++) {
            struct list list;
            char expected[16] = "<ab><><cdef>";
            fill(&list);
            for (uint64_t i = 0; i < length; i++) {
                expected[places[from + i]] = (char)('1' + i);
            }
            rdmux_software_scatter(&list.request, from, "123456", length);
            assert_memory_equal(list.bytes, expected, sizeof(expected));
        }
    }
}

static void bytes_beyond_the_list_are_left_out(void **state)
{
    (void)state;
    struct list list;
    fill(&list);
    rdmux_software_scatter(&list.request, 4, "123456", 6);
    assert_memory_equal(list.bytes, "<ab><><cd12>\0\0\0\0", 16);
    rdmux_software_scatter(&list.request, 7, "123456", 6);
    assert_memory_equal(list.bytes, "<ab><><cd12>\0\0\0\0", 16);
}

/* -------------------------------------------------------------------------------------- regions */

static void an_import_keeps_the_key_and_refuses_a_short_description(void **state)
{
    (void)state;
    struct rdmux_provider_ep ep = { .ops = &ops };
    struct rdmux_software_remote remote = { .base = { .ep = &ep } };
    uint8_t key[RDMUX_TARGET_KEY_SIZE + 1];
    for (size_t i = 0; i < sizeof(key); i++) {
        key[i] = (uint8_t)(i + 1);
    }
    assert_int_equal(rdmux_software_remote_open(&remote.base, key, sizeof(key) - 2), RDMUX_PROTOCOL);
    assert_int_equal(remote.key[0], 0);
    assert_string_equal(rdmux_last_error(),
                        "some: the peer described a region in 15 bytes, 16 are needed");
    assert_int_equal(rdmux_software_remote_open(&remote.base, key, sizeof(key)), RDMUX_OK);
    assert_memory_equal(remote.key, key, sizeof(remote.key));
    assert_int_equal(rdmux_software_remote_open(&remote.base, key, sizeof(key) - 1), RDMUX_OK);
    assert_memory_equal(remote.key, key, sizeof(remote.key));
    rdmux_software_remote_close(&remote.base);
}

static void a_description_needs_room_for_the_key(void **state)
{
    (void)state;
    struct rdmux_provider_ep ep = { .ops = &ops };
    struct rdmux_provider_mr mr = { .mr = NULL };
    uint8_t out[RDMUX_TARGET_KEY_SIZE] = { 0 };
    size_t size = sizeof(out) - 1;
    assert_int_equal(rdmux_software_mr_describe(&mr, &ep, out, &size), RDMUX_INVALID);
    assert_int_equal(size, sizeof(out) - 1);
}

/* ----------------------------------------------------------------------------------------- here */

enum { AT_BOOT_ID = 0, AT_VERSION = 36, AT_NAMESPACE = 40 };

static void only_paths_of_this_host_are_reachable(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        enum rdmux_reason reason;
    } cases[] = {
        { AT_BOOT_ID, RDMUX_REASON_OTHER_HOST },
        { AT_BOOT_ID + 35, RDMUX_REASON_OTHER_HOST },
        { AT_VERSION, RDMUX_REASON_NOT_REACHABLE },
        { AT_NAMESPACE, RDMUX_REASON_OTHER_NAMESPACE },
    };
    struct rdmux_local_path path;
    char text[RDMUX_TEXT_MAX] = "";
    memset(&path, 0, sizeof(path));
    rdmux_software_here(&path);
    assert_int_equal(path.reason, RDMUX_REASON_USABLE);
    assert_int_equal(
        rdmux_software_reach(path.reach, path.reach_length, path.reach, path.reach_length, text),
        RDMUX_REASON_NONE);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t theirs[RDMUX_REACH_MAX];
        memcpy(theirs, path.reach, sizeof(theirs));
        theirs[cases[i].at] ^= 1;
        text[0] = '\0';
        assert_int_equal(
            rdmux_software_reach(path.reach, path.reach_length, theirs, path.reach_length, text),
            cases[i].reason);
        assert_true(text[0] != '\0');
    }
    assert_int_equal(rdmux_software_reach(path.reach, path.reach_length, path.reach,
                                          path.reach_length - 1, text),
                     RDMUX_REASON_NOT_REACHABLE);
    assert_int_equal(rdmux_software_reach(path.reach, 0, path.reach, path.reach_length, text),
                     RDMUX_REASON_NOT_REACHABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_gathered_from_any_offset_of_a_list),
        cmocka_unit_test(bytes_are_scattered_to_any_offset_of_a_list_and_nowhere_else),
        cmocka_unit_test(bytes_beyond_the_list_are_left_out),
        cmocka_unit_test(an_import_keeps_the_key_and_refuses_a_short_description),
        cmocka_unit_test(a_description_needs_room_for_the_key),
        cmocka_unit_test(only_paths_of_this_host_are_reachable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
