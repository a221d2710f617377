# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test decides which devices are usable.
target_link_options(${test} PRIVATE -Wl,--wrap=rdmux_fabric_path_is_usable)
