/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The inbox of an endpoint: control frames that came through a path sharing the socket, until they
 * are handled outside the provider's call. Owner. */
#ifndef RDMUX_API_OBJECT_INBOX_H
#define RDMUX_API_OBJECT_INBOX_H

#include "api/core/ep.h"

#include <stddef.h>

struct rdmux_inbox_frame {
    struct rdmux_inbox_frame *next;
    size_t size;
    uint8_t bytes[];
};

/* Appends a copy of the frame. Returns false if memory is short. */
bool rdmux_inbox_put(struct rdmux_ep *ep, const void *bytes, size_t size);
/* Takes the oldest frame, which the caller frees with rdmux_inbox_free(). NULL: the inbox is
 * empty. */
struct rdmux_inbox_frame *rdmux_inbox_take(struct rdmux_ep *ep);
/* Wipes and frees the frame. */
void rdmux_inbox_free(struct rdmux_ep *ep, struct rdmux_inbox_frame *frame);
/* Frees all frames. */
void rdmux_inbox_clear(struct rdmux_ep *ep);

#endif
