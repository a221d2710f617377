/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * State of a generated case on one side, shared by the files that post its rows, take the entries
 * and check memory. Each function ends the process with the rule that it finds broken.
 */
#ifndef CONFORMANCE_GENERATED_STAGE_H
#define CONFORMANCE_GENERATED_STAGE_H

#include "generate.h"
#include "generated.h"
#include "harness.h"

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SGES = 6,
    PIECES_MAX = SGES + 1,
    ARENA_OPEN = MEMORY_KINDS, /* allocated, and the peer may write to it */
    ARENAS,
    ARENA_LENGTH = 5 * REGION_LENGTH + 1,
    GAP = 13,           /* between two buffers; must never be written */
    BYTE_INLINE = 0x55, /* overwrites an INLINE buffer after its post */
    BYTE_FREE = 0x66,   /* overwrites other buffers after their completion */
    BYTE_ROOM = 0x77,   /* content of receives and results before */
};

/* Local memory of one kind. The shadow is its required content. */
struct arena {
    struct region region;
    uint8_t *shadow;
    size_t used; /* bytes used at its start */
    size_t end;  /* where the bytes used at its end begin */
};

struct piece {
    struct arena *arena;
    size_t at;
    size_t length;
};

/* A buffer of local memory, in pieces. */
struct buffer {
    struct piece pieces[PIECES_MAX];
    size_t count;
    size_t length;
};

/* A posted request. */
struct posted {
    const struct wanted *wanted;
    struct buffer buffer;
    const uint8_t *expected; /* required result of a read or an atomic; NULL: none */
    bool free;               /* its buffer is free again */
};

struct receive_slot {
    struct buffer buffer;
    const struct wanted *message;
    bool taken;
};

struct stage {
    struct side *side;
    const char *rules; /* rules that the case cites */
    struct rdmux_srq *srq;
    struct rdmux_ep *eps[ENDPOINTS];
    size_t ep_count;
    struct rdmux_remote *remotes[ENDPOINTS][REMOTE_KINDS][IMPORTS];
    struct region regions[REMOTE_KINDS];
    uint8_t *model[REMOTE_KINDS];  /* models of this side's regions */
    uint8_t *theirs[REMOTE_KINDS]; /* models of the peer's regions */
    struct limits limits[2];       /* of this side and of the peer */
    struct arena arenas[ARENAS];
    uint8_t *found; /* required results of reads and atomics, REGION_LENGTH and more */
    size_t found_used;

    /* State of the current row. */
    struct row row;
    uint64_t row_deadline;
    struct rdmux_ep *ep;
    struct program out;
    struct program in;
    struct posted posted[REQUESTS_MAX];
    size_t posted_count;
    size_t done; /* posted requests that have completed or were passed over */
    struct receive_slot receives[REQUESTS_MAX];
    size_t receive_count;
    size_t received;
    size_t in_applied; /* in.requests applied to the model */
    bool writable_due;
    bool took; /* a poll took place since the row's first post */
    unsigned polls;
};

/* ------------------------------------------------------------------------------------- failures */

/* Fails the case: the row breaks the rule, or 1.1 if the case does not cite it. wanted: the request
 * concerned; NULL: none. */
_Noreturn void rule_broken(const struct stage *stage, const char *rule, const struct wanted *wanted,
                           const char *format, ...) PRINTF_LIKE(4, 5);
/* Describes a request, in static memory. */
const char *wanted_text(const struct wanted *wanted);

/* -------------------------------------------------------------------------------------- buffers */

/* *at: the first byte that differs. */
bool bytes_differ(const uint8_t *bytes, const uint8_t *model, size_t length, size_t *at);

/* Takes the next bytes of the arena, behind a gap. */
struct piece piece_take(struct arena *arena, size_t length);
uint8_t *piece_bytes(const struct piece *piece);

/* Takes the request's local bytes. */
struct buffer buffer_take(struct stage *stage, const struct wanted *wanted);
/* Fills the buffer and its shadow. */
void buffer_fill(const struct buffer *buffer, uint8_t value);
void buffer_pattern(const struct buffer *buffer, uint64_t seed);
/* Sets the required first bytes of the buffer; the others must not change. */
void buffer_expect(const struct buffer *buffer, const uint8_t *bytes, size_t length);
/* Returns whether a byte is not the required one: its place, its value and the required value. */
bool buffer_differs(const struct buffer *buffer, size_t *at, uint8_t *came, uint8_t *wanted);
void buffer_sges(const struct buffer *buffer, struct rdmux_sge sges[PIECES_MAX]);

/* --------------------------------------------------------------------------- the parts of a row */

/* Posts the receives of all messages and notices of the peer's program. */
void stage_post_receives(struct stage *stage);
/* Posts a request of this side's program. Waits for WRITABLE if the queue may be full. */
void stage_post(struct stage *stage, const struct wanted *wanted);

/* Checks an entry of the cq against the row. */
void stage_take_entry(struct stage *stage, const struct rdmux_wc *wc);
/* Waits in the row's way and takes the available entries. */
void stage_take_some(struct stage *stage);
/* Waits until no entry is due. */
void stage_take_all(struct stage *stage);
/* Returns whether a completion of a signaled request or a receive is due. */
bool stage_has_entries_due(const struct stage *stage);
/* A row takes milliseconds; if it exceeds its deadline, it hangs. */
bool stage_is_late(const struct stage *stage);
/* Returns the buffers of requests up to this one to the program (1.8, 3.1). */
void stage_give_back(struct stage *stage, size_t last);

/* Checks that the writes before a message, or of the message itself, are placed when it arrives. */
void stage_check_writes_before(struct stage *stage, const struct wanted *last);
/* Checks the receive's bytes. when: in words; rule: the one that a wrong byte breaks otherwise. */
void stage_check_message(struct stage *stage, const struct receive_slot *slot, const char *when,
                         const char *rule);
/* Checks all bytes of this side's regions after the peer's whole program. */
void stage_check_regions(struct stage *stage, const char *when);
/* Waits for the peer's word that its completions have come, and checks what is placed by then,
 * while this side has made no call. */
void stage_check_unpolled(struct stage *stage);
/* Checks that no byte outside the row's buffers has changed. */
void stage_check_arenas(struct stage *stage);

#endif
