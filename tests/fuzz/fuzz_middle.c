/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* An attacker between two endpoints that do not authenticate. */
#include "middle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return run(data, size, false);
}
