# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test lets one allocation after another fail.
target_link_options(${test} PRIVATE -Wl,--wrap=calloc -Wl,--wrap=realloc)
