/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The primitives of api/system with POSIX calls alone. test_system_posix.cmake compiles them into
 * this program, in place of those of the library. */
#include "tests/unit/system_contract.h"

/* What only Linux has is missing in a way that the library expects. */
static void what_is_missing_is_told(void **state)
{
    (void)state;
    int fd = 0;
    int ends[2];
    int bytes = 0;
    uint8_t name[RDMUX_PEER_NAME_SIZE];
    char path[8] = "?";
    make_pair(ends);
    assert_false(rdmux_membarrier_register());
    assert_null(rdmux_region_map((size_t)2 << 20, (uint64_t)2 << 20, &fd));
    assert_int_equal(errno, ENOTSUP);
    assert_false(rdmux_fd_is_dmabuf(ends[0]));
    assert_int_equal(rdmux_dmabuf_begin(ends[0], true), -1);
    assert_int_equal(rdmux_dmabuf_end(ends[0], true), -1);
    assert_int_equal(rdmux_socket_unread(ends[0], &bytes), -1);
    assert_int_equal(rdmux_socket_peer(ends[0], name), -1);
    assert_int_equal(rdmux_socket_round_trip_ns(ends[0]), 0);
    assert_false(rdmux_socket_count(ends[0]).has_retransmissions);
    assert_string_equal(rdmux_process_name(), "");
    rdmux_object_path(&fd, path, sizeof(path));
    assert_string_equal(path, "");
    assert_true(rdmux_is_same_object(&fd, &ends));
    uint64_t at = 0;
    assert_null(rdmux_memory_fault(&fd, sizeof(fd), true, &at));
    close_pair(ends);
}

int main(void)
{
    const struct CMUnitTest missing[] = { cmocka_unit_test(what_is_missing_is_told) };
    int failed = cmocka_run_group_tests(system_contract, NULL, NULL);
    return failed + cmocka_run_group_tests(missing, NULL, NULL);
}
