/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Credits of one endpoint: how many messages may go in either direction, and when the peer is told.
 * iWARP ends a connection on a message that meets no receive (RFC 5041, section 7), so a message only
 * goes where a receive is known to be. Pure: no device, no clock, no memory of its own.
 *
 * The peer learns what it may send from the header of each message and from messages of the side
 * channel. Nothing orders the two, so all numbers on the wire count from the first one, and of two the
 * later one holds.
 *
 * Messages of the side channel have receives of their own, IWARP_UNSEEN_MAX of them and a few: so many
 * may be on their way unacknowledged. An acknowledgment alone goes for every half of that, and needs
 * none itself: of these at most IWARP_SEEN_MAX are on their way.
 */
#ifndef RDMUX_IWARP_CREDIT_H
#define RDMUX_IWARP_CREDIT_H

#include "iwarp/iwarp_message.h"
#include "providers/credits.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    IWARP_UNSEEN_MAX = 8,
    IWARP_SEEN_MAX = 3,
    IWARP_ONCE_MAX = 1, /* ENDED; and HELLO before all others */
};

struct iwarp_credit {
    struct rdmux_credits_given given; /* to the peer */
    /* By the peer: messages that may go, that went, that were given back. */
    uint64_t granted;
    uint64_t spent;
    uint64_t returned;
    uint32_t asked; /* how often we have asked for credits, and the peer */
    uint32_t asked_us;
    uint32_t recalled; /* how often we have asked for credits back, and the peer */
    uint32_t recalled_us;
    uint32_t answered; /* of its questions, and of ours */
    uint32_t answered_us;
    uint64_t returned_us;
    uint32_t told; /* messages that the peer has to acknowledge, and those that it has */
    uint32_t acknowledged;
    uint32_t heard; /* messages that we have to acknowledge, and those that we have */
    uint32_t heard_told;
    bool has_news; /* something is to be told soon */
};

/* Messages that may go now. */
static inline uint64_t iwarp_credit_left(const struct iwarp_credit *credit)
{
    return credit->granted - credit->spent - credit->returned;
}

/* A message goes. False: it may not. */
static inline bool iwarp_credit_spend(struct iwarp_credit *credit)
{
    if (iwarp_credit_left(credit) == 0) {
        return false;
    }
    credit->spent++;
    return true;
}

/* All that the peer was ever told it may send. `given` forgets what came back. */
static inline uint32_t iwarp_credit_told(const struct iwarp_credit *credit)
{
    return (uint32_t)(credit->given.granted + credit->returned_us);
}

/* What to put into the header of a message: everything that is to be told. */
static inline uint32_t iwarp_credit_grant(struct iwarp_credit *credit)
{
    (void)rdmux_credits_tell(&credit->given, UINT64_MAX);
    return iwarp_credit_told(credit);
}

/* The peer grants. Returns how many more than before; -1: more than there can be. */
static inline int64_t iwarp_credit_granted(struct iwarp_credit *credit, uint32_t granted)
{
    int32_t more = (int32_t)(granted - (uint32_t)credit->granted);
    if (more <= 0) {
        return 0; /* an older message than one that came before it */
    }
    if ((uint64_t)more > RDMUX_CREDITS_MAX - iwarp_credit_left(credit)) {
        return -1;
    }
    credit->granted += (uint64_t)more;
    return more;
}

/* Does the peer wait to be told? */
static inline bool iwarp_credit_is_due(const struct iwarp_credit *credit)
{
    return credit->has_news || rdmux_credits_due(&credit->given) ||
           credit->heard - credit->heard_told >= IWARP_UNSEEN_MAX / 2;
}

/* We have none: the peer is to give us some. */
static inline void iwarp_credit_ask(struct iwarp_credit *credit)
{
    credit->asked++;
    credit->has_news = true;
}

/* The peer is to give back what it does not use. */
static inline void iwarp_credit_recall(struct iwarp_credit *credit)
{
    credit->recalled++;
    credit->has_news = true;
}

/* Gives everything back that the peer has asked for. */
static inline void iwarp_credit_return(struct iwarp_credit *credit)
{
    credit->returned += iwarp_credit_left(credit);
    credit->answered = credit->recalled_us;
    credit->has_news = true;
}

/* Fills in the message to be sent now. False: there is none, or it has to wait for an
 * acknowledgment. */
bool rdmux_iwarp_credit_tell(struct iwarp_credit *credit, struct iwarp_side *out);

/* What a message of the peer has brought. */
struct iwarp_credit_news {
    uint64_t granted;  /* more to send */
    uint64_t returned; /* credits that the peer gives back */
    bool asks;         /* it has none and wants some; none is on the way to it */
    bool recalls;      /* it wants back what we do not use */
    bool answers;      /* it has given back what we wanted */
};

/* Takes CREDITS or SEEN. RDMUX_PROTOCOL: it makes no sense. */
enum rdmux_status rdmux_iwarp_credit_hear(struct iwarp_credit *credit,
                                          const struct iwarp_side *message,
                                          struct iwarp_credit_news *out);

#endif
