/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The state of a set-up. Failover keeps it, to look for the endpoint's next path. Owner. */
#ifndef RDMUX_API_SETUP_STATE_H
#define RDMUX_API_SETUP_STATE_H

#include "api/base/address.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"

#include <netdb.h>

enum setup_stage {
    SETUP_RESOLVING, /* the worker asks for the peer's addresses */
    SETUP_DIALING,   /* connect() under way */
    SETUP_TALKING,   /* the handshake runs */
    /* Of plain endpoints, see plain.h. */
    SETUP_FINDING_WAY, /* the worker finds the device that leads to the peer */
    SETUP_OPENING,     /* the worker opens it */
    SETUP_READYING,    /* receives are handed to it */
    SETUP_CONNECTING,
};

struct rdmux_measuring;          /* measure.c */
enum { RDMUX_PROOF_PARTS = 32 }; /* writes of a proof at a time, if the path's are short */

/* A path on trial. */
struct rdmux_trial {
    struct rdmux_provider_ep *path;
    uint32_t attempt;
    uint16_t ours; /* indices into the offers' paths */
    uint16_t theirs;
    bool opening;       /* the worker opens the device */
    bool connecting;    /* ep_connect said IN_PROGRESS */
    bool connect_waits; /* for unsent bytes on the shared socket */
    bool writing;       /* the proof's write is not done */
    uint8_t peer_data[RDMUX_DESCRIPTION_MAX];
    size_t peer_data_size;
    struct rdmux_provider_remote *remote;
    struct rdmux_measuring *measuring;             /* NULL: the path is not being measured */
    struct rdmux_request parts[RDMUX_PROOF_PARTS]; /* of the proof, under way */
    struct rdmux_provider_sge sges[RDMUX_PROOF_PARTS];
    uint32_t part_count;
    uint32_t parts_posted;
    uint64_t given; /* bytes of the proof that are in these parts, or were before */
};

struct rdmux_setup {
    enum setup_stage stage;
    struct rdmux_ep_attr attr;  /* without the caller's strings */
    char local[RDMUX_NAME_MAX]; /* attr.local, "" if none */
    struct rdmux_offer *offer;
    void *handshake_memory;
    struct rdmux_handshake *handshake;
    struct addrinfo *addresses;
    struct addrinfo *address; /* the one being dialled */
    int dialing;              /* its socket, -1 */
    uint64_t deadline_ns;
    uint64_t active_ns; /* when the handshake last said something, or was told something */
    uint64_t yield_ns;  /* when an accept call looks at it again, UINT64_MAX: not for that */
    uint64_t looked_ns; /* when the handshake was last told the time */
    uint64_t missed_ns; /* of the time since its beginning, what this side did not run */
    bool adopted;
    int adopted_flags; /* of the socket, as it came */
    int adopted_nodelay;
    struct rdmux_trial trial;
    struct rdmux_mr *proof; /* first half: the peer writes here; second half: what we write */
    char target[RDMUX_ADDRESS_MAX]; /* what the program asked for */
    char host[RDMUX_HOST_MAX];      /* of it; "" if there is none */

    bool program_polled;                /* since it has the endpoint */
    struct rdmux_plain_call *call;      /* until the path has it */
    const struct rdmux_offer_path *way; /* in offer */
};

/* Closes the path on trial, if there is one. */
void rdmux_trial_close(struct rdmux_ep *ep);
/* Wipes and frees the memory that has held the connection's secret. */
void rdmux_setup_release_secrets(struct rdmux_fabric *fabric, struct rdmux_setup *setup);

#endif
