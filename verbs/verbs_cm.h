/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The connection manager (librdmacm): event channels, ids, and delivery of each event to its id.
 * Queue pairs belong to the domain's own context. librdmacm's context is shared by the whole
 * process, its events included. So connecting names queue pairs by number, and the id has none
 * (rdma_connect(3)).
 */
#ifndef RDMUX_VERBS_CM_H
#define RDMUX_VERBS_CM_H

#include <rdmux/provider.h>

#include <rdma/rdma_cma.h>

#include <stddef.h>
#include <stdint.h>

struct verbs_cq;

enum {
    /* bytes of private data in an event; its length field has eight bits */
    VERBS_CM_PRIVATE_MAX = 255,
};

/* Copy of an event. The event itself is acknowledged first, as its id cannot be destroyed
 * before. */
struct verbs_cm_event {
    enum rdma_cm_event_type type;
    int status;            /* a negative errno, or a reason code of the fabric */
    struct rdma_cm_id *id; /* of a connection request: the new id, which the listener owns */
    uint8_t asked;         /* reads that the peer has in flight, at most */
    uint8_t answered;      /* reads that the peer answers at a time */
    uint8_t private_length;
    uint8_t private_data[VERBS_CM_PRIVATE_MAX];
};

/* An id with the handler of its events. Connection requests go to the listener's handler. */
struct verbs_cm_id {
    struct rdma_cm_id *id; /* NULL: none */
    void (*heard)(struct verbs_cm_id *cm, const struct verbs_cm_event *event);
};

/* Opens a channel in non-blocking mode. name: the fabric's, for texts. [may sleep] */
enum rdmux_status rdmux_verbs_cm_channel_open(const char *name, struct rdma_event_channel **out);
/* Creates an id whose events go to cm->heard; the caller sets that. Returns an errno. */
int rdmux_verbs_cm_id_create(struct rdma_event_channel *channel, struct verbs_cm_id *cm);
/* Takes over the id of a connection request. */
void rdmux_verbs_cm_id_take(struct verbs_cm_id *cm, struct rdma_cm_id *id);
/* Detaches the id, which must exist. Its events are ignored from now on, and any thread may destroy
 * it. */
struct rdma_cm_id *rdmux_verbs_cm_id_release(struct verbs_cm_id *cm);
/* Destroys the id, if there is one. */
void rdmux_verbs_cm_id_destroy(struct verbs_cm_id *cm);
/* Takes available events, up to a limit, and calls each id's handler; returns their number. */
size_t rdmux_verbs_cm_take_events(struct rdma_event_channel *channel);

/* Opens the cq's channel, if that was not done. Its events make the cq's descriptor readable, and
 * polling takes them. [may sleep] */
enum rdmux_status rdmux_verbs_cm_open(struct verbs_cq *cq);
void rdmux_verbs_cm_close(struct verbs_cq *cq);
/* Events of a cq that has a channel. rdmux_verbs_cm_poll() looks for events in some polls only;
 * rdmux_verbs_cm_take() takes the available events, up to a limit. Both return the number of
 * events. */
size_t rdmux_verbs_cm_poll(struct verbs_cq *cq, size_t done);
size_t rdmux_verbs_cm_take(struct verbs_cq *cq);

#endif
