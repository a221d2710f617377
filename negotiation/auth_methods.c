/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Texts about the authentication methods. */
#include "negotiation/auth_methods.h"

#include <rdmux/rdmux.h>
#include <stdio.h>

static const char *method_name(uint32_t methods)
{
    return methods == RDMUX_AUTH_PSK    ? "a pre-shared key"
           : methods == RDMUX_AUTH_CERT ? "certificates"
                                        : "a method of another version";
}

static const char *method_remedy(uint32_t methods)
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
                 method_name(ours), method_remedy(ours));
    } else if (ours == 0) {
        snprintf(out, size, "the peer asks for authentication by %s; %s", method_name(theirs),
                 method_remedy(theirs));
    } else {
        snprintf(out, size, "this side authenticates by %s, the peer by %s; set both alike",
                 method_name(ours), method_name(theirs));
    }
}
