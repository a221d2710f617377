/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * provider_rdmacm.h - connections to programs that are not rdmux, for providers that make them.
 * Part of provider.h. A provider without them leaves the member rdmacm of its table NULL.
 */
#ifndef RDMUX_PROVIDER_RDMACM_H
#define RDMUX_PROVIDER_RDMACM_H

#include <rdmux/provider.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * "rdma://HOST:PORT" is a connection to a program that knows nothing of rdmux. The fabric's own
 * connection manager makes it. It has no control channel, no negotiation and no proof. Its path has
 * the operations of the device, and no emulated ones.
 */

enum { RDMUX_RAW_KEY_SIZE = 12 }; /* bytes of struct rdmux_rdmacm_key as a description */

/* The local device of a connection, as probe names it. */
struct rdmux_rdmacm_place {
    char provider[RDMUX_NAME_MAX];
    char device[RDMUX_NAME_MAX];
    uint32_t port;
    uint32_t spare;
};

/* A connector's demands on the route to a peer. */
struct rdmux_rdmacm_wish {
    const struct sockaddr *peer;
    const struct sockaddr *local; /* NULL: any */
    uint32_t timeout_ms;
    uint32_t dscp; /* the value itself */
    uint32_t ecn;  /* the two bits themselves */
    uint32_t spare;
};

/* A connection that is about to be made: that of a connector, once the route is known, or one that
 * has arrived at a listener. The provider allocates it and embeds it as the first member of its own
 * struct. */
struct rdmux_rdmacm_call {
    const struct rdmux_rdmacm_ops *ops;
    struct rdmux_fabric *fabric;
    struct rdmux_rdmacm_place place;
    char local_address[RDMUX_ADDRESS_MAX];
    char peer_address[RDMUX_ADDRESS_MAX];
    /* Private data for the peer. The core sets it before ep_connect; it is valid until ep_connect
     * has returned something else than RDMUX_IN_PROGRESS. */
    const void *private_data;
    uint32_t private_length;
    /* Private data of the peer: of a request from the beginning, of a reply when ep_connect is
     * over. The fabric may have padded it with zeros. */
    uint32_t peer_private_length;
    uint8_t peer_private_data[RDMUX_PRIVATE_DATA_MAX];
    uint32_t reject_reason; /* the peer's number, 0 if it gave none */
    uint32_t spare;
    uint64_t lacks; /* RDMUX_CAP_* that the peer does not grant; known when ep_connect is over */
    void *core;     /* the core's own */
};

/* A listening address. The provider embeds it as the first member of its own struct. */
struct rdmux_rdmacm_listener {
    const struct rdmux_rdmacm_ops *ops;
    struct rdmux_fabric *fabric;
    char address[RDMUX_ADDRESS_MAX]; /* numeric, with the port in use */
};

/*
 * The operations of a provider that makes such connections. Its endpoints have a table of their
 * own, `endpoints`. There mr_describe writes a struct rdmux_rdmacm_key (the address in the first 8
 * bytes, the key in the next 4, both in host order), and remote_open reads one. ep_open takes the
 * call over, whatever it returns. ep_connect gets NULL and 0 from the first call on.
 * The core calls operations on a listener, and call_take, one at a time.
 */
struct rdmux_rdmacm_ops {
    uint32_t size; /* sizeof(struct rdmux_rdmacm_ops) */
    /* Most bytes of private data of a request, a reply and a rejection. */
    uint32_t request_private_max;
    uint32_t reply_private_max;
    uint32_t reject_private_max;
    uint64_t lacks; /* RDMUX_CAP_* that other endpoints on such a path have, but not these */
    const struct rdmux_provider_ops *endpoints;

    /* Finds the route to a peer. The route may lead over a device of another provider of the same
     * plug-in; the call then has the ops of that provider. RDMUX_NO_PATH: it leads over no device
     * of the plug-in. RDMUX_TIMED_OUT: the peer's address does not answer. The worker thread. [may
     * sleep] */
    enum rdmux_status (*dial)(struct rdmux_fabric *fabric, const struct rdmux_rdmacm_wish *wish,
                              struct rdmux_rdmacm_call **out);
    /* Listens at an address, for all devices of the plug-in. backlog: connections that wait to be
     * taken. Any thread. [may sleep] */
    enum rdmux_status (*listen)(struct rdmux_fabric *fabric, const struct sockaddr *address,
                                uint32_t backlog, struct rdmux_rdmacm_listener **out);
    /* Ends the listener and frees it. */
    void (*unlisten)(struct rdmux_rdmacm_listener *listener);
    /* Returns a descriptor that is readable while next has an event. It stays the provider's. */
    int (*listener_fd)(struct rdmux_rdmacm_listener *listener);
    /* Sets *out to the call of the listener's next event: a new call, or a call that next returned
     * before and that has ended since. Of the latter *gone is not 0, and the core calls call_drop.
     * RDMUX_AGAIN: there is no event. */
    enum rdmux_status (*next)(struct rdmux_rdmacm_listener *listener,
                              struct rdmux_rdmacm_call **out, int *gone);
    /* Takes a call away from its listener; the listener may end from now on. */
    enum rdmux_status (*call_take)(struct rdmux_rdmacm_call *call);
    /* Ends and frees a call that no endpoint took over. A request is rejected with the reason (0:
     * none) and the private data. Any thread; a call that still belongs to its listener as
     * call_take. */
    void (*call_drop)(struct rdmux_rdmacm_call *call, uint32_t reason, const void *private_data,
                      size_t length);
    /* Tells the peer that this side has ended; the endpoint's requests are done. When the peer has
     * agreed, the provider calls rdmux_provider_failed() with RDMUX_PEER_GONE. The cq's owner. */
    void (*hang_up)(struct rdmux_provider_ep *ep);
};

#ifdef __cplusplus
}
#endif

#endif
