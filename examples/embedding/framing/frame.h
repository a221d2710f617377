/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Frames over a link: 8 bytes with the length, big-endian, and then so many bytes. */
#ifndef FRAME_H
#define FRAME_H

#include "../link/link.h"

#include <stdint.h>

enum { FRAME_MAX = 64 << 20 }; /* bytes that a peer may ask this side to allocate */

struct frame {
    uint8_t *bytes; /* of frame_receive(), which makes room; the caller frees them in the end */
    size_t length;
    size_t room;
    const char *why; /* after a result of -1 */
};

bool frame_send(struct link *link, void *bytes, size_t length);

/* Returns 1; 0 if the peer has ended between two frames; -1 if the link failed, if it ended within a
 * frame, or if the frame is too long. */
int frame_receive(struct link *link, struct frame *frame);

#endif
