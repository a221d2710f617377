# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test counts how often the service thread is woken.
target_link_options(${test} PRIVATE -Wl,--wrap=rdmux_service_wake)
