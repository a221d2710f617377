/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* All cases, in the order in which they run. */
#include "harness.h"

static void smoke(struct side *side)
{
    side_open_pair(side, NULL);
    exercise(side, &side->queue, side->ep);
    side_finish(side);
}

static const struct conformance_case first_case[] = {
    { "N.1", "two processes connect through this provider and every operation does its work", 0, 0,
      0, smoke, smoke },
};

static const struct suite first_suite = { "first", first_case, COUNT_OF(first_case) };

const struct suite *const suites[] = {
    &first_suite,     &transfer_suite, &long_suite,         &batch_suite,     &order_suite,
    &atomic_suite,    &receive_suite,  &memory_suite,       &revoke_suite,    &wakeup_suite,
    &passive_suite,   &end_suite,      &failure_suite,      &moving_suite,    &connect_suite,
    &hello_suite,     &adopt_suite,    &objects_suite,      &library_suite,   &model_suite,
    &goodbye_suite,   &small_suite,    &unpromised_suite,   &edges_suite,     &sparse_suite,
    &crossing_suite,  &limits_suite,   &srq_suite,          &imports_suite,   &duplex_suite,
    &flags_suite,     &lists_suite,    &sockets_suite,      &endpoints_suite, &asleep_suite,
    &generated_suite, &counts_suite,   &overtaking_suite,   &sharing_suite,   &another_cq_suite,
    &callers_suite,   &streams_suite,  &streams_lost_suite,
};

const size_t suite_count = COUNT_OF(suites);
