/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A stranger's first bytes and frame headers: the outermost decoders. */
#include "driver.h"

#include "negotiation/handshake.h"
#include "negotiation/message.h"

#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* Decodes bytes that arrive one at a time: a result, once reported, never changes. */
static void read_slowly(const uint8_t *data, size_t size, bool first)
{
    size_t told = 0;
    bool was_bad = false;
    for (size_t have = 0; have <= size && have <= 16; have++) {
        bool bad = true;
        size_t total = rdmux_frame_total(data, have, first, &bad);
        require(!(bad && total != 0));
        require(!was_bad || bad);
        require(told == 0 || total == told);
        require(have < 8 || bad || total != 0);
        require(total <= (size_t)RDMUX_FRAME_HEADER_SIZE + RDMUX_FRAME_PAYLOAD_MAX);
        told = total;
        was_bad = bad;
    }
}

static void decode_hello(const uint8_t *data, size_t size)
{
    struct rdmux_hello hello;
    struct rdmux_hello again;
    uint8_t bytes[RDMUX_HELLO_SIZE];
    memset(&hello, 0, sizeof(hello));
    memset(&again, 0, sizeof(again));
    if (rdmux_hello_decode(data, size, &hello) != RDMUX_OK) {
        return;
    }
    require(hello.version_min != 0 && hello.version_min <= hello.version_max);
    rdmux_hello_encode(&hello, bytes);
    require(rdmux_hello_decode(bytes, sizeof(bytes), &again) == RDMUX_OK);
    require(memcmp(&hello, &again, sizeof(hello)) == 0);
}

static void decode_join(const uint8_t *data, size_t size)
{
    struct rdmux_join join;
    uint8_t bytes[RDMUX_JOIN_SIZE];
    if (size < RDMUX_JOIN_SIZE || rdmux_join_decode(data, &join) != RDMUX_OK) {
        return;
    }
    rdmux_join_encode(&join, bytes);
    require(rdmux_frame_is_join(bytes));
    require(memcmp(bytes + 12, data + 12, 28) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_slowly(data, size, true);
    read_slowly(data, size, false);
    decode_hello(data, size);
    decode_join(data, size);
    return 0;
}
