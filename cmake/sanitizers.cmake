# SPDX-License-Identifier: BSD-2-Clause-Patent
# Sanitizers apply to every target, so that library and tests agree on them.
if(RDMUX_SANITIZE)
    add_compile_options(-fsanitize=${RDMUX_SANITIZE} -fno-sanitize-recover=all
                        -fno-omit-frame-pointer -fno-optimize-sibling-calls)
    add_link_options(-fsanitize=${RDMUX_SANITIZE})
endif()

if(RDMUX_LIBFUZZER)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "RDMUX_LIBFUZZER needs clang, this is ${CMAKE_C_COMPILER_ID}")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
    add_link_options(-fsanitize=fuzzer-no-link)
endif()
