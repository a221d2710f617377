/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* checksum.h with OpenSSL. */
#include "checksum.h"

#ifdef RDMUX_HAVE_OPENSSL

#include <openssl/evp.h>

#include <stdlib.h>
#include <string.h>

const uint8_t checksum_algorithm = CHECKSUM_SHA256;
const char checksum_name[] = "sha256";
const size_t checksum_size = 32;

struct checksum {
    EVP_MD *algorithm; /* fetched once: a fetch costs more than a small file's checksum */
    EVP_MD_CTX *context;
    EVP_MD_CTX *copy; /* for checksum_peek() */
};

struct checksum *checksum_create(void)
{
    struct checksum *checksum = calloc(1, sizeof(*checksum));
    if (checksum == NULL) {
        return NULL;
    }
    checksum->algorithm = EVP_MD_fetch(NULL, "SHA256", NULL);
    checksum->context = EVP_MD_CTX_new();
    checksum->copy = EVP_MD_CTX_new();
    if (checksum->algorithm == NULL || checksum->context == NULL || checksum->copy == NULL) {
        checksum_destroy(checksum);
        return NULL;
    }
    return checksum;
}

void checksum_destroy(struct checksum *checksum)
{
    if (checksum != NULL) {
        EVP_MD_CTX_free(checksum->copy);
        EVP_MD_CTX_free(checksum->context);
        EVP_MD_free(checksum->algorithm);
        free(checksum);
    }
}

bool checksum_begin(struct checksum *checksum)
{
    return EVP_DigestInit_ex2(checksum->context, checksum->algorithm, NULL) == 1;
}

bool checksum_add(struct checksum *checksum, const void *bytes, size_t length)
{
    return EVP_DigestUpdate(checksum->context, bytes, length) == 1;
}

bool checksum_end(struct checksum *checksum, uint8_t out[CHECKSUM_SIZE_MAX])
{
    memset(out, 0, CHECKSUM_SIZE_MAX);
    return EVP_DigestFinal_ex(checksum->context, out, NULL) == 1;
}

bool checksum_peek(struct checksum *checksum, uint8_t out[CHECKSUM_SIZE_MAX])
{
    memset(out, 0, CHECKSUM_SIZE_MAX);
    return EVP_MD_CTX_copy_ex(checksum->copy, checksum->context) == 1 &&
           EVP_DigestFinal_ex(checksum->copy, out, NULL) == 1;
}

#endif
