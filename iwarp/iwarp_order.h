/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Which work requests are done on devices where a read finishes after requests posted behind it. A
 * read completes when the peer has taken everything before it, so all earlier work requests are
 * done then. Any other work request completes once the local TCP has its bytes; all earlier ones
 * that are not reads are done then. Pure.
 *
 * Slots are those of verbs_send_ring: they only grow, and wrap at 2^32.
 */
#ifndef RDMUX_IWARP_ORDER_H
#define RDMUX_IWARP_ORDER_H

#include "verbs/verbs_ring.h"

#include <stdbool.h>
#include <stdint.h>

struct iwarp_order {
    uint32_t write_end; /* slot after the newest work request known to be done */
    uint32_t read_end;  /* slot after the newest read known to be done */
};

static inline bool iwarp_order_is_behind(uint32_t end, uint32_t slot)
{
    return (int32_t)(end - slot) > 0;
}

/* Notes a completion for the slot. */
static inline void iwarp_order_note(struct iwarp_order *order, uint32_t slot, bool is_read)
{
    if (is_read && !iwarp_order_is_behind(order->read_end, slot)) {
        order->read_end = slot + 1;
    }
    if (!iwarp_order_is_behind(order->write_end, slot)) {
        order->write_end = slot + 1;
    }
}

static inline bool iwarp_order_is_done(const struct iwarp_order *order, uint32_t slot, bool is_read)
{
    return iwarp_order_is_behind(order->read_end, slot) ||
           (!is_read && iwarp_order_is_behind(order->write_end, slot));
}

/* Moves both ends up to the tail: everything before it is retired. An end half the number range
 * behind would seem to be ahead. */
static inline void iwarp_order_advance(struct iwarp_order *order, uint32_t tail)
{
    order->read_end = iwarp_order_is_behind(order->read_end, tail) ? order->read_end : tail;
    order->write_end = iwarp_order_is_behind(order->write_end, tail) ? order->write_end : tail;
}

/*
 * Returns the number of reads for one piece of a read, at most 2; the first one ends at a boundary
 * of IWARP_PAGE. A device may answer a short read wrongly if it crosses a page of the peer's
 * memory: soft iWARP copies up to 32 bytes into the packet itself, and takes the bytes left on the
 * first page for those on the second (siw_try_1seg(), in Linux 6.12 still).
 */
enum {
    IWARP_PAGE = 4096, /* the smallest page size */
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
