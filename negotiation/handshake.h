/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The negotiation of one connection, as a state machine without I/O: it takes frames, results and
 * the time, and gives actions. The driver (api/connection.c) owns the sockets, the provider's
 * objects and the clock. docs/NEGOTIATION.md has the states.
 *
 * Order of things: the connector says HELLO and OFFER at once, without waiting (the listener shows
 * both before anybody accepts); the acceptor answers HELLO and OFFER once it was accepted; ranks
 * and sends RANKING (every candidate with its verdict, for the connector's explanation). Then for
 * each eligible pair in rank order: acceptor opens its side and sends TRY(pair, its connection
 * data); connector opens, sends READY(its connection data) and connects; acceptor connects; each
 * side that is connected says UP(description of its proof buffer). When both are up the connector
 * (the active side goes first) writes its pattern into the acceptor's proof buffer with PLACED and
 * says WRITTEN; the acceptor compares, then writes its own pattern to the connector and says
 * WRITTEN; the connector compares and says PROVED; the acceptor sends COMMIT(transcript hash), the
 * connector answers CONFIRM and is done when it has sent it, the acceptor when it has received it.
 * Any failure or timeout before COMMIT: FAILED(pair, stage, reason, text) from whoever saw it, both
 * close the attempt, the acceptor goes on with the next pair. After COMMIT was sent or received
 * there is no other path: the connection fails. No pair left: NO_PATH from the acceptor with the
 * final ranking, both fail with RDMUX_NO_PATH.
 * With explain_only (a flag of the connector's HELLO) the acceptor sends RANKING and both are done;
 * if no pair is eligible, both fail with RDMUX_NO_PATH.
 * If a side wants it (a flag of HELLO) and there is a choice that the acceptor does not know the
 * figures of, the attempts first go through all pairs that are worth measuring: once PROVED has come
 * the acceptor measures its side of the path and gives the attempt up, with SLOWER as the reason.
 * Then it sends RANKING anew, with what was measured, and the attempts go on with its first pair.
 */
#ifndef RDMUX_NEGOTIATION_HANDSHAKE_H
#define RDMUX_NEGOTIATION_HANDSHAKE_H

#include "negotiation/match.h"
#include "negotiation/offer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RDMUX_WIRE_VERSION = 1,      /* the one this library speaks: HELLO's range, JOIN's version */
    RDMUX_HELLO_SIZE = 96,       /* fixed in all versions */
    RDMUX_FRAME_HEADER_SIZE = 8, /* type u8, flags u8, zero u16, payload length u32 */
    RDMUX_FRAME_PAYLOAD_MAX = 65536,
    /* Random, one per fabric instance: a restarted peer is a new peer. */
    RDMUX_PROCESS_ID_SIZE = 16,
    RDMUX_TRANSCRIPT_SIZE = 32,
};

/* HELLO flags */
enum {
    RDMUX_HELLO_EXPLAIN_ONLY = 1 << 0,
    /* This side has no service thread: its progress depends on its calls. */
    RDMUX_HELLO_NO_SERVICE = 1 << 1,
    RDMUX_HELLO_HASH = 1 << 2,    /* this side computes the transcript hash (SHA-256) */
    RDMUX_HELLO_ADOPTED = 1 << 3, /* over a socket of the program */
    RDMUX_HELLO_MEASURE = 1 << 4, /* this side wants paths measured before they are ranked */
    /* This side wants failover, which is in force if both do. */
    RDMUX_HELLO_FAILOVER = 1 << 5,
};

struct rdmux_hello {
    uint16_t version_min;
    uint16_t version_max;
    uint32_t flags;
    uint32_t epoch;          /* 1; failover meets with higher ones */
    uint32_t authentication; /* methods offered, RDMUX_AUTH_*; 0: none */
    uint8_t process[RDMUX_PROCESS_ID_SIZE];
    uint8_t nonce[16];
    uint8_t resume[16]; /* failover: the connection to resume; zero */
};

/* Version fields of hello: the versions spoken. Decode: RDMUX_PROTOCOL for what is none,
 * RDMUX_VERSION for another byte order. */
void rdmux_hello_encode(const struct rdmux_hello *hello, uint8_t out[RDMUX_HELLO_SIZE]);
enum rdmux_status rdmux_hello_decode(const uint8_t *in, size_t size, struct rdmux_hello *out);

/* How many bytes of a HELLO, JOIN or frame are there in all? size bytes at `in` have been read (8
 * are enough to tell). Returns the total, 0 if more than `size` bytes are needed to tell, and sets
 * *bad for what is none of ours (wrong magic, a length beyond RDMUX_FRAME_PAYLOAD_MAX). first:
 * nothing was read on this socket before, so a HELLO or JOIN is due; else a frame. */
size_t rdmux_frame_total(const uint8_t *in, size_t size, bool first, bool *bad);
/* Is this beginning (8 bytes) that of a JOIN? */
bool rdmux_frame_is_join(const uint8_t in[8]);

/* JOIN: what a further socket says first. */
struct rdmux_join {
    /* The connection's secret; sealed: its name, which tells nothing of the secret. */
    uint8_t secret[RDMUX_SECRET_SIZE];
    bool sealed;
    uint8_t code[RDMUX_SECRET_SIZE]; /* sealed: over the JOIN, by the secret */
    uint32_t epoch;
    uint32_t attempt; /* which TRY it belongs to */
    uint32_t index;   /* the provider's */
};
enum { RDMUX_JOIN_SEALED_SIZE = 40 }; /* bytes of a JOIN that its code covers */
void rdmux_join_encode(const struct rdmux_join *join, uint8_t out[RDMUX_JOIN_SIZE]);
enum rdmux_status rdmux_join_decode(const uint8_t in[RDMUX_JOIN_SIZE], struct rdmux_join *out);

enum rdmux_handshake_action_kind {
    RDMUX_ACTION_NONE, /* nothing to do now */
    RDMUX_ACTION_SEND, /* bytes[size] to the peer, in order. No result expected */
    /* Open our side of path `ours` (attempt number `attempt`) with the granted values; the result
     * carries our connection data. For the connector, bytes[size] is the peer's connection data,
     * needed for the CONNECT that follows. */
    RDMUX_ACTION_OPEN,
    /* bytes[size]: the peer's connection data. Result OK (later) carries the description of our
     * proof buffer. */
    RDMUX_ACTION_CONNECT,
    /* bytes[size]: the description of the peer's proof buffer. Write the pattern of write_nonce
     * there, PLACED; result when it completed. */
    RDMUX_ACTION_WRITE_PROOF,
    /* Compare our proof buffer with the pattern of check_nonce; result OK or RDMUX_IO. */
    RDMUX_ACTION_CHECK_PROOF,
    /* Measure the path, for budget_ns at most, with reads of and writes to the peer's proof buffer
     * (its description came with CONNECT's peer; WRITE_PROOF has opened it). Result by
     * rdmux_handshake_measured(); a failure by rdmux_handshake_result(). */
    RDMUX_ACTION_MEASURE,
    /* Close what OPEN made, without trace; also while OPEN is under way, not after an OPEN that
     * failed. No result expected; results under way are ignored. */
    RDMUX_ACTION_CLOSE_PATH,
    /* The path of the last OPEN is the endpoint's path (nothing, with explain_only). */
    RDMUX_ACTION_DONE,
    /* After rdmux_handshake_move(), the acceptor: the attempt came to nothing, and the driver is to
     * say what is tried next. */
    RDMUX_ACTION_CHOOSE,
    /* Over: status and text; CLOSE_PATH came before if there was a path. give_back: both sides
     * know, an adopted socket is the program's again. */
    RDMUX_ACTION_FAIL,
};

struct rdmux_handshake_action {
    enum rdmux_handshake_action_kind kind;
    uint16_t ours; /* index into our offer's paths */
    uint16_t theirs;
    uint32_t attempt;
    const uint8_t *bytes; /* valid until the next call on the handshake */
    size_t size;
    uint8_t write_nonce[16];
    uint8_t check_nonce[16];
    uint64_t budget_ns;
    enum rdmux_status status;
    const char *text;
    bool give_back;
};

/* What both sides agreed on; valid from the first OPEN. */
struct rdmux_handshake_granted {
    uint16_t version;
    uint16_t spare;
    uint32_t liveness_ms;
    uint64_t max_send; /* ours to the peer */
    uint64_t max_recv;
    uint32_t data_sockets;
    uint32_t path_timeout_ms;
    uint8_t secret[RDMUX_SECRET_SIZE];
};

/* What is known from earlier of the pair of these paths, ours first. False: nothing. */
typedef bool (*rdmux_measured_lookup)(void *user, const struct rdmux_offer_path *ours,
                                      const struct rdmux_offer_path *theirs,
                                      struct rdmux_measured *out);

struct rdmux_handshake_config {
    enum rdmux_role role;
    uint32_t hello_timeout_ms;       /* for HELLO and OFFER */
    struct rdmux_hello hello;        /* ours; version fields are filled in by init */
    bool secured;                    /* frames come from a peer that has authenticated itself */
    uint8_t proof_nonce[16];         /* random; ours to write */
    const struct rdmux_offer *offer; /* ours; copied */
    /* acceptor only: the connector's HELLO and OFFER were read already (to show the peer before it
     * is accepted): raw bytes of both, as received, or NULL. */
    const uint8_t *received;
    size_t received_size;
    /* acceptor only: figures of earlier connections; NULL: there are none. Called by init and by
     * rdmux_handshake_frame(). */
    rdmux_measured_lookup measured;
    void *measured_user;
};

struct rdmux_handshake; /* opaque; rdmux_handshake_size() bytes */

size_t rdmux_handshake_size(void);
/* Before its memory is released: takes the connection's secret out of it. NULL is allowed, and memory
 * that was never initialised. */
void rdmux_handshake_wipe(struct rdmux_handshake *handshake);
/* memory: zeroed, rdmux_handshake_size() bytes, aligned for any type; nothing else is allocated.
 * now_ns: any monotonic clock. */
enum rdmux_status rdmux_handshake_init(void *memory, const struct rdmux_handshake_config *config,
                                       uint64_t now_ns, struct rdmux_handshake **out);
/* A whole HELLO or frame from the peer, header included. A stranger's input. */
void rdmux_handshake_frame(struct rdmux_handshake *handshake, const uint8_t *frame, size_t size,
                           uint64_t now_ns);
/* The control channel ended or failed. */
void rdmux_handshake_lost(struct rdmux_handshake *handshake, enum rdmux_status status,
                          const char *text, uint64_t now_ns);
/* The outcome of OPEN, CONNECT, WRITE_PROOF or CHECK_PROOF of this attempt. bytes: what the
 * action's comment says. reason: RDMUX_REASON_NONE, or the candidate's if status is not RDMUX_OK (0
 * lets the handshake choose by stage). */
void rdmux_handshake_result(struct rdmux_handshake *handshake,
                            enum rdmux_handshake_action_kind kind, uint32_t attempt,
                            enum rdmux_status status, enum rdmux_reason reason, const char *text,
                            const uint8_t *bytes, size_t size, uint64_t now_ns);
/* The outcome of MEASURE; latency_ns not 0. */
void rdmux_handshake_measured(struct rdmux_handshake *handshake, uint32_t attempt,
                              const struct rdmux_measured *measured, uint64_t now_ns);
/* An attempt's path failed by itself while it was tried. */
void rdmux_handshake_path_failed(struct rdmux_handshake *handshake, enum rdmux_status status,
                                 const char *text, uint64_t now_ns);
/* Time has passed. deadline: when to call this next at the latest, UINT64_MAX = never. */
void rdmux_handshake_time(struct rdmux_handshake *handshake, uint64_t now_ns);
uint64_t rdmux_handshake_deadline(const struct rdmux_handshake *handshake);
/* The next thing to do; call until RDMUX_ACTION_NONE after each of the calls above. */
void rdmux_handshake_next(struct rdmux_handshake *handshake, struct rdmux_handshake_action *out);

/*
 * Failover. The path that DONE gave is gone, on both sides: the next one is looked for with the
 * same offers and ranking. Attempts count from first_attempt on, above all before, the same on both
 * sides. The acceptor's driver says with rdmux_handshake_try() which pair is tried, now and after
 * each RDMUX_ACTION_CHOOSE, or gives up; what the connector tries is what the acceptor says. reason,
 * why: what became of the path that is gone. A path that fails between COMMIT and CONFIRM is the endpoint's
 * all the same, and fails at once: the driver keeps that to itself until DONE.
 */
void rdmux_handshake_move(struct rdmux_handshake *handshake, uint32_t first_attempt,
                          enum rdmux_reason reason, const char *why);
/* rank: from 1, at most rdmux_handshake_ranked(). limit_ms: the longest it may take until both have proved the path, if that is less than
 * the path_timeout_ms that both have agreed on. */
void rdmux_handshake_try(struct rdmux_handshake *handshake, size_t rank, uint64_t limit_ms,
                         uint64_t now_ns);
void rdmux_handshake_give_up(struct rdmux_handshake *handshake);
size_t rdmux_handshake_ranked(const struct rdmux_handshake *handshake);
/* The rank of the pair that is tried, or was chosen; 0: none. */
size_t rdmux_handshake_current_rank(const struct rdmux_handshake *handshake);
/* The indices of the pair of this rank into the offers' paths. */
uint16_t rdmux_handshake_ours_of_rank(const struct rdmux_handshake *handshake, size_t rank);
/* Is COMMIT out, and CONFIRM not here yet? */
bool rdmux_handshake_is_committed(const struct rdmux_handshake *handshake);
/* Do both sides want failover? */
bool rdmux_handshake_has_failover(const struct rdmux_handshake *handshake);

const struct rdmux_handshake_granted *rdmux_handshake_granted(
    const struct rdmux_handshake *handshake);
/* NULL before it came. */
const struct rdmux_hello *rdmux_handshake_peer_hello(const struct rdmux_handshake *handshake);
const struct rdmux_offer *rdmux_handshake_peer_offer(const struct rdmux_handshake *handshake);
/* Every candidate as it stands now, ranked first; fills at most max, returns how many. */
size_t rdmux_handshake_candidates(const struct rdmux_handshake *handshake,
                                  struct rdmux_candidate *out, size_t max);
/* After RDMUX_REFUSED: the reason number the peer's application gave with its REJECT, and its
 * private data (*size bytes; NULL if there is none). 0 and NULL if the peer did not reject. */
uint32_t rdmux_handshake_reject_reason(const struct rdmux_handshake *handshake);
const uint8_t *rdmux_handshake_reject_data(const struct rdmux_handshake *handshake, size_t *size);
/* Name of the current state, for logs. */
const char *rdmux_handshake_state(const struct rdmux_handshake *handshake);

/* Fills (check: compares) a proof buffer with the pattern of a nonce. */
enum { RDMUX_PROOF_SIZE = 16384 };
/* All measuring of one connection together. */
enum { RDMUX_MEASURE_NS = 50000000 };
void rdmux_proof_fill(const uint8_t nonce[16], uint8_t *out, size_t size);
bool rdmux_proof_matches(const uint8_t nonce[16], const uint8_t *in, size_t size);

#endif
