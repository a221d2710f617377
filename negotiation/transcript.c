/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The transcript hash, with OpenSSL if the build has it. */
#include "negotiation/transcript.h"

#ifdef RDMUX_HAVE_OPENSSL

#include <openssl/evp.h>

static bool hash_pieces(EVP_MD_CTX *context, const struct rdmux_transcript_piece *pieces,
                        size_t count, uint8_t out[RDMUX_TRANSCRIPT_SIZE])
{
    if (EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (EVP_DigestUpdate(context, pieces[i].bytes, pieces[i].size) != 1) {
            return false;
        }
    }
    return EVP_DigestFinal_ex(context, out, NULL) == 1;
}

bool rdmux_transcript_available(void)
{
    return true;
}

enum rdmux_status rdmux_transcript_hash(const struct rdmux_transcript_piece *pieces, size_t count,
                                        uint8_t out[RDMUX_TRANSCRIPT_SIZE])
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (context == NULL) {
        return RDMUX_NO_MEMORY;
    }
    bool good = hash_pieces(context, pieces, count, out);
    EVP_MD_CTX_free(context);
    return good ? RDMUX_OK : RDMUX_NO_MEMORY;
}

#else

bool rdmux_transcript_available(void)
{
    return false;
}

enum rdmux_status rdmux_transcript_hash(const struct rdmux_transcript_piece *pieces, size_t count,
                                        uint8_t out[RDMUX_TRANSCRIPT_SIZE])
{
    (void)pieces;
    (void)count;
    (void)out;
    return RDMUX_UNSUPPORTED;
}

#endif
