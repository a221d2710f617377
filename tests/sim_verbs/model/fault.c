/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "model.h"

void fault_completed(struct end *end, uint64_t sequence, const struct rdmux_wc *wc)
{
    (void)sequence;
    (void)wc;
    end->has_failed = true;
}

void fault_received(struct end *end, const struct rdmux_wc *wc)
{
    (void)wc;
    end->has_failed_receives = true;
}
