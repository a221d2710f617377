/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Which processes can reach each other through shared memory. */
#include "shm/shm_reach.h"

#include <rdmux/provider.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct shm_reach here = {
    .boot_id = { 0xca, 0xfe, 1, 2, 3 },
    .pid_namespace = 4026531836,
    .ipc_namespace = 4026531839,
    .user_namespace = 4026531837,
    .net_namespace = 4026531840,
    .uid = 1000,
    .pid = 4194304,
    .hints = SHM_HINT_CAN_COPY,
};

static enum rdmux_reason reach(const struct shm_reach *ours, const struct shm_reach *theirs,
                               char *text)
{
    uint8_t a[SHM_REACH_SIZE];
    uint8_t b[SHM_REACH_SIZE];
    rdmux_shm_reach_encode(ours, a);
    rdmux_shm_reach_encode(theirs, b);
    return rdmux_shm_reach(a, sizeof(a), b, sizeof(b), text);
}

static void reach_bytes_decode_to_the_encoded_values(void **state)
{
    (void)state;
    uint8_t bytes[SHM_REACH_SIZE];
    struct shm_reach out;

    rdmux_shm_reach_encode(&here, bytes);
    enum rdmux_status status = rdmux_shm_reach_decode(bytes, sizeof(bytes), &out);

    assert_int_equal(status, RDMUX_OK);
    assert_memory_equal(out.boot_id, here.boot_id, SHM_BOOT_ID_SIZE);
    assert_int_equal(out.pid_namespace, here.pid_namespace);
    assert_int_equal(out.ipc_namespace, here.ipc_namespace);
    assert_int_equal(out.user_namespace, here.user_namespace);
    assert_int_equal(out.net_namespace, here.net_namespace);
    assert_int_equal(out.uid, here.uid);
    assert_int_equal(out.pid, here.pid);
    assert_int_equal(out.hints, here.hints);
}

static void two_processes_of_one_user_reach_each_other(void **state)
{
    (void)state;
    char text[RDMUX_TEXT_MAX] = "";
    struct shm_reach other = here;
    other.pid = 17;
    other.hints = 0;

    assert_int_equal(reach(&here, &other, text), RDMUX_REASON_NONE);
}

static void a_process_reaches_itself(void **state)
{
    (void)state;
    char text[RDMUX_TEXT_MAX] = "";
    struct shm_reach self;

    enum rdmux_status status = rdmux_shm_reach_of_this_process(&self);

    assert_int_equal(status, RDMUX_OK);
    assert_int_equal(self.pid, getpid());
    assert_int_equal(self.uid, geteuid());
    assert_int_equal(reach(&self, &self, text), RDMUX_REASON_NONE);
}

static void the_reason_and_text_name_the_difference(void **state)
{
    (void)state;
    struct shm_reach others[6] = { here, here, here, here, here, here };
    others[0].boot_id[15] ^= 1;
    others[1].pid_namespace++;
    others[2].ipc_namespace++;
    others[3].user_namespace++;
    others[4].net_namespace++;
    others[5].uid++;
    static const struct {
        enum rdmux_reason reason;
        const char *word;
    } expected[6] = {
        { RDMUX_REASON_OTHER_HOST, "another host" },
        { RDMUX_REASON_OTHER_NAMESPACE, "pid namespace" },
        { RDMUX_REASON_OTHER_NAMESPACE, "ipc namespace" },
        { RDMUX_REASON_OTHER_NAMESPACE, "user namespace" },
        { RDMUX_REASON_OTHER_NAMESPACE, "network namespace" },
        { RDMUX_REASON_OTHER_NAMESPACE, "as user 1001" },
    };
    for (size_t i = 0; i < 6; i++) {
        char text[RDMUX_TEXT_MAX] = "";

        enum rdmux_reason reason = reach(&here, &others[i], text);

        assert_int_equal(reason, expected[i].reason);
        assert_non_null(strstr(text, expected[i].word));
    }
}

static void malformed_reach_bytes_of_a_stranger_are_not_reachable(void **state)
{
    (void)state;
    uint8_t ours[SHM_REACH_SIZE];
    uint8_t theirs[SHM_REACH_SIZE];
    char text[RDMUX_TEXT_MAX] = "";
    rdmux_shm_reach_encode(&here, ours);
    rdmux_shm_reach_encode(&here, theirs);
    for (size_t size = 0; size < SHM_REACH_SIZE; size++) {
        assert_int_equal(rdmux_shm_reach(ours, sizeof(ours), theirs, size, text),
                         RDMUX_REASON_NOT_REACHABLE);
    }
    theirs[0] = 1;

    enum rdmux_reason of_another_version = rdmux_shm_reach(ours, sizeof(ours), theirs,
                                                           sizeof(theirs), text);

    assert_int_equal(of_another_version, RDMUX_REASON_NOT_REACHABLE);
}

static void a_boot_id_is_parsed_or_refused(void **state)
{
    (void)state;
    uint8_t out[SHM_BOOT_ID_SIZE] = { 0 };
    static const char *const bad[] = {
        "",
        "0123",
        "01234567-89ab-cdef-0123-456789abcde",
        "01234567-89ab-cdef-0123_456789abcdef",
        "0123456789abcdef0123456789abcdef",
        "g1234567-89ab-cdef-0123-456789abcdef",
        "01234567-89AB-cdef-0123-456789abcdef",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(rdmux_shm_boot_id_parse(bad[i], out), RDMUX_PROTOCOL);
        assert_int_equal(out[0], 0);
    }

    enum rdmux_status status = rdmux_shm_boot_id_parse("01234567-89ab-cdef-0123-456789abcdef\n",
                                                       out);

    assert_int_equal(status, RDMUX_OK);
    assert_int_equal(out[0], 0x01);
    assert_int_equal(out[15], 0xef);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reach_bytes_decode_to_the_encoded_values),
        cmocka_unit_test(two_processes_of_one_user_reach_each_other),
        cmocka_unit_test(a_process_reaches_itself),
        cmocka_unit_test(the_reason_and_text_name_the_difference),
        cmocka_unit_test(malformed_reach_bytes_of_a_stranger_are_not_reachable),
        cmocka_unit_test(a_boot_id_is_parsed_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
