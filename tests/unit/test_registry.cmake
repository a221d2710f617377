# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test says whether its copy of rdmux counts as librdmux.so.
target_link_options(${test} PRIVATE -Wl,--wrap=rdmux_binding_is_shared)
