/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Choice of the entries of a port's GID table that an endpoint uses. A table has an entry for each
 * address of each network interface on the port and for each version of RoCE. The order means
 * nothing and changes as links and addresses come and go, so a configured index is wrong sooner or
 * later. Pure.
 */
#ifndef RDMUX_ROCE_GID_H
#define RDMUX_ROCE_GID_H

#include "verbs/verbs_connection.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ROCE_GID_TYPE_V2 = 2 }; /* enum ibv_gid_type */

/* Entry of the table, with the kernel's data of its interface. */
struct roce_gid {
    uint8_t gid[VERBS_GID_SIZE];
    uint32_t index;
    uint32_t type;
    /* index of the network interface; 0: none, or in another network namespace */
    uint32_t interface;
    bool is_interface_up; /* has a carrier and is in this namespace */
    bool is_vlan;
};

/* Criteria of the choice. */
struct roce_wish {
    /* this host's address on the route to the peer, mapped; zero if unknown */
    uint8_t local[VERBS_GID_SIZE];
    uint32_t interface; /* interface of that address, 0 if unknown */
};

/* The chosen entry of each kind of address. */
struct roce_choice {
    size_t count;
    uint8_t kinds[VERBS_ADDRESSES_MAX];
    size_t entries[VERBS_ADDRESSES_MAX]; /* indexes into the table */
};

/* Reason why a table has no usable entry. */
enum roce_lack {
    ROCE_LACK_NOTHING,
    ROCE_LACK_ENTRIES,   /* the table is empty */
    ROCE_LACK_VERSION_2, /* RoCE v1 entries only, which no router forwards */
    ROCE_LACK_INTERFACE, /* the interfaces are down or in another network namespace */
    ROCE_LACK_ADDRESS,   /* no entry has a usable address */
};

/* Returns the kind of a RoCE GID, 0 if it cannot be used. */
uint8_t rdmux_roce_gid_kind(const uint8_t gid[VERBS_GID_SIZE]);

/* Returns whether an entry is of version 2, on an interface that is up and in this network
 * namespace. */
bool rdmux_roce_gid_is_usable(const struct roce_gid *entry);

/*
 * Chooses the best usable entry for each kind of address. Of several the one with the wished
 * address comes first, then one on the wished interface, then one without VLAN, then the lowest
 * index. Kinds come in the order of their numbers.
 */
enum roce_lack rdmux_roce_gid_choose(const struct roce_gid *table, size_t count,
                                     const struct roce_wish *wish, struct roce_choice *out);

#endif
