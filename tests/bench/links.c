/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "links.h"

#include "examples/embedding/link/link_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#if BENCH_LINKS_ARE_SOCKETS
/* BBR paces by timers, which is no limit of the machine: see raw_tcp.c. */
static void avoid_pacing(const struct link *link)
{
    if (setsockopt(link_fd(link), IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno")) != 0) {
        bench_fail("the socket cannot have Reno");
    }
}
#else
static void avoid_pacing(const struct link *link)
{
    (void)link; /* rdmux does it by itself */
}
#endif

struct link *links_open(const struct bench *bench, const char *paths)
{
    char mine[LINK_ADDRESS_MAX] = "", address[LINK_ADDRESS_MAX];
    struct link_listener *listener = NULL;
    setenv("RDMUX_PATHS", paths, 1);
    if (!link_start() ||
        (bench->side == 1 && (listener = link_listen("127.0.0.1:0", mine)) == NULL)) {
        bench_fail("no link can be opened: %s", link_error());
    }
    bench_exchange(bench, mine, address, sizeof(mine));
    struct link *link = bench->side == 1 ? link_accept(listener) : link_connect(address);
    if (link == NULL) {
        bench_fail("no link: %s", link_error());
    }
    avoid_pacing(link);
    bench_meet(bench);
    return link;
}
