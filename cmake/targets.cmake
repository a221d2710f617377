# SPDX-License-Identifier: BSD-2-Clause-Patent

# Options of every target of the project, tests included: the language and the warnings.
function(rdmux_project_target target)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
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
