/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared by the parts of a load: its messages, its memory, and the model of both. */
#ifndef FAILOVER_LOAD_MODEL_H
#define FAILOVER_LOAD_MODEL_H

#include "load.h"

enum {
    RECEIVES = LOAD_DEPTH,
    PIECES_MAX = 4,
    SIGNAL_EVERY = 16,
    TEXT_LEAST = 64, /* bytes of a mail, header included */
    HOLD_MAX = 400,  /* entries that a mail is kept for */
    MARK = 0x6d,
    SCRIBBLE = 0x5c, /* overwrites free buffers */
};
#define STATUS_NONE UINT32_MAX

/* ------------------------------------------------------------------------------------- messages */

enum message_kind {
    KIND_TEXT = 1, /* bytes only */
    KIND_MAIL = 2, /* a slot has a text */
    KIND_FREE = 3, /* a slot is free for the peer */
    KIND_DONE = 4, /* a table follows */
};

/* Header of a message, and of a mail that came by write_imm. */
struct message {
    uint64_t magic;
    uint64_t sequence; /* from 1 */
    uint32_t kind;
    uint32_t length; /* of the whole */
    uint32_t slot;
    uint32_t mail_length;
    uint64_t number; /* of the mail's text */
};

/* Table behind the header of KIND_DONE. */
struct table {
    uint64_t notes[LOAD_NOTES];
    uint64_t single_done[LOAD_SINGLES];
    uint64_t single_posted[LOAD_SINGLES];
    uint64_t added_done[LOAD_ADDED];
    uint64_t added_doubtful[LOAD_ADDED];
    uint64_t swapped[LOAD_SWAPPED];
    uint64_t swapped_or[LOAD_SWAPPED][2]; /* or one of these values, of swaps in doubt */
    uint64_t doubtful_count;
    uint64_t doubtful[LOAD_DOUBTFUL];
};
_Static_assert(sizeof(struct message) + sizeof(struct table) <= LOAD_SLOT_SIZE,
               "the last message fits");

/* Layout of a side's region. */
struct region {
    uint8_t mails[LOAD_MAILS][LOAD_SLOT_SIZE];
    uint8_t notes[LOAD_NOTES][LOAD_SLOT_SIZE];
    uint8_t singles[LOAD_SINGLES][LOAD_SLOT_SIZE];
    uint64_t added[LOAD_ADDED];
    uint64_t swapped[LOAD_SWAPPED];
};

enum request_kind {
    REQUEST_MESSAGE = 1,
    REQUEST_MAIL, /* a write of one; REQUEST_MESSAGE if it is the write_imm */
    REQUEST_NOTE,
    REQUEST_SINGLE,
    REQUEST_READ,
    REQUEST_ADD,
    REQUEST_SWAP,
    REQUEST_FLUSH,
};

struct request {
    enum request_kind kind;
    uint32_t op;
    uint32_t flags;
    uint32_t slot;
    uint64_t number; /* of the message, or of the text */
    size_t length;
};

/* A mail that this side keeps. */
struct kept {
    bool is_kept;
    uint64_t until; /* entries taken */
};

struct load {
    struct load_attr attr;
    struct chance chance;
    struct rdmux_ep *ep;
    struct rdmux_remote *remote;
    struct rdmux_mr *region_mr;
    struct rdmux_mr *arena_mr;
    struct region *region; /* the peer writes here */
    uint8_t *arena;        /* LOAD_RING slots of requests, RECEIVES of receives */

    /* Requests, by the sequence of their posting. */
    struct request ring[LOAD_RING];
    uint64_t posted;
    uint64_t done;     /* requests before it have completed */
    uint64_t silent;   /* posted since the last signaled one */
    uint64_t signaled; /* entries owed */
    uint64_t message;  /* of the last message posted */

    /* The model of the peer's region, by this side's writes. */
    bool is_busy[LOAD_MAILS];
    uint64_t text; /* number of the last text */
    uint64_t notes[LOAD_NOTES];
    uint32_t reading[LOAD_NOTES];
    struct table table;
    bool is_swapping[LOAD_SWAPPED];

    /* The model of this side. */
    uint64_t receives_posted;
    uint64_t receives_taken;
    uint64_t expected; /* next message of the peer */
    uint64_t entries;
    struct kept kept[LOAD_MAILS];
    uint64_t gaps[LOAD_DOUBTFUL]; /* messages that were missing when later ones came */
    uint64_t gap_count;

    bool is_finishing;
    bool has_said_done;
    bool done_is_over; /* the send of KIND_DONE has completed */
    bool peer_is_done;
    bool has_ended;
    uint32_t end_status;
    uint32_t first_failure[2]; /* of requests, of receives: its status */
    struct load_errors errors;
    struct load_counts counts;
    char why[LOAD_TEXT];
};

/* Counts an error, and keeps the first one's text. */
__attribute__((format(printf, 3, 4))) void load_wrong(struct load *load, uint64_t *count,
                                                      const char *format, ...);
/* Checks the status of a failed request or receive. Rule 7.2: the first has the cause or FLUSHED,
 * those behind it FLUSHED. */
void load_failed(struct load *load, uint32_t status, bool is_receive);
/* Returns whether all requests have completed. */
bool load_is_idle(const struct load *load);

/* Bytes that follow from their side and number. */
void load_fill(uint8_t *out, size_t length, uint64_t seed, uint32_t side, uint64_t number);
bool load_is_filled(const uint8_t *bytes, size_t length, uint64_t seed, uint32_t side,
                    uint64_t number);
bool load_is_all(const uint8_t *bytes, uint8_t value, size_t length);
uint64_t load_magic_of(const struct load *load, uint32_t side);
/* Texts of messages and of slots have different seeds. */
uint64_t load_text_seed(const struct load *load);
/* Each note has one length, so that each text covers the one before. */
size_t load_note_size(uint32_t slot);

/* The buffers of a request and of a receive. */
uint8_t *load_slot_of(const struct load *load, uint64_t sequence);
uint8_t *load_receive_of(const struct load *load, uint64_t which);

/* load_receives.c */
void load_offer_receives(struct load *load);
void load_take_receive(struct load *load, const struct rdmux_wc *wc);
/* load_completions.c */
void load_take_request(struct load *load, const struct rdmux_wc *wc);

#endif
