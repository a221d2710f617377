/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux_<struct>_init(): what bindings call in place of the RDMUX_*_INIT macros. */
#include <rdmux/rdmux.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { LATER = 64 }; /* bytes by which a later version's struct may be longer */

#define ROW(name)                                       \
    {                                                   \
#name, sizeof(struct rdmux_##name), init_##name \
    }
#define CALL(name)                                  \
    static void init_##name(void *out, size_t size) \
    {                                               \
        rdmux_##name##_init(out, size);             \
    }

CALL(fabric_auth)
CALL(fabric_attr)
CALL(path_info)
CALL(cq_attr)
CALL(mr_attr)
CALL(remote_info)
CALL(ep_attr)
CALL(listen_attr)
CALL(peer)
CALL(ep_info)
CALL(ep_stats)
CALL(srq_attr)
CALL(cq_stats)
CALL(fabric_stats)

static const struct {
    const char *name;
    size_t size;
    void (*init)(void *out, size_t size);
} structs[] = {
    ROW(fabric_auth), ROW(fabric_attr), ROW(path_info),   ROW(cq_attr),      ROW(mr_attr),
    ROW(remote_info), ROW(ep_attr),     ROW(listen_attr), ROW(peer),         ROW(ep_info),
    ROW(ep_stats),    ROW(srq_attr),    ROW(cq_stats),    ROW(fabric_stats),
};

enum { STRUCTS = sizeof(structs) / sizeof(structs[0]) };

/* A struct of the caller, with a guard behind it. */
struct room {
    _Alignas(8) uint8_t bytes[2048];
};

/* Checks that the first `size` bytes hold `expected` and zeros, and that the rest is untouched. */
static void assert_initialised(const struct room *room, size_t size, size_t expected)
{
    uint32_t told;
    memcpy(&told, room->bytes, sizeof(told));
    assert_int_equal(told, expected);
    for (size_t i = sizeof(told); i < sizeof(room->bytes); i++) {
        assert_int_equal(room->bytes[i], i < size ? 0 : 0xa5);
    }
}

static void check(const size_t of, size_t size)
{
    struct room room;
    assert_true(size < sizeof(room.bytes));
    memset(&room, 0xa5, sizeof(room));
    structs[of].init(&room, size);
    assert_initialised(&room, size, size < structs[of].size ? size : structs[of].size);
}

static void a_struct_of_this_version_is_what_its_macro_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < STRUCTS; i++) {
        check(i, structs[i].size);
    }
    struct rdmux_ep_attr by_macro = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep_attr by_call;
    rdmux_ep_attr_init(&by_call, sizeof(by_call));
    assert_memory_equal(&by_call, &by_macro, sizeof(by_call));
}

static void an_earlier_program_keeps_its_own_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < STRUCTS; i++) {
        check(i, structs[i].size - sizeof(uint64_t));
        check(i, sizeof(uint32_t));
    }
}

static void a_later_program_gets_the_size_that_this_library_knows(void **state)
{
    (void)state;
    for (size_t i = 0; i < STRUCTS; i++) {
        check(i, structs[i].size + LATER);
    }
}

static void nothing_is_written_where_no_size_fits(void **state)
{
    (void)state;
    for (size_t i = 0; i < STRUCTS; i++) {
        struct room room;
        memset(&room, 0xa5, sizeof(room));
        structs[i].init(&room, sizeof(uint32_t) - 1);
        for (size_t at = 0; at < sizeof(room.bytes); at++) {
            assert_int_equal(room.bytes[at], 0xa5);
        }
        structs[i].init(NULL, structs[i].size);
    }
}

/* What an initialised struct asks for is what NULL asks for. */
static void the_library_takes_an_initialised_struct(void **state)
{
    (void)state;
    struct rdmux_fabric_attr attr;
    rdmux_fabric_attr_init(&attr, sizeof(attr));
    struct rdmux_fabric *fabric;
    assert_int_equal(rdmux_fabric_open(&attr, &fabric), RDMUX_OK);
    struct rdmux_cq_attr cq_attr;
    rdmux_cq_attr_init(&cq_attr, sizeof(cq_attr));
    struct rdmux_cq *cq;
    assert_int_equal(rdmux_cq_create(fabric, &cq_attr, &cq), RDMUX_OK);
    assert_int_equal(rdmux_cq_destroy(cq), RDMUX_OK);
    assert_int_equal(rdmux_fabric_close(fabric), RDMUX_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_struct_of_this_version_is_what_its_macro_says),
        cmocka_unit_test(an_earlier_program_keeps_its_own_size),
        cmocka_unit_test(a_later_program_gets_the_size_that_this_library_knows),
        cmocka_unit_test(nothing_is_written_where_no_size_fits),
        cmocka_unit_test(the_library_takes_an_initialised_struct),
    };
    return cmocka_run_group_tests_name("struct_init", tests, NULL, NULL);
}
