/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "load_model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void load_wrong(struct load *load, uint64_t *count, const char *format, ...)
{
    ++*count;
    if (load->why[0] != '\0') {
        return;
    }
    va_list arguments;
    int used = snprintf(load->why, sizeof(load->why), "side %u: ", load->attr.side);
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vsnprintf(load->why + used, sizeof(load->why) - (size_t)used, format, arguments);
    va_end(arguments);
}

/* ---------------------------------------------------------------------------------------- bytes */

void load_fill(uint8_t *out, size_t length, uint64_t seed, uint32_t side, uint64_t number)
{
    struct chance bytes = { seed ^ number * 0x9e3779b97f4a7c15U ^ (uint64_t)side << 62 };
    while (length >= sizeof(uint64_t)) {
        uint64_t word = draw(&bytes);
        memcpy(out, &word, sizeof(word));
        out += sizeof(word);
        length -= sizeof(word);
    }
    uint64_t word = draw(&bytes);
    memcpy(out, &word, length);
}

bool load_is_filled(const uint8_t *bytes, size_t length, uint64_t seed, uint32_t side,
                    uint64_t number)
{
    uint8_t wanted[LOAD_SLOT_SIZE];
    load_fill(wanted, length, seed, side, number);
    return memcmp(bytes, wanted, length) == 0;
}

bool load_is_all(const uint8_t *bytes, uint8_t value, size_t length)
{
    return length == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, length - 1) == 0);
}

uint64_t load_magic_of(const struct load *load, uint32_t side)
{
    return load->attr.seed * 0xd1342543de82ef95U + side + 1;
}

uint64_t load_text_seed(const struct load *load)
{
    return ~load->attr.seed;
}

uint8_t *load_slot_of(const struct load *load, uint64_t sequence)
{
    return load->arena + sequence % LOAD_RING * LOAD_SLOT_SIZE;
}

uint8_t *load_receive_of(const struct load *load, uint64_t which)
{
    return load->arena + (LOAD_RING + which % RECEIVES) * (size_t)LOAD_SLOT_SIZE;
}

size_t load_note_size(uint32_t slot)
{
    return 40 + (size_t)slot * 173;
}

/* -------------------------------------------------------------------------------------- judging */

bool load_is_idle(const struct load *load)
{
    return load->done == load->posted;
}

void load_failed(struct load *load, uint32_t status, bool is_receive)
{
    uint32_t *first = &load->first_failure[is_receive];
    const bool is_known = status == RDMUX_FLUSHED || status == RDMUX_PEER_GONE ||
                          status == RDMUX_IO || status == RDMUX_OUTCOME_UNKNOWN;
    if (!is_known ||
        (*first != STATUS_NONE && status != RDMUX_FLUSHED && status != RDMUX_OUTCOME_UNKNOWN)) {
        load_wrong(load, &load->errors.broken, "a %s has failed with %s behind %s",
                   is_receive ? "receive" : "request", rdmux_status_name((enum rdmux_status)status),
                   *first == STATUS_NONE ? "nothing"
                                         : rdmux_status_name((enum rdmux_status) * first));
    }
    if (*first == STATUS_NONE) {
        *first = status;
    }
}
