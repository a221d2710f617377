/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Objects of the ofi adapter: lanes over libfabric's messages. */
#ifndef RDMUX_OFI_INTERNAL_H
#define RDMUX_OFI_INTERNAL_H

#include "adapters/framed/framed.h"
#include "adapters/ofi/ofi_library.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

enum {
    OFI_MESSAGE_MAX = 32 << 10,
    OFI_WINDOW = 32,
    OFI_RECEIVES = OFI_WINDOW + FRAMED_UNCOUNTED,
    OFI_SENDS = OFI_WINDOW + FRAMED_UNCOUNTED,
    OFI_COPIES = 8, /* bodies that are copied before they are sent */
    OFI_CQ_SIZE = 8192,
    OFI_BELL_MAX = 2, /* bytes of a bell's port */
    OFI_ADDRESS_MAX = FRAMED_ADDRESS_MAX - 8 - OFI_BELL_MAX,
};

struct ofi_domain {
    struct framed_domain base;
    const struct ofi_library *library;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    bool is_connected_kind; /* FI_EP_MSG */
    bool installs_handlers; /* of signals, when it opens an endpoint */
};

struct ofi_cq {
    struct framed_cq base;
    struct fid_cq *cq;
    struct fid_eq *eq; /* NULL without connections */
    struct rdmux_list eps;
    struct rdmux_list slabs; /* of ended endpoints, until the cq names none of their messages */
    uint32_t connecting;     /* endpoints that wait for an event */
    uint32_t quiet_polls;    /* since the events were read */
    bool was_armed;
    /* The library cannot wake a sleeper: its peers ring here after each message. -1: not needed. */
    int bell;
    bool is_event_due; /* a completion failed: the events may have the cause */
};

enum ofi_kind {
    OFI_SEND,
    OFI_RECEIVE,
    OFI_SEND_COPY,
    OFI_SEND_BODY,
    OFI_RECEIVE_BODY,
};

/* One message, as libfabric's context of the operation. */
struct ofi_message {
    struct fi_context2 context; /* first: the library may write here */
    struct ofi_slab *slab;
    struct ofi_message *next; /* free for sending, not posted, or posted after this one */
    uint8_t *bytes;           /* its memory; NULL: a body in memory of the program */
    size_t length;            /* of a receive: bytes that arrived */
    enum ofi_kind kind;
    bool has_arrived;
};

/* The messages of an endpoint. They outlive it by the completions that still name them. */
struct ofi_slab {
    struct rdmux_list buried; /* of the cq */
    struct ofi_ep *ep;        /* NULL: it has ended */
    struct fid_mr *mr;        /* NULL: the library needs no registration */
    void *desc;
    struct ofi_message *free_sends;
    struct ofi_message *unposted; /* receives that the library did not take */
    /* Receives in the order in which they were posted, which is that of the messages. Completions
     * may come in another one (ofi_rxm: a long message completes behind short ones after it). */
    struct ofi_message *oldest;
    struct ofi_message *newest;
    uint32_t message_max;
    /* With bodies one receive is posted at a time: what belongs behind it is not known before. */
    bool has_bodies;
    struct ofi_message *kept; /* the framed part still reads it */
    uint8_t *collected;       /* memory for bodies, see receive_body */
    uint8_t *copied;          /* that of the copies: OFI_COPIES of FRAMED_PART_MAX */
    struct ofi_message *free_copies;
    uint32_t bodies_sent; /* so far; the next one's context is at this number */
    uint32_t bodies_received;
    struct ofi_message bodies_out[FRAMED_BODIES];
    struct ofi_message bodies_in[FRAMED_EXPECTED];
    struct ofi_message copies[OFI_COPIES];
    struct ofi_message messages[OFI_RECEIVES + OFI_SENDS]; /* the receives first */
};

enum ofi_state {
    OFI_OPEN,
    OFI_WAITING,   /* a connection is under way */
    OFI_CONNECTED, /* messages can be sent */
    OFI_STOPPED,
};

struct ofi_ep {
    struct framed_ep base;
    struct rdmux_list link; /* of the cq */
    enum ofi_state state;
    bool is_acceptor;
    bool is_shut;            /* the connection has ended; what came before is delivered first */
    const char *failed_call; /* by which this was seen; NULL: the peer ended it */
    int64_t failure;
    struct fid_pep *pep;
    struct fid_ep *ep;
    struct fid_av *av;
    fi_addr_t peer;
    struct sockaddr_in bell; /* the peer's; port 0: it needs none */
    struct fi_info *request; /* a connection that waits for ep_connect */
    struct ofi_slab *slab;
    size_t inject_max;
};

static inline struct ofi_domain *ofi_domain_of(const struct ofi_ep *ep)
{
    return (struct ofi_domain *)ep->base.base.cq->domain;
}

static inline struct ofi_cq *ofi_cq_of(const struct ofi_ep *ep)
{
    return (struct ofi_cq *)ep->base.base.cq;
}

/* Messages without connections, made of the connections of another provider. */
static inline bool ofi_is_rxm(const struct fi_info *info)
{
    return strstr(info->fabric_attr->prov_name, ";ofi_rxm") != NULL;
}

/* Sets the error text and returns the status that belongs to libfabric's result. */
enum rdmux_status rdmux_ofi_error(const struct ofi_domain *domain, const char *call, int64_t result);
/* The lane has failed. */
void rdmux_ofi_fail(struct ofi_ep *ep, enum rdmux_status status, const char *call, int64_t result);
/* The lane takes no more messages. It fails at the next poll that finds no message of the peer. */
void rdmux_ofi_shut(struct ofi_ep *ep, const char *call, int64_t result);

/* The lane's operations, see struct framed_lane_ops. */
enum rdmux_status rdmux_ofi_cq_open(struct framed_cq *cq);
void rdmux_ofi_cq_close(struct framed_cq *base);
size_t rdmux_ofi_progress(struct framed_cq *base, size_t budget);
enum rdmux_status rdmux_ofi_arm(struct framed_cq *base);
enum rdmux_status rdmux_ofi_open(struct framed_ep *base);
enum rdmux_status rdmux_ofi_describe(struct framed_ep *base, uint8_t *out, size_t *size);
enum rdmux_status rdmux_ofi_connect(struct framed_ep *ep, const uint8_t *peer, size_t size);
enum rdmux_status rdmux_ofi_stop(struct framed_ep *base);
void rdmux_ofi_close(struct framed_ep *base);
uint8_t *rdmux_ofi_take(struct framed_ep *base);
uint8_t *rdmux_ofi_take_copy(struct framed_ep *base);
enum rdmux_status rdmux_ofi_send(struct framed_ep *base, uint8_t *bytes, uint32_t length);
enum rdmux_status rdmux_ofi_send_body(struct framed_ep *base, const struct iovec *pieces,
                                      size_t count);
enum rdmux_status rdmux_ofi_receive_body(struct framed_ep *base, const struct iovec *pieces,
                                         size_t count, size_t length);

/* Bells: sockets by which a peer of the same host wakes a sleeping cq. */
enum rdmux_status rdmux_ofi_bell_open(struct ofi_cq *cq);
/* Writes the bell's port, and its length before it (1 byte); returns the bytes used. */
size_t rdmux_ofi_bell_describe(const struct ofi_cq *cq, uint8_t *out);
/* Reads the peer's. False: it is none. */
bool rdmux_ofi_bell_learn(struct ofi_ep *ep, const uint8_t *in, size_t size);
void rdmux_ofi_bell_ring(struct ofi_ep *ep);
/* Silences our bell. Returns whether it had rung. */
bool rdmux_ofi_bell_rang(struct ofi_cq *cq);

/* Keeps the descriptors that libfabric opened for an endpoint from programs that this one
 * starts. */
void rdmux_ofi_close_on_exec(struct fid *fid);

/* Messages. */
enum rdmux_status rdmux_ofi_slab_create(struct ofi_ep *ep);
/* Returns the oldest receive if its message has arrived, which is then the next to be handled;
 * NULL: there is none. */
struct ofi_message *rdmux_ofi_slab_next(struct ofi_slab *slab);
/* Posts the receives that are not posted, and may be. */
void rdmux_ofi_slab_post(struct ofi_slab *slab);
/* The endpoint has ended: frees the slab as soon as the cq names none of its messages. */
void rdmux_ofi_slab_bury(struct ofi_cq *cq, struct ofi_slab *slab);
/* The cq is empty: frees what is buried. */
void rdmux_ofi_slab_free_buried(struct ofi_cq *cq);
static inline void ofi_message_push(struct ofi_message **list, struct ofi_message *message)
{
    message->next = *list;
    *list = message;
}

/* Handles what has happened to connections, up to a bound. Returns the number of events. */
size_t rdmux_ofi_read_events(struct ofi_cq *cq);
/* An event of a connection: a request, its success, its end. */
void rdmux_ofi_event(struct ofi_cq *cq, uint32_t event, const struct fi_eq_cm_entry *entry,
                     size_t size);

#endif
