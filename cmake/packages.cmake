# SPDX-License-Identifier: BSD-2-Clause-Patent
# Debian packages, by cpack: librdmux0, librdmux-dev, rdmux-tools, and rdmux-NAME for each plug-in.
# docs/PACKAGING.md says how. A new plug-in needs a line in RDMUX_PLUGINS and a text here.
set(verbs_package_text "The plug-in for RDMA adapters, with the paths ib, roce and iwarp.")
set(ofi_package_text "The plug-in for libfabric, with the path ofi.")
set(ucx_package_text "The plug-in for UCX, with the path ucx.")
set(fi_package_text "rdmux as a provider of libfabric, for its programs and for MPI.")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME rdmux)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The rdmux authors <rdmux@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/packages_time.cmake)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# rdmux_package COMPONENT NAME SECTION TEXT: a package of the files of an installed component.
function(rdmux_package component name section text)
    string(TOUPPER ${component} upper)
    set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
    set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
    set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
    set(CPACK_DEBIAN_${upper}_DESCRIPTION "${text}" PARENT_SCOPE)
    # Debian's place for the licence, in packages only.
    install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} RENAME copyright
            COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

set(this_librdmux "librdmux0 (= ${PROJECT_VERSION})")
rdmux_package(runtime librdmux0 libs "The library, with the paths shm and tcp.")
rdmux_package(dev librdmux-dev libdevel
              "Headers, static libraries, and files for CMake and pkg-config.")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${this_librdmux}")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "libssl-dev, libibverbs-dev, librdmacm-dev, pkg-config")
if(TARGET rdmux_tool)
    rdmux_package(tools rdmux-tools net
                  "The command rdmux, which explains, measures and tests paths, and copies files.")
    set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${this_librdmux}")
endif()
set(plugin_packages)
foreach(plugin IN LISTS RDMUX_PLUGINS ITEMS fi)
    if(TARGET rdmux_${plugin})
        string(TOUPPER ${plugin} upper)
        rdmux_package(${plugin} rdmux-${plugin} net "${${plugin}_package_text}")
        # A plug-in is bound to the interface of providers, which has no promise between versions.
        set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${this_librdmux}")
        list(APPEND plugin_packages rdmux-${plugin})
    endif()
endforeach()
if("rdmux-verbs" IN_LIST plugin_packages)
    set(CPACK_DEBIAN_VERBS_PACKAGE_RECOMMENDS ibverbs-providers)
endif()
list(JOIN plugin_packages ", " CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS)
# What a program that uses a function needs of librdmux0.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/symbols)

include(CPack)
