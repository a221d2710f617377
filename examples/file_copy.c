/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Copies a file to another process.
 *
 *   file_copy receive FILE [PORT]     takes one file, then ends
 *   file_copy send FILE HOST:PORT
 *
 * One message with the size, then chunks; the receiver answers with the number of bytes it has
 * written. Each side has two chunks of memory, however long the file: while one is on its way, the
 * other is read or written. Nothing paces the sender but the receiver's posted receives.
 */
#include <rdmux/rdmux.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, CHUNKS = 2, WAIT_MS = 30000 };

struct side {
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    struct rdmux_mr *mr; /* CHUNKS chunks */
    int file;
};

static const char *unfinished; /* the file to remove if the copy fails */

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "file_copy: %s: %s\n", what, why);
    if (unfinished != NULL) {
        unlink(unfinished);
    }
    exit(1);
}

static void check(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fail(what, rdmux_last_error());
    }
}

/* Waits for the next success of one kind and returns its length; other successes pass by. A failed
 * request means that the endpoint has ended: DISCONNECTED follows and has the cause. */
static uint64_t wait_for(struct side *side, uint32_t opcode)
{
    for (;;) {
        struct rdmux_wc wc;
        size_t count;
        check(rdmux_cq_wait(side->cq, &wc, 1, WAIT_MS, &count), "wait");
        if (wc.status == RDMUX_OK && wc.opcode == opcode) {
            return wc.length;
        }
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
            check(rdmux_ep_info(side->ep, &info), "info");
            fail("the peer has gone too early", info.text);
        }
    }
}

static char *chunk_at(const struct side *side, uint64_t index)
{
    return (char *)rdmux_mr_addr(side->mr) + (size_t)(index % CHUNKS) * CHUNK;
}

static size_t next_length(uint64_t size, uint64_t done)
{
    return size - done < CHUNK ? (size_t)(size - done) : CHUNK;
}

static void send_file(struct side *side)
{
    struct stat facts;
    if (fstat(side->file, &facts) != 0 || !S_ISREG(facts.st_mode)) {
        fail("send", "not a regular file");
    }
    uint64_t size = (uint64_t)facts.st_size, sent = 0, confirmed = 0;
    uint32_t flags = RDMUX_INLINE | RDMUX_UNSIGNALED;
    check(rdmux_recv(side->ep, &confirmed, sizeof(confirmed), NULL, NULL), "receive");
    check(rdmux_send(side->ep, &size, sizeof(size), NULL, NULL, flags), "send the size");
    for (uint64_t index = 0; sent < size; index++) {
        if (index >= CHUNKS) {
            wait_for(side, RDMUX_WC_SEND); /* they end in order: this frees the older chunk */
        }
        size_t length = next_length(size, sent);
        for (size_t filled = 0; filled < length;) {
            ssize_t n = read(side->file, chunk_at(side, index) + filled, length - filled);
            if (n <= 0) {
                fail("read", "the file cannot be read to its end");
            }
            filled += (size_t)n;
        }
        check(rdmux_send(side->ep, chunk_at(side, index), length, side->mr, NULL, 0), "send");
        sent += length;
    }
    if (wait_for(side, RDMUX_WC_RECV) != sizeof(confirmed) || confirmed != size) {
        fail("send", "the receiver has another size");
    }
    check(rdmux_ep_shutdown(side->ep, WAIT_MS), "shutdown");
    printf("sent %ju bytes\n", (uintmax_t)sent);
}

static void receive_file(struct side *side)
{
    uint64_t size = 0, received = 0;
    check(rdmux_recv(side->ep, &size, sizeof(size), NULL, NULL), "receive");
    for (unsigned index = 0; index < CHUNKS; index++) {
        check(rdmux_recv(side->ep, chunk_at(side, index), CHUNK, side->mr, NULL), "receive");
    }
    if (wait_for(side, RDMUX_WC_RECV) != sizeof(size)) {
        fail("receive", "the peer does not send a file");
    }
    for (uint64_t index = 0; received < size; index++) {
        size_t length = next_length(size, received);
        if (wait_for(side, RDMUX_WC_RECV) != length) {
            fail("receive", "a chunk has the wrong size");
        }
        for (size_t written = 0; written < length;) {
            ssize_t n = write(side->file, chunk_at(side, index) + written, length - written);
            if (n <= 0) {
                fail("write", "the file cannot be written");
            }
            written += (size_t)n;
        }
        check(rdmux_recv(side->ep, chunk_at(side, index), CHUNK, side->mr, NULL), "receive");
        received += length;
    }
    if (fsync(side->file) != 0) {
        fail("write", "the file cannot be written to the disk");
    }
    check(rdmux_send(side->ep, &received, sizeof(received), NULL, NULL, RDMUX_INLINE), "answer");
    wait_for(side, RDMUX_WC_DISCONNECTED); /* the sender says goodbye when it has the answer */
    printf("received %ju bytes\n", (uintmax_t)received);
}

int main(int argc, char **argv)
{
    bool sends = argc == 4 && strcmp(argv[1], "send") == 0;
    if (!sends && (argc < 3 || argc > 4 || strcmp(argv[1], "receive") != 0)) {
        fprintf(stderr, "usage: file_copy receive FILE [PORT] | file_copy send FILE HOST:PORT\n");
        return 2;
    }
    struct rdmux_fabric *fabric;
    struct rdmux_listener *listener = NULL;
    struct side side = { .file = sends ? open(argv[2], O_RDONLY)
                                       : open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0666) };
    if (side.file < 0) {
        perror(argv[2]);
        return 1;
    }
    unfinished = sends ? NULL : argv[2];
    check(rdmux_fabric_open(NULL, &fabric), "open");
    check(rdmux_cq_create(fabric, NULL, &side.cq), "create a completion queue");
    check(rdmux_mr_alloc(fabric, (size_t)CHUNKS * CHUNK, RDMUX_ACCESS_LOCAL_WRITE, &side.mr),
          "allocate chunks");
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.prefer = RDMUX_PREFER_BANDWIDTH;
    attr.typical_size = CHUNK;
    if (sends) {
        check(rdmux_connect(fabric, side.cq, argv[3], &attr, WAIT_MS, &side.ep), "connect");
        send_file(&side);
    } else {
        char address[RDMUX_ADDRESS_MAX];
        snprintf(address, sizeof(address), ":%s", argc > 3 ? argv[3] : "7471");
        check(rdmux_listen(fabric, address, NULL, &listener), "listen");
        check(rdmux_listener_address(listener, address, sizeof(address)), "address");
        printf("listening on %s\n", address);
        fflush(stdout);
        check(rdmux_accept(listener, side.cq, &attr, -1, &side.ep), "accept");
        receive_file(&side);
    }
    rdmux_ep_close(side.ep);
    rdmux_mr_deregister(side.mr);
    rdmux_listener_close(listener);
    check(rdmux_cq_destroy(side.cq), "destroy the completion queue");
    check(rdmux_fabric_close(fabric), "close");
    return close(side.file) == 0 ? 0 : 1;
}
