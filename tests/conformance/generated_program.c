/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Turns a row into requests. Requests before and behind the operation touch another region, or
 * other bytes. If an order between them is promised, they touch the same bytes.
 */
#include "generated.h"

#include "harness.h"

#include <string.h>

/* Offsets in a region that the operation does not use. */
enum {
    AT_READS = 100000,
    AT_PAUSED = 299936,
    AT_WRITTEN = 300100,
    AT_QUEUE = 320000,
    AT_WORD = 330000,
    AT_CROWD = 340000,
    AT_NOTICE = 350001,
    AT_PROOF_WORD = 360000,
    ODD_OFFSET = 4099,
    WORD_OFFSET = 4104,
    READ_LENGTH = 40003,
    READS_LENGTH = 3001,
    PAUSING_LENGTH = 200000,
    PAUSED_LENGTH = 64,
    WRITTEN_LENGTH = 300,
    NOTICE_LENGTH = 100,
    PROOF_READ_LENGTH = 40003,
    SENT_LENGTH = 24,
    PROOF_SEND_LENGTH = 32,
    PAGE = 4096,
};

uint64_t row_hash(const struct row *row)
{
    uint64_t hash = 0;
    for (unsigned i = 0; i < DIM_COUNT; i++) {
        hash = mix64(hash + row->values[i]);
    }
    return hash;
}

bool wanted_is_message(const struct wanted *wanted)
{
    return wanted->op == RDMUX_OP_SEND || wanted->op == RDMUX_OP_SEND_IMM;
}

bool wanted_is_write(const struct wanted *wanted)
{
    return wanted->op == RDMUX_OP_WRITE || wanted->op == RDMUX_OP_WRITE_IMM;
}

bool wanted_is_atomic(const struct wanted *wanted)
{
    return wanted->op == RDMUX_OP_FETCH_ADD || wanted->op == RDMUX_OP_COMPARE_SWAP;
}

bool wanted_has_imm(const struct wanted *wanted)
{
    return wanted->op == RDMUX_OP_SEND_IMM || wanted->op == RDMUX_OP_WRITE_IMM;
}

bool wanted_is_signaled(const struct wanted *wanted)
{
    return (wanted->flags & RDMUX_UNSIGNALED) == 0;
}

uint32_t wanted_opcode(const struct wanted *wanted)
{
    switch (wanted->op) {
    case RDMUX_OP_SEND:
    case RDMUX_OP_SEND_IMM:
        return RDMUX_WC_SEND;
    case RDMUX_OP_READ:
        return RDMUX_WC_READ;
    case RDMUX_OP_FETCH_ADD:
        return RDMUX_WC_FETCH_ADD;
    case RDMUX_OP_COMPARE_SWAP:
        return RDMUX_WC_COMPARE_SWAP;
    default:
        return RDMUX_WC_WRITE;
    }
}

size_t program_placed(const struct program *program)
{
    size_t placed = 0;
    size_t asked = 0; /* the same count for requests with PLACED */
    for (size_t i = 0; i < program->count; i++) {
        const struct wanted *wanted = &program->requests[i];
        if (wanted->answer != RDMUX_OK) {
            continue;
        }
        if ((wanted->flags & RDMUX_PLACED) != 0 &&
            (wanted_is_write(wanted) || wanted_is_message(wanted))) {
            asked = i + 1;
        }
        if (wanted_is_signaled(wanted)) {
            placed = asked;
        }
    }
    return placed;
}

bool wanted_apply(const struct wanted *wanted, uint8_t *model, uint64_t *found, uint64_t *expects)
{
    if (wanted_is_write(wanted) && wanted->length > 0) {
        pattern_fill(model + wanted->offset, wanted->length, wanted->seed, 0);
        return true;
    }
    if (!wanted_is_atomic(wanted)) {
        return false;
    }
    uint64_t word = 0;
    memcpy(&word, model + wanted->offset, sizeof(word));
    *found = word;
    *expects = wanted->misses ? ~word : word;
    if (wanted->op == RDMUX_OP_FETCH_ADD) {
        word += wanted->operand;
    } else if (!wanted->misses) {
        word = wanted->operand;
    }
    memcpy(model + wanted->offset, &word, sizeof(word));
    return true;
}

/* ------------------------------------------------------------------------------ the operation */

static size_t subject_length(const struct row *row, const struct limits *limits)
{
    const unsigned op = row->values[DIM_OP];
    const bool message = op == SUBJECT_SEND || op == SUBJECT_SEND_IMM;
    const size_t most = message ? MESSAGE_MOST : REGION_LENGTH;
    static const size_t lengths[] = {
        [SIZE_8] = 8,         [SIZE_0] = 0,         [SIZE_1] = 1,           [SIZE_48] = 48,
        [SIZE_49] = 49,       [SIZE_64] = 64,       [SIZE_2048] = 2048,     [SIZE_4097] = 4097,
        [SIZE_16385] = 16385, [SIZE_40003] = 40003, [SIZE_300007] = 300007,
    };
    switch (row->values[DIM_SIZE]) {
    case SIZE_INLINE_MOST:
        return limits->max_inline;
    case SIZE_INLINE_MORE:
        return limits->max_inline + 1;
    case SIZE_MOST:
        return most;
    case SIZE_TOO_MUCH:
        return most + 1;
    default:
        return lengths[row->values[DIM_SIZE]];
    }
}

static uint64_t subject_offset(const struct row *row, size_t length, bool atomic)
{
    if (length >= REGION_LENGTH) {
        return 0;
    }
    switch (row->values[DIM_PLACE]) {
    case PLACE_ODD:
        return ODD_OFFSET;
    case PLACE_PAGE:
        return atomic ? WORD_OFFSET : 2 * (size_t)PAGE - (length < 6 ? length / 2 : 3);
    case PLACE_END:
        return atomic ? (REGION_LENGTH - length) / 8 * 8 : REGION_LENGTH - length;
    default:
        return 0;
    }
}

static uint32_t subject_flags(const struct row *row)
{
    static const uint32_t hows[] = {
        [HOW_PLAIN] = 0,
        [HOW_PLACED] = RDMUX_PLACED,
        [HOW_INLINE] = RDMUX_INLINE,
        [HOW_INLINE_PLACED] = RDMUX_INLINE | RDMUX_PLACED,
    };
    static const uint32_t extras[] = {
        [EXTRA_NONE] = 0,
        [EXTRA_UNSIGNALED] = RDMUX_UNSIGNALED,
        [EXTRA_FENCE] = RDMUX_FENCE,
        [EXTRA_MORE] = RDMUX_MORE,
        [EXTRA_UNSIGNALED_FENCE] = RDMUX_UNSIGNALED | RDMUX_FENCE,
        [EXTRA_UNSIGNALED_MORE] = RDMUX_UNSIGNALED | RDMUX_MORE,
        [EXTRA_FENCE_MORE] = RDMUX_FENCE | RDMUX_MORE,
        [EXTRA_NO_REPLAY] = RDMUX_NO_REPLAY,
    };
    return hows[row->values[DIM_HOW]] | extras[row->values[DIM_EXTRA]];
}

static uint32_t subject_rdmux_op(const struct row *row)
{
    static const uint32_t ops[SUBJECT_OPS] = {
        [SUBJECT_SEND] = RDMUX_OP_SEND,
        [SUBJECT_SEND_IMM] = RDMUX_OP_SEND_IMM,
        [SUBJECT_WRITE] = RDMUX_OP_WRITE,
        [SUBJECT_WRITE_IMM] = RDMUX_OP_WRITE_IMM,
        [SUBJECT_READ] = RDMUX_OP_READ,
        [SUBJECT_FETCH_ADD] = RDMUX_OP_FETCH_ADD,
        [SUBJECT_COMPARE_SWAP] = RDMUX_OP_COMPARE_SWAP,
        [SUBJECT_FLUSH] = RDMUX_OP_WRITE,
        [SUBJECT_FLUSH_REGION] = RDMUX_OP_WRITE,
    };
    return ops[row->values[DIM_OP]];
}

/* Determines the status that the post must return, and the rule for it. */
static void subject_answer(const struct row *row, const struct limits *limits,
                           struct wanted *subject)
{
    const bool cannot_inline = subject->op == RDMUX_OP_READ || wanted_is_atomic(subject);
    subject->answer = RDMUX_OK;
    if ((subject->flags & RDMUX_INLINE) != 0 && cannot_inline) {
        subject->answer = RDMUX_INVALID;
        subject->answer_rule = "1.14";
    } else if ((subject->flags & RDMUX_INLINE) != 0 && subject->length > limits->max_inline) {
        subject->answer = RDMUX_LENGTH;
        subject->answer_rule = "1.14";
    } else if (subject->list == LIST_TOO_LONG) {
        subject->answer = RDMUX_INVALID;
        subject->answer_rule = "1.13";
    } else if (row->values[DIM_SIZE] == SIZE_TOO_MUCH) {
        subject->answer = wanted_is_message(subject) ? RDMUX_LENGTH : RDMUX_OUT_OF_RANGE;
        subject->answer_rule = wanted_is_message(subject) ? "5.4" : "6.1";
    }
}

static struct wanted subject_of(const struct row *row, uint64_t seed, const struct limits *limits)
{
    struct wanted subject = {
        .role = ROLE_SUBJECT,
        .op = subject_rdmux_op(row),
        .flags = subject_flags(row),
        .list = (enum list)row->values[DIM_LIST],
        .local = (enum local)row->values[DIM_LOCAL],
        .remote = row->values[DIM_REMOTE],
        .import = row->values[DIM_IMPORT],
        .length = subject_length(row, limits),
        .seed = mix64(seed),
        .imm = (uint32_t)mix64(seed + 1),
        .operand = mix64(seed + 2),
        .misses = row_hash(row) % 3 == 0,
    };
    if (wanted_is_message(&subject) || row->values[DIM_OP] == SUBJECT_FLUSH) {
        subject.remote = REMOTE_KINDS;
    } else {
        subject.offset = subject_offset(row, subject.length, wanted_is_atomic(&subject));
    }
    subject_answer(row, limits, &subject);
    return subject;
}

/* --------------------------------------------------------------------------- before and behind */

struct maker {
    struct program *program;
    struct wanted subject;
    unsigned other; /* a region that the operation does not use */
    uint64_t hash;  /* of the row */
    uint64_t seed;
};

static struct wanted *add(struct maker *maker, const struct wanted *wanted)
{
    struct program *program = maker->program;
    struct wanted *added = &program->requests[program->count++];
    *added = *wanted;
    added->seed = mix64(maker->seed + 16 * program->count);
    return added;
}

/* A request to another region, with its bytes in memory of any kind. */
static struct wanted other(const struct maker *maker, enum role role, uint32_t op, uint64_t offset,
                           size_t length)
{
    const bool message = op == RDMUX_OP_SEND || op == RDMUX_OP_SEND_IMM;
    return (struct wanted){
        .role = role,
        .op = op,
        .list = LIST_CALL,
        .local = (enum local)((maker->hash + offset) % LOCAL_END),
        .remote = message ? REMOTE_KINDS : maker->other,
        .import = (unsigned)(maker->hash % IMPORTS),
        .offset = offset,
        .length = length,
    };
}

/* Returns whether an earlier request may touch bytes of the operation, because their order is
 * promised. */
static bool has_shared_bytes(const struct wanted *subject)
{
    return subject->remote < REMOTE_KINDS && subject->length > 0 && subject->answer == RDMUX_OK;
}

/* A read that may still be in flight when the operation is posted. If a fence separates the two,
 * the range that it reads ends with the very bytes that the operation changes. */
static void add_read(struct maker *maker, uint64_t offset, size_t length, bool of_the_same)
{
    const struct wanted *subject = &maker->subject;
    struct wanted read = other(maker, ROLE_BEFORE, RDMUX_OP_READ, offset, length);
    const bool fenced = (subject->flags & RDMUX_FENCE) != 0;
    if (of_the_same && fenced && has_shared_bytes(subject)) {
        uint64_t end = subject->offset + subject->length;
        read.remote = subject->remote;
        read.offset = end > READ_LENGTH ? end - READ_LENGTH : 0;
        read.length = (size_t)(end - read.offset);
    }
    (void)add(maker, &read);
}

static void add_paused(struct maker *maker)
{
    const struct wanted *subject = &maker->subject;
    struct wanted read = other(maker, ROLE_BEFORE, RDMUX_OP_READ, AT_READS, PAUSING_LENGTH);
    struct wanted write = other(maker, ROLE_BEFORE, RDMUX_OP_WRITE, AT_PAUSED, PAUSED_LENGTH);
    write.flags = RDMUX_FENCE | RDMUX_UNSIGNALED;
    if (has_shared_bytes(subject)) {
        write.remote = read.remote = subject->remote;
        write.offset = subject->offset;
        write.length = subject->length < PAUSED_LENGTH ? subject->length : PAUSED_LENGTH;
        uint64_t end = write.offset + write.length;
        read.offset = end > PAUSING_LENGTH ? end - PAUSING_LENGTH : 0;
    }
    (void)add(maker, &read);
    (void)add(maker, &write);
}

static void add_written(struct maker *maker)
{
    const struct wanted *subject = &maker->subject;
    struct wanted write = other(maker, ROLE_BEFORE, RDMUX_OP_WRITE, AT_WRITTEN, WRITTEN_LENGTH);
    write.flags = RDMUX_UNSIGNALED;
    if (has_shared_bytes(subject) && !wanted_is_write(subject)) {
        write.remote = subject->remote;
        write.offset = subject->offset;
        write.length = subject->length < WRITTEN_LENGTH ? subject->length : WRITTEN_LENGTH;
    }
    (void)add(maker, &write);
}

static void add_atomic(struct maker *maker)
{
    const struct wanted *subject = &maker->subject;
    struct wanted atomic = other(maker, ROLE_BEFORE, RDMUX_OP_FETCH_ADD, AT_WORD, 8);
    if (has_shared_bytes(subject) && (subject->flags & RDMUX_FENCE) != 0 && subject->length >= 8 &&
        subject->offset % 8 == 0) {
        atomic.remote = subject->remote;
        atomic.offset = subject->offset;
    }
    atomic.operand = maker->seed | 1;
    (void)add(maker, &atomic);
}

static void add_before(struct maker *maker, enum before before)
{
    switch (before) {
    case BEFORE_NOTHING:
        break;
    case BEFORE_READ:
        add_read(maker, AT_READS, READ_LENGTH, true);
        break;
    case BEFORE_READS:
        for (unsigned i = 0; i < READS_BEFORE; i++) {
            add_read(maker, AT_READS + i * READS_LENGTH, READS_LENGTH,
                     i == 0 || i + 1 == READS_BEFORE);
        }
        break;
    case BEFORE_ATOMIC:
        add_atomic(maker);
        break;
    case BEFORE_PAUSED:
        add_paused(maker);
        break;
    case BEFORE_WRITTEN:
        add_written(maker);
        break;
    case BEFORE_STARVED:
    case BEFORE_SENT: {
        const struct wanted send = other(maker, ROLE_BEFORE, RDMUX_OP_SEND, 0, SENT_LENGTH);
        (void)add(maker, &send);
        break;
    }
    case BEFORE_LAST:
    case BEFORE_FULL:
        for (unsigned i = 0; i < QUEUE_DEPTH - (before == BEFORE_LAST); i++) {
            const struct wanted write = other(maker, ROLE_BEFORE, RDMUX_OP_WRITE, AT_QUEUE + 8 * i,
                                              8);
            (void)add(maker, &write);
        }
        break;
    case BEFORE_CROWD:
        for (unsigned i = 0; i < CROWD; i++) {
            struct wanted atomic = other(maker, ROLE_BEFORE, RDMUX_OP_FETCH_ADD, AT_CROWD, 8);
            atomic.flags = RDMUX_UNSIGNALED;
            atomic.operand = i + 1;
            atomic.may_be_full = true;
            (void)add(maker, &atomic);
        }
        break;
    }
}

/* Returns whether the operation's own completion proves that it is placed. If so, it needs no later
 * post to be sent. */
static bool proves_itself(const struct row *row, const struct wanted *subject)
{
    return subject->answer == RDMUX_OK && (subject->flags & RDMUX_PLACED) != 0 &&
           wanted_is_signaled(subject) &&
           (wanted_is_write(subject) || wanted_is_message(subject)) &&
           ((subject->flags & RDMUX_MORE) == 0 || row->values[DIM_WAIT] != WAIT_THREAD);
}

static void add_proof(struct maker *maker, const struct row *row)
{
    const struct wanted *subject = &maker->subject;
    const bool shared = has_shared_bytes(subject);
    struct wanted proof = other(maker, ROLE_PROOF, RDMUX_OP_WRITE, 0, 0);
    switch (row->values[DIM_PROOF]) {
    case PROOF_PLACED:
        if (proves_itself(row, subject)) {
            return;
        }
        proof.flags = RDMUX_PLACED;
        proof.remote = REMOTE_KINDS;
        break;
    case PROOF_FLUSH_REGION:
        proof.flags = RDMUX_PLACED;
        if (shared) {
            proof.remote = subject->remote;
            proof.offset = subject->offset + subject->length;
        }
        break;
    case PROOF_SEND:
        proof = other(maker, ROLE_PROOF, RDMUX_OP_SEND, 0, PROOF_SEND_LENGTH);
        proof.flags = RDMUX_INLINE;
        break;
    case PROOF_WRITE_IMM:
        proof = other(maker, ROLE_PROOF, RDMUX_OP_WRITE_IMM, AT_NOTICE, NOTICE_LENGTH);
        proof.imm = (uint32_t)mix64(maker->seed + 3);
        break;
    case PROOF_READ:
        proof = other(maker, ROLE_PROOF, RDMUX_OP_READ, AT_READS, PAUSED_LENGTH);
        if (shared) {
            uint64_t end = subject->offset + subject->length;
            proof.remote = subject->remote;
            proof.length = subject->length < PROOF_READ_LENGTH ? subject->length
                                                               : PROOF_READ_LENGTH;
            proof.offset = end - proof.length;
        }
        break;
    default:
        proof = other(maker, ROLE_PROOF, RDMUX_OP_FETCH_ADD, AT_PROOF_WORD, 8);
        proof.operand = maker->seed | 1;
        if (shared && subject->op != RDMUX_OP_READ && subject->length >= 8 &&
            subject->offset % 8 == 0) {
            proof.remote = subject->remote;
            proof.offset = subject->offset;
        }
        break;
    }
    (void)add(maker, &proof);
}

/* Marks the posts that find the queue full. */
static void mark_the_full(struct program *program, enum before before)
{
    const struct wanted *subject = NULL;
    for (size_t i = 0; i < program->count; i++) {
        struct wanted *wanted = &program->requests[i];
        if (wanted->role == ROLE_BEFORE) {
            continue;
        }
        wanted->may_be_full = before == BEFORE_FULL || before == BEFORE_CROWD ||
                              (before == BEFORE_LAST && wanted->role == ROLE_PROOF);
        if (wanted->role == ROLE_SUBJECT) {
            wanted->must_be_full = before == BEFORE_FULL && wanted->answer == RDMUX_OK;
            subject = wanted;
        } else if (before == BEFORE_LAST && subject->answer == RDMUX_OK &&
                   wanted_is_signaled(subject)) {
            wanted->must_be_full = true;
        }
    }
}

void program_make(const struct row *row, uint64_t seed, const struct limits *limits,
                  struct program *out)
{
    struct maker maker = {
        .program = out,
        .subject = subject_of(row, seed, limits),
        .hash = row_hash(row),
        .seed = mix64(seed + 5),
    };
    const unsigned named = row->values[DIM_REMOTE];
    maker.other = (unsigned)((named + 1 + maker.hash % (REMOTE_KINDS - 1)) % REMOTE_KINDS);
    out->row = *row;
    out->count = 0;
    add_before(&maker, (enum before)row->values[DIM_BEFORE]);
    (void)add(&maker, &maker.subject);
    add_proof(&maker, row);
    mark_the_full(out, (enum before)row->values[DIM_BEFORE]);
}
