/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The connection manager: ids and events (sim_cm_id.c), connections (sim_cm.c), their queue pairs
 * (sim_cm_qp.c), calls that block (sim_cm_call.c). */
#ifndef SIM_CM_H
#define SIM_CM_H

#include "sim_device.h"
#include "sim_queue.h"
#include "sim_world.h"

enum {
    /* Bytes of private data in InfiniBand's connection manager formats; of REQ, rdma_cm keeps 36
     * bytes for the addresses. Shorter data arrives padded with zeros. */
    SIM_CM_REQ_DATA = 56,
    SIM_CM_REP_DATA = 196,
    SIM_CM_REJ_DATA = 148,
    SIM_CM_DATA_MAX = 255, /* of iWARP, by the width of the length */
    SIM_CM_SIW_LOST = 252, /* from this length on a request of siw vanishes */
    /* Reasons of a REJ (IBTA volume 1, table of REJ codes). */
    SIM_CM_REJ_NO_SERVICE = 8,
    SIM_CM_REJ_CONSUMER = 28,
};

/* Life of an id. Only sim_cm.c and sim_cm_id.c write it. */
enum sim_cm_state {
    SIM_CM_IDLE,
    SIM_CM_BOUND,         /* has a port */
    SIM_CM_ADDR_QUERY,    /* rdma_resolve_addr() is under way */
    SIM_CM_ADDR_RESOLVED, /* has a device */
    SIM_CM_ROUTE_QUERY,
    SIM_CM_ROUTE_RESOLVED, /* may connect */
    SIM_CM_LISTENING,
    SIM_CM_CONNECTING, /* REQ is out */
    SIM_CM_RESPONSE,   /* REP came; RTU is owed */
    SIM_CM_REQUESTED,  /* passive: REQ came; accept or reject */
    SIM_CM_ACCEPTED,   /* passive: REP is out */
    SIM_CM_ESTABLISHED,
    SIM_CM_DISCONNECTING, /* DREQ is out */
    SIM_CM_DREQ_RECEIVED, /* DREP is owed */
    SIM_CM_DISCONNECTED,
};

enum sim_cm_kind { SIM_CM_REQ, SIM_CM_REP, SIM_CM_RTU, SIM_CM_REJ, SIM_CM_DREQ, SIM_CM_DREP };

/* Between processes it travels in its memory layout: both ends run the same library on one
 * machine. */
struct sim_cm_message {
    uint32_t from; /* ids, by number */
    uint32_t to;
    uint32_t qp_num;
    uint32_t psn;
    uint32_t reason;
    uint16_t from_slot;
    uint16_t to_slot;
    uint16_t lid;
    uint16_t pkey;
    uint8_t kind;                /* enum sim_cm_kind */
    uint8_t link;                /* enum sim_link */
    uint8_t mtu;                 /* enum ibv_mtu */
    uint8_t responder_resources; /* of the sender */
    uint8_t initiator_depth;
    uint8_t flow_control;
    uint8_t retry_count;
    uint8_t rnr_retry_count;
    uint8_t srq;
    uint8_t tos;
    uint8_t data_length;
    union ibv_gid gid; /* of the sender */
    struct sockaddr_storage source;
    struct sockaddr_storage target;
    uint8_t data[SIM_CM_DATA_MAX];
};

struct sim_cm_channel;

struct sim_cm_entry {
    struct rdma_cm_event event; /* first: programs get it */
    struct sim_cm_entry *next;
    struct sim_cm_id *owner; /* the id whose event it acknowledges; of a request, the listener */
    uint8_t data[SIM_CM_DATA_MAX];
};

struct sim_cm_channel {
    struct rdma_event_channel ib; /* first */
    struct sim_world *world;
    struct sim_host *host;
    struct sim_cm_entry *events; /* oldest first */
    size_t ids;
};

struct sim_cm_id {
    struct rdma_cm_id id; /* first */
    struct sim_cm_id *next;
    struct sim_world *world;
    struct sim_host *host;
    struct sim_device *device;
    struct sim_cm_id *listener; /* of a request that the program has not fetched */
    enum sim_cm_state state;
    struct sim_event timer;
    uint32_t number;
    int port_descriptor; /* between processes: the port's socket; -1: none */
    int backlog;
    int pending;  /* requests that the program has not fetched */
    bool visible; /* the program has it */
    bool passive; /* it came by a request: its port is the listener's */
    bool calling; /* rdma_connect() waits at an address that swallows packets */

    uint8_t tos;       /* as set */
    uint8_t route_tos; /* as it was when the route was resolved */
    uint8_t ack_timeout;
    bool ack_timeout_set;
    int resolve_error;
    uint64_t flow; /* arrival time of the last message, so that no message overtakes another */

    /* The connection. */
    uint16_t peer_slot;
    uint32_t peer_number;
    struct sim_qp *stream; /* iWARP: the queue pair of the connection, the id's or the program's own */
    uint32_t peer_qp;
    uint32_t peer_psn;
    uint32_t my_qp;
    uint32_t my_psn;
    bool has_psn; /* my_psn was chosen */
    union ibv_gid peer_gid;
    uint16_t peer_lid;
    uint8_t mtu;
    uint8_t responder_resources;
    uint8_t initiator_depth;
    uint8_t retry_count;
    uint8_t rnr_retry_count;

    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t events_completed;
    uint32_t events_given;
};

static inline struct sim_cm_id *sim_cm_of(struct rdma_cm_id *id)
{
    return (struct sim_cm_id *)(void *)id;
}

static inline struct sim_cm_channel *sim_cm_channel_of(struct rdma_event_channel *channel)
{
    return (struct sim_cm_channel *)(void *)channel;
}

/* Called with the world's lock held. */
struct sim_cm_id *sim_cm_id_make(struct sim_cm_channel *channel, void *context,
                                 enum rdma_port_space ps);
void sim_cm_id_free(struct sim_cm_id *id);
bool sim_cm_set_device(struct sim_cm_id *id, struct sim_device *device);
struct sim_cm_id *sim_cm_find(struct sim_world *world, uint16_t slot, uint32_t number);
struct sim_cm_entry *sim_cm_tell(struct sim_cm_id *id, enum rdma_cm_event_type type, int status);
/* librdmacm's share of connecting: runs before rdma_get_cm_event() hands an event out. */
void sim_cm_event_given(struct sim_cm_id *id, struct sim_cm_entry *entry);
void sim_cm_connection_given(struct sim_cm_id *id, struct sim_cm_entry *entry);
void sim_cm_connection_end(struct sim_cm_id *id); /* its id is being destroyed */
bool sim_cm_is_iwarp(const struct sim_cm_id *id);
unsigned int sim_cm_gid_index(const struct sim_cm_id *id); /* SIM_GIDS: none is left */
bool sim_address_equal(const struct sockaddr_storage *one, const struct sockaddr_storage *other);
struct sim_device *sim_device_with_address(struct sim_host *host,
                                           const struct sockaddr_storage *address);
uint16_t sim_address_port(const struct sockaddr_storage *address);
int sim_cm_finish(int error); /* 0, or -1 with errno */

/* State changes of an id's queue pair, if it has one. Return 0 or an errno value. */
int sim_cm_move_ready(struct sim_cm_id *id);
void sim_cm_move_error(struct sim_cm_id *id);
void sim_cm_psn_choose(struct sim_cm_id *id);
/* iWARP: chooses the queue pair; false: none fits. The kernel then attaches the stream to it. */
bool sim_cm_stream_choose(struct sim_cm_id *id, const struct rdma_conn_param *param);
void sim_cm_attach(struct sim_cm_id *id, bool passive);

/* Without the lock: rdma_connect() of an id marked as calling, at an address that swallows packets.
 * Destroying the id or the queue pair waits for its end. */
int sim_cm_swallow(struct sim_cm_id *id);
void sim_cm_wait_for_call(struct sim_cm_id *id);

#endif
