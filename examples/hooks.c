/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Hooks: the program supplies the memory, the clock, the random bytes and the threads' start of a
 * fabric, and receives its log. The program sends itself a message and reports what the library
 * asked for.
 *
 * Any thread of the library may call a hook, several at once, so the counters are atomic. A hook
 * must not call rdmux.
 */
#include <rdmux/rdmux.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { WAIT_MS = 10000 };

static const char
    usage[] = "usage: hooks run [BYTES]\n"
              "Sends itself a message. BYTES: the most memory that the library gets.\n";

/* What the library has used. One struct for all hooks of a fabric; a program with several fabrics
 * has one for each. */
struct used {
    size_t memory_max;
    atomic_size_t memory; /* bytes that are allocated now */
    atomic_ulong allocations;
    atomic_ulong clock_reads;
    atomic_ulong random_bytes;
    atomic_ulong lines;
    atomic_ulong threads;
    uint64_t start_ns; /* this program's clock begins with 1 s at its start */
};

/* ------------------------------------------------------------------------------------- the hooks */

/* In front of each allocation. It is as long as the strictest alignment. */
union block {
    size_t size;
    max_align_t aligned;
};

static void *allocate(void *user, size_t size)
{
    struct used *used = user;
    size_t before = atomic_fetch_add(&used->memory, size);
    union block *block = NULL;
    if (size <= used->memory_max && before <= used->memory_max - size) {
        block = malloc(sizeof(*block) + size);
    }
    if (block == NULL) {
        atomic_fetch_sub(&used->memory, size);
        return NULL; /* the call of rdmux fails with RDMUX_NO_MEMORY */
    }
    block->size = size;
    atomic_fetch_add(&used->allocations, 1);
    return block + 1;
}

static void release(void *user, void *memory)
{
    struct used *used = user;
    if (memory != NULL) {
        union block *block = (union block *)memory - 1;
        atomic_fetch_sub(&used->memory, block->size);
        free(block);
    }
}

static uint64_t system_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* It never goes back, and advances as real time does: timeouts are measured with it. */
static uint64_t clock_ns(void *user)
{
    struct used *used = user;
    atomic_fetch_add(&used->clock_reads, 1);
    return system_ns() - used->start_ns + 1000000000;
}

/* Tokens and secrets are made of these bytes, so nobody may be able to guess them. */
static int random_bytes(void *user, void *out, size_t size)
{
    struct used *used = user;
    unsigned char *next = out;
    atomic_fetch_add(&used->random_bytes, size);
    while (size > 0) {
        ssize_t got = getrandom(next, size, 0);
        if (got < 0 && errno != EINTR) {
            return -1;
        }
        next += got > 0 ? got : 0;
        size -= got > 0 ? (size_t)got : 0;
    }
    return 0;
}

static void log_line(void *user, enum rdmux_log_level level, const char *line)
{
    struct used *used = user;
    atomic_fetch_add(&used->lines, 1);
    fprintf(stderr, "hooks: log: level %d: %s\n", (int)level, line);
}

/* A program may choose the thread's processors, its priority and its name here. */
static int thread_start(void *user, const char *name)
{
    struct used *used = user;
    atomic_fetch_add(&used->threads, 1);
    fprintf(stderr, "hooks: thread %s starts\n", name);
    return 0;
}

/* ------------------------------------------------------------------------------------ the message */

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fprintf(stderr, "hooks: %s: %s %s\n", what, rdmux_status_name(status), rdmux_last_error());
        exit(1);
    }
}

static struct rdmux_wc next_entry(struct rdmux_cq *cq)
{
    struct rdmux_wc wc;
    size_t count = 0;
    must(rdmux_cq_wait(cq, &wc, 1, WAIT_MS, &count), "wait");
    must((enum rdmux_status)wc.status, rdmux_wc_opcode_name(wc.opcode));
    return wc;
}

static void send_to_self(struct rdmux_fabric *fabric)
{
    static const char text[] = "a message";
    char got[sizeof(text)] = "";
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_cq *cq;
    struct rdmux_listener *listener;
    struct rdmux_ep *from;
    struct rdmux_ep *to;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    must(rdmux_cq_create(fabric, NULL, &cq), "create a cq");
    must(rdmux_listen(fabric, "127.0.0.1:0", NULL, &listener), "listen");
    must(rdmux_listener_address(listener, address, sizeof(address)), "address");
    enum rdmux_status status = rdmux_connect(fabric, cq, address, NULL, 0, &from);
    if (status != RDMUX_IN_PROGRESS) {
        must(status, "connect");
    }
    must(rdmux_accept(listener, cq, NULL, WAIT_MS, &to), "accept");
    if (status == RDMUX_IN_PROGRESS) {
        (void)next_entry(cq); /* RDMUX_WC_CONNECTED */
    }
    must(rdmux_recv(to, got, sizeof(got), NULL, NULL), "receive");
    must(rdmux_send(from, text, sizeof(text), NULL, NULL, 0), "send");
    (void)next_entry(cq);
    (void)next_entry(cq);
    must(rdmux_ep_info(from, &info), "info");
    printf("%s over %s\n", got, info.provider);
    must(rdmux_ep_close(from), "close");
    must(rdmux_ep_close(to), "close");
    rdmux_listener_close(listener);
    must(rdmux_cq_destroy(cq), "destroy the cq");
}

int main(int argc, char **argv)
{
    struct used used = { .memory_max = SIZE_MAX, .start_ns = system_ns() };
    char *end = NULL;
    bool is_limited = argc == 3;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (is_limited) {
        used.memory_max = (size_t)strtoull(argv[2], &end, 10);
    }
    if (argc < 2 || argc > 3 || strcmp(argv[1], "run") != 0 ||
        (is_limited && (*end != '\0' || used.memory_max == 0))) {
        fputs(usage, stderr);
        return 2;
    }
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.allocate = allocate;
    attr.release = release;
    attr.allocate_user = &used;
    attr.clock_ns = clock_ns;
    attr.clock_user = &used;
    attr.random = random_bytes;
    attr.random_user = &used;
    attr.log = log_line;
    attr.log_user = &used;
    attr.log_level = RDMUX_LOG_INFO;
    attr.thread_start = thread_start;
    attr.thread_user = &used;
    struct rdmux_fabric *fabric;
    must(rdmux_fabric_open(&attr, &fabric), "open the fabric");
    send_to_self(fabric);
    must(rdmux_fabric_close(fabric), "close the fabric");
    printf("%lu allocations, %zu bytes left\n", atomic_load(&used.allocations),
           atomic_load(&used.memory));
    printf("%lu threads, %lu reads of the clock, %lu random bytes, %lu lines of log\n",
           atomic_load(&used.threads), atomic_load(&used.clock_reads),
           atomic_load(&used.random_bytes), atomic_load(&used.lines));
    return atomic_load(&used.memory) == 0 ? 0 : 1;
}
