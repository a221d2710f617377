/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Frames of control channels in the fabric's capture (api/base/capture.h). */
#ifndef RDMUX_NEGOTIATION_CONTROL_CAPTURE_H
#define RDMUX_NEGOTIATION_CONTROL_CAPTURE_H

#include "api/base/capture.h"

#include <stdbool.h>
#include <stddef.h>

/* Writes whole frames, HELLO and JOIN included, if the fabric has a capture. Secrets, tokens, keys
 * and the program's private data are replaced as its options say. is_secured: the bytes belong to a
 * TLS session. */
void rdmux_capture_write_control(struct rdmux_fabric *fabric, int socket,
                                 enum rdmux_capture_way way, const void *bytes, size_t size,
                                 bool is_secured);

static inline void rdmux_capture_control(struct rdmux_fabric *fabric, int socket,
                                         enum rdmux_capture_way way, const void *bytes, size_t size,
                                         bool is_secured)
{
    if (rdmux_hooks_of(fabric)->capture != NULL) {
        rdmux_capture_write_control(fabric, socket, way, bytes, size, is_secured);
    }
}

#endif
