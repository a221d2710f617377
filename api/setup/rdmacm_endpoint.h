/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Plain endpoints, "rdma://HOST:PORT": their peers know nothing of rdmux. The device is the one that
 * the way leads over; nothing is negotiated or proved, and there is no control channel. A set-up finds
 * the way (the worker), opens the device (the worker), opens the provider's endpoint, hands it the
 * receives posted so far, and connects.
 */
#ifndef RDMUX_API_PLAIN_H
#define RDMUX_API_PLAIN_H

#include "api/core/ep.h"
#include "api/core/fabric.h"

#include <netdb.h>

/* What is behind "rdma://"; NULL: the address is another one. */
const char *rdmux_plain_address(const char *address);
/* Where a call that only rdmux's own peers can answer is given a plain address: RDMUX_UNSUPPORTED. */
enum rdmux_status rdmux_plain_refuse(const char *call, const char *address);
/* The operations that make plain connections; NULL: no provider of the fabric has them. */
const struct rdmux_plain_ops *rdmux_plain_find(const struct rdmux_fabric *fabric);
/* The same of one provider, as far as its table goes. */
const struct rdmux_plain_ops *rdmux_plain_of(const struct rdmux_provider_ops *ops);
/* RDMUX_NO_PATH with a text that says why no provider has them. */
/* A fabric that authenticates does not talk to peers that cannot. */
enum rdmux_status rdmux_plain_refuse_auth(const char *call);
enum rdmux_status rdmux_plain_refuse_absent(struct rdmux_fabric *fabric, const char *call);

/* Owner. The endpoint's set-up, just made, is one of a plain endpoint; attr as the caller gave it. */
void rdmux_plain_begin(struct rdmux_ep *ep, const struct rdmux_ep_attr *attr);
/* Owner: the peer's addresses are known. */
void rdmux_plain_dial(struct rdmux_ep *ep);
/* Owner: a peer has come; takes the call over. */
void rdmux_plain_accept(struct rdmux_ep *ep, struct rdmux_plain_call *call);
/* Owner: goes on with the set-up. */
void rdmux_plain_step(struct rdmux_ep *ep);
/* Owner: a set-up ends; drops what it has. */
void rdmux_plain_abandon(struct rdmux_ep *ep);
/* Owner: a shutdown was asked for: ends the connection once everything is done. True: not yet. */
bool rdmux_plain_shutdown_step(struct rdmux_ep *ep);

#endif
