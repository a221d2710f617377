/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Secrets that only the two sides of one path attempt know. They are derived one way. So sending
 * one in clear (in the HELLO of shm, in rdma_cm's private data) does not reveal the connection's
 * secret, with which sockets join. Also the bits that make a token valid for one peer only. */
#include "negotiation/path_secret.h"

#include "api/base/bytes.h"
#include "api/base/secrets.h"
#include "api/system/system.h"

#include <string.h>

bool rdmux_secret_matches(const uint8_t a[RDMUX_SECRET_SIZE], const uint8_t b[RDMUX_SECRET_SIZE])
{
    return rdmux_secret_bytes_match(a, b, RDMUX_SECRET_SIZE);
}

#ifdef RDMUX_HAVE_OPENSSL

#include <openssl/evp.h>
#include <openssl/hmac.h>

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
    bool made = EVP_Digest(input, sizeof(input), digest, &size, EVP_sha256(), NULL) == 1;
    rdmux_wipe(input, sizeof(input));
    if (!made || size < RDMUX_SECRET_SIZE) {
        memset(digest, 0, sizeof(digest)); /* both sides must agree; the path's own checks remain */
    }
    memcpy(out, digest, RDMUX_SECRET_SIZE);
    rdmux_wipe(digest, sizeof(digest));
}

bool rdmux_join_name(const uint8_t secret[RDMUX_SECRET_SIZE], uint8_t out[RDMUX_SECRET_SIZE])
{
    static const char label[] = "rdmux join";
    uint8_t input[sizeof(label) + RDMUX_SECRET_SIZE];
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    memcpy(input, label, sizeof(label));
    memcpy(input + sizeof(label), secret, RDMUX_SECRET_SIZE);
    bool made = EVP_Digest(input, sizeof(input), digest, &size, EVP_sha256(), NULL) == 1;
    rdmux_wipe(input, sizeof(input));
    if (!made || size < RDMUX_SECRET_SIZE) {
        return false;
    }
    memcpy(out, digest, RDMUX_SECRET_SIZE);
    rdmux_wipe(digest, sizeof(digest));
    return true;
}

bool rdmux_data_key(const uint8_t secret[RDMUX_SECRET_SIZE], uint32_t attempt, uint32_t socket,
                    uint8_t out[RDMUX_DATA_KEY_SIZE])
{
    static const char label[] = "rdmux data";
    enum { AT_SECRET = sizeof(label), AT_ATTEMPT = AT_SECRET + RDMUX_SECRET_SIZE };
    uint8_t input[AT_ATTEMPT + sizeof(attempt) + sizeof(socket)];
    unsigned int size = 0;
    memcpy(input, label, sizeof(label));
    memcpy(input + AT_SECRET, secret, RDMUX_SECRET_SIZE);
    rdmux_store_be32(input + AT_ATTEMPT, attempt);
    rdmux_store_be32(input + AT_ATTEMPT + sizeof(attempt), socket);
    bool made = EVP_Digest(input, sizeof(input), out, &size, EVP_sha256(), NULL) == 1;
    rdmux_wipe(input, sizeof(input));
    return made && size == RDMUX_DATA_KEY_SIZE;
}

static bool compute_join_code(const struct rdmux_join *join,
                              const uint8_t secret[RDMUX_SECRET_SIZE],
                              uint8_t out[RDMUX_SECRET_SIZE])
{
    uint8_t bytes[RDMUX_JOIN_SIZE];
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    rdmux_join_encode(join, bytes);
    if (HMAC(EVP_sha256(), secret, RDMUX_SECRET_SIZE, bytes, RDMUX_JOIN_SEALED_SIZE, digest,
             &size) == NULL ||
        size < RDMUX_SECRET_SIZE) {
        return false;
    }
    memcpy(out, digest, RDMUX_SECRET_SIZE);
    rdmux_wipe(digest, sizeof(digest));
    return true;
}

bool rdmux_join_seal(struct rdmux_join *join, const uint8_t secret[RDMUX_SECRET_SIZE])
{
    join->is_sealed = true;
    return rdmux_join_name(secret, join->secret) && compute_join_code(join, secret, join->code);
}

bool rdmux_join_is_sealed_by(const struct rdmux_join *join, const uint8_t secret[RDMUX_SECRET_SIZE])
{
    uint8_t code[RDMUX_SECRET_SIZE];
    return join->is_sealed && compute_join_code(join, secret, code) &&
           rdmux_secret_matches(code, join->code);
}

bool rdmux_grant_bits(const uint8_t secret[RDMUX_SECRET_SIZE], const char *identity,
                      uint8_t out[RDMUX_SECRET_SIZE])
{
    static const char label[] = "rdmux grant";
    uint8_t input[sizeof(label) + RDMUX_IDENTITY_MAX];
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    size_t length = strnlen(identity, RDMUX_IDENTITY_MAX);
    memcpy(input, label, sizeof(label));
    memcpy(input + sizeof(label), identity, length);
    if (HMAC(EVP_sha256(), secret, RDMUX_SECRET_SIZE, input, sizeof(label) + length, digest,
             &size) == NULL ||
        size < RDMUX_SECRET_SIZE) {
        return false;
    }
    memcpy(out, digest, RDMUX_SECRET_SIZE);
    rdmux_wipe(digest, sizeof(digest));
    return true;
}

#else

bool rdmux_grant_bits(const uint8_t secret[RDMUX_SECRET_SIZE], const char *identity,
                      uint8_t out[RDMUX_SECRET_SIZE])
{
    (void)secret;
    (void)identity;
    (void)out;
    return false;
}

bool rdmux_data_key(const uint8_t secret[RDMUX_SECRET_SIZE], uint32_t attempt, uint32_t socket,
                    uint8_t out[RDMUX_DATA_KEY_SIZE])
{
    (void)secret;
    (void)attempt;
    (void)socket;
    (void)out;
    return false;
}

bool rdmux_join_name(const uint8_t secret[RDMUX_SECRET_SIZE], uint8_t out[RDMUX_SECRET_SIZE])
{
    (void)secret;
    (void)out;
    return false;
}

bool rdmux_join_seal(struct rdmux_join *join, const uint8_t secret[RDMUX_SECRET_SIZE])
{
    (void)join;
    (void)secret;
    return false;
}

bool rdmux_join_is_sealed_by(const struct rdmux_join *join, const uint8_t secret[RDMUX_SECRET_SIZE])
{
    (void)join;
    (void)secret;
    return false;
}

/* Without OpenSSL there is no one-way function: paths are told apart by number, and only the
 * kernel's credentials and the path's own checks guard them. */
void rdmux_path_secret(const uint8_t secret[RDMUX_SECRET_SIZE], uint32_t attempt,
                       uint8_t out[RDMUX_SECRET_SIZE])
{
    (void)secret;
    memset(out, 0, RDMUX_SECRET_SIZE);
    rdmux_store_be32(out, attempt);
}

#endif
