/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The connection manager (librdmacm): event channels, ids, and their events, each handed to the id
 * that it is of. The queue pairs are of the domain's own context, not of librdmacm's, which a whole
 * process shares, events included; so connecting names them by number, and the id has none
 * (rdma_connect(3)).
 */
#ifndef RDMUX_VERBS_CM_H
#define RDMUX_VERBS_CM_H

#include "verbs/verbs_internal.h"

#include <rdma/rdma_cma.h>

enum {
    VERBS_CM_PRIVATE_MAX = 255, /* bytes of private data with an event; the field has eight bits */
};

/* What is kept of an event once it is acknowledged: an id cannot be destroyed before. */
struct verbs_cm_event {
    enum rdma_cm_event_type type;
    int status;            /* an errno, negative, or a reason that the fabric has numbers for */
    struct rdma_cm_id *id; /* of a request: the new one's, which is the listener's to keep */
    uint8_t asked;         /* reads that the peer has under way at most */
    uint8_t answered;      /* and answers */
    uint8_t private_length;
    uint8_t private_data[VERBS_CM_PRIVATE_MAX];
};

/* An id, and who hears its events. The listener hears of requests. */
struct verbs_cm_id {
    struct rdma_cm_id *id; /* NULL: none */
    void (*heard)(struct verbs_cm_id *cm, const struct verbs_cm_event *event);
};

/* A channel that never blocks. name: the fabric's, for texts. [may sleep] */
enum rdmux_status rdmux_verbs_cm_channel_open(const char *name, struct rdma_event_channel **out);
/* An id whose events come to heard, which stays set. Returns an errno. */
int rdmux_verbs_cm_id_create(struct rdma_event_channel *channel, struct verbs_cm_id *cm);
/* The id of a request becomes this one's. */
void rdmux_verbs_cm_id_take(struct verbs_cm_id *cm, struct rdma_cm_id *id);
/* Takes the id, which there is, away: nobody hears its events, and any thread may destroy it. */
struct rdma_cm_id *rdmux_verbs_cm_id_release(struct verbs_cm_id *cm);
/* Does nothing if there is none. */
void rdmux_verbs_cm_id_destroy(struct verbs_cm_id *cm);
/* Takes the events that are there and hands each to its id; returns how many. */
size_t rdmux_verbs_cm_take_events(struct rdma_event_channel *channel);

/* The channel of a cq, made when first asked for; the cq's descriptor tells of its events, and
 * polling takes them. [may sleep] */
enum rdmux_status rdmux_verbs_cm_open(struct verbs_cq *cq);
void rdmux_verbs_cm_close(struct verbs_cq *cq);

#endif
