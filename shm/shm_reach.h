/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Reach bytes of an offer. Two processes compare them to find out whether they can share memory. */
#ifndef RDMUX_SHM_REACH_H
#define RDMUX_SHM_REACH_H

#include <rdmux/rdmux.h>

#include <stddef.h>
#include <stdint.h>

enum {
    SHM_BOOT_ID_SIZE = 16,
    SHM_REACH_SIZE = 64,
};

/* shm_reach.hints: likely, not decisive; the endpoint tests each */
enum {
    SHM_HINT_CAN_COPY = 1 << 0
}; /* nothing is known to forbid process_vm_readv between processes of the user */

struct shm_reach {
    uint8_t boot_id[SHM_BOOT_ID_SIZE]; /* of the running kernel; identifies the host */
    uint64_t pid_namespace;            /* inodes */
    uint64_t ipc_namespace;
    uint64_t user_namespace;
    uint64_t net_namespace;
    uint32_t uid; /* effective */
    uint32_t pid;
    uint32_t hints;
};

/* Gets the reach of this process. RDMUX_UNSUPPORTED, with rdmux_provider_error(): /proc lacks a
 * file. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_reach_of_this_process(struct shm_reach *out);

void rdmux_shm_reach_encode(const struct shm_reach *reach, uint8_t out[SHM_REACH_SIZE]);
/* RDMUX_PROTOCOL: not reach bytes of this version. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_reach_decode(const uint8_t *in, size_t size,
                                                          struct shm_reach *out);

/* rdmux_provider_ops.reach */
enum rdmux_reason rdmux_shm_reach(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                  size_t theirs_length, char *text);

/* Parses "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx". RDMUX_PROTOCOL: the text has another form. */
RDMUX_MUST_CHECK enum rdmux_status rdmux_shm_boot_id_parse(const char *text,
                                                           uint8_t out[SHM_BOOT_ID_SIZE]);

#endif
