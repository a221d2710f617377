/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "negotiation/reconnect_proof.h"

#include "api/system/system.h"

#include <string.h>

#ifdef RDMUX_HAVE_OPENSSL

#include <openssl/evp.h>
#include <openssl/hmac.h>

bool rdmux_reconnect_name(const uint8_t secret[RDMUX_SECRET_SIZE],
                          uint8_t out[RDMUX_RECONNECT_NAME_SIZE])
{
    static const char label[] = "rdmux resume";
    uint8_t input[sizeof(label) + RDMUX_SECRET_SIZE];
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    memcpy(input, label, sizeof(label));
    memcpy(input + sizeof(label), secret, RDMUX_SECRET_SIZE);
    bool made = EVP_Digest(input, sizeof(input), digest, &size, EVP_sha256(), NULL) == 1 &&
                size >= RDMUX_RECONNECT_NAME_SIZE;
    rdmux_wipe(input, sizeof(input));
    if (made) {
        memcpy(out, digest, RDMUX_RECONNECT_NAME_SIZE);
    }
    return made;
}

static bool proof_of(const uint8_t secret[RDMUX_SECRET_SIZE],
                     const struct rdmux_reconnect_greeting *greeting,
                     const struct rdmux_message *message, uint8_t out[RDMUX_PROOF_CODE_SIZE])
{
    enum { AT_FRAME = 2 * RDMUX_HELLO_SIZE };
    uint8_t input[AT_FRAME + RDMUX_MESSAGE_MAX];
    unsigned int size = 0;
    memcpy(input, greeting->connectors, RDMUX_HELLO_SIZE);
    memcpy(input + RDMUX_HELLO_SIZE, greeting->acceptors, RDMUX_HELLO_SIZE);
    size_t length = rdmux_message_encode(message, input + AT_FRAME) - RDMUX_PROOF_CODE_SIZE;
    return HMAC(EVP_sha256(), secret, RDMUX_SECRET_SIZE, input, AT_FRAME + length, out, &size) !=
               NULL &&
           size == RDMUX_PROOF_CODE_SIZE;
}

bool rdmux_reconnect_prove(const uint8_t secret[RDMUX_SECRET_SIZE],
                           const struct rdmux_reconnect_greeting *greeting,
                           struct rdmux_message *message)
{
    uint8_t proof[EVP_MAX_MD_SIZE];
    bool made = proof_of(secret, greeting, message, proof);
    if (made) {
        memcpy(message->proof, proof, sizeof(message->proof));
    }
    return made;
}

bool rdmux_reconnect_is_proved(const uint8_t secret[RDMUX_SECRET_SIZE],
                               const struct rdmux_reconnect_greeting *greeting,
                               const struct rdmux_message *message)
{
    uint8_t proof[EVP_MAX_MD_SIZE];
    uint8_t difference = 0;
    if (!proof_of(secret, greeting, message, proof)) {
        return false;
    }
    for (size_t i = 0; i < sizeof(message->proof); i++) {
        difference |= (uint8_t)(proof[i] ^ message->proof[i]);
    }
    return difference == 0;
}

#else

/* Without OpenSSL a side can prove nothing without revealing the secret: a lost channel stays
 * lost. */
bool rdmux_reconnect_name(const uint8_t secret[RDMUX_SECRET_SIZE],
                          uint8_t out[RDMUX_RECONNECT_NAME_SIZE])
{
    (void)secret;
    (void)out;
    return false;
}

bool rdmux_reconnect_prove(const uint8_t secret[RDMUX_SECRET_SIZE],
                           const struct rdmux_reconnect_greeting *greeting,
                           struct rdmux_message *message)
{
    (void)secret;
    (void)greeting;
    (void)message;
    return false;
}

bool rdmux_reconnect_is_proved(const uint8_t secret[RDMUX_SECRET_SIZE],
                               const struct rdmux_reconnect_greeting *greeting,
                               const struct rdmux_message *message)
{
    (void)secret;
    (void)greeting;
    (void)message;
    return false;
}

#endif
