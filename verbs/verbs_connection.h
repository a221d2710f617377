/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The bytes that both ends exchange: their whereabouts (in the offer, and again when connecting, as
 * addresses come and go), and the connection data of their queue pairs. Pure; decoding takes
 * untrusted bytes.
 *
 * Numbers are big-endian.
 *
 * Whereabouts. Offset, size, field:
 *    0  1  version, 1
 *    1  1  fabric, VERBS_FABRIC_*
 *    2  1  port of the device, from 1
 *    3  1  address family that this end prefers: 0 none, 4, 6
 *    4  1  number of addresses, at most 4
 *    5  1  number of P_Keys, at most 8
 *    6  2  LID, 0 if there is none
 *    8     addresses, 17 bytes each: kind (VERBS_ADDRESS_*), GID; one of each kind at most
 *          P_Keys, 2 bytes each
 *
 * Connection. Offset, size, field:
 *    0  4  "RDXV"
 *    4  1  version, 1
 *    5  1  path MTU, code 1 to 5
 *    6  1  local ACK delay, code
 *    7  1  service level
 *    8  1  reads and atomics that this end answers at a time
 *    9  1  reads and atomics that this end has in flight at a time
 *   10  1  requests over the side channel that this end takes at a time; 0: 16
 *   11  1  zero
 *   12  4  number of the data queue pair
 *   16  4  its first packet sequence number
 *   20  4  number of the side channel's queue pair, 0 if there is none
 *   24  4  its first packet sequence number
 *   28  4  longest message in bytes
 *   32  4  remote key of the flush word
 *   36  8  address of the flush word
 *   44     whereabouts
 * Bytes after these belong to a later version and are not read.
 */
#ifndef RDMUX_VERBS_CONNECTION_H
#define RDMUX_VERBS_CONNECTION_H

#include <rdmux/rdmux.h>

#include <stddef.h>
#include <stdint.h>

enum {
    VERBS_FABRIC_IB = 1,
    VERBS_FABRIC_ROCE = 2,
    VERBS_FABRIC_IWARP = 3,

    VERBS_GID_SIZE = 16,
    VERBS_ADDRESSES_MAX = 4,
    VERBS_PKEYS_MAX = 8,
    VERBS_WHEREABOUTS_MAX = 8 + VERBS_ADDRESSES_MAX * (1 + VERBS_GID_SIZE) + VERBS_PKEYS_MAX * 2,
    VERBS_CONNECTION_FIXED = 44,
    VERBS_CONNECTION_MAX = VERBS_CONNECTION_FIXED + VERBS_WHEREABOUTS_MAX,

    VERBS_SIDE_DEPTH = 16, /* most in-flight side channel requests of one end */

    VERBS_PKEY_FULL = 0x8000, /* full membership; the other 15 bits name the partition */
    VERBS_PSN_MASK = 0xffffff,
    VERBS_QPN_MASK = 0xffffff,
};

/* A smaller number is the better choice. */
enum verbs_address_kind {
    VERBS_ADDRESS_IB = 1,   /* subnet prefix and port GUID */
    VERBS_ADDRESS_IPV4 = 2, /* ::ffff:a.b.c.d */
    VERBS_ADDRESS_IPV6 = 3, /* any scope beyond the link */
    /* fe80::/10 or 169.254/16: valid within one link; the last choice */
    VERBS_ADDRESS_LINK_LOCAL = 4,
};

struct verbs_address {
    uint8_t kind;
    uint8_t gid[VERBS_GID_SIZE];
};

struct verbs_whereabouts {
    uint8_t fabric;
    uint8_t port;
    uint8_t prefers;
    uint8_t address_count;
    uint8_t pkey_count;
    uint16_t lid;
    struct verbs_address addresses[VERBS_ADDRESSES_MAX];
    uint16_t pkeys[VERBS_PKEYS_MAX];
};

struct verbs_connection {
    uint8_t mtu;
    uint8_t ack_delay;
    uint8_t service_level;
    uint8_t answers;
    uint8_t asks;
    uint8_t side_depth;
    uint32_t qpn;
    uint32_t psn;
    uint32_t side_qpn;
    uint32_t side_psn;
    uint32_t max_message;
    uint32_t flush_rkey;
    uint64_t flush_addr;
    struct verbs_whereabouts where;
};

/* Returns the bytes written, at most VERBS_WHEREABOUTS_MAX. */
size_t rdmux_verbs_whereabouts_encode(const struct verbs_whereabouts *where, uint8_t *out);
/* RDMUX_PROTOCOL: truncated, of another version, or invalid; *out is untouched then. */
enum rdmux_status rdmux_verbs_whereabouts_decode(const uint8_t *in, size_t size,
                                                 struct verbs_whereabouts *out);
/* Returns the bytes written, at most VERBS_CONNECTION_MAX. */
size_t rdmux_verbs_connection_encode(const struct verbs_connection *connection, uint8_t *out);
/* The same; whereabouts of another fabric than `fabric` are invalid, too. */
enum rdmux_status rdmux_verbs_connection_decode(const uint8_t *in, size_t size, uint8_t fabric,
                                                struct verbs_connection *out);

/* Returns the index of the address of a kind, VERBS_ADDRESSES_MAX if there is none. */
size_t rdmux_verbs_address_of_kind(const struct verbs_whereabouts *where, uint8_t kind);

/*
 * Returns the kind of address that both ends use, the same at both ends; 0: they have none in
 * common. IPv4 comes before IPv6 unless both prefer IPv6; link-local addresses come last.
 */
uint8_t rdmux_verbs_common_kind(const struct verbs_whereabouts *a,
                                const struct verbs_whereabouts *b);

/* Finds the partition that both ends are in, at least one of them as a full member. Of several the
 * highest number is taken, so that the default partition comes first. *ours: index in a's list.
 * RDMUX_UNSUPPORTED: none. */
enum rdmux_status rdmux_verbs_common_pkey(const struct verbs_whereabouts *a,
                                          const struct verbs_whereabouts *b, size_t *ours);

/* Prints a GID as an IPv4 or IPv6 address, or in the GID's own form. */
void rdmux_verbs_gid_print(uint8_t kind, const uint8_t gid[VERBS_GID_SIZE], char *out, size_t size);

/* Returns a device's number of reads in flight, at most `most`, for verbs_connection. */
static inline uint8_t verbs_read_depth(int depth, int most)
{
    return (uint8_t)(depth < 0 ? 0 : depth > most ? most : depth);
}

#endif
