# SPDX-License-Identifier: BSD-2-Clause-Patent
# librdmux-fi.so: rdmux as a provider of libfabric. libfabric takes a provider that is built against
# its own header or an older one, so the header of this machine decides.
find_path(RDMUX_LIBFABRIC_INCLUDE rdma/providers/fi_prov.h)
find_library(RDMUX_LIBFABRIC_LIBRARY fabric)
mark_as_advanced(RDMUX_LIBFABRIC_INCLUDE RDMUX_LIBFABRIC_LIBRARY)

if(NOT RDMUX_LIBFABRIC_INCLUDE OR NOT RDMUX_LIBFABRIC_LIBRARY)
    message(STATUS "libfabric was not found: rdmux is built WITHOUT its provider for libfabric and "
                   "MPI. Debian: apt-get install libfabric-dev")
    return()
endif()

rdmux_sources_in(adapters/fi fi_sources)
add_library(rdmux_fi MODULE ${fi_sources})
rdmux_project_target(rdmux_fi)
rdmux_harden(rdmux_fi ${harden_data_path})
target_include_directories(rdmux_fi PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(rdmux_fi SYSTEM PRIVATE ${RDMUX_LIBFABRIC_INCLUDE})
target_link_libraries(rdmux_fi PRIVATE rdmux ${RDMUX_LIBFABRIC_LIBRARY} Threads::Threads)
# libfabric unloads providers at exit, when threads of the fabrics that a program left open still
# run code of the library.
target_link_options(rdmux_fi PRIVATE -Wl,-z,nodelete
                    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/fi.map)
set_target_properties(rdmux_fi PROPERTIES
    OUTPUT_NAME rdmux-fi
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/fi.map
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libfabric
    INSTALL_RPATH "$ORIGIN/..")
install(TARGETS rdmux_fi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/libfabric COMPONENT fi)
message(STATUS "libfabric: ${RDMUX_LIBFABRIC_LIBRARY}, its provider is lib/libfabric/librdmux-fi.so")
