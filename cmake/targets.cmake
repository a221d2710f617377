# SPDX-License-Identifier: BSD-2-Clause-Patent

# Options of every target of the project, tests included: the language and the warnings.
function(rdmux_project_target target)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
    rdmux_warnings(${target})
endfunction()

# The same for the library's own sources, which may ask for no more than POSIX.1-2008 with XSI.
function(rdmux_library_target target)
    if(RDMUX_POSIX_ONLY)
        target_compile_definitions(${target} PRIVATE _POSIX_C_SOURCE=200809L _XOPEN_SOURCE=700
                                                     RDMUX_POSIX_ONLY=1)
        rdmux_warnings(${target})
    else()
        rdmux_project_target(${target})
    endif()
endfunction()

function(rdmux_warnings target)
    target_compile_options(${target} PRIVATE
        -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
        -Wcast-qual -Wformat=2 -Wundef -Wvla
        $<$<BOOL:${RDMUX_WERROR}>:-Werror>)
endfunction()

# The .c files of a folder below the top, sorted; empty if the folder is missing.
function(rdmux_sources_in folder out)
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.c)
    list(SORT sources)
    set(${out} ${sources} PARENT_SCOPE)
endfunction()

# For the sources of the fast path, where each instruction counts in every small write: no frame
# pointers, and one jump for each comparison instead of arithmetic that joins them.
set(RDMUX_FAST_PATH_OPTIONS -fomit-frame-pointer
    $<$<C_COMPILER_ID:GNU>:--param=logical-op-non-short-circuit=0>)
