# SPDX-License-Identifier: BSD-2-Clause-Patent
# The fabrics of the test authenticate, which needs OpenSSL.
if(OPENSSL_FOUND)
    target_link_libraries(${test} PRIVATE OpenSSL::Crypto)
    target_compile_definitions(${test} PRIVATE RDMUX_HAVE_OPENSSL=1)
else()
    set_target_properties(${test} PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
# As the library is linked: resolving a symbol late saves all registers on the stack, secrets included.
target_link_options(${test} PRIVATE -Wl,-z,now)
