/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Pairing and ranking of both sides' paths: a pure function, run by the acceptor alone. */
#ifndef RDMUX_NEGOTIATION_MATCH_H
#define RDMUX_NEGOTIATION_MATCH_H

#include "negotiation/offer.h"

#include <stdbool.h>

/* Measured figures of a path; latency_ns 0: not measured. */
struct rdmux_measured {
    uint64_t latency_ns; /* half a round trip */
    uint64_t bandwidth;  /* bytes per second; 0: too few bytes were moved to tell */
};

/* One pair of paths, or one path without partner, with its verdict. */
struct rdmux_match {
    uint16_t ours;   /* index into this side's paths; RDMUX_MATCH_NO_PATH: none */
    uint16_t theirs; /* index into the peer's */
    uint16_t rank;   /* 1 = first to try; 0 = not eligible */
    /* 1: cost_ns was measured. 0: it follows from the figures of both OFFERs. */
    uint16_t cost_is_measured;
    /* enum rdmux_reason: NONE for the best eligible pair, SLOWER for other eligible ones
     * (SOFTWARE_DEVICE for a software device ranked behind others because of that), else why it is
     * not eligible. */
    uint32_t reason;
    uint32_t stage;   /* enum rdmux_stage: PROBE if one side's own path is unusable, else MATCH */
    uint64_t cost_ns; /* 0 if not eligible */
    uint64_t native;
    uint64_t emulated;
    struct rdmux_measured measured;
    char text[RDMUX_TEXT_MAX];
    char hint[RDMUX_TEXT_MAX];
};

enum { RDMUX_MATCH_NO_PATH = 0xffff, RDMUX_MATCH_MAX = 64 };

/* The longest messages of each direction. */
struct rdmux_message_limits {
    uint64_t send; /* this side to the peer */
    uint64_t receive;
};

/* Returns the longest message of a pair of paths; 0: no limit. */
uint64_t rdmux_match_limit(const struct rdmux_offer *ours, const struct rdmux_offer *theirs,
                           const struct rdmux_match *match);
/* Returns the messages that a path of this limit is for: per direction the smaller of the sender's
 * max_send and the receiver's max_recv, and if max_send is a wish, at most the path's limit. */
struct rdmux_message_limits rdmux_match_messages(const struct rdmux_offer *ours,
                                                 const struct rdmux_offer *theirs, uint64_t limit);
/* Returns whether a path of this limit takes such messages. */
bool rdmux_match_takes(uint64_t limit, struct rdmux_message_limits messages);
/* Adds the wishes that a path of this limit does not grant in full to a text. */
void rdmux_match_explain_wishes(const struct rdmux_offer *acceptors,
                                const struct rdmux_offer *connectors, uint64_t limit,
                                char text[RDMUX_TEXT_MAX]);

/*
 * Pairs each of this side's paths with each of the peer's of the same provider. Ranks the eligible
 * pairs by cost = latency + expected size / bandwidth (of the slower side).
 *
 * Classes. Last-resort providers rank behind all others but software. Behind them rank software paths
 * of providers on request, which stand in for paths that rdmux has itself, until they are measured;
 * then software RDMA devices, measured or not. Neither does if a side named the provider in a filter
 * that names neither tcp nor auto.
 *
 * Symmetry. The result does not depend on which side is `ours`: swapping the sides gives the same
 * order and costs. Ties break by provider name, then the lower of both device names, then the
 * other, then indexes by name order.
 *
 * Paths without pair are listed too, once each: an unusable one with its own reason (once for both
 * sides if they lack the same device), a usable one with PEER_HAS_NONE. Texts and hints are for
 * both sides' explanations: they call `ours` the acceptor's and `theirs` the connector's. Eligible
 * pairs come first, then refused pairs, then unusable paths.
 *
 * out has room for RDMUX_MATCH_MAX. Returns the number of matches, ranked ones first, by rank.
 * expected_size: the connector's wish, else the acceptor's, else 4096; the caller has chosen.
 */
size_t rdmux_match_paths(const struct rdmux_offer *ours, const struct rdmux_offer *theirs,
                         uint64_t expected_size, struct rdmux_match *out);

/* Returns how many of the first matches are worth measuring: the eligible pairs except software
 * devices that no side named; 0 if that leaves no choice. */
size_t rdmux_match_worth_measuring(const struct rdmux_offer *ours, const struct rdmux_offer *theirs,
                                   const struct rdmux_match *matches, size_t count);

/*
 * Ranks the matches of rdmux_match_paths() again after measuring. A measured pair has its measured
 * cost, and measured last-resort providers rank by cost like others. A pair whose rank the caller
 * has set to 0 is out and keeps its verdict.
 */
void rdmux_match_rank_measured(const struct rdmux_offer *ours, const struct rdmux_offer *theirs,
                               uint64_t expected_size, struct rdmux_match *matches, size_t count);

#endif
