# SPDX-License-Identifier: BSD-2-Clause-Patent
# The plug-in rdmux-verbs.so: InfiniBand, RoCE and iWARP. It links libibverbs and librdmacm the
# ordinary way. Without their headers the build reports that it leaves the plug-in out.
set(verbs_provides "InfiniBand, RoCE, iWARP")
if(NOT RDMUX_VERBS)
    set(verbs_absent "RDMUX_VERBS is OFF")
    return()
endif()
find_path(RDMUX_IBVERBS_INCLUDE infiniband/verbs.h)
find_library(RDMUX_IBVERBS_LIBRARY ibverbs)
find_path(RDMUX_RDMACM_INCLUDE rdma/rdma_cma.h)
find_library(RDMUX_RDMACM_LIBRARY rdmacm)
mark_as_advanced(RDMUX_IBVERBS_INCLUDE RDMUX_IBVERBS_LIBRARY RDMUX_RDMACM_INCLUDE
                 RDMUX_RDMACM_LIBRARY)

set(verbs_missing)
foreach(part IBVERBS_INCLUDE IBVERBS_LIBRARY RDMACM_INCLUDE RDMACM_LIBRARY)
    if(NOT RDMUX_${part})
        list(APPEND verbs_missing ${part})
    endif()
endforeach()
if(verbs_missing)
    set(verbs_absent "rdma-core was not found (Debian: libibverbs-dev librdmacm-dev)")
    message(WARNING "rdma-core was not found: rdmux is built WITHOUT InfiniBand, RoCE and iWARP. "
                    "Debian: apt-get install libibverbs-dev librdmacm-dev")
    return()
endif()

include(CheckStructHasMember)
set(CMAKE_REQUIRED_INCLUDES ${RDMUX_IBVERBS_INCLUDE})
check_struct_has_member("struct ibv_port_attr" active_speed_ex infiniband/verbs.h
                        RDMUX_VERBS_HAVE_ACTIVE_SPEED_EX)
unset(CMAKE_REQUIRED_INCLUDES)

set(verbs_sources)
foreach(folder verbs roce iwarp)
    rdmux_sources_in(${folder} folder_sources)
    list(APPEND verbs_sources ${folder_sources})
endforeach()

# Credits are shared with the providers inside librdmux, which does not export them.
add_library(rdmux_verbs MODULE ${verbs_sources} ${PROJECT_SOURCE_DIR}/providers/credits.c
            ${PROJECT_SOURCE_DIR}/providers/credit_scheduler.c)
rdmux_project_target(rdmux_verbs)
rdmux_harden(rdmux_verbs ${harden_data_path}) # all of it is near the data path
set_source_files_properties(${PROJECT_SOURCE_DIR}/verbs/verbs_fast_path.c PROPERTIES
                            COMPILE_OPTIONS "${RDMUX_FAST_PATH_OPTIONS}")
target_include_directories(rdmux_verbs PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(rdmux_verbs SYSTEM PRIVATE ${RDMUX_IBVERBS_INCLUDE}
                                                      ${RDMUX_RDMACM_INCLUDE})
target_compile_definitions(rdmux_verbs PRIVATE
                           $<$<BOOL:${RDMUX_VERBS_HAVE_ACTIVE_SPEED_EX}>:RDMUX_VERBS_HAVE_ACTIVE_SPEED_EX=1>)
target_link_libraries(rdmux_verbs PRIVATE rdmux ${RDMUX_IBVERBS_LIBRARY} ${RDMUX_RDMACM_LIBRARY}
                                          Threads::Threads)
set_target_properties(rdmux_verbs PROPERTIES
    PREFIX ""
    OUTPUT_NAME rdmux-verbs
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/rdmux
    INSTALL_RPATH "$ORIGIN/..")

# The same objects for programs that link librdmux.a, without what that has already, and without the
# entry of the file. install.cmake installs it.
add_library(rdmux_verbs_static STATIC
            $<FILTER:$<TARGET_OBJECTS:rdmux_verbs>,EXCLUDE,/credits[.]c|/credit_scheduler[.]c|/verbs_entry[.]c>)
add_dependencies(rdmux_verbs_static rdmux_verbs)
add_library(rdmux::verbs_static ALIAS rdmux_verbs_static)
set_target_properties(rdmux_verbs_static PROPERTIES
    OUTPUT_NAME rdmux_verbs EXPORT_NAME verbs_static LINKER_LANGUAGE C)
target_link_libraries(rdmux_verbs_static INTERFACE rdmux_static
    $<BUILD_INTERFACE:${RDMUX_IBVERBS_LIBRARY}> $<BUILD_INTERFACE:${RDMUX_RDMACM_LIBRARY}>
    $<INSTALL_INTERFACE:ibverbs> $<INSTALL_INTERFACE:rdmacm>)
