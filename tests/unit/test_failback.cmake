# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test says which devices are in good order.
target_link_options(${test} PRIVATE -Wl,--wrap=rdmux_fabric_path_is_usable)
