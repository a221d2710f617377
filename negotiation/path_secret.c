/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What both sides of one attempted path can know and nobody else: derived one way, so that using it
 * as a name (abstract sockets are listed in /proc) does not give away the connection's secret, with
 * which sockets join. */
#include "negotiation/path_secret.h"

#include "negotiation/bytes.h"

#include <string.h>

#ifdef RDMUX_HAVE_OPENSSL

#include <openssl/evp.h>

void rdmux_path_secret(const uint8_t secret[RDMUX_SECRET_SIZE], uint32_t attempt,
                       uint8_t out[RDMUX_SECRET_SIZE])
{
    static const char label[] = "rdmux path";
    uint8_t input[sizeof(label) + RDMUX_SECRET_SIZE + sizeof(attempt)];
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    memcpy(input, label, sizeof(label));
    memcpy(input + sizeof(label), secret, RDMUX_SECRET_SIZE);
    rdmux_store_be32(input + sizeof(label) + RDMUX_SECRET_SIZE, attempt);
    if (EVP_Digest(input, sizeof(input), digest, &size, EVP_sha256(), NULL) != 1 ||
        size < RDMUX_SECRET_SIZE) {
        memset(digest, 0, sizeof(digest)); /* both sides must agree; the path's own checks remain */
    }
    memcpy(out, digest, RDMUX_SECRET_SIZE);
}

#else

/* Without OpenSSL there is no one-way function at hand: paths are told apart by number, and what
 * guards them are the kernel's credentials and the path's own checks. */
void rdmux_path_secret(const uint8_t secret[RDMUX_SECRET_SIZE], uint32_t attempt,
                       uint8_t out[RDMUX_SECRET_SIZE])
{
    (void)secret;
    memset(out, 0, RDMUX_SECRET_SIZE);
    rdmux_store_be32(out, attempt);
}

#endif
