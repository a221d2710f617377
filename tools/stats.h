/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A histogram of durations in bounded memory. Minimum and maximum are exact, the rest is within 0.4
 * %. */
#ifndef RDMUX_TOOL_STATS_H
#define RDMUX_TOOL_STATS_H

#include <stdint.h>

enum {
    STATS_PRECISION_BITS = 8,
    STATS_BUCKET_COUNT = (64 - STATS_PRECISION_BITS + 1) << STATS_PRECISION_BITS,
};

struct stats {
    uint64_t count;
    uint64_t sum;
    uint64_t min;
    uint64_t max;
    uint64_t buckets[STATS_BUCKET_COUNT];
};

void stats_begin(struct stats *stats);

/* Values below 2^9 have a bucket each; above that, each power of two has 2^8 buckets. */
static inline void stats_add(struct stats *stats, uint64_t value)
{
    unsigned top = 63U - (unsigned)__builtin_clzll(value | 1);
    unsigned shift = top > STATS_PRECISION_BITS ? top - STATS_PRECISION_BITS : 0;
    stats->buckets[((uint64_t)shift << STATS_PRECISION_BITS) + (value >> shift)]++;
    stats->count++;
    stats->sum += value;
    stats->min = value < stats->min ? value : stats->min;
    stats->max = value > stats->max ? value : stats->max;
}

/* Adds the values of the second histogram to the first. */
void stats_merge(struct stats *stats, const struct stats *more);

/* Returns the smallest value that at least the given share (0 to 1) of all values does not exceed;
 * 0 if there are no values. */
double stats_quantile(const struct stats *stats, double share);

#endif
