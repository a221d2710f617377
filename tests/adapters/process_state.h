/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What loading a library may change in a process: dispositions of signals, the environment, the code
 * of libc, threads (rule 11.6). */
#ifndef RDMUX_TESTS_ADAPTERS_PROCESS_STATE_H
#define RDMUX_TESTS_ADAPTERS_PROCESS_STATE_H

#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The C library sets it with each disposition that it installs, the default one, too; it says where
 * a handler returns to. */
enum { RESTORER = 0x04000000 };

struct process_state {
    struct sigaction signals[NSIG];
    char *environment; /* all strings, each with its NUL */
    size_t environment_size;
    uint64_t libc;
    size_t libc_size;
    unsigned threads;
};

static inline void process_state_take_signals(struct process_state *out)
{
    memset(out->signals, 0, sizeof(out->signals));
    for (int signal = 1; signal < NSIG; signal++) {
        (void)sigaction(signal, NULL, &out->signals[signal]);
    }
}

static inline void process_state_take_environment(struct process_state *out)
{
    out->environment = NULL;
    out->environment_size = 0;
    for (char **at = environ; *at != NULL; at++) {
        size_t size = strlen(*at) + 1;
        char *more = realloc(out->environment, out->environment_size + size);
        if (more == NULL) {
            exit(2);
        }
        out->environment = more;
        memcpy(out->environment + out->environment_size, *at, size);
        out->environment_size += size;
    }
}

/* A sum (FNV-1a) of the bytes of libc that can be executed. */
static inline void process_state_take_libc(struct process_state *out)
{
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    out->libc = UINT64_C(14695981039346656037);
    out->libc_size = 0;
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        unsigned long long from = 0;
        unsigned long long to = 0;
        char rights[5] = "";
        if (strstr(line, "/libc.so.6") == NULL ||
            sscanf(line, "%llx-%llx %4s", &from, &to, rights) != 3 || rights[2] != 'x') {
            continue;
        }
        for (const uint8_t *at = (const uint8_t *)(uintptr_t)from;
             at < (const uint8_t *)(uintptr_t)to; at++) {
            out->libc = (out->libc ^ *at) * UINT64_C(1099511628211);
        }
        out->libc_size += (size_t)(to - from);
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
}

static inline void process_state_take_threads(struct process_state *out)
{
    DIR *tasks = opendir("/proc/self/task");
    out->threads = 0;
    for (struct dirent *entry; tasks != NULL && (entry = readdir(tasks)) != NULL;) {
        out->threads += entry->d_name[0] != '.';
    }
    if (tasks != NULL) {
        (void)closedir(tasks);
    }
}

/* The caller frees out->environment. */
static inline void process_state_take(struct process_state *out)
{
    process_state_take_signals(out);
    process_state_take_environment(out);
    process_state_take_libc(out);
    process_state_take_threads(out);
}

/* Prints what differs, and returns the number of differences. */
static inline unsigned process_state_compare(const struct process_state *before,
                                             const struct process_state *after, const char *when)
{
    unsigned differences = 0;
    for (int signal = 1; signal < NSIG; signal++) {
        if (before->signals[signal].sa_sigaction != after->signals[signal].sa_sigaction ||
            ((before->signals[signal].sa_flags ^ after->signals[signal].sa_flags) & ~RESTORER) !=
                0) {
            printf("%s: the disposition of signal %d has changed\n", when, signal);
            differences++;
        }
    }
    if (before->environment_size != after->environment_size ||
        memcmp(before->environment, after->environment, before->environment_size) != 0) {
        printf("%s: the environment has changed\n", when);
        differences++;
    }
    if (before->libc_size == 0 || before->libc_size != after->libc_size ||
        before->libc != after->libc) {
        printf("%s: the code of libc has changed, or was not found\n", when);
        differences++;
    }
    return differences;
}

/* Counts the threads, other than this one, that take signals of the program. */
static inline unsigned process_state_count_takers(void)
{
    const unsigned long long own = /* of the C library, and those that nobody blocks */
        1ULL << (SIGKILL - 1) | 1ULL << (SIGSTOP - 1) | 1ULL << (32 - 1) | 1ULL << (33 - 1);
    unsigned takers = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; tasks != NULL && (entry = readdir(tasks)) != NULL;) {
        char path[300];
        char line[256];
        unsigned long long blocked = 0;
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == (int)getpid()) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *status = fopen(path, "r");
        while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
            (void)sscanf(line, "SigBlk: %llx", &blocked);
        }
        if (status != NULL) {
            (void)fclose(status);
            takers += (blocked | own) != ~0ULL;
        }
    }
    if (tasks != NULL) {
        (void)closedir(tasks);
    }
    return takers;
}

#endif
