/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* HELLO and ADVERT of streams as bytes. */
#include "stream/stream_wire.h"

#include "api/base/bytes.h"
#include "api/base/error.h"

#include <string.h>

static const uint8_t magic[RDMUX_HELLO_AT_VERSION] = { 'r', 'd', 'm', 'u', 'x', 's', 't', 'r' };

_Static_assert((int)RDMUX_STREAM_RING_MAX <= (int)RDMUX_STREAM_FREED_MAX,
               "a whole ring can be freed at once");

void rdmux_stream_hello_encode(const struct rdmux_stream_hello *hello,
                               uint8_t out[RDMUX_STREAM_HELLO_SIZE])
{
    memcpy(out, magic, sizeof(magic));
    rdmux_store_be32(out + RDMUX_HELLO_AT_VERSION, RDMUX_STREAM_VERSION);
    rdmux_store_be32(out + RDMUX_HELLO_AT_SLOTS, hello->slots);
    rdmux_store_be64(out + RDMUX_HELLO_AT_RING, hello->ring);
    rdmux_store_be64(out + RDMUX_HELLO_AT_WINDOW, hello->window);
    memcpy(out + RDMUX_HELLO_AT_TOKEN, hello->token.bytes, RDMUX_TOKEN_SIZE);
}

enum rdmux_status rdmux_stream_hello_decode(const uint8_t *in, size_t size,
                                            struct rdmux_stream_hello *out)
{
    if (size != RDMUX_STREAM_HELLO_SIZE || memcmp(in, magic, sizeof(magic)) != 0) {
        return rdmux_fail(RDMUX_PROTOCOL,
                          "the peer's first message is no greeting of a stream; both sides open a "
                          "stream, or neither");
    }
    const uint32_t version = rdmux_load_be32(in + RDMUX_HELLO_AT_VERSION);
    if (version != RDMUX_STREAM_VERSION) {
        return rdmux_fail(RDMUX_VERSION,
                          "the peer's streams have version %u, ours %d; use the same release",
                          version, RDMUX_STREAM_VERSION);
    }
    struct rdmux_stream_hello hello = {
        .slots = rdmux_load_be32(in + RDMUX_HELLO_AT_SLOTS),
        .ring = rdmux_load_be64(in + RDMUX_HELLO_AT_RING),
        .window = rdmux_load_be64(in + RDMUX_HELLO_AT_WINDOW),
    };
    if (hello.slots == 0 || hello.slots > RDMUX_STREAM_SLOTS_MAX ||
        !rdmux_stream_ring_is_good(hello.ring) || !rdmux_stream_ring_is_good(hello.window)) {
        return rdmux_fail(RDMUX_PROTOCOL,
                          "the peer's greeting has %u slots, a ring of %llu and a window of %llu "
                          "bytes, which no stream has",
                          hello.slots, (unsigned long long)hello.ring,
                          (unsigned long long)hello.window);
    }
    memcpy(hello.token.bytes, in + RDMUX_HELLO_AT_TOKEN, RDMUX_TOKEN_SIZE);
    *out = hello;
    return RDMUX_OK;
}

void rdmux_stream_advert_encode(const struct rdmux_stream_advert *advert,
                                uint8_t out[RDMUX_STREAM_ADVERT_SIZE])
{
    rdmux_store_be64(out, advert->index);
    rdmux_store_be64(out + 8, advert->length);
}

enum rdmux_status rdmux_stream_advert_decode(const uint8_t *in, size_t size,
                                             struct rdmux_stream_advert *out)
{
    if (size != RDMUX_STREAM_ADVERT_SIZE || rdmux_load_be64(in + 8) == 0) {
        return rdmux_fail(RDMUX_PROTOCOL, "the peer offers a direct receive of no bytes");
    }
    out->index = rdmux_load_be64(in);
    out->length = rdmux_load_be64(in + 8);
    return RDMUX_OK;
}
