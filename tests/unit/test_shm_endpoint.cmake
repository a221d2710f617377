# SPDX-License-Identifier: BSD-2-Clause-Patent
# The test sees which memory of a peer is accessed.
target_link_options(${test} PRIVATE -Wl,--wrap=process_vm_readv -Wl,--wrap=process_vm_writev)
include(${PROJECT_SOURCE_DIR}/tests/unit/support/checked_mutexes.cmake)
