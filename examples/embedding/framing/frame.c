/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "frame.h"

#include <endian.h>
#include <stdlib.h>

/* One call for both parts: they leave together. */
bool frame_send(struct link *link, void *bytes, size_t length)
{
    uint64_t header = htobe64(length);
    struct iovec pieces[] = { { &header, sizeof(header) }, { bytes, length } };
    return link_write(link, pieces, 2);
}

static int fail(struct frame *frame, const char *why)
{
    frame->why = why;
    return -1;
}

int frame_receive(struct link *link, struct frame *frame)
{
    uint64_t header = 0;
    long got = link_read(link, &header, sizeof(header));
    if (got == 0) {
        return 0;
    }
    if (got != sizeof(header)) {
        return fail(frame, got < 0 ? link_error() : "the peer has ended within a header");
    }
    header = be64toh(header);
    if (header > FRAME_MAX) {
        return fail(frame, "a frame is longer than FRAME_MAX: the peer does not speak frames");
    }
    frame->length = (size_t)header;
    if (frame->length > frame->room) {
        free(frame->bytes);
        frame->bytes = malloc(frame->length);
        frame->room = frame->bytes != NULL ? frame->length : 0;
    }
    if (frame->length > frame->room) {
        return fail(frame, "no memory for a frame");
    }
    got = link_read(link, frame->bytes, frame->length);
    if (got != (long)frame->length) {
        return fail(frame, got < 0 ? link_error() : "the peer has ended within a frame");
    }
    return 1;
}
