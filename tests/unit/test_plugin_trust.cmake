# SPDX-License-Identifier: BSD-2-Clause-Patent
# A plug-in that ends the process that loads it, and a program that opens a fabric, linked with the
# static and with the shared library.
add_library(plugin_trap MODULE ${PROJECT_SOURCE_DIR}/tests/unit/support/plugin_trap.c)
set_target_properties(plugin_trap PROPERTIES PREFIX "")
foreach(kind "" _static)
    add_executable(plugin_opener${kind} ${PROJECT_SOURCE_DIR}/tests/unit/support/plugin_opener.c)
    rdmux_project_target(plugin_opener${kind})
    target_link_libraries(plugin_opener${kind} PRIVATE rdmux${kind})
endforeach()
foreach(part plugin_trap plugin_opener plugin_opener_static)
    set_target_properties(${part} PROPERTIES
                          LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/unit
                          RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/unit)
    add_dependencies(${test} ${part})
endforeach()
target_compile_definitions(${test} PRIVATE
    TRAP_FILE="$<TARGET_FILE:plugin_trap>"
    OPENER_FILE="$<TARGET_FILE:plugin_opener>"
    STATIC_OPENER_FILE="$<TARGET_FILE:plugin_opener_static>"
    LIBRARY_FOLDER="$<TARGET_FILE_DIR:rdmux>")
target_link_options(${test} PRIVATE -Wl,--wrap=rdmux_binding_check)
