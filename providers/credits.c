/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Credits for receives shared by many endpoints. The header has the accounting of one endpoint. */
#include "providers/credits.h"

uint32_t rdmux_credits_level_up(uint32_t level)
{
    if (level == 0) {
        return RDMUX_CREDITS_LEVEL_FIRST;
    }
    return level < RDMUX_CREDITS_LEVEL_MAX / 2 ? 2 * level : RDMUX_CREDITS_LEVEL_MAX;
}

uint64_t rdmux_credits_lend(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given,
                            uint32_t level, uint64_t receives, uint64_t waiting)
{
    uint64_t window = rdmux_credits_window(given);
    if (window >= level || receives <= pool->promised) {
        return 0;
    }
    uint64_t count = level - window;
    uint64_t unpromised = receives - pool->promised;
    uint64_t share = waiting > 1 ? unpromised / waiting : unpromised;
    share = share > 0 ? share : 1;
    count = count < share ? count : share;
    given->posted += count;
    pool->promised += count;
    return count;
}

bool rdmux_credits_use_shared(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given)
{
    if (!rdmux_credits_use(given)) {
        return false;
    }
    pool->promised--;
    return true;
}

uint64_t rdmux_credits_withdraw(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given)
{
    uint64_t count = rdmux_credits_untold(given);
    given->posted -= count;
    pool->promised -= count;
    return count;
}

bool rdmux_credits_return(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given,
                          uint64_t count)
{
    if (count > rdmux_credits_outstanding(given)) {
        return false;
    }
    given->granted -= count;
    given->posted -= count;
    pool->promised -= count;
    return true;
}

uint64_t rdmux_credits_leave(struct rdmux_credits_pool *pool, struct rdmux_credits_given *given)
{
    uint64_t count = rdmux_credits_window(given);
    given->posted = given->used;
    given->granted = given->used;
    pool->promised -= count;
    return count;
}
