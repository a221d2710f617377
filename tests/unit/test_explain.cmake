# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test makes each allocation fail in turn.
target_link_options(${test} PRIVATE -Wl,--wrap=calloc -Wl,--wrap=realloc)
