# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test sees each call of memcmp().
target_link_options(${test} PRIVATE -Wl,--wrap=memcmp)
