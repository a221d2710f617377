# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test records a region's messages to its importers, plays the service thread, and sees waits.
target_link_options(${test} PRIVATE -Wl,--wrap=rdmux_cq_mail -Wl,--wrap=rdmux_service_step
                                    -Wl,--wrap=rdmux_cq_service_attend_revocations
                                    -Wl,--wrap=pthread_cond_wait)
