# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test sees each dialled socket, and can refuse it a port or an address.
target_link_options(${test} PRIVATE -Wl,--wrap=connect,--wrap=bind)
