/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Simulated RDMA device. The library defines the public functions of libibverbs and librdmacm, with
 * the layouts of their own headers, so that a program links with it instead of those two. This
 * header is the control interface of a test: it builds a world of hosts and devices, advances its
 * time and injects faults. README.md beside it has the semantics and every option.
 *
 * Two ways to use it:
 *   - In one process: sim_world_create(), sim_host_add(), sim_device_add(), then ordinary verbs.
 *     Time is virtual unless the options say otherwise: it advances when the program polls, waits
 *     or calls sim_advance(). The same seed and the same calls give the same trace.
 *   - Between processes: no call at all. The environment variable SIM_VERBS describes the device;
 *     all processes with the same "net" form one network. Time is real; a thread acts as the device.
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
 * Ends a world and everything in it; no verbs object of it may be used afterwards. Returns the number
 * of objects that the program had not destroyed: contexts, protection domains, regions, queues,
 * channels, ids.
 */
size_t sim_world_destroy(struct sim_world *world);

/* The number of such objects now. */
size_t sim_objects(struct sim_world *world);

/* What the program's objects take of a device: their numbers, and the room that the device granted. */
struct sim_use {
    uint64_t queue_pairs;
    uint64_t send_entries; /* of all queue pairs; also receive_entries, with those of SRQs */
    uint64_t receive_entries;
    uint64_t shared_queues;
    uint64_t completion_queues;
    uint64_t completion_entries;
    uint64_t regions;
    uint64_t region_bytes;
};

struct sim_use sim_device_use(struct sim_device *device);

/* Changes options of a living world, for later operations. time, threads and net are fixed. */
bool sim_world_set(struct sim_world *world, const char *options);

/* One machine with its processes. Verbs calls use the first host of a world by default. */
struct sim_host *sim_host_add(struct sim_world *world);

/*
 * This thread's later calls without an object (ibv_get_device_list(), rdma_create_event_channel(),
 * rdma_get_devices()) use this host. NULL: the first host of the world made last.
 */
void sim_use_host(struct sim_host *host);

/* The same for all threads without a host of their own. NULL: as before. */
void sim_default_host(struct sim_host *host);

/* Adds an adapter to a host. options: "link=roce,max_sge=1"; NULL is a RoCE device with the
 * defaults. */
struct sim_device *sim_device_add(struct sim_host *host, const char *options);

/* The device behind a context, for the functions below; also for devices that SIM_VERBS made. */
struct sim_device *sim_device_of(struct ibv_context *context);

/* Writes the device's first IP address of out's family into out; leaves the port unchanged. False:
 * none. */
bool sim_device_address(struct sim_device *device, struct sockaddr *out, size_t size);

/* The world of a device; also the one that SIM_VERBS made. */
struct sim_world *sim_world_of(struct sim_device *device);

/* ----------------------------------------------------------------------------------------- time */

/* Nanoseconds since the world began. */
uint64_t sim_now(struct sim_world *world);

/*
 * Advances virtual time and runs the events in it. Returns the number of events. SIM_FOREVER: until
 * no event is left; the clock stays at the last event.
 */
size_t sim_advance(struct sim_world *world, uint64_t nanoseconds);

/* Advances virtual time to the next event, however far away. False: no event is left. */
bool sim_step(struct sim_world *world);

/* A hash of all posts, packets, placements, completions, events and times so far. */
uint64_t sim_trace_hash(struct sim_world *world);

/* Counters of one world. */
struct sim_counters {
    uint64_t requests;      /* packets of requests sent, retries included */
    uint64_t answers;       /* packets of answers sent */
    uint64_t lost;          /* packets that vanished */
    uint64_t retries;       /* rounds of sending again after a loss */
    uint64_t rnr_naks;      /* "receiver not ready" seen by senders */
    uint64_t placed_late;   /* pieces that became visible later than they arrived */
    uint64_t placed_forced; /* of those: forced by a rule */
    uint64_t reads_late;    /* reads whose bytes were taken after later requests had been served */
    uint64_t swallowed;   /* posts that returned 0 and will never complete (iWARP after an error) */
    uint64_t completions; /* entries that completion queues showed */
    uint64_t events;      /* asynchronous, completion channel and connection manager events */
};

struct sim_counters sim_counters(struct sim_world *world);

/* --------------------------------------------------------------------------------------- faults */

/*
 * Makes the nth call from now (1 is the next) of the function called name fail with error, an errno
 * value. name is without its prefix: "post_send", "post_recv", "post_srq_recv", "poll_cq",
 * "req_notify_cq", "open_device", "alloc_pd", "reg_mr", "create_cq", "create_comp_channel",
 * "create_qp", "modify_qp", "create_srq", "create_event_channel", "create_id", "resolve_addr",
 * "connect", ...; README.md has all names. "*" counts every call that can fail except polls. One
 * plan per name; nth 0 removes it.
 */
bool sim_fail_call(struct sim_world *world, const char *name, uint64_t nth, int error);

/* The number of calls of that name so far; for sweeps over all of them. */
uint64_t sim_calls(struct sim_world *world, const char *name);

/*
 * Calls decide for every call that can fail, polls included. The call fails with the errno value that
 * decide returns; 0: it does not fail. decide gets the name as above, a literal. Its calls are
 * serialised over all threads. decide must not call the library. NULL: removes the hook.
 */
void sim_on_call(struct sim_world *world, int (*decide)(void *context, const char *name),
                 void *context);

/* Sets the port's link down or up: state, PORT_ERR or PORT_ACTIVE, and on RoCE the GIDs. */
void sim_port_set(struct sim_device *device, bool up);

/* The device vanishes: DEVICE_FATAL, connection manager DEVICE_REMOVAL, no further completion. */
void sim_device_remove(struct sim_device *device);

/* Sets or, with gid NULL, clears one entry of the GID table, and raises GID_CHANGE. */
void sim_gid_set(struct sim_device *device, unsigned int index, const union ibv_gid *gid,
                 enum ibv_gid_type type, unsigned int ifindex);

/* Moves every GID to another table entry, as a link flap does; raises GID_CHANGE. RoCE only. */
void sim_gids_renumber(struct sim_device *device);

/* Other changes by a subnet manager; each raises its event. */
void sim_lid_set(struct sim_device *device, uint16_t lid);
void sim_pkey_set(struct sim_device *device, unsigned int index, uint16_t pkey);

/* Raises an asynchronous event unchanged; its element may be anything, its type an unknown
 * number. */
void sim_async_event(struct ibv_context *context, const struct ibv_async_event *event);

/* The adapter puts a queue pair into the error state: QP_FATAL. quiet: no flushed completions
 * follow. */
void sim_qp_fatal(struct ibv_qp *qp, bool quiet);

/* The nth send request from now (1 is the next one started) completes with status. */
void sim_qp_fail_request(struct ibv_qp *qp, uint64_t nth, enum ibv_wc_status status);

/* The same, for any queue pair of the device. */
void sim_device_fail_request(struct sim_device *device, uint64_t nth, enum ibv_wc_status status);

/*
 * A queue pair of the device refuses the nth peer request from now (1 is the next one) with status,
 * as reported to the requester: IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR.
 * On iWARP, which has no such answer, the connection ends.
 */
void sim_device_refuse(struct sim_device *device, uint64_t nth, enum ibv_wc_status status);

/* The device's queue pairs give up a message without a receive after this many tries, regardless of
 * their rnr_retry. 0: their rnr_retry. */
void sim_device_rnr_tries(struct sim_device *device, uint32_t tries);

/* The completion queue fails as if it had overrun. */
void sim_cq_kill(struct ibv_cq *cq);

/* The same for all completion queues of the device's queue pairs. */
void sim_device_kill_cqs(struct sim_device *device);

/* Packets between two hosts vanish, in both directions, or pass again. */
void sim_cut(struct sim_host *one, struct sim_host *other, bool cut);

/*
 * The host's processes end at once, as by SIGKILL; the effect on peers depends on the link layer.
 * silent: the machine loses power, and no peer is told. The host's verbs objects must not be used
 * again.
 */
void sim_host_kill(struct sim_host *host, bool silent);

/*
 * Sets the function that is called for misuse that the real libraries answer by waiting forever or
 * by a crash much later: destruction of an object with unacknowledged events in virtual time, of a
 * channel with ids, of a context with objects; ibv_end_poll() without a start. By default the text
 * goes to stderr and the process aborts.
 */
void sim_on_misuse(struct sim_world *world, void (*report)(void *context, const char *text),
                   void *context);

#endif
