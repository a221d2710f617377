/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Addresses of this host and its peers, as GIDs. */
#ifndef RDMUX_VERBS_ADDRESS_H
#define RDMUX_VERBS_ADDRESS_H

#include "verbs/verbs_connection.h"

#include <rdmux/provider.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct verbs_transport;

/* Converts an IP address to a GID, IPv4 mapped; zero for another family. */
void rdmux_verbs_address_to_gid(const struct sockaddr *address, uint8_t out[VERBS_GID_SIZE]);
/* Gives this host's address on the route to the peer, as a GID; zero: there is none, or peer is
 * NULL. [may sleep] */
void rdmux_verbs_local_address(const struct sockaddr *peer, uint32_t length,
                               uint8_t out[VERBS_GID_SIZE]);

/* The same, or the address that the program asks for (rdmux_ep_attr.local). [may sleep] */
void rdmux_verbs_own_address(const struct rdmux_provider_ep_attr *attr, uint8_t out[VERBS_GID_SIZE]);
/* Appends an address to the list in path->address, unless it has it already or has no room for it.
 * rdmux_ep_attr.local may name each address in the list. */
void rdmux_verbs_path_add_address(struct rdmux_local_path *path, const uint8_t gid[VERBS_GID_SIZE]);

/* rdmux_provider_ops.reach for fabrics whose ports are reached by IP addresses: both ends need an
 * address of one kind. */
enum rdmux_reason rdmux_verbs_reach_by_address(const struct verbs_transport *transport,
                                               const uint8_t *ours, size_t ours_length,
                                               const uint8_t *theirs, size_t theirs_length,
                                               char *text);

#endif
