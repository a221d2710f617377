# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test has a name with two addresses, and takes them away.
target_link_options(${test} PRIVATE -Wl,--wrap=getaddrinfo -Wl,--wrap=connect)
