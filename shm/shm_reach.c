/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Decides whether two processes can share memory: the same running kernel, the same namespaces, the
 * same user. */
#include "shm_reach.h"

#include "api/base/bytes.h"

#include <rdmux/provider.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Reach bytes; little-endian. Offset, size, field:
 *   0  1  version, 2                 40  8  user namespace
 *   1  7  zero, ignored              48  8  network namespace
 *   8 16  boot id                    56  4  uid
 *  24  8  pid namespace              60  3  pid, low 24 bits (a kernel has at most 2^22)
 *  32  8  ipc namespace              63  1  hints */
enum {
    REACH_AT_VERSION = 0,
    REACH_AT_BOOT_ID = 8,
    REACH_AT_PID_NAMESPACE = 24,
    REACH_AT_IPC_NAMESPACE = 32,
    REACH_AT_USER_NAMESPACE = 40,
    REACH_AT_NET_NAMESPACE = 48,
    REACH_AT_UID = 56,
    REACH_AT_PID = 60,
    REACH_AT_HINTS = 63,
    PID_BITS = 0xffffff,
    REACH_VERSION = 2, /* version 1 used abstract sockets, which other users can reach */
};
static_assert(REACH_AT_PID + 3 == REACH_AT_HINTS, "pid and hints share four bytes");
static_assert(REACH_AT_HINTS + 1 == SHM_REACH_SIZE, "hints end the reach bytes");
static_assert((int)SHM_REACH_SIZE <= (int)RDMUX_REACH_MAX, "they fit an offer");

enum { CAP_SYS_PTRACE_BIT = 19 }; /* linux/capability.h */

void rdmux_shm_reach_encode(const struct shm_reach *reach, uint8_t out[SHM_REACH_SIZE])
{
    memset(out, 0, SHM_REACH_SIZE);
    out[REACH_AT_VERSION] = REACH_VERSION;
    memcpy(out + REACH_AT_BOOT_ID, reach->boot_id, SHM_BOOT_ID_SIZE);
    rdmux_store_le64(out + REACH_AT_PID_NAMESPACE, reach->pid_namespace);
    rdmux_store_le64(out + REACH_AT_IPC_NAMESPACE, reach->ipc_namespace);
    rdmux_store_le64(out + REACH_AT_USER_NAMESPACE, reach->user_namespace);
    rdmux_store_le64(out + REACH_AT_NET_NAMESPACE, reach->net_namespace);
    rdmux_store_le32(out + REACH_AT_UID, reach->uid);
    rdmux_store_le32(out + REACH_AT_PID, reach->pid);
    out[REACH_AT_HINTS] = (uint8_t)reach->hints; /* in place of the pid's highest byte */
}

enum rdmux_status rdmux_shm_reach_decode(const uint8_t *in, size_t size, struct shm_reach *out)
{
    if (size < SHM_REACH_SIZE || in[REACH_AT_VERSION] != REACH_VERSION) {
        return RDMUX_PROTOCOL;
    }
    struct shm_reach reach = {
        .pid_namespace = rdmux_load_le64(in + REACH_AT_PID_NAMESPACE),
        .ipc_namespace = rdmux_load_le64(in + REACH_AT_IPC_NAMESPACE),
        .user_namespace = rdmux_load_le64(in + REACH_AT_USER_NAMESPACE),
        .net_namespace = rdmux_load_le64(in + REACH_AT_NET_NAMESPACE),
        .uid = rdmux_load_le32(in + REACH_AT_UID),
        .pid = rdmux_load_le32(in + REACH_AT_PID) & PID_BITS,
        .hints = in[REACH_AT_HINTS],
    };
    memcpy(reach.boot_id, in + REACH_AT_BOOT_ID, SHM_BOOT_ID_SIZE);
    *out = reach;
    return RDMUX_OK;
}

static enum rdmux_reason ids_differ(char *text, const char *what)
{
    (void)snprintf(text, RDMUX_TEXT_MAX, "the peer is on this host but has another %s", what);
    return RDMUX_REASON_OTHER_NAMESPACE;
}

enum rdmux_reason rdmux_shm_reach(const uint8_t *ours, size_t ours_length, const uint8_t *theirs,
                                  size_t theirs_length, char *text)
{
    struct shm_reach us;
    struct shm_reach them;
    if (rdmux_shm_reach_decode(ours, ours_length, &us) != RDMUX_OK ||
        rdmux_shm_reach_decode(theirs, theirs_length, &them) != RDMUX_OK) {
        (void)snprintf(text, RDMUX_TEXT_MAX,
                       "the peer's shm provider is of another version, which meets elsewhere");
        return RDMUX_REASON_NOT_REACHABLE;
    }
    if (memcmp(us.boot_id, them.boot_id, SHM_BOOT_ID_SIZE) != 0) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "the peer runs on another host (its boot id differs)");
        return RDMUX_REASON_OTHER_HOST;
    }
    if (us.user_namespace != them.user_namespace) {
        return ids_differ(text, "user namespace");
    }
    if (us.pid_namespace != them.pid_namespace) {
        return ids_differ(text, "pid namespace");
    }
    if (us.net_namespace != them.net_namespace) {
        return ids_differ(text, "network namespace");
    }
    if (us.ipc_namespace != them.ipc_namespace) {
        return ids_differ(text, "ipc namespace");
    }
    if (us.uid != them.uid) {
        (void)snprintf(text, RDMUX_TEXT_MAX, "the peer runs as user %u, this process as %u",
                       them.uid, us.uid);
        return RDMUX_REASON_OTHER_NAMESPACE;
    }
    return RDMUX_REASON_NONE;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return -1;
}

enum rdmux_status rdmux_shm_boot_id_parse(const char *text, uint8_t out[SHM_BOOT_ID_SIZE])
{
    uint8_t id[SHM_BOOT_ID_SIZE];
    size_t at = 0;
    for (size_t i = 0; i < SHM_BOOT_ID_SIZE; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            if (text[at] != '-') {
                return RDMUX_PROTOCOL;
            }
            at++;
        }
        int high = hex_digit(text[at]);
        int low = high < 0 ? -1 : hex_digit(text[at + 1]);
        if (low < 0) {
            return RDMUX_PROTOCOL;
        }
        id[i] = (uint8_t)(high * 16 + low);
        at += 2;
    }
    memcpy(out, id, SHM_BOOT_ID_SIZE);
    return RDMUX_OK;
}

/* Reads the beginning of a small file into out, NUL-terminated. False: there is no such file. */
static bool read_kernel_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t count = read(fd, out, size - 1);
    (void)close(fd);
    out[count < 0 ? 0 : count] = '\0';
    return count > 0;
}

static enum rdmux_status read_namespace(const char *name, uint64_t *out)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
    struct stat info;
    if (stat(path, &info) != 0) {
        rdmux_provider_error("shm: cannot tell the %s namespace: %s: errno %d; mount /proc", name,
                             path, errno);
        return RDMUX_UNSUPPORTED;
    }
    *out = info.st_ino;
    return RDMUX_OK;
}

/* Returns whether this process has CAP_SYS_PTRACE, to which Yama does not apply. */
static bool may_trace_anybody(void)
{
    char status[4096];
    if (!read_kernel_text("/proc/self/status", status, sizeof(status))) {
        return false;
    }
    const char *line = strstr(status, "\nCapEff:");
    return line != NULL &&
           (strtoull(line + strlen("\nCapEff:"), NULL, 16) >> CAP_SYS_PTRACE_BIT & 1) != 0;
}

static bool can_probably_copy(void)
{
    char scope[16];
    /* No file: no Yama. 0: the classic rule, same user. */
    return !read_kernel_text("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope)) ||
           strtol(scope, NULL, 10) == 0 || may_trace_anybody();
}

/* Reads the boot id of the running kernel. Keeps it, as every offer needs it. Takes no lock, which
 * a fork could leave taken. */
static bool read_boot_id(const char *path, uint8_t out[SHM_BOOT_ID_SIZE])
{
    enum { UNKNOWN, COMING, KNOWN };
    static _Atomic int state = UNKNOWN;
    static uint8_t known[SHM_BOOT_ID_SIZE];
    char text[64];
    int unknown = UNKNOWN;
    if (atomic_load_explicit(&state, memory_order_acquire) == KNOWN) {
        memcpy(out, known, SHM_BOOT_ID_SIZE);
        return true;
    }
    if (!read_kernel_text(path, text, sizeof(text)) ||
        rdmux_shm_boot_id_parse(text, out) != RDMUX_OK) {
        return false;
    }
    if (atomic_compare_exchange_strong(&state, &unknown, COMING)) {
        memcpy(known, out, SHM_BOOT_ID_SIZE);
        atomic_store_explicit(&state, KNOWN, memory_order_release);
    }
    return true;
}

static enum rdmux_status find_reach(struct shm_reach *out)
{
    static const char boot_id_path[] = "/proc/sys/kernel/random/boot_id";
    struct shm_reach reach = { .uid = (uint32_t)geteuid(), .pid = (uint32_t)getpid() };
    if (!read_boot_id(boot_id_path, reach.boot_id)) {
        rdmux_provider_error("shm: cannot tell this host by %s; mount /proc", boot_id_path);
        return RDMUX_UNSUPPORTED;
    }
    const struct {
        const char *name;
        uint64_t *inode;
    } namespaces[] = {
        { "pid", &reach.pid_namespace },
        { "ipc", &reach.ipc_namespace },
        { "user", &reach.user_namespace },
        { "net", &reach.net_namespace },
    };
    for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++) {
        enum rdmux_status status = read_namespace(namespaces[i].name, namespaces[i].inode);
        if (status != RDMUX_OK) {
            return status;
        }
    }
    reach.hints = can_probably_copy() ? SHM_HINT_CAN_COPY : 0;
    *out = reach;
    return RDMUX_OK;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* Many set-ups follow each other within moments, and each has an offer. The kernel is asked ten
 * times a second: it takes six system calls below /proc. */
enum rdmux_status rdmux_shm_reach_of_this_process(struct shm_reach *out)
{
    enum { FRESH_NS = 100 * 1000 * 1000 };
    static _Thread_local struct shm_reach last;
    static _Thread_local uint64_t asked_ns; /* 0: never */
    uint64_t now = now_ns();
    if (asked_ns == 0 || now - asked_ns >= FRESH_NS || last.pid != (uint32_t)getpid() ||
        last.uid != (uint32_t)geteuid()) {
        enum rdmux_status status = find_reach(&last);
        if (status != RDMUX_OK) {
            asked_ns = 0;
            return status;
        }
        asked_ns = now;
    }
    *out = last;
    return RDMUX_OK;
}
