/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "iwarp/iwarp_credit.h"

bool rdmux_iwarp_credit_tell(struct iwarp_credit *credit, struct iwarp_side *out)
{
    bool has_room = credit->told - credit->acknowledged < IWARP_UNSEEN_MAX;
    bool must_acknowledge = credit->heard - credit->heard_told >= IWARP_UNSEEN_MAX / 2;
    if (!iwarp_credit_is_due(credit) || (!has_room && !must_acknowledge)) {
        return false;
    }
    /* A message that acknowledges carries the untold rest as well. */
    bool is_counted = has_room && (credit->has_news || rdmux_credits_due(&credit->given));
    credit->told += is_counted ? 1 : 0;
    credit->heard_told = credit->heard;
    credit->has_news = false;
    *out = (struct iwarp_side){
        .kind = is_counted ? IWARP_SIDE_CREDITS : IWARP_SIDE_SEEN,
        .seen = credit->heard,
        .granted = iwarp_credit_grant(credit),
        .returned = (uint32_t)credit->returned,
        .asked = credit->asked,
        .recalled = credit->recalled,
        .answered = credit->answered,
        .known = (uint32_t)credit->granted,
    };
    return true;
}

/* How far a counter of the peer has advanced; 0 for a message that came out of order. */
static uint32_t advance_credit(uint32_t now, uint32_t before)
{
    int32_t by = (int32_t)(now - before);
    return by > 0 ? (uint32_t)by : 0;
}

enum rdmux_status rdmux_iwarp_credit_hear(struct iwarp_credit *credit,
                                          const struct iwarp_side *message,
                                          struct iwarp_credit_news *out)
{
    if (message->seen - credit->acknowledged > credit->told - credit->acknowledged) {
        return RDMUX_PROTOCOL;
    }
    if (message->kind == IWARP_SIDE_CREDITS &&
        ++credit->heard - credit->heard_told > IWARP_UNSEEN_MAX) {
        return RDMUX_PROTOCOL;
    }
    int64_t granted = iwarp_credit_granted(credit, message->granted);
    if (granted < 0) {
        return RDMUX_PROTOCOL;
    }
    uint32_t returned = advance_credit(message->returned, (uint32_t)credit->returned_us);
    *out = (struct iwarp_credit_news){
        .granted = (uint64_t)granted,
        .returned = returned,
        .is_question = advance_credit(message->asked, credit->asked_us) != 0 &&
                       message->known == iwarp_credit_told(credit),
        .is_recall = advance_credit(message->recalled, credit->recalled_us) != 0,
        .is_answer = advance_credit(message->answered, credit->answered_us) != 0,
    };
    credit->acknowledged = message->seen;
    credit->returned_us += returned;
    credit->asked_us += advance_credit(message->asked, credit->asked_us);
    credit->recalled_us += advance_credit(message->recalled, credit->recalled_us);
    credit->answered_us += advance_credit(message->answered, credit->answered_us);
    return RDMUX_OK;
}
