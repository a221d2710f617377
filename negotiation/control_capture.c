/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Cuts what a control channel carries into frames for the capture, and hides what is secret. */
#include "negotiation/control_capture.h"

#include "api/base/bytes.h"
#include "api/base/secrets.h"
#include "api/system/system.h"
#include "negotiation/handshake.h"
#include "negotiation/message.h"

#include <string.h>

/* Where the bytes are that a capture hides (docs/WIRE.md). */
enum {
    HIDDEN_JOIN_SECRET = 12,
    HIDDEN_JOIN_CODE = 40,
    HIDDEN_CODE_SIZE = 16,
    HIDDEN_OFFER_PRIVATE = 12, /* types of values */
    HIDDEN_OFFER_SECRET = 15,
    HIDDEN_TLV_HEAD = 4,
    HIDDEN_TRY_DATA = 12,
    HIDDEN_READY_DATA = 8,
    SHOWN_DATA = 8, /* bytes of connection data: all of tcp; keys of adapters come later */
    HIDDEN_UP_DESCRIPTION = 8,
    HIDDEN_TOKEN = 4,
    HIDDEN_IMPORTED_DESCRIPTION = 32,
    HIDDEN_REJECT_PRIVATE = 4,
};

/* Hides what is behind `at`. */
static void hide_behind(uint8_t *bytes, size_t size, size_t at)
{
    if (at < size) {
        memset(bytes + at, 0, size - at);
    }
}

static void hide_in_offer(const struct rdmux_capture_options *options, uint8_t *bytes, size_t size)
{
    for (size_t at = 0; size - at >= HIDDEN_TLV_HEAD;) {
        const uint16_t type = rdmux_load_be16(bytes + at);
        const size_t length = rdmux_load_be16(bytes + at + 2);
        at += HIDDEN_TLV_HEAD;
        if (length > size - at) {
            hide_behind(bytes, size, at); /* no value that could be told from a secret */
            return;
        }
        if (type == HIDDEN_OFFER_PRIVATE) {
            hide_behind(bytes + at, length, options->snap);
        } else if (type == HIDDEN_OFFER_SECRET && !options->has_secrets) {
            hide_behind(bytes + at, length, 0);
        }
        at += length;
    }
}

/* frame: whole; its length is that of its header. */
static void hide_in_frame(const struct rdmux_capture_options *options, uint8_t *frame, size_t size)
{
    uint8_t *payload = frame + RDMUX_FRAME_HEADER_SIZE;
    const size_t length = size - RDMUX_FRAME_HEADER_SIZE;
    if (frame[0] == RDMUX_FRAME_OFFER) {
        hide_in_offer(options, payload, length);
    } else if (frame[0] == RDMUX_FRAME_REJECT) {
        hide_behind(payload, length, HIDDEN_REJECT_PRIVATE + (size_t)options->snap);
    } else if (options->has_secrets) {
        return;
    } else if (frame[0] == RDMUX_FRAME_TRY) {
        hide_behind(payload, length, HIDDEN_TRY_DATA + SHOWN_DATA);
    } else if (frame[0] == RDMUX_FRAME_READY) {
        hide_behind(payload, length, HIDDEN_READY_DATA + SHOWN_DATA);
    } else if (frame[0] == RDMUX_FRAME_UP) {
        hide_behind(payload, length, HIDDEN_UP_DESCRIPTION);
    } else if (frame[0] == RDMUX_FRAME_IMPORT) {
        hide_behind(payload, length, HIDDEN_TOKEN);
    } else if (frame[0] == RDMUX_FRAME_IMPORTED) {
        hide_behind(payload, length, HIDDEN_IMPORTED_DESCRIPTION);
    }
}

static void capture_frame(struct rdmux_fabric *fabric, int socket, enum rdmux_capture_way way,
                          const uint8_t *frame, size_t size)
{
    const struct rdmux_capture_options *options = rdmux_capture_of(fabric);
    uint8_t *shown = rdmux_allocate(fabric, size);
    if (shown == NULL) {
        rdmux_log(fabric, RDMUX_LOG_WARN, "fabric: its capture lacks a frame: out of memory");
        return;
    }
    memcpy(shown, frame, size);
    if (frame[0] != 'R') {
        hide_in_frame(options, shown, size);
    } else if (size == RDMUX_JOIN_SIZE && !options->has_secrets) {
        memset(shown + HIDDEN_JOIN_SECRET, 0, RDMUX_SECRET_SIZE);
        memset(shown + HIDDEN_JOIN_CODE, 0, HIDDEN_CODE_SIZE);
    }
    rdmux_capture_write(fabric, socket, way, shown, size, size);
    rdmux_release_wiped(fabric, shown, size);
}

void rdmux_capture_write_control(struct rdmux_fabric *fabric, int socket,
                                 enum rdmux_capture_way way, const void *bytes, size_t size,
                                 bool is_secured)
{
    const uint8_t *at = bytes;
    if (is_secured && !rdmux_capture_of(fabric)->is_decrypted) {
        return;
    }
    while (size != 0) {
        bool bad = false;
        const size_t total = rdmux_frame_total(at, size, at[0] == 'R', &bad);
        if (bad || total == 0 || total > size) {
            return; /* never sent by this side; the reader ends the connection */
        }
        capture_frame(fabric, socket, way, at, total);
        at += total;
        size -= total;
    }
}
