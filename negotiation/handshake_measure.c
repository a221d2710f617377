/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The handshake's measuring phase: which pairs, for how long, and the ranking that follows. The
 * acceptor alone measures, as it alone ranks; the connector gets the second RANKING. */
#include "negotiation/handshake_internal.h"

#include <stdio.h>

void rdmux_handshake_measuring_init(struct rdmux_handshake *handshake,
                                    const struct rdmux_handshake_config *config)
{
    handshake->measuring.lookup = config->measured;
    handshake->measuring.lookup_user = config->measured_user;
}

static bool wants_measuring(const struct rdmux_handshake *handshake)
{
    return ((handshake->hello.flags | handshake->peer_hello.flags) & RDMUX_HELLO_MEASURE) != 0;
}

/* Fills in figures of earlier connections. Returns how many of the first count pairs are known. */
static size_t recall_figures(struct rdmux_handshake *handshake, size_t count)
{
    size_t known = 0;
    for (size_t i = 0; i < count && handshake->measuring.lookup != NULL; i++) {
        struct rdmux_match *match = &handshake->matches[i];
        struct rdmux_measured measured;
        if (handshake->measuring.lookup(handshake->measuring.lookup_user,
                                        &handshake->offer.paths[match->ours],
                                        &handshake->peer_offer.paths[match->theirs], &measured)) {
            match->measured = measured;
            known++;
        }
    }
    return known;
}

static void forget_figures(struct rdmux_handshake *handshake)
{
    for (size_t i = 0; i < handshake->match_count; i++) {
        handshake->matches[i].measured = (struct rdmux_measured){ 0, 0 };
    }
}

/* Uses remembered figures only if all pairs have them: a measured figure is not compared with an
 * assumed one. */
void rdmux_handshake_plan_measuring(struct rdmux_handshake *handshake)
{
    bool explains = (handshake->peer_hello.flags & RDMUX_HELLO_EXPLAIN_ONLY) != 0;
    if (!wants_measuring(handshake)) {
        return;
    }
    size_t worth = rdmux_match_worth_measuring(&handshake->offer, &handshake->peer_offer,
                                               handshake->matches, handshake->match_count);
    if (worth != 0 && recall_figures(handshake, worth) == worth) {
        rdmux_match_rank_measured(&handshake->offer, &handshake->peer_offer,
                                  handshake->expected_size, handshake->matches,
                                  handshake->match_count);
        return;
    }
    forget_figures(handshake);
    handshake->measuring.count = explains ? 0 : worth;
}

bool rdmux_handshake_is_measuring(const struct rdmux_handshake *handshake)
{
    return handshake->attempt - handshake->attempts_before <= handshake->measuring.count;
}

void rdmux_handshake_start_measuring(struct rdmux_handshake *handshake,
                                     const struct handshake_happening *what)
{
    struct rdmux_handshake_action *action = rdmux_handshake_push(handshake, RDMUX_ACTION_MEASURE);
    uint64_t budget_ns = RDMUX_MEASURE_NS / handshake->measuring.count;
    if (action != NULL) {
        action->budget_ns = budget_ns;
        handshake->measuring.since_ns = what->now_ns;
        handshake->deadline_ns = what->now_ns + budget_ns;
    }
}

void rdmux_handshake_record_figures(struct rdmux_handshake *handshake,
                                    const struct handshake_happening *what,
                                    char text[RDMUX_TEXT_MAX])
{
    const struct rdmux_measured so_far = {
        .latency_ns = what->now_ns - handshake->measuring.since_ns + 1,
    };
    const struct rdmux_measured figures = what->event == MEASURED ? *what->measured : so_far;
    (void)snprintf(text, RDMUX_TEXT_MAX, "measured: %llu ns, %llu bytes/s",
                   (unsigned long long)figures.latency_ns, (unsigned long long)figures.bandwidth);
    current_match(handshake)->measured = figures;
}

void rdmux_handshake_end_measuring(struct rdmux_handshake *handshake)
{
    if (handshake->measuring.count == 0 || rdmux_handshake_is_measuring(handshake)) {
        return;
    }
    size_t left = 0;
    for (size_t i = 0; i < handshake->ranked_count; i++) {
        struct rdmux_match *match = &handshake->matches[i];
        if (i < handshake->measuring.count && match->measured.latency_ns == 0) {
            match->rank = 0; /* its attempt failed, with a reason */
        }
        left += match->rank != 0;
    }
    handshake->measuring.count = 0;
    if (left == 0) {
        return; /* the verdicts stand; NO_PATH follows */
    }
    rdmux_match_rank_measured(&handshake->offer, &handshake->peer_offer, handshake->expected_size,
                              handshake->matches, handshake->match_count);
    handshake->attempts_before = handshake->attempt - 1;
    handshake->measuring.is_ranked_anew = true;
    (void)rdmux_handshake_send_ranking(handshake);
}

void rdmux_handshake_take_second_ranking(struct rdmux_handshake *handshake,
                                         const struct handshake_happening *what)
{
    if (!wants_measuring(handshake) || handshake->measuring.is_ranked_anew) {
        rdmux_handshake_connection_over(handshake, RDMUX_PROTOCOL, false,
                                        "the peer ranks once more without having been asked to");
        return;
    }
    handshake->measuring.is_ranked_anew = true;
    if (!rdmux_handshake_read_ranking(handshake, what)) {
        return;
    }
    handshake->attempts_before = handshake->attempt - 1;
    rdmux_handshake_start_clock(handshake, what->now_ns);
    if (current_match(handshake) == NULL) {
        set_state(handshake, C_LAST);
    }
}
