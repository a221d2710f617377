# SPDX-License-Identifier: BSD-2-Clause-Patent
# Hardening: options that keep a mistake in an installed file from becoming a break-in.
# docs/SECURITY.md lists them, and tests/security reads them from the built files. Tests are built
# without them.
include(CheckCCompilerFlag)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

option(RDMUX_HARDEN "Harden the libraries and tools" ON)

set(harden_compile)
set(harden_link -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
foreach(flag stack-protector-strong stack-clash-protection)
    string(MAKE_C_IDENTIFIER RDMUX_HAS_${flag} has)
    check_c_compiler_flag(-f${flag} ${has})
    if(${has})
        list(APPEND harden_compile -f${flag})
    endif()
endforeach()

# Checked calls need an optimizer, and a sanitizer has its own.
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
if(NOT RDMUX_SANITIZE AND "${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${build_type}}" MATCHES "-O([1-9sgz]|fast)")
    list(APPEND harden_compile -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()

function(rdmux_harden target)
    if(RDMUX_HARDEN)
        target_compile_options(${target} PRIVATE ${harden_compile} ${ARGN})
        set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
        get_target_property(kind ${target} TYPE)
        if(NOT kind STREQUAL OBJECT_LIBRARY AND NOT kind STREQUAL STATIC_LIBRARY)
            target_link_options(${target} PRIVATE ${harden_link})
        endif()
    endif()
endfunction()

# On the data path each instruction counts in every request. So only functions with arrays of 64
# bytes or more on their stack have a guard: the stronger kind costs 5 % more instructions
# (tests/instructions).
set(harden_data_path -fstack-protector
                     $<$<C_COMPILER_ID:GNU>:--param=ssp-buffer-size=64>)
function(rdmux_harden_data_path)
    if(NOT RDMUX_HARDEN)
        return()
    endif()
    set(data_path)
    foreach(file base/pieces base/span_index data/receive data/completion data/fault data/cq_service data/fast_path
                 data/bounce data/segments data/srq data/srq_device object/remote object/ep object/mr
                 object/target progress/cq_owner progress/cq_progress loop/service)
        set(path ${PROJECT_SOURCE_DIR}/api/${file}.c)
        if(NOT EXISTS ${path})
            message(FATAL_ERROR "${path} is gone; the list of the data path's files names it")
        endif()
        list(APPEND data_path ${path})
    endforeach()
    foreach(folder providers shm tcp_fallback)
        rdmux_sources_in(${folder} sources)
        list(APPEND data_path ${sources})
    endforeach()
    set_source_files_properties(${data_path} PROPERTIES COMPILE_OPTIONS "${harden_data_path}")
    # rdmux_write() and the other posts, and rdmux_cq_poll()
    set_source_files_properties(${PROJECT_SOURCE_DIR}/api/data/post.c
                                ${PROJECT_SOURCE_DIR}/api/data/request.c
                                ${PROJECT_SOURCE_DIR}/api/data/cq.c PROPERTIES
                                COMPILE_OPTIONS "${harden_data_path};${RDMUX_FAST_PATH_OPTIONS}")
endfunction()
