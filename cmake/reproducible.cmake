# SPDX-License-Identifier: BSD-2-Clause-Patent
# Two builds of the same sources, by the same compiler, in any two folders have the same bytes. A
# debugger then looks for the sources below its own folder: gdb -cd, or "set substitute-path".
if(NOT RDMUX_REPRODUCIBLE)
    return()
endif()
include(CheckCCompilerFlag)
check_c_compiler_flag(-ffile-prefix-map=a=b RDMUX_HAS_FILE_PREFIX_MAP)
if(NOT RDMUX_HAS_FILE_PREFIX_MAP)
    message(FATAL_ERROR "RDMUX_REPRODUCIBLE needs -ffile-prefix-map, which this compiler lacks")
endif()
# The last one that fits wins, and the build folder may be below the sources.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}=rdmux
                    -ffile-prefix-map=${PROJECT_BINARY_DIR}=rdmux/build)
# Programs find the library of the build from where they are themselves.
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
# Archives without times and owners.
set(CMAKE_C_ARCHIVE_CREATE "<CMAKE_AR> qcD <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_C_ARCHIVE_APPEND "<CMAKE_AR> qD <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_C_ARCHIVE_FINISH "<CMAKE_RANLIB> -D <TARGET>")
