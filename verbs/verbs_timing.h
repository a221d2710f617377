/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Timer codes of a reliable connection, from the time after which a peer counts as gone. Pure.
 *
 * IBTA specification volume 1: 9.7.6.1.3 (local ACK timeout), 9.7.5.2.8 (RNR NAK timer).
 */
#ifndef RDMUX_VERBS_TIMING_H
#define RDMUX_VERBS_TIMING_H

#include <stdbool.h>
#include <stdint.h>

enum {
    /* Each try takes one ACK timeout. The field holds 7, but soft RoCE takes 7 for "forever" here,
     * too (rxe_comp.c). */
    VERBS_RETRY_COUNT = 6,
    VERBS_RNR_RETRY = 7, /* retry forever: a message without a receive waits */
    VERBS_ACK_CODE_MIN = 10,
    VERBS_ACK_CODE_MAX = 21,
    VERBS_DELAY_CODE_MAX = 31,
};

/*
 * Returns the ACK timeout code for a liveness time. The device gives a silent peer up after (retry
 * count + 1) tries. Each try may take up to four times the code's time. The longest total stays
 * within liveness_ms where the bounds allow.
 *   liveness_ms       RDMUX_NEVER: the largest code in use; code 0 would mean no timer at all.
 *   peer_delay_code   Response time of the peer's device, as it reports it; the timeout is longer.
 */
uint32_t rdmux_verbs_ack_code(uint32_t liveness_ms, uint32_t peer_delay_code);

/*
 * Returns the number of retries: VERBS_RETRY_COUNT. With failover, where a path may be declared
 * dead too early, there are fewer if the peer's device needs so much time for each try that all
 * tries would exceed the liveness time; at least one, as one packet may be lost. Without failover
 * there are always VERBS_RETRY_COUNT: a message that waits for its receive may lose a packet now
 * and then, and every loss counts until a packet is acknowledged (IBTA 9.7.5.2.8).
 */
uint32_t rdmux_verbs_retries(uint32_t liveness_ms, uint32_t code, bool has_failover);

/* Return the times of a code: of one try, and after which the device gives up, nominally and at the
 * longest. */
uint64_t rdmux_verbs_ack_ns(uint32_t code);
uint64_t rdmux_verbs_give_up_ns(uint32_t code, uint32_t retries);
uint64_t rdmux_verbs_give_up_longest_ns(uint32_t code, uint32_t retries);

/* Returns the RNR NAK timer code: the time that the peer waits before it sends a message without a
 * receive again. It is short, so that a late receive costs little, but not the shortest, so that a
 * peer that waits long does not flood this end. */
uint32_t rdmux_verbs_rnr_code(uint32_t liveness_ms);
uint64_t rdmux_verbs_rnr_ns(uint32_t code);

#endif
