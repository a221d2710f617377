/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The file by which a fabric shows the counts of its endpoints to the processes of its user
 * (RDMUX_FABRIC_SHARE_STATS), and its place. In host byte order: it never leaves the machine. A new
 * file replaces the old one by rename(2), so a reader sees a whole one and keeps nobody waiting. */
#ifndef RDMUX_API_BASE_STATS_LAYOUT_H
#define RDMUX_API_BASE_STATS_LAYOUT_H

#include <rdmux/rdmux.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The last character is the version: any change of the structs below changes it. */
#define RDMUX_STATS_MAGIC "rdmuxST1"
#define RDMUX_STATS_SUFFIX ".stats"

enum {
    RDMUX_STATS_ENDPOINTS_MAX = 1024, /* endpoints in a file; the others are a number */
    RDMUX_STATS_COMMAND_MAX = 32,
    RDMUX_STATS_FOLDER_MAX = 256, /* bytes of the folder's path, with its NUL */
};

struct rdmux_stats_header {
    char magic[8];
    uint32_t count;    /* entries behind the header */
    uint32_t left_out; /* endpoints without an entry */
    int32_t pid;
    uint32_t spare;
    uint64_t start_ticks; /* of the process: field 22 of /proc/PID/stat */
    uint64_t pid_space;   /* inode of the process's pid namespace */
    uint64_t written_ns;  /* CLOCK_MONOTONIC */
    char command[RDMUX_STATS_COMMAND_MAX];
};

struct rdmux_stats_entry {
    uint64_t endpoint; /* its number in its fabric */
    uint32_t state;    /* enum rdmux_ep_state */
    uint32_t epoch;
    uint32_t counted; /* RDMUX_COUNTED_* */
    uint32_t security;
    uint64_t requests; /* sends, writes, reads and atomics */
    uint64_t receives;
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t again;
    uint64_t moves;
    uint64_t retransmissions;
    uint64_t ecn_marks;
    uint64_t credits;
    uint64_t system_calls;
    char provider[RDMUX_NAME_MAX];
    char device[RDMUX_NAME_MAX];
    char peer_address[RDMUX_ADDRESS_MAX];
};

/* Writes the path of the folder of this user's files. runtime: XDG_RUNTIME_DIR; NULL: not set. */
static inline void rdmux_stats_folder(const char *runtime, char out[RDMUX_STATS_FOLDER_MAX])
{
    char standard[64];
    struct stat info;
    (void)snprintf(standard, sizeof(standard), "/run/user/%u", (unsigned)geteuid());
    if (runtime != NULL && runtime[0] == '/' && strlen(runtime) < RDMUX_STATS_FOLDER_MAX - 16) {
        (void)snprintf(out, RDMUX_STATS_FOLDER_MAX, "%s/rdmux", runtime);
    } else if (stat(standard, &info) == 0 && info.st_uid == geteuid()) {
        (void)snprintf(out, RDMUX_STATS_FOLDER_MAX, "%s/rdmux", standard);
    } else {
        (void)snprintf(out, RDMUX_STATS_FOLDER_MAX, "/tmp/rdmux-%u", (unsigned)geteuid());
    }
}

/* Returns when a process began, in clock ticks since the boot; 0: there is no such process. */
static inline uint64_t rdmux_stats_start_of(int32_t pid)
{
    char path[32];
    char text[1024];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    size_t size = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[size] = '\0';
    /* field 2, the command's name, may have any character */
    char *at = strrchr(text, ')');
    unsigned long long ticks = 0;
    if (at == NULL || sscanf(at + 1,
                             " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
                             "%*d %*d %*d %*d %llu",
                             &ticks) != 1) {
        return 0;
    }
    return ticks;
}

/* Returns the inode of this process's pid namespace; 0: not known. */
static inline uint64_t rdmux_stats_pid_space(void)
{
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? (uint64_t)info.st_ino : 0;
}

#endif
