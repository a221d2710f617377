/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The dimensions of the generated cases, and the program that a row of them describes. Both sides
 * make the same programs, so each side knows what its peer posts. This code does not call rdmux.
 */
#ifndef CONFORMANCE_GENERATED_H
#define CONFORMANCE_GENERATED_H

#include "generate.h"

#include <rdmux/rdmux.h>

/* --------------------------------------------------------------------------------- dimensions */

enum {
    DIM_OP,
    DIM_HOW,
    DIM_EXTRA,
    DIM_SIZE,
    DIM_LIST,
    DIM_LOCAL,
    DIM_REMOTE,
    DIM_IMPORT,
    DIM_PLACE,
    DIM_BEFORE,
    DIM_ENDPOINT,
    DIM_WAIT,
    DIM_RECEIVE,
    DIM_PROOF,
    DIM_WAYS,
    DIM_COUNT,
};

enum subject_op {
    SUBJECT_SEND,
    SUBJECT_SEND_IMM,
    SUBJECT_WRITE,
    SUBJECT_WRITE_IMM,
    SUBJECT_READ,
    SUBJECT_FETCH_ADD,
    SUBJECT_COMPARE_SWAP,
    SUBJECT_FLUSH,
    SUBJECT_FLUSH_REGION,
    SUBJECT_OPS,
};

enum how { HOW_PLAIN, HOW_PLACED, HOW_INLINE, HOW_INLINE_PLACED };

enum extra {
    EXTRA_NONE,
    EXTRA_UNSIGNALED,
    EXTRA_FENCE,
    EXTRA_MORE,
    EXTRA_UNSIGNALED_FENCE,
    EXTRA_UNSIGNALED_MORE,
    EXTRA_FENCE_MORE,
    EXTRA_NO_REPLAY,
};

enum size {
    SIZE_8,
    SIZE_0,
    SIZE_1,
    SIZE_48,
    SIZE_49,
    SIZE_64,
    SIZE_INLINE_MOST,
    SIZE_INLINE_MORE, /* INLINE is refused with LENGTH */
    SIZE_2048,
    SIZE_4097,
    SIZE_16385,
    SIZE_40003,
    SIZE_300007,
    SIZE_MOST,     /* max_send, or the whole region */
    SIZE_TOO_MUCH, /* one byte more: LENGTH, or OUT_OF_RANGE */
};

enum list {
    LIST_CALL, /* rdmux_send() and the like */
    LIST_ONE,  /* rdmux_post() with one piece */
    LIST_TWO,
    LIST_MOST,  /* as many pieces as the endpoint grants */
    LIST_STEEP, /* as many, the last ones much shorter than the first */
    LIST_EMPTY, /* empty pieces first, last and in between */
    LIST_NONE,  /* no piece, for 0 bytes */
    LIST_TOO_LONG,
};

enum local { LOCAL_PLAIN, LOCAL_REGISTERED, LOCAL_ALLOCATED, LOCAL_END, LOCAL_MIXED };

enum remote_kind {
    REMOTE_REGISTERED,
    REMOTE_ALLOCATED,
    REMOTE_REGISTERED_NO_MAP,
    REMOTE_ALLOCATED_NO_MAP,
    REMOTE_KINDS,
};

enum import { IMPORT_FIRST, IMPORT_SECOND, IMPORTS };

enum place { PLACE_BEGIN, PLACE_ODD, PLACE_PAGE, PLACE_END };

enum before {
    BEFORE_NOTHING,
    BEFORE_READ,
    BEFORE_READS,
    BEFORE_ATOMIC,
    BEFORE_PAUSED,  /* a write held back by FENCE behind a read */
    BEFORE_STARVED, /* a send that has no receive yet */
    BEFORE_WRITTEN,
    BEFORE_SENT,
    BEFORE_LAST,  /* one free slot in the queue */
    BEFORE_FULL,  /* no free slot */
    BEFORE_CROWD, /* many unsignaled requests, more than the queue holds */
};

enum endpoint {
    ENDPOINT_FIRST,
    ENDPOINT_SECOND,
    ENDPOINT_SOCKETS, /* with several data sockets */
    ENDPOINT_SRQ_FIRST,
    ENDPOINT_SRQ_SECOND,
    ENDPOINTS
};

enum wait { WAIT_POLL, WAIT_POLL_ONE, WAIT_SLEEP, WAIT_ARM, WAIT_THREAD };

enum receive {
    RECEIVE_EXACT,
    RECEIVE_ROOMY,  /* in a region, with spare room behind */
    RECEIVE_PIECES, /* a list with empty pieces */
    RECEIVE_LATE,   /* posted only after the send */
    RECEIVE_LATE_ROOMY,
    RECEIVE_OPEN, /* in a region that the peer may write to, of the exact length */
    RECEIVE_LATE_OPEN,
};

enum proof {
    PROOF_PLACED,
    PROOF_FLUSH_REGION,
    PROOF_SEND,
    PROOF_WRITE_IMM,
    PROOF_READ,
    PROOF_ATOMIC
};

enum ways { WAYS_ONE, WAYS_BOTH };

extern const struct table generated_table;

/* Returns whether the post of the row's operation must be refused. */
bool row_is_refused(const struct row *row);
/* Generates the rows that an operation's case runs. They cover every combination of `strength`
 * values that an accepted row can have, and every such combination that contains a cause of
 * refusal. The caller frees *out. Returns the number of rows, 0 if memory is short. */
size_t generated_rows(enum subject_op op, unsigned strength, struct row **out);
/* Returns whether the row's receives are posted after its requests. */
bool row_is_late(const struct row *row);
bool row_receives_in_region(const struct row *row);
/* Returns whether the row is on an endpoint with an SRQ. Such rows are left out with --quick. */
bool row_is_on_srq(const struct row *row);
/* Returns the capabilities, RDMUX_CAP_*, that the row needs. */
uint64_t row_needs(const struct row *row);
/* The rules that the cases of an operation observe. RULES_EVERY applies to all operations: it comes
 * from the requests before and behind the operation and from the ways to wait for completions. */
#define RULES_EVERY                                                                         \
    "1.1, 1.2, 1.4, 1.6, 1.8, 1.9, 1.10, 1.12, 1.13, 1.15, 1.16, 2.1, 2.2, 2.3, 2.4, 2.5, " \
    "2.6, 2.7, 2.8, 2.11, 2.14, 3.1, 3.3, 3.4, 3.5, 3.7, 4.1, 4.2, 5.2, 13.1, 13.2, 13.6, " \
    "13.10, 13.12, 15.8"
#define RULES_SEND "1.14, -1.14, 5.4, -5.4, 12.1, " RULES_EVERY
#define RULES_SEND_IMM RULES_SEND
#define RULES_WRITE "1.14, -1.14, 6.1, -6.1, 6.3, -6.3, 6.15, 12.1, 12.5, " RULES_EVERY
#define RULES_WRITE_IMM RULES_WRITE
#define RULES_READ "1.14, -1.14, 3.6, 6.1, -6.1, 6.3, -6.3, 6.15, 12.1, 12.5, " RULES_EVERY
#define RULES_ATOMIC "1.14, -1.14, 3.6, 6.15, " RULES_EVERY
#define RULES_FLUSH "6.1, 12.1, " RULES_EVERY
#define RULES_CLOSED "1.14, 2.15, 3.6, 6.1, 6.15, 12.1, 12.5, " RULES_EVERY
const char *subject_rules(enum subject_op op);

/* Reads a row in the form of --sequence, such as "1.0.3". Returns the number of characters read, 0
 * if there is no row. */
int row_scan(const char *text, struct row *out);
/* Returns the number of characters written, without the NUL. */
int row_print(const struct row *row, char *out, size_t size);
/* Describes the row in words. */
void row_describe(const struct row *row, char *out, size_t size);

/* ----------------------------------------------------------------------------------- programs */

enum {
    REGION_LENGTH = (1 << 20) + 4099, /* odd, and more than a path transfers in one piece */
    MESSAGE_MOST = (1 << 20) + 4001,  /* odd and large, too */
    QUEUE_DEPTH = 24,
    READS_BEFORE = 20,
    CROWD = 3 * QUEUE_DEPTH,
    REQUESTS_MAX = CROWD + 8,
    NUMBERED_FROM = 1000, /* first context of a request */
};

/* Limits of an endpoint's sender, known to both sides. */
struct limits {
    uint32_t max_inline;
    uint32_t max_sge;
};

/* Purpose of a request in its program. */
enum role { ROLE_BEFORE, ROLE_SUBJECT, ROLE_PROOF };

struct wanted {
    enum role role;
    uint32_t op; /* RDMUX_OP_* */
    uint32_t flags;
    enum list list;
    enum local local;
    unsigned remote; /* enum remote_kind; REMOTE_KINDS: the request has none */
    unsigned import;
    uint64_t offset;
    size_t length;
    uint64_t seed; /* seed of its bytes */
    uint32_t imm;
    uint64_t operand;
    bool misses;              /* compare_swap: expects a value that is not in memory */
    enum rdmux_status answer; /* status that the post returns */
    const char *answer_rule;  /* the rule that requires this status */
    bool may_be_full;         /* AGAIN is valid, too */
    bool must_be_full;        /* the first answer must be AGAIN */
};

struct program {
    struct row row;
    struct wanted requests[REQUESTS_MAX];
    size_t count;
};

/* Makes the program that one side posts for a row. seed selects its bytes and numbers; each use has
 * another seed. */
void program_make(const struct row *row, uint64_t seed, const struct limits *limits,
                  struct program *out);

/* Returns how many of the program's first requests are placed once all its signaled requests have
 * completed. The completion of a later request covers an earlier unsignaled request with PLACED
 * (1.8). */
size_t program_placed(const struct program *program);

/* Returns a number that depends on the row alone. */
uint64_t row_hash(const struct row *row);
/* Applies the request's changes to model, the bytes of its remote's region. Returns false if it
 * leaves the model unchanged. *found: the value an atomic finds. *expects: the value a compare_swap
 * expects. */
bool wanted_apply(const struct wanted *wanted, uint8_t *model, uint64_t *found, uint64_t *expects);

bool wanted_is_message(const struct wanted *wanted);
bool wanted_is_write(const struct wanted *wanted);
bool wanted_is_atomic(const struct wanted *wanted);
bool wanted_has_imm(const struct wanted *wanted);
bool wanted_is_signaled(const struct wanted *wanted);
/* Returns the RDMUX_WC_* of its completion. */
uint32_t wanted_opcode(const struct wanted *wanted);

#endif
