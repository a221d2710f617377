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
 * "rdma://HOST:PORT": a connection to a program that knows nothing of rdmux, made by the fabric's
 * own connection manager. There is no control channel, nothing is negotiated or proved, and the
 * path has the operations of the device, no emulated ones.
 */

enum { RDMUX_RAW_KEY_SIZE = 12 }; /* bytes of struct rdmux_rdmacm_key as a description */

/* Where a connection goes, or comes from: the local device, as probe names it. */
struct rdmux_rdmacm_place {
    char provider[RDMUX_NAME_MAX];
    char device[RDMUX_NAME_MAX];
    uint32_t port;
    uint32_t spare;
};

/* What a connector wishes of the way. */
struct rdmux_rdmacm_wish {
    const struct sockaddr *peer;
    const struct sockaddr *local; /* NULL: any */
    uint32_t timeout_ms;
    uint32_t dscp; /* the value itself */
    uint32_t ecn;  /* the two bits themselves */
    uint32_t spare;
};

/* A connection that is about to be made: the connector's, once the way is known, or one that has
 * come to a listener. The provider makes it and embeds it as the first member of its own. */
struct rdmux_rdmacm_call {
    const struct rdmux_rdmacm_ops *ops;
    struct rdmux_fabric *fabric;
    struct rdmux_rdmacm_place place;
    char local_address[RDMUX_ADDRESS_MAX];
    char peer_address[RDMUX_ADDRESS_MAX];
    /* For the peer; set by the core before ep_connect, valid until that is over. */
    const void *private_data;
    uint32_t private_length;
    /* The peer's: of a request from the beginning, of a reply when ep_connect is over. The fabric
     * may have filled it up with zeros. */
    uint32_t peer_private_length;
    uint8_t peer_private_data[RDMUX_PRIVATE_DATA_MAX];
    uint32_t reject_reason; /* that of the peer, if it has told one */
    uint32_t spare;
    uint64_t lacks; /* RDMUX_CAP_* that the peer does not grant; known when ep_connect is over */
    void *core;     /* the core's own */
};

/* An address that is listened at; first member of the provider's own. */
struct rdmux_rdmacm_listener {
    const struct rdmux_rdmacm_ops *ops;
    struct rdmux_fabric *fabric;
    char address[RDMUX_ADDRESS_MAX]; /* numeric, with the port that was picked */
};

/*
 * What a provider has that makes such connections. Its endpoints have a table of their own, in
 * which mr_describe writes a struct rdmux_rdmacm_key (the address in the first 8 bytes, the key in
 * the next 4, both in host order) and remote_open reads one. ep_open takes the call over, whatever
 * it returns; ep_connect gets NULL and 0 from the beginning.
 * Operations on a listener, and call_take, are made one at a time.
 */
struct rdmux_rdmacm_ops {
    uint32_t size; /* sizeof(struct rdmux_rdmacm_ops) */
    /* Bytes of private data that a request, a reply and a rejection have room for. */
    uint32_t request_private_max;
    uint32_t reply_private_max;
    uint32_t reject_private_max;
    uint64_t lacks; /* RDMUX_CAP_* that a path has otherwise, but not here */
    const struct rdmux_provider_ops *endpoints;

    /* Finds the way to a peer. It may lead over a device of another provider of the same plug-in;
     * then the call has that one's ops. RDMUX_NO_PATH: over none that it knows; RDMUX_TIMED_OUT:
     * the peer's address does not answer. The worker. [may sleep] */
    enum rdmux_status (*dial)(struct rdmux_fabric *fabric, const struct rdmux_rdmacm_wish *wish,
                              struct rdmux_rdmacm_call **out);
    /* Listens at an address, for all devices of the plug-in. Any thread. [may sleep] */
    enum rdmux_status (*listen)(struct rdmux_fabric *fabric, const struct sockaddr *address,
                                uint32_t backlog, struct rdmux_rdmacm_listener **out);
    void (*unlisten)(struct rdmux_rdmacm_listener *listener);
    /* Readable when there is something for next. */
    int (*listener_fd)(struct rdmux_rdmacm_listener *listener);
    /* Returns the listener's next event: a new call, or a call that next returned before and that
     * ended since (then *gone is true; call_drop it). RDMUX_AGAIN: nothing now. */
    enum rdmux_status (*next)(struct rdmux_rdmacm_listener *listener,
                              struct rdmux_rdmacm_call **out, int *gone);
    /* Takes a call away from its listener, which may be gone from now on. */
    enum rdmux_status (*call_take)(struct rdmux_rdmacm_call *call);
    /* Ends a call that no endpoint took over; a request is rejected, with reason (0: none) and
     * private data. Any thread, for one that is its listener's as call_take. */
    void (*call_drop)(struct rdmux_rdmacm_call *call, uint32_t reason, const void *private_data,
                      size_t length);
    /* The endpoint's requests are done: tells the peer that this is the end. When the peer has
     * agreed, rdmux_provider_failed() says RDMUX_PEER_GONE. */
    void (*hang_up)(struct rdmux_provider_ep *ep);
};

#ifdef __cplusplus
}
#endif

#endif
