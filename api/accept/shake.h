/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The computation of the TLS handshakes of pending connections, away from the threads that serve
 * other connections. Handshake steps are queued per peer quota; the quota that has used the least
 * processor time is next (turns.h). A dedicated thread does one step after the other. It starts
 * with the first step and ends with the fabric. A fabric without service or worker thread does one
 * step in each step of its service instead.
 *
 * The owner of a session and its socket, by state:
 *   idle       the holder of step_lock.
 *   queued     the holder of step_lock. rdmux_shake_end() removes the step from the queue.
 *   running    the thread, for one step. No other thread touches the session or closes the socket:
 *              the kernel could give its number to another connection. rdmux_shake_end() shuts the
 *              socket down and abandons both.
 *   abandoned  the thread, which destroys both after its step.
 *
 * The thread returns a session by rdmux_service_call() of the pending connection's watch, so the
 * end of a step is seen with step_lock held. In the child of a fork there is no thread, and every
 * call of the library refuses.
 */
#ifndef RDMUX_API_ACCEPT_SHAKE_H
#define RDMUX_API_ACCEPT_SHAKE_H

#include "api/accept/turns.h"
#include "api/core/fabric.h"
#include "api/loop/service.h"
#include "negotiation/tls.h"

/* The queued steps of one peer quota. Zeroed, then rdmux_shake_source_init(). May be freed when it
 * has no step. */
struct rdmux_shake_source {
    struct rdmux_turn turn;
    struct rdmux_list steps; /* rdmux_shake, oldest first */
};
void rdmux_shake_source_init(struct rdmux_shake_source *source);

enum rdmux_shake_state {
    RDMUX_SHAKE_IDLE,      /* waits for the peer, or its last step is to be evaluated */
    RDMUX_SHAKE_QUEUED,    /* its next step waits in the queue of its source */
    RDMUX_SHAKE_RUNNING,   /* the thread does a step */
    RDMUX_SHAKE_ABANDONED, /* rdmux_shake_end() was called in a step: the thread cleans up */
};

/* A TLS handshake. */
struct rdmux_shake {
    struct rdmux_fabric *fabric;
    struct rdmux_list link;
    struct rdmux_shake_source *source;
    struct rdmux_watch *watch; /* called when a step has ended; not once abandoned */
    _Atomic uint32_t state;    /* enum rdmux_shake_state; changes with the queue's lock held */
    int socket;
    struct rdmux_tls *tls;           /* NULL before the first step */
    uint8_t hello[RDMUX_HELLO_SIZE]; /* the peer's HELLO, received in clear */
    /* of the last step: RDMUX_OK (the peer is known), RDMUX_AGAIN, or an error */
    enum rdmux_status status;
    char text[2 * RDMUX_TEXT_MAX]; /* error text of a failed step */
};

/* For all functions below: step_lock is held. */

/* Creates a handshake with no step done. The socket stays the caller's, see above. NULL: no
 * memory. */
struct rdmux_shake *rdmux_shake_begin(struct rdmux_fabric *fabric, int socket,
                                      const uint8_t hello[RDMUX_HELLO_SIZE],
                                      struct rdmux_watch *watch);
/* Queues the next step, at the expense of the source's processor time. The first step creates the
 * session. False: no memory. */
bool rdmux_shake_queue(struct rdmux_shake *shake, struct rdmux_shake_source *source);
static inline bool rdmux_shake_is_busy(const struct rdmux_shake *shake)
{
    return atomic_load(&shake->state) != RDMUX_SHAKE_IDLE;
}
/* Ends the handshake. If tls is not NULL, *tls receives the session (or NULL), which the caller
 * owns; otherwise the session is destroyed. False: the thread owns the session and the socket,
 * which was shut down. */
bool rdmux_shake_end(struct rdmux_shake *shake, struct rdmux_tls **tls);

/* Does one step, if there is no thread. */
void rdmux_shakes_step(struct rdmux_fabric *fabric);
/* Ends the thread. The only handshakes left are those that were ended while they ran. */
void rdmux_shakes_stop(struct rdmux_fabric *fabric);

#endif
