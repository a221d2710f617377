/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* At exit() OpenSSL frees its algorithms, whoever still computes with them: threads of the program
 * that are inside a call of a fabric, too. What it would free goes with the process anyway. */
#include "negotiation/openssl_life.h"

#ifdef RDMUX_HAVE_OPENSSL

#include <openssl/crypto.h>

void rdmux_openssl_keep(void)
{
    /* Fails only if OpenSSL has ended or lacks memory; its other functions tell so. */
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

#else

void rdmux_openssl_keep(void)
{
}

#endif
