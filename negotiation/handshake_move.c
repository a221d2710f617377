/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The handshake for failover: attempts in the order that the acceptor's driver chooses. */
#include "negotiation/handshake_internal.h"

#include <stdio.h>

bool rdmux_handshake_is_moving(const struct rdmux_handshake *handshake)
{
    return handshake->move.is_on;
}

/* The acceptor alone has another limit in a move. */
uint64_t rdmux_handshake_attempt_limit_ms(const struct rdmux_handshake *handshake)
{
    return handshake->move.is_on && is_acceptor(handshake) ? handshake->move.limit_ms
                                                           : rdmux_handshake_patience_ms(handshake);
}

void rdmux_handshake_begin_move(struct rdmux_handshake *handshake, uint32_t first_attempt,
                                enum rdmux_reason reason, const char *why)
{
    if (phase_of(handshake) == ENDED) {
        rdmux_match_record(current_match(handshake), RDMUX_STAGE_COMMIT, reason, why);
    }
    rdmux_handshake_path_closed(handshake); /* by the driver */
    handshake->move.is_on = true;
    rdmux_handshake_queue_clear(handshake);
    handshake->attempt = first_attempt - 1;
    rdmux_handshake_write_state(handshake, is_acceptor(handshake) ? A_CHOOSE : C_TRY, true);
}

void rdmux_handshake_next_move(struct rdmux_handshake *handshake)
{
    handshake->move.rank = 0;
    handshake->deadline_ns = UINT64_MAX; /* the driver has its own time limit */
    if (is_acceptor(handshake)) {
        set_state(handshake, A_CHOOSE);
        (void)rdmux_handshake_push(handshake, RDMUX_ACTION_CHOOSE);
    } else {
        set_state(handshake, C_TRY);
    }
}

bool rdmux_handshake_take_pair(struct rdmux_handshake *handshake,
                               const struct rdmux_attempt_frame *frame)
{
    for (size_t rank = 1; rank <= handshake->ranked_count; rank++) {
        const struct rdmux_match *match = &handshake->matches[rank - 1];
        if (match->ours == frame->connector_path && match->theirs == frame->acceptor_path &&
            rdmux_handshake_takes_granted(handshake, rank)) {
            handshake->move.rank = rank;
            return true;
        }
    }
    rdmux_handshake_connection_over(handshake, RDMUX_PROTOCOL, false,
                                    "the peer tries a pair that is no candidate");
    return false;
}

void rdmux_handshake_try(struct rdmux_handshake *handshake, size_t rank, uint64_t limit_ms,
                         uint64_t now_ns)
{
    if (handshake->state != A_CHOOSE || rank == 0 || rank > handshake->ranked_count ||
        !rdmux_handshake_takes_granted(handshake, rank)) {
        return;
    }
    handshake->move.rank = rank;
    struct rdmux_match *match = current_match(handshake);
    match->reason = RDMUX_REASON_NONE;
    rdmux_handshake_start_clock(handshake, now_ns);
    const uint64_t limit_ns = rdmux_handshake_time_after(now_ns, limit_ms);
    handshake->move.limit_ms = rdmux_handshake_patience_ms(handshake);
    if (limit_ns < handshake->deadline_ns) {
        handshake->deadline_ns = limit_ns;
        handshake->move.limit_ms = limit_ms;
    }
    rdmux_handshake_open_path(handshake, NULL, 0);
    set_state(handshake, A_OPEN);
}

void rdmux_handshake_give_up(struct rdmux_handshake *handshake)
{
    if (handshake->state == A_CHOOSE) {
        struct rdmux_attempt_frame frame = { .type = RDMUX_FRAME_NO_PATH };
        rdmux_handshake_send_frame(handshake, &frame);
        rdmux_handshake_no_path(handshake);
    }
}

size_t rdmux_handshake_ranked(const struct rdmux_handshake *handshake)
{
    return handshake->ranked_count;
}

uint16_t rdmux_handshake_ours_of_rank(const struct rdmux_handshake *handshake, size_t rank)
{
    return handshake->matches[rank - 1].ours;
}

bool rdmux_handshake_is_committed(const struct rdmux_handshake *handshake)
{
    return phase_of(handshake) == COMMITTED;
}

bool rdmux_handshake_has_failover(const struct rdmux_handshake *handshake)
{
    return (handshake->hello.flags & handshake->peer_hello.flags & RDMUX_HELLO_FAILOVER) != 0;
}
