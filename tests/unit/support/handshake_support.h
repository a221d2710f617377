/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Two handshakes that talk to each other in memory, by a simulated clock, with faults on demand. */
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

/* What goes wrong when a side is asked for an action in an attempt. */
enum pair_fault_kind {
    PAIR_FAILS,       /* the result is status, reason, text */
    PAIR_HANGS,       /* the result never comes */
    PAIR_BREAKS,      /* the result is good, then the path fails by itself */
    PAIR_CORRUPTS,    /* WRITE_PROOF: wrong bytes arrive */
    PAIR_WRITES_NONE, /* WRITE_PROOF: no bytes arrive */
    PAIR_LOSES,       /* the control channel ends for both sides */
};

struct pair_fault {
    uint32_t attempt; /* 0 = every attempt */
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

    struct pair_pending pending[PAIR_PENDING_MAX]; /* results not yet given; any order is valid */
    size_t pending_count;
    bool break_due; /* the path is about to fail by itself */

    uint8_t *wire; /* all bytes sent to this side; those from wire_begin on are still in flight */
    size_t wire_begin;
    size_t wire_end;
    size_t received;

    struct rdmux_measured figures[PAIR_FIGURES_MAX]; /* by our path's index: results of MEASURE */
    uint32_t measured;                               /* MEASUREs requested */
    uint8_t proof[PAIR_BUFFER_SIZE];
    bool path_open;
    bool choosing; /* failover: CHOOSE was requested */
    uint32_t open_attempt;
    uint32_t opened; /* OPENs requested */
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
    const char *broken; /* the forbidden action of a side; NULL: none */
};

/* Makes an offer of count paths, named shm, tcp, roce, ib, and ranked in this order. Each path
 * reaches the peer's path of the same name. */
void pair_offer(struct rdmux_offer *out, size_t count);
void pair_config(struct rdmux_handshake_config *out, enum rdmux_role role,
                 const struct rdmux_offer *offer);

/* Starts both sides. The test ends with pair_finish(). */
void pair_start(struct pair *pair, const struct rdmux_handshake_config *acceptor,
                const struct rdmux_handshake_config *connector);
/* Starts both sides with offers of `paths` paths. */
void pair_start_plain(struct pair *pair, size_t paths);
void pair_finish(struct pair *pair);
void pair_add_fault(struct pair_side *side, const struct pair_fault *fault);

/* Makes one move. Returns false if there is no such move. */
bool pair_deliver(struct pair *pair, struct pair_side *to);
bool pair_answer(struct pair *pair, struct pair_side *side, size_t index);
bool pair_break(struct pair *pair, struct pair_side *side);
/* Advances the clock to the next deadline. */
bool pair_wait(struct pair *pair);
void pair_lose(struct pair *pair);
/* Takes the actions that the sides request, after a test has called a handshake of the pair
 * directly. */
void pair_drain(struct pair *pair);

/* Moves until both sides have ended, and waits when no other move is left. Returns false if they
 * never end. random: NULL for a fixed order, else any order. */
bool pair_run(struct pair *pair, uint64_t *random);
/* Makes up to `moves` moves. */
void pair_run_some(struct pair *pair, uint64_t *random, size_t moves);

/* Encodes the result of OPEN or CONNECT of the side with this name. */
size_t pair_result_bytes(const char *name, enum rdmux_handshake_action_kind kind, uint32_t attempt,
                         uint8_t out[PAIR_RESULT_MAX]);
uint64_t pair_random(uint64_t *state);
/* Returns a side's candidate of this rank. */
const struct rdmux_candidate *pair_candidate(const struct pair_side *side, uint32_t rank);
/* Says how the two ends contradict each other; NULL: they agree. */
const char *pair_contradiction(const struct pair *pair);

#endif
