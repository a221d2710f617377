/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdma:// endpoints ("rdma://HOST:PORT"): their peers do not speak rdmux. The device is the one
 * that the route to the peer uses. Nothing is negotiated or proved, and there is no control
 * channel. A set-up resolves the route (worker thread), opens the device (worker thread), opens the
 * provider's endpoint, posts the receives posted so far, and connects.
 */
#ifndef RDMUX_API_SETUP_RDMACM_ENDPOINT_H
#define RDMUX_API_SETUP_RDMACM_ENDPOINT_H

#include "api/core/ep.h"
#include "api/core/fabric.h"

#include <netdb.h>

/* Returns the part after "rdma://". NULL: address has another form. */
const char *rdmux_rdmacm_address(const char *address);
/* Refuses an rdma:// address, with RDMUX_UNSUPPORTED, in a call that only an rdmux peer can
 * answer. */
enum rdmux_status rdmux_rdmacm_refuse(const char *call, const char *address);
/* Returns the operations for rdma:// connections. NULL: no provider of the fabric has them. */
const struct rdmux_rdmacm_ops *rdmux_rdmacm_find(const struct rdmux_fabric *fabric);
/* The same for one provider, as far as its table goes. */
const struct rdmux_rdmacm_ops *rdmux_rdmacm_of(const struct rdmux_provider_ops *ops);
/* Refuses rdma:// on a fabric that authenticates, with RDMUX_AUTH: rdma:// peers cannot
 * authenticate. */
enum rdmux_status rdmux_rdmacm_refuse_auth(const char *call);
/* Returns RDMUX_NO_PATH with a text that tells why no provider has the operations. */
enum rdmux_status rdmux_rdmacm_refuse_absent(struct rdmux_fabric *fabric, const char *call);

/* Owner. Makes the endpoint's new set-up that of an rdma:// endpoint; attr as the caller passed
 * it. */
void rdmux_rdmacm_begin(struct rdmux_ep *ep, const struct rdmux_ep_attr *attr);
/* Owner: the peer's addresses are resolved; starts the search for the route. */
void rdmux_rdmacm_dial(struct rdmux_ep *ep);
/* Owner: accepts a peer's connection request; takes the call over. */
void rdmux_rdmacm_accept(struct rdmux_ep *ep, struct rdmux_rdmacm_call *call);
/* Owner: advances the set-up. */
void rdmux_rdmacm_step(struct rdmux_ep *ep);
/* Owner: the set-up ends; releases what it holds. */
void rdmux_rdmacm_abandon(struct rdmux_ep *ep);

#endif
