# SPDX-License-Identifier: BSD-2-Clause-Patent
# Compiled once for the programs that use it.
if(NOT TARGET handshake_support)
    add_library(handshake_support OBJECT ${PROJECT_SOURCE_DIR}/tests/unit/support/handshake_support.c)
    rdmux_internal_test(handshake_support)
    target_link_libraries(handshake_support PRIVATE PkgConfig::CMOCKA)
endif()
target_link_libraries(${test} PRIVATE handshake_support)
