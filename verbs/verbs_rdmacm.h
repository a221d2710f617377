/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdma:// endpoints: connections to programs that are not rdmux, made by the connection manager
 * (struct rdmux_rdmacm_ops of provider.h). Domain, regions, completion queues and queue pairs are
 * the same as for other endpoints. There is no side channel, and messages hold nothing of the
 * library's own.
 */
#ifndef RDMUX_VERBS_RDMACM_H
#define RDMUX_VERBS_RDMACM_H

#include "verbs/verbs_cm.h"
#include "verbs/verbs_completion.h"
#include "verbs/verbs_endpoint.h"
#include "verbs/verbs_memory.h"
#include "verbs/verbs_receive.h"
#include "verbs/verbs_send.h"
#include "verbs/verbs_transport.h"

struct verbs_rdmacm_listener;
struct verbs_rdmacm_ep;

/* Returns the operations of a fabric, VERBS_FABRIC_*, whose device a connection leads over. NULL:
 * the fabric is unknown. */
typedef const struct rdmux_rdmacm_ops *verbs_rdmacm_ops_fn(uint8_t fabric);

/* A connection, from its resolved path or its received request to its end. */
struct verbs_rdmacm_call {
    struct rdmux_rdmacm_call base;
    struct verbs_cm_id cm;
    /* its own, after its listener's and before its cq's; or NULL */
    struct rdma_event_channel *channel;
    struct verbs_rdmacm_listener *listener; /* the listener at which the request waits; or NULL */
    struct verbs_rdmacm_ep *ep;
    struct verbs_rdmacm_call *news_next; /* listener->news */
    verbs_rdmacm_ops_fn *ops_of;
    uint8_t fabric; /* VERBS_FABRIC_*, from the device on */
    bool has_come;  /* a request of a peer */
    bool is_gone;   /* the peer no longer waits */
    bool is_told;   /* its listener has reported it */
    uint8_t asked;  /* of a request: reads that the peer has in flight */
    uint8_t answered;
    /* Last event while the path is being resolved. */
    bool is_heard;
    enum rdma_cm_event_type heard;
    int heard_status;
};

/* In this order; each may be followed by any later one. */
enum verbs_rdmacm_stage {
    VERBS_RDMACM_OPEN,
    VERBS_RDMACM_CONNECTING, /* connect or accept was called */
    VERBS_RDMACM_UP,
    VERBS_RDMACM_OVER, /* failed, ended or closed */
};

struct verbs_rdmacm_ep {
    struct verbs_ep base;
    struct verbs_rdmacm_call *call;
    enum verbs_rdmacm_stage stage;
    bool has_hung_up;         /* this end has disconnected */
    bool is_connecting;       /* counted in cq->cm_connecting */
    enum rdmux_status status; /* why connecting failed */
    char text[RDMUX_TEXT_MAX];
    uint32_t tries; /* connect attempts, each from another port */
};

static inline struct verbs_rdmacm_ep *verbs_rdmacm_of(struct verbs_ep *ep)
{
    return (struct verbs_rdmacm_ep *)ep;
}

/* Operations of the endpoint tables. */
enum rdmux_status rdmux_verbs_rdmacm_ep_open(const struct verbs_transport *transport,
                                             struct rdmux_provider_ep *base,
                                             const struct rdmux_provider_ep_attr *attr);
enum rdmux_status rdmux_verbs_rdmacm_ep_describe(struct rdmux_provider_ep *base, uint8_t *out,
                                                 size_t *size);
enum rdmux_status rdmux_verbs_rdmacm_ep_connect(struct rdmux_provider_ep *base, const uint8_t *peer,
                                                size_t size);
void rdmux_verbs_rdmacm_ep_close(struct rdmux_provider_ep *base);
enum rdmux_status rdmux_verbs_rdmacm_mr_describe(struct rdmux_provider_mr *base,
                                                 struct rdmux_provider_ep *ep, uint8_t *out,
                                                 size_t *size);
enum rdmux_status rdmux_verbs_rdmacm_remote_open(struct rdmux_provider_remote *base,
                                                 const uint8_t *description, size_t size);
/* Frees a connection; rejects it first if it is a waiting request that no endpoint took over. */
void rdmux_verbs_rdmacm_call_free(struct verbs_rdmacm_call *call);

/* Operations of verbs_transport. */
enum rdmux_status rdmux_verbs_rdmacm_start(struct verbs_ep *ep, struct rdmux_request *request);
bool rdmux_verbs_rdmacm_holds(struct verbs_ep *ep, char *text, size_t size);
void rdmux_verbs_rdmacm_receive_failed(struct verbs_ep *ep, struct rdmux_request *request,
                                       const struct ibv_wc *wc);
/* Aims the flush read at the last byte that the request covers: no other memory of the peer is
 * known. It serves PLACED, follows a doubted read, and replaces a read of no bytes. */
void rdmux_verbs_rdmacm_aim(struct verbs_ep *ep, const struct rdmux_request *request);

/* verbs_rdmacm_call.c: operations of rdmux_rdmacm_ops. The connections of dial and listen have the
 * operations that ops_of names; the listener has none yet. */
enum rdmux_status rdmux_verbs_rdmacm_dial(struct rdmux_fabric *fabric,
                                          const struct rdmux_rdmacm_wish *wish,
                                          verbs_rdmacm_ops_fn *ops_of,
                                          struct rdmux_rdmacm_call **out);
enum rdmux_status rdmux_verbs_rdmacm_listen(struct rdmux_fabric *fabric,
                                            const struct sockaddr *address, uint32_t backlog,
                                            verbs_rdmacm_ops_fn *ops_of,
                                            struct rdmux_rdmacm_listener **out);
void rdmux_verbs_rdmacm_unlisten(struct rdmux_rdmacm_listener *base);
int rdmux_verbs_rdmacm_listener_fd(struct rdmux_rdmacm_listener *base);
enum rdmux_status rdmux_verbs_rdmacm_next(struct rdmux_rdmacm_listener *base,
                                          struct rdmux_rdmacm_call **out, int *gone);
enum rdmux_status rdmux_verbs_rdmacm_call_take(struct rdmux_rdmacm_call *base);
void rdmux_verbs_rdmacm_call_drop(struct rdmux_rdmacm_call *base, uint32_t reason,
                                  const void *private_data, size_t length);
void rdmux_verbs_rdmacm_hang_up(struct rdmux_provider_ep *base);
/* Resolves the path to the same peer again, from another local port. [may sleep] */
enum rdmux_status rdmux_verbs_rdmacm_redial(struct verbs_rdmacm_call *call,
                                            const struct rdmux_provider_ep_attr *attr);

enum {
    VERBS_RDMACM_REASON_SIZE = 4, /* bytes of a reject reason, if there is no private data */
    /* Maximum bytes of private data, rdma_cma.h and rdma_connect(3). */
    VERBS_RDMACM_REQUEST_MAX = 56,
    VERBS_RDMACM_REPLY_MAX = 196,
    VERBS_RDMACM_REJECT_MAX = 148,
};

/* clang-format off */
/* Endpoint tables: the core uses only their endpoint operations; devices, regions and completion
 * queues are in the provider's own table. */
#define VERBS_RDMACM_TABLE                                                                          \
    .abi = RDMUX_PROVIDER_ABI,                                                                     \
    .size = sizeof(struct rdmux_provider_ops),                                                     \
    .flags = RDMUX_PROVIDER_NATIVE_FENCE | RDMUX_PROVIDER_LOCAL_KEYS | RDMUX_PROVIDER_DEVICE_SRQ,  \
    .remote_size = sizeof(struct verbs_remote),                                                    \
    .mr_describe = rdmux_verbs_rdmacm_mr_describe,                                                  \
    .poll = rdmux_verbs_poll,                                                                      \
    .ep_describe = rdmux_verbs_rdmacm_ep_describe,                                                  \
    .ep_connect = rdmux_verbs_rdmacm_ep_connect,                                                    \
    .ep_join = rdmux_unsupported_ep_join,                                                          \
    .ep_control = rdmux_unsupported_ep_control,                                                    \
    .ep_ping = rdmux_unsupported_ep_ping,                                                          \
    .ep_quiesce = rdmux_verbs_ep_quiesce,                                                          \
    .ep_close = rdmux_verbs_rdmacm_ep_close,                                                        \
    .post = rdmux_verbs_post,                                                                      \
    .doorbell = rdmux_verbs_doorbell,                                                              \
    .post_recv = rdmux_verbs_post_recv,                                                            \
    .remote_open = rdmux_verbs_rdmacm_remote_open,                                                  \
    .remote_close = rdmux_verbs_remote_close
/* clang-format on */

extern const struct rdmux_rdmacm_ops rdmux_ib_rdmacm;
extern const struct rdmux_rdmacm_ops rdmux_roce_rdmacm;
extern const struct rdmux_rdmacm_ops rdmux_iwarp_rdmacm;
/* iwarp/iwarp_rdmacm.c */
extern const struct rdmux_provider_ops rdmux_iwarp_rdmacm_endpoints;

#endif
