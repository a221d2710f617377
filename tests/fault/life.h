/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * One life: two fabrics in this process connect, run the stages of their scenario, and part. A call
 * may be made to fail meanwhile: then the life ends early, with a status that the failure permits,
 * and everything opened is closed. scenarios.c has the table of lives, stages.c their stages.
 */
#ifndef RDMUX_TESTS_FAULT_LIFE_H
#define RDMUX_TESTS_FAULT_LIFE_H

#include <rdmux/stream.h>

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    REGION_SIZE = 65536,
    SMALL = 8,
    MIDDLE = 4096,
    LARGE = 65536, /* too large to be sent inline, copied in one piece, or put in a slot */
    PATIENT_MS = 20000,
    LIFE_MS = 4000,   /* limit of one life, in which failures may take the timeout of a path */
    STUCK_MS = 20000, /* then one whose path was broken neither goes on nor ends */
    REQUESTS_MAX = 96,
    RECEIVED_MAX = 16,
    REMOTES_MAX = 8,
    STAGES_MAX = 10,
    EXIT_WRONG = 1,
};

/* Which threads make progress. */
enum mode {
    MODE_MANUAL, /* the program alone, by its calls: the nth call is the same in each run */
    MODE_SERVED, /* it polls, and each fabric has its threads */
    MODE_ASLEEP, /* as above, and the program sleeps: in waits, and in poll(2) on armed queues */
    MODES,
};
extern const char *const mode_names[MODES];

struct life;
typedef void stage(struct life *life);

struct scenario {
    const char *name;
    const char *paths;         /* filter of both fabrics */
    const char *device;        /* options of a simulated adapter; NULL: none */
    const char *host;          /* the name that is dialled; NULL: the address */
    uint32_t auth;             /* RDMUX_AUTH_*; 0: none */
    uint32_t data_sockets;     /* 0: the default */
    unsigned modes;            /* bits 1 << enum mode */
    bool has_srq;              /* b receives from an SRQ */
    bool has_failover;         /* of both */
    bool shares_counts;        /* RDMUX_FABRIC_SHARE_STATS */
    stage *stages[STAGES_MAX]; /* run after both fabrics are open; NULL ends the list */
};
extern const struct scenario scenarios[];
extern const size_t scenario_count;

/* The outcome of a request. */
struct outcome {
    bool posted;
    bool is_shared; /* of an SRQ: dropped with it, without an entry */
    unsigned entries;
    uint32_t status;
    uint64_t length;
    uint32_t imm;
    bool has_imm;
    size_t place; /* among the entries of its side, from 1 */
};

struct side {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_srq *srq;
    struct rdmux_ep *ep;
    struct rdmux_stream *stream; /* owns the endpoint then, and ep is NULL */
    struct rdmux_mr *mr;
    struct rdmux_mr *second_mr;
    int socket; /* that was given to rdmux_adopt(); 0: none */
    bool is_connected;
    bool has_ended;
    bool end_was_told; /* by an entry; a stream's end is also read off the stream, ahead of older entries */
    size_t entries;
    size_t moves;   /* moves reported by its entries */
    uint32_t epoch; /* of the last of them */
    struct outcome requests[REQUESTS_MAX];
};

struct life {
    const struct scenario *scenario;
    enum mode mode;
    struct side a; /* connects, and posts the requests */
    struct side b;
    struct rdmux_listener *listener;
    struct rdmux_ep *turned_away; /* an endpoint of a that b rejects */
    uint32_t turned_away_status;
    struct rdmux_remote *remotes[REMOTES_MAX];
    bool remote_answered[REMOTES_MAX];
    uint32_t remote_status[REMOTES_MAX];
    size_t steps;
    bool is_whole; /* all its stages were run */
    size_t breaks; /* of its path, or its control channel */
    bool may_wait; /* for an event that a failure may prevent, without harm */
    uint64_t until_ms;
    uint8_t received[RECEIVED_MAX][LARGE];
    jmp_buf end; /* where the life continues once a call of it has failed */
};

extern uint8_t life_pattern[LARGE];
extern uint8_t life_source[REGION_SIZE];

/* Called at each step of a life, unless NULL: other activity in the process. */
extern void (*life_disturb)(struct life *life);

/* Runs a life. Returns whether all its stages were run. Hurried: short limits, so that failures end
 * soon; else limits so long that a busy machine does not reach them. */
bool live(const struct scenario *scenario, enum mode mode, bool hurried);

/* Reports a broken requirement and ends the process. */
_Noreturn void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t now_ms(void);

/* For stages. */

/* No call was made to fail, and the limits are long: every call has to succeed. */
bool must_go_well(void);
bool is_in_a_hurry(void);
struct rdmux_ep_attr attr_of(const struct life *life, const struct side *side);
/* Checks the status of a call; ends the life if the call failed in a permitted way. */
void check(struct life *life, enum rdmux_status status, const char *call);
#define TRY(life, call) check(life, call, #call)
/* Progresses both sides by one step. False: the time is over, or one side has ended. */
bool progress(struct life *life);
/* The same, but ends the life where progress() returns false. */
void progress_or_end(struct life *life);
/* Returns the context for the post of this request. */
void *context_of(struct side *side, size_t number);
/* A request that was refused has no entry. */
void try_post(struct life *life, struct side *side, size_t number, enum rdmux_status status,
              const char *call);
#define POST(life, side, number, call) try_post(life, side, number, call, #call)
/* Waits for the entry of the request. Ends the life unless its status is OK. */
void await(struct life *life, struct side *side, size_t number);
/* Returns rdmux_ep_info() of the endpoint of a side. */
struct rdmux_ep_info info_of(const struct side *side);
/* Posts a receive of the side, to its SRQ if it has one. */
void post_receive(struct life *life, struct side *side, size_t number, void *buf, size_t length);

#endif
