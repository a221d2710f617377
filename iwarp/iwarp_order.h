/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Which work requests are done, where reads finish behind those posted after them. A read has come
 * back when the peer has taken everything that went before it, so it says of all before it that they
 * are done. Anything else is done once the local TCP has it: that says of other such work requests
 * before it that they are done, and nothing of reads. Pure.
 *
 * Slots are those of verbs_send_ring: they grow without end and wrap at 2^32.
 */
#ifndef RDMUX_IWARP_ORDER_H
#define RDMUX_IWARP_ORDER_H

#include "verbs/verbs_ring.h"

#include <stdbool.h>
#include <stdint.h>

struct iwarp_order {
    uint32_t plain_end; /* slot after the newest that is known to be done */
    uint32_t read_end;  /* the same of reads */
};

static inline bool iwarp_order_is_behind(uint32_t end, uint32_t slot)
{
    return (int32_t)(end - slot) > 0;
}

/* A completion has come for that slot. */
static inline void iwarp_order_note(struct iwarp_order *order, uint32_t slot, bool is_read)
{
    if (is_read && !iwarp_order_is_behind(order->read_end, slot)) {
        order->read_end = slot + 1;
    }
    if (!iwarp_order_is_behind(order->plain_end, slot)) {
        order->plain_end = slot + 1;
    }
}

static inline bool iwarp_order_is_done(const struct iwarp_order *order, uint32_t slot, bool is_read)
{
    return iwarp_order_is_behind(order->read_end, slot) ||
           (!is_read && iwarp_order_is_behind(order->plain_end, slot));
}

/* Everything before tail is retired. Without this, what lags half the numbers behind would seem to be
 * ahead. */
static inline void iwarp_order_advance(struct iwarp_order *order, uint32_t tail)
{
    order->read_end = iwarp_order_is_behind(order->read_end, tail) ? order->read_end : tail;
    order->plain_end = iwarp_order_is_behind(order->plain_end, tail) ? order->plain_end : tail;
}

/*
 * In how many parts a piece of a read is read, at most 2; the first one ends at IWARP_PAGE. A device
 * may answer a short one wrongly where the peer's memory crosses a page: soft iWARP copies up to 32
 * bytes into the packet itself, and takes what is left on the first page for what is on the second
 * (siw_try_1seg(), in Linux 6.12 still).
 */
enum {
    IWARP_PAGE = 4096, /* the smallest there is */
    IWARP_SHORT_READ = 64,
};

static inline uint32_t iwarp_read_parts(uint64_t addr, uint64_t length)
{
    if (length == 0) {
        return 0;
    }
    return length <= IWARP_SHORT_READ && addr % IWARP_PAGE + length > IWARP_PAGE ? 2 : 1;
}

#endif
