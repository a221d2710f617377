/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A random program over the real providers on simulated adapters, and a model that predicts all
 * that the program sees. Two hosts run in one process and one thread, in virtual time, without
 * threads of the library, so the same seed gives the same run. README.md in the folder above lists
 * the checks.
 *
 * Terms. A side is a host with its fabric, cq and memory. A pair is a connection between the two
 * sides, with one end on each. Each end has a lane to the other side: a window there that only this
 * end writes to, and the receives of the other end. A step is one action of a side. The steps of a
 * run are drawn from its seed one by one, so that any of them can be left out.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "chance.h"

#include "../sim_verbs.h"

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    SIDES = 2,
    PAIRS_MAX = 3,
    LENGTH_MAX = 24 << 10, /* of one request */
    SLOT_SIZE = LENGTH_MAX + 256,
    SLOTS = 192,          /* requests of an end that the model does not know to be done */
    RECEIVES_MAX = 64,    /* of one end, or of an SRQ */
    DATA_SIZE = 32 << 10, /* of a lane's window, for writes and reads */
    WORDS = 16,           /* of a lane's window, for its own atomics */
    WINDOW_SIZE = DATA_SIZE + WORDS * 8,
    SHARED_WORDS = 4, /* of a side's region, shared by all lanes and the processor */
    REGION_SIZE = PAIRS_MAX * WINDOW_SIZE + SHARED_WORDS * 8,
    PIECES_MAX = 8,
    WRITES_MAX = 512, /* writes of a lane that the model remembers */
    UNSETTLED_MAX = 96,
    MESSAGES_MAX = 128, /* messages of a lane in flight */
    BATCH_MAX = 8,
    FAULTS_MAX = 15,  /* kinds */
    MARK_SINK = 0xc5, /* fills the destination of a read or a receive, and a byte on either side */
    MARK_FREE = 0xab, /* fills a buffer that must not change any more */
};

static inline bool is_all(const uint8_t *bytes, uint8_t value, size_t length)
{
    return length == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, length - 1) == 0);
}

/* Bytes of one request in the program's memory. */
struct pieces {
    uint32_t count;
    struct rdmux_sge list[PIECES_MAX];
};

/* A request of the send side that the model does not know to be done. */
struct posted {
    uint32_t op;
    uint32_t flags;
    uint64_t length;
    uint64_t offset;   /* in the lane's window */
    uint64_t fence;    /* of a reading request: the first fenced one after it; UINT64_MAX: none */
    uint64_t before;   /* own atomics: the value that the word must have had */
    uint64_t word;     /* shared atomics: 1 + index of the word */
    uint64_t message;  /* messages posted on the lane so far, this one included */
    uint64_t marked;   /* bytes that a mark covers, from the beginning of the slot */
    bool is_forwarded; /* a read whose bytes the next request forwards */
    bool is_forward;
    struct pieces pieces;
    uint8_t *expected; /* of a read: LENGTH_MAX bytes kept with the slot */
};

/* The effect of a write or an atomic on the window. */
struct write {
    uint64_t sequence;
    uint32_t offset;
    uint32_t length;
    uint8_t *bytes; /* a copy that this write owns */
};

struct message {
    uint64_t sequence;
    uint32_t op;
    uint32_t imm;
    uint64_t length;
    uint64_t room; /* least size of its receive */
    uint8_t *bytes;
};

struct receive {
    uint64_t room;
    bool is_registered; /* all of its pieces are in regions */
    bool is_posted;
    struct pieces pieces;
};

/* Receives of an end, or of an SRQ. */
struct receives {
    struct receive list[RECEIVES_MAX];
    uint8_t *memory; /* RECEIVES_MAX slots in a region; loose has as many outside */
    uint8_t *loose;
    uint64_t posted;
    uint64_t taken;
    uint32_t depth;
};

struct side;
struct pair;

struct end {
    struct side *side;
    struct end *peer;
    uint32_t pair;
    struct rdmux_ep *ep;
    struct rdmux_remote *remote;
    struct rdmux_remote *read_only; /* of the same region, by a token without other rights */
    struct rdmux_ep_info info;
    bool connected;
    bool ended;
    uint32_t end_status;
    uint32_t end_events;
    bool is_closed;
    bool has_failed; /* a request of the send side has failed */
    bool has_failed_receives;
    bool is_in_doubt;        /* a request is OUTCOME_UNKNOWN */
    uint32_t failed_status;  /* of the first request */
    uint32_t receive_status; /* of the first receive */
    uint64_t failed_first;
    uint64_t failed_last;

    struct posted requests[SLOTS];
    uint8_t *slots; /* SLOTS slots in a region; loose has as many outside */
    uint8_t *loose;
    uint8_t *expected;
    uint64_t next;       /* sequence of the next request */
    uint64_t covered;    /* the requests before it are done */
    uint64_t answered;   /* next request that may complete with an entry */
    uint32_t unanswered; /* signaled requests without an entry yet */
    bool wants_writable;
    uint64_t again;
    uint64_t writable;

    /* The lane. */
    uint8_t *image;  /* WINDOW_SIZE: the known contents of the window */
    uint8_t *latest; /* the same once every posted request is done */
    struct write writes[WRITES_MAX];
    uint64_t writes_begin;
    uint64_t writes_settled; /* the writes before it are known to be in the window */
    uint64_t writes_end;
    struct message messages[MESSAGES_MAX];
    uint64_t messages_begin; /* the oldest message not received */
    uint64_t messages_end;
    struct receives receives; /* of this end */
};

struct side {
    struct scene *scene;
    uint32_t index;
    struct sim_host *host;
    struct sim_device *device;
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_srq *srq;
    struct receives shared; /* of the SRQ */
    struct rdmux_mr *region;
    uint8_t *bytes; /* of region */
    struct rdmux_mr *arena;
    uint8_t *arena_bytes;
    size_t arena_used;
    uint8_t *loose_bytes;
    size_t loose_used;
    struct chance secrets;
    uint64_t added[SHARED_WORDS]; /* sum of all atomics on the words of this side */
    struct end ends[PAIRS_MAX];
};

/* The parameters of a run, drawn from the seed. */
struct shape {
    const char *link;
    char world[512];
    char device[SIDES][512];
    uint32_t pairs;
    uint32_t send_depth;
    uint32_t recv_depth;
    uint32_t max_sge;
    uint32_t max_inline;
    uint64_t max_send;
    uint64_t max_message; /* the smaller one of the two devices */
    uint32_t mtu;
    uint32_t packet;
    bool has_srq[SIDES];
    bool is_instant;
    uint32_t liveness_ms;
};

struct counts {
    uint64_t requests;
    uint64_t receives;
    uint64_t reads_loose;
    uint64_t again;
    uint64_t writable;
    uint64_t refused;
    uint64_t fenced;
    uint64_t placed;
    uint64_t forwarded;
    uint64_t atomics;
    uint64_t split;
    uint64_t late;
    uint64_t reads_late;
    uint64_t rnr;
    uint64_t retries;
    uint64_t calls;              /* chains posted by ibv_wr_*() */
    uint64_t without_calls;      /* runs in which neither device has ibv_wr_*() */
    uint64_t faults[FAULTS_MAX]; /* of random_faults.c, by kind */
    uint64_t named[FAULTS_MAX];  /* endpoints that have reported the kind of fault */
    uint64_t ended;
};

struct scene {
    const char *plugin;
    uint64_t seed;
    struct shape shape;
    struct sim_world *world;
    struct side sides[SIDES];
    struct counts counts;
    uint64_t step;
    uint64_t hash;        /* of all that the program saw */
    uint64_t quiet;       /* polls since the last event */
    struct side *waiting; /* a side inside a call that waits by the machine's time */
    bool is_verbose;
    bool is_ending;
    bool is_broken; /* a fault was made: the rules of failure hold */
    void (*failed)(struct scene *scene, const char *text);
    uint8_t *memory; /* of all ends, reused from run to run */
};

/* --------------------------------------------------------------------------- model_scene.c */

/* Draws the parameters of a run. */
void shape_draw(struct shape *shape, const char *link, uint64_t seed);

/* Opens all objects and connects the pairs. Returns false if it fails; scene_why() says why. */
bool scene_open(struct scene *scene);
/* After an orderly end, or none: closes all objects. None may remain. */
void scene_close(struct scene *scene);
const char *scene_why(void);

/* Reports that the model and the library disagree. Does not return. */
_Noreturn void mismatch(struct scene *scene, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints a line of the trace. */
void trace(struct scene *scene, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a word to the hash of the run. */
void note(struct scene *scene, uint64_t word);
/* Makes this side's host the one of all calls that name no verbs object. */
void use(const struct side *side);

/* Polls one side for at most so many entries. Returns how many came. */
size_t poll_side(struct side *side, size_t max);
/* Polls both sides, and advances time if no event comes. Returns false if no event is left. */
bool go_on(struct scene *scene);
/* Does the work of the library's threads. */
void progress(struct scene *scene);

/* ---------------------------------------------------------------------------------- lane.c */

void lane_init(struct end *end);
void lane_free(struct end *end);
/* A request was queued as the end's next. */
void lane_posted(struct end *end, const struct posted *what, const struct rdmux_wr *wr,
                 uint8_t *bytes);
/* An entry of the end has come. */
void lane_completed(struct end *end, const struct rdmux_wc *wc);
void lane_received(struct end *end, const struct rdmux_wc *wc);
/* Checks, when all requests are done and placed, that everything is as the model says. */
void lane_check_all(struct end *end);
uint8_t *lane_window(const struct end *end); /* at the peer */

/* --------------------------------------------------------------------------------- fault.c */

/* A request, or a receive, has failed after a fault. */
void fault_completed(struct end *end, uint64_t sequence, const struct rdmux_wc *wc);
void fault_received(struct end *end, struct receive *receive, const struct rdmux_wc *wc);
/* Checks, when an endpoint has ended, that every request has its entry, and that no buffer is
 * touched any more. */
void fault_check_end(struct end *end);

/* ---------------------------------------------------------------------------------- step.c */

/* Takes one step, drawn from the chance. */
void step_take(struct scene *scene, struct chance *chance);
/* Finishes all requests in flight, then shuts both sides down. */
void step_finish(struct scene *scene, struct chance *chance);
/* The first part of step_finish(), for the pairs that have not ended. */
void step_finish_pairs(struct scene *scene, struct chance *chance);
void post_receives(struct end *end, struct chance *chance, uint32_t count);
void post_some(struct end *end, struct chance *chance, uint32_t count);

#endif
