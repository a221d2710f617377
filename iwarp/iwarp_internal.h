/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What iWARP adds to verbs/: connections through librdmacm, a header in front of each message,
 * credits, and workarounds for the devices. docs/IWARP.md has the design. Each object begins with
 * the one of verbs/.
 */
#ifndef RDMUX_IWARP_INTERNAL_H
#define RDMUX_IWARP_INTERNAL_H

#include "api/base/list.h"
#include "iwarp/iwarp_connect_thread.h"
#include "iwarp/iwarp_connection.h"
#include "iwarp/iwarp_credit.h"
#include "iwarp/iwarp_deferred_destroy.h"
#include "iwarp/iwarp_link.h"
#include "iwarp/iwarp_message.h"
#include "iwarp/iwarp_order.h"
#include "providers/credit_scheduler.h"
#include "verbs/verbs_cm.h"
#include "verbs/verbs_completion.h"
#include "verbs/verbs_connection.h"
#include "verbs/verbs_domain.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_queue.h"
#include "verbs/verbs_srq.h"

struct iwarp_ep;

struct iwarp_domain {
    struct verbs_domain base;
    struct ibv_cq *guard;     /* see iwarp_provider.c; NULL: not needed */
    _Atomic uint32_t revoked; /* revoked keys */
    _Atomic uint64_t longest; /* bytes of the longest region that peers could ever write */
};

struct iwarp_cq {
    struct verbs_cq base;
    struct iwarp_ep *talkers; /* endpoints that have a side message to send, by talk_next */
    struct iwarp_deferred_destroy *deferred;
    struct iwarp_ep *connecting; /* endpoints that are connecting, by connect_next */
    int timer;                   /* timerfd, runs while there are any */
};

struct iwarp_id {
    struct verbs_cm_id base;
    struct iwarp_ep *ep;
};

struct iwarp_channel {
    struct iwarp_id cm;
    struct iwarp_link link;
    struct iwarp_connect_thread call; /* the connector's rdma_connect() */
    uint8_t index;                    /* IWARP_DATA, IWARP_SIDE */
    bool is_prepared;                 /* the queue pair takes receives */
};

/* Shared receives, and the endpoints with a claim on them. */
struct iwarp_srq {
    struct verbs_srq base;
    struct rdmux_credit_scheduler scheduler;
};

struct iwarp_ep {
    struct verbs_ep base;
    struct iwarp_channel channels[IWARP_LINKS];
    struct iwarp_id listeners[VERBS_ADDRESSES_MAX]; /* acceptor: until both connections are there */
    struct iwarp_connection ours;
    struct iwarp_connection theirs;
    uint8_t secret[RDMUX_SECRET_SIZE];
    bool is_connecting; /* on cq->connecting */
    bool is_known;      /* the peer's connection data has come */
    bool is_proved;     /* the connector's first read has completed */
    bool is_greeted;    /* the peer's HELLO has come */
    uint32_t proof_end; /* slot after the connector's first read */
    uint32_t nudges;
    uint64_t nudge_at_ns;
    struct iwarp_ep *connect_next;
    enum rdmux_status connect_status; /* why connecting failed */
    char connect_text[RDMUX_TEXT_MAX];

    struct iwarp_credit credit;
    bool has_asked;                    /* has asked for credits and got none yet */
    bool waits_for_credit;             /* a message waits for credit */
    struct rdmux_credit_user user;     /* of the SRQ */
    struct verbs_headers send_headers; /* one for each slot */
    struct iwarp_order order;
    uint32_t ping_calls;  /* calls of ep_ping since a side-channel read is in flight, or 0 */
    bool has_ping_failed; /* no room for that read: any side-channel completion counts instead */
    bool is_talking;      /* on cq->talkers */
    struct iwarp_ep *talk_next;

    /* Teardown, see iwarp_end.c. */
    uint32_t revoked_before; /* domain->revoked when the endpoint was opened */
    bool is_data_over;
    /* Outcome of a completion that may be a consequence of the data connection's end, not its
     * cause. */
    enum rdmux_status suspicion;
    char suspicion_text[RDMUX_TEXT_MAX];
    bool is_side_over;
    bool is_end_told;
    bool is_end_heard;
    struct iwarp_side end; /* the peer's ENDED */
};

static inline struct iwarp_domain *iwarp_domain_of(struct rdmux_provider_domain *domain)
{
    return (struct iwarp_domain *)domain;
}
static inline struct iwarp_cq *iwarp_cq_of(struct rdmux_provider_cq *cq)
{
    return (struct iwarp_cq *)cq;
}
static inline struct iwarp_ep *iwarp_ep_of(struct rdmux_provider_ep *ep)
{
    return (struct iwarp_ep *)ep;
}
static inline struct iwarp_ep *iwarp_of(struct verbs_ep *ep)
{
    return (struct iwarp_ep *)ep;
}
static inline struct iwarp_cq *iwarp_cq_of_ep(const struct iwarp_ep *ep)
{
    return (struct iwarp_cq *)ep->base.base.cq;
}
static inline struct iwarp_srq *iwarp_srq_of_ep(const struct iwarp_ep *ep)
{
    return (struct iwarp_srq *)ep->base.attr->srq;
}
static inline struct iwarp_domain *iwarp_domain_of_ep(const struct iwarp_ep *ep)
{
    return (struct iwarp_domain *)ep->base.base.cq->domain;
}

/* ------------------------------------------------------------------ addresses (iwarp_address.c) */

/* Finds the addresses at which the connection manager reaches a port of a device. near: the address
 * on the way to a peer, which is preferred, or zeros. RDMUX_IO, with a text: the connection manager
 * cannot be used. Finding no address is not a failure. path, if not NULL, gets the addresses by
 * which the port can be named, those in *out first. [may sleep] */
enum rdmux_status rdmux_iwarp_find_addresses(const char *device, uint8_t port,
                                             const uint8_t near[VERBS_GID_SIZE],
                                             struct verbs_whereabouts *out,
                                             struct rdmux_local_path *path);
/* Converts an address of the whereabouts to librdmacm's form. */
void rdmux_iwarp_socket_address(const uint8_t gid[VERBS_GID_SIZE], uint16_t port,
                                struct sockaddr_storage *out);

/* Both connections are established. */
static inline bool iwarp_is_up(const struct iwarp_ep *ep)
{
    return ep->channels[IWARP_DATA].link.stage == IWARP_STAGE_UP &&
           ep->channels[IWARP_SIDE].link.stage == IWARP_STAGE_UP;
}

/* ------------------------------------------------------------------ side channel (iwarp_side.c) */

/* Sends a message over the side channel, which has room. */
void rdmux_iwarp_side_say(struct iwarp_ep *ep, const struct iwarp_side *message);
/* Schedules a side message with the endpoint's credits, for the next poll or before the cq
 * sleeps. */
void rdmux_iwarp_talk_soon(struct iwarp_ep *ep);
/* Sends the scheduled messages of all endpoints. */
void rdmux_iwarp_talk_all(struct iwarp_cq *cq);
void rdmux_iwarp_leave_talkers(struct iwarp_ep *ep);
/* Answers the peer's recall, if there is one, with the unused credits. */
void rdmux_iwarp_give_back(struct iwarp_ep *ep);

/* ----------------------------------------------------------------------- teardown (iwarp_end.c) */

/* Fails the attempt to connect; the first failure counts. */
void rdmux_iwarp_connect_failed(struct iwarp_ep *ep, const char *format, ...) RDMUX_PRINTF(2, 3);
/* A connection has ended, not closed by this side. index: IWARP_DATA, IWARP_SIDE. */
void rdmux_iwarp_channel_ended(struct iwarp_ep *ep, uint8_t index);
/* verbs_transport.broke, .refuses */
void rdmux_iwarp_broke(struct verbs_queue *queue);
void rdmux_iwarp_refuses(struct verbs_queue *queue);
/* The peer's ENDED came. */
void rdmux_iwarp_end_heard(struct iwarp_ep *ep, const struct iwarp_side *message);

/* ------------------------------------------------------------ first messages (iwarp_greeting.c) */

/* One of the connections is established. */
void rdmux_iwarp_channel_up(struct iwarp_ep *ep);
/* Checks whether the connector's first read is among the work requests just retired. */
void rdmux_iwarp_look_at_proof(struct iwarp_ep *ep);
/* The peer's HELLO came. */
void rdmux_iwarp_greeted(struct iwarp_ep *ep);
/* The cq's timer: repeats the connector's read or HELLO if the answer is late. */
void rdmux_iwarp_nudge(struct iwarp_ep *ep);

/* -------------------------------------------------------------- connection manager (iwarp_cm.c) */

/* verbs_cm_id.heard of the connections. */
void rdmux_iwarp_channel_heard(struct verbs_cm_id *cm, const struct verbs_cm_event *heard);
/* Acceptor: listens on each of the device's addresses. [may sleep] */
enum rdmux_status rdmux_iwarp_listen(struct iwarp_ep *ep);
/* Connector: starts connecting. [may sleep] */
void rdmux_iwarp_dial(struct iwarp_ep *ep);
/* Connector: takes the results of rdma_connect() calls that have returned. */
void rdmux_iwarp_take_results(struct iwarp_ep *ep);
/* Abandons connecting: ends the calls that have not returned, and hands a queue pair and id that
 * the kernel still keeps to a deferred destroy. The remaining queue pairs can be destroyed then. */
void rdmux_iwarp_give_up(struct iwarp_ep *ep);
/* Stops listening and destroys the ids of both connections; the queue pairs are destroyed
 * already. */
void rdmux_iwarp_hang_up(struct iwarp_ep *ep);

/* ----------------------------------------------------------------- endpoints (iwarp_endpoint.c) */

enum rdmux_status rdmux_iwarp_ep_open(struct rdmux_provider_ep *base,
                                      const struct rdmux_provider_ep_attr *attr);
/* Allocates the flags that tell reads from other work requests of a queue. */
enum rdmux_status rdmux_iwarp_open_reads(struct verbs_queue *queue);
enum rdmux_status rdmux_iwarp_ep_describe(struct rdmux_provider_ep *base, uint8_t *out,
                                          size_t *size);
enum rdmux_status rdmux_iwarp_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                         size_t size);
enum rdmux_status rdmux_iwarp_ep_ping(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_iwarp_ep_quiesce(struct rdmux_provider_ep *base,
                                         struct rdmux_provider_counts *counts);
void rdmux_iwarp_ep_close(struct rdmux_provider_ep *base);

/* ---------------------------------------------------------------------- requests (iwarp_send.c) */

/* verbs_transport.start, .sent */
enum rdmux_status rdmux_iwarp_start(struct verbs_ep *base, struct rdmux_request *request);
/* Starts a read as work requests with one local piece each. */
enum rdmux_status rdmux_iwarp_start_read(struct verbs_ep *ep, struct rdmux_request *request);
/* Retires the oldest work requests of the data queue that are done. */
void rdmux_iwarp_retire(struct verbs_ep *ep, struct iwarp_order *order, enum rdmux_status status);
void rdmux_iwarp_sent(struct verbs_queue *queue, const struct ibv_wc *wc);

/* -------------------------------------------------------- the peer's messages (iwarp_receive.c) */

/* verbs_transport.received, .receive_failed, .side_message, .receives_posted */
void rdmux_iwarp_received(struct verbs_ep *base, struct rdmux_request *request,
                          const struct ibv_wc *wc);
void rdmux_iwarp_receive_failed(struct verbs_ep *base, struct rdmux_request *request,
                                const struct ibv_wc *wc);
void rdmux_iwarp_side_message(struct verbs_ep *base, const uint8_t *bytes);
void rdmux_iwarp_receives_posted(struct verbs_ep *base, size_t count);

/* ---------------------------------------------------------------- shared receives (iwarp_srq.c) */

enum rdmux_status rdmux_iwarp_srq_open(struct rdmux_provider_srq *base, uint32_t depth,
                                       uint32_t max_sge);
enum rdmux_status rdmux_iwarp_srq_post_recv(struct rdmux_provider_srq *base,
                                            struct rdmux_request *requests, size_t count);
/* This and the next do nothing for an endpoint without SRQ. */
void rdmux_iwarp_srq_join(struct iwarp_ep *ep);
void rdmux_iwarp_srq_leave(struct iwarp_ep *ep);
/* verbs_transport.srq_news */
void rdmux_iwarp_srq_news(struct verbs_ep *base);
/* A message of the endpoint's peer has used a receive. False: it had no credit. [data path] */
bool rdmux_iwarp_srq_use(struct iwarp_ep *ep);
/* Takes the peer's credit news. False: the peer gives back credits that it never had. [data
 * path] */
bool rdmux_iwarp_srq_hear(struct iwarp_ep *ep, const struct iwarp_credit_news *news);

/* ------------------------------------------------------- completion queues (iwarp_completion.c) */

enum rdmux_status rdmux_iwarp_cq_open(struct rdmux_provider_cq *base, uint32_t depth);
void rdmux_iwarp_cq_close(struct rdmux_provider_cq *base);
size_t rdmux_iwarp_poll(struct rdmux_provider_cq *base, size_t budget);
enum rdmux_status rdmux_iwarp_arm(struct rdmux_provider_cq *base);
/* Puts the endpoint on cq->connecting, whose timer advances it, and takes it off. */
void rdmux_iwarp_start_connecting(struct iwarp_ep *ep);
void rdmux_iwarp_stop_connecting(struct iwarp_ep *ep);

#endif
