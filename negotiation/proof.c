/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The pattern of a proof. Both sides compute it from the nonce, so its bytes are part of the
 * protocol; docs/WIRE.md has them. */
#include "negotiation/handshake.h"

#include "api/base/bytes.h"

#include <string.h>

enum { WORD_SIZE = 8 };

/* Separates the streams if both halves of a nonce are equal. */
static const uint64_t low_offset = UINT64_C(0xd1b54a32d192ed03);

/* Two SplitMix64 streams (Steele, Lea, Flood 2014), one from each half of the nonce. */
struct pattern {
    uint64_t high;
    uint64_t low;
};

static struct pattern pattern_start(const uint8_t nonce[16])
{
    return (struct pattern){
        .high = rdmux_load_be64(nonce),
        .low = rdmux_load_be64(nonce + 8) ^ low_offset,
    };
}

static uint64_t splitmix_next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void pattern_next(struct pattern *pattern, uint8_t out[WORD_SIZE])
{
    uint64_t high = splitmix_next(&pattern->high);
    uint64_t low = splitmix_next(&pattern->low);
    rdmux_store_be64(out, high ^ low);
}

void rdmux_proof_fill(const uint8_t nonce[16], uint8_t *out, size_t size)
{
    struct pattern pattern = pattern_start(nonce);
    while (size > 0) {
        uint8_t word[WORD_SIZE];
        size_t part = size < WORD_SIZE ? size : WORD_SIZE;
        pattern_next(&pattern, word);
        memcpy(out, word, part);
        out += part;
        size -= part;
    }
}

bool rdmux_proof_matches(const uint8_t nonce[16], const uint8_t *in, size_t size)
{
    struct pattern pattern = pattern_start(nonce);
    while (size > 0) {
        uint8_t word[WORD_SIZE];
        size_t part = size < WORD_SIZE ? size : WORD_SIZE;
        pattern_next(&pattern, word);
        if (memcmp(in, word, part) != 0) {
            return false;
        }
        in += part;
        size -= part;
    }
    return true;
}
