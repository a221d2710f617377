/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Two handshakes driven against each other in memory, by a simulated clock, with faults on
 * demand. */
#ifndef RDMUX_TESTS_UNIT_HANDSHAKE_SUPPORT_H
#define RDMUX_TESTS_UNIT_HANDSHAKE_SUPPORT_H

#include "negotiation/handshake.h"
#include "negotiation/handshake_frames.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PAIR_FAULTS_MAX = 8,
    PAIR_PENDING_MAX = 8,
    PAIR_WIRE_MAX = 1 << 18,
    PAIR_BUFFER_SIZE = 256, /* of the simulated proof buffers */
    PAIR_RESULT_MAX = 64,
    PAIR_FIGURES_MAX = 4,
};

/* What goes wrong, when a side is asked for `kind` in an attempt. */
enum pair_fault_kind {
    PAIR_FAILS,       /* the result is status, reason, text */
    PAIR_HANGS,       /* there never is a result */
    PAIR_BREAKS,      /* the result is good, then the path fails by itself */
    PAIR_CORRUPTS,    /* WRITE_PROOF: other bytes arrive */
    PAIR_WRITES_NONE, /* WRITE_PROOF: nothing arrives */
    PAIR_LOSES,       /* the control channel ends for both */
};

struct pair_fault {
    uint32_t attempt; /* 0 = every */
    enum rdmux_handshake_action_kind action;
    enum pair_fault_kind kind;
    enum rdmux_status status;
    enum rdmux_reason reason;
    const char *text;
};

struct pair_pending {
    enum rdmux_handshake_action_kind kind;
    uint32_t attempt;
    uint16_t ours;
    uint8_t write_nonce[16];
    uint8_t check_nonce[16];
};

struct pair_side {
    struct rdmux_handshake *handshake;
    void *memory;
    const char *name;
    struct pair_side *peer;
    struct pair_fault faults[PAIR_FAULTS_MAX];
    size_t fault_count;

    struct pair_pending pending[PAIR_PENDING_MAX]; /* results not yet given; any order is fair */
    size_t pending_count;
    bool break_due; /* the path is to fail by itself */

    uint8_t *wire; /* all bytes sent to this side; from wire_begin on they are on their way */
    size_t wire_begin;
    size_t wire_end;
    size_t received;

    struct rdmux_measured figures[PAIR_FIGURES_MAX]; /* by our path's index: what MEASURE finds */
    uint32_t measured;                               /* how many MEASUREs were asked for */
    uint8_t proof[PAIR_BUFFER_SIZE];
    bool path_open;
    bool choosing; /* failover: CHOOSE was asked for */
    uint32_t open_attempt;
    uint32_t opened; /* how many OPENs were asked for */
    uint32_t closed;
    bool done;
    bool failed;
    struct rdmux_handshake_action end; /* DONE or FAIL */
    char end_text[512];
    struct rdmux_candidate candidates[RDMUX_MATCH_MAX];
    size_t candidate_count;
};

struct pair {
    struct pair_side acceptor;
    struct pair_side connector;
    uint64_t now_ns;
    bool lost;
    const char *broken; /* what a side did that it must not; NULL if nothing */
};

/* Offers with count paths of the names shm, tcp, roce, ib, ranked in this order; each reaches
 * its like. */
void pair_offer(struct rdmux_offer *out, size_t count);
void pair_config(struct rdmux_handshake_config *out, enum rdmux_role role,
                 const struct rdmux_offer *offer);

/* Starts both. Ends with pair_finish(). */
void pair_start(struct pair *pair, const struct rdmux_handshake_config *acceptor,
                const struct rdmux_handshake_config *connector);
/* The usual: offers of `paths` paths. */
void pair_start_plain(struct pair *pair, size_t paths);
void pair_finish(struct pair *pair);
void pair_add_fault(struct pair_side *side, const struct pair_fault *fault);

/* One move each; false if there is none. */
bool pair_deliver(struct pair *pair, struct pair_side *to);
bool pair_answer(struct pair *pair, struct pair_side *side, size_t index);
bool pair_break(struct pair *pair, struct pair_side *side);
/* Sets the clock to the next deadline. */
bool pair_wait(struct pair *pair);
void pair_lose(struct pair *pair);
/* Takes what the sides want done, after a call on a handshake of the pair that went by this
 * file. */
void pair_drain(struct pair *pair);

/* Moves until both are at their end, waiting where nothing else is left to do. False: they never
 * get there. random NULL: in a fixed order; else in any order. */
bool pair_run(struct pair *pair, uint64_t *random);
/* Up to `moves` moves. */
void pair_run_some(struct pair *pair, uint64_t *random, size_t moves);

/* What a side called name answers to OPEN or CONNECT. */
size_t pair_result_bytes(const char *name, enum rdmux_handshake_action_kind kind, uint32_t attempt,
                         uint8_t out[PAIR_RESULT_MAX]);
uint64_t pair_random(uint64_t *state);
/* A side's candidate of this rank. */
const struct rdmux_candidate *pair_candidate(const struct pair_side *side, uint32_t rank);
/* Why the two ends contradict each other, NULL if they do not. */
const char *pair_contradiction(const struct pair *pair);

#endif
