/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The ports that sockets are dialled from. */
#ifndef RDMUX_PROVIDERS_PORTS_H
#define RDMUX_PROVIDERS_PORTS_H

/*
 * For a TCP socket of ours before it is bound or connected: the kernel is to find it a port, however
 * many are in use. What it does not know it leaves as it is.
 *
 * Left alone, connect() takes even ports, and looks at each of them before it takes an odd one. Once
 * they are used up, after some 14,000 connections to one listener, it takes 0.6 ms a socket instead
 * of 8 us (measured; inet_hash_connect() in net/ipv4/inet_hashtables.c). And an address without a
 * port, bound before, takes a port from every other destination, too.
 */
void rdmux_ports_use_all(int fd);

#endif
