/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The parts of the simulated device, in the order in which they handle a request:
 *   sim_post.c        posts: checks arguments, puts requests into rings
 *   sim_requester.c   starts requests, cuts them into packets, takes answers, completes in order
 *   sim_carry.c       packets in flight: latency, loss, the other process
 *   sim_responder.c   execution of a request at its target
 *   sim_place.c       bytes in flight into memory: when they become visible
 *   sim_completion.c  completion queues and channels
 * Other parts: sim_world.c (time, random numbers, trace, faults), sim_options.c, sim_device.c,
 * sim_memory.c, sim_queue.c (queue pairs, shared receive queues), sim_async.c, sim_cm*.c
 * (librdmacm), sim_net.c (sockets).
 *
 * Lock: world->lock guards everything in a world; every public function takes it first.
 */
#ifndef SIM_INTERNAL_H
#define SIM_INTERNAL_H

#include "sim_verbs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define SIM_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define SIM_OUTER(type, member, pointer) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))
#define SIM_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

struct sim_atomic;
struct sim_cm_id;
struct sim_context;
struct sim_cq;
struct sim_device;
struct sim_held_answer;
struct sim_late_read;
struct sim_mr;
struct sim_mr_place;
struct sim_net;
struct sim_qp;
struct sim_refusal;
struct sim_srq;
struct sim_staged;

enum {
    SIM_SGES_MAX = 32, /* of one request, on any device */
    SIM_PIECES_MAX = SIM_SGES_MAX + 1,
    SIM_GIDS = 16, /* entries of a GID table */
    SIM_PKEYS = 8,
    SIM_ADDRESSES = 4,   /* IP addresses of a device */
    SIM_WINDOW_MAX = 64, /* packets of a queue pair in flight; bits of sim_qp.answered */
    SIM_SLOT_BITS = 14,  /* queue pair numbers: host above, index below */
    SIM_SLOTS = 1 << (24 - SIM_SLOT_BITS),
    SIM_PSN_MASK = 0xffffff,
    SIM_TCP_RETRY_TIME = 200000000, /* retry period of an iWARP stream, without end */
};

/* -------------------------------------------------------------------------------------- options */

enum sim_link { SIM_IB, SIM_ROCE, SIM_IWARP };

enum { SIM_SWAPPED_OPERANDS = 2 }; /* sim_device_options.swapped: swaps the operands */
enum { SIM_IMMEDIATE_WRONG = 2 };  /* sim_device_options.immediate: another number arrives */
/* The behaviour that a device follows where devices differ: the soft devices of Linux, or the
 * specification. */
enum sim_like { SIM_LIKE_DEFAULT, SIM_LIKE_RXE, SIM_LIKE_HCA, SIM_LIKE_SIW };

/* All numbers are uint64_t so that one table describes them; times in nanoseconds, sizes in
 * bytes. */
struct sim_world_options {
    uint64_t real_time;
    uint64_t threads;
    uint64_t trace;
    uint64_t seed;
    uint64_t latency;
    uint64_t jitter;
    uint64_t bandwidth; /* bytes per microsecond; 0: no limit */
    uint64_t packet;    /* 0: a message is one packet */
    uint64_t window;    /* packets of one queue pair in flight */
    uint64_t step;      /* virtual time that passes in a poll without result */
    uint64_t doorbell;
    uint64_t completion;
    uint64_t receipt; /* delay of entries of receives, and of entries behind them */
    uint64_t batch;
    uint64_t visible; /* SIM_FOREVER: only when a rule demands it */
    uint64_t scatter;
    uint64_t late_read; /* percent */
    uint64_t late_read_time;
    uint64_t late_key; /* the key of a late read is checked when the read comes, and never again */
    uint64_t drop;     /* per mille */
    uint64_t shuffle;
    uint64_t atomic_gap; /* atomics of ATOMIC_HCA devices stay in the adapter this long */
    char net[32];
    char fail[256];
    char at[256];
};

struct sim_device_options {
    uint64_t link;
    uint64_t like;
    uint64_t mtu; /* enum ibv_mtu */
    uint64_t max_qp, max_qp_wr, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_mr_size, max_pd;
    uint64_t max_srq, max_srq_wr, max_srq_sge;
    uint64_t max_rd_atomic, max_init_rd_atomic;
    uint64_t max_inline, max_msg;
    uint64_t vectors;
    uint64_t pkeys;
    uint64_t atomics; /* enum ibv_atomic_cap */
    uint64_t immediate;
    uint64_t wr_api, cq_ex;
    uint64_t data_in_order;
    uint64_t round_up;        /* queues get more entries than asked for */
    uint64_t stale;           /* entries of a destroyed queue pair stay in the completion queue */
    uint64_t reuse;           /* a queue pair number is used again at once */
    uint64_t unordered_reads; /* a read's entry may come after those of later requests */
    uint64_t solicited;       /* solicited-only notification works */
    uint64_t active_first; /* iWARP: the connection breaks if the acceptor sends first (RFC 5044) */
    uint64_t gid_ifindex;  /* the GID table names the network interface */
    uint64_t fork_needed;
    uint64_t loopback;     /* packets of the device reach its own queue pairs */
    uint64_t swapped;      /* results of atomics come in the other byte order */
    uint64_t inline_right; /* bytes of inline requests arrive; no: bytes after the 32nd are zero */
    uint64_t nothing_needs_key; /* writes and reads of no bytes are refused without a good key */
    uint64_t mute_refusals;     /* a target's refusal is never sent, as if it were always lost */
    uint64_t swallow;           /* iWARP: time for which rdma_connect() blocks; 0: it does not */
    char name[IBV_SYSFS_NAME_MAX];
    char addr[128];
    char netdev[32];
};

/* Reads "key=value,..." into the structs. A NULL struct's keys are then unknown. */
bool sim_options_read(const char *text, size_t size, struct sim_world_options *world,
                      struct sim_device_options *device);
void sim_world_defaults(struct sim_world_options *options);
void sim_device_defaults(struct sim_device_options *options);
void sim_device_complete(struct sim_device_options *options); /* sets what depends on link, like */

bool sim_time_read(const char *text, size_t size, uint64_t *out);

void sim_set_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---------------------------------------------------------------------------------------- calls */

/* The functions that can be made to fail, by the names that sim_fail_call() takes. */
#define SIM_CALLS(X)        \
    X(get_device_list)      \
    X(open_device)          \
    X(query_device)         \
    X(query_port)           \
    X(query_gid)            \
    X(query_pkey)           \
    X(alloc_pd)             \
    X(dealloc_pd)           \
    X(reg_mr)               \
    X(dereg_mr)             \
    X(create_ah)            \
    X(create_comp_channel)  \
    X(create_cq)            \
    X(resize_cq)            \
    X(req_notify_cq)        \
    X(poll_cq)              \
    X(create_srq)           \
    X(modify_srq)           \
    X(post_srq_recv)        \
    X(create_qp)            \
    X(modify_qp)            \
    X(query_qp)             \
    X(post_send)            \
    X(wr_complete)          \
    X(post_recv)            \
    X(create_event_channel) \
    X(create_id)            \
    X(bind_addr)            \
    X(resolve_addr)         \
    X(resolve_route)        \
    X(listen)               \
    X(connect)              \
    X(accept)               \
    X(reject)               \
    X(establish)            \
    X(disconnect)           \
    X(set_option)           \
    X(migrate_id)           \
    X(init_qp_attr)

#define SIM_CALL_NAME(name) SIM_CALL_##name,
enum sim_call_name { SIM_CALLS(SIM_CALL_NAME) SIM_CALL_COUNT };
#undef SIM_CALL_NAME

struct sim_plan {
    uint64_t left; /* calls until the failing one; 0: none planned */
    int error;
};

/* ---------------------------------------------------------------------- time and random numbers */

/* A scheduled event. Embedded in the object it concerns; run() finds that object by SIM_OUTER. */
struct sim_event {
    uint64_t time;
    uint64_t order; /* among events of one time: random if shuffle is on, then scheduling order */
    uint64_t serial;
    size_t place; /* in the heap, from 1; 0: not scheduled */
    void (*run)(struct sim_event *event);
};

struct sim_random {
    uint64_t state;
};

/* Header of each sim_alloc() block; freed with its world at the latest. */
struct sim_block {
    struct sim_block *next;
    struct sim_block *previous;
    struct sim_world *world;
    int descriptor; /* closed with it; -1: none */
};

struct sim_world {
    pthread_mutex_t lock;
    pthread_cond_t call_over; /* a blocking call has ended, see sim_cm_call.c; CLOCK_MONOTONIC */
    struct sim_world *next;
    struct sim_world_options options;
    struct sim_host *hosts; /* in creation order */
    struct sim_net *net;    /* the thread and its sockets; NULL with virtual time */
    atomic_bool net_works;  /* its thread has events to handle */
    uint64_t now;
    uint64_t real_start;
    struct sim_event **heap;
    size_t heap_count;
    size_t heap_room;
    uint64_t serial;
    struct sim_random random;
    uint64_t hash;
    struct sim_counters counters;
    uint64_t calls[SIM_CALL_COUNT];
    uint64_t calls_all;
    struct sim_plan plans[SIM_CALL_COUNT];
    struct sim_plan plan_all;
    int (*decide)(void *context, const char *name); /* NULL: only plans decide */
    void *decide_context;
    struct sim_block *blocks;
    uint64_t generation; /* changes whenever reachability may have changed */
    size_t objects;      /* that the program has not destroyed */
    size_t visitors;     /* calls and lists that use the world; guarded by the registry's lock */
    bool locked;         /* several threads use it */
    bool environment;    /* SIM_VERBS made it */
    bool cut;            /* no packet reaches other processes, or comes from them */
    bool planned;        /* some plan is set */
    bool direct;         /* packets take no time and no random event: the post serves requests */
    bool immediate;      /* placements and completions likewise */
    bool dead;           /* a copy of it in the child of a fork */
    uint16_t slot;       /* slot of this process, for traffic with others */
    uint16_t next_slot;
    uint16_t next_port;
    uint32_t next_handle;
    void (*misuse)(void *context, const char *text);
    void *misuse_context;
};

struct sim_host {
    struct sim_host *next;
    struct sim_world *world;
    struct sim_device *devices;
    struct sim_qp **qps; /* by index below the slot; NULL: none */
    uint32_t qps_room;
    uint32_t next_qp;
    uint16_t slot;
    bool killed;
    bool silent;       /* killed without notice to any peer */
    uint64_t cut_from; /* bits of the first 64 slots whose packets vanish */
    struct sim_cm_id *cm_ids;
};

void *sim_alloc(struct sim_world *world, size_t size); /* zeroed; NULL: out of memory */
void *sim_alloc_with(struct sim_world *world, size_t size, int descriptor);
void sim_free(void *memory);
int sim_event_descriptor(void); /* sim_event_tell() increments it, each read() decrements it */
void sim_event_tell(int descriptor);
bool sim_event_take(int descriptor); /* takes one, without waiting */

void sim_lock(struct sim_world *world);
void sim_unlock(struct sim_world *world);
int sim_call(struct sim_world *world, enum sim_call_name name); /* 0, or the planned error */
/* The host for calls without an object, NULL if none; its world lives until it is left. */
struct sim_host *sim_host_visit(void);
void sim_world_leave(struct sim_world *world); /* also for a world that was destroyed meanwhile */
/* Not locked. The world that SIM_VERBS made, and its thread, end with the last object. */
void sim_world_rest(struct sim_world *world);
void sim_misuse(struct sim_world *world, const char *text);
uint64_t sim_chance(struct sim_world *world, uint64_t below); /* 0 to below - 1; 0 if below is 0 */

void sim_schedule(struct sim_world *world, struct sim_event *event, uint64_t delay,
                  void (*run)(struct sim_event *event));
void sim_schedule_at(struct sim_world *world, struct sim_event *event, uint64_t time,
                     void (*run)(struct sim_event *event));
void sim_cancel(struct sim_world *world, struct sim_event *event);
void sim_clock(struct sim_world *world); /* real time: updates now */
size_t sim_run_due(struct sim_world *world);
bool sim_run_next(struct sim_world *world); /* virtual time: jumps to the next event; false: none */
void sim_idle(struct sim_world *world);     /* for a poll without result */
void sim_world_changed(struct sim_world *world);

enum sim_trace_kind {
    SIM_TRACE_POST = 1,
    SIM_TRACE_REQUEST,
    SIM_TRACE_ANSWER,
    SIM_TRACE_PLACE,
    SIM_TRACE_COMPLETE,
    SIM_TRACE_POLL,
    SIM_TRACE_EVENT,
    SIM_TRACE_STATE,
    SIM_TRACE_CM,
};

void sim_trace(struct sim_world *world, enum sim_trace_kind kind, uint64_t one, uint64_t two);

/* The lock is held. See the functions of sim_verbs.h. */
bool sim_plan_call(struct sim_world *world, const char *name, uint64_t nth, int error);
bool sim_faults_plan(struct sim_world *world); /* plans the faults of options fail= and at=, once */
void sim_port_change(struct sim_device *device, bool up);
void sim_device_vanish(struct sim_device *device);
void sim_gids_move(struct sim_device *device);
void sim_qp_give_up(struct sim_qp *qp, bool quiet);
enum ibv_wc_status sim_refusal_next(struct sim_refusal *refusal); /* IBV_WC_SUCCESS: none */

void sim_stand_back(const struct sim_world *world); /* not locked; after a poll without result */

/* Before a wait for an object: runs events once; false: no event is left. */
bool sim_wait_step(struct sim_world *world);

/* -------------------------------------------------------------------------------------- devices */

struct sim_gid_place {
    union ibv_gid gid;
    uint32_t type; /* enum ibv_gid_type */
    uint32_t ifindex;
    bool used;
};

/* A request that will fail. */
struct sim_refusal {
    uint64_t in; /* requests until the failing one; 0: none */
    enum ibv_wc_status status;
};

struct sim_device {
    struct ibv_device ib; /* first: programs get this */
    struct sim_device *next;
    struct sim_world *world;
    struct sim_host *host;
    struct sim_device_options options;
    struct sim_context *contexts;
    struct sim_context *cm_context; /* librdmacm's own */
    struct ibv_pd *cm_pd;           /* of it */
    struct sim_mr_place *mrs;       /* by the index in their keys; [0] is never used */
    uint32_t mrs_room;
    uint32_t mr_next;
    struct sim_gid_place gids[SIM_GIDS];
    struct sockaddr_storage addresses[SIM_ADDRESSES];
    size_t address_count;
    uint64_t guid;
    uint32_t ifindex;
    uint16_t pkeys[SIM_PKEYS];
    uint16_t lid;
    bool port_up;
    bool removed;
    uint32_t qp_count, cq_count, mr_count, pd_count, srq_count;
    struct sim_atomic *atomics; /* words in the adapter, not yet written back to memory */
    struct sim_refusal starts;  /* the failing one of the requests that its queue pairs start */
    struct sim_refusal serves;  /* the failing one of the peers' requests that they serve */
    uint32_t rnr_tries;         /* the limit of retries that are infinite otherwise; 0: none */
};

struct sim_mr_place {
    struct sim_mr *mr; /* NULL: free */
    uint32_t tag;      /* tag of the next region in this place */
};

struct sim_async {
    struct sim_async *next;
    struct ibv_async_event event;
};

struct sim_context {
    struct sim_context *next;
    struct sim_device *device;
    struct sim_world *world;
    struct sim_async *events; /* oldest first */
    size_t objects;
    struct verbs_context verbs;
};

struct sim_pd {
    struct ibv_pd ib;
    size_t users;
};

struct sim_context *sim_context_of(const struct ibv_context *context);
struct sim_device *sim_device_from(const struct ibv_context *context);
struct sim_context *sim_context_create(struct sim_device *device); /* with the lock held */
void sim_context_destroy(struct sim_context *context);
bool sim_gid_equal(const union ibv_gid *one, const union ibv_gid *other);
bool sim_device_has_gid(const struct sim_device *device, const union ibv_gid *gid);
bool sim_device_alive(const struct sim_device *device);
bool sim_like_rxe(const struct sim_device *device);
bool sim_is_iwarp(const struct sim_device *device);
struct sim_device *sim_device_make(struct sim_host *host, const struct sim_device_options *options);
void sim_fill_operations(struct sim_context *context); /* sets data path operations (sim_post.c) */

/* Raises an event for every context of the device, or for one context and one object. */
void sim_async_device(struct sim_device *device, enum ibv_event_type type);
void sim_async_raise(struct sim_context *context, const struct ibv_async_event *event);
/* Drops unfetched events of an object that ends. */
void sim_async_forget(struct sim_context *context, const void *object);

/* The acknowledgments that an object waits for before it is destroyed. */
struct sim_owed {
    pthread_mutex_t *mutex;
    pthread_cond_t *cond;
    const uint32_t *completed;
    uint32_t given;
    const char *text; /* text of the misuse report if the wait would last for ever */
};

void sim_wait_acknowledged(struct sim_world *world, const struct sim_owed *owed); /* not locked */
/* Not locked. Waits until a blocking descriptor may be readable; false with errno: stop
 * waiting. */
bool sim_wait_readable(struct sim_world *world, int descriptor);

/* --------------------------------------------------------------------------------------- memory */

struct sim_mr {
    struct ibv_mr ib;
    /* The device's own copies: a program's changes of its struct have no effect. */
    struct ibv_pd *pd;
    char *addr;
    size_t length;
    uint64_t iova;
    uint32_t lkey;
    uint32_t rkey;
    unsigned int access;
};

void sim_pd_use(struct ibv_pd *pd, int difference);
struct ibv_pd *sim_pd_make(struct sim_context *context); /* no program may destroy it */

/*
 * Returns the memory that a local (remote) key names. NULL: wrong key, protection domain, bounds or
 * rights. access: the required bits of IBV_ACCESS_*.
 */
void *sim_memory_local(const struct sim_qp *qp, const struct ibv_sge *sge, unsigned int access);
void *sim_memory_remote(const struct sim_qp *qp, uint32_t rkey, uint64_t addr, uint64_t length,
                        unsigned int access, bool *known_key);

/* ---------------------------------------------------------------------------------- completions */

struct sim_cqe {
    uint64_t wr_id;
    enum ibv_wc_status status;
    enum ibv_wc_opcode opcode;
    uint32_t vendor_err;
    uint32_t byte_len;
    uint32_t imm_data;
    uint32_t qp_num;
    uint32_t src_qp;
    unsigned int wc_flags;
    struct sim_qp *qp; /* NULL once it is destroyed */
    struct sim_srq *srq;
    uint64_t placed;  /* placements of the queue pair up to this one are visible after the poll */
    uint32_t request; /* index in the send queue */
    bool send_side;
    bool solicited;
};

/* An entry that the device has not shown yet. */
struct sim_late_cqe {
    struct sim_event event;
    struct sim_late_cqe *next;
    struct sim_cq *cq;
    struct sim_cqe cqe;
};

struct sim_cq_event {
    struct sim_cq_event *next;
    struct sim_cq *cq;
};

struct sim_comp_channel {
    struct ibv_comp_channel ib;
    struct sim_cq_event *events; /* oldest first */
};

enum sim_armed { SIM_ARMED_NOT, SIM_ARMED_SOLICITED, SIM_ARMED_ANY };

struct sim_cq {
    struct ibv_cq_ex ex; /* first: struct ibv_cq is its beginning */
    struct sim_world *world;
    struct sim_context *context;
    struct sim_cqe *ring;
    uint32_t room;
    uint32_t head; /* counts entries polled */
    uint32_t tail; /* counts entries shown */
    struct sim_late_cqe *late;
    uint32_t held;          /* number of late entries */
    struct sim_cqe current; /* of start_poll */
    enum sim_armed armed;
    bool dead;
    bool ignore_overrun;
    bool extended;
    bool polling; /* between start_poll and end_poll */
    uint32_t users;
    uint32_t comp_events_given;
    uint32_t async_events_given;
};

void sim_cq_put(struct sim_cq *cq, const struct sim_cqe *cqe);
void sim_cq_fail(struct sim_cq *cq);
void sim_qps_of_dead_cq(const struct sim_cq *cq);
void sim_cq_forget_qp(struct sim_cq *cq, struct sim_qp *qp, bool keep_entries);
int sim_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int sim_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *sim_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);

/* --------------------------------------------------------------------------------------- queues */

struct sim_wqe {
    uint64_t wr_id;
    uint64_t remote_addr;
    uint64_t compare_add;
    uint64_t swap;
    uint64_t length;
    uint32_t rkey;
    uint32_t imm_data;
    uint32_t first_psn;
    uint64_t piece;    /* bytes of each packet except the last */
    uint32_t packets;  /* number of packets; known once it has started */
    uint32_t answered; /* answered packets */
    enum ibv_wc_status status;
    uint8_t opcode; /* enum ibv_wr_opcode */
    uint8_t flags;  /* enum ibv_send_flags */
    uint8_t num_sge;
    bool inlined;
    bool started;
    bool done;
    bool shown;  /* its result was reported to the completion queue */
    bool entry;  /* that report was an entry */
    bool polled; /* the entry was polled */
};

struct sim_receive {
    uint64_t wr_id;
    int num_sge;
    struct ibv_sge sges[SIM_SGES_MAX];
};

/* A ring of receives: of a queue pair, or shared. */
struct sim_receives {
    uint64_t *wr_ids;
    uint8_t *counts;
    struct ibv_sge *sges;
    uint32_t room;
    uint32_t max_sge;
    uint32_t posted;
    uint32_t taken;
    uint32_t polled; /* completions of receives that were polled: only polling frees a place */
};

struct sim_srq {
    struct ibv_srq ib;
    struct sim_world *world;
    struct sim_context *context;
    struct sim_receives queue;
    uint32_t limit; /* 0: not armed */
    uint32_t users;
    uint32_t async_events_given;
};

/* Bytes in flight into memory. */
struct sim_placement {
    struct sim_event event;
    struct sim_placement *next;
    struct sim_qp *qp;
    uint64_t serial;
    uint8_t *target;
    size_t length;
    bool due;
    uint8_t bytes[];
};

struct sim_qp {
    struct ibv_qp_ex ex; /* first: struct ibv_qp is its beginning */
    struct sim_world *world;
    struct sim_context *context;
    struct sim_device *device;
    struct sim_cq *send_cq;
    struct sim_cq *recv_cq;
    struct sim_srq *srq;
    struct sim_cm_id *cm;
    struct ibv_qp_attr attr;
    struct ibv_qp_cap cap;
    enum ibv_qp_state state; /* the device's; the program's copy changes only by its own calls */
    uint32_t async_events_given;

    /* Requests: counters that only grow; a ring place is its counter modulo sq_room. */
    struct sim_wqe *sq;
    struct ibv_sge *sq_sges;
    uint8_t *sq_inline;
    struct sim_event doorbell;
    uint32_t sq_room;
    uint32_t posted;
    uint32_t next;        /* next request to be started or continued */
    uint32_t complete;    /* oldest incomplete request */
    uint32_t retired;     /* oldest request whose place is not free */
    uint32_t next_packet; /* of the request at next: packets before it were sent */
    uint32_t covered;     /* for requests before this one a later completion was polled */
    uint32_t reads;       /* started reads and atomics without their data */

    /* Packets: first unanswered, next to send, answered ones among the first 64. */
    uint64_t answered;
    struct sim_held_answer *held;
    struct sim_event retry;
    struct sim_event rnr;
    uint32_t una_psn;
    uint32_t next_psn;
    uint32_t retry_psn;
    uint32_t round;            /* rounds of retransmission of the packets in flight */
    struct sim_refusal starts; /* the failing one of its requests */

    /* The peer, if it is in this world; valid while peer_generation is the world's. */
    struct sim_qp *peer;
    uint64_t peer_generation;
    uint64_t request_arrival; /* of the last packet sent, so that no packet overtakes another */
    uint64_t answer_arrival;
    uint64_t incoming_arrival; /* of packets from other processes */

    /* As a target. */
    struct sim_receives rq;
    struct sim_receive receive; /* the receive that a message is filling */
    struct sim_late_read *late_reads;
    struct sim_placement *placements; /* oldest first */
    uint64_t place_serial;
    uint64_t atomic_results[SIM_WINDOW_MAX];
    uint32_t atomic_psns[SIM_WINDOW_MAX];
    uint32_t atomic_count;
    uint32_t expected_psn;
    uint32_t answers_held; /* iWARP: held until the link is up again */

    struct sim_staged *staged; /* of ibv_wr_*() */
    uint32_t staged_count;
    int staged_error;

    uint8_t retries;     /* retransmission rounds since the last answer */
    uint8_t rnr_retries; /* likewise */
    bool signal_all;
    bool extended;
    bool waiting;   /* for retry or rnr: no packet is sent */
    bool stopped;   /* a request failed: later requests are not started */
    bool working;   /* inside sim_requester_work */
    bool peer_lost; /* packets to the peer vanish */
    bool receiving;
    bool heard;     /* a packet arrived */
    bool swallow;   /* iWARP after an error: posts succeed and never complete */
    bool closing;   /* iWARP: closes when its requests are done */
    bool connected; /* iWARP: a connection is attached */
    bool silent;    /* failed by a fault: no completions */
    bool last_wqe_told;
};

static inline struct sim_qp *sim_qp_of(struct ibv_qp *qp)
{
    return (struct sim_qp *)(void *)qp;
}

static inline struct sim_cq *sim_cq_of(struct ibv_cq *cq)
{
    return (struct sim_cq *)(void *)cq;
}

static inline struct sim_srq *sim_srq_of(struct ibv_srq *srq)
{
    return (struct sim_srq *)(void *)srq;
}

static inline uint32_t sim_qp_num(const struct sim_qp *qp)
{
    return qp->ex.qp_base.qp_num;
}

struct sim_qp *sim_qp_find(struct sim_world *world, uint32_t number);
void sim_qp_set_state(struct sim_qp *qp, enum ibv_qp_state state);
int sim_qp_modify(struct sim_qp *qp, const struct ibv_qp_attr *attr, int mask); /* lock held */
void sim_qp_async(struct sim_qp *qp, enum ibv_event_type type);
void sim_qp_retire(struct sim_qp *qp, uint32_t request); /* its completion was polled */
bool sim_receives_take(struct sim_receives *queue, struct sim_receive *out);
int sim_receives_post(struct sim_receives *queue, const struct ibv_recv_wr *wr);
struct ibv_qp *sim_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
/* ibv_wr_*, in sim_post.c: sets the requested IBV_QP_EX_WITH_* operations. False: out of memory. */
bool sim_fill_wr_functions(struct sim_qp *qp, uint64_t operations);

static inline struct sim_wqe *sim_wqe_at(const struct sim_qp *qp, uint32_t counter)
{
    return &qp->sq[counter % qp->sq_room];
}

static inline struct ibv_sge *sim_wqe_sges(const struct sim_qp *qp, uint32_t counter)
{
    size_t each = qp->cap.max_send_sge > 0 ? qp->cap.max_send_sge : 1;
    return &qp->sq_sges[(counter % qp->sq_room) * each];
}

static inline uint8_t *sim_wqe_inline(const struct sim_qp *qp, uint32_t counter)
{
    return &qp->sq_inline[(size_t)(counter % qp->sq_room) * qp->cap.max_inline_data];
}

static inline uint32_t sim_receives_waiting(const struct sim_receives *queue)
{
    return queue->posted - queue->taken;
}

/* -------------------------------------------------------------------------------------- packets */

struct sim_request {
    uint32_t source; /* queue pair numbers */
    uint32_t target;
    uint32_t psn;
    uint32_t round; /* the sender's round when it was sent */
    uint32_t depth; /* reads and atomics in flight at the sender, this one included */
    uint32_t rkey;
    uint32_t imm_data;
    uint64_t remote_addr; /* of the whole message */
    uint64_t total;       /* bytes of the whole message */
    uint64_t offset;      /* of this packet in the message */
    uint64_t length;      /* of this packet */
    uint64_t compare_add;
    uint64_t swap;
    union ibv_gid dgid;
    uint16_t dlid;
    uint16_t pkey;
    uint8_t opcode; /* enum ibv_wr_opcode */
    uint8_t mtu;    /* enum ibv_mtu */
    uint8_t solicited;
    uint8_t link;     /* enum sim_link */
    uint8_t gid_type; /* enum ibv_gid_type */
    uint8_t global;   /* dgid is valid */
    uint8_t first;
    uint8_t last;
};

enum sim_answer_code {
    SIM_ANSWER_ACK,
    SIM_ANSWER_DATA, /* data of a read; an atomic's is in original */
    SIM_ANSWER_NAK,
    SIM_ANSWER_RNR,
    SIM_ANSWER_LOST,      /* no real device answers; the sender's timer detects it */
    SIM_ANSWER_LATER,     /* a separate answer follows */
    SIM_ANSWER_TERMINATE, /* iWARP: the connection ends */
};

struct sim_answer {
    uint32_t source; /* queue pair that answers */
    uint32_t target;
    uint32_t psn;
    uint32_t round; /* round of the packet that it answers */
    uint8_t code;   /* enum sim_answer_code */
    uint8_t timer;  /* of RNR: the receiver's min_rnr_timer */
    uint8_t status; /* of NAK: enum ibv_wc_status at the sender */
    uint8_t bad_read;
    uint64_t length;
    uint64_t original;
};

struct sim_cm_message;

enum sim_packet_kind { SIM_PACKET_REQUEST, SIM_PACKET_ANSWER, SIM_PACKET_CM, SIM_PACKET_HELLO };

/* Bytes of a packet, as a list of pieces. */
struct sim_bytes {
    struct iovec pieces[SIM_PIECES_MAX];
    int count;
};

static inline int32_t sim_psn_distance(uint32_t to, uint32_t from)
{
    return (int32_t)((to - from) << 8) >> 8; /* 24-bit numbers, which wrap */
}

/* Executes a request at its target. bytes: the request's bytes, for SEND and WRITE. read: set to
 * the pieces of the target's memory that a read returns. */
struct sim_answer sim_respond(struct sim_qp *qp, const struct sim_request *request,
                              const struct sim_bytes *bytes, struct sim_bytes *read);
/* Serves the oldest late reads, as long as their key is already checked. */
void sim_responder_finish(struct sim_qp *qp);
void sim_responder_reset(struct sim_qp *qp);
void sim_responder_flush(struct sim_qp *qp); /* completes the receives as flushed */

void sim_requester_work(struct sim_qp *qp);
void sim_requester_ring(struct sim_qp *qp); /* the doorbell: starts work now or a little later */
void sim_requester_answer(struct sim_qp *qp, const struct sim_answer *answer,
                          const struct sim_bytes *data);
void sim_requester_reset(struct sim_qp *qp);
void sim_requester_flush(struct sim_qp *qp); /* completes all posted requests as flushed */
void sim_requester_cancel(struct sim_qp *qp);
void sim_qp_enter_error(struct sim_qp *qp);
void sim_qp_peer_gone(struct sim_qp *qp);        /* requests in flight are lost */
void sim_qp_break_connection(struct sim_qp *qp); /* iWARP: this end of the connection is gone */
void sim_qp_close_connection(struct sim_qp *qp); /* iWARP: ends it once requests are done */

/* Sends a request of qp; bytes are copied unless it is served at once. */
void sim_carry_request(struct sim_qp *qp, struct sim_request *request,
                       const struct sim_bytes *bytes);
void sim_carry_answer(struct sim_world *world, struct sim_qp *from, const struct sim_answer *answer,
                      const struct sim_bytes *data);
/* Handles a packet from a socket. */
void sim_carry_arrived(struct sim_world *world, enum sim_packet_kind kind, const void *header,
                       uint8_t *bytes, size_t length);
bool sim_reaches(struct sim_qp *qp); /* updates qp->peer; false: packets vanish */
uint64_t sim_transit(struct sim_world *world, size_t bytes);
/* Returns the arrival time of bytes sent now, after earlier ones on the same way. */
uint64_t sim_arrival(struct sim_world *world, uint64_t *flow, size_t bytes);

/* ----------------------------------------------------------------------------------- placements */

/* Puts the bytes into target, now or as late as the rules allow. */
void sim_place(struct sim_qp *qp, void *target, const struct sim_bytes *bytes);
void sim_place_word(struct sim_qp *qp, void *target, uint64_t word);
void sim_place_all(struct sim_qp *qp); /* all placements of this queue pair become visible now */
void sim_place_until(struct sim_qp *qp, uint64_t serial);
void sim_place_device(struct sim_device *device); /* of all its queue pairs */
void sim_atomics_flush(struct sim_device *device);
uint64_t sim_atomic(struct sim_device *device, void *word, enum ibv_wr_opcode opcode,
                    uint64_t compare_add, uint64_t swap);

/* Cuts length bytes of a gather list from offset on. */
void sim_bytes_cut(const struct sim_bytes *from, uint64_t offset, uint64_t length,
                   struct sim_bytes *out);
void sim_bytes_add(struct sim_bytes *bytes, void *base, size_t length);
void sim_bytes_copy_out(const struct sim_bytes *bytes, uint8_t *out);
size_t sim_bytes_length(const struct sim_bytes *bytes);

/* ----------------------------------------------------------------------- the connection manager */

/* The connection of qp broke or the peer ended it (iWARP); reports it to its id. */
void sim_cm_broken(struct sim_qp *qp);
void sim_cm_qp_destroyed(struct sim_qp *qp);
/* Waits until no rdma_connect() that names the queue pair is running. */
void sim_cm_wait_for_calls(struct sim_qp *qp);
void sim_cm_device_removed(struct sim_device *device);
void sim_cm_slot_gone(struct sim_world *world, uint16_t slot);
void sim_cm_arrived(struct sim_world *world, const struct sim_cm_message *message);
size_t sim_cm_message_size(void);

/* --------------------------------------------------------------------------------- real sockets */

/* Starts the thread; with a net, takes a slot in it. NULL with a text in sim_error(). */
struct sim_net *sim_net_start(struct sim_world *world, uint16_t *slot);
void sim_net_stop(struct sim_net *net);
void sim_net_forked(struct sim_net *net);            /* in the child: closes the parent's sockets */
void sim_net_wake(struct sim_net *net, uint64_t at); /* an earlier event was scheduled */
bool sim_net_send(struct sim_net *net, uint16_t slot, enum sim_packet_kind kind, const void *header,
                  size_t header_size, const struct sim_bytes *bytes);
bool sim_net_send_to_port(struct sim_net *net, uint16_t port, const void *header,
                          size_t header_size);          /* false: no listener */
int sim_net_listen(struct sim_net *net, uint16_t port); /* a descriptor, or -1: taken */
void sim_net_unlisten(struct sim_net *net, int descriptor);
bool sim_net_has(const struct sim_net *net); /* true: peers may be in other processes */

#endif
