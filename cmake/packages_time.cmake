# SPDX-License-Identifier: BSD-2-Clause-Patent
# Run by cpack before it packs: the files, and the package, have the time of SOURCE_DATE_EPOCH. Else
# that is the time of the last commit; in a source tree without history, the files keep theirs.
if(NOT DEFINED ENV{SOURCE_DATE_EPOCH})
    execute_process(COMMAND git log -1 --format=%ct WORKING_DIRECTORY ${CMAKE_CURRENT_LIST_DIR}
                    OUTPUT_VARIABLE time OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(time MATCHES "^[0-9]+$")
        set(ENV{SOURCE_DATE_EPOCH} ${time})
    endif()
endif()
if(DEFINED ENV{SOURCE_DATE_EPOCH})
    execute_process(COMMAND find "${CPACK_TEMPORARY_DIRECTORY}" -exec touch --no-dereference
                            "--date=@$ENV{SOURCE_DATE_EPOCH}" {} +
                    COMMAND_ERROR_IS_FATAL ANY)
endif()
