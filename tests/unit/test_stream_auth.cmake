# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test makes certificates. Without OpenSSL no fabric authenticates, and there is nothing to test.
if(OPENSSL_FOUND)
    target_link_libraries(${test} PRIVATE OpenSSL::Crypto)
else()
    set_target_properties(${test} PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
