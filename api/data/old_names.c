/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Functions of provider.h by the names that they had before. Plug-ins that were built then call
 * them. */
#include <rdmux/provider.h>

struct rdmux_lane; /* struct rdmux_fast_path, by its old name */

RDMUX_API size_t rdmux_lane_poll(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max);
RDMUX_API void rdmux_lane_stop(struct rdmux_lane *fast);

size_t rdmux_lane_poll(struct rdmux_cq *cq, struct rdmux_wc *wc, size_t max)
{
    return rdmux_fast_path_poll(cq, wc, max);
}

void rdmux_lane_stop(struct rdmux_lane *fast)
{
    rdmux_fast_path_stop((struct rdmux_fast_path *)(void *)fast);
}
