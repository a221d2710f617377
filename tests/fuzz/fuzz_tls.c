/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A stranger's bytes to a side that authenticates: the HELLO in clear, and both sides of the TLS
 * handshake. No peer without the key is accepted, and no byte is read beyond the limit.
 *
 * The first byte: bit 0: 0 = to an acceptor, 1 = to a connector; the others: the size of the pieces
 * that arrive, 0 = all at once. The rest are the stranger's bytes.
 */
#include "api/core/fabric.h"
#include "api/object/offer.h"
#include "driver.h"

#include "negotiation/tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static uint64_t no_time(void *user)
{
    (void)user;
    return 0;
}

static struct rdmux_fabric *open_fabric(void)
{
    static const char line[] = "anna:00112233445566778899aabbccddeeff\n";
    char name[64];
    int fd = memfd_create("keys", MFD_CLOEXEC);
    require(fd >= 0 && fchmod(fd, 0600) == 0 &&
            write(fd, line, sizeof(line) - 1) == (ssize_t)sizeof(line) - 1);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    struct rdmux_fabric_auth auth = RDMUX_FABRIC_AUTH_INIT;
    auth.method = RDMUX_AUTH_PSK;
    auth.key_file = name;
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS |
                 RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD;
    attr.paths = "tcp";
    attr.auth = &auth;
    attr.clock_ns = no_time;
    struct rdmux_fabric *fabric = NULL;
    require(rdmux_fabric_open(&attr, &fabric) == RDMUX_OK);
    close(fd);
    return fabric;
}

/* Sends the first bytes of a connector. */
static void greet(struct rdmux_tls *tls, struct rdmux_fabric *fabric)
{
    struct rdmux_hello hello;
    uint8_t bytes[RDMUX_HELLO_SIZE];
    size_t done = 0;
    rdmux_hello_fill(fabric, &hello);
    rdmux_hello_encode(&hello, bytes);
    enum rdmux_status status = rdmux_tls_send(tls, bytes, sizeof(bytes), &done);
    require(status == RDMUX_AGAIN && done == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rdmux_fabric *fabric;
    int sockets[2];
    struct rdmux_tls *tls = NULL;
    uint8_t out[256];
    size_t got = 0;
    if (size == 0) {
        return 0;
    }
    if (fabric == NULL) {
        fabric = open_fabric();
    }
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets) == 0);
    enum rdmux_role role = (data[0] & 1) != 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT;
    require(rdmux_tls_create(fabric->auth, role, sockets[0], "host", &tls) == RDMUX_OK);
    if (role == RDMUX_ROLE_CONNECT) {
        greet(tls, fabric);
    }

    size_t at = 1;
    size_t piece = (data[0] >> 1) == 0 ? size : data[0] >> 1;
    enum rdmux_status status = RDMUX_AGAIN;
    while (status == RDMUX_AGAIN && at < size) {
        ssize_t said = send(sockets[1], data + at, size - at < piece ? size - at : piece,
                            MSG_NOSIGNAL);
        at += said > 0 ? (size_t)said : 0;
        status = rdmux_tls_receive(tls, out, sizeof(out), &got);
        while (recv(sockets[1], out, sizeof(out), 0) > 0) { /* so that no answer fills the socket */
        }
    }
    if (status == RDMUX_AGAIN) {
        shutdown(sockets[1], SHUT_WR);
        status = rdmux_tls_receive(tls, out, sizeof(out), &got);
    }

    require(status == RDMUX_AUTH || status == RDMUX_PROTOCOL || status == RDMUX_PEER_GONE ||
            status == RDMUX_VERSION);
    require(!rdmux_tls_is_open(tls) && rdmux_tls_identity(tls)[0] == '\0');
    rdmux_tls_destroy(tls);
    close(sockets[0]);
    close(sockets[1]);
    return 0;
}
