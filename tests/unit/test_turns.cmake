# SPDX-License-Identifier: BSD-2-Clause-Patent
# The peers of the test authenticate, which needs OpenSSL.
if(OPENSSL_FOUND)
    target_link_libraries(${test} PRIVATE OpenSSL::SSL OpenSSL::Crypto)
else()
    set_target_properties(${test} PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
