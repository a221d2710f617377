# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test makes the service thread's checks: it decides when they come, and what the application
# does between them.
target_link_options(${test} PRIVATE -Wl,--wrap=poll,--wrap=sched_yield)
