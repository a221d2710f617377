/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#ifndef LINK_BIO_H
#define LINK_BIO_H

#include "../link/link.h"

#include <openssl/bio.h>

/* Returns a BIO that reads and writes the link, NULL if memory is short. The link stays the
 * caller's, and open longer than the BIO. */
BIO *link_bio(struct link *link);

#endif
