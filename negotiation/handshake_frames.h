/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The frames between OFFER and the first message: RANKING, and those of an attempt. docs/WIRE.md
 * has the bytes. */
#ifndef RDMUX_NEGOTIATION_HANDSHAKE_FRAMES_H
#define RDMUX_NEGOTIATION_HANDSHAKE_FRAMES_H

#include "negotiation/handshake.h"
#include "negotiation/message.h"

enum {
    RDMUX_RANKING_HEADER_SIZE = 4,
    RDMUX_RANKING_ENTRY_SIZE = 40, /* without its text and hint */
    RDMUX_RANKING_FRAME_MAX = RDMUX_FRAME_HEADER_SIZE + RDMUX_RANKING_HEADER_SIZE +
                              RDMUX_MATCH_MAX * (RDMUX_RANKING_ENTRY_SIZE + 2 * RDMUX_TEXT_MAX),
    RDMUX_ATTEMPT_FRAME_MAX = RDMUX_FRAME_HEADER_SIZE + 12 + RDMUX_DESCRIPTION_MAX,
};

/* Kind of transcript hash in COMMIT and CONFIRM. */
enum rdmux_hash_kind {
    RDMUX_HASH_NONE = 0, /* a side does not compute it; the bytes are zero */
    RDMUX_HASH_SHA256 = 1,
};

/* TRY, READY, UP, WRITTEN, PROVED, COMMIT, CONFIRM, FAILED or NO_PATH; each type uses its own
 * fields. */
struct rdmux_attempt_frame {
    enum rdmux_frame_type type;
    uint32_t attempt;        /* all but NO_PATH; counts from 1 */
    uint16_t acceptor_path;  /* TRY: indexes into the offers */
    uint16_t connector_path; /* TRY */
    uint16_t size;           /* TRY, READY, UP */
    uint16_t stage;          /* FAILED: enum rdmux_stage */
    uint16_t reason;   /* FAILED: enum rdmux_reason; NONE only acknowledges the peer's FAILED */
    uint16_t status;   /* FAILED: enum rdmux_status */
    uint8_t nonce[16]; /* WRITTEN */
    uint8_t hash_kind; /* COMMIT, CONFIRM: enum rdmux_hash_kind */
    uint8_t hash[RDMUX_TRANSCRIPT_SIZE];
    uint8_t bytes[RDMUX_DESCRIPTION_MAX]; /* TRY, READY: connection data. UP: proof buffer */
    char text[RDMUX_TEXT_MAX];            /* FAILED */
};

/* Writes header and payload; returns the bytes used. */
size_t rdmux_attempt_frame_encode(const struct rdmux_attempt_frame *frame,
                                  uint8_t out[RDMUX_ATTEMPT_FRAME_MAX]);
/* Reads a whole frame of untrusted input. RDMUX_PROTOCOL: another type, or wrong sizes. */
enum rdmux_status rdmux_attempt_frame_decode(const uint8_t *frame, size_t size,
                                             struct rdmux_attempt_frame *out);

/* Writes the acceptor's verdicts, at most RDMUX_MATCH_MAX; returns the bytes used. */
size_t rdmux_ranking_encode(const struct rdmux_match *matches, size_t count,
                            uint8_t out[RDMUX_RANKING_FRAME_MAX]);
/* Reads a whole RANKING frame of untrusted input and swaps the sides: `ours` is the connector's.
 * *count <= RDMUX_MATCH_MAX. RDMUX_PROTOCOL: wrong sizes, an index beyond the offers, ranks that do
 * not count 1, 2, 3 … from the first entry on, a ranked pair of two providers, or one whose path on
 * this side is not usable or does not meet this side's offer. */
enum rdmux_status rdmux_ranking_decode(const uint8_t *frame, size_t size,
                                       const struct rdmux_offer *ours,
                                       const struct rdmux_offer *theirs,
                                       struct rdmux_match out[RDMUX_MATCH_MAX], size_t *count);

#endif
