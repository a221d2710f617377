# SPDX-License-Identifier: BSD-2-Clause-Patent
# Sanitizers apply to every target, so that library and tests agree on them.
if(RDMUX_SANITIZE)
    add_compile_options(-fsanitize=${RDMUX_SANITIZE} -fno-sanitize-recover=all
                        -fno-omit-frame-pointer -fno-optimize-sibling-calls)
    add_link_options(-fsanitize=${RDMUX_SANITIZE})
    # Every test program is linked with the library and what the sanitizers add: lld, where it is installed, takes
    # a third of the time.
    find_program(RDMUX_LLD ld.lld)
    mark_as_advanced(RDMUX_LLD)
    if(RDMUX_LLD)
        add_link_options(-fuse-ld=lld -Wl,--threads=1) # several links run beside each other
    endif()
endif()

if(RDMUX_LIBFUZZER)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "RDMUX_LIBFUZZER needs clang, this is ${CMAKE_C_COMPILER_ID}")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
    add_link_options(-fsanitize=fuzzer-no-link)
endif()
