/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Set-up of endpoints. All functions run in the cq's owner; the worker thread only resolves names
 * and opens devices. Each file calls those before it in this header. What is behind it is reached by
 * pointers: set-up's end reaches its events by fabric->life, a path attempt the handshake by `run`,
 * and failover the next step by setup->step.
 */
#ifndef RDMUX_API_SETUP_SETUP_H
#define RDMUX_API_SETUP_SETUP_H

#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mail.h"

#include <sys/socket.h>

struct rdmux_tls;

/* setup_clock.c */
/* The handshake's clock. The clock stops while this side does not run (machine suspended, processor
 * taken away), since that says nothing about a path, nor about a peer that was stopped along with
 * it. All calls to the handshake take their time from here, so that there is one clock. */
uint64_t rdmux_setup_now(struct rdmux_ep *ep);
/* Returns the time of the handshake's next timeout or of the next clock check, whichever is earlier;
 * UINT64_MAX: never. */
uint64_t rdmux_setup_handshake_deadline(const struct rdmux_setup *setup);

/* setup_log.c: lines of the log at level debug. */
void rdmux_setup_log_dial(struct rdmux_ep *ep, const char *address);
/* The control channel is there, and the offer is about to go out on it. */
void rdmux_setup_log_offer(struct rdmux_ep *ep);
void rdmux_setup_log_action(struct rdmux_ep *ep, const struct rdmux_handshake_action *action);
/* An action on a path has ended with this status; RDMUX_OK: no line. */
void rdmux_setup_log_failure(struct rdmux_ep *ep, enum rdmux_handshake_action_kind kind,
                             enum rdmux_status status, const char *text);
/* The candidates kept for the endpoint's explanation. */
void rdmux_setup_log_verdicts(struct rdmux_ep *ep);

/* setup_end.c */
/* Ends set-up with success: the path, open and connected, becomes the endpoint's. ep->info is
 * filled in. */
void rdmux_setup_succeed(struct rdmux_ep *ep);
/* Ends set-up with failure: everything posted so far ends, and an event is raised if one was
 * promised. give_back: returns an adopted socket to the program. */
void rdmux_setup_fail(struct rdmux_ep *ep, enum rdmux_status status, const char *text,
                      bool give_back);
/* Copies the handshake's candidates to the endpoint for its explanation, once. */
void rdmux_setup_keep_candidates(struct rdmux_ep *ep);

/* setup_offer.c */
/* Checks attr.local as passed to call. RDMUX_INVALID: nothing on this machine has that name. */
enum rdmux_status rdmux_check_local(struct rdmux_fabric *fabric, const char *call,
                                    const char *local);
/* Fills the offer from an endpoint's attributes and the fabric. RDMUX_INVALID: attr.local names
 * nothing on this machine. */
enum rdmux_status rdmux_offer_fill(struct rdmux_fabric *fabric, const struct rdmux_ep_attr *attr,
                                   const char *listener_paths, struct rdmux_offer *offer);
/* Fills ep->negotiated.path and path_attr from a local path and the endpoint's attributes. What both
 * sides grant each other is not in it yet. srq: NULL for receives of the endpoint's own. */
void rdmux_setup_fill_path_attr(struct rdmux_ep *ep, const struct rdmux_local_path *from,
                                struct rdmux_provider_srq *srq);
/* Decides how many bytes RDMUX_INLINE may have on the path that was proved: as many as were asked
 * for and the path carries; if none were asked for, as many as it carries without copying more. */
void rdmux_setup_grant_inline(struct rdmux_ep *ep);

/* measure.c */
void rdmux_measure_start(struct rdmux_ep *ep, const struct rdmux_handshake_action *action);
/* Advances a measurement, if one is under way. */
void rdmux_measure_step(struct rdmux_ep *ep);
/* Finds what the fabric remembers of a pair of paths to the endpoint's peer (a
 * rdmux_measured_lookup; user: the endpoint). */
bool rdmux_figures_find(void *user, const struct rdmux_offer_path *ours,
                        const struct rdmux_offer_path *theirs, struct rdmux_measured *out);

/* path_attempt.c: the handshake's actions on a path. Each reports its result to the handshake, at
 * once or later. */
/* run: carries out what the handshake asks for once a result has come later. */
void rdmux_path_attempt_open(struct rdmux_ep *ep, const struct rdmux_handshake_action *action,
                             void (*run)(struct rdmux_ep *ep));
void rdmux_path_attempt_connect(struct rdmux_ep *ep, const struct rdmux_handshake_action *action);
void rdmux_path_attempt_write_proof(struct rdmux_ep *ep,
                                    const struct rdmux_handshake_action *action);
void rdmux_path_attempt_check_proof(struct rdmux_ep *ep,
                                    const struct rdmux_handshake_action *action);
/* Advances the actions under way. */
void rdmux_path_attempt_step(struct rdmux_ep *ep);
/* A further socket for a connection of cq. rdmux_ep_deliver_join() delivers it and owns the
 * socket. */
struct rdmux_join_mail {
    struct rdmux_mail mail;
    struct rdmux_fabric *fabric;
    struct rdmux_join join;
    int socket;
};
void rdmux_ep_deliver_join(struct rdmux_cq *cq, struct rdmux_mail *mail);

/* handshake_driver.c */
/* Executes the handshake's actions until there is none, or set-up is over. */
void rdmux_setup_run(struct rdmux_ep *ep);
/* Starts the handshake on a connected socket. received: bytes already read from the socket. tls:
 * the session in which they came, taken in any case; NULL: a session is created if the fabric
 * authenticates. */
enum rdmux_status rdmux_setup_talk(struct rdmux_ep *ep, int socket, struct rdmux_tls *tls,
                                   const uint8_t *received, size_t received_size);
/* Since when the endpoint has been waiting for its peer; UINT64_MAX: it does not wait for the
 * peer. */
uint64_t rdmux_setup_silent_since(const struct rdmux_ep *ep);
/* Returns true if the peer has sent something, or closed, and this side has not read it yet. The
 * endpoint is waiting for its peer. */
bool rdmux_setup_has_news(const struct rdmux_ep *ep);
/* Returns true if this side has sent the last message that its connector waits for. */
bool rdmux_setup_is_committed(const struct rdmux_ep *ep);

/* dial.c */
/* Starts the search for the peer at this address. A later failure shows as the end of the set-up. */
enum rdmux_status rdmux_ep_start_connect(struct rdmux_ep *ep, const char *address);
/* The socket being dialled is connected, or has failed. */
void rdmux_dial_ready(struct rdmux_ep *ep);
void rdmux_dial_close(struct rdmux_ep *ep);

/* setup_start.c */
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
/* Sets the listener that accepts the endpoint, and its peer quota that counts it. NULL: the endpoint
 * is taken or given up. */
void rdmux_setup_set_acceptor(struct rdmux_ep *ep, struct rdmux_acceptor *acceptor,
                              struct rdmux_peer_quota *quota);
/* Start a set-up on a connected socket, which they take in any case. A later failure shows as the
 * end of the set-up. */
enum rdmux_status rdmux_ep_start_accept(struct rdmux_ep *ep, struct rdmux_arrival *arrival);
enum rdmux_status rdmux_ep_start_adopt(struct rdmux_ep *ep, int socket, enum rdmux_role role);

/* setup_events.c: events of an endpoint in any stage, see struct rdmux_life. */
/* The control channel is ready. */
void rdmux_ep_control_ready(struct rdmux_ep *ep);
void rdmux_ep_timers(struct rdmux_ep *ep, uint64_t now_ns);
uint64_t rdmux_ep_deadline(const struct rdmux_ep *ep);
/* A provider made progress while the endpoint is in set-up. */
void rdmux_ep_setup_step(struct rdmux_ep *ep);
void rdmux_ep_setup_destroy(struct rdmux_ep *ep);
/* Describes the current stage of set-up in words. */
void rdmux_ep_setup_stage(const struct rdmux_ep *ep, char *out, size_t size);

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

#endif
