# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test sees each socket that is dialled, and may have no port left for it, or no address.
target_link_options(${test} PRIVATE -Wl,--wrap=connect,--wrap=bind)
