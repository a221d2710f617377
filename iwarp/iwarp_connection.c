/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "iwarp/iwarp_connection.h"

#include "api/base/bytes.h"

#include <string.h>

enum {
    VERSION = 1,
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_SHARES = 5,
    AT_PORTS = 8,
    PORT_SIZE = 2,

    PRIVATE_AT_LINK = 5,
    PRIVATE_AT_SECRET = 8,
};
_Static_assert(AT_PORTS + VERBS_ADDRESSES_MAX * PORT_SIZE == IWARP_CONNECTION_FIXED,
               "the ports end it");
_Static_assert(PRIVATE_AT_SECRET + RDMUX_SECRET_SIZE == IWARP_PRIVATE_SIZE, "the secret ends it");
_Static_assert((int)IWARP_CONNECTION_MAX <= (int)RDMUX_DESCRIPTION_MAX, "it fits");

static const uint8_t connection_magic[4] = { 'R', 'D', 'X', 'W' };
static const uint8_t private_magic[4] = { 'R', 'D', 'X', 'P' };

size_t rdmux_iwarp_connection_encode(const struct iwarp_connection *connection, uint8_t *out)
{
    memset(out, 0, IWARP_CONNECTION_FIXED);
    memcpy(out + AT_MAGIC, connection_magic, sizeof(connection_magic));
    out[AT_VERSION] = VERSION;
    out[AT_SHARES] = connection->shares_receives ? 1 : 0;
    for (size_t i = 0; i < VERBS_ADDRESSES_MAX; i++) {
        rdmux_store_be16(out + AT_PORTS + i * PORT_SIZE, connection->ports[i]);
    }
    return IWARP_CONNECTION_FIXED +
           rdmux_verbs_connection_encode(&connection->verbs, out + IWARP_CONNECTION_FIXED);
}

enum rdmux_status rdmux_iwarp_connection_decode(const uint8_t *in, size_t size,
                                                struct iwarp_connection *out)
{
    if (size < IWARP_CONNECTION_FIXED ||
        memcmp(in + AT_MAGIC, connection_magic, sizeof(connection_magic)) != 0 ||
        in[AT_VERSION] != VERSION) {
        return RDMUX_PROTOCOL;
    }
    struct iwarp_connection connection = { .shares_receives = in[AT_SHARES] != 0 };
    for (size_t i = 0; i < VERBS_ADDRESSES_MAX; i++) {
        connection.ports[i] = rdmux_load_be16(in + AT_PORTS + i * PORT_SIZE);
    }
    enum rdmux_status status = rdmux_verbs_connection_decode(in + IWARP_CONNECTION_FIXED,
                                                             size - IWARP_CONNECTION_FIXED,
                                                             VERBS_FABRIC_IWARP, &connection.verbs);
    if (status == RDMUX_OK) {
        *out = connection;
    }
    return status;
}

void rdmux_iwarp_private_encode(const struct iwarp_private *private, uint8_t out[IWARP_PRIVATE_SIZE])
{
    memset(out, 0, IWARP_PRIVATE_SIZE);
    memcpy(out + AT_MAGIC, private_magic, sizeof(private_magic));
    out[AT_VERSION] = VERSION;
    out[PRIVATE_AT_LINK] = private->link;
    memcpy(out + PRIVATE_AT_SECRET, private->secret, RDMUX_SECRET_SIZE);
}

enum rdmux_status rdmux_iwarp_private_decode(const uint8_t *in, size_t size,
                                             struct iwarp_private *out)
{
    if (size < IWARP_PRIVATE_SIZE ||
        memcmp(in + AT_MAGIC, private_magic, sizeof(private_magic)) != 0 ||
        in[AT_VERSION] != VERSION || in[PRIVATE_AT_LINK] >= IWARP_LINKS) {
        return RDMUX_PROTOCOL;
    }
    out->link = in[PRIVATE_AT_LINK];
    memcpy(out->secret, in + PRIVATE_AT_SECRET, RDMUX_SECRET_SIZE);
    return RDMUX_OK;
}

int rdmux_iwarp_same_secret(const uint8_t a[RDMUX_SECRET_SIZE], const uint8_t b[RDMUX_SECRET_SIZE])
{
    volatile uint8_t difference = 0;
    for (size_t i = 0; i < RDMUX_SECRET_SIZE; i++) {
        difference = (uint8_t)(difference | (a[i] ^ b[i]));
    }
    return difference == 0;
}
