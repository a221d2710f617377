# SPDX-License-Identifier: BSD-2-Clause-Patent
# All sources are compiled once, position independent, into rdmux_objects; the shared and the static
# library are two ways to package them. Each folder's CMakeLists.txt adds its own sources.
add_library(rdmux_objects OBJECT)
rdmux_library_target(rdmux_objects)
rdmux_harden(rdmux_objects)
target_include_directories(rdmux_objects PRIVATE ${PROJECT_SOURCE_DIR}
                                                 ${PROJECT_SOURCE_DIR}/api/include)
target_compile_definitions(rdmux_objects PRIVATE
                           $<$<BOOL:${OPENSSL_FOUND}>:RDMUX_HAVE_OPENSSL=1>)
# The one folder of plug-ins that setuid programs search, whatever is beside the library.
target_compile_definitions(rdmux_objects PRIVATE
                           RDMUX_PLUGIN_FOLDER="${CMAKE_INSTALL_FULL_LIBDIR}/rdmux")
if(RDMUX_TRACE_POINTS AND RDMUX_SDT_INCLUDE)
    target_compile_definitions(rdmux_objects PRIVATE RDMUX_HAVE_SDT=1)
    target_include_directories(rdmux_objects SYSTEM PRIVATE ${RDMUX_SDT_INCLUDE})
endif()
target_link_libraries(rdmux_objects PRIVATE Threads::Threads)
set(crypto_library)
if(OPENSSL_FOUND)
    set(crypto_library OpenSSL::SSL OpenSSL::Crypto)
    target_link_libraries(rdmux_objects PRIVATE ${crypto_library})
endif()
set_target_properties(rdmux_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)

set(library_folders api negotiation providers shm tcp_fallback stream)
if(RDMUX_POSIX_ONLY)
    list(REMOVE_ITEM library_folders shm)
endif()
foreach(folder IN LISTS library_folders)
    if(EXISTS ${PROJECT_SOURCE_DIR}/${folder}/CMakeLists.txt)
        add_subdirectory(${folder})
    endif()
endforeach()

set_source_files_properties(${PROJECT_SOURCE_DIR}/api/data/post.c ${PROJECT_SOURCE_DIR}/api/data/request.c
                            ${PROJECT_SOURCE_DIR}/api/data/cq.c PROPERTIES
                            COMPILE_OPTIONS "${RDMUX_FAST_PATH_OPTIONS}")
rdmux_harden_data_path()

get_target_property(library_sources rdmux_objects SOURCES)
if(NOT library_sources)
    message(FATAL_ERROR "no source file in api, negotiation, providers, shm, tcp_fallback or stream")
endif()

add_library(rdmux SHARED $<TARGET_OBJECTS:rdmux_objects>)
rdmux_harden(rdmux)
add_library(rdmux_static STATIC $<TARGET_OBJECTS:rdmux_objects>)
set_target_properties(rdmux PROPERTIES
    VERSION ${PROJECT_VERSION}
    SOVERSION 0
    LINKER_LANGUAGE C
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/rdmux.map)
target_link_options(rdmux PRIVATE -Wl,--version-script,${PROJECT_SOURCE_DIR}/cmake/rdmux.map)
if(NOT RDMUX_SANITIZE)
    # clang leaves a sanitizer's symbols in a shared library to the program.
    target_link_options(rdmux PRIVATE -Wl,-z,defs)
endif()
set_target_properties(rdmux_static PROPERTIES OUTPUT_NAME rdmux LINKER_LANGUAGE C)

foreach(library rdmux rdmux_static)
    add_library(rdmux::${library} ALIAS ${library})
    target_include_directories(${library} INTERFACE
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/api/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
target_link_libraries(rdmux PRIVATE Threads::Threads ${CMAKE_DL_LIBS} ${crypto_library})
target_link_libraries(rdmux_static INTERFACE Threads::Threads ${CMAKE_DL_LIBS} ${crypto_library})
# Programs and libraries do not export the names of their copy: librdmux.so, or a library with
# another copy, would be bound to it.
target_link_options(rdmux_static INTERFACE LINKER:--exclude-libs,librdmux.a)
set(rdmux_pc_private "-pthread -ldl")
if(OPENSSL_FOUND)
    string(APPEND rdmux_pc_private " -lssl -lcrypto")
endif()
