/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "verbs/verbs_connection.h"

#include "api/base/bytes.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

enum {
    WHERE_VERSION = 1,
    WHERE_AT_VERSION = 0,
    WHERE_AT_FABRIC = 1,
    WHERE_AT_PORT = 2,
    WHERE_AT_PREFERS = 3,
    WHERE_AT_ADDRESSES = 4,
    WHERE_AT_PKEYS = 5,
    WHERE_AT_LID = 6,
    WHERE_FIXED = 8,
    ADDRESS_SIZE = 1 + VERBS_GID_SIZE,
    PKEY_SIZE = 2,

    CONNECTION_VERSION = 1,
    CONNECTION_AT_MAGIC = 0,
    CONNECTION_AT_VERSION = 4,
    CONNECTION_AT_MTU = 5,
    CONNECTION_AT_ACK_DELAY = 6,
    CONNECTION_AT_SERVICE_LEVEL = 7,
    CONNECTION_AT_ANSWERS = 8,
    CONNECTION_AT_ASKS = 9,
    CONNECTION_AT_SIDE_DEPTH = 10,
    CONNECTION_AT_QPN = 12,
    CONNECTION_AT_PSN = 16,
    CONNECTION_AT_SIDE_QPN = 20,
    CONNECTION_AT_SIDE_PSN = 24,
    CONNECTION_AT_MAX_MESSAGE = 28,
    CONNECTION_AT_FLUSH_RKEY = 32,
    CONNECTION_AT_FLUSH_ADDR = 36,

    MTU_MIN = 1,
    MTU_MAX = 5,
    CODE_MAX = 31, /* five bits */
    SERVICE_LEVEL_MAX = 15,
    V4_AT = 12, /* offset in a mapped GID */
};
_Static_assert(CONNECTION_AT_FLUSH_ADDR + 8 == VERBS_CONNECTION_FIXED, "the fixed part ends there");
_Static_assert(VERBS_CONNECTION_MAX <= 512, "it is a provider's connection data");

static const uint8_t magic[4] = { 'R', 'D', 'X', 'V' };

/* ---------------------------------------------------------------------------------- whereabouts */

size_t rdmux_verbs_whereabouts_encode(const struct verbs_whereabouts *where, uint8_t *out)
{
    out[WHERE_AT_VERSION] = WHERE_VERSION;
    out[WHERE_AT_FABRIC] = where->fabric;
    out[WHERE_AT_PORT] = where->port;
    out[WHERE_AT_PREFERS] = where->prefers;
    out[WHERE_AT_ADDRESSES] = where->address_count;
    out[WHERE_AT_PKEYS] = where->pkey_count;
    rdmux_store_be16(out + WHERE_AT_LID, where->lid);
    uint8_t *at = out + WHERE_FIXED;
    for (size_t i = 0; i < where->address_count; i++) {
        at[0] = where->addresses[i].kind;
        memcpy(at + 1, where->addresses[i].gid, VERBS_GID_SIZE);
        at += ADDRESS_SIZE;
    }
    for (size_t i = 0; i < where->pkey_count; i++) {
        rdmux_store_be16(at, where->pkeys[i]);
        at += PKEY_SIZE;
    }
    return (size_t)(at - out);
}

static bool is_sensible(const struct verbs_whereabouts *where)
{
    if (where->fabric < VERBS_FABRIC_IB || where->fabric > VERBS_FABRIC_IWARP || where->port == 0 ||
        (where->prefers != 0 && where->prefers != 4 && where->prefers != 6)) {
        return false;
    }
    for (size_t i = 0; i < where->address_count; i++) {
        const struct verbs_address *address = &where->addresses[i];
        if (address->kind < VERBS_ADDRESS_IB || address->kind > VERBS_ADDRESS_LINK_LOCAL ||
            rdmux_verbs_address_of_kind(where, address->kind) != i) {
            return false;
        }
    }
    return true;
}

enum rdmux_status rdmux_verbs_whereabouts_decode(const uint8_t *in, size_t size,
                                                 struct verbs_whereabouts *out)
{
    if (size < WHERE_FIXED || in[WHERE_AT_VERSION] != WHERE_VERSION) {
        return RDMUX_PROTOCOL;
    }
    struct verbs_whereabouts where = {
        .fabric = in[WHERE_AT_FABRIC],
        .port = in[WHERE_AT_PORT],
        .prefers = in[WHERE_AT_PREFERS],
        .address_count = in[WHERE_AT_ADDRESSES],
        .pkey_count = in[WHERE_AT_PKEYS],
        .lid = rdmux_load_be16(in + WHERE_AT_LID),
    };
    if (where.address_count > VERBS_ADDRESSES_MAX || where.pkey_count > VERBS_PKEYS_MAX ||
        size - WHERE_FIXED <
            (size_t)where.address_count * ADDRESS_SIZE + (size_t)where.pkey_count * PKEY_SIZE) {
        return RDMUX_PROTOCOL;
    }
    const uint8_t *at = in + WHERE_FIXED;
    for (size_t i = 0; i < where.address_count; i++) {
        where.addresses[i].kind = at[0];
        memcpy(where.addresses[i].gid, at + 1, VERBS_GID_SIZE);
        at += ADDRESS_SIZE;
    }
    for (size_t i = 0; i < where.pkey_count; i++) {
        where.pkeys[i] = rdmux_load_be16(at);
        at += PKEY_SIZE;
    }
    if (!is_sensible(&where)) {
        return RDMUX_PROTOCOL;
    }
    *out = where;
    return RDMUX_OK;
}

size_t rdmux_verbs_address_of_kind(const struct verbs_whereabouts *where, uint8_t kind)
{
    for (size_t i = 0; i < where->address_count; i++) {
        if (where->addresses[i].kind == kind) {
            return i;
        }
    }
    return VERBS_ADDRESSES_MAX;
}

static bool both_have(const struct verbs_whereabouts *a, const struct verbs_whereabouts *b,
                      uint8_t kind)
{
    return rdmux_verbs_address_of_kind(a, kind) < VERBS_ADDRESSES_MAX &&
           rdmux_verbs_address_of_kind(b, kind) < VERBS_ADDRESSES_MAX;
}

uint8_t rdmux_verbs_common_kind(const struct verbs_whereabouts *a, const struct verbs_whereabouts *b)
{
    if (a->prefers == 6 && b->prefers == 6 && both_have(a, b, VERBS_ADDRESS_IPV6)) {
        return VERBS_ADDRESS_IPV6;
    }
    for (int kind = VERBS_ADDRESS_IB; kind <= VERBS_ADDRESS_LINK_LOCAL; kind++) {
        if (both_have(a, b, (uint8_t)kind)) {
            return (uint8_t)kind;
        }
    }
    return 0;
}

enum rdmux_status rdmux_verbs_common_pkey(const struct verbs_whereabouts *a,
                                          const struct verbs_whereabouts *b, size_t *ours)
{
    const uint16_t partition_bits = VERBS_PKEY_FULL - 1;
    int best = -1;
    for (size_t i = 0; i < a->pkey_count; i++) {
        for (size_t j = 0; j < b->pkey_count; j++) {
            uint16_t partition = a->pkeys[i] & partition_bits;
            if (partition == (b->pkeys[j] & partition_bits) && partition != 0 &&
                ((a->pkeys[i] | b->pkeys[j]) & VERBS_PKEY_FULL) != 0 && (int)partition > best) {
                best = partition;
                *ours = i;
            }
        }
    }
    return best < 0 ? RDMUX_UNSUPPORTED : RDMUX_OK;
}

void rdmux_verbs_gid_print(uint8_t kind, const uint8_t gid[VERBS_GID_SIZE], char *out, size_t size)
{
    static const uint8_t mapped[V4_AT] = { [10] = 0xff, [11] = 0xff };
    bool is_v4 = kind != VERBS_ADDRESS_IB && memcmp(gid, mapped, sizeof(mapped)) == 0;
    const char *text = inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? gid + V4_AT : gid, out,
                                 (socklen_t)size);
    if (text == NULL && size > 0) {
        out[0] = '\0';
    }
}

/* ----------------------------------------------------------------------------------- connection */

size_t rdmux_verbs_connection_encode(const struct verbs_connection *connection, uint8_t *out)
{
    memset(out, 0, VERBS_CONNECTION_FIXED);
    memcpy(out + CONNECTION_AT_MAGIC, magic, sizeof(magic));
    out[CONNECTION_AT_VERSION] = CONNECTION_VERSION;
    out[CONNECTION_AT_MTU] = connection->mtu;
    out[CONNECTION_AT_ACK_DELAY] = connection->ack_delay;
    out[CONNECTION_AT_SERVICE_LEVEL] = connection->service_level;
    out[CONNECTION_AT_ANSWERS] = connection->answers;
    out[CONNECTION_AT_ASKS] = connection->asks;
    out[CONNECTION_AT_SIDE_DEPTH] = connection->side_depth;
    rdmux_store_be32(out + CONNECTION_AT_QPN, connection->qpn);
    rdmux_store_be32(out + CONNECTION_AT_PSN, connection->psn);
    rdmux_store_be32(out + CONNECTION_AT_SIDE_QPN, connection->side_qpn);
    rdmux_store_be32(out + CONNECTION_AT_SIDE_PSN, connection->side_psn);
    rdmux_store_be32(out + CONNECTION_AT_MAX_MESSAGE, connection->max_message);
    rdmux_store_be32(out + CONNECTION_AT_FLUSH_RKEY, connection->flush_rkey);
    rdmux_store_be64(out + CONNECTION_AT_FLUSH_ADDR, connection->flush_addr);
    return VERBS_CONNECTION_FIXED +
           rdmux_verbs_whereabouts_encode(&connection->where, out + VERBS_CONNECTION_FIXED);
}

static bool connection_is_sensible(const struct verbs_connection *connection, uint8_t fabric)
{
    return connection->mtu >= MTU_MIN && connection->mtu <= MTU_MAX &&
           connection->ack_delay <= CODE_MAX && connection->service_level <= SERVICE_LEVEL_MAX &&
           connection->qpn <= VERBS_QPN_MASK && connection->psn <= VERBS_PSN_MASK &&
           connection->side_qpn <= VERBS_QPN_MASK && connection->side_psn <= VERBS_PSN_MASK &&
           connection->max_message > 0 && connection->where.fabric == fabric;
}

enum rdmux_status rdmux_verbs_connection_decode(const uint8_t *in, size_t size, uint8_t fabric,
                                                struct verbs_connection *out)
{
    if (size < VERBS_CONNECTION_FIXED || memcmp(in, magic, sizeof(magic)) != 0 ||
        in[CONNECTION_AT_VERSION] != CONNECTION_VERSION) {
        return RDMUX_PROTOCOL;
    }
    struct verbs_connection connection = {
        .mtu = in[CONNECTION_AT_MTU],
        .ack_delay = in[CONNECTION_AT_ACK_DELAY],
        .service_level = in[CONNECTION_AT_SERVICE_LEVEL],
        .answers = in[CONNECTION_AT_ANSWERS],
        .asks = in[CONNECTION_AT_ASKS],
        .side_depth = in[CONNECTION_AT_SIDE_DEPTH] != 0 ? in[CONNECTION_AT_SIDE_DEPTH]
                                                        : (uint8_t)VERBS_SIDE_DEPTH,
        .qpn = rdmux_load_be32(in + CONNECTION_AT_QPN),
        .psn = rdmux_load_be32(in + CONNECTION_AT_PSN),
        .side_qpn = rdmux_load_be32(in + CONNECTION_AT_SIDE_QPN),
        .side_psn = rdmux_load_be32(in + CONNECTION_AT_SIDE_PSN),
        .max_message = rdmux_load_be32(in + CONNECTION_AT_MAX_MESSAGE),
        .flush_rkey = rdmux_load_be32(in + CONNECTION_AT_FLUSH_RKEY),
        .flush_addr = rdmux_load_be64(in + CONNECTION_AT_FLUSH_ADDR),
    };
    enum rdmux_status status = rdmux_verbs_whereabouts_decode(
        in + VERBS_CONNECTION_FIXED, size - VERBS_CONNECTION_FIXED, &connection.where);
    if (status != RDMUX_OK) {
        return status;
    }
    if (!connection_is_sensible(&connection, fabric)) {
        return RDMUX_PROTOCOL;
    }
    *out = connection;
    return RDMUX_OK;
}
