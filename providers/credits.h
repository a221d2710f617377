/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Credit accounting for providers that match messages with receives in software: a send starts only
 * with a credit, and credits granted never exceed receives posted. Pure: no I/O, no clock, no
 * memory.
 *
 * Words. Set aside: a receive that is counted for one endpoint. Granted: the peer was told. Used: a
 * message came for it. Always used <= granted <= set aside.
 */
#ifndef RDMUX_PROVIDERS_CREDITS_H
#define RDMUX_PROVIDERS_CREDITS_H

#include <stdbool.h>
#include <stdint.h>

/* The side that posts receives. All counts are of the endpoint's whole life. */
struct rdmux_credits_given {
    uint64_t posted;  /* receives set aside */
    uint64_t granted; /* of these, told to the peer */
    uint64_t used;    /* of these, used by a message */
};

/* The side that sends. */
struct rdmux_credits_held {
    uint64_t left;
};

/* More than any queue can hold; a peer that grants more lies. */
#define RDMUX_CREDITS_MAX UINT32_C(0x7fffffff)

/* Receives that a message may still use, told or not. */
static inline uint64_t rdmux_credits_window(const struct rdmux_credits_given *given)
{
    return given->posted - given->used;
}

/* Credits that the peer has, or that are on the way to it. */
static inline uint64_t rdmux_credits_outstanding(const struct rdmux_credits_given *given)
{
    return given->granted - given->used;
}

/* Credits that could be granted now. */
static inline uint64_t rdmux_credits_untold(const struct rdmux_credits_given *given)
{
    return given->posted - given->granted;
}

/* Takes up to max untold credits; the caller tells the peer. */
static inline uint64_t rdmux_credits_tell(struct rdmux_credits_given *given, uint64_t max)
{
    uint64_t count = given->posted - given->granted;
    count = count < max ? count : max;
    given->granted += count;
    return count;
}

/* Is it worth a message of its own? Yes once the peer is down to half of what it could have; with
 * none left it may be waiting. */
static inline bool rdmux_credits_due(const struct rdmux_credits_given *given)
{
    return rdmux_credits_untold(given) > 0 &&
           2 * rdmux_credits_outstanding(given) <= rdmux_credits_window(given);
}

/* A message came. False: the peer had no credit for it. */
static inline bool rdmux_credits_use(struct rdmux_credits_given *given)
{
    if (given->granted == given->used) {
        return false;
    }
    given->used++;
    return true;
}

/* The sender was granted count more. False: more than there can be. */
static inline bool rdmux_credits_add(struct rdmux_credits_held *held, uint64_t count)
{
    if (count > RDMUX_CREDITS_MAX - held->left) {
        return false;
    }
    held->left += count;
    return true;
}

/* The sender starts a message. False: no credit. */
static inline bool rdmux_credits_take(struct rdmux_credits_held *held)
{
    if (held->left == 0) {
        return false;
    }
    held->left--;
    return true;
}

/*
 * Receives shared by many endpoints. Nobody has credits by default: an endpoint without credit
 * asks, gets a few, more each time it asks, and gives back what it has not used when others wait.
 * The pool is one provider's part of an SRQ: what is set aside for its endpoints must be reserved
 * by rdmux_provider_reserve() as well, so that no other provider's takes it.
 */
struct rdmux_credits_pool {
    uint64_t promised; /* receives set aside for endpoints and not used yet, of all endpoints */
};

enum {
    RDMUX_CREDITS_LEVEL_FIRST = 4, /* credits that an endpoint gets when it asks first */
    RDMUX_CREDITS_LEVEL_MAX = 64,  /* most that are set aside for one endpoint at a time */
};

/* What an endpoint that asked should have at a time, from what it should have had before (0:
 * none). */
uint32_t rdmux_credits_level_up(uint32_t level);

/*
 * Sets receives aside so that the endpoint has level at a time, as far as there are any. Returns
 * how many were set aside.
 *   receives  Posted to the pool, not taken by a message, and claimed by no other provider.
 *   waiting   Endpoints that want some, this one included: each gets at most its share, but at
 *             least 1.
 */
uint64_t rdmux_credits_lend(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given,
                            uint32_t level, uint64_t receives, uint64_t waiting);

/* A message used one of the endpoint's credits. False: it had none. */
bool rdmux_credits_use_shared(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given);

/* What the peer was not told yet goes back to the pool. Returns how many. */
uint64_t rdmux_credits_withdraw(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given);

/* The peer gave count unused credits back. False: it never had so many. */
bool rdmux_credits_return(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given,
                          uint64_t count);

/* The endpoint has ended: all that was set aside for it goes back. Returns how many. */
uint64_t rdmux_credits_leave(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given);

#endif
