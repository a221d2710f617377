/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * harness.h - the API that conformance cases are written with.
 *
 * A case is a pair of functions that run in two processes, the initiator and the target. They meet
 * over a socketpair (give, take, barrier), never over shared memory of their own. The first failed
 * expectation of a process is recorded with its place and ends the process. The runner prints it.
 * Cases cite the rules of docs/SEMANTICS.md.
 */
#ifndef CONFORMANCE_HARNESS_H
#define CONFORMANCE_HARNESS_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIB ((size_t)1 << 20)
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

/* Stores a small number in a context. */
#define CTX(number) ((void *)(uintptr_t)(number))
#define CTX_NUMBER(context) ((uint64_t)(uintptr_t)(context))

enum {
    SIDE_ENDPOINTS_MAX = 64,
    SIDE_REGIONS_MAX = 160,
    SIDE_DESCRIPTORS_MAX = 1024,
    REPORT_TEXT_MAX = 4096,
    HOST_TEXT_MAX = 64,
    PATIENT_MS = 8000, /* limit for a step of set-up that should take milliseconds */
};

/* ---------------------------------------------------------------------------------------- cases */

struct side;

/* conformance_case.flags */
enum {
    /* left out with --quick: the case tests timing, or does much work */
    CASE_LONG = 1 << 0,
    CASE_THOROUGH = 1 << 1, /* only with --thorough: needs gigabytes */
    CASE_RANDOM = 1 << 3,   /* a random sequence, see random.h */
    CASE_ROWS = 1 << 4,     /* rows of a table, see generated.h */
    CASE_ONE_HOST = 1 << 2, /* not with --peer: the two processes share resources of one host */
    /* A side has no service thread. A library without such fabrics has to refuse them. */
    CASE_MANUAL = 1 << 5,
    /* A side forks, or gives up rights, before its first rdmux call: victim_start() needs this. */
    CASE_UNTOUCHED = 1 << 6,
};

/* Memory that a CASE_THOROUGH case needs on one host, both processes together. */
#define CASE_THOROUGH_MEMORY (UINT64_C(10) << 30)

#define NEEDS_SEND ((uint64_t)RDMUX_CAP_SEND)
#define NEEDS_WRITE ((uint64_t)RDMUX_CAP_WRITE)
#define NEEDS_READ ((uint64_t)RDMUX_CAP_READ)
#define NEEDS_IMM ((uint64_t)RDMUX_CAP_SEND_IMM | RDMUX_CAP_WRITE_IMM)
#define NEEDS_ATOMICS ((uint64_t)RDMUX_CAP_FETCH_ADD | RDMUX_CAP_COMPARE_SWAP)
#define NEEDS_PLACED ((uint64_t)RDMUX_CAP_PLACED)
#define NEEDS_FENCE ((uint64_t)RDMUX_CAP_FENCE)
#define NEEDS_SRQ ((uint64_t)RDMUX_CAP_SRQ)
#define NEEDS_ATOMIC_DEVICE ((uint64_t)RDMUX_CAP_ATOMIC_DEVICE)
/* What a stream needs. */
#define NEEDS_STREAM (NEEDS_SEND | NEEDS_WRITE | NEEDS_IMM)
/* Not a capability: the path has PLACED, or a read behind the writes; see settle_writes(). */
#define NEEDS_SETTLED (UINT64_C(1) << 62)
/* Capabilities of nearly every path. A path with all of them is judged by every rule whose own
 * needs it meets. A sparser path is judged by the rules that a case can show with the path's
 * capabilities. */
#define NEEDS_BASICS (NEEDS_SEND | NEEDS_WRITE | NEEDS_READ | NEEDS_SETTLED)
/* A capability of the library, not of a path; the case of rule 8.8 detects it. */
#define NEEDS_FAILOVER (UINT64_C(1) << 63)
/* Not a capability either: the path has connections that a case can break; moving.c detects it. */
#define NEEDS_BREAKS (UINT64_C(1) << 61)
/* Not a capability either: endpoints of the path can change their cq; another_cq.c detects it. */
#define NEEDS_CQ_CHANGE (UINT64_C(1) << 60)

struct conformance_case {
    /* Numbers of docs/SEMANTICS.md. "-6.1": the case tries to break 6.1; "6.1": the case observes
     * 6.1. */
    const char *rule;
    const char *name;   /* a sentence that is true when the case passes */
    uint64_t needs;     /* NEEDS_*; if the path lacks one, the case tests that its use is refused */
    unsigned timeout_s; /* 0 means 10 */
    unsigned flags;
    void (*run_initiator)(struct side *side);
    void (*run_target)(struct side *side);
};

/* The cases of one file. */
struct suite {
    const char *name;
    const struct conformance_case *cases;
    size_t count;
};

extern const struct suite adopt_suite;
extern const struct suite another_cq_suite;
extern const struct suite asleep_suite;
extern const struct suite atomic_suite;
extern const struct suite batch_suite;
extern const struct suite callers_suite;
extern const struct suite connect_suite;
extern const struct suite counts_suite;
extern const struct suite crossing_suite;
extern const struct suite duplex_suite;
extern const struct suite edges_suite;
extern const struct suite end_suite;
extern const struct suite endpoints_suite;
extern const struct suite failure_suite;
extern const struct suite flags_suite;
extern const struct suite generated_suite;
extern const struct suite goodbye_suite;
extern const struct suite hello_suite;
extern const struct suite imports_suite;
extern const struct suite library_suite;
extern const struct suite limits_suite;
extern const struct suite lists_suite;
extern const struct suite long_suite;
extern const struct suite memory_suite;
extern const struct suite model_suite;
extern const struct suite moving_suite;
extern const struct suite objects_suite;
extern const struct suite order_suite;
extern const struct suite overtaking_suite;
extern const struct suite passive_suite;
extern const struct suite receive_suite;
extern const struct suite revoke_suite;
extern const struct suite sharing_suite;
extern const struct suite small_suite;
extern const struct suite sockets_suite;
extern const struct suite sparse_suite;
extern const struct suite srq_suite;
extern const struct suite streams_suite;
extern const struct suite streams_lost_suite;
extern const struct suite transfer_suite;
extern const struct suite unpromised_suite;
extern const struct suite wakeup_suite;

/* All suites. The first has one case only, which shows the provider's capabilities, so it runs
 * first. */
extern const struct suite *const suites[];
extern const size_t suite_count;

/* --------------------------------------------------------------------------------------- a side */

/* Completions of one cq. Completions polled while waiting for another one are kept, in order. */
struct queue {
    struct rdmux_cq *cq;
    struct rdmux_fabric *progress; /* a fabric without service thread to progress; else NULL */
    bool sleeps;                   /* uses rdmux_cq_wait() instead of rdmux_cq_poll() */
    struct rdmux_wc *kept;
    size_t kept_count;
    size_t kept_room;
};

/* How the memory of a region is provided. */
enum memory_kind {
    MEMORY_REGISTERED,   /* the caller's memory, rdmux_mr_register() */
    MEMORY_ALLOCATED,    /* rdmux_mr_alloc() */
    MEMORY_UNREGISTERED, /* the caller's memory, mr is NULL */
    MEMORY_KINDS,
};

struct region {
    enum memory_kind kind;
    struct rdmux_mr *mr;
    uint8_t *addr;
    size_t length;
};

/* Capabilities of a provider's endpoints, as its first pair reported them. */
struct provider_caps {
    uint64_t native;
    uint64_t emulated;
    bool known;
};

/* Returns the RDMUX_CAP_* of these needs that the path lacks; 0 while the path's capabilities are
 * unknown. */
uint64_t caps_missing(const struct provider_caps *caps, uint64_t needs);

/* State of one process of a case. */
struct side {
    const char *provider;
    /* The fabric's filter: every provider, and the one under test by name, as some have paths on
     * request only. */
    char paths[RDMUX_NAME_MAX + 8];
    const char *const *plugins;
    size_t plugin_count;
    struct rdmux_fabric_auth auth; /* key_file NULL: no authentication */
    bool is_initiator;
    bool sleeps; /* --wait sleep */
    bool quick;
    bool thorough;
    unsigned patience;
    int patient_ms;
    uint64_t seed;              /* the same on both sides */
    const char *sequence;       /* operations of a random case; NULL: all */
    uint64_t missing;           /* RDMUX_CAP_* that the case needs and the path lacks */
    struct provider_caps *caps; /* shared with the runner */
    int sync;                   /* socket to the other side */
    int socket;                 /* a second stream socket to the other side, for rdmux_adopt() */
    bool remote;                /* the other side is on another host */
    char host[HOST_TEXT_MAX];   /* hosts of this side and of the other, numeric, IPv6 in brackets */
    char other_host[HOST_TEXT_MAX];

    bool manual; /* no service thread: give, take and barrier progress the fabric */
    struct rdmux_fabric *fabric;
    struct queue queue;
    struct rdmux_listener *listener;
    char address[RDMUX_ADDRESS_MAX]; /* address of the target's listener */
    struct rdmux_ep *ep;             /* the first of eps */
    struct rdmux_ep_info info;       /* of ep, when it was connected */
    struct rdmux_ep *eps[SIDE_ENDPOINTS_MAX];
    size_t ep_count;
    struct region regions[SIDE_REGIONS_MAX];
    size_t region_count;
    bool has_libraries;                     /* side_open_libraries() was called */
    bool descriptors[SIDE_DESCRIPTORS_MAX]; /* open before the case's first rdmux call */
};

/* --------------------------------------------------------------------------------- expectations */

/* What a process reports to the runner, in memory that both map. */
struct report {
    const char *file; /* place of the process; string literals, valid in every fork */
    const char *what;
    int line;
    int failed;      /* 1: text has the reason */
    int consequence; /* 1: the process only noticed that the other side had ended */
    uint64_t failed_ns;
    int left_out; /* 1: text has the reason why the case was left out */
    uint64_t row; /* case of rows: 1 + the number of the current row */
    char text[REPORT_TEXT_MAX];
};

/* The process must be done by the deadline. A wait that is not done by then fails and reports what
 * it waited for. */
void report_begin(struct report *shared, uint64_t deadline_ns);
bool time_is_up(void);
/* Remembers the place of the process, in case the process hangs there. */
void stand_at(const char *file, int line, const char *what);
/* Writes the place of an expectation, such as "step 12 of batch". Returns what snprintf()
 * returns. */
int write_place(const char *file, int line, char *out, size_t size);
/* Marks the case as left out: it cannot show its subject here. Called by the initiator; both sides
 * end as usual. */
void leave_out(const char *why);
/* Returns the bytes that programs may still allocate; 0 if the kernel does not report them. */
uint64_t memory_available(void);
/* Records the current row of a case of rows. */
void stand_on_row(uint64_t row);
_Noreturn void fail_at(const char *file, int line, const char *format, ...) PRINTF_LIKE(3, 4);
/* The other side is gone; its report has the reason. */
_Noreturn void fail_as_consequence(const char *file, int line, const char *what);

void expect_status_at(const char *file, int line, const char *call, enum rdmux_status actual,
                      enum rdmux_status expected);
void expect_equal_at(const char *file, int line, const char *what, uint64_t actual,
                     uint64_t expected);
void expect_pattern_at(const char *file, int line, const char *what, const void *bytes,
                       size_t length, uint64_t seed, uint64_t first);
void expect_filled_at(const char *file, int line, const char *what, const void *bytes,
                      size_t length, uint8_t value);

#define FAIL(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define STAND(what) stand_at(__FILE__, __LINE__, what)

/* Checks that the condition holds; the text that follows describes the failure. */
#define EXPECT(condition, ...)                        \
    do {                                              \
        stand_at(__FILE__, __LINE__, #condition);     \
        if (!(condition)) {                           \
            fail_at(__FILE__, __LINE__, __VA_ARGS__); \
        }                                             \
    } while (0)
/* Checks that the call returns this status. */
#define EXPECT_STATUS(call, expected)           \
    expect_status_at(__FILE__, __LINE__, #call, \
                     (stand_at(__FILE__, __LINE__, #call), (enum rdmux_status)(call)), (expected))
#define EXPECT_OK(call) EXPECT_STATUS(call, RDMUX_OK)
#define EXPECT_EQUAL(actual, expected) \
    expect_equal_at(__FILE__, __LINE__, #actual, (uint64_t)(actual), (uint64_t)(expected))
/* Checks that the bytes are those that pattern_fill() makes from seed. */
#define EXPECT_PATTERN(bytes, length, seed) \
    expect_pattern_at(__FILE__, __LINE__, #bytes, bytes, length, seed, 0)
/* The same for a piece of a pattern that begins at the pattern's byte `first`. */
#define EXPECT_PATTERN_FROM(bytes, length, seed, first) \
    expect_pattern_at(__FILE__, __LINE__, #bytes, bytes, length, seed, first)
/* Checks that every byte has this value. */
#define EXPECT_FILLED(bytes, length, value) \
    expect_filled_at(__FILE__, __LINE__, #bytes, bytes, length, value)

/* Fills bytes so that each depends on seed and on its position, counted from `first`. */
void pattern_fill(void *bytes, size_t length, uint64_t seed, uint64_t first);
uint64_t mix64(uint64_t value);
/* Returns a pseudo-random number below limit; steps *state. */
uint64_t random_below(uint64_t *state, uint64_t limit);

uint64_t now_ns(void);
uint64_t ms_since(uint64_t start_ns);
void sleep_ms(unsigned ms); /* for cases that test timing */

/* ------------------------------------------------------------------------------- the other side */

void give_at(const char *file, int line, struct side *side, const void *bytes, size_t length);
void take_at(const char *file, int line, struct side *side, void *bytes, size_t length);
void barrier_at(const char *file, int line, struct side *side);

#define GIVE(side, bytes, length) give_at(__FILE__, __LINE__, side, bytes, length)
#define TAKE(side, bytes, length) take_at(__FILE__, __LINE__, side, bytes, length)
/* Returns when both sides have reached the barrier. Until then this process makes no rdmux call,
 * unless it has no service thread. */
#define BARRIER(side) barrier_at(__FILE__, __LINE__, side)

/* ---------------------------------------------------------------------------------- completions */

void queue_open(struct queue *queue, const struct side *side, struct rdmux_cq *cq);
void queue_close(struct queue *queue); /* drops kept completions; does not destroy the cq */

/* Polls once and keeps the completions found; returns the number kept. */
size_t queue_poll(struct queue *queue);
struct rdmux_wc queue_next_at(const char *file, int line, struct queue *queue, const char *what);
struct rdmux_wc queue_wait_at(const char *file, int line, struct queue *queue, struct rdmux_ep *ep,
                              uint32_t opcode, const void *context, enum rdmux_status expected);
void expect_quiet_at(const char *file, int line, struct queue *queue);

/* Takes the oldest completion not yet taken, of any kind; waits for one. */
#define NEXT(queue) NEXT_AFTER(queue, "no completion came")
/* The same; `missing` is the error text if no completion comes. */
#define NEXT_AFTER(queue, missing) queue_next_at(__FILE__, __LINE__, queue, missing)
/* Waits for the completion with this opcode and context and keeps others. Its status must be
 * RDMUX_OK. */
#define WAIT(queue, opcode, context) WAIT_STATUS(queue, opcode, context, RDMUX_OK)
#define WAIT_STATUS(queue, opcode, context, status) \
    queue_wait_at(__FILE__, __LINE__, queue, NULL, opcode, context, status)
/* The same for one endpoint; other endpoints on the queue may have ended. */
#define WAIT_OF(queue, ep, opcode, context, status) \
    queue_wait_at(__FILE__, __LINE__, queue, ep, opcode, context, status)
/* Checks that no completion is kept and that no more is there. */
#define EXPECT_QUIET(queue) expect_quiet_at(__FILE__, __LINE__, queue)
/* Posts a request and waits for its one completion. */
#define POST_AND_WAIT(queue, call, opcode, context) \
    (EXPECT_OK(call), queue_wait_at(__FILE__, __LINE__, queue, NULL, opcode, context, RDMUX_OK))

/* Returns the text of a completion, in one of a few static buffers. */
const char *wc_text(const struct rdmux_wc *wc);

/* --------------------------------------------------------------------------------------- set-up */

/* Returns an address on which this side may listen and that the other side can reach, with a port
 * of the system's choice. */
const char *side_any_port(const struct side *side);
/* Binds a TCP socket, without rdmux, to a port of 127.0.0.1 of the system's choice, and writes the
 * address. If it does not listen it only reserves the port. The caller closes it. */
int side_bound_socket(struct side *side, bool listens, char address[RDMUX_ADDRESS_MAX]);

struct rdmux_fabric_attr fabric_attr_of(const struct side *side);
struct rdmux_ep_attr ep_attr_of(const struct side *side);
/* The same without heartbeats, for a program that sleeps: only the awaited event wakes it, so no
 * heartbeat hides a lost wake-up. */
struct rdmux_ep_attr still_ep_attr_of(const struct side *side);

/* Has the libraries below the provider open what they keep until the process ends. */
void side_open_libraries(struct side *side);
/* Opens the side's fabric and queue. fabric_attr NULL: fabric_attr_of(). */
void side_open(struct side *side, const struct rdmux_fabric_attr *fabric_attr);
/* The target listens on a port of the system's choice; both sides then know the address. */
void side_meet(struct side *side);
/* Connects or accepts one endpoint on the side's queue and checks that it uses the provider. attr
 * NULL: ep_attr_of(). */
struct rdmux_ep *side_pair(struct side *side, const struct rdmux_ep_attr *attr);
/* The same on another queue. */
struct rdmux_ep *side_pair_on(struct side *side, struct queue *queue,
                              const struct rdmux_ep_attr *attr);
/* side_open(), side_meet() and side_pair(): a connected pair in side->ep. */
void side_open_pair(struct side *side, const struct rdmux_ep_attr *attr);
/* Makes side_finish() close the endpoint; the first one tracked becomes side->ep. */
void side_track(struct side *side, struct rdmux_ep *ep);
void side_close_ep(struct side *side, struct rdmux_ep *ep);
/* Checks that the endpoint is connected through the provider; fills info. */
void check_endpoint(const struct side *side, struct rdmux_ep *ep, struct rdmux_ep_info *info);
/* Returns whether the path has all of these, native or emulated. */
bool side_has(const struct side *side, uint64_t needs);
/* Returns flag, RDMUX_PLACED or RDMUX_FENCE, if the path supports it, else 0. */
uint32_t flag_if_there(const struct side *side, uint32_t flag);
/* On a path without PLACED, makes sure that the writes are placed by a read behind them (2.6); the
 * import must allow reads. */
void settle_writes(struct side *side, struct queue *queue, struct rdmux_ep *ep,
                   struct rdmux_remote *remote);
/* Checks that nothing is left to complete and waits for the other side. Then ends everything the
 * side opened and checks that this succeeded and left no descriptor open. */
void side_finish(struct side *side);
/* The same without the check that the queue is quiet and without waiting for the other side. */
void side_end(struct side *side);

/* Long buffers are regions, too, MEMORY_UNREGISTERED, not static arrays: each process ends with the
 * address sanitizer's search for leaks, which reads every static byte. */
struct region region_make(struct side *side, enum memory_kind kind, size_t length, uint32_t access);
enum { REGION_KINDS = 3 };
/* Makes a region with all rights. number selects its kind: allocated, registered, registered with
 * NO_MAP. A path selects its way to do an operation by it. */
struct region region_of_kind(struct side *side, unsigned number, size_t length);
/* Frees a region before side_finish() does. */
void region_free(struct side *side, struct region *region);
/* give_token() passes the region's token to the other side, which imports it for ep by
 * take_remote(). */
void give_token(struct side *side, const struct region *region);
struct rdmux_remote *take_remote(struct side *side, struct rdmux_ep *ep);
/* Waits until this importer has learned of the revoke. The revoke call itself waits for the
 * importer's answer for 100 ms at most (6.8). */
void await_revoked(struct side *side, struct rdmux_remote *remote);

/* Rights for everything that a peer may do with a region. */
#define ACCESS_ALL                                                                               \
    ((uint32_t)RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE | \
     RDMUX_ACCESS_REMOTE_ATOMIC)
/* Rights that the sink of receives, reads and atomics needs on every fabric. */
#define ACCESS_SINK ((uint32_t)RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK)

/* Does every operation of the path once on a connected pair and verifies the bytes. Both sides call
 * it. */
void exercise(struct side *side, struct queue *queue, struct rdmux_ep *ep);

/* Called by the initiator: cuts the connections that carry its data. Returns how many. */
unsigned break_path(const struct side *side);

/* ------------------------------------------------------------------------------ a third process */

/*
 * A process that the target forks before any rdmux call, to be killed or stopped. body runs there
 * with a side of its own, calls victim_ready() and then waits for its end. The target process
 * itself calls no rdmux function.
 */
struct victim {
    int pid;
    int ready; /* read end */
};

/* Called first in the process. body does not return. */
void victim_start(struct victim *victim, struct side *side, void (*body)(struct side *side));
/* Called in the victim: notifies the process that forked it. */
void victim_ready(struct side *side);
/* Called in the target: waits for victim_ready(). */
void victim_await(struct victim *victim);
void victim_signal(const struct victim *victim, int signal);
/* Called in the target: waits until SIGSTOP, its own or the target's, has stopped the victim. */
void victim_await_stop(const struct victim *victim);
/* Kills the victim unless it was killed before, and reaps it. */
void victim_end(struct victim *victim);

/* ----------------------------------------------------------------------------------- the runner */

struct run_options {
    const char *const *plugins;
    size_t plugin_count;
    const char *key_file; /* both sides authenticate with its keys; NULL: no authentication */
    bool sleeps;
    bool quick;
    bool thorough;
    unsigned patience; /* factor for every time limit, for sanitisers and slow machines */
    uint64_t seed;
    unsigned limit_s;     /* time limit of a case; 0: the case's own */
    const char *sequence; /* operations of random cases, see random.h; NULL: all */
    struct peer *peer;    /* a session on another host, see peer.h; NULL: both sides run here */
};

/* A case by its indices in suites. */
struct case_place {
    size_t suite;
    size_t test;
};

/* In a failure's text: precedes the number of the one broken rule and a colon. */
#define BROKEN_RULE "breaks rule "

struct run_result {
    bool passed;
    bool left_out; /* text has the reason why the case could not run here */
    bool late;     /* the case exceeded its time limit */
    char rule[8];  /* the broken rule; "": any rule that the case cites */
    uint64_t took_ns;
    uint64_t row;                   /* as in struct report, of the initiator */
    char text[3 * REPORT_TEXT_MAX]; /* diagnostics, lines without "# " */
};

/* Runs one case in two new processes; the target runs on another host if options name a peer. *caps
 * is filled from the first endpoint of the provider that connects. */
void run_case(const struct case_place *place, const char *provider,
              const struct run_options *options, struct provider_caps *caps,
              struct run_result *result);

/* Replace the functions of a case whose needs the path lacks. */
void refused_initiator(struct side *side);
void refused_target(struct side *side);

#endif
