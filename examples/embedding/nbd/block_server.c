/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Serves a file as a block device, over sockets or over rdmux streams. Clients share the device;
 * a write that was answered is seen by all of them, and is on the disk after a flush by any.
 */
#include "../link/server.h"
#include "block.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] = "usage: block_server ADDRESS FILE    until a signal ends it\n"
                            "ADDRESS is HOST:PORT; PORT 0: a free port.\n";

static int device;
static uint64_t device_size;

/* Does a request; returns an error number. */
static uint32_t carry_out(uint32_t op, uint8_t *bytes, size_t length, uint64_t offset)
{
    size_t done = 0;
    if (op == BLOCK_FLUSH) {
        return fdatasync(device) == 0 ? 0 : (uint32_t)errno;
    }
    if (offset > device_size || length > device_size - offset) {
        return EINVAL;
    }
    while (done < length) {
        ssize_t moved = op == BLOCK_READ
                            ? pread(device, bytes + done, length - done, (off_t)(offset + done))
                            : pwrite(device, bytes + done, length - done, (off_t)(offset + done));
        if (moved == 0 || (moved < 0 && errno != EINTR)) {
            return moved == 0 ? EIO : (uint32_t)errno;
        }
        done += moved > 0 ? (size_t)moved : 0;
    }
    return 0;
}

/* Returns false when the client has left, or breaks the protocol. */
static bool serve_one(struct link *link, uint8_t **bytes, size_t *room)
{
    uint8_t request[BLOCK_REQUEST];
    uint32_t op, length, error;
    uint64_t offset;
    if (link_read(link, request, sizeof(request)) != sizeof(request)) {
        return false;
    }
    memcpy(&op, request, 4);
    memcpy(&length, request + 4, 4);
    memcpy(&offset, request + 8, 8);
    op = be32toh(op);
    length = be32toh(length);
    if (op < BLOCK_READ || op > BLOCK_FLUSH || length > BLOCK_LENGTH_MAX) {
        fprintf(stderr, "block_server: a client asks for operation %u of %u bytes\n", op, length);
        return false;
    }
    if (length > *room) {
        free(*bytes);
        *bytes = malloc(length);
        *room = *bytes != NULL ? length : 0;
    }
    if (length > *room || (op == BLOCK_WRITE && link_read(link, *bytes, length) != (long)length)) {
        return false;
    }
    error = carry_out(op, *bytes, length, be64toh(offset));
    bool has_bytes = op == BLOCK_READ && error == 0;
    error = htobe32(error);
    struct iovec pieces[] = { { &error, BLOCK_ANSWER }, { *bytes, has_bytes ? length : 0 } };
    return link_write(link, pieces, 2);
}

static void serve(struct link *link)
{
    uint64_t size = htobe64(device_size);
    struct iovec piece = { &size, sizeof(size) };
    uint8_t *bytes = NULL;
    size_t room = 0;
    bool goes_on = link_write(link, &piece, 1);
    while (goes_on) {
        goes_on = serve_one(link, &bytes, &room);
    }
    free(bytes);
}

int main(int argc, char **argv)
{
    struct stat status;
    if (argc != 3) {
        bool helps = argc == 2 && strcmp(argv[1], "--help") == 0;
        fputs(usage, helps ? stdout : stderr);
        return helps ? 0 : 2;
    }
    device = open(argv[2], O_RDWR | O_CLOEXEC);
    if (device < 0 || fstat(device, &status) != 0) {
        server_fail(argv[2], strerror(errno));
    }
    device_size = (uint64_t)status.st_size;
    if (!link_start()) {
        server_fail("start", link_error());
    }
    server_run(argv[1], 0, serve);
    return 0;
}
