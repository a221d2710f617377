/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The scene of fuzz target middle: three fabrics and the connection of the neighbours, opened once;
 * and the connection of the two sides, opened and closed for each input.
 */
#ifndef RDMUX_TESTS_FUZZ_MIDDLE_SCENE_H
#define RDMUX_TESTS_FUZZ_MIDDLE_SCENE_H

#include "middle_side.h"

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes the key of all sides into a memory file. */
static const char *open_keys(char name[64], int *fd)
{
    static const char line[] = "anna:00112233445566778899aabbccddeeff\n";
    *fd = memfd_create("keys", MFD_CLOEXEC);
    check(*fd >= 0 && fchmod(*fd, 0600) == 0 &&
              write(*fd, line, sizeof(line) - 1) == (ssize_t)sizeof(line) - 1,
          "keys");
    snprintf(name, 64, "/proc/self/fd/%d", *fd);
    return name;
}

static void open_fabric(struct rdmux_fabric_attr *attr, struct rdmux_fabric **out)
{
    struct rdmux_fabric_auth auth = RDMUX_FABRIC_AUTH_INIT;
    char name[64];
    int fd = -1;
    auth.method = RDMUX_AUTH_PSK;
    auth.key_file = open_keys(name, &fd);
    attr->auth = authenticates ? &auth : NULL;
    check(rdmux_fabric_open(attr, out) == RDMUX_OK, "fabric");
    close(fd);
}

static void side_open(struct side *side)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS |
                 RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD;
    attr.paths = "tcp";
    attr.clock_ns = clock_of;
    attr.random = random_of;
    side->pending = malloc(PENDING_MAX);
    side->middle = -1;
    set_guards(side);
    check(side->pending != NULL, "memory");
    open_fabric(&attr, &side->fabric);
    check(rdmux_cq_create(side->fabric, NULL, &side->cq) == RDMUX_OK, "cq");
    check(rdmux_mr_register(side->fabric, side->region.bytes, REGION_SIZE,
                            RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                RDMUX_ACCESS_REMOTE_ATOMIC,
                            &side->mr) == RDMUX_OK,
          "region");
}

static void adopt(struct side *side, int socket, enum rdmux_role role, struct rdmux_ep **out)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.send_depth = 16;
    attr.recv_depth = 16;
    attr.max_send = BUFFER_SIZE;
    attr.max_recv = BUFFER_SIZE;
    enum rdmux_status status = rdmux_adopt(side->fabric, side->cq, socket, role, &attr, 0, out);
    check(status == RDMUX_OK || status == RDMUX_IN_PROGRESS, "adopt");
}

static bool is_ready(struct rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    return rdmux_ep_info(ep, &info) == RDMUX_OK && info.provider[0] != '\0';
}

static void scene_open(void)
{
    int pair[2];
    time_ns = UINT64_C(1000) * 1000 * 1000 * 1000;
    side_open(&sides[0]);
    side_open(&sides[1]);
    side_open(&stranger);
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    adopt(&sides[0], pair[0], RDMUX_ROLE_ACCEPT, &sides[0].good);
    adopt(&stranger, pair[1], RDMUX_ROLE_CONNECT, &stranger.good);
    for (int i = 0; i < PATIENCE && !(is_ready(sides[0].good) && is_ready(stranger.good)); i++) {
        step_all();
    }
    check(is_ready(sides[0].good) && is_ready(stranger.good), "the neighbours did not connect");
}

/* Sends a message each way between the neighbours. */
static void check_neighbours(void)
{
    static const uint32_t number = 0x600d600d;
    struct side *both[] = { &sides[0], &stranger };
    for (int i = 0; i < 2; i++) {
        both[i]->good_came = false;
        both[i]->good_got = 0;
        check(rdmux_recv(both[i]->good, &both[i]->good_got, sizeof(number), NULL, NULL) == RDMUX_OK,
              "a neighbour's receive");
    }
    for (int i = 0; i < 2; i++) {
        check(rdmux_send(both[i]->good, &number, sizeof(number), NULL, NULL,
                         RDMUX_INLINE | RDMUX_UNSIGNALED) == RDMUX_OK,
              "a neighbour's send");
    }
    for (int i = 0; i < PATIENCE && !(sides[0].good_came && stranger.good_came); i++) {
        step_all();
    }
    check(sides[0].good_came && stranger.good_came && sides[0].good_got == number &&
              stranger.good_got == number,
          "the neighbours' messages did not come");
}

/* ------------------------------------------------------------------------------- the connection */

static void connect_sides(uint8_t options)
{
    for (int i = 0; i < 2; i++) {
        int pair[2];
        bool connects = (i == 0) == ((options & EXPORTER_CONNECTS) != 0);
        check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
        sides[i].middle = pair[1];
        sides[i].pending_size = 0;
        sides[i].ended = false;
        sides[i].disconnected = false;
        adopt(&sides[i], pair[0], connects ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT, &sides[i].ep);
    }
    if ((options & FROM_THE_START) == 0) {
        for (int i = 0; i < PATIENCE && !(is_ready(sides[0].ep) && is_ready(sides[1].ep)); i++) {
            flow(1);
        }
        check(is_ready(sides[0].ep) && is_ready(sides[1].ep), "the sides did not connect");
    }
}

/* Closes the socket: an endpoint that has not ended must end now. */
static void disconnect_sides(void)
{
    for (int i = 0; i < 2; i++) {
        (void)close(sides[i].middle);
        sides[i].middle = -1;
    }
    for (int i = 0; i < PATIENCE && !(sides[0].ended && sides[1].ended); i++) {
        time_ns += STEP_NS;
        step_all();
    }
    for (int i = 0; i < 2; i++) {
        check(sides[i].ended, "an endpoint without a socket lives on");
        rdmux_remote_close(sides[i].remote);
        sides[i].remote = NULL;
        check(rdmux_ep_close(sides[i].ep) == RDMUX_OK, "close");
        sides[i].ep = NULL;
    }
    step_all();
}

#endif
