/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Texts about the authentication methods. */
#include "negotiation/auth_methods.h"

#include <rdmux/rdmux.h>
#include <stdio.h>

static const char *name_of(uint32_t methods)
{
    return methods == RDMUX_AUTH_PSK    ? "a pre-shared key"
           : methods == RDMUX_AUTH_CERT ? "certificates"
                                        : "a method of another version";
}

static const char *remedy_of(uint32_t methods)
{
    return methods == RDMUX_AUTH_PSK ? "set rdmux_fabric_attr.auth with RDMUX_AUTH_PSK (command: "
                                       "--auth psk --key-file FILE)"
           : methods == RDMUX_AUTH_CERT
               ? "set rdmux_fabric_attr.auth with RDMUX_AUTH_CERT (command: --auth cert "
                 "--cert-file FILE --key-file FILE --ca-file FILE)"
               : "use the same version on both sides";
}

void rdmux_auth_explain_mismatch(uint32_t ours, uint32_t theirs, char *out, size_t size)
{
    if (theirs == 0) {
        snprintf(out, size, "this side authenticates by %s, the peer not at all; over there, %s",
                 name_of(ours), remedy_of(ours));
    } else if (ours == 0) {
        snprintf(out, size, "the peer asks for authentication by %s; %s", name_of(theirs),
                 remedy_of(theirs));
    } else {
        snprintf(out, size, "this side authenticates by %s, the peer by %s; set both alike",
                 name_of(ours), name_of(theirs));
    }
}
