# The suite is part of the command, not of the library.
target_sources(${test} PRIVATE ${PROJECT_SOURCE_DIR}/tests/conformance/generate.c
                               ${PROJECT_SOURCE_DIR}/tests/conformance/generated_table.c)
