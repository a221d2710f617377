/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The provider ucx: lanes (adapters/framed/framed.h) over UCX's active messages.
 *
 *   struct ucx_domain   a UCP context
 *   struct ucx_cq       a UCP worker
 *   struct ucx_peer     a UCP endpoint: to one worker of a peer
 *   struct ucx_link     a lane: one endpoint of rdmux over a ucx_peer
 *
 * UCX pairs the endpoints between two workers by the order in which either side creates them. An
 * attempt to connect that only one side has begun would shift that order for good, so there is one
 * UCP endpoint between two workers, whatever the number of rdmux's endpoints. A message begins with
 * the number of the link that it is for. The UCP endpoint stays until it fails or its worker ends.
 *
 * Threads: all of a cq belongs to the owner of that cq. UCX's own thread calls nothing here but the
 * handler of UCX's log.
 */
#ifndef RDMUX_ADAPTERS_UCX_INTERNAL_H
#define RDMUX_ADAPTERS_UCX_INTERNAL_H

#include "adapters/framed/framed.h"
#include "adapters/ucx/ucx_library.h"
#include "api/base/list.h"

#include <rdmux/provider.h>

#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* Bytes of a lane's message. UCX's tcp takes 64 KiB with its headers in one piece. */
    UCX_MESSAGE_MAX = 60 * 1024,
    UCX_WINDOW = 16,        /* the peer's messages under way */
    UCX_ACTIVE_MESSAGE = 0, /* UCX's number for the handler of all messages */
    UCX_ADDRESS_HEAD = 16,  /* bytes of connection data before the worker's address */
};

struct ucx_domain {
    struct framed_domain base;
    const struct ucx_calls *calls;
    ucp_context_h context;
    bool has_wish; /* the user named transports */
};

/* Bytes that begin what travels: padding, and the number of the peer's link in this host's byte
 * order. UCX's tcp puts 13 bytes before it, so with the padding the bytes of a message are aligned
 * in the buffer that UCX has received them into. */
enum { UCX_PADDING = 3, UCX_HEAD_SIZE = UCX_PADDING + sizeof(uint64_t) };

/* A message to the peer. From wire.padding on it travels. */
struct ucx_message {
    struct ucx_message *next; /* free */
    struct ucx_link *link;
    struct {
        uint8_t unused[sizeof(uint64_t) - UCX_PADDING];
        uint8_t padding[UCX_PADDING];
        uint64_t number;
        alignas(8) uint8_t bytes[UCX_MESSAGE_MAX];
    } wire;
};

struct ucx_peer {
    struct rdmux_list node; /* of ucx_cq.peers, or of ending */
    struct rdmux_list links;
    struct ucx_cq *cq;
    ucp_ep_h ep;        /* NULL: closed */
    void *closing;      /* the request of its close */
    uint32_t under_way; /* messages that UCX has */
    enum rdmux_status failure;
    char text[RDMUX_TEXT_MAX]; /* of failure */
    size_t address_length;
    uint8_t address[];
};

/* It outlives its endpoint while UCX has messages of it. */
struct ucx_link {
    struct rdmux_list node; /* of ucx_peer.links, or of ucx_cq.orphans; zeroed: of none */
    struct framed_ep *ep;   /* NULL: the endpoint is over */
    struct ucx_cq *cq;
    struct ucx_peer *peer; /* NULL: not connected */
    uint64_t number;       /* messages to this link begin with it */
    uint64_t peer_number;
    uint32_t under_way;
    bool is_orphan; /* closed, and freed when nothing is under way */
    struct ucx_message *free;
    struct ucx_message messages[UCX_WINDOW + FRAMED_UNCOUNTED];
};

struct ucx_cq {
    struct framed_cq base;
    const struct ucx_calls *calls;
    struct rdmux_fabric *fabric;
    ucp_worker_h worker;
    bool looks_after_arm;
    uint8_t address[FRAMED_ADDRESS_MAX];
    size_t address_length;
    struct rdmux_list peers;
    struct rdmux_list ending; /* peers that failed */
    struct rdmux_list orphans;
    /* Links by the low half of their numbers. */
    struct ucx_link **links;
    uint32_t link_room;
    size_t work;                                 /* of the running call of progress */
    alignas(8) uint8_t aligned[UCX_MESSAGE_MAX]; /* a message that UCX delivers unaligned */
};

struct ucx_ep {
    struct framed_ep base;
    struct ucx_link *link;
};

static inline struct ucx_cq *rdmux_ucx_cq_of(struct framed_cq *cq)
{
    return (struct ucx_cq *)cq;
}
static inline struct ucx_ep *rdmux_ucx_ep_of(struct framed_ep *ep)
{
    return (struct ucx_ep *)ep;
}

/* UCX's threads inherit the mask of the thread that creates them. They must take no signal of the
 * program, so all are blocked meanwhile. */
static inline void rdmux_ucx_block_signals(sigset_t *before)
{
    sigset_t all;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, before);
}
static inline void rdmux_ucx_restore_signals(const sigset_t *before)
{
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* Sets the error text of a call of UCX that failed, and returns its status. */
enum rdmux_status rdmux_ucx_error(const struct ucx_calls *calls, const char *what,
                                  ucs_status_t status);

/* The worker: ucx_worker.c */
enum rdmux_status rdmux_ucx_cq_open(struct framed_cq *base);
void rdmux_ucx_cq_close(struct framed_cq *base);
size_t rdmux_ucx_progress(struct framed_cq *base, size_t budget);
enum rdmux_status rdmux_ucx_arm(struct framed_cq *base);

/* Peers: ucx_peer.c */

/* Returns the peer with this address in *out, connected anew if the cq does not know it. [may
 * sleep] */
enum rdmux_status rdmux_ucx_peer_get(struct ucx_cq *cq, const uint8_t *address, size_t length,
                                     struct ucx_peer **out);
/* The peer has failed: all its endpoints fail. It ends with the next calls of
 * rdmux_ucx_peers_end(). */
void rdmux_ucx_peer_fail(struct ucx_peer *peer, ucs_status_t status);
/* Closes and frees failed peers, as far as that is possible without waiting. */
void rdmux_ucx_peers_end(struct ucx_cq *cq);
/* Closes all peers. No link is left but orphans. */
void rdmux_ucx_peers_close(struct ucx_cq *cq);
/* Frees the peers that UCX had not closed. The worker is gone. */
void rdmux_ucx_peers_free(struct ucx_cq *cq);

/* Links: ucx_link.c */
extern const struct framed_lane_ops rdmux_ucx_lane;

/* Returns the link with this number, NULL if there is none. [data path] */
static inline struct ucx_link *rdmux_ucx_link_find(const struct ucx_cq *cq, uint64_t number)
{
    const uint32_t place = (uint32_t)number;
    struct ucx_link *link = place < cq->link_room ? cq->links[place] : NULL;
    return link != NULL && link->number == number ? link : NULL;
}
void rdmux_ucx_orphans_free(struct ucx_cq *cq);

/* The provider: ucx_provider.c */
extern const struct rdmux_provider_ops rdmux_ucx_provider;

#endif
