# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test has a name with two addresses, and takes them away, or the wire of a socket.
target_link_options(${test} PRIVATE -Wl,--wrap=getaddrinfo -Wl,--wrap=connect -Wl,--wrap=send -Wl,--wrap=recv -Wl,--wrap=close)
