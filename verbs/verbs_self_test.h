/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Device self-test: finds faults that no flag of a device reports. Two queue pairs of one port,
 * connected to each other, send, write, read and do atomics on a page of their own. Needs
 * libibverbs alone.
 */
#ifndef RDMUX_VERBS_SELF_TEST_H
#define RDMUX_VERBS_SELF_TEST_H

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    VERBS_SELF_TEST_TIME_MS = 200, /* time spent on a device that gives no answer */
    VERBS_SELF_TEST_TEXT_MAX = 96,
    VERBS_SELF_TEST_FAULTS = 5,
};

/* Operations in which a device deviates from the InfiniBand specification. */
enum verbs_self_test_fault {
    VERBS_SELF_TEST_INLINE = 1 << 0,  /* inline sends of the length that was granted */
    VERBS_SELF_TEST_IMM = 1 << 1,     /* writes with immediate data */
    VERBS_SELF_TEST_READ = 1 << 2,    /* reads; bytes written before a read are in place */
    VERBS_SELF_TEST_NOTHING = 1 << 3, /* zero-length writes and reads, without a key */
    VERBS_SELF_TEST_ATOMICS = 1 << 4, /* atomics and the byte order of their results */
};

/* A port and the route to itself. */
struct verbs_self_test_way {
    struct ibv_context *context;
    const struct ibv_device_attr *device;
    struct ibv_ah_attr address; /* port_num is the port */
    uint16_t pkey_index;
    enum ibv_mtu mtu;
};

struct verbs_self_test {
    /* another test would find the same; false: no queue pairs or no connection to test with */
    bool is_connected;
    bool is_complete; /* a send and a write arrived; other failures are the operation's fault */
    uint32_t faults;  /* enum verbs_self_test_fault */
    uint32_t skipped; /* operations without an answer in time, or skipped after one */
    uint64_t took_ns;
    char text[VERBS_SELF_TEST_TEXT_MAX]; /* why nothing, or not everything, was tested; else "" */
    char why[VERBS_SELF_TEST_FAULTS][VERBS_SELF_TEST_TEXT_MAX]; /* reason of each fault, by its bit */
};

/* Runs the test and leaves nothing on the device. Errors are reported in *out. [may sleep] */
void rdmux_verbs_self_test_run(const struct verbs_self_test_way *way, struct verbs_self_test *out);

/* Return and store the result of a device's test in this process. Recall returns false if there is
 * none. When the table is full nothing is stored, and the device is tested again at each probe. Any
 * thread, and after a fork. */
bool rdmux_verbs_self_test_recall(const char *device, uint64_t guid, struct verbs_self_test *out);
void rdmux_verbs_self_test_keep(const char *device, uint64_t guid,
                                const struct verbs_self_test *self_test);

#endif
