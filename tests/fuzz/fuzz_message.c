/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A stranger's frame after the handshake. */
#include "driver.h"

#include "negotiation/handshake.h"
#include "negotiation/message.h"

#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static bool is_same(const struct rdmux_message *a, const struct rdmux_message *b)
{
    return a->type == b->type && a->id == b->id && a->status == b->status &&
           a->access == b->access && a->length == b->length && a->region == b->region &&
           memcmp(a->token.bytes, b->token.bytes, sizeof(a->token.bytes)) == 0 &&
           a->description_length == b->description_length &&
           memcmp(a->description, b->description, sizeof(a->description)) == 0 &&
           memcmp(a->text, b->text, sizeof(a->text)) == 0 && a->epoch == b->epoch &&
           a->count == b->count && a->is_steady == b->is_steady &&
           memcmp(a->proof, b->proof, sizeof(a->proof)) == 0;
}

static void decode(const uint8_t *frame, size_t size)
{
    static struct rdmux_message message;
    static struct rdmux_message again;
    static uint8_t bytes[RDMUX_MESSAGE_MAX];
    if (rdmux_message_decode(frame, size, &message) != RDMUX_OK) {
        return;
    }
    require(message.description_length <= RDMUX_DESCRIPTION_MAX);
    require(memchr(message.text, '\0', sizeof(message.text)) != NULL);
    require(message.type != RDMUX_FRAME_SILENT || message.id == RDMUX_SILENT_ASKS ||
            message.id == RDMUX_SILENT_ANSWERS);
    require((message.type < RDMUX_FRAME_MOVE || message.type > RDMUX_FRAME_BACK) ||
            message.epoch != 0);
    require(message.type != RDMUX_FRAME_BACK || message.status == RDMUX_OK ||
            message.status == RDMUX_AGAIN);
    require(message.type != RDMUX_FRAME_RELEASED ||
            (message.count != 0 && message.count <= UINT32_MAX));
    size_t length = rdmux_message_encode(&message, bytes);
    require(length == size);
    require(rdmux_message_decode(bytes, length, &again) == RDMUX_OK);
    require(is_same(&message, &again));
}

/* Decodes the input unchanged; then with a header that fits, so that payloads are reached often. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode(data, size);
    if (size < RDMUX_FRAME_HEADER_SIZE || size > (size_t)2 * RDMUX_MESSAGE_MAX) {
        return 0;
    }
    uint8_t *frame = malloc(size);
    if (frame == NULL) {
        return 0;
    }
    memcpy(frame, data, size);
    enum rdmux_frame_type type = data[0] % 2 == 0 ? RDMUX_FRAME_REJECT
                                                  : RDMUX_FRAME_HEARTBEAT + data[0] / 2 % 13;
    rdmux_frame_header_encode(type, data[1], size - RDMUX_FRAME_HEADER_SIZE, frame);
    decode(frame, size);
    free(frame);
    return 0;
}
