/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Codes of the timers of a reliable connection, from the time after which a peer counts as gone.
 * Pure.
 *
 * IBTA specification volume 1: 9.7.6.1.3 (local ACK timeout), 9.7.5.2.8 (RNR NAK timer).
 */
#ifndef RDMUX_VERBS_TIMING_H
#define RDMUX_VERBS_TIMING_H

#include <stdbool.h>
#include <stdint.h>

enum {
    /* Each try takes one ACK timeout. The field holds 7, but soft RoCE takes 7 for "for ever" here,
     * too (rxe_comp.c). */
    VERBS_RETRY_COUNT = 6,
    VERBS_RNR_RETRY = 7, /* for ever: a message that meets no receive waits */
    VERBS_ACK_CODE_MIN = 10,
    VERBS_ACK_CODE_MAX = 21,
    VERBS_DELAY_CODE_MAX = 31,
};

/*
 * ACK timeout code for a liveness time. The device gives a silent peer up after (retry count + 1)
 * tries, each of which may take up to four times what the code says; so the longest of these stays
 * within liveness_ms where the bounds allow.
 * liveness_ms       RDMUX_NEVER: the largest code used; 0 would be no timer at all.
 * peer_delay_code   How long the peer's device takes to answer, as it says itself; the timeout is
 *                   longer.
 */
uint32_t rdmux_verbs_ack_code(uint32_t liveness_ms, uint32_t peer_delay_code);

/*
 * How often to try again: VERBS_RETRY_COUNT times. With failover, where a path may be taken for dead too early, fewer if the peer's device needs
 * so much time for each that all of them would be more than the liveness time; once at least, as one packet may be lost. Without, a message
 * that waits for its receive may lose a packet now and then, and every loss counts until one is acknowledged (IBTA 9.7.5.2.8).
 */
uint32_t rdmux_verbs_retries(uint32_t liveness_ms, uint32_t code, bool has_failover);

/* What a code is: one try, and the time after which the device gives up, as it is meant and at the
 * longest. */
uint64_t rdmux_verbs_ack_ns(uint32_t code);
uint64_t rdmux_verbs_give_up_ns(uint32_t code, uint32_t retries);
uint64_t rdmux_verbs_give_up_longest_ns(uint32_t code, uint32_t retries);

/* RNR NAK timer code: how long the peer waits before it sends again what met no receive. Short, so
 * that a receive posted late costs little; not the shortest, so that a peer that waits long does
 * not flood us. */
uint32_t rdmux_verbs_rnr_code(uint32_t liveness_ms);
uint64_t rdmux_verbs_rnr_ns(uint32_t code);

#endif
