/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The negotiation of one connection, as a state machine without I/O: it takes frames, results and
 * the time, and returns actions. The handshake driver (api/setup/handshake_driver.c) owns the sockets, the
 * provider's objects and the clock. docs/NEGOTIATION.md has the states.
 *
 * Sequence. The connector sends HELLO and OFFER at once, without waiting; the listener shows both
 * before the application accepts. After acceptance the acceptor answers HELLO and OFFER, ranks, and
 * sends RANKING (every candidate with its verdict, for the connector's explanation). For each
 * eligible pair in rank order:
 * - The acceptor opens its side and sends TRY(pair, its connection data).
 * - The connector opens its side, sends READY(its connection data) and connects; the acceptor
 *   connects.
 * - Each side that is connected sends UP(description of its proof buffer).
 * - When both are up, the connector (the active side goes first) writes its pattern into the
 *   acceptor's proof buffer with PLACED and sends WRITTEN.
 * - The acceptor compares, writes its own pattern to the connector and sends WRITTEN.
 * - The connector compares and sends PROVED.
 * - The acceptor sends COMMIT(transcript hash). The connector answers CONFIRM and is done when it
 *   has sent it; the acceptor is done when it has received it.
 *
 * Failures. On any failure or timeout before COMMIT, the side that detects it sends FAILED(pair,
 * stage, reason, text). Both close the attempt, and the acceptor goes on with the next pair. After
 * COMMIT was sent or received there is no other path: the connection fails. When no pair is left,
 * the acceptor sends NO_PATH with the final ranking, and both fail with RDMUX_NO_PATH.
 *
 * With explain_only (a flag of the connector's HELLO) the acceptor sends RANKING and both are done;
 * if no pair is eligible, both fail with RDMUX_NO_PATH.
 *
 * Measuring. It takes place if a side wants it (a flag of HELLO) and there is a choice whose
 * figures the acceptor does not know. The attempts then first go through all pairs worth measuring.
 * When PROVED has come, the acceptor measures its side of the path and gives the attempt up, with
 * SLOWER as the reason. Then it sends a new RANKING with the measured figures, and the attempts go
 * on with its first pair.
 */
#ifndef RDMUX_NEGOTIATION_HANDSHAKE_H
#define RDMUX_NEGOTIATION_HANDSHAKE_H

#include "negotiation/match.h"
#include "negotiation/offer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RDMUX_WIRE_VERSION = 1,      /* the only one spoken: HELLO's range, JOIN's version */
    RDMUX_HELLO_SIZE = 96,       /* fixed in all versions */
    RDMUX_FRAME_HEADER_SIZE = 8, /* type u8, flags u8, zero u16, payload length u32 */
    RDMUX_FRAME_PAYLOAD_MAX = 65536,
    /* Random, one for each fabric instance: a restarted peer is a new peer. */
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
    /* This side wants failover; it is in force if both sides want it. */
    RDMUX_HELLO_FAILOVER = 1 << 5,
};

struct rdmux_hello {
    uint16_t version_min;
    uint16_t version_max;
    uint32_t flags;
    uint32_t epoch;          /* 1; higher ones with failover */
    uint32_t authentication; /* methods offered, RDMUX_AUTH_*; 0: none */
    uint8_t process[RDMUX_PROCESS_ID_SIZE];
    uint8_t nonce[16];
    uint8_t resume[16]; /* failover: the connection to resume, else zero */
};

/* hello's version fields: the versions spoken. Decode returns RDMUX_PROTOCOL for bytes that are not
 * a HELLO, RDMUX_VERSION for another byte order. */
void rdmux_hello_encode(const struct rdmux_hello *hello, uint8_t out[RDMUX_HELLO_SIZE]);
enum rdmux_status rdmux_hello_decode(const uint8_t *in, size_t size, struct rdmux_hello *out);

/* Returns the total bytes of a HELLO, JOIN or frame, of which size bytes at `in` have been read (8
 * are enough). Returns 0 if more than `size` bytes are needed to tell. Sets *bad for bytes of
 * another protocol (wrong magic, a length beyond RDMUX_FRAME_PAYLOAD_MAX). first: nothing was read
 * on this socket before, so a HELLO or JOIN is due; else a frame. */
size_t rdmux_frame_total(const uint8_t *in, size_t size, bool first, bool *bad);
/* Returns whether these first 8 bytes are those of a JOIN. */
bool rdmux_frame_is_join(const uint8_t in[8]);

/* JOIN: the first bytes on a further socket. */
struct rdmux_join {
    /* The connection's secret; if sealed, its name, which does not reveal the secret. */
    uint8_t secret[RDMUX_SECRET_SIZE];
    bool is_sealed;
    uint8_t code[RDMUX_SECRET_SIZE]; /* if sealed: code over the JOIN, keyed by the secret */
    uint32_t epoch;
    uint32_t attempt; /* the TRY that it belongs to */
    uint32_t index;   /* the provider's socket number */
};
enum { RDMUX_JOIN_SEALED_SIZE = 40 }; /* bytes of a JOIN that its code covers */
void rdmux_join_encode(const struct rdmux_join *join, uint8_t out[RDMUX_JOIN_SIZE]);
enum rdmux_status rdmux_join_decode(const uint8_t in[RDMUX_JOIN_SIZE], struct rdmux_join *out);

enum rdmux_handshake_action_kind {
    RDMUX_ACTION_NONE, /* nothing to do now */
    RDMUX_ACTION_SEND, /* Send bytes[size] to the peer, in order. No result expected. */
    /* Open this side of path `ours` (attempt number `attempt`) with the granted values; the result
     * carries its connection data. For the connector, bytes[size] is the peer's connection data,
     * needed for the CONNECT that follows. */
    RDMUX_ACTION_OPEN,
    /* bytes[size]: the peer's connection data. Result OK (later) carries the description of this
     * side's proof buffer. */
    RDMUX_ACTION_CONNECT,
    /* bytes[size]: the description of the peer's proof buffer. Write the pattern of write_nonce
     * there, with PLACED; result when it completes. */
    RDMUX_ACTION_WRITE_PROOF,
    /* Compare this side's proof buffer with the pattern of check_nonce; result OK or RDMUX_IO. */
    RDMUX_ACTION_CHECK_PROOF,
    /* Measure the path, for budget_ns at most, with writes to the peer's proof buffer, which
     * WRITE_PROOF has opened. Results go to rdmux_handshake_measured(), failures to
     * rdmux_handshake_result(). */
    RDMUX_ACTION_MEASURE,
    /* Close the path that OPEN made, without trace; also while OPEN is in progress, but not after
     * an OPEN that failed. No result expected; results in progress are ignored. */
    RDMUX_ACTION_CLOSE_PATH,
    /* The path of the last OPEN is the endpoint's path (nothing, with explain_only). */
    RDMUX_ACTION_DONE,
    /* Acceptor, after rdmux_handshake_move(): the attempt failed, and the driver has to choose the
     * next pair. */
    RDMUX_ACTION_CHOOSE,
    /* Finished, with status and text; CLOSE_PATH came before if there was a path. give_back: both
     * sides know, so an adopted socket is the program's again. */
    RDMUX_ACTION_FAIL,
};

struct rdmux_handshake_action {
    enum rdmux_handshake_action_kind kind;
    uint16_t ours; /* index into this side's paths */
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

/* The values both sides agreed on; valid from the first OPEN. Those of messages follow the pair of
 * the attempt; the pair of the first DONE fixes them, and a move tries no pair that takes less. */
struct rdmux_handshake_granted {
    uint16_t version;
    uint16_t spare;
    uint32_t liveness_ms;
    uint64_t max_send; /* this side to the peer */
    uint64_t max_recv;
    uint32_t data_sockets;
    uint32_t path_timeout_ms;
    uint8_t secret[RDMUX_SECRET_SIZE];
};

/* Looks up earlier figures for the pair of these paths, this side's first. False: there are
 * none. */
typedef bool (*rdmux_measured_lookup)(void *user, const struct rdmux_offer_path *ours,
                                      const struct rdmux_offer_path *theirs,
                                      struct rdmux_measured *out);

struct rdmux_handshake_config {
    enum rdmux_role role;
    uint32_t hello_timeout_ms;       /* for HELLO and OFFER */
    struct rdmux_hello hello;        /* this side's; init fills in the version fields */
    bool is_secured;                 /* frames come from an authenticated peer */
    uint8_t proof_nonce[16];         /* random; the pattern that this side writes */
    const struct rdmux_offer *offer; /* this side's; copied */
    /* Acceptor only: raw bytes of the connector's HELLO and OFFER, as received, if they were read
     * already (to show the peer before it is accepted), else NULL. */
    const uint8_t *received;
    size_t received_size;
    /* Acceptor only: figures of earlier connections; NULL: there are none. Called by init and by
     * rdmux_handshake_frame(). */
    rdmux_measured_lookup measured;
    void *measured_user;
};

struct rdmux_handshake; /* opaque; rdmux_handshake_size() bytes */

size_t rdmux_handshake_size(void);
/* Erases the connection's secret before the memory is released. NULL is allowed, and memory that
 * was never initialised. */
void rdmux_handshake_wipe(struct rdmux_handshake *handshake);
/* memory: zeroed, rdmux_handshake_size() bytes, aligned for any type; nothing else is allocated.
 * now_ns: any monotonic clock. */
enum rdmux_status rdmux_handshake_init(void *memory, const struct rdmux_handshake_config *config,
                                       uint64_t now_ns, struct rdmux_handshake **out);
/* Takes a whole HELLO or frame from the peer, header included. Untrusted input. */
void rdmux_handshake_frame(struct rdmux_handshake *handshake, const uint8_t *frame, size_t size,
                           uint64_t now_ns);
/* The control channel ended or failed. */
void rdmux_handshake_lost(struct rdmux_handshake *handshake, enum rdmux_status status,
                          const char *text, uint64_t now_ns);
/* Takes the outcome of OPEN, CONNECT, WRITE_PROOF or CHECK_PROOF of this attempt. bytes: see the
 * action's comment. reason: RDMUX_REASON_NONE, or the candidate's if status is not RDMUX_OK (0 lets
 * the handshake choose by stage). */
void rdmux_handshake_result(struct rdmux_handshake *handshake,
                            enum rdmux_handshake_action_kind kind, uint32_t attempt,
                            enum rdmux_status status, enum rdmux_reason reason, const char *text,
                            const uint8_t *bytes, size_t size, uint64_t now_ns);
/* Takes the outcome of MEASURE; latency_ns is not 0. */
void rdmux_handshake_measured(struct rdmux_handshake *handshake, uint32_t attempt,
                              const struct rdmux_measured *measured, uint64_t now_ns);
/* The path of an attempt failed by itself during the attempt. */
void rdmux_handshake_path_failed(struct rdmux_handshake *handshake, enum rdmux_status status,
                                 const char *text, uint64_t now_ns);
/* Time has passed. deadline: when to call rdmux_handshake_time() next at the latest; UINT64_MAX =
 * never. */
void rdmux_handshake_time(struct rdmux_handshake *handshake, uint64_t now_ns);
uint64_t rdmux_handshake_deadline(const struct rdmux_handshake *handshake);
/* Returns the next action; call until RDMUX_ACTION_NONE after each of the calls above. */
void rdmux_handshake_next(struct rdmux_handshake *handshake, struct rdmux_handshake_action *out);

/*
 * Failover: the path of DONE has failed on both sides; the next one is chosen from the same offers
 * and ranking. Attempts count from first_attempt on, which is above all earlier ones and the same
 * on both sides. The acceptor's driver chooses the pair with rdmux_handshake_try(), now and after
 * each RDMUX_ACTION_CHOOSE, or gives up; the connector tries the acceptor's pair. reason, why: the
 * failure of the old path. A path that fails between COMMIT and CONFIRM is still the endpoint's
 * path, and fails at once; the driver defers that failure until DONE.
 */
void rdmux_handshake_move(struct rdmux_handshake *handshake, uint32_t first_attempt,
                          enum rdmux_reason reason, const char *why);
/* rank: from 1, at most rdmux_handshake_ranked(). limit_ms: time limit until both have proved the
 * path, if shorter than the agreed path_timeout_ms. */
void rdmux_handshake_try(struct rdmux_handshake *handshake, size_t rank, uint64_t limit_ms,
                         uint64_t now_ns);
void rdmux_handshake_give_up(struct rdmux_handshake *handshake);
size_t rdmux_handshake_ranked(const struct rdmux_handshake *handshake);
/* Rank of the pair that is being tried, or was chosen; 0: none. */
size_t rdmux_handshake_current_rank(const struct rdmux_handshake *handshake);
/* Indices of this rank's pair into the offers' paths. */
uint16_t rdmux_handshake_ours_of_rank(const struct rdmux_handshake *handshake, size_t rank);
/* Returns whether this rank's pair takes messages as long as the first path has granted. */
bool rdmux_handshake_takes_granted(const struct rdmux_handshake *handshake, size_t rank);
/* Returns whether COMMIT has been sent, and CONFIRM has not come yet. */
bool rdmux_handshake_is_committed(const struct rdmux_handshake *handshake);
/* Returns whether both sides want failover. */
bool rdmux_handshake_has_failover(const struct rdmux_handshake *handshake);

const struct rdmux_handshake_granted *rdmux_handshake_granted(
    const struct rdmux_handshake *handshake);
/* NULL before it came. */
const struct rdmux_hello *rdmux_handshake_peer_hello(const struct rdmux_handshake *handshake);
const struct rdmux_offer *rdmux_handshake_peer_offer(const struct rdmux_handshake *handshake);
/* Fills in every candidate's current verdict, ranked ones first; at most max. Returns the number
 * filled in. */
size_t rdmux_handshake_candidates(const struct rdmux_handshake *handshake,
                                  struct rdmux_candidate *out, size_t max);
/* After RDMUX_REFUSED: the reason number of the peer application's REJECT, and its private data
 * (*size bytes; NULL if there is none). 0 and NULL if the peer did not reject. */
uint32_t rdmux_handshake_reject_reason(const struct rdmux_handshake *handshake);
const uint8_t *rdmux_handshake_reject_data(const struct rdmux_handshake *handshake, size_t *size);
/* Name of the current state, for logs. */
const char *rdmux_handshake_state(const struct rdmux_handshake *handshake);

/* What a side has if its attributes are zero, and the most data sockets of a path. */
enum {
    RDMUX_DEFAULT_MAX_MESSAGE = 8 << 20, /* bytes */
    RDMUX_DEFAULT_LIVENESS_MS = 10000,
    RDMUX_DEFAULT_PATH_TIMEOUT_MS = 2000,
    RDMUX_DEFAULT_SETUP_TIMEOUT_MS = 10000,
    RDMUX_DATA_SOCKETS_MAX = 16,
};

/* Fills (check: compares) a proof buffer with the pattern of a nonce. */
enum { RDMUX_PROOF_SIZE = 16384 };
/* Total measuring time of one connection. */
enum { RDMUX_MEASURE_NS = 50000000 };
void rdmux_proof_fill(const uint8_t nonce[16], uint8_t *out, size_t size);
bool rdmux_proof_matches(const uint8_t nonce[16], const uint8_t *in, size_t size);

#endif
