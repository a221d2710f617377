# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test resolves a name to two addresses, and makes an address or the wire of a socket fail.
target_link_options(${test} PRIVATE -Wl,--wrap=getaddrinfo -Wl,--wrap=connect -Wl,--wrap=send -Wl,--wrap=recv -Wl,--wrap=close)
