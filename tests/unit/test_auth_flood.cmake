# SPDX-License-Identifier: BSD-2-Clause-Patent
# Makes certificates.
if(OPENSSL_FOUND)
    target_link_libraries(${test} PRIVATE OpenSSL::Crypto)
endif()
