/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The provider's device self-test (verbs/verbs_self_test.c) on devices with and without faults. */
#include "support.h"

#include "verbs/verbs_self_test.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* A host with one device and its route to itself. */
struct port {
    struct sim_world *world;
    struct sim_device *adapter;
    struct ibv_context *context;
    struct ibv_device_attr device;
    struct verbs_self_test_way way;
};

static struct port port_make(const char *world, const char *device)
{
    struct port port = { .world = sim_world_create(world) };
    assert_non_null(port.world);
    struct sim_host *host = sim_host_add(port.world);
    assert_non_null(host);
    port.adapter = sim_device_add(host, device);
    assert_non_null(port.adapter);
    sim_use_host(host);
    struct ibv_device **list = ibv_get_device_list(NULL);
    assert_non_null(list);
    port.context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    assert_non_null(port.context);
    struct ibv_port_attr attr;
    assert_int_equal(ibv_query_device(port.context, &port.device), 0);
    assert_int_equal(ibv_query_port(port.context, 1, &attr), 0);
    port.way = (struct verbs_self_test_way){ .context = port.context,
                                             .address = { .port_num = 1, .dlid = attr.lid },
                                             .mtu = attr.active_mtu };
    if (attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
        port.way.address.is_global = 1;
        port.way.address.grh.hop_limit = 1;
        port.way.address.grh.sgid_index = 1; /* RoCE v2, as in support.c */
        assert_int_equal(ibv_query_gid(port.context, 1, 1, &port.way.address.grh.dgid), 0);
    }
    return port;
}

/* No object is left: the simulator counts them. */
static void port_end(struct port *port)
{
    assert_int_equal(ibv_close_device(port->context), 0);
    assert_int_equal(sim_world_destroy(port->world), 0);
}

static struct verbs_self_test run(struct port *port)
{
    struct verbs_self_test self_test;
    port->way.device = &port->device;
    rdmux_verbs_self_test_run(&port->way, &self_test);
    return self_test;
}

static struct verbs_self_test self_test_of(const char *world, const char *device)
{
    struct port port = port_make(world, device);
    struct verbs_self_test self_test = run(&port);
    port_end(&port);
    return self_test;
}

static void finds_nothing(const char *world, const char *device)
{
    struct verbs_self_test self_test = self_test_of(world, device);
    if (!self_test.is_complete || self_test.faults != 0 || self_test.skipped != 0 ||
        self_test.text[0] != '\0') {
        fail_msg("%s, %s: tried %d, faults 0x%x, skipped 0x%x: %s", world, device,
                 self_test.is_complete, self_test.faults, self_test.skipped, self_test.text);
    }
}

/* Finds exactly this fault, with its text. */
static void finds(const char *device, uint32_t fault, const char *why)
{
    struct verbs_self_test self_test = self_test_of("seed=1", device);
    assert_true(self_test.is_complete);
    assert_true(self_test.is_connected);
    assert_int_equal(self_test.faults, fault);
    assert_int_equal(self_test.skipped, 0);
    assert_string_equal(self_test.why[__builtin_ctz(fault)], why);
}

static void a_good_device_passes(void **state)
{
    (void)state;
    static const char *const worlds[] = { "seed=1", "seed=2,freedoms=all", "seed=3,freedoms=lazy",
                                          "seed=4,packet=100,latency=5us,jitter=3us" };
    static const char *const devices[] = {
        "link=ib",
        "link=roce",
        "link=ib,like=hca,atomics=glob",
        "link=roce,like=hca",
        "link=roce,like=hca,atomics=none",
        "link=ib,max_inline=0,max_rd_atomic=1,max_init_rd_atomic=1,max_sge=1,max_sge_rd=1,mtu=256",
        "link=roce,limits=smallest",
        "link=roce,stale=yes,reuse=yes,round_up=yes",
    };
    for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
        for (size_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++) {
            finds_nothing(worlds[w], devices[d]);
        }
    }
}

static void atomics_in_the_other_byte_order_are_noticed(void **state)
{
    (void)state;
    finds("link=roce,swapped=yes", VERBS_SELF_TEST_ATOMICS,
          "their results come in the other byte order");
    finds("link=ib,like=hca,atomics=glob,swapped=yes", VERBS_SELF_TEST_ATOMICS,
          "their results come in the other byte order");
    finds("link=roce,swapped=operands", VERBS_SELF_TEST_ATOMICS,
          "they leave another word than they should");
    finds_nothing("seed=1", "link=roce,atomics=none,swapped=yes"); /* they are not used */
}

static void immediate_data_that_does_not_work_is_noticed(void **state)
{
    (void)state;
    finds("link=roce,immediate=wrong", VERBS_SELF_TEST_IMM,
          "its notice has another number or length");
    finds("link=ib,immediate=no", VERBS_SELF_TEST_IMM,
          "the device does not take the request: Invalid argument");
}

static void inline_bytes_that_get_lost_are_noticed(void **state)
{
    (void)state;
    finds("link=roce,inline_right=no", VERBS_SELF_TEST_INLINE, "other bytes arrive than were sent");
    finds_nothing("seed=1", "link=roce,inline_right=no,max_inline=0");
}

static void a_key_asked_for_nothing_is_noticed(void **state)
{
    (void)state;
    finds("link=roce,nothing_needs_key=yes", VERBS_SELF_TEST_NOTHING, "remote access error");
    finds("link=ib,like=hca,nothing_needs_key=yes", VERBS_SELF_TEST_NOTHING, "remote access error");
}

/* After a fault that ended the connection the next experiments get a new one. */
static void each_of_several_faults_is_noticed(void **state)
{
    (void)state;
    struct verbs_self_test self_test = self_test_of(
        "seed=1", "link=roce,inline_right=no,immediate=no,swapped=yes,nothing_needs_key=yes");
    assert_int_equal(self_test.faults, VERBS_SELF_TEST_INLINE | VERBS_SELF_TEST_IMM |
                                           VERBS_SELF_TEST_ATOMICS | VERBS_SELF_TEST_NOTHING);
    assert_int_equal(self_test.skipped, 0);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A port that does not receive its own packets, a port that went down, and a device whose answers
 * take an hour. */
static void a_device_without_answer_costs_little_and_is_believed(void **state)
{
    (void)state;
    struct verbs_self_test self_test = self_test_of("time=real", "link=roce,loopback=no");
    assert_false(self_test.is_complete);
    assert_true(self_test.is_connected);
    assert_int_equal(self_test.faults, 0);
    assert_string_not_equal(self_test.text, "");

    struct port down = port_make("time=real", "link=roce");
    sim_port_set(down.adapter, false);
    self_test = run(&down);
    port_end(&down);
    assert_false(self_test.is_complete);
    assert_int_equal(self_test.faults, 0);

    uint64_t began_ms = now_ms();
    self_test = self_test_of("time=real,latency=3600s", "link=ib");
    uint64_t took_ms = now_ms() - began_ms;
    assert_false(self_test.is_complete);
    assert_int_equal(self_test.faults, 0);
    assert_string_equal(self_test.text, "no answer within 200 ms");
    assert_true(self_test.took_ns >= VERBS_SELF_TEST_TIME_MS * UINT64_C(1000000));
    assert_true(took_ms < 60000); /* even on a busy machine; the answer takes an hour */
}

/* Silence in the middle is no fault, nor are later operations. */
static void what_gets_no_answer_is_no_fault(void **state)
{
    (void)state;
    struct port port = port_make("seed=1", "link=roce,swapped=yes");
    assert_true(sim_fail_call(port.world, "poll_cq", 5, EIO)); /* two each for send and inline */
    struct verbs_self_test self_test = run(&port);
    port_end(&port);
    assert_true(self_test.is_complete);
    assert_int_equal(self_test.faults, 0);
    assert_int_equal(self_test.skipped, VERBS_SELF_TEST_IMM | VERBS_SELF_TEST_READ |
                                            VERBS_SELF_TEST_ATOMICS | VERBS_SELF_TEST_NOTHING);
    assert_string_equal(self_test.text, "the device left a request unanswered");

    /* The port goes down between the first experiment and the last. */
    self_test = self_test_of("latency=100us,step=10us,at=500us:port_down", "link=ib");
    assert_true(self_test.is_complete);
    assert_int_equal(self_test.faults, 0);
    assert_int_not_equal(self_test.skipped, 0);
}

/* Each call of the self-test that can fail: no fault is reported, no object is left. */
static void calls_that_fail_leave_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *call;
        uint64_t times;
    } calls[] = {
        { "alloc_pd", 1 },  { "create_cq", 1 }, { "reg_mr", 1 },
        { "modify_qp", 8 }, { "poll_cq", 1 },   { "post_recv", 1 },
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        for (uint64_t nth = 1; nth <= calls[i].times; nth++) {
            struct port port = port_make("time=real", "link=roce");
            assert_true(sim_fail_call(port.world, calls[i].call, nth, ENOMEM));
            struct verbs_self_test self_test = run(&port);
            assert_false(self_test.is_complete);
            assert_int_equal(self_test.faults, 0);
            assert_string_not_equal(self_test.text, "");
            port_end(&port);
        }
    }
}

static void what_was_found_is_remembered_for_that_device(void **state)
{
    (void)state;
    struct verbs_self_test found = { .is_connected = true, .faults = VERBS_SELF_TEST_ATOMICS };
    struct verbs_self_test out;
    assert_false(rdmux_verbs_self_test_recall("one", 17, &out));
    rdmux_verbs_self_test_keep("one", 17, &found);
    assert_true(rdmux_verbs_self_test_recall("one", 17, &out));
    assert_int_equal(out.faults, VERBS_SELF_TEST_ATOMICS);
    assert_false(rdmux_verbs_self_test_recall("one", 18, &out));
    assert_false(rdmux_verbs_self_test_recall("two", 17, &out));
    for (uint64_t guid = 100; guid < 200; guid++) {
        rdmux_verbs_self_test_keep("many", guid, &found); /* without room the result is dropped */
    }
    assert_true(rdmux_verbs_self_test_recall("many", 100, &out));
    assert_false(rdmux_verbs_self_test_recall("many", 199, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_device_passes),
        cmocka_unit_test(atomics_in_the_other_byte_order_are_noticed),
        cmocka_unit_test(immediate_data_that_does_not_work_is_noticed),
        cmocka_unit_test(inline_bytes_that_get_lost_are_noticed),
        cmocka_unit_test(a_key_asked_for_nothing_is_noticed),
        cmocka_unit_test(each_of_several_faults_is_noticed),
        cmocka_unit_test(a_device_without_answer_costs_little_and_is_believed),
        cmocka_unit_test(what_gets_no_answer_is_no_fault),
        cmocka_unit_test(calls_that_fail_leave_nothing),
        cmocka_unit_test(what_was_found_is_remembered_for_that_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
