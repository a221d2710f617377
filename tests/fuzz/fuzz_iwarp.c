/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * iWARP against a stranger's bytes: connection data and private data of a connector, and headers
 * and side channel messages of an accepted peer. Accepted bytes are encoded again. The side
 * channel's messages are decoded in sequence, because credits depend on earlier messages.
 */
#include "driver.h"

#include "iwarp/iwarp_connection.h"
#include "iwarp/iwarp_credit.h"
#include "iwarp/iwarp_message.h"

#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static bool is_same_connection(const struct iwarp_connection *a, const struct iwarp_connection *b)
{
    uint8_t bytes[2][IWARP_CONNECTION_MAX];
    size_t size = rdmux_iwarp_connection_encode(a, bytes[0]);
    return rdmux_iwarp_connection_encode(b, bytes[1]) == size && size <= IWARP_CONNECTION_MAX &&
           memcmp(bytes[0], bytes[1], size) == 0;
}

static void try_connection(const uint8_t *data, size_t size)
{
    struct iwarp_connection connection;
    struct iwarp_connection again;
    uint8_t bytes[IWARP_CONNECTION_MAX];
    if (rdmux_iwarp_connection_decode(data, size, &connection) != RDMUX_OK) {
        return;
    }
    require(connection.verbs.where.address_count <= VERBS_ADDRESSES_MAX);
    size_t used = rdmux_iwarp_connection_encode(&connection, bytes);
    require(rdmux_iwarp_connection_decode(bytes, used, &again) == RDMUX_OK);
    require(is_same_connection(&connection, &again));
}

static void try_private(const uint8_t *data, size_t size)
{
    struct iwarp_private private;
    struct iwarp_private again;
    uint8_t bytes[IWARP_PRIVATE_SIZE];
    if (rdmux_iwarp_private_decode(data, size, &private) != RDMUX_OK) {
        return;
    }
    require(private.link < IWARP_LINKS);
    rdmux_iwarp_private_encode(&private, bytes);
    require(rdmux_iwarp_private_decode(bytes, sizeof(bytes), &again) == RDMUX_OK);
    require(private.link == again.link &&
            rdmux_iwarp_same_secret(private.secret, again.secret) != 0);
}

static void try_header(const uint8_t *data, size_t size)
{
    const uint64_t longest = 70000; /* write that the peer may have made */
    struct iwarp_header header;
    uint8_t bytes[IWARP_HEADER_SIZE];
    if (rdmux_iwarp_header_decode(data, size, longest, &header) != RDMUX_OK) {
        return;
    }
    require(header.length <= (header.kind == IWARP_NOTICE ? longest : size - IWARP_HEADER_SIZE));
    require(header.kind == IWARP_NOTICE || header.length == size - IWARP_HEADER_SIZE);
    require(header.kind == IWARP_MESSAGE || header.has_imm);
    rdmux_iwarp_header_encode(&header, bytes);
    require(memcmp(bytes + 4, data + 4, sizeof(bytes) - 4) == 0);
}

/* A peer with credits of ours sends messages and reports arbitrary counts of them. */
static void try_side(const uint8_t *data, size_t size)
{
    struct iwarp_credit credit = { .given = { .posted = 8 } };
    for (; size >= IWARP_SIDE_SIZE; data += IWARP_SIDE_SIZE, size -= IWARP_SIDE_SIZE) {
        struct iwarp_side message;
        struct iwarp_side again;
        struct iwarp_credit_news news;
        uint8_t bytes[IWARP_SIDE_SIZE];
        if (rdmux_iwarp_side_decode(data, IWARP_SIDE_SIZE, &message) != RDMUX_OK) {
            return;
        }
        rdmux_iwarp_side_encode(&message, bytes);
        require(rdmux_iwarp_side_decode(bytes, sizeof(bytes), &again) == RDMUX_OK);
        require(again.kind == message.kind && again.seen == message.seen &&
                again.granted == message.granted && again.returned == message.returned &&
                again.known == message.known);
        if (message.kind != IWARP_SIDE_CREDITS && message.kind != IWARP_SIDE_SEEN) {
            continue;
        }
        if (rdmux_iwarp_credit_hear(&credit, &message, &news) != RDMUX_OK) {
            return;
        }
        require(iwarp_credit_left(&credit) <= RDMUX_CREDITS_MAX);
        (void)iwarp_credit_spend(&credit);
        (void)rdmux_iwarp_credit_tell(&credit, &again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_connection(data, size);
    try_private(data, size);
    try_header(data, size);
    try_side(data, size);
    return 0;
}
