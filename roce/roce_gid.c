/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "roce/roce_gid.h"

#include "verbs/verbs_connection.h"

#include <string.h>

enum { V4_AT = 12 };

static const uint8_t nothing[VERBS_GID_SIZE];

static bool is_mapped(const uint8_t *gid)
{
    static const uint8_t mapped[V4_AT] = { [10] = 0xff, [11] = 0xff };
    return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

uint8_t rdmux_roce_gid_kind(const uint8_t gid[VERBS_GID_SIZE])
{
    if (memcmp(gid, nothing, sizeof(nothing)) == 0) {
        return 0;
    }
    if (is_mapped(gid)) {
        bool is_zero = memcmp(gid + V4_AT, nothing, 4) == 0;
        bool is_link_local = gid[V4_AT] == 169 && gid[V4_AT + 1] == 254;
        return is_zero ? 0 : is_link_local ? VERBS_ADDRESS_LINK_LOCAL : VERBS_ADDRESS_IPV4;
    }
    if (gid[0] == 0xff) {
        return 0; /* multicast */
    }
    return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 ? VERBS_ADDRESS_LINK_LOCAL
                                                     : VERBS_ADDRESS_IPV6;
}

/* Ranks an entry; higher is better. */
static int merit_of_gid(const struct roce_gid *entry, const struct roce_wish *wish)
{
    bool is_wished = memcmp(wish->local, nothing, sizeof(nothing)) != 0 &&
                     memcmp(wish->local, entry->gid, sizeof(entry->gid)) == 0;
    bool is_near = wish->interface != 0 && wish->interface == entry->interface;
    return (is_wished ? 4 : 0) + (is_near ? 2 : 0) + (entry->is_vlan ? 0 : 1);
}

static bool is_better(const struct roce_gid *a, const struct roce_gid *b,
                      const struct roce_wish *wish)
{
    int a_merit = merit_of_gid(a, wish);
    int b_merit = merit_of_gid(b, wish);
    return a_merit != b_merit ? a_merit > b_merit : a->index < b->index;
}

bool rdmux_roce_gid_is_usable(const struct roce_gid *entry)
{
    return entry->type == ROCE_GID_TYPE_V2 && entry->interface != 0 && entry->is_interface_up;
}

static enum roce_lack find_lack(const struct roce_gid *table, size_t count)
{
    enum roce_lack lack = count == 0 ? ROCE_LACK_ENTRIES : ROCE_LACK_VERSION_2;
    for (size_t i = 0; i < count; i++) {
        if (table[i].type == ROCE_GID_TYPE_V2) {
            if (rdmux_roce_gid_is_usable(&table[i])) {
                return ROCE_LACK_ADDRESS;
            }
            lack = ROCE_LACK_INTERFACE;
        }
    }
    return lack;
}

enum roce_lack rdmux_roce_gid_choose(const struct roce_gid *table, size_t count,
                                     const struct roce_wish *wish, struct roce_choice *out)
{
    out->count = 0;
    for (int kind = VERBS_ADDRESS_IPV4; kind <= VERBS_ADDRESS_LINK_LOCAL; kind++) {
        size_t best = count;
        for (size_t i = 0; i < count; i++) {
            if (rdmux_roce_gid_is_usable(&table[i]) && rdmux_roce_gid_kind(table[i].gid) == kind &&
                (best == count || is_better(&table[i], &table[best], wish))) {
                best = i;
            }
        }
        if (best < count) {
            out->kinds[out->count] = (uint8_t)kind;
            out->entries[out->count++] = best;
        }
    }
    return out->count > 0 ? ROCE_LACK_NOTHING : find_lack(table, count);
}
