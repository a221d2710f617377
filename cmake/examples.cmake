# SPDX-License-Identifier: BSD-2-Clause-Patent
# Folders of examples/ with a CMakeLists.txt: programs of several files, and those that need a
# library which rdmux itself does not.
find_package(PkgConfig QUIET)

# Sets ${out} to whether pkg-config knows the module, which becomes PkgConfig::EXAMPLE_<module>. The
# examples that need it are left out otherwise.
function(rdmux_example_needs what package module out)
    set(found FALSE)
    if(PkgConfig_FOUND)
        pkg_check_modules(EXAMPLE_${module} QUIET IMPORTED_TARGET GLOBAL ${module})
        set(found ${EXAMPLE_${module}_FOUND})
    endif()
    if(NOT found)
        message(STATUS "The examples of ${what} are left out: ${package} is not installed")
    endif()
    set(${out} ${found} PARENT_SCOPE)
endfunction()

file(GLOB example_lists CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*/CMakeLists.txt
     ${PROJECT_SOURCE_DIR}/examples/*/*/CMakeLists.txt)
foreach(list_file IN LISTS example_lists)
    cmake_path(GET list_file PARENT_PATH folder)
    add_subdirectory(${folder})
endforeach()
