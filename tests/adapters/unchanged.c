/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * unchanged PROVIDER: opens a fabric that asks for the provider, lists its paths, which loads the
 * library below, and closes the fabric. Then dispositions of signals, environment, the code of libc
 * and the threads have to be what they were (rule 11.6). Prints what differs, and ends with 1 then;
 * with 77 if the provider has no usable path here.
 */
#include <rdmux/rdmux.h>

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* The C library sets it with each disposition that it installs, the default one, too; it says where
 * a handler returns to. */
enum { RESTORER = 0x04000000 };

struct process {
    struct sigaction signals[NSIG];
    char *environment; /* all strings, each with its NUL */
    size_t environment_size;
    uint64_t libc;
    size_t libc_size;
    unsigned threads;
};

static void take_signals(struct process *out)
{
    memset(out->signals, 0, sizeof(out->signals));
    for (int signal = 1; signal < NSIG; signal++) {
        (void)sigaction(signal, NULL, &out->signals[signal]);
    }
}

static void take_environment(struct process *out)
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
static void take_libc(struct process *out)
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

static void take_threads(struct process *out)
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

static void take(struct process *out)
{
    take_signals(out);
    take_environment(out);
    take_libc(out);
    take_threads(out);
}

static unsigned compare(const struct process *before, const struct process *after)
{
    unsigned differences = 0;
    for (int signal = 1; signal < NSIG; signal++) {
        if (before->signals[signal].sa_sigaction != after->signals[signal].sa_sigaction ||
            ((before->signals[signal].sa_flags ^ after->signals[signal].sa_flags) & ~RESTORER) !=
                0) {
            printf("the disposition of signal %d has changed\n", signal);
            differences++;
        }
    }
    if (before->environment_size != after->environment_size ||
        memcmp(before->environment, after->environment, before->environment_size) != 0) {
        printf("the environment has changed\n");
        differences++;
    }
    if (before->libc_size == 0 || before->libc_size != after->libc_size ||
        before->libc != after->libc) {
        printf("the code of libc has changed, or was not found\n");
        differences++;
    }
    if (before->threads != after->threads) {
        printf("%u threads have become %u\n", before->threads, after->threads);
        differences++;
    }
    return differences;
}

/* Returns whether the provider has a usable path. */
static bool load(const char *provider)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    static struct rdmux_path_info paths[64];
    size_t count = 0;
    bool is_usable = false;
    attr.paths = provider;
    attr.flags = RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD;
    for (size_t i = 0; i < 64; i++) {
        paths[i] = (struct rdmux_path_info)RDMUX_PATH_INFO_INIT;
    }
    if (rdmux_fabric_open(&attr, &fabric) != RDMUX_OK ||
        rdmux_fabric_paths(fabric, paths, 64, &count) != RDMUX_OK) {
        printf("%s\n", rdmux_last_error());
        exit(2);
    }
    for (size_t i = 0; i < count && i < 64; i++) {
        is_usable = is_usable || (strcmp(paths[i].provider, provider) == 0 &&
                                  paths[i].reason == RDMUX_REASON_USABLE);
    }
    if (rdmux_fabric_close(fabric) != RDMUX_OK) {
        printf("%s\n", rdmux_last_error());
        exit(2);
    }
    return is_usable;
}

int main(int argc, char **argv)
{
    static struct process before;
    static struct process after;
    if (argc != 2) {
        fprintf(stderr, "usage: unchanged PROVIDER\n");
        return 2;
    }
    take(&before);
    if (!load(argv[1])) {
        printf("%s has no usable path here\n", argv[1]);
        return 77;
    }
    take(&after);
    unsigned differences = compare(&before, &after);
    free(before.environment);
    free(after.environment);
    return differences == 0 ? 0 : 1;
}
