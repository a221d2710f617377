# SPDX-License-Identifier: BSD-2-Clause-Patent
# The strangers of the test speak TLS, which needs OpenSSL. The test sees each step of their handshakes,
# and can delay it.
if(OPENSSL_FOUND)
    target_link_libraries(${test} PRIVATE OpenSSL::Crypto)
    target_link_options(${test} PRIVATE -Wl,--wrap=rdmux_tls_step,--wrap=rdmux_shake_queue)
else()
    set_target_properties(${test} PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
