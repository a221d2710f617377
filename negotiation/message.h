/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Messages of the control channel after the handshake, and the types of all frames. docs/WIRE.md
 * has the bytes. */
#ifndef RDMUX_NEGOTIATION_MESSAGE_H
#define RDMUX_NEGOTIATION_MESSAGE_H

#include <rdmux/provider.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Frame types. All are below 0x40, so that a provider whose data shares the socket can tell its
 * own. */
enum rdmux_frame_type {
    RDMUX_FRAME_OFFER = 0x01,
    RDMUX_FRAME_RANKING = 0x02,
    RDMUX_FRAME_TRY = 0x03,
    RDMUX_FRAME_READY = 0x04,
    RDMUX_FRAME_UP = 0x05,
    RDMUX_FRAME_WRITTEN = 0x06,
    RDMUX_FRAME_PROVED = 0x07,
    RDMUX_FRAME_COMMIT = 0x08,
    RDMUX_FRAME_CONFIRM = 0x09,
    RDMUX_FRAME_FAILED = 0x0a,
    RDMUX_FRAME_NO_PATH = 0x0b,
    RDMUX_FRAME_REJECT = 0x0c,
    RDMUX_FRAME_AUTH = 0x0d, /* reserved */

    RDMUX_FRAME_HEARTBEAT = 0x20,
    RDMUX_FRAME_IMPORT = 0x21,
    RDMUX_FRAME_IMPORTED = 0x22,
    RDMUX_FRAME_REVOKE = 0x23,
    RDMUX_FRAME_REVOKED = 0x24,
    RDMUX_FRAME_FAULT = 0x25,
    RDMUX_FRAME_END = 0x26,
    RDMUX_FRAME_ENDED = 0x27,
    RDMUX_FRAME_SILENT = 0x28, /* RDMUX_FRAME_OPTIONAL: older peers do not know it */
    RDMUX_FRAME_MOVE = 0x29,
    RDMUX_FRAME_RECEIVED = 0x2a,
    RDMUX_FRAME_RESUME = 0x2b,
    RDMUX_FRAME_RESUMED = 0x2c,
    RDMUX_FRAME_BACK = 0x2d,     /* RDMUX_FRAME_OPTIONAL */
    RDMUX_FRAME_RELEASED = 0x2e, /* RDMUX_FRAME_OPTIONAL */
};

/* Values of SILENT's id. */
enum {
    RDMUX_SILENT_ASKS = 0,   /* this side's path ended without a cause; does the peer know it? */
    RDMUX_SILENT_ANSWERS = 1 /* this side knows no cause */
};

/* Flags of a frame's header; a reader ignores bits it does not know. */
enum {
    /* A reader skips a frame of this type if it does not know it; without the flag:
     * RDMUX_PROTOCOL. */
    RDMUX_FRAME_OPTIONAL = 1 << 0,
};

/* The name of a HELLO, JOIN or frame in texts, "?" for an unknown one; reads 8 bytes at most. */
const char *rdmux_frame_name(const uint8_t *frame, size_t size);

/* Writes the 8 bytes before a payload of length bytes, at most RDMUX_FRAME_PAYLOAD_MAX. */
void rdmux_frame_header_encode(enum rdmux_frame_type type, uint8_t flags, size_t length,
                               uint8_t out[8]);
/* Returns whether this header has RDMUX_FRAME_OPTIONAL. */
bool rdmux_frame_is_optional(const uint8_t in[8]);

enum { RDMUX_PROOF_CODE_SIZE = 32 }; /* bytes of a reconnect's proof, which ends its frame */

/* One message after the handshake; each type uses its own fields. */
struct rdmux_message {
    enum rdmux_frame_type type;
    /* IMPORT, IMPORTED, RELEASED: the importer's number. REVOKE, REVOKED: the owner's number of
     * this revocation. SILENT: RDMUX_SILENT_*. */
    uint32_t id;
    /* IMPORTED, FAULT, END, MOVE, BACK: enum rdmux_status. REJECT: the application's reason */
    uint32_t status;
    uint32_t access; /* IMPORTED */
    uint32_t epoch;  /* MOVE: the next epoch. RECEIVED, BACK, RESUME, RESUMED: the current one */
    uint32_t description_length; /* IMPORTED: mr_describe's bytes. REJECT: private data */
    /* MOVE, RECEIVED, RESUME, RESUMED: messages received, over all epochs. BACK: the rank.
     * RELEASED: closed imports, below 2^32 */
    uint64_t count;
    uint64_t length; /* IMPORTED: of the region */
    uint64_t region; /* IMPORTED, REVOKE, REVOKED, RELEASED: the owner's region id */
    bool is_steady;  /* RESUME, RESUMED: the epoch's path is in use */
    uint8_t proof[RDMUX_PROOF_CODE_SIZE]; /* RESUME, RESUMED */
    struct rdmux_token token;             /* IMPORT */
    uint8_t description[RDMUX_DESCRIPTION_MAX];
    char text[RDMUX_TEXT_MAX]; /* FAULT, END, MOVE */
};

enum { RDMUX_MESSAGE_MAX = 1024 }; /* bytes of the longest encoded message, header included */

/* Writes header and payload; returns the bytes used. */
size_t rdmux_message_encode(const struct rdmux_message *message, uint8_t out[RDMUX_MESSAGE_MAX]);
/* Reads a whole frame of untrusted input. RDMUX_AGAIN: unknown type with RDMUX_FRAME_OPTIONAL, to
 * be skipped. RDMUX_PROTOCOL: another type, or wrong sizes. */
enum rdmux_status rdmux_message_decode(const uint8_t *frame, size_t size, struct rdmux_message *out);

#endif
