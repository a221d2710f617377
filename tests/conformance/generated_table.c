/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The dimensions in words, and their constraints. */
#include "generated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const char *const ops[] = {
    "send",         "send_imm", "write",
    "write_imm",    "read",     "fetch_add",
    "compare_swap", "flush",    "flush that names a region",
};
static const char *const hows[] = { "", "PLACED", "INLINE", "INLINE and PLACED" };
static const char *const extras[] = {
    "",
    "UNSIGNALED",
    "FENCE",
    "MORE",
    "UNSIGNALED and FENCE",
    "UNSIGNALED and MORE",
    "FENCE and MORE",
    "NO_REPLAY",
};
static const char *const sizes[] = {
    "8 bytes",       "0 bytes",           "1 byte",
    "48 bytes",      "49 bytes",          "64 bytes",
    "max_inline",    "max_inline + 1",    "2,048 bytes",
    "4,097 bytes",   "16,385 bytes",      "40,003 bytes",
    "300,007 bytes", "as long as may be", "a byte more than may be",
};
static const char *const lists[] = {
    "by the call for one buffer",         "from a list of one piece",
    "from a list of two pieces",          "from a list of as many pieces as are granted",
    "from a list of ever shorter pieces", "from a list with empty pieces",
    "from a list of no pieces",           "from a list with a piece too many",
};
static const char *const locals[] = {
    "plain local memory",
    "registered local memory",
    "allocated local memory",
    "the last bytes of a registered local region",
    "local memory of every kind in turns",
};
static const char *const remotes[] = {
    "a registered region",
    "an allocated region",
    "a registered region with NO_MAP",
    "an allocated region with NO_MAP",
};
static const char *const imports[] = { "the first import", "the second import" };
static const char *const places[] = {
    "its first byte",
    "an odd offset",
    "the last bytes of a page and the next",
    "its last bytes",
};
static const char *const befores[] = {
    "nothing before it",
    "one read under way before it",
    "20 reads under way before it",
    "an atomic under way before it",
    "a fenced write behind a long read before it",
    "a send without a receive before it",
    "an unsignaled write before it",
    "a send before it",
    "one place left in the queue",
    "a full queue",
    "72 unsignaled requests before it, in a queue of 24",
};
static const char *const endpoints[] = {
    "the first endpoint",
    "the second endpoint of the cq",
    "an endpoint with four data sockets",
    "the first endpoint of an SRQ",
    "the second endpoint of an SRQ",
};
static const char *const waits[] = {
    "by polling",
    "by polling for one entry at a time",
    "in rdmux_cq_wait",
    "by arming right after the post, and poll(2)",
    "with a thread asleep on the descriptor",
};
static const char *const receives[] = {
    "receives of just the length",
    "receives in a region, with room behind",
    "receives into lists with empty pieces",
    "receives posted after the send",
    "receives in a region, posted after the send",
    "receives in a region that the peer may write to",
    "receives in a region that the peer may write to, posted after the send",
};
static const char *const proofs[] = {
    "shown by PLACED or a flush", "shown by a flush that names the region",
    "shown by a later send",      "shown by a later write_imm",
    "shown by a later read",      "shown by a later atomic",
};
static const char *const ways[] = { "one way", "both ways at once" };

#define DIMENSION(name, values)        \
    {                                  \
        name, values, COUNT_OF(values) \
    }
static const struct dimension dimensions[DIM_COUNT] = {
    [DIM_OP] = DIMENSION("operation", ops),
    [DIM_HOW] = DIMENSION("flags", hows),
    [DIM_EXTRA] = DIMENSION("more flags", extras),
    [DIM_SIZE] = DIMENSION("size", sizes),
    [DIM_LIST] = DIMENSION("list", lists),
    [DIM_LOCAL] = DIMENSION("local memory", locals),
    [DIM_REMOTE] = DIMENSION("region", remotes),
    [DIM_IMPORT] = DIMENSION("import", imports),
    [DIM_PLACE] = DIMENSION("place", places),
    [DIM_BEFORE] = DIMENSION("state of the queue", befores),
    [DIM_ENDPOINT] = DIMENSION("endpoint", endpoints),
    [DIM_WAIT] = DIMENSION("way to wait", waits),
    [DIM_RECEIVE] = DIMENSION("receives", receives),
    [DIM_PROOF] = DIMENSION("proof", proofs),
    [DIM_WAYS] = DIMENSION("ways", ways),
};

/* --------------------------------------------------------------------------------- constraints */

static bool is(const struct row *row, unsigned dimension, unsigned value)
{
    return row->values[dimension] == value;
}

/* Returns whether a value is chosen and is not this one. */
static bool is_not(const struct row *row, unsigned dimension, unsigned value)
{
    return row->values[dimension] != GENERATE_ANY && row->values[dimension] != value;
}

static bool op_is_message(const struct row *row)
{
    return is(row, DIM_OP, SUBJECT_SEND) || is(row, DIM_OP, SUBJECT_SEND_IMM);
}

static bool op_is_atomic(const struct row *row)
{
    return is(row, DIM_OP, SUBJECT_FETCH_ADD) || is(row, DIM_OP, SUBJECT_COMPARE_SWAP);
}

static bool op_is_flush(const struct row *row)
{
    return is(row, DIM_OP, SUBJECT_FLUSH) || is(row, DIM_OP, SUBJECT_FLUSH_REGION);
}

static bool is_inline(const struct row *row)
{
    return is(row, DIM_HOW, HOW_INLINE) || is(row, DIM_HOW, HOW_INLINE_PLACED);
}

static bool is_beyond_inline(const struct row *row)
{
    return row->values[DIM_SIZE] != GENERATE_ANY && row->values[DIM_SIZE] >= SIZE_INLINE_MORE;
}

/* Dimensions that the operation does not use must have their simplest value. */
static bool fits_the_operation(const struct row *row)
{
    if (op_is_message(row) &&
        (is_not(row, DIM_REMOTE, 0) || is_not(row, DIM_IMPORT, 0) || is_not(row, DIM_PLACE, 0))) {
        return false;
    }
    if (op_is_atomic(row) && (is_not(row, DIM_SIZE, SIZE_8) || is(row, DIM_PLACE, PLACE_ODD) ||
                              is(row, DIM_LIST, LIST_NONE) || is(row, DIM_LIST, LIST_TWO) ||
                              is(row, DIM_LIST, LIST_MOST) || is(row, DIM_LIST, LIST_STEEP) ||
                              is(row, DIM_LIST, LIST_EMPTY))) {
        return false;
    }
    if (op_is_flush(row) && (is_not(row, DIM_SIZE, SIZE_0) || is_not(row, DIM_LOCAL, LOCAL_PLAIN) ||
                             is(row, DIM_HOW, HOW_PLAIN) || is(row, DIM_HOW, HOW_INLINE))) {
        return false;
    }
    if (is(row, DIM_OP, SUBJECT_FLUSH) &&
        (is_not(row, DIM_REMOTE, 0) || is_not(row, DIM_IMPORT, 0) || is_not(row, DIM_PLACE, 0))) {
        return false;
    }
    return true;
}

static unsigned refusals_of(const struct row *row)
{
    unsigned reasons = 0;
    const bool cannot_inline = op_is_atomic(row) || is(row, DIM_OP, SUBJECT_READ);
    reasons += is_inline(row) && cannot_inline;
    reasons += is_inline(row) && !cannot_inline && is_beyond_inline(row) &&
               is_not(row, DIM_OP, GENERATE_ANY);
    reasons += is(row, DIM_SIZE, SIZE_TOO_MUCH);
    reasons += is(row, DIM_LIST, LIST_TOO_LONG);
    return reasons;
}

static bool fits_the_size(const struct row *row)
{
    const bool empty = is(row, DIM_SIZE, SIZE_0);
    const bool split = is(row, DIM_LIST, LIST_TWO) || is(row, DIM_LIST, LIST_MOST) ||
                       is(row, DIM_LIST, LIST_STEEP);
    if (is(row, DIM_LIST, LIST_NONE) && is_not(row, DIM_SIZE, SIZE_0)) {
        return false;
    }
    /* Each piece needs at least one byte. */
    if (split && (empty || is(row, DIM_SIZE, SIZE_1))) {
        return false;
    }
    /* An access to the whole region begins at its first byte. */
    if ((is(row, DIM_SIZE, SIZE_MOST) || is(row, DIM_SIZE, SIZE_TOO_MUCH)) &&
        is_not(row, DIM_PLACE, PLACE_BEGIN)) {
        return false;
    }
    /* A single piece lies in one kind of memory; several pieces have no common end. */
    const bool several = split || is(row, DIM_LIST, LIST_EMPTY) || is(row, DIM_LIST, LIST_TOO_LONG);
    if (is(row, DIM_LOCAL, LOCAL_MIXED) && is_not(row, DIM_LIST, GENERATE_ANY) && !several) {
        return false;
    }
    return !(is(row, DIM_LOCAL, LOCAL_END) && (several || is(row, DIM_LIST, LIST_NONE)));
}

/* Returns whether the row has no message, whatever the other values may be. */
static bool is_without_message(const struct row *row)
{
    return row->values[DIM_OP] != GENERATE_ANY && !op_is_message(row) &&
           !is(row, DIM_OP, SUBJECT_WRITE_IMM) && row->values[DIM_BEFORE] != GENERATE_ANY &&
           !is(row, DIM_BEFORE, BEFORE_STARVED) && !is(row, DIM_BEFORE, BEFORE_SENT) &&
           row->values[DIM_PROOF] != GENERATE_ANY && !is(row, DIM_PROOF, PROOF_SEND) &&
           !is(row, DIM_PROOF, PROOF_WRITE_IMM);
}

static bool fits_the_receives(const struct row *row)
{
    const bool on_srq = is(row, DIM_ENDPOINT, ENDPOINT_SRQ_FIRST) ||
                        is(row, DIM_ENDPOINT, ENDPOINT_SRQ_SECOND);
    if (is(row, DIM_BEFORE, BEFORE_STARVED) && row->values[DIM_RECEIVE] != GENERATE_ANY &&
        !row_is_late(row)) {
        return false;
    }
    /* An SRQ may refuse receives without a region, and long lists (3.7). */
    if (on_srq && row->values[DIM_RECEIVE] != GENERATE_ANY && !row_receives_in_region(row)) {
        return false;
    }
    return !is_without_message(row) || on_srq || !is_not(row, DIM_RECEIVE, RECEIVE_EXACT);
}

/* A row has at most one reason to be refused; otherwise the path could choose the status. */
static bool allowed(const struct row *row)
{
    return fits_the_operation(row) && refusals_of(row) <= 1 && fits_the_size(row) &&
           fits_the_receives(row);
}

static bool allowed_and_taken(const struct row *row)
{
    return allowed(row) && refusals_of(row) == 0;
}

const struct table generated_table = { dimensions, DIM_COUNT, allowed };

bool row_is_refused(const struct row *row)
{
    return refusals_of(row) > 0;
}

/* The other values of a refused row have no effect, so it covers none of their combinations. The
 * accepted rows cover these among themselves. */
size_t generated_rows(enum subject_op op, unsigned strength, struct row **out)
{
    static const struct table taken_table = { dimensions, DIM_COUNT, allowed_and_taken };
    struct row fixed = row_of_any();
    struct row *taken = NULL;
    struct row *all = NULL;
    fixed.values[DIM_OP] = (uint8_t)op;
    size_t count = generate_rows(&taken_table, &fixed, strength, &taken);
    size_t all_count = generate_rows(&generated_table, &fixed, strength, &all);
    *out = count + all_count == 0 ? NULL : calloc(count + all_count, sizeof(**out));
    if (*out != NULL) {
        memcpy(*out, taken, count * sizeof(**out));
        for (size_t i = 0; i < all_count; i++) {
            if (row_is_refused(&all[i])) {
                (*out)[count++] = all[i];
            }
        }
    }
    free(taken);
    free(all);
    return *out == NULL ? 0 : count;
}

/* ------------------------------------------------------------------------------------- of rows */

bool row_is_late(const struct row *row)
{
    return is(row, DIM_RECEIVE, RECEIVE_LATE) || is(row, DIM_RECEIVE, RECEIVE_LATE_ROOMY) ||
           is(row, DIM_RECEIVE, RECEIVE_LATE_OPEN);
}

bool row_receives_in_region(const struct row *row)
{
    return is(row, DIM_RECEIVE, RECEIVE_ROOMY) || is(row, DIM_RECEIVE, RECEIVE_LATE_ROOMY) ||
           is(row, DIM_RECEIVE, RECEIVE_OPEN) || is(row, DIM_RECEIVE, RECEIVE_LATE_OPEN);
}

bool row_is_on_srq(const struct row *row)
{
    return row->values[DIM_ENDPOINT] >= ENDPOINT_SRQ_FIRST;
}

static uint64_t op_needs(unsigned op)
{
    switch (op) {
    case SUBJECT_SEND:
        return RDMUX_CAP_SEND;
    case SUBJECT_SEND_IMM:
        return RDMUX_CAP_SEND_IMM;
    case SUBJECT_WRITE:
        return RDMUX_CAP_WRITE;
    case SUBJECT_WRITE_IMM:
        return RDMUX_CAP_WRITE_IMM;
    case SUBJECT_READ:
        return RDMUX_CAP_READ;
    case SUBJECT_FETCH_ADD:
        return RDMUX_CAP_FETCH_ADD;
    case SUBJECT_COMPARE_SWAP:
        return RDMUX_CAP_COMPARE_SWAP;
    default:
        return (uint64_t)RDMUX_CAP_WRITE | RDMUX_CAP_PLACED;
    }
}

static uint64_t before_needs(unsigned before)
{
    switch (before) {
    case BEFORE_READ:
    case BEFORE_READS:
        return RDMUX_CAP_READ;
    case BEFORE_ATOMIC:
    case BEFORE_CROWD:
        return RDMUX_CAP_FETCH_ADD;
    case BEFORE_PAUSED:
        return (uint64_t)RDMUX_CAP_READ | RDMUX_CAP_WRITE | RDMUX_CAP_FENCE;
    case BEFORE_STARVED:
    case BEFORE_SENT:
        return RDMUX_CAP_SEND;
    case BEFORE_WRITTEN:
    case BEFORE_LAST:
    case BEFORE_FULL:
        return RDMUX_CAP_WRITE;
    default:
        return 0;
    }
}

static uint64_t proof_needs(unsigned proof)
{
    static const uint64_t needs[] = {
        [PROOF_PLACED] = (uint64_t)RDMUX_CAP_WRITE | RDMUX_CAP_PLACED,
        [PROOF_FLUSH_REGION] = (uint64_t)RDMUX_CAP_WRITE | RDMUX_CAP_PLACED,
        [PROOF_SEND] = RDMUX_CAP_SEND,
        [PROOF_WRITE_IMM] = RDMUX_CAP_WRITE_IMM,
        [PROOF_READ] = RDMUX_CAP_READ,
        [PROOF_ATOMIC] = RDMUX_CAP_FETCH_ADD,
    };
    return needs[proof];
}

uint64_t row_needs(const struct row *row)
{
    uint64_t needs = op_needs(row->values[DIM_OP]) | before_needs(row->values[DIM_BEFORE]) |
                     proof_needs(row->values[DIM_PROOF]);
    if (is(row, DIM_HOW, HOW_PLACED) || is(row, DIM_HOW, HOW_INLINE_PLACED)) {
        needs |= RDMUX_CAP_PLACED;
    }
    if (is(row, DIM_EXTRA, EXTRA_FENCE) || is(row, DIM_EXTRA, EXTRA_UNSIGNALED_FENCE) ||
        is(row, DIM_EXTRA, EXTRA_FENCE_MORE)) {
        needs |= RDMUX_CAP_FENCE;
    }
    if (row_is_on_srq(row)) {
        needs |= RDMUX_CAP_SRQ;
    }
    return needs;
}

int row_scan(const char *text, struct row *out)
{
    const char *at = text;
    *out = row_of_any();
    for (unsigned i = 0; i < DIM_COUNT; i++) {
        char *end = NULL;
        if (*at < '0' || *at > '9') {
            return 0;
        }
        unsigned long value = strtoul(at, &end, 10);
        if (value >= GENERATE_ANY || (i + 1 < DIM_COUNT && *end != '.')) {
            return 0;
        }
        out->values[i] = (uint8_t)value;
        at = i + 1 < DIM_COUNT ? end + 1 : end;
    }
    return row_is_valid(&generated_table, out) ? (int)(at - text) : 0;
}

int row_print(const struct row *row, char *out, size_t size)
{
    size_t used = 0;
    for (unsigned i = 0; i < DIM_COUNT && used < size; i++) {
        used += (size_t)snprintf(out + used, size - used, "%s%u", i == 0 ? "" : ".", row->values[i]);
    }
    return (int)used;
}

void row_describe(const struct row *row, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < DIM_COUNT && used < size; i++) {
        const char *value = dimensions[i].values[row->values[i]];
        const bool has_remote = !op_is_message(row) && !is(row, DIM_OP, SUBJECT_FLUSH);
        const bool is_named = i == DIM_OP || i == DIM_SIZE || row->values[i] != 0 ||
                              ((i == DIM_REMOTE || i == DIM_PLACE) && has_remote);
        if (is_named && *value != '\0') {
            used += (size_t)snprintf(out + used, size - used, "%s%s", i == DIM_OP ? "" : ", ",
                                     value);
        }
    }
}

const char *subject_rules(enum subject_op op)
{
    static const char *const rules[SUBJECT_OPS] = {
        [SUBJECT_SEND] = RULES_SEND,           [SUBJECT_SEND_IMM] = RULES_SEND_IMM,
        [SUBJECT_WRITE] = RULES_WRITE,         [SUBJECT_WRITE_IMM] = RULES_WRITE_IMM,
        [SUBJECT_READ] = RULES_READ,           [SUBJECT_FETCH_ADD] = RULES_ATOMIC,
        [SUBJECT_COMPARE_SWAP] = RULES_ATOMIC, [SUBJECT_FLUSH] = RULES_FLUSH,
        [SUBJECT_FLUSH_REGION] = RULES_FLUSH,
    };
    return rules[op];
}
