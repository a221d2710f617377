# SPDX-License-Identifier: BSD-2-Clause-Patent
# Compiled once for the programs that use it.
if(NOT TARGET checked_mutexes)
    add_library(checked_mutexes OBJECT ${PROJECT_SOURCE_DIR}/tests/unit/support/checked_mutexes.c)
    rdmux_internal_test(checked_mutexes)
    target_link_libraries(checked_mutexes PRIVATE PkgConfig::CMOCKA)
endif()
target_link_libraries(${test} PRIVATE checked_mutexes)
target_link_options(${test} PRIVATE -Wl,--wrap=pthread_mutex_init -Wl,--wrap=pthread_mutex_unlock)
