# SPDX-License-Identifier: BSD-2-Clause-Patent
target_sources(${test} PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit/support/handshake_support.c)
target_compile_definitions(${test} PRIVATE RDMUX_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
