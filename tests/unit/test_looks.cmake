# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test makes the service thread's looks: it says when they are, and what the application does meanwhile.
target_link_options(${test} PRIVATE -Wl,--wrap=poll,--wrap=sched_yield)
