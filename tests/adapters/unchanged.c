/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * unchanged PROVIDER: opens a fabric that asks for the provider, which loads the library below, and
 * sends a message from one endpoint of the process to another over it. Meanwhile the dispositions of
 * signals, the environment and the code of libc have to be what they were (rule 11.6), and each
 * thread that was added has to have all signals blocked. After the end the number of threads has to
 * be what it was, too. Prints what differs, and ends with 1 then; with 77 if the provider has no
 * usable path here.
 */
#include <rdmux/rdmux.h>

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* The C library sets it with each disposition that it installs, the default one, too; it says where
 * a handler returns to. */
enum { RESTORER = 0x04000000 };

enum { PATHS_MAX = 64, MESSAGE_SIZE = 100000, TIME_LIMIT_S = 60 };

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

static unsigned compare(const struct process *before, const struct process *after, const char *when)
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
static unsigned count_takers(void)
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

static void must(enum rdmux_status status)
{
    if (status != RDMUX_OK) {
        printf("%s: %s\n", rdmux_status_name(status), rdmux_last_error());
        exit(2);
    }
}

static bool has_path(struct rdmux_fabric *fabric, const char *provider)
{
    static struct rdmux_path_info paths[PATHS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < PATHS_MAX; i++) {
        paths[i] = (struct rdmux_path_info)RDMUX_PATH_INFO_INIT;
    }
    must(rdmux_fabric_paths(fabric, paths, PATHS_MAX, &count));
    for (size_t i = 0; i < count && i < PATHS_MAX; i++) {
        if (strcmp(paths[i].provider, provider) == 0) {
            printf("%s: %s %s\n", provider, paths[i].text, paths[i].hint);
            if (paths[i].reason == RDMUX_REASON_USABLE) {
                return true;
            }
        }
    }
    return false;
}

/* Both sides of a connection. */
struct pair {
    struct rdmux_fabric *fabric;
    struct rdmux_listener *listener;
    struct rdmux_cq *cqs[2];
    struct rdmux_ep *eps[2];
};

static void connect_pair(struct pair *pair)
{
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_wc entry = { 0 };
    must(rdmux_listen(pair->fabric, "127.0.0.1:0", NULL, &pair->listener));
    must(rdmux_listener_address(pair->listener, address, sizeof(address)));
    must(rdmux_cq_create(pair->fabric, NULL, &pair->cqs[0]));
    must(rdmux_cq_create(pair->fabric, NULL, &pair->cqs[1]));
    enum rdmux_status status = rdmux_connect(pair->fabric, pair->cqs[0], address, NULL, 0,
                                             &pair->eps[0]);
    must(status == RDMUX_IN_PROGRESS ? RDMUX_OK : status);
    while (pair->eps[1] == NULL || entry.opcode != RDMUX_WC_CONNECTED) {
        (void)rdmux_cq_poll(pair->cqs[0], &entry, 1);
        must(entry.opcode == RDMUX_WC_CONNECTED ? (enum rdmux_status)entry.status : RDMUX_OK);
        if (pair->eps[1] == NULL) {
            status = rdmux_accept(pair->listener, pair->cqs[1], NULL, 0, &pair->eps[1]);
            must(status == RDMUX_AGAIN ? RDMUX_OK : status);
        } else {
            (void)rdmux_cq_poll(pair->cqs[1], NULL, 0);
        }
    }
}

static void send_message(struct pair *pair)
{
    static uint8_t out[MESSAGE_SIZE];
    static uint8_t in[MESSAGE_SIZE];
    for (size_t i = 0; i < MESSAGE_SIZE; i++) {
        out[i] = (uint8_t)(i * 7 + i / 256);
    }
    must(rdmux_recv(pair->eps[1], in, MESSAGE_SIZE, NULL, NULL));
    must(rdmux_send(pair->eps[0], out, MESSAGE_SIZE, NULL, NULL, 0));
    for (size_t done = 0; done < 2;) {
        for (size_t i = 0; i < 2; i++) {
            struct rdmux_wc entry = { 0 };
            if (rdmux_cq_poll(pair->cqs[i], &entry, 1) > 0) {
                must((enum rdmux_status)entry.status);
                done++;
            }
        }
    }
    if (memcmp(in, out, MESSAGE_SIZE) != 0) {
        printf("the message has changed on its way\n");
        exit(2);
    }
}

static void close_pair(struct pair *pair)
{
    must(rdmux_ep_close(pair->eps[0]));
    must(rdmux_ep_close(pair->eps[1]));
    rdmux_listener_close(pair->listener);
    must(rdmux_cq_destroy(pair->cqs[0]));
    must(rdmux_cq_destroy(pair->cqs[1]));
    must(rdmux_fabric_close(pair->fabric));
}

int main(int argc, char **argv)
{
    static struct process before;
    static struct process during;
    static struct process after;
    static struct pair pair;
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    if (argc != 2) {
        fprintf(stderr, "usage: unchanged PROVIDER\n");
        return 2;
    }
    (void)alarm(TIME_LIMIT_S);
    take(&before);
    attr.paths = argv[1];
    must(rdmux_fabric_open(&attr, &pair.fabric));
    if (!has_path(pair.fabric, argv[1])) {
        return 77;
    }
    connect_pair(&pair);
    send_message(&pair);
    take(&during);
    unsigned differences = compare(&before, &during, "at work");
    const unsigned takers = count_takers();
    if (takers > 0) {
        printf("%u threads take signals of the program\n", takers);
        differences++;
    }
    close_pair(&pair);
    take(&after);
    differences += compare(&before, &after, "afterwards");
    if (before.threads != after.threads) {
        printf("%u threads have become %u\n", before.threads, after.threads);
        differences++;
    }
    free(before.environment);
    free(during.environment);
    free(after.environment);
    return differences == 0 ? 0 : 1;
}
