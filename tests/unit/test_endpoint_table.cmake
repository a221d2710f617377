# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test says when an endpoint wants to be looked at, and counts how often it is.
target_link_options(${test} PRIVATE
                    -Wl,--wrap=rdmux_ep_timers,--wrap=rdmux_ep_deadline,--wrap=rdmux_service_wake)
