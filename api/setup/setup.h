/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The interfaces between the parts of negotiation: dial.c finds the peer, handshake_driver.c drives
 * the handshake, path_attempt.c opens, connects and proves one path. All run in the cq's owner; the
 * worker thread only resolves names and opens devices.
 */
#ifndef RDMUX_API_SETUP_SETUP_H
#define RDMUX_API_SETUP_SETUP_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"

struct rdmux_tls;

/* connect.c: common to the calls that make endpoints. call: the name of the call in error texts. */
/* Checks the arguments. *all receives attr with all defaults filled in. */
enum rdmux_status rdmux_setup_check_call(const char *call, struct rdmux_fabric *fabric,
                                         struct rdmux_cq *cq, const struct rdmux_ep_attr *attr,
                                         int timeout_ms, struct rdmux_ep_attr *all);
/* Checks out, and sets *out to NULL. */
enum rdmux_status rdmux_setup_check_out(const char *call, struct rdmux_ep **out);
/* without: the name of what lacks a control channel that can be dialled again; NULL: there is
 * one. */
enum rdmux_status rdmux_setup_check_failover(const char *call, const struct rdmux_ep_attr *attr,
                                             const char *without);
/* Creates an endpoint with its set-up, not started. paths: a filter in addition to attr's; NULL:
 * none. */
enum rdmux_status rdmux_setup_make_endpoint(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                            const struct rdmux_ep_attr *attr, const char *paths,
                                            bool rdmacm, int timeout_ms, struct rdmux_ep **out);
/* Waits for the end of set-up, or promises an event. */
enum rdmux_status rdmux_setup_finish_call(struct rdmux_ep *ep, const char *call, int timeout_ms,
                                          struct rdmux_ep **out);

/* handshake_driver.c */
/* Executes the handshake's actions until there is none, or set-up is over. */
void rdmux_setup_run(struct rdmux_ep *ep);
/* The handshake's clock. The clock stops while this side does not run (machine suspended, processor
 * taken away), since that says nothing about a path, nor about a peer that was stopped along with
 * it. All calls to the handshake take their time from here, so that there is one clock. */
uint64_t rdmux_setup_now(struct rdmux_ep *ep);
/* Ends set-up with success: the path, open and connected, becomes the endpoint's. ep->info is
 * filled in. */
void rdmux_setup_succeed(struct rdmux_ep *ep);
/* Ends set-up with failure. give_back: returns an adopted socket to the program. */
void rdmux_setup_fail(struct rdmux_ep *ep, enum rdmux_status status, const char *text,
                      bool give_back);
/* Since when the endpoint has been waiting for its peer; UINT64_MAX: it does not wait for the
 * peer. */
uint64_t rdmux_setup_silent_since(const struct rdmux_ep *ep);
/* Returns true if the peer has sent something, or closed, and this side has not read it yet. The
 * endpoint is waiting for its peer. */
bool rdmux_setup_has_news(const struct rdmux_ep *ep);
/* Returns true if this side has sent the last message that its connector waits for. */
bool rdmux_setup_is_committed(const struct rdmux_ep *ep);
/* Starts the handshake on a connected socket. received: bytes already read from the socket. tls:
 * the session in which they came, taken in any case; NULL: a session is created if the fabric
 * authenticates. */
enum rdmux_status rdmux_setup_talk(struct rdmux_ep *ep, int socket, struct rdmux_tls *tls,
                                   const uint8_t *received, size_t received_size);

/* dial.c */
/* The socket being dialled is connected, or has failed. */
void rdmux_dial_ready(struct rdmux_ep *ep);
void rdmux_dial_close(struct rdmux_ep *ep);

/* path_attempt.c: the handshake's actions on a path. Each reports its result to the handshake, at
 * once or later. */
void rdmux_path_attempt_open(struct rdmux_ep *ep, const struct rdmux_handshake_action *action);
void rdmux_path_attempt_connect(struct rdmux_ep *ep, const struct rdmux_handshake_action *action);
void rdmux_path_attempt_write_proof(struct rdmux_ep *ep,
                                    const struct rdmux_handshake_action *action);
void rdmux_path_attempt_check_proof(struct rdmux_ep *ep,
                                    const struct rdmux_handshake_action *action);
/* Advances the actions under way. */
void rdmux_path_attempt_step(struct rdmux_ep *ep);

/* measure.c */
void rdmux_measure_start(struct rdmux_ep *ep, const struct rdmux_handshake_action *action);
/* Advances a measurement, if one is under way. */
void rdmux_measure_step(struct rdmux_ep *ep);
/* Finds what the fabric remembers of a pair of paths to the endpoint's peer (a
 * rdmux_measured_lookup; user: the endpoint). */
bool rdmux_figures_find(void *user, const struct rdmux_offer_path *ours,
                        const struct rdmux_offer_path *theirs, struct rdmux_measured *out);

#endif
