# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test is the name server.
target_link_options(${test} PRIVATE -Wl,--wrap=getaddrinfo)
