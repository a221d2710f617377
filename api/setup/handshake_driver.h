/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Set-up of endpoints, as connect, accept and adopt use it. All functions run in the cq's
 * domain. */
#ifndef RDMUX_API_SETUP_HANDSHAKE_DRIVER_H
#define RDMUX_API_SETUP_HANDSHAKE_DRIVER_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mail.h"

/* A further socket for a connection of cq. rdmux_ep_deliver_join() delivers it and owns the
 * socket. */
struct rdmux_join_mail {
    struct rdmux_mail mail;
    struct rdmux_fabric *fabric;
    struct rdmux_join join;
    int socket;
};
void rdmux_ep_deliver_join(struct rdmux_cq *cq, struct rdmux_mail *mail);

/* An introduced connection, as an accepting cq takes it over. */
struct rdmux_arrival {
    uint64_t id;
    /* of an rdma:// listener; socket is -1 then, and there are no bytes and no address */
    struct rdmux_rdmacm_call *call;
    int socket;
    struct rdmux_tls *tls; /* NULL: the fabric does not authenticate */
    uint8_t *received;     /* HELLO and OFFER, raw; released with rdmux_release() */
    size_t received_size;
    struct sockaddr_storage address;
    socklen_t address_length;
    struct rdmux_peer_quota *quota; /* set by rdmux_listener_take_any() only */
};

/* Creates the endpoint's set-up: offer, timeouts. timeout_ms as in rdmux.h: 0 means attr's
 * setup_timeout_ms. listener_paths: the listener's filter, NULL for a connector. On failure
 * rdmux_ep_dismantle() removes the set-up. */
enum rdmux_status rdmux_ep_setup_create(struct rdmux_ep *ep, const struct rdmux_ep_attr *attr,
                                        const char *listener_paths, int timeout_ms);
/* Checks attr.local as passed to call. RDMUX_INVALID: nothing on this machine has that name. */
enum rdmux_status rdmux_check_local(struct rdmux_fabric *fabric, const char *call,
                                    const char *local);
/* Fills the offer from an endpoint's attributes and the fabric. RDMUX_INVALID: attr.local names
 * nothing on this machine. */
enum rdmux_status rdmux_offer_fill(struct rdmux_fabric *fabric, const struct rdmux_ep_attr *attr,
                                   const char *listener_paths, struct rdmux_offer *offer);
/* Start a set-up. A later failure shows as the end of the endpoint's set-up. The functions take the
 * sockets in any case. */
enum rdmux_status rdmux_ep_start_connect(struct rdmux_ep *ep, const char *address);
enum rdmux_status rdmux_ep_start_accept(struct rdmux_ep *ep, struct rdmux_arrival *arrival);
enum rdmux_status rdmux_ep_start_adopt(struct rdmux_ep *ep, int socket, enum rdmux_role role);
/* Set-up has failed; ep->end.status and its text tell the cause. Everything posted so far ends,
 * and an event is raised if one was promised. */
void rdmux_ep_setup_failed(struct rdmux_ep *ep);
/* Describes the current stage of set-up in words. */
void rdmux_ep_setup_stage(const struct rdmux_ep *ep, char *out, size_t size);

/* Owner: the control channel is ready, or a timer is due. */
void rdmux_ep_control_ready(struct rdmux_ep *ep);
void rdmux_ep_timers(struct rdmux_ep *ep, uint64_t now_ns);
uint64_t rdmux_ep_deadline(const struct rdmux_ep *ep);
/* Owner: a provider made progress while the endpoint is in set-up. */
void rdmux_ep_setup_step(struct rdmux_ep *ep);
void rdmux_ep_setup_destroy(struct rdmux_ep *ep);

#endif
