# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test answers for the files of /proc/sys.
target_link_options(${test} PRIVATE -Wl,--wrap=open)
