# SPDX-License-Identifier: BSD-2-Clause-Patent
include(${PROJECT_SOURCE_DIR}/tests/unit/support/simulated_adapter.cmake)
