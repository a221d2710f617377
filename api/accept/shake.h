/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The arithmetic of strangers' TLS handshakes, away from the threads that serve others. Steps wait in a queue per
 * address; the address that has used the least processor time is next (turns.h). A thread of its own does one step
 * after the other. It starts with the first, and ends with the fabric. A fabric without service or worker thread
 * does one step in each step of its service instead.
 *
 * The owner of a session and its socket, by state:
 *   idle      the holder of step_lock.
 *   queued    the same. rdmux_shake_end() takes it out of the queue.
 *   running   the thread, for one step. No other thread touches the session or closes the socket, as the kernel
 *             could give its number to another connection. rdmux_shake_end() shuts the socket down and leaves both to the thread,
 *             which destroys them behind its step.
 * The thread gives a session back by rdmux_service_call() of the stranger's watch, so a step's end is seen with
 * step_lock held. In the child of a fork there is no thread, and every call of the library refuses.
 */
#ifndef RDMUX_API_SHAKE_H
#define RDMUX_API_SHAKE_H

#include "api/accept/turns.h"
#include "api/core/fabric.h"
#include "api/loop/service.h"
#include "negotiation/tls.h"

/* Steps that wait, of one address. Zeroed, then rdmux_shake_source_init(). It may go when it has none. */
struct rdmux_shake_source {
    struct rdmux_turn turn;
    struct rdmux_list steps; /* rdmux_shake, oldest first */
};
void rdmux_shake_source_init(struct rdmux_shake_source *source);

enum rdmux_shake_state { RDMUX_SHAKE_IDLE, RDMUX_SHAKE_QUEUED, RDMUX_SHAKE_RUNNING };

/* A handshake. */
struct rdmux_shake {
    struct rdmux_fabric *fabric;
    struct rdmux_list link;
    struct rdmux_shake_source *source;
    struct rdmux_watch
        *watch; /* called when a step has ended; NULL: nobody wants to know, the thread cleans up */
    _Atomic uint32_t state; /* enum rdmux_shake_state; changes with the queue's lock held */
    int socket;
    struct rdmux_tls *tls;           /* NULL before the first step */
    uint8_t hello[RDMUX_HELLO_SIZE]; /* in clear */
    enum rdmux_status status;      /* of the last step: RDMUX_OK: the peer is known. RDMUX_AGAIN */
    char text[2 * RDMUX_TEXT_MAX]; /* why it failed */
};

/* All below: step_lock is held. */

/* A handshake that nothing was done for. The socket stays the caller's, see above. NULL: no memory. */
struct rdmux_shake *rdmux_shake_begin(struct rdmux_fabric *fabric, int socket,
                                      const uint8_t hello[RDMUX_HELLO_SIZE],
                                      struct rdmux_watch *watch);
/* One step more, for the source's time. The first makes the session. False: no memory. */
bool rdmux_shake_queue(struct rdmux_shake *shake, struct rdmux_shake_source *source);
static inline bool rdmux_shake_is_busy(const struct rdmux_shake *shake)
{
    return atomic_load(&shake->state) != RDMUX_SHAKE_IDLE;
}
/* Ends it. *tls NULL, or the session, which is the caller's from now on; it is destroyed if tls is NULL. False:
 * the session and the socket are the thread's, and were shut down. */
bool rdmux_shake_end(struct rdmux_shake *shake, struct rdmux_tls **tls);

/* Without a thread: one step. */
void rdmux_shakes_step(struct rdmux_fabric *fabric);
/* Ends the thread. No handshake is left but one that was ended while it ran. */
void rdmux_shakes_stop(struct rdmux_fabric *fabric);

#endif
