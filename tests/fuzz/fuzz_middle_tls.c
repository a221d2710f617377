/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * An attacker between two endpoints that authenticate, whose data and control frames share one TLS
 * session; and a malicious peer that has authenticated. The attacker can only end a connection: as
 * long as both peers are good, no changed token is accepted.
 *
 * OpenSSL draws its own random numbers, so an input meets other records in each run.
 */
#include "middle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return run(data, size, true);
}
