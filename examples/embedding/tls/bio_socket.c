/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* OpenSSL brings the BIO of a socket. */
#include "../link/link_socket.h"
#include "link_bio.h"

BIO *link_bio(struct link *link)
{
    return BIO_new_socket(link_fd(link), BIO_NOCLOSE);
}
