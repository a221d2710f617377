/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * unchanged PROVIDER: opens a fabric that asks for the provider, which loads the library below, and
 * exchanges a message with another process over it. Meanwhile the dispositions of
 * signals, the environment and the code of libc have to be what they were (rule 11.6), and each
 * thread that was added has to have all signals blocked. After the end the number of threads has to
 * be what it was, too. Prints what differs, and ends with 1 then; with 77 if the provider has no
 * usable path here.
 */
#include "process_state.h"

#include <rdmux/rdmux.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATHS_MAX = 64, MESSAGE_SIZE = 100000, TIME_LIMIT_S = 60 };

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

/* One side of a connection. */
struct side {
    struct rdmux_fabric *fabric;
    struct rdmux_listener *listener;
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
};

static struct rdmux_fabric *open_fabric(const char *provider)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    attr.paths = provider;
    must(rdmux_fabric_open(&attr, &fabric));
    return fabric;
}

/* Waits for the next entry; a failed one ends the process. */
static void take_entry(struct side *side)
{
    struct rdmux_wc entry = { 0 };
    size_t count = 0;
    must(rdmux_cq_wait(side->cq, &entry, 1, TIME_LIMIT_S * 1000, &count));
    must((enum rdmux_status)entry.status);
}

/* On a busy machine a set-up may take as long as all else. */
static struct rdmux_ep_attr patient(void)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.path_timeout_ms = TIME_LIMIT_S * 1000;
    attr.setup_timeout_ms = TIME_LIMIT_S * 1000;
    return attr;
}

static void close_side(struct side *side)
{
    must(rdmux_ep_close(side->ep));
    rdmux_listener_close(side->listener);
    must(rdmux_cq_destroy(side->cq));
    must(rdmux_fabric_close(side->fabric));
}

static uint8_t bytes[MESSAGE_SIZE];

static void fill_bytes(void)
{
    for (size_t i = 0; i < MESSAGE_SIZE; i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    }
}

/* The other process: sends the message that it gets back. */
static int run_peer(const char *provider, int pipe)
{
    static uint8_t in[MESSAGE_SIZE];
    struct side side = { .fabric = open_fabric(provider) };
    char address[RDMUX_ADDRESS_MAX] = "";
    must(rdmux_listen(side.fabric, "127.0.0.1:0", NULL, &side.listener));
    must(rdmux_listener_address(side.listener, address, sizeof(address)));
    must(rdmux_cq_create(side.fabric, NULL, &side.cq));
    if (write(pipe, address, sizeof(address)) != (ssize_t)sizeof(address)) {
        return 2;
    }
    const struct rdmux_ep_attr attr = patient();
    must(rdmux_accept(side.listener, side.cq, &attr, TIME_LIMIT_S * 1000, &side.ep));
    must(rdmux_recv(side.ep, in, MESSAGE_SIZE, NULL, NULL));
    take_entry(&side);
    must(rdmux_send(side.ep, in, MESSAGE_SIZE, NULL, NULL, RDMUX_PLACED));
    take_entry(&side);
    close_side(&side);
    return 0;
}

static void exchange_message(struct side *side, const char *address)
{
    static uint8_t in[MESSAGE_SIZE];
    must(rdmux_cq_create(side->fabric, NULL, &side->cq));
    const struct rdmux_ep_attr attr = patient();
    must(rdmux_connect(side->fabric, side->cq, address, &attr, TIME_LIMIT_S * 1000, &side->ep));
    fill_bytes();
    must(rdmux_recv(side->ep, in, MESSAGE_SIZE, NULL, NULL));
    must(rdmux_send(side->ep, bytes, MESSAGE_SIZE, NULL, NULL, 0));
    take_entry(side);
    take_entry(side);
    if (memcmp(in, bytes, MESSAGE_SIZE) != 0) {
        printf("the message has changed on its way\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct process_state before;
    static struct process_state during;
    static struct process_state after;
    struct side side = { 0 };
    char address[RDMUX_ADDRESS_MAX] = "";
    int pipes[2];
    int status = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: unchanged PROVIDER\n");
        return 2;
    }
    (void)alarm(TIME_LIMIT_S);
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return 2;
    }
    pid_t peer = fork();
    if (peer == 0) {
        (void)alarm(TIME_LIMIT_S);
        (void)close(pipes[0]);
        _exit(run_peer(argv[1], pipes[1]));
    }
    (void)close(pipes[1]);
    process_state_take(&before);
    side.fabric = open_fabric(argv[1]);
    if (!has_path(side.fabric, argv[1])) {
        (void)kill(peer, SIGKILL);
        (void)waitpid(peer, NULL, 0);
        return 77;
    }
    if (read(pipes[0], address, sizeof(address)) != (ssize_t)sizeof(address)) {
        printf("the peer did not listen\n");
        return 2;
    }
    exchange_message(&side, address);
    process_state_take(&during);
    unsigned differences = process_state_compare(&before, &during, "at work");
    const unsigned takers = process_state_count_takers();
    if (takers > 0) {
        printf("%u threads take signals of the program\n", takers);
        differences++;
    }
    /* The peer ends first: an end of this side may outrun the acknowledgment of its message. */
    if (waitpid(peer, &status, 0) != peer || status != 0) {
        printf("the peer failed: status %d\n", status);
        differences++;
    }
    close_side(&side);
    process_state_take(&after);
    differences += process_state_compare(&before, &after, "afterwards");
    if (before.threads != after.threads) {
        printf("%u threads have become %u\n", before.threads, after.threads);
        differences++;
    }
    free(before.environment);
    free(during.environment);
    free(after.environment);
    return differences == 0 ? 0 : 1;
}
