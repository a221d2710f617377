/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Addresses as text. */
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

/* Splits "HOST:PORT", "HOST", ":PORT", "[IPv6]:PORT", "*:PORT"; a bare IPv6 address is a host. No
 * port: 7471. RDMUX_INVALID with a text that names the address. */
enum rdmux_status rdmux_address_split(const char *text, struct rdmux_address_text *out);
/* Numeric form; "socket" and false for what is not IP, or if there is no memory for it. */
bool rdmux_address_format(const struct sockaddr *address, socklen_t length,
                          char out[RDMUX_ADDRESS_MAX]);

struct addrinfo;
/* getaddrinfo() with its errors as statuses. numeric: never asks a name server; then RDMUX_AGAIN
 * means "is a name". */
enum rdmux_status rdmux_address_resolve(const struct rdmux_address_text *text, bool passive,
                                        bool numeric, struct addrinfo **out);

enum { RDMUX_ADDRESS_NETWORK_MAX = 9 };
/* A key for whom an address belongs to: its kind, and an IPv4 address, or the part of an IPv6 one that a network has, as
 * that hands out the rest at will. Returns its size. */
size_t rdmux_address_network(const struct sockaddr_storage *address,
                             uint8_t key[RDMUX_ADDRESS_NETWORK_MAX]);

#endif
