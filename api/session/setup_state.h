/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The state of a set-up. Failover keeps it to search for the endpoint's next path. Owner. */
#ifndef RDMUX_API_SESSION_SETUP_STATE_H
#define RDMUX_API_SESSION_SETUP_STATE_H

#include "api/base/address.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"

#include <netdb.h>

enum setup_stage {
    SETUP_RESOLVING, /* the worker resolves the peer's addresses */
    SETUP_DIALING,   /* connect() is under way */
    SETUP_TALKING,   /* the handshake runs */
    /* Stages of rdma:// endpoints, see rdmacm_endpoint.h. */
    SETUP_FINDING_WAY, /* the worker finds the device that leads to the peer */
    SETUP_OPENING,     /* the worker opens the device */
    SETUP_READYING,    /* receives are given to the device */
    SETUP_CONNECTING,
};

struct rdmux_measuring;          /* measure.c */
enum { RDMUX_PROOF_PARTS = 32 }; /* writes of a proof at a time, if the path's writes are short */

/* A path attempt. */
struct rdmux_path_attempt {
    struct rdmux_provider_ep *path;
    uint32_t number;
    uint16_t ours; /* indices into the offers' paths */
    uint16_t theirs;
    bool is_opening;         /* the worker opens the device */
    bool is_connecting;      /* ep_connect returned IN_PROGRESS */
    bool is_connect_waiting; /* for unsent bytes on the shared socket */
    bool is_writing;         /* the proof's write is not done */
    uint8_t peer_data[RDMUX_DESCRIPTION_MAX];
    size_t peer_data_size;
    struct rdmux_provider_remote *remote;
    struct rdmux_measuring *measuring;             /* NULL: the path is not being measured */
    struct rdmux_request parts[RDMUX_PROOF_PARTS]; /* writes of the proof under way */
    struct rdmux_provider_sge sges[RDMUX_PROOF_PARTS];
    uint32_t part_count;
    uint32_t parts_posted;
    uint64_t given; /* bytes of the proof given to these or earlier parts */
};

struct rdmux_setup {
    /* Advances the set-up, rdmux_ep_setup_step(). Failover searches the next path by it. */
    void (*step)(struct rdmux_ep *ep);
    enum setup_stage stage;     /* written by rdmux_setup_enter() alone */
    struct rdmux_ep_attr attr;  /* without the caller's strings */
    char local[RDMUX_NAME_MAX]; /* attr.local, "" if none */
    struct rdmux_offer *offer;
    void *handshake_memory;
    struct rdmux_handshake *handshake;
    struct addrinfo *addresses;
    struct addrinfo *address; /* the address being dialled */
    int dialing;              /* socket being dialled, or -1 */
    uint64_t deadline_ns;
    uint64_t active_ns; /* when the handshake last sent or received a message */
    uint64_t yield_ns;  /* when an accept call checks it again; UINT64_MAX: no accept call waits */
    uint64_t looked_ns; /* when the handshake was last given the time */
    uint64_t missed_ns; /* how long this side did not run since the set-up began */
    bool is_adopted;
    int adopted_flags; /* flags of the adopted socket before adoption */
    int adopted_nodelay;
    struct rdmux_path_attempt attempt;
    struct rdmux_mr *proof; /* first half: written by the peer; second half: what we write */
    char target[RDMUX_ADDRESS_MAX]; /* the target that the program gave */
    char host[RDMUX_HOST_MAX];      /* host part of the target; "" if none */

    bool has_program_polled;            /* the program has polled since it got the endpoint */
    struct rdmux_rdmacm_call *call;     /* until the path takes it over */
    const struct rdmux_offer_path *way; /* in offer */
};

/* Writes the stage. A set-up never returns to an earlier one. */
void rdmux_setup_enter(struct rdmux_setup *setup, enum setup_stage next);
/* Closes the path attempt, if any. */
void rdmux_path_attempt_close(struct rdmux_ep *ep);
/* Wipes and frees the memory that held the connection's secret. */
void rdmux_setup_release_secrets(struct rdmux_fabric *fabric, struct rdmux_setup *setup);

#endif
