# SPDX-License-Identifier: BSD-2-Clause-Patent
include(${PROJECT_SOURCE_DIR}/tests/unit/support/handshake_support.cmake)
target_compile_definitions(${test} PRIVATE RDMUX_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
