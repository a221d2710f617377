/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * InfiniBand and RoCE against a stranger's bytes: whereabouts in an offer, connection data,
 * descriptions of regions, messages of the side channel. Accepted bytes are encoded again, and
 * their values are within bounds.
 */
#include "driver.h"

#include "verbs/verbs_connection.h"
#include "verbs/verbs_description.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void try_whereabouts(const uint8_t *data, size_t size)
{
    struct verbs_whereabouts where;
    struct verbs_whereabouts again;
    uint8_t bytes[VERBS_WHEREABOUTS_MAX];
    uint8_t second[VERBS_WHEREABOUTS_MAX];
    memset(&where, 0, sizeof(where));
    if (rdmux_verbs_whereabouts_decode(data, size, &where) != RDMUX_OK) {
        return;
    }
    require(where.address_count <= VERBS_ADDRESSES_MAX && where.pkey_count <= VERBS_PKEYS_MAX);
    size_t used = rdmux_verbs_whereabouts_encode(&where, bytes);
    require(used <= sizeof(bytes));
    require(rdmux_verbs_whereabouts_decode(bytes, used, &again) == RDMUX_OK);
    require(rdmux_verbs_whereabouts_encode(&again, second) == used &&
            memcmp(bytes, second, used) == 0);
    size_t ours = 0;
    uint8_t kind = rdmux_verbs_common_kind(&where, &again);
    require(kind == 0 || rdmux_verbs_address_of_kind(&where, kind) < VERBS_ADDRESSES_MAX);
    if (rdmux_verbs_common_pkey(&where, &again, &ours) == RDMUX_OK) {
        require(ours < where.pkey_count);
    }
    for (uint8_t i = 0; i < where.address_count; i++) {
        char text[48];
        rdmux_verbs_gid_print(where.addresses[i].kind, where.addresses[i].gid, text, sizeof(text));
        require(memchr(text, '\0', sizeof(text)) != NULL);
    }
}

static void try_connection(const uint8_t *data, size_t size)
{
    for (int fabric = VERBS_FABRIC_IB; fabric <= VERBS_FABRIC_IWARP; fabric++) {
        struct verbs_connection connection;
        struct verbs_connection again;
        uint8_t bytes[VERBS_CONNECTION_MAX];
        if (rdmux_verbs_connection_decode(data, size, (uint8_t)fabric, &connection) != RDMUX_OK) {
            continue;
        }
        require(connection.where.fabric == fabric);
        require(connection.qpn <= VERBS_QPN_MASK && connection.psn <= VERBS_PSN_MASK);
        require(connection.side_qpn <= VERBS_QPN_MASK && connection.side_psn <= VERBS_PSN_MASK);
        size_t used = rdmux_verbs_connection_encode(&connection, bytes);
        require(used <= sizeof(bytes));
        require(rdmux_verbs_connection_decode(bytes, used, (uint8_t)fabric, &again) == RDMUX_OK);
        require(again.qpn == connection.qpn && again.psn == connection.psn &&
                again.answers == connection.answers && again.asks == connection.asks &&
                again.flush_addr == connection.flush_addr);
    }
}

static void try_region(const uint8_t *data, size_t size)
{
    static const uint64_t lengths[] = { 1, 4096, UINT64_C(1) << 40, UINT64_MAX };
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct verbs_region region;
        uint8_t bytes[VERBS_REGION_SIZE];
        if (rdmux_verbs_region_decode(data, size, lengths[i], &region) != RDMUX_OK) {
            continue;
        }
        require(lengths[i] <= UINT64_MAX - region.addr);
        require((region.flags & VERBS_REGION_NATIVE_ATOMICS) == 0 ||
                (region.flags & VERBS_REGION_HAS_KEY) != 0);
        rdmux_verbs_region_encode(&region, bytes);
        require(memcmp(bytes + 4, data + 4, sizeof(bytes) - 4) == 0);
    }
}

static void try_side(const uint8_t *data, size_t size)
{
    struct verbs_side_message message;
    uint8_t bytes[VERBS_SIDE_SIZE];
    if (rdmux_verbs_side_decode(data, size, &message) != RDMUX_OK) {
        return;
    }
    require(message.kind == VERBS_SIDE_REQUEST
                ? message.op == RDMUX_OP_FETCH_ADD || message.op == RDMUX_OP_COMPARE_SWAP
                : message.op <= RDMUX_IO);
    rdmux_verbs_side_encode(&message, bytes);
    require(memcmp(bytes + 4, data + 4, sizeof(bytes) - 4) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_whereabouts(data, size);
    try_connection(data, size);
    try_region(data, size);
    try_side(data, size);
    return 0;
}
