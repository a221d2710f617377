# SPDX-License-Identifier: BSD-2-Clause-Patent
# No installed file contains the prefix, so that an installed tree can be moved. The components are
# the packages of packages.cmake: runtime, dev, tools, and one for each plug-in.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)

file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rdmux)

install(TARGETS rdmux EXPORT rdmux-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS rdmux_static EXPORT rdmux-static-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(plugin IN LISTS RDMUX_PLUGINS)
    if(TARGET rdmux_${plugin})
        install(TARGETS rdmux_${plugin}
                LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/rdmux COMPONENT ${plugin})
    endif()
endforeach()
if(TARGET rdmux_verbs_static)
    install(TARGETS rdmux_verbs_static EXPORT rdmux-static-targets
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY api/include/rdmux DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")

if(TARGET rdmux_tool)
    set_target_properties(rdmux_tool PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
    install(TARGETS rdmux_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
    install(FILES ${PROJECT_BINARY_DIR}/bin/rdmux-conformance DESTINATION ${CMAKE_INSTALL_BINDIR}
            COMPONENT tools)
    # The dissector for captures.
    install(FILES tools/wireshark/rdmux.lua DESTINATION ${CMAKE_INSTALL_DATADIR}/rdmux/wireshark
            COMPONENT tools)
endif()

install(EXPORT rdmux-targets NAMESPACE rdmux:: DESTINATION ${package_dir})
install(EXPORT rdmux-static-targets NAMESPACE rdmux:: DESTINATION ${package_dir})
configure_package_config_file(cmake/rdmux-config.cmake.in rdmux-config.cmake
                              INSTALL_DESTINATION ${package_dir}
                              PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(rdmux-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/rdmux-config.cmake
              ${PROJECT_BINARY_DIR}/rdmux-config-version.cmake
        DESTINATION ${package_dir})

set(packages rdmux rdmux-static)
if(TARGET rdmux_verbs_static)
    list(APPEND packages rdmux-verbs-static)
endif()
foreach(package IN LISTS packages)
    configure_file(cmake/${package}.pc.in ${package}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${package}.pc
            DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

# For authors of bindings, and for readers of what the command prints.
install(FILES docs/interface.json DESTINATION ${CMAKE_INSTALL_DATADIR}/rdmux)
install(DIRECTORY docs/schemas DESTINATION ${CMAKE_INSTALL_DATADIR}/rdmux COMPONENT tools)
install(FILES LICENSE docs/PROVIDER-GUIDE.md docs/SEMANTICS.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# For authors of providers: the skeleton to copy, and the toy to read beside the guide.
install(DIRECTORY tests/plugins/skeleton tests/plugins/toy
        DESTINATION ${CMAKE_INSTALL_DOCDIR}/providers)
foreach(section RANGE 1 8)
    file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.${section})
    set(component dev)
    if(section EQUAL 1)
        set(component tools)
    endif()
    if(pages)
        install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section}
                COMPONENT ${component})
    endif()
endforeach()

# Manual pages: those of section 3 are the comments of rdmux.h and stream.h, those of section 1 the
# --help of the command and docs/man/*.roff. Without awk, and where the command does not run here,
# they are left out.
find_program(RDMUX_AWK awk)
mark_as_advanced(RDMUX_AWK)
if(RDMUX_AWK)
    set(page_command)
    if(TARGET rdmux_tool AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
        set(page_command $<TARGET_FILE:rdmux_tool>)
    endif()
    file(GLOB page_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/* ${PROJECT_SOURCE_DIR}/docs/reference/*)
    add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/man/made
                       COMMAND sh ${PROJECT_SOURCE_DIR}/docs/reference/pages ${PROJECT_BINARY_DIR}/man
                               ${PROJECT_VERSION} ${page_command}
                       COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/man/made
                       DEPENDS ${page_sources} ${page_command} ${PROJECT_SOURCE_DIR}/api/include/rdmux/rdmux.h
                               ${PROJECT_SOURCE_DIR}/api/include/rdmux/stream.h
                       COMMENT "Making the manual pages" VERBATIM)
    add_custom_target(rdmux_pages ALL DEPENDS ${PROJECT_BINARY_DIR}/man/made)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/man/man1 DESTINATION ${CMAKE_INSTALL_MANDIR}
            COMPONENT tools OPTIONAL)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/man/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL)
endif()

# Removes what the last installation of this build folder has installed.
if(PROJECT_IS_TOP_LEVEL)
    add_custom_target(uninstall
                      COMMAND ${CMAKE_COMMAND} -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
                              -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake
                      VERBATIM)
endif()
