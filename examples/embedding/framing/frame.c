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

int frame_receive(struct link *link, struct frame *frame)
{
    uint64_t header = 0;
    long got = link_read(link, &header, sizeof(header));
    if (got == 0) {
        return 0;
    }
    if (got != sizeof(header) || be64toh(header) > FRAME_MAX) {
        return -1;
    }
    frame->length = (size_t)be64toh(header);
    if (frame->length > frame->room) {
        free(frame->bytes);
        frame->bytes = malloc(frame->length);
        frame->room = frame->bytes != NULL ? frame->length : 0;
    }
    if (frame->length > frame->room) {
        return -1;
    }
    return link_read(link, frame->bytes, frame->length) == (long)frame->length ? 1 : -1;
}
