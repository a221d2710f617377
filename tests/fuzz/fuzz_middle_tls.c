/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Somebody in the middle of two endpoints that authenticate, whose data and control frames are in one TLS
 * session; and a peer that is known, and malicious. The first can end a connection and nothing else: as
 * long as the peers are good no token is taken that was changed.
 *
 * OpenSSL's random numbers are its own: what an input does to records it does to others each time.
 */
#include "middle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return run(data, size, true);
}
