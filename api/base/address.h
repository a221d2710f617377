/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Parsing, formatting and resolving of addresses. */
#ifndef RDMUX_API_BASE_ADDRESS_H
#define RDMUX_API_BASE_ADDRESS_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { RDMUX_DEFAULT_PORT = 7471, RDMUX_HOST_MAX = 256, RDMUX_PORT_MAX = 8 };

struct rdmux_address_text {
    char host[RDMUX_HOST_MAX]; /* "" = all addresses */
    char port[RDMUX_PORT_MAX];
};

/* Splits "HOST:PORT", "HOST", ":PORT", "[IPv6]:PORT" or "*:PORT". A bare IPv6 address is a host.
 * The default port is 7471. On RDMUX_INVALID the error text names the address. */
enum rdmux_status rdmux_address_split(const char *text, struct rdmux_address_text *out);
/* Formats an address numerically. Writes "socket" and returns false for an address that is not IP,
 * or without memory for the text. */
bool rdmux_address_format(const struct sockaddr *address, socklen_t length,
                          char out[RDMUX_ADDRESS_MAX]);

struct addrinfo;
/* Calls getaddrinfo() and returns its errors as statuses. numeric: asks no name server, and
 * RDMUX_AGAIN then means that the host is a name. */
enum rdmux_status rdmux_address_resolve(const struct rdmux_address_text *text, bool passive,
                                        bool numeric, struct addrinfo **out);

/* Writes why a connection to these addresses, which have one port, was refused, in words. */
void rdmux_address_explain_refusal(const struct addrinfo *addresses, char *out, size_t size);

enum { RDMUX_ADDRESS_NETWORK_MAX = 9 };
/* Writes the key of the network that an address belongs to: the address kind, and an IPv4 address
 * or the upper 64 bits of an IPv6 address, since a network hands out the lower bits at will.
 * Returns the size of the key. */
size_t rdmux_address_network(const struct sockaddr_storage *address,
                             uint8_t key[RDMUX_ADDRESS_NETWORK_MAX]);

#endif
