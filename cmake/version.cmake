# SPDX-License-Identifier: BSD-2-Clause-Patent
# The version is in project() and, for the compiler, in rdmux.h. The build refuses to start if they
# differ.
set(version_header ${PROJECT_SOURCE_DIR}/api/include/rdmux/rdmux.h)
if(EXISTS ${version_header})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${version_header})
    set(header_version "")
    foreach(part MAJOR MINOR PATCH)
        file(STRINGS ${version_header} line REGEX "^#define RDMUX_VERSION_${part} +[0-9]+$")
        string(REGEX REPLACE ".* " "" number "${line}")
        list(APPEND header_version "${number}")
    endforeach()
    list(JOIN header_version "." header_version)
    if(NOT header_version STREQUAL PROJECT_VERSION)
        message(FATAL_ERROR "rdmux.h says version ${header_version}, "
                            "CMakeLists.txt says ${PROJECT_VERSION}")
    endif()
endif()
