/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * A simulated RDMA device. The library defines the public functions of libibverbs and librdmacm,
 * with the layouts of their own headers, so that whatever links with those links with it instead.
 * This header is what a test has besides: it builds a world of hosts and devices, moves its time
 * and breaks things in it. README.md beside it tells the semantics; every option is listed there.
 *
 * Two ways to use it:
 *   - In one process: sim_world_create(), sim_host_add(), sim_device_add(), then ordinary verbs.
 *     Time is virtual unless the options say otherwise: it moves when the program polls, waits or
 *     calls sim_advance(), and the same seed and the same calls give the same trace.
 *   - Between processes: no call at all. The environment variable SIM_VERBS describes the device;
 *     all processes with the same "net" meet. Time is real there, a thread is the device.
 *     Without SIM_VERBS and without a world there is no device: ibv_get_device_list() says ENOSYS.
 *
 * Threads  Any thread may call anything, unless the world was made with threads=no.
 * Errors   Functions that can fail return NULL or false and leave a text in sim_error().
 */
#ifndef SIM_VERBS_H
#define SIM_VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_world;
struct sim_host;
struct sim_device;

/* No time limit: sim_advance(world, SIM_FOREVER) runs until nothing is left to happen. */
#define SIM_FOREVER UINT64_MAX

/* The cause of the last failure of a sim_ function in this thread. */
const char *sim_error(void);

/* --------------------------------------------------------------------------------------- worlds */

/* A world without hosts. options: "key=value" joined by commas, NULL for the defaults. */
struct sim_world *sim_world_create(const char *options);

/*
 * Ends a world and everything in it; no verbs object of it may be used afterwards. Returns how many
 * the program had not destroyed itself: contexts, protection domains, regions, queues, channels,
 * ids.
 */
size_t sim_world_destroy(struct sim_world *world);

/* How many of such objects there are now. */
size_t sim_objects(struct sim_world *world);

/* Changes options of a living world, for what happens from now on. time, threads and net are
 * fixed. */
bool sim_world_set(struct sim_world *world, const char *options);

/* One machine with its processes. The first host of a world is the one that verbs calls mean. */
struct sim_host *sim_host_add(struct sim_world *world);

/*
 * From now on this thread's calls that name no object (ibv_get_device_list(),
 * rdma_create_event_channel(), rdma_get_devices()) mean host. NULL: the first host of the world
 * made last.
 */
void sim_use_host(struct sim_host *host);

/* The same for all threads that have not said so themselves. NULL: as before. */
void sim_default_host(struct sim_host *host);

/* Adds an adapter to a host. options: "link=roce,max_sge=1"; NULL is a RoCE device with the
 * defaults. */
struct sim_device *sim_device_add(struct sim_host *host, const char *options);

/* The device behind a context, for the functions below; also for devices that SIM_VERBS made. */
struct sim_device *sim_device_of(struct ibv_context *context);

/* Writes the device's first IP address of out's family into out, port untouched. False: it has
 * none. */
bool sim_device_address(struct sim_device *device, struct sockaddr *out, size_t size);

/* The world of a device; also the one that SIM_VERBS made. */
struct sim_world *sim_world_of(struct sim_device *device);

/* ----------------------------------------------------------------------------------------- time */

/* Nanoseconds since the world began. */
uint64_t sim_now(struct sim_world *world);

/*
 * Lets time pass, with all that happens in it; virtual time only. Returns the number of events.
 * SIM_FOREVER: until nothing is left to happen, leaving the clock at the last event.
 */
size_t sim_advance(struct sim_world *world, uint64_t nanoseconds);

/* Goes to the next thing that happens, however far away; virtual time only. False: nothing is
 * left. */
bool sim_step(struct sim_world *world);

/* A number for everything that happened so far: posts, packets, placements, completions, events,
 * times. */
uint64_t sim_trace_hash(struct sim_world *world);

/* What happened so far, per world. */
struct sim_counters {
    uint64_t requests;      /* packets of requests sent, retries included */
    uint64_t answers;       /* packets of answers sent */
    uint64_t lost;          /* packets that vanished */
    uint64_t retries;       /* rounds of sending again after a loss */
    uint64_t rnr_naks;      /* "receiver not ready" seen by senders */
    uint64_t placed_late;   /* pieces that became visible later than they arrived */
    uint64_t placed_forced; /* of those: because a rule demanded it */
    uint64_t reads_late;    /* reads whose bytes were taken after later requests had been served */
    uint64_t swallowed;   /* posts that returned 0 and will never complete (iWARP after an error) */
    uint64_t completions; /* entries that completion queues showed */
    uint64_t events;      /* asynchronous, completion channel and connection manager events */
};

struct sim_counters sim_counters(struct sim_world *world);

/* --------------------------------------------------------------------------------------- faults */

/*
 * Lets the nth call from now (1 is the next) of the function called name fail with error, an errno
 * value. name is without its prefix: "post_send", "post_recv", "post_srq_recv", "poll_cq",
 * "req_notify_cq", "open_device", "alloc_pd", "reg_mr", "create_cq", "create_comp_channel",
 * "create_qp", "modify_qp", "create_srq", "create_event_channel", "create_id", "resolve_addr",
 * "connect", ...; README.md has all. "*" counts every call that can fail except polls. One plan
 * per name; nth 0 takes it back.
 */
bool sim_fail_call(struct sim_world *world, const char *name, uint64_t nth, int error);

/* How many calls of that name there were; for sweeps over all of them. */
uint64_t sim_calls(struct sim_world *world, const char *name);

/*
 * Asks decide for every call that can fail, polls included, whether it does: with the errno value that it
 * returns, or, at 0, not. It gets the name as above, a literal; calls of all threads come one by one, and it must
 * not call the library. NULL: nobody is asked any more.
 */
void sim_on_call(struct sim_world *world, int (*decide)(void *context, const char *name),
                 void *context);

/* Takes the port's link away or back: state, PORT_ERR or PORT_ACTIVE, and on RoCE the GIDs with
 * it. */
void sim_port_set(struct sim_device *device, bool up);

/* The device vanishes: DEVICE_FATAL, connection manager DEVICE_REMOVAL, no completion ever
 * again. */
void sim_device_remove(struct sim_device *device);

/* Sets or, with gid NULL, clears one place of the GID table, and raises GID_CHANGE. */
void sim_gid_set(struct sim_device *device, unsigned int index, const union ibv_gid *gid,
                 enum ibv_gid_type type, unsigned int ifindex);

/* Moves every GID to another place of the table, as a link flap does; GID_CHANGE. RoCE only. */
void sim_gids_renumber(struct sim_device *device);

/* Other housekeeping of a subnet manager; each raises its event. */
void sim_lid_set(struct sim_device *device, uint16_t lid);
void sim_pkey_set(struct sim_device *device, unsigned int index, uint16_t pkey);

/* Raises an asynchronous event as it stands; its element may be anything, its type an unknown
 * number. */
void sim_async_event(struct ibv_context *context, const struct ibv_async_event *event);

/* The adapter gives a queue pair up: QP_FATAL, error state. quiet: no flushed completions
 * follow. */
void sim_qp_fatal(struct ibv_qp *qp, bool quiet);

/* The nth send request from now (1 is the next one started) completes with status. */
void sim_qp_fail_request(struct ibv_qp *qp, uint64_t nth, enum ibv_wc_status status);

/* The same, whichever queue pair of the device starts it. */
void sim_device_fail_request(struct sim_device *device, uint64_t nth, enum ibv_wc_status status);

/*
 * The nth request of others from now (1 is the next one) that a queue pair of the device gets is refused
 * with status, as what its device says of it: IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR,
 * IBV_WC_REM_OP_ERR. On iWARP, which has no such answer, the connection ends.
 */
void sim_device_refuse(struct sim_device *device, uint64_t nth, enum ibv_wc_status status);

/* The device's queue pairs give up what meets no receive after so many tries, whatever they were told. 0:
 * as they were told. */
void sim_device_rnr_tries(struct sim_device *device, uint32_t tries);

/* The completion queue dies as if it had overrun. */
void sim_cq_kill(struct ibv_cq *cq);

/* The same of all that queue pairs of the device complete to. */
void sim_device_kill_cqs(struct sim_device *device);

/* Packets between two hosts vanish, both ways, or pass again. */
void sim_cut(struct sim_host *one, struct sim_host *other, bool cut);

/*
 * The host's processes end at once, as by SIGKILL: what that means to the peers depends on the
 * link layer. silent: the machine loses power, nobody hears of it. The host's verbs objects must
 * not be used again.
 */
void sim_host_kill(struct sim_host *host, bool silent);

/*
 * Called for what a program may not do, and which the real libraries answer by waiting for ever or
 * by a crash much later: destroying an object with unacknowledged events in virtual time, a
 * channel with ids, a context with objects; ending a poll that did not start. By default the text
 * goes to stderr and the process aborts.
 */
void sim_on_misuse(struct sim_world *world, void (*report)(void *context, const char *text),
                   void *context);

#endif
