/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The inbox of an endpoint. */
#include "api/object/inbox.h"

#include "api/core/ep.h"
#include "api/core/fabric.h"

#include <string.h>

bool rdmux_inbox_put(struct rdmux_ep *ep, const void *bytes, size_t size)
{
    struct rdmux_inbox_frame *frame = rdmux_allocate(ep->fabric, sizeof(*frame) + size);
    if (frame == NULL) {
        return false;
    }
    frame->size = size;
    memcpy(frame->bytes, bytes, size);
    if (ep->inbox.first == NULL) {
        ep->inbox.first = frame;
    } else {
        ep->inbox.last->next = frame;
    }
    ep->inbox.last = frame;
    return true;
}

struct rdmux_inbox_frame *rdmux_inbox_take(struct rdmux_ep *ep)
{
    struct rdmux_inbox_frame *frame = ep->inbox.first;
    if (frame != NULL) {
        ep->inbox.first = frame->next;
    }
    return frame;
}

void rdmux_inbox_free(struct rdmux_ep *ep, struct rdmux_inbox_frame *frame)
{
    rdmux_release_wiped(ep->fabric, frame, sizeof(*frame) + frame->size);
}

void rdmux_inbox_clear(struct rdmux_ep *ep)
{
    while (ep->inbox.first != NULL) {
        rdmux_inbox_free(ep, rdmux_inbox_take(ep));
    }
}
