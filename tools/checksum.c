/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "checksum.h"

void checksum_print(const uint8_t sum[CHECKSUM_SIZE_MAX], char out[2 * CHECKSUM_SIZE_MAX + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < checksum_size; i++) {
        out[2 * i] = digits[sum[i] >> 4];
        out[2 * i + 1] = digits[sum[i] & 15];
    }
    out[2 * checksum_size] = '\0';
}
