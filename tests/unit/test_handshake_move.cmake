# SPDX-License-Identifier: BSD-2-Clause-Patent
target_sources(${test} PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit/support/handshake_support.c)
