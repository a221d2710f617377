# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test answers for the files of /proc/sys, for the congestion control and for addresses.
target_link_options(${test} PRIVATE -Wl,--wrap=open -Wl,--wrap=getsockopt -Wl,--wrap=setsockopt
    -Wl,--wrap=getsockname -Wl,--wrap=getpeername)
