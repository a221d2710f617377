/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Replaces a case on a path that lacks its needs: use of the missing capability must be refused,
 * and the endpoint survives. */
#include "harness.h"

#include <string.h>

static void expect_operation_refused(struct side *side, struct rdmux_remote *remote, uint64_t cap)
{
    static uint64_t word;
    struct rdmux_ep *ep = side->ep;
    switch (cap) {
    case RDMUX_CAP_SEND:
        EXPECT_STATUS(rdmux_send(ep, &word, 8, NULL, CTX(1), 0), RDMUX_UNSUPPORTED);
        break;
    case RDMUX_CAP_SEND_IMM:
        EXPECT_STATUS(rdmux_send_imm(ep, &word, 8, NULL, 1, CTX(1), 0), RDMUX_UNSUPPORTED);
        break;
    case RDMUX_CAP_WRITE:
        EXPECT_STATUS(rdmux_write(ep, &word, 8, NULL, remote, 0, CTX(1), 0), RDMUX_UNSUPPORTED);
        break;
    case RDMUX_CAP_WRITE_IMM:
        EXPECT_STATUS(rdmux_write_imm(ep, &word, 8, NULL, remote, 0, 1, CTX(1), 0),
                      RDMUX_UNSUPPORTED);
        break;
    case RDMUX_CAP_READ:
        EXPECT_STATUS(rdmux_read(ep, &word, 8, NULL, remote, 0, CTX(1), 0), RDMUX_UNSUPPORTED);
        break;
    case RDMUX_CAP_FETCH_ADD:
        EXPECT_STATUS(rdmux_fetch_add(ep, &word, NULL, remote, 0, 1, CTX(1), 0), RDMUX_UNSUPPORTED);
        break;
    case RDMUX_CAP_COMPARE_SWAP:
        EXPECT_STATUS(rdmux_compare_swap(ep, &word, NULL, remote, 0, 0, 1, CTX(1), 0),
                      RDMUX_UNSUPPORTED);
        break;
    case RDMUX_CAP_PLACED:
        EXPECT_STATUS(rdmux_write(ep, &word, 8, NULL, remote, 0, CTX(1), RDMUX_PLACED),
                      RDMUX_UNSUPPORTED);
        break;
    case RDMUX_CAP_FENCE:
        EXPECT_STATUS(rdmux_write(ep, &word, 8, NULL, remote, 0, CTX(1), RDMUX_FENCE),
                      RDMUX_UNSUPPORTED);
        break;
    default: /* other capabilities are required of an endpoint below */
        break;
    }
}

void refused_initiator(struct side *side)
{
    side_open_pair(side, NULL);
    struct rdmux_remote *remote = take_remote(side, side->ep);
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t cap = UINT64_C(1) << bit;
        if ((side->missing & cap) != 0) {
            expect_operation_refused(side, remote, cap);
        }
    }
    EXPECT_QUIET(&side->queue);

    struct rdmux_ep_attr demanding = ep_attr_of(side);
    struct rdmux_ep *none = side->ep;
    demanding.require = side->missing;
    EXPECT_STATUS(rdmux_connect(side->fabric, side->queue.cq, side->address, &demanding,
                                side->patient_ms, &none),
                  RDMUX_NO_PATH);
    EXPECT(none == NULL, "a connect that failed left an endpoint");
    BARRIER(side);
    side_finish(side);
}

void refused_target(struct side *side)
{
    side_open_pair(side, NULL);
    struct region region = region_make(side, MEMORY_ALLOCATED, 4096, ACCESS_ALL);
    give_token(side, &region);

    /* The listener must negotiate with the demanding connector, which never becomes an endpoint. */
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep_attr attr = ep_attr_of(side);
    struct rdmux_ep *none = NULL;
    EXPECT_OK(rdmux_listener_next(side->listener, side->patient_ms, &peer));
    attr.peer = peer.id;
    EXPECT_STATUS(rdmux_accept(side->listener, side->queue.cq, &attr, side->patient_ms, &none),
                  RDMUX_NO_PATH);
    BARRIER(side);
    EXPECT_FILLED(region.addr, 4096, 0);
    side_finish(side);
}
