/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The dimensions of the generated cases, and the program that a row of them stands for. Both sides
 * make the same programs, so each knows what its peer posts. Nothing here calls rdmux.
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
    SIZE_INLINE_MORE, /* LENGTH with INLINE */
    SIZE_2048,
    SIZE_4097,
    SIZE_16385,
    SIZE_40003,
    SIZE_300007,
    SIZE_MOST,     /* max_send, or the whole region */
    SIZE_TOO_MUCH, /* a byte more: LENGTH, or OUT_OF_RANGE */
};

enum list {
    LIST_CALL, /* rdmux_send() and the like */
    LIST_ONE,  /* rdmux_post() with one piece */
    LIST_TWO,
    LIST_MOST,  /* as many as the endpoint grants */
    LIST_STEEP, /* as many, the last ones much shorter than the first */
    LIST_EMPTY, /* empty pieces first, last and in between */
    LIST_NONE,  /* no piece at all, for 0 bytes */
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
    BEFORE_PAUSED,  /* a write that waits for a read, by FENCE */
    BEFORE_STARVED, /* a send that has no receive yet */
    BEFORE_WRITTEN,
    BEFORE_SENT,
    BEFORE_LAST,  /* one place is left in the queue */
    BEFORE_FULL,  /* none is */
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
    RECEIVE_ROOMY,  /* in a region, with room behind */
    RECEIVE_PIECES, /* a list with empty pieces */
    RECEIVE_LATE,   /* posted only after the send was */
    RECEIVE_LATE_ROOMY,
    RECEIVE_OPEN, /* in a region that the peer may write to, of just the length */
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

/* Whether the post of the row's operation must be refused. */
bool row_is_refused(const struct row *row);
/* The rows that the case of an operation walks: every `strength` values that may stand together in a
 * row which is taken, and every such values of which a refusal is one. The caller frees *out. Returns
 * how many, 0: memory lacks. */
size_t generated_rows(enum subject_op op, unsigned strength, struct row **out);
/* Whether the row's receives are posted after its requests. */
bool row_is_late(const struct row *row);
bool row_receives_in_region(const struct row *row);
/* Whether the row is on an endpoint with an SRQ. With --quick such rows are left out. */
bool row_is_on_srq(const struct row *row);
/* The capabilities, RDMUX_CAP_*, that the row takes. */
uint64_t row_needs(const struct row *row);
/* The rules that the cases of an operation see kept. Those of every operation come from what is
 * posted before and behind it, and from how completions are waited for. */
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

/* "1.0.3": a row as it stands in --sequence. Returns the characters read, 0: it is none. */
int row_scan(const char *text, struct row *out);
/* Returns the characters written, without the NUL. */
int row_print(const struct row *row, char *out, size_t size);
/* What the row asks for, in words. */
void row_describe(const struct row *row, char *out, size_t size);

/* ----------------------------------------------------------------------------------- programs */

enum {
    REGION_LENGTH = (1 << 20) + 4099, /* odd, and more than paths do at a stretch */
    MESSAGE_MOST = (1 << 20) + 4001,  /* likewise */
    QUEUE_DEPTH = 24,
    READS_BEFORE = 20,
    CROWD = 3 * QUEUE_DEPTH,
    REQUESTS_MAX = CROWD + 8,
    NUMBERED_FROM = 1000, /* contexts of requests */
};

/* What both sides of an endpoint know of its sender. */
struct limits {
    uint32_t max_inline;
    uint32_t max_sge;
};

/* Why a request is in its program. */
enum role { ROLE_BEFORE, ROLE_SUBJECT, ROLE_PROOF };

struct wanted {
    enum role role;
    uint32_t op; /* RDMUX_OP_* */
    uint32_t flags;
    enum list list;
    enum local local;
    unsigned remote; /* enum remote_kind; REMOTE_KINDS: none is named */
    unsigned import;
    uint64_t offset;
    size_t length;
    uint64_t seed; /* of its bytes */
    uint32_t imm;
    uint64_t operand;
    bool misses;              /* compare_swap: expects a value that is not there */
    enum rdmux_status answer; /* of the post */
    const char *answer_rule;  /* that says so */
    bool may_be_full;         /* AGAIN is an answer, too */
    bool must_be_full;        /* AGAIN is the first answer */
};

struct program {
    struct row row;
    struct wanted requests[REQUESTS_MAX];
    size_t count;
};

/* What a row makes one side post. seed: of the bytes and numbers in it, another one each time. */
void program_make(const struct row *row, uint64_t seed, const struct limits *limits,
                  struct program *out);

/* How many of the program's requests, from its first on, are placed once all those that are signaled
 * have completed: the completion of a later one speaks for one with PLACED that is unsignaled (1.8). */
size_t program_placed(const struct program *program);

/* A number that depends on the row alone. */
uint64_t row_hash(const struct row *row);
/* The bytes a request changes at its remote are these. model: of the remote's region; false: the
 * model is not touched. *found: what an atomic finds; *expects: what a compare_swap expects. */
bool wanted_apply(const struct wanted *wanted, uint8_t *model, uint64_t *found, uint64_t *expects);

bool wanted_is_message(const struct wanted *wanted);
bool wanted_is_write(const struct wanted *wanted);
bool wanted_is_atomic(const struct wanted *wanted);
bool wanted_has_imm(const struct wanted *wanted);
/* RDMUX_WC_* of its completion. */
uint32_t wanted_opcode(const struct wanted *wanted);

#endif
