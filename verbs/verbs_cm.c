/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The connection manager: channels, ids, events. */
#include "verbs/verbs_cm.h"

#include "verbs/verbs_completion.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_transport.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

enum {
    EVENTS_MAX = 64, /* events taken at a time */
    LOOK_EVERY = 16, /* idle polls between looks for events */
    LOOK_BUSY = 256, /* polls of any kind between looks for events */
};

/* ------------------------------------------------------------------------------- channels, ids */

enum rdmux_status rdmux_verbs_cm_channel_open(const char *name, struct rdma_event_channel **out)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    if (channel == NULL) {
        int error = errno;
        rdmux_provider_error("%s: no event channel of the connection manager: %s; is "
                             "/dev/infiniband/rdma_cm there (modprobe rdma_ucm), and this user "
                             "allowed to open it?",
                             name, strerror(error));
        return error == EMFILE || error == ENFILE || error == ENOMEM ? RDMUX_NO_MEMORY : RDMUX_IO;
    }
    int flags = fcntl(channel->fd, F_GETFL);
    if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        rdmux_provider_error("%s: the connection manager's events cannot be waited for: %s", name,
                             strerror(errno));
        rdma_destroy_event_channel(channel);
        return RDMUX_IO;
    }
    *out = channel;
    return RDMUX_OK;
}

int rdmux_verbs_cm_id_create(struct rdma_event_channel *channel, struct verbs_cm_id *cm)
{
    if (rdma_create_id(channel, &cm->id, cm, RDMA_PS_TCP) != 0) {
        cm->id = NULL;
        return errno;
    }
    return 0;
}

void rdmux_verbs_cm_id_take(struct verbs_cm_id *cm, struct rdma_cm_id *id)
{
    cm->id = id;
    id->context = cm;
}

static void ignore_event(struct verbs_cm_id *cm, const struct verbs_cm_event *event)
{
    (void)cm;
    (void)event;
}

struct rdma_cm_id *rdmux_verbs_cm_id_release(struct verbs_cm_id *cm)
{
    static struct verbs_cm_id nobody = { .heard = ignore_event };
    struct rdma_cm_id *id = cm->id;
    id->context = &nobody;
    cm->id = NULL;
    return id;
}

void rdmux_verbs_cm_id_destroy(struct verbs_cm_id *cm)
{
    if (cm->id != NULL) {
        (void)rdma_destroy_id(cm->id);
        cm->id = NULL;
    }
}

/* --------------------------------------------------------------------------------------- events */

static void note_event(const struct rdma_cm_event *event, struct verbs_cm_event *out)
{
    const struct rdma_conn_param *conn = &event->param.conn;
    *out = (struct verbs_cm_event){
        .type = event->event,
        .status = event->status,
        .id = event->id,
        .asked = conn->responder_resources,
        .answered = conn->initiator_depth,
    };
    if (conn->private_data != NULL && conn->private_data_len > 0) {
        out->private_length = conn->private_data_len;
        memcpy(out->private_data, conn->private_data, conn->private_data_len);
    }
}

size_t rdmux_verbs_cm_take_events(struct rdma_event_channel *channel)
{
    size_t count = 0;
    struct rdma_cm_event *event = NULL;
    while (count < EVENTS_MAX && rdma_get_cm_event(channel, &event) == 0) {
        struct verbs_cm_event heard;
        note_event(event, &heard);
        /* The id of a connection request has its listener's context. A released id may be destroyed
         * after the acknowledgment. */
        struct verbs_cm_id *cm = heard.id->context;
        (void)rdma_ack_cm_event(event);
        cm->heard(cm, &heard);
        count++;
    }
    return count;
}

/* ----------------------------------------------------------------------------------------- a cq */

enum rdmux_status rdmux_verbs_cm_open(struct verbs_cq *cq)
{
    if (cq->cm_channel != NULL) {
        return RDMUX_OK;
    }
    struct rdma_event_channel *channel = NULL;
    const char *name = verbs_domain_of(cq->base.domain)->transport->name;
    enum rdmux_status status = rdmux_verbs_cm_channel_open(name, &channel);
    if (status != RDMUX_OK) {
        return status;
    }
    struct epoll_event event = { .events = EPOLLIN };
    if (epoll_ctl(cq->epoll, EPOLL_CTL_ADD, channel->fd, &event) != 0) {
        rdmux_provider_error("%s: the connection manager's events cannot be waited for: %s", name,
                             strerror(errno));
        rdma_destroy_event_channel(channel);
        return RDMUX_IO;
    }
    cq->cm_channel = channel;
    return RDMUX_OK;
}

void rdmux_verbs_cm_close(struct verbs_cq *cq)
{
    if (cq->cm_channel != NULL) {
        rdma_destroy_event_channel(cq->cm_channel);
        cq->cm_channel = NULL;
    }
}

size_t rdmux_verbs_cm_poll(struct verbs_cq *cq, size_t done)
{
    bool looks = cq->cm_connecting != 0 || ++cq->cm_polls % LOOK_BUSY == 0 ||
                 (done == 0 && cq->idle_polls % LOOK_EVERY == 1);
    return looks ? rdmux_verbs_cm_take_events(cq->cm_channel) : 0;
}

size_t rdmux_verbs_cm_take(struct verbs_cq *cq)
{
    return rdmux_verbs_cm_take_events(cq->cm_channel);
}
