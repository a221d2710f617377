/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Common part of the providers on libibverbs, and struct verbs_transport, the fabric-specific part.
 * ib and roce use all of the common part; iwarp has its own way to connect and its own message
 * format on the wire. docs/VERBS.md has the design.
 *
 * Threads. A cq with its endpoints, remotes and SRQs belongs to one thread at a time. Any thread
 * may use a domain and its regions. The reader of a device's asynchronous events touches only the
 * _Atomic fields of a cq, an endpoint and a queue, and the cq's eventfd.
 */
#ifndef RDMUX_VERBS_TRANSPORT_H
#define RDMUX_VERBS_TRANSPORT_H

#include <rdmux/provider.h>

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VERBS_FLUSH_SIZE = 8, /* bytes of the flush word */
};

struct verbs_ep;
struct verbs_queue;
struct verbs_whereabouts;

/* One port of an opened device. */
struct verbs_port {
    struct rdmux_fabric *fabric;
    struct ibv_context *context;
    const char *device;
    uint8_t number;
    struct ibv_device_attr device_attr;
    struct ibv_port_attr attr;
};

/* Route of a queue pair's connection, as ibv_modify_qp(3) takes it. */
struct verbs_route {
    struct ibv_ah_attr address;
    uint16_t pkey_index;
};

/* Fabric-specific part of a provider. Every field is set, unless its comment says NULL. */
struct verbs_transport {
    const char *name;        /* the provider's name */
    const char *fabric_name; /* the fabric's common name */
    uint8_t fabric;          /* VERBS_FABRIC_* */
    uint32_t latency_ns;     /* half a round trip of a small message; ranks the path */
    /* bytes of the transport's header before each message, see verbs_headers */
    uint32_t header_size;
    uint32_t request_slots; /* most work requests of one request other than a read */
    uint32_t read_slots;    /* work requests of a read, for each list that the device takes */
    int sink_access;        /* IBV_ACCESS_* of a read's local target besides local write */
    bool lacks_side;        /* endpoints have no side channel */
    uint32_t side_own;      /* most in-flight side messages of the transport's own, per end */
    uint32_t flush_size;    /* bytes that a flush reads; 0: VERBS_FLUSH_SIZE */
    /* peers lend no flush word. A flush reads the request's own remote, and only work requests of
     * the program are posted. */
    bool lacks_word;

    /* Transports of endpoints that rdma_cm connects (verbs_rdmacm.h) leave probe_port, way_to_self,
     * locate and route NULL. */

    /* Status of an endpoint whose device refused a request, not an access, of the peer
     * (IBV_EVENT_QP_REQ_ERR). */
    enum rdmux_status request_refused;

    /* Completes the path of an active port of this fabric: address and reach, or the reason why the
     * port cannot be used. [may sleep] */
    void (*probe_port)(const struct verbs_port *port, struct rdmux_local_path *out);

    /* Gives the route of an active port to itself, for the device self-test (verbs_self_test.h).
     * False: there is none now. NULL: ports of this fabric are not tested. [may sleep] */
    bool (*way_to_self)(const struct verbs_port *port, struct verbs_route *out);

    /* Reports where the endpoint can be reached now, and fills in ep->gid_index and ep->pkey_index.
     * [may sleep] */
    enum rdmux_status (*locate)(struct verbs_ep *ep, struct verbs_whereabouts *out);
    /* Gives the route from ep->ours to ep->theirs. [may sleep] */
    enum rdmux_status (*route)(struct verbs_ep *ep, struct verbs_route *out);
    /* Checks after a change of the device's addresses whether the endpoint's route still holds.
     * False: *text has the reason. */
    bool (*holds)(struct verbs_ep *ep, char *text, size_t size);

    /* Adds a request to ep's chain. RDMUX_AGAIN: there is no room, or the request waits for earlier
     * ones; rdmux_verbs_resume() is called when the wait is over. Any other failure ends the
     * endpoint. [data path] */
    enum rdmux_status (*start)(struct verbs_ep *ep, struct rdmux_request *request);
    /* Handles the completion, good or failed, of a queue's work request. [data path] */
    void (*sent)(struct verbs_queue *queue, const struct ibv_wc *wc);
    /* Handles a message in a receive of the endpoint. [data path] */
    void (*received)(struct verbs_ep *ep, struct rdmux_request *request, const struct ibv_wc *wc);
    /* Counts receives that the device has accepted for the endpoint. NULL: not counted. [data
     * path] */
    void (*receives_posted)(struct verbs_ep *ep, size_t count);
    /* The endpoint was paused or continues, or may have been on its previous path. NULL: paths of
     * this fabric cannot pause. [data path] */
    void (*srq_news)(struct verbs_ep *ep);
    /* Handles a failed receive. request: NULL for a receive of the side channel. */
    void (*receive_failed)(struct verbs_ep *ep, struct rdmux_request *request,
                           const struct ibv_wc *wc);
    /* Handles the device's report that the queue pair has failed. */
    void (*broke)(struct verbs_queue *queue);
    /* Tells the peer what still can be told after the device refused an access or a request of the
     * peer; runs before the endpoint fails. NULL: nothing to tell. */
    void (*refuses)(struct verbs_queue *queue);
    /* Handles a side message of the transport's own: VERBS_SIDE_SIZE bytes, the first one at least
     * VERBS_SIDE_OWN. */
    void (*side_message)(struct verbs_ep *ep, const uint8_t *message);
};

#endif
