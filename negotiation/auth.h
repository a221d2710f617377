/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What a fabric authenticates with: keys or certificates, read once, and whom it lets in. Immutable,
 * so any thread may look. docs/SECURITY.md has the rules. */
#ifndef RDMUX_NEGOTIATION_AUTH_H
#define RDMUX_NEGOTIATION_AUTH_H

#include "api/core.h"

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

/* Reads the lines of a key file of size bytes; source names it in texts. *out: released with
 * rdmux_secret_unmap(). RDMUX_INVALID: a line that is none, an identity twice, no
 * line. */
enum rdmux_status rdmux_auth_keys_parse(struct rdmux_fabric *fabric, const char *source,
                                        const char *text, size_t size, struct rdmux_auth_key **out,
                                        size_t *count);

struct rdmux_auth;

/* attr of any size. RDMUX_INVALID, RDMUX_IO, RDMUX_NO_MEMORY, RDMUX_UNSUPPORTED. */
enum rdmux_status rdmux_auth_create(struct rdmux_fabric *fabric,
                                    const struct rdmux_fabric_auth *attr, struct rdmux_auth **out);
/* NULL is allowed. No session is left. */
void rdmux_auth_destroy(struct rdmux_auth *auth);

/* For HELLO: one bit per method; 0 for NULL. */
uint32_t rdmux_auth_methods(const struct rdmux_auth *auth);
/* NULL: no. */
bool rdmux_auth_requires_encryption(const struct rdmux_auth *auth);
/* Is the host that it dialled all that tells a connector its peer from others of the authority's? So it
 * is with certificates and no list of peers. NULL: no. */
bool rdmux_auth_needs_host(const struct rdmux_auth *auth);
/* Do this provider's paths count as encrypted? */
bool rdmux_auth_trusts(const struct rdmux_auth *auth, const char *provider);

#endif
