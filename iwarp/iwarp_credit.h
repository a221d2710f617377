/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Credits of one endpoint: how many messages each side may send, and when the peer is told. iWARP
 * ends a connection on a message without a receive (RFC 5041, section 7), so a message is sent only
 * if a receive is known to be posted for it. Pure: no device, no clock, no allocation.
 *
 * The peer learns its credits from the header of each message and from side-channel messages. The
 * two channels have no order between them. So all numbers on the wire count from the first message,
 * and of two numbers the later one holds.
 *
 * Side-channel messages have receives of their own, IWARP_UNSEEN_MAX and a few more:
 * IWARP_UNSEEN_MAX messages may be unacknowledged. A message that only acknowledges is sent for
 * every half of IWARP_UNSEEN_MAX and needs no acknowledgment itself; at most IWARP_SEEN_MAX of
 * these are in flight.
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
    IWARP_ONCE_MAX = 1, /* ENDED; HELLO comes before all others */
};

struct iwarp_credit {
    struct rdmux_credits_given given; /* given to the peer */
    /* Given by the peer: messages it has granted, messages sent, credits given back. */
    uint64_t granted;
    uint64_t spent;
    uint64_t returned;
    uint32_t asked; /* how often this side has asked for credits, and the peer */
    uint32_t asked_us;
    uint32_t recalled; /* how often this side has asked for credits back, and the peer */
    uint32_t recalled_us;
    uint32_t answered; /* recalls of the peer that were answered, and recalls of ours */
    uint32_t answered_us;
    uint64_t returned_us;
    uint32_t told; /* messages that the peer has to acknowledge, and has acknowledged */
    uint32_t acknowledged;
    uint32_t heard; /* messages that this side has to acknowledge, and has acknowledged */
    uint32_t heard_told;
    bool has_news; /* there is something to tell soon */
};

/* Messages that this side may send now. */
static inline uint64_t iwarp_credit_left(const struct iwarp_credit *credit)
{
    return credit->granted - credit->spent - credit->returned;
}

/* Takes a credit for a message. False: there is none. */
static inline bool iwarp_credit_spend(struct iwarp_credit *credit)
{
    if (iwarp_credit_left(credit) == 0) {
        return false;
    }
    credit->spent++;
    return true;
}

/* All credits that the peer was ever told of. `given` does not count those that came back. */
static inline uint32_t iwarp_credit_told(const struct iwarp_credit *credit)
{
    return (uint32_t)(credit->given.granted + credit->returned_us);
}

/* Returns the number for a message's header, which grants all credits that are not yet told. */
static inline uint32_t iwarp_credit_grant(struct iwarp_credit *credit)
{
    (void)rdmux_credits_tell(&credit->given, UINT64_MAX);
    return iwarp_credit_told(credit);
}

/* Takes a grant of the peer. Returns how many credits it adds; -1: more than there can be. */
static inline int64_t iwarp_credit_granted(struct iwarp_credit *credit, uint32_t granted)
{
    int32_t more = (int32_t)(granted - (uint32_t)credit->granted);
    if (more <= 0) {
        return 0; /* an older message, overtaken by a newer one */
    }
    if ((uint64_t)more > RDMUX_CREDITS_MAX - iwarp_credit_left(credit)) {
        return -1;
    }
    credit->granted += (uint64_t)more;
    return more;
}

/* Is a side message due? */
static inline bool iwarp_credit_is_due(const struct iwarp_credit *credit)
{
    return credit->has_news || rdmux_credits_due(&credit->given) ||
           credit->heard - credit->heard_told >= IWARP_UNSEEN_MAX / 2;
}

/* Asks the peer for credits: this side has none. */
static inline void iwarp_credit_ask(struct iwarp_credit *credit)
{
    credit->asked++;
    credit->has_news = true;
}

/* Asks the peer to give unused credits back. */
static inline void iwarp_credit_recall(struct iwarp_credit *credit)
{
    credit->recalled++;
    credit->has_news = true;
}

/* Gives all unused credits back, as the peer has asked. */
static inline void iwarp_credit_return(struct iwarp_credit *credit)
{
    credit->returned += iwarp_credit_left(credit);
    credit->answered = credit->recalled_us;
    credit->has_news = true;
}

/* Fills in the side message to be sent now. False: there is none, or it has to wait for an
 * acknowledgment. */
bool rdmux_iwarp_credit_tell(struct iwarp_credit *credit, struct iwarp_side *out);

/* News in a message of the peer. */
struct iwarp_credit_news {
    uint64_t granted;  /* credits added for this side */
    uint64_t returned; /* credits that the peer gives back */
    bool is_question;  /* the peer has no credit, wants some, and none is on the way to it */
    bool is_recall;    /* the peer wants unused credits back */
    bool is_answer;    /* the peer has answered our recall */
};

/* Takes CREDITS or SEEN. RDMUX_PROTOCOL: the message is invalid. */
enum rdmux_status rdmux_iwarp_credit_hear(struct iwarp_credit *credit,
                                          const struct iwarp_side *message,
                                          struct iwarp_credit_news *out);

#endif
