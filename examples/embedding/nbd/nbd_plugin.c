/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A plug-in of nbdkit whose device is that of block_server.c:
 *
 *   nbdkit ./nbd_stream.so server=HOST:PORT
 *
 * NBD clients of this host reach a block device at the other end of a link: a socket, or a stream of
 * rdmux. Each connection of a client has a link of its own.
 */
#include "../link/link.h"
#include "block.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_SERIALIZE_REQUESTS /* of a connection */

static char *server;

struct connection {
    struct link *link;
    uint64_t size;
};

static int take_option(const char *key, const char *value)
{
    if (strcmp(key, "server") != 0) {
        nbdkit_error("unknown parameter '%s'; there is server=HOST:PORT", key);
        return -1;
    }
    free(server);
    server = strdup(value);
    return server != NULL ? 0 : -1;
}

static int check_options(void)
{
    if (server == NULL) {
        nbdkit_error("say where the block server is: server=HOST:PORT");
        return -1;
    }
    return 0;
}

/* nbdkit forks before this call and not after it, and a fabric lives in one process. */
static int start(void)
{
    if (!link_start()) {
        nbdkit_error("start: %s", link_error());
        return -1;
    }
    return 0;
}

static void stop(void)
{
    link_stop();
}

static void forget_options(void)
{
    free(server);
}

static void *connect_to_server(int is_read_only)
{
    struct connection *connection = malloc(sizeof(*connection));
    struct link *link = connection != NULL ? link_connect(server) : NULL;
    (void)is_read_only;
    if (link == NULL ||
        link_read(link, &connection->size, sizeof(connection->size)) != sizeof(connection->size)) {
        nbdkit_error("%s: %s", server, connection != NULL ? link_error() : "no memory");
        link_close(link);
        free(connection);
        return NULL;
    }
    connection->link = link;
    connection->size = be64toh(connection->size);
    nbdkit_debug("%s over %s", server, link_over(link));
    return connection;
}

static void disconnect(void *handle)
{
    struct connection *connection = handle;
    link_close(connection->link);
    free(connection);
}

static int64_t device_size(void *handle)
{
    return (int64_t)((struct connection *)handle)->size;
}

/* Sends a request with `out`, and reads the answer and its bytes into `in`; either may be NULL. */
static int request(struct connection *connection, enum block_op op, const void *out, void *in,
                   uint32_t length, uint64_t offset)
{
    uint8_t header[BLOCK_REQUEST];
    uint32_t words[2] = { htobe32((uint32_t)op), htobe32(length) };
    uint32_t error = 0;
    struct iovec pieces[] = { { header, sizeof(header) }, { NULL, 0 } };
    offset = htobe64(offset);
    memcpy(header, words, sizeof(words));
    memcpy(header + sizeof(words), &offset, sizeof(offset));
    if (out != NULL) {
        memcpy(&pieces[1].iov_base, &out, sizeof(out)); /* link_write() only reads the bytes */
        pieces[1].iov_len = length;
    }
    if (!link_write(connection->link, pieces, 2) ||
        link_read(connection->link, &error, BLOCK_ANSWER) != BLOCK_ANSWER) {
        nbdkit_error("%s: %s", server, link_error());
        nbdkit_set_error(ESHUTDOWN);
        return -1;
    }
    if (error != 0) {
        nbdkit_set_error((int)be32toh(error));
        return -1;
    }
    if (in != NULL && link_read(connection->link, in, length) != (long)length) {
        nbdkit_error("%s: an answer ends early", server);
        nbdkit_set_error(ESHUTDOWN);
        return -1;
    }
    return 0;
}

static int read_device(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
    (void)flags;
    return request(handle, BLOCK_READ, NULL, buf, count, offset);
}

static int write_device(void *handle, const void *buf, uint32_t count, uint64_t offset,
                        uint32_t flags)
{
    (void)flags;
    return request(handle, BLOCK_WRITE, buf, NULL, count, offset);
}

static int flush_device(void *handle, uint32_t flags)
{
    (void)flags;
    return request(handle, BLOCK_FLUSH, NULL, NULL, 0, 0);
}

/* A flush on any connection covers all of them. */
static int can_multi_conn(void *handle)
{
    (void)handle;
    return 1;
}

static struct nbdkit_plugin plugin = {
    .name = "rdmux",
    .description = "a block device over a link",
    .magic_config_key = "server",
    .config = take_option,
    .config_complete = check_options,
    .config_help = "server=HOST:PORT   the block server",
    .after_fork = start,
    .cleanup = stop,
    .unload = forget_options,
    .open = connect_to_server,
    .close = disconnect,
    .get_size = device_size,
    .can_multi_conn = can_multi_conn,
    .pread = read_device,
    .pwrite = write_device,
    .flush = flush_device,
};

NBDKIT_REGISTER_PLUGIN(plugin)
