/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Credit accounting for providers that match messages with receives in software. A send starts only
 * with a credit, and credits granted never exceed receives posted. Pure functions: no I/O, no
 * clock, no allocation.
 *
 * A receive is "set aside" when it is counted for one endpoint, "granted" when the peer was told of
 * it, and "used" when a message came for it. Always used <= granted <= set aside.
 */
#ifndef RDMUX_PROVIDERS_CREDITS_H
#define RDMUX_PROVIDERS_CREDITS_H

#include <stdbool.h>
#include <stdint.h>

/* State of the side that posts receives. All counts cover the endpoint's whole life. */
struct rdmux_credits_given {
    uint64_t posted;  /* receives set aside */
    uint64_t granted; /* receives told to the peer */
    uint64_t used;    /* receives used by a message */
};

/* State of the side that sends. */
struct rdmux_credits_held {
    uint64_t left;
};

/* Upper bound of credits, above any queue's depth. A peer that grants more violates the
 * protocol. */
#define RDMUX_CREDITS_MAX UINT32_C(0x7fffffff)

/* Returns the receives not used yet, granted or not. */
static inline uint64_t rdmux_credits_window(const struct rdmux_credits_given *given)
{
    return given->posted - given->used;
}

/* Returns the credits that the peer has or that are on the way to it. */
static inline uint64_t rdmux_credits_outstanding(const struct rdmux_credits_given *given)
{
    return given->granted - given->used;
}

/* Returns the credits that could be granted now. */
static inline uint64_t rdmux_credits_untold(const struct rdmux_credits_given *given)
{
    return given->posted - given->granted;
}

/* Grants up to max credits and returns their number. The caller tells the peer. */
static inline uint64_t rdmux_credits_tell(struct rdmux_credits_given *given, uint64_t max)
{
    uint64_t count = given->posted - given->granted;
    count = count < max ? count : max;
    given->granted += count;
    return count;
}

/* Returns whether a grant is worth a message of its own: the peer is down to half of the window or
 * less. A peer without credit may be waiting. */
static inline bool rdmux_credits_due(const struct rdmux_credits_given *given)
{
    return rdmux_credits_untold(given) > 0 &&
           2 * rdmux_credits_outstanding(given) <= rdmux_credits_window(given);
}

/* Counts a message that came. False: the peer had no credit for it. */
static inline bool rdmux_credits_use(struct rdmux_credits_given *given)
{
    if (given->granted == given->used) {
        return false;
    }
    given->used++;
    return true;
}

/* Adds count credits to the sender's. False: the sum exceeds RDMUX_CREDITS_MAX. */
static inline bool rdmux_credits_add(struct rdmux_credits_held *held, uint64_t count)
{
    if (count > RDMUX_CREDITS_MAX - held->left) {
        return false;
    }
    held->left += count;
    return true;
}

/* Takes the credit for a message that the sender starts. False: no credit. */
static inline bool rdmux_credits_take(struct rdmux_credits_held *held)
{
    if (held->left == 0) {
        return false;
    }
    held->left--;
    return true;
}

/*
 * Receives shared by many endpoints. An endpoint begins without credits. It asks, gets a few, gets
 * more each time it asks, and gives unused credits back when other endpoints wait. The pool is one
 * provider's part of an SRQ. Receives set aside for its endpoints must also be reserved by
 * rdmux_provider_reserve(), so that no other provider's endpoint takes them.
 */
struct rdmux_credits_pool {
    uint64_t promised; /* receives set aside and not used yet, sum over all endpoints */
};

enum {
    RDMUX_CREDITS_LEVEL_FIRST = 4, /* credits for an endpoint's first request */
    RDMUX_CREDITS_LEVEL_MAX = 64,  /* most receives set aside for one endpoint at a time */
};

/* Returns the next level (credits that an endpoint should have at a time) of an endpoint that
 * asked, from its previous level (0: none). */
uint32_t rdmux_credits_level_up(uint32_t level);

/*
 * Sets receives aside until the endpoint has level of them, as far as the pool has any. Returns how
 * many were set aside.
 *   receives  Posted to the pool, not taken by a message, and claimed by no other provider.
 *   waiting   Endpoints that want receives, this one included. Each gets at most its share, but at
 *             least 1.
 */
uint64_t rdmux_credits_lend(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given,
                            uint32_t level, uint64_t receives, uint64_t waiting);

/* Counts a message that used one of the endpoint's credits. False: the peer had none. */
bool rdmux_credits_use_shared(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given);

/* Gives receives not granted yet back to the pool. Returns how many. */
uint64_t rdmux_credits_withdraw(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given);

/* Takes count unused credits back from the peer. False: the peer did not have so many. */
bool rdmux_credits_return(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given,
                          uint64_t count);

/* Gives all unused receives of an endpoint that has ended back to the pool. Returns how many. */
uint64_t rdmux_credits_leave(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given);

#endif
