# SPDX-License-Identifier: BSD-2-Clause-Patent
include(${PROJECT_SOURCE_DIR}/tests/unit/support/simulated_adapter.cmake)
# The test turns the adapter into soft iWARP.
target_link_options(${test} PRIVATE -Wl,--wrap=ibv_query_device -Wl,--wrap=ibv_reg_mr_iova2)
