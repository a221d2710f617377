/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Devices and their contexts. */
#ifndef SIM_DEVICE_H
#define SIM_DEVICE_H

#include "sim_faults.h"
#include "sim_options.h"

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
    SIM_GIDS = 16, /* entries of a GID table */
    SIM_PKEYS = 8,
    SIM_ADDRESSES = 4, /* IP addresses of a device */
};

struct sim_async;
struct sim_atomic;
struct sim_host;
struct sim_mr_place;
struct sim_world;

struct sim_gid_place {
    union ibv_gid gid;
    uint32_t type; /* enum ibv_gid_type */
    uint32_t ifindex;
    bool used;
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
    uint64_t cq_entries, srq_entries; /* room of all of them */
    struct sim_atomic *atomics;       /* words in the adapter, not yet written back to memory */
    struct sim_refusal starts; /* the failing one of the requests that its queue pairs start */
    struct sim_refusal serves; /* the failing one of the peers' requests that they serve */
    uint32_t rnr_tries;        /* the limit of retries that are infinite otherwise; 0: none */
};

struct sim_context {
    struct sim_context *next;
    struct sim_device *device;
    struct sim_world *world;
    struct sim_async *events; /* oldest first */
    size_t objects;
    struct verbs_context verbs;
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

/* The lock is held. See the functions of sim_verbs.h. */
void sim_port_change(struct sim_device *device, bool up);
void sim_device_vanish(struct sim_device *device);
void sim_gids_move(struct sim_device *device);

#endif
