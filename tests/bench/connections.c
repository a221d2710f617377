/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Measures the time to make an endpoint, negotiation and proof of the path included. The endpoints
 * of two processes connect one after the other.
 *
 *   connections PATHS SECONDS      the median in ms
 */
#include "bench.h"

#include "tools/stats.h"

#include <rdmux/rdmux.h>

#include <stdlib.h>

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        bench_fail("%s: %s", what, rdmux_last_error());
    }
}

/* Accepts until the peer of an endpoint says that it was the last. */
static void serve(struct rdmux_listener *listener, struct rdmux_cq *cq)
{
    bool last = false;
    while (!last) {
        struct rdmux_ep *ep = NULL;
        struct rdmux_wc wc = { .opcode = 0 };
        size_t count = 0;
        uint8_t flag = 0;
        must(rdmux_accept(listener, cq, NULL, -1, &ep), "rdmux_accept");
        enum rdmux_status status = rdmux_recv(ep, &flag, sizeof(flag), NULL, NULL);
        if (status != RDMUX_PEER_GONE) { /* the peer has closed already */
            must(status, "rdmux_recv");
        }
        while (wc.opcode != RDMUX_WC_DISCONNECTED) {
            must(rdmux_cq_wait(cq, &wc, 1, -1, &count), "rdmux_cq_wait");
            last = last || (wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK && flag != 0);
        }
        must(rdmux_ep_close(ep), "rdmux_ep_close");
    }
}

static void say_last(struct rdmux_ep *ep)
{
    uint8_t flag = 1;
    must(rdmux_send(ep, &flag, sizeof(flag), NULL, NULL, RDMUX_INLINE), "rdmux_send");
    must(rdmux_ep_shutdown(ep, 5000), "rdmux_ep_shutdown");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        bench_fail("usage: connections PATHS SECONDS");
    }
    struct bench bench;
    bench_fork(&bench, strtod(argv[2], NULL), 0);
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.paths = argv[1];
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT;
    struct rdmux_fabric *fabric = NULL;
    struct rdmux_cq *cq = NULL;
    struct rdmux_listener *listener = NULL;
    char mine[RDMUX_ADDRESS_MAX] = "";
    char address[RDMUX_ADDRESS_MAX];
    must(rdmux_fabric_open(&attr, &fabric), "rdmux_fabric_open");
    must(rdmux_cq_create(fabric, NULL, &cq), "rdmux_cq_create");
    if (bench.side == 1) {
        must(rdmux_listen(fabric, "127.0.0.1:0", NULL, &listener), "rdmux_listen");
        must(rdmux_listener_address(listener, mine, sizeof(mine)), "rdmux_listener_address");
    }
    bench_exchange(&bench, mine, address, sizeof(mine));
    uint64_t count = 0;
    double median_ms = 0;
    bench_start(&bench);
    if (bench.side == 1) {
        serve(listener, cq);
    } else {
        struct stats *stats = malloc(sizeof(*stats));
        if (stats == NULL) {
            bench_fail("out of memory");
        }
        stats_begin(stats);
        for (bool last = false; !last; count++) {
            struct rdmux_ep *ep = NULL;
            last = bench_is_over(&bench);
            uint64_t start_ns = timer_clock_ns();
            must(rdmux_connect(fabric, cq, address, NULL, 5000, &ep), "rdmux_connect");
            stats_add(stats, timer_clock_ns() - start_ns);
            if (last) {
                say_last(ep);
            }
            must(rdmux_ep_close(ep), "rdmux_ep_close");
        }
        bench_stop(&bench);
        median_ms = stats_quantile(stats, 0.5) / 1e6;
        free(stats);
    }
    bench_finish(&bench, median_ms, count);
    return 0;
}
