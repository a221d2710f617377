/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#ifndef RDMUX_NEGOTIATION_OPENSSL_LIFE_H
#define RDMUX_NEGOTIATION_OPENSSL_LIFE_H

/* Keeps OpenSSL usable until the process is gone, unless the program has begun to use OpenSSL
 * before and so has it end at exit(). Before any other use of OpenSSL; idempotent. */
void rdmux_openssl_keep(void);

#endif
