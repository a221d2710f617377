# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test sees a removal wait.
target_link_options(${test} PRIVATE -Wl,--wrap=nanosleep)
