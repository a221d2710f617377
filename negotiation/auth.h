/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A fabric's credentials: keys or certificates, read once, and the peers it admits. Immutable, so
 * any thread may read them. docs/SECURITY.md has the rules. */
#ifndef RDMUX_NEGOTIATION_AUTH_H
#define RDMUX_NEGOTIATION_AUTH_H

#include "api/base/secrets.h"

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RDMUX_AUTH_KEY_MIN = 16, /* bytes */
    RDMUX_AUTH_KEY_MAX = 64,
};

/* A line of a key file. */
struct rdmux_auth_key {
    char identity[RDMUX_IDENTITY_MAX];
    uint32_t size;
    uint8_t bytes[RDMUX_AUTH_KEY_MAX];
};

/* Parses the lines of a key file of size bytes; source names it in texts. *out is released with
 * rdmux_secret_unmap(). RDMUX_INVALID: a malformed line, a duplicate identity, or no line. */
enum rdmux_status rdmux_auth_keys_parse(struct rdmux_fabric *fabric, const char *source,
                                        const char *text, size_t size, struct rdmux_auth_key **out,
                                        size_t *count);
/* Returns the key of an identity of length bytes among count keys; NULL: there is none. */
const struct rdmux_auth_key *rdmux_auth_find_key(const struct rdmux_auth_key *keys, size_t count,
                                                 const uint8_t *identity, size_t length);

struct rdmux_auth;
struct rdmux_hello;

/* The functions of the fabric that authentication calls. */
struct rdmux_auth_host {
    /* HELLO of this fabric. */
    void (*fill_hello)(struct rdmux_fabric *fabric, struct rdmux_hello *out);
    /* RDMUX_INVALID: no filter, or one that names an unknown provider. source names it in the text. */
    enum rdmux_status (*check_filter)(struct rdmux_fabric *fabric, const char *source,
                                      const char *filter);
};

/* host: lives as long as what is created. attr: of any size. RDMUX_INVALID, RDMUX_IO, RDMUX_NO_MEMORY,
 * RDMUX_UNSUPPORTED. */
enum rdmux_status rdmux_auth_create(struct rdmux_fabric *fabric, const struct rdmux_auth_host *host,
                                    const struct rdmux_fabric_auth *attr, struct rdmux_auth **out);
/* NULL is allowed. All its sessions are gone. */
void rdmux_auth_destroy(struct rdmux_auth *auth);

/* The methods for HELLO, one bit each; 0 for NULL. */
uint32_t rdmux_auth_methods(const struct rdmux_auth *auth);
/* NULL: false. */
bool rdmux_auth_requires_encryption(const struct rdmux_auth *auth);
/* Returns whether a connector tells its peer from other peers of the authority by the dialled host
 * alone: with certificates and no list of peers. NULL: false. */
bool rdmux_auth_needs_host(const struct rdmux_auth *auth);
/* Returns whether this provider's paths count as encrypted. */
bool rdmux_auth_trusts(const struct rdmux_auth *auth, const char *provider);

#endif
