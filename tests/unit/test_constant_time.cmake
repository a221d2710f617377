# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test sees who compares with memcmp().
target_link_options(${test} PRIVATE -Wl,--wrap=memcmp)
