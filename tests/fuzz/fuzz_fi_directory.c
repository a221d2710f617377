/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The directory and the connection data of a hostile peer, as the provider of libfabric reads them.
 * Byte 0 chooses what the input is: connection data as it stands; a slot as it stands; or the
 * fields of a slot, which is written, spoilt in one byte, and read. A slot is accepted only for its
 * key and with its digest, and no access that it grants leaves its region.
 */
#include "driver.h"

#include "adapters/fi/fi_directory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct input {
    const uint8_t *at;
    size_t left;
};

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static uint64_t take(struct input *in, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size && in->left > 0; i++) {
        value = value << 8 | *in->at++;
        in->left--;
    }
    return value;
}

static void read_greeting(const struct input *in)
{
    struct rdmux_fi_greeting greeting;
    if (!rdmux_fi_greeting_decode(in->at, in->left, &greeting)) {
        return;
    }
    require(greeting.length <= FI_USER_DATA_MAX && greeting.data >= in->at &&
            greeting.data + greeting.length <= in->at + in->left);
    uint8_t bytes[RDMUX_PRIVATE_DATA_MAX];
    const size_t size = rdmux_fi_greeting_encode(&greeting, bytes);
    struct rdmux_fi_greeting again;
    require(size <= sizeof(bytes) && rdmux_fi_greeting_decode(bytes, size, &again));
    require(again.length == greeting.length && again.family == greeting.family &&
            memcmp(again.host, greeting.host, sizeof(again.host)) == 0 &&
            memcmp(again.data, greeting.data, again.length) == 0 &&
            memcmp(&again.directory, &greeting.directory, sizeof(again.directory)) == 0);
}

/* What a slot grants lies within its region, wherever the access is. */
static void check_bounds(struct input *in, const struct rdmux_fi_slot *slot)
{
    const uint64_t address = (in->left & 1) != 0 ? take(in, 8) : slot->address + take(in, 2);
    const uint64_t length = (in->left & 1) != 0 ? take(in, 8) : take(in, 2);
    uint64_t offset = 0;
    const bool is_within = rdmux_fi_slot_offset(slot, address, length, &offset);
    if (is_within) {
        require(offset <= slot->length && length <= slot->length - offset &&
                slot->address + offset == address);
    } else {
        require(address < slot->address || address - slot->address > slot->length ||
                length > slot->length - (address - slot->address));
    }
}

static void read_slot(struct input *in)
{
    uint8_t bytes[FI_SLOT_SIZE] = { 0 };
    memcpy(bytes, in->at, in->left < sizeof(bytes) ? in->left : sizeof(bytes));
    struct input head = { bytes, sizeof(uint64_t) };
    const uint64_t key = take(&head, sizeof(uint64_t));
    struct rdmux_fi_slot slot;
    require(rdmux_fi_key_slot(key) < FI_SLOT_COUNT);
    if (rdmux_fi_slot_decode(bytes, key, &slot)) {
        require(slot.key == key && slot.length > 0);
        check_bounds(in, &slot);
    }
}

static void spoil_slot(struct input *in)
{
    const uint32_t rights = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE;
    struct rdmux_fi_slot slot = {
        .key = take(in, 8),
        .address = take(in, 8),
        .length = take(in, 8),
        .access = (uint32_t)take(in, 4) & (rights | 1),
    };
    for (size_t i = 0; i < sizeof(slot.token.bytes); i++) {
        slot.token.bytes[i] = (uint8_t)take(in, 1);
    }
    uint8_t bytes[FI_SLOT_SIZE];
    rdmux_fi_slot_encode(&slot, bytes);
    struct rdmux_fi_slot out;
    const bool is_good = slot.key >> FI_SLOT_BITS != 0 && slot.length > 0 &&
                         slot.address + (slot.length - 1) >= slot.address &&
                         (slot.access & rights) != 0 && (slot.access & ~rights) == 0;
    require(rdmux_fi_slot_decode(bytes, slot.key, &out) == is_good);
    require(!rdmux_fi_slot_decode(bytes, slot.key ^ (1 + take(in, 1)), &out));
    if (is_good) {
        check_bounds(in, &slot);
    }
    /* The padding behind the digest says nothing. */
    const size_t at = take(in, 1) % 104;
    const uint8_t change = (uint8_t)take(in, 1);
    bytes[at] ^= change;
    require(change == 0 || !rdmux_fi_slot_decode(bytes, slot.key, &out));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    switch (take(&in, 1) % 3) {
    case 0:
        read_greeting(&in);
        break;
    case 1:
        read_slot(&in);
        break;
    default:
        spoil_slot(&in);
    }
    return 0;
}
