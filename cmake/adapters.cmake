# SPDX-License-Identifier: BSD-2-Clause-Patent
# Plug-ins over other communication libraries, each over the shared part in adapters/framed.

# rdmux_adapter(name): the plug-in rdmux-<name>.so of the sources in adapters/<name>, as target
# rdmux_<name>. Credits are shared with the providers inside librdmux, which does not export them.
function(rdmux_adapter name)
    rdmux_sources_in(adapters/${name} own_sources)
    rdmux_sources_in(adapters/framed framed_sources)
    set(target rdmux_${name})
    add_library(${target} MODULE ${own_sources} ${framed_sources}
                ${PROJECT_SOURCE_DIR}/providers/credits.c
                ${PROJECT_SOURCE_DIR}/providers/credit_scheduler.c)
    rdmux_project_target(${target})
    rdmux_harden(${target} ${harden_data_path})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${target} PRIVATE rdmux Threads::Threads ${CMAKE_DL_LIBS})
    set_target_properties(${target} PROPERTIES
        PREFIX ""
        OUTPUT_NAME rdmux-${name}
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/rdmux
        INSTALL_RPATH "$ORIGIN/..")
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/rdmux COMPONENT ${name})
endfunction()

find_package(PkgConfig QUIET)

# rdmux-ofi.so: its headers are needed to build it; it opens libfabric itself when it is asked for.
if(PkgConfig_FOUND)
    pkg_check_modules(RDMUX_OFI QUIET libfabric>=1.14)
endif()
if(RDMUX_OFI_FOUND)
    rdmux_adapter(ofi)
    target_include_directories(rdmux_ofi SYSTEM PRIVATE ${RDMUX_OFI_INCLUDE_DIRS})
else()
    set(ofi_absent "libfabric was not found (Debian: libfabric-dev pkg-config)")
endif()
set(ofi_provides "the fabrics of libfabric")

# rdmux-ucx.so: the same. It is not linked to UCX, whose libraries change a process as soon as they are
# loaded unless its environment forbids it (adapters/ucx/ucx_environment.h).
find_path(RDMUX_UCX_INCLUDE ucp/api/ucp.h)
mark_as_advanced(RDMUX_UCX_INCLUDE)
if(RDMUX_UCX_INCLUDE)
    rdmux_adapter(ucx)
    target_include_directories(rdmux_ucx SYSTEM PRIVATE ${RDMUX_UCX_INCLUDE})
else()
    set(ucx_absent "UCX was not found (Debian: libucx-dev)")
endif()
set(ucx_provides "the transports of UCX")
