/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A world: hosts, time, random numbers, the trace, and the memory of all its objects.
 *
 * The parts of the simulated device, in the order in which they handle a request:
 *   sim_post.c        posts: checks arguments, puts requests into rings
 *   sim_requester.c   starts requests, cuts them into packets, takes answers, completes in order
 *   sim_carry.c       packets in flight: latency, loss, the other process
 *   sim_responder.c   execution of a request at its target
 *   sim_place.c       bytes in flight into memory: when they become visible
 *   sim_completion.c  completion queues and channels
 * Other parts: sim_world.c (time, random numbers, trace), sim_faults.c, sim_options.c,
 * sim_device.c, sim_memory.c, sim_queue.c (queue pairs, shared receive queues), sim_async.c,
 * sim_cm*.c (librdmacm), sim_net.c (sockets).
 *
 * Lock: world->lock guards everything in a world; every public function takes it first.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "sim_faults.h"
#include "sim_options.h"
#include "sim_verbs.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SIM_SLOT_BITS = 14, /* queue pair numbers: host above, index below */
    SIM_SLOTS = 1 << (24 - SIM_SLOT_BITS),
};

struct sim_cm_id;
struct sim_device;
struct sim_net;
struct sim_qp;

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

void sim_stand_back(const struct sim_world *world); /* not locked; after a poll without result */

/* Before a wait for an object: runs events once; false: no event is left. */
bool sim_wait_step(struct sim_world *world);

#endif
