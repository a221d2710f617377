# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test sees what a region tells its importers, and plays the service thread.
target_link_options(${test} PRIVATE -Wl,--wrap=rdmux_cq_mail -Wl,--wrap=rdmux_service_step)
