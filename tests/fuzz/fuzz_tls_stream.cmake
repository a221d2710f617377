# SPDX-License-Identifier: BSD-2-Clause-Patent
# Without OpenSSL no fabric authenticates, and there is nothing to say to one.
if(NOT OPENSSL_FOUND)
    set_target_properties(${test} PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
