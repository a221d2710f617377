/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What only negotiation needs, and how its parts call each other: dial.c finds the peer, connection.c drives the handshake, trial.c
 * opens, connects and proves one path. All by the cq's owner; the worker only resolves names and opens devices.
 */
#ifndef RDMUX_API_SETUP_H
#define RDMUX_API_SETUP_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"

struct rdmux_tls;

/* connect.c: what the calls that make endpoints have in common; call names one in texts. */
/* attr, all defaults filled in, goes to *all. */
enum rdmux_status rdmux_setup_check_call(const char *call, struct rdmux_fabric *fabric,
                                         struct rdmux_cq *cq, const struct rdmux_ep_attr *attr,
                                         int timeout_ms, struct rdmux_ep_attr *all);
/* Empties *out. */
enum rdmux_status rdmux_setup_check_out(const char *call, struct rdmux_ep **out);
/* without: what has no control channel that can be dialled again; NULL: it has one. */
enum rdmux_status rdmux_setup_check_failover(const char *call, const struct rdmux_ep_attr *attr,
                                             const char *without);
/* An endpoint with its set-up, not started. paths: a filter besides attr's; NULL: none. */
enum rdmux_status rdmux_setup_make_endpoint(struct rdmux_fabric *fabric, struct rdmux_cq *cq,
                                            const struct rdmux_ep_attr *attr, const char *paths,
                                            bool plain, int timeout_ms, struct rdmux_ep **out);
/* Waits for the set-up, or promises an event. */
enum rdmux_status rdmux_setup_finish_call(struct rdmux_ep *ep, const char *call, int timeout_ms,
                                          struct rdmux_ep **out);

/* connection.c */
/* Carries out what the handshake asks for, until it asks for nothing or the set-up is over. */
void rdmux_setup_run(struct rdmux_ep *ep);
/* The handshake's time, which stands still while this side does not run, as its machine is suspended or
 * its processor taken away: that says nothing of a path, nor of a peer that was kept from running with
 * it. Told to the handshake with everything else, so that there is one clock. */
uint64_t rdmux_setup_now(struct rdmux_ep *ep);
/* The path is open and connected, ep->info is filled in: it is the endpoint's. */
void rdmux_setup_succeed(struct rdmux_ep *ep);
/* Ends the set-up. give_back: an adopted socket is the program's again. */
void rdmux_setup_fail(struct rdmux_ep *ep, enum rdmux_status status, const char *text,
                      bool give_back);
/* Since when the endpoint waits for its peer; UINT64_MAX: not for that. */
uint64_t rdmux_setup_silent_since(const struct rdmux_ep *ep);
/* Has the peer of one that waits said something, or left, and nobody has looked at it yet? */
bool rdmux_setup_has_news(const struct rdmux_ep *ep);
/* Has this side said the last that its connector waits for? */
bool rdmux_setup_is_committed(const struct rdmux_ep *ep);
/* The control channel stands on this socket; received: bytes that were read from it already. tls: the
 * session in which they came, taken in any case; NULL: one is made where the fabric authenticates. */
enum rdmux_status rdmux_setup_talk(struct rdmux_ep *ep, int socket, struct rdmux_tls *tls,
                                   const uint8_t *received, size_t received_size);

/* dial.c */
/* The socket being dialled is there, or is not. */
void rdmux_dial_ready(struct rdmux_ep *ep);
void rdmux_dial_close(struct rdmux_ep *ep);

/* trial.c: what the handshake wants of a path. Each tells the handshake how it went, at once or later. */
void rdmux_trial_open(struct rdmux_ep *ep, const struct rdmux_handshake_action *action);
void rdmux_trial_connect(struct rdmux_ep *ep, const struct rdmux_handshake_action *action);
void rdmux_trial_write_proof(struct rdmux_ep *ep, const struct rdmux_handshake_action *action);
void rdmux_trial_check_proof(struct rdmux_ep *ep, const struct rdmux_handshake_action *action);
/* Goes on with what is under way. */
void rdmux_trial_step(struct rdmux_ep *ep);

/* measure.c */
void rdmux_measure_start(struct rdmux_ep *ep, const struct rdmux_handshake_action *action);
/* Goes on with it, if it is under way. */
void rdmux_measure_step(struct rdmux_ep *ep);
/* What the fabric knows of a pair of paths to the endpoint's peer (rdmux_measured_lookup; user: the
 * endpoint). */
bool rdmux_figures_find(void *user, const struct rdmux_offer_path *ours,
                        const struct rdmux_offer_path *theirs, struct rdmux_measured *out);

#endif
