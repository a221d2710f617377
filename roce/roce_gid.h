/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Which entries of a port's GID table an endpoint uses. A table has an entry for each address of
 * each network interface on the port and for each version of RoCE; its order says nothing and
 * changes as links and addresses come and go, so an index from configuration is wrong sooner or
 * later. Pure.
 */
#ifndef RDMUX_ROCE_GID_H
#define RDMUX_ROCE_GID_H

#include "verbs/verbs_connection.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ROCE_GID_TYPE_V2 = 2 }; /* enum ibv_gid_type */

/* One entry of the table, and what the kernel says of its interface. */
struct roce_gid {
    uint8_t gid[VERBS_GID_SIZE];
    uint32_t index;
    uint32_t type;
    /* index of the network interface, 0: none, or of another network namespace */
    uint32_t interface;
    bool interface_is_up; /* has a carrier and is in this namespace */
    bool is_vlan;
};

/* What the choice is for. */
struct roce_wish {
    /* our address on the way to the peer, mapped; zero if it is not known */
    uint8_t local[VERBS_GID_SIZE];
    uint32_t interface; /* that it belongs to, 0 if that is not known */
};

/* The chosen entry of each kind of address. */
struct roce_choice {
    size_t count;
    uint8_t kinds[VERBS_ADDRESSES_MAX];
    size_t entries[VERBS_ADDRESSES_MAX]; /* in the table given */
};

/* Why a table has nothing to offer. */
enum roce_lack {
    ROCE_LACK_NOTHING,
    ROCE_LACK_ENTRIES,   /* it is empty */
    ROCE_LACK_VERSION_2, /* RoCE v1 only, which no router forwards */
    ROCE_LACK_INTERFACE, /* its interfaces are down, or in another network namespace */
    ROCE_LACK_ADDRESS,   /* no address */
};

/* The kind of a RoCE GID, 0 for none that can be used. */
uint8_t rdmux_roce_gid_kind(const uint8_t gid[VERBS_GID_SIZE]);

/*
 * For each kind of address the best entry: of version 2, on an interface that is up and in this
 * network namespace; of several the one with the wished address, then one on the wished interface,
 * then one without VLAN, then the lowest index. Kinds come in the order of their numbers.
 */
enum roce_lack rdmux_roce_gid_choose(const struct roce_gid *table, size_t count,
                                     const struct roce_wish *wish, struct roce_choice *out);

#endif
