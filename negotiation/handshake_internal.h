/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared by the files of the handshake: states, events, the struct, the action queue. Included by
 * handshake*.c alone. Of these files each calls only those whose section is above its own;
 * handshake.c, which has no section, calls them all. */
#ifndef RDMUX_NEGOTIATION_HANDSHAKE_INTERNAL_H
#define RDMUX_NEGOTIATION_HANDSHAKE_INTERNAL_H

#include "negotiation/handshake.h"
#include "negotiation/handshake_frames.h"

enum {
    HANDSHAKE_QUEUE_MAX = 12, /* an event gives at most five actions; the last place is for FAIL */
    HANDSHAKE_ARENA_SIZE = RDMUX_RANKING_FRAME_MAX + 8 * RDMUX_ATTEMPT_FRAME_MAX,
    HANDSHAKE_OPENING_SIZE = RDMUX_HELLO_SIZE + RDMUX_FRAME_HEADER_SIZE + RDMUX_OFFER_BYTES_MAX,
    HANDSHAKE_TEXT_SIZE = 512,
};

/* A_ the acceptor, C_ the connector. */
enum handshake_state {
    A_HELLO,           /* waits for the connector's HELLO */
    A_OFFER,           /* … and its OFFER */
    A_OPEN,            /* opening this side of the pair */
    A_READY,           /* sent TRY; waits for READY */
    A_CONNECT,         /* connecting; the peer is not up */
    A_CONNECT_PEER_UP, /* connecting; the peer is up */
    A_UP,              /* this side is up; waits for the peer's UP */
    A_WRITTEN,         /* both are up; waits for the connector's WRITTEN */
    A_CHECK,           /* comparing the connector's pattern */
    A_WRITE,           /* writing this side's pattern */
    A_PROVED,          /* sent WRITTEN; waits for PROVED */
    A_MEASURE,         /* the path is proved; measures it, then gives it up */
    A_CONFIRM,         /* sent COMMIT: no other path any more; waits for CONFIRM */
    A_FAILING,         /* sent FAILED; waits for the peer's FAILED */
    A_CHOOSE,          /* failover: the driver chooses the next pair */
    C_HELLO,           /* sent HELLO and OFFER; waits for the acceptor's HELLO */
    C_OFFER,           /* … OFFER */
    C_RANKING,         /* … and RANKING */
    C_TRY,             /* waits for the next TRY */
    C_LAST,            /* no pair is left; waits for NO_PATH */
    C_OPEN,            /* opening this side of the pair */
    C_CONNECT,         /* connecting; the peer is not up */
    C_CONNECT_PEER_UP, /* connecting; the peer is up */
    C_UP,              /* this side is up; waits for the peer's UP */
    C_WRITE,           /* both are up; writing this side's pattern */
    C_WRITTEN,         /* sent WRITTEN; waits for the acceptor's */
    C_CHECK,           /* comparing the acceptor's pattern */
    C_COMMIT,          /* sent PROVED; waits for COMMIT */
    C_FAILING,         /* sent FAILED; waits for the peer's FAILED */
    DONE,              /* final: the path of the last OPEN is the endpoint's */
    OVER,              /* final: failed */
    STATE_COUNT,
};

/* Groups of states that treat failures alike. */
enum handshake_phase {
    GREETING,  /* before the ranking is known */
    WAITING,   /* an attempt is due; this side has no path for it */
    OPENING,   /* an attempt is in progress, its path not yet open */
    TRYING,    /* … its path is open */
    FAILING,   /* the attempt is given up; waits for the peer's FAILED */
    COMMITTED, /* COMMIT was sent */
    ENDED,
};

enum handshake_event {
    /* frames */
    GOT_HELLO,
    GOT_OFFER,
    GOT_RANKING,
    GOT_TRY,
    GOT_READY,
    GOT_UP,
    GOT_WRITTEN,
    GOT_PROVED,
    GOT_COMMIT,
    GOT_CONFIRM,
    GOT_FAILED,
    GOT_NO_PATH,
    GOT_REJECT,
    GOT_OTHER, /* not a handshake frame, or not for this role */
    /* results */
    OPENED,
    CONNECTED,
    WROTE,
    CHECKED,
    MEASURED,
    STEP_FAILED, /* of any of the five results */
    /* the rest */
    PATH_FAILED,
    LOST,
    TIMED_OUT,
};

struct handshake_happening {
    enum handshake_event event;
    uint64_t now_ns;
    const uint8_t *bytes; /* frames: the whole frame; results: their payload */
    size_t size;
    const struct rdmux_attempt_frame *frame; /* frames of an attempt, decoded */
    enum rdmux_status status;                /* results, PATH_FAILED, LOST */
    enum rdmux_reason reason;                /* STEP_FAILED */
    const char *text;                        /* never NULL */
    const struct rdmux_measured *measured;   /* MEASURED */
};

/* What both sides send until the ranking is known. handshake_greeting.c */
struct handshake_greeting {
    uint32_t timeout_ms; /* for HELLO and OFFER */
    bool is_secured;     /* frames come from an authenticated peer */
    bool has_peer_hello;
    bool has_peer_offer;
    uint8_t hash_kind;
    uint8_t hash[RDMUX_TRANSCRIPT_SIZE];
    uint8_t peer_hello_bytes[RDMUX_HELLO_SIZE];
    size_t opening_size;
    uint8_t opening[HANDSHAKE_OPENING_SIZE]; /* this side's HELLO and OFFER */
};

/* Measuring before the final ranking. handshake_measure.c */
struct handshake_measuring {
    size_t count; /* the acceptor measures the first `count` matches; 0: none */
    uint64_t since_ns;
    rdmux_measured_lookup lookup;
    void *lookup_user;
    bool is_ranked_anew; /* a second RANKING was sent or received */
};

/* A failover's move to another path. handshake_move.c; handshake_queue.c reads the rank. */
struct handshake_move {
    bool is_on;        /* attempts do not follow the ranks */
    size_t rank;       /* this rank is tried; 0: none yet */
    uint64_t limit_ms; /* acceptor: time limit of the attempt */
};

/* The peer's side of the path of the current attempt. handshake.c */
struct handshake_peer_path {
    size_t data_size;
    size_t description_size;
    uint8_t data[RDMUX_DESCRIPTION_MAX];        /* connection data */
    uint8_t description[RDMUX_DESCRIPTION_MAX]; /* description of the proof buffer */
};

/* The peer application's REJECT. handshake.c */
struct handshake_reject {
    uint32_t reason;
    size_t size;
    uint8_t data[RDMUX_DESCRIPTION_MAX];
};

/* Actions that the driver has not taken yet, and their bytes. handshake_queue.c */
struct handshake_queue {
    struct rdmux_handshake_action actions[HANDSHAKE_QUEUE_MAX];
    size_t first;
    size_t count;
    char fail_text[HANDSHAKE_TEXT_SIZE]; /* text of FAIL */
    size_t arena_used;                   /* reset to 0 when an event finds the queue empty */
    uint8_t arena[HANDSHAKE_ARENA_SIZE];
};

/* Only the files that a part names read or write the inside of that part. */
struct rdmux_handshake {
    enum handshake_state state; /* written by rdmux_handshake_write_state() alone */
    enum rdmux_role role;
    uint64_t deadline_ns;

    /* The current attempt. */
    uint32_t attempt;         /* the current or next one; from 1 once the ranking is known */
    uint32_t attempts_before; /* attempts before the ranking in force */
    enum rdmux_status attempt_status; /* FAILING: this side's failure */
    bool is_path_ours;                /* handshake_queue.c alone writes it */
    uint8_t proof_nonce[16];
    uint8_t check_nonce[16]; /* the nonce of the peer's WRITTEN */

    struct handshake_move move;
    struct handshake_measuring measuring;
    struct handshake_peer_path peer_path;
    struct handshake_reject reject;
    struct handshake_queue queue;

    /* What both sides want, and what follows from it. */
    struct rdmux_hello hello;
    struct rdmux_hello peer_hello;
    struct rdmux_handshake_granted granted;
    uint64_t expected_size; /* the size that the acceptor ranks by */
    size_t match_count;
    size_t ranked_count; /* matches[0 .. ranked_count - 1] have rank 1, 2, 3 … */
    struct rdmux_match matches[RDMUX_MATCH_MAX]; /* `ours` is this side's */
    struct handshake_greeting greeting;
    struct rdmux_offer offer;
    struct rdmux_offer peer_offer;
};

/* Facts of a state. stage: how far an attempt has come. waits_for: text for a timeout in this
 * state. */
struct handshake_facts {
    const char *name;
    enum handshake_phase phase;
    enum rdmux_stage stage;
    const char *waits_for;
};
extern const struct handshake_facts rdmux_handshake_facts[STATE_COUNT];

static inline enum handshake_phase phase_of(const struct rdmux_handshake *handshake)
{
    return rdmux_handshake_facts[handshake->state].phase;
}

static inline bool is_acceptor(const struct rdmux_handshake *handshake)
{
    return handshake->role == RDMUX_ROLE_ACCEPT;
}

/* The pair of the current attempt; NULL before the first and after the last. */
static inline struct rdmux_match *current_match(struct rdmux_handshake *handshake)
{
    size_t rank = rdmux_handshake_current_rank(handshake);
    if (rank == 0 || rank > handshake->ranked_count) {
        return NULL;
    }
    return &handshake->matches[rank - 1];
}

/* -------------------------------------------------------------------- handshake_queue.c */

/* The only writer of the state, for a state of this side's role. The table of handshake.c has the
 * regular course. No state leads back to the greeting. A final state stays, unless a move leaves
 * it. */
void rdmux_handshake_write_state(struct rdmux_handshake *handshake, enum handshake_state state,
                                 bool begins_move);
static inline void set_state(struct rdmux_handshake *handshake, enum handshake_state state)
{
    rdmux_handshake_write_state(handshake, state, false);
}

/* Returns the next free action, or NULL: the handshake is over, at the latest because the driver
 * has not taken actions for too long. */
struct rdmux_handshake_action *rdmux_handshake_push(struct rdmux_handshake *handshake,
                                                    enum rdmux_handshake_action_kind kind);
/* Reserves arena room for an action's bytes. NULL: as with push. After the caller has written size
 * bytes there, rdmux_handshake_arena_keep() keeps them until the arena is reused. */
uint8_t *rdmux_handshake_arena_reserve(struct rdmux_handshake *handshake, size_t size);
void rdmux_handshake_arena_keep(struct rdmux_handshake *handshake, size_t size);
/* Reuses the arena if the driver has taken all actions. */
void rdmux_handshake_arena_reuse(struct rdmux_handshake *handshake);
/* Drops all actions and their bytes. */
void rdmux_handshake_queue_clear(struct rdmux_handshake *handshake);
/* Pushes an action with a copy of bytes. */
void rdmux_handshake_push_bytes(struct rdmux_handshake *handshake,
                                enum rdmux_handshake_action_kind kind, const uint8_t *bytes,
                                size_t size);
/* Sends a frame of the current attempt, or NO_PATH. */
void rdmux_handshake_send_frame(struct rdmux_handshake *handshake,
                                struct rdmux_attempt_frame *frame);
/* The nonce of the pattern that this side writes in the current attempt. */
void rdmux_handshake_attempt_nonce(const struct rdmux_handshake *handshake, uint8_t out[16]);

uint64_t rdmux_handshake_time_after(uint64_t now_ns, uint64_t milliseconds);
/* How long this side waits within an attempt. */
uint64_t rdmux_handshake_patience_ms(const struct rdmux_handshake *handshake);
void rdmux_handshake_start_clock(struct rdmux_handshake *handshake, uint64_t now_ns);

/* Records a new verdict on a pair; NULL: there is no pair. */
void rdmux_match_record(struct rdmux_match *match, enum rdmux_stage stage, uint32_t reason,
                        const char *text);
/* Asks the driver to open the path of the current pair, which is this side's until it is closed.
 * data: the peer's connection data, if it has come. */
void rdmux_handshake_open_path(struct rdmux_handshake *handshake, const uint8_t *data, size_t size);
/* Asks the driver to close the path, if this side has one. */
void rdmux_handshake_close_path(struct rdmux_handshake *handshake);
/* Notes that this side has no path: its OPEN failed, or the driver has closed it. */
void rdmux_handshake_path_closed(struct rdmux_handshake *handshake);
/* Fails the whole connection. */
void rdmux_handshake_connection_over(struct rdmux_handshake *handshake, enum rdmux_status status,
                                     bool give_back, const char *format, ...) RDMUX_PRINTF(4, 5);
/* Ends without a path: both sides know that nothing is left to try, and send nothing more. */
void rdmux_handshake_no_path(struct rdmux_handshake *handshake);
void rdmux_handshake_connection_done(struct rdmux_handshake *handshake);

/* -------------------------------------------------------------------- handshake_greeting.c */

/* Builds this side's HELLO and OFFER. */
enum rdmux_status rdmux_handshake_greeting_init(struct rdmux_handshake *handshake,
                                                const struct rdmux_handshake_config *config);
/* Sends this side's HELLO and OFFER. */
void rdmux_handshake_send_opening(struct rdmux_handshake *handshake);
/* Reactions of handshake.c's table. */
void rdmux_handshake_take_hello(struct rdmux_handshake *handshake,
                                const struct handshake_happening *what);
void rdmux_handshake_take_acceptors_offer(struct rdmux_handshake *handshake,
                                          const struct handshake_happening *what);
void rdmux_handshake_greeting_overdue(struct rdmux_handshake *handshake,
                                      const struct handshake_happening *what);
/* Acceptor: takes the connector's OFFER, answers it, and ranks the pairs. False: the OFFER is not
 * usable, and the handshake is over. */
bool rdmux_handshake_take_connectors_offer(struct rdmux_handshake *handshake,
                                           const struct handshake_happening *what);
/* Sends a frame with the hash of both sides' HELLO and OFFER. */
void rdmux_handshake_send_hash(struct rdmux_handshake *handshake, enum rdmux_frame_type type);
/* Returns whether the peer has hashed the same bytes as this side. */
bool rdmux_handshake_hash_matches(const struct rdmux_handshake *handshake,
                                  const struct rdmux_attempt_frame *frame);

/* Reads the peer's RANKING. False: it is malformed, and the handshake is over. */
bool rdmux_handshake_read_ranking(struct rdmux_handshake *handshake,
                                  const struct handshake_happening *what);
/* Sends RANKING. False: it cannot, and the handshake is over. */
bool rdmux_handshake_send_ranking(struct rdmux_handshake *handshake);

/* -------------------------------------------------------------------- handshake_measure.c */

void rdmux_handshake_measuring_init(struct rdmux_handshake *handshake,
                                    const struct rdmux_handshake_config *config);
/* Acceptor, after ranking: decides which pairs to measure. */
void rdmux_handshake_plan_measuring(struct rdmux_handshake *handshake);
/* Returns whether the current attempt is one for measuring. */
bool rdmux_handshake_is_measuring(const struct rdmux_handshake *handshake);
/* Ranks anew and sends RANKING, if the acceptor has now measured all pairs. */
void rdmux_handshake_end_measuring(struct rdmux_handshake *handshake);
void rdmux_handshake_start_measuring(struct rdmux_handshake *handshake,
                                     const struct handshake_happening *what);
/* Records the current pair's figures, and writes them to text. If the measurement exceeded its
 * budget, the time spent so far counts as the latency. */
void rdmux_handshake_record_figures(struct rdmux_handshake *handshake,
                                    const struct handshake_happening *what,
                                    char text[RDMUX_TEXT_MAX]);
/* A reaction of handshake.c's table. */
void rdmux_handshake_take_second_ranking(struct rdmux_handshake *handshake,
                                         const struct handshake_happening *what);

/* -------------------------------------------------------------------- handshake_move.c */

/* Failover: do attempts follow the driver's choice instead of the ranks? */
bool rdmux_handshake_is_moving(const struct rdmux_handshake *handshake);
/* Time limit of the current attempt, for texts. */
uint64_t rdmux_handshake_attempt_limit_ms(const struct rdmux_handshake *handshake);
/* Drops all actions, and makes first_attempt the next attempt. reason, why: the failure of the old
 * path. */
void rdmux_handshake_begin_move(struct rdmux_handshake *handshake, uint32_t first_attempt,
                                enum rdmux_reason reason, const char *why);
/* The attempt is over; starts the next one. */
void rdmux_handshake_next_move(struct rdmux_handshake *handshake);
/* Takes the pair of a TRY. False: it names no ranked pair. */
bool rdmux_handshake_take_pair(struct rdmux_handshake *handshake,
                               const struct rdmux_attempt_frame *frame);

#endif
