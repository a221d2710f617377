/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Copies a file to another process.
 *
 * The file is sent in chunks. The last chunk is the first that is not full; it may be empty. The
 * receiver answers with the number of bytes on its disk. Each side has memory for two chunks,
 * whatever the file's length: while one is in flight, the other is read or written. Only the
 * receiver's posted receives pace the sender.
 */
#include <rdmux/rdmux.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, CHUNKS = 2, WAIT_MS = 30000 };

static const char usage[] = "usage: file_copy receive ADDRESS FILE    receives one file\n"
                            "       file_copy send ADDRESS FILE\n"
                            "ADDRESS is HOST:PORT, or *:PORT to receive; PORT 0: a free port.\n"
                            "The received FILE must not exist yet.\n";

static struct rdmux_cq *cq;
static struct rdmux_ep *ep;
static struct rdmux_mr *memory; /* CHUNKS chunks */
static const char *unfinished;  /* the file to remove if the copy fails */

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "file_copy: %s: %s\n", what, why);
    if (unfinished != NULL) {
        remove(unfinished);
    }
    exit(1);
}

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fail(what, rdmux_last_error());
    }
}

/* Waits for the next success of one kind and returns its length; skips other successes. After a
 * failed request the endpoint has ended: DISCONNECTED follows with the cause. */
static size_t wait_for(uint32_t opcode)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    for (;;) {
        struct rdmux_wc wc;
        size_t count;
        must(rdmux_cq_wait(cq, &wc, 1, WAIT_MS, &count), "wait");
        if (wc.status == RDMUX_OK && wc.opcode == opcode) {
            return (size_t)wc.length;
        }
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            must(rdmux_ep_info(ep, &info), "info");
            fail("the peer ended too early", info.text);
        }
    }
}

static char *chunk(size_t index)
{
    return (char *)rdmux_mr_addr(memory) + index % CHUNKS * CHUNK;
}

static void send_file(FILE *file)
{
    uint64_t sent = 0, received = 0;
    size_t length = CHUNK;
    must(rdmux_recv(ep, &received, sizeof(received), NULL, NULL), "receive");
    for (size_t i = 0; length == CHUNK; i++) {
        if (i >= CHUNKS) {
            wait_for(RDMUX_WC_SEND); /* sends end in order: this frees the older chunk */
        }
        length = fread(chunk(i), 1, CHUNK, file);
        if (ferror(file)) {
            fail("read", strerror(errno));
        }
        must(rdmux_send(ep, chunk(i), length, memory, NULL, 0), "send");
        sent += length;
    }
    if (wait_for(RDMUX_WC_RECV) != sizeof(received) || received != sent) {
        fail("send", "the receiver reports another number of bytes");
    }
    must(rdmux_ep_shutdown(ep, WAIT_MS), "shutdown");
    printf("sent %ju bytes\n", (uintmax_t)sent);
}

static void receive_file(FILE *file)
{
    uint64_t received = 0;
    size_t length = CHUNK;
    for (size_t i = 0; i < CHUNKS; i++) {
        must(rdmux_recv(ep, chunk(i), CHUNK, memory, NULL), "receive");
    }
    for (size_t i = 0; length == CHUNK; i++) {
        length = wait_for(RDMUX_WC_RECV);
        if (fwrite(chunk(i), 1, length, file) != length) {
            fail("write", strerror(errno));
        }
        must(rdmux_recv(ep, chunk(i), CHUNK, memory, NULL), "receive");
        received += length;
    }
    if (fflush(file) != 0 || fsync(fileno(file)) != 0) {
        fail("write", strerror(errno));
    }
    must(rdmux_send(ep, &received, sizeof(received), NULL, NULL, RDMUX_INLINE), "answer");
    wait_for(RDMUX_WC_DISCONNECTED); /* the sender disconnects when it has the answer */
    printf("received %ju bytes\n", (uintmax_t)received);
}

int main(int argc, char **argv)
{
    bool helps = argc == 2 && strcmp(argv[1], "--help") == 0;
    bool sends = argc == 4 && strcmp(argv[1], "send") == 0;
    bool receives = argc == 4 && strcmp(argv[1], "receive") == 0;
    if (!sends && !receives) {
        fputs(usage, helps ? stdout : stderr);
        return helps ? 0 : 2;
    }
    struct rdmux_fabric *fabric;
    struct rdmux_listener *listener = NULL;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    char address[RDMUX_ADDRESS_MAX];
    FILE *file = fopen(argv[3], sends ? "rb" : "wbx");
    if (file == NULL) {
        fail(argv[3], strerror(errno));
    }
    unfinished = receives ? argv[3] : NULL;
    attr.prefer = RDMUX_PREFER_BANDWIDTH;
    must(rdmux_fabric_open(NULL, &fabric), "open");
    must(rdmux_cq_create(fabric, NULL, &cq), "create a completion queue");
    must(rdmux_mr_alloc(fabric, (size_t)CHUNKS * CHUNK, RDMUX_ACCESS_LOCAL_WRITE, &memory),
         "allocate");
    if (sends) {
        must(rdmux_connect(fabric, cq, argv[2], &attr, WAIT_MS, &ep), "connect");
        send_file(file);
    } else {
        must(rdmux_listen(fabric, argv[2], NULL, &listener), "listen");
        must(rdmux_listener_address(listener, address, sizeof(address)), "address");
        printf("listening on %s\n", address);
        fflush(stdout);
        must(rdmux_accept(listener, cq, &attr, -1, &ep), "accept");
        receive_file(file);
    }
    rdmux_ep_close(ep);
    rdmux_mr_deregister(memory);
    rdmux_listener_close(listener);
    must(rdmux_cq_destroy(cq), "destroy the completion queue");
    must(rdmux_fabric_close(fabric), "close");
    return fclose(file) == 0 ? 0 : 1;
}
