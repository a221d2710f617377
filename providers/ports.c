/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "providers/ports.h"

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51 /* linux/in.h, since Linux 6.3 */
#endif

void rdmux_ports_use_all(int fd)
{
    /* A bound outside ip_local_port_range has no effect (ip(7)), but since Linux 6.14 a socket with
     * a range of its own takes even and odd ports alike. */
    const uint32_t range = UINT32_C(65535) << 16;
    const int one = 1;
    (void)setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, sizeof(range));
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
}
