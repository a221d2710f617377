# SPDX-License-Identifier: BSD-2-Clause-Patent
# mr_scene.h records a region's messages to its importers, and plays the service thread.
target_link_options(${test} PRIVATE -Wl,--wrap=rdmux_cq_mail -Wl,--wrap=rdmux_service_step
                                    -Wl,--wrap=rdmux_cq_service_attend_revocations)
