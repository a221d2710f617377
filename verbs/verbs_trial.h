/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What no flag of a device tells is tried: two queue pairs of one port, connected to each other, send,
 * write, read and do atomics on a page of their own. Needs libibverbs alone.
 */
#ifndef RDMUX_VERBS_TRIAL_H
#define RDMUX_VERBS_TRIAL_H

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stdint.h>

enum {
    VERBS_TRIAL_TIME_MS = 200, /* a device that gives no answer costs so much */
    VERBS_TRIAL_TEXT_MAX = 96,
    VERBS_TRIAL_FAULTS = 5,
};

/* What a device does otherwise than the InfiniBand specification says. */
enum verbs_trial_fault {
    VERBS_TRIAL_INLINE = 1 << 0,  /* inline sends of the length that was granted */
    VERBS_TRIAL_IMM = 1 << 1,     /* writes with immediate data */
    VERBS_TRIAL_READ = 1 << 2,    /* reads, and that bytes written before a read are in place */
    VERBS_TRIAL_NOTHING = 1 << 3, /* writes and reads of no bytes, without a key */
    VERBS_TRIAL_ATOMICS = 1 << 4, /* atomics and the byte order of their results */
};

/* A port and its way to itself. */
struct verbs_trial_way {
    struct ibv_context *context;
    const struct ibv_device_attr *device;
    struct ibv_ah_attr address; /* port_num is the port */
    uint16_t pkey_index;
    enum ibv_mtu mtu;
};

struct verbs_trial {
    bool is_settled; /* another trial would find the same; false: there was no pair to try with */
    bool is_tried; /* a send and a write arrived: what else did not work is the operation's fault */
    uint32_t faults;  /* enum verbs_trial_fault */
    uint32_t skipped; /* of these, without an answer in time, or not looked at because of one */
    uint64_t took_ns;
    char text[VERBS_TRIAL_TEXT_MAX]; /* why nothing was tried, or not all; "" else */
    char why[VERBS_TRIAL_FAULTS][VERBS_TRIAL_TEXT_MAX]; /* of each fault, by its bit */
};

/* Leaves nothing on the device. Whatever goes wrong is told in *out. [may sleep] */
void rdmux_verbs_trial_run(const struct verbs_trial_way *way, struct verbs_trial *out);

/* What a trial of that device found in this process; false: nothing is known. Without room nothing is
 * kept, and each look at the device tries it again. Any thread, and after a fork. */
bool rdmux_verbs_trial_recall(const char *device, uint64_t guid, struct verbs_trial *out);
void rdmux_verbs_trial_keep(const char *device, uint64_t guid, const struct verbs_trial *trial);

#endif
