/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "stats.h"

#include <string.h>

void stats_begin(struct stats *stats)
{
    memset(stats, 0, sizeof(*stats));
    stats->min = UINT64_MAX;
}

void stats_merge(struct stats *stats, const struct stats *more)
{
    stats->count += more->count;
    stats->sum += more->sum;
    stats->min = more->min < stats->min ? more->min : stats->min;
    stats->max = more->max > stats->max ? more->max : stats->max;
    for (uint64_t i = 0; i < STATS_BUCKET_COUNT; i++) {
        stats->buckets[i] += more->buckets[i];
    }
}

/* Returns the middle of a bucket. */
static double bucket_value(uint64_t index)
{
    uint64_t per_power = UINT64_C(1) << STATS_PRECISION_BITS;
    if (index < 2 * per_power) {
        return (double)index;
    }
    uint64_t shift = index / per_power - 1;
    uint64_t low = (index - shift * per_power) << shift;
    return (double)low + (double)((UINT64_C(1) << shift) - 1) / 2.0;
}

double stats_quantile(const struct stats *stats, double share)
{
    if (stats->count == 0) {
        return 0.0;
    }
    double exact = share * (double)stats->count;
    uint64_t wanted = (uint64_t)exact;
    wanted += (double)wanted < exact ? 1 : 0;
    wanted = wanted < 1 ? 1 : wanted > stats->count ? stats->count : wanted;
    uint64_t seen = 0;
    uint64_t index = 0;
    while (index < STATS_BUCKET_COUNT - 1 && seen + stats->buckets[index] < wanted) {
        seen += stats->buckets[index];
        index++;
    }
    double value = bucket_value(index);
    value = value < (double)stats->min ? (double)stats->min : value;
    return value > (double)stats->max ? (double)stats->max : value;
}
