/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Connection data and directory slots as bytes. */
#include "adapters/fi/fi_directory.h"

#include <string.h>

enum {
    AT_VERSION = 4,
    AT_LENGTH = 6,
    AT_DIRECTORY = 8,
    AT_FAMILY = 72,
    AT_HOST = 76,
    GREETING_VERSION = 1,

    AT_KEY = 0,
    AT_ADDRESS = 8,
    AT_SIZE = 16,
    AT_ACCESS = 24,
    AT_TOKEN = 32,
    AT_DIGEST = 96,
};
_Static_assert(AT_HOST + FI_HOST_SIZE == FI_GREETING_SIZE, "the address ends the greeting");
_Static_assert(AT_TOKEN + RDMUX_TOKEN_SIZE == AT_DIGEST, "the digest follows the token");

static const uint8_t greeting_magic[4] = { 'R', 'D', 'F', 'I' };

static void store_be(uint8_t *out, uint64_t value, size_t size)
{
    for (size_t i = size; i-- > 0; value >>= 8) {
        out[i] = (uint8_t)value;
    }
}

static uint64_t load_be(const uint8_t *in, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value = value << 8 | in[i];
    }
    return value;
}

size_t rdmux_fi_greeting_encode(const struct rdmux_fi_greeting *greeting,
                                uint8_t out[RDMUX_PRIVATE_DATA_MAX])
{
    memset(out, 0, FI_GREETING_SIZE);
    memcpy(out, greeting_magic, sizeof(greeting_magic));
    out[AT_VERSION] = GREETING_VERSION;
    store_be(out + AT_LENGTH, greeting->length, 2);
    memcpy(out + AT_DIRECTORY, greeting->directory.bytes, sizeof(greeting->directory.bytes));
    out[AT_FAMILY] = greeting->family;
    memcpy(out + AT_HOST, greeting->host, sizeof(greeting->host));
    if (greeting->length > 0) {
        memcpy(out + FI_GREETING_SIZE, greeting->data, greeting->length);
    }
    return FI_GREETING_SIZE + greeting->length;
}

bool rdmux_fi_greeting_decode(const uint8_t *bytes, size_t size, struct rdmux_fi_greeting *out)
{
    if (size < FI_GREETING_SIZE || memcmp(bytes, greeting_magic, sizeof(greeting_magic)) != 0 ||
        bytes[AT_VERSION] != GREETING_VERSION) {
        return false;
    }
    size_t length = (size_t)load_be(bytes + AT_LENGTH, 2);
    const uint8_t family = bytes[AT_FAMILY];
    if (length > size - FI_GREETING_SIZE || length > FI_USER_DATA_MAX ||
        (family != 0 && family != 4 && family != 6)) {
        return false;
    }
    out->family = family;
    memcpy(out->host, bytes + AT_HOST, sizeof(out->host));
    memcpy(out->directory.bytes, bytes + AT_DIRECTORY, sizeof(out->directory.bytes));
    out->data = bytes + FI_GREETING_SIZE;
    out->length = length;
    return true;
}

/* FNV-1a, 64 bits. */
static uint64_t digest_of(const uint8_t *bytes, size_t size)
{
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) {
        digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return digest;
}

void rdmux_fi_slot_encode(const struct rdmux_fi_slot *slot, uint8_t out[FI_SLOT_SIZE])
{
    memset(out, 0, FI_SLOT_SIZE);
    store_be(out + AT_KEY, slot->key, 8);
    store_be(out + AT_ADDRESS, slot->address, 8);
    store_be(out + AT_SIZE, slot->length, 8);
    store_be(out + AT_ACCESS, slot->access, 4);
    memcpy(out + AT_TOKEN, slot->token.bytes, sizeof(slot->token.bytes));
    store_be(out + AT_DIGEST, digest_of(out, AT_DIGEST), 8);
}

bool rdmux_fi_slot_decode(const uint8_t bytes[FI_SLOT_SIZE], uint64_t key, struct rdmux_fi_slot *out)
{
    const uint32_t rights = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE;
    struct rdmux_fi_slot slot = {
        .key = load_be(bytes + AT_KEY, 8),
        .address = load_be(bytes + AT_ADDRESS, 8),
        .length = load_be(bytes + AT_SIZE, 8),
        .access = (uint32_t)load_be(bytes + AT_ACCESS, 4),
    };
    if (slot.key != key || key >> FI_SLOT_BITS == 0 || slot.length == 0 ||
        slot.address + (slot.length - 1) < slot.address || (slot.access & rights) == 0 ||
        (slot.access & ~rights) != 0 ||
        load_be(bytes + AT_DIGEST, 8) != digest_of(bytes, AT_DIGEST)) {
        return false;
    }
    memcpy(slot.token.bytes, bytes + AT_TOKEN, sizeof(slot.token.bytes));
    *out = slot;
    return true;
}

bool rdmux_fi_slot_offset(const struct rdmux_fi_slot *slot, uint64_t address, uint64_t length,
                          uint64_t *offset)
{
    if (address < slot->address || address - slot->address > slot->length ||
        length > slot->length - (address - slot->address)) {
        return false;
    }
    *offset = address - slot->address;
    return true;
}
